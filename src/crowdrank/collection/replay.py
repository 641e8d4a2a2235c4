"""Replay recorded judgments as answers to the requests of a policy, and score the result of every round."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._estimator import require_integer
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.belief import consensus_rows
from crowdrank.collection.policy import Policy
from crowdrank.collection.pool import Pool
from crowdrank.collection.requests import Budget, PoolState, Requests, Unspent
from crowdrank.collection.schemes import Scheme
from crowdrank.consensus.feature_scores import usable_features
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import ConvergenceWarning, DataWarning, InputError, UsageError
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.table import Judgments
from crowdrank.readers.features import Features, as_features

MAX_REFIT_ITERATIONS = 10
"""Maximum number of iterations of a fit that starts from the fit of the previous round."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """Recorded judgments that answer requests; each pair may be judged by the assessors who judged it.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=4, random_state=1)
    >>> judgments = crowdrank.read_judgments(world.judgments)
    >>> crowd = Crowd.of(judgments)
    >>> requests = crowdrank.collection.get_policy("single").next(crowd.pool, None, None, 100)
    >>> len(crowd.rows(requests)) == judgments.n_items
    True
    """

    judgments: Judgments
    pool: Pool
    _rows: Integers = field(repr=False)  # rows of the judgments, in the order of the keys
    _keys: Integers = field(repr=False)  # pair * n_assessors + assessor, ascending

    @classmethod
    def of(cls, judgments: Judgments) -> Crowd:
        """Return the crowd of judgments."""
        item = judgments.item
        key = item * judgments.n_assessors + judgments.assessor
        order = np.argsort(key, kind="stable")
        return cls(judgments, Pool.of(judgments, replay=True), order, key[order])

    def rows(self, requests: Requests) -> Integers:
        """Return the rows of the judgments that answer requests."""
        key = requests.pair * self.judgments.n_assessors + requests.assessor
        return self._rows[np.searchsorted(self._keys, key)]


@dataclass(frozen=True, eq=False)
class Point:
    """Quality after a round."""

    labels: int
    money: float
    evaluation: Evaluation
    bought: Booleans  # (n_judgments,) judgments bought so far


@dataclass(frozen=True, eq=False)
class Curve:
    """Quality after each round, by labels bought."""

    points: tuple[Point, ...]
    unspent: tuple[Unspent, ...] = ()  # why the last round that was asked for left money

    @property
    def bought(self) -> Booleans:
        """Judgments bought until the last round (n_judgments,)."""
        return self.points[-1].bought

    def table(self) -> list[dict[str, float]]:
        """Return labels, money and the mean of each measure after each round."""
        return [{"labels": point.labels, "money": point.money, **point.evaluation.means} for point in self.points]

    def at_cost(self, money: float) -> Evaluation:
        """Return the last evaluation that cost at most this money; the first one if all cost more."""
        within = [point for point in self.points if point.money <= money + 1e-6]
        return (within[-1] if within else self.points[0]).evaluation


def replay(
    policy: Policy,
    crowd: Crowd,
    gold: Any,
    measures: Sequence[str],
    *,
    budget: float,
    rounds: int = 10,
    model: Callable[[], Aggregator] = GDA,
    features: Any = None,
    scheme_labels: bool = True,
) -> Curve:
    """Request labels of a crowd in rounds of equal money, and score the result of each round.

    Args:
        policy: the policy.
        crowd: the crowd that answers.
        gold: expert grades to score against; the policy does not see them.
        measures: as in :func:`crowdrank.evaluate`.
        budget: money for all rounds.
        rounds: number of rounds.
        model: function that returns the consensus model; each fit starts from that of the previous round.
        features: features of documents from which relevance gets a prior, as in :meth:`Aggregator.fit`; both the policy
            and the score of a round then use the predictions for pairs without a label.
        scheme_labels: score a labeling scheme by the labels that it makes (majority vote, highest grade, mean of its
            training instances) instead of by the model.

    """
    require_integer("rounds", rounds, 1)
    prior = None if features is None else _check_features(features, crowd.judgments)
    bought = np.zeros(len(crowd.judgments), bool)
    known: Judgments | None = None
    fitted: Aggregator | None = None
    points: list[Point] = []
    spent, unspent = 0.0, tuple[Unspent, ...]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(rounds):
            if known is not None and policy.takes_model:
                fitted = refit(model, known, fitted, prior)
            money = budget * (number + 1) / rounds - spent
            if crowd.pool.roster is not None and money < crowd.pool.roster.price.min():
                continue
            try:
                requests = policy.next(crowd.pool, known, fitted, Budget(money))
            except InputError as error:
                if error.kind != "nobody-left" or not points:
                    raise
                price = 1.0 if crowd.pool.roster is None else float(crowd.pool.roster.price.min())
                unspent = (Unspent(money, "nobody-left", False, price),)
                break
            unspent = requests.unspent
            if not len(requests):
                break
            spent += requests.cost
            bought[crowd.rows(requests)] = True
            known = crowd.judgments.where(bought)
            if isinstance(policy, Scheme) and scheme_labels:
                ranking = scheme_ranking(policy, known, crowd.pool)
            else:
                fitted = refit(model, known, fitted, prior)
                ranking = model_ranking(fitted, crowd.pool)
            evaluation = evaluate(ranking, gold, list(measures), unjudged="skip")
            points.append(Point(int(bought.sum()), spent, evaluation, bought.copy()))
    if not points:
        raise UsageError(f"of {budget:g} in {rounds} rounds buys no label", parameter="budget", fix="raise it")
    return Curve(tuple(points), unspent)


def _check_features(features: Any, judgments: Judgments) -> Features:
    """Return the features, with a warning about each of their problems on all judgments, as a fit gives it."""
    prior = as_features(features)
    for problem in usable_features(prior, judgments)[1]:
        warnings.warn(problem, stacklevel=3)
    return prior


def refit(
    model: Callable[[], Aggregator], judgments: Judgments, previous: Aggregator | None, features: Any = None
) -> Aggregator:
    """Return the model fitted to the judgments, starting from a previous fit."""
    if previous is not None and previous.judgments_ is judgments:
        return previous
    new = model()
    if previous is None or previous.judgments_.scales != judgments.scales:
        return new.fit(judgments, features=features)
    if "n_iter" in (parameters := new.get_params()):
        new.set_params(n_iter=min(int(parameters["n_iter"]), MAX_REFIT_ITERATIONS))
    return new.fit(judgments, features=features, init=previous)


def model_ranking(model: Aggregator, pool: Pool) -> pd.DataFrame:
    """Return query, document and score of every pair.

    Pairs with neither a judgment nor a prediction get the mean score.
    """
    relevance = model.consensus_.numbers("relevance")
    average = float(relevance[: len(model.consensus_.document_table)].mean()) if model.in_grades else 0.0
    return _ranking(consensus_rows(PoolState.of(pool, model.judgments_), model), relevance, average, pool)


def scheme_ranking(scheme: Scheme, judgments: Judgments, pool: Pool) -> pd.DataFrame:
    """Return query, document and score of every pair; the score is the weighted mean of its training instances.

    Pairs without a judgment have the average score.
    """
    item, grade, weight = scheme.training_labels(judgments)
    score = np.bincount(item, weight * grade, judgments.n_items) / np.bincount(item, weight, judgments.n_items)
    return _ranking(PoolState.of(pool, judgments).item, score, float(score.mean()), pool)


def _ranking(row: Integers, score: Floats, average: float, pool: Pool) -> pd.DataFrame:
    scores = np.where(row >= 0, score[np.maximum(row, 0)], average)
    return pd.DataFrame({"query": pool.query.to_pandas(), "document": pool.document.to_pandas(), "score": scores})
