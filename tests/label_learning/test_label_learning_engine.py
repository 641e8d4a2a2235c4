"""Remappers on an engine: the same functions as in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdrank
from crowdrank import BoostedRemapper, LinearRemapper, LocalEngine
from crowdrank.label_learning import gradient_ascent


@pytest.fixture(scope="module")
def world() -> Any:
    return crowdrank.simulate(queries=40, documents=10, label_grades=3, gold_queries=20, random_state=1)


@pytest.fixture(autouse=True)
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_ascent, "DOCUMENTS_PER_SHARD", 50)


@pytest.mark.parametrize("mode", ["W", "T", "W+T"])
@pytest.mark.parametrize("cls", [LinearRemapper, BoostedRemapper])
def test_shards_give_the_same_functions(cls: Any, mode: str, world: Any) -> None:
    known = crowdrank.label_features(world.judgments, kind="mgbdt")
    settings = {"n_iter": 6, "ridge": 0.1, "learning_rate": 0.03, "objective": "squared", "standard_errors": 0.0}
    here = cls(mode, **settings).fit(known, world.features, world.gold)
    there = cls(mode, **settings).fit(known, world.features, world.gold, engine=LocalEngine(2))
    np.testing.assert_allclose(there.targets_, here.targets_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(there.weights_, here.weights_, rtol=1e-8, atol=1e-8)
    assert there.best_iteration_ == here.best_iteration_ > 0
    assert there.validation_ == pytest.approx(here.validation_, abs=1e-8)
