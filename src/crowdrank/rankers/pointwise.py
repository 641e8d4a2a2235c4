"""Pointwise regression by boosted trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crowdrank.constraints import Constraints, OneOf
from crowdrank.rankers.boosting import BoostedTrees, Loss
from crowdrank.rankers.ranking_data import RankingData


class PointwiseGBDT(BoostedTrees):
    """Boosted regression trees: the squared error of each document's label, regardless of its query.

    Args:
        target: values to regress on: the (expected) `grade`, or its `gain`.
        gains: gains of grades, for the target `gain` and the validation measure.
        n_estimators: as in `LambdaMART`, like all further parameters.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> ranker = PointwiseGBDT(n_estimators=20).fit(world.features, world.gold["grade"])
    >>> ranker.score(world.features, world.gold["grade"]) > 0.9
    True

    """

    _parameter_constraints: ClassVar[Constraints] = {"target": [OneOf("grade", "gain")]}

    def __init__(
        self,
        *,
        target: str = "grade",
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
        return Loss(target=data.target(self.target, self.gains), weight=data.weight)
