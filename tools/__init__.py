"""What builds the documentation, the notebooks, the picture of the README and a release; no part of the library."""
