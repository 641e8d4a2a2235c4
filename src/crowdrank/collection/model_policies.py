"""Policies that ask a model what it does not know."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import kernels
from crowdrank.collection.base import Policy, RankedRequests, State, in_turn
from crowdrank.collection.belief import Belief
from crowdrank.consensus._base import Aggregator
from crowdrank.constraints import Constraints, Number
from crowdrank.judgments import ids

VARIETY = 0.35
"""Chosen on half of RF10's topics among 0, 0.25, 0.5 and 1: the middle of the best two."""
TOGETHER = 1 << 14
"""Pairs whose gains are worked out together."""


class Random(Policy):
    """Any pair with fewer than k labels, drawn: what others are measured against.

    >>> import crowdrank
    >>> from crowdrank.collection.pool import Pool
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=1, random_state=1)
    >>> judged = crowdrank.read_judgments(world.judgments)
    >>> len(Random(k=2).next(Pool.of(judged), judged, None, 3))
    3
    """

    _parameter_constraints: ClassVar[Constraints] = {"k": [Number(1, integer=True), None]}

    def __init__(self, k: int | None = None, *, random_state: int | None = 0) -> None:
        self.k = k
        self.random_state = random_state

    def wishes(self, state: State, model: Aggregator | None) -> RankedRequests:
        """Pairs with the fewest labels first, in an order that is drawn."""
        count = state.count if state.out is None else state.count + state.out
        open_ = ~state.pool.planted if self.k is None else (count < self.k) & ~state.pool.planted
        drawn = np.random.default_rng([self.random_state or 0, int(state.count.sum())])
        pair = drawn.permutation(np.flatnonzero(open_))
        return RankedRequests(pair, -count[pair].astype(np.float64), np.zeros(len(pair), np.int8), ("drawn",))


class Driven(Policy):
    """What policies that ask a model share: pairs without a label come first, pairs that are settled not at all.

    A round asks for one label of a pair, and for none while one is out; what it says is known in the next. Where a
    roster is given, each request goes to whoever is expected to tell most per price, divided by a power (`variety`) of
    how much they judged already: one assessor's errors are alike, and of whom little is known, more is to be learned.
    """

    takes_model: ClassVar[bool] = True
    settled: float | None
    variety: float
    _parameter_constraints: ClassVar[Constraints] = {
        "settled": [Number(0, 1, above=True, below=True), None],
        "variety": [Number(0)],
    }

    @abstractmethod
    def worth(self, belief: Belief, pair: Integers, at_most: Floats | None = None) -> Floats:
        """How much a label of each pair is wanted: (n,)."""

    def at_most(self, belief: Belief, pair: Integers) -> Floats | None:
        """A number that `worth` does not exceed and that is sooner had, where there is one: (n,)."""
        return None

    @abstractmethod
    def why(self) -> str:
        """In a few words."""

    def wishes(self, state: State, model: Aggregator | None) -> RankedRequests:
        """Pairs without a label, then by worth."""
        assert model is not None
        belief = Belief.of(state, model)
        open_ = ~state.pool.planted if state.out is None else ~state.pool.planted & (state.out == 0)
        pair = in_turn(np.flatnonzero(open_), self.random_state)
        at_most = self.at_most(belief, pair)
        if at_most is None:
            pair = pair[self._open(belief, pair)]
            worth = self.worth(belief, pair)
        else:
            worth = at_most
        fresh = state.count[pair] == 0
        first = worth.max() + 1.0 if fresh.any() else 0.0
        reason = (~fresh).astype(np.int8)
        reasons = ("no label so far", self.why())
        if at_most is None:
            return RankedRequests(pair, worth + first * fresh if first else worth, reason, reasons)

        def exact(rows: Integers) -> Floats:
            """What rows are worth; NaN for what is settled."""
            worth: Floats = self.worth(belief, pair[rows], at_most[rows]) + first * fresh[rows]
            worth[~self._open(belief, pair[rows])] = np.nan
            return worth

        return RankedRequests(pair, at_most + first * fresh if first else at_most, reason, reasons, exact)

    def _open(self, belief: Belief, pair: Integers) -> Booleans:
        """Which pairs are not settled."""
        return np.ones(len(pair), bool) if self.settled is None else belief.certainty(pair) < self.settled

    def merit(self, state: State, model: Aggregator | None, pair: Integers) -> Floats | None:
        """How much each assessor is expected to tell."""
        if model is None or state.pool.roster is None:
            return None
        return Belief.of(state, model).drops(pair, state.pool.roster) / (1.0 + state.load) ** self.variety


class WidestInterval(Driven):
    """The pairs whose interval of relevance is the widest.

    >>> import crowdrank
    >>> from crowdrank.collection.pool import Pool
    >>> world = crowdrank.simulate(queries=4, documents=6, labels=3, random_state=1)
    >>> judged = crowdrank.read_judgments(world.judgments)
    >>> WidestInterval().next(Pool.of(judged), judged, crowdrank.DawidSkene().fit(judged), 5).reasons()
    {'wide interval': 5}
    """

    def __init__(
        self, *, settled: float | None = 0.95, variety: float = VARIETY, random_state: int | None = None
    ) -> None:
        self.settled = settled
        self.variety = variety
        self.random_state = random_state

    def worth(self, belief: Belief, pair: Integers, at_most: Floats | None = None) -> Floats:
        """Upper less lower; of what has no label, the widest there is."""
        return self.at_most(belief, pair) if at_most is None else at_most

    def at_most(self, belief: Belief, pair: Integers) -> Floats:
        """The same: it only remains to be seen what is settled."""
        table = belief.model.consensus_.document_table
        width: Floats = table["upper"].to_numpy() - table["lower"].to_numpy()
        return np.append(width, width.max(initial=0.0))[belief.row[pair]]  # the last is that of row -1

    def why(self) -> str:
        """Its interval is wide."""
        return "wide interval"


class EntropyDrop(Driven):
    """The pairs of which one more label is expected to tell most: the largest expected drop of entropy."""

    def __init__(
        self, *, settled: float | None = 0.95, variety: float = VARIETY, random_state: int | None = None
    ) -> None:
        self.settled = settled
        self.variety = variety
        self.random_state = random_state

    def worth(self, belief: Belief, pair: Integers, at_most: Floats | None = None) -> Floats:
        """Nats that an answer of whoever comes is expected to tell."""
        return belief.drop(pair)

    def why(self) -> str:
        """A label is expected to tell much."""
        return "a label would tell much"


class TopGain(Driven):
    """The pairs of which knowing more is expected to gain most nDCG@k: near the top, and unsure which is better.

    What would be gained if a pair's true state were known, times the share of that one label is expected to tell. The
    gain of one label alone is none wherever no single answer changes the order, however unsure that order is.

    Args:
        k: how many documents of a query count.
        settled: pairs whose grade is as probable as that are not asked about; None: all are.
        variety: how much those are preferred who judged little so far.
        random_state: the order of equals; that of the pool by default.

    """

    _parameter_constraints: ClassVar[Constraints] = {"k": [Number(1, integer=True)]}

    def __init__(
        self, k: int = 10, *, settled: float | None = 0.95, variety: float = VARIETY, random_state: int | None = None
    ) -> None:
        self.k = k
        self.settled = settled
        self.variety = variety
        self.random_state = random_state

    def worth(self, belief: Belief, pair: Integers, at_most: Floats | None = None) -> Floats:
        """The expected gain of nDCG@k of the pair's query."""
        gain = self._known_better(belief)[pair] if at_most is None else at_most
        return gain * belief.share_told(pair)

    def at_most(self, belief: Belief, pair: Integers) -> Floats | None:
        """The gain if a pair's true state were known; on the line, what share of it a label tells is had as soon."""
        return None if belief.on_line else self._known_better(belief)[pair]

    def _known_better(self, belief: Belief) -> Floats:
        """The expected gain of nDCG@k if a pair's true state were known, of each pair of the pool."""
        order, offsets = _by_query(belief.state)
        discount, found = 1 / np.log2(np.arange(2, self.k + 2)), np.empty(len(order))
        first = 0
        while first < len(offsets) - 1:  # whole queries, few enough for a processor to keep at hand
            last = max(int(np.searchsorted(offsets, offsets[first] + TOGETHER, side="right")) - 1, first + 1)
            start, stop = offsets[first], offsets[last]
            chance, value = belief.gains(order[start:stop])
            kernels.top_gains(offsets[first : last + 1] - start, chance, value, self.k, discount, found[start:stop])
            first = last
        if belief.state.pool.made_of is None:
            found[order] = found.copy()
        return found

    def why(self) -> str:
        """It may change the top."""
        return f"may change the top {self.k}"


def _by_query(state: State) -> tuple[Integers, Integers]:
    """The pairs of a pool, those of a query side by side, and where each query starts: (n,), (n_queries + 1,)."""
    if state.pool.made_of is not None:
        return np.arange(len(state.pool)), state.pool.made_of.query_offsets.astype(np.int64)
    query = ids.encode(pa.chunked_array([state.pool.query]))[0]
    order = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.diff(query[order])) + 1
    return order, np.concatenate([[0], starts, [len(query)]])
