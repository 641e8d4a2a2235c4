"""Distillation: one forest that imitates another ranker."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

import crowdrank
from crowdrank.errors import UsageError
from crowdrank.rankers import distillation
from crowdrank.rankers.boosting import WithinQueryError
from crowdrank.rankers.distillation import add_mixed_rows, rank_correlation
from crowdrank.simulation.world import World
from terminal import crowdrank as command


@pytest.fixture(autouse=True)
def default_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MIN_DISTILLATION_CELLS", 2_000_000)
    assert distillation.distill.__kwdefaults__ is not None
    monkeypatch.setitem(distillation.distill.__kwdefaults__, "n_trees", distillation.N_TREES)


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=60, documents=12, random_state=3)


@pytest.fixture(scope="module")
def ensemble(world: World) -> crowdrank.Ensemble:
    members = [crowdrank.LambdaMART(n_estimators=20), crowdrank.GLS()]
    return crowdrank.Ensemble(members).fit(world.features, world.gold["grade"])


def split(world: World) -> tuple[np.ndarray, np.ndarray]:
    held_out = world.features["query"].isin(world.features["query"].unique()[:15]).to_numpy()
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def test_forest_imitates_ensemble_on_new_queries(world: World, ensemble: crowdrank.Ensemble) -> None:
    train, test = (world.features.iloc[rows] for rows in split(world))
    forest = crowdrank.distill(ensemble, train)
    assert forest.booster_.num_trees() == forest.best_iteration_ == distillation.N_TREES
    assert forest.features_ == ensemble.features_
    assert rank_correlation(forest.predict(test), ensemble.predict(test), test["query"]) > 0.8


def test_mixed_rows_improve_the_imitation(
    world: World, ensemble: crowdrank.Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = (world.features.iloc[rows] for rows in split(world))
    correlation = {}
    for n_cells in (0, 400_000):
        monkeypatch.setattr(distillation, "MIN_DISTILLATION_CELLS", n_cells)
        forest = crowdrank.distill(ensemble, train, n_trees=200)
        correlation[n_cells] = rank_correlation(forest.predict(test), ensemble.predict(test), test["query"])
    assert correlation[400_000] > correlation[0] + 0.01


def test_forest_does_not_depend_on_the_order_of_rows(world: World, ensemble: crowdrank.Ensemble) -> None:
    queries = world.features["query"].unique()[::-1]
    shuffled = world.features.set_index("query").loc[queries].reset_index()
    first, second = (crowdrank.distill(ensemble, X, n_trees=10) for X in (world.features, shuffled))
    assert (
        rank_correlation(first.predict(world.features), second.predict(world.features), world.features["query"]) > 0.8
    )


def test_single_forest_is_returned_as_it_is(world: World) -> None:
    forest = crowdrank.LambdaMART(n_estimators=5).fit(world.features, world.gold["grade"])
    assert crowdrank.distill(forest, world.features) is forest


def test_query_is_required(world: World, ensemble: crowdrank.Ensemble) -> None:
    X = world.features.drop(columns=["query", "document"]).to_numpy()
    with pytest.raises(UsageError) as problem:
        crowdrank.distill(ensemble, X)
    assert problem.value.parameter == "query"


def test_mixed_rows_take_every_feature_from_a_row() -> None:
    matrix = np.arange(12.0).reshape(6, 2)
    mixed, query = add_mixed_rows(matrix, np.array([0, 0, 1, 1, 1, 2]), np.random.default_rng(0))
    assert np.array_equal(mixed[:6], matrix)
    for column in range(2):
        assert set(mixed[:, column]) <= set(matrix[:, column])
    assert np.bincount(query).tolist() == [2, 3, 1] * (len(mixed) // 6)


def test_rank_correlation_is_the_mean_of_kendalls_tau() -> None:
    rng = np.random.default_rng(0)
    first, second, query = rng.normal(size=40), rng.normal(size=40), rng.integers(0, 5, 40)
    expected = np.mean([kendalltau(first[query == one], second[query == one]).statistic for one in range(5)])
    assert rank_correlation(first, second, query) == pytest.approx(expected)
    assert np.isnan(rank_correlation(first, np.zeros(40), query))


def test_within_query_error_has_the_gradient_of_centered_errors() -> None:
    rng = np.random.default_rng(1)
    target, weight, offsets = rng.normal(size=9), rng.random(9), np.array([0, 4, 9])
    error = WithinQueryError(target, weight, offsets)

    def loss(score: np.ndarray) -> float:
        total = 0.0
        for first, last in pairwise(offsets):
            off, w = (score - target)[first:last], weight[first:last]
            total += float((w * (off - np.average(off, weights=w)) ** 2).sum() / 2)
        return total

    score, step = rng.normal(size=9), 1e-6
    gradient = error(score)[0]
    for place in range(9):
        shift = np.eye(9)[place] * step
        assert gradient[place] == pytest.approx((loss(score + shift) - loss(score - shift)) / (2 * step), abs=1e-6)


def test_command_writes_a_forest(world: World, ensemble: crowdrank.Ensemble, tmp_path: Path) -> None:
    ensemble.save(tmp_path / "ensemble")
    world.features.to_parquet(tmp_path / "features.parquet")
    done = command(
        "distill", "ensemble", "-f", "features.parquet", "--trees", 50, "-o", "forest", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    forest = crowdrank.Ranker.load(tmp_path / "forest")
    assert isinstance(forest, crowdrank.PointwiseGBDT)
    assert printed["trees"] == forest.best_iteration_ == 50
    expected = rank_correlation(
        ensemble.predict(world.features), forest.predict(world.features), world.features["query"]
    )
    assert printed["rank_correlation"] == pytest.approx(expected)
