"""Assessors of preferences: an ordered logit over the difference in relevance of two documents.

The answers "left is better" are in ascending order: right is much better, right, tie, left, left is much better. With
the sharpness s > 0, the position bias o and the symmetric cut points -c2 <= -c1 <= c1 <= c2 of an assessor,

    P(answer <= k) = sigma(c_k - x),    x = s (r_left - r_right) + o.

This is the model of Rao and Kupper (1967) for ties, with more answers. Without ties, c1 = 0; without strong answers,
c2 is infinite. log s, o, log c1 and log(c2 - c1) have a normal prior whose mean and standard deviation are learned from
the assessors (empirical Bayes).
"""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Arrays, Booleans, Codes, Floats
from crowdrank.consensus.curves import PRIOR_ASSESSORS, assessor_blocks

N_ANSWERS = 5
"""Number of answers: right much better, right, tie, left, left much better."""
MAX_DIFFERENCE, DIFFERENCE_STEP = 6.4, 0.1
"""Largest difference in relevance on the grid of differences, and the distance of its points."""
DIFFERENCES: Floats = np.linspace(
    -MAX_DIFFERENCE, MAX_DIFFERENCE, round(2 * MAX_DIFFERENCE / DIFFERENCE_STEP) + 1, dtype=np.float64
)
"""Grid of differences in relevance on which the answers of assessors are counted."""
INITIAL_MEAN: Floats = np.array([np.log(1.5), 0.0, np.log(0.5), np.log(1.5)])
"""Initial prior mean of log sharpness, position bias, log c1 and log(c2 - c1)."""
INITIAL_SD: Floats = np.array([0.7, 0.5, 0.7, 0.7])
"""Initial prior standard deviation of the same."""
MAX_LOG, MIN_SD = 100.0, 1e-6
"""Largest absolute parameter of an assessor, and smallest standard deviation of the prior, in a saved model."""
MAX_STEP = 1.0
"""Maximum change of a parameter in one iteration."""
HALVINGS = 5
"""Number of times that a step is halved if it does not raise the objective."""
PREFERENCE_KINDS = frozenset(("position_bias", "ties"))
"""Columns of assessors that exist only if positions are known, or if there are ties."""
SMALLEST = 1e-300
"""Minimum probability of an answer."""


def cut_points(params: Floats, active: Booleans) -> Floats:
    """Return the cut points -c2, -c1, c1, c2 of each assessor, (n_assessors, 4).

    >>> cut_points(np.array([[0.0, 0.0, 0.0, 0.0]]), np.array([True, True, True, False])).tolist()
    [[-inf, -1.0, 1.0, inf]]
    """
    inner = np.exp(params[:, 2]) if active[2] else np.zeros(len(params))
    outer = inner + np.exp(params[:, 3]) if active[3] else np.full(len(params), np.inf)
    return np.stack([-outer, -inner, inner, outer], axis=1)


def cumulative(x: Floats, cuts: Floats) -> Floats:
    """Return P(answer <= k) for k = -1, ..., 4, (..., 6): 0 first, 1 last; `cuts` is (..., 4) for `x` (...)."""
    inside = 1.0 / (1.0 + np.exp(np.clip(x[..., None] - cuts, -500.0, 500.0)))
    inside = np.where(np.isinf(cuts), (cuts > 0).astype(np.float64), inside)
    return np.concatenate([np.zeros((*x.shape, 1)), inside, np.ones((*x.shape, 1))], axis=-1)


def answer_probabilities(params: Floats, active: Booleans, differences: Floats = DIFFERENCES) -> Floats:
    """Return P(answer | difference) of each assessor, (n_assessors, n_differences, 5)."""
    x = np.exp(params[:, :1]) * differences + params[:, 1:2]
    return np.diff(cumulative(x, cut_points(params, active)[:, None, :]), axis=-1)


def initial_assessors(statistics: Arrays) -> Arrays:
    """Return initial parameters of assessors by name, from the counts of their answers.

    `preference_active` tells which of the four parameters are estimated: the position bias if positions are known, and
    the cut points if there are ties and strong answers.
    """
    answers = statistics["preference_answers"]
    total, has_positions = answers.sum(axis=0), statistics["preference_positions"][0] > 0
    active = np.array([True, has_positions, total[2] > 0, total[0] + total[4] > 0])
    mean = np.where(active, INITIAL_MEAN, 0.0)
    return {
        "preference_params": np.tile(mean, (len(answers), 1)),
        "preference_mean": mean,
        "preference_sd": INITIAL_SD.copy(),
        "preference_active": active,
    }


def continued_assessors(theta: Arrays, answers: Floats, has_positions: bool) -> Arrays:
    """Return the parameters of assessors of a fitted model for a fit of other preferences, by name.

    A kind of answer that occurs for the first time gets initial parameters. A fit without preferences has none, so that
    all are initial.

    Args:
        theta: parameters of the fitted model, whose rows are already those of the new assessors.
        answers: number of answers of each kind in the other preferences, (n_assessors, 5).
        has_positions: whether their positions are known.

    """
    first = initial_assessors({"preference_answers": answers, "preference_positions": np.array([float(has_positions)])})
    if "preference_params" not in theta:
        return first
    known, needed = theta["preference_active"], first["preference_active"]
    active = known | needed
    active[1] = has_positions
    is_kept = active & known
    return {
        "preference_params": np.where(is_kept, theta["preference_params"], first["preference_params"]),
        "preference_mean": np.where(is_kept, theta["preference_mean"], first["preference_mean"]),
        "preference_sd": np.where(is_kept, theta["preference_sd"], first["preference_sd"]),
        "preference_active": active,
    }


def update_assessors(theta: Arrays, statistics: Arrays, scale: float) -> Arrays:
    """Return the parameters of assessors after a Newton step, and the mean and sd of their prior (M-step).

    Args:
        theta: the current parameters.
        statistics: `preference_counts`, the expected number of answers of each assessor by difference, (n_assessors,
            n_differences, 5), and `preference_answers`, their number without weights.
        scale: the new unit of relevance, by which the sharpness is multiplied.

    """
    params, mean, active = theta["preference_params"], theta["preference_mean"], theta["preference_active"]
    counts, precision = statistics["preference_counts"], 1.0 / theta["preference_sd"] ** 2
    steps = [newton_step(params[rows], mean, precision, active, counts[rows]) for rows in assessor_blocks(len(params))]
    new, variance = (np.concatenate(arrays) for arrays in zip(*steps, strict=True))
    weights = counts.sum(axis=(1, 2)) / np.maximum(statistics["preference_answers"].sum(axis=1), 1.0)
    total = weights.sum() + PRIOR_ASSESSORS
    new_mean = (weights @ new + PRIOR_ASSESSORS * np.where(active, INITIAL_MEAN, 0.0)) / total
    spread = weights @ ((new - new_mean) ** 2 + variance) + PRIOR_ASSESSORS * INITIAL_SD**2
    shift = np.array([np.log(scale), 0.0, 0.0, 0.0])
    return {
        "preference_params": new + shift,
        "preference_mean": np.where(active, new_mean, 0.0) + shift,
        "preference_sd": np.where(active, np.sqrt(spread / total), INITIAL_SD),
    }


def newton_step(
    params: Floats, mean: Floats, precision: Floats, active: Booleans, counts: Floats
) -> tuple[Floats, Floats]:
    """Return parameters after a step of Fisher scoring, and their variances by the Laplace approximation.

    Args:
        params: (n_assessors, 4).
        mean: prior mean, (4,).
        precision: prior precision, (4,).
        active: whether each parameter is estimated, (4,).
        counts: expected number of answers by difference, (n_assessors, n_differences, 5).

    """
    probabilities = answer_probabilities(params, active)
    gradient, information = _derivatives(params, active, counts, probabilities)
    gradient = np.where(active, gradient - precision * (params - mean), 0.0)
    covariance = np.linalg.inv(information + np.diag(precision))
    step = np.clip((covariance @ gradient[:, :, None])[:, :, 0], -MAX_STEP, MAX_STEP)

    def objective(tried: Floats, probabilities: Floats) -> Floats:
        fit: Floats = (counts * np.log(np.maximum(probabilities, SMALLEST))).sum(axis=(1, 2))
        penalty: Floats = 0.5 * (precision * (tried - mean) ** 2).sum(axis=1)
        return fit - penalty

    before, length = objective(params, probabilities), np.ones((len(params), 1))
    for _ in range(HALVINGS):
        tried = params + length * step
        is_worse = objective(tried, answer_probabilities(tried, active)) < before
        if not is_worse.any():
            break
        length = np.where(is_worse[:, None], 0.5 * length, length)
    return params + length * step, np.diagonal(covariance, axis1=1, axis2=2)


def _derivatives(params: Floats, active: Booleans, counts: Floats, probabilities: Floats) -> tuple[Floats, Floats]:
    """Return gradient (n_assessors, 4) and Fisher information (n_assessors, 4, 4) of the expected log likelihood."""
    jacobian = _jacobian(params, active, DIFFERENCES)
    ratio = 1.0 / np.maximum(probabilities, SMALLEST)
    possible = probabilities > SMALLEST
    gradient = np.einsum("adk,adkp->ap", np.where(possible, counts * ratio, 0.0), jacobian)
    weight = np.where(possible, counts.sum(axis=2, keepdims=True) * ratio, 0.0)
    information = np.einsum("adk,adkp,adkq->apq", weight, jacobian, jacobian, optimize=True)
    return gradient, information


def answer_information(params: Floats, active: Booleans, counts: Floats) -> Floats:
    """Return the Fisher information of answers by their differences on the parameters, (n_assessors, 4, 4)."""
    return _derivatives(params, active, counts, answer_probabilities(params, active))[1]


def _jacobian(params: Floats, active: Booleans, differences: Floats) -> Floats:
    """Return the derivatives of P(answer | difference) by the parameters, (n_assessors, n_differences, 5, 4)."""
    sharpness = np.exp(params[:, :1])
    below = cumulative(sharpness * differences + params[:, 1:2], cut_points(params, active)[:, None, :])
    density = below * (1.0 - below)  # (n_assessors, n_differences, 6), 0 at both ends
    inner, gap = np.exp(params[:, 2, None]), np.exp(params[:, 3, None])
    by_x = -density
    outer_sign, inner_sign = np.array([0, -1, 0, 0, 1, 0]), np.array([0, -1, -1, 1, 1, 0])
    changes = np.stack(
        [
            by_x * (sharpness * differences)[:, :, None],
            by_x,
            density * inner_sign * inner[:, :, None],
            density * outer_sign * gap[:, :, None],
        ],
        axis=-1,
    )
    return np.asarray(np.diff(changes, axis=2) * active)


def answer_scores(params: Floats, active: Booleans, difference: Floats, answer: Codes) -> Floats:
    """Return the gradient of log P(answer | difference) by the parameters of the assessor of each answer, (n, 4)."""
    row = np.arange(len(answer))
    probability = answer_probabilities(params, active, difference[:, None])[row, 0, answer]
    change = _jacobian(params, active, difference[:, None])[row, 0, answer]
    return np.asarray(change / np.maximum(probability, SMALLEST)[:, None])


def preference_columns(theta: Arrays, answer_counts: Floats) -> Arrays:
    """Return the columns of assessors, (n_assessors,) each; NaN for assessors without preferences.

    `preferences` is their number, `sharpness` is s, `position_bias` is P(left) - P(right) for two documents of equal
    relevance, and `ties` is the share of ties among the answers.
    """
    params, active, n = theta["preference_params"], theta["preference_active"], answer_counts.sum(axis=1)
    at_zero = answer_probabilities(params, active, np.zeros(1))[:, 0]
    bias = at_zero[:, 3:].sum(axis=1) - at_zero[:, :2].sum(axis=1)
    known = n > 0
    columns = {"sharpness": np.exp(params[:, 0])}
    if active[1]:
        columns["position_bias"] = bias
    if active[2]:
        columns["ties"] = answer_counts[:, 2] / np.maximum(n, 1)
    return {
        "preferences": n.astype(np.int64),
        **{name: np.where(known, values, np.nan) for name, values in columns.items()},
    }
