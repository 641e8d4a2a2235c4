"""Merge the tables of all parts of the input: assessors, families and scales.

Each part has its own codes for assessors, families and answers; shared codes are the same for all parts. A family is a
group of related assessors, such as the prompts of one LLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._arrow import from_texts
from crowdrank._typing import Codes, Grades, Integers
from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.cells import is_blank, parse_number
from crowdrank.judgments.encode import PartSummary
from crowdrank.judgments.encode_options import MISSING_GRADE, EncodeOptions
from crowdrank.judgments.row_errors import Origin, columns_by_role, is_too_large_for_grade
from crowdrank.judgments.scale import Scale, parse_integer
from crowdrank.judgments.table import AssessorTable, ReadReport

BINARY_SCALES = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"),
    *((name, "relevant") for name in ("irrelevant", "not relevant", "nonrelevant", "non-relevant", "not_relevant")),
)  # fmt: skip
"""Names in lower case of two grades whose order is known."""


@dataclass(frozen=True, eq=False)
class PartCodes:
    """Maps from the codes of one part to the shared codes.

    Attributes:
        origin: source of the part.
        assessor: shared code of each assessor of the part.
        family: shared code of each family of the part, if there are families.
        answers: distinct answers of the part.
        first_row: (n_answers + 1,) first source row with each answer, or -1; last entry: blank cells.
        grade: (n_scales, n_answers + 1) grade code of each answer on each scale; last column: blank cells.
        share_grades: grades that have probabilities in the part.

    """

    origin: Origin
    assessor: Codes
    family: Codes | None
    answers: list[Any]
    first_row: Integers
    grade: Grades
    share_grades: tuple[int, ...] = ()

    @property
    def has_bad_answers(self) -> bool:
        """Whether some answer of the part is blank or not on one of the scales."""
        return bool((self.grade[:, self.first_row >= 0] <= MISSING_GRADE).any())


@dataclass(frozen=True, eq=False)
class SharedTables:
    """Assessors, families and scales of all parts, and the map from the codes of each part to shared codes."""

    header: AssessorTable
    parts: list[PartCodes]
    bad_rows: BadRows
    scale_is_inferred: bool  # whether the scale was inferred from the grades


def unify_tables(summaries: Iterable[PartSummary], options: EncodeOptions, source: str) -> SharedTables:
    """Merge the tables of all parts: assessors in order of first appearance, their families, and the scales.

    Args:
        summaries: summaries of the parts, in order.
        options: options for turning rows into judgments.
        source: name of the whole input, for messages.

    """
    union, bad_rows = _AssessorUnion(), BadRows(options.on_bad_rows)
    parts: list[PartCodes] = []
    report = ReadReport(guessed=options.scale is None and options.scale_rules is None)
    for summary in summaries:
        assessor, family = union.add(summary)
        no_grades = np.empty((0, 0), np.int8)
        answers = summary.answers, summary.first_row, no_grades, summary.share_grades
        parts.append(PartCodes(summary.origin, assessor, family, *answers))
        bad_rows.merge([summary.bad_rows])
        report = replace(report, rows=report.rows + summary.n_rows, excluded=report.excluded + summary.n_excluded)
    if not report.rows:
        raise no_rows_error(source)
    bad_rows.raise_first_error()
    if not len(union.assessors):
        raise bad_rows.no_rows_left_error(source, assessors_excluded=bool(options.exclude))
    families, family = union.families or None, union.family  # an empty column states no families
    if families is None and options.family_pattern is not None:
        family, families = _families_by_pattern(union.assessors, options, source)
    header = AssessorTable(
        assessors=union.assessors,
        families=families,
        assessor_family=None if families is None else family,
        unjudgeable=options.unjudgeable,
        report=replace(report, units=_common_units(parts), columns=columns_by_role(part.origin for part in parts)),
        backend=parts[0].origin.source.backend,
        **_assign_scales(union.assessors, families, family, parts, options),
    )
    parts = [replace(part, grade=options.grade_codes(part.answers, header.scales)) for part in parts]
    return SharedTables(header, parts, bad_rows, report.guessed)


class _AssessorUnion:
    """Union of the assessors and families of the parts that were added."""

    def __init__(self) -> None:
        self.assessors = from_texts([])
        self.families: pa.Array | None = None
        self.family = np.empty(0, np.int32)  # (n_assessors,), -1 without a family

    def add(self, summary: PartSummary) -> tuple[Codes, Codes | None]:
        """Add the assessors and families of a part, and return their shared codes."""
        (_, assessor), self.assessors = ids.merge([self.assessors, summary.assessors])
        family = np.full(len(self.assessors), -1, np.int32)
        family[: len(self.family)] = self.family
        new_families = None
        if summary.families is not None and summary.assessor_family is not None:
            known_families = from_texts([]) if self.families is None else self.families
            (_, new_families), self.families = ids.merge([known_families, summary.families])
            part_family = np.append(new_families, -1)[summary.assessor_family]
            family[assessor] = np.where(family[assessor] < 0, part_family, family[assessor])
        self.family = family
        return assessor, new_families


def _families_by_pattern(assessors: pa.Array, options: EncodeOptions, source: str) -> tuple[Codes, pa.Array]:
    """Derive families from assessor ids: the match of the pattern's first group, or of the whole pattern.

    Returns:
        The family code of each assessor (-1: no match), and the family names.
    """
    assert options.family_pattern is not None
    matches = [options.family_pattern.match(str(name)) for name in assessors.to_pylist()]
    group = min(1, options.family_pattern.groups)
    names = [None if match is None else match[group] for match in matches]
    family, families = ids.encode(pa.chunked_array([pa.array(names, pa.string())]))
    if not len(families):
        problem = f"no assessor's id matches {options.family_pattern.pattern!r}"
        fix = Fix(f"change {{}}; the first id is {shown(assessors[0].as_py())}", "family_pattern")
        raise InputError(problem, kind="no-family", source=source, fix=fix)
    return family, families


def _assign_scales(
    assessors: pa.Array,
    families: pa.Array | None,
    assessor_family: Codes,
    parts: Sequence[PartCodes],
    options: EncodeOptions,
) -> dict[str, Any]:
    """Return the fields of `AssessorTable` about scales: the scales, their maps, and the scale of each assessor."""
    if options.scale_rules is None:
        scale = options.scale or _infer_scale(parts, options)
        return {"scales": (scale,), "assessor_scale": np.zeros(len(assessors), np.int8)}
    scales, maps, common, assessor_scale = options.scale_rules.assign(
        assessors, families, None if families is None else assessor_family, options.scale
    )
    return {"scales": scales, "scale_maps": maps, "common_scale": common, "assessor_scale": assessor_scale}


def _infer_scale(parts: Sequence[PartCodes], options: EncodeOptions) -> Scale:
    """Infer the scale from the integers among the answers, and the grades that have probabilities.

    Raises:
        InputError: the grades are names whose order is not known.

    """
    used_answers = [
        (part.origin, int(row), value)
        for part in parts
        for value, row in zip(part.answers, part.first_row, strict=False)
        if row >= 0 and not is_too_large_for_grade(value) and not options.is_unjudgeable(value)
    ]
    numbers = [parse_integer(value) for _, _, value in used_answers]
    named = [one for one in used_answers if _is_grade_name(one[2])]
    if named and all(number is None for number in numbers):
        scale = _named_scale([str(value).strip() for _, _, value in named], options.named_scale)
        if scale is not None:
            return scale
        origin, row, value = min(named, key=lambda one: (one[0].part_number, one[1]))
        raise origin.grade_name_without_scale_error(row, value)
    numbers += [grade for part in parts for grade in part.share_grades if not is_too_large_for_grade(grade)]
    return Scale.spanning(number for number in numbers if number is not None and number >= 0)


def _named_scale(names: Sequence[str], known_scale: Scale | None) -> Scale | None:
    """Return the scale of named grades: the known one if it has all of them, yes and no, or by numbers in the names."""
    if known_scale is not None and all(known_scale.code(name) is not None for name in names):
        return known_scale
    known_names = {name.casefold(): name for name in reversed(names)}
    for scale in BINARY_SCALES:
        if known_names.keys() <= set(scale):
            return Scale.parse([known_names.get(name, name) for name in scale])
    return Scale.of_numbered_names(known_names.values())


def _is_grade_name(answer: Any) -> bool:
    """Return whether an answer is neither blank nor a number."""
    number = parse_number(answer)
    return not is_blank(answer) and number != number


def _common_units(parts: Sequence[PartCodes]) -> dict[str, str]:
    """Return the units of durations and costs that are the same in all parts that have such a column."""
    units: dict[str, set[str | None]] = {}
    for part in parts:
        for role in ("duration", "cost"):
            if role in part.origin.columns:
                units.setdefault(role, set()).add(part.origin.unit(role))
    return {role: unit for role, (unit, *others) in units.items() if unit is not None and not others}
