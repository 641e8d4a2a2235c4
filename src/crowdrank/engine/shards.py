"""Cutting judgments into shards: whole items, or whole queries, in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

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
