"""Writing tables, by suffix, so that a file is whole or not there."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from crowdrank._files import check_output_file, write_file
from crowdrank.errors import UsageError

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")
FORMULA = "[=+\\-@\t\r\n＝＋－＠]"
"""The first character of what spreadsheet programs run as a formula (OWASP, CSV Injection)."""


def check_output(path: str | Path) -> None:
    """Refuse a path that cannot be written to, before any work is done.

    >>> check_output("out.xlsx")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: Cannot write out.xlsx: its name ends in none of .csv, .tsv, .parquet, .jsonl (or these
    with .gz).
    """
    if _suffix(path) not in SUFFIXES:
        raise UsageError(f"Cannot write {path}: its name ends in none of {', '.join(SUFFIXES)} (or these with .gz).")
    check_output_file(path)


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse tables that cannot be written, or that would replace an input or each other."""
    for path in outputs.values():
        if path is not None:
            check_output(path)
    check_distinct(outputs, inputs)


def check_distinct(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse outputs that would replace an input or each other.

    >>> check_distinct({"-o": Path("a.csv")}, [Path("a.csv")])
    Traceback (most recent call last):
    crowdrank.errors.UsageError: -o names a.csv, which is read; choose another name.
    """
    read = {path.resolve() for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is not None and path.resolve() in read:
            raise UsageError(f"{option} names {path}, which is read; choose another name.")
    named = [path.resolve() for path in outputs.values() if path is not None]
    if len(set(named)) < len(named):
        raise UsageError(f"{' and '.join(outputs)} name the same file; choose another name for one.")


def _suffix(path: str | Path) -> str:
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def write_table(table: pa.Table, path: str | Path, *, csv_safe: bool = False) -> None:
    r"""Write a table as CSV, TSV, Parquet or JSON Lines, compressed if the name ends in .gz.

    Args:
        table: the table.
        path: the file; its suffix names the format.
        csv_safe: in CSV and TSV, put `'` before text that a spreadsheet program would run as a formula. It changes
            ids, so a file that programs read back must be written without it.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> write_table(pa.table({"a": [1]}), out)
    >>> out.read_text()
    '{"a": 1}\n'
    """
    check_output(path)
    with write_file(path) as draft, _opened(draft, packed=Path(path).suffix.lower() == ".gz") as stream:
        match _suffix(path):
            case ".parquet":
                pyarrow.parquet.write_table(table, stream)
            case ".jsonl":
                for batch in _nan_as_null(table).to_batches(max_chunksize=10_000):
                    stream.writelines(json.dumps(row, default=str).encode() + b"\n" for row in batch.to_pylist())
            case suffix:
                options = pyarrow.csv.WriteOptions(
                    delimiter="\t" if suffix == ".tsv" else ",", quoting_style="needed", quoting_header="needed"
                )
                plain = _undictionaried(table)
                pyarrow.csv.write_csv(_without_formulas(plain) if csv_safe else plain, stream, options)


def _undictionaried(table: pa.Table) -> pa.Table:
    """The table with its dictionary-coded columns spelt out, which CSV needs."""
    kinds = {field.name: field.type for field in table.schema if pa.types.is_dictionary(field.type)}
    for name, kind in kinds.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind.value_type))
    return table


def _without_formulas(table: pa.Table) -> pa.Table:
    """Return the table with `'` before every text and column name that begins like a formula."""
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            text = pyarrow.compute.replace_substring_regex(table.column(position), rf"\A({FORMULA})", r"'\1")
            table = table.set_column(position, field.name, text)
    return table.rename_columns([f"'{name}" if re.match(FORMULA, name) else name for name in table.column_names])


def _nan_as_null(table: pa.Table) -> pa.Table:
    """The table with null for what is no number, which JSON has no word for."""
    for position, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table.column(position)
            number = pyarrow.compute.if_else(pyarrow.compute.is_finite(column), column, pa.scalar(None, field.type))
            table = table.set_column(position, field.name, number)
    return table


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[IO[Any]]:
    with path.open("wb") as stream:
        if not packed:
            yield stream
            return
        # Neither time nor name inside the file: the same table makes the same bytes.
        with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as zipped:
            yield zipped  # type: ignore[misc]
