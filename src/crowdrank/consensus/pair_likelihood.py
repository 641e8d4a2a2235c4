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

STRIDE = 4
"""If partners are drawn, every fourth pair contributes to the curvature by assessors' parameters, to guide steps."""
BLOCK_SIZE = 116
"""Number of judgments computed together, in loops that the compiler can vectorize."""
RESIDUAL, FACTOR, WEIGHT, VARIANCE, SHARE = range(5)
"""Columns of the values of a judgment: relevance minus the mean of its grade, precision factor, weight, variance of
relevance, and weight divided by the total weight of its partners."""
SLOPE, CURVE, WIDTH_SLOPE, WIDTH_CURVE, MIXED_CURVE = range(5)
"""Columns of derivatives of the log likelihood: slope and expected curvature by relevance, slope and expected curvature
by log width, and expected curvature by both."""
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
    """Parameters of assessors, experts and priors, in the form that the kernels of pairs use."""

    mean: Floats  # (n_assessors, n_grades)
    offset: Floats  # (n_assessors, n_grades) logarithm of the height of a grade's Gaussian
    factor: Floats  # (n_assessors, n_grades) the precision of a pair is the product of the factors of both judgments
    expert: Floats  # (2, n_expert_grades) slope and intercept of the score of each expert grade
    unit: float  # prior standard deviation of `relevance`
    log_eps_precision: float  # prior precision of log difficulty; 0: difficulty is fixed


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
    """Up to BLOCK_SIZE judgments, one pair of each, and sums over pairs, (..., BLOCK_SIZE) each."""

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
    n, size = 3 * n_grades, BLOCK_SIZE
    return Block(
        np.empty((n, size)), np.empty((n_grades, size)), np.empty(size, np.int64), np.empty((3, size)),
        np.empty((n_grades, size)), np.ones((n, size)), np.empty((2, size)), np.empty((5, size)),
        np.empty((5, size)), np.empty((n, size)), np.empty((n, n, size)), np.ones((2, size)),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def judgment_values(query: Query, weight: Floats) -> Floats:
    """Return the values of each judgment, (n, 5), of which weight and share are set."""
    values = np.empty((len(weight), 5))
    for i in range(len(weight)):
        values[i, WEIGHT], total = weight[i], 0.0
        for pair in range(query.first[i], query.first[i + 1]):
            total += weight[query.partner[pair]]
        values[i, SHARE] = weight[i] / max(total, 1e-300)
    return values


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
def write_probabilities(n: int, block: Block) -> None:
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
    """Compute derivative and expected curvature of log P(grade) in a parameter of the first `n` judgments.

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
    """Compute the expected mixed curvature in mean and log width."""
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
    """Multiply the probabilities of the grades into `block.product`; return the log likelihood of completed products.

    One logarithm serves many pairs: a product ends when the weight of its pairs changes, or before it underflows.
    """
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
    for start in range(0, len(query.doc), BLOCK_SIZE):
        n = min(BLOCK_SIZE, len(query.doc) - start)
        most = load_judgments(query, parameters, start, n, relevance, log_eps, block)
        if by_assessor:
            block.slope[:], block.curve[:], block.product[:] = 0.0, 0.0, 1.0
        for number in range(2 * most if by_assessor and query.all_pairs else most):
            select_partners(query, start, n, number, by_assessor, by_judgment, block)
            write_probabilities(n, block)
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
