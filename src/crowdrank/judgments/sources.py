"""Where rows come from: text, Parquet, JSON Lines, DataFrames. A source knows its columns and where a row stands.

A source reads only the columns asked for. Cells of text files stay text: what a grade or an id is,
is decided in one place for every source (`encode.py`).
"""

from __future__ import annotations

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

from crowdrank.errors import InputError, shown
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.limits import LONGEST_ROW as LONGEST_ROW
from crowdrank.judgments.limits import MAX_BYTES, lines_of, require_size, too_large, too_long

DICTIONARY_BYTES_PER_ROW = 0.1
"""A dictionary of more bytes than this for each row of a Parquet file is one of many ids."""

GUESSED_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
BLOCK = 1 << 20
BYTES_PER_CODE = 4
LARGEST_EXACT = 2**53
"""From here on a floating-point number no longer holds every whole number."""


class Source(ABC):
    """Named columns of rows."""

    name: str
    backend = "pandas"
    names: list[str]
    units: Mapping[str, str] = MappingProxyType({})  # of durations and costs, where the format says them

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; lines that cannot be split are refused or counted as `bad_rows` says."""

    def place(self, row: int) -> str:
        """Where a row of the table that `read` returned stands, for a person."""
        return f"row {row + 1}"


class FrameSource(Source):
    """A DataFrame of any library.

    >>> import pandas as pd
    >>> FrameSource(pd.DataFrame({"task": [1], "worker": ["a"]})).names
    ['task', 'worker']
    """

    name = frames.SOURCE

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.backend = frames.backend_of(frame)
        self.names = frames.column_names(frame)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, as Arrow."""
        frame = frames.collected(self.frame, list(names))
        columns = {name: frames.column_to_arrow(frame, name) for name in names}
        return pa.table({name: frames.as_cells(column, self.name, name) for name, column in columns.items()})


class DelimitedSource(Source):
    """Comma-, tab- or otherwise separated text with a header line."""

    def __init__(self, path: str | Path, separator: str = ",") -> None:
        self.path, self.separator = Path(path), separator
        self.name = str(path)
        with opened(path) as stream:
            self.names = next(self._records(stream, errors="strict"), (0, []))[1]
        if not self.names:
            raise no_rows(self.name)
        if any("\0" in name for name in self.names):
            raise InputError("the text is not UTF-8 (is it UTF-16?)", source=self.name, fix="save it as UTF-8")
        self._refuse_wrong_separator()
        self._last = self.names[-1]
        self._left_out = np.empty(0, dtype=np.int64)

    def _records(
        self, stream: BinaryIO, errors: str = "replace", after: Sequence[str] = ()
    ) -> Iterator[tuple[int, list[str]]]:
        """Each record that is not blank with the line it starts on; slow, for the header and for error messages."""
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="")
        limit = csv.field_size_limit(LONGEST_ROW)
        reader = csv.reader(chain(self._text_lines(text), after), delimiter=self.separator)
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
        for line in iter(partial(text.readline, LONGEST_ROW), ""):
            if len(line) == LONGEST_ROW and not _has_newline(line[-1]):
                raise too_long(self.name, "")
            yield line

    def _refuse_wrong_separator(self) -> None:
        others = [other for other in GUESSED_SEPARATORS if other != self.separator and other in self.names[0]]
        if len(self.names) == 1 and others:
            raise InputError(
                f"the header {shown(self.names[0])} is one column when split at {self._spoken()}",
                source=self.name,
                fix=f"it looks separated by {GUESSED_SEPARATORS[others[0]]}: use --separator {others[0]!r}",
            )

    def _spoken(self) -> str:
        return GUESSED_SEPARATORS.get(self.separator, repr(self.separator))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, every cell as text."""
        # The last column shows whether a quote is left open: it then holds the rest of the file.
        asked = list(dict.fromkeys((*names, self._last)))
        table, malformed = self._parse(asked)
        last = table[self._last][-1].as_py() if len(table) else ""
        if malformed.has_newline or _has_newline(last):
            self._refuse_open_quote()
        if malformed.first is not None:
            bad_rows.malformed(self._malformed(malformed.first), len(malformed.numbers))
            self._left_out = np.asarray(malformed.numbers) - 2
        return table.select(list(names))

    def _parse(self, names: list[str]) -> tuple[pa.Table, _MalformedRows]:
        """Return the rows with as many cells as the header, and what is known of the others."""
        malformed = _MalformedRows()
        # Only the sequential parser knows numbers of rows; and Arrow's threads are never given a function to hold: they
        # may let go of it when the interpreter is gone, and that aborts the process.
        for counting, block in ((False, BLOCK), (True, BLOCK), (True, LONGEST_ROW)):
            if counting and block == BLOCK and (place := _first_undecodable(self.path)):  # Arrow prints a traceback
                raise _not_utf8_at(self.path, place)
            malformed = _MalformedRows()
            table = self._parsed(names, malformed.add if counting else None, block)
            if table is not None:
                return table, malformed
        raise _open_quote(self.name, "")

    def _parsed(self, names: list[str], at_malformed: Any, block: int) -> pa.Table | None:
        """The table; none where a row has other cells than the header and nobody takes note, or is above the block."""
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
        """Refuse a file whose last record only ends because the file does: what else it swallowed is unknown."""
        with opened(self.path) as stream:
            for number, (line, cells) in enumerate(self._records(stream, after=["end"])):
                last, open_quote = f"row {number} (line {line})", cells != ["end"]
        if open_quote:
            raise _open_quote(self.name, last)

    def _malformed(self, row: Any) -> InputError:
        spread = ", close a quote that runs on over lines" if _has_newline(row.text) else ""
        return InputError(
            f"{_there_are(row.actual_columns, 'cell')} where the header has {row.expected_columns}",
            source=self.name,
            place=self._place_of_record(row.number - 2),
            fix=f"mend the line{spread}, check the separator ({self._spoken()}), or use --on-bad-rows skip",
        )

    def place(self, row: int) -> str:
        """The row, counted from 1 below the header, and its line in the file."""
        record = row
        for left_out in self._left_out:
            record += int(left_out <= record)
        return self._place_of_record(record)

    def _place_of_record(self, record: int) -> str:
        with opened(self.path) as stream:
            for position, (line, _) in enumerate(self._records(stream)):
                if position == record + 1:
                    return f"row {record + 1} (line {line})"
        return f"row {record + 1}"


@dataclass
class _MalformedRows:
    """The rows whose number of cells is not that of the header; only the first is kept as a whole."""

    first: Any = None
    numbers: array[int] = field(default_factory=lambda: array("q"))
    has_newline: bool = False

    def add(self, row: Any) -> str:
        """Take note of a row, and tell Arrow to skip it."""
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
        """Columns of text that the file holds as codes of few ids: these are read as codes.

        A column with many ids would have a large dictionary for every group of rows: joining them costs more than
        coding its text anew.
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
        """Return the columns named."""
        with self._seekable() as file:
            whole = pyarrow.parquet.ParquetFile(file, pre_buffer=True)
            require_parquet_rows(whole.metadata, names, self.max_bytes, self.name)
            # Asked for the metadata of a damaged column Arrow ends the process; asked for a row it says what is wrong.
            next(whole.iter_batches(batch_size=1, columns=list(names)), None)
            require_parquet_size(whole.metadata, names, self.max_bytes, self.name)
            coded = self._coded_columns(whole.metadata, names)
            table = pyarrow.parquet.read_table(file, columns=list(names), read_dictionary=coded)
            if len(table) != whole.metadata.num_rows:
                raise damaged_rows(self.name)
        return pa.table({name: frames.as_cells(table[name], self.name, name) for name in names})


def require_parquet_rows(
    about: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source: str
) -> None:
    """Refuse a Parquet file whose numbers of rows contradict each other, or are too many to read."""
    rows = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    if sum(rows) != about.num_rows or min(rows, default=0) < 0:
        raise damaged_rows(source)
    if about.num_rows * len(names) * BYTES_PER_CODE > max_bytes:
        raise too_large(source, "it", max_bytes)


def require_parquet_size(
    about: pyarrow.parquet.FileMetaData, names: Sequence[str], max_bytes: int, source: str
) -> None:
    """Refuse a Parquet file whose columns `names` take more than `max_bytes` when unpacked."""
    asked = set(names)
    places = [place for place in range(about.num_columns) if about.schema.column(place).path in asked]
    groups = range(about.num_row_groups)
    sizes = [about.row_group(group).column(place).total_uncompressed_size for group in groups for place in places]
    if sum(sizes) > max_bytes:
        raise too_large(source, "unpacked, it", max_bytes)


def damaged_rows(source: str) -> InputError:
    """Return the error for a Parquet file whose rows are not those that its footer announces."""
    problem = "it does not hold the rows that its footer announces"
    return InputError(problem, source=source, fix="it is damaged: fetch or write it again")


class JsonLinesSource(Source):
    """One JSON object a line."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self._lines: list[int] = []
        with opened(path) as stream:
            # Every line is asked for its keys: where a value is blank, writers leave its key out.
            self.names = list(dict.fromkeys(key for _, row in self._objects(stream, BadRows("skip")) for key in row))
        if not self.names:
            with opened(path) as stream:
                _ = list(self._objects(stream, BadRows()))  # says what is wrong with the first line
            raise no_rows(self.name)

    def _objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in lines_of(stream, self.name):
            text = line.decode().strip()
            if not text:
                continue
            value, problem = _json_object(text)
            if value is not None:
                yield number, value
            else:
                remedy = "mend it, or use --on-bad-rows skip"
                bad_rows.malformed(InputError(problem, source=self.name, place=f"line {number}", fix=remedy))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; a key that a line lacks is a missing value."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with opened(self.path) as stream:
            for number, value in self._objects(stream, bad_rows):
                self._lines.append(number)
                for name in names:
                    columns[name].append(value.get(name))
        return pa.table({name: self._column(name, cells) for name, cells in columns.items()})

    def _column(self, name: str, cells: list[Any]) -> pa.Array:
        kind = ""
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if kind_of_json(cell) not in (kind or kind_of_json(cell), ""):
                raise self._no_cell(row, name, cell, "has another type than the values before it")
            kind = kind_of_json(cell)
            if not kind:
                raise self._no_cell(row, name, cell, "is no cell")
        if any(type(cell) is float for cell in cells):
            inexact = [row for row, cell in enumerate(cells) if type(cell) is int and not _is_exact(cell)]
            if inexact:
                reason = "cannot be kept exactly in a column that also has numbers with a decimal point"
                raise self._no_cell(inexact[0], name, cells[inexact[0]], reason, "write the column as text")
        try:
            return _json_column(cells)
        except UnicodeEncodeError as problem:
            row = next(row for row, cell in enumerate(cells) if cell is not None and not is_text(cell))
            raise self._no_cell(row, name, cells[row], "is no text") from problem

    def _no_cell(
        self, row: int, name: str, cell: Any, problem: str, remedy: str = "make the column all text or all numbers"
    ) -> InputError:
        return InputError(f"{shown(cell)} {problem}", source=self.name, place=self.place(row), column=name, fix=remedy)

    def place(self, row: int) -> str:
        """The row and its line in the file."""
        return f"row {row + 1} (line {self._lines[row]})"


def _json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, f"{shown(text)} is not JSON"
    if not isinstance(value, dict):
        return None, "the line is JSON but not an object"
    # Only an escape can bring a lone surrogate into a text.
    unusable = next((key for key in value if not is_text(key)), None) if "\\u" in text else None
    return (value, "") if unusable is None else (None, f"the key {shown(unusable)} is not text")


def kind_of_json(cell: Any) -> str:
    """Return the kind of a JSON value: text, truth, number, or nothing for a list or an object."""
    return {str: "text", bool: "truth", int: "number", float: "number"}.get(type(cell), "")


def _is_exact(number: int) -> bool:
    return abs(number) <= LARGEST_EXACT or (abs(number) < 10**300 and int(float(number)) == number)


def _json_column(cells: list[Any]) -> pa.Array:
    """Cells of one kind as Arrow; whole numbers too large for its integers are ids, which text keeps exact."""
    if all(cell is None or type(cell) is int for cell in cells):
        fits = all(cell is None or abs(cell) < 2**63 for cell in cells)
        return pa.array(cells if fits else [None if cell is None else str(cell) for cell in cells])
    if any(type(cell) is float for cell in cells):
        return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array(cells)


def is_text(cell: str) -> bool:
    """Return whether a text can be written as UTF-8: it has no lone surrogate."""
    if cell.isascii():
        return True
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


class WhitespaceSource(Source):
    """Lines of a fixed number of words and no header: TREC qrels and run files."""

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        self.path, self.name, self.names = Path(path), str(path), list(names)
        self._lines: list[int] = []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, every cell as text."""
        rows, self._lines = [], []
        with opened(self.path) as stream:
            for number, line in lines_of(stream, self.name):
                words = [word.decode() for word in line.split()]  # at ASCII white space: an id may hold any other
                if len(words) == len(self.names):
                    rows.append(words)
                    self._lines.append(number)
                elif words:
                    bad_rows.malformed(self._malformed(number, words))
        if not rows and not bad_rows.skipped:
            raise no_rows(self.name)
        position = {name: position for position, name in enumerate(self.names)}
        return pa.table({name: pa.array([row[position[name]] for row in rows], pa.string()) for name in names})

    def _malformed(self, number: int, words: list[str]) -> InputError:
        return InputError(
            f"{_there_are(len(words), 'word')} where {len(self.names)} belong",
            source=self.name,
            place=f"line {number}",
            fix=f"a line reads: {' '.join(self.names)}",
        )

    def place(self, row: int) -> str:
        """The row and its line in the file."""
        return f"line {self._lines[row]}"


def _there_are(number: int, noun: str) -> str:
    return f"there is 1 {noun}" if number == 1 else f"there are {number} {noun}s"


def no_rows(name: str) -> InputError:
    """What is said of a file or frame with no row in it."""
    return InputError("there are no rows", source=name, fix="check that it is the one you mean")


def _open_quote(name: str, place: str) -> InputError:
    remedy = "close it, or write it twice inside a quoted cell"
    return InputError("a quote is opened and never closed", source=name, place=place, fix=remedy)


def local_path(path: str | Path) -> Path:
    """Return the path that an address of this machine names; other addresses stay as they are.

    >>> str(local_path("file:///data/a.csv")), str(local_path(Path("file:///data/a.csv"))), str(local_path("a.csv"))
    ('/data/a.csv', '/data/a.csv', 'a.csv')
    """
    text = str(path)
    if not text.startswith("file:/"):
        return Path(path)
    return Path("/" + text.removeprefix("file:").removeprefix("//localhost/").lstrip("/"))


def check_size(path: str | Path, max_bytes: int = MAX_BYTES) -> None:
    """Refuse a file that holds more than `max_bytes` bytes when unpacked."""
    with opened(path) as stream:
        size = local_path(path).stat().st_size
        require_size(stream, size, _is_packed(path), max_bytes, str(path))


def _is_path(path: Path) -> bool:
    """Return whether the system can have a file of this name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _is_packed(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".gz"


@contextmanager
def arrow_file(path: str | Path, *, text: bool = True) -> Iterator[pa.NativeFile]:
    """As `opened`, for Arrow, whose threads may hold a file for longer than the interpreter lives: none of Python's."""
    with opened(path, text=text), pa.OSFile(os.fsencode(local_path(path))) as file:
        yield pa.CompressedInputStream(file, "gzip") if _is_packed(path) else file


@contextmanager
def opened(path: str | Path, *, text: bool = True) -> Iterator[BinaryIO]:
    """Open a file's bytes, unpacked where the name ends in .gz; every problem with the file is an `InputError`."""
    path = local_path(path)
    if not _is_path(path):
        raise InputError("there is no such file", source=repr(str(path)), fix="check the path")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            problem = "this is a pipe or a device, which cannot be read twice"
            raise InputError(problem, source=str(path), fix="save what it holds as a file first")
        if _is_packed(path):
            with gzip.open(path) as packed:
                yield cast(BinaryIO, packed)
        else:
            with path.open("rb") as stream:
                yield stream
    except InputError:
        raise
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise InputError("there is no such file", source=str(path), fix="check the path") from problem
    except IsADirectoryError as problem:
        raise InputError("this is a folder", source=str(path), fix="name the file in it") from problem
    except PermissionError as problem:
        raise InputError("it may not be read", source=str(path), fix="check its permissions") from problem
    except UnicodeDecodeError as problem:
        raise _not_utf8(path, text) from problem
    except pa.ArrowInvalid as problem:
        raise _arrow_problem(path, problem, text) from problem
    except (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException) as problem:
        raise InputError(
            f"it cannot be read ({_reason(getattr(problem, 'strerror', None) or problem)})",
            source=str(path),
            fix="it may be cut off or damaged: fetch it again",
        ) from problem
    except MemoryError as problem:
        remedy = "use a machine with more memory, or fetch it again if it is damaged"
        raise InputError("the memory is too small for it", source=str(path), fix=remedy) from problem


def _arrow_problem(path: Path, problem: Exception, text: bool) -> InputError:
    reason = _reason(problem)
    if "UTF8" in reason:
        return _not_utf8(path, text)
    if "Empty CSV" in reason:
        return no_rows(str(path))
    return InputError(
        f"it cannot be read ({reason})", source=str(path), fix="it may be cut off, damaged or of another format"
    )


def _reason(problem: object) -> str:
    return str(problem).split("\n")[0].rstrip(".")[:160]


def _not_utf8(path: Path, text: bool) -> InputError:
    return _not_utf8_at(path, _first_undecodable(path) if text else "")


def _not_utf8_at(path: Path, place: str) -> InputError:
    return InputError("the text is not UTF-8", source=str(path), place=place, fix="save it as UTF-8")


def _first_undecodable(path: Path) -> str:
    with opened(path) as stream:
        for number, line in lines_of(stream, str(path)):
            if line.decode(errors="replace").encode() != line:
                return f"line {number}"
    return ""
