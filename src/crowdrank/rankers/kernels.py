"""Forces between documents of a query. Each pass has a slow, obvious NumPy reference in tests/rankers/.

Rows lie query by query; `offsets` (n_queries + 1,) says where each query begins. A pass writes the slope (gradient) and
the curvature (second derivative) of a loss in every document's score.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Floats, Integers
from crowdrank.evaluation.kernels import rank_order

NO_MEASURE, DCG, ERR, AP = 0, 1, 2, 3
UNWEIGHTED, PRODUCT, LEFT, POST = 0, 1, 2, 3
HARD, NORMAL, POSTERIOR, MATRIX = 0, 1, 2, 3

NEAR = 0.01
"""LightGBM's norm divides a pair's force by its distance in score, and by this where there is none."""
WIDEST = 600.0
"""Scores (times sigmoid) further apart than this are not turned into exponentials once for each document."""
MAX_SORTED_RANKS = 50
"""Maximum cutoff of a measure for which only the first ranks are sorted."""
SHORT = 8
"""Runs of so many documents are sorted by insertion, then merged."""


@njit(cache=True, nogil=True)
def sort_falling(values: Floats, rows: Integers, spare: Floats, spare_rows: Integers) -> None:
    """Sort `values`, largest first, and `rows` along; equal ones keep their order."""
    n = values.size
    for left in range(0, n, SHORT):
        for i in range(left + 1, min(left + SHORT, n)):
            value, row, j = values[i], rows[i], i
            while j > left and values[j - 1] < value:
                values[j], rows[j] = values[j - 1], rows[j - 1]
                j -= 1
            values[j], rows[j] = value, row
    width = SHORT
    while width < n:
        for left in range(0, n, 2 * width):
            middle, right = min(left + width, n), min(left + 2 * width, n)
            i, j = left, middle
            for k in range(left, right):
                if i < middle and (j >= right or values[i] >= values[j]):
                    spare[k], spare_rows[k] = values[i], rows[i]
                    i += 1
                else:
                    spare[k], spare_rows[k] = values[j], rows[j]
                    j += 1
        values[:] = spare[:n]
        rows[:] = spare_rows[:n]
        width *= 2


@njit(cache=True, nogil=True)
def sum_up(measure: int, value: Floats, discount: Floats, before: Floats, sums: Floats) -> None:
    """What :func:`swap_change` needs of a ranked list: `before` and `sums` of the first 0, 1, 2, ... documents.

    `before` is the chance to get there (ERR) or the number of relevant documents (AP).
    """
    before[0], sums[0] = (1.0 if measure == ERR else 0.0), 0.0
    for k in range(value.size):
        if measure == ERR:
            before[k + 1] = before[k] * (1.0 - value[k])
            sums[k + 1] = sums[k] + discount[k] * value[k] * before[k]
        else:
            before[k + 1] = before[k] + value[k]
            sums[k + 1] = sums[k] + discount[k] * value[k]


@njit(cache=True, nogil=True)
def swap_change(measure: int, i: int, j: int, value: Floats, discount: Floats, before: Floats, sums: Floats) -> float:
    """By how much a measure (DCG, ERR, or AP times the relevant) changes when ranks i < j swap their documents."""
    if measure == DCG:
        return float((value[j] - value[i]) * (discount[i] - discount[j]))
    between = sums[j] - sums[i + 1]
    if measure == ERR:
        ratio = (1.0 - value[j]) / (1.0 - value[i])
        at_i = discount[i] * before[i] * (value[j] - value[i])
        return float(at_i + between * (ratio - 1.0) + discount[j] * before[j] * (ratio * value[i] - value[j]))
    rise = (before[i] + 1.0) * discount[i] + between - (before[j] - value[i] + 1.0) * discount[j]
    return float((value[j] - value[i]) * rise)


@njit(cache=True, nogil=True)
def chance_above(kind: int, a: int, b: int, start: int, spread: Floats, below: Floats, at: int, size: int) -> float:
    """The chance that row a is better than row b, as their labels have it."""
    # spread: (n, 2) mean and sd, (n, n_grades) probabilities, or (all pairs, 1); below: (n, n_grades)
    if kind == NORMAL:
        variance = spread[a, 1] * spread[a, 1] + spread[b, 1] * spread[b, 1]
        off = spread[a, 0] - spread[b, 0]
        if variance <= 0.0:
            return 1.0 if off > 0 else (0.0 if off < 0 else 0.5)
        return 0.5 * math.erfc(-off / math.sqrt(2.0 * variance))
    if kind == POSTERIOR:
        chance = 0.0
        for grade in range(spread.shape[1]):
            chance += spread[a, grade] * below[b, grade]
        return chance
    return float(spread[at + (a - start) * size + (b - start), 0])


@njit(cache=True, nogil=True)
def lambdas(
    offsets: Integers,
    first: int,
    last: int,
    score: Floats,
    gain: Floats,
    value: Floats,
    inverse: Floats,
    discount: Floats,
    measure: int,
    weight: Floats,
    weighting: int,
    kind: int,
    spread: Floats,
    below: Floats,
    places: Integers,
    sigmoid: float,
    truncation: int,
    norm: bool,
    slope: Floats,
    curve: Floats,
) -> None:
    """Slope and curvature of the pairwise log loss, each pair times what its swap changes in the measure.

    Pairs have at least one document above `truncation` in the order of scores; documents of equal gain make none,
    unless their chances are soft and no measure is asked for. Weights are those of pairs (PRODUCT, LEFT: that of the
    better document) or of what documents get in the end (POST). The norm is that of the unweighted forces.
    """
    # first, last: queries; score, gain, value, weight, slope, curve (n,); value: what the measure sees (gain, chance to
    # stop, relevant); inverse (n_queries,) of the measure's ideal; discount (longest list,); places (n_queries,) where
    # the matrix of a query starts
    longest = 0
    for query in range(first, last):
        longest = max(longest, offsets[query + 1] - offsets[query])
    falling, spare, spare_rows = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
    rows, ranked, gains = np.empty(longest, np.int64), np.empty(longest), np.empty(longest)
    force, bend, loud = np.empty(longest), np.empty(longest), np.empty(longest)
    before, sums, weights = np.empty(longest + 1), np.empty(longest + 1), np.ones(longest)
    paired = weighting in (PRODUCT, LEFT)
    for query in range(first, last):
        start, n = offsets[query], offsets[query + 1] - offsets[query]
        for k in range(n):
            falling[k], rows[k] = score[start + k], start + k
        sort_falling(falling[:n], rows[:n], spare, spare_rows)
        spread_out = n > 0 and falling[0] != falling[n - 1]
        scale = inverse[query]
        middle = 0.5 * (falling[0] + falling[n - 1]) if n > 0 else 0.0
        once = n > 0 and sigmoid * (falling[0] - falling[n - 1]) < WIDEST
        for k in range(n):
            force[k], bend[k] = 0.0, 0.0
            ranked[k], gains[k] = value[rows[k]], gain[rows[k]]
            if once:
                loud[k] = math.exp(sigmoid * (falling[k] - middle))
            if paired:
                weights[k] = weight[rows[k]]
        if measure in (ERR, AP):
            sum_up(measure, ranked[:n], discount, before, sums)
        total = 0.0
        for i in range(min(n - 1, truncation)):
            for j in range(i + 1, n):
                if gains[i] == gains[j] and (kind == HARD or measure != NO_MEASURE):
                    continue
                change = 1.0
                if measure == DCG:
                    change = abs((ranked[i] - ranked[j]) * (discount[i] - discount[j])) * scale
                elif measure != NO_MEASURE:
                    change = abs(swap_change(measure, i, j, ranked, discount, before, sums)) * scale
                if norm and spread_out:
                    change /= NEAR + falling[i] - falling[j]
                # The chance that the scores put the lower one, j, above: both are in the order of scores.
                lower = (
                    loud[j] / (loud[i] + loud[j])
                    if once
                    else 1.0 / (1.0 + math.exp(sigmoid * (falling[i] - falling[j])))
                )
                above = 1.0 if gains[i] > gains[j] else 0.0
                if kind != HARD:
                    above = chance_above(kind, rows[i], rows[j], start, spread, below, places[query], n)
                push = sigmoid * change * (1.0 - lower - above)
                pull = sigmoid * sigmoid * change * lower * (1.0 - lower)
                total += 2.0 * abs(push)
                if paired:
                    w = weights[i] if gains[i] > gains[j] else weights[j]
                    if weighting == PRODUCT:
                        w = weights[i] * weights[j]
                    push, pull = w * push, w * pull
                force[i] += push
                force[j] -= push
                bend[i] += pull
                bend[j] += pull
        factor = math.log2(1.0 + total) / total if norm and total > 0.0 else 1.0
        for k in range(n):
            own = factor * weight[rows[k]] if weighting == POST else factor
            slope[rows[k]], curve[rows[k]] = own * force[k], own * bend[k]


@njit(cache=True, nogil=True)
def ideals(offsets: Integers, value: Floats, discount: Floats, depth: int, found: Floats) -> None:
    """The DCG of the best order of each query's documents, down to `depth`."""
    for query in range(len(offsets) - 1):
        best = value[offsets[query] : offsets[query + 1]].copy()
        n = best.size
        sort_falling(best, np.zeros(n, np.int64), np.empty(n), np.empty(n, np.int64))
        found[query] = 0.0
        for rank in range(min(n, depth)):
            found[query] += best[rank] * discount[rank]


@njit(cache=True, nogil=True)
def hash_rows(matrix: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """A number for each row of bit patterns; equal rows have equal ones (FNV over words, then mixed)."""
    for row in range(matrix.shape[0]):
        mixed = np.uint64(0xCBF29CE484222325)
        for column in range(matrix.shape[1]):
            mixed = (mixed ^ np.uint64(matrix[row, column])) * np.uint64(0x100000001B3)
            mixed ^= mixed >> np.uint64(29)
        hashes[row] = mixed


@njit(cache=True, nogil=True)
def scrambled(number: np.uint64) -> np.uint64:
    """A number in which every bit hangs on every bit of the one given (the last steps of SplitMix64)."""
    number += np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@njit(cache=True, nogil=True)
def explain(
    params: Floats, factor: Floats, a: int, g: int, b: int, h: int, off: float, ease: float, scores: Floats
) -> tuple[float, float]:
    """Return slope and expected curvature of log p(g | h, off): assessor a's grade given b's of a document `off` below.

    Args:
        params: mean, log weight and log width of each grade, (n_assessors, 3 n_grades).
        factor: square roots of the inverse widths, (n_assessors, n_grades).
        a: assessor of the judgment.
        g: grade of the judgment.
        b: assessor of the partner.
        h: grade of the partner.
        off: difference in relevance.
        ease: inverse of the root of the documents' difficulties.
        scores: work array, (n_grades,).

    """
    n_grades = scores.size
    x, highest = off + params[b, h], -np.inf
    for k in range(n_grades):
        away = x - params[a, k]
        inverse = ease * factor[a, k] * factor[b, h]
        scores[k] = params[a, n_grades + k] - 0.25 * params[a, 2 * n_grades + k] - 0.5 * away * away * inverse
        highest = max(highest, scores[k])
    total, mean, square, given = 0.0, 0.0, 0.0, 0.0
    for k in range(n_grades):
        share = math.exp(scores[k] - highest)
        slope = (params[a, k] - x) * ease * factor[a, k] * factor[b, h]
        given = slope if k == g else given
        total += share
        mean += share * slope
        square += share * slope * slope
    mean, square = mean / total, square / total
    return given - mean, max(square - mean * mean, 0.0)


@njit(cache=True, nogil=True)
def judgment_forces(
    offsets: Integers,
    first: int,
    last: int,
    score: Floats,
    value: Floats,
    inverse: Floats,
    discount: Floats,
    measure: int,
    weight: Floats,
    judged: Integers,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    judgment_weight: Floats,
    ease: Floats,
    params: Floats,
    truncation: int,
    items: Integers,
    most: int,
    seed: int,
    least: float,
    slope: Floats,
    curve: Floats,
) -> None:
    """Slope and curvature of GDA's eq. 14: what judgments say of differences in score, times what a swap changes.

    Of two documents' K K' pairs of judgments at most `most` are looked at, from a place that is drawn by `seed` and the
    numbers of the two (`items`), and count for all. The curvature of a pair is at least `least` for each pair of
    judgments.
    """
    # score, value, weight, ease = eps^-1/2, slope, curve (n,); judged (n + 1,) where each row's judgments start in
    # assessor, grade, judgment_weight (n_judgments,); weight (0,) where there is none
    longest = 0
    for query in range(first, last):
        longest = max(longest, offsets[query + 1] - offsets[query])
    falling, spare, spare_rows = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
    rows, ranked = np.empty(longest, np.int64), np.empty(longest)
    before, sums, scores = np.empty(longest + 1), np.empty(longest + 1), np.empty(params.shape[1] // 3)
    factor = np.exp(-0.5 * params[:, 2 * scores.size :])
    start_draw = scrambled(np.uint64(seed))
    for query in range(first, last):
        start, n = offsets[query], offsets[query + 1] - offsets[query]
        for k in range(n):
            falling[k], rows[k] = score[start + k], start + k
            slope[start + k], curve[start + k] = 0.0, 0.0
        sort_falling(falling[:n], rows[:n], spare, spare_rows)
        for k in range(n):
            ranked[k] = value[rows[k]]
        if measure in (ERR, AP):
            sum_up(measure, ranked[:n], discount, before, sums)
        for i in range(min(n - 1, truncation)):
            for j in range(i + 1, n):
                change = 1.0
                if measure != NO_MEASURE:
                    change = abs(swap_change(measure, i, j, ranked, discount, before, sums)) * inverse[query]
                here, there, off = rows[i], rows[j], falling[i] - falling[j]
                if items[here] > items[there]:  # whichever is ranked first, the same pairs are looked at
                    here, there, off = there, here, -off
                if weight.size > 0:
                    change *= weight[here] * weight[there]
                mine, theirs = judged[here + 1] - judged[here], judged[there + 1] - judged[there]
                pairs = mine * theirs
                if change == 0.0 or pairs == 0:
                    continue
                rest, step = mine, theirs
                while step > 0:
                    rest, step = step, rest % step
                round_trip = pairs // rest  # after so many steps along both, the same pairs would come again
                looked = min(pairs, most)
                push, pull, floor = 0.0, 0.0, 0.0
                skip_mine, skip_theirs = np.int64(0), np.int64(0)
                if looked < pairs:
                    draw = scrambled(start_draw ^ np.uint64(items[here]))
                    draw = scrambled(draw ^ np.uint64(items[there]))
                    skip_mine = np.int64((draw & np.uint64(0xFFFFFFFF)) % np.uint64(mine))
                    skip_theirs = np.int64((draw >> np.uint64(32)) % np.uint64(theirs))
                for t in range(looked):
                    left = judged[here] + (t + skip_mine) % mine
                    right = judged[there] + (t + t // round_trip + skip_theirs) % theirs
                    a, b, g, h = assessor[left], assessor[right], grade[left], grade[right]
                    both = ease[here] * ease[there]
                    rise, bend = explain(params, factor, a, g, b, h, off, both, scores)
                    back, bend_back = explain(params, factor, b, h, a, g, -off, both, scores)
                    counted = judgment_weight[left] * judgment_weight[right]
                    push += counted * (rise - back)
                    pull += counted * (bend + bend_back)
                    floor += counted * least
                change *= pairs / looked
                pull = change * max(pull, floor)
                slope[here] -= change * push
                slope[there] += change * push
                curve[here] += pull
                curve[there] += pull


@njit(cache=True, nogil=True)
def _kth_largest(values: Floats, k: int) -> float:
    """Return the k-th largest value; fast for small k."""
    largest = np.full(k, -np.inf)  # in descending order
    for value in values:
        if value > largest[k - 1]:
            place = k - 1
            while place > 0 and largest[place - 1] < value:
                largest[place] = largest[place - 1]
                place -= 1
            largest[place] = value
    kth: float = largest[k - 1]
    return kth


@njit(cache=True, nogil=True)
def ranked_groups(
    rows: Integers, query: Integers, score: Floats, offsets: Integers, cutoff: int = MAX_SORTED_RANKS + 1
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the rows by query and descending score, and whether each begins a group of equal scores.

    Rows are ordered by query. With a cutoff of at most `MAX_SORTED_RANKS`, only these ranks and their ties are sorted.
    """
    if cutoff > MAX_SORTED_RANKS:
        order = rank_order(rows, query, score, offsets.size - 1)
    else:
        order = np.empty_like(rows)
        for number in range(offsets.size - 1):
            begin, end = offsets[number], offsets[number + 1]
            lowest = -np.inf if end - begin <= cutoff else _kth_largest(score[begin:end], cutoff)
            top, rest = begin, end
            for row in rows[begin:end]:
                if score[row] >= lowest:
                    place = top
                    while place > begin and score[order[place - 1]] < score[row]:
                        order[place] = order[place - 1]
                        place -= 1
                    order[place] = row
                    top += 1
                else:
                    rest -= 1
                    order[rest] = row
    new_group = np.empty(order.size, np.bool_)
    for place in range(order.size):
        new_group[place] = place == 0 or score[order[place]] != score[order[place - 1]]
    for start in offsets[:-1]:
        new_group[start] = True
    return order, new_group
