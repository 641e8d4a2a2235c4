"""REMAP's first simulated experiment: the value of a positive label grows with the rigor of who gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.label_learning.remapper import Remapper
from experiments import known_assessors
from experiments.base import Experiment, Tell, quiet


class Rigor(known_assessors.KnownAssessors):
    """Assessors who label documents 1 if the grade is above their rigor.

    >>> rng = np.random.default_rng(0)
    >>> Rigor().label(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]), 2, rng).tolist()
    [0, 0, 1]
    """

    name, mode, quality = "rigor", "T", "rigor"
    learns = "the target of a positive label"
    generated: ClassVar[Mapping[str, Any]] = {"queries": 3000, "documents": 20, "features": 600, "random_state": 100}
    tried = (
        "with 20 to 100 features targets were monotone in 0 or 1 of 5 splits, with 250 to 600 features of 1,000 to "
        "2,000 queries in 2 to 4. That the linear functions cut off label features beyond 5 standard deviations, and "
        "so held back the rare positive labels of the most rigorous, was found and fixed on another world (seed 200)."
    )

    def levels(self, grades: Floats) -> Floats:
        """Return the levels from 0 to one below the highest grade."""
        return np.arange(grades.max())

    def label(self, grades: Floats, own: Floats, highest: float, rng: np.random.Generator) -> Integers:
        """Return 1 if the grade is above the rigor, else 0 (REMAP eq. 11)."""
        return np.asarray(grades > own, dtype=np.int64)

    def columns(self, label: Integers, own: Floats, levels: Floats) -> dict[str, Any]:
        """Return the label, and an indicator of positive labels for each level."""
        return {"label": label, **{f"positive_of_{level:g}": (label == 1) & (own == level) for level in levels}}

    def read(self, remapper: Remapper, label: Integers, own: Floats, level: float) -> float:
        """Return the mean target of the positive labels of a level."""
        return float(remapper.targets_[(label == 1) & (own == level)].mean())


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = known_assessors.SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Run the experiment with all remappers and data sets, or with those in `methods` and `only`."""
    return known_assessors.run(Rigor(), methods, only, seeds=seeds, keep=keep, tell=tell)
