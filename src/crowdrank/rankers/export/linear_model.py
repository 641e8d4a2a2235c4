"""Linear models on raw features, read from rankers that standardize them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Floats
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.single_feature import SingleFeature


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A weighted sum of features.

    Attributes:
        names: names of the features.
        weights: (n_features,) weights of the raw features.
        intercept: constant that is added to the score of every document.
        fill: (n_features,) values that stand for missing ones; NaN if the model has none.

    """

    names: tuple[str, ...]
    weights: Floats
    intercept: float
    fill: Floats


def fold_standardization(ranker: GLS) -> LinearModel:
    """Return a fitted GLS without tree features as a linear model; the mean of a feature stands for missing values.

    >>> model = fold_standardization(GLS(mu=0).fit([[1.0], [2.0], [3.0]], [0, 1, 2], query=["q"] * 3))
    >>> model.weights.round(6).tolist(), round(model.intercept, 6), model.fill.tolist()
    ([1.0], -1.0, [2.0])
    """
    mean, scale = ranker.standardizer_.mean, ranker.standardizer_.scale
    weights = np.divide(ranker.coef_, scale, out=np.zeros(len(scale)), where=scale > 0)
    return LinearModel(ranker.features_, weights, float(ranker.intercept_ - weights @ mean), mean)


def single_weight(ranker: SingleFeature) -> LinearModel:
    """Return a ranker by one feature as a linear model; a value outside of the training range stands for missing ones.

    >>> model = single_weight(SingleFeature().fit([[5.0, 1.0], [4.0, 3.0]], [0, 1], query=["q", "q"]))
    >>> model.weights.tolist(), model.fill.tolist()
    ([-1.0, 0.0], [6.0, nan])
    """
    column, n = ranker.features_.index(ranker.feature_), ranker.n_features_in_
    weights, fill = np.zeros(n), np.full(n, np.nan)
    weights[column] = ranker.sign_
    statistics = ranker.feature_statistics_
    if statistics is not None:
        fill[column] = statistics.minimum[column] - 1 if ranker.sign_ > 0 else statistics.maximum[column] + 1
    return LinearModel(ranker.features_, weights, 0.0, fill)
