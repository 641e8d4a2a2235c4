"""Comparison of each assessor's answers with reference grades: those of the other assessors, or of experts.

A consensus that includes an assessor's own answers agrees with them by construction: with five judgments per document
even random answers would look informative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from scipy.special import ndtri, softmax

from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.latent import entropy
from crowdrank.judgments.gold import ItemGold
from crowdrank.judgments.table import UNJUDGEABLE, Judgments


def count_pairs(judgments: Judgments, reference: Grades, n_references: int | None = None) -> Integers:
    """Return how often each assessor gave each answer to documents of each reference grade.

    Args:
        judgments: judgments on one scale.
        reference: (n,) reference grade of each judgment's document, as a code; negative if there is none.
        n_references: number of reference grades; by default that of the judgments' scale.

    Returns:
        Counts (n_assessors, n_answers, n_references).

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]}))
    >>> count_pairs(table, np.array([1, 0], np.int8)).tolist()
    [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    """
    n_answers = len(judgments.scale)
    n_references = n_answers if n_references is None else n_references
    used = (reference >= 0) & (judgments.grade >= 0)
    answer = judgments.assessor[used].astype(np.int64) * n_answers + judgments.grade[used]
    shape = (judgments.n_assessors, n_answers, n_references)
    cells = np.bincount(answer * n_references + reference[used], minlength=int(np.prod(shape)))
    return np.asarray(cells.reshape(shape))


def _degrees_of_freedom(counts: Integers) -> Integers:
    n_answers, n_references = (counts.any(axis=axis).sum(axis=1) for axis in (2, 1))
    return np.asarray(np.maximum(n_answers - 1, 0) * np.maximum(n_references - 1, 0))


def typicality_z_scores(counts: Integers) -> Floats:
    """Return the z-score of the mean probability of each assessor's answers under the answers of all assessors.

    P(answer | reference grade) is estimated from all assessors. Mean and variance are those of an assessor who answers
    by these probabilities and judges documents of the same reference grades. Negative scores mean improbable answers;
    the score is 0 if all answers have the same probability.

    >>> typicality_z_scores(np.array([[[90, 1], [10, 9]], [[10, 0], [0, 0]], [[5, 5], [5, 5]]])).round(1).tolist()
    [1.1, 1.2, -3.7]
    """
    total = counts.sum(axis=0)
    typical = total / np.maximum(total.sum(axis=0), 1)  # P(answer | reference grade)
    mean = (typical**2).sum(axis=0)
    variance = np.maximum((typical**3).sum(axis=0) - mean**2, 0.0)
    n_reference = counts.sum(axis=1)
    difference = (counts * typical).sum(axis=(1, 2)) - n_reference @ mean
    error = np.sqrt(n_reference @ variance)
    return np.asarray(np.divide(difference, error, out=np.zeros(len(counts)), where=error > _ROUNDING))


def mutual_information(counts: Integers) -> tuple[Floats, Floats]:
    """Return the mutual information of answers and reference grades in nats, and its part for each answer.

    The part of an answer is the reduction of the entropy of the reference grades; NaN for answers never given.

    >>> total, parts = mutual_information(np.array([[[5, 0], [0, 5]]]))
    >>> total.round(3).tolist(), parts.round(3).tolist()
    ([0.693], [[0.693, 0.693]])
    """
    n_answer = counts.sum(axis=2)
    n = np.maximum(n_answer.sum(axis=1), 1)
    prior_entropy = entropy(counts.sum(axis=1) / n[:, None])
    posterior_entropy = entropy(counts / np.maximum(n_answer, 1)[:, :, None])
    parts = np.where(n_answer > 0, prior_entropy[:, None] - posterior_entropy, np.nan)
    total = (n_answer * np.nan_to_num(parts)).sum(axis=1) / n
    return np.maximum(total, 0.0), parts


def corrected_information(counts: Integers) -> tuple[Floats, Floats, Floats]:
    """Return mutual information in nats with Miller and Madow's small-sample correction, its parts and its error."""
    total, parts = mutual_information(counts)
    n = np.maximum(counts.sum(axis=(1, 2)), 1)
    error = information_sd(counts / n[:, None, None]) / np.sqrt(n)
    return np.maximum(total - _degrees_of_freedom(counts) / (2 * n), 0.0), parts, error


def information_sd(joint: Floats) -> Floats:
    """Return per assessor the standard deviation of log p(answer, state) / (p(answer) p(state)).

    Divided by the square root of the number of judgments it is the standard error of the mutual information.

    Args:
        joint: (n_assessors, n_answers, n_states) joint probabilities.

    >>> information_sd(np.array([[[0.5, 0.0], [0.0, 0.5]], [[0.4, 0.1], [0.1, 0.4]]])).round(2).tolist()
    [0.0, 0.55]
    """
    independent = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    log_ratio = np.log(np.maximum(joint, 1e-300)) - np.log(np.maximum(independent, 1e-300))
    mean = (joint * log_ratio).sum(axis=(1, 2))
    return np.asarray(np.sqrt(np.maximum((joint * log_ratio**2).sum(axis=(1, 2)) - mean**2, 0.0)))


def kendall_tau(counts: Integers) -> Floats:
    """Return Kendall's tau-b of answers and reference grades per assessor; NaN if one of them never varies.

    >>> kendall_tau(np.array([[[5, 0], [0, 5]], [[0, 5], [5, 0]], [[5, 5], [0, 0]]])).tolist()
    [1.0, -1.0, nan]
    """
    table = counts.astype(np.float64)
    higher_answer = table[:, ::-1].cumsum(axis=1)[:, ::-1] - table
    above = higher_answer[:, :, ::-1].cumsum(axis=2)[:, :, ::-1] - higher_answer  # higher answer, higher reference
    below = higher_answer.cumsum(axis=2) - higher_answer  # higher answer, lower reference
    n_pairs = _count_untied(table.sum(axis=2)) * _count_untied(table.sum(axis=1))
    difference = (table * (above - below)).sum(axis=(1, 2))
    return np.asarray(np.divide(difference, np.sqrt(n_pairs), out=np.full(len(table), np.nan), where=n_pairs > 0))


def _count_untied(n_by_grade: Floats) -> Floats:
    """Return the number of pairs of documents with different grades, from the number of documents by grade."""
    return np.asarray((n_by_grade.sum(axis=1) ** 2 - (n_by_grade**2).sum(axis=1)) / 2)


States = tuple[Floats, Floats]
"""Prior of the states (n_states,) and likelihood of answers (n_assessors, n_answers, n_states)."""
_JUDGMENTS_PER_BLOCK = 100_000
"""Number of judgments processed at a time; each needs one number per state."""


@dataclass(frozen=True, eq=False)
class LeaveOneOutConsensus:
    """Consensus of the other assessors about the document of each judgment.

    Attributes:
        expected: (n,) expected answer, as a position on the scale; NaN if nobody else judged the document.
        grade: (n,) most probable answer, as a code; UNJUDGEABLE if nobody else judged the document.

    """

    expected: Floats
    grade: Grades

    @property
    def known(self) -> Booleans:
        """Whether another assessor judged the document (n,).

        >>> LeaveOneOutConsensus(np.array([0.5, np.nan]), np.array([0, -1], np.int8)).known.tolist()
        [True, False]
        """
        return np.asarray(self.grade != UNJUDGEABLE)


def crowd_curve(likelihood: Floats, n_judgments: Integers, n_grades: int) -> Floats:
    """Return P(grade | state) of a random judgment of the crowd (n_grades, n_states), without other answers.

    >>> crowd_curve(np.stack([np.eye(2), np.full((2, 2), 0.5)]), np.array([3, 1]), 2).tolist()
    [[0.875, 0.125], [0.125, 0.875]]
    """
    mean = np.tensordot(n_judgments / n_judgments.sum(), likelihood, axes=1)[:n_grades]
    return np.asarray(mean / mean.sum(axis=0))


def leave_one_out_consensus(judgments: Judgments, states: States | None = None) -> LeaveOneOutConsensus:
    """Return, for each judgment, the consensus of the other assessors about its document.

    Args:
        judgments: judgments on one scale.
        states: P(state) and P(answer | state) of a model; by default the consensus is by shares of votes.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "x"],
    ...                                      "grade": [0, 1, 1, 1]}))
    >>> leave_one_out_consensus(table).expected.tolist()
    [1.0, 0.5, 0.5, nan]
    """
    n_grades = len(judgments.scale)
    expected, grade = np.full(len(judgments), np.nan), np.full(len(judgments), UNJUDGEABLE, np.int8)
    if states is not None:
        n_judgments = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
        typical = crowd_curve(states[1], n_judgments, n_grades)
        log_prior, log_likelihood = (np.log(np.maximum(probability, 1e-300)) for probability in states)
    for first, last in _item_blocks(judgments.offsets):
        rows = slice(judgments.offsets[first], judgments.offsets[last])
        if states is None:
            votes, n_others = _sum_of_others(judgments, first, last, np.eye(n_grades)[None])
            shares = votes / np.maximum(n_others, 1)[:, None]
        else:
            evidence, n_others = _sum_of_others(judgments, first, last, log_likelihood)
            shares = softmax(log_prior + evidence, axis=1) @ typical.T
        expected[rows] = np.where(n_others > 0, shares @ np.arange(n_grades), np.nan)
        grade[rows] = np.where(n_others > 0, choose_grades(shares, "mode"), UNJUDGEABLE)
    return LeaveOneOutConsensus(expected, grade)


def _item_blocks(offsets: Integers) -> Iterator[tuple[int, int]]:
    """Yield ranges of items with about `_JUDGMENTS_PER_BLOCK` judgments each."""
    cuts = np.unique(
        np.append(np.searchsorted(offsets, np.arange(0, offsets[-1], _JUDGMENTS_PER_BLOCK)), len(offsets) - 1)
    )
    return zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def _sum_of_others(judgments: Judgments, first: int, last: int, evidence: Floats) -> tuple[Floats, Integers]:
    """Return for each judgment the sum of `evidence` over the answers of other assessors, and the number of these.

    Judgments are those of a range of items.

    Args:
        judgments: judgments on one scale.
        first: first item.
        last: item after the last one.
        evidence: (n_assessors or 1, n_answers, n_states) values to sum, such as log P(answer | state).

    """
    start, end = judgments.offsets[first], judgments.offsets[last]
    assessor, answer = judgments.assessor[start:end].astype(np.int64), judgments.grade[start:end]
    item = np.repeat(np.arange(last - first), np.diff(judgments.offsets[first : last + 1]))
    judged = answer != UNJUDGEABLE
    of_row = evidence[assessor if len(evidence) > 1 else 0, answer] * judged[:, None]
    item_starts = judgments.offsets[first:last] - start
    # All answers of an assessor on a document are left out, also repeated ones.
    pairs, pair = np.unique(item * judgments.n_assessors + assessor, return_inverse=True)
    own, n_own = np.zeros((len(pairs), of_row.shape[1])), np.bincount(pair[judged], minlength=len(pairs))
    np.add.at(own, pair, of_row)
    n_answers = np.add.reduceat(judged.astype(np.int64), item_starts)
    return np.add.reduceat(of_row, item_starts, axis=0)[item] - own[pair], n_answers[item] - n_own[pair]


INTERVAL_LEVEL = 0.95
"""Level of the intervals of slopes and biases."""
UNRELIABLE_SLOPE = 0.5
"""Slope, as a share of the typical one, below which the whole interval of an unreliable assessor lies."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class AssessorComparison:
    """Comparison of each assessor's answers with reference grades of the same documents.

    Attributes:
        n: (n_assessors,) number of judgments with a reference grade.
        slope: increase of the answer per grade of the reference, divided by that of the median assessor: 1 is typical,
            0 random, negative reversed; NaN if unknown.
        slope_error: standard error of the slope; infinite if unknown.
        information: mutual information of answers and reference grades as a share of the median assessor's.
        information_error: standard error of that share.
        typical_z: standard score of the mean probability of the answers among all assessors, given the reference
            grades: 0 is typical, negative if the answers are less probable than typical ones.
        n_varied: number of judgments whose reference grade is not the most frequent one of the assessor's documents.

    """

    n: Integers
    slope: Floats
    slope_error: Floats
    information: Floats
    information_error: Floats
    typical_z: Floats
    n_varied: Integers

    @property
    def slope_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval of the slope; NaN if unknown."""
        return interval(self.slope, self.slope_error)

    def replace_where(self, mask: Booleans, other: Self) -> Self:
        """Return a copy with the values of another comparison for the assessors in `mask`."""
        names = [field.name for field in fields(self)]
        return type(self)(**{name: np.where(mask, getattr(other, name), getattr(self, name)) for name in names})


def compare_with_others(judgments: Judgments, consensus: LeaveOneOutConsensus) -> AssessorComparison:
    """Compare the answers of each assessor with the leave-one-out consensus.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> grades = {"x": [0, 1, 2] * 10, "y": [0, 1, 2] * 10, "z": [0, 1, 2] * 10, "reversed": [2, 1, 0] * 10}
    >>> rows = [(f"d{number}", who, grade) for who in grades for number, grade in enumerate(grades[who])]
    >>> table = read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    >>> compare_with_others(table, leave_one_out_consensus(table)).slope.round(2).tolist()
    [1.0, 1.0, 1.0, -0.33]
    """
    return _compare_with_reference(judgments, consensus.expected, consensus.grade)


def compare_with_experts(judgments: Judgments, experts: ItemGold) -> AssessorComparison:
    """Compare the answers of each assessor with expert grades, which may have a scale of their own."""
    codes = judgments.by_row(experts.code)
    return _compare_with_reference(judgments, np.where(codes < 0, np.nan, codes), codes, experts.n_expert_grades)


def expert_grades_on_scale(judgments: Judgments, experts: ItemGold) -> Floats:
    """Return the expert grade of each document on the scale of the judgments (n_items,); NaN if unknown.

    Of several grades that an expert grade stands for, the nearest to the mean answer counts.
    """
    judged = judgments.grade >= 0
    answers = judgments.grade[judged].astype(np.float64)
    mean_answer = mean_and_error(answers, judgments.item[judged], judgments.n_items)[0]
    return nearest_expert_grades(mean_answer, experts.code, experts.sets)


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


def _compare_with_reference(
    judgments: Judgments, reference: Floats, reference_codes: Grades, n_references: int | None = None
) -> AssessorComparison:
    """Compare answers with reference grades of their documents.

    Args:
        judgments: judgments on one scale.
        reference: (n,) reference grade of each judgment's document, for the slope; NaN if unknown.
        reference_codes: (n,) the same as codes, for the information; negative if unknown.
        n_references: number of reference grades; by default that of the judgments' scale.

    """
    used = ~np.isnan(reference) & (judgments.grade >= 0)
    assessor, answer, size = judgments.assessor[used], judgments.grade[used].astype(np.float64), judgments.n_assessors
    slope, slope_error = fit_slopes(answer, reference[used], assessor, size)
    counts = count_pairs(judgments, reference_codes, n_references)
    n = np.bincount(assessor, minlength=size)
    nats, _, nats_error = corrected_information(counts)
    typical = max(_weighted_median(nats, n), _ROUNDING)
    information, information_error = nats / typical, nats_error / typical
    n_reference = counts.sum(axis=1)  # (n_assessors, n_references)
    n_varied = n_reference.sum(axis=1) - n_reference.max(axis=1)
    z = typicality_z_scores(counts)
    return AssessorComparison(n, slope, slope_error, information, information_error, z, n_varied)


def fit_slopes(answer: Floats, reference: Floats, assessor: Codes, n_assessors: int) -> tuple[Floats, Floats]:
    """Return regression slopes of answers on reference grades and their errors, divided by the median slope.

    A slope without an error, as that of two answers, is unknown: NaN, with an infinite error.
    """
    n = np.bincount(assessor, minlength=n_assessors)
    x, y = (values - _group_means(values, assessor, n)[assessor] for values in (reference, answer))
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
    return np.where(known, slope / typical, np.nan), error / typical


def mean_and_error(values: Floats, group: Codes | Integers, n_groups: int) -> tuple[Floats, Floats]:
    """Return the mean of the values of each group and its standard error (infinite with fewer than two values).

    >>> [column.tolist() for column in mean_and_error(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)]
    [[2.0, 5.0], [1.0, inf]]
    """
    n = np.bincount(group, minlength=n_groups)
    mean = _group_means(values, group, n)
    squares = np.bincount(group, (values - mean[group]) ** 2, n_groups)
    freedom = n * (n - 1)
    return mean, np.sqrt(np.divide(squares, freedom, out=np.full(n_groups, np.inf), where=freedom > 0))


def interval(estimate: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of normal intervals at INTERVAL_LEVEL; NaN if the error is infinite.

    >>> [end.round(2).tolist() for end in interval(np.array([1.0, 2.0]), np.array([0.5, np.inf]))]
    [[0.02, nan], [1.98, nan]]
    """
    margin = np.where(np.isfinite(error), float(ndtri((1 + INTERVAL_LEVEL) / 2)) * error, np.nan)
    return estimate - margin, estimate + margin


def _group_means(values: Floats, group: Codes | Integers, n: Integers) -> Floats:
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

    Random and reversed assessors are left out; `left_out` counts them.

    >>> print(ExpertOffset(-0.71, -0.82, -0.6, 520))
    The assessors answer 0.71 grades below the experts (95% interval -0.82 to -0.60, 520 documents)
    """

    value: float
    lower: float
    upper: float
    documents: int
    left_out: int = 0

    def __str__(self) -> str:
        direction = "below" if self.value < 0 else "above"
        documents = counted(self.documents, "document")
        without = f", without {self.left_out:,} random or reversed," if self.left_out else ""
        return (
            f"The assessors{without} answer {abs(self.value):.2f} grades {direction} the experts "
            f"({INTERVAL_LEVEL:.0%} interval {self.lower:.2f} to {self.upper:.2f}, {documents})"
        )


def expert_offset(judgments: Judgments, experts: ItemGold, is_unreliable: Booleans) -> ExpertOffset | None:
    """Return the offset of the assessors from the experts; None if unknown or for fewer than two documents.

    Args:
        judgments: judgments on one scale.
        experts: expert grades of the items.
        is_unreliable: (n_assessors,) whether an assessor is left out.

    """
    judged = (judgments.grade >= 0) & ~is_unreliable[judgments.assessor]
    item = judgments.item[judged]
    mean_answer = mean_and_error(judgments.grade[judged].astype(np.float64), item, judgments.n_items)[0]
    difference = mean_answer - nearest_expert_grades(mean_answer, experts.code, experts.sets)
    difference = difference[~np.isnan(difference)]
    if len(difference) < 2:
        return None
    mean, error = mean_and_error(difference, np.zeros(len(difference), np.int32), 1)
    lower, upper = interval(mean, error)
    return ExpertOffset(float(mean[0]), float(lower[0]), float(upper[0]), len(difference), int(is_unreliable.sum()))
