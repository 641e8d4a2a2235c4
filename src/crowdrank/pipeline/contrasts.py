"""Differences between two rankings on the same queries, with intervals and p-values."""

from __future__ import annotations

from dataclasses import dataclass

from crowdrank._typing import Floats
from crowdrank.evaluation.significance import bootstrap_intervals, fisher_randomization, format_p

ALPHA = 0.05
"""Significance level; intervals have the level 1 - ALPHA."""


@dataclass(frozen=True)
class Contrast:
    """Difference between two candidates on the test queries, or between two kinds of labels on expert-graded queries.

    Attributes:
        candidate, other: names of the candidates.
        mean, other_mean: their mean values of the measure.
        difference, lower, upper: difference of the means with its bootstrap interval.
        p: p-value of a paired randomization test.
        n_better, n_worse, n_equal: number of queries on which the candidate is better, worse and equal.

    """

    candidate: str
    other: str
    mean: float
    other_mean: float
    difference: float
    lower: float
    upper: float
    p: float
    n_better: int
    n_worse: int
    n_equal: int

    @property
    def percent(self) -> float | None:
        """Difference in percent of the other mean; None if that is 0."""
        return 100 * self.difference / self.other_mean if self.other_mean > 0 else None

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.n_better + self.n_worse + self.n_equal


def contrast_values(candidate: str, ours: Floats, other: str, theirs: Floats, random_state: int) -> Contrast:
    """Return the difference between two candidates, given the measure of each on each query, (n_queries,)."""
    off = ours - theirs
    lower, upper = bootstrap_intervals(off[:, None], level=1 - ALPHA, random_state=random_state)[0]
    return Contrast(
        candidate,
        other,
        float(ours.mean()),
        float(theirs.mean()),
        float(off.mean()),
        float(lower),
        float(upper),
        float(fisher_randomization(ours, theirs, random_state=random_state)),
        int((off > 0).sum()),
        int((off < 0).sum()),
        int((off == 0).sum()),
    )


def difference_text(contrast: Contrast) -> str:
    """Return a difference between two candidates with its interval and p-value.

    >>> difference_text(Contrast("gda", "majority", 0.6, 0.5, 0.1, 0.05, 0.15, 0.01, 8, 1, 1))
    '+20.0% over majority (+0.1000, 95% interval +0.0500 to +0.1500, p 0.010)'
    """
    off, percent = contrast.difference, contrast.percent
    size = f"{off:+.4f}" if percent is None else f"{percent:+.1f}%"
    significance = "" if contrast.p <= ALPHA else ", not significant"
    interval = f"95% interval {contrast.lower:+.4f} to {contrast.upper:+.4f}"
    relation = "over" if off > 0 else "against"
    return f"{size} {relation} {contrast.other} ({off:+.4f}, {interval}, p {format_p(contrast.p)}{significance})"
