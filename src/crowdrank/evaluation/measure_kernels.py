"""Kernels of the measures; with ties, each value is the exact expectation over random orders of equal scores.

Documents are ordered by query and rank; `offsets` (n_queries + 1,) are the positions at which the queries begin, and
`new_group` (n_documents,) is True where a group of equal scores begins. If ties were broken before, every document is
a group of its own.
"""

from __future__ import annotations

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Floats, Integers


@njit(cache=True, nogil=True)
def sort_descending(values: Floats, rows: Integers) -> int:
    """Sort `values` in place, largest first, and `rows` with them; return the number of inversions.

    A stable merge sort, because numba's sort does not count inversions and takes seconds to compile.
    """
    inversions = 0
    spare, spare_rows = np.empty_like(values), np.empty_like(rows)
    width = 1
    while width < values.size:
        for left in range(0, values.size, 2 * width):
            middle, right = min(left + width, values.size), min(left + 2 * width, values.size)
            i, j = left, middle
            for k in range(left, right):
                if i < middle and (j >= right or values[i] >= values[j]):
                    spare[k], spare_rows[k] = values[i], rows[i]
                    i += 1
                else:
                    spare[k], spare_rows[k] = values[j], rows[j]
                    inversions += middle - i
                    j += 1
        for k in range(values.size):  # an assignment of slices takes seconds to compile
            values[k], rows[k] = spare[k], spare_rows[k]
        width *= 2
    return inversions


@njit(cache=True, nogil=True)
def rank_order(rows: Integers, query: Integers, scores: Floats, n_queries: int) -> Integers:
    """Return the rows ordered by query and descending score; equal scores keep the order of `rows`."""
    offsets = np.zeros(n_queries + 1, dtype=np.int64)
    for row in rows:
        offsets[query[row] + 1] += 1
    for q in range(n_queries):
        offsets[q + 1] += offsets[q]
    place = offsets.copy()
    order = np.empty(rows.size, dtype=np.int64)
    descending = np.empty(rows.size)
    for row in rows:
        order[place[query[row]]] = row
        descending[place[query[row]]] = scores[row]
        place[query[row]] += 1
    for q in range(n_queries):
        sort_descending(descending[offsets[q] : offsets[q + 1]], order[offsets[q] : offsets[q + 1]])
    return order


@njit(cache=True, nogil=True)
def _group_end(new_group: Booleans, start: int, end: int) -> int:
    """Return the position after the last document of the tie group that begins at `start`."""
    position = start + 1
    while position < end and not new_group[position]:
        position += 1
    return position


@njit(cache=True, nogil=True)
def discounted_gain(
    gains: Floats,  # (n_documents,)
    new_group: Booleans,  # (n_documents,)
    offsets: Integers,  # (n_queries + 1,)
    cumulative_discounts: Floats,  # (longest list + 1,): sum of the discounts of the first ranks
    cutoff: int,
) -> Floats:
    """Return the expected DCG: the mean gain of each tie group times the sum of its discounts up to the cutoff."""
    values = np.zeros(offsets.size - 1)
    for query in range(values.size):
        begin, end = offsets[query], offsets[query + 1]
        last = min(end, begin + cutoff)
        start = begin
        while start < last:
            stop = _group_end(new_group, start, end)
            covered = cumulative_discounts[min(stop, last) - begin] - cumulative_discounts[start - begin]
            values[query] += gains[start:stop].sum() / (stop - start) * covered
            start = stop
    return values


@njit(cache=True, nogil=True)
def precision_sum(relevance: Floats, new_group: Booleans, offsets: Integers, cutoff: int) -> Floats:
    """Return the expected sum of the precisions at the relevant documents; AP is this sum over their number.

    Documents are relevant independently, with probability `relevance` (0 or 1 if it is known). In a group of n
    documents, with a sum s of probabilities and q of their squares, that follows a sum S, position i has a relevant
    document with probability s/n, and together with another given position with probability (s^2 - q) / (n(n-1)).
    """
    values = np.zeros(offsets.size - 1)
    for query in range(values.size):
        begin, end = offsets[query], offsets[query + 1]
        last = min(end, begin + cutoff)
        above = 0.0
        start = begin
        while start < last:
            stop = _group_end(new_group, start, end)
            group = relevance[start:stop]
            size, total = stop - start, group.sum()
            both = (total * total - (group * group).sum()) / (size * (size - 1)) if size > 1 else 0.0
            if total > 0:
                for position in range(min(stop, last) - start):
                    rank = start - begin + position + 1
                    values[query] += (total / size * (above + 1) + position * both) / rank
            above += total
            start = stop
    return values


@njit(cache=True, nogil=True)
def reciprocal_rank(relevant: Booleans, new_group: Booleans, offsets: Integers, cutoff: int) -> Floats:
    """Return the expected reciprocal rank of the first relevant document.

    In the first group with relevant documents (r of n), the first of them is at position i with probability
    C(n-i, r-1) / C(n, r): r/n for i = 1, multiplied by (n-i-r+1) / (n-i) from i to i+1.
    """
    values = np.zeros(offsets.size - 1)
    for query in range(values.size):
        begin, end = offsets[query], offsets[query + 1]
        last = min(end, begin + cutoff)
        start = begin
        while start < last:
            stop = _group_end(new_group, start, end)
            size, hits = stop - start, relevant[start:stop].sum()
            if hits > 0:
                probability = hits / size
                for position in range(1, min(size - hits + 1, last - start) + 1):
                    values[query] += probability / (start - begin + position)
                    if position < size:
                        probability *= (size - position - hits + 1) / (size - position)
                break
            start = stop
    return values


@njit(cache=True, nogil=True)
def expected_reciprocal_rank(stop_probabilities: Floats, new_group: Booleans, offsets: Integers, cutoff: int) -> Floats:
    """Return ERR: the expected reciprocal rank at which a reader stops, given `stop_probabilities` by document.

    `passed[m]` is the probability that the reader passes the first m documents of a group, averaged over its orders:
    the elementary symmetric polynomial of 1 - stops divided by its number of terms, updated document by document.
    """
    values = np.zeros(offsets.size - 1)
    for query in range(values.size):
        begin, end = offsets[query], offsets[query + 1]
        last = min(end, begin + cutoff)
        reached = 1.0
        start = begin
        while start < last:
            stop = _group_end(new_group, start, end)
            depth = min(stop, last) - start
            passed = np.zeros(depth + 1)
            passed[0] = 1.0
            for document in range(1, stop - start + 1):
                passes = 1.0 - stop_probabilities[start + document - 1]
                for m in range(min(document, depth), 0, -1):
                    passed[m] = ((document - m) * passed[m] + m * passes * passed[m - 1]) / document
            for m in range(depth):
                values[query] += reached * (passed[m] - passed[m + 1]) / (start - begin + m + 1)
            reached *= passed[depth]
            start = stop
    return values


@njit(cache=True, nogil=True)
def _equal_pairs(values: Floats) -> int:
    """Return the number of pairs of equal values in a sorted array."""
    pairs, run = 0, 0
    for i in range(1, values.size):
        run = run + 1 if values[i] == values[i - 1] else 0
        pairs += run
    return pairs


@njit(cache=True, nogil=True)
def pair_counts(scores: Floats, grades: Floats, offsets: Integers) -> Integers:
    """Count pairs per query: concordant minus discordant, all, of equal score, of equal grade; (n_queries, 4).

    Documents must be ordered by descending score. Knight's method, O(n log n): documents of equal score are ordered by
    descending grade; the inversions of sorting all by grade are then the discordant pairs.
    """
    counts = np.zeros((offsets.size - 1, 4), dtype=np.int64)
    for query in range(counts.shape[0]):
        begin, end = offsets[query], offsets[query + 1]
        descending = grades[begin:end].copy()
        same_both = 0
        start = begin
        while start < end:
            stop = start + 1
            while stop < end and scores[stop] == scores[start]:
                stop += 1
            if stop > start + 1:
                group = descending[start - begin : stop - begin]
                sort_descending(group, np.arange(group.size))
                same_both += _equal_pairs(group)
            start = stop
        size = end - begin
        discordant = sort_descending(descending, np.arange(size))
        same_score, same_grade = _equal_pairs(scores[begin:end]), _equal_pairs(descending)
        counts[query, 1] = size * (size - 1) // 2
        counts[query, 2] = same_score
        counts[query, 3] = same_grade
        counts[query, 0] = counts[query, 1] - same_score - same_grade + same_both - 2 * discordant
    return counts
