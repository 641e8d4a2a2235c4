"""Inner loops (kernels) of the E-step, compiled by numba, and in NumPy for small arrays; `e_step.py` chooses one.

In the order of the file: labels alone (`make_e_step_kernel`, products of likelihoods), labels with weights or a prior
per item (`weighted_e_step`, sums of logarithms), soft labels (`soft_e_step`). Each has a plain NumPy reference in
tests/consensus/.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import Kernel, njit, with_item
from crowdrank.engine.shards import items_of

MAX_REGISTER_STATES = 8
"""Maximum number of states whose probabilities are kept in CPU registers."""
MAX_NUMPY_SIZE = 1 << 18
"""Maximum number of array elements for which the E-step uses NumPy instead of the compiled loop."""

RESCALE_BELOW = 1e-100
"""Product of likelihoods below which it is rescaled; eight factors of 1e-16 fit between it and underflow."""
TAKE_LOG_BELOW = 1e-60
"""Product of normalizing constants below which its logarithm is added to the log likelihood, before it underflows."""
MIN_LIKELIHOOD = 1e-290
"""Floor of the likelihood of a state: an expert grade can select a state to which the crowd gives probability 0."""


def _count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    n_grades = counts.shape[1]
    _add_counts(
        items_of(offsets), _assessor_grade_codes(assessor, grade, n_grades), np.ascontiguousarray(posterior.T), counts
    )


@njit(nogil=True, numpy=_count_confusions, small=MAX_NUMPY_SIZE)
def count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, c] the expected number of items with true grade (or state) c that assessor a gave grade g."""
    # posterior (n_items, n_grades); counts (n_assessors, n_grades, n_grades)
    n_states = posterior.shape[1]
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            a, g = np.uint64(assessor[j]), np.uint64(grade[j])  # signed indices are compared with 0 first
            for c in range(n_states):
                counts[a, g, c] += posterior[item, c]


def _label_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    n_grades: int,
    state_prior: NDArray[np.float64],
    likelihood: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    # In logarithms, because a product of all likelihoods would underflow. NumPy is fastest along the items.
    n_states, known, sizes = len(state_prior), np.flatnonzero(gold >= 0), np.diff(offsets)
    item, cell = items_of(offsets), _assessor_grade_codes(assessor, grade, n_grades)
    with np.errstate(divide="ignore"):
        logs, log_gold, log_shares = (
            np.log(np.ascontiguousarray(one.reshape(-1, n_states).T))
            for one in (likelihood, gold_likelihood, state_prior)
        )
    scores = _sum_columns_by_group(item, logs, cell, len(sizes))
    scores += log_shares
    if len(known):
        highest = scores[:, known].max(axis=0)
        floor = np.where((sizes[known] > 8) & (highest < np.log(RESCALE_BELOW)), highest, 0.0) + np.log(MIN_LIKELIHOOD)
        scores[:, known] = np.maximum(scores[:, known], floor) + log_gold[:, gold[known]]
    scores[:, np.isneginf(scores.max(axis=0))] = np.log(MIN_LIKELIHOOD)
    return _normalize_and_count(item, cell, scores, posterior, counts.reshape(-1, n_grades, n_states), state_counts)


def _normalize_and_count(
    item: NDArray[np.int64],
    assessor_grade: NDArray[np.int64],
    log_joint: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """Write the posteriors from log P(state, judgments), add to the counts, and return the log likelihood.

    `log_joint`, (n_states, n_items), is overwritten, because allocating temporary arrays takes time.
    """
    # item, assessor_grade (n,) of the judgments
    by_item, highest = posterior.reshape(log_joint.shape[::-1]), log_joint.max(axis=0)
    log_joint -= highest
    np.exp(log_joint, out=log_joint)
    by_item[:] = log_joint.T
    norm = by_item.sum(axis=1)
    log_joint /= norm
    by_item[:] = log_joint.T
    state_counts += by_item.sum(axis=0)
    _add_counts(item, assessor_grade, log_joint, counts)
    return float((highest + np.log(norm)).sum())


def _assessor_grade_codes(assessor: NDArray[np.int32], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.int64]:
    """Return assessor * n_grades + grade of each judgment, (n,)."""
    return assessor.astype(np.int64) * n_grades + grade


def _add_counts(
    item: NDArray[np.int64],
    assessor_grade: NDArray[np.int64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add the posterior (n_states,) of each judgment's item to counts[assessor, grade] of the judgment."""
    n_assessors, n_grades, n_states = counts.shape
    counts.reshape(-1, n_states)[:] += _sum_columns_by_group(assessor_grade, posterior, item, n_assessors * n_grades).T


def _sum_columns_by_group(
    group: NDArray[np.int64], table: NDArray[np.float64], column: NDArray[np.int64], n_groups: int
) -> NDArray[np.float64]:
    """Return the sums of table[:, column] by group, (n_rows, n_groups); group and column are (n_judgments,)."""
    sums = np.empty((len(table), n_groups))
    for total, row in zip(sums, table, strict=True):
        total[:] = np.bincount(group, row.take(column), minlength=n_groups)
    return sums


@cache
def make_e_step_kernel(n_states: int) -> Kernel:
    """Return a function that runs the E-step for hard labels without weights, for models with `n_states` states.

    The function writes the posteriors, adds the expected counts for the M-step and returns the log likelihood. A state
    is a true grade (Dawid-Skene) or a node of the latent scale. Likelihoods are multiplied and rarely rescaled, which
    takes about one logarithm per item. `n_states` is a constant for the compiler, which unrolls the loops: twice as
    fast. Up to `MAX_REGISTER_STATES` states are kept in registers.
    """
    if n_states <= MAX_REGISTER_STATES:
        return _make_register_kernel((0.0,) * n_states)

    @njit(nogil=True, numpy=_label_e_step, small=MAX_NUMPY_SIZE)
    def expect(
        offsets: NDArray[np.int64],
        assessor: NDArray[np.int32],
        grade: NDArray[np.int8],
        gold: NDArray[np.int8],
        n_grades: int,
        state_prior: NDArray[np.float64],
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
                product[s] = state_prior[s]
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
                    if 0.0 < highest < RESCALE_BELOW:
                        total_log += np.log(highest)
                        for s in range(n_states):
                            product[s] /= highest
            if gold[item] >= 0:
                cell = np.uint64(gold[item]) * np.uint64(n_states)
                for s in range(n_states):
                    # What the crowd takes for impossible is possible if an expert says so.
                    product[s] = max(product[s], MIN_LIKELIHOOD) * gold_likelihood[cell + np.uint64(s)]
            norm = 0.0
            for s in range(n_states):
                norm += product[s]
            if norm == 0.0:  # impossible in every state: the judgments say nothing about the item
                for s in range(n_states):
                    product[s] = MIN_LIKELIHOOD
                norm = n_states * MIN_LIKELIHOOD
            scale = 1.0 / norm
            for s in range(n_states):
                product[s] *= scale
            if pending < TAKE_LOG_BELOW or norm < TAKE_LOG_BELOW:
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


def _make_register_kernel(state_zeros: tuple[float, ...]) -> Kernel:
    """Return the function of `make_e_step_kernel` for a few states, with tuples instead of arrays of states."""
    n_states = len(state_zeros)

    @njit(nogil=True, numpy=_label_e_step, small=MAX_NUMPY_SIZE)
    def expect(
        offsets: NDArray[np.int64],
        assessor: NDArray[np.int32],
        grade: NDArray[np.int8],
        gold: NDArray[np.int8],
        n_grades: int,
        state_prior: NDArray[np.float64],
        likelihood: NDArray[np.float64],
        gold_likelihood: NDArray[np.float64],
        posterior: NDArray[np.float64],
        counts: NDArray[np.float64],
        state_counts: NDArray[np.float64],
    ) -> float:
        totals, prior, total_log, pending = state_zeros, state_zeros, 0.0, 1.0
        for s in range(n_states):
            prior = with_item(prior, s, state_prior[s])
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
                    if 0.0 < highest < RESCALE_BELOW:
                        total_log += np.log(highest)
                        for s in range(n_states):
                            p = with_item(p, s, p[s] / highest)
            if gold[item] >= 0:
                cell = np.uint64(gold[item]) * np.uint64(n_states)
                for s in range(n_states):
                    p = with_item(p, s, max(p[s], MIN_LIKELIHOOD) * gold_likelihood[cell + np.uint64(s)])
            norm = 0.0
            for s in range(n_states):
                norm += p[s]
            if norm == 0.0:
                for s in range(n_states):
                    p = with_item(p, s, MIN_LIKELIHOOD)
                norm = n_states * MIN_LIKELIHOOD
            scale = 1.0 / norm
            for s in range(n_states):
                p = with_item(p, s, p[s] * scale)
                posterior[item * n_states + s] = p[s]
                totals = with_item(totals, s, totals[s] + p[s])
            if pending < TAKE_LOG_BELOW or norm < TAKE_LOG_BELOW:
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
    item, cell = items_of(offsets), _assessor_grade_codes(assessor, grade, log_likelihood.shape[1])
    logs = np.ascontiguousarray(log_likelihood.reshape(-1, n_states).T).take(cell, axis=1) * weight
    scores = _sum_columns_by_group(item, logs, np.arange(len(item)), n_items)
    scores += log_prior.T
    with np.errstate(divide="ignore"):
        scores[:, known] += np.log(gold_likelihood[gold[known]]).T
    return _normalize_and_count(item, cell, scores, posterior, counts, state_counts)


@njit(nogil=True, numpy=_weighted_e_step, small=MAX_NUMPY_SIZE)
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
    """Run the E-step for hard labels, with the likelihood of each judgment raised to the power of its weight.

    Writes the posteriors, adds to the counts (a judgment counts as 1 whatever its weight) and returns the log
    likelihood. `log_prior` has one row for all items, or one per item.
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


def _sum_soft_answers(
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer_probability: NDArray[np.float64],
    judgment: NDArray[np.int64],
    likelihood_ratio: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return p_k P(k | s) / P(k) of each answer k, the first answer of each judgment, and the sum over its answers."""
    terms = answer_probability[:, None] * likelihood_ratio[assessor, grade]
    first = np.flatnonzero(np.diff(judgment, prepend=-1))
    return terms, first, np.add.reduceat(terms, first, axis=0) if len(first) else terms


def _count_soft_answers(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer_probability: NDArray[np.float64],
    judgment: NDArray[np.int64],
    likelihood_ratio: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    terms, first, mixed = _sum_soft_answers(assessor, grade, answer_probability, judgment, likelihood_ratio)
    total = np.repeat(mixed, np.diff(first, append=len(judgment)), axis=0)
    part = np.divide(
        terms, total, out=np.repeat(answer_probability[:, None], terms.shape[1], axis=1), where=total > 0.0
    )
    np.add.at(counts, (assessor, grade), part * posterior[items_of(offsets)])


def _soft_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer_probability: NDArray[np.float64],
    judgment: NDArray[np.int64],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    likelihood_ratio: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    _, first, mixed = _sum_soft_answers(assessor, grade, answer_probability, judgment, likelihood_ratio)
    is_whole = np.diff(first, append=len(judgment)) == 1
    logs = np.log(np.maximum(mixed, MIN_LIKELIHOOD))
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
    _count_soft_answers(offsets, assessor, grade, answer_probability, judgment, likelihood_ratio, posterior, counts)
    return float((highest + np.log(norm)).sum())


@njit(nogil=True, numpy=_soft_e_step)
def soft_e_step(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer_probability: NDArray[np.float64],
    judgment: NDArray[np.int64],
    gold: NDArray[np.int8],
    weight: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    log_likelihood: NDArray[np.float64],
    likelihood_ratio: NDArray[np.float64],
    gold_likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    state_counts: NDArray[np.float64],
) -> float:
    """Run the E-step as `weighted_e_step` does for soft labels: a judgment has several answers with probabilities."""
    # answer_probability, judgment (n_answers,); weight (n_judgments,)
    # likelihood_ratio (as log_likelihood) = P(answer | state) / P(answer)
    # posterior (n_items, n_states): overwritten; counts (n_assessors, n_grades, n_states), state_counts: added to
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
                        mixed[s] += answer_probability[i] * likelihood_ratio[assessor[i], grade[i], s]
                for s in range(n_states):
                    scores[s] += weight[judgment[j]] * np.log(max(mixed[s], MIN_LIKELIHOOD))
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
    count_soft_answers(offsets, assessor, grade, answer_probability, judgment, likelihood_ratio, posterior, counts)
    return float(total)


@njit(nogil=True, numpy=_count_soft_answers)
def count_soft_answers(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer_probability: NDArray[np.float64],
    judgment: NDArray[np.int64],
    likelihood_ratio: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, s] the expected number of items in state s to which assessor a gave the answer g.

    The answers of a soft label count as 1 in total.
    """
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
                    mixed[s] += answer_probability[stop] * likelihood_ratio[assessor[stop], grade[stop], s]
                stop += 1
            for i in range(j, stop):
                for s in range(n_states):
                    part = (
                        answer_probability[i] * likelihood_ratio[assessor[i], grade[i], s] / mixed[s]
                        if mixed[s] > 0.0
                        else answer_probability[i]
                    )
                    counts[assessor[i], grade[i], s] += part * posterior[item, s]
            j = stop
