"""Documents of GDA-PW: partners of judgments, Newton steps given the pairs of a query, and priors.

The judgments of a query are in groups whose members may be paired; their positions are numbered within the query.

Arrays of a shard's documents come from its local state: `mode`, `relevance`, `precision` (of prior and expert grades)
and `information` (of the judgments), (n_items,) each; `query_items` has the first item of each query, and the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Arrays, Codes, Floats, Grades, Integers
from crowdrank.consensus.feature_prior import prior_moments
from crowdrank.consensus.gda_pairwise_likelihood import (
    CURVE,
    EXPLAINED,
    FACTOR,
    PARTNER,
    RESIDUAL,
    SLOPE,
    VARIANCE,
    WIDTH_CURVE,
    WIDTH_SLOPE,
    Block,
    Parameters,
    Query,
    empty_block,
    judgment_values,
    pair_terms,
)
from crowdrank.engine.shards import Shard

ALL_PAIRS_FACTOR = 10
"""Maximum size of a group of which all pairs are used, as a multiple of `partners`; larger ones are sampled."""
BLOCK_SIZE = 64
"""Number of judgments whose partners are drawn together."""
GOLDEN_RATIO_FRACTION = 0.6180339887498949
"""Fractional part of the golden ratio; the fractional parts of its multiples are evenly spread over [0, 1)."""


@njit(cache=True, nogil=True)
def hash_uniform(seed: int, query: int, number: int) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the arguments (splitmix64)."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(query)
    mixed = mixed * np.uint64(0xD1342543DE82EF95) + np.uint64(number)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def draw_from_parts(
    doc: Codes, start: int, n: int, partners: int, seed: int, query: int, first: Integers, partner: Codes, n_pairs: int
) -> int:
    """Write the partners of a group of `n` judgments; return the number of pairs written so far.

    The group is divided into `partners` equal parts, and each judgment gets one partner from each part.

    The judgments of a group are sorted by document. Partners are drawn in loops that the compiler can vectorize.
    """
    offset, drawn, length = np.empty(BLOCK_SIZE), np.empty((partners, BLOCK_SIZE), np.int32), n / partners
    for begin in range(start, start + n, BLOCK_SIZE):
        size = min(BLOCK_SIZE, start + n - begin)
        for m in range(size):
            offset[m] = hash_uniform(seed, query, begin + m)
        for k in range(partners):
            for m in range(size):
                drawn[k, m] = start + min(int((k + offset[m]) * length), n - 1)
            for m in range(size):
                offset[m] += (
                    GOLDEN_RATIO_FRACTION if offset[m] < 1.0 - GOLDEN_RATIO_FRACTION else GOLDEN_RATIO_FRACTION - 1.0
                )
        for m in range(size):
            first[begin + m] = n_pairs
            for k in range(partners):
                partner[n_pairs] = drawn[k, m]
                n_pairs += doc[drawn[k, m]] != doc[begin + m]
    return n_pairs


@njit(cache=True, nogil=True)
def draw_partners(doc: Codes, bounds: Integers, partners: int, seed: int, query: int) -> tuple[Integers, Codes]:
    """Return the partners of every judgment of a query: judgments of its group on other documents.

    Args:
        doc: document of each position, (n,).
        bounds: start of each group, and the end.
        partners: number of partners of a judgment in a large group.
        seed: seed of the draws.
        query: number of the query.

    Returns:
        Index of the first partner of each position, and the end, (n + 1,); positions of the partners, (n_pairs,).

    """
    # Loops, because the NumPy functions for these sums take seconds to compile.
    n_pairs = 0
    for group in range(len(bounds) - 1):
        n = bounds[group + 1] - bounds[group]
        n_pairs += n * (n if n <= ALL_PAIRS_FACTOR * partners else partners)
    partner = np.empty(n_pairs, np.int32)
    first = np.empty(len(doc) + 1, np.int64)
    end = np.int64(0)  # for the constant 0, numba would compile draw_from_parts once more
    for group in range(len(bounds) - 1):
        start, n = bounds[group] - bounds[0], bounds[group + 1] - bounds[group]
        if n > ALL_PAIRS_FACTOR * partners:
            end = draw_from_parts(doc, start, n, partners, seed, query, first, partner, end)
            continue
        for i in range(start, start + n):
            first[i] = end
            for j in range(start, start + n):
                if doc[j] != doc[i]:
                    partner[end] = j
                    end += 1
    first[len(doc)] = end
    return first, partner


MAX_STEP = 1.0
"""Maximum change of relevance and log difficulty in one Newton step."""
SHORT_STEP = 1e-6
"""Maximum step of a document at which Newton steps end; they also end if the next step would be shorter."""


class DocumentEstimates(NamedTuple):
    """Estimates of documents, (n_items,) each."""

    mode: Floats  # relevance at the mode of the posterior of all pairs
    log_eps: Floats  # log difficulty
    variance: Floats  # variance of relevance at the mode
    relevance: Floats  # relevance given a document's own judgments
    information: Floats  # expected curvature of the log likelihood at `relevance`
    precision: Floats  # curvature of prior and expert grades at `relevance` (or before at `mode`)


@njit(cache=True, nogil=True)
def is_last_step(longest: float, before: float) -> bool:
    """Return whether Newton steps end, given the longest step of a document in this and the previous iteration (or 0).

    The next step is about longest**2 / before if steps shrink at the same rate, and shorter if the rate falls, as it
    does in Newton's method. It must be ten times shorter than SHORT_STEP.
    """
    return longest < SHORT_STEP or longest * longest < 0.1 * SHORT_STEP * before


@njit(cache=True, nogil=True)
def add_expert_terms(
    gold: Grades, relevance: Floats, expert: Floats, unit: float, slope: Floats, curve: Floats
) -> None:
    """Add slope and curvature by relevance of the log likelihood of expert grades to `slope` and `curve`.

    The log likelihood of expert grade g at relevance r is log softmax_g(expert[0, g] r / unit + expert[1, g]).
    """
    # gold, relevance, slope, curve (n_items,); expert (2, n_expert_grades)
    for d in range(len(gold)):
        if gold[d] < 0:
            continue
        highest, total, mean, square = -math.inf, 0.0, 0.0, 0.0
        for g in range(expert.shape[1]):
            highest = max(highest, expert[0, g] / unit * relevance[d] + expert[1, g])
        for g in range(expert.shape[1]):
            share = math.exp(expert[0, g] / unit * relevance[d] + expert[1, g] - highest)
            total += share
            mean += share * expert[0, g] / unit
        mean /= total
        for g in range(expert.shape[1]):
            share = math.exp(expert[0, g] / unit * relevance[d] + expert[1, g] - highest) / total
            square += share * (expert[0, g] / unit - mean) ** 2
        slope[d] += expert[0, gold[d]] / unit - mean
        curve[d] += square


@njit(cache=True, nogil=True)
def newton_step(
    slope: Floats, curve: Floats, gold: Grades, expert: Floats, unit: float, relevance: Floats, precision: Floats
) -> tuple[float, float]:
    """Update the relevance of each document by one Newton step.

    Args:
        slope: derivative of the log likelihood of the judgments in the relevance of each document, (n_items,).
        curve: negative second derivative, (n_items,).
        gold: expert grades, or -1, (n_items,).
        expert: slope and intercept of the score of each expert grade.
        unit: prior standard deviation of relevance.
        relevance: (n_items,), changed.
        precision: curvature of prior and expert grades, (n_items,), written.

    Returns:
        The longest step in units, and the common step of all documents that prior and expert grades would take next.

    """
    own_slope, longest, left, total = np.empty(len(relevance)), 0.0, 0.0, 0.0
    for d in range(len(relevance)):
        own_slope[d], precision[d] = -relevance[d] / unit**2, 1.0 / unit**2
    add_expert_terms(gold, relevance, expert, unit, own_slope, precision)
    for d in range(len(relevance)):
        step = (slope[d] + own_slope[d]) / (curve[d] + precision[d])
        step = min(max(step, -MAX_STEP * unit), MAX_STEP * unit)
        relevance[d] += step
        left += own_slope[d] - precision[d] * step
        total += precision[d]
        longest = max(longest, abs(step) / unit)
    return longest, left / total


@njit(cache=True, nogil=True)
def write_residuals(query: Query, parameters: Parameters, documents: DocumentEstimates, by_judgment: Floats) -> None:
    """Write the columns RESIDUAL, FACTOR and VARIANCE of each judgment into `by_judgment`."""
    for i in range(len(query.doc)):
        a, g, d = query.assessor[i], query.grade[i], query.doc[i]
        by_judgment[i, RESIDUAL] = documents.mode[d] - parameters.mean[a, g]
        by_judgment[i, FACTOR] = parameters.factor[a, g] * math.exp(-0.5 * documents.log_eps[d])
        by_judgment[i, VARIANCE] = documents.variance[d] if parameters.uncertain else 0.0


@njit(cache=True, nogil=True)
def update_modes(query: Query, parameters: Parameters, documents: DocumentEstimates, sums: Floats) -> float:
    """Take a Newton step of relevance (and log difficulty) towards the mode of the posterior of all pairs (eq. 8).

    Only the diagonal of the curvature is used, enlarged because both documents of a pair move. Pairs depend on
    differences only: prior and expert grades determine the level of the query.

    Returns:
        The longest step of a document.

    """
    mode, log_eps, eps_precision = documents.mode, documents.log_eps, parameters.log_eps_precision
    by_document, precision = np.zeros((4, len(mode))), documents.precision
    for i in range(len(query.doc)):
        d, joint = query.doc[i], 1.0 + 1.0 / max(query.first[i + 1] - query.first[i], 1)
        by_document[SLOPE, d] -= sums[EXPLAINED, i, SLOPE] + sums[PARTNER, i, SLOPE]
        by_document[CURVE, d] += joint * (sums[EXPLAINED, i, CURVE] + sums[PARTNER, i, CURVE])
        by_document[WIDTH_SLOPE, d] += sums[EXPLAINED, i, WIDTH_SLOPE] + sums[PARTNER, i, WIDTH_SLOPE]
        by_document[WIDTH_CURVE, d] += 2.0 * (sums[EXPLAINED, i, WIDTH_CURVE] + sums[PARTNER, i, WIDTH_CURVE])
    slope, curve = by_document[SLOPE], by_document[CURVE]
    longest, level = newton_step(slope, curve, query.gold, parameters.expert, 1.0, mode, precision)
    for d in range(len(mode)):
        mode[d] += level
        documents.variance[d] = 1.0 / (precision[d] + curve[d])
    if eps_precision > 0.0:
        for d in range(len(mode)):
            step = by_document[WIDTH_SLOPE, d] - eps_precision * log_eps[d]
            step = min(max(step / (eps_precision + by_document[WIDTH_CURVE, d]), -MAX_STEP), MAX_STEP)
            log_eps[d] += step
            longest = max(longest, abs(step))
    return float(longest)


@njit(cache=True, nogil=True)
def update_relevance(
    query: Query, parameters: Parameters, documents: DocumentEstimates, n_steps: int, by_judgment: Floats, block: Block,
    sums: Floats, no_slope: Floats, no_curve: Floats,
) -> None:  # fmt: skip
    """Update the relevance of each document of a query by at most `n_steps` Newton steps.

    A pair counts for the document of the judgment that it explains, and not for that of the partner. So every judgment
    counts once, and documents are independent of each other.
    """
    relevance, information = documents.relevance, documents.information
    slope, level, before = np.empty(len(relevance)), 0.0, 0.0
    never = n_steps < 0  # for the constant False, numba would compile pair_terms once more
    for _ in range(n_steps):
        pair_terms(
            query, parameters, by_judgment, relevance, documents.log_eps, never, never, block, sums, no_slope, no_curve
        )
        for d in range(len(relevance)):
            slope[d] = information[d] = 0.0
        for i in range(len(query.doc)):
            slope[query.doc[i]] -= sums[EXPLAINED, i, SLOPE]
            information[query.doc[i]] += sums[EXPLAINED, i, CURVE]
        longest, level = newton_step(
            slope, information, query.gold, parameters.expert, parameters.unit, relevance, documents.precision
        )
        if is_last_step(longest, before):
            break
        before = longest
    for d in range(len(relevance)):
        relevance[d] += level  # the level of the query


@njit(cache=True, nogil=True)
def sweep(
    order: Integers, item: Integers, groups: Integers, query_groups: Integers, query_items: Integers,
    query_number: Integers, assessor: Codes, grade: Grades, weight: Floats, gold: Grades, parameters: Parameters,
    partners: int, seed: int, mode_steps: int, relevance_steps: int, documents: DocumentEstimates,
    slope: Floats, curve: Floats,
) -> float:  # fmt: skip
    """Update the documents of every query, then add slope and curvature by the assessors' parameters unless empty.

    Args:
        order: judgments by group, (n,).
        item: item of each judgment, (n,).
        groups: start of each group in `order`, and the end.
        query_groups: first group of each query, and the end.
        query_items: first item of each query, and the end.
        query_number: number of each query, for the draw of partners.
        assessor: assessor of each judgment, (n,).
        grade: grade of each judgment, (n,).
        weight: weight of each judgment, (n,).
        gold: expert grade of each item, or -1.
        parameters: parameters that all queries share.
        partners: number of partners of a judgment in a large group.
        seed: seed of the partners.
        mode_steps: maximum number of Newton steps of the mode.
        relevance_steps: maximum number of Newton steps of relevance.
        documents: estimates of documents, changed.
        slope: slope by the parameters of assessors, (n_assessors, 3 n_grades), added to unless empty.
        curve: (n_assessors, 3 n_grades, 3 n_grades), lower triangle, added to.

    Returns:
        The log likelihood of all pairs, if slope is not empty.

    """
    value, no_slope, no_curve = 0.0, slope[:0], curve[:0]  # of the same types: pair_terms is compiled once
    block = empty_block(parameters.mean.shape[1])
    for q in range(len(query_items) - 1):
        start, stop = query_items[q], query_items[q + 1]
        bounds = groups[query_groups[q] : query_groups[q + 1] + 1]
        n = bounds[-1] - bounds[0]
        doc, of_assessor = np.empty(n, np.int32), np.empty(n, np.int32)
        of_grade, of_weight, all_pairs = np.empty(n, np.int8), np.empty(n), True
        for i in range(n):
            j = order[bounds[0] + i]
            doc[i], of_assessor[i], of_grade[i], of_weight[i] = item[j] - start, assessor[j], grade[j], weight[j]
        for g in range(len(bounds) - 1):
            all_pairs &= bounds[g + 1] - bounds[g] <= ALL_PAIRS_FACTOR * partners
        first, partner = draw_partners(doc, bounds, partners, seed, query_number[q])
        query = Query(doc, of_assessor, of_grade, gold[start:stop], first, partner, all_pairs)
        here = DocumentEstimates(
            documents.mode[start:stop], documents.log_eps[start:stop], documents.variance[start:stop],
            documents.relevance[start:stop], documents.information[start:stop], documents.precision[start:stop],
        )  # fmt: skip
        by_judgment, sums = judgment_values(query, of_weight), np.empty((2, len(doc), 5))
        with_slope, with_widths, with_partners = len(slope) > 0, parameters.log_eps_precision > 0.0, len(doc) > 0
        before = 0.0
        for _ in range(mode_steps):
            write_residuals(query, parameters, here, by_judgment)
            pair_terms(
                query, parameters, by_judgment, here.mode, here.log_eps, with_widths, with_partners, block, sums,
                no_slope, no_curve,
            )  # fmt: skip
            longest = update_modes(query, parameters, here, sums)
            if is_last_step(longest, before):
                break
            before = longest
        write_residuals(query, parameters, here, by_judgment)
        update_relevance(query, parameters, here, relevance_steps, by_judgment, block, sums, no_slope, no_curve)
        if with_slope:
            value += pair_terms(
                query, parameters, by_judgment, here.mode, here.log_eps, with_slope, with_partners, block, sums, slope,
                curve,
            )  # fmt: skip
    return value


MIN_PRECISION = 1e-3
"""Minimum precision of the normal likelihood of relevance given the labels of a document."""


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
    """Return the weighted mean of the values of each query, (n_queries,)."""
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
        """Return mean and variance of the posterior, given mean and precision of a normal likelihood."""
        variance = 1 / (precision + 1 / self.variance)
        return variance * (precision * mean + self.mean / self.variance), variance


def document_priors(shard: Shard, local: Arrays, theta: Arrays) -> DocumentPriors:
    """Return the normal prior of each document from its features, relative to the mean of the query."""
    mean, variance = prior_moments(centered_scores(shard, local), float(theta["feature_weight"][0]))
    return DocumentPriors(mean, variance * centering_factor(local))


def centering_factor(local: Arrays) -> Floats:
    """Return Var(x - mean of x in its query) / Var(x) of each document: 1 - 1/n for n documents, (n_items,)."""
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
