"""Stories as a user would type them: commands on real files, and reports in a browser."""
