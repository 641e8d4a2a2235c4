"""Charts, and the HTML report of a run."""
