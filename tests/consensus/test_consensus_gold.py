"""Expert grades on a scale of their own: sets of grades in class models, cut points in latent ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from crowdrank import GDA, GLAD, DawidSkene, Rasch, evaluate, get_aggregator, read_gold, simulate
from crowdrank.consensus import METHODS
from crowdrank.consensus.latent import estimate_cuts, expert_curves, first_cuts
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import InputError, UsageError

GRADES = ["query", "document", "grade"]
MAP = "0=0-1,1=2-4"


@pytest.fixture(scope="module")
def world() -> Any:
    return simulate(queries=30, documents=15, labels=5, assessors=40, honeypots=0, random_state=7)


@pytest.fixture(scope="module")
def binary(world: Any) -> pd.DataFrame:
    half: pd.DataFrame = world.gold.sample(frac=0.5, random_state=0)[GRADES]
    return half.assign(grade=(half["grade"] >= 2).astype(int))


def ranking_quality(model: Aggregator, gold: pd.DataFrame) -> dict[str, float]:
    return evaluate(model.consensus_.documents, gold, ["nDCG@10", "Tau"]).means


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"auto", "gda-pairwise"}))
def test_the_grade_lies_in_the_set_of_the_expert_grade(name: str, world: Any, binary: pd.DataFrame) -> None:
    model = get_aggregator(name).fit(world.judgments, binary, gold_map=MAP)
    graded = model.consensus_.documents.merge(binary, on=["query", "document"], suffixes=("", "_expert"))
    assert len(graded) == len(binary)
    assert ((graded["grade"] >= 2) == (graded["grade_expert"] == 1)).all()
    excluded = np.where(
        graded["grade_expert"] == 1, graded["p0"] + graded["p1"], graded[["p2", "p3", "p4"]].sum(axis=1)
    )
    assert np.abs(excluded).max() < 1e-12
    accuracy = model.consensus_.assessors["gold_accuracy"].dropna()
    assert accuracy.between(0, 1).all()
    assert accuracy.median() > 0.75


@pytest.mark.parametrize("cls", [DawidSkene, GLAD])
def test_class_models_refuse_other_scales_without_a_map(
    cls: type[Aggregator], world: Any, binary: pd.DataFrame
) -> None:
    with pytest.raises(InputError) as caught:
        cls().fit(world.judgments, binary)
    assert caught.value.kind == "scales-differ"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "gold_map"
    cls().fit(
        world.judgments, binary, gold_map=str(caught.value.fix.value)
    )  # the map that the message shows can be used


@pytest.mark.parametrize("cls", [GDA, Rasch])
def test_latent_models_take_experts_with_a_scale_of_their_own(
    cls: type[Aggregator], world: Any, binary: pd.DataFrame
) -> None:
    alone, with_gold = cls().fit(world.judgments), cls().fit(world.judgments, binary)
    before, after = ranking_quality(alone, world.gold), ranking_quality(with_gold, world.gold)
    assert all(after[name] >= before[name] for name in before)
    assert (
        "gold_accuracy" not in with_gold.consensus_.assessors
        or with_gold.consensus_.assessors["gold_accuracy"].isna().all()
    )


def test_a_binary_expert_helps_dawid_skene(world: Any, binary: pd.DataFrame) -> None:
    before = ranking_quality(DawidSkene().fit(world.judgments), world.gold)
    after = ranking_quality(DawidSkene().fit(world.judgments, binary, gold_map=MAP), world.gold)
    assert all(after[name] >= before[name] for name in before)


def test_a_map_needs_expert_grades(world: Any) -> None:
    with pytest.raises(UsageError) as caught:
        DawidSkene().fit(world.judgments, gold_map=MAP)
    assert caught.value.message.parameter == "gold_map"


@pytest.mark.parametrize("cls", [GDA, DawidSkene])
def test_a_saved_model_knows_the_map(cls: type[Aggregator], world: Any, binary: pd.DataFrame, tmp_path: Path) -> None:
    model = cls().fit(world.judgments, binary, gold_map=MAP)
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model")
    assert loaded.gold_ is not None
    assert str(loaded.gold_.grade_map) == str(model.gold_.grade_map) if model.gold_ else False
    new = world.judgments.head(3).assign(assessor="new")
    pd.testing.assert_frame_equal(
        loaded.add(new).consensus_.documents, model.add(new).consensus_.documents, check_exact=True
    )


def test_a_fit_can_start_from_a_model_with_other_experts(world: Any, binary: pd.DataFrame) -> None:
    without = GDA().fit(world.judgments)
    warm = GDA(n_iter=300, tol=1e-9).fit(world.judgments, binary, init=without)
    cold = GDA(n_iter=300, tol=1e-9).fit(world.judgments, binary)
    gap = warm.consensus_.documents["relevance"] - cold.consensus_.documents["relevance"]
    assert gap.abs().max() < 0.02
    assert len(GDA().fit(world.judgments, init=warm).theta_["expert_cuts"]) == 0


def test_cut_points_maximize_their_posterior() -> None:
    rng = np.random.default_rng(0)
    relevance, counts = np.linspace(-3, 3, 15), rng.gamma(2.0, 3.0, (4, 15))

    def negative(cuts: Any) -> float:
        return float(0.5 * (cuts**2).sum() - (counts * np.log(expert_curves(cuts, relevance))).sum())

    cuts = first_cuts(counts.sum(axis=1))
    for _ in range(20):
        cuts = estimate_cuts(cuts, counts, relevance)
    assert np.allclose(cuts, minimize(negative, np.zeros(3)).x, atol=1e-4)


def test_cut_points_start_at_the_quantiles_of_the_shares() -> None:
    cuts = first_cuts(np.array([800.0, 150.0, 50.0]) * 1000)
    assert cuts == pytest.approx([0.8416, 1.6449], abs=1e-3)
    at_cut = expert_curves(cuts, cuts)
    assert at_cut[0, 0] == pytest.approx(at_cut[1, 0])
    assert read_gold(pd.DataFrame({"document": ["a"], "grade": [1]})).grade_map is None
