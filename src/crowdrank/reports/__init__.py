"""What was found, to look at: charts, and the HTML report of a run."""
