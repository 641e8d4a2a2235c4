"""Standardization of features, for matrices in memory and for sums over blocks of rows."""

from __future__ import annotations

import numpy as np

from crowdrank._saved import require_floats
from crowdrank._typing import Arrays, Floats

MIN_RELATIVE_SD = 1e-12
"""Minimum standard deviation of a feature, relative to its mean; below it the feature counts as constant."""
TINY = float(np.finfo(float).tiny)


class Standardizer:
    """Map features to standard deviations from their weighted mean; constant features and missing values map to 0.

    Args:
        mean: (n_features,).
        scale: (n_features,) standard deviations; 0 for constant features.

    """

    def __init__(self, mean: Floats, scale: Floats) -> None:
        self.mean, self.scale = mean, scale

    @classmethod
    def fit(cls, X: Floats, weight: Floats) -> Standardizer:
        """Return the standardizer of features (n, n_features) with weights (n,); missing values are ignored."""
        sums = sum_values(X, weight)
        return cls.from_sums(sums, sum_squares(X, weight, weighted_mean(sums)))

    @classmethod
    def from_sums(cls, sums: Arrays, squares: Floats) -> Standardizer:
        """Return the standardizer for the results of :func:`sum_values` and :func:`sum_squares`."""
        mean = weighted_mean(sums)
        sd = np.sqrt(squares / np.maximum(sums["mass"], TINY))
        return cls(mean, np.where(sd <= MIN_RELATIVE_SD * np.maximum(np.abs(mean), TINY), 0.0, sd))

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> Standardizer:
        """Return the standardizer that :attr:`arrays` describes; raise ValueError if it does not fit the features."""
        require_floats(arrays, ["mean"], (n_features,))
        require_floats(arrays, ["scale"], (n_features,), 0.0)
        return cls(arrays["mean"], arrays["scale"])

    @property
    def arrays(self) -> Arrays:
        """Arrays to save."""
        return {"mean": self.mean, "scale": self.scale}

    def first(self, n: int) -> Standardizer:
        """Return the standardizer of the first n features."""
        return Standardizer(self.mean[:n], self.scale[:n])

    def __call__(self, X: Floats) -> Floats:
        """Return standardized features."""
        values, has_scale = _centered(X, self.mean), self.scale > 0
        np.divide(values, self.scale, out=values, where=has_scale)
        if not has_scale.all():
            values[:, ~has_scale] = 0.0
        return values


def sum_values(X: Floats, weight: Floats) -> Arrays:
    """Return the sums of weights and of weighted values of each feature, without missing values."""
    present = ~np.isnan(X)
    products = np.where(present, X, 0.0)
    products *= weight[:, None]
    total = products.sum(axis=0)
    np.multiply(weight[:, None], present, out=products)
    return {"mass": products.sum(axis=0), "total": total}


def weighted_mean(sums: Arrays) -> Floats:
    """Return the weighted mean of each feature from :func:`sum_values`."""
    return np.asarray(sums["total"] / np.maximum(sums["mass"], TINY))


def sum_squares(X: Floats, weight: Floats, mean: Floats) -> Floats:
    """Return the sums of weighted squared differences from the mean, without missing values."""
    squares = _centered(X, mean)
    squares *= squares
    squares *= weight[:, None]
    return np.asarray(squares.sum(axis=0))


def _centered(X: Floats, mean: Floats) -> Floats:
    """Return the differences from the mean, 0 for missing values, as a new matrix; features are large."""
    values = X - mean
    values[np.isnan(values)] = 0.0
    return values
