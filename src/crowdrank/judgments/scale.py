"""Grade scales: which answers there are, in order, and what each is worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import refuse_doubled
from crowdrank.judgments.sources import DelimitedSource, check_size

MOST_GRADES = 101
"""A scale longer than a 0-100 slider is a mistake in the data, not a scale."""


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
        if not 2 <= len(self.names) <= MOST_GRADES:
            listed = f" ({shown(str(self))[1:-1]})" if self.names else ""
            raise UsageError(f"A scale needs 2 to {MOST_GRADES} grades, not {len(self.names)}{listed}.")
        if len({name.casefold() for name in self.names}) < len(self.names) or len(set(self.values)) < len(self.values):
            raise UsageError(f"The scale {self} names a grade twice; name each grade once.")
        if list(self.values) != sorted(self.values):
            raise UsageError(f"The scale {self} is not in order; give the grades from least to most relevant.")

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        if self.numeric and len(self) > 2 and self.values[-1] - self.values[0] == len(self) - 1 and self.values[0] >= 0:
            return f"{self.names[0]}-{self.names[-1]}"
        return ",".join(self.names)

    @property
    def numeric(self) -> bool:
        """Whether the grades are whole numbers (rather than names)."""
        return whole_number(self.names[0]) is not None

    @classmethod
    def parse(cls, text: str | Iterable[object]) -> Scale:
        """A scale from `0-3`, `1,2,3`, or names from least to most relevant (`Bad,Fair,Good`; `|` separates too)."""
        if isinstance(text, str):
            span = re.fullmatch(r"\s*(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})\s*", text, re.ASCII)
            if span and int(span[1]) > int(span[2]):
                raise UsageError(
                    f"The scale {text.strip()} is not in order; give the grades from least to most relevant."
                )
            names = (
                [str(grade) for grade in range(int(span[1]), min(int(span[2]), int(span[1]) + 2 * MOST_GRADES) + 1)]
                if span
                else [name.strip() for name in re.split(r"[,|]", text)]
            )
        else:
            names = [str(name).strip() for name in text]
        numbers = [whole_number(name) for name in names]
        if all(number is not None for number in numbers):
            return cls(tuple(names), tuple(float(number) for number in numbers if number is not None))
        if any(number is not None for number in numbers) or any(not name for name in names):
            listed = shown(",".join(names))
            raise UsageError(f"The scale {listed} mixes names, numbers or blanks; use 0-3, 1,2,3 or Bad,Fair,Good.")
        return cls(tuple(names), tuple(float(position) for position in range(len(names))))

    @classmethod
    def spanning(cls, numbers: Iterable[int]) -> Scale:
        """The scale of whole numbers that holds all of `numbers`: from 0, or from 1 where 0 never occurs.

        >>> str(Scale.spanning([3, 0, 2]))
        '0-3'
        """
        seen = set(numbers)
        lowest = 0 if 0 in seen or not seen else 1
        highest = min(max(max(seen, default=1), lowest + 1), lowest + 2 * MOST_GRADES)  # more are refused anyway
        return cls.parse(map(str, range(lowest, highest + 1)))

    def code(self, value: Any) -> int | None:
        """The position of a grade on the scale, or None where it is not on it."""
        number = whole_number(value)
        if self.numeric:
            return self.values.index(number) if number is not None and number in self.values else None
        name = str(value).strip()
        if name in self.names:
            return self.names.index(name)
        folded = [known.casefold() for known in self.names]
        return folded.index(name.casefold()) if name.casefold() in folded else None


def whole_number(value: Any) -> int | None:
    """The whole number that a cell holds (7, 7.0, '7', ' 7.0'), or None.

    >>> [whole_number(value) for value in ("3", 3.0, "-2", "2.5", "x", None)]
    [3, 3, -2, None, None, None]
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([+-]?\d{1,18})(?:\.0*)?\s*", value, re.ASCII)
        return int(match[1]) if match else None
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float | Decimal) and abs(float(value)) < 1e18 and value == int(value):
        return int(value)
    return None


MOST_WILDCARDS = 100
"""Maximum number of wildcards in a pattern; matching takes time quadratic in it."""


@dataclass(frozen=True)
class ScaleRule:
    """Assessors whose id (or family) matches use this scale."""

    role: str  # "assessor" or "family"
    pattern: str
    scale: Scale
    maps_to: tuple[str, ...] | None


@dataclass(frozen=True)
class ScaleRules:
    """The rules of a scales file; the first that matches an assessor holds.

    A scales file has the columns `assessor` or `family` (an id, or a pattern such as `gpt-*`), `grades` (`0-4` or
    `Bad|Fair|Good`) and, where grades shall meet on one scale, `maps_to` (for each grade the common grade: `0|0|1|2`).
    """

    source: str
    rules: tuple[ScaleRule, ...]

    @classmethod
    def read(cls, path: str | Path) -> ScaleRules:
        """Read a scales file (CSV)."""
        check_size(path)
        source = DelimitedSource(path)
        refuse_doubled(source.names, source.name)
        roles = [name for name in ("assessor", "family") if name in source.names]
        if not roles or "grades" not in source.names:
            raise InputError(
                f"there is no column '{'grades' if roles else 'assessor'}'",
                source=source.name,
                fix="a scales file has the columns assessor (or family), grades and, where wanted, maps_to",
            )
        names = [name for name in (*roles, "grades", "maps_to") if name in source.names]
        rows = source.read(names, BadRows()).to_pylist()
        return cls(source.name, tuple(cls._rule(source, roles, number, row) for number, row in enumerate(rows)))

    @staticmethod
    def _rule(source: DelimitedSource, roles: Sequence[str], number: int, row: dict[str, str]) -> ScaleRule:
        def error(problem: str, column: str, remedy: str) -> InputError:
            return InputError(problem, source=source.name, place=source.place(number), column=column, fix=remedy)

        # Where there are both columns, a row fills in one of them.
        role = next((role for role in roles if row[role].strip()), roles[0])
        if not row[role].strip():
            raise error(f"the {role} is missing", role, "name one, or write * for all")
        if sum(row[role].count(wildcard) for wildcard in "*?[") > MOST_WILDCARDS:
            raise error(f"a pattern has more than {MOST_WILDCARDS} wildcards", role, "write fewer of * ? [")
        try:
            scale = Scale.parse(row["grades"])
        except UsageError as problem:
            remedy = "write it from least to most relevant, as in 0-4 or Bad|Fair|Good"
            raise error(f"{shown(row['grades'])} is not a scale", "grades", remedy) from problem
        maps_to = tuple(part.strip() for part in (row.get("maps_to") or "").replace(",", "|").split("|"))
        if maps_to == ("",):
            return ScaleRule(role, row[role], scale, None)
        if len(maps_to) != len(scale):
            raise error(
                f"{len(maps_to)} grades are mapped where the scale {scale} has {len(scale)}",
                "maps_to",
                "give one common grade for each grade, separated by |",
            )
        return ScaleRule(role, row[role], scale, maps_to)

    def assign(
        self,
        assessors: pa.Array,
        families: pa.Array | None,
        family: NDArray[np.int32] | None,
        common: Scale | None,
    ) -> tuple[tuple[Scale, ...], tuple[tuple[int, ...] | None, ...], Scale | None, NDArray[np.int8]]:
        """The scales, their maps to the common one, the common one, and which scale each assessor uses."""
        named = [str(name) for name in assessors.to_pylist()]
        of_family = [""] * len(named)
        if families is not None and family is not None:
            of_family = [str(families[int(code)].as_py()) if code >= 0 else "" for code in family]
        rule_of = np.array([self._match(*pair) for pair in zip(named, of_family, strict=True)])
        used = [self.rules[number] for number in np.unique(rule_of)]
        common = common or self._common()
        kinds = list(dict.fromkeys((rule.scale, rule.maps_to) for rule in used))
        kind_of = [kinds.index((self.rules[number].scale, self.rules[number].maps_to)) for number in rule_of]
        maps = tuple(self._codes(scale, maps_to, common) for scale, maps_to in kinds)
        return tuple(scale for scale, _ in kinds), maps, common, np.array(kind_of, dtype=np.int8)

    def _match(self, assessor: str, family: str) -> int:
        for number, rule in enumerate(self.rules):
            if fnmatchcase(family if rule.role == "family" else assessor, rule.pattern):
                return number
        raise InputError(
            f"no row matches the assessor {shown(assessor)}",
            source=self.source,
            fix="add one, or a last row with the pattern *",
        )

    def _common(self) -> Scale | None:
        """The scale that the maps speak of: of names in the order of the longest map, or of the numbers they hold."""
        mapped = [rule.maps_to for rule in self.rules if rule.maps_to]
        if not mapped:
            return None
        grades = list(dict.fromkeys(grade for maps_to in sorted(mapped, key=len, reverse=True) for grade in maps_to))
        numbers = [number for number in map(whole_number, grades) if number is not None and number >= 0]
        try:
            return Scale.spanning(numbers) if len(numbers) == len(grades) else Scale.parse(grades)
        except UsageError as problem:
            raise InputError(
                f"the grades mapped to ({shown(','.join(grades))}) are not a scale",
                source=self.source,
                column="maps_to",
                fix="give the common scale with --grades",
            ) from problem

    def _codes(self, scale: Scale, maps_to: tuple[str, ...] | None, common: Scale | None) -> tuple[int, ...] | None:
        if common is None or (maps_to is None and scale != common):
            return None
        codes = tuple(self._common_code(grade, common) for grade in maps_to or scale.names)
        if list(codes) != sorted(codes):
            raise InputError(
                f"the map {'|'.join(maps_to or ())} of the scale {scale} runs down on the common scale {common}",
                source=self.source,
                column="maps_to",
                fix="map higher grades to higher ones, or give the common scale in order with --grades",
            )
        return codes

    def _common_code(self, grade: str, common: Scale) -> int:
        code = common.code(grade)
        if code is None:
            raise InputError(
                f"{shown(grade)} is not on the common scale {common}",
                source=self.source,
                column="maps_to",
                fix="give the common scale with --grades",
            )
        return code
