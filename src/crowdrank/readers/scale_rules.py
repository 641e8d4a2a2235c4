"""Scales of single assessors, families or files, read from a scales file, and files whose scales seem to differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._typing import Integers
from crowdrank.errors import Fix, InputError, Message, UsageError, shown
from crowdrank.judgments.columns import refuse_duplicate_columns
from crowdrank.judgments.scale import Scale, parse_integer
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.files import check_size
from crowdrank.readers.sources import BadRows

MAX_WILDCARDS = 100
"""Maximum number of wildcards in a pattern for ids; the time to match is quadratic in it."""
RULE_COLUMNS = ("assessor", "family", "file")
"""Columns of a scales file that a rule can match: the assessor, the family or the input file."""
MAX_CHANCE_OF_ABSENCE = 0.001
"""Maximum probability of a grade's absence by chance at which the grade is taken to be off the file's scale."""
GIVE_COMMON_SCALE_FIX = Fix("give the common scale with {}", "grades")


@dataclass(frozen=True)
class ScaleRule:
    """The scale of the assessors whose id, family or file matches a pattern."""

    role: str  # whether the pattern is for the "assessor", "family" or "file"
    pattern: str  # such as gpt-*
    scale: Scale
    maps_to: tuple[str, ...] | None  # for each grade of the scale, the grade on the common scale


@dataclass(frozen=True)
class ScaleRules:
    """The rules of a scales file; an assessor gets the scale of the first rule that matches.

    A scales file has the columns `assessor`, `family` (an id, or a pattern such as `gpt-*`) or `file` (the name of an
    input file, or a pattern), `grades` (`0-4` or
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
        roles = [name for name in RULE_COLUMNS if name in source.names]
        if not roles or "grades" not in source.names:
            problem = f"there is no column '{'grades' if roles else 'assessor'}'"
            fix = "a scales file has the columns assessor (or family, or file), grades and, optionally, maps_to"
            raise InputError(problem, source=source.name, fix=fix)
        names = [name for name in (*roles, "grades", "maps_to") if name in source.names]
        rows = source.read(names, BadRows()).to_pylist()
        return cls(source.name, tuple(cls._parse_rule(source, roles, number, row) for number, row in enumerate(rows)))

    @staticmethod
    def _parse_rule(source: DelimitedSource, roles: Sequence[str], row_index: int, row: dict[str, str]) -> ScaleRule:
        """Return the rule in a row of a scales file; `roles` are those that the file has a column for."""
        # If there are several such columns, a row has a cell in one of them.
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
        files: Sequence[Collection[str]],
        families: pa.Array | None,
        assessor_family: NDArray[np.int32] | None,
        common_scale: Scale | None,
    ) -> tuple[tuple[Scale, ...], tuple[tuple[int, ...] | None, ...], Scale | None, NDArray[np.int8]]:
        """Assign a scale to each assessor.

        Args:
            assessors: ids of assessors (n,).
            files: names of the files with judgments of each assessor (n,).
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
        rules = [self._match_rule(*one) for one in zip(assessor_ids, family_ids, files, strict=True)]
        common_scale = common_scale or self._infer_common_scale()
        used = set(rules)
        used_scales = list(dict.fromkeys((rule.scale, rule.maps_to) for rule in self.rules if rule in used))
        assessor_scale = [used_scales.index((rule.scale, rule.maps_to)) for rule in rules]
        maps = tuple(self._map_to_common_scale(scale, maps_to, common_scale) for scale, maps_to in used_scales)
        return tuple(scale for scale, _ in used_scales), maps, common_scale, np.array(assessor_scale, dtype=np.int8)

    def _match_rule(self, assessor: str, family: str, files: Collection[str]) -> ScaleRule:
        """Return the first rule that matches an assessor; raise InputError if its files have different ones."""
        by_file = {file: self._match_file(assessor, family, file) for file in files}
        (first, rule), *others = by_file.items()
        for file, other in others:
            if (other.scale, other.maps_to) != (rule.scale, rule.maps_to):
                problem = (
                    f"the assessor {shown(assessor)} has the scale {rule.scale} in {first} and {other.scale} in {file}"
                )
                raise InputError(problem, source=self.source, fix="give the assessor another id in one of the files")
        return rule

    def _match_file(self, assessor: str, family: str, file: str) -> ScaleRule:
        """Return the first rule that matches an assessor in a file; a pattern without a folder matches in any."""
        for rule in self.rules:
            if rule.role == "file":
                names = [file, PurePath(file).name]
            else:
                names = [family if rule.role == "family" else assessor]
            if any(fnmatchcase(name, rule.pattern) for name in names):
                return rule
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


def shifted_scales_warning(counts: Mapping[str, Integers], scale: Scale) -> Message | None:
    """Return a warning if some files never have the highest grade and others never the lowest one.

    A file lacks a grade if its absence is no chance, given the share of the grade in files of the other kind.

    Args:
        counts: for each file, the number of judgments with each grade of the scale (n_grades,).
        scale: the scale that was inferred from all files.

    >>> counts = {"a.csv": np.array([30, 30, 30, 0]), "b.csv": np.array([0, 30, 30, 30])}
    >>> print(shifted_scales_warning(counts, Scale.parse("0-3")).problem)
    the files may have different scales: a.csv never has 3 and b.csv never has 0
    """
    low = {file: grades for file, grades in counts.items() if grades[0] and not grades[-1]}
    high = {file: grades for file, grades in counts.items() if grades[-1] and not grades[0]}
    if not low or not high:
        return None
    low_total, high_total = (np.sum(list(group.values()), axis=0) for group in (low, high))
    certain_low = _files_lacking_grade(low, float(high_total[-1] / high_total.sum()))
    certain_high = _files_lacking_grade(high, float(low_total[0] / low_total.sum()))
    if not certain_low or not certain_high:
        return None
    lowest, highest = scale.names[0], scale.names[-1]
    problem = (
        f"the files may have different scales: {_join_file_names(certain_low)} never "
        f"{_has_or_have(certain_low)} {highest} and "
        f"{_join_file_names(certain_high)} never {_has_or_have(certain_high)} {lowest}"
    )
    by_file = Fix("give the scale of each file with {} (columns file and grades)", "scales", "scales.csv")
    same = Fix(f"if all files have the scale {scale}, give {{}}", "grades", str(scale))
    return Message(problem, "shifted-scales", "warning", fixes=(by_file, same))


def _files_lacking_grade(counts: Mapping[str, Integers], grade_share: float) -> list[str]:
    """Return the files whose lack of a grade with this share elsewhere is not chance."""
    return [file for file, grades in counts.items() if (1 - grade_share) ** int(grades.sum()) < MAX_CHANCE_OF_ABSENCE]


def _join_file_names(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _has_or_have(files: Sequence[str]) -> str:
    return "has" if len(files) == 1 else "have"
