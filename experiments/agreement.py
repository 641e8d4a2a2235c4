"""Correlate what models say about assessors, without gold, with their agreement with gold (GDA, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import spearmanr

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.assessors.reference import count_pairs, kendall_tau
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.base import Fits, Row, Table

MIN_GOLD_JUDGMENTS = 30
"""Minimum number of judgments of gold documents of an assessor."""
QUALITIES = ("informativeness", "accuracy", "agreement")
"""Columns of a model's table of assessors that measure their quality."""


def gold_counts(judgments: Judgments, gold: Gold) -> Integers:
    """Return how often each assessor gave each answer to documents of each gold grade.

    >>> import pandas as pd
    >>> from crowdrank import read_gold, read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "b", "b"], "assessor": ["x", "x", "y"], "grade": [0, 1, 0]})
    >>> gold_counts(read_judgments(votes), read_gold(pd.DataFrame({"document": ["b"], "grade": [1]}))).tolist()
    [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]
    """
    judged = judgments.with_unjudgeable("lowest")
    return count_pairs(judged, np.repeat(gold.codes_by_name(judged), np.diff(judged.offsets)))


def spearman(left: Floats, right: Floats) -> float:
    """Return the rank correlation; NaN if one side is constant.

    >>> spearman(np.array([1.0, 2.0]), np.array([3.0, 5.0])), spearman(np.array([1.0, 1.0]), np.array([3.0, 5.0]))
    (1.0, nan)
    """
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return float("nan")
    return round(float(spearmanr(left, right).statistic), 12)


def agreement_table(fits: Fits, crowd: Judgments, golds: Mapping[str, Gold]) -> Table:
    """Return the correlations of each model's quality of assessors with their accuracy and Kendall's tau on gold."""
    counts = {name: gold_counts(crowd, gold) for name, gold in golds.items()}
    rows: list[Row] = []
    for run, model in fits.models.items():
        assessors = model.consensus_.assessors
        position = ids.match(crowd.assessors, model.consensus_.assessor_table["assessor"].combine_chunks())
        for quality in (column for column in QUALITIES if column in assessors):
            row: Row = {"run": run, "quality": quality}
            for name, table in counts.items():
                row |= _correlations(name, assessors[quality].to_numpy(), table[position])
            rows.append(row)
    enough = ", ".join(f"{int(_has_enough(table).sum())} ({name})" for name, table in counts.items())
    return Table(
        "agreement",
        "Quality of assessors by each method against their agreement with NIST: Spearman",
        tuple(rows),
        (
            f"Over the assessors with at least {MIN_GOLD_JUDGMENTS} judgments of gold documents: {enough}.",
            "Columns named after the gold: correlation with the share of an assessor's answers that equal the gold "
            "grade; tau: with Kendall's tau-b of answers and gold grades. 'Broken link' counts as grade 0; the "
            "methods did not see gold.",
            "A consistently strict assessor is informative and disagrees: the first correlation need not be 1.",
        ),
    )


def _has_enough(counts: Integers) -> Booleans:
    enough: Booleans = counts.sum(axis=(1, 2)) >= MIN_GOLD_JUDGMENTS
    return enough


def _correlations(name: str, quality: Floats, counts: Integers) -> dict[str, float]:
    """Return the rank correlations of a quality with accuracy and Kendall's tau, over assessors with enough gold."""
    enough = _has_enough(counts)
    used, values = counts[enough], quality[enough]
    accuracy = np.trace(used, axis1=1, axis2=2) / used.sum(axis=(1, 2))
    tau = kendall_tau(used)
    known = ~np.isnan(tau)
    return {name: spearman(values, accuracy), f"{name}, tau": spearman(values[known], tau[known])}
