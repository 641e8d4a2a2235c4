"""Tables that a run writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank.consensus.result import Consensus
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.result import json_number
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.selection import SelectionResult
from crowdrank.pipeline.summary import RankerTest, describe
from crowdrank.rankers.base import Ranker

LABELS = {
    "majority": "grade",
    "average": "relevance",
    "family-mean": "relevance",
    "dawid-skene": "expected-grade",
    "gda": "expected-grade",
}
"""Consensus methods whose labels stand in the training table, and which of their values."""
FIGURES = ("mean", "difference", "lower", "upper", "p", "p_holm", "significant")
"""Figures of the comparison that stand in the table of candidates."""


def documents_table(consensus: Consensus, data: RunData) -> pa.Table:
    """Return the consensus of each judged document and its expert grade, if it has one."""
    expert = np.full(len(consensus.document_table), np.nan)
    if data.gold is not None:
        code = data.gold.for_items(data.labels).code
        expert[code >= 0] = np.array(data.gold.scale.values)[code[code >= 0]]
    return consensus.document_table.append_column("expert", pa.array(expert, from_pandas=True))


def next_table(documents: pa.Table) -> pa.Table:
    """Return the documents without an expert grade, those with the widest intervals first."""
    table = documents.filter(pc.is_null(documents["expert"]))
    table = table.append_column("width", pc.subtract(table["upper"], table["lower"]))
    table = table.sort_by([("width", "descending"), ("judgments", "ascending")])
    return table.select(["query", "document", "relevance", "lower", "upper", "width", "grade", "judgments"])


def comparison_table(test: RankerTest) -> pa.Table:
    """Return one row per candidate, those with the highest mean on the selection queries first."""
    means = test.selection_means
    order = sorted(test.outcome.scores, key=lambda name: -means.get(name, 0.0))
    figures = {} if test.comparison is None else _figures(test.comparison.rows)
    rows: list[dict[str, Any]] = [
        {
            "candidate": name,
            "about": describe(name),
            "chosen": name == test.chosen,
            "selection_mean": means.get(name),
            "selection_queries": len(test.split.development) or None,
            "test_queries": len(test.split.test) if test.comparison is not None else None,
            **figures.get(name, {}),
            "note": _ensemble_note(test.outcome.weights.get(name, {})),
        }
        for name in order
    ]
    rows += [
        {"candidate": name, "about": describe(name), "note": f"left out: {reason}"}
        for name, reason in test.outcome.failed.items()
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    floats = [name for name in names if pa.types.is_null(table[name].type)]
    for name in floats:
        table = table.set_column(names.index(name), name, table[name].cast(pa.float64()))
    return table


def _figures(rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Return mean, difference, interval and p-values of each measure in a comparison, by candidate."""
    figures: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        own = figures.setdefault(row["run"], {})
        own |= {f"{row['measure']} {name}": json_number(row[name]) for name in FIGURES}
    return figures


def _ensemble_note(weights: Mapping[str, float]) -> str:
    """Return the weights of an ensemble, the largest first."""
    if len(set(weights.values())) == 1:
        return f"{len(weights)} rankers, weight {next(iter(weights.values())):.3f} each"
    ordered = sorted(weights.items(), key=lambda one: -one[1])
    return ", ".join(f"{weight:.2f} {member}" for member, weight in ordered)


def training_table(data: RunData, fits: ConsensusFits, outcome: SelectionResult) -> pa.Table:
    """Return the labels that rankers are trained on: by consensus method, by remapper, and the expert grades."""
    rows = np.flatnonzero((data.item >= 0) | data.is_graded)
    known = data.features.take(rows)
    columns: dict[str, Any] = {
        "query": known.query,
        "document": known.document,
        "part": _parts(data, outcome)[rows],
        "labels": data.n_labels[rows],
    }
    for method, target in LABELS.items():
        if fits.has(method):
            columns[method.replace("-", "_")] = fits.labels(method, target)[rows]
    for name, remapped in outcome.remapped.items():
        place = remapped.labels.judgments.positions(known.query, known.document)
        for role, values in zip(("target", "weight"), remapped.rescaled(), strict=True):
            columns[f"{name.replace('-', '_')}_{role}"] = np.where(place >= 0, values[place], np.nan)
    columns["expert"] = data.expert[rows]
    return pa.table(
        {
            name: pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column
            for name, column in columns.items()
        }
    )


def _parts(data: RunData, outcome: SelectionResult) -> Any:
    """Return what the query of each row serves: `test`, `selection` or `train`."""
    names = np.full(len(data.query_ids), "train", dtype=object)
    names[outcome.split.development] = "selection"
    names[outcome.split.test] = "test"
    return names[data.query]


def remapping_table(outcome: SelectionResult) -> pa.Table | None:
    """Return the mean learned target and weight by feature of the labels, for each remapper; None if there is none."""
    tables = []
    for kind, remapped in outcome.remapped.items():
        table = remapped.by_feature()
        tables.append(table.add_column(0, "remapper", pa.array([kind] * len(table))))
    return pa.concat_tables(tables) if tables else None


def per_query_table(test: RankerTest) -> pa.Table | None:
    """Return the value of each candidate on each test query; None if nothing was tested."""
    if test.comparison is None:
        return None
    table = pa.Table.from_pandas(test.comparison.per_query, preserve_index=False)
    return table.rename_columns(["candidate" if name == "run" else name for name in table.column_names])


def feature_table(data: RunData, ranker: Ranker) -> pa.Table:
    """Return each feature with its share of missing values, its range and its importance in the selected ranker."""
    importance = pa.array(ranker.feature_importances_)
    return data.feature_table().append_column("importance", importance).sort_by([("importance", "descending")])
