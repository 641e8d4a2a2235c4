"""Engine on a Dask cluster: processes on this machine, or an existing cluster.

Every worker holds one part: a range of shards with their local state. A pass is one task per part; statistics are added
in the same tree as by the local engine, so the same shards give the same bytes.

If a worker dies, all parts are sent to workers again and the pass is repeated. Models that read local state of the
previous pass need more: their parts start from a snapshot of that state, which the client takes every few passes, and
repeat the passes since. Parameters are sent as data, so that the scheduler forgets a pass as soon as the client does.
"""

from __future__ import annotations

import copy
import logging
import operator
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pydoc import locate
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import crowdrank
from crowdrank._estimator import require_integer
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.engine.passes import (
    FileStates,
    LocalPasses,
    MemoryStates,
    Range,
    ShardModel,
    ShardT,
    Sink,
    add_arrays,
    balanced_ranges,
    combine_subtrees,
    concatenate_rows,
    select_arrays,
    subtrees,
)
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, InMemoryShards, ItemScores, Shard, Shards, make_shards
from crowdrank.errors import ClusterError, DataWarning, Fix, UsageError
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

if TYPE_CHECKING:
    from distributed import Future

S = TypeVar("S")
T = TypeVar("T")
Client = Any
"""Type of a `distributed.Client`; Any, because the class has few type annotations."""

PENDING_TASKS_PER_THREAD = 2
"""Maximum number of pending tasks per thread of the cluster in `DaskEngine.each`."""
CLUSTER_TIMEOUT_SECONDS = 30.0
"""Seconds to wait for a scheduler, or for workers of an existing cluster."""
START_TIMEOUT_SECONDS = 120.0
"""Seconds to wait for workers that crowdrank starts; a busy machine starts processes slowly."""
SECONDS_BETWEEN_WORKER_POLLS = 0.2
"""Seconds between two requests for the list of workers."""
SECONDS_BETWEEN_STATE_CHECKS = 5.0
"""Seconds between two requests for the states of the workers, while the client waits for results."""
PAUSE_TIMEOUT_SECONDS = 60.0
"""Seconds to wait for paused workers if no worker computes anything."""
DASK_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")
"""Names of the loggers of Dask in this process; failures are reported by ClusterError instead."""
MAX_PASS_ATTEMPTS = 5
"""Maximum number of attempts to run a pass if workers die."""
PASSES_PER_SNAPSHOT = 16
"""Number of passes between two snapshots of the local state that a model needs in the next pass."""
SEND_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for a worker to which data is sent, in case it died."""
MAX_COPIES_PER_WORKER = 4
"""Maximum number of workers that copy the model parameters from one worker."""


class DaskEngine:
    """Run passes on a Dask cluster.

    The cluster starts when it is first needed and ends with `close` or the end of a `with` block. A cluster that is
    started here listens on the loopback interface only and accepts only clients with its TLS certificate, which is
    kept in memory: other users of the machine cannot run code on it.

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
                require_integer(name, value, 1)
        if address is not None and workers is not None:
            raise UsageError(f"cannot be set for the existing cluster at {address}", parameter="workers")
        self.address, self.workers, self.n_jobs = address, workers, n_jobs
        self.shard_size, self.dashboard = shard_size, dashboard
        self._client: Client = None
        self._cluster: Any = None
        self._log_levels: dict[str, int] = {}
        self._paused_since: float | None = None

    @property
    def is_remote(self) -> bool:
        """Whether workers may be on other machines."""
        return self.address is not None

    def open(
        self,
        model: ShardModel[Shard],
        judgments: Judgments | ShardedJudgments,
        gold: ItemGold | ShardGold | None = None,
        scores: ItemScores | None = None,
    ) -> DaskPasses[Shard]:
        """Return an object that runs passes of a model over judgments; workers read shards on disk themselves."""
        return DaskPasses(self, model, make_shards(judgments, gold, model.locality, self.shard_size, scores))

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> DaskPasses[ShardT]:
        """Return an object that runs passes of a model over shards that hold no judgments, such as blocks of rows."""
        return DaskPasses(self, model, InMemoryShards(shards))

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument on the workers; yield the results in order, with few pending.

        If a worker dies, Dask repeats its calls on another worker.
        """
        function_future = self.client.submit(copy_to_worker, function, pure=False)
        max_pending = PENDING_TASKS_PER_THREAD * sum(self.client.nthreads().values())
        pending: deque[Future[T]] = deque()
        try:
            for argument in arguments:
                pending.append(self.client.submit(operator.call, function_future, argument, pure=False))
                if len(pending) > max_pending:
                    yield self.gather(pending.popleft())
            while pending:
                yield self.gather(pending.popleft())
        except worker_errors() as problem:
            raise self.cluster_error(problem) from problem
        finally:
            if pending:
                self.client.cancel(list(pending))

    @property
    def client(self) -> Client:
        """Dask client; its first use starts the cluster or connects to it."""
        if self._client is None:
            self._silence_loggers()
            try:
                self._client = self._start_cluster() if self.address is None else self._connect(self.address)
                self.wait_for_workers(1)
                self.require_same_version()
            except BaseException:
                self.close()
                raise
        return self._client

    def _silence_loggers(self) -> None:
        require_dask()  # sets the levels when it is imported
        for logger in map(logging.getLogger, DASK_LOGGERS):
            self._log_levels[logger.name] = logger.level
            logger.setLevel(logging.CRITICAL)

    def _start_cluster(self) -> Client:
        distributed = require_dask(starts_cluster=True)
        import dask

        # Without the dashboard Dask still serves pages about workers and tasks over plain HTTP; remove them too.
        routes: dict[str, Any] = {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
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
                return distributed.Client(address, set_as_default=False, timeout=CLUSTER_TIMEOUT_SECONDS / 3)
        except (OSError, ValueError) as problem:
            raise ClusterError(
                f"No Dask scheduler answers at {address} ({problem})",
                kind="no-scheduler",
                fix=["start one with `dask scheduler`", Fix("use {} for a cluster on this machine", "engine", "dask")],
            ) from problem

    def require_same_version(self) -> None:
        """Raise ClusterError unless all workers run this version of crowdrank."""
        expected = crowdrank.__version__
        versions = self.client.run(locate, "crowdrank.__version__", on_error="return")
        for worker, version in versions.items():
            if version != expected and not isinstance(version, OSError):  # OSError: the worker died meanwhile
                state = f"runs crowdrank {version}" if isinstance(version, str) else "cannot import crowdrank"
                reason = f" ({version})" if isinstance(version, Exception) else ""
                raise ClusterError(
                    f"The worker at {worker} {state}{reason}, the client runs {expected}",
                    kind="version-mismatch",
                    fix="install the same version on all machines",
                )

    def wait_for_workers(self, n_workers: int) -> list[str]:
        """Wait until the cluster has `n_workers` workers; return their addresses, or fewer after a timeout.

        Unlike `distributed.Client.wait_for_workers`, this asks the scheduler, and not the list of a `LocalCluster`,
        which may contain dead workers.

        Raises:
            ClusterError: the cluster has no workers.

        """
        deadline = time.monotonic() + (CLUSTER_TIMEOUT_SECONDS if self.is_remote else START_TIMEOUT_SECONDS)
        while len(addresses := sorted(self.client.nthreads())) < n_workers and time.monotonic() < deadline:
            if self._cluster is not None:  # a LocalCluster abandons workers that do not restart within 15 seconds
                self._cluster.scale(len(self._cluster.worker_spec))
            time.sleep(SECONDS_BETWEEN_WORKER_POLLS)
        if not addresses:
            raise ClusterError(
                f"The Dask scheduler at {self.scheduler_address} has no workers",
                kind="no-workers",
                fix=f"start one with `dask worker {self.scheduler_address}`" if self.is_remote else (),
            )
        return addresses

    def gather(self, future: Future[T]) -> T:
        """Return the result of a future; see :meth:`wait`."""
        self.wait([future])
        result: T = self.client.gather(future)
        return result

    def wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all futures are computed.

        Raises:
            ClusterError: workers stay paused, see :meth:`require_unpaused`.

        """
        from distributed import wait

        with self.client.as_current():
            while True:
                try:
                    wait(futures, timeout=SECONDS_BETWEEN_STATE_CHECKS)  # type: ignore[no-untyped-call]
                    break
                except TimeoutError:
                    self.require_unpaused()
        self._paused_since = None

    def running_workers(self) -> list[str]:
        """Return the addresses of the workers that are not paused."""
        return [address for address, worker in self._worker_states().items() if worker["status"] == "running"]

    def _worker_states(self) -> dict[str, Any]:
        states: dict[str, Any] = self.client.sync(self.client.scheduler.identity)["workers"]
        return states

    def require_unpaused(self) -> None:
        """Warn if workers are paused because they use too much memory, and nothing is computed.

        Raises:
            ClusterError: that has been so for PAUSE_TIMEOUT_SECONDS.

        """
        workers = list(self._worker_states().values())
        paused = [worker for worker in workers if worker["status"] == "paused"]
        if not paused or any(worker["metrics"]["task_counts"].get("executing") for worker in workers):
            self._paused_since = None
            return
        limit = f"{min(worker['memory_limit'] for worker in paused) / 2**30:.3g} GiB"
        number = f"{len(paused)} of {counted(len(workers), 'worker')} of the Dask cluster"
        problem = f"{number} paused for lack of memory (limit: {limit} each)"
        more = "give each worker more memory (the memory limit of `dask worker`)"
        fewer = "start fewer workers, so that each has more memory (`DaskEngine(workers=1)`)"
        fixes = (more if self.is_remote else fewer, Fix("use {}, which holds the data once", "engine", "local"))
        now = time.monotonic()
        if self._paused_since is None:
            self._paused_since = now
            waiting = f"{problem}; crowdrank waits {PAUSE_TIMEOUT_SECONDS:.0f} seconds for them"
            warnings.warn(DataWarning(waiting, kind="workers-paused"), stacklevel=2)
        if now - self._paused_since >= PAUSE_TIMEOUT_SECONDS:
            self._paused_since = None
            raise ClusterError(problem, kind="workers-paused", fix=fixes)

    @property
    def scheduler_address(self) -> str:
        """Address of the scheduler."""
        return str(self.client.scheduler.address)

    @property
    def description(self) -> str:
        """Sentence for the user about workers, scheduler and dashboard."""
        link = self.client.dashboard_link if self.address is not None or self.dashboard else None
        dashboard = f"; dashboard: {link}" if link else ""
        return f"Dask: {counted(len(self.client.nthreads()), 'worker')} at {self.scheduler_address}{dashboard}."

    def cluster_error(self, dask_error: BaseException) -> ClusterError:
        """Return the ClusterError for an exception of Dask: the connection was lost, or workers died."""
        reason = getattr(dask_error, "reason", "")
        if self._client is None or self._client.status != "running" or "scheduler-connection-lost" in reason:
            return ClusterError(
                f"The Dask scheduler at {self.address or 'this machine'} is gone", kind="scheduler-lost"
            )
        fix = "give them more memory, or start more workers"
        return ClusterError(f"Workers of the Dask cluster died repeatedly ({dask_error})", kind="workers-died", fix=fix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster; stop it if it was started here."""
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        if client is not None:
            client.close(timeout=CLUSTER_TIMEOUT_SECONDS / 6)
        if cluster is not None:
            cluster.close(timeout=CLUSTER_TIMEOUT_SECONDS / 6)
        while self._log_levels:
            name, level = self._log_levels.popitem()
            logging.getLogger(name).setLevel(level)


def require_dask(starts_cluster: bool = False) -> Any:
    """Return the package `distributed`; raise UsageError unless it is installed.

    Args:
        starts_cluster: whether crowdrank will start the cluster, which needs the package `cryptography` too.

    """
    try:
        import distributed

        if starts_cluster:
            import cryptography  # noqa: F401
    except ImportError as problem:
        raise UsageError(
            f"The Dask engine needs the package {problem.name}, which is not installed",
            kind="missing-package",
            fix="pip install 'crowdrank[dask]'",
        ) from problem
    return distributed


def worker_errors() -> tuple[type[BaseException], ...]:
    """Return the exception classes that Dask raises if a worker or the scheduler is lost."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    return CancelledError, KilledWorker, CommClosedError


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
        self._parts: list[Future[_WorkerPart[ShardT]]] = []  # none until the first pass, and after a worker died
        self._snapshot: FileStates | None = None
        self._thetas: list[Arrays | None] = []  # of the passes since the snapshot, for models that carry state

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """Run one pass with model parameters `theta`; return the sum of the statistics of all shards."""
        if len(self._thetas) >= PASSES_PER_SNAPSHOT:
            self._take_snapshot(self.local_state())
        self._parts, total = self._retry(partial(self._run_pass, theta))
        if self.model.carries != ():
            self._thetas.append(theta)
        return total

    def _run_pass(self, theta: Arrays | None) -> tuple[list[Future[_WorkerPart[ShardT]]], Arrays]:
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
        for _ in range(MAX_PASS_ATTEMPTS):
            try:
                if not self._parts:
                    self._create_parts()
                return function()
            except errors as problem:
                error = self.engine.cluster_error(problem)
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
        thetas = [self._send_to_worker(theta) for theta in self._thetas]
        parts = []
        for number, (first, last) in enumerate(self._ranges):
            shards = self._send_to_worker(self.shards.subset(first, last), self._workers[number])
            states = None
            if self._snapshot is not None:
                states = self._send_to_worker(
                    [self._snapshot.load(shard_index) for shard_index in range(first, last)], self._workers[number]
                )
            parts.append(self._submit(number, _start_part, self.model, first, shards, states, thetas))
        self.engine.wait(parts)  # before what was sent is released
        self._parts = parts

    def _send_to_worker(self, data: T, worker_address: str | None = None) -> Future[T]:
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
        futures = [self._send_to_worker(theta)]
        for number in range(1, len(self._ranges)):
            futures.append(self._submit(number, copy_to_worker, futures[(number - 1) // MAX_COPIES_PER_WORKER]))
        return futures

    def _submit(self, part_index: int, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a function on the worker that holds a part, or on another one if that worker died."""
        placement: dict[str, Any] = {"workers": [self._workers[part_index]], "allow_other_workers": True}
        future: Future[T] = self.client.submit(function, *arguments, **placement, pure=False)
        return future


# Functions that run on workers.


@dataclass(frozen=True)
class _WorkerPart(Generic[ShardT]):
    """Shards that one worker holds, with their local state and the sums of statistics of the last pass."""

    first_shard: int
    shards: InMemoryShards[ShardT]
    states: MemoryStates
    sums: list[Arrays]


def _start_part(
    model: ShardModel[ShardT],
    first_shard: int,
    shards: Shards[ShardT],
    carried_arrays: list[Arrays] | None,
    thetas: list[Arrays | None],
) -> _WorkerPart[ShardT]:
    """Load the shards of a part, restore their arrays from a snapshot, and repeat the passes since."""
    loaded = InMemoryShards([shards.load(shard_index) for shard_index in range(len(shards))])
    states = MemoryStates(len(loaded))
    passes = _worker_passes(model, loaded, states)
    if carried_arrays is not None:
        passes.restore(carried_arrays)
    for theta in thetas:
        passes.accumulate(theta)
    return _WorkerPart(first_shard, loaded, states, [])


def _accumulate(
    model: ShardModel[ShardT], part: _WorkerPart[ShardT], theta: Arrays | None, subtree_sizes: list[int]
) -> _WorkerPart[ShardT]:
    """Run a pass over a part; return the new part and leave the old one unchanged."""
    states = part.states.copy()
    sums = _worker_passes(model, part.shards, states).subtree_sums(theta, subtree_sizes)
    return replace(part, states=states, sums=sums)


def _worker_passes(
    model: ShardModel[ShardT], shards: InMemoryShards[ShardT], states: MemoryStates
) -> LocalPasses[ShardT]:
    """Return an object that runs passes in all threads of this worker."""
    from distributed import get_worker

    return LocalPasses(model, shards, get_worker().state.nthreads, states)


def _subtree_sum(part: _WorkerPart[ShardT], subtree_index: int) -> Arrays:
    return part.sums[subtree_index]


def _finish(model: ShardModel[ShardT], part: _WorkerPart[ShardT], theta: Arrays, sink: Sink) -> list[Arrays]:
    """Return the summary that `sink` makes of the result rows of each shard of a part."""
    passes = _worker_passes(model, part.shards, part.states)
    return list(passes.finish_into(theta, lambda shard_index, rows: sink(part.first_shard + shard_index, rows)))


def _carried_arrays(model: ShardModel[ShardT], part: _WorkerPart[ShardT]) -> list[Arrays]:
    return [select_arrays(part.states.load(shard_index), model.carries) for shard_index in range(len(part.shards))]


def copy_to_worker(data: T) -> T:
    """Return the data unchanged; run as a Dask task on a worker, this copies the data to it."""
    return data


# Further functions of the client.


def _without_fitted_attributes(model: ShardModel[ShardT]) -> ShardModel[ShardT]:
    """Return a copy of a model without fitted attributes, which may be large and are not needed in passes."""
    bare = copy.copy(model)
    for name in [name for name in vars(bare) if name.endswith("_")]:
        delattr(bare, name)
    return bare
