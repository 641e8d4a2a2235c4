"""Statistics of each feature over the rows of a matrix: its range and its share of missing values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from crowdrank._saved import require, require_array, require_range
from crowdrank._typing import Arrays, Floats

ARRAY_NAMES = {"minimum": "feature_minimum", "maximum": "feature_maximum", "missing_share": "feature_missing_share"}
"""Name in a saved ranker of each array of the statistics."""


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Range and share of missing values of each feature.

    Attributes:
        minimum: (n_features,) smallest value; NaN for a feature that is always missing.
        maximum: (n_features,) largest value; NaN for a feature that is always missing.
        missing_share: (n_features,) share of rows without a value, from 0 to 1.

    """

    minimum: Floats
    maximum: Floats
    missing_share: Floats

    @classmethod
    def of(cls, features: Floats) -> Self:
        """Return the statistics of a matrix, (n, n_features), that has at least one row.

        >>> statistics = FeatureStatistics.of(np.array([[1.0, np.nan], [3.0, np.nan]]))
        >>> statistics.minimum.tolist(), statistics.maximum.tolist(), statistics.missing_share.tolist()
        ([1.0, nan], [3.0, nan], [0.0, 1.0])
        """
        return cls(np.fmin.reduce(features), np.fmax.reduce(features), np.isnan(features).mean(axis=0))

    @property
    def arrays(self) -> Arrays:
        """The arrays by their names in a saved ranker."""
        return {saved: getattr(self, name) for name, saved in ARRAY_NAMES.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> Self | None:
        """Return saved statistics, or None if there are none; raise ValueError if they are incomplete or invalid."""
        if not set(ARRAY_NAMES.values()) & set(arrays):
            return None
        for name in ARRAY_NAMES.values():
            require(name in arrays, f"there is no array {name}")
            require_array(name, arrays[name], np.float64, (n_features,))
        found = cls(**{name: arrays[saved] for name, saved in ARRAY_NAMES.items()})
        require_range(ARRAY_NAMES["missing_share"], found.missing_share, 0.0, 1.0)
        is_missing = found.missing_share == 1
        is_range = np.isfinite(found.minimum) & np.isfinite(found.maximum) & (found.minimum <= found.maximum)
        no_range = np.isnan(found.minimum) & np.isnan(found.maximum)
        require(np.where(is_missing, no_range, is_range).all(), "the ranges of the features cannot be read")
        return found
