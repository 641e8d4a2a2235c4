"""Feature matrices of documents."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import DataWarning, Fix, InputError, Location, Message, near, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import (
    GOLD_COLUMN_ALIASES,
    GRADE_LIKE_COLUMNS,
    TEXT_LIKE_COLUMNS,
    Roles,
    feature_position,
    is_letor_feature,
    parse_column_map,
    quote_names,
)
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.readers.cells import parse_floats, require_floats
from crowdrank.readers.files import BYTES_PER_FLOAT, parse_bytes, too_large_error
from crowdrank.readers.inputs import RoleTable, TableLike, open_input
from crowdrank.readers.letor import LetorSource
from crowdrank.readers.read_options import Format
from crowdrank.readers.sources import BadRows, Source, columns_by_role

FEATURE_ROLES = Roles(("document",), ("query", "grade"), GOLD_COLUMN_ALIASES)
"""Roles of the columns of a table of features; the other columns are features."""
FeaturesLike: TypeAlias = "Features | TableLike"
"""Features, or anything that `read_features` reads."""


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

    def positions(self, query: pa.Array, document: pa.Array) -> Integers:
        """Return the row of each (query, document) pair of ids, or -1; raise InputError if a document has two rows."""
        return self.pair_index.positions(query, document)

    @cached_property
    def pair_index(self) -> PairIndex:
        """Index of the rows; InputError if a document of a query has two rows."""
        return PairIndex.from_unique_ids(self.query, self.document, "the features")

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
    parts = [
        _read_features_from_source(one, parse_column_map(columns), parse_bytes(max_bytes)) for one in files.sources
    ]
    features = concat_features(parts, [one.name for one in files.sources])
    features = replace(features, notes=(*files.notes, *features.notes))
    for note in features.notes:
        if note.severity == "warning":
            warnings.warn(DataWarning(note), stacklevel=2)
    return features


def as_features(features: FeaturesLike) -> Features:
    """Return `Features`; read them if they are a path or a DataFrame."""
    return features if isinstance(features, Features) else read_features(features)


def read_signal(
    source: TableLike,
    column: str,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
) -> Features:
    """Read one column of a table, such as a retrieval score, as the only feature; the other columns may be text.

    Rows of the same document, such as its judgments, are averaged.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        column: name of the column.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role; only query and document matter.
        separator: separator of the cells of a text file; by default it is detected.
        max_bytes: maximum size in bytes of a file when decompressed.

    Raises:
        InputError: there is no such column, or it is not a number.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "bm25": [3.0, 3.0, 1.0]})
    >>> read_signal(table, "bm25").matrix.ravel().tolist()
    [3.0, 1.0]

    """
    files = open_input(source, format, separator, max_bytes, allow_books=False)
    roles = {role: name for role, name in parse_column_map(columns).items() if role in ("query", "document")}
    parts = [_read_signal_from_source(one, column, roles, parse_bytes(max_bytes)) for one in files.sources]
    return average_repeated_documents(concat_features(parts, [one.name for one in files.sources]))


def _read_signal_from_source(source: Source, column: str, column_map: Mapping[str, str], max_bytes: int) -> Features:
    if isinstance(source, LetorSource):
        features = _read_features_from_source(source, column_map, max_bytes)
        names = features.names
    else:
        names = tuple(source.names)
    if column not in names:
        raise InputError(
            f"there is no column {shown(column)}{near(column, names)}", source=source.name, kind="no-column"
        )
    if isinstance(source, LetorSource):
        return features.on_columns((column,))
    found = FEATURE_ROLES.find_columns(source.names, source.name, column_map)
    roles = {role: name for role, name in found.items() if role != "grade"}
    table = source.read([*roles.values(), column], BadRows())
    return features_from_table(table, source, roles, (column,))


def average_repeated_documents(features: Features) -> Features:
    """Return one row per document with the mean of its rows; missing values do not count."""
    index = PairIndex.from_ids(features.query, features.document)
    if index.repeated_row is None:
        return features
    known = ~np.isnan(features.matrix)
    sums, counts = np.zeros((2, len(index.first_rows), features.matrix.shape[1]))
    np.add.at(sums, index.pair, np.where(known, features.matrix, 0.0))
    np.add.at(counts, index.pair, known)
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return replace(features.take(index.first_rows), matrix=means)


def _read_features_from_source(source: Source, column_map: Mapping[str, str], max_bytes: int) -> Features:
    """Read features from one source."""
    if isinstance(source, LetorSource):
        table = source.read(source.names, BadRows())
        letor_grades = require_floats(table["grade"], source, "grade", allow_blanks=True)
        return replace(features_from_letor(table, source, max_bytes), grade=letor_grades)
    roles = FEATURE_ROLES.find_columns(source.names, source.name, column_map)
    table = source.read(source.names, BadRows())
    rows = RoleTable.from_table(table, source, roles)
    names, notes = _select_feature_columns(table, roles, source)
    if not names:
        raise InputError("there is no feature column", source=source.name, fix="add a column of numbers per feature")
    features = features_from_table(table, source, roles, names)
    return replace(features, grade=rows.floats("grade", allow_blanks=True) if "grade" in roles else None, notes=notes)


def features_from_letor(table: pa.Table, source: LetorSource, max_bytes: int) -> Features:
    """Return the features of the lines that a LETOR source has read last, without grades."""
    matrix, names = source.features(max_bytes)
    query, document = (table[role].combine_chunks() for role in ("query", "document"))
    return Features(query, document, matrix, names, zeros_omitted=True)


def features_from_table(table: pa.Table, source: Source, roles: Mapping[str, str], names: Sequence[str]) -> Features:
    """Return the columns `names` of a table that a source has read as features, without grades.

    Args:
        table: the columns of the roles, and the features.
        source: source of the table, for errors.
        roles: name of the column of each role.
        names: names of the features.

    """
    rows = RoleTable.from_table(table, source, roles)
    fixes = ["features are numbers: encode text as numbers, for example one column per value", "remove the column"]
    values = [require_floats(table[name], source, name, allow_blanks=True, fixes=fixes) for name in names]
    query, document = rows.row_ids("query"), rows.row_ids("document")
    columns = columns_by_role([rows.origin])
    return Features(query, document, np.column_stack(values), tuple(names), columns=columns)


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


def concat_features(parts: Sequence[Features], source_names: Sequence[str]) -> Features:
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
    grades = [np.full(len(part.matrix), np.nan) if part.grade is None else part.grade for part in parts]
    return Features(
        ids.concat_arrays([part.query for part in parts]),
        ids.concat_arrays([part.document for part in parts]),
        np.concatenate([part.on_columns(names).matrix for part in parts]),
        tuple(names),
        None if all(part.grade is None for part in parts) else np.concatenate(grades),
        all(part.zeros_omitted for part in parts),
        parts[0].columns,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
