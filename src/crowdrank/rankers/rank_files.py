"""Rank documents, also of files larger than the memory, and write runs as tables or in TREC's format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._files import check_output_file
from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats
from crowdrank.errors import CrowdrankError, Fix, InputError, Location, Message, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import (
    GRADE_LIKE_COLUMNS,
    ID_COLUMN_NAMES,
    TEXT_LIKE_COLUMNS,
    feature_position,
    is_letor_feature,
    parse_column_map,
    quote_names,
)
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import FeatureStatistics, require_features
from crowdrank.readers.features import (
    FEATURE_ROLES,
    Features,
    concat_features,
    features_from_letor,
    features_from_table,
    read_features,
)
from crowdrank.readers.files import parse_bytes
from crowdrank.readers.inputs import open_input
from crowdrank.readers.letor import LetorSource
from crowdrank.readers.read_options import Format
from crowdrank.readers.sources import Origin, Source, columns_by_role, no_rows_error
from crowdrank.readers.write import TABLE_SUFFIXES, check_output, output_stream, table_writer

TREC_SUFFIXES = (".trec", ".run")
"""Suffixes of TREC run files; .gz can follow."""
CELLS_PER_BATCH = 1 << 18
"""Default number of cells (rows times features) that are read at a time."""
MAX_ROWS_PER_BATCH = 1 << 13
"""Maximum of the default number of rows that are read at a time."""
KNOWN_COLUMNS = ID_COLUMN_NAMES | GRADE_LIKE_COLUMNS | TEXT_LIKE_COLUMNS
"""Names of columns beside features that need no note, in lower case."""
MAX_MORE_MISSING = 0.1
"""Maximum increase of the share of missing values that is no problem."""
PROBLEMS = {
    "always-missing": "always missing, but not in training",
    "more-missing": "missing much more often than in training",
    "constant": "constant, but not in training",
    "out-of-range": "outside of the range in training in some rows",
}
"""Kinds of problems and their descriptions, the most severe first."""
N_FIRST_ROWS = 10
"""Number of rows of a ranking that are kept in memory to be shown."""


@dataclass(frozen=True, eq=False)
class RankedFiles:
    """Summary of the ranking of the documents of files.

    Attributes:
        n_documents: number of documents.
        n_queries: number of queries.
        first_rows: first rows of the ranking: query, document, rank, score.
        messages: notes and warnings about the features.
        check: features that differ from those of the training, as in :meth:`FeatureCheck.table`; None if not asked for
            or not known.
        ranking: all rows of the ranking; None if not asked for.

    """

    n_documents: int
    n_queries: int
    first_rows: pa.Table
    messages: tuple[Message, ...] = ()
    check: pa.Table | None = None
    ranking: pa.Table | None = None


def rank_files(
    ranker: Ranker,
    batches: FeatureBatches,
    output: str | Path | None = None,
    *,
    tag: str = "crowdrank",
    csv_safe: bool = False,
    check: bool = False,
    keep: bool = False,
) -> RankedFiles:
    """Score the documents of files, sort those of each query, and write the ranking.

    Memory holds one batch and one query at a time, and the ids of all queries. If the rows of a query are not adjacent,
    all rows are read into memory.

    Args:
        ranker: the ranker.
        batches: its features.
        output: file for the ranking, as in `run_writer`; it is complete or not written.
        tag: name of the ranking in a TREC run.
        csv_safe: protect spreadsheets from formulas.
        check: compare the features with those of the training.
        keep: return the ranking in memory instead of writing it.

    Returns:
        A summary of the ranking.

    """

    def rank(parts: Iterable[Features], *messages: Message) -> RankedFiles:
        statistics = ranker.feature_statistics_ if check else None
        feature_check = None if statistics is None else FeatureCheck(ranker.features_, statistics)
        kept: list[pa.Table] = []
        writer: AbstractContextManager[Callable[[pa.Table], None]] = (
            nullcontext(kept.append if keep else lambda run: None)
            if output is None
            else run_writer(output, tag, csv_safe=csv_safe)
        )
        with writer as write:
            counts = _rank_parts(ranker, parts, write, feature_check)
        ranking = pa.concat_tables(kept) if kept else None
        found = [*batches.messages(), *messages]
        if feature_check is not None:
            return RankedFiles(*counts, (*found, *feature_check.messages()), feature_check.table(), ranking)
        return RankedFiles(*counts, (*found, no_statistics()) if check else tuple(found), ranking=ranking)

    try:
        return rank(whole_queries(iter(batches)))
    except UnsortedQueriesError:
        problem = "the rows of a query are not adjacent, so that all rows were read into memory"
    return rank([batches.read_all()], Message(problem, "unsorted-queries", "warning"))


def validation_queries_warning(ranker: Ranker, name: str, query: pa.Array) -> list[Message]:
    """Return a warning if a ranker is evaluated on queries by which it was fitted.

    Args:
        ranker: the ranker.
        name: name of the ranker in the message.
        query: ids of the queries of the evaluation.

    """
    used = {str(known): known for known in query.unique().to_pylist()}
    both = [used[str(known)] for known in ranker.validation_queries_ if str(known) in used]
    if not both:
        return []
    problem = (
        f"{name} was fitted or validated on {len(both)} of the {counted(len(used), 'query')} that evaluate it (the "
        f"first: {shown(both[0])}), so that its measures are too high"
    )
    return [Message(problem, "validation-queries", "warning", fixes=(Fix("give expert grades of other queries"),))]


def _rank_parts(
    ranker: Ranker, parts: Iterable[Features], write: Callable[[pa.Table], None], check: FeatureCheck | None
) -> tuple[int, int, pa.Table]:
    """Rank and write parts that hold whole queries; return the numbers of documents and queries, and the first rows."""
    n_documents, n_queries, first_rows = 0, 0, None
    for part in parts:
        if check is not None:
            check.add(part.matrix)
        run = rank_documents(ranker, part)
        write(run)
        n_documents, n_queries = n_documents + len(run), n_queries + len(part.query.unique())
        first_rows = run.slice(0, N_FIRST_ROWS) if first_rows is None else first_rows
    assert first_rows is not None  # files without rows are refused
    return n_documents, n_queries, first_rows


def rank_documents(ranker: Ranker, features: Features) -> pa.Table:
    """Return query, document, rank and score of every document, sorted by query and rank.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=10, documents=5, random_state=1)
    >>> features = crowdrank.read_features(world.features)
    >>> gls = crowdrank.GLS().fit(features, world.gold["grade"], query=features.query)
    >>> rank_documents(gls, features).column_names
    ['query', 'document', 'rank', 'score']
    """
    score = ranker.predict(features, features.query)
    codes, _ = ids.encode(pa.chunked_array([features.query]))
    order = np.lexsort((-score, codes))
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order)))) + 1
    return pa.table(
        {
            "query": features.query.take(pa.array(order)),
            "document": features.document.take(pa.array(order)),
            "rank": rank,
            "score": score[order],
        }
    )


def check_run(path: str | Path) -> None:
    """Raise an error if a run cannot be written to a path."""
    if is_trec(path):
        check_output_file(path)
    elif Path(path).name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES):
        check_output(path)
    else:
        suffixes = ", ".join((*TREC_SUFFIXES, *TABLE_SUFFIXES))
        fix = f"end its name with one of {suffixes} (or these with .gz)"
        raise UsageError(f"Cannot write {path}: the format is unknown", kind="unknown-suffix", fix=fix)


def is_trec(path: str | Path) -> bool:
    """Return whether a path has the suffix of a TREC run.

    >>> is_trec("out.trec"), is_trec("out.run.gz"), is_trec("out.csv")
    (True, True, False)
    """
    return Path(path).name.lower().removesuffix(".gz").endswith(TREC_SUFFIXES)


@contextmanager
def run_writer(
    path: str | Path, tag: str = "crowdrank", *, csv_safe: bool = False
) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends queries to a run file; the file is put in place when the block succeeds.

    The file is a TREC run (`query Q0 document rank score tag`) or a table, depending on the suffix of the path.
    """
    check_run(path)
    if not is_trec(path):
        with table_writer(path, csv_safe=csv_safe) as write:
            yield write
        return
    _require_no_spaces({"tag": [tag]})
    with output_stream(path) as stream:
        yield lambda run: stream.writelines(_trec_lines(run, tag))


def _trec_lines(run: pa.Table, tag: str) -> Iterator[bytes]:
    columns = [run[name].to_pylist() for name in ("query", "document", "rank", "score")]
    _require_no_spaces({"query": columns[0], "document": columns[1]})
    for query, document, rank, score in zip(*columns, strict=True):
        yield f"{query} Q0 {document} {rank} {score!r} {tag}\n".encode()


def _require_no_spaces(columns: dict[str, list[object]]) -> None:
    for role, names in columns.items():
        for name in names:
            if len(str(name).split()) != 1:
                problem = f"the {role} {shown(name)} has a space, which TREC's format does not allow"
                raise InputError(problem, kind="space-in-id", fix="write a .csv or .parquet file instead")


def join_features(paths: list[Path], format: str | None = None, columns: str | None = None) -> Features:
    """Read and concatenate the features of several files; LETOR files can omit features that are 0."""
    parts = [read_features(path, format=format, columns=columns) for path in paths]  # type: ignore[arg-type]
    names = _shared_names(parts)
    for path, part in zip(paths, parts, strict=True):
        if part.names != names and not (part.zeros_omitted and set(part.names) <= set(names)):
            fix = "give files with the same columns"
            raise InputError("its features differ from those of the other files", source=str(path), fix=fix)
    grades = [part.grade for part in parts if part.grade is not None]
    return Features(
        _concat_ids([part.query for part in parts]),
        _concat_ids([part.document for part in parts]),
        np.vstack([part.on_columns(names).matrix for part in parts]),
        names,
        np.concatenate(grades) if len(grades) == len(parts) else None,
        zeros_omitted=all(part.zeros_omitted for part in parts),
        columns=parts[0].columns,
        notes=tuple(note for part in parts for note in part.notes),
    )


def _shared_names(parts: list[Features]) -> tuple[str, ...]:
    """Return the features of all LETOR files by position, or those of the file with the most."""
    if all(part.zeros_omitted for part in parts):
        return tuple(sorted({name for part in parts for name in part.names}, key=feature_position))
    return max(parts, key=lambda part: len(part.names)).names


def pad_letor(features: Features, names: tuple[str, ...]) -> Features:
    """Return LETOR features in the columns `names`, with zeros for omitted ones; return other features unchanged."""
    if not features.zeros_omitted or not all(map(is_letor_feature, names)) or set(names) <= set(features.names):
        return features
    return features.on_columns(names)


def _concat_ids(arrays: list[pa.Array]) -> pa.Array:
    types = {array.type for array in arrays}
    return pa.concat_arrays(arrays if len(types) == 1 else [array.cast(pa.string()) for array in arrays])


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
            for batch in self._read_file(source, roles):
                is_empty = False
                yield batch
            if is_empty:
                raise no_rows_error(source.name)

    def _read_file(self, source: Source, roles: Mapping[str, str]) -> Iterator[Features]:
        """Yield the batches of one file."""
        if isinstance(source, LetorSource):
            for table in source.read_batches(source.names, self.n_rows):
                features = features_from_letor(table, source, parse_bytes(None))
                self.used.update(features.names)
                yield features.on_columns(self.names)
            return
        wanted = list(dict.fromkeys((*roles.values(), *self.names)))
        for table in source.read_batches(wanted, self.n_rows):
            if len(table):
                yield features_from_table(table, source, roles, self.names)

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
        starts, runs = adjacent_query_groups(batch)
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


def adjacent_query_groups(features: Features) -> tuple[list[int], list[Any]]:
    """Return the first row and the query of each group of adjacent rows with the same query."""
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


class FeatureCheck:
    """Comparison of rows, which are added in batches, with the training rows of a ranker.

    Args:
        names: names of the features.
        training: statistics of the training rows.

    >>> training = FeatureStatistics.from_matrix(np.array([[0.0, 1.0], [1.0, 2.0]]))
    >>> check = FeatureCheck(["bm25", "clicks"], training)
    >>> check.add(np.array([[0.5, np.nan], [2.0, np.nan]]))
    >>> check.table().select(["feature", "problem", "outside"]).to_pylist()
    [{'feature': 'clicks', 'problem': 'always-missing', 'outside': 0.0},
     {'feature': 'bm25', 'problem': 'out-of-range', 'outside': 0.5}]

    """

    def __init__(self, names: Sequence[str], training: FeatureStatistics) -> None:
        self.names, self.training = tuple(names), training
        self.n_rows = 0
        self._minimum, self._maximum = np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        self._n_missing, self._n_outside = np.zeros(len(self.names)), np.zeros(len(self.names))

    def add(self, features: Floats) -> None:
        """Update the statistics by the rows of a matrix, (n, n_features)."""
        found = FeatureStatistics.from_matrix(features)
        self._minimum, self._maximum = np.fmin(self._minimum, found.minimum), np.fmax(self._maximum, found.maximum)
        self._n_missing += found.missing_share * len(features)
        # A comparison with NaN is false: values of features without a range are not outside of it.
        outside = (features < self.training.minimum) | (features > self.training.maximum)
        self._n_outside += outside.sum(axis=0)
        self.n_rows += len(features)

    @property
    def statistics(self) -> FeatureStatistics:
        """Statistics of the rows that were added."""
        return FeatureStatistics(self._minimum, self._maximum, self._n_missing / max(self.n_rows, 1))

    def _has_problem(self) -> dict[str, Booleans]:
        """Return a mask of the features that have each kind of problem."""
        found, training = self.statistics, self.training
        is_missing = (found.missing_share >= 1) & (training.missing_share < 1)
        more_missing = found.missing_share > training.missing_share + MAX_MORE_MISSING
        constant = (found.minimum == found.maximum) & (training.minimum < training.maximum) & (self.n_rows > 1)
        return {
            "always-missing": is_missing,
            "more-missing": more_missing & ~is_missing,
            "constant": constant,
            "out-of-range": self._n_outside > 0,
        }

    def table(self) -> pa.Table:
        """Return the features that have a problem, the most severe first, with their statistics.

        Columns: feature; problem, several separated by commas; outside, the share of rows outside of the range in
        training; minimum, maximum and missing (share of rows) of the given rows and of the training rows.
        """
        problems = self._has_problem()
        severity = np.argmax([*problems.values(), np.ones(len(self.names), bool)], axis=0)
        outside = self._n_outside / max(self.n_rows, 1)
        order = [place for place in np.lexsort((-outside, severity)) if severity[place] < len(problems)]
        found, training = self.statistics, self.training
        numbers = {
            "outside": outside,
            "minimum": found.minimum,
            "maximum": found.maximum,
            "missing": found.missing_share,
            "training_minimum": training.minimum,
            "training_maximum": training.maximum,
            "training_missing": training.missing_share,
        }
        kinds = [", ".join(kind for kind, mask in problems.items() if mask[place]) for place in order]
        return pa.table(
            {
                "feature": pa.array([self.names[place] for place in order], pa.string()),
                "problem": pa.array(kinds, pa.string()),
                **{name: pa.array(values[order], from_pandas=True) for name, values in numbers.items()},
            }
        )

    def messages(self) -> list[Message]:
        """Return one warning per kind of problem, with the names of the features."""
        found = []
        for kind, mask in self._has_problem().items():
            names = [name for name, has_problem in zip(self.names, mask, strict=True) if has_problem]
            if names:
                verb = "is" if len(names) == 1 else "are"
                problem = f"{counted(len(names), 'feature')} {verb} {PROBLEMS[kind]}: {quote_names(names)}"
                found.append(Message(problem, kind, "warning"))
        return found


def no_statistics() -> Message:
    """Return the warning that a ranker has no statistics of its training rows."""
    problem = "the ranker has no statistics of its training features, so that nothing was compared"
    return Message(problem, "no-statistics", "warning")
