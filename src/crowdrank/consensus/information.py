"""Informativeness of assessors in nats: mutual information of answer and truth (GDA eqs. 3-5, 9-11 for pairs)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def information(
    prior: NDArray[np.float64], likelihood: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mutual information of state and answer per assessor, and the part of each answer.

    The part of answer g is the reduction of entropy, H[p(state)] - H[p(state | g)]; the mutual information is its mean
    over the answers that the assessor gives. A random assessor has 0.

    >>> prior = np.array([0.5, 0.5])
    >>> perfect, random = np.eye(2), np.full((2, 2), 0.5)
    >>> information(prior, np.stack([perfect, random]))[0].round(3).tolist()
    [0.693, 0.0]
    """
    # prior (n_states,), likelihood (n_assessors, n_answers, n_states) -> (n_assessors,), (n_assessors, n_answers)
    joint = likelihood * prior
    given = joint.sum(axis=2)  # P(answer)
    posterior = joint / np.maximum(given, 1e-300)[:, :, None]
    parts = entropy(prior[None, None, :]) - entropy(posterior)
    return np.maximum((given * parts).sum(axis=1), 0.0), parts


def pair_information(
    prior: NDArray[np.float64], given: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `information` of the difference of two documents in an assessor's grades of both, per judgment.

    The probability p(g, g' | difference) of a pair of grades is proportional to sqrt(p(g | g', .) p(g' | g, .)). The
    result is halved, because a pair has two judgments.

    >>> difference = np.array([-1.0, 1.0])  # the other document is better, or this one
    >>> steep = np.array([[[0.9, 0.1]] * 2, [[0.1, 0.9]] * 2])  # p(g | g', difference), by g and g'
    >>> random = np.full((2, 2, 2), 0.5)
    >>> pair_information(np.array([0.5, 0.5]), np.stack([steep, random]))[0].round(3).tolist()
    [0.115, 0.0]
    """
    # prior (n_states,) of differences that lie evenly around 0; given (n_assessors, n_grades, n_grades, n_states) =
    # p(g | g', difference) by g, g' -> (n_assessors,), (n_assessors, n_grades, n_grades)
    n_assessors, n_grades, _, n_states = given.shape
    other = given.transpose(0, 2, 1, 3)[..., ::-1]  # p(g' | g, difference): the same with the documents exchanged
    joint = np.sqrt(given * other).reshape(n_assessors, n_grades**2, n_states)
    total, parts = information(prior, joint / joint.sum(axis=1, keepdims=True))
    return total / 2, parts.reshape(n_assessors, n_grades, n_grades) / 2


def entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of distributions along the last axis, in nats."""
    total: NDArray[np.float64] = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=-1)
    return total
