"""Log likelihood of pairs of judgments within a query, and its derivatives. Tests compare it with a NumPy reference.

A pair depends on the partner only by its residual (relevance minus the mean of its grade), its precision factor and its
weight. Pairs are computed in blocks: first the terms of all pairs of a block, in loops that the compiler can vectorize,
then their sums by judgment and by assessor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Grades, Integers

CURVATURE_STRIDE = 4
"""Every how many pairs the curvature by the assessors' parameters is computed if partners are drawn (subsampling)."""
BLOCK_SIZE = 96
"""Number of judgments computed together."""
SIMD_LANES = 8
"""Number of judgments in a vector register; loops over a block compute a multiple of it."""
RESIDUAL, FACTOR, WEIGHT, VARIANCE, WEIGHT_SHARE = range(5)
"""Columns of the values of a judgment: relevance minus the mean of its grade, precision factor, weight, variance of
relevance, and weight divided by the total weight of its partners."""
SLOPE, CURVE, WIDTH_SLOPE, WIDTH_CURVE, MIXED_CURVE = range(5)
"""Columns of derivatives of the log likelihood: slope and expected curvature by relevance, slope and expected curvature
by log width, and expected curvature by both."""
EXPLAINED, PARTNER = range(2)
"""Roles of a judgment in a pair: its grade is predicted (explained), or it is the partner that it is compared with."""
MAX_EXPONENT = 128.0
LOG2_E, LN2 = 1.0 / math.log(2.0), math.log(2.0)
ROUNDING_OFFSET = 1.5 * 2.0**52
"""Number that, added to a float, rounds it to an integer and leaves the integer in the lowest bits."""
EXP_COEFFICIENTS = (
    1.0000000000000135, 1.0000000000000013, 0.4999999999943859, 0.16666666666615648, 0.04166666704055213,
    0.008333333367311624, 0.0013888801749621653, 0.00019841190647512536, 2.4884459768350122e-05, 2.763264069051338e-06,
)  # fmt: skip
"""Polynomial that equals the exponential function at the ten Chebyshev nodes of +-log(2) / 2; its error is 2e-14."""
MIN_PRODUCT = 1e-150
"""Products of probabilities below this could underflow: exp(-MAX_EXPONENT) is 1e-56."""
ONE = np.uint64(1)
"""Unsigned 1 for indices, because numba adds a signed and an unsigned number as floating-point numbers."""
ROW, TWO_ROWS, THREE_ROWS, FOUR_ROWS, NINE_ROWS = (np.uint64(n * BLOCK_SIZE) for n in (1, 2, 3, 4, 9))
"""Lengths of rows of a block. These are constants, and indices are unsigned, so that the compiler knows that rows do
not overlap, and computes several judgments at a time without comparing addresses first."""
RESIDUAL_START, FACTOR_START, WEIGHT_START, SPREAD_START = (np.uint64(n) * ROW for n in range(4))
"""Starts of rows of `Block.values`: residual and precision factor of the partner, weight of the pair, and variance of
the difference, negative if it is taken one standard deviation below its mean."""
GIVEN_START, GIVEN_FACTOR_START, LOWEST_START = (np.uint64(n) * ROW for n in range(4, 7))
"""Starts of rows of `Block.values`: relevance minus mean of the given grade, its precision factor, and the exponent of
grade 0."""
TOTAL_START, MEAN_START, WIDTH_START, SQUARE_START = (np.uint64(n) * ROW for n in range(7, 11))
"""Starts of rows of `Block.values`: sums over grades of exp(exponent), and of exp(exponent) times the derivatives of
the exponent by mean and log width, and the square of the first; `differentiate` replaces sums by means, and the total
by its inverse."""
SLOPE_START, CURVE_START, WIDTH_SLOPE_START = (np.uint64(n) * ROW for n in range(3))
WIDTH_CURVE_START, MIXED_CURVE_START = (np.uint64(n) * ROW for n in range(3, 5))
"""Starts of rows of `Block.terms` and `Block.sums`, in the order of SLOPE, CURVE, ..."""


class Parameters(NamedTuple):
    """Parameters of assessors, experts and priors, in the form that the kernels of pairs use."""

    mean: Floats  # (n_assessors, n_grades)
    offset: Floats  # (n_assessors, n_grades) logarithm of the height of a grade's Gaussian
    factor: Floats  # (n_assessors, n_grades) the precision of a pair is the product of the factors of both judgments
    expert: Floats  # (2, n_expert_grades) slope and intercept of the score of each expert grade
    unit: float  # prior standard deviation of `relevance`
    log_eps_precision: float  # prior precision of log difficulty; 0: difficulty is fixed
    uncertain: bool  # whether the uncertainty of relevance is integrated out


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
    """Up to BLOCK_SIZE judgments, one pair of each, and sums over pairs: flat arrays of rows of BLOCK_SIZE numbers."""

    own: Floats  # 4 rows per grade: relevance minus mean, precision factor, offset; 1 for the given grade, else 0
    partner: Integers  # position of the partner
    values: Floats  # rows RESIDUAL_START, ...
    grades: Floats  # 3 rows per grade: derivatives of the exponent by mean and log width; exp(exponent), later P(grade)
    terms: Floats  # 5 rows: derivatives of the log likelihood by mean and log width
    sums: Floats  # 5 rows: sums of `terms`
    slope: Floats  # 3 rows per grade: slope of the log likelihood by mean, log weight and log width of the assessor
    curve: Floats  # 9 rows per pair of grades h >= f: expected curvature by these parameters of h and of f
    product: Floats  # 2 rows: product of the probabilities of grades in pairs of equal weight, and this weight


@njit(cache=True, nogil=True)
def empty_block(n_grades: int) -> Block:
    """Allocate a block of zeros: loops also compute unused numbers, which must be finite to be fast."""
    size, n_pairs = BLOCK_SIZE, n_grades * (n_grades + 1) // 2
    return Block(
        np.zeros(4 * n_grades * size), np.zeros(size, np.int64), np.zeros(11 * size), np.zeros(3 * n_grades * size),
        np.zeros(5 * size), np.zeros(5 * size), np.zeros(3 * n_grades * size), np.zeros(9 * n_pairs * size),
        np.ones(2 * size),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def judgment_values(query: Query, weight: Floats) -> Floats:
    """Return an array for the values of each judgment, (n, 5), in which the columns WEIGHT and WEIGHT_SHARE are set."""
    values, all_ones = np.empty((len(weight), 5)), True
    for i in range(len(weight)):
        all_ones &= weight[i] == 1.0
    for i in range(len(weight)):
        values[i, WEIGHT], total = weight[i], float(query.first[i + 1] - query.first[i])
        if not all_ones:
            total = 0.0
            for pair in range(query.first[i], query.first[i + 1]):
                total += weight[query.partner[pair]]
        values[i, WEIGHT_SHARE] = weight[i] / max(total, 1e-300)
    return values


@njit(cache=True, nogil=True)
def exponential(value: float) -> float:
    """Return the exponential to 1e-13, in a form that the compiler vectorizes; exponents are at most MAX_EXPONENT."""
    value = min(max(value, -MAX_EXPONENT), MAX_EXPONENT)
    shifted = value * LOG2_E + ROUNDING_OFFSET
    part = value - (shifted - ROUNDING_OFFSET) * LN2
    square, even, odd = part * part, EXP_COEFFICIENTS[8], EXP_COEFFICIENTS[9]
    for term in range(6, -1, -2):  # two short chains of dependent operations instead of a long one
        even, odd = even * square + EXP_COEFFICIENTS[term], odd * square + EXP_COEFFICIENTS[term + 1]
    exponent = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return (even + odd * part) * np.int64(exponent).view(np.float64)


@njit(cache=True, nogil=True)
def load_judgments(
    query: Query, parameters: Parameters, start: int, n: int, relevance: Floats, log_eps: Floats, block: Block
) -> int:
    """Write the parameters of `n` judgments into a block; return the largest number of partners."""
    own, values, most = block.own, block.values, 0
    for m in range(n):
        d, a, given = query.doc[start + m], query.assessor[start + m], np.uint64(query.grade[start + m])
        easier = math.exp(-0.5 * log_eps[d]) if log_eps[d] != 0.0 else 1.0
        for h in range(np.uint64(parameters.mean.shape[1])):
            at = h * FOUR_ROWS + m
            own[at] = relevance[d] - parameters.mean[a, h]
            own[at + ROW] = parameters.factor[a, h] * easier
            own[at + TWO_ROWS] = parameters.offset[a, h]
            own[at + THREE_ROWS] = 1.0 if given == h else 0.0
        values[GIVEN_START + m] = own[given * FOUR_ROWS + m]
        values[GIVEN_FACTOR_START + m] = own[given * FOUR_ROWS + ROW + m]
        most = max(most, query.first[start + m + ONE] - query.first[start + m])
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
        i, pair = start + m, query.first[start + m] + (number // 2 if both else number)
        if pair >= query.first[i + ONE]:
            partner[m] = i
            values[WEIGHT_START + m] = values[SPREAD_START + m] = 0.0
            continue
        j = np.uint64(query.partner[np.uint64(pair)])
        partner[m] = j
        values[RESIDUAL_START + m] = by_judgment[j, RESIDUAL]
        values[FACTOR_START + m] = by_judgment[j, FACTOR]
        values[WEIGHT_START + m] = by_judgment[i, WEIGHT_SHARE] * by_judgment[j, WEIGHT] * (0.5 if both else 1.0)
        if uncertain:
            variance = by_judgment[j, VARIANCE] + by_judgment[i, VARIANCE]
            values[SPREAD_START + m] = variance if (number if both else pair) % 2 == 0 else -variance
    if uncertain:
        for m in range(n):
            spread = values[SPREAD_START + m]
            values[RESIDUAL_START + m] += math.copysign(math.sqrt(abs(spread)), spread)


@njit(cache=True, nogil=True, error_model="numpy")
def differentiate_by_mean(n: int, n_grades: int, block: Block) -> None:
    """Compute slope and expected curvature of log P(grade) by the mean, for the pairs of `n` judgments (eq. 7).

    The expected curvature is the variance of the derivatives of the exponents under P(grade). This is the fast way when
    only these two are needed: it writes neither P(grade) nor other derivatives.
    """
    own, values, terms, sums = block.own, block.values, block.terms, block.sums
    for m in range(n):
        difference = own[m] - values[RESIDUAL_START + m]
        by_mean = own[ROW + m] * values[FACTOR_START + m] * difference
        values[LOWEST_START + m] = own[TWO_ROWS + m] - 0.5 * by_mean * difference
        values[TOTAL_START + m] = 1.0
        values[MEAN_START + m] = by_mean
        values[SQUARE_START + m] = by_mean * by_mean
    for h in range(ONE, n_grades):
        at = h * FOUR_ROWS
        for m in range(n):
            difference = own[at + m] - values[RESIDUAL_START + m]
            by_mean = own[at + ROW + m] * values[FACTOR_START + m] * difference
            share = exponential(own[at + TWO_ROWS + m] - 0.5 * by_mean * difference - values[LOWEST_START + m])
            values[TOTAL_START + m] += share
            values[MEAN_START + m] += share * by_mean
            values[SQUARE_START + m] += share * by_mean * by_mean
    for m in range(n):
        scale, weight = 1.0 / values[TOTAL_START + m], values[WEIGHT_START + m]
        difference = values[GIVEN_START + m] - values[RESIDUAL_START + m]
        by_given = values[GIVEN_FACTOR_START + m] * values[FACTOR_START + m] * difference
        mean = values[MEAN_START + m] * scale
        terms[SLOPE_START + m] = weight * (by_given - mean)
        terms[CURVE_START + m] = weight * (values[SQUARE_START + m] * scale - mean * mean)
    for m in range(n):
        sums[SLOPE_START + m] += terms[SLOPE_START + m]
        sums[CURVE_START + m] += terms[CURVE_START + m]


@njit(cache=True, nogil=True)
def evaluate_grades(n: int, n_grades: int, block: Block) -> None:
    """Write exp(exponent) of each grade for the pairs of `n` judgments (eq. 7), its derivatives, and their sums.

    Exponents are relative to that of the lowest grade.
    """
    own, values, grades = block.own, block.values, block.grades
    for m in range(n):
        difference = own[m] - values[RESIDUAL_START + m]
        by_mean = own[ROW + m] * values[FACTOR_START + m] * difference
        values[LOWEST_START + m] = own[TWO_ROWS + m] - 0.5 * by_mean * difference
        grades[m] = values[MEAN_START + m] = by_mean
        grades[ROW + m] = values[WIDTH_START + m] = 0.25 * by_mean * difference - 0.25
        grades[TWO_ROWS + m] = values[TOTAL_START + m] = 1.0
    for h in range(ONE, n_grades):
        at, to = h * FOUR_ROWS, h * THREE_ROWS
        for m in range(n):
            difference = own[at + m] - values[RESIDUAL_START + m]
            by_mean = own[at + ROW + m] * values[FACTOR_START + m] * difference
            by_width = 0.25 * by_mean * difference - 0.25
            share = exponential(own[at + TWO_ROWS + m] - 0.5 * by_mean * difference - values[LOWEST_START + m])
            grades[to + m] = by_mean
            grades[to + ROW + m] = by_width
            grades[to + TWO_ROWS + m] = share
            values[TOTAL_START + m] += share
            values[MEAN_START + m] += share * by_mean
            values[WIDTH_START + m] += share * by_width


@njit(cache=True, nogil=True, error_model="numpy")
def differentiate(n: int, block: Block) -> None:
    """Compute the slopes of log P(grade) by mean and log width, for the pairs of `n` judgments."""
    values, terms, sums = block.values, block.terms, block.sums
    for m in range(n):
        scale, weight = 1.0 / values[TOTAL_START + m], values[WEIGHT_START + m]
        difference = values[GIVEN_START + m] - values[RESIDUAL_START + m]
        by_given = values[GIVEN_FACTOR_START + m] * values[FACTOR_START + m] * difference
        mean, width = values[MEAN_START + m] * scale, values[WIDTH_START + m] * scale
        values[TOTAL_START + m], values[MEAN_START + m], values[WIDTH_START + m] = scale, mean, width
        terms[SLOPE_START + m] = weight * (by_given - mean)
        terms[WIDTH_SLOPE_START + m] = weight * (0.25 * by_given * difference - 0.25 - width)
    for m in range(n):
        sums[SLOPE_START + m] += terms[SLOPE_START + m]
        sums[WIDTH_SLOPE_START + m] += terms[WIDTH_SLOPE_START + m]


@njit(cache=True, nogil=True)
def differentiate_twice(n: int, n_grades: int, stride: float, block: Block) -> None:
    """Compute `stride` times the expected curvatures of log P(grade) by mean and log width.

    The expected curvature is the covariance of the derivatives of the exponents under P(grade).
    """
    values, grades, terms, sums = block.values, block.grades, block.terms, block.sums
    for m in range(n):
        terms[CURVE_START + m] = terms[WIDTH_CURVE_START + m] = terms[MIXED_CURVE_START + m] = 0.0
    for h in range(n_grades):
        at = h * THREE_ROWS
        for m in range(n):
            weight = stride * values[WEIGHT_START + m] * values[TOTAL_START + m] * grades[at + TWO_ROWS + m]
            by_mean, by_width = grades[at + m] - values[MEAN_START + m], grades[at + ROW + m] - values[WIDTH_START + m]
            terms[CURVE_START + m] += weight * by_mean * by_mean
            terms[WIDTH_CURVE_START + m] += weight * by_width * by_width
            terms[MIXED_CURVE_START + m] += weight * by_mean * by_width
    for m in range(n):
        sums[CURVE_START + m] += terms[CURVE_START + m]
        sums[WIDTH_CURVE_START + m] += terms[WIDTH_CURVE_START + m]


@njit(cache=True, nogil=True)
def add_assessor_slope(n: int, n_grades: int, block: Block) -> None:
    """Add the slope of the log likelihood by the assessors' parameters to `block.slope`, and write P(grade)."""
    own, values, grades, slope = block.own, block.values, block.grades, block.slope
    for h in range(n_grades):
        at, to = h * FOUR_ROWS + THREE_ROWS, h * THREE_ROWS
        for m in range(n):
            share = grades[to + TWO_ROWS + m] * values[TOTAL_START + m]
            left = values[WEIGHT_START + m] * (own[at + m] - share)
            grades[to + TWO_ROWS + m] = share
            slope[to + m] += left * grades[to + m]
            slope[to + ROW + m] += left
            slope[to + TWO_ROWS + m] += left * grades[to + ROW + m]


@njit(cache=True, nogil=True)
def add_assessor_curvature(n: int, n_grades: int, stride: float, block: Block) -> None:
    """Add `stride` times the expected curvature by the assessors' parameters to `block.curve`."""
    values, grades, curve, to = block.values, block.grades, block.curve, np.uint64(0)
    for h in range(n_grades):
        for f in range(h + ONE):
            left, right, same = h * THREE_ROWS, f * THREE_ROWS, 1.0 if f == h else 0.0
            for m in range(n):
                common = stride * values[WEIGHT_START + m] * grades[left + TWO_ROWS + m]
                common *= same - grades[right + TWO_ROWS + m]
                by_mean, by_width = common * grades[left + m], common * grades[left + ROW + m]
                curve[to + m] += by_mean * grades[right + m]
                curve[to + ROW + m] += by_mean
                curve[to + TWO_ROWS + m] += by_mean * grades[right + ROW + m]
                curve[to + THREE_ROWS + m] += common * grades[right + m]
                curve[to + FOUR_ROWS + m] += common
                curve[to + FOUR_ROWS + ROW + m] += common * grades[right + ROW + m]
                curve[to + FOUR_ROWS + TWO_ROWS + m] += by_width * grades[right + m]
                curve[to + FOUR_ROWS + THREE_ROWS + m] += by_width
                curve[to + FOUR_ROWS + FOUR_ROWS + m] += by_width * grades[right + ROW + m]
            to += NINE_ROWS


@njit(cache=True, nogil=True)
def add_partner_sums(n: int, with_widths: bool, with_curvature: bool, block: Block, sums: Floats) -> None:
    """Add the derivatives of `n` pairs, by the judgment that is the partner, to its `sums[PARTNER]`."""
    terms = block.terms
    for m in range(n):
        j = np.uint64(block.partner[m])
        sums[PARTNER, j, SLOPE] -= terms[SLOPE_START + m]  # the partner is on the other side of the difference
        if with_widths:
            sums[PARTNER, j, WIDTH_SLOPE] += terms[WIDTH_SLOPE_START + m]
        if with_curvature:
            sums[PARTNER, j, CURVE] += terms[CURVE_START + m]
        if with_widths and with_curvature:
            sums[PARTNER, j, WIDTH_CURVE] += terms[WIDTH_CURVE_START + m]
            sums[PARTNER, j, MIXED_CURVE] -= terms[MIXED_CURVE_START + m]


@njit(cache=True, nogil=True)
def add_log_likelihood(query: Query, start: int, n: int, block: Block) -> float:
    """Multiply the probabilities of the grades into `block.product`; return the log likelihood of completed products.

    One logarithm serves many pairs: a product ends when the weight of its pairs changes, or before it underflows.
    """
    value, product, weight = 0.0, block.product, block.values
    for m in range(n):
        if weight[WEIGHT_START + m] != product[ROW + m] or product[m] < MIN_PRODUCT:
            value += product[ROW + m] * math.log(product[m])
            product[m], product[ROW + m] = 1.0, weight[WEIGHT_START + m]
        product[m] *= block.grades[np.uint64(query.grade[start + m]) * THREE_ROWS + TWO_ROWS + m]
    return value


@njit(cache=True, nogil=True)
def write_sums(start: int, n: int, block: Block, sums: Floats) -> None:
    """Write the sums of a block into `sums[EXPLAINED]` of its `n` judgments, from position `start` on."""
    for m in range(n):
        for term in range(np.uint64(5)):
            sums[EXPLAINED, start + m, term] = block.sums[term * ROW + m]


@njit(cache=True, nogil=True)
def add_assessor_sums(
    query: Query, start: int, n: int, n_grades: int, block: Block, slope: Floats, curve: Floats
) -> float:
    """Add the slopes and curvatures of a block to those of assessors; return a part of the log likelihood.

    It is the logarithm of the products of probabilities in `block.product`, which :func:`add_log_likelihood` has not
    returned yet.
    """
    value, three = 0.0, np.uint64(3)
    for m in range(n):
        a, at = query.assessor[start + m], np.uint64(0)
        value += block.product[ROW + m] * math.log(block.product[m])
        for h in range(n_grades):
            for kind in range(three):
                slope[a, kind * n_grades + h] += block.slope[h * THREE_ROWS + kind * ROW + m]
            for f in range(h + ONE):
                for kind in range(three):
                    for other in range(kind + ONE if f == h else three):
                        row, column = kind * n_grades + h, other * n_grades + f
                        entry = block.curve[at + (kind * three + other) * ROW + m]
                        curve[a, max(row, column), min(row, column)] += entry
                at += NINE_ROWS
    return value


@njit(cache=True, nogil=True)
def pair_terms(
    query: Query, parameters: Parameters, by_judgment: Floats, relevance: Floats, log_eps: Floats, with_widths: bool,
    with_partners: bool, block: Block, sums: Floats, slope: Floats, curve: Floats,
) -> float:  # fmt: skip
    """Write the derivatives of the log likelihood of a query's pairs, each judgment in its weight (eq. 8).

    Args:
        query: judgments and their partners.
        parameters: parameters of assessors.
        by_judgment: values of each judgment, (n, 5).
        relevance: relevance of each document that explains its judgments, (n_items,).
        log_eps: log difficulty of each document, (n_items,).
        with_widths: compute derivatives by log width; always True with a slope by the assessors' parameters.
        with_partners: compute derivatives of partners; always True with a slope by the assessors' parameters.
        block: memory for a block of judgments.
        sums: derivatives by the mean and log width of a judgment that is explained or a partner, (2, n, 5), written;
            with a slope by the assessors' parameters, curvatures are estimated from every
            CURVATURE_STRIDE-th drawn pair.
        slope: slope by the assessors' parameters, (n_assessors, 3 n_grades), added to unless empty. The relevance of
            documents is then taken as uncertain.
        curve: expected curvature by these, (n_assessors, 3 n_grades, 3 n_grades), lower triangle, added to.

    Returns:
        The log likelihood, if slope is not empty.

    """
    n_grades, by_assessor, value = parameters.mean.shape[1], len(slope) > 0, 0.0
    grades, n_judgments = np.uint64(n_grades), np.uint64(len(query.doc))
    stride = CURVATURE_STRIDE if by_assessor and not query.all_pairs else 1
    sums[:] = 0.0
    for start in range(np.uint64(0), n_judgments, ROW):
        n = min(ROW, n_judgments - start)
        lanes = (n + np.uint64(SIMD_LANES - 1)) // np.uint64(SIMD_LANES) * np.uint64(SIMD_LANES)
        most = load_judgments(query, parameters, start, n, relevance, log_eps, block)
        if by_assessor:
            block.slope[:], block.curve[:], block.product[:] = 0.0, 0.0, 1.0
        for number in range(2 * most if by_assessor and query.all_pairs else most):
            with_curvature = number % stride == 0
            select_partners(query, start, n, number, by_assessor, by_judgment, block)
            if with_widths:
                evaluate_grades(lanes, grades, block)
                differentiate(lanes, block)
                if with_curvature:
                    differentiate_twice(lanes, grades, float(stride), block)
            else:
                differentiate_by_mean(lanes, grades, block)
            if with_partners:
                add_partner_sums(n, with_widths, with_curvature, block, sums)
            if by_assessor:
                add_assessor_slope(lanes, grades, block)
                if with_curvature:
                    add_assessor_curvature(lanes, grades, float(stride), block)
                value += add_log_likelihood(query, start, n, block)
        write_sums(start, n, block, sums)
        if by_assessor:
            value += add_assessor_sums(query, start, n, grades, block, slope, curve)
    if by_assessor:
        for j in range(len(query.doc)):
            b, by_mean, by_width = query.assessor[j], query.grade[j], 2 * n_grades + query.grade[j]
            slope[b, by_mean] += sums[PARTNER, j, SLOPE]
            slope[b, by_width] += sums[PARTNER, j, WIDTH_SLOPE]
            curve[b, by_mean, by_mean] += sums[PARTNER, j, CURVE]
            curve[b, by_width, by_width] += sums[PARTNER, j, WIDTH_CURVE]
            curve[b, by_width, by_mean] += sums[PARTNER, j, MIXED_CURVE]
    return value
