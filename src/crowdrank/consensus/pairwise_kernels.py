"""Newton steps of documents given the pairs of judgments of their query.

The judgments of a query are in groups whose members may be paired; their positions are numbered within the query.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Grades, Integers
from crowdrank.consensus.pair_likelihood import (
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
from crowdrank.consensus.partners import ALL_PAIRS, draw_partners

MAX_STEP = 1.0
"""Maximum change of relevance and log difficulty in one Newton step."""
SHORT_STEP = 1e-6
"""Newton steps end when no document moves further than this, or would do so in the next step."""


class Documents(NamedTuple):
    """Estimates of documents, (n_items,) each."""

    mode: Floats  # relevance at the mode of the posterior of all pairs
    log_eps: Floats  # log difficulty
    variance: Floats  # variance of relevance at the mode
    relevance: Floats  # relevance given a document's own judgments
    information: Floats  # expected curvature of the log likelihood at `relevance`
    precision: Floats  # curvature of prior and expert grades at `relevance`


@njit(cache=True, nogil=True)
def is_last_step(longest: float, before: float) -> bool:
    """Return whether Newton steps end, given the longest step of a document and the one before, or 0.

    The next step is about longest**2 / before if steps shrink at the same rate, and shorter if the rate falls, as it
    does in Newton's method. It must be ten times shorter than SHORT_STEP.
    """
    return longest < SHORT_STEP or longest * longest < 0.1 * SHORT_STEP * before


@njit(cache=True, nogil=True)
def add_expert_terms(
    gold: Grades, relevance: Floats, expert: Floats, unit: float, slope: Floats, curve: Floats
) -> None:
    """Add slope and curvature of the log likelihood of expert grades, log softmax_g(expert[0, g] r / unit + ...).

    The intercept is expert[1, g].
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
def write_residuals(query: Query, parameters: Parameters, documents: Documents, by_judgment: Floats) -> None:
    """Write residual, precision factor and variance of relevance of each judgment."""
    for i in range(len(query.doc)):
        a, g, d = query.assessor[i], query.grade[i], query.doc[i]
        by_judgment[i, RESIDUAL] = documents.mode[d] - parameters.mean[a, g]
        by_judgment[i, FACTOR] = parameters.factor[a, g] * math.exp(-0.5 * documents.log_eps[d])
        by_judgment[i, VARIANCE] = documents.variance[d]


@njit(cache=True, nogil=True)
def step_modes(query: Query, parameters: Parameters, documents: Documents, sums: Floats) -> float:
    """Take a Newton step of relevance (and log difficulty) towards the mode of the posterior of all pairs (eq. 8).

    Only the diagonal of the curvature is used, enlarged because both documents of a pair move. Pairs depend on
    differences only: prior and expert grades determine the level of the query.

    Returns:
        The longest step of a document.

    """
    mode, log_eps, eps_precision = documents.mode, documents.log_eps, parameters.log_eps_precision
    by_document, precision = np.zeros((4, len(mode))), np.empty(len(mode))
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
    query: Query, parameters: Parameters, documents: Documents, n_steps: int, by_judgment: Floats, block: Block,
    sums: Floats, no_slope: Floats, no_curve: Floats,
) -> None:  # fmt: skip
    """Take Newton steps of each document's relevance given its own judgments, explained by their partners.

    Partners keep their residuals, so that every judgment counts once, and documents are independent of each other.
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
    partners: int, seed: int, mode_steps: int, relevance_steps: int, documents: Documents, slope: Floats, curve: Floats,
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
            all_pairs &= bounds[g + 1] - bounds[g] <= ALL_PAIRS * partners
        first, partner = draw_partners(doc, bounds, partners, seed, query_number[q])
        query = Query(doc, of_assessor, of_grade, gold[start:stop], first, partner, all_pairs)
        here = Documents(
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
            longest = step_modes(query, parameters, here, sums)
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
