"""Pointwise regression by boosted trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, OneOf
from crowdrank.rankers.boosting import BoostedTrees, Loss
from crowdrank.rankers.training_data import RankingData


class PointwiseGBDT(BoostedTrees):
    """Boosted regression trees: the squared error of each document's label.

    Args:
        target: values to regress on: the (expected) `grade`, or its `gain`.
        within_query: whether the mean error of each query is subtracted from its errors, so that trees are fitted to
            differences between the documents of a query and not to the level of the query.
        gains: gains of grades, for the target `gain` and the validation measure.
        n_estimators: as in `LambdaMART`, like all further parameters.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> ranker = PointwiseGBDT(n_estimators=20).fit(world.features, world.gold["grade"])
    >>> ranker.score(world.features, world.gold["grade"]) > 0.9
    True

    """

    _parameter_constraints: ClassVar[Constraints] = {"target": [OneOf("grade", "gain")], "within_query": [Flag()]}

    def __init__(
        self,
        *,
        target: str = "grade",
        within_query: bool = False,
        gains: str | Sequence[float] = "exponential",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        validate_by: str = "nDCG@10",
        patience: int = 50,
        lightgbm: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.target = target
        self.within_query = within_query
        self.gains = gains
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.validate_by = validate_by
        self.patience = patience
        self.lightgbm = lightgbm
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _needs_gains(self) -> bool:
        return self.target == "gain"

    def _loss(self, data: RankingData, n_jobs: int) -> Loss:
        target = data.target(self.target, self.gains)
        if self.within_query:
            return Loss(WithinQueryError(target, data.weights, data.offsets))
        return Loss(target=target, weight=data.weight)


class WithinQueryError:
    """Weighted squared error after the mean error of each query is subtracted.

    Args:
        target: (n,) values to regress on.
        weight: (n,) weights.
        offsets: (n_queries + 1,) first row of each query.

    >>> error = WithinQueryError(np.array([3.0, 1.0, 7.0]), np.ones(3), np.array([0, 2, 3]))
    >>> error(np.zeros(3))[0].tolist()
    [-1.0, 1.0, 0.0]

    """

    def __init__(self, target: Floats, weight: Floats, offsets: Integers) -> None:
        self.target, self.weight, self.offsets = target, weight, offsets
        total = np.add.reduceat(weight, offsets[:-1])
        self._total = np.where(total > 0, total, 1.0)

    def __call__(self, score: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian of the error in every score."""
        error = score - self.target
        mean = np.add.reduceat(self.weight * error, self.offsets[:-1]) / self._total
        return self.weight * (error - np.repeat(mean, np.diff(self.offsets))), self.weight
