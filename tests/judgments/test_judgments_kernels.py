"""The kernels that sort and thin out judgments, against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank.judgments import kernels

CODES = st.lists(st.integers(0, 4), max_size=30)


def codes_of(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


@given(CODES, st.randoms(use_true_random=False))
def test_order_by_is_a_stable_sort(values: list[int], random: np.random.Generator) -> None:
    codes = codes_of(values)
    before = np.array([row for row in range(len(values)) if random.random() < 0.7], dtype=np.int64)
    random.shuffle(before)
    expected = before[np.argsort(codes[before], kind="stable")]
    np.testing.assert_array_equal(kernels.order_by(codes, before, 5), expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_item_offsets_are_where_pairs_change(pairs: list[tuple[int, int]]) -> None:
    query, document = (codes_of([pair[side] for pair in pairs]) for side in (0, 1))
    order = np.lexsort((document, query))
    offsets = kernels.item_offsets(query, document, order)
    _, counts = np.unique(np.column_stack([query, document]), axis=0, return_counts=True)
    np.testing.assert_array_equal(offsets, np.append(0, np.cumsum(counts)))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=8))
def test_repeated_leaves_the_first_or_the_last(items: list[list[int]]) -> None:
    offsets = np.append(0, np.cumsum([len(item) for item in items])).astype(np.int64)
    assessor = codes_of([code for item in items for code in item])
    first = [code in item[:at] for item in items for at, code in enumerate(item)]
    last = [code in item[at + 1 :] for item in items for at, code in enumerate(item)]
    assert kernels.repeated(offsets, assessor, 4, False).tolist() == first
    assert kernels.repeated(offsets, assessor, 4, True).tolist() == last
