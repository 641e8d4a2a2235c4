"""What a model concludes: a table of documents and a table of assessors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._notebook import MAX_TABLE_ROWS, heading, html_table, panel
from crowdrank._saved import require
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.consensus import kernels
from crowdrank.engine.shards import Shard
from crowdrank.judgments import frames
from crowdrank.judgments.codes import check_ids
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

TIE = 1e-9
"""Shares closer than this are tied: rounding must not choose a grade."""

SHOWN_ROWS = ("relevance", "sd", "lower", "upper", "difficulty", "unjudgeable")
"""What a model may say of a document besides its grade, in the order of the columns."""
SHOWN_OF_DOCUMENTS = ("query", "document", "relevance", "lower", "upper", "grade", "judgments")
SHOWN_OF_ASSESSORS = ("assessor", "family", "judgments", "informativeness", "accuracy", "ability", "precision")
"""What a notebook shows of them."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """Per document: relevance, how sure, grade; per assessor: how many judgments and the parameters.

    `documents` and `assessors` are DataFrames of the library that the judgments came in.

    >>> import pandas as pd
    >>> from crowdrank import MajorityVote
    >>> model = MajorityVote().fit(pd.DataFrame(
    ...     {"document": ["a", "a", "a"], "assessor": ["x", "y", "z"], "grade": [1, 1, 0]}))
    >>> model.consensus_.documents[["document", "relevance", "grade", "judgments"]]
      document  relevance  grade  judgments
    0        a        1.0      1          3
    """

    method: str
    document_table: pa.Table
    assessor_table: pa.Table
    scale: Scale
    labels: tuple[Any, ...]  # what each grade is called
    backend: str = "pandas"

    def __repr__(self) -> str:
        documents, assessors = self.n_documents, len(self.assessor_table)
        return f"<Consensus by {self.method}: {counted(documents, 'document')}, {counted(assessors, 'assessor')}>"

    def _repr_html_(self) -> str:
        parts = [heading(repr(self).strip("<>"))]
        for table, names in ((self.document_table, SHOWN_OF_DOCUMENTS), (self.assessor_table, SHOWN_OF_ASSESSORS)):
            there = [name for name in names if name in table.column_names]
            parts.append(html_table(table.select(there).slice(0, MAX_TABLE_ROWS).to_pylist(), there, len(table)))
        return panel(*parts)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.document_table)

    def document_parts(self) -> Iterator[pa.Table]:
        """The rows of the documents in parts; here, in one."""
        yield self.document_table

    @property
    def share_names(self) -> list[str]:
        """The columns with the probability of each grade: p0, p1, ..."""
        return share_names(self.scale)

    @cached_property
    def documents(self) -> Any:
        """One row per (query, document): relevance, sd, lower, upper, grade, p0.., judgments."""
        return frames.from_arrow(self.document_table, self.backend)

    @cached_property
    def assessors(self) -> Any:
        """One row per assessor: judgments and the model's parameters."""
        return frames.from_arrow(self.assessor_table, self.backend)


def item_ids(judgments: Judgments) -> dict[str, pa.Array]:
    """The query and the document of each item."""
    return {
        "query": judgments.queries.take(pa.array(judgments.item_query)),
        "document": judgments.documents.take(pa.array(judgments.item_document)),
    }


def document_table(judgments: Judgments, rows: Arrays) -> pa.Table:
    """One row per item of the judgments, from the rows that a model made of them."""
    labels = grade_labels(judgments)
    documents: dict[str, Any] = {
        **item_ids(judgments),
        **{name: rows[name] for name in SHOWN_ROWS if name in rows},
        "grade": pa.array(labels).take(pa.array(np.minimum(rows["grade"], len(labels) - 1))),
        **dict(zip(share_names(judgments.main_scale), rows["p"].T, strict=True)),
        "judgments": np.diff(judgments.offsets),
    }
    return pa.table(documents)


def share_names(scale: Scale) -> list[str]:
    """The names of the columns with the probability of each grade.

    >>> share_names(Scale.parse("1-3"))
    ['p1', 'p2', 'p3']
    """
    return [f"p{int(value)}" for value in scale.values]


def grade_labels(judgments: Judgments | ShardedJudgments) -> tuple[Any, ...]:
    """What each grade is called: as in the frame it came from, or its number, or its name."""
    if isinstance(judgments, Judgments) and judgments.labels is not None:
        return judgments.labels
    scale = judgments.main_scale
    return tuple(int(value) for value in scale.values) if scale.numeric else scale.names


def discrete_rows(posterior: NDArray[np.float64], values: NDArray[np.float64], interval: float) -> Arrays:
    """Return the rows of items whose truth is one of the grades, from P(grade), (n_items, n_grades)."""
    relevance, sd, lower, upper, grade = kernels.summarize(posterior, values, (1 - interval) / 2, TIE)
    return {"relevance": relevance, "sd": sd, "lower": lower, "upper": upper, "grade": grade, "p": posterior}


def restrict_to_gold(shares: NDArray[np.float64], shard: Shard) -> None:
    """Set to 0, in place, the shares of the grades that an expert grade excludes; each row sums to 1 afterwards.

    Rows (items) without an expert grade stay as they are. Where all shares are excluded, those of the set are equal.
    """
    known = shard.gold >= 0
    allowed = shard.gold_sets[shard.gold[known]]
    rest = shares[known] * allowed
    none = rest.sum(axis=1) == 0
    rest[none] = allowed[none]
    shares[known] = rest / rest.sum(axis=1, keepdims=True)


def modal_grades(shares: NDArray[np.float64]) -> NDArray[np.int8]:
    """The most frequent grade of each row; of m tied ones, from most to least relevant, the one at ceil(m / 2).

    So of two tied grades the higher (OVERLAP 4.1).

    >>> modal_grades(np.array([[0.5, 0.5, 0.0], [1/3, 1/3, 1/3]])).tolist()
    [1, 1]
    """
    # (n, n_grades) -> (n,)
    tied = shares >= shares.max(axis=1, keepdims=True) - TIE
    rank_from_top = np.cumsum(tied[:, ::-1], axis=1)[:, ::-1]
    chosen = tied & (rank_from_top == (tied.sum(axis=1, keepdims=True) + 1) // 2)
    grades: NDArray[np.int8] = chosen.argmax(axis=1).astype(np.int8)
    return grades


def check_consensus(consensus: Consensus, judgments: Judgments) -> None:
    """Raise ValueError unless the saved tables of a consensus are those of these judgments."""
    check_documents(consensus.document_table, consensus.scale, consensus.labels)
    check_assessor_table(consensus.assessor_table)
    known = {**item_ids(judgments), "judgments": pa.array(np.diff(judgments.offsets))}
    for name, column in known.items():
        same = consensus.document_table[name].combine_chunks().equals(column)
        require(same, f"the column {name} of the documents is not that of the judgments")
    same = consensus.assessor_table["assessor"].combine_chunks().equals(judgments.assessors)
    require(same, "the assessors are not those of the judgments")


def check_documents(table: pa.Table, scale: Scale, labels: tuple[Any, ...]) -> None:
    """Raise ValueError unless a saved table of documents has the columns and types of :func:`document_table`."""
    names = set(table.column_names)
    required = {"query", "document", "relevance", "grade", *share_names(scale), "judgments"}
    require(required <= names, f"there is no column {min(required - names, default='')}")
    shown = [name for name in SHOWN_ROWS if name in names]
    order = ["query", "document", *shown, "grade", *share_names(scale), "judgments"]
    require(table.column_names == order, "there is an unknown column, or the columns are in another order")
    for name in names:
        require(not table[name].null_count, f"the column {name} has blanks")
    for name in ("query", "document"):
        require(table[name].type in (pa.string(), pa.int64()), f"the column {name} has another type")
    for name in names & {*SHOWN_ROWS, *share_names(scale)}:
        require(table[name].type == pa.float64(), f"the column {name} has another type")
    require(table["judgments"].type == pa.int64(), "the column judgments has another type")
    known = pa.array(labels)
    require(table["grade"].type == known.type, "the column grade has another type")
    require(pc.all(pc.is_in(table["grade"], value_set=known)).as_py() is not False, "a grade is not on the scale")


def check_assessor_table(table: pa.Table) -> None:
    """Raise ValueError unless a saved table of assessors has ids, numbers of judgments and numeric parameters."""
    require({"assessor", "judgments"} <= set(table.column_names), "the table of assessors is incomplete")
    check_ids("assessors", table["assessor"].combine_chunks())
    for name in table.column_names:
        kind = table[name].type
        text = name in ("assessor", "family")
        allowed = (pa.string(), pa.int64()) if text else (pa.float64(), pa.int64())
        require(kind in allowed, f"the column {name} of the assessors has another type")
    counts = table["judgments"]
    require(counts.type == pa.int64() and not counts.null_count, "the column judgments has another type")
