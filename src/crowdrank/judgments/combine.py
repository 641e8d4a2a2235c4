"""Joining tables of judgments, and keeping one on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank.errors import InputError
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.grades import Scale
from crowdrank.judgments.table import NO_HONEYPOT, Judgments, ReadReport, sort_rows


def combine(old: Judgments, new: Judgments) -> Judgments:
    """All judgments of both; where both hold one of the same assessor on the same document, the new one.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]})) for grade in (0, 2))
    >>> combine(old, new).frame["grade"].tolist()
    [2]
    """
    old, new = _on_same_scales(old, new)
    query, queries = _joined_codes(old.queries, new.queries, _item_column(old, "query"), _item_column(new, "query"))
    document, documents = _joined_codes(
        old.documents, new.documents, _item_column(old, "document"), _item_column(new, "document")
    )
    assessor, assessors = _joined_codes(old.assessors, new.assessors, old.assessor, new.assessor)
    families, assessor_family = _joined_families(old, new, assessors)
    order, offsets = sort_rows(query, document, np.arange(len(query)), len(queries), len(documents))
    again = kernels.repeated(offsets, assessor[order], len(assessors), True)
    order, offsets = order[~again], np.append(0, np.cumsum(~again))[offsets]
    first = order[offsets[:-1]]
    return replace(
        old,
        queries=queries,
        documents=documents,
        assessors=assessors,
        item_query=query[first],
        item_document=document[first],
        offsets=offsets,
        assessor=assessor[order],
        grade=np.concatenate([old.grade, new.grade])[order],
        assessor_scale=_joined(old, new, assessors, old.assessor_scale, new.assessor_scale),
        families=families,
        assessor_family=assessor_family,
        extras={name: column[order] for name, column in _joined_extras(old, new).items()},
        report=ReadReport(rows=old.report.rows + new.report.rows, repeats=int(again.sum())),
    )


def _on_same_scales(old: Judgments, new: Judgments) -> tuple[Judgments, Judgments]:
    """Both tables on one list of scales; plain whole numbers that were only inferred grow to hold both."""
    if old.scales == new.scales:
        return old, new
    if len(old.scales) == len(new.scales) == 1 and old.scale.numeric and new.scale.numeric:
        values = [int(value) for value in (*old.scale.values, *new.scale.values)]
        both = Scale.spanning(values)
        return _rescaled(old, both), _rescaled(new, both)
    raise InputError(
        f"the scales differ ({' / '.join(map(str, old.scales))} and {' / '.join(map(str, new.scales))})",
        remedy="read both with the same --grades or --scales",
    )


def _rescaled(judgments: Judgments, scale: Scale) -> Judgments:
    onto = np.array([scale.code(name) for name in judgments.scale.names], dtype=np.int8)
    grade = np.where(judgments.grade < 0, judgments.grade, onto[judgments.grade]).astype(np.int8)
    return replace(judgments, grade=grade, scales=(scale,))


def _item_column(judgments: Judgments, role: str) -> NDArray[np.int32]:
    codes = judgments.item_query if role == "query" else judgments.item_document
    return np.repeat(codes, np.diff(judgments.offsets))


def _joined_codes(
    old: pa.Array, new: pa.Array, old_codes: NDArray[np.int32], new_codes: NDArray[np.int32]
) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes over the ids of both; the old ids keep theirs."""
    if old.type != new.type:
        old, new = old.cast(pa.string()), new.cast(pa.string())
    onto, names = ids.encode(pa.chunked_array([old, new]))
    return np.concatenate([onto[: len(old)][old_codes], onto[len(old) :][new_codes]]), names


def _joined(
    old: Judgments, new: Judgments, assessors: pa.Array, old_values: NDArray[Any], new_values: NDArray[Any]
) -> NDArray[Any]:
    """A property of assessors over the assessors of both tables."""
    values = np.zeros(len(assessors), old_values.dtype)
    values[ids.match(assessors, old.assessors)] = old_values
    values[ids.match(assessors, new.assessors)] = new_values
    return values


def _joined_families(
    old: Judgments, new: Judgments, assessors: pa.Array
) -> tuple[pa.Array | None, NDArray[np.int32] | None]:
    if old.families is None or new.families is None or old.assessor_family is None or new.assessor_family is None:
        return (None, None) if old.families is None and new.families is None else _one_sided(old, new, assessors)
    codes, names = _joined_codes(old.families, new.families, old.assessor_family, new.assessor_family)
    split = len(old.assessor_family)
    old_family = np.where(old.assessor_family < 0, -1, codes[:split])
    new_family = np.where(new.assessor_family < 0, -1, codes[split:])
    return names, _joined(old, new, assessors, old_family, new_family)


def _one_sided(old: Judgments, new: Judgments, assessors: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    known = old if old.families is not None else new
    assert known.families is not None
    assert known.assessor_family is not None
    family = np.full(len(assessors), -1, np.int32)
    family[ids.match(assessors, known.assessors)] = known.assessor_family
    return known.families, family


def _joined_extras(old: Judgments, new: Judgments) -> dict[str, NDArray[Any]]:
    names = dict.fromkeys((*old.extras, *new.extras))
    return {name: np.concatenate([_extra(old, name), _extra(new, name)]) for name in names}


def _extra(judgments: Judgments, name: str) -> NDArray[Any]:
    if name in judgments.extras:
        return judgments.extras[name]
    if name == "time":
        return np.full(len(judgments), np.datetime64("NaT", "us"))
    if name == "honeypot":
        return np.full(len(judgments), NO_HONEYPOT, np.int8)
    return np.full(len(judgments), np.nan)


def save(judgments: Judgments, path: Path) -> None:
    """Write the table to a Parquet file, codes and all."""
    columns = {
        "query": pa.DictionaryArray.from_arrays(_item_column(judgments, "query"), judgments.queries),
        "document": pa.DictionaryArray.from_arrays(_item_column(judgments, "document"), judgments.documents),
        "assessor": pa.DictionaryArray.from_arrays(judgments.assessor, judgments.assessors),
        "grade": pa.array(judgments.grade),
        **{name: pa.array(column) for name, column in judgments.extras.items()},
    }
    family = judgments.assessor_family
    about = {
        "scales": [(list(scale.names), list(scale.values)) for scale in judgments.scales],
        "assessor_scale": judgments.assessor_scale.tolist(),
        "scale_maps": judgments.scale_maps,
        "common_scale": None if judgments.common_scale is None else str(judgments.common_scale),
        "families": None if judgments.families is None else judgments.families.to_pylist(),
        "assessor_family": None if family is None else family.tolist(),
        "backend": judgments.backend,
    }
    table = pa.table(columns).replace_schema_metadata({"crowdrank": json.dumps(about)})
    pq.write_table(table, path)


def load(path: Path) -> Judgments:
    """Read what :func:`save` wrote."""
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"crowdrank"])
    query, queries = ids.encode(table["query"])
    document, documents = ids.encode(table["document"])
    assessor, assessors = ids.encode(table["assessor"])
    order, offsets = sort_rows(query, document, np.arange(len(query)), len(queries), len(documents))
    first = order[offsets[:-1]]
    extras = [name for name in table.column_names if name not in ("query", "document", "assessor", "grade")]
    common = about["common_scale"]
    return Judgments(
        queries=queries,
        documents=documents,
        assessors=assessors,
        item_query=query[first],
        item_document=document[first],
        offsets=offsets,
        assessor=assessor,
        grade=table["grade"].to_numpy(),
        scales=tuple(Scale(tuple(names), tuple(values)) for names, values in about["scales"]),
        assessor_scale=np.array(about["assessor_scale"], dtype=np.int8),
        scale_maps=tuple(None if codes is None else tuple(codes) for codes in about["scale_maps"]),
        common_scale=None if common is None else Scale.parse(common),
        families=None if about["families"] is None else pa.array(about["families"]),
        assessor_family=None if about["assessor_family"] is None else np.array(about["assessor_family"], np.int32),
        extras={name: table[name].to_numpy() for name in extras},
        report=ReadReport(rows=len(table)),
        backend=about["backend"],
    )
