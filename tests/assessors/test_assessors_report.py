"""The report on assessors: what it says of simulated crowds, and that names and order do not matter."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GDA, DawidSkene, MajorityVote, read_judgments, simulate
from crowdrank.assessors.flags import FLAGS, Evidence, flag
from crowdrank.assessors.leave_one_out import leave_one_out_consensus
from crowdrank.assessors.report import assess
from crowdrank.assessors.trend import Trend, independence, joint_counts, measure_trend
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.errors import ConvergenceWarning, InputError, NotFittedError
from crowdrank.simulation import World

HONEST = ["careful", "ordinary", "careless"]
each = pytest.mark.parametrize("method", METHODS)


@cache
def world(seed: int = 0, **settings: Any) -> World:
    return simulate(random_state=seed, **settings)


def reported(method: str, judgments: Any, **options: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        frame: pd.DataFrame = assess(get_aggregator(method).fit(judgments), **options).table.to_pandas()
    return frame.set_index("assessor")


def flagged(method: str, seeds: range) -> pd.DataFrame:
    """Flags and true kinds of several crowds."""
    reports = [
        reported(method, world(seed).judgments).join(world(seed).assessors.set_index("assessor")[["kind"]])
        for seed in seeds
    ]
    return pd.concat(reports)


def test_reversed_is_said_of_those_whose_interval_is_well_below_zero() -> None:
    rise, error = np.array([-1.04, -0.47, -0.15]), np.array([0.08, 0.23, 0.01])
    trend = Trend(np.full(3, 100), np.zeros(3), rise, error)
    information = np.array([0.42, 0.03, 0.03])
    found = flag(Evidence(trend, np.zeros(3), information, np.full(3, 0.01))).tolist()
    assert found[0] == "reversed"
    assert "reversed" not in found[1:]  # the interval only just ends below 0; it is not steep


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
def test_flags_find_those_who_do_not_look_and_accuse_few_others(method: str) -> None:
    crowd = flagged(method, range(3))
    spammers = crowd[crowd["kind"].str.endswith("spammer") & (crowd["judgments"] >= 60)]
    adversaries = crowd[(crowd["kind"] == "adversary") & (crowd["judgments"] >= 60)]
    honest = crowd[crowd["kind"].isin(HONEST)]
    assert len(spammers) >= 8
    assert len(adversaries) >= 3
    assert (spammers["flag"] == "random").mean() > 0.7
    assert (adversaries["flag"] == "reversed").mean() > 0.7
    assert honest["flag"].isin(["random", "reversed"]).mean() < 0.03
    assert (crowd.loc[crowd["flag"] == "careful", "kind"].isin(["careful", "ordinary"])).all()
    assert not (honest.loc[honest["flag"] == "careless", "kind"] == "careful").any()


def test_numbers_follow_the_kinds() -> None:
    crowd = flagged("gda", range(2)).query("judgments >= 60")
    names = ["informativeness", "slope", "rise", "honeypot_share", "duration"]
    told, slope, rise, right, seconds = (crowd.groupby("kind")[name].mean() for name in names)
    assert told["careful"] > told["ordinary"] > told["careless"] > told["random-spammer"]
    assert told["random-spammer"] < 0.05
    assert slope["adversary"] < -0.5
    assert rise["adversary"] < -0.5
    assert abs(slope["random-spammer"]) < 0.3
    assert right["careful"] > 0.9
    assert right["adversary"] < 0.5
    assert seconds["random-spammer"] < seconds["careful"]


def test_bias_follows_rigor() -> None:
    truth = world(1).assessors.set_index("assessor")
    crowd = reported("gda", world(1).judgments).join(truth[["kind", "rigor"]])
    looking = crowd[crowd["kind"].isin(HONEST) & (crowd["judgments"] >= 60)]
    assert np.corrcoef(looking["bias"], looking["rigor"].astype(float))[0, 1] < -0.8


@each
def test_every_method_has_a_report(method: str) -> None:
    judgments = world(4, queries=15, assessors=12).judgments
    report = reported(method, judgments, gold=world(4, queries=15, assessors=12).gold)
    told = report["informativeness"]
    assert told.is_monotonic_decreasing
    assert (told >= 0).all()
    assert report["judgments"].sum() == len(judgments)
    assert set(report["flag"]) <= set(FLAGS)
    assert report["evidence"].str.contains(r"\d judgments?\b.* nats, the crowd's median \d").all()
    assert {f"info_{grade}" for grade in range(5)} <= set(report.columns)
    assert report["agreement"].between(0, 1).all()
    assert (report["gold_judgments"] == report["judgments"]).all()
    assert ((report["gold_lower"] <= report["gold_accuracy"]) & (report["gold_accuracy"] <= report["gold_upper"])).all()


@pytest.mark.parametrize("method", ["gda", "dawid-skene"])
def test_informativeness_is_the_models(method: str) -> None:
    model = get_aggregator(method).fit(world(4, queries=15, assessors=12).judgments)
    expected = model.consensus_.assessor_table.to_pandas().set_index("assessor")["informativeness"]
    found = assess(model).table.to_pandas().set_index("assessor")["informativeness"]
    pd.testing.assert_series_equal(found.sort_index(), expected.sort_index())


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_names_and_order_change_nothing(method: str, seed: int) -> None:
    frame = world(5, queries=10, assessors=10).judgments
    rng = np.random.default_rng(seed)
    names = dict(zip(frame["assessor"].unique(), rng.permutation(frame["assessor"].unique()), strict=True))
    shuffled = frame.assign(assessor=frame["assessor"].map(names)).sample(frac=1, random_state=seed)
    one, other = reported(method, frame), reported(method, shuffled)
    words = ["evidence"]  # a rounded digit may differ
    expected = one.rename(index=names).sort_index().drop(columns=words)
    pd.testing.assert_frame_equal(expected, other.sort_index().drop(columns=words), rtol=1e-5, atol=1e-6)


@each
@pytest.mark.parametrize(
    "frame",
    [
        pytest.param({"document": ["a"], "assessor": ["x"], "grade": [1]}, id="one judgment"),
        pytest.param({"document": list("aabb"), "assessor": list("xyxy"), "grade": [1] * 4}, id="one grade"),
        pytest.param({"document": list("abcd"), "assessor": list("xxyy"), "grade": [0, 1, 2, 0]}, id="no overlap"),
        pytest.param({"document": list("aabb"), "assessor": list("xyxy"), "grade": [0, 2, 2, 0]}, id="contradiction"),
    ],
)
def test_small_and_odd_inputs_accuse_nobody(method: str, frame: dict[str, list[Any]]) -> None:
    report = reported(method, pd.DataFrame(frame))
    assert (report["flag"] == "few").all()
    assert np.isfinite(report["informativeness"]).all()


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_report_comes_in_the_library_of_the_judgments(library: Any) -> None:
    frame = library({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [0, 1, 1]})
    report = assess(MajorityVote().fit(frame))
    assert type(report.frame) is type(frame)
    assert not report.modeled
    assert repr(report) == "<AssessorReport by MajorityVote: 2 assessors; 2 few>"


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
        assess(GDA(), world().judgments)


def test_other_grades_than_those_fitted_are_refused() -> None:
    frame = pd.DataFrame({"document": list("aabb"), "assessor": list("xyxy"), "grade": [0, 1, 1, 0]})
    with pytest.raises(InputError, match="the grades 0-3 are not those fitted"):
        assess(GDA().fit(frame), frame.assign(grade=[0, 3, 1, 0]))


def test_newcomers_are_taken_for_the_crowd_and_flagged_by_what_they_did() -> None:
    frame = world(0).judgments
    adversaries = world(0).assessors.query("kind == 'adversary'")
    newcomer = adversaries.sort_values("activity")["assessor"].iloc[-1]
    model = GDA().fit(frame[frame["assessor"] != newcomer])
    report = assess(model, frame).frame.set_index("assessor")
    assert report["slope"][newcomer] > 0.5
    assert report["rise"][newcomer] < 0
    assert report["flag"][newcomer] == "reversed"


def test_gold_of_the_fit_is_used_unless_other_is_given() -> None:
    here = world(4, queries=15, assessors=12)
    fitted = assess(DawidSkene().fit(here.judgments, gold=here.gold)).frame
    given_later = assess(DawidSkene().fit(here.judgments), gold=here.gold).frame
    name = ["assessor", "gold_judgments", "gold_right"]
    pd.testing.assert_frame_equal(
        fitted[name].sort_values("assessor", ignore_index=True),
        given_later[name].sort_values("assessor", ignore_index=True),
    )


def test_honeypots_are_judged_as_answered() -> None:
    frame = pd.DataFrame(
        {"document": list("aabb"), "assessor": list("xyxy"), "grade": [-2, 0, 1, 1], "honeypot": [-2, -2, None, None]}
    )
    for how in ("lowest", "drop"):
        model = MajorityVote().set_params(unjudgeable_as=how).fit(read_judgments(frame, unjudgeable=-2))
        report = assess(model).frame.set_index("assessor")
        assert report.loc[["x", "y"], "honeypots_right"].tolist() == [1, 0]


def slow_expected(frame: pd.DataFrame) -> list[float]:
    """The mean vote of the others, one judgment at a time."""
    found = []
    for row in frame.itertuples():
        others = frame[(frame["document"] == row.document) & (frame["assessor"] != row.assessor)]
        found.append(others["grade"].mean())
    return found


def test_an_assessors_own_answers_are_left_out_also_repeated_ones() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"document": rng.integers(0, 20, 80), "assessor": rng.integers(0, 5, 80), "grade": rng.integers(0, 3, 80)}
    ).sort_values("document", kind="stable", ignore_index=True)
    table = read_judgments(frame, repeats="keep")
    found = leave_one_out_consensus(table)
    np.testing.assert_allclose(found.expected, slow_expected(table.frame), atol=1e-12)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GDA().fit(world(5, queries=10, assessors=10).judgments)
    whole = leave_one_out_consensus(model.judgments_, model._states(model.theta_))
    monkeypatch.setattr("crowdrank.assessors.leave_one_out._BLOCK", 7)
    cut = leave_one_out_consensus(model.judgments_, model._states(model.theta_))
    np.testing.assert_allclose(cut.expected, whole.expected)
    np.testing.assert_array_equal(cut.grade, whole.grade)


def test_leaving_out_by_states_equals_bayes_by_hand() -> None:
    table = read_judgments(pd.DataFrame({"document": list("aaa"), "assessor": list("xyz"), "grade": [0, 1, 1]}))
    good = np.array([[0.8, 0.3], [0.2, 0.7]])
    states = (np.array([0.6, 0.4]), np.stack([good, good, good]))
    belief = np.array([0.6 * 0.2 * 0.2, 0.4 * 0.7 * 0.7])  # what y and z say
    expected = float((belief / belief.sum()) @ good[1])
    assert leave_one_out_consensus(table, states).expected[0] == pytest.approx(expected)


def test_random_answers_look_related_no_more_often_than_chance_has_it() -> None:
    rng = np.random.default_rng(0)
    documents, assessors = 3000, 300
    frame = pd.DataFrame(
        {
            "document": np.repeat(np.arange(documents), 5),
            "assessor": np.concatenate([rng.choice(assessors, 5, replace=False) for _ in range(documents)]),
            "grade": rng.integers(0, 3, 5 * documents),
        }
    )
    table = read_judgments(frame)
    others = leave_one_out_consensus(table)
    assert (independence(joint_counts(table, others)) < 0.05).mean() < 0.1
    trend = measure_trend(table, others)
    assert trend.n.min() > 20
    known = np.isfinite(trend.error)
    assert (np.abs(trend.rise[known] / trend.error[known]) > 1.96).mean() < 0.1
