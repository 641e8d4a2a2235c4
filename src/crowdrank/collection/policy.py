"""Base class of policies, which choose the labels to request next, and assignment under a budget."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._arrow import to_numpy
from crowdrank._estimator import Estimator
from crowdrank._text import counted
from crowdrank._typing import Codes, Floats, Integers
from crowdrank.collection import policy_kernels
from crowdrank.collection.pool import ANYONE, Roster, as_pool
from crowdrank.collection.requests import (
    Budget,
    OutstandingRequests,
    PairStatus,
    PoolState,
    RankedRequests,
    Requests,
    Unspent,
)
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.model import Aggregator
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import DataWarning, Fix, InputError, Message, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

HONEYPOT = "honeypot"
"""Reason for the request of a honeypot."""
TOLERANCE = 1e-9
"""Tolerance for sums of prices."""
NO_INDICES = np.empty(0, np.int64)
AssessorScores = Callable[[Integers], Floats | None]
"""Function of pairs that returns preferences (n_pairs, n_assessors), or None."""


@dataclass(frozen=True, eq=False)
class Assigned:
    """Requests that the budget allows: pairs, assessors and reasons."""

    pair: Integers
    assessor: Integers  # roster index, or ANYONE
    reason: NDArray[np.object_]
    unmet: int = 0  # number of wanted labels that no assessor can give
    is_too_expensive: bool = False  # whether the money that is left buys no label, or none that is wanted


def assign(
    ranked: RankedRequests,
    state: PoolState,
    budget: Budget,
    random_state: int | None,
    assessor_scores: AssessorScores = lambda pair: None,
    notes: Sequence[Message] = (),
    other_pairs: PairStatus = "complete",
) -> Requests:
    """Return the wanted labels that the budget allows, by priority, and honeypots for their share of the budget.

    Args:
        ranked: the wanted labels.
        state: state of the pool.
        budget: money and its terms.
        random_state: random seed for honeypots and equally preferred assessors.
        assessor_scores: function that returns the preferences for assessors.
        notes: notes for the result.
        other_pairs: status of the pairs of which the policy wants no label, and that wait for none.

    """
    honeypots = _ranked_honeypots(state, random_state)
    honeypot_money = budget.money * budget.honeypots if len(honeypots) else 0.0
    if budget.honeypots and not len(honeypots):
        fix = Fix("give their correct answers in a column honeypot")
        notes = [*notes, Message("There are no honeypots in the pool", "no-honeypots", "note", fixes=(fix,))]
    money = budget.money - honeypot_money
    roster = state.pool.roster
    if roster is None:
        labels = _assign_to_anyone(ranked, money, budget.price)
        planted = _assign_to_anyone(honeypots, honeypot_money, budget.price)
    else:
        assigner = _Assigner.of(state, roster, budget.most, random_state)
        labels = assigner.assign(ranked, money, assessor_scores)
        planted = assigner.assign(honeypots, honeypot_money, lambda pair: None)
    if not len(labels.pair):
        _raise_if_nothing_was_assigned(ranked, labels, state, budget)
    assessor = np.concatenate([labels.assessor, planted.assessor])
    price = np.full(len(assessor), budget.price) if roster is None else roster.price[assessor]
    n_labels = len(labels.pair)
    unspent = (
        _unspent(labels, money - float(price[:n_labels].sum()), state, budget, other_pairs),
        _unspent(planted, honeypot_money - float(price[n_labels:].sum()), state, budget, None),
    )
    return Requests(
        pool=state.pool,
        pair=np.concatenate([labels.pair, planted.pair]),
        assessor=assessor,
        price=price,
        reason=np.concatenate([labels.reason, planted.reason]),
        is_honeypot=np.arange(len(assessor)) >= n_labels,
        notes=tuple(notes),
        kind=budget.kind,
        unmet=labels.unmet,
        unspent=tuple(part for part in unspent if part is not None),
    )


def _unspent(
    assigned: Assigned, money: float, state: PoolState, budget: Budget, other_pairs: PairStatus | None
) -> Unspent | None:
    """Return why money is left for labels, or for honeypots (without `other_pairs`); None if none is left."""
    if money <= TOLERANCE:
        return None
    prices = np.array([budget.price]) if state.pool.roster is None else state.pool.roster.price
    higher = prices[prices > money + TOLERANCE]
    if len(higher) and (assigned.is_too_expensive or len(higher) == len(prices)):
        return Unspent(money, "price", other_pairs is None, float(higher.min()))
    price = float(prices.min())
    if assigned.unmet:
        return Unspent(money, "nobody-left", other_pairs is None, price)
    is_counted = ~state.pool.is_honeypot if other_pairs is not None else state.pool.is_honeypot
    is_requested = np.zeros(len(state.pool), bool)
    is_requested[assigned.pair] = True
    is_waiting = is_counted & ~is_requested & (state.n_requested > 0)
    pairs: dict[PairStatus, int] = {"requested": int(is_requested.sum()), "outstanding": int(is_waiting.sum())}
    pairs[other_pairs or "complete"] = int(is_counted.sum()) - sum(pairs.values())
    return Unspent(money, "nothing-wanted", other_pairs is None, price, {name: n for name, n in pairs.items() if n})


def spread_expert_requests(ranked: RankedRequests, state: PoolState, budget: Budget) -> RankedRequests:
    """Return the requests in turns of one per query if only experts answer them; otherwise unchanged.

    The most wanted pair of each query comes first, then the second of each. Expert grades of a few queries would
    calibrate the labels of these queries only.
    """
    roster = state.pool.roster
    if not (budget.kind == "expert" if roster is None else (roster.kind == "expert").all()):
        return ranked
    wanted = ranked.wanted()
    order = np.argsort(-wanted.priority, kind="stable")
    query = to_numpy(state.pool.query.dictionary_encode().indices)[wanted.pair[order]]
    by_query = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.diff(query[by_query], prepend=-1))
    turn = np.empty(len(order), np.int64)
    turn[by_query] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return RankedRequests(wanted.pair[order], -turn.astype(np.float64), wanted.reason[order], wanted.reasons)


def _ranked_honeypots(state: PoolState, random_state: int | None) -> RankedRequests:
    """Return the honeypots in random order, which differs from round to round."""
    n_judgments = 0 if state.judgments is None else len(state.judgments)
    rng = np.random.default_rng([random_state or 0, n_judgments, len(state.outstanding)])
    pair = rng.permutation(np.flatnonzero(state.pool.is_honeypot))
    return RankedRequests(pair, np.zeros(len(pair)), np.zeros(len(pair), np.int8), (HONEYPOT,))


def _assign_to_anyone(ranked: RankedRequests, money: float, price: float) -> Assigned:
    n = len(ranked) if price == 0 else min(int(money / price + TOLERANCE), len(ranked))
    rows = NO_INDICES
    for block in ranked.blocks(n):
        rows = np.concatenate([rows, block])[:n]
        if len(rows) >= n:
            break
    return Assigned(ranked.pair[rows], np.full(len(rows), ANYONE), ranked.reason_texts(rows))


def _raise_if_nothing_was_assigned(ranked: RankedRequests, labels: Assigned, state: PoolState, budget: Budget) -> None:
    """Raise an error if labels are wanted, of which none was assigned."""
    wanted = ranked.wanted()
    if not len(wanted):
        return
    if labels.unmet:
        first = int(wanted.pair[int(np.argmax(wanted.priority))])
        query, document = (shown(column[first].as_py()) for column in (state.pool.query, state.pool.document))
        problem = (
            f"no assessor is left who may judge any of {counted(len(np.unique(wanted.pair)), 'pair')} that need labels "
            f"(the first is {document} of query {query})"
        )
        fix = [Fix("add assessors with {}", "assessors"), Fix("let each give more with {}", "most")]
        raise InputError(problem, kind="nobody-left", fix=fix)
    lowest = budget.price if state.pool.roster is None else float(state.pool.roster.price.min())
    problem = f"of {budget.money:g} buys no label: the cheapest costs {lowest:g}"
    raise UsageError(problem, parameter="budget", kind="budget-too-small", fix="raise it")


@dataclass(frozen=True, eq=False)
class _Assigner:
    """Assigns requests to the assessors of a roster."""

    state: PoolState
    roster: Roster
    max_load: int
    tie_rank: Integers  # (n_assessors,) order of equally preferred assessors
    load: Integers  # (n_assessors,) number of judgments and requests so far

    @classmethod
    def of(cls, state: PoolState, roster: Roster, max_load: int | None, random_state: int | None) -> _Assigner:
        n = len(roster)
        if not n:
            fix = Fix("name assessors with {}", "assessors")
            raise InputError("there are no assessors", kind="nobody-left", fix=fix)
        tie_rank = np.arange(n) if random_state is None else np.random.default_rng(random_state).permutation(n)
        return cls(state, roster, max_load or np.iinfo(np.int64).max, tie_rank, state.load.copy())

    def _judged_by(self) -> tuple[Integers, Codes, Integers]:
        """Return the offsets of items, the assessor of each judgment, and the roster index of each assessor."""
        judgments = self.state.judgments
        if judgments is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), np.array([-1])
        index = ids.match(self.roster.assessors, judgments.assessors)
        return judgments.offsets.astype(np.int64, copy=False), judgments.assessor, index

    def assign(self, ranked: RankedRequests, money: float, assessor_scores: AssessorScores) -> Assigned:
        """Assign requests by priority until the money is spent."""
        if not len(ranked):
            return Assigned(NO_INDICES, NO_INDICES, np.empty(0, object))
        roster, judged, lowest_price = self.roster, self._judged_by(), float(self.roster.price.min())
        allowed = self.state.pool.allowed or (NO_INDICES, np.empty(0, np.int32))
        n = len(ranked) if lowest_price == 0 else int(min(money / lowest_price + 1, len(ranked)))
        requests, done = self._linked_requests(len(ranked))
        assessors = roster.price, self.load, self.tie_rank
        blocks, unmet, is_too_expensive = [(NO_INDICES, NO_INDICES)], 0, False
        for block in ranked.blocks(n):
            pair, chosen = ranked.pair[block], np.empty(len(block), np.int64)
            scores = assessor_scores(pair)
            scores = np.zeros((1, len(roster))) if scores is None else scores
            data = pair, self.state.item[pair], judged, allowed, scores, assessors, self.max_load
            money = policy_kernels.assign_requests(*data, money, requests, done, chosen)
            done += len(block)
            unmet += int((chosen == policy_kernels.NO_ASSESSOR).sum())
            is_too_expensive |= bool((chosen == policy_kernels.TOO_EXPENSIVE).any())
            blocks.append((block[chosen >= 0], chosen[chosen >= 0]))
            if lowest_price > money + TOLERANCE:
                break
        rows, assessor = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return Assigned(ranked.pair[rows], assessor, ranked.reason_texts(rows), unmet, is_too_expensive)

    def _linked_requests(self, n_new: int) -> tuple[tuple[Integers, Integers, Integers], int]:
        """Return the requests of each pair as linked lists, with space for new ones.

        They are the last request of each pair, the previous request of the same pair, and the assessor of each request;
        and the number of outstanding requests, which the lists contain already.
        """
        pair, assessor = self.state.outstanding_by_assessor
        last = np.full(len(self.state.pool), -1)
        previous, assignee = (np.empty(len(pair) + n_new, np.int64) for _ in range(2))
        assignee[: len(pair)] = assessor
        for request, one in enumerate(pair.tolist()):
            previous[request], last[one] = last[one], request
        return (last, previous, assignee), len(pair)


NO_LABEL = "no label so far"
"""Reason for the first request of a pair."""


class Policy(Estimator, ABC):
    """Base of all policies, which choose the labels to request next.

    A subclass implements :meth:`rank_requests`. :meth:`next` applies the budget, the assessors who may judge each
    pair, and the maximum number of labels per assessor; no assessor judges a pair twice.
    """

    takes_model: ClassVar[bool] = False
    """Whether the policy uses a fitted model."""
    other_pairs: ClassVar[PairStatus] = "complete"
    """Status of the pairs of which the policy wants no label, and that wait for none."""
    random_state: int | None
    _parameter_constraints: ClassVar[Constraints] = {"random_state": [Number(0, integer=True), None]}

    @abstractmethod
    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Return requests for labels, the most wanted first, for pairs that are not honeypots.

        Args:
            state: labels and outstanding requests of each pair.
            model: the fitted model, if the policy takes one.

        """

    def assessor_scores(self, state: PoolState, model: Aggregator | None, pair: Integers) -> Floats | None:
        """Return how much each assessor is preferred for each pair (n_pairs, n_assessors).

        By default random numbers if there is a random state; otherwise None: assessors with few labels are preferred.
        """
        if self.random_state is None or state.pool.roster is None:
            return None
        rng = np.random.default_rng([self.random_state, int(state.n_labels.sum()), len(pair), int(pair[0])])
        return 1.0 - rng.random((len(pair), len(state.pool.roster)))

    def next(
        self,
        pool: Any,
        judgments: Any = None,
        consensus: Any = None,
        budget: Budget | float = 100,
        outstanding: OutstandingRequests | None = None,
        *,
        features: Any = None,
    ) -> Requests:
        """Return the labels to request now.

        Args:
            pool: the pairs that may be judged: `Pool`, a path or a DataFrame.
            judgments: the judgments so far: `Judgments`, a path, a DataFrame, or None.
            consensus: a model fitted to them, if the policy uses one (`takes_model`); by default GDA is fitted.
            budget: `Budget`, or an amount of money.
            outstanding: requests without an answer, which are not repeated.
            features: features of documents (`Features`, a path or a DataFrame) for the GDA that is fitted by default;
                pairs without a label then have the prior that their features predict.

        """
        self._check_parameters()
        if features is not None:
            self._check_features(consensus)
        state = PoolState.of(as_pool(pool), None if judgments is None else as_judgments(judgments), outstanding)
        terms = budget if isinstance(budget, Budget) else Budget(budget)
        if self.takes_model and not (state.item >= 0).any():
            what = "There are no judgments yet" if state.judgments is None else "No document of the pool is judged yet"
            problem = f"{what}, so no model can be fitted: one label per pair is requested first"
            warnings.warn(DataWarning(problem, kind="no-judgments-yet"), stacklevel=2)
            ranked = spread_expert_requests(first_requests(state, self.random_state), state, terms)
            return assign(ranked, state, terms, self.random_state, other_pairs=self.other_pairs)
        model = self._fitted_model(consensus, state.judgments, features) if self.takes_model else None
        notes = []
        if state.n_outside:
            problem = f"{counted(state.n_outside, 'judged document')} not in the pool; they are not requested"
            notes.append(Message(problem, "judgments-outside-pool", "note"))
        return self._choose_requests(state, model, terms, notes)

    def _choose_requests(
        self, state: PoolState, model: Aggregator | None, budget: Budget, notes: list[Message]
    ) -> Requests:
        """Return the labels to request now, by priority as far as the budget reaches."""
        ranked = spread_expert_requests(self.rank_requests(state, model), state, budget)
        scores = partial(self.assessor_scores, state, model)
        return assign(ranked, state, budget, self.random_state, scores, notes, self.other_pairs)

    def _check_features(self, consensus: Any = None, parameter: str = "features") -> None:
        """Raise UsageError unless features have a use: the policy takes a model, which is not fitted yet."""
        if not self.takes_model:
            fix = Fix("use {}", "policy", "ndcg@10")
            raise UsageError("needs a policy with a model", parameter=parameter, kind="no-model", fix=fix)
        if consensus is not None:
            problem = "cannot be used by a model that is fitted already"
            raise UsageError(problem, parameter=parameter, kind="fitted-model", fix="fit the model with them")

    def _fitted_model(self, consensus: Any, judgments: Judgments | None, features: Any) -> Aggregator:
        if consensus is None:
            from crowdrank.consensus.gda import GDA

            if features is not None:
                return GDA().fit(judgments, features=features)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                return GDA().fit(judgments)
        if not isinstance(consensus, Aggregator) or not hasattr(consensus, "consensus_"):
            problem = f"must be a fitted model, not {type(consensus).__name__}"
            raise UsageError(problem, parameter="consensus", kind="not-a-fitted-model")
        return consensus


def first_requests(state: PoolState, random_state: int | None) -> RankedRequests:
    """Return one request for every pair without label or request, in the order of the pool or at random."""
    pair = shuffled(np.flatnonzero(state.open_pairs & (state.n_labels == 0)), random_state)
    return RankedRequests(pair, np.zeros(len(pair)), np.zeros(len(pair), np.int8), (NO_LABEL,))


def shuffled(pair: Integers, random_state: int | None) -> Integers:
    """Return the pairs in random order, or unchanged without a random state."""
    return pair if random_state is None else np.random.default_rng(random_state).permutation(pair)
