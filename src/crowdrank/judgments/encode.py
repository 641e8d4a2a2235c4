"""From columns of cells to coded judgments: the one place that decides what a grade and an id is."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.scale import MOST_GRADES, Scale, ScaleRules, whole_number
from crowdrank.judgments.sources import Source, no_rows
from crowdrank.judgments.table import NO_HONEYPOT, NO_QUERY, UNJUDGEABLE, Judgments, ReadReport

Columns = dict[str, pa.ChunkedArray]
NUMBERS = ("duration", "cost")
MISSING, OFF_SCALE = -100, -101
"""Codes, while a column is being coded, of cells that hold no grade."""
MOST_SECONDS = 9e12
"""As far from 1970 as 64 bits of microseconds reach."""


@dataclass(frozen=True)
class Encoder:
    """How rows of a source become judgments."""

    source: Source
    bad_rows: BadRows
    scale: Scale | None = None
    scale_rules: ScaleRules | None = None
    unjudgeable: frozenset[str] = frozenset()
    repeats: str = "last"
    exclude: Collection[str] = ()
    family_pattern: re.Pattern[str] | None = None
    option: str = "--"  # how the options of this source begin, for messages
    column_of: Callable[[str], str] = str  # the user's own name of a role's column, for messages

    def encode(self, columns: Columns) -> Judgments:
        """Code, check, sort and thin out the rows."""
        require_one_of("repeats", self.repeats, ("last", "first", "error", "keep"))
        n = len(columns["grade"])
        if not n and not self.bad_rows.skipped:
            raise no_rows(self.source.name)
        keep = np.ones(n, dtype=bool)
        query, queries = self.coded_ids(columns.get("query"), "query", keep, n)
        document, documents = self.coded_ids(columns["document"], "document", keep, n)
        assessor, assessors = self.coded_ids(columns["assessor"], "assessor", keep, n)
        excluded = self.leave_out(assessor, assessors, keep)
        self._require_rows(keep)
        families, assessor_family = self._families(columns.get("family"), assessor, assessors, keep)
        self._require_rows(keep)
        scales, maps, common, assessor_scale = self._scales(
            columns["grade"], assessor, assessors, families, assessor_family, keep
        )
        scale_of = assessor_scale[assessor] if len(scales) > 1 else np.broadcast_to(assessor_scale[:1], n)
        grade = self._grades(columns["grade"], scales, scale_of, keep)
        extras = self._extras(columns, scales, scale_of, keep)
        self._require_rows(keep)
        rows = np.flatnonzero(keep).astype(np.int32)
        order, offsets = kernels.group_rows(query, document, rows, len(queries), len(documents))
        order, offsets, repeats = self._thin(order, offsets, assessor, len(assessors))
        first = order[offsets[:-1]]
        judgments = Judgments(
            queries=queries,
            documents=documents,
            assessors=assessors,
            item_query=query[first],
            item_document=document[first],
            offsets=offsets,
            assessor=assessor[order],
            grade=grade[order],
            scales=scales,
            assessor_scale=assessor_scale,
            scale_maps=maps,
            common_scale=common,
            families=families,
            assessor_family=assessor_family,
            extras={name: column[order] for name, column in extras.items()},
            report=ReadReport(
                rows=n + self.bad_rows.before_table,
                skipped=dict(self.bad_rows.skipped),
                examples=self.bad_rows.examples,
                repeats=repeats,
                excluded=excluded,
                units=self._units(columns),
                guessed=self.scale is None and self.scale_rules is None,
            ),
            unjudgeable=tuple(sorted(self.unjudgeable)),
            backend=self.source.backend,
        )
        # Rows left out may have left queries, documents or assessors with nothing.
        return judgments if keep.all() else judgments.where(np.ones(len(judgments), dtype=bool))

    def _units(self, columns: Columns) -> dict[str, str]:
        """The units of durations and costs that the format or a column's own name tells."""
        known = dict(self.source.units)
        if "second" in self.column_of("duration").casefold():
            known["duration"] = "seconds"
        return {name: unit for name, unit in known.items() if name in columns}

    def _require_rows(self, keep: NDArray[np.bool_]) -> None:
        if keep.any():
            return
        reasons = [f"{reason}: {count}" for reason, count in self.bad_rows.skipped.items()]
        reasons += ["assessors excluded"] if self.exclude else []
        raise InputError(
            "no row can be used", source=self.source.name, fix=f"every row was left out ({', '.join(reasons)})"
        )

    def error(self, row: int, role: str, problem: str, remedy: str) -> InputError:
        """What is wrong with a cell, and where it stands."""
        return InputError(
            problem, source=self.source.name, place=self.source.place(row), column=self.column_of(role), fix=remedy
        )

    def coded_ids(
        self, column: pa.ChunkedArray | None, role: str, keep: NDArray[np.bool_], n: int
    ) -> tuple[NDArray[np.int32], pa.Array]:
        """The codes of a column of ids, and the ids; rows without one are bad."""
        if column is None:
            return np.zeros(n, np.int32), pa.array([NO_QUERY])
        try:
            codes, names = ids.encode(column)
        except pa.ArrowInvalid as problem:
            column_name = self.column_of(role)
            raise InputError(
                "the text is not UTF-8", source=self.source.name, column=column_name, fix="save it as UTF-8"
            ) from problem
        self.bad_rows.check(codes < 0, keep, f"no {role}", lambda row: self.missing(row, role))
        return codes, names

    def missing(self, row: int, role: str) -> InputError:
        """What is said of a row without an id or a grade."""
        return self.error(row, role, f"the {role} is missing", "fill it in, or use --on-bad-rows skip")

    def _families(
        self,
        column: pa.ChunkedArray | None,
        assessor: NDArray[np.int32],
        assessors: pa.Array,
        keep: NDArray[np.bool_],
    ) -> tuple[pa.Array | None, NDArray[np.int32] | None]:
        """The family of each assessor (-1: none): the first that a row tells; a row that tells another is bad."""
        if column is None:
            return (None, None) if self.family_pattern is None else self.families_by_name(assessors)
        family, families = ids.encode(column)
        of = np.full(len(assessors), -1, np.int32)
        told = np.flatnonzero((family >= 0) & keep)[::-1]
        of[assessor[told]] = family[told]

        def contradiction(row: int) -> InputError:
            who, here = assessors[int(assessor[row])].as_py(), families[int(family[row])].as_py()
            return self.other_family(row, who, here, families[int(of[assessor[row]])].as_py())

        other = (family >= 0) & keep
        other[other] = of[assessor[other]] != family[other]
        self.bad_rows.check(other, keep, "another family", contradiction)
        return families, of

    def other_family(self, row: int, assessor: Any, here: Any, before: Any) -> InputError:
        """What is said of a row that tells of another family than the first did."""
        return self.error(
            row,
            "family",
            f"the assessor {shown(assessor)} is of the family {shown(here)} here and of {shown(before)} before",
            "give each assessor one family",
        )

    def families_by_name(self, assessors: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
        """The family that an assessor's id tells: what the pattern's first group (or all of it) matches."""
        assert self.family_pattern is not None
        found = [self.family_pattern.match(str(name)) for name in assessors.to_pylist()]
        told = [None if match is None else match[min(1, self.family_pattern.groups)] for match in found]
        family, families = ids.encode(pa.chunked_array([pa.array(told, pa.string())]))
        if not len(families):
            raise InputError(
                f"no assessor's id matches {self.family_pattern.pattern!r}",
                source=self.source.name,
                fix=f"the first is {shown(assessors[0].as_py())}",
            )
        return families, family

    def leave_out(self, assessor: NDArray[np.int32], assessors: pa.Array, keep: NDArray[np.bool_]) -> int:
        """Take the rows of excluded assessors out of `keep`; how many these are."""
        if not self.exclude:
            return 0
        barred = np.append(ids.match(pa.array(list(self.exclude)), assessors) >= 0, False)[assessor] & keep
        keep &= ~barred
        return int(barred.sum())

    def _scales(
        self,
        grades: pa.ChunkedArray,
        assessor: NDArray[np.int32],
        assessors: pa.Array,
        families: pa.Array | None,
        family: NDArray[np.int32] | None,
        keep: NDArray[np.bool_],
    ) -> tuple[tuple[Scale, ...], tuple[tuple[int, ...] | None, ...], Scale | None, NDArray[np.int8]]:
        scale_of = np.zeros(len(assessors), np.int8)
        if self.scale_rules is None:
            return (self.scale or self._inferred(grades, keep),), (), None, scale_of
        # Whoever is left out needs no scale.
        used = np.unique(assessor[keep])
        scales, maps, common, scale_of[used] = self.scale_rules.assign(
            assessors.take(pa.array(used)), families, None if family is None else family[used], self.scale
        )
        return scales, maps, common, scale_of

    def _inferred(self, column: pa.ChunkedArray, keep: NDArray[np.bool_]) -> Scale:
        """The scale of the whole numbers that occur; what is no whole number is found later, row by row."""
        cell, values = distinct(column)
        too_large = np.array([self.is_too_large(value) for value in values] + [False])
        self.bad_rows.check(
            too_large[cell], keep, "grade off the scale", lambda row: self.too_large(row, values[cell[row]])
        )
        self._require_rows(keep)
        seen = values
        if not keep.all():
            used = np.bincount(cell[keep] + 1, minlength=len(values) + 1)[1:] > 0
            seen = [value for value, is_used in zip(values, used, strict=True) if is_used]
        if all(whole_number(value) is None for value in seen if not self._is_unjudgeable(value)):
            self._refuse_names(cell, values, keep)
        return self.spanning(seen)

    def spanning(self, seen: Iterable[Any]) -> Scale:
        """The scale of the whole numbers among the answers that were given."""
        numbers = [whole_number(value) for value in seen if not self._is_unjudgeable(value)]
        return Scale.spanning(number for number in numbers if number is not None and number >= 0)

    def _refuse_names(self, cell: NDArray[np.int32], values: list[Any], keep: NDArray[np.bool_]) -> None:
        """Refuse grades that are names where no scale was given: no row is to blame, and skipping some would not do."""
        words = np.array([self._is_name(value) for value in values] + [False])[cell] & keep
        if words.any():
            row = int(np.argmax(words))
            problem = f"{shown(values[cell[row]])} is the name of a grade, and which grade is higher is not known"
            remedy = f"name the grades from least to most relevant with {self.option}grades, as in Bad,Fair,Good"
            raise self.error(row, "grade", problem, remedy)

    def _is_name(self, value: Any) -> bool:
        number = _number(value)
        return not _is_blank(value) and not self._is_unjudgeable(value) and number != number

    @staticmethod
    def is_too_large(value: Any) -> bool:
        """Whether a number cannot be a grade of a scale that is told by its grades."""
        return (whole_number(value) or 0) >= MOST_GRADES

    def too_large(self, row: int, value: Any) -> InputError:
        """What is said of such a number."""
        remedy = "give the scale with --grades, or use --on-bad-rows skip"
        return self.error(row, "grade", f"{shown(value)} is too large for a grade", remedy)

    def _is_unjudgeable(self, value: Any) -> bool:
        return answer(value) in self.unjudgeable

    def _grades(
        self, column: pa.ChunkedArray, scales: tuple[Scale, ...], scale_of: NDArray[np.int8], keep: NDArray[np.bool_]
    ) -> NDArray[np.int8]:
        codes, told = self._codes(column, scales, scale_of)
        self.bad_rows.check(codes == MISSING, keep, "no grade", lambda row: self.missing(row, "grade"))
        self._check_on_scale(codes, told, "grade", scales, scale_of, keep)
        return codes

    def _codes(
        self, column: pa.ChunkedArray, scales: tuple[Scale, ...], scale_of: NDArray[np.int8]
    ) -> tuple[NDArray[np.int8], Callable[[int], Any]]:
        """Positions on the assessors' scales (n,), and what stood in a row; each distinct cell is looked at once."""
        cell, values = distinct(column)
        table = np.full((len(scales), len(values) + 1), MISSING, np.int8)  # the last column is that of null cells
        for row, scale in enumerate(scales):
            for position, value in enumerate(values):
                table[row, position] = self.code(scale, value)
        codes = table[scale_of, cell] if len(scales) > 1 else table[0].take(cell)
        return codes, lambda row: values[cell[row]]

    def code(self, scale: Scale, value: Any) -> int:
        """The position of an answer on a scale, or what else it is: UNJUDGEABLE, MISSING, OFF_SCALE."""
        if self._is_unjudgeable(value):
            return UNJUDGEABLE
        code = scale.code(value)  # first of all: a scale may have a grade called None
        if code is not None:
            return code
        return MISSING if _is_blank(value) else OFF_SCALE

    def _check_on_scale(
        self,
        codes: NDArray[np.int8],
        told: Callable[[int], Any],
        role: str,
        scales: tuple[Scale, ...],
        scale_of: NDArray[np.int8],
        keep: NDArray[np.bool_],
    ) -> None:
        self.bad_rows.check(
            codes == OFF_SCALE,
            keep,
            f"{role} off the scale",
            lambda row: self.off_scale(row, role, told(row), scales[scale_of[row]]),
        )

    def off_scale(self, row: int, role: str, value: Any, scale: Scale) -> InputError:
        """What is said of an answer that the scale has not."""
        number = whole_number(value)
        told = shown(value if number is None else number)
        if scale.numeric and number is None:
            problem = f"{told} is not a grade of the scale {scale}"
            remedies = ["use whole numbers", f"name the grades in order with {self.option}grades", *self._skipping()]
        elif number is not None and number < 0:
            problem = f"the grade {told} is below the scale {scale}"
            means = f"if it means 'cannot judge' say {self.option}unjudgeable {number}"
            remedies = [f"{means}, else give the scale with {self.option}grades"]
        else:
            problem = f"the grade {told} is off the scale {scale}"
            remedies = [f"give the whole scale with {self.option}grades", *self._skipping()]
        *most, last = remedies
        return self.error(row, role, problem, f"{', '.join(most)}, or {last}" if most else last)

    def _skipping(self) -> list[str]:
        """Expert grades are few and trusted: none of them is skipped on the command line."""
        return ["use --on-bad-rows skip"] if self.option == "--" else []

    def _extras(
        self, columns: Columns, scales: tuple[Scale, ...], scale_of: NDArray[np.int8], keep: NDArray[np.bool_]
    ) -> dict[str, NDArray[Any]]:
        extras: dict[str, NDArray[Any]] = {}
        if "time" in columns:
            extras["time"] = self._times(columns["time"], keep)
        for role in NUMBERS:
            if role in columns:
                extras[role] = self._numbers(columns[role], role, keep)
        if "honeypot" in columns:
            codes, told = self._codes(columns["honeypot"], scales, scale_of)
            self._check_on_scale(codes, told, "honeypot", scales, scale_of, keep)
            extras["honeypot"] = np.where(codes == MISSING, NO_HONEYPOT, codes).astype(np.int8)
        return extras

    def _times(self, column: pa.ChunkedArray, keep: NDArray[np.bool_]) -> NDArray[Any]:
        """Points in time: dates as they are, text by ISO 8601, numbers as seconds since 1970."""
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            # Arrow holds what has a time zone in UTC; less than a microsecond is cut off.
            return np.asarray(column.cast(pa.timestamp("us"), safe=False))
        at_once = _times_at_once(column)
        if at_once is not None:
            return at_once
        cell, values = distinct(column)
        blank = np.array([_is_blank(value) for value in values] + [True])
        stamps = np.array([_timestamp(value) for value in values] + ["NaT"], dtype="datetime64[us]")
        self.bad_rows.check(
            (np.isnat(stamps) & ~blank)[cell],
            keep,
            "time not a date",
            lambda row: self.error(
                row,
                "time",
                f"{shown(values[cell[row]])} is not a time",
                "write it as 2024-05-31T10:15:00 or leave it blank",
            ),
        )
        return stamps[cell]

    def _numbers(self, column: pa.ChunkedArray, role: str, keep: NDArray[np.bool_]) -> NDArray[np.float64]:
        at_once = as_floats(column)
        if at_once is not None and not ((at_once < 0) | np.isinf(at_once)).any():
            return at_once
        cell, values = distinct(column)
        blank = np.array([_is_blank(value) for value in values] + [True])
        numbers = np.array([_number(value) for value in values] + [np.nan])
        self.bad_rows.check(
            (~blank & ~((numbers >= 0) & np.isfinite(numbers)))[cell],
            keep,
            f"{role} not a number",
            lambda row: self.error(
                row, role, f"{shown(values[cell[row]])} is not a {role}", "write a number from 0 up, or leave it blank"
            ),
        )
        return numbers[cell]

    def _thin(
        self, order: NDArray[np.int32], offsets: NDArray[np.int64], assessor: NDArray[np.int32], n_assessors: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
        """Leave out repeated judgments of one assessor on one item, as chosen."""
        again = kernels.repeated(offsets, order, assessor, n_assessors, self.repeats != "first")
        repeats = int(again.sum())
        if repeats and self.repeats == "error":
            item = int(np.searchsorted(offsets, np.argmax(again), side="right")) - 1
            rows = np.sort(order[offsets[item] : offsets[item + 1]])
            same = rows[assessor[rows] == assessor[order[int(np.argmax(again))]]]
            raise InputError(
                f"one assessor judged one document twice ({self.source.place(int(same[0]))} and "
                f"{self.source.place(int(same[1]))})",
                source=self.source.name,
                fix="use --repeats last, first or keep",
            )
        if not repeats or self.repeats == "keep":
            return order, offsets, repeats
        order, offsets = kernels.without(order, offsets, again)
        return order, offsets, repeats


def answer(value: Any) -> str:
    """An answer as it is compared: numbers as numbers, names without regard to case.

    >>> answer(-2.0), answer(" -2"), answer("Broken Link")
    ('-2', '-2', 'broken link')
    """
    number = whole_number(value)
    return str(value).strip().casefold() if number is None else str(number)


def distinct(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[Any]]:
    """The distinct values of a column and, per row, which it is (-1: null)."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    chunk = ids.in_one_piece(column).dictionary_encode()
    return ids.codes_of(chunk), chunk.dictionary.to_pylist()


def as_floats(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """A column as numbers, blank cells as NaN; None where a cell is no number.

    >>> as_floats(pa.chunked_array([["1.5", ""]])), as_floats(pa.chunked_array([["x"]]))
    (array([1.5, nan]), None)
    """
    try:
        return np.asarray(_blank_as_null(column).cast(pa.float64(), safe=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _blank_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column spelt out, and text with nothing in it as null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def _times_at_once(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """The times of a column that is all ISO text without zones, or all seconds; None where it is neither."""
    column = _blank_as_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            return np.asarray(column.cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            pass  # seconds, perhaps
    seconds = as_floats(column)
    if seconds is None or (np.abs(seconds) > MOST_SECONDS).any():
        return None
    stamps = np.full(len(seconds), np.datetime64("NaT", "us"))
    known = ~np.isnan(seconds)
    stamps[known] = np.rint(seconds[known] * 1e6).astype(np.int64).astype("datetime64[us]")
    return stamps


def _is_blank(value: Any) -> bool:
    """Whether a cell says that there is no value."""
    return value is None or value != value or str(value).strip().casefold() in ("", "nan", "na", "null", "none")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _timestamp(value: Any) -> str:
    """ISO 8601 text or seconds since 1970 as UTC."""
    seconds = _number(value)
    try:
        if seconds == seconds:
            return str(np.datetime64(round(seconds * 1e6), "us"))
        moment = datetime.fromisoformat(str(value).strip())
        return str(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
    except (ValueError, OverflowError):
        return "NaT"
