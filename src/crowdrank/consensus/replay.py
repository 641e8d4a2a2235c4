"""A document's judgments one by one, and what is known after each (the GDA paper's Figure 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.consensus._base import Aggregator
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

SHOWN = ("relevance", "sd", "lower", "upper", "grade")


def trace(model: Aggregator, judgments: Judgments, document: Any, query: Any = None) -> pa.Table:
    """Replay a document's judgments in the order of their time (or of their rows), the assessors as estimated.

    One row per judgment: its number, the assessor, the grade given, and relevance, sd, lower, upper and grade of the
    document after it.

    >>> import pandas as pd
    >>> from crowdrank import DawidSkene, read_judgments
    >>> judgments = read_judgments(pd.DataFrame(
    ...     {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [1, 0, 0, 0]}))
    >>> trace(DawidSkene().fit(judgments), judgments, "a").column_names[:3]
    ['step', 'assessor', 'given']
    """
    item = _item(judgments, document, query)
    rows = _in_time(judgments, np.arange(judgments.offsets[item], judgments.offsets[item + 1]))
    steps = [_known_after(model, judgments, rows[: step + 1]) for step in range(len(rows))]
    told = judgments.where(_only(judgments, rows)).to_arrow()
    place = np.argsort(np.argsort(rows))  # `told` has the rows in the order of the table
    return pa.table(
        {
            "step": np.arange(1, len(rows) + 1),
            "assessor": told["assessor"].take(pa.array(place)),
            "given": told["grade"].take(pa.array(place)),
            **{name: pa.chunked_array([step[name].combine_chunks() for step in steps]) for name in SHOWN},
        }
    )


def _item(judgments: Judgments, document: Any, query: Any) -> int:
    """The number of the item that the ids name; where the query is not told, the document must be of one only."""
    code = ids.match(judgments.documents, pa.array([str(document)]))[0]
    items = np.flatnonzero(judgments.item_document == code)
    if query is not None:
        items = items[judgments.item_query[items] == ids.match(judgments.queries, pa.array([str(query)]))[0]]
    if not len(items):
        of_query = "" if query is None else f" of query {shown(query)}"
        raise InputError(f"there is no judgment of the document {shown(document)}{of_query}", fix="check the ids")
    if len(items) > 1:
        raise InputError(
            f"the document {shown(document)} stands under {len(items)} queries", fix="say which with --query"
        )
    return int(items[0])


def _in_time(judgments: Judgments, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if "time" not in judgments.extras:
        return rows
    return rows[np.argsort(judgments.extras["time"][rows], kind="stable")]


def _only(judgments: Judgments, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    keep = np.zeros(len(judgments), dtype=bool)
    keep[rows] = True
    return keep


def _known_after(model: Aggregator, judgments: Judgments, rows: NDArray[np.int64]) -> pa.Table:
    return model.infer(judgments.where(_only(judgments, rows))).document_table.select(list(SHOWN))
