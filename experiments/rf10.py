"""TREC RF10: how well a web crowd's consensus ranks by NIST's grades, and who is seen through."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from crowdrank._text import counted
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.agreement import agreement_table
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Experiment,
    Fits,
    Table,
    Tell,
    Variants,
    choose,
    compared,
    fit_all,
    quiet,
    testing_protocol,
)
from experiments.halves import split_half_table
from experiments.injected import injected_table
from experiments.subsample import equal_count_table

MEASURES = ("AP", "nDCG", "Tau")
BASELINE = "dawid-skene"
VARIANTS: Variants = {
    "gda-unjudgeable": ("gda", {"unjudgeable_as": "model"}),
    "gda-difficulty": ("gda", {"unjudgeable_as": "model", "difficulty": True}),
    "gda-widths": ("gda", {"tied_variance": False}),
    "gda-joint": ("gda", {"estimation": "joint"}),
    "rasch-difficulty": ("rasch", {"difficulty": True}),
}
LABELS = 3


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """All tables on RF10, for the methods named or for all."""
    chosen = choose(methods, VARIANTS)
    data = dataset("trec-rf10")
    crowd, gold, judged = data.read_judgments(), data.read_gold(), data.read_gold(unjudgeable_as="drop")
    fits = fit_all(chosen, crowd, on="the crowd", tell=tell)
    tables = crowd_tables(fits, gold, judged)
    return Experiment(
        "rf10",
        (
            *tables,
            injected_table(chosen, fits, crowd, gold, seeds=seeds, tell=tell),
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
        "The crowd's 'broken link' answers count as grade 0, but for gda-unjudgeable and gda-difficulty, where they "
        "are an answer of their own; gda-difficulty and rasch-difficulty let documents differ in difficulty, "
        "gda-widths gives every grade a width of its own, and gda-joint is the paper's estimate.",
        "There are no families here, so family-mean is the average.",
        "A document is relevant from grade 1 up; Tau is (concordant - discordant) / pairs of different gold.",
        ONE_CONFIGURATION,
        "The numbers of all topics are even, so topics are halved by their place in the order of the numbers: odd "
        "places are for choices, even places for reporting. Twelve settings of gda were compared on the odd places "
        "(the variants, with and without the unjudgeable class); some of the library's defaults were settled earlier "
        "with all topics in view, so the even places are not unseen.",
        "The number of labels of a document tells of its gold in this data; no score uses it, and the equal-count "
        "table takes it away.",
        *testing_protocol(table),
    ]


def crowd_tables(fits: Fits, gold: Gold, judged: Gold) -> tuple[Table, ...]:
    """The crowd alone: all gold, what NIST judged, and the halves of the topics."""
    everything: pd.DataFrame = gold.frame
    odd = in_odd_places(everything["query"])
    parts = {
        "crowd": ("The crowd alone, all gold documents", everything),
        "nist-judged": ("The crowd alone, documents that NIST judged", judged.frame),
        "odd": ("The crowd alone, topics in odd places (development)", everything[odd]),
        "even": ("The crowd alone, topics in even places (report)", everything[~odd]),
    }
    return tuple(
        compared(name, title, fits, part, MEASURES, baseline=BASELINE) for name, (title, part) in parts.items()
    )


def in_odd_places(topics: pd.Series[str]) -> pd.Series[bool]:
    """Whether each row's topic is the first, third, fifth, ... in the order of the numbers.

    >>> in_odd_places(pd.Series(["20004", "20002", "20010"])).tolist()
    [False, True, True]
    """
    return topics.astype(int).rank(method="dense") % 2 == 1
