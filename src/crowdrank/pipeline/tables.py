"""The tables that a run writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank.consensus.result import Consensus
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.selection import SelectionResult
from crowdrank.pipeline.settings import RunSettings
from crowdrank.pipeline.summary import Verdict, about
from crowdrank.rankers.labels import pair_positions

LABELS = (("majority", "grade"), ("average", "relevance"), ("family-mean", "relevance"))
EXPECTED = ("dawid-skene", "gda")
FIGURES = ("mean", "difference", "lower", "upper", "p", "p_holm", "significant")


def comparison_table(outcome: SelectionResult, verdict: Verdict) -> pa.Table:
    """One row per candidate, the best by the choice first: figures of the choice and of the test, and notes."""
    order = sorted(outcome.scores, key=lambda name: -verdict.development.get(name, 0.0))
    rows = [_row(name, outcome, verdict) for name in order]
    rows += [
        {"candidate": name, "about": about(name), "note": f"left out: {why}"} for name, why in outcome.failed.items()
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _row(name: str, outcome: SelectionResult, verdict: Verdict) -> dict[str, Any]:
    parts = outcome.weights.get(name, {})
    row: dict[str, Any] = {
        "candidate": name,
        "about": about(name),
        "chosen": name == outcome.chosen,
        "choice_mean": verdict.development.get(name),
        "choice_queries": len(outcome.parts.development) or None,
        "test_queries": len(outcome.parts.test) if verdict.comparison is not None else None,
    }
    if verdict.comparison is not None:
        for found in verdict.comparison.rows.to_pylist():
            if found["run"] == name:
                row |= {f"{found['measure']} {figure}": _number(found[figure]) for figure in FIGURES}
    row["note"] = _parts_told(parts)
    return row


def _parts_told(parts: Mapping[str, float]) -> str:
    """What an ensemble is made of, the largest part first."""
    if len(set(parts.values())) == 1:
        return f"{len(parts)} rankers, {next(iter(parts.values())):.3f} each"
    return ", ".join(f"{share:.2f} {part}" for part, share in sorted(parts.items(), key=lambda one: -one[1]))


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def next_table(consensus: Consensus, data: RunData) -> pa.Table:
    """Documents by how little is known of them, the widest interval first; those that experts graded are left out."""
    table = consensus.document_table
    graded = np.flatnonzero(~np.isnan(data.expert))
    if len(graded):
        known = data.taken(graded)
        place = pair_positions(
            known.query, known.document, table["query"].combine_chunks(), _one(table), "the features"
        )
        table = table.filter(pa.array(place < 0))
    table = table.append_column("width", pc.subtract(table["upper"], table["lower"]))
    table = table.sort_by([("width", "descending"), ("judgments", "ascending")])
    return table.select(["query", "document", "relevance", "lower", "upper", "width", "grade", "judgments"])


def _one(table: pa.Table) -> pa.Array:
    return table["document"].combine_chunks()


def training_table(data: RunData, fits: ConsensusFits, outcome: SelectionResult, settings: RunSettings) -> pa.Table:
    """What rankers learn from, row by row: the labels by each way, what experts said, and which part it served."""
    rows = np.flatnonzero((data.judged > 0) | ~np.isnan(data.expert))
    known = data.taken(rows)
    columns: dict[str, Any] = {
        "query": known.query,
        "document": known.document,
        "part": _parts(data, outcome)[rows],
        "labels": data.judged[rows],
    }
    for method, target in LABELS:
        if fits.has(method):
            columns[method.replace("-", "_")] = fits.labels(method, target)[rows]
    for method in EXPECTED:
        if fits.has(method):
            columns[method.replace("-", "_")] = fits.labels(method, "expected-grade")[rows]
    for kind, remapped in outcome.remapped.items():
        place = remapped.labels.judgments.positions(known.query, known.document)
        for role, values in zip(("target", "weight"), remapped.rescaled(), strict=True):
            columns[f"{kind}_{role}"] = np.where(place >= 0, values[place], np.nan)
    columns["expert"] = data.expert[rows]
    blank = {
        name: pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
    return pa.table(blank)


def _parts(data: RunData, outcome: SelectionResult) -> Any:
    """`test`, `choice` or `train` of each row, by its query."""
    names = np.full(len(data.query_ids), "train", dtype=object)
    names[outcome.parts.development] = "choice"
    names[outcome.parts.test] = "test"
    return names[data.query]


def remapping_table(outcome: SelectionResult) -> pa.Table | None:
    """What labels turned out to be worth, by what is known of them, of each remapper that ran."""
    tables = []
    for kind, remapped in outcome.remapped.items():
        told = remapped.by_feature()
        tables.append(told.add_column(0, "remapper", pa.array([kind] * len(told))))
    return pa.concat_tables(tables) if tables else None


def per_query_table(data: RunData, verdict: Verdict) -> pa.Table | None:
    """The value of each candidate on each test query, where there was a test."""
    if verdict.comparison is None:
        return None
    told = pa.Table.from_pandas(verdict.comparison.per_query, preserve_index=False)
    ids = data.query_ids.take(pa.array(told["query"].to_numpy().astype(np.int64)))
    return told.set_column(told.column_names.index("query"), "query", ids).rename_columns(
        ["candidate" if name == "run" else name for name in told.column_names]
    )
