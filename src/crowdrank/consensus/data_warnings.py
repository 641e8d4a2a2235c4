"""Warnings after a fit about what the judgments do not determine, such as assessors without common documents."""

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
class WarningEvidence:
    """Facts about judgments and a fit that warnings are based on; callables compute them only if needed.

    Attributes:
        assessors: ids of the assessors.
        has_overlap: whether any document was judged twice.
        groups: connected group of each assessor, and of the expert as the last (see :func:`assessor_groups`).
        relevance_covariance: `covariance_sums` of mean grades and relevance.
        expert_covariance: `covariance_sums` of mean grades and expert grades, if there are expert grades.

    """

    assessors: pa.Array
    has_overlap: Callable[[], bool]
    groups: Callable[[], NDArray[np.int64]]
    relevance_covariance: Callable[[], NDArray[np.float64]]
    expert_covariance: Callable[[], NDArray[np.float64]] | None


def data_warnings(
    evidence: WarningEvidence, has_assessor_parameters: bool, has_latent_trait: bool
) -> list[DataWarning]:
    """Return the data warnings after the fit of a model.

    Args:
        evidence: facts about the fit.
        has_assessor_parameters: whether assessors have parameters in the model.
        has_latent_trait: whether relevance is a continuous latent trait of the model.

    """
    found: list[DataWarning] = []
    has_experts = evidence.expert_covariance is not None
    if not has_experts and has_assessor_parameters and not evidence.has_overlap():
        found.append(_no_overlap_warning())
    elif has_latent_trait:
        found += _separate_groups_warning(evidence.groups()[:-1], evidence.assessors)
    if evidence.expert_covariance is not None:
        found += [_against_experts_warning()] if has_negative_covariance(evidence.expert_covariance()) else []
    elif has_assessor_parameters:
        found += [_reversed_relevance_warning()] if has_negative_covariance(evidence.relevance_covariance()) else []
    return found


def hard_labels_used(model_name: str) -> DataWarning:
    """Return the warning that a model does not use the probabilities of soft labels."""
    return DataWarning(
        f"{model_name} does not use the probabilities of the grades (columns p0, p1, ...), only the label of each row",
        kind="hard-labels-used",
        fix="use a model that does, such as gda, dawid-skene or threshold",
    )


def families_unused(model_name: str) -> DataWarning:
    """Return the warning that a model does not use the families of assessors."""
    return DataWarning(
        f"{model_name} does not use the families of assessors: all count as independent",
        kind="families-unused",
        fix="use a model that does, such as gda, dawid-skene or threshold-dawid-skene",
    )


def _no_overlap_warning() -> DataWarning:
    return DataWarning(
        "No document was judged by two assessors, so that nothing tells who is strict and who is careless, and grades "
        "are little more than a guess",
        kind="no-overlap",
        fix=["let some documents be judged twice", "aggregate by average or majority"],
    )


def _reversed_relevance_warning() -> DataWarning:
    return DataWarning(
        "Relevance runs against the mean grades: the model reads most assessors in reverse, which only their agreement "
        "with each other decides",
        kind="reversed-relevance",
        fix="give expert grades (gold) for a few documents",
    )


def _against_experts_warning() -> DataWarning:
    return DataWarning(
        "The mean grades run against the expert grades: their ids do not match, or one of them reversed the scale",
        kind="against-experts",
        fix=["check the ids with validate", "check the order of the grades of both"],
    )


def _separate_groups_warning(group: NDArray[np.int64], assessors: pa.Array) -> list[DataWarning]:
    """Return a warning if assessors fall into groups without a document in common.

    >>> print(*_separate_groups_warning(np.array([0, 0, 2]), pa.array(["x", "y", "z"])))
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
    """Return the connected group of each assessor, and of the expert as the last, (n_assessors + 1,).

    Assessors are in one group if a chain of common documents connects them. The number of a group is the lowest index
    of its members.
    """
    known = np.full(judgments.n_items, -1, np.int8) if gold is None else gold
    groups: NDArray[np.int64] = find_groups(judgments.offsets, judgments.assessor, known, judgments.n_assessors)
    return groups


def merge_groups(first_groups: NDArray[np.int64], second_groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the groups of two sets of judgments together, from the groups of each (:func:`assessor_groups`).

    >>> merge_groups(np.array([0, 0, 2, 3]), np.array([0, 1, 1, 3])).tolist()
    [0, 0, 0, 3]
    """
    # Every member counts as having one document in common with the lowest member of its group.
    n = len(first_groups)
    pairs = np.concatenate([np.stack([np.arange(n), group], axis=1) for group in (first_groups, second_groups)]).astype(
        np.int32
    )
    both: NDArray[np.int64] = find_groups(
        np.arange(0, 2 * len(pairs) + 1, 2), pairs.ravel(), np.full(len(pairs), -1, np.int8), n
    )
    return both[:-1]


def expert_covariance(judgments: Judgments, gold: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the :func:`covariance_sums` of mean grade and expert grade over expert-graded items."""
    known = gold >= 0
    return covariance_sums(mean_grades(judgments)[known], gold[known].astype(np.float64))


def mean_grades(judgments: Judgments) -> NDArray[np.float64]:
    """Return the mean grade of each item, scaled to 0 (lowest grade) to 1 (highest); NaN if nobody could judge it."""
    highest = np.array([len(scale) - 1 for scale in judgments.scales])[judgments.assessor_scale]
    means: NDArray[np.float64] = mean_scaled_grades(judgments.offsets, judgments.assessor, judgments.grade, highest)
    return means


def _mean_scaled_grades(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], grade: NDArray[np.int8], highest_grade: NDArray[np.int64]
) -> NDArray[np.float64]:
    item, top, n_items = items_of(offsets), highest_grade[assessor], len(offsets) - 1
    known = (grade != UNJUDGEABLE) & (grade <= top)
    total = np.bincount(item, np.where(known, grade / np.maximum(top, 1), 0.0), minlength=n_items)
    n = np.bincount(item[known], minlength=n_items)
    means: NDArray[np.float64] = np.divide(total, n, out=np.full(n_items, np.nan), where=n > 0)
    return means


@njit(nogil=True, numpy=_mean_scaled_grades)
def mean_scaled_grades(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], grade: NDArray[np.int8], highest_grade: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean of grade / highest grade of its assessor's scale over each item's judgments; NaN if none."""
    means = np.empty(len(offsets) - 1)
    for item in range(len(means)):
        total, n = 0.0, 0
        for j in range(offsets[item], offsets[item + 1]):
            top = highest_grade[assessor[j]]
            if grade[j] != UNJUDGEABLE and grade[j] <= top:
                total += grade[j] / max(top, 1)
                n += 1
        means[item] = total / n if n else np.nan
    return means


def covariance_sums(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return n, sum(x), sum(y) and sum(x y), (4,), over the finite x; the sums of several shards can be added."""
    known = np.isfinite(x)
    if not known.all():
        x, y = x[known], y[known]
    return np.array([len(x), x.sum(), y.sum(), (x * y).sum()])


def has_negative_covariance(sums: NDArray[np.float64]) -> bool:
    """Return whether the covariance by the result of :func:`covariance_sums` is below 0, beyond rounding errors.

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
    """Return the connected components of assessors who share items, each numbered by its lowest member."""
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
