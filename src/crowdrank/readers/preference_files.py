"""Read preferences between two documents from files or DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._arrow import texts_to_arrow
from crowdrank._typing import Booleans, Codes, Integers
from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import (
    COLUMN_ALIASES,
    PREFERENCE_COLUMN_ALIASES,
    Roles,
    parse_column_map,
    preference_roles,
    quote_names,
)
from crowdrank.judgments.ids import CodedIds
from crowdrank.judgments.preferences import MAX_PREFERENCE, Preferences, one_sided_warnings
from crowdrank.judgments.scale import parse_integer
from crowdrank.judgments.table import NO_QUERY, ReadReport
from crowdrank.readers.cells import encode_distinct, is_blank
from crowdrank.readers.encode import encode_ids, exclude_assessors, first_families
from crowdrank.readers.inputs import OpenInput, RoleTable, TableLike, open_input, read_roles
from crowdrank.readers.merge import families_by_pattern, merge_reports
from crowdrank.readers.read import FILE_NAME_PLACEHOLDER, file_name_notes, name_assessors
from crowdrank.readers.read_options import (
    EncodeOptions,
    Format,
    OnBadRows,
    Repeats,
    compile_family_pattern,
    excluded_ids,
    unknown_excluded_notes,
)
from crowdrank.readers.sources import SKIP_BAD_ROWS, BadRows, FrameSource, columns_by_role, no_rows_error

POSITION_ROLES = Roles(("left", "right", "preference"), ("query", "assessor", "family"), PREFERENCE_COLUMN_ALIASES)
"""Column roles of files that say which document was shown on the left and which on the right."""
BETTER_ROLES = Roles(("left", "right", "winner"), ("query", "assessor", "family"), PREFERENCE_COLUMN_ALIASES)
"""Column roles of files that also name the better of the two documents."""
WINNER_ROLES = Roles(("winner", "loser"), ("query", "assessor", "family"), PREFERENCE_COLUMN_ALIASES)
"""Column roles of files that name the winner and the loser, without their positions."""
ANSWERS = {"left": -1, "tie": 0, "right": 1}
"""Code of each answer that can be written as a word, in lower case."""
MISSING_ANSWER, OFF_SCALE_ANSWER = -100, -101
"""Codes for a blank answer and for one that is not on the scale."""


def read_preferences(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    repeats: Repeats = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    assessor_name: str | None = None,
    on_bad_rows: OnBadRows = "error",
    max_bytes: int | str | None = None,
) -> Preferences:
    """Read preferences between two documents of a query from files or a DataFrame.

    The columns are `left`, `right` and `preference`: -1 or `left` if the left document is better, 0 or `tie`, 1 or
    `right`, and -2 or 2 if it is much better. Or they are `left`, `right` and `winner`: the id of the better document,
    or `left`, `right`, and `tie` or nothing for a tie. Or they are `winner` and `loser`, if positions are not known.
    The columns query, assessor and family are those of judgments.

    Args:
        source: files or a DataFrame, as in :func:`read_judgments`.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `left=docA,right=docB,preference=answer`.
        separator: separator of the cells of a text file; by default it is detected.
        repeats: which of several preferences of one assessor between the same documents in the same order to use: the
            `last`, the `first`, or all of them (`keep`); `error` raises an InputError. Without positions, the order
            does not count.
        exclude: ids of assessors to leave out, or a file with one id per line.
        family_pattern: a regular expression whose first group, matched from the start of an assessor's id, is the
            family, if there is no column for it.
        assessor_name: the assessor of a file without a column for it; by default, and with `{file}`, the name of the
            file.
        on_bad_rows: `error`, or `skip` to leave unusable rows out and count them in `.report`.
        max_bytes: maximum size of a file in bytes when decompressed.

    Returns:
        The preferences.

    Raises:
        InputError: a file cannot be read, or a row cannot be used, such as that of a document against itself.
        UsageError: a parameter is invalid.

    >>> import pandas as pd
    >>> read_preferences(pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"], "judge": ["x", "x"]}))
    <Preferences: 2 preferences between 3 documents in 1 query by 1 assessor>

    """
    options = EncodeOptions(
        repeats=repeats,
        exclude=excluded_ids(exclude),
        family_pattern=compile_family_pattern(family_pattern),
        on_bad_rows=on_bad_rows,
    )
    inputs = open_input(source, format, separator, max_bytes)
    roles = _find_roles(inputs, parse_column_map(columns))
    if assessor_name is None and isinstance(inputs.sources[0], FrameSource):
        roles = replace(roles, required=(*roles.required, "assessor"))
    tables = read_roles(inputs, roles, columns, on_bad_rows=on_bad_rows)
    names = name_assessors(tables, assessor_name)
    notes = [] if assessor_name not in (None, FILE_NAME_PLACEHOLDER) else file_name_notes(names)
    preferences = _merge(tables, roles, options, inputs.name)
    report = replace(
        preferences.report, notes=(*inputs.notes, *preferences.report.notes, *notes, *one_sided_warnings(preferences))
    )
    return replace(preferences, report=report)


def combine_preferences(old: Preferences | None, new: Preferences) -> Preferences:
    """Combine two sets of preferences; a new one replaces an old one of the same assessor and documents.

    Raises:
        InputError: only one of them has the positions of the documents.

    >>> import pandas as pd
    >>> row = {"left": ["a"], "right": ["b"], "assessor": ["x"]}
    >>> old, new = (read_preferences(pd.DataFrame({**row, "preference": [one]})) for one in (-1, 1))
    >>> combine_preferences(old, new).answer.tolist()
    [1]

    """
    if old is None:
        return new
    if old.has_positions != new.has_positions:
        problem = "some preferences have the positions of the documents, and others only winner and loser"
        raise InputError(problem, kind="positions-differ", fix="give preferences of one kind")
    tables = (old, new)
    query, queries = ids.concat([(one.query, one.queries) for one in tables])
    sides, documents = ids.concat([(codes, one.documents) for one in tables for codes in (one.left, one.right)])
    parts = np.split(sides, np.cumsum([len(old), len(old), len(new)]))
    assessor, assessors = ids.concat([(one.assessor, one.assessors) for one in tables])
    family_codes, families = ids.merge([texts_to_arrow([]) if one.families is None else one.families for one in tables])
    assessor_family = np.full(len(assessors), -1, np.int32)
    for one, codes in zip(tables, family_codes, strict=True):
        if one.assessor_family is not None:
            known = one.assessor_family >= 0
            assessor_family[ids.match(assessors, one.assessors)[known]] = codes[one.assessor_family[known]]
    rows = replace(
        old,
        queries=queries,
        documents=documents,
        assessors=assessors,
        query=query,
        left=np.concatenate(parts[::2]),
        right=np.concatenate(parts[1::2]),
        assessor=assessor,
        answer=np.concatenate([one.answer for one in tables]),
        families=families if len(families) else None,
        assessor_family=assessor_family if len(families) else None,
    )
    question, is_new = _question_codes(rows), np.arange(len(rows)) >= len(old)
    is_replaced = ~is_new & np.isin(question, question[is_new])
    order = np.flatnonzero(~is_replaced)
    report = merge_reports(old.report, new.report, int(is_replaced.sum()))
    return replace(_take(rows, order[np.argsort(query[order], kind="stable")]), report=report)


def _question_codes(table: Preferences) -> Integers:
    """Return a code of assessor, query and both documents of each row, (n,); their order counts if it is known."""
    left, right = table.left, table.right
    if not table.has_positions:
        left, right = np.minimum(left, right), np.maximum(left, right)
    code = table.query.astype(np.int64)
    for column, names in ((left, table.documents), (right, table.documents), (table.assessor, table.assessors)):
        code = np.unique(code * len(names) + column, return_inverse=True)[1].astype(np.int64)
    return code


def _find_roles(inputs: OpenInput, column_map: Mapping[str, str]) -> Roles:
    """Return the roles of the files: with positions and an answer or a winner, or without positions.

    Raises:
        InputError: the files have different roles, or are no preferences.

    """
    found: dict[tuple[str, ...], tuple[Roles, str]] = {}
    for source in inputs.sources:
        names = {name.casefold() for name in source.names}
        has = preference_roles(source.names, column_map)
        roles = choose_roles(has)
        if not has & {"left", "right", "winner", "loser"} and _has_grades(names):
            problem = f"these are grades, not preferences; the columns are: {quote_names(source.names)}"
            raise InputError(problem, source=source.name, kind="is-judgments", fix="give the file as judgments")
        found.setdefault(roles.required, (roles, source.name))
    (first, _), *others = found.values()
    if others:
        (other, name), *_ = others
        problem = f"it has the columns {quote_names(other.required)}, and others {quote_names(first.required)}"
        raise InputError(problem, source=name, kind="positions-differ", fix="read files of one kind")
    return first


def choose_roles(has: Set[str]) -> Roles:
    """Return the roles of a file, given those that its columns can have; some that it requires may be missing.

    >>> choose_roles({"winner", "assessor"}).required
    ('left', 'right', 'winner')
    """
    if "preference" in has or "winner" not in has:
        return POSITION_ROLES
    return WINNER_ROLES if "loser" in has else BETTER_ROLES


def _has_grades(names: set[str]) -> bool:
    return all(names & {role, *COLUMN_ALIASES[role]} for role in ("document", "grade"))


@dataclass(frozen=True, eq=False)
class _PreferenceRows:
    """Coded rows of one file that can be used, before ids are merged."""

    query: CodedIds
    sides: tuple[CodedIds, CodedIds]  # left and right document, or winner and loser
    assessor: CodedIds
    answer: Codes
    family: CodedIds | None
    source_rows: Integers
    n_excluded: int
    excluded_ids: frozenset[str]  # excluded assessors that occur


def _encode(table: RoleTable, roles: Roles, options: EncodeOptions) -> _PreferenceRows:
    """Encode the rows of one file; count those that cannot be used."""
    origin, bad_rows, n_rows = table.origin, table.bad_rows, len(table)
    row_mask = np.ones(n_rows, bool)

    def count(is_bad: Booleans, reason: str, error: Callable[[int], InputError]) -> None:
        bad_rows.count_bad(is_bad, row_mask, reason, lambda row: ((origin.part_number, row), error(row)))

    def encode(role: str) -> CodedIds:
        return encode_ids(table.cells[role], role, origin, bad_rows, row_mask)

    query = encode("query") if "query" in table.cells else (np.zeros(n_rows, np.int32), texts_to_arrow([NO_QUERY]))
    names = roles.required[:2]
    first, second = encode(names[0]), encode(names[1])
    assessor = encode("assessor")
    n_excluded, excluded_found = exclude_assessors(options.exclude, assessor, row_mask)
    (own, other), _ = ids.merge([first[1], second[1]])
    is_same = np.append(own, -1)[first[0]] == np.append(other, -2)[second[0]]

    def same_document(row: int) -> InputError:
        fixes: list[str | Fix] = ["compare two different documents", SKIP_BAD_ROWS]
        return origin.cell_error(row, names[1], "a document is compared with itself", fixes, "same-document")

    count(is_same, "a document against itself", same_document)
    answer = np.full(n_rows, -1, np.int32)
    if {"left", "winner"} <= {*roles.required}:
        winner, winners = ids.encode(table.cells["winner"])
        words = [ANSWERS.get(str(name).strip().casefold(), OFF_SCALE_ANSWER) for name in winners.to_pylist()]
        answer = np.array([*words, ANSWERS["tie"]], np.int32)[winner]
        for (codes, names_of_side), sign in ((first, -1), (second, 1)):
            (own, other), _ = ids.merge([winners, names_of_side])
            answer[np.append(own, -1)[winner] == np.append(other, -2)[codes]] = sign

        def not_of_the_two(row: int) -> InputError:
            problem = f"the winner {shown(winners[int(winner[row])].as_py())} is neither document"
            fixes: list[str | Fix] = ["write the id of the better document, left or right, or tie or nothing for a tie"]
            return origin.cell_error(row, "winner", problem, [*fixes, SKIP_BAD_ROWS], "not-a-preference")

        count(answer == OFF_SCALE_ANSWER, "winner is neither document", not_of_the_two)
    elif "preference" in roles.required:
        cell_index, cells = encode_distinct(table.cells["preference"])
        answer = np.array([*map(parse_answer, cells), MISSING_ANSWER], np.int32)[cell_index]
        missing = answer == MISSING_ANSWER
        count(missing, "no preference", lambda row: origin.missing_cell_error(row, "preference"))

        def off_scale(row: int) -> InputError:
            problem = f"{shown(cells[cell_index[row]])} is not a preference"
            scale: list[str | Fix] = ["write left, tie or right, or a whole number from -2 (left) to 2 (right)"]
            return origin.cell_error(row, "preference", problem, [*scale, SKIP_BAD_ROWS], "not-a-preference")

        count(answer == OFF_SCALE_ANSWER, "preference off the scale", off_scale)
    family = ids.encode(table.cells["family"]) if "family" in table.cells else None
    kept = np.flatnonzero(row_mask)
    coded = [ids.take(one, kept.astype(np.int32)) for one in (query, first, second, assessor)]
    family = None if family is None else ids.take(family, kept.astype(np.int32))
    sides = coded[1], coded[2]
    return _PreferenceRows(coded[0], sides, coded[3], answer[kept], family, kept, n_excluded, excluded_found)


def parse_answer(cell: Any) -> int:
    """Return the answer that a cell names, or the code for a missing answer or one off the scale.

    >>> [parse_answer(cell) for cell in ("Left", "2", -1.0, "", "better")]
    [-1, 2, -1, -100, -101]
    """
    if is_blank(cell):
        return MISSING_ANSWER
    number = parse_integer(cell)
    if number is None:
        return ANSWERS.get(str(cell).strip().casefold(), OFF_SCALE_ANSWER)
    return number if abs(number) <= MAX_PREFERENCE else OFF_SCALE_ANSWER


def parse_winner(cell: Any, left: Any, right: Any) -> int:
    """Return the answer of a cell that names the better of two documents, or -1 or 1 for the words left and right.

    >>> [parse_winner(cell, "d1", "d2") for cell in ("d1", "d2", "Right", "", "d3")]
    [-1, 1, 1, 0, -101]
    """
    if is_blank(cell):
        return ANSWERS["tie"]
    names = {str(left): -1, str(right): 1}
    return names.get(str(cell), ANSWERS.get(str(cell).strip().casefold(), OFF_SCALE_ANSWER))


def _merge(tables: Sequence[RoleTable], roles: Roles, options: EncodeOptions, source: str) -> Preferences:
    """Return the preferences of several files, as if all rows were in one."""
    n_rows = sum(len(table) + table.bad_rows.n_left_out for table in tables)
    if not n_rows:
        raise no_rows_error(source)
    parts = [_encode(table, roles, options) for table in tables]
    bad_rows = BadRows(options.on_bad_rows)
    bad_rows.merge(table.bad_rows for table in tables)
    bad_rows.raise_first_error()
    rows = _concatenate(parts, has_positions="left" in roles.required, backend=tables[0].origin.source.backend)
    rows, is_used = _with_families(rows, parts, tables, options, bad_rows)
    n_excluded = sum(part.n_excluded for part in parts)
    excluded_found = frozenset[str]().union(*(part.excluded_ids for part in parts))
    if not is_used.any():
        raise bad_rows.no_rows_left_error(source, assessors_excluded=n_excluded > 0)
    repeat = _find_repeats(rows, is_used, options.repeats)
    if options.repeats == "error" and repeat.rows.any():
        number, at = _locate(parts, int(np.argmax(repeat.rows)))
        problem = "one assessor compared the same two documents before"
        fix = Fix("choose one of last, first or keep, as in {}", "repeats", "last")
        raise tables[number].origin.cell_error(at, roles.required[0], problem, [fix], "repeated-preference")
    report = ReadReport(
        rows=n_rows,
        skipped=dict(bad_rows.skipped),
        examples=bad_rows.examples,
        repeats=sum(n for n, _ in repeat.by_assessor.values()),
        repeats_by_assessor=repeat.by_assessor,
        excluded=n_excluded,
        excluded_ids=tuple(sorted(excluded_found)),
        notes=tuple(unknown_excluded_notes(options.exclude, excluded_found, map(str, rows.assessors.to_pylist()))),
        columns=columns_by_role(table.origin for table in tables),
    )
    if options.repeats in ("last", "first"):
        if not rows.has_positions:
            report = replace(report, contradictions=rows.where(is_used).contradictions)
        is_used &= ~repeat.rows
    order = np.flatnonzero(is_used)
    return replace(_take(rows, order[np.argsort(rows.query[order], kind="stable")]), report=report)


def _concatenate(parts: Sequence[_PreferenceRows], *, has_positions: bool, backend: str) -> Preferences:
    """Return the rows of all files with common codes, in the order of the files and without families."""
    query, queries = ids.concat([part.query for part in parts])
    both, documents = ids.concat([side for part in parts for side in part.sides])
    sides = np.split(both, np.cumsum([len(part.answer) for part in parts for _ in part.sides])[:-1])
    assessor, assessors = ids.concat([part.assessor for part in parts])
    return Preferences(
        queries=queries,
        documents=documents,
        assessors=assessors,
        query=query,
        left=np.concatenate(sides[::2]),
        right=np.concatenate(sides[1::2]),
        assessor=assessor,
        answer=np.concatenate([part.answer for part in parts]).astype(np.int8),
        has_positions=has_positions,
        backend=backend,
    )


def _locate(parts: Sequence[_PreferenceRows], row: int) -> tuple[int, int]:
    """Return the number of the file and the row in it of a row of all files."""
    ends = np.cumsum([len(part.answer) for part in parts])
    number = int(np.searchsorted(ends, row, side="right"))
    return number, int(parts[number].source_rows[row - ends[number] + len(parts[number].answer)])


def _with_families(
    rows: Preferences,
    parts: Sequence[_PreferenceRows],
    tables: Sequence[RoleTable],
    options: EncodeOptions,
    bad_rows: BadRows,
) -> tuple[Preferences, Booleans]:
    """Return preferences with families, and whether each row can be used; count rows with another family as bad."""
    is_used, family = np.ones(len(rows), bool), _merge_families(parts)
    if family is None and options.family_pattern is not None and len(rows.assessors):
        source = tables[0].origin.source.name
        assessor_family, families = families_by_pattern(rows.assessors, options, source)
        return replace(rows, families=families, assessor_family=assessor_family), is_used
    if family is None:
        return rows, is_used
    own, names = family
    assessor_family = first_families(own, rows.assessor, len(rows.assessors))
    expected = assessor_family[rows.assessor]

    def family_error(row: int) -> tuple[tuple[int, int], InputError]:
        number, at = _locate(parts, row)
        here, before = (names[int(codes[row])].as_py() for codes in (own, expected))
        judge = rows.assessors[int(rows.assessor[row])].as_py()
        return (number, at), tables[number].origin.family_error(at, judge, here, before)

    bad_rows.count_bad((own >= 0) & (own != expected), is_used, "another family", family_error)
    bad_rows.raise_first_error()
    return replace(rows, families=names, assessor_family=assessor_family), is_used


def _merge_families(parts: Sequence[_PreferenceRows]) -> CodedIds | None:
    """Return the family of each row of all files, -1 without one; None if no row has a family."""
    none = texts_to_arrow([])
    coded = [(np.full(len(one.answer), -1, np.int32), none) if one.family is None else one.family for one in parts]
    new, families = ids.merge([names for _, names in coded])
    rows = [np.append(own, -1)[codes] for own, (codes, _) in zip(new, coded, strict=True)]
    return (np.concatenate(rows).astype(np.int32), families) if len(families) else None


@dataclass(frozen=True, eq=False)
class _RepeatedRows:
    """Rows to leave out because the same assessor compared the same documents again.

    Attributes:
        rows: whether each row is one of them (n,).
        by_assessor: by assessor id, number of repeated preferences and of those equal to the previous one.

    """

    rows: Booleans
    by_assessor: dict[str, tuple[int, int]]


def _find_repeats(table: Preferences, is_used: Booleans, repeats: str) -> _RepeatedRows:
    """Find preferences of an assessor between the same documents, in the same order if positions are known."""
    left, right, n_documents = table.left, table.right, len(table.documents)
    if not table.has_positions:
        left, right = np.minimum(left, right), np.maximum(left, right)
    used = np.flatnonzero(is_used)
    keys = (table.query.astype(np.int64) * n_documents + left)[used], right[used], table.assessor[used]
    order = used[np.lexsort(keys[::-1])]
    same = np.ones(max(len(order) - 1, 0), bool)
    for codes in (table.query, left, right, table.assessor):
        same &= codes[order[1:]] == codes[order[:-1]]
    previous, again = order[:-1][same], order[1:][same]
    rows = np.zeros(len(table), bool)
    rows[previous if repeats == "last" else again] = True
    equal = (table.answer[previous] == table.answer[again]) & (table.left[previous] == table.left[again])
    counts = [np.bincount(table.assessor[one], minlength=len(table.assessors)) for one in (again, again[equal])]
    by_assessor = {
        str(table.assessors[code].as_py()): (int(counts[0][code]), int(counts[1][code]))
        for code in np.flatnonzero(counts[0]).tolist()
    }
    return _RepeatedRows(rows, by_assessor)


def _take(table: Preferences, order: Integers) -> Preferences:
    """Return the rows in this order; ids in order of their codes, without those that are not used."""
    names = ("query", "left", "right", "assessor", "answer")
    ordered = replace(table, **{name: getattr(table, name)[order] for name in names})
    return ordered.where(np.ones(len(order), bool))
