"""Data warnings after a fit: what the judgments do not determine, so that the model assumed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._text import counted
from crowdrank.engine.shards import items_of
from crowdrank.errors import DataWarning, shown
from crowdrank.judgments.table import UNJUDGEABLE, Judgments


@dataclass(frozen=True, eq=False)
class Evidence:
    """Facts about judgments and a fit, each computed only if a check needs it.

    Attributes:
        assessors: ids of the assessors.
        overlapping: whether any document was judged twice.
        groups: group of each assessor, and of the expert as the last (see :func:`assessor_groups`).
        by_relevance: `covariance_sums` of mean grades and relevance.
        by_experts: `covariance_sums` of mean grades and expert grades, if there are expert grades.

    """

    assessors: pa.Array
    overlapping: Callable[[], bool]
    groups: Callable[[], NDArray[np.int64]]
    by_relevance: Callable[[], NDArray[np.float64]]
    by_experts: Callable[[], NDArray[np.float64]] | None


def data_warnings(evidence: Evidence, has_parameters: bool, on_a_line: bool) -> list[DataWarning]:
    """Return the warnings that concern a model.

    Args:
        evidence: facts about the fit.
        has_parameters: whether assessors have parameters in the model.
        on_a_line: whether relevance is a latent trait on a line.

    """
    found: list[DataWarning] = []
    has_experts = evidence.by_experts is not None
    if not has_experts and has_parameters and not evidence.overlapping():
        found.append(_no_overlap())
    elif on_a_line:
        found += _separate_groups(evidence.groups()[:-1], evidence.assessors)
    if evidence.by_experts is not None:
        found += [_against_experts()] if has_negative_covariance(evidence.by_experts()) else []
    elif has_parameters:
        found += [_reversed_relevance()] if has_negative_covariance(evidence.by_relevance()) else []
    return found


def hard_labels_used(model_name: str) -> DataWarning:
    """Return the warning that a model does not use the probabilities of soft labels."""
    return DataWarning(
        f"{model_name} does not use the probabilities of the grades (columns p0, p1, ...), only the label of each row",
        kind="hard-labels-used",
        fix="use a model that does, such as gda, dawid-skene or threshold",
    )


def _no_overlap() -> DataWarning:
    return DataWarning(
        "No document was judged by two assessors, so that nothing tells who is strict and who is careless, and grades "
        "are little more than a guess",
        kind="no-overlap",
        fix=["let some documents be judged twice", "aggregate by average or majority"],
    )


def _reversed_relevance() -> DataWarning:
    return DataWarning(
        "Relevance runs against the mean grades: the model reads most assessors in reverse, which only their agreement "
        "with each other decides",
        kind="reversed-relevance",
        fix="give expert grades (gold) for a few documents",
    )


def _against_experts() -> DataWarning:
    return DataWarning(
        "The mean grades run against the expert grades: their ids do not match, or one of them reversed the scale",
        kind="against-experts",
        fix=["check the ids with validate", "check the order of the grades of both"],
    )


def _separate_groups(group: NDArray[np.int64], assessors: pa.Array) -> list[DataWarning]:
    """Return a warning if assessors fall into groups without a document in common.

    >>> print(*_separate_groups(np.array([0, 0, 2]), pa.array(["x", "y", "z"])))
    The assessors fall into 2 groups without a document in common ('x' and 'z' are in two of them, 2 of 3 assessors in
    the largest): only the prior ties their scales, so that relevance compares badly between groups; let some assessors
    judge documents of several groups.
    """
    groups, first, size = np.unique(group, return_index=True, return_counts=True)
    if len(groups) == 1:
        return []
    names = [shown(assessors[int(place)].as_py()) for place in first[:2]]
    problem = (
        f"The assessors fall into {counted(len(groups), 'group')} without a document in common "
        f"({' and '.join(names)} are in two of them, {size.max():,} of {counted(len(group), 'assessor')} in the "
        "largest): only the prior ties their scales, so that relevance compares badly between groups"
    )
    return [DataWarning(problem, kind="separate-groups", fix="let some assessors judge documents of several groups")]


def assessor_groups(judgments: Judgments, gold: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """Return the group of each assessor, and of the expert as the last, by its lowest member.

    Assessors are in one group if a chain of common documents connects them.
    """
    known = np.full(judgments.n_items, -1, np.int8) if gold is None else gold
    groups: NDArray[np.int64] = find_groups(judgments.offsets, judgments.assessor, known, judgments.n_assessors)
    return groups


def merge_groups(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the groups of the union of two sets of judgments.

    >>> merge_groups(np.array([0, 0, 2, 3]), np.array([0, 1, 1, 3])).tolist()
    [0, 0, 0, 3]
    """
    # Every member counts as having one document in common with the lowest member of its group.
    n = len(one)
    pairs = np.concatenate([np.stack([np.arange(n), group], axis=1) for group in (one, other)]).astype(np.int32)
    both: NDArray[np.int64] = find_groups(
        np.arange(0, 2 * len(pairs) + 1, 2), pairs.ravel(), np.full(len(pairs), -1, np.int8), n
    )
    return both[:-1]


def by_experts(judgments: Judgments, gold: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the `covariance_sums` of mean grades and expert grades."""
    known = gold >= 0
    return covariance_sums(mean_grades(judgments)[known], gold[known].astype(np.float64))


def mean_grades(judgments: Judgments) -> NDArray[np.float64]:
    """Return the mean grade of each item as a share of the scale; NaN if nobody could judge it."""
    highest = np.array([len(scale) - 1 for scale in judgments.scales])[judgments.assessor_scale]
    means: NDArray[np.float64] = mean_shares(judgments.offsets, judgments.assessor, judgments.grade, highest)
    return means


def _mean_shares(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], grade: NDArray[np.int8], highest: NDArray[np.int64]
) -> NDArray[np.float64]:
    item, top, n_items = items_of(offsets), highest[assessor], len(offsets) - 1
    known = (grade != UNJUDGEABLE) & (grade <= top)
    total = np.bincount(item, np.where(known, grade / np.maximum(top, 1), 0.0), minlength=n_items)
    n = np.bincount(item[known], minlength=n_items)
    means: NDArray[np.float64] = np.divide(total, n, out=np.full(n_items, np.nan), where=n > 0)
    return means


@njit(nogil=True, numpy=_mean_shares)
def mean_shares(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], grade: NDArray[np.int8], highest: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean over an item's grades of the grade divided by its assessor's highest one; NaN without a grade."""
    means = np.empty(len(offsets) - 1)
    for item in range(len(means)):
        total, n = 0.0, 0
        for j in range(offsets[item], offsets[item + 1]):
            top = highest[assessor[j]]
            if grade[j] != UNJUDGEABLE and grade[j] <= top:
                total += grade[j] / max(top, 1)
                n += 1
        means[item] = total / n if n else np.nan
    return means


def covariance_sums(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return n, sum(x), sum(y) and sum(x y) over the finite x; those of shards can be added."""
    known = np.isfinite(x)
    if not known.all():
        x, y = x[known], y[known]
    return np.array([len(x), x.sum(), y.sum(), (x * y).sum()])


def has_negative_covariance(sums: NDArray[np.float64]) -> bool:
    """Return whether the covariance of `covariance_sums` is below 0, beyond rounding.

    >>> has_negative_covariance(covariance_sums(np.array([0.0, 1.0]), np.array([1.0, 0.0])))
    True
    """
    n, x, y, products = sums
    return bool(n > 1 and products - x * y / n < -1e-9 * n)


def _find_groups(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], gold: NDArray[np.int8], n_assessors: int
) -> NDArray[np.int64]:
    # Each item has an edge from its first assessor, or the expert, to each of its assessors.
    first = np.where(gold >= 0, n_assessors, np.append(assessor, -1)[offsets[:-1]])[items_of(offsets)]
    group, changed = np.arange(n_assessors + 1), True
    while changed:
        before = group.copy()
        np.minimum.at(group, group[first], group[assessor])
        np.minimum.at(group, group[assessor], group[first])
        group = group[group]
        changed = not np.array_equal(group, before)
    return group


@njit(nogil=True, numpy=_find_groups)
def find_groups(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], gold: NDArray[np.int8], n_assessors: int
) -> NDArray[np.int64]:
    """Return the group of each assessor, named by its lowest member; assessors with a common item are in one group."""
    # gold (n_items,), -1 where there is none -> (n_assessors + 1,), the last being the expert
    parent = np.arange(n_assessors + 1)
    for item in range(len(offsets) - 1):
        first = n_assessors if gold[item] >= 0 else assessor[offsets[item]]
        for j in range(offsets[item], offsets[item + 1]):
            a, b = first, assessor[j]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            parent[max(a, b)] = min(a, b)
    for a in range(n_assessors + 1):
        parent[a] = parent[parent[a]]
    return parent
