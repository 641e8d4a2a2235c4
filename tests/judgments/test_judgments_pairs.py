"""One index finds the rows of (query, document) pairs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from crowdrank.errors import InputError
from crowdrank.judgments import ids
from crowdrank.judgments.ids import MIN_ROWS_FOR_HASH_TABLE
from crowdrank.judgments.pair_index import PairIndex


@pytest.mark.parametrize("n_rows", [0, 1, 500, MIN_ROWS_FOR_HASH_TABLE])
@pytest.mark.parametrize("as_text", [True, False])
def test_positions_are_those_of_a_dictionary(n_rows: int, as_text: bool) -> None:
    rng = np.random.default_rng(0)
    n_queries, n_documents = 7, n_rows // 5 + 1
    table = rng.integers(0, (n_queries, n_documents), (n_rows, 2))
    wanted = rng.integers(0, (n_queries + 1, n_documents + 1), (300, 2))
    first: dict[tuple[int, ...], int] = {}
    for row, pair in enumerate(map(tuple, table.tolist())):
        first.setdefault(pair, row)
    columns = [pa.array(column.tolist(), pa.int64()).cast(pa.string() if as_text else pa.int64()) for column in table.T]
    index = PairIndex.from_ids(*columns)
    expected = [first.get(pair, -1) for pair in map(tuple, wanted.tolist())]
    wanted_ids = [pa.array(column.tolist()).cast(pa.string()) for column in wanted.T]
    assert index.positions(*wanted_ids).tolist() == expected
    coded = [ids.encode(pa.chunked_array([column])) for column in wanted_ids]
    assert index.positions(*coded).tolist() == expected
    assert index.first_rows.tolist() == list(first.values())
    assert index.first_rows[index.pair].tolist() == [first[pair] for pair in map(tuple, table.tolist())]


def test_missing_and_unknown_ids_have_no_position() -> None:
    index = PairIndex.from_ids(pa.array(["q", "r"]), pa.array(["a", "b"]))
    query, document = pa.array(["q", None, "r", "q", "q"]), pa.array(["a", "a", None, "b", "c"])
    assert index.positions(query, document).tolist() == [0, -1, -1, -1, -1]


def test_a_repeated_pair_is_an_error() -> None:
    query, document = pa.array(["q", "q", "r", "q", "q"]), pa.array(["a", "b", "b", "b", "a"])
    assert PairIndex.from_ids(query, document).repeated_row == 3
    with pytest.raises(InputError) as caught:
        PairIndex.from_unique_ids(query, document, "a.csv")
    assert caught.value.kind == "repeated-document"
    assert caught.value.location.source == "a.csv"
    assert PairIndex.from_unique_ids(query[:3], document[:3], "a.csv").repeated_row is None


def test_many_ids_match_like_few() -> None:
    names = pa.array([f"d{row}" for row in range(MIN_ROWS_FOR_HASH_TABLE)])
    wanted = pa.array(["d7", "nowhere", None, "d0", " "])
    assert ids.match(names, wanted).tolist() == ids.match(names[:10], wanted).tolist() == [7, -1, -1, 0, -1]
    repeated = pa.concat_arrays([names, names[5:6], pa.array([" "])])
    assert ids.match(repeated, pa.array(["d5", " "])).tolist() == [5, len(repeated) - 1]
