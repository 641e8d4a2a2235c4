"""Differences between two candidates on the same queries, and the verdict on the selected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crowdrank._typing import Floats
from crowdrank.evaluation.comparison import difference_intervals, fisher_randomization, format_p

ALPHA = 0.05
"""Significance level; intervals have the level 1 - ALPHA."""
MIN_TEST_QUERIES = 6
"""With fewer test queries, a randomization test gives every difference a p-value above 0.05."""
DETECTABLE_STANDARD_ERRORS = 2.8
"""Size of a difference, in its standard errors, at which a test finds it significant with a probability of 80%."""
EXPERT_QUERIES = 50
"""Number of expert-graded queries whose benefit is stated if there are none."""


@dataclass(frozen=True)
class Contrast:
    """Difference between two candidates on the test queries, or between two kinds of labels on expert-graded queries.

    Attributes:
        candidate, other: names of the candidates.
        mean, other_mean: their mean values of the measure.
        difference, lower, upper: difference of the means with its interval.
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


@dataclass(frozen=True)
class Verdict:
    """Whether the selected ranker is better than everything that the user would otherwise use.

    It is `better` if it is significantly better than each alternative (an intersection-union test: each is tested at
    the full level, and the p-value of the verdict is the largest one). It is `worse` if it is significantly worse than
    one of them, after a Bonferroni correction for their number. Otherwise the answer is `open`, or `baseline` if the
    selected ranker is the baseline itself.

    Attributes:
        answer: `better`, `worse`, `open` or `baseline`.
        alternatives: names of the baseline and of the simple candidates that it is compared with.
        decisive: name of the alternative that decides the answer; empty without alternatives.
        p: p-value of the answer; None without alternatives.
        beaten: names of the alternatives that it is significantly better than.

    """

    answer: Literal["better", "worse", "open", "baseline"]
    alternatives: tuple[str, ...] = ()
    decisive: str = ""
    p: float | None = None
    beaten: tuple[str, ...] = ()

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Verdict:
        """Return a verdict from its fields in JSON."""
        return cls(**{**fields, **{name: tuple(fields[name]) for name in ("alternatives", "beaten")}})


def decide_verdict(contrasts: Sequence[Contrast], *, is_baseline: bool = False) -> Verdict:
    """Return the verdict from the differences of the selected ranker to each alternative.

    >>> def contrast(other: str, difference: float, p: float) -> Contrast:
    ...     return Contrast("gda", other, 0.5 + difference, 0.5, difference, 0.0, 0.0, p, 0, 0, 0)
    >>> decide_verdict([contrast("majority", 0.1, 0.001), contrast("average", 0.05, 0.06)])
    Verdict(answer='open', alternatives=('majority', 'average'), decisive='average', p=0.06, beaten=('majority',))
    >>> decide_verdict([contrast("majority", 0.1, 0.001), contrast("best-feature", -0.1, 0.01)]).answer
    'worse'
    """
    names, n = tuple(one.other for one in contrasts), len(contrasts)
    if not contrasts:
        return Verdict("baseline" if is_baseline else "open")
    beaten = tuple(one.other for one in contrasts if one.difference > 0 and one.p <= ALPHA)
    worst = min(contrasts, key=lambda one: (one.difference > 0, one.p))
    if worst.difference < 0 and n * worst.p <= ALPHA:
        return Verdict("worse", names, worst.other, n * worst.p, beaten)
    decisive = min(contrasts, key=lambda one: one.difference)
    if decisive.difference > 0:
        decisive = max(contrasts, key=lambda one: (one.p, -one.difference))
    answer: Literal["better", "open"] = "better" if len(beaten) == n else "open"
    return Verdict("baseline" if is_baseline else answer, names, decisive.other, decisive.p, beaten)


def contrast_values(candidate: str, ours: Floats, other: str, theirs: Floats, random_state: int) -> Contrast:
    """Return the difference between two candidates, given the measure of each on each query, (n_queries,)."""
    off = ours - theirs
    lower, upper = difference_intervals(off[:, None], level=1 - ALPHA, random_state=random_state)[0]
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
