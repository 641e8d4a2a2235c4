"""Sums over shards in a fixed binary tree, so that the result does not depend on which worker adds up which shards.

The sum of a range of shards is the sum of its first half plus that of its second half, so the tree depends only on the
number of shards. A worker adds up the largest subtrees within its range of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from crowdrank._typing import Arrays

Range = tuple[int, int]
"""Range of shards: index of the first shard, and index after the last one."""
T = TypeVar("T")
EXTRA_TREE_LEVELS = 3
"""Additional tree levels at whose boundaries a worker's range may end; more levels balance the ranges better."""


def tree_sum(statistics: Iterator[Arrays], n_summands: int) -> Arrays:
    """Return the sum of the next `n_summands` statistics in tree order, with few of them in memory at a time.

    >>> import numpy as np
    >>> tree_sum(({"n": np.ones(1)} for _ in range(5)), 5)
    {'n': array([5.])}
    """
    if n_summands == 1:
        return next(statistics)
    left = tree_sum(statistics, n_summands // 2)
    right = tree_sum(statistics, n_summands - n_summands // 2)
    for name, values in right.items():
        left[name] += values
    return left


def add_arrays(left: Arrays, right: Arrays) -> Arrays:
    """Return the sums of arrays of the same name, as new arrays."""
    return {name: values + right[name] for name, values in left.items()}


def subtrees(n_shards: int, shard_range: Range, searched_tree: Range | None = None) -> list[Range]:
    """Split a range of shards into the largest possible subtrees of the tree over `n_shards` shards, in order.

    >>> subtrees(8, (0, 4)), subtrees(8, (1, 8))
    ([(0, 4)], [(1, 2), (2, 4), (4, 8)])
    """
    first, last = searched_tree or (0, n_shards)
    if last <= shard_range[0] or shard_range[1] <= first:
        return []
    if shard_range[0] <= first and last <= shard_range[1]:
        return [(first, last)]
    middle = first + (last - first) // 2
    return subtrees(n_shards, shard_range, (first, middle)) + subtrees(n_shards, shard_range, (middle, last))


def combine_subtrees(subtree_sums: dict[Range, T], tree: Range, add: Callable[[T, T], T]) -> T:
    """Return the sum of a tree from the sums of its subtrees.

    >>> combine_subtrees({(0, 2): "ab", (2, 3): "c", (3, 4): "d"}, (0, 4), lambda one, other: f"({one}+{other})")
    '(ab+(c+d))'
    """
    if tree in subtree_sums:
        return subtree_sums[tree]
    middle = tree[0] + (tree[1] - tree[0]) // 2
    return add(
        combine_subtrees(subtree_sums, (tree[0], middle), add), combine_subtrees(subtree_sums, (middle, tree[1]), add)
    )


def balanced_ranges(n_shards: int, max_ranges: int) -> list[Range]:
    """Split `n_shards` shards into at most `max_ranges` ranges of similar length that consist of few subtrees.

    >>> balanced_ranges(38, 2), balanced_ranges(100, 3)
    ([(0, 19), (19, 38)], [(0, 34), (34, 65), (65, 100)])
    """
    n_ranges = max(1, min(n_shards, max_ranges))
    depth = n_ranges.bit_length() + EXTRA_TREE_LEVELS
    ends = [
        0,
        *(_nearest_boundary(n_shards, n_shards * number // n_ranges, depth) for number in range(1, n_ranges)),
        n_shards,
    ]
    return [(first, last) for first, last in pairwise(ends) if first < last]


def _nearest_boundary(n_shards: int, shard_index: int, max_depth: int) -> int:
    """Return the index nearest to a shard at which a subtree of at most this depth begins or ends."""
    first, last = 0, n_shards
    for _ in range(max_depth):
        middle = first + (last - first) // 2
        first, last = (first, middle) if shard_index < middle else (middle, last)
    return first if shard_index - first <= last - shard_index else last
