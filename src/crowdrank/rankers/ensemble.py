"""Ensemble: weighted mean of the scores of rankers, standardized within each query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._folders import require, require_floats
from crowdrank._progress import Report
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, InstanceOf, Number, SequenceOf
from crowdrank.errors import UsageError
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import N_JOBS, Ranker, SavedState, divide_by_sum
from crowdrank.rankers.training_data import RankingData, query_codes

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

N_RANDOM_HALVES = 10
"""Number of random halves of the queries; weights are searched on each and averaged, as a single search overfits."""
EQUAL_WEIGHT_PRIOR_QUERIES = 30
"""Number of queries that the equal weights count as when found weights are shrunk towards them."""
MIN_MEASURE_GAIN = 1e-12
"""Increase of the measure that new weights must exceed to be taken; smaller ones are rounding errors."""


class Ensemble(Ranker):
    """Weighted mean of the scores of several rankers, which are standardized within each query.

    Weights are found on the validation queries by coordinate search on the simplex; without validation queries they are
    equal.

    Args:
        members: rankers; by default a `LambdaMART` and a `GLS`.
        prefit: the members are fitted already (for example to different labels), and `fit` finds only their weights.
        steps: number of steps into which a weight is divided in the search.
        validate_by, gains: measure that the weights maximize.
        n_jobs: number of threads of the default members.
        random_state: not used; the members have their own.

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

    scores_within_query = True

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
    def from_weights(cls, members: Sequence[Ranker], weights: Any) -> Ensemble:
        """Return a fitted ensemble of fitted rankers with given weights.

        >>> pair = [GLS().fit([[0.0], [1.0]], [0, 1], query=[1, 1]) for _ in range(2)]
        >>> Ensemble.from_weights(pair, [3, 1]).weights_.tolist()
        [0.75, 0.25]
        """
        made = cls(members, prefit=True)
        made._check_parameters()
        for member in members:
            member._require_fitted()
        made.members_, made.weights_, made.history_ = list(members), divide_by_sum(weights), []
        made.features_, made._has_feature_names = members[0].features_, members[0]._has_feature_names
        made.feature_importances_ = made._importances()
        made.feature_statistics_ = members[0].feature_statistics_
        return made

    @property
    def handles_missing(self) -> bool:  # type: ignore[override]
        """Whether all members that are to be fitted use missing features as such."""
        return self.prefit or all(member.handles_missing for member in self._all_members())

    def _all_members(self) -> list[Ranker]:
        return [LambdaMART(n_jobs=self.n_jobs), GLS()] if self.members is None else list(self.members)

    def _importances(self) -> Floats:
        weighted = (weight * m.feature_importances_ for weight, m in zip(self.weights_, self.members_, strict=True))
        return divide_by_sum(sum(weighted))

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        self.members_ = self._all_members()
        if self.prefit:
            for member in self.members_:
                member._require_fitted()
            validation = validation or Validation(data, self.validate_by, self.gains)
        else:
            held_out = None if validation is None else validation.data
            self.members_ = [member.unfitted()._fit_data(data, held_out, report) for member in self.members_]
            for member in self.members_:
                member.validation_queries_ = self.validation_queries_
        self.weights_ = np.full(len(self.members_), 1 / len(self.members_))
        if validation is not None:
            scores = self._member_scores(validation.data.features, validation.data.query, data.names)
            self.weights_, best = search_weights(scores, validation, self.steps)
            self.history_ = [best]
        self.feature_importances_ = self._importances()

    def _member_scores(self, features: Floats, query: Integers, names: tuple[str, ...]) -> Floats:
        """Return the standardized scores of each member, (n_members, n)."""
        if any(member.features_ != names for member in self.members_):
            problem = "must be fitted to the same features, in the same order"
            raise UsageError(problem, parameter="members", kind="other-features")
        return np.stack([standardize_within_query(member._score(features, query), query) for member in self.members_])

    def _score(self, features: Floats, query: Any = None) -> Floats:
        if query is None:
            problem = "is missing: an Ensemble standardizes scores within each query"
            raise UsageError(problem, parameter="query", kind="no-query")
        codes = np.unique(query_codes(query, len(features)), return_inverse=True)[1]
        return np.asarray(self.weights_ @ self._member_scores(features, codes, self.features_))

    def _fitted_parameters(self) -> tuple[str, ...]:
        return ("members",) if self.prefit else ()

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "members": None, "prefit": False}

    def _state(self) -> SavedState:
        parts = {f"member-{number}": member for number, member in enumerate(self.members_)}
        return SavedState({}, {"weights": self.weights_}, {}, parts)

    def _restore(self, state: SavedState) -> None:
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


def standardize_within_query(score: Floats, query: Integers) -> Floats:
    """Return scores as standard deviations from the mean of their query; 0 if all scores of a query are equal.

    Args:
        score: (n,).
        query: (n,) numbers of queries from 0 up.

    >>> standardize_within_query(np.array([1.0, 3.0, 7.0]), np.array([0, 0, 1])).tolist()
    [-1.0, 1.0, 0.0]

    """
    n = np.maximum(np.bincount(query), 1)
    centered = score - (np.bincount(query, score) / n)[query]
    sd = np.sqrt(np.bincount(query, centered**2) / n)[query]
    min_sd = 1e-12 * np.abs(score).max(initial=1e-300)
    return np.asarray(np.divide(centered, sd, out=np.zeros(len(centered)), where=sd > min_sd))


def search_weights(scores: Floats, measure: Callable[[Floats], float], steps: int) -> tuple[Floats, float]:
    """Maximize a measure of the weighted mean of scores (n_members, n) by coordinate search on the simplex.

    Returns:
        The weights, (n_members,), and the measure.

    """
    weights = np.full(len(scores), 1 / len(scores))
    best, improved = measure(weights @ scores), True
    while improved:
        improved = False
        for member in range(len(scores)):
            rest = weights.copy()
            rest[member] = 0.0
            others = np.ones(len(scores)) - np.eye(len(scores))[member]
            rest = rest / rest.sum() if rest.sum() > 0 else others / max(others.sum(), 1.0)
            for step in range(steps + 1):
                trial = (1 - step / steps) * rest
                trial[member] = step / steps
                value = measure(trial @ scores)
                if value > best + MIN_MEASURE_GAIN:
                    weights, best, improved = trial, value, True
    return weights, best


def shrunk_weights(scores: Floats, validation: Validation, steps: int, random_state: int = 0) -> Floats:
    """Return weights (n_members,) that are averaged over random halves of the queries and shrunk to equal weights.

    The search divides the range of each weight into `steps`.
    """
    defined = np.flatnonzero(validation.defined)
    n = len(defined)
    rng = np.random.default_rng(random_state)
    total = np.zeros(len(scores))
    for _ in range(N_RANDOM_HALVES):
        half = np.sort(rng.permutation(defined)[: (n + 1) // 2])
        rows = validation.data.rows_of(half)
        total += search_weights(scores[:, rows], validation.take_queries(half), steps)[0]
    return np.asarray(
        (n * total / N_RANDOM_HALVES + EQUAL_WEIGHT_PRIOR_QUERIES / len(scores)) / (n + EQUAL_WEIGHT_PRIOR_QUERIES)
    )
