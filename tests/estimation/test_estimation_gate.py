"""Test the decision whether a new ranking may replace the live one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimation_worlds import World, make_world
from typer.testing import CliRunner, Result

import crowdrank
from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns
from crowdrank.errors import InputError, UsageError, option_parameter
from crowdrank.estimation.by_query import ContrastEstimate
from crowdrank.estimation.forecast import forecast_grades
from crowdrank.estimation.gate import GateResult, gate

WORLD = make_world(150)
LIVE, NEW = WORLD.runs["live"], WORLD.runs["new"]


def draw(world: World, runs: dict[str, pd.DataFrame], budget: int, seed: int = 0) -> pd.DataFrame:
    """Return expert grades of documents drawn by the policy `compare`."""
    policy = CompareRuns(runs, world.labels, random_state=seed)
    frame: pd.DataFrame = policy.next(world.truth[["query", "document"]], budget=budget).frame
    return frame.merge(world.truth, on=["query", "document"])


@pytest.mark.parametrize("by_document", [False, True])
def test_a_better_ranking_passes_and_a_worse_one_does_not(by_document: bool) -> None:
    expert = draw(WORLD, {"live": LIVE, "new": NEW}, 400) if by_document else WORLD.expert(60)
    better, worse = gate(NEW, LIVE, WORLD.labels, expert), gate(LIVE, NEW, WORLD.labels, expert)
    assert (better.decision, better.exit_code) == ("pass", 0)
    assert (worse.decision, worse.exit_code) == ("worse", 1)
    assert better.forecast is None
    table = crowdrank.estimate({"live": LIVE, "new": NEW}, WORLD.labels, expert).table
    assert better.difference.value == table["difference"][1]
    assert (better.difference.lower, better.difference.upper) == (
        table["difference_lower"][1],
        table["difference_upper"][1],
    )


def test_equal_rankings_pass_without_evidence() -> None:
    other_scores = LIVE.assign(score=2 * LIVE["score"])
    for expert in (WORLD.expert(8), draw(WORLD, {"live": LIVE, "new": LIVE}, 20)):
        result = gate(other_scores, LIVE, WORLD.labels, expert, margin=0)
        assert (result.decision, result.n_changed, result.changed) == ("pass", 0, ())


@pytest.mark.parametrize("by_document", [False, True])
def test_what_would_suffice_is_right_on_average(by_document: bool) -> None:
    world, ratios = make_world(400, seed=3), []
    live = world.runs["live"]
    noise = np.random.default_rng(0).normal(0, 0.5, len(live))
    runs = {"live": live, "new": live.assign(score=live["score"] + noise)}
    queries = world.truth["query"].unique()

    def decide(n_grades: int, seed: int) -> GateResult:
        chosen = np.random.default_rng(seed).permutation(queries)[: round(n_grades / 12)]
        expert = draw(world, runs, n_grades, seed) if by_document else world.truth[world.truth["query"].isin(chosen)]
        return gate(runs["new"], runs["live"], world.labels, expert, margin=0.001)

    for seed in range(6):
        first = decide(300, seed)
        if seed == 0:
            assert (first.decision, first.exit_code) == ("undecided", 3)
            assert first.forecast is not None
        wanted = (first.difference.upper - first.difference.lower) / 2 * 0.7
        forecast = forecast_grades(first.difference, wanted, n_grades=300, n_possible=4800, n_queries=400)
        assert forecast.grades is not None
        later = decide(forecast.grades, seed).difference
        ratios.append((later.upper - later.lower) / 2 / wanted)
    assert np.mean(ratios) == pytest.approx(1, abs=0.15)


def test_forecasts_follow_the_parts_of_the_variance() -> None:
    def estimate(query_error: float) -> ContrastEstimate:
        return ContrastEstimate(0.0, -0.2, 0.2, 1.0, 0.0, error=0.1, query_error=query_error)

    counts = {"n_grades": 100, "n_possible": 10**9, "n_queries": 50}
    assert forecast_grades(estimate(0.0), 0.1, **counts).grades == pytest.approx(400, abs=1)
    half = forecast_grades(estimate(0.04), 0.1, **counts)
    assert half.grades == pytest.approx(100 * (0.01 - 0.0016) / (0.0025 - 0.0016), abs=2)
    never = forecast_grades(estimate(0.06), 0.1, **counts)
    assert (never.grades, never.queries) == (None, 72)
    few = forecast_grades(estimate(0.0), 0.02, **{**counts, "n_possible": 1000})
    assert few.grades is not None
    assert 900 <= few.grades <= 1000


def test_a_bound_falls_with_the_number_of_grades() -> None:
    few = ContrastEstimate(0.0, -0.2, 0.2, 1.0, 0.0, error=0.001, query_error=0.001, is_bound=True)
    assert forecast_grades(few, 0.1, n_grades=100, n_possible=1000, n_queries=50).grades == 200
    assert forecast_grades(few, 0.01, n_grades=100, n_possible=1000, n_queries=50).queries == 100


def test_an_interval_that_is_a_bound_is_explained() -> None:
    changed = LIVE["query"].isin(LIVE["query"].unique()[:12:4])
    new = LIVE.assign(score=np.where(changed, -LIVE["score"], LIVE["score"]))
    result = gate(new, LIVE, WORLD.labels, WORLD.expert(60))
    (sentence,) = [one for one in result.estimate.protocol() if "rare queries" in one]
    assert "fewer than 4" in sentence
    assert result.difference.is_bound
    assert np.isnan(result.estimate.table["difference_worth"][1])
    assert not any("rare queries" in one for one in gate(NEW, LIVE, WORLD.labels, WORLD.expert(60)).estimate.protocol())


@pytest.mark.filterwarnings("ignore")
def test_markdown_has_no_empty_section_and_names_options() -> None:
    result = gate(NEW, LIVE, WORLD.labels, n_changed=0)
    assert "Queries that changed" not in result.markdown()
    assert "Holm" not in result.markdown()
    assert "give it with --expert" in result.markdown(write_message=lambda one: one.render(option_parameter))
    assert "Queries that changed" in gate(NEW, LIVE, WORLD.labels, n_changed=1).markdown()


def test_error_rates_of_the_gate_are_at_most_half_of_the_level() -> None:
    """A ranking that is worse by exactly the margin passes rarely."""
    rng, world = np.random.default_rng(1), make_world(3000, seed=5)
    values = {name: crowdrank.evaluate(run, world.truth, "nDCG@5", no_relevant="zero") for name, run in
              world.runs.items()}  # fmt: skip
    loss = values["new"].means["nDCG@5"] - values["live"].means["nDCG@5"]
    queries = world.truth["query"].unique()
    passed = 0
    for _ in range(100):
        chosen = set(rng.choice(queries, 60, replace=False))
        parts = [frame[frame["query"].isin(chosen)] for frame in (*world.runs.values(), world.labels, world.truth)]
        expert = parts[3][parts[3]["query"].isin(set(sorted(chosen)[:30]))]
        result = gate(parts[0], parts[1], parts[2], expert, margin=loss, measure="nDCG@5", n_changed=0)
        passed += result.decision == "pass"
    assert passed <= 7


def test_a_ranking_with_fewer_labels_is_not_called_worse() -> None:
    hidden = NEW.sort_values("score", ascending=False).groupby("query").head(3)[["query", "document"]]
    labels = WORLD.labels.merge(hidden, on=["query", "document"], how="left", indicator=True)
    labels = labels[labels["_merge"] == "left_only"].drop(columns="_merge")
    with pytest.warns(crowdrank.errors.DataWarning):
        result = gate(NEW, LIVE, labels, margin=0, measure="nDCG@3")
    assert result.difference.upper < 0
    assert result.decision == "undecided"
    assert "fewer-labels" in [warning.kind for warning in result.warnings]


def test_changed_queries_are_listed_with_what_entered_and_left() -> None:
    result = gate(NEW, LIVE, WORLD.labels, WORLD.expert(60), measure="nDCG@3", n_changed=5)
    changes = [abs(one.new - one.live) for one in result.changed]
    assert len(changes) == 5
    assert changes == sorted(changes, reverse=True)
    first = result.changed[0]
    tops = [set(run[run["query"] == first.query].nlargest(3, "score")["document"]) for run in (NEW, LIVE)]
    assert set(first.entered) == tops[0] - tops[1]
    assert set(first.left) == tops[1] - tops[0]
    graded = set(WORLD.expert(60)["query"])
    assert all((one.expert_difference == one.expert_difference) == (one.query in graded) for one in result.changed)


@pytest.mark.parametrize("wrong", [{"margin": -0.1}, {"margin": float("nan")}, {"level": 1.0}, {"n_changed": -1}])
def test_invalid_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        gate(NEW, LIVE, WORLD.labels, **wrong)
    assert caught.value.parameter == next(iter(wrong))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, run in WORLD.runs.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    WORLD.labels.to_parquet(tmp_path / "consensus.parquet")
    WORLD.expert(60).to_csv(tmp_path / "sample.csv", index=False)
    texts = WORLD.truth[["query"]].drop_duplicates().assign(query_text=lambda rows: "<b>" + rows["query"] + "|")
    texts.to_csv(tmp_path / "texts.csv", index=False)
    return tmp_path


def invoke(folder: Path, new: str, live: str, *words: str) -> Result:
    files = [str(folder / new), "--against", str(folder / live), "--labels", str(folder / "consensus.parquet")]
    return CliRunner().invoke(app, ["gate", *files, *words])


@pytest.mark.parametrize(
    ("new", "live", "words", "code"),
    [
        ("new.csv", "live.csv", ["--expert", "sample.csv"], 0),
        ("live.csv", "new.csv", ["--expert", "sample.csv"], 1),
        ("live.csv", "new.csv", ["--expert", "sample.csv", "--level", "0.9999999"], 3),
    ],
)
def test_the_command_exits_with_the_decision(
    new: str, live: str, words: list[str], code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = invoke(folder, new, live, *words, "--texts", "texts.csv")
    assert done.exit_code == code, done.output
    assert done.stdout.startswith("## ")
    assert "&#60;b&#62;q" in done.stdout
    assert "| judged@10 |" in done.stdout
    printed = invoke(folder, new, live, *words, "--texts", "texts.csv", "--json")
    result = json.loads(printed.stdout)
    assert (result["exit_code"], printed.exit_code) == (code, code)
    assert result["changed"][0]["text"] == f"<b>{result['changed'][0]['query']}|"
    assert (result["forecast"] is None) == (code != 3)


def test_bad_input_of_the_command_is_an_error_of_one_line(folder: Path) -> None:
    WORLD.truth.sample(frac=0.3, random_state=1).to_csv(folder / "picked.csv", index=False)
    done = invoke(folder, "new.csv", "live.csv", "--expert", str(folder / "picked.csv"))
    assert isinstance(done.exception, InputError)
    assert done.exception.kind == "unknown-probabilities"
    assert done.stdout == ""
    missing = invoke(folder, "none.csv", "live.csv")
    assert isinstance(missing.exception, InputError)


def test_labels_that_used_features_need_experts(folder: Path) -> None:
    WORLD.labels.assign(prior_relevance=0.0).to_parquet(folder / "consensus.parquet")
    done = invoke(folder, "new.csv", "live.csv")
    assert isinstance(done.exception, UsageError)
    assert done.exception.kind == "features-used"
    assert done.stdout == ""
