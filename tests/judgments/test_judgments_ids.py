"""Which ids are the same, and notes about ids that look alike."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import read_judgments, read_partitions
from crowdrank.judgments import ids

COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")


def documents(values: Any) -> list[Any]:
    frame = pd.DataFrame({"document": values, "assessor": "x", "grade": [n % 2 for n in range(len(values))]})
    return list(read_judgments(frame, on_bad_rows="skip").documents.to_pylist())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "01"),
        ("1", "1.0"),
        ("01", "001"),
        ("a", "A"),
        ("a", "a "),
        ("a", " a"),
        (COMPOSED, DECOMPOSED),
        ("-1", "-01"),
    ],
)
def test_different_text_is_a_different_id(one: str, other: str) -> None:
    assert documents([one, other]) == [one, other]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1], [1]),
        ([1.0, 2.0], [1, 2]),
        ([1.0, np.nan, 2.0], [1, 2]),  # integers beside a blank are floats in pandas
        ([1.0, 1.5], ["1", "1.5"]),
        (["1", "1"], ["1"]),
        ([2**53 + 1, 2**53], [2**53 + 1, 2**53]),
    ],
)
def test_whole_numbers_are_the_same_in_any_type_of_column(values: list[Any], expected: list[Any]) -> None:
    assert documents(values) == expected


def test_numbers_and_text_of_two_tables_are_the_same_ids() -> None:
    judgments = read_judgments(pd.DataFrame({"document": [1.0, 2.0], "assessor": "x", "grade": [0, 1]}))
    position = judgments.positions(pa.array(["all"] * 4), pa.array(["1", "01", "1.0", "2"]))
    assert position.tolist() == [0, -1, -1, 1]


@pytest.mark.parametrize(
    ("values", "example"),
    [
        (["1", "01"], "'01' and '1'"),
        (["1", "1.0"], "'1' and '1.0'"),
        (["001", "01"], "'001' and '01'"),
        (["d1", "d1 "], "'d1' and 'd1 '"),
        ([COMPOSED, DECOMPOSED], r"'cafe\u0301' and 'caf\xe9'"),
        (["-07", "-7"], "'-07' and '-7'"),
        ([" 07.00", "7"], "' 07.00' and '7'"),
    ],
)
def test_ids_that_look_alike_are_noted(values: list[str], example: str) -> None:
    for role in ("query", "document", "assessor"):
        columns = {"query": "q", "document": ["a", "b"], "assessor": "x", "grade": [0, 1], role: values}
        (note,) = read_judgments(pd.DataFrame(columns)).report.notes
        assert (note.kind, note.severity, note.location.column) == ("ids-look-alike", "note", role)
        assert example in note.problem


@pytest.mark.parametrize("values", [["a", "A"], ["0", "10"], ["é", "e"], ["1.5", "1.50"], ["x01", "x1"], ["0a", "a"]])
def test_other_differences_are_not_noted(values: list[str]) -> None:
    frame = pd.DataFrame({"document": values, "assessor": "x", "grade": [0, 1]})
    assert not read_judgments(frame).report.notes


def test_a_note_counts_the_ids_and_names_the_column(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("docid,worker,label\n1,x,0\n01,x,1\n001,x,1\n2,x,1\n2.0,x,0\n3,x,1\n")
    (note,) = read_judgments(path).report.notes
    assert str(note) == (
        f"{path}, column 'docid': 3 document ids look like others, such as '001' and '01'; ids are compared exactly, "
        "so these are different."
    )


def test_look_alikes_in_different_shards_are_noted(tmp_path: Path) -> None:
    n = 40
    frame = pd.DataFrame({"query": [f"{i}" for i in range(n)] + [f"0{i}" for i in range(n)], "document": "d"})
    (tmp_path / "in").mkdir()
    frame.assign(assessor="x", grade=1).to_parquet(tmp_path / "in" / "a.parquet")
    judgments = read_partitions(tmp_path / "in", shard_size=8, work=tmp_path / "work")
    assert len(judgments.shards) > 3
    (note,) = judgments.report.notes
    assert note.problem.startswith(f"{n} query ids look like others, such as '0' and '00'")
    assert read_partitions(tmp_path / "in", shard_size=8, work=tmp_path / "work").report == judgments.report


TEXT = st.text(alphabet="01.- aé\u0301", min_size=1, max_size=6).filter(str.strip)


@given(st.lists(TEXT, min_size=1, max_size=30, unique=True))
def test_no_unusual_form_is_missed(values: list[str]) -> None:
    padded = pa.array(["some other ids before", *values])[1:]

    def usual(text: str) -> str:
        text = unicodedata.normalize("NFC", text).strip()
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        whole, point, zeros = digits.partition(".")
        is_number = whole.isdecimal() and (not point or (zeros and not zeros.strip("0")))
        return sign + (whole.lstrip("0") or "0") if is_number else text

    assert ids.unusual_forms(padded) == {text: usual(text) for text in values if usual(text) != text}
