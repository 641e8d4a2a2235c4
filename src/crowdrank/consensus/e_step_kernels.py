"""Kernels of the E-step, each compiled by numba and, for small arrays, in NumPy; `e_step.py` chooses among them.

In the order of the file: labels alone (`expect_states`, products of likelihoods), labels with weights or a prior per
item (`weighted_e_step`, sums of logarithms), soft labels (`soft_e_step`); each before the next has the counts that it
needs. Each has an obvious NumPy reference in tests/consensus/.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import Kernel, njit, with_item
from crowdrank.engine.shards import items_of

MAX_IN_REGISTERS = 8
"""Maximum number of states whose probabilities are kept in registers."""
SMALL_PASS = 1 << 18
"""Number of array elements below which a pass over judgments uses NumPy."""

SMALL = 1e-100  # below this a product is scaled up again; eight factors of 1e-16 fit between it and underflow
TINY = 1e-60  # below this a product of likelihoods goes into the logarithm; it times SMALL and eight factors still fits
UNSEEN = 1e-290  # the likelihood of what is all but impossible


def _count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    n_grades = counts.shape[1]
    _add_counts(items_of(offsets), _cells(assessor, grade, n_grades), np.ascontiguousarray(posterior.T), counts)


@njit(nogil=True, numpy=_count_confusions, small=SMALL_PASS)
def count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, c] the expected number of items of grade c that assessor a gave g."""
    # posterior (n_items, n_grades); counts (n_assessors, n_grades, n_grades)
    n_states = posterior.shape[1]
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            a, g = np.uint64(assessor[j]), np.uint64(grade[j])  # signed indices are compared with 0 first
            for c in range(n_states):
                counts[a, g, c] += posterior[item, c]


def _expect(
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
    # In logarithms, because a product of all likelihoods would underflow. NumPy is fastest along the items.
    n_states, known, sizes = len(shares), np.flatnonzero(gold >= 0), np.diff(offsets)
    item, cell = items_of(offsets), _cells(assessor, grade, n_grades)
    with np.errstate(divide="ignore"):
        logs, log_gold, log_shares = (
            np.log(np.ascontiguousarray(one.reshape(-1, n_states).T)) for one in (likelihood, gold_likelihood, shares)
        )
    scores = _sum_by(item, logs, cell, len(sizes))
    scores += log_shares
    if len(known):
        highest = scores[:, known].max(axis=0)
        floor = np.where((sizes[known] > 8) & (highest < np.log(SMALL)), highest, 0.0) + np.log(UNSEEN)
        scores[:, known] = np.maximum(scores[:, known], floor) + log_gold[:, gold[known]]
    scores[:, np.isneginf(scores.max(axis=0))] = np.log(UNSEEN)
    return _normalize(item, cell, scores, posterior, counts.reshape(-1, n_grades, n_states), state_counts)


def _normalize(
    item: NDArray[np.int64],
    cell: NDArray[np.int64],
    scores: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """Write the posteriors of the log probabilities `scores`, add to the counts, and return the log likelihood.

    `scores`, (n_states, n_items), is overwritten to avoid temporary arrays, whose memory the system would clear first.
    """
    # item, cell (n,) of the judgments
    by_item, highest = posterior.reshape(scores.shape[::-1]), scores.max(axis=0)
    scores -= highest
    np.exp(scores, out=scores)
    by_item[:] = scores.T
    norm = by_item.sum(axis=1)
    scores /= norm
    by_item[:] = scores.T
    state_counts += by_item.sum(axis=0)
    _add_counts(item, cell, scores, counts)
    return float((highest + np.log(norm)).sum())


def _cells(assessor: NDArray[np.int32], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.int64]:
    """Return the index of each judgment's assessor and grade in a flat table of both."""
    return assessor.astype(np.int64) * n_grades + grade


def _add_counts(
    item: NDArray[np.int64], cell: NDArray[np.int64], posterior: NDArray[np.float64], counts: NDArray[np.float64]
) -> None:
    """Add the posteriors (n_states, n_items) of the judgments' items to counts (n_assessors, n_grades, n_states)."""
    n_assessors, n_grades, n_states = counts.shape
    counts.reshape(-1, n_states)[:] += _sum_by(cell, posterior, item, n_assessors * n_grades).T


def _sum_by(
    group: NDArray[np.int64], table: NDArray[np.float64], column: NDArray[np.int64], n_groups: int
) -> NDArray[np.float64]:
    """Return the sum of the columns of a table that the judgments of each group refer to, (n_rows, n_groups)."""
    sums = np.empty((len(table), n_groups))
    for total, row in zip(sums, table, strict=True):
        total[:] = np.bincount(group, row.take(column), minlength=n_groups)
    return sums


@cache
def expect_states(n_states: int) -> Kernel:
    """Return the kernel for the E-step of a model with this many states, which also counts for the M-step.

    A state is a true grade (Dawid-Skene) or a point of the latent scale (latent traits). The kernel multiplies
    likelihoods and rescales rarely, so that it takes about one logarithm per item. The number of states is a constant
    for the compiler, which unrolls the loops over it: twice as fast. Those of a few states are in registers.
    """
    if n_states <= MAX_IN_REGISTERS:
        return _expect_in_registers((0.0,) * n_states)

    @njit(nogil=True, numpy=_expect, small=SMALL_PASS)
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
                    cell = (np.uint64(assessor[j]) * np.uint64(n_grades) + np.uint64(grade[j])) * np.uint64(n_states)
                    for s in range(n_states):
                        product[s] *= likelihood[cell + np.uint64(s)]
                if block + 8 < stop:
                    highest = 0.0
                    for s in range(n_states):
                        highest = max(highest, product[s])
                    if 0.0 < highest < SMALL:
                        total_log += np.log(highest)
                        for s in range(n_states):
                            product[s] /= highest
            if gold[item] >= 0:
                cell = np.uint64(gold[item]) * np.uint64(n_states)
                for s in range(n_states):
                    # What the crowd takes for impossible is possible if an expert says so.
                    product[s] = max(product[s], UNSEEN) * gold_likelihood[cell + np.uint64(s)]
            norm = 0.0
            for s in range(n_states):
                norm += product[s]
            if norm == 0.0:  # impossible in every state: the judgments say nothing about the item
                for s in range(n_states):
                    product[s] = UNSEEN
                norm = n_states * UNSEEN
            scale = 1.0 / norm
            for s in range(n_states):
                product[s] *= scale
            if pending < TINY or norm < TINY:
                total_log += np.log(pending)
                pending = 1.0
            pending *= norm
            for s in range(n_states):
                posterior[item * n_states + s] = product[s]
                totals[s] += product[s]
            for j in range(start, stop):
                cell = (np.uint64(assessor[j]) * np.uint64(n_grades) + np.uint64(grade[j])) * np.uint64(n_states)
                for s in range(n_states):
                    counts[cell + np.uint64(s)] += product[s]
        for s in range(n_states):
            state_counts[s] += totals[s]
        return float(total_log + np.log(pending))

    return expect


def _expect_in_registers(zeros: tuple[float, ...]) -> Kernel:
    """Return the kernel of `expect_states` for a few states: the same, with tuples in the place of arrays."""
    n_states = len(zeros)

    @njit(nogil=True, numpy=_expect, small=SMALL_PASS)
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
        totals, prior, total_log, pending = zeros, zeros, 0.0, 1.0
        for s in range(n_states):
            prior = with_item(prior, s, shares[s])
        for item in range(len(offsets) - 1):
            start, stop, p = offsets[item], offsets[item + 1], prior
            for block in range(start, stop, 8):
                for j in range(block, min(block + 8, stop)):
                    cell = (np.uint64(assessor[j]) * np.uint64(n_grades) + np.uint64(grade[j])) * np.uint64(n_states)
                    for s in range(n_states):
                        p = with_item(p, s, p[s] * likelihood[cell + np.uint64(s)])
                if block + 8 < stop:
                    highest = 0.0
                    for s in range(n_states):
                        highest = max(highest, p[s])
                    if 0.0 < highest < SMALL:
                        total_log += np.log(highest)
                        for s in range(n_states):
                            p = with_item(p, s, p[s] / highest)
            if gold[item] >= 0:
                cell = np.uint64(gold[item]) * np.uint64(n_states)
                for s in range(n_states):
                    p = with_item(p, s, max(p[s], UNSEEN) * gold_likelihood[cell + np.uint64(s)])
            norm = 0.0
            for s in range(n_states):
                norm += p[s]
            if norm == 0.0:
                for s in range(n_states):
                    p = with_item(p, s, UNSEEN)
                norm = n_states * UNSEEN
            scale = 1.0 / norm
            for s in range(n_states):
                p = with_item(p, s, p[s] * scale)
                posterior[item * n_states + s] = p[s]
                totals = with_item(totals, s, totals[s] + p[s])
            if pending < TINY or norm < TINY:
                total_log += np.log(pending)
                pending = 1.0
            pending *= norm
            for j in range(start, stop):
                cell = (np.uint64(assessor[j]) * np.uint64(n_grades) + np.uint64(grade[j])) * np.uint64(n_states)
                for s in range(n_states):
                    counts[cell + np.uint64(s)] += p[s]
        for s in range(n_states):
            state_counts[s] += totals[s]
        return float(total_log + np.log(pending))

    return expect


def _weighted_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    (n_items, n_states), known = posterior.shape, gold >= 0
    item, cell = items_of(offsets), _cells(assessor, grade, log_likelihood.shape[1])
    logs = np.ascontiguousarray(log_likelihood.reshape(-1, n_states).T).take(cell, axis=1) * weight
    scores = _sum_by(item, logs, np.arange(len(item)), n_items)
    scores += log_prior.T
    with np.errstate(divide="ignore"):
        scores[:, known] += np.log(gold_likelihood[gold[known]]).T
    return _normalize(item, cell, scores, posterior, counts, state_counts)


@njit(nogil=True, numpy=_weighted_e_step, small=SMALL_PASS)
def weighted_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """As expect_states, where a judgment's likelihood is raised to its weight; the counts are of whole judgments.

    The prior is the same for all items (one row), or one per item.
    """
    # weight (n,); log_prior (1 or n_items, n_states); state_counts (n_states,); log_likelihood, counts (n_assessors,
    # n_grades, n_states); gold_likelihood (n_grades, n_states); posterior (n_items, n_states)
    n_priors, n_states = log_prior.shape
    scores, total = np.empty(n_states), 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        for s in range(n_states):
            scores[s] = log_prior[min(item, n_priors - 1), s]
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


def _mix_answers(
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    share: NDArray[np.float64],
    judgment: NDArray[np.int64],
    relative: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the terms of the answers, the first answer of each judgment, and the sums of the terms of judgments."""
    terms = share[:, None] * relative[assessor, grade]
    first = np.flatnonzero(np.diff(judgment, prepend=-1))
    return terms, first, np.add.reduceat(terms, first, axis=0) if len(first) else terms


def _count_soft_answers(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    share: NDArray[np.float64],
    judgment: NDArray[np.int64],
    relative: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    terms, first, mixed = _mix_answers(assessor, grade, share, judgment, relative)
    total = np.repeat(mixed, np.diff(first, append=len(judgment)), axis=0)
    part = np.divide(terms, total, out=np.repeat(share[:, None], terms.shape[1], axis=1), where=total > 0.0)
    np.add.at(counts, (assessor, grade), part * posterior[items_of(offsets)])


def _soft_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    share: NDArray[np.float64],
    judgment: NDArray[np.int64],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    relative: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    _, first, mixed = _mix_answers(assessor, grade, share, judgment, relative)
    is_whole = np.diff(first, append=len(judgment)) == 1
    logs = np.log(np.maximum(mixed, UNSEEN))
    logs[is_whole] = log_likelihood[assessor[first[is_whole]], grade[first[is_whole]]]
    scores, known = np.tile(log_prior, (len(posterior) // len(log_prior), 1)), gold >= 0
    np.add.at(scores, items_of(offsets)[first], weight[judgment[first], None] * logs)
    with np.errstate(divide="ignore"):
        scores[known] += np.log(gold_likelihood[gold[known]])
    highest = scores.max(axis=1, keepdims=True)
    raised = np.exp(scores - highest)
    norm = raised.sum(axis=1, keepdims=True)
    posterior[:] = raised / norm
    state_counts += posterior.sum(axis=0)
    _count_soft_answers(offsets, assessor, grade, share, judgment, relative, posterior, counts)
    return float((highest + np.log(norm)).sum())


@njit(nogil=True, numpy=_soft_e_step)
def soft_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    share: NDArray[np.float64],
    judgment: NDArray[np.int64],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    relative: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """As weighted_e_step, where the answers of one judgment are alternatives with probabilities (`share`)."""
    # share, judgment (n_answers,); weight (n_judgments,); relative (as log_likelihood) = P(answer | state) / P(answer)
    n_priors, n_states = log_prior.shape
    scores, mixed, total = np.empty(n_states), np.empty(n_states), 0.0
    for item in range(len(offsets) - 1):
        for s in range(n_states):
            scores[s] = log_prior[min(item, n_priors - 1), s]
        j = offsets[item]
        while j < offsets[item + 1]:
            stop = j + 1
            while stop < offsets[item + 1] and judgment[stop] == judgment[j]:
                stop += 1
            if stop == j + 1:
                for s in range(n_states):
                    scores[s] += weight[judgment[j]] * log_likelihood[assessor[j], grade[j], s]
            else:
                mixed[:] = 0.0
                for i in range(j, stop):
                    for s in range(n_states):
                        mixed[s] += share[i] * relative[assessor[i], grade[i], s]
                for s in range(n_states):
                    scores[s] += weight[judgment[j]] * np.log(max(mixed[s], UNSEEN))
            j = stop
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
    count_soft_answers(offsets, assessor, grade, share, judgment, relative, posterior, counts)
    return float(total)


@njit(nogil=True, numpy=_count_soft_answers)
def count_soft_answers(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    share: NDArray[np.float64],
    judgment: NDArray[np.int64],
    relative: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, s] the expected number of items in state s that assessor a gave g; a judgment counts as 1."""
    # arrays as in soft_e_step
    n_states = posterior.shape[1]
    mixed = np.empty(n_states)
    for item in range(len(offsets) - 1):
        j = offsets[item]
        while j < offsets[item + 1]:
            mixed[:] = 0.0
            stop = j
            while stop < offsets[item + 1] and judgment[stop] == judgment[j]:
                for s in range(n_states):
                    mixed[s] += share[stop] * relative[assessor[stop], grade[stop], s]
                stop += 1
            for i in range(j, stop):
                for s in range(n_states):
                    part = share[i] * relative[assessor[i], grade[i], s] / mixed[s] if mixed[s] > 0.0 else share[i]
                    counts[assessor[i], grade[i], s] += part * posterior[item, s]
            j = stop
