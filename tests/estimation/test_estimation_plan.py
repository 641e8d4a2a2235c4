"""Test plans of queries, labels and expert grades."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimation_worlds import World, make_world
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.errors import DataWarning, InputError, UsageError
from crowdrank.estimation.designs import DesignModel, designs_of_pilot
from crowdrank.estimation.estimate import estimate
from crowdrank.estimation.forecast import VarianceModel
from crowdrank.estimation.plan import PlanResult, plan
from crowdrank.estimation.prepared import prepare_estimate
from crowdrank.estimation.typical_values import LABELS, TYPICAL, TYPICAL_SHARES, typical_designs
from crowdrank.evaluation.measures import parse_measure

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "plan.json"
WORLD = make_world(60, bias=0.3)
CHEAP: dict[str, Any] = {"queries": 300, "label_price": 0.01}


def drawn(world: World, budget: int, seed: int = 0) -> Any:
    policy = CompareRuns(world.runs, world.labels, random_state=seed)
    frame = policy.next(pool_of_runs(world.runs, "nDCG@10"), budget=budget).frame
    return frame[["query", "document", "probability", "draw"]].merge(world.truth)


def models(world: World, expert: Any, measure: str = "nDCG@10") -> dict[str, DesignModel]:
    prepared = prepare_estimate(world.runs, world.labels, expert, measure, "auto", 0, allow_feature_labels=False)
    return {model.name: model for model in designs_of_pilot(prepared, np.array([-1.0, 1.0]))}


def half_width(world: World, expert: Any) -> float:
    row = estimate(world.runs, world.labels, expert).rows.to_pylist()[1]
    return float(row["difference_upper"] - row["difference_lower"]) / 2


def planned(world: World = WORLD, expert: Any = None, **wish: Any) -> PlanResult:
    return plan(world.runs, world.labels, world.expert(20) if expert is None else expert, **wish)


@pytest.mark.filterwarnings("ignore")
def test_predicted_half_widths_are_those_of_new_queries_on_average() -> None:
    predicted, realized = np.zeros(4), np.zeros(4)
    for seed in range(4):
        pilot, world = (make_world(80, bias=0.3, seed=2 * seed + part) for part in (0, 1))
        by_query, by_document = models(pilot, pilot.expert(25)), models(pilot, drawn(pilot, 150))["document"]
        documents = by_query["query"].documents_per_query
        predicted += [
            by_query["query"].half_width(80, 40 * documents, 0.95),
            by_query["document"].half_width(80, 100, 0.95) / by_query["document"].scale,
            by_query["document"].half_width(80, 400, 0.95) / by_query["document"].scale,
            by_document.half_width(80, 400, 0.95),
        ]
        wide, narrow = (half_width(world, drawn(world, budget)) for budget in (100, 400))
        realized += [half_width(world, world.expert(40)), wide, narrow, narrow]
    assert np.abs(predicted / realized - 1).max() < 0.2


def test_the_cheapest_option_meets_the_wish_with_the_fewest_grades() -> None:
    result = planned(half_width=0.05, **CHEAP)
    best = result.options[0]
    assert result.best == 0
    assert best.half_width <= 0.05
    assert best.cost == min(one.cost for one in result.options)
    assert best.cost == pytest.approx(best.expert_grades + 0.01 * best.labels)
    model = models(WORLD, WORLD.expert(20))[best.design]
    assert model.half_width(best.queries, best.expert_grades - 1, 0.95) > 0.05
    assert all(one.power is None for one in result.options)
    assert {one.design for one in result.options} == {"experts", "query", "document"}


def test_the_power_of_an_option_is_that_of_the_wish() -> None:
    result = planned(difference=0.06, power=0.9, **CHEAP)
    powers = [one.power for one in result.options if one.meets]
    assert powers
    assert all(power is not None and 0.9 <= power < 0.95 for power in powers)
    assert "power at 0.06" in result.markdown()


def test_power_is_the_share_of_intervals_without_zero() -> None:
    model = typical_designs(parse_measure("nDCG@10"))[0]
    error, rng = model.error(100, 100 * model.documents_per_query), np.random.default_rng(0)
    values = rng.normal(0.05, error * 10, (4000, 100))
    found = np.abs(values.mean(axis=1)) > 1.984 * values.std(axis=1, ddof=1) / 10
    assert model.power(100, 100 * model.documents_per_query, 0.95, 0.05) == pytest.approx(found.mean(), abs=0.03)


def test_a_budget_alone_buys_the_narrowest_interval() -> None:
    result = planned(budget=150, **CHEAP)
    best = result.options[0]
    assert result.best == 0
    assert best.half_width == min(one.half_width for one in result.options)
    assert all(one.cost <= 150 for one in result.options if one.meets)
    assert best.cost > 140
    assert planned(budget=600, **CHEAP).options[0].half_width < best.half_width


def test_expensive_labels_are_bought_for_fewer_queries() -> None:
    cheap, dear = (
        next(
            one for one in planned(half_width=0.05, queries=300, label_price=price).options if one.design == "document"
        )
        for price in (0.001, 0.2)
    )
    assert dear.labels < cheap.labels
    assert dear.expert_grades > cheap.expert_grades


def test_a_wish_that_the_pool_cannot_meet_names_the_queries_that_would_do() -> None:
    result = planned(half_width=0.01)
    assert result.best is None
    assert all(not one.meets for one in result.options)
    assert result.forecast is not None
    enough = result.forecast.queries
    assert enough is not None
    assert f"{enough:,} queries" in result.reason()
    assert planned(half_width=0.01, queries=enough).best == 0
    assert planned(half_width=0.01, queries=enough - 1).best is None


def test_a_budget_that_is_too_small_is_not_met() -> None:
    result = planned(half_width=0.05, budget=3, **CHEAP)
    assert (result.best, result.forecast) == (None, None)
    assert "the cheapest precise one costs" in result.reason()
    assert {row[""] for row in result.rows()} == {"too costly"}


def test_a_pilot_of_documents_plans_documents_only() -> None:
    result = planned(expert=drawn(WORLD, 150), half_width=0.05)
    assert {one.design for one in result.options} == {"document"}
    assert "further draws of documents only" in result.source


def test_measures_that_documents_cannot_estimate_are_planned_by_query() -> None:
    result = planned(half_width=0.2, measure="RR", label_price=0.001)
    assert {one.design for one in result.options} == {"experts", "query"}


def test_half_widths_by_document_are_converted_to_the_scale_of_whole_queries() -> None:
    world = make_world(60, bias=2.0)
    found = models(world, world.expert(60))
    assert found["document"].scale > 1.5
    complete = [
        found[name].half_width(60, 60 * found[name].documents_per_query, 0.95) for name in ("query", "document")
    ]
    assert complete[1] == pytest.approx(complete[0], rel=0.1)
    assert models(world, world.expert(60), "P@5")["document"].scale == pytest.approx(1)


def test_more_labels_per_document_need_fewer_expert_grades() -> None:
    options = {
        one.labels_per_document: one for one in plan(half_width=0.05, queries=200).options if one.design == "query"
    }
    assert sorted(options) == [1, 3, 10]
    assert options[3].expert_grades < options[1].expert_grades
    alone = plan(half_width=0.05, queries=200, labels_per_document=3).options
    assert next(one for one in alone if one.design == "query") == options[3]


def test_plans_without_expert_grades_use_the_documents_of_the_rankings() -> None:
    result = plan(WORLD.runs, WORLD.labels, half_width=0.1)
    experts = next(one for one in result.options if one.design == "experts")
    assert experts.expert_queries is not None
    assert experts.expert_grades / experts.expert_queries == pytest.approx(11.4, abs=0.5)
    assert "TREC DL20" in result.source


def test_queries_that_show_no_difference_widen_the_interval() -> None:
    model = DesignModel("query", 10, 0.01, np.ones(1), np.array([0.005]), 0.1, 0.5)
    sure = DesignModel("query", 10, 0.01, np.ones(1), np.array([0.005]))
    assert model.half_width(100, 500, 0.95) > sure.half_width(100, 500, 0.95)
    assert model.power(100, 500, 0.95, 0.5) < 0.3
    assert sure.power(100, 500, 0.95, 0.5) > 0.99


def test_typical_values_are_those_of_the_experiment() -> None:
    rows = next(one for one in json.loads(RESULTS.read_text())["tables"] if one["name"] == "typical")["rows"]
    by_run = {row["run"]: row for row in rows}
    for measure, values in TYPICAL.items():
        for place, n_labels in enumerate(LABELS):
            row = by_run[f"{measure}, {n_labels} labels per document"]
            stored = [values.sd, values.documents, values.by_query[place], *values.by_document[place]]
            names = ["sd", "documents", "by query", *(f"by document, {one:.0%}" for one in TYPICAL_SHARES)]
            assert stored == pytest.approx([row[name] for name in names], rel=0.006)


def test_the_share_of_a_variance_model_inverts_its_error() -> None:
    model = VarianceModel(0.04, 0.01)
    assert model.share(50, model.error(50, 0.3)) == pytest.approx(0.3)
    assert np.isnan(model.share(50, 0.02))


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [
        ({}, "half_width"),
        ({"half_width": 0}, "half_width"),
        ({"difference": float("nan")}, "difference"),
        ({"budget": -1}, "budget"),
        ({"half_width": 0.1, "power": 1.0}, "power"),
        ({"half_width": 0.1, "level": 0.0}, "level"),
        ({"half_width": 0.1, "queries": 3}, "queries"),
        ({"half_width": 0.1, "expert_price": -1}, "expert_price"),
        ({"half_width": 0.1, "label_price": float("inf")}, "label_price"),
        ({"half_width": 0.1, "labels_per_document": (1, 0)}, "labels_per_document"),
        ({"half_width": 0.1, "labels_per_document": ()}, "labels_per_document"),
    ],
)
def test_invalid_arguments_are_named(wrong: dict[str, Any], parameter: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(WORLD.runs, WORLD.labels, **wrong)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"labels": WORLD.labels}, "incomplete-pilot"),
        ({"expert": WORLD.truth}, "incomplete-pilot"),
        ({"runs": WORLD.runs}, "incomplete-pilot"),
        ({}, "queries-unknown"),
        ({"queries": 100, "measure": "RR"}, "measure-not-typical"),
        ({"runs": {"a": WORLD.runs["new"]}, "labels": WORLD.labels}, "not-two-runs"),
    ],
)
def test_plans_without_a_complete_pilot_say_what_is_missing(more: dict[str, Any], kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**more, half_width=0.1)
    assert caught.value.kind == kind


def test_pilots_without_differences_are_refused() -> None:
    equal = {"a": WORLD.runs["new"], "b": WORLD.runs["new"]}
    for expert in (None, WORLD.expert(20)):
        with pytest.raises(InputError) as caught:
            plan(equal, WORLD.labels, expert, half_width=0.1)
        assert caught.value.kind == "no-difference"
    few = {"a": WORLD.runs["new"], "b": WORLD.runs["new"].copy()}
    few["b"].loc[few["b"]["query"] == "q50", "score"] *= -1
    with pytest.raises(InputError) as caught:
        plan(few, WORLD.labels, WORLD.expert(20), half_width=0.1)
    assert caught.value.kind == "pilot-too-small"


def test_the_command_prints_the_same_plan_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, run in WORLD.runs.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    WORLD.labels.to_parquet(tmp_path / "consensus.parquet")
    WORLD.expert(20).to_csv(tmp_path / "pilot.csv", index=False)
    monkeypatch.chdir(tmp_path)
    words = ["plan", "live.csv", "new.csv", "--labels", "consensus.parquet", "--expert", "pilot.csv"]
    words += ["--half-width", "0.05", "--queries", "300", "--label-price", "0.01", "--labels-per-document", "1,3"]
    result = planned(half_width=0.05, labels_per_document=(1, 3), **CHEAP)
    printed = CliRunner().invoke(app, [*words, "--json"])
    found, wanted = json.loads(printed.stdout), result.to_dict()
    assert [one["cost"] for one in found["options"]] == pytest.approx([one["cost"] for one in wanted["options"]])
    assert {**found, "options": []} == {**wanted, "options": []}
    assert CliRunner().invoke(app, [*words, "--markdown"]).stdout == result.markdown()
    shown = CliRunner().invoke(app, words)
    assert result.reason() in shown.stdout
    assert "best" in shown.stdout
    assert result.table["best"].tolist() == [place == 0 for place in range(len(result.options))]


def test_bad_input_of_the_command_is_an_error() -> None:
    for words in (["--half-width", "0.1"], ["--budget", "9", "--queries", "50", "--labels-per-document", "1,x"]):
        done = CliRunner().invoke(app, ["plan", *words])
        assert isinstance(done.exception, UsageError)
        assert done.stdout == ""


def test_a_small_pilot_is_a_warning() -> None:
    with pytest.warns(DataWarning, match="below 20"):
        planned(expert=WORLD.expert(10), half_width=0.1)
    drawn = WORLD.truth.sample(99, random_state=0).assign(probability=0.2, draw=1)
    with pytest.warns(DataWarning, match="below 100"):
        planned(expert=drawn, half_width=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_plan_says_what_is_missing_and_has_no_equal_rows() -> None:
    weak = planned(difference=0.005)
    assert {row[""] for row in weak.rows()} == {"too little power"}
    assert weak.reason().count(":") == 1
    assert {row[""] for row in planned(half_width=0.0001).rows()} == {"too wide"}
    for result in (weak, planned(half_width=0.0001, labels_per_document=(1, 3))):
        kinds = {(one.queries, one.expert_grades, one.cost, round(one.half_width, 6)) for one in result.options}
        assert len(kinds) == len(result.options)


def test_messages_of_the_command_do_not_name_none() -> None:
    done = CliRunner().invoke(app, ["plan", "--half-width", "-1", "--queries", "100"])
    assert isinstance(done.exception, UsageError)
    assert "None" not in str(done.exception)
