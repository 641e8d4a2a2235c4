"""What a fit had to take on trust: said in one sentence each, never in silence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus import kernels
from crowdrank.errors import shown
from crowdrank.judgments.table import UNJUDGEABLE, Judgments, counted


def disconnected(judgments: Judgments, gold: NDArray[np.int8] | None) -> str | None:
    """Assessors in groups that share no document: nothing but the prior says how their scales compare.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "z"], "grade": [0, 1, 1]})
    >>> print(disconnected(read_judgments(votes), None))
    The assessors fall into 2 groups without a document in common ('x' and 'z' are in two of them, 2 of 3 assessors in
    the largest): only the prior ties their scales, so that relevance compares badly between groups; let some assessors
    judge documents of several groups.
    """
    known = np.full(judgments.n_items, -1, np.int8) if gold is None else gold
    group = kernels.connect(judgments.offsets, judgments.assessor, known, judgments.n_assessors)[:-1]
    groups, first, size = np.unique(group, return_index=True, return_counts=True)
    if len(groups) == 1:
        return None
    names = [shown(judgments.assessors[int(place)].as_py()) for place in first[:2]]
    return (
        f"The assessors fall into {counted(len(groups), 'group')} without a document in common "
        f"({' and '.join(names)} are in two of them, {size.max():,} of {counted(len(group), 'assessor')} in the "
        f"largest): only the prior ties their scales, so that relevance compares badly between groups; let some "
        f"assessors judge documents of several groups."
    )


def no_overlap(judgments: Judgments) -> str | None:
    """No document with judgments of two assessors: nothing says how strict or how good anybody is.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]})
    >>> print(no_overlap(read_judgments(votes)))
    No document was judged by two assessors, so that nothing tells who is strict and who is careless, and grades are
    little more than a guess; take average or majority, or let some documents be judged twice.
    """
    if (np.diff(judgments.offsets) > 1).any():
        return None
    return (
        "No document was judged by two assessors, so that nothing tells who is strict and who is careless, and grades "
        "are little more than a guess; take average or majority, or let some documents be judged twice."
    )


def reversed_ranking(judgments: Judgments, relevance: NDArray[np.float64]) -> str | None:
    """A consensus against the mean grades: most assessors are then read in reverse.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]}))
    >>> reversed_ranking(votes, np.array([0.0, 1.0])) is None, reversed_ranking(votes, np.array([1.0, 0.0])) is None
    (True, False)
    """
    if not _against(mean_grades(judgments), relevance):
        return None
    return (
        "Relevance runs against the mean grades: most assessors are read in reverse, which nothing but their "
        "agreement with each other decides; give expert grades (gold) for a few documents to settle it."
    )


def against_experts(judgments: Judgments, gold: NDArray[np.int8]) -> str | None:
    """A crowd whose grades fall where the experts' rise."""
    known = gold >= 0
    if not _against(mean_grades(judgments)[known], gold[known].astype(np.float64)):
        return None
    return (
        "The mean grades run against the expert grades: either the crowd or the experts use the scale in reverse; "
        "check the order of the grades of both."
    )


def mean_grades(judgments: Judgments) -> NDArray[np.float64]:
    """The mean grade of each item as a share of its scale; NaN where nobody could judge."""
    highest = np.array([len(scale) - 1 for scale in judgments.scales])[judgments.assessor_scale[judgments.assessor]]
    graded = (judgments.grade != UNJUDGEABLE) & (judgments.grade <= highest)
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))[graded]
    total = np.bincount(item, judgments.grade[graded] / np.maximum(highest[graded], 1), minlength=judgments.n_items)
    n = np.bincount(item, minlength=judgments.n_items)
    mean: NDArray[np.float64] = np.divide(total, n, out=np.full(judgments.n_items, np.nan), where=n > 0)
    return mean


def _against(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether the covariance is below 0, by more than rounding."""
    known = np.isfinite(one)
    one, other = one[known], other[known]
    return len(one) > 1 and float(((one - one.mean()) * (other - other.mean())).sum()) < -1e-9 * len(one)
