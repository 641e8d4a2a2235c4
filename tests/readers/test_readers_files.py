"""Tables are written whole or not at all, in every format."""

from __future__ import annotations

import csv
import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from crowdrank._files import write_file
from crowdrank.errors import OutputError, UsageError
from crowdrank.readers.write import check_output, write_table

TABLE = pa.table({"document": ["a", "b"], "grade": [1, 2]})
SUFFIXES = [f"{plain}{packed}" for plain in (".csv", ".tsv", ".parquet", ".jsonl") for packed in ("", ".gz")]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class FullDisk:
    """A file that takes a few bytes and no more."""

    def __init__(self, path: Path, problem: BaseException) -> None:
        self.stream, self.problem, self.closed = open(path, "wb"), problem, False  # noqa: PTH123, SIM115 - Path.open is replaced by this class

    def write(self, data: Any) -> int:
        self.stream.write(bytes(data)[:3])
        raise self.problem

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.stream.flush()

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_no_format_leaves_half_a_file(
    suffix: str, problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"out{suffix}"
    write_table(TABLE, path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "open", lambda self, *_: FullDisk(self, problem))
    with pytest.raises(OutputError if isinstance(problem, OSError) else KeyboardInterrupt) as caught:
        write_table(pa.table({"document": ["other"] * 9}), path)
    monkeypatch.undo()
    if isinstance(caught.value, OutputError):
        assert (caught.value.kind, caught.value.location.source) == ("write-failed", str(path))
    assert path.read_bytes() == before
    assert names(tmp_path) == [path.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_disk_that_is_full_indeed(tmp_path: Path) -> None:
    def fill() -> None:
        with write_file(tmp_path / "a.txt") as draft:
            draft.symlink_to("/dev/full")
            draft.write_text("x" * 100_000)

    with pytest.raises(OutputError, match="No space left on device"):
        fill()
    assert names(tmp_path) == []


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        write_table(TABLE, path)
    assert names(tmp_path) == ["out.csv"]


def test_the_folder_of_an_output_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.csv"
    with pytest.raises(OutputError) as caught:
        check_output(path)
    assert (caught.value.kind, caught.value.location.source) == ("no-parent-folder", str(path))
    with pytest.raises(UsageError, match=r"its name ends in none of \.csv, \.tsv, \.parquet, \.jsonl"):
        check_output(tmp_path / "out.xlsx")


def test_a_packed_file_tells_neither_its_draft_nor_the_time(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "a.csv.gz")
    packed = (tmp_path / "a.csv.gz").read_bytes()
    assert b"draft" not in packed
    assert gzip.decompress(packed) == b'"document","grade"\n"a",1\n"b",2\n'


def test_coded_columns_and_what_is_no_number(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(["x", None, "x"]).dictionary_encode(), "b": [1.5, float("nan"), None]})
    write_table(table, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == '"a","b"\n"x",1.5\n,nan\n"x",\n'
    write_table(table, tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == '{"a": "x", "b": 1.5}\n{"a": null, "b": null}\n{"a": "x", "b": null}\n'


def test_csv_safe_changes_text_and_nothing_else(tmp_path: Path) -> None:
    text = ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "＝1", "a=1", "'=1", "", None]
    table = pa.table(
        {
            "=name": text,
            "coded": pa.array(text).dictionary_encode(),
            "large": pa.array(text, pa.large_string()),
            "number": [-1.5] * len(text),
        }
    )
    safe = [f"'{cell}" if at < 8 else cell for at, cell in enumerate(text)]
    write_table(table, tmp_path / "a.csv", csv_safe=True)
    with (tmp_path / "a.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["'=name", "coded", "large", "number"]
    assert rows == [[cell or ""] * 3 + ["-1.5"] for cell in safe]
    write_table(table, tmp_path / "a.jsonl", csv_safe=True)
    assert [json.loads(line)["=name"] for line in (tmp_path / "a.jsonl").open()] == text


def test_a_table_with_empty_chunks_has_one_header(tmp_path: Path) -> None:
    parts = [pa.table({"document": pa.array(ids, pa.string())}) for ids in ([], ["a"], [], ["b"])]
    write_table(pa.concat_tables(parts), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == '"document"\n"a"\n"b"\n'
    write_table(parts[0], tmp_path / "empty.csv")
    assert (tmp_path / "empty.csv").read_text() == '"document"\n'
