"""From columns of cells to coded judgments: the one place that decides what a grade and an id is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank.errors import InputError
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.bad_rows import MALFORMED, BadRows
from crowdrank.judgments.grades import Scale, one_of, whole_number
from crowdrank.judgments.scales import ScaleRules
from crowdrank.judgments.sources import Source
from crowdrank.judgments.table import NO_HONEYPOT, NO_QUERY, UNJUDGEABLE, Judgments, ReadReport, sort_rows

Columns = dict[str, pa.ChunkedArray]
NUMBERS = ("duration", "cost")


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
    column_of: Callable[[str], str] = str  # the user's own name of a role's column, for messages

    def encode(self, columns: Columns) -> Judgments:
        """Code, check, sort and thin out the rows."""
        one_of(("last", "first", "error", "keep"), self.repeats, "--repeats")
        n = len(columns["grade"])
        keep = np.ones(n, dtype=bool)
        query, queries = self._ids(columns.get("query"), "query", keep, n)
        document, documents = self._ids(columns["document"], "document", keep, n)
        assessor, assessors = self._ids(columns["assessor"], "assessor", keep, n)
        families, assessor_family = self._families(columns.get("family"), assessor, len(assessors))
        excluded = self._exclude(assessor, assessors, keep)
        scales, maps, common, assessor_scale = self._scales(columns["grade"], assessors, families, assessor_family)
        grade = self._grades(columns["grade"], "grade", scales, assessor_scale[assessor], keep)
        extras = self._extras(columns, scales, assessor_scale[assessor], keep)
        if not keep.any():
            raise InputError("no row can be used", source=self.source.name, remedy=self._why_none())
        rows = np.flatnonzero(keep)
        order, offsets = sort_rows(query, document, rows, len(queries), len(documents))
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
                rows=n + self.bad_rows.skipped[MALFORMED],
                skipped=+self.bad_rows.skipped,
                examples=self.bad_rows.examples,
                repeats=repeats,
                excluded=excluded,
            ),
            backend=self.source.backend,
        )
        # Rows left out may have left queries, documents or assessors with nothing.
        return judgments if keep.all() else judgments.where(np.ones(len(judgments), dtype=bool))

    def _why_none(self) -> str:
        return "every row was left out" if self.bad_rows.skipped or self.exclude else "the file has only a header"

    def _error(self, row: int, role: str, problem: str, remedy: str) -> InputError:
        return InputError(
            problem, source=self.source.name, place=self.source.place(row), column=self.column_of(role), remedy=remedy
        )

    def _ids(
        self, column: pa.ChunkedArray | None, role: str, keep: NDArray[np.bool_], n: int
    ) -> tuple[NDArray[np.int32], pa.Array]:
        if column is None:
            return np.zeros(n, np.int32), pa.array([NO_QUERY])
        codes, names = ids.encode(column)
        remedy = "fill it in, or use --on-bad-rows skip"
        self.bad_rows.check(
            codes < 0, keep, f"no {role}", lambda row: self._error(row, role, f"the {role} is missing", remedy)
        )
        return codes, names

    def _families(
        self, column: pa.ChunkedArray | None, assessor: NDArray[np.int32], n_assessors: int
    ) -> tuple[pa.Array | None, NDArray[np.int32] | None]:
        """The family of each assessor (-1: none); an assessor belongs to one."""
        if column is None:
            return None, None
        family, families = ids.encode(column)
        of = np.full(n_assessors, -1, np.int32)
        told = np.flatnonzero((family >= 0) & (assessor >= 0))
        of[assessor[told]] = family[told]
        other = of[assessor[told]] != family[told]
        if other.any():
            row = int(told[np.argmax(other)])
            both = [families[int(code)].as_py() for code in (family[row], of[assessor[row]])]
            raise self._error(
                row,
                "family",
                f"an assessor of family '{both[0]}' is of family '{both[1]}' elsewhere",
                "give each assessor one family",
            )
        return families, of

    def _exclude(self, assessor: NDArray[np.int32], assessors: pa.Array, keep: NDArray[np.bool_]) -> int:
        if not self.exclude:
            return 0
        barred = np.append(ids.match(pa.array(list(self.exclude)), assessors) >= 0, False)[assessor] & keep
        keep &= ~barred
        return int(barred.sum())

    def _scales(
        self, grades: pa.ChunkedArray, assessors: pa.Array, families: pa.Array | None, family: NDArray[np.int32] | None
    ) -> tuple[tuple[Scale, ...], tuple[tuple[int, ...] | None, ...], Scale | None, NDArray[np.int8]]:
        if self.scale_rules is not None:
            return self.scale_rules.assign(assessors, families, family, self.scale)
        scale = self.scale or self._inferred(grades)
        return (scale,), (), None, np.zeros(len(assessors), np.int8)

    def _inferred(self, column: pa.ChunkedArray) -> Scale:
        """The scale of the whole numbers that occur; what is no whole number is found later, row by row."""
        values = [value for value in pc.unique(column).to_pylist() if not self._is_unjudgeable(value)]
        numbers = [number for number in map(whole_number, values) if number is not None and number >= 0]
        if max(numbers, default=0) > 100:
            row = _first_row(column, next(value for value in values if (whole_number(value) or 0) > 100))
            raise self._error(row, "grade", f"{max(numbers)} is too large for a grade", "give the scale with --grades")
        return Scale.spanning(numbers)

    def _is_unjudgeable(self, value: Any) -> bool:
        number = whole_number(value)
        return (str(value).strip() if number is None else str(number)) in self.unjudgeable

    def _grades(
        self,
        column: pa.ChunkedArray,
        role: str,
        scales: tuple[Scale, ...],
        scale_of: NDArray[np.int8],
        keep: NDArray[np.bool_],
    ) -> NDArray[np.int8]:
        """Positions on the assessors' scales (n,); each distinct cell is looked at once."""
        cell, values = _distinct(column)
        missing, off = np.int8(-100), np.int8(-101)
        table = np.full((len(scales), len(values) + 1), missing, np.int8)  # the last column is that of null cells
        for row, scale in enumerate(scales):
            for position, value in enumerate(values):
                table[row, position] = self._code(scale, value, missing, off)
        codes = table[scale_of, cell]
        remedy = "fill it in, or use --on-bad-rows skip"
        self.bad_rows.check(
            codes == missing, keep, f"no {role}", lambda row: self._error(row, role, f"the {role} is missing", remedy)
        )
        self.bad_rows.check(
            codes == off,
            keep,
            f"{role} off the scale",
            lambda row: self._off_scale(row, role, values[cell[row]], scales[scale_of[row]]),
        )
        return codes

    def _code(self, scale: Scale, value: Any, missing: np.int8, off: np.int8) -> np.int8:
        if self._is_unjudgeable(value):
            return np.int8(UNJUDGEABLE)
        if value is None or value != value or str(value).strip().casefold() in ("", "nan", "na", "null", "none"):
            return missing
        code = scale.code(value)
        return off if code is None else np.int8(code)

    def _off_scale(self, row: int, role: str, value: Any, scale: Scale) -> InputError:
        number = whole_number(value)
        shown = repr(value) if isinstance(value, str) and number is None else str(value)
        if scale.numeric and number is None:
            problem = f"{shown} is not a grade of the scale {scale}"
            remedy = "use whole numbers, name the grades in order with --grades, or use --on-bad-rows skip"
        elif number is not None and number < 0:
            problem = f"the grade {shown} is below the scale {scale}"
            remedy = f"if it means 'cannot judge' say --unjudgeable {number}, else give the scale with --grades"
        else:
            problem = f"the grade {shown} is off the scale {scale}"
            remedy = "give the whole scale with --grades, or use --on-bad-rows skip"
        return self._error(row, role, problem, remedy)

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
            known = ~np.asarray(_blank(columns["honeypot"]))
            codes = self._grades(columns["honeypot"], "honeypot", scales, scale_of, keep_known := known & keep)
            keep &= keep_known | ~known
            extras["honeypot"] = np.where(known, codes, NO_HONEYPOT).astype(np.int8)
        return extras

    def _times(self, column: pa.ChunkedArray, keep: NDArray[np.bool_]) -> NDArray[Any]:
        """Points in time: dates as they are, text by ISO 8601, numbers as seconds since 1970."""
        if pa.types.is_temporal(column.type):
            return np.asarray(column.cast(pa.timestamp("us")))
        blank = np.asarray(_blank(column))
        cell, values = _distinct(column)
        numbers = np.array([_number(value) for value in values] + [np.nan])
        if np.isfinite(numbers[:-1][~_blank_values(values)]).all():
            return np.where(blank, np.datetime64("NaT", "us"), (numbers[cell] * 1e6).astype("datetime64[us]"))
        stamps = np.array([_timestamp(value) for value in values] + ["NaT"], dtype="datetime64[us]")[cell]
        self.bad_rows.check(
            np.isnat(stamps) & ~blank,
            keep,
            "time not a date",
            lambda row: self._error(
                row, "time", f"'{values[cell[row]]}' is not a time", "write it as 2024-05-31T10:15:00 or leave it blank"
            ),
        )
        return stamps

    def _numbers(self, column: pa.ChunkedArray, role: str, keep: NDArray[np.bool_]) -> NDArray[np.float64]:
        cell, values = _distinct(column)
        numbers = np.array([_number(value) for value in values] + [np.nan])[cell]
        blank = np.asarray(_blank(column))
        self.bad_rows.check(
            ~blank & ~(numbers >= 0),
            keep,
            f"{role} not a number",
            lambda row: self._error(
                row, role, f"'{values[cell[row]]}' is not a {role}", "write a number from 0 up, or leave it blank"
            ),
        )
        return np.where(blank, np.nan, numbers)

    def _thin(
        self, order: NDArray[np.int64], offsets: NDArray[np.int64], assessor: NDArray[np.int32], n_assessors: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Leave out repeated judgments of one assessor on one item, as chosen."""
        again = kernels.repeated(offsets, assessor[order], n_assessors, self.repeats != "first")
        repeats = int(again.sum())
        if repeats and self.repeats == "error":
            item = int(np.searchsorted(offsets, np.argmax(again), side="right")) - 1
            rows = np.sort(order[offsets[item] : offsets[item + 1]])
            same = rows[assessor[rows] == assessor[order[int(np.argmax(again))]]]
            raise InputError(
                f"one assessor judged one document twice ({self.source.place(int(same[0]))} and "
                f"{self.source.place(int(same[1]))})",
                source=self.source.name,
                remedy="use --repeats last, first or keep",
            )
        if not repeats or self.repeats == "keep":
            return order, offsets, repeats
        left_before = np.append(0, np.cumsum(~again))
        return order[~again], left_before[offsets], repeats


def _distinct(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[Any]]:
    """The distinct values of a column and, per row, which it is (-1: null)."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunk = column.unify_dictionaries().combine_chunks()
    chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
    return np.asarray(chunk.indices.fill_null(-1)).astype(np.int64), chunk.dictionary.to_pylist()


def _first_row(column: pa.ChunkedArray, value: Any) -> int:
    return int(pc.index(column, pa.scalar(value, column.type)).as_py())


def _blank(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    cell, values = _distinct(column)
    return np.append(_blank_values(values), True)[cell]


def _blank_values(values: list[Any]) -> NDArray[np.bool_]:
    blank = [value is None or value != value or not str(value).strip() for value in values]
    return np.array(blank, dtype=bool)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _timestamp(value: Any) -> str:
    text = str(value).strip().removesuffix("Z")
    try:
        return str(np.datetime64(text, "us"))
    except ValueError:
        return "NaT"
