"""Benchmarks (`make bench`): ratios to another library or to a lower bound measured in the same run."""
