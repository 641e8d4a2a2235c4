"""Sorting judgments by query and document in linear time. NumPy twins: tests/judgments/."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def order_by(codes: NDArray[np.int32], before: NDArray[np.int64], n_codes: int) -> NDArray[np.int64]:
    """A stable counting sort: the rows of `before`, reordered by their code."""
    # codes (n,); before (m,) rows in their order so far; returns (m,)
    ends = np.zeros(n_codes + 1, np.int64)
    for row in before:
        ends[codes[row] + 1] += 1
    for code in range(n_codes):
        ends[code + 1] += ends[code]
    ordered = np.empty(len(before), np.int64)
    for row in before:
        ordered[ends[codes[row]]] = row
        ends[codes[row]] += 1
    return ordered


@njit(cache=True, nogil=True)
def item_offsets(query: NDArray[np.int32], document: NDArray[np.int32], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each item's judgments start in `order` (sorted by query and document), with the end as last entry."""
    # query, document (n,); order (m,); returns (n_items + 1,)
    offsets = np.empty(len(order) + 1, np.int64)
    n_items = 0
    for position in range(len(order)):
        row = order[position]
        if position == 0 or query[row] != query[order[position - 1]] or document[row] != document[order[position - 1]]:
            offsets[n_items] = position
            n_items += 1
    offsets[n_items] = len(order)
    return offsets[: n_items + 1].copy()


@njit(cache=True, nogil=True)
def repeated(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], n_assessors: int, last: bool
) -> NDArray[np.bool_]:
    """Judgments that an earlier (or, with `last`, a later) one of the same assessor on the same item replaces."""
    # offsets (n_items + 1,); assessor (n,) sorted by item; returns (n,)
    out = np.zeros(len(assessor), np.bool_)
    seen = np.full(n_assessors, -1, np.int64)
    for item in range(len(offsets) - 1):
        for position in range(offsets[item], offsets[item + 1]):
            a = assessor[position]
            if seen[a] >= offsets[item]:
                out[seen[a] if last else position] = True
                if not last:
                    continue
            seen[a] = position
    return out
