# ruff: noqa: E501 - a sentence is checked as it is read: on one line
"""Bad input is refused with one exact sentence: file, row, column, value and remedy."""

from __future__ import annotations

import gzip
import io
import re
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
COLUMNS = "'query', 'document', 'assessor', 'grade'"
NO_ROWS = "FILE: there are no rows; check that it is the one you mean."
SKIP = "or use --on-bad-rows skip"
FILL = "fill it in, or use on_bad_rows='skip'."
WHOLE = "use whole numbers, or name the grades from least to most relevant with grades='Bad,Fair,Good', or use on_bad_rows='skip'."
ONE_TYPE = "make the column all text or all numbers."


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"document": ["a"], "assessor": ["x"], "grade": [0], **columns}), sink)
    return sink.getvalue()


def without_reason(error: InputError) -> str:
    """What is said, but for the words of another library in brackets."""
    return re.sub(r"(it cannot be (?:read|computed)) \(.+\);", r"\1 (*);", str(error))


@dataclass(frozen=True)
class Case:
    """A file and what is said of it; FILE stands for its path, (*) for a reason that is another library's."""

    name: str
    content: str | bytes
    sentence: str
    options: dict[str, Any] = field(default_factory=dict)
    read: Callable[..., Any] = read_judgments
    file: str = "labels.csv"

    def __str__(self) -> str:
        return self.name


CASES = [
    # What stands in the file as a whole.
    Case("empty", "", NO_ROWS),
    Case("blank", "\n\n", NO_ROWS),
    Case("header only", HEADER, NO_ROWS),
    Case("header only, no line end", HEADER.strip(), NO_ROWS),
    Case("empty tsv", "", NO_ROWS, file="labels.tsv"),
    Case("empty jsonl", "\n", NO_ROWS, file="labels.jsonl"),
    Case("empty objects", "{}\n{}", NO_ROWS, file="labels.jsonl"),
    Case("empty qrels", "", NO_ROWS, file="a.qrels", read=read_gold),
    Case("empty letor", "# nothing\n", NO_ROWS, file="a.letor", read=read_features),
    Case("empty run", "", NO_ROWS, file="a.run", read=read_run),
    Case("empty parquet", parquet()[:0], "FILE: it cannot be read (*); it may be cut off, damaged or of another format.", file="a.parquet"),
    Case("empty packed", gzip.compress(b""), NO_ROWS, file="labels.csv.gz"),
    Case("parquet without rows", parquet(document=pa.array([], pa.string()), assessor=pa.array([], pa.string()), grade=pa.array([], pa.int64())), NO_ROWS, file="a.parquet"),
    Case("features without rows", "document,bm25\n", NO_ROWS, read=read_features),
    Case("run without rows", "document,score\n", NO_ROWS, read=read_run),
    # Text that is none.
    Case("latin-1 cell", GOOD.encode().replace(b"q,b", b"q,\xe9"), "FILE, line 3: the text is not UTF-8; save it as UTF-8."),
    Case("latin-1 header", b"\xe9t\xe9," + GOOD.encode(), "FILE, line 1: the text is not UTF-8; save it as UTF-8."),
    Case("utf-16", GOOD.encode("utf-16"), "FILE, line 1: the text is not UTF-8; save it as UTF-8."),
    Case("utf-16 without a mark", GOOD.encode("utf-16-le"), "FILE: the text is not UTF-8 (is it UTF-16?); save it as UTF-8."),
    Case("latin-1 jsonl", b'{"document": 1}\n{"document": "\xe9"}', "FILE, line 2: the text is not UTF-8; save it as UTF-8.", file="a.jsonl"),
    Case("latin-1 qrels", b"1 0 a 1\n1 0 \xe9 1\n", "FILE, line 2: the text is not UTF-8; save it as UTF-8.", file="a.qrels", read=read_gold),
    Case("latin-1 letor", b"1 qid:1 1:2 # docid = \xe9\n", "FILE, line 1: the text is not UTF-8; save it as UTF-8.", file="a.letor", read=read_features),
    Case("latin-1 exclude", GOOD, "EXCLUDE, line 2: the text is not UTF-8; save it as UTF-8.", {"exclude": b"x\n\xe9\n"}),
    # Damaged files.
    Case("truncated gzip", gzip.compress(GOOD.encode() * 50)[:-20], "FILE: it cannot be read (*); it may be cut off or damaged: fetch it again.", file="labels.csv.gz"),
    Case("not gzip", GOOD, "FILE: it cannot be read (*); it may be cut off or damaged: fetch it again.", file="labels.csv.gz"),
    Case("truncated parquet", parquet()[:-9], "FILE: it cannot be read (*); it may be cut off, damaged or of another format.", file="a.parquet"),
    Case("csv named parquet", GOOD, "FILE: it cannot be read (*); it may be cut off, damaged or of another format.", file="a.parquet"),
    Case("csv named jsonl", GOOD, f"FILE, line 1: 'query,document,assessor,grade' is not JSON; mend it, {SKIP}.", file="a.jsonl"),
    Case("binary", bytes(range(128, 256)) * 4, "FILE, line 1: the text is not UTF-8; save it as UTF-8."),
    # Columns.
    Case("missing column", "query,document,grade\nq,a,1\n", "FILE: there is no column for assessor; the columns are: 'query', 'document', 'grade'; say which with --columns assessor=NAME."),
    Case("two missing", "a,grade\nq,1\n", "FILE: there is no column for document and assessor; the columns are: 'a', 'grade'; say which with --columns document=NAME,assessor=NAME."),
    Case("doubled column", "document,document,assessor,grade\na,b,x,1\n", "FILE: the column 'document' occurs twice; rename one of: 'document', 'document', 'assessor', 'grade'."),
    Case("mapped to nothing", GOOD, f"FILE: there is no column 'docs' for document; the columns are: {COLUMNS}.", {"columns": "document=docs"}),
    Case("two could be", "docid,url,worker,label\na,b,x,1\n", "FILE: the columns 'docid', 'url' could each be the document; say which with --columns document=docid."),
    Case("case only differs", "Document,DOCUMENT,worker,label\na,b,x,1\n", "FILE: the columns 'Document', 'DOCUMENT' could each be the document; say which with --columns document=Document."),
    Case("many columns", ",".join(f"c{n}" for n in range(14)) + "\n", "FILE: there is no column for document and assessor and grade; the columns are: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', 'c10', 'c11' and 2 more; say which with --columns document=NAME,assessor=NAME,grade=NAME."),
    Case("wrong separator", GOOD.replace(",", ";"), "FILE: the header 'query;document;assessor;grade' is one column when split at comma; it looks separated by semicolon: use --separator ';'."),
    Case("tabs in a csv", GOOD.replace(",", "\t"), "FILE: the header 'query\\tdocument\\tassessor\\tgrade' is one column when split at comma; it looks separated by tab: use --separator '\\t'."),
    Case("commas in a tsv", GOOD, "FILE: the header 'query,document,assessor,grade' is one column when split at tab; it looks separated by comma: use --separator ','.", file="labels.tsv"),
    Case("no feature", "query,document\nq,d\n", "FILE: there is no feature column; add one number a column.", read=read_features),
    Case("no score", "1 0 a 1\n", "FILE: there is no column for score; the columns are: 'query', 'iteration', 'document', 'grade'; say which with --columns score=NAME.", file="a.qrels", read=read_run),
    Case("rf10 without gold", "topicID\tworkerID\tdocID\tlabel\n1\tw\td\t1\n", "FILE: there is no column 'gold'; use the file as it is published.", {"format": "trec-rf10"}),
    Case("rf10 of another layout", GOOD.replace(",", "\t").replace("query", "gold"), "FILE: there is no column 'topicID' for query; the columns are: 'gold', 'document', 'assessor', 'grade', 'planted'.", {"format": "trec-rf10"}),
    # Lines.
    Case("short line", GOOD + "q,c\n", f"FILE, row 3 (line 4): there are 2 cells where the header has 4; mend the line, check the separator (comma), {SKIP}."),
    Case("long line", GOOD + "q,c,x,1,1\n", f"FILE, row 3 (line 4): there are 5 cells where the header has 4; mend the line, check the separator (comma), {SKIP}."),
    Case("quote over lines", GOOD + 'q,"c,x,1\nq,d,x,"1\nq,e,x,1\n', f"FILE, row 3 (line 4): there are 2 cells where the header has 4; mend the line, close a quote that runs on over lines, check the separator (comma), {SKIP}."),
    Case("stray quote", GOOD + 'q,"c,x,1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never closed; close it, or write it twice inside a quoted cell."),
    Case("stray quote in the last column", GOOD + 'q,c,x,"1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never closed; close it, or write it twice inside a quoted cell."),
    Case("stray quote, skipping", GOOD + 'q,"c,x,1\nq,d,x,1\n', "FILE, row 3 (line 4): a quote is opened and never closed; close it, or write it twice inside a quoted cell.", {"on_bad_rows": "skip"}),
    Case("short qrels", "1 0 a 1\n\n1 a 1\n", "FILE, line 3: there are 3 words where 4 belong; a line reads: query iteration document grade.", file="a.qrels", read=read_gold),
    Case("one word", "1\n", "FILE, line 1: there is 1 word where 6 belong; a line reads: query q0 document rank score tag.", file="a.run", read=read_run),
    Case("not json", '{"document": "a", "assessor": "x", "grade": 1}\n\n{"document"\n', f"FILE, line 3: '{{\"document\"' is not JSON; mend it, {SKIP}.", file="a.jsonl"),
    Case("json but no object", '{"document": "a", "assessor": "x", "grade": 1}\n[1]\n', f"FILE, line 2: the line is JSON but not an object; mend it, {SKIP}.", file="a.jsonl"),
    Case("letor without qid", "1 1:2\n", "FILE, line 1: there is no qid:NUMBER after the grade; a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name.", file="a.letor", read=read_features),
    Case("letor, not a feature", "1 qid:1 1:2\n1 qid:1 1:2:3 4\n", "FILE, line 2: '1:2:3' is not a feature (position:number, positions from 1); a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name.", file="a.letor", read=read_features),
    Case("letor, from nought", "1 qid:1 0:2\n", "FILE, line 1: '0:2' is not a feature (position:number, positions from 1); a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name.", file="a.letor", read=read_features),
    Case("letor, infinite", "1 qid:1 1:inf\n", "FILE, line 1: '1:inf' is not a feature (position:number, positions from 1); a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name.", file="a.letor", read=read_features),
    Case("letor, twice", "1 qid:1 1:2 1:2\n", "FILE, line 1: a feature stands twice; a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name.", file="a.letor", read=read_features),
    Case("letor, named grade", "good qid:1 1:2\n", "FILE, line 1, column 'grade': 'good' is not a number; write a number.", file="a.letor", read=read_features),
    # Ids.
    Case("json ids of two kinds", '{"document": "a", "assessor": "x", "grade": 1}\n\n{"document": 7, "assessor": "x", "grade": 1}', f"FILE, row 2 (line 3), column 'document': 7 has another type than the values before it; {ONE_TYPE}", file="a.jsonl"),
    Case("json grades of two kinds", '{"document": 1, "assessor": 1, "grade": 1}\n{"document": 7, "assessor": 2, "grade": true}', f"FILE, row 2 (line 2), column 'grade': True has another type than the values before it; {ONE_TYPE}", file="a.jsonl"),
    Case("json id no cell", '{"document": [1], "assessor": "x", "grade": 1}', f"FILE, row 1 (line 1), column 'document': [1] is no cell; {ONE_TYPE}", file="a.jsonl"),
    Case("json id half a character", '{"document": "\\ud800", "assessor": "x", "grade": 1}', f"FILE, row 1 (line 1), column 'document': '\\ud800' is no text; {ONE_TYPE}", file="a.jsonl"),
    Case("parquet list", parquet(document=[["a"]]), f"FILE, column 'document': its cells are of type list<element: string>; {ONE_TYPE}", file="a.parquet"),
    Case("parquet bytes", parquet(document=[b"\xff"]), f"FILE, column 'document': its bytes are not UTF-8 text; {ONE_TYPE}", file="a.parquet"),
    Case("feature without document", "document,bm25\na,1\n,2\n", "FILE, row 2 (line 3), column 'document': the document is missing; fill it in.", read=read_features),
    Case("run without document", "docid,score\na,1\n,2\n", "FILE, row 2 (line 3), column 'docid': the document is missing; fill it in.", read=read_run),
    Case("contradicting gold", "1 0 a 1\n1 0 b 1\n1 0 a 0\n", "FILE: the document 'a' of query '1' has the grades 0 and 1; leave one grade for each document.", file="a.qrels", read=read_gold),
    Case("a feature that is no number", "document,bm25\na,1\nb,x\n", "FILE, row 2 (line 3), column 'bm25': 'x' is not a number; write a number.", read=read_features),
    Case("an infinite feature", "document,bm25\na,1\nb,inf\n", "FILE, row 2 (line 3), column 'bm25': 'inf' is not a number; write a number.", read=read_features),
    Case("no score in a run", "document,bm25\na,1\nb,\n", "FILE, row 2 (line 3), column 'bm25': the cell is empty; write a number.", {"columns": "score=bm25"}, read_run),
    Case("NaN in a run", "document,score\na,nan\n", "FILE, row 1 (line 2), column 'score': 'nan' is not a number; write a number.", read=read_run),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_file_is_refused_in_one_sentence(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.file
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    options = dict(case.options)
    if isinstance(options.get("exclude"), bytes):
        (tmp_path / "exclude.txt").write_bytes(options["exclude"])
        options["exclude"] = tmp_path / "exclude.txt"
    with pytest.raises(InputError) as told:
        case.read(path, **options)
    sentence = case.sentence.replace("EXCLUDE", str(tmp_path / "exclude.txt")).replace("FILE", str(path))
    assert without_reason(told.value) == sentence


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
    (pandas(document=[1, "a"]), f"the frame, row 2, column 'document': 'a' has another type than the values before it; {ONE_TYPE}"),
    (pandas(document=["a", 1]), f"the frame, row 2, column 'document': 1 has another type than the values before it; {ONE_TYPE}"),
    (pandas(document=pd.Categorical([1, "a"])), f"the frame, row 2, column 'document': 'a' has another type than the values before it; {ONE_TYPE}"),
    (pandas(document=[pd.NA, 1j]), f"the frame, row 2, column 'document': 1j is no cell; {ONE_TYPE}"),
    (pandas(document=[[1], [2]]), f"the frame, column 'document': its cells are of type list<item: int64>; {ONE_TYPE}"),
    (pandas(document=pd.Series(["\ud800", "a"], dtype=object)), f"the frame, row 1, column 'document': '\\ud800' is no cell; {ONE_TYPE}"),
    (pandas(document=[1.0, np.nan]), f"the frame, row 2, column 'document': the document is missing; {FILL}"),
    (pandas(grade=[0, np.nan]), f"the frame, row 2, column 'grade': the grade is missing; {FILL}"),
    (pandas(grade=[0, 1.5]), f"the frame, row 2, column 'grade': 1.5 is not a grade of the scale 0,1; {WHOLE}"),
    (pandas(time=[1e300, 0]), "the frame, row 1, column 'time': 1e+300 is not a time; write it as 2024-05-31T10:15:00, or leave it blank."),
    (pandas().iloc[:0], "the frame: there are no rows; check that it is the one you mean."),
    (pd.DataFrame(), "the frame: there is no column for document and assessor and grade; the columns are: none; say which with --columns document=NAME,assessor=NAME,grade=NAME."),
    (pd.DataFrame([[1, 2, 3, 4]], columns=["document", "document", "assessor", "grade"]), "the frame: the column 'document' occurs twice; rename one of them."),
    (pd.DataFrame([[1, 2]], columns=[0, "0"]), "the frame: the column '0' occurs twice; rename one of them."),
    (pa.table([[1], [2]], names=["document", "document"]), "the frame: the column 'document' occurs twice; rename one of them."),
    (pa.table({"document": [], "assessor": [], "grade": []}), "the frame: there are no rows; check that it is the one you mean."),
    (pl.DataFrame({**BASE, "document": [1.0, float("nan")]}), f"the frame, row 2, column 'document': the document is missing; {FILL}"),
    (pl.DataFrame({**BASE, "document": [[1], [2]]}), f"the frame, column 'document': its cells are of type large_list<item: int64>; {ONE_TYPE}"),
    (pl.LazyFrame(BASE).with_columns(pl.col("grade").cast(pl.String).str.to_integer() / pl.col("none")), "the frame: it cannot be computed (*); mend the query or file behind it."),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "sentence"), FRAMES)
def test_a_bad_frame_is_refused_in_one_sentence(frame: Any, sentence: str) -> None:
    with pytest.raises(InputError) as told:
        read_judgments(frame)
    assert without_reason(told.value) == sentence


def test_what_is_not_a_file(tmp_path: Path) -> None:
    for path, sentence in [
        (tmp_path, f"{tmp_path}: this is a folder; name the file in it."),
        (tmp_path / "none.csv", f"{tmp_path}/none.csv: there is no such file; check the path."),
        (tmp_path / "none", f"{tmp_path}/none: there is no such file; check the path."),
        ("a\0b.csv", "'a\\x00b.csv': there is no such file; check the path."),
    ]:
        with pytest.raises(InputError) as told:
            read_judgments(path)
        assert str(told.value) == sentence
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file.csv").write_text(GOOD)
    for path, problem in [(tmp_path / "folder.csv", "this is a folder"), (tmp_path / "file.csv" / "x.csv", "no such")]:
        for read in (read_judgments, read_gold, read_features, read_run):
            with pytest.raises(InputError, match=problem):
                read(path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "labels.csv"
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError) as told:
        read_judgments(path)
    assert str(told.value) == f"{path}: it may not be read; check its permissions."


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_bad_rows": "ignore"}, "on_bad_rows must be one of error, skip, not 'ignore'."),
        ({"repeats": "all"}, "repeats must be one of last, first, error, keep, not 'all'."),
        ({"grades": "3-0"}, "The scale 3-0 is not in order; give the grades from least to most relevant."),
        ({"grades": "3,1"}, "The scale 3,1 is not in order; give the grades from least to most relevant."),
        ({"grades": []}, "A scale needs 2 to 101 grades, not 0."),
        ({"grades": "Bad"}, "A scale needs 2 to 101 grades, not 1 (Bad)."),
        ({"grades": "0-200"}, "A scale needs 2 to 101 grades, not 201 (0-200)."),
        ({"grades": "a,A"}, "The scale a,A names a grade twice; name each grade once."),
        ({"grades": "1,1.0"}, "The scale 1,1.0 names a grade twice; name each grade once."),
        ({"grades": "Bad,2"}, "The scale 'Bad,2' mixes names, numbers or blanks; use 0-3, 1,2,3 or Bad,Fair,Good."),
        ({"separator": ";;"}, "--separator takes one character such as ; or \\t, not ';;'."),
        ({"separator": '"'}, "--separator takes one character such as ; or \\t, not '\"'."),
        ({"columns": "docs=document"}, "--columns does not know the role 'docs'; the roles are: query, document, assessor, grade, family, time, duration, cost, honeypot, score."),
        ({"columns": "document"}, "--columns cannot read 'document'; write role=column, as in query=topicID."),
        ({"columns": "document=a,document=b"}, "--columns gives the role 'document' twice; give it once."),
        ({"format": "xlsx"}, "--format does not know 'xlsx'; choose one of: csv, tsv, parquet, jsonl, json, qrels, run, letor, trec-rf10, crowd-kit, label-studio, toloka, mturk, quepid, opensearch."),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_in_one_sentence(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(GOOD)
    with pytest.raises(UsageError) as told:
        read_judgments(path, **options)
    assert str(told.value) == sentence


def test_a_name_that_promises_no_format(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(GOOD)
    with pytest.raises(
        UsageError, match=r"Cannot tell the format of .*labels\.txt by its name; say --format with one of"
    ):
        read_judgments(path)
    assert len(read_judgments(path, format="csv")) == 2


def test_every_error_is_of_the_house() -> None:
    assert issubclass(InputError, CrowdrankError)
    assert issubclass(UsageError, CrowdrankError)
