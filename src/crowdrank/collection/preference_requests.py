"""Requests of preferences, and the list of those that were written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._files import recover
from crowdrank._text import counted
from crowdrank._typing import Booleans, Integers
from crowdrank.collection.requests import DATE, REQUEST_FILE_FIX, Unspent
from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.judgments.preferences import Preferences
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.sources import BadRows
from crowdrank.readers.write import write_table

REQUEST_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "left", "right", "assessor", "kind"), pa.string()),
        "price": pa.float64(),
        "had": pa.int64(),
        "asked": pa.string(),
    }
)
"""Columns of a list of requests; `had` is the number of preferences between the two documents when it was made."""


@dataclass(frozen=True, eq=False)
class PreferenceRequests:
    """Preferences to request, by priority.

    Attributes:
        table: columns query, left, right, assessor (null: anyone), kind, price and reason.
        unspent: part of the budget that buys no preference, and why; None if all is spent.

    """

    table: pa.Table
    unspent: Unspent | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"<PreferenceRequests: {counted(len(self), 'preference')} for {self.cost:g}>"

    @property
    def cost(self) -> float:
        """Cost of all requests."""
        return float(self.table["price"].to_numpy().sum())

    @property
    def frame(self) -> Any:
        """The requests as a pandas DataFrame."""
        return frames.from_arrow(self.table, "pandas")


@dataclass(frozen=True, eq=False)
class PreferenceRequestList:
    """Requests of preferences that were written, one per row, with the columns of `REQUEST_SCHEMA`.

    >>> len(PreferenceRequestList.none())
    0
    """

    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls) -> PreferenceRequestList:
        """Return an empty list."""
        return cls(REQUEST_SCHEMA.empty_table())

    @classmethod
    def of(cls, requests: PreferenceRequests, preferences: Preferences | None) -> PreferenceRequestList:
        """Return new requests as rows of the list."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        had = _count_answers(requests.table, preferences)
        columns = {"had": pa.array(had), "asked": pa.array([now] * len(requests), pa.string())}
        table = requests.table.drop_columns(["reason"])
        for name, column in columns.items():
            table = table.append_column(name, column)
        return cls(table.select(REQUEST_SCHEMA.names).cast(REQUEST_SCHEMA))

    @classmethod
    def read(cls, path: str | Path) -> PreferenceRequestList:
        """Read a list; if there is no file, return no requests."""
        recover(path)
        if not Path(path).exists():
            return cls.none()
        source = DelimitedSource(path)
        missing = [name for name in REQUEST_SCHEMA.names if name not in source.names]
        if missing:
            problem = f"there is no column {missing[0]!r}"
            raise InputError(problem, source=source.name, kind="no-column", fix=REQUEST_FILE_FIX)
        table = source.read(list(REQUEST_SCHEMA.names), BadRows())
        columns = {name: pc.fill_null(table[name], "") for name in REQUEST_SCHEMA.names}
        for name in ("query", "left", "right"):
            source.require(pc.not_equal(columns[name], ""), name, f"{name} is missing", REQUEST_FILE_FIX)
        is_date = pc.match_substring_regex(columns["asked"], DATE)
        source.require(is_date, "asked", "this is not a date such as 2024-05-31T12:00:00Z", REQUEST_FILE_FIX)
        for name, pattern in (("price", r"^\d+(\.\d*)?([eE][+-]?\d+)?$"), ("had", r"^\d{1,9}$")):
            is_number = pc.match_substring_regex(columns[name], pattern)
            source.require(is_number, name, "this is not a number of at least 0", REQUEST_FILE_FIX)
        columns["assessor"] = pc.if_else(pc.equal(columns["assessor"], ""), None, columns["assessor"])
        return cls(pa.table(columns).cast(REQUEST_SCHEMA))

    def write(self, path: str | Path) -> None:
        """Write the list."""
        write_table(self.rows, path)

    def append(self, more: PreferenceRequestList) -> PreferenceRequestList:
        """Return these requests followed by more."""
        return PreferenceRequestList(pa.concat_tables([self.rows, more.rows]))

    def where(self, mask: Booleans) -> PreferenceRequestList:
        """Return the requests that a mask selects."""
        return PreferenceRequestList(self.rows.filter(pa.array(mask, pa.bool_())))

    def is_outstanding(self, preferences: Preferences | None) -> Booleans:
        """Return whether each request has no answer (n,): no further preference, by its assessor if it names one."""
        if preferences is None or not len(self):
            return np.ones(len(self), bool)
        answered = _count_answers(self.rows, preferences) > self.rows["had"].to_numpy()
        by = answered_by(preferences)
        for row, one in enumerate(self.rows.to_pylist()):
            if one["assessor"] is not None:
                answered[row] = one["assessor"] in by.get(pair_key(one["query"], one["left"], one["right"]), ())
        outstanding: Booleans = ~answered
        return outstanding


PairKey = tuple[str, frozenset[str]]


def pair_key(query: str, left: str, right: str) -> PairKey:
    """Return a key of two documents of a query in any order."""
    return query, frozenset((left, right))


def answered_by(preferences: Preferences | None) -> dict[PairKey, list[str]]:
    """Return the assessors of the preferences between two documents, one per preference."""
    found: dict[PairKey, list[str]] = {}
    if preferences is not None:
        names = [
            list(map(str, pool.take(pa.array(codes)).to_pylist()))
            for pool, codes in (
                (preferences.queries, preferences.query),
                (preferences.documents, preferences.left),
                (preferences.documents, preferences.right),
                (preferences.assessors, preferences.assessor),
            )
        ]
        for query, left, right, assessor in zip(*names, strict=True):
            found.setdefault(pair_key(query, left, right), []).append(assessor)
    return found


def _count_answers(table: pa.Table, preferences: Preferences | None) -> Integers:
    """Return the number of preferences between the documents of each row of a table, (n,)."""
    by, columns = answered_by(preferences), [table[name].to_pylist() for name in ("query", "left", "right")]
    return np.array([len(by.get(pair_key(*pair), ())) for pair in zip(*columns, strict=True)], np.int64)


def preference_list_path(preferences: str | Path) -> Path:
    """Return the path of the list of requests for a file of preferences.

    >>> preference_list_path("preferences.csv.gz").name
    'preferences.requests.csv'
    """
    path = Path(preferences)
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".requests.csv")
