"""Passes of a model over shards: the interface, the engine that runs them in threads, and sums in a fixed tree.

A fit is a sequence of passes over shards (ranges of items, which are query-document pairs). A pass adds up statistics,
which are small, over all shards; arrays with one entry per item are the local state of a shard and stay beside it.
Theta stands for the parameters of the model:

    _start(shard) -> local
    _accumulate(shard, local, theta) -> (local, statistics)
    _maximize(theta, statistics) -> theta
    _finish(shard, local, theta) -> rows

Models define these functions; an engine decides where they run.

The sum of a range of shards is the sum of its first half plus that of its second half, so the tree depends only on the
number of shards. A worker adds up the largest subtrees within its range of shards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from crowdrank._arrow import release_unused_memory
from crowdrank._disk import ScratchFolder
from crowdrank._estimator import require_integer
from crowdrank._numba import map_in_order
from crowdrank._typing import Arrays
from crowdrank.engine.shards import (
    JUDGMENTS_PER_SHARD,
    InMemoryShards,
    ItemScores,
    OnDiskShards,
    Shard,
    Shards,
    make_shards,
)
from crowdrank.errors import Fix, UsageError, near, shown
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

if TYPE_CHECKING:
    from crowdrank.engine.dask import DaskEngine


S = TypeVar("S")
T = TypeVar("T")
ShardT = TypeVar("ShardT")
ShardT_contra = TypeVar("ShardT_contra", contravariant=True)
Sink = Callable[[int, Arrays], Arrays]
"""Function (shard index, result rows of the shard) that returns a small summary; it must be picklable."""
Range = tuple[int, int]
"""Range of shards: index of the first shard, and index after the last one."""
EXTRA_TREE_LEVELS = 3
"""Additional tree levels at whose boundaries a worker's range may end; more levels balance the ranges better."""
SCHEDULER_URL_SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
"""URL schemes of addresses of Dask schedulers."""
_blas_lock = threading.Lock()
_blas_thread_limit = ExitStack()
_n_active_blas_blocks = 0


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
        """Return an object that runs passes of a model over shards that hold no judgments, such as blocks of rows."""

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument; yield the results in order."""

    def __enter__(self) -> Self:
        """Return the engine."""

    def __exit__(self, *problem: object) -> None:
        """Release threads, processes and connections."""


def get_engine(name: str, n_jobs: int | None = None, dashboard: bool = False) -> LocalEngine | DaskEngine:
    """Return an engine by its name.

    Args:
        name: `local`, `dask` for a cluster of processes on this machine, or `dask=tcp://host:port` for the cluster of
            a scheduler.
        n_jobs: number of threads with `local` (default 1), of processes with `dask` (default: one per core).
        dashboard: whether a cluster of processes on this machine serves Dask's dashboard.

    Raises:
        UsageError: there is no such engine, or its packages are not installed.

    >>> get_engine("local", 2)
    LocalEngine(n_jobs=2, shard_size=262144)
    >>> get_engine("spark")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: engine must be 'local', 'dask' or 'dask=tcp://host:port', not 'spark'.

    """
    kind, equals, address = name.partition("=")
    if n_jobs is not None:
        require_integer("n_jobs", n_jobs, 1)
    if kind not in ("local", "dask") or (equals and (kind == "local" or not address.startswith(SCHEDULER_URL_SCHEMES))):
        known = "'local', 'dask' or 'dask=tcp://host:port'"
        guess = "" if kind == "dask" else near(kind, ["local", "dask"])
        raise UsageError(f"must be {known}, not {shown(name)}{guess}", parameter="engine", kind="unknown-engine")
    if dashboard and name != "dask":
        fix = Fix("use {}", "engine", "dask")
        raise UsageError("needs a cluster that crowdrank starts", parameter="dashboard", kind="no-dashboard", fix=fix)
    if kind == "local":
        return LocalEngine(1 if n_jobs is None else n_jobs)
    from crowdrank.engine.dask import DaskEngine, require_dask

    require_dask(starts_cluster=not address)
    return DaskEngine(address) if address else DaskEngine(workers=n_jobs, dashboard=dashboard)


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; matrix products with more threads differ in the last digit.

    The limit holds for the process. Blocks may be nested and may overlap in several threads: the number of BLAS threads
    is restored when the last block ends.

    >>> import numpy as np
    >>> with single_blas_thread():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    global _n_active_blas_blocks
    with _blas_lock:
        if _n_active_blas_blocks == 0:
            _blas_thread_limit.enter_context(_blas_controller().limit(limits=1, user_api="blas"))
        _n_active_blas_blocks += 1
    try:
        yield
    finally:
        with _blas_lock:
            _n_active_blas_blocks -= 1
            if _n_active_blas_blocks == 0:
                _blas_thread_limit.close()


@cache
def _blas_controller() -> ThreadpoolController:
    """Return a controller of the loaded BLAS libraries, NumPy's among them; cached because finding them is slow."""
    return ThreadpoolController()


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
        shards = make_shards(judgments, gold, model.locality, self.shard_size, scores)
        states = None
        if isinstance(shards, OnDiskShards):
            states = FileStates(len(shards), model.carries, shards.judgments.folder)
        return LocalPasses(model, shards, self.n_jobs, states)

    def passes(self, model: ShardModel[ShardT], shards: Sequence[ShardT]) -> LocalPasses[ShardT]:
        """Return an object that runs passes of a model over shards that hold no judgments, such as blocks of rows."""
        return LocalPasses(model, InMemoryShards(shards), self.n_jobs)

    def each(self, function: Callable[[S], T], arguments: Sequence[S]) -> Iterator[T]:
        """Call a function with each argument in threads; yield the results in order."""
        return map_in_order(function, arguments, self.n_jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Do nothing: threads live only during a pass."""


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


class FileStates:
    """Local state of each shard in a temporary file; files of the last complete pass are kept during the next pass.

    Args:
        n_shards: number of shards.
        names: names of the arrays to store; None for all. A shard without arrays needs no file.
        parent: folder for the temporary folder; None for the system's.

    Attributes:
        complete: whether `load` returns all arrays of a shard, not only those that the next pass reads.

    """

    def __init__(self, n_shards: int, names: tuple[str, ...] | None = None, parent: str | Path | None = None) -> None:
        self.n_shards, self.names, self.complete = n_shards, names, False
        self._scratch = ScratchFolder(parent)
        self.folder = self._scratch.path / "state"
        self.folder.mkdir()
        self._n_commits = 0

    def load(self, shard_index: int) -> Arrays:
        """Return the stored arrays of a shard after the last complete pass."""
        path = self._path(shard_index, self._n_commits)
        if not path.exists():
            return {}
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def save(self, shard_index: int, local_state: Arrays) -> None:
        """Store the arrays of a shard after the current pass."""
        stored = select_arrays(local_state, self.names)
        if stored:
            np.savez(self._path(shard_index, self._n_commits + 1), **stored)  # type: ignore[arg-type]

    def commit(self, is_complete: bool = True) -> None:
        """End the current pass: `load` returns its arrays from now on (all of them if `is_complete`)."""
        for shard_index in range(self.n_shards):
            self._path(shard_index, self._n_commits).unlink(missing_ok=True)
        self._n_commits += 1
        self.complete = is_complete and self.names is None

    def _path(self, shard_index: int, pass_number: int) -> Path:
        return self.folder / f"local-{shard_index:05d}-{pass_number % 2}.npz"


def select_arrays(arrays: Arrays, selected_names: tuple[str, ...] | None) -> Arrays:
    """Return the arrays whose names are selected; None selects all."""
    return arrays if selected_names is None else {name: arrays[name] for name in selected_names if name in arrays}


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


def report_progress(results: Iterator[T], n_results: int, report: Callable[[float], None] | None) -> Iterator[T]:
    """Yield the results; after each except the last, call `report` with the finished share."""
    for done, result in enumerate(results, start=1):
        yield result
        if report is not None and done < n_results:
            report(done / n_results)


def tree_sum(statistics: Iterator[Arrays], n_summands: int) -> Arrays:
    """Return the sum of the next `n_summands` statistics in tree order, with few of them in memory at a time.

    >>> import numpy as np
    >>> tree_sum(({"n": np.ones(1)} for _ in range(5)), 5)
    {'n': array([5.])}
    """
    if n_summands == 1:
        return next(statistics)
    left = tree_sum(statistics, n_summands // 2)
    right = tree_sum(statistics, n_summands - n_summands // 2)
    for name, values in right.items():
        left[name] += values
    return left


def add_arrays(left: Arrays, right: Arrays) -> Arrays:
    """Return the sums of arrays of the same name, as new arrays."""
    return {name: values + right[name] for name, values in left.items()}


def subtrees(n_shards: int, shard_range: Range, searched_tree: Range | None = None) -> list[Range]:
    """Split a range of shards into the largest possible subtrees of the tree over `n_shards` shards, in order.

    >>> subtrees(8, (0, 4)), subtrees(8, (1, 8))
    ([(0, 4)], [(1, 2), (2, 4), (4, 8)])
    """
    first, last = searched_tree or (0, n_shards)
    if last <= shard_range[0] or shard_range[1] <= first:
        return []
    if shard_range[0] <= first and last <= shard_range[1]:
        return [(first, last)]
    middle = first + (last - first) // 2
    return subtrees(n_shards, shard_range, (first, middle)) + subtrees(n_shards, shard_range, (middle, last))


def combine_subtrees(subtree_sums: dict[Range, T], tree: Range, add: Callable[[T, T], T]) -> T:
    """Return the sum of a tree from the sums of its subtrees.

    >>> combine_subtrees({(0, 2): "ab", (2, 3): "c", (3, 4): "d"}, (0, 4), lambda one, other: f"({one}+{other})")
    '(ab+(c+d))'
    """
    if tree in subtree_sums:
        return subtree_sums[tree]
    middle = tree[0] + (tree[1] - tree[0]) // 2
    return add(
        combine_subtrees(subtree_sums, (tree[0], middle), add), combine_subtrees(subtree_sums, (middle, tree[1]), add)
    )


def balanced_ranges(n_shards: int, max_ranges: int) -> list[Range]:
    """Split `n_shards` shards into at most `max_ranges` ranges of similar length that consist of few subtrees.

    >>> balanced_ranges(38, 2), balanced_ranges(100, 3)
    ([(0, 19), (19, 38)], [(0, 34), (34, 65), (65, 100)])
    """
    n_ranges = max(1, min(n_shards, max_ranges))
    depth = n_ranges.bit_length() + EXTRA_TREE_LEVELS
    ends = [
        0,
        *(_nearest_boundary(n_shards, n_shards * number // n_ranges, depth) for number in range(1, n_ranges)),
        n_shards,
    ]
    return [(first, last) for first, last in pairwise(ends) if first < last]


def _nearest_boundary(n_shards: int, shard_index: int, max_depth: int) -> int:
    """Return the index nearest to a shard at which a subtree of at most this depth begins or ends."""
    first, last = 0, n_shards
    for _ in range(max_depth):
        middle = first + (last - first) // 2
        first, last = (first, middle) if shard_index < middle else (middle, last)
    return first if shard_index - first <= last - shard_index else last
