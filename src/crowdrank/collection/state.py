"""State of a collection: labels and outstanding requests of each pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from crowdrank._typing import Booleans, Integers
from crowdrank.collection.pool import ANYONE, Pool, find_pairs
from crowdrank.collection.request_ledger import OutstandingRequests
from crowdrank.consensus.result import Consensus
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments


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
        pair = find_pairs(self.pool.query, self.pool.document, requests.column("query"), requests.column("document"))
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
