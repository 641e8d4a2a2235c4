"""Judgments joined with preferences: one table of items and assessors for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from crowdrank._typing import Codes, Floats, Integers
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import AnyJudgments, Judgments, assessor_fields, offsets_from_sizes

TableT = TypeVar("TableT", bound=AnyJudgments)
"""Judgments in memory or on disk."""


@dataclass(frozen=True, eq=False)
class ItemPreferences:
    """Preferences between items (query-document pairs), sorted by query.

    An answer is from 0 (right is much better) over 2 (tie) to 4 (left is much better).
    """

    left: Integers  # (n,) index of the item
    right: Integers  # (n,)
    assessor: Codes  # (n,)
    answer: Codes  # (n,)
    query: Codes  # (n,) query of the items
    has_positions: bool

    def __len__(self) -> int:
        return len(self.answer)

    @cached_property
    def used_items(self) -> Integers:
        """Items with a preference, ascending."""
        return np.unique(np.concatenate([self.left, self.right]))

    @cached_property
    def used_index(self) -> Integers:
        """Index of the left and of the right document of each preference in `used_items`, (2, n)."""
        return np.stack([np.searchsorted(self.used_items, side) for side in (self.left, self.right)])

    @cached_property
    def query_offsets(self) -> tuple[Integers, Integers]:
        """First item in `used_items` and first preference of each query, and the ends, (n_queries + 1,) each."""
        starts = np.flatnonzero(np.diff(self.query, prepend=-1))
        first_items = np.minimum.reduceat(self.used_index.min(axis=0), starts) if len(starts) else starts
        return np.append(first_items, len(self.used_items)), np.append(starts, len(self))

    @cached_property
    def by_pair(self) -> tuple[Integers, Integers]:
        """Order of the preferences by pair of items, and the start of each pair in it, (n,) and (n_pairs + 1,)."""
        low, high = np.minimum(self.left, self.right), np.maximum(self.left, self.right)
        order = np.lexsort((high, low))
        changed = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
        return order, np.flatnonzero(np.concatenate([[True], changed, [True]]))

    @classmethod
    def none(cls, *, has_positions: bool) -> ItemPreferences:
        """Return an empty table."""
        item, code = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(item, item, code, code, code, has_positions)

    def answer_counts(self, n_assessors: int) -> Floats:
        """Return how often each assessor gave each answer, (n_assessors, 5)."""
        cells = self.assessor.astype(np.int64) * 5 + self.answer
        return np.bincount(cells, minlength=n_assessors * 5).reshape(-1, 5).astype(np.float64)

    def per_item(self, n_items: int) -> Integers:
        """Return the number of preferences of each item, (n_items,)."""
        return np.bincount(np.concatenate([self.left, self.right]), minlength=n_items).astype(np.int64)

    def of_items(self, start: int, stop: int) -> ItemPreferences:
        """Return the preferences between the items from `start` to `stop`, which are whole queries."""
        inside = np.flatnonzero((self.left >= start) & (self.left < stop))
        rows = slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0)
        return ItemPreferences(
            self.left[rows] - start,
            self.right[rows] - start,
            self.assessor[rows],
            self.answer[rows],
            self.query[rows],
            self.has_positions,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedJudgments(Judgments):
    """Judgments and preferences of the same items and assessors; an item or an assessor may have only one kind."""

    preferences: ItemPreferences

    @property
    def n_answers(self) -> int:
        """Number of judgments and preferences together."""
        return len(self) + len(self.preferences)

    @property
    def preference_answers(self) -> Floats:
        """Number of answers of each kind of each assessor, (n_assessors, 5)."""
        return self.preferences.answer_counts(self.n_assessors)

    @property
    def has_positions(self) -> bool:
        """Whether it is known which document was left."""
        return self.preferences.has_positions

    @property
    def answer_offsets(self) -> Integers:
        """Number of judgments and preferences before each item, and of all, (n_items + 1,)."""
        first = np.bincount(np.minimum(self.preferences.left, self.preferences.right), minlength=self.n_items)
        return np.asarray(self.offsets + offsets_from_sizes(first))

    def preferences_per_item(self) -> Integers:
        """Return the number of preferences of each item, (n_items,)."""
        return self.preferences.per_item(self.n_items)


def no_judgments(backend: str, like: Judgments | None = None) -> Judgments:
    """Return a table without judgments, for preferences alone; with the main scale of other judgments if given."""
    empty, none = pa.array([], pa.string()), np.zeros(0, np.int32)
    return Judgments(
        queries=empty,
        documents=empty,
        assessors=empty,
        item_query=none,
        item_document=none,
        offsets=np.zeros(1, np.int64),
        assessor=none,
        grade=np.zeros(0, np.int8),
        scales=(Scale.parse("0,1") if like is None else like.main_scale,),
        assessor_scale=np.zeros(0, np.int8),
        backend=backend,
    )


def join(judgments: Judgments, preferences: Preferences, *, is_part: bool = False) -> JoinedJudgments:
    """Return judgments with preferences; items and assessors of preferences that have no judgments are added.

    Args:
        judgments: the judgments.
        preferences: the preferences.
        is_part: whether these are a part of all preferences, whose documents may all be without judgments.

    Raises:
        InputError: no document of the preferences was judged.

    """
    query, document = preferences.item_ids()
    known = np.full(len(query), -1, np.int64)
    if judgments.n_items:
        known = judgments.positions(query, document)
        if not is_part and (known < 0).all():
            raise nothing_in_common_error(judgments, query, document)
    is_new = known < 0
    (_, new_queries), queries = ids.merge([judgments.queries, preferences.queries])
    (_, new_documents), documents = ids.merge([judgments.documents, preferences.documents])
    (_, new_assessors), assessors = ids.merge([judgments.assessors, preferences.assessors])
    item_query, item_document = preferences.item_codes
    item_query = np.concatenate([judgments.item_query, new_queries[item_query[is_new]]])
    item_document = np.concatenate([judgments.item_document, new_documents[item_document[is_new]]])
    order = np.argsort(item_query, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sizes = np.concatenate([np.diff(judgments.offsets), np.zeros(int(is_new.sum()), np.int64)])
    item = place[np.where(is_new, judgments.n_items + np.cumsum(is_new) - 1, known)]
    left, right = item[preferences.item_index]
    row_query = item_query[order][left]
    rows = np.argsort(row_query, kind="stable")
    answer = (preferences if is_part else preferences.with_weak_answers()).answer
    pairs = ItemPreferences(
        left[rows],
        right[rows],
        new_assessors[preferences.assessor[rows]],
        (2 - answer[rows]).astype(np.int32),
        row_query[rows],
        preferences.has_positions,
    )
    table = add_assessors(judgments, preferences, assessors, new_assessors)
    return JoinedJudgments(
        **assessor_fields(table),
        queries=queries,
        documents=documents,
        item_query=item_query[order].astype(np.int32),
        item_document=item_document[order].astype(np.int32),
        offsets=offsets_from_sizes(sizes[order]),
        assessor=judgments.assessor,
        grade=judgments.grade,
        extras=judgments.extras,
        labels=judgments.labels,
        preferences=pairs,
    )


def add_assessors(table: TableT, preferences: Preferences, assessors: pa.Array, new_codes: Codes) -> TableT:
    """Return judgments with more assessors and their families; new assessors have the main scale."""
    n_new = len(assessors) - table.n_assessors
    main = table.scales.index(table.main_scale)
    scale_of = np.concatenate([table.assessor_scale, np.full(n_new, main, np.int8)]).astype(np.int8)
    families, family = table.families, table.assessor_family
    if preferences.families is not None and preferences.assessor_family is not None:
        known = pa.array([], pa.string()) if families is None else families
        (_, renamed), families = ids.merge([known, preferences.families])
        own = np.append(renamed, -1)[preferences.assessor_family].astype(np.int32)
    else:
        own = np.full(len(preferences.assessors), -1, np.int32)
    if families is not None:
        family = np.full(table.n_assessors, -1, np.int32) if family is None else family
        all_families = np.full(len(assessors), -1, np.int32)
        all_families[new_codes] = own
        all_families[: table.n_assessors] = np.where(family >= 0, family, all_families[: table.n_assessors])
        family = all_families
    return replace(table, assessors=assessors, assessor_scale=scale_of, families=families, assessor_family=family)


def nothing_in_common_error(judgments: Judgments, query: pa.Array, document: pa.Array) -> InputError:
    """Return the error for preferences between documents that nobody judged."""
    one, other = (column[0].as_py() for column in judgments.item_ids())
    texts = f"{shown(document[0].as_py())} of query {shown(query[0].as_py())}"
    return InputError(
        f"no document of the preferences was judged (compared {texts}, judged {shown(other)} of query {shown(one)})",
        kind="nothing-in-common",
        fix="check that both use the same ids of queries and documents",
    )
