"""Features of a ranker, read from files in batches of rows, so that files can be larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank.errors import CrowdrankError, Location, Message
from crowdrank.judgments.bad_rows import no_rows_error
from crowdrank.judgments.columns import (
    GRADE_LIKE_COLUMNS,
    ID_COLUMN_NAMES,
    TEXT_LIKE_COLUMNS,
    parse_column_map,
    quote_names,
)
from crowdrank.judgments.features import FEATURE_ROLES, Features, concat_features, letor_features, table_features
from crowdrank.judgments.inputs import open_input
from crowdrank.judgments.letor import LetorSource, is_letor_feature
from crowdrank.judgments.limits import parse_bytes
from crowdrank.judgments.read_options import Format
from crowdrank.judgments.row_errors import Origin, columns_by_role
from crowdrank.judgments.sources import Source
from crowdrank.rankers.ranking_data import require_features

CELLS_PER_BATCH = 1 << 18
"""Default number of cells (rows times features) that are read at a time."""
MAX_ROWS_PER_BATCH = 1 << 13
"""Maximum of the default number of rows that are read at a time."""
KNOWN_COLUMNS = ID_COLUMN_NAMES | GRADE_LIKE_COLUMNS | TEXT_LIKE_COLUMNS
"""Names of columns beside features that need no note, in lower case."""


class FeatureBatches:
    """Rows of files with the features of a ranker; every iteration reads the files again.

    Args:
        paths: files, folders or glob patterns.
        names: features of the ranker; other columns are not read.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID`.
        n_rows: maximum number of rows per batch; by default about 260,000 cells.

    Attributes:
        columns: name of the column that is read for each role.
        used: features that a line of a LETOR file had so far; LETOR files omit features that are 0.

    Raises:
        InputError: a file cannot be read, or lacks features.

    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        names: Sequence[str],
        *,
        format: Format | None = None,
        columns: str | Mapping[str, str] | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.names = tuple(names)
        self.n_rows = n_rows or max(1, min(MAX_ROWS_PER_BATCH, CELLS_PER_BATCH // len(self.names)))
        opened = open_input(list(paths), format, allow_books=False)
        self._notes, column_map = list(opened.notes), parse_column_map(columns)
        self._files = [(source, self._find_columns(source, column_map)) for source in opened.sources]
        self.columns = columns_by_role(Origin(source, roles) for source, roles in self._files)
        self.used: set[str] = set()

    def _find_columns(self, source: Source, column_map: Mapping[str, str]) -> dict[str, str]:
        """Return the column of each role, none for LETOR; raise InputError if the source lacks features."""
        if isinstance(source, LetorSource):
            if not all(map(is_letor_feature, self.names)):
                require_features((), self.names, source.name)
            return {}
        roles = FEATURE_ROLES.find_columns(source.names, source.name, column_map)
        roles.pop("grade", None)
        found = [name for name in source.names if name not in roles.values()]
        require_features(found, self.names, source.name)
        return roles

    def __iter__(self) -> Iterator[Features]:
        self.used = set()
        for source, roles in self._files:
            is_empty = True
            for batch in self._read(source, roles):
                is_empty = False
                yield batch
            if is_empty:
                raise no_rows_error(source.name)

    def _read(self, source: Source, roles: Mapping[str, str]) -> Iterator[Features]:
        """Yield the batches of one file."""
        if isinstance(source, LetorSource):
            for table in source.read_batches(source.names, self.n_rows):
                features = letor_features(table, source, parse_bytes(None))
                self.used.update(features.names)
                yield features.on_columns(self.names)
            return
        wanted = list(dict.fromkeys((*roles.values(), *self.names)))
        for table in source.read_batches(wanted, self.n_rows):
            if len(table):
                yield table_features(table, source, roles, self.names)

    def read_all(self) -> Features:
        """Return all rows."""
        return _concat(list(self))

    def messages(self) -> list[Message]:
        """Return notes about columns that are not read, and a warning of features that no line of LETOR files had."""
        notes = list(self._notes)
        for source, roles in self._files:
            other = [] if isinstance(source, LetorSource) else source.names
            used = {*roles.values(), *self.names}
            extra = [name for name in other if name not in used and name.casefold() not in KNOWN_COLUMNS]
            if extra:
                problem = f"not used, because the ranker has no such features: {quote_names(extra)}"
                notes.append(Message(problem, "extra-columns", "note", Location(source.name)))
        omitted = [name for name in self.names if name not in self.used]
        if omitted and all(isinstance(source, LetorSource) for source, _ in self._files):
            problem = f"features that occur in no row are set to 0: {quote_names(omitted)}"
            notes.append(Message(problem, "omitted-features", "warning"))
        return notes


class UnsortedQueriesError(CrowdrankError):
    """The rows of a query are not adjacent, or ids are numbers in some batches and text in others."""

    default_kind = "unsorted-queries"


def whole_queries(batches: Iterator[Features]) -> Iterator[Features]:
    """Yield the rows of batches again, so that no query is divided between two parts.

    Raises:
        UnsortedQueriesError: a query begins again after another one, or the type of ids changes.

    """
    finished: set[Any] = set()
    pending: list[Features] = []
    open_query: Any = None
    types = None
    for batch in batches:
        types = types or (batch.query.type, batch.document.type)
        starts, runs = query_runs(batch)
        is_continued = bool(pending) and runs[0] == open_query
        completed = [*([open_query] if pending and not is_continued else []), *runs[:-1]]
        n_new = len(finished) + len(completed)
        finished.update(completed)
        if len(finished) < n_new or runs[-1] in finished or (batch.query.type, batch.document.type) != types:
            raise UnsortedQueriesError("the rows of a query are not adjacent")
        if completed:
            yield _concat([*pending, _slice(batch, 0, starts[-1])])
            pending = []
        pending.append(_slice(batch, starts[-1], len(batch.query)))
        open_query = runs[-1]
    if pending:
        yield _concat(pending)


def query_runs(features: Features) -> tuple[list[int], list[Any]]:
    """Return the first row of each run of equal queries, and the query of each run."""
    encoded = features.query.dictionary_encode()
    codes = np.asarray(encoded.indices)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    names = encoded.dictionary.to_pylist()
    return starts.tolist(), [names[code] for code in codes[starts]]


def _slice(features: Features, first: int, last: int) -> Features:
    return features.take(np.arange(first, last))


def _concat(parts: list[Features]) -> Features:
    filled = [part for part in parts if len(part.query)]
    return concat_features(filled, [""] * len(filled))
