"""Grade scales (the possible grades in order, and their values), and maps from expert grades to other scales."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._arrow import from_numpy, texts_to_arrow
from crowdrank._typing import Booleans
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.columns import SCALE_COLUMN, probability_column

MAX_GRADES = 101
"""Maximum number of grades of a scale, enough for a slider from 0 to 100."""
NUMBERED_NAME_PATTERN = re.compile(r"\s*(?:(\d{1,3})\s*[-:.)=]\s*\D+|\D+[(\[](\d{1,3})[)\]]\s*)$", re.ASCII)
"""Name of a grade with its number: "2 - Relevant", "2: Relevant" or "Relevant (2)"."""
BINARY_SCALES = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"),
    *((name, "relevant") for name in ("irrelevant", "not relevant", "nonrelevant", "non-relevant", "not_relevant")),
)  # fmt: skip
"""Pairs of grade names (not relevant, relevant), in lower case, that are recognized without a given scale."""


@dataclass(frozen=True)
class Scale:
    """The grades of a scale from least to most relevant.

    >>> Scale.parse("0-3").names
    ('0', '1', '2', '3')
    >>> Scale.parse("Bad,Fair,Good").code("Good")
    2
    >>> Scale.parse("1-5").values
    (1.0, 2.0, 3.0, 4.0, 5.0)
    """

    names: tuple[str, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) <= MAX_GRADES:
            listed = f" ({shown(str(self))[1:-1]})" if self.names else ""
            raise _invalid_scale_error(f"must have 2 to {MAX_GRADES} grades, not {len(self.names)}{listed}")
        if len({name.casefold() for name in self.names}) < len(self.names) or len(set(self.values)) < len(self.values):
            raise _invalid_scale_error(f"must have each grade once, not {self}")
        if list(self.values) != sorted(self.values):
            raise _invalid_scale_error(f"must be in order from least to most relevant, not {self}")

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        if self.numeric and len(self) > 2 and self.values[-1] - self.values[0] == len(self) - 1 and self.values[0] >= 0:
            return f"{self.names[0]}-{self.names[-1]}"
        return ("|" if any("," in name for name in self.names) else ",").join(self.names)

    @property
    def numeric(self) -> bool:
        """Whether the grades are integers, not names."""
        return parse_integer(self.names[0]) is not None

    @property
    def share_names(self) -> list[str]:
        """Names of the columns with the probability of each grade.

        >>> Scale.parse("1-3").share_names
        ['p1', 'p2', 'p3']
        """
        return [probability_column(value) for value in self.values]

    @property
    def true_share_names(self) -> list[str]:
        """Names of the columns with the posterior probability of each true grade.

        >>> Scale.parse("1-3").true_share_names
        ['true1', 'true2', 'true3']
        """
        return [f"true{int(value)}" for value in self.values]

    @classmethod
    def parse(cls, text: str | Scale | Iterable[object]) -> Scale:
        """Return a scale from `0-3`, `1,2,3`, or names from least to most relevant (`Bad,Fair,Good` or `Bad|Good`).

        A scale is returned unchanged.

        >>> Scale.parse("Bad|Fair|Good, useful").names
        ('Bad', 'Fair', 'Good, useful')
        """
        if isinstance(text, Scale):
            return text
        if isinstance(text, str):
            bounds = re.fullmatch(r"\s*(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})\s*", text, re.ASCII)
            if bounds and int(bounds[1]) > int(bounds[2]):
                raise _invalid_scale_error(f"must be in order from least to most relevant, not {text.strip()}")
            names = text.split("|" if "|" in text else ",")  # names between | may have commas
            # Longer scales are invalid anyway.
            text = range(int(bounds[1]), int(bounds[2]) + 1)[: 2 * MAX_GRADES] if bounds else names
        if not isinstance(text, Iterable):
            raise _invalid_scale_error(f"must be 0-3, 1,2,3 or Bad,Fair,Good, not {shown(text)}")
        names = [str(name).strip() for name in text]
        integers = [parse_integer(name) for name in names]
        if all(integer is not None for integer in integers):
            return cls(tuple(names), tuple(float(integer) for integer in integers if integer is not None))
        if any(integer is not None for integer in integers) or any(not name for name in names):
            mixed = f"must not mix names, numbers and blanks ({shown(','.join(names))})"
            raise _invalid_scale_error(f"{mixed}; use 0-3, 1,2,3 or Bad,Fair,Good")
        return cls(tuple(names), tuple(float(position) for position in range(len(names))))

    @property
    def cell(self) -> str:
        """The scale as text for the column `scale` of a table, which :meth:`from_cell` reads.

        >>> Scale.parse("Bad,Fair,Good").cell
        'Bad|Fair|Good'
        """
        return json.dumps(self.names) if any("|" in name for name in self.names) else "|".join(self.names)

    @classmethod
    def from_cell(cls, text: str) -> Scale | None:
        """Return the scale in a cell of the column `scale`, or None if the cell has something else.

        >>> Scale.from_cell("Bad|Fair|Good"), Scale.from_cell("metric")
        (Scale(names=('Bad', 'Fair', 'Good'), values=(0.0, 1.0, 2.0)), None)
        """
        try:
            names = json.loads(text) if text.startswith("[") else text.split("|")
            return cls.parse(names) if isinstance(names, list) and len(names) > 1 else None
        except ValueError:  # no JSON, or no scale
            return None

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Scale | None:
        """Return the scale of names whose order is known: no and yes, or numbers in the names; None for others.

        >>> str(Scale.of_names(["Yes", "No"])), Scale.of_names(["good", "bad"])
        ('No,Yes', None)
        """
        name_of = {name.casefold(): name for name in reversed(list(names))}
        for binary in BINARY_SCALES:
            if name_of.keys() <= set(binary):
                return cls.parse([name_of.get(name, name) for name in binary])
        return cls.of_numbered_names(name_of.values())

    @classmethod
    def of_numbered_names(cls, names: Iterable[str]) -> Scale | None:
        """Return the scale of names that hold consecutive numbers, in their order; None if they do not.

        >>> str(Scale.of_numbered_names(["Relevant (1)", "Perfect (2)", "Bad (0)"]))
        'Bad (0),Relevant (1),Perfect (2)'
        """
        matches = [(NUMBERED_NAME_PATTERN.match(name), name) for name in names]
        name_of = {int(match[1] or match[2]): name for match, name in matches if match}
        numbers = sorted(name_of)
        if len(numbers) < max(len(matches), 2) or numbers[-1] - numbers[0] != len(numbers) - 1:
            return None
        return cls.parse([name_of[number] for number in numbers])

    @classmethod
    def spanning(cls, numbers: Iterable[int]) -> Scale:
        """Return the scale of the integers from 0, or from 1 if `numbers` has no 0, to the highest of `numbers`.

        >>> str(Scale.spanning([3, 0, 2]))
        '0-3'
        """
        distinct = set(numbers)
        lowest = 0 if 0 in distinct or not distinct else 1
        highest = max(*distinct, lowest + 1, 1)
        return cls.parse(range(lowest, highest + 1)[: 2 * MAX_GRADES])  # longer scales are invalid anyway

    def code(self, grade: Any) -> int | None:
        """Return the code of a grade, which is its position on the scale from 0, or None if it is not on the scale."""
        integer = parse_integer(grade)
        if self.numeric:
            return self.values.index(integer) if integer is not None and integer in self.values else None
        name = str(grade).strip()
        if name in self.names:
            return self.names.index(name)
        folded_names = [known_name.casefold() for known_name in self.names]
        return folded_names.index(name.casefold()) if name.casefold() in folded_names else None


def add_scale_column(table: pa.Table, scale: Scale) -> pa.Table:
    """Return a table of named grades with the column `scale`, by which readers know their order.

    >>> add_scale_column(pa.table({"grade": ["Good"]}), Scale.parse("Bad,Good")).to_pylist()
    [{'grade': 'Good', 'scale': 'Bad|Good'}]
    """
    if scale.numeric or SCALE_COLUMN in table.column_names:
        return table
    codes = from_numpy(np.zeros(len(table), np.int8))
    return table.append_column(SCALE_COLUMN, pa.DictionaryArray.from_arrays(codes, texts_to_arrow([scale.cell])))


def _invalid_scale_error(problem: str) -> UsageError:
    return UsageError(problem, parameter="grades", kind="invalid-scale")


def parse_integer(cell: Any) -> int | None:
    """Return the integer in a cell (7, 7.0, '7', ' 7.0', '7,0'), or None if it has no integer.

    >>> [parse_integer(value) for value in ("3", 3.0, "-2", "2.5", "x", None)]
    [3, 3, -2, None, None, None]
    """
    if isinstance(cell, str):
        match = re.fullmatch(r"\s*([+-]?\d{1,18})(?:\.0*|,0{1,2})?\s*", cell, re.ASCII)
        return int(match[1]) if match else None
    if isinstance(cell, bool | int):
        return int(cell)
    if isinstance(cell, float | Decimal) and abs(float(cell)) < 1e18 and cell == int(cell):
        return int(cell)
    return None


GradeMapLike = str | Mapping[object, object]
"""A map as text (`0=0-1,1=2-4` or `no=Bad|Fair,yes=Good`) or as a dictionary (`{0: [0, 1], 1: [2, 3, 4]}`)."""


@dataclass(frozen=True)
class GradeMap:
    """The grades of the judgments' scale that each expert grade stands for.

    >>> print(GradeMap.parse({0: [0, 1], 1: [2, 3, 4]}), GradeMap.parse({"no": ["Bad", "Fair"], "yes": "Good"}))
    0=0-1,1=2-4 no=Bad|Fair,yes=Good
    >>> GradeMap.parse("0=0-1,1=2-4").sets(Scale.parse("0,1"), Scale.parse("0-4")).astype(int)
    array([[1, 1, 0, 0, 0],
           [0, 0, 1, 1, 1]])
    """

    grades_of: Mapping[str, tuple[str, ...]]  # by expert grade

    @classmethod
    def parse(cls, grade_map: GradeMapLike) -> GradeMap:
        """Return the map in a text or dictionary; raise UsageError if it has no such form."""
        if isinstance(grade_map, Mapping):
            return cls({str(expert): _parse_grade_names(grades) for expert, grades in grade_map.items()})
        entries = [entry.split("=") for entry in grade_map.split(",")]
        if any(len(entry) != 2 or not all(part.strip() for part in entry) for entry in entries):
            raise UsageError(f"must look like 0=0-1,1=2-4, not {shown(grade_map)}", parameter="map")
        grades_of = {expert.strip(): _parse_grade_names(grades) for expert, grades in entries}
        if len(grades_of) < len(entries):
            raise UsageError(f"must have each expert grade once, not {shown(grade_map)}", parameter="map")
        return cls(grades_of)

    def __str__(self) -> str:
        return ",".join(f"{expert}={_format_grade_names(grades)}" for expert, grades in self.grades_of.items())

    def sets(self, expert_scale: Scale, scale: Scale) -> Booleans:
        """Return whether an expert grade stands for a grade, (n_expert_grades, n_grades).

        Raises:
            InputError: an expert grade has no entry, or an entry is not on its scale.

        """
        sets = np.zeros((len(expert_scale), len(scale)), np.bool_)
        for name, grades in self.grades_of.items():
            for grade in grades:
                sets[
                    _require_code(name, expert_scale, "the experts'"), _require_code(grade, scale, "the judgments'")
                ] = True
        if not sets.any(axis=1).all():
            name = expert_scale.names[int(np.argmin(sets.any(axis=1)))]
            raise InputError(f"the map {self} has no entry for the expert grade {name}", kind="grade-map", fix="add it")
        return sets


def _parse_grade_names(grades: object) -> tuple[str, ...]:
    """Return the names of grades in a range (`2-4`), a list with bars (`Good|Perfect`), or a sequence."""
    if not isinstance(grades, str):
        return tuple(map(str, grades)) if isinstance(grades, Iterable) else (str(grades),)
    first, dash, last = grades.partition("-")
    bounds = (parse_integer(first), parse_integer(last))
    if dash and bounds[0] is not None and bounds[1] is not None:
        if not bounds[0] <= bounds[1] < bounds[0] + MAX_GRADES:
            raise UsageError(f"must have ranges from lower to higher grades, not {shown(grades)}", parameter="map")
        return tuple(str(grade) for grade in range(bounds[0], bounds[1] + 1))
    return tuple(name.strip() for name in grades.split("|"))


def _format_grade_names(grades: tuple[str, ...]) -> str:
    """Return grade names as text for :func:`_parse_grade_names`: consecutive numbers as a range, others with bars."""
    numbers = [parse_integer(grade) for grade in grades]
    first = numbers[0]
    if first is not None and len(numbers) > 1 and numbers == list(range(first, first + len(numbers))):
        return f"{first}-{numbers[-1]}"
    return "|".join(grades)


def _require_code(name: str, scale: Scale, scale_owner: str) -> int:
    code = scale.code(name)
    if code is None:
        problem = f"the map of expert grades names {shown(name)}, which is not on {scale_owner} scale {scale}"
        raise InputError(problem, kind="grade-map", fix="name grades of both scales, as in 0=0-1,1=2-4")
    return code
