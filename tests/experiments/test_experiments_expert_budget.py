"""The experiment of how many expert queries are enough: its draws, its figures, its words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdrank.errors import UsageError
from crowdrank.pipeline.candidates import BY_NAME
from experiments import expert_budget as module

FEW = ("majority", "average", "expert-only")


@pytest.fixture(scope="module")
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GENERATED", {"queries": 60, "documents": 8, "features": 5})
        patch.setattr(module, "candidates_of", lambda data: [BY_NAME[name] for name in FEW])
        return module.experiment(only=["generated"], seeds=[0, 1], budgets=[6, 10])


def test_every_run_has_a_figure_for_every_budget(small: Any) -> None:
    means, choice = small.tables
    runs = [row["run"] for row in means.rows]
    assert {*FEW, "ensemble-all", "ensemble-crowd", module.CHOICE} <= set(runs)
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


def test_crowd_pool_and_test_are_apart() -> None:
    place = module.apart("x", module.generated_features(0), 0)
    judged = set(place.data.query[place.data.n_labels > 0].tolist())
    assert judged
    assert not judged & set(place.pool.tolist())
    assert not judged & set(place.test.tolist())
    assert not set(place.pool.tolist()) & set(place.test.tolist())


def test_queries_tested_often_count_once() -> None:
    choice = ""
    draws = [(choice, {"a": np.array([0.2, 0.4])}, np.array([1, 2])), (choice, {"a": np.array([0.6])}, np.array([1]))]
    np.testing.assert_allclose(module.by_query(draws, "a"), [0.4, 0.4])


def test_aims_are_told() -> None:
    choice = "average"
    values = np.linspace(0.2, 0.8, 30)
    found = {"average": values, module.CHOICE: values, module.ALL_EXPERTS: values + 0.02}
    sentences = module.told_of({20: [(choice, found, np.arange(30))]}, [20])
    assert "mean regret is 0.0000 (at most 0.01)" in sentences[0]
    assert "nowhere" in sentences[0]
    assert "may be inferior" in sentences[1]
    better = {**found, module.ALL_EXPERTS: values - 0.02}
    assert "is not inferior" in module.told_of({20: [(choice, better, np.arange(30))]}, [20])[1]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="'x'"):
        module.experiment(only=["x"])
    with pytest.raises(UsageError, match="--methods"):
        module.experiment(["average"])
