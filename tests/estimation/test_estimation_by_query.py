"""Test the prediction-powered mean against ppi-python, and the coverage of its intervals."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank._typing import Floats
from crowdrank.estimation.by_query import ByQueryEstimator, prediction_powered_mean, prediction_weight, sample_mean

WITH_LEVEL = 0.95


def draws(n: int, n_others: int, rng: np.random.Generator, *, reversed_labels: bool = False) -> tuple[Floats, ...]:
    """Return values of queries with experts, predictions for them, and predictions for others; the mean is 0.5."""
    truth = rng.beta(2, 2, n + n_others)
    predicted = 0.9 - 0.4 * truth if reversed_labels else 0.2 + 0.8 * truth
    predicted = predicted + rng.normal(0, 0.12, n + n_others)
    return truth[:n], predicted[:n], predicted[n:]


@pytest.mark.parametrize("n", [30, 80])
@pytest.mark.parametrize("reversed_labels", [False, True])
def test_estimate_and_error_equal_those_of_ppi_python(n: int, reversed_labels: bool) -> None:
    ppi_py = pytest.importorskip("ppi_py")
    truth, known, others = draws(n, 150, np.random.default_rng(n), reversed_labels=reversed_labels)
    mean, weight = prediction_powered_mean(truth, known, others)
    assert mean.value == pytest.approx(float(ppi_py.ppi_mean_pointestimate(truth, known, others)[0]), rel=1e-12)
    assert weight == 0.0 if reversed_labels else 0.3 < weight < 1.0
    low, high = ppi_py.ppi_mean_ci(truth, known, others, alpha=0.05)
    divided_by_n = np.sqrt(
        weight**2 * others.var() / len(others) + (truth - weight * known).var() / n
    )  # ppi-python divides sums of squares by n
    assert (float(high[0]) - float(low[0])) / 2 == pytest.approx(1.959964 * divided_by_n, rel=1e-6)
    assert mean.error == pytest.approx(divided_by_n, rel=1 / n)
    assert mean.error > divided_by_n


def test_below_30_queries_the_weight_of_a_query_does_not_depend_on_it() -> None:
    truth, known, others = draws(12, 50, np.random.default_rng(3))
    values = []
    for left_out in range(12):
        rest = np.arange(12) != left_out
        weight = prediction_weight(truth[rest], known[rest], others)
        values.append(truth[left_out] - weight * (known[left_out] - others.mean()))
    mean, _ = prediction_powered_mean(truth, known, others)
    assert mean.value == pytest.approx(np.mean(values))


def test_experts_for_all_queries_leave_nothing_to_the_labels() -> None:
    truth, known, _ = draws(15, 0, np.random.default_rng(3))
    mean, weight = prediction_powered_mean(truth, known, np.empty(0))
    assert (mean, weight) == (sample_mean(truth), 0.0)


@pytest.mark.parametrize("n", [10, 20, 50])
@pytest.mark.parametrize("reversed_labels", [False, True])
def test_intervals_cover_the_mean(n: int, reversed_labels: bool) -> None:
    rng, n_worlds = np.random.default_rng([n, reversed_labels]), 1500
    covered = 0
    for _ in range(n_worlds):
        truth, known, others = draws(n, 150, rng, reversed_labels=reversed_labels)
        values = np.append(truth, np.zeros(len(others)))[:, None]
        by_query = ByQueryEstimator(np.append(known, others)[:, None], values, np.arange(len(values)) < n)
        estimate = by_query.estimate(np.ones(1), WITH_LEVEL)
        covered += estimate.lower <= 0.5 <= estimate.upper
    assert 0.93 <= covered / n_worlds <= 0.97


def test_good_labels_are_worth_many_expert_grades_and_bad_ones_none() -> None:
    for reversed_labels, low, high in ((False, 1.5, 6.0), (True, 0.8, 1.0)):
        truth, known, others = draws(40, 400, np.random.default_rng(5), reversed_labels=reversed_labels)
        mean, _ = prediction_powered_mean(truth, known, others)
        assert low <= (sample_mean(truth).error / mean.error) ** 2 <= high


def test_equal_differences_are_tested_by_their_sign() -> None:
    assert sample_mean(np.full(6, 0.1)).p == 2 * 0.5**6
    assert sample_mean(np.zeros(6)).p == 1.0
