"""Slow references of the kernels, written as the definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdrank._typing import Floats

Measured = Callable[[list[int]], float]


def dcg(gain: Floats, cutoff: int | None = None) -> Measured:
    return lambda order: sum(gain[d] / np.log2(rank + 2) for rank, d in enumerate(order[:cutoff]))


def err(stop: Floats, cutoff: int | None = None) -> Measured:
    def value(order: list[int]) -> float:
        total, reached = 0.0, 1.0
        for rank, d in enumerate(order[:cutoff]):
            total += reached * stop[d] / (rank + 1)
            reached *= 1 - stop[d]
        return total

    return value


def average_precision(relevant: Floats, cutoff: int | None = None) -> Measured:
    def value(order: list[int]) -> float:
        found, total = 0.0, 0.0
        for rank, d in enumerate(order[:cutoff]):
            found += relevant[d]
            total += relevant[d] * found / (rank + 1)
        return total / relevant.sum() if relevant.any() else 0.0

    return value


def lambdas(
    score: Floats,
    gain: Floats,
    value: Measured | None,
    *,
    ideal: float = 1.0,
    above: Callable[[int, int], float] | None = None,
    weight: Floats | None = None,
    weighting: str = "product",
    sigmoid: float = 1.0,
    truncation: int = 30,
    norm: bool = False,
) -> tuple[Floats, Floats]:
    """Return gradient and Hessian of one query; the measure is computed again for every swapped pair."""
    n = len(score)
    order = sorted(range(n), key=lambda d: -score[d])
    gradient, hessian, total = np.zeros(n), np.zeros(n), 0.0
    for i in range(min(n, truncation)):
        for j in range(i + 1, n):
            a, b = order[i], order[j]
            if gain[a] == gain[b] and (above is None or value is not None):
                continue
            swapped = list(order)
            swapped[i], swapped[j] = b, a
            change = 1.0 if value is None else abs(value(swapped) - value(order)) * (1 / ideal if ideal else 0.0)
            if norm and max(score) != min(score):
                change /= 0.01 + abs(score[a] - score[b])
            target = float(gain[a] > gain[b]) if above is None else above(a, b)
            chance = 1 / (1 + np.exp(-sigmoid * (score[a] - score[b])))
            d_gradient, d_hessian = sigmoid * change * (chance - target), sigmoid**2 * change * chance * (1 - chance)
            total += 2 * abs(d_gradient)
            if weight is not None and weighting == "product":
                d_gradient, d_hessian = d_gradient * weight[a] * weight[b], d_hessian * weight[a] * weight[b]
            elif weight is not None and weighting == "left":
                better = weight[a] if gain[a] > gain[b] else weight[b]
                d_gradient, d_hessian = d_gradient * better, d_hessian * better
            gradient[a], gradient[b] = gradient[a] + d_gradient, gradient[b] - d_gradient
            hessian[a], hessian[b] = hessian[a] + d_hessian, hessian[b] + d_hessian
    factor: Any = np.log2(1 + total) / total if norm and total > 0 else 1.0
    if weight is not None and weighting == "post":
        factor = factor * weight
    return factor * gradient, factor * hessian
