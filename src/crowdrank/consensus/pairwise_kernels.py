"""The passes over pairs of judgments within a query. Each has an obvious NumPy twin in tests/consensus/."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

ALL_PAIRS = 10
"""A group of up to so many times `partners` judgments is small enough for all its pairs."""
CG_STEPS = 30
"""Conjugate gradients of a Newton step: relevance hangs together by so many pairs that a dozen will do."""
CG_REST = 1e-4
"""They end when the square of what is left is this part: the next Newton step mends it."""
NO_STEP = 1e-11
"""A step shorter than this is none."""


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def scattered(seed: int, query: int, number: int) -> float:
    """A number in [0, 1) that looks random and depends on nothing but the three (splitmix64)."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(query)
    mixed = mixed * np.uint64(0xD1342543DE82EF95) + np.uint64(number)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def most_pairs(groups: NDArray[np.int64], query_groups: NDArray[np.int64], partners: int) -> int:
    """The number of pairs of the query that has most."""
    most = 0
    for query in range(len(query_groups) - 1):
        pairs = 0
        for group in range(query_groups[query], query_groups[query + 1]):
            n = groups[group + 1] - groups[group]
            pairs += n * (n if n <= ALL_PAIRS * partners else partners)
        most = max(most, pairs)
    return most


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def draw_pairs(
    order: NDArray[np.int64],
    item: NDArray[np.int64],
    bounds: NDArray[np.int64],
    partners: int,
    seed: int,
    query: int,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> int:
    """Write the pairs (left given right) of one query; the weights of each judgment's pairs sum to 1."""
    # order (n,) judgments by group; item (n,) of each judgment; bounds: where the query's groups start in order
    n_pairs = 0
    for group in range(len(bounds) - 1):
        first, n = bounds[group], bounds[group + 1] - bounds[group]
        everyone = n <= ALL_PAIRS * partners
        for i in range(n):
            start = n_pairs
            for k in range(n if everyone else partners):
                # One partner from each of as many equal stretches: judgments stand by document, so none is missed.
                j = k if everyone else min(int((k + scattered(seed, query, i * partners + k)) * n / partners), n - 1)
                if item[order[first + i]] != item[order[first + j]]:
                    left[n_pairs], right[n_pairs] = order[first + i], order[first + j]
                    n_pairs += 1
            for pair in range(start, n_pairs):
                weight[pair] = 1.0 / (n_pairs - start)
    return n_pairs


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def item_terms(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    weight: NDArray[np.float64],
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    relevance: NDArray[np.float64],
    hardness: NDArray[np.float64],
    params: NDArray[np.float64],
    steepness: NDArray[np.float64],
    slope: NDArray[np.float64],
    hard_slope: NDArray[np.float64],
    hard_curve: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> float:
    """The log likelihood of pairs; to the slopes by item is added, and the curvature by pair is written.

    The scores are linear in relevance but for what all grades share: minus the curvature is the exact second
    derivative. That by hardness is the expected one.
    """
    # here, there (n_pairs,) items of left and right; relevance, hardness = log eps, slopes, hard_curve (n_items,);
    # params (n_assessors, 2 n_grades + 1): mu, log alpha, log w; steepness (n_assessors,) = exp(-log w / 2)
    n_grades = params.shape[1] // 2
    score, ease = np.empty(n_grades), np.exp(-0.5 * hardness)
    value = 0.0
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        a, b, d, other = assessor[i], assessor[j], here[pair], there[pair]
        inverse = steepness[a] * steepness[b] * ease[d] * ease[other]
        x = relevance[d] - relevance[other] + params[b, grade[j]]
        highest = -np.inf
        for k in range(n_grades):
            score[k] = params[a, n_grades + k] - 0.5 * (x - params[a, k]) ** 2 * inverse
            highest = max(highest, score[k])
        total = mean = square = fourth = 0.0
        for k in range(n_grades):
            off = x - params[a, k]
            share = np.exp(score[k] - highest)
            total += share
            mean += share * off
            square += share * off**2
            fourth += share * off**4
        mean, square, fourth = mean / total, square / total, fourth / total
        off = x - params[a, grade[i]]
        value += weight[pair] * (score[grade[i]] - highest - np.log(total))
        by_x = weight[pair] * (mean - off) * inverse
        slope[d] += by_x
        slope[other] -= by_x
        curve[pair] = weight[pair] * max(square - mean**2, 0.0) * inverse**2
        by_eps = weight[pair] * 0.25 * (off**2 - square) * inverse
        bent = weight[pair] * max(fourth - square**2, 0.0) * (0.25 * inverse) ** 2
        hard_slope[d] += by_eps
        hard_slope[other] += by_eps
        hard_curve[d] += bent
        hard_curve[other] += bent
    return value


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def assessor_terms(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    weight: NDArray[np.float64],
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    relevance: NDArray[np.float64],
    hardness: NDArray[np.float64],
    params: NDArray[np.float64],
    steepness: NDArray[np.float64],
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> None:
    """Add to the slope of the log likelihood by assessors' parameters, and to its expected curvature per assessor."""
    # slope (as params), curve (n_assessors, n_params, n_params): only its lower triangle is added to
    n_grades = params.shape[1] // 2
    last = 2 * n_grades
    share, off, bend = np.empty(n_grades), np.empty(n_grades), np.empty(n_grades)
    ease = np.exp(-0.5 * hardness)
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        a, b, g, given = assessor[i], assessor[j], grade[i], grade[j]
        inverse = steepness[a] * steepness[b] * ease[here[pair]] * ease[there[pair]]
        x = relevance[here[pair]] - relevance[there[pair]] + params[b, given]
        highest = -np.inf
        for k in range(n_grades):
            off[k] = (x - params[a, k]) * inverse
            bend[k] = 0.25 * off[k] * (x - params[a, k])
            share[k] = params[a, n_grades + k] - 2.0 * bend[k]
            highest = max(highest, share[k])
        total = 0.0
        for k in range(n_grades):
            share[k] = np.exp(share[k] - highest)
            total += share[k]
        rise = rise2 = bent = bent2 = both = 0.0
        for k in range(n_grades):
            share[k] /= total
            rise += share[k] * off[k]
            rise2 += share[k] * off[k] * off[k]
            bent += share[k] * bend[k]
            bent2 += share[k] * bend[k] * bend[k]
            both += share[k] * off[k] * bend[k]
        w = weight[pair]
        for k in range(n_grades):
            miss = w * ((1.0 if k == g else 0.0) - share[k])
            slope[a, k] += miss * off[k]
            slope[a, n_grades + k] += miss
            around = w * share[k] * (bend[k] - bent)
            curve[a, last, k] += around * off[k]
            curve[a, last, n_grades + k] += around
            for h in range(n_grades):
                joint = w * share[k] * ((1.0 if h == k else 0.0) - share[h])
                curve[a, n_grades + k, h] += joint * off[h]
                if h <= k:
                    curve[a, k, h] += joint * off[k] * off[h]
                    curve[a, n_grades + k, n_grades + h] += joint
        by_width = w * (bend[g] - bent)
        of_width = w * max(bent2 - bent * bent, 0.0)
        slope[a, last] += by_width
        slope[b, last] += by_width
        curve[a, last, last] += of_width
        curve[b, last, last] += of_width
        slope[b, given] += w * (rise - off[g])
        curve[b, given, given] += w * max(rise2 - rise * rise, 0.0)
        curve[b, last, given] -= w * (both - rise * bent)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def expert_terms(
    gold: NDArray[np.int8],
    relevance: NDArray[np.float64],
    expert: NDArray[np.float64],
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> float:
    """The log likelihood of expert grades, log softmax_g(expert[0, g] r + expert[1, g]); to the rest is added."""
    # gold, relevance, slope, curve (n_items,); expert (2, n_grades)
    value = 0.0
    for d in range(len(gold)):
        if gold[d] < 0:
            continue
        score = expert[0] * relevance[d] + expert[1]
        share = np.exp(score - score.max())
        share /= share.sum()
        mean = (share * expert[0]).sum()
        value += score[gold[d]] - score.max() + np.log(share.max())
        slope[d] += expert[0, gold[d]] - mean
        curve[d] += (share * (expert[0] - mean) ** 2).sum()
    return value


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def solve(
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    curve: NDArray[np.float64],
    own: NDArray[np.float64],
    slope: NDArray[np.float64],
    n_steps: int,
) -> NDArray[np.float64]:
    """The Newton step of relevance by conjugate gradients: pairs pull at differences, `own` at each item."""
    # here, there, curve (n_pairs,); own, slope (n_items,)
    diagonal = own.copy()
    for pair in range(len(here)):
        diagonal[here[pair]] += curve[pair]
        diagonal[there[pair]] += curve[pair]
    step, rest = np.zeros(len(own)), slope.copy()
    towards = rest / diagonal
    left_over = (rest * towards).sum()
    enough = CG_REST * left_over
    for _ in range(n_steps):
        if left_over <= enough:
            break
        image = diagonal * towards
        for pair in range(len(here)):
            image[here[pair]] -= curve[pair] * towards[there[pair]]
            image[there[pair]] -= curve[pair] * towards[here[pair]]
        length = left_over / (towards * image).sum()
        step += length * towards
        rest -= length * image
        scaled = rest / diagonal
        before, left_over = left_over, (rest * scaled).sum()
        towards = scaled + left_over / before * towards
    return step


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def climb_query(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    weight: NDArray[np.float64],
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    params: NDArray[np.float64],
    steepness: NDArray[np.float64],
    expert: NDArray[np.float64],
    hard_precision: float,
    n_steps: int,
    r: NDArray[np.float64],
    e: NDArray[np.float64],
    precision: NDArray[np.float64],
) -> float:
    """Up to `n_steps` Newton steps of one query's relevance and hardness, each halved while it is too long."""
    # gold, r (relevance), e (hardness), precision (n_items,) of this query; r, e are changed, precision is written
    pulls, own, by_r = np.empty(len(left)), np.empty(len(r)), np.empty(len(r))
    by_e, e_curve = np.empty(len(r)), np.empty(len(r))
    old_r, old_e, r_step, e_step = r.copy(), e.copy(), np.zeros(len(r)), np.zeros(len(r))
    best, length, taken = -np.inf, 1.0, 0
    while True:
        by_r[:], own[:], by_e[:], e_curve[:] = -r, 1.0, -hard_precision * e, hard_precision
        now = item_terms(
            left, right, weight, here, there, assessor, grade, r, e, params, steepness, by_r, by_e, e_curve, pulls
        )
        now += expert_terms(gold, r, expert, by_r, own)
        now -= 0.5 * (r**2).sum() + 0.5 * hard_precision * (e**2).sum()
        if now < best - 1e-12 * abs(best):
            length = length / 2 if length > 1e-4 else 0.0
            taken = taken if length > 0 else n_steps
        else:
            best, length = now, 1.0
            old_r[:], old_e[:] = r, e
            if taken == n_steps:
                break
            taken += 1
            r_step = solve(here, there, pulls, own, by_r, CG_STEPS)
            if hard_precision > 0:  # both documents of a pair move: twice the curvature bounds what they do together
                e_step = by_e / (2.0 * e_curve)
            if max(np.abs(r_step).max(), np.abs(e_step).max()) < NO_STEP:
                break
        r[:], e[:] = old_r + length * r_step, old_e + length * e_step
    for pair in range(len(left)):
        own[here[pair]] += pulls[pair]
        own[there[pair]] += pulls[pair]
    precision[:] = own
    return float(best)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def climb(
    order: NDArray[np.int64],
    item: NDArray[np.int64],
    groups: NDArray[np.int64],
    query_groups: NDArray[np.int64],
    query_items: NDArray[np.int64],
    query_number: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    params: NDArray[np.float64],
    expert: NDArray[np.float64],
    hard_precision: float,
    partners: int,
    seed: int,
    n_steps: int,
    relevance: NDArray[np.float64],
    hardness: NDArray[np.float64],
    precision: NDArray[np.float64],
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> float:
    """Climb in every query, then add to the assessors' slope and curvature; returns the log posterior of the items."""
    # order (n,) judgments by group; item (n,) of each judgment; groups (n_groups + 1,) where each starts in order;
    # query_groups, query_items (n_queries + 1,) where a query's groups and items start; hard_precision 0: hardness
    # stays; relevance, hardness (n_items,) are changed; precision (n_items,) is written: minus the second derivative
    size = most_pairs(groups, query_groups, partners)
    lefts, rights, weights = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    steepness = np.exp(-0.5 * params[:, -1])
    value = 0.0
    for query in range(len(query_items) - 1):
        start, stop = query_items[query], query_items[query + 1]
        bounds = groups[query_groups[query] : query_groups[query + 1] + 1]
        n = draw_pairs(order, item, bounds, partners, seed, query_number[query], lefts, rights, weights)
        left, right, weight = lefts[:n], rights[:n], weights[:n]
        here, there = item[left] - start, item[right] - start
        r, e = relevance[start:stop], hardness[start:stop]
        value += climb_query(
            left, right, weight, here, there, assessor, grade, gold[start:stop], params, steepness, expert,
            hard_precision, n_steps, r, e, precision[start:stop],
        )  # fmt: skip
        if len(slope) > 0:
            assessor_terms(left, right, weight, here, there, assessor, grade, r, e, params, steepness, slope, curve)
    return value
