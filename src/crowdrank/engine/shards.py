"""Cutting judgments into shards: whole items, or whole queries, in order; or shards that are on disk already."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crowdrank.errors import UsageError
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

JUDGMENTS_PER_SHARD = 1 << 18
"""Enough that a pass dwarfs its overhead, small enough to share out among threads. Not a matter of threads:
the same data makes the same shards, and so the same bytes, on any number of them."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A run of items with all their judgments; views into the table, not copies."""

    first_item: int
    offsets: NDArray[np.int64]  # (n_items + 1,) into this shard's judgments
    assessor: NDArray[np.int32]  # (n,)
    grade: NDArray[np.int8]  # (n,)
    item_query: NDArray[np.int32]  # (n_items,)
    gold: NDArray[np.int8]  # (n_items,) code of the expert grade, or -1
    family: NDArray[np.int32]  # (n_assessors,) number of each assessor's family
    scale_of: NDArray[np.int8]  # (n_assessors,) number of each assessor's scale
    scale_sizes: tuple[int, ...]  # how many grades each scale has
    values: NDArray[np.float64]  # (n_grades,) what each grade of the main scale is worth

    @property
    def n_assessors(self) -> int:
        """Number of assessors, in this shard or not."""
        return len(self.family)

    @property
    def n_grades(self) -> int:
        """Number of grades, of the main scale where there are several."""
        return len(self.values)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.offsets) - 1


def split(
    judgments: Judgments, gold: NDArray[np.int8] | None = None, locality: str = "item", size: int = JUDGMENTS_PER_SHARD
) -> list[Shard]:
    """Shards of about `size` judgments.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> frame = pd.DataFrame({"document": list("aabbc"), "assessor": list("12121"), "grade": [0, 1, 1, 1, 0]})
    >>> [shard.n_items for shard in split(read_judgments(frame), size=2)]
    [1, 1, 1]
    """
    gold = np.full(judgments.n_items, -1, np.int8) if gold is None else gold
    values = np.array(judgments.main_scale.values)
    sizes = tuple(len(scale) for scale in judgments.scales)
    family = judgments.family_of
    bounds = _bounds(judgments, locality, size)
    shards = []
    for start, stop in pairwise(bounds):
        first, last = judgments.offsets[start], judgments.offsets[stop]
        shards.append(
            Shard(
                first_item=int(start),
                offsets=judgments.offsets[start : stop + 1] - first,
                assessor=judgments.assessor[first:last],
                grade=judgments.grade[first:last],
                item_query=judgments.item_query[start:stop],
                gold=gold[start:stop],
                family=family,
                scale_of=judgments.assessor_scale,
                scale_sizes=sizes,
                values=values,
            )
        )
    return shards


def _bounds(judgments: Judgments, locality: str, size: int) -> NDArray[np.int64]:
    """Items at which a shard starts, and the end."""
    n_shards = max(1, -(-len(judgments) // size))
    wanted = np.linspace(0, len(judgments), n_shards + 1)
    if locality == "item":
        return np.unique(np.searchsorted(judgments.offsets, wanted))
    starts = judgments.query_offsets
    return np.unique(starts[np.searchsorted(judgments.offsets[starts], wanted)])


class Shards(Protocol):
    """Shards by their place, each loaded when it is asked for; picklable, so that a task elsewhere can load its own."""

    def __len__(self) -> int:
        """How many there are."""

    def load(self, place: int) -> Shard:
        """The shard at a place."""


@dataclass(frozen=True, eq=False)
class HeldShards:
    """Shards in memory."""

    shards: list[Shard]

    def __len__(self) -> int:
        return len(self.shards)

    def load(self, place: int) -> Shard:
        """The shard at a place."""
        return self.shards[place]


@dataclass(frozen=True, eq=False)
class StoredShards:
    """Shards on disk."""

    judgments: ShardedJudgments
    gold: ShardGold | None = None

    def __len__(self) -> int:
        return len(self.judgments.shards)

    @cached_property
    def _first_items(self) -> list[int]:
        return [0, *np.cumsum([shard.items for shard in self.judgments.shards]).tolist()]

    @cached_property
    def _family(self) -> NDArray[np.int32]:
        return self.judgments.family_of

    def load(self, place: int) -> Shard:
        """The shard at a place; plain reads, so that what is not worked on takes no memory."""
        table = self.judgments.load(place, ids=False)
        return Shard(
            first_item=self._first_items[place],
            offsets=table.offsets,
            assessor=table.assessor,
            grade=table.grade,
            item_query=self.judgments.query_numbers(place)[table.item_query],
            gold=np.full(table.n_items, -1, np.int8) if self.gold is None else self.gold.of(place, table.n_items),
            family=self._family,
            scale_of=table.assessor_scale,
            scale_sizes=tuple(len(scale) for scale in table.scales),
            values=np.array(table.main_scale.values),
        )


def shards_of(
    judgments: Judgments | ShardedJudgments,
    gold: NDArray[np.int8] | ShardGold | None = None,
    locality: str = "item",
    size: int = JUDGMENTS_PER_SHARD,
) -> HeldShards | StoredShards:
    """Return the shards of judgments: cut now, or as they are on disk."""
    if isinstance(judgments, Judgments):
        assert not isinstance(gold, ShardGold)
        if judgments.n_assessors > JUDGMENTS_PER_SHARD:  # a shard's sums over all assessors would outweigh its pass
            size = max(size, judgments.n_assessors)
        return HeldShards(split(judgments, gold, locality, size))
    assert gold is None or isinstance(gold, ShardGold)
    if locality == "query" and not judgments.whole_queries:
        raise UsageError(
            "These shards hold parts of queries (by='document', or there is no column for queries), and the model "
            "compares the documents of a query; read the partitions by='query'."
        )
    return StoredShards(judgments, gold)
