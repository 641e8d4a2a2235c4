"""Budgets, the labels that a policy wants, and the requests that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.pool import ANYONE, KINDS, Pool, check_prices
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Message
from crowdrank.judgments import frames

BLOCK = 4096
"""Maximum number of requests that are assigned at a time."""


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
    kind: str = "crowd"
    most: int | None = None
    honeypots: float = 0.0

    def __post_init__(self) -> None:
        check_parameter("budget", self.money, [Number(0, above=True)])
        check_parameter("most", self.most, [Number(1, integer=True), None])
        check_parameter("honeypots", self.honeypots, [Number(0, 1, below=True)])
        check_prices({self.kind: 0.0, **self.prices})

    @property
    def price(self) -> float:
        """Price of a label that anyone may give."""
        return float(self.prices.get(self.kind, 1.0))


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
        yield from _sorted_blocks(*self._priorities(np.flatnonzero(~is_done)), BLOCK)

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
    size = min(max(size, 64), BLOCK)
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
    kind: str = "crowd"  # kind of assessor that answers requests that name nobody
    unmet: int = 0  # number of wanted labels that no assessor can give
    probability: Floats | None = None  # (n,) probability with which the pair was drawn; None if it was not drawn
    round: int = 1  # number of pairs that were judged or requested before the draw, plus 1

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

        Requests for a sample also have the columns probability and round.
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
            columns["round"] = pa.array(np.full(len(self), self.round))
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
