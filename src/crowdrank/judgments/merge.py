"""Merge coded parts into judgments, and new judgments into old ones.

unify(summaries)          -> SharedTables: assessors, families and scales of all parts
merge_rows(rows, tables)  -> rows of the parts with shared codes, checked and sorted into items
merge_parts(parts)        -> Judgments: both of the above
combine(old, new)         -> Judgments of both
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
    MISSING,
    OFF_SCALE,
    EncodeOptions,
    Ids,
    ParsedColumn,
    Part,
    PartRows,
    PartSummary,
    as_number,
    is_blank,
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

SAME_SCALES = (Fix("read both with the same {}", "grades"), Fix("read both with the same {}", "scales"))


@dataclass(frozen=True, eq=False)
class PartCodes:
    """Shared codes by the codes of a part."""

    origin: Origin
    assessor: Codes
    family: Codes | None
    answers: list[Any]
    first_row: Integers  # (n_answers + 1,)
    grade: Grades  # (n_scales, n_answers + 1)

    @property
    def has_bad_answers(self) -> bool:
        """Whether an answer may be missing or off the scale."""
        return bool((self.grade[:, self.first_row >= 0] <= MISSING).any())


@dataclass(frozen=True, eq=False)
class SharedTables:
    """Assessors, families and scales of all parts, and the codes of each part."""

    header: AssessorTable
    parts: list[PartCodes]
    bad_rows: BadRows
    inferred: bool  # whether the scale was inferred from the grades


# Tables of all parts.


def unify(summaries: Iterable[PartSummary], options: EncodeOptions, source: str) -> SharedTables:
    """Return the assessors of all parts in order of first appearance, their families, and the scales.

    Args:
        summaries: tables of the parts, in order.
        options: how rows become judgments.
        source: name of all parts together, for messages.

    """
    union, bad_rows = _UnitedAssessors(), BadRows(options.on_bad_rows)
    parts: list[PartCodes] = []
    report = ReadReport(guessed=options.scale is None and options.scale_rules is None)
    for summary in summaries:
        assessor, family = union.add(summary)
        parts.append(
            PartCodes(summary.origin, assessor, family, summary.answers, summary.first_row, np.empty((0, 0), np.int8))
        )
        bad_rows.add([summary.bad_rows])
        report = replace(report, rows=report.rows + summary.n_rows, excluded=report.excluded + summary.excluded)
    bad_rows.raise_first()
    if not len(union.assessors):
        raise bad_rows.no_rows_left(source, excluded=bool(options.exclude))
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
        **_scales(union.assessors, families, family, parts, options),
    )
    parts = [replace(part, grade=options.grade_codes(part.answers, header.scales)) for part in parts]
    tables = SharedTables(header, parts, bad_rows, report.guessed)
    if len(header.scales) == 1 and union.families is None:
        _check_answers(tables, options)
    return tables


class _UnitedAssessors:
    """Assessors and families of the parts so far."""

    def __init__(self) -> None:
        self.assessors = pa.array([], pa.string())
        self.families: pa.Array | None = None
        self.family = np.empty(0, np.int32)  # (n_assessors,), -1 without a family

    def add(self, summary: PartSummary) -> tuple[Codes, Codes | None]:
        """Add a part and return the shared codes of its assessors and families."""
        (_, assessor), self.assessors = ids.merge([self.assessors, summary.assessors])
        family = np.full(len(self.assessors), -1, np.int32)
        family[: len(self.family)] = self.family
        new_families = None
        if summary.families is not None and summary.assessor_family is not None:
            known = pa.array([], pa.string()) if self.families is None else self.families
            (_, new_families), self.families = ids.merge([known, summary.families])
            here = np.append(new_families, -1)[summary.assessor_family]
            family[assessor] = np.where(family[assessor] < 0, here, family[assessor])
        self.family = family
        return assessor, new_families


def _families_by_pattern(assessors: pa.Array, options: EncodeOptions, source: str) -> tuple[Codes, pa.Array]:
    """Return the family of each assessor: the match of the pattern's first group, or of the whole pattern."""
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


def _scales(
    assessors: pa.Array,
    families: pa.Array | None,
    family: Codes,
    parts: Sequence[PartCodes],
    options: EncodeOptions,
) -> dict[str, Any]:
    """Return the scales, their maps to the common one, and the scale of each assessor."""
    if options.scale_rules is None:
        scale = options.scale or _inferred_scale(parts, options)
        return {"scales": (scale,), "assessor_scale": np.zeros(len(assessors), np.int8)}
    scales, maps, common, scale_of = options.scale_rules.assign(
        assessors, families, None if families is None else family, options.scale
    )
    return {"scales": scales, "scale_maps": maps, "common_scale": common, "assessor_scale": scale_of}


def _inferred_scale(parts: Sequence[PartCodes], options: EncodeOptions) -> Scale:
    """Return the scale of the whole numbers that occur; named grades need a scale."""
    used = [(value, row, part) for part in parts for value, row in zip(part.answers, part.first_row, strict=False)]
    used = [
        (value, row, part)
        for value, row, part in used
        if row >= 0 and not is_too_large_for_grade(value) and not options.is_unjudgeable(value)
    ]
    numbers = [parse_integer(value) for value, _, _ in used]
    if all(number is None for number in numbers):
        named = [(part.origin.part_number, int(row), value) for value, row, part in used if _is_name(value)]
        if named:
            number, row, value = min(named, key=lambda one: one[:2])
            raise next(part.origin for part in parts if part.origin.part_number == number).named_grade_error(row, value)
    return Scale.spanning(number for number in numbers if number is not None and number >= 0)


def _is_name(value: Any) -> bool:
    number = as_number(value)
    return not is_blank(value) and number != number


def _common_units(parts: Sequence[PartCodes]) -> dict[str, str]:
    """Return the units of durations and costs that all parts state."""
    return dict(set.intersection(*(set(_units(part.origin).items()) for part in parts)))


def _units(origin: Origin) -> dict[str, str]:
    units = dict(origin.source.units)
    if "second" in origin.column_name("duration").casefold():
        units["duration"] = "seconds"
    return {name: unit for name, unit in units.items() if name in origin.columns}


def _check_answers(tables: SharedTables, options: EncodeOptions) -> None:
    """Raise the error of the first row whose grade is missing or off the only scale, before rows are merged."""
    bad = BadRows(options.on_bad_rows)
    for part in tables.parts:
        for code, reason in ((MISSING, "no grade"), (OFF_SCALE, "grade off the scale")):
            rows = part.first_row[(part.first_row >= 0) & (part.grade[0] == code)]
            if len(rows) and not bad.skip:
                row = int(rows.min())
                value = [*part.answers, None][int(np.flatnonzero(part.first_row == row)[0])]
                bad.add_example(reason, (part.origin.part_number, row), _grade_error(part, row, value, code, 0, tables))
    bad.raise_first()


def _grade_error(part: PartCodes, row: int, value: Any, code: int, scale: int, tables: SharedTables) -> InputError:
    if code == MISSING:
        return part.origin.missing_cell_error(row, "grade")
    return part.origin.bad_grade_error(row, "grade", value, tables.header.scales[scale], inferred=tables.inferred)


# Rows of all parts.


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Judgments of the rows of several parts."""

    judgments: Judgments
    n_repeats: int
    repeat: tuple[int, InputError] | None  # if repeats are errors: the first row that repeats another, and its error
    query: Codes  # (n_rows,) query of each row, used or not
    used_rows: Integers | None  # None: all

    def query_rows(self) -> tuple[Integers, Integers]:
        """Return the first row of each query of the judgments, and its number of rows that are used."""
        size = np.bincount(self.query if self.used_rows is None else self.query[self.used_rows])
        return kernels.first_rows(self.query, int(self.query.max()) + 1)[:-1][: len(size)][size > 0], size[size > 0]


def merge_parts(parts: Sequence[Part], options: EncodeOptions, source: str | None = None) -> Judgments:
    """Return the judgments of all parts, as if their rows were those of one table.

    Args:
        parts: coded parts, in order.
        options: how rows become judgments.
        source: name of all parts together, for messages; by default the source of the first part.

    """
    origin = parts[0].rows.origin
    source = origin.source.name if source is None else source
    tables = unify([part.summary for part in parts], options, source)
    bad_rows = tables.bad_rows
    merged = merge_rows([part.rows for part in parts], tables, bad_rows, options.repeats)
    bad_rows.raise_first()
    if merged is None:
        raise bad_rows.no_rows_left(source, excluded=bool(options.exclude))
    if merged.repeat is not None:
        raise merged.repeat[1]
    judgments = merged.judgments if merged.used_rows is None else _without_unused_assessors(merged.judgments)
    names = {"query": judgments.queries, "document": judgments.documents, "assessor": judgments.assessors}
    notes = id_notes({role: (ids.unusual_forms(table), [table]) for role, table in names.items()}, origin, source)
    report = replace(
        judgments.report,
        skipped=dict(bad_rows.skipped),
        examples=bad_rows.examples,
        repeats=merged.n_repeats,
        notes=notes,
    )
    return replace(judgments, report=report)


def id_notes(
    forms: Mapping[str, tuple[dict[str, str], Iterable[pa.Array]]], origin: Origin, source: str
) -> tuple[Message, ...]:
    """Return notes about ids that differ only in their form, by role.

    Args:
        forms: by role the ids with an unusual form, and tables of all ids.
        origin: columns of the rows.
        source: name of all parts together.

    """
    pairs = {role: ids.look_alikes(unusual, tables) for role, (unusual, tables) in forms.items()}
    return tuple(
        ids.look_alike_note(role, found, Location(source, column=origin.columns[role]))
        for role, found in pairs.items()
        if found and role in origin.columns
    )


def merge_rows(parts: Sequence[PartRows], tables: SharedTables, bad_rows: BadRows, repeats: str) -> MergedRows | None:
    """Sort the rows of all parts into items.

    Args:
        parts: rows of the parts, in order.
        tables: tables of all parts.
        bad_rows: rows that are not used are added.
        repeats: which of several judgments of one assessor on one document is used.

    Returns:
        The judgments, with the assessors of `tables`; None if no row can be used or a bad row is an error.

    """
    coded = [_code_rows(rows, tables, bad_rows) for rows in parts]
    assessor, grade, keep = (_concat([getattr(one, name) for one in coded]) for name in ("assessor", "grade", "keep"))
    if not keep.any() or (bad_rows.first and not bad_rows.skip):
        return None
    names = dict.fromkeys(name for one in coded for name in one.extras)
    extras = {name: _concat([one.extra(name) for one in coded]) for name in names}
    (query, queries), (document, documents) = (
        _concat_ids([getattr(rows, role) for rows in parts], coded) for role in ("query", "document")
    )
    every_query, kept = query, None
    if not keep.all():
        kept = np.flatnonzero(keep)
        query, queries = drop_unused_ids(query[kept], queries)
        document, documents = drop_unused_ids(document[kept], documents)
        assessor, grade = assessor[kept], grade[kept]
        extras = {name: column[kept] for name, column in extras.items()}
    everything = np.arange(len(query), dtype=np.int32)
    order, offsets = kernels.group_rows(query, document, everything, len(queries), len(documents))
    again = kernels.repeated(offsets, order, assessor, tables.header.n_assessors, repeats in ("last", "keep"))
    n_repeats, repeat = int(again.sum()), None
    if n_repeats and repeats == "error":
        pair = _first_repeat(order, offsets, assessor, again)
        first, second = pair if kept is None else kept[list(pair)].tolist()
        repeat = second, _repeat_error(_locate(parts, first), _locate(parts, second))
    if n_repeats and repeats != "keep":
        order, offsets = kernels.without(order, offsets, again)
    fields = _sorted_fields((query, queries), (document, documents), order, offsets, assessor, grade, extras)
    judgments = Judgments(**fields, **assessor_fields(tables.header))
    return MergedRows(judgments, n_repeats, repeat, every_query, kept)


def _sorted_fields(
    query: Ids, document: Ids, order: Codes, offsets: Integers, assessor: Codes, grade: Grades, extras: Arrays
) -> dict[str, Any]:
    """Return the fields of judgments whose rows are sorted into items."""
    first = order[offsets[:-1]]
    return {
        "queries": query[1],
        "documents": document[1],
        "item_query": query[0][first],
        "item_document": document[0][first],
        "offsets": offsets,
        "assessor": assessor[order],
        "grade": grade[order],
        "extras": {name: column[order] for name, column in extras.items()},
    }


@dataclass(frozen=True, eq=False)
class _CodedRows:
    """Rows of a part with shared codes."""

    assessor: Codes
    grade: Grades
    keep: Booleans
    extras: Arrays

    def extra(self, name: str) -> NDArray[Any]:
        return self.extras[name] if name in self.extras else _no_values(name, len(self.grade))


def _code_rows(rows: PartRows, tables: SharedTables, bad_rows: BadRows) -> _CodedRows:
    """Map the codes of a part to shared ones; rows without a grade on the scale or with another family are bad."""
    part, header, keep = tables.parts[rows.origin.part_number], tables.header, np.ones(len(rows), dtype=bool)
    assessor = rows.assessor if len(tables.parts) == 1 else part.assessor[rows.assessor]
    one_scale = len(header.scales) == 1
    scale_of = np.broadcast_to(np.int8(0), len(rows)) if one_scale else header.assessor_scale[assessor]
    if rows.family is not None:
        _check_families(rows, assessor, tables, bad_rows, keep)
    grade = part.grade[0].take(rows.answer) if one_scale else part.grade[scale_of, rows.answer]
    if part.has_bad_answers:
        cells = [*part.answers, None]

        def describe(row: int) -> tuple[tuple[int, int], InputError]:
            at, value = rows.source_row(row), cells[rows.answer[row]]
            return (rows.origin.part_number, at), _grade_error(
                part, at, value, int(grade[row]), int(scale_of[row]), tables
            )

        for code, reason in ((MISSING, "no grade"), (OFF_SCALE, "grade off the scale")):
            bad_rows.check(grade == code, keep, reason, describe)
    extras = {
        name: _code_extra(name, column, rows, scale_of, tables, bad_rows, keep) for name, column in rows.extras.items()
    }
    return _CodedRows(assessor, grade, keep, extras)


def _check_families(rows: PartRows, assessor: Codes, tables: SharedTables, bad_rows: BadRows, keep: Booleans) -> None:
    """Check that every row with a family has that of its assessor's first row."""
    header, new_codes = tables.header, tables.parts[rows.origin.part_number].family
    if header.assessor_family is None or new_codes is None or rows.family is None:
        return
    family, expected = np.append(new_codes, -1)[rows.family], header.assessor_family[assessor]

    def describe(row: int) -> tuple[tuple[int, int], InputError]:
        assert header.families is not None
        here, first = (header.families[int(codes[row])].as_py() for codes in (family, expected))
        at, who = rows.source_row(row), header.assessors[int(assessor[row])].as_py()
        return (rows.origin.part_number, at), rows.origin.family_error(at, who, here, first)

    bad_rows.check((family >= 0) & (family != expected), keep, "another family", describe)


def _code_extra(
    name: str,
    column: ParsedColumn,
    rows: PartRows,
    scale_of: Grades,
    tables: SharedTables,
    bad_rows: BadRows,
    keep: Booleans,
) -> NDArray[Any]:
    """Return the values of an extra column; rows with a value that cannot be read are bad."""
    values, bad, reason = column.values, column.bad, "time not a date" if name == "time" else f"{name} not a number"
    if name == "honeypot":
        options = EncodeOptions(unjudgeable=frozenset(tables.header.unjudgeable))
        codes = options.grade_codes(column.cells, tables.header.scales)[scale_of, column.values]
        values, bad = np.where(codes == MISSING, NO_HONEYPOT, codes).astype(np.int8), codes == OFF_SCALE
        reason = "honeypot off the scale"

    def describe(row: int) -> tuple[tuple[int, int], InputError]:
        at, origin = rows.source_row(row), rows.origin
        value, scale = column.original(at), tables.header.scales[int(scale_of[row])]
        if name == "honeypot":
            return (origin.part_number, at), origin.bad_grade_error(at, name, value, scale, inferred=False)
        return (origin.part_number, at), origin.bad_extra_error(at, name, value)

    if bad is not None:
        bad_rows.check(bad, keep, reason, describe)
    return values


def _concat(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _concat_ids(columns: Sequence[Ids | pa.Array | None], coded: Sequence[_CodedRows]) -> Ids:
    """Return the ids of all rows; rows without a column of queries are of one query."""
    if not any(column is None or isinstance(column, tuple) for column in columns):
        return ids.encode(pa.chunked_array(columns))
    constant = pa.array([NO_QUERY])
    return ids.concat(
        [
            (np.zeros(len(one.grade), np.int32), constant) if column is None else column
            for column, one in zip(columns, coded, strict=True)
        ]
    )


def _first_repeat(order: Codes, offsets: Integers, assessor: Codes, again: Booleans) -> tuple[int, int]:
    """Return the first row that repeats an earlier judgment, after that earlier row."""
    at = int(np.flatnonzero(again)[np.argmin(order[again])])
    item = int(np.searchsorted(offsets, at, side="right")) - 1
    rows = order[offsets[item] : offsets[item + 1]]
    return int(rows[assessor[rows] == assessor[order[at]]].min()), int(order[at])


def _locate(parts: Sequence[PartRows], row: int) -> tuple[str, str]:
    """Return the source and the place of a row among the rows of all parts."""
    for rows in parts:
        if row < len(rows):
            return rows.origin.source.name, rows.origin.source.place(rows.source_row(row))
        row -= len(rows)
    raise IndexError(row)


def _repeat_error(first_row: tuple[str, str], second_row: tuple[str, str]) -> InputError:
    (source, first), (other, second) = first_row, second_row
    where = f"{first} and {second}" if source == other else f"{source}, {first} and {other}, {second}"
    return InputError(
        f"one assessor judged one document twice ({where})",
        kind="repeated-judgment",
        source=source if source == other else "",
        fix=Fix("choose one of last, first or keep, as in {}", "repeats", "last"),
    )


def _without_unused_assessors(judgments: Judgments) -> Judgments:
    """Leave out assessors without a judgment, and families without an assessor."""
    used = np.bincount(judgments.assessor, minlength=judgments.n_assessors) > 0
    assessor = (np.cumsum(used) - 1).astype(np.int32)[judgments.assessor]
    return replace(judgments, assessor=assessor, **assessor_fields(judgments.select_assessors(np.flatnonzero(used))))


def _no_values(name: str, n: int) -> NDArray[Any]:
    """Return an extra column without values."""
    if name == "time":
        return np.full(n, np.datetime64("NaT", "us"))
    return np.full(n, NO_HONEYPOT, np.int8) if name == "honeypot" else np.full(n, np.nan)


# Old and new judgments.


def combine(old: Judgments, new: Judgments) -> Judgments:
    """Return all judgments of both; a new judgment replaces an old one of the same assessor on the same document.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]})) for grade in (0, 2))
    >>> combine(old, new).frame["grade"].tolist()
    [2]
    """
    old, new = _on_same_scales(old, new)
    both = (old, new)
    query, queries = ids.concat([(one.item_column("query"), one.queries) for one in both])
    document, documents = ids.concat([(one.item_column("document"), one.documents) for one in both])
    codes, assessors = ids.merge([old.assessors, new.assessors])
    assessor = np.concatenate([codes[0][old.assessor], codes[1][new.assessor]])
    families, assessor_family = _merge_families(both, codes, len(assessors))
    extras = {
        name: np.concatenate([one.extras.get(name, _no_values(name, len(one))) for one in both])
        for name in dict.fromkeys((*old.extras, *new.extras))
    }
    everything = np.arange(len(query), dtype=np.int32)
    order, offsets = kernels.group_rows(query, document, everything, len(queries), len(documents))
    replaced = _replaced(order, offsets, assessor, len(old))
    order, offsets = kernels.without(order, offsets, replaced)
    grade = np.concatenate([old.grade, new.grade])
    return replace(
        old,
        assessors=assessors,
        assessor_scale=_merge_assessor_scales(both, codes, assessors),
        families=families,
        assessor_family=assessor_family,
        report=_merge_reports(old.report, new.report, int(replaced.sum())),
        **_sorted_fields((query, queries), (document, documents), order, offsets, assessor, grade, extras),
    )


def _replaced(order: Codes, offsets: Integers, assessor: Codes, n_old: int) -> Booleans:
    """Return which of the rows in `order` are old ones whose assessor has a new judgment of the same item."""
    is_new = order >= n_old
    item = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pair = item * (int(assessor.max(initial=0)) + 1) + assessor[order]
    return ~is_new & np.isin(pair, pair[is_new])


def _merge_reports(old: ReadReport, new: ReadReport, replaced: int) -> ReadReport:
    return ReadReport(
        rows=old.rows + new.rows,
        skipped=dict(Counter(old.skipped) + Counter(new.skipped)),
        examples={**new.examples, **old.examples},
        repeats=old.repeats + new.repeats + replaced,
        excluded=old.excluded + new.excluded,
        units={name: unit for name, unit in old.units.items() if new.units.get(name) == unit},
        guessed=old.guessed and new.guessed,
        columns=old.columns,
        notes=tuple(dict.fromkeys((*old.notes, *new.notes))),
    )


def _on_same_scales(old: Judgments, new: Judgments) -> tuple[Judgments, Judgments]:
    """Return both with the same list of scales; single scales of whole numbers are merged into one."""
    unmapped = not any((*old.scale_maps, *new.scale_maps))
    same_maps = old.scale_maps == new.scale_maps and old.common_scale == new.common_scale
    plain = not old.has_own_labels and not new.has_own_labels
    if old.scales == new.scales and old.labels == new.labels and (unmapped or same_maps):
        return old, new
    if plain and not old.scale_maps and not new.scale_maps and old.scale.numeric and new.scale.numeric:
        values = sorted({*old.scale.values, *new.scale.values})
        both = Scale.parse(str(int(value)) for value in values)
        return _on_wider_scale(old, both), _on_wider_scale(new, both)
    if old.scale_maps and new.scale_maps and old.common_scale == new.common_scale:
        mapped = list(dict.fromkeys((*_mapped_scales(old), *_mapped_scales(new))))
        return _renumber_scales(old, mapped), _renumber_scales(new, mapped)
    problem = f"the scales differ ({' / '.join(map(str, old.scales))} and {' / '.join(map(str, new.scales))})"
    raise InputError(problem, kind="scales-differ", fix=SAME_SCALES)


def _on_wider_scale(judgments: Judgments, scale: Scale) -> Judgments:
    codes = np.array([scale.code(name) for name in judgments.scale.names] + [UNJUDGEABLE], dtype=np.int8)
    recoded = judgments.with_honeypots(lambda honeypots: codes[honeypots])
    return replace(recoded, grade=codes[judgments.grade], scales=(scale,), labels=None)


def _mapped_scales(judgments: Judgments) -> list[tuple[Scale, tuple[int, ...] | None]]:
    return list(zip(judgments.scales, judgments.scale_maps, strict=True))


def _renumber_scales(judgments: Judgments, mapped: list[tuple[Scale, tuple[int, ...] | None]]) -> Judgments:
    """Return the judgments with the scales of a longer list."""
    number = np.array([mapped.index(one) for one in _mapped_scales(judgments)], dtype=np.int8)
    scales, maps = zip(*mapped, strict=True)
    return replace(judgments, scales=scales, scale_maps=maps, assessor_scale=number[judgments.assessor_scale])


def _merge_assessor_scales(both: tuple[Judgments, Judgments], codes: Sequence[Codes], assessors: pa.Array) -> Grades:
    """Return the scale of each assessor; an assessor with two scales is an error."""
    old, new = (np.full(len(assessors), -1, np.int8) for _ in both)
    old[codes[0]], new[codes[1]] = both[0].assessor_scale, both[1].assessor_scale
    differ = (old != new) & (old >= 0) & (new >= 0)
    if differ.any():
        who = assessors[int(np.argmax(differ))].as_py()
        problem = f"the assessor {shown(who)} uses another scale than before"
        raise InputError(problem, kind="scales-differ", fix=SAME_SCALES[1])
    return np.maximum(old, new)


def _merge_families(
    both: tuple[Judgments, Judgments], codes: Sequence[Codes], n_assessors: int
) -> tuple[pa.Array | None, Codes | None]:
    """Return the families of both; of an assessor with two families the new one."""
    tables = [one.families for one in both if one.families is not None]
    if not tables:
        return None, None
    new_codes, names = ids.merge(tables)
    family, numbers = np.full(n_assessors, -1, np.int32), iter(new_codes)
    for one, assessor in zip(both, codes, strict=True):
        if one.assessor_family is not None:
            known = one.assessor_family >= 0
            family[assessor[known]] = next(numbers)[one.assessor_family[known]]
    return names, family
