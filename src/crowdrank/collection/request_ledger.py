"""List of all requests beside a file of judgments, and which of them are outstanding.

The judgments themselves show which requests were answered, however they got into the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._files import recover
from crowdrank._typing import Booleans
from crowdrank.collection.pool import parse_numbers
from crowdrank.collection.requests import Requests
from crowdrank.errors import InputError
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.delimited import DelimitedSource
from crowdrank.judgments.inputs import RoleTable
from crowdrank.judgments.judging_database import find_database
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.table import Judgments
from crowdrank.judgments.write import write_table

FIX = "correct the file, or delete it to forget all requests"
DATE = r"^\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))?$"
"""Regular expression for the time of a request."""
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor", "kind"), pa.string()),
        "price": pa.float64(),
        "had": pa.int64(),
        "asked": pa.string(),
    }
)
"""Columns of a list of requests. The assessor is null if anyone may answer; `had` is the number of judgments of the
pair at the time of the request, `asked`."""


def ledger_path(judgments: str | Path) -> Path:
    """Return the path of the list of requests for a file or a database of judgments.

    >>> ledger_path("labels.csv.gz").name
    'labels.requests.csv'
    """
    path = Path(judgments)
    database = find_database(judgments)
    if database is not None:
        return database.stem.with_name(database.stem.name + ".requests.csv")
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".requests.csv")


@dataclass(frozen=True, eq=False)
class OutstandingRequests:
    """Requests, one per row: all of a list, or those without an answer.

    >>> len(OutstandingRequests.none())
    0
    """

    rows: pa.Table  # with the columns of `SCHEMA`

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> pa.Array:
        """Return a column of `SCHEMA` (n,)."""
        return self.rows[name].combine_chunks()

    @property
    def cost(self) -> float:
        """Sum of the prices of all requests."""
        return float(self.rows["price"].to_numpy().sum())

    @classmethod
    def none(cls) -> OutstandingRequests:
        """Return an empty list."""
        return cls(SCHEMA.empty_table())

    @classmethod
    def of(cls, requests: Requests, judgments: Judgments | None) -> OutstandingRequests:
        """Return new requests as rows of the list."""
        table = requests.to_arrow()
        had = np.zeros(len(requests), np.int64)
        if judgments is not None and len(requests):
            item = judgments.positions(table["query"].combine_chunks(), table["document"].combine_chunks())
            had = np.where(item >= 0, np.diff(judgments.offsets)[np.maximum(item, 0)], 0)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        table = table.append_column("had", pa.array(had))
        table = table.append_column("asked", pa.array([now] * len(had), pa.string()))
        return cls(table.select(SCHEMA.names).cast(SCHEMA))

    @classmethod
    def read(cls, path: str | Path) -> OutstandingRequests:
        """Read all requests of a list; without the file there are none."""
        recover(path)
        if not Path(path).exists():
            return cls.none()
        source = DelimitedSource(path)
        missing = [name for name in SCHEMA.names if name not in source.names]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}", source=source.name, kind="no-column", fix=FIX)
        table = source.read(SCHEMA.names, BadRows())
        columns = {name: pc.fill_null(table[name], "") for name in SCHEMA.names}
        for name in ("query", "document"):
            source.require(pc.not_equal(columns[name], ""), name, f"the {name} is missing", FIX)
        is_date = pc.match_substring_regex(columns["asked"], DATE)
        source.require(is_date, "asked", "this is not a date such as 2024-05-31T12:00:00Z", FIX)
        columns["assessor"] = pc.if_else(pc.equal(columns["assessor"], ""), None, columns["assessor"])
        by_name = RoleTable(Origin(source, {}), columns)
        columns["price"] = pa.array(parse_numbers(by_name, "price", FIX))
        columns["had"] = pa.array(parse_numbers(by_name, "had", FIX, integer=True))
        return cls(pa.table(columns).cast(SCHEMA))

    def write(self, path: str | Path) -> None:
        """Write the list."""
        write_table(self.rows, path)

    def append(self, more: OutstandingRequests) -> OutstandingRequests:
        """Return these requests followed by more."""
        return OutstandingRequests(pa.concat_tables([self.rows, more.rows]))

    def where(self, mask: Booleans) -> OutstandingRequests:
        """Return the requests that a mask selects."""
        return OutstandingRequests(self.rows.filter(pa.array(mask, pa.bool_())))

    def is_outstanding(self, judgments: Judgments | None) -> Booleans:
        """Return whether each request has no answer (n,).

        A request to an assessor is answered by a judgment of that assessor. Requests to anyone are answered, the
        earliest first, by judgments that are neither older than the request nor answers to requests by name.
        """
        if judgments is None or not len(self):
            return np.ones(len(self), bool)
        item = judgments.positions(self.column("query"), self.column("document"))
        asked_assessor, n_had = self.column("assessor"), self.rows["had"].to_numpy()
        is_named = np.asarray(pc.is_valid(asked_assessor))
        assessor = np.where(is_named, ids.match(judgments.assessors, asked_assessor), -1)
        judged_item = judgments.item
        judged = judged_item * judgments.n_assessors + judgments.assessor
        answered = (item >= 0) & (assessor >= 0) & np.isin(item * judgments.n_assessors + assessor, judged)
        n_labels = np.diff(judgments.offsets)
        named_had: dict[int, list[int]] = {}  # of answered requests by name
        for row in np.flatnonzero(answered).tolist():
            named_had.setdefault(int(item[row]), []).append(int(n_had[row]))
        n_used: dict[int, int] = {}  # number of judgments of an item that are older or answer earlier requests
        for row in np.flatnonzero(~is_named & (item >= 0)).tolist():
            one, had = int(item[row]), int(n_had[row])
            used = max(n_used.get(one, 0), had)
            n_named = sum(other >= had for other in named_had.get(one, ()))
            if n_labels[one] - n_named > used:
                answered[row], n_used[one] = True, used + 1
        return ~answered

    def by_kind(self) -> Mapping[str, int]:
        """Return the number of requests by kind of assessor."""
        return {row["values"]: row["counts"] for row in pc.value_counts(self.column("kind")).to_pylist()}
