"""Who gets which request, and what a label may change at the top. Each has an obvious NumPy reference in tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit

GIVEN, NOBODY, TOO_DEAR = 0, 1, 2
"""How the wish for a label ended."""


@njit(cache=True, nogil=True)
def allot(
    pair: NDArray[np.int64],
    item: NDArray[np.int64],
    offsets: NDArray[np.int64],
    judged_by: NDArray[np.int32],
    place: NDArray[np.int64],
    allowed_offsets: NDArray[np.int64],
    allowed: NDArray[np.int32],
    merit: NDArray[np.float64],
    price: NDArray[np.float64],
    load: NDArray[np.int64],
    most: int,
    money: float,
    turn: NDArray[np.int64],
    last: NDArray[np.int64],
    before: NDArray[np.int64],
    given: NDArray[np.int64],
    first: int,
    chosen: NDArray[np.int64],
    ended: NDArray[np.int8],
) -> float:
    """For each wish, in order, the assessor of the highest merit per price who may and can; what money is left.

    Nobody judges a pair twice: neither one judged already (`item`, `offsets`, `judged_by`, whose roster places are in
    `place`), nor one given in this round (`last` wish of each pair, the wish `before` it, and to whom it was `given`).
    Of equals the one with the least to do (`load`), then by `turn`. Merit is one row for all wishes, or one for each.
    """
    # pair, item (m,): item -1 where nothing is judged; allowed_offsets (n_pairs + 1,) or (0,) where all are allowed
    # merit (1 or m, n_assessors); price, load, turn (n_assessors,); last (n_pairs,), before, given (all wishes,)
    n_assessors = len(price)
    everyone = len(allowed_offsets) == 0
    for wish in range(len(pair)):
        p, best, dear, most_wanted = pair[wish], -1, False, 0.0
        row = wish if len(merit) > 1 else 0
        start = 0 if everyone else allowed_offsets[p]
        stop = n_assessors if everyone else allowed_offsets[p + 1]
        for candidate in range(start, stop):
            a = candidate if everyone else allowed[candidate]
            if load[a] >= most:
                continue
            mine = merit[row, a] / max(price[a], 1e-12)
            # Before the slow part, which asks who has judged the pair already.
            if best >= 0 and (
                mine < most_wanted
                or (mine == most_wanted and (load[a] > load[best] or (load[a] == load[best] and turn[a] >= turn[best])))
            ):
                continue
            free = True
            if item[wish] >= 0:
                for j in range(offsets[item[wish]], offsets[item[wish] + 1]):
                    if place[judged_by[j]] == a:
                        free = False
                        break
            earlier = last[p]
            while free and earlier >= 0:
                free = given[earlier] != a
                earlier = before[earlier]
            if not free:
                continue
            if price[a] > money + 1e-9:
                dear = True
                continue
            best, most_wanted = a, mine
        chosen[wish] = best
        if best < 0:
            ended[wish] = TOO_DEAR if dear else NOBODY
            continue
        ended[wish] = GIVEN
        money -= price[best]
        load[best] += 1
        before[first + wish] = last[p]
        given[first + wish] = best
        last[p] = first + wish
    return money


@njit(cache=True, nogil=True)
def top_gains(
    query_offsets: NDArray[np.int64],
    chance: NDArray[np.float64],
    after: NDArray[np.float64],
    k: int,
    discount: NDArray[np.float64],
    gain: NDArray[np.float64],
) -> None:
    """What knowing more of each document is expected to add to its query's DCG@k, over the best DCG@k as known.

    A document's gain turns out as one of `after`, each by its `chance`, where its mean was expected; then the query is
    ranked anew. Only the k + 1 best documents matter to where a document can come in. Either table may have one column
    that holds for all documents.
    """
    # chance and after (n_answers, 1 or n), the documents of a query side by side -> gain (n,)
    n, n_answers = len(gain), len(chance)
    own_chance, own_after = int(chance.shape[1] > 1), int(after.shape[1] > 1)
    score = np.zeros(n)
    for answer in range(n_answers):
        for d in range(n):
            score[d] += chance[answer, d * own_chance] * after[answer, d * own_after]
    top, comes = np.empty(k + 1, np.int64), np.empty(n_answers, np.int64)
    above, below, higher = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    for query in range(len(query_offsets) - 1):
        start, stop = query_offsets[query], query_offsets[query + 1]
        held = _best(score, start, stop, top)
        shown = min(held, k)
        # What the best k add up to, up to each place: as they are (above), each a rank lower and each a rank higher.
        for place in range(shown):
            value = score[top[place]]
            above[place + 1] = above[place] + discount[place] * value
            below[place + 1] = below[place] + (discount[place + 1] * value if place + 1 < k else 0.0)
            higher[place + 1] = higher[place] + (discount[place - 1] * value if place > 0 else 0.0)
        scale = 1 / max(above[shown], 1e-12)
        least, after_them = score[top[shown - 1]], score[top[k]] if held > k else -np.inf
        if not own_after:
            for answer in range(n_answers):
                comes[answer] = _place(after[answer, 0], score, top, shown)
        for d in range(start, stop):
            mine = -1
            if score[d] >= least:
                for place in range(shown):
                    if top[place] == d:
                        mine = place
            c, v, added = d * own_chance, d * own_after, 0.0
            for answer in range(n_answers):
                value = after[answer, v]
                if mine < 0 and value < least:
                    continue  # it cannot come in
                at = _place(value, score, top, shown) if own_after else comes[answer]
                if mine < 0:  # who stands there or after goes down
                    more = discount[at] * value + below[shown] - below[at] - (above[shown] - above[at])
                elif at <= mine:  # it goes up, who stood between goes down
                    more = discount[at] * value - discount[mine] * score[d]
                    more += below[mine] - below[at] - (above[mine] - above[at])
                else:  # it goes down, who stood between goes up; from below the last place the next best comes in
                    last = max(value, after_them) if at == k else value
                    more = discount[at - 1] * last - discount[mine] * score[d]
                    more += higher[at] - higher[mine + 1] - (above[at] - above[mine + 1])
                added += chance[answer, c] * more
            gain[d] = max(added, 0.0) * scale


@njit(cache=True, nogil=True)
def _place(value: float, score: NDArray[np.float64], top: NDArray[np.int64], shown: int) -> int:
    """How many of the best have a higher score."""
    at = shown
    while at > 0 and value >= score[top[at - 1]]:
        at -= 1
    return at


@njit(cache=True, nogil=True)
def _best(score: NDArray[np.float64], start: int, stop: int, top: NDArray[np.int64]) -> int:
    """Fill `top` with the best documents from start to stop, in order; how many there are."""
    held, most = 0, len(top)
    for d in range(start, stop):
        at = held
        while at > 0 and score[d] > score[top[at - 1]]:
            at -= 1
        if at >= most:
            continue
        held = min(held + 1, most)
        for place in range(held - 1, at, -1):
            top[place] = top[place - 1]
        top[at] = d
    return held


@njit(cache=True, nogil=True)
def information(
    posterior: NDArray[np.float64],
    likelihood: NDArray[np.float64],
    noise: NDArray[np.float64],
    pair: NDArray[np.int64],
    allowed_offsets: NDArray[np.int64],
    allowed: NDArray[np.int32],
    told: NDArray[np.float64],
) -> None:
    """The mutual information of a pair's state and an assessor's answer, of those who may judge the pair.

    It is the entropy of the answer less the entropy that is left where the state is known (`noise`).
    """
    # posterior (n, n_states), likelihood (n_assessors, n_answers, n_states), noise (n_assessors, n_states),
    # pair (n,), told (n, n_assessors), of which others than those allowed are left as they are
    n_assessors, n_answers, n_states = likelihood.shape
    everyone = len(allowed_offsets) == 0
    for row in range(len(pair)):
        start = 0 if everyone else allowed_offsets[pair[row]]
        stop = n_assessors if everyone else allowed_offsets[pair[row] + 1]
        for candidate in range(start, stop):
            a = candidate if everyone else allowed[candidate]
            total = 0.0
            for s in range(n_states):
                total -= posterior[row, s] * noise[a, s]
            for answer in range(n_answers):
                share = 0.0
                for s in range(n_states):
                    share += posterior[row, s] * likelihood[a, answer, s]
                if share > 0.0:
                    total -= share * np.log(share)
            told[row, a] = max(total, 0.0)


@njit(cache=True, nogil=True)
def bilinear(
    row: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    other: tuple[float, float],
    grid_x: tuple[float, float],
    grid_y: tuple[float, float],
    table: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:
    """A function's values at the points (x, y) of rows, or at the `other` point for a row below 0.

    They come from those on a grid, which a first value and a step describe; what lies off it counts as on its edge.
    """
    # row, found (n,), x, y (any rows,), table (n_x, n_y)
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
        found[place] = (1 - u) * low + u * high


@njit(cache=True, nogil=True)
def along(
    row: NDArray[np.int64],
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    other: tuple[float, float],
    points: NDArray[np.float64],
    grid: tuple[float, float],
    table: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:
    """A function's values at mean + sd * point of rows (`other`: of a row below 0), from those at even steps.

    Beyond the ends they are as at the ends.
    """
    # row (n,), mean, sd (any rows,), points (n_points,), table (n_steps,) -> found (n_points, n)
    per_step, last = 1.0 / grid[1], len(table) - 1.000001
    for place in range(len(row)):
        at = row[place]
        middle, width = (mean[at], sd[at]) if at >= 0 else other
        for p in range(len(points)):
            u = min(max((middle + width * points[p] - grid[0]) * per_step, 0.0), last)
            i = int(u)
            found[p, place] = table[i] + (u - i) * (table[i + 1] - table[i])


@njit(cache=True, nogil=True)
def goodness(
    offsets: NDArray[np.int64],
    grade: NDArray[np.int8],
    good: NDArray[np.bool_],
    time: NDArray[np.int64],
    first: NDArray[np.bool_],
    every: NDArray[np.bool_],
) -> None:
    """Per item, whether its first judgment is good and whether all are; the earliest is the first, where times are."""
    # offsets (n + 1,), grade (n_judgments,), good (n_grades + 1,): the last for a grade of -1; time (n_judgments or 0,)
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        earliest, all_good = start, True
        for j in range(start, stop):
            all_good &= good[grade[j]]
            if len(time) and time[j] < time[earliest]:
                earliest = j
        first[item], every[item] = good[grade[earliest]], all_good


@njit(cache=True, nogil=True)
def counted(codes: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """How often each of n codes occurs: as np.bincount, without a copy of the codes."""
    found = np.zeros(n, np.int64)
    for code in codes:
        found[code] += 1
    return found
