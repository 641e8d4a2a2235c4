"""Kernels that encode ids and sort judgments, compared with NumPy and Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank.judgments import ids
from crowdrank.readers.merge import group_rows, remove_rows

CODES = st.lists(st.integers(0, 4), max_size=30)


def codes_of(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=40))
def test_rows_are_grouped_by_query_and_document_in_order_of_appearance(cells: list[tuple[int, int]]) -> None:
    query, document = (codes_of([cell[side] for cell in cells]) for side in (0, 1))
    items: dict[int, dict[int, list[int]]] = {}
    for row in range(len(cells)):
        items.setdefault(int(query[row]), {}).setdefault(int(document[row]), []).append(row)
    grouped = [same for q in sorted(items) for same in items[q].values()]
    order, offsets = ids.group_rows(query, document, 4, 5)
    assert order.tolist() == [row for same in grouped for row in same]
    assert offsets.tolist() == np.cumsum([0, *map(len, grouped)]).tolist()


@given(CODES)
def test_rows_are_grouped_by_code(values: list[int]) -> None:
    codes = codes_of(values)
    order, ends = np.empty(len(codes), np.int32), np.zeros(6, np.int64)
    first = [values.index(code) for code in range(5) if code in values]
    if ids.group_by_code(codes, order, ends):
        assert len(first) == 5
        assert first == sorted(first)
        assert order.tolist() == np.argsort(codes, kind="stable").tolist()
        assert ends[:-1].tolist() == np.cumsum(np.bincount(codes)).tolist()
    else:
        assert len(first) < 5 or first != sorted(first)


@pytest.mark.parametrize("drop", [None, 0, 3])
def test_one_query_is_grouped_like_several(drop: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    document = codes_of([0, 1, 0, 2, 1, 3, 0])
    document = document if drop is None else np.delete(document, drop)
    arguments = np.zeros(len(document), np.int32), document, 1, 4
    expected = group_rows(*arguments)
    monkeypatch.setattr(ids, "MIN_ROWS_FOR_HASH_TABLE", 0)
    found = group_rows(*arguments)
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tolist() == expected[1].tolist()


@given(CODES)
def test_first_rows_are_the_first_of_each_code(values: list[int]) -> None:
    codes = codes_of([value - 1 for value in values])
    first = ids.first_rows(codes, 4)
    assert first.tolist() == [values.index(code) if code in values else -1 for code in (1, 2, 3, 4, 0)]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=8))
def test_repeated_leaves_the_first_or_the_last(items: list[list[int]]) -> None:
    offsets = np.append(0, np.cumsum([len(item) for item in items])).astype(np.int64)
    assessor = codes_of([code for item in items for code in item])
    first = [code in item[:at] for item in items for at, code in enumerate(item)]
    last = [code in item[at + 1 :] for item in items for at, code in enumerate(item)]
    order = np.arange(len(assessor), dtype=np.int32)
    grade = assessor.astype(np.int8) // 2
    for keep_last, expected in ((False, first), (True, last)):
        is_repeat, counts = ids.find_repeats(offsets, assessor, grade, 4, keep_last)
        assert is_repeat.tolist() == expected
        assert counts[:, 0].tolist() == np.bincount(assessor[np.array(first, dtype=bool)], minlength=4).tolist()
        assert (counts[:, 1] == counts[:, 0]).all()  # the grade depends on the assessor
    kept, bounds = remove_rows(order, offsets, np.array(last, dtype=bool))
    assert kept.tolist() == [row for row, out in enumerate(last) if not out]
    assert np.diff(bounds).tolist() == [len(set(item)) for item in items]


def coded(column: pa.Array) -> tuple[list[int], list[object]]:
    """Codes and ids by the kernels, however short the column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "MIN_ROWS_FOR_HASH_TABLE", 0)
        codes, names = ids._encode_array(column)
    return codes.tolist(), names.to_pylist()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60), st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_are_coded_as_arrow_codes_them(values: list[str], kind: pa.DataType) -> None:
    column = pa.array(values + values[::2], kind)
    expected = column.dictionary_encode()
    assert coded(column) == (expected.indices.to_pylist(), expected.dictionary.to_pylist())
    assert coded(column.slice(1)) == coded(pa.array(column.slice(1).to_pylist(), kind))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60) | st.lists(st.integers(-9, 9), min_size=1))
def test_numbers_are_coded_as_arrow_codes_them(values: list[int]) -> None:
    column = pa.array(values + values[::2], pa.int64())
    expected = column.dictionary_encode()
    assert coded(column) == (expected.indices.to_pylist(), expected.dictionary.to_pylist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "MIN_ROWS_FOR_HASH_TABLE", 0)
        found = ids.encode_range(pa.chunked_array([column.slice(0, 1), column.slice(1)]))
    assert (found is None) == (max(values) - min(values) >= 4 * len(column))
    if found is not None:
        assert found[0].tolist() == expected.indices.to_pylist()
        assert found[1].equals(expected.dictionary)


def test_many_ids_grow_the_table() -> None:
    rng = np.random.default_rng(0)
    column = pa.array([f"id-{number}" for number in rng.integers(0, 60_000, 200_000)])
    expected = column.dictionary_encode()
    codes, names = coded(column)
    assert codes == expected.indices.to_pylist()
    assert names == expected.dictionary.to_pylist()


def test_texts_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "hash_text", lambda offsets, data, words, hashes: hashes.fill(7))
    column = pa.array(["a", "b", "a", "c"])
    assert coded(column) == ([0, 1, 0, 2], ["a", "b", "c"])
