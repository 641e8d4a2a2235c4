"""Estimates without expert grades: grades drawn from their probabilities, queries drawn by the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.estimation.contrast import ContrastEstimate
from crowdrank.evaluation.alignment import Alignment, GoldGrades
from crowdrank.evaluation.measures import Measure
from crowdrank.evaluation.scoring import Scoring

N_DRAWS = 500
"""Number of draws of all grades and of the queries."""


@dataclass(frozen=True)
class WithoutExperts:
    """Draws of the means of runs, (n_draws, n_runs), and their values from the labels by query, (n_queries, n_runs)."""

    draws: Floats
    labels: Floats

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        draws = self.draws @ contrast
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        as_extreme = min((draws <= 0).sum(), (draws >= 0).sum())
        p = min(1.0, 2 * (as_extreme + 1) / (len(draws) + 1))
        return ContrastEstimate(
            float(draws.mean()), float(lower), float(upper), float(p), float((self.labels @ contrast).mean())
        )


def draw_means(
    alignments: list[Alignment], queries: Integers, labels: Floats, measure: Measure, rng: np.random.Generator
) -> WithoutExperts:
    """Return draws of the mean of each run over queries.

    Args:
        alignments: the runs, joined with the same gold: the labels.
        queries: (n_queries,) the queries to use.
        labels: (n_queries, n_runs) values from the labels.
        measure: any measure.
        rng: random numbers.

    """
    n_queries, grades = len(labels), alignments[0].grades
    means = np.empty((N_DRAWS, len(alignments)))
    for draw in range(N_DRAWS):
        drawn = draw_grades(grades, rng)
        times = np.bincount(rng.integers(0, n_queries, n_queries), minlength=n_queries)
        for run, aligned in enumerate(alignments):
            values = Scoring(replace(aligned, grades=drawn), skip_unjudged=False).values(measure)[queries]
            means[draw, run] = times @ values / n_queries
    return WithoutExperts(means, labels)


def draw_grades(grades: GoldGrades, rng: np.random.Generator) -> GoldGrades:
    """Return one draw of the grades from their probabilities; certain grades stay as they are."""
    if grades.shares is None or grades.values is None:
        return grades
    below = grades.shares.cumsum(axis=1)[:, :-1] < rng.random((len(grades.shares), 1))
    return GoldGrades(grades.values[below.sum(axis=1)])
