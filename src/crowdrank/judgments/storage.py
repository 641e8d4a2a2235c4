"""Save judgments to a Parquet file and load them."""

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
from crowdrank.judgments.codes import (
    check_judgments,
    restore_backend,
    restore_report,
    restore_scale,
    restore_scale_maps,
)
from crowdrank.judgments.files import arrow_file
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import AssessorTable, Judgments

EXTRA_PREFIX = "extra:"
"""Prefix of the names of extra columns in a saved file."""
FORMAT_VERSION = 1
"""Version of the format of a saved file."""


def save(judgments: Judgments, path: str | Path) -> None:
    """Write judgments to a Parquet file that :func:`load` reads.

    Columns of ids are shorter than the columns of judgments; they are padded with nulls.
    """
    n_rows = len(judgments)
    columns = {
        "query": pa.array(judgments.by_row(judgments.item_query)),
        "document": pa.array(judgments.by_row(judgments.item_document)),
        "assessor": pa.array(judgments.assessor),
        "grade": pa.array(judgments.grade),
        "queries": pad_with_nulls(judgments.queries, n_rows),
        "documents": pad_with_nulls(judgments.documents, n_rows),
        "assessors": pad_with_nulls(judgments.assessors, n_rows),
        "assessor_scale": pad_with_nulls(pa.array(judgments.assessor_scale), n_rows),
        **{EXTRA_PREFIX + name: pa.array(column) for name, column in judgments.extras.items()},
    }
    if judgments.families is not None:
        columns["families"] = pad_with_nulls(judgments.families, n_rows)
        columns["assessor_family"] = pad_with_nulls(pa.array(judgments.assessor_family), n_rows)
    metadata = {
        "format": FORMAT_VERSION,
        **header_to_json(judgments),
        "labels": judgments.labels,
        "backend": judgments.backend,
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"crowdrank": json.dumps(metadata)}), path)


def header_to_json(table: AssessorTable) -> dict[str, Any]:
    """Return the scales and the read report of a table as a JSON object."""
    return {
        "scales": [scale_to_json(scale) for scale in table.scales],
        "scale_maps": table.scale_maps,
        "common_scale": scale_to_json(table.common_scale),
        "unjudgeable": table.unjudgeable,
        "report": asdict(table.report),
    }


def header_from_json(fields: Fields) -> dict[str, Any]:
    """Return the fields of an assessor table, by name, from the object that :func:`header_to_json` returned."""
    common = fields.values["common_scale"]
    return {
        "scales": tuple(map(restore_scale, fields.sequence("scales"))),
        "scale_maps": restore_scale_maps(fields.sequence("scale_maps")),
        "common_scale": None if common is None else restore_scale(common),
        "unjudgeable": tuple(fields.texts("unjudgeable")),
        "report": restore_report(fields.object("report")),
    }


def pad_with_nulls(column: pa.Array, length: int) -> pa.Array:
    """Return a column with nulls appended up to a length."""
    return pa.concat_arrays([column, pa.nulls(length - len(column), column.type)])


def scale_to_json(scale: Scale | None) -> list[list[Any]] | None:
    """Return a scale as the JSON list [names, values]."""
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
        judgments = _load_unchecked(path)
        check_judgments(judgments)
    return judgments


def _load_unchecked(path: str | Path) -> Judgments:
    with arrow_file(path, text=False) as file:
        table = read_parquet(file)
    require(b"crowdrank" in (table.schema.metadata or {}), "its metadata are missing")
    fields = Fields.parse(table.schema.metadata[b"crowdrank"], "the metadata")
    version = fields.integer("format")
    require(version == FORMAT_VERSION, f"it is in format {version}, and this version reads format {FORMAT_VERSION}")
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    query, document, assessor = (_code_column(columns, name, pa.int32()) for name in ("query", "document", "assessor"))
    first_rows = np.flatnonzero(np.diff(query, prepend=-1) | np.diff(document, prepend=-1))
    families = columns["families"].drop_null() if "families" in columns else None
    labels = fields.values["labels"]
    return Judgments(
        queries=columns["queries"].drop_null(),
        documents=columns["documents"].drop_null(),
        assessors=columns["assessors"].drop_null(),
        item_query=query[first_rows],
        item_document=document[first_rows],
        offsets=np.append(first_rows, len(query)),
        assessor=assessor,
        grade=_code_column(columns, "grade", pa.int8()),
        assessor_scale=np.asarray(columns["assessor_scale"].drop_null()),
        families=families,
        assessor_family=None if families is None else np.asarray(columns["assessor_family"].drop_null()),
        extras={
            name.removeprefix(EXTRA_PREFIX): columns[name].to_numpy(zero_copy_only=False)
            for name in columns
            if name.startswith(EXTRA_PREFIX)
        },
        labels=None if labels is None else tuple(fields.sequence("labels", is_scalar, "plain values")),
        backend=restore_backend(fields.text("backend")),
        **header_from_json(fields),
    )


def _code_column(columns: dict[str, pa.Array], name: str, code_type: pa.DataType) -> NDArray[Any]:
    """Return a column of codes; raise an error if it has another type or a null."""
    codes = columns[name]
    require(codes.type == code_type and codes.null_count == 0, f"{name} is not a column of codes")
    return np.asarray(codes)
