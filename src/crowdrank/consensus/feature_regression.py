"""Regression of relevance on features within queries, with predictions for queries that it has not seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers

MIN_TREE_ROWS = 500
"""Minimum number of labeled documents for boosted trees; with fewer, or with one feature, the regression is linear."""
N_FOLDS = 5
"""Maximum number of folds of queries."""
N_TREES = 150
TREE_PARAMETERS = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.05,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
RIDGE_PENALTIES: Floats = 10.0 ** np.arange(-4.0, 3.0)
"""Penalties of the linear regression per row, among which generalized cross-validation chooses."""

Predictor = Callable[[Floats], Floats]


def scale_within(matrix: Floats, group: Integers) -> Floats:
    """Return columns scaled to 0-1 within groups; columns that are constant in a group are 0 there.

    >>> scale_within(np.array([[1.0], [3.0], [2.0], [7.0]]), np.array([0, 0, 0, 1])).ravel().tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(group))))
    ordered = np.where(np.isfinite(matrix[order]), matrix[order], np.nan)
    low, high = (reduce.reduceat(ordered, starts, axis=0)[place] for reduce in (np.fmin, np.fmax))
    scaled = np.empty(matrix.shape)
    scaled[order] = (ordered - low) / np.where(high > low, high - low, 1.0)
    return scaled


def center_within(target: Floats, group: Integers) -> Floats:
    """Return targets without the mean of their group; NaN stays NaN.

    >>> center_within(np.array([1.0, 3.0, np.nan, 5.0]), np.array([0, 0, 0, 1])).tolist()
    [-1.0, 1.0, nan, 0.0]
    """
    known = ~np.isnan(target)
    count = np.bincount(group, known)
    mean = np.bincount(group, np.where(known, target, 0.0)) / np.maximum(count, 1)
    return target - mean[group]


def permutation_z(score: Floats, target: Floats, group: Integers) -> float:
    """Return the z-score of the covariance of scores and targets within groups, if scores were shuffled in each group.

    Rows without a target (NaN) do not count.

    >>> target = np.array([1.0, 2.0, 3.0, np.nan])
    >>> round(permutation_z(np.array([0.0, 1.0, 2.0, 5.0]), target, np.zeros(4, np.int64)), 3)
    1.414
    """
    known = ~np.isnan(target)
    group = group[known]
    score, target = (center_within(values[known], group) for values in (score, target))
    squares = np.bincount(group, score**2) * np.bincount(group, target**2)
    variance = (squares / np.maximum(np.bincount(group) - 1, 1)).sum()
    return float(score @ target / np.sqrt(max(variance, 1e-300)))


def cross_fit(matrix: Floats, target: Floats, group: Integers, seed: int) -> Floats:
    """Return a prediction for each row from a regression that has not seen its group.

    If only one group has targets, folds are of rows. Rows outside of all folds get the mean of all predictions.

    Args:
        matrix: features, (n, n_features).
        target: targets, (n,); NaN for rows without one.
        group: group of each row, (n,).
        seed: random seed of folds and trees.

    """
    labeled = ~np.isnan(target)
    fold = assign_folds(group, labeled, seed)
    n_folds = int(fold.max()) + 1
    learn = fit_ridge if matrix.shape[1] == 1 or labeled.sum() < MIN_TREE_ROWS else fit_trees
    scores = np.zeros(len(target))
    for number in range(n_folds):
        train = labeled & (fold != number)
        predict = learn(matrix[train], target[train], seed)
        held_out, outside = fold == number, fold < 0
        scores[held_out] = predict(matrix[held_out])
        scores[outside] += predict(matrix[outside]) / n_folds if outside.any() else 0.0
    return scores


def assign_folds(group: Integers, labeled: Booleans, seed: int) -> Integers:
    """Return the fold of each row: whole groups, or rows if only one group is labeled; -1: not in a fold."""
    units = group if len(np.unique(group[labeled])) > 1 else np.arange(len(group))
    used = np.unique(units[labeled])
    fold_of = np.full(int(units.max()) + 1, -1, np.int64)
    fold_of[np.random.default_rng(seed).permutation(used)] = np.arange(len(used)) % min(N_FOLDS, len(used))
    return fold_of[units]


def fit_trees(matrix: Floats, target: Floats, seed: int) -> Predictor:
    """Return the prediction function of boosted regression trees."""
    import lightgbm

    leaf = min(50, len(target) // 20)
    parameters = {**TREE_PARAMETERS, "min_data_in_leaf": leaf, "seed": seed}
    booster = lightgbm.train(parameters, lightgbm.Dataset(matrix, target), N_TREES)
    return lambda rows: np.asarray(booster.predict(rows, num_threads=1), np.float64)


def fit_ridge(matrix: Floats, target: Floats, seed: int = 0) -> Predictor:
    """Return the prediction function of a ridge regression; missing values have an indicator and the column's mean."""
    missing = np.asarray(np.isnan(matrix).any(axis=0))
    with_indicators = _with_indicators(matrix, missing)
    mean = np.nanmean(np.where(np.isnan(with_indicators).all(axis=0), 0.0, with_indicators), axis=0)
    filled = np.where(np.isnan(with_indicators), mean, with_indicators) - mean
    sd = np.maximum(filled.std(axis=0), 1e-12)
    u, singular, vt = np.linalg.svd(filled / sd, full_matrices=False)
    centered = target - target.mean()
    along = u.T @ centered
    n = len(target)

    def validation_error(penalty: float) -> float:
        shrink = singular**2 / (singular**2 + n * penalty)
        residual = centered - u @ (shrink * along)
        return float(residual @ residual / (1 - (shrink.sum() + 1) / n) ** 2) if shrink.sum() + 1 < n else np.inf

    penalty = min(RIDGE_PENALTIES, key=validation_error)
    coefficients = vt.T @ (singular / (singular**2 + n * penalty) * along) / sd

    def predict(rows: Floats) -> Floats:
        columns = _with_indicators(rows, missing)
        return np.asarray(np.where(np.isnan(columns), 0.0, columns - mean) @ coefficients + target.mean())

    return predict


def _with_indicators(matrix: Floats, missing: Booleans) -> Floats:
    return np.column_stack([matrix, np.isnan(matrix[:, missing]).astype(np.float64)])
