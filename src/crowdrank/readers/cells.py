"""Parse the cells of a table: answers, numbers, times, durations, costs, and grade probabilities (p0, p1, ...)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._assessor_kinds import UNKNOWN_KIND, kind_code
from crowdrank._typing import Booleans, Codes, Floats, Integers
from crowdrank.errors import Fix, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import PROBABILITY_SUM_TOLERANCE, find_probability_columns
from crowdrank.judgments.scale import parse_integer
from crowdrank.readers.sources import BadRows, Source

ColumnsByRole = dict[str, pa.ChunkedArray]
"""Columns of a table by role: query, document, assessor, grade, ..."""
FIRST_ZONED_TIME, END_OF_ZONED_TIMES = np.datetime64("0001-01-02"), np.datetime64("10000-01-01")
"""First UTC time, and end of the range of times, that Arrow and Python parse alike from text with a time zone."""
MAX_TIMESTAMP_SECONDS = 9e12
"""Maximum number of seconds before or after 1970 that fits into 64-bit microseconds."""
MIN_PROBABILITY = 1e-9
"""Minimum valid probability of drawing a document of a sample; documents are weighted by its inverse."""
SAMPLE_COLUMNS = ("probability", "draw", "drawn")
"""Columns of a sample: probability with which the document was drawn, number of the draw, and number of documents
of this draw."""
DRAWN_FOR_COLUMN = "drawn_for"
"""Column of a sample with digests of the documents that could be drawn."""
NOT_DRAWN_REASON, UNGRADED_REASON = "no probability: not drawn", "drawn, without a grade"
"""Reasons, shown to the user, for which rows of a sample are left out."""


def normalize_answer(answer: Any) -> str:
    """Return an answer in a form that can be compared: integers without decimals, names in lower case.

    >>> normalize_answer(-2.0), normalize_answer(" -2"), normalize_answer("Broken Link")
    ('-2', '-2', 'broken link')
    """
    number = parse_integer(answer)
    return str(answer).strip().casefold() if number is None else str(number)


def is_blank(cell: Any) -> bool:
    """Return whether a cell is empty, null or NaN, or holds a word for it such as 'NA'."""
    return cell is None or cell != cell or str(cell).strip().casefold() in ("", "nan", "na", "null", "none")


def blank_cells(column: pa.ChunkedArray) -> Booleans:
    """Return whether each cell of a column is blank, (n,)."""
    return np.asarray(pc.is_null(_blank_as_null(_decode_dictionary(column)), nan_is_null=True), dtype=np.bool_)


def parse_number(cell: Any) -> float:
    """Parse a cell as a float; return NaN if it is not a number."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def encode_distinct(column: pa.ChunkedArray) -> tuple[Codes, list[Any]]:
    """Return the index of each row's value in the list of distinct values (-1: null), and that list."""
    column = _decode_dictionary(column)
    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    coded = ids.encode_range(column) if pa.types.is_int64(column.type) else None
    if coded is not None:
        return coded[0], coded[1].to_pylist()
    encoded = ids.to_single_array(column).dictionary_encode()
    return ids.dictionary_codes(encoded), encoded.dictionary.to_pylist()


def parse_floats(column: pa.ChunkedArray) -> Floats | None:
    """Parse a column as floats, NaN for blank cells; return None if a cell is not a number.

    >>> parse_floats(pa.chunked_array([["1.5", ""]])), parse_floats(pa.chunked_array([["x"]]))
    (array([1.5, nan]), None)
    """
    try:
        return np.asarray(_blank_as_null(column).cast(pa.float64(), safe=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def require_floats(
    column: pa.ChunkedArray,
    source: Source,
    column_name: str,
    *,
    allow_blanks: bool = False,
    fixes: Sequence[str | Fix] = ("write a number",),
) -> Floats:
    """Return a column as numbers; raise InputError at the first cell that is not a finite number.

    Args:
        column: the cells.
        source: source of the column, for errors.
        column_name: name of the column in errors.
        allow_blanks: whether to return NaN for a blank cell instead of raising an error.
        fixes: advice for errors.

    """
    values = parse_floats(column)
    if values is not None:
        is_bad = np.isinf(values) if allow_blanks else ~np.isfinite(values)
        if not is_bad.any():
            return values
        row = int(np.argmax(is_bad))
    else:
        cells = (parse_floats(column.slice(row, 1)) for row in range(len(column)))
        row = next(row for row, cell in enumerate(cells) if cell is None)
    cell = column[row].as_py()
    if isinstance(cell, str) and re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell):
        fixes = ["write decimals with a point"]
    if cell is None or cell == "" or cell != cell:
        raise source.cell_error(row, column_name, "the cell is empty", fixes, "missing-cell")
    raise source.cell_error(row, column_name, f"{shown(cell)} is not a number", fixes, "not-a-number")


def _blank_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text without surrounding white space, blank cells as null; other columns unchanged."""
    column = _decode_dictionary(column)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def _decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column as plain values, and other columns unchanged."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


# Optional columns of judgments.


@dataclass(frozen=True, eq=False)
class ParsedColumn:
    """A parsed column of times, durations, costs or honeypot answers, with the original cells for messages.

    Attributes:
        values: parsed values (n,).
        is_bad: whether each cell cannot be parsed (n,); None if all can.
        cell_index: index into `distinct_cells` of each row of the source, or None if no cell is bad.
        distinct_cells: distinct original cells.

    """

    values: NDArray[Any]
    is_bad: Booleans | None = None
    cell_index: Codes | None = None
    distinct_cells: list[Any] = field(default_factory=list)

    def original_cell(self, source_row: int) -> Any:
        """Return the cell as it stood in a row of the source."""
        return None if self.cell_index is None else self.distinct_cells[self.cell_index[source_row]]

    def take(self, rows: Codes) -> ParsedColumn:
        """Return the column for a selection of rows."""
        return ParsedColumn(
            self.values[rows], None if self.is_bad is None else self.is_bad[rows], self.cell_index, self.distinct_cells
        )


def parse_extras(cells: ColumnsByRole) -> dict[str, ParsedColumn]:
    """Parse the optional columns (kind, time, cost, probabilities of grades, ...); return them by role."""
    optional = {role: parse(cells[role]) for role, parse in PARSER_BY_ROLE.items() if role in cells}
    return {**optional, **{name: _parse_probabilities(cells[name]) for name in find_probability_columns(cells)}}


def _parse_numbers(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse a column of durations or costs; negative and infinite numbers are bad."""
    floats = parse_floats(column)
    if floats is not None and not ((floats < 0) | np.isinf(floats)).any():
        return ParsedColumn(floats)
    cell_index, distinct_cells = encode_distinct(column)
    numbers = np.array([parse_number(value) for value in distinct_cells] + [np.nan])
    return _expand_distinct(numbers, ~((numbers >= 0) & np.isfinite(numbers)), cell_index, distinct_cells)


def _parse_times(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse a column of dates, ISO 8601 text, or seconds since 1970."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        # Arrow holds times with a zone in UTC; fractions of a microsecond are cut off.
        return ParsedColumn(np.asarray(column.cast(pa.timestamp("us"), safe=False)))
    times = _parse_uniform_times(column)
    if times is not None:
        return ParsedColumn(times)
    cell_index, distinct_cells = encode_distinct(column)
    stamps = np.array([_parse_timestamp(value) for value in distinct_cells] + ["NaT"], dtype="datetime64[us]")
    return _expand_distinct(stamps, np.isnat(stamps), cell_index, distinct_cells)


def _parse_uniform_times(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Parse a column of ISO 8601 text, all or none with time zones, or of seconds; return None for other columns."""
    column = _blank_as_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        for zone in (None, "UTC"):
            try:
                times = np.asarray(column.cast(pa.timestamp("us", zone)))
            except pa.ArrowInvalid:
                continue  # the other one, or perhaps seconds
            known = times[~np.isnat(times)]
            if zone is None or ((known >= FIRST_ZONED_TIME) & (known < END_OF_ZONED_TIMES)).all():
                return times
    seconds = parse_floats(column)
    if seconds is None or (np.abs(seconds) > MAX_TIMESTAMP_SECONDS).any():
        return None
    stamps = np.full(len(seconds), np.datetime64("NaT", "us"))
    known = ~np.isnan(seconds)
    stamps[known] = np.rint(seconds[known] * 1e6).astype(np.int64).astype("datetime64[us]")
    return stamps


def _parse_timestamp(cell: Any) -> str:
    """Parse ISO 8601 text or seconds since 1970; return ISO text in UTC, or 'NaT' if the cell is neither."""
    seconds = parse_number(cell)
    try:
        if seconds == seconds:
            return str(np.datetime64(round(seconds * 1e6), "us"))
        moment = datetime.fromisoformat(str(cell).strip())
        return str(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
    except (ValueError, OverflowError):
        return "NaT"


def _parse_answers(column: pa.ChunkedArray) -> ParsedColumn:
    """Encode a column of correct honeypot answers as indices into its distinct cells."""
    cell_index, distinct_cells = encode_distinct(column)
    return ParsedColumn(cell_index, None, cell_index, distinct_cells)


def _parse_kinds(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse a column of kinds of assessors; texts that name none are unknown kinds."""
    cell_index, distinct_cells = encode_distinct(column)
    codes = np.array([kind_code(cell) for cell in distinct_cells] + [UNKNOWN_KIND], np.int8)
    return ParsedColumn(codes[cell_index])


def _parse_probabilities(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse a column of probabilities; a cell that is no number from 0 to 1 becomes infinite."""
    floats = parse_floats(column)
    if floats is None:
        cell_index, distinct_cells = encode_distinct(column)
        numbers = np.array([parse_number(cell) for cell in distinct_cells] + [np.nan])
        is_wrong = np.isnan(numbers) & ~np.array([is_blank(cell) for cell in distinct_cells] + [True])
        floats = np.where(is_wrong, np.inf, numbers)[cell_index]
    return ParsedColumn(np.where((floats < 0) | (floats > 1), np.inf, floats))


def _expand_distinct(
    distinct_values: NDArray[Any], is_bad: Booleans, cell_index: Codes, distinct_cells: list[Any]
) -> ParsedColumn:
    """Return a parsed column, given the parsed values of its distinct cells; mark bad cells, except blank ones."""
    is_bad &= ~np.array([is_blank(value) for value in distinct_cells] + [True])
    return ParsedColumn(distinct_values[cell_index], is_bad[cell_index], cell_index, distinct_cells)


PARSER_BY_ROLE = {
    "kind": _parse_kinds,
    "time": _parse_times,
    "duration": _parse_numbers,
    "cost": _parse_numbers,
    "honeypot": _parse_answers,
}
"""Function that parses the column of each optional role."""


# Probabilities of grades, and of draws of a sample.


def read_grade_probabilities(source: Source, on_bad_rows: str = "error") -> Floats:
    """Read the probability of each grade, (n_rows, n_grades); each row sums to 1.

    Raises:
        InputError: a cell is not a probability, or the probabilities of a row do not sum to 1.

    >>> import pandas as pd
    >>> from crowdrank.readers.sources import FrameSource
    >>> read_grade_probabilities(FrameSource(pd.DataFrame({"p0": [0.25], "p1": [0.75]})))
    array([[0.25, 0.75]])

    """
    names, fix = find_probability_columns(source.names), "write probabilities that sum to 1, or drop the columns"
    table = source.read(names, BadRows(on_bad_rows))
    columns = []
    for name in names:
        column = require_floats(table[name], source, name, allow_blanks=False, fixes=[fix])
        is_share = (column >= 0) & (column <= 1)
        source.require(is_share, name, "the probability is not between 0 and 1", fix, "not-a-share")
        columns.append(column)
    shares = np.column_stack(columns)
    total = shares.sum(axis=1)
    problem = f"the probabilities {names[0]} to {names[-1]} do not sum to 1"
    source.require(np.abs(total - 1) <= PROBABILITY_SUM_TOLERANCE, names[0], problem, fix, "not-a-share")
    return np.asarray(shares / total[:, None])


def grades_of_probability_columns(names: Iterable[str]) -> Floats:
    """Return the grade of each probability column: 2 for `p2`.

    >>> grades_of_probability_columns(["p0", "p2"])
    array([0., 2.])
    """
    return np.array([float(name[1:]) for name in names])


def read_sample_columns(source: Source, names: Sequence[str]) -> Floats:
    """Read columns of a sample, some of `SAMPLE_COLUMNS`, (n_rows, n_columns).

    Raises:
        InputError: a probability is not above 0 and at most 1, or a draw is not a number.

    """
    columns = []
    for name in names:
        table = source.read([name], BadRows())
        column = require_floats(table[name], source, name, allow_blanks=name == "drawn", fixes=["write a number"])
        if name == "probability":
            problem = f"the probability of the draw is not between {MIN_PROBABILITY:g} and 1"
            fix = "write the probability with which the document was drawn"
            source.require((column >= MIN_PROBABILITY) & (column <= 1), name, problem, fix, "not-a-probability")
        columns.append(column)
    return np.column_stack(columns)


class SampledRows(Source):
    """Source with only the rows that have a sampling probability; the others are left out and counted.

    Attributes:
        grade_column: name of the column of the grades; rows whose grade is blank are left out, too.
        n_ungraded: number of rows that were drawn and have no grade, known after reading.

    >>> import pandas as pd
    >>> from crowdrank.readers.sources import FrameSource
    >>> table = FrameSource(pd.DataFrame({"document": ["a", "b"], "probability": [None, 0.5]}))
    >>> SampledRows(table).read(["document"], BadRows()).to_pylist()
    [{'document': 'b'}]

    """

    def __init__(self, source: Source, grade_column: str | None = None) -> None:
        self.source, self.grade_column, self.n_ungraded = source, grade_column, 0
        self.name, self.backend, self.names, self.units = source.name, source.backend, source.names, source.units
        self._rows: Integers = np.zeros(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` of the rows with a probability."""
        column, grade = SAMPLE_COLUMNS[0], self.grade_column
        table = self.source.read(list(dict.fromkeys((*names, column, *([] if grade is None else [grade])))), bad_rows)
        fix = "write the probability with which the document was drawn"
        is_drawn = ~np.isnan(require_floats(table[column], self.source, column, allow_blanks=True, fixes=[fix]))
        is_ungraded = is_drawn & (False if grade is None else blank_cells(table[grade]))
        self._rows, self.n_ungraded = np.flatnonzero(is_drawn & ~is_ungraded), int(is_ungraded.sum())
        bad_rows.count_left_out(NOT_DRAWN_REASON, len(table) - int(is_drawn.sum()))
        bad_rows.count_left_out(UNGRADED_REASON, self.n_ungraded)
        return table.take(pa.array(self._rows)).select(list(names))

    def locate_row(self, row: int) -> str:
        """Return the place in the file of a row that was read."""
        return self.source.locate_row(int(self._rows[row]))
