"""Map from expert grades to the grades of judgments that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Booleans
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.scale import MAX_GRADES, Scale, parse_integer

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
            return cls({str(expert): _names(grades) for expert, grades in grade_map.items()})
        entries = [entry.split("=") for entry in grade_map.split(",")]
        if any(len(entry) != 2 or not all(part.strip() for part in entry) for entry in entries):
            raise UsageError(f"must look like 0=0-1,1=2-4, not {shown(grade_map)}", parameter="map")
        grades_of = {expert.strip(): _names(grades) for expert, grades in entries}
        if len(grades_of) < len(entries):
            raise UsageError(f"must have each expert grade once, not {shown(grade_map)}", parameter="map")
        return cls(grades_of)

    def __str__(self) -> str:
        return ",".join(f"{expert}={_grades_text(grades)}" for expert, grades in self.grades_of.items())

    def sets(self, expert: Scale, scale: Scale) -> Booleans:
        """Return whether an expert grade stands for a grade, (n_expert_grades, n_grades).

        Raises:
            InputError: an expert grade has no entry, or an entry is not on its scale.

        """
        sets = np.zeros((len(expert), len(scale)), np.bool_)
        for name, grades in self.grades_of.items():
            for grade in grades:
                sets[_code(name, expert, "the experts'"), _code(grade, scale, "the judgments'")] = True
        if not sets.any(axis=1).all():
            name = expert.names[int(np.argmin(sets.any(axis=1)))]
            raise InputError(f"the map {self} has no entry for the expert grade {name}", kind="grade-map", fix="add it")
        return sets


def _names(grades: object) -> tuple[str, ...]:
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


def _grades_text(grades: tuple[str, ...]) -> str:
    """Return grades as text that :func:`_names` reads: consecutive numbers as a range, others separated by bars."""
    numbers = [parse_integer(grade) for grade in grades]
    first = numbers[0]
    if first is not None and len(numbers) > 1 and numbers == list(range(first, first + len(numbers))):
        return f"{first}-{numbers[-1]}"
    return "|".join(grades)


def _code(name: str, scale: Scale, whose: str) -> int:
    code = scale.code(name)
    if code is None:
        problem = f"the map of expert grades names {shown(name)}, which is not on {whose} scale {scale}"
        raise InputError(problem, kind="grade-map", fix="name grades of both scales, as in 0=0-1,1=2-4")
    return code
