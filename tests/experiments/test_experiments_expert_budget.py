"""The experiments on `run`'s selection and ensemble: their draws, figures and sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdrank.errors import UsageError
from crowdrank.pipeline import candidates
from crowdrank.pipeline.candidates import BY_NAME, least_squares
from crowdrank.pipeline.training import CandidateTraining
from experiments import ensemble_members, label_controls, learned_labels, pointwise_trees
from experiments import expert_budget as module
from experiments.expert_budget import Outcome
from experiments.label_controls import CONTROLS, LEARNED, WEIGHTS, pooled_labels, start_name

FEW = ("majority", "average", "expert-only")


@pytest.fixture(scope="module")
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GENERATED", {"queries": 60, "documents": 8, "features": 5})
        patch.setattr(module, "run_candidates", lambda data: [BY_NAME[name] for name in FEW])
        return module.experiment(only=["generated"], seeds=[0, 1], budgets=[6, 10])


def test_every_run_has_a_figure_for_every_budget(small: Any) -> None:
    means, choice = small.tables
    runs = [row["run"] for row in means.rows]
    assert {*FEW, "ensemble-all", "ensemble-crowd", module.SELECTED} <= set(runs)
    controls = {one.name for one in CONTROLS}
    assert controls == {"pooled-gls", "pooled-trees", "pooled-mart", *(start_name(name) for name in LEARNED)}
    assert controls <= set(runs)
    for row in means.rows:
        assert 0 < row["6 queries"] < 1
        assert 0 < row["10 queries"] < 1
    for row in choice.rows:
        assert row["draws"] == 2
        assert row["in hindsight"] >= max(row["regret"], 0) - 1e-12
        assert row["from"] <= row["over average"] <= row["to"]


def test_what_the_crowd_alone_teaches_does_not_depend_on_the_budget(small: Any) -> None:
    row = small.tables[0].row("average")
    assert row["6 queries"] == row["10 queries"]
    assert small.tables[0].row("expert-only")["6 queries"] != small.tables[0].row("expert-only")["10 queries"]


def test_candidates_with_trees_are_tried_too() -> None:
    (draw,) = module.simulated_draws("generated", [0])
    names = [candidate.name for candidate in module.run_candidates(draw.data)]
    assert len(names) == len(set(names))
    assert {"gls", "gls-trees", "linear-gls", "remap-trees"} <= set(names)
    assert "gda-pw-mart" not in names


def test_crowd_pool_and_test_share_no_query() -> None:
    (draw,) = module.simulated_draws("generated", [0])
    judged = set(draw.data.query[draw.data.n_labels > 0].tolist())
    assert judged
    assert not judged & set(draw.pool.tolist())
    assert not judged & set(draw.test.tolist())
    assert not set(draw.pool.tolist()) & set(draw.test.tolist())


def test_queries_tested_often_count_once() -> None:
    draws = [
        Outcome("", {"a": np.array([0.2, 0.4])}, np.array([1, 2])),
        Outcome("", {"a": np.array([0.6])}, np.array([1])),
    ]
    np.testing.assert_allclose(module.mean_by_query(draws, "a"), [0.4, 0.4])


def test_regret_and_control_are_described() -> None:
    values = np.linspace(0.2, 0.8, 30)
    worse = Outcome(
        "average",
        {"average": values, module.SELECTED: values, module.ALL_EXPERTS: values + 0.02},
        np.arange(30),
    )
    (sentence,) = module.describe_regret({20: module.selection_row(20, [worse]), 5: {}})
    assert "mean regret is 0.0000 (at most 0.01)" in sentence
    assert "with no budget" in sentence
    assert "may be inferior" in module.describe_control({20: [worse]})[0]
    better = replace(worse, values={**worse.values, module.ALL_EXPERTS: values - 0.02})
    assert "is not inferior" in module.describe_control({20: [better]})[0]


def test_members_are_added_to_the_ensemble_of_run() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GENERATED", {"queries": 60, "documents": 8, "features": 5})
        patch.setattr(ensemble_members, "run_candidates", lambda data: [BY_NAME[name] for name in FEW])
        result = ensemble_members.experiment(only=["generated"], seeds=[20], budget=6)
    (table,) = result.tables
    assert len(table.rows) == len(ensemble_members.VARIANTS)
    for row in table.rows:
        assert row["lower"] <= row["difference"] <= row["upper"]
        assert 0 < row["p"] <= 1
        assert row["seeds better"] <= 1
    by_run = {row["run"]: row for row in table.rows}
    tree = by_run["+ gls-trees (over run)"]["difference"]
    both = by_run["+ gls-trees, remap-trees (over run)"]["difference"]
    added = by_run["+ gls-trees, remap-trees (over + gls-trees)"]["difference"]
    assert both == pytest.approx(tree + added)
    assert {row["run"] for row in table.rows if row["difference"] == 0} == set(), "every member takes part"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="'x'"):
        module.experiment(only=["x"])
    for one in (module, ensemble_members):
        with pytest.raises(UsageError, match="--methods"):
            one.experiment(["average"])


# Learned labels and their controls.

SIZES = {"queries": 60, "documents": 8, "features": 5}


@pytest.fixture(scope="module")
def view() -> Any:
    with pytest.MonkeyPatch.context() as patch, module.stage_cache() as cache:
        patch.setattr(module, "GENERATED", SIZES)
        (draw,) = module.simulated_draws("generated", [0])
        fits = module.fit_consensus(draw.data, learned_labels.CANDIDATES, cache)
        training = CandidateTraining(draw.data, fits, draw.settings, cache)
        yield training.view(draw.test, module.budget_queries(draw, 8))


def test_pooled_labels_are_the_consensus_and_the_expert_grades(view: Any) -> None:
    rows, y, weight = pooled_labels(view, 3.0)
    n = len(view.crowd)
    assert rows.tolist() == [*view.crowd, *view.experts]
    np.testing.assert_array_equal(y[n:], view.data.expert[view.experts])
    expected = view.fits.labels("dawid-skene", "expected-grade")[view.crowd]  # of grades 0 to 4, like the experts'
    np.testing.assert_allclose(y[:n], expected)
    assert weight.tolist() == [1.0] * n + [3.0] * len(view.experts)
    assert len(pooled_labels(view, 0.0)[0]) == n


def test_the_weight_of_pooled_grades_is_chosen_out_of_fold(view: Any) -> None:
    """No ranker that measures a weight on a fold is trained on its grades."""
    trained: list[set[int]] = []

    def record(view: Any, *labels: Any) -> Any:
        trained.append(set(view.data.query[view.experts].tolist()))
        return view.fit(least_squares, *labels)

    queries = set(view.data.query[view.experts].tolist())
    assert label_controls._rotated_weight(view, record) in WEIGHTS
    folds = [queries - seen for seen in trained]
    assert len(trained) == len(WEIGHTS) * label_controls.FOLDS
    assert all(folds)
    assert set.union(*folds[: label_controls.FOLDS]) == queries


def test_the_start_is_the_ranker_before_learning(view: Any) -> None:
    start = next(one for one in CONTROLS if one.name == start_name("linear-gls"))
    remapper = view.remapper("linear", n_iter=0)
    expected = remapper.label_features_.expected if hasattr(remapper, "label_features_") else remapper.targets_
    np.testing.assert_allclose(remapper.targets_, expected)
    scores = start.fit(view).predict(view.data.features)
    assert np.corrcoef(scores, remapper.ranker_.predict(view.data.features))[0, 1] > 0.999


def test_learned_labels_are_compared_with_start_and_pooled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "GENERATED", SIZES)
    done = learned_labels.experiment(only=["generated"], seeds=[0], budgets=[8], keep=tmp_path)
    means, start, pooled = done.tables
    assert [table.name for table in done.tables] == ["generated", "generated-start", "generated-pooled"]
    value = {row["run"]: row["8 queries"] for row in means.rows}
    for table, others in ((start, {name: start_name(name) for name in LEARNED}), (pooled, LEARNED)):
        assert len(table.rows) == len(LEARNED)
        for row in table.rows:
            run = row["run"].split(",")[0]
            assert row["difference"] == pytest.approx(value[run] - value[others[run]])
            assert row["lower"] <= row["difference"] <= row["upper"]
    again = learned_labels.experiment(only=["generated"], seeds=[0], budgets=[8], keep=tmp_path)
    assert again.tables[0].rows == means.rows
    with pytest.raises(UsageError):
        learned_labels.experiment(methods=["gls"])


def test_losses_of_learned_labels_are_named() -> None:
    values = np.linspace(0.2, 0.8, 30)
    runs = {run: values + (0.05 if run in LEARNED.values() else 0.0) for run in (*LEARNED, *LEARNED.values())}
    starts = {start_name(run): values for run in LEARNED}
    start, pooled = learned_labels.gain_tables("mq2008", {20: [Outcome("", {**runs, **starts}, np.arange(30))]})
    assert "Losses of more than 0.002: none." in start.notes[0]
    assert "linear-gls, 20 queries -0.0500" in pooled.notes[0]
    assert "0 are significantly above 0 and 5 below" in pooled.notes[0]


def test_pointwise_trees_are_compared_with_their_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base = (*FEW, "dawid-skene")
    monkeypatch.setattr(module, "GENERATED", SIZES)
    monkeypatch.setattr(pointwise_trees, "BUDGET", 8)
    monkeypatch.setattr(pointwise_trees, "base_candidates", lambda data: [BY_NAME[name] for name in base])
    done = pointwise_trees.experiment(only=["generated"], seeds=[0], keep=tmp_path)
    (table,) = done.tables
    assert [row["run"] for row in table.rows] == ["+ pointwise (over run)", "pointwise (over dawid-skene)"]
    gain = table.rows[0]["difference"]
    assert any(f"it does on {int(gain >= 0.001)} of 1" in sentence for sentence in done.protocol)


def test_the_base_of_pointwise_trees_has_no_learned_labels() -> None:
    (draw,) = module.simulated_draws("generated", [0])
    names = [one.name for one in pointwise_trees.base_candidates(draw.data)]
    assert {"majority", "dawid-skene", "gda", "crowd-and-expert", "expert-only"} <= set(names)
    assert not {*LEARNED, "pointwise"} & set(names)


def test_pointwise_trees_have_the_parameters_of_lambdamart(view: Any) -> None:
    shared = ("n_estimators", "learning_rate", "num_leaves", "min_child_samples", "patience", "validate_by")
    for has_validation in (False, True):
        makers = candidates.pointwise_trees, candidates.lambdamart
        ours, theirs = (make(view, 500, has_validation).get_params() for make in makers)
        assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
