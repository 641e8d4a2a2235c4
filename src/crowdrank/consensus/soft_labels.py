"""Soft labels in EM: the answer of the assessor is a latent variable, and its probabilities are evidence about it.

An assessor who saw x gives the answer k with the probability p_k = P(k | x). If x depends on the state s of the
document only through the answer, then

    P(x | s) / P(x) = sum over k of p_k P(k | s) / P(k),    P(k) = sum over s of P(s) P(k | s).

This takes the place of the likelihood P(k | s) of a label k. The statistics of the assessor count the answer k with the
probability that it has given x and s, which is the term of k divided by the sum. A label is the case p_k = 1.
"""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Floats
from crowdrank.consensus import e_step
from crowdrank.engine.shards import Answers, Shard

SMALLEST = 1e-300
"""Minimum probability of an answer."""


def expect_soft(
    shard: Shard,
    answers: Answers,
    weight: Floats | None,
    log_prior: Floats,
    likelihood: Floats,
    state_shares: Floats,
    gold: Floats,
    posterior: Floats,
    counts: Floats,
    state_counts: Floats,
) -> float:
    """Run the E-step on a shard with soft labels.

    Args:
        shard: the judgments.
        answers: the answers of their soft labels.
        weight: exponent of the likelihood of each judgment, (n,); None: all are 1.
        log_prior: logarithm of P(state), (1 or n_items, n_states).
        likelihood: P(answer | state), (n_assessors, n_answers, n_states).
        state_shares: frequencies of the states over all documents, (n_states,).
        gold: P(expert grade | state), (n_expert_grades, n_states).
        posterior: P(state) of each item, (n_items, n_states); written.
        counts: expected number of answers, shape of the likelihood; added to.
        state_counts: expected number of items, (n_states,); added to.

    Returns:
        The log likelihood.

    """
    weight = np.ones(len(shard.grade)) if weight is None else weight
    logs, relative = np.log(np.maximum(likelihood, SMALLEST)), relative_likelihood(likelihood, state_shares)
    total: float = e_step.soft_e_step(
        *answers.arrays, shard.gold, weight, log_prior, logs, relative, gold, posterior, counts, state_counts
    )
    return total


def count_soft(answers: Answers, posterior: Floats, counts: Floats, relative: Floats | None = None) -> None:
    """Add the expected number of answers to `counts`.

    Args:
        answers: the answers of soft labels.
        posterior: P(state) of each item, (n_items, n_states).
        counts: (n_assessors, n_answers, n_states); added to.
        relative: result of `relative_likelihood`; by default the probabilities of the soft labels alone count.

    """
    relative = np.ones(counts.shape) if relative is None else relative
    e_step.count_soft_answers(*answers.arrays, relative, posterior, counts)


def relative_likelihood(likelihood: Floats, state_shares: Floats) -> Floats:
    """Return P(answer | state) / P(answer), shape of the likelihood.

    >>> relative_likelihood(np.array([[[0.9, 0.3], [0.1, 0.7]]]), np.array([0.5, 0.5])).round(3).tolist()
    [[[1.5, 0.5], [0.25, 1.75]]]
    """
    marginal = likelihood @ (state_shares / state_shares.sum())
    relative: Floats = likelihood / np.maximum(marginal, SMALLEST)[:, :, None]
    return relative
