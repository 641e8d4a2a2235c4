"""Assessors' curves over the line of relevance: P(answer | state) = softmax of what is linear in features of the state.

With Gaussians of one width (GDA's eq. 1) the features are relevance and 1; with widths of their own its square joins
in; with difficulty eps the Gaussians' exponents are divided by it, their shares are not. In all cases an assessor's
curves are a multinomial regression on the features, which is concave: one Newton step serves them all.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus.information import information
from crowdrank.consensus.latent import NODES, node_prior, softmax

FEW = 5.0
"""So many assessors of the first guess stand behind the prior that is learned: a crowd of three learns little."""
SLOPE_SD, OFFSET_SD, EASE_SD, BEND_SD = 0.5, 0.7, 0.5, 0.25
"""How much the coefficients of relevance, 1, 1 / difficulty and relevance squared are first thought to vary."""
STEEPEST = 1.2
"""The slope first thought of the highest grade, and its negative of the lowest."""
FIRST_WIDTH = 0.7
"""The variance first thought of the Gaussians."""
SWEEPS = 1_000
"""Rounds of Hildreth's method at most; it stops when the slopes are in order to nine digits."""
BLOCK = 1_024
"""So many assessors take a Newton step together: what is made of them on the way stays in the cache."""


def blocks(n: int) -> list[slice]:
    """Return slices of up to `BLOCK` assessors out of `n`.

    >>> len(blocks(1_025))
    2
    """
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]


def features(
    difficulties: NDArray[np.float64], tied_variance: bool, nodes: NDArray[np.float64] = NODES
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The features of every state (difficulties in turn, nodes within), and how much their coefficients vary at first.

    >>> features(np.ones(1), tied_variance=True)[0].shape
    (21, 2)
    """
    # (n_states, n_features), (n_features,)
    relevance = np.tile(nodes, len(difficulties))
    ease = np.repeat(1 / difficulties, len(nodes))
    columns, sds = [relevance * ease, np.ones(len(ease))], [SLOPE_SD, OFFSET_SD]
    if len(difficulties) > 1:
        columns.append(ease)
        sds.append(EASE_SD)
    if not tied_variance:
        columns.append(relevance**2 * ease)
        sds.append(BEND_SD)
    return np.stack(columns, axis=1), np.array(sds)


def first_curves(used: NDArray[np.float64], n_features: int, has_ease: bool) -> NDArray[np.float64]:
    """Slopes in the order of the grades, or the ranking may come out reversed; offsets by the use of the grades."""
    # used (n_grades,) -> (n_features, n_grades)
    log_used = np.log(used + 1.0)
    first = np.zeros((n_features, len(used)))
    first[0] = np.linspace(-STEEPEST, STEEPEST, len(used)) if len(used) > 1 else 0.0
    first[1] = log_used - log_used.mean()
    if has_ease:  # what the offset is made of: the Gaussian's exponent at relevance 0 is divided by difficulty
        first[2] = -0.5 * FIRST_WIDTH * first[0] ** 2
        first[1] -= first[2] - first[2].mean()
    return first


def answer_curves(
    curves: NDArray[np.float64], states: NDArray[np.float64], missing: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """P(answer | state): (n_assessors, n_answers, n_states); what is missing from an assessor's scale has none."""
    # curves (n_assessors, n_features * n_answers), states (n_states, n_features), missing (n_assessors, n_answers)
    n_features = states.shape[1]
    scores = curves.reshape(len(curves), n_features, curves.shape[1] // n_features).transpose(0, 2, 1) @ states.T
    if missing is not None:
        scores[missing] = -np.inf
    return np.ascontiguousarray(softmax(scores, axis=1))


def newton_step(
    counts: NDArray[np.float64],
    curves: NDArray[np.float64],
    states: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
    missing: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One Newton step of every assessor's penalized multinomial regression, and the Laplace covariances.

    The problem is concave; a step that would lower it is halved until it does not.
    """
    # counts (n_assessors, n_answers, n_states), curves and mean (n_assessors, n_features * n_answers),
    # precision (n_assessors, that, that) or (that, that)
    stepped = [
        _newton_step(
            counts[part],
            curves[part],
            states,
            mean[part],
            precision[part] if precision.ndim == 3 else precision,
            None if missing is None else missing[part],
        )
        for part in blocks(len(curves))
    ]
    return np.concatenate([one for one, _ in stepped]), np.concatenate([spread for _, spread in stepped])


def _newton_step(
    counts: NDArray[np.float64],
    curves: NDArray[np.float64],
    states: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
    missing: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shares = answer_curves(curves, states, missing)
    slope, curvature = _derivatives(counts, shares, states)
    off = curves - mean
    slope -= (precision @ off[:, :, None])[:, :, 0]
    spread = np.asarray(np.linalg.inv(curvature + precision), np.float64)
    step = (spread @ slope[:, :, None])[:, :, 0]

    def penalized(tried: NDArray[np.float64], tried_shares: NDArray[np.float64]) -> NDArray[np.float64]:
        away = (tried - mean)[:, :, None]
        penalty = 0.5 * (away.transpose(0, 2, 1) @ precision @ away)[:, 0, 0]
        gain = (counts * np.log(np.maximum(tried_shares, 1e-300))).sum(axis=(1, 2))
        return cast(NDArray[np.float64], gain - penalty)

    before, size = penalized(curves, shares), np.ones((len(curves), 1))
    for _ in range(8):
        tried = curves + size * step
        worse = penalized(tried, answer_curves(tried, states, missing)) < before - 1e-9
        if not worse.any():
            break
        size[worse] /= 2
    return curves + size * step, spread


def _derivatives(
    counts: NDArray[np.float64], shares: NDArray[np.float64], states: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and negative second derivatives of the expected log likelihood in each assessor's coefficients."""
    n_assessors, n_answers, _ = counts.shape
    n_features = states.shape[1]
    total = counts.sum(axis=1)  # (n_assessors, n_states)
    residual = counts - total[:, None, :] * shares
    slope = (residual @ states).transpose(0, 2, 1).reshape(n_assessors, -1)
    weighted = shares * total[:, None, :]
    curvature = np.empty((n_assessors, n_features, n_answers, n_features, n_answers))
    place = np.arange(n_answers)
    for i in range(n_features):
        for j in range(i + 1):
            seen = weighted * (states[:, i] * states[:, j])
            block = -(seen @ shares.transpose(0, 2, 1))
            block[:, place, place] += seen.sum(axis=2)
            curvature[:, i, :, j, :] = block
            curvature[:, j, :, i, :] = block  # symmetric in the answers too
    size = n_features * n_answers
    return slope, curvature.reshape(n_assessors, size, size)


def in_grade_order(
    curves: NDArray[np.float64], spread: NDArray[np.float64], n_grades: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The nearest curves, by the curvature at hand, whose slopes do not fall from grade to grade (Hildreth 1957).

    >>> in_grade_order(np.array([[0.5, -0.5, 0.0, 0.0]]), np.eye(4)[None], np.array([2])).tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    """
    # curves (n_assessors, size), spread (n_assessors, size, size), n_grades (n_assessors,): slopes come first
    n_steps = int(n_grades.max()) - 1
    rises = np.zeros((n_steps, curves.shape[1]))
    rises[np.arange(n_steps), np.arange(n_steps)] = -1.0
    rises[np.arange(n_steps), np.arange(n_steps) + 1] = 1.0
    asked = np.arange(n_steps) < n_grades[:, None] - 1
    push = spread @ rises.T  # (n_assessors, size, n_steps): what a unit of each multiplier moves
    moved, multiplier = curves.copy(), np.zeros((len(curves), n_steps))
    for _ in range(SWEEPS):
        largest = 0.0
        for step in range(n_steps):
            own = np.maximum(push[:, step + 1, step] - push[:, step, step], 1e-300)
            rise = moved[:, step + 1] - moved[:, step]
            new = np.where(asked[:, step], np.maximum(multiplier[:, step] - rise / own, 0.0), 0.0)
            change = new - multiplier[:, step]
            moved += push[:, :, step] * change[:, None]
            multiplier[:, step] = new
            largest = max(largest, float(np.abs(change * own).max()))
        if largest < 1e-9:
            break
    return moved


def learn_prior(
    curves: NDArray[np.float64],
    spread: NDArray[np.float64],
    first_mean: NDArray[np.float64],
    first_variance: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of the assessors' curves, as if a few assessors of the first guess were among them."""
    n = len(curves)
    mean = (curves.sum(axis=0) + FEW * first_mean) / (n + FEW)
    off = curves - mean
    total = off.T @ off + spread.sum(axis=0) + FEW * np.diag(first_variance)
    return mean, total / (n + FEW)


def careful_curves(judgments: NDArray[np.float64], likelihood: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(answer | node) of a typical careful assessor: the mean over assessors, by judgments and informativeness.

    The square of the informativeness: a crowd may be mostly careless, and its mean curve then hardly rises.
    """
    # judgments (n_assessors,), likelihood (n_assessors, n_answers, n_nodes) -> (n_answers, n_nodes)
    prior = node_prior(likelihood.shape[2])
    informativeness = np.concatenate([information(prior, likelihood[part])[0] for part in blocks(len(likelihood))])
    weights = judgments * (informativeness**2 + 1e-9)
    curves: NDArray[np.float64] = np.einsum("a,agm->gm", weights / weights.sum(), likelihood)
    return curves
