"""How much an assessor's answers tell of the truth, in nats (GDA eqs. 3-5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def information(
    prior: NDArray[np.float64], likelihood: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mutual information of state and answer per assessor, and the part of each answer.

    The part of answer g is the entropy that it takes from the prior, H[p(state)] - H[p(state | g)]; the mutual
    information is its mean over the answers that the assessor gives. A random assessor has 0.

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


def entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The entropy of distributions along the last axis, in nats."""
    total: NDArray[np.float64] = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=-1)
    return total
