"""Slow, obvious references of the kernels, straight from the definitions."""

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
    """One query's forces and curvatures: every pair is swapped and the measure computed again."""
    n = len(score)
    order = sorted(range(n), key=lambda d: -score[d])
    slope, curve, total = np.zeros(n), np.zeros(n), 0.0
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
            push, pull = sigmoid * change * (chance - target), sigmoid**2 * change * chance * (1 - chance)
            total += 2 * abs(push)
            if weight is not None and weighting == "product":
                push, pull = push * weight[a] * weight[b], pull * weight[a] * weight[b]
            elif weight is not None and weighting == "left":
                better = weight[a] if gain[a] > gain[b] else weight[b]
                push, pull = push * better, pull * better
            slope[a], slope[b] = slope[a] + push, slope[b] - push
            curve[a], curve[b] = curve[a] + pull, curve[b] + pull
    factor: Any = np.log2(1 + total) / total if norm and total > 0 else 1.0
    if weight is not None and weighting == "post":
        factor = factor * weight
    return factor * slope, factor * curve
