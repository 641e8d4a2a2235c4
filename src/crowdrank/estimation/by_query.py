"""Prediction-powered estimates from queries whose documents experts graded (Angelopoulos et al. 2023, PPI++).

The measure m is known from experts for n queries, its prediction m^ from labels for these and N others:

    theta = lambda mean_N(m^) + mean_n(m - lambda m^)

This is unbiased for every lambda that does not depend on the same queries, however biased the labels are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Booleans, Floats
from crowdrank.estimation.contrast import ContrastEstimate, MeanError, sample_mean

CROSS_FIT_BELOW = 30
"""Number of expert queries below which lambda is cross-fitted."""


@dataclass(frozen=True)
class ByQuery:
    """Values of runs by query, from labels and from experts.

    Attributes:
        labels: (n_queries, n_runs) values from the labels.
        experts: (n_queries, n_runs) values from the experts; only those of expert queries are used.
        is_expert: (n_queries,) whether experts graded the query.

    """

    labels: Floats
    experts: Floats
    is_expert: Booleans

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        predicted, truth = self.labels @ contrast, (self.experts @ contrast)[self.is_expert]
        known, others = predicted[self.is_expert], predicted[~self.is_expert]
        mean, weight = prediction_powered_mean(truth, known, others)
        return mean.contrast(level, float(predicted.mean()), sample_mean(truth), weight)


def prediction_powered_mean(truth: Floats, known: Floats, others: Floats) -> tuple[MeanError, float]:
    """Return the mean of a population of queries, and the weight lambda of the predictions.

    Args:
        truth: (n,) values of the queries with experts.
        known: (n,) predictions for the same queries.
        others: (N,) predictions for other queries of the same population.

    >>> truth = np.array([0.1, 0.5, 0.9, 0.4])
    >>> mean, weight = prediction_powered_mean(truth, truth + 0.2, np.array([0.5, 0.7, 0.6, 0.9, 0.8, 0.4]))
    >>> round(mean.value, 3), round(weight, 2)
    (0.475, 0.81)

    """
    n = len(truth)
    if not len(others):
        return sample_mean(truth), 0.0
    if n < CROSS_FIT_BELOW:
        keep = ~np.eye(n, dtype=np.bool_)
        weights = np.array([prediction_weight(truth[row], known[row], others) for row in keep])
    else:
        weights = np.full(n, prediction_weight(truth, known, others))
    center, weight = others.mean(), float(weights.mean())
    corrected = truth - weights * (known - center)
    variance = weight**2 * others.var(ddof=1) / len(others) if len(others) > 1 else 0.0
    error = np.sqrt(variance + corrected.var(ddof=1) / n)
    return MeanError(float(corrected.mean()), float(error), n - 1), weight


def prediction_weight(truth: Floats, known: Floats, others: Floats) -> float:
    """Return the weight from 0 to 1 that minimizes the variance: cov(m, m^) / ((1 + n/N) var(m^)), as in ppi-python.

    >>> prediction_weight(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    0.41666666666666663
    """
    variance = np.append(known, others).var(ddof=1)
    if variance == 0:
        return 0.0
    covariance = ((truth - truth.mean()) * (known - known.mean())).mean()
    return float(np.clip(covariance / ((1 + len(truth) / len(others)) * variance), 0.0, 1.0))
