"""Evaluation measures with exact treatment of ties, significance tests and comparison tables."""
