"""That families err together, copies repeat, and the better are the dearer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank.readers.read import read_judgments
from crowdrank.simulation import World, simulate
from crowdrank.simulation.world import HONEST_KIND_SHARES, SPAMMER_KIND_SHARES, draw_assessors

HONEST_CROWD: dict[str, Any] = {
    "queries": 60,
    "documents": 20,
    "assessors": 12,
    "labels": 12,
    "spammers": 0,
    "adversaries": 0,
}


def errors(world: World) -> pd.DataFrame:
    """Grade minus true relevance, a row per document and a column per assessor."""
    judged = world.judgments.merge(world.documents[["query", "document", "relevance"]], on=["query", "document"])
    judged["error"] = judged["grade"] - judged["relevance"]
    return judged.pivot(index=["query", "document"], columns="assessor", values="error")


def correlations(world: World) -> tuple[float, float]:
    """The mean correlation of errors of two assessors of one family, and of two families."""
    family = world.assessors.set_index("assessor")["family"]
    table = errors(world)
    of = family.loc[table.columns].to_numpy()
    first, second = np.triu_indices(len(of), k=1)
    correlation = table.corr().to_numpy()[first, second]
    same = of[first] == of[second]
    return float(correlation[same].mean()), float(correlation[~same].mean())


def test_members_of_a_family_err_together() -> None:
    within, between = correlations(simulate(**HONEST_CROWD, families=3))
    assert within > between + 0.15


def test_a_larger_shared_error_makes_families_more_alike() -> None:
    gaps = []
    for size in (0.0, 0.5, 1.0, 3.0):
        within, between = correlations(simulate(**HONEST_CROWD, families=3, family_error=size))
        gaps.append(within - between)
    assert abs(gaps[0]) < 0.1
    assert (np.diff(gaps) > 0.03).all()


def test_the_shared_error_at_1_is_as_large_as_an_ordinary_assessors_noise() -> None:
    crowd = draw_assessors(np.random.default_rng(0), 400, families=2, grades=4)
    shared = crowd.shared_errors(np.random.default_rng(1), np.ones(20_000))
    ordinary = np.median(crowd.noise[crowd.kind == "ordinary"])
    assert shared[:2].std() == pytest.approx(ordinary, rel=0.05)
    assert np.corrcoef(shared[0], shared[1])[0, 1] == pytest.approx(0, abs=0.03)


def test_the_shared_error_grows_with_difficulty_so_that_honeypots_stay_clear() -> None:
    world = simulate(**HONEST_CROWD, families=3, honeypots=0.2)
    known = world.judgments.dropna(subset="honeypot").merge(world.assessors[["assessor", "kind"]], on="assessor")
    careful = known[known["kind"] == "careful"]
    assert (careful["grade"] == careful["honeypot"]).mean() > 0.95


def test_without_noise_a_family_of_one_rigor_gives_one_grade() -> None:
    world = simulate(**HONEST_CROWD, families=2, noise=0)
    judged = world.judgments.merge(world.assessors[["assessor", "rigor"]], on="assessor")
    assert (judged.groupby(["document", "family", "rigor"])["grade"].nunique() == 1).all()
    assert (judged.groupby(["document", "rigor"])["grade"].nunique() > 1).any()


def test_honest_assessors_are_dealt_out_evenly_and_others_stay_outside() -> None:
    assessors = simulate(queries=2, assessors=50, spammers=0.2, adversaries=0.1, families=3).assessors
    honest = assessors["kind"].isin(list(HONEST_KIND_SHARES))
    assert assessors.loc[honest, "family"].value_counts().tolist() == [12, 12, 11]
    assert assessors.loc[~honest, "family"].isna().all()


def test_judgments_name_the_family_where_there_are_any(tmp_path: Path) -> None:
    world = simulate(queries=10, families=2)
    family = world.assessors.set_index("assessor")["family"]
    named = world.judgments["family"]
    assert (named.fillna("") == world.judgments["assessor"].map(family).fillna("")).all()
    world.write(tmp_path)
    judgments = read_judgments(tmp_path / "judgments.csv")
    assert judgments.families is not None
    assert sorted(judgments.families.to_pylist()) == ["family-1", "family-2"]
    assert "family" not in simulate(queries=2).judgments


def test_families_change_neither_documents_nor_who_judges_what() -> None:
    plain, dealt = simulate(queries=5), simulate(queries=5, families=3)
    pd.testing.assert_frame_equal(plain.documents, dealt.documents)
    keys = ["query", "document", "assessor", "time"]
    pd.testing.assert_frame_equal(plain.judgments[keys], dealt.judgments[keys])
    pd.testing.assert_frame_equal(plain.assessors.drop(columns="family"), dealt.assessors.drop(columns="family"))


@pytest.mark.parametrize("families", [0, 3])
def test_copies_repeat_their_original_where_both_judged(families: int) -> None:
    world = simulate(queries=40, assessors=30, labels=10, copies=0.4, families=families)
    copy_of = world.assessors.set_index("assessor")["copy_of"].dropna()
    assert len(copy_of) == 12
    assert not copy_of.isin(copy_of.index).any()
    grade = world.judgments.pivot(index=["query", "document"], columns="assessor", values="grade")
    both = sum(_repeated(grade[copy], grade[original]) for copy, original in copy_of.items())
    assert both > 100


def _repeated(copy: pd.Series[float], original: pd.Series[float]) -> int:
    both = copy.notna() & original.notna()
    assert (copy[both] == original[both]).all()
    return int(both.sum())


def test_a_copy_has_the_qualities_of_its_original_but_its_own_activity() -> None:
    assessors = simulate(queries=2, copies=0.5, families=2).assessors.set_index("assessor")
    copies = assessors.dropna(subset="copy_of")
    originals = assessors.loc[copies["copy_of"]]
    for quality in ("kind", "rigor", "noise", "favorite", "seconds", "price", "family"):
        same = copies[quality].to_numpy() == originals[quality].to_numpy()
        assert (same | copies[quality].isna().to_numpy()).all(), quality
    assert (copies["activity"].to_numpy() != originals["activity"].to_numpy()).all()


def test_one_of_each_kind_and_family_is_no_copy() -> None:
    assessors = simulate(queries=2, copies=1, families=2).assessors
    own = assessors[assessors["copy_of"].isna()]
    kinds = assessors.groupby(["kind", "family"], dropna=False).ngroups
    assert len(own) == own.groupby(["kind", "family"], dropna=False).ngroups == kinds


@pytest.mark.parametrize("labels", [11, 30])
def test_many_labels_come_from_different_assessors(labels: int) -> None:
    # With 14 assessors the least active would hardly ever be asked for one label, and must be for eleven.
    world = simulate(queries=30, labels=labels, assessors=14)
    judged = world.judgments.groupby("document")["assessor"]
    assert (judged.nunique() == min(labels, 14)).all()
    assert (judged.size() == min(labels, 14)).all()


def test_better_assessors_are_dearer() -> None:
    crowd = draw_assessors(np.random.default_rng(0), 1000, spammers=0.2, adversaries=0.1)
    price = pd.Series(crowd.price).groupby(crowd.kind).median()
    assert price["careful"] > 1.3 * price["ordinary"] > 1.3 * 1.3 * price["careless"]
    assert price["ordinary"] == pytest.approx(0.05, rel=0.1)
    assert price[list(SPAMMER_KIND_SHARES)].max() < price["ordinary"]
    ordinary = crowd.kind == "ordinary"
    assert np.corrcoef(crowd.price[ordinary], crowd.noise[ordinary])[0, 1] < -0.3


def test_a_judgment_costs_its_assessors_price(tmp_path: Path) -> None:
    world = simulate(queries=5, price=2, expert_price=30)
    price = world.assessors.set_index("assessor")["price"]
    assert world.judgments["cost"].tolist() == world.judgments["assessor"].map(price).tolist()
    assert 1.5 < price.median() < 2.5
    world.write(tmp_path)
    settings = json.loads((tmp_path / "world.json").read_text())
    assert (settings["price"], settings["expert_price"]) == (2, 30)


def test_prices_scale_and_may_be_nothing() -> None:
    assert (simulate(queries=1, price=0).judgments["cost"] == 0).all()
    tiny, plain = (simulate(queries=1, price=price).assessors["price"] for price in (5e-6, 0.05))
    assert tiny.to_numpy() * 1e4 == pytest.approx(plain.to_numpy())
