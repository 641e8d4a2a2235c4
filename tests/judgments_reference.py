"""Slow and obvious ways to say what the tables of judgments hold; the tests compare against them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank.judgments.table import Judgments

Row = tuple[Any, ...]


def rows(judgments: Judgments) -> list[Row]:
    """The rows as ids and grades, sorted: what is held, in whatever order; every cell as text."""
    table = judgments.to_arrow()
    return sorted(tuple(map(str, row)) for row in zip(*table.to_pydict().values(), strict=True))


def check(judgments: Judgments) -> None:
    """Whatever is done to a table, this holds of it."""
    n_items = judgments.n_items
    assert judgments.offsets[0] == 0
    assert judgments.offsets[-1] == len(judgments) == len(judgments.assessor)
    assert (np.diff(judgments.offsets) > 0).all()
    key = judgments.item_query.astype(np.int64) * len(judgments.documents) + judgments.item_document
    assert (np.diff(judgments.item_query) >= 0).all(), "items are grouped by query"
    assert len(set(key.tolist())) == n_items, "an item occurs once"
    for codes, ids in (
        (judgments.item_query, judgments.queries),
        (judgments.item_document, judgments.documents),
        (judgments.assessor, judgments.assessors),
    ):
        assert codes.dtype == np.int32
        assert sorted(set(codes.tolist())) == list(range(len(ids))), "every id is used"
        assert len(set(ids.to_pylist())) == len(ids)
        assert ids.null_count == 0
        assert ids.type in (pa.int64(), pa.string())
    assert judgments.query_offsets[-1] == n_items
    assert judgments.grade.dtype == np.int8
    assert judgments.assessor_scale.shape == (judgments.n_assessors,)
    assert judgments.assessor_scale.max() < len(judgments.scales)
    for column in judgments.extras.values():
        assert len(column) == len(judgments)
    if judgments.assessor_family is not None:
        assert judgments.families is not None
        assert judgments.assessor_family.shape == (judgments.n_assessors,)
        assert judgments.assessor_family.max(initial=-1) < len(judgments.families)


def _csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _tsv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, sep="\t")


def _jsonl(frame: pd.DataFrame, path: Path) -> None:
    cells = [{k: v for k, v in row.items() if v == v and v is not None} for row in frame.to_dict("records")]
    path.write_text("\n".join(json.dumps(row, default=str) for row in cells))


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "parquet": _parquet,
}


def written(frame: pd.DataFrame, folder: Path, suffix: str) -> Path:
    """The frame as a file of the suffix, which may end in .gz."""
    plain = folder / f"labels.{suffix.removesuffix('.gz')}"
    WRITERS[suffix.removesuffix(".gz")](frame, plain)
    if not suffix.endswith(".gz"):
        return plain
    packed = folder / f"labels.{suffix}"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    return packed


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.DataFrame(
        {name: frame[name].astype(object).where(frame[name].notna(), None).to_list() for name in frame}
    ),
    "polars lazy": lambda frame: LIBRARIES["polars"](frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def table_of(cells: Iterable[Row]) -> pd.DataFrame:
    """A frame of query, document, assessor, grade."""
    return pd.DataFrame(list(cells), columns=["query", "document", "assessor", "grade"])
