"""Benchmarks: `make bench`. Each prints ratios against a peer or a floor measured in the same run, and writes JSON."""
