"""Tables of text, Parquet, JSON Lines files and DataFrames, and how files are opened.

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
"""Maximum size of a Parquet dictionary, per row, for which a column is read as codes."""
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
BLOCK = 1 << 20
BYTES_PER_CODE = 4
LARGEST_EXACT = 2**53
"""Largest number up to which a float64 holds every whole number."""
NOT_LABELED = "not labeled"
SKIP_BAD_ROWS = Fix("leave such rows out with {}", "on_bad_rows", "skip")
EXPORT_AS_CSV = "export the table as CSV, or as an Excel workbook (.xlsx)"


class Source(ABC):
    """A table that can be read column by column."""

    name: str  # path, for messages
    backend = "pandas"  # DataFrame library of results
    names: list[str]  # of the columns
    units: Mapping[str, str] = MappingProxyType({})  # of durations and costs, if the format defines them
    has_assessor_column = True  # whether the format can have one

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; `bad_rows` refuses or counts malformed lines."""

    def place(self, row: int) -> str:
        """Return the place in the file of a row of the table that `read` returned."""
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
    """Text with a header line whose cells are separated by a character.

    Args:
        path: the file.
        separator: the separator; by default, the one that the header uses.
        expected: the separator of a header that could be split at several.

    """

    def __init__(self, path: str | Path, separator: str | None = None, expected: str = ",") -> None:
        self.path, self.name = Path(path), str(path)
        self.separator = separator or self._detect_separator(expected)
        self.names = self._header(self.separator)
        if not self.names:
            raise no_rows(self.name)
        if any("\0" in name for name in self.names):
            raise InputError("it is not a text file", source=self.name, kind="other-format", fix=EXPORT_AS_CSV)
        self._refuse_wrong_separator()
        self._last = self.names[-1]
        self._skipped_records = np.empty(0, dtype=np.int64)

    def _header(self, separator: str) -> list[str]:
        with opened(self.path) as stream:
            return next(self._records(stream, separator, errors="strict"), (0, []))[1]

    def _detect_separator(self, expected: str) -> str:
        """Return `expected` if it separates the header, or else the separator that gives the most columns."""
        n_columns = {separator: len(self._header(separator)) for separator in (expected, *SEPARATORS)}
        return expected if n_columns[expected] > 1 else max(n_columns, key=lambda separator: n_columns[separator])

    def _records(
        self, stream: BinaryIO, separator: str, errors: str = "replace", after: Sequence[str] = ()
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield each non-blank record with its first line number; slow, for the header and for error messages."""
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="")
        limit = csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(chain(self._text_lines(text), after), delimiter=separator)
        line = 1
        try:
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
        finally:
            csv.field_size_limit(limit)
            text.detach()

    def _text_lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        for line in iter(partial(text.readline, MAX_LINE_BYTES), ""):
            if len(line) == MAX_LINE_BYTES and not _has_newline(line[-1]):
                raise line_too_long_error(self.name, "")
            yield line

    def _refuse_wrong_separator(self) -> None:
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
            bad_rows.count_malformed(self._malformed(malformed.first), len(malformed.numbers))
            self._skipped_records = np.asarray(malformed.numbers) - 2
        return table.select(list(names))

    def _parse(self, names: list[str]) -> tuple[pa.Table, _MalformedRows]:
        """Return the rows with as many cells as the header, and information about the others."""
        malformed = _MalformedRows()
        # Only the sequential parser counts rows. Arrow's threads never get a Python function: they may release it after
        # the interpreter has ended, which aborts the process.
        for counting, block in ((False, BLOCK), (True, BLOCK), (True, MAX_LINE_BYTES)):
            if counting and block == BLOCK and (place := _first_undecodable(self.path)):  # Arrow prints a traceback
                raise _not_utf8(self.path, place)
            malformed = _MalformedRows()
            table = self._parsed(names, malformed.add if counting else None, block)
            if table is not None:
                return table, malformed
        raise _open_quote(self.name, "")

    def _parsed(self, names: list[str], at_malformed: Any, block: int) -> pa.Table | None:
        """Return the table, or None if a row is malformed and there is no handler, or if it is longer than a block."""
        with arrow_file(self.path) as file:
            try:
                return pyarrow.csv.read_csv(
                    file,
                    read_options=pyarrow.csv.ReadOptions(use_threads=at_malformed is None, block_size=block),
                    parse_options=pyarrow.csv.ParseOptions(
                        delimiter=self.separator, newlines_in_values=True, invalid_row_handler=at_malformed
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
        with opened(self.path) as stream:
            for number, (line, cells) in enumerate(self._records(stream, self.separator, after=["end"])):
                last, open_quote = f"row {number} (line {line})", cells != ["end"]
        if open_quote:
            raise _open_quote(self.name, last)

    def _malformed(self, row: Any) -> InputError:
        quote = ", close a quote that spans lines" if _has_newline(row.text) else ""
        return InputError(
            f"{_there_are(row.actual_columns, 'cell')} where the header has {row.expected_columns}",
            source=self.name,
            place=self._place_of_record(row.number - 2),
            fix=[
                f"correct the line{quote}",
                Fix(f"if cells are not separated by {self._separator_name()}, give {{}}", "separator"),
                SKIP_BAD_ROWS,
            ],
        )

    def place(self, row: int) -> str:
        """Return the number of a row, counted from 1 below the header, and its line in the file."""
        record = row
        for skipped in self._skipped_records:
            record += int(skipped <= record)
        return self._place_of_record(record)

    def _place_of_record(self, record: int) -> str:
        with opened(self.path) as stream:
            for position, (line, _) in enumerate(self._records(stream, self.separator)):
                if position == record + 1:
                    return f"row {record + 1} (line {line})"
        return f"row {record + 1}"


@dataclass
class _MalformedRows:
    """Rows with another number of cells than the header; only the first is stored as a whole."""

    first: Any = None
    numbers: array[int] = field(default_factory=lambda: array("q"))
    has_newline: bool = False

    def add(self, row: Any) -> str:
        """Add a row; return Arrow's answer that it is to be skipped."""
        if self.first is None:
            self.first = row
        self.numbers.append(row.number)
        self.has_newline = self.has_newline or _has_newline(row.text)
        return "skip"


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text


class ParquetSource(Source):
    """A Parquet file; ids that are dictionary-encoded there are not encoded again."""

    def __init__(self, path: str | Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.name, self.max_bytes = Path(path), str(path), max_bytes
        with self._seekable() as file:
            self.names = pyarrow.parquet.read_schema(file).names

    @contextmanager
    def _seekable(self) -> Iterator[pa.NativeFile]:
        with arrow_file(self.path, text=False) as file:
            # Parquet seeks, which gzip does by unpacking from the start each time.
            yield file if file.seekable() else pa.BufferReader(file.read_buffer())

    @staticmethod
    def _coded_columns(about: pyarrow.parquet.FileMetaData, names: Sequence[str]) -> list[str]:
        """Return the text columns that are read as dictionary codes: those with few distinct ids.

        A column with many ids has a large dictionary for every group of rows; merging them costs more than encoding the
        text.
        """
        coded = set(names)
        places = [place for place in range(about.num_columns) if about.schema.column(place).path in coded]
        for group in range(about.num_row_groups):
            for place in places:
                column = about.row_group(group).column(place)
                start = column.dictionary_page_offset
                size = math.inf if start is None else column.data_page_offset - start
                if column.physical_type != "BYTE_ARRAY" or size > DICTIONARY_BYTES_PER_ROW * column.num_values:
                    coded.discard(column.path_in_schema)
        return sorted(coded)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        with self._seekable() as file:
            whole = pyarrow.parquet.ParquetFile(file, pre_buffer=True)
            require_parquet_rows(whole.metadata, names, self.max_bytes, self.name)
            # Reading the metadata of a damaged column aborts the process; reading a row raises an error first.
            next(whole.iter_batches(batch_size=1, columns=list(names)), None)
            require_parquet_size(whole.metadata, names, self.max_bytes, self.name)
            coded = self._coded_columns(whole.metadata, names)
            table = pyarrow.parquet.read_table(file, columns=list(names), read_dictionary=coded)
            if len(table) != whole.metadata.num_rows:
                raise damaged_rows(self.name)
        return pa.table({name: frames.to_plain_values(table[name], self.name, name) for name in names})


def require_parquet_rows(
    about: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source: str
) -> None:
    """Raise InputError if the row counts of a Parquet file contradict each other or exceed the limit."""
    rows = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    if sum(rows) != about.num_rows or min(rows, default=0) < 0:
        raise damaged_rows(source)
    if about.num_rows * len(names) * BYTES_PER_CODE > max_bytes:
        raise too_large_error(source, "it", max_bytes)


def require_parquet_size(
    about: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source: str
) -> None:
    """Raise InputError if the columns `names` of a Parquet file take more than `max_bytes` decompressed."""
    asked = set(names)
    places = [place for place in range(about.num_columns) if about.schema.column(place).path in asked]
    groups = range(about.num_row_groups)
    sizes = [about.row_group(group).column(place).total_uncompressed_size for group in groups for place in places]
    if sum(sizes) > max_bytes:
        raise too_large_error(source, "decompressed, it", max_bytes)


def damaged_rows(source: str) -> InputError:
    """Return the error for a Parquet file with other rows than its footer states."""
    problem = "it does not hold the rows that its footer states"
    return InputError(problem, source=source, kind="damaged", fix="it is damaged: download or write it again")


class JsonLinesSource(Source):
    """Text with one JSON object per line; a list of labels, as doccano exports it, is read as its only label."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self._lines: list[int] = []
        with opened(path) as stream:
            # All lines are scanned for keys: writers leave out the key of a blank value.
            self.names = list(dict.fromkeys(key for _, row in self._objects(stream, BadRows("skip")) for key in row))
        if not self.names:
            with opened(path) as stream:
                _ = list(self._objects(stream, BadRows()))  # raises the error of the first line
            raise no_rows(self.name)

    def _objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in numbered_lines(stream, self.name):
            text = line.decode().strip()
            if not text:
                continue
            value, problem = _json_object(text)
            if value is not None:
                yield number, value
            else:
                fixes = ("correct it", SKIP_BAD_ROWS)
                bad_rows.count_malformed(InputError(problem, source=self.name, place=f"line {number}", fix=fixes))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; a missing key is a missing value."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with opened(self.path) as stream:
            for number, row in self._objects(stream, bad_rows):
                if is_unlabeled(row, names):
                    bad_rows.count_left_out(NOT_LABELED, 1)
                    continue
                self._lines.append(number)
                for name, column in columns.items():
                    column.append(only_label(name, row.get(name)))
        return pa.table({name: self._column(name, cells) for name, cells in columns.items()})

    def _column(self, name: str, cells: list[Any]) -> pa.Array:
        kind = ""
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if kind_of_json(cell) not in (kind or kind_of_json(cell), ""):
                raise self._unusable(row, name, cell, "has another type than the values before it")
            kind = kind_of_json(cell)
            if not kind:
                raise self._unusable(row, name, cell, "is a list or an object")
        if any(type(cell) is float for cell in cells):
            inexact = [row for row, cell in enumerate(cells) if type(cell) is int and not _is_exact(cell)]
            if inexact:
                problem = "cannot be stored exactly in a column that also has numbers with a decimal point"
                raise self._unusable(inexact[0], name, cells[inexact[0]], problem, "write the column as text")
        try:
            return _json_column(cells)
        except UnicodeEncodeError as problem:
            row = next(row for row, cell in enumerate(cells) if cell is not None and not is_text(cell))
            raise self._unusable(row, name, cells[row], "is not text") from problem

    def _unusable(
        self, row: int, name: str, cell: Any, problem: str, fix: str = "make the column all text or all numbers"
    ) -> InputError:
        return InputError(f"{shown(cell)} {problem}", source=self.name, place=self.place(row), column=name, fix=fix)

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return f"row {row + 1} (line {self._lines[row]})"


def is_unlabeled(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether an object has an empty list of labels in one of the columns `names`.

    >>> is_unlabeled({"label": []}, ["label"]), is_unlabeled({"label": ["2"], "Comments": []}, ["label"])
    (True, False)
    """
    return any(row.get(name) == [] for name in names if name.casefold() not in ID_COLUMN_NAMES)


def only_label(column: str, value: Any) -> Any:
    """Return the label in a list of labels, as doccano exports them; different labels are joined by `|`.

    >>> [only_label("label", value) for value in (["2"], [[0, 5, "2"]], ["1", "2"], "2")]
    ['2', '2', '1|2', '2']
    """
    if not isinstance(value, list) or column.casefold() in ID_COLUMN_NAMES:
        return value
    labels = [one[2] if isinstance(one, list) and len(one) == 3 else one for one in value]  # [start, end, label]
    if not all(isinstance(label, str | int | float) for label in labels):
        return value
    return labels[0] if len(set(labels)) == 1 else "|".join(map(str, dict.fromkeys(labels)))


def _json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, f"{shown(text)} is not JSON"
    if not isinstance(value, dict):
        return None, "the line is JSON but not an object"
    # A lone surrogate can only come from an escape.
    unusable = next((key for key in value if not is_text(key)), None) if "\\u" in text else None
    return (value, "") if unusable is None else (None, f"the key {shown(unusable)} is not text")


def kind_of_json(cell: Any) -> str:
    """Return the kind of a JSON value: text, truth, number, or nothing for a list or an object."""
    return {str: "text", bool: "truth", int: "number", float: "number"}.get(type(cell), "")


def text_cell(value: Any) -> str | None:
    """Return a JSON or Excel value as text, or None for a list, an object, null and NaN.

    >>> text_cell(1), text_cell(1.0), text_cell(0.5), text_cell("1 "), text_cell([1])
    ('1', '1', '0.5', '1 ', None)
    """
    if value is None or isinstance(value, list | dict) or value != value:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_EXACT:
        return str(int(value))
    return str(value)


def _is_exact(number: int) -> bool:
    return abs(number) <= LARGEST_EXACT or (abs(number) < 10**300 and int(float(number)) == number)


def _json_column(cells: list[Any]) -> pa.Array:
    """Return cells of one kind as an Arrow array; whole numbers that int64 cannot hold become text."""
    if all(cell is None or type(cell) is int for cell in cells):
        fits = all(cell is None or abs(cell) < 2**63 for cell in cells)
        return pa.array(cells if fits else [None if cell is None else str(cell) for cell in cells])
    if any(type(cell) is float for cell in cells):
        return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array(cells)


def is_text(cell: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    if cell.isascii():
        return True
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


class WhitespaceSource(Source):
    """Lines of a fixed number of words without a header: TREC qrels and run files."""

    has_assessor_column = False

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        self.path, self.name, self.names = Path(path), str(path), list(names)
        self._lines: list[int] = []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        rows, self._lines = [], []
        with opened(self.path) as stream:
            for number, line in numbered_lines(stream, self.name):
                words = [word.decode() for word in line.split()]  # at ASCII white space: an id may hold any other
                if len(words) == len(self.names):
                    rows.append(words)
                    self._lines.append(number)
                elif words:
                    bad_rows.count_malformed(self._malformed(number, words))
        if not rows and not bad_rows.skipped:
            raise no_rows(self.name)
        position = {name: position for position, name in enumerate(self.names)}
        return pa.table({name: pa.array([row[position[name]] for row in rows], pa.string()) for name in names})

    def _malformed(self, number: int, words: list[str]) -> InputError:
        return InputError(
            f"{_there_are(len(words), 'word')} where {len(self.names)} are expected",
            source=self.name,
            place=f"line {number}",
            fix=f"a line has the words: {' '.join(self.names)}",
        )

    def place(self, row: int) -> str:
        """Return the line of a row in the file."""
        return f"line {self._lines[row]}"


def _there_are(number: int, noun: str) -> str:
    return f"there is 1 {noun}" if number == 1 else f"there are {number} {noun}s"


def no_rows(name: str) -> InputError:
    """Return the error for a file or frame without rows."""
    return InputError("there are no rows", source=name, kind="no-rows", fix="check that it is the right one")


def _open_quote(name: str, place: str) -> InputError:
    fix = "close it, or write it twice inside a quoted cell"
    return InputError("a quote is opened and never closed", source=name, place=place, fix=fix)


def local_path(path: str | Path) -> Path:
    """Return the path of a `file:` address; other addresses are returned unchanged.

    >>> str(local_path("file:///data/a.csv")), str(local_path(Path("file:///data/a.csv"))), str(local_path("a.csv"))
    ('/data/a.csv', '/data/a.csv', 'a.csv')
    """
    text = str(path)
    if not text.startswith("file:/"):
        return Path(path)
    return Path("/" + text.removeprefix("file:").removeprefix("//localhost/").lstrip("/"))


def check_size(path: str | Path, max_bytes: int = MAX_BYTES) -> None:
    """Raise InputError if a file has more than `max_bytes` bytes when decompressed."""
    with opened(path, text=False) as stream:
        size = local_path(path).stat().st_size
        require_file_size(stream, size, _is_packed(path), max_bytes, str(path))


def _is_path(path: Path) -> bool:
    """Return whether a file can have this name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _is_packed(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".gz"


@contextmanager
def arrow_file(path: str | Path, *, text: bool = True) -> Iterator[pa.NativeFile]:
    """Open a file for Arrow, without a Python object: its threads may outlive the interpreter."""
    with opened(path, text=text) as stream, pa.OSFile(os.fsencode(local_path(path))) as file:
        if isinstance(stream, io.BytesIO):
            yield pa.BufferReader(stream.getvalue())
        else:
            yield pa.CompressedInputStream(file, "gzip") if _is_packed(path) else file


def utf16_encoding(head: bytes) -> str | None:
    """Return the encoding of UTF-16 text by its first four bytes: a byte order mark, or zeros in every second byte.

    >>> [utf16_encoding("a,b".encode(encoding)[:4]) for encoding in ("utf-16", "utf-16-be", "utf-8")]
    ['utf-16', 'utf-16-be', None]
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [byte == 0 for byte in head[:4]]
    patterns = {"utf-16-le": [False, True, False, True], "utf-16-be": [True, False, True, False]}
    return next((encoding for encoding, pattern in patterns.items() if zeros == pattern), None)


@contextmanager
def opened(path: str | Path, *, text: bool = True) -> Iterator[BinaryIO]:
    """Open the decompressed bytes of a file, UTF-16 text as UTF-8; every problem with it is an `InputError`."""
    path = local_path(path)
    if not _is_path(path):
        raise InputError("there is no such file", source=repr(str(path)), kind="no-file", fix="check the path")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            problem = "this is a pipe or a device, which cannot be read twice"
            raise InputError(problem, source=str(path), fix="save its content as a file first")
        with gzip.open(path) if _is_packed(path) else path.open("rb") as stream:
            encoding = utf16_encoding(stream.peek(4)[:4]) if text else None
            yield cast(BinaryIO, stream) if encoding is None else io.BytesIO(stream.read().decode(encoding).encode())
    except InputError:
        raise
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, MemoryError, pa.ArrowException) as problem:
        raise _unreadable(path, problem, text) from problem


def _unreadable(path: Path, problem: Exception, text: bool) -> InputError:
    """Return the error for a file that cannot be opened or parsed."""
    reason = str(getattr(problem, "strerror", None) or problem).split("\n")[0].rstrip(".")[:160]
    match problem:
        case FileNotFoundError() | NotADirectoryError():
            return InputError("there is no such file", source=str(path), kind="no-file", fix="check the path")
        case IsADirectoryError():
            return InputError("this is a folder", source=str(path), kind="folder", fix="give a file in it")
        case PermissionError():
            return InputError("it may not be read", source=str(path), fix="check its permissions")
        case UnicodeDecodeError() if problem.encoding.startswith("utf-16"):
            return InputError("the text is not valid UTF-16", source=str(path), kind="encoding", fix="save it as UTF-8")
        case UnicodeDecodeError():
            return _not_utf8(path, _first_undecodable(path) if text else "")
        case pa.ArrowInvalid() if "UTF8" in reason:
            return _not_utf8(path, _first_undecodable(path) if text else "")
        case pa.ArrowInvalid() if "Empty CSV" in reason:
            return no_rows(str(path))
        case MemoryError():
            fix = "use a machine with more memory, or download it again if it is damaged"
            return InputError("there is not enough memory to read it", source=str(path), fix=fix)
    fix = "it may be truncated, damaged or in another format"
    return InputError(f"it cannot be read ({reason})", source=str(path), kind="damaged", fix=fix)


def _not_utf8(path: Path, place: str) -> InputError:
    problem = "the text is neither UTF-8 nor UTF-16"
    return InputError(problem, source=str(path), place=place, kind="encoding", fix="save it as UTF-8")


def _first_undecodable(path: Path) -> str:
    with opened(path) as stream:
        for number, line in numbered_lines(stream, str(path)):
            if line.decode(errors="replace").encode() != line:
                return f"line {number}"
    return ""
