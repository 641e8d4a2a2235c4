"""Sums in a fixed tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdrank.engine.passes import balanced_ranges, combine_subtrees, subtrees, tree_sum


@given(n=st.integers(1, 200), n_ranges=st.integers(1, 20))
def test_sums_do_not_depend_on_the_ranges(n: int, n_ranges: int) -> None:
    ranges = balanced_ranges(n, n_ranges)
    assert [first for first, _ in ranges] + [n] == [0, *(last for _, last in ranges)]
    assert len(ranges) <= n_ranges
    values = np.random.default_rng(n).normal(size=n) * 10.0 ** np.arange(-100, 100)[:n]
    total = tree_sum(({"x": values[i : i + 1].copy()} for i in range(n)), n)["x"]
    sums = {}
    for shards in ranges:
        for first, last in subtrees(n, shards):
            statistics = ({"x": values[i : i + 1].copy()} for i in range(first, last))
            sums[first, last] = tree_sum(statistics, last - first)["x"]
    assert combine_subtrees(sums, (0, n), np.add) == total


@given(n=st.integers(64, 5000), n_ranges=st.integers(1, 8))
def test_ranges_are_balanced_and_have_few_subtrees(n: int, n_ranges: int) -> None:
    ranges = balanced_ranges(n, n_ranges)
    assert max(last - first for first, last in ranges) <= 1.2 * n / n_ranges + 2
    assert max(len(subtrees(n, shards)) for shards in ranges) <= 2 * (n_ranges.bit_length() + 3)
