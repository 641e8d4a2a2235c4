"""Gradients and Hessians of pairwise losses. Each kernel has a slow NumPy reference in tests/rankers/.

Rows are grouped by query; `offsets` (n_queries + 1,) has the first row of each query. A kernel writes the gradient and
the Hessian (its diagonal) of a loss in the score of every row. Ranks are by descending score; ties keep their order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.evaluation.measure_kernels import rank_order, sort_descending

NO_MEASURE, DCG, ERR, AP = 0, 1, 2, 3
UNWEIGHTED, PRODUCT, LEFT, POST = 0, 1, 2, 3

NORM_OFFSET = 0.01
"""Constant that LightGBM's `lambdarank_norm` adds to the difference of two scores before it divides by it."""
MAX_EXPONENT_RANGE = 600.0
"""Maximum of sigmoid times (highest minus lowest score) of a query for which exp(score) does not overflow."""
MAX_SORTED_RANKS = 50
"""Maximum cutoff of a measure for which only the first ranks are sorted."""


@njit(cache=True, nogil=True)
def prefix_sums(measure: int, value: Floats, discount: Floats, before: Floats, sums: Floats) -> None:
    """Write the prefix sums of a ranked list that :func:`swap_change` needs, (n + 1,) each.

    `before` is the probability of reaching a rank (ERR) or the number of relevant documents above it (AP).
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
    """Return the change of a measure (DCG, ERR, or AP times the number relevant) if the ranks i < j are swapped."""
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
def longest_query(offsets: Integers, first: int, last: int) -> int:
    """Return the number of rows of the longest query from `first` up to `last`."""
    longest = 0
    for query in range(first, last):
        longest = max(longest, offsets[query + 1] - offsets[query])
    return longest


@njit(cache=True, nogil=True)
def lambda_gradients(
    offsets: Integers,
    first: int,
    last: int,
    score: Floats,
    gain: Floats,
    value: Floats,
    inverse_ideal: Floats,
    discount: Floats,
    measure: int,
    weight: Floats,
    weighting: int,
    probabilities: Floats,
    below: Floats,
    pair_probabilities: Floats,
    first_pair: Integers,
    sigmoid: float,
    truncation: int,
    norm: bool,
    gradient: Floats,
    hessian: Floats,
) -> None:
    """Write gradient and Hessian of the pairwise log loss, each pair times the change of the measure by its swap.

    Pairs have at least one document above the rank `truncation`. Documents of equal gain form no pair, unless targets
    are soft and there is no measure. Weights multiply pairs (PRODUCT, LEFT: weight of the better document) or the sums
    of documents (POST).

    Args:
        offsets: (n_queries + 1,) first row of each query.
        first, last: the queries to process.
        score, gain: (n,).
        value: (n,) what the measure sees of a document: gain (DCG), stopping probability (ERR) or relevance (AP).
        inverse_ideal: (n_queries,) inverse of the ideal value of the measure.
        discount: (longest query,) by rank.
        measure: code of the measure.
        weight: (n,), or (0,) if UNWEIGHTED.
        weighting: code of the meaning of weights.
        probabilities: (n, n_grades) for soft targets, or (0, 0).
        below: (n, n_grades) probability of a lower grade plus half of that of the same grade, or (0, 0).
        pair_probabilities: for each query, the probability that the document of each row is better than that of each
            column, as in :class:`LambdaObjective`; they replace `probabilities`. Or (0,).
        first_pair: (n_queries,) place of the first of them.
        sigmoid: steepness of the pairwise probability.
        truncation: number of top ranks.
        norm: normalize as LightGBM's `lambdarank_norm`.
        gradient, hessian: (n,) arrays that are overwritten with the results.

    """
    longest = longest_query(offsets, first, last)
    ranked_score, ranked, gains = np.empty(longest), np.empty(longest), np.empty(longest)
    slope, curvature, exponential = np.empty(longest), np.empty(longest), np.empty(longest)
    before, sums, weights = np.empty(longest + 1), np.empty(longest + 1), np.ones(longest)
    weighs_pairs, has_pairs = weighting in (PRODUCT, LEFT), pair_probabilities.size > 0
    is_soft = has_pairs or probabilities.size > 0
    for query in range(first, last):
        start, n = offsets[query], offsets[query + 1] - offsets[query]
        rows = np.arange(start, start + n)
        for k in range(n):
            ranked_score[k] = score[start + k]
        sort_descending(ranked_score[:n], rows)
        scores_differ = n > 0 and ranked_score[0] != ranked_score[n - 1]
        middle = 0.5 * (ranked_score[0] + ranked_score[n - 1]) if n > 0 else 0.0
        is_narrow = n > 0 and sigmoid * (ranked_score[0] - ranked_score[n - 1]) < MAX_EXPONENT_RANGE
        for k in range(n):
            slope[k], curvature[k] = 0.0, 0.0
            ranked[k], gains[k] = value[rows[k]], gain[rows[k]]
            if is_narrow:
                exponential[k] = math.exp(sigmoid * (ranked_score[k] - middle))
            if weighs_pairs:
                weights[k] = weight[rows[k]]
        if measure in (ERR, AP):
            prefix_sums(measure, ranked[:n], discount, before, sums)
        total = 0.0
        for i in range(min(n - 1, truncation)):
            for j in range(i + 1, n):
                if gains[i] == gains[j] and (not is_soft or measure != NO_MEASURE):
                    continue
                change = 1.0
                if measure == DCG:
                    change = abs((ranked[i] - ranked[j]) * (discount[i] - discount[j])) * inverse_ideal[query]
                elif measure != NO_MEASURE:
                    change = abs(swap_change(measure, i, j, ranked, discount, before, sums)) * inverse_ideal[query]
                if norm and scores_differ:
                    change /= NORM_OFFSET + ranked_score[i] - ranked_score[j]
                # Probability, by the scores, that the lower-ranked document j is better.
                reversed_probability = (
                    exponential[j] / (exponential[i] + exponential[j])
                    if is_narrow
                    else 1.0 / (1.0 + math.exp(sigmoid * (ranked_score[i] - ranked_score[j])))
                )
                target = 1.0 if gains[i] > gains[j] else 0.0
                if has_pairs:
                    target = pair_probabilities[first_pair[query] + (rows[i] - start) * n + rows[j] - start]
                elif is_soft:
                    target = 0.0
                    for grade in range(probabilities.shape[1]):
                        target += probabilities[rows[i], grade] * below[rows[j], grade]
                d_slope = sigmoid * change * (1.0 - reversed_probability - target)
                d_curvature = sigmoid * sigmoid * change * reversed_probability * (1.0 - reversed_probability)
                total += 2.0 * abs(d_slope)
                if weighs_pairs:
                    w = weights[i] if gains[i] > gains[j] else weights[j]
                    if weighting == PRODUCT:
                        w = weights[i] * weights[j]
                    d_slope, d_curvature = w * d_slope, w * d_curvature
                slope[i] += d_slope
                slope[j] -= d_slope
                curvature[i] += d_curvature
                curvature[j] += d_curvature
        factor = math.log2(1.0 + total) / total if norm and total > 0.0 else 1.0
        for k in range(n):
            w = factor * weight[rows[k]] if weighting == POST else factor
            gradient[rows[k]], hessian[rows[k]] = w * slope[k], w * curvature[k]


@njit(cache=True, nogil=True)
def ideal_dcgs(offsets: Integers, gain: Floats, discount: Floats, depth: int, ideal: Floats) -> None:
    """Write the DCG of the best order of each query, down to the rank `depth`."""
    for query in range(len(offsets) - 1):
        best = gain[offsets[query] : offsets[query + 1]].copy()
        sort_descending(best, np.arange(best.size))
        ideal[query] = 0.0
        for rank in range(min(best.size, depth)):
            ideal[query] += best[rank] * discount[rank]


@njit(cache=True, nogil=True)
def hash_rows(matrix: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Write a hash of each row of bit patterns (FNV over words, then mixed)."""
    for row in range(matrix.shape[0]):
        mixed = np.uint64(0xCBF29CE484222325)
        for column in range(matrix.shape[1]):
            mixed = (mixed ^ np.uint64(matrix[row, column])) * np.uint64(0x100000001B3)
            mixed ^= mixed >> np.uint64(29)
        hashes[row] = mixed


@njit(cache=True, nogil=True)
def mix_bits(number: np.uint64) -> np.uint64:
    """Return a pseudorandom 64-bit number for a number (the output function of SplitMix64)."""
    number += np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@njit(cache=True, nogil=True)
def grade_derivatives(
    params: Floats, factor: Floats, a: int, g: int, b: int, h: int, difference: float, ease: float, logits: Floats
) -> tuple[float, float]:
    """Return the derivative of log p(g | h, difference) in the difference, and its expected negative curvature (eq. 7).

    Args:
        params: mean, log weight and log width of each grade, (n_assessors, 3 n_grades).
        factor: square roots of the inverse widths, (n_assessors, n_grades).
        a, g: assessor and grade of the judgment.
        b, h: assessor and grade of the judgment of the other document.
        difference: score of the document minus that of the other.
        ease: inverse of the root of the product of both difficulties.
        logits: work array, (n_grades,).

    """
    n_grades = logits.size
    x, highest = difference + params[b, h], -np.inf
    for k in range(n_grades):
        distance = x - params[a, k]
        inverse_width = ease * factor[a, k] * factor[b, h]
        logits[k] = (
            params[a, n_grades + k] - 0.25 * params[a, 2 * n_grades + k] - 0.5 * distance * distance * inverse_width
        )
        highest = max(highest, logits[k])
    total, mean, square, observed = 0.0, 0.0, 0.0, 0.0
    for k in range(n_grades):
        likelihood = math.exp(logits[k] - highest)
        slope = (params[a, k] - x) * ease * factor[a, k] * factor[b, h]
        observed = slope if k == g else observed
        total += likelihood
        mean += likelihood * slope
        square += likelihood * slope * slope
    mean, square = mean / total, square / total
    return observed - mean, max(square - mean * mean, 0.0)


@njit(cache=True, nogil=True)
def judgment_gradients(
    offsets: Integers,
    first: int,
    last: int,
    score: Floats,
    value: Floats,
    inverse_ideal: Floats,
    discount: Floats,
    measure: int,
    weight: Floats,
    judged: Integers,
    assessor: Codes,
    grade: Grades,
    judgment_weight: Floats,
    ease: Floats,
    params: Floats,
    truncation: int,
    items: Integers,
    max_pairs: int,
    seed: int,
    min_curvature: float,
    gradient: Floats,
    hessian: Floats,
) -> None:
    """Write gradient and Hessian of GDA's eq. 14: -log p of pairs of judgments, times the change by a swap.

    Of the K K' pairs of judgments of two documents at most `max_pairs` are used, scaled up to all. The first pair is
    drawn by `seed` and the two item numbers, so that it does not depend on the ranks.

    Args:
        offsets, first, last, score, value, inverse_ideal, discount, measure: as in `lambda_gradients`.
        weight: (n,), or (0,) without weights.
        judged: (n + 1,) first judgment of each row.
        assessor, grade, judgment_weight: (n_judgments,).
        ease: (n,) inverse root of the difficulty.
        params: mean, log weight and log width of each grade, (n_assessors, 3 n_grades).
        truncation: number of top ranks, of which a pair has at least one document.
        items: (n,) item number of each row.
        max_pairs: maximum number of pairs of judgments per pair of documents.
        seed: random seed.
        min_curvature: minimum curvature per pair of judgments.
        gradient, hessian: (n,) arrays that are overwritten with the results.

    """
    longest = longest_query(offsets, first, last)
    ranked_score, ranked = np.empty(longest), np.empty(longest)
    before, sums, logits = np.empty(longest + 1), np.empty(longest + 1), np.empty(params.shape[1] // 3)
    factor = np.exp(-0.5 * params[:, 2 * logits.size :])
    seed_bits = mix_bits(np.uint64(seed))
    for query in range(first, last):
        start, n = offsets[query], offsets[query + 1] - offsets[query]
        gradient[start : start + n], hessian[start : start + n] = 0.0, 0.0
        rows = np.arange(start, start + n)
        for k in range(n):
            ranked_score[k] = score[start + k]
        sort_descending(ranked_score[:n], rows)
        for k in range(n):
            ranked[k] = value[rows[k]]
        if measure in (ERR, AP):
            prefix_sums(measure, ranked[:n], discount, before, sums)
        for i in range(min(n - 1, truncation)):
            for j in range(i + 1, n):
                change = 1.0
                if measure != NO_MEASURE:
                    change = abs(swap_change(measure, i, j, ranked, discount, before, sums)) * inverse_ideal[query]
                d, e, difference = rows[i], rows[j], ranked_score[i] - ranked_score[j]
                if items[d] > items[e]:  # the sample of pairs must not depend on which document ranks higher
                    d, e, difference = e, d, -difference
                if weight.size > 0:
                    change *= weight[d] * weight[e]
                n_d, n_e = judged[d + 1] - judged[d], judged[e + 1] - judged[e]
                n_pairs = n_d * n_e
                if change == 0.0 or n_pairs == 0:
                    continue
                divisor, remainder = n_d, n_e
                while remainder > 0:
                    divisor, remainder = remainder, divisor % remainder
                cycle = n_pairs // divisor  # number of diagonal steps after which pairs repeat
                n_used = min(n_pairs, max_pairs)
                skip_d, skip_e = np.int64(0), np.int64(0)
                if n_used < n_pairs:
                    bits = mix_bits(seed_bits ^ np.uint64(items[d]))
                    bits = mix_bits(bits ^ np.uint64(items[e]))
                    skip_d = np.int64((bits & np.uint64(0xFFFFFFFF)) % np.uint64(n_d))
                    skip_e = np.int64((bits >> np.uint64(32)) % np.uint64(n_e))
                slope, curvature, floor = 0.0, 0.0, 0.0
                both_ease = ease[d] * ease[e]
                for t in range(n_used):
                    left = judged[d] + (t + skip_d) % n_d
                    right = judged[e] + (t + t // cycle + skip_e) % n_e
                    a, b, g, h = assessor[left], assessor[right], grade[left], grade[right]
                    slope_d, curvature_d = grade_derivatives(params, factor, a, g, b, h, difference, both_ease, logits)
                    slope_e, curvature_e = grade_derivatives(params, factor, b, h, a, g, -difference, both_ease, logits)
                    pair_weight = judgment_weight[left] * judgment_weight[right]
                    slope += pair_weight * (slope_d - slope_e)
                    curvature += pair_weight * (curvature_d + curvature_e)
                    floor += pair_weight * min_curvature
                change *= n_pairs / n_used
                curvature = change * max(curvature, floor)
                gradient[d] -= change * slope
                gradient[e] += change * slope
                hessian[d] += curvature
                hessian[e] += curvature


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
) -> tuple[Integers, Booleans]:
    """Return all rows, sorted by descending score within queries, and whether each begins a group of equal scores.

    The given rows must be ordered by query. With a cutoff of at most `MAX_SORTED_RANKS`, the ranks up to the cutoff and
    documents tied with the last of them are sorted; the other rows of the query follow in any order.
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
