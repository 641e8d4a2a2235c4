# ruff: noqa: E501 - one case per line
"""Errors about bad input give file, row, column and value."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdrank import read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError, InputError, UsageError

HEADER = "query,document,assessor,grade\n"
GOOD = HEADER + "q,a,x,0\nq,b,y,1\n"


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"document": ["a"], "assessor": ["x"], "grade": [0], **columns}), sink)
    return sink.getvalue()


def assert_about(error: InputError, expected: str) -> None:
    """Assert the location of an error, and that its problem starts with some words."""
    location, _, words = expected.partition(": ")
    assert str(error.location) == location
    assert error.problem.startswith(words)
    assert error.fixes
    assert "\n" not in str(error)


@dataclass(frozen=True)
class Case:
    """A file, the location of the error (FILE is its path), and the first words of the problem."""

    name: str
    content: str | bytes
    expected: str
    options: dict[str, Any] = field(default_factory=dict)
    read: Callable[..., Any] = read_judgments
    file: str = "labels.csv"
    kind: str | None = None

    def __str__(self) -> str:
        return self.name


CASES = [
    # Files without rows.
    Case("empty", "", "FILE: ", kind="no-rows"),
    Case("blank", "\n\n", "FILE: ", kind="no-rows"),
    Case("header only", HEADER, "FILE: ", kind="no-rows"),
    Case("header only, no line end", HEADER.strip(), "FILE: ", kind="no-rows"),
    Case("empty tsv", "", "FILE: ", file="labels.tsv", kind="no-rows"),
    Case("empty jsonl", "\n", "FILE: ", file="labels.jsonl", kind="no-rows"),
    Case("empty objects", "{}\n{}", "FILE: ", file="labels.jsonl", kind="no-rows"),
    Case("empty qrels", "", "FILE: ", file="a.qrels", read=read_gold, kind="no-rows"),
    Case("empty letor", "# nothing\n", "FILE: ", file="a.letor", read=read_features, kind="no-rows"),
    Case("empty run", "", "FILE: ", file="a.run", read=read_run, kind="no-rows"),
    Case("empty parquet", parquet()[:0], "FILE: ", file="a.parquet", kind="no-rows"),
    Case("empty packed", gzip.compress(b""), "FILE: ", file="labels.csv.gz", kind="no-rows"),
    Case("parquet without rows", parquet(document=pa.array([], pa.string()), assessor=pa.array([], pa.string()), grade=pa.array([], pa.int64())), "FILE: ", file="a.parquet", kind="no-rows"),
    Case("features without rows", "document,bm25\n", "FILE: ", read=read_features, kind="no-rows"),
    Case("run without rows", "document,score\n", "FILE: ", read=read_run, kind="no-rows"),
    # Wrong encodings.
    Case("latin-1 cell", GOOD.encode().replace(b"q,b", b"q,\xe9"), "FILE, line 3: ", kind="encoding"),
    Case("latin-1 header", b"\xe9t\xe9," + GOOD.encode(), "FILE, line 1: ", kind="encoding"),
    Case("latin-1 jsonl", b'{"document": 1}\n{"document": "\xe9"}', "FILE, line 2: ", file="a.jsonl", kind="encoding"),
    Case("latin-1 qrels", b"1 0 a 1\n1 0 \xe9 1\n", "FILE, line 2: ", file="a.qrels", read=read_gold, kind="encoding"),
    Case("latin-1 letor", b"1 qid:1 1:2 # docid = \xe9\n", "FILE, line 1: ", file="a.letor", read=read_features, kind="encoding"),
    Case("latin-1 exclude", GOOD, "EXCLUDE, line 2: ", {"exclude": b"x\n\xe9\n"}, kind="encoding"),
    # Damaged files.
    Case("truncated gzip", gzip.compress(GOOD.encode() * 50)[:-20], "FILE: ", file="labels.csv.gz", kind="damaged"),
    Case("truncated xz", lzma.compress(GOOD.encode() * 50)[:-20], "FILE: ", file="labels.csv.xz", kind="damaged"),
    Case("truncated bz2", bz2.compress(GOOD.encode() * 50)[:-20], "FILE: ", file="labels.csv.bz2", kind="damaged"),
    Case("truncated parquet", parquet()[:-9], "FILE: ", file="a.parquet", kind="damaged"),
    Case("binary named parquet", bytes(range(256)), "FILE: ", file="a.parquet", kind="damaged"),
    Case("csv named jsonl", GOOD, "FILE, line 1: 'query,document,assessor,grade'", file="a.jsonl"),
    Case("web page", "\n<!DOCTYPE html>\n<html>sign in, please</html>", "FILE: it is an HTML page", kind="other-format"),
    Case("web page, packed", gzip.compress(b"<HTML><body>"), "FILE: it is an HTML page", file="labels.csv.gz", kind="other-format"),
    Case("binary", bytes(range(128, 256)) * 4, "FILE, line 1: ", kind="encoding"),
    # Columns.
    Case("two missing", "a,grade\nq,1\n", "FILE: there is no column for document;", kind="no-column"),
    Case("doubled column", "document,document,assessor,grade\na,b,x,1\n", "FILE: the column 'document' occurs twice"),
    Case("mapped to nothing", GOOD, "FILE: there is no column 'docs' for", {"columns": "document=docs"}, kind="no-column"),
    Case("case only differs", "Document,DOCUMENT,worker,label\na,b,x,1\n", "FILE: the columns 'Document', 'DOCUMENT' could each", kind="ambiguous-column"),
    Case("many columns", ",".join(f"c{n}" for n in range(14)) + "\n", "FILE: there is no column for document", kind="no-column"),
    Case("no feature", "query,document\nq,d\n", "FILE: there is no feature column", read=read_features),
    Case("no score", "1 0 a 1\n", "FILE: there is no column for score;", file="a.qrels", read=read_run, kind="no-column"),
    Case("rf10 without gold", "topicID\tworkerID\tdocID\tlabel\n1\tw\td\t1\n", "FILE: there is no column 'gold'", {"format": "trec-rf10"}),
    Case("rf10 of another layout", GOOD.replace(",", "\t").replace("query", "gold"), "FILE: there is no column 'topicID' for", {"format": "trec-rf10"}, kind="no-column"),
    # Lines.
    Case("short line", GOOD + "q,c\n", "FILE, row 3 (line 4): there are 2 cells where the"),
    Case("long line", GOOD + "q,c,x,1,1\n", "FILE, row 3 (line 4): there are 5 cells where the"),
    Case("quote over lines", GOOD + 'q,"c,x,1\nq,d,x,"1\nq,e,x,1\n', "FILE, row 3 (line 4): there are 2 cells where the"),
    Case("stray quote", GOOD + 'q,"c,x,1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never"),
    Case("stray quote in the last column", GOOD + 'q,c,x,"1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never"),
    Case("stray quote, skipping", GOOD + 'q,"c,x,1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never", {"on_bad_rows": "skip"}),
    Case("short qrels", "1 0 a 1\n\n1 a 1\n", "FILE, line 3: there are 3 words where 4", file="a.qrels", read=read_gold),
    Case("one word", "1\n", "FILE, line 1: there is 1 word where 6", file="a.run", read=read_run),
    Case("not json", '{"document": "a", "assessor": "x", "grade": 1}\n\n{"document"\n', 'FILE, line 3: \'{"document"\'', file="a.jsonl"),
    Case("json but no object", '{"document": "a", "assessor": "x", "grade": 1}\n[1]\n', "FILE, line 2: the line is JSON but not", file="a.jsonl"),
    Case("letor without qid", "1 1:2\n", "FILE, line 1: there is no qid:NUMBER after the", file="a.letor", read=read_features),
    Case("letor, not a feature", "1 qid:1 1:2\n1 qid:1 1:2:3 4\n", "FILE, line 2: '1:2:3'", file="a.letor", read=read_features),
    Case("letor, from nought", "1 qid:1 0:2\n", "FILE, line 1: '0:2'", file="a.letor", read=read_features),
    Case("letor, infinite", "1 qid:1 1:inf\n", "FILE, line 1: '1:inf'", file="a.letor", read=read_features),
    Case("letor, twice", "1 qid:1 1:2 1:2\n", "FILE, line 1: a feature occurs twice", file="a.letor", read=read_features),
    Case("letor, named grade", "good qid:1 1:2\n", "FILE, line 1, column 'grade': 'good'", file="a.letor", read=read_features, kind="not-a-number"),
    # Ids.
    Case("no document", GOOD + "q, ,x,1\n", "FILE, row 3 (line 4), column 'document': the document is missing"),
    Case("no query", GOOD + ",c,x,1\n", "FILE, row 3 (line 4), column 'query': the query is missing"),
    Case("no assessor", "task,worker,label\na,,1\n", "FILE, row 1 (line 2), column 'worker': the assessor is missing"),
    Case("json ids of two kinds", '{"document": "a", "assessor": "x", "grade": 1}\n\n{"document": 7, "assessor": "x", "grade": 1}', "FILE, row 2 (line 3), column 'document': 7", file="a.jsonl"),
    Case("json grades of two kinds", '{"document": 1, "assessor": 1, "grade": 1}\n{"document": 7, "assessor": 2, "grade": true}', "FILE, row 2 (line 2), column 'grade': True has another type than the", file="a.jsonl"),
    Case("a list as an id", '{"document": [1], "assessor": "x", "grade": 1}', "FILE, row 1 (line 1), column 'document': [1]", file="a.jsonl"),
    Case("json id half a character", '{"document": "\\ud800", "assessor": "x", "grade": 1}', "FILE, row 1 (line 1), column 'document': '\\ud800'", file="a.jsonl"),
    Case("parquet list", parquet(document=[["a"]]), "FILE, column 'document': its cells are of type list<element:", file="a.parquet"),
    Case("parquet bytes", parquet(document=[b"\xff"]), "FILE, column 'document': its bytes are not UTF-8 text", file="a.parquet"),
    Case("feature without document", "document,bm25\na,1\n,2\n", "FILE, row 2 (line 3), column 'document': the document is missing", read=read_features),
    Case("run without document", "docid,score\na,1\n,2\n", "FILE, row 2 (line 3), column 'docid': the document is missing", read=read_run),
    # Grades.
    Case("not a number", GOOD + "q,c,x,good\n", "FILE, row 3 (line 4), column 'grade': 'good'"),
    Case("not whole", GOOD + "q,c,x,1.5\n", "FILE, row 3 (line 4), column 'grade': '1.5'"),
    Case("blank grade", GOOD + "q,c,x,\n", "FILE, row 3 (line 4), column 'grade': the grade is missing"),
    Case("NaN grade", GOOD + "q,c,x,NaN\n", "FILE, row 3 (line 4), column 'grade': the grade is missing"),
    Case("infinite grade", GOOD + "q,c,x,inf\n", "FILE, row 3 (line 4), column 'grade': 'inf'"),
    Case("off the scale", GOOD + "q,c,x,7\n", "FILE, row 3 (line 4), column 'grade': the grade 7", {"grades": "0-3"}),
    Case("below the scale", GOOD + "q,c,x,-2\n", "FILE, row 3 (line 4), column 'grade': the grade -2"),
    Case("too large", GOOD + "q,c,x,200\nq,d,x,5000\n", "FILE, row 3 (line 4), column 'grade': 200"),
    Case("not a name", GOOD.replace(",0", ",bad").replace(",1", ",Super"), "FILE, row 2 (line 3), column 'grade': the grade 'Super'", {"grades": "Bad,Good"}),
    Case("a long value", GOOD + f"q,c,x,{'y' * 500}\n", "FILE, row 3 (line 4), column 'grade': 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy..."),
    Case("value of two lines", GOOD + 'q,c,x,"a\nb"\nq,d,x,1\n', "FILE, row 3 (line 4), column 'grade': 'a\\nb'"),
    Case("qrels grade", "1 0 a 1\n\n1 0 b x\n", "FILE, line 3, column 'grade': 'x'", file="a.qrels", read=read_gold),
    Case("json grade", '{"document": "a", "assessor": "x", "grade": 1.5}', "FILE, row 1 (line 1), column 'grade': 1.5", file="a.jsonl"),
    Case("parquet grade", parquet(grade=[1.5]), "FILE, row 1, column 'grade': 1.5", file="a.parquet"),
    Case("contradicting gold", "1 0 a 1\n1 0 b 1\n1 0 a 0\n", "FILE: the document 'a' of query '1'", file="a.qrels", read=read_gold, kind="contradictory-grades"),
    Case("rf10 gold", "topicID\tworkerID\tdocID\tgold\tlabel\n1\tw\td\t-1\t1\n1\tw\te\tx\t1\n", "FILE, row 2 (line 3), column 'gold': 'x'", {"format": "trec-rf10"}, read_gold),
    Case("twice", GOOD + "q,a,x,1\n", "FILE: one assessor judged one document twice", {"repeats": "error"}),
    # Extra columns.
    Case("a time that is none", "document,assessor,grade,time\na,x,1,2024-05-31\nb,x,1,yesterday\n", "FILE, row 2 (line 3), column 'time': 'yesterday'"),
    Case("a cost below nought", "document,assessor,grade,price\na,x,1,-1\n", "FILE, row 1 (line 2), column 'price': '-1'"),
    Case("an endless duration", "document,assessor,grade,duration\na,x,1,inf\n", "FILE, row 1 (line 2), column 'duration': 'inf'"),
    Case("a honeypot off the scale", "document,assessor,grade,honeypot\na,x,1,\nb,x,1,9\n", "FILE, row 2 (line 3), column 'honeypot': the grade 9"),
    Case("two families", "document,assessor,grade,family\na,x,1,f\nb,x,1,\nc,x,1,g\n", "FILE, row 3 (line 4), column 'family': the assessor 'x'"),
    Case("a feature that is no number", "document,bm25\na,1\nb,x\n", "FILE, row 2 (line 3), column 'bm25': 'x'", read=read_features, kind="not-a-number"),
    Case("an infinite feature", "document,bm25\na,1\nb,inf\n", "FILE, row 2 (line 3), column 'bm25': 'inf'", read=read_features, kind="not-a-number"),
    Case("no score in a run", "document,bm25\na,1\nb,\n", "FILE, row 2 (line 3), column 'bm25': the cell is empty", {"columns": "score=bm25"}, read_run, kind="missing-cell"),
    Case("NaN in a run", "document,score\na,nan\n", "FILE, row 1 (line 2), column 'score': 'nan'", read=read_run, kind="not-a-number"),
    # Skipping everything.
    Case("nothing left", HEADER + "q,a,,1\nq,,x,1\nq,c\n", "FILE: no row can be used", {"on_bad_rows": "skip"}),
    Case("nobody left", GOOD, "FILE: no row can be used", {"exclude": ["x", "y"]}),
    Case("no qrels line left", "1 0\n", "FILE: no row can be used", {"on_bad_rows": "skip"}, read_gold, "a.qrels"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_error_about_a_file(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.file
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    options = dict(case.options)
    if isinstance(options.get("exclude"), bytes):
        (tmp_path / "exclude.txt").write_bytes(options["exclude"])
        options["exclude"] = tmp_path / "exclude.txt"
    with pytest.raises(InputError) as caught:
        case.read(path, **options)
    assert_about(
        caught.value, case.expected.replace("EXCLUDE", str(tmp_path / "exclude.txt")).replace("FILE", str(path))
    )
    assert case.kind in (None, caught.value.kind)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_are_counted_with_blank_lines_quotes_and_rows_left_out(ending: str, tmp_path: Path) -> None:
    text = '\n\ndocument,assessor,grade\n\na,x,1\n"b\n\nb",x,0\nshort\n\nc,x,1\n"d","x\ny",1\nshort\ne,,1\nf,x,bad\n'
    path = tmp_path / "labels.csv"
    path.write_bytes(text.replace("\n", ending).encode())
    judgments = read_judgments(path, on_bad_rows="skip")
    assert judgments.report.rows == 8
    assert judgments.report.skipped == {"malformed line": 2, "no assessor": 1, "grade off the scale": 1}
    assert [str(message.location) for message in judgments.report.examples.values()] == [
        f"{path}, row 3 (line 9)",
        f"{path}, row 7 (line 15), column 'assessor'",
        f"{path}, row 8 (line 16), column 'grade'",
    ]
    assert len(judgments) == 4


def test_skipped_rows_are_counted_by_reason() -> None:
    frame = pd.DataFrame(
        {
            "document": ["a", None, "c", "d", "e", "f", "g"],
            "assessor": ["x", "x", "", "y", "z", "x", "x"],
            "grade": [1, 1, 1, 9, None, 0, 2],
            "cost": [1, 1, 1, 1, 1, -5, 1],
        }
    )
    judgments = read_judgments(frame, on_bad_rows="skip", grades="0-3")
    expected = {"no document": 1, "no assessor": 1, "no grade": 1, "grade off the scale": 1, "cost not a number": 1}
    assert judgments.report.skipped == expected
    assert judgments.report.rows == 7
    assert judgments.documents.to_pylist() == ["a", "g"]
    assert judgments.assessors.to_pylist() == ["x"]
    assert str(judgments.report.examples["no document"].location) == "the frame, row 2, column 'document'"


def test_a_grade_too_large_is_skipped_and_does_not_stretch_the_scale() -> None:
    frame = pd.DataFrame({"document": ["a", "b", "c"], "assessor": "x", "grade": [0, 999, 2]})
    judgments = read_judgments(frame, on_bad_rows="skip")
    assert str(judgments.scale) == "0-2"
    assert judgments.report.skipped == {"grade off the scale": 1}
    outsider = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "bad"], "grade": [1, 9]})
    assert str(read_judgments(outsider, exclude=["bad"]).scale) == "1,2"


BASE = {"document": ["a", "b"], "assessor": ["x", "y"], "grade": [0, 1]}


def pandas(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({**BASE, **columns})


FRAMES: list[tuple[Any, str]] = [
    (pandas(document=[1, "a"]), "the frame, row 2, column 'document': 'a'"),
    (pandas(document=["a", 1]), "the frame, row 2, column 'document': 1"),
    (pandas(document=pd.Categorical([1, "a"])), "the frame, row 2, column 'document': 'a'"),
    (pandas(document=[pd.NA, 1j]), "the frame, row 2, column 'document': 1j"),
    (pandas(document=[[1], [2]]), "the frame, column 'document': its cells are of type list<item: int64>"),
    (pandas(document=pd.Series(["\ud800", "a"], dtype=object)), "the frame, row 1, column 'document': '\\ud800'"),
    (pandas(document=[1.0, np.nan]), "the frame, row 2, column 'document': the document is missing"),
    (pandas(grade=[0, np.nan]), "the frame, row 2, column 'grade': the grade is missing"),
    (pandas(grade=[0, 1.5]), "the frame, row 2, column 'grade': 1.5"),
    (pandas(time=[1e300, 0]), "the frame, row 1, column 'time': 1e+300"),
    (pandas().iloc[:0], "the frame: there are no rows"),
    (pd.DataFrame(), "the frame: there is no column for document and grade and assessor"),
    (pd.DataFrame([[1, 2, 3, 4]], columns=["document", "document", "assessor", "grade"]), "the frame: the column 'document' occurs twice"),
    (pd.DataFrame([[1, 2]], columns=[0, "0"]), "the frame: the column '0' occurs twice"),
    (pa.table([[1], [2]], names=["document", "document"]), "the frame: the column 'document' occurs twice"),
    (pa.table({"document": [], "assessor": [], "grade": []}), "the frame: there are no rows"),
    (pl.DataFrame({**BASE, "document": [1.0, float("nan")]}), "the frame, row 2, column 'document': the document is missing"),
    (pl.DataFrame({**BASE, "document": [[1], [2]]}), "the frame, column 'document': its cells are of type large_list<item: int64>"),
    (pl.LazyFrame(BASE).with_columns(pl.col("grade").cast(pl.String).str.to_integer() / pl.col("none")), "the frame: it cannot be computed"),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "expected"), FRAMES)
def test_error_about_a_frame(frame: Any, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_judgments(frame)
    assert_about(caught.value, expected)


@pytest.mark.parametrize("separator", [":", "^", "/"])
def test_a_separator_that_is_not_detected_is_named(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(GOOD.replace(",", separator))
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "wrong-separator"
    (fix,) = caught.value.fixes
    assert (fix.parameter, fix.value) == ("separator", separator)
    assert len(read_judgments(path, separator=separator)) == 2


def test_one_column_without_known_names_has_no_wrong_separator(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("query-grade\n1\n")
    (tmp_path / "one.csv").write_text("x:query\n1\n")
    for name, kind in (("labels.csv", "wrong-separator"), ("one.csv", "no-column")):
        with pytest.raises(InputError) as caught:
            read_judgments(tmp_path / name)
        assert caught.value.kind == kind


def test_spaces_around_the_names_of_columns_are_mentioned(tmp_path: Path) -> None:
    texts = {}
    for name, text in (("spaces.csv", GOOD.replace(",", ", ")), ("other.csv", "a,b\nc,d\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError) as caught:
            read_judgments(tmp_path / name)
        assert caught.value.kind == "no-column"
        texts[name] = [fix.text for fix in caught.value.fixes]
    assert [text for text in texts["spaces.csv"] if "spaces" in text]
    assert not [text for text in texts["other.csv"] if "spaces" in text]


def test_a_missing_file_suggests_the_closest_name(tmp_path: Path) -> None:
    (tmp_path / "judgements.csv").write_text(GOOD)
    with pytest.raises(InputError, match=r"'judgements\.csv'") as caught:
        read_judgments(tmp_path / "judgments.csv")
    assert caught.value.kind == "no-file"
    assert caught.value.location.source == str(tmp_path / "judgments.csv")


def test_a_path_that_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.csv").write_text(GOOD)
    for path in ("folder", "none.csv", "none", "file.csv/x.csv", "*.tsv", "a\0b.csv", "x" * 300):
        for read in (read_judgments, read_gold, read_features, read_run):
            with pytest.raises(InputError) as caught:
                read(tmp_path / path)
            assert caught.value.kind == ("damaged" if path == "x" * 300 else "no-file"), path


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "labels.csv"
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert str(caught.value) == f"{path}: it may not be read; check its permissions."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_bad_rows": "ignore"}, "must be one of error, skip, not 'ignore'"),
        ({"repeats": "all"}, "must be one of"),
        ({"grades": "3-0"}, "must be in order"),
        ({"grades": "3,1"}, "must be in order"),
        ({"grades": []}, "must have 2 to 101 grades, not 0"),
        ({"grades": "Bad"}, "must have 2 to 101 grades, not 1 (Bad)"),
        ({"grades": "0-200"}, "must have 2 to 101 grades, not 201 (0-200)"),
        ({"grades": "a,A"}, "must have each grade once"),
        ({"grades": "1,1.0"}, "must have each grade once"),
        ({"grades": "Bad,2"}, "must not mix"),
        ({"separator": ";;"}, "must be one character"),
        ({"separator": '"'}, "must be one character"),
        ({"columns": "docs=document"}, "has the unknown role 'docs'"),
        ({"columns": "document"}, "cannot be read at 'document'"),
        ({"columns": "document=a,document=b"}, "gives the role 'document' twice"),
        ({"format": "xls"}, "must be one of csv, tsv, parquet"),
        ({"family_pattern": "("}, "is '(', which is not a regular expression"),
        ({"max_bytes": "2 parsecs"}, "must be a positive size"),
        ({"assessor_name": "ann"}, "is given, but the assessor is in the column 'assessor'"),
    ],
)
def test_error_about_an_option(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(GOOD)
    with pytest.raises(UsageError) as caught:
        read_judgments(path, **options)
    assert caught.value.parameter == next(iter(options))
    assert caught.value.problem.startswith(words)


def test_a_file_of_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("one,two\na,1\n")
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "unknown-format"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "format"
    assert len(read_judgments(path, format="csv", columns="document=one,grade=two")) == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"%PDF-1.7\n%", "it is a PDF file"),
        ("a.csv", b"\x89PNG\r\n", "it is an image"),
    ],
)
def test_a_file_that_is_not_a_table(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    for read in (read_judgments, read_gold, read_features, read_run):
        with pytest.raises(InputError) as caught:
            read(tmp_path / name)
        assert caught.value.kind == "other-format"
        assert caught.value.problem.startswith(words)


def test_every_error_is_a_crowdrank_error() -> None:
    assert issubclass(InputError, CrowdrankError)
    assert issubclass(UsageError, CrowdrankError)


MISTAKES = {
    "colons": ("a.csv", GOOD.replace(",", ":"), "wrong-separator"),
    "spaces": ("a.csv", GOOD.replace(",", " "), "wrong-separator"),
    "comment": ("a.csv", "# exported by me\n" + GOOD, "no-column"),
    "title": ("a.csv", "My labels,,,\n" + GOOD, "no-header"),
    "no header": ("a.csv", GOOD.partition("\n")[2], "no-column"),
    "three words": ("a.txt", "q a 1\nq b 0\n", "no-header"),
    "web page": ("a.csv", "\n<!DOCTYPE html>\n<html><title>403</title></html>\n", "other-format"),
    "web page, json": ("a.json", "<html>login</html>", "other-format"),
    "percent": ("a.csv", HEADER + "q,a,x,75%\n", "named-grades"),
    "halves": ("a.csv", HEADER + "q,a,x,0.5\nq,b,x,1.5\n", "not-a-grade"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_common_mistakes(name: str, tmp_path: Path) -> None:
    file, content, kind = MISTAKES[name]
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path / file)
    assert (caught.value.kind, caught.value.location.source) == (kind, str(tmp_path / file))
    assert caught.value.fixes


def test_an_advised_separator_helps(tmp_path: Path) -> None:
    for separator in ": ":
        (tmp_path / "a.csv").write_text(GOOD.replace(",", separator))
        with pytest.raises(InputError) as caught:
            read_judgments(tmp_path / "a.csv")
        assert caught.value.fix is not None
        assert caught.value.fix.value == separator
        assert len(read_judgments(tmp_path / "a.csv", separator=separator)) == 2


def test_an_error_about_all_rows_has_the_first_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "q,a,x,0.5\n")
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path / "a.csv", on_bad_rows="skip")
    assert caught.value.kind == "no-rows-left"
    assert "row 1 (line 2), column 'grade'" in caught.value.problem
    assert "on_bad_rows" not in [fix.parameter for fix in caught.value.fixes]


def test_a_missing_column_for_the_query_is_noticed(tmp_path: Path) -> None:
    rows = [f"d{document},{assessor},{query % 2}\n" for query in range(3) for document in range(4) for assessor in "xy"]
    (tmp_path / "a.csv").write_text("document,assessor,grade\n" + "".join(rows))
    (note,) = read_judgments(tmp_path / "a.csv").report.notes
    assert (note.kind, note.severity) == ("no-query", "warning")
    (tmp_path / "a.csv").write_text("document,assessor,grade\n" + "".join(rows[:10]))
    assert read_judgments(tmp_path / "a.csv").report.notes == ()


@pytest.mark.parametrize("name", ["search query", "Search_Term", "searchquery"])
def test_common_names_of_the_query_are_recognized(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{name},url,worker_id,rating\nred,u1,a,1\nblue,u1,a,0\n")
    judgments = read_judgments(tmp_path / "a.csv")
    assert (judgments.report.columns["query"], judgments.n_queries) == (name, 2)


def test_an_unused_column_that_may_be_the_query_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("search text,url,worker_id,rating\nred,u1,a,1\nblue,u2,a,0\n")
    (warning,) = (note for note in read_judgments(tmp_path / "a.csv").report.notes if note.kind == "no-query")
    assert "'search text' is not used" in warning.problem
    assert warning.fixes[0].value == "query=search text"


def test_ids_to_exclude_that_do_not_occur_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "q,a,ann,1\nq,b,bob,0\nq,b,eve,0\n")

    def notes(*excluded: str) -> list[tuple[str, str, str]]:
        report = read_judgments(tmp_path / "a.csv", exclude=excluded).report
        return [(note.kind, note.severity, note.problem) for note in report.notes]

    assert [note[:2] for note in notes("nobody")] == [("unknown-excluded", "warning")]
    assert notes("ann", "bobb") == [
        (
            "unknown-excluded",
            "warning",
            "1 of the 2 ids to exclude is not an assessor: 'bobb' (did you mean 'bob'?)",
        )
    ]
    assert [note[:2] for note in notes("ann", "someone else")] == [("unknown-excluded", "note")]
    assert notes("ann") == []


def test_an_answer_that_means_cannot_judge_and_does_not_occur_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "q,a,ann,1\nq,b,bob,0\nq,b,eve,-1\n")
    (note,) = read_judgments(tmp_path / "a.csv", unjudgeable="-1,7").report.notes
    assert (note.kind, note.severity) == ("unjudgeable-absent", "warning")
    assert "'7'" in note.problem
    assert "'-1'" not in note.problem
    assert read_judgments(tmp_path / "a.csv", unjudgeable="-1").report.notes == ()
