"""Documents of GDA-PW: variances within queries, levels of queries, and priors from features.

Arrays of a shard's documents come from its local state: `mode`, `relevance`, `precision` (of prior and expert grades)
and `information` (of the judgments), (n_items,) each; `query_items` has the first item of each query, and the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.consensus.relevance_prior import prior_moments
from crowdrank.engine.shards import Shard

MIN_PRECISION = 1e-3
"""Minimum precision of what the labels of a document tell about its relevance."""


def residual_sums(shard: Shard, local: Arrays, params: Floats) -> Floats:
    """Return the sums of weights, residuals, squares of residuals within queries, and log precision factors, (4,)."""
    residual, weight, query = judgment_residuals(shard, local, params)
    off = residual - query_means(residual, weight, query)[query]
    factor = -0.5 * params[shard.assessor, 2 * shard.n_grades + shard.grade.astype(np.int64)]
    return np.array([weight.sum(), *((weight * values).sum() for values in (residual, off**2, factor))])


def residual_moments(sums: Floats) -> Floats:
    """Return the mean of residuals, their variance within queries, and the mean log precision factor, (3,)."""
    moments: Floats = sums[1:] / max(sums[0], 1e-300)
    return moments


def judgment_residuals(shard: Shard, local: Arrays, params: Floats) -> tuple[Floats, Floats, Integers]:
    """Return relevance minus the mean of the given grade, weight, and query of each judgment, (n,) each."""
    query = np.repeat(np.arange(len(local["query_items"]) - 1), np.diff(local["query_items"]))
    return local["mode"][local["item"]] - params[shard.assessor, shard.grade], local["weight"], query[local["item"]]


def query_means(values: Floats, weight: Floats, query: Integers) -> Floats:
    """Return the weighted mean of the values of each query."""
    means: Floats = np.bincount(query, weight * values) / np.maximum(np.bincount(query, weight), 1e-300)
    return means


def query_levels(shard: Shard, local: Arrays, theta: Arrays) -> tuple[Floats, Floats]:
    """Estimate the level of each item's query from its grades: residuals are lower in queries with high grades.

    Returns:
        The level and its variance, (n_items,) each.

    """
    residual, weight, query = judgment_residuals(shard, local, theta["params"])
    mean, variance, _ = theta["residuals"]
    n = np.bincount(query, weight)
    level = (mean - query_means(residual, weight, query)) * n / (n + 1)
    items = np.diff(local["query_items"])
    return np.repeat(level, items), np.repeat(variance / (n + 1), items)


def level_variance(local: Arrays) -> Floats:
    """Return the variance of the mean of each item's query, which only the prior and expert grades determine.

    The mean is weighted by their precisions: it is then independent of the differences between documents.
    """
    first, sizes = local["query_items"][:-1], np.diff(local["query_items"])
    variance: Floats = np.repeat(1 / np.add.reduceat(local["precision"], first), sizes)
    return variance


def posterior_variance(local: Arrays) -> Floats:
    """Return the variance of relevance relative to the mean of the query (see `level_variance`).

    The curvature by relevance is taken as that of equally connected documents, a diagonal plus a matrix of rank one.
    The only document of a query has the variance of prior and expert grades.
    """
    information, precision = local["information"], local["precision"]
    first, sizes = local["query_items"][:-1], np.diff(local["query_items"])
    own = 1 / (precision + information)
    connected = np.add.reduceat(information * precision * own, first)
    with_level = own + (information * own) ** 2 / np.repeat(np.maximum(connected, 1e-300), sizes)
    variance: Floats = np.where(np.repeat(sizes, sizes) > 1, with_level - level_variance(local), own)
    return variance


@dataclass(frozen=True, eq=False)
class DocumentPriors:
    """Normal priors of documents relative to the mean of their query, (n_items,) each."""

    mean: Floats
    variance: Floats

    def combined(self, mean: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the posterior, given the likelihood of the labels."""
        variance = 1 / (precision + 1 / self.variance)
        return variance * (precision * mean + self.mean / self.variance), variance


def document_priors(shard: Shard, local: Arrays, theta: Arrays) -> DocumentPriors:
    """Return the priors from features."""
    mean, variance = prior_moments(centered_scores(shard, local), float(theta["feature_weight"][0]))
    return DocumentPriors(mean, variance * centering_factor(local))


def centering_factor(local: Arrays) -> Floats:
    """Return the variance of the difference from the mean of the query, relative to that of a document, (n_items,)."""
    sizes = np.diff(local["query_items"])
    return np.repeat(np.where(sizes > 1, 1 - 1 / sizes, 1.0), sizes)


def centered_scores(shard: Shard, local: Arrays) -> Floats:
    """Return the predictions from features minus the mean of the query; NaN for documents without features."""
    assert shard.score is not None
    known, first = ~np.isnan(shard.score), local["query_items"][:-1]
    total, n = (np.add.reduceat(values, first) for values in (np.nan_to_num(shard.score), known.astype(np.float64)))
    centered: Floats = shard.score - np.repeat(total / np.maximum(n, 1), np.diff(local["query_items"]))
    return centered


def label_likelihood(local: Arrays, theta: Arrays) -> tuple[Floats, Floats]:
    """Return mean and precision of the normal likelihood of relevance given the labels, (n_items,) each.

    It is the posterior without features, divided by its prior.
    """
    unit = theta["unit"][0]
    variance = posterior_variance(local) / unit**2
    precision = np.maximum(1 / variance - 1 / centering_factor(local), MIN_PRECISION)
    return local["relevance"] / unit / variance / precision, precision


def score_products(shard: Shard, local: Arrays) -> Floats:
    """Return sums over documents with features: relevance times score, relevance squared, and score squared, (3,)."""
    score = centered_scores(shard, local)
    used = ~np.isnan(score)
    score, relevance = score[used], local["relevance"][used]
    return np.array([relevance @ score, relevance @ relevance, score @ score])
