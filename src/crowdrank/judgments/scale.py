"""Grade scales: the possible grades in order, and their values."""

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

from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import refuse_duplicate_columns
from crowdrank.judgments.sources import DelimitedSource, check_size

MOST_GRADES = 101
"""Maximum number of grades: those of a slider from 0 to 100."""
MOST_WILDCARDS = 100
"""Maximum number of wildcards in a pattern; matching takes time quadratic in it."""
GIVE_COMMON_SCALE = Fix("give the common scale with {}", "grades")


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
            raise _invalid(f"must have 2 to {MOST_GRADES} grades, not {len(self.names)}{listed}")
        if len({name.casefold() for name in self.names}) < len(self.names) or len(set(self.values)) < len(self.values):
            raise _invalid(f"must have each grade once, not {self}")
        if list(self.values) != sorted(self.values):
            raise _invalid(f"must be in order from least to most relevant, not {self}")

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        if self.numeric and len(self) > 2 and self.values[-1] - self.values[0] == len(self) - 1 and self.values[0] >= 0:
            return f"{self.names[0]}-{self.names[-1]}"
        return ",".join(self.names)

    @property
    def numeric(self) -> bool:
        """Whether the grades are whole numbers and not names."""
        return whole_number(self.names[0]) is not None

    @classmethod
    def parse(cls, text: str | Iterable[object]) -> Scale:
        """Return a scale from `0-3`, `1,2,3`, or names from least to most relevant (`Bad,Fair,Good` or `Bad|Good`)."""
        if isinstance(text, str):
            span = re.fullmatch(r"\s*(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})\s*", text, re.ASCII)
            if span and int(span[1]) > int(span[2]):
                raise _invalid(f"must be in order from least to most relevant, not {text.strip()}")
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
            raise _invalid(f"must not mix names, numbers and blanks ({listed}); use 0-3, 1,2,3 or Bad,Fair,Good")
        return cls(tuple(names), tuple(float(position) for position in range(len(names))))

    @classmethod
    def spanning(cls, numbers: Iterable[int]) -> Scale:
        """Return the scale of whole numbers up to the highest of `numbers`, from 0, or from 1 if 0 does not occur.

        >>> str(Scale.spanning([3, 0, 2]))
        '0-3'
        """
        seen = set(numbers)
        lowest = 0 if 0 in seen or not seen else 1
        highest = min(
            max(max(seen, default=1), lowest + 1), lowest + 2 * MOST_GRADES
        )  # longer scales are invalid anyway
        return cls.parse(map(str, range(lowest, highest + 1)))

    def code(self, value: Any) -> int | None:
        """Return the position of a grade on the scale, or None if it is not on it."""
        number = whole_number(value)
        if self.numeric:
            return self.values.index(number) if number is not None and number in self.values else None
        name = str(value).strip()
        if name in self.names:
            return self.names.index(name)
        folded = [known.casefold() for known in self.names]
        return folded.index(name.casefold()) if name.casefold() in folded else None


def _invalid(problem: str) -> UsageError:
    return UsageError(problem, parameter="grades", kind="invalid-scale")


def whole_number(value: Any) -> int | None:
    """Return the whole number in a cell (7, 7.0, '7', ' 7.0'), or None.

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


@dataclass(frozen=True)
class ScaleRule:
    """The scale of the assessors whose id or family matches a pattern."""

    role: str  # "assessor" or "family"
    pattern: str
    scale: Scale
    maps_to: tuple[str, ...] | None


@dataclass(frozen=True)
class ScaleRules:
    """The rules of a scales file; the first that matches an assessor applies.

    A scales file has the columns `assessor` or `family` (an id, or a pattern such as `gpt-*`), `grades` (`0-4` or
    `Bad|Fair|Good`) and, to map all grades to one scale, `maps_to` (the common grade of each grade: `0|0|1|2`).
    """

    source: str
    rules: tuple[ScaleRule, ...]

    @classmethod
    def read(cls, path: str | Path) -> ScaleRules:
        """Read a scales file (CSV)."""
        check_size(path)
        source = DelimitedSource(path)
        refuse_duplicate_columns(source.names, source.name)
        roles = [name for name in ("assessor", "family") if name in source.names]
        if not roles or "grades" not in source.names:
            raise InputError(
                f"there is no column '{'grades' if roles else 'assessor'}'",
                source=source.name,
                fix="a scales file has the columns assessor (or family), grades and, optionally, maps_to",
            )
        names = [name for name in (*roles, "grades", "maps_to") if name in source.names]
        rows = source.read(names, BadRows()).to_pylist()
        return cls(source.name, tuple(cls._rule(source, roles, number, row) for number, row in enumerate(rows)))

    @staticmethod
    def _rule(source: DelimitedSource, roles: Sequence[str], number: int, row: dict[str, str]) -> ScaleRule:
        def error(problem: str, column: str, fix: str) -> InputError:
            return InputError(problem, source=source.name, place=source.place(number), column=column, fix=fix)

        # If there are both columns, a row has a cell in one of them.
        role = next((role for role in roles if row[role].strip()), roles[0])
        if not row[role].strip():
            raise error(f"the {role} is missing", role, "give one, or write * for all")
        if sum(row[role].count(wildcard) for wildcard in "*?[") > MOST_WILDCARDS:
            raise error(f"a pattern has more than {MOST_WILDCARDS} wildcards", role, "write fewer of * ? [")
        try:
            scale = Scale.parse(row["grades"])
        except UsageError as problem:
            fix = "write it from least to most relevant, as in 0-4 or Bad|Fair|Good"
            raise error(f"{shown(row['grades'])} is not a scale", "grades", fix) from problem
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
        """Assign a scale to each assessor.

        Args:
            assessors: ids (n,).
            families: ids of families.
            family: family code of each assessor (n,), -1 for none.
            common: the common scale, if it is given.

        Returns:
            The scales in use, their maps to the common scale, the common scale, and the scale of each assessor (n,).

        """
        assessor_ids = [str(name) for name in assessors.to_pylist()]
        family_ids = [""] * len(assessor_ids)
        if families is not None and family is not None:
            family_ids = [str(families[int(code)].as_py()) if code >= 0 else "" for code in family]
        rule_of = [self.rules[self._match(*pair)] for pair in zip(assessor_ids, family_ids, strict=True)]
        common = common or self._common()
        used = set(rule_of)
        kinds = list(dict.fromkeys((rule.scale, rule.maps_to) for rule in self.rules if rule in used))
        kind_of = [kinds.index((rule.scale, rule.maps_to)) for rule in rule_of]
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
        """Return the scale that grades are mapped to: the names in order of the longest map, or the numbers."""
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
                fix=GIVE_COMMON_SCALE,
            ) from problem

    def _codes(self, scale: Scale, maps_to: tuple[str, ...] | None, common: Scale | None) -> tuple[int, ...] | None:
        if common is None or (maps_to is None and scale != common):
            return None
        codes = tuple(self._common_code(grade, common) for grade in maps_to or scale.names)
        if list(codes) != sorted(codes):
            raise InputError(
                f"the map {'|'.join(maps_to or ())} of the scale {scale} decreases on the common scale {common}",
                source=self.source,
                column="maps_to",
                fix=["map higher grades to higher ones", Fix("give the common scale in order with {}", "grades")],
            )
        return codes

    def _common_code(self, grade: str, common: Scale) -> int:
        code = common.code(grade)
        if code is None:
            raise InputError(
                f"{shown(grade)} is not on the common scale {common}",
                source=self.source,
                column="maps_to",
                fix=GIVE_COMMON_SCALE,
            )
        return code
