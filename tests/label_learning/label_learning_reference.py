"""Slow references of what the package computes, and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

from crowdrank._typing import Floats


def solve_unfolded(X: Floats, document: Any, target: Floats, weight: Floats, mu: float) -> Floats:
    """Ridge regression with one row for each label, the intercept last and without penalty."""
    rows = np.column_stack([X[document], np.ones(len(document))])
    ridge = mu * np.diag([*np.ones(X.shape[1]), 0.0])
    Z = rows.T @ (weight[:, None] * rows) + ridge
    return np.linalg.solve(Z, rows.T @ (weight * target))


def differences(function: Callable[[Floats], float], at: Floats, step: float = 1e-5) -> Floats:
    """Central differences of fourth order in every coordinate."""
    slopes = np.empty(len(at))
    for i in range(len(at)):
        off = np.zeros(len(at))
        off[i] = step
        near = function(at + off) - function(at - off)
        far = function(at + 2 * off) - function(at - 2 * off)
        slopes[i] = (8 * near - far) / (12 * step)
    return slopes


def grow_tree(matrix: Floats, target: Floats, depth: int, min_labels: int) -> Floats:
    """Outputs of a regression tree that tries every split."""
    outputs = np.empty(len(target))

    def grow(rows: Any, left: int) -> None:
        outputs[rows] = target[rows].mean()
        best, split = 1e-9, None
        for column in matrix.T if left else ():
            for cut in np.unique(column[rows])[:-1]:
                low, high = rows[column[rows] <= cut], rows[column[rows] > cut]
                if min(len(low), len(high)) < min_labels:
                    continue
                gain = len(rows) * target[rows].var() - sum(len(part) * target[part].var() for part in (low, high))
                if gain > best:
                    best, split = gain, (low, high)
        for part in split or ():
            grow(part, left - 1)

    grow(np.arange(len(target)), depth)
    return outputs


def standardized_inputs(matrix: Floats, mean: Floats, scale: Floats, limit: float) -> Floats:
    """Clipped standardized features, with missing and constant values at the mean, and a column of ones."""
    rows = np.ones((len(matrix), matrix.shape[1] + 1))
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            known = not np.isnan(value) and scale[j] > 0
            rows[i, j] = np.clip((value - mean[j]) / scale[j], -limit, limit) if known else 0.0
    return rows


def soft_dcg(score: Floats, gain: Floats, cutoff: int, noise: float) -> float:
    """Expected DCG of one query if each score has normal noise: rank distributions by convolution."""
    discount = np.where(np.arange(len(score)) < cutoff, 1 / np.log2(np.arange(len(score)) + 2), 0)
    total = 0.0
    for i in range(len(score)):
        ranks = np.ones(1)
        for j in range(len(score)):
            if j != i:
                above = norm.cdf((score[j] - score[i]) / (noise * np.sqrt(2)))
                ranks = np.convolve(ranks, [1 - above, above])
        total += gain[i] * discount @ ranks
    return total
