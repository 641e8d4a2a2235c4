"""List of all requests beside a file of judgments, and which of them are outstanding.

The judgments themselves show which requests were answered, however they got into the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._files import recover
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.pool import parse_numbers, require_rows
from crowdrank.collection.requests import Requests
from crowdrank.errors import InputError
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.sources import DelimitedSource
from crowdrank.judgments.table import Judgments
from crowdrank.judgments.write import write_table

FIX = "correct the file, or delete it to forget all requests"
DATE = r"^\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))?$"
"""Regular expression for the time of a request."""


def ledger_path(judgments: str | Path) -> Path:
    """Return the path of the list of requests for a file of judgments.

    >>> ledger_path("labels.csv.gz").name
    'labels.requests.csv'
    """
    path = Path(judgments)
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".requests.csv")


@dataclass(frozen=True, eq=False)
class OutstandingRequests:
    """Requests, one per row: all of a list, or those without an answer.

    >>> len(OutstandingRequests.none())
    0
    """

    query: pa.Array  # (n,) text
    document: pa.Array  # (n,) text
    assessor: pa.Array  # (n,) text, null if anyone may answer
    kind: pa.Array  # (n,) text
    price: Floats  # (n,)
    had: Integers  # (n,) number of judgments of the pair at the time of the request
    asked: pa.Array  # (n,) time of the request, as text

    def __len__(self) -> int:
        return len(self.query)

    @classmethod
    def none(cls) -> OutstandingRequests:
        """Return an empty list."""
        text = pa.array([], pa.string())
        return cls(text, text, text, text, np.empty(0), np.empty(0, np.int64), text)

    @classmethod
    def of(cls, requests: Requests, judgments: Judgments | None) -> OutstandingRequests:
        """Return new requests as rows of the list."""
        table = requests.to_arrow()
        texts = {name: table[name].combine_chunks().cast(pa.string()) for name in _TEXTS if name != "asked"}
        had = np.zeros(len(requests), np.int64)
        if judgments is not None and len(requests):
            item = judgments.positions(table["query"].combine_chunks(), table["document"].combine_chunks())
            had = np.where(item >= 0, np.diff(judgments.offsets)[np.maximum(item, 0)], 0)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(**texts, price=requests.price, had=had, asked=pa.array([now] * len(requests), pa.string()))

    @classmethod
    def read(cls, path: str | Path) -> OutstandingRequests:
        """Read all requests of a list; without the file there are none."""
        recover(path)
        if not Path(path).exists():
            return cls.none()
        source, names = DelimitedSource(path), [field.name for field in fields(cls)]
        missing = [name for name in names if name not in source.names]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}", source=source.name, kind="no-column", fix=FIX)
        table = source.read(names, BadRows())
        texts = {name: pc.fill_null(table[name].combine_chunks().cast(pa.string()), "") for name in _TEXTS}
        for name in ("query", "document"):
            require_rows(pc.not_equal(texts[name], ""), f"the {name} is missing", name, source, FIX)
        is_date = pc.match_substring_regex(texts["asked"], DATE)
        require_rows(is_date, "this is not a date such as 2024-05-31T12:00:00Z", "asked", source, FIX)
        texts["assessor"] = pc.if_else(pc.equal(texts["assessor"], ""), None, texts["assessor"])
        price = parse_numbers(table["price"], "price", source, FIX)
        had = parse_numbers(table["had"], "had", source, FIX, integer=True)
        return cls(**texts, price=price, had=had.astype(np.int64))

    def write(self, path: str | Path) -> None:
        """Write the list."""
        write_table(pa.table({field.name: pa.array(getattr(self, field.name)) for field in fields(self)}), path)

    def append(self, more: OutstandingRequests) -> OutstandingRequests:
        """Return these requests followed by more."""
        return OutstandingRequests(
            **{name: pa.concat_arrays([getattr(self, name), getattr(more, name)]) for name in _TEXTS},
            price=np.concatenate([self.price, more.price]),
            had=np.concatenate([self.had, more.had]),
        )

    def where(self, mask: Booleans) -> OutstandingRequests:
        """Return the requests that a mask selects."""
        texts = {name: getattr(self, name).filter(pa.array(mask, pa.bool_())) for name in _TEXTS}
        return OutstandingRequests(**texts, price=self.price[mask], had=self.had[mask])

    def is_outstanding(self, judgments: Judgments | None) -> Booleans:
        """Return whether each request has no answer (n,).

        A request to an assessor is answered by a judgment of that assessor. Requests to anyone are answered, the
        earliest first, by judgments that are neither older than the request nor answers to requests by name.
        """
        if judgments is None or not len(self):
            return np.ones(len(self), bool)
        item = judgments.positions(self.query, self.document)
        is_named = np.asarray(pc.is_valid(self.assessor))
        assessor = np.where(is_named, ids.match(judgments.assessors, self.assessor), -1)
        judged_item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
        judged = judged_item * judgments.n_assessors + judgments.assessor
        answered = (item >= 0) & (assessor >= 0) & np.isin(item * judgments.n_assessors + assessor, judged)
        n_labels = np.diff(judgments.offsets)
        named_had: dict[int, list[int]] = {}  # of answered requests by name
        for row in np.flatnonzero(answered).tolist():
            named_had.setdefault(int(item[row]), []).append(int(self.had[row]))
        n_used: dict[int, int] = {}  # number of judgments of an item that are older or answer earlier requests
        for row in np.flatnonzero(~is_named & (item >= 0)).tolist():
            one, had = int(item[row]), int(self.had[row])
            used = max(n_used.get(one, 0), had)
            n_named = sum(other >= had for other in named_had.get(one, ()))
            if n_labels[one] - n_named > used:
                answered[row], n_used[one] = True, used + 1
        return ~answered

    def by_kind(self) -> Mapping[str, int]:
        """Return the number of requests by kind of assessor."""
        return {row["values"]: row["counts"] for row in pc.value_counts(self.kind).to_pylist()}


_TEXTS = ("query", "document", "assessor", "kind", "asked")
