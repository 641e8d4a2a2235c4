"""Numba kernels of least squares and SoftRank; each has a NumPy reference in tests/label_learning."""

from __future__ import annotations

import math

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Floats, Integers


@njit(cache=True, nogil=True)
def scale_rows(X: Floats, root: Floats, target: Floats, first: int, last: int, scaled: Floats) -> None:
    """Write rows `first` to `last` times the root of their weight, that root, and the scaled target into `scaled`."""
    # X (n, k); root, target (n,); scaled (at least last - first, at least k + 2)
    k = X.shape[1]
    for i in range(first, last):
        row, output, r = X[i], scaled[i - first], root[i]
        for j in range(k):
            output[j] = row[j] * r
        output[k], output[k + 1] = r, target[i]


@njit(cache=True, nogil=True, fastmath=True)
def two_products(X: Floats, a: Floats, b: Floats, product_a: Floats, product_b: Floats) -> None:
    """Set X a and X b in one pass over X, in about half the time of two products."""
    # X (n, k); a, b (k,); product_a, product_b (n,)
    for i in range(X.shape[0]):
        s, t = 0.0, 0.0
        for j in range(X.shape[1]):
            s += X[i, j] * a[j]
            t += X[i, j] * b[j]
        product_a[i], product_b[i] = s, t


@njit(cache=True, nogil=True)
def soft_dcg(score: Floats, gain: Floats, offsets: Integers, discount: Floats, noise: float, gradient: Floats) -> float:
    """Return the expected DCG, summed over queries, if each score has normal noise; set its gradient in every score.

    The rank distribution of a document is built by adding the other documents one at a time (Taylor et al. 2008);
    ranks from the cutoff on have no discount and are left out. The gradient goes back through the same recursion.
    """
    # score, gain, gradient (n,); offsets (n_queries + 1,); discount (cutoff,); noise: standard deviation of a score
    gradient[:] = 0.0
    total = 0.0
    cutoff = discount.size
    width = noise * math.sqrt(2.0)
    longest = np.max(np.diff(offsets))
    before = np.empty((longest, cutoff))  # rank distribution before each other document is added
    above = np.empty(longest)  # probability that the other document is ranked above
    ranks, adjoint = np.empty(cutoff), np.empty(cutoff)
    for query in range(offsets.size - 1):
        first, last = offsets[query], offsets[query + 1]
        for i in range(first, last):
            if gain[i] == 0.0:
                continue
            ranks[:] = 0.0
            ranks[0] = 1.0
            for j in range(first, last):
                if j == i:
                    continue
                p = 0.5 * math.erfc((score[i] - score[j]) / (width * math.sqrt(2.0)))
                above[j - first] = p
                before[j - first, :] = ranks
                for r in range(cutoff - 1, 0, -1):
                    ranks[r] = (1.0 - p) * ranks[r] + p * ranks[r - 1]
                ranks[0] *= 1.0 - p
            for r in range(cutoff):
                total += gain[i] * discount[r] * ranks[r]
                adjoint[r] = gain[i] * discount[r]
            for j in range(last - 1, first - 1, -1):
                if j == i:
                    continue
                p, slope = above[j - first], -adjoint[0] * before[j - first, 0]
                for r in range(1, cutoff):
                    slope += adjoint[r] * (before[j - first, r - 1] - before[j - first, r])
                for r in range(cutoff - 1):
                    adjoint[r] = (1.0 - p) * adjoint[r] + p * adjoint[r + 1]
                adjoint[cutoff - 1] *= 1.0 - p
                difference = (score[i] - score[j]) / width
                slope *= math.exp(-0.5 * difference * difference) / (width * math.sqrt(2.0 * math.pi))
                gradient[j] += slope
                gradient[i] -= slope
    return total
