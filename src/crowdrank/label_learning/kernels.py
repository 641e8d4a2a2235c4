"""Passes over documents' features, and trees over binned label features.

Each has a NumPy reference in tests/label_learning. A tree is complete: node 0 is the root, the children of node i
are 2i + 1 (at most the threshold, or blank) and 2i + 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Floats, Integers

Bins = NDArray[np.uint8]

LEAF = -1
ROUNDING = 1e-12
"""A split that wins less than this part of all squares wins nothing."""


@njit(cache=True, nogil=True)
def scale_rows(X: Floats, root: Floats, aim: Floats, first: int, last: int, scaled: Floats) -> None:
    """Rows `first` up to `last` times their root weight, then the root weight itself, then the aim."""
    # X (n, k); root, aim (n,); scaled (last - first or more, k + 2 or more)
    k = X.shape[1]
    for i in range(first, last):
        row, own, r = X[i], scaled[i - first], root[i]
        for j in range(k):
            own[j] = row[j] * r
        own[k], own[k + 1] = r, aim[i]


@njit(cache=True, nogil=True, fastmath=True)
def two_products(X: Floats, a: Floats, b: Floats, of_a: Floats, of_b: Floats) -> None:
    """X a and X b in one reading of X."""
    # X (n, k); a, b (k,); of_a, of_b (n,)
    for i in range(X.shape[0]):
        s, t = 0.0, 0.0
        for j in range(X.shape[1]):
            s += X[i, j] * a[j]
            t += X[i, j] * b[j]
        of_a[i], of_b[i] = s, t


@njit(cache=True, nogil=True)
def standardized(value: float, mean: float, scale: float, farthest: float) -> float:
    """A value in standard deviations from the mean, none too far; a blank, and what is constant, is the mean."""
    if np.isnan(value) or scale == 0.0:
        return 0.0
    return min(max((value - mean) / scale, -farthest), farthest)


@njit(cache=True, nogil=True)
def fill_sparse(
    matrix: Floats,
    mean: Floats,
    scale: Floats,
    farthest: float,
    base: Floats,
    offsets: Integers,
    column: NDArray[np.int32],
    value: Floats,
) -> None:
    """What is not 0 in each row: its column, and its standardized value less what a 0 is."""
    # matrix (n, k); mean, scale, base (k,); offsets (n + 1,); column, value (offsets[-1],)
    for i in range(matrix.shape[0]):
        at = offsets[i]
        for j in range(matrix.shape[1]):
            if matrix[i, j] != 0.0:
                column[at] = j
                value[at] = standardized(matrix[i, j], mean[j], scale[j], farthest) - base[j]
                at += 1


@njit(cache=True, nogil=True)
def add_sparse_sums(
    offsets: Integers,
    column: NDArray[np.int32],
    value: Floats,
    a: Floats,
    b: Floats,
    of_a: Floats,
    of_b: Floats,
) -> None:
    """Add to each row the products of what it holds with a and b, in one reading."""
    # a, b (k or more,); of_a, of_b (n,)
    for i in range(of_a.size):
        s, t = 0.0, 0.0
        for at in range(offsets[i], offsets[i + 1]):
            j = column[at]
            s += value[at] * a[j]
            t += value[at] * b[j]
        of_a[i] += s
        of_b[i] += t


@njit(cache=True, nogil=True)
def add_sparse_moments(
    offsets: Integers,
    column: NDArray[np.int32],
    value: Floats,
    a: Floats,
    b: Floats,
    of_a: Floats,
    of_b: Floats,
) -> None:
    """Add to each column the products of what it holds with a and b, in one reading."""
    # a, b (n,); of_a, of_b (k or more,)
    for i in range(a.size):
        for at in range(offsets[i], offsets[i + 1]):
            j = column[at]
            of_a[j] += value[at] * a[i]
            of_b[j] += value[at] * b[i]


@njit(cache=True, nogil=True)
def add_standard_sums(
    matrix: Floats,
    mean: Floats,
    scale: Floats,
    farthest: float,
    a: Floats,
    b: Floats,
    of_a: Floats,
    of_b: Floats,
) -> None:
    """Add to each row the products of its standardized values with a and b; nothing is written out in between."""
    # matrix (n, k); mean, scale (k,); a, b (k or more,); of_a, of_b (n,)
    for i in range(matrix.shape[0]):
        s, t = 0.0, 0.0
        for j in range(matrix.shape[1]):
            x = standardized(matrix[i, j], mean[j], scale[j], farthest)
            s += x * a[j]
            t += x * b[j]
        of_a[i] += s
        of_b[i] += t


@njit(cache=True, nogil=True)
def count_level(
    bins: Bins,
    target: Floats,
    node: NDArray[np.int32],
    feature: Integers,
    threshold: Integers,
    counted: NDArray[np.bool_],
    level: int,
    width: int,
    sums: Floats,
) -> None:
    """Send rows to their nodes of a level; sum target and count by feature and bin for the nodes that are counted.

    These are sums over rows, which blocks of rows may make apart. No room for sums: the rows only move.
    """
    # bins (n, n_features); target, node (n,); feature, threshold, counted (n_nodes,); sums (2^level or 0, ...)
    first = 2**level - 1
    for i in range(bins.shape[0]):
        at = int(node[i])
        if level > 0:
            if at < (first - 1) // 2 or feature[at] == LEAF:
                continue
            at = 2 * at + (2 if bins[i, int(feature[at])] > threshold[at] else 1)
            node[i] = at
        if sums.shape[0] == 0 or not counted[at]:
            continue
        own, g = sums[at - first], target[i]
        for f in range(bins.shape[1]):
            b = f * width + 2 * int(bins[i, f])
            own[b] += g
            own[b + 1] += 1.0


@njit(cache=True, nogil=True)
def choose_level(
    before: Floats,
    sums: Floats,
    n_bins: Integers,
    level: int,
    width: int,
    least: int,
    energy: float,
    feature: Integers,
    threshold: Integers,
    value: Floats,
    gain: Floats,
    size: Floats,
    counted: NDArray[np.bool_],
) -> None:
    """Split the nodes of a level: each split lowers the squared error most and leaves `least` rows on each side.

    What was not counted is what is left of the parent. Of two children the smaller one will be counted.
    """
    # before (2^(level-1), row), sums (2^level, row): by feature and bin; the others (n_nodes,)
    first, last = 2**level - 1, 2 ** (level + 1) - 1
    if level > 0:
        for child in range(first, last):
            parent = (child - 1) // 2
            if feature[parent] != LEAF and not counted[child]:
                sibling = child + 1 if child % 2 == 1 else child - 1
                for b in range(sums.shape[1]):
                    sums[child - first, b] = before[parent - (2 ** (level - 1) - 1), b] - sums[sibling - first, b]
    for at in range(first, last):
        if level > 0 and feature[(at - 1) // 2] == LEAF:
            continue
        if size[at] < 2 * least:
            continue
        whole, mass = value[at] * size[at], size[at]
        best, left_sum, left_size = ROUNDING * energy, 0.0, 0.0
        for f in range(n_bins.size):
            s, c = 0.0, 0.0
            for b in range(n_bins[f] - 1):
                s += sums[at - first, f * width + 2 * b]
                c += sums[at - first, f * width + 2 * b + 1]
                if c < least:
                    continue
                if mass - c < least:
                    break
                won = s * s / c + (whole - s) * (whole - s) / (mass - c) - whole * whole / mass
                if won > best * (1.0 + 1e-9):  # of equal splits the first
                    best, left_sum, left_size = won, s, c
                    feature[at], threshold[at] = f, b
        if feature[at] == LEAF:
            continue
        gain[at] = best
        left, right = 2 * at + 1, 2 * at + 2
        value[left], size[left] = left_sum / left_size, left_size
        value[right], size[right] = (whole - left_sum) / (mass - left_size), mass - left_size
        if left_size <= mass - left_size:
            counted[left] = True
        else:
            counted[right] = True


@njit(cache=True, nogil=True)
def fit_tree(
    bins: Bins,
    n_bins: Integers,
    target: Floats,
    depth: int,
    least: int,
    node: NDArray[np.int32],
    feature: Integers,
    threshold: Integers,
    value: Floats,
    gain: Floats,
) -> None:
    """Grow a regression tree level by level."""
    # bins (n, n_features); n_bins (n_features,); target, node (n,); feature, threshold, value, gain (2^(depth+1) - 1,)
    n, n_features = bins.shape
    width = 2 * int(np.max(n_bins))
    feature[:], threshold[:], value[:], gain[:] = LEAF, 0, 0.0, 0.0
    node[:] = 0
    size = np.zeros(feature.size)
    counted = np.zeros(feature.size, np.bool_)  # whose rows are summed; of others the parent's less the sibling's
    counted[0] = True
    total, energy = 0.0, 0.0
    for i in range(n):
        total += target[i]
        energy += target[i] * target[i]
    value[0], size[0] = total / n, n
    before = np.zeros((1, n_features * width))
    for level in range(depth):
        sums = np.zeros((2**level, n_features * width))
        count_level(bins, target, node, feature, threshold, counted, level, width, sums)
        choose_level(before, sums, n_bins, level, width, least, energy, feature, threshold, value, gain, size, counted)
        before = sums
    count_level(bins, target, node, feature, threshold, counted, depth, width, np.zeros((0, 0)))


@njit(cache=True, nogil=True)
def add_trees(matrix: Floats, feature: Integers, cut: Floats, value: Floats, rate: float, total: Floats) -> None:
    """Add `rate` times what every tree says of each row; a blank goes to the lower side."""
    # matrix (n, n_features); feature, cut, value (n_trees, n_nodes); total (n,)
    for i in range(total.size):
        said = 0.0
        for tree in range(feature.shape[0]):
            at = 0
            while feature[tree, at] != LEAF:
                at = 2 * at + (2 if matrix[i, feature[tree, at]] > cut[tree, at] else 1)
            said += value[tree, at]
        total[i] += rate * said


@njit(cache=True, nogil=True)
def bin_column(column: Floats, edges: Floats, bins: Bins) -> None:
    """The bin of every value: how many edges lie below it; a blank is in the first."""
    # column, bins (n,); edges (n_bins - 1,), ascending
    for i in range(column.size):
        low, high = 0, edges.size
        while low < high:
            middle = (low + high) // 2
            if column[i] > edges[middle]:
                low = middle + 1
            else:
                high = middle
        bins[i] = low
