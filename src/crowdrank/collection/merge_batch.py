"""Rounds by files: a batch of new judgments added, where the collection stands, and what the judges disagree on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.collection.pool import Pool, item_ids
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.merge import combine
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import UNJUDGEABLE, Judgments


@dataclass(frozen=True)
class Added:
    """What a batch changed."""

    judgments: Judgments
    added: int
    changed: int
    known: int  # there already, word for word
    older: int = 0  # left out: what is there is later
    unknown: int = 0  # left out: of documents that are not in the pool
    excluded: int = 0  # left out: by assessors that are excluded
    news: Judgments | None = None  # those that were added or changed
    notes: tuple[str, ...] = ()  # what else has to be known

    @property
    def anything(self) -> bool:
        """Whether there is anything new."""
        return bool(self.added or self.changed)

    def told(self) -> str:
        """In one sentence."""
        parts = [
            f"{counted(self.added, 'judgment')} added",
            f"{self.changed:,} changed",
            f"{self.known:,} known already",
        ]
        for number, what in (
            (self.older, "older than what is there"),
            (self.unknown, "of documents that are not in the pool"),
            (self.excluded, "by excluded assessors"),
        ):
            if number:
                parts.append(f"{number:,} left out ({what})")
        return ", ".join(parts) + f"; {counted(len(self.judgments), 'judgment')} in all."


def add(
    old: Judgments | None,
    new: Judgments,
    *,
    source: str = "the batch",
    pool: Pool | None = None,
    exclude: Collection[str] = (),
    on_bad_rows: str = "error",
) -> Added:
    """Join a batch with the judgments so far, checked; the same batch once more changes nothing.

    Args:
        old: the judgments so far; None where there are none.
        new: the batch.
        source: what the batch is called in a sentence.
        pool: documents that may be judged; others are refused.
        exclude: assessors whose judgments are refused.
        on_bad_rows: `error`, or `skip` to leave out (and count) what would be refused.

    >>> import pandas as pd
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]}), grades="0-2") for grade in (0, 2))
    >>> add(old, new).told(), add(new, new).told()
    ('0 judgments added, 1 changed, 0 known already; 1 judgment in all.',
     '0 judgments added, 0 changed, 1 known already; 1 judgment in all.')
    """
    unknown, excluded = _strangers(new, pool), _barred(new, exclude)
    if on_bad_rows != "skip":
        _refuse(new, unknown, source, "is not in the pool", "--pairs names those that may be judged")
        _refuse(new, excluded & ~unknown, source, "was judged by {who}, who is excluded", "leave the judgment out")
    keep = ~(unknown | excluded)
    counts: dict[str, Any] = {"unknown": int(unknown.sum()), "excluded": int((excluded & ~unknown).sum())}
    if not keep.any():
        if old is None:
            raise InputError("no judgment is left", source=source, fix="check --pairs and --exclude")
        return Added(old, 0, 0, 0, **counts)
    fresh = new if keep.all() else new.where(keep)
    if old is None:
        doubts = _gaps_told(fresh, source) if fresh.report.guessed else ()
        return Added(fresh, len(fresh), 0, 0, **counts, news=fresh, notes=doubts)
    require_same_scale(old, fresh, source)
    there = _places(old, fresh)
    older = _older(old, fresh, there)
    same = (there >= 0) & ~older & _alike(old, fresh, there)
    changed = (there >= 0) & ~older & ~same
    counts |= {"known": int(same.sum()), "older": int(older.sum())}
    news = (there < 0) | changed
    if not news.any():
        return Added(old, 0, 0, **counts)
    what = fresh.where(news)
    notes = _beyond_told(old, what, source)
    return Added(combine(old, what), int((there < 0).sum()), int(changed.sum()), **counts, news=what, notes=notes)


def _gaps_told(first: Judgments, source: str) -> tuple[str, ...]:
    """A sentence on a scale that is only read off the first judgments and has grades below the highest that none has.

    One stray grade would make the scale of all rounds to come.
    """
    if len(first.scales) > 1 or not first.scale.numeric:
        return ()
    seen = np.unique(first.grade[first.grade != UNJUDGEABLE])
    if len(seen) == 0 or len(seen) == int(seen[-1]) + 1:
        return ()
    missing = [first.scale.names[code] for code in range(int(seen[-1])) if code not in seen]
    told = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    number = counted(int((first.grade == seen[-1]).sum()), "judgment")
    return (
        f"The scale is taken as {first.scale}, by the highest grade in {source} (of {number}); nobody gave {told}. If "
        "that is not the scale, mend the file, or give the scale with --grades.",
    )


def _beyond_told(old: Judgments, new: Judgments, source: str) -> tuple[str, ...]:
    """A sentence on grades beyond all that were given so far: on a scale that is told, they are no error."""
    if len(old.scales) > 1 or len(new.scales) > 1:
        return ()
    highest = [int(table.grade.max(initial=UNJUDGEABLE)) for table in (old, new)]
    if highest[0] == UNJUDGEABLE or highest[1] == UNJUDGEABLE:
        return ()
    before, now = (table.scale.names[code] for table, code in zip((old, new), highest, strict=True))
    if (new.scale.code(before) or 0) >= highest[1]:
        return ()
    return (f"{source} has the grade {now}, above all so far (up to {before}), on the scale {old.scale}.",)


def _strangers(new: Judgments, pool: Pool | None) -> Any:
    if pool is None:
        return np.zeros(len(new), bool)
    known = np.zeros(new.n_items, bool)
    place = new.positions(pool.query, pool.document)
    known[place[place >= 0]] = True
    return ~np.repeat(known, np.diff(new.offsets))


def _barred(new: Judgments, exclude: Collection[str]) -> Any:
    if not exclude:
        return np.zeros(len(new), bool)
    return (ids.match(pa.array([str(one) for one in exclude], pa.string()), new.assessors) >= 0)[new.assessor]


def _refuse(new: Judgments, bad: Any, source: str, problem: str, remedy: str) -> None:
    if not bad.any():
        return
    row = int(np.argmax(bad))
    item = int(np.searchsorted(new.offsets, row, side="right")) - 1
    query, document = (column[item].as_py() for column in item_ids(new))
    who = shown(new.assessors[int(new.assessor[row])].as_py())
    raise InputError(
        f"the document {shown(document)} of query {shown(query)} {problem.format(who=who)} "
        f"({counted(int(bad.sum()), 'judgment')} in all)",
        source=source,
        fix=f"{remedy}, or use --on-bad-rows skip",
    )


def require_same_scale(old: Judgments, new: Judgments, source: str) -> None:
    """Refuse a scale that changed between rounds: other grades would mean other things.

    >>> import pandas as pd
    >>> row = {"document": ["d", "e"], "assessor": ["ann", "ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": grade})) for grade in ([0, 2], [0, 4]))
    >>> require_same_scale(old, new, "new.csv")
    Traceback (most recent call last):
    crowdrank.errors.InputError: new.csv: the scale changed: it has the grade 4, and the judgments so far are on 0-2;
    give the whole scale with --grades.
    """
    if len(old.scales) > 1 or len(new.scales) > 1:
        return  # each assessor has a scale of their own, and combining checks it
    seen = [new.scale.names[code] for code in np.unique(new.grade) if code != UNJUDGEABLE]
    off = [name for name in seen if old.scale.code(name) is None]
    if not off:
        return
    raise InputError(
        f"the scale changed: it has the grade {off[-1]}, and the judgments so far are on {old.scale}",
        source=source,
        fix="give the whole scale with --grades",
    )


def _keys(table: Judgments, other: Judgments) -> Integers:
    """A number for each judgment's query, document and assessor, the same number for the same three in both tables."""
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    place = other.positions(*item_ids(table))[item]
    who = ids.match(other.assessors, table.assessors)[table.assessor]
    return np.where((place >= 0) & (who >= 0), place * (other.n_assessors + 1) + who, -1)


def _places(old: Judgments, new: Judgments) -> Integers:
    """For each new judgment the row of the old one of the same assessor on the same document, or -1."""
    wanted = _keys(new, old)
    item = np.repeat(np.arange(old.n_items), np.diff(old.offsets))
    key = item * (old.n_assessors + 1) + old.assessor
    order = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    found = order[at]
    return np.where((wanted >= 0) & (key[found] == wanted), found, -1)


def _older(old: Judgments, new: Judgments, there: Integers) -> Any:
    """Whether what is there was given later than what comes."""
    if "time" not in old.extras or "time" not in new.extras:
        return np.zeros(len(new), bool)
    return (there >= 0) & (new.extras["time"] < old.extras["time"][np.maximum(there, 0)])


def _alike(old: Judgments, new: Judgments, there: Integers) -> Any:
    """Whether a judgment is there already with the same grade; what else is told of it is told once."""
    grades = [np.array([*(scale.names for scale in table.scales)], object) for table in (old, new)]
    if len(old.scales) > 1 or len(new.scales) > 1:
        return np.array([at >= 0 and _name(old, int(at)) == _name(new, row) for row, at in enumerate(there.tolist())])
    onto = np.array([old.scale.code(name) if old.scale.code(name) is not None else -9 for name in grades[1][0]] + [-1])
    return onto[new.grade] == old.grade[np.maximum(there, 0)]


def _name(table: Judgments, row: int) -> str | None:
    code = int(table.grade[row])
    scale = table.scales[int(table.assessor_scale[table.assessor[row]])]
    return None if code == UNJUDGEABLE else scale.names[code]


# Where the collection stands.


def read_round(path: str | Path | None, **options: Any) -> Judgments | None:
    """The judgments so far; None where the file is not there or has only its header."""
    if path is None or not Path(path).exists():
        return None
    try:
        return read_judgments(path, **options)
    except InputError as problem:
        if problem.kind == "no-rows":
            return None
        raise


def scale_of(judgments: Judgments | None, told: str | Sequence[object] | None) -> Scale | None:
    """The scale that new judgments are read on: as told, or that of names, which have no order of their own."""
    if told is not None:
        return Scale.parse(told)
    if judgments is None or len(judgments.scales) > 1 or judgments.scale.numeric:
        return None
    return judgments.scale


def costs_told(by_kind: Mapping[str, tuple[int, float]]) -> str:
    """Labels and money for each kind, for a sentence.

    >>> costs_told({"llm": (10, 10.0), "expert": (1, 50.0)})
    '10 by llm for 10, 1 by expert for 50'
    """
    return ", ".join(f"{number:,} by {kind} for {money:g}" for kind, (number, money) in by_kind.items())
