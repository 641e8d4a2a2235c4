"""Build the documentation, notebooks and releases, and test robustness; not part of the library."""
