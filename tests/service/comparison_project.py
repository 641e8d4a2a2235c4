"""A project whose pairs are drawn to compare two rankings, with known grades."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from crowdrank.service.compare.draws import Draw, draw_pairs, read_draw_inputs, write_draw
from crowdrank.service.compare.rankings import (
    DrawProgress,
    DrawsEstimate,
    estimate_from_draws,
    list_draws,
    ranking_table,
    set_ranking,
)
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.store.database import Database

from .judging import Judging

RNG = np.random.default_rng(0)
N_QUERIES, N_DOCUMENTS, MEASURE = 12, 6, "nDCG@3"
PAIRS = pd.DataFrame(
    {
        "query": np.repeat([f"q{number}" for number in range(N_QUERIES)], N_DOCUMENTS),
        "document": np.tile([f"d{number}" for number in range(N_DOCUMENTS)], N_QUERIES),
    }
)
TRUTH = PAIRS.assign(grade=RNG.integers(0, 4, len(PAIRS)))
RUNS = {
    name: PAIRS.assign(score=TRUTH["grade"] + RNG.normal(0, noise, len(PAIRS)))
    for name, noise in (("live", 3), ("new", 1))
}
GRADES: dict[tuple[str, str], int] = {
    (query, document): int(grade) for query, document, grade in TRUTH.itertuples(index=False, name=None)
}
EXPERT, HUMAN = 1, 2
"""Ids of the assessors."""


class Comparison(Judging):
    """A project that compares two rankings, with an expert and a person."""

    def __init__(self, database: Database, *, runs: dict[str, pd.DataFrame] = RUNS, **settings: Any) -> None:
        settings = {"quotas": {"expert": (1, 1)}, "measure": MEASURE, "pairs_per_draw": 10, **settings}
        super().__init__(database, 0, ("expert", "human"), policy=settings.pop("policy", "compare"), **settings)
        self.add(*(PairRow(query, document, body="text") for query, document in GRADES))
        for name, run in runs.items():
            self.set_ranking(name, run)

    def set_ranking(self, name: str, run: pd.DataFrame) -> None:
        self._write(set_ranking, name, ranking_table(run, name), self.database.now())

    def draw(self, seed: int = 7) -> Draw:
        with self.database.read() as connection:
            inputs = read_draw_inputs(connection, self.project)
        drawn = draw_pairs(inputs, seed)
        self.database.write(lambda connection: write_draw(connection, inputs, drawn, self.database.now()))
        return drawn

    def judge_all(self, assessor: int = EXPERT, **changed: int) -> list[tuple[str, str]]:
        """Let an assessor answer all pairs with their true grades; return the pairs."""
        judged = []
        while leases := self.next(assessor, 50).leases:
            for lease in leases:
                pair = lease.content.query, lease.content.document
                self.answer(assessor, lease, grade=changed.get(lease.content.document, GRADES[pair]))
                judged.append(pair)
        return judged

    def draws(self) -> list[DrawProgress]:
        with self.database.read() as connection:
            return list_draws(connection, self.project)

    def estimate(self) -> DrawsEstimate:
        with self.database.read() as connection:
            return estimate_from_draws(connection, self.project, list_draws(connection, self.project))
