"""Properties of any judgments: independent of the order, names and types of rows; repeats are resolved as in pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import read_judgments
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments import ids
from judgments_reference import Row, check, rows, table_of

NAMES = st.sampled_from(["a", "b", "c d", "Ü", "0", "00"])
CELLS = st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(0, 3)), min_size=1, max_size=25)
PAIR = ["query", "document"]
KEY = [*PAIR, "assessor"]


@given(CELLS, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_only_the_order(cells: list[Row], random: Any) -> None:
    frame = table_of(cells)
    shuffled = frame.sample(frac=1, random_state=random.randrange(2**32))
    one, other = (read_judgments(each, grades="0-3", repeats="keep") for each in (frame, shuffled))
    check(one)
    check(other)
    assert rows(one) == rows(other) == sorted(tuple(map(str, row)) for row in cells)


@given(CELLS)
def test_codes_are_in_order_of_first_appearance(cells: list[Row]) -> None:
    frame = table_of(cells)
    judgments = read_judgments(frame, grades="0-3")
    assert judgments.queries.to_pylist() == frame["query"].unique().tolist()
    assert judgments.documents.to_pylist() == frame["document"].unique().tolist()
    assert judgments.assessors.to_pylist() == frame["assessor"].unique().tolist()


@given(CELLS)
def test_other_names_for_the_ids_change_only_the_names(cells: list[Row]) -> None:
    frame = table_of(cells)
    renamed = frame.assign(**{role: frame[role].map(lambda name: f"new {name}") for role in KEY})
    one, other = read_judgments(frame, grades="0-3"), read_judgments(renamed, grades="0-3")
    for name in ("item_query", "item_document", "offsets", "assessor", "grade"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [f"new {name}" for name in one.documents.to_pylist()] == other.documents.to_pylist()


@pytest.mark.parametrize("keep", ["first", "last"])
@given(cells=CELLS)
def test_repeats_are_thinned_out_as_pandas_does(keep: Any, cells: list[Row]) -> None:
    frame = table_of(cells)
    judgments = read_judgments(frame, grades="0-3", repeats=keep)
    check(judgments)
    thin = frame.drop_duplicates(KEY, keep=keep)
    assert rows(judgments) == sorted(tuple(map(str, row)) for row in thin.itertuples(index=False))
    assert judgments.report.repeats == len(frame) - len(thin)
    assert judgments.report.rows == len(frame)


@given(CELLS)
def test_repeats_are_kept_or_refused_when_asked(cells: list[Row]) -> None:
    frame = table_of(cells)
    kept = read_judgments(frame, grades="0-3", repeats="keep")
    assert len(kept) == len(frame)
    again = frame.duplicated(KEY)
    assert kept.report.repeats == again.sum()
    if not again.any():
        assert rows(read_judgments(frame, grades="0-3", repeats="error")) == rows(kept)
        return
    with pytest.raises(InputError) as problem:
        read_judgments(frame, grades="0-3", repeats="error")
    assert (problem.value.kind, problem.value.fixes[0].parameter) == ("repeated-judgment", "repeats")
    places = [int(word) - 1 for word in problem.value.problem.replace(")", " ").split() if word.isdecimal()]
    second = int(np.argmax(again))
    first = int(np.argmax((frame[KEY] == frame.loc[second, KEY]).all(axis=1)))
    assert places == [first, second], "the first row that repeats another, and that one"


@given(CELLS)
def test_a_whole_table_is_sorted_by_query_and_document(cells: list[Row]) -> None:
    judgments = read_judgments(table_of(cells), grades="0-3", repeats="keep")
    frame = judgments.frame
    items = frame.drop_duplicates(PAIR)[PAIR]
    place = judgments.positions(pa.array(items["query"].to_list()), pa.array(items["document"].to_list()))
    assert place.tolist() == list(range(judgments.n_items))
    nowhere = judgments.positions(pa.array(["a", "nowhere", None]), pa.array(["nowhere", "a", "a"]))
    assert nowhere.tolist() == [-1, -1, -1]


@given(CELLS, st.integers(0, 2**25))
def test_where_keeps_the_rows_named(cells: list[Row], bits: int) -> None:
    judgments = read_judgments(table_of(cells).assign(cost=1.0), grades="0-3", repeats="keep")
    keep = np.array([bool(bits >> row & 1) for row in range(len(judgments))])
    if not keep.any():
        with pytest.raises(InputError, match="no judgment is left"):
            judgments.where(keep)
        return
    part = judgments.where(keep)
    check(part)
    assert rows(part) == sorted(tuple(map(str, row)) for row in judgments.frame[keep].itertuples(index=False))


TEXT = st.one_of(st.none(), st.text(max_size=4))
NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


@given(st.one_of(st.lists(TEXT), st.lists(NUMBERS)), st.integers(1, 4))
def test_encoding_and_decoding_is_the_identity(values: list[Any], n_chunks: int) -> None:
    kind = pa.string() if any(isinstance(value, str) for value in values) else pa.int64()
    size = len(values) // n_chunks + 1
    chunks = [pa.array(values[start : start + size], kind) for start in range(0, len(values), size)]
    codes, names = ids.encode(pa.chunked_array(chunks, kind))
    meant = [None if value is None or not str(value).strip() else value for value in values]
    assert [None if code < 0 else names[int(code)].as_py() for code in codes] == meant
    assert names.to_pylist() == list(dict.fromkeys(value for value in meant if value is not None))


@given(st.lists(TEXT), st.lists(TEXT), st.randoms(use_true_random=False))
def test_dictionary_columns_equal_plain_ones(values: list[Any], unused: list[Any], random: Any) -> None:
    entries = [*dict.fromkeys([*values, *unused]), *values[:1]]  # in an order of their own, some twice, some unused
    random.shuffle(entries)
    places = [None if value is None else entries.index(value) for value in values]
    half = len(values) // 2
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array(part, pa.int32()), pa.array(entries, pa.string()))
        for part in (places[:half], places[half:])
    ]
    codes, names = ids.encode(pa.chunked_array(chunks))
    plain_codes, plain_names = ids.encode(pa.chunked_array([values], pa.string()))
    np.testing.assert_array_equal(codes, plain_codes)
    assert names.equals(plain_names)


@given(CELLS)
def test_categories_equal_text(cells: list[Row]) -> None:
    frame = table_of(cells)
    plain = read_judgments(frame, grades="0-3")
    unused = ["zz", "b", "a", "c d", "00", "0", "Ü"]
    categories = frame.astype(dict.fromkeys(KEY, pd.CategoricalDtype(unused))).astype({"grade": "category"})
    enums = pl.DataFrame(frame.to_dict("list")).with_columns(pl.col(KEY).cast(pl.Enum(unused)))
    coded = pa.table({name: pa.array(frame[name].tolist()).dictionary_encode() for name in frame})
    for other in (categories, enums, enums.lazy(), coded, enums.with_columns(pl.col(KEY).cast(pl.Categorical))):
        judgments = read_judgments(other, grades="0-3")
        check(judgments)
        assert judgments.documents.equals(plain.documents)
        assert judgments.assessors.equals(plain.assessors)
        np.testing.assert_array_equal(judgments.grade, plain.grade)
        np.testing.assert_array_equal(judgments.assessor, plain.assessor)


@given(st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=2))), st.lists(st.integers(-5, 5), unique=True))
def test_match_finds_ids_as_text(wanted: list[Any], known: list[int]) -> None:
    column = pa.array([str(value) for value in wanted], pa.string())
    names = [str(value) for value in known]
    expected = [names.index(value) if value in names else -1 for value in column.to_pylist()]
    assert ids.match(pa.array(known, pa.int64()), column).tolist() == expected


def test_an_empty_column_of_families_is_none() -> None:
    frame = pd.DataFrame({"document": "d", "assessor": ["gpt_p1", "ann"], "grade": [0, 1]})
    empty = frame.assign(family=pd.Series([None, None], dtype=object))
    assert read_judgments(empty).families is None
    assert read_judgments(empty).family_of.tolist() == [0, 1]
    judgments = read_judgments(empty, family_pattern="(.*)_p")
    assert judgments.to_arrow()["family"].to_pylist() == ["gpt", None]
    assert judgments.select_assessors(np.array([1])).families is None
    both = judgments.select_assessors(np.array([1, 0]))
    assert both.families is not None
    assert both.families.to_pylist() == ["gpt"]


def test_an_id_may_tell_the_family() -> None:
    frame = pd.DataFrame({"document": "d", "assessor": ["gpt_p1", "gpt_p2", "llama_p1", "ann"], "grade": [0, 1, 1, 0]})
    judgments = read_judgments(frame, family_pattern=r"(.*)_p\d+")
    assert judgments.to_arrow()["family"].to_pylist() == ["gpt", "gpt", "llama", None]
    assert judgments.family_of.tolist() == [0, 0, 1, 2]
    with pytest.raises(InputError, match="the first id is 'gpt_p1'") as problem:
        read_judgments(frame, family_pattern="x")
    assert (problem.value.kind, problem.value.fixes[0].parameter) == ("no-family", "family_pattern")
    with pytest.raises(UsageError, match="family_pattern is '\\(', which is not a regular expression"):
        read_judgments(frame, family_pattern="(")
