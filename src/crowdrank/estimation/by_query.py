"""Estimates from experts' grades of whole queries, from labels alone, and their combination (PPI).

The measure m is known from experts for n queries, its prediction m^ from labels for these and N others:

    theta = lambda mean_N(m^) + mean_n(m - lambda m^)

This is unbiased for every lambda that does not depend on the same queries, however biased the labels are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.evaluation.alignment import Alignment, GoldGrades
from crowdrank.evaluation.evaluate import RunScoring
from crowdrank.evaluation.measures import Measure

ROUNDING_TOLERANCE = 1e-12
"""Standard errors up to this share of the mean are rounding errors of equal values."""
MIN_QUERIES_WITHOUT_CROSS_FIT = 30
"""Minimum number of expert queries for which the weight lambda is fitted without cross-fitting."""
N_DRAWS_OF_MEANS = 500
"""Number of bootstrap draws (of all grades, and of the queries) for intervals without experts."""


@dataclass(frozen=True)
class ContrastEstimate:
    """Estimate of the mean of a run, or of a difference of two runs, beside what labels or experts alone give.

    Attributes:
        value: the estimate.
        lower: lower end of its interval.
        upper: upper end of its interval.
        p: two-sided p-value of the value 0.
        labels: value from the labels alone.
        experts: value from the expert grades alone; NaN if there are none.
        weight: weight of the labels (lambda); NaN without experts.
        worth: ratio of the variance of experts alone to that of the estimate; NaN without experts.

    """

    value: float
    lower: float
    upper: float
    p: float
    labels: float
    experts: float = float("nan")
    weight: float = float("nan")
    worth: float = float("nan")


@dataclass(frozen=True)
class MeanWithError:
    """A mean with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: int

    def contrast(self, level: float, labels: float, experts_alone: MeanWithError, weight: float) -> ContrastEstimate:
        """Return the estimate with its interval of Student's t, given that of experts alone."""
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        worth = (experts_alone.error / self.error) ** 2 if self.error > 0 else float("nan")
        estimate = ContrastEstimate(
            self.value, self.value - half, self.value + half, self.p, labels, experts_alone.value
        )
        return replace(estimate, weight=weight, worth=worth)

    @property
    def p(self) -> float:
        """Two-sided p-value of the mean 0; by the sign test if all values are equal, which have no standard error."""
        if self.error <= ROUNDING_TOLERANCE * abs(self.value):
            return 1.0 if self.value == 0 else 2.0**-self.freedom
        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))


def sample_mean(values: Floats) -> MeanWithError:
    """Return the mean of independent values with its standard error.

    >>> sample_mean(np.array([1.0, 2.0, 3.0])).error
    0.5773502691896258
    """
    return MeanWithError(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values) - 1)


@dataclass(frozen=True)
class ByQueryEstimator:
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


def prediction_powered_mean(
    expert_values: Floats, predictions: Floats, other_predictions: Floats
) -> tuple[MeanWithError, float]:
    """Return the mean of a population of queries, and the weight lambda of the predictions.

    Args:
        expert_values: (n,) values of the queries with experts.
        predictions: (n,) predictions for the same queries.
        other_predictions: (N,) predictions for other queries of the same population.

    >>> truth = np.array([0.1, 0.5, 0.9, 0.4])
    >>> mean, weight = prediction_powered_mean(truth, truth + 0.2, np.array([0.5, 0.7, 0.6, 0.9, 0.8, 0.4]))
    >>> round(mean.value, 3), round(weight, 2)
    (0.475, 0.81)

    """
    n = len(expert_values)
    if not len(other_predictions):
        return sample_mean(expert_values), 0.0
    if n < MIN_QUERIES_WITHOUT_CROSS_FIT:
        keep = ~np.eye(n, dtype=np.bool_)
        weights = np.array([prediction_weight(expert_values[row], predictions[row], other_predictions) for row in keep])
    else:
        weights = np.full(n, prediction_weight(expert_values, predictions, other_predictions))
    center, weight = other_predictions.mean(), float(weights.mean())
    corrected = expert_values - weights * (predictions - center)
    variance = weight**2 * other_predictions.var(ddof=1) / len(other_predictions) if len(other_predictions) > 1 else 0.0
    error = np.sqrt(variance + corrected.var(ddof=1) / n)
    return MeanWithError(float(corrected.mean()), float(error), n - 1), weight


def prediction_weight(expert_values: Floats, predictions: Floats, other_predictions: Floats) -> float:
    """Return the weight from 0 to 1 that minimizes the variance: cov(m, m^) / ((1 + n/N) var(m^)), as in ppi-python.

    >>> prediction_weight(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    0.41666666666666663
    """
    variance = np.append(predictions, other_predictions).var(ddof=1)
    if variance == 0:
        return 0.0
    covariance = ((expert_values - expert_values.mean()) * (predictions - predictions.mean())).mean()
    return float(np.clip(covariance / ((1 + len(expert_values) / len(other_predictions)) * variance), 0.0, 1.0))


@dataclass(frozen=True)
class LabelsOnlyEstimator:
    """Draws of the means of runs, (n_draws, n_runs), and their values from the labels by query, (n_queries, n_runs)."""

    draws: Floats
    labels: Floats

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        draws = self.draws @ contrast
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        as_extreme = min((draws <= 0).sum(), (draws >= 0).sum())
        p = min(1.0, 2 * (as_extreme + 1) / (len(draws) + 1))
        return ContrastEstimate(
            float(draws.mean()), float(lower), float(upper), float(p), float((self.labels @ contrast).mean())
        )


def draw_means(
    alignments: list[Alignment], queries: Integers, labels: Floats, measure: Measure, rng: np.random.Generator
) -> LabelsOnlyEstimator:
    """Return draws of the mean of each run over queries.

    Args:
        alignments: the runs, joined with the same gold: the labels.
        queries: (n_queries,) the queries to use.
        labels: (n_queries, n_runs) values from the labels.
        measure: any measure.
        rng: random numbers.

    """
    n_queries, grades = len(labels), alignments[0].grades
    means = np.empty((N_DRAWS_OF_MEANS, len(alignments)))
    for draw in range(N_DRAWS_OF_MEANS):
        drawn = draw_grades(grades, rng)
        times = np.bincount(rng.integers(0, n_queries, n_queries), minlength=n_queries)
        for run, aligned in enumerate(alignments):
            values = RunScoring(replace(aligned, grades=drawn), skip_unjudged=False).values(measure)[queries]
            means[draw, run] = times @ values / n_queries
    return LabelsOnlyEstimator(means, labels)


def draw_grades(grades: GoldGrades, rng: np.random.Generator) -> GoldGrades:
    """Return one draw of the grades from their probabilities; certain grades stay as they are."""
    if grades.shares is None or grades.values is None:
        return grades
    below = grades.shares.cumsum(axis=1)[:, :-1] < rng.random((len(grades.shares), 1))
    return GoldGrades(grades.values[below.sum(axis=1)])
