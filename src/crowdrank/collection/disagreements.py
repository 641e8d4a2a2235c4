"""Documents on which assessors disagree, and grades that they confuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank.consensus._base import Aggregator
from crowdrank.judgments.table import UNJUDGEABLE, Judgments


def disagreements(judgments: Judgments, model: Aggregator | None = None) -> pa.Table:
    """Return the documents on which assessors disagree, those with the largest differences first.

    Args:
        judgments: the judgments.
        model: a fitted model whose grades are added.

    Returns:
        query, document, judgments (their number), spread (mean difference of the grades of two assessors), grades
        (with assessors) and, with a model, grade (the consensus).

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
    # The mean difference over all pairs, from ranks: sum of (2 rank - n - 1) value over the number of pairs.
    rank = np.arange(len(values)) - table.offsets[item] + 1
    total = np.bincount(item, (2 * rank - count[item] - 1) * values[order], table.n_items)
    spread = total / np.maximum(count * (count - 1) / 2, 1)
    items = np.flatnonzero(spread > 0)
    items = items[np.lexsort((-count[items], -spread[items]))]
    query, document = (column.take(pa.array(items)) for column in table.item_ids())
    columns = {
        "query": query,
        "document": document,
        "judgments": count[items],
        "spread": spread[items],
        "grades": pa.array([_grades_by_assessor(table, one) for one in items.tolist()], pa.string()),
    }
    if model is not None:
        row = model.judgments_.positions(query, document)
        grade = model.consensus_.document_table["grade"].combine_chunks()
        columns["grade"] = grade.take(pa.array(np.maximum(row, 0), mask=row < 0))
    return pa.table(columns)


def _grades_by_assessor(table: Judgments, item: int) -> str:
    """Return the grades of an item with their assessors as text."""
    assessors: dict[int, list[str]] = {}
    for row in range(int(table.offsets[item]), int(table.offsets[item + 1])):
        assessors.setdefault(int(table.grade[row]), []).append(str(table.assessors[int(table.assessor[row])].as_py()))
    names = {code: "cannot judge" if code == UNJUDGEABLE else table.scale.names[code] for code in assessors}
    return "; ".join(f"{names[code]} by {', '.join(who)}" for code, who in sorted(assessors.items()))


def confusions(judgments: Judgments) -> list[dict[str, Any]]:
    """Return how often two assessors of a document give each pair of different grades, the most frequent first.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [0, 1, 1, 1]}
    >>> confusions(read_judgments(pd.DataFrame(rows)))
    [{'grades': '0 and 1', 'pairs': 1, 'share': 0.5}]
    """
    table = judgments.on_main_scale().with_unjudgeable("lowest")
    votes = table.vote_counts()
    counts = np.triu(votes.T @ votes, 1)
    n_votes = votes.sum(axis=1)
    n_pairs = max((n_votes * (n_votes - 1) / 2).sum(), 1)
    found = [
        {
            "grades": f"{table.scale.names[low]} and {table.scale.names[high]}",
            "pairs": int(counts[low, high]),
            "share": float(counts[low, high] / n_pairs),
        }
        for low, high in zip(*np.nonzero(counts), strict=True)
    ]
    return sorted(found, key=lambda row: -row["pairs"])
