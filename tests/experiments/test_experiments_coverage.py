"""Test the experiments on looks and on the coverage of estimates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crowdrank
from crowdrank.errors import UsageError
from crowdrank.evaluation.measures import parse_measure
from experiments import estimate_coverage, looks, plan
from experiments.__main__ import app


def test_bounds_keep_the_type_i_error_and_save_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "N_WORLDS", 150)
    monkeypatch.setattr(looks, "LOOKS", (1, 5))
    (table,) = looks.experiment(seeds=(0,)).tables
    once, five = table.row("1 looks, no difference"), table.row("5 looks, no difference")
    assert once["peeking"] == once["O'Brien-Fleming"]
    assert once["expected grades"] == 1
    assert five["peeking"] > five["O'Brien-Fleming"]
    assert five["O'Brien-Fleming"] <= 0.1
    better = table.row("5 looks, difference")
    assert better["O'Brien-Fleming"] > 0.5
    assert better["expected grades"] < 1


def test_the_grid_has_only_possible_cells_with_different_names() -> None:
    for unit, measure in estimate_coverage.PARTS.values():
        cells = list(estimate_coverage.cells(unit, measure, quick=False))
        assert len({cell.name for cell in cells}) == len(cells)
        assert {cell.budget for cell in cells} <= set(estimate_coverage.BUDGETS)
        assert {cell.world.share for cell in cells} == set(estimate_coverage.SHARES)
        assert {cell.world.scale for cell in cells} == {"graded", "binary"}


@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "RR", "ERR@10", "P@10"])
def test_the_grid_has_the_estimates_of_crowdrank(measure: str) -> None:
    world = estimate_coverage.World("graded", "good", "better", 0.5)
    frames = estimate_coverage.make_world(world, 30, np.random.default_rng([estimate_coverage.SEED, 7]))
    whole = estimate_coverage.Population(world, 30, frames).part(5, 30)
    frames = {name: frame[frame["query"] >= 5] for name, frame in frames.items()}
    runs, parsed = {name: frames[name] for name in ("live", "new")}, parse_measure(measure)
    replicate = estimate_coverage.ByQueryReplicate(
        whole.label_values(parsed), whole.expert_values(parsed), whole.equal_rankings(parsed)
    )
    cell = estimate_coverage.Cell("query", measure, world, 25, 120)
    estimator, _ = replicate.estimate(cell)
    expert = frames["truth"][frames["truth"]["query"] < 5 + cell.n_graded]
    table = crowdrank.estimate(runs, frames["labels"], expert, measure=measure).table
    for place, run in enumerate(np.eye(2)):
        found = estimator.estimate(run, 0.95).clipped(0, 1)
        assert table.loc[place, ["estimate", "lower", "upper"]].tolist() == pytest.approx(
            [found.value, found.lower, found.upper]
        )
    assert estimator.estimate(estimate_coverage.DIFFERENCE, 0.95).p == pytest.approx(table["p"][1])


def test_cells_in_which_a_goal_cannot_be_reached_say_why() -> None:
    world = estimate_coverage.World("graded", "good", "equal", 0.2)
    few, many = (estimate_coverage.Cell("query", "AP", world, 150, budget) for budget in (50, 1000))
    assert few.limits(0.2, float("nan")) == "few queries, few differences"
    assert many.limits(0.2, float("nan")) == ""
    document = estimate_coverage.Cell("document", "P@10", world, 150, 300)
    assert document.limits(0.2, 0.9) == "weak labels"


@pytest.mark.parametrize("unit", ["query", "document"])
def test_a_kept_cell_is_not_simulated_again(unit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(estimate_coverage, "N_QUICK", 12)
    words = ["estimate-coverage", "--quick", "--only", f"{unit}-nDCG", "--keep", str(tmp_path), "--json"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    goals, worst, table = json.loads(first.stdout)["tables"]
    assert goals["rows"][0]["cells"] == len(table["rows"]) == 4
    assert {row["cell"] for row in worst["rows"]} <= {row["run"] for row in table["rows"]}
    assert all(row["wrong"] == 0 and row["difference"] >= 0.6 for row in table["rows"])
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(estimate_coverage, "simulate", lambda *_: pytest.fail("simulated again"))
    assert json.loads(CliRunner().invoke(app, words).stdout)["tables"] == [goals, worst, table]


def test_quick_is_for_some_experiments() -> None:
    done = CliRunner().invoke(app, ["rf10", "--quick"])
    assert isinstance(done.exception, UsageError)


def test_plans_of_simulated_worlds_are_near_realized_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "N_REPLICATES", 3)
    monkeypatch.setattr(plan, "WORLDS", {"good labels": ("good", 1.0, 40)})
    monkeypatch.setattr(plan, "BUDGETS", {"simulated": ((50,), (300,))})
    (table,) = plan.experiment(only=["simulated"]).tables
    assert [row["run"].split(", ")[-1] for row in table.rows] == ["50 expert queries", "300 grades", "from documents"]
    assert all(0.6 < row["ratio"] < 1.6 and row["worth"] > 0 for row in table.rows)


def test_stored_plans_are_within_15_percent_of_realized_intervals() -> None:
    stored = json.loads((Path(__file__).parents[2] / "docs" / "results" / "plan.json").read_text())
    tables = {table["name"]: table["rows"] for table in stored["tables"]}
    ratios = {row["run"]: row["ratio"] for name in ("simulated", "dl20") for row in tables[name]}
    assert len(ratios) > 30
    missed = {run: ratio for run, ratio in ratios.items() if not 0.85 <= ratio <= 1.15}
    assert set(missed) == {"few queries differ: by query, 50 expert queries"}  # the page of plans says so
    assert max(missed.values()) < 1.2
    errors = [row["error"] for row in tables["simulated"] if "20 expert queries" in row["run"]]
    assert min(errors) > 0.25


def test_the_stored_grid_reaches_most_goals_and_has_no_wrong_table() -> None:
    stored = json.loads((Path(__file__).parents[2] / "docs" / "results" / "estimate-coverage.json").read_text())
    goals = {row["run"]: row for row in stored["tables"][0]["rows"]}
    assert sum(row["cells"] for row in goals.values()) == 1284
    assert all(row["wrong"] == 1 and row["RMSE"] > 0.9 for row in goals.values())
    lowest = {
        "by query, good labels": {"systems": 0.9, "difference": 0.95, "type I": 1.0},
        "by document, good labels": {"systems": 0.8, "difference": 0.7, "good RMSE": 0.85},
    }
    assert all(goals[run][goal] >= share for run, shares in lowest.items() for goal, share in shares.items())
    worst = {row["run"]: row for row in stored["tables"][1]["rows"]}["by document, difference"]
    assert (worst["cell"], worst["value"]) == ("document-P@10-binary-good-better-0.2-50-300", 0.818)
    few = [row for table in stored["tables"] for row in table["rows"] if row["run"].endswith("-20")]
    open_cells = [row for row in few if not row.get("limited")]
    assert sum(row["live"] + row["new"] for row in open_cells) / (2 * len(open_cells)) < 0.95
    assert sum(row["difference"] for row in open_cells) / len(open_cells) > 0.96
