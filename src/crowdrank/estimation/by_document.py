"""Estimates from experts' grades of single documents drawn with known probabilities, and the draw.

The value of a query is a weighted sum of gains, sum_d w_d G_d, where w is the discount of the rank divided by the ideal
DCG of the labels. With the predicted gain G^ of every document and the expert gain G of those in the sample S,

    sum_d w_d G^_d + sum_{d in S} w_d (G_d - G^_d) / pi_d

is unbiased, however biased the labels are, because each document is in S with probability pi (Horvitz and Thompson).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.estimation.by_query import (
    ContrastEstimate,
    MeanWithError,
    is_difference,
    level_variance,
    sample_mean,
    widen_if_constant,
    widen_if_sparse,
)
from crowdrank.evaluation.alignment import NO_GOLD_ROW, Alignment
from crowdrank.evaluation.evaluate import RunScoring, cumulative_discounts, grade_gains, ideal_dcg
from crowdrank.evaluation.measures import Measure

LEVEL_SHARE = 0.2
"""Weight of the squared mean of the runs beside their squared differences, when documents are drawn."""
N_FOLDS = 5
"""Number of parts of the queries; the calibration of a part is fitted on the others."""
PRIOR_GRADES = 10
"""Number of expert grades that weigh as much in a calibration as the assumption that the labels are right."""
CLEAR_SHARE = 0.1
"""Differences below this share of the largest one do not count when an interval needs queries that show one."""


@dataclass(frozen=True)
class Sample:
    """Documents that experts graded.

    Attributes:
        row: (n,) row of each document in the gold of the alignment.
        grade: (n,) grades of the experts.
        probability: (n,) probability with which the document was drawn.
        draw: (n,) number of the draw; documents of earlier draws are not drawn again.

    """

    row: Integers
    grade: Floats
    probability: Floats
    draw: Floats

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class ByDocumentEstimator:
    """Estimates of the values of runs by query, (n_queries, n_runs) each.

    Attributes:
        corrected: from labels and experts.
        experts: from the experts alone.
        labels: from the labels alone.
        weight: slope of the expert gains on the gains of the labels.
        sampling: (n_sample, n_runs) standard deviation that the draw of each document adds to the sum over queries.
        is_equal: (n_queries,) whether all runs have the same first documents.

    """

    corrected: Floats
    experts: Floats
    labels: Floats
    weight: float
    sampling: Floats
    is_equal: Booleans

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""
        mean, alone = (self._mean(values @ contrast, contrast) for values in (self.corrected, self.experts))
        sampling = float(((self.sampling @ contrast) ** 2).sum()) / len(self.labels) ** 2
        mean = replace(mean, query_error=float(np.sqrt(max(mean.error**2 - sampling, 0.0))))
        estimate = mean.contrast(level, float((self.labels @ contrast).mean()), alone, self.weight)
        if not is_difference(contrast):
            return widen_if_constant(estimate, self.corrected @ contrast, self.largest_value, level)
        differs = ~self.is_equal
        shown = clear_differences((self.corrected @ contrast)[differs])
        return widen_if_sparse(estimate, shown, self.largest_value, differs, level)

    def _mean(self, values: Floats, contrast: Floats) -> MeanWithError:
        mean, most = sample_mean(values), max(len(self.sampling) - 1.0, 1.0)
        if is_difference(contrast):
            return replace(mean, freedom=min(mean.freedom, most))
        centered = values - mean.value
        variance, freedom = level_variance(mean.value, centered, centered, 1, self.largest_value)
        return replace(mean, error=float(np.sqrt(variance / len(values))), freedom=min(freedom, most))

    @cached_property
    def largest_value(self) -> float:
        """Largest known value of a query."""
        return float(max(np.abs(self.labels).max(), np.abs(self.corrected).max()))


def clear_differences(differences: Floats) -> Floats:
    """Return the differences of queries, with 0 for those far below the largest.

    Documents that nobody drew leave a small difference by their labels in nearly every query. It says nothing about how
    rare large differences are.

    >>> clear_differences(np.array([0.02, -0.5, 0.05])).tolist()
    [0.0, -0.5, 0.05]
    """
    sizes = np.abs(differences)
    return np.where(sizes >= CLEAR_SHARE * sizes.max(initial=0.0), differences, 0.0)


def document_weights(aligned: Alignment, measure: Measure) -> Floats:
    """Return the weight of the gain of each ranked document in the measure of its query, (n_documents,).

    Documents with equal scores share the mean of their discounts.
    """
    ranking = aligned.ranking
    position = np.arange(len(ranking.query)) - ranking.offsets[:-1][ranking.query]
    first = np.flatnonzero(ranking.new_group)
    sizes = np.diff(np.append(first, len(position)))
    cutoff = measure.cutoff or len(position)
    cumulative = np.arange(len(position) + 1) / cutoff if measure.name == "P" else cumulative_discounts(len(position))
    last = np.minimum(position[first] + sizes, cutoff)
    covered = cumulative[last] - cumulative[np.minimum(position[first], cutoff)]
    weight = np.repeat(covered / sizes, sizes)
    if measure.name != "nDCG":
        return weight
    gains, pool = expected_gains(aligned, measure), RunScoring(aligned, skip_unjudged=False).pool
    longest = int(np.diff(pool.offsets).max())
    ideal = ideal_dcg(gains[pool.row], pool.query, pool.offsets, cumulative_discounts(longest), measure.cutoff)
    # Labels that are nearly sure that nothing is relevant must not make the ideal DCG tiny.
    lowest = float(document_gains(np.array([1.0]), measure)[0])
    return np.asarray(weight / np.maximum(ideal, lowest)[ranking.query])


def expected_gains(aligned: Alignment, measure: Measure) -> Floats:
    """Return the expected gain of each labeled document and, at the end, of one without a label, (n_gold + 1,)."""
    return aligned.grades.expected(lambda grade: document_gains(grade, measure))


def document_gains(grades: Floats, measure: Measure) -> Floats:
    """Return the gain of each grade: 0 or 1 in P, that of DCG otherwise."""
    if measure.name == "P":
        return np.asarray(grades >= measure.rel, dtype=np.float64)
    return grade_gains(grades, measure.gains, str(measure))


def estimate_by_document(
    alignments: list[Alignment],
    queries: Integers,
    is_labeled: Booleans,
    sample: Sample,
    measure: Measure,
    rng: np.random.Generator,
    is_equal: Booleans | None = None,
    weights: Sequence[Floats] | None = None,
) -> ByDocumentEstimator:
    """Return the values of each run by query, from labels and a sample of expert grades.

    Args:
        alignments: the runs, joined with the same gold: the labels.
        queries: (n,) the queries to use.
        is_labeled: (n_gold,) whether each row has a label; the others count as grade 0 unless experts graded them.
        sample: the expert grades.
        measure: DCG, nDCG or P.
        rng: random numbers for the parts of the queries.
        is_equal: (n,) whether all runs have the same first documents; None: in no query.
        weights: the weights of the documents of each run, if they are known from another sample.

    """
    first = alignments[0]
    n_queries, predicted = first.ranking.n_queries, expected_gains(first, measure)
    query_of_row = np.zeros(len(predicted), np.int64)
    query_of_row[first.gold.row] = first.gold.query
    truth = document_gains(sample.grade, measure)
    fold = rng.permutation(n_queries) % N_FOLDS
    calibrated, slope = calibrate_gains(predicted, fold[query_of_row], sample, truth)
    calibrated = np.where(np.append(is_labeled, False), calibrated, predicted)
    shape = (n_queries, len(alignments))
    corrected, alone, labels = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    residual = (truth - calibrated[sample.row]) * np.sqrt(1 - sample.probability) / sample.probability
    numbers, draw = np.unique(sample.draw, return_inverse=True)
    residual = residual * (np.bincount(draw, minlength=len(numbers)) / max(len(sample), 1))[draw]
    sampling = np.zeros((len(sample), len(alignments)))
    weights = [document_weights(aligned, measure) for aligned in alignments] if weights is None else weights
    for run, (aligned, weight) in enumerate(zip(alignments, weights, strict=True)):
        ranking = aligned.ranking
        for prediction, values in ((calibrated, corrected), (np.zeros_like(predicted), alone)):
            for share, gains in corrected_gains(prediction, sample, truth):
                values[:, run] += share * np.bincount(ranking.query, weight * gains[ranking.row], n_queries)
        labels[:, run] = np.bincount(ranking.query, weight * predicted[ranking.row], n_queries)
        is_known = ranking.row != NO_GOLD_ROW
        sampling[:, run] = residual * np.bincount(ranking.row[is_known], weight[is_known], len(predicted))[sample.row]
    is_equal = np.zeros(len(queries), np.bool_) if is_equal is None else is_equal
    return ByDocumentEstimator(corrected[queries], alone[queries], labels[queries], slope, sampling, is_equal)


def corrected_gains(predicted: Floats, sample: Sample, expert_gains: Floats) -> Iterator[tuple[float, Floats]]:
    """Yield the share of each draw and its unbiased gains by row, given the documents of the draws before."""
    known = predicted.copy()
    for number in np.unique(sample.draw):
        drawn = sample.draw == number
        row, gain = sample.row[drawn], expert_gains[drawn]
        corrected = known.copy()
        corrected[row] += (gain - known[row]) / sample.probability[drawn]
        yield float(drawn.mean()), corrected
        known[row] = gain


def calibrate_gains(predicted: Floats, fold: Integers, sample: Sample, expert_gains: Floats) -> tuple[Floats, float]:
    """Return predicted gains on the curve of the expert gains, cross-fitted by query, and the mean slope.

    The curve a x + b x / (x + 1) is 0 where the labels expect no gain, so that a query without relevant documents is
    not moved by the others.

    Args:
        predicted: (n_gold + 1,) gains that the labels expect.
        fold: (n_gold + 1,) part of the query of each row.
        sample: the expert grades.
        expert_gains: (n,) gains of the experts.

    """
    curve, calibrated, slopes = np.column_stack([predicted, predicted / (predicted + 1)]), predicted.copy(), []
    for number in range(N_FOLDS):
        fitted: Booleans = fold[sample.row] != number
        fit = _fit_curve(curve[sample.row[fitted]], expert_gains[fitted])
        calibrated[fold == number] = np.maximum(curve[fold == number] @ fit, 0.0)
        slopes.append(float(fit.sum()))
    return calibrated, float(np.mean(slopes))


def _fit_curve(curve: Floats, truth: Floats) -> Floats:
    """Return the least-squares coefficients of a curve, (2,), shrunk towards those of the labels, (1, 0).

    The grades are not weighted by 1 / probability: the estimate is unbiased for any curve, and rare documents with a
    large weight would make the curve noisy.
    """
    labels = np.array([1.0, 0.0])
    scale = float((curve[:, 0] ** 2).mean()) if len(curve) else 0.0
    if not scale:
        return labels
    products = curve.T @ curve + PRIOR_GRADES * scale * np.eye(2)
    return np.asarray(labels + np.linalg.solve(products, curve.T @ (truth - curve @ labels)))


def error_effects(alignments: list[Alignment], measure: Measure) -> Floats:
    """Return how much an error in the grade of each row of the gold changes a comparison of runs, (n_gold,).

    It is |w| sqrt(E (G - G^)^2): the weight of the document in the difference of a run to the mean of the runs (root
    of the sum of squares over the runs; the weight in the mean of the runs counts `LEVEL_SHARE` as much, so that the
    estimate of a single run has an interval, too), times the standard deviation of its gain by the probabilities of its
    grades. Labels are often too sure: the mean variance of all documents counts as much as that of the document.

    Args:
        alignments: the runs, joined with the same gold: the labels.
        measure: DCG, nDCG or P.

    """
    n_rows = len(alignments[0].grades.grades)
    weights = []
    for aligned in alignments:
        ranking, weight = aligned.ranking, document_weights(aligned, measure)
        is_known = ranking.row != NO_GOLD_ROW
        weights.append(np.bincount(ranking.row[is_known], weight[is_known], n_rows))
    levels = np.mean(weights, axis=0)
    squares = LEVEL_SHARE * levels**2 + ((np.array(weights) - levels) ** 2).sum(axis=0)
    return np.asarray(np.sqrt(squares * gain_variances(alignments[0], measure)))


def gain_variances(aligned: Alignment, measure: Measure) -> Floats:
    """Return the variance of the gain of each row of the gold, plus the mean variance; 1 if all grades are certain."""
    mean = expected_gains(aligned, measure)[:-1]
    square = aligned.grades.expected(lambda grade: document_gains(grade, measure) ** 2)[:-1]
    variance = np.maximum(square - mean**2, 0.0)
    return variance + variance.mean() if variance.any() else np.ones(len(variance))


def inclusion_probabilities(sizes: Floats, n_drawn: float, floor: float) -> Floats:
    """Return probabilities with the sum `n_drawn` that are proportional to the sizes, at most 1, and above a floor.

    Args:
        sizes: (n,) sizes of at least 0.
        n_drawn: number of documents to draw.
        floor: share of the draws that is spread evenly over all documents.

    >>> inclusion_probabilities(np.array([1.0, 1.0, 6.0, 0.0]), 2, 0.2)
    array([0.42857143, 0.42857143, 1.        , 0.14285714])

    """
    n = len(sizes)
    if n_drawn >= n:
        return np.ones(n)
    share = np.full(n, 1 / n)
    if sizes.sum() > 0:
        share = floor / n + (1 - floor) * sizes / sizes.sum()
    probability = np.zeros(n)
    is_certain = np.zeros(n, np.bool_)
    while True:
        rest = n_drawn - is_certain.sum()
        probability[is_certain] = 1.0
        probability[~is_certain] = rest * share[~is_certain] / share[~is_certain].sum()
        above = (probability > 1) & ~is_certain
        if not above.any():
            return probability
        is_certain |= above


def draw_sample(probability: Floats, rng: np.random.Generator) -> Integers:
    """Draw documents with given probabilities of inclusion; return their indices, as many as the probabilities sum to.

    Systematic sampling of the documents in random order (Madow 1949).

    >>> draw_sample(np.array([1.0, 0.5, 0.5]), np.random.default_rng(0)).tolist()
    [0, 1]
    """
    order = rng.permutation(len(probability))
    bounds = np.append(0.0, np.cumsum(probability[order]))
    bounds[-1] = np.round(bounds[-1])  # without rounding errors, the number of documents is always the same
    return np.sort(order[np.diff(np.floor(bounds + rng.random())) > 0])
