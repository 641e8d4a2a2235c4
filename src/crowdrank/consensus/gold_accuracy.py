"""Accuracy of assessors on the documents that experts graded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank.consensus.kernels import items_of
from crowdrank.judgments.gold import ItemGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments


class Agreements(NamedTuple):
    """Number of judgments of each assessor on documents with an expert grade, (n_assessors,) each."""

    agreed: NDArray[np.float64]  # judgments equal to the expert grade
    judged: NDArray[np.float64]  # all judgments


def count_agreements(judgments: Judgments, gold: ItemGold) -> Agreements:
    """Return how often each assessor gives a grade that the expert grade stands for."""
    counts = Agreements(np.zeros(judgments.n_assessors), np.zeros(judgments.n_assessors))
    if gold.sets is not None:
        add_agreements(judgments.offsets, judgments.assessor, judgments.grade, gold.code, gold.sets, *counts)
    return counts


def gold_accuracy(judgments: Judgments | ShardedJudgments, counts: Agreements) -> dict[str, NDArray[np.generic]]:
    """Return columns with the number of judgments on expert-graded documents and the share that agrees.

    Assessors with another scale than the main one, which the experts use, have none.
    """
    on_main = np.array([scale == judgments.main_scale for scale in judgments.scales])[judgments.assessor_scale]
    agreed, judged = counts.agreed * on_main, counts.judged * on_main
    share = np.divide(agreed, judged, out=np.full(len(judged), np.nan), where=judged > 0)
    return {"gold_judgments": judged.astype(np.int64), "gold_accuracy": share}


def _add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    sets: NDArray[np.bool_],
    agreed: NDArray[np.float64],
    judged: NDArray[np.float64],
) -> None:
    by_row = reference[items_of(offsets)]
    known = by_row >= 0
    judged += np.bincount(assessor[known], minlength=len(judged))
    n_grades = sets.shape[1]  # scales of other assessors may have more grades
    agrees = (grade >= 0) & (grade < n_grades) & sets[by_row, np.clip(grade, 0, n_grades - 1)]
    agreed += np.bincount(assessor[known & agrees], minlength=len(agreed))


@njit(nogil=True, numpy=_add_agreements)
def add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    sets: NDArray[np.bool_],
    agreed: NDArray[np.float64],
    judged: NDArray[np.float64],
) -> None:
    """Add, per assessor, the number of judgments of items with a reference grade, and of those that agree with it."""
    # reference (n_items,), -1 if there is none; sets (n_references, n_grades): grades that a reference grade stands for
    # agreed, judged (n_assessors,) are added to
    for item in range(len(offsets) - 1):
        if reference[item] < 0:
            continue
        for j in range(offsets[item], offsets[item + 1]):
            judged[assessor[j]] += 1.0
            if 0 <= grade[j] < sets.shape[1] and sets[reference[item], grade[j]]:
                agreed[assessor[j]] += 1.0
