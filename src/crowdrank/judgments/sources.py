"""Sources of tables: text, Parquet and JSON Lines files and DataFrames; functions that open files.

A source reads only the requested columns. Cells of text files stay text: `encode.py` decides for every source what a
grade or an id is.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import os
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ID_COLUMN_NAMES
from crowdrank.judgments.limits import (
    MAX_BYTES,
    line_too_long_error,
    numbered_lines,
    require_file_size,
    too_large_error,
)
from crowdrank.judgments.limits import MAX_LINE_BYTES as MAX_LINE_BYTES

DICTIONARY_BYTES_PER_ROW = 0.1
"""Maximum size of a Parquet dictionary, in bytes per row, for which a column is read as dictionary codes."""
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
"""Separators that are detected, with their names in errors."""
CSV_BLOCK_BYTES = 1 << 20
"""Number of bytes that Arrow's CSV parser reads at a time."""
MIN_BYTES_PER_CELL = 4
"""Minimum memory for a cell: the size of a code."""
MAX_EXACT_INTEGER = 2**53
"""Largest integer up to which a float64 holds every integer exactly."""
NOT_LABELED_REASON = "not labeled"
"""Reason under which rows with an empty list of labels are counted."""
SKIP_BAD_ROWS_FIX = Fix("leave such rows out with {}", "on_bad_rows", "skip")
EXPORT_AS_CSV_ADVICE = "export the table as CSV, or as an Excel workbook (.xlsx)"


class Source(ABC):
    """A table that can be read column by column."""

    name: str  # path of the file, for errors
    backend = "pandas"  # DataFrame library of results
    names: list[str]  # column names
    units: Mapping[str, str] = MappingProxyType({})  # units of durations and costs, if the format defines them
    has_assessor_column = True  # whether a file of this format can have an assessor column

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; `bad_rows` raises an error for malformed lines, or counts them."""

    def place(self, row: int) -> str:
        """Return the place in the file, for errors, of a row of the table that `read` returned."""
        return f"row {row + 1}"


class FrameSource(Source):
    """A DataFrame of any library.

    >>> import pandas as pd
    >>> FrameSource(pd.DataFrame({"task": [1], "worker": ["a"]})).names
    ['task', 'worker']
    """

    name = frames.FRAME_SOURCE_NAME

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.backend = frames.frame_library(frame)
        self.names = frames.column_names(frame)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` as Arrow columns."""
        frame = frames.collect_columns(self.frame, list(names))
        columns = {name: frames.column_to_arrow(frame, name) for name in names}
        return pa.table({name: frames.to_plain_values(column, self.name, name) for name, column in columns.items()})


class DelimitedSource(Source):
    """Text file with a header line, whose cells are separated by a character.

    Args:
        path: the file.
        separator: the separator; by default it is detected in the header.
        preferred: the separator to detect if the header contains several.

    """

    def __init__(self, path: str | Path, separator: str | None = None, preferred: str = ",") -> None:
        self.path, self.name = Path(path), str(path)
        self.separator = separator or self._detect_separator(preferred)
        self.names = self._read_header(self.separator)
        if not self.names:
            raise no_rows_error(self.name)
        if any("\0" in name for name in self.names):
            raise InputError("it is not a text file", source=self.name, kind="other-format", fix=EXPORT_AS_CSV_ADVICE)
        self._refuse_wrong_separator()
        self._last = self.names[-1]
        self._skipped_records = np.empty(0, dtype=np.int64)

    def _read_header(self, separator: str) -> list[str]:
        """Return the cells of the first record."""
        with open_decompressed(self.path) as stream:
            return next(self._read_records(stream, separator, errors="strict"), (0, []))[1]

    def _detect_separator(self, preferred: str) -> str:
        """Return `preferred` if it separates the header, or else the separator that gives the most columns."""
        n_columns = {separator: len(self._read_header(separator)) for separator in (preferred, *SEPARATORS)}
        return preferred if n_columns[preferred] > 1 else max(n_columns, key=lambda separator: n_columns[separator])

    def _read_records(
        self, stream: BinaryIO, separator: str, errors: str = "replace", extra_lines: Sequence[str] = ()
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line number and the cells of each non-blank record.

        This is slow, and used for the header and for errors only.

        Args:
            stream: the file.
            separator: the separator.
            errors: what to do with bytes that are not UTF-8, as in `bytes.decode`.
            extra_lines: lines to read after those of the file.

        """
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="")
        previous_limit = csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(chain(self._text_lines(text), extra_lines), delimiter=separator)
        line = 1
        try:
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
        finally:
            csv.field_size_limit(previous_limit)
            text.detach()

    def _text_lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        """Yield the lines of a text; raise InputError at a line that is too long."""
        for line in iter(partial(text.readline, MAX_LINE_BYTES), ""):
            if len(line) == MAX_LINE_BYTES and not _has_newline(line[-1]):
                raise line_too_long_error(self.name, "")
            yield line

    def _refuse_wrong_separator(self) -> None:
        """Raise InputError if the header is one column that contains another separator."""
        others = [other for other in SEPARATORS if other != self.separator and other in self.names[0]]
        if len(self.names) == 1 and others:
            raise InputError(
                f"the header {shown(self.names[0])} is one column when split at {self._separator_name()}",
                source=self.name,
                kind="wrong-separator",
                fix=Fix(f"it looks separated by {SEPARATORS[others[0]]}: use {{}}", "separator", others[0]),
            )

    def _separator_name(self) -> str:
        return SEPARATORS.get(self.separator, repr(self.separator))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        # The last column shows whether a quote is left open: it then holds the rest of the file.
        table, malformed = self._parse(list(dict.fromkeys((*names, self._last))))
        last = table[self._last][-1].as_py() if len(table) else ""
        if malformed.has_newline or _has_newline(last):
            self._refuse_open_quote()
        if malformed.first is not None:
            bad_rows.count_malformed(self._malformed_row_error(malformed.first), len(malformed.numbers))
            self._skipped_records = np.asarray(malformed.numbers) - 2
        return table.select(list(names))

    def _parse(self, names: list[str]) -> tuple[pa.Table, _MalformedRows]:
        """Return the rows that have as many cells as the header, and information about the other rows."""
        malformed = _MalformedRows()
        # Only the sequential parser counts rows. Arrow's threads never get a Python function: they may release it after
        # the interpreter has ended, which aborts the process.
        for sequential, block_bytes in ((False, CSV_BLOCK_BYTES), (True, CSV_BLOCK_BYTES), (True, MAX_LINE_BYTES)):
            # Text that is not UTF-8 is refused here, because Arrow would print a traceback.
            if sequential and block_bytes == CSV_BLOCK_BYTES and (place := _first_undecodable_line(self.path)):
                raise _encoding_error(self.path, place)
            malformed = _MalformedRows()
            table = self._parse_with_arrow(names, malformed.add if sequential else None, block_bytes)
            if table is not None:
                return table, malformed
        raise _open_quote_error(self.name, "")

    def _parse_with_arrow(self, names: list[str], on_malformed_row: Any, block_bytes: int) -> pa.Table | None:
        """Return the table, or None if Arrow cannot parse it with these arguments.

        Args:
            names: names of the columns to read.
            on_malformed_row: function that Arrow calls with each malformed row; without it, such a row gives None.
            block_bytes: number of bytes that Arrow reads at a time; a row that is longer gives None.

        """
        with arrow_file(self.path) as file:
            try:
                return pyarrow.csv.read_csv(
                    file,
                    read_options=pyarrow.csv.ReadOptions(use_threads=on_malformed_row is None, block_size=block_bytes),
                    parse_options=pyarrow.csv.ParseOptions(
                        delimiter=self.separator, newlines_in_values=True, invalid_row_handler=on_malformed_row
                    ),
                    convert_options=pyarrow.csv.ConvertOptions(
                        include_columns=names, column_types={name: pa.string() for name in names}
                    ),
                )
            except pa.ArrowInvalid as problem:
                if "straddling" in str(problem) or "parse error: Expected" in str(problem):
                    return None
                raise

    def _refuse_open_quote(self) -> None:
        """Raise InputError if a quote is open at the end of the file."""
        with open_decompressed(self.path) as stream:
            for number, (line, cells) in enumerate(self._read_records(stream, self.separator, extra_lines=["end"])):
                last_place, open_quote = f"row {number} (line {line})", cells != ["end"]
        if open_quote:
            raise _open_quote_error(self.name, last_place)

    def _malformed_row_error(self, invalid_row: Any) -> InputError:
        """Return the error for a row with another number of cells than the header."""
        quote = ", close a quote that spans lines" if _has_newline(invalid_row.text) else ""
        return InputError(
            f"{_there_are(invalid_row.actual_columns, 'cell')} where the header has {invalid_row.expected_columns}",
            source=self.name,
            place=self._place_of_record(invalid_row.number - 2),
            fix=[
                f"correct the line{quote}",
                Fix(f"if cells are not separated by {self._separator_name()}, give {{}}", "separator"),
                SKIP_BAD_ROWS_FIX,
            ],
        )

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its number, from 1 below the header, and its line in the file."""
        record = row
        for skipped in self._skipped_records:
            record += int(skipped <= record)
        return self._place_of_record(record)

    def _place_of_record(self, record_index: int) -> str:
        with open_decompressed(self.path) as stream:
            for position, (line, _) in enumerate(self._read_records(stream, self.separator)):
                if position == record_index + 1:
                    return f"row {record_index + 1} (line {line})"
        return f"row {record_index + 1}"


@dataclass
class _MalformedRows:
    """Rows with another number of cells than the header."""

    first: Any = None  # the first such row, as an object of Arrow
    numbers: array[int] = field(default_factory=lambda: array("q"))  # row numbers by Arrow, from 1 for the header
    has_newline: bool = False  # whether one of the rows has a line break in a cell

    def add(self, invalid_row: Any) -> str:
        """Add a row; return "skip", which tells Arrow to skip it."""
        if self.first is None:
            self.first = invalid_row
        self.numbers.append(invalid_row.number)
        self.has_newline = self.has_newline or _has_newline(invalid_row.text)
        return "skip"


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text


class ParquetSource(Source):
    """A Parquet file; columns with few distinct values are read as dictionary codes."""

    def __init__(self, path: str | Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.name, self.max_bytes = Path(path), str(path), max_bytes
        with self._open_seekable() as file:
            self.names = pyarrow.parquet.read_schema(file).names

    @contextmanager
    def _open_seekable(self) -> Iterator[pa.NativeFile]:
        """Open the file for random access."""
        with arrow_file(self.path, text=False) as file:
            # Parquet seeks, which gzip does by unpacking from the start each time.
            yield file if file.seekable() else pa.BufferReader(file.read_buffer())

    @staticmethod
    def _dictionary_columns(metadata: pyarrow.parquet.FileMetaData, names: Sequence[str]) -> list[str]:
        """Return the names of the text columns that have few distinct values, to read them as dictionary codes.

        A column with many values has a large dictionary in every row group; merging these takes longer than encoding
        the text.
        """
        coded = set(names)
        column_indexes = [
            column_index
            for column_index in range(metadata.num_columns)
            if metadata.schema.column(column_index).path in coded
        ]
        for group in range(metadata.num_row_groups):
            for column_index in column_indexes:
                column = metadata.row_group(group).column(column_index)
                dictionary_start = column.dictionary_page_offset
                dictionary_bytes = math.inf if dictionary_start is None else column.data_page_offset - dictionary_start
                if (
                    column.physical_type != "BYTE_ARRAY"
                    or dictionary_bytes > DICTIONARY_BYTES_PER_ROW * column.num_values
                ):
                    coded.discard(column.path_in_schema)
        return sorted(coded)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        with self._open_seekable() as file:
            parquet_file = pyarrow.parquet.ParquetFile(file, pre_buffer=True)
            require_parquet_rows(parquet_file.metadata, names, self.max_bytes, self.name)
            # Reading the metadata of a damaged column aborts the process; reading a row raises an error first.
            next(parquet_file.iter_batches(batch_size=1, columns=list(names)), None)
            require_parquet_size(parquet_file.metadata, names, self.max_bytes, self.name)
            coded = self._dictionary_columns(parquet_file.metadata, names)
            table = pyarrow.parquet.read_table(file, columns=list(names), read_dictionary=coded)
            if len(table) != parquet_file.metadata.num_rows:
                raise damaged_rows_error(self.name)
        return pa.table({name: frames.to_plain_values(table[name], self.name, name) for name in names})


def require_parquet_rows(
    metadata: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source_name: str
) -> None:
    """Raise InputError if the row counts of a Parquet file contradict each other or exceed the limit."""
    rows_per_group = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if sum(rows_per_group) != metadata.num_rows or min(rows_per_group, default=0) < 0:
        raise damaged_rows_error(source_name)
    if metadata.num_rows * len(names) * MIN_BYTES_PER_CELL > max_bytes:
        raise too_large_error(source_name, "it", max_bytes)


def require_parquet_size(
    metadata: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source_name: str
) -> None:
    """Raise InputError if the columns `names` of a Parquet file take more than `max_bytes` decompressed."""
    requested = set(names)
    column_indexes = [
        column_index
        for column_index in range(metadata.num_columns)
        if metadata.schema.column(column_index).path in requested
    ]
    groups = range(metadata.num_row_groups)
    sizes = [
        metadata.row_group(group).column(column_index).total_uncompressed_size
        for group in groups
        for column_index in column_indexes
    ]
    if sum(sizes) > max_bytes:
        raise too_large_error(source_name, "decompressed, it", max_bytes)


def damaged_rows_error(source_name: str) -> InputError:
    """Return the error for a Parquet file whose rows contradict its footer."""
    problem = "it does not hold the rows that its footer states"
    return InputError(problem, source=source_name, kind="damaged", fix="it is damaged: download or write it again")


class JsonLinesSource(Source):
    """Text file with one JSON object per line; a list with one label, as doccano exports it, is read as the label."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self._lines: list[int] = []
        with open_decompressed(path) as stream:
            # All lines are scanned for keys: writers leave out the key of a blank value.
            self.names = list(
                dict.fromkeys(key for _, row in self._read_objects(stream, BadRows("skip")) for key in row)
            )
        if not self.names:
            with open_decompressed(path) as stream:
                _ = list(self._read_objects(stream, BadRows()))  # raises the error of the first line
            raise no_rows_error(self.name)

    def _read_objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the object of each line."""
        for line_number, line in numbered_lines(stream, self.name):
            text = line.decode().strip()
            if not text:
                continue
            value, problem = _parse_json_object(text)
            if value is not None:
                yield line_number, value
            else:
                fixes = ("correct it", SKIP_BAD_ROWS_FIX)
                bad_rows.count_malformed(InputError(problem, source=self.name, place=f"line {line_number}", fix=fixes))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; a missing key becomes null."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with open_decompressed(self.path) as stream:
            for line_number, row in self._read_objects(stream, bad_rows):
                if is_unlabeled(row, names):
                    bad_rows.count_left_out(NOT_LABELED_REASON, 1)
                    continue
                self._lines.append(line_number)
                for name, column in columns.items():
                    column.append(only_label(name, row.get(name)))
        return pa.table({name: self._typed_column(name, cells) for name, cells in columns.items()})

    def _typed_column(self, name: str, cells: list[Any]) -> pa.Array:
        """Return the cells of a column as an Arrow array; raise InputError if they are not of one JSON type."""
        kind = ""
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if json_kind(cell) not in (kind or json_kind(cell), ""):
                raise self._cell_error(row, name, cell, "has another type than the values before it")
            kind = json_kind(cell)
            if not kind:
                raise self._cell_error(row, name, cell, "is a list or an object")
        if any(type(cell) is float for cell in cells):
            inexact = [row for row, cell in enumerate(cells) if type(cell) is int and not _is_exact_float(cell)]
            if inexact:
                problem = "cannot be stored exactly in a column that also has numbers with a decimal point"
                raise self._cell_error(inexact[0], name, cells[inexact[0]], problem, "write the column as text")
        try:
            return _to_arrow_column(cells)
        except UnicodeEncodeError as problem:
            row = next(row for row, cell in enumerate(cells) if cell is not None and not is_encodable(cell))
            raise self._cell_error(row, name, cells[row], "is not text") from problem

    def _cell_error(
        self, row: int, column: str, cell: Any, problem: str, advice: str = "make the column all text or all numbers"
    ) -> InputError:
        return InputError(
            f"{shown(cell)} {problem}", source=self.name, place=self.place(row), column=column, fix=advice
        )

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its number, and its line in the file."""
        return f"row {row + 1} (line {self._lines[row]})"


def is_unlabeled(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether a row has an empty list instead of a label in one of the columns `names`.

    >>> is_unlabeled({"label": []}, ["label"]), is_unlabeled({"label": ["2"], "Comments": []}, ["label"])
    (True, False)
    """
    return any(row.get(name) == [] for name in names if name.casefold() not in ID_COLUMN_NAMES)


def only_label(column: str, cell: Any) -> Any:
    """Return the label in a cell that may be a list of labels, as doccano exports them; several are joined by `|`.

    >>> [only_label("label", value) for value in (["2"], [[0, 5, "2"]], ["1", "2"], "2")]
    ['2', '2', '1|2', '2']
    """
    if not isinstance(cell, list) or column.casefold() in ID_COLUMN_NAMES:
        return cell
    labels = [
        label[2] if isinstance(label, list) and len(label) == 3 else label for label in cell
    ]  # [start, end, label]
    if not all(isinstance(label, str | int | float) for label in labels):
        return cell
    return labels[0] if len(set(labels)) == 1 else "|".join(map(str, dict.fromkeys(labels)))


def _parse_json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object in a line, or None and what is wrong with the line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, f"{shown(text)} is not JSON"
    if not isinstance(value, dict):
        return None, "the line is JSON but not an object"
    # A lone surrogate can only come from an escape.
    unusable = next((key for key in value if not is_encodable(key)), None) if "\\u" in text else None
    return (value, "") if unusable is None else (None, f"the key {shown(unusable)} is not text")


def json_kind(cell: Any) -> str:
    """Return the kind of a JSON value: "text", "truth" for a boolean, "number", or "" for a list or an object."""
    return {str: "text", bool: "truth", int: "number", float: "number"}.get(type(cell), "")


def cell_to_text(cell: Any) -> str | None:
    """Return a JSON or Excel value as text, or None for a list, an object, null and NaN.

    >>> cell_to_text(1), cell_to_text(1.0), cell_to_text(0.5), cell_to_text("1 "), cell_to_text([1])
    ('1', '1', '0.5', '1 ', None)
    """
    if cell is None or isinstance(cell, list | dict) or cell != cell:
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < MAX_EXACT_INTEGER:
        return str(int(cell))
    return str(cell)


def _is_exact_float(number: int) -> bool:
    """Return whether a float64 holds an integer exactly."""
    return abs(number) <= MAX_EXACT_INTEGER or (abs(number) < 10**300 and int(float(number)) == number)


def _to_arrow_column(cells: list[Any]) -> pa.Array:
    """Return cells of one JSON type as an Arrow array; integers that do not fit into int64 become text."""
    if all(cell is None or type(cell) is int for cell in cells):
        fits = all(cell is None or abs(cell) < 2**63 for cell in cells)
        return pa.array(cells if fits else [None if cell is None else str(cell) for cell in cells])
    if any(type(cell) is float for cell in cells):
        return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array(cells)


def is_encodable(cell: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    if cell.isascii():
        return True
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


class WhitespaceSource(Source):
    """Text file without a header whose cells are separated by white space: TREC qrels and run files."""

    has_assessor_column = False

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        self.path, self.name, self.names = Path(path), str(path), list(names)
        self._lines: list[int] = []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        rows, self._lines = [], []
        with open_decompressed(self.path) as stream:
            for line_number, line in numbered_lines(stream, self.name):
                words = [word.decode() for word in line.split()]  # at ASCII white space: an id may hold any other
                if len(words) == len(self.names):
                    rows.append(words)
                    self._lines.append(line_number)
                elif words:
                    bad_rows.count_malformed(self._malformed_row_error(line_number, words))
        if not rows and not bad_rows.skipped:
            raise no_rows_error(self.name)
        position = {name: position for position, name in enumerate(self.names)}
        return pa.table({name: pa.array([row[position[name]] for row in rows], pa.string()) for name in names})

    def _malformed_row_error(self, line_number: int, words: list[str]) -> InputError:
        return InputError(
            f"{_there_are(len(words), 'word')} where {len(self.names)} are expected",
            source=self.name,
            place=f"line {line_number}",
            fix=f"a line has the words: {' '.join(self.names)}",
        )

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its line in the file."""
        return f"line {self._lines[row]}"


def _there_are(count: int, noun: str) -> str:
    """Return "there is 1 word" or "there are 3 words"."""
    return f"there is 1 {noun}" if count == 1 else f"there are {count} {noun}s"


def no_rows_error(source_name: str) -> InputError:
    """Return the error for a file or frame without rows."""
    return InputError("there are no rows", source=source_name, kind="no-rows", fix="check that it is the right one")


def _open_quote_error(source_name: str, place: str) -> InputError:
    advice = "close it, or write it twice inside a quoted cell"
    return InputError("a quote is opened and never closed", source=source_name, place=place, fix=advice)


def local_path(path: str | Path) -> Path:
    """Return the path in a `file:` address; other paths are returned unchanged.

    >>> str(local_path("file:///data/a.csv")), str(local_path(Path("file:///data/a.csv"))), str(local_path("a.csv"))
    ('/data/a.csv', '/data/a.csv', 'a.csv')
    """
    text = str(path)
    if not text.startswith("file:/"):
        return Path(path)
    return Path("/" + text.removeprefix("file:").removeprefix("//localhost/").lstrip("/"))


def check_size(path: str | Path, max_bytes: int = MAX_BYTES) -> None:
    """Raise InputError if a file has more than `max_bytes` bytes when decompressed."""
    with open_decompressed(path, text=False) as stream:
        size = local_path(path).stat().st_size
        require_file_size(stream, size, _is_gzip(path), max_bytes, str(path))


def _is_valid_path(path: Path) -> bool:
    """Return whether the operating system accepts the path of a file."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _is_gzip(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".gz"


@contextmanager
def arrow_file(path: str | Path, *, text: bool = True) -> Iterator[pa.NativeFile]:
    """Open a file as an Arrow file.

    It is no Python file object, because Arrow's threads may outlive the interpreter.
    """
    with open_decompressed(path, text=text) as stream, pa.OSFile(os.fsencode(local_path(path))) as file:
        if isinstance(stream, io.BytesIO):
            yield pa.BufferReader(stream.getvalue())
        else:
            yield pa.CompressedInputStream(file, "gzip") if _is_gzip(path) else file


def utf16_encoding(first_bytes: bytes) -> str | None:
    """Return the encoding of a UTF-16 text, detected from its first four bytes, or None if it is not UTF-16.

    The bytes begin with a byte order mark, or every second one is zero.

    >>> [utf16_encoding("a,b".encode(encoding)[:4]) for encoding in ("utf-16", "utf-16-be", "utf-8")]
    ['utf-16', 'utf-16-be', None]
    """
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [byte == 0 for byte in first_bytes[:4]]
    patterns = {"utf-16-le": [False, True, False, True], "utf-16-be": [True, False, True, False]}
    return next((encoding for encoding, pattern in patterns.items() if zeros == pattern), None)


@contextmanager
def open_decompressed(path: str | Path, *, text: bool = True) -> Iterator[BinaryIO]:
    """Open a file as a stream of decompressed bytes; raise InputError if it cannot be opened, or read in the block.

    Args:
        path: the file.
        text: whether it is a text file, which is converted from UTF-16 to UTF-8.

    """
    path = local_path(path)
    if not _is_valid_path(path):
        raise InputError("there is no such file", source=repr(str(path)), kind="no-file", fix="check the path")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            problem = "this is a pipe or a device, which cannot be read twice"
            raise InputError(problem, source=str(path), fix="save its content as a file first")
        with gzip.open(path) if _is_gzip(path) else path.open("rb") as stream:
            encoding = utf16_encoding(stream.peek(4)[:4]) if text else None
            yield cast(BinaryIO, stream) if encoding is None else io.BytesIO(stream.read().decode(encoding).encode())
    except InputError:
        raise
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, MemoryError, pa.ArrowException) as problem:
        raise _unreadable_error(path, problem, text) from problem


def _unreadable_error(path: Path, error: Exception, text: bool) -> InputError:
    """Return the error for a file that cannot be opened or parsed."""
    reason = str(getattr(error, "strerror", None) or error).split("\n")[0].rstrip(".")[:160]
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return InputError("there is no such file", source=str(path), kind="no-file", fix="check the path")
        case IsADirectoryError():
            return InputError("this is a folder", source=str(path), kind="folder", fix="give a file in it")
        case PermissionError():
            return InputError("it may not be read", source=str(path), fix="check its permissions")
        case UnicodeDecodeError() if error.encoding.startswith("utf-16"):
            return InputError("the text is not valid UTF-16", source=str(path), kind="encoding", fix="save it as UTF-8")
        case UnicodeDecodeError():
            return _encoding_error(path, _first_undecodable_line(path) if text else "")
        case pa.ArrowInvalid() if "UTF8" in reason:
            return _encoding_error(path, _first_undecodable_line(path) if text else "")
        case pa.ArrowInvalid() if "Empty CSV" in reason:
            return no_rows_error(str(path))
        case MemoryError():
            advice = "use a machine with more memory, or download it again if it is damaged"
            return InputError("there is not enough memory to read it", source=str(path), fix=advice)
    advice = "it may be truncated, damaged or in another format"
    return InputError(f"it cannot be read ({reason})", source=str(path), kind="damaged", fix=advice)


def _encoding_error(path: Path, place: str) -> InputError:
    problem = "the text is neither UTF-8 nor UTF-16"
    return InputError(problem, source=str(path), place=place, kind="encoding", fix="save it as UTF-8")


def _first_undecodable_line(path: Path) -> str:
    """Return the place of the first line that is not UTF-8, or nothing."""
    with open_decompressed(path) as stream:
        for line_number, line in numbered_lines(stream, str(path)):
            if line.decode(errors="replace").encode() != line:
                return f"line {line_number}"
    return ""
