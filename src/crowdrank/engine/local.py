"""Passes in threads of this process. The kernels release the GIL; sums are computed in a fixed tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._base import require_whole
from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, ShardT, Sink
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, InMemoryShards, OnDiskShards, Shard, Shards, shards_of
from crowdrank.engine.streaming import FileStates, select_arrays
from crowdrank.engine.tree_reduce import tree_sum
from crowdrank.judgments.gold import ShardGold
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
        require_whole("n_jobs", self.n_jobs, 1)
        require_whole("shard_size", self.shard_size, 1)

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: NDArray[np.int8] | ShardGold | None = None,
    ) -> LocalPasses[Shard]:
        """Return passes of a model over judgments in memory or on disk."""
        shards = shards_of(judgments, gold, model.locality, self.shard_size)
        states = None
        if isinstance(shards, OnDiskShards):
            states = FileStates(len(shards), model.carries, shards.judgments.folder)
        return LocalPasses(model, shards, self.n_jobs, states)

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> LocalPasses[ShardT]:
        """Return passes of a model over its own kind of shards."""
        return LocalPasses(model, InMemoryShards(shards), self.n_jobs)

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """Call a function with every item; yield the results in order."""
        return map_in_order(work, things, self.n_jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Do nothing: threads live only during a pass."""


class MemoryStates:
    """Local state of each shard in memory.

    Attributes:
        complete: whether `load` returns all local arrays of the last pass.

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

    def load(self, place: int) -> Arrays:
        """Return the stored arrays of a shard after the last complete pass."""
        return self._last[place]

    def save(self, place: int, local: Arrays) -> None:
        """Store the arrays of a shard after the current pass."""
        self._current[place] = local

    def commit(self, complete: bool = True) -> None:
        """Replace the last pass by the current one, which stored all local arrays or only those carried."""
        self._last, self._current = self._current, [{}] * len(self._current)
        self.complete = complete


class LocalPasses(Generic[ShardT]):
    """Passes of a model over shards in threads; no other class of the engines calls functions of a model.

    Args:
        model: the model.
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

    def watch(self, report: Callable[[float], None]) -> None:
        """Call a function with the finished share of a pass."""
        self._report = report

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Make one pass; return the sum of the statistics of all shards."""
        return self.subtree_sums(theta, [len(self.shards)])[0]

    @single_blas_thread()
    def subtree_sums(self, theta: Arrays | None, sizes: Sequence[int]) -> list[Arrays]:
        """Make one pass; return the sums of the statistics of successive subtrees with these numbers of shards."""

        def accumulate(place: int) -> Arrays:
            shard = self.shards.load(place)
            local, statistics = self.model._accumulate(shard, self._local(place, shard, theta), theta)
            self.states.save(place, local)
            return statistics

        statistics = self._map(accumulate)
        sums = [tree_sum(statistics, size) for size in sizes]
        self.states.commit()
        return sums

    def finish(self, theta: Arrays) -> Arrays:
        """Return the rows of all shards, in the order of the items."""
        return concatenate_rows(self.finish_to(theta, return_rows))

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Pass the rows of every shard to `sink`; yield what it returns, in order."""

        def finish(place: int) -> Arrays:
            shard = self.shards.load(place)
            local = self._local(place, shard, theta)
            if not self.states.complete:
                local, _ = self.model._accumulate(shard, local, theta)
            return sink(place, self.model._finish(shard, local, theta))

        with single_blas_thread():
            yield from self._map(finish)

    def local_arrays(self) -> Iterator[Arrays]:
        """Yield the stored arrays of each shard: in memory all local arrays of the last pass."""
        return map(self.states.load, range(len(self.shards)))

    def local_state(self) -> Iterator[Arrays]:
        """Yield the carried arrays of each shard."""
        return (select_arrays(arrays, self.model.carries) for arrays in self.local_arrays())

    def restore(self, states: Iterable[Arrays]) -> None:
        """Set the carried arrays of each shard."""
        for place, arrays in enumerate(states):
            self.states.save(place, arrays)
        self.states.commit(complete=self.model.carries is None)

    def _local(self, place: int, shard: ShardT, theta: Arrays | None) -> Arrays:
        """Return the local state of a shard before a pass with theta."""
        stored = self.states.load(place)
        if self.states.complete:
            return stored
        begin = self.model._start if theta is None or self.model.carries is None else self.model._restart
        return {**begin(shard), **stored}

    def _map(self, function: Callable[[int], T]) -> Iterator[T]:
        n = len(self.shards)
        return report_progress(map_in_order(function, range(n), min(self.n_jobs, n)), n, self._report)


def map_in_order(function: Callable[[S], T], items: Sequence[S], n_jobs: int) -> Iterator[T]:
    """Call a function with every item in threads; yield results in order, with few pending, as they may be large."""
    if n_jobs == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > n_jobs:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def report_progress(results: Iterator[T], n: int, report: Callable[[float], None] | None) -> Iterator[T]:
    """Yield the results; report the finished share after each but the last, which the caller reports."""
    for done, result in enumerate(results, start=1):
        yield result
        if report is not None and done < n:
            report(done / n)


def concatenate_rows(shards: Iterable[Arrays]) -> Arrays:
    """Return the rows of all shards as one set of arrays."""
    rows = list(shards)
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def return_rows(place: int, rows: Arrays) -> Arrays:
    """Return the rows: the sink that collects all."""
    return rows
