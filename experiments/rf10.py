"""TREC RF10: rankings by a web crowd's consensus against NIST's grades (GDA, Tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from crowdrank._text import counted
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.agreement import agreement_table
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Experiment,
    Fits,
    Row,
    Table,
    Tell,
    Variants,
    choose,
    compared_runs,
    fit_all,
    quiet,
    ranking,
    testing_protocol,
)
from experiments.claims import Claim, tests_table
from experiments.few_classes import FewClassDawidSkene
from experiments.halves import split_half_table
from experiments.injected import injected_tables
from experiments.subsample import equal_count_table

MEASURES = ("AP", "nDCG", "Tau")
BASELINE = "dawid-skene"
VARIANTS: Variants = {
    "dawid-skene-ml": ("dawid-skene", {"prior": 0}),
    "dawid-skene-ml-2": ("dawid-skene", partial(FewClassDawidSkene, 2)),
    "gda-unjudgeable": ("gda", {"unjudgeable_as": "model"}),
    "gda-difficulty": ("gda", {"unjudgeable_as": "model", "difficulty": True}),
    "gda-difficulty-alone": ("gda", {"difficulty": True}),
    "gda-widths": ("gda", {"tied_variance": False}),
    "gda-joint": ("gda", {"estimation": "joint"}),
    "rasch-difficulty": ("rasch", {"difficulty": True}),
    "threshold-unjudgeable": ("threshold-dawid-skene", {"unjudgeable_as": "model"}),
    "gda-pairwise-joint": ("gda-pairwise", {"estimation": "joint"}),
    "gda-pairwise-difficulty": ("gda-pairwise", {"difficulty": True}),
    "gda-pairwise-joint-difficulty": ("gda-pairwise", {"estimation": "joint", "difficulty": True}),
    "gda-pairwise-same-assessor": ("gda-pairwise", {"pairs": "same-assessor"}),
}
BASELINES = ("random", "majority", "average", "dawid-skene-ml", "dawid-skene-ml-2", "rasch-difficulty")
"""Baselines of GDA's Table 2: random order, votes, EM by maximum likelihood, and Rasch with difficulty."""
CLAIMS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "GDA and GDA-PW over the baselines": (("gda", "gda-pairwise"), BASELINES),
    "the same by joint estimation": (("gda-joint", "gda-pairwise-joint"), BASELINES),
    "GDA-PW over GDA": (("gda-pairwise",), ("gda",)),
    "GDA-PW with difficulty over GDA-PW": (("gda-pairwise-difficulty",), ("gda-pairwise",)),
}
"""The paper's claims about Table 2: claimed runs, and runs that they should beat."""
MIN_GAIN = 0.005
"""Smallest gain that supports a claim."""
LABELS = 3
"""Number of labels per document in the table with equal counts."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return all tables on RF10, for some methods or for all."""
    chosen = choose(methods, VARIANTS)
    data = dataset("trec-rf10")
    crowd, gold, judged = data.read_judgments(), data.read_gold(), data.read_gold(unjudgeable_as="drop")
    fits = fit_all(chosen, crowd, on="the crowd", tell=tell)
    tables = crowd_tables(fits, gold, judged)
    return Experiment(
        "rf10",
        (
            *tables,
            *claim_tables(tables[0]),
            *injected_tables(chosen, fits, crowd, gold, MEASURES, baseline=BASELINE, seeds=seeds, tell=tell),
            agreement_table(fits, crowd, {"all gold": gold, "NIST-judged": judged}),
            split_half_table(chosen, fits, crowd, seeds=seeds, tell=tell),
            equal_count_table(chosen, crowd, gold, MEASURES, labels=LABELS, seeds=seeds, tell=tell),
        ),
        tuple(_protocol(crowd, gold, judged, tables[0])),
    )


def _protocol(crowd: Judgments, gold: Gold, judged: Gold, table: Table) -> list[str]:
    return [
        f"Data: TREC 2010 Relevance Feedback, {counted(len(crowd), 'judgment')} of "
        f"{counted(crowd.n_items, 'document')} by {counted(crowd.n_assessors, 'assessor')}; of several judgments of "
        f"one assessor on one document the last is kept ({counted(crowd.report.repeats, 'judgment')} left out).",
        f"Gold: {counted(len(gold), 'document')}, of which NIST judged {len(judged):,}; the other "
        f"{len(gold) - len(judged):,} are planted broken links, which count as grade 0.",
        "The crowd's 'broken link' answers count as grade 0, but for gda-unjudgeable, gda-difficulty and "
        "threshold-unjudgeable, where they are an answer of their own; in gda-difficulty, gda-difficulty-alone, "
        "rasch-difficulty, gda-pairwise-difficulty and gda-pairwise-joint-difficulty documents differ in difficulty, "
        "in gda-widths every grade has its own width, gda-joint and gda-pairwise-joint* maximize the joint likelihood "
        "as in the paper, and gda-pairwise-same-assessor uses only pairs of judgments of one assessor.",
        "The paper's EM has no prior: dawid-skene-ml is Dawid-Skene by maximum likelihood, and dawid-skene-ml-2 the "
        "same with two true classes for the three grades (the paper took the best number of classes).",
        "random is the expected value over random orders of the documents.",
        "There are no families here, so family-mean is the average.",
        "A document is relevant from grade 1 up; Tau is (concordant - discordant) / pairs of different gold.",
        ONE_CONFIGURATION,
        "The numbers of all topics are even, so topics are halved by their place in the order of the numbers: odd "
        "places are for choices, even places for reporting. Twelve settings of gda were compared on the odd places "
        "(the variants, with and without the unjudgeable class); some of the library's defaults were settled earlier "
        "with all topics in view, so the even places are not unseen.",
        "The number of labels of a document depends on its gold grade in this data; no score uses it, and in the "
        "equal-count table it is the same for all documents.",
        *testing_protocol(table),
    ]


def crowd_tables(fits: Fits, gold: Gold, judged: Gold) -> tuple[Table, ...]:
    """Return tables of the crowd alone: all gold, documents that NIST judged, and each half of the topics."""
    all_gold: pd.DataFrame = gold.frame
    odd = in_odd_places(all_gold["query"])
    parts = {
        "crowd": ("The crowd alone, all gold documents", all_gold),
        "nist-judged": ("The crowd alone, documents that NIST judged", judged.frame),
        "odd": ("The crowd alone, topics in odd places (development)", all_gold[odd]),
        "even": ("The crowd alone, topics in even places (report)", all_gold[~odd]),
    }
    runs = {run: ranking(model) for run, model in fits.models.items()}
    runs["random"] = next(iter(runs.values())).assign(relevance=0.0)  # tied scores: expected value over random orders
    return tuple(
        compared_runs(name, title, runs, part, MEASURES, baseline=BASELINE, notes=fits.notes)
        for name, (title, part) in parts.items()
    )


def claim_tables(table: Table) -> list[Table]:
    """Return the verdicts on the paper's claims by measure, and the tests of the first; [] if a run is missing."""
    claims = {
        name: {measure: Claim("GDA", *runs, measure, MIN_GAIN) for measure in MEASURES} for name, runs in CLAIMS.items()
    }
    rows: list[Row] = []
    for name, by_measure in claims.items():
        words = {measure: claim.verdict(table.comparison) for measure, claim in by_measure.items()}
        if None not in words.values():
            rows.append({"run": name, **words})
    if not rows:
        return []
    note = (
        "A claim is confirmed if each run is significantly better than each baseline (p by Holm's method over the "
        "baselines of a run), refuted if one is significantly worse than a baseline or the 95% interval of its gain "
        f"over the best of them lies below {MIN_GAIN:g}, and undecided otherwise."
    )
    tested = {measure: (claim, table.comparison) for measure, claim in next(iter(claims.values())).items()}
    title = "The paper's claims (GDA, Table 2), the crowd alone, all gold documents"
    return [Table("claim", title, tuple(rows), (note,)), *tests_table("claim-tests", tested)]


def in_odd_places(topics: pd.Series[str]) -> pd.Series[bool]:
    """Return whether each row's topic is the first, third, fifth, ... in the order of topic numbers.

    >>> in_odd_places(pd.Series(["20004", "20002", "20010"])).tolist()
    [False, True, True]
    """
    return topics.astype(int).rank(method="dense") % 2 == 1
