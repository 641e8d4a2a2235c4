"""Predictions of relevance from features, of documents with and without judgments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crowdrank._typing import Floats, Integers
from crowdrank.engine.shards import ItemScores
from crowdrank.judgments import ids
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import AssessorTable, Judgments, assessor_fields

MAX_SCORE = 3.0
"""Maximum absolute prediction, in standard deviations, so that priors stay on the grid of relevance."""


@dataclass(frozen=True, eq=False)
class FeatureScores:
    """Predictions of relevance from features, out of fold.

    Attributes:
        query: query ids, (n,).
        document: document ids, (n,).
        score: prediction for each document, (n,); mean 0 and variance 1 over labeled documents.
        names: names of the features that were used.

    """

    query: pa.Array
    document: pa.Array
    score: Floats
    names: tuple[str, ...]

    def for_items(self, judgments: Judgments | ShardedJudgments) -> ItemScores:
        """Return the prediction for each item of the judgments (of each shard), NaN for items without features."""
        return self.for_rows(feature_rows(self.query, self.document, judgments))

    def for_rows(self, rows: Iterable[Integers]) -> ItemScores:
        """Return the prediction for each of the rows (of each shard), NaN for row -1."""
        return tuple(np.where(part >= 0, self.score[part], np.nan) for part in rows)

    def without_labels(self, judgments: Judgments | ShardedJudgments) -> FeatureScores:
        """Return the predictions for documents that are not among the judgments, sorted by query."""
        known = np.zeros(len(self.score), dtype=bool)
        for rows in feature_rows(self.query, self.document, judgments):
            known[rows[rows >= 0]] = True
        rows = np.flatnonzero(~known)
        rows = rows[np.argsort(query_codes(self.query)[rows], kind="stable")]
        return FeatureScores(self.query.take(rows), self.document.take(rows), self.score[rows], self.names)

    def as_items(self, table: AssessorTable) -> Judgments:
        """Return a table without judgments whose items are these documents."""
        (query, queries), (document, documents) = (
            ids.encode(pa.chunked_array([one])) for one in (self.query, self.document)
        )
        return Judgments(
            **assessor_fields(table),
            queries=queries,
            documents=documents,
            item_query=query,
            item_document=document,
            offsets=np.zeros(len(query) + 1, np.int64),
            assessor=np.zeros(0, np.int32),
            grade=np.zeros(0, np.int8),
        )


def query_codes(query: pa.Array) -> Integers:
    """Return the number of each row's query, in the order of first appearance."""
    return ids.encode(pa.chunked_array([query]))[0].astype(np.int64)


def feature_rows(query: pa.Array, document: pa.Array, judgments: Judgments | ShardedJudgments) -> tuple[Integers, ...]:
    """Return the position of each item among these ids, for each shard of the judgments; -1 if it is not among them."""
    return tuple(_item_positions(query, document, part) for part in judgments.iterate())


def _item_positions(query: pa.Array, document: pa.Array, judgments: Judgments) -> Integers:
    item = judgments.positions(query, document)
    rows = np.full(judgments.n_items, -1, np.int64)
    rows[item[item >= 0]] = np.flatnonzero(item >= 0)
    return rows
