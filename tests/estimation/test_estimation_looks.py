"""Test bounds of group-sequential tests, and what each look at a comparison concludes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimation_worlds import make_world
from typer.testing import CliRunner

import crowdrank
from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns
from crowdrank.errors import DataWarning, InputError, UsageError
from crowdrank.estimation.by_query import ContrastEstimate
from crowdrank.estimation.group_sequential import (
    crossing_probability,
    lan_demets_bounds,
    obrien_fleming_bounds,
    repeated_p_value,
    spending_p_value,
)
from crowdrank.estimation.watching import answer, check_draws, half_width_to_decide, plan_look

WORLD = make_world(150)
NEAR = WORLD.runs["live"].assign(score=lambda run: run["score"] + np.random.default_rng(0).normal(0, 1.0, len(run)))
REFERENCE = {
    1: [1.96],
    2: [2.797, 1.977],
    3: [3.471, 2.454, 2.004],
    4: [4.049, 2.863, 2.337, 2.024],
    5: [4.562, 3.226, 2.634, 2.281, 2.040],
}
"""Bounds of O'Brien and Fleming at alpha = .05, two-sided."""


@pytest.mark.parametrize("n_looks", REFERENCE)
def test_obrien_fleming_bounds_have_published_values(n_looks: int) -> None:
    assert obrien_fleming_bounds(n_looks).tolist() == pytest.approx(REFERENCE[n_looks], abs=2e-3)


def test_lan_demets_bounds_have_published_values() -> None:
    expected = [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    assert lan_demets_bounds(np.arange(1, 6) / 5).tolist() == pytest.approx(expected, abs=2e-3)
    early = lan_demets_bounds([0.2, 0.4])
    assert early.tolist() == pytest.approx(expected[:2], abs=2e-3)


@pytest.mark.parametrize("n_looks", [1, 2, 5, 10])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_any_look_exceeds_its_bound_with_probability_alpha(n_looks: int, alpha: float) -> None:
    steps = np.random.default_rng(n_looks).normal(size=(200_000, n_looks)).cumsum(axis=1)
    z = np.abs(steps) / np.sqrt(np.arange(1, n_looks + 1))
    for bounds in (
        obrien_fleming_bounds(n_looks, alpha),
        lan_demets_bounds(np.arange(1, n_looks + 1) / n_looks, alpha),
    ):
        rate = float((z >= bounds).any(axis=1).mean())
        assert rate == pytest.approx(alpha, abs=4 * np.sqrt(alpha / 200_000))
    assert crossing_probability(np.full(1, 1.959964), np.ones(1)) == pytest.approx(0.05, abs=1e-6)


def test_p_values_reach_alpha_where_the_bound_is_reached() -> None:
    bounds, fractions = obrien_fleming_bounds(4), np.arange(1, 5) / 4
    for look in (2, 3, 4):
        assert repeated_p_value(bounds[look - 1], look, bounds, fractions) == pytest.approx(0.05, abs=1e-6)
        assert repeated_p_value(bounds[look - 1] + 0.1, look, bounds, fractions) < 0.05
    assert spending_p_value(lan_demets_bounds([0.3, 0.7])[-1], np.array([0.3, 0.7])) == pytest.approx(0.05, rel=1e-2)
    assert spending_p_value(0.0, np.array([0.3, 0.7])) == 1


@pytest.mark.parametrize("fractions", [[0.5, 0.5], [0.5, 0.2], [0.0, 1.0], []])
def test_fractions_out_of_order_are_refused(fractions: list[float]) -> None:
    with pytest.raises(UsageError) as caught:
        lan_demets_bounds(fractions)
    assert caught.value.kind == "looks-out-of-order"


@pytest.mark.parametrize(
    ("ends", "p", "margin", "kind"),
    [
        ((0.1, 0.3), 0.01, 0.5, "different"),
        ((-0.3, -0.1), 0.01, None, "different"),
        ((0.1, 0.3), 0.06, None, "go-on"),  # not significant after Holm's correction
        ((-0.1, 0.2), 0.5, 0.3, "not-different"),
        ((-0.1, 0.2), 0.5, 0.2, "go-on"),
        ((-0.1, 0.2), 0.5, None, "go-on"),
    ],
)
def test_the_three_answers(ends: tuple[float, float], p: float, margin: float | None, kind: str) -> None:
    difference = ContrastEstimate(sum(ends) / 2, *ends, p, 0.0)
    assert answer("new", difference, p, alpha=0.05, margin=margin, is_last=False).kind == kind


def test_the_half_width_to_decide_is_that_of_the_nearest_answer() -> None:
    difference = ContrastEstimate(0.02, 0.0, 0.0, 1.0, 0.0)
    assert half_width_to_decide(difference, None) == 0.02
    assert half_width_to_decide(difference, 0.03) == 0.02
    assert half_width_to_decide(difference, 0.1) == pytest.approx(0.08)


def draws(n_draws: int, budget: int = 60) -> pd.DataFrame:
    """Return the expert grades of several draws."""
    pairs, known = WORLD.truth[["query", "document"]], pd.DataFrame()
    for _ in range(n_draws):
        judged = None if known.empty else known.assign(assessor="expert")
        policy = CompareRuns(WORLD.runs, WORLD.labels, random_state=0)
        requests = policy.next(pairs, judged, budget=budget).frame
        columns = ["query", "document", "probability", "draw"]
        known = pd.concat([known, requests[columns].merge(WORLD.truth, on=["query", "document"])])
    return known


def test_the_look_is_the_number_of_draws() -> None:
    for n_draws in (1, 2, 3):
        result = crowdrank.estimate(WORLD.runs, WORLD.labels, draws(n_draws), looks=3)
        assert result.look is not None
        assert result.look.number == n_draws
        plain = crowdrank.estimate(WORLD.runs, WORLD.labels, draws(n_draws), level=result.look.interval_level)
        for name in ("difference_lower", "difference_upper"):
            assert result.table[name][1] == plain.table[name][1]
        assert result.table["p"][1] >= plain.table["p"][1]
        assert (result.answers[0].kind == "different") == (result.table["p_holm"][1] <= 0.05)


def test_looks_expect_grades_until_an_answer() -> None:
    live, expert = WORLD.runs["live"], WORLD.expert(30)
    runs = {"live": live, "new": WORLD.runs["new"]}
    first = crowdrank.estimate(runs, WORLD.labels, expert, looks=5, look=1)
    assert first.answers[0].kind == "go-on"
    assert first.answers[0].more_grades is not None
    assert first.answers[0].more_grades % len(expert) == 0  # at one of the later looks
    last = crowdrank.estimate(runs, WORLD.labels, expert, looks=5, look=5, margin=1e-4)
    assert last.answers[0].is_last
    assert last.answers[0].forecast is None


def test_unplanned_looks_spend_alpha_by_grades() -> None:
    result = crowdrank.estimate(WORLD.runs, WORLD.labels, draws(2), planned_grades=240)
    assert result.look is not None
    assert result.look.fractions.tolist() == [0.25, 0.5]
    assert result.look.bounds.tolist() == pytest.approx(lan_demets_bounds([0.25, 0.5]).tolist())


def test_without_looks_nothing_changes() -> None:
    plain = crowdrank.estimate(WORLD.runs, WORLD.labels, WORLD.expert(30))
    once = crowdrank.estimate(WORLD.runs, WORLD.labels, WORLD.expert(30), looks=1)
    assert plain.look is None
    assert "watching" not in plain.to_dict()
    for name in ("difference_lower", "difference_upper", "p"):
        assert once.table[name][1] == pytest.approx(plain.table[name][1], rel=1e-4)


@pytest.mark.parametrize(
    ("options", "kind", "parameter"),
    [
        ({"looks": 3, "look": 4}, "looks-out-of-order", "looks"),
        ({"looks": 3}, "look-unknown", "look"),
        ({"look": 2}, "looks-unknown", "look"),
        ({"looks": 0}, "invalid-parameter", "looks"),
        ({"looks": 2, "look": 0}, "invalid-parameter", "look"),
        ({"looks": 2, "look": 1, "planned_grades": 100}, "usage", "planned_grades"),
        ({"margin": -1.0}, "invalid-parameter", "margin"),
    ],
)
def test_looks_that_cannot_be_are_refused(options: dict[str, Any], kind: str, parameter: str) -> None:
    with pytest.raises(UsageError) as caught:
        crowdrank.estimate(WORLD.runs, WORLD.labels, WORLD.expert(30), **options)
    assert (caught.value.kind, caught.value.parameter) == (kind, parameter)


def test_a_look_that_is_not_the_number_of_draws_is_refused() -> None:
    for look in (1, 3):
        with pytest.raises(UsageError) as caught:
            crowdrank.estimate(WORLD.runs, WORLD.labels, draws(2), looks=4, look=look)
        assert caught.value.kind == "looks-out-of-order"
    with pytest.raises(UsageError) as caught:
        plan_look(looks=None, look=None, planned_grades=50, draw_sizes=np.array([60.0, 60.0]), n_grades=120, alpha=0.05)
    assert caught.value.kind == "looks-out-of-order"


@pytest.mark.parametrize(
    ("numbers", "sizes", "is_complete"),
    [
        ([1], [60], True),
        ([1, 2, 3], [60, 60, 60], True),  # of the judging service
        ([1, 61, 121], [60, 60, 60], True),
        ([5, 65], [60, 60], False),
        ([2], [60], False),
        ([1, 61], [57, 60], True),  # three documents were left out
        ([1, 121], [60, 60], False),
        ([1, 3], [60, 60], False),
        ([1, 61, 181], [60, 60, 60], False),
    ],
)
def test_a_draw_that_is_missing_is_found(numbers: list[float], sizes: list[float], is_complete: bool) -> None:
    if is_complete:
        check_draws(np.array(numbers, float), np.array(sizes, float))
        return
    with pytest.raises(InputError) as caught:
        check_draws(np.array(numbers, float), np.array(sizes, float))
    assert caught.value.kind == "looks-out-of-order"


def test_a_missing_draw_is_a_warning_without_looks() -> None:
    sample = draws(2)
    with pytest.warns(DataWarning, match="first draw is number 61"):
        result = crowdrank.estimate(WORLD.runs, WORLD.labels, sample[sample["draw"] > 1])
    assert [one.kind for one in result.warnings] == ["draw-missing"]
    assert crowdrank.estimate(WORLD.runs, WORLD.labels, sample).warnings == ()


def test_a_difference_within_the_margin_is_said_to_be() -> None:
    difference = ContrastEstimate(0.05, 0.02, 0.08, 0.001, 0.0)
    small = answer("new", difference, 0.001, alpha=0.05, margin=0.2, is_last=True)
    assert small.kind == "different"
    assert "different, but not by more than 0.2" in small.sentence("live", 0.2, 10, 10)
    assert "but" not in small.sentence("live", 0.05, 10, 10)


def test_what_is_expected_after_the_last_look_is_said_to_be_too_late() -> None:
    result = crowdrank.estimate({"live": NEAR, "new": WORLD.runs["live"]}, WORLD.labels, draws(1, 20), looks=2)
    (found,) = result.answers
    assert (found.kind, found.planned_grades) == ("go-on", 40)
    assert "looks end at about 40 expert grades" in result.answer_sentences()[0]


def test_a_further_look_is_not_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        crowdrank.estimate(WORLD.runs, WORLD.labels, draws(3), looks=2)
    assert caught.value.kind == "looks-out-of-order"
    assert all(fix.parameter is None for fix in caught.value.fixes)


def test_a_look_without_the_draw_before_is_refused() -> None:
    sample = draws(3)
    first, _, last = sorted(sample["draw"].unique())
    with pytest.raises(InputError) as caught:
        crowdrank.estimate(WORLD.runs, WORLD.labels, sample[sample["draw"].isin([first, last])], looks=4)
    assert caught.value.kind == "looks-out-of-order"


@pytest.mark.parametrize("column", ["query", "document"])
def test_a_draw_of_another_project_is_refused(column: str) -> None:
    sample = draws(1)
    foreign = sample.assign(**{column: "x" + sample[column]})
    mixed = pd.concat([sample.head(20), foreign.tail(40)])
    with pytest.raises(InputError) as caught:
        crowdrank.estimate(WORLD.runs, WORLD.labels, mixed)
    assert caught.value.kind == "other-project"


def test_looks_need_expert_grades() -> None:
    with pytest.raises(UsageError) as caught:
        crowdrank.estimate(WORLD.runs, WORLD.labels, looks=3)
    assert caught.value.kind == "no-expert-grades"


def test_the_command_prints_the_answer(tmp_path: Path) -> None:
    for name, run in WORLD.runs.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    WORLD.labels.to_parquet(tmp_path / "labels.parquet")
    draws(2).to_csv(tmp_path / "expert.csv", index=False)
    files = [str(tmp_path / "live.csv"), str(tmp_path / "new.csv"), "--labels", str(tmp_path / "labels.parquet")]
    words = ["estimate", *files, "--expert", str(tmp_path / "expert.csv"), "--looks", "4", "--margin", "0.01"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    watching = json.loads(done.stdout)["watching"]
    assert (watching["look"], watching["looks"], watching["margin"]) == (2, 4, 0.01)
    assert watching["answers"][0]["run"] == "new"
    assert watching["sentences"][0] in CliRunner().invoke(app, words).stdout
    refused = CliRunner().invoke(app, [*words, "--look", "1", "-o", str(tmp_path / "out.csv")])
    assert isinstance(refused.exception, UsageError)
    assert not (tmp_path / "out.csv").exists()
