"""How an assessor's answers follow the others': a regression per assessor, and a test that there is anything at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from crowdrank._typing import Floats
from crowdrank.assessors.leave_one_out import LeaveOneOutConsensus
from crowdrank.consensus.information import entropy
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Trend:
    """Per assessor, the line of its answers over the crowd's expected grade on the same documents."""

    n: NDArray[np.int64]  # judgments on documents that others judged too
    bias: Floats  # mean answer minus the crowd's, in grades; NaN where n is 0
    rise: Floats  # grades per grade of the crowd's: 1 like the crowd, 0 random, negative reversed; NaN where unknown
    error: Floats  # standard error of the rise, infinite where unknown


def measure_trend(judgments: Judgments, others: LeaveOneOutConsensus) -> Trend:
    """The regression of each assessor's answers on what the crowd is expected to say.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> from crowdrank.assessors.leave_one_out import leave_one_out_consensus
    >>> grades = {"x": [0, 1, 2] * 10, "y": [0, 1, 2] * 10, "z": [0, 1, 2] * 10, "upside": [2, 1, 0] * 10}
    >>> rows = [(f"d{number}", who, grade) for who in grades for number, grade in enumerate(grades[who])]
    >>> table = read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    >>> measure_trend(table, leave_one_out_consensus(table)).rise.round(2).tolist()
    [1.0, 1.0, 1.0, -0.33]
    """
    used = others.known & (judgments.grade != UNJUDGEABLE)
    who, answer = judgments.assessor[used], judgments.grade[used].astype(np.float64)
    size = judgments.n_assessors
    n = np.bincount(who, minlength=size)
    crowd = _calibrated(others.expected[used], answer, who, n)
    xx, xy, yy = _moments(crowd, answer, who, n)
    rise = _ratio(xy, xx, n)
    left = np.maximum(yy - np.nan_to_num(rise) * xy, 0.0)
    freedom = np.maximum(n - 2, 0)
    pooled = left.sum() / max(int(freedom.sum()), 1)
    own = np.divide(left, freedom, out=np.zeros(size), where=freedom > 0)
    # One who always gives the same answer scatters not at all, and yet proves nothing on documents that are all alike.
    spread = np.maximum(own, pooled)
    error = np.sqrt(np.divide(spread, xx, out=np.full(size, np.inf), where=~np.isnan(rise) & (freedom > 0)))
    return Trend(n, _means(answer - crowd, who, n), rise, error)


def _calibrated(expected: Floats, answer: Floats, who: NDArray[np.int32], n: NDArray[np.int64]) -> Floats:
    """What the crowd answers where the others say so: then its bias is 0, and its median assessor has rise 1."""
    if not len(expected):
        return expected
    xx, xy, _ = _moments(expected, answer, who, n)
    rises = _ratio(xy, xx, n)
    # By judgments, not by spread: one reversed assessor must not outweigh several whose consensus it has flattened.
    typical = _weighted_median(rises[~np.isnan(rises)], n[~np.isnan(rises)])
    # A crowd that contradicts itself gives no direction to hold anyone against.
    crowd: Floats = answer.mean() + max(typical, 0.0) * (expected - expected.mean())
    return crowd


def _moments(
    crowd: Floats, answer: Floats, who: NDArray[np.int32], n: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Each assessor's sums of squares and products about its own means."""
    off_x, off_y = crowd - _means(crowd, who, n)[who], answer - _means(answer, who, n)[who]
    return _sums(off_x * off_x, who, n), _sums(off_x * off_y, who, n), _sums(off_y * off_y, who, n)


def _ratio(xy: Floats, xx: Floats, n: NDArray[np.int64]) -> Floats:
    """The slope of each line; NaN where the documents are all alike."""
    slopes: Floats = np.divide(xy, xx, out=np.full(len(n), np.nan), where=xx > _ROUNDING * np.maximum(n, 1))
    return slopes


def _weighted_median(values: Floats, weights: NDArray[np.int64]) -> float:
    if not len(values):
        return 0.0
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _sums(values: Floats, who: NDArray[np.int32], n: NDArray[np.int64]) -> Floats:
    sums: Floats = np.asarray(np.bincount(who, values, len(n)), np.float64)
    return sums


def _means(values: Floats, who: NDArray[np.int32], n: NDArray[np.int64]) -> Floats:
    return _sums(values, who, n) / np.where(n > 0, n, np.nan)


def joint_counts(judgments: Judgments, others: LeaveOneOutConsensus) -> NDArray[np.int64]:
    """How often each assessor gave each answer where the others' consensus was each grade: [assessor, answer, grade].

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> from crowdrank.assessors.leave_one_out import leave_one_out_consensus
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]}))
    >>> joint_counts(table, leave_one_out_consensus(table)).tolist()
    [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    """
    size = len(judgments.scale)
    used = others.known & (judgments.grade != UNJUDGEABLE)
    cell = (judgments.assessor[used].astype(np.int64) * size + judgments.grade[used]) * size + others.grade[used]
    return np.bincount(cell, minlength=judgments.n_assessors * size * size).reshape(-1, size, size)


def independence(counts: NDArray[np.int64]) -> Floats:
    """Per assessor, the chance of counts so uneven if the answers had nothing to do with the documents.

    Twice the counts' number times their mutual information (the G statistic) is about chi-square then, with
    (answers used - 1) (grades met - 1) degrees of freedom.

    >>> independence(np.array([[[20, 0], [0, 20]], [[10, 10], [10, 10]]])).round(3).tolist()
    [0.0, 1.0]
    """
    n = counts.sum(axis=(1, 2))
    g = 2 * n * measured_information(counts)[0]
    used, met = (counts.sum(axis=2) > 0).sum(axis=1), (counts.sum(axis=1) > 0).sum(axis=1)
    freedom = np.maximum((used - 1) * (met - 1), 0)
    chance: Floats = np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), g), 1.0)
    return chance


def measured_information(counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The mutual information of answers and grades in the counts themselves, in nats, and the part of each answer.

    The part of an answer is the entropy that it takes from the grades the assessor met; NaN where never given.

    >>> total, parts = measured_information(np.array([[[5, 0], [0, 5]]]))
    >>> total.round(3).tolist(), parts.round(3).tolist()
    ([0.693], [[0.693, 0.693]])
    """
    # counts (n_assessors, n_answers, n_grades)
    given = counts.sum(axis=2)
    n = np.maximum(given.sum(axis=1), 1)
    before = entropy(counts.sum(axis=1) / n[:, None])
    after = entropy(counts / np.maximum(given, 1)[:, :, None])
    parts = np.where(given > 0, before[:, None] - after, np.nan)
    total = (given * np.nan_to_num(parts)).sum(axis=1) / n
    return np.maximum(total, 0.0), parts


def spread_of_information(joint: Floats) -> Floats:
    """The standard deviation of what one answer tells, log p(answer, state) / (p(answer) p(state)), per assessor.

    Over the root of the number of judgments it is the standard error of the informativeness (delta method).

    >>> spread_of_information(np.array([[[0.5, 0.0], [0.0, 0.5]], [[0.4, 0.1], [0.1, 0.4]]])).round(2).tolist()
    [0.0, 0.55]
    """
    # joint (n_assessors, n_answers, n_states), each summing to 1
    apart = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    told = np.log(np.maximum(joint, 1e-300)) - np.log(np.maximum(apart, 1e-300))
    mean = (joint * told).sum(axis=(1, 2))
    spread: Floats = np.sqrt(np.maximum((joint * told**2).sum(axis=(1, 2)) - mean**2, 0.0))
    return spread
