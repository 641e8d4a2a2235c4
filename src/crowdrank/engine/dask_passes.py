"""Passes of a model over shards on a Dask cluster.

Every worker holds one part: a range of shards with their local state. A pass is one task per part; statistics are added
in the same tree as by the local engine, so the same shards give the same bytes.

If a worker dies, all parts are sent to workers again and the pass is repeated. Models that read local state of the
previous pass need more: their parts start from a snapshot of that state, which the client takes every few passes, and
repeat the passes since. Parameters are sent as data, so that the scheduler forgets a pass as soon as the client does.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, ShardT, Sink
from crowdrank.engine.local import LocalPasses, MemoryStates, concatenate_rows
from crowdrank.engine.shards import InMemoryShards, Shards
from crowdrank.engine.streaming import FileStates, select_arrays
from crowdrank.engine.tree_reduce import Range, add_arrays, balanced_ranges, combine_subtrees, subtrees

if TYPE_CHECKING:
    from distributed import Future

    from crowdrank.engine.dask import DaskEngine

T = TypeVar("T")

MAX_ATTEMPTS = 5
"""Maximum number of attempts to run a pass if workers die."""
PASSES_PER_SNAPSHOT = 16
"""Number of passes between two snapshots of the local state that a model needs in the next pass."""
SEND_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for a worker to which data is sent, in case it died."""
MAX_COPIES_PER_WORKER = 4
"""Maximum number of workers that copy the model parameters from one worker."""


class DaskPasses(Generic[ShardT]):
    """Passes of a model over shards on Dask workers."""

    def __init__(self, engine: DaskEngine, model: ShardModel[ShardT], shards: Shards[ShardT]) -> None:
        self.engine, self.client = engine, engine.client
        self.model, self.shards = _without_fitted_attributes(model), shards
        threads = self.client.nthreads()
        self.n_jobs = min(sum(threads.values()), os.cpu_count() or 1)  # between passes the workers are idle
        self._n_workers = len(threads)
        self._ranges = balanced_ranges(len(shards), self._n_workers)
        self._workers: list[str] = []
        self._parts: list[Future[_Part[ShardT]]] = []  # none until the first pass, and after a worker died
        self._snapshot: FileStates | None = None
        self._thetas: list[Arrays | None] = []  # of the passes since the snapshot, for models that carry state

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Run one pass with model parameters `theta`; return the sum of the statistics of all shards."""
        if len(self._thetas) >= PASSES_PER_SNAPSHOT:
            self._take_snapshot(self.local_state())
        self._parts, total = self._retry(partial(self._pass, theta))
        if self.model.carries != ():
            self._thetas.append(theta)
        return total

    def _pass(self, theta: Arrays | None) -> tuple[list[Future[_Part[ShardT]]], Arrays]:
        parts, n = [], len(self.shards)
        sums: dict[Range, Future[Arrays]] = {}
        for number, (shards, sent) in enumerate(zip(self._ranges, self._broadcast(theta), strict=True)):
            trees = subtrees(n, shards)
            sizes = [last - first for first, last in trees]
            part = self._submit(number, _accumulate, self.model, self._parts[number], sent, sizes)
            parts.append(part)
            sums |= {tree: self.client.submit(_subtree_sum, part, i, pure=False) for i, tree in enumerate(trees)}
        total = combine_subtrees(sums, (0, n), partial(self.client.submit, add_arrays, pure=False))
        return parts, self.engine.gather(total)

    def set_progress_callback(self, callback: Callable[[float], None]) -> None:
        """Do nothing: all parts of a pass run at the same time, so there is no progress to report."""

    def finish(self, theta: Arrays, sink: Sink, n_rows: int) -> Arrays:
        """Return what `sink` makes of the result rows of each shard, in the order of the items."""
        return concatenate_rows(self.finish_into(theta, sink), n_rows)

    def finish_into(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Call `sink` with the result rows of each shard on its worker; yield its summaries in order."""
        return self._each_shard(_finish, theta, sink)

    def local_state(self) -> Iterator[Arrays]:
        """Yield the arrays of each shard that the next pass reads."""
        return self._each_shard(_carried_arrays)

    def restore(self, local_states: Iterable[Arrays]) -> None:
        """Set the arrays of each shard that the next pass reads."""
        self._take_snapshot(local_states)
        self._parts = []

    def _take_snapshot(self, local_states: Iterable[Arrays]) -> None:
        if self._snapshot is None:
            self._snapshot = FileStates(len(self.shards))
        for shard_index, arrays in enumerate(local_states):
            self._snapshot.save(shard_index, arrays)
        self._snapshot.commit()
        self._thetas = []

    def _each_shard(self, function: Callable[..., list[Arrays]], *arguments: Any) -> Iterator[Arrays]:
        """Call a function with all parts in parallel; yield its result for each shard, fetched one part at a time."""
        futures: dict[int, Future[list[Arrays]]] = {}

        def fetch(number: int) -> list[Arrays]:
            try:
                if not futures:
                    for later in range(number, len(self._ranges)):
                        futures[later] = self._submit(later, function, self.model, self._parts[later], *arguments)
                rows = self.engine.gather(futures[number])
            except BaseException:
                futures.clear()
                raise
            return rows

        for number in range(len(self._ranges)):
            yield from self._retry(partial(fetch, number))
            del futures[number]

    def _retry(self, function: Callable[[], T]) -> T:
        """Call a function that uses the parts; if a worker dies, create all parts again and repeat the call."""
        # TimeoutError: a worker dies while data is sent to it.
        errors: tuple[type[BaseException], ...] = (*worker_errors(), TimeoutError)
        for _ in range(MAX_ATTEMPTS):
            try:
                if not self._parts:
                    self._create_parts()
                return function()
            except errors as problem:
                error = self.engine.error(problem)
                error.__cause__ = problem
                if error.kind == "scheduler-lost":
                    raise error from problem
                self._parts = []
        raise error

    def _create_parts(self) -> None:
        """Create all parts on the workers: restore the last snapshot and repeat the passes since."""
        # Our own cluster replaces dead workers; waiting for them is faster than two parts on one worker.
        available = self.engine.wait_for_workers(1 if self.engine.is_remote else self._n_workers)
        self.engine.require_same_version()
        available = self.engine.running_workers() or available
        self._workers = [available[number % len(available)] for number in range(len(self._ranges))]
        thetas = [self._send(theta) for theta in self._thetas]
        parts = []
        for number, (first, last) in enumerate(self._ranges):
            shards = self._send(self.shards.subset(first, last), self._workers[number])
            states = None
            if self._snapshot is not None:
                states = self._send(
                    [self._snapshot.load(shard_index) for shard_index in range(first, last)], self._workers[number]
                )
            parts.append(self._submit(number, _start_part, self.model, first, shards, states, thetas))
        self.engine.wait(parts)  # before what was sent is released
        self._parts = parts

    def _send(self, data: T, worker_address: str | None = None) -> Future[T]:
        """Send data to a worker (by default any); return a future of the data there."""
        future: Future[T]
        workers = None if worker_address is None else [worker_address]
        while True:
            try:
                (future,) = self.client.scatter([data], workers=workers, hash=False, timeout=SEND_TIMEOUT_SECONDS)
                return future
            except TimeoutError:
                if self.engine.running_workers():  # another worker can have the part
                    raise
                self.engine.require_unpaused()

    def _broadcast(self, theta: Arrays | None) -> list[Future[Arrays | None]]:
        """Send the model parameters `theta` to the workers along a tree; return one future per part.

        Dask's own broadcast never returns if a worker dies meanwhile.
        """
        futures = [self._send(theta)]
        for number in range(1, len(self._ranges)):
            futures.append(self._submit(number, identity, futures[(number - 1) // MAX_COPIES_PER_WORKER]))
        return futures

    def _submit(self, part_index: int, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a function on the worker that holds a part, or on another one if that worker died."""
        placement: dict[str, Any] = {"workers": [self._workers[part_index]], "allow_other_workers": True}
        future: Future[T] = self.client.submit(function, *arguments, **placement, pure=False)
        return future


# Functions that run on workers.


@dataclass(frozen=True)
class _Part(Generic[ShardT]):
    """Range of shards on one worker, with their local state and the sums of statistics of the last pass."""

    first_shard: int
    shards: InMemoryShards[ShardT]
    states: MemoryStates
    sums: list[Arrays]


def _worker_passes(
    model: ShardModel[ShardT], shards: InMemoryShards[ShardT], states: MemoryStates
) -> LocalPasses[ShardT]:
    """Return an object that runs passes in all threads of this worker."""
    from distributed import get_worker

    return LocalPasses(model, shards, get_worker().state.nthreads, states)


def _start_part(
    model: ShardModel[ShardT],
    first_shard: int,
    shards: Shards[ShardT],
    carried_arrays: list[Arrays] | None,
    thetas: list[Arrays | None],
) -> _Part[ShardT]:
    """Load the shards of a part, restore their arrays from a snapshot, and repeat the passes since."""
    loaded = InMemoryShards([shards.load(shard_index) for shard_index in range(len(shards))])
    states = MemoryStates(len(loaded))
    passes = _worker_passes(model, loaded, states)
    if carried_arrays is not None:
        passes.restore(carried_arrays)
    for theta in thetas:
        passes.accumulate(theta)
    return _Part(first_shard, loaded, states, [])


def _accumulate(
    model: ShardModel[ShardT], part: _Part[ShardT], theta: Arrays | None, subtree_sizes: list[int]
) -> _Part[ShardT]:
    """Run a pass over a part; return the new part and leave the old one unchanged."""
    states = part.states.copy()
    sums = _worker_passes(model, part.shards, states).subtree_sums(theta, subtree_sizes)
    return replace(part, states=states, sums=sums)


def _subtree_sum(part: _Part[ShardT], subtree_index: int) -> Arrays:
    return part.sums[subtree_index]


def _finish(model: ShardModel[ShardT], part: _Part[ShardT], theta: Arrays, sink: Sink) -> list[Arrays]:
    """Return the summary that `sink` makes of the result rows of each shard of a part."""
    passes = _worker_passes(model, part.shards, part.states)
    return list(passes.finish_into(theta, lambda shard_index, rows: sink(part.first_shard + shard_index, rows)))


def _carried_arrays(model: ShardModel[ShardT], part: _Part[ShardT]) -> list[Arrays]:
    return [select_arrays(part.states.load(shard_index), model.carries) for shard_index in range(len(part.shards))]


def identity(value: T) -> T:
    """Return the value; as a Dask task, it copies the value to a worker."""
    return value


# Further functions of the client.


def _without_fitted_attributes(model: ShardModel[ShardT]) -> ShardModel[ShardT]:
    """Return a copy of a model without fitted attributes, which may be large and are not needed in passes."""
    bare = copy.copy(model)
    for name in [name for name in vars(bare) if name.endswith("_")]:
        delattr(bare, name)
    return bare


def worker_errors() -> tuple[type[BaseException], ...]:
    """Return the exception classes that Dask raises if a worker or the scheduler is lost."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    return CancelledError, KilledWorker, CommClosedError
