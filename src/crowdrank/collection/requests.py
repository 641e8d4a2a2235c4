"""Requests: which pairs are to be judged, by whom, at what price, and why; and the budget that they keep to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.pool import ANYONE, KINDS, Pool, require_kind
from crowdrank.errors import UsageError
from crowdrank.judgments import frames


@dataclass(frozen=True)
class Budget:
    """What may be spent in a round, and on what terms.

    Args:
        money: how much may be spent. A label costs 1 unless told otherwise, so that this is a number of labels.
        prices: what a label of a kind of assessors costs, where the roster does not say; for requests that name nobody.
        kind: the kind of assessors that answers requests that name nobody.
        most: how many judgments an assessor may give in all, those given already among them.
        honeypots: share of the money for planted pairs, whose right answer is known.

    >>> Budget(0)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: The budget is 0; give a number above 0.
    """

    money: float
    prices: Mapping[str, float] = field(default_factory=dict)
    kind: str = "crowd"
    most: int | None = None
    honeypots: float = 0.0

    def __post_init__(self) -> None:
        number = isinstance(self.money, int | float | np.number) and not isinstance(self.money, bool)
        if not number or not 0 < self.money < np.inf:
            told = f"{self.money:g}" if number else repr(self.money)  # as it was typed: -5, not -5.0
            raise UsageError(f"The budget is {told}; give a number above 0.")
        if self.most is not None and (not isinstance(self.most, int | np.integer) or self.most < 1):
            raise UsageError(f"--most is {self.most!r}; give a whole number from 1 up.")
        if not isinstance(self.honeypots, int | float) or not 0 <= self.honeypots < 1:
            raise UsageError(f"--honeypots is {self.honeypots!r}; give a share from 0 to below 1.")
        for kind in (self.kind, *self.prices):
            require_kind(kind)

    @property
    def price(self) -> float:
        """Of a label by nobody in particular."""
        return float(self.prices.get(self.kind, 1.0))


@dataclass(frozen=True, eq=False)
class Requests:
    """Labels to ask for, the most wanted first.

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
    pair: Integers  # (n,) places in the pool
    assessor: Integers  # (n,) places in the roster, or ANYONE
    price: Floats  # (n,)
    reason: NDArray[np.object_]  # (n,)
    planted: Booleans  # (n,) whether it is a honeypot
    notes: tuple[str, ...] = ()
    kind: str = "crowd"  # of those who answer requests that name nobody
    unmet: int = 0  # labels that are wanted and that nobody is left to give

    def __len__(self) -> int:
        return len(self.pair)

    def __repr__(self) -> str:
        documents = counted(len(np.unique(self.pair)), "document")
        return f"<Requests: {counted(len(self), 'label')} of {documents} for {self.cost:g}>"

    @property
    def cost(self) -> float:
        """What all of them cost."""
        return float(self.price.sum())

    def to_arrow(self) -> pa.Table:
        """Query, document, assessor, kind, price, reason and, where there are any, the honeypots' right answers."""
        at, named = pa.array(self.pair), self.assessor != ANYONE
        roster = self.pool.roster
        if roster is None:
            assessor, kind = pa.nulls(len(self), pa.string()), pa.array([self.kind] * len(self), pa.string())
        else:
            who = pa.array(np.maximum(self.assessor, 0), mask=~named)
            assessor = roster.assessors.take(who)
            kind = pa.array(roster.kind[np.maximum(self.assessor, 0)].tolist(), pa.string())
        columns = {
            "query": self.pool.query.take(at),
            "document": self.pool.document.take(at),
            "assessor": assessor,
            "kind": kind,
            "price": pa.array(self.price),
            "reason": pa.array(self.reason.tolist(), pa.string()),
        }
        if self.pool.honeypot is not None:
            columns["honeypot"] = self.pool.honeypot.take(at)
        return pa.table(columns)

    @property
    def frame(self) -> Any:
        """The requests as a pandas DataFrame."""
        return frames.from_arrow(self.to_arrow(), "pandas")

    def reasons(self) -> dict[str, int]:
        """How many requests there are for each reason, the most frequent first."""
        names, numbers = np.unique(self.reason.astype(str), return_counts=True)
        return {str(names[i]): int(numbers[i]) for i in np.argsort(-numbers, kind="stable")}

    def by_kind(self) -> dict[str, tuple[int, float]]:
        """For each kind of assessors the labels asked for and their price."""
        roster = self.pool.roster
        kinds = np.full(len(self), self.kind, object) if roster is None else roster.kind[np.maximum(self.assessor, 0)]
        return {
            kind: (int((kinds == kind).sum()), float(self.price[kinds == kind].sum()))
            for kind in KINDS
            if (kinds == kind).any()
        }
