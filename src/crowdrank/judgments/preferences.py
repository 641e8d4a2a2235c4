"""The table of preferences: which of two documents of a query is better, with ids as codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Grades, Integers
from crowdrank.errors import Fix, Message
from crowdrank.judgments import frames
from crowdrank.judgments.summary import Inspection, bad_row_messages, describe_columns
from crowdrank.judgments.table import ReadReport, drop_unused_ids

MAX_PREFERENCE = 2
"""Largest answer: the right document is much better; the smallest is its negative."""
MIN_PREFERENCES_TO_WARN = 20
"""Minimum number of preferences for the warning that one side is never better."""
ANSWER_NAMES = {-2: "left, much", -1: "left", 0: "tie", 1: "right", 2: "right, much"}
"""Description of each answer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Preferences:
    """Answers to "which of these two documents is better?", sorted by query; make one with :func:`read_preferences`.

    An answer is negative if the left document is better, 0 for a tie, and positive if the right one is better; -2 and 2
    mean that it is much better. If the positions of the documents are not known (`has_positions` is false), `left` is
    the better document.

    >>> import pandas as pd
    >>> from crowdrank import read_preferences
    >>> preferences = read_preferences(pd.DataFrame({
    ...     "query": ["jam", "jam"], "left": ["d1", "d2"], "right": ["d2", "d3"],
    ...     "assessor": ["ann", "bob"], "preference": ["left", "tie"]}))
    >>> preferences
    <Preferences: 2 preferences between 3 documents in 1 query by 2 assessors>
    >>> preferences.frame
      query left right assessor  preference
    0   jam   d1    d2      ann          -1
    1   jam   d2    d3      bob           0
    """

    queries: pa.Array  # (n_queries,) ids
    documents: pa.Array  # (n_documents,) ids; a document may occur under several queries
    assessors: pa.Array  # (n_assessors,) ids
    query: Codes  # (n,) index in `queries`, ascending
    left: Codes  # (n,) index in `documents`
    right: Codes  # (n,) index in `documents`
    assessor: Codes  # (n,) index in `assessors`
    answer: Grades  # (n,) from -MAX_PREFERENCE (left is much better) to MAX_PREFERENCE
    has_positions: bool = True  # whether it is known which document was left
    families: pa.Array | None = None  # (n_families,) ids
    assessor_family: Codes | None = None  # (n_assessors,) index in `families`, or -1
    report: ReadReport = field(default_factory=ReadReport)
    backend: str = "pandas"  # DataFrame library of results

    def __len__(self) -> int:
        return len(self.answer)

    def __repr__(self) -> str:
        counts = [(len(self), "preference"), (self.n_items, "document"), (len(self.queries), "query")]
        n, documents, queries = (counted(number, noun) for number, noun in counts)
        return f"<Preferences: {n} between {documents} in {queries} by {counted(len(self.assessors), 'assessor')}>"

    @cached_property
    def _items(self) -> tuple[Codes, Codes, Integers]:
        """Query and document of each item, and the item of the left and of the right document of each row (2, n)."""
        keys = self.query.astype(np.int64) * len(self.documents) + np.stack([self.left, self.right])
        distinct, index = np.unique(keys, return_inverse=True)
        query, document = np.divmod(distinct, max(len(self.documents), 1))
        return query.astype(np.int32), document.astype(np.int32), index.reshape(2, -1).astype(np.int64)

    @property
    def item_codes(self) -> tuple[Codes, Codes]:
        """Index in `queries` and in `documents` of each compared document, in the order of :meth:`item_ids`."""
        return self._items[:2]

    @property
    def n_items(self) -> int:
        """Number of (query, document) pairs with a preference."""
        return len(self._items[0])

    def item_ids(self) -> tuple[pa.Array, pa.Array]:
        """Return the query id and the document id of each document that was compared with another, sorted by query."""
        query, document, _ = self._items
        return self.queries.take(pa.array(query)), self.documents.take(pa.array(document))

    @property
    def item_index(self) -> Integers:
        """Index of the left and of the right document of each row in :meth:`item_ids`, (2, n)."""
        return self._items[2]

    @cached_property
    def contradictions(self) -> int:
        """Number of pairs of which an assessor prefers each document: in the two orders, if positions are known.

        Repeats that were left out count if positions are not known.
        """
        low, high = np.minimum(*self.item_index), np.maximum(*self.item_index)
        better = np.sign(self.answer) * np.where(self.item_index[0] == low, 1, -1)
        pair = (low * self.n_items + high) * len(self.assessors) + self.assessor
        return len(np.intersect1d(pair[better == -1], pair[better == 1])) + self.report.contradictions

    @cached_property
    def n_cyclic_documents(self) -> int:
        """Number of documents in cycles, such as a better than b, b better than c, c better than a.

        One document is better than another if more answers say so than the opposite.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        low, high = np.minimum(*self.item_index), np.maximum(*self.item_index)
        better = -np.sign(self.answer).astype(np.int64) * np.where(self.item_index[0] == low, 1, -1)
        pairs, index = np.unique(low * self.n_items + high, return_inverse=True)
        votes = np.bincount(index, better)
        first, second = np.divmod(pairs, self.n_items)
        winner, loser = (np.where(votes > 0, *sides)[votes != 0] for sides in ((first, second), (second, first)))
        graph = coo_array((np.ones(len(winner)), (winner, loser)), shape=(self.n_items, self.n_items))
        _, component = connected_components(graph, directed=True, connection="strong")
        sizes = np.bincount(component)
        return int(sizes[sizes > 1].sum())

    def with_weak_answers(self) -> Self:
        """Return the preferences with strong answers as weak ones, if there are no weak ones."""
        weak = np.abs(self.answer) == 1
        return self if weak.any() else replace(self, answer=np.sign(self.answer))

    def answer_counts(self) -> dict[int, int]:
        """Return the number of preferences with each answer that occurs."""
        values, counts = np.unique(self.answer, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def where(self, row_mask: Booleans) -> Self:
        """Return the preferences for which `row_mask` (n,) is true; ids without a preference are left out."""
        columns = {name: getattr(self, name)[row_mask] for name in ("query", "assessor", "answer", "left", "right")}
        both, documents = drop_unused_ids(np.concatenate([columns["left"], columns["right"]]), self.documents)
        columns["left"], columns["right"] = np.split(both, 2)
        columns["query"], queries = drop_unused_ids(columns["query"], self.queries)
        used = np.unique(columns["assessor"])
        columns["assessor"], assessors = drop_unused_ids(columns["assessor"], self.assessors)
        families, assessor_family = self.families, self.assessor_family
        if families is not None and assessor_family is not None:
            assessor_family, families = drop_unused_ids(assessor_family[used], families)
        return replace(
            self,
            **columns,
            queries=queries,
            documents=documents,
            assessors=assessors,
            families=families,
            assessor_family=assessor_family,
        )

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per preference, in the columns that :func:`read_preferences` reads."""
        names = ("left", "right") if self.has_positions else ("winner", "loser")
        columns = {"query": self.queries.take(pa.array(self.query))}
        for name, codes in zip(names, (self.left, self.right), strict=True):
            columns[name] = self.documents.take(pa.array(codes))
        columns["assessor"] = self.assessors.take(pa.array(self.assessor))
        if self.has_positions:
            columns["preference"] = pa.array(self.answer, pa.int64())
        if self.families is not None and self.assessor_family is not None:
            family = self.assessor_family[self.assessor]
            columns["family"] = self.families.take(pa.array(np.maximum(family, 0), mask=family < 0))
        return pa.table(columns)

    @property
    def frame(self) -> Any:
        """The preferences as a DataFrame of the library from which they were read (pandas for files)."""
        return frames.from_arrow(self.to_arrow(), self.backend)


def inspect_preferences(preferences: Preferences) -> Inspection:
    """Return facts and messages about preferences that were read with `on_bad_rows="skip"`."""
    report, total = preferences.report, len(preferences)
    counts = preferences.answer_counts().items()
    facts = {
        "rows": f"{report.rows:,}",
        "preferences": f"{total:,}",
        "queries": f"{len(preferences.queries):,}",
        "documents": f"{preferences.n_items:,}",
        "assessors": f"{len(preferences.assessors):,}",
        "columns": describe_columns(report.columns),
    }
    if preferences.has_positions:
        facts["answers"] = ", ".join(f"{ANSWER_NAMES[answer]}: {n / total:.1%}" for answer, n in counts)
    if preferences.families is not None:
        facts["families"] = f"{len(preferences.families):,}"
    return Inspection(facts, (*bad_row_messages(report), *_notes(preferences), *report.notes))


def _notes(preferences: Preferences) -> Iterator[Message]:
    """Yield notes about preferences that are repeated, excluded or contradict each other."""
    report = preferences.report
    if report.repeats:
        problem = f"{counted(report.repeats, 'repeated preference')} of an assessor between the same documents"
        fix = Fix("the last one is used, unless you choose with {}", "repeats", "first")
        yield Message(problem, "repeats", "note", fixes=(fix,))
    if report.excluded:
        problem = f"{counted(report.excluded, 'preference')} of excluded assessors left out"
        yield Message(problem, "excluded", "note")
    if preferences.contradictions:
        pairs = counted(preferences.contradictions, "pair")
        when = " when shown in the other order" if preferences.has_positions else ""
        problem = f"{pairs} of documents with another winner by the same assessor{when}"
        yield Message(problem, "contradictions", "note")
    if preferences.n_cyclic_documents:
        count = counted(preferences.n_cyclic_documents, "document")
        yield Message(f"{count} in cycles of preferences (a over b, b over c, c over a)", "cycles", "note")


def one_sided_warnings(preferences: Preferences) -> list[Message]:
    """Return a warning if one side is never better, as with answers 0 and 1 in place of -1 and 1."""
    signs = {int(np.sign(answer)) for answer in preferences.answer_counts()}
    if not preferences.has_positions or len(preferences) < MIN_PREFERENCES_TO_WARN or {-1, 1} <= signs:
        return []
    side = "left" if -1 not in signs else "right"
    problem = f"the {side} document is never better"
    fix = Fix("write -1 or left if the left document is better, 0 or tie for a tie, and 1 or right for the right one")
    return [Message(problem, "one-sided", "warning", fixes=(fix,))]
