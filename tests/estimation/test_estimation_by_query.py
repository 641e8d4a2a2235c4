"""Test the prediction-powered mean against ppi-python, and the coverage of its intervals."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank._typing import Floats
from crowdrank.estimation.by_query import ByQueryEstimator, sample_mean

WITH_LEVEL = 0.95


def draws(n: int, n_others: int, rng: np.random.Generator, *, reversed_labels: bool = False) -> tuple[Floats, ...]:
    """Return values of queries with experts, predictions for them, and predictions for others; the mean is 0.5."""
    truth = rng.beta(2, 2, n + n_others)
    predicted = 0.9 - 0.4 * truth if reversed_labels else 0.2 + 0.8 * truth
    predicted = predicted + rng.normal(0, 0.12, n + n_others)
    return truth[:n], predicted[:n], predicted[n:]


def make_estimator(truth: Floats, known: Floats, others: Floats) -> ByQueryEstimator:
    """Return an estimator of one run whose queries may all differ."""
    experts = np.append(truth, np.zeros(len(others)))[:, None]
    n_queries = len(experts)
    is_expert = np.arange(n_queries) < len(truth)
    return ByQueryEstimator(np.append(known, others)[:, None], experts, is_expert, np.zeros(n_queries, np.bool_))


@pytest.mark.parametrize("n", [30, 80])
def test_for_one_weight_estimate_and_error_equal_those_of_ppi_python(n: int) -> None:
    ppi_py = pytest.importorskip("ppi_py")
    truth, known, others = draws(n, 150, np.random.default_rng(n))
    mean = make_estimator(truth, known, others)._mean(np.ones(1), np.full((n, 2), 0.6))
    assert mean.value == pytest.approx(
        float(ppi_py.ppi_mean_pointestimate(truth, known, others, lam=0.6)[0]), rel=1e-12
    )
    divided_by_n = np.sqrt(0.6**2 * others.var() / len(others) + (truth - 0.6 * known).var() / n)
    assert mean.error == pytest.approx(divided_by_n, rel=2 / n)
    assert mean.error > divided_by_n


def test_the_weight_of_a_query_does_not_depend_on_it() -> None:
    truth, known, others = draws(40, 50, np.random.default_rng(3))
    weights = make_estimator(truth, known, others).weights
    changed = truth.copy()
    changed[7] = 0.0
    after = make_estimator(changed, known, others).weights
    np.testing.assert_array_equal(after[7], weights[7])
    assert (np.delete(after[:, 0], 7) != np.delete(weights[:, 0], 7)).all()


def test_experts_for_all_queries_leave_nothing_to_the_labels() -> None:
    truth, known, others = draws(15, 0, np.random.default_rng(3))
    estimate = make_estimator(truth, known, others).estimate(np.ones(1), WITH_LEVEL)
    assert estimate.value == pytest.approx(truth.mean())
    assert estimate.weight == 0.0


def test_queries_with_equal_rankings_do_not_change_a_difference() -> None:
    rng = np.random.default_rng(2)
    labels, experts = rng.random((2, 60, 2))
    is_equal, is_expert = np.arange(60) >= 40, np.arange(60) % 3 == 0
    for values in (labels, experts):
        values[is_equal, 1] = values[is_equal, 0]
    difference = np.array([-1.0, 1.0])
    estimate = ByQueryEstimator(labels, experts, is_expert, is_equal).estimate(difference, WITH_LEVEL)
    fewer = ByQueryEstimator(labels[:40], experts[:40], is_expert[:40], is_equal[:40])
    alone = fewer.estimate(difference, WITH_LEVEL)
    assert estimate.experts == pytest.approx(alone.experts * 40 / 60)
    rows = [ByQueryEstimator(labels, experts, is_expert, is_equal).estimate(run, WITH_LEVEL) for run in np.eye(2)]
    assert rows[1].value - rows[0].value == pytest.approx(estimate.value)


def test_equal_values_of_a_run_have_no_interval_of_width_0() -> None:
    labels, experts, level = np.full((50, 1), 0.9), np.ones((50, 1)), np.ones(1)
    seven, twenty = (
        ByQueryEstimator(labels, experts, np.arange(50) < n, np.zeros(50, np.bool_)).estimate(level, 0.95).clipped(0, 1)
        for n in (7, 20)
    )
    assert seven.lower == pytest.approx(0.05 ** (1 / 7))
    assert twenty.lower == pytest.approx(0.05 ** (1 / 20))
    assert (seven.value, seven.upper) == (1.0, 1.0)


def test_rare_differences_have_no_interval_of_width_0() -> None:
    labels = np.tile(np.linspace(0.2, 0.9, 50)[:, None], 2)
    is_expert, is_equal = np.arange(50) < 12, np.arange(50) >= 25
    estimate = ByQueryEstimator(labels, labels, is_expert, is_equal).estimate(np.array([-1.0, 1.0]), WITH_LEVEL)
    assert (estimate.value, estimate.p) == (0.0, 1.0)
    assert estimate.upper == -estimate.lower == pytest.approx(0.5 * (1 - 0.05 ** (1 / 12)) * 0.9)


@pytest.mark.parametrize("n", [10, 20, 50])
@pytest.mark.parametrize("reversed_labels", [False, True])
def test_intervals_cover_the_mean(n: int, reversed_labels: bool) -> None:
    rng, n_worlds = np.random.default_rng([n, reversed_labels]), 1500
    covered = 0
    for _ in range(n_worlds):
        truth, known, others = draws(n, 150, rng, reversed_labels=reversed_labels)
        estimate = make_estimator(truth, known, others).estimate(np.ones(1), WITH_LEVEL)
        covered += estimate.lower <= 0.5 <= estimate.upper
    assert 0.93 <= covered / n_worlds <= 0.975


def test_good_labels_are_worth_many_expert_grades_and_bad_ones_none() -> None:
    for reversed_labels, low, high in ((False, 1.5, 6.0), (True, 1.0, 1.0)):
        truth, known, others = draws(40, 400, np.random.default_rng(5), reversed_labels=reversed_labels)
        worth = make_estimator(truth, known, others).estimate(np.ones(1), WITH_LEVEL).worth
        assert low <= worth <= high


def test_equal_differences_are_tested_by_their_sign() -> None:
    assert sample_mean(np.full(6, 0.1)).p == 2 * 0.5**6
    assert sample_mean(np.zeros(6)).p == 1.0


DIFFERENCE = np.array([-1.0, 1.0])


def test_equal_differences_have_no_interval_of_width_0() -> None:
    differs, none = np.full(50, 0.1), np.zeros(50)
    estimate = ByQueryEstimator.of_differences(differs, differs, np.arange(50) < 3).estimate(DIFFERENCE, WITH_LEVEL)
    assert estimate.value == pytest.approx(0.1)
    assert estimate.lower < 0.1 < estimate.upper
    equal = ByQueryEstimator(np.ones((50, 2)), np.ones((50, 2)), np.arange(50) < 3, none == 0)
    nothing = equal.estimate(DIFFERENCE, WITH_LEVEL)
    assert nothing.upper == -nothing.lower == pytest.approx(1 - 0.05 ** (1 / 50))


@pytest.mark.parametrize("n", [3, 7, 20])
def test_useless_labels_do_not_make_the_estimate_worse(n: int) -> None:
    rng, errors = np.random.default_rng(n), []
    for _ in range(600):
        truth, known, others = rng.normal(0, 1, n), rng.normal(0, 1, n), rng.normal(0, 1, 100)
        labels, experts = np.append(known, others), np.append(truth, np.zeros(100))
        estimator = ByQueryEstimator.of_differences(labels, experts, np.arange(n + 100) < n)
        estimate = estimator.estimate(DIFFERENCE, WITH_LEVEL)
        errors.append([estimate.value**2, estimate.experts**2])
    combined, alone = np.sqrt(np.mean(errors, axis=0))
    assert combined <= 1.03 * alone
    if n == 3:
        assert combined == alone


def test_labels_that_predict_queries_but_not_differences_help_with_the_level_only() -> None:
    rng = np.random.default_rng(4)
    difficulty, n_queries = rng.uniform(0.2, 0.8, 120), 120
    experts = difficulty[:, None] + rng.normal(0, 0.05, (n_queries, 2))
    labels = difficulty[:, None] + rng.normal(0, 0.05, (n_queries, 2))
    estimator = ByQueryEstimator(labels, experts, np.arange(n_queries) < 30, np.zeros(n_queries, np.bool_))
    low, high, difference = (estimator.estimate(one, WITH_LEVEL) for one in (*np.eye(2), DIFFERENCE))
    assert low.weight > 0.5 > 0.2 > difference.weight
    assert low.worth > 3
    assert high.value - low.value == pytest.approx(difference.value)


def test_intervals_of_few_skewed_values_cover_their_mean() -> None:
    rng, n, n_worlds, covered = np.random.default_rng(8), 7, 1500, 0
    mean = 2 / 2.6
    for _ in range(n_worlds):
        values = rng.beta(2.0, 0.6, n)
        estimate = make_estimator(values, np.full(n, 0.8), np.full(100, 0.8)).estimate(np.ones(1), WITH_LEVEL)
        covered += estimate.lower <= mean <= estimate.upper
    assert 0.93 <= covered / n_worlds <= 0.985


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_differences_of_a_part_of_the_queries_are_found_by_chance_in_5_percent(share: float) -> None:
    rng, n, n_worlds, found, covered = np.random.default_rng(9), 21, 1500, 0, 0
    for _ in range(n_worlds):
        truth = rng.normal(0, 0.2, n) * (rng.random(n) < share)
        estimator = ByQueryEstimator.of_differences(truth, truth, np.ones(n, np.bool_))
        estimate = estimator.estimate(DIFFERENCE, WITH_LEVEL)
        found += estimate.p < 0.05
        covered += estimate.lower <= 0 <= estimate.upper
    assert 0.03 <= found / n_worlds <= 0.07
    assert 0.93 <= covered / n_worlds <= 0.98
