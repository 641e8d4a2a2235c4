"""Pairs, judges and their answers for simulations of the judging service."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from crowdrank import read_judgments, simulate
from crowdrank._typing import Floats, Integers
from crowdrank.collection.replay import Crowd, model_ranking
from crowdrank.consensus.gda import GDA
from crowdrank.errors import CrowdrankWarning
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import UNJUDGED, gold_in
from experiments.dl20 import COVERED, thorough

JUDGES = 16
QUERIES, DOCUMENTS = 20, 25
"""Number of queries of a world, and of documents per query."""
MAIN = "nDCG@10"


@dataclass(frozen=True, eq=False)
class World:
    """Pairs that can be judged, the answer of each judge to each of them, and expert grades.

    Attributes:
        name: name of the world in tables.
        seed: random seed.
        kind: kind of the judges in the service, `human` or `llm`.
        judgments: one judgment of each judge for every document.
        gold: query, document and expert grade of every document.

    """

    name: str
    seed: int
    kind: str
    judgments: Judgments
    gold: pd.DataFrame

    @cached_property
    def crowd(self) -> Crowd:
        """The answers as a crowd for replays."""
        return Crowd.of(self.judgments)

    @cached_property
    def rows(self) -> Integers:
        """Row of the judgments for each document and judge, (n_documents, n_judges)."""
        judgments = self.judgments
        rows = np.full((judgments.n_items, judgments.n_assessors), -1)
        rows[judgments.item, judgments.assessor] = np.arange(len(judgments))
        return rows

    @cached_property
    def places(self) -> dict[tuple[str, str], int]:
        """Position of each document by the ids of query and document."""
        query, document = self.judgments.item_ids()
        return {pair: place for place, pair in enumerate(zip(query.to_pylist(), document.to_pylist(), strict=True))}

    @cached_property
    def grades(self) -> list[str]:
        """Name of the grade in each row of the judgments."""
        names = self.judgments.scale.names
        return [names[code] for code in self.judgments.grade]

    def rank(self, rows: Integers) -> pd.DataFrame:
        """Return the ranking of GDA fitted from scratch to some answers, given by their rows of the judgments.

        Documents without an answer have the mean score.
        """
        known = np.zeros(len(self.judgments), bool)
        known[rows] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CrowdrankWarning)  # few answers determine little
            return model_ranking(GDA().fit(self.judgments.where(known)), self.crowd.pool)

    def quality(self, rows: Integers) -> Floats:
        """Return the main measure of each query after some answers; NaN for queries without relevant documents."""
        return evaluate(self.rank(rows), self.gold, [MAIN], unjudged=UNJUDGED).values(MAIN)


def generated_world(seed: int, queries: int = QUERIES, documents: int = DOCUMENTS) -> World:
    """Return simulated people of mixed quality who judge simulated documents on five grades."""
    drawn = simulate(
        queries=queries, documents=documents, labels=JUDGES, assessors=JUDGES, honeypots=0, random_state=seed
    )
    gold = drawn.gold.assign(query=f"{seed}-" + drawn.gold["query"])
    answers = drawn.judgments[["query", "document", "assessor", "grade"]]
    judgments = read_judgments(answers.assign(query=f"{seed}-" + answers["query"]), grades="0-4")
    return World("generated", seed, "human", judgments, gold)


def dl20_world(seed: int, queries: int = QUERIES, documents: int = DOCUMENTS) -> World:
    """Return LLM judges of DL20 and passages, both drawn by the seed; the queries are the same for all seeds."""
    data = dataset("trec-dl20")
    everyone = thorough(data.read_judgments(), COVERED)
    rng = np.random.default_rng(seed)
    is_judge = np.isin(everyone.assessor, rng.choice(everyone.n_assessors, JUDGES, replace=False))
    counts = np.bincount(everyone.item[is_judge], minlength=everyone.n_items)
    known_queries = np.random.default_rng(0).choice(everyone.n_queries, queries, replace=False)
    chosen = []
    for query in np.sort(known_queries):
        found = np.flatnonzero((everyone.item_query == query) & (counts == JUDGES))
        chosen.append(rng.choice(found, documents, replace=False))
    judgments = everyone.where(is_judge & np.isin(everyone.item, np.concatenate(chosen)))
    return World("dl20", seed, "llm", judgments, gold_in(data.read_gold(), judgments))


@dataclass(frozen=True)
class Setting:
    """A kind of world, from which each seed draws one.

    Attributes:
        name: name of the setting.
        draw: function that returns the world of a seed.
        same_queries: whether all seeds have the same queries.
        about: sentence for the protocol.

    """

    name: str
    draw: Callable[[int], World]
    same_queries: bool
    about: str


SETTINGS = {
    one.name: one
    for one in (
        Setting(
            "generated",
            generated_world,
            False,
            f"generated: {QUERIES} queries with about {DOCUMENTS} documents each, on five grades, and {JUDGES} people, "
            "15% of whom answer at random and 3% reverse the scale; each seed draws documents and people.",
        ),
        Setting(
            "dl20",
            dl20_world,
            True,
            f"dl20: {QUERIES} queries of DL20, drawn once; each seed draws {DOCUMENTS} passages per query, at random "
            f"among all that NIST graded, and {JUDGES} of the LLM judges of more than {COVERED:,} items. A judge's "
            "answer is its label.",
        ),
    )
}
