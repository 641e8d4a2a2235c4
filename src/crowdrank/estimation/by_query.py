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
MIN_INFORMATIVE_QUERIES = 10
"""Minimum number of expert queries that show a difference, for an interval of Student's t."""
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

    def clipped(self, lowest: float, highest: float) -> ContrastEstimate:
        """Return the estimate with value and interval within the range of the measure."""
        value, lower, upper = np.clip([self.value, self.lower, self.upper], lowest, highest).tolist()
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
    return MeanWithError(float(values.mean()), error, degrees_of_freedom(values))


def degrees_of_freedom(values: Floats) -> float:
    """Return the degrees of freedom of the variance of values: n - 1, and fewer if their tails are heavy.

    The variance of n values with kurtosis k has about 2 n / (k - 1) degrees of freedom (O'Neill 2014).

    >>> degrees_of_freedom(np.array([0.0, 1.0, 2.0, 3.0])), degrees_of_freedom(np.append(np.zeros(99), 1.0)) < 3
    (3.0, True)
    """
    return freedom_of_kurtosis(sample_kurtosis(values), len(values))


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
        """Return the estimator of one value per query, (n_queries,) each, such as a difference of two runs."""
        return cls(labels[:, None], experts[:, None], is_expert, np.zeros(len(labels), np.bool_))

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        combined, alone = (self._mean(contrast, weights) for weights in (self.weights, np.zeros(len(self.weights))))
        labels = float((self.labels @ contrast).mean())
        estimate = combined.contrast(level, labels, alone, float(self.weights.mean()))
        if not is_difference(contrast):
            known = (self.experts @ contrast)[self.is_expert]
            return widen_if_constant(estimate, known, float(max(self.labels.max(), self.experts.max())), level)
        may_differ = self.is_expert & ~self.is_equal
        largest = float(np.abs(np.concatenate([self.labels, self.experts])).max(initial=0.0))
        share = float((~self.is_equal).mean())
        return widen_if_sparse(estimate, (self.experts @ contrast)[may_differ], largest, share, level)

    @cached_property
    def strata(self) -> list[Booleans]:
        """Queries of each stratum, (n_queries,) each; one if a stratum has fewer than two expert queries."""
        parts = [self.is_equal, ~self.is_equal]
        if any((part & self.is_expert).sum() < 2 for part in parts):
            return [np.ones(len(self.is_equal), np.bool_)]
        return parts

    @cached_property
    def weights(self) -> Floats:
        """Weight of the labels for each expert query, fitted on the other expert queries, (n_expert_queries,)."""
        return self._fit_weights(int((~self.is_expert).sum()))

    def _fit_weights(self, n_others: float) -> Floats:
        if not n_others:
            return np.zeros(int(self.is_expert.sum()))
        n_runs = self.labels.shape[1]
        contrasts = [*np.eye(n_runs), *(np.eye(n_runs)[1:] - np.eye(n_runs)[0])]
        rows = np.flatnonzero(self.is_expert)
        stratum = np.zeros(len(self.is_expert), np.int64)
        for number, part in enumerate(self.strata):
            stratum[part] = number
        return left_out_weights(
            np.column_stack([self.experts[rows] @ contrast for contrast in contrasts]),
            np.column_stack([self.labels[rows] @ contrast for contrast in contrasts]),
            stratum[rows],
            n_others,
        )

    def residuals(self, contrast: Floats) -> tuple[Floats, Floats]:
        """Return the values of expert queries in which the runs may differ, and what the labels do not explain of them.

        The weight of the labels is that for infinitely many queries with labels.
        """
        may_differ = ~self.is_equal[self.is_expert]
        truth, predicted = ((values @ contrast)[self.is_expert] for values in (self.experts, self.labels))
        rest = truth - self._fit_weights(float("inf")) * (predicted - predicted[may_differ].mean())
        return truth[may_differ], rest[may_differ]

    def _mean(self, contrast: Floats, weights: Floats) -> MeanWithError:
        """Return the mean over all queries."""
        predicted, truth = self.labels @ contrast, self.experts @ contrast
        weight_of = np.zeros(len(predicted))
        weight_of[self.is_expert] = weights
        mean_weight, n_queries = float(weights.mean()), len(predicted)
        parts, if_all_graded = list[tuple[float, float, float, float]](), 0.0
        for part in self.strata:
            known, others = part & self.is_expert, part & ~self.is_expert
            share = float(part.sum() / n_queries)
            if not (predicted[part].any() or truth[known].any()):
                parts.append((share, 0.0, 0.0, float(len(truth))))
                continue
            center = predicted[others].mean() if others.any() else predicted[known].mean()
            corrected = truth[known] - weight_of[known] * (predicted[known] - center)
            spread = mean_weight**2 * predicted[others].var(ddof=1) / others.sum() if others.sum() > 1 else 0.0
            if_all_graded += share * float(truth[known].var(ddof=1)) / n_queries
            variance = spread + corrected.var(ddof=1) / known.sum()
            parts.append((share, float(corrected.mean()), float(variance), degrees_of_freedom(corrected)))
        value = sum(share * mean for share, mean, _, _ in parts)
        within = [share**2 * variance for share, _, variance, _ in parts]
        between = sum(share * (mean - value) ** 2 for share, mean, _, _ in parts) / n_queries
        total = sum(within) + between
        freedom = [one**2 / parts[number][3] for number, one in enumerate(within) if one > 0]
        effective = sum(within) ** 2 / sum(freedom) if freedom else float(self.is_expert.sum() - 1)
        query_error = float(np.sqrt(if_all_graded + between))
        return MeanWithError(float(value), float(np.sqrt(total)), max(float(effective), 1.0), query_error)


def is_difference(contrast: Floats) -> bool:
    """Return whether a contrast is a difference of different runs."""
    return bool(contrast.any() and abs(contrast.sum()) < ROUNDING_TOLERANCE)


def widen_if_sparse(
    estimate: ContrastEstimate, differences: Floats, largest: float, share: float, level: float
) -> ContrastEstimate:
    """Return the estimate with an interval that holds if most of the known differences of queries are 0.

    Large differences may be so rare that none of n queries shows them. With confidence `level`, their share of the
    queries is at most 1 - (1 - level)^(1 / n).

    Args:
        estimate: the estimate.
        differences: (n,) known differences of queries in which the runs may differ.
        largest: largest value of the measure, and so of a difference.
        share: share of such queries among all queries.
        level: level of the interval.

    """
    n_shown = int((np.abs(differences) > ROUNDING_TOLERANCE).sum())
    bound = sparse_bound(len(differences), n_shown, largest, share, level)
    if not bound:
        return estimate
    lower, upper = min(estimate.lower, -bound), max(estimate.upper, bound)
    return replace(estimate, lower=lower, upper=upper, p=max(estimate.p, 2.0 ** (1 - n_shown)) if n_shown else 1.0)


def widen_if_constant(estimate: ContrastEstimate, values: Floats, largest: float, level: float) -> ContrastEstimate:
    """Return the estimate with an interval that holds if all n known values are equal, such as RR = 1.

    With confidence `level`, the share of queries with another value, from 0 to `largest`, is at most
    1 - (1 - level)^(1 / n).
    """
    if np.ptp(values) > ROUNDING_TOLERANCE:
        return estimate
    share = sparse_bound(len(values), 0, 1.0, 1.0, level)
    value, top = estimate.value, max(largest, ROUNDING_TOLERANCE)
    return replace(
        estimate,
        lower=min(estimate.lower, value * (1 - share)),
        upper=max(estimate.upper, value + share * (top - value)),
    )


def sparse_bound(n: float, n_shown: float, largest: float, share: float, level: float) -> float:
    """Return the largest mean difference that n queries can hide if `n_shown` show one; 0 if enough of them do."""
    if n_shown >= min(MIN_INFORMATIVE_QUERIES, max(n, 2)):
        return 0.0
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
    n = len(truth)
    weights = np.zeros(n)
    for left_out in range(n):
        keep = np.arange(n) != left_out
        known, guess = (_centered(values[keep], stratum[keep]) for values in (truth, predicted))
        scale = (known**2).sum(axis=0)
        has_spread = scale > 0
        covariance = float(((known * guess).sum(axis=0)[has_spread] / scale[has_spread]).sum())
        variance = float(((guess**2).sum(axis=0)[has_spread] / scale[has_spread]).sum())
        if variance > 0:
            weights[left_out] = np.clip(covariance / ((1 + n / n_others) * variance), 0.0, 1.0)
    return weights


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
        return ContrastEstimate(value, float(lower), float(upper), float(p), value)


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
