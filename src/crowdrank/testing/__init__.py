"""Checks of the contracts of aggregators, rankers and policies."""
