"""Slow, obvious references of the kernels, and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdrank._typing import Floats


def solve_unfolded(X: Floats, document: Any, target: Floats, weight: Floats, mu: float) -> Floats:
    """Ridge regression with one row for each label, the intercept last and free."""
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


def grow_tree(bins: Any, n_bins: Any, target: Floats, depth: int, least: int) -> tuple[Floats, float]:
    """What a tree grown by trying every split says of each row, and the squares that its splits took off."""

    def grow(rows: Any, left: int) -> float:
        said[rows] = target[rows].mean()
        if left == 0:
            return 0.0
        before = ((target[rows] - target[rows].mean()) ** 2).sum()
        best, split = 1e-12 * (target**2).sum(), None
        for f in range(bins.shape[1]):
            for b in range(n_bins[f] - 1):
                low, high = rows[bins[rows, f] <= b], rows[bins[rows, f] > b]
                if len(low) < least or len(high) < least:
                    continue
                after = sum(((target[part] - target[part].mean()) ** 2).sum() for part in (low, high))
                if before - after > best * (1 + 1e-9):
                    best, split = before - after, (low, high)
        if split is None:
            return 0.0
        return float(best + grow(split[0], left - 1) + grow(split[1], left - 1))

    said = np.empty(len(target))
    return said, grow(np.arange(len(target)), depth)


def inputs(matrix: Floats, mean: Floats, scale: Floats, farthest: float) -> Floats:
    """Standardized features within bounds, blanks and constants as the mean, and a column of ones."""
    rows = np.ones((len(matrix), matrix.shape[1] + 1))
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            known = not np.isnan(value) and scale[j] > 0
            rows[i, j] = np.clip((value - mean[j]) / scale[j], -farthest, farthest) if known else 0.0
    return rows
