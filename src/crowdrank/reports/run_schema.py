"""Check the files of a run before a report is made of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from crowdrank._saved import Fields, is_integer, is_text, require
from crowdrank.assessors.flags import FLAGS

FIGURES = ("mean", "difference", "lower", "upper", "p", "p_holm")
"""Figures of a measure in the comparison."""
SIZES = ("judgments", "assessors", "documents", "judged_documents", "queries", "expert_grades", "expert_queries")
"""Numbers in run.json that the report shows."""
NUMBERS = {
    "assessors": ("judgments", "informativeness"),
    "pairs": ("documents", "agreement", "difference", "kappa"),
    "documents": ("relevance", "lower", "upper", "judgments"),
    "comparison": ("choice_mean",),
    "training": ("labels", "expert"),
    "next": ("relevance", "lower", "upper", "width", "judgments"),
    "remapping": ("value", "labels", "target", "weight"),
    "per_query": (),
}
"""Required columns of numbers of each table."""
TEXTS = {
    "assessors": ("assessor", "flag", "evidence"),
    "pairs": ("assessor", "other"),
    "documents": ("query", "document"),
    "comparison": ("candidate", "about", "note"),
    "training": ("query", "document", "part"),
    "next": ("query", "document"),
    "remapping": ("remapper", "feature"),
    "per_query": ("candidate", "query"),
}
"""Required columns of ids and texts of each table."""
OTHERS = {"documents": ("grade",), "next": ("grade",), "comparison": ("chosen",)}
"""Required columns of any type."""
_TEXT_SETTINGS = ("method", "measure", "gains", "baseline", "unjudgeable_as")


def check_about(about: Fields) -> None:
    """Raise ValueError unless run.json has the values that the report needs, with their types."""
    settings, sizes = Fields(about.object("settings")), Fields(about.object("sizes"))
    for name in _TEXT_SETTINGS:
        settings.text(name)
    for name in ("random_state", "folds"):
        settings.integer(name)
    settings.number("test")
    if settings.values.get("candidates") is not None:
        settings.texts("candidates")
    for name in SIZES:
        sizes.integer(name)
    for name in ("chosen", "crowdrank", *(["paragraph"] if "paragraph" in about else [])):
        about.text(name)
    queries = Fields(about.object("queries"))
    for name in ("choice", "test"):
        queries.texts(name)
    for name in ("notes", "protocol"):
        if name in about:
            about.texts(name)
    if about.values.get("left_out"):
        _require_texts("left_out", about.object("left_out"))
    if "origin" in about:
        origin = about.object("origin")
        _require_texts("origin", {name: origin.get(name, "") for name in ("command", "python")})
        _require_texts("units", Fields({"units": {}, **origin}).object("units"))
    if about.values.get("expert_offset") is not None:
        _check_offset(Fields(about.object("expert_offset")))


def _check_offset(offset: Fields) -> None:
    """Raise ValueError unless a saved offset from the experts has its estimate, interval and number of documents."""
    require(set(offset.values) == {"value", "lower", "upper", "documents"}, "expert_offset is incomplete")
    for name in ("value", "lower", "upper"):
        offset.number(name)
    offset.integer("documents")


def _require_texts(name: str, values: dict[str, Any]) -> None:
    require(all(map(is_text, values.values())), f"{name} has a value that is not a text")


def check_tables(about: Fields, tables: dict[str, pd.DataFrame | None]) -> None:
    """Raise ValueError unless the tables have the columns and types that the report needs, and fit each other."""
    for name, table in tables.items():
        if table is None:
            continue
        for column in (*NUMBERS[name], *TEXTS[name], *OTHERS.get(name, ())):
            require(column in table, f"the table {name!r} has no column {column!r}")
        for column in NUMBERS[name]:
            require(is_numbers(table[column]), f"column {column!r} of table {name!r} has values that are not numbers")
        for column in TEXTS[name]:
            values = table[column]
            fits = all(map(is_text, values)) or (is_numbers(values) and all(map(is_integer, values.tolist())))
            require(fits, f"column {column!r} of table {name!r} has values that are not texts")
    comparison, assessors, documents = tables["comparison"], tables["assessors"], tables["documents"]
    assert comparison is not None
    assert assessors is not None
    assert documents is not None
    require(about.text("chosen") in set(comparison["candidate"]), "the chosen ranker is not in the comparison")
    require(assessors["flag"].isin(FLAGS).all(), "an assessor has an unknown flag")
    require(assessors["assessor"].is_unique, "an assessor occurs twice")
    require(not documents.duplicated(["query", "document"]).any(), "a document of a query occurs twice")
    _check_measures(str(about.object("settings")["measure"]), comparison, tables["per_query"])
    grades = [name for name in map(str, documents) if name[:1] == "p" and name[1:].lstrip("-").isdigit()]
    are_numbers = all(is_numbers(documents[name]) for name in grades)
    require(len(grades) > 1 and are_numbers, "table 'documents' has no columns of grade probabilities (p0, p1, ...)")


def _check_measures(measure: str, comparison: pd.DataFrame, per_query: pd.DataFrame | None) -> None:
    """Check that the figures of every measure are complete."""
    for name in map(str, comparison):
        if name.endswith(" mean"):
            own = name.removesuffix(" mean")
            for figure in FIGURES:
                column = f"{own} {figure}"
                require(column in comparison, f"the comparison has no column {column!r}")
                require(is_numbers(comparison[column]), f"the column {column!r} has values that are not numbers")
    tested = f"{measure} mean" in comparison
    require(tested or per_query is None, "the comparison has no figures of the test")
    if per_query is not None:
        values = measure in per_query and is_numbers(per_query[measure])
        require(values, f"the values of the test queries have no numbers of {measure}")


def is_numbers(column: pd.Series[Any]) -> bool:
    """Return whether a column has numbers, among which may be blanks."""
    return bool(is_numeric_dtype(column.dtype)) and not is_bool_dtype(column.dtype)
