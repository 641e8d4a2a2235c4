"""The experiment on preferences: its figures and intervals, on small data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank import Budget, read_judgments, read_preferences
from crowdrank.errors import UsageError
from experiments import preference_cost, preferences
from experiments.__main__ import app as typer_app
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
    assert preference_cost.predicted(answers, scores).tolist() == [1.0, 0.5, 1.0]


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


def test_money_saved_is_interpolated_between_rounds() -> None:
    random = np.tile(np.array([[0.5], [0.6], [0.7]]), (1, 4))
    table = preference_cost.cost_table(
        "cost", "Cost", {"random-pairs": random, "preferences": random + 0.1, "ndcg@10": random - 0.1}, "Tau", 200.0, ()
    )
    better, worse = table.row("preferences"), table.row("ndcg@10")
    assert table.row("random-pairs")["saved"] == pytest.approx(0.0)
    assert (better["money for the same"], better["saved"]) == (pytest.approx(100.0), pytest.approx(0.5))
    assert (better["minus random"], better["lower"]) == (pytest.approx(0.1), pytest.approx(0.1))
    assert np.isnan(worse["saved"])
    assert worse["saved upper"] == -1.0  # never reached


def test_a_round_costs_the_same_money_in_every_run() -> None:
    for run, n_labels, n_pairs in (("random-pairs", 400, 20), ("preferences", 400, 20), ("ndcg@10", 440, 0)):
        world = preference_cost.World(1)
        world.buy(run, world.fit(), 2.0)
        assert (len(world.labels), len(world.preferences)) == (n_labels, n_pairs)


def test_answers_to_image_pairs_are_given_once_and_never_the_third() -> None:
    rows = [("q", "a", "b", f"answer-{number}", number - 2) for number in (1, 2, 3)]
    shop = preference_cost._ImageAnswers(pd.DataFrame(rows, columns=["query", "left", "right", "answer", "preference"]))
    for _ in range(2):
        shop.buy("random-pairs", None, None, None, Budget(1))  # type: ignore[arg-type]
    assert [row[3] for row in shop.taken] == ["answer-1", "answer-2"]


def test_the_price_is_an_option_of_this_experiment_alone() -> None:
    with pytest.raises(UsageError):
        preferences.experiment(price=0.0)
    done = CliRunner().invoke(typer_app, ["grades", "--price", "2"])
    assert isinstance(done.exception, UsageError)


def test_published_figures_say_what_the_page_says_about_chosen_pairs() -> None:
    record = json.loads((FOLDER / "preferences.json").read_text(encoding="utf-8"))
    tables = {table["name"]: {row["run"]: row for row in table["rows"]} for table in record["tables"]}
    for name in ("cost-images", "cost-images-top", "cost-worlds-top"):
        assert tables[name]["preferences"]["lower"] < 0 < tables[name]["preferences"]["upper"]
    assert tables["cost-worlds"]["preferences"]["upper"] < 0  # random pairs are better for all documents
    at_top = tables["cost-worlds-top"]
    assert at_top["ndcg@10"]["lower"] > 0
    assert at_top["ndcg@10"]["Tau@5"] > at_top["preferences"]["Tau@5"]
