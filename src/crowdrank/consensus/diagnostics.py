"""What a fit had to take on trust: said in one sentence each, never in silence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.consensus import kernels
from crowdrank.errors import shown
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

NO_OVERLAP = (
    "No document was judged by two assessors, so that nothing tells who is strict and who is careless, and grades are "
    "little more than a guess; let some documents be judged twice, or aggregate by average or majority."
)
REVERSED = (
    "Relevance runs against the mean grades: most assessors are read in reverse, which nothing but their agreement "
    "with each other decides; give expert grades (gold) for a few documents to settle it."
)
AGAINST_EXPERTS = (
    "The mean grades run against the expert grades: either the crowd or the experts use the scale in reverse; check "
    "the order of the grades of both."
)


def groups_of(judgments: Judgments, gold: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """The group of each assessor, and last of the expert, by its lowest member."""
    known = np.full(judgments.n_items, -1, np.int8) if gold is None else gold
    groups: NDArray[np.int64] = kernels.connect(judgments.offsets, judgments.assessor, known, judgments.n_assessors)
    return groups


def groups_of_both(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The groups where some judgments make the ones and others the others.

    >>> groups_of_both(np.array([0, 0, 2, 3]), np.array([0, 1, 1, 3])).tolist()
    [0, 0, 0, 3]
    """
    # Whoever is in a group is as good as on one document with its lowest member.
    n = len(one)
    pairs = np.concatenate([np.stack([np.arange(n), group], axis=1) for group in (one, other)]).astype(np.int32)
    both: NDArray[np.int64] = kernels.connect(
        np.arange(0, 2 * len(pairs) + 1, 2), pairs.ravel(), np.full(len(pairs), -1, np.int8), n
    )
    return both[:-1]


def told_of_groups(group: NDArray[np.int64], assessors: pa.Array) -> str | None:
    """What is said where assessors share no document between groups: only the prior says how their scales compare.

    >>> print(told_of_groups(np.array([0, 0, 2]), pa.array(["x", "y", "z"])))
    The assessors fall into 2 groups without a document in common ('x' and 'z' are in two of them, 2 of 3 assessors in
    the largest): only the prior ties their scales, so that relevance compares badly between groups; let some assessors
    judge documents of several groups.
    """
    groups, first, size = np.unique(group, return_index=True, return_counts=True)
    if len(groups) == 1:
        return None
    names = [shown(assessors[int(place)].as_py()) for place in first[:2]]
    return (
        f"The assessors fall into {counted(len(groups), 'group')} without a document in common "
        f"({' and '.join(names)} are in two of them, {size.max():,} of {counted(len(group), 'assessor')} in the "
        f"largest): only the prior ties their scales, so that relevance compares badly between groups; let some "
        f"assessors judge documents of several groups."
    )


def by_experts(judgments: Judgments, gold: NDArray[np.int8]) -> NDArray[np.float64]:
    """The moments of the mean grades and the expert grades."""
    known = gold >= 0
    return moments(mean_grades(judgments)[known], gold[known].astype(np.float64))


def mean_grades(judgments: Judgments) -> NDArray[np.float64]:
    """The mean grade of each item as a share of its scale; NaN where nobody could judge."""
    highest = np.array([len(scale) - 1 for scale in judgments.scales])[judgments.assessor_scale[judgments.assessor]]
    graded = (judgments.grade != UNJUDGEABLE) & (judgments.grade <= highest)
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))[graded]
    total = np.bincount(item, judgments.grade[graded] / np.maximum(highest[graded], 1), minlength=judgments.n_items)
    n = np.bincount(item, minlength=judgments.n_items)
    mean: NDArray[np.float64] = np.divide(total, n, out=np.full(judgments.n_items, np.nan), where=n > 0)
    return mean


def moments(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many there are, the sums of both, and of their products; they add up over shards. NaN of the one is none."""
    known = np.isfinite(one)
    one, other = one[known], other[known]
    return np.array([len(one), one.sum(), other.sum(), (one * other).sum()])


def against(sums: NDArray[np.float64]) -> bool:
    """Whether the covariance is below 0, by more than rounding.

    >>> against(moments(np.array([0.0, 1.0]), np.array([1.0, 0.0])))
    True
    """
    n, one, other, products = sums
    return bool(n > 1 and products - one * other / n < -1e-9 * n)
