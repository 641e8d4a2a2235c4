"""A crowd whose answers are all known already, asked as a policy asks: quality against what was spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.base import Policy
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.requests import Budget, Requests
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.gda import GDA
from crowdrank.errors import ConvergenceWarning, DataWarning, UsageError
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.table import Judgments

Make = Callable[[], Aggregator]
ROUNDS = 10
"""Iterations of a fit that starts from the one before."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """Judgments that answer requests: each pair may be judged by those who judged it.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=4, random_state=1)
    >>> judged = crowdrank.read_judgments(world.judgments)
    >>> crowd = Crowd.of(judged)
    >>> asked = crowdrank.collection.get_policy("single").next(crowd.pool, None, None, 100)
    >>> len(crowd.rows(asked)) == judged.n_items
    True
    """

    judgments: Judgments
    pool: Pool
    row_of: Integers = field(repr=False)  # rows in the order of pair and assessor
    key: Integers = field(repr=False)  # pair * n_assessors + assessor, ascending

    @classmethod
    def of(cls, judgments: Judgments, roster: Roster | None = None) -> Crowd:
        """A crowd that answers as it did; a roster tells kinds and prices of its assessors, in their order."""
        pool = Pool.of(judgments, replay=True)
        if roster is not None:
            pool = pool.with_roster(roster)
        item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
        key = item * judgments.n_assessors + judgments.assessor
        order = np.argsort(key, kind="stable")
        return cls(judgments, pool, order, key[order])

    def rows(self, requests: Requests) -> Integers:
        """The rows of the judgments that answer requests."""
        key = requests.pair * self.judgments.n_assessors + requests.assessor
        return self.row_of[np.searchsorted(self.key, key)]


@dataclass(frozen=True, eq=False)
class Point:
    """What was known after a round."""

    labels: int
    money: float
    evaluation: Evaluation


@dataclass(frozen=True, eq=False)
class Curve:
    """Quality against labels bought, round by round."""

    policy: Policy
    points: tuple[Point, ...]
    bought: Booleans  # (n_judgments,) at the end

    def table(self) -> list[dict[str, float]]:
        """Labels, money and the mean of each measure after each round."""
        return [{"labels": point.labels, "money": point.money, **point.evaluation.means} for point in self.points]

    def values(self, measure: str, money: Sequence[float]) -> Floats:
        """A measure's value of each query at amounts of money, (n_amounts, n_queries): the last point within each."""
        spent = np.array([point.money for point in self.points])
        at = np.maximum(np.searchsorted(spent, np.asarray(money) + 1e-9, side="right") - 1, 0)
        return np.stack([self.points[place].evaluation.values(measure) for place in at])


def replay(
    policy: Policy,
    crowd: Crowd,
    gold: Any,
    measures: Sequence[str],
    *,
    budget: float,
    rounds: int = 10,
    model: Make = GDA,
    start: Booleans | None = None,
    gains: str = "exponential",
    tell: Callable[[str], None] = lambda doing: None,
) -> Curve:
    """Ask a crowd as a policy says, in rounds of equal money, and score what is known after each.

    Args:
        policy: what to ask.
        crowd: who answers.
        gold: expert grades that the consensus is scored against; the policy sees none of them.
        measures: as in :func:`crowdrank.evaluate`.
        budget: money for all rounds together.
        rounds: in how many it is spent.
        model: makes the model of what is known; it is fitted anew after each round from where it was.
        start: labels that are there at the start and cost nothing, where there are any.
        gains: what a grade gains.
        tell: is called with what is about to run.

    """
    if rounds < 1:
        raise UsageError(f"There are {rounds} rounds; take at least 1.")
    bought = np.zeros(len(crowd.judgments), bool) if start is None else start.copy()
    fitted: Aggregator | None = None
    known: Judgments | None = crowd.judgments.where(bought) if bought.any() else None
    points, spent = [], 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            if known is not None and policy.takes_model:
                fitted = refitted(model, known, fitted)
            money = budget * (number + 1) / rounds - spent
            if crowd.pool.roster is not None and money < crowd.pool.roster.price.min():
                continue
            asked = policy.next(crowd.pool, known, fitted if policy.takes_model else None, Budget(money))
            if not len(asked):
                break
            spent += asked.cost
            bought[crowd.rows(asked)] = True
            known = crowd.judgments.where(bought)
            after = fitted = refitted(model, known, fitted)
            points.append(Point(int(bought.sum()), spent, score(after, crowd.pool, gold, measures, gains)))
    if not points:
        raise UsageError(f"The budget {budget:g} in {rounds} rounds buys no label; raise it.")
    return Curve(policy, tuple(points), bought)


def refitted(model: Make, known: Judgments, before: Aggregator | None) -> Aggregator:
    """A model of the judgments, from where one was before."""
    if before is not None and before.judgments_ is known:
        return before
    fresh = model()
    if before is None or before._prepare(before.judgments_).scales != fresh._prepare(known).scales:
        return fresh.fit(known)
    if "n_iter" in fresh.get_params():
        fresh.set_params(n_iter=min(int(fresh.n_iter), ROUNDS))
    return fresh.fit(known, init=before)


def score(model: Aggregator, pool: Pool, gold: Any, measures: Sequence[str], gains: str = "exponential") -> Evaluation:
    """The consensus against gold; a pair of the pool of which nothing is known has the middle of what is expected."""
    return evaluate(ranked(model, pool), gold, list(measures), gains=gains)


def ranked(model: Aggregator, pool: Pool) -> pd.DataFrame:
    """Query, document and score of every pair of a pool."""
    table = model.consensus_.document_table
    relevance = table["relevance"].to_numpy()
    row = model.judgments_.positions(pool.query, pool.document)
    middle = 0.0 if model.on_a_line else float(relevance.mean())
    return pd.DataFrame(
        {
            "query": pool.query.to_pandas(),
            "document": pool.document.to_pandas(),
            "score": np.where(row >= 0, relevance[np.maximum(row, 0)], middle),
        }
    )
