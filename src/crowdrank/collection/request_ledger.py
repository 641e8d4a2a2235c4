"""Requests that are out: what was asked in earlier rounds and has not come back.

A ledger beside the judgments lists every request that was written, and how many judgments its pair had then; what of it
has come back is seen from the judgments themselves, however they got there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._files import recover
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection.requests import Requests
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.encode import parse_floats
from crowdrank.judgments.sources import DelimitedSource
from crowdrank.judgments.table import Judgments
from crowdrank.judgments.write import write_table

COLUMNS = ("query", "document", "assessor", "kind", "price", "had", "asked")
REMEDY = "correct the file, or delete it to forget what was asked"
LARGEST = 1e9
"""Largest price and largest number of judgments in a ledger."""
DATE = r"^\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))?$"
"""What the times of requests look like."""


def ledger_of(judgments: str | Path) -> Path:
    """Where the requests of a file of judgments are listed.

    >>> ledger_of("labels.csv.gz").name
    'labels.requests.csv'
    """
    path = Path(judgments)
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".requests.csv")


@dataclass(frozen=True, eq=False)
class OutstandingRequests:
    """Requests, one row each: all of a ledger, or those that are out."""

    query: pa.Array  # (n,) text
    document: pa.Array  # (n,) text
    assessor: pa.Array  # (n,) text, null where anyone may answer
    kind: pa.Array  # (n,) text
    price: Floats  # (n,)
    had: Integers  # (n,) judgments of the pair when it was asked
    asked: pa.Array  # (n,) when, as text

    def __len__(self) -> int:
        return len(self.query)

    @classmethod
    def none(cls) -> OutstandingRequests:
        """No requests.

        >>> len(OutstandingRequests.none())
        0
        """
        text = pa.array([], pa.string())
        return cls(text, text, text, text, np.empty(0), np.empty(0, np.int64), text)

    @classmethod
    def of(cls, requests: Requests, judgments: Judgments | None) -> OutstandingRequests:
        """Requests that are sent now."""
        table = requests.to_arrow()
        had = np.zeros(len(requests), np.int64)
        if judgments is not None and len(requests):
            place = judgments.positions(table["query"].combine_chunks(), table["document"].combine_chunks())
            had = np.where(place >= 0, np.diff(judgments.offsets)[np.maximum(place, 0)], 0)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        texts = {name: _text(table[name]) for name in ("query", "document", "assessor", "kind")}
        return cls(**texts, price=requests.price, had=had, asked=pa.array([now] * len(requests), pa.string()))

    @classmethod
    def read(cls, path: str | Path) -> OutstandingRequests:
        """Read all requests of a ledger; there are none where the file does not exist."""
        recover(path)
        if not Path(path).exists():
            return cls.none()
        source = DelimitedSource(path)
        missing = [name for name in COLUMNS if name not in source.names]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}", source=source.name, fix=REMEDY)
        table = source.read(COLUMNS, BadRows())
        texts = {name: pc.fill_null(_text(table[name]), "") for name in _TEXTS}
        for name in ("query", "document"):
            _require_each(pc.not_equal(texts[name], ""), f"the {name} is missing", name, source)
        dates = pc.match_substring_regex(texts["asked"], DATE)
        _require_each(dates, "this is not a date such as 2024-05-31T12:00:00Z", "asked", source)
        blank = pc.equal(texts["assessor"], "")
        texts["assessor"] = pc.if_else(blank, pa.scalar(None, pa.string()), texts["assessor"])
        price, had = (_numbers(table[name], name, source) for name in ("price", "had"))
        return cls(**texts, price=price, had=had.astype(np.int64))

    def write(self, path: str | Path) -> None:
        """Write the ledger."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), path)

    def and_then(self, more: OutstandingRequests) -> OutstandingRequests:
        """These and then others."""
        return OutstandingRequests(
            **{name: pa.concat_arrays([getattr(self, name), getattr(more, name)]) for name in _TEXTS},
            price=np.concatenate([self.price, more.price]),
            had=np.concatenate([self.had, more.had]),
        )

    def where(self, keep: Any) -> OutstandingRequests:
        """Some of them."""
        texts = {name: getattr(self, name).filter(pa.array(keep, pa.bool_())) for name in _TEXTS}
        return OutstandingRequests(**texts, price=self.price[keep], had=self.had[keep])

    def out(self, judgments: Judgments | None) -> Any:
        """Which requests have not come back, (n,).

        Who was named has to have judged the pair. Requests to anyone are answered, the earliest first, by judgments
        beyond those that the pair had then and those that answer requests to others by name.
        """
        if judgments is None or not len(self):
            return np.ones(len(self), bool)
        pair = judgments.positions(self.query, self.document)
        named = np.asarray(pc.is_valid(self.assessor))
        who = np.where(named, ids.match(judgments.assessors, self.assessor), -1)
        item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
        given = item * judgments.n_assessors + judgments.assessor
        back = (pair >= 0) & (who >= 0) & np.isin(pair * judgments.n_assessors + who, given)
        count = np.diff(judgments.offsets)
        by_name: dict[int, list[int]] = {}
        for row in np.flatnonzero(back).tolist():
            by_name.setdefault(int(pair[row]), []).append(int(self.had[row]))
        level: dict[int, int] = {}  # judgments of a pair that are spoken for
        for row in np.flatnonzero(~named & (pair >= 0)).tolist():
            one, had = int(pair[row]), int(self.had[row])
            taken = max(level.get(one, 0), had)
            theirs = sum(asked_at >= had for asked_at in by_name.get(one, ()))
            if count[one] - theirs > taken:
                back[row], level[one] = True, taken + 1
        return ~back

    def told(self) -> str:
        """In a few words.

        >>> OutstandingRequests.none().told()
        'no requests are out'
        """
        if not len(self):
            return "no requests are out"
        since = min(day[:10] for day in self.asked.to_pylist())
        plural = "request is" if len(self) == 1 else "requests are"
        return f"{len(self):,} {plural} out since {since} (for {self.price.sum():g})"

    def by_kind(self) -> Mapping[str, int]:
        """How many are out for each kind of assessors."""
        return {row["values"]: row["counts"] for row in pc.value_counts(self.kind).to_pylist()}


_TEXTS = ("query", "document", "assessor", "kind", "asked")


def _text(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())


def _require_each(holds: pa.Array, problem: str, column: str, source: DelimitedSource) -> None:
    """Refuse the first row of a ledger for which a condition does not hold."""
    bad = np.flatnonzero(~np.asarray(holds))
    if len(bad):
        raise InputError(problem, source=source.name, place=source.place(int(bad[0])), column=column, fix=REMEDY)


def _numbers(column: pa.ChunkedArray, name: str, source: DelimitedSource) -> Floats:
    found = parse_floats(column)
    bad = None if found is None else ~((found >= 0) & (found <= LARGEST))
    if name == "had" and found is not None and bad is not None:
        bad |= found != np.floor(found)
    if found is None or bad is None or bad.any():
        row = 0 if bad is None else int(np.argmax(bad))
        raise InputError(
            f"{shown(column[row].as_py())} is not a {'whole ' * (name == 'had')}number from 0 up",
            source=source.name,
            place=source.place(row),
            column=name,
            fix=REMEDY,
        )
    return found


def back_told(before: int, after: int) -> str:
    """How many requests came back, and how many are still out.

    >>> back_told(5, 2)
    '3 requests came back, 2 are still out.'
    """
    left = "none is" if not after else "1 is" if after == 1 else f"{after:,} are"
    return f"{counted(before - after, 'request')} came back, {left} still out."
