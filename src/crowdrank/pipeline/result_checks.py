"""Checks of the files of a saved run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._folders import Fields, is_text, require
from crowdrank.assessors.assessor_report import FLAGS
from crowdrank.consensus.model import Aggregator

ESTIMATE_NUMBERS = (
    *("estimate", "lower", "upper", "difference", "difference_lower", "difference_upper", "p", "p_holm"),
    *("labels_only", "experts_only", "bias", "labels_difference", "experts_difference", "weight", "difference_weight"),
    *("worth", "difference_worth", "judged", "graded"),
)
"""Columns of numbers of the table of an estimate."""
FIGURES = ("mean", "difference", "lower", "upper", "p", "p_holm")
"""Figures of each measure in the comparison."""
SIZE_NAMES = ("judgments", "assessors", "documents", "judged_documents", "queries", "expert_grades", "expert_queries")
"""Numbers in run.json that reports show."""
NUMBER_COLUMNS = {
    "documents": ("relevance", "lower", "upper", "judgments", "expert"),
    "assessors": ("judgments", "informativeness"),
    "pairs": ("documents", "agreement", "difference", "kappa"),
    "next": ("priority", "gain", "relevance", "lower", "upper", "width", "judgments"),
    "comparison": ("selection_mean",),
    "per_query": (),
    "training": ("labels", "expert"),
    "remapping": ("value", "labels", "target", "weight"),
    "features": ("missing",),
    "texts": (),
    "documents_with_features": ("relevance", "lower", "upper", "judgments", "expert"),
    "next_with_features": ("priority", "gain", "relevance", "lower", "upper", "width", "judgments"),
    "estimate": ESTIMATE_NUMBERS,
    "preference_assessors": ("preferences", "preference_information", "sharpness"),
    "order": ("rank", "probability"),
}
"""Required columns of numbers of each table."""
TEXT_COLUMNS = {
    "documents": ("query", "document"),
    "assessors": ("assessor", "flag", "evidence"),
    "pairs": ("assessor", "other"),
    "next": ("query", "document", "reason"),
    "comparison": ("candidate", "about", "note"),
    "per_query": ("candidate", "query"),
    "training": ("query", "document", "part"),
    "remapping": ("remapper", "feature"),
    "features": ("feature",),
    "texts": ("query", "document", "query_text", "title", "text", "url"),
    "documents_with_features": ("query", "document"),
    "next_with_features": ("query", "document", "reason"),
    "estimate": ("run",),
    "preference_assessors": ("assessor",),
    "order": ("query", "document", "next_document"),
}
"""Required columns of ids and texts of each table."""
OTHER_COLUMNS = {
    **dict.fromkeys(("documents", "next", "documents_with_features", "next_with_features"), ("grade",)),
    "comparison": ("chosen",),
}
"""Required columns of any type."""
CONTRAST_NUMBERS = ("mean", "other_mean", "difference", "lower", "upper", "p")
CONTRAST_COUNTS = ("n_better", "n_worse", "n_equal")


def check_metadata(fields: Fields) -> None:
    """Raise ValueError unless run.json has all values, with their types."""
    for name in ("settings", "inputs", "provenance"):
        fields.object(name)
    sizes = Fields(fields.object("sizes"))
    for name in SIZE_NAMES:
        sizes.integer(name)
    fields.flag("same_scale")
    for name in ("summary", "protocol", "changes"):
        fields.texts(name)
    _require_texts("versions", fields.object("versions"))
    _require_texts("inputs", fields.object("inputs"))
    provenance = Fields(fields.object("provenance"))
    for name in ("command", "python"):
        provenance.text(name)
    _require_texts("units", provenance.object("units"))
    require(isinstance(fields.values.get("notes"), list), "notes is not a list")
    if fields.values.get("rankers") is not None:
        _check_rankers(Fields(fields.object("rankers")))
    if fields.values.get("expert_offset") is not None:
        _check_offset(Fields(fields.object("expert_offset")))
    if fields.values.get("estimate") is not None:
        _check_estimate(Fields(fields.object("estimate")))
    if fields.values.get("feature_labels") is not None:
        _check_feature_labels(Fields(fields.object("feature_labels")))


def _check_rankers(rankers: Fields) -> None:
    for name in ("chosen", "reason", "baseline"):
        rankers.text(name)
    for name in ("remappers", "selection_queries", "test_queries"):
        rankers.texts(name)
    _require_texts("left_out", rankers.object("left_out"))
    weights = rankers.object("weights")
    for name in weights:
        members = Fields(Fields(weights).object(name))
        for member in members.values:
            members.number(member)
    rankers.flag("has_alternative")
    contrasts = rankers.values.get("contrasts")
    require(isinstance(contrasts, list), "contrasts is not a list")
    for one in contrasts or ():
        require(isinstance(one, dict), "a contrast is not an object")
        _check_contrast(Fields(one))
    if rankers.values.get("verdict") is not None:
        _check_verdict(Fields(rankers.object("verdict")), contrasts or [])
    if rankers.values.get("deployable") is not None:
        _check_deployable(Fields(rankers.object("deployable")))


def _check_contrast(contrast: Fields) -> None:
    for name in ("candidate", "other"):
        contrast.text(name)
    for name in CONTRAST_NUMBERS:
        contrast.number(name)
    for name in CONTRAST_COUNTS:
        contrast.integer(name)


def _check_verdict(verdict: Fields, contrasts: list[dict[str, Any]]) -> None:
    require(set(verdict.values) == {"answer", "alternatives", "decisive", "p", "beaten"}, "verdict is incomplete")
    require(verdict.text("answer") in ("better", "worse", "open", "baseline"), "verdict has an unknown answer")
    known = {one["other"] for one in contrasts}
    require(set(verdict.texts("alternatives")) <= known, "verdict has an alternative that was not tested")
    verdict.texts("beaten")
    if verdict.values["alternatives"]:
        require(verdict.text("decisive") in verdict.values["alternatives"], "verdict is not about an alternative")
        verdict.number("p")


def _check_deployable(deployable: Fields) -> None:
    require(
        set(deployable.values) == {"n_trees", "imitates", "rank_correlation", "contrast"}, "deployable is incomplete"
    )
    deployable.integer("n_trees", 1)
    deployable.text("imitates")
    if deployable.values["rank_correlation"] is not None:
        deployable.number("rank_correlation")
    if deployable.values["contrast"] is not None:
        _check_contrast(Fields(deployable.object("contrast")))


def _check_offset(offset: Fields) -> None:
    require(set(offset.values) == {"value", "lower", "upper", "documents", "left_out"}, "expert_offset is incomplete")
    for name in ("value", "lower", "upper"):
        offset.number(name)
    offset.integer("documents")
    offset.integer("left_out")


def _check_estimate(estimate: Fields) -> None:
    for name in ("measure", "baseline", "unit"):
        estimate.text(name)
    estimate.number("level")
    for name in ("queries", "expert_queries", "expert_grades"):
        estimate.integer(name)
    require(isinstance(estimate.values.get("warnings"), list), "warnings is not a list")


def _check_feature_labels(labels: Fields) -> None:
    from crowdrank.pipeline.feature_labels import FeatureLabels

    names = {one.name for one in dataclass_fields(FeatureLabels)}
    require(set(labels.values) == names, "feature_labels is incomplete")
    labels.texts("features")
    labels.text("weight_name")
    for name in ("n_documents", "n_changed"):
        labels.integer(name)
    for name in ("width", "width_without", "settled", "settled_without"):
        labels.number(name)
    if labels.values["weight"] is not None:
        labels.number("weight")
    agreement = Fields(labels.object("agreement"))
    for name in agreement.values:
        _check_contrast(Fields(agreement.object(name)))


def _require_texts(name: str, values: dict[str, Any]) -> None:
    require(all(map(is_text, values.values())), f"{name} has a value that is not a text")


def check_tables(fields: Fields, tables: Mapping[str, pa.Table], model: Aggregator) -> None:
    """Raise ValueError unless the tables have their columns and types, and fit each other and the model."""
    rankers = fields.values.get("rankers")
    with_features = ["documents_with_features", "next_with_features"] if fields.values.get("feature_labels") else []
    required = ["documents", "assessors", "pairs", "next", *(["comparison", "training"] if rankers else [])]
    required += [*with_features, *(["estimate"] if fields.values.get("estimate") else [])]
    for name in required:
        require(name in tables, f"there is no table {name!r}")
    for name, table in tables.items():
        _check_columns(name, table)
    assessors, documents = tables["assessors"], tables["documents"]
    require(set(assessors["flag"].to_pylist()) <= set(FLAGS), "an assessor has an unknown flag")
    require(_is_unique(assessors, ["assessor"]), "an assessor occurs twice")
    require(_is_unique(documents, ["query", "document"]), "a document of a query occurs twice")
    known = model.consensus_.document_table
    for table in (documents, *(tables[name] for name in with_features[:1])):
        for name in ("query", "document"):
            require(table[name].equals(known[name]), "the documents are not those of the consensus")
    for name in model.consensus_.share_names:
        require(name in documents.column_names and _is_numeric(documents[name]), f"there is no column {name!r}")
    if fields.values.get("estimate"):
        runs = tables["estimate"]["run"].to_pylist()
        require(len(runs) == 2 and fields.values["estimate"]["baseline"] in runs, "the estimate is not of two rankings")
    if rankers:
        chosen, comparison = rankers["chosen"], tables["comparison"]
        require(chosen in comparison["candidate"].to_pylist(), "the chosen ranker is not in the comparison")
        _check_measures(str(fields.object("settings").get("measure")), comparison, tables.get("per_query"))


def _check_columns(name: str, table: pa.Table) -> None:
    for column in (*NUMBER_COLUMNS[name], *TEXT_COLUMNS[name], *OTHER_COLUMNS.get(name, ())):
        require(column in table.column_names, f"the table {name!r} has no column {column!r}")
    for column in NUMBER_COLUMNS[name]:
        require(_is_numeric(table[column]), f"column {column!r} of table {name!r} has values that are not numbers")
    for column in TEXT_COLUMNS[name]:
        kind = table[column].type
        is_id = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        require(is_id, f"column {column!r} of table {name!r} has values that are not texts")


def _check_measures(measure: str, comparison: pa.Table, per_query: pa.Table | None) -> None:
    """Check that the figures of every measure are complete."""
    for name in comparison.column_names:
        if name.endswith(" mean"):
            for figure in FIGURES:
                column = f"{name.removesuffix(' mean')} {figure}"
                require(column in comparison.column_names, f"the comparison has no column {column!r}")
                require(_is_numeric(comparison[column]), f"the column {column!r} has values that are not numbers")
    tested = f"{measure} mean" in comparison.column_names
    require(tested == (per_query is not None), "the comparison and the values per query do not fit each other")
    if per_query is not None:
        values = measure in per_query.column_names and _is_numeric(per_query[measure])
        require(values, f"the values of the test queries have no numbers of {measure}")


def _is_numeric(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_floating(column.type) or pa.types.is_integer(column.type))


def _is_unique(table: pa.Table, columns: list[str]) -> bool:
    return len(table.group_by(columns).aggregate([])) == len(table) and not any(
        pc.any(pc.is_null(table[name])).as_py() for name in columns
    )
