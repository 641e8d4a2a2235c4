"""Policy for preferences: which two documents to compare next, by expected information under the joint posterior."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._arrow import to_numpy
from crowdrank._estimator import Estimator
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import SETTLED_PROBABILITY
from crowdrank.collection.model_policies import VARIETY
from crowdrank.collection.policy import TOLERANCE
from crowdrank.collection.pool import ANYONE, Pool, as_pool
from crowdrank.collection.preference_requests import (
    PairKey,
    PreferenceRequestList,
    PreferenceRequests,
    answered_by,
    pair_key,
)
from crowdrank.collection.requests import Budget, PairStatus, Unspent
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.consensus.preference_assessors import INITIAL_MEAN, cumulative, cut_points
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import DataWarning, UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments
from crowdrank.readers.preference_files import read_preferences

MIN_TOP_PROBABILITY = 0.05
"""Minimum probability of being among the first k documents of its query at which a document is compared."""
MAX_CANDIDATES = 60
"""Maximum number of documents of a query that are compared in a round, those with the highest such probability."""
QUADRATURE_NODES = 21
"""Number of points at which the difference of relevance of two documents is evaluated (Gauss-Hermite quadrature)."""
REASON = "order at the top is uncertain"
"""Reason for all requests of preferences."""


class PreferencePairs(Estimator):
    """Request preferences between documents of the pool whose order at the top of their query is uncertain.

    A document is compared if it is among the first k documents of its query with a probability of at least 0.05 by its
    mean and standard deviation. The priority of two documents is the expected information of the answer of an assessor
    about their difference, in nats, times the probability that one of them is among the first k. After each choice, the
    joint covariance of the query is reduced by what the answer is expected to tell, so that a round does not ask the
    same thing twice. Two documents are compared once per round and not while a request is outstanding, in random order.

    Args:
        k: number of documents at the top of a query whose order matters.
        settled: two documents whose order has at least this probability are not compared.
        random_state: random seed of the sides.

    >>> import pandas as pd
    >>> pool = pd.DataFrame({"query": "q", "document": ["a", "b", "c"]})
    >>> grades = pd.DataFrame({"query": "q", "document": ["a", "b", "c"], "assessor": "x", "grade": [2, 2, 0]})
    >>> PreferencePairs(k=1).next(pool, grades, budget=2)
    <PreferenceRequests: 1 preference for 1>

    """

    _parameter_constraints: ClassVar[Constraints] = {
        "k": [Number(1, integer=True)],
        "settled": [Number(0.5, 1, above=True, below=True)],
        "random_state": [Number(0, integer=True), None],
    }

    def __init__(self, k: int = 10, *, settled: float = SETTLED_PROBABILITY, random_state: int | None = 0) -> None:
        self.k = k
        self.settled = settled
        self.random_state = random_state

    def next(
        self,
        pool: Any,
        judgments: Any = None,
        preferences: Any = None,
        consensus: GDA | None = None,
        budget: Budget | float = 100,
        outstanding: PreferenceRequestList | None = None,
    ) -> PreferenceRequests:
        """Return the preferences to request now.

        Args:
            pool: the documents that may be compared: `Pool`, a path or a DataFrame; honeypots are left out.
            judgments: the judgments so far: `Judgments`, a path, a DataFrame, or None.
            preferences: the preferences so far, likewise.
            consensus: a GDA fitted to them; by default it is fitted here. Without judgments and preferences, every
                document has the prior.
            budget: `Budget`, or an amount of money; honeypots have no part in it.
            outstanding: requests without an answer, which are not repeated.

        Raises:
            UsageError: a parameter is invalid, or all documents of the pool are honeypots.

        """
        self._check_parameters()
        terms = budget if isinstance(budget, Budget) else Budget(budget)
        known = None if judgments is None else as_judgments(judgments)
        compared = preferences if preferences is None or isinstance(preferences, Preferences) else None
        compared = read_preferences(preferences) if compared is None and preferences is not None else compared
        model = _fitted_model(consensus, known, compared)
        waiting = PreferenceRequestList.none() if outstanding is None else outstanding
        return _Round(self, as_pool(pool), model, compared, terms, waiting).choose()


def _fitted_model(consensus: GDA | None, judgments: Judgments | None, preferences: Preferences | None) -> GDA | None:
    """Return the fitted model; None if there is nothing to fit."""
    if consensus is not None:
        if not isinstance(consensus, GDA) or not hasattr(consensus, "consensus_"):
            problem = f"must be a fitted GDA, not {type(consensus).__name__}"
            raise UsageError(problem, parameter="consensus", kind="not-a-fitted-model")
        return consensus
    if judgments is None and preferences is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return GDA().fit(judgments, preferences=preferences)


@dataclass(frozen=True, eq=False)
class _Answerer:
    """Parameters of an assessor of preferences."""

    params: Floats  # (4,)
    active: Booleans  # (4,)

    def information(self, mean: Floats, sd: Floats) -> tuple[Floats, Floats]:
        """Return the mutual information of answer and difference in nats, and the expected Fisher information, (n,).

        Args:
            mean: mean of the difference of each pair, (n,).
            sd: its standard deviation, (n,).

        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        weights = weights / weights.sum()
        sharpness, cuts = float(np.exp(self.params[0])), cut_points(self.params[None], self.active)[0]
        below = cumulative(sharpness * (mean[:, None] + sd[:, None] * nodes) + self.params[1], cuts)
        p, slope = np.diff(below, axis=-1), np.diff(-below * (1.0 - below), axis=-1)
        expected = np.einsum("j,njk->nk", weights, p)
        information = np.einsum("j,nj->n", weights, -_entropy(p)) + _entropy(expected)
        fisher = sharpness**2 * (slope**2 / np.maximum(p, 1e-12)).sum(axis=-1) @ weights
        return np.maximum(information, 0.0), fisher


def _entropy(p: Floats) -> Floats:
    """Return the entropy of distributions along the last axis, in nats."""
    total: Floats = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1)
    return total


@dataclass(eq=False)
class _QueryPairs:
    """Documents of a query that may be compared, and their joint posterior."""

    rows: Integers  # (n,) documents in the pool
    mean: Floats  # (n,)
    covariance: Floats  # (n, n); reduced after each choice
    top: Floats  # (n,) probability of being among the first k
    is_open: Booleans  # (n_pairs,) whether each pair may still be chosen
    left: Integers  # (n_pairs,) index of each pair in `rows`
    right: Integers

    @classmethod
    def of(cls, rows: Integers, joint: PairProbabilities | None, items: Integers, k: int) -> _QueryPairs:
        """Return the candidates among the documents of a query, which have these items (-1: none, with the prior)."""
        mean, covariance, known = np.zeros(len(rows)), np.eye(len(rows)), np.flatnonzero(items >= 0)
        if joint is not None and len(known):
            own = items[known]
            mean[known] = joint.relevance[own]
            covariance[np.ix_(known, known)] = joint.correlation(own) * np.outer(joint.sd[own], joint.sd[own])
        sd = np.sqrt(np.diagonal(covariance))
        top = np.ones(len(rows))
        if len(rows) > k:
            from scipy.special import ndtr

            ordered = np.sort(mean)[::-1]
            top = ndtr((mean - (ordered[k - 1] + ordered[k]) / 2) / sd)
        chosen = np.argsort(-top, kind="stable")[:MAX_CANDIDATES]
        chosen = np.sort(chosen[top[chosen] >= MIN_TOP_PROBABILITY])
        left, right = np.triu_indices(len(chosen), 1)
        part = np.ix_(chosen, chosen)
        return cls(rows[chosen], mean[chosen], covariance[part], top[chosen], np.ones(len(left), bool), left, right)

    def difference(self, pair: Integers) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the difference of pairs."""
        left, right, v = self.left[pair], self.right[pair], self.covariance
        spread = v[left, left] + v[right, right] - 2 * v[left, right]
        return self.mean[left] - self.mean[right], np.sqrt(np.maximum(spread, 1e-12))

    def best(self, answerer: _Answerer, z: float) -> tuple[float, int] | None:
        """Return priority and number of the best open pair that is not settled, or None."""
        pair = np.flatnonzero(self.is_open)
        mean, sd = self.difference(pair)
        pair = pair[np.abs(mean) < z * sd]
        if not len(pair):
            return None
        information, _ = answerer.information(*self.difference(pair))
        priority = information * (1.0 - (1.0 - self.top[self.left[pair]]) * (1.0 - self.top[self.right[pair]]))
        return float(priority.max()), int(pair[np.argmax(priority)])

    def observe(self, pair: int, fisher: float) -> None:
        """Reduce the covariance by the expected information of an answer about a pair."""
        difference = self.covariance[:, self.left[pair]] - self.covariance[:, self.right[pair]]
        spread = difference[self.left[pair]] - difference[self.right[pair]]
        self.covariance -= np.outer(difference, difference) * (fisher / (1.0 + fisher * spread))
        self.is_open[pair] = False


@dataclass(eq=False)
class _Round:
    """One round of requests."""

    policy: PreferencePairs
    pool: Pool
    model: GDA | None
    preferences: Preferences | None
    budget: Budget
    outstanding: PreferenceRequestList
    pairs: list[_QueryPairs] = field(init=False)
    statuses: dict[PairStatus, int] = field(init=False, default_factory=dict)
    load: Integers = field(init=False)  # (n_assessors,) number of preferences and requests of each assessor

    def __post_init__(self) -> None:
        from scipy.special import ndtri

        self.z = float(ndtri(self.policy.settled))
        self.names = [list(map(str, column.to_pylist())) for column in (self.pool.query, self.pool.document)]
        self.answered = answered_by(self.preferences)
        self.pairs = list(self._queries())
        roster = self.pool.roster
        if roster is not None:
            names = [assessor for found in self.answered.values() for assessor in found]
            names += [one for one in self.outstanding.rows["assessor"].to_pylist() if one is not None]
            place = ids.match(roster.assessors, pa.array(names, pa.string()))
            self.load = np.bincount(place[place >= 0], minlength=len(roster))

    def _queries(self) -> Iterator[_QueryPairs]:
        """Yield the candidates of each query with more than one document; count pairs that wait for an answer."""
        joint = None if self.model is None else PairProbabilities.from_model(self.model)
        items = np.full(len(self.pool), -1)
        if joint is not None:
            items = joint.positions(self.pool.query, self.pool.document)
        usable = np.flatnonzero(~self.pool.is_honeypot)
        if len(self.pool) and not len(usable):
            fix = "leave the column honeypot blank, or false, for documents that are none"
            raise UsageError("All documents of the pool are honeypots", kind="all-honeypots", fix=fix)
        query = to_numpy(self.pool.query.dictionary_encode().indices)[usable]
        order = usable[np.argsort(query, kind="stable")]
        starts = np.flatnonzero(np.diff(np.sort(query), prepend=-1))
        columns = [self.outstanding.rows[name].to_pylist() for name in ("query", "left", "right")]
        waiting = {pair_key(*pair) for pair in zip(*columns, strict=True)}
        for rows in np.split(order, starts[1:]):
            if len(rows) < 2:
                continue
            one = _QueryPairs.of(rows, joint, items[rows], self.policy.k)
            if waiting:
                asked = np.array([self._key(one, pair) in waiting for pair in range(len(one.left))], bool)
                one.is_open &= ~asked
                self.statuses["outstanding"] = self.statuses.get("outstanding", 0) + int(asked.sum())
            yield one

    def _key(self, query: _QueryPairs, pair: int) -> PairKey:
        left, right = query.rows[query.left[pair]], query.rows[query.right[pair]]
        return pair_key(self.names[0][left], self.names[1][left], self.names[1][right])

    def _answerers(self) -> tuple[_Answerer, list[_Answerer]]:
        """Return a typical assessor, and the assessors of the roster; those without preferences are typical."""
        theta = {} if self.model is None else self.model.theta_
        if "preference_mean" not in theta:
            typical = _Answerer(INITIAL_MEAN * [1, 0, 1, 1], np.array([True, True, False, False]))
            return typical, [typical] * (0 if self.pool.roster is None else len(self.pool.roster))
        typical = _Answerer(theta["preference_mean"], theta["preference_active"])
        if self.pool.roster is None or self.model is None:
            return typical, []
        place = ids.match(self.model.consensus_.assessor_table["assessor"].combine_chunks(), self.pool.roster.assessors)
        params = theta["preference_params"]
        return typical, [typical if one < 0 else _Answerer(params[one], typical.active) for one in place.tolist()]

    def choose(self) -> PreferenceRequests:
        """Request the most informative comparison first, update what is known, and repeat while the budget allows."""
        typical, roster = self._answerers()
        money, rng = self.budget.money, np.random.default_rng([self.policy.random_state or 0, len(self.answered)])
        heap = [(-best[0], n, best[1]) for n, one in enumerate(self.pairs) if (best := one.best(typical, self.z))]
        heapq.heapify(heap)
        requested: list[tuple[str, str, str, int, float]] = []
        is_refused = False
        while heap and money + TOLERANCE >= self._lowest_price():
            _, number, pair = heapq.heappop(heap)
            query = self.pairs[number]
            found = self._assign(query, pair, roster, money)
            if found is None:
                is_refused = True
                query.is_open[pair] = False
            else:
                assessor, price = found
                money -= price
                left, right = query.rows[query.left[pair]], query.rows[query.right[pair]]
                left, right = (left, right) if rng.random() < 0.5 else (right, left)
                requested.append((self.names[0][left], self.names[1][left], self.names[1][right], assessor, price))
                answerer = typical if assessor == ANYONE else roster[assessor]
                _, fisher = answerer.information(*query.difference(np.array([pair])))
                query.observe(pair, float(fisher[0]))
            if best := query.best(typical, self.z):
                heapq.heappush(heap, (-best[0], number, best[1]))
        return PreferenceRequests(self._table(requested), self._unspent(money, len(requested), is_refused))

    def _lowest_price(self) -> float:
        roster = self.pool.roster
        return self.budget.price if roster is None else float(roster.price.min(initial=np.inf))

    def _assign(
        self, query: _QueryPairs, pair: int, roster: Sequence[_Answerer], money: float
    ) -> tuple[int, float] | None:
        """Return assessor and price of a request: the highest expected information per price, or None."""
        people = self.pool.roster
        if people is None:
            return ANYONE, self.budget.price
        names, done = people.assessors.to_pylist(), set(self.answered.get(self._key(query, pair), ()))
        most = np.inf if self.budget.most is None else self.budget.most
        allowed = [
            one
            for one in range(len(people))
            if str(names[one]) not in done and self.load[one] < most and people.price[one] <= money + TOLERANCE
        ]
        if not allowed:
            return None
        difference = query.difference(np.array([pair]))
        worth = [
            float(roster[one].information(*difference)[0][0])
            / ((1.0 + self.load[one]) ** VARIETY * max(float(people.price[one]), TOLERANCE))
            for one in allowed
        ]
        best = allowed[int(np.argmax(worth))]
        self.load[best] += 1
        return best, float(people.price[best])

    def _table(self, requested: Sequence[tuple[str, str, str, int, float]]) -> pa.Table:
        """Return the table of requests."""
        roster, rows = self.pool.roster, list(requested)
        columns = {
            name: pa.array([row[number] for row in rows], pa.string())
            for number, name in enumerate(("query", "left", "right"))
        }
        names = [None if roster is None else str(roster.assessors[row[3]].as_py()) for row in rows]
        kinds = [self.budget.kind if roster is None else str(roster.kind[row[3]]) for row in rows]
        columns |= {"assessor": pa.array(names, pa.string()), "kind": pa.array(kinds, pa.string())}
        columns["price"] = pa.array([row[4] for row in rows], pa.float64())
        return pa.table(columns | {"reason": pa.array([REASON] * len(rows), pa.string())})

    def _unspent(self, money: float, n_requested: int, is_refused: bool) -> Unspent | None:
        """Return why money is left, or None if none is."""
        if money <= TOLERANCE:
            return None
        lowest = self._lowest_price()
        if money + TOLERANCE < lowest:
            return Unspent(money, "price", False, lowest)
        if is_refused:
            return Unspent(money, "nobody-left", False, lowest)
        n_pairs = sum(len(one.left) for one in self.pairs)
        n_out = self.statuses.get("outstanding", 0)
        counts: dict[PairStatus, int] = {"requested": n_requested, "outstanding": n_out}
        counts["settled"] = n_pairs - n_requested - n_out
        return Unspent(money, "nothing-wanted", False, lowest, {name: n for name, n in counts.items() if n})
