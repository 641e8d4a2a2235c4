"""Errors about single rows: what is wrong with a cell, where it is, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments.bad_rows import SKIP_BAD_ROWS
from crowdrank.judgments.columns import COLUMN_ALIASES, SCALE_COLUMN
from crowdrank.judgments.scale import MAX_GRADES, Scale, parse_integer
from crowdrank.judgments.sources import Source

NAME_GRADES_FIX = Fix("name the grades from least to most relevant with {}", "grades", "Bad,Fair,Good")
SCALE_COLUMN_FIX = Fix(f"add a column {SCALE_COLUMN!r} with them, as in Bad|Fair|Good")
GIVE_SCALE_FIX = Fix("give the scale with {}", "grades", "0-4")


@dataclass(frozen=True)
class Origin:
    """Source and columns that rows were read from; creates errors about their cells."""

    source: Source
    columns: Mapping[str, str]  # column name by role
    part_number: int = 0  # of the part that the rows belong to

    def column_name(self, role: str) -> str:
        """Return the name of the column that was read for a role."""
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

    def grade_name_without_scale_error(self, row: int, cell: object) -> InputError:
        """Return the error for a named grade whose scale is not known."""
        if re.match(r"\s*[+-]?[0-9]", str(cell)):
            problem = f"{shown(cell)} is not a whole number, and as a name its place among the grades is not known"
            fixes: list[str | Fix] = ["write grades as whole numbers", NAME_GRADES_FIX]
            return self.cell_error(row, "grade", problem, fixes, "named-grades")
        problem = f"{shown(cell)} is the name of a grade, and the order of the grades is not known"
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
            fixes = ["use whole numbers", NAME_GRADES_FIX, SKIP_BAD_ROWS]
        elif integer is not None and integer < 0:
            problem, kind = f"the grade {text} is below the scale {scale}", "grade-below-scale"
            fixes = [Fix("if it means 'cannot judge', set {}", "unjudgeable", integer), GIVE_SCALE_FIX]
        else:
            problem, kind = f"the grade {text} is off the scale {scale}", "grade-off-scale"
            fixes = [Fix("give the whole scale with {}", "grades"), SKIP_BAD_ROWS]
        return self.cell_error(row, role, problem, fixes, kind)

    def bad_extra_error(self, row: int, role: str, cell: object) -> InputError:
        """Return the error for a time, duration or cost that cannot be read."""
        advice = "write it as 2024-05-31T10:15:00" if role == "time" else "write a number from 0 up"
        return self.cell_error(row, role, f"{shown(cell)} is not a {role}", [advice, "leave it blank"])

    def share_error(self, row: int, column: str, problem: str) -> InputError:
        """Return the error for a row whose probabilities of grades cannot be used."""
        fixes: list[str | Fix] = ["write probabilities that sum to 1, or leave all of them blank", SKIP_BAD_ROWS]
        return self.cell_error(row, column, problem, fixes, "not-a-share")


def columns_by_role(origins: Iterable[Origin]) -> dict[str, str]:
    """Return the name of the column for each role; if files use several names, these joined by "or"."""
    names: dict[str, dict[str, None]] = {role: {} for role in COLUMN_ALIASES}
    for origin in origins:
        for role, name in origin.columns.items():
            names.setdefault(role, {})[name] = None
    return {role: " or ".join(used) for role, used in names.items() if used}


def is_too_large_for_grade(cell: object) -> bool:
    """Return whether a cell has a number that is too large to infer a scale from it."""
    return (parse_integer(cell) or 0) >= MAX_GRADES
