"""The contract of every policy, and what they share: the budget, who may judge what, and nobody the same twice."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._base import Estimator
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection import kernels
from crowdrank.collection.pool import ANYONE, Pool, as_pool, find_pairs
from crowdrank.collection.request_ledger import OutstandingRequests
from crowdrank.collection.requests import Budget, Requests
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_judgments
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import DataWarning, Fix, InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

BLOCK = 4096
"""RankedRequests that are looked at together, where each has merits of assessors of its own."""
NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class State:
    """What has been judged of each pair of a pool."""

    pool: Pool
    judgments: Judgments | None
    item: Integers  # (n,) place among the items of the judgments, or -1
    count: Integers  # (n,) judgments so far
    waiting: OutstandingRequests | None = None  # requests that are out

    @classmethod
    def of(cls, pool: Pool, judgments: Judgments | None, waiting: OutstandingRequests | None = None) -> State:
        """Look up the pairs of a pool among judgments."""
        waiting = waiting if waiting is not None and len(waiting) else None
        if judgments is None:
            return cls(pool, None, np.full(len(pool), -1), np.zeros(len(pool), np.int64), waiting)
        if pool.made_of is judgments:
            count = np.diff(judgments.offsets).astype(np.int64, copy=False)
            return cls(pool, judgments, np.arange(len(pool)), count, waiting)
        item = judgments.positions(pool.query, pool.document)
        count = np.where(item >= 0, np.diff(judgments.offsets)[np.maximum(item, 0)], 0)
        return cls(pool, judgments, item, count, waiting)

    @cached_property
    def out(self) -> Integers | None:
        """How many requests of each pair are out, (n,); None where there are none at all."""
        return None if self.waiting is None else np.bincount(self._out_pairs[0], minlength=len(self.pool))

    @cached_property
    def _out_pairs(self) -> tuple[Integers, Integers]:
        """The pairs of the pool that requests are out for, and the places of those who are asked in the roster, or -1.

        Both (n_requests,).
        """
        assert self.waiting is not None
        pair = find_pairs(self.pool.query, self.pool.document, self.waiting.query, self.waiting.document)
        who = np.full(len(pair), ANYONE)
        if self.pool.roster is not None:
            who = ids.match(self.pool.roster.assessors, self.waiting.assessor)
        return pair[pair >= 0], who[pair >= 0]

    @property
    def asked_by_name(self) -> tuple[Integers, Integers]:
        """Pairs, and the place in the roster of those who have been asked about them and have not answered."""
        if self.waiting is None:
            return NOTHING, NOTHING
        pair, who = self._out_pairs
        return pair[who >= 0], who[who >= 0]

    @cached_property
    def load(self) -> Integers:
        """How many judgments each assessor of the roster has given, or has been asked for: (n_assessors,)."""
        assert self.pool.roster is not None
        load = np.zeros(len(self.pool.roster), np.int64)
        if self.judgments is not None:
            place = ids.match(self.pool.roster.assessors, self.judgments.assessors)
            given = kernels.counted(self.judgments.assessor, self.judgments.n_assessors)
            load[place[place >= 0]] = given[place >= 0]
        return load + np.bincount(self.asked_by_name[1], minlength=len(load))

    @property
    def unknown(self) -> int:
        """How many judged documents are not in the pool."""
        return 0 if self.judgments is None else self.judgments.n_items - int((self.item >= 0).sum())  # each pair once


@dataclass(frozen=True, eq=False)
class RankedRequests:
    """Labels that a policy wants, one row each: a pair may stand there several times.

    Where `exact` is given, `worth` is only as much as a row can be worth: what it is worth is worked out for those rows
    alone that may come first.
    """

    pair: Integers  # (m,) places in the pool
    worth: Floats  # (m,) the most wanted is the highest; equals in the order given
    reason: NDArray[np.int8]  # (m,) places in `reasons`
    reasons: tuple[str, ...]
    exact: Callable[[Integers], Floats] | None = None  # of some rows what they are worth; NaN: not wanted after all

    def __len__(self) -> int:
        return len(self.pair)

    def told(self, rows: Integers) -> NDArray[np.object_]:
        """Why the labels of some rows are wanted."""
        return np.array([*self.reasons, ""], object)[self.reason[rows]]

    def resolved(self) -> RankedRequests:
        """The same, with what every row is worth."""
        if self.exact is None:
            return self
        worth = self.exact(np.arange(len(self)))
        keep = ~np.isnan(worth)
        return RankedRequests(self.pair[keep], worth[keep], self.reason[keep], self.reasons)

    def in_order(self, first: int) -> Iterator[Integers]:
        """Blocks of rows, the most wanted first; the first block has about `first` rows, without sorting the others."""
        done = np.zeros(len(self), bool)
        for size in _sizes(first, len(self), growing=self.exact is not None):
            least = np.partition(self.worth, len(self) - size)[len(self) - size]
            head = np.flatnonzero(self.worth >= least)
            if len(head) > len(self) // 2:
                break
            worth = self.worth[head] if self.exact is None else self.exact(head)
            sure = worth >= least  # none of the others can be worth as much
            if sure.sum() >= first:
                done[head[sure | np.isnan(worth)]] = True
                yield from _blocks(head[sure], worth[sure], first)
                break
        rest = np.flatnonzero(~done)  # seldom asked for
        worth = self.worth[rest] if self.exact is None else self.exact(rest)
        yield from _blocks(rest[~np.isnan(worth)], worth[~np.isnan(worth)], BLOCK)


def _sizes(first: int, n: int, *, growing: bool) -> Iterator[int]:
    """How many rows to look at: as many as are asked for; more and more where that may not be enough."""
    size = 4 * first if growing else first
    while 0 < size < n // 2:
        yield size
        if not growing:
            return
        size *= 4


def _blocks(rows: Integers, worth: Floats, size: int) -> Iterator[Integers]:
    order = rows[np.argsort(-worth, kind="stable")]
    size = min(max(size, 64), BLOCK)
    for start in range(0, len(order), size):
        yield order[start : start + size]


class Policy(Estimator, ABC):
    """Base of all policies, which choose the labels to request next.

    A subclass implements `wishes`: the pairs whose labels it wants, and how much. :meth:`next` observes the budget, who
    may judge which pair, the maximum number of labels per assessor, and that nobody judges a pair twice.
    """

    takes_model: ClassVar[bool] = False
    """Whether the policy uses a fitted model."""
    first: ClassVar[bool] = False
    """Whether the policy never wants more than one label per pair."""
    random_state: int | None
    _parameter_constraints: ClassVar[Constraints] = {"random_state": [Number(0, integer=True), None]}

    @abstractmethod
    def wishes(self, state: State, model: Aggregator | None) -> RankedRequests:
        """Return the labels that the policy wants, for pairs that are not honeypots."""

    def merit(self, state: State, model: Aggregator | None, pair: Integers) -> Floats | None:
        """Return how much each assessor of the roster is preferred for each pair, (n_pairs, n_assessors).

        By default preferences are random if there is a random state; otherwise None, and the assessor with the fewest
        labels is asked.
        """
        if self.random_state is None or state.pool.roster is None:
            return None
        drawn = np.random.default_rng([self.random_state, int(state.count.sum()), len(pair), int(pair[0])])
        return 1.0 - drawn.random((len(pair), len(state.pool.roster)))

    def next(
        self,
        pool: Any,
        judgments: Any = None,
        consensus: Any = None,
        budget: Budget | float = 100,
        waiting: OutstandingRequests | None = None,
    ) -> Requests:
        """Return the labels to request now.

        Args:
            pool: the pairs that may be judged: `Pool`, a path or a DataFrame.
            judgments: the judgments so far: `Judgments`, a path, a DataFrame, or None.
            consensus: a model fitted to them, if the policy uses one (`takes_model`); by default GDA is fitted.
            budget: `Budget`, or an amount of money.
            waiting: pending requests, which are not made again.

        """
        self._check_parameters()
        pairs, known = as_pool(pool), None if judgments is None else as_judgments(judgments)
        terms = budget if isinstance(budget, Budget) else Budget(budget)
        state = State.of(pairs, known, waiting)
        wishes, model, notes = self._wishes(state, consensus)
        return _Round(self, state, model, terms).allotted(wishes, notes)

    def _wishes(self, state: State, consensus: Any) -> tuple[RankedRequests, Aggregator | None, list[str]]:
        if state.judgments is None or not (state.item >= 0).any():
            if not self.first:
                told = (
                    "There are no judgments yet" if state.judgments is None else "No judgment is of a pair of the pool"
                )
                warnings.warn(
                    f"{told}: one label of every pair is asked for first (single).", DataWarning, stacklevel=4
                )
            return first_labels(state, self.random_state), None, []
        notes = []
        if state.unknown:
            notes.append(f"{counted(state.unknown, 'judged document')} not in the pool: nothing is asked of them.")
        model = self._model(consensus, state.judgments) if self.takes_model else None
        return self.wishes(state, model), model, notes

    def _model(self, consensus: Any, judgments: Judgments) -> Aggregator:
        if consensus is None:
            from crowdrank.consensus.gda import GDA

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                return GDA().fit(judgments)
        if not isinstance(consensus, Aggregator) or not hasattr(consensus, "consensus_"):
            raise UsageError(f"{type(self).__name__} asks a fitted model, not {type(consensus).__name__}.")
        return consensus


def first_labels(state: State, random_state: int | None) -> RankedRequests:
    """One label of every pair that has none, in the order of the pool, or drawn."""
    wanted = (state.count == 0) & ~state.pool.planted
    pair = in_turn(np.flatnonzero(wanted if state.out is None else wanted & (state.out == 0)), random_state)
    return RankedRequests(pair, np.zeros(len(pair)), np.zeros(len(pair), np.int8), ("no label so far",))


def in_turn(pair: Integers, random_state: int | None) -> Integers:
    """Pairs as they stand, or shuffled."""
    return pair if random_state is None else np.random.default_rng(random_state).permutation(pair)


@dataclass(frozen=True, eq=False)
class _Round:
    """One round of requests under a budget."""

    policy: Policy
    state: State
    model: Aggregator | None
    budget: Budget

    def allotted(self, wishes: RankedRequests, notes: list[str]) -> Requests:
        """The wishes that can be met, the most wanted first, and honeypots for their share."""
        planted = self._planted()
        for_honeypots = self.budget.money * self.budget.honeypots if len(planted) else 0.0
        if self.budget.honeypots and not len(planted):
            notes = [*notes, "There are no honeypots in the pool: give their right answers in a column honeypot."]
        money = self.budget.money - for_honeypots
        if self.state.pool.roster is None:
            pair, assessor, reason, unmet = self._for_anyone(wishes, money)
            more = planted[: int(for_honeypots / max(self.budget.price, 1e-12) + 1e-9)]
            who = np.full(len(more), ANYONE)
            price = np.full(len(pair) + len(more), self.budget.price)
        else:
            desk = _Allocator.of(self.state, self.budget, self.policy.random_state)
            pair, assessor, reason, unmet = desk.serve(wishes, money, self._merit)
            extra = RankedRequests(planted, np.zeros(len(planted)), np.zeros(len(planted), np.int8), ("honeypot",))
            more, who, _, _ = desk.serve(extra, for_honeypots, None) if len(planted) else (NOTHING, NOTHING, None, 0)
            price = self.state.pool.roster.price[np.concatenate([assessor, who])]
        self._refuse_nothing(wishes, pair, unmet)
        return Requests(
            self.state.pool,
            np.concatenate([pair, more]),
            np.concatenate([assessor, who]),
            price,
            np.concatenate([reason, np.full(len(more), "honeypot", object)]),
            np.arange(len(pair) + len(more)) >= len(pair),
            tuple(notes),
            self.budget.kind,
            unmet,
        )

    def _planted(self) -> Integers:
        """Honeypots, drawn: each time others."""
        pair = np.flatnonzero(self.state.pool.planted)
        so_far = 0 if self.state.judgments is None else len(self.state.judgments)
        return np.random.default_rng([self.policy.random_state or 0, so_far]).permutation(pair)

    def _for_anyone(self, wishes: RankedRequests, money: float) -> tuple[Integers, Integers, NDArray[np.object_], int]:
        n = len(wishes) if self.budget.price == 0 else int(money / self.budget.price + 1e-9)
        n = min(n, len(wishes))
        rows = NOTHING
        for block in wishes.in_order(n):
            rows = np.concatenate([rows, block])[:n]
            if len(rows) >= n:
                break
        return wishes.pair[rows], np.full(len(rows), ANYONE), wishes.told(rows), 0

    def _merit(self, pair: Integers) -> Floats | None:
        return self.policy.merit(self.state, self.model, pair)

    def _refuse_nothing(self, wishes: RankedRequests, pair: Integers, unmet: int) -> None:
        """Refuse a round in which labels are wanted and none can be had."""
        if len(pair):
            return
        wishes = wishes.resolved()
        if not len(wishes):
            return
        one = int(wishes.pair[int(np.argmax(wishes.worth))])
        name, query = (column[one].as_py() for column in (self.state.pool.document, self.state.pool.query))
        if unmet:
            raise InputError(
                f"nobody is left who may judge any of {counted(len(np.unique(wishes.pair)), 'pair')} that need labels "
                f"(the first is {shown(name)} of query {shown(query)})",
                kind="nobody-left",
                fix=[Fix("add assessors with {}", "assessors"), Fix("let each give more with {}", "most")],
            )
        roster = self.state.pool.roster
        least = self.budget.price if roster is None else float(roster.price.min())
        problem = f"of {self.budget.money:g} buys no label: the cheapest costs {least:g}"
        raise UsageError(problem, parameter="budget", kind="budget-too-small", fix="raise it")


@dataclass(frozen=True, eq=False)
class _Allocator:
    """Gives wishes to the assessors of a roster."""

    state: State
    place: Integers  # (n_judgment_assessors + 1,) place in the roster of those who judged, -1 for others
    load: Integers  # (n_assessors,) judgments given and asked for
    most: int
    turn: Integers  # (n_assessors,) the order among equals
    last: Integers  # (n_pairs,) the last wish met of each pair, or -1

    @classmethod
    def of(cls, state: State, budget: Budget, random_state: int | None) -> _Allocator:
        assert state.pool.roster is not None
        roster, judgments = state.pool.roster, state.judgments
        n = len(roster)
        if not n:
            raise InputError("nobody may be asked", kind="nobody-left", fix=Fix("name assessors with {}", "assessors"))
        place = np.array([-1]) if judgments is None else ids.match(roster.assessors, judgments.assessors)
        turn = np.arange(n) if random_state is None else np.random.default_rng(random_state).permutation(n)
        most = np.iinfo(np.int64).max if budget.most is None else int(budget.most)
        return cls(state, place, state.load.copy(), most, turn, np.full(len(state.pool), -1))

    def serve(
        self, wishes: RankedRequests, money: float, merit: Any
    ) -> tuple[Integers, Integers, NDArray[np.object_], int]:
        """Meet wishes in order till the money is spent: pairs, assessors, reasons; how many nobody can meet."""
        roster, judgments = self.state.pool.roster, self.state.judgments
        assert roster is not None
        offsets, judged_by = np.zeros(1, np.int64), np.zeros(0, np.int32)
        if judgments is not None:
            offsets, judged_by = judgments.offsets.astype(np.int64), judgments.assessor
        allowed_offsets, allowed = self.state.pool.allowed or (NOTHING, np.empty(0, np.int32))
        cheapest = float(roster.price.min())
        n = len(wishes) if cheapest == 0 else int(min(money / cheapest + 1, len(wishes)))
        self.last[:] = -1
        before, given = self._asked_already()  # and then of the wishes looked at
        done, kept, unmet = len(before), [], 0
        for block in wishes.in_order(n):
            pair = wishes.pair[block]
            told = merit(pair) if merit is not None else None
            worth = np.zeros((1, len(roster))) if told is None else told
            chosen, ended = np.empty(len(block), np.int64), np.empty(len(block), np.int8)
            if done + len(block) > len(before):
                more = np.full(len(before) + len(block), -1)
                before, given = np.concatenate([before, more]), np.concatenate([given, more])
            money = kernels.allot(
                pair,
                self.state.item[pair],
                offsets,
                judged_by,
                self.place,
                allowed_offsets,
                allowed,
                worth,
                roster.price,
                self.load,
                self.most,
                money,
                self.turn,
                self.last,
                before,
                given,
                done,
                chosen,
                ended,
            )
            done += len(block)
            met = ended == kernels.GIVEN
            unmet += int((ended == kernels.NOBODY).sum())
            kept.append((block[met], chosen[met]))
            if cheapest > money + 1e-9:
                break
        rows = np.concatenate([NOTHING, *(part[0] for part in kept)])
        who = np.concatenate([NOTHING, *(part[1] for part in kept)])
        return wishes.pair[rows], who, wishes.told(rows), unmet

    def _asked_already(self) -> tuple[Integers, Integers]:
        """Requests that are out, as wishes that were met: for each the one before it of the same pair, and to whom."""
        pair, who = self.state.asked_by_name
        before = np.full(len(pair), -1)
        for wish, one in enumerate(pair.tolist()):
            before[wish], self.last[one] = self.last[one], wish
        return before, who.astype(np.int64)
