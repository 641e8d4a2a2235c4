"""Grade scales: the possible grades in order, and their values."""

from __future__ import annotations

import json
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

from crowdrank._arrow import from_numpy, from_texts
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import SCALE_COLUMN, refuse_duplicate_columns, share_name
from crowdrank.judgments.delimited import DelimitedSource
from crowdrank.judgments.files import check_size

MAX_GRADES = 101
"""Maximum number of grades of a scale, enough for a slider from 0 to 100."""
MAX_WILDCARDS = 100
"""Maximum number of wildcards in a pattern for ids; the time to match is quadratic in it."""
NUMBER_IN_NAME = re.compile(r"\s*(?:(\d{1,3})\s*[-:.)=]\s*\D+|\D+[(\[](\d{1,3})[)\]]\s*)$", re.ASCII)
"""Name of a grade with its number: "2 - Relevant", "2: Relevant" or "Relevant (2)"."""
GIVE_COMMON_SCALE_FIX = Fix("give the common scale with {}", "grades")


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
        return ",".join(self.names)

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
        return [share_name(value) for value in self.values]

    @classmethod
    def parse(cls, text: str | Iterable[object]) -> Scale:
        """Return a scale from `0-3`, `1,2,3`, or names from least to most relevant (`Bad,Fair,Good` or `Bad|Good`)."""
        if isinstance(text, str):
            bounds = re.fullmatch(r"\s*(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})\s*", text, re.ASCII)
            if bounds and int(bounds[1]) > int(bounds[2]):
                raise _invalid_scale_error(f"must be in order from least to most relevant, not {text.strip()}")
            # Longer scales are invalid anyway.
            text = range(int(bounds[1]), int(bounds[2]) + 1)[: 2 * MAX_GRADES] if bounds else re.split(r"[,|]", text)
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
    def of_numbered_names(cls, names: Iterable[str]) -> Scale | None:
        """Return the scale of names that hold consecutive numbers, in their order; None if they do not.

        >>> str(Scale.of_numbered_names(["Relevant (1)", "Perfect (2)", "Bad (0)"]))
        'Bad (0),Relevant (1),Perfect (2)'
        """
        matches = [(NUMBER_IN_NAME.match(name), name) for name in names]
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
    return table.append_column(SCALE_COLUMN, pa.DictionaryArray.from_arrays(codes, from_texts([scale.cell])))


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


@dataclass(frozen=True)
class ScaleRule:
    """The scale of the assessors whose id or family matches a pattern."""

    role: str  # whether the pattern is for ids of "assessor" or "family"
    pattern: str  # such as gpt-*
    scale: Scale
    maps_to: tuple[str, ...] | None  # for each grade of the scale, the grade on the common scale


@dataclass(frozen=True)
class ScaleRules:
    """The rules of a scales file; an assessor gets the scale of the first rule that matches.

    A scales file has the columns `assessor` or `family` (an id, or a pattern such as `gpt-*`), `grades` (`0-4` or
    `Bad|Fair|Good`) and, to map all grades to one scale, `maps_to` (the common grade of each grade: `0|0|1|2`).
    """

    source: str  # path, for errors
    rules: tuple[ScaleRule, ...]

    @classmethod
    def read(cls, path: str | Path) -> ScaleRules:
        """Read a scales file (CSV)."""
        check_size(path)
        source = DelimitedSource(path)
        refuse_duplicate_columns(source.names, source.name)
        roles = [name for name in ("assessor", "family") if name in source.names]
        if not roles or "grades" not in source.names:
            problem = f"there is no column '{'grades' if roles else 'assessor'}'"
            fix = "a scales file has the columns assessor (or family), grades and, optionally, maps_to"
            raise InputError(problem, source=source.name, fix=fix)
        names = [name for name in (*roles, "grades", "maps_to") if name in source.names]
        rows = source.read(names, BadRows()).to_pylist()
        return cls(source.name, tuple(cls._parse_rule(source, roles, number, row) for number, row in enumerate(rows)))

    @staticmethod
    def _parse_rule(source: DelimitedSource, roles: Sequence[str], row_index: int, row: dict[str, str]) -> ScaleRule:
        """Return the rule in a row of a scales file; `roles` are those that the file has a column for."""
        # If there are both columns, a row has a cell in one of them.
        role = next((role for role in roles if row[role].strip()), roles[0])
        if not row[role].strip():
            raise source.cell_error(row_index, role, f"the {role} is missing", "give one, or write * for all")
        if sum(row[role].count(wildcard) for wildcard in "*?[") > MAX_WILDCARDS:
            problem = f"a pattern has more than {MAX_WILDCARDS} wildcards"
            raise source.cell_error(row_index, role, problem, "write fewer of * ? [")
        try:
            scale = Scale.parse(row["grades"])
        except UsageError as error:
            fix = "write it from least to most relevant, as in 0-4 or Bad|Fair|Good"
            raise source.cell_error(row_index, "grades", f"{shown(row['grades'])} is not a scale", fix) from error
        maps_to = tuple(part.strip() for part in (row.get("maps_to") or "").replace(",", "|").split("|"))
        if maps_to == ("",):
            return ScaleRule(role, row[role], scale, None)
        if len(maps_to) != len(scale):
            problem = f"{len(maps_to)} grades are mapped where the scale {scale} has {len(scale)}"
            fix = "give one common grade for each grade, separated by |"
            raise source.cell_error(row_index, "maps_to", problem, fix)
        return ScaleRule(role, row[role], scale, maps_to)

    def assign(
        self,
        assessors: pa.Array,
        families: pa.Array | None,
        assessor_family: NDArray[np.int32] | None,
        common_scale: Scale | None,
    ) -> tuple[tuple[Scale, ...], tuple[tuple[int, ...] | None, ...], Scale | None, NDArray[np.int8]]:
        """Assign a scale to each assessor.

        Args:
            assessors: ids of assessors (n,).
            families: ids of families.
            assessor_family: index in `families` of each assessor's family (n,), -1 for none.
            common_scale: the scale that grades are mapped to; by default inferred from the rules.

        Returns:
            The scales in use; for each, the codes of its grades on the common scale, or None without a map; the common
            scale; and the index of each assessor's scale (n,).

        """
        assessor_ids = [str(name) for name in assessors.to_pylist()]
        family_ids = [""] * len(assessor_ids)
        if families is not None and assessor_family is not None:
            family_ids = [str(families[int(code)].as_py()) if code >= 0 else "" for code in assessor_family]
        rules = [self.rules[self._match_rule(*pair)] for pair in zip(assessor_ids, family_ids, strict=True)]
        common_scale = common_scale or self._infer_common_scale()
        used = set(rules)
        used_scales = list(dict.fromkeys((rule.scale, rule.maps_to) for rule in self.rules if rule in used))
        assessor_scale = [used_scales.index((rule.scale, rule.maps_to)) for rule in rules]
        maps = tuple(self._map_to_common_scale(scale, maps_to, common_scale) for scale, maps_to in used_scales)
        return tuple(scale for scale, _ in used_scales), maps, common_scale, np.array(assessor_scale, dtype=np.int8)

    def _match_rule(self, assessor: str, family: str) -> int:
        """Return the index of the first rule that matches an assessor."""
        for rule_index, rule in enumerate(self.rules):
            if fnmatchcase(family if rule.role == "family" else assessor, rule.pattern):
                return rule_index
        problem = f"no row matches the assessor {shown(assessor)}"
        raise InputError(problem, source=self.source, fix="add one, or a last row with the pattern *")

    def _infer_common_scale(self) -> Scale | None:
        """Return the scale that the rules map grades to, or None if none of them has a map.

        Its grades are all integers up to the highest, or the names in the order of the longest map.
        """
        maps = [rule.maps_to for rule in self.rules if rule.maps_to]
        if not maps:
            return None
        grades = list(dict.fromkeys(grade for maps_to in sorted(maps, key=len, reverse=True) for grade in maps_to))
        integers = [integer for integer in map(parse_integer, grades) if integer is not None and integer >= 0]
        try:
            return Scale.spanning(integers) if len(integers) == len(grades) else Scale.parse(grades)
        except UsageError as error:
            problem = f"the grades mapped to ({shown(','.join(grades))}) are not a scale"
            fix = GIVE_COMMON_SCALE_FIX
            raise InputError(problem, source=self.source, column="maps_to", fix=fix) from error

    def _map_to_common_scale(
        self, scale: Scale, maps_to: tuple[str, ...] | None, common_scale: Scale | None
    ) -> tuple[int, ...] | None:
        """Return the code on the common scale of each grade of a scale, or None if the scale has no map."""
        if common_scale is None or (maps_to is None and scale != common_scale):
            return None
        codes = tuple(self._common_code(grade, common_scale) for grade in maps_to or scale.names)
        if list(codes) != sorted(codes):
            raise InputError(
                f"the map {'|'.join(maps_to or ())} of the scale {scale} decreases on the common scale {common_scale}",
                source=self.source,
                column="maps_to",
                fix=["map higher grades to higher ones", Fix("give the common scale in order with {}", "grades")],
            )
        return codes

    def _common_code(self, grade: str, common_scale: Scale) -> int:
        """Return the code of a grade on the common scale; raise InputError if it is not on it."""
        code = common_scale.code(grade)
        if code is None:
            problem = f"{shown(grade)} is not on the common scale {common_scale}"
            raise InputError(problem, source=self.source, column="maps_to", fix=GIVE_COMMON_SCALE_FIX)
        return code
