"""Rank the documents of files that can be larger than the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crowdrank.errors import Message
from crowdrank.judgments.features import Features
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.feature_batches import FeatureBatches, UnsortedQueriesError, whole_queries
from crowdrank.rankers.feature_checks import FeatureCheck, no_statistics
from crowdrank.rankers.trec_run import rank_documents, run_writer

N_FIRST_ROWS = 10
"""Number of rows of a ranking that are kept in memory to be shown."""


@dataclass(frozen=True, eq=False)
class RankedFiles:
    """Summary of a ranking that was written to a file.

    Attributes:
        n_documents: number of documents.
        n_queries: number of queries.
        first_rows: first rows of the ranking: query, document, rank, score.
        messages: notes and warnings about the features.
        check: features that differ from those of the training, as in :meth:`FeatureCheck.table`; None if not asked for
            or not known.

    """

    n_documents: int
    n_queries: int
    first_rows: pa.Table
    messages: tuple[Message, ...] = ()
    check: pa.Table | None = None


def rank_files(
    ranker: Ranker,
    batches: FeatureBatches,
    output: str | Path | None = None,
    *,
    tag: str = "crowdrank",
    csv_safe: bool = False,
    check: bool = False,
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

    Returns:
        A summary of the ranking.

    """

    def rank(parts: Iterable[Features], *messages: Message) -> RankedFiles:
        statistics = ranker.feature_statistics_ if check else None
        feature_check = None if statistics is None else FeatureCheck(ranker.features_, statistics)
        writer: AbstractContextManager[Callable[[pa.Table], None]] = (
            nullcontext(lambda run: None) if output is None else run_writer(output, tag, csv_safe=csv_safe)
        )
        with writer as write:
            counts = _rank_parts(ranker, parts, write, feature_check)
        found = [*batches.messages(), *messages]
        if feature_check is not None:
            return RankedFiles(*counts, (*found, *feature_check.messages()), feature_check.table())
        return RankedFiles(*counts, (*found, no_statistics()) if check else tuple(found))

    try:
        return rank(whole_queries(iter(batches)))
    except UnsortedQueriesError:
        problem = "the rows of a query are not adjacent, so that all rows were read into memory"
    return rank([batches.read_all()], Message(problem, "unsorted-queries", "warning"))


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
