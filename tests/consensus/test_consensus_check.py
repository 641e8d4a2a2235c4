"""Posterior predictive checks: kernels against references, and detection of models that do not fit."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import GDA, GLAD, Auto, DawidSkene, read_judgments, simulate
from crowdrank.consensus import get_aggregator
from crowdrank.consensus.posterior_check import MIN_EXCESS_AGREEMENT, check, expect_agreement, predict_left_out
from crowdrank.errors import DataWarning, UsageError


@given(seed=st.integers(0, 10_000))
def test_leaving_out_equals_computing_without(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_states, n_answers, n_assessors, n = 4, 3, 5, 6
    likelihood = rng.dirichlet(np.ones(n_answers), (n_assessors, n_states)).transpose(0, 2, 1)
    prior = rng.dirichlet(np.ones(n_states))
    assessor, grade = rng.integers(0, n_assessors, n).astype(np.int32), rng.integers(0, n_answers, n).astype(np.int8)
    weight = rng.uniform(0.2, 1.0, n)
    factors = likelihood[assessor, grade] ** weight[:, None]  # (n, n_states)
    posterior = (prior * factors.prod(axis=0))[None]
    posterior /= posterior.sum()
    found = predict_left_out(posterior, np.zeros(n, np.int64), assessor, grade, weight, likelihood)
    for j in range(n):
        rest = prior * np.delete(factors, j, axis=0).prod(axis=0)
        assert np.allclose(found[j], likelihood[assessor[j]] @ rest / rest.sum())
    one, other = np.array([0, 2]), np.array([1, 5])
    arguments = (posterior, np.zeros(2, np.int64), assessor, grade, one, other, weight, likelihood)
    agree = expect_agreement(*arguments)
    assert np.allclose(expect_agreement.compiled(*arguments), agree)
    for pair in range(2):
        rest = prior * np.delete(factors, [one[pair], other[pair]], axis=0).prod(axis=0)
        both = (likelihood[assessor[one[pair]]] * likelihood[assessor[other[pair]]]).sum(axis=0)
        assert agree[pair] == pytest.approx(both @ rest / rest.sum())


@pytest.mark.parametrize("cls", [DawidSkene, GDA])
def test_independent_assessors_are_explained_and_families_are_not(cls: type[GDA]) -> None:
    alone = read_judgments(simulate(queries=60, documents=10, spammers=0, adversaries=0, random_state=3).judgments)
    found = check(cls(n_iter=300).fit(alone), alone)
    assert found.log_score > found.chance_log_score
    (row,) = found.agreement.to_pylist()
    assert row["observed"] == pytest.approx(row["expected"], abs=0.04)
    world = simulate(queries=60, documents=10, families=3, family_error=3.0, spammers=0, adversaries=0, random_state=3)
    together = read_judgments(world.judgments)
    by_name = {row["pairs"]: row for row in check(cls(n_iter=300).fit(together), together).agreement.to_pylist()}
    assert by_name["within a family"]["z"] > 3
    assert by_name["within a family"]["z"] > by_name["between families"]["z"] + 3


def test_the_sentences_report_the_results() -> None:
    judgments = read_judgments(simulate(queries=20, documents=8, random_state=1).judgments)
    found = check(DawidSkene().fit(judgments), judgments)
    assert found.sentences[0].startswith("The probability of a left-out judgment")
    assert "assessors use a grade more or less often" in found.sentences[-1]
    z = np.abs(found.assessors["z"].to_numpy())
    assert (np.diff(z) <= 0).all()
    assert found.to_dict()["agreement"]


def test_models_without_states_are_refused() -> None:
    judgments = read_judgments(simulate(queries=5, documents=5, random_state=1).judgments)
    with pytest.raises(UsageError) as refused:
        check(GLAD().fit(judgments), judgments)
    assert refused.value.kind == "no-likelihood"


def random_errors(n: int, seed: int = 1) -> pd.DataFrame:
    """Return three labels of each of n documents, of which a quarter is replaced by a random grade from 0 to 3."""
    rng = np.random.default_rng(seed)
    document, true = np.repeat(np.arange(n), 3), np.repeat(rng.integers(0, 4, n), 3)
    grade = np.where(rng.random(3 * n) < 0.75, true, rng.integers(0, 4, 3 * n))
    assessor = np.concatenate([rng.choice(20, 3, replace=False) for _ in range(n)])
    return pd.DataFrame({"query": document // 10, "document": document, "assessor": assessor, "grade": grade})


def fit_warnings(judgments: pd.DataFrame, method: str = "gda") -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        get_aggregator(method).fit(judgments)
    return [one.message.kind for one in caught if isinstance(one.message, DataWarning)]


def test_a_fit_warns_if_wrong_judgments_are_random_grades() -> None:
    world = simulate(queries=30, documents=10, labels=3, random_state=1)
    assert "excess-agreement" not in fit_warnings(world.judgments)
    assert fit_warnings(random_errors(300)) == ["excess-agreement"]
    assert fit_warnings(random_errors(6000)) == ["excess-agreement"]  # of which a sample of documents is checked
    assert fit_warnings(random_errors(300), "dawid-skene") == fit_warnings(random_errors(300), "auto") == []
    assert not isinstance(Auto().fit(random_errors(300)).grade_estimator_, GDA)


def test_agreement_within_declared_families_is_expected() -> None:
    world = simulate(queries=60, documents=10, families=3, family_error=3.0, spammers=0, adversaries=0, random_state=3)
    judgments = read_judgments(world.judgments)
    rows = {row["pairs"]: row for row in check(GDA().fit(judgments), judgments).agreement.to_pylist()}
    assert rows["within a family"]["observed"] - rows["within a family"]["expected"] > MIN_EXCESS_AGREEMENT
    assert "excess-agreement" not in fit_warnings(world.judgments)
