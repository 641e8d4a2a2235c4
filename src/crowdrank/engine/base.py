"""Protocols between models and engines.

A fit is a sequence of passes over shards. A pass adds up statistics, which are small, over all shards; what belongs to
single items is the local state of a shard and stays beside it:

    _start(shard) -> local
    _accumulate(shard, local, theta) -> (local, statistics)
    _maximize(theta, statistics) -> theta
    _finish(shard, local, theta) -> rows

Models define these functions; an engine decides where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Arrays
from crowdrank.engine.shards import Shard
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")
ShardT = TypeVar("ShardT")
ShardT_contra = TypeVar("ShardT_contra", contravariant=True)
Sink = Callable[[int, Arrays], Arrays]
"""Function that takes the number and the rows of a shard and returns a small summary; it must be picklable."""


class ShardModel(Protocol[ShardT_contra]):
    """Functions of a model that run on a shard."""

    @property
    def locality(self) -> str:
        """What a shard keeps together: `item` or `query`."""

    @property
    def carries(self) -> tuple[str, ...] | None:
        """Names of the local arrays that the next pass reads; None for all.

        The other arrays follow from `_restart` and a pass with the same theta.
        """

    def _start(self, shard: ShardT_contra) -> Arrays:
        """Return the local state before the first pass."""

    def _restart(self, shard: ShardT_contra) -> Arrays:
        """Return the local arrays that a pass with a theta needs in addition to those carried."""

    def _accumulate(self, shard: ShardT_contra, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Return new local state and statistics; without theta, those of the start.

        Arrays of `local` that a pass reads must not be changed, so that an interrupted pass can be repeated.
        """

    def _finish(self, shard: ShardT_contra, local: Arrays, theta: Arrays) -> Arrays:
        """Return the results of a shard, one row per item."""


class Passes(Protocol):
    """Passes of one model over its shards.

    Attributes:
        n_jobs: number of threads for work between passes.

    """

    n_jobs: int

    @property
    def shards(self) -> Sized:
        """Shards of the judgments."""

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Make one pass; return the sum of the statistics of all shards."""

    def finish(self, theta: Arrays) -> Arrays:
        """Return the rows of all shards, in the order of the items."""

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Pass the rows of every shard to `sink` where they are computed; yield what it returns, in order."""

    def watch(self, report: Callable[[float], None]) -> None:
        """Call a function with the finished share of a pass."""

    def local_state(self) -> Iterable[Arrays]:
        """Return the carried arrays of each shard, for a checkpoint."""

    def restore(self, states: Iterable[Arrays]) -> None:
        """Set the carried arrays of each shard."""


class Engine(Protocol):
    """Place where passes run."""

    @property
    def is_cluster(self) -> bool:
        """Whether passes run on a Dask cluster."""

    @property
    def is_remote(self) -> bool:
        """Whether passes may run on other machines, which do not see local temporary files."""

    @property
    def description(self) -> str:
        """Sentence about the cluster for the user, or nothing."""

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: NDArray[np.int8] | ShardGold | None = None,
    ) -> Passes:
        """Return passes of a model over judgments."""

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> Passes:
        """Return passes of a model over its own kind of shards, such as blocks of rows."""

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """Call a function with every item; yield the results in order."""

    def __enter__(self) -> Self:
        """Return the engine."""

    def __exit__(self, *problem: object) -> None:
        """Release threads, processes and connections."""
