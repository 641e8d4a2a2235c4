"""Errors about single rows: what is wrong with a cell, where it is, and how to fix it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments.bad_rows import SKIP_BAD_ROWS
from crowdrank.judgments.scale import MOST_GRADES, Scale, whole_number
from crowdrank.judgments.sources import Source

ORDERED_NAMES = Fix("name the grades from least to most relevant with {}", "grades", "Bad,Fair,Good")
GIVE_SCALE = Fix("give the scale with {}", "grades", "0-4")


@dataclass(frozen=True)
class Origin:
    """Source and columns of the rows of a part."""

    source: Source
    columns: Mapping[str, str]  # column name by role
    part: int = 0

    def column(self, role: str) -> str:
        """Return the name of the column with a role."""
        return self.columns.get(role, role)

    def error(
        self, row: int, role: str, problem: str, fix: str | Fix | Sequence[str | Fix], kind: str = "bad-cell"
    ) -> InputError:
        """Return the error for a cell."""
        place = self.source.place(row)
        return InputError(problem, kind=kind, source=self.source.name, place=place, column=self.column(role), fix=fix)

    def missing(self, row: int, role: str) -> InputError:
        """Return the error for a row without an id or a grade."""
        return self.error(row, role, f"the {role} is missing", ["fill it in", SKIP_BAD_ROWS], "missing-cell")

    def not_utf8(self, role: str) -> InputError:
        """Return the error for a column whose text is not UTF-8."""
        problem = "the text is not UTF-8"
        return InputError(problem, source=self.source.name, column=self.column(role), fix="save it as UTF-8")

    def other_family(self, row: int, assessor: object, family: object, first_family: object) -> InputError:
        """Return the error for a row with another family than the assessor's first row."""
        problem = (
            f"the assessor {shown(assessor)} is in family {shown(family)} here and in {shown(first_family)} before"
        )
        return self.error(row, "family", problem, "give each assessor one family", "another-family")

    def grade_name(self, row: int, value: object) -> InputError:
        """Return the error for named grades without a scale."""
        problem = f"{shown(value)} is the name of a grade, and the order of the grades is not known"
        return self.error(row, "grade", problem, ORDERED_NAMES, "named-grades")

    def bad_grade(self, row: int, role: str, value: Any, scale: Scale, *, inferred: bool) -> InputError:
        """Return the error for an answer that is not on the scale."""
        number = whole_number(value)
        text = shown(value if number is None else number)
        fixes: list[str | Fix]
        if inferred and role == "grade" and is_too_large(value):
            problem, kind, fixes = f"{text} is too large for a grade", "grade-too-large", [GIVE_SCALE, SKIP_BAD_ROWS]
        elif scale.numeric and number is None:
            problem, kind = f"{text} is not a grade of the scale {scale}", "not-a-grade"
            fixes = ["use whole numbers", ORDERED_NAMES, SKIP_BAD_ROWS]
        elif number is not None and number < 0:
            problem, kind = f"the grade {text} is below the scale {scale}", "grade-below-scale"
            fixes = [Fix("if it means 'cannot judge', set {}", "unjudgeable", number), GIVE_SCALE]
        else:
            problem, kind = f"the grade {text} is off the scale {scale}", "grade-off-scale"
            fixes = [Fix("give the whole scale with {}", "grades"), SKIP_BAD_ROWS]
        return self.error(row, role, problem, fixes, kind)

    def bad_extra(self, row: int, role: str, value: object) -> InputError:
        """Return the error for a time, duration or cost that cannot be read."""
        form = "write it as 2024-05-31T10:15:00" if role == "time" else "write a number from 0 up"
        return self.error(row, role, f"{shown(value)} is not a {role}", [form, "leave it blank"])


def is_too_large(value: object) -> bool:
    """Return whether a number is too large for a scale that is inferred from the grades."""
    return (whole_number(value) or 0) >= MOST_GRADES
