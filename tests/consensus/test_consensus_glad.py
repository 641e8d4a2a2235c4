"""GLAD against crowd-kit and against a slow reference."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank import GLAD, Judgments, read_judgments
from crowdrank.consensus.glad import update_posterior
from crowdrank.errors import UsageError


def random_labels(seed: int, items: int = 60, assessors: int = 9, grades: int = 3) -> pd.DataFrame:
    """Labels drawn from the model itself."""
    rng = np.random.default_rng(seed)
    truth, ease = rng.integers(0, grades, items), np.exp(rng.normal(0.5, 0.7, items))
    ability = rng.normal(1, 0.8, assessors)
    item, assessor = np.nonzero(rng.random((items, assessors)) < 0.6)
    right = rng.random(len(item)) < 1 / (1 + np.exp(-ability[assessor] * ease[item]))
    wrong = (truth[item] + rng.integers(1, grades, len(item))) % grades
    return pd.DataFrame({"task": item, "worker": assessor, "label": np.where(right, truth[item], wrong)})


def log_posterior(judgments: Judgments, ability: NDArray[np.float64], beta: NDArray[np.float64]) -> float:
    """The log posterior of abilities and betas, the true grades summed out, from the model's definition."""
    n_grades = len(judgments.scale)
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    right = 1 / (1 + np.exp(-ability[judgments.assessor] * np.exp(beta[item])))
    total = 0.0
    logs = np.full((judgments.n_items, n_grades), -np.log(n_grades))
    for grade in range(n_grades):
        says = np.where(judgments.grade == grade, right, (1 - right) / (n_grades - 1))
        np.add.at(logs[:, grade], item, np.log(np.maximum(says, 1e-300)))
    total += np.logaddexp.reduce(logs, axis=1).sum()
    return float(total - 0.5 * ((ability - 1) ** 2).sum() - 0.5 * ((beta - 1) ** 2).sum())


def betas(model: GLAD) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = -np.log(model.consensus_.document_table["difficulty"].to_numpy())
    return logs


@pytest.mark.parametrize(("seed", "grades"), [(0, 2), (2, 5)])
def test_its_posterior_is_no_worse_than_crowd_kits(seed: int, grades: int) -> None:
    crowdkit = pytest.importorskip("crowdkit.aggregation")
    frame = random_labels(seed, grades=grades)
    judgments = read_judgments(frame, grades=range(grades))
    model = GLAD(n_iter=2000, tol=1e-9).fit(judgments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = crowdkit.GLAD(n_iter=10).fit(frame)
    assert len(peer.priors_) == grades  # crowd-kit knows only the grades that occur
    ability = peer.alphas_.loc[judgments.assessors.to_pylist()].to_numpy()
    beta = peer.betas_.loc[judgments.documents.to_pylist()].to_numpy()
    theirs = log_posterior(judgments, ability, beta)
    assert log_posterior(judgments, model.theta_["ability"], betas(model)) >= theirs - 1e-6 * abs(theirs)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), grades=st.integers(2, 5))
def test_no_iteration_lowers_the_posterior_and_the_history_is_the_posterior(seed: int, grades: int) -> None:
    judgments = read_judgments(random_labels(seed, grades=grades), grades=range(grades))
    model = GLAD(n_iter=2000, tol=1e-10).fit(judgments)
    assert (np.diff(model.history_) > -1e-12).all()
    at_rest = log_posterior(judgments, model.theta_["ability"], betas(model)) / len(judgments)
    assert at_rest == pytest.approx(model.history_[-1], abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), allowed=st.sets(st.integers(0, 2), min_size=1))
def test_the_belief_of_an_item_equals_its_twin(seed: int, allowed: set[int]) -> None:
    rng = np.random.default_rng(seed)
    n, n_grades = 30, 3
    assessor = rng.integers(0, 5, n).astype(np.int32)
    grade = rng.integers(0, n_grades, n).astype(np.int8)
    ability, beta = rng.normal(1, 2, 5), float(rng.normal(1, 1))
    belief = np.empty(n_grades)
    is_allowed = np.isin(np.arange(n_grades), list(allowed))
    total = update_posterior(0, n, assessor, grade, is_allowed, ability, beta, belief)
    x = ability[assessor] * np.exp(beta)
    logs = np.array(
        [
            -np.log(n_grades)
            + np.where(grade == c, -np.logaddexp(0, -x), -np.logaddexp(0, x) - np.log(n_grades - 1)).sum()
            for c in range(n_grades)
        ]
    )
    logs[~is_allowed] = -np.inf
    assert np.allclose(belief, np.exp(logs - np.logaddexp.reduce(logs)))
    assert total == pytest.approx(np.logaddexp.reduce(logs))


def test_hard_documents_and_able_assessors_are_found() -> None:
    frame = random_labels(1, items=400, assessors=30, grades=4)
    model = GLAD().fit(frame)
    rng = np.random.default_rng(1)
    rng.integers(0, 4, 400)
    ease = np.exp(rng.normal(0.5, 0.7, 400))
    ability = rng.normal(1, 0.8, 30)
    documents = model.consensus_.documents.set_index("document")["difficulty"].loc[range(400)]
    found = model.consensus_.assessors.set_index("assessor")["ability"].loc[range(30)]
    assert np.corrcoef(found, ability)[0, 1] > 0.9
    assert np.corrcoef(np.log(documents), -np.log(ease))[0, 1] > 0.4


def test_a_reversed_assessor_has_a_negative_ability() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 100)
    rows = [(item, who, truth[item] if who < 4 else 1 - truth[item]) for item in range(100) for who in range(5)]
    about = GLAD().fit(pd.DataFrame(rows, columns=["task", "worker", "label"])).consensus_.assessors
    assert (about.set_index("assessor")["ability"] < 0).tolist() == [False] * 4 + [True]


def test_a_senseless_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="ability_sd must be a number above 0"):
        GLAD(ability_sd=0).fit(random_labels(0))
    with pytest.raises(UsageError, match="unjudgeable_as must be one of lowest, drop"):
        GLAD(unjudgeable_as="model").fit(random_labels(0))
