"""Join a run with the gold: encode ids, reject invalid rows and order the documents by query and rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation import kernels
from crowdrank.judgments.frames import column_names, column_to_arrow, is_frame


@dataclass(frozen=True)
class Ranking:
    """Scored documents of a run, ordered by query and rank."""

    query: Integers  # (n_documents,)
    scores: Floats  # (n_documents,)
    gold: Floats  # (n_documents,): gold grades; 0 where the document has none
    judged: Booleans  # (n_documents,)
    grades: Floats | None  # (n_documents,): the run's own grades
    new_group: Booleans  # (n_documents,): True at the first document of a group of equal scores
    offsets: Integers  # (n_queries + 1,)


@dataclass(frozen=True)
class Pool:
    """Documents that can be ranked, ordered by query."""

    query: Integers  # (n_documents,)
    grades: Floats  # (n_documents,)
    offsets: Integers  # (n_queries + 1,)


@dataclass(frozen=True)
class Counts:
    """Numbers of queries and documents that were scored or excluded.

    >>> from crowdrank.evaluation import evaluate
    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [3, 2, 1]})
    >>> gold = pd.DataFrame({"document": ["a", "b", "d"], "grade": [1, 0, 2]})
    >>> counts = evaluate(run, gold, "nDCG").counts
    >>> counts.documents_scored, counts.documents_without_gold, counts.gold_documents_missing
    (2, 1, 1)
    """

    queries: int  # queries with gold
    documents_scored: int
    documents_tied: int  # scored documents with the score of another document of the query
    documents_without_gold: int
    documents_as_nonrelevant: int  # documents without gold that count as grade 0
    run_queries_without_gold: int
    gold_documents_missing: int  # gold documents that the run does not rank
    gold_queries_missing: int  # gold queries without a scored document in the run


@dataclass(frozen=True)
class Alignment:
    """A run joined with the gold."""

    queries: pa.Array  # (n_queries,): ids, in the order of the gold
    ranking: Ranking
    gold: Pool
    ideal: Pool  # the gold documents and those that count as grade 0
    counts: Counts


def align(run: Any, gold: Any, *, ties: str, unjudged: str, with_grades: bool) -> Alignment:
    """Join a run with the gold by query and document.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": [7, 8], "score": [0.5, 0.9]})
    >>> gold = pd.DataFrame({"document": ["7", "8"], "grade": [2, 1]})
    >>> align(run, gold, ties="expected", unjudged="skip", with_grades=False).ranking.gold
    array([1., 2.])
    """
    score_name = _require_columns(run, gold)
    queries, gold_query, run_query = _query_codes(run, gold)
    documents, gold_document, run_document = _shared_codes(run, gold, "document")
    gold_key = gold_query * len(documents) + gold_document
    run_key = run_query * len(documents) + run_document
    _refuse_repeated("the gold", gold_key, queries, documents)
    _refuse_repeated("the run", run_key, queries, documents)
    gold_grades = _gold_grades(gold)
    scores = _numbers(run, score_name, "the run")
    grades = _numbers(run, "grade", "the run") if with_grades else None

    n_queries = int(gold_query.max()) + 1
    gold_row, judged = _find(run_key, gold_key)
    if run_key.size and not judged.any() and unjudged == "skip":
        raise _nothing_in_common(queries, documents, run_key, gold_key)
    kept = judged if unjudged == "skip" else run_query < n_queries
    order = _rank_order(ties, np.flatnonzero(kept), run_query, scores, run_document, documents)
    run_gold = np.where(judged, gold_grades[gold_row], 0.0)
    query = run_query[order]
    new_score = _new_group(query, scores[order])
    ranking = Ranking(
        query=query,
        scores=scores[order],
        gold=run_gold[order],
        judged=judged[order],
        grades=None if grades is None else grades[order],
        new_group=new_score if ties == "expected" else np.ones(order.size, dtype=np.bool_),
        offsets=_offsets(query, n_queries),
    )
    gold_pool = _pool(gold_query, gold_grades, n_queries)
    nonrelevant = ~ranking.judged
    ideal = gold_pool
    if nonrelevant.any():
        ideal = _pool(
            np.concatenate([gold_query, ranking.query[nonrelevant]]),
            np.concatenate([gold_grades, ranking.gold[nonrelevant]]),
            n_queries,
        )
    counts = Counts(
        queries=n_queries,
        documents_scored=order.size,
        documents_tied=order.size - int((new_score & np.append(new_score[1:], True)).sum()),
        documents_without_gold=int((~judged).sum()),
        documents_as_nonrelevant=int(nonrelevant.sum()),
        run_queries_without_gold=len(queries) - n_queries,
        gold_documents_missing=gold_key.size - int(judged.sum()),
        gold_queries_missing=int((np.diff(ranking.offsets) == 0).sum()),
    )
    return Alignment(queries[:n_queries], ranking, gold_pool, ideal, counts)


def _require_columns(run: Any, gold: Any) -> str:
    for name, frame in (("run", run), ("gold", gold)):
        if not is_frame(frame):
            problem = f"must be a DataFrame (pandas, polars or pyarrow), not a {type(frame).__name__}"
            raise UsageError(problem, parameter=name)
    run_has, gold_has = column_names(run), column_names(gold)
    _require_column("the run", run_has, "document")
    _require_column("the gold", gold_has, "document")
    _require_column("the gold", gold_has, "grade")
    if "query" in run_has or "query" in gold_has:
        _require_column("the run", run_has, "query")
        _require_column("the gold", gold_has, "query")
    if "relevance" in run_has:
        return "relevance"
    _require_column("the run", run_has, "score", "there is no column 'relevance' or 'score'")
    return "score"


def _require_column(source: str, has: list[str], name: str, problem: str = "") -> None:
    if name not in has:
        problem = problem or f"there is no column '{name}'"
        fix = f"rename one of its columns ({', '.join(has)})"
        raise InputError(problem, source=source, kind="no-column", fix=fix)


def _query_codes(run: Any, gold: Any) -> tuple[pa.Array, Integers, Integers]:
    if "query" in column_names(gold):
        return _shared_codes(run, gold, "query")
    n_gold = len(column_to_arrow(gold, "document"))
    n_run = len(column_to_arrow(run, "document"))
    return pa.array(["all"]), np.zeros(n_gold, dtype=np.int64), np.zeros(n_run, dtype=np.int64)


def _shared_codes(run: Any, gold: Any, name: str) -> tuple[pa.Array, Integers, Integers]:
    """Return the distinct ids of both frames in order of appearance, gold first, and the codes of gold and run."""
    gold_ids, run_ids = _ids(gold, name, "the gold"), _ids(run, name, "the run")
    if not len(gold_ids):
        fix = "give at least one document with its grade"
        raise InputError("there are no rows", source="the gold", kind="no-rows", fix=fix)
    if not len(run_ids):
        run_ids = pa.chunked_array([], gold_ids.type)
    gold_ids, run_ids = _same_type(gold_ids, run_ids)
    encoded = pa.chunked_array([*gold_ids.chunks, *run_ids.chunks], gold_ids.type).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, codes[: len(gold_ids)], codes[len(gold_ids) :]


def _ids(frame: Any, name: str, source: str) -> pa.ChunkedArray:
    column = _decoded(column_to_arrow(frame, name))
    _require_present(column, name, source)
    kind = column.type
    if pa.types.is_floating(kind) and pc.all(pc.equal(column, pc.floor(column))).as_py():
        return column.cast(pa.int64())  # pandas stores integers as floats if a value is missing
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_nested(kind):
        text = f"values of type {kind} are not ids"
        raise InputError(text, source=source, column=name, kind="not-an-id", fix="use text or numbers")
    return column


def _same_type(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    if left.type == right.type:
        return left, right
    both_whole = pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
    if both_whole and pa.uint64() not in (left.type, right.type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    return left.cast(pa.large_string()), right.cast(pa.large_string())


def _numbers(frame: Any, name: str, source: str) -> Floats:
    column = _decoded(column_to_arrow(frame, name))
    _require_present(column, name, source)
    try:
        cast = column.cast(pa.float64(), safe=False)
    except pa.ArrowException as problem:
        row, value = _first_not_a_number(column.to_pylist())
        raise InputError(
            f"{value!r} is not a number",
            source=source,
            place=f"row {row + 1}",
            column=name,
            kind="not-a-number",
            fix=["use numbers", "drop the row"],
        ) from problem
    numbers: Floats = cast.to_numpy().astype(np.float64)
    return numbers


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _require_present(column: pa.ChunkedArray, name: str, source: str) -> None:
    missing = pc.is_null(column, nan_is_null=True)
    if pc.any(missing).as_py():
        row = pc.index(missing, True).as_py()
        raise InputError(
            f"the value is missing ({column[row].as_py()})",
            source=source,
            place=f"row {row + 1}",
            column=name,
            kind="missing-value",
            fix=["fill it in", "drop the row"],
        )


def _first_not_a_number(values: list[Any]) -> tuple[int, Any]:
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            return row, value
    return 0, values[0]


def _gold_grades(gold: Any) -> Floats:
    grades = _numbers(gold, "grade", "the gold")
    bad = ~(np.isfinite(grades) & (grades >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{grades[row]:g} is not a grade that can be scored",
            source="the gold",
            place=f"row {row + 1}",
            column="grade",
            kind="invalid-grade",
            fix=["map such grades to 0 or above", "drop their rows"],
        )
    return grades


def _refuse_repeated(source: str, keys: Integers, queries: pa.Array, documents: pa.Array) -> None:
    in_order = np.sort(keys)  # several times faster than the argsort below
    if np.all(in_order[1:] != in_order[:-1]):
        return
    order = np.argsort(keys, kind="stable")
    repeats = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    position = repeats[np.argmin(order[repeats + 1])]
    first, row = int(order[position]), int(order[position + 1])
    query, document = divmod(int(keys[row]), len(documents))
    raise InputError(
        f"{documents[document].as_py()!r} of query {queries[query].as_py()!r} was already in row {first + 1}",
        source=source,
        place=f"row {row + 1}",
        column="document",
        kind="repeated-document",
        fix="keep one row for each document of a query",
    )


def _find(wanted: Integers, keys: Integers) -> tuple[Integers, Booleans]:
    """Return the index of each wanted key among the keys, or 0, and whether it is among them."""
    indices = pc.index_in(pa.array(wanted), value_set=pa.array(keys))
    index: Integers = pc.fill_null(indices, 0).to_numpy().astype(np.int64)
    return index, keys[index] == wanted


def _nothing_in_common(queries: pa.Array, documents: pa.Array, run_key: Integers, gold_key: Integers) -> InputError:
    def pair(key: Integers) -> str:
        query, document = divmod(int(key[0]), len(documents))
        return f"query {queries[query].as_py()!r} document {documents[document].as_py()!r}"

    return InputError(
        f"no document of the run has gold (the run begins with {pair(run_key)}, the gold with {pair(gold_key)})",
        source="the run",
        kind="nothing-in-common",
        fix="use the same ids in both",
    )


def _rank_order(
    ties: str, rows: Integers, query: Integers, scores: Floats, document: Integers, documents: pa.Array
) -> Integers:
    if ties == "document":
        by_text = pc.sort_indices(documents.cast(pa.large_string())).to_numpy().astype(np.int64)
        place = np.empty(by_text.size, dtype=np.int64)
        place[by_text] = np.arange(by_text.size)
        rows = rows[np.argsort(-place[document[rows]], kind="stable")]
    order: Integers = kernels.rank_order(rows, query, scores, int(query[rows].max(initial=-1)) + 1)
    return order


def _new_group(query: Integers, scores: Floats) -> Booleans:
    new = np.ones(query.size, dtype=np.bool_)
    new[1:] = (query[1:] != query[:-1]) | (scores[1:] != scores[:-1])
    return new


def _pool(query: Integers, grades: Floats, n_queries: int) -> Pool:
    order = np.argsort(query, kind="stable")
    return Pool(query[order], grades[order], _offsets(query[order], n_queries))


def _offsets(sorted_query: Integers, n_queries: int) -> Integers:
    return np.searchsorted(sorted_query, np.arange(n_queries + 1)).astype(np.int64)
