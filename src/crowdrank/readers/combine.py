"""Combine old and new judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from crowdrank._typing import Booleans, Codes, Grades, Integers
from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.readers.merge import blank_optional_column, group_rows, item_fields, merge_reports, remove_rows

SAME_SCALE_FIXES = (Fix("read both with the same {}", "grades"), Fix("read both with the same {}", "scales"))
"""Advice for judgments that cannot be combined because their scales differ."""


def combine(old: Judgments, new: Judgments) -> Judgments:
    """Combine two sets of judgments; a new judgment replaces an old one of the same document by the same assessor.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]})) for grade in (0, 2))
    >>> combine(old, new).frame["grade"].tolist()
    [2]
    """
    old, new = _to_same_scales(old, new)
    old_and_new = (old, new)
    query, queries = ids.concat([(one.by_row(one.item_query), one.queries) for one in old_and_new])
    document, documents = ids.concat([(one.by_row(one.item_document), one.documents) for one in old_and_new])
    assessor_codes, assessors = ids.merge([old.assessors, new.assessors])
    assessor = np.concatenate([assessor_codes[0][old.assessor], assessor_codes[1][new.assessor]])
    families, assessor_family = _merge_families(old_and_new, assessor_codes, len(assessors))
    extras = {
        name: np.concatenate([one.extras.get(name, blank_optional_column(name, len(one))) for one in old_and_new])
        for name in dict.fromkeys((*old.extras, *new.extras))
    }
    order, offsets = group_rows(query, document, len(queries), len(documents))
    is_replaced = _find_replaced(order, offsets, assessor, len(old))
    order, offsets = remove_rows(order, offsets, is_replaced)
    grade = np.concatenate([old.grade, new.grade])
    return replace(
        old,
        assessors=assessors,
        assessor_scale=_merge_assessor_scales(old_and_new, assessor_codes, assessors),
        families=families,
        assessor_family=assessor_family,
        family_separator=new.family_separator or old.family_separator,
        family_correlations={**old.family_correlations, **new.family_correlations},
        report=merge_reports(old.report, new.report, int(is_replaced.sum())),
        assessor=assessor[order],
        grade=grade[order],
        **item_fields((query, queries), (document, documents), order, offsets, extras),
    )


def _find_replaced(row_order: Codes, offsets: Integers, assessor_codes: Codes, n_old_rows: int) -> Booleans:
    """Return a mask over `row_order` of the old rows that a new judgment of the same item and assessor replaces."""
    is_new = row_order >= n_old_rows
    item = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pair = item * (int(assessor_codes.max(initial=0)) + 1) + assessor_codes[row_order]
    return ~is_new & np.isin(pair, pair[is_new])


def _to_same_scales(old: Judgments, new: Judgments) -> tuple[Judgments, Judgments]:
    """Return both judgments with the same scales, merged if possible; raise InputError if they cannot be merged."""
    unmapped = not any((*old.scale_maps, *new.scale_maps))
    same_maps = old.scale_maps == new.scale_maps and old.common_scale == new.common_scale
    plain = not old.has_own_labels and not new.has_own_labels
    if old.scales == new.scales and old.labels == new.labels and (unmapped or same_maps):
        return old, new
    if plain and not old.scale_maps and not new.scale_maps and old.scale.numeric and new.scale.numeric:
        values = sorted({*old.scale.values, *new.scale.values})
        both = Scale.parse(str(int(value)) for value in values)
        return _to_wider_scale(old, both), _to_wider_scale(new, both)
    if old.scale_maps and new.scale_maps and old.common_scale == new.common_scale:
        mapped = list(dict.fromkeys((*_scales_with_maps(old), *_scales_with_maps(new))))
        return _renumber_scales(old, mapped), _renumber_scales(new, mapped)
    problem = f"the scales differ ({' / '.join(map(str, old.scales))} and {' / '.join(map(str, new.scales))})"
    raise InputError(problem, kind="scales-differ", fix=SAME_SCALE_FIXES)


def _to_wider_scale(judgments: Judgments, scale: Scale) -> Judgments:
    """Recode grades for a scale that contains all grades of the current one."""
    codes = np.array([scale.code(name) for name in judgments.scale.names] + [UNJUDGEABLE], dtype=np.int8)
    recoded = judgments.with_honeypots(lambda honeypots: codes[honeypots])
    return replace(recoded, grade=codes[judgments.grade], scales=(scale,), labels=None)


def _scales_with_maps(judgments: Judgments) -> list[tuple[Scale, tuple[int, ...] | None]]:
    """Return each scale of the judgments with its map to the common scale."""
    return list(zip(judgments.scales, judgments.scale_maps, strict=True))


def _renumber_scales(judgments: Judgments, scales_with_maps: list[tuple[Scale, tuple[int, ...] | None]]) -> Judgments:
    """Replace the scales of the judgments by a longer list that contains them."""
    number = np.array([scales_with_maps.index(one) for one in _scales_with_maps(judgments)], dtype=np.int8)
    scales, maps = zip(*scales_with_maps, strict=True)
    return replace(judgments, scales=scales, scale_maps=maps, assessor_scale=number[judgments.assessor_scale])


def _merge_assessor_scales(
    old_and_new: tuple[Judgments, Judgments], assessor_codes: Sequence[Codes], assessors: pa.Array
) -> Grades:
    """Return the scale of each assessor; raise InputError if the old and the new scale differ."""
    old, new = (np.full(len(assessors), -1, np.int8) for _ in old_and_new)
    old[assessor_codes[0]], new[assessor_codes[1]] = old_and_new[0].assessor_scale, old_and_new[1].assessor_scale
    differ = (old != new) & (old >= 0) & (new >= 0)
    if differ.any():
        who = assessors[int(np.argmax(differ))].as_py()
        problem = f"the assessor {shown(who)} uses another scale than before"
        raise InputError(problem, kind="scales-differ", fix=SAME_SCALE_FIXES[1])
    return np.maximum(old, new)


def _merge_families(
    old_and_new: tuple[Judgments, Judgments], assessor_codes: Sequence[Codes], n_assessors: int
) -> tuple[pa.Array | None, Codes | None]:
    """Return the families of both judgments and the family of each assessor; a new family replaces an old one."""
    tables = [judgments.families for judgments in old_and_new if judgments.families is not None]
    if not tables:
        return None, None
    new_codes, names = ids.merge(tables)
    family, numbers = np.full(n_assessors, -1, np.int32), iter(new_codes)
    for judgments, assessor in zip(old_and_new, assessor_codes, strict=True):
        if judgments.assessor_family is not None:
            known = judgments.assessor_family >= 0
            family[assessor[known]] = next(numbers)[judgments.assessor_family[known]]
    return names, family
