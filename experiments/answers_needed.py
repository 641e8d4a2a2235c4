"""Answers that each run needs for the quality that a baseline reaches with all of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from crowdrank._typing import Booleans, Floats
from experiments.next_label_features import labels_to_reach

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Curves:
    """Quality of a run after growing numbers of answers.

    Attributes:
        labels: numbers of answers per document, ascending, (n_steps,).
        values: quality of each query in each seed, NaN for queries that are not scored, (n_seeds, n_queries, n_steps).

    """

    labels: Sequence[float]
    values: Floats

    @property
    def is_scored(self) -> Booleans:
        """Whether each query of each seed has a value, (n_seeds, n_queries)."""
        return ~np.isnan(self.values[:, :, 0])

    def mean(self, weight: Floats | None = None) -> Floats:
        """Return the mean over seeds and queries after each number of answers, made monotone, (n_steps,).

        Args:
            weight: weight of each query in each seed, (n_seeds, n_queries); by default equal.

        """
        return np.asarray(isotonic_regression(self.raw_mean(weight)).x)

    def raw_mean(self, weight: Floats | None = None) -> Floats:
        """Return the mean over seeds and queries after each number of answers, (n_steps,)."""
        weights = self.is_scored * (1.0 if weight is None else weight)
        return np.asarray(np.einsum("sq,sqn->n", weights, np.nan_to_num(self.values)) / weights.sum())


@dataclass(frozen=True)
class Need:
    """Answers that a run needs for the final quality of the baseline.

    Attributes:
        labels: answers per document; infinite if the run does not reach the quality.
        ratio: `labels` divided by those that the baseline needs.
        lower, upper: 95% bootstrap interval of the ratio.

    """

    labels: float
    ratio: float
    lower: float
    upper: float


def answers_needed(
    curves: Mapping[str, Curves], baseline: str, *, same_queries: bool, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Need]:
    """Return what each run needs for the final quality of the baseline.

    Means over seeds and queries are made monotone and interpolated. The bootstrap draws seeds, and queries within
    seeds, and gives all runs the same draws.

    Args:
        curves: curves of each run, of the same seeds and queries.
        baseline: name of the baseline.
        same_queries: whether the queries are the same in all seeds, so that they are drawn once for all.
        resamples: number of bootstrap samples.
        seed: random seed of the bootstrap.

    >>> rising, faster = (np.array([[[0.2, 0.4, 0.6]]]), np.array([[[0.2, 0.6, 0.7]]]))
    >>> curves = {"random": Curves([1, 2, 3], rising), "model": Curves([1, 2, 3], faster)}
    >>> needed = answers_needed(curves, "random", same_queries=True, resamples=10)
    >>> needed["model"].labels, round(needed["model"].ratio, 3)
    (2.0, 0.667)
    """
    rng, is_scored = np.random.default_rng(seed), curves[baseline].is_scored
    point = _labels_needed(curves, baseline, None)
    draws: list[dict[str, float]] = []
    while len(draws) < resamples:
        weight = draw_weights(rng, is_scored.shape, same_queries=same_queries)
        if (weight * is_scored).any():  # a draw may have no query with relevant documents if there are few
            draws.append(_labels_needed(curves, baseline, weight))
    needs = {}
    for name in curves:
        ratios = [draw[name] / draw[baseline] for draw in draws]
        lower, upper = np.quantile(ratios, [0.025, 0.975], method="nearest")
        needs[name] = Need(point[name], point[name] / point[baseline], float(lower), float(upper))
    return needs


def draw_weights(rng: np.random.Generator, shape: tuple[int, ...], *, same_queries: bool) -> Floats:
    """Return how often each query of each seed is drawn, (n_seeds, n_queries).

    >>> float(draw_weights(np.random.default_rng(0), (2, 3), same_queries=False).sum())
    6.0
    """
    n_seeds, n_queries = shape
    equal = np.full(n_queries, 1 / n_queries)
    seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds))
    queries = rng.multinomial(n_queries, equal) if same_queries else rng.multinomial(n_queries, equal, n_seeds)
    return np.asarray(seeds[:, None] * np.broadcast_to(queries, shape), np.float64)


def _labels_needed(curves: Mapping[str, Curves], baseline: str, weight: Floats | None) -> dict[str, float]:
    target = float(curves[baseline].mean(weight)[-1])
    needed = {}
    for name, curve in curves.items():
        reached = labels_to_reach(curve.labels, curve.mean(weight).tolist(), target)
        needed[name] = float("inf") if np.isnan(reached) else reached
    return needed
