"""Joining tables of judgments, and keeping one on disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids, kernels
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments, ReadReport

Kind = tuple[Scale, tuple[int, ...] | None]


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
    query, queries = _joined_codes(old.queries, new.queries, item_column(old, "query"), item_column(new, "query"))
    document, documents = _joined_codes(
        old.documents, new.documents, item_column(old, "document"), item_column(new, "document")
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
        fix="read both with the same --grades or --scales",
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
            fix="read both with the same --scales",
        )
    return before


def item_column(judgments: Judgments, role: str) -> NDArray[np.int32]:
    """Return the query or document code of each judgment."""
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
