"""Judgments on disk joined with preferences, whose files for each shard are in a temporary folder beside the shards."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from crowdrank._disk import ScratchFolder
from crowdrank._typing import Codes, Floats, Integers
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments import ids as id_codes
from crowdrank.judgments.joined import (
    ItemPreferences,
    JoinedJudgments,
    add_assessors,
    join,
    nothing_in_common_error,
)
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments, assessor_fields
from crowdrank.on_disk import storage
from crowdrank.on_disk.sharded import ShardedJudgments, numbered_path

ITEM_ARRAYS = ("item_query", "item_document", "offsets")
"""Names of the stored arrays of a shard that are those of judgments; the others are those of its preferences."""
PAIR_ARRAYS = ("left", "right", "assessor", "answer", "query")
"""Names of the stored arrays of the preferences of a shard."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedShards(ShardedJudgments):
    """Judgments on disk with preferences; each query, with all of its preferences, is in one shard."""

    preference_folder: str  # files of the preferences of each shard
    joined_items: tuple[int, ...]  # number of items of each shard, with those that only have preferences
    joined_queries: tuple[int, ...]  # number of queries of each shard
    preference_answers: Floats  # (n_assessors, 5) number of answers of each kind
    has_positions: bool
    preference_digest: str
    scratch: ScratchFolder | None = None  # deletes the files when the process that made them is done

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "scratch": None}

    @property
    def n_items(self) -> int:
        """Number of (query, document) pairs with a judgment or a preference."""
        return sum(self.joined_items)

    @property
    def n_answers(self) -> int:
        """Number of judgments and preferences together."""
        return len(self) + int(self.preference_answers.sum())

    def load(self, position: int, *, ids: bool = True) -> JoinedJudgments:
        """Return the shard at a position of `shards` with its preferences, and the assessors of all shards."""
        table = super().load(position, ids=ids)
        return self.join_shard(position, table) if ids else self._with_stored_arrays(position, table)

    def join_shard(self, position: int, table: Judgments) -> JoinedJudgments:
        """Return the judgments of a shard, which have ids, joined with its preferences."""
        path = self._file("preferences", position, ".parquet")
        if not path.exists():
            return _joined(table, ItemPreferences.none(has_positions=self.has_positions))
        return join(table, storage.load_preferences(path), is_part=True)

    def _with_stored_arrays(self, position: int, table: Judgments) -> JoinedJudgments:
        """Return the judgments of a shard without ids, joined with its preferences before."""
        with np.load(self._file("joined", position, ".npz")) as stored:
            arrays = {name: stored[name] for name in stored.files}
        pairs = ItemPreferences(**{name: arrays[name] for name in PAIR_ARRAYS}, has_positions=self.has_positions)
        return _joined(table, pairs, **{name: arrays[name] for name in ITEM_ARRAYS})

    def query_indexes(self, position: int) -> Codes:
        """Return the index of each query of a shard among all queries; those without judgments come last."""
        known = super().query_indexes(position)
        first = sum(shard.queries for shard in self.shards)
        before = sum(self.joined_queries[number] - self.shards[number].queries for number in range(position))
        n_new = self.joined_queries[position] - len(known)
        return np.concatenate([known, first + before + np.arange(n_new)]).astype(np.int32)

    def fingerprint(self) -> str:
        """Return a digest of the shards, the assessors, the changes that :meth:`load` makes, and the preferences."""
        return f"{super().fingerprint()}-{self.preference_digest}"

    def _file(self, prefix: str, position: int, suffix: str) -> Path:
        return numbered_path(self.preference_folder, prefix, self.shards[position].number, suffix)

    @classmethod
    def of(cls, judgments: ShardedJudgments, preferences: Preferences) -> Self:
        """Write the preferences of each shard to a temporary folder beside the shards; return all joined.

        Preferences of queries without judgments are divided among the shards.

        Raises:
            UsageError: a query is in several shards.
            InputError: no document of the preferences was judged.

        """
        if not judgments.whole_queries:
            problem = "cannot be used with shards that hold parts of queries"
            fix = Fix("read the partitions with a column for queries and {}", "by", "query")
            raise UsageError(problem, parameter="preferences", kind="split-queries", fix=fix)
        scratch, preferences = ScratchFolder(judgments.folder), preferences.with_weak_answers()
        (_, own), assessors = id_codes.merge([judgments.assessors, preferences.assessors])
        answers = np.zeros((len(assessors), 5))
        np.add.at(answers, (own[preferences.assessor], 2 - preferences.answer.astype(np.int64)), 1.0)
        table = add_assessors(judgments, preferences, assessors, own)
        new = np.zeros((len(assessors) - len(judgments.counts), 2), judgments.counts.dtype)
        values = {field.name: getattr(judgments, field.name) for field in fields(judgments)} | assessor_fields(table)
        parts, shard_of = [], _shards_of_queries(judgments, preferences)
        bare = cls(
            **values | {"counts": np.concatenate([judgments.counts, new])},
            preference_folder=str(scratch.path),
            joined_items=(),
            joined_queries=(),
            preference_answers=answers,
            has_positions=preferences.has_positions,
            preference_digest=_digest(preferences),
            scratch=scratch,
        )
        for position in range(len(judgments.shards)):
            own_rows = shard_of[preferences.query] == position
            if own_rows.any():
                part = preferences.where(own_rows)
                storage.save_preferences(part, bare._file("preferences", position, ".parquet"))
            judged = ShardedJudgments.load(bare, position)
            joined = bare.join_shard(position, judged)
            arrays = {name: getattr(joined, name) for name in ITEM_ARRAYS}
            arrays |= {name: getattr(joined.preferences, name) for name in PAIR_ARRAYS}
            np.savez(bare._file("joined", position, ".npz"), **arrays)
            n_known = judged.n_items + (part.n_items if own_rows.any() else 0) - joined.n_items
            parts.append((joined.n_items, len(joined.queries), n_known))
        if not any(n_known for _, _, n_known in parts):
            raise nothing_in_common_error(ShardedJudgments.load(bare, 0), *preferences.item_ids())
        values = vars(bare) | {"joined_items": tuple(n for n, _, _ in parts)}
        return cls(**values | {"joined_queries": tuple(n for _, n, _ in parts)})


def _joined(table: Judgments, preferences: ItemPreferences, **arrays: Any) -> JoinedJudgments:
    values = {field.name: getattr(table, field.name) for field in fields(Judgments)}
    return JoinedJudgments(**values | arrays, preferences=preferences)


def _shards_of_queries(judgments: ShardedJudgments, preferences: Preferences) -> Integers:
    """Return the position of the shard of each query of the preferences, (n_queries,)."""
    shard_of = np.full(len(preferences.queries), -1, np.int64)
    for position, queries in enumerate(judgments.iterate_ids("query")):
        place = id_codes.match(preferences.queries, queries)
        shard_of[place[place >= 0]] = position
    unknown = np.flatnonzero(shard_of < 0)
    shard_of[unknown] = np.arange(len(unknown)) % len(judgments.shards)
    return shard_of


def _digest(preferences: Preferences) -> str:
    columns = [getattr(preferences, name) for name in ("query", "left", "right", "assessor", "answer")]
    names = (preferences.queries, preferences.documents, preferences.assessors)
    digest = hashlib.blake2b(repr((preferences.has_positions, [name.to_pylist() for name in names])).encode())
    for column in columns:
        digest.update(column.tobytes())
    return digest.hexdigest()
