"""Synthetic data with known truth: documents with features and expert grades, and the judgments of a crowd."""

from crowdrank.simulation.world import Settings, World, simulate

__all__ = ["Settings", "World", "simulate"]
