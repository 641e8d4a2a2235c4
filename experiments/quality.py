"""REMAP's second simulated experiment: the weight of a label grows with the quality of who gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.label_learning.remapper import Remapper
from experiments import known_assessors
from experiments.base import Experiment, Tell, quiet

LEVELS = (0.0, 0.5, 0.75, 1.0)


class Quality(known_assessors.KnownAssessors):
    """Assessors who label documents good or bad, correctly with a probability equal to their quality.

    >>> rng = np.random.default_rng(0)
    >>> Quality().label(np.array([0.0, 4.0, 0.0, 4.0]), np.array([1.0, 1.0, 0.0, 0.0]), 4, rng).tolist()
    [0, 1, 1, 0]
    """

    name, mode, quality = "quality", "W", "quality"
    learns = "the weight of a label"
    generated: ClassVar[Mapping[str, Any]] = {"queries": 1500, "documents": 20, "features": 60, "random_state": 100}
    tried = "of 600 queries with 20 features, weights were monotone in 3 of these 5 splits."

    def levels(self, grades: Floats) -> Floats:
        """Return the levels of the paper."""
        return np.array(LEVELS)

    def label(self, grades: Floats, own: Floats, highest: float, rng: np.random.Generator) -> Integers:
        """Return whether the grade is in the upper half of the scale, reversed if the assessor errs."""
        good = grades >= highest / 2
        right = rng.random(len(grades)) < own
        return np.where(right, good, ~good).astype(np.int64)

    def columns(self, label: Integers, own: Floats, levels: Floats) -> dict[str, Any]:
        """Return an indicator of each level."""
        return {f"quality_{level:g}": own == level for level in levels}

    def read(self, remapper: Remapper, label: Integers, own: Floats, level: float) -> float:
        """Return the mean weight of the labels of a level."""
        return float(remapper.weights_[own == level].mean())


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = known_assessors.SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Run the experiment with all remappers and data sets, or with those in `methods` and `only`."""
    return known_assessors.run(Quality(), methods, only, seeds=seeds, keep=keep, tell=tell)
