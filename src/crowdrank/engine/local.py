"""Engine that runs passes in threads of this process; compiled kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np

from crowdrank._arrow import release_unused_memory
from crowdrank._base import require_integer
from crowdrank._threads import map_in_order
from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, ShardT, Sink
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.shards import (
    JUDGMENTS_PER_SHARD,
    InMemoryShards,
    ItemScores,
    OnDiskShards,
    Shard,
    Shards,
    shards_of,
)
from crowdrank.engine.streaming import FileStates, select_arrays
from crowdrank.engine.tree_reduce import tree_sum
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class LocalEngine:
    """Run passes in threads; judgments on disk are streamed, one shard per thread at a time.

    Args:
        n_jobs: number of threads.
        shard_size: approximate number of judgments per shard, for judgments in memory.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=5, documents=6, random_state=1)
    >>> one, two = (DawidSkene().fit(world.judgments, engine=LocalEngine(n_jobs=n)) for n in (1, 2))
    >>> one.consensus_.documents.equals(two.consensus_.documents)
    True

    """

    is_cluster: ClassVar[bool] = False
    is_remote: ClassVar[bool] = False
    description: ClassVar[str] = ""

    n_jobs: int = 1
    shard_size: int = JUDGMENTS_PER_SHARD

    def __post_init__(self) -> None:
        require_integer("n_jobs", self.n_jobs, 1)
        require_integer("shard_size", self.shard_size, 1)

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: ItemGold | ShardGold | None = None,
        scores: ItemScores | None = None,
    ) -> LocalPasses[Shard]:
        """Return an object that runs passes of a model over judgments in memory or on disk."""
        shards = shards_of(judgments, gold, model.locality, self.shard_size, scores)
        states = None
        if isinstance(shards, OnDiskShards):
            states = FileStates(len(shards), model.carries, shards.judgments.folder)
        return LocalPasses(model, shards, self.n_jobs, states)

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> LocalPasses[ShardT]:
        """Return an object that runs passes of a model over other shards than judgments, such as blocks of rows."""
        return LocalPasses(model, InMemoryShards(shards), self.n_jobs)

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument in threads; yield the results in order."""
        return map_in_order(function, arguments, self.n_jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Do nothing: threads live only during a pass."""


class MemoryStates:
    """Local state (arrays that belong to one shard) of all shards, in memory.

    Attributes:
        complete: whether `load` returns all arrays of a shard, not only those that the next pass reads.

    """

    def __init__(self, n_shards: int) -> None:
        self.complete = False
        self._last: list[Arrays] = [{}] * n_shards
        self._current: list[Arrays] = [{}] * n_shards

    def copy(self) -> MemoryStates:
        """Return a copy for another pass; arrays are shared."""
        states = MemoryStates(len(self._last))
        states._last, states.complete = self._last, self.complete
        return states

    def load(self, shard_index: int) -> Arrays:
        """Return the stored arrays of a shard after the last complete pass."""
        return self._last[shard_index]

    def save(self, shard_index: int, local_state: Arrays) -> None:
        """Store the arrays of a shard after the current pass."""
        self._current[shard_index] = local_state

    def discard(self, shard_index: int) -> None:
        """Free the arrays of a shard after the last complete pass."""
        self._last[shard_index] = {}

    def commit(self, is_complete: bool = True) -> None:
        """End the current pass: `load` returns its arrays from now on (all of them if `is_complete`)."""
        self._last, self._current = self._current, [{}] * len(self._current)
        self.complete = is_complete


class LocalPasses(Generic[ShardT]):
    """Passes of a model over shards in threads; all engines call the model through this class.

    Args:
        model: model with the functions that run on a shard.
        shards: shards in memory or on disk.
        n_jobs: number of threads.
        states: where local state is stored; by default in memory.

    """

    def __init__(
        self,
        model: ShardModel[ShardT],
        shards: Shards[ShardT],
        n_jobs: int = 1,
        states: MemoryStates | FileStates | None = None,
    ) -> None:
        self.model, self.shards, self.n_jobs = model, shards, n_jobs
        self.states = MemoryStates(len(shards)) if states is None else states
        self._report: Callable[[float], None] | None = None

    def set_progress_callback(self, callback: Callable[[float], None]) -> None:
        """Register a function to be called with the finished share of a pass."""
        self._report = callback

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Run one pass with model parameters `theta`; return the sum of the statistics of all shards."""
        return self.subtree_sums(theta, [len(self.shards)])[0]

    @single_blas_thread()
    def subtree_sums(self, theta: Arrays | None, subtree_sizes: Sequence[int]) -> list[Arrays]:
        """Run one pass; return the sums of the statistics of consecutive groups of shards with these sizes."""

        def accumulate(shard_index: int) -> Arrays:
            shard = self.shards.load(shard_index)
            local, statistics = self.model._accumulate(shard, self._local_state(shard_index, shard, theta), theta)
            self.states.save(shard_index, local)
            return statistics

        statistics = self._map_shards(accumulate)
        sums = [tree_sum(statistics, subtree_size) for subtree_size in subtree_sizes]
        self.states.commit()
        return sums

    def finish(self, theta: Arrays, sink: Sink, n_rows: int) -> Arrays:
        """Return what `sink` makes of the result rows of each shard, in the order of the items; free local state."""

        def last_sink(shard_index: int, rows: Arrays) -> Arrays:
            result = sink(shard_index, rows)
            if isinstance(self.states, MemoryStates):
                self.states.discard(shard_index)
            return result

        joined = concatenate_rows(self.finish_into(theta, last_sink), n_rows)
        if isinstance(self.states, MemoryStates):
            self.states = MemoryStates(len(self.shards))
        release_unused_memory(n_rows)
        return joined

    def finish_into(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Call `sink` with the result rows of each shard; yield its summaries in order."""

        def finish(shard_index: int) -> Arrays:
            shard = self.shards.load(shard_index)
            local = self._local_state(shard_index, shard, theta)
            if not self.states.complete:
                local, _ = self.model._accumulate(shard, local, theta)
            return sink(shard_index, self.model._finish(shard, local, theta))

        with single_blas_thread():
            yield from self._map_shards(finish)

    def local_arrays(self) -> Iterator[Arrays]:
        """Yield the stored arrays of each shard; if they are stored in memory, all arrays of the last pass."""
        return map(self.states.load, range(len(self.shards)))

    def local_state(self) -> Iterator[Arrays]:
        """Yield the arrays of each shard that the next pass reads."""
        return (select_arrays(arrays, self.model.carries) for arrays in self.local_arrays())

    def restore(self, local_states: Iterable[Arrays]) -> None:
        """Set the arrays of each shard that the next pass reads."""
        for shard_index, arrays in enumerate(local_states):
            self.states.save(shard_index, arrays)
        self.states.commit(is_complete=self.model.carries is None)

    def _local_state(self, shard_index: int, shard: ShardT, theta: Arrays | None) -> Arrays:
        """Return the local state of a shard before a pass with model parameters `theta`."""
        stored = self.states.load(shard_index)
        if self.states.complete:
            return stored
        begin = self.model._start if theta is None or self.model.carries is None else self.model._restart
        return {**begin(shard), **stored}

    def _map_shards(self, function: Callable[[int], T]) -> Iterator[T]:
        n = len(self.shards)
        return report_progress(map_in_order(function, range(n), min(self.n_jobs, n)), n, self._report)


def report_progress(results: Iterator[T], n_results: int, report: Callable[[float], None] | None) -> Iterator[T]:
    """Yield the results; after each except the last, call `report` with the finished share."""
    for done, result in enumerate(results, start=1):
        yield result
        if report is not None and done < n_results:
            report(done / n_results)


def concatenate_rows(rows_by_shard: Iterable[Arrays], n_rows: int) -> Arrays:
    """Concatenate the result rows of all shards, array by array, with those of a few shards in memory at a time.

    >>> concatenate_rows(({"n": np.full(2, shard)} for shard in range(2)), 4)
    {'n': array([0, 0, 1, 1])}
    """
    joined: Arrays = {}
    start = stop = 0
    for rows in rows_by_shard:
        for name, values in rows.items():
            stop = start + len(values)
            if name not in joined:
                joined[name] = np.empty((n_rows, *values.shape[1:]), values.dtype)
            joined[name][start:stop] = values
        start = stop
    return joined
