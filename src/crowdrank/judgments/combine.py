"""Joining tables of judgments, and keeping one on disk."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._saved import Fields, is_scalar, loading, read_parquet, require
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.codes import backend_from, check_judgments, maps_from, report_from, scale_from
from crowdrank.judgments.grades import Scale
from crowdrank.judgments.sources import arrow_file
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments, ReadReport

Kind = tuple[Scale, tuple[int, ...] | None]
EXTRA = "extra:"
"""How the names of extra columns begin in a saved file, so that none is taken for another column."""
FORMAT = 1
"""Version of the layout of a saved file."""


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
    order, offsets = kernels.group_rows(
        query, document, np.arange(len(query), dtype=np.int32), len(queries), len(documents)
    )
    replaced = _replaced(order, offsets, assessor, len(old))
    order, offsets = kernels.without(order, offsets, replaced)
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
        assessor_scale=_joined_scales(old, new, assessors),
        families=families,
        assessor_family=assessor_family,
        extras={name: column[order] for name, column in _joined_extras(old, new).items()},
        report=_joined_reports(old.report, new.report, int(replaced.sum())),
    )


def _replaced(
    order: NDArray[np.int32], offsets: NDArray[np.int64], assessor: NDArray[np.int32], n_old: int
) -> NDArray[np.bool_]:
    """Which of the rows in `order` are old ones whose assessor has a new judgment of the same item."""
    is_new = order >= n_old
    item = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    judged = item * (int(assessor.max(initial=0)) + 1) + assessor[order]
    return ~is_new & np.isin(judged, judged[is_new])


def _joined_reports(old: ReadReport, new: ReadReport, replaced: int) -> ReadReport:
    return ReadReport(
        rows=old.rows + new.rows,
        skipped=dict(Counter(old.skipped) + Counter(new.skipped)),
        examples={**new.examples, **old.examples},
        repeats=old.repeats + new.repeats + replaced,
        excluded=old.excluded + new.excluded,
        units={name: unit for name, unit in old.units.items() if new.units.get(name) == unit},
        guessed=old.guessed and new.guessed,
    )


def _on_same_scales(old: Judgments, new: Judgments) -> tuple[Judgments, Judgments]:
    """Both tables on one list of scales; a single scale of whole numbers grows to hold both."""
    unmapped = not any((*old.scale_maps, *new.scale_maps))
    same_maps = old.scale_maps == new.scale_maps and old.common_scale == new.common_scale
    plain = not old.has_own_labels and not new.has_own_labels
    if old.scales == new.scales and old.labels == new.labels and (unmapped or same_maps):
        return old, new
    if plain and not old.scale_maps and not new.scale_maps and old.scale.numeric and new.scale.numeric:
        values = sorted({*old.scale.values, *new.scale.values})
        both = Scale.parse(str(int(value)) for value in values)
        return _rescaled(old, both), _rescaled(new, both)
    if old.scale_maps and new.scale_maps and old.common_scale == new.common_scale:
        kinds = list(dict.fromkeys((*_kinds(old), *_kinds(new))))
        return _among(old, kinds), _among(new, kinds)
    raise InputError(
        f"the scales differ ({' / '.join(map(str, old.scales))} and {' / '.join(map(str, new.scales))})",
        remedy="read both with the same --grades or --scales",
    )


def _rescaled(judgments: Judgments, scale: Scale) -> Judgments:
    onto = np.array([scale.code(name) for name in judgments.scale.names] + [UNJUDGEABLE], dtype=np.int8)
    honest = judgments.with_honeypots(lambda codes: onto[codes])
    return replace(honest, grade=onto[judgments.grade], scales=(scale,), labels=None)


def _kinds(judgments: Judgments) -> list[Kind]:
    return list(zip(judgments.scales, judgments.scale_maps, strict=True))


def _among(judgments: Judgments, kinds: list[Kind]) -> Judgments:
    """The table with its scales numbered as in `kinds`."""
    onto = np.array([kinds.index(kind) for kind in _kinds(judgments)], dtype=np.int8)
    scales, maps = zip(*kinds, strict=True)
    return replace(judgments, scales=scales, scale_maps=maps, assessor_scale=onto[judgments.assessor_scale])


def _joined_scales(old: Judgments, new: Judgments, assessors: pa.Array) -> NDArray[np.int8]:
    before = _joined(old, new, assessors, old.assessor_scale, new.assessor_scale)
    after = _joined(new, old, assessors, new.assessor_scale, old.assessor_scale)
    if (before != after).any():
        who = assessors[int(np.argmax(before != after))].as_py()
        raise InputError(
            f"the assessor {shown(who)} uses another scale than before",
            remedy="read both with the same --scales",
        )
    return before


def _item_column(judgments: Judgments, role: str) -> NDArray[np.int32]:
    codes = judgments.item_query if role == "query" else judgments.item_document
    return np.repeat(codes, np.diff(judgments.offsets))


def _joined_codes(
    old: pa.Array, new: pa.Array, old_codes: NDArray[np.int32], new_codes: NDArray[np.int32]
) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes over the ids of both; the old ids keep theirs."""
    onto, names = ids.encode(_one_column(old, new))
    return np.concatenate([onto[: len(old)][old_codes], onto[len(old) :][new_codes]]), names


def _one_column(*columns: pa.Array) -> pa.ChunkedArray:
    """The ids of all columns; text and numbers meet as text."""
    kind = columns[0].type if all(column.type == columns[0].type for column in columns) else pa.string()
    return pa.chunked_array([column.cast(kind) for column in columns])


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
    told = [(table, table.families) for table in (old, new) if table.families is not None]
    if not told:
        return None, None
    _, names = ids.encode(_one_column(*(families for _, families in told)))
    family = np.full(len(assessors), -1, np.int32)
    for table, families in told:
        # The new table has the last word, where it says anything.
        assert table.assessor_family is not None
        known = table.assessor_family >= 0
        who = ids.match(assessors, table.assessors)[known]
        family[who] = ids.match(names, families)[table.assessor_family[known]]
    return names, family


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


def save(judgments: Judgments, path: str | Path) -> None:
    """Write the table to a Parquet file, codes and all.

    A column of ids is as long as the table, with blanks after the last id: so one file holds them all, in order.
    """
    n = len(judgments)
    columns = {
        "query": pa.array(_item_column(judgments, "query")),
        "document": pa.array(_item_column(judgments, "document")),
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
