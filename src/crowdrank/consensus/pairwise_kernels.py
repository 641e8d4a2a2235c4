"""Passes over pairs of judgments within a query. Each has a NumPy reference in tests/consensus/.

The judgments of a query are in groups whose members may be paired. `position` numbers them within the query. A pair
depends on the partner only by its mark (relevance minus the mean of its grade), its precision factor and its weight, so
that a pass gathers a few numbers per pair and updates documents and assessors once per judgment.
"""

from __future__ import annotations

import math

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Codes, Floats, Grades, Integers

ALL_PAIRS = 10
"""A group of up to this many times `partners` judgments has all its pairs."""
STRIDE = 4
"""If partners are drawn, every fourth pair contributes to the curvature by assessors' parameters, to guide steps."""
MAX_STEP = 1.0
"""Maximum change of relevance and log difficulty in one Newton step."""
SHORT_STEP = 1e-6
"""Newton steps end when no document moves further than this."""
GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are evenly spread over [0, 1)."""

LANES = 20
"""Number of pairs computed together, in rows of constant length that the compiler can vectorize."""
MARK, FACTOR, WEIGHT, TOTAL, RISE, BEND, WIDER, BEND_WIDER, BEND_BOTH, SCRATCH = range(10)
"""Rows of the work array: mark, precision factor and weight of the partner; derivatives of the log likelihood by
the difference in relevance and by log width. Then, for each grade, slope of its exponent, exponent, and P(grade)."""
N_ROWS = 10
SLOPE, CURVE, WIDTH_SLOPE, WIDTH_CURVE, PARTNER = 0, 1, 2, 3, 4
"""Columns of the sums by judgment: slope and expected curvature by relevance, the same by log width; from PARTNER on
the same four as a partner of other judgments, and last the mixed curvature by both."""
N_SUMS = 9
LOG2_E = 1.0 / math.log(2.0)
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""Logarithm of 2 in two parts; integer multiples of the first are exact."""
ROUNDER = 1.5 * 2.0**52
"""Added to a number, it leaves the integer part in the lowest bits."""
TAYLOR = tuple(1.0 / math.factorial(power) for power in range(12))
MIN_EXPONENT, MAX_EXPONENT = -300.0, 300.0
MIN_PRODUCT = 1e-150
"""Products of probabilities below this could underflow: exp(-300) is 1e-130."""
FUSED = {"contract"}
"""Multiply-add may be fused. Sums keep their order, so that cached and fresh code round alike."""


@njit(cache=True, nogil=True)
def hash_uniform(seed: int, query: int, number: int) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the arguments (splitmix64)."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(query)
    mixed = mixed * np.uint64(0xD1342543DE82EF95) + np.uint64(number)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def max_pairs(groups: Integers, query_groups: Integers, partners: int) -> int:
    """Return the largest number of pairs of a query."""
    most = 0
    for query in range(len(query_groups) - 1):
        pairs = 0
        for group in range(query_groups[query], query_groups[query + 1]):
            n = groups[group + 1] - groups[group]
            pairs += n * (n if n <= ALL_PAIRS * partners else partners)
        most = max(most, pairs)
    return most


@njit(cache=True, nogil=True)
def draw_partners(
    doc: Codes, bounds: Integers, partners: int, seed: int, query: int, first: Integers, partner: Codes
) -> None:
    """Write the partners of every judgment of a query: judgments of its group on other documents.

    Args:
        doc: document of each position, (n,).
        bounds: start of each group, and the end.
        partners: number of partners of a judgment in a large group.
        seed: seed of the draws.
        query: number of the query.
        first: (n + 1,), written: index of the first partner of each position, and the end.
        partner: (n_pairs,), written: positions of the partners.

    """
    n_pairs = 0
    for group in range(len(bounds) - 1):
        start, n = bounds[group] - bounds[0], bounds[group + 1] - bounds[group]
        for i in range(start, start + n):
            first[i] = n_pairs
            if n <= ALL_PAIRS * partners:
                for j in range(start, start + n):
                    if doc[j] != doc[i]:
                        partner[n_pairs] = j
                        n_pairs += 1
                continue
            # One partner from each of `partners` equal parts; judgments are sorted by document.
            offset, length = hash_uniform(seed, query, i), n / partners
            for k in range(partners):
                j = start + min(int((k + offset) * length), n - 1)
                partner[n_pairs] = j
                n_pairs += doc[j] != doc[i]
                offset = offset + GOLDEN if offset < 1.0 - GOLDEN else offset + (GOLDEN - 1.0)
    first[bounds[-1] - bounds[0]] = n_pairs


@njit(cache=True, nogil=True, fastmath=FUSED)
def exp_in_place(values: Floats, n: int, spare: Floats) -> None:
    """Replace the first `n` values by their exponentials, to 1e-14, in a form that the compiler vectorizes."""
    bits = spare.view(np.int64)
    for k in range(n):
        value = values[k]
        value = value if value > MIN_EXPONENT else MIN_EXPONENT
        value = value if value < MAX_EXPONENT else MAX_EXPONENT
        shifted = value * LOG2_E + ROUNDER
        spare[k] = shifted
        whole = shifted - ROUNDER
        part = (value - whole * LN2_HIGH) - whole * LN2_LOW
        power = TAYLOR[11]
        for term in range(10, -1, -1):
            power = power * part + TAYLOR[term]
        values[k] = power
    for k in range(n):  # the integer part as the exponent of a float
        bits[k] = (bits[k] + np.int64(1023)) << np.int64(52)
    for k in range(n):
        values[k] *= spare[k]


@njit(cache=True, nogil=True)
def gather(
    partner: Codes,
    start: int,
    end: int,
    by_judgment: Floats,
    own_variance: float,
    scale: float,
    all_pairs: bool,
    rows: Floats,
) -> int:
    """Write mark, precision factor and weight of up to LANES pairs; return the number of partners.

    With `own_variance` >= 0, relevance is uncertain, and the difference is taken one standard deviation above and below
    its mean: both if a group has all its pairs, in turns if partners are drawn. This gives expectations to the second
    order.
    """
    # by_judgment (n, 4): mark, precision factor, weight, variance of relevance
    both = own_variance >= 0.0 and all_pairs
    n = min(end - start, LANES // 2 if both else LANES)
    for copy in range(2 if both else 1):
        for k in range(copy * n, copy * n + n):
            j = partner[start + k - copy * n]
            rows[MARK * LANES + k] = by_judgment[j, 0]
            rows[FACTOR * LANES + k] = by_judgment[j, 1]
            rows[WEIGHT * LANES + k] = scale * by_judgment[j, 2] * (0.5 if both else 1.0)
            rows[SCRATCH * LANES + k] = by_judgment[j, 3]
    for k in range(2 * n if both else n, LANES):
        rows[MARK * LANES + k] = rows[FACTOR * LANES + k] = rows[WEIGHT * LANES + k] = 0.0
        rows[SCRATCH * LANES + k] = 0.0
    if own_variance >= 0.0:
        for k in range(LANES):
            rows[SCRATCH * LANES + k] = math.sqrt(rows[SCRATCH * LANES + k] + own_variance)
        for k in range(LANES):
            up = k < n if both else (start + k) % 2 == 0
            rows[MARK * LANES + k] += rows[SCRATCH * LANES + k] if up else -rows[SCRATCH * LANES + k]
    return n


@njit(cache=True, nogil=True, fastmath=FUSED)
def compare(
    place: float, mu: Floats, offset: Floats, factor: Floats, easier: float, given: int, rows: Floats, spare: Floats
) -> None:
    """Write P(grade) of LANES pairs (eq. 7), and the derivatives of log P(given grade)."""
    # mu, offset, factor (n_grades,)
    n_grades = len(mu)
    tilt, half, share = N_ROWS * LANES, (N_ROWS + n_grades) * LANES, (N_ROWS + 2 * n_grades) * LANES
    for h in range(n_grades):
        shift, own = place - mu[h], factor[h] * easier
        for k in range(LANES):
            off = shift - rows[MARK * LANES + k]
            slope = own * rows[FACTOR * LANES + k] * off
            rows[tilt + h * LANES + k] = slope
            rows[half + h * LANES + k] = 0.5 * slope * off
    for h in range(n_grades):
        more = offset[h] - offset[given]
        for k in range(LANES):
            rows[share + h * LANES + k] = more + rows[half + given * LANES + k] - rows[half + h * LANES + k]
    exp_in_place(rows[share:], n_grades * LANES, spare)
    for k in range(LANES):
        rows[TOTAL * LANES + k] = 0.0
    for h in range(n_grades):
        for k in range(LANES):
            rows[TOTAL * LANES + k] += rows[share + h * LANES + k]
    for k in range(LANES):
        rows[TOTAL * LANES + k] = 1.0 / rows[TOTAL * LANES + k]
    for h in range(n_grades):
        for k in range(LANES):
            rows[share + h * LANES + k] *= rows[TOTAL * LANES + k]


@njit(cache=True, nogil=True, fastmath=FUSED)
def covariance(left: int, right: int, mean: int, out: int, n_grades: int, rows: Floats) -> None:
    """Write mean of `left` and covariance of `left` and `right`, values of each grade, under P(grade)."""
    share = (N_ROWS + 2 * n_grades) * LANES
    for k in range(LANES):
        rows[mean * LANES + k] = rows[out * LANES + k] = rows[SCRATCH * LANES + k] = 0.0
    for h in range(n_grades):
        for k in range(LANES):
            part = rows[share + h * LANES + k] * rows[left + h * LANES + k]
            rows[mean * LANES + k] += part
            rows[out * LANES + k] += part * rows[right + h * LANES + k]
            rows[SCRATCH * LANES + k] += rows[share + h * LANES + k] * rows[right + h * LANES + k]
    for k in range(LANES):
        rows[out * LANES + k] -= rows[mean * LANES + k] * rows[SCRATCH * LANES + k]


@njit(cache=True, nogil=True, fastmath=FUSED)
def add_sums(
    partner: Codes, start: int, n: int, i: int, given: int, n_grades: int, with_widths: bool, rows: Floats, sums: Floats
) -> None:
    """Add derivatives by place and log width to the sums of judgment `i` and of its partners."""
    tilt, half = N_ROWS * LANES, (N_ROWS + n_grades) * LANES
    covariance(tilt, tilt, RISE, BEND, n_grades, rows)
    for k in range(LANES):
        weight = rows[WEIGHT * LANES + k]
        rows[RISE * LANES + k] = weight * (rows[RISE * LANES + k] - rows[tilt + given * LANES + k])
        rows[BEND * LANES + k] *= weight
    if with_widths:
        covariance(half, tilt, WIDER, BEND_BOTH, n_grades, rows)
        covariance(half, half, WIDER, BEND_WIDER, n_grades, rows)
        for k in range(LANES):
            weight = 0.5 * rows[WEIGHT * LANES + k]
            rows[WIDER * LANES + k] = weight * (rows[half + given * LANES + k] - rows[WIDER * LANES + k])
            rows[BEND_WIDER * LANES + k] *= 0.5 * weight
            rows[BEND_BOTH * LANES + k] *= -weight
    for k in range(LANES):
        if rows[WEIGHT * LANES + k] == 0.0:
            break
        j = partner[start + (k if k < n else k - n)]
        sums[i, SLOPE] += rows[RISE * LANES + k]
        sums[i, CURVE] += rows[BEND * LANES + k]
        sums[j, PARTNER + SLOPE] -= rows[RISE * LANES + k]
        sums[j, PARTNER + CURVE] += rows[BEND * LANES + k]
        if with_widths:
            sums[i, WIDTH_SLOPE] += rows[WIDER * LANES + k]
            sums[i, WIDTH_CURVE] += rows[BEND_WIDER * LANES + k]
            sums[j, PARTNER + WIDTH_SLOPE] += rows[WIDER * LANES + k]
            sums[j, PARTNER + WIDTH_CURVE] += rows[BEND_WIDER * LANES + k]
            sums[j, N_SUMS - 1] += rows[BEND_BOTH * LANES + k]


@njit(cache=True, nogil=True, fastmath=FUSED)
def add_assessor_terms(given: int, n_grades: int, stride: int, rows: Floats, slope: Floats, curve: Floats) -> None:
    """Add slope and expected curvature by the parameters of the assessor of the judgment that is explained.

    The curvature comes from every `stride`th pair; its lower triangle of blocks is written.
    """
    # slope (3 n_grades,), curve (3 n_grades, 3 n_grades): means, log weights, log widths
    tilt, half, share = N_ROWS * LANES, (N_ROWS + n_grades) * LANES, (N_ROWS + 2 * n_grades) * LANES
    for h in range(n_grades):
        by_mu = by_alpha = by_width = 0.0
        is_given = 1.0 if h == given else 0.0
        for k in range(LANES):
            rest = rows[WEIGHT * LANES + k] * (is_given - rows[share + h * LANES + k])
            by_mu += rest * rows[tilt + h * LANES + k]
            by_alpha += rest
            by_width += rest * (0.5 * rows[half + h * LANES + k] - 0.25)
        slope[h] += by_mu
        slope[n_grades + h] += by_alpha
        slope[2 * n_grades + h] += by_width
    for k in range(0, LANES, stride):
        if rows[WEIGHT * LANES + k] == 0.0:
            break
        weight = 0.0
        for other in range(k, k + stride):
            weight += rows[WEIGHT * LANES + other]
        for h in range(n_grades):
            mu_h, width_h = rows[tilt + h * LANES + k], 0.5 * rows[half + h * LANES + k] - 0.25
            for f in range(n_grades):
                joint = (1.0 if f == h else 0.0) - rows[share + f * LANES + k]
                joint *= weight * rows[share + h * LANES + k]
                mu_f, width_f = rows[tilt + f * LANES + k], 0.5 * rows[half + f * LANES + k] - 0.25
                curve[h, f] += joint * mu_h * mu_f
                curve[n_grades + h, f] += joint * mu_f
                curve[n_grades + h, n_grades + f] += joint
                curve[2 * n_grades + h, f] += joint * width_h * mu_f
                curve[2 * n_grades + h, n_grades + f] += joint * width_h
                curve[2 * n_grades + h, 2 * n_grades + f] += joint * width_h * width_f


@njit(cache=True, nogil=True)
def log_likelihood(share: int, rows: Floats) -> float:
    """Return the weighted sum of the logarithms of the row `share`; pairs of equal weight need one logarithm."""
    value, product = 0.0, 1.0
    for k in range(LANES):
        product *= rows[share + k]
        weight = rows[WEIGHT * LANES + k]
        if k == LANES - 1 or product < MIN_PRODUCT or rows[WEIGHT * LANES + k + 1] != weight:
            value += weight * math.log(product)
            product = 1.0
    return value


@njit(cache=True, nogil=True)
def pair_terms(
    first: Integers, partner: Codes, doc: Codes, assessor: Codes, grade: Grades, curves: Floats, by_judgment: Floats,
    place: Floats, log_eps: Floats, with_widths: bool, all_pairs: bool, sums: Floats, slope: Floats, curve: Floats,
) -> float:  # fmt: skip
    """Write the derivatives of the log likelihood of a query's pairs, each judgment in its weight (eq. 8).

    Args:
        first: index of the first partner of each position, and the end, (n + 1,).
        partner: positions of the partners, (n_pairs,).
        doc: document of each position, (n,).
        assessor: assessor of each position, (n,).
        grade: grade of each position, (n,).
        curves: mean, offset and precision factor of each grade, (n_assessors, 3, n_grades).
        by_judgment: mark, precision factor, weight and variance of each position, (n, 4).
        place: relevance of each document that explains its judgments, (n_items,).
        log_eps: log difficulty of each document, (n_items,).
        with_widths: compute derivatives by log width.
        all_pairs: whether judgments have all their partners, whose order then does not matter.
        sums: (n, N_SUMS), written.
        slope: slope by the assessors' parameters, (n_assessors, 3 n_grades), added to unless empty. The relevance of
            documents is then taken as uncertain.
        curve: expected curvature by these, (n_assessors, 3 n_grades, 3 n_grades), lower triangle, added to.

    Returns:
        The log likelihood, if slope is not empty.

    """
    n_grades, by_assessor, value = curves.shape[2], len(slope) > 0, 0.0
    rows, spare = np.zeros((N_ROWS + 3 * n_grades) * LANES), np.empty(n_grades * LANES)
    sums[:] = 0.0
    for i in range(len(doc)):
        start, end, d, a, given, total = first[i], first[i + 1], doc[i], assessor[i], grade[i], 0.0
        for pair in range(start, end):
            total += by_judgment[partner[pair], 2]
        easier = math.exp(-0.5 * log_eps[d])
        while start < end:
            scale, variance = by_judgment[i, 2] / total, by_judgment[i, 3] if by_assessor else -1.0
            n = gather(partner, start, end, by_judgment, variance, scale, all_pairs, rows)
            compare(place[d], curves[a, 0], curves[a, 1], curves[a, 2], easier, given, rows, spare)
            add_sums(partner, start, n, i, given, n_grades, with_widths, rows, sums)
            if by_assessor:
                value += log_likelihood((N_ROWS + 2 * n_grades + given) * LANES, rows)
                add_assessor_terms(given, n_grades, 1 if all_pairs else STRIDE, rows, slope[a], curve[a])
            start += n
    if by_assessor:
        for j in range(len(doc)):
            b, mu, width = assessor[j], grade[j], 2 * n_grades + grade[j]
            slope[b, mu] -= sums[j, PARTNER + SLOPE]
            slope[b, width] += sums[j, PARTNER + WIDTH_SLOPE]
            curve[b, mu, mu] += sums[j, PARTNER + CURVE]
            curve[b, width, width] += sums[j, PARTNER + WIDTH_CURVE]
            curve[b, width, mu] += sums[j, N_SUMS - 1]
    return value


@njit(cache=True, nogil=True)
def add_expert_terms(gold: Grades, relevance: Floats, expert: Floats, slope: Floats, curve: Floats) -> None:
    """Add slope and curvature of the log likelihood of expert grades, log softmax_g(expert[0, g] r + expert[1, g])."""
    # gold, relevance, slope, curve (n_items,); expert (2, n_grades)
    for d in range(len(gold)):
        if gold[d] >= 0:
            score = expert[0] * relevance[d] + expert[1]
            share = np.exp(score - score.max())
            share /= share.sum()
            mean = (share * expert[0]).sum()
            slope[d] += expert[0, gold[d]] - mean
            curve[d] += (share * (expert[0] - mean) ** 2).sum()


@njit(cache=True, nogil=True)
def locate(
    doc: Codes, assessor: Codes, grade: Grades, curves: Floats, mode: Floats, log_eps: Floats, variance: Floats,
    by_judgment: Floats,
) -> None:  # fmt: skip
    """Write mark, precision factor and variance of relevance of each position."""
    for i in range(len(doc)):
        a, g, d = assessor[i], grade[i], doc[i]
        by_judgment[i, 0] = mode[d] - curves[a, 0, g]
        by_judgment[i, 1] = curves[a, 2, g] * math.exp(-0.5 * log_eps[d])
        by_judgment[i, 3] = variance[d]


@njit(cache=True, nogil=True)
def move_documents(
    slope: Floats, curve: Floats, own_slope: Floats, own_curve: Floats, scale: float, place: Floats
) -> float:
    """Take a Newton step of each document and update `own_slope`; return the longest step, relative to `scale`."""
    longest = 0.0
    for d in range(len(place)):
        step = (slope[d] + own_slope[d]) / (curve[d] + own_curve[d])
        step = min(max(step, -MAX_STEP * scale), MAX_STEP * scale)
        place[d] += step
        own_slope[d] -= own_curve[d] * step
        longest = max(longest, abs(step) / scale)
    return longest


@njit(cache=True, nogil=True)
def update_modes(
    first: Integers, partner: Codes, doc: Codes, assessor: Codes, grade: Grades, gold: Grades, curves: Floats,
    expert: Floats, log_eps_precision: float, n_steps: int, by_judgment: Floats, sums: Floats, mode: Floats,
    log_eps: Floats, variance: Floats, no_slope: Floats, no_curve: Floats,
) -> None:  # fmt: skip
    """Take Newton steps of relevance (and log difficulty) to the mode of the posterior of all pairs (eq. 8).

    Only the diagonal of the curvature is used, enlarged because both documents of a pair move. Pairs depend on
    differences only: prior and expert grades determine the level of the query.
    """
    # by position (n,): first (n + 1,), doc, assessor, grade; of this query (n_items,): gold, mode, log_eps, variance
    n_items, with_eps = len(mode), log_eps_precision > 0.0
    pull, bend, own_slope, own_bend = np.empty(n_items), np.empty(n_items), np.empty(n_items), np.empty(n_items)
    eps_slope, eps_bend = np.empty(n_items), np.empty(n_items)
    for _ in range(n_steps):
        locate(doc, assessor, grade, curves, mode, log_eps, variance, by_judgment)
        pair_terms(
            first, partner, doc, assessor, grade, curves, by_judgment, mode, log_eps, with_eps, True, sums, no_slope,
            no_curve,
        )  # fmt: skip
        pull[:], bend[:] = 0.0, 0.0
        eps_slope[:], eps_bend[:] = -log_eps_precision * log_eps, log_eps_precision
        for i in range(len(doc)):
            d, joint = doc[i], 1.0 + 1.0 / max(first[i + 1] - first[i], 1)
            pull[d] += sums[i, SLOPE] + sums[i, PARTNER + SLOPE]
            bend[d] += joint * (sums[i, CURVE] + sums[i, PARTNER + CURVE])
            eps_slope[d] += sums[i, WIDTH_SLOPE] + sums[i, PARTNER + WIDTH_SLOPE]
            eps_bend[d] += 2.0 * (sums[i, WIDTH_CURVE] + sums[i, PARTNER + WIDTH_CURVE])
        own_slope[:], own_bend[:] = -mode, 1.0
        add_expert_terms(gold, mode, expert, own_slope, own_bend)
        variance[:] = 1.0 / (own_bend + bend)
        longest = move_documents(pull, bend, own_slope, own_bend, 1.0, mode)
        mode += own_slope.sum() / own_bend.sum()
        if with_eps:
            for d in range(n_items):
                step = min(max(eps_slope[d] / eps_bend[d], -MAX_STEP), MAX_STEP)
                log_eps[d] += step
                longest = max(longest, abs(step))
        if longest < SHORT_STEP:
            break


@njit(cache=True, nogil=True)
def update_relevance(
    first: Integers, partner: Codes, doc: Codes, assessor: Codes, grade: Grades, gold: Grades, curves: Floats,
    expert: Floats, unit: float, n_steps: int, by_judgment: Floats, sums: Floats, log_eps: Floats, relevance: Floats,
    information: Floats, precision: Floats, no_slope: Floats, no_curve: Floats,
) -> None:  # fmt: skip
    """Take Newton steps of each document's relevance given its own judgments, explained by their partners.

    Partners keep their marks, so that every judgment counts once, and documents are independent of each other.
    """
    n_items = len(relevance)
    pull, own_slope, own_bend = np.empty(n_items), np.empty(n_items), np.empty(n_items)
    for _ in range(n_steps):
        pair_terms(
            first, partner, doc, assessor, grade, curves, by_judgment, relevance, log_eps, False, True, sums, no_slope,
            no_curve,
        )  # fmt: skip
        pull[:], information[:] = 0.0, 0.0
        for i in range(len(doc)):
            pull[doc[i]] += sums[i, SLOPE]
            information[doc[i]] += sums[i, CURVE]
        own_slope[:], own_bend[:] = -relevance / unit**2, 1.0 / unit**2
        add_expert_terms(gold, relevance, np.stack((expert[0] / unit, expert[1])), own_slope, own_bend)
        precision[:] = own_bend
        if move_documents(pull, information, own_slope, own_bend, unit, relevance) < SHORT_STEP:
            break
    if n_steps > 0:
        relevance += own_slope.sum() / own_bend.sum()  # the level of the query


@njit(cache=True, nogil=True)
def sweep(
    order: Integers, item: Integers, groups: Integers, query_groups: Integers, query_items: Integers,
    query_number: Integers, assessor: Codes, grade: Grades, weight: Floats, gold: Grades, params: Floats,
    expert: Floats, unit: float, log_eps_precision: float, partners: int, seed: int, mode_steps: int,
    relevance_steps: int, mode: Floats, log_eps: Floats, variance: Floats, relevance: Floats, information: Floats,
    precision: Floats, slope: Floats, curve: Floats,
) -> float:  # fmt: skip
    """Update the documents of every query, then add slope and curvature by the assessors' parameters unless empty.

    Args:
        order: judgments by group, (n,).
        item: item of each judgment, (n,).
        groups: start of each group in `order`, and the end.
        query_groups: first group of each query, and the end.
        query_items: first item of each query, and the end.
        query_number: number of each query, for the draw of partners.
        assessor: assessor of each judgment, (n,).
        grade: grade of each judgment, (n,).
        weight: weight of each judgment, (n,).
        gold: expert grade of each item, or -1.
        params: mean, log weight and log width of each grade, (n_assessors, 3 n_grades).
        expert: slope and offset of the score of each expert grade, (2, n_grades).
        unit: prior standard deviation of `relevance`.
        log_eps_precision: prior precision of log difficulty; 0 keeps difficulty.
        partners: number of partners of a judgment in a large group.
        seed: seed of the partners.
        mode_steps: maximum number of Newton steps of the mode.
        relevance_steps: maximum number of Newton steps of relevance.
        mode: mode of the posterior of all pairs, (n_items,), changed.
        log_eps: log difficulty, (n_items,), changed.
        variance: variance at the mode, (n_items,), changed.
        relevance: relevance given a document's own judgments, (n_items,), changed.
        information: expected curvature of the log likelihood at `relevance`, (n_items,), written.
        precision: curvature of prior and expert grades there, (n_items,), written.
        slope: as `params`, added to unless empty.
        curve: (n_assessors, 3 n_grades, 3 n_grades), lower triangle, added to.

    Returns:
        The log likelihood of all pairs, if slope is not empty.

    """
    largest = 0
    for query in range(len(query_items) - 1):
        largest = max(largest, groups[query_groups[query + 1]] - groups[query_groups[query]])
    partner = np.empty(max_pairs(groups, query_groups, partners), np.int32)
    first, all_docs, all_sums = (
        np.empty(largest + 1, np.int64),
        np.empty(largest, np.int32),
        np.empty((largest, N_SUMS)),
    )
    assessors, grades, all_judgments = np.empty(largest, np.int32), np.empty(largest, np.int8), np.empty((largest, 4))
    n_grades = params.shape[1] // 3
    curves = np.empty((len(params), 3, n_grades))
    curves[:, 0], curves[:, 2] = params[:, :n_grades], np.exp(-0.5 * params[:, 2 * n_grades :])
    curves[:, 1] = params[:, n_grades : 2 * n_grades] - 0.25 * params[:, 2 * n_grades :]
    value = 0.0
    for query in range(len(query_items) - 1):
        start, stop = query_items[query], query_items[query + 1]
        bounds = groups[query_groups[query] : query_groups[query + 1] + 1]
        n = bounds[-1] - bounds[0]
        doc, who, given, by_judgment, sums = all_docs[:n], assessors[:n], grades[:n], all_judgments[:n], all_sums[:n]
        for i in range(n):
            judgment = order[bounds[0] + i]
            doc[i], who[i], given[i] = item[judgment] - start, assessor[judgment], grade[judgment]
            by_judgment[i, 2] = weight[judgment]
        draw_partners(doc, bounds, partners, seed, query_number[query], first, partner)
        here, known, eps = mode[start:stop], gold[start:stop], log_eps[start:stop]
        update_modes(
            first, partner, doc, who, given, known, curves, expert, log_eps_precision, mode_steps, by_judgment, sums,
            here, eps, variance[start:stop], slope[:0], curve[:0],
        )  # fmt: skip
        locate(doc, who, given, curves, here, eps, variance[start:stop], by_judgment)
        update_relevance(
            first, partner, doc, who, given, known, curves, expert, unit, relevance_steps, by_judgment, sums, eps,
            relevance[start:stop], information[start:stop], precision[start:stop], slope[:0], curve[:0],
        )  # fmt: skip
        if len(slope) > 0:
            all_pairs = np.diff(bounds).max() <= ALL_PAIRS * partners
            value += pair_terms(
                first, partner, doc, who, given, curves, by_judgment, here, eps, True, all_pairs, sums, slope, curve
            )
    return value
