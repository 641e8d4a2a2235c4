"""TREC RF10: how well a web crowd's consensus ranks by NIST's grades, and who is seen through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.combine import combine
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.table import Judgments, counted
from crowdrank.studies.base import (
    GAINS,
    ONE_CONFIGURATION,
    SEEDS,
    Chosen,
    Fits,
    Row,
    Study,
    Table,
    Tell,
    choose,
    compared,
    fit_all,
    listed,
    quiet,
    ranking,
    testing_protocol,
)
from crowdrank.studies.subsample import equal_count_table

if TYPE_CHECKING:
    from crowdrank.consensus.base import Aggregator

MEASURES = ("AP", "nDCG", "Tau")
BASELINE = "dawid-skene"
VARIANTS = {"gda-unjudgeable": ("gda", {"unjudgeable_as": "model"})}
MOST_GRADE = 2
LABELS = 3
ENOUGH = 30
"""With fewer gold judgments an assessor's agreement with NIST is too rough to be ranked by."""
QUALITIES = ("informativeness", "accuracy", "agreement")
"""Columns of a model's table of assessors that say how good each is."""
INJECTED = "(injected)"


def study(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Study:
    """All tables on RF10, for the methods named or for all."""
    chosen = choose(methods, VARIANTS)
    data = dataset("trec-rf10")
    crowd, gold, judged = data.read_judgments(), data.read_gold(), data.read_gold(unjudgeable_as="drop")
    fits = fit_all(chosen, crowd, on="the crowd", tell=tell)
    tables = crowd_tables(fits, gold, judged)
    return Study(
        "rf10",
        (
            *tables,
            injected_table(chosen, fits, crowd, gold, seeds, tell),
            quality_table(fits, crowd, gold, judged),
            equal_count_table(chosen, crowd, gold, MEASURES, labels=LABELS, seeds=seeds, tell=tell),
        ),
        tuple(_protocol(crowd, gold, judged, tables[0])),
    )


def _protocol(crowd: Judgments, gold: Gold, judged: Gold, table: Table) -> list[str]:
    return [
        f"Data: TREC 2010 Relevance Feedback, {counted(len(crowd), 'judgment')} of {counted(crowd.n_items, 'document')} "
        f"by {counted(crowd.n_assessors, 'assessor')}; {counted(crowd.report.repeats, 'repeated judgment')} of one "
        "assessor on one document left out, the last kept.",
        f"Gold: {counted(len(gold), 'document')}, of which NIST judged {len(judged):,}; the other "
        f"{len(gold) - len(judged):,} are planted broken links, which count as grade 0.",
        "The crowd's 'broken link' answers count as grade 0, but for gda-unjudgeable, where they are an answer of "
        "their own.",
        "A document is relevant from grade 1 up; Tau is (concordant - discordant) / pairs of different gold.",
        ONE_CONFIGURATION,
        "Odd topics are those to make choices on, even topics those to report; the library's defaults may have been "
        "settled with all topics in view, so the even ones are not unseen.",
        "The number of labels of a document tells of its gold in this data; no score uses it, and the equal-count "
        "table takes it away.",
        *testing_protocol(table),
    ]


def crowd_tables(fits: Fits, gold: Gold, judged: Gold) -> tuple[Table, ...]:
    """The crowd alone: all gold, what NIST judged, and the halves of the topics."""
    everything: pd.DataFrame = gold.frame
    odd = everything["query"].astype(int) % 2 == 1
    parts = {
        "crowd": ("The crowd alone, all gold documents", everything),
        "nist-judged": ("The crowd alone, documents that NIST judged", judged.frame),
        "odd": ("The crowd alone, odd topics (development)", everything[odd]),
        "even": ("The crowd alone, even topics (report)", everything[~odd]),
    }
    return tuple(
        compared(name, title, fits, part, MEASURES, baseline=BASELINE) for name, (title, part) in parts.items()
    )


@dataclass(frozen=True)
class Injection:
    """One more assessor among the crowd."""

    name: str
    judgments: Judgments


def injection(name: str, query: pa.Array, document: pa.Array, grade: NDArray[np.int64]) -> Injection:
    """An assessor of that name with those grades."""
    rows = {"query": query, "document": document, "assessor": [f"{name} {INJECTED}"] * len(grade), "grade": grade}
    return Injection(name, read_judgments(pa.table(rows), grades=f"0-{MOST_GRADE}"))


def random_assessor(crowd: Judgments, seed: int, name: str = "random") -> Injection:
    """Uniform grades on every document."""
    query, document = crowd.queries.take(pa.array(crowd.item_query)), crowd.documents.take(pa.array(crowd.item_document))
    grade = np.random.default_rng(seed).integers(0, MOST_GRADE + 1, crowd.n_items)
    return injection(name, query, document, grade)


def with_injected(crowd: Judgments, one: Injection) -> Judgments:
    """The crowd and the injected assessor; times and honeypots of the crowd are of no use here."""
    return combine(replace(crowd, extras={}), one.judgments)


def injected_table(
    chosen: Chosen, fits: Fits, crowd: Judgments, gold: Gold, seeds: Sequence[int], tell: Tell
) -> Table:
    """What an assessor who is NIST, who is random, or who is NIST reversed does to each method, one at a time."""
    grades = gold.code.astype(np.int64)
    kinds = {
        "nist": [injection("nist", gold.query, gold.document, grades)],
        "random": [random_assessor(crowd, seed) for seed in seeds],
        "reversed": [injection("reversed", gold.query, gold.document, MOST_GRADE - grades)],
    }
    rows: dict[str, Row] = {run: _alone(model, gold) for run, model in fits.models.items()}
    for kind, injections in kinds.items():
        found: dict[str, list[tuple[float, float]]] = {run: [] for run in rows}
        for one in injections:
            for run, model in fit_all(chosen, with_injected(crowd, one), on=f"the crowd and {kind}", tell=tell).models.items():
                found[run].append((_ap(model, gold), _informativeness(model, f"{kind} {INJECTED}")))
        for run, values in found.items():
            rows[run] |= dict(zip((f"AP {kind}", f"nats {kind}"), np.mean(values, axis=0).tolist(), strict=True))
    return Table("injected", "One assessor injected: AP, and its informativeness (nats)", tuple(rows.values()), (
        f"Injected, one at a time: NIST's own grades on the {len(gold):,} gold documents; a random assessor, uniform "
        f"on 0-{MOST_GRADE} on all {crowd.n_items:,} documents (mean over seeds {listed(seeds)}); and a reversed one, "
        f"{MOST_GRADE} - gold on the gold documents.",
        "AP is against the same gold that was injected: it says whether a method finds the assessor to trust or to "
        "read in reverse, not how good it is otherwise.",
        "nats median is the median informativeness of the crowd's own assessors; methods without an informativeness "
        "have blanks.",
    ))


def _alone(model: Aggregator, gold: Gold) -> Row:
    about = model.consensus_.assessors
    median = float(about["informativeness"].median()) if "informativeness" in about else float("nan")
    name = next(iter(())) if False else ""
    return {"run": name, "AP crowd": _ap(model, gold), "nats median": median}


def _ap(model: Aggregator, gold: Gold) -> float:
    return evaluate(ranking(model), gold.frame, "AP", gains=GAINS).means["AP"]
