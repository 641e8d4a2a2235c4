"""Sources of tables (a DataFrame here, one module per file format), and errors about their rows.

A source reads only the requested columns. Cells of text files stay text: `encode.py` decides for every source what a
grade or an id is.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._estimator import require_one_of
from crowdrank._typing import Booleans
from crowdrank.errors import Fix, InputError, Message, shown
from crowdrank.judgments import frames
from crowdrank.judgments.columns import ROLE_NAMES, SCALE_COLUMN, quote_names
from crowdrank.judgments.scale import MAX_GRADES, Scale, parse_integer

MALFORMED_LINE_REASON = "malformed line"
"""Reason for a line that cannot be split into cells."""
BAD_PROBABILITIES_REASON = "unusable probabilities"
"""Reason for a row whose columns p0, p1, ... are no probabilities of its grades."""
BAD_ROW_REASONS = (
    "no query", "no document", "no left", "no right", "no winner", "no loser", "no assessor", "another family",
    "no grade", "grade off the scale", "a document against itself", "no preference", "preference off the scale",
    "winner is neither document",
    "time not a date", "duration not a number", "cost not a number", "honeypot off the scale",
    BAD_PROBABILITIES_REASON,
)  # fmt: skip
"""Reasons why a row is bad, in the order of the checks; the error is about the first reason that occurs."""
MAX_SUGGESTED_ANSWER = 30
"""Maximum number of characters of an answer that may mean 'cannot judge'."""
SKIP_BAD_ROWS = Fix("leave such rows out with {}", "on_bad_rows", "skip")
"""Advice to leave out bad rows."""
NAME_GRADES_FIX = Fix("name the grades from least to most relevant with {}", "grades", "Bad,Fair,Good")
SCALE_COLUMN_FIX = Fix(f"add a column {SCALE_COLUMN!r} with them, as in Bad|Fair|Good")
GIVE_SCALE_FIX = Fix("give the scale with {}", "grades", "0-4")


def no_rows_error(source_name: str) -> InputError:
    """Return the error for a file or frame without rows."""
    return InputError("there are no rows", source=source_name, kind="no-rows", fix="check that it is the right one")


@dataclass
class BadRows:
    """Counts of the rows that are not used, by reason.

    A bad row is an error unless `on_bad_rows` is 'skip'. The error is raised by :meth:`raise_first_error` after all
    rows were checked, so that it does not depend on how the rows are split into parts. A row that its format marks as
    not to be used, such as a rejected assignment, is never an error; such reasons have no example.

    >>> bad_rows = BadRows("skip")
    >>> row_mask = np.ones(3, dtype=bool)
    >>> bad_rows.count_bad(np.array([False, True, False]), row_mask, "no grade",
    ...                    lambda row: ((0, row), InputError("...")))
    >>> row_mask.tolist(), dict(bad_rows.skipped)
    ([True, False, True], {'no grade': 1})
    """

    on_bad_rows: str = "error"
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Message] = field(default_factory=dict)  # by reason: the error of the first bad row
    first_places: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # by reason: part number and row of the example
    n_left_out: int = 0  # number of rows that the source did not return in its table

    def __post_init__(self) -> None:
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    @property
    def skip(self) -> bool:
        """Whether bad rows are skipped instead of raising an error."""
        return self.on_bad_rows == "skip"

    def count_bad(
        self,
        is_bad: Booleans,
        row_mask: Booleans,
        reason: str,
        row_error: Callable[[int], tuple[tuple[int, int], InputError]],
    ) -> None:
        """Count the bad rows and set them to False in `row_mask`.

        Args:
            is_bad: whether each row fails the check.
            row_mask: whether each row is used so far; changed in place.
            reason: one of BAD_ROW_REASONS.
            row_error: function of a row that returns (part number, row in the source) and the error.

        """
        is_bad = is_bad & row_mask
        if is_bad.any():
            self.skipped[reason] += int(is_bad.sum())
            self.add_example(reason, *row_error(int(np.argmax(is_bad))))
            row_mask &= ~is_bad

    def add_example(self, reason: str, part_and_row: tuple[int, int], error: InputError) -> None:
        """Store the error of a row as the example of a reason, unless the stored example is of an earlier row."""
        if reason not in self.first_places or part_and_row < self.first_places[reason]:
            self.examples[reason], self.first_places[reason] = error.message, part_and_row

    def raise_first_error(self) -> None:
        """Raise the example error of the first reason that occurred, unless bad rows are skipped."""
        failed = [reason for reason in BAD_ROW_REASONS if reason in self.first_places]
        if failed and not self.skip:
            raise InputError(self.examples[failed[0]])

    def count_malformed(self, error: InputError, n_lines: int = 1) -> None:
        """Count lines that cannot be split into cells; raise the error unless bad rows are skipped."""
        if not self.skip:
            raise error
        self.examples.setdefault(MALFORMED_LINE_REASON, error.message)
        self.count_left_out(MALFORMED_LINE_REASON, n_lines)

    def count_left_out(self, reason: str, n_rows: int) -> None:
        """Count rows that a source does not return, because its format marks them as not to be used.

        >>> counts = BadRows()
        >>> counts.count_left_out("assignment rejected", 2)
        >>> dict(counts.skipped), counts.n_left_out
        ({'assignment rejected': 2}, 2)
        """
        if n_rows:
            self.skipped[reason] += n_rows
            self.n_left_out += n_rows

    def merge(self, others: Iterable[BadRows]) -> None:
        """Add the counts and examples of other parts of the input."""
        for other in others:
            self.n_left_out += other.n_left_out
            self.skipped.update(other.skipped)
            for reason, example in other.examples.items():
                if reason in other.first_places:
                    self.add_example(reason, other.first_places[reason], InputError(example))
                else:
                    self.examples.setdefault(reason, example)

    def no_rows_left_error(self, source: str, *, assessors_excluded: bool) -> InputError:
        """Return the error for a source without any usable row; it lists the reasons and their counts."""
        order = {reason: number for number, reason in enumerate(BAD_ROW_REASONS)}
        reasons = sorted(self.skipped, key=lambda reason: order.get(reason, -1))
        listed = [f"{reason}: {self.skipped[reason]}" for reason in reasons]
        listed += ["assessors excluded"] if assessors_excluded else []
        problem = f"no row can be used ({', '.join(listed)})"
        example = next((self.examples[reason] for reason in reasons if reason in self.examples), None)
        if example is None:
            return InputError(problem, kind="no-rows-left", source=source, fix="check that it is the right file")
        fixes = [fix for fix in example.fixes if fix != SKIP_BAD_ROWS]
        problem = f"{problem}, the first: {example.location}: {example.problem}"
        return InputError(problem, kind="no-rows-left", source=source, fix=fixes)


class Source(ABC):
    """A table that can be read column by column."""

    name: str  # path of the file, for errors
    backend = "pandas"  # DataFrame library of results
    names: list[str]  # column names
    units: Mapping[str, str] = MappingProxyType({})  # units of durations and costs, if the format defines them
    notes: Sequence[Message] = ()  # what the user should know about the file
    has_assessor_column = True  # whether a file of this format can have an assessor column
    has_user_columns = False  # whether a file of this format can have columns of the user, such as texts and URLs
    _first_row = 0  # number of rows before the table that was read last

    @property
    def stem(self) -> str:
        """Name of the source as an assessor, if it has no column for the assessor."""
        return self.name

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; `bad_rows` raises an error for malformed lines, or counts them."""

    def expert_grades(self) -> Source:
        """Return the table of expert grades of the source; that of a file or a DataFrame is the source itself."""
        return self

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows; malformed lines raise an error.

        A format that cannot be read in parts gives one table. `locate_row` refers to the table that was yielded last.
        """
        yield self.read(names, BadRows())

    def _count_rows(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield tables that follow each other in the file, and set `_first_row` for each."""
        self._first_row = 0
        for table in tables:
            yield table
            self._first_row += len(table)

    def locate_row(self, row: int) -> str:
        """Return the place in the file, for errors, of a row of the table that was read last."""
        return f"row {self._first_row + row + 1}"

    def cell_error(
        self, row: int, column: str, problem: str, fix: str | Fix | Sequence[str | Fix], kind: str | None = None
    ) -> InputError:
        """Return an error about a cell of the table that `read` returned."""
        return InputError(problem, source=self.name, place=self.locate_row(row), column=column, fix=fix, kind=kind)

    def require(
        self, is_valid: Any, column: str, problem: str, fix: str | Sequence[str], kind: str | None = None
    ) -> None:
        """Raise InputError at the first row for which `is_valid` (n,) is false."""
        invalid = np.flatnonzero(~np.asarray(is_valid))
        if len(invalid):
            raise self.cell_error(int(invalid[0]), column, problem, fix, kind)


class FrameSource(Source):
    """A DataFrame of any library.

    >>> import pandas as pd
    >>> FrameSource(pd.DataFrame({"task": [1], "worker": ["a"]})).names
    ['task', 'worker']
    """

    has_user_columns = True

    def __init__(self, frame: Any, name: str = frames.FRAME_SOURCE_NAME) -> None:
        self.frame, self.name = frame, name
        self.backend = frames.frame_library(frame)
        self.names = frames.column_names(frame)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` as Arrow columns."""
        frame = frames.collect_columns(self.frame, list(names))
        columns = {name: frames.column_to_arrow(frame, name) for name in names}
        return pa.table({name: frames.to_plain_values(column, self.name, name) for name, column in columns.items()})


@dataclass(frozen=True)
class Origin:
    """Source and columns that rows were read from; creates errors about their cells."""

    source: Source
    columns: Mapping[str, str]  # column name by role
    part_number: int = 0  # of the part that the rows belong to

    def column_name(self, role: str) -> str:
        """Return the name of the column that was read for a role, such as `rating` for the role `grade`."""
        return self.columns.get(role, role)

    def unit(self, role: str) -> str | None:
        """Return the unit of durations or costs that the source or the name of the column states, if any."""
        if role == "duration" and "second" in self.column_name(role).casefold():
            return "seconds"
        return self.source.units.get(role)

    def cell_error(
        self, row: int, role: str, problem: str, fixes: str | Fix | Sequence[str | Fix], kind: str = "bad-cell"
    ) -> InputError:
        """Return an error about the cell of a role in a row."""
        return self.source.cell_error(row, self.column_name(role), problem, fixes, kind)

    def missing_cell_error(self, row: int, role: str) -> InputError:
        """Return the error for a row without an id or a grade."""
        return self.cell_error(row, role, f"the {role} is missing", ["fill it in", SKIP_BAD_ROWS], "missing-cell")

    def encoding_error(self, role: str) -> InputError:
        """Return the error for a column whose text is not UTF-8."""
        problem = "the text is not UTF-8"
        return InputError(problem, source=self.source.name, column=self.column_name(role), fix="save it as UTF-8")

    def family_error(self, row: int, assessor: object, family: object, first_family: object) -> InputError:
        """Return the error for a row whose family differs from that of the assessor's first row."""
        problem = (
            f"the assessor {shown(assessor)} is in family {shown(family)} here and in {shown(first_family)} before"
        )
        return self.cell_error(row, "family", problem, "give each assessor one family", "another-family")

    def unknown_grade_order_error(self, row: int, cell: object, names: Sequence[str] = ()) -> InputError:
        """Return the error for a named grade whose scale is not known, with the names that occur if they are given."""
        if re.match(r"\s*[+-]?[0-9]", str(cell)):
            problem = f"{shown(cell)} is not a whole number, and as a name its place among the grades is not known"
            fixes: list[str | Fix] = ["write grades as whole numbers", NAME_GRADES_FIX]
            return self.cell_error(row, "grade", problem, fixes, "named-grades")
        listed = f" (the names are {quote_names(names)})" if len(names) > 1 else ""
        problem = f"{shown(cell)} is the name of a grade, and the order of the grades is not known{listed}"
        return self.cell_error(row, "grade", problem, [NAME_GRADES_FIX, SCALE_COLUMN_FIX], "named-grades")

    def bad_grade_error(self, row: int, role: str, cell: Any, scale: Scale, *, inferred: bool) -> InputError:
        """Return the error for an answer that is not on the scale."""
        integer = parse_integer(cell)
        text = shown(cell if integer is None else integer)
        fixes: list[str | Fix]
        if inferred and role == "grade" and is_too_large_for_grade(cell):
            problem, kind = f"{text} is too large for a grade", "grade-too-large"
            fixes = [GIVE_SCALE_FIX, SKIP_BAD_ROWS]
        elif scale.numeric and integer is None:
            problem, kind = f"{text} is not a grade of the scale {scale}", "not-a-grade"
            fixes = ["use whole numbers", NAME_GRADES_FIX]
            if role == "grade" and str(cell).replace(" ", "").isalpha() and len(str(cell)) <= MAX_SUGGESTED_ANSWER:
                fixes.append(Fix("if it means 'cannot judge', set {}", "unjudgeable", cell))
            fixes.append(SKIP_BAD_ROWS)
        elif integer is not None and integer < 0:
            problem, kind = f"the grade {text} is below the scale {scale}", "grade-below-scale"
            fixes = [Fix("if it means 'cannot judge', set {}", "unjudgeable", integer), SKIP_BAD_ROWS]
        else:
            problem, kind = f"the grade {text} is off the scale {scale}", "grade-off-scale"
            fixes = [Fix("give the whole scale with {}", "grades"), SKIP_BAD_ROWS]
        return self.cell_error(row, role, problem, fixes, kind)

    def bad_extra_error(self, row: int, role: str, cell: object) -> InputError:
        """Return the error for a time, duration or cost that cannot be read."""
        advice = "write it as 2024-05-31T10:15:00" if role == "time" else "write a number from 0 up"
        return self.cell_error(row, role, f"{shown(cell)} is not a {role}", [advice, "leave it blank"])

    def probability_error(self, row: int, column: str, problem: str) -> InputError:
        """Return the error for a row whose probabilities of grades cannot be used."""
        fixes: list[str | Fix] = ["write probabilities that sum to 1, or leave all of them blank", SKIP_BAD_ROWS]
        return self.cell_error(row, column, problem, fixes, "not-a-share")


def columns_by_role(origins: Iterable[Origin]) -> dict[str, str]:
    """Return the name of the column for each role; if files use several names, these joined by "or"."""
    names: dict[str, dict[str, None]] = {role: {} for role in ROLE_NAMES}
    for origin in origins:
        for role, name in origin.columns.items():
            names.setdefault(role, {})[name] = None
    return {role: " or ".join(used) for role, used in names.items() if used}


def is_too_large_for_grade(cell: object) -> bool:
    """Return whether a cell has a number that is too large to infer a scale from it."""
    return (parse_integer(cell) or 0) >= MAX_GRADES
