"""Interfaces between models and engines.

A fit is a sequence of passes over shards (ranges of items, which are query-document pairs). A pass adds up statistics,
which are small, over all shards; arrays with one entry per item are the local state of a shard and stay beside it.
Theta stands for the parameters of the model:

    _start(shard) -> local
    _accumulate(shard, local, theta) -> (local, statistics)
    _maximize(theta, statistics) -> theta
    _finish(shard, local, theta) -> rows

Models define these functions; an engine decides where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Protocol, Self, TypeVar

from crowdrank._typing import Arrays
from crowdrank.engine.shards import ItemScores, Shard
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")
ShardT = TypeVar("ShardT")
ShardT_contra = TypeVar("ShardT_contra", contravariant=True)
Sink = Callable[[int, Arrays], Arrays]
"""Function (shard index, result rows of the shard) that returns a small summary; it must be picklable."""


class ShardModel(Protocol[ShardT_contra]):
    """Functions of a model that engines call for each shard."""

    @property
    def locality(self) -> str:
        """Unit that a shard never splits: `item` (a query-document pair) or `query`."""

    @property
    def carries(self) -> tuple[str, ...] | None:
        """Names of the local arrays of a shard that the next pass reads; None means all.

        The other local arrays can be computed again by `_restart` and a pass with the same parameters (theta).
        """

    def _start(self, shard: ShardT_contra) -> Arrays:
        """Return the local state (arrays that belong to one shard) before the first pass."""

    def _restart(self, shard: ShardT_contra) -> Arrays:
        """Return the local arrays of a shard that a later pass needs besides those in `carries`."""

    def _accumulate(self, shard: ShardT_contra, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Return new local state and statistics of a shard; `theta` (model parameters) is None in the first pass.

        Arrays in `local` must not be changed in place, so that an interrupted pass can be repeated.
        """

    def _finish(self, shard: ShardT_contra, local: Arrays, theta: Arrays) -> Arrays:
        """Return the results of a shard: arrays with one row per item."""


class Passes(Protocol):
    """Passes of a model over all its shards.

    Attributes:
        n_jobs: number of threads for work between passes.

    """

    n_jobs: int

    @property
    def shards(self) -> Sized:
        """Shards of the judgments."""

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Run one pass with model parameters `theta`; return the sum of the statistics of all shards."""

    def finish(self, theta: Arrays, sink: Sink, n_rows: int) -> Arrays:
        """Return what `sink` makes of the result rows of each shard, `n_rows` in all, in the order of the items.

        This is the end of the passes: local state is freed.
        """

    def finish_into(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Call `sink` with the result rows of each shard, on the worker that computes them; yield its summaries."""

    def set_progress_callback(self, callback: Callable[[float], None]) -> None:
        """Register a function to be called with the finished share of a pass."""

    def local_state(self) -> Iterable[Arrays]:
        """Return the arrays in `carries` of each shard, for a checkpoint."""

    def restore(self, local_states: Iterable[Arrays]) -> None:
        """Set the arrays in `carries` of each shard, as `local_state` returned them."""


class Engine(Protocol):
    """Interface of engines, which run passes in local threads or on a Dask cluster."""

    @property
    def is_cluster(self) -> bool:
        """Whether passes run on a Dask cluster."""

    @property
    def is_remote(self) -> bool:
        """Whether passes may run on other machines, which do not see local temporary files."""

    @property
    def description(self) -> str:
        """Sentence for the user about the cluster; empty without one."""

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: ItemGold | ShardGold | None = None,
        scores: ItemScores | None = None,
    ) -> Passes:
        """Return an object that runs passes of a model over judgments; `scores` are predictions from features."""

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> Passes:
        """Return an object that runs passes of a model over other shards than judgments, such as blocks of rows."""

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument; yield the results in order."""

    def __enter__(self) -> Self:
        """Return the engine."""

    def __exit__(self, *problem: object) -> None:
        """Release threads, processes and connections."""
