"""The pattern that every model follows: passes over shards, whose small statistics add up.

    _start(shard) -> local
    _accumulate(shard, local, theta) -> (local, statistics)
    _maximize(theta, statistics) -> theta
    _finish(shard, local, theta) -> rows

The first argument is always one shard, and nothing else touches data. An engine decides where the passes run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Protocol, Self, TypeVar

from numpy.typing import NDArray

from crowdrank._typing import Arrays
from crowdrank.judgments.gold import ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

S = TypeVar("S")
T = TypeVar("T")
Sink = Callable[[int, Arrays], Arrays]
"""Takes the rows of the shard at a place where they are made, and returns little; picklable."""


class ShardModel(Protocol):
    """What an engine needs of a model."""

    @property
    def locality(self) -> str:
        """`item`: any split of the items will do; `query`: a query's items stay together."""

    @property
    def carries(self) -> tuple[str, ...] | None:
        """The arrays of local state that a pass reads of the one before; None: all of them.

        The others can be had again: by `restart`, or by one more pass with the same theta.
        """

    def _start(self, shard: Any) -> Arrays:
        """The shard's local state before the first pass."""

    def _restart(self, shard: Any) -> Arrays:
        """Local state for a pass with a theta, as far as it is not carried from the pass before: `start`, or less."""

    def _accumulate(self, shard: Any, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """One pass: new local state and statistics. With no theta yet, only count what `start` set.

        Arrays of `local` that a pass reads are left as they are, so that an interrupted pass can be made again.
        """

    def _finish(self, shard: Any, local: Arrays, theta: Arrays) -> Arrays:
        """What the result shows of this shard, one row per item."""


class Passes(Protocol):
    """A model opened on judgments: the local state lives here, beside its shards.

    Attributes:
        n_jobs: how many threads there are for what is done between passes, when those of the passes rest.

    """

    n_jobs: int

    @property
    def shards(self) -> Sized:
        """Return the shards of the judgments, or what loads them."""

    def accumulate(self, theta: Arrays | None) -> Arrays:
        """One pass over all shards; the sum of their statistics."""

    def finish(self, theta: Arrays) -> Arrays:
        """The rows of all shards, in the order of the items."""

    def finish_to(self, theta: Arrays, sink: Sink) -> Iterator[Arrays]:
        """Give the rows of every shard to `sink` where they are; what it returned, in the order of the shards."""

    def watch(self, told: Callable[[float], None]) -> None:
        """Call a function with the share of a pass that is done, whenever it has grown."""

    def local_state(self) -> Iterable[Arrays]:
        """Each shard's local state, for a checkpoint."""

    def restore(self, local: Iterable[Arrays]) -> None:
        """Put local state back."""


class Engine(Protocol):
    """Where the passes run."""

    @property
    def is_cluster(self) -> bool:
        """Whether passes run in processes of a Dask cluster."""

    @property
    def elsewhere(self) -> bool:
        """Whether that may be on other machines, which do not see temporary files here."""

    def open(
        self, model: ShardModel, judgments: Judgments | ShardedJudgments, gold: NDArray[Any] | ShardGold | None = None
    ) -> Passes:
        """Cut the judgments into shards, where they are not in shards already, and start the model on each."""

    def passes(self, model: ShardModel, shards: Sequence[Any]) -> Passes:
        """Start a model on shards of any kind: blocks of rows, say, that its functions know how to read."""

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """`work` on every thing; results in order, as soon as each is there. What is sent to and fro is small."""

    def __enter__(self) -> Self:
        """An engine is closed where its `with` ends."""

    def __exit__(self, *problem: object) -> None:
        """Let go of whatever runs."""
