"""Curves of every kind against their definitions, and the constraints on them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank.consensus.curves import answer_curves, features, first_curves, in_grade_order, newton_step
from crowdrank.consensus.latent import DIFFICULTIES, N_NODES, NODES, PRIOR, points, states_prior

KINDS = {
    "tied": (np.ones(1), True),
    "untied": (np.ones(1), False),
    "difficulty": (DIFFICULTIES, True),
    "both": (DIFFICULTIES, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gaussians_of_the_paper_are_among_the_curves(kind: str) -> None:
    """P(g | r, eps) proportional to alpha_g N(r; mu_g, w_g eps), from its definition (eq. 1)."""
    difficulties, tied = KINDS[kind]
    rng = np.random.default_rng(3)
    mu, alpha = rng.normal(0, 1, 3), rng.dirichlet(np.ones(3))
    width = np.full(3, 0.7) if tied else rng.uniform(0.4, 1.2, 3)
    states, _ = features(difficulties, tied)
    coefficients = [mu / width, np.log(alpha) - 0.5 * np.log(width)]
    exponent = -0.5 * mu**2 / width
    if len(difficulties) > 1:
        coefficients.append(exponent)
    else:
        coefficients[1] = coefficients[1] + exponent
    if not tied:
        coefficients.append(-0.5 / width)
    found = answer_curves(np.concatenate(coefficients)[None], states)[0]
    for place, (eps, node) in enumerate((eps, node) for eps in difficulties for node in NODES):
        density = alpha * np.exp(-0.5 * (node - mu) ** 2 / (width * eps)) / np.sqrt(width * eps)
        assert np.allclose(found[:, place], density / density.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_newton_steps_end_at_the_top_also_with_missing_answers(kind: str) -> None:
    states, sds = features(*KINDS[kind])
    rng = np.random.default_rng(0)
    missing = np.array([[False, False, False, False], [False, False, True, True]])
    counts = np.where(missing[:, :, None], 0.0, rng.gamma(0.4, 2.0, (2, 4, len(states))))
    size = len(sds) * 4
    mean = rng.normal(0, 0.3, (2, size))
    precision = np.stack([np.diag(1 / np.repeat(sds**2, 4))] * 2)
    curves = mean.copy()
    for _ in range(40):
        curves, _ = newton_step(counts, curves, states, mean, precision, missing)
    for a in range(2):

        def loss(flat: NDArray[np.float64], a: int = a) -> float:
            scores = (flat.reshape(len(sds), 4).T @ states.T)[~missing[a]]
            logs = scores - np.logaddexp.reduce(scores, axis=0)
            off = flat - mean[a]
            return float(0.5 * off @ precision[a] @ off - (counts[a][~missing[a]] * logs).sum())

        best = scipy.optimize.minimize(loss, mean[a], tol=1e-9)
        assert loss(curves[a]) <= best.fun + 1e-4
        assert np.allclose(curves[a][np.tile(missing[a], len(sds))], mean[a][np.tile(missing[a], len(sds))])


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_grade_order_is_the_nearest_by_the_curvature(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curves, root = rng.normal(0, 1, (3, 8)), rng.normal(0, 1, (3, 8, 8))
    spread = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(8)
    found = in_grade_order(curves, spread, np.array([4, 4, 2]))
    for a, n_grades in enumerate((4, 4, 2)):
        assert (np.diff(found[a, :n_grades]) > -1e-6).all()
        precision = np.linalg.inv(spread[a])

        def cost(x: NDArray[np.float64], a: int = a, precision: NDArray[np.float64] = precision) -> float:
            return float((x - curves[a]) @ precision @ (x - curves[a]))

        rises = scipy.optimize.LinearConstraint(np.diff(np.eye(8), axis=0)[: n_grades - 1], 0.0, np.inf)
        best = scipy.optimize.minimize(cost, np.zeros(8), constraints=rises, method="SLSQP", options={"maxiter": 500})
        assert cost(found[a]) <= best.fun + 1e-4 * (1 + abs(best.fun))


def test_first_curves_rise_with_the_grades_and_follow_their_use() -> None:
    first = first_curves(np.array([50.0, 10.0, 5.0]), 3, has_ease=True)
    assert (np.diff(first[0]) > 0).all()
    assert (np.diff(first[1] + first[2]) < 0).all()


@settings(max_examples=25)
@given(at=st.floats(-2.8, 2.8), width=st.floats(0.3, 2.0))
def test_points_hold_the_highest_place(at: float, width: float) -> None:
    """A normal density is a parabola in logarithms: its top is found between the nodes."""
    posterior = np.exp(-0.5 * ((NODES - at) / width) ** 2)[None]
    share = points(posterior / posterior.sum(), N_NODES)
    assert share.sum() == pytest.approx(1)
    assert share[0] @ NODES == pytest.approx(at, abs=1e-6)


def test_points_among_difficulties_stay_in_their_row() -> None:
    posterior = states_prior(DIFFICULTIES)[None].copy()
    posterior[0, 2 * N_NODES] = 1.0  # the lowest node of the middle difficulty
    assert points(posterior, N_NODES)[0].nonzero()[0].tolist() == [2 * N_NODES]
    broken = np.append(PRIOR * 0.1, 0.9)[None]  # and a state after the nodes is no place on the line
    assert points(broken, N_NODES)[0].nonzero()[0].tolist() == [N_NODES]
