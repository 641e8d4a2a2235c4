"""Draw the partners of judgments: judgments on other documents of the query that they are compared with."""

from __future__ import annotations

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Integers

ALL_PAIRS = 10
"""A group of up to this many times `partners` judgments has all its pairs."""
BLOCK_SIZE = 64
"""Number of judgments whose partners are drawn together."""
GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are evenly spread over [0, 1)."""


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
    """Write the partners of a group of `n` judgments, one from each of `partners` equal parts; return the end.

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
                offset[m] += GOLDEN if offset[m] < 1.0 - GOLDEN else GOLDEN - 1.0
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
        n_pairs += n * (n if n <= ALL_PAIRS * partners else partners)
    partner = np.empty(n_pairs, np.int32)
    first = np.empty(len(doc) + 1, np.int64)
    end = np.int64(0)  # for the constant 0, numba would compile draw_from_parts once more
    for group in range(len(bounds) - 1):
        start, n = bounds[group] - bounds[0], bounds[group + 1] - bounds[group]
        if n > ALL_PAIRS * partners:
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
