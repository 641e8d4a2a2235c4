"""The passes over pairs of judgments within a query. Each has an obvious NumPy reference in tests/consensus/.

A judgment has a place among those of its query (its number in the query's part of `order`), and partners, which are
places too. What a pair says depends on the partner by two numbers only: where its grade lies relative to its document
(`mark`), and how steep it is (`ease`). So a pass gathers two numbers a pair, sums over pairs by judgment, and goes to
documents and assessors once a judgment.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit

ALL_PAIRS = 10
"""A group of up to so many times `partners` judgments is small enough for all its pairs."""
CURVED = 4
"""Where partners are drawn, every fourth shows how the assessors' slopes bend: that only guides the steps."""
CG_STEPS = 30
"""Conjugate gradients of a Newton step: relevance hangs together by so many pairs that a dozen will do."""
CG_REST = 1e-2
CG_LAST = 1e-6
"""They end when the square of what is left is this part: the next Newton step mends it; or, where no other pass comes
between the steps, this one."""
SHORT_STEP = 1e-4
"""A step shorter than this is the last: what it leaves is a thousandth of it."""
GOLDEN = 0.6180339887498949
"""Multiples of it, but for their whole parts, are spread evenly over [0, 1)."""

LOG2_E = 1.0 / math.log(2.0)
LN2_HIGH = 0.693147180369123816490
LN2_LOW = 1.90821492927058770002e-10
"""The logarithm of 2 in two parts, the first of few bits: whole multiples of it are exact."""
ROUNDER = 1.5 * 2.0**52
"""Added to a number, it leaves the whole part in the lowest bits."""
TAYLOR = tuple(1.0 / math.factorial(power) for power in range(12))
LOWEST, HIGHEST = -700.0, 600.0
"""Scores are held between these: nothing overflows."""
LANES = 20
"""So many pairs at a time, in rows of constant length: the compiler then knows that they do not overlap."""
X, INVERSE, TOTAL, GIVEN, MEAN, BY_X, BEND_X, BY_WIDTH, TILT = range(9)
"""The rows; from TILT on one score, then one share, for each grade."""
LEFT, RIGHT, WIDTH, BENT_WIDTH, BENT, BENT_BOTH = range(6)
"""What is summed by judgment: slopes by x, as explained and as partner; slope and curvature by width; as partner, the
curvature by mu, and by mu and width."""
FUSED = {"contract"}
"""A product and a sum may be one step. Sums keep their order: which other one is fastest the compiler tells differently
for what it has just compiled and for what comes from the cache, and then two processes would not round alike."""
MUCH = 1e300
"""A product beyond this may have overflown."""


@njit(cache=True, nogil=True)
def scattered(seed: int, query: int, number: int) -> float:
    """A number in [0, 1) that looks random and depends on nothing but the three (splitmix64)."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(query)
    mixed = mixed * np.uint64(0xD1342543DE82EF95) + np.uint64(number)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True, fastmath=FUSED)
def raise_all(values: NDArray[np.float64], n: int, spare: NDArray[np.float64]) -> None:
    """The first `n` values become their exponentials, to 1e-14; `spare` is scratch.

    Plain arithmetic, so that the compiler does several at once.
    """
    bits = spare.view(np.int64)
    for k in range(n):
        value = values[k]
        value = value if value > LOWEST else LOWEST
        value = value if value < HIGHEST else HIGHEST
        shifted = value * LOG2_E + ROUNDER
        spare[k] = shifted
        whole = shifted - ROUNDER
        part = (value - whole * LN2_HIGH) - whole * LN2_LOW
        power = TAYLOR[11]
        for term in range(10, -1, -1):
            power = power * part + TAYLOR[term]
        values[k] = power
    for k in range(n):  # the whole part as the exponent of a float
        bits[k] = (bits[k] + np.int64(1023)) << np.int64(52)
    for k in range(n):
        values[k] *= spare[k]


@njit(cache=True, nogil=True)
def draw_partners(
    doc: NDArray[np.int32],
    bounds: NDArray[np.int64],
    partners: int,
    seed: int,
    query: int,
    first: NDArray[np.int64],
    partner: NDArray[np.int32],
) -> None:
    """Write the partners of every judgment of one query: of its group, and of other documents."""
    # doc (n,) document of each place; bounds: where the query's groups start; first (n + 1,): where partners start
    n_pairs = 0
    for group in range(len(bounds) - 1):
        start, n = bounds[group] - bounds[0], bounds[group + 1] - bounds[group]
        everyone = n <= ALL_PAIRS * partners
        for i in range(start, start + n):
            first[i] = n_pairs
            if everyone:
                for j in range(start, start + n):
                    if doc[j] != doc[i]:
                        partner[n_pairs] = j
                        n_pairs += 1
                continue
            # One partner from each of as many equal stretches: judgments stand by document, so none is missed.
            spot, stretch, mine = scattered(seed, query, i), n / partners, doc[i]
            for k in range(partners):
                j = start + min(int((k + spot) * stretch), n - 1)
                partner[n_pairs] = j
                n_pairs += doc[j] != mine
                spot = spot + GOLDEN if spot < 1.0 - GOLDEN else spot + (GOLDEN - 1.0)
    first[bounds[-1] - bounds[0]] = n_pairs


@njit(cache=True, nogil=True, fastmath=FUSED)
def compare(
    partner: NDArray[np.int32],
    mark: NDArray[np.float64],
    ease: NDArray[np.float64],
    place: float,
    own_ease: float,
    grades: tuple[int, ...],
    curves: NDArray[np.float64],
    rows: NDArray[np.float64],
    spare: NDArray[np.float64],
) -> None:
    """Write what up to LANES pairs say of each grade other than that given: x, 1 / variance, score, exp(score)."""
    # curves (3, n_grades) of the left assessor, the grade given first: mu, mu and log alpha beyond those of the first;
    # rows (ROWS + 2 n_grades, LANES)
    m = len(partner)
    for k in range(m):
        rows[X * LANES + k] = place - mark[partner[k]]
        rows[INVERSE * LANES + k] = own_ease * ease[partner[k]]
    for h in range(1, len(grades)):
        gap, higher = curves[1, h], curves[2, h]
        middle = curves[0, 0] + 0.5 * gap
        for k in range(m):
            tilt = rows[INVERSE * LANES + k] * gap * (rows[X * LANES + k] - middle)
            rows[(TILT + h) * LANES + k] = tilt
            rows[(TILT + len(grades) + h) * LANES + k] = higher + tilt
    if m > 0:  # the rows of shares follow each other: what is beyond m is raised with the rest, to no harm
        raise_all(rows[(TILT + len(grades) + 1) * LANES :], (len(grades) - 1) * LANES, spare)


@njit(cache=True, nogil=True, fastmath=FUSED)
def shape(
    m: int, weight: float, grades: tuple[int, ...], curves: NDArray[np.float64], rows: NDArray[np.float64]
) -> float:
    """Slope and curvature of pairs by x; the log likelihood, all of weight 1."""
    gaps = curves[1]
    for k in range(m):
        total, mean, square = 1.0, 0.0, 0.0
        for h in range(1, len(grades)):
            share = rows[(TILT + len(grades) + h) * LANES + k]
            total += share
            mean += share * gaps[h]
            square += share * gaps[h] * gaps[h]
        given = 1.0 / total
        mean *= given
        inverse = rows[INVERSE * LANES + k]
        rows[TOTAL * LANES + k] = total
        rows[GIVEN * LANES + k] = given
        rows[MEAN * LANES + k] = mean
        rows[BY_X * LANES + k] = -weight * inverse * mean
        rows[BEND_X * LANES + k] = weight * inverse * inverse * (square * given - mean * mean)
    product = 1.0
    for k in range(m):
        product *= rows[TOTAL * LANES + k]
    if product < MUCH:  # one logarithm for all, unless a grade was all but impossible
        return float(-np.log(product))
    value = 0.0
    for k in range(m):
        value -= np.log(rows[TOTAL * LANES + k])
    return value


@njit(cache=True, nogil=True, fastmath=FUSED)
def shape_widths(m: int, weight: float, grades: tuple[int, ...], rows: NDArray[np.float64]) -> None:
    """Slope of pairs by log w or log eps."""
    for k in range(m):
        tilted = 0.0
        for h in range(1, len(grades)):
            tilted += rows[(TILT + len(grades) + h) * LANES + k] * rows[(TILT + h) * LANES + k]
        rows[BY_WIDTH * LANES + k] = 0.5 * weight * tilted * rows[GIVEN * LANES + k]


@njit(cache=True, nogil=True, fastmath=FUSED)
def rise_left(
    m: int,
    weight: float,
    grades: tuple[int, ...],
    curves: NDArray[np.float64],
    rows: NDArray[np.float64],
    rises: NDArray[np.float64],
) -> None:
    """Add to rises (2, n_grades) the slopes by the left assessor's mu and log alpha, the grade given first."""
    for h in range(1, len(grades)):
        mu, by_mu, by_alpha = curves[0, h], 0.0, 0.0
        for k in range(m):
            share = rows[(TILT + len(grades) + h) * LANES + k] * rows[GIVEN * LANES + k]
            by_alpha += share
            by_mu += share * rows[INVERSE * LANES + k] * (rows[X * LANES + k] - mu)
        rises[0, h] -= weight * by_mu
        rises[1, h] -= weight * by_alpha
        rises[1, 0] += weight * by_alpha
    mu, by_mu = curves[0, 0], 0.0
    for k in range(m):
        by_mu += (1.0 - rows[GIVEN * LANES + k]) * rows[INVERSE * LANES + k] * (rows[X * LANES + k] - mu)
    rises[0, 0] += weight * by_mu


@njit(cache=True, nogil=True, fastmath=FUSED)
def bend_left(
    m: int,
    weight: float,
    stride: int,
    grades: tuple[int, ...],
    curves: NDArray[np.float64],
    rows: NDArray[np.float64],
    bends: NDArray[np.float64],
) -> None:
    """Add to bends (5, n_grades, n_grades) the expected curvature by the left assessor's parameters.

    By mu and mu, log alpha and mu, log alpha and log alpha; then in single rows log w and mu, log w and log alpha.
    """
    n_grades = len(grades)
    shares, off, bend = np.empty(n_grades), np.empty(n_grades), np.empty(n_grades)
    weight *= m / ((m + stride - 1) // stride)
    for k in range(0, m, stride):
        shares[0], bend[0], bent = rows[GIVEN * LANES + k], 0.0, 0.0
        off[0] = rows[INVERSE * LANES + k] * (rows[X * LANES + k] - curves[0, 0])
        for h in range(1, n_grades):
            shares[h] = rows[(TILT + n_grades + h) * LANES + k] * rows[GIVEN * LANES + k]
            off[h] = rows[INVERSE * LANES + k] * (rows[X * LANES + k] - curves[0, h])
            bend[h] = -0.5 * rows[(TILT + h) * LANES + k]
            bent += shares[h] * bend[h]
        for h in range(n_grades):
            heavy = weight * shares[h]
            bends[3, 0, h] += heavy * (bend[h] - bent) * off[h]
            bends[4, 0, h] += heavy * (bend[h] - bent)
            for f in range(n_grades):
                joint = heavy * ((1.0 if f == h else 0.0) - shares[f])
                bends[0, h, f] += joint * off[h] * off[f]
                bends[1, h, f] += joint * off[f]
                bends[2, h, f] += joint


@njit(cache=True, nogil=True)
def tell_left(
    given: int,
    rises: NDArray[np.float64],
    bends: NDArray[np.float64],
    sign: float,
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> None:
    """Add what a judgment's pairs say of its own assessor; grades, the given first, go back to their order."""
    # slope (n_params,), curve (n_params, n_params) of the assessor
    n_grades = rises.shape[1]
    last = 2 * n_grades
    for h in range(n_grades):
        at = given if h == 0 else (h - 1 if h <= given else h)
        slope[at] += sign * rises[0, h]
        slope[n_grades + at] += sign * rises[1, h]
        curve[last, at] += sign * bends[3, 0, h]
        curve[last, n_grades + at] += sign * bends[4, 0, h]
        for f in range(n_grades):
            to = given if f == 0 else (f - 1 if f <= given else f)
            curve[at, to] += sign * bends[0, h, f]
            curve[n_grades + at, to] += sign * bends[1, h, f]
            curve[n_grades + at, n_grades + to] += sign * bends[2, h, f]


@njit(cache=True, nogil=True)
def arrange(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each assessor and grade given: mu, and mu and log alpha beyond those of that grade, which comes first."""
    # params (n_assessors, 2 n_grades + 1) -> (n_assessors, n_grades, 3, n_grades)
    n_assessors, n_grades = len(params), params.shape[1] // 2
    curves = np.empty((n_assessors, n_grades, 3, n_grades))
    for a in range(n_assessors):
        for given in range(n_grades):
            for h in range(n_grades):
                at = given if h == 0 else (h - 1 if h <= given else h)
                curves[a, given, 0, h] = params[a, at]
                curves[a, given, 1, h] = params[a, at] - params[a, given]
                curves[a, given, 2, h] = params[a, n_grades + at] - params[a, n_grades + given]
    return curves


@njit(cache=True, nogil=True)
def tell_right(
    partner: NDArray[np.int32], i: int, with_widths: bool, rows: NDArray[np.float64], sums: NDArray[np.float64]
) -> None:
    """Add the pairs' slopes to those of judgment `i` and of its partners."""
    here = wide = 0.0
    for k in range(len(partner)):
        here += rows[BY_X * LANES + k]
        sums[partner[k], RIGHT] += rows[BY_X * LANES + k]
    sums[i, LEFT] += here
    if with_widths:
        for k in range(len(partner)):
            wide += rows[BY_WIDTH * LANES + k]
            sums[partner[k], WIDTH] += rows[BY_WIDTH * LANES + k]
        sums[i, WIDTH] += wide


@njit(cache=True, nogil=True)
def bend_right(
    partner: NDArray[np.int32],
    i: int,
    weight: float,
    stride: int,
    grades: tuple[int, ...],
    curves: NDArray[np.float64],
    rows: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Add the curvature of every `stride`th pair by widths, by the partner's mu, and by both."""
    m = len(partner)
    more = m / ((m + stride - 1) // stride)
    for k in range(0, m, stride):
        j, given = partner[k], rows[GIVEN * LANES + k]
        tilted = square = both = 0.0
        for h in range(1, len(grades)):
            tilt = rows[(TILT + h) * LANES + k]
            part = rows[(TILT + len(grades) + h) * LANES + k] * given * tilt
            tilted += part
            square += part * tilt
            both += part * curves[1, h]
        bent = 0.25 * weight * more * max(square - tilted * tilted, 0.0)
        both -= rows[MEAN * LANES + k] * tilted
        sums[i, BENT_WIDTH] += bent
        sums[j, BENT_WIDTH] += bent
        sums[j, BENT] += more * rows[BEND_X * LANES + k]
        sums[j, BENT_BOTH] -= 0.5 * weight * more * rows[INVERSE * LANES + k] * both


@njit(cache=True, nogil=True)
def pair_terms(
    first: NDArray[np.int64],
    partner: NDArray[np.int32],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    place: NDArray[np.float64],
    mark: NDArray[np.float64],
    ease: NDArray[np.float64],
    grades: tuple[int, ...],
    arranged: NDArray[np.float64],
    stride: int,
    pull: NDArray[np.float32],
    sums: NDArray[np.float64],
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
    sign: float,
) -> float:
    """The log likelihood of one query's pairs, each judgment's weighing 1 in all, and its derivatives.

    p(g | g', r - r') is a softmax with scores that are linear in r - r': minus the curvature by relevance is the exact
    second derivative, that by all else the expected one.
    """
    # place (n,) relevance of each judgment's document; mark (n,) = place - mu of its grade; ease (n,): 1 / sqrt(w eps);
    # grades (0, 1, ...), whose number is a constant to the compiler; arranged: see arrange. Written: pull (n_pairs,)
    # curvature by the difference, unless it is empty; sums (n, 2 or 6): see LEFT and the rest. Added to, times sign,
    # unless they are empty: slope (as params), curve (n_assessors, n_params, n_params), whose lower triangle is right,
    # from every `stride`th pair.
    n_grades, with_widths, by_assessor = len(grades), sums.shape[1] > WIDTH, len(slope) > 0
    rows = np.zeros((TILT + 2 * n_grades) * LANES)
    spare = np.empty(n_grades * LANES)
    rises, bends = np.empty((2, n_grades)), np.empty((5, n_grades, n_grades))
    sums[:] = 0.0
    value = 0.0
    for i in range(len(place)):
        begin, end, a, g = first[i], first[i + 1], assessor[i], grade[i]
        if begin == end:
            continue
        weight = 1.0 / (end - begin)
        curves = arranged[a, g]
        if by_assessor:
            rises[:], bends[:] = 0.0, 0.0
        for start in range(begin, end, LANES):
            these = partner[start : min(start + LANES, end)]
            m = len(these)
            compare(these, mark, ease, place[i], ease[i], grades, curves, rows, spare)
            value += weight * shape(m, weight, grades, curves, rows)
            if with_widths:
                shape_widths(m, weight, grades, rows)
                bend_right(these, i, weight, stride, grades, curves, rows, sums)
            tell_right(these, i, with_widths, rows, sums)
            if len(pull) > 0:
                for k in range(m):
                    pull[start + k] = max(rows[BEND_X * LANES + k], 0.0)
            if by_assessor:
                rise_left(m, weight, grades, curves, rows, rises)
                bend_left(m, weight, stride, grades, curves, rows, bends)
        if by_assessor:
            tell_left(g, rises, bends, sign, slope[a], curve[a])
    if by_assessor:
        tell_partners(assessor, grade, sums, sign, slope, curve)
    return value


@njit(cache=True, nogil=True)
def tell_partners(
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    sums: NDArray[np.float64],
    sign: float,
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> None:
    """Add what the pairs say of the mu of the grades given by partners, and of all widths."""
    last = slope.shape[1] - 1
    for j in range(len(assessor)):
        b, given = assessor[j], grade[j]
        slope[b, last] += sign * sums[j, WIDTH]
        slope[b, given] += sign * sums[j, RIGHT]
        curve[b, last, last] += sign * sums[j, BENT_WIDTH]
        curve[b, given, given] += sign * max(sums[j, BENT], 0.0)
        curve[b, last, given] += sign * sums[j, BENT_BOTH]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True, fastmath=FUSED)
def solve(
    first: NDArray[np.int64],
    partner: NDArray[np.int32],
    doc: NDArray[np.int32],
    pull: NDArray[np.float32],
    own: NDArray[np.float64],
    slope: NDArray[np.float64],
    n_steps: int,
    enough: float,
    diagonal: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The Newton step of relevance by conjugate gradients: pairs pull at differences, `own` at each item."""
    # pull (n_pairs,); own, slope (n_items,); diagonal (n_items,) is written: all that pulls at an item
    n = len(doc)
    others = np.empty(first[n], np.int32)  # (n_pairs,) the partner's item: looked up once, not in every step
    diagonal[:] = own
    for i in range(n):
        here = 0.0
        for pair in range(first[i], first[i + 1]):
            others[pair] = doc[partner[pair]]
            here += pull[pair]
            diagonal[others[pair]] += pull[pair]
        diagonal[doc[i]] += here
    step, rest = np.zeros(len(own)), slope.copy()
    towards = rest / diagonal
    left_over = (rest * towards).sum()
    enough *= left_over
    for _ in range(n_steps):
        if left_over <= enough:
            break
        image = diagonal * towards
        for i in range(n):
            here, mine = 0.0, towards[doc[i]]
            for pair in range(first[i], first[i + 1]):
                here += pull[pair] * towards[others[pair]]
                image[others[pair]] -= pull[pair] * mine
            image[doc[i]] -= here
        length = left_over / (towards * image).sum()
        step += length * towards
        rest -= length * image
        scaled = rest / diagonal
        before, left_over = left_over, (rest * scaled).sum()
        towards = scaled + left_over / before * towards
    return step


@njit(cache=True, nogil=True)
def locate(
    doc: NDArray[np.int32],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    params: NDArray[np.float64],
    steepness: NDArray[np.float64],
    r: NDArray[np.float64],
    e: NDArray[np.float64],
    place: NDArray[np.float64],
    mark: NDArray[np.float64],
    ease: NDArray[np.float64],
) -> None:
    """Write each judgment's place, mark and ease: see pair_terms."""
    easier = np.exp(-0.5 * e)
    for i in range(len(doc)):
        place[i] = r[doc[i]]
        mark[i] = place[i] - params[assessor[i], grade[i]]
        ease[i] = steepness[assessor[i]] * easier[doc[i]]


@njit(cache=True, nogil=True)
def shorter(length: float) -> float:
    """Half of it, and in the end nothing."""
    return length / 2 if length > 1e-4 else 0.0


@njit(cache=True, nogil=True)
def gather(doc: NDArray[np.int32], sums: NDArray[np.float64], by_r: NDArray[np.float64]) -> None:
    """Add the slopes by place to those of the documents."""
    for i in range(len(doc)):
        by_r[doc[i]] += sums[i, LEFT] - sums[i, RIGHT]


@njit(cache=True, nogil=True)
def harden(
    doc: NDArray[np.int32], sums: NDArray[np.float64], hard_precision: float, e: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The step of hardness; both documents of a pair move: twice the curvature bounds what they do together."""
    slope, curve = -hard_precision * e, np.full(len(e), hard_precision)
    for i in range(len(doc)):
        slope[doc[i]] += sums[i, WIDTH]
        curve[doc[i]] += sums[i, BENT_WIDTH]
    return slope / (2.0 * curve)


@njit(cache=True, nogil=True)
def climb_query(
    first: NDArray[np.int64],
    partner: NDArray[np.int32],
    doc: NDArray[np.int32],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    grades: tuple[int, ...],
    params: NDArray[np.float64],
    arranged: NDArray[np.float64],
    steepness: NDArray[np.float64],
    expert: NDArray[np.float64],
    hard_precision: float,
    stride: int,
    n_steps: int,
    r: NDArray[np.float64],
    e: NDArray[np.float64],
    precision: NDArray[np.float64],
    slope: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> float:
    """Up to `n_steps` Newton steps of one query's relevance and hardness, each halved while it is too long.

    Then, where they are not empty, the assessors' slope and curvature are added to.
    """
    # doc, assessor, grade (n,) by place; gold, r (relevance), e (hardness), precision (n_items,) of this query; r and e
    # are changed, precision is written
    n, hard = len(doc), hard_precision > 0
    place, mark, ease = np.empty(n), np.empty(n), np.empty(n)
    pull, no_pull = np.empty(len(partner), np.float32), np.empty(0, np.float32)
    sums = np.empty((n, 6 if hard else 2))
    all_sums = np.empty((n if len(slope) > 0 else 0, 6))
    no_slope, no_curve = slope[:0], curve[:0]
    own, by_r = np.empty(len(r)), np.empty(len(r))
    old_r, old_e, r_step, e_step = r.copy(), e.copy(), np.zeros(len(r)), np.zeros(len(r))
    best, length, taken, sign = -np.inf, 1.0, 0, 1.0
    enough = CG_REST if len(slope) > 0 else CG_LAST
    while True:
        locate(doc, assessor, grade, params, steepness, r, e, place, mark, ease)
        # The last look is the assessors' too: they are told at once, and told off again if the step was too long.
        last = taken == n_steps and len(slope) > 0
        now = pair_terms(
            first, partner, assessor, grade, place, mark, ease, grades, arranged, stride, no_pull if last else pull,
            all_sums if last else sums, slope if last else no_slope, curve if last else no_curve, sign,
        )  # fmt: skip
        by_r[:], own[:] = -r, 1.0
        now += expert_terms(gold, r, expert, by_r, own)
        now -= 0.5 * (r**2).sum() + 0.5 * hard_precision * (e**2).sum()
        if sign > 0 and now < best - 1e-12 * abs(best):
            length = shorter(length)
            if last:
                sign = -1.0
                continue
        elif sign > 0:
            best, length = now, 1.0
            old_r[:], old_e[:] = r, e
            if taken == n_steps:
                break
            taken += 1
            gather(doc, sums, by_r)
            r_step = solve(first, partner, doc, pull, own, by_r, CG_STEPS, enough, precision)
            if hard:
                e_step = harden(doc, sums, hard_precision, e)
            if len(slope) == 0 and max(np.abs(r_step).max(), np.abs(e_step).max()) < SHORT_STEP:
                r += r_step
                e += e_step
                break
        sign = 1.0
        r[:], e[:] = old_r + length * r_step, old_e + length * e_step
    return float(best)


@njit(cache=True, nogil=True)
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
    grades: tuple[int, ...],
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
    most = 0
    for query in range(len(query_items) - 1):
        most = max(most, groups[query_groups[query + 1]] - groups[query_groups[query]])
    partner = np.empty(most_pairs(groups, query_groups, partners), np.int32)
    first, doc, who, said = (
        np.empty(most + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int8),
    )
    steepness, arranged = np.exp(-0.5 * params[:, -1]), arrange(params)
    value = 0.0
    for query in range(len(query_items) - 1):
        start, stop = query_items[query], query_items[query + 1]
        bounds = groups[query_groups[query] : query_groups[query + 1] + 1]
        n = bounds[-1] - bounds[0]
        for i in range(n):
            judgment = order[bounds[0] + i]
            doc[i], who[i], said[i] = item[judgment] - start, assessor[judgment], grade[judgment]
        draw_partners(doc, bounds, partners, seed, query_number[query], first, partner)
        stride = CURVED if np.diff(bounds).max() > ALL_PAIRS * partners else 1
        value += climb_query(
            first[: n + 1], partner[: first[n]], doc[:n], who[:n], said[:n], gold[start:stop], grades, params,
            arranged, steepness, expert, hard_precision, stride, n_steps, relevance[start:stop],
            hardness[start:stop], precision[start:stop], slope, curve,
        )  # fmt: skip
    return value
