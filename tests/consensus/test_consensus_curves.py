"""Curves of assessors against their definitions, and the constraints on them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats
from crowdrank.consensus.curves import GaussianCurves, learn_prior, project_onto_constraints
from crowdrank.consensus.latent import DIFFICULTIES, N_NODES, NODES, PRIOR, mode_weights, states_prior

KINDS = {
    "tied": GaussianCurves(np.ones(1), tied_variance=True, nodes=NODES),
    "free": GaussianCurves(np.ones(1), tied_variance=False, nodes=NODES),
    "tied-difficulty": GaussianCurves(DIFFICULTIES, tied_variance=True, nodes=NODES),
    "free-difficulty": GaussianCurves(DIFFICULTIES, tied_variance=False, nodes=NODES),
}


def draw_gaussians(kind: str, seed: int, n_answers: int = 4) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    mu, alpha = rng.normal(0, 1, n_answers), rng.dirichlet(np.full(n_answers, 3.0))
    width = np.full(n_answers, 0.7) if KINDS[kind].tied_variance else rng.uniform(0.4, 1.2, n_answers)
    return mu, width, alpha


def parameters_of(kind: str, mu: Floats, width: Floats, alpha: Floats) -> Floats:
    curves = KINDS[kind]
    if curves.has_difficulty:
        return np.concatenate([mu / width, np.log(alpha), np.log(width[:1] if curves.tied_variance else width)])[None]
    offset = np.log(alpha) - 0.5 * np.log(width) - 0.5 * mu**2 / width
    return np.concatenate([mu / width, offset, *([] if curves.tied_variance else [-0.5 / width])])[None]


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_equation_1(kind: str) -> None:
    mu, width, alpha = draw_gaussians(kind, 3)
    found = KINDS[kind].probabilities(parameters_of(kind, mu, width, alpha))[0]
    states = [(eps, node) for eps in KINDS[kind].difficulties for node in NODES]
    for state, (eps, node) in enumerate(states):
        density = alpha * np.exp(-0.5 * (node - mu) ** 2 / (width * eps)) / np.sqrt(width * eps)
        assert np.allclose(found[:, state], density / density.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_plain_probabilities_are_those_of_difficulty_1(kind: str) -> None:
    mu, width, alpha = draw_gaussians(kind, 4)
    density = alpha[:, None] * np.exp(-0.5 * (NODES - mu[:, None]) ** 2 / width[:, None]) / np.sqrt(width[:, None])
    found = KINDS[kind].probabilities(parameters_of(kind, mu, width, alpha), plain=True)[0]
    assert np.allclose(found, density / density.sum(axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_gaussians_give_the_same_probabilities(kind: str) -> None:
    """With difficulty the Gaussians come back; otherwise the mixture of equivalent ones has mean 0 and variance 1."""
    true = [np.stack(arrays) for arrays in zip(*(draw_gaussians(kind, seed) for seed in range(5)), strict=True)]
    params = np.concatenate([parameters_of(kind, *(array[a] for array in true)) for a in range(5)])
    missing = np.zeros((5, 4), dtype=bool)
    mu, width, alpha = KINDS[kind].gaussians(params, missing)
    assert np.allclose(alpha.sum(axis=1), 1)
    if KINDS[kind].has_difficulty:
        assert all(np.allclose(*pair) for pair in zip((mu, width, alpha), true, strict=True))
        return
    assert np.allclose((alpha * mu).sum(axis=1), 0, atol=1e-6)
    assert np.allclose((alpha * (width + mu**2)).sum(axis=1), 1, atol=1e-6)
    if KINDS[kind].tied_variance:
        assert np.allclose(width, width[:, :1])
    again = np.concatenate([parameters_of(kind, mu[a], width[a], alpha[a]) for a in range(5)])
    assert np.allclose(KINDS[kind].probabilities(again), KINDS[kind].probabilities(params), atol=1e-6)


@pytest.mark.parametrize("kind", ["tied", "free"])
def test_gaussians_of_a_random_assessor_and_of_missing_answers(kind: str) -> None:
    n_blocks = 2 if KINDS[kind].tied_variance else 3
    missing = np.array([[False, False, True]])
    params = np.concatenate([np.zeros(3), np.log([0.5, 0.5, 1.0]), np.zeros(3)])[None, : 3 * n_blocks]
    mu, width, alpha = (array[0] for array in KINDS[kind].gaussians(params, missing))
    assert np.allclose(mu[:2], 0, atol=1e-6)
    assert np.allclose(width[:2], 1, atol=1e-6)
    assert np.allclose(alpha[:2], 0.5, atol=1e-6)
    assert np.isnan([mu[2], width[2], alpha[2]]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_end_at_the_maximum_also_with_missing_answers(kind: str) -> None:
    curves, rng = KINDS[kind], np.random.default_rng(0)
    missing = np.array([[False, False, False, False], [False, False, True, True]])
    counts = np.where(missing[:, :, None], 0.0, rng.gamma(0.4, 2.0, (2, 4, len(curves.features))))
    sd = curves.initial_sd(4)
    mean = rng.normal(0, 0.3, (2, len(sd)))
    precision = np.stack([np.diag(1 / sd**2)] * 2)
    params = mean.copy()
    for _ in range(60):
        params, _ = curves.step(counts, params, mean, precision, missing)

    def loss(tried: NDArray[np.float64], a: int) -> float:
        log_p = np.log(np.maximum(curves.probabilities(tried[None], missing[a : a + 1])[0], 1e-300))
        away = tried - mean[a]
        return float(0.5 * away @ precision[a] @ away - (counts[a] * log_p).sum())

    for a in range(2):
        best = min(scipy.optimize.minimize(loss, start, args=(a,), tol=1e-9).fun for start in (mean[a], params[a]))
        assert loss(params[a], a) <= best + 1e-3
        absent = np.tile(missing[a], 2)
        assert np.allclose(params[a][: len(absent)][absent], mean[a][: len(absent)][absent])


@pytest.mark.parametrize("kind", ["tied-difficulty", "free-difficulty"])
def test_no_step_lowers_the_objective(kind: str) -> None:
    curves, rng = KINDS[kind], np.random.default_rng(1)
    counts = rng.gamma(0.2, 5.0, (8, 3, len(curves.features)))
    sd = curves.initial_sd(3)
    mean, precision = np.zeros((8, len(sd))), np.stack([np.diag(1 / sd**2)] * 8)
    params = rng.normal(0, 1.5, (8, len(sd)))
    before = np.full(8, -np.inf)
    for _ in range(15):
        log_p = np.log(np.maximum(curves.probabilities(params), 1e-300))
        value = (counts * log_p).sum(axis=(1, 2)) - 0.5 * (params**2 / sd**2).sum(axis=1)
        assert (value >= before - 1e-6).all()
        before = value
        params, _ = curves.step(counts, params, mean, precision)


@pytest.mark.parametrize("kind", ["tied-difficulty", "free-difficulty"])
def test_fisher_information_is_the_expected_curvature(kind: str) -> None:
    """With counts at their expectation the curvature of the log likelihood is the Fisher information."""
    curves = KINDS[kind]
    params = parameters_of(kind, *draw_gaussians(kind, 5))
    counts = curves.probabilities(params) * 2.0
    identity = np.eye(params.shape[1])
    _, covariance = curves.step(counts, params, params, identity[None])

    def log_likelihood(moved: Floats) -> float:
        return float((counts * np.log(curves.probabilities(moved))).sum())

    small, expected = 1e-4, np.empty(identity.shape)
    for i, by in enumerate(identity * small):
        for j, and_by in enumerate(identity * small):
            corners = [log_likelihood(params + s * by + t * and_by) * s * t for s in (-1, 1) for t in (-1, 1)]
            expected[i, j] = -sum(corners) / (4 * small**2)
    assert np.allclose(np.linalg.inv(covariance[0]) - identity, expected, atol=1e-3)


def in_order(curves: GaussianCurves, params: Floats, relevance: float) -> Booleans:
    """Return whether log P(g + 1) / P(g) rises at a relevance, from finite differences."""
    at = GaussianCurves(curves.difficulties, curves.tied_variance, relevance + np.array([-1e-4, 0.0, 1e-4]))
    log_p = np.log(at.probabilities(params, plain=True))
    slopes = np.diff(log_p[:, :, 2] - log_p[:, :, 0], axis=1)
    rises: Booleans = np.asarray((slopes > -1e-6).all(axis=1))
    return rises


@pytest.mark.parametrize("kind", KINDS)
def test_ordered_curves_rise_on_the_whole_range(kind: str) -> None:
    curves, rng = KINDS[kind], np.random.default_rng(2)
    size = len(curves.initial_sd(4))
    params, root = rng.normal(0, 0.5, (20, size)), 0.2 * rng.normal(0, 1, (20, size, size))
    covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)
    ordered = curves.in_grade_order(params, np.zeros(params.shape), covariance, np.full(20, 4))
    assert not in_order(curves, params, 0.0).all()
    for relevance in (-2.9, -1.0, 0.0, 1.0, 2.9):
        assert in_order(curves, ordered, relevance).mean() >= (0.9 if kind == "free-difficulty" else 1.0)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_projections_are_the_nearest_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, root = rng.normal(0, 1, (3, 8)), rng.normal(0, 1, (3, 8, 8))
    covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(8)
    rows = np.diff(np.eye(8), axis=0)[:3]
    active = np.array([[True, True, True], [True, True, True], [True, False, False]])
    found = project_onto_constraints(start, covariance, rows, active)
    for a in range(3):
        own = rows[active[a]]
        assert (own @ found[a] > -1e-6).all()
        precision = np.linalg.inv(covariance[a])

        def cost(x: Floats, a: int = a, precision: Floats = precision) -> float:
            return float((x - start[a]) @ precision @ (x - start[a]))

        constraint = scipy.optimize.LinearConstraint(own, 0.0, np.inf)
        best = scipy.optimize.minimize(cost, np.zeros(8), constraints=constraint, options={"maxiter": 500})
        assert cost(found[a]) <= best.fun + 1e-4 * (1 + abs(best.fun))


@pytest.mark.parametrize("kind", KINDS)
def test_initial_curves_rise_with_the_grades_and_follow_their_use(kind: str) -> None:
    used = np.array([500.0, 100.0, 50.0, np.nan])
    mean = KINDS[kind].initial_mean(used, 4)
    assert (np.diff(mean[:3]) > 0).all()
    assert mean[3] == 0
    missing = np.isnan(used)[None]
    expected = KINDS[kind].probabilities(mean[None], missing)[0] @ states_prior(KINDS[kind].difficulties)
    assert expected.argmax() == 0
    assert expected[0] > 0.5


def test_with_difficulty_the_use_of_grades_is_learned_from_long_tasks_only() -> None:
    curves, rng = KINDS["tied-difficulty"], np.random.default_rng(0)
    initial = curves.initial_mean(np.array([10.0, 10.0, 10.0]), 3)
    shift = np.array([0, 0, 0, 1.5, 0.0, -1.5, -1.0])  # log alpha and log width of all assessors
    params = initial + shift + rng.normal(0, 0.1, (40, 7))
    spread, missing, fixed = np.tile(0.01 * np.eye(7), (40, 1, 1)), np.zeros(3, bool), curves.fixed_variances(3, 3)
    learned = {n: curves.learn_prior(params, spread, initial, np.full(40, n), missing, fixed) for n in (3.0, 300.0)}
    assert learned[3.0][0][3:] == pytest.approx(initial[3:])
    assert learned[300.0][0][3:6] == pytest.approx([1.5, 0.0, -1.5], abs=0.1)
    assert learned[300.0][0][6] < initial[6] - 0.8
    for _, covariance in learned.values():
        assert np.diag(covariance)[3:] == pytest.approx(fixed[3:])
        assert np.linalg.eigvalsh(covariance).min() > 0


def test_a_fixed_prior_is_kept() -> None:
    rng = np.random.default_rng(0)
    params, sd = rng.normal(2.0, 0.3, (50, 3)), np.array([0.5, 0.7, 0.5])
    fixed = np.array([False, True, False])
    mean, covariance = learn_prior(params, np.zeros((50, 3, 3)), np.zeros(3), sd, fixed)
    assert mean[1] == 0
    assert covariance[1].tolist() == pytest.approx([0, 0.49, 0])
    assert (mean[[0, 2]] > 1.7).all()


@settings(max_examples=25)
@given(at=st.floats(-2.8, 2.8), width=st.floats(0.3, 2.0))
def test_points_hold_the_highest_place(at: float, width: float) -> None:
    """A normal density is a parabola in logarithms: its top is found between the nodes."""
    posterior = np.exp(-0.5 * ((NODES - at) / width) ** 2)[None]
    share = mode_weights(posterior / posterior.sum(), N_NODES)
    assert share.sum() == pytest.approx(1)
    assert share[0] @ NODES == pytest.approx(at, abs=1e-6)


def test_points_among_difficulties_stay_in_their_row() -> None:
    posterior = states_prior(DIFFICULTIES)[None].copy()
    posterior[0, 2 * N_NODES] = 1.0  # the lowest node of the middle difficulty
    assert mode_weights(posterior, N_NODES)[0].nonzero()[0].tolist() == [2 * N_NODES]
    broken = np.append(PRIOR * 0.1, 0.9)[None]  # and a state after the nodes is no place on the line
    assert mode_weights(broken, N_NODES)[0].nonzero()[0].tolist() == [N_NODES]
