"""The result of a model: a table of documents and a table of assessors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._arrow import from_numpy, to_array, to_table
from crowdrank._folders import require
from crowdrank._numba import njit
from crowdrank._text import MAX_TABLE_ROWS, counted, heading, html_table, panel
from crowdrank._typing import Arrays
from crowdrank.consensus.grade_rules import LOSS_TOLERANCE, choose_grades
from crowdrank.engine.shards import Shard
from crowdrank.errors import UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.columns import EXPERT_GRADED, PREFERENCES, PRIOR_RELEVANCE, SCALE_COLUMN
from crowdrank.judgments.joined import JoinedJudgments
from crowdrank.judgments.scale import Scale, add_scale_column
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments
from crowdrank.on_disk.storage import check_ids

DOCUMENT_ESTIMATES = ("relevance", "sd", "lower", "upper", "difficulty", "unjudgeable", PRIOR_RELEVANCE, "n_eff")
"""Estimates that a model may have of a document besides its grade, in the order of the columns."""
NOTEBOOK_DOCUMENTS = ("query", "document", "relevance", "lower", "upper", "grade", "judgments")
NOTEBOOK_ASSESSORS = ("assessor", "family", "judgments", "informativeness", "accuracy", "ability", "precision")
"""Columns of the tables of documents and assessors that a notebook shows."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """Estimates of a model: relevance, its uncertainty and the grade per document; parameters per assessor.

    `documents` and `assessors` are DataFrames of the library that the judgments came in.

    Attributes:
        method: name of the model's class.
        document_table: the judged documents as an Arrow table.
        assessor_table: `assessors` as an Arrow table.
        scale: scale of the grades.
        labels: label of each grade: as in the DataFrame of the judgments, or its number or name.
        backend: DataFrame library of `documents` and `assessors`.
        features_used: names of the features that set the prior of relevance; empty without such a prior. Labels that
            used features must not serve to compare rankers that use the same features.
        prediction_table: documents with features but without judgments as an Arrow table, with the same columns.

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
    labels: tuple[Any, ...]
    backend: str = "pandas"
    features_used: tuple[str, ...] = ()
    prediction_table: pa.Table | None = None

    def __repr__(self) -> str:
        documents, assessors = self.n_documents, len(self.assessor_table)
        return f"<Consensus by {self.method}: {counted(documents, 'document')}, {counted(assessors, 'assessor')}>"

    def _repr_html_(self) -> str:
        parts = [heading(repr(self).strip("<>"))]
        for table, names in ((self.document_table, NOTEBOOK_DOCUMENTS), (self.assessor_table, NOTEBOOK_ASSESSORS)):
            columns = [name for name in names if name in table.column_names]
            parts.append(html_table(table.select(columns).slice(0, MAX_TABLE_ROWS).to_pylist(), columns, len(table)))
        return panel(*parts)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.document_table) + (0 if self.prediction_table is None else len(self.prediction_table))

    def document_parts(self) -> Iterator[pa.Table]:
        """Yield the rows of the documents in parts; in memory judged documents and predictions are one part each."""
        yield self.document_table
        if self.prediction_table is not None:
            yield self.prediction_table

    def all_documents(self) -> pa.Table:
        """Return the rows of all documents, with and without judgments."""
        return concat_documents(self.document_parts())

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers of all documents, in the order of :meth:`document_parts`."""
        parts = [part[name].to_numpy() for part in self.document_parts()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def require_grades(self) -> None:
        """Raise UsageError if there are no grades, because the model was fitted to preferences alone."""
        if "grade" not in next(self.document_parts()).column_names:
            problem = "There are no grades: the model was fitted to preferences alone"
            raise UsageError(problem, kind="no-grades", fix="use the relevance, or give judgments too")

    @property
    def share_names(self) -> list[str]:
        """Names of the columns with the probability of each grade: p0, p1, ..."""
        return self.scale.share_names

    @cached_property
    def true_share_names(self) -> list[str]:
        """Names of the columns with P(true grade): true0, true1, ...; p0, p1, ... in a model without a true grade."""
        names = self.scale.true_share_names
        return names if names[0] in next(self.document_parts()).column_names else self.share_names

    @cached_property
    def documents(self) -> Any:
        """One row per (query, document): relevance, sd, lower, upper, grade, p0.., true0.., judgments."""
        return frames.from_arrow(self.all_documents(), self.backend)

    @cached_property
    def assessors(self) -> Any:
        """One row per assessor: judgments and the model's parameters."""
        return frames.from_arrow(self.assessor_table, self.backend)


def concat_documents(parts: Iterable[pa.Table]) -> pa.Table:
    """Return one table from tables of documents; ids become text if some are numbers and others text."""
    tables = list(parts)
    for name in ("query", "document"):
        if len({table[name].type for table in tables}) > 1:
            tables = [
                table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
                for table in tables
            ]
    return pa.concat_tables(tables)


def item_ids(judgments: Judgments) -> dict[str, pa.Array]:
    """Return columns with the query and the document of each item."""
    return {
        "query": judgments.queries.take(from_numpy(judgments.item_query)),
        "document": judgments.documents.take(from_numpy(judgments.item_document)),
    }


def estimate_columns(grade_by: str, shard_index: int, rows: Arrays) -> Arrays:
    """Return the estimates of a shard with the column `grade`, and probabilities as columns instead of matrices.

    The grade follows from P(true grade) if the model has one, otherwise from P(grade). The matrices `p` and `true` are
    removed from `rows`, so that their memory can be freed.
    """
    shares = {name: rows.pop(name) for name in ("p", "true") if name in rows}
    columns = {
        f"{name}{code}": np.ascontiguousarray(column)
        for name, matrix in shares.items()
        for code, column in enumerate(matrix.T)
    }
    return {**rows, "grade": choose_grades(shares.get("true", shares["p"]), grade_by), **columns}


def document_table(judgments: Judgments, estimates: Arrays, gold_code: NDArray[np.int8] | None = None) -> pa.Table:
    """Return one row per item of the judgments from the columns of :func:`estimate_columns`.

    Args:
        judgments: the judgments.
        estimates: estimates of the items.
        gold_code: code of the expert grade of each item, -1 without one; None if the fit had no expert grades.

    """
    scale = judgments.main_scale
    shares = {name: estimates[f"p{code}"] for code, name in enumerate(scale.share_names)}
    if "true0" in estimates:
        shares |= {name: estimates[f"true{code}"] for code, name in enumerate(scale.true_share_names)}
    documents: dict[str, Any] = {
        **item_ids(judgments),
        **{name: estimates[name] for name in DOCUMENT_ESTIMATES if name in estimates},
        "grade": grade_column(estimates["grade"], grade_labels(judgments)),
        **shares,
        "judgments": np.diff(judgments.offsets),
        **({} if gold_code is None else {EXPERT_GRADED: (gold_code >= 0).astype(np.int64)}),
    }
    return add_scale_column(to_table(documents), scale)


def grade_column(codes: NDArray[np.int8], labels: tuple[Any, ...]) -> pa.Array:
    """Return the column of labels for grade codes, (n,)."""
    return to_array(labels).take(from_numpy(np.minimum(codes, len(labels) - 1)))  # a scale has at least two grades


def grade_codes(column: pa.ChunkedArray, labels: tuple[Any, ...]) -> NDArray[np.int64]:
    """Return the codes of a column of grades, (n,); the inverse of :func:`grade_column`.

    >>> grade_codes(pa.chunked_array([["Good", "Bad"]]), ("Bad", "Good")).tolist()
    [1, 0]
    """
    return np.asarray(pc.index_in(column, value_set=to_array(labels)).to_numpy(), np.int64)


def grade_labels(judgments: Judgments | ShardedJudgments) -> tuple[Any, ...]:
    """Return the label of each grade: as in the DataFrame of the judgments, or its number or name."""
    if isinstance(judgments, Judgments) and judgments.labels is not None:
        return judgments.labels
    scale = judgments.main_scale
    return tuple(int(value) for value in scale.values) if scale.numeric else scale.names


def discrete_rows(
    posterior: NDArray[np.float64], answers: NDArray[np.float64], shard: Shard, interval: float
) -> Arrays:
    """Return estimates of items from P(true grade), (n_items, n_grades): relevance is the mean of the grade values.

    Args:
        posterior: P(true grade), (n_items, n_grades).
        answers: probability that a typical careful assessor gives each grade, (n_items, n_grades).
        shard: the judgments.
        interval: level of the interval from `lower` to `upper`.

    """
    relevance, sd, lower, upper = posterior_summaries(posterior, shard.values, (1 - interval) / 2, LOSS_TOLERANCE)
    answers = answers / answers.sum(axis=1, keepdims=True)
    restrict_to_gold(answers, shard)
    return {"relevance": relevance, "sd": sd, "lower": lower, "upper": upper, "p": answers, "true": posterior}


def restrict_to_gold(probabilities: NDArray[np.float64], shard: Shard) -> None:
    """Set to 0, in place, the probabilities of grades that an expert grade excludes, and normalize each row.

    Rows (items) without an expert grade stay as they are. If no allowed grade has a positive probability, all allowed
    grades get the same one.
    """
    known = shard.gold >= 0
    allowed = shard.gold_sets[shard.gold[known]]
    rest = probabilities[known] * allowed
    none = rest.sum(axis=1) == 0
    rest[none] = allowed[none]
    probabilities[known] = rest / rest.sum(axis=1, keepdims=True)


def check_consensus(consensus: Consensus, judgments: Judgments) -> None:
    """Raise ValueError unless the saved tables of a consensus are those of these judgments."""
    for table in consensus.document_parts():
        check_documents(table, consensus.scale, consensus.labels)
    check_assessor_table(consensus.assessor_table)
    known = {**item_ids(judgments), "judgments": pa.array(np.diff(judgments.offsets))}
    is_joined = isinstance(judgments, JoinedJudgments)
    if isinstance(judgments, JoinedJudgments):
        known[PREFERENCES] = pa.array(judgments.preferences_per_item())
    for table in consensus.document_parts():
        names = set(table.column_names)
        require((PREFERENCES in names) == is_joined, "the column preferences is missing, or there are no preferences")
        require("grade" in names or (is_joined and not len(judgments)), "there are no grades")
    for name, column in known.items():
        same = consensus.document_table[name].combine_chunks().equals(column)
        require(same, f"the column {name} of the documents is not that of the judgments")
    same = consensus.assessor_table["assessor"].combine_chunks().equals(judgments.assessors)
    require(same, "the assessors are not those of the judgments")


def check_documents(table: pa.Table, scale: Scale, labels: tuple[Any, ...]) -> None:
    """Raise ValueError unless a saved table of documents has the columns and types of :func:`document_table`."""
    names = set(table.column_names)
    has_grades = "grade" in names or PREFERENCES not in names  # preferences alone have none
    grades = ["grade", *scale.share_names] if has_grades else []
    required = {"query", "document", "relevance", *grades, "judgments"}
    require(required <= names, f"there is no column {min(required - names, default='')}")
    estimates = [name for name in DOCUMENT_ESTIMATES if name in names]
    true_shares = [name for name in scale.true_share_names if name in names]
    order = ["query", "document", *estimates, *grades, *true_shares, "judgments"]
    order += [EXPERT_GRADED] if EXPERT_GRADED in names else []
    order += [] if scale.numeric else [SCALE_COLUMN]
    order += [PREFERENCES] if PREFERENCES in names else []
    require(table.column_names == order, "there is an unknown column, or the columns are in another order")
    for name in names:
        require(not table[name].null_count, f"the column {name} has blanks")
    for name in ("query", "document"):
        require(table[name].type in (pa.string(), pa.int64()), f"the column {name} has another type")
    require(len(true_shares) in (0, len(scale)), "columns with the probability of true grades are missing")
    for name in names & {*DOCUMENT_ESTIMATES, *grades[1:], *true_shares}:
        require(table[name].type == pa.float64(), f"the column {name} has another type")
    for name in names & {"judgments", EXPERT_GRADED, PREFERENCES}:
        require(table[name].type == pa.int64(), f"the column {name} has another type")
    if not has_grades:
        return
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


def _posterior_summaries(
    posterior: NDArray[np.float64], values: NDArray[np.float64], tail: float, tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    shares, last = np.ascontiguousarray(posterior.T), len(values) - 1  # (n_grades, n_items)
    mean = (shares * values[:, None]).sum(axis=0)
    sd = np.sqrt((shares * (values[:, None] - mean) ** 2).sum(axis=0))
    total = shares.copy()
    for c in range(last):  # faster than a cumulative sum along the short axis
        total[c + 1] += total[c]
    low = np.minimum((total <= tail + tolerance).sum(axis=0, dtype=np.int16), last)
    high = np.minimum((total < 1.0 - tail - tolerance).sum(axis=0, dtype=np.int16), last)
    return mean, sd, np.minimum(values[low], mean), np.maximum(values[high], mean)


@njit(nogil=True, numpy=_posterior_summaries)
def posterior_summaries(
    posterior: NDArray[np.float64], values: NDArray[np.float64], tail: float, tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean, standard deviation and quantiles `tail` and 1 - `tail` of each item's posterior over `values`."""
    # posterior (n_items, n_grades), values (n_grades,) -> (n_items,) each
    n_items, n_grades = posterior.shape
    mean, sd = np.empty(n_items), np.empty(n_items)
    lower, upper = np.empty(n_items), np.empty(n_items)
    for item in range(n_items):
        m = 0.0
        for c in range(n_grades):
            m += posterior[item, c] * values[c]
        variance, below = 0.0, 0.0
        low, high = n_grades - 1, n_grades - 1
        for c in range(n_grades):
            variance += posterior[item, c] * (values[c] - m) ** 2
            if below <= tail + tolerance and below + posterior[item, c] > tail + tolerance:
                low = c
            if below < 1.0 - tail - tolerance and below + posterior[item, c] >= 1.0 - tail - tolerance:
                high = c
            below += posterior[item, c]
        mean[item], sd[item] = m, np.sqrt(variance)
        # Rounding can put the mean of a nearly certain grade just outside of it; the interval contains both.
        lower[item], upper[item] = min(values[low], m), max(values[high], m)
    return mean, sd, lower, upper
