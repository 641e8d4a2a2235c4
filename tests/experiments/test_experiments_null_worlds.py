"""Test the experiments on summaries without a difference and on the gate."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank.errors import UsageError
from experiments import estimate, gate, null_worlds
from experiments.estimate import Systems
from tools import results


def test_few_summaries_are_significant_if_no_ranker_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null_worlds, "N_TEST", (12,))
    monkeypatch.setattr(null_worlds, "N_WORLDS", 150)
    (row,) = null_worlds.simulated_table((0,), lambda _: None).rows
    assert row["better or worse"] <= row["significant"] <= 0.1
    assert row["not adjusted"] > row["significant"]
    assert row["not adjusted"] > 0.08


def test_a_run_on_noise_is_a_null_world() -> None:
    significant, verdict, table = null_worlds.run_null_world(1)
    assert {significant, verdict, table} <= {0.0, 1.0}
    assert verdict <= significant


def test_intervals_hold_with_few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null_worlds, "N_TEST", (8, 20))
    monkeypatch.setattr(null_worlds, "N_SAMPLES", 200)
    monkeypatch.setattr(null_worlds, "N_TRUTH", 20_000)
    table = null_worlds.coverage_table((0,), lambda _: None)
    for row in table.rows:
        lowest = 0.8 if row["run"].startswith("skewed") else 0.89
        assert all(value >= lowest for name, value in row.items() if name != "run"), row
    with pytest.raises(UsageError):
        null_worlds.experiment(["gda"])


def systems() -> Systems:
    """Return two pairs of systems with a known difference, whose labels are right on average."""
    rng, n_queries, n_documents = np.random.default_rng(0), 40, 6
    truth = rng.random((n_queries, n_documents))
    quality = np.array([0.5, 0.5, 0.9, 0.1])
    weight = rng.random((n_queries, n_documents, 4)) + 4 * quality * truth[..., None]
    weight /= weight.sum(axis=1, keepdims=True)
    values = (weight * truth[..., None]).sum(axis=1)
    return Systems(
        labels=values + rng.normal(0, 0.02, values.shape),
        experts=values,
        weight=weight.reshape(-1, 4),
        predicted=(truth + rng.normal(0, 0.1, truth.shape)).ravel(),
        truth=truth.ravel(),
        variance=np.ones(truth.size),
        query=np.repeat(np.arange(n_queries), n_documents),
    )


def test_the_gate_finds_more_with_more_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "load_dl20_systems", lambda: (systems(), 5))
    monkeypatch.setattr(gate, "BUDGETS", (20, 500))
    monkeypatch.setattr(gate, "N_PAIRS", 6)
    monkeypatch.setattr(gate, "N_DRAWS", 3)
    (table,) = gate.experiment(seeds=(0,)).tables
    assert len(table.rows) == 8
    for unit in gate.UNITS:
        few, many = (table.row(f"{budget} grades by {unit}, any pairs") for budget in gate.BUDGETS)
        assert few["false alarms"] <= 0.2
        assert many["misses"] == 0 or np.isnan(many["misses"])
        assert many["not enough"] <= few["not enough"]
    assert "5 LLM judges" in " ".join(gate.experiment(seeds=(0,)).protocol)
    with pytest.raises(UsageError):
        gate.experiment(["gda"])


def test_values_by_document_are_unbiased() -> None:
    known, rng = systems(), np.random.default_rng(1)
    weight = known.weight[:, 2] - known.weight[:, 3]
    rows = [np.flatnonzero(known.query == query) for query in range(known.n_queries)]
    truth = float(np.bincount(known.query, weight * known.truth).mean())
    found = [estimate.values_by_document(known, weight, rows, 60, rng)[0].mean() for _ in range(100)]
    assert np.mean(found) == pytest.approx(truth, abs=3 * np.std(found) / 10)


def stored_rows(name: str, table: str) -> list[dict[str, float]]:
    """Return the rows of a table in docs/results."""
    tables = results.load_results()[name]["tables"]
    return next(one["rows"] for one in tables if one["name"] == table)


def test_few_stored_summaries_are_significant_and_stored_intervals_hold() -> None:
    for row in (*stored_rows("null-worlds", "summaries"), *stored_rows("null-worlds", "runs")):
        assert row["better or worse"] <= row["significant"] <= 0.06
    for row in stored_rows("null-worlds", "coverage"):
        lowest = 0.865 if str(row["run"]).startswith("skewed") else 0.93
        assert all(lowest <= value <= 0.975 for name, value in row.items() if name != "run")
        bounds = (0.875, 0.93) if str(row["run"]).startswith("skewed") else (0.93, 0.96)
        assert bounds[0] <= row["run, compare"] <= bounds[1]


def test_the_gate_was_rarely_wrong_on_public_data() -> None:
    for row in stored_rows("gate", "gate"):
        assert max(row["false alarms"], row["misses"]) <= 0.025
        assert row["not enough"] > 0.5 or "any" in str(row["run"])
