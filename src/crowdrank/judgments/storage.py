"""Save judgments to a folder and load them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._saved import Fields, is_scalar, loading, read_parquet, require
from crowdrank.judgments.codes import backend_from, check_judgments, maps_from, report_from, scale_from
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sources import arrow_file
from crowdrank.judgments.table import AssessorTable, Judgments

EXTRA = "extra:"
"""Prefix of the names of extra columns in a saved file."""
FORMAT = 1
"""Version of the layout of a saved file."""


def save(judgments: Judgments, path: str | Path) -> None:
    """Write judgments with their codes to a Parquet file.

    A column of ids is padded with nulls to the length of the table, so that one file holds all columns.
    """
    n = len(judgments)
    columns = {
        "query": pa.array(judgments.item_column("query")),
        "document": pa.array(judgments.item_column("document")),
        "assessor": pa.array(judgments.assessor),
        "grade": pa.array(judgments.grade),
        "queries": padded_to(judgments.queries, n),
        "documents": padded_to(judgments.documents, n),
        "assessors": padded_to(judgments.assessors, n),
        "assessor_scale": padded_to(pa.array(judgments.assessor_scale), n),
        **{EXTRA + name: pa.array(column) for name, column in judgments.extras.items()},
    }
    if judgments.families is not None:
        columns["families"] = padded_to(judgments.families, n)
        columns["assessor_family"] = padded_to(pa.array(judgments.assessor_family), n)
    about = {
        "format": FORMAT,
        **header_of(judgments),
        "labels": judgments.labels,
        "backend": judgments.backend,
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"crowdrank": json.dumps(about)}), path)


def header_of(table: AssessorTable) -> dict[str, Any]:
    """Return scales and read report, ready for JSON."""
    return {
        "scales": [scale_out(scale) for scale in table.scales],
        "scale_maps": table.scale_maps,
        "common_scale": scale_out(table.common_scale),
        "unjudgeable": table.unjudgeable,
        "report": asdict(table.report),
    }


def header_from(about: Fields) -> dict[str, Any]:
    """Return the fields of an assessor table that :func:`header_of` wrote."""
    common = about.values["common_scale"]
    return {
        "scales": tuple(map(scale_from, about.sequence("scales"))),
        "scale_maps": maps_from(about.sequence("scale_maps")),
        "common_scale": None if common is None else scale_from(common),
        "unjudgeable": tuple(about.texts("unjudgeable")),
        "report": report_from(about.object("report")),
    }


def padded_to(column: pa.Array, n: int) -> pa.Array:
    """Return a column of ids, padded with nulls to a length."""
    return pa.concat_arrays([column, pa.nulls(n - len(column), column.type)])


def scale_out(scale: Scale | None) -> list[list[Any]] | None:
    """Return a scale as [names, values], ready for JSON."""
    return None if scale is None else [list(scale.names), list(scale.values)]


def load(path: str | Path) -> Judgments:
    """Read judgments that :func:`save` wrote.

    >>> import pandas as pd
    >>> import tempfile
    >>> from crowdrank import read_judgments
    >>> path = Path(tempfile.mkdtemp()) / "judgments.parquet"
    >>> save(read_judgments(pd.DataFrame({"document": ["d"], "assessor": ["ann"], "grade": [1]})), path)
    >>> load(path).frame["assessor"].tolist()
    ['ann']
    """
    with loading(path, "it holds no saved judgments", "name a file that save wrote"):
        judgments = _load(path)
        check_judgments(judgments)
    return judgments


def _load(path: str | Path) -> Judgments:
    with arrow_file(path, text=False) as file:
        table = read_parquet(file)
    require(b"crowdrank" in (table.schema.metadata or {}), "its metadata are missing")
    about = Fields.parse(table.schema.metadata[b"crowdrank"], "the metadata")
    version = about.integer("format")
    require(version == FORMAT, f"it is in format {version}, and this version reads format {FORMAT}")
    column = {name: table[name].combine_chunks() for name in table.column_names}
    query, document, assessor = (_codes(column, name, pa.int32()) for name in ("query", "document", "assessor"))
    first = np.flatnonzero(np.diff(query, prepend=-1) | np.diff(document, prepend=-1))
    families = column["families"].drop_null() if "families" in column else None
    labels = about.values["labels"]
    return Judgments(
        queries=column["queries"].drop_null(),
        documents=column["documents"].drop_null(),
        assessors=column["assessors"].drop_null(),
        item_query=query[first],
        item_document=document[first],
        offsets=np.append(first, len(query)),
        assessor=assessor,
        grade=_codes(column, "grade", pa.int8()),
        assessor_scale=np.asarray(column["assessor_scale"].drop_null()),
        families=families,
        assessor_family=None if families is None else np.asarray(column["assessor_family"].drop_null()),
        extras={
            name.removeprefix(EXTRA): column[name].to_numpy(zero_copy_only=False)
            for name in column
            if name.startswith(EXTRA)
        },
        labels=None if labels is None else tuple(about.sequence("labels", is_scalar, "plain values")),
        backend=backend_from(about.text("backend")),
        **header_from(about),
    )


def _codes(column: dict[str, pa.Array], name: str, kind: pa.DataType) -> NDArray[Any]:
    codes = column[name]
    require(codes.type == kind and codes.null_count == 0, f"{name} is not a column of codes")
    return np.asarray(codes)
