"""Files as users have them: exports, workbooks, encodings, separators, several files."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import python_calamine

from crowdrank import Judgments, read_features, read_gold, read_judgments, read_run
from crowdrank.errors import DataWarning, Fix, InputError, UsageError
from crowdrank.readers import files

ROWS = [["query", "document", "assessor", "grade"], ["q1", "a", "ann", "2"], ["q1", "b", "bob", "0"]]
READ = [("q1", "a", "ann", 2), ("q1", "b", "bob", 0)]


def rows(judgments: Judgments) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in judgments.to_arrow().to_pylist()]


def text(separator: str = ",") -> str:
    return "".join(separator.join(row) + "\n" for row in ROWS)


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def workbook(table: list[list[Any]], cell: str = "", **sheets: list[list[Any]]) -> bytes:
    """Return an .xlsx file; `cell` is the place of a further cell in the first sheet."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in table:
        book.active.append(row)
    if cell:
        book.active[cell] = "x"
    for name, more in sheets.items():
        sheet = book.create_sheet(name)
        for row in more:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def ods(table: list[list[Any]], end: str = "</table:table>") -> bytes:
    """Return an OpenDocument table; `end` is the closing tag of its sheet."""
    cells = {
        float: '<table:table-cell office:value-type="float" office:value="{0}"/>',
        str: '<table:table-cell office:value-type="string"><text:p>{0}</text:p></table:table-cell>',
    }
    lines = "".join(
        f"<table:table-row>{''.join(cells[type(cell)].format(cell) for cell in row)}</table:table-row>" for row in table
    )
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    sheet = f'<table:table table:name="t">{lines}{end}'
    body = f"<office:body><office:spreadsheet>{sheet}</office:spreadsheet></office:body>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    entry = f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
    space = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr("META-INF/manifest.xml", f"<manifest:manifest {space}>{entry}</manifest:manifest>")
        archive.writestr("content.xml", f"<office:document-content {spaces}>{body}</office:document-content>")
    return out.getvalue()


def xls(table: list[list[Any]]) -> bytes:
    """Return a workbook of Excel 97: records (BIFF8) in a compound file with sectors of 512 bytes."""

    def record(number: int, content: bytes) -> bytes:
        return struct.pack("<HH", number, len(content)) + content

    def text(value: str, length_format: str) -> bytes:
        return struct.pack(length_format, len(value), 0) + value.encode("ascii")

    sheet = record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 0, 0, 0))
    for row, cells in enumerate(table):
        for column, cell in enumerate(cells):
            place = struct.pack("<HHH", row, column, 0)
            if isinstance(cell, float):
                sheet += record(0x203, place + struct.pack("<d", cell))
            else:
                sheet += record(0x204, place + text(str(cell), "<HB"))
    first = record(0x809, struct.pack("<HHHHII", 0x600, 0x5, 0, 0, 0, 0))
    last = record(0x0A, b"")
    name = text("t", "<BB")
    start = len(first) + 4 + 6 + len(name) + len(last)
    stream = first + record(0x85, struct.pack("<IBB", start, 0, 0) + name) + last + sheet + last
    stream = stream.ljust(max(4096, -(-len(stream) // 512) * 512), b"\0")
    n_sectors = len(stream) // 512
    end, free, table_sector = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
    chain = [table_sector, end, *range(3, 2 + n_sectors), end]
    allocation = struct.pack("<128I", *chain, *[free] * (128 - len(chain)))

    def entry(name: str, kind: int, child: int, sector: int, size: int) -> bytes:
        encoded = (name + "\0").encode("utf-16-le")
        links = struct.pack("<HBBIII", len(encoded), kind, 1, free, free, child)
        return encoded.ljust(64, b"\0") + links + bytes(36) + struct.pack("<IQ", sector, size)

    directory = entry("Root Entry", 5, 1, end, 0) + entry("Workbook", 2, free, 2, len(stream))
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, end, 0, end, 0) + struct.pack("<109I", 0, *[free] * 108)
    return header + allocation + directory.ljust(512, b"\0") + stream


# Encodings and separators.


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.csv.gz"])
def test_encodings(encoding: str, name: str, tmp_path: Path) -> None:
    objects = [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]
    content = {
        "a.jsonl": "".join(json.dumps(one) + "\n" for one in objects),
        "a.json": json.dumps(objects),
        "a.tsv": text("\t"),
    }.get(name, text())
    raw = content.encode(encoding)
    if encoding == "utf-16-be":
        raw = b"\xfe\xff" + raw
    path = put(tmp_path / name, gzip.compress(raw) if name.endswith(".gz") else raw)
    assert rows(read_judgments(path)) == READ


def test_invalid_utf_16(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", text().encode("utf-16") + b"\x00\xd8")
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "encoding"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
def test_separators_are_detected(separator: str, name: str, tmp_path: Path) -> None:
    assert rows(read_judgments(put(tmp_path / name, text(separator)))) == READ


def test_a_separator_in_quotes_and_one_that_is_given(tmp_path: Path) -> None:
    quoted = put(tmp_path / "a.csv", '"query;x";docid;grade\n"q,1;2";a;1\n')
    judgments = read_judgments(quoted, columns="query=query;x")
    assert rows(judgments) == [("q,1;2", "a", "a", 1)]
    with pytest.raises(InputError) as caught:
        read_judgments(put(tmp_path / "b.csv", text(";")), separator=",")
    assert caught.value.fix is not None
    assert (caught.value.kind, caught.value.fix.parameter, caught.value.fix.value) == (
        "wrong-separator",
        "separator",
        ";",
    )


@pytest.mark.parametrize("name", ["dl19.txt", "qrels.dev.tsv", "a.trec", "a.qrels", "qrels"])
@pytest.mark.parametrize("iteration", ["0", "Q0", "q0"])
def test_qrels_are_recognized_by_content(name: str, iteration: str, tmp_path: Path) -> None:
    path = put(tmp_path / name, f"1 {iteration} a 2\n1 {iteration} b 0\n".replace(" ", "\t" if ".tsv" in name else " "))
    assert read_gold(path).frame.to_numpy().tolist() == [["1", "a", 2], ["1", "b", 0]]


@pytest.mark.parametrize("name", ["bm25.txt", "bm25.trec", "bm25.run", "bm25"])
@pytest.mark.parametrize("iteration", ["0", "Q0"])
def test_runs_are_recognized_by_content(name: str, iteration: str, tmp_path: Path) -> None:
    path = put(tmp_path / name, f"1 {iteration} a 1 9.5 bm25\n1 {iteration} b 2 8.5 bm25\n")
    assert read_run(path)["score"].tolist() == [9.5, 8.5]


def test_scores_and_features_are_not_taken_for_a_book_of_raters(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "query,docid,score\nq,a,1.5\nq,b,0.5\n")
    assert read_run(path)["score"].tolist() == [1.5, 0.5]
    assert read_features(path).names == ("score",)


# doccano.


@pytest.mark.parametrize(
    ("labels", "grade"),
    [(["2"], 2), ([2], 2), ("2", 2), ([[0, 5, "2"]], 2), (["2", "2"], 2)],
)
@pytest.mark.parametrize("key", ["label", "labels", "cats"])
def test_doccano(labels: Any, grade: int, key: str, tmp_path: Path) -> None:
    export = [
        {"id": 1, "text": "long text", "query": "how to", "query_id": 7, "passage_id": 31, key: labels, "Comments": []},
        {"id": 2, "text": "more", "query": "how to", "query_id": 7, "passage_id": 32, key: [], "Comments": []},
    ]
    path = put(tmp_path / "ann.jsonl", "".join(json.dumps(one) + "\n" for one in export))
    judgments = read_judgments(path)
    assert rows(judgments) == [(7, 31, "ann", grade)]
    assert judgments.report.columns == {"query": "query_id", "document": "passage_id", "grade": key}
    assert judgments.report.skipped == {"not labeled": 1}
    assert [note.kind for note in judgments.report.notes] == ["assessor-from-file-name"]
    whole = read_judgments(put(tmp_path / "ann.json", json.dumps(export)))
    assert rows(whole) == [("7", "31", "ann", grade)]
    assert whole.report.skipped == {"not labeled": 1}


# Columns.


def test_an_id_column_is_preferred_to_a_text_column(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "query,qid,document,docno,worker,worker_id,label\nhow,1,text,d1,Ann,w1,2\n")
    judgments = read_judgments(path)
    assert rows(judgments) == [("1", "d1", "w1", 2)]
    assert judgments.report.columns == {
        "query": "qid",
        "document": "docno",
        "assessor": "worker_id",
        "grade": "label",
    }
    own = read_judgments(path, columns="query=query,document=document")
    assert rows(own) == [("how", "text", "w1", 2)]


def test_columns_of_several_files_are_reported(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "qid,docid,worker,label\n1,a,x,1\n")
    put(tmp_path / "b.csv", "topic,docid,judge,grade\n1,a,y,0\n")
    columns = read_judgments(tmp_path).report.columns
    assert columns == {
        "query": "qid or topic",
        "document": "docid",
        "assessor": "worker or judge",
        "grade": "label or grade",
    }


# Assessors without a column.


def test_the_file_name_is_the_assessor(tmp_path: Path) -> None:
    path = put(tmp_path / "ann.lee.csv.gz", gzip.compress(b"query,docid,grade\nq,a,1\nq,b,0\n"))
    judgments = read_judgments(path)
    assert judgments.assessors.to_pylist() == ["ann.lee"]
    (note,) = judgments.report.notes
    assert (note.severity, note.kind, note.location.source) == ("note", "assessor-from-file-name", str(path))
    assert read_judgments(path, assessor_name="bob").assessors.to_pylist() == ["bob"]
    assert read_judgments(path, assessor_name="bob").report.notes == ()


def test_documents_that_occur_twice_need_an_assessor(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "query,docid,coder,grade\nq,a,x,1\nq,a,y,0\n")
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert [fix.parameter for fix in caught.value.fixes] == ["columns", "assessor_name"]
    assert read_judgments(path, columns="assessor=coder").assessors.to_pylist() == ["x", "y"]
    assert len(read_judgments(path, assessor_name="x", repeats="keep")) == 2


def test_one_of_several_files_may_have_repeated_documents(tmp_path: Path) -> None:
    put(tmp_path / "ann.csv", "query,docid,grade\nq,a,1\nq,b,0\n")
    put(tmp_path / "bob.csv", "query,docid,grade\nq,a,0\nq,b,0\nq,a,2\n")
    judgments = read_judgments(tmp_path)
    assert rows(judgments) == [("q", "a", "ann", 1), ("q", "a", "bob", 2), ("q", "b", "ann", 0), ("q", "b", "bob", 0)]
    named, repeated = judgments.report.notes
    assert (named.kind, repeated.kind, repeated.severity) == ("assessor-from-file-name", "repeated-answers", "warning")
    assert repeated.fix is not None
    assert repeated.fix.parameter == "repeats"
    assert ("q", "a", "bob", 0) in rows(read_judgments(tmp_path, repeats="first"))
    kept = read_judgments(tmp_path, repeats="keep")
    assert len(kept) == 5
    assert [note.kind for note in kept.report.notes] == ["assessor-from-file-name"]


def test_one_name_for_several_files_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "ann.csv", "query,docid,grade\nq,a,1\nq,b,0\n")
    put(tmp_path / "bob.csv", "query,docid,grade\nq,a,0\nq,b,0\nq,a,2\n")
    with pytest.raises(UsageError) as caught:
        read_judgments(tmp_path, assessor_name="ann")
    assert (caught.value.kind, caught.value.parameter) == ("several-files", "assessor_name")
    put(tmp_path / "others.csv", "query,docid,worker,grade\nq,a,carl,1\n")
    one = read_judgments([tmp_path / "ann.csv", tmp_path / "others.csv"], assessor_name="Ann Lee")
    assert one.assessors.to_pylist() == ["Ann Lee", "carl"]


def test_repeated_documents_in_all_files_may_hide_assessors(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        put(tmp_path / name, "query,docid,coder,grade\nq,a,x,1\nq,a,y,0\n")
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path)
    assert [fix.parameter for fix in caught.value.fixes] == ["columns", "assessor_name"]
    assert read_judgments(tmp_path, columns="assessor=coder").assessors.to_pylist() == ["x", "y"]
    judgments = read_judgments(tmp_path, assessor_name=caught.value.fixes[1].value)  # type: ignore[arg-type]
    assert judgments.assessors.to_pylist() == ["one", "two"]
    assert judgments.report.repeats == 2


LABEL_CONFIG = '[{"id": 1, "text": "Bad", "suffixKey": "0"}, {"id": 2, "text": "Fair"}, {"id": 3, "text": "Good"}]'


def test_labels_of_doccano_are_the_order_of_the_grades(tmp_path: Path) -> None:
    put(tmp_path / "ann.jsonl", '{"doc_id": "a", "label": ["Good"]}\n{"doc_id": "b", "label": ["Bad"]}\n')
    put(tmp_path / "label_config.json", LABEL_CONFIG)
    for source in (tmp_path, tmp_path / "*.json*", [tmp_path / "ann.jsonl", tmp_path / "label_config.json"]):
        judgments = read_judgments(source)
        assert judgments.scale.names == ("Bad", "Fair", "Good")
        assert judgments.grade.tolist() == [2, 0]
        assert [note.kind for note in judgments.report.notes] == ["assessor-from-file-name", "order-of-labels"]
    assert read_judgments(tmp_path, grades="Good,Bad").grade.tolist() == [0, 1]


def test_other_labels_of_doccano_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "ann.jsonl", '{"doc_id": "a", "label": ["Good (1)"]}\n{"doc_id": "b", "label": ["Bad (0)"]}\n')
    put(tmp_path / "label_config.json", LABEL_CONFIG)
    assert read_judgments(tmp_path).scale.names == ("Bad (0)", "Good (1)")
    put(tmp_path / "label_config.json", '[{"doc_id": "c", "label": "Good (1)"}]')
    assert read_judgments(tmp_path).documents.to_pylist() == ["a", "b", "c"]


def test_rows_with_several_labels_are_left_out_and_counted(tmp_path: Path) -> None:
    put(tmp_path / "ann.jsonl", '{"doc_id": "a", "label": [1, 0]}\n{"doc_id": "b", "label": [2, 2]}\n')
    put(tmp_path / "bob.json", '[{"doc_id": "a", "label": [1, 0]}, {"doc_id": "b", "label": []}]')
    judgments = read_judgments(tmp_path)
    assert rows(judgments) == [("all", "b", "ann", 2)]
    assert judgments.report.skipped == {"several labels": 2, "not labeled": 1}
    assert judgments.report.rows == 4


# Several files.


def test_lists_folders_and_patterns(tmp_path: Path) -> None:
    put(tmp_path / "in" / "ann.csv", "qid;docid;grade\nq;a;1\nq;7;0\n")
    put(tmp_path / "in" / "bob.jsonl", '{"qid": "q", "docid": 7, "label": [2]}\n')
    put(tmp_path / "in" / "sub" / "carl.txt", "q 0 a 1\n")
    put(tmp_path / "in" / ".hidden.csv", "x\n")
    put(tmp_path / "in" / "README.md", "Labels of three people.\n")
    expected = [("q", "a", "ann", 1), ("q", "a", "carl", 1), ("q", "7", "ann", 0), ("q", "7", "bob", 2)]
    folder = read_judgments(tmp_path / "in")
    assert rows(folder) == expected
    assert "files-not-read" in [note.kind for note in folder.report.notes]
    sources: tuple[list[str | Path], ...] = (
        [tmp_path / "in" / "ann.csv", tmp_path / "in" / "bob.jsonl", tmp_path / "in" / "sub" / "carl.txt"],
        [str(tmp_path / "in" / "*.csv"), tmp_path / "in" / "*.jsonl", tmp_path / "in" / "sub"],
    )
    for source in sources:
        assert rows(read_judgments(source)) == expected
    assert len(read_judgments(str(tmp_path / "in" / "**" / "*.txt"))) == 1
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path / "in" / "*.tsv")
    assert caught.value.kind == "no-file"


@pytest.mark.parametrize("folder", [".", "../in", "./", "sub/.."])
def test_relative_folders(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "in" / "a.csv", text())
    put(tmp_path / "in" / ".hidden.csv", "x\n")
    (tmp_path / "in" / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    assert rows(read_judgments(folder)) == READ


def test_later_files_replace_earlier_judgments(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a.csv", text()), put(tmp_path / "b.csv", text().replace(",2", ",1"))
    assert rows(read_judgments([first, second]))[0] == ("q1", "a", "ann", 1)
    assert rows(read_judgments([second, first]))[0] == ("q1", "a", "ann", 2)
    judgments = read_judgments([first, second])
    assert (judgments.report.rows, judgments.report.repeats) == (4, 2)
    with pytest.raises(InputError) as caught:
        read_judgments([first, second], repeats="error")
    assert f"{first}, row 1 (line 2) and {second}, row 1 (line 2)" in caught.value.problem


def test_locations_name_the_file(tmp_path: Path) -> None:
    good, bad = put(tmp_path / "a.csv", text()), put(tmp_path / "b.csv", text().replace(",0", ",bad"))
    with pytest.raises(InputError) as caught:
        read_judgments([good, bad])
    assert f"{bad}, row 2 (line 3), column 'grade'" in str(caught.value)
    skipping = read_judgments([good, bad], on_bad_rows="skip")
    assert f"{bad}, row 2 (line 3)" in str(skipping.report.examples["grade off the scale"])
    with pytest.raises(InputError) as caught:
        read_judgments([good, put(tmp_path / "c.csv", "")])
    assert caught.value.location.source == str(tmp_path / "c.csv")


def test_files_may_differ_in_columns_and_have_no_rows(tmp_path: Path) -> None:
    first = put(tmp_path / "a.csv", "qid,docid,worker,label,family,seconds\nq,a,ann,2,f,3\n")
    second = put(tmp_path / "b.csv", "query,document,assessor,grade,time\nq,a,bob,1,2024-05-31\n")
    empty = put(tmp_path / "c.csv", "query,document,assessor,grade\n")
    judgments = read_judgments([first, empty, second])
    assert [row[:4] for row in rows(judgments)] == [("q", "a", "ann", 2), ("q", "a", "bob", 1)]
    assert judgments.report.columns["assessor"] == "worker or assessor"
    assert judgments.report.units == {"duration": "seconds"}
    assert judgments.to_arrow()["family"].to_pylist() == ["f", None]
    assert judgments.frame["duration"].isna().tolist() == [False, True]
    with pytest.raises(InputError) as caught:
        read_judgments([empty, empty])
    assert (caught.value.kind, caught.value.location.source) == ("no-rows", "2 files")
    without_query = put(tmp_path / "d.csv", "document,assessor,grade\na,bob,1\n")
    with pytest.raises(InputError) as caught:
        read_judgments([first, without_query])
    assert (caught.value.kind, caught.value.location.source) == ("missing-cell", str(without_query))


def test_ids_of_parquet_and_text_are_one(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"query": [1, 1], "document": [7.0, None], "assessor": ["x", "x"], "grade": [1, 0]})
    frame.iloc[:1].to_parquet(tmp_path / "a.parquet")
    put(tmp_path / "b.csv", "query,document,assessor,grade\n1,7,y,0\n")
    assert rows(read_judgments(tmp_path)) == [("1", "7", "x", 1), ("1", "7", "y", 0)]


def test_an_empty_list_and_other_objects(tmp_path: Path) -> None:
    for nothing in ([], None, 7, [7]):
        with pytest.raises(UsageError):
            read_judgments(nothing)  # type: ignore[arg-type]


def test_grades_features_and_runs_of_several_files(tmp_path: Path) -> None:
    gold = [put(tmp_path / f"{name}.qrels", f"{name} 0 d 1\n") for name in "ab"]
    assert len(read_gold(gold)) == 2
    runs = [put(tmp_path / f"{name}.run", f"{name} Q0 d 1 2.5 x\n") for name in "ab"]
    assert read_run(runs)["query"].tolist() == ["a", "b"]
    letor = [put(tmp_path / "a.letor", "1 qid:1 2:5\n"), put(tmp_path / "b.letor", "0 qid:2 1:3 10:1\n")]
    features = read_features(letor)
    assert features.names == ("f1", "f2", "f10")
    assert features.matrix.tolist() == [[0, 5, 0], [3, 0, 1]]
    tables = [put(tmp_path / "a.csv", "document,x,y1\na,1,2\n"), put(tmp_path / "b.csv", "document,y1,x\nb,4,3\n")]
    assert read_features(tables).matrix.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError) as caught:
        read_features([tables[0], put(tmp_path / "c.csv", "document,x\nc,1\n")])
    assert (caught.value.kind, caught.value.location.source) == ("no-column", str(tmp_path / "c.csv"))


# Features.


def test_columns_that_are_not_features(tmp_path: Path) -> None:
    path = put(tmp_path / "f.csv", "qid,query,docid,bm25,target,y,nist_grade\nq,how,a,1.5,1,1,2\nq,how,b,0.5,0,0,0\n")
    with pytest.warns(DataWarning) as caught:
        features = read_features(path)
    assert features.names == ("bm25",)
    assert features.grade is not None
    assert features.grade.tolist() == [2, 0]
    assert features.columns == {"query": "qid", "document": "docid", "grade": "nist_grade"}
    kinds = {note.kind: note.severity for note in features.notes}
    assert kinds == {"grade-among-features": "note", "grade-like-features": "warning", "text-columns": "note"}
    warning = caught[0].message
    assert isinstance(warning, DataWarning)
    assert warning.kind == "grade-like-features"


@pytest.mark.parametrize(("cell", "words"), [("acme", "encode text as numbers"), ("0,5", "decimals with a point")])
def test_a_feature_that_is_not_a_number(cell: str, words: str, tmp_path: Path) -> None:
    path = put(tmp_path / "f.csv", f"document;brand\na;1\nb;{cell}\n")
    with pytest.raises(InputError) as caught:
        read_features(path)
    assert (caught.value.kind, caught.value.location.column) == ("not-a-number", "brand")
    assert any(words in fix.text for fix in caught.value.fixes)


# Excel.


def test_a_workbook(tmp_path: Path) -> None:
    table: list[list[Any]] = [
        [],
        ["topic", "docid", "worker", "label", "time", None],
        [1, "007", "ann", 2, datetime(2024, 5, 31, 10, 15)],
        [],
        [1, 123456789012345, "bob", 0.0, None],
        [2.0, 8, "bob", "1", None],
    ]
    path = put(tmp_path / "a.xlsx", workbook(table, more=[["query"], ["other"]]))
    judgments = read_judgments(path)
    read = [row[:4] for row in rows(judgments)]
    assert read == [("1", "007", "ann", 2), ("1", "123456789012345", "bob", 0), ("2", "8", "bob", 1)]
    assert str(judgments.extras["time"][0]) == "2024-05-31T10:15:00.000000"
    assert rows(read_judgments(put(tmp_path / "misnamed.csv", path.read_bytes()))) == rows(judgments)
    assert rows(read_judgments(put(tmp_path / "a.bin", path.read_bytes()), format="xlsx")) == rows(judgments)
    features = put(tmp_path / "f.xlsx", workbook([["docid", "bm25"], ["a", 1.5], ["b", None]]))
    assert str(read_features(features).matrix.tolist()) == "[[1.5], [nan]]"
    assert len(read_gold(put(tmp_path / "g.xlsx", workbook([["docid", "grade"], ["a", 1]])))) == 1


def test_errors_about_workbooks(tmp_path: Path) -> None:
    bad = put(tmp_path / "bad.xlsx", workbook([["docid", "worker", "label"], ["a", "x", 1], [], ["b", "x", "?"]]))
    with pytest.raises(InputError) as caught:
        read_judgments(bad)
    assert (caught.value.location.place, caught.value.location.column) == ("row 2 (row 4 of the sheet)", "label")
    rounded = put(tmp_path / "rounded.xlsx", workbook([["docid", "worker", "label"], [1.5e17, "x", 1]]))
    with pytest.raises(InputError, match="more digits than Excel stores"):
        read_judgments(rounded)
    empty = put(tmp_path / "empty.xlsx", workbook([]))
    with pytest.raises(InputError) as caught:
        read_judgments(empty)
    assert caught.value.kind == "no-rows"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("labels.csv", text())
    damaged = (b"PK\x03\x04 and more", b"\xd0\xcf\x11\xe0\xa1\xb1", xls(ROWS)[:3000], ods(ROWS, end=""))
    for content in (archive.getvalue(), *damaged):
        with pytest.raises(InputError) as caught:
            read_judgments(put(tmp_path / "not.xlsx", content))
        assert caught.value.kind == "damaged"
    with pytest.raises(InputError) as caught:
        read_judgments(put(tmp_path / "not.csv", workbook([["docid"]])), format="csv")
    assert caught.value.fix == Fix("give {}", "format", "xlsx")


def test_cells_of_a_workbook(tmp_path: Path) -> None:
    """Dates, durations and merged cells, below a hidden sheet and beside another one."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.sheet_state = "hidden"
    book.active.append(["topic", "docid"])
    sheet = book.create_sheet("labels")
    book.create_sheet("empty")
    for row in (
        ["topic", "docid", "worker", "label", "time", "duration"],
        ["q1", "007", "ann", 2, date(2024, 5, 31), timedelta(minutes=1, seconds=30)],
        [None, 12.0, "ann", 0, None, None],
        ["q2", "a", "ann", 1, None, 7.5],
        [None, "b", "ann", 1, None, None],
    ):
        sheet.append(row)
    sheet.merge_cells("A2:A3")
    out = io.BytesIO()
    book.save(out)
    path = put(tmp_path / "a.xlsx", out.getvalue())
    with pytest.raises(InputError) as caught:  # A5 is blank and not merged
        read_judgments(path)
    assert caught.value.location.place == "row 4 (row 5 of the sheet)"
    judgments = read_judgments(path, on_bad_rows="skip")
    assert [row[:4] for row in rows(judgments)] == [
        ("q1", "007", "ann", 2),
        ("q1", "12", "ann", 0),
        ("q2", "a", "ann", 1),
    ]
    assert str(judgments.extras["time"][0]) == "2024-05-31T00:00:00.000000"
    assert str(judgments.extras["duration"].tolist()) == "[90.0, nan, 7.5]"
    (note,) = (note for note in judgments.report.notes if note.kind == "sheets-not-read")
    assert "empty" in note.problem


def test_other_spreadsheets(tmp_path: Path) -> None:
    table: list[list[Any]] = [["topic", "docid", "worker", "label"], ["q", "007", "ann", 2.0], ["q", 8.0, "ann", 0.0]]
    expected = [("q", "007", "ann", 2), ("q", "8", "ann", 0)]
    for name, content in (("a.ods", ods(table)), ("a.xls", xls(table)), ("a.csv", ods(table)), ("b.csv", xls(table))):
        assert rows(read_judgments(put(tmp_path / name, content))) == expected
    assert rows(read_judgments(put(tmp_path / "folder" / "a.ods", ods(table)).parent)) == expected


def test_a_panic_of_the_parser_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """An exception as pyo3 raises it for a panic: no Exception."""

    def fail(stream: object) -> None:
        raise Panic

    path = put(tmp_path / "a.xlsx", workbook(ROWS))
    monkeypatch.setattr(python_calamine, "CalamineWorkbook", SimpleNamespace(from_filelike=fail))
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "damaged"


def test_a_cell_far_away(tmp_path: Path) -> None:
    """Refuse a sheet whose last cell would need memory for a billion blank cells."""
    path = put(tmp_path / "a.xlsx", workbook([["docid", "worker", "label"], ["a", "x", 1]], cell="XFD1048576"))
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "too-large"


def test_a_workbook_that_is_too_large(tmp_path: Path) -> None:
    path = put(
        tmp_path / "a.xlsx", workbook([["docid", "worker", "label"], *(["a" * 20, "x", 1] for _ in range(3000))])
    )
    assert path.stat().st_size < 40_000
    with pytest.raises(InputError) as caught:
        read_judgments(path, max_bytes=40_000)
    assert caught.value.kind == "too-large"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "max_bytes"


def test_workbooks_need_calamine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.xlsx", workbook(ROWS))
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    readers: list[Callable[..., Any]] = [read_judgments, read_gold, read_features, read_run]
    for read in readers:
        with pytest.raises(UsageError) as caught:
            read(path)
        assert "pip install 'crowdrank[excel]'" in str(caught.value)


COUNT_OPENS = """
import collections, json, os, sys
import pyarrow as pa
import crowdrank

opens, folder = collections.Counter(), sys.argv[1]

def count(path):
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if name.startswith(folder) and os.path.isfile(name):
        opens[os.path.relpath(name, folder)] += 1

sys.addaudithook(lambda event, arguments: count(arguments[0]) if event == "open" else None)
os_file = pa.OSFile
pa.OSFile = lambda path: count(path) or os_file(path)  # Arrow opens files without Python's audit event
for name in sys.argv[2:]:
    crowdrank.read_judgments(os.path.join(folder, name))
print(json.dumps(opens))
"""


def test_number_of_times_that_a_file_is_opened(tmp_path: Path) -> None:
    names = ("query", "document", "assessor", "grade")

    def write_all(folder: Path, n_rows: int) -> None:
        folder.mkdir()
        table = [(f"q{row % 9}", f"{row:0100}", f"w{row % 5}", str(row % 3)) for row in range(n_rows)]
        for suffix, separator in ((".csv", ","), (".tsv", "\t")):
            put(folder / f"a{suffix}", "".join(separator.join(row) + "\n" for row in (names, *table)))
        put(folder / "quoted.csv", "".join(",".join(f'"{x}"' for x in row) + "\n" for row in (names, *table)))
        put(folder / "a.csv.gz", gzip.compress((folder / "a.csv").read_bytes()))
        put(
            folder / "a.jsonl", "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in table).encode()
        )
        put(folder / "a.qrels", "".join(f"{q} 0 {d} {grade}\n" for q, d, _, grade in table))
        put(folder / "a.letor", "".join(f"{grade} qid:{q} 1:2 # docid = {d}\n" for q, d, _, grade in table))
        columns = {name: [row[column] for row in table] for column, name in enumerate(names)}
        pq.write_table(pa.table(columns), folder / "a.parquet", compression="none", use_dictionary=False)
        if n_rows < 1000:
            put(folder / "a.xlsx", workbook([list(names), *map(list, table)]))

    write_all(tmp_path / "small", 100)
    write_all(tmp_path / "large", 11_000)  # larger than the head of a file
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    (tmp_path / "folder").mkdir()
    for name in ("1.csv", "2.csv"):
        shutil.copy(tmp_path / "small" / "a.csv", tmp_path / "folder" / name)
    line = [sys.executable, "-c", COUNT_OPENS, str(tmp_path), *written, "folder"]
    opens = json.loads(subprocess.run(line, capture_output=True, check=True).stdout)
    assert {name: count for name, count in opens.items() if name.startswith("small")} == {
        f"small/{name}": 1
        for name in (
            "a.csv", "a.csv.gz", "a.jsonl", "a.letor", "a.parquet", "a.qrels", "a.tsv", "a.xlsx", "quoted.csv",
        )
    }  # fmt: skip
    # The head, then the rows; JSON Lines are searched for keys before, and a Parquet file for its columns.
    assert {name: count for name, count in opens.items() if name.startswith("large")} == {
        "large/a.csv": 2, "large/a.csv.gz": 2, "large/quoted.csv": 2, "large/a.tsv": 2, "large/a.qrels": 2,
        "large/a.letor": 2, "large/a.jsonl": 3, "large/a.parquet": 3,
    }  # fmt: skip
    assert {name: count for name, count in opens.items() if name.startswith("folder")} == {
        "folder/1.csv": 2, "folder/2.csv": 2,
    }  # fmt: skip


def test_rows_and_header_beyond_the_head_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "query,document,assessor,grade\n" + "".join(f"q,dé{row},w,{row % 3}\n" for row in range(40))
    whole = rows(read_judgments(put(tmp_path / "a.csv", content.encode())))
    for n_bytes in (7, 30, 36, 37, 200):
        monkeypatch.setattr(files, "HEAD_BYTES", n_bytes)
        for name, data in (("a.csv", content.encode()), ("a.csv.gz", gzip.compress(content.encode()))):
            assert rows(read_judgments(put(tmp_path / name, data))) == whole
        assert rows(read_judgments(put(tmp_path / "u.csv", content.encode("utf-16")), format="csv")) == whole


def test_kinds_of_assessors_come_from_a_column_or_an_option(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("document,assessor,grade,kind\na,ann,0,Human\na,gpt,1,llm\nb,odd,1,banana\nb,ann,1,\n")
    judgments = read_judgments(path)
    kinds = dict(zip(judgments.assessors.to_pylist(), judgments.assessor_kind, strict=True))
    assert kinds == {"ann": "human", "gpt": "llm", "odd": ""}
    again = read_judgments(judgments.frame)
    assert dict(zip(again.assessors.to_pylist(), again.assessor_kind, strict=True)) == kinds
    assert read_judgments(path, assessor_kind="expert").assessor_kind == judgments.assessor_kind
    path.write_text("document,assessor,grade\na,ann,0\nb,gpt,1\n")
    assert read_judgments(path).assessor_kind == ["", ""]
    assert read_judgments(path, assessor_kind="llm").assessor_kind == ["llm", "llm"]
    with pytest.raises(UsageError) as caught:
        read_judgments(path, assessor_kind="robot")  # type: ignore[arg-type]
    assert caught.value.parameter == "assessor_kind"
