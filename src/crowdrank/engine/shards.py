"""Shards of judgments: ranges of whole items or whole queries, in memory or on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Codes, Floats
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.joined import ItemPreferences, JoinedJudgments
from crowdrank.judgments.table import Judgments, offsets_from_sizes
from crowdrank.on_disk.sharded import ShardedJudgments

JUDGMENTS_PER_SHARD = 1 << 18
"""Default number of judgments per shard, for any number of threads: sums by shard are then rounded the same."""
ItemScores = tuple[Floats, ...]
"""Prediction from features of each item: one array for judgments in memory, one per shard on disk."""
MAX_SCORE = 3.0
"""Maximum absolute prediction from features, in standard deviations, so that priors stay on the grid of relevance."""
ShardT = TypeVar("ShardT")
ShardT_co = TypeVar("ShardT_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of soft labels, sorted by item: one per judgment and grade with a probability above 0."""

    offsets: NDArray[np.int64]  # (n_items + 1,) first answer of each item, and the end
    assessor: NDArray[np.int32]  # (n_answers,)
    grade: NDArray[np.int8]  # (n_answers,)
    share: NDArray[np.float64]  # (n_answers,) probability of the grade; 1 for a label without probabilities
    judgment: NDArray[np.int64]  # (n_answers,) index of the judgment, ascending

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays in the order in which kernels take them."""
        return self.offsets, self.assessor, self.grade, self.share, self.judgment

    def weights(self, weight: Floats | None) -> Floats:
        """Return the weight of each answer from the weight of each judgment, by default 1: its share of it."""
        return self.share if weight is None else weight[self.judgment] * self.share


def items_of(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the item of each judgment, (n,)."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def soft_answers(judgments: Judgments) -> Answers | None:
    """Return the answers of soft labels, or None if every judgment is one whole answer with its grade.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "b"], "assessor": "x", "grade": [1, 0], "p0": [0.25, None], "p1": [0.75, None]}
    >>> answers = soft_answers(read_judgments(pd.DataFrame(rows)))
    >>> answers.grade.tolist(), answers.share.tolist(), answers.offsets.tolist()
    ([0, 1, 0], [0.25, 0.75, 1.0], [0, 2, 3])
    """
    shares = judgments.shares()
    if shares is None:
        return None
    is_soft = ~np.isnan(shares[:, 0]) & (judgments.grade >= 0)
    whole = np.zeros((len(judgments), max(shares.shape[1], int(judgments.grade.max(initial=0)) + 1)))
    whole[is_soft, : shares.shape[1]] = shares[is_soft]
    hard = np.flatnonzero(~is_soft)
    whole[hard, judgments.grade[hard]] = 1.0
    judgment, grade = np.nonzero(whole)
    if len(judgment) == len(judgments) and np.array_equal(grade, judgments.grade):
        return None
    offsets = offsets_from_sizes(np.count_nonzero(whole, axis=1))[judgments.offsets]
    return Answers(offsets, judgments.assessor[judgment], grade.astype(np.int8), whole[judgment, grade], judgment)


@dataclass(frozen=True, eq=False)
class Shard:
    """Consecutive items (query-document pairs) with all their judgments; in memory, arrays are views into the table."""

    offsets: NDArray[np.int64]  # (n_items + 1,) first judgment of each item, and the end
    assessor: NDArray[np.int32]  # (n,)
    grade: NDArray[np.int8]  # (n,)
    item_query: NDArray[np.int32]  # (n_items,)
    gold: NDArray[np.int8]  # (n_items,) code of the expert grade on the experts' scale; -1 without one
    gold_sets: NDArray[
        np.bool_
    ]  # (n_expert_grades + 1, n_grades) grades that `gold` stands for; the last row is for -1
    family_levels: NDArray[np.int32]  # (n_levels, n_assessors) family of each assessor, coarsest level first
    scale_of: NDArray[np.int8]  # (n_assessors,) index of each assessor's grade scale
    scale_sizes: tuple[int, ...]  # number of grades of each scale
    values: NDArray[np.float64]  # (n_grades,) value of each grade of the main scale
    score: NDArray[np.float64] | None = None  # (n_items,) prediction from features, NaN without one; None: no features
    # (n_levels, n_assessors) correlation of the errors in the family, if it was estimated
    correlations: NDArray[np.float64] | None = None
    soft: Answers | None = None  # answers of soft labels; None: each judgment is an answer
    preferences: ItemPreferences | None = None  # preferences between items, in shards of whole queries

    @property
    def n_assessors(self) -> int:
        """Number of assessors in all shards together."""
        return int(self.family_levels.shape[1])

    @property
    def n_grades(self) -> int:
        """Number of grades of the main scale, the longest of the assessors' scales."""
        return len(self.values)

    @property
    def n_expert_grades(self) -> int:
        """Number of grades of the experts' scale; 0 without expert grades."""
        return len(self.gold_sets) - 1

    @property
    def n_items(self) -> int:
        """Number of items (query-document pairs) of the shard."""
        return len(self.offsets) - 1


def split_into_shards(
    judgments: Judgments,
    gold: ItemGold | None = None,
    locality: str = "item",
    shard_size: int = JUDGMENTS_PER_SHARD,
    scores: ItemScores | None = None,
) -> list[Shard]:
    """Split judgments in memory into shards of about `shard_size` judgments each.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> frame = pd.DataFrame({"document": list("aabbc"), "assessor": list("12121"), "grade": [0, 1, 1, 1, 0]})
    >>> [shard.n_items for shard in split_into_shards(read_judgments(frame), shard_size=2)]
    [1, 1, 1]
    """
    score = None if scores is None else scores[0]
    preferences = judgments.preferences if isinstance(judgments, JoinedJudgments) else None
    locality = locality if preferences is None else "query"
    whole = _whole_shard(
        judgments, gold, judgments.item_query, judgments.family_levels, judgments.estimated_correlations, score
    )
    shards = []
    for start, stop in pairwise(_shard_bounds(judgments, locality, shard_size)):
        first, last = judgments.offsets[start], judgments.offsets[stop]
        shards.append(
            replace(
                whole,
                offsets=whole.offsets[start : stop + 1] - first,
                assessor=whole.assessor[first:last],
                grade=whole.grade[first:last],
                item_query=whole.item_query[start:stop],
                gold=whole.gold[start:stop],
                score=None if score is None else score[start:stop],
                soft=_slice_answers(whole.soft, start, stop, first),
                preferences=None if preferences is None else preferences.of_items(start, stop),
            )
        )
    return shards


def _whole_shard(
    judgments: Judgments,
    gold: ItemGold | None,
    item_query: Codes,
    family_levels: Codes,
    correlations: Floats | None,
    score: Floats | None,
) -> Shard:
    """Return one shard that holds all judgments."""
    values = np.array(judgments.main_scale.values)
    gold_code, gold_sets = _gold_arrays(gold, judgments.n_items, len(values))
    return Shard(
        offsets=judgments.offsets,
        assessor=judgments.assessor,
        grade=judgments.grade,
        item_query=item_query,
        gold=gold_code,
        gold_sets=gold_sets,
        family_levels=family_levels,
        correlations=correlations,
        scale_of=judgments.assessor_scale,
        scale_sizes=tuple(len(scale) for scale in judgments.scales),
        values=values,
        score=score,
        soft=soft_answers(judgments),
        preferences=judgments.preferences if isinstance(judgments, JoinedJudgments) else None,
    )


def _slice_answers(answers: Answers | None, start: int, stop: int, first_judgment: int) -> Answers | None:
    """Return the answers of the items from `start` to `stop`, the first judgment of which becomes judgment 0."""
    if answers is None:
        return None
    first, last = answers.offsets[start], answers.offsets[stop]
    return Answers(
        answers.offsets[start : stop + 1] - first,
        answers.assessor[first:last],
        answers.grade[first:last],
        answers.share[first:last],
        answers.judgment[first:last] - first_judgment,
    )


def _gold_arrays(gold: ItemGold | None, n_items: int, n_grades: int) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return the fields `gold` and `gold_sets` of a shard; an expert grade without a known set stands for any grade."""
    if gold is None:
        return np.full(n_items, -1, np.int8), np.ones((1, n_grades), np.bool_)
    sets = np.ones((gold.n_expert_grades + 1, n_grades), np.bool_)
    if gold.sets is not None:
        sets[:-1] = gold.sets
    return gold.code, sets


def _shard_bounds(judgments: Judgments, locality: str, shard_size: int) -> NDArray[np.int64]:
    """Return the index of the first item of each shard, and the number of items."""
    offsets = judgments.answer_offsets if isinstance(judgments, JoinedJudgments) else judgments.offsets
    n_answers = int(offsets[-1])
    if not n_answers:
        return np.array([0, judgments.n_items])
    n_shards = max(1, -(-n_answers // shard_size))
    wanted = np.linspace(0, n_answers, n_shards + 1)
    if locality == "item":
        return _distinct_ascending(np.searchsorted(offsets, wanted))
    starts = judgments.query_offsets
    return _distinct_ascending(starts[np.searchsorted(offsets[starts], wanted)])


def _distinct_ascending(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending numbers without duplicates, like np.unique, which would import numpy.ma."""
    distinct: NDArray[np.int64] = ascending[np.append(True, ascending[1:] > ascending[:-1])]
    return distinct


class Shards(Protocol[ShardT_co]):
    """Sequence of shards that are in memory or loaded when needed; picklable, so that workers can load shards."""

    def __len__(self) -> int:
        """Return the number of shards."""

    def load(self, shard_index: int) -> ShardT_co:
        """Return the shard at an index."""

    def subset(self, start: int, stop: int) -> Shards[ShardT_co]:
        """Return the shards with indices from `start` (inclusive) to `stop` (exclusive)."""


@dataclass(frozen=True, eq=False)
class InMemoryShards(Generic[ShardT]):
    """Shards in memory."""

    shards: Sequence[ShardT]

    def __len__(self) -> int:
        return len(self.shards)

    def load(self, shard_index: int) -> ShardT:
        """Return the shard at an index."""
        return self.shards[shard_index]

    def subset(self, start: int, stop: int) -> InMemoryShards[ShardT]:
        """Return the shards with indices from `start` (inclusive) to `stop` (exclusive)."""
        return InMemoryShards(self.shards[start:stop])


@dataclass(frozen=True, eq=False)
class OnDiskShards:
    """Shards of judgments on disk: all of them, or those with the given indices."""

    judgments: ShardedJudgments
    gold: ShardGold | None = None
    indices: range | None = None
    scores: ItemScores | None = None

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def _indices(self) -> range:
        return range(len(self.judgments.shards)) if self.indices is None else self.indices

    @cached_property
    def _families(self) -> tuple[Codes, Floats | None]:
        return self.judgments.family_levels, self.judgments.estimated_correlations

    def load(self, shard_index: int) -> Shard:
        """Read the shard at an index from disk; it is not cached, so that only shards in use take memory."""
        stored_index = self._indices[shard_index]
        table = self.judgments.load(stored_index, ids=False)
        gold = None if self.gold is None else self.gold.shard(stored_index, table.n_items)
        item_query = self.judgments.query_indexes(stored_index)[table.item_query]
        score = None if self.scores is None else self.scores[stored_index]
        return _whole_shard(table, gold, item_query, *self._families, score)

    def subset(self, start: int, stop: int) -> OnDiskShards:
        """Return the shards with indices from `start` (inclusive) to `stop` (exclusive)."""
        return replace(self, indices=self._indices[start:stop])


def make_shards(
    judgments: Judgments | ShardedJudgments,
    gold: ItemGold | ShardGold | None = None,
    locality: str = "item",
    shard_size: int = JUDGMENTS_PER_SHARD,
    scores: ItemScores | None = None,
) -> InMemoryShards[Shard] | OnDiskShards:
    """Return the shards of judgments: split judgments in memory, or take the existing shards on disk.

    Raises:
        UsageError: the shards on disk split queries that the model needs whole.

    """
    if isinstance(judgments, Judgments):
        assert not isinstance(gold, ShardGold)
        if judgments.n_assessors > JUDGMENTS_PER_SHARD:  # adding up statistics would take longer than the passes
            shard_size = max(shard_size, judgments.n_assessors)
        return InMemoryShards(split_into_shards(judgments, gold, locality, shard_size, scores))
    assert gold is None or isinstance(gold, ShardGold)
    if locality == "query" and not judgments.whole_queries:
        raise UsageError(
            "The model compares the documents of a query, and these shards hold parts of queries",
            kind="split-queries",
            fix=Fix("read the partitions with a column for queries and {}", "by", "query"),
        )
    return OnDiskShards(judgments, gold, scores=scores)
