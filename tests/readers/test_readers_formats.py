"""The same judgments in every format, suffix and DataFrame library are the same judgments."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from crowdrank import read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.files import uncompressed_name
from crowdrank.readers.formats import format_by_suffix
from crowdrank.readers.write import write_table
from judgments_reference import LIBRARIES, WRITERS, check, rows, written

SUFFIXES = [*WRITERS, *(f"{suffix}.gz" for suffix in WRITERS)]
LABELS = pd.DataFrame(
    {
        "query": ["jam, sweet", "jam, sweet", 'say "jam"', "été", "été"],
        "document": ["d1", "d2", "d1", "two\nlines", "d 4"],
        "assessor": ["ann", "bob", "ann", "日本", "bob"],
        "grade": [2, 0, 1, 0, 2],
        "family": ["x", None, "x", "y", None],
        "time": ["2024-05-31T10:15:00", None, "2024-05-31T10:15:01.5", None, "2024-06-01"],
        "duration": [1.5, 2.0, None, 0.0, 7.25],
        "cost": [0.01, 0.01, 0.02, None, 0.0],
        "honeypot": [2, None, None, 1, None],
    }
)


def same(one: Any, other: Any) -> None:
    check(one)
    assert rows(one) == rows(other)
    assert one.queries.equals(other.queries)
    assert one.documents.equals(other.documents)
    assert one.assessors.equals(other.assessors)
    for name in ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_scale", "assessor_family"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.families.equals(other.families)
    assert one.scales == other.scales
    assert list(one.extras) == list(other.extras)
    for name in one.extras:
        assert one.extras[name].dtype == other.extras[name].dtype
        np.testing.assert_array_equal(one.extras[name], other.extras[name])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_file_format_holds_the_same(suffix: str, tmp_path: Path) -> None:
    same(read_judgments(written(LABELS, tmp_path, suffix)), read_judgments(LABELS))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_holds_the_same(library: str) -> None:
    same(read_judgments(LIBRARIES[library](LABELS)), read_judgments(LABELS))


@pytest.mark.parametrize(
    ("library", "kind"),
    [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("polars lazy", pl.DataFrame), ("pyarrow", pa.Table)],
)
def test_results_come_back_in_the_same_library(library: str, kind: type) -> None:
    frame: Any = LIBRARIES[library](LABELS)
    judgments = read_judgments(frame)
    assert isinstance(judgments.frame, kind)
    again: Any = judgments.frame
    same(read_judgments(again), judgments)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    judgments = read_judgments(LABELS)
    write_table(judgments.to_arrow(), tmp_path / f"out.{suffix}")
    again = read_judgments(tmp_path / f"out.{suffix}")
    assert rows(again) == rows(judgments)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_table_makes_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    table = read_judgments(LABELS).to_arrow()
    paths = [tmp_path / f"{name}.{suffix}" for name in ("one", "other")]
    for path in paths:
        write_table(table, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_whole_number_ids_stay_numbers_in_typed_formats(tmp_path: Path) -> None:
    frame = LABELS.assign(document=[1, 2, 1, 3, 4])
    for source in (frame, written(frame, tmp_path, "parquet"), written(frame, tmp_path, "jsonl")):
        assert read_judgments(source).documents.to_pylist() == [1, 2, 3, 4]
    assert read_judgments(written(frame, tmp_path, "csv")).documents.to_pylist() == ["1", "2", "3", "4"]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64", "Int64", "float32", "float64", "category"])
def test_ids_of_any_number_type_are_the_same_ids(kind: str) -> None:
    judgments = read_judgments(LABELS.assign(document=pd.Series([7, 3, 7, 9, 5]).astype(kind)))  # type: ignore[call-overload]
    assert judgments.documents.equals(pa.array([7, 3, 9, 5]))


def test_ids_too_large_for_a_number_are_text(tmp_path: Path) -> None:
    frame = LABELS.assign(document=[2**64 + 1, 2, 3, 4, 5])
    expected = ["18446744073709551617", "2", "3", "4", "5"]
    wide = pl.DataFrame({name: frame[name].tolist() for name in ("document", "assessor", "grade")})
    assert read_judgments(frame).documents.to_pylist() == expected
    assert read_judgments(wide).documents.to_pylist() == expected
    assert read_judgments(written(frame, tmp_path, "jsonl")).documents.to_pylist() == expected


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_crowd_kit_frames_and_files(suffix: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"task": ["a", "b"], "worker": ["x", "x"], "label": [1, 0]})
    for judgments in (
        read_judgments(frame),
        read_judgments(frame, format="crowd-kit"),
        read_judgments(written(frame, tmp_path, suffix), format="crowd-kit"),
    ):
        assert rows(judgments) == [("all", "a", "x", "1"), ("all", "b", "x", "0")]


RF10 = (
    "topicID\tworkerID\tdocID\tgold\tlabel\n"
    "20002\tw1\tc-1\t-1\t0\n20002\tw2\tc-1\t-1\t-2\n20002\tw1\tc-2\t-2\t-2\n20004\tw1\tc-3\t2\t1\n20004\tw2\tc-4\t0\t0\n"
)


def test_trec_rf10_as_published(tmp_path: Path) -> None:
    path = tmp_path / "trec-rf10-data.txt"
    path.write_text(RF10)
    judgments = read_judgments(path, format="trec-rf10")
    check(judgments)
    assert repr(judgments) == "<Judgments: 5 judgments of 4 documents in 2 queries by 2 assessors, grades 0,1>"
    assert judgments.n_unjudgeable == 2
    assert judgments.extras["honeypot"].tolist() == [-2, -2, -1, -2, -2]
    gold = read_gold(path, format="trec-rf10")
    assert gold.frame["grade"].tolist() == [0, 2, 0]
    assert read_gold(path, format="trec-rf10", unjudgeable_as="drop").document.to_pylist() == ["c-3", "c-4"]


def test_qrels_runs_and_letor(tmp_path: Path) -> None:
    (tmp_path / "a.qrels").write_text("7 0 d1 2\n\n7 0 d2 0\n8 0 d1 1\n")
    assert read_gold(tmp_path / "a.qrels").frame.to_numpy().tolist() == [["7", "d1", 2], ["7", "d2", 0], ["8", "d1", 1]]
    assert read_judgments(tmp_path / "a.qrels").assessors.to_pylist() == ["a"]
    (tmp_path / "a.run").write_text("7 Q0 d2 1 9.5 bm25\n7 Q0 d1 2 1e-3 bm25\n")
    assert read_run(tmp_path / "a.run").to_numpy().tolist() == [["7", "d2", 9.5], ["7", "d1", 0.001]]
    lines = ["2 qid:10 1:0.5 3:7 #docid = GX-1 inc = 1", "", "# a comment", "0 qid:10 2:-1e3"]
    letor = "\n".join([*lines, "1 qid:11 1:1 # docid = GX-2", "0 qid:11"]).encode()
    (tmp_path / "a.letor").write_bytes(letor)
    features = read_features(tmp_path / "a.letor")
    assert features.query.to_pylist() == ["10", "10", "11", "11"]
    assert features.document.to_pylist() == ["GX-1", "2", "GX-2", "2"]
    assert features.matrix.tolist() == [[0.5, 0, 7], [0, -1000, 0], [1, 0, 0], [0, 0, 0]]
    assert features.names == ("f1", "f2", "f3")
    assert features.grade is not None
    assert features.grade.tolist() == [2, 0, 1, 0]
    assert repr(features) == "<Features: 4 documents in 2 queries, 3 features>"
    assert len(read_gold(tmp_path / "a.letor")) == 4
    (tmp_path / "b.svmlight.gz").write_bytes(gzip.compress(letor))
    np.testing.assert_array_equal(read_features(tmp_path / "b.svmlight.gz").matrix, features.matrix)


def test_features_of_tables_may_be_blank(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"qid": [1, 1], "docid": ["a", "b"], "nist_grade": [3, None], "bm25": [1.5, None], "x": [1, 2]}
    )
    for source in (frame, written(frame, tmp_path, "csv"), written(frame, tmp_path, "parquet")):
        features = read_features(source)
        assert features.names == ("bm25", "x")
        np.testing.assert_array_equal(features.matrix, [[1.5, 1], [np.nan, 2]])
        assert features.grade is not None
        np.testing.assert_array_equal(features.grade, [3, np.nan])
    assert read_features(frame).query.to_pylist() == [1, 1]


def test_grades_of_a_run_are_numbers_if_their_order_is_known() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "relevance": [0.5, 1.5], "grade": ["Bad", "Good"]})
    assert read_run(frame)["grade"].tolist() == ["Bad", "Good"]
    assert read_run(frame, scale=Scale.parse("Bad,Good"))["grade"].tolist() == [0.0, 1.0]
    assert read_run(frame.assign(scale="Good|Fair|Bad"))["grade"].tolist() == [2.0, 0.0]
    assert read_run(frame.assign(grade=["0", "2"]))["grade"].tolist() == [0.0, 2.0]
    assert isinstance(read_run(pl.DataFrame(frame)), pl.DataFrame)


def test_a_column_map_and_the_names_of_the_field() -> None:
    frame = pd.DataFrame({"topicID": ["q"], "Docno": ["d"], "judge": ["w"], "rating": [1], "label": ["x"]})
    judgments = read_judgments(frame, columns="grade=rating")
    assert rows(judgments) == [("q", "d", "w", "1")]
    assert rows(read_judgments(frame, columns={"grade": "rating"})) == rows(judgments)
    exact = pd.DataFrame({"Grade": ["x"], "grade": [1], "document": ["d"], "assessor": ["w"]})
    assert rows(read_judgments(exact)) == [("all", "d", "w", "1")]
    numbered = pd.DataFrame([["d", "w", 1]])
    assert rows(read_judgments(numbered, columns="document=0,assessor=1,grade=2")) == [("all", "d", "w", "1")]


def test_other_separators(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    for separator in (";", "|", "\t", " "):
        LABELS.to_csv(path, sep=separator, index=False)
        same(read_judgments(path, separator=separator), read_judgments(LABELS))
    LABELS.to_csv(path, sep="\t", index=False)
    same(read_judgments(path, separator="\\t"), read_judgments(LABELS))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_line_ends_marks_and_blank_lines_do_not_matter(ending: str, start: str, end: str, tmp_path: Path) -> None:
    text = start + "document,assessor,grade\na,x,1\n\nb,x,0" + end
    path = tmp_path / "labels.csv"
    path.write_bytes(text.replace("\n", ending).encode())
    assert rows(read_judgments(path)) == [("all", "a", "x", "1"), ("all", "b", "x", "0")]


def test_a_cell_longer_than_a_block(tmp_path: Path) -> None:
    long = pd.DataFrame({"document": range(3), "assessor": "ann", "grade": 1, "note": ["a", "x" * 3_000_000, "b\nc"]})
    path = written(long, tmp_path, "csv")
    assert len(read_judgments(path)) == 3
    with path.open("ab") as stream:
        stream.write(b"last,ann\n")
    skipped = read_judgments(path, on_bad_rows="skip")
    assert skipped.report.skipped == {"malformed line": 1}
    assert skipped.report.examples["malformed line"].location.place == "row 4 (line 6)"


def test_rows_are_counted_right_over_many_blocks(tmp_path: Path) -> None:
    n = 60_000
    lines = [f'"{number}\n{"x" * 40}",ann,1' for number in range(n)]  # two lines each, some 3 MB
    for row in (10, 20_000, 50_000):
        lines[row - 1] = "short"
    lines[55_000 - 1] = "d,ann,x"
    path = tmp_path / "labels.csv"
    path.write_text("document,assessor,grade\n" + "\n".join(lines))
    judgments = read_judgments(path, on_bad_rows="skip")
    assert len(judgments) == n - 4
    assert judgments.report.rows == n
    assert judgments.report.skipped == {"malformed line": 3, "grade off the scale": 1}
    assert f"{path}, row 10 (line 20): there is 1 cell" in str(judgments.report.examples["malformed line"])
    assert judgments.report.examples["grade off the scale"].location.place == "row 55000 (line 109997)"


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.csv", "csv"), ("a.TSV.GZ", "tsv"), ("a.b.pq", "parquet"), ("x.ndjson.gz", "jsonl"), ("y.svm", "letor")],
)
def test_format_by_suffix(name: str, format: str) -> None:
    assert format_by_suffix(uncompressed_name(name)) == format


def test_a_frame_has_no_file_format() -> None:
    with pytest.raises(UsageError, match="leave it out for a DataFrame"):
        read_judgments(LABELS, format="csv")
    for nothing in (None, 7, b"labels.csv", [LABELS], LABELS["query"]):
        with pytest.raises(CrowdrankError, match="a DataFrame is required, not"):
            read_judgments(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "parquet.gz"])
def test_arrows_threads_hold_nothing_of_pythons(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They may let go of it when the interpreter is already gone, and then the process aborts.
    held: list[tuple[Any, Any]] = []

    def noting(read: Any) -> Any:
        def noted(file: Any, **options: Any) -> Any:
            threads = "read_options" not in options or options["read_options"].use_threads
            parsing = options.get("parse_options")
            held.append((file, parsing.invalid_row_handler if parsing is not None and threads else None))
            return read(file, **options)

        return noted

    monkeypatch.setattr(pyarrow.csv, "read_csv", noting(pyarrow.csv.read_csv))
    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", noting(pyarrow.parquet.ParquetFile))
    frame = pd.DataFrame({"document": ["d", "e"], "assessor": ["ann", "ben"], "grade": [0, 1]})
    assert len(read_judgments(written(frame, tmp_path, suffix))) == 2
    assert held
    for file, function in held:
        assert isinstance(file, pa.NativeFile)
        assert not isinstance(file, pa.PythonFile)
        assert function is None


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
TABLE = b"query,document,assessor,grade\nq,a,x,1\nq,b,x,0\n"


def zipped(**files: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return archive.getvalue()


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip"])
def test_compressed_files_are_recognized_by_their_content(suffix: str, tmp_path: Path) -> None:
    utf16 = TABLE.decode().encode("utf-16")
    frame = pd.DataFrame({"query": "q", "document": ["a", "b"], "assessor": "x", "grade": [1, 0]})
    frame.to_parquet(tmp_path / "a.parquet")
    parquet = (tmp_path / "a.parquet").read_bytes()
    for name, content in (("t.csv", TABLE), ("u.csv", utf16), ("p.parquet", parquet), ("q.txt", b"q 0 a 1\nq 0 b 0\n")):
        packed = zipped(**{name: content}) if suffix == "zip" else COMPRESS[suffix](content)
        for path in (tmp_path / f"{name}.{suffix}", tmp_path / f"other-{name}"):
            path.write_bytes(packed)
            judgments = read_judgments(path)
            assert judgments.documents.to_pylist() == ["a", "b"]
            assert judgments.grade.tolist() == [1, 0]
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(tmp_path / f"t.csv.{suffix}", max_bytes=len(TABLE) - 1)
    assert caught.value.kind == "too-large"


def test_the_name_of_a_compressed_file_is_that_of_its_content(tmp_path: Path) -> None:
    rows = b"document,grade\na,1\n"
    for name, content in (
        ("ann.csv.bz2", bz2.compress(rows)),
        ("x.zip", zipped(**{"__MACOSX/a": b"", "in/bob.csv": rows})),
    ):
        (tmp_path / name).write_bytes(content)
    assert read_judgments(tmp_path).assessors.to_pylist() == ["ann", "bob"]


def test_a_name_may_promise_compression(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(TABLE)
    assert len(read_judgments(tmp_path / "a.csv.gz")) == 2


@pytest.mark.parametrize("files", [{}, {"a.csv": TABLE, "b.csv": TABLE}])
def test_an_archive_of_several_files_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(**files))
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(tmp_path / "a.zip")
    assert caught.value.kind == "archive"


# Tables without a header, and stray quotes.


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.csv"])
def test_numbers_of_workers_are_not_taken_for_iterations(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("q\t7\td1\t1\nq\t8\td1\t0\n")
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(tmp_path / name)
    assert caught.value.kind == "no-header"
    assert caught.value.fixes[1].parameter == "format"
    assert len(read_judgments(tmp_path / name, format="qrels", repeats="keep", assessor_name="x")) == 2
    for constant in ("0", "Q0", "3"):
        (tmp_path / name).write_text(f"q\t{constant}\td1\t1\nq\t{constant.lower()}\td2\t0\n")
        assert len(read_gold(tmp_path / name)) == 2


def test_a_table_without_a_header_is_advised_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q,d1,ann,1\n")
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(tmp_path / "a.csv")
    assert (caught.value.kind, len(caught.value.fixes)) == ("no-column", 2)


STRAY = 'query,document,assessor,grade,comment\nq,a,x,2,"nice\nq,b,y,1,good"\n\nq,c,x,0,"\nq,d,x,0,ok\n'


def test_stray_quotes_in_tab_separated_text_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for content in (STRAY, STRAY.replace(',"\n', ",x\n"), STRAY.replace("q,a", '"q,a').replace("q,c", '"q,c')):
        path.write_text(content.replace(",", "\t"))
        judgments = read_judgments(path)
        assert judgments.report.rows == len(judgments) == 4
    path.write_text(STRAY.replace(",", "\t").replace("\t2\t", "\tbad\t"))
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(path)
    assert caught.value.location.place == "row 1 (line 2)"


def test_stray_quotes_in_other_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(STRAY.replace(',"\n', ",x\n"))
    with pytest.raises(CrowdrankError) as caught:
        read_judgments(path)
    assert (caught.value.kind, caught.value.location.place) == ("open-quote", "row 1 (line 2)")
    with pytest.raises(CrowdrankError) as caught:
        list(DelimitedSource(path).read_batches(["document"], 10))
    assert caught.value.kind == "open-quote"


def test_quoted_cells_with_line_breaks_are_cells(tmp_path: Path) -> None:
    for separator, name in (("\t", "a.tsv"), (",", "a.csv")):
        cells = ["query", "document", "assessor", "grade", "comment"], ["q", "a", "x", "1", '"two\nlines"']
        (tmp_path / name).write_text("\n".join(map(separator.join, cells)) + "\n")
        assert read_judgments(tmp_path / name).report.rows == 1


@pytest.mark.parametrize("is_compressed", [False, True])
def test_text_in_a_file_with_the_suffix_of_parquet_is_read_by_its_content(tmp_path: Path, is_compressed: bool) -> None:
    text = b"query,document,assessor,grade\nq,a,x,1\nq,b,x,0\n"
    path = tmp_path / "labels.parquet"
    path.write_bytes(gzip.compress(text) if is_compressed else text)
    assert len(read_judgments(path)) == 2
    path.write_bytes(gzip.compress(bytes(range(256))))
    with pytest.raises(InputError, match="Parquet"):
        read_judgments(path)
