"""Comparison of each assessor's answers with reference grades: those of the other assessors, or of experts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from scipy.special import ndtri

from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.assessors.contingency import count_pairs, independence_p_values
from crowdrank.assessors.leave_one_out import LeaveOneOutConsensus, leave_one_out_consensus
from crowdrank.judgments.gold import ItemGold
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

LEVEL = 0.95
"""Level of the intervals of slopes and biases."""
UNRELIABLE_SLOPE = 0.5
"""The slope of random and reversed assessors is significantly below this share of the typical slope."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class AssessorComparison:
    """Comparison of each assessor's answers with reference grades of the same documents.

    Attributes:
        n: (n_assessors,) number of judgments with a reference grade.
        slope: increase of the answer per grade of the reference, divided by that of the median assessor: 1 is typical,
            0 random, negative reversed; NaN if unknown.
        slope_error: standard error of the slope; infinite if unknown.
        bias: mean of answer minus reference, in grades; NaN if n is 0.
        bias_error: standard error of the bias; infinite if n is below 2.
        p_value: p-value of the test that answers are independent of the reference grades.

    """

    n: Integers
    slope: Floats
    slope_error: Floats
    bias: Floats
    bias_error: Floats
    p_value: Floats

    @property
    def slope_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval of the slope; NaN if unknown."""
        return interval(self.slope, self.slope_error)

    @property
    def bias_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval of the bias; NaN if unknown."""
        return interval(self.bias, self.bias_error)

    def replace_where(self, mask: Booleans, other: Self) -> Self:
        """Return a copy with the values of another comparison for the assessors in `mask`."""
        names = [field.name for field in fields(self)]
        return type(self)(**{name: np.where(mask, getattr(other, name), getattr(self, name)) for name in names})


def compare_with_others(judgments: Judgments, consensus: LeaveOneOutConsensus) -> AssessorComparison:
    """Compare answers with the leave-one-out consensus, and for the bias with the mean answer of the other assessors.

    Random and reversed assessors are left out of that mean: they would make all others look strict or lenient.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> grades = {"x": [0, 1, 2] * 10, "y": [0, 1, 2] * 10, "z": [0, 1, 2] * 10, "reversed": [2, 1, 0] * 10}
    >>> rows = [(f"d{number}", who, grade) for who in grades for number, grade in enumerate(grades[who])]
    >>> table = read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    >>> compare_with_others(table, leave_one_out_consensus(table)).slope.round(2).tolist()
    [1.0, 1.0, 1.0, -0.33]
    """
    compared = _compare(judgments, consensus.expected, consensus.grade)
    unreliable = compared.slope_interval[1] < UNRELIABLE_SLOPE
    answer = np.where(unreliable[judgments.assessor], UNJUDGEABLE, judgments.grade)
    mean_of_others = leave_one_out_consensus(replace(judgments, grade=answer)).expected
    bias, bias_error = _measure_bias(judgments, mean_of_others)
    return replace(compared, bias=bias, bias_error=bias_error)


def compare_with_experts(judgments: Judgments, experts: ItemGold) -> AssessorComparison:
    """Compare answers with expert grades. The bias is unknown if their scale has no map to that of the judgments."""
    codes = judgments.by_row(experts.code)
    compared = _compare(judgments, np.where(codes < 0, np.nan, codes), codes, experts.n_expert_grades)
    bias, bias_error = _measure_bias(judgments, nearest_expert_grades(judgments.grade, codes, experts.sets))
    return replace(compared, bias=bias, bias_error=bias_error)


def nearest_expert_grades(answers: Floats | Grades, expert_codes: Grades, sets: Booleans | None) -> Floats:
    """Return the grade nearest to each answer among those that the expert grade stands for.

    Args:
        answers: (k,) codes on the scale of the judgments, or means of them.
        expert_codes: (k,) codes on the experts' scale; negative if unknown.
        sets: (n_expert_grades, n_grades) grades that each expert grade stands for; None if unknown.

    Returns:
        Codes on the scale of the judgments (k,); NaN if unknown.

    >>> sets = np.array([[True, True, False], [False, False, True]])
    >>> nearest_expert_grades(np.array([0, 2, 0, 1]), np.array([0, 0, 1, -1]), sets).tolist()
    [0.0, 1.0, 2.0, nan]
    """
    if sets is None:
        return np.full(len(answers), np.nan)
    lowest, highest = sets.argmax(axis=1), sets.shape[1] - 1 - sets[:, ::-1].argmax(axis=1)
    return np.where(expert_codes < 0, np.nan, np.clip(answers, lowest[expert_codes], highest[expert_codes]))


def _compare(
    judgments: Judgments, reference: Floats, reference_codes: Grades, n_references: int | None = None
) -> AssessorComparison:
    """Compare answers with reference grades (n,), NaN if unknown; independence is tested with their codes."""
    used = ~np.isnan(reference) & (judgments.grade >= 0)
    assessor, answer, size = judgments.assessor[used], judgments.grade[used].astype(np.float64), judgments.n_assessors
    slope, slope_error = fit_slopes(answer, reference[used], assessor, size)
    p_value = independence_p_values(count_pairs(judgments, reference_codes, n_references))
    bias, bias_error = _measure_bias(judgments, reference)
    return AssessorComparison(np.bincount(assessor, minlength=size), slope, slope_error, bias, bias_error, p_value)


def _measure_bias(judgments: Judgments, reference: Floats) -> tuple[Floats, Floats]:
    used = ~np.isnan(reference) & (judgments.grade >= 0)
    difference = judgments.grade[used] - reference[used]
    return mean_and_error(difference, judgments.assessor[used], judgments.n_assessors)


def fit_slopes(answer: Floats, reference: Floats, assessor: Codes, n_assessors: int) -> tuple[Floats, Floats]:
    """Regress answers on reference grades per assessor; return slopes and errors in units of the median slope."""
    n = np.bincount(assessor, minlength=n_assessors)
    x, y = (values - _means(values, assessor, n)[assessor] for values in (reference, answer))
    xx, xy, yy = (np.bincount(assessor, product, n_assessors) for product in (x * x, x * y, y * y))
    slope = np.divide(xy, xx, out=np.full(n_assessors, np.nan), where=xx > _ROUNDING * np.maximum(n, 1))
    residual, freedom = np.maximum(yy - np.nan_to_num(slope) * xy, 0.0), np.maximum(n - 2, 0)
    # The pooled variance is a lower bound: constant answers have no residual, but do not prove a slope of 0.
    variance = np.maximum(residual / np.maximum(freedom, 1), residual.sum() / max(int(freedom.sum()), 1))
    known = ~np.isnan(slope) & (freedom > 0)
    error = np.sqrt(np.divide(variance, xx, out=np.full(n_assessors, np.inf), where=known))
    # The median is weighted by judgments: a reversed assessor must not outweigh those whose consensus it flattened.
    typical = _weighted_median(slope[~np.isnan(slope)], n[~np.isnan(slope)])
    if typical <= _ROUNDING:  # assessors who contradict each other have no common direction
        return np.full(n_assessors, np.nan), np.full(n_assessors, np.inf)
    return slope / typical, error / typical


def mean_and_error(values: Floats, group: Codes | Integers, n_groups: int) -> tuple[Floats, Floats]:
    """Return the mean of the values of each group and its standard error (infinite with fewer than two values).

    >>> [column.tolist() for column in mean_and_error(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)]
    [[2.0, 5.0], [1.0, inf]]
    """
    n = np.bincount(group, minlength=n_groups)
    mean = _means(values, group, n)
    squares = np.bincount(group, (values - mean[group]) ** 2, n_groups)
    freedom = n * (n - 1)
    return mean, np.sqrt(np.divide(squares, freedom, out=np.full(n_groups, np.inf), where=freedom > 0))


def interval(estimate: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of normal intervals at LEVEL; NaN if the error is infinite.

    >>> [end.round(2).tolist() for end in interval(np.array([1.0, 2.0]), np.array([0.5, np.inf]))]
    [[0.02, nan], [1.98, nan]]
    """
    margin = np.where(np.isfinite(error), float(ndtri((1 + LEVEL) / 2)) * error, np.nan)
    return estimate - margin, estimate + margin


def _means(values: Floats, group: Codes | Integers, n: Integers) -> Floats:
    return np.bincount(group, values, len(n)) / np.where(n > 0, n, np.nan)


def _weighted_median(values: Floats, weights: Integers) -> float:
    if not len(values):
        return 0.0
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative, cumulative[-1] / 2)])


@dataclass(frozen=True)
class ExpertOffset:
    """Mean difference of the assessors' mean answer and the expert grade of a document, in grades, with its interval.

    >>> print(ExpertOffset(-0.71, -0.82, -0.6, 520))
    The assessors answer 0.71 grades below the experts (95% interval -0.82 to -0.60, 520 documents)
    """

    value: float
    lower: float
    upper: float
    documents: int

    def __str__(self) -> str:
        direction = "below" if self.value < 0 else "above"
        documents = counted(self.documents, "document")
        return (
            f"The assessors answer {abs(self.value):.2f} grades {direction} the experts "
            f"({LEVEL:.0%} interval {self.lower:.2f} to {self.upper:.2f}, {documents})"
        )


def expert_offset(judgments: Judgments, experts: ItemGold) -> ExpertOffset | None:
    """Return the offset of all assessors from the experts; None if unknown or for fewer than two documents."""
    judged = judgments.grade >= 0
    item = judgments.item[judged]
    mean_answer = mean_and_error(judgments.grade[judged].astype(np.float64), item, judgments.n_items)[0]
    difference = mean_answer - nearest_expert_grades(mean_answer, experts.code, experts.sets)
    difference = difference[~np.isnan(difference)]
    if len(difference) < 2:
        return None
    mean, error = mean_and_error(difference, np.zeros(len(difference), np.int32), 1)
    lower, upper = interval(mean, error)
    return ExpertOffset(float(mean[0]), float(lower[0]), float(upper[0]), len(difference))
