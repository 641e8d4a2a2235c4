"""Web pages on five grades: how often a consensus is the true grade, and how far off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.votes import count_votes
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Chosen,
    Experiment,
    Fits,
    Table,
    Tell,
    Variants,
    choose,
    compared_runs,
    figures,
    fit_all,
    gold_in,
    quiet,
    ranking,
    testing_protocol,
)
from experiments.subsample import equal_count_table
from experiments.threshold_prior import METHOD, prior_table

MEASURES = ("GradeAccuracy", "GradeMAE", "TauB")
TESTED = ("GradeAccuracy", "GradeMAE")
"""Measures that have a value for every document; a rank correlation has one for all of them together."""
BASELINE = "dawid-skene"
VARIANTS: Variants = {
    "dawid-skene-no-prior": ("dawid-skene", {"prior": 0}),
    "threshold-penalty": ("threshold-dawid-skene", {"prior": 1.0, "grade_prior": "uniform"}),
    "gda-widths": ("gda", {"tied_variance": False}),
}
LABELS = 3
EXPERTS = ("0", "1", "2", "6", "7", "11", "12", "15", "25")
"""Assessors whose majority is the gold grade; three of them judged each document."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return all tables on the web data, for some methods or for all."""
    chosen = choose(methods, VARIANTS)
    data = dataset("web-5grade")
    crowd, gold = data.read_judgments(), data.read_gold()
    fits = fit_all(chosen, crowd, on="the crowd", tell=tell)
    table = crowd_table(fits, gold_in(gold, crowd))
    subsample = equal_count_table(
        chosen, crowd, gold, MEASURES, labels=LABELS, seeds=seeds, tell=tell, score=grade_figures
    )
    tables = [table, subsample, without_experts_table(chosen, crowd, gold, tell=tell)]
    if METHOD in chosen:
        parts = {"all judgments": crowd, "without experts": without_experts(crowd)}
        tables.append(prior_table(parts, gold, grade_figures))
    return Experiment("web5", tuple(tables), tuple(_protocol(crowd, gold, table)))


def _protocol(crowd: Judgments, gold: Gold, table: Table) -> list[str]:
    n_majorities, n_equal = count_majorities(crowd, gold)
    return [
        f"Data: web search relevance on five grades (SQUARE's WB), {counted(len(crowd), 'judgment')} of "
        f"{counted(crowd.n_items, 'document')} by {counted(crowd.n_assessors, 'assessor')}; gold for "
        f"{counted(len(gold), 'document')}; there are no query ids.",
        f"Gold is not independent of these judgments: {len(EXPERTS)} assessors gave three answers to nearly every "
        f"document, and where one grade has most of their votes ({counted(n_majorities, 'document')}), it is the gold "
        f"grade in {n_equal:,}. So the figures of all judgments measure how much a method trusts these assessors; "
        "without experts leaves them out.",
        "GradeAccuracy is the share of documents whose consensus grade is the gold grade, GradeMAE the mean distance "
        "of the two in grades, TauB Kendall's tau-b of relevance and gold over all documents together.",
        "AccuracyByMode and MAEByMedian are the same two measures for the most probable grade and for the median grade "
        "of P(grade), which are the best choices for each measure.",
        "Without queries, runs are paired and tested document by document: each document stands as a query of its "
        "own, and documents are taken as independent; TauB has no test.",
        "dawid-skene-no-prior is plain maximum likelihood (prior=0), which is crowd-kit's Dawid-Skene; "
        "threshold-penalty has the fixed penalty of Zhou et al. (prior=1, the middle of their grid) instead of a "
        "learned prior; gda-widths gives every grade a width of its own; there are no families, so "
        "family-mean is the average.",
        ONE_CONFIGURATION,
        "The defaults of threshold-dawid-skene (learned prior, uniform grade prior) were settled earlier with gold in "
        "view, after 54 priors and variants of the model were looked at on these judgments, besides diagnostics with "
        "gold. Later 8 more were looked at with all judgments and 8 without experts; the defaults were kept, because "
        "they predict held-out judgments best.",
        *testing_protocol(table),
    ]


def crowd_table(fits: Fits, gold: pd.DataFrame) -> Table:
    """Return all measures, with tests by document."""
    runs = {run: by_document(ranking(model)) for run, model in fits.models.items()}
    title = "The crowd alone, all gold documents"
    tested = compared_runs("crowd", title, runs, by_document(gold), TESTED, baseline=BASELINE, notes=fits.notes)
    means = grade_figures(fits, gold, MEASURES)
    rows = tuple({"run": run, **means[run]} for run in runs)
    return Table("crowd", title, rows, tested.notes, tested.comparison)


def without_experts(crowd: Judgments) -> Judgments:
    """Return the judgments of the assessors whose answers are not the gold."""
    return crowd.where(~_is_expert(crowd)[crowd.assessor])


def _is_expert(crowd: Judgments) -> NDArray[np.bool_]:
    return np.isin([str(assessor) for assessor in crowd.assessors.to_pylist()], EXPERTS)


def count_majorities(crowd: Judgments, gold: Gold) -> tuple[int, int]:
    """Return for how many gold documents most experts agree on one grade, and for how many of them it is the gold."""
    experts = crowd.where(_is_expert(crowd)[crowd.assessor])
    votes = count_votes(experts.offsets, experts.grade, len(experts.scale))
    place = experts.positions(gold.query, gold.document)
    votes, code = votes[place[place >= 0]], gold.code[place >= 0]
    is_clear = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) == 1
    return int(is_clear.sum()), int((votes.argmax(axis=1) == code)[is_clear].sum())


def without_experts_table(chosen: Chosen, crowd: Judgments, gold: Gold, *, tell: Tell) -> Table:
    """Return the figures of every method on the judgments of the other assessors."""
    others = without_experts(crowd)
    fits = fit_all(chosen, others, on="the crowd without experts", tell=tell)
    rows = grade_figures(fits, gold_in(gold, others), MEASURES)
    note = (
        f"{counted(len(others), 'judgment')} of {counted(others.n_items, 'document')} by "
        f"{counted(others.n_assessors, 'assessor')}; there are no tests."
    )
    runs = tuple({"run": run, **row} for run, row in rows.items())
    return Table("without-experts", "Without the assessors whose majority is the gold", runs, (note, *fits.notes))


def grade_figures(fits: Fits, gold: pd.DataFrame, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the means of each model, the accuracy of its modal grades and the absolute error of its median grades."""
    means = figures(fits, gold, measures)
    return {run: {**means[run], **_by_rule(model.consensus_, gold)} for run, model in fits.models.items()}


def _by_rule(consensus: Consensus, gold: pd.DataFrame) -> dict[str, float]:
    probabilities = consensus.documents.set_index("document")[consensus.true_share_names]
    p, grade = probabilities.loc[gold["document"]].to_numpy(), gold["grade"].to_numpy()
    median = (np.cumsum(p, axis=1) >= 0.5).argmax(axis=1)
    return {
        "AccuracyByMode": float((p.argmax(axis=1) == grade).mean()),
        "MAEByMedian": float(np.abs(median - grade).mean()),
    }


def by_document(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which each document is a query of its own.

    >>> by_document(pd.DataFrame({"query": ["all"], "document": ["d1"], "grade": [2]})).to_dict("list")
    {'query': ['d1'], 'document': ['d1'], 'grade': [2]}
    """
    return frame.assign(query=frame["document"])
