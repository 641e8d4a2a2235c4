"""Weighted least squares compared with scikit-learn, merged rows, the choice of the ridge, and RD."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GLS, RD, LambdaMART, PointwiseGBDT
from crowdrank._typing import Floats
from crowdrank.errors import Fix, UsageError
from crowdrank.rankers.linear import merge_equal_rows
from crowdrank.rankers.model_selection import search_grid
from crowdrank.rankers.ranker import MissingValueWarning, Ranker


def drawn(seed: int, n: int = 40, features: int = 5) -> tuple[Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(2, 3, (n, features))
    y = X @ rng.normal(size=features) + rng.normal(size=n)
    return X, y, np.repeat(np.arange(n // 4), 4), rng.uniform(0.1, 3, n)


@pytest.mark.parametrize("mu", [0.0, 1.0, 50.0])
def test_gls_equals_the_ridge_of_scikit_learn(mu: float) -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    X, y, query, weight = drawn(0)
    ours = GLS(mu=mu).fit(X, y, query=query, sample_weight=weight)
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    theirs = sklearn.Ridge(alpha=mu).fit((X - mean) / scale, y, sample_weight=weight)
    assert np.allclose(ours.coef_, theirs.coef_)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    assert np.allclose(ours.predict(X), theirs.predict((X - mean) / scale))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_a_weight_equals_repeated_rows(seed: int) -> None:
    X, y, query, _ = drawn(seed)
    times = np.random.default_rng(seed).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    weighted = GLS().fit(X, y, query=query, sample_weight=times)
    repeated = GLS().fit(X[rows], y[rows], query=query[rows])
    assert np.allclose(weighted.coef_, repeated.coef_)
    assert weighted.intercept_ == pytest.approx(repeated.intercept_)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_merging_equal_rows_keeps_the_normal_equations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (30, 3)).astype(float)
    X[rng.random((30, 3)) < 0.1] = np.nan
    target, weight = rng.normal(size=30), rng.uniform(0, 2, 30) * (rng.random(30) < 0.8)
    merged, mean, mass = merge_equal_rows(X, target, weight)
    assert len(merged) == len({row.tobytes() for row in X[weight > 0]})
    assert mass.sum() == pytest.approx(weight.sum())
    filled, known = np.nan_to_num(merged, nan=9.0), np.nan_to_num(X, nan=9.0)
    assert np.allclose(filled.T @ (mass[:, None] * filled), known.T @ (weight[:, None] * known))
    assert np.allclose(filled.T @ (mass * mean), known.T @ (weight * target))


def test_collinear_features_without_a_ridge_have_a_solution() -> None:
    X, y, query, weight = drawn(1)
    doubled = np.hstack([X, X[:, :2], np.full((len(X), 1), 4.0)])
    ours = GLS(mu=0).fit(doubled, y, query=query, sample_weight=weight)
    assert np.allclose(ours.predict(doubled), GLS(mu=0).fit(X, y, query=query, sample_weight=weight).predict(X))
    assert ours.coef_[-1] == 0
    assert np.allclose(ours.coef_[:2], ours.coef_[5:7])


def test_validation_chooses_the_ridge() -> None:
    X, y, query, _ = drawn(2, n=80, features=20)
    grades = np.digitize(y, np.quantile(y, [0.5, 0.8]))
    held_out = (X[40:], grades[40:], query[40:])
    several = (0.01, 1.0, 100.0)
    ranker = GLS(mu=several).fit(X[:40], grades[:40], query=query[:40], eval_set=held_out)
    tried = {mu: GLS(mu).fit(X[:40], grades[:40], query=query[:40], eval_set=held_out).history_[0] for mu in several}
    assert ranker.history_[:3] == list(tried.values())
    assert max(ranker.history_) >= max(tried.values())
    alone = GLS(mu=ranker.mu_).fit(X[:40], grades[:40], query=query[:40])
    assert np.array_equal(alone.coef_, ranker.coef_)
    with pytest.raises(UsageError) as caught:
        GLS(mu=several).fit(X, grades, query=query)
    assert caught.value.fix == Fix("give {}, on which one is chosen", "eval_set")


@pytest.mark.parametrize("has_validation", [False, True])
def test_auto_ridge_is_relative_to_the_sum_of_weights(has_validation: bool) -> None:
    X, y, query, weight = drawn(4, n=80, features=6)
    grades = np.digitize(y, np.quantile(y, [0.5, 0.8]))
    held_out = (X[40:], grades[40:], query[40:]) if has_validation else None
    one, two = (
        GLS(mu="auto").fit(X[:40], grades[:40], query=query[:40], sample_weight=scale * weight[:40], eval_set=held_out)
        for scale in (1, 7)
    )
    assert two.mu_ == pytest.approx(7 * one.mu_)
    np.testing.assert_allclose(two.coef_, one.coef_)


@pytest.mark.parametrize(("best", "start"), [(1e4, [1.0, 10.0]), (1e-3, [1.0, 10.0]), (3.0, [1.0, 3.0, 9.0])])
def test_a_grid_extends_itself_beyond_its_ends(best: float, start: list[float]) -> None:
    tried: list[float] = []

    def evaluate(value: float) -> float:
        tried.append(value)
        return -abs(math.log(value / best))

    value, results = search_grid(evaluate, start)
    assert value == pytest.approx(best)
    assert len(results) == len(tried)
    assert min(tried) < value < max(tried)


def test_a_grid_stops_where_values_are_equal() -> None:
    assert search_grid(lambda value: 1.0, [1.0, 10.0]) == (1.0, [1.0, 1.0, 1.0])
    assert search_grid(lambda value: -value, [0.0, 1.0]) == (0.0, [0.0, -1.0])


def test_missing_values_are_replaced_by_the_mean_with_a_warning() -> None:
    X, y, query, _ = drawn(3)
    X[::3, 1] = np.nan
    with pytest.warns(MissingValueWarning, match=r"1 feature \(f2\) has missing values, which GLS replaces"):
        ours = GLS().fit(X, y, query=query)
    row = np.array([[1.0, np.nan, 1.0, 1.0, 1.0]])
    assert ours.predict(row) == pytest.approx(ours.predict(np.array([[1.0, np.nanmean(X[:, 1]), 1.0, 1.0, 1.0]])))


def test_rd_weights_rows_by_their_residuals() -> None:
    X, y, query, weight = drawn(4)
    y[::7] += 25  # outliers
    first = GLS(mu=1).fit(X, y, query=query, sample_weight=weight)
    delta = 0.7
    off = np.abs(y - first.predict(X))
    by_hand = GLS(mu=1).fit(
        X, y, query=query, sample_weight=weight * np.minimum(1 / delta**2, 1 / np.maximum(off, 1e-12) ** 2)
    )
    ranker = RD(GLS(mu=1), delta=delta).fit(X, y, query=query, sample_weight=weight)
    ours = ranker.ranker_
    assert isinstance(ours, GLS)
    assert np.allclose(ours.coef_, by_hand.coef_)
    assert np.allclose(ranker.residuals_, off)
    truth = GLS(mu=1).fit(*(part[np.arange(len(y)) % 7 > 0] for part in (X, y)), query=query[np.arange(len(y)) % 7 > 0])
    assert np.abs(ours.coef_ - truth.coef_).sum() < np.abs(first.coef_ - truth.coef_).sum()


@pytest.mark.parametrize(
    ("ranker", "said"),
    [
        (GLS(mu=-1), "mu must be a number of at least 0 or a sequence .* or auto, not -1"),
        (GLS(mu=()), "mu must be a number of at least 0 or a sequence"),
        (GLS(target="rank"), "target must be one of grade, gain, not 'rank'"),
        (GLS(validate_by="Tau"), "validate_by must be one of nDCG, DCG, AP, ERR"),
        (RD(delta=0), "delta must be a number above 0 or a sequence .* or auto, not 0"),
        (RD(LambdaMART()), "estimator must be a GLS or a PointwiseGBDT or None"),
    ],
)
def test_invalid_parameters_are_refused(ranker: Ranker, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ranker.fit([[0.0], [1.0]], [0, 1], query=[1, 1])


def test_rd_takes_boosted_trees_and_chooses_delta_by_validation() -> None:
    X, y, query, _ = drawn(5, n=200)
    grades = np.digitize(y, np.quantile(y, [0.5, 0.8])).astype(float)
    noisy = np.where(np.random.default_rng(0).random(200) < 0.2, 2 - grades, grades)
    trees = PointwiseGBDT(n_estimators=20, min_child_samples=5)
    held_out = (X[100:], grades[100:], query[100:])
    ranker = RD(trees).fit(X[:100], noisy[:100], query=query[:100], eval_set=held_out)
    assert isinstance(ranker.ranker_, PointwiseGBDT)
    assert len(ranker.history_) >= 3
    first = trees.unfitted().fit(X[:100], noisy[:100], query=query[:100], eval_set=held_out)
    weight = np.minimum(1 / ranker.delta_**2, 1 / np.abs(noisy[:100] - first.predict(X[:100])) ** 2)
    by_hand = trees.unfitted().fit(X[:100], noisy[:100], query=query[:100], sample_weight=weight, eval_set=held_out)
    assert np.allclose(ranker.predict(X), by_hand.predict(X))
    assert RD(trees).fit(X, noisy, query=query).delta_ == 0.5
