"""Reading judgments, expert grades, features and runs from files or DataFrames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ALIASES, GOLD_ALIASES, parse_map, resolve
from crowdrank.judgments.encode import Columns, EncodeOptions, answer, as_floats, encode_part
from crowdrank.judgments.formats import Layout, open_source
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.letor import LetorSource
from crowdrank.judgments.limits import BYTES_PER_NUMBER, lines_of, parse_bytes, too_large
from crowdrank.judgments.merge import merge_parts
from crowdrank.judgments.platforms import JsonSource
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.sources import Source, check_size, no_rows, opened
from crowdrank.judgments.table import NO_QUERY, UNJUDGEABLE, Judgments

OPTIONAL = ("query", "family", "time", "duration", "cost", "honeypot")


def read_judgments(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Sequence[object] | None = None,
    scales: str | Path | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    repeats: str = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    on_bad_rows: str = "error",
    max_bytes: int | str | None = None,
) -> Judgments:
    """Judgments from a file or a DataFrame.

    Args:
        source: a path (CSV, TSV, Parquet, JSON Lines, qrels; gzip of each; exports of Label Studio, Toloka, MTurk,
            Quepid and OpenSearch, which are recognized) or a DataFrame (pandas, polars, pyarrow).
        format: the format, where neither suffix nor content tells it: `trec-rf10`, `crowd-kit`, `qrels`, ...
        columns: which column plays which role, as in `query=topicID,document=docID,assessor=workerID,grade=label`.
            Names that the field uses (qid, docid, worker, label, ...) are known.
        separator: what separates the cells of a text file, where it is not the comma or tab that the suffix says.
        grades: the scale: `0-4`, or names from least to most relevant (`Bad,Fair,Good`). By default the whole
            numbers that occur.
        scales: a CSV file that gives a scale per assessor or group of assessors.
        unjudgeable: answers that mean 'cannot judge'. They are kept apart; a model uses them as it is told.
        repeats: which of several judgments of one assessor on one document holds: `last`, `first`, all of them
            (`keep`), or none (`error`).
        exclude: assessors to leave out: ids, or a file with one id a line.
        family_pattern: a regular expression whose first group, matched from the start of an assessor's id, is the
            family, where there is no column for it: `(.*)_p[0-9]+` for judges called model_p7.
        on_bad_rows: `error`, or `skip` to leave unusable rows out and count them in `.report`.
        max_bytes: the largest file to read, in bytes when unpacked; a number, or as in `500MB` or `2GB`.

    Ids are compared exactly: white space, case and Unicode forms count. Every row that is read and not used is counted
    in `.report`, by reason.

    >>> import pandas as pd
    >>> read_judgments(pd.DataFrame({"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": [0, 1, 1]}))
    <Judgments: 3 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>

    """
    opened_source, layout = open_source(source, format, separator, max_bytes)
    bad_rows = BadRows(on_bad_rows)
    mapped = {**layout.columns, **parse_map(columns)}
    needed = ["document", "grade"] if format_has_no_assessor(opened_source) else ["document", "assessor", "grade"]
    found, cells = _columns(opened_source, needed, OPTIONAL, mapped, ALIASES, bad_rows)
    if "assessor" not in cells:
        cells["assessor"] = _constant(opened_source.name.rsplit("/", 1)[-1], len(cells["grade"]))
    options = EncodeOptions(
        scale=Scale.parse(grades) if grades is not None else None,
        scale_rules=ScaleRules.read(scales) if scales is not None else None,
        unjudgeable=unjudgeable_answers(unjudgeable, layout),
        repeats=repeats,
        exclude=tuple(excluded_ids(exclude)),
        family_pattern=family_regex(family_pattern),
        on_bad_rows=on_bad_rows,
    )
    return merge_parts([encode_part(cells, Origin(opened_source, found), options, bad_rows)], options)


def read_gold(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    grades: str | Sequence[object] | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    unjudgeable_as: str = "lowest",
    on_bad_rows: str = "error",
    max_bytes: int | str | None = None,
) -> Gold:
    """Expert grades from a file (qrels, LETOR, CSV, Parquet, ...) or a DataFrame; arguments as in `read_judgments`.

    >>> import pandas as pd
    >>> read_gold(pd.DataFrame({"qid": [7, 7], "docid": ["a", "b"], "truth": [2, 0]}))
    <Gold: 2 documents in 1 query, grades 0-2>
    """
    require_one_of("unjudgeable_as", unjudgeable_as, ("lowest", "drop"))
    opened_source, layout = open_source(source, format, separator, max_bytes)
    bad_rows = BadRows(on_bad_rows)
    mapped = {**layout.gold_columns, **parse_map(columns)}
    found, cells = _columns(opened_source, ["document", "grade"], ["query"], mapped, GOLD_ALIASES, bad_rows)
    cells["assessor"] = _constant("gold", len(cells["grade"]))
    options = EncodeOptions(
        scale=Scale.parse(grades) if grades is not None else None,
        unjudgeable=unjudgeable_answers(unjudgeable, layout),
        repeats="keep",
        on_bad_rows=on_bad_rows,
    )
    judged = merge_parts([encode_part(cells, Origin(opened_source, found), options, bad_rows)], options)
    _refuse_contradictions(judged, opened_source.name)
    used = judged.with_unjudgeable(unjudgeable_as)
    skipped = Counter(judged.report.skipped) + Counter({"cannot judge": len(judged) - len(used)})
    report = replace(judged.report, skipped=dict(skipped), repeats=len(used) - used.n_items)
    return Gold.of(replace(used, report=report))


@dataclass(frozen=True, eq=False)
class Features:
    """Feature matrix with the query and the document of each row."""

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    matrix: NDArray[np.float64]  # (n, n_features)
    names: tuple[str, ...]
    grade: NDArray[np.float64] | None = None  # (n,) where the file gives one
    zeros_omitted: bool = False  # whether a feature without a column is 0, as in LETOR files

    def __repr__(self) -> str:
        documents, queries = counted(len(self.query), "document"), counted(len(self.query.unique()), "query")
        return f"<Features: {documents} in {queries}, {counted(len(self.names), 'feature')}>"

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Only these rows, in this order.

        >>> import pandas as pd
        >>> known = read_features(pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "bm25": [3.5, 1.0]}))
        >>> known.take(np.array([1])).document.to_pylist()
        ['b']
        """
        at, grade = pa.array(rows), None if self.grade is None else self.grade[rows]
        return replace(
            self, query=self.query.take(at), document=self.document.take(at), matrix=self.matrix[rows], grade=grade
        )

    def on_columns(self, names: Sequence[str]) -> Features:
        """Return the features in the columns `names`, with zeros in those that are not there.

        >>> import pandas as pd
        >>> known = read_features(pd.DataFrame({"document": ["a"], "f1": [3.5], "f9": [1.0]}))
        >>> known.on_columns(("f1", "f2")).matrix
        array([[3.5, 0. ]])
        """
        if tuple(names) == self.names:
            return self
        place = {name: number for number, name in enumerate(self.names)}
        limit = parse_bytes(None)
        if len(self.matrix) * len(names) * BYTES_PER_NUMBER > limit:
            raise too_large("", f"a table of {len(self.matrix):,} documents and {len(names):,} features", limit)
        there = [number for number, name in enumerate(names) if name in place]
        matrix = np.zeros((len(self.matrix), len(names)))
        matrix[:, there] = self.matrix[:, [place[names[number]] for number in there]]
        return replace(self, matrix=matrix, names=tuple(names))


def read_features(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
) -> Features:
    """Features from a LETOR/svmlight file, or from a table whose further columns are all numbers.

    A LETOR feature is named by its position (f1, f2, ...); there is a column for each position that the file names.
    Neither the file, when unpacked, nor the matrix may take more than `max_bytes` bytes.

    >>> import pandas as pd
    >>> read_features(pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "bm25": [3.5, 1.0]}))
    <Features: 2 documents in 1 query, 1 feature>
    """
    opened_source, _ = open_source(source, format, separator, max_bytes)
    if isinstance(opened_source, LetorSource):
        table = opened_source.read(opened_source.names, BadRows())
        matrix, names = opened_source.features(parse_bytes(max_bytes))
        query, document = (table[role].combine_chunks() for role in ("query", "document"))
        expert = _floats(table["grade"], "grade", opened_source)
        return Features(query, document, matrix, names, expert, zeros_omitted=True)
    found = resolve(
        opened_source.names,
        source=opened_source.name,
        required=["document"],
        optional=["query", "grade"],
        mapped=parse_map(columns),
        aliases=GOLD_ALIASES,
    )
    names = tuple(name for name in opened_source.names if name not in found.values())
    if not names:
        raise InputError("there is no feature column", source=opened_source.name, fix="add one number a column")
    table = _rows(opened_source, opened_source.names)
    matrix = np.column_stack([_floats(table[name], name, opened_source) for name in names])
    grade = _floats(table[found["grade"]], found["grade"], opened_source) if "grade" in found else None
    query, document = _pairs(table, found, opened_source)
    return Features(query, document, matrix, names, grade)


def read_run(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    scale: Scale | None = None,
    max_bytes: int | str | None = None,
) -> Any:
    """A ranking to score: a consensus, a table of scores, or a TREC run file, as a DataFrame.

    The columns are query, document, score and, where the file has one, grade: a number, or a name on `scale`.

    >>> import pandas as pd
    >>> read_run(pd.DataFrame({"qid": ["q"], "docid": ["d"], "relevance": [1.5]}))
      query document  score
    0     q        d    1.5
    """
    opened_source, _ = open_source(source, format, separator, max_bytes)
    mapped = parse_map(columns)
    found = resolve(
        opened_source.names,
        source=opened_source.name,
        required=["document", "score"],
        optional=["query", "grade"],
        mapped=mapped,
        aliases={**ALIASES, "grade": ()},
    )
    table = _rows(opened_source, list(dict.fromkeys(found.values())))
    query, document = _pairs(table, found, opened_source)
    score = _floats(table[found["score"]], found["score"], opened_source, blanks=False)
    out = {"query": query, "document": document, "score": pa.array(score)}
    grade = _grade_values(table[found["grade"]], opened_source, found["grade"], scale) if "grade" in found else None
    if grade is not None:
        out["grade"] = pa.array(grade)
    return frames.from_arrow(pa.table(out), opened_source.backend)


def _grade_values(
    column: pa.ChunkedArray, source: Source, name: str, scale: Scale | None
) -> NDArray[np.float64] | None:
    """Grades as numbers: as they are, or what names on a scale are worth; None where they are neither."""
    if _numeric_text(column):
        return _floats(column, name, source)
    codes = [None if scale is None else scale.code(value) for value in column.to_pylist()]
    if scale is None or any(code is None for code in codes):
        return None
    return np.array([scale.values[code] for code in codes if code is not None])


def format_has_no_assessor(source: Source) -> bool:
    """Whether a format has no place for the assessor, so that the file as a whole is one."""
    if isinstance(source, JsonSource):
        return not source.has_assessor
    return isinstance(source, LetorSource) or source.names[:2] == ["query", "iteration"]


def _columns(
    source: Source,
    required: Sequence[str],
    optional: Sequence[str],
    mapped: Mapping[str, str],
    aliases: Mapping[str, tuple[str, ...]],
    bad_rows: BadRows,
) -> tuple[dict[str, str], Columns]:
    found = resolve(
        source.names, source=source.name, required=required, optional=optional, mapped=mapped, aliases=aliases
    )
    table = source.read(list(dict.fromkeys(found.values())), bad_rows)
    return found, {role: table[name] for role, name in found.items()}


def _rows(source: Source, names: list[str]) -> pa.Table:
    table = source.read(names, BadRows())
    if not len(table):
        raise no_rows(source.name)
    return table


def _pairs(table: pa.Table, found: Mapping[str, str], source: Source) -> tuple[pa.Array, pa.Array]:
    """The query and the document of each row; an id that is missing is refused."""
    columns: list[pa.Array] = []
    for role in ("query", "document"):
        if role not in found:
            columns.append(pa.array([NO_QUERY] * len(table)))
            continue
        codes, names = ids.encode(table[found[role]])
        if (codes < 0).any():
            place = source.place(int(np.argmax(codes < 0)))
            problem, column = f"the {role} is missing", found[role]
            raise InputError(problem, source=source.name, place=place, column=column, fix="fill it in")
        columns.append(names.take(pa.array(codes)))
    return columns[0], columns[1]


def _constant(value: str, n: int) -> pa.ChunkedArray:
    codes = pa.array(np.zeros(n, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([value]))])


def unjudgeable_answers(unjudgeable: object, layout: Layout | None = None) -> frozenset[str]:
    """The answers that mean 'cannot judge', as they are compared: told, or as the format has it."""
    if unjudgeable is None:
        return frozenset(() if layout is None else layout.unjudgeable)
    if isinstance(unjudgeable, str):
        return frozenset(map(answer, unjudgeable.split(",")))
    return frozenset(map(answer, unjudgeable if isinstance(unjudgeable, Iterable) else [unjudgeable]))


def family_regex(text: str | None) -> re.Pattern[str] | None:
    """The regular expression of families."""
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as problem:
        raise UsageError(f"--family-pattern cannot read '{text}' ({problem}); write a regular expression.") from problem


def excluded_ids(exclude: str | Path | Collection[object] | None) -> Collection[str]:
    """Return the ids of the assessors to leave out: as they are, or from a file with one exact id per line."""
    if isinstance(exclude, str | Path):
        check_size(exclude)
        with opened(exclude) as stream:
            lines = [line.decode().rstrip("\r\n") for _, line in lines_of(stream, str(exclude))]
        return [line for line in lines if line]
    return [str(name) for name in exclude or ()]


def _refuse_contradictions(judged: Judgments, source: str) -> None:
    highest = np.maximum.reduceat(judged.grade, judged.offsets[:-1])
    lowest = np.minimum.reduceat(judged.grade, judged.offsets[:-1])
    if (highest == lowest).all():
        return
    item = int(np.argmax(highest != lowest))
    query = judged.queries[int(judged.item_query[item])].as_py()
    document = judged.documents[int(judged.item_document[item])].as_py()
    codes = (lowest[item], highest[item])
    names = ["cannot judge" if code == UNJUDGEABLE else judged.scale.names[code] for code in codes]
    raise InputError(
        f"the document {shown(document)} of query {shown(query)} has the grades {names[0]} and {names[1]}",
        source=source,
        fix="leave one grade for each document",
    )


def _numeric_text(column: pa.ChunkedArray) -> bool:
    """Whether a grade column holds numbers; named grades cannot be compared as numbers."""
    return as_floats(column) is not None


def _floats(column: pa.ChunkedArray, name: str, source: Source, *, blanks: bool = True) -> NDArray[np.float64]:
    """A column as numbers, a blank as NaN where it may be one; the first cell that will not do is named."""
    values = as_floats(column)
    if values is not None:
        bad = np.isinf(values) if blanks else ~np.isfinite(values)
        if not bad.any():
            return values
        row = int(np.argmax(bad))
    else:
        cells = (pa.chunked_array([column.slice(row, 1).combine_chunks()]) for row in range(len(column)))
        row = next((row for row, cell in enumerate(cells) if as_floats(cell) is None), 0)
    cell = column[row].as_py()
    raise InputError(
        "the cell is empty" if cell is None or cell == "" else f"{shown(cell)} is not a number",
        source=source.name,
        place=source.place(row),
        column=name,
        fix="write a number",
    )
