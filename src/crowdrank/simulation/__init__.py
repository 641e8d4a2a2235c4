"""Worlds in which the truth is known: documents with features and expert grades, and a crowd that judges them."""

from crowdrank.simulation.world import Settings, World, simulate

__all__ = ["Settings", "World", "simulate"]
