"""Predict the interval of a difference of two rankings for designs: whole queries, or documents, graded by experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import bdtr, ndtri, stdtr, stdtrit

from crowdrank._typing import Booleans, Floats
from crowdrank.errors import InputError
from crowdrank.estimation.by_document import (
    N_FOLDS,
    Sample,
    calibrate_gains,
    corrected_gains,
    document_gains,
    document_weights,
    error_effects,
    expected_gains,
    inclusion_probabilities,
)
from crowdrank.estimation.by_query import (
    MIN_INFORMATIVE_QUERIES,
    ROUNDING_TOLERANCE,
    ByQueryEstimator,
    sparse_bound,
)
from crowdrank.estimation.forecast import VarianceModel
from crowdrank.estimation.joined_runs import JoinedRuns
from crowdrank.estimation.prepared import MEASURES_BY_UNIT, PreparedEstimate
from crowdrank.evaluation.alignment import NO_GOLD_ROW
from crowdrank.evaluation.measures import Measure

DesignName = Literal["experts", "query", "document"]
EVEN_DRAW_SHARE = 0.2
"""Share of the draws that is spread evenly over all documents, the default of the policy `compare`."""
DRAW_SHARES = np.geomspace(0.005, 0.95, 16)
"""Shares of the documents at which the error of a draw is computed."""

QUANTILES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""Quantiles of the number of graded queries in which the rankings differ, over which widths are averaged."""


@dataclass(frozen=True)
class DesignModel:
    """Error of a difference of two rankings by the number of queries and of expert grades.

    Attributes:
        name: 'experts' (whole queries, no labels), 'query' (whole queries, and labels of all), or 'document' (drawn
            documents, and labels of all).
        documents_per_query: number of different first documents of both rankings.
        query_variance: variance of the difference of a query.
        shares: (n,) ascending shares of the documents that experts grade.
        grade_variances: (n,) variance of a query that the labels do not explain, at each share.
        share_different: share of the queries in which the rankings differ.
        share_shown: share of these queries whose values differ.
        largest: largest value of the measure.
        scale: standard deviation of the difference by whole queries, relative to that of this design. By document, nDCG
            divides by the ideal DCG of the labels, so that its values have another scale.

    """

    name: DesignName
    documents_per_query: float
    query_variance: float
    shares: Floats
    grade_variances: Floats
    share_different: float = 1.0
    share_shown: float = 1.0
    largest: float = 1.0
    scale: float = 1.0

    def scale_unexplained_variance(self, factor: float) -> DesignModel:
        """Return the model with other labels, which leave `factor` times as much variance unexplained."""
        if self.name == "experts":
            return self
        changed = np.minimum(self.grade_variances * factor, np.maximum(self.grade_variances, self.query_variance))
        return replace(self, grade_variances=changed)

    def error(self, n_queries: int, n_grades: float) -> float:
        """Return the standard error of the difference."""
        return self._model(n_queries, n_grades).error(n_queries, self._graded_share(n_queries, n_grades))

    def half_width(self, n_queries: int, n_grades: float, level: float) -> float:
        """Return the mean half width of the interval, on the scale of whole queries."""
        widths = []
        for n_different, error, freedom in self._cases(n_queries, n_grades):
            width = float(stdtrit(freedom, (1 + level) / 2)) * error
            bound, probability = self._bound(n_different, level)
            widths.append(width + probability * max(bound - width, 0.0))
        return self.scale * float(np.mean(widths))

    def power(self, n_queries: int, n_grades: float, level: float, difference: float) -> float:
        """Return the probability that an interval does not contain 0, given the true difference."""
        powers = []
        for n_different, error, freedom in self._cases(n_queries, n_grades):
            quantile, shift = float(stdtrit(freedom, (1 + level) / 2)), abs(difference) / (self.scale * error)
            found = float(stdtr(freedom, shift - quantile) + stdtr(freedom, -shift - quantile))
            powers.append(found * (1 - self._bound(n_different, level)[1]))
        return float(np.mean(powers))

    def _model(self, n_queries: int, n_grades: float) -> VarianceModel:
        share = self._graded_share(n_queries, n_grades)
        return VarianceModel(self.query_variance, self._interpolate(self.grade_variances, share))

    def _cases(self, n_queries: int, n_grades: float) -> list[tuple[float, float, float]]:
        """Return equally probable cases: number of graded queries in which the rankings differ, error, freedom."""
        share, model = self._graded_share(n_queries, n_grades), self._model(n_queries, n_grades)
        if self.name == "document":
            n_different = n_queries * self.share_different
            return [(n_different, model.error(n_queries, share), max(min(n_queries, n_grades) - 1.0, 1.0))]
        mean = share * n_queries * self.share_different
        counts = np.array([mean])
        if self.share_different < 1 and share < 1:
            deviations = ndtri(QUANTILES) * np.sqrt(mean * (1 - self.share_different) * (1 - share))
            counts = np.clip(mean + deviations, 1.0, share * n_queries)
        cases = []
        for count in counts.tolist():
            error = VarianceModel(model.query_variance, model.grade_variance * mean / count).error(n_queries, share)
            cases.append((count, error, max(count - 1.0, 1.0)))
        return cases

    def _graded_share(self, n_queries: int, n_grades: float) -> float:
        return min(n_grades / (n_queries * self.documents_per_query), 1.0)

    def _interpolate(self, values: Floats, share: float) -> float:
        return float(np.interp(np.log(share), np.log(self.shares), values))

    def _bound(self, n_different: float, level: float) -> tuple[float, float]:
        """Return the difference that rare queries can hide, and the probability that too few queries show one."""
        n = round(n_different)
        bound = sparse_bound(n, self.largest, self.share_different, level)
        n_enough = min(MIN_INFORMATIVE_QUERIES, max(n, 2))
        return bound, float(bdtr(n_enough - 1, n, self.share_shown)) if n >= n_enough else 1.0


def designs_of_pilot(prepared: PreparedEstimate, contrast: Floats) -> list[DesignModel]:
    """Return the designs whose error a pilot predicts: all if experts graded queries, else by document."""
    check_runs_differ(float((~prepared.joined.equal_rankings(prepared.measure)).mean()))
    by_query = [] if prepared.unit == "document" else _query_designs(prepared, contrast)
    if prepared.measure.name not in MEASURES_BY_UNIT["document"]:
        return by_query
    document = _document_design(prepared, contrast)
    if by_query and document.query_variance > 0:
        scale = float(np.sqrt(by_query[0].query_variance / document.query_variance))
        document = replace(document, scale=scale)
    return [*by_query, document]


def check_runs_differ(share: float) -> None:
    """Raise InputError if the share of the queries in which the rankings differ is 0."""
    if not share:
        problem = "both have the same first documents in every query, so that there is nothing to plan"
        raise InputError(problem, source="the runs", kind="no-difference", fix="give two rankings that differ")


def _query_designs(prepared: PreparedEstimate, contrast: Floats) -> list[DesignModel]:
    estimator = prepared.estimator
    assert isinstance(estimator, ByQueryEstimator)
    may_differ = estimator.is_expert & ~estimator.is_equal
    if may_differ.sum() < 2 or not (estimator.experts @ contrast)[may_differ].any():
        problem = "experts saw a difference in too few queries"
        more = "let experts grade more queries"
        raise InputError(problem, source="the expert grades", kind="pilot-too-small", fix=more)
    truth, rest = estimator.residuals(contrast)
    share = float((~estimator.is_equal).mean())
    labels = estimator.labels[~estimator.is_equal]
    query = DesignModel(
        name="query",
        documents_per_query=_documents_per_query(prepared),
        query_variance=_variance(truth, share),
        shares=np.ones(1),
        grade_variances=np.array([share * float(rest.var(ddof=1))]),
        share_different=share,
        share_shown=float((np.abs(truth) > ROUNDING_TOLERANCE).mean()),
        largest=float(np.abs(np.concatenate([labels, estimator.experts])).max()),
    )
    variance = np.array([query.query_variance])
    return [replace(query, name="experts", grade_variances=variance), query]


def _document_design(prepared: PreparedEstimate, contrast: Floats) -> DesignModel:
    joined, measure = prepared.joined, prepared.measure
    assert joined.sample is not None
    sample, n_queries, n_all = joined.sample, len(joined.queries), joined.first.ranking.n_queries
    weight, is_first = _document_weights(joined, measure, contrast)
    may_differ = ~joined.equal_rankings(measure)
    if prepared.unit == "query":
        share = float(joined.is_expert_query[joined.queries].mean())
        sample = replace(sample, probability=np.full(len(sample), share), draw=np.ones(len(sample)))
    truth = document_gains(sample.grade, measure)
    predicted = expected_gains(joined.first, measure)
    calibrated, _ = calibrate_gains(predicted, np.append(joined.query_of_row % N_FOLDS, 0), sample, truth)
    gains = np.where(joined.is_labeled, calibrated[:-1], predicted[:-1])
    residual = weight[sample.row] * (truth - gains[sample.row])
    if prepared.unit == "query":
        gains[sample.row] = truth
        may_differ &= joined.is_expert_query[joined.queries]
    totals = np.bincount(joined.query_of_row, weight * gains, n_all).astype(np.float64)
    values, share = totals[joined.queries][may_differ], float((~joined.equal_rankings(measure)).mean())
    if prepared.unit == "query":
        variance = _variance(values, share)
    else:
        variance = n_queries * prepared.estimator.estimate(contrast, 0.95).query_error ** 2
    effects = error_effects(list(joined.alignments.values()), measure)
    return DesignModel(
        name="document",
        documents_per_query=_documents_per_query(prepared),
        query_variance=variance,
        shares=DRAW_SHARES,
        grade_variances=_draw_variances(effects, is_first, sample, residual, n_queries),
        share_different=share,
        largest=float(np.abs(values).max(initial=0.0)) if np.isinf(prepared.limit) else prepared.limit,
    )


def _document_weights(joined: JoinedRuns, measure: Measure, contrast: Floats) -> tuple[Floats, Booleans]:
    """Return the weight of each row in the difference, and whether it is among the first of any run, (n_rows,) each."""
    n_rows, weights = len(joined.is_labeled), []
    for aligned in joined.alignments.values():
        row, is_known = aligned.ranking.row, aligned.ranking.row != NO_GOLD_ROW
        weights.append(np.bincount(row[is_known], document_weights(aligned, measure)[is_known], n_rows))
    by_run = np.array(weights) * np.isin(joined.query_of_row, joined.queries)
    return contrast @ by_run, np.asarray((by_run > 0).any(axis=0))


def _draw_variances(effects: Floats, is_first: Booleans, sample: Sample, residual: Floats, n_queries: int) -> Floats:
    """Return the grade variance of a query at each of `DRAW_SHARES`, (n_shares,).

    Sums over all documents are estimated from the documents of the pilot by their probabilities.

    Args:
        effects: (n_rows,) effect of each document on the comparison.
        is_first: (n_rows,) whether the document may be drawn.
        sample: the grades of the pilot.
        residual: (n_sample,) weight times error of the labels.
        n_queries: number of queries.

    """
    variances = np.zeros(len(DRAW_SHARES))
    zeros, probability = np.zeros(len(effects)), np.ones(len(effects))
    for index, share in enumerate(DRAW_SHARES):
        n_drawn = float(share * is_first.sum())
        probability[is_first] = inclusion_probabilities(effects[is_first], n_drawn, EVEN_DRAW_SHARE)
        own = probability[sample.row]
        squares = residual**2 * (1 - own) / own
        square = sum(part * gains.sum() for part, gains in corrected_gains(zeros, sample, squares)) / n_queries
        variances[index] = square / (1 / share - 1)
    return variances


def _variance(differences: Floats, share: float) -> float:
    """Return the variance over queries of which a share has these differences, and the others 0."""
    mean = float(differences.mean())
    return share * float(differences.var(ddof=1)) + share * (1 - share) * mean**2


def _documents_per_query(prepared: PreparedEstimate) -> float:
    return prepared.joined.n_first_documents(prepared.measure) / len(prepared.joined.queries)
