"""Unused grades, unanimous answers and skewed shares: how often each model reports the right grade.

Documents have 5 labels by 20 assessors on the scale 0-4, of which answers use some grades only. Every model is compared
with the majority in every world; a model that assumes ordered errors has the goal only where errors are neighboring.
"""

from __future__ import annotations

import numpy as np

from crowdrank import get_aggregator
from crowdrank.consensus import METHODS
from crowdrank.testing.robustness_checks import NOISY, UNANIMOUS, GradeWorld, applies_to, share_right
from experiments.robustness import Goal

SEEDS = range(3000, 3005)
"""Random states that were not used while models were developed."""
NOT_ESTIMATES = ("highest", "auto")
"""Methods that do not estimate the true grade, or select one of the others."""


def measure_world(world: GradeWorld) -> dict[str, float]:
    """Return the mean share of right grades by method.

    >>> measure_world(GradeWorld((2,), (1.0,)))["majority"]
    1.0
    """
    drawn = [world.draw(seed) for seed in (SEEDS if world.noise else SEEDS[:1])]
    methods = [name for name in METHODS if name not in NOT_ESTIMATES]
    return {name: float(np.mean([share_right(get_aggregator(name), *data) for data in drawn])) for name in methods}


def goals() -> list[Goal]:
    """Return the share of right grades of every model in every world; the goal is that of the majority minus 0.01."""
    rows = []
    for world in (*UNANIMOUS, *NOISY):
        right = measure_world(world)
        for name, share in right.items():
            lowest = right["majority"] - 0.01 if applies_to(world, get_aggregator(name)) else -float("inf")
            rows.append(Goal(f"{world}: {name}, majority {right['majority']:.3f}", share, at_least=round(lowest, 3)))
    return rows
