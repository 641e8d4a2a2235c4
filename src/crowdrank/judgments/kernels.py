"""Encode ids, and sort judgments by query and document in linear time; references are in tests/judgments."""

from __future__ import annotations

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Codes, Integers

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


@njit(cache=True, nogil=True)
def group_rows(query: Codes, document: Codes, rows: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    """Return the rows in order of query and document, each by first appearance, and the start of each item.

    A counting sort by query, then one by document within each query, so that the data of a query stay in the cache.
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
    item_of = np.full(n_documents, -1, np.int32)  # latest item of each document
    n_items, start = 0, 0
    for code in range(n_queries):
        first_item, stop = n_items, ends[code]
        for place in range(start, stop):
            d = its_document[place]
            if item_of[d] < first_item:  # that item is of another query
                item_of[d] = n_items
                n_items += 1
            item[place] = item_of[d]
            offsets[item[place] + 1] += 1
        for number in range(first_item, n_items):
            offsets[number + 1] += offsets[number]
        # offsets[number] is used as the next free place of the item, and restored afterwards.
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
def repeated(offsets: Integers, order: Codes, assessor: Codes, n_assessors: int, last: bool) -> Booleans:
    """Return which judgments an earlier (with `last`: a later) one of the same assessor on the same item replaces."""
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
def without(order: Codes, offsets: Integers, out: Booleans) -> tuple[Codes, Integers]:
    """Return the order and offsets of the items without the rows in `out`; each item must keep a row."""
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
def sort_by_shard(shard: Codes, n_shards: int) -> tuple[Codes, Integers]:
    """Return the rows sorted by shard, in order within each shard, and the start of each shard."""
    # shard (n,) -> (n,), (n_shards + 1,)
    bounds = np.zeros(n_shards + 1, np.int64)
    for row in range(len(shard)):
        bounds[shard[row] + 1] += 1
    for number in range(n_shards):
        bounds[number + 1] += bounds[number]
    order, place = np.empty(len(shard), np.int32), bounds[:-1].copy()
    for row in range(len(shard)):
        order[place[shard[row]]] = row
        place[shard[row]] += 1
    return order, bounds


@njit(cache=True, nogil=True)
def first_rows(codes: Codes, n_codes: int) -> Integers:
    """Return the first row with each code, or -1; the last entry is that of code -1."""
    # codes (n,); returns (n_codes + 1,)
    first = np.full(n_codes + 1, -1, np.int64)
    for row in range(len(codes)):
        if first[codes[row]] < 0:
            first[codes[row]] = row
    return first


@njit(cache=True, nogil=True)
def maybe_unusual(offsets: Integers, data: Bytes, words: Words, most: int) -> Integers:
    """Return the first `most` rows whose text may have another usual form (see `ids.unusual_forms`).

    Such text begins with a space, a zero or a minus, ends in a space or in a point and zeros, or is not ASCII.
    """
    rows, n = np.empty(most, np.int64), 0
    high_bits, n_words = uint64(0x8080808080808080), uint64(len(words))
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        if start == stop:
            continue
        begin, last = data[start], stop - 1
        while last > start and data[last] == 48:
            last -= 1
        unusual = begin <= 32 or begin == 45 or (begin == 48 and stop - start > 1)
        unusual |= data[stop - 1] <= 32 or (data[last] == 46 and last < stop - 1)
        at = uint64(start)
        while not unusual and at + uint64(8) <= uint64(stop) and at < n_words:
            unusual = (words[at] & high_bits) != uint64(0)
            at += uint64(8)
        while not unusual and at < uint64(stop):
            unusual = data[at] >= 128
            at += uint64(1)
        if unusual and n < most:
            rows[n] = row
            n += 1
    return rows[:n].copy()


@njit(cache=True, nogil=True)
def hash_text(offsets: Integers, data: Bytes, words: Words, hashes: Words) -> None:
    """Compute a 64-bit hash of each text, eight bytes at a time."""
    # offsets (n + 1,) int32 or int64 into data; words (len(data) - 7,): the 8-byte word at every byte;
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
def hash_numbers(numbers: Integers, hashes: Words) -> None:
    """Compute a 64-bit hash of each number; different numbers have different hashes."""
    for row in range(len(numbers)):
        h = uint64(numbers[row]) * uint64(0xFF51AFD7ED558CCD)
        h ^= h >> uint64(32)
        h *= uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> uint64(29))


@njit(cache=True, nogil=True)
def fill_table(
    hashes: Words,
    first: Codes,
    n_codes: int,
    keys: Words,
    values: Codes,
) -> None:
    """Put the existing codes into an empty hash table."""
    # keys, values (size,): size is a power of two; values are -1 in empty slots
    mask = uint64(len(keys) - 1)
    for code in range(n_codes):
        slot = hashes[first[code]] & mask
        while values[slot] >= 0:
            slot = (slot + uint64(1)) & mask
        keys[slot], values[slot] = hashes[first[code]], code


@njit(cache=True, nogil=True)
def code_hashes(
    hashes: Words,
    start: int,
    n_codes: int,
    keys: Words,
    values: Codes,
    codes: Codes,
    first: Codes,
) -> tuple[int, int]:
    """Number the hashes in order of first appearance until the table is half full.

    Returns:
        The first row that is not coded, and the number of codes.

    """
    # codes (n,) and first (n,), the first row of each code, are written
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
    offsets: Integers,
    data: Bytes,
    words: Words,
    codes: Codes,
    starts: Integers,
    sizes: Integers,
) -> bool:
    """Return whether every text equals the text of its code, that is, whether no two texts have the same hash."""
    # codes (n,); starts, sizes (n_codes,) of the texts of the codes
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
