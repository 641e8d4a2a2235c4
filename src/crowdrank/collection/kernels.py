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
    score: NDArray[np.float64],
    chance: NDArray[np.float64],
    after: NDArray[np.float64],
    k: int,
    discount: NDArray[np.float64],
    gain: NDArray[np.float64],
) -> None:
    """What one more label of each document is expected to add to its query's DCG@k, over the best DCG@k as known.

    A label changes a document's expected gain from `score` to one of `after`, each by its `chance`; then the query is
    ranked anew. Only the k + 1 best documents matter to where a document can come in.
    """
    # score (n,), chance and after (n, n_answers), the documents of a query side by side -> gain (n,)
    top = np.empty(k + 1, np.int64)
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
        whole = 0.0
        for place in range(min(held, k)):
            whole += discount[place] * score[top[place]]
        for d in range(start, stop):
            expected = 0.0
            for answer in range(chance.shape[1]):
                if chance[d, answer] <= 0.0:
                    continue
                value, place, total, inserted = after[d, answer], 0, 0.0, False
                for number in range(held):
                    if place == k:
                        break
                    other = top[number]
                    if other == d:
                        continue
                    if not inserted and value >= score[other]:
                        total += discount[place] * value
                        place += 1
                        inserted = True
                        if place == k:
                            break
                    total += discount[place] * score[other]
                    place += 1
                if not inserted and place < k:
                    total += discount[place] * value
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
