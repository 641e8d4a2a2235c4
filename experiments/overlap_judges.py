"""Several judges: agreement with experts by the number of labels, and judges with habits (OVERLAP, Figures 1, 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from crowdrank._typing import Floats, Integers
from crowdrank.collection.schemes import Scheme
from crowdrank.judgments.table import Judgments
from experiments.base import Row, Table, seeds_text

GRADES = ("Bad", "Fair", "Good", "Excellent", "Perfect")
MIN_LABELS = 100
"""Minimum number of labels of a judge who is compared with others, in each half of the queries if they are halved."""


def true_grades(judgments: Judgments, gold: pd.DataFrame) -> Integers:
    """Return the expert grade of the document of each label."""
    pairs = judgments.frame[["query", "document"]].merge(gold, on=["query", "document"], how="left", validate="m:1")
    return np.asarray(pairs["grade"], np.int64)


def agreement_table(name: str, judgments: Judgments, gold: pd.DataFrame, seeds: Sequence[int]) -> Table:
    """Return how often aggregated labels are the expert grade by their number, and the same of the best judge.

    The best judge is chosen on a random half of the queries and measured on the other half.
    """
    per_document = int(np.diff(judgments.offsets).min())
    truth = true_grades(judgments, gold)[judgments.offsets[:-1]]
    rows: list[Row] = []
    for k in range(1, per_document + 1):
        found: dict[str, list[float]] = {"majority": [], "highest": []}
        for seed in seeds:
            some = Scheme("overlap", k).sample(judgments, seed)
            for rule, shares in found.items():
                _, grade, _ = Scheme(rule, k).training_labels(some)
                shares.append(float(np.mean(grade == truth)))
        rows.append({"run": f"{k} label{'s' * (k > 1)}", **{rule: float(np.mean(one)) for rule, one in found.items()}})
    best, typical = _judges_agreement(judgments, gold, seeds)
    rows += [{"run": "best judge", "majority": best, "highest": best}]
    rows += [{"run": "median judge", "majority": typical, "highest": typical}]
    note = (
        f"Share of documents whose label is the expert grade; means over random orders of the labels "
        f"({seeds_text(seeds)}). The best judge has the highest share on half of the queries, and is measured on the "
        "other half; judges have no rule of aggregation."
    )
    return Table(f"agreement-{name}", f"Agreement with experts, label set {name} (Figure 1)", tuple(rows), (note,))


def _judges_agreement(judgments: Judgments, gold: pd.DataFrame, seeds: Sequence[int]) -> tuple[float, float]:
    """Return the held-out agreement of the best judge, and the median over judges, means over splits."""
    right = judgments.grade == true_grades(judgments, gold)
    query = judgments.by_row(judgments.item_query)
    best, median = [], []
    for seed in seeds:
        half = np.random.default_rng(seed).random(judgments.n_queries)[query] < 0.5
        first, second = (_share_by_judge(judgments, right, part) for part in (half, ~half))
        both = ~np.isnan(first) & ~np.isnan(second)
        best.append(second[both][first[both].argmax()])
        median.append(np.median(second[both]))
    return float(np.mean(best)), float(np.mean(median))


def _share_by_judge(judgments: Judgments, right: np.ndarray, rows: np.ndarray) -> Floats:
    """Return the share of right labels of each judge among some rows; NaN for judges with few labels there."""
    n = np.bincount(judgments.assessor[rows], minlength=judgments.n_assessors)
    hits = np.bincount(judgments.assessor[rows], right[rows], minlength=judgments.n_assessors)
    return np.where(n >= MIN_LABELS, hits / np.maximum(n, 1), np.nan)


def habits_table(name: str, judgments: Judgments) -> Table:
    """Return the grades of the judge who gives each grade most often, and the majority on the same documents."""
    counts = np.zeros((judgments.n_assessors, len(GRADES)), np.int64)
    np.add.at(counts, (judgments.assessor, judgments.grade), 1)
    enough = counts.sum(axis=1) >= MIN_LABELS
    shares = np.where(enough[:, None], counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), -1.0)
    _, majority, _ = Scheme("majority", int(np.diff(judgments.offsets).max())).training_labels(judgments)
    rows: list[Row] = []
    for grade in range(len(GRADES) - 1, -1, -1):
        judge = int(shares[:, grade].argmax())
        items = judgments.item[judgments.assessor == judge]
        consensus = np.bincount(majority[items].astype(np.int64), minlength=len(GRADES))
        both = np.stack([counts[judge], consensus])
        p = float(chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue)
        for who, one in (("judge", counts[judge]), ("majority", consensus)):
            row = {code: float(share) for code, share in zip(GRADES[::-1], (one / one.sum())[::-1], strict=True)}
            rows.append({"run": f"most {GRADES[grade]}: {who}", "labels": int(one.sum()), **row, "p": p})
    note = (
        f"For each grade, the judge with the largest share of it (at least {MIN_LABELS} labels), and the majority of "
        "all labels of the same documents. p: chi-squared test that both have the same distribution. Judges are chosen "
        "by their shares, so p is too small."
    )
    title = f"Grades of judges with habits, label set {name} (Figure 2)"
    return Table(f"habits-{name}", title, tuple(rows), (note,))
