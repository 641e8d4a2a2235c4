"""Read judgments, expert grades, features and runs from files or DataFrames."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank.errors import DataWarning, Fix, InputError, Location, Message, UsageError, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import (
    COLUMN_ALIASES,
    GOLD_COLUMN_ALIASES,
    GRADE_LIKE_COLUMNS,
    TEXT_LIKE_COLUMNS,
    parse_column_map,
    quote_names,
    resolve_columns,
)
from crowdrank.judgments.encode import EncodeOptions, encode_part, normalize_answer, parse_floats
from crowdrank.judgments.formats import FormatLayout
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.grade_map import GradeMap, GradeMapLike
from crowdrank.judgments.inputs import RoleTable, TableLike, concat_tables, constant_column, open_input, read_roles
from crowdrank.judgments.letor import LetorSource, feature_position, is_letor_feature
from crowdrank.judgments.limits import BYTES_PER_FLOAT, numbered_lines, parse_bytes, too_large_error
from crowdrank.judgments.merge import merge_parts
from crowdrank.judgments.read_options import Format, OnBadRows, Repeats, UnjudgeableAs
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.sources import Source, check_size, no_rows_error, open_decompressed
from crowdrank.judgments.table import NO_QUERY, UNJUDGEABLE, Judgments

OPTIONAL_ROLES = ("query", "family", "time", "duration", "cost", "honeypot")
"""Roles of the columns that a file of judgments can have."""
JudgmentsLike: TypeAlias = "Judgments | TableLike"
"""Judgments, or anything that `read_judgments` reads."""
FeaturesLike: TypeAlias = "Features | TableLike"
"""Features, or anything that `read_features` reads."""


def read_judgments(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Sequence[object] | None = None,
    scales: str | Path | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    repeats: Repeats = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    assessor_name: str | None = None,
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
            order of the files.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,assessor=workerID,grade=label`. Common
            names (qid, docid, worker, label, ...) are recognized.
        separator: separator of the cells of a text file; by default it is detected.
        grades: the scale: `0-4`, or names from least to most relevant (`Bad,Fair,Good`). By default the whole
            numbers that occur.
        scales: a CSV file with a scale per assessor or family of assessors.
        unjudgeable: answers that mean 'cannot judge'. They are not grades; models have a parameter for their use.
        repeats: which of several judgments of one assessor on one document to use: the `last`, the `first`, or all of
            them (`keep`); `error` raises an InputError.
        exclude: ids of assessors to leave out, or a file with one id per line.
        family_pattern: a regular expression whose first group, matched from the start of an assessor's id, is the
            family, if there is no column for it: `(.*)_p[0-9]+` for judges called model_p7.
        assessor_name: the assessor of files without a column for it. By default, the name of each such file without
            its suffix.
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
    files = open_input(source, format, separator, max_bytes)
    bad_rows = BadRows(on_bad_rows)
    table = read_roles(
        files,
        bad_rows,
        required_roles=["document", "grade"],
        optional_roles=OPTIONAL_ROLES,
        columns=columns,
        layout_columns=files.layout.columns,
        assessor_name=assessor_name,
        needs_assessor=True,
    )
    options = EncodeOptions(
        scale=Scale.parse(grades) if grades is not None else None,
        scale_rules=ScaleRules.read(scales) if scales is not None else None,
        unjudgeable=parse_unjudgeable(unjudgeable, files.layout),
        repeats=repeats,
        exclude=tuple(excluded_ids(exclude)),
        family_pattern=compile_family_pattern(family_pattern),
        on_bad_rows=on_bad_rows,
    )
    part = encode_part(table.cells, Origin(table.source, table.columns), options, bad_rows)
    return _with_read_notes(merge_parts([part], options), table)


def _with_read_notes(judgments: Judgments, table: RoleTable) -> Judgments:
    """Return the judgments with the columns and the notes of the table in their read report."""
    notes = (*judgments.report.notes, *table.notes)
    return replace(judgments, report=replace(judgments.report, columns=table.columns, notes=notes))


def read_gold(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Sequence[object] | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    unjudgeable_as: UnjudgeableAs = "lowest",
    map: GradeMapLike | None = None,
    on_bad_rows: OnBadRows = "error",
    max_bytes: int | str | None = None,
) -> Gold:
    """Read expert grades from files (qrels, LETOR, CSV, Parquet, ...) or a DataFrame.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,grade=gold`.
        separator: separator of the cells of a text file; by default it is detected.
        grades: the scale: `0-4`, or names from least to most relevant. By default the whole numbers that occur.
        unjudgeable: answers that mean 'cannot judge'.
        unjudgeable_as: use them as the lowest grade (`lowest`) or not at all (`drop`).
        map: the grades of the judgments that each expert grade stands for, if the experts' scale is another one:
            `0=0-1,1=2-4` or `{0: [0, 1], 1: [2, 3, 4]}`.
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
    files = open_input(source, format, separator, max_bytes)
    bad_rows = BadRows(on_bad_rows)
    table = read_roles(
        files,
        bad_rows,
        required_roles=["document", "grade"],
        optional_roles=["query"],
        columns=columns,
        layout_columns=files.layout.gold_columns,
        aliases=GOLD_COLUMN_ALIASES,
    )
    options = EncodeOptions(
        scale=Scale.parse(grades) if grades is not None else None,
        unjudgeable=parse_unjudgeable(unjudgeable, files.layout),
        repeats="keep",
        on_bad_rows=on_bad_rows,
    )
    cells = {**table.cells, "assessor": constant_column("gold", len(table.cells["grade"]))}
    part = encode_part(cells, Origin(table.source, table.columns), options, bad_rows)
    judged = _with_read_notes(merge_parts([part], options), table)
    _refuse_contradictory_grades(judged, table.source.name)
    used = judged.with_unjudgeable(unjudgeable_as)
    skipped = Counter(judged.report.skipped) + Counter({"cannot judge": len(judged) - len(used)})
    report = replace(judged.report, skipped=dict(skipped), repeats=len(used) - used.n_items)
    return replace(Gold.of(replace(used, report=report)), grade_map=grade_map)


@dataclass(frozen=True, eq=False)
class Features:
    """Feature matrix with the query and the document of each row.

    Attributes:
        query: query ids (n,).
        document: document ids (n,).
        matrix: features (n, n_features).
        names: names of the features.
        grade: expert grades (n,), if the file has them.
        zeros_omitted: whether a feature without a column is 0, as in LETOR files.
        columns: name of the column that was read for each role.
        notes: columns that are not used as features.

    """

    query: pa.Array
    document: pa.Array
    matrix: NDArray[np.float64]
    names: tuple[str, ...]
    grade: NDArray[np.float64] | None = None
    zeros_omitted: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()

    def __repr__(self) -> str:
        documents, queries = counted(len(self.query), "document"), counted(len(self.query.unique()), "query")
        return f"<Features: {documents} in {queries}, {counted(len(self.names), 'feature')}>"

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Return the given rows, in this order.

        >>> import pandas as pd
        >>> features = read_features(pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "bm25": [3.5, 1.0]}))
        >>> features.take(np.array([1])).document.to_pylist()
        ['b']
        """
        positions, grade = pa.array(rows), None if self.grade is None else self.grade[rows]
        query, document = self.query.take(positions), self.document.take(positions)
        return replace(self, query=query, document=document, matrix=self.matrix[rows], grade=grade)

    def on_columns(self, names: Sequence[str]) -> Features:
        """Return the features with the columns `names`, in this order; missing columns are filled with zeros.

        >>> import pandas as pd
        >>> features = read_features(pd.DataFrame({"document": ["a"], "f1": [3.5], "f9": [1.0]}))
        >>> features.on_columns(("f1", "f2")).matrix
        array([[3.5, 0. ]])
        """
        if tuple(names) == self.names:
            return self
        column_index = {name: number for number, name in enumerate(self.names)}
        max_bytes = parse_bytes(None)
        if len(self.matrix) * len(names) * BYTES_PER_FLOAT > max_bytes:
            raise too_large_error(
                "", f"a table of {len(self.matrix):,} documents and {len(names):,} features", max_bytes
            )
        known_columns = [number for number, name in enumerate(names) if name in column_index]
        matrix = np.zeros((len(self.matrix), len(names)))
        matrix[:, known_columns] = self.matrix[:, [column_index[names[number]] for number in known_columns]]
        return replace(self, matrix=matrix, names=tuple(names))


def read_features(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
) -> Features:
    """Read features from LETOR (svmlight) files, or from tables whose other columns are all numbers.

    LETOR features are named by their positions (f1, f2, ...); there is a column for each position that occurs. In a
    table, the columns of query, document and grade are not features. Neither are other columns that look like a grade
    (`target`, `y`, `label`, ...), which raise a `DataWarning`, nor texts of the query or the document; see `.notes`.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID`.
        separator: separator of the cells of a text file; by default it is detected.
        max_bytes: maximum size in bytes of a file when decompressed, and of the matrix.

    Returns:
        The features.

    Raises:
        InputError: a file cannot be read, or a feature is not a number.

    >>> import pandas as pd
    >>> read_features(pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "bm25": [3.5, 1.0]}))
    <Features: 2 documents in 1 query, 1 feature>

    """
    files = open_input(source, format, separator, max_bytes, allow_books=False)
    parts = [_read_features_from(one, parse_column_map(columns), parse_bytes(max_bytes)) for one in files.sources]
    features = _concat_features(parts, [one.name for one in files.sources])
    features = replace(features, notes=(*files.notes, *features.notes))
    for note in features.notes:
        if note.severity == "warning":
            warnings.warn(DataWarning(note), stacklevel=2)
    return features


def _read_features_from(source: Source, column_map: Mapping[str, str], max_bytes: int) -> Features:
    """Read features from one source."""
    if isinstance(source, LetorSource):
        table = source.read(source.names, BadRows())
        matrix, names = source.features(max_bytes)
        query, document = (table[role].combine_chunks() for role in ("query", "document"))
        return Features(query, document, matrix, names, _to_floats(table["grade"], "grade", source), zeros_omitted=True)
    roles = resolve_columns(
        source.names,
        source=source.name,
        required_roles=["document"],
        optional_roles=["query", "grade"],
        column_map=column_map,
        aliases=GOLD_COLUMN_ALIASES,
    )
    table = _read_rows(source, source.names)
    names, notes = _select_feature_columns(table, roles, source)
    if not names:
        raise InputError("there is no feature column", source=source.name, fix="add a column of numbers per feature")
    matrix = np.column_stack([_feature_values(table[name], name, source) for name in names])
    grades = _to_floats(table[roles["grade"]], roles["grade"], source) if "grade" in roles else None
    query, document = _query_document_ids(table, roles, source)
    columns = {role: roles[role] for role in COLUMN_ALIASES if role in roles}
    return Features(query, document, matrix, names, grades, columns=columns, notes=notes)


def _select_feature_columns(
    table: pa.Table, roles: Mapping[str, str], source: Source
) -> tuple[tuple[str, ...], tuple[Message, ...]]:
    """Return the names of the columns that are features, and notes about the columns that are not."""
    others = [name for name in table.column_names if name not in roles.values()]
    grades = [name for name in others if name.casefold() in GRADE_LIKE_COLUMNS]
    texts = [name for name in others if name.casefold() in TEXT_LIKE_COLUMNS and parse_floats(table[name]) is None]
    notes, location = [], Location(source.name)
    if "grade" in roles:
        problem = f"the column {shown(roles['grade'])} is read as the expert grade, not as a feature"
        notes.append(Message(problem, "grade-among-features", "note", location))
    if grades:
        problem = f"not used as features, because their names are those of grades: {quote_names(grades)}"
        fixes = (Fix("if they are features, rename them"), Fix("read one as the expert grade with {}", "columns"))
        notes.append(Message(problem, "grade-like-features", "warning", location, fixes))
    if texts:
        problem = f"not used as features, because they hold text: {quote_names(texts)}"
        notes.append(Message(problem, "text-columns", "note", location))
    return tuple(name for name in others if name not in (*grades, *texts)), tuple(notes)


def _feature_values(column: pa.ChunkedArray, column_name: str, source: Source) -> NDArray[np.float64]:
    """Return a feature column as numbers; raise InputError if a cell is not a number."""
    fixes = ["features are numbers: encode text as numbers, for example one column per value", "remove the column"]
    return _to_floats(column, column_name, source, fixes)


def _concat_features(parts: Sequence[Features], source_names: Sequence[str]) -> Features:
    """Return the rows of the features of several files as one matrix; a LETOR file has 0 for features it lacks."""
    if len(parts) == 1:
        return parts[0]
    names = list(dict.fromkeys(name for part in parts for name in part.names))
    if all(map(is_letor_feature, names)):
        names.sort(key=feature_position)
    for part, source in zip(parts, source_names, strict=True):
        missing = [name for name in names if name not in part.names]
        if missing and not part.zeros_omitted:
            problem = f"it has no column for the features {quote_names(missing)}, which other files have"
            raise InputError(problem, source=source, kind="no-column", fix="give every file the same columns")
    pairs = [{"query": pa.chunked_array([part.query]), "document": pa.chunked_array([part.document])} for part in parts]
    id_columns = {role: column.combine_chunks() for role, column in concat_tables(pairs, ("query", "document")).items()}
    grades = [np.full(len(part.matrix), np.nan) if part.grade is None else part.grade for part in parts]
    return Features(
        id_columns["query"],
        id_columns["document"],
        np.concatenate([part.on_columns(names).matrix for part in parts]),
        tuple(names),
        None if all(part.grade is None for part in parts) else np.concatenate(grades),
        all(part.zeros_omitted for part in parts),
        parts[0].columns,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def read_run(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    scale: Scale | None = None,
    max_bytes: int | str | None = None,
) -> Any:
    """Read a ranking: a consensus, a table of scores, or a TREC run.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,score=bm25`.
        separator: separator of the cells of a text file; by default it is detected.
        scale: the scale of named grades.
        max_bytes: maximum size of a file in bytes when decompressed.

    Returns:
        A DataFrame with the columns query, document, score and, if the file has one, grade as a number.

    Raises:
        InputError: a file cannot be read, or a score is not a number.

    >>> import pandas as pd
    >>> read_run(pd.DataFrame({"qid": ["q"], "docid": ["d"], "relevance": [1.5]}))
      query document  score
    0     q        d    1.5

    """
    ranking, _ = read_run_and_columns(source, format, columns, separator, scale, max_bytes)
    return ranking


def read_run_and_columns(
    source: TableLike,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    scale: Scale | None = None,
    max_bytes: int | str | None = None,
) -> tuple[Any, Mapping[str, str]]:
    """Read a ranking as :func:`read_run` does; return it with the name of the column that was read for each role."""
    files = open_input(source, format, separator, max_bytes, allow_books=False)
    aliases = {**COLUMN_ALIASES, "grade": ()}
    table = read_roles(
        files,
        BadRows(),
        required_roles=["document", "score"],
        optional_roles=["query", "grade"],
        columns=columns,
        aliases=aliases,
    )
    rows = pa.table(table.cells)
    if not len(rows):
        raise no_rows_error(table.source.name)
    query, document = _query_document_ids(rows, {role: role for role in rows.column_names}, table.source, table.columns)
    scores = _to_floats(rows["score"], table.columns["score"], table.source, allow_blanks=False)
    output_columns = {"query": query, "document": document, "score": pa.array(scores)}
    if "grade" in table.cells:
        grades = _grade_values(rows["grade"], table.source, table.columns["grade"], scale)
        output_columns |= {} if grades is None else {"grade": pa.array(grades)}
    return frames.from_arrow(pa.table(output_columns), table.source.backend), table.columns


def _grade_values(
    column: pa.ChunkedArray, source: Source, column_name: str, scale: Scale | None
) -> NDArray[np.float64] | None:
    """Return grades as numbers: named grades by their values on the scale, or None if a name is not on it."""
    if parse_floats(column) is not None:
        return _to_floats(column, column_name, source)
    codes = [None if scale is None else scale.code(value) for value in column.to_pylist()]
    if scale is None or any(code is None for code in codes):
        return None
    return np.array([scale.values[code] for code in codes if code is not None])


def _read_rows(source: Source, names: list[str]) -> pa.Table:
    """Read the columns `names`; raise InputError if there are no rows."""
    table = source.read(names, BadRows())
    if not len(table):
        raise no_rows_error(source.name)
    return table


def _query_document_ids(
    table: pa.Table, roles: Mapping[str, str], source: Source, display_names: Mapping[str, str] | None = None
) -> tuple[pa.Array, pa.Array]:
    """Return the query id and the document id of each row; raise InputError if an id is missing.

    Args:
        table: the rows.
        roles: column of `table` by role.
        source: source of the rows, for errors.
        display_names: column name in errors by role, if it differs from `roles`.

    """
    columns: list[pa.Array] = []
    for role in ("query", "document"):
        if role not in roles:
            columns.append(pa.array([NO_QUERY] * len(table)))
            continue
        codes, names = ids.encode(table[roles[role]])
        if (codes < 0).any():
            place = source.place(int(np.argmax(codes < 0)))
            column = (display_names or roles)[role]
            raise InputError(f"the {role} is missing", source=source.name, place=place, column=column, fix="fill it in")
        columns.append(names.take(pa.array(codes)))
    return columns[0], columns[1]


def parse_unjudgeable(unjudgeable: object, layout: FormatLayout | None = None) -> frozenset[str]:
    """Return the answers that mean 'cannot judge', normalized for comparison.

    Args:
        unjudgeable: an answer, several, or several as text separated by commas; by default those of the layout.
        layout: layout of the file.

    """
    if unjudgeable is None:
        return frozenset(() if layout is None else layout.unjudgeable)
    if isinstance(unjudgeable, str):
        return frozenset(map(normalize_answer, unjudgeable.split(",")))
    return frozenset(map(normalize_answer, unjudgeable if isinstance(unjudgeable, Iterable) else [unjudgeable]))


def compile_family_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Compile the regular expression for families in assessor ids."""
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as problem:
        problem_text = f"is {shown(pattern)}, which is not a regular expression ({problem})"
        raise UsageError(problem_text, parameter="family_pattern") from problem


def excluded_ids(exclude: str | Path | Collection[object] | None) -> Collection[str]:
    """Return the ids of the assessors to exclude.

    Args:
        exclude: the ids, or a file with one id per line.

    """
    if isinstance(exclude, str | Path):
        check_size(exclude)
        with open_decompressed(exclude) as stream:
            lines = [line.decode().rstrip("\r\n") for _, line in numbered_lines(stream, str(exclude))]
        return [line for line in lines if line]
    return [str(name) for name in exclude or ()]


def _refuse_contradictory_grades(judgments: Judgments, source_name: str) -> None:
    """Raise InputError if a document has two different expert grades."""
    highest = np.maximum.reduceat(judgments.grade, judgments.offsets[:-1])
    lowest = np.minimum.reduceat(judgments.grade, judgments.offsets[:-1])
    if (highest == lowest).all():
        return
    item = int(np.argmax(highest != lowest))
    query = judgments.queries[int(judgments.item_query[item])].as_py()
    document = judgments.documents[int(judgments.item_document[item])].as_py()
    codes = (lowest[item], highest[item])
    names = ["cannot judge" if code == UNJUDGEABLE else judgments.scale.names[code] for code in codes]
    raise InputError(
        f"the document {shown(document)} of query {shown(query)} has the grades {names[0]} and {names[1]}",
        source=source_name,
        kind="contradictory-grades",
        fix="leave one grade for each document",
    )


def _to_floats(
    column: pa.ChunkedArray,
    column_name: str,
    source: Source,
    fixes: Sequence[str] = ("write a number",),
    allow_blanks: bool = True,
) -> NDArray[np.float64]:
    """Return a column as numbers; raise InputError at the first cell that is not a finite number.

    Args:
        column: the cells.
        column_name: name of the column in errors.
        source: source of the column, for errors.
        fixes: advice for errors.
        allow_blanks: whether to return NaN for a blank cell instead of raising an error.

    """
    values = parse_floats(column)
    if values is not None:
        is_bad = np.isinf(values) if allow_blanks else ~np.isfinite(values)
        if not is_bad.any():
            return values
        row = int(np.argmax(is_bad))
    else:
        cells = (pa.chunked_array([column.slice(row, 1).combine_chunks()]) for row in range(len(column)))
        row = next((row for row, cell in enumerate(cells) if parse_floats(cell) is None), 0)
    cell = column[row].as_py()
    if isinstance(cell, str) and re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell):
        fixes = ["write decimals with a point"]
    raise InputError(
        "the cell is empty" if cell is None or cell == "" else f"{shown(cell)} is not a number",
        source=source.name,
        place=source.place(row),
        column=column_name,
        kind="not-a-number",
        fix=fixes,
    )
