"""Every ranker satisfies the contract; the classes are found by introspection."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GDAPairwise, get_ranker
from crowdrank.errors import InputError, OutputError, UsageError
from crowdrank.judgments import ids
from crowdrank.rankers import RANKERS
from crowdrank.rankers.boosting import ONE_THREAD_CELLS, default_threads
from crowdrank.rankers.ranker import MissingValueWarning, Ranker
from crowdrank.simulation.world import World
from crowdrank.testing import Check, example_world, yield_checks


def every_ranker() -> list[type[Ranker]]:
    for module in pkgutil.iter_modules(crowdrank.rankers.__path__):
        importlib.import_module(f"crowdrank.rankers.{module.name}")
    found: list[type[Any]] = [Ranker]
    for cls in found:  # grows while it is read
        found += cls.__subclasses__()
    own = {cls for cls in found if not inspect.isabstract(cls) and cls.__module__.startswith("crowdrank.")}
    return sorted(own, key=lambda cls: cls.__name__)


EVERY = every_ranker()
SMALL = {"n_estimators": 15, "num_leaves": 8, "min_child_samples": 5, "n_trees": 15, "n_jobs": 1, "epochs": 25}
"""Parameters that keep a test short, for rankers that have them."""


@cache
def pairwise_model() -> GDAPairwise:
    return GDAPairwise().fit(example_world().judgments)


def small(cls: type[Any]) -> Ranker:
    """Return a ranker that is fitted quickly."""
    names = cls._parameter_names()
    chosen: dict[str, Any] = {name: value for name, value in SMALL.items() if name in names}
    ranker: Ranker = cls().set_params(**chosen, **({"model": pairwise_model()} if "model" in names else {}))
    return ranker


CHECKS = [check for cls in EVERY for check in yield_checks(cls)]


@pytest.fixture(scope="module")
def world() -> World:
    return example_world()


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_rankers_satisfy_the_contract(check: Check) -> None:
    # Not when tests are collected: every worker of pytest-xdist would compile and fit the pairwise model.
    assert isinstance(check.estimator, Ranker)
    replace(check, estimator=small(type(check.estimator)))()


def test_the_registry_has_every_ranker() -> None:
    assert {type(get_ranker(name)) for name in RANKERS} == set(EVERY)
    with pytest.raises(UsageError) as caught:
        get_ranker("svm")
    assert caught.value.kind == "unknown-name"


def test_members_of_a_saved_ranker_have_the_validation_queries(world: World, tmp_path: Path) -> None:
    instances = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip")
    train, later = instances.split(0.25, random_state=1)
    ranker = small(crowdrank.Ensemble).fit(**train.arguments, eval_set=later.eval_set)
    ranker.save(tmp_path / "ranker")
    parts = [Ranker.load(path.parent) for path in (tmp_path / "ranker").glob("*/ranker.json")]
    assert len(parts) == 2
    for part in parts:
        assert part.validation_queries_ in (ranker.validation_queries_, ())


def test_other_folders_are_neither_overwritten_nor_loaded(world: World, tmp_path: Path) -> None:
    ranker = get_ranker("gls").fit(world.features, world.gold["grade"].to_numpy())
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(OutputError, match=r"mine\.txt"):
        ranker.save(tmp_path)
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "mine.txt"):
        with pytest.raises(InputError) as caught:
            Ranker.load(folder)
        assert caught.value.fix is not None
        assert caught.value.fix.text == "name a folder written by save"
    ranker.save(tmp_path / "gls")
    with pytest.raises(InputError, match="it holds a GLS, not a LambdaMART"):
        crowdrank.LambdaMART.load(tmp_path / "gls")


def test_loading_a_run_names_the_ranker_in_it(world: World, tmp_path: Path) -> None:
    ranker = get_ranker("gls").fit(world.features, world.gold["grade"].to_numpy())
    (tmp_path / "run").mkdir()
    ranker.save(tmp_path / "run" / "model")
    with pytest.raises(InputError) as caught:
        Ranker.load(tmp_path / "run")
    assert caught.value.fix is not None
    assert caught.value.fix.text == f"name {tmp_path / 'run' / 'model'}"


def test_invalid_features_are_refused(world: World) -> None:
    gls = get_ranker("gls")
    for X, said in (
        (pd.DataFrame({"a": ["x", "y"]}), "column 'a': it is not all numbers"),
        ([["a"], ["b"]], "the features are not all numbers"),
        ([1.0, 2.0], "the features have 1 dimension, not 2"),
        (np.empty((0, 3)), "there are no rows or no features"),
    ):
        with pytest.raises(InputError, match=said):
            gls.fit(X, [0, 1], query=[1, 1])


def test_id_columns_of_a_frame_are_ignored() -> None:
    world = crowdrank.simulate(queries=20, documents=8, random_state=1)
    rows = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip")
    ranker = crowdrank.GLS().fit(**rows.arguments)
    bare = world.features.drop(columns=["query", "document"])
    assert np.array_equal(ranker.predict(world.features), ranker.predict(bare))


def test_too_few_rows_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(InputError) as caught:
        crowdrank.LambdaMART().fit(X, np.arange(30) % 3, query=np.repeat([1, 2, 3], 10))
    assert caught.value.kind == "few-rows"


def test_decreasing_gains_are_refused() -> None:
    with pytest.raises(UsageError, match="must not decrease from one grade"):
        crowdrank.LambdaMART(gains=(15, 7, 3, 1, 0)).fit(np.eye(3), [0, 1, 2], query=[1, 1, 1])


def test_an_ensemble_finds_the_queries_in_a_frame() -> None:
    world = crowdrank.simulate(queries=20, documents=8, random_state=1)
    rows = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip")
    ranker = crowdrank.Ensemble([crowdrank.GLS(), crowdrank.GLS(mu=10.0)]).fit(**rows.arguments)
    bare = world.features.drop(columns=["query", "document"])
    assert np.array_equal(ranker.predict(world.features), ranker.predict(bare, query=world.features["query"]))


def test_small_data_use_one_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [default_threads(cells) for cells in (1, ONE_THREAD_CELLS - 1, ONE_THREAD_CELLS)] == [1, 1, 3]
    ranker = crowdrank.LambdaMART(n_estimators=2).fit(world.features, world.gold["grade"])
    assert ranker.booster_.params["num_threads"] == 1
    ranker = crowdrank.LambdaMART(n_estimators=2, n_jobs=2).fit(world.features, world.gold["grade"])
    assert ranker.booster_.params["num_threads"] == 2
    few = slice(60)  # so that a hundred trees are cheap
    ensemble = crowdrank.Ensemble(n_jobs=2).fit(world.features[few], world.gold["grade"][few])
    assert ensemble.members_[0].get_params()["n_jobs"] == 2
    gls = crowdrank.GLS(tree_features=5, n_jobs=2).fit(world.features[few], world.gold["grade"][few])
    assert gls.tree_features_ is not None
    assert gls.tree_features_.trees_.booster_.params["num_threads"] == 2


def test_rankers_of_rankers_warn_of_missing_values_by_name(world: World) -> None:
    frame = world.features.rename(columns={"f1": "bm25"})
    frame.loc[:3, "bm25"] = np.nan
    for ranker in (small(crowdrank.Ensemble), small(crowdrank.TreeFeatureGLS), small(crowdrank.RD)):
        with pytest.warns(MissingValueWarning, match=r"1 feature \(bm25\)"):
            ranker.fit(frame, world.gold["grade"].to_numpy())


def test_integer_queries_are_codes_that_are_not_encoded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    X = world.features.drop(columns=["query", "document"]).to_numpy()
    y, query = world.gold["grade"].to_numpy(), world.gold["query"].to_numpy()
    expected = crowdrank.GLS().fit(X, y, query=query, eval_set=(X, y, query))
    codes = 1000 - pd.factorize(query)[0]

    def fail(column: Any) -> None:
        raise AssertionError("ids are encoded")

    monkeypatch.setattr(ids, "encode", fail)
    ranker = crowdrank.GLS().fit(X, y, query=codes, eval_set=(X, y, codes))
    assert np.array_equal(ranker.predict(X), expected.predict(X))
    assert ranker.history_ == expected.history_
