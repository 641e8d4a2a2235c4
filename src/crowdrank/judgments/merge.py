"""Merge coded parts of the input into judgments, and new judgments into old ones.

unify_tables(summaries)   -> SharedTables: assessors, families and scales of all parts
merge_rows(rows, tables)  -> MergedRows: rows of the parts with shared codes, checked and grouped by item
merge_parts(parts)        -> Judgments: both of the above
combine(old, new)         -> Judgments of both

Each part has its own codes for assessors, families and answers; shared codes are the same for all parts. An item is a
query-document pair. A family is a group of related assessors, such as the prompts of one LLM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._typing import Arrays, Booleans, Codes, Grades, Integers
from crowdrank.errors import Fix, InputError, Location, Message, shown
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.encode import (
    MISSING_GRADE,
    OFF_SCALE_GRADE,
    CodedIds,
    EncodeOptions,
    ParsedColumn,
    Part,
    PartRows,
    PartSummary,
    is_blank,
    parse_number,
)
from crowdrank.judgments.row_errors import Origin, is_too_large_for_grade
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

SAME_SCALE_FIXES = (Fix("read both with the same {}", "grades"), Fix("read both with the same {}", "scales"))
"""Advice for judgments that cannot be combined because their scales differ."""


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

    """

    origin: Origin
    assessor: Codes
    family: Codes | None
    answers: list[Any]
    first_row: Integers
    grade: Grades

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


# Tables of all parts.


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
        parts.append(
            PartCodes(summary.origin, assessor, family, summary.answers, summary.first_row, np.empty((0, 0), np.int8))
        )
        bad_rows.merge([summary.bad_rows])
        report = replace(report, rows=report.rows + summary.n_rows, excluded=report.excluded + summary.n_excluded)
    bad_rows.raise_first_error()
    if not len(union.assessors):
        raise bad_rows.no_rows_left_error(source, assessors_excluded=bool(options.exclude))
    families, family = union.families, union.family
    if families is None and options.family_pattern is not None:
        family, families = _families_by_pattern(union.assessors, options, source)
    header = AssessorTable(
        assessors=union.assessors,
        families=families,
        assessor_family=None if families is None else family,
        unjudgeable=tuple(sorted(options.unjudgeable)),
        report=replace(report, units=_common_units(parts), columns=dict(parts[0].origin.columns)),
        backend=parts[0].origin.source.backend,
        **_assign_scales(union.assessors, families, family, parts, options),
    )
    parts = [replace(part, grade=options.grade_codes(part.answers, header.scales)) for part in parts]
    tables = SharedTables(header, parts, bad_rows, report.guessed)
    if len(header.scales) == 1 and union.families is None:
        _check_answers(tables, options)
    return tables


class _AssessorUnion:
    """Union of the assessors and families of the parts that were added."""

    def __init__(self) -> None:
        self.assessors = pa.array([], pa.string())
        self.families: pa.Array | None = None
        self.family = np.empty(0, np.int32)  # (n_assessors,), -1 without a family

    def add(self, summary: PartSummary) -> tuple[Codes, Codes | None]:
        """Add the assessors and families of a part, and return their shared codes."""
        (_, assessor), self.assessors = ids.merge([self.assessors, summary.assessors])
        family = np.full(len(self.assessors), -1, np.int32)
        family[: len(self.family)] = self.family
        new_families = None
        if summary.families is not None and summary.assessor_family is not None:
            known_families = pa.array([], pa.string()) if self.families is None else self.families
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
        raise InputError(
            f"no assessor's id matches {options.family_pattern.pattern!r}",
            kind="no-family",
            source=source,
            fix=Fix(f"change {{}}; the first id is {shown(assessors[0].as_py())}", "family_pattern"),
        )
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
    """Infer the scale from the integers among the answers; raise InputError if the grades are names."""
    used_answers = [
        (value, row, part) for part in parts for value, row in zip(part.answers, part.first_row, strict=False)
    ]
    used_answers = [
        (value, row, part)
        for value, row, part in used_answers
        if row >= 0 and not is_too_large_for_grade(value) and not options.is_unjudgeable(value)
    ]
    numbers = [parse_integer(value) for value, _, _ in used_answers]
    if all(number is None for number in numbers):
        named = [
            (part.origin.part_number, int(row), value) for value, row, part in used_answers if _is_grade_name(value)
        ]
        if named:
            number, row, value = min(named, key=lambda one: one[:2])
            raise next(
                part.origin for part in parts if part.origin.part_number == number
            ).grade_name_without_scale_error(row, value)
    return Scale.spanning(number for number in numbers if number is not None and number >= 0)


def _is_grade_name(answer: Any) -> bool:
    """Return whether an answer is neither blank nor a number."""
    number = parse_number(answer)
    return not is_blank(answer) and number != number


def _common_units(parts: Sequence[PartCodes]) -> dict[str, str]:
    """Return the units of durations and costs that are the same in all parts."""
    return dict(set.intersection(*(set(_stated_units(part.origin).items()) for part in parts)))


def _stated_units(origin: Origin) -> dict[str, str]:
    """Return the units of durations and costs that a source or its column names state."""
    units = dict(origin.source.units)
    if "second" in origin.column_name("duration").casefold():
        units["duration"] = "seconds"
    return {name: unit for name, unit in units.items() if name in origin.columns}


def _check_answers(tables: SharedTables, options: EncodeOptions) -> None:
    """Raise the error of the first row whose grade is missing or off the scale; there is only one scale."""
    bad_rows = BadRows(options.on_bad_rows)
    for part in tables.parts:
        for grade_code, reason in ((MISSING_GRADE, "no grade"), (OFF_SCALE_GRADE, "grade off the scale")):
            rows = part.first_row[(part.first_row >= 0) & (part.grade[0] == grade_code)]
            if len(rows) and not bad_rows.skip:
                row = int(rows.min())
                value = [*part.answers, None][int(np.flatnonzero(part.first_row == row)[0])]
                bad_rows.add_example(
                    reason, (part.origin.part_number, row), _grade_error(part, row, value, grade_code, 0, tables)
                )
    bad_rows.raise_first_error()


def _grade_error(
    part: PartCodes, source_row: int, answer: Any, grade_code: int, scale_index: int, tables: SharedTables
) -> InputError:
    """Return the error for a row whose grade is missing or off the scale."""
    if grade_code == MISSING_GRADE:
        return part.origin.missing_cell_error(source_row, "grade")
    return part.origin.bad_grade_error(
        source_row, "grade", answer, tables.header.scales[scale_index], inferred=tables.scale_is_inferred
    )


# Rows of all parts.


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
        return kernels.first_rows(self.query, int(self.query.max()) + 1)[:-1][: len(size)][size > 0], size[size > 0]


def sum_repeats(parts: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, Any]:
    """Return the fields of a read report about repeated judgments, summed over parts.

    >>> sum_repeats([{"ann": (2, 1)}, {"ann": (1, 1), "bob": (1, 0)}])
    {'repeats': 4, 'repeats_by_assessor': {'ann': (3, 2), 'bob': (1, 0)}}
    """
    total: dict[str, tuple[int, int]] = {}
    for part in parts:
        for assessor, (n, n_equal) in part.items():
            n_before, n_equal_before = total.get(assessor, (0, 0))
            total[assessor] = n_before + n, n_equal_before + n_equal
    return {"repeats": sum(n for n, _ in total.values()), "repeats_by_assessor": total}


def merge_parts(parts: Sequence[Part], options: EncodeOptions, source: str | None = None) -> Judgments:
    """Merge coded parts into judgments, as if all rows were in one table.

    Args:
        parts: coded parts, in order.
        options: options for turning rows into judgments.
        source: name of the whole input, for messages; by default the source of the first part.

    """
    origin = parts[0].rows.origin
    source = origin.source.name if source is None else source
    tables = unify_tables([part.summary for part in parts], options, source)
    bad_rows = tables.bad_rows
    merged = merge_rows([part.rows for part in parts], tables, bad_rows, options.repeats)
    bad_rows.raise_first_error()
    if merged is None:
        raise bad_rows.no_rows_left_error(source, assessors_excluded=bool(options.exclude))
    if merged.repeat_error is not None:
        raise merged.repeat_error[1]
    judgments = merged.judgments if merged.used_rows is None else _without_unused_assessors(merged.judgments)
    names = {"query": judgments.queries, "document": judgments.documents, "assessor": judgments.assessors}
    notes = id_notes({role: (ids.unusual_forms(table), [table]) for role, table in names.items()}, origin, source)
    report = replace(
        judgments.report,
        skipped=dict(bad_rows.skipped),
        examples=bad_rows.examples,
        **sum_repeats([merged.repeats]),
        notes=notes,
    )
    return replace(judgments, report=report)


def id_notes(
    ids_by_role: Mapping[str, tuple[dict[str, str], Iterable[pa.Array]]], origin: Origin, source: str
) -> tuple[Message, ...]:
    """Return one note per role about ids that differ only in spaces, zeros or letter encoding.

    Args:
        ids_by_role: for each role, the result of `ids.unusual_forms`, and arrays of all ids.
        origin: source of the rows and the names of its columns.
        source: name of the whole input, for messages.

    """
    pairs = {role: ids.find_look_alikes(unusual, tables) for role, (unusual, tables) in ids_by_role.items()}
    return tuple(
        ids.look_alike_note(role, look_alikes, Location(source, column=origin.columns[role]))
        for role, look_alikes in pairs.items()
        if look_alikes and role in origin.columns
    )


def merge_rows(parts: Sequence[PartRows], tables: SharedTables, bad_rows: BadRows, repeats: str) -> MergedRows | None:
    """Concatenate the rows of all parts with shared codes, and group them by item (query-document pair).

    Args:
        parts: rows of the parts, in order.
        tables: assessors, families and scales of all parts.
        bad_rows: counts of bad rows; changed in place.
        repeats: which judgment is used if an assessor judged an item several times: one of REPEAT_POLICIES.

    Returns:
        The merged rows; None if no row can be used, or if there is a bad row and bad rows are errors.

    """
    recoded_parts = [_recode_rows(rows, tables, bad_rows) for rows in parts]
    assessor, grade, row_mask = (
        _concat_arrays([getattr(part, name) for part in recoded_parts]) for name in ("assessor", "grade", "row_mask")
    )
    if not row_mask.any() or (bad_rows.first_places and not bad_rows.skip):
        return None
    names = dict.fromkeys(name for part in recoded_parts for name in part.extras)
    extras = {name: _concat_arrays([part.extra_column(name) for part in recoded_parts]) for name in names}
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
    all_rows = np.arange(len(query), dtype=np.int32)
    order, offsets = kernels.group_rows(query, document, all_rows, len(queries), len(documents))
    is_repeat = kernels.find_repeats(offsets, order, assessor, tables.header.n_assessors, repeats in ("last", "keep"))
    has_repeats, repeat = bool(is_repeat.any()), None
    repeat_counts = _count_repeats(tables.header, order, offsets, assessor, grade) if has_repeats else {}
    if has_repeats and repeats == "error":
        pair = _first_repeated_judgment(order, offsets, assessor, is_repeat)
        first, second = pair if kept_rows is None else kept_rows[list(pair)].tolist()
        repeat = second, _repeat_error(_locate_row(parts, first), _locate_row(parts, second))
    if has_repeats and repeats != "keep":
        order, offsets = kernels.remove_rows(order, offsets, is_repeat)
    fields = _item_fields((query, queries), (document, documents), order, offsets, assessor, grade, extras)
    judgments = Judgments(**fields, **assessor_fields(tables.header))
    return MergedRows(judgments, repeat_counts, repeat, query_of_all_rows, kept_rows)


def _count_repeats(
    header: AssessorTable, row_order: Codes, offsets: Integers, assessor_codes: Codes, grade_codes: Grades
) -> dict[str, tuple[int, int]]:
    """Return by assessor id the number of repeated judgments of an item, and of those equal to the previous one."""
    counts = kernels.count_repeats(offsets, row_order, assessor_codes, grade_codes, header.n_assessors)
    with_repeats = np.flatnonzero(counts[:, 0])
    names = header.assessors.take(pa.array(with_repeats)).to_pylist()
    return {str(name): (n, n_equal) for name, (n, n_equal) in zip(names, counts[with_repeats].tolist(), strict=True)}


def _item_fields(
    queries: CodedIds,
    documents: CodedIds,
    row_order: Codes,
    offsets: Integers,
    assessor_codes: Codes,
    grade_codes: Grades,
    extras: Arrays,
) -> dict[str, Any]:
    """Return the fields of `Judgments` about items and rows, given the row order and offsets by item."""
    first = row_order[offsets[:-1]]
    return {
        "queries": queries[1],
        "documents": documents[1],
        "item_query": queries[0][first],
        "item_document": documents[0][first],
        "offsets": offsets,
        "assessor": assessor_codes[row_order],
        "grade": grade_codes[row_order],
        "extras": {name: column[row_order] for name, column in extras.items()},
    }


@dataclass(frozen=True, eq=False)
class _RecodedRows:
    """Rows of a part with shared codes; rows that are False in `row_mask` are bad."""

    assessor: Codes
    grade: Grades
    row_mask: Booleans
    extras: Arrays

    def extra_column(self, name: str) -> NDArray[Any]:
        """Return an optional column such as `time`, with blank values if the part lacks it."""
        return self.extras[name] if name in self.extras else _blank_extra(name, len(self.grade))


def _recode_rows(rows: PartRows, tables: SharedTables, bad_rows: BadRows) -> _RecodedRows:
    """Map the codes of a part to shared codes; count rows with a bad grade, family or optional column."""
    part, header, row_mask = tables.parts[rows.origin.part_number], tables.header, np.ones(len(rows), dtype=bool)
    assessor = rows.assessor if len(tables.parts) == 1 else part.assessor[rows.assessor]
    one_scale = len(header.scales) == 1
    row_scale = np.broadcast_to(np.int8(0), len(rows)) if one_scale else header.assessor_scale[assessor]
    if rows.family is not None:
        _check_families(rows, assessor, tables, bad_rows, row_mask)
    grade = part.grade[0].take(rows.answer) if one_scale else part.grade[row_scale, rows.answer]
    if part.has_bad_answers:
        cells = [*part.answers, None]

        def locate_error(row: int) -> tuple[tuple[int, int], InputError]:
            at, value = rows.source_row(row), cells[rows.answer[row]]
            return (rows.origin.part_number, at), _grade_error(
                part, at, value, int(grade[row]), int(row_scale[row]), tables
            )

        for code, reason in ((MISSING_GRADE, "no grade"), (OFF_SCALE_GRADE, "grade off the scale")):
            bad_rows.count_bad(grade == code, row_mask, reason, locate_error)
    extras = {
        name: _recode_extra(name, column, rows, row_scale, tables, bad_rows, row_mask)
        for name, column in rows.extras.items()
    }
    return _RecodedRows(assessor, grade, row_mask, extras)


def _check_families(
    rows: PartRows, assessor_codes: Codes, tables: SharedTables, bad_rows: BadRows, row_mask: Booleans
) -> None:
    """Count rows as bad whose family differs from that of their assessor."""
    header, new_codes = tables.header, tables.parts[rows.origin.part_number].family
    if header.assessor_family is None or new_codes is None or rows.family is None:
        return
    family, expected = np.append(new_codes, -1)[rows.family], header.assessor_family[assessor_codes]

    def locate_error(row: int) -> tuple[tuple[int, int], InputError]:
        assert header.families is not None
        here, first = (header.families[int(codes[row])].as_py() for codes in (family, expected))
        at, who = rows.source_row(row), header.assessors[int(assessor_codes[row])].as_py()
        return (rows.origin.part_number, at), rows.origin.family_error(at, who, here, first)

    bad_rows.count_bad((family >= 0) & (family != expected), row_mask, "another family", locate_error)


def _recode_extra(
    role: str,
    column: ParsedColumn,
    rows: PartRows,
    row_scale: Grades,
    tables: SharedTables,
    bad_rows: BadRows,
    row_mask: Booleans,
) -> NDArray[Any]:
    """Return the values of an optional column such as `time`; count rows whose value cannot be parsed as bad."""
    values, is_bad, reason = (
        column.values,
        column.is_bad,
        "time not a date" if role == "time" else f"{role} not a number",
    )
    if role == "honeypot":
        options = EncodeOptions(unjudgeable=frozenset(tables.header.unjudgeable))
        codes = options.grade_codes(column.distinct_cells, tables.header.scales)[row_scale, column.values]
        values, is_bad = np.where(codes == MISSING_GRADE, NO_HONEYPOT, codes).astype(np.int8), codes == OFF_SCALE_GRADE
        reason = "honeypot off the scale"

    def locate_error(row: int) -> tuple[tuple[int, int], InputError]:
        at, origin = rows.source_row(row), rows.origin
        value, scale = column.original_cell(at), tables.header.scales[int(row_scale[row])]
        if role == "honeypot":
            return (origin.part_number, at), origin.bad_grade_error(at, role, value, scale, inferred=False)
        return (origin.part_number, at), origin.bad_extra_error(at, role, value)

    if is_bad is not None:
        bad_rows.count_bad(is_bad, row_mask, reason, locate_error)
    return values


def _concat_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _concat_ids(columns: Sequence[CodedIds | pa.Array | None], recoded_parts: Sequence[_RecodedRows]) -> CodedIds:
    """Concatenate the query or document ids of all parts; parts without query ids share one query."""
    if not any(column is None or isinstance(column, tuple) for column in columns):
        return ids.encode(pa.chunked_array(columns))
    constant = pa.array([NO_QUERY])
    return ids.concat(
        [
            (np.zeros(len(part.grade), np.int32), constant) if column is None else column
            for column, part in zip(columns, recoded_parts, strict=True)
        ]
    )


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
            return part_rows.origin.source.name, part_rows.origin.source.place(part_rows.source_row(merged_row))
        merged_row -= len(part_rows)
    raise IndexError(merged_row)


def _repeat_error(first_row: tuple[str, str], second_row: tuple[str, str]) -> InputError:
    """Return the error for two judgments of one document by one assessor, given (source name, place) of each row."""
    (source, first), (other, second) = first_row, second_row
    where = f"{first} and {second}" if source == other else f"{source}, {first} and {other}, {second}"
    return InputError(
        f"one assessor judged one document twice ({where})",
        kind="repeated-judgment",
        source=source if source == other else "",
        fix=Fix("choose one of last, first or keep, as in {}", "repeats", "last"),
    )


def _without_unused_assessors(judgments: Judgments) -> Judgments:
    """Remove assessors without a judgment, and families without an assessor."""
    used = np.bincount(judgments.assessor, minlength=judgments.n_assessors) > 0
    assessor = (np.cumsum(used) - 1).astype(np.int32)[judgments.assessor]
    return replace(judgments, assessor=assessor, **assessor_fields(judgments.select_assessors(np.flatnonzero(used))))


def _blank_extra(role: str, n_rows: int) -> NDArray[Any]:
    """Return a column of blank values for an optional role such as `time`."""
    if role == "time":
        return np.full(n_rows, np.datetime64("NaT", "us"))
    return np.full(n_rows, NO_HONEYPOT, np.int8) if role == "honeypot" else np.full(n_rows, np.nan)


# Old and new judgments.


def combine(old: Judgments, new: Judgments) -> Judgments:
    """Combine two sets of judgments; a new judgment replaces an old one of the same document by the same assessor.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]})) for grade in (0, 2))
    >>> combine(old, new).frame["grade"].tolist()
    [2]
    """
    old, new = _to_same_scales(old, new)
    old_and_new = (old, new)
    query, queries = ids.concat([(judgments.item_column("query"), judgments.queries) for judgments in old_and_new])
    document, documents = ids.concat(
        [(judgments.item_column("document"), judgments.documents) for judgments in old_and_new]
    )
    assessor_codes, assessors = ids.merge([old.assessors, new.assessors])
    assessor = np.concatenate([assessor_codes[0][old.assessor], assessor_codes[1][new.assessor]])
    families, assessor_family = _merge_families(old_and_new, assessor_codes, len(assessors))
    extras = {
        name: np.concatenate(
            [judgments.extras.get(name, _blank_extra(name, len(judgments))) for judgments in old_and_new]
        )
        for name in dict.fromkeys((*old.extras, *new.extras))
    }
    all_rows = np.arange(len(query), dtype=np.int32)
    order, offsets = kernels.group_rows(query, document, all_rows, len(queries), len(documents))
    is_replaced = _find_replaced(order, offsets, assessor, len(old))
    order, offsets = kernels.remove_rows(order, offsets, is_replaced)
    grade = np.concatenate([old.grade, new.grade])
    return replace(
        old,
        assessors=assessors,
        assessor_scale=_merge_assessor_scales(old_and_new, assessor_codes, assessors),
        families=families,
        assessor_family=assessor_family,
        report=_merge_reports(old.report, new.report, int(is_replaced.sum())),
        **_item_fields((query, queries), (document, documents), order, offsets, assessor, grade, extras),
    )


def _find_replaced(row_order: Codes, offsets: Integers, assessor_codes: Codes, n_old: int) -> Booleans:
    """Return a mask over `row_order` of the old rows that a new judgment of the same item and assessor replaces."""
    is_new = row_order >= n_old
    item = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pair = item * (int(assessor_codes.max(initial=0)) + 1) + assessor_codes[row_order]
    return ~is_new & np.isin(pair, pair[is_new])


def _merge_reports(old: ReadReport, new: ReadReport, n_replaced: int) -> ReadReport:
    return ReadReport(
        rows=old.rows + new.rows,
        skipped=dict(Counter(old.skipped) + Counter(new.skipped)),
        examples={**new.examples, **old.examples},
        **{
            **sum_repeats([old.repeats_by_assessor, new.repeats_by_assessor]),
            "repeats": old.repeats + new.repeats + n_replaced,
        },
        excluded=old.excluded + new.excluded,
        units={name: unit for name, unit in old.units.items() if new.units.get(name) == unit},
        guessed=old.guessed and new.guessed,
        columns=old.columns,
        notes=tuple(dict.fromkeys((*old.notes, *new.notes))),
    )


def _to_same_scales(old: Judgments, new: Judgments) -> tuple[Judgments, Judgments]:
    """Return both judgments with the same scales, merged if possible; raise InputError if they cannot be merged."""
    unmapped = not any((*old.scale_maps, *new.scale_maps))
    same_maps = old.scale_maps == new.scale_maps and old.common_scale == new.common_scale
    plain = not old.has_own_labels and not new.has_own_labels
    if old.scales == new.scales and old.labels == new.labels and (unmapped or same_maps):
        return old, new
    if plain and not old.scale_maps and not new.scale_maps and old.scale.numeric and new.scale.numeric:
        values = sorted({*old.scale.values, *new.scale.values})
        both = Scale.parse(str(int(value)) for value in values)
        return _to_wider_scale(old, both), _to_wider_scale(new, both)
    if old.scale_maps and new.scale_maps and old.common_scale == new.common_scale:
        mapped = list(dict.fromkeys((*_scales_with_maps(old), *_scales_with_maps(new))))
        return _renumber_scales(old, mapped), _renumber_scales(new, mapped)
    problem = f"the scales differ ({' / '.join(map(str, old.scales))} and {' / '.join(map(str, new.scales))})"
    raise InputError(problem, kind="scales-differ", fix=SAME_SCALE_FIXES)


def _to_wider_scale(judgments: Judgments, scale: Scale) -> Judgments:
    """Recode grades for a scale that contains all grades of the current one."""
    codes = np.array([scale.code(name) for name in judgments.scale.names] + [UNJUDGEABLE], dtype=np.int8)
    recoded = judgments.with_honeypots(lambda honeypots: codes[honeypots])
    return replace(recoded, grade=codes[judgments.grade], scales=(scale,), labels=None)


def _scales_with_maps(judgments: Judgments) -> list[tuple[Scale, tuple[int, ...] | None]]:
    """Return each scale of the judgments with its map to the common scale."""
    return list(zip(judgments.scales, judgments.scale_maps, strict=True))


def _renumber_scales(judgments: Judgments, scales_with_maps: list[tuple[Scale, tuple[int, ...] | None]]) -> Judgments:
    """Replace the scales of the judgments by a longer list that contains them."""
    number = np.array([scales_with_maps.index(one) for one in _scales_with_maps(judgments)], dtype=np.int8)
    scales, maps = zip(*scales_with_maps, strict=True)
    return replace(judgments, scales=scales, scale_maps=maps, assessor_scale=number[judgments.assessor_scale])


def _merge_assessor_scales(
    old_and_new: tuple[Judgments, Judgments], assessor_codes: Sequence[Codes], assessors: pa.Array
) -> Grades:
    """Return the scale of each assessor; raise InputError if the old and the new scale differ."""
    old, new = (np.full(len(assessors), -1, np.int8) for _ in old_and_new)
    old[assessor_codes[0]], new[assessor_codes[1]] = old_and_new[0].assessor_scale, old_and_new[1].assessor_scale
    differ = (old != new) & (old >= 0) & (new >= 0)
    if differ.any():
        who = assessors[int(np.argmax(differ))].as_py()
        problem = f"the assessor {shown(who)} uses another scale than before"
        raise InputError(problem, kind="scales-differ", fix=SAME_SCALE_FIXES[1])
    return np.maximum(old, new)


def _merge_families(
    old_and_new: tuple[Judgments, Judgments], assessor_codes: Sequence[Codes], n_assessors: int
) -> tuple[pa.Array | None, Codes | None]:
    """Return the families of both judgments and the family of each assessor; a new family replaces an old one."""
    tables = [judgments.families for judgments in old_and_new if judgments.families is not None]
    if not tables:
        return None, None
    new_codes, names = ids.merge(tables)
    family, numbers = np.full(n_assessors, -1, np.int32), iter(new_codes)
    for judgments, assessor in zip(old_and_new, assessor_codes, strict=True):
        if judgments.assessor_family is not None:
            known = judgments.assessor_family >= 0
            family[assessor[known]] = next(numbers)[judgments.assessor_family[known]]
    return names, family
