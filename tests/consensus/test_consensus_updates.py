"""Judgments added to a fitted model: the result is near that of a full fit, however the judgments arrive."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import Aggregator, DawidSkene, Judgments, get_aggregator, read_judgments
from crowdrank.consensus.model import MAX_CHANGE, MAX_GROWTH, grade_change_quantile
from crowdrank.errors import InputError
from experiments.updates import METHODS, draw_crowd, expected_grades, measure_growth


def crowd(seed: int = 0, n_documents: int = 100) -> Judgments:
    return read_judgments(draw_crowd(seed, n_documents), grades="0-4")


def fit(model: Aggregator, judgments: Judgments) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(judgments)


def add(model: Any, judgments: Judgments, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.add(judgments, **options)


def split(judgments: Judgments, n_later: int) -> tuple[Judgments, Judgments]:
    later = np.random.default_rng(0).permutation(len(judgments)) < n_later
    return judgments.where(~later), judgments.where(later)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1_000))
def test_updates_end_near_a_full_fit(method: str, seed: int) -> None:
    near = measure_growth(method, crowd(seed), seed)
    assert len(near) == 10
    assert np.mean(list(near.values())) >= 0.95
    # In about 1 of 30 crowds of 100 documents, a full fit of Dawid-Skene depends on single judgments.
    assert {name: share for name, share in near.items() if share < 0.85} == {}


def test_a_small_update_iterates_a_few_times_and_is_counted() -> None:
    first, later = split(crowd(), 2)
    model = fit(DawidSkene(), first)
    assert (model.full_fit_.n_judgments, model.full_fit_.change) == (len(first), 0)
    before = model.infer(model.judgments_)
    add(model, later)
    assert model.n_iter_ <= 10
    assert model.full_fit_.n_judgments == len(first)
    assert 0 < model.full_fit_.change <= MAX_CHANGE
    assert grade_change_quantile(before, before) == 0


@pytest.mark.parametrize("n_iter", [1, 10, None])
def test_many_new_judgments_need_a_full_fit(n_iter: int | None) -> None:
    judgments = crowd()
    first, later = split(judgments, int(2 * MAX_GROWTH * len(judgments)))
    model = add(fit(DawidSkene(), first), later, n_iter=n_iter)
    full = fit(DawidSkene(), model.judgments_)
    assert np.array_equal(expected_grades(model), expected_grades(full))
    assert model.history_ == full.history_
    assert model.full_fit_.n_judgments == len(judgments)


def test_replaced_judgments_that_change_the_parameters_need_a_full_fit() -> None:
    judgments = crowd()
    model = fit(DawidSkene(), judgments)
    reversed_frame = draw_crowd(0, 100).assign(grade=lambda frame: 4 - frame["grade"]).query("assessor < 20")
    add(model, read_judgments(reversed_frame, grades="0-4"))
    assert len(model.judgments_) == len(judgments)
    assert model.full_fit_.change == 0
    assert np.array_equal(expected_grades(model), expected_grades(fit(DawidSkene(), model.judgments_)))


def test_the_changes_of_small_updates_are_summed_until_a_full_fit() -> None:
    first, later = split(crowd(1), 20)
    model, changes = fit(DawidSkene(), first), []
    for row in range(20):
        add(model, later.where(np.arange(len(later)) == row))
        changes.append(model.full_fit_.change)
    assert max(changes) <= MAX_CHANGE
    assert any(later < earlier for earlier, later in itertools.pairwise(changes))


def test_updates_without_iterations_keep_the_parameters_and_the_last_full_fit() -> None:
    first, later = split(crowd(), 200)
    model = fit(DawidSkene(), first)
    likelihood, full_fit = model.theta_["likelihood"], model.full_fit_
    add(model, later, n_iter=0)
    assert np.array_equal(model.theta_["likelihood"], likelihood)
    assert model.full_fit_ == full_fit


def test_the_last_full_fit_is_saved(tmp_path: Path) -> None:
    first, later = split(crowd(), 2)
    model = add(fit(get_aggregator("one-coin"), first), later)
    model.save(tmp_path / "model")
    loaded: Any = Aggregator.load(tmp_path / "model")
    assert loaded.full_fit_ == model.full_fit_
    about = tmp_path / "model" / "model.json"
    about.write_text(about.read_text().replace('"n_judgments": ', '"n_judgments": -'))
    with pytest.raises(InputError):
        Aggregator.load(tmp_path / "model")
