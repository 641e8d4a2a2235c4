"""That the crowd behaves as its kinds are described: noise, rigor, spam, reversal, honeypots."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from crowdrank.simulation import World, simulate
from crowdrank.simulation.world import HONEST_KIND_SHARES, SPAMMER_KIND_SHARES, choose_assessors, draw_assessors


def joined(world: World) -> pd.DataFrame:
    """Judgments beside the truth about their document and assessor."""
    truth = world.documents.rename(columns={"grade": "expert"}).drop(columns="honeypot")
    return world.judgments.merge(truth, on=["query", "document"]).merge(world.assessors, on="assessor")


@pytest.fixture(scope="module")
def judged() -> pd.DataFrame:
    return joined(simulate(queries=300, assessors=150, random_state=11))


def of_kind(judged: pd.DataFrame, *kinds: str) -> pd.DataFrame:
    return judged[judged["kind"].isin(kinds)]


def agreement(rows: pd.DataFrame) -> float:
    return float((rows["grade"] == rows["expert"]).mean())


def correlation(rows: pd.DataFrame) -> float:
    return float(np.corrcoef(rows["grade"], rows["expert"])[0, 1])


def test_spammers_tell_nothing(judged: pd.DataFrame) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    for spammer in SPAMMER_KIND_SHARES:
        rows = of_kind(judged, spammer)
        assert len(rows) > 200
        # By chance alone the estimate is about (5-1)(5-1) / 2n nats.
        assert metrics.mutual_info_score(rows["grade"], rows["expert"]) < 24 / len(rows)


def test_honest_assessors_tell_something(judged: pd.DataFrame) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    for kind in HONEST_KIND_SHARES:
        rows = of_kind(judged, kind)
        assert metrics.mutual_info_score(rows["grade"], rows["expert"]) > 0.1


def test_spammers_have_their_habits(judged: pd.DataFrame) -> None:
    constant = of_kind(judged, "constant-spammer")
    assert (constant["grade"] == constant["favorite"]).all()
    centered = of_kind(judged, "center-spammer")["grade"]
    assert (centered == 2).mean() > 0.5
    assert of_kind(judged, "random-spammer")["grade"].value_counts(normalize=True).between(0.15, 0.25).all()


def test_adversaries_reverse_the_scale(judged: pd.DataFrame) -> None:
    assert correlation(of_kind(judged, "adversary")) < -0.4


def test_care_shows_in_agreement(judged: pd.DataFrame) -> None:
    # Correlation leaves out what is a matter of rigor.
    careful, ordinary, careless = (correlation(of_kind(judged, kind)) for kind in HONEST_KIND_SHARES)
    assert careful > ordinary + 0.05
    assert ordinary > careless + 0.05
    assert agreement(of_kind(judged, "careful")) > agreement(of_kind(judged, "careless")) + 0.05


def test_difficult_documents_are_agreed_on_less(judged: pd.DataFrame) -> None:
    honest = of_kind(judged, *HONEST_KIND_SHARES)
    hard = honest["difficulty"] > honest["difficulty"].median()
    assert agreement(honest[~hard]) > agreement(honest[hard]) + 0.05


def test_rigor_lowers_grades(judged: pd.DataFrame) -> None:
    honest = of_kind(judged, *HONEST_KIND_SHARES)
    excess = (honest["grade"] - honest["expert"]).groupby(honest["rigor"]).mean()
    assert excess.index.tolist() == [0, 1, 2, 3]
    assert excess.is_monotonic_decreasing
    assert excess.iloc[0] > excess.iloc[-1] + 0.3


def test_spammers_are_quicker(judged: pd.DataFrame) -> None:
    median = judged.groupby("kind")["duration"].median()
    assert median[list(SPAMMER_KIND_SHARES)].max() < median.drop(list(SPAMMER_KIND_SHARES)).min() / 2


def test_careful_assessors_know_the_honeypots(judged: pd.DataFrame) -> None:
    honeypots = judged[judged["honeypot"].notna()]
    right = (honeypots["honeypot"] == honeypots["grade"]).groupby(honeypots["kind"]).mean()
    assert right["careful"] > 0.98
    assert right["ordinary"] > 0.9
    assert right["random-spammer"] < 0.4
    assert right["adversary"] < 0.1


def test_honeypots_are_a_share_of_tasks_at_both_ends_of_the_scale(judged: pd.DataFrame) -> None:
    honeypots = judged[judged["honeypot"].notna()]
    assert len(honeypots) / len(judged) == pytest.approx(0.05, abs=0.001)
    assert (honeypots["honeypot"] == honeypots["expert"]).all()
    assert honeypots["honeypot"].value_counts(normalize=True).to_dict() == pytest.approx({0: 0.5, 4: 0.5}, abs=0.01)


def test_a_binary_crowd_answers_honeypots_in_its_own_grades() -> None:
    world = simulate(queries=50, label_grades=2, spammers=0, adversaries=0, noise=0, honeypots=0.2)
    honeypots = world.judgments.dropna(subset="honeypot")
    assert set(honeypots["honeypot"]) == {0, 1}
    assert (honeypots["grade"] == honeypots["honeypot"]).all()


@pytest.mark.parametrize("grades", [2, 3, 4, 5, 8])
def test_a_binary_label_without_noise_follows_equation_11(grades: int) -> None:
    judged = joined(simulate(queries=60, grades=grades, label_grades=2, noise=0, spammers=0.2, adversaries=0.1))
    honest = of_kind(judged, *HONEST_KIND_SHARES)
    assert honest["rigor"].nunique() == grades - 1
    assert (honest["grade"] == (honest["expert"] > honest["rigor"])).all()
    reversed_ = of_kind(judged, "adversary")
    assert (reversed_["grade"] == (reversed_["expert"] <= reversed_["rigor"])).all()


def test_without_noise_only_rigor_parts_assessors_from_experts() -> None:
    judged = joined(simulate(queries=60, grades=5, noise=0, spammers=0, adversaries=0))
    assert (abs(judged["grade"] - judged["expert"]) <= 1).all()
    by_rigor = judged.groupby(["document", "rigor"])["grade"]
    assert (by_rigor.max() == by_rigor.min()).all()


def test_kinds_come_in_the_shares_asked_for() -> None:
    crowd = draw_assessors(np.random.default_rng(0), 200, spammers=0.15, adversaries=0.03)
    counts = pd.Series(crowd.kind).value_counts()
    assert counts[list(SPAMMER_KIND_SHARES)].sum() == 30
    assert counts["adversary"] == 6
    assert counts["careful"] == pytest.approx(0.82 * 0.3 * 200, abs=1)


def test_the_crowd_may_be_all_bad() -> None:
    assert not draw_assessors(np.random.default_rng(0), 7, spammers=1).reads_documents.any()
    kinds = draw_assessors(np.random.default_rng(0), 10, spammers=0.1, adversaries=0.9).kind
    assert (kinds == "adversary").sum() == 9


def test_assessors_are_drawn_by_activity_without_replacement() -> None:
    # P(both) of a pair, drawn one after another: p_a p_b / (1 - p_a) + p_b p_a / (1 - p_b).
    activity = np.array([0.6, 0.3, 0.1])
    chosen = np.sort(choose_assessors(np.random.default_rng(5), activity, 50_000, 2), axis=1)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        p, q = activity[a], activity[b]
        share = (chosen == [a, b]).all(axis=1).mean()
        assert share == pytest.approx(p * q / (1 - p) + q * p / (1 - q), abs=0.01)


def test_chunks_do_not_change_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    activity = np.full(5, 0.2)
    whole = choose_assessors(np.random.default_rng(5), activity, 100, 3)
    monkeypatch.setattr("crowdrank.simulation.world.MAX_RANDOM_NUMBERS", 35)
    assert (choose_assessors(np.random.default_rng(5), activity, 100, 3) == whole).all()
