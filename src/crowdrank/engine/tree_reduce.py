"""Sums over shards in one fixed tree, so that the same shards give the same bytes wherever the parts are added.

The tree is halves of halves: the sum of shards first..last is that of its first half plus that of the rest. It depends
on the number of shards alone. Whoever holds a run of shards adds up the largest subtrees within it (`subtrees`), and
what is left are sums of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from crowdrank._typing import Arrays

Run = tuple[int, int]
"""Shards from the first up to, not including, the second."""
T = TypeVar("T")
FINER = 3
"""So many levels below the runs their ends are looked for: runs differ by an eighth or so, and are few subtrees."""


def tree_sum(statistics: Iterator[Arrays], n: int) -> Arrays:
    """The sum of the next `n` statistics, in place of the first of every two; few are held at a time.

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


def added(left: Arrays, right: Arrays) -> Arrays:
    """The sum of two as new arrays: for those who may be asked for either again."""
    return {name: values + right[name] for name, values in left.items()}


def subtrees(n: int, run: Run, tree: Run | None = None) -> list[Run]:
    """The largest subtrees of the tree over `n` shards that a run of shards is made of, in order.

    >>> subtrees(8, (0, 4)), subtrees(8, (1, 8))
    ([(0, 4)], [(1, 2), (2, 4), (4, 8)])
    """
    first, last = tree or (0, n)
    if last <= run[0] or run[1] <= first:
        return []
    if run[0] <= first and last <= run[1]:
        return [(first, last)]
    middle = first + (last - first) // 2
    return subtrees(n, run, (first, middle)) + subtrees(n, run, (middle, last))


def joined(sums: dict[Run, T], tree: Run, add: Callable[[T, T], T]) -> T:
    """The sum of a tree from those of its subtrees.

    >>> joined({(0, 2): "ab", (2, 3): "c", (3, 4): "d"}, (0, 4), lambda one, other: f"({one}+{other})")
    '(ab+(c+d))'
    """
    if tree in sums:
        return sums[tree]
    middle = tree[0] + (tree[1] - tree[0]) // 2
    return add(joined(sums, (tree[0], middle), add), joined(sums, (middle, tree[1]), add))


def parts(n: int, among: int) -> list[Run]:
    """`n` shards in runs of about the same length, at most `among`; their ends are such that subtrees are few.

    >>> parts(38, 2), parts(100, 3)
    ([(0, 19), (19, 38)], [(0, 34), (34, 65), (65, 100)])
    """
    among = max(1, min(n, among))
    depth = among.bit_length() + FINER
    ends = [0, *(_end_near(n, n * number // among, depth) for number in range(1, among)), n]
    return [(first, last) for first, last in pairwise(ends) if first < last]


def _end_near(n: int, wanted: int, depth: int) -> int:
    """The end of a subtree down to some depth that is nearest to a shard."""
    first, last = 0, n
    for _ in range(depth):
        middle = first + (last - first) // 2
        first, last = (first, middle) if wanted < middle else (middle, last)
    return first if wanted - first <= last - wanted else last
