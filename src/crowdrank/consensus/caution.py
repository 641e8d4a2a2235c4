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


def reversed_ranking(judgments: Judgments, relevance: NDArray[np.float64]) -> str | None:
    """A consensus against the mean grades: most assessors are then read in reverse.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]}))
    >>> reversed_ranking(votes, np.array([0.0, 1.0])) is None, reversed_ranking(votes, np.array([1.0, 0.0])) is None
    (True, False)
    """
    highest = np.array([len(scale) - 1 for scale in judgments.scales])[judgments.assessor_scale[judgments.assessor]]
    graded = (judgments.grade != UNJUDGEABLE) & (judgments.grade <= highest)
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))[graded]
    share = judgments.grade[graded] / np.maximum(highest[graded], 1)
    n = np.bincount(item, minlength=judgments.n_items)
    mean = np.bincount(item, share, minlength=judgments.n_items)[n > 0] / n[n > 0]
    shown_relevance = relevance[n > 0]
    together = float(((mean - mean.mean()) * (shown_relevance - shown_relevance.mean())).sum())
    if together >= -1e-9 * len(mean):
        return None
    return (
        "Relevance runs against the mean grades: most assessors are read in reverse, which nothing but their "
        "agreement with each other decides; give expert grades (gold) for a few documents to settle it."
    )
