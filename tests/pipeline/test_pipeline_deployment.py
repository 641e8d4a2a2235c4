"""The forest of a run: an imitation of the selected ranker, or the best single forest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdrank
from crowdrank.errors import UsageError
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_result import DEPLOYABLE, RunResult
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.ranker import Ranker
from crowdrank.simulation.world import World

FEW = ["majority", "average", "gda", "gls", "expert-only"]
SETTINGS: dict[str, Any] = {"candidates": FEW, "trees": {"n_estimators": 10}, "forest": {"n_trees": 60}}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=20, random_state=1)


@pytest.fixture(scope="module")
def imitated(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    folder = tmp_path_factory.mktemp("runs") / "imitated"
    return run(world.judgments, world.features, world.gold, output=folder, **SETTINGS), folder


def test_forest_imitates_the_selected_ensemble(imitated: tuple[RunResult, Path], world: World) -> None:
    result, folder = imitated
    assert result.rankers is not None
    deployable = result.rankers.deployable
    assert deployable is not None
    assert result.chosen.startswith("ensemble")
    assert deployable.imitates == result.chosen
    assert deployable.n_trees == 60
    assert isinstance(deployable.ranker, BoostedTrees)
    assert deployable.rank_correlation is not None
    assert 0.5 < deployable.rank_correlation < 1
    contrast = deployable.contrast
    assert contrast is not None
    assert (contrast.candidate, contrast.other) == (DEPLOYABLE, result.chosen)
    table = result.comparison.set_index("candidate")
    assert contrast.other_mean == pytest.approx(table.loc[result.chosen, "nDCG@10 mean"])
    assert contrast.difference == pytest.approx(contrast.mean - contrast.other_mean)
    assert DEPLOYABLE not in table.index
    saved = Ranker.load(folder / DEPLOYABLE)
    np.testing.assert_allclose(saved.predict(world.features), result.deployable.predict(world.features))


def test_forest_is_in_run_json_and_survives_loading(imitated: tuple[RunResult, Path]) -> None:
    result, folder = imitated
    assert result.rankers is not None
    stored = json.loads((folder / "run.json").read_text())["rankers"]["deployable"]
    assert result.rankers.deployable is not None
    assert stored == result.rankers.deployable.to_dict()
    again = RunResult.load(folder)
    assert again.rankers is not None
    assert again.rankers.deployable is not None
    assert again.rankers.deployable.to_dict() == stored


def test_resumed_run_has_the_same_forest(imitated: tuple[RunResult, Path], world: World) -> None:
    folder = imitated[1]
    before = (folder / DEPLOYABLE / "trees.txt").read_bytes()
    run(world.judgments, world.features, world.gold, output=folder, **SETTINGS)
    assert (folder / DEPLOYABLE / "trees.txt").read_bytes() == before


def test_tested_forest_has_not_seen_the_test_queries(
    imitated: tuple[RunResult, Path], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitated_by_queries: dict[int, Ranker] = {}

    def counting(ranker: Ranker, X: Any, query: Any, **options: Any) -> BoostedTrees:
        imitated_by_queries[len(np.unique(query))] = ranker
        return crowdrank.distill(ranker, X, query, **options)

    monkeypatch.setattr("crowdrank.pipeline.deployment.distill", counting)
    result = run(world.judgments, world.features, world.gold, **SETTINGS)
    assert result.rankers is not None
    n_queries, is_test = world.features["query"].nunique(), world.features["query"].isin(result.rankers.test_queries)
    n_others = n_queries - len(result.rankers.test_queries)
    assert sorted(imitated_by_queries) == [n_others, n_queries]
    assert imitated_by_queries[n_queries] is result.ranker
    known = crowdrank.read_features(world.features[is_test])
    ranked = world.features.loc[is_test, ["query", "document"]].assign(
        score=imitated_by_queries[n_others].predict(known, known.query)
    )
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    gold = world.gold[world.gold["query"].isin(ranked["query"]) & ~world.gold["document"].isin(planted)]
    value = crowdrank.evaluate(ranked, gold, "nDCG@10", unjudged="skip").means["nDCG@10"]
    reported = result.comparison.set_index("candidate").loc[result.chosen, "nDCG@10 mean"]
    assert value == pytest.approx(reported), "it imitates the ranker that is tested, without the test queries"


def test_deployable_selects_among_single_forests(imitated: tuple[RunResult, Path], world: World) -> None:
    result = run(world.judgments, world.features, world.gold, **SETTINGS, deployable=True)
    assert result.rankers is not None
    means = result.comparison.set_index("candidate")["selection_mean"]
    forests = ["majority", "average", "gda", "expert-only"]
    assert result.chosen == means[forests].idxmax()
    assert isinstance(result.ranker, BoostedTrees)
    deployable = result.rankers.deployable
    assert deployable is not None
    assert deployable.ranker is result.ranker
    assert deployable.imitates == ""
    assert deployable.contrast is not None
    assert (deployable.contrast.candidate, deployable.contrast.other) == (result.chosen, imitated[0].chosen)


def test_forest_without_expert_grades(world: World) -> None:
    result = run(world.judgments, world.features, **SETTINGS)
    assert result.rankers is not None
    deployable = result.rankers.deployable
    assert deployable is not None
    assert deployable.contrast is None
    assert deployable.rank_correlation is not None
    chosen = run(world.judgments, world.features, **SETTINGS, deployable=True)
    assert chosen.chosen == "gda"


def test_forest_without_test_queries(world: World) -> None:
    result = run(world.judgments, world.features, world.gold, **SETTINGS, test=0)
    assert result.rankers is not None
    deployable = result.rankers.deployable
    assert deployable is not None
    assert deployable.contrast is None
    assert deployable.rank_correlation is None


def test_no_single_forest_is_an_error(world: World) -> None:
    with pytest.raises(UsageError) as problem:
        run(world.judgments, world.features, world.gold, candidates=["gls"], deployable=True)
    assert problem.value.parameter == "deployable"


def test_unknown_parameter_of_the_forest_is_an_error() -> None:
    with pytest.raises(UsageError) as problem:
        RunSettings(forest={"n_tree": 5})
    assert problem.value.parameter == "forest"
