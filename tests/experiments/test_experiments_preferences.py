"""The experiment on preferences: its figures and intervals, on small data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from crowdrank import read_judgments, read_preferences
from crowdrank.errors import UsageError
from experiments import preferences
from experiments.base import quiet
from tools.results import FOLDER


def test_runs_score_documents_by_their_own_data() -> None:
    labels = {"query": "q", "document": ["a", "b", "c"] * 2, "assessor": list("xxxyyy"), "grade": [2, 1, 0, 2, 0, 0]}
    rows = {"query": "q", "left": ["c", "b", "c"], "right": ["a", "a", "b"], "assessor": "z", "preference": [-1, -1, 0]}
    scores = preferences.score(
        list(preferences.RUNS), read_judgments(pd.DataFrame(labels)), read_preferences(pd.DataFrame(rows))
    )
    orders = {name: "".join(sorted("abc", key=lambda document: -one["q", document])) for name, one in scores.items()}
    assert orders["grades"] == "abc"
    assert orders["bradley-terry"][-1] == orders["preferences"][-1] == "a"
    assert set(orders) == {*preferences.RUNS}


def test_a_figure_has_an_interval_and_a_paired_difference() -> None:
    ones = pd.Series([1.0, 1.0, 1.0, 1.0])
    runs = {"grades": (pd.Series([0.2, 0.4, 0.6, 0.8]), ones), "both": (pd.Series([0.3, 0.5, 0.7, 0.9]), ones)}
    grades, both = preferences.compare_runs(runs, "Tau")
    assert grades["Tau"] == pytest.approx(0.5)
    assert grades["lower"] < 0.5 < grades["upper"]
    names = ("both minus run", "difference lower", "difference upper")
    assert [grades[name] for name in names] == pytest.approx([0.1] * 3)
    assert np.isnan(both["both minus run"])


def test_tau_and_accuracy_are_those_of_pairs() -> None:
    gold = pd.DataFrame({"query": list("qqqr"), "document": list("abcd"), "grade": [2, 1, 1, 3]})
    taus = preferences.taus(gold, {("q", "a"): 1.0, ("q", "b"): 2.0, ("q", "c"): 0.0})
    assert taus.to_dict() == {"q": 0.0}
    answers = pd.DataFrame({"query": "q", "left": ["a", "a", "b"], "right": ["b", "c", "e"], "preference": [2, 1, -1]})
    scores = {("q", "a"): 1.0, ("q", "b"): 2.0, ("q", "c"): 1.0, ("q", "e"): 0.0}
    assert preferences.correct_answers(answers, scores).tolist() == [1.0, 0.5, 1.0]


def test_coverage_is_measured_on_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferences, "WORLDS", 2)
    table = preferences.coverage_table(quiet)
    assert [row["run"] for row in table.rows] == ["grades", "preferences", "both"]
    assert all(0.88 < row["coverage"] < 0.99 for row in table.rows)


def test_the_page_says_what_was_measured() -> None:
    stored = json.loads((FOLDER / "preferences.json").read_text(encoding="utf-8"))
    tables = {table["name"]: {row["run"]: row for row in table["rows"]} for table in stored["tables"]}
    for name in ("images-10", "dl20"):
        assert tables[name]["preferences"]["difference lower"] > 0
    assert tables["images-10"]["grades"]["difference lower"] > 0
    assert tables["dl20"]["grades"]["difference lower"] < 0 < tables["dl20"]["grades"]["both minus run"]
    assert all(0.93 <= row["coverage"] <= 0.97 for row in tables["coverage"].values())


def test_the_run_with_both_is_needed() -> None:
    with pytest.raises(UsageError):
        preferences.experiment(["grades"])
