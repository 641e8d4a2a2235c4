"""Synthetic data with known truth: documents with features and expert grades, and the judgments of a crowd."""

from crowdrank.simulation.world import World, WorldSettings, simulate

__all__ = ["World", "WorldSettings", "simulate"]
