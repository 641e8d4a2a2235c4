"""Requests of labels: budgets, the list of all requests of a collection, and the state of each pair.

The judgments themselves show which requests were answered, however they got into the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._assessor_kinds import DEFAULT_KIND, KINDS
from crowdrank._files import recover
from crowdrank._text import counted, enumerate_names
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.pool import ANYONE, Pool, check_prices, parse_numbers
from crowdrank.consensus.result import Consensus
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, InputError, Message
from crowdrank.judgments import frames, ids
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import Judgments
from crowdrank.readers.cells import require_floats
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.inputs import RoleTable
from crowdrank.readers.sources import BadRows, Origin
from crowdrank.readers.write import write_table

MAX_REQUESTS_PER_BLOCK = 4096
"""Maximum number of requests in a block; requests are assigned block by block."""


@dataclass(frozen=True)
class Budget:
    """Money for a round of requests, and its terms.

    Args:
        money: maximum cost of the round. By default a label costs 1, so this is a number of labels.
        prices: price of a label by kind of assessor, for requests that name nobody; by default 1.
        kind: kind of assessor that answers requests that name nobody.
        most: maximum number of labels per assessor, including earlier ones.
        honeypots: share of the money for honeypots, whose correct answer is known.

    >>> Budget(0)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: budget must be a number above 0, not 0.

    """

    money: float
    prices: Mapping[str, float] = field(default_factory=dict)
    kind: str = DEFAULT_KIND
    most: int | None = None
    honeypots: float = 0.0

    def __post_init__(self) -> None:
        check_parameter("budget", self.money, [Number(0, above=True)])
        check_parameter("most", self.most, [Number(1, integer=True), None])
        check_parameter("honeypots", self.honeypots, [Number(0, 1, below=True)])
        check_prices({self.kind: 0.0, **self.prices})

    @property
    def price(self) -> float:
        """Price of a label if its request names no assessor."""
        return float(self.prices.get(self.kind, 1.0))


UnspentReason = Literal["price", "nobody-left", "nothing-wanted"]
"""Why money is left: no label that is wanted costs as little, no assessor may give one, or no other one is wanted."""
PairStatus = Literal["requested", "outstanding", "settled", "complete", "not-drawn"]
"""Why a pair gets no further label in a round."""
PAIR_STATUSES: dict[PairStatus, str] = {
    "requested": "requested now",
    "outstanding": "waiting for an answer",
    "settled": "settled",
    "complete": "with all labels that the policy wants",
    "not-drawn": "not drawn, because the sample is paid for at the highest price",
}
"""Description of each status."""


@dataclass(frozen=True)
class Unspent:
    """Part of a budget that buys no label, and why.

    Attributes:
        money: the part.
        reason: why it is left.
        honeypots: whether it was reserved for honeypots.
        price: lowest price of a label.
        pairs: number of pairs (or honeypots) by status, if no other label is wanted.

    """

    money: float
    reason: UnspentReason
    honeypots: bool
    price: float
    pairs: Mapping[PairStatus, int] = field(default_factory=dict)

    def message(self) -> Message:
        """Return the note about the money."""
        reserve, what = (" reserved for honeypots", "honeypot") if self.honeypots else ("", "pair")
        problem = f"{self.money:,.10g} of the budget{reserve} {'is' if self.money == 1 else 'are'} not spent"
        kind = f"unspent-{self.reason}"
        if self.reason == "price":
            return Message(f"{problem}: a label costs {self.price:,.10g} or more", kind, "note")
        if self.reason == "nobody-left":
            problem = f"{problem}: no assessor is left who may judge the others"
            more = Fix("add assessors with {}", "assessors"), Fix("let each give more with {}", "most")
            return Message(problem, kind, "note", fixes=more)
        total = sum(self.pairs.values())
        parts = [f"{number:,} {PAIR_STATUSES[name]}" for name, number in self.pairs.items() if number]
        found = f"of {counted(total, what)}, {enumerate_names(parts)}" if total else f"there is no {what}"
        fixes = (
            (Fix("request labels of settled pairs with a higher {}", "settled"),) if self.pairs.get("settled") else ()
        )
        return Message(f"{problem}: {found}", kind, "note", fixes=fixes)


@dataclass(frozen=True, eq=False)
class RankedRequests:
    """Labels that a policy wants, one per row; a pair can have several rows.

    Attributes:
        pair: (m,) indices of pairs in the pool.
        priority: (m,) the highest is requested first, and equal ones in the order of the rows; with
            `exact_priority`, upper bounds.
        reason: (m,) indices in `reasons`.
        reasons: why labels are wanted.
        exact_priority: function that returns the priority of some rows, NaN if a label is not wanted. It is called
            only for rows that can be among the first.

    """

    pair: Integers
    priority: Floats
    reason: NDArray[np.int8]
    reasons: tuple[str, ...]
    exact_priority: Callable[[Integers], Floats] | None = None

    def __len__(self) -> int:
        return len(self.pair)

    def reason_texts(self, rows: Integers) -> NDArray[np.object_]:
        """Return why the labels of some rows are wanted."""
        return np.array([*self.reasons, ""], object)[self.reason[rows]]

    def _priorities(self, rows: Integers) -> tuple[Integers, Floats]:
        """Return the rows whose labels are wanted, and their exact priorities."""
        if self.exact_priority is None:
            return rows, self.priority[rows]
        priority = self.exact_priority(rows)
        wanted = ~np.isnan(priority)
        return rows[wanted], priority[wanted]

    def wanted(self) -> RankedRequests:
        """Return the rows with exact priorities, without rows whose label is not needed."""
        rows, priority = self._priorities(np.arange(len(self)))
        return RankedRequests(self.pair[rows], priority, self.reason[rows], self.reasons)

    def blocks(self, n_first: int) -> Iterator[Integers]:
        """Yield blocks of rows by priority; the first `n_first` rows are found without sorting the others."""
        is_done = np.zeros(len(self), bool)
        for size in self._head_sizes(n_first):
            bound = np.partition(self.priority, len(self) - size)[len(self) - size]
            head = np.flatnonzero(self.priority >= bound)
            if len(head) > len(self) // 2:
                break
            rows, priority = self._priorities(head)
            is_first = priority >= bound  # no row outside of the head has a higher priority
            if is_first.sum() >= n_first:
                is_done[head] = True
                is_done[rows[~is_first]] = False
                yield from _sorted_blocks(rows[is_first], priority[is_first], n_first)
                break
        yield from _sorted_blocks(*self._priorities(np.flatnonzero(~is_done)), MAX_REQUESTS_PER_BLOCK)

    def _head_sizes(self, n_first: int) -> Iterator[int]:
        """Yield numbers of rows to examine; with upper bounds, the first `n_first` may be among more rows."""
        size = n_first if self.exact_priority is None else 4 * n_first
        while 0 < size < len(self) // 2:
            yield size
            if self.exact_priority is None:
                return
            size *= 4


def _sorted_blocks(rows: Integers, priority: Floats, size: int) -> Iterator[Integers]:
    by_priority = rows[np.argsort(-priority, kind="stable")]
    size = min(max(size, 64), MAX_REQUESTS_PER_BLOCK)
    for start in range(0, len(by_priority), size):
        yield by_priority[start : start + size]


@dataclass(frozen=True, eq=False)
class Requests:
    """Labels to request, by priority.

    >>> import pandas as pd
    >>> from crowdrank.collection import get_policy
    >>> pool = Pool.read(pd.DataFrame({"query": ["q"], "document": ["a"]}))
    >>> requests = get_policy("single").next(pool, None, None, Budget(5))
    >>> requests
    <Requests: 1 label of 1 document for 1>
    >>> requests.frame[["query", "document", "price", "reason"]]
      query document  price          reason
    0     q        a    1.0  no label so far
    """

    pool: Pool
    pair: Integers  # (n,) indices in the pool
    assessor: Integers  # (n,) indices in the roster, or ANYONE
    price: Floats  # (n,)
    reason: NDArray[np.object_]  # (n,)
    is_honeypot: Booleans  # (n,)
    notes: tuple[Message, ...] = ()
    kind: str = DEFAULT_KIND  # kind of assessor that answers requests that name nobody
    unmet: int = 0  # number of wanted labels that no assessor can give
    unspent: tuple[Unspent, ...] = ()  # parts of the budget that buy no label
    probability: Floats | None = None  # (n,) probability with which the pair was drawn; None if it was not drawn
    draw: int = 1  # number of pairs that were judged or requested before the draw, plus 1; see `number_draw`
    drawn_for: str | None = None  # the documents that could be drawn, as in `describe_draw`; None if it is not known

    def __len__(self) -> int:
        return len(self.pair)

    def __repr__(self) -> str:
        documents = counted(len(np.unique(self.pair)), "document")
        return f"<Requests: {counted(len(self), 'label')} of {documents} for {self.cost:g}>"

    @property
    def cost(self) -> float:
        """Cost of all requests."""
        return float(self.price.sum())

    @property
    def _kinds(self) -> NDArray[np.object_]:
        """Kind of assessor of each request (n,)."""
        roster = self.pool.roster
        return np.full(len(self), self.kind, object) if roster is None else roster.kind[self.assessor]

    def to_arrow(self) -> pa.Table:
        """Return a table: query, document, assessor, kind, price, reason; honeypot if the pool has them.

        Requests for a sample also have the columns probability, draw (number of the draw), drawn (its pairs), and
        drawn_for (digests of the documents that could be drawn).
        """
        rows, roster, assessors = pa.array(self.pair), self.pool.roster, pa.nulls(len(self), pa.string())
        if roster is not None:
            assessors = roster.assessors.take(pa.array(self.assessor, mask=self.assessor == ANYONE))
        columns = {
            "query": self.pool.query.take(rows),
            "document": self.pool.document.take(rows),
            "assessor": assessors,
            "kind": pa.array(self._kinds.tolist(), pa.string()),
            "price": pa.array(self.price),
            "reason": pa.array(self.reason.tolist(), pa.string()),
        }
        if self.pool.honeypot is not None:
            columns["honeypot"] = self.pool.honeypot.take(rows)
        if self.probability is not None:
            columns["probability"] = pa.array(self.probability, from_pandas=True)
            columns["draw"] = pa.array(np.full(len(self), self.draw))
            columns["drawn"] = pa.array(np.full(len(self), int((~np.isnan(self.probability)).sum()) + self.unmet))
            if self.drawn_for is not None:
                columns["drawn_for"] = pa.array([self.drawn_for] * len(self))
        return pa.table(columns)

    @property
    def frame(self) -> Any:
        """The requests as a pandas DataFrame."""
        return frames.from_arrow(self.to_arrow(), "pandas")

    def reasons(self) -> dict[str, int]:
        """Return the number of requests by reason, the most frequent first."""
        names, numbers = np.unique(self.reason.astype(str), return_counts=True)
        return {str(names[i]): int(numbers[i]) for i in np.argsort(-numbers, kind="stable")}

    def by_kind(self) -> dict[str, tuple[int, float]]:
        """Return the number of requests and their cost by kind of assessor."""
        kinds = self._kinds
        return {
            kind: (int((kinds == kind).sum()), float(self.price[kinds == kind].sum()))
            for kind in KINDS
            if (kinds == kind).any()
        }


REQUEST_FILE_FIX = "correct the file, or delete it to forget all requests"
DATE = r"^\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))?$"
"""Regular expression for the time of a request."""
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor", "kind"), pa.string()),
        "price": pa.float64(),
        "had": pa.int64(),
        "asked": pa.string(),
        "draw": pa.int64(),
    }
)
"""Columns of a list of requests. The assessor is null if anyone may answer; `had` is the number of judgments of the
pair at the time of the request, `asked`; `draw` is the number of the draw of a pair for a sample, and null otherwise.
"""


def ledger_path(judgments: str | Path) -> Path:
    """Return the path of the list of requests for a file or a database of judgments.

    >>> ledger_path("labels.csv.gz").name
    'labels.requests.csv'
    """
    from crowdrank.readers.judging_database import find_database

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
        if "draw" not in table.column_names:
            table = table.append_column("draw", pa.nulls(len(had), pa.int64()))
        return cls(table.select(SCHEMA.names).cast(SCHEMA))

    @classmethod
    def read(cls, path: str | Path) -> OutstandingRequests:
        """Read the file of all requests of a collection; if there is none, return no requests."""
        recover(path)
        if not Path(path).exists():
            return cls.none()
        source = DelimitedSource(path)
        missing = [name for name in SCHEMA.names if name not in (*source.names, "draw")]
        if missing:
            raise InputError(
                f"there is no column {missing[0]!r}", source=source.name, kind="no-column", fix=REQUEST_FILE_FIX
            )
        names = [name for name in SCHEMA.names if name in source.names]
        table = source.read(names, BadRows())
        columns = {name: pc.fill_null(table[name], "") for name in names}
        for name in ("query", "document"):
            source.require(pc.not_equal(columns[name], ""), name, f"the {name} is missing", REQUEST_FILE_FIX)
        is_date = pc.match_substring_regex(columns["asked"], DATE)
        source.require(is_date, "asked", "this is not a date such as 2024-05-31T12:00:00Z", REQUEST_FILE_FIX)
        columns["assessor"] = pc.if_else(pc.equal(columns["assessor"], ""), None, columns["assessor"])
        by_name = RoleTable(Origin(source, {}), columns)
        columns["price"] = pa.array(parse_numbers(by_name, "price", REQUEST_FILE_FIX))
        columns["had"] = pa.array(parse_numbers(by_name, "had", REQUEST_FILE_FIX, integer=True))
        columns["draw"] = pa.nulls(len(table), pa.int64())
        if "draw" in names:
            draws = require_floats(table["draw"], source, "draw", allow_blanks=True, fixes=[REQUEST_FILE_FIX])
            columns["draw"] = pa.array(draws, from_pandas=True)
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

    def number_draw(self, requests: Requests) -> Requests:
        """Return the requests of a new draw with the number after the last draw of the list, if it has any."""
        last = pc.max(self.column("draw")).as_py()
        return requests if requests.probability is None or last is None else replace(requests, draw=last + 1)

    def by_kind(self) -> Mapping[str, int]:
        """Return the number of requests by kind of assessor."""
        return {row["values"]: row["counts"] for row in pc.value_counts(self.column("kind")).to_pylist()}


@dataclass(frozen=True, eq=False)
class PoolState:
    """Labels and outstanding requests of each pair of a pool."""

    pool: Pool
    judgments: Judgments | None
    item: Integers  # (n_pairs,) index among the items of the judgments, or -1
    n_labels: Integers  # (n_pairs,)
    outstanding: OutstandingRequests
    consensus_rows: dict[Consensus, Integers] = field(default_factory=dict, repr=False)  # cache of `belief.py`

    @classmethod
    def of(cls, pool: Pool, judgments: Judgments | None, outstanding: OutstandingRequests | None = None) -> PoolState:
        """Return the state of a pool after these judgments and requests."""
        requests = OutstandingRequests.none() if outstanding is None else outstanding
        if judgments is None:
            return cls(pool, None, np.full(len(pool), -1), np.zeros(len(pool), np.int64), requests)
        n_labels = np.diff(judgments.offsets).astype(np.int64, copy=False)
        if pool.source is judgments:
            return cls(pool, judgments, np.arange(len(pool)), n_labels, requests)
        item = judgments.positions(pool.query, pool.document)
        return cls(pool, judgments, item, np.where(item >= 0, n_labels[np.maximum(item, 0)], 0), requests)

    @cached_property
    def n_requested(self) -> Integers:
        """Number of outstanding requests of each pair (n_pairs,)."""
        return np.bincount(self._outstanding_pairs[0], minlength=len(self.pool))

    @cached_property
    def open_pairs(self) -> Booleans:
        """Whether each pair is neither a honeypot nor requested already (n_pairs,)."""
        return np.asarray(~self.pool.is_honeypot & (self.n_requested == 0))

    @cached_property
    def _outstanding_pairs(self) -> tuple[Integers, Integers]:
        """Pair and roster index (or -1) of every outstanding request of the pool."""
        requests, roster = self.outstanding, self.pool.roster
        if not len(requests):  # finding pairs takes long in a large pool
            return np.empty(0, np.int64), np.empty(0, np.int64)
        pair = PairIndex.from_ids(self.pool.query, self.pool.document).positions(
            requests.column("query"), requests.column("document")
        )
        assessor = np.full(len(pair), ANYONE)
        if roster is not None:
            assessor = ids.match(roster.assessors, requests.column("assessor"))
        return pair[pair >= 0], assessor[pair >= 0]

    @property
    def outstanding_by_assessor(self) -> tuple[Integers, Integers]:
        """Pair and roster index of every outstanding request to an assessor of the roster."""
        pair, assessor = self._outstanding_pairs
        return pair[assessor >= 0], assessor[assessor >= 0]

    @cached_property
    def load(self) -> Integers:
        """Number of judgments and outstanding requests of each assessor of the roster (n_assessors,)."""
        assert self.pool.roster is not None
        load = np.bincount(self.outstanding_by_assessor[1], minlength=len(self.pool.roster))
        if self.judgments is not None:
            place = ids.match(self.pool.roster.assessors, self.judgments.assessors)
            n_judged = np.bincount(self.judgments.assessor, minlength=self.judgments.n_assessors)
            load[place[place >= 0]] += n_judged[place >= 0]
        return load

    @property
    def n_outside(self) -> int:
        """Number of judged documents that are not in the pool."""
        return 0 if self.judgments is None else self.judgments.n_items - int((self.item >= 0).sum())
