"""The lambda objective: gradient and Hessian of a ranking measure in every score (LambdaRank, Burges 2010).

Rows are grouped by query; `offsets` (n_queries + 1,) has the first row of each query. A kernel writes the gradient and
the Hessian (its diagonal) of a loss in the score of every row. Ranks are by descending score; ties keep their order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.evaluation.measure_kernels import rank_order, sort_descending
from crowdrank.evaluation.measures import Measure, effective_gains, parse_measure
from crowdrank.rankers.training_data import RankingData, differ_within

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
        sigmoid: steepness of the pairwise probability.
        truncation: number of top ranks.
        norm: normalize as LightGBM's `lambdarank_norm`.
        gradient, hessian: (n,) results.

    """
    longest = longest_query(offsets, first, last)
    ranked_score, ranked, gains = np.empty(longest), np.empty(longest), np.empty(longest)
    slope, curvature, exponential = np.empty(longest), np.empty(longest), np.empty(longest)
    before, sums, weights = np.empty(longest + 1), np.empty(longest + 1), np.ones(longest)
    weighs_pairs, is_soft = weighting in (PRODUCT, LEFT), probabilities.size > 0
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
                if is_soft:
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
        gradient, hessian: (n,) results.

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


WEIGHTINGS = ("product", "left", "post")
PAIR_TARGETS = ("grade", "posterior")
MEASURES = ("nDCG", "DCG", "ERR", "AP")
CHUNKS_PER_THREAD = 8
Gradients = tuple[Floats, Floats]
"""Gradient and Hessian of a loss in every score, (n,) each."""


class PairwiseObjective(ABC):
    """Base of objectives that sum over pairs of documents of a query; threads share the queries."""

    def __init__(self, data: RankingData, truncation: int, n_jobs: int) -> None:
        self.data, self.truncation = data, int(truncation)
        n_chunks = CHUNKS_PER_THREAD * n_jobs if n_jobs > 1 else 1
        self._chunks = query_chunks(data.offsets, self.truncation, n_chunks)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None

    @abstractmethod
    def _pass(self, first: int, last: int, score: Floats, gradient: Floats, hessian: Floats) -> None:
        """Write gradient and Hessian for the queries from `first` up to `last`."""

    def __call__(self, score: Floats) -> Gradients:
        """Return gradient and Hessian of the loss in every score."""
        score = np.ascontiguousarray(score, dtype=np.float64)
        gradient, hessian = np.empty(len(score)), np.empty(len(score))

        def run(chunk: tuple[int, int]) -> None:
            self._pass(*chunk, score, gradient, hessian)

        list(map(run, self._chunks) if self._pool is None else self._pool.map(run, self._chunks))
        return gradient, hessian


class LambdaObjective(PairwiseObjective):
    """Weighted pairwise log loss, each pair times the change of a measure.

    A pair (i, j) of one query costs w |dZ| times the log loss of sigma(s_i - s_j) against its target: 1 if i has the
    higher gain, or P(i better than j) for soft targets. |dZ| is the change of the measure if the two swap ranks.
    Gradients of a query sum to zero unless `weighting` is "post".

    >>> data = RankingData.from_ids(np.eye(3), [2, 0, 1], ["q"] * 3)
    >>> gradient, hessian = LambdaObjective(data)(np.zeros(3))
    >>> np.sign(gradient).tolist(), bool(abs(gradient.sum()) < 1e-12)
    ([-1.0, 1.0, 1.0], True)
    """

    def __init__(
        self,
        data: RankingData,
        *,
        measure: str | Measure | None = "nDCG",
        gains: Any = "exponential",
        weighting: str = "product",
        pair_targets: str = "grade",
        sigmoid: float = 1.0,
        truncation: int = 30,
        norm: bool = True,
        n_jobs: int = 1,
    ) -> None:

        super().__init__(data, truncation, n_jobs)
        self.sigmoid, self.norm = float(sigmoid), norm
        # Without a measure only the order of labels counts, so that they need no gains.
        has_gains = measure is not None or data.probabilities is not None
        self.gain = data.gain(effective_gains(measure, gains)) if has_gains else data.grade
        self.swaps = SwapMeasure.of(data, self.gain, measure, self.truncation)
        self.weight = np.ones(0) if data.weight is None else data.weight
        codes = {"product": PRODUCT, "left": LEFT, "post": POST}
        self.weighting = UNWEIGHTED if data.weight is None else codes[weighting]
        self.probabilities, self.below = _soft_targets(data, pair_targets)

    def _pass(self, first: int, last: int, score: Floats, gradient: Floats, hessian: Floats) -> None:

        lambda_gradients(
            self.data.offsets,
            first,
            last,
            score,
            self.gain,
            *self.swaps,
            self.weight,
            self.weighting,
            self.probabilities,
            self.below,
            self.sigmoid,
            self.truncation,
            self.norm,
            gradient,
            hessian,
        )

    def gradient_of(self, queries: Integers, score: Floats) -> Floats:
        """Return the gradient for some queries; `score` has only their rows, one query after the other."""
        rows = self.data.rows_of(queries)
        scores, gradient, hessian = (np.zeros(len(self.gain)) for _ in range(3))
        scores[rows] = score
        for query in queries:
            self._pass(int(query), int(query) + 1, scores, gradient, hessian)
        return np.asarray(gradient[rows])

    def has_pairs(self) -> bool:
        """Return whether any query has two documents of different gains."""
        return differ_within(self.gain, self.data.offsets)


class SwapMeasure(NamedTuple):
    """A measure in the form that kernels need to compute the effect of a swap.

    Attributes:
        value: (n,) gain (DCG), stopping probability (ERR) or relevance (AP) of each document.
        inverse_ideal: (n_queries,) inverse of the ideal value of each query.
        discount: (longest query,) discount of each rank.
        code: code of the measure.

    """

    value: Floats
    inverse_ideal: Floats
    discount: Floats
    code: int

    @classmethod
    def of(cls, data: RankingData, gain: Floats, measure: str | Measure | None, truncation: int) -> SwapMeasure:
        """Return a measure of documents with these gains; the ideal of nDCG without a cutoff ends at `truncation`."""
        sizes = np.diff(data.offsets)
        ranks = np.arange(1, int(sizes.max()) + 1, dtype=np.float64)
        ones = np.ones(len(sizes))
        if measure is None:
            return cls(gain, ones, ranks, NO_MEASURE)
        parsed = parse_measure(measure)
        within = ranks <= (parsed.cutoff or np.inf)
        if parsed.name in ("nDCG", "DCG"):
            discount = within / np.log2(ranks + 1)
            if parsed.name == "DCG":
                return cls(gain, ones, discount, DCG)
            ideal = np.empty(len(sizes))
            ideal_dcgs(data.offsets, gain, discount, parsed.cutoff or truncation, ideal)  # as LightGBM
            return cls(gain, _inverse(ideal), discount, DCG)
        if parsed.name == "ERR":
            stop = data.gain("exponential") / 2.0**parsed.max_grade
            if stop.max() >= 1:
                problem = f"{parsed} has the highest grade {parsed.max_grade}, but there are higher ones"
                highest = f"ERR(max_grade={int(np.ceil(data.grade.max()))})"
                raise InputError(problem, fix=Fix("set {}", "measure", highest))
            return cls(stop, ones, within / ranks, ERR)
        relevant = (data.grade >= parsed.rel).astype(np.float64)
        n_relevant = np.add.reduceat(relevant, data.offsets[:-1])
        return cls(relevant, _inverse(n_relevant), within / ranks, AP)


def check_measure(measure: str | Measure | None) -> None:
    """Raise UsageError for a measure for which the effect of a swap is not implemented."""
    name = None if measure is None else parse_measure(measure).name
    if name is not None and name not in MEASURES:
        problem = f"must be one of {', '.join(MEASURES)} (with options and cutoff) or None, not {name}"
        raise UsageError(problem, parameter="measure", kind="invalid-parameter")


def _inverse(ideal: Floats) -> Floats:
    return np.divide(1.0, ideal, out=np.zeros(len(ideal)), where=ideal > 0)


def _soft_targets(data: RankingData, pair_targets: str) -> tuple[Floats, Floats]:
    """Return P(grade) of each row, and for each grade g the sum P(grade < g) + P(grade = g) / 2; both (n, n_grades)."""
    if pair_targets == "grade":
        return np.empty((0, 0)), np.empty((0, 0))
    if data.probabilities is None:
        fix = Fix("set {}", "pair_targets", "grade")
        raise InputError("soft pair targets need labels that are probabilities of grades", kind="no-posterior", fix=fix)
    below = np.cumsum(data.probabilities, axis=1) - 0.5 * data.probabilities
    return np.ascontiguousarray(data.probabilities), np.ascontiguousarray(below)


def query_chunks(offsets: Integers, truncation: int, n: int) -> list[tuple[int, int]]:
    """Return about n ranges of queries with similar numbers of pairs."""
    sizes = np.diff(offsets)
    n_pairs = np.cumsum(sizes * np.minimum(sizes, truncation) + 1)
    cuts = np.searchsorted(n_pairs, n_pairs[-1] * np.arange(1, n) / n)
    return [(int(a), int(b)) for a, b in pairwise(np.unique(np.concatenate([[0], cuts, [len(sizes)]])))]


Objective = Callable[[Floats], Gradients]
"""Function of the scores (n,) that returns gradient and Hessian."""
