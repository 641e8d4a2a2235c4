"""Ranker by one feature: the simplest control of every other ranker."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._folders import require
from crowdrank._progress import Report
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf
from crowdrank.errors import UsageError, near
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker, SavedState
from crowdrank.rankers.training_data import FeatureStatistics, RankingData

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine


class SingleFeature(Ranker):
    """Rank documents by the values of one feature; documents without a value are last.

    Args:
        feature: name of the feature, higher is better; by default the best one on the validation queries, or on the
            training queries without an `eval_set`, in the direction that is better on the training queries.
        validate_by: measure that the feature is chosen by.
        gains: gains of the grades.
        random_state: not used.

    Attributes:
        feature_: name of the feature.
        sign_: 1 if higher values are better, otherwise -1.

    >>> ranker = SingleFeature().fit([[5.0, 1.0], [4.0, 3.0]], [0, 1], query=["q", "q"])
    >>> ranker.feature_, ranker.sign_
    ('f1', -1)
    """

    feature_: str
    sign_: int

    _parameter_constraints: ClassVar[Constraints] = {"feature": [InstanceOf(str, "the name of a feature"), None]}

    def __init__(
        self,
        feature: str | None = None,
        *,
        validate_by: str = "nDCG@10",
        gains: str | Sequence[float] = "exponential",
        random_state: int = 0,
    ) -> None:
        self.feature = feature
        self.validate_by = validate_by
        self.gains = gains
        self.random_state = random_state

    def _needs_differences(self) -> bool:
        return self.feature is None

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        if self.feature is None:
            column, self.sign_ = self._choose_feature(data, validation)
        elif self.feature in data.names:
            column, self.sign_ = data.names.index(self.feature), 1
        else:
            problem = f"must be the name of a feature, not {self.feature!r}{near(self.feature, data.names)}"
            raise UsageError(problem, parameter="feature", kind="unknown-feature")
        self.feature_ = data.names[column]
        self.feature_importances_ = np.eye(len(data.names))[column]
        if validation is not None:
            self.history_ = [validation(signed_feature(validation.data.features[:, column], self.sign_))]

    def _choose_feature(self, data: RankingData, validation: Validation | None) -> tuple[int, int]:
        """Return the column and the sign of the best feature; the sign is the better one on the training queries."""
        train = Validation(data, self.validate_by, self.gains)
        choices = []
        for column in range(len(data.names)):
            values = {sign: train(signed_feature(data.features[:, column], sign)) for sign in (1, -1)}
            sign = max(values, key=values.__getitem__)
            value = values[sign]
            if validation is not None:
                value = validation(signed_feature(validation.data.features[:, column], sign))
            choices.append((value, -column, sign))
        _, column, sign = max(choices)
        return -column, sign

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return signed_feature(features[:, self.features_.index(self.feature_)], self.sign_)

    def without_other_features(self) -> SingleFeature:
        """Return a copy that needs only its own feature to rank documents.

        >>> import pandas as pd
        >>> X = pd.DataFrame({"bm25": [1.0, 2.0], "age": [3.0, 3.0]})
        >>> ranker = SingleFeature().fit(X, [0, 1], query=["q", "q"]).without_other_features()
        >>> ranker.predict(X[["bm25"]]).tolist()
        [1.0, 2.0]
        """
        alone, column = copy(self), self.features_.index(self.feature_)
        alone.features_, alone.feature_importances_ = (self.feature_,), np.ones(1)
        if self.feature_statistics_ is not None:
            arrays = {name: values[column : column + 1] for name, values in self.feature_statistics_.arrays.items()}
            alone.feature_statistics_ = FeatureStatistics.from_arrays(arrays, 1)
        return alone

    def _state(self) -> SavedState:
        return SavedState({"feature": self.feature_, "sign": self.sign_})

    def _restore(self, state: SavedState) -> None:
        self.feature_, self.sign_ = state.values["feature"], state.values["sign"]
        require(self.feature_ in self.features_ and self.sign_ in (1, -1), "it has no such feature")


def signed_feature(column: Floats, sign: int) -> Floats:
    """Return the values of a feature times a sign, with missing values below all others.

    >>> signed_feature(np.array([2.0, np.nan, 5.0]), -1).tolist()
    [-2.0, -6.0, -5.0]
    """
    score = sign * column
    return np.where(np.isnan(score), np.nanmin(score, initial=0.0) - 1, score)
