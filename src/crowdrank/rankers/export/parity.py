"""Rows of features with expected scores, by which users compare a search engine with the ranker."""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Booleans, Floats
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export.forest import MAX_FLOAT32, float32_above, float32_at_most, split_points
from crowdrank.rankers.export.linear_model import LinearModel
from crowdrank.rankers.feature_statistics import FeatureStatistics

N_ROWS = 20
N_COMPLETE_ROWS = 14
"""Number of rows without missing values; the others have some if the engine has missing values."""
MISSING_SHARE = 0.3
"""Probability that a feature is missing in the other rows."""
RANDOM_STATE = 0


def parity_rows(
    model: BoostedTrees | LinearModel, statistics: FeatureStatistics | None, *, with_missing: bool, margin: float = 0.0
) -> Floats:
    """Return rows of feature values in single precision: ends of ranges, values at thresholds, and random values.

    Args:
        model: the model, whose thresholds are used.
        statistics: ranges of the features in training; without them, ranges are those of the thresholds.
        with_missing: whether some values are missing (NaN).
        margin: minimum distance from the nearest threshold of each value that is derived from it.

    Returns:
        (N_ROWS, n_features), all of which are float32 numbers.

    """
    if isinstance(model, LinearModel):
        points = [np.empty(0)] * len(model.names)
    else:
        points = [one[np.abs(one) < MAX_FLOAT32] for one in split_points(model)]
    low, high = _ranges(points, statistics)
    rng = np.random.default_rng(RANDOM_STATE)
    rows = low + rng.random((N_ROWS, len(points))) * (high - low)
    rows[0], rows[1], rows[2] = low, high, 0.0
    for feature, thresholds in enumerate(points):
        if len(thresholds):
            at_threshold = rng.choice(thresholds, N_ROWS)
            above = np.array(list(map(float32_above, at_threshold))) + margin
            at_most = np.array(list(map(float32_at_most, at_threshold))) - margin
            kind = rng.integers(0, 3, N_ROWS)  # at the threshold, just above it, or anywhere in the range
            kind[:3] = 2
            rows[:, feature] = np.choose(kind, [at_most, above, rows[:, feature]])
    if with_missing:
        rows[_missing_cells(rng, len(points))] = np.nan
    return rows.astype(np.float32).astype(np.float64)


def _ranges(points: list[Floats], statistics: FeatureStatistics | None) -> tuple[Floats, Floats]:
    """Return the ends of the range of each feature; 0 and 1 if nothing is known."""
    if statistics is not None:
        low, high = statistics.minimum, statistics.maximum
    else:
        low = np.array([one.min(initial=np.inf) - 1 for one in points])
        high = np.array([one.max(initial=-np.inf) + 1 for one in points])
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)


def _missing_cells(rng: np.random.Generator, n_features: int) -> Booleans:
    cells = rng.random((N_ROWS, n_features)) < MISSING_SHARE
    cells[:N_COMPLETE_ROWS] = False
    cells[-1] = True
    return cells
