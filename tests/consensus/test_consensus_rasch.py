"""Rasch against slow references, data drawn from the model itself, and TREC RF10."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from crowdrank import Judgments, evaluate, read_judgments
from crowdrank._typing import Arrays
from crowdrank.consensus.latent import DIFFICULTIES, NODES, PRIOR_DOCUMENTS
from crowdrank.consensus.rasch import Rasch, threshold_curves, threshold_step
from crowdrank.errors import UsageError
from crowdrank.readers.datasets import dataset


def expected_log(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected log likelihood of each assessor's answers."""
    gain: NDArray[np.float64] = np.einsum("ags,ags->a", counts, np.log(np.maximum(shares, 1e-300)))
    return gain


EASE = {"plain": np.ones(1), "difficulties": DIFFICULTIES}
each_ease = pytest.mark.parametrize("eps", EASE.values(), ids=EASE)


def answer_shares(r: float, thresholds: NDArray[np.float64], eps: float = 1.0) -> NDArray[np.float64]:
    """P(answer | r) by the definition."""
    scores = [sum((r - tau) / eps for tau in thresholds[:g]) for g in range(len(thresholds) + 1)]
    shares: NDArray[np.float64] = np.exp(scores) / np.exp(scores).sum()
    return shares


def crowd(
    seed: int, items: int = 400, assessors: int = 20, share: float = 0.6, scale: float = 1.5, hard: float = 0.0
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Judgments drawn from the model, and the relevance, difficulty and thresholds that they come from."""
    rng = np.random.default_rng(seed)
    relevance, eps = rng.normal(0, 1, items), np.exp(hard * rng.normal(0, 1, items))
    thresholds = np.array([-0.5, 0.8]) + rng.normal(0, 0.7, (assessors, 2))
    item, assessor = np.nonzero(rng.random((items, assessors)) < share)
    grade = [
        rng.choice(3, p=answer_shares(scale * relevance[i], thresholds[a], eps[i]))
        for i, a in zip(item, assessor, strict=True)
    ]
    return pd.DataFrame({"document": item, "assessor": assessor, "grade": grade}), relevance, eps, thresholds


def random_counts(seed: int, n_states: int, n_answers: int = 4) -> NDArray[np.float64]:
    counts: NDArray[np.float64] = np.random.default_rng(seed).gamma(0.3, 2.0, (3, n_answers, n_states))
    return counts


@each_ease
def test_the_curves_equal_their_definition(eps: NDArray[np.float64]) -> None:
    thresholds = np.random.default_rng(0).normal(0, 1, (4, 3))
    curves = threshold_curves(thresholds, 0.2 + 1.3 * NODES, eps)
    states = [(ease, node) for ease in eps for node in NODES]
    for a, own in enumerate(thresholds):
        reference = np.stack([answer_shares(0.2 + 1.3 * node, own, ease) for ease, node in states], axis=1)
        assert np.allclose(curves[a], reference)


@each_ease
def test_repeated_threshold_steps_end_at_the_maximum_with_the_curvature_there(eps: NDArray[np.float64]) -> None:
    counts = random_counts(1, len(eps) * len(NODES))
    mean, precision = np.array([-0.5, 0.0, 0.5]), np.diag([1.0, 2.0, 0.5]) + 0.1
    thresholds = np.tile(mean + 3.0, (len(counts), 1))
    prior = np.tile(mean, (len(counts), 1)), np.tile(precision, (len(counts), 1, 1))
    for _ in range(30):
        thresholds, spread = threshold_step(counts, thresholds, 1.2 * NODES, eps, *prior)
    for a in range(len(counts)):

        def loss(own: NDArray[np.float64], a: int = a) -> float:
            gain = expected_log(counts[[a]], threshold_curves(own[None], 1.2 * NODES, eps))[0]
            return float(0.5 * (own - mean) @ precision @ (own - mean) - gain)

        assert np.allclose(minimize(loss, mean, tol=1e-10).x, thresholds[a], atol=1e-3)
        assert np.allclose(np.linalg.inv(spread[a]), second_derivatives(loss, thresholds[a]), rtol=1e-3, atol=1e-2)


def second_derivatives(function: object, at: NDArray[np.float64], h: float = 1e-3) -> NDArray[np.float64]:
    assert callable(function)
    steps = h * np.eye(len(at))
    return np.array(
        [
            [
                (function(at + x + y) - function(at + x - y) - function(at - x + y) + function(at - x - y))
                / (4 * h * h)
                for x in steps
            ]
            for y in steps
        ]
    )


def test_a_crowd_that_answers_in_reverse_is_not_turned_around() -> None:
    frame, relevance, *_ = crowd(1)
    model = Rasch().fit(frame.assign(grade=2 - frame["grade"]))
    table = model.consensus_.documents
    assert np.corrcoef(table["relevance"], relevance[table["document"]])[0, 1] < -0.9
    assert model.theta_["sd"][0] > 0


@pytest.mark.parametrize("grade", [0, 2])
def test_a_unanimous_crowd_has_a_finite_scale(grade: int) -> None:
    frame, *_ = crowd(1, items=40)
    model = Rasch(n_iter=500).fit(read_judgments(frame.assign(grade=grade), grades="0-2"))
    assert 0.05 < model.theta_["sd"][0] < 10
    assert np.isfinite(model.consensus_.documents["relevance"]).all()


class FixedPrior(Rasch):
    """With a fixed prior of the thresholds, EM raises the log posterior in every iteration."""

    @staticmethod
    def _learn_prior(
        thresholds: NDArray[np.float64], spread: NDArray[np.float64], initial_mean: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return initial_mean, np.eye(len(initial_mean))

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        origin, sd, initial_sd = (float(theta[name][0]) for name in ("origin", "sd", "initial_sd"))
        penalty = 0.5 * ((theta["thresholds"] - theta["mean"]) ** 2).sum()
        penalty += 0.5 * PRIOR_DOCUMENTS * (2 * np.log(sd) + (initial_sd**2 + origin**2) / sd**2)
        return float(super()._objective(theta, statistics, n) - penalty / n)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), difficulty=st.booleans())
def test_no_iteration_lowers_the_posterior_under_a_fixed_prior(seed: int, difficulty: bool) -> None:
    frame, *_ = crowd(seed, items=60, assessors=8)
    model = FixedPrior(n_iter=1000, tol=1e-9, difficulty=difficulty).fit(frame)
    assert len(model.history_) > 5
    assert (np.diff(model.history_) > -1e-5).all()  # up to the error of the quadrature, whose nodes move


def test_what_the_judgments_were_drawn_from_is_found() -> None:
    frame, relevance, _, thresholds = crowd(3)
    model = Rasch(tol=1e-7).fit(frame)
    table, about = model.consensus_.documents, model.consensus_.assessors
    truth = relevance[table["document"]]
    assert np.corrcoef(table["relevance"], truth)[0, 1] > 0.93
    assert model.theta_["sd"][0] == pytest.approx(1.5, abs=0.15)
    assert model.theta_["mean"][0] == pytest.approx(thresholds.mean(axis=0), abs=0.25)
    drawn = (20 * thresholds.var(axis=0) + 5) / (20 + 5)
    assert np.diag(model.theta_["covariance"][0]) == pytest.approx(drawn, rel=0.25)
    for step in (1, 2):
        places = thresholds[about["assessor"], step - 1] / 1.5
        assert np.corrcoef(about[f"threshold_{step}"], places)[0, 1] > 0.95
    covered = (table["lower"] <= truth) & (truth <= table["upper"])
    assert covered.mean() == pytest.approx(0.95, abs=0.03)


def test_difficulties_are_found_and_only_shown_when_asked_for() -> None:
    frame, relevance, eps, _ = crowd(4, items=300, assessors=40, hard=0.7, scale=2.0)
    model = Rasch(difficulty=True).fit(frame)
    table = model.consensus_.documents
    assert np.corrcoef(np.log(table["difficulty"]), np.log(eps[table["document"]]))[0, 1] > 0.4
    assert np.corrcoef(table["relevance"], relevance[table["document"]])[0, 1] > 0.9
    plain = Rasch().fit(frame)
    assert "difficulty" not in plain.consensus_.documents
    assert model.history_[-1] > plain.history_[-1]


def test_a_fit_may_start_from_one_with_other_difficulties() -> None:
    frame, *_ = crowd(5, items=60, assessors=8)
    for difficulty in (True, False):
        cold = Rasch(tol=1e-8, n_iter=1000, difficulty=difficulty).fit(frame)
        warm = Rasch(tol=1e-8, n_iter=1000, difficulty=difficulty).fit(
            frame, init=Rasch(difficulty=not difficulty).fit(frame)
        )
        assert np.allclose(warm.consensus_.documents["relevance"], cold.consensus_.documents["relevance"], atol=0.01)


def test_an_assessor_of_few_judgments_is_drawn_to_the_crowd() -> None:
    frame, *_ = crowd(6)
    harsh = pd.DataFrame({"document": [0, 1, 2], "assessor": 99, "grade": 0})
    model = Rasch().fit(read_judgments(pd.concat([frame, harsh])))
    about = model.consensus_.assessors.set_index("assessor")
    assert (
        about["threshold_1"].drop(99).median() < about.loc[99, "threshold_1"] < about["threshold_1"].drop(99).max() + 1
    )


def test_bad_settings_are_refused() -> None:
    frame, *_ = crowd(0, items=5, assessors=3)
    with pytest.raises(UsageError, match="difficulty must be True or False, not 'some'"):
        Rasch(difficulty="some").fit(frame)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unjudgeable_as must be one of lowest, drop"):
        Rasch(unjudgeable_as="model").fit(frame)


@pytest.mark.data
def test_on_rf10_it_ranks_as_well_as_joint_estimation(rf10: Judgments) -> None:
    gold = dataset("trec-rf10").read_gold().frame
    run = Rasch().fit(rf10).consensus_.documents
    means = evaluate(run, gold, ["AP", "nDCG", "Tau"], unjudged="skip").means
    assert means == pytest.approx({"AP": 0.768, "nDCG": 0.821, "Tau": 0.642}, abs=0.005)
