"""Passes on a Dask cluster: processes on this machine, or whatever stands behind a scheduler's address.

Every worker holds one part: a run of shards with their local state. A pass is one task for each part; statistics are
added in the tree of `sums.py`, as the local engine does, so that the same shards give the same bytes.

Workers may die. What they held is made again: shards are sent (or read) once more, local state is `start` and the
passes since; for models that carry state from pass to pass a copy on another worker, renewed now and then, keeps those
few. No pass is ever part of a longer history on the scheduler: parameters are sent as plain data, and data that is let
go takes the history of what was made from it along.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import NDArray

import crowdrank
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, Sink
from crowdrank.engine.local import LocalPasses, together
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, HeldShards, StoredShards, shards_of
from crowdrank.engine.tree_reduce import Run, added, joined, parts, subtrees
from crowdrank.errors import ClusterError, UsageError
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")
Future = Any
"""A Dask future: what it stands for lives on a worker."""
State = tuple[list[Arrays], list[Arrays]]
"""What a pass leaves on a worker: the local state of a part's shards, and the sums of its subtrees."""

ATTEMPTS = 5
"""So often the same work is begun again after workers died, before it is held to be what kills them."""
COPY_EVERY = 16
"""Passes between copies of local state onto another worker, where a model carries it."""
AHEAD = 2
"""So many pieces of work wait for each thread."""
SERVES = 4
"""So many workers take the parameters from one."""
PATIENCE = 30.0
"""Seconds to wait for a scheduler, and for workers to come (back)."""


class DaskEngine:
    """Runs passes on a Dask cluster.

    Args:
        address: of a scheduler, as in `tcp://10.0.0.1:8786`; by default a cluster of processes is started here.
        workers: how many processes to start here; as many as there are cores, unless said.
        n_jobs: of each of them.
        shard_size: judgments in a shard, about.
        dashboard: serve Dask's dashboard of a cluster started here, on a free port of this machine. Other users of this
            machine can look at it.

    The cluster starts when it is first needed, and ends with `close` or the end of a `with`. One that is started here
    listens on this machine alone and takes only clients that have its certificate (TLS), which stays in memory: other
    users of the machine cannot run code on it.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=5, documents=6, random_state=1)
    >>> with DaskEngine(workers=1) as engine:
    ...     there = DawidSkene().fit(world.judgments, engine=engine)
    >>> there.consensus_.documents.equals(DawidSkene().fit(world.judgments).consensus_.documents)
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
            if value is not None and value < 1:
                raise UsageError(f"{name} is a number from 1 up, not {value}.")
        if address is not None and workers is not None:
            raise UsageError(f"workers are started here only; those of {address} are what they are.")
        self.address, self.workers, self.n_jobs = address, workers, n_jobs
        self.shard_size, self.dashboard = shard_size, dashboard
        self._client: Any = None
        self._cluster: Any = None

    def __repr__(self) -> str:
        return f"DaskEngine({self.address or ''!r})" if self.address else f"DaskEngine(workers={self.workers})"

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines."""
        return self.address is not None

    def open(
        self, model: ShardModel, judgments: Judgments | ShardedJudgments, gold: NDArray[Any] | ShardGold | None = None
    ) -> DaskPasses:
        """Deal shards out to the workers, who load those on disk themselves, and start the model on each."""
        shards = shards_of(judgments, gold, model.locality, self.shard_size)
        return self.passes(model, shards.shards) if isinstance(shards, HeldShards) else DaskPasses(self, model, shards)

    def passes(self, model: ShardModel, shards: Sequence[Any]) -> DaskPasses:
        """Start a model on shards of any kind."""
        return DaskPasses(self, model, shards)

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """`work` on every thing, on the workers; results in order, as soon as each is there. Few wait: they add up.

        Where a worker dies, Dask itself gives its work to another: it must bear being done again.
        """
        held = self.client.submit(_same, work, pure=False)
        ahead = AHEAD * sum(self.client.nthreads().values())
        waiting: deque[Future] = deque()
        try:
            for thing in things:
                waiting.append(self.client.submit(_call, held, thing, pure=False))
                if len(waiting) > ahead:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            if waiting:
                self.client.cancel(list(waiting))

    def _result(self, future: Future) -> Any:
        from distributed import CancelledError

        try:
            return future.result()
        except CancelledError as problem:
            self.require_scheduler(problem)
            raise

    @property
    def client(self) -> Any:
        """Dask's client; the cluster is started, or the scheduler called, when it is first asked for."""
        if self._client is None:
            self._client = self._called() if self.address is not None else self._started()
            try:
                self._require_workers()
            except BaseException:
                self.close()
                raise
        return self._client

    def _started(self) -> Any:
        distributed = require_dask(own=True)
        import dask

        # Without a dashboard Dask still serves pages about workers and tasks over plain HTTP: then there are none.
        pages: dict[str, Any] = (
            {} if self.dashboard else {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
        )
        with dask.config.set(pages):
            self._cluster = distributed.LocalCluster(
                n_workers=self.workers or os.cpu_count() or 1,
                threads_per_worker=self.n_jobs,
                host="127.0.0.1",
                security=distributed.Security.temporary(),
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": self.dashboard},
                preload=["crowdrank.engine._dask_preload"],
                config=copy.deepcopy(dask.config.config),  # of workers that are started later, too
                silence_logs=logging.CRITICAL,  # what matters of it we say ourselves
            )
        return distributed.Client(self._cluster, set_as_default=False, direct_to_workers=True)

    def _called(self) -> Any:
        distributed = require_dask()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other versions of other packages
                return distributed.Client(self.address, set_as_default=False, timeout=PATIENCE / 3)
        except (OSError, ValueError) as problem:
            raise ClusterError(
                f"No Dask scheduler answers at {self.address} ({problem}); start one with `dask scheduler`, or leave "
                "the address out for a cluster on this machine."
            ) from problem

    def _require_workers(self) -> None:
        """Workers are there, and run this crowdrank."""
        from pydoc import locate  # imports by name, and is everywhere: what is not there is None

        self.wait_for_workers(1)
        found = self._client.run(locate, "crowdrank.__version__")
        for worker, version in found.items():
            require_version(version, worker)

    def wait_for_workers(self, n: int, timeout: float = PATIENCE) -> None:
        """Wait until `n` workers are there."""
        try:
            self.client.wait_for_workers(n, timeout=timeout)
        except TimeoutError as problem:
            raise ClusterError(
                f"The Dask scheduler at {self.scheduler} has no workers; start some with "
                f"`dask worker {self.scheduler}`."
            ) from problem

    @property
    def scheduler(self) -> str:
        """The scheduler's address."""
        return str(self.client.scheduler.address)

    @property
    def about(self) -> str:
        """What runs where, in a sentence.

        It names the dashboard, where passes can be watched.
        """
        n = counted(len(self.client.nthreads()), "worker")
        link = self.client.dashboard_link if self.address is not None or self.dashboard else None
        watched = f"; watch them at {link}" if link else ""
        return f"Dask: {n} at {self.scheduler}{watched}."

    def require_scheduler(self, problem: BaseException) -> None:
        """Say so where the scheduler is gone."""
        reason = getattr(problem, "reason", "")
        if self._client is None or self._client.status != "running" or "scheduler-connection-lost" in reason:
            raise ClusterError(f"The Dask scheduler at {self.address or 'this machine'} is gone.") from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster, if it was started here, and let go of it."""
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        if client is not None:
            client.close(timeout=PATIENCE / 6)
        if cluster is not None:
            cluster.close(timeout=PATIENCE / 6)


class DaskPasses:
    """A model opened on shards that live on workers."""

    def __init__(self, engine: DaskEngine, model: ShardModel, shards: Sequence[Any] | StoredShards) -> None:
        self.engine, self.client, self.shards = engine, engine.client, shards
        self.model, self.carries = _bare(model), model.carries != ()
        cores = self.client.nthreads()
        workers = sorted(cores)
        self.n_workers = len(workers)
        # Between passes the workers rest: where they are here, their cores are free; else this machine is ours.
        self.n_jobs = min(sum(cores.values()), os.cpu_count() or 1)
        self.runs = parts(len(shards), self.n_workers)
        # How the state came about: what it was, and the passes since.
        self.base: list[list[Arrays] | Future | None] = [None] * len(self.runs)
        self.thetas: list[Arrays | None] = []
        self.places = [""] * len(self.runs)
        self.data: list[Future] = [None] * len(self.runs)
        self.state: list[Future] = [None] * len(self.runs)
        self.told: Callable[[float], None] | None = None
        self.whole = True  # the state is all that a pass left, not only what is carried

        def begin() -> None:
            for number, worker in zip(range(len(self.runs)), workers * 2, strict=False):
                self._send(number, worker)
                self._make_state(number)
            self._gathered([self.client.submit(_nothing, state, pure=False) for state in self.state])

        self._lasting(begin)

    # What the loop asks for.

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """One pass over all shards; the sum of their statistics."""

        def one() -> tuple[list[Future], Arrays]:
            passed: list[Future] = []
            sums: dict[Run, Future] = {}
            held = zip(self.data, self.state, self._sent_to_all(theta), strict=True)
            for number, (run, part) in enumerate(zip(self.runs, held, strict=True)):
                trees = subtrees(len(self.shards), run)
                done = self._submitted(number, _pass, self.model, *part, [last - first for first, last in trees])
                passed.append(done)
                sums |= {tree: self.client.submit(_sum, done, place, pure=False) for place, tree in enumerate(trees)}
            self._tell_of(passed)
            total = joined(sums, (0, len(self.shards)), lambda a, b: self.client.submit(added, a, b, pure=False))
            return passed, self._gathered([total])[0]

        passed, total = self._lasting(one)
        self.state, self.whole = passed, True
        self._remember(theta)
        return total

    def watch(self, told: Callable[[float], None]) -> None:
        """Call a function with the share of a pass that is done, whenever it has grown."""
        self.told = told

    def _tell_of(self, passed: list[Future]) -> None:
        told, done = self.told, count(1)
        if told is None:
            return

        def one(_: Future) -> None:
            share = next(done) / len(passed)
            if share < 1:  # after the last one the pass itself is told of
                told(share)

        for future in passed:
            future.add_done_callback(one)

    def finish(self, theta: Arrays) -> Arrays:
        """The rows of all shards, in the order of the items."""
        return together(self.finish_to(theta, _given))

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Give the rows of every shard to `sink` on its worker; what it returned, in the order of the shards.

        All workers work at once; what comes back is held here a part at a time.
        """
        made: dict[int, Future] = {}
        for number in range(len(self.runs)):

            def one(number: int = number) -> list[Arrays]:
                if not made:  # at first, and where workers died: what was not had yet
                    sent = self._sent_to_all(theta)
                    for other in range(number, len(self.runs)):
                        held, first = (self.data[other], self.state[other], sent[other]), self.runs[other][0]
                        made[other] = self._submitted(other, _finish, self.model, *held, sink, first, not self.whole)
                rows: list[Arrays] | None = None
                try:
                    rows = self._gathered([made[number]])[0]
                finally:
                    if rows is None:
                        made.clear()
                del made[number]
                return rows

            yield from self._lasting(one)

    def local_state(self) -> Iterator[Arrays]:
        """Each shard's local state; of shards on disk only what is carried, and a part at a time."""
        some = self.model if isinstance(self.shards, StoredShards) else None
        for number in range(len(self.runs)):

            def one(number: int = number) -> list[Any]:
                return self._gathered([self.client.submit(_local, self.state[number], some, pure=False)])

            yield from self._lasting(one)[0]

    def restore(self, local: Iterable[Arrays]) -> None:
        """Put local state back."""
        every = list(local)
        self.base, self.thetas = [every[first:last] for first, last in self.runs], []
        self.whole = not isinstance(self.shards, StoredShards)

        def again() -> None:
            for number in range(len(self.runs)):
                self._make_state(number)

        self._lasting(again)

    # How it lasts.

    def _remember(self, theta: Arrays | None) -> None:
        """What it takes to make the state once more."""
        if not self.carries:
            self.base, self.thetas = [None] * len(self.runs), [theta]
            return
        self.thetas.append(theta)
        if len(self.thetas) >= COPY_EVERY and len(self.client.nthreads()) > 1:
            self._copy()

    def _copy(self) -> None:
        """Copies of the state, each on another worker than the state itself."""

        def one() -> list[Future]:
            self._gathered([self.client.submit(_nothing, state, pure=False) for state in self.state])
            holders, workers, copies = self._holders(self.state), set(self.client.nthreads()), []
            for state in self.state:
                where: Any = {"workers": sorted(workers - set(holders[state.key])), "allow_other_workers": True}
                copies.append(self.client.submit(_copied, state, **where, pure=False))
            self._gathered([self.client.submit(_nothing, made, pure=False) for made in copies])
            return copies

        self.base = list(self._lasting(one))
        self.thetas = []

    def _lasting(self, work: Callable[[], T]) -> T:
        """The work, begun again where workers died meanwhile."""
        from distributed import CancelledError, KilledWorker
        from distributed.comm.core import CommClosedError

        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._mend()
                return work()
            except (CancelledError, KilledWorker, CommClosedError, TimeoutError) as problem:
                self.engine.require_scheduler(problem)
                last = problem
        raise ClusterError(
            f"Workers of the Dask cluster died {ATTEMPTS} times over the same work ({last}); give them more memory, or "
            "more of them."
        ) from last

    def _mend(self) -> None:
        """Make again what died with its worker."""
        # A cluster of ours starts another worker at once, which is worth waiting for: two parts on one take twice as
        # long, pass for pass.
        own = self.engine.address is None
        self.engine.wait_for_workers(self.n_workers if own else 1)
        held = self._holders([*self.data, *self.state, *self.base])
        load = Counter(dict.fromkeys(self.client.nthreads(), 0))
        for data in self.data:
            load.update(held.get(_key(data), [])[:1])
        for number, (data, state, base) in enumerate(zip(self.data, self.state, self.base, strict=True)):
            if not held.get(_key(data)):
                worker = min(load, key=lambda worker: (load[worker], worker))
                load[worker] += 1
                self._send(number, worker)
            if not held.get(_key(state)):
                if _key(base) and not held[_key(base)]:
                    raise ClusterError(
                        "Two workers of the Dask cluster died at once, with all that was known of a part."
                    )
                self._make_state(number)
        if self.carries and any(_key(base) and not held[_key(base)] for base in self.base):
            self._copy()

    def _holders(self, futures: list[Future]) -> dict[str, list[str]]:
        """By the name of each future the workers that hold what it stands for; none, where they died."""
        keys = [key for key in map(_key, futures) if key]
        held = self.client.sync(self.client.scheduler.who_has, keys=keys)
        return {key: sorted(held.get(key, ())) for key in keys}

    def _send(self, number: int, worker: str) -> None:
        """Send a part's shards to a worker, or let it load them."""
        first, last = self.runs[number]
        self.places[number] = worker
        if isinstance(self.shards, StoredShards):
            self.data[number] = self._submitted(number, _loaded, self.shards, range(first, last))
        else:
            (self.data[number],) = self.client.scatter([list(self.shards[first:last])], workers=[worker], hash=False)

    def _submitted(self, number: int, work: Callable[..., Any], *arguments: Any) -> Future:
        """Work on a part, where the part is; elsewhere if that worker is gone."""
        where: Any = {"workers": [self.places[number]], "allow_other_workers": True}
        return self.client.submit(work, *arguments, **where, pure=False)

    def _make_state(self, number: int) -> None:
        base = self.base[number]
        if isinstance(base, list):
            (base,) = self.client.scatter([(base, [])], hash=False)
        told = [self._sent(theta) for theta in self.thetas]
        self.state[number] = self._submitted(
            number, _made, self.model, crowdrank.__version__, self.data[number], base, told
        )

    def _sent(self, theta: Arrays | None) -> Future:
        """Parameters as data on some worker, from where others take them."""
        return self.client.scatter([theta], hash=False)[0]

    def _sent_to_all(self, theta: Arrays | None) -> list[Future]:
        """Where each part takes the parameters from: from worker to worker, so that none serves more than a few.

        Dask's own broadcast waits for ever where a worker dies meanwhile.
        """
        sources = [self._sent(theta)]
        for number in range(1, (len(self.runs) + SERVES - 2) // SERVES):
            onward = sources[(number - 1) // SERVES]
            sources.append(self._submitted(number, _same, onward))
        return [sources[max(0, number - 1) // SERVES] for number in range(len(self.runs))]

    def _gathered(self, futures: list[Future]) -> list[Any]:
        try:
            return self.client.gather(futures)  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            # What was being gathered is broken off, and nobody is to hear of it but who asked for that.
            self.client.loop.asyncio_loop.set_exception_handler(lambda loop, context: None)
            self.client.cancel(futures)
            raise


# What runs on workers.


def _made(model: ShardModel, version: str, shards: list[Any], base: State | None, thetas: list[Arrays | None]) -> State:
    """A part's state from what it was and the passes since."""
    from distributed import get_worker

    require_version(crowdrank.__version__, get_worker().address, version)
    passes = LocalPasses(model, shards, _threads())
    if base is not None:
        passes.local = [{**start, **kept} for start, kept in zip(passes.local, base[0], strict=True)]
    for theta in thetas:
        passes.accumulate(theta)
    return passes.local, []


def _pass(model: ShardModel, shards: list[Any], state: State, theta: Arrays | None, lengths: list[int]) -> State:
    """One pass over a part: new local state, and the sums of its subtrees."""
    local, sums, first, n_jobs = [], [], 0, _threads()
    for length in lengths:
        last = first + length
        passes = LocalPasses(model, shards[first:last], n_jobs, state[0][first:last])
        sums.append(passes.accumulate(theta))
        local += passes.local
        first = last
    return local, sums


def _finish(
    model: ShardModel, shards: list[Any], state: State, theta: Arrays, sink: Sink, first: int, again: bool
) -> list[Arrays]:
    """The rows of a part, as the sink gives them back; `again`: what was not carried is made by one more pass."""
    passes = LocalPasses(model, shards, _threads(), state[0])
    if again and model.carries is not None:
        passes.accumulate(theta)
    return list(passes.finish_to(theta, lambda place, rows: sink(first + place, rows)))


def _given(place: int, rows: Arrays) -> Arrays:
    return rows


def _loaded(shards: StoredShards, places: range) -> list[Any]:
    return [shards.load(place) for place in places]


def _sum(state: State, place: int) -> Arrays:
    return state[1][place]


def _local(state: State, carrier: ShardModel | None) -> list[Arrays]:
    """Local state; where a model is given, only what it carries."""
    names = None if carrier is None else carrier.carries
    return state[0] if names is None else [{name: one[name] for name in names if name in one} for one in state[0]]


def _copied(state: State) -> State:
    """The state without its sums."""
    return state[0], []


def _same(thing: T) -> T:
    return thing


def _call(work: Callable[[S], T], thing: S) -> T:
    return work(thing)


def _nothing(done: Any) -> None:
    """Whether something is there, without moving it."""


def _key(thing: Any) -> str:
    """The name of a future; of anything else, nothing."""
    return str(getattr(thing, "key", ""))


def _threads() -> int:
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def require_version(version: str | None, worker: str, wanted: str | None = None) -> None:
    """Refuse a worker with another crowdrank: its sums would be of other models.

    >>> require_version("0.0.1", "tcp://10.0.0.2:40331", "0.1.0")
    Traceback (most recent call last):
    crowdrank.errors.ClusterError: The worker at tcp://10.0.0.2:40331 runs crowdrank 0.0.1, and this is 0.1.0; install
    the same version on all.
    """
    wanted = wanted or crowdrank.__version__
    if version == wanted:
        return
    runs = f"runs crowdrank {version}" if version else "has no crowdrank"
    raise ClusterError(f"The worker at {worker} {runs}, and this is {wanted}; install the same version on all.")


def _bare(model: ShardModel) -> ShardModel:
    """The model's settings alone: what it learned ends in an underscore, and no pass reads it."""
    bare = copy.copy(model)
    for name in [name for name in vars(bare) if name.endswith("_")]:
        delattr(bare, name)
    return bare


def require_dask(own: bool = False) -> Any:
    """Return the package `distributed`, or say how to install it; with `own`, also check for what TLS needs."""
    try:
        import distributed

        if own:
            import cryptography  # noqa: F401
    except ImportError as problem:
        raise UsageError(
            f"The Dask engine needs a package that is not here ({problem.name}); pip install 'crowdrank[dask]'."
        ) from problem
    return distributed
