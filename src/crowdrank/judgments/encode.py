"""Encode one part of the input: ids, answers and families become integer codes, and bad rows are counted.

    encode_part(cells, ...)           -> Part: coded rows, and a summary (the tables that the codes index)
    merge_parts(parts, ...)           -> Judgments (`crowdrank.judgments.merge`)

A part is a set of rows that are encoded together: a file or frame in memory is one part, judgments on disk are many.
A grade is coded as an index into the distinct answers of its part until all parts are known, because the scale depends
on the answers of all parts.
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

ColumnsByRole = dict[str, pa.ChunkedArray]
"""Columns of a table by role: query, document, assessor, grade, ..."""
CodedIds = tuple[Codes, pa.Array]
"""A column of ids: the code of each row, and the distinct ids, which the codes index."""
REPEAT_POLICIES = ("last", "first", "error", "keep")
"""Ways to treat several judgments of one document by one assessor (option `repeats`)."""
MISSING_GRADE, OFF_SCALE_GRADE = -100, -101
"""Codes for a blank grade and for an answer that is not on the scale."""
MAX_TIMESTAMP_SECONDS = 9e12
"""Maximum number of seconds before or after 1970 that fits into 64-bit microseconds."""


@dataclass(frozen=True)
class EncodeOptions:
    """Options for turning rows into judgments, the same for all parts; the fields are options of `read_judgments`."""

    scale: Scale | None = None
    scale_rules: ScaleRules | None = None
    unjudgeable: frozenset[str] = frozenset()
    repeats: str = "last"
    exclude: tuple[str, ...] = ()
    family_pattern: re.Pattern[str] | None = None
    on_bad_rows: str = "error"

    def __post_init__(self) -> None:
        require_one_of("repeats", self.repeats, REPEAT_POLICIES)
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    def is_unjudgeable(self, answer: object) -> bool:
        """Return whether an answer means that the assessor could not judge the document."""
        return normalize_answer(answer) in self.unjudgeable

    def grade_codes(self, answers: list[Any], scales: tuple[Scale, ...]) -> Grades:
        """Return an array (n_scales, n_answers + 1) of grade codes; the last column is for blank cells."""
        table = np.full((len(scales), len(answers) + 1), MISSING_GRADE, np.int8)
        for row, scale in enumerate(scales):
            table[row, :-1] = [self._grade_code(value, scale) for value in answers]
        return table

    def _grade_code(self, answer: Any, scale: Scale) -> int:
        """Return the code of an answer on a scale, or the code for unjudgeable, missing or off the scale."""
        if self.is_unjudgeable(answer):
            return UNJUDGEABLE
        code = scale.code(answer)  # before the check for blanks: a scale may have a grade called None
        if code is not None:
            return code
        return MISSING_GRADE if is_blank(answer) else OFF_SCALE_GRADE


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


@dataclass(frozen=True, eq=False)
class PartRows:
    """Coded rows of a part that have all ids and whose assessor is not excluded; codes index the part's summary."""

    origin: Origin
    assessor: Codes
    answer: Codes  # index into the distinct answers; -1: blank
    document: CodedIds | pa.Array  # an array of ids if they are not coded yet
    query: CodedIds | pa.Array | None = None
    family: Codes | None = None  # -1: no family
    source_rows: Codes | None = None  # row in the source of each row; None: the same rows
    extras: Mapping[str, ParsedColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.assessor)

    def source_row(self, row: int) -> int:
        """Return the index in the source of one row of this part."""
        return row if self.source_rows is None else int(self.source_rows[row])

    def all_source_rows(self) -> Integers:
        """Return the index in the source of every row of this part."""
        return np.arange(len(self)) if self.source_rows is None else self.source_rows.astype(np.int64)


@dataclass(frozen=True, eq=False)
class PartSummary:
    """Tables that the codes of a part index, and counts of its rows; much smaller than the rows."""

    origin: Origin
    n_rows: int  # number of rows of the source, used or not
    assessors: pa.Array
    answers: list[Any]  # distinct cells of the grade column
    first_row: Integers  # (n_answers + 1,) first source row with each answer, or -1; last entry: blank cells
    bad_rows: BadRows
    families: pa.Array | None = None
    assessor_family: Codes | None = None  # (n_assessors,) first family that a row of the assessor states
    n_excluded: int = 0
    id_types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Part(NamedTuple):
    """Coded rows of one source, or of a section of it, and the tables that the codes index."""

    rows: PartRows
    summary: PartSummary


def encode_part(cells: ColumnsByRole, origin: Origin, options: EncodeOptions, bad_rows: BadRows) -> Part:
    """Encode the rows of one part.

    Args:
        cells: columns by role.
        origin: source of the rows and the names of its columns.
        options: options for turning rows into judgments.
        bad_rows: counts of the rows that the source left out; rows without an id are added.

    Returns:
        The rows with all ids, and the tables that their codes index; ids are in order of first appearance.

    """
    n_rows = len(cells["grade"])
    if not n_rows and not bad_rows.skipped:
        raise no_rows_error(origin.source.name)
    row_mask = np.ones(n_rows, dtype=bool)
    query = _encode_ids(cells["query"], "query", origin, bad_rows, row_mask) if "query" in cells else None
    document = _encode_ids(cells["document"], "document", origin, bad_rows, row_mask)
    assessor = _encode_ids(cells["assessor"], "assessor", origin, bad_rows, row_mask)
    n_excluded = _exclude_assessors(options.exclude, assessor, row_mask)
    family = ids.encode(cells["family"]) if "family" in cells else None
    answer, answers = encode_distinct(cells["grade"])
    extras = {role: parse(cells[role]) for role, parse in _PARSER_BY_ROLE.items() if role in cells}
    kept_rows = None
    if not row_mask.all():
        kept_rows = np.flatnonzero(row_mask).astype(np.int32)
        document, assessor, answer = ids.take(document, kept_rows), ids.take(assessor, kept_rows), answer[kept_rows]
        query, family = (None if column is None else ids.take(column, kept_rows) for column in (query, family))
        extras = {role: column.take(kept_rows) for role, column in extras.items()}
    first_row = kernels.first_rows(answer, len(answers))
    rows = PartRows(
        origin, assessor[0], answer, document, query, None if family is None else family[0], kept_rows, extras
    )
    coded_ids = {"query": query, "document": document, "assessor": assessor}
    summary = PartSummary(
        origin=origin,
        n_rows=n_rows + bad_rows.n_left_out,
        assessors=assessor[1],
        answers=answers,
        first_row=first_row if kept_rows is None else np.where(first_row < 0, -1, np.append(kept_rows, -1)[first_row]),
        bad_rows=bad_rows,
        families=None if family is None else family[1],
        assessor_family=None
        if family is None
        else _first_family_per_assessor(family[0], assessor[0], len(assessor[1])),
        n_excluded=n_excluded,
        id_types={role: column[1].type for role, column in coded_ids.items() if column is not None},
    )
    return Part(rows, summary)


def _encode_ids(column: pa.ChunkedArray, role: str, origin: Origin, bad_rows: BadRows, row_mask: Booleans) -> CodedIds:
    """Encode a column of ids; count rows without an id as bad and remove them from `row_mask`."""
    try:
        codes, names = ids.encode(column)
    except pa.ArrowInvalid as problem:
        raise origin.encoding_error(role) from problem
    bad_rows.count_bad(
        codes < 0, row_mask, f"no {role}", lambda row: ((origin.part_number, row), origin.missing_cell_error(row, role))
    )
    return codes, names


def _exclude_assessors(excluded_assessors: tuple[str, ...], assessors: CodedIds, row_mask: Booleans) -> int:
    """Remove the rows of excluded assessors from `row_mask`, and return the number of these rows."""
    if not excluded_assessors:
        return 0
    is_excluded = np.append(ids.match(pa.array(excluded_assessors), assessors[1]) >= 0, False)[assessors[0]] & row_mask
    row_mask &= ~is_excluded
    return int(is_excluded.sum())


def _first_family_per_assessor(family_codes: Codes, assessor_codes: Codes, n_assessors: int) -> Codes:
    """Return for each assessor the first family that one of the assessor's rows states, or -1."""
    first_family = np.full(n_assessors, -1, np.int32)
    rows = np.flatnonzero(family_codes >= 0)[::-1]
    first_family[assessor_codes[rows]] = family_codes[rows]
    return first_family


# Cells.


def normalize_answer(answer: Any) -> str:
    """Return an answer in a form that can be compared: integers without decimals, names in lower case.

    >>> normalize_answer(-2.0), normalize_answer(" -2"), normalize_answer("Broken Link")
    ('-2', '-2', 'broken link')
    """
    number = parse_integer(answer)
    return str(answer).strip().casefold() if number is None else str(number)


def encode_distinct(column: pa.ChunkedArray) -> tuple[Codes, list[Any]]:
    """Return the index of each row's value in the list of distinct values (-1: null), and that list."""
    column = _decode_dictionary(column)
    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    encoded = ids.to_single_array(column).dictionary_encode()
    return ids.dictionary_codes(encoded), encoded.dictionary.to_pylist()


def _decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column as plain values, and other columns unchanged."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def parse_floats(column: pa.ChunkedArray) -> Floats | None:
    """Parse a column as floats, NaN for blank cells; return None if a cell is not a number.

    >>> parse_floats(pa.chunked_array([["1.5", ""]])), parse_floats(pa.chunked_array([["x"]]))
    (array([1.5, nan]), None)
    """
    try:
        return np.asarray(_blank_as_null(column).cast(pa.float64(), safe=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _blank_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text without surrounding white space, blank cells as null; other columns unchanged."""
    column = _decode_dictionary(column)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def is_blank(cell: Any) -> bool:
    """Return whether a cell is empty, null or NaN, or holds a word for it such as 'NA'."""
    return cell is None or cell != cell or str(cell).strip().casefold() in ("", "nan", "na", "null", "none")


def parse_number(cell: Any) -> float:
    """Parse a cell as a float; return NaN if it is not a number."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


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


def _expand_distinct(
    distinct_values: NDArray[Any], is_bad: Booleans, cell_index: Codes, distinct_cells: list[Any]
) -> ParsedColumn:
    """Return a parsed column, given the parsed values of its distinct cells; mark bad cells, except blank ones."""
    is_bad &= ~np.array([is_blank(value) for value in distinct_cells] + [True])
    return ParsedColumn(distinct_values[cell_index], is_bad[cell_index], cell_index, distinct_cells)


def _parse_uniform_times(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Parse a column if all cells are ISO 8601 text without time zones, or all are seconds; else return None."""
    column = _blank_as_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            return np.asarray(column.cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            pass  # perhaps seconds
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


_PARSER_BY_ROLE = {"time": _parse_times, "duration": _parse_numbers, "cost": _parse_numbers, "honeypot": _parse_answers}
