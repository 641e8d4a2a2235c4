"""Engine on a Dask cluster: processes on this machine, or an existing cluster."""

from __future__ import annotations

import copy
import logging
import operator
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pydoc import locate
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import crowdrank
from crowdrank._base import require_integer
from crowdrank._text import counted
from crowdrank.engine.base import ShardModel, ShardT
from crowdrank.engine.dask_passes import DaskPasses, identity, worker_errors
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, InMemoryShards, ItemScores, Shard, shards_of
from crowdrank.errors import ClusterError, DataWarning, Fix, UsageError
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

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
SECONDS_BETWEEN_POLLS = 0.2
"""Seconds between two requests for the list of workers."""
SECONDS_BETWEEN_CHECKS = 5.0
"""Seconds between two requests for the states of the workers, while the client waits for results."""
PAUSE_TIMEOUT_SECONDS = 60.0
"""Seconds to wait for paused workers if no worker computes anything."""
LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")
"""Names of the loggers of Dask in this process; failures are reported by ClusterError instead."""


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
        return DaskPasses(self, model, shards_of(judgments, gold, model.locality, self.shard_size, scores))

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> DaskPasses[ShardT]:
        """Return an object that runs passes of a model over other shards than judgments, such as blocks of rows."""
        return DaskPasses(self, model, InMemoryShards(shards))

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument on the workers; yield the results in order, with few pending.

        If a worker dies, Dask repeats its calls on another worker.
        """
        function_future = self.client.submit(identity, function, pure=False)
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
            raise self.error(problem) from problem
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
        for logger in map(logging.getLogger, LOGGERS):
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
            time.sleep(SECONDS_BETWEEN_POLLS)
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
                    wait(futures, timeout=SECONDS_BETWEEN_CHECKS)  # type: ignore[no-untyped-call]
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

    def error(self, dask_error: BaseException) -> ClusterError:
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
