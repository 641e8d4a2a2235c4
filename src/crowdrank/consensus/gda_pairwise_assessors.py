"""Assessors of GDA-PW: prior, initial values, constraints, and probabilities of their grades.

The parameters of an assessor are mu, log alpha and log w of each grade, (3 n_grades,).
"""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Arrays, Booleans, Floats, Integers
from crowdrank.consensus.curves import project_onto_constraints
from crowdrank.consensus.latent import NODES, PRIOR, difference_information, softmax
from crowdrank.engine.shards import Shard

PRIOR_SD = (0.5, 0.7, 0.5)
"""Prior standard deviations of mu, log alpha and log w."""
PRIOR_WIDTH = 0.7
"""Prior median of w; the prior means of mu are evenly spaced from -1 to 1."""
PRIOR_JUDGMENTS = 3.0
"""Number of pseudo-judgments per grade in the initial parameters."""
MAX_STEP = 1.0
"""Maximum length of a step of an assessor's parameters, in prior standard deviations."""
N_PREVIOUS_STEPS = 2
"""Number of previous steps from which a step is extrapolated."""
LOG_ALPHA_OF_MISSING_GRADE = -40.0
"""Log alpha of grades that an assessor's scale does not have."""


def prior_mean(own_grades: Integers, n_grades: int) -> Floats:
    """Return the prior mean of mu, log alpha and log w, (n_assessors, 3 n_grades).

    Args:
        own_grades: number of grades of each assessor's scale, (n_assessors,).
        n_grades: number of grades of the longest scale; those that an assessor's scale lacks have no probability.

    """
    mean = np.zeros((len(own_grades), 3 * n_grades))
    for own in np.unique(own_grades):
        rows = own_grades == own
        mean[rows, :own] = np.linspace(-1, 1, own)
        mean[rows, n_grades + own : 2 * n_grades] = LOG_ALPHA_OF_MISSING_GRADE
    mean[:, 2 * n_grades :] = np.log(PRIOR_WIDTH)
    return mean


def grade_moments(shard: Shard, local: Arrays) -> Floats:
    """Return number, sum and sum of squares of relevance by assessor and grade, (3, n_assessors, n_grades)."""
    relevance = local["mode"][local["item"]]
    cell = shard.assessor.astype(np.int64) * shard.n_grades + shard.grade
    sums = [
        np.bincount(cell, part, shard.n_assessors * shard.n_grades) for part in (relevance**0, relevance, relevance**2)
    ]
    return np.stack(sums).astype(np.float64).reshape(3, shard.n_assessors, shard.n_grades)


def initial_params(moment_sums: Floats, own_grades: Integers) -> Floats:
    """Return initial parameters, (n_assessors, 3 n_grades), from the result of `grade_moments`, shrunk to the prior."""
    # moment_sums (3, n_assessors, n_grades), own_grades (n_assessors,)
    n, total, squares = moment_sums
    n_grades = n.shape[1]
    mu = (total + PRIOR_JUDGMENTS * prior_mean(own_grades, n_grades)[:, :n_grades]) / (n + PRIOR_JUDGMENTS)
    within = (squares - 2 * mu * total + n * mu**2).sum(axis=1, keepdims=True)
    pseudo = PRIOR_JUDGMENTS * n_grades
    width = (within + pseudo * PRIOR_WIDTH) / (n.sum(axis=1, keepdims=True) + pseudo)
    present = np.arange(n_grades) < own_grades[:, None]
    log_alpha = np.log(n + PRIOR_JUDGMENTS)
    log_alpha = np.where(
        present, log_alpha - log_alpha.mean(axis=1, keepdims=True, where=present), LOG_ALPHA_OF_MISSING_GRADE
    )
    return np.concatenate([mu, log_alpha, np.tile(np.log(width), n_grades)], axis=1)


def empty_step_history(params: Floats) -> Floats:
    """Return an empty history of steps: zeros, (n_assessors, 2 N_PREVIOUS_STEPS n_params)."""
    return np.zeros((len(params), 2 * N_PREVIOUS_STEPS * params.shape[1]))


def extend_step_history(step_history: Floats, params: Floats, step: Floats) -> Floats:
    """Return the history of steps with a new one in front: parameters, step from there, and the earlier ones."""
    return np.concatenate([params, step, step_history[:, : -2 * params.shape[1]]], axis=1)


def prior_sd_by_parameter(params: Floats) -> Floats:
    """Return the prior standard deviations of the parameters, (n_params,)."""
    scale: Floats = np.repeat(PRIOR_SD, params.shape[1] // 3)
    return scale


def step_lengths(step: Floats) -> Floats:
    """Return the length of each assessor's step, (n_assessors,): largest change in prior standard deviations."""
    lengths: Floats = np.abs(step / prior_sd_by_parameter(step)).max(axis=1)
    return lengths


def limit_steps(step: Floats) -> Floats:
    """Return the steps of assessors, shortened to at most MAX_STEP prior standard deviations."""
    short: Floats = step / np.maximum(step_lengths(step) / MAX_STEP, 1.0)[:, None]
    return short


def extrapolated_step(params: Floats, step: Floats, step_history: Floats) -> Floats:
    """Return a step towards the parameters at which the step is 0, extrapolated from previous steps.

    This is Anderson acceleration: the combination of steps is the shortest one in prior standard deviations. All
    assessors share its coefficients, because documents connect them. An assessor whose step turns back, and who could
    alternate between two points forever, has a coefficient of its own.

    Args:
        params: parameters, (n_assessors, n_params).
        step: step from there, (n_assessors, n_params).
        step_history: previous parameters and steps, see `extend_step_history`.

    """
    scaled = np.concatenate([params, step, step_history], axis=1) / np.tile(
        prior_sd_by_parameter(params), 2 * N_PREVIOUS_STEPS + 2
    )
    blocks = np.split(scaled, 2 * N_PREVIOUS_STEPS + 2, axis=1)
    points, steps = blocks[::2], blocks[1::2]
    n_steps = sum(bool(one.any()) for one in steps[1:])
    if n_steps == 0:
        return step
    bends = [steps[n] - steps[n + 1] for n in range(n_steps)]
    moves = [points[n] - points[n + 1] + bends[n] for n in range(n_steps)]
    turns = (steps[0] * steps[1]).sum(axis=1) < 0
    products = np.array([[(one * other)[~turns].sum() for other in (*bends, steps[0])] for one in bends])
    shared = np.linalg.pinv(products[:, :-1], rcond=1e-8, hermitian=True) @ products[:, -1]
    own = (bends[0] * steps[0]).sum(axis=1) / np.maximum((bends[0] ** 2).sum(axis=1), 1e-300)
    combined = np.einsum("n,nap->ap", shared, np.array(moves))
    excess = np.where(turns[:, None], own[:, None] * moves[0], combined)
    extrapolated: Floats = step - excess * prior_sd_by_parameter(params)
    return extrapolated


def in_grade_order(params: Floats, free_to_all: Floats, covariance: Floats, own_grades: Integers) -> Floats:
    """Return the nearest parameters with mu_0 <= mu_1 <= ..., by the Mahalanobis distance.

    Args:
        params: parameters, (n_assessors, n_params).
        free_to_all: matrix that maps free parameters to all parameters, (n_params, n_free).
        covariance: covariance of the free parameters, (n_assessors, n_free, n_free).
        own_grades: number of grades of each assessor's scale, (n_assessors,).

    """
    n_steps = params.shape[1] // 3 - 1
    rises = (np.eye(n_steps, free_to_all.shape[1], 1) - np.eye(n_steps, free_to_all.shape[1])).astype(np.float64)
    active: Booleans = np.arange(n_steps) < own_grades[:, None] - 1
    free = params @ np.linalg.pinv(free_to_all).T
    return project_onto_constraints(free, covariance, rises, active) @ free_to_all.T


def standardized_params(theta: Arrays) -> Floats:
    """Return the parameters of assessors in the unit in which relevance has variance 1."""
    n_grades = theta["params"].shape[1] // 3
    scaled: Floats = theta["params"] * np.repeat([1 / theta["unit"][0], 1.0, 1.0], n_grades)
    scaled[:, 2 * n_grades :] -= 2 * np.log(theta["unit"][0])
    return scaled


def standardized(values: Floats, bounds: Integers) -> Floats:
    """Return z-scores of the values within each segment between consecutive bounds.

    >>> standardized(np.array([0.0, 2.0, 5.0]), np.array([0, 2, 3])).tolist()
    [-1.0, 1.0, 0.0]
    """
    sizes = np.diff(bounds)
    off = values - np.repeat(np.add.reduceat(values, bounds[:-1]) / sizes, sizes)
    sd = np.sqrt(np.add.reduceat(off**2, bounds[:-1]) / sizes)
    scaled: Floats = off / np.repeat(np.where(sd > 0, sd, 1.0), sizes)
    return scaled


ASSESSORS_PER_BLOCK = 4096
"""Number of assessors for which pairwise informativeness is computed at once."""
QUADRATURE = np.polynomial.hermite_e.hermegauss(7)
"""Nodes and weights of Gauss-Hermite quadrature."""


def answer_curves(theta: Arrays) -> Floats:
    """Return P(grade | node), (n_assessors, n_grades, n_nodes), averaged over the judgments that are compared with."""
    mu, log_alpha, log_width = np.split(theta["params"], 3, axis=1)
    mean, variance, log_factor = theta["residuals"]
    offset, precision = log_alpha - 0.25 * log_width, np.exp(log_factor - 0.5 * log_width)
    total = np.zeros((*mu.shape, len(NODES)))
    nodes, weights = QUADRATURE
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        off = theta["unit"][0] * NODES - mean - node * np.sqrt(variance) - mu[:, :, None]
        total += weight * softmax(offset[:, :, None] - 0.5 * precision[:, :, None] * off**2, axis=1)
    return total


def pairwise_informativeness(params: Floats) -> Floats:
    """Return the information of two grades of an assessor about the difference of documents, per judgment (eq. 11)."""
    blocks = [params[start : start + ASSESSORS_PER_BLOCK] for start in range(0, len(params), ASSESSORS_PER_BLOCK)]
    return np.concatenate([difference_information(PRIOR, pair_curves(block))[0] for block in blocks])


def pair_curves(params: Floats) -> Floats:
    """Return p(g | g', difference) of assessors who judge both documents; the difference is N(0, 2) on the nodes."""
    # (n_assessors, 3 n_grades) -> (n_assessors, n_grades, n_grades, n_nodes) by g, g'
    mu, log_alpha, log_width = np.split(params, 3, axis=1)
    precision = np.exp(-0.5 * (log_width[:, :, None] + log_width[:, None, :]))[..., None]
    off = np.sqrt(2.0) * NODES - (mu[:, :, None] - mu[:, None, :])[..., None]
    return softmax((log_alpha - 0.25 * log_width)[:, :, None, None] - 0.5 * off**2 * precision, axis=1)
