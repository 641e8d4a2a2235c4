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
from crowdrank.judgments import kernels
from crowdrank.judgments.codes import backend_from, check_judgments, maps_from, report_from, scale_from
from crowdrank.judgments.merge import item_column
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sources import arrow_file
from crowdrank.judgments.table import Judgments

EXTRA = "extra:"
"""How the names of extra columns begin in a saved file, so that none is taken for another column."""


FORMAT = 1
"""Version of the layout of a saved file."""


def save(judgments: Judgments, path: str | Path) -> None:
    """Write the table to a Parquet file, codes and all.

    A column of ids is as long as the table, with blanks after the last id: so one file holds them all, in order.
    """
    n = len(judgments)
    columns = {
        "query": pa.array(item_column(judgments, "query")),
        "document": pa.array(item_column(judgments, "document")),
        "assessor": pa.array(judgments.assessor),
        "grade": pa.array(judgments.grade),
        "queries": _padded(judgments.queries, n),
        "documents": _padded(judgments.documents, n),
        "assessors": _padded(judgments.assessors, n),
        "assessor_scale": _padded(pa.array(judgments.assessor_scale), n),
        **{EXTRA + name: pa.array(column) for name, column in judgments.extras.items()},
    }
    if judgments.families is not None:
        columns["families"] = _padded(judgments.families, n)
        columns["assessor_family"] = _padded(pa.array(judgments.assessor_family), n)
    about = {
        "format": FORMAT,
        "scales": [scale_out(scale) for scale in judgments.scales],
        "scale_maps": judgments.scale_maps,
        "common_scale": scale_out(judgments.common_scale),
        "report": asdict(judgments.report),
        "labels": judgments.labels,
        "unjudgeable": judgments.unjudgeable,
        "backend": judgments.backend,
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"crowdrank": json.dumps(about)}), path)


def _padded(column: pa.Array, n: int) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(n - len(column), column.type)])


def scale_out(scale: Scale | None) -> list[list[Any]] | None:
    """A scale as JSON holds it."""
    return None if scale is None else [list(scale.names), list(scale.values)]


def load(path: str | Path) -> Judgments:
    """Read what :func:`save` wrote.

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
    version = about.whole("format")
    require(version == FORMAT, f"it is in format {version}, and this version reads format {FORMAT}")
    column = {name: table[name].combine_chunks() for name in table.column_names}
    query, document, assessor = (_codes(column, name, pa.int32()) for name in ("query", "document", "assessor"))
    offsets = kernels.item_offsets(query, document, np.arange(len(query), dtype=np.int32))
    families = column["families"].drop_null() if "families" in column else None
    labels, common = about.values["labels"], about.values["common_scale"]
    return Judgments(
        queries=column["queries"].drop_null(),
        documents=column["documents"].drop_null(),
        assessors=column["assessors"].drop_null(),
        item_query=query[offsets[:-1]],
        item_document=document[offsets[:-1]],
        offsets=offsets,
        assessor=assessor,
        grade=_codes(column, "grade", pa.int8()),
        scales=tuple(map(scale_from, about.sequence("scales"))),
        assessor_scale=np.asarray(column["assessor_scale"].drop_null()),
        scale_maps=maps_from(about.sequence("scale_maps")),
        common_scale=None if common is None else scale_from(common),
        families=families,
        assessor_family=None if families is None else np.asarray(column["assessor_family"].drop_null()),
        extras={
            name.removeprefix(EXTRA): column[name].to_numpy(zero_copy_only=False)
            for name in column
            if name.startswith(EXTRA)
        },
        labels=None if labels is None else tuple(about.sequence("labels", is_scalar, "plain values")),
        unjudgeable=tuple(about.texts("unjudgeable")),
        report=report_from(about.object("report")),
        backend=backend_from(about.text("backend")),
    )


def _codes(column: dict[str, pa.Array], name: str, kind: pa.DataType) -> NDArray[Any]:
    codes = column[name]
    require(codes.type == kind and codes.null_count == 0, f"{name} is not a column of codes")
    return np.asarray(codes)
