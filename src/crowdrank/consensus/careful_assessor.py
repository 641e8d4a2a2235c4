"""A typical careful assessor: the mean of all assessors, in which informative ones have more weight.

P(grade) of a document is the probability that such an assessor, as one more, would give the grade. The weight of an
assessor is the number of judgments times a power of the informativeness, by default the square.

Where relevance is a latent trait, this power also decides where on the line of relevance a grade begins. With a low
power there are more careless answers in the mean, with a high one it is that of a few assessors with their own bias. It
is therefore learned. The median of P(grade | relevance) divides the line into grades, and the best power is the one
whose grades predict the answers of the assessors best, without any expert grades.
"""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Floats
from crowdrank.consensus.curves import assessor_blocks
from crowdrank.consensus.grade_rules import DEFAULT_RULE, choose_grades
from crowdrank.consensus.latent import information, node_prior

DEFAULT_POWER = 2
"""Power of the informativeness in the weight of an assessor."""
OTHER_POWERS = (1, 4, 8)
"""Powers that can be learned instead."""
MIN_EFFECTIVE_ASSESSORS = 20.0
"""Minimum effective number of independent assessors in the mean for powers above the default; their biases cancel."""
MIN_GAIN = 3.0
"""Minimum gain in log probability of the answers for which another power replaces the default: odds of 20 to 1."""
PRIOR_ANSWERS = 5.0
"""Weight of the crowd in an assessor's probabilities of answers to documents of a grade, as a number of answers."""
POINTS_PER_NODE = 8
"""Number of points of relevance per node of the grid at which a grade can begin."""


def careful_weights(n_judgments: Floats, likelihood: Floats, prior: Floats) -> Floats:
    """Return the weight of each assessor in a typical careful assessor, (n_assessors,); the sum is 1.

    It is proportional to n_judgments * informativeness**2, so that careless assessors count little even if they are
    many.

    Args:
        n_judgments: number of judgments, or the sum of their weights with families, (n_assessors,).
        likelihood: P(answer | state), (n_assessors, n_answers, n_states).
        prior: P(state), (n_states,).

    """
    return _weights(n_judgments, _informativeness(likelihood, prior), DEFAULT_POWER)


def careful_curves(n_judgments: Floats, likelihood: Floats, prior: Floats | None = None) -> Floats:
    """Return P(answer | state) of a typical careful assessor, (n_answers, n_states): the mean by `careful_weights`.

    Args:
        n_judgments: as for :func:`careful_weights`.
        likelihood: P(answer | state), (n_assessors, n_answers, n_states).
        prior: P(state), (n_states,); by default that of nodes.

    """
    prior = node_prior(likelihood.shape[2]) if prior is None else prior
    return _mean_curves(careful_weights(n_judgments, likelihood, prior), likelihood)


def learn_careful_curves(n_judgments: Floats, likelihood: Floats, counts: Floats) -> Floats:
    """Return P(answer | node) of a typical careful assessor, (n_answers, n_nodes), with a learned power.

    Args:
        n_judgments: as for :func:`careful_weights`; assessors with 0 are left out.
        likelihood: P(answer | node), (n_assessors, n_answers, n_nodes).
        counts: expected number of grades by state, (n_assessors, n_grades, n_states): the nodes of each difficulty, and
            perhaps one more state. Further answers of `likelihood` are not grades.

    """
    n_assessors, n_grades, n_states = counts.shape
    n_nodes = likelihood.shape[2]
    counts = counts[:, :, : n_states // n_nodes * n_nodes].reshape(n_assessors, n_grades, -1, n_nodes).sum(axis=2)
    informativeness = _informativeness(likelihood, node_prior(n_nodes))
    weight = n_judgments / np.maximum(counts.sum(axis=(1, 2)), 1e-300) * counts.any(axis=(1, 2))
    candidates, scores = [], []
    for power in (DEFAULT_POWER, *OTHER_POWERS):
        shares = _weights(n_judgments, informativeness, power)
        if power > DEFAULT_POWER and _effective_number(shares, weight) < MIN_EFFECTIVE_ASSESSORS:
            continue
        candidates.append(_mean_curves(shares, likelihood))
        scores.append(_log_probability(counts, weight, grade_memberships(candidates[-1][:n_grades])))
    best = int(np.argmax(scores))
    return candidates[best if scores[best] > scores[0] + MIN_GAIN else 0]


def grade_memberships(curves: Floats) -> Floats:
    """Return the share of each node's surroundings that has each grade as its median, (n_nodes, n_grades).

    The curves are interpolated between nodes.

    Args:
        curves: probabilities of grades, up to a factor per node, (n_grades, n_nodes).

    >>> grade_memberships(np.array([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]])).round(2).tolist()
    [[1.0, 0.0], [0.84, 0.16], [0.17, 0.83]]
    """
    n_nodes = curves.shape[1]
    points = np.linspace(0, n_nodes - 1, (n_nodes - 1) * POINTS_PER_NODE + 1)
    near = np.maximum(0.0, 1.0 - np.abs(np.arange(n_nodes)[:, None] - points))
    interpolated = (curves / curves.sum(axis=0) @ near).T
    grade = choose_grades(np.ascontiguousarray(interpolated), DEFAULT_RULE)
    return np.asarray(near / near.sum(axis=1, keepdims=True) @ np.eye(len(curves))[grade])


def _log_probability(counts: Floats, weight: Floats, memberships: Floats) -> float:
    """Return the log probability of the answers of assessors, given the grades of the documents."""
    answers = counts @ memberships  # (n_assessors, n_grades, n_grades), the last axis being the document's grade
    crowd = np.einsum("a,agc->gc", weight, answers) + 1.0
    shrunk = answers + PRIOR_ANSWERS * crowd / crowd.sum(axis=0)
    logs = np.log(shrunk / shrunk.sum(axis=1, keepdims=True))
    return float(np.einsum("a,agc,agc->", weight, answers, logs))


def _effective_number(shares: Floats, weight: Floats) -> float:
    """Return the effective number of independent assessors with these shares of a mean.

    The mean weight of the judgments of an assessor is 1 / m in a family of m copies, which count as one.
    """
    return 1.0 / float((shares**2 / np.where(weight > 0, weight, np.inf)).sum())


def _informativeness(likelihood: Floats, prior: Floats) -> Floats:
    return np.concatenate([information(prior, likelihood[block])[0] for block in assessor_blocks(len(likelihood))])


def _weights(n_judgments: Floats, informativeness: Floats, power: int) -> Floats:
    weights: Floats = n_judgments * (informativeness**2 + 1e-9) ** (power / 2)
    weights /= weights.sum()
    return weights


def _mean_curves(weights: Floats, likelihood: Floats) -> Floats:
    return np.asarray(np.einsum("a,agm->gm", weights, likelihood))
