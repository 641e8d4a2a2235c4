"""Merge a batch of new judgments into the existing ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Integers
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, InputError, Message, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import share_columns
from crowdrank.judgments.combine import combine
from crowdrank.judgments.judging_database import find_database
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.summary import uncertain_scale_note
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

SKIP_FIX = Fix("skip such judgments with {}", "on_bad_rows", "skip")


@dataclass(frozen=True)
class MergeResult:
    """Judgments after a batch was merged, and the number of its judgments by what was done with them."""

    judgments: Judgments
    added: int = 0
    changed: int = 0
    known: int = 0  # with the same grade as before
    older: int = 0  # left out because a later judgment of the same assessor exists
    unknown: int = 0  # left out because their documents are not in the pool
    excluded: int = 0  # left out because their assessors are excluded
    new: Judgments | None = None  # added and changed judgments
    notes: tuple[Message, ...] = ()


def merge_batch(
    old: Judgments | None,
    batch: Judgments,
    *,
    source: str = "the batch",
    pool: Pool | None = None,
    exclude: Collection[str] = (),
    on_bad_rows: str = "error",
) -> MergeResult:
    """Merge a batch into existing judgments; merging the same batch again changes nothing.

    Args:
        old: the existing judgments, or None.
        batch: the new judgments.
        source: name of the batch for messages.
        pool: documents that may be judged.
        exclude: ids of assessors whose judgments are invalid.
        on_bad_rows: raise an error for invalid judgments (`error`), or leave them out and count them (`skip`).

    >>> import pandas as pd
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]}), grades="0-2") for grade in (0, 2))
    >>> merge_batch(old, new).changed, merge_batch(new, new).known
    (1, 1)

    """
    is_outside, is_excluded = _is_outside(batch, pool), _is_excluded(batch, exclude)
    is_excluded &= ~is_outside
    if on_bad_rows != "skip":
        _raise_if_any(is_outside, batch, source, "is not in the pool", [Fix("check {}", "pairs"), SKIP_FIX])
        _raise_if_any(is_excluded, batch, source, "was judged by the excluded assessor {assessor}", [SKIP_FIX])
    is_valid = ~(is_outside | is_excluded)
    counts: dict[str, Any] = {"unknown": int(is_outside.sum()), "excluded": int(is_excluded.sum())}
    if not is_valid.any():
        if old is None:
            fixes = [Fix("check {}", "pairs"), Fix("check {}", "exclude")]
            raise InputError("no judgment is left", source=source, kind="no-judgments", fix=fixes)
        return MergeResult(old, **counts)
    valid = batch if is_valid.all() else batch.where(is_valid)
    if old is None:
        note = uncertain_scale_note(valid)
        return MergeResult(valid, len(valid), **counts, new=valid, notes=() if note is None else (note,))
    require_same_scale(old, valid, source)
    row = _old_rows(old, valid)
    is_older = _is_older(old, valid, row)
    is_known = (row >= 0) & ~is_older & _has_same_grade(old, valid, row) & _has_same_shares(old, valid, row)
    is_changed = (row >= 0) & ~is_older & ~is_known
    is_new = (row < 0) | is_changed
    counts |= {"known": int(is_known.sum()), "older": int(is_older.sum())}
    if not is_new.any():
        return MergeResult(old, **counts)
    new = valid.where(is_new)
    counts |= {"added": int((row < 0).sum()), "changed": int(is_changed.sum())}
    return MergeResult(combine(old, new), **counts, new=new, notes=_higher_grade_notes(old, new, source))


def _higher_grade_notes(old: Judgments, new: Judgments, source: str) -> tuple[Message, ...]:
    """Return a note if the new judgments have a grade of the scale above all grades so far."""
    if len(old.scales) > 1 or len(new.scales) > 1:
        return ()
    highest_old, highest_new = (int(table.grade.max(initial=UNJUDGEABLE)) for table in (old, new))
    if UNJUDGEABLE in (highest_old, highest_new):
        return ()
    grade = new.scale.names[highest_new]
    if (old.scale.code(grade) or 0) <= highest_old:
        return ()
    problem = f"{source} has the grade {grade}, higher than all before (up to {old.scale.names[highest_old]})"
    return (Message(f"{problem}, on the scale {old.scale}", "higher-grade", "note"),)


def _is_outside(batch: Judgments, pool: Pool | None) -> Booleans:
    """Return whether the document of each judgment is not in the pool."""
    if pool is None:
        return np.zeros(len(batch), bool)
    is_inside = np.zeros(batch.n_items, bool)
    item = batch.positions(pool.query, pool.document)
    is_inside[item[item >= 0]] = True
    return ~np.repeat(is_inside, np.diff(batch.offsets))


def _is_excluded(batch: Judgments, exclude: Collection[str]) -> Booleans:
    """Return whether the assessor of each judgment is excluded."""
    is_listed: Booleans = ids.match(pa.array([str(one) for one in exclude], pa.string()), batch.assessors) >= 0
    return is_listed[batch.assessor]


def _raise_if_any(is_invalid: Booleans, batch: Judgments, source: str, problem: str, fixes: list[Fix]) -> None:
    if not is_invalid.any():
        return
    row = int(np.argmax(is_invalid))
    item = int(np.searchsorted(batch.offsets, row, side="right")) - 1
    query, document = (shown(column[item].as_py()) for column in batch.item_ids())
    problem = problem.format(assessor=shown(batch.assessors[int(batch.assessor[row])].as_py()))
    number = counted(int(is_invalid.sum()), "such judgment")
    text = f"the document {document} of query {query} {problem} ({number})"
    raise InputError(text, source=source, kind="invalid-judgments", fix=fixes)


def require_same_scale(old: Judgments, new: Judgments, source: str) -> None:
    """Raise InputError if new judgments have grades that are not on the scale of the existing ones.

    >>> import pandas as pd
    >>> row = {"document": ["d", "e"], "assessor": ["ann", "ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": grade})) for grade in ([0, 2], [0, 4]))
    >>> require_same_scale(old, new, "new.csv")
    Traceback (most recent call last):
    crowdrank.errors.InputError: new.csv: the grade 4 is not on the scale 0-2 of the existing judgments; give the whole
    scale with grades.
    """
    if len(old.scales) > 1 or len(new.scales) > 1:
        return  # combining checks scales per assessor
    names = [new.scale.names[code] for code in np.unique(new.grade) if code != UNJUDGEABLE]
    unknown = [name for name in names if old.scale.code(name) is None]
    if unknown:
        problem = f"the grade {unknown[-1]} is not on the scale {old.scale} of the existing judgments"
        fix = Fix("give the whole scale with {}", "grades")
        raise InputError(problem, source=source, kind="scale-changed", fix=fix)


def _old_rows(old: Judgments, new: Judgments) -> Integers:
    """Return the row of the old judgment of the same assessor and document for each new judgment, or -1."""
    item = old.positions(*new.item_ids())[new.item]
    assessor = ids.match(old.assessors, new.assessors)[new.assessor]
    wanted = np.where((item >= 0) & (assessor >= 0), item * old.n_assessors + assessor, -1)
    return ids.match(pa.array(old.item * old.n_assessors + old.assessor), pa.array(wanted))


def _is_older(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment is older than the existing one."""
    if "time" not in old.extras or "time" not in new.extras:
        return np.zeros(len(new), bool)
    return np.asarray((row >= 0) & (new.extras["time"] < old.extras["time"][np.maximum(row, 0)]))


def _has_same_grade(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment has the grade of the existing one."""
    names = [_grade_names(table) for table in (old, new)]
    return np.asarray(names[0][np.maximum(row, 0)] == names[1])


def _has_same_shares(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment has the probabilities of the existing one, if these have any."""
    is_same = np.ones(len(new), bool)
    if old.has_soft_labels:
        for name in share_columns({**old.extras, **new.extras}):
            before, after = (np.nan_to_num(table.extras.get(name, np.zeros(len(table)))) for table in (old, new))
            is_same &= before[np.maximum(row, 0)] == after
    return is_same


def _grade_names(table: Judgments) -> Any:
    """Return the name of the grade of each judgment, "" for 'cannot judge' answers (n,)."""
    names = np.full((len(table.scales), len(table.main_scale) + 1), "", object)
    for index, scale in enumerate(table.scales):
        names[index, : len(scale)] = [name.casefold() for name in scale.names]
    return names[table.assessor_scale[table.assessor], table.grade]  # the code of 'cannot judge' is -1


def read_existing(path: str | Path | None, **options: Any) -> Judgments | None:
    """Read the existing judgments; return None if there is no file, or only a header."""
    if path is None or not (Path(path).exists() or find_database(path)):
        return None
    try:
        return read_judgments(path, **options)
    except InputError as error:
        if error.kind == "no-rows":
            return None
        raise


def batch_scale(old: Judgments | None, grades: str | None) -> Scale | None:
    """Return the scale for reading a batch: `grades`, or that of the existing judgments if its grades are names."""
    if grades is not None:
        return Scale.parse(grades)
    if old is None or len(old.scales) > 1 or old.scale.numeric:
        return None
    return old.scale
