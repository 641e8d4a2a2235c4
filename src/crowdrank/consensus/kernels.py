"""The passes over judgments. Each has an obvious NumPy reference in tests/consensus/."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from crowdrank._numba import njit

Kernel = Callable[..., Any]

SMALL = 1e-100  # below this a product is scaled up again; eight factors of 1e-16 fit between it and underflow
TINY = 1e-60  # below this a product of likelihoods goes into the logarithm; it times SMALL and eight factors still fits
UNSEEN = 1e-290  # the likelihood of what is all but impossible


@njit(cache=True, nogil=True)
def count_votes(offsets: NDArray[np.int64], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.float64]:
    """How many judgments give each item each grade."""
    # offsets (n_items + 1,), grade (n,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0
    return votes


@njit(cache=True, nogil=True)
def count_family_votes(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    family: NDArray[np.int32],
    n_grades: int,
) -> NDArray[np.float64]:
    """As count_votes, but each family has one vote per item, shared among its judgments."""
    # family (n_assessors,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    voices = np.zeros(family.max() + 1)
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            voices[family[assessor[j]]] += 1.0
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0 / voices[family[assessor[j]]]
        for j in range(offsets[item], offsets[item + 1]):
            voices[family[assessor[j]]] = 0.0
    return votes


@njit(cache=True, nogil=True)
def connect(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], gold: NDArray[np.int8], n_assessors: int
) -> NDArray[np.int64]:
    """The group of each assessor, by its lowest member, where a common item joins two; all expert grades are one's."""
    # gold (n_items,), -1 where there is none -> (n_assessors + 1,), the last being the expert
    parent = np.arange(n_assessors + 1)
    for item in range(len(offsets) - 1):
        first = n_assessors if gold[item] >= 0 else assessor[offsets[item]]
        for j in range(offsets[item], offsets[item + 1]):
            a, b = first, assessor[j]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            parent[max(a, b)] = min(a, b)
    for a in range(n_assessors + 1):
        parent[a] = parent[parent[a]]
    return parent


@njit(cache=True, nogil=True)
def count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, c] the expected number of items of grade c that assessor a gave g."""
    # posterior (n_items, n_grades); counts (n_assessors, n_grades, n_grades)
    n_grades = posterior.shape[1]
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            for c in range(n_grades):
                counts[assessor[j], grade[j], c] += posterior[item, c]


@cache
def expect_states(n_states: int) -> Kernel:
    """The E-step of a model with latent states, and the counts of its M-step, in one pass, compiled for their number.

    A state is a true grade (Dawid-Skene) or a point of the latent scale (latent traits). Per item a product of
    likelihoods, scaled up now and then: no logarithm per judgment, hardly one per item. The number of states is a
    constant to the compiler, which unrolls the loops over it: twice as fast.
    """

    @njit(cache=True, nogil=True)
    def expect(
        offsets: NDArray[np.int64],
        assessor: NDArray[np.int32],
        grade: NDArray[np.int8],
        gold: NDArray[np.int8],
        n_grades: int,
        shares: NDArray[np.float64],
        likelihood: NDArray[np.float64],
        gold_likelihood: NDArray[np.float64],
        posterior: NDArray[np.float64],
        counts: NDArray[np.float64],
        state_counts: NDArray[np.float64],
    ) -> float:
        # shares (n_states,); likelihood[a, g, s] = P(a says g | state s) and gold_likelihood[g, s], flat;
        # posterior (n_items, n_states), flat, is written; counts (as likelihood) and state_counts (n_states,) are
        # added to; returns the log likelihood
        product = np.empty(n_states)
        totals = np.zeros(n_states)
        total_log, pending = 0.0, 1.0  # the log likelihood is total_log + log(pending)
        for item in range(len(offsets) - 1):
            start, stop = offsets[item], offsets[item + 1]
            for s in range(n_states):
                product[s] = shares[s]
            for block in range(start, stop, 8):
                for j in range(block, min(block + 8, stop)):
                    # Unsigned, or the compiler guards against indices from the end.
                    cell = (uint64(assessor[j]) * uint64(n_grades) + uint64(grade[j])) * uint64(n_states)
                    for s in range(n_states):
                        product[s] *= likelihood[cell + uint64(s)]
                if block + 8 < stop and 0.0 < product.max() < SMALL:
                    highest = product.max()
                    total_log += np.log(highest)
                    for s in range(n_states):
                        product[s] /= highest
            if gold[item] >= 0:
                cell = uint64(gold[item]) * uint64(n_states)
                for s in range(n_states):
                    # What the crowd takes for impossible is possible if an expert says so.
                    product[s] = max(product[s], UNSEEN) * gold_likelihood[cell + uint64(s)]
            norm = 0.0
            for s in range(n_states):
                norm += product[s]
            if norm == 0.0:  # impossible in every state: the judgments say nothing about the item
                for s in range(n_states):
                    product[s] = UNSEEN
                norm = n_states * UNSEEN
            for s in range(n_states):
                product[s] *= 1.0 / norm
            if pending < TINY or norm < TINY:
                total_log += np.log(pending)
                pending = 1.0
            pending *= norm
            for s in range(n_states):
                posterior[item * n_states + s] = product[s]
                totals[s] += product[s]
            for j in range(start, stop):
                cell = (uint64(assessor[j]) * uint64(n_grades) + uint64(grade[j])) * uint64(n_states)
                for s in range(n_states):
                    counts[cell + uint64(s)] += product[s]
        for s in range(n_states):
            state_counts[s] += totals[s]
        return float(total_log + np.log(pending))

    return cast(Kernel, expect)


@njit(cache=True, nogil=True)
def voices(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], family: NDArray[np.int32], correlation: float
) -> NDArray[np.float64]:
    """What each judgment counts: n judgments of one family on an item count as n / (1 + (n - 1) correlation)."""
    # family (n_assessors,) -> (n,)
    weight, members = np.empty(len(assessor)), np.zeros(family.max() + 1)
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] += 1.0
        for j in range(offsets[item], offsets[item + 1]):
            weight[j] = 1.0 / (1.0 + (members[family[assessor[j]]] - 1.0) * correlation)
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] = 0.0
    return weight


@njit(cache=True, nogil=True)
def expect_weighted(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    shares: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """As expect_states, where a judgment's likelihood is raised to its weight; the counts are of whole judgments."""
    # weight (n,); shares, state_counts (n_states,); log_likelihood, counts (n_assessors, n_grades, n_states);
    # gold_likelihood (n_grades, n_states); posterior (n_items, n_states)
    n_states = len(shares)
    scores, total = np.empty(n_states), 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        for s in range(n_states):
            scores[s] = np.log(shares[s])
        for j in range(start, stop):
            for s in range(n_states):
                scores[s] += weight[j] * log_likelihood[assessor[j], grade[j], s]
        if gold[item] >= 0:
            for s in range(n_states):
                scores[s] += np.log(gold_likelihood[gold[item], s])
        highest, norm = scores.max(), 0.0
        for s in range(n_states):
            posterior[item, s] = np.exp(scores[s] - highest)
            norm += posterior[item, s]
        total += highest + np.log(norm)
        for s in range(n_states):
            posterior[item, s] /= norm
            state_counts[s] += posterior[item, s]
        for j in range(start, stop):
            for s in range(n_states):
                counts[assessor[j], grade[j], s] += posterior[item, s]
    return float(total)


@njit(cache=True, nogil=True)
def confusions(counts: NDArray[np.float64], pseudo: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """P(assessor says g | true grade c) from counts and pseudo-counts; without these, as crowd-kit has it.

    That is: no count below `floor`, and only the answers that the assessor ever gave share the probability.
    """
    # counts (n_assessors, n_grades, n_grades) as [a, g, c], pseudo (n_grades, n_grades) -> as counts
    n_assessors, n_grades, _ = counts.shape
    plain = not pseudo.any()
    out = np.empty_like(counts)
    for a in range(n_assessors):
        for g in range(n_grades):
            used = False
            for c in range(n_grades):
                used |= counts[a, g, c] > 0.0
            for c in range(n_grades):
                least = floor if plain and used else 0.0
                out[a, g, c] = max(counts[a, g, c] + pseudo[g, c], least)
        for c in range(n_grades):
            total = 0.0
            for g in range(n_grades):
                total += out[a, g, c]
            for g in range(n_grades):
                out[a, g, c] /= total
    return out


@njit(cache=True, nogil=True)
def count_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer: NDArray[np.int8],
    agreed: NDArray[np.float64],
    asked: NDArray[np.float64],
) -> None:
    """Add, per assessor, how many items with an answer (>= 0) were judged, and how many as the answer says."""
    # answer (n_items,); agreed, asked (n_assessors,)
    for item in range(len(offsets) - 1):
        if answer[item] < 0:
            continue
        for j in range(offsets[item], offsets[item + 1]):
            asked[assessor[j]] += 1.0
            if grade[j] == answer[item]:
                agreed[assessor[j]] += 1.0


@njit(cache=True, nogil=True)
def digamma(x: float) -> float:
    """The derivative of log gamma for x > 0, to 1e-12: up to 8 eight steps of its recurrence, then a series.

    The steps are the sum of 1 / (x + i), i = 0..7, which is one fraction: the divisions would take most of the time.
    """
    below = 0.0
    if x < 8.0:
        # x (x + 7), (x + 1) (x + 6), ... differ by constants, and 1 / x + 1 / (x + 7) = (2 x + 7) / (x (x + 7)).
        a = x * (x + 7.0)
        b, c, d = a + 6.0, a + 10.0, a + 12.0
        below = (2.0 * x + 7.0) * ((a + b) * c * d + a * b * (c + d)) / (a * b * c * d)
        x += 8.0
    r = 1.0 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    return float(np.log(x) - 0.5 / x - series - below)


@njit(cache=True, nogil=True)
def dirichlet_sums(
    counts: NDArray[np.float64], pseudo: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two sums of Minka's fixed point: over assessors, of digamma(count + pseudo) - digamma(pseudo)."""
    # counts (n_assessors, n_answers, n_true), pseudo (n_answers, n_true) -> (n_answers, n_true), (n_true,)
    n_assessors, n_answers, n_true = counts.shape
    seen, asked, total = np.zeros((n_answers, n_true)), np.zeros(n_true), np.empty(n_true)
    strength, floor, floors = np.zeros(n_true), np.empty((n_answers, n_true)), np.empty(n_true)
    for c in range(n_true):
        for g in range(n_answers):
            strength[c] += pseudo[g, c]
            floor[g, c] = digamma(pseudo[g, c])
        floors[c] = digamma(strength[c])
    for a in range(n_assessors):
        total[:] = 0.0
        for g in range(n_answers):
            for c in range(n_true):
                count = counts[a, g, c]
                total[c] += count
                if count > 0.0:
                    seen[g, c] += digamma(count + pseudo[g, c]) - floor[g, c]
        for c in range(n_true):
            asked[c] += digamma(total[c] + strength[c]) - floors[c]
    return seen, asked


@njit(cache=True, nogil=True)
def dirichlet_step(
    pseudo: NDArray[np.float64], seen: NDArray[np.float64], asked: NDArray[np.float64], lowest: float, highest: float
) -> tuple[NDArray[np.float64], float]:
    """Return the next pseudo-counts of Minka's fixed point and their largest relative change."""
    # pseudo, seen (n_answers, n_true), asked (n_true,) -> as pseudo, float
    n_answers, n_true = pseudo.shape
    after, change = np.empty((n_answers, n_true)), 0.0
    for g in range(n_answers):
        for c in range(n_true):
            after[g, c] = min(max(pseudo[g, c] * seen[g, c] / asked[c], lowest), highest)
            change = max(change, abs(after[g, c] / pseudo[g, c] - 1.0))
    return after, change


@njit(cache=True, nogil=True)
def summarize(
    posterior: NDArray[np.float64], values: NDArray[np.float64], tail: float, tie: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]:
    """Mean, standard deviation, lower and upper quantile and modal grade of each item's posterior."""
    # posterior (n_items, n_grades), values (n_grades,) -> (n_items,) each
    n_items, n_grades = posterior.shape
    mean, sd = np.empty(n_items), np.empty(n_items)
    lower, upper = np.empty(n_items), np.empty(n_items)
    mode = np.empty(n_items, np.int8)
    for item in range(n_items):
        m, highest = 0.0, 0.0
        for c in range(n_grades):
            m += posterior[item, c] * values[c]
            highest = max(highest, posterior[item, c])
        spread, below, n_tied = 0.0, 0.0, 0
        low, high = n_grades - 1, n_grades - 1
        for c in range(n_grades):
            spread += posterior[item, c] * (values[c] - m) ** 2
            if below <= tail + tie and below + posterior[item, c] > tail + tie:
                low = c
            if below < 1.0 - tail - tie and below + posterior[item, c] >= 1.0 - tail - tie:
                high = c
            below += posterior[item, c]
            n_tied += posterior[item, c] >= highest - tie
        # Of m tied grades, from most to least relevant, the one at ceil(m / 2).
        to_pass = (n_tied + 1) // 2
        chosen = n_grades
        while to_pass > 0:
            chosen -= 1
            to_pass -= posterior[item, chosen] >= highest - tie
        mean[item], sd[item], mode[item] = m, np.sqrt(spread), chosen
        # The mean of a grade that is all but certain lies just outside it: the interval holds both.
        lower[item], upper[item] = min(values[low], m), max(values[high], m)
    return mean, sd, lower, upper, mode


@njit(cache=True, nogil=True)
def logistic_weight(x: float, q: float) -> float:
    """The curvature of Jaakkola and Jordan's bound of log sigma at x, tanh(x / 2) / (2 x); q = exp(-|x|)."""
    size = abs(x)
    return 0.25 - size * size / 48.0 if size < 1e-3 else (1.0 - q) / (1.0 + q) / (2.0 * size)


@njit(cache=True, nogil=True)
def believe(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: int,
    ability: NDArray[np.float64],
    beta: float,
    belief: NDArray[np.float64],
) -> float:
    """GLAD's posterior of one item's true grade, and its log likelihood.

    A judgment multiplies the odds of its own grade by (G - 1) exp(ability exp(beta)): the sums need no exponential per
    judgment, and the likelihood of the rest, 1 / (1 + exp(x)), is gathered as a product.
    """
    # belief (n_grades,) is written
    n_grades = len(belief)
    ease, log_others = np.exp(beta), np.log(n_grades - 1.0)
    belief[:] = -np.log(n_grades)
    total_log, pending = 0.0, 1.0
    for j in range(start, stop):
        x = ability[assessor[j]] * ease
        belief[grade[j]] += x + log_others
        total_log -= max(x, 0.0) + log_others
        pending *= 1.0 + np.exp(-abs(x))
        if pending > 1e200:
            total_log -= np.log(pending)
            pending = 1.0
    total_log -= np.log(pending)
    if gold >= 0:
        total_log += belief[gold]
        belief[:] = 0.0
        belief[gold] = 1.0
        return float(total_log)
    highest, norm = belief.max(), 0.0
    for c in range(n_grades):
        belief[c] = np.exp(belief[c] - highest)
        norm += belief[c]
    for c in range(n_grades):
        belief[c] /= norm
    return float(total_log + highest + np.log(norm))


@njit(cache=True, nogil=True)
def ease_item(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: float,
    belief: NDArray[np.float64],
) -> float:
    """A better beta (log of the item's easiness) for fixed abilities and belief.

    Climbs Jaakkola and Jordan's quadratic bound of the logistic terms, linear * t - quadratic * t**2 / 2 in t =
    exp(beta), plus the normal prior of mean 1 and variance 1: never a step down.
    """
    linear, quadratic = 0.0, 0.0
    ease = np.exp(beta)
    for j in range(start, stop):
        a = ability[assessor[j]]
        x = a * ease
        linear += (belief[grade[j]] - 0.5) * a
        quadratic += logistic_weight(x, np.exp(-abs(x))) * a * a
    best = linear * ease - 0.5 * quadratic * ease * ease - 0.5 * (beta - 1.0) ** 2
    at = beta
    for _ in range(8):
        t = np.exp(at)
        slope = linear * t - quadratic * t * t - (at - 1.0)
        curvature = max(2.0 * quadratic * t * t - linear * t + 1.0, 1.0)
        step = min(max(slope / curvature, -1.0), 1.0)
        at += step
        if abs(step) < 1e-9:
            break
    t = np.exp(at)
    # Near the top differences of heights are rounding, and tell nothing of the place.
    best -= 1e-12 * max(1.0, abs(best))
    return at if linear * t - 0.5 * quadratic * t * t - 0.5 * (at - 1.0) ** 2 >= best else beta


@njit(cache=True, nogil=True)
def expect_abilities(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: NDArray[np.float64],
    new_beta: NDArray[np.float64],
    posterior: NDArray[np.float64],
    linear: NDArray[np.float64],
    quadratic: NDArray[np.float64],
) -> float:
    """One pass of GLAD: posteriors, better betas, and the bound's terms per assessor; returns the log posterior."""
    # ability, linear, quadratic (n_assessors,); beta, new_beta (n_items,); posterior (n_items, n_grades)
    total_log = 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        belief = posterior[item]
        total_log += believe(start, stop, assessor, grade, gold[item], ability, beta[item], belief)
        total_log -= 0.5 * (beta[item] - 1.0) ** 2
        new_beta[item] = ease_item(start, stop, assessor, grade, ability, beta[item], belief)
        ease = np.exp(new_beta[item])
        for j in range(start, stop):
            a = assessor[j]
            x = ability[a] * ease
            linear[a] += (belief[grade[j]] - 0.5) * ease
            quadratic[a] += logistic_weight(x, np.exp(-abs(x))) * ease * ease
    return total_log


@njit(cache=True, nogil=True)
def settle_items(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: NDArray[np.float64],
    posterior: NDArray[np.float64],
) -> None:
    """Each item's posterior and beta at rest, for fixed abilities, from the prior's mean: what GLAD reports."""
    # beta (n_items,) and posterior (n_items, n_grades) are written
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        at = 1.0
        for _ in range(500):
            believe(start, stop, assessor, grade, gold[item], ability, at, posterior[item])
            before, at = at, ease_item(start, stop, assessor, grade, ability, at, posterior[item])
            if abs(at - before) < 1e-10:
                break
        believe(start, stop, assessor, grade, gold[item], ability, at, posterior[item])
        beta[item] = at


@njit(cache=True, nogil=True)
def weigh_grades(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    worth: NDArray[np.float64],
    middle: float,
    pull: float,
    precision: NDArray[np.float64],
    bias: NDArray[np.float64],
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
) -> None:
    """Each item's normal posterior from grades weighted by precision, and what is left over per assessor.

    The prior of an item is normal with mean `middle` and precision `pull`; an expert grade is certain.
    """
    # worth (n_grades,); precision, bias (n_assessors,); mean, variance (n_items,) are written; to first and second
    # (n_assessors,) the expected deviation of the grade from the item's mean and its square are added
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        weight, total = pull, pull * middle
        for j in range(start, stop):
            weight += precision[assessor[j]]
            total += precision[assessor[j]] * (worth[grade[j]] - bias[assessor[j]])
        mean[item], variance[item] = total / weight, 1.0 / weight
        if gold[item] >= 0:
            mean[item], variance[item] = worth[gold[item]], 0.0
        for j in range(start, stop):
            off = worth[grade[j]] - mean[item]
            first[assessor[j]] += off
            second[assessor[j]] += off * off + variance[item]


@njit(cache=True, nogil=True)
def predict_left_out(
    posterior: NDArray[np.float64],
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> NDArray[np.float64]:
    """P(each answer) of every judgment from the other judgments on its item: its own factor is divided out."""
    # posterior (n_items, n_states); item, assessor, grade, weight (n,); likelihood (n_assessors, n_answers, n_states)
    _, n_answers, n_states = likelihood.shape
    out = np.zeros((len(item), n_answers))
    for j in range(len(item)):
        norm = 0.0
        for s in range(n_states):
            rest = posterior[item[j], s] / max(likelihood[assessor[j], grade[j], s], 1e-12) ** weight[j]
            norm += rest
            for g in range(n_answers):
                out[j, g] += rest * likelihood[assessor[j], g, s]
        for g in range(n_answers):
            out[j, g] /= norm
    return out


@njit(cache=True, nogil=True)
def expect_agreement(
    posterior: NDArray[np.float64],
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The probability that two judgments on an item agree, from the other judgments on it."""
    # item, one, other (n_pairs,): judgments `one` and `other` are on `item`
    _, n_answers, n_states = likelihood.shape
    out = np.zeros(len(one))
    for pair in range(len(one)):
        a, b = assessor[one[pair]], assessor[other[pair]]
        g, h = grade[one[pair]], grade[other[pair]]
        norm, agree = 0.0, 0.0
        for s in range(n_states):
            rest = posterior[item[pair], s] / max(likelihood[a, g, s], 1e-12) ** weight[one[pair]]
            rest /= max(likelihood[b, h, s], 1e-12) ** weight[other[pair]]
            norm += rest
            for answer in range(n_answers):
                agree += rest * likelihood[a, answer, s] * likelihood[b, answer, s]
        out[pair] = agree / norm
    return out


@njit(cache=True, nogil=True)
def threshold_shares(
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    state: int,
    scores: NDArray[np.float64],
    falls: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> float:
    """Write one assessor's probabilities of the answers in one state of the Rasch model; return their normalizer.

    The score of answer g is rise[g, state] + scores[g], and exp(score) is growth[g, state] * falls[g]: `scores` and
    `falls` are written in the first state of each difficulty, and serve all states of it. States are taken in order.
    """
    # thresholds (n_answers - 1,); rise, growth = exp(rise) (n_answers, n_states); ease (n_states,);
    # scores, falls, shares (n_answers,)
    n_answers = len(scores)
    if state == 0 or ease[state] != ease[state - 1]:
        scores[0] = highest = 0.0
        for g in range(1, n_answers):
            scores[g] = scores[g - 1] - ease[state] * thresholds[g - 1]
            highest = max(highest, scores[g])
        for g in range(n_answers):
            scores[g] -= highest
            falls[g] = np.exp(scores[g])
    total = 0.0
    for g in range(n_answers):
        shares[g] = growth[g, state] * falls[g]
        total += shares[g]
    if total < SMALL:  # no answer is likely by both factors: their product may have been rounded to 0
        highest = -np.inf
        for g in range(n_answers):
            highest = max(highest, rise[g, state] + scores[g])
        total = 0.0
        for g in range(n_answers):
            shares[g] = np.exp(rise[g, state] + scores[g] - highest)
            total += shares[g]
        for g in range(n_answers):
            shares[g] /= total
        return float(highest + np.log(total))
    for g in range(n_answers):
        shares[g] /= total
    return float(np.log(total))


@njit(cache=True, nogil=True)
def fill_threshold_curves(
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    curves: NDArray[np.float64],
) -> None:
    """Write P(answer | state) of every assessor of the Rasch model."""
    # curves (n_assessors, n_answers, n_states)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            for g in range(n_answers):
                curves[a, g, s] = shares[g]


@njit(cache=True, nogil=True)
def threshold_gains(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    chosen: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the expected log likelihood of the answers of the chosen assessors."""
    # counts (n_assessors, n_answers, n_states), thresholds (len(chosen), n_answers - 1) -> (len(chosen),)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    gains = np.zeros(len(chosen))
    for i in range(len(chosen)):
        for s in range(n_states):
            log_total = threshold_shares(thresholds[i], rise, growth, ease, s, scores, falls, shares)
            for g in range(n_answers):
                gains[i] += counts[chosen[i], g, s] * (rise[g, s] + scores[g] - log_total)
    return gains


@njit(cache=True, nogil=True)
def threshold_derivatives(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    slope: NDArray[np.float64],
    curvature: NDArray[np.float64],
) -> None:
    """Add gradient and negative Hessian of the expected log likelihood in each assessor's thresholds."""
    # slope (n_assessors, n_answers - 1), curvature (n_assessors, n_answers - 1, n_answers - 1)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    higher = np.empty(n_answers)  # P(this answer or a higher one)
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            total = 0.0
            for g in range(n_answers):
                total += counts[a, g, s]
            weight, above, excess = total * ease[s] ** 2, 0.0, 0.0
            for g in range(n_answers - 1, 0, -1):
                above += shares[g]
                higher[g] = above
                excess += counts[a, g, s] - total * shares[g]
                slope[a, g - 1] -= ease[s] * excess
            for h in range(1, n_answers):
                for k in range(1, n_answers):
                    curvature[a, h - 1, k - 1] += weight * (higher[max(h, k)] - higher[h] * higher[k])


@njit(cache=True, nogil=True)
def scale_derivatives(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    places: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return first and negative second derivative of each assessor's expected log likelihood in the scale."""
    # places (n_states,) -> (n_assessors,), (n_assessors,)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    slope, curvature = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            total, given, expected, square = 0.0, 0.0, 0.0, 0.0
            for g in range(n_answers):
                total += counts[a, g, s]
                given += g * counts[a, g, s]
                expected += g * shares[g]
                square += g * g * shares[g]
            slope[a] += (given - total * expected) * places[s]
            curvature[a] += total * (square - expected**2) * places[s] ** 2
    return slope, curvature
