"""The E-step of all models whose documents have discrete states: true grades, or nodes of the latent scale.

:func:`expectation_step` is the entry for models. It chooses the kernel by the judgments: labels alone, labels with
weights or a prior per document, or soft labels.

Soft labels: the answer of the assessor is a latent variable, and its probabilities are evidence about it. An assessor
who saw x gives the answer k with the probability p_k = P(k | x). If x depends on the state s of the document only
through the answer, then

    P(x | s) / P(x) = sum over k of p_k P(k | s) / P(k),    P(k) = sum over s of P(s) P(k | s).

This takes the place of the likelihood P(k | s) of a label k. The statistics of the assessor count the answer k with the
probability that it has given x and s, which is the term of k divided by the sum. A label is the case p_k = 1.
"""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Arrays, Floats
from crowdrank.consensus import e_step_kernels
from crowdrank.engine.shards import Shard

SMALLEST = 1e-300
"""Minimum probability of an answer or state."""


def expectation_step(
    shard: Shard,
    likelihood: Floats,
    gold: Floats,
    prior: Floats,
    weight: Floats | None = None,
    state_probabilities: Floats | None = None,
    posterior: Floats | None = None,
) -> tuple[Arrays, Arrays]:
    """Run the E-step on a shard: the posterior of each item and the statistics for the M-step.

    Args:
        shard: the judgments.
        likelihood: P(answer | state), (n_assessors, n_answers, n_states).
        gold: P(expert grade | state), (n_expert_grades, n_states).
        prior: P(state), (n_states,), or its logarithm for each item, (n_items, n_states).
        weight: exponent of the likelihood of each judgment, (n,); None: all are 1.
        state_probabilities: P(state) over all documents, (n_states,), for soft labels; by default the prior.
        posterior: array of an earlier pass to write into, (n_items, n_states); None: a new one.

    Returns:
        The local state with the `posterior` of each item, (n_items, n_states), and the statistics: expected `counts` of
        answers by state (shape of the likelihood), `state_counts` of items (n_states,), and the `log_likelihood` (1,).

    """
    n_answers, n_states = likelihood.shape[1:]
    posterior = np.empty((shard.n_items, n_states)) if posterior is None else posterior
    counts, state_counts = np.zeros(likelihood.shape), np.zeros(n_states)
    judgments = shard.offsets, shard.assessor, shard.grade, shard.gold
    if shard.soft is None and weight is None and prior.ndim == 1:
        flat = [array.ravel() for array in (likelihood, gold, posterior, counts)]
        total = e_step_kernels.make_e_step_kernel(n_states)(*judgments, n_answers, prior, *flat, state_counts)
    else:
        weight = np.ones(len(shard.grade)) if weight is None else weight
        log_prior = np.log(np.maximum(prior, SMALLEST))[None] if prior.ndim == 1 else prior
        logs, written = np.log(np.maximum(likelihood, SMALLEST)), (posterior, counts, state_counts)
        if shard.soft is None:
            total = e_step_kernels.weighted_e_step(*judgments, weight, log_prior, logs, gold, *written)
        else:
            relative = relative_likelihood(likelihood, prior if state_probabilities is None else state_probabilities)
            answers = *shard.soft.arrays, shard.gold
            total = e_step_kernels.soft_e_step(*answers, weight, log_prior, logs, relative, gold, *written)
    statistics = {"counts": counts, "state_counts": state_counts, "log_likelihood": np.array([total])}
    return {"posterior": posterior}, statistics


def expected_counts(shard: Shard, posterior: Floats, n_answers: int, likelihood_ratio: Floats | None = None) -> Floats:
    """Return the expected number of answers of each assessor by state, (n_assessors, n_answers, n_states).

    Args:
        shard: the judgments.
        posterior: P(state) of each item, (n_items, n_states).
        n_answers: number of answers.
        likelihood_ratio: result of `relative_likelihood`, for soft labels; by default 1, so that the probabilities of
            the soft labels are counted as they are.

    """
    counts = np.zeros((shard.n_assessors, n_answers, posterior.shape[1]))
    if shard.soft is None:
        e_step_kernels.count_confusions(shard.offsets, shard.assessor, shard.grade, posterior, counts)
    else:
        likelihood_ratio = np.ones(counts.shape) if likelihood_ratio is None else likelihood_ratio
        e_step_kernels.count_soft_answers(*shard.soft.arrays, likelihood_ratio, posterior, counts)
    return counts


def relative_likelihood(likelihood: Floats, state_probabilities: Floats) -> Floats:
    """Return P(answer | state) / P(answer), (n_assessors, n_answers, n_states).

    >>> relative_likelihood(np.array([[[0.9, 0.3], [0.1, 0.7]]]), np.array([0.5, 0.5])).round(3).tolist()
    [[[1.5, 0.5], [0.25, 1.75]]]
    """
    marginal = likelihood @ (state_probabilities / state_probabilities.sum())
    relative: Floats = likelihood / np.maximum(marginal, SMALLEST)[:, :, None]
    return relative
