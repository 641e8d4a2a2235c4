"""Passes on a Dask cluster: processes on this machine, or the cluster of a scheduler.

Every worker holds one part: a range of shards with their local state. A pass is one task per part; statistics are added
in the same tree as by the local engine, so the same shards give the same bytes.

If a worker dies, all parts are placed again and the pass is repeated. Models that carry local state from pass to pass
need more: their parts start from a snapshot of that state, which the client takes every few passes, and repeat the
passes since. Parameters are sent as data, so that the scheduler forgets a pass as soon as the client releases it.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pydoc import locate
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

import crowdrank
from crowdrank._base import require_whole
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, ShardT, Sink
from crowdrank.engine.local import LocalPasses, MemoryStates, concatenate_rows, return_rows
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, InMemoryShards, Shard, Shards, shards_of
from crowdrank.engine.streaming import FileStates, select_arrays
from crowdrank.engine.tree_reduce import add_arrays, balanced_ranges, combine_subtrees, subtrees
from crowdrank.errors import ClusterError, Fix, UsageError
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

S = TypeVar("S")
T = TypeVar("T")

MAX_ATTEMPTS = 5
"""Maximum number of attempts at a pass if workers die."""
PASSES_PER_SNAPSHOT = 16
"""Number of passes between snapshots of the local state that a model carries."""
PENDING_PER_THREAD = 2
"""Number of pending tasks per thread of the cluster in `DaskEngine.each`."""
FANOUT = 4
"""Maximum number of workers that fetch the parameters from one worker."""
TIMEOUT = 30.0
"""Seconds to wait for a scheduler or for workers."""


class DaskEngine:
    """Run passes on a Dask cluster.

    The cluster starts when it is first needed and ends with `close` or the end of a `with` block. A cluster that is
    started here listens on the loopback interface only and accepts only clients with its TLS certificate, which is
    never written to disk: other users of the machine cannot run code on it.

    Args:
        address: address of a scheduler, such as `tcp://10.0.0.1:8786`; by default a cluster of processes is started on
            this machine.
        workers: number of processes to start; by default one per core.
        n_jobs: number of threads of each process to start.
        shard_size: approximate number of judgments per shard, for judgments in memory.
        dashboard: whether a cluster that is started here serves Dask's dashboard on a free loopback port, where other
            users of the machine can see it.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=5, documents=6, random_state=1)
    >>> with DaskEngine(workers=1) as engine:
    ...     model = DawidSkene().fit(world.judgments, engine=engine)
    >>> model.consensus_.documents.equals(DawidSkene().fit(world.judgments).consensus_.documents)
    True

    """

    is_cluster: ClassVar[bool] = True

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        n_jobs: int = 1,
        shard_size: int = JUDGMENTS_PER_SHARD,
        dashboard: bool = False,
    ) -> None:
        for name, value in (("workers", workers), ("n_jobs", n_jobs), ("shard_size", shard_size)):
            if value is not None:
                require_whole(name, value, 1)
        if address is not None and workers is not None:
            raise UsageError(f"cannot be set for the existing cluster at {address}", parameter="workers")
        self.address, self.workers, self.n_jobs = address, workers, n_jobs
        self.shard_size, self.dashboard = shard_size, dashboard
        self._client: Client | None = None
        self._cluster: LocalCluster | None = None

    @property
    def is_remote(self) -> bool:
        """Whether workers may be on other machines."""
        return self.address is not None

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: NDArray[np.int8] | ShardGold | None = None,
    ) -> DaskPasses[Shard]:
        """Return passes of a model over judgments; workers read shards on disk themselves."""
        return DaskPasses(self, model, shards_of(judgments, gold, model.locality, self.shard_size))

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> DaskPasses[ShardT]:
        """Return passes of a model over its own kind of shards."""
        return DaskPasses(self, model, InMemoryShards(shards))

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """Call a function with every item on the workers; yield the results in order, with few pending.

        If a worker dies, Dask repeats its calls on another worker.
        """
        function = self.client.submit(_identity, work, pure=False)
        max_pending = PENDING_PER_THREAD * sum(self.client.nthreads().values())
        pending: deque[Future[T]] = deque()
        try:
            for thing in things:
                pending.append(self.client.submit(_call, function, thing, pure=False))
                if len(pending) > max_pending:
                    yield self.gather(pending.popleft())
            while pending:
                yield self.gather(pending.popleft())
        except _worker_errors() as problem:
            raise self.error(problem) from problem
        finally:
            if pending:
                self.client.cancel(list(pending))

    @property
    def client(self) -> Client:
        """Dask client; the cluster is started or connected to on first use."""
        if self._client is None:
            self._client = self._start_cluster() if self.address is None else self._connect(self.address)
            try:
                self.wait_for_workers(1)
                self.require_same_version()
            except BaseException:
                self.close()
                raise
        return self._client

    def _start_cluster(self) -> Client:
        distributed = require_dask(own=True)
        import dask

        # Without the dashboard Dask still serves pages about workers and tasks over plain HTTP; remove them too.
        routes = {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
        with dask.config.set({} if self.dashboard else routes):
            self._cluster = distributed.LocalCluster(
                n_workers=self.workers or os.cpu_count() or 1,
                threads_per_worker=self.n_jobs,
                host="127.0.0.1",
                security=distributed.Security.temporary(),
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": self.dashboard},
                preload=["crowdrank.engine._dask_preload"],
                config=copy.deepcopy(dask.config.config),  # for workers that replace dead ones, too
                silence_logs=logging.CRITICAL,
            )
        return distributed.Client(self._cluster, set_as_default=False, direct_to_workers=True)

    def _connect(self, address: str) -> Client:
        distributed = require_dask()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about versions of other packages
                return distributed.Client(address, set_as_default=False, timeout=TIMEOUT / 3)
        except (OSError, ValueError) as problem:
            raise ClusterError(
                f"No Dask scheduler answers at {address} ({problem})",
                kind="no-scheduler",
                fix=["start one with `dask scheduler`", Fix("use {} for a cluster on this machine", "engine", "dask")],
            ) from problem

    def require_same_version(self) -> None:
        """Raise ClusterError unless all workers run this version of crowdrank."""
        expected = crowdrank.__version__
        for worker, version in self.client.run(locate, "crowdrank.__version__").items():
            if version != expected:
                installed = f"runs crowdrank {version}" if version else "has no crowdrank"
                raise ClusterError(
                    f"The worker at {worker} {installed}, the client {expected}",
                    kind="version-mismatch",
                    fix="install the same version on all machines",
                )

    def wait_for_workers(self, n: int) -> None:
        """Wait until the cluster has `n` workers; raise ClusterError if they do not come."""
        try:
            self.client.wait_for_workers(n, timeout=TIMEOUT)
        except TimeoutError as problem:
            raise ClusterError(
                f"The Dask scheduler at {self.scheduler_address} has fewer than {counted(n, 'worker')}",
                kind="no-workers",
                fix=f"start one with `dask worker {self.scheduler_address}`",
            ) from problem

    @property
    def scheduler_address(self) -> str:
        """Address of the scheduler."""
        return str(self.client.scheduler.address)

    @property
    def description(self) -> str:
        """Sentence about workers, scheduler and dashboard."""
        link = self.client.dashboard_link if self.address is not None or self.dashboard else None
        dashboard = f"; dashboard: {link}" if link else ""
        return f"Dask: {counted(len(self.client.nthreads()), 'worker')} at {self.scheduler_address}{dashboard}."

    def gather(self, future: Future[T]) -> T:
        """Return the result of a future."""
        try:
            return self.client.gather(future)
        except KeyboardInterrupt:
            # Dask's event loop would print the errors of transfers that the interrupt breaks off.
            self.client.loop.asyncio_loop.set_exception_handler(lambda loop, context: None)
            self.client.cancel([future])
            raise

    def error(self, problem: BaseException) -> ClusterError:
        """Return the ClusterError for an error of Dask: the scheduler is lost, or workers died."""
        reason = getattr(problem, "reason", "")
        if self._client is None or self._client.status != "running" or "scheduler-connection-lost" in reason:
            return ClusterError(
                f"The Dask scheduler at {self.address or 'this machine'} is gone", kind="scheduler-lost"
            )
        fix = "give them more memory, or start more workers"
        return ClusterError(f"Workers of the Dask cluster died repeatedly ({problem})", kind="workers-died", fix=fix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster; stop it if it was started here."""
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        if client is not None:
            client.close(timeout=TIMEOUT / 6)
        if cluster is not None:
            cluster.close(timeout=TIMEOUT / 6)


class DaskPasses(Generic[ShardT]):
    """Passes of a model over shards on workers."""

    def __init__(self, engine: DaskEngine, model: ShardModel[ShardT], shards: Shards[ShardT]) -> None:
        self.engine, self.client = engine, engine.client
        self.model, self.shards = _without_results(model), shards
        threads = self.client.nthreads()
        self.n_jobs = min(sum(threads.values()), os.cpu_count() or 1)  # between passes the workers are idle
        self._n_workers = len(threads)
        self._ranges = balanced_ranges(len(shards), self._n_workers)
        self._workers: list[str] = []
        self._parts: list[Future[_Part[ShardT]]] = []  # none until the first pass, and after a worker died
        self._snapshot: FileStates | None = None
        self._thetas: list[Arrays | None] = []  # of the passes since the snapshot, for models that carry state

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Make one pass; return the sum of the statistics of all shards."""
        self._parts, total = self._retry(partial(self._pass, theta))
        if self.model.carries != ():
            self._thetas.append(theta)
            if len(self._thetas) >= PASSES_PER_SNAPSHOT:
                self._take_snapshot(self.local_state())
        return total

    def _pass(self, theta: Arrays | None) -> tuple[list[Future[_Part[ShardT]]], Arrays]:
        parts, sums, n = [], {}, len(self.shards)
        for number, (shards, sent) in enumerate(zip(self._ranges, self._broadcast(theta), strict=True)):
            trees = subtrees(n, shards)
            sizes = [last - first for first, last in trees]
            part = self._submit(number, _accumulate, self.model, self._parts[number], sent, sizes)
            parts.append(part)
            sums |= {tree: self.client.submit(_subtree_sum, part, i, pure=False) for i, tree in enumerate(trees)}
        total = combine_subtrees(sums, (0, n), partial(self.client.submit, add_arrays, pure=False))
        return parts, self.engine.gather(total)

    def watch(self, report: Callable[[float], None]) -> None:
        """Report nothing: all parts of a pass run at once and end at about the same time."""

    def finish(self, theta: Arrays) -> Arrays:
        """Return the rows of all shards, in the order of the items."""
        return concatenate_rows(self.finish_to(theta, return_rows))

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Pass the rows of every shard to `sink` on its worker; yield what it returns, in order."""
        return self._each_shard(lambda number: (_finish, theta, sink, self._ranges[number][0]))

    def local_state(self) -> Iterator[Arrays]:
        """Yield the carried arrays of each shard."""
        return self._each_shard(lambda number: (_carried_arrays,))

    def restore(self, states: Iterable[Arrays]) -> None:
        """Set the carried arrays of each shard."""
        self._take_snapshot(states)
        self._parts = []

    def _take_snapshot(self, states: Iterable[Arrays]) -> None:
        if self._snapshot is None:
            self._snapshot = FileStates(len(self.shards))
        for place, arrays in enumerate(states):
            self._snapshot.save(place, arrays)
        self._snapshot.commit()
        self._thetas = []

    def _each_shard(self, task: Callable[[int], tuple[Any, ...]]) -> Iterator[Arrays]:
        """Run a task on every part at once; fetch the results of one part at a time and yield those of its shards.

        Args:
            task: function that returns, for the number of a part, the function to run and its further arguments.

        """
        futures: dict[int, Future[list[Arrays]]] = {}

        def fetch(number: int) -> list[Arrays]:
            try:
                if not futures:
                    for later in range(number, len(self._ranges)):
                        work, *arguments = task(later)
                        futures[later] = self._submit(later, work, self.model, self._parts[later], *arguments)
                return self.engine.gather(futures[number])
            except BaseException:
                futures.clear()
                raise

        for number in range(len(self._ranges)):
            yield from self._retry(partial(fetch, number))
            del futures[number]

    def _retry(self, work: Callable[[], T]) -> T:
        """Run work on the parts; if a worker dies, place all parts again and repeat the work."""
        for _ in range(MAX_ATTEMPTS):
            try:
                if not self._parts:
                    self._place_parts()
                return work()
            except _worker_errors() as problem:
                error = self.engine.error(problem)
                error.__cause__ = problem
                if error.kind == "scheduler-lost":
                    raise error from problem
                self._parts = []
        raise error

    def _place_parts(self) -> None:
        """Start all parts on the workers, from the snapshot and the passes since."""
        from distributed import wait

        own = (
            self.engine.address is None
        )  # then dead workers are replaced: wait for them, one part per worker is faster
        self.engine.wait_for_workers(self._n_workers if own else 1)
        self.engine.require_same_version()
        available = sorted(self.client.nthreads())
        self._workers = [available[number % len(available)] for number in range(len(self._ranges))]
        thetas = [self._send(theta) for theta in self._thetas]
        parts = []
        for number, (first, last) in enumerate(self._ranges):
            shards = self._send(self.shards.part(first, last), self._workers[number])
            states = None
            if self._snapshot is not None:
                states = self._send([self._snapshot.load(place) for place in range(first, last)], self._workers[number])
            parts.append(self._submit(number, _start_part, self.model, shards, states, thetas))
        with self.client.as_current():
            wait(parts)  # before what was sent is released
        self._parts = parts

    def _send(self, data: T, worker: str | None = None) -> Future[T]:
        """Send data to a worker."""
        (future,) = self.client.scatter([data], workers=None if worker is None else [worker], hash=False)
        return future

    def _broadcast(self, theta: Arrays | None) -> list[Future[Arrays | None]]:
        """Send parameters along a tree of workers; return a future for each part.

        Dask's own broadcast never returns if a worker dies meanwhile.
        """
        futures = [self._send(theta)]
        for number in range(1, len(self._ranges)):
            futures.append(self._submit(number, _identity, futures[(number - 1) // FANOUT]))
        return futures

    def _submit(self, number: int, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a function on the worker of a part, or on another one if that worker is gone."""
        return self.client.submit(
            work, *arguments, workers=[self._workers[number]], allow_other_workers=True, pure=False
        )


# Functions that run on workers.


@dataclass(frozen=True)
class _Part(Generic[ShardT]):
    """Shards of a part, their local state and, after a pass, the sums of their subtrees."""

    shards: InMemoryShards[ShardT]
    states: MemoryStates
    sums: list[Arrays]


def _passes(model: ShardModel[ShardT], shards: InMemoryShards[ShardT], states: MemoryStates) -> LocalPasses[ShardT]:
    """Return passes in all threads of this worker."""
    from distributed import get_worker

    return LocalPasses(model, shards, get_worker().state.nthreads, states)


def _start_part(
    model: ShardModel[ShardT], shards: Shards[ShardT], carried: list[Arrays] | None, thetas: list[Arrays | None]
) -> _Part[ShardT]:
    """Load the shards of a part and repeat passes from the carried arrays of a snapshot."""
    loaded = InMemoryShards([shards.load(place) for place in range(len(shards))])
    states = MemoryStates(len(loaded))
    passes = _passes(model, loaded, states)
    if carried is not None:
        passes.restore(carried)
    for theta in thetas:
        passes.accumulate(theta)
    return _Part(loaded, states, [])


def _accumulate(
    model: ShardModel[ShardT], part: _Part[ShardT], theta: Arrays | None, sizes: list[int]
) -> _Part[ShardT]:
    """Make a pass over a part; the part before the pass stays valid."""
    states = part.states.copy()
    sums = _passes(model, part.shards, states).subtree_sums(theta, sizes)
    return _Part(part.shards, states, sums)


def _subtree_sum(part: _Part[ShardT], number: int) -> Arrays:
    return part.sums[number]


def _finish(
    model: ShardModel[ShardT], part: _Part[ShardT], theta: Arrays, sink: Sink, first_shard: int
) -> list[Arrays]:
    """Return what the sink returns for the rows of each shard."""
    passes = _passes(model, part.shards, part.states)
    return list(passes.finish_to(theta, lambda place, rows: sink(first_shard + place, rows)))


def _carried_arrays(model: ShardModel[ShardT], part: _Part[ShardT]) -> list[Arrays]:
    return [select_arrays(part.states.load(place), model.carries) for place in range(len(part.shards))]


def _identity(value: T) -> T:
    return value


def _call(function: Callable[[S], T], argument: S) -> T:
    return function(argument)


# Further functions of the client.


def _without_results(model: ShardModel[ShardT]) -> ShardModel[ShardT]:
    """Return a copy of a model without fitted attributes, which passes do not read and which may be large."""
    bare = copy.copy(model)
    for name in [name for name in vars(bare) if name.endswith("_")]:
        delattr(bare, name)
    return bare


def _worker_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that Dask raises if a worker or the scheduler is lost."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    return CancelledError, KilledWorker, CommClosedError, TimeoutError


def require_dask(own: bool = False) -> Any:
    """Return the package `distributed`; raise UsageError unless it is installed.

    Args:
        own: whether a cluster will be started here, which needs `cryptography` too.

    """
    try:
        import distributed

        if own:
            import cryptography  # noqa: F401
    except ImportError as problem:
        raise UsageError(
            f"The Dask engine needs the package {problem.name}, which is not installed",
            kind="missing-package",
            fix="pip install 'crowdrank[dask]'",
        ) from problem
    return distributed
