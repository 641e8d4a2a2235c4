"""A scale per assessor or group of assessors, and the maps between scales."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.grades import Scale
from crowdrank.judgments.sources import DelimitedSource


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
        source = DelimitedSource(path)
        role = "family" if "family" in source.names and "assessor" not in source.names else "assessor"
        missing = [name for name in (role, "grades") if name not in source.names]
        if missing:
            raise InputError(
                f"there is no column '{missing[0]}'",
                source=source.name,
                remedy="a scales file has the columns assessor (or family), grades and, where wanted, maps_to",
            )
        names = [name for name in (role, "grades", "maps_to") if name in source.names]
        rows = source.read(names, BadRows()).to_pylist()
        return cls(source.name, tuple(cls._rule(source, role, number, row) for number, row in enumerate(rows)))

    @staticmethod
    def _rule(source: DelimitedSource, role: str, number: int, row: dict[str, Any]) -> ScaleRule:
        scale = Scale.parse(row["grades"])
        maps_to = tuple(part.strip() for part in (row.get("maps_to") or "").replace(",", "|").split("|"))
        if maps_to == ("",):
            return ScaleRule(role, row[role], scale, None)
        if len(maps_to) != len(scale):
            raise InputError(
                f"{len(maps_to)} grades are mapped where the scale {scale} has {len(scale)}",
                source=source.name,
                place=source.place(number),
                column="maps_to",
                remedy="give one common grade for each grade, separated by |",
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
        common = common or self._common(used)
        kinds = list(dict.fromkeys((rule.scale, rule.maps_to) for rule in used))
        kind_of = [kinds.index((self.rules[number].scale, self.rules[number].maps_to)) for number in rule_of]
        maps = tuple(self._codes(scale, maps_to, common) for scale, maps_to in kinds)
        return tuple(scale for scale, _ in kinds), maps, common, np.array(kind_of, dtype=np.int8)

    def _match(self, assessor: str, family: str) -> int:
        for number, rule in enumerate(self.rules):
            if fnmatchcase(family if rule.role == "family" else assessor, rule.pattern):
                return number
        raise InputError(
            f"no row matches the assessor '{assessor}'",
            source=self.source,
            remedy="add one, or a last row with the pattern *",
        )

    @staticmethod
    def _common(used: list[ScaleRule]) -> Scale | None:
        """The scale that the maps speak of: of names in the order of the longest map, or of the numbers they hold."""
        mapped = [rule.maps_to for rule in used if rule.maps_to]
        if not mapped:
            return None
        grades = list(dict.fromkeys(grade for maps_to in sorted(mapped, key=len, reverse=True) for grade in maps_to))
        if all(grade.isdecimal() for grade in grades):
            return Scale.spanning(map(int, grades))
        return Scale.parse(grades)

    def _codes(self, scale: Scale, maps_to: tuple[str, ...] | None, common: Scale | None) -> tuple[int, ...] | None:
        if common is None or (maps_to is None and scale != common):
            return None
        return tuple(self._common_code(grade, common) for grade in maps_to or scale.names)

    def _common_code(self, grade: str, common: Scale) -> int:
        code = common.code(grade)
        if code is None:
            raise InputError(
                f"'{grade}' is not on the common scale {common}",
                source=self.source,
                column="maps_to",
                remedy="give the common scale with --grades",
            )
        return code
