"""Flags for assessors, and the evidence they are based on.

Many assessors are tested at once, so that some 95% intervals exclude the truth by chance. Every flag therefore needs an
interval and a margin: the estimate must be far from normal, and the interval must exclude what is normal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats
from crowdrank.assessors.reference import LEVEL, UNRELIABLE_SLOPE, AssessorComparison, interval

FLAGS = ("careful", "", "lenient", "strict", "careless", "random", "reversed", "few")
UNRELIABLE_FLAGS = ("random", "reversed")
"""Flags of assessors whose answers say nothing, or the opposite of what is meant."""

MIN_JUDGMENTS = 10
"""Minimum number of judgments for any other flag than `few`: standard errors of fewer are unreliable."""
REVERSED = -0.2
"""Maximum slope of a `reversed` assessor; the upper end of the interval must be below half of it."""
INDEPENDENCE_LEVEL = 0.01
"""Answers with a p-value below this depend on the documents: such an assessor is not `random`."""
BIAS_MARGIN = 1 / 8
"""Minimum bias of a `strict` or `lenient` assessor as a share of the scale's range (half a grade on 0-4); the interval
must exclude half of it."""
CARELESS, CAREFUL = 2 / 3, 4 / 3
"""Shares of the median informativeness below and above which assessors are `careless` and `careful`."""


@dataclass(frozen=True, eq=False)
class AssessorEvidence:
    """Statistics per assessor that the flags are based on.

    Attributes:
        comparison: comparison with the reference grades.
        by_experts: whether the reference grades are those of experts, otherwise of the other assessors.
        informativeness: in nats.
        information_error: standard error of the informativeness.
        n_grades: number of grades of the scale.

    """

    comparison: AssessorComparison
    by_experts: Booleans
    informativeness: Floats
    information_error: Floats
    n_grades: int

    @property
    def near_zero(self) -> Booleans:
        """Whether the slope is significantly smaller than half of the typical slope, in either direction."""
        lower, upper = self.comparison.slope_interval
        return (lower > -UNRELIABLE_SLOPE) & (upper < UNRELIABLE_SLOPE)

    @property
    def few(self) -> Booleans:
        """Whether there are too few judgments to tell a random assessor from a typical one."""
        lower, upper = self.comparison.slope_interval
        return (self.comparison.n < MIN_JUDGMENTS) | ~((lower > 0) | (upper < 0) | self.near_zero)

    @property
    def median(self) -> float:
        """Median informativeness of the assessors with enough judgments, or of all if there are none."""
        enough = ~self.few
        return float(np.median(self.informativeness[enough] if enough.any() else self.informativeness))


def flag(evidence: AssessorEvidence) -> NDArray[np.object_]:
    """Return one flag per assessor, or an empty text; of several flags the first in this function applies.

    >>> comparison = AssessorComparison(np.array([200, 200, 5]), np.array([1.0, 0.0, 0.9]), np.array([0.05, 0.05, 0.6]),
    ...                         np.zeros(3), np.full(3, 0.1), np.array([0.0, 0.6, 0.2]))
    >>> flag(AssessorEvidence(comparison, np.zeros(3, bool), np.array([0.5, 0.0, 0.4]), np.full(3, 0.02), 5)).tolist()
    ['careful', 'random', 'few']
    """
    compared = evidence.comparison
    slope_lower, slope_upper = compared.slope_interval
    bias_lower, bias_upper = compared.bias_interval
    information_lower, information_upper = interval(evidence.informativeness, evidence.information_error)
    margin = BIAS_MARGIN * (evidence.n_grades - 1)
    conditions = {
        "few": evidence.few,
        "reversed": (slope_upper < REVERSED / 2) & (compared.slope <= REVERSED),
        "random": (slope_lower <= 0) & evidence.near_zero & (compared.p_value > INDEPENDENCE_LEVEL),
        "careless": information_upper < CARELESS * evidence.median,
        "strict": (bias_upper < -margin / 2) & (compared.bias <= -margin),
        "lenient": (bias_lower > margin / 2) & (compared.bias >= margin),
        "careful": information_lower > CAREFUL * evidence.median,
    }
    return np.select(list(conditions.values()), list(conditions), "").astype(object)


def evidence_sentences(evidence: AssessorEvidence) -> list[str]:
    """Return a sentence per assessor with the numbers behind its flag.

    >>> values = [200], [0.02], [0.05], [-0.4], [0.1], [0.6]
    >>> comparison = AssessorComparison(*map(np.array, values))
    >>> evidence = AssessorEvidence(comparison, np.array([False]), np.array([0.01]), np.array([0.02]), 5)
    >>> for part in evidence_sentences(evidence)[0].split("; "): print(part)
    200 judgments compared with other assessors
    slope 0.02 (95% interval -0.08 to 0.12)
    bias -0.40 grades (95% interval -0.60 to -0.20)
    informativeness 0.010 nats (median 0.010).
    """
    compared, median = evidence.comparison, evidence.median
    slope = _with_interval(compared.slope, *compared.slope_interval, unit="")
    bias = _with_interval(compared.bias, *compared.bias_interval, unit=" grades")
    rows = zip(compared.n.tolist(), evidence.by_experts, slope, bias, evidence.informativeness, strict=True)
    return [
        f"{counted(n, 'judgment')} compared with {'experts' if by_experts else 'other assessors'}; slope {slope_text}; "
        f"bias {bias_text}; informativeness {nats:.3f} nats (median {median:.3f})."
        for n, by_experts, slope_text, bias_text, nats in rows
    ]


def _with_interval(estimate: Floats, lower: Floats, upper: Floats, unit: str) -> list[str]:
    """Return each estimate with its interval as text."""
    return [
        "unknown" if np.isnan(low) else f"{value:z.2f}{unit} ({LEVEL:.0%} interval {low:z.2f} to {high:z.2f})"
        for value, low, high in zip(estimate, lower, upper, strict=True)
    ]
