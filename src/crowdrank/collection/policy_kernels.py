"""Compiled loops: assignment of requests, expected gains at the top, and interpolation."""

from __future__ import annotations

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Integers

AllowedAssessors = tuple[Integers, Codes]
"""Offsets of pairs, and the assessors who may judge each."""
FloatPair = tuple[float, float]
"""Mean and standard deviation, or the first value and the step of an axis of a grid."""
Grid = tuple[FloatPair, FloatPair]
NO_ASSESSOR = -1
"""Value in place of an assessor for a request that nobody may answer."""
TOO_EXPENSIVE = -2
"""Value in place of an assessor for a request that nobody answers for the money that is left."""


@njit(cache=True, nogil=True)
def assign_requests(
    pair: Integers,
    item: Integers,
    judged: tuple[Integers, Codes, Integers],
    allowed: AllowedAssessors,
    score: Floats,
    assessors: tuple[Floats, Integers, Integers],
    max_load: int,
    money: float,
    requests: tuple[Integers, Integers, Integers],
    first: int,
    chosen: Integers,
) -> float:
    """Assign each request to the allowed assessor with the highest score per price, and return the money left.

    Of equal assessors the one with the lowest load is chosen, then by `tie_rank`. Nobody gets a pair that they judged,
    or that was requested from them (linked lists `requests`).
    """
    # pair, item (m,): item -1 without judgments
    offsets, judged_by, roster_index = judged  # roster_index (n assessors of the judgments,)
    allowed_offsets, allowed_assessor = allowed  # allowed_offsets (n_pairs + 1,), or (0,) if all are allowed
    # score (1 or m, n_assessors)
    price, load, tie_rank = assessors  # (n_assessors,) each
    # last (n_pairs,); previous, assignee (number of requests,), of which this block begins at `first`; chosen (m,)
    last, previous, assignee = requests
    n_assessors = len(price)
    everyone = len(allowed_offsets) == 0
    for request in range(len(pair)):
        p, best, too_expensive, best_value = pair[request], -1, False, 0.0
        row = request if len(score) > 1 else 0
        start = 0 if everyone else allowed_offsets[p]
        stop = n_assessors if everyone else allowed_offsets[p + 1]
        for candidate in range(start, stop):
            a = candidate if everyone else allowed_assessor[candidate]
            if load[a] >= max_load:
                continue
            value = score[row, a] / max(price[a], 1e-12)
            # Before the slow part, which checks who judged the pair already.
            if best >= 0 and (
                value < best_value
                or (
                    value == best_value
                    and (load[a] > load[best] or (load[a] == load[best] and tie_rank[a] >= tie_rank[best]))
                )
            ):
                continue
            is_free = True
            if item[request] >= 0:
                for j in range(offsets[item[request]], offsets[item[request] + 1]):
                    if roster_index[judged_by[j]] == a:
                        is_free = False
                        break
            earlier = last[p]
            while is_free and earlier >= 0:
                is_free = assignee[earlier] != a
                earlier = previous[earlier]
            if not is_free:
                continue
            if price[a] > money + 1e-9:
                too_expensive = True
                continue
            best, best_value = a, value
        if best < 0:
            chosen[request] = TOO_EXPENSIVE if too_expensive else NO_ASSESSOR
            continue
        chosen[request] = best
        money -= price[best]
        load[best] += 1
        previous[first + request] = last[p]
        assignee[first + request] = best
        last[p] = first + request
    return money


@njit(cache=True, nogil=True)
def top_gains(
    query_offsets: Integers,
    chance: Floats,
    outcome: Floats,
    k: int,
    discount: Floats,
    least_dcg: float,
    increase: Floats,
) -> None:
    """Compute the expected relative increase of a query's DCG@k if the gain of each document became known.

    The gain of a document becomes one of its outcomes, each with its `chance`, instead of their mean, and the query is
    ranked again. Only the k + 1 best documents matter for the new rank. A table of one column holds for all documents.
    The increase is relative to the DCG@k that is expected now, or to `least_dcg` if that is greater.
    """
    # chance and outcome (n_outcomes, 1 or n), documents ordered by query -> increase (n,)
    n, n_outcomes = len(increase), len(chance)
    own_chance, own_outcome = int(chance.shape[1] > 1), int(outcome.shape[1] > 1)
    score = np.zeros(n)
    for outcome_index in range(n_outcomes):
        for d in range(n):
            score[d] += chance[outcome_index, d * own_chance] * outcome[outcome_index, d * own_outcome]
    top, new_rank = np.empty(k + 1, np.int64), np.empty(n_outcomes, np.int64)
    above, below, higher = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    for query in range(len(query_offsets) - 1):
        start, stop = query_offsets[query], query_offsets[query + 1]
        n_top = _find_top(score, start, stop, top)
        n_ranked = min(n_top, k)
        # DCG of the documents before each rank: at their ranks (above), one rank lower and one rank higher.
        for place in range(n_ranked):
            value = score[top[place]]
            above[place + 1] = above[place] + discount[place] * value
            below[place + 1] = below[place] + (discount[place + 1] * value if place + 1 < k else 0.0)
            higher[place + 1] = higher[place] + (discount[place - 1] * value if place > 0 else 0.0)
        scale = 1 / max(above[n_ranked], least_dcg)
        least, next_score = score[top[n_ranked - 1]], score[top[k]] if n_top > k else -np.inf
        if not own_outcome:
            for outcome_index in range(n_outcomes):
                new_rank[outcome_index] = _count_higher(outcome[outcome_index, 0], score, top, n_ranked)
        for d in range(start, stop):
            rank = -1
            if score[d] >= least:
                for place in range(n_ranked):
                    if top[place] == d:
                        rank = place
            c, v, expected = d * own_chance, d * own_outcome, 0.0
            for outcome_index in range(n_outcomes):
                value = outcome[outcome_index, v]
                if rank < 0 and value < least:
                    continue  # it stays below rank k
                at = _count_higher(value, score, top, n_ranked) if own_outcome else new_rank[outcome_index]
                if rank < 0:  # the documents at this rank and below move down
                    change = discount[at] * value + below[n_ranked] - below[at] - (above[n_ranked] - above[at])
                elif at <= rank:  # it moves up, the documents between move down
                    change = discount[at] * value - discount[rank] * score[d]
                    change += below[rank] - below[at] - (above[rank] - above[at])
                else:  # it moves down, the documents between move up; below rank k the next best document enters
                    last = max(value, next_score) if at == k else value
                    change = discount[at - 1] * last - discount[rank] * score[d]
                    change += higher[at] - higher[rank + 1] - (above[at] - above[rank + 1])
                expected += chance[outcome_index, c] * change
            increase[d] = max(expected, 0.0) * scale


@njit(cache=True, nogil=True)
def _count_higher(value: float, score: Floats, top: Integers, n_ranked: int) -> int:
    """Return the number of top documents with a higher score."""
    at = n_ranked
    while at > 0 and value >= score[top[at - 1]]:
        at -= 1
    return at


@njit(cache=True, nogil=True)
def _find_top(score: Floats, start: int, stop: int, top: Integers) -> int:
    """Fill `top` with the best documents from start to stop in order, and return their number."""
    n_top, most = 0, len(top)
    for d in range(start, stop):
        at = n_top
        while at > 0 and score[d] > score[top[at - 1]]:
            at -= 1
        if at >= most:
            continue
        n_top = min(n_top + 1, most)
        for place in range(n_top - 1, at, -1):
            top[place] = top[place - 1]
        top[at] = d
    return n_top


@njit(cache=True, nogil=True)
def allowed_information(
    posterior: Floats, likelihood: Floats, noise: Floats, pair: Integers, allowed: AllowedAssessors, information: Floats
) -> None:
    """Compute the mutual information of a pair's state and the answer of each assessor who may judge it.

    It is the entropy of the answer minus the expected entropy of the answer in a known state (`noise`).
    """
    # posterior (n, n_states), likelihood (n_assessors, n_answers, n_states), noise (n_assessors, n_states),
    # pair (n,) -> information (n, n_assessors); cells of other assessors stay unchanged
    _, n_answers, n_states = likelihood.shape
    allowed_offsets, allowed_assessor = allowed
    for row in range(len(pair)):
        for a in allowed_assessor[allowed_offsets[pair[row]] : allowed_offsets[pair[row] + 1]]:
            total = 0.0
            for s in range(n_states):
                total -= posterior[row, s] * noise[a, s]
            for answer in range(n_answers):
                share = 0.0
                for s in range(n_states):
                    share += posterior[row, s] * likelihood[a, answer, s]
                if share > 0.0:
                    total -= share * np.log(share)
            information[row, a] = max(total, 0.0)


@njit(cache=True, nogil=True)
def interpolate_bilinear(
    row: Integers, x: Floats, y: Floats, other: FloatPair, grid: Grid, table: Floats, values: Floats
) -> None:
    """Interpolate a tabulated function at the points (x, y) of rows, or at `other` for rows below 0.

    Each axis of the grid has a first value and a step; points outside of the grid are moved to its edge.
    """
    # row (n,), x, y (n_rows,), table (n_x, n_y) -> values (n,)
    grid_x, grid_y = grid
    per_x, per_y = 1.0 / grid_x[1], 1.0 / grid_y[1]
    last_x, last_y = table.shape[0] - 1.000001, table.shape[1] - 1.000001
    for place in range(len(row)):
        at = row[place]
        u = min(max(((x[at] if at >= 0 else other[0]) - grid_x[0]) * per_x, 0.0), last_x)
        v = min(max(((y[at] if at >= 0 else other[1]) - grid_y[0]) * per_y, 0.0), last_y)
        i, j = int(u), int(v)
        u -= i
        v -= j
        low = (1 - v) * table[i, j] + v * table[i, j + 1]
        high = (1 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
        values[place] = (1 - u) * low + u * high


@njit(cache=True, nogil=True)
def interpolate_at_points(
    row: Integers,
    mean: Floats,
    sd: Floats,
    other: FloatPair,
    points: Floats,
    grid: FloatPair,
    table: Floats,
    values: Floats,
) -> None:
    """Interpolate a tabulated function at mean + sd * point of rows; `other` has mean and sd for rows below 0.

    The grid has a first value and a step; points outside of it are moved to its edge.
    """
    # row (n,), mean, sd (n_rows,), points (n_points,), table (n_steps,) -> values (n_points, n)
    per_step, last = 1.0 / grid[1], len(table) - 1.000001
    for place in range(len(row)):
        at = row[place]
        middle, width = (mean[at], sd[at]) if at >= 0 else other
        for p in range(len(points)):
            u = min(max((middle + width * points[p] - grid[0]) * per_step, 0.0), last)
            i = int(u)
            values[p, place] = table[i] + (u - i) * (table[i + 1] - table[i])
