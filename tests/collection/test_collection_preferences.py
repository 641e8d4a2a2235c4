"""Requests of preferences, and batches of preferences that are added to a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank import GDA, Budget, Pool, read_judgments, read_preferences
from crowdrank.cli.app import app
from crowdrank.collection.pool import Roster
from crowdrank.collection.preference_batches import add_batches
from crowdrank.collection.preference_pairs import PreferencePairs, _Answerer, _QueryPairs
from crowdrank.collection.preference_requests import PreferenceRequestList
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.errors import CrowdrankError
from experiments.preferences import draw_world

SETTLED_ROWS = {"query": "q", "left": ["a"] * 30, "right": ["b"] * 30, "preference": [-1] * 30}


@pytest.fixture(scope="module")
def world() -> tuple[pd.DataFrame, Any, Any, GDA]:
    """Return pool, judgments, preferences and fitted model of a simulated world."""
    _, labels, answers = draw_world(0)
    frames = [frame.astype(dict.fromkeys(frame.columns[:-1], str)) for frame in (labels.frame, answers.frame)]
    judgments, preferences = read_judgments(frames[0]), read_preferences(frames[1], repeats="keep")
    rows = [(str(query), str(document)) for query in range(30) for document in range(10)]
    model = GDA().fit(judgments, preferences=preferences)
    return pd.DataFrame(rows, columns=["query", "document"]), judgments, preferences, model


def pairs_of(table: Any) -> list[tuple[str, frozenset[str]]]:
    return [(row["query"], frozenset((row["left"], row["right"]))) for row in table.to_pylist()]


def test_an_answer_reduces_the_covariance_as_bayes_rule_does(world: Any) -> None:
    joint = PairProbabilities.from_model(world[3])
    query = _QueryPairs.of(np.arange(10), joint, np.arange(10), 10)
    before = query.covariance.copy()
    assert np.abs(before - np.diag(np.diagonal(before))).max() > 0.01  # preferences connect documents
    contrast = np.zeros(10)
    contrast[query.left[3]], contrast[query.right[3]] = 1.0, -1.0
    query.observe(3, 0.7)
    expected = np.linalg.inv(np.linalg.inv(before) + 0.7 * np.outer(contrast, contrast))
    assert query.covariance == pytest.approx(expected, abs=1e-9)
    assert not query.is_open[3]


def test_the_budget_is_spent_on_distinct_pairs_of_one_query(world: Any) -> None:
    pool, judgments, preferences, model = world
    requests = PreferencePairs(5).next(pool, judgments, preferences, model, Budget(50, {"human": 2.0}))
    assert (len(requests), requests.cost, requests.unspent) == (25, 50.0, None)
    keys = pairs_of(requests.table)
    assert len(set(keys)) == 25
    assert all(len(pair) == 2 for _, pair in keys)


def test_pairs_are_uncertain_and_at_the_top(world: Any) -> None:
    pool, judgments, preferences, model = world
    table = model.consensus_.document_table.to_pandas()
    rank = table.groupby("query")["relevance"].rank(ascending=False)
    place = dict(zip(zip(table["query"], table["document"], strict=True), rank, strict=True))
    relevance = dict(zip(zip(table["query"], table["document"], strict=True), table["relevance"], strict=True))
    rows = PreferencePairs(3).next(pool, judgments, preferences, model, 40).table.to_pylist()
    best = [min(place[row["query"], row["left"]], place[row["query"], row["right"]]) for row in rows]
    assert np.mean(np.array(best) <= 3) > 0.8  # of random pairs 53%
    gaps = [abs(relevance[row["query"], row["left"]] - relevance[row["query"], row["right"]]) for row in rows]
    everything = table.groupby("query")["relevance"].apply(lambda one: one.diff().abs().mean())
    assert np.mean(gaps) < 0.6 * everything.mean()


def test_sides_are_random_and_reproducible(world: Any) -> None:
    pool, judgments, preferences, model = world
    tables = [
        PreferencePairs(random_state=seed).next(pool, judgments, preferences, model, 200).table for seed in (1, 1, 2)
    ]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])
    assert pairs_of(tables[0]) == pairs_of(tables[2])
    is_left = [int(row["left"]) < int(row["right"]) for row in tables[0].to_pylist()]
    assert 0.35 < np.mean(is_left) < 0.65


def test_settled_pairs_are_not_requested_and_the_rest_is_explained() -> None:
    pool = pd.DataFrame({"query": "q", "document": ["a", "b"]})
    rows = pd.DataFrame({**SETTLED_ROWS, "assessor": [f"x{n}" for n in range(30)]})
    requests = PreferencePairs(1).next(pool, preferences=rows, budget=5)
    assert len(requests) == 0
    assert requests.unspent is not None
    assert (requests.unspent.reason, requests.unspent.money) == ("nothing-wanted", 5)
    assert dict(requests.unspent.pairs) == {"settled": 1}


def test_a_price_above_the_budget_is_the_reason() -> None:
    pool = pd.DataFrame({"query": "q", "document": ["a", "b", "c"]})
    requests = PreferencePairs(1).next(pool, budget=Budget(2.5, {"human": 1.0}))
    assert requests.unspent is not None
    assert (len(requests), requests.unspent.reason, requests.unspent.money) == (2, "price", 0.5)


def test_outstanding_pairs_wait(world: Any) -> None:
    pool, judgments, preferences, model = world
    policy = PreferencePairs(5)
    first = policy.next(pool, judgments, preferences, model, 20)
    listed = PreferenceRequestList.of(first, preferences)
    assert listed.is_outstanding(preferences).all()
    second = policy.next(pool, judgments, preferences, model, 20, listed)
    assert not set(pairs_of(first.table)) & set(pairs_of(second.table))
    answer = first.table.to_pylist()[0]
    rows = preferences.frame.to_dict("records")
    rows.append({**{name: answer[name] for name in ("query", "left", "right")}, "assessor": "new", "preference": 1})
    assert listed.is_outstanding(read_preferences(pd.DataFrame(rows), repeats="keep")).sum() == 19


def test_assessors_by_information_per_price_and_each_pair_once(world: Any) -> None:
    pool, judgments, preferences, model = world
    table = model.consensus_.assessor_table.to_pandas().dropna(subset=["sharpness"]).sort_values("sharpness")
    dull, sharp = table["assessor"].iloc[0], table["assessor"].iloc[-1]
    read = Pool.read(pool).with_roster(Roster.of([dull, sharp], prices=1.0))
    requests = PreferencePairs(5).next(read, judgments, preferences, model, Budget(30, most=None))
    counts = requests.frame["assessor"].value_counts()
    assert counts.get(sharp, 0) > counts.get(dull, 0)
    done = {(q, frozenset((left, right)), a) for q, left, right, a in _named(preferences)}
    assert not done & {
        (*key, name) for key, name in zip(pairs_of(requests.table), requests.frame["assessor"], strict=True)
    }
    limited = PreferencePairs(5).next(read, judgments, None, model, Budget(30, most=3))
    assert limited.frame["assessor"].value_counts().max() <= 3
    assert limited.unspent is not None
    assert limited.unspent.reason == "nobody-left"


def _named(preferences: Any) -> list[tuple[str, str, str, str]]:
    table = preferences.to_arrow().select(["query", "left", "right", "assessor"])
    return [tuple(map(str, row.values())) for row in table.to_pylist()]  # type: ignore[misc]


def test_information_is_that_of_a_simulation() -> None:
    answerer = _Answerer(np.array([0.4, 0.2, np.log(0.5), np.log(1.5)]), np.array([True, True, True, True]))
    information, fisher = answerer.information(np.array([0.3, 3.0]), np.array([0.8, 0.2]))
    rng, x = np.random.default_rng(0), np.array([0.3, 0.8])
    d = rng.normal(x[0], x[1], 200_000)
    cuts = np.array([-2.0, -0.5, 0.5, 2.0])
    below = 1 / (1 + np.exp(np.exp(0.4) * d[:, None] + 0.2 - cuts))
    p = np.diff(np.concatenate([np.zeros((len(d), 1)), below, np.ones((len(d), 1))], axis=1), axis=1)
    mean = p.mean(axis=0)
    expected = -(mean * np.log(mean)).sum() + (p * np.log(p)).sum(axis=1).mean()
    assert information[0] == pytest.approx(expected, abs=0.003)
    assert information[1] < information[0] / 5  # nothing to learn from a certain order
    assert (fisher > 0).all()


# The commands.


def run(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["collect", *map(str, words), "--json"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def refusal(*words: object) -> CrowdrankError:
    with pytest.raises(CrowdrankError) as problem:
        CliRunner().invoke(app, ["collect", *map(str, words)], catch_exceptions=False)
    return problem.value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("pool.csv").write_text("query,document\nq,a\nq,b\nq,c\nr,a\nr,b\n")
    Path("labels.csv").write_text("query,document,assessor,grade\nq,a,x,2\nq,b,x,2\nq,c,x,0\nr,a,x,1\nr,b,x,0\n")
    return tmp_path


NEXT = ("next", "labels.csv", "--pairs", "pool.csv", "-p", "preferences", "--preferences", "prefs.csv")


def test_a_round_from_requests_to_answers(folder: Path) -> None:
    printed = run(*NEXT, "--budget", 2, "-o", "ask.csv")
    assert (printed["requests"], printed["cost"], printed["list"]) == (2, 2.0, "prefs.requests.csv")
    asked = pd.read_csv("ask.csv")
    assert {"query", "left", "right", "assessor", "kind", "price", "reason"} == set(asked)
    again = run(*NEXT, "--budget", 9)
    assert again["out"] == 2
    assert again["requests"] + 2 <= 4
    assert again["unspent"][0]["pairs"]["outstanding"] == 2
    asked.assign(assessor="ann", preference=-1, cost=0.1).to_csv("answers.csv", index=False)
    added = run("add", "prefs.csv", "answers.csv", "--pairs", "pool.csv")
    assert (added["preferences"], added["came_back"], added["out"]) == (2, 2, 0)
    assert read_preferences("prefs.csv").answer_counts() == {-1: 2}
    assert pd.read_csv("prefs.csv")["cost"].tolist() == [0.1, 0.1]
    assert run(*NEXT, "--budget", 1, "--again", "-o", "ask2.csv")["out"] == 0


def test_adding_keeps_bytes_and_counts_changes(folder: Path) -> None:
    before = b"query,worker,left,right,preference,remark\r\nq,ann,a,b,left,'sure'\r\nq,bob,a,b,1,"
    Path("prefs.csv").write_bytes(before)
    Path("new.csv").write_text("query,left,right,assessor,preference\nq,a,b,ann,-1\nq,a,b,bob,0\nq,b,a,ann,1\n")
    added = run("add", "prefs.csv", "new.csv")["batches"][0]
    assert (added["added"], added["changed"], added["known"]) == (1, 1, 1)
    after = Path("prefs.csv").read_bytes()
    assert after == before + b"\r\nq,bob,a,b,0,\r\nq,ann,b,a,1,\r\n"
    assert read_preferences("prefs.csv").answer_counts() == {-1: 1, 0: 1, 1: 1}
    assert run("add", "prefs.csv", "new.csv")["output"] is None
    assert Path("prefs.csv").read_bytes() == after


def test_the_better_of_two_documents_is_added_by_its_name(folder: Path) -> None:
    """The id of the winner and the word for its side are the same answer."""
    Path("prefs.csv").write_text("query,left,right,winner,assessor\nq,a,b,a,x\nq,a,c,,x\n")
    Path("new.csv").write_text("query,left,right,winner,assessor\nq,a,b,left,x\nq,a,c,c,x\nq,b,c,tie,x\n")
    added = run("add", "prefs.csv", "new.csv")["batches"][0]
    assert (added["added"], added["changed"], added["known"]) == (1, 1, 1)
    table = read_preferences("prefs.csv").to_arrow().to_pylist()
    answers = {(row["left"], row["right"]): row["preference"] for row in table}
    assert answers == {("a", "b"): -1, ("a", "c"): 1, ("b", "c"): 0}


def test_json_lines_and_compressed_files_are_appended_to(folder: Path) -> None:
    row = {"query": "q", "left": "a", "right": "b", "assessor": "x", "preference": -1}
    Path("prefs.jsonl").write_text(json.dumps(row))
    Path("new.csv").write_text("query,left,right,assessor,preference,cost\nq,c,b,ann,-1,2\n")
    run("add", "prefs.jsonl", "new.csv")
    lines = Path("prefs.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == row
    assert json.loads(lines[1])["cost"] in (2, "2")
    run("add", "prefs.csv.gz", "new.csv")
    assert gzip.decompress(Path("prefs.csv.gz").read_bytes()).startswith(b"query,left,right")
    assert len(read_preferences("prefs.csv.gz")) == 1
    run("add", "prefs.jsonl", "new.csv", "-o", "all.jsonl")
    assert len(read_preferences("all.jsonl")) == 2


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("query,left,right,assessor,preference\nq,a,z,ann,1\n", "invalid-preferences"),
        ("query,left,right,assessor,preference\nq,a,a,ann,1\n", "same-document"),
        ("query,left,right,assessor,preference\nq,a,b,ann,7\n", "not-a-preference"),
        ("query,left,right,preference\nq,a,b,1\n", "no-assessor"),
        ("query,winner,loser,assessor\nq,a,b,ann\n", "positions-differ"),
        ("query,left,right,winner,assessor\nq,a,b,a,ann\n", "answers-differ"),
    ],
)
def test_bad_batches_leave_the_file(folder: Path, content: str, kind: str) -> None:
    before = "query,left,right,assessor,preference\nq,a,b,x,1\n"
    Path("prefs.csv").write_text(before)
    Path("new.csv").write_text(content)
    assert refusal("add", "prefs.csv", "new.csv", "--pairs", "pool.csv").kind == kind
    assert Path("prefs.csv").read_text() == before


def test_grades_and_preferences_are_not_mixed(folder: Path) -> None:
    Path("new.csv").write_text("query,left,right,assessor,preference\nq,a,b,ann,1\n")
    assert refusal("add", "labels.csv", "new.csv").kind == "is-judgments"
    Path("prefs.csv").write_text("query,left,right,assessor,preference\nq,a,b,x,1\n")
    assert refusal("add", "prefs.csv", "labels.csv").kind == "is-preferences"
    Path("prefs.parquet").write_bytes(b"")
    assert refusal("add", "prefs.parquet", "new.csv").kind == "not-a-table"


def test_options_that_do_not_fit_are_refused(folder: Path) -> None:
    assert refusal(*NEXT[:-2], "--budget", 1).kind == "no-preferences"
    assert refusal(*NEXT, "--budget", 1, "-m", "majority").kind == "no-preferences"
    assert refusal(*NEXT, "--budget", 1, "--honeypots", 0.1).kind == "with-preferences"
    other = [word if word != "preferences" else "entropy" for word in NEXT]
    assert refusal(*other, "--budget", 1).kind == "other-policy"


def test_judgments_can_be_missing(folder: Path) -> None:
    words = ["next", "none.csv", *NEXT[2:]]
    assert run(*words, "--budget", 3)["requests"] == 3
    assert run("next", *NEXT[2:], "--budget", 3)["requests"] == 3
    assert refusal("next", "--pairs", "pool.csv", "--budget", 3).kind == "no-input"
    assert len(read_judgments("labels.csv")) == 5


OWN_NAMES = "left=A,right=B,preference=P,query=T,assessor=W"


def test_own_column_names_of_preferences(folder: Path) -> None:
    Path("prefs.csv").write_text("T,A,B,W,P\nq,a,b,ann,-1\n")
    error = refusal(*NEXT, "--budget", 1)
    assert (error.kind, error.message.fixes[0].parameter) == ("no-column", "preferences_columns")
    assert run(*NEXT, "--budget", 1, "--preferences-columns", OWN_NAMES)["requests"] == 1
    Path("new.csv").write_text("W,T,B,A,P\nbob,q,c,b,1\n")
    error = refusal("add", "prefs.csv", "new.csv", "--columns", OWN_NAMES, "--new-columns", "left=A,right=B")
    assert (error.kind, error.message.fixes[0].parameter) == ("no-column", "new_columns")
    error = refusal("add", "prefs.csv", "new.csv", "--new-columns", OWN_NAMES)
    assert (error.kind, error.message.fixes[0].parameter) == ("no-column", "columns")
    added = run("add", "prefs.csv", "new.csv", "--columns", OWN_NAMES, "--new-columns", OWN_NAMES)
    assert added["batches"][0]["added"] == 1
    assert Path("prefs.csv").read_text() == "T,A,B,W,P\nq,a,b,ann,-1\nq,b,c,bob,1\n"
    assert run("add", "other.csv", "new.csv", "--new-columns", OWN_NAMES)["preferences"] == 1


def test_false_is_no_honeypot(folder: Path) -> None:
    rows = [("q", "a", "False"), ("q", "b", "false"), ("q", "c", ""), ("q", "d", "2")]
    pool = Pool.read(pd.DataFrame(rows, columns=["query", "document", "honeypot"]))
    assert pool.is_honeypot.tolist() == [False, False, False, True]
    assert Pool.read(pd.DataFrame({"document": ["a"], "honeypot": [False]})).is_honeypot.tolist() == [False]
    asked = PreferencePairs(5).next(pool, budget=9).frame
    assert set(asked["left"]) | set(asked["right"]) == {"a", "b", "c"}
    Path("pool.csv").write_text("query,document,honeypot\nq,a,1\nq,b,2\n")
    assert refusal(*NEXT, "--budget", 1).kind == "all-honeypots"


def test_lost_columns_are_those_of_the_user(folder: Path) -> None:
    Path("prefs.csv").write_text("query,left,right,assessor,preference\nq,a,b,x,1\n")
    content = "query,left,right,assessor,kind,price,reason,preference,cost,remark\nq,c,b,ann,human,1,top,1,2,sure\n"
    Path("new.csv").write_text(content)
    added = add_batches(Path("prefs.csv"), [Path("new.csv")], Path("prefs.csv"))
    assert added.lost == ["cost", "remark"]
