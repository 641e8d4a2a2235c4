"""Weights of judgments by assessors with correlated errors: the members of a family count less than independent ones.

The errors of two assessors who share a family at a level correlate by the correlation of that level. R is the matrix of
these correlations for the judgments of a document; their weights are R^-1 1, and the sum of the weights is the number
of independent judgments that they are worth. With one level, the n judgments of a family are worth
n / (1 + (n - 1) correlation).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Integers
from crowdrank.engine.shards import items_of

MIN_WEIGHT_DENOMINATOR = 1e-9
"""Floor of the denominator of a judgment's weight, which is 0 if the errors of a family have the correlation 1."""


def correlation_increments(
    correlation: float | Sequence[float], levels: Codes, estimated_correlations: Floats | None
) -> Floats:
    """Return the increase of the error correlation from each level of families to the next finer one.

    The result has the shape (n_levels, n_assessors); its first row is the correlation at the coarsest level.

    Args:
        correlation: correlation at each level, coarsest first; a number is that of the finest level, and each coarser
            level has half of the next one.
        levels: family of each assessor at each level, (n_levels, n_assessors).
        estimated_correlations: error correlation within the family of each assessor at each level, (n_levels,
            n_assessors), which is used instead of `correlation`; or None.

    >>> correlation_increments(1.0, np.zeros((2, 1), np.int32), None).tolist()
    [[0.5], [0.5]]

    """
    n_levels, n_assessors = levels.shape
    if estimated_correlations is None:
        if isinstance(correlation, int | float):
            by_level = [correlation / 2 ** (n_levels - 1 - level) for level in range(n_levels)]
        else:  # judgments with fewer levels use the finest ones
            by_level = [float(value) for value in correlation][-n_levels:]
            by_level = [0.0] * (n_levels - len(by_level)) + by_level
        estimated_correlations = np.repeat(np.array(by_level)[:, None], n_assessors, axis=1)
    return np.diff(np.maximum.accumulate(estimated_correlations, axis=0), axis=0, prepend=0.0)


def _nested_weights(offsets: Integers, assessor: Codes, levels: Codes, increments: Floats) -> Floats:
    item, own = items_of(offsets), increments[:, assessor]
    weights: Floats = np.ones(len(assessor))
    for level in range(len(levels) - 1, -1, -1):
        key = item * (int(levels[level].max(initial=0)) + 1) + levels[level][assessor]
        _, place = np.unique(key, return_inverse=True)
        total = np.bincount(place, weights)[place]
        if level == len(levels) - 1:
            weights = 1.0 / np.maximum(1.0 - own.sum(axis=0) + total * own[level], MIN_WEIGHT_DENOMINATOR)
        else:
            weights = weights / (1.0 + own[level] * total)
    return weights


@njit(nogil=True, numpy=_nested_weights)
def nested_weights(offsets: Integers, assessor: Codes, levels: Codes, increments: Floats) -> Floats:
    """Return the weight of each judgment, (n,): R^-1 1 for the correlation matrix R of the judgments of an item.

    With m judgments of a finest family on an item, each has the weight 1 / (1 - sum of increments + m times the last
    increment). A coarser level with increment rho then divides by 1 + rho S, S being the sum of these weights over its
    family.

    Args:
        offsets: first judgment of each item, and the end, (n_items + 1,).
        assessor: assessor of each judgment, (n,).
        levels: family of each assessor at each level, coarsest first, (n_levels, n_assessors).
        increments: result of :func:`correlation_increments`, (n_levels, n_assessors).

    """
    n_levels = len(levels)
    weight, total = np.ones(len(assessor)), np.zeros(levels.max() + 1)
    for item in range(len(offsets) - 1):
        for level in range(n_levels - 1, -1, -1):
            for j in range(offsets[item], offsets[item + 1]):
                total[levels[level, assessor[j]]] += weight[j]
            for j in range(offsets[item], offsets[item + 1]):
                a = assessor[j]
                rho, shared = increments[level, a], total[levels[level, a]]
                if level == n_levels - 1:
                    rest = 1.0
                    for finer in range(n_levels):
                        rest -= increments[finer, a]
                    weight[j] = 1.0 / max(rest + shared * rho, MIN_WEIGHT_DENOMINATOR)
                else:
                    weight[j] /= 1.0 + rho * shared
            for j in range(offsets[item], offsets[item + 1]):
                total[levels[level, assessor[j]]] = 0.0
    return weight


def effective_n_assessors(levels: Codes, increments: Floats) -> float:
    """Return the effective number of independent assessors if all assessors judge the same document.

    >>> round(effective_n_assessors(np.zeros((1, 10), np.int32), np.full((1, 10), 0.5)), 3)
    1.818
    """
    n_assessors = levels.shape[1]
    weights = nested_weights(np.array([0, n_assessors]), np.arange(n_assessors, dtype=np.int32), levels, increments)
    return float(weights.sum())
