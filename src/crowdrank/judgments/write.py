"""Writing tables, by suffix, so that a file is whole or not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from crowdrank.errors import UsageError
from crowdrank.files import replacing, require_folder

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")


def check_output(path: str | Path) -> None:
    """Refuse a path that cannot be written to, before any work is done.

    >>> check_output("out.xlsx")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: Cannot write out.xlsx: its name ends in none of .csv, .tsv, .parquet, .jsonl (or these
    with .gz).
    """
    if _suffix(path) not in SUFFIXES:
        raise UsageError(f"Cannot write {path}: its name ends in none of {', '.join(SUFFIXES)} (or these with .gz).")
    require_folder(path)


def _suffix(path: str | Path) -> str:
    return Path(Path(path).name.removesuffix(".gz")).suffix.lower()


def write_table(table: pa.Table, path: str | Path) -> None:
    r"""Write a table as CSV, TSV, Parquet or JSON Lines, packed where the name ends in .gz.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> write_table(pa.table({"a": [1]}), out)
    >>> out.read_text()
    '{"a": 1}\n'
    """
    check_output(path)
    with replacing(path) as draft, _opened(draft, packed=Path(path).suffix == ".gz") as stream:
        match _suffix(path):
            case ".parquet":
                pyarrow.parquet.write_table(table, stream)
            case ".jsonl":
                stream.writelines(json.dumps(row, default=str).encode() + b"\n" for row in table.to_pylist())
            case suffix:
                options = pyarrow.csv.WriteOptions(
                    delimiter="\t" if suffix == ".tsv" else ",", quoting_style="needed", quoting_header="needed"
                )
                pyarrow.csv.write_csv(table, stream, options)


def _opened(path: Path, *, packed: bool) -> IO[Any]:
    # No time of writing inside the file: the same table makes the same bytes.
    return gzip.GzipFile(path, "wb", mtime=0) if packed else path.open("wb")  # type: ignore[return-value]
