"""Estimates from experts' grades of whole queries, from labels alone, and their combination (PPI).

The measure m is known from experts for n queries, its prediction m^ from labels for these and N others:

    theta = lambda mean_N(m^) + mean_n(m - lambda m^)

This is unbiased for every lambda that does not depend on the same queries, however biased the labels are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import stdtr, stdtrit

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.evaluation.alignment import Alignment, GoldGrades
from crowdrank.evaluation.evaluate import RunScoring
from crowdrank.evaluation.measures import Measure

ROUNDING_TOLERANCE = 1e-12
"""Standard errors up to this share of the mean are rounding errors of equal values."""
MIN_INFORMATIVE_QUERIES = 4
"""Minimum number of expert queries that show a difference, for an interval of Student's t."""
SHRINKAGE = 1.0
"""F statistic of the labels up to which they get no weight."""
RANGE_WEIGHT = 0.125
"""Weight of the largest possible deviations, to both ends of the range, in the variance of values of a run."""
N_DRAWS_OF_MEANS = 500
"""Number of draws of all grades and of the queries."""


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
        error: standard error; NaN without experts.
        query_error: part of the standard error that stays if experts grade all documents of these queries.
        is_bound: whether too few queries show a difference, so that the interval holds what rare ones can hide.

    """

    value: float
    lower: float
    upper: float
    p: float
    labels: float
    experts: float = float("nan")
    weight: float = float("nan")
    worth: float = float("nan")
    error: float = float("nan")
    query_error: float = float("nan")
    is_bound: bool = False

    def clipped(self, lowest: float, highest: float) -> ContrastEstimate:
        """Return the estimate with value and interval within the range of the measure.

        An interval outside of the range has half its width within, from the nearest end.
        """
        half = (self.upper - self.lower) / 2
        lower = highest - half if self.lower >= highest else self.lower
        upper = lowest + half if self.upper <= lowest else self.upper
        value, lower, upper = np.clip([self.value, lower, upper], lowest, highest).tolist()
        return replace(self, value=value, lower=lower, upper=upper)


@dataclass(frozen=True)
class MeanWithError:
    """A mean with its standard error and degrees of freedom; `query_error` is the error if experts graded all."""

    value: float
    error: float
    freedom: float
    query_error: float = 0.0

    def contrast(self, level: float, labels: float, experts_alone: MeanWithError, weight: float) -> ContrastEstimate:
        """Return the estimate with its interval of Student's t, given that of experts alone."""
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        worth = max((experts_alone.error / self.error) ** 2, 1.0) if self.error > 0 else float("nan")
        estimate = ContrastEstimate(
            self.value, self.value - half, self.value + half, self.p, labels, experts_alone.value
        )
        return replace(estimate, weight=weight, worth=worth, error=self.error, query_error=self.query_error)

    @property
    def p(self) -> float:
        """Two-sided p-value of the mean 0; by the sign test if all values are equal, which have no standard error."""
        if self.error <= ROUNDING_TOLERANCE * abs(self.value):
            return 1.0 if self.value == 0 else float(2.0**-self.freedom)
        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))


def sample_mean(values: Floats) -> MeanWithError:
    """Return the mean of independent values with its standard error.

    >>> sample_mean(np.array([1.0, 2.0, 3.0])).error
    0.5773502691896258
    """
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return MeanWithError(float(values.mean()), error, max(len(values) - 1.0, 1.0))


def sample_kurtosis(values: Floats) -> float:
    """Return the kurtosis of values; 1, the smallest possible one, if all are equal."""
    squares = (values - values.mean()) ** 2
    return float(len(values) * (squares**2).sum() / squares.sum() ** 2) if squares.any() else 1.0


def freedom_of_kurtosis(kurtosis: float, n: float) -> float:
    """Return the degrees of freedom of the variance of n values with a kurtosis, from 1 to n - 1."""
    return float(np.clip(2 * n / max(kurtosis - 1, 1e-9), 1.0, max(n - 1, 1.0)))


@dataclass(frozen=True)
class ByQueryEstimator:
    """Values of runs by query, from labels and from experts.

    Queries in which all runs have the same first documents cannot show a difference. They are a stratum of their own,
    so that the share of such queries among the expert queries does not matter (post-stratification). All rows have the
    same weight of the labels, so that the difference of two runs is the difference of their estimates.

    Attributes:
        labels: (n_queries, n_runs) values from the labels.
        experts: (n_queries, n_runs) values from the experts; only those of expert queries are used.
        is_expert: (n_queries,) whether experts graded the query.
        is_equal: (n_queries,) whether all runs have the same first documents.

    """

    labels: Floats
    experts: Floats
    is_expert: Booleans
    is_equal: Booleans

    @classmethod
    def of_differences(cls, labels: Floats, experts: Floats, is_expert: Booleans) -> ByQueryEstimator:
        """Return the estimator of the difference of two runs, (n_queries,) each, whose first run has the values 0."""
        first = np.zeros(len(labels))
        by_labels, by_experts = np.column_stack([first, labels]), np.column_stack([first, experts])
        return cls(by_labels, by_experts, is_expert, np.zeros(len(labels), np.bool_))

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        is_about_difference = is_difference(contrast)
        alone = self._mean(contrast, np.zeros_like(self.weights))
        combined = self._mean(contrast, self.weights) if self.weights.any() else alone
        labels, weight = float((self.labels @ contrast).mean()), float(self.weights[:, int(is_about_difference)].mean())
        estimate = combined.contrast(level, labels, alone, weight)
        known = (self.experts @ contrast)[self.is_expert]
        if not is_about_difference:
            return widen_if_constant(estimate, known, self.largest_value, level)
        differs = ~self.is_equal
        return widen_if_sparse(estimate, known[differs[self.is_expert]], self.largest_value, differs, level)

    @cached_property
    def strata(self) -> list[Booleans]:
        """Queries of each stratum, (n_queries,) each; one if a stratum has fewer than two expert queries."""
        parts = [self.is_equal, ~self.is_equal]
        if any((part & self.is_expert).sum() < 2 for part in parts):
            return [np.ones(len(self.is_equal), np.bool_)]
        return parts

    @cached_property
    def weights(self) -> Floats:
        """Weights of the labels for each expert query, fitted on the other expert queries, (n_expert_queries, 2).

        The first weighs the mean of the runs, the second the deviation of a run from it, and so differences.
        """
        return self._fit_weights(int((~self.is_expert).sum()))

    def _fit_weights(self, n_others: float) -> Floats:
        rows, n_runs = np.flatnonzero(self.is_expert), self.labels.shape[1]
        weights = np.zeros((len(rows), 2))
        if not n_others:
            return weights
        levels = np.full((n_runs, 1), 1 / n_runs)
        deviations = np.eye(n_runs)[:, 1:] - np.eye(n_runs)[:, :1]
        stratum = (len(self.strata) > 1) & ~self.is_equal[rows]
        for column, contrasts in enumerate((levels, deviations)):
            truth, predicted = self.experts[rows] @ contrasts, self.labels[rows] @ contrasts
            used = np.ones(len(rows), np.bool_) if column == 0 else ~self.is_equal[rows]
            if contrasts.size and used.any():
                own = stratum[used].astype(np.int64)
                fitted = left_out_weights(truth[used], predicted[used], own, n_others * used.mean())
                weights[used, column], weights[~used, column] = fitted, fitted.mean()
        return weights

    def _label_parts(self, contrast: Floats) -> Floats:
        """Return the values of a contrast from the labels: its part in the mean of the runs, and the rest, (n, 2)."""
        level = np.full(len(contrast), contrast.mean())
        return np.column_stack([self.labels @ level, self.labels @ (contrast - level)])

    def residuals(self, contrast: Floats) -> tuple[Floats, Floats]:
        """Return the values of expert queries in which the runs may differ, and what the labels do not explain of them.

        The weight of the labels is that for infinitely many queries with labels.
        """
        may_differ = ~self.is_equal[self.is_expert]
        truth, predicted = ((values @ contrast)[self.is_expert] for values in (self.experts, self.labels))
        weights = self._fit_weights(float("inf"))[:, int(is_difference(contrast))]
        rest = truth - weights * (predicted - predicted[may_differ].mean())
        return truth[may_differ], rest[may_differ]

    def _mean(self, contrast: Floats, weights: Floats) -> MeanWithError:
        """Return the mean over all queries."""
        truth, labels, n_queries = (
            (self.experts @ contrast)[self.is_expert],
            self._label_parts(contrast),
            len(self.labels),
        )
        corrected, known_labels, mean_weight = truth.copy(), labels[self.is_expert], weights.mean(axis=0)
        strata = [part[self.is_expert] for part in self.strata]
        shares = np.array([part.mean() for part in self.strata])
        spreads, sizes = np.zeros(len(strata)), np.array([part.sum() for part in strata])
        for number, (part, known) in enumerate(zip(self.strata, strata, strict=True)):
            others = labels[part & ~self.is_expert]
            center = (others if len(others) else known_labels[known]).mean(axis=0)
            corrected[known] -= (weights[known] * (known_labels[known] - center)).sum(axis=1)
            if len(others) > 1:
                spreads[number] = (others @ mean_weight).var(ddof=1) / len(others)
        means = np.array([corrected[known].mean() for known in strata])
        value = float(shares @ means)
        between = float(shares @ (means - value) ** 2) / n_queries
        variances, freedom = self._variances(corrected, truth, strata, contrast)
        if_all_graded = self._variances(truth, truth, strata, contrast)[0] if weights.any() else variances
        error = np.sqrt(float(shares**2 @ (spreads + variances / sizes)) + between)
        query_error = np.sqrt(float(shares @ if_all_graded) / n_queries + between)
        return MeanWithError(value, float(error), freedom, float(query_error))

    def _variances(
        self, values: Floats, truth: Floats, strata: list[Booleans], contrast: Floats
    ) -> tuple[Floats, float]:
        """Return the variance of corrected values in each stratum, (n_strata,), and its degrees of freedom.

        Values of a run have one variance for all strata, which is better known than that of each. Differences are 0
        in all strata but one.
        """
        centered, centered_truth = (
            one - sum((part * one[part].mean() for part in strata), np.zeros(len(one))) for one in (values, truth)
        )
        if not is_difference(contrast):
            variance, freedom = level_variance(
                float(values.mean()), centered, centered_truth, len(strata), self.largest_value
            )
            return np.full(len(strata), variance), freedom
        squares = np.array([(centered[part] ** 2).sum() for part in strata])
        n_free = np.array([part.sum() - 1.0 for part in strata])
        return squares / np.maximum(n_free, 1), max(float(n_free[np.argmax(squares)]), 1.0)

    @cached_property
    def largest_value(self) -> float:
        """Largest known value of a query."""
        return float(max(np.abs(self.labels).max(), np.abs(self.experts[self.is_expert]).max()))


def level_variance(
    mean: float, centered: Floats, centered_truth: Floats, n_means: int, largest: float
) -> tuple[float, float]:
    """Return the variance of values of a run, which are from 0 to `largest`, and its degrees of freedom.

    Few values may all be near one end of the range, although others are not. So the largest possible deviations, to
    both ends, count too, with a small weight, as in moderated variances (Smyth 2004). They are reduced by what the
    labels explain.

    Args:
        mean: mean of the values.
        centered: (n,) values, corrected by the labels, minus their means.
        centered_truth: (n,) values of the experts minus their means.
        n_means: number of means that were subtracted.
        largest: largest possible value.

    """
    n_free, squares, total = max(len(centered) - n_means, 1), (centered**2).sum(), (centered_truth**2).sum()
    unexplained = min(squares / total, 1.0) if total > 0 else 1.0
    ends = mean**2 + (largest - mean) ** 2
    variance = (squares + RANGE_WEIGHT * unexplained * ends) / (n_free + 2 * RANGE_WEIGHT)
    return float(variance), min(freedom_of_kurtosis(sample_kurtosis(centered), len(centered)), float(n_free))


def is_difference(contrast: Floats) -> bool:
    """Return whether a contrast is a difference of different runs."""
    return bool(contrast.any() and abs(contrast.sum()) < ROUNDING_TOLERANCE)


def widen_if_sparse(
    estimate: ContrastEstimate, differences: Floats, largest: float, differs: Booleans, level: float
) -> ContrastEstimate:
    """Return the estimate with an interval that holds if few queries show a difference.

    Large differences may be so rare that none of n queries shows them. With confidence `level`, their share of the
    queries is at most 1 - (1 - level)^(1 / n).

    Args:
        estimate: the estimate.
        differences: (n,) known differences of queries in which the runs may differ.
        largest: largest value of the measure, and so of a difference.
        differs: (n_queries,) whether the runs may differ in each query.
        level: level of the interval.

    """
    n_shown, n_differ = int((np.abs(differences) > ROUNDING_TOLERANCE).sum()), int(differs.sum())
    is_enough = has_enough_differences(len(differences), n_shown, n_differ)
    if is_enough and estimate.upper - estimate.lower > ROUNDING_TOLERANCE:
        return estimate
    share, n = (n_differ / len(differs), len(differences)) if n_differ else (1.0, len(differs))
    bound = sparse_bound(n, largest, share, level)
    if is_enough:  # all known differences are equal
        return replace(estimate, lower=estimate.value - bound, upper=estimate.value + bound, is_bound=True)
    lower, upper = min(estimate.lower, -bound), max(estimate.upper, bound)
    p = max(estimate.p, 2.0 ** (1 - n_shown)) if n_shown else 1.0
    return replace(estimate, lower=lower, upper=upper, p=p, is_bound=True)


def has_enough_differences(n: float, n_shown: float, n_differ: float) -> bool:
    """Return whether queries that show a difference are enough for an interval of Student's t.

    Args:
        n: number of known queries in which the runs may differ.
        n_shown: number of them that show a difference.
        n_differ: number of all queries in which the runs may differ.

    """
    return n_shown >= min(MIN_INFORMATIVE_QUERIES, max(n, 2)) and n_differ >= MIN_INFORMATIVE_QUERIES


def widen_if_constant(estimate: ContrastEstimate, values: Floats, largest: float, level: float) -> ContrastEstimate:
    """Return the estimate with an interval that holds if all n known values are equal, such as RR = 1.

    With confidence `level`, the share of queries with another value, from 0 to `largest`, is at most
    1 - (1 - level)^(1 / n).
    """
    if np.ptp(values) > ROUNDING_TOLERANCE:
        return estimate
    share = sparse_bound(len(values), 1.0, 1.0, level)
    value, top = estimate.value, max(largest, ROUNDING_TOLERANCE)
    return replace(
        estimate,
        lower=min(estimate.lower, value * (1 - share)),
        upper=max(estimate.upper, value + share * (top - value)),
    )


def sparse_bound(n: float, largest: float, share: float, level: float) -> float:
    """Return the largest mean difference that n queries can hide which show none, in a share of all queries."""
    return float(share * (1 - (1 - level) ** (1 / max(n, 1))) * max(largest, ROUNDING_TOLERANCE))


def left_out_weights(truth: Floats, predicted: Floats, stratum: Integers, n_others: float) -> Floats:
    """Return the weight of the labels for each query, from 0 to 1, fitted on the other queries.

    It minimizes the mean over contrasts of the variance relative to that of experts alone. For one contrast this is
    cov(m, m^) / ((1 + n/N) var(m^)).

    Args:
        truth: (n, n_contrasts) values from the experts.
        predicted: (n, n_contrasts) values from the labels.
        stratum: (n,) stratum of each query.
        n_others: number of queries without experts.

    """
    known, guess = (_centered(values, stratum) for values in (truth, predicted))
    size = np.bincount(stratum)[stratum]
    own = (size / np.maximum(size - 1, 1))[:, None]
    # Products around the mean of the other queries: those around the mean of all, less the query's own part.
    scale, covariance, variance = (
        products.sum(axis=0) - own * products for products in (known**2, known * guess, guess**2)
    )
    has_spread = scale > ROUNDING_TOLERANCE * (known**2).sum(axis=0)
    relative = np.divide(1.0, scale, out=np.zeros_like(scale), where=has_spread)
    covariance, variance = (covariance * relative).sum(axis=1), (variance * relative).sum(axis=1)
    has_variance = variance > ROUNDING_TOLERANCE * variance.max(initial=0.0)
    slope = np.divide(covariance, variance, out=np.zeros(len(truth)), where=has_variance)
    # Positive-part shrinkage (James and Stein 1961) by the F statistic of the slope on the other queries.
    explained = np.divide(slope * covariance, has_spread.sum(axis=1), out=np.zeros(len(truth)), where=has_variance)
    f = (len(truth) - 2 - len(set(stratum.tolist()))) * explained / np.maximum(1 - explained, ROUNDING_TOLERANCE)
    shrinkage = np.maximum(1 - SHRINKAGE / np.maximum(f, ROUNDING_TOLERANCE), 0.0)
    return np.asarray((slope * shrinkage / (1 + len(truth) / n_others)).clip(0.0, 1.0))


def _centered(values: Floats, stratum: Integers) -> Floats:
    """Return the values minus the mean of their stratum."""
    counts = np.bincount(stratum)
    means = np.column_stack([np.bincount(stratum, column) for column in values.T]) / np.maximum(counts, 1)[:, None]
    return np.asarray(values - means[stratum])


@dataclass(frozen=True)
class LabelsOnlyEstimator:
    """Draws of the means of runs, (n_draws, n_runs), and their values from the labels by query, (n_queries, n_runs)."""

    draws: Floats
    labels: Floats

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        value, draws = float((self.labels @ contrast).mean()), self.draws @ contrast
        draws = draws + (value - draws.mean())  # independent draws of all grades raise the ideal DCG
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        as_extreme = min((draws <= 0).sum(), (draws >= 0).sum())
        p = min(1.0, 2 * (as_extreme + 1) / (len(draws) + 1))
        estimate = ContrastEstimate(value, float(lower), float(upper), float(p), value)
        if upper - lower > ROUNDING_TOLERANCE:
            return estimate
        known, largest = self.labels @ contrast, float(np.abs(self.labels).max())
        if not is_difference(contrast):
            return widen_if_constant(estimate, known, largest, level)
        return widen_if_sparse(estimate, known, largest, np.abs(known) > ROUNDING_TOLERANCE, level)


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
