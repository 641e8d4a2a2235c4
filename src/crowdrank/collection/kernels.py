"""Who gets which request, and what a label may change at the top. Each has an obvious NumPy twin in tests."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
        p, best, dear = pair[wish], -1, False
        row = wish if len(merit) > 1 else 0
        start = 0 if everyone else allowed_offsets[p]
        stop = n_assessors if everyone else allowed_offsets[p + 1]
        for candidate in range(start, stop):
            a = candidate if everyone else allowed[candidate]
            if load[a] >= most:
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
            if best < 0:
                best = a
                continue
            mine, other = merit[row, a] / max(price[a], 1e-12), merit[row, best] / max(price[best], 1e-12)
            if mine > other or (
                mine == other and (load[a] < load[best] or (load[a] == load[best] and turn[a] < turn[best]))
            ):
                best = a
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
    ranked anew. Only the k + 1 best documents matter to where a document can come in.
    """
    # chance and after (n, n_answers), the documents of a query side by side -> gain (n,)
    score, most = np.zeros(len(chance)), np.full(len(chance), -np.inf)
    for d in range(len(chance)):
        for answer in range(chance.shape[1]):
            score[d] += chance[d, answer] * after[d, answer]
            most[d] = max(most[d], after[d, answer])
    top, own = np.empty(k + 1, np.int64), np.empty(k, np.int64)
    above, below = np.empty(k + 1), np.empty(k + 1)
    for query in range(len(query_offsets) - 1):
        start, stop = query_offsets[query], query_offsets[query + 1]
        held = 0
        for d in range(start, stop):  # the k + 1 best, in order
            at = held
            while at > 0 and score[d] > score[top[at - 1]]:
                at -= 1
            if at > k:
                continue
            held = min(held + 1, k + 1)
            for place in range(held - 1, at, -1):
                top[place] = top[place - 1]
            top[at] = d
        # What the best k add up to, as they are (above) and each a rank lower (below), up to each place.
        above[0], below[0] = 0.0, 0.0
        for place in range(min(held, k)):
            rank_lower = discount[place + 1] if place + 1 < k else 0.0
            above[place + 1] = above[place] + discount[place] * score[top[place]]
            below[place + 1] = below[place] + rank_lower * score[top[place]]
            own[place] = top[place]
        shown = min(held, k)
        whole = above[shown]
        for d in range(start, stop):
            mine = -1
            for place in range(shown):
                if own[place] == d:
                    mine = place
            if mine < 0 and held > k and most[d] < score[top[k - 1]]:
                gain[d] = 0.0  # it cannot come in
                continue
            expected = 0.0
            for answer in range(chance.shape[1]):
                value, at = after[d, answer], shown
                while at > 0 and value >= score[top[at - 1]]:
                    at -= 1
                if mine < 0:  # it comes in at a place, and who stands there or after goes down
                    here = discount[at] * value if at < k else 0.0
                    total = above[at] + here + below[shown] - below[at]
                elif at <= mine:  # it goes up, who stood between goes down
                    total = whole - discount[mine] * score[d] + discount[at] * value
                    total += below[mine] - below[at] - (above[mine] - above[at])
                else:  # it goes down, who stood between goes up; below the last place the next best comes in
                    at -= 1
                    after_it = score[top[k]] if held > k else -np.inf
                    total = whole - discount[mine] * score[d]
                    for place in range(mine + 1, at + 1):
                        total += (discount[place - 1] - discount[place]) * score[top[place]]
                    total += discount[at] * max(value, after_it if at == k - 1 else -np.inf)
                expected += chance[d, answer] * total
            gain[d] = max(expected - whole, 0.0) / max(whole, 1e-12)


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
def entropies(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The entropy of each row, in nats."""
    # (n, n_states) -> (n,)
    found = np.zeros(len(shares))
    for row in range(len(shares)):
        for s in range(shares.shape[1]):
            if shares[row, s] > 0.0:
                found[row] -= shares[row, s] * np.log(shares[row, s])
    return found


@njit(cache=True, nogil=True)
def bilinear(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    first_x: float,
    step_x: float,
    first_y: float,
    step_y: float,
    table: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:
    """A function's values at points (x, y), from those on a grid; what lies off the grid counts as on its edge."""
    # x, y, found (n,), table (n_x, n_y)
    for row in range(len(x)):
        u = min(max((x[row] - first_x) / step_x, 0.0), table.shape[0] - 1.000001)
        v = min(max((y[row] - first_y) / step_y, 0.0), table.shape[1] - 1.000001)
        i, j = int(u), int(v)
        u -= i
        v -= j
        low = (1 - v) * table[i, j] + v * table[i, j + 1]
        high = (1 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
        found[row] = (1 - u) * low + u * high


@njit(cache=True, nogil=True)
def along(
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    points: NDArray[np.float64],
    first: float,
    step: float,
    table: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:
    """A function's values at mean + sd * point, from those at even steps; beyond the ends as at the ends."""
    # mean, sd (n,), points (n_points,), table (n_steps,) -> found (n, n_points)
    for row in range(len(mean)):
        for p in range(len(points)):
            u = min(max((mean[row] + sd[row] * points[p] - first) / step, 0.0), len(table) - 1.000001)
            i = int(u)
            found[row, p] = table[i] + (u - i) * (table[i + 1] - table[i])


@njit(cache=True, nogil=True)
def counted(codes: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """How often each of n codes occurs: as np.bincount, without a copy of the codes."""
    found = np.zeros(n, np.int64)
    for code in codes:
        found[code] += 1
    return found
