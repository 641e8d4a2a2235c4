"""Weighted least squares against scikit-learn, what folding may not change, and reweighting by deviations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from crowdrank import GLS, RD
from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.rankers.base import MissingValueWarning
from crowdrank.rankers.linear import folded


def drawn(seed: int, n: int = 40, features: int = 5) -> tuple[Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(2, 3, (n, features))
    y = X @ rng.normal(size=features) + rng.normal(size=n)
    return X, y, np.repeat(np.arange(n // 4), 4), rng.uniform(0.1, 3, n)


@pytest.mark.parametrize("mu", [0.0, 1.0, 50.0])
def test_it_is_scikit_learns_ridge(mu: float) -> None:
    X, y, query, weight = drawn(0)
    ours = GLS(mu=mu).fit(X, y, query=query, sample_weight=weight)
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    theirs = Ridge(alpha=mu).fit((X - mean) / scale, y, sample_weight=weight)
    assert np.allclose(ours.coef_, theirs.coef_)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    assert np.allclose(ours.predict(X), theirs.predict((X - mean) / scale))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_a_weight_is_a_number_of_rows(seed: int) -> None:
    X, y, query, _ = drawn(seed)
    times = np.random.default_rng(seed).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    weighted = GLS().fit(X, y, query=query, sample_weight=times)
    repeated = GLS().fit(X[rows], y[rows], query=query[rows])
    assert np.allclose(weighted.coef_, repeated.coef_)
    assert weighted.intercept_ == pytest.approx(repeated.intercept_)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_folding_leaves_the_same_equations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (30, 3)).astype(float)
    X[rng.random((30, 3)) < 0.1] = np.nan
    target, weight = rng.normal(size=30), rng.uniform(0, 2, 30) * (rng.random(30) < 0.8)
    few, mean, mass = folded(X, target, weight)
    assert len(few) == len({row.tobytes() for row in X[weight > 0]})
    assert mass.sum() == pytest.approx(weight.sum())
    filled, known = np.nan_to_num(few, nan=9.0), np.nan_to_num(X, nan=9.0)
    assert np.allclose(filled.T @ (mass[:, None] * filled), known.T @ (weight[:, None] * known))
    assert np.allclose(filled.T @ (mass * mean), known.T @ (weight * target))


def test_without_a_ridge_dependent_features_have_a_solution() -> None:
    X, y, query, weight = drawn(1)
    doubled = np.hstack([X, X[:, :2], np.full((len(X), 1), 4.0)])
    ours = GLS(mu=0).fit(doubled, y, query=query, sample_weight=weight)
    assert np.allclose(ours.predict(doubled), GLS(mu=0).fit(X, y, query=query, sample_weight=weight).predict(X))
    assert ours.coef_[-1] == 0
    assert np.allclose(ours.coef_[:2], ours.coef_[5:7])


def test_the_ridge_is_chosen_by_validation() -> None:
    X, y, query, _ = drawn(2, n=80, features=20)
    grades = np.digitize(y, np.quantile(y, [0.5, 0.8]))
    held_out = (X[40:], grades[40:], query[40:])
    several = (0.01, 1.0, 100.0)
    ranker = GLS(mu=several).fit(X[:40], grades[:40], query=query[:40], eval_set=held_out)
    assert len(ranker.history_) == 3
    assert ranker.mu_ == several[int(np.argmax(ranker.history_))]
    alone = GLS(mu=ranker.mu_).fit(X[:40], grades[:40], query=query[:40])
    assert np.array_equal(alone.coef_, ranker.coef_)
    with pytest.raises(UsageError, match="mu has several values; give eval_set"):
        GLS(mu=several).fit(X, grades, query=query)


def test_blanks_are_said_and_count_as_the_mean() -> None:
    X, y, query, _ = drawn(3)
    X[::3, 1] = np.nan
    with pytest.warns(MissingValueWarning, match=r"1 feature \(f2\) has missing values, which GLS takes as the mean"):
        ours = GLS().fit(X, y, query=query)
    row = np.array([[1.0, np.nan, 1.0, 1.0, 1.0]])
    assert ours.predict(row) == pytest.approx(ours.predict(np.array([[1.0, np.nanmean(X[:, 1]), 1.0, 1.0, 1.0]])))


def test_deviations_weigh_less_the_larger_they_are() -> None:
    X, y, query, weight = drawn(4)
    y[::7] += 25  # labels that nothing explains
    first = GLS(mu=1).fit(X, y, query=query, sample_weight=weight)
    delta = 0.7
    off = np.abs(y - first.predict(X))
    by_hand = GLS(mu=1).fit(
        X, y, query=query, sample_weight=weight * np.minimum(1 / delta**2, 1 / np.maximum(off, 1e-12) ** 2)
    )
    ours = RD(mu=1, delta=delta).fit(X, y, query=query, sample_weight=weight)
    assert np.allclose(ours.coef_, by_hand.coef_)
    assert np.allclose(ours.deviations_, off)
    truth = GLS(mu=1).fit(*(part[np.arange(len(y)) % 7 > 0] for part in (X, y)), query=query[np.arange(len(y)) % 7 > 0])
    assert np.abs(ours.coef_ - truth.coef_).sum() < np.abs(first.coef_ - truth.coef_).sum()


@pytest.mark.parametrize(
    ("ranker", "said"),
    [
        (GLS(mu=-1), "mu must be a number of at least 0 or a sequence .*, not -1"),
        (GLS(mu=()), "mu must be a number of at least 0 or a sequence"),
        (GLS(target="rank"), "target must be one of grade, gain, not 'rank'"),
        (GLS(validate_by="Tau"), "validate_by is one of nDCG, DCG, AP, ERR"),
        (RD(delta=0), "delta must be a number above 0, not 0"),
    ],
)
def test_settings_that_mean_nothing(ranker: GLS, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ranker.fit([[0.0], [1.0]], [0, 1], query=[1, 1])
