"""Differences between two candidates on the same queries, and the verdict on the selected one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from scipy.special import ndtri

from crowdrank._text import format_p
from crowdrank._typing import Floats
from crowdrank.evaluation.comparison import difference_intervals, fisher_randomization, holm

ALPHA = 0.05
"""Significance level; intervals have the level 1 - ALPHA."""
POWER = 0.8
"""Probability with which a difference that is called detectable is significant."""
EXPERT_QUERIES = 50
"""Number of expert-graded queries whose benefit is stated if there are none."""


def min_test_queries(n_tests: int = 1) -> int:
    """Return the number of test queries from which one of several randomization tests can be significant (Holm).

    >>> min_test_queries(), min_test_queries(5)
    (6, 8)
    """
    return math.ceil(1 + math.log2(n_tests / ALPHA))


def detectable_standard_errors(n_tests: int = 1) -> float:
    """Return the difference, in its standard errors, that is significant with a probability of 80%.

    With several tests it is that of the first step of Holm's method, which divides the level by their number.

    >>> round(detectable_standard_errors(), 1), round(detectable_standard_errors(5), 1)
    (2.8, 3.4)
    """
    return float(ndtri(POWER) - ndtri(ALPHA / (2 * n_tests)))


@dataclass(frozen=True)
class Contrast:
    """Difference between two candidates on the test queries, or between two kinds of labels on expert-graded queries.

    Attributes:
        candidate, other: names of the candidates.
        mean, other_mean: their mean values of the measure.
        difference, lower, upper: difference of the means with its interval.
        p: p-value of a paired randomization test.
        n_better, n_worse, n_equal: number of queries on which the candidate is better, worse and equal.
        p_holm: p adjusted by Holm's method over the differences that the summary tests; None for other differences.

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
    p_holm: float | None = None

    @property
    def adjusted_p(self) -> float:
        """`p_holm`, or `p` of a difference that is not tested along with others."""
        return self.p if self.p_holm is None else self.p_holm

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

    It is `better` if it is significantly better than each alternative, and `worse` if it is significantly worse than
    one of them. Otherwise the answer is `open`, or `baseline` if the selected ranker is the baseline itself. The
    p-values are adjusted by Holm's method over all differences that the summary tests.

    Attributes:
        answer: `better`, `worse`, `open` or `baseline`.
        alternatives: names of the baseline and of the simple candidates that it is compared with.
        decisive: name of the alternative that decides the answer; empty without alternatives.
        p: adjusted p-value of the difference to the decisive alternative; None without alternatives.
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


def adjust_contrasts(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return differences with their p-values adjusted by Holm's method over all of them.

    >>> pair = [Contrast("gda", other, 0.6, 0.5, 0.1, 0.0, 0.2, p, 8, 1, 1) for other, p in (("a", 0.03), ("b", 0.04))]
    >>> [one.p_holm for one in adjust_contrasts(pair)]
    [0.06, 0.06]
    """
    adjusted = holm([one.p for one in contrasts]).tolist()
    return [replace(one, p_holm=p) for one, p in zip(contrasts, adjusted, strict=True)]


def decide_verdict(contrasts: Sequence[Contrast], *, is_baseline: bool = False) -> Verdict:
    """Return the verdict from the differences of the selected ranker to each alternative.

    >>> def contrast(other: str, difference: float, p: float) -> Contrast:
    ...     return Contrast("gda", other, 0.5 + difference, 0.5, difference, 0.0, 0.0, p, 0, 0, 0, p_holm=p)
    >>> decide_verdict([contrast("majority", 0.1, 0.001), contrast("average", 0.05, 0.06)])
    Verdict(answer='open', alternatives=('majority', 'average'), decisive='average', p=0.06, beaten=('majority',))
    >>> decide_verdict([contrast("majority", 0.1, 0.001), contrast("best-feature", -0.1, 0.01)]).answer
    'worse'
    """
    if not contrasts:
        return Verdict("baseline" if is_baseline else "open")
    names = tuple(one.other for one in contrasts)
    beaten = tuple(one.other for one in contrasts if one.difference > 0 and one.adjusted_p <= ALPHA)
    worst = min(contrasts, key=lambda one: (one.difference > 0, one.adjusted_p, one.difference))
    if worst.difference < 0 and worst.adjusted_p <= ALPHA:
        return Verdict("worse", names, worst.other, worst.adjusted_p, beaten)
    decisive = min(contrasts, key=lambda one: one.difference)
    if decisive.difference > 0:
        decisive = max(contrasts, key=lambda one: (one.adjusted_p, -one.difference))
    answer: Literal["better", "open"] = "better" if len(beaten) == len(names) else "open"
    return Verdict("baseline" if is_baseline else answer, names, decisive.other, decisive.adjusted_p, beaten)


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
    off, percent, p = contrast.difference, contrast.percent, contrast.adjusted_p
    size = f"{off:+.4f}" if percent is None else f"{percent:+.1f}%"
    significance = "" if p <= ALPHA else ", not significant"
    relation = "over" if off > 0 else "against"
    is_corrected = contrast.p_holm is not None and contrast.p_holm != contrast.p
    alone, correction = (" of this difference alone", " with Holm's correction") if is_corrected else ("", "")
    interval = f"{interval_text(contrast)}{alone}"
    return f"{size} {relation} {contrast.other} ({interval}, p {format_p(p)}{correction}{significance})"


def interval_text(contrast: Contrast) -> str:
    """Return a difference with its interval.

    >>> interval_text(Contrast("gda", "majority", 0.6, 0.5, 0.1, 0.05, 0.15, 0.01, 8, 1, 1))
    '+0.1000, 95% interval +0.0500 to +0.1500'
    """
    return f"{contrast.difference:+.4f}, 95% interval {contrast.lower:+.4f} to {contrast.upper:+.4f}"
