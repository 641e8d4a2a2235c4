"""Encode one part of the rows: ids, answers and families as codes of the part, bad rows counted.

    encode_part(cells, ...)           -> Part: coded rows, and a summary (the tables that the codes index)
    merge_parts(parts, ...)           -> Judgments (`crowdrank.judgments.merge`)

A file or frame in memory is one part; judgments on disk are many. Grades stay positions among the distinct answers of
the part until all parts are known, because the scale depends on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.scale import Scale, ScaleRules, parse_integer
from crowdrank.judgments.sources import no_rows_error
from crowdrank.judgments.table import UNJUDGEABLE

Columns = dict[str, pa.ChunkedArray]
Ids = tuple[Codes, pa.Array]
"""Codes of rows, and the ids that they index."""
REPEATS = ("last", "first", "error", "keep")
MISSING, OFF_SCALE = -100, -101
"""Codes of cells without a grade and of cells whose answer is not on the scale."""
MAX_SECONDS = 9e12
"""Largest distance from 1970 in seconds that 64 bits of microseconds can hold."""


@dataclass(frozen=True)
class EncodeOptions:
    """How rows become judgments, for all parts."""

    scale: Scale | None = None
    scale_rules: ScaleRules | None = None
    unjudgeable: frozenset[str] = frozenset()
    repeats: str = "last"
    exclude: tuple[str, ...] = ()
    family_pattern: re.Pattern[str] | None = None
    on_bad_rows: str = "error"

    def __post_init__(self) -> None:
        require_one_of("repeats", self.repeats, REPEATS)
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    def is_unjudgeable(self, value: object) -> bool:
        """Return whether an answer means 'cannot judge'."""
        return answer(value) in self.unjudgeable

    def grade_codes(self, answers: list[Any], scales: tuple[Scale, ...]) -> Grades:
        """Return the code of each answer on each scale: (n_scales, n_answers + 1), MISSING in the last column."""
        table = np.full((len(scales), len(answers) + 1), MISSING, np.int8)
        for row, scale in enumerate(scales):
            table[row, :-1] = [self._grade_code(value, scale) for value in answers]
        return table

    def _grade_code(self, value: Any, scale: Scale) -> int:
        if self.is_unjudgeable(value):
            return UNJUDGEABLE
        code = scale.code(value)  # before the check for blanks: a scale may have a grade called None
        if code is not None:
            return code
        return MISSING if is_blank(value) else OFF_SCALE


@dataclass(frozen=True, eq=False)
class ParsedColumn:
    """An extra column: values (n,), which cells cannot be read, and the original cells."""

    values: NDArray[Any]
    bad: Booleans | None = None
    cell: Codes | None = None  # (n_source_rows,) position of each row of the source in `cells`
    cells: list[Any] = field(default_factory=list)

    def original(self, source_row: int) -> Any:
        """Return the cell of a row of the source."""
        return None if self.cell is None else self.cells[self.cell[source_row]]

    def take(self, rows: Codes) -> ParsedColumn:
        """Return the values of some rows."""
        return ParsedColumn(self.values[rows], None if self.bad is None else self.bad[rows], self.cell, self.cells)


@dataclass(frozen=True, eq=False)
class PartRows:
    """Rows with all ids, of assessors who are not excluded; codes index the tables of the part's summary."""

    origin: Origin
    assessor: Codes
    answer: Codes  # -1: blank
    document: Ids | pa.Array  # ids that are not coded yet, if the rows were stored
    query: Ids | pa.Array | None = None
    family: Codes | None = None  # -1: none
    source_rows: Codes | None = None  # None: all rows of the source
    extras: Mapping[str, ParsedColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.assessor)

    def source_row(self, row: int) -> int:
        """Return the number of a row in the source."""
        return row if self.source_rows is None else int(self.source_rows[row])

    def all_source_rows(self) -> Integers:
        """Return the number of each row in the source."""
        return np.arange(len(self)) if self.source_rows is None else self.source_rows.astype(np.int64)


@dataclass(frozen=True, eq=False)
class PartSummary:
    """Tables of a part, small beside its rows."""

    origin: Origin
    n_rows: int  # of the source, used or not
    assessors: pa.Array
    answers: list[Any]  # distinct cells of the grade column
    first_row: Integers  # (n_answers + 1,) first row of the source with each answer, or -1; the last is that of blanks
    bad_rows: BadRows
    families: pa.Array | None = None
    assessor_family: Codes | None = None  # (n_assessors,) family in the assessor's first row that has one
    excluded: int = 0
    id_types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Part(NamedTuple):
    """Coded rows of one source or of a part of it."""

    rows: PartRows
    summary: PartSummary


def encode_part(cells: Columns, origin: Origin, options: EncodeOptions, bad_rows: BadRows) -> Part:
    """Encode the rows of one part.

    Args:
        cells: columns by role.
        origin: source and columns of the rows.
        options: how rows become judgments.
        bad_rows: counts of the rows that the source left out; rows without an id are added.

    Returns:
        The rows with all ids, and the tables that their codes index; ids are in order of first appearance.

    """
    n = len(cells["grade"])
    if not n and not bad_rows.skipped:
        raise no_rows_error(origin.source.name)
    keep = np.ones(n, dtype=bool)
    query = _encode_ids(cells["query"], "query", origin, bad_rows, keep) if "query" in cells else None
    document = _encode_ids(cells["document"], "document", origin, bad_rows, keep)
    assessor = _encode_ids(cells["assessor"], "assessor", origin, bad_rows, keep)
    excluded = _exclude(options.exclude, assessor, keep)
    family = ids.encode(cells["family"]) if "family" in cells else None
    cell, answers = distinct(cells["grade"])
    extras = {role: parse(cells[role]) for role, parse in _PARSERS.items() if role in cells}
    kept = None
    if not keep.all():
        kept = np.flatnonzero(keep).astype(np.int32)
        document, assessor, cell = ids.take(document, kept), ids.take(assessor, kept), cell[kept]
        query, family = (None if column is None else ids.take(column, kept) for column in (query, family))
        extras = {role: column.take(kept) for role, column in extras.items()}
    first = kernels.first_rows(cell, len(answers))
    rows = PartRows(origin, assessor[0], cell, document, query, None if family is None else family[0], kept, extras)
    known = {"query": query, "document": document, "assessor": assessor}
    summary = PartSummary(
        origin=origin,
        n_rows=n + bad_rows.before_table,
        assessors=assessor[1],
        answers=answers,
        first_row=first if kept is None else np.where(first < 0, -1, np.append(kept, -1)[first]),
        bad_rows=bad_rows,
        families=None if family is None else family[1],
        assessor_family=None if family is None else _first_family(family[0], assessor[0], len(assessor[1])),
        excluded=excluded,
        id_types={role: column[1].type for role, column in known.items() if column is not None},
    )
    return Part(rows, summary)


def _encode_ids(column: pa.ChunkedArray, role: str, origin: Origin, bad_rows: BadRows, keep: Booleans) -> Ids:
    """Encode a column of ids; rows without one are bad."""
    try:
        codes, names = ids.encode(column)
    except pa.ArrowInvalid as problem:
        raise origin.encoding_error(role) from problem
    bad_rows.check(
        codes < 0, keep, f"no {role}", lambda row: ((origin.part_number, row), origin.missing_cell_error(row, role))
    )
    return codes, names


def _exclude(names: tuple[str, ...], assessor: Ids, keep: Booleans) -> int:
    """Remove the rows of assessors from `keep` and return their number."""
    if not names:
        return 0
    excluded = np.append(ids.match(pa.array(names), assessor[1]) >= 0, False)[assessor[0]] & keep
    keep &= ~excluded
    return int(excluded.sum())


def _first_family(family: Codes, assessor: Codes, n_assessors: int) -> Codes:
    """Return the family in the first row of each assessor that has one, or -1."""
    first = np.full(n_assessors, -1, np.int32)
    rows = np.flatnonzero(family >= 0)[::-1]
    first[assessor[rows]] = family[rows]
    return first


# Cells.


def answer(value: Any) -> str:
    """Return an answer in the form in which answers are compared: numbers as numbers, names without case.

    >>> answer(-2.0), answer(" -2"), answer("Broken Link")
    ('-2', '-2', 'broken link')
    """
    number = parse_integer(value)
    return str(value).strip().casefold() if number is None else str(number)


def distinct(column: pa.ChunkedArray) -> tuple[Codes, list[Any]]:
    """Return the position of each row's value among the distinct values (-1: null), and these values."""
    column = _decoded(column)
    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    chunk = ids.in_one_piece(column).dictionary_encode()
    return ids.codes_of(chunk), chunk.dictionary.to_pylist()


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def as_floats(column: pa.ChunkedArray) -> Floats | None:
    """Return a column as numbers with NaN for blank cells, or None if a cell is not a number.

    >>> as_floats(pa.chunked_array([["1.5", ""]])), as_floats(pa.chunked_array([["x"]]))
    (array([1.5, nan]), None)
    """
    try:
        return np.asarray(_blank_as_null(column).cast(pa.float64(), safe=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _blank_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = _decoded(column)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def is_blank(value: Any) -> bool:
    """Return whether a cell has no value."""
    return value is None or value != value or str(value).strip().casefold() in ("", "nan", "na", "null", "none")


def as_number(value: Any) -> float:
    """Return a cell as a number, or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _parse_numbers(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse durations or costs."""
    floats = as_floats(column)
    if floats is not None and not ((floats < 0) | np.isinf(floats)).any():
        return ParsedColumn(floats)
    cell, values = distinct(column)
    numbers = np.array([as_number(value) for value in values] + [np.nan])
    return _parsed(numbers, ~((numbers >= 0) & np.isfinite(numbers)), cell, values)


def _parse_times(column: pa.ChunkedArray) -> ParsedColumn:
    """Parse points in time: dates, text in ISO 8601, or seconds since 1970."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        # Arrow holds times with a zone in UTC; fractions of a microsecond are cut off.
        return ParsedColumn(np.asarray(column.cast(pa.timestamp("us"), safe=False)))
    times = _uniform_times(column)
    if times is not None:
        return ParsedColumn(times)
    cell, values = distinct(column)
    stamps = np.array([_timestamp(value) for value in values] + ["NaT"], dtype="datetime64[us]")
    return _parsed(stamps, np.isnat(stamps), cell, values)


def _parsed(values: NDArray[Any], bad: Booleans, cell: Codes, cells: list[Any]) -> ParsedColumn:
    """Return a column from its distinct values; a bad cell that is blank is not bad."""
    bad &= ~np.array([is_blank(value) for value in cells] + [True])
    return ParsedColumn(values[cell], bad[cell], cell, cells)


def _uniform_times(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Return the times of a column that is all ISO text without zones, or all seconds; None if it is neither."""
    column = _blank_as_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            return np.asarray(column.cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            pass  # perhaps seconds
    seconds = as_floats(column)
    if seconds is None or (np.abs(seconds) > MAX_SECONDS).any():
        return None
    stamps = np.full(len(seconds), np.datetime64("NaT", "us"))
    known = ~np.isnan(seconds)
    stamps[known] = np.rint(seconds[known] * 1e6).astype(np.int64).astype("datetime64[us]")
    return stamps


def _timestamp(value: Any) -> str:
    """Return ISO 8601 text or seconds since 1970 as ISO text in UTC, or NaT."""
    seconds = as_number(value)
    try:
        if seconds == seconds:
            return str(np.datetime64(round(seconds * 1e6), "us"))
        moment = datetime.fromisoformat(str(value).strip())
        return str(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
    except (ValueError, OverflowError):
        return "NaT"


def _parse_answers(column: pa.ChunkedArray) -> ParsedColumn:
    """Return the right answers of honeypots as positions among the distinct answers."""
    cell, values = distinct(column)
    return ParsedColumn(cell, None, cell, values)


_PARSERS = {"time": _parse_times, "duration": _parse_numbers, "cost": _parse_numbers, "honeypot": _parse_answers}
