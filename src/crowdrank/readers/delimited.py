"""Text tables: cells separated by a character, with a header, or by white space, without one."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from crowdrank._typing import Integers
from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments.columns import count_known_columns
from crowdrank.readers.files import (
    MAX_LINE_BYTES,
    FileHead,
    FileSource,
    LineSource,
    arrow_file,
    encoding_error,
    explain_errors,
    first_undecodable_line,
    line_too_long_error,
    numbered_lines,
    open_decompressed,
)
from crowdrank.readers.sources import SKIP_BAD_ROWS, BadRows, no_rows_error

SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
"""Separators that are detected, with their names in errors."""
CSV_BLOCK_BYTES = 1 << 20
"""Number of bytes that Arrow's CSV parser reads at a time."""
OPEN_QUOTE_ERROR_KIND = "open-quote"
"""Error kind for a quote that encloses more than one cell."""
EXPORT_AS_CSV_ADVICE = "export the table as CSV, or as an Excel workbook (.xlsx)"


class DelimitedSource(FileSource):
    """Text file with a header line, whose cells are separated by a character.

    Args:
        file: the file, or its head.
        separator: the separator; by default it is detected in the header.
        preferred: the separator to detect if the header contains several.

    """

    has_user_columns = True

    _has_quotes = True  # whether quotes enclose cells; otherwise they are part of the text

    def __init__(
        self, file: str | Path | FileHead, separator: str | None = None, preferred_separator: str = ","
    ) -> None:
        super().__init__(file)
        self.separator = separator or preferred_separator
        self.names = self._read_header(self.separator)
        if separator is None and len(self.names) < 2:  # then the separator that gives the most columns
            headers = {other: self._read_header(other) for other in (preferred_separator, *SEPARATORS)}
            self.separator, self.names = max(headers.items(), key=lambda header: len(header[1]))
        if not self.names:
            raise no_rows_error(self.name)
        if any("\0" in name for name in self.names):
            raise InputError("it is not a text file", source=self.name, kind="other-format", fix=EXPORT_AS_CSV_ADVICE)
        if len(self.names) == 1:
            self._refuse_wrong_separator()
        self._last, self._n_columns = self.names[-1], len(self.names)
        self._records: Integers | None = None  # number of the record of each row, from 0; None: all records in order
        self._counts: tuple[int, int] | None = None  # number of lines and of quotes

    def first_rows(self, count: int) -> list[list[str]]:
        """Return the cells of the first rows below the header as text."""
        return self._first_records(self.separator, count + 1)[1:]

    def _read_header(self, separator: str) -> list[str]:
        """Return the cells of the first record."""
        return next(iter(self._first_records(separator, 1, errors="strict")), [])

    def _first_records(self, separator: str, count: int, errors: str = "replace") -> list[list[str]]:
        """Return the cells of the first records: from the head of the file, unless it ends within them."""
        with explain_errors(self.path):
            start = self.head.first_lines()
            with closing(self._read_records(start, separator, errors)) as records:
                first = [cells for _, cells in islice(records, count)]
            if self.head.is_whole or start.read(1):
                return first
        with open_decompressed(self.head) as stream, closing(self._read_records(stream, separator, errors)) as records:
            return [cells for _, cells in islice(records, count)]

    def _read_records(
        self, stream: BinaryIO, separator: str, errors: str = "replace", extra_lines: Sequence[str] = ()
    ) -> Generator[tuple[int, list[str]], None, None]:
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
        lines = chain(self._text_lines(text), extra_lines)
        reader = csv.reader(
            lines, delimiter=separator, quoting=csv.QUOTE_MINIMAL if self._has_quotes else csv.QUOTE_NONE
        )
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
        """Raise InputError if the header, which is one column, contains another separator."""
        others = [other for other in SEPARATORS if other != self.separator and other in self.names[0]]
        # Of other characters, those that separate the names of known columns.
        others += [
            other for other in re.findall(r"[^\w\"]", self.names[0]) if count_known_columns(self.names[0], other) > 1
        ]
        if others:
            problem = f"the header {shown(self.names[0])} is one column when split at {self._separator_name()}"
            name = SEPARATORS.get(others[0], repr(others[0]))
            fix = Fix(f"it looks separated by {name}: use {{}}", "separator", others[0])
            raise InputError(problem, source=self.name, kind="wrong-separator", fix=fix)

    def _separator_name(self) -> str:
        return SEPARATORS.get(self.separator, repr(self.separator))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        # The last column shows whether a quote is left open: it then holds the rest of the file.
        self._records, self._first_row = None, 0
        wanted = list(dict.fromkeys((*names, self._last)))
        try:
            table, malformed = self._parse(wanted)
        except InputError as problem:
            if problem.kind != OPEN_QUOTE_ERROR_KIND or not self._must_parse_without_quotes(0):
                raise
            table, malformed = self._parse(wanted)
        may_be_stray = not malformed.numbers or self.separator == "\t"
        if may_be_stray and self._must_parse_without_quotes(0 if malformed.numbers else len(table)):
            table, malformed = self._parse(wanted)
        last = table[self._last][-1].as_py() if len(table) else ""
        if malformed.has_newline or _has_newline(last):
            self._refuse_open_quote()
        if malformed.first is not None:
            first = malformed.first
            error = self._malformed_row_error(first.number - 2, first.actual_columns, _has_newline(first.text))
            bad_rows.count_malformed(error, len(malformed.numbers))
            skipped = np.asarray(malformed.numbers) - 2
            self._records = np.delete(np.arange(len(table) + len(skipped)), skipped)
        return table.select(list(names))

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows, every cell as text."""
        if type(self).read is not DelimitedSource.read:  # a subclass that changes rows
            return super().read_batches(names, n_rows)
        self._records = None
        return self._count_rows(self._parse_batches(list(names), n_rows))

    def _parse_batches(self, names: list[str], n_rows: int) -> Iterator[pa.Table]:
        read = list(dict.fromkeys((*names, self._last)))
        n_done, last_cell = 0, ""
        for block_bytes in (CSV_BLOCK_BYTES, MAX_LINE_BYTES):
            try:
                for table in self._stream_with_arrow(read, block_bytes, n_done):
                    n_done, last_cell = n_done + len(table), table[self._last][-1].as_py()
                    for first in range(0, len(table), n_rows):
                        yield table.slice(first, n_rows).select(names)
                break
            except _UnparsableRow as failure:
                if not failure.is_long:
                    raise self._first_malformed_row() from failure
        else:
            raise _open_quote_error(self.name, "")
        if _has_newline(last_cell):
            self._refuse_open_quote()
        if self._has_quotes and self._lines_are_rows(n_done):
            raise self._stray_quote_error()

    def _must_parse_without_quotes(self, n_rows: int) -> bool:
        """Return whether to parse again, because quotes are part of the text of a tab-separated file.

        Quotes are stray if they enclose line breaks although each line has the cells of a row.

        Args:
            n_rows: number of rows if quotes enclose cells.

        Raises:
            InputError: quotes are stray in a file with another separator, where they should enclose cells.

        """
        if not self._has_quotes or not self._lines_are_rows(n_rows):
            return False
        if self.separator != "\t":
            raise self._stray_quote_error()
        self._has_quotes = False
        return True

    def _lines_are_rows(self, n_rows: int) -> bool:
        """Return whether the file has quotes, more lines than rows, and the cells of a row in each line."""
        if self._counts is None:
            with open_decompressed(self.head) as stream:
                self._counts = _count_lines_and_quotes(stream)
        n_lines, n_quotes = self._counts
        if not n_quotes or n_lines - 1 <= n_rows:
            return False
        n_filled = 0
        with open_decompressed(self.head) as stream:
            for line_number, line in numbered_lines(stream, self.name):
                if not line.strip(b"\r\n"):
                    continue
                if line.count(self.separator.encode()) != self._n_columns - 1 or (line_number == 1 and b'"' in line):
                    return False
                n_filled += 1
        return n_filled - 1 > n_rows

    def _stray_quote_error(self) -> InputError:
        """Return the error for the first record that has several lines."""
        with open_decompressed(self.head) as stream, closing(self._read_records(stream, self.separator)) as records:
            places = ((number, line) for number, (line, cells) in enumerate(records) if any(map(_has_newline, cells)))
            number, line = next(places, (0, 0))
        return _open_quote_error(self.name, f"row {number} (line {line})")

    def _first_malformed_row(self) -> InputError:
        """Return the error for the first row with another number of cells than the header, without Arrow."""
        if location := first_undecodable_line(self.path):
            return encoding_error(self.path, location)
        index, cells = self._find_malformed_record()
        has_newline = any(map(_has_newline, cells))
        if has_newline:
            self._refuse_open_quote()
        return self._malformed_row_error(index, len(cells), has_newline)

    def _find_malformed_record(self) -> tuple[int, list[str]]:
        """Return the index and the cells of the first record with another number of cells than the header."""
        with open_decompressed(self.head) as stream:
            for index, (_, cells) in enumerate(self._read_records(stream, self.separator), start=-1):
                if len(cells) != self._n_columns:
                    return index, cells
        raise InputError("a row has another number of cells than the header", source=self.name)

    def _stream_with_arrow(self, names: list[str], block_bytes: int, n_skipped: int) -> Iterator[pa.Table]:
        """Yield the rows of each block after the first `n_skipped` rows; arguments as in `_parse_with_arrow`."""
        with arrow_file(self.head) as rewind:
            try:
                reader = pyarrow.csv.open_csv(rewind(), **self._csv_options(names, None, block_bytes))
                for batch in reader:
                    first = min(n_skipped, len(batch))
                    n_skipped -= first
                    if len(batch) > first:
                        yield pa.Table.from_batches([batch.slice(first)])
            except pa.ArrowInvalid as problem:
                if _is_row_error(problem):
                    raise _UnparsableRow("straddling" in str(problem)) from problem
                raise

    def _parse(self, names: list[str]) -> tuple[pa.Table, _MalformedRows]:
        """Return the rows that have as many cells as the header, and information about the other rows."""
        malformed = _MalformedRows()
        # Only the sequential parser counts rows. Arrow's threads never get a Python function: they may release it after
        # the interpreter has ended, which aborts the process.
        for sequential, block_bytes in ((False, CSV_BLOCK_BYTES), (True, CSV_BLOCK_BYTES), (True, MAX_LINE_BYTES)):
            # Text that is not UTF-8 is refused here, because Arrow would print a traceback.
            if sequential and block_bytes == CSV_BLOCK_BYTES and (location := first_undecodable_line(self.path)):
                raise encoding_error(self.path, location)
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
        with arrow_file(self.head) as rewind:
            try:
                table = pyarrow.csv.read_csv(rewind(), **self._csv_options(names, on_malformed_row, block_bytes))
                if self._counts is None:
                    self._counts = _count_lines_and_quotes(rewind())
                return table
            except pa.ArrowInvalid as problem:
                if _is_row_error(problem):
                    return None
                raise

    def _csv_options(self, names: list[str], on_malformed_row: Any, block_bytes: int) -> dict[str, Any]:
        """Return Arrow's options to read columns as text."""
        return {
            "read_options": pyarrow.csv.ReadOptions(use_threads=on_malformed_row is None, block_size=block_bytes),
            "parse_options": pyarrow.csv.ParseOptions(
                delimiter=self.separator,
                quote_char='"' if self._has_quotes else False,
                newlines_in_values=True,
                invalid_row_handler=on_malformed_row,
            ),
            "convert_options": pyarrow.csv.ConvertOptions(
                include_columns=names, column_types={name: pa.string() for name in names}
            ),
        }

    def _refuse_open_quote(self) -> None:
        """Raise InputError if a quote is open at the end of the file."""
        with open_decompressed(self.head) as stream:
            for number, (line, cells) in enumerate(self._read_records(stream, self.separator, extra_lines=["end"])):
                last_place, open_quote = f"row {number} (line {line})", cells != ["end"]
        if open_quote:
            raise _open_quote_error(self.name, last_place)

    def _malformed_row_error(self, record_index: int, n_cells: int, has_newline: bool) -> InputError:
        """Return the error for a row with another number of cells than the header."""
        quote = ", close a quote that spans lines" if has_newline else ""
        return InputError(
            f"{_there_are_text(n_cells, 'cell')} where the header has {self._n_columns}",
            source=self.name,
            place=self._locate_record(record_index),
            fix=[
                f"correct the line{quote}",
                Fix(f"if cells are not separated by {self._separator_name()}, give {{}}", "separator"),
                SKIP_BAD_ROWS,
            ],
        )

    def locate_row(self, row: int) -> str:
        """Return the location of a row for errors: its number, from 1 below the header, and its line in the file."""
        return self._locate_record(self._first_row + row if self._records is None else int(self._records[row]))

    def _take_rows(self, table: pa.Table, rows: Integers) -> pa.Table:
        """Return some rows of the table that was read, for which `locate_row` is then called."""
        self._records = rows if self._records is None else self._records[rows]
        return table.take(pa.array(rows))

    def _locate_record(self, record_index: int) -> str:
        with open_decompressed(self.head) as stream:
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


class _UnparsableRow(Exception):  # noqa: N818
    """Raised if Arrow cannot parse a row: it is longer than a block (`is_long`), or has a wrong number of cells."""

    def __init__(self, is_long: bool) -> None:
        super().__init__()
        self.is_long = is_long


def _is_row_error(problem: pa.ArrowInvalid) -> bool:
    """Return whether Arrow's error is about a row that it cannot parse."""
    return re.search(r"straddling|parse error: (Row #\d+: )?Expected", str(problem)) is not None


def _count_lines_and_quotes(stream: Any) -> tuple[int, int]:
    """Return the number of lines and of double quotes in the rest of a stream."""
    n_lines, n_quotes, last = 0, 0, b"\n"
    while chunk := stream.read(CSV_BLOCK_BYTES):
        n_lines, n_quotes, last = n_lines + chunk.count(b"\n"), n_quotes + chunk.count(b'"'), chunk[-1:]
    return n_lines + (last != b"\n"), n_quotes


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text


class WhitespaceSource(LineSource):
    """Text file without a header whose cells are separated by white space: TREC qrels and run files."""

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        rows, self._lines = [], []
        with open_decompressed(self.head) as stream:
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
        problem = f"{_there_are_text(len(words), 'word')} where {len(self.names)} are expected"
        fix = f"a line has the words: {' '.join(self.names)}"
        return InputError(problem, source=self.name, place=f"line {line_number}", fix=fix)


def _there_are_text(count: int, noun: str) -> str:
    """Return "there is 1 word" or "there are 3 words"."""
    return f"there is 1 {noun}" if count == 1 else f"there are {count} {noun}s"


def _open_quote_error(source_name: str, location: str) -> InputError:
    advice = "close it, or write it twice inside a quoted cell"
    problem = "a quote is opened and never closed"
    return InputError(problem, source=source_name, place=location, kind=OPEN_QUOTE_ERROR_KIND, fix=advice)
