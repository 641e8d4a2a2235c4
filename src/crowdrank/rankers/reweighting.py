"""RD, reweighting by deviations: robust regression in two fits (a baseline of REMAP 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._folders import Fields, require
from crowdrank._progress import Report
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf, Number, OneOf, SequenceOf
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.model_selection import Validation, choose_value
from crowdrank.rankers.pointwise import PointwiseGBDT
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.saved_rankers import SavedState
from crowdrank.rankers.training_data import RankingData

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

DEFAULT_DELTA = 0.5
"""Delta of delta="auto" without validation queries."""
AUTO_DELTAS = (0.25, 0.5, 1.0)
"""First deltas that delta="auto" tries on validation queries."""


class RD(Ranker):
    """Two fits of a regression: in the second, each row has the weight min(1/delta^2, 1/Delta^2).

    Delta is the residual of the row in the first fit, so that labels far from the prediction count less.
    `sample_weight` multiplies these weights.

    Args:
        estimator: the regression: a `GLS` (default) or a `PointwiseGBDT`.
        delta: lower bound of the residuals; or several, of which validation queries choose one, as the start of a
            geometric grid that extends itself; `auto`: such a grid with an `eval_set`, else 0.5.
        gains, validate_by: measure by which validation queries choose delta.
        random_state: not used; the estimator has its own.

    Attributes:
        ranker_: the second fit.
        delta_: the chosen delta.
        residuals_: absolute residuals of the first fit, (n,).

    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0, 1, 2, 3, 0]
    >>> plain, robust = (ranker.fit(X, y, query=["q"] * 5) for ranker in (GLS(mu=0), RD(GLS(mu=0))))
    >>> bool(robust.ranker_.coef_[0] > plain.coef_[0])
    True

    """

    supports_engines = True
    _parameter_constraints: ClassVar[Constraints] = {
        "estimator": [InstanceOf((GLS, PointwiseGBDT), "a GLS or a PointwiseGBDT"), None],
        "delta": [Number(0, above=True), SequenceOf(Number(0, above=True)), OneOf("auto")],
    }

    ranker_: Ranker
    delta_: float
    residuals_: Floats

    def __init__(
        self,
        estimator: Ranker | None = None,
        *,
        delta: float | Sequence[float] | str = "auto",
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.delta = delta
        self.gains = gains
        self.validate_by = validate_by
        self.random_state = random_state

    @property
    def handles_missing(self) -> bool:  # type: ignore[override]
        """Whether the estimator uses missing features as such."""
        return self._regression().handles_missing

    def require_engines(self) -> None:
        """Raise UsageError if the estimator cannot learn on an engine."""
        self._regression().require_engines()

    def _needs_gains(self) -> bool:
        return self._regression()._needs_gains()

    def _regression(self) -> GLS | PointwiseGBDT:
        """Return an unfitted copy of the estimator."""
        if self.estimator is None:
            return GLS(gains=self.gains, validate_by=self.validate_by)
        assert isinstance(self.estimator, GLS | PointwiseGBDT)
        return self.estimator.unfitted()

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        held_out = None if validation is None else validation.data
        first = self._regression()._fit_data(data, held_out, report, engine)
        residuals = np.abs(data.target(first.target, first.gains) - first._score(data.features))
        rankers: dict[float, Ranker] = {}

        def fit_second(delta: float) -> Ranker:
            weight = data.weights / np.maximum(delta, residuals) ** 2
            rankers[delta] = self._regression()._fit_data(replace(data, weight=weight), held_out, report, engine)
            return rankers[delta]

        def evaluate(delta: float) -> float:
            assert validation is not None
            return validation(fit_second(delta)._score(validation.data.features))

        grid = self._grid(validation is not None)
        self.delta_, self.history_ = choose_value("delta", grid, None if validation is None else evaluate)
        self.ranker_, self.residuals_ = rankers.get(self.delta_) or fit_second(self.delta_), residuals
        self.ranker_.validation_queries_ = self.validation_queries_
        self.feature_importances_ = self.ranker_.feature_importances_

    def _grid(self, has_validation: bool) -> list[float]:
        """Return the values of delta to choose from."""
        if isinstance(self.delta, str):
            return list(AUTO_DELTAS) if has_validation else [DEFAULT_DELTA]
        return [float(delta) for delta in np.atleast_1d(self.delta)]

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return self.ranker_._score(features)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "estimator": None}

    def _state(self) -> SavedState:
        return SavedState({"delta": self.delta_}, {}, {}, {"ranker": self.ranker_})

    def _restore(self, state: SavedState) -> None:
        self.ranker_ = state.parts["ranker"]
        require(isinstance(self.ranker_, GLS | PointwiseGBDT), "its ranker is not a regression")
        require(self.ranker_.features_ == self.features_, "its ranker has other features")
        self.estimator, self.delta_ = self.ranker_, Fields(state.values).number("delta")
