"""Passes in threads on this machine. The kernels release the GIL; sums are made in one fixed tree (`sums.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._disk import ScratchFolder
from crowdrank._typing import Arrays
from crowdrank.engine.base import ShardModel, Sink
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, HeldShards, Shard, Shards, shards_of
from crowdrank.engine.tree_reduce import tree_sum
from crowdrank.errors import UsageError
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class LocalEngine:
    """Runs passes in `threads` threads; judgments on disk are streamed, a shard a thread at a time.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=5, documents=6, random_state=1)
    >>> one, two = (DawidSkene().fit(world.judgments, engine=LocalEngine(n_jobs=n)) for n in (1, 2))
    >>> one.consensus_.documents.equals(two.consensus_.documents)
    True
    """

    is_cluster: ClassVar[bool] = False
    elsewhere: ClassVar[bool] = False
    about: ClassVar[str] = ""

    n_jobs: int = 1
    shard_size: int = JUDGMENTS_PER_SHARD

    def __post_init__(self) -> None:
        if self.n_jobs < 1:
            raise UsageError(f"--threads takes a number from 1 up, not {self.n_jobs}.")

    def open(
        self, model: ShardModel, judgments: Judgments | ShardedJudgments, gold: NDArray[Any] | ShardGold | None = None
    ) -> LocalPasses | StreamedPasses:
        """Cut the judgments into shards, where they are not in shards already, and start the model on each."""
        shards = shards_of(judgments, gold, model.locality, self.shard_size)
        if isinstance(shards, HeldShards):
            return self.passes(model, shards.shards)
        return StreamedPasses(model, shards, self.n_jobs, shards.judgments.folder)

    def passes(self, model: ShardModel, shards: Sequence[Any]) -> LocalPasses:
        """Start a model on shards of any kind."""
        return LocalPasses(model, shards, self.n_jobs)

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """`work` on every thing; results in order, as soon as each is there."""
        return in_order(lambda place: work(things[place]), len(things), self.n_jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing is held."""


class LocalPasses:
    """A model opened on shards in memory."""

    def __init__(
        self, model: ShardModel, shards: Sequence[Any], n_jobs: int, local: list[Arrays] | None = None
    ) -> None:
        self.model, self.shards, self.n_jobs = model, shards, n_jobs
        self.told: Callable[[float], None] | None = None
        if local is None:
            with single_blas_thread():
                local = list(self._each(lambda number: model._start(shards[number])))
        self.local = local

    def watch(self, told: Callable[[float], None]) -> None:
        """Call a function with the share of a pass that is done, whenever it has grown."""
        self.told = told

    def _each(self, work: Callable[[int], T]) -> Iterator[T]:
        return watched(
            in_order(work, len(self.shards), min(self.n_jobs, len(self.shards))), len(self.shards), self.told
        )

    @single_blas_thread()
    def accumulate(self, theta: Arrays | None) -> Arrays:
        """One pass over all shards; the sum of their statistics."""

        def one(number: int) -> tuple[Arrays, Arrays]:
            return self.model._accumulate(self.shards[number], self.local[number], theta)

        passed: list[Arrays] = []
        total = tree_sum(_noted(self._each(one), passed), len(self.shards))
        self.local = passed
        return total

    def finish(self, theta: Arrays) -> Arrays:
        """The rows of all shards, in the order of the items."""
        return together(self.finish_to(theta, lambda place, rows: rows))

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Give the rows of every shard to `sink`; what it returned, in the order of the shards."""

        def one(number: int) -> Arrays:
            return sink(number, self.model._finish(self.shards[number], self.local[number], theta))

        with single_blas_thread():
            yield from self._each(one)

    def local_state(self) -> list[Arrays]:
        """Each shard's local state."""
        return self.local

    def restore(self, local: Iterable[Arrays]) -> None:
        """Put local state back."""
        self.local = list(local)


class StreamedPasses:
    """A model opened on shards on disk: each is loaded for a pass and let go; what the model carries is kept there too.

    What a model does not carry from pass to pass is not kept but made again.
    """

    def __init__(self, model: ShardModel, shards: Shards, n_jobs: int, folder: str | Path) -> None:
        self.model, self.shards, self.n_jobs = model, shards, n_jobs
        self.told: Callable[[float], None] | None = None
        self.carried = CarriedState(model, folder, len(shards))

    def watch(self, told: Callable[[float], None]) -> None:
        """Call a function with the share of a pass that is done, whenever it has grown."""
        self.told = told

    def _each(self, work: Callable[[int], T]) -> Iterator[T]:
        return watched(
            in_order(work, len(self.shards), min(self.n_jobs, len(self.shards))), len(self.shards), self.told
        )

    @single_blas_thread()
    def accumulate(self, theta: Arrays | None) -> Arrays:
        """One pass over all shards; the sum of their statistics."""

        def one(place: int) -> Arrays:
            shard = self.shards.load(place)
            local, statistics = self.model._accumulate(shard, self.carried.local(place, shard, theta), theta)
            self.carried.keep(place, local)
            return statistics

        total = tree_sum(self._each(one), len(self.shards))
        self.carried.turn()
        return total

    def finish(self, theta: Arrays) -> Arrays:
        """The rows of all shards, in the order of the items: all in memory."""
        return together(self.finish_to(theta, lambda place, rows: rows))

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Give the rows of every shard to `sink`; what it returned, in the order of the shards."""

        def one(place: int) -> Arrays:
            return sink(place, finished(self.model, self.shards.load(place), self.carried, place, theta))

        with single_blas_thread():
            yield from self._each(one)

    def local_state(self) -> Iterator[Arrays]:
        """What each shard carries, loaded one at a time."""
        return map(self.carried.load, range(len(self.shards)))

    def restore(self, local: Iterable[Arrays]) -> None:
        """Put back what each shard carries."""
        for place, arrays in enumerate(local):
            self.carried.keep(place, arrays)
        self.carried.turn()


class CarriedState:
    """What a model carries from pass to pass in each shard, on disk; that of the last whole pass stays until the next.

    A model that carries nothing needs no file.
    """

    def __init__(self, model: ShardModel, folder: str | Path, n_shards: int) -> None:
        self.model, self.turns, self.n_shards = model, 0, n_shards
        self._scratch = ScratchFolder(folder)
        self.folder = self._scratch.path / "state"
        self.folder.mkdir()

    def local(self, place: int, shard: Shard, theta: Arrays | None) -> Arrays:
        """The local state of a shard before its next pass, as far as the pass reads it."""
        if self.model.carries is None:
            return self.load(place) if self.turns else self.model._start(shard)
        return {**(self.model._start(shard) if theta is None else self.model._restart(shard)), **self.load(place)}

    def load(self, place: int) -> Arrays:
        """What a shard carries after the last whole pass."""
        path = self._path(place, self.turns)
        if not path.exists():
            return {}
        with np.load(path) as kept:
            return {name: kept[name] for name in kept.files}

    def keep(self, place: int, local: Arrays) -> None:
        """Keep what a shard carries out of the pass that is being made."""
        carries = self.model.carries
        kept = local if carries is None else {name: local[name] for name in carries if name in local}
        if kept:
            np.savez(self._path(place, self.turns + 1), **kept)  # type: ignore[arg-type]

    def turn(self) -> None:
        """The pass is whole: what it left is what holds."""
        for place in range(self.n_shards):
            self._path(place, self.turns).unlink(missing_ok=True)
        self.turns += 1

    def _path(self, place: int, turn: int) -> Path:
        return self.folder / f"local-{place:05d}-{turn % 2}.npz"


def finished(model: ShardModel, shard: Shard, carried: CarriedState, place: int, theta: Arrays) -> Arrays:
    """The rows of a shard; what was not carried of its local state is made again by one more pass."""
    local = carried.local(place, shard, theta)
    if model.carries is not None:
        local, _ = model._accumulate(shard, local, theta)
    return model._finish(shard, local, theta)


def in_order(work: Callable[[int], T], n: int, n_jobs: int) -> Iterator[T]:
    """`work` on 0..n-1; results in that order as soon as each is there. Few wait: a result may be large."""
    if n_jobs == 1:
        yield from map(work, range(n))
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for place in range(n):
                waiting.append(pool.submit(work, place))
                if len(waiting) > n_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def watched(results: Iterator[T], n: int, told: Callable[[float], None] | None) -> Iterator[T]:
    """The results, and a word after each of them but the last, after which the pass itself is told of."""
    for done, result in enumerate(results, start=1):
        yield result
        if told is not None and done < n:
            told(done / n)


def together(shards: Iterable[Arrays]) -> Arrays:
    """The rows of shards one after the other."""
    rows = list(shards)
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _noted(passed: Iterable[tuple[Arrays, Arrays]], locals_: list[Arrays]) -> Iterator[Arrays]:
    """The statistics of passes; their local state is put into the list."""
    for local, statistics in passed:
        locals_.append(local)
        yield statistics
