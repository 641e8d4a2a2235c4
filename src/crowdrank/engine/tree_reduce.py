"""Sums over shards in a fixed binary tree: the same shards give the same bytes wherever parts of the sum are computed.

The sum of a range of shards is the sum of its first half plus that of its second half, so the tree depends only on the
number of shards. A worker adds up the largest subtrees within its range of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from crowdrank._typing import Arrays

Range = tuple[int, int]
"""First shard and end (exclusive) of a range."""
T = TypeVar("T")
EXTRA_LEVELS = 3
"""Number of tree levels below one range per worker at which ranges may end; more levels balance the ranges better."""


def tree_sum(statistics: Iterator[Arrays], n: int) -> Arrays:
    """Return the sum of the next `n` statistics, added up in place; only a few are in memory at a time.

    >>> import numpy as np
    >>> tree_sum(({"n": np.ones(1)} for _ in range(5)), 5)
    {'n': array([5.])}
    """
    if n == 1:
        return next(statistics)
    left = tree_sum(statistics, n // 2)
    right = tree_sum(statistics, n - n // 2)
    for name, values in right.items():
        left[name] += values
    return left


def add_arrays(left: Arrays, right: Arrays) -> Arrays:
    """Return the sum of two statistics as new arrays."""
    return {name: values + right[name] for name, values in left.items()}


def subtrees(n: int, shards: Range, tree: Range | None = None) -> list[Range]:
    """Return the largest subtrees of the tree over `n` shards that make up a range of shards, in order.

    >>> subtrees(8, (0, 4)), subtrees(8, (1, 8))
    ([(0, 4)], [(1, 2), (2, 4), (4, 8)])
    """
    first, last = tree or (0, n)
    if last <= shards[0] or shards[1] <= first:
        return []
    if shards[0] <= first and last <= shards[1]:
        return [(first, last)]
    middle = first + (last - first) // 2
    return subtrees(n, shards, (first, middle)) + subtrees(n, shards, (middle, last))


def combine_subtrees(sums: dict[Range, T], tree: Range, add: Callable[[T, T], T]) -> T:
    """Return the sum of a tree from the sums of its subtrees.

    >>> combine_subtrees({(0, 2): "ab", (2, 3): "c", (3, 4): "d"}, (0, 4), lambda one, other: f"({one}+{other})")
    '(ab+(c+d))'
    """
    if tree in sums:
        return sums[tree]
    middle = tree[0] + (tree[1] - tree[0]) // 2
    return add(combine_subtrees(sums, (tree[0], middle), add), combine_subtrees(sums, (middle, tree[1]), add))


def balanced_ranges(n: int, max_ranges: int) -> list[Range]:
    """Split `n` shards into ranges of about the same length that consist of few subtrees.

    >>> balanced_ranges(38, 2), balanced_ranges(100, 3)
    ([(0, 19), (19, 38)], [(0, 34), (34, 65), (65, 100)])
    """
    n_ranges = max(1, min(n, max_ranges))
    depth = n_ranges.bit_length() + EXTRA_LEVELS
    ends = [0, *(_nearest_boundary(n, n * number // n_ranges, depth) for number in range(1, n_ranges)), n]
    return [(first, last) for first, last in pairwise(ends) if first < last]


def _nearest_boundary(n: int, shard: int, depth: int) -> int:
    """Return the boundary of subtrees of at most some depth that is nearest to a shard."""
    first, last = 0, n
    for _ in range(depth):
        middle = first + (last - first) // 2
        first, last = (first, middle) if shard < middle else (middle, last)
    return first if shard - first <= last - shard else last
