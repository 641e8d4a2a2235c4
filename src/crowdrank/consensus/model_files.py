"""Files of a saved model: parameters, tables, judgments and expert grades as Parquet, each checked on reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdrank._array_io import arrays_to_table, read_arrays
from crowdrank._saved import LARGEST, Fields, is_text, read_parquet, require, require_array, require_range
from crowdrank._typing import Arrays
from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.feature_scores import MAX_SCORE, FeatureScores
from crowdrank.consensus.result import Consensus, check_consensus, grade_labels
from crowdrank.engine.local import LocalEngine
from crowdrank.judgments import storage
from crowdrank.judgments.gold import Gold, ItemGold
from crowdrank.judgments.grade_map import GradeMap
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import EMAggregator

SCORES, PREDICTIONS = "scores.parquet", "predictions.parquet"
EXAMPLE_ASSESSORS = 509
"""Number of assessors of the example that saved parameters are compared with; no other axis is as long."""


def write_model(model: EMAggregator, folder: Path) -> None:
    """Write the parameters, results and data of a fitted model; judgments on disk are refused."""
    import pyarrow.parquet as pq

    judgments = as_judgments(model.judgments_)
    pq.write_table(model.consensus_.document_table, folder / "documents.parquet")
    pq.write_table(model.consensus_.assessor_table, folder / "assessors.parquet")
    pq.write_table(arrays_to_table(model.theta_), folder / "theta.parquet")
    storage.save(judgments, folder / "judgments.parquet")
    if model.feature_scores_ is not None:
        scores = model.feature_scores_
        columns = {"query": scores.query, "document": scores.document, "score": scores.score}
        pq.write_table(pa.table(columns), folder / SCORES)
    if model.consensus_.prediction_table is not None:
        pq.write_table(model.consensus_.prediction_table, folder / PREDICTIONS)
    if model.gold_ is not None:
        storage.save(model.gold_.as_judgments(), folder / "gold.parquet")


def saved_fields(model: EMAggregator) -> dict[str, Any]:
    """Return the fields of `model.json` that :func:`read_data` reads."""
    grade_map = None if model.gold_ is None else model.gold_.grade_map
    fields: dict[str, Any] = {"history": model.history_, "converged": model.converged_}
    if model.feature_scores_ is not None:
        fields["features"] = list(model.feature_scores_.names)
    return fields if grade_map is None else {**fields, "gold_map": str(grade_map)}


def read_data(model: EMAggregator, folder: Path, fields: Fields, files: Iterable[str]) -> None:
    """Read the history, the judgments and the expert grades of a saved model."""
    model.history_, model.converged_ = fields.numbers("history"), fields.flag("converged")
    model.n_iter_ = len(model.history_)
    model.judgments_ = storage.load(folder / "judgments.parquet")
    model.feature_scores_ = None
    if SCORES in files:
        names = tuple(fields.sequence("features", is_text, "names"))
        model.feature_scores_ = _read_scores(folder / SCORES, names)
    model.gold_ = _read_gold(folder / "gold.parquet", fields) if "gold.parquet" in files else None


def _read_scores(path: Path, names: tuple[str, ...]) -> FeatureScores:
    table = read_parquet(path)
    require(table.column_names == ["query", "document", "score"], f"{path.name} has other columns")
    require(not any(table[name].null_count for name in table.column_names), f"{path.name} has blanks")
    query, document, score = (table[name].combine_chunks() for name in table.column_names)
    for ids in (query, document):
        require(ids.type in (pa.string(), pa.int64()), f"{path.name} has ids of another type")
    require(score.type == pa.float64(), "the scores are not numbers")
    values = score.to_numpy()
    require_range("score", values, -MAX_SCORE, MAX_SCORE)
    return FeatureScores(query, document, values, names)


def _read_gold(path: Path, fields: Fields) -> Gold:
    judged = storage.load(path)
    require(len(judged) == judged.n_items and not judged.n_unjudgeable, "an expert grade occurs twice or is missing")
    gold = Gold.of(judged)
    return replace(gold, grade_map=GradeMap.parse(fields.text("gold_map"))) if "gold_map" in fields else gold


def read_results(model: EMAggregator, folder: Path) -> None:
    """Read the parameters and the consensus of a saved model, and check them against its judgments."""
    prepared = model._prepare(model.judgments_)
    n_expert_grades = 0 if model.gold_ is None else len(model.gold_.scale)
    model.theta_ = read_arrays(folder / "theta.parquet")
    has_scores = model.feature_scores_ is not None
    theta, statistics = example_parameters(model, prepared.scales, n_expert_grades, has_scores=has_scores)
    model._check_theta(model.theta_, theta, prepared.n_assessors)
    documents, assessors = (read_parquet(folder / name) for name in ("documents.parquet", "assessors.parquet"))
    method, labels = type(model).__name__, grade_labels(prepared)
    names = () if model.feature_scores_ is None else model.feature_scores_.names
    predictions = read_parquet(folder / PREDICTIONS) if (folder / PREDICTIONS).exists() else None
    scale, backend = prepared.main_scale, prepared.backend
    model.consensus_ = Consensus(method, documents, assessors, scale, labels, backend, names, predictions)
    check_consensus(model.consensus_, prepared)
    columns = {*model._assessor_columns(theta, statistics)}
    columns |= set() if model._states(theta) is None else {"informativeness"}
    missing = columns - set(assessors.column_names)
    require(not missing, f"assessors.parquet has no column {min(missing, default='')}")


def check_theta(model: EMAggregator, theta: Arrays, made: Arrays, n_assessors: int) -> None:
    """Raise ValueError unless parameters have the names, types and shapes of an example and values in range."""
    require(set(theta) == set(made), "the parameters are not those of the model")
    for name, known in made.items():
        shape = tuple(n_assessors if size == EXAMPLE_ASSESSORS else size for size in known.shape)
        require_array(name, theta[name], known.dtype, shape)
        require_range(name, theta[name], *model.theta_ranges.get(name, (-LARGEST, LARGEST)))


def example_parameters(
    model: EMAggregator, scales: tuple[Scale, ...], n_expert_grades: int, *, has_scores: bool = False
) -> tuple[Arrays, Arrays]:
    """Return parameters and statistics of a model on a few synthetic judgments with these scales.

    The number of assessors differs from every other size, so that shapes show which axes are the assessors.
    """
    assessor = np.arange(2 * EXAMPLE_ASSESSORS, dtype=np.int32) % EXAMPLE_ASSESSORS
    scale_of = (np.arange(EXAMPLE_ASSESSORS) % len(scales)).astype(np.int8)
    sizes = np.array([len(scale) for scale in scales])[scale_of[assessor]]
    judgments = Judgments(
        queries=pa.array(["q"]),
        documents=pa.array(["a", "b"]),
        assessors=pa.array(np.arange(EXAMPLE_ASSESSORS)),
        item_query=np.zeros(2, np.int32),
        item_document=np.arange(2, dtype=np.int32),
        offsets=np.array([0, EXAMPLE_ASSESSORS, 2 * EXAMPLE_ASSESSORS]),
        assessor=assessor,
        grade=(np.arange(len(assessor)) // len(scales) % sizes).astype(np.int8),
        scales=scales,
        assessor_scale=scale_of,
    )
    gold = ItemGold(np.array([0, n_expert_grades - 1], np.int8), n_expert_grades, None) if n_expert_grades else None
    passes = LocalEngine().open(model, judgments, gold, (np.zeros(2),) if has_scores else None)
    theta = model._maximize(None, passes.accumulate(None))
    return theta, passes.accumulate(theta)
