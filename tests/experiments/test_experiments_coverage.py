"""Test the experiments on looks and on the coverage of estimates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdrank.errors import UsageError
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
        assert {cell.share for cell in cells} == set(estimate_coverage.SHARES)
        assert {cell.scale for cell in cells} == {"graded", "binary"}


@pytest.mark.parametrize("unit", ["query", "document"])
def test_a_kept_cell_is_not_simulated_again(unit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(estimate_coverage, "N_QUICK", 12)
    monkeypatch.setattr(estimate_coverage, "N_TRUTH", 2000)
    estimate_coverage.true_values.cache_clear()
    words = ["estimate-coverage", "--quick", "--only", f"{unit}-nDCG", "--keep", str(tmp_path), "--json"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    (table,) = json.loads(first.stdout)["tables"]
    assert all(row["wrong"] == 0 and row["difference"] >= 0.6 for row in table["rows"])
    assert len(list(tmp_path.iterdir())) == len(table["rows"]) == 4
    monkeypatch.setattr(estimate_coverage, "simulate_cell", lambda *_: pytest.fail("simulated again"))
    assert json.loads(CliRunner().invoke(app, words).stdout)["tables"] == [table]


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
    assert {run: ratio for run, ratio in ratios.items() if not 0.85 <= ratio <= 1.15} == {}
    errors = [row["error"] for row in tables["simulated"] if "20 expert queries" in row["run"]]
    assert min(errors) > 0.25
