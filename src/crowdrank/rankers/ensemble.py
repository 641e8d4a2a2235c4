"""An ensemble: the weighted mean of rankers' scores, each standardized within the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import require, require_floats
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, InstanceOf, Number, SequenceOf
from crowdrank.engine.base import Engine
from crowdrank.errors import UsageError
from crowdrank.rankers.base import N_JOBS, Ranker, constant_features_known
from crowdrank.rankers.lambdamart import LambdaMART, shares
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.ranking_data import Lists, query_codes
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation

HALVES = 10
"""Weights are found on so many halves of the queries, drawn, and averaged: those of a single search follow chance."""
EQUAL = 30
"""Weights are drawn towards equal ones as if so many more queries spoke for these."""


class Ensemble(Ranker):
    """Rankers that vote: their scores, standardized within each query, are averaged with weights.

    Weights are found on the validation queries by a search on the simplex, one member at a time; without validation
    queries they are equal.

    Args:
        members: rankers; by default a `LambdaMART` and a `GLS`.
        prefit: the members are fitted already, each on what it should learn from (the crowd's labels, the experts'),
            and `fit` only finds their weights, on the data that it is given.
        steps: into how many parts a weight is cut in the search.
        validate_by, gains: the measure that is raised.
        n_jobs: of the members by default; those that are given have their own.
        random_state: given to nobody; the members have their own.

    Attributes:
        members_: the fitted rankers.
        weights_: (n_members,), summing to 1.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=10, random_state=1)
    >>> X, gold = world.features.drop(columns=["query", "document"]), world.gold
    >>> pair = Ensemble([LambdaMART(n_estimators=10), GLS()]).fit(X, gold["grade"], query=gold["query"])
    >>> pair.predict(X, query=gold["query"]).shape
    (219,)
    """

    members_: list[Ranker]
    weights_: Floats

    _parameter_constraints: ClassVar[Constraints] = {
        "members": [SequenceOf(InstanceOf(Ranker, "a ranker")), None],
        "prefit": [Flag()],
        "steps": [Number(1, integer=True)],
        **N_JOBS,
    }

    def __init__(
        self,
        members: Sequence[Ranker] | None = None,
        *,
        prefit: bool = False,
        steps: int = 20,
        validate_by: str = "nDCG@10",
        gains: str | Sequence[float] = "exponential",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.members = members
        self.prefit = prefit
        self.steps = steps
        self.validate_by = validate_by
        self.gains = gains
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def of(cls, members: Sequence[Ranker], weights: Any) -> Ensemble:
        """Fitted rankers, in parts that are known already.

        >>> pair = [GLS().fit([[0.0], [1.0]], [0, 1], query=[1, 1]) for _ in range(2)]
        >>> Ensemble.of(pair, [3, 1]).weights_.tolist()
        [0.75, 0.25]
        """
        made = cls(members, prefit=True)
        made._check_parameters()
        for member in members:
            member._require_fitted()
        made.members_, made.weights_, made.history_ = list(members), shares(weights), []
        made.features_, made._has_feature_names = members[0].features_, members[0]._has_feature_names
        made.importances_ = made._importances()
        return made

    def _importances(self) -> Floats:
        return shares(sum(weight * m.importances_ for weight, m in zip(self.weights_, self.members_, strict=True)))

    def _learn(self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        self.members_ = list(self.members) if self.members is not None else [LambdaMART(n_jobs=self.n_jobs), GLS()]
        if self.prefit:
            for member in self.members_:
                member._require_fitted()
            validation = validation or Validation(lists, self.validate_by, self.gains)
        else:
            self.members_ = [self._fitted(member, lists, validation, report) for member in self.members_]
        self.weights_ = np.full(len(self.members_), 1 / len(self.members_))
        if validation is not None:
            known = validation.lists
            votes = self._votes(known.X, known.query, lists.names)
            self.weights_, best = best_weights(votes, validation, self.steps)
            self.history_ = [best]
        self.importances_ = self._importances()

    def _fitted(self, member: Ranker, lists: Lists, validation: Validation | None, report: Report) -> Ranker:
        known = None if validation is None else validation.lists
        held_out = None if known is None else (known.named(), known.labels, known.query)
        fitted = member.unfitted()
        told: dict[str, Any] = {
            "query": lists.query,
            "sample_weight": lists.weight,
            "eval_set": held_out,
            "progress": report,
        }
        with constant_features_known():
            fitted.fit(lists.named(), lists.labels, **told)
        fitted.validation_queries_ = self.validation_queries_
        return fitted

    def _votes(self, X: Floats, query: Integers, names: tuple[str, ...]) -> Floats:
        """Each member's standardized scores: (n_members, n)."""
        if any(member.features_ != names for member in self.members_):
            raise UsageError("The members of an Ensemble learn from the same features, in the same order.")
        return np.stack([standardized(member.predict(X, query), query) for member in self.members_])

    def _score(self, X: Floats, query: Any = None) -> Floats:
        """Rows are standardized within their query, so that it must be known."""
        if query is None:
            raise UsageError("An Ensemble standardizes scores within each query: give predict(X, query=...).")
        return np.asarray(self.weights_ @ self._votes(X, query_codes(query, len(X)), self.features_))

    def _fitted_parameters(self) -> tuple[str, ...]:
        return ("members",) if self.prefit else ()

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "members": None, "prefit": False}

    def _state(self) -> State:
        parts = {f"member-{number}": member for number, member in enumerate(self.members_)}
        return State({}, {"weights": self.weights_, "importances": self.importances_}, {}, parts)

    def _restore(self, state: State) -> None:
        self.members_ = [state.parts[f"member-{number}"] for number in range(len(state.parts))]
        require(self.members_, "there are no members")
        require_floats(state.arrays, ["weights"], (len(self.members_),), 0.0)
        self.weights_ = state.arrays["weights"]
        same = all(member.features_ == self.features_ for member in self.members_)
        require(same, "its members have other features")
        self.members = self.members_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.prefit and self.members is None:
            raise UsageError("must be fitted rankers if prefit is True, not None", parameter="members")


def standardized(score: Floats, query: Integers) -> Floats:
    """Scores as standard deviations from the mean of their query; where all are equal, 0.

    >>> standardized(np.array([1.0, 3.0, 7.0]), np.array([0, 0, 1])).tolist()
    [-1.0, 1.0, 0.0]
    """
    n = np.maximum(np.bincount(query), 1)
    off = score - (np.bincount(query, score) / n)[query]
    sd = np.sqrt(np.bincount(query, off**2) / n)[query]
    return np.asarray(np.divide(off, sd, out=np.zeros(len(off)), where=sd > 1e-12 * np.abs(score).max(initial=1e-300)))


def best_weights(votes: Floats, validation: Callable[[Floats], float], steps: int) -> tuple[Floats, float]:
    """Weights on the simplex that raise the measure: one member's weight at a time, until none raises it further."""
    weights = np.full(len(votes), 1 / len(votes))
    best, better = validation(weights @ votes), True
    while better:
        better = False
        for member in range(len(votes)):
            rest = weights.copy()
            rest[member] = 0.0
            others = np.ones(len(votes)) - np.eye(len(votes))[member]
            rest = rest / rest.sum() if rest.sum() > 0 else others / max(others.sum(), 1.0)
            for step in range(steps + 1):
                tried = (1 - step / steps) * rest
                tried[member] = step / steps
                value = validation(tried @ votes)
                if value > best + 1e-12:
                    weights, best, better = tried, value, True
    return weights, best


def steady_weights(votes: Floats, validation: Validation, steps: int, random_state: int = 0) -> Floats:
    """Weights of votes (n_members, n): the mean of the best on halves of the queries, drawn towards equal weights.

    The fewer queries there are, the nearer to equal: a plain mean is hard to beat by weights that few queries chose.
    """
    n = int(validation.defined.sum())
    rng = np.random.default_rng(random_state)
    found = np.zeros(len(votes))
    for _ in range(HALVES):
        half = rng.permutation(n)[: (n + 1) // 2]
        found += best_weights(votes, partial(_mean_of, half, validation), steps)[0]
    return np.asarray((n * found / HALVES + EQUAL / len(votes)) / (n + EQUAL))


def _mean_of(some: Integers, validation: Validation, score: Floats) -> float:
    return float(validation.per_query(score)[some].sum() / len(some))
