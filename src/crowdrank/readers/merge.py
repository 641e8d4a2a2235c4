"""Merge coded parts of the input into judgments with shared codes for assessors, families and scales.

Each part has its own codes for assessors, families and answers; shared codes are the same for all parts. A family is a
group of related assessors, such as the prompts of one LLM.

merge_parts(parts)          -> Judgments, by these steps:
merge_summaries(summaries)  -> SharedTables: assessors, families and scales of all parts
merge_rows(rows, tables)    -> MergedRows: rows of the parts with shared codes, checked and grouped by item
complete_report(tables)     -> ReadReport: counts of unused rows and repeats, and notes

An item is a query-document pair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._arrow import from_numpy, texts_to_arrow
from crowdrank._assessor_kinds import UNKNOWN_KIND
from crowdrank._typing import Arrays, Booleans, Codes, Grades, Integers
from crowdrank.errors import Fix, InputError, Location, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import PROBABILITY_COLUMN_PATTERN, PROBABILITY_SUM_TOLERANCE, find_probability_columns
from crowdrank.judgments.ids import CodedIds
from crowdrank.judgments.scale import Scale, parse_integer
from crowdrank.judgments.table import (
    NO_HONEYPOT,
    NO_QUERY,
    UNJUDGEABLE,
    AssessorTable,
    Judgments,
    ReadReport,
    assessor_fields,
    drop_unused_ids,
)
from crowdrank.readers.cells import ParsedColumn, is_blank, parse_number
from crowdrank.readers.encode import Part, PartRows, PartSummary
from crowdrank.readers.read_options import MISSING_GRADE, OFF_SCALE_GRADE, EncodeOptions
from crowdrank.readers.scale_rules import shifted_scales_warning
from crowdrank.readers.sources import (
    BAD_PROBABILITIES_REASON,
    BadRows,
    Origin,
    columns_by_role,
    is_too_large_for_grade,
    no_rows_error,
)


def merge_parts(parts: Sequence[Part], options: EncodeOptions, source: str | None = None) -> Judgments:
    """Merge coded parts into judgments, as if all rows were in one table.

    Args:
        parts: coded parts, in order.
        options: options for turning rows into judgments.
        source: name of the whole input, for messages; by default the source of the first part.

    """
    source = parts[0].rows.origin.source.name if source is None else source
    tables = merge_summaries([part.summary for part in parts], options, source)
    bad_rows = tables.bad_rows
    merged = merge_rows([part.rows for part in parts], tables, bad_rows, options.repeats)
    bad_rows.raise_first_error()
    if merged is None:
        raise bad_rows.no_rows_left_error(source, assessors_excluded=bool(options.exclude))
    if merged.repeat_error is not None:
        raise merged.repeat_error[1]
    judgments = merged.judgments if merged.used_rows is None else _without_unused_assessors(merged.judgments)
    names = {"query": judgments.queries, "document": judgments.documents, "assessor": judgments.assessors}
    ids_by_role = {role: (ids.unusual_forms(table), [table]) for role, table in names.items()}
    return replace(judgments, report=complete_report(tables, [merged.repeats], ids_by_role, source))


@dataclass(frozen=True, eq=False)
class PartCodes:
    """Maps from the codes of one part of the input to the codes that all parts share.

    Attributes:
        origin: source of the part.
        assessor: shared code of each assessor of the part.
        family: shared code of each family of the part, if there are families.
        answers: distinct answers of the part.
        first_row: (n_answers + 1,) first source row with each answer, or -1; last entry: blank cells.
        answer_counts: (n_answers,) number of rows with each answer.
        grade: (n_scales, n_answers + 1) grade code of each answer on each scale; last column: blank cells.
        share_grades: grades that have probabilities in the part.

    """

    origin: Origin
    assessor: Codes
    family: Codes | None
    answers: list[Any]
    first_row: Integers
    answer_counts: Integers
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


def merge_summaries(summaries: Iterable[PartSummary], options: EncodeOptions, source: str) -> SharedTables:
    """Merge the tables of all parts: assessors in order of first appearance, their families, and the scales.

    Args:
        summaries: summaries of the parts, in order.
        options: options for turning rows into judgments.
        source: name of the whole input, for messages.

    """
    union, bad_rows = _MergedAssessors(), BadRows(options.on_bad_rows)
    parts: list[PartCodes] = []
    report = ReadReport(guessed=options.scale is None and options.scale_rules is None)
    excluded: set[str] = set()
    for summary in summaries:
        assessor, family = union.add(summary)
        no_grades = np.empty((0, 0), np.int8)
        answers = summary.answers, summary.first_row, summary.answer_counts, no_grades, summary.share_grades
        parts.append(PartCodes(summary.origin, assessor, family, *answers))
        bad_rows.merge([summary.bad_rows])
        excluded |= summary.excluded_ids
        report = replace(report, rows=report.rows + summary.n_rows, excluded=report.excluded + summary.n_excluded)
    if not report.rows:
        raise no_rows_error(source)
    bad_rows.raise_first_error()
    if not len(union.assessors):
        raise bad_rows.no_rows_left_error(source, assessors_excluded=bool(options.exclude))
    families, family = union.families or None, union.family  # an empty column states no families
    if families is None and options.family_pattern is not None:
        family, families = families_by_pattern(union.assessors, options, source)
    elif families is None and options.family_separator is not None:
        family, families = families_by_separator(union.assessors, options.family_separator, source)
    header = AssessorTable(
        assessors=union.assessors,
        families=families,
        assessor_family=None if families is None else family,
        family_separator=None if families is None else options.family_separator,
        unjudgeable=options.unjudgeable,
        report=replace(report, units=_common_units(parts), columns=columns_by_role(part.origin for part in parts)),
        backend=parts[0].origin.source.backend,
        **_assign_scales(union.assessors, families, family, parts, options),
    )
    parts = [replace(part, grade=options.grade_codes(part.answers, header.scales)) for part in parts]
    if report.guessed:
        shifted = shifted_scales_warning(_grade_counts_by_file(parts, header.scales[0]), header.scales[0])
        header = replace(header, report=replace(header.report, notes=() if shifted is None else (shifted,)))
    given = [answer for part in parts for answer in part.answers]
    others = map(str, union.assessors.to_pylist() if options.exclude else ())
    unmatched = options.unmatched_notes(excluded, others, given)
    notes = *header.report.notes, *unmatched
    header = replace(header, report=replace(header.report, notes=notes, excluded_ids=tuple(sorted(excluded))))
    return SharedTables(header, parts, bad_rows, report.guessed)


class _MergedAssessors:
    """Union of the assessors and families of the parts that were added."""

    def __init__(self) -> None:
        self.assessors = texts_to_arrow([])
        self.families: pa.Array | None = None
        self.family = np.empty(0, np.int32)  # (n_assessors,), -1 without a family

    def add(self, summary: PartSummary) -> tuple[Codes, Codes | None]:
        """Add the assessors and families of a part, and return their shared codes."""
        (_, assessor), self.assessors = ids.merge([self.assessors, summary.assessors])
        family = np.full(len(self.assessors), -1, np.int32)
        family[: len(self.family)] = self.family
        new_families = None
        if summary.families is not None and summary.assessor_family is not None:
            known_families = texts_to_arrow([]) if self.families is None else self.families
            (_, new_families), self.families = ids.merge([known_families, summary.families])
            part_family = np.append(new_families, -1)[summary.assessor_family]
            family[assessor] = np.where(family[assessor] < 0, part_family, family[assessor])
        self.family = family
        return assessor, new_families


def families_by_pattern(assessors: pa.Array, options: EncodeOptions, source: str) -> tuple[Codes, pa.Array]:
    """Derive families from assessor ids: the name of the named group that matches, the first group, or the whole match.

    Returns:
        The family code of each assessor (-1: no match), and the family names.
    """
    assert options.family_pattern is not None
    matches = [options.family_pattern.match(str(name)) for name in assessors.to_pylist()]
    names = [None if match is None else _family_of_match(match) for match in matches]
    family, families = ids.encode(pa.chunked_array([pa.array(names, pa.string())]))
    if not len(families):
        problem = f"no assessor's id matches {options.family_pattern.pattern!r}"
        fix = Fix(f"change {{}}; the first id is {shown(assessors[0].as_py())}", "family_pattern")
        raise InputError(problem, kind="no-family", source=source, fix=fix)
    return family, families


def _family_of_match(match: re.Match[str]) -> str | None:
    """Return the family that a match of a family pattern stands for.

    >>> _family_of_match(re.match("(.*)_p", "gpt_p1")), _family_of_match(re.match("(?P<copies>ann|bob)$", "bob"))
    ('gpt', 'copies')
    """
    if match.re.groupindex:
        return next((name for name, text in match.groupdict().items() if text is not None), None)
    return str(match[min(1, match.re.groups)]) if match[min(1, match.re.groups)] is not None else None


def families_by_separator(assessors: pa.Array, separator: str, source: str) -> tuple[Codes, pa.Array]:
    """Derive families from assessor ids: everything before the last separator, which may have several levels."""
    names = [str(name).rpartition(separator)[0] or None for name in assessors.to_pylist()]
    family, families = ids.encode(pa.chunked_array([pa.array(names, pa.string())]))
    if not len(families):
        problem = f"no assessor's id has the separator {separator!r}"
        fix = Fix(f"change {{}}; the first id is {shown(assessors[0].as_py())}", "family_separator")
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
    files: list[dict[str, None]] = [{} for _ in range(len(assessors))]
    for part in parts:
        for code in part.assessor.tolist():
            files[code][part.origin.source.name] = None
    scales, maps, common, assessor_scale = options.scale_rules.assign(
        assessors, files, families, None if families is None else assessor_family, options.scale
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
        names = list(dict.fromkeys(str(name).strip() for _, _, name in named))
        known = options.named_scale
        is_known = known is not None and all(known.code(name) is not None for name in names)
        scale = known if is_known else Scale.of_names(names)
        if scale is not None:
            return scale
        origin, row, value = min(named, key=lambda one: (one[0].part_number, one[1]))
        raise origin.unknown_grade_order_error(row, value, names)
    numbers += [grade for part in parts for grade in part.share_grades if not is_too_large_for_grade(grade)]
    return Scale.spanning(number for number in numbers if number is not None and number >= 0)


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


def _grade_counts_by_file(parts: Sequence[PartCodes], scale: Scale) -> dict[str, Integers]:
    """Return the number of rows with each grade (n_grades,) by file name."""
    counts: dict[str, Integers] = {}
    for part in parts:
        codes = part.grade[0, :-1]
        total = counts.setdefault(part.origin.source.name, np.zeros(len(scale), np.int64))
        np.add.at(total, codes[codes >= 0], part.answer_counts[codes >= 0])
    return counts


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Judgments from the rows of several parts.

    Attributes:
        judgments: the judgments.
        repeats: by assessor id, number of repeated judgments of an item and of those equal to the previous one.
        repeat_error: the first such row and its error, if repeats are errors.
        query: (n_rows,) query of each row, used or not.
        used_rows: rows that are used, or None for all.

    """

    judgments: Judgments
    repeats: dict[str, tuple[int, int]]
    repeat_error: tuple[int, InputError] | None
    query: Codes
    used_rows: Integers | None

    def query_rows(self) -> tuple[Integers, Integers]:
        """Return for each query of the judgments its first row and its number of used rows."""
        size = np.bincount(self.query if self.used_rows is None else self.query[self.used_rows])
        return ids.first_rows(self.query, int(self.query.max()) + 1)[:-1][: len(size)][size > 0], size[size > 0]


def merge_rows(parts: Sequence[PartRows], tables: SharedTables, bad_rows: BadRows, repeats: str) -> MergedRows | None:
    """Concatenate the rows of all parts with shared codes, and group them by item (query-document pair).

    Args:
        parts: rows of the parts, in order.
        tables: assessors, families and scales of all parts.
        bad_rows: counts of bad rows; changed in place.
        repeats: which judgment is used if an assessor judged an item several times: a value of `Repeats`.

    Returns:
        The merged rows; None if no row can be used, or if there is a bad row and bad rows are errors.

    """
    recoded_parts = [_SharedCodeRows(rows, tables, bad_rows) for rows in parts]
    assessor, grade, row_mask = (
        _concat_arrays([getattr(part, name) for part in recoded_parts]) for name in ("assessor", "grade", "row_mask")
    )
    if not row_mask.any() or (bad_rows.first_places and not bad_rows.skip):
        return None
    names = dict.fromkeys(name for part in recoded_parts for name in part.extras)
    extras = {name: _concat_arrays([part.optional_column(name) for part in recoded_parts]) for name in names}
    (query, queries), (document, documents) = (
        _concat_ids([getattr(rows, role) for rows in parts], recoded_parts) for role in ("query", "document")
    )
    query_of_all_rows, kept_rows = query, None
    if not row_mask.all():
        kept_rows = np.flatnonzero(row_mask)
        query, queries = drop_unused_ids(query[kept_rows], queries)
        document, documents = drop_unused_ids(document[kept_rows], documents)
        assessor, grade = assessor[kept_rows], grade[kept_rows]
        extras = {name: column[kept_rows] for name, column in extras.items()}
    order, offsets = group_rows(query, document, len(queries), len(documents))
    grouped: dict[str, Any] = {"assessor": assessor.take(order), "grade": grade.take(order)}  # faster than an index
    is_repeat, counts = ids.find_repeats(
        offsets, *grouped.values(), tables.header.n_assessors, repeats in ("last", "keep")
    )
    has_repeats, repeat = bool(is_repeat.any()), None
    if has_repeats and repeats == "error":
        pair = _first_repeated_judgment(order, offsets, assessor, is_repeat)
        first, second = pair if kept_rows is None else kept_rows[list(pair)].tolist()
        repeat = second, _repeat_error(_locate_row(parts, first), _locate_row(parts, second))
    if has_repeats and repeats != "keep":
        order, offsets = remove_rows(order, offsets, is_repeat)
        grouped = {name: codes[~is_repeat] for name, codes in grouped.items()}
    fields = item_fields((query, queries), (document, documents), order, offsets, extras)
    judgments = Judgments(**fields, **grouped, **assessor_fields(tables.header))
    repeats_by_assessor = _repeats_by_assessor(tables.header.assessors, counts)
    return MergedRows(judgments, repeats_by_assessor, repeat, query_of_all_rows, kept_rows)


class _SharedCodeRows:
    """Rows of a part with shared codes; rows with a bad grade, family or optional column are counted.

    Attributes:
        assessor, grade: shared code of each row.
        row_mask: whether each row can be used.
        row_scale: index of the scale of each row.
        extras: optional columns such as `time`, by role.

    """

    def __init__(self, rows: PartRows, tables: SharedTables, bad_rows: BadRows) -> None:
        part, header = tables.parts[rows.origin.part_number], tables.header
        one_scale = len(header.scales) == 1
        self.rows, self.tables, self.bad_rows, self.part = rows, tables, bad_rows, part
        self.row_mask: Booleans = np.ones(len(rows), dtype=bool)
        self.assessor: Codes = rows.assessor if len(tables.parts) == 1 else part.assessor[rows.assessor]
        self.row_scale: Grades = (
            np.broadcast_to(np.int8(0), len(rows)) if one_scale else header.assessor_scale[self.assessor]
        )
        self._check_families()
        self.grade: Grades = part.grade[0].take(rows.answer) if one_scale else part.grade[self.row_scale, rows.answer]
        if part.has_bad_answers:
            self._check_grades()
        self.extras = {role: self._recode_optional_column(role, column) for role, column in rows.extras.items()}
        self._check_probabilities()

    def optional_column(self, name: str) -> NDArray[Any]:
        """Return an optional column such as `time`, with blank values if the part lacks it."""
        return self.extras[name] if name in self.extras else blank_optional_column(name, len(self.grade))

    def _count_bad(self, is_bad: Booleans, reason: str, row_error: Callable[[int, int], InputError]) -> None:
        """Count bad rows; `row_error` is a function of the row in the part and in the source."""

        def locate_error(row: int) -> tuple[tuple[int, int], InputError]:
            source_row = self.rows.source_row(row)
            return (self.rows.origin.part_number, source_row), row_error(row, source_row)

        self.bad_rows.count_bad(is_bad, self.row_mask, reason, locate_error)

    def _scale(self, row: int) -> Scale:
        return self.tables.header.scales[int(self.row_scale[row])]

    def _check_families(self) -> None:
        """Count rows as bad whose family differs from that of their assessor."""
        rows, header, new_codes = self.rows, self.tables.header, self.part.family
        if header.families is None or header.assessor_family is None or new_codes is None or rows.family is None:
            return
        names, family = header.families, np.append(new_codes, -1)[rows.family]
        expected = header.assessor_family[self.assessor]

        def error(row: int, at: int) -> InputError:
            here, first = (names[int(codes[row])].as_py() for codes in (family, expected))
            return rows.origin.family_error(at, header.assessors[int(self.assessor[row])].as_py(), here, first)

        self._count_bad((family >= 0) & (family != expected), "another family", error)

    def _check_grades(self) -> None:
        """Count rows as bad whose grade is missing or not on the scale."""
        origin, inferred = self.rows.origin, self.tables.scale_is_inferred
        self._count_bad(self.grade == MISSING_GRADE, "no grade", lambda row, at: origin.missing_cell_error(at, "grade"))

        def error(row: int, at: int) -> InputError:
            cell = self.part.answers[self.rows.answer[row]]
            return origin.bad_grade_error(at, "grade", cell, self._scale(row), inferred=inferred)

        self._count_bad(self.grade == OFF_SCALE_GRADE, "grade off the scale", error)

    def _recode_optional_column(self, role: str, column: ParsedColumn) -> NDArray[Any]:
        """Return the values of an optional column such as `time`; count rows whose value cannot be parsed as bad."""
        origin, header = self.rows.origin, self.tables.header
        if PROBABILITY_COLUMN_PATTERN.fullmatch(role):
            return np.where(self.grade == UNJUDGEABLE, np.nan, column.values)
        if role == "kind":
            return column.values
        if role != "honeypot":
            reason = "time not a date" if role == "time" else f"{role} not a number"
            is_bad = np.zeros(len(self.rows), bool) if column.is_bad is None else column.is_bad
            self._count_bad(is_bad, reason, lambda row, at: origin.bad_extra_error(at, role, column.original_cell(at)))
            return column.values
        options = EncodeOptions(unjudgeable=header.unjudgeable)
        codes = options.grade_codes(column.distinct_cells, header.scales)[self.row_scale, column.values]

        def error(row: int, at: int) -> InputError:
            return origin.bad_grade_error(at, role, column.original_cell(at), self._scale(row), inferred=False)

        self._count_bad(codes == OFF_SCALE_GRADE, "honeypot off the scale", error)
        return np.where(codes == MISSING_GRADE, NO_HONEYPOT, codes).astype(np.int8)

    def _check_probabilities(self) -> None:
        """Count rows as bad whose probabilities of grades are not from 0 to 1, off the scale, or do not sum to 1."""
        names = find_probability_columns(self.extras)
        if not names:
            return
        scales, origin = self.tables.header.scales, self.rows.origin
        shares = np.column_stack([self.extras[name] for name in names])

        def first_name(is_bad: Booleans, row: int) -> str:
            return names[int(np.argmax(is_bad[row]))]

        no_share, not_one = np.isinf(shares), f"the probabilities {names[0]} to {names[-1]} do not sum to 1"
        problem = "it is not a probability from 0 to 1"
        self._count_bad(
            no_share.any(axis=1),
            BAD_PROBABILITIES_REASON,
            lambda row, at: origin.probability_error(at, first_name(no_share, row), problem),
        )
        by_scale = np.array([[name not in scale.share_names for name in names] for scale in scales])
        off_scale: Booleans = by_scale[self.row_scale] & (shares > 0)

        def scale_error(row: int, at: int) -> InputError:
            name = first_name(off_scale, row)
            return origin.bad_grade_error(at, name, int(name[1:]), self._scale(row), inferred=False)

        self._count_bad(np.asarray(off_scale.any(axis=1)), BAD_PROBABILITIES_REASON, scale_error)
        is_off: Booleans = np.abs(np.nansum(shares, axis=1) - 1) > PROBABILITY_SUM_TOLERANCE
        is_soft = ~np.isnan(shares).all(axis=1)
        self._count_bad(
            is_soft & is_off, BAD_PROBABILITIES_REASON, lambda row, at: origin.probability_error(at, names[0], not_one)
        )


def blank_optional_column(role: str, n_rows: int) -> NDArray[Any]:
    """Return a column of blank values for an optional role such as `time`."""
    if role == "time":
        return np.full(n_rows, np.datetime64("NaT", "us"))
    if role in ("honeypot", "kind"):
        return np.full(n_rows, NO_HONEYPOT if role == "honeypot" else UNKNOWN_KIND, np.int8)
    return np.full(n_rows, np.nan)


def _concat_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _concat_ids(columns: Sequence[CodedIds | pa.Array | None], recoded_parts: Sequence[_SharedCodeRows]) -> CodedIds:
    """Concatenate the query or document ids of all parts; parts without query ids share one query."""
    if not any(column is None or isinstance(column, tuple) for column in columns):
        return ids.encode(pa.chunked_array(columns))
    constant = texts_to_arrow([NO_QUERY])
    return ids.concat(
        [
            (np.zeros(len(part.grade), np.int32), constant) if column is None else column
            for column, part in zip(columns, recoded_parts, strict=True)
        ]
    )


def group_rows(query: Codes, document: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    """Group rows by item; return the row order and the offset of each item in it (see `ids.group_rows`)."""
    if n_queries == 1 and len(document) >= ids.MIN_ROWS_FOR_HASH_TABLE:
        order, ends = np.empty(len(document), np.int32), np.zeros(n_documents + 1, np.int64)
        if ids.group_by_code(document, order, ends):
            return order, np.concatenate([[0], ends[:-1]])
    order, offsets = ids.group_rows(query, document, n_queries, n_documents)
    return order, offsets


def _first_repeated_judgment(
    row_order: Codes, offsets: Integers, assessor_codes: Codes, is_repeat: Booleans
) -> tuple[int, int]:
    """Return two rows: the first judgment of an item by an assessor, and the first row that repeats such a judgment."""
    position = int(np.flatnonzero(is_repeat)[np.argmin(row_order[is_repeat])])
    item = int(np.searchsorted(offsets, position, side="right")) - 1
    rows = row_order[offsets[item] : offsets[item + 1]]
    return int(rows[assessor_codes[rows] == assessor_codes[row_order[position]]].min()), int(row_order[position])


def _locate_row(parts: Sequence[PartRows], merged_row: int) -> tuple[str, str]:
    """Return the source name and the place of a row, given its index among the rows of all parts."""
    for part_rows in parts:
        if merged_row < len(part_rows):
            return part_rows.origin.source.name, part_rows.origin.source.locate_row(part_rows.source_row(merged_row))
        merged_row -= len(part_rows)
    raise IndexError(merged_row)


def _repeat_error(first_row: tuple[str, str], second_row: tuple[str, str]) -> InputError:
    """Return the error for two judgments of one document by one assessor, given (source name, place) of each row."""
    (source, first), (other, second) = first_row, second_row
    where = f"{first} and {second}" if source == other else f"{source}, {first} and {other}, {second}"
    problem = f"one assessor judged one document twice ({where})"
    fix = Fix("choose one of last, first or keep, as in {}", "repeats", "last")
    return InputError(problem, kind="repeated-judgment", source=source if source == other else "", fix=fix)


def remove_rows(row_order: Codes, offsets: Integers, is_removed: Booleans) -> tuple[Codes, Integers]:
    """Remove rows from a grouped row order; return the new order and offsets. Each item must keep a row.

    >>> order, offsets = remove_rows(np.array([4, 2, 7]), np.array([0, 2, 3]), np.array([True, False, False]))
    >>> order.tolist(), offsets.tolist()
    ([2, 7], [0, 1, 2])
    """
    n_kept = np.concatenate([[0], np.cumsum(~is_removed)])
    return row_order[~is_removed], n_kept[offsets]


def item_fields(
    queries: CodedIds,
    documents: CodedIds,
    row_order: Codes,
    offsets: Integers,
    extras: Arrays,
) -> dict[str, Any]:
    """Return the fields of `Judgments` about items, and optional columns, given the row order and offsets by item."""
    first = row_order[offsets[:-1]]
    return {
        "queries": queries[1],
        "documents": documents[1],
        "item_query": queries[0][first],
        "item_document": documents[0][first],
        "offsets": offsets,
        "extras": {name: column[row_order] for name, column in extras.items()},
    }


def _repeats_by_assessor(assessors: pa.Array, counts: Integers) -> dict[str, tuple[int, int]]:
    """Return by assessor id the number of repeated judgments, and of those equal to the previous one."""
    with_repeats = np.flatnonzero(counts[:, 0])
    names = assessors.take(from_numpy(with_repeats)).to_pylist()
    return {str(name): (n, n_equal) for name, (n, n_equal) in zip(names, counts[with_repeats].tolist(), strict=True)}


def _without_unused_assessors(judgments: Judgments) -> Judgments:
    """Remove assessors without a judgment, and families without an assessor."""
    used = np.bincount(judgments.assessor, minlength=judgments.n_assessors) > 0
    assessor = (np.cumsum(used) - 1).astype(np.int32)[judgments.assessor]
    return replace(judgments, assessor=assessor, **assessor_fields(judgments.select_assessors(np.flatnonzero(used))))


def complete_report(
    tables: SharedTables,
    repeats: Iterable[Mapping[str, tuple[int, int]]],
    ids_by_role: Mapping[str, tuple[dict[str, str], Iterable[pa.Array]]],
    source: str,
) -> ReadReport:
    """Return the read report of all parts: counts of unused rows and of repeats, and notes about ids.

    There is one note per role with ids that differ only in spaces, zeros or letter encoding.

    Args:
        tables: tables of all parts, after all rows were checked.
        repeats: repeats by assessor id, as in `MergedRows`.
        ids_by_role: for each role, the result of `ids.unusual_forms`, and arrays of all ids.
        source: name of the whole input, for messages.

    """
    report, bad_rows = tables.header.report, tables.bad_rows
    pairs = {role: ids.find_look_alikes(unusual, arrays) for role, (unusual, arrays) in ids_by_role.items()}
    notes = tuple(
        ids.look_alike_note(role, look_alikes, Location(source, column=report.columns[role]))
        for role, look_alikes in pairs.items()
        if look_alikes and role in report.columns
    )
    skipped, examples = dict(bad_rows.skipped), bad_rows.examples
    notes = (*report.notes, *notes)
    return replace(report, skipped=skipped, examples=examples, **sum_repeats(repeats), notes=notes)


def sum_repeats(repeats_by_part: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, Any]:
    """Return the fields of a read report about repeated judgments, summed over parts.

    >>> sum_repeats([{"ann": (2, 1)}, {"ann": (1, 1), "bob": (1, 0)}])
    {'repeats': 4, 'repeats_by_assessor': {'ann': (3, 2), 'bob': (1, 0)}}
    """
    total: dict[str, tuple[int, int]] = {}
    for part in repeats_by_part:
        for assessor, (n, n_equal) in part.items():
            n_before, n_equal_before = total.get(assessor, (0, 0))
            total[assessor] = n_before + n, n_equal_before + n_equal
    return {"repeats": sum(n for n, _ in total.values()), "repeats_by_assessor": total}


def merge_reports(old: ReadReport, new: ReadReport, n_replaced: int) -> ReadReport:
    """Return the counts of old and new rows together; rows that new ones replace are repeats."""
    return ReadReport(
        rows=old.rows + new.rows,
        skipped=dict(Counter(old.skipped) + Counter(new.skipped)),
        examples={**new.examples, **old.examples},
        **{
            **sum_repeats([old.repeats_by_assessor, new.repeats_by_assessor]),
            "repeats": old.repeats + new.repeats + n_replaced,
        },
        contradictions=old.contradictions + new.contradictions,
        excluded=old.excluded + new.excluded,
        units={name: unit for name, unit in old.units.items() if new.units.get(name) == unit},
        guessed=old.guessed and new.guessed,
        columns=old.columns,
        notes=tuple(dict.fromkeys((*old.notes, *new.notes))),
    )
