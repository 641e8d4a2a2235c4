"""Passes in threads on this machine. The kernels release the GIL; sums are made in one fixed tree (`sums.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdrank.engine.base import Arrays, ShardModel
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, split
from crowdrank.engine.sums import tree_sum
from crowdrank.errors import UsageError
from crowdrank.judgments.table import Judgments

T = TypeVar("T")


@dataclass(frozen=True)
class LocalEngine:
    """Runs passes in `threads` threads.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=5, documents=6, seed=1)
    >>> one, two = (DawidSkene().fit(world.judgments, engine=LocalEngine(threads=n)) for n in (1, 2))
    >>> one.consensus_.documents.equals(two.consensus_.documents)
    True
    """

    threads: int = 1
    shard_size: int = JUDGMENTS_PER_SHARD

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UsageError(f"--threads takes a number from 1 up, not {self.threads}.")

    def open(self, model: ShardModel, judgments: Judgments, gold: NDArray[Any] | None = None) -> LocalPasses:
        """Cut the judgments into shards and start the model on each."""
        return self.passes(model, split(judgments, gold, model.locality, self.shard_size))

    def passes(self, model: ShardModel, shards: Sequence[Any]) -> LocalPasses:
        """Start a model on shards of any kind."""
        return LocalPasses(model, shards, self.threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing is held."""


class LocalPasses:
    """A model opened on shards in memory."""

    def __init__(
        self, model: ShardModel, shards: Sequence[Any], threads: int, local: list[Arrays] | None = None
    ) -> None:
        self.model, self.shards, self.threads = model, shards, min(threads, len(shards))
        self.local = list(self._each(lambda number: model.start(shards[number]))) if local is None else local

    def _each(self, work: Callable[[int], T]) -> Iterator[T]:
        """`work` on every shard; results in the order of the shards, as soon as each is there."""
        if self.threads == 1:
            yield from map(work, range(len(self.shards)))
            return
        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(work, range(len(self.shards)))

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """One pass over all shards; the sum of their statistics."""

        def one(number: int) -> tuple[Arrays, Arrays]:
            return self.model.accumulate(self.shards[number], self.local[number], theta)

        passed: list[Arrays] = []

        def statistics() -> Iterator[Arrays]:
            for local, counted in self._each(one):
                passed.append(local)
                yield counted

        total = tree_sum(statistics(), len(self.shards))
        self.local = passed
        return total

    def finish(self, theta: Arrays) -> Arrays:
        """The rows of all shards, in the order of the items."""
        rows = list(self._each(lambda number: self.model.finish(self.shards[number], self.local[number], theta)))
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def local_state(self) -> list[Arrays]:
        """Each shard's local state."""
        return self.local

    def restore(self, local: list[Arrays]) -> None:
        """Put local state back."""
        self.local = local

