"""Read judgments and expert grades from files or DataFrames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._arrow import release_unused_memory
from crowdrank._assessor_kinds import KINDS, Kind
from crowdrank._estimator import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, Location, Message, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import GOLD_COLUMN_ALIASES, Roles, find_probability_columns, quote_names
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import GradeMap, GradeMapLike, Scale
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.readers.cells import (
    DRAWN_FOR_COLUMN,
    SAMPLE_COLUMNS,
    ColumnsByRole,
    SampledRows,
    blank_cells,
    read_grade_probabilities,
    read_sample_columns,
)
from crowdrank.readers.encode import encode_part
from crowdrank.readers.inputs import (
    DOCCANO_LABELS_FILE,
    OpenInput,
    RoleTable,
    TableLike,
    constant_column,
    features_used_notes,
    open_input,
    read_roles,
    scale_from_column,
)
from crowdrank.readers.merge import merge_parts
from crowdrank.readers.read_options import (
    CANNOT_JUDGE,
    EncodeOptions,
    Format,
    OnBadRows,
    Repeats,
    UnjudgeableAs,
    compile_family_pattern,
    excluded_ids,
    parse_unjudgeable,
)
from crowdrank.readers.scale_rules import ScaleRules
from crowdrank.readers.sources import BadRows, FrameSource, Source

ITEM_ROLES = ("document", "grade")
"""Roles that must have a column in a file of judgments or expert grades."""
OPTIONAL_ROLES = ("query", "family", "kind", "time", "duration", "cost", "honeypot", "assessor", "scale")
"""Roles that may have a column in a file of judgments."""
JUDGMENT_ROLES = Roles(ITEM_ROLES, OPTIONAL_ROLES)
"""Roles of the columns of a file of judgments; the assessor can be the name of the file."""
GOLD_ROLES = Roles(ITEM_ROLES, ("query", "scale"), GOLD_COLUMN_ALIASES)
"""Roles of the columns of a file of expert grades."""
QUERY_LIKE_PATTERN = re.compile("quer|search|topic|keyword", re.IGNORECASE)
"""Pattern of names of columns that may have the query."""
MIN_REPEAT_SHARE_TO_WARN = 0.3
"""Minimum share of rows that repeat a judgment for the warning that the query column may be missing."""
FILE_NAME_PLACEHOLDER = "{file}"
"""Value of `assessor_name` that names each assessor by the file of the judgments."""
KIND_COLUMN, EXPERT_KIND = "kind", "expert"
"""Column with the kind of assessor, and the kind for experts; it is also the id of experts without one."""


def read_judgments(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Scale | Sequence[object] | None = None,
    scales: str | Path | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    repeats: Repeats = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    family_separator: str | None = None,
    assessor_name: str | None = None,
    assessor_kind: Kind | None = None,
    on_bad_rows: OnBadRows = "error",
    max_bytes: int | str | None = None,
) -> Judgments:
    """Read judgments from files or a DataFrame.

    Ids are compared exactly: white space, case and Unicode forms count. Every row that is read and not used is counted
    in `.report` by reason; `.report.columns` has the column that was read for each role.

    Args:
        source: a path, a folder, a glob pattern such as `labels/*.csv`, a list of them, or a DataFrame (pandas, polars,
            pyarrow, ...). Files are CSV, TSV, Parquet, JSON Lines, JSON, Excel, qrels, or gzip of each, and exports of
            doccano, Label Studio, Toloka, MTurk, Quepid and OpenSearch. The rows of several files are one table, in the
            order of the files. A database of the judging service is a path such as `judging.db`, or a URL such as
            `postgresql://user@host/name`; `?project=NAME` after it names one of several projects.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,assessor=workerID,grade=label`. Common
            names (qid, docid, worker, label, ...) are recognized. Columns p0, p1, ... have the probabilities of the
            grades of soft labels.
        separator: separator of the cells of a text file; by default it is detected.
        grades: the scale: `0-4`, names from least to most relevant (`Bad,Fair,Good`), or a `Scale`. By default that of
            the project of a database, the scale in the column `scale` (`Bad|Fair|Good`), which files of crowdrank with
            named grades have, the order of numbers in the names (`Relevant (1)`), or the whole numbers that occur.
        scales: a CSV file with a scale per assessor, family of assessors or input file.
        unjudgeable: answers that mean 'cannot judge', by default `cannot-judge`, as exports of the judging service have
            it. They are not grades; models have a parameter for their use.
        repeats: which of several judgments of one assessor on one document to use: the `last`, the `first`, or all of
            them (`keep`); `error` raises an InputError.
        exclude: ids of assessors to leave out, or a file with one id per line.
        family_pattern: a regular expression that is matched from the start of an assessor's id; its first group is the
            family, if there is no column for it: `(.*)_p[0-9]+` for judges called model_p7. A named group is the family
            of all ids that it matches: `(?P<copies>ann|bob)$`.
        family_separator: separator of the levels of nested families, such as `/` in vendor/model. Without a column or
            pattern, the family is the part of an assessor's id before the last separator.
        assessor_name: the assessor of a file without a column for it, or of the blank cells in it. By default, the name
            of each such file without its suffix, unless documents are repeated in all of them; `{file}` uses the names
            of the files then, too. Blank cells of requests of the kind expert are of `expert`.
        assessor_kind: kind of the assessors of files without a column `kind`: `human`, `llm` or `expert`. Advice on
            assessors depends on it.
        on_bad_rows: `error`, or `skip` to leave unusable rows out and count them in `.report`.
        max_bytes: maximum size of a file in bytes when decompressed: a number, or as in `500MB` or `2GB`.

    Returns:
        The judgments.

    Raises:
        InputError: a file cannot be read, or a row cannot be used.
        UsageError: a parameter is invalid.

    >>> import pandas as pd
    >>> read_judgments(pd.DataFrame({"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": [0, 1, 1]}))
    <Judgments: 3 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>

    """
    inputs = open_input(source, format, separator, max_bytes)
    names_assessor = assessor_name is not None or not isinstance(inputs.sources[0], FrameSource)
    roles = JUDGMENT_ROLES if names_assessor else replace(JUDGMENT_ROLES, required=(*ITEM_ROLES, "assessor"))
    tables = read_roles(inputs, roles, columns, inputs.layout.columns, on_bad_rows, soft_labels=True)
    expert_notes = [] if assessor_name is not None else _name_unnamed_experts(tables)
    file_names = name_assessors(tables, assessor_name)
    _fill_kinds(tables, assessor_kind)
    options = EncodeOptions(
        scale=_parse_scale(grades, inputs, [] if scales is not None else tables),
        named_scale=inputs.label_scale,
        scale_rules=None if scales is None else ScaleRules.read(scales),
        unjudgeable=parse_unjudgeable(unjudgeable, _default_unjudgeable(inputs, tables)),
        repeats=repeats,
        checks_unjudgeable=isinstance(unjudgeable, str),  # a tuple is that of known judgments: `scale_options`
        exclude=excluded_ids(exclude),
        family_pattern=compile_family_pattern(family_pattern),
        family_separator=family_separator,
        on_bad_rows=on_bad_rows,
    )
    judgments = _encode_and_merge(inputs, tables, options)
    notes = expert_notes if assessor_name is not None else [*expert_notes, *file_name_notes(file_names)]
    notes += _repeat_warnings(judgments, set(file_names.values()), repeats)
    notes += _missing_query_warnings(judgments, [name for table in tables for name in table.origin.source.names])
    if options.scale is None and inputs.label_scale is not None and judgments.scales == (inputs.label_scale,):
        notes.append(_label_order_note(inputs.label_scale))
    report = judgments.report
    return replace(judgments, report=replace(report, notes=(*report.notes, *notes)))


def _parse_scale(
    grades: str | Scale | Sequence[object] | None, inputs: OpenInput, tables: Sequence[RoleTable]
) -> Scale | None:
    """Return the scale that the user gave or that the source states, or None if it is to be inferred."""
    grades = grades if grades is not None else inputs.layout.grades or None
    return scale_from_column(tables) if grades is None else Scale.parse(grades)


def _default_unjudgeable(inputs: OpenInput, tables: Sequence[RoleTable]) -> Sequence[str]:
    """Return the answers that mean 'cannot judge' in a format, or in exports of the judging service."""
    texts = (table.cells["grade"] for table in tables if pa.types.is_string(table.cells["grade"].type))
    is_export = any(pc.any(pc.match_like(cells, CANNOT_JUDGE)).as_py() for cells in texts)
    return inputs.layout.unjudgeable or ((CANNOT_JUDGE,) if is_export else ())


def name_assessors(tables: Sequence[RoleTable], assessor_name: str | None) -> dict[str, str]:
    """Add the column of assessors to tables without one: the given name, or the name of the file.

    Returns:
        The names by path of the files that were named.

    Raises:
        InputError: documents are repeated in all such files, so that the assessor may be in a column of another name.
        UsageError: one name is given for several files, or for none.

    """
    unnamed = [table for table in tables if "assessor" not in table.cells]
    if assessor_name is not None and not unnamed and _fill_blank_assessors(tables, assessor_name):
        return {}
    if assessor_name is not None and not unnamed:
        column = tables[0].origin.columns["assessor"]
        problem = f"is given, but the assessor is in the column {column!r}; leave it out"
        raise UsageError(problem, parameter="assessor_name")
    if assessor_name not in (None, FILE_NAME_PLACEHOLDER) and len(unnamed) > 1:
        problem = f"would make one assessor of {counted(len(unnamed), 'file')}"
        fixes = [Fix("leave it out"), Fix("use the names of the files with {}", "assessor_name", FILE_NAME_PLACEHOLDER)]
        raise UsageError(problem, parameter="assessor_name", kind="several-files", fix=fixes)
    if assessor_name is None and unnamed and all(map(_may_hide_assessors, unnamed)):
        raise _hidden_assessor_error(unnamed)
    names = {table.origin.source.name: table.origin.source.stem for table in unnamed}
    if assessor_name not in (None, FILE_NAME_PLACEHOLDER):
        names = dict.fromkeys(names, str(assessor_name))
    for table in unnamed:
        table.cells["assessor"] = constant_column(names[table.origin.source.name], len(table))
    return names


def _fill_kinds(tables: Sequence[RoleTable], assessor_kind: Kind | None) -> None:
    """Add the column of kinds to tables without one, if the kind of their assessors is given."""
    if assessor_kind is None:
        return
    require_one_of("assessor_kind", assessor_kind, KINDS)
    for table in tables:
        if "kind" not in table.cells:
            table.cells["kind"] = constant_column(assessor_kind, len(table))


def _fill_blank_assessors(tables: Sequence[RoleTable], assessor_name: str) -> int:
    """Write a name into the blank cells of columns for the assessor; return their number."""
    n_filled = 0
    for table in tables:
        is_missing = blank_cells(table.cells["assessor"])
        if is_missing.any():
            name = table.origin.source.stem if assessor_name == FILE_NAME_PLACEHOLDER else assessor_name
            cells = table.cells["assessor"].cast(pa.string())
            table.cells["assessor"] = pc.if_else(pa.chunked_array([pa.array(is_missing)]), name, cells)
            n_filled += int(is_missing.sum())
    return n_filled


def _name_unnamed_experts(tables: Sequence[RoleTable]) -> list[Message]:
    """Write the assessor id `expert` into the rows of unnamed experts, and return a note about it.

    These are tables with a column `kind`, as `collect next` writes them, whose rows without an assessor are of the
    kind expert.
    """
    named = 0
    for table in tables:
        source = table.origin.source
        if KIND_COLUMN not in source.names or "assessor" not in table.cells:
            continue
        is_missing = blank_cells(table.cells["assessor"])
        kinds = source.read([KIND_COLUMN], BadRows("skip"))[KIND_COLUMN]
        if len(kinds) == len(is_missing) and set(kinds.filter(pa.array(is_missing)).to_pylist()) == {EXPERT_KIND}:
            named += _fill_blank_assessors([table], EXPERT_KIND)
    if not named:
        return []
    problem = f"{counted(named, 'row')} of the kind {EXPERT_KIND} without an assessor are of {EXPERT_KIND!r}"
    fix = Fix("give another name with {}", "assessor_name")
    return [Message(problem, "assessor-from-kind", "note", fixes=(fix,))]


def _may_hide_assessors(table: RoleTable) -> bool:
    """Return whether a table may have several assessors: its format can name them, and documents are repeated."""
    return table.origin.source.has_assessor_column and _has_repeated_pairs(table.cells)


def _hidden_assessor_error(tables: Sequence[RoleTable]) -> InputError:
    source = tables[0].origin.source
    what = "documents" if "document" in tables[0].cells else "pairs of documents"
    problem = f"there is no column for the assessor, and {what} occur several times"
    by_column = Fix("name it with {}", "columns", "assessor=NAME")
    if len(tables) == 1:
        by_name = Fix("if one assessor judged them all, give {}", "assessor_name", source.stem)
    else:
        by_name = Fix("if each file is of one assessor, give {}", "assessor_name", FILE_NAME_PLACEHOLDER)
    problem = f"{problem}; the columns are: {quote_names(source.names)}"
    return InputError(problem, source=source.name, kind="no-column", fix=[by_column, by_name])


def file_name_notes(file_names: Mapping[str, str]) -> list[Message]:
    """Return the note that the names of files are assessors, given the name by path."""
    if not file_names:
        return []
    names = list(dict.fromkeys(file_names.values()))
    fix = Fix("give another with {}", "assessor_name")
    if len(file_names) == 1:
        problem = f"it has no column for the assessor, so the name of the file, {names[0]!r}, is used"
        return [Message(problem, "assessor-from-file-name", "note", Location(next(iter(file_names))), (fix,))]
    problem = f"{len(file_names)} files have no column for the assessor, so the names of the files are used"
    return [Message(f"{problem}: {quote_names(names)}", "assessor-from-file-name", "note")]


def _repeat_warnings(judgments: Judgments, assessors: set[str], repeats: Repeats) -> list[Message]:
    """Return a warning if assessors that are named by their file judged documents several times."""
    counts = {name: n for name, (n, _) in judgments.report.repeats_by_assessor.items() if name in assessors}
    if not counts or repeats == "keep":
        return []
    listed = ", ".join(f"{name} ({n:,})" for name, n in list(counts.items())[:5])
    more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
    problem = f"{counted(sum(counts.values()), 'repeated answer')} not used, only the {repeats} on each document"
    fix = Fix("choose with {}", "repeats", "first" if repeats == "last" else "last")
    return [Message(f"{problem}: {listed}{more}", "repeated-answers", "warning", fixes=(fix,))]


def _missing_query_warnings(judgments: Judgments, column_names: Sequence[str]) -> list[Message]:
    """Return a warning if no column is read for the query, and documents are often judged twice or a name tells it."""
    report = judgments.report
    if "query" in report.columns:
        return []
    unused = [name for name in dict.fromkeys(column_names) if name not in report.columns.values()]
    similar = [name for name in unused if QUERY_LIKE_PATTERN.search(name)]
    if report.repeats >= MIN_REPEAT_SHARE_TO_WARN * report.rows:
        repeats = f"{report.repeats:,} of {counted(report.rows, 'row')} repeat others"
        problem = f"there is no column for the query, and {repeats}"
    elif similar:
        problem = f"there is no column for the query, and {shown(similar[0])} is not used"
    else:
        return []
    name = similar[0] if similar else "NAME"
    fix = Fix("if a column has the query, name it with {}", "columns", f"query={name}")
    return [Message(problem, "no-query", "warning", fixes=(fix,))]


def _label_order_note(label_scale: Scale) -> Message:
    problem = f"the grades are in the order of the labels in {DOCCANO_LABELS_FILE}: {label_scale}"
    return Message(problem, "order-of-labels", "note", fixes=(Fix("give another with {}", "grades"),))


def _has_repeated_pairs(cells: ColumnsByRole) -> bool:
    """Return whether a query-document pair, or a pair of documents that are compared, occurs in several rows."""
    roles = ("query", "document", "left", "right", "winner", "loser")
    codes = np.stack([ids.encode(cells[role])[0] for role in roles if role in cells])
    pairs = codes[:, (codes >= 0).all(axis=0)]
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])


def _encode_and_merge(inputs: OpenInput, tables: Sequence[RoleTable], options: EncodeOptions) -> Judgments:
    """Return the judgments of several tables, whose rows are those of one table in the order of the files."""
    parts = [encode_part(table.cells, table.origin, options, table.bad_rows) for table in tables]
    judgments = merge_parts(parts, options, inputs.name)
    parts.clear()
    release_unused_memory(len(judgments))
    all_notes = (*judgments.report.notes, *inputs.notes, *features_used_notes(inputs))
    return replace(judgments, report=replace(judgments.report, notes=all_notes))


def read_gold(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Scale | Sequence[object] | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    unjudgeable_as: UnjudgeableAs = "lowest",
    map: GradeMapLike | None = None,
    scale: Scale | None = None,
    on_bad_rows: OnBadRows = "error",
    max_bytes: int | str | None = None,
) -> Gold:
    """Read expert grades from files (qrels, LETOR, CSV, Parquet, ...) or a DataFrame.

    Args:
        source: files or a DataFrame, as in `read_judgments`. From a database of the judging service, the grades of gold
            and training pairs and the answers of experts are read.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,grade=gold`.
        separator: separator of the cells of a text file; by default it is detected.
        grades: the scale: `0-4`, or names from least to most relevant. By default as in `read_judgments`.
        unjudgeable: answers that mean 'cannot judge'.
        unjudgeable_as: use them as the lowest grade (`lowest`) or not at all (`drop`).
        map: the grades of the judgments that each expert grade stands for, if the experts' scale is another one:
            `0=0-1,1=2-4` or `{0: [0, 1], 1: [2, 3, 4]}`.
        scale: the scale of named grades, such as that of the judgments, if neither `grades` nor the source states it.
        on_bad_rows: `error`, or `skip` to leave unusable rows out and count them in `.report`.
        max_bytes: maximum size of a file in bytes when decompressed.

    Returns:
        The expert grades.

    Raises:
        InputError: a file cannot be read, a row cannot be used, or a document has two grades.
        UsageError: a parameter is invalid.

    >>> import pandas as pd
    >>> read_gold(pd.DataFrame({"qid": [7, 7], "docid": ["a", "b"], "truth": [2, 0]}))
    <Gold: 2 documents in 1 query, grades 0-2>

    """
    require_one_of("unjudgeable_as", unjudgeable_as, ("lowest", "drop"))
    grade_map = None if map is None else GradeMap.parse(map)
    inputs = open_input(source, format, separator, max_bytes)
    inputs = replace(inputs, sources=[one.expert_grades() for one in inputs.sources])
    tables = read_roles(inputs, GOLD_ROLES, columns, inputs.layout.gold_columns, on_bad_rows)
    options = _gold_options(inputs, tables, grades, unjudgeable, on_bad_rows, scale)
    judged = _merge_expert_grades(inputs, tables, options)
    _refuse_contradictory_grades(judged, inputs.name)
    used = _replace_unjudgeable(judged, unjudgeable_as)
    names = [find_probability_columns(table.origin.source.names) for table in tables]
    shared = names[0] if all(one == names[0] for one in names) else []
    extras = _item_columns(tables, used, shared, partial(read_grade_probabilities, on_bad_rows=on_bad_rows))
    return replace(Gold.from_judgments(used), grade_map=grade_map, extras=extras)


def _gold_options(
    inputs: OpenInput,
    tables: Sequence[RoleTable],
    grades: Any,
    unjudgeable: Any,
    on_bad_rows: OnBadRows = "error",
    named_scale: Scale | None = None,
) -> EncodeOptions:
    return EncodeOptions(
        scale=_parse_scale(grades, inputs, tables),
        named_scale=named_scale,
        unjudgeable=parse_unjudgeable(unjudgeable, _default_unjudgeable(inputs, tables)),
        repeats="keep",
        on_bad_rows=on_bad_rows,
    )


def _merge_expert_grades(inputs: OpenInput, tables: Sequence[RoleTable], options: EncodeOptions) -> Judgments:
    """Return the expert grades of several tables as judgments of one assessor; the tables are kept."""
    named = [replace(table, cells={**table.cells, "assessor": constant_column("gold", len(table))}) for table in tables]
    return _encode_and_merge(inputs, named, options)


def _replace_unjudgeable(judged: Judgments, unjudgeable_as: UnjudgeableAs) -> Judgments:
    """Replace 'cannot judge' by the lowest grade or drop it; count dropped and repeated grades in the report."""
    used = judged.with_unjudgeable(unjudgeable_as)
    skipped = Counter(judged.report.skipped) + Counter({"cannot judge": len(judged) - len(used)})
    report = replace(judged.report, skipped=dict(skipped), repeats=len(used) - used.n_items)
    return replace(used, report=report)


def read_sample(
    source: TableLike,
    *,
    grades: str | Scale | Sequence[object] | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    scale: Scale | None = None,
) -> Gold:
    """Read expert grades of a sample of documents, with the columns `probability` and `draw` if the file has them.

    Rows without a probability were not drawn, and are left out. Of several grades of a drawn document, the median is
    used, the lower one of two. A warning tells if drawn documents have no grade: their cell is blank, or a draw has
    fewer documents than its column `drawn` says.

    Args:
        source: files or a DataFrame, as in :func:`read_gold`. From a database of the judging service, the answers to
            pairs that were drawn by the policy `compare` are read; expert grades if there are none.
        grades: the scale, as in :func:`read_gold`.
        unjudgeable: answers that mean 'cannot judge', which is the lowest grade.
        scale: the scale of named grades, as in :func:`read_gold`.

    Raises:
        InputError: as in :func:`read_gold`, if a probability is not above 0 and at most 1, and if a document was drawn
            twice.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"document": ["a", "b"], "grade": [2, 0], "probability": [0.5, 1.0]})
    >>> read_sample(table).extras
    {'probability': array([0.5, 1. ])}

    """
    inputs = open_input(source)
    sources = [_sampled_rows(one, inputs.layout.gold_columns) for one in inputs.sources]
    if any(one is None for one in sources):
        return read_gold(source, grades=grades, unjudgeable=unjudgeable, scale=scale)
    drawn = [one for one in sources if one is not None]
    from crowdrank.readers.judging_database import SampledAnswers

    notes = [note for one in drawn if isinstance(one, SampledAnswers) for note in one.notes]
    inputs = replace(inputs, sources=drawn, notes=[*inputs.notes, *notes])
    tables = read_roles(inputs, GOLD_ROLES, None, inputs.layout.gold_columns)
    judged = _merge_expert_grades(inputs, tables, _gold_options(inputs, tables, grades, unjudgeable, named_scale=scale))
    used = _with_median_grade_first(_replace_unjudgeable(judged, "lowest"))
    names = [name for name in SAMPLE_COLUMNS if all(name in one.names for one in drawn)]
    draws = _item_columns(tables, used, names, partial(read_sample_columns, names=names))
    _refuse_second_draws(tables, used, draws, inputs.name)
    n_ungraded = sum(one.n_ungraded for one in drawn if isinstance(one, SampledRows))
    warnings = [*_ungraded_warnings(draws, n_ungraded, inputs.name), *_conflict_notes(used, inputs.name)]
    report = replace(used.report, notes=(*used.report.notes, *warnings))
    extras = {**draws, **_drawn_for_column(tables, used)}
    return replace(Gold.from_judgments(replace(used, report=report)), extras=extras)


def _sampled_rows(source: Source, gold_columns: Mapping[str, str]) -> Source | None:
    """Return the rows of a source that were drawn with a known probability; None if it has no probabilities."""
    from crowdrank.readers.judging_database import JudgingDatabase

    if isinstance(source, JudgingDatabase):
        return source.sample()
    if SAMPLE_COLUMNS[0] not in source.names:
        return None
    return SampledRows(source, GOLD_ROLES.find_columns(source.names, source.name, gold_columns)["grade"])


def read_draw_columns(
    source: TableLike,
    judgments: Judgments,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the columns of the judgments of a sample (n,), NaN or None for others; none without a sample."""
    from crowdrank.readers.judging_database import JudgingDatabase

    inputs = open_input(source, format, separator)
    names = [name for name in SAMPLE_COLUMNS if all(name in one.names for one in inputs.sources)]
    if names[:2] != list(SAMPLE_COLUMNS[:2]) or isinstance(inputs.sources[0], JudgingDatabase):
        return {}
    inputs = replace(inputs, sources=[SampledRows(one) for one in inputs.sources])
    tables = read_roles(inputs, Roles(("document",), ("query",)), columns, inputs.layout.columns, "skip")
    by_item = _item_columns(tables, judgments, names, partial(read_sample_columns, names=names))
    of_items: dict[str, NDArray[Any]] = {**by_item, **_drawn_for_column(tables, judgments)}
    return {name: judgments.by_row(values) for name, values in of_items.items()}


def _drawn_for_column(tables: Sequence[RoleTable], judgments: Judgments) -> dict[str, NDArray[np.object_]]:
    """Return what each item was drawn for, None if that is not known; nothing if no table has the column."""
    by_item, is_known = np.full(judgments.n_items, None, object), False
    for table in tables:
        source = table.origin.source
        if DRAWN_FOR_COLUMN in source.names:
            item = judgments.positions(*(table.row_ids(role) for role in ("query", "document")))
            cells = source.read([DRAWN_FOR_COLUMN], BadRows())[DRAWN_FOR_COLUMN]
            texts = np.array([None if cell is None else str(cell).strip() or None for cell in cells.to_pylist()])
            by_item[item[item >= 0]], is_known = texts[item >= 0], True
    return {DRAWN_FOR_COLUMN: by_item} if is_known else {}


def _refuse_second_draws(
    tables: Sequence[RoleTable], judgments: Judgments, draws: Mapping[str, Floats], source_name: str
) -> None:
    """Raise InputError if a document was drawn twice: in two draws, also with the same number."""
    fix = "use the files of one sample and its later draws, as `collect next` wrote them"
    known = np.nan_to_num(np.column_stack(list(draws.values())))
    for table in tables:
        item = judgments.positions(*(table.row_ids(role) for role in ("query", "document")))
        own = np.nan_to_num(read_sample_columns(table.origin.source, list(draws)))
        is_other = (item >= 0) & (own != known[item]).any(axis=1)
        if is_other.any():
            one = int(item[np.argmax(is_other)])
            query, document = (shown(column[one].as_py()) for column in judgments.item_ids())
            problem = f"the document {document} of query {query} was drawn twice, with another draw or probability"
            raise InputError(problem, source=source_name, kind="drawn-twice", fix=fix)
    for number, n_drawn, n_graded in _draw_sizes(draws):
        if n_graded > n_drawn:
            problem = f"draw {number:g} has {counted(n_graded, 'document')}, but {n_drawn:,} were drawn in it"
            raise InputError(
                f"{problem}, so two draws have its number", source=source_name, kind="drawn-twice", fix=fix
            )


def _draw_sizes(draws: Mapping[str, Floats]) -> list[tuple[float, int, int]]:
    """Return (draw number, number of drawn documents, number of graded ones) of each draw of known size."""
    if "drawn" not in draws or "draw" not in draws:
        return []
    draw, n_drawn = draws["draw"], draws["drawn"]
    known = np.unique(draw[~np.isnan(n_drawn)])
    return [(float(one), int(np.nanmin(n_drawn[draw == one])), int((draw == one).sum())) for one in known]


def _ungraded_warnings(draws: Mapping[str, Floats], n_blank_grades: int, source_name: str) -> list[Message]:
    """Return a warning if drawn documents have no grade, given the number of rows with a blank one."""
    n_graded = len(draws[SAMPLE_COLUMNS[0]])
    n_ungraded = max(n_blank_grades, sum(size - graded for _, size, graded in _draw_sizes(draws)))
    if not n_ungraded:
        return []
    drawn = counted(n_graded + n_ungraded, "drawn document")
    problem = f"there is no grade of {n_ungraded:,} of {drawn}, so the sample is not random"
    fix = Fix("let experts grade all drawn documents")
    return [Message(problem, "sample-incomplete", "warning", Location(source_name), (fix,))]


def _conflict_notes(judgments: Judgments, source_name: str) -> list[Message]:
    """Return a note if documents have several different grades, of which the median is used."""
    ends = (ufunc.reduceat(judgments.grade, judgments.offsets[:-1]) for ufunc in (np.minimum, np.maximum))
    n_different = int(np.not_equal(*ends).sum())
    if not n_different:
        return []
    problem = (
        f"{counted(n_different, 'drawn document')} with different grades: the median is used, the lower one of two"
    )
    return [Message(problem, "different-grades", "note", Location(source_name))]


def _with_median_grade_first(judgments: Judgments) -> Judgments:
    """Reorder judgments so that the first grade of each item is its median (the lower of two medians)."""
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    in_order = judgments.grade[np.lexsort((judgments.grade, item))]
    first, last = judgments.offsets[:-1], judgments.offsets[1:] - 1
    grade = in_order.copy()
    grade[first] = in_order[(first + last) // 2]
    return replace(judgments, grade=grade)


def read_labels(source: TableLike) -> Gold:
    """Read labels of documents, as :func:`read_gold` does.

    From a database of the judging service, the labels are read that the policy `compare` used for its first draw. They
    do not know the answers to the pairs that were drawn.

    Raises:
        InputError: as in :func:`read_gold`, and if nothing was drawn in a database.

    """
    from crowdrank.readers.judging_database import JudgingDatabase

    inputs = open_input(source)
    database = inputs.sources[0]
    if not isinstance(database, JudgingDatabase):
        return read_gold(source)
    labels = database.sample_labels()
    if labels is None:
        problem, fix = "no pairs were drawn by the policy compare in it", "give a consensus as labels"
        raise InputError(problem, source=database.name, kind="no-rows", fix=fix)
    return replace(read_gold(labels), backend=database.backend)


def _item_columns(
    tables: Sequence[RoleTable],
    judgments: Judgments,
    names: Sequence[str],
    read_columns: Callable[[Source], Floats],
) -> dict[str, Floats]:
    """Return further columns (n_items,) of the items of judgments, from the files that these were read from."""
    if not names:
        return {}
    by_item = np.full((judgments.n_items, len(names)), np.nan)
    for table in tables:
        item = judgments.positions(*(table.row_ids(role) for role in ("query", "document")))
        by_item[item[item >= 0]] = read_columns(table.origin.source)[item >= 0]
    return dict(zip(names, by_item.T, strict=True))


def _refuse_contradictory_grades(judgments: Judgments, source_name: str) -> None:
    """Raise InputError if a document has two different expert grades."""
    highest = np.maximum.reduceat(judgments.grade, judgments.offsets[:-1])
    lowest = np.minimum.reduceat(judgments.grade, judgments.offsets[:-1])
    if (highest == lowest).all():
        return
    fixes = ["leave one grade for each document", "make labels of several assessors with `crowdrank aggregate`"]
    item = int(np.argmax(highest != lowest))
    query = judgments.queries[int(judgments.item_query[item])].as_py()
    document = judgments.documents[int(judgments.item_document[item])].as_py()
    codes = (lowest[item], highest[item])
    names = ["cannot judge" if code == UNJUDGEABLE else judgments.scale.names[code] for code in codes]
    problem = f"the document {shown(document)} of query {shown(query)} has the grades {names[0]} and {names[1]}"
    raise InputError(problem, source=source_name, kind="contradictory-grades", fix=fixes)
