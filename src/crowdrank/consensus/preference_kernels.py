"""Kernels of the joint posterior of documents that preferences connect.

The negative Hessian of the log posterior is H = diag(c) + B' diag(w) B: c is the curvature of each document's own
posterior, B has a row per preference with 1 at the left and -1 at the right document, and w is the curvature of each
preference. H is never stored as a whole: conjugate gradients multiply with it in time linear in the preferences. Its
Cholesky factor is computed for one query at a time.
"""

from __future__ import annotations

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Integers
from crowdrank.consensus.preference_assessors import DIFFERENCE_STEP, DIFFERENCES, MAX_DIFFERENCE, N_ANSWERS, SMALLEST

MAX_LOGIT = 500.0
"""Largest absolute argument of the logistic function."""
MAX_CG_STEPS = 500
"""Maximum number of steps of conjugate gradients."""
SMALL_QUERIES = 1 << 13
"""Number of array elements below which the factorizations are computed by NumPy, query by query."""
LAST_DIFFERENCE = len(DIFFERENCES) - 1
FAST = {"reassoc", "contract"}
"""Floating-point rules that let compiled code compute several terms of a sum at a time."""


def _differentiate(
    left: Integers,
    right: Integers,
    answer: Codes,
    assessor: Codes,
    weight: Floats,
    scales: Floats,
    cuts: Floats,
    mode: Floats,
    terms: Floats,
) -> None:
    sharpness, offset = scales[assessor].T
    x = sharpness * (mode[left] - mode[right]) + offset
    low, high = (
        1.0 / (1.0 + np.exp(-np.clip(cuts[assessor, answer + side] - x, -MAX_LOGIT, MAX_LOGIT))) for side in (0, 1)
    )
    terms[0] = weight * np.log(np.maximum(high - low, SMALLEST))
    terms[1] = weight * sharpness * (low + high - 1.0)
    terms[2] = weight * sharpness**2 * (low * (1.0 - low) + high * (1.0 - high))


@njit(nogil=True, numpy=_differentiate)
def differentiate(
    left: Integers,
    right: Integers,
    answer: Codes,
    assessor: Codes,
    weight: Floats,
    scales: Floats,
    cuts: Floats,
    mode: Floats,
    terms: Floats,
) -> None:
    """Write log P(answer) and its first and negative second derivative by the difference into `terms`, (3, n).

    Args:
        left: left document of each preference, (n,).
        right: right document, (n,).
        answer: answer, (n,).
        assessor: assessor, (n,).
        weight: weight, (n,).
        scales: sharpness and position bias of each assessor, (n_assessors, 2).
        cuts: cut points of each assessor between minus and plus infinity, (n_assessors, 6).
        mode: relevance of each document, (n_items,).
        terms: output.

    """
    for row in range(len(left)):
        own, k = assessor[row], answer[row]
        sharpness = scales[own, 0]
        x = sharpness * (mode[left[row]] - mode[right[row]]) + scales[own, 1]
        low = 1.0 / (1.0 + np.exp(-min(max(cuts[own, k] - x, -MAX_LOGIT), MAX_LOGIT)))
        high = 1.0 / (1.0 + np.exp(-min(max(cuts[own, k + 1] - x, -MAX_LOGIT), MAX_LOGIT)))
        terms[0, row] = weight[row] * np.log(max(high - low, SMALLEST))
        terms[1, row] = weight[row] * sharpness * (low + high - 1.0)
        terms[2, row] = weight[row] * sharpness**2 * (low * (1.0 - low) + high * (1.0 - high))


def _conjugate_gradients(
    left: Integers,
    right: Integers,
    bend: Floats,
    curvature: Floats,
    target: Floats,
    tolerance: float,
    solution: Floats,
    diagonal: Floats,
    coefficients: Floats,
    memory: Floats,
) -> int:
    n = len(target)
    ends = np.concatenate([left, right])
    both = np.concatenate([bend, bend])
    diagonal[:] = curvature + np.bincount(ends, both, n)
    solution[:] = 0.0
    residual = target.copy()
    scaled = residual / diagonal
    direction, product = scaled.copy(), float(residual @ scaled)
    first, step = product, 0
    while step < len(coefficients) and product > tolerance * first:
        along = bend * (direction[left] - direction[right])
        image = curvature * direction + np.bincount(ends, np.concatenate([along, -along]), n)
        alpha = product / float(direction @ image)
        solution += alpha * direction
        residual -= alpha * image
        scaled = residual / diagonal
        before, product = product, float(residual @ scaled)
        direction = scaled + product / before * direction
        coefficients[step] = alpha, product / before
        step += 1
    return step


@njit(nogil=True, numpy=_conjugate_gradients, fastmath=FAST)
def conjugate_gradients(
    left: Integers,
    right: Integers,
    bend: Floats,
    curvature: Floats,
    target: Floats,
    tolerance: float,
    solution: Floats,
    diagonal: Floats,
    coefficients: Floats,
    memory: Floats,
) -> int:
    """Solve H x = target by conjugate gradients with the diagonal of H as preconditioner; return the number of steps.

    Args:
        left: left document of each preference, (n,).
        right: right document, (n,).
        bend: curvature of each preference, (n,).
        curvature: curvature of each document, (n_items,).
        target: right-hand side, (n_items,).
        tolerance: share of the first squared residual norm at which it stops.
        solution: output, x, (n_items,).
        diagonal: output, the diagonal of H, (n_items,).
        coefficients: output, alpha and beta of each step, (most steps, 2).
        memory: memory, (3, n_items).

    """
    residual, direction, image = memory[0], memory[1], memory[2]
    n = len(target)
    for item in range(n):
        diagonal[item] = curvature[item]
        solution[item] = 0.0
    for row in range(len(left)):
        diagonal[left[row]] += bend[row]
        diagonal[right[row]] += bend[row]
    product = 0.0
    for item in range(n):
        residual[item] = target[item]
        direction[item] = target[item] / diagonal[item]
        product += target[item] * direction[item]
    first, step = product, 0
    while step < len(coefficients) and product > tolerance * first:
        for item in range(n):
            image[item] = curvature[item] * direction[item]
        for row in range(len(left)):
            along = bend[row] * (direction[left[row]] - direction[right[row]])
            image[left[row]] += along
            image[right[row]] -= along
        curve = 0.0
        for item in range(n):
            curve += direction[item] * image[item]
        alpha, before, product = product / curve, product, 0.0
        for item in range(n):
            solution[item] += alpha * direction[item]
            residual[item] -= alpha * image[item]
            product += residual[item] * residual[item] / diagonal[item]
        beta = product / before
        for item in range(n):
            direction[item] = residual[item] / diagonal[item] + beta * direction[item]
        coefficients[step, 0], coefficients[step, 1] = alpha, beta
        step += 1
    return step


@njit(nogil=True, fastmath=FAST)
def factorize(factor: Floats) -> float:
    """Replace the lower half of a matrix by its Cholesky factor in place; return its log determinant."""
    log_determinant = 0.0
    for i in range(len(factor)):
        for j in range(i):
            total = 0.0
            for k in range(j):
                total += factor[i, k] * factor[j, k]
            factor[i, j] = (factor[i, j] - total) / factor[j, j]
        total = 0.0
        for k in range(i):
            total += factor[i, k] * factor[i, k]
        factor[i, i] = np.sqrt(factor[i, i] - total)
        log_determinant += 2.0 * np.log(factor[i, i])
    return log_determinant


@njit(nogil=True, fastmath=FAST)
def invert_factor(factor: Floats, inverse: Floats, variance: Floats) -> None:
    """Write the columns of the inverse of a Cholesky factor into rows of `inverse`, their squares to `variance`."""
    n = len(factor)
    for a in range(n):
        for i in range(a):
            inverse[a, i] = 0.0
        inverse[a, a] = 1.0 / factor[a, a]
        squares = inverse[a, a] * inverse[a, a]
        for i in range(a + 1, n):
            total = 0.0
            for k in range(a, i):
                total += factor[i, k] * inverse[a, k]
            inverse[a, i] = -total / factor[i, i]
            squares += inverse[a, i] * inverse[a, i]
        variance[a] = squares


def _write_variances(
    items: Integers,
    rows: Integers,
    left: Integers,
    right: Integers,
    bend: Floats,
    curvature: Floats,
    memory: Floats,
    variance: Floats,
    spread: Floats,
) -> float:
    log_determinant = 0.0
    for query in range(len(items) - 1):
        first, last = items[query], items[query + 1]
        n, own = last - first, slice(rows[query], rows[query + 1])
        one, other = left[own] - first, right[own] - first
        index = np.concatenate([one * n + one, other * n + other, one * n + other, other * n + one])
        w = bend[own]
        laplacian = np.bincount(index, np.concatenate([w, w, -w, -w]), n * n).reshape(n, n)
        hessian = laplacian + np.diag(curvature[first:last])
        factor = np.linalg.cholesky(hessian)
        inverse = np.linalg.solve(factor, np.eye(n))
        variance[first:last] = (inverse**2).sum(axis=0)
        spread[own] = ((inverse[:, one] - inverse[:, other]) ** 2).sum(axis=0)
        log_determinant += 2.0 * np.log(np.diagonal(factor)).sum()
    return float(log_determinant)


@njit(nogil=True, numpy=_write_variances, small=SMALL_QUERIES, fastmath=FAST)
def write_variances(
    items: Integers,
    rows: Integers,
    left: Integers,
    right: Integers,
    bend: Floats,
    curvature: Floats,
    memory: Floats,
    variance: Floats,
    spread: Floats,
) -> float:
    """Write the variance of documents and of differences by the Cholesky factor of each query; return log det H.

    Args:
        items: first document of each query, and the end, (n_queries + 1,).
        rows: first preference of each query, and the end, (n_queries + 1,).
        left: left document of each preference, (n,).
        right: right document, (n,).
        bend: curvature of each preference, (n,).
        curvature: curvature of each document, (n_items,).
        memory: memory, (2, most documents of a query squared).
        variance: output, diagonal of the inverse of H, (n_items,).
        spread: output, variance of the difference of each preference, (n,).

    """
    log_determinant = 0.0
    for query in range(len(items) - 1):
        first = items[query]
        n = items[query + 1] - first
        factor = memory[0, : n * n].reshape(n, n)
        inverse = memory[1, : n * n].reshape(n, n)  # row a is column a of the inverse of the factor
        for i in range(n):
            for j in range(i):
                factor[i, j] = 0.0
            factor[i, i] = curvature[first + i]
        for row in range(rows[query], rows[query + 1]):
            one, other = left[row] - first, right[row] - first
            factor[one, one] += bend[row]
            factor[other, other] += bend[row]
            factor[max(one, other), min(one, other)] -= bend[row]
        log_determinant += factorize(factor)
        invert_factor(factor, inverse, variance[first : first + n])
        for row in range(rows[query], rows[query + 1]):
            one, other = left[row] - first, right[row] - first
            total = 0.0
            for i in range(min(one, other), n):
                difference = inverse[one, i] - inverse[other, i]
                total += difference * difference
            spread[row] = total
    return log_determinant


def _add_counts(
    left: Integers,
    right: Integers,
    answer: Codes,
    assessor: Codes,
    weight: Floats,
    mode: Floats,
    spread: Floats,
    counts: Floats,
) -> None:
    cells = counts.reshape(-1)
    for sign in (-1.0, 1.0):
        place = (mode[left] - mode[right] + sign * np.sqrt(spread) + MAX_DIFFERENCE) / DIFFERENCE_STEP
        place = np.clip(place, 0.0, float(LAST_DIFFERENCE))
        cell = np.minimum(place.astype(np.int64), LAST_DIFFERENCE - 1)
        share = place - cell
        for neighbor, part in ((0, 1.0 - share), (1, share)):
            index = (assessor.astype(np.int64) * len(DIFFERENCES) + cell + neighbor) * N_ANSWERS + answer
            cells += np.bincount(index, 0.5 * weight * part, len(cells))


@njit(nogil=True, numpy=_add_counts)
def add_counts(
    left: Integers,
    right: Integers,
    answer: Codes,
    assessor: Codes,
    weight: Floats,
    mode: Floats,
    spread: Floats,
    counts: Floats,
) -> None:
    """Add the expected number of answers by difference to `counts` in place, (n_assessors, n_differences, 5).

    The difference of a pair is at its mean plus and minus one standard deviation, with half of the weight each, which
    has the mean and variance of its distribution. Weights are divided between the neighboring points of the grid.
    """
    for row in range(len(left)):
        mean, sd = mode[left[row]] - mode[right[row]], np.sqrt(spread[row])
        for sign in (-1.0, 1.0):
            place = (mean + sign * sd + MAX_DIFFERENCE) / DIFFERENCE_STEP
            place = min(max(place, 0.0), float(LAST_DIFFERENCE))
            cell = min(int(place), LAST_DIFFERENCE - 1)
            share = place - cell
            counts[assessor[row], cell, answer[row]] += 0.5 * weight[row] * (1.0 - share)
            counts[assessor[row], cell + 1, answer[row]] += 0.5 * weight[row] * share
