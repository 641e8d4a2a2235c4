"""List documents that judges disagree on, and pairs of grades that they confuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank.collection.pool import item_ids
from crowdrank.consensus._base import Aggregator
from crowdrank.judgments.table import UNJUDGEABLE, Judgments


def disagreements(judgments: Judgments, model: Aggregator | None = None) -> pa.Table:
    """The documents that their judges disagree on, the most first, for a talk about the guidelines.

    `spread` is the mean difference of two of its judges' grades; `grades` says who gave what; with a model, `grade` is
    the consensus.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [0, 2, 1, 1]}
    >>> disagreements(read_judgments(pd.DataFrame(rows))).to_pylist()
    [{'query': 'all', 'document': 'a', 'judgments': 2, 'spread': 2.0, 'grades': '0 by x; 2 by y'}]
    """
    table = judgments.on_main_scale()
    values = np.array(table.scale.values)[np.maximum(table.grade, 0)]
    count = np.diff(table.offsets)
    item = np.repeat(np.arange(table.n_items), count)
    order = np.lexsort((values, item))
    # The mean difference of all pairs, from ranks: sum of (2 rank - n - 1) value over the pairs.
    rank = np.arange(len(values)) - table.offsets[item] + 1
    weight = 2 * rank - count[item] - 1
    total = np.bincount(item, weight * values[order], table.n_items)
    spread = total / np.maximum(count * (count - 1) / 2, 1)
    shown_items = np.flatnonzero(spread > 0)
    shown_items = shown_items[np.lexsort((-count[shown_items], -spread[shown_items]))]
    query, document = (column.take(pa.array(shown_items)) for column in item_ids(table))
    columns = {
        "query": query,
        "document": document,
        "judgments": count[shown_items],
        "spread": spread[shown_items],
        "grades": pa.array([_grades_told(table, int(one)) for one in shown_items], pa.string()),
    }
    if model is not None:
        known = model.consensus_.document_table
        row = model.judgments_.positions(query, document)
        columns["grade"] = known["grade"].combine_chunks().take(pa.array(np.maximum(row, 0), mask=row < 0))
    return pa.table(columns)


def _grades_told(table: Judgments, item: int) -> str:
    rows = range(int(table.offsets[item]), int(table.offsets[item + 1]))
    given: dict[int, list[str]] = {}
    for row in rows:
        given.setdefault(int(table.grade[row]), []).append(str(table.assessors[int(table.assessor[row])].as_py()))
    names = {code: "cannot judge" if code == UNJUDGEABLE else table.scale.names[code] for code in given}
    return "; ".join(f"{names[code]} by {', '.join(who)}" for code, who in sorted(given.items()))


def confusions(judgments: Judgments) -> list[dict[str, Any]]:
    """How often two judges of a document give each pair of grades, and how much more often than by chance.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [0, 1, 1, 1]}
    >>> confusions(read_judgments(pd.DataFrame(rows)))
    [{'grades': '0 and 1', 'pairs': 1, 'share': 0.5}]
    """
    table = judgments.on_main_scale().with_unjudgeable("lowest")
    votes = np.zeros((table.n_items, len(table.scale)))
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    np.add.at(votes, (item, table.grade), 1.0)
    together = votes.T @ votes
    pairs = (votes.sum(axis=1) * (votes.sum(axis=1) - 1) / 2).sum()
    found = [
        {
            "grades": f"{table.scale.names[low]} and {table.scale.names[high]}",
            "pairs": int(together[low, high]),
            "share": float(together[low, high] / max(pairs, 1)),
        }
        for low in range(len(votes[0]))
        for high in range(low + 1, len(votes[0]))
        if together[low, high]
    ]
    return sorted(found, key=lambda row: -row["pairs"])
