from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import (
    difference_interval,
    difference_intervals,
    effect_size,
    fisher_p_values,
    fisher_randomization,
    holm,
    paired_t,
)

RNG = np.random.default_rng(5)


def exact_fisher(differences: list[float]) -> float:
    signs = itertools.product([-1, 1], repeat=len(differences))
    sums = [abs(np.dot(sign, differences)) for sign in signs]
    return float(np.mean([total >= abs(sum(differences)) - 1e-12 for total in sums]))


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_fisher_tries_all_signs_where_it_can(tenths: list[int]) -> None:
    a = np.array(tenths) / 10
    assert fisher_randomization(a, np.zeros(a.size)) == pytest.approx(exact_fisher(list(a)))


def test_fisher_draws_signs_where_there_are_too_many() -> None:
    a, b = RNG.normal(0.15, 0.3, 16), RNG.normal(0, 0.3, 16)
    exact = fisher_randomization(a, b, n=2**16)
    assert exact == pytest.approx(exact_fisher(list(a - b)))
    drawn = fisher_randomization(a, b, n=40_000, random_state=1)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 40_000))
    assert drawn == fisher_randomization(a, b, n=40_000, random_state=1)


def test_fisher_counts_the_observed_signs_among_those_drawn() -> None:
    assert fisher_randomization(np.ones(40), np.zeros(40), n=999) == 1 / 1000


def test_zero_differences_are_no_evidence() -> None:
    a = np.array([0.1, 0.2, 0.4] + [0.0] * 50)
    assert fisher_randomization(a, np.zeros(53)) == 0.25
    assert fisher_randomization([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert fisher_randomization([], []) == 1.0


def test_pairs_with_nan_are_dropped() -> None:
    a, b = [0.9, np.nan, 0.8, 0.7, 0.1], [0.5, 0.1, 0.6, 0.6, np.nan]
    kept = [0.9, 0.8, 0.7], [0.5, 0.6, 0.6]
    assert fisher_randomization(a, b) == fisher_randomization(*kept)
    assert paired_t(a, b) == paired_t(*kept)
    assert effect_size(a, b) == effect_size(*kept)
    assert difference_interval([0.1, np.nan, 0.3]) == difference_interval([0.1, 0.3])


def test_columns_together_are_as_columns_alone() -> None:
    differences = RNG.normal(0.05, 0.3, (60, 3))
    differences[:50, 1] = 0
    zeros = np.zeros(60)
    alone = [fisher_randomization(column, zeros, random_state=3) for column in differences.T]
    assert fisher_p_values(differences, random_state=3).tolist() == alone
    intervals = [difference_interval(column, random_state=3) for column in differences.T]
    np.testing.assert_allclose(difference_intervals(differences, random_state=3), intervals, atol=1e-15)


def test_many_queries_are_taken_in_blocks() -> None:
    a = RNG.normal(0.001, 0.3, 3000)
    assert fisher_randomization(a, np.zeros(3000), n=2000) == pytest.approx(paired_t(a, np.zeros(3000)), abs=0.05)
    low, high = difference_interval(a, n=2000)
    half = 1.96 * a.std(ddof=1) / np.sqrt(3000)
    assert (low, high) == pytest.approx((a.mean() - half, a.mean() + half), abs=0.15 * half)


@pytest.mark.parametrize("size", [2, 3, 30])
def test_t_equals_scipy(size: int) -> None:
    a, b = RNG.normal(size=size), RNG.normal(size=size)
    assert paired_t(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, abs=1e-12)


def test_t_without_spread() -> None:
    assert paired_t([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert paired_t([0.3, 0.4, 0.5], [0.2, 0.3, 0.4]) == 0.0
    assert paired_t([1.0], [0.0]) == 1.0


def test_holm_by_hand() -> None:
    # Sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04; none may fall below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.03]), [0.04, np.nan, 0.04])
    assert holm([]).size == 0


def test_effect_size() -> None:
    a, b = np.array([0.4, 0.9, 0.3]), np.array([0.1, 0.5, 0.4])
    assert effect_size(a, b) == pytest.approx((a - b).mean() / (a - b).std(ddof=1))
    assert effect_size(a, a) == 0.0
    assert effect_size([], []) == 0.0
    assert effect_size([0.5, 0.5], [0.6, 0.6]) == -np.inf
    assert np.isnan(effect_size([0.5], [0.1]))


def test_without_two_queries_there_is_no_interval() -> None:
    assert np.isnan([difference_interval([]), difference_interval([0.3])]).all()


@pytest.mark.parametrize("n_queries", [6, 9, 13, 40])
def test_the_interval_holds_what_the_randomization_test_does_not_reject(n_queries: int) -> None:
    differences = RNG.normal(0.05, 0.2, n_queries)
    low, high = difference_interval(differences)
    inside, outside = np.linspace(low + 1e-3, high - 1e-3, 20), [low - 1e-3, high + 1e-3]
    assert all(fisher_randomization(differences, np.full(n_queries, off)) > 0.05 for off in inside)
    assert all(fisher_randomization(differences, np.full(n_queries, off)) <= 0.05 for off in outside)


def test_five_queries_have_the_interval_of_student() -> None:
    differences = RNG.normal(size=5)
    t = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert difference_interval(differences) == pytest.approx((t.low, t.high))


@pytest.mark.parametrize(("n_queries", "mean"), [(8, 0.0), (12, 0.1), (30, 0.1)])
def test_intervals_of_few_queries_hold_the_truth_as_often_as_they_say(n_queries: int, mean: float) -> None:
    differences = np.random.default_rng(5).normal(mean, 0.2, (n_queries, 1500))
    low, high = difference_intervals(differences, n=999).T
    assert 0.93 <= ((low <= mean) & (mean <= high)).mean() <= 0.97


def test_the_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    fisher_randomization(RNG.normal(size=30), np.zeros(30))
    difference_interval(RNG.normal(size=30))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index] # noqa: NPY002


def test_values_that_are_not_paired_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        fisher_randomization([1.0, 2.0], [1.0])
    assert refused.value.kind == "not-paired"


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        fisher_randomization([1.0], [2.0], n=0)
    assert refused.value.parameter == "n"
    with pytest.raises(UsageError) as refused:
        difference_interval([1.0], level=95)
    assert refused.value.parameter == "level"
