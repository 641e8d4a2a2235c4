"""Join a run with the gold: encode ids, reject invalid rows and order the documents by query and rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.evaluation import measure_kernels
from crowdrank.judgments import ids
from crowdrank.judgments.columns import SCALE_COLUMN, find_probability_columns
from crowdrank.judgments.frames import is_frame
from crowdrank.readers.cells import grades_of_probability_columns, parse_floats, read_grade_probabilities
from crowdrank.readers.inputs import RoleTable, scale_from_column
from crowdrank.readers.sources import BadRows, FrameSource, Origin, no_rows_error

ROW_FIXES = ("correct it", "drop the row")
"""Advice for errors about single rows."""
NO_GOLD_ROW = -1
"""Row number of documents that have no gold grade."""


@dataclass(frozen=True)
class GoldGrades:
    """Gold grades of documents, or their probabilities if they come from a consensus.

    The last number of each result is for documents without a gold grade, which count as grade 0:

    >>> certain = GoldGrades(np.array([2.0, 0.0]))
    >>> certain.expected(lambda grade: grade >= 1)
    array([1., 0., 0.])
    >>> uncertain = GoldGrades(np.array([2.0]), np.array([[0.25, 0.0, 0.75]]), np.array([0.0, 1.0, 2.0]))
    >>> uncertain.expected(lambda grade: grade >= 1)
    array([0.75, 0.  ])
    """

    grades: Floats  # (n_gold,)
    shares: Floats | None = None  # (n_gold, n_values): probability of each grade; None if the grades are certain
    values: Floats | None = None  # (n_values,): the grades of the columns of `shares`

    @property
    def possible_grades(self) -> Floats:
        """Grades that documents with gold can have, in any order."""
        return self.grades if self.values is None else self.values

    def expected(self, function: Callable[[Floats], NDArray[Any]]) -> Floats:
        """Return the expectation of a function of the grade by row, then its value for grade 0, (n_gold + 1,).

        The last entry is that of documents without gold, whose row is -1.
        """
        of_grade = np.asarray(function(self.possible_grades), dtype=np.float64)
        by_row = of_grade if self.shares is None else self.shares @ of_grade
        return np.append(by_row, np.asarray(function(np.zeros(1)), dtype=np.float64))


@dataclass(frozen=True)
class Ranking:
    """Documents of a run, ordered by query and rank; only of queries with gold."""

    query: Integers  # (n_documents,)
    scores: Floats  # (n_documents,)
    gold: Floats  # (n_documents,): gold grades; 0 where the document has none
    row: Integers  # (n_documents,): row of the gold, or NO_GOLD_ROW
    grades: Floats | None  # (n_documents,): the run's own grades
    tie_group: Integers  # (n_documents,): number of the group of documents whose order is random
    n_queries: int

    @cached_property
    def judged(self) -> Booleans:
        """Whether each document has gold, (n_documents,)."""
        return np.asarray(self.row != NO_GOLD_ROW)

    @cached_property
    def offsets(self) -> Integers:
        """Positions at which the queries begin, (n_queries + 1,)."""
        return query_offsets(self.query, self.n_queries)

    @cached_property
    def new_group(self) -> Booleans:
        """Whether a tie group begins at the document, (n_documents,)."""
        return np.asarray(np.diff(self.tie_group, prepend=-1) != 0)

    @property
    def n_tied(self) -> int:
        """Number of documents with the score of another document of the query."""
        sizes = np.bincount(tie_groups(self.query, self.scores))
        return int(sizes[sizes > 1].sum())

    def only_judged(self) -> Ranking:
        """Return the ranking without the documents that have no gold."""
        keep = self.judged
        grades = None if self.grades is None else self.grades[keep]
        columns = (self.query[keep], self.scores[keep], self.gold[keep], self.row[keep], grades, self.tie_group[keep])
        return Ranking(*columns, self.n_queries)


@dataclass(frozen=True)
class RankableDocuments:
    """Documents that can be ranked, ordered by query."""

    query: Integers  # (n_documents,)
    row: Integers  # (n_documents,): row of the gold, or NO_GOLD_ROW
    offsets: Integers  # (n_queries + 1,)


@dataclass(frozen=True)
class Alignment:
    """A run joined with the gold."""

    queries: pa.Array  # (n_queries,): ids in the order and with the type of the gold
    ranking: Ranking
    gold: RankableDocuments
    grades: GoldGrades  # by row of the gold
    documents_without_gold: int  # documents of the run without gold, also of queries without gold
    run_queries_without_gold: int


def align(run: Any, gold: Any, *, ties: str, with_grades: bool, run_name: str = "run") -> Alignment:
    """Join a run with the gold by query and document.

    Args:
        run: DataFrame with the columns query, document, and relevance or score.
        gold: DataFrame with the columns query, document, grade and, of a consensus, p0, p1, ...
        ties: order of equal scores, as in :func:`crowdrank.evaluation.evaluate.evaluate`.
        with_grades: whether to read the grades of the run.
        run_name: name of the run for messages.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": [7, 8], "score": [0.5, 0.9]})
    >>> gold = pd.DataFrame({"document": ["7", "8"], "grade": [2, 1]})
    >>> align(run, gold, ties="expected", with_grades=False).ranking.gold
    array([1., 2.])
    """
    run_source, gold_source = _open_frame(run, run_name), _open_frame(gold, "gold")
    has_query = "query" in (*run_source.names, *gold_source.names)
    keys = {role: role for role in (*(["query"] if has_query else []), "document")}
    score = {"score": "relevance" if "relevance" in run_source.names else "score"}
    run_rows = _read_columns(run_source, {**keys, **score, **({"grade": "grade"} if with_grades else {})})
    gold_rows = _read_columns(gold_source, {**keys, "grade": "grade"})
    share_names = find_probability_columns(gold_source.names)
    if not len(gold_rows):
        raise no_rows_error(gold_source.name)
    gold_query, run_query, queries, gold_queries = _codes_of_both(gold_rows, run_rows, "query")
    gold_document, run_document, documents, _ = _codes_of_both(gold_rows, run_rows, "document")
    gold_key = gold_query * len(documents) + gold_document
    run_key = run_query * len(documents) + run_document
    _refuse_repeated(gold_rows.origin, gold_key, queries, documents)
    _refuse_repeated(run_rows.origin, run_key, queries, documents)
    gold_grades = _read_numbers(gold_rows, "grade")
    is_grade = np.isfinite(gold_grades) & (gold_grades >= 0)
    problem = f"{gold_grades[np.argmin(is_grade)]:g} is not a grade of at least 0"
    gold_source.require(is_grade, "grade", problem, ROW_FIXES, "invalid-grade")
    scores = _read_numbers(run_rows, "score")
    grades = _read_numbers(run_rows, "grade") if with_grades else None

    gold_row = ids.match(pa.array(gold_key), pa.array(run_key))
    judged = gold_row >= 0
    if run_key.size and not judged.any():
        raise _nothing_in_common_error(queries, documents, run_key, gold_key)
    n_queries = len(gold_queries)
    rows = np.flatnonzero(run_query < n_queries)
    if ties == "document":
        place = pc.rank(documents.cast(pa.large_string()), sort_keys="descending").to_numpy().astype(np.int64)
        rows = rows[np.argsort(place[run_document[rows]], kind="stable")]
    order: Integers = measure_kernels.rank_order(rows, run_query, scores, n_queries)
    query = run_query[order]
    ranking = Ranking(
        query=query,
        scores=scores[order],
        gold=np.where(judged, gold_grades[gold_row], 0.0)[order],
        row=gold_row[order],
        grades=None if grades is None else grades[order],
        tie_group=tie_groups(query, scores[order]) if ties == "expected" else np.arange(order.size),
        n_queries=n_queries,
    )
    gold_documents = group_by_query(gold_query, np.arange(len(gold_query)), n_queries)
    known = GoldGrades(gold_grades)
    if share_names:
        known = GoldGrades(
            gold_grades, read_grade_probabilities(gold_source), grades_of_probability_columns(share_names)
        )
    return Alignment(gold_queries, ranking, gold_documents, known, int((~judged).sum()), len(queries) - n_queries)


def align_codes(query: Integers, scores: Floats, grades: Floats, queries: pa.Array) -> Alignment:
    """Return the alignment of a run whose documents all have gold, from query codes instead of ids.

    Args:
        query: (n,) code of the query of each document.
        scores: (n,) score of each document; -inf if the run does not rank it.
        grades: (n,) gold grade of each document.
        queries: (n_queries,) id of each query code.

    """
    rows = np.flatnonzero(scores > -np.inf)
    order: Integers = rows[measure_kernels.rank_order(np.arange(len(rows)), query[rows], scores[rows], len(queries))]
    ranked = query[order]
    groups = tie_groups(ranked, scores[order])
    ranking = Ranking(ranked, scores[order], grades[order], order, None, groups, len(queries))
    documents = group_by_query(query, np.arange(len(query)), len(queries))
    return Alignment(queries, ranking, documents, GoldGrades(grades), 0, 0)


def group_by_query(query: Integers, row: Integers, n_queries: int) -> RankableDocuments:
    """Order documents by query, and find where the documents of each query begin."""
    order = np.argsort(query, kind="stable")
    return RankableDocuments(query[order], row[order], query_offsets(query[order], n_queries))


def query_offsets(sorted_query: Integers, n_queries: int) -> Integers:
    """Return the positions at which the queries begin, (n_queries + 1,)."""
    return np.searchsorted(sorted_query, np.arange(n_queries + 1)).astype(np.int64)


def tie_groups(query: Integers, scores: Floats) -> Integers:
    """Return the number of the group of each document; documents of a query with the same score share it."""
    new = np.ones(query.size, dtype=np.bool_)
    new[1:] = (query[1:] != query[:-1]) | (scores[1:] != scores[:-1])
    return np.cumsum(new) - 1


def _open_frame(frame: Any, parameter_name: str) -> FrameSource:
    if not is_frame(frame):
        problem = f"must be a DataFrame (pandas, polars or pyarrow), not a {type(frame).__name__}"
        raise UsageError(problem, parameter=parameter_name)
    return FrameSource(frame, f"the {parameter_name}")


def _read_columns(source: FrameSource, columns: Mapping[str, str]) -> RoleTable:
    """Return columns by role; raise InputError if one is missing."""
    for name in columns.values():
        if name not in source.names:
            problem = f"there is no column {'relevance or score' if name == 'score' else repr(name)}"
            fix = f"rename one of its columns ({', '.join(source.names)})"
            raise InputError(problem, source=source.name, kind="no-column", fix=fix)
    if "grade" in columns and SCALE_COLUMN in source.names:
        columns = {**columns, SCALE_COLUMN: SCALE_COLUMN}
    cells = source.read(list(columns.values()), BadRows())
    table = RoleTable(Origin(source, columns), {role: cells[name] for role, name in columns.items()})
    return table.with_grade_values(scale_from_column([table]))


def _codes_of_both(gold: RoleTable, run: RoleTable, role: str) -> tuple[Integers, Integers, pa.Array, pa.Array]:
    """Return the codes of the ids of gold and run, the distinct ids in order of appearance, and those of the gold."""
    gold_ids, run_ids = gold.coded_ids(role), run.coded_ids(role)
    codes, distinct = ids.concat([gold_ids, run_ids])
    gold_codes, run_codes = np.split(codes.astype(np.int64), [len(gold_ids[0])])
    return gold_codes, run_codes, distinct, gold_ids[1]


def _read_numbers(table: RoleTable, role: str) -> Floats:
    """Return a column as numbers, also infinite ones; raise InputError if a cell is not a number."""
    values = parse_floats(table.cells[role])
    if role == "grade" and values is None:
        cells = (parse_floats(table.cells[role].slice(row, 1)) for row in range(len(table)))
        row = next(row for row, cell in enumerate(cells) if cell is None)
        raise table.origin.unknown_grade_order_error(row, table.cells[role][row].as_py())
    return table.floats(role, fixes=ROW_FIXES) if values is None or np.isnan(values).any() else values


def _refuse_repeated(origin: Origin, keys: Integers, queries: pa.Array, documents: pa.Array) -> None:
    """Raise InputError if a document of a query occurs twice."""
    in_order = np.sort(keys)  # several times faster than the argsort below
    if np.all(in_order[1:] != in_order[:-1]):
        return
    order = np.argsort(keys, kind="stable")
    repeats = order[1:][keys[order[1:]] == keys[order[:-1]]]
    row = int(repeats.min())
    first = int(np.argmax(keys == keys[row]))
    problem = f"{_describe_pair(queries, documents, keys[row])} was already in row {first + 1}"
    raise origin.cell_error(row, "document", problem, "keep one row", "repeated-document")


def _nothing_in_common_error(
    queries: pa.Array, documents: pa.Array, run_key: Integers, gold_key: Integers
) -> InputError:
    run_pair, first_gold = (
        _describe_pair(queries, documents, run_key[0]),
        _describe_pair(queries, documents, gold_key[0]),
    )
    problem = f"no document of the run has gold (the run begins with {run_pair}, the gold with {first_gold})"
    return InputError(problem, source="the run", kind="nothing-in-common", fix="use the same ids in both")


def _describe_pair(queries: pa.Array, documents: pa.Array, pair_key: Any) -> str:
    query, document = divmod(int(pair_key), len(documents))
    return f"document {shown(documents[document].as_py())} of query {shown(queries[query].as_py())}"
