"""Encode ids, and sort judgments by query and document in linear time; tests compare with simple versions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Codes, Grades, Integers

Bytes = NDArray[np.uint8]
"""Type of the UTF-8 bytes of all texts of an Arrow array, one after the other."""
Words = NDArray[np.uint64]
"""Unsigned 64-bit integers: hashes, or the 8-byte word that starts at each byte of a text buffer."""


def _group_rows(query_codes: Codes, document_codes: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    cell = query_codes.astype(np.int64) * n_documents + document_codes
    by_cell = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.append(True, cell[by_cell[1:]] != cell[by_cell[:-1]])[: len(cell)])
    sizes, first = np.diff(np.append(starts, len(cell))), by_cell[starts]
    in_order = np.lexsort((first, query_codes[first]))
    offsets = np.concatenate([[0], np.cumsum(sizes[in_order])])
    position = np.arange(len(cell)) + np.repeat(starts[in_order] - offsets[:-1], sizes[in_order])
    return by_cell[position].astype(np.int32), offsets


@njit(nogil=True, numpy=_group_rows)
def group_rows(query_codes: Codes, document_codes: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    """Group rows by item (query-document pair); return the row order and the offset of each item in it.

    Queries are in order of their codes, the documents of a query in order of first appearance. It is a counting sort
    by query, then by document within each query, so that the data of a query stay in the CPU cache.
    """
    # query_codes, document_codes (n,); returns (n,) and (n_items + 1,)
    n = len(query_codes)
    ends = np.zeros(n_queries + 1, np.int64)
    for row in range(n):
        ends[query_codes[row] + 1] += 1
    for code in range(n_queries):
        ends[code + 1] += ends[code]
    by_query, document_by_query = np.empty(n, np.int32), np.empty(n, np.int32)
    for row in range(n):
        position = ends[query_codes[row]]
        by_query[position], document_by_query[position] = row, document_codes[row]
        ends[query_codes[row]] += 1
    order, item = np.empty(n, np.int32), np.empty(n, np.int32)
    offsets = np.zeros(n + 1, np.int64)
    latest_item = np.full(n_documents, -1, np.int32)  # latest item of each document
    n_items, start = 0, 0
    for code in range(n_queries):
        first_item, stop = n_items, ends[code]
        for position in range(start, stop):
            d = document_by_query[position]
            if latest_item[d] < first_item:  # that item is of another query
                latest_item[d] = n_items
                n_items += 1
            item[position] = latest_item[d]
            offsets[item[position] + 1] += 1
        for item_code in range(first_item, n_items):
            offsets[item_code + 1] += offsets[item_code]
        # offsets[item_code] is used as the next free position of the item, and restored afterwards.
        for position in range(start, stop):
            order[offsets[item[position]]] = by_query[position]
            offsets[item[position]] += 1
        for item_code in range(n_items - 1, first_item - 1, -1):
            offsets[item_code + 1] = offsets[item_code]
        if n_items > first_item:
            offsets[first_item] = start
        start = stop
    return order, offsets[: n_items + 1].copy()


def _find_repeats(
    offsets: Integers, assessor: Codes, grade: Grades, n_assessors: int, keep_last: bool
) -> tuple[Booleans, Integers]:
    cell = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * n_assessors + assessor
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order[1:]] == cell[order[:-1]])
    previous, repeated = order[again], order[again + 1]
    is_repeat = np.zeros(len(assessor), np.bool_)
    is_repeat[previous if keep_last else repeated] = True
    equal = repeated[grade[previous] == grade[repeated]]
    counts = [np.bincount(assessor[rows], minlength=n_assessors) for rows in (repeated, equal)]
    return is_repeat, np.stack(counts, axis=1)


@njit(nogil=True)
def group_by_code(codes: Codes, order: Codes, ends: Integers) -> bool:
    """Write a stable order of rows by code and the end of the rows of each code, by a counting sort.

    Returns:
        Whether all codes occur and are numbered in order of first appearance; if not, nothing is sorted.

    """
    # codes, order (n,); ends (n_codes + 1,) zeros
    n_seen = 0
    for row in range(len(codes)):
        code = codes[row]
        if code > n_seen:
            return False
        n_seen += code == n_seen
        ends[code + 1] += 1
    if n_seen < len(ends) - 1:
        return False
    for code in range(n_seen):
        ends[code + 1] += ends[code]
    for row in range(len(codes)):
        code = codes[row]
        order[ends[code]] = row
        ends[code] += 1
    return True


@njit(nogil=True, numpy=_find_repeats)
def find_repeats(
    offsets: Integers, assessor: Codes, grade: Grades, n_assessors: int, keep_last: bool
) -> tuple[Booleans, Integers]:
    """Find judgments to drop where an assessor judged an item (query-document pair) several times.

    Returns:
        Whether to drop each judgment (n,): all but the first, or with `keep_last` all but the last; and by assessor the
        number of repeated judgments, and of those equal to the previous one.

    """
    # offsets (n_items + 1,); assessor, grade (n,) in the order of the items
    is_repeat, counts = np.zeros(len(assessor), np.bool_), np.zeros((n_assessors, 2), np.int64)
    seen_position = np.full(n_assessors, -1, np.int64)
    for item in range(len(offsets) - 1):
        for position in range(offsets[item], offsets[item + 1]):
            a = assessor[position]
            previous = seen_position[a]
            if previous >= offsets[item]:
                is_repeat[previous if keep_last else position] = True
                counts[a, 0] += 1
                counts[a, 1] += grade[previous] == grade[position]
            seen_position[a] = position
    return is_repeat, counts


def _first_rows(codes: Codes, n_codes: int) -> Integers:
    first = np.full(n_codes + 1, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several values for one place the last stays
    return first


@njit(nogil=True, numpy=_first_rows)
def first_rows(codes: Codes, n_codes: int) -> Integers:
    """Return the first row with each code, or -1 if there is none; the last entry is for code -1."""
    # codes (n,); returns (n_codes + 1,)
    first = np.full(n_codes + 1, -1, np.int64)
    for row in range(len(codes)):
        if first[codes[row]] < 0:
            first[codes[row]] = row
    return first


def _find_unusual_texts(offsets: Integers, text_bytes: Bytes, is_ascii: bool, max_rows: int) -> Integers:
    rows = np.flatnonzero(np.diff(offsets))
    start, last = offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64) - 1
    if not len(rows):
        return rows
    # the last byte up to each byte that is not a zero
    point = np.maximum.accumulate(np.where(text_bytes != 48, np.arange(len(text_bytes)), 0))[last]
    begin, end = text_bytes[start], text_bytes[last]
    unusual = (begin <= 32) | (begin == 45) | ((begin == 48) & (last > start)) | (end <= 32)
    unusual |= (point >= start) & (point < last) & (text_bytes[point] == 46)
    if not is_ascii:
        n_before = np.concatenate([[0], np.cumsum(text_bytes >= 128)])
        unusual |= n_before[last + 1] > n_before[start]
    found: Integers = rows[unusual][:max_rows]
    return found


@njit(nogil=True, numpy=_find_unusual_texts)
def find_unusual_texts(offsets: Integers, text_bytes: Bytes, is_ascii: bool, max_rows: int) -> Integers:
    """Return the first `max_rows` rows whose text may differ from its usual form (see `ids.unusual_forms`).

    Such text begins with a space, a zero or a minus, ends in a space or in a point and zeros, or is not ASCII;
    `is_ascii` tells that all bytes are.
    """
    rows, n = np.empty(max_rows, np.int64), 0
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        if start == stop:
            continue
        begin, last = text_bytes[start], stop - 1
        while last > start and text_bytes[last] == 48:
            last -= 1
        unusual = begin <= 32 or begin == 45 or (begin == 48 and stop - start > 1)
        unusual |= text_bytes[stop - 1] <= 32 or (text_bytes[last] == 46 and last < stop - 1)
        if not is_ascii:
            for at in range(start, stop):
                unusual |= text_bytes[at] >= 128
        if unusual and n < max_rows:
            rows[n] = row
            n += 1
    return rows[:n].copy()


@njit(nogil=True)
def hash_text(offsets: Integers, text_bytes: Bytes, words: Words, hashes: Words) -> None:
    """Write a 64-bit hash of each text to `hashes`."""
    # offsets (n + 1,) int32 or int64 into text_bytes; words (len(text_bytes) - 7,): the 8-byte word at every byte;
    # hashes (n,) is written
    n_words = np.uint64(len(words))
    for row in range(len(offsets) - 1):
        at, stop = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        h = (stop - at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        while at + np.uint64(8) <= stop:
            h = (h ^ words[at]) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
            at += np.uint64(8)
        if at < stop:
            rest = np.uint64(0)
            if at < n_words:
                rest = words[at] & ((np.uint64(1) << (np.uint64(8) * (stop - at))) - np.uint64(1))
            else:  # too near the end of the buffer for a whole word
                shift = np.uint64(0)
                while at < stop:
                    rest |= np.uint64(text_bytes[at]) << shift
                    shift += np.uint64(8)
                    at += np.uint64(1)
            h = (h ^ rest) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> np.uint64(29))


@njit(nogil=True)
def hash_numbers(numbers: Integers, hashes: Words) -> None:
    """Write a 64-bit hash of each number to `hashes`; different numbers have different hashes."""
    for row in range(len(numbers)):
        h = np.uint64(numbers[row]) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> np.uint64(29))


@njit(nogil=True)
def encode_numbers(numbers: Integers, lowest: int, n_codes: int, table: Codes, codes: Codes, distinct: Integers) -> int:
    """Assign codes to numbers in order of first appearance, with a table of all numbers in their range.

    Returns:
        The number of codes.

    """
    # table (highest - lowest + 1,) has the codes so far, or -1; codes (n,) and distinct (n_codes or more,) are written
    for row in range(len(numbers)):
        place = numbers[row] - lowest
        code = table[place]
        if code < 0:
            code = np.int32(n_codes)
            table[place] = code
            distinct[n_codes] = numbers[row]
            n_codes += 1
        codes[row] = code
    return n_codes


@njit(nogil=True)
def fill_hash_table(hashes: Words, first_row: Codes, n_codes: int, table_hashes: Words, table_codes: Codes) -> None:
    """Insert all codes assigned so far into an empty hash table."""
    # table_hashes, table_codes (size,): size is a power of two; table_codes are -1 in empty slots
    mask = np.uint64(len(table_hashes) - 1)
    for code in range(n_codes):
        slot = hashes[first_row[code]] & mask
        while table_codes[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table_hashes[slot], table_codes[slot] = hashes[first_row[code]], code


@njit(nogil=True)
def encode_hashes(
    hashes: Words, start_row: int, n_codes: int, table_hashes: Words, table_codes: Codes, codes: Codes, first_row: Codes
) -> tuple[int, int]:
    """Assign codes to hashes in order of first appearance, and stop when the hash table is half full.

    Returns:
        The first row without a code (`len(hashes)` if all rows have one), and the number of codes.

    """
    # codes (n,) and first_row (n,), the first row of each code, are written
    mask, max_codes = np.uint64(len(table_hashes) - 1), len(table_hashes) // 2
    for row in range(start_row, len(hashes)):
        h = hashes[row]
        slot = h & mask
        code = table_codes[slot]
        while code >= 0 and table_hashes[slot] != h:
            slot = (slot + np.uint64(1)) & mask
            code = table_codes[slot]
        if code < 0:
            if n_codes == max_codes:
                return row, n_codes
            table_hashes[slot], table_codes[slot], first_row[n_codes] = h, n_codes, row
            code = n_codes
            n_codes += 1
        codes[row] = code
    return len(hashes), n_codes


@njit(nogil=True)
def match_code_texts(
    offsets: Integers, text_bytes: Bytes, words: Words, codes: Codes, code_starts: Integers, code_sizes: Integers
) -> bool:
    """Return whether every text equals the first text with its code, so that no two texts share a hash."""
    # codes (n,); code_starts, code_sizes (n_codes,): position in text_bytes and length of the first text of each code
    n_words = np.uint64(len(words))
    for row in range(len(offsets) - 1):
        at, there = np.uint64(offsets[row]), np.uint64(code_starts[codes[row]])
        stop = np.uint64(offsets[row + 1])
        if np.uint64(code_sizes[codes[row]]) != stop - at:
            return False
        while at + np.uint64(8) <= stop:
            if words[at] != words[there]:
                return False
            at += np.uint64(8)
            there += np.uint64(8)
        if at < stop and at < n_words and there < n_words:
            if (words[at] ^ words[there]) & ((np.uint64(1) << (np.uint64(8) * (stop - at))) - np.uint64(1)):
                return False
            at = stop
        while at < stop:
            if text_bytes[at] != text_bytes[there]:
                return False
            at += np.uint64(1)
            there += np.uint64(1)
    return True
