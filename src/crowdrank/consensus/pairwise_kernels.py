"""Passes over pairs of judgments within a query. Each has a NumPy reference in tests/consensus/.

The judgments of a query are in groups whose members may be paired; their positions are numbered within the query. A
pair depends on the partner only by its residual (relevance minus the mean of its grade), its precision factor and its
weight. Pairs are computed in blocks: first the terms of all pairs of a block, in loops that the compiler can vectorize,
then their sums by judgment and by assessor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Grades, Integers

ALL_PAIRS = 10
"""A group of up to this many times `partners` judgments has all its pairs."""
STRIDE = 4
"""If partners are drawn, every fourth pair contributes to the curvature by assessors' parameters, to guide steps."""
MAX_STEP = 1.0
"""Maximum change of relevance and log difficulty in one Newton step."""
SHORT_STEP = 1e-6
"""Newton steps end when no document moves further than this."""
GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are evenly spread over [0, 1)."""
SLOTS = 116
"""Number of judgments computed together, in loops that the compiler can vectorize."""
RESIDUAL, FACTOR, WEIGHT, VARIANCE, SHARE = range(5)
"""Columns of the values of a judgment: relevance minus the mean of its grade, precision factor, weight, and variance of
relevance."""
SLOPE, CURVE, WIDTH_SLOPE, WIDTH_CURVE, MIXED_CURVE = range(5)
"""Derivatives of the log likelihood: slope and expected curvature by relevance, the same by log width, and by both."""
EXPLAINED, PARTNER = range(2)
"""Roles of a judgment in its pairs."""
MAX_EXPONENT = 128.0
LOG2_E, LN2 = 1.0 / math.log(2.0), math.log(2.0)
ROUNDER = 1.5 * 2.0**52
"""Added to a number, it leaves the integer part in the lowest bits."""
TAYLOR = tuple(1.0 / math.factorial(power) for power in range(12))
MIN_PRODUCT = 1e-150
"""Products of probabilities below this could underflow: exp(-MAX_EXPONENT) is 1e-56."""


class Parameters(NamedTuple):
    """Parameters that all queries share."""

    mean: Floats  # (n_assessors, n_grades)
    offset: Floats  # (n_assessors, n_grades) logarithm of the height of a grade's Gaussian
    factor: Floats  # (n_assessors, n_grades) the precision of a pair is the product of the factors of both judgments
    expert: Floats  # (2, n_expert_grades) slope and intercept of the score of each expert grade
    unit: float  # prior standard deviation of `relevance`
    log_eps_precision: float  # prior precision of log difficulty; 0: difficulty is fixed


class Documents(NamedTuple):
    """Estimates of documents, (n_items,) each."""

    mode: Floats  # relevance at the mode of the posterior of all pairs
    log_eps: Floats  # log difficulty
    variance: Floats  # variance of relevance at the mode
    relevance: Floats  # relevance given a document's own judgments
    information: Floats  # expected curvature of the log likelihood at `relevance`
    precision: Floats  # curvature of prior and expert grades at `relevance`


class Query(NamedTuple):
    """Judgments of one query, and for each judgment the judgments that it is compared with (its partners)."""

    doc: Codes  # (n,)
    assessor: Codes  # (n,)
    grade: Grades  # (n,)
    gold: Grades  # (n_items,) expert grades, or -1
    first: Integers  # (n + 1,) index of the first partner of each judgment, and the end
    partner: Codes  # (n_pairs,)
    all_pairs: bool  # whether all groups have all their pairs


class Block(NamedTuple):
    """Up to SLOTS judgments, one pair of each, and sums over pairs, (..., SLOTS) each."""

    own: Floats  # (3 n_grades,) relevance minus mean, precision factor and offset of each grade of the assessor
    is_grade: Floats  # (n_grades,) 1 for the grade of the judgment, else 0
    partner: Integers  # position of the partner
    values: Floats  # (3,) residual, precision factor and weight of the partner
    share: Floats  # (n_grades,) P(grade)
    derivatives: Floats  # (3 n_grades,) of the exponents by mean, log weight and log width of each grade
    mean: Floats  # (2,) expected derivatives by mean and log width
    terms: Floats  # (5,) derivatives of the log likelihood by mean and log width
    sums: Floats  # (5,) sums of `terms`
    slope: Floats  # (3 n_grades,) slope of the log likelihood by the parameters of the assessor
    curve: Floats  # (3 n_grades, 3 n_grades) expected curvature by these, lower triangle
    product: Floats  # (2,) product of the probabilities of grades in pairs of equal weight, and this weight


@njit(cache=True, nogil=True)
def empty_block(n_grades: int) -> Block:
    """Allocate a block; the derivatives by log weights are 1."""
    n = 3 * n_grades
    return Block(
        np.empty((n, SLOTS)), np.empty((n_grades, SLOTS)), np.empty(SLOTS, np.int64), np.empty((3, SLOTS)),
        np.empty((n_grades, SLOTS)), np.ones((n, SLOTS)), np.empty((2, SLOTS)), np.empty((5, SLOTS)),
        np.empty((5, SLOTS)), np.empty((n, SLOTS)), np.empty((n, n, SLOTS)), np.ones((2, SLOTS)),
    )  # fmt: skip


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
    sizes = np.diff(bounds)
    partner = np.empty((sizes * np.where(sizes <= ALL_PAIRS * partners, sizes, partners)).sum(), np.int32)
    first, n_pairs = np.empty(len(doc) + 1, np.int64), 0
    for group in range(len(sizes)):
        start, n = bounds[group] - bounds[0], sizes[group]
        for i in range(start, start + n):
            first[i] = n_pairs
            if n <= ALL_PAIRS * partners:
                for j in range(start, start + n):
                    if doc[j] != doc[i]:
                        partner[n_pairs] = j
                        n_pairs += 1
                continue
            # One partner from each of `partners` equal parts; judgments are sorted by document.
            offset, length = hash_uniform(seed, query, i), n / partners
            for k in range(partners):
                j = start + min(int((k + offset) * length), n - 1)
                partner[n_pairs] = j
                n_pairs += doc[j] != doc[i]
                offset = offset + GOLDEN if offset < 1.0 - GOLDEN else offset + (GOLDEN - 1.0)
    first[len(doc)] = n_pairs
    return first, partner


@njit(cache=True, nogil=True)
def exponential(value: float) -> float:
    """Return the exponential to 1e-13, in a form that the compiler vectorizes; exponents are at most MAX_EXPONENT."""
    value = min(max(value, -MAX_EXPONENT), MAX_EXPONENT)
    shifted = value * LOG2_E + ROUNDER
    part = value - (shifted - ROUNDER) * LN2
    square, even, odd = part * part, TAYLOR[10], TAYLOR[11]
    for term in range(8, -1, -2):  # two short chains of dependent operations instead of a long one
        even, odd = even * square + TAYLOR[term], odd * square + TAYLOR[term + 1]
    exponent = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return (even + odd * part) * np.int64(exponent).view(np.float64)


@njit(cache=True, nogil=True)
def load_judgments(
    query: Query, parameters: Parameters, start: int, n: int, relevance: Floats, log_eps: Floats, block: Block
) -> int:
    """Write the parameters of `n` judgments into a block; return the largest number of partners."""
    n_grades, most = len(block.share), 0
    for m in range(n):
        d, a = query.doc[start + m], query.assessor[start + m]
        easier = math.exp(-0.5 * log_eps[d])
        for h in range(n_grades):
            block.own[h, m] = relevance[d] - parameters.mean[a, h]
            block.own[n_grades + h, m] = parameters.factor[a, h] * easier
            block.own[2 * n_grades + h, m] = parameters.offset[a, h]
            block.is_grade[h, m] = 1.0 if query.grade[start + m] == h else 0.0
        most = max(most, query.first[start + m + 1] - query.first[start + m])
    block.sums[:] = 0.0
    return most


@njit(cache=True, nogil=True)
def select_partners(
    query: Query, start: int, n: int, number: int, uncertain: bool, by_judgment: Floats, block: Block
) -> None:
    """Write position, residual, precision factor and weight of a partner of each of `n` judgments.

    Judgments with fewer partners have weight 0. If relevance is `uncertain`, the difference is taken one standard
    deviation above and below its mean: both if groups have all their pairs, in turns if partners are drawn. This gives
    expectations to the second order.
    """
    partner, values, both = block.partner, block.values, uncertain and query.all_pairs
    for m in range(n):
        pair = query.first[start + m] + (number // 2 if both else number)
        if pair >= query.first[start + m + 1]:
            partner[m] = start + m
            values[RESIDUAL, m] = values[FACTOR, m] = values[WEIGHT, m] = 0.0
            continue
        j = query.partner[pair]
        partner[m] = j
        values[RESIDUAL, m] = by_judgment[j, RESIDUAL]
        values[FACTOR, m] = by_judgment[j, FACTOR]
        values[WEIGHT, m] = by_judgment[start + m, SHARE] * by_judgment[j, WEIGHT] * (0.5 if both else 1.0)
        if uncertain:
            sd = math.sqrt(by_judgment[j, VARIANCE] + by_judgment[start + m, VARIANCE])
            values[RESIDUAL, m] += sd if (number if both else pair) % 2 == 0 else -sd


@njit(cache=True, nogil=True)
def explain(n: int, block: Block) -> None:
    """Write P(grade) of the pairs of `n` judgments (eq. 7), and the derivatives of the exponents."""
    own, values, share, derivatives, total = block.own, block.values, block.share, block.derivatives, block.mean[0]
    n_grades = len(share)
    for h in range(n_grades):
        for m in range(n):
            difference = own[h, m] - values[RESIDUAL, m]
            by_mean = own[n_grades + h, m] * values[FACTOR, m] * difference
            half = 0.5 * by_mean * difference
            share[h, m] = own[2 * n_grades + h, m] - half
            derivatives[h, m] = by_mean
            derivatives[2 * n_grades + h, m] = 0.5 * half - 0.25
    for m in range(n):
        total[m] = 1.0
    for h in range(1, n_grades):
        for m in range(n):
            share[h, m] = exponential(share[h, m] - share[0, m])
            total[m] += share[h, m]
    for m in range(n):
        share[0, m] = total[m] = 1.0 / total[m]
    for h in range(1, n_grades):
        for m in range(n):
            share[h, m] *= total[m]


@njit(cache=True, nogil=True)
def differentiate(n: int, slope: int, curve: int, row: int, block: Block) -> None:
    """Write and add up slope and expected curvature by a shift of the parameters of all grades from `row` on.

    The expected curvature is the covariance of the derivatives of the exponents under P(grade).
    """
    is_grade, share, derivatives, weight = block.is_grade, block.share, block.derivatives, block.values[WEIGHT]
    terms, sums, mean = block.terms, block.sums, block.mean[slope // 2]
    for m in range(n):
        terms[slope, m] = terms[curve, m] = mean[m] = 0.0
    for h in range(len(share)):
        for m in range(n):
            terms[slope, m] += is_grade[h, m] * derivatives[row + h, m]
            mean[m] += share[h, m] * derivatives[row + h, m]
            terms[curve, m] += share[h, m] * derivatives[row + h, m] * derivatives[row + h, m]
    for m in range(n):
        terms[slope, m] = weight[m] * (terms[slope, m] - mean[m])
        terms[curve, m] = weight[m] * (terms[curve, m] - mean[m] * mean[m])
        sums[slope, m] += terms[slope, m]
        sums[curve, m] += terms[curve, m]


@njit(cache=True, nogil=True)
def differentiate_jointly(n: int, block: Block) -> None:
    """Write the expected curvature by mean and log width."""
    share, derivatives, mixed, mean = block.share, block.derivatives, block.terms[MIXED_CURVE], block.mean
    for m in range(n):
        mixed[m] = -mean[0, m] * mean[1, m]
    for h in range(len(share)):
        for m in range(n):
            mixed[m] += share[h, m] * derivatives[h, m] * derivatives[2 * len(share) + h, m]
    for m in range(n):
        mixed[m] *= block.values[WEIGHT, m]


@njit(cache=True, nogil=True)
def add_assessor_terms(n: int, stride: int, block: Block) -> None:
    """Add slope and `stride` times the expected curvature by the parameters of the assessors of `n` judgments."""
    is_grade, share, derivatives, weight = block.is_grade, block.share, block.derivatives, block.values[WEIGHT]
    slope, curve, left, n_grades = block.slope, block.curve, block.mean[0], len(block.share)
    for kind in range(3):
        for h in range(n_grades):
            row = kind * n_grades + h
            for m in range(n):
                slope[row, m] += weight[m] * (is_grade[h, m] - share[h, m]) * derivatives[row, m]
            if stride == 0:
                continue
            for m in range(n):
                left[m] = stride * weight[m] * share[h, m] * derivatives[row, m]
            for other in range(kind + 1):
                for f in range(n_grades):
                    column, same = other * n_grades + f, 1.0 if f == h else 0.0
                    for m in range(n):
                        curve[row, column, m] += left[m] * (same - share[f, m]) * derivatives[column, m]


@njit(cache=True, nogil=True)
def add_partner_sums(n: int, with_widths: bool, block: Block, sums: Floats) -> None:
    """Add the derivatives of the pairs of `n` judgments to those of their partners."""
    terms = block.terms
    for m in range(n):
        j = block.partner[m]
        sums[PARTNER, j, SLOPE] -= terms[SLOPE, m]  # the partner is on the other side of the difference
        sums[PARTNER, j, CURVE] += terms[CURVE, m]
        if with_widths:
            sums[PARTNER, j, WIDTH_SLOPE] += terms[WIDTH_SLOPE, m]
            sums[PARTNER, j, WIDTH_CURVE] += terms[WIDTH_CURVE, m]
            sums[PARTNER, j, MIXED_CURVE] -= terms[MIXED_CURVE, m]


@njit(cache=True, nogil=True)
def add_log_likelihood(query: Query, start: int, n: int, block: Block) -> float:
    """Multiply probabilities of pairs of equal weight; return the log likelihood of the finished products."""
    value, product, weight = 0.0, block.product, block.values[WEIGHT]
    for m in range(n):
        if weight[m] != product[1, m] or product[0, m] < MIN_PRODUCT:
            value += product[1, m] * math.log(product[0, m])
            product[0, m], product[1, m] = 1.0, weight[m]
        product[0, m] *= block.share[query.grade[start + m], m]
    return value


@njit(cache=True, nogil=True)
def add_block(query: Query, start: int, n: int, block: Block, sums: Floats, slope: Floats, curve: Floats) -> float:
    """Add the sums of a block to those of judgments and assessors; return the log likelihood of the last pairs."""
    value = 0.0
    for m in range(n):
        for term in range(len(block.sums)):
            sums[EXPLAINED, start + m, term] = block.sums[term, m]
        if len(slope) > 0:
            a = query.assessor[start + m]
            value += block.product[1, m] * math.log(block.product[0, m])
            for row in range(len(block.slope)):
                slope[a, row] += block.slope[row, m]
                for column in range(len(block.slope)):
                    curve[a, row, column] += block.curve[row, column, m]
    return value


@njit(cache=True, nogil=True)
def pair_terms(
    query: Query, parameters: Parameters, by_judgment: Floats, relevance: Floats, log_eps: Floats, with_widths: bool,
    sums: Floats, slope: Floats, curve: Floats,
) -> float:  # fmt: skip
    """Write the derivatives of the log likelihood of a query's pairs, each judgment in its weight (eq. 8).

    Args:
        query: judgments and their partners.
        parameters: parameters of assessors.
        by_judgment: values of each judgment, (n, 5).
        relevance: relevance of each document that explains its judgments, (n_items,).
        log_eps: log difficulty of each document, (n_items,).
        with_widths: compute derivatives by log width.
        sums: derivatives by the mean and log width of a judgment that is explained or a partner, (2, n, 5), written.
        slope: slope by the assessors' parameters, (n_assessors, 3 n_grades), added to unless empty. The relevance of
            documents is then taken as uncertain.
        curve: expected curvature by these, (n_assessors, 3 n_grades, 3 n_grades), lower triangle, added to.

    Returns:
        The log likelihood, if slope is not empty.

    """
    n_grades, by_assessor, value = parameters.mean.shape[1], len(slope) > 0, 0.0
    block = empty_block(n_grades)
    sums[:] = 0.0
    for start in range(0, len(query.doc), SLOTS):
        n = min(SLOTS, len(query.doc) - start)
        most = load_judgments(query, parameters, start, n, relevance, log_eps, block)
        if by_assessor:
            block.slope[:], block.curve[:], block.product[:] = 0.0, 0.0, 1.0
        for number in range(2 * most if by_assessor and query.all_pairs else most):
            select_partners(query, start, n, number, by_assessor, by_judgment, block)
            explain(n, block)
            differentiate(n, SLOPE, CURVE, 0, block)
            if with_widths:
                differentiate(n, WIDTH_SLOPE, WIDTH_CURVE, 2 * n_grades, block)
                differentiate_jointly(n, block)
            add_partner_sums(n, with_widths, block, sums)
            if by_assessor:
                stride = 1 if query.all_pairs else STRIDE if number % STRIDE == 0 else 0
                add_assessor_terms(n, stride, block)
                value += add_log_likelihood(query, start, n, block)
        value += add_block(query, start, n, block, sums, slope, curve)
    if by_assessor:
        for j in range(len(query.doc)):
            b, by_mean, by_width = query.assessor[j], query.grade[j], 2 * n_grades + query.grade[j]
            slope[b, by_mean] += sums[PARTNER, j, SLOPE]
            slope[b, by_width] += sums[PARTNER, j, WIDTH_SLOPE]
            curve[b, by_mean, by_mean] += sums[PARTNER, j, CURVE]
            curve[b, by_width, by_width] += sums[PARTNER, j, WIDTH_CURVE]
            curve[b, by_width, by_mean] += sums[PARTNER, j, MIXED_CURVE]
    return value


@njit(cache=True, nogil=True)
def add_expert_terms(gold: Grades, relevance: Floats, expert: Floats, slope: Floats, curve: Floats) -> None:
    """Add slope and curvature of the log likelihood of expert grades, log softmax_g(expert[0, g] r + expert[1, g])."""
    # gold, relevance, slope, curve (n_items,); expert (2, n_expert_grades)
    for d in range(len(gold)):
        if gold[d] >= 0:
            score = expert[0] * relevance[d] + expert[1]
            share = np.exp(score - score.max())
            share /= share.sum()
            mean = (share * expert[0]).sum()
            slope[d] += expert[0, gold[d]] - mean
            curve[d] += (share * (expert[0] - mean) ** 2).sum()


@njit(cache=True, nogil=True)
def newton_step(
    slope: Floats, curve: Floats, gold: Grades, expert: Floats, unit: float, relevance: Floats, precision: Floats
) -> tuple[float, float]:
    """Take a Newton step of each document, given slope and curvature of the log likelihood of judgments.

    Args:
        slope: (n_items,).
        curve: (n_items,).
        gold: expert grades, or -1, (n_items,).
        expert: slope and intercept of the score of each expert grade.
        unit: prior standard deviation of relevance.
        relevance: (n_items,), changed.
        precision: curvature of prior and expert grades, (n_items,), written.

    Returns:
        The longest step in units, and the common step of all documents that prior and expert grades would take next.

    """
    own_slope, longest = -relevance / unit**2, 0.0
    precision[:] = 1.0 / unit**2
    add_expert_terms(gold, relevance, np.stack((expert[0] / unit, expert[1])), own_slope, precision)
    for d in range(len(relevance)):
        step = (slope[d] + own_slope[d]) / (curve[d] + precision[d])
        step = min(max(step, -MAX_STEP * unit), MAX_STEP * unit)
        relevance[d] += step
        own_slope[d] -= precision[d] * step
        longest = max(longest, abs(step) / unit)
    return longest, own_slope.sum() / precision.sum()


@njit(cache=True, nogil=True)
def judgment_values(query: Query, weight: Floats) -> Floats:
    """Return the values of each judgment, (n, 5), of which weight and share are set."""
    values = np.empty((len(weight), 5))
    values[:, WEIGHT] = weight
    for i in range(len(weight)):
        total = 0.0
        for pair in range(query.first[i], query.first[i + 1]):
            total += weight[query.partner[pair]]
        values[i, SHARE] = weight[i] / max(total, 1e-300)
    return values


@njit(cache=True, nogil=True)
def locate(query: Query, parameters: Parameters, documents: Documents, by_judgment: Floats) -> None:
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
    mode += level
    documents.variance[:] = 1.0 / (precision + curve)
    if eps_precision > 0.0:
        for d in range(len(mode)):
            step = by_document[WIDTH_SLOPE, d] - eps_precision * log_eps[d]
            step = min(max(step / (eps_precision + by_document[WIDTH_CURVE, d]), -MAX_STEP), MAX_STEP)
            log_eps[d] += step
            longest = max(longest, abs(step))
    return float(longest)


@njit(cache=True, nogil=True)
def update_relevance(
    query: Query, parameters: Parameters, documents: Documents, n_steps: int, by_judgment: Floats, sums: Floats,
    empty: Floats,
) -> None:  # fmt: skip
    """Take Newton steps of each document's relevance given its own judgments, explained by their partners.

    Partners keep their residuals, so that every judgment counts once, and documents are independent of each other.
    """
    relevance, information = documents.relevance, documents.information
    slope, level = np.empty(len(relevance)), 0.0
    for _ in range(n_steps):
        pair_terms(query, parameters, by_judgment, relevance, documents.log_eps, False, sums, empty[:, 0], empty)
        slope[:], information[:] = 0.0, 0.0
        for i in range(len(query.doc)):
            slope[query.doc[i]] -= sums[EXPLAINED, i, SLOPE]
            information[query.doc[i]] += sums[EXPLAINED, i, CURVE]
        longest, level = newton_step(
            slope, information, query.gold, parameters.expert, parameters.unit, relevance, documents.precision
        )
        if longest < SHORT_STEP:
            break
    relevance += level  # the level of the query


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
    value, empty = 0.0, curve[:0]
    for q in range(len(query_items) - 1):
        start, stop = query_items[q], query_items[q + 1]
        bounds = groups[query_groups[q] : query_groups[q + 1] + 1]
        rows = order[bounds[0] : bounds[-1]]
        doc = (item[rows] - start).astype(np.int32)
        first, partner = draw_partners(doc, bounds, partners, seed, query_number[q])
        all_pairs = np.diff(bounds).max() <= ALL_PAIRS * partners
        query = Query(doc, assessor[rows], grade[rows], gold[start:stop], first, partner, all_pairs)
        here = Documents(
            documents.mode[start:stop], documents.log_eps[start:stop], documents.variance[start:stop],
            documents.relevance[start:stop], documents.information[start:stop], documents.precision[start:stop],
        )  # fmt: skip
        by_judgment, sums = judgment_values(query, weight[rows]), np.empty((2, len(doc), 5))
        for _ in range(mode_steps):
            locate(query, parameters, here, by_judgment)
            pair_terms(
                query,
                parameters,
                by_judgment,
                here.mode,
                here.log_eps,
                parameters.log_eps_precision > 0.0,
                sums,
                empty[:, 0],
                empty,
            )
            if step_modes(query, parameters, here, sums) < SHORT_STEP:
                break
        locate(query, parameters, here, by_judgment)
        update_relevance(query, parameters, here, relevance_steps, by_judgment, sums, empty)
        if len(slope) > 0:
            value += pair_terms(query, parameters, by_judgment, here.mode, here.log_eps, True, sums, slope, curve)
    return value
