"""Encode ids, and sort judgments by query and document in linear time. References are in tests/judgments."""

from __future__ import annotations

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from crowdrank._numba import njit


@njit(cache=True, nogil=True)
def group_rows(
    query: NDArray[np.int32], document: NDArray[np.int32], rows: NDArray[np.int32], n_queries: int, n_documents: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The order of `rows` by query and then by document, each in order of first appearance; where each item starts.

    A counting sort by query, then within each query one by document: what a query touches stays in the cache.
    """
    # query, document (n,); rows (m,); returns (m,) and (n_items + 1,)
    ends = np.zeros(n_queries + 1, np.int64)
    for row in rows:
        ends[query[row] + 1] += 1
    for code in range(n_queries):
        ends[code + 1] += ends[code]
    by_query, its_document = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
    for row in rows:
        place = ends[query[row]]
        by_query[place], its_document[place] = row, document[row]
        ends[query[row]] += 1
    order, item = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
    offsets = np.zeros(len(rows) + 1, np.int64)
    item_of = np.full(n_documents, -1, np.int32)  # the last item made of each document
    n_items, start = 0, 0
    for code in range(n_queries):
        first_item, stop = n_items, ends[code]
        for place in range(start, stop):
            d = its_document[place]
            if item_of[d] < first_item:  # that item was of another query
                item_of[d] = n_items
                n_items += 1
            item[place] = item_of[d]
            offsets[item[place] + 1] += 1
        for number in range(first_item, n_items):
            offsets[number + 1] += offsets[number]
        # offsets[number] serves as the next free place of the item, and is set right again afterwards.
        for place in range(start, stop):
            order[offsets[item[place]]] = by_query[place]
            offsets[item[place]] += 1
        for number in range(n_items - 1, first_item - 1, -1):
            offsets[number + 1] = offsets[number]
        if n_items > first_item:
            offsets[first_item] = start
        start = stop
    return order, offsets[: n_items + 1].copy()


@njit(cache=True, nogil=True)
def item_offsets(query: NDArray[np.int32], document: NDArray[np.int32], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each item's judgments start in `order` (sorted by query and document), with the end as last entry."""
    # query, document (n,); order (m,); returns (n_items + 1,)
    offsets = np.empty(len(order) + 1, np.int64)
    n_items, last_query, last_document = 0, -1, -1
    for position in range(len(order)):
        row = order[position]
        if query[row] != last_query or document[row] != last_document:
            last_query, last_document = query[row], document[row]
            offsets[n_items] = position
            n_items += 1
    offsets[n_items] = len(order)
    return offsets[: n_items + 1].copy()


@njit(cache=True, nogil=True)
def repeated(
    offsets: NDArray[np.int64], order: NDArray[np.int32], assessor: NDArray[np.int32], n_assessors: int, last: bool
) -> NDArray[np.bool_]:
    """Judgments that an earlier (or, with `last`, a later) one of the same assessor on the same item replaces."""
    # offsets (n_items + 1,) into order (m,), rows grouped by item; assessor (n,); returns (m,) in that order
    out = np.zeros(len(order), np.bool_)
    seen = np.full(n_assessors, -1, np.int64)
    for item in range(len(offsets) - 1):
        for position in range(offsets[item], offsets[item + 1]):
            a = assessor[order[position]]
            if seen[a] >= offsets[item]:
                out[seen[a] if last else position] = True
                if not last:
                    continue
            seen[a] = position
    return out


@njit(cache=True, nogil=True)
def without(
    order: NDArray[np.int32], offsets: NDArray[np.int64], out: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The order and the offsets of the items without the rows that are `out`; no item loses all of its rows."""
    # order, out (m,); offsets (n_items + 1,)
    kept, bounds = np.empty(len(order), np.int32), np.zeros(len(offsets), np.int64)
    n = 0
    for item in range(len(offsets) - 1):
        for position in range(offsets[item], offsets[item + 1]):
            if not out[position]:
                kept[n] = order[position]
                n += 1
        bounds[item + 1] = n
    return kept[:n].copy(), bounds


@njit(cache=True, nogil=True)
def deal_rows(
    shard: NDArray[np.int32], keep: NDArray[np.bool_], n_shards: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The rows to keep by shard, each shard's in order; where each shard's start."""
    # shard, keep (n,) -> (m,), (n_shards + 1,)
    bounds = np.zeros(n_shards + 1, np.int64)
    for row in range(len(shard)):
        if keep[row]:
            bounds[shard[row] + 1] += 1
    for number in range(n_shards):
        bounds[number + 1] += bounds[number]
    order, place = np.empty(bounds[-1], np.int32), bounds[:-1].copy()
    for row in range(len(shard)):
        if keep[row]:
            order[place[shard[row]]] = row
            place[shard[row]] += 1
    return order, bounds


@njit(cache=True, nogil=True)
def maybe_blank(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The rows whose text is empty or begins with what may be a blank; all others are none."""
    # offsets (n + 1,) int32 or int64 into data
    found = np.empty(len(offsets) - 1, np.int64)
    n = 0
    for row in range(len(offsets) - 1):
        start = offsets[row]
        if offsets[row + 1] == start or data[start] <= 32 or data[start] >= 128:
            found[n] = row
            n += 1
    return found[:n].copy()


@njit(cache=True, nogil=True)
def hash_text(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], words: NDArray[np.uint64], hashes: NDArray[np.uint64]
) -> None:
    """A 64-bit hash of each text, eight bytes at a time."""
    # offsets (n + 1,) int32 or int64 into data; words (len(data) - 7,) the eight bytes that start at every byte;
    # hashes (n,) is written
    n_words = uint64(len(words))
    for row in range(len(offsets) - 1):
        at, stop = uint64(offsets[row]), uint64(offsets[row + 1])
        h = (stop - at + uint64(1)) * uint64(0x9E3779B97F4A7C15)
        while at + uint64(8) <= stop:
            h = (h ^ words[at]) * uint64(0xFF51AFD7ED558CCD)
            h ^= h >> uint64(32)
            at += uint64(8)
        if at < stop:
            rest = uint64(0)
            if at < n_words:
                rest = words[at] & ((uint64(1) << (uint64(8) * (stop - at))) - uint64(1))
            else:  # too near the end of the buffer for a whole word
                shift = uint64(0)
                while at < stop:
                    rest |= uint64(data[at]) << shift
                    shift += uint64(8)
                    at += uint64(1)
            h = (h ^ rest) * uint64(0xFF51AFD7ED558CCD)
            h ^= h >> uint64(32)
        h *= uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> uint64(29))


@njit(cache=True, nogil=True)
def hash_numbers(numbers: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """A 64-bit hash of each number; no two numbers have the same."""
    for row in range(len(numbers)):
        h = uint64(numbers[row]) * uint64(0xFF51AFD7ED558CCD)
        h ^= h >> uint64(32)
        h *= uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> uint64(29))


@njit(cache=True, nogil=True)
def fill_table(
    hashes: NDArray[np.uint64],
    first: NDArray[np.int32],
    n_codes: int,
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
) -> None:
    """Put the codes that there are already into an empty table."""
    # keys, values (size,): size is a power of two; values are -1 where nothing is
    mask = uint64(len(keys) - 1)
    for code in range(n_codes):
        slot = hashes[first[code]] & mask
        while values[slot] >= 0:
            slot = (slot + uint64(1)) & mask
        keys[slot], values[slot] = hashes[first[code]], code


@njit(cache=True, nogil=True)
def code_hashes(
    hashes: NDArray[np.uint64],
    start: int,
    n_codes: int,
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
    codes: NDArray[np.int32],
    first: NDArray[np.int32],
) -> tuple[int, int]:
    """Number the hashes in order of first appearance until the table is half full; how far it came, and the codes."""
    # codes (n,) and first (n,), the row where each code appears first, are written
    mask, most = uint64(len(keys) - 1), len(keys) // 2
    for row in range(start, len(hashes)):
        h = hashes[row]
        slot = h & mask
        code = values[slot]
        while code >= 0 and keys[slot] != h:
            slot = (slot + uint64(1)) & mask
            code = values[slot]
        if code < 0:
            if n_codes == most:
                return row, n_codes
            keys[slot], values[slot], first[n_codes] = h, n_codes, row
            code = n_codes
            n_codes += 1
        codes[row] = code
    return len(hashes), n_codes


@njit(cache=True, nogil=True)
def same_texts(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    words: NDArray[np.uint64],
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> bool:
    """Whether every text is the one that its code stands for: no two texts had the same hash."""
    # codes (n,); starts, sizes (n_codes,) of the texts that the codes stand for
    n_words = uint64(len(words))
    for row in range(len(offsets) - 1):
        at, there = uint64(offsets[row]), uint64(starts[codes[row]])
        stop = uint64(offsets[row + 1])
        if uint64(sizes[codes[row]]) != stop - at:
            return False
        while at + uint64(8) <= stop:
            if words[at] != words[there]:
                return False
            at += uint64(8)
            there += uint64(8)
        if at < stop and at < n_words and there < n_words:
            if (words[at] ^ words[there]) & ((uint64(1) << (uint64(8) * (stop - at))) - uint64(1)):
                return False
            at = stop
        while at < stop:
            if data[at] != data[there]:
                return False
            at += uint64(1)
            there += uint64(1)
    return True
