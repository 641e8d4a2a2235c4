"""A file is whole or not there: disk full, errors and interrupts leave what stood before."""

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

from crowdrank.errors import OutputError, UsageError
from crowdrank.files import replacing, require_folder
from crowdrank.judgments.write import check_output, write_table

TABLE = pa.table({"document": ["a", "b"], "grade": [1, 2]})
SUFFIXES = [f"{plain}{packed}" for plain in (".csv", ".tsv", ".parquet", ".jsonl") for packed in ("", ".gz")]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_half(path: Path, problem: BaseException) -> None:
    with replacing(path) as draft:
        draft.write_text("half of the n")
        raise problem


def write_folder(path: Path, text: str) -> None:
    with replacing(path) as draft:
        draft.mkdir()
        (draft / "a.txt").write_text(text)


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt(), SystemExit(1), MemoryError()])
def test_an_error_or_interrupt_leaves_the_old_file(problem: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(problem)):
        write_half(path, problem)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OutputError) as told:
        write_half(path, OSError(errno.ENOSPC, "No space left on device"))
    assert str(told.value) == f"Cannot write {path}: No space left on device; nothing was changed."
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


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
    with pytest.raises(OutputError if isinstance(problem, OSError) else KeyboardInterrupt) as told:
        write_table(pa.table({"document": ["other"] * 9}), path)
    monkeypatch.undo()
    if isinstance(problem, OSError):
        assert str(told.value) == f"Cannot write {path}: No space left on device; nothing was changed."
    assert path.read_bytes() == before
    assert names(tmp_path) == [path.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_disk_that_is_full_indeed(tmp_path: Path) -> None:
    def fill() -> None:
        with replacing(tmp_path / "a.txt") as draft:
            draft.symlink_to("/dev/full")
            draft.write_text("x" * 100_000)

    with pytest.raises(OutputError, match="No space left on device"):
        fill()
    assert names(tmp_path) == []


def test_a_folder_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_folder(path, "old")
    write_folder(path, "new")
    assert (path / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_the_old_folder_comes_back(problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    write_folder(path, "old")
    rename = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if self.name.endswith(".part"):
            raise problem
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError if isinstance(problem, OSError) else KeyboardInterrupt):
        write_folder(path, "new")
    assert (path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_folder_does_not_take_the_place_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("precious")
    with pytest.raises(OutputError) as told:
        write_folder(path, "new")
    assert str(told.value) == f"Cannot write {path}: it is a file, not a folder; choose another name."
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["labels.csv"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.mkdir()
    with pytest.raises(OutputError, match="nothing was changed"):
        write_table(TABLE, path)
    assert names(tmp_path) == ["out.csv"]


def test_the_folder_of_an_output_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.csv"
    for refuse in (require_folder, check_output):
        with pytest.raises(OutputError) as told:
            refuse(path)
        assert str(told.value) == f"Cannot write {path}: the folder {path.parent} does not exist; make it first."
    with pytest.raises(UsageError, match=r"its name ends in none of \.csv, \.tsv, \.parquet, \.jsonl"):
        check_output(tmp_path / "out.xlsx")


def test_a_packed_file_tells_neither_its_draft_nor_the_time(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "a.csv.gz")
    packed = (tmp_path / "a.csv.gz").read_bytes()
    assert b"part" not in packed
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
