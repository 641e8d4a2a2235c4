"""Replay of a document's judgments (GDA paper, Figure 2), and the effect of each of its preferences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._typing import Integers
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.preference_posterior import Compared
from crowdrank.engine.shards import items_of
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

ESTIMATE_COLUMNS = ("relevance", "sd", "lower", "upper", "grade")
ANSWERS = {2: "much better", 1: "better", 0: "tie", -1: "worse", -2: "much worse"}
"""Description of a preference for the traced document."""


def trace(model: Aggregator, judgments: Judgments, document: Any, query: Any = None) -> pa.Table:
    """Replay a document's judgments in the order of their time, or of their rows, with the fitted assessors.

    A model of pairs compares the document with the other documents of its query, all of whose judgments are used.

    Args:
        model: a fitted model.
        judgments: judgments of the document, and of its query.
        document: id of the document.
        query: id of its query; needed if several queries have the document.

    Returns:
        One row per judgment: step, assessor, given grade, and relevance, sd, lower, upper and grade after it.

    Raises:
        InputError: there is no such document, or several queries have it.

    >>> import pandas as pd
    >>> from crowdrank import DawidSkene, read_judgments
    >>> judgments = read_judgments(pd.DataFrame(
    ...     {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [1, 0, 0, 0]}))
    >>> trace(DawidSkene().fit(judgments), judgments, "a").column_names[:3]
    ['step', 'assessor', 'given']
    """
    item = _find_item(judgments, document, query)
    rows = np.arange(judgments.offsets[item], judgments.offsets[item + 1])
    if "time" in judgments.extras:
        rows = rows[np.argsort(judgments.extras["time"][rows], kind="stable")]
    others = _rows_of_other_documents(judgments, item) if model.assessor_estimator_.locality == "query" else rows[:0]
    steps = [_estimate_document(model, judgments, item, np.append(others, rows[: n + 1])) for n in range(len(rows))]
    own = _keep_rows(judgments, rows).to_arrow()
    place = pa.array(np.argsort(np.argsort(rows)))  # `own` has the rows in the order of the table
    return pa.table(
        {
            "step": np.arange(1, len(rows) + 1),
            "assessor": own["assessor"].take(place),
            "given": own["grade"].take(place),
            **{name: pa.chunked_array([step[name].combine_chunks() for step in steps]) for name in ESTIMATE_COLUMNS},
        }
    )


def trace_preferences(model: Aggregator, document: Any, query: Any = None) -> pa.Table:
    """Return the preferences of a document in the fit of a model, those with the largest effect first.

    Args:
        model: model that was fitted to preferences.
        document: id of the document.
        query: id of its query; needed if several queries have the document.

    Returns:
        One row per preference: assessor, answer (such as `better`, for the traced document), other (the document that
        it was compared with), other_relevance, side (left or right; not there if positions are not known), weight (less
        than 1 in a family), pull (derivative of the log likelihood by the relevance of the document, at the estimates:
        above 0 it raises the document), and information (negative second derivative: how much it narrows the interval).

    Raises:
        InputError: there is no such document, or several queries have it.
        UsageError: the model was fitted without preferences.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"left": ["a", "b"], "right": ["b", "c"], "assessor": "x", "preference": [-1, -1]})
    >>> table = trace_preferences(GDA().fit(None, preferences=rows), "b").sort_by("other")
    >>> table.select(["answer", "other"]).to_pylist()
    [{'answer': 'worse', 'other': 'a'}, {'answer': 'better', 'other': 'c'}]

    """
    model._require_fitted()
    estimator = model.assessor_estimator_
    if not isinstance(estimator, GDA) or estimator.preferences_ is None:
        raise UsageError(
            "The model was fitted without preferences", kind="no-preferences", fix="fit GDA to preferences"
        )
    joined, theta, passes = estimator._open_passes(estimator.judgments_, estimator.preferences_)
    item, first = _find_item(joined, document, query), 0
    for number in range(len(passes.shards)):
        shard = passes.shards.load(number)
        if item < first + shard.n_items:
            break
        first += shard.n_items
    pairs, own = shard.preferences, item - first
    assert pairs is not None
    rows = np.flatnonzero((pairs.left == own) | (pairs.right == own))
    is_left = pairs.left[rows] == own
    other = first + np.where(is_left, pairs.right[rows], pairs.left[rows])
    weight = estimator._start(shard)["preference_weight"]
    relevance = estimator.consensus_.document_table["relevance"].to_numpy()
    slope, bend = Compared.of(pairs, weight, theta).terms(relevance[first + pairs.used_items])[1:, rows]
    pull = np.where(is_left, slope, -slope)
    order = np.argsort(-np.abs(pull), kind="stable")
    answer = np.where(is_left, pairs.answer[rows] - 2, 2 - pairs.answer[rows])[order]
    columns = {
        "assessor": joined.assessors.take(pa.array(pairs.assessor[rows][order])),
        "answer": [ANSWERS[int(one)] for one in answer],
        "other": joined.documents.take(pa.array(joined.item_document[other[order]])),
        "other_relevance": relevance[other[order]],
        "side": np.where(is_left, "left", "right")[order].tolist(),
        "weight": weight[rows][order],
        "pull": pull[order],
        "information": bend[order],
    }
    return pa.table({name: column for name, column in columns.items() if name != "side" or pairs.has_positions})


def _find_item(judgments: Judgments, document: Any, query: Any) -> int:
    """Return the index of the item with these ids; without a query, only one query may have the document."""
    if query is not None:
        items = judgments.positions(pa.array([str(query)]), pa.array([str(document)]))
        items = items[items >= 0]
    else:
        code = ids.match(judgments.documents, pa.array([str(document)]))[0]
        items = np.flatnonzero(judgments.item_document == code)
    if not len(items):
        of_query = "" if query is None else f" of query {shown(query)}"
        problem = f"there is no judgment of the document {shown(document)}{of_query}"
        raise InputError(problem, fix="check the ids", kind="unknown-document")
    if len(items) > 1:
        problem = f"{len(items)} queries have the document {shown(document)}"
        raise InputError(problem, fix=[Fix("name one with {}", "query")], kind="ambiguous-document")
    return int(items[0])


def _rows_of_other_documents(judgments: Judgments, item: int) -> Integers:
    """Return the rows of judgments of the other documents of the item's query."""
    row_item = items_of(judgments.offsets)
    same_query = judgments.item_query[row_item] == judgments.item_query[item]
    return np.flatnonzero(same_query & (row_item != item))


def _keep_rows(judgments: Judgments, rows: Integers) -> Judgments:
    keep = np.zeros(len(judgments), dtype=bool)
    keep[rows] = True
    return judgments.where(keep)


def _estimate_document(model: Aggregator, judgments: Judgments, item: int, rows: Integers) -> pa.Table:
    """Return the estimate of an item from the judgments in `rows`, one row of `ESTIMATE_COLUMNS`."""
    table = model.infer(_keep_rows(judgments, rows)).document_table
    document = judgments.documents[int(judgments.item_document[item])].as_py()
    row = table["document"].to_pylist().index(document)
    return table.select(list(ESTIMATE_COLUMNS)).slice(row, 1)
