"""Whether what a model says of its assessors, without gold, goes with how often they agree with gold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from crowdrank._typing import Floats
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.base import Fits, Row, Table

ENOUGH = 30
"""With fewer gold judgments an assessor's agreement is too rough to rank by."""
QUALITIES = ("informativeness", "accuracy", "agreement")
"""Columns of a model's table of assessors that say how good each is."""


def agreement(judgments: Judgments, gold: Gold) -> tuple[NDArray[np.int64], Floats]:
    """Per assessor, how many documents with gold, and the share of them with the gold grade (NaN without any).

    >>> import pandas as pd
    >>> from crowdrank import read_gold, read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "b", "b"], "assessor": ["x", "x", "y"], "grade": [0, 1, 0]})
    >>> agreement(read_judgments(votes), read_gold(pd.DataFrame({"document": ["b"], "grade": [1]})))
    (array([1, 1]), array([1., 0.]))
    """
    judged = judgments.with_unjudgeable("lowest")
    truth = np.repeat(gold.codes_by_name(judged), np.diff(judged.offsets))
    known = truth >= 0
    asked = np.bincount(judged.assessor[known], minlength=judged.n_assessors)
    right = np.bincount(judged.assessor[known & (truth == judged.grade)], minlength=judged.n_assessors)
    return asked, np.divide(right, asked, out=np.full(len(asked), np.nan), where=asked > 0)


def spearman(left: Floats, right: Floats) -> float:
    """The rank correlation; NaN where one side is all equal.

    >>> spearman(np.array([1.0, 2.0]), np.array([3.0, 5.0])), spearman(np.array([1.0, 1.0]), np.array([3.0, 5.0]))
    (1.0, nan)
    """
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return float("nan")
    return round(float(spearmanr(left, right).statistic), 12)


def agreement_table(fits: Fits, crowd: Judgments, golds: Mapping[str, Gold]) -> Table:
    """Spearman's correlation over assessors of each model's view of them with their agreement with each gold."""
    agreements = {name: agreement(crowd, gold) for name, gold in golds.items()}
    rows: list[Row] = []
    for run, model in fits.models.items():
        about = model.consensus_.assessors
        who = ids.match(crowd.assessors, model.consensus_.assessor_table["assessor"].combine_chunks())
        for quality in (column for column in QUALITIES if column in about):
            row: Row = {"run": run, "quality": quality}
            for name, (asked, share) in agreements.items():
                enough = asked[who] >= ENOUGH
                row[name] = spearman(about[quality].to_numpy()[enough], share[who][enough])
            rows.append(row)
    counts = ", ".join(f"{int((asked >= ENOUGH).sum())} ({name})" for name, (asked, _) in agreements.items())
    return Table(
        "agreement",
        "What methods say of assessors against their agreement with NIST: Spearman",
        tuple(rows),
        (
            f"Over the assessors with at least {ENOUGH} judgments of gold documents: {counts}.",
            "Agreement is the share of an assessor's answers that equal the gold grade, 'broken link' as grade 0; the "
            "methods did not see gold.",
            "An assessor who is consistently too strict is informative and disagrees: the correlation need not be 1.",
        ),
    )
