"""Test the policy that draws documents to compare rankings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import crowdrank
from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.collection.pool import Pool, Roster
from crowdrank.errors import InputError, UsageError
from crowdrank.estimation.by_document import draw_sample, inclusion_probabilities
from crowdrank.evaluation.evaluate import evaluate

RNG = np.random.default_rng(0)
PAIRS = pd.DataFrame({"query": np.repeat([f"q{i}" for i in range(40)], 10), "document": [f"d{i}" for i in range(400)]})
TRUTH = PAIRS.assign(grade=RNG.integers(0, 4, 400))
RUNS = {
    name: PAIRS.assign(score=TRUTH["grade"] + RNG.normal(0, noise, 400)) for name, noise in (("live", 3), ("new", 1.5))
}
SHARES = np.exp(-((np.arange(4) - (TRUTH["grade"].to_numpy() + RNG.normal(0.4, 0.8, 400))[:, None]) ** 2))
SHARES = SHARES / SHARES.sum(axis=1, keepdims=True)
LABELS = PAIRS.assign(grade=SHARES.argmax(axis=1), **{f"p{grade}": SHARES[:, grade] for grade in range(4)})


def test_probabilities_sum_to_the_number_of_draws_and_keep_the_floor() -> None:
    sizes = np.random.default_rng(1).random(300) ** 4
    for n_drawn in (1, 17, 299, 300, 1000):
        probability = inclusion_probabilities(sizes, n_drawn, 0.2)
        assert probability.sum() == pytest.approx(min(n_drawn, 300))
        assert probability.max() <= 1
        assert probability.min() >= 0.2 * min(n_drawn, 300) / 300 - 1e-12
        assert np.all(np.diff(probability[np.argsort(sizes)]) >= -1e-12)


def test_documents_are_drawn_as_often_as_their_probability_says() -> None:
    rng, n_draws = np.random.default_rng(2), 4000
    probability = inclusion_probabilities(rng.random(50) ** 2, 12, 0.1)
    count = np.zeros(50)
    for _ in range(n_draws):
        drawn = draw_sample(probability, rng)
        assert len(drawn) == 12
        count[drawn] += 1
    error = np.sqrt(probability * (1 - probability) / n_draws)
    assert np.all(np.abs(count / n_draws - probability) <= 4.5 * error + 1e-12)


def test_documents_that_tell_the_runs_apart_are_more_probable() -> None:
    pool = pool_of_runs(RUNS, "nDCG@3")
    requests = CompareRuns(RUNS, LABELS, measure="nDCG@3").next(pool, budget=120)
    assert len(requests) == 120
    assert requests.draw == 1
    assert requests.probability is not None
    run = RUNS["live"].sort_values(["query", "score"], ascending=[True, False]).groupby("query").head(3)
    other = RUNS["new"].sort_values(["query", "score"], ascending=[True, False]).groupby("query").head(3)
    assert set(requests.frame["document"]) <= {*run["document"], *other["document"]}
    same_rank = set(run["document"][run["document"].to_numpy() == other["document"].to_numpy()])
    frame = requests.frame
    is_same = frame["document"].isin(same_rank)
    assert is_same.any()
    assert frame.loc[is_same, "probability"].mean() < 0.95 * frame.loc[~is_same, "probability"].median()


def test_documents_tied_at_the_cutoff_are_in_the_pool() -> None:
    run = pd.DataFrame({"query": ["q"] * 4 + ["r"] * 2, "document": list("abcdab"), "score": [3, 2, 2, 1, 0, 0]})
    pool = pool_of_runs({"run": run}, "DCG@2")
    assert list(zip(pool.query.to_pylist(), pool.document.to_pylist(), strict=True)) == [
        *(("q", document) for document in "abc"),
        *(("r", document) for document in "ab"),
    ]


def test_a_second_draw_has_other_documents_and_both_draws_combine() -> None:
    truth = {name: evaluate(run, TRUTH, "DCG@5", no_relevant="zero").means["DCG@5"] for name, run in RUNS.items()}
    pool, errors = pool_of_runs(RUNS, "DCG@5"), []
    for seed in range(30):
        policy = CompareRuns(RUNS, LABELS, measure="DCG@5", random_state=seed)
        first = policy.next(pool, budget=60).frame.merge(TRUTH, on=["query", "document"])
        judged = first[["query", "document", "grade"]].assign(assessor="expert")
        second = policy.next(pool, crowdrank.read_judgments(judged, grades="0-3"), budget=60).frame
        assert len(second) == 60
        assert not set(second["document"]) & set(first["document"])
        assert set(second["draw"]) == {61}
        sample = pd.concat([first, second.merge(TRUTH, on=["query", "document"])])
        table = crowdrank.estimate(RUNS, LABELS, sample, measure="DCG@5").table
        errors.append(table["difference"][1] - (truth["new"] - truth["live"]))
    assert abs(np.mean(errors)) < 4 * np.std(errors, ddof=1) / np.sqrt(30)


def test_honeypots_and_rosters_keep_the_sample() -> None:
    roster = Roster.of(["ann", "bob"], "expert", {"expert": 2.0})
    pool = Pool(*(Pool.read(PAIRS).query, Pool.read(PAIRS).document), roster)
    requests = CompareRuns(RUNS, LABELS).next(pool, budget=100)
    assert (len(requests), requests.cost) == (50, 100.0)
    limited = CompareRuns(RUNS, LABELS).next(pool, budget=crowdrank.Budget(100, most=10))
    assert [note.kind for note in limited.notes] == ["sample-incomplete"]


def test_one_ranking_or_no_labels_are_noted() -> None:
    assert [note.kind for note in CompareRuns({"live": RUNS["live"]}).next(PAIRS, budget=10).notes] == [
        "one-ranking",
        "no-labels",
    ]
    assert CompareRuns(RUNS, LABELS).next(PAIRS, budget=10).notes == ()


@pytest.mark.parametrize("measure", ["AP", "RR@5", "ERR@10"])
def test_measures_that_are_not_sums_over_documents_are_refused(measure: str) -> None:
    with pytest.raises(UsageError) as caught:
        CompareRuns(RUNS, LABELS, measure=measure).next(PAIRS, budget=10)
    assert (caught.value.kind, caught.value.parameter) == ("measure-not-estimated", "measure")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, ["collect", "next", *map(str, words)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, run in RUNS.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    LABELS.to_parquet(tmp_path / "labels.parquet")
    return tmp_path


def test_the_command_writes_a_sample_that_estimate_reads(folder: Path) -> None:
    runs = f"{folder / 'live.csv'},{folder / 'new.csv'}"
    words = ["--policy", "compare", "--runs", runs, "--labels", folder / "labels.parquet", "--measure", "nDCG@5"]
    sample = folder / "sample.csv"
    done = invoke(folder / "expert.csv", *words, "--budget", 80, "-o", sample, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["requests"] == 80
    requests = pd.read_csv(sample)
    assert requests["probability"].between(0, 1, inclusive="right").all()
    requests.merge(TRUTH, on=["query", "document"]).to_csv(folder / "graded.csv", index=False)
    command = ["estimate", folder / "live.csv", folder / "new.csv", "--labels", folder / "labels.parquet"]
    command += ["--expert", folder / "graded.csv", "--measure", "nDCG@5", "--json"]
    estimated = CliRunner().invoke(app, list(map(str, command)))
    assert estimated.exit_code == 0, estimated.output
    result = json.loads(estimated.stdout)
    assert (result["unit"], result["expert_grades"]) == ("document", 80)
    again = invoke(folder / "expert.csv", *words, "--budget", 20, "-o", folder / "second.csv")
    assert again.exit_code == 0, again.output
    second = pd.read_csv(folder / "second.csv")
    assert not set(second["document"]) & set(requests["document"])
    assert set(second["draw"]) == {2}


@pytest.fixture
def words(folder: Path) -> list[object]:
    runs = f"{folder / 'live.csv'},{folder / 'new.csv'}"
    labels = folder / "labels.parquet"
    return ["--policy", "compare", "--runs", runs, "--labels", labels, "--measure", "nDCG@5", "--kind", "expert"]


def drawn(folder: Path, words: list[object], number: int) -> pd.DataFrame:
    """Return a sample with the grades of an expert, as `graded-NUMBER.csv` has it."""
    done = invoke(folder / "expert.csv", *words, "--budget", 60, "-o", folder / f"sample-{number}.csv")
    assert done.exit_code == 0, done.output
    assert "--again" not in done.output
    graded = pd.read_csv(folder / f"sample-{number}.csv").merge(TRUTH, on=["query", "document"])
    graded.to_csv(folder / f"graded-{number}.csv", index=False)
    return graded


def estimated(folder: Path, expert: object) -> Result:
    command = ["estimate", folder / "live.csv", folder / "new.csv", "--labels", folder / "labels.parquet"]
    return CliRunner().invoke(app, [*map(str, command), "--expert", str(expert), "--measure", "nDCG@5", "--json"])


def test_samples_that_are_added_to_a_file_give_the_estimate_of_the_samples(folder: Path, words: list[object]) -> None:
    for number in (1, 2):
        assert set(drawn(folder, words, number)["draw"]) == {number}
    by_glob = estimated(folder, folder / "graded-*.csv")
    for number, options in ((1, []), (2, ["--assessor-name", "ann"])):
        add = ["collect", "add", str(folder / "expert.csv"), str(folder / f"graded-{number}.csv"), *options, "--json"]
        done = CliRunner().invoke(app, add)
        assert json.loads(done.stdout)["batches"][0]["added"] == 60
    expert = pd.read_csv(folder / "expert.csv")
    assert expert.groupby("assessor")["draw"].agg(["min", "max", "size"]).to_numpy().tolist() == [
        [2, 2, 60],
        [1, 1, 60],
    ]
    assert set(expert["drawn"]) == {60}
    by_file = estimated(folder, folder / "expert.csv")
    assert json.loads(by_file.stdout)["runs"] == json.loads(by_glob.stdout)["runs"]
    assert json.loads(by_file.stdout)["warnings"] == []
    assert set(drawn(folder, words, 3)["draw"]) == {3}


def test_a_drawn_document_is_not_drawn_again(folder: Path, words: list[object]) -> None:
    drawn(folder, words, 1)
    again = invoke(folder / "expert.csv", *words, "--budget", 60, "-o", folder / "sample-2.csv", "--again")
    assert isinstance(again.exception, UsageError)
    assert again.exception.parameter == "again"
    (folder / "expert.requests.csv").unlink()
    drawn(folder, [*words, "--seed", "1"], 2)
    refused = estimated(folder, folder / "graded-*.csv")
    assert isinstance(refused.exception, InputError)
    assert refused.exception.kind == "drawn-twice"


def test_a_sample_without_grades_is_not_overwritten(folder: Path, words: list[object]) -> None:
    graded, sample = drawn(folder, words, 1), (folder / "sample-1.csv").read_bytes()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    refused = invoke(folder / "expert.csv", *words, "--budget", 60, "-o", folder / "sample-1.csv")
    assert isinstance(refused.exception, UsageError)
    assert (refused.exception.kind, refused.exception.parameter) == ("sample-outstanding", "output")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    graded.to_csv(folder / "graded.csv", index=False)
    CliRunner().invoke(app, ["collect", "add", str(folder / "expert.csv"), str(folder / "graded.csv")])
    again = invoke(folder / "expert.csv", *words, "--budget", 60, "-o", folder / "sample-1.csv")
    assert again.exit_code == 0, again.output
    assert (folder / "sample-1.csv").read_bytes() != sample


def test_one_document_in_two_draws_was_drawn_twice() -> None:
    frame = pd.DataFrame({"query": "q", "document": ["a", "b"], "grade": [0, 1], "probability": 0.5, "draw": 1})
    assert len(crowdrank.estimate(RUNS, LABELS, frame.assign(query="q0", document=["d0", "d1"])).table) == 2
    with pytest.raises(InputError) as caught:
        crowdrank.estimate(RUNS, LABELS, pd.concat([frame, frame.head(1).assign(draw=2)]))
    assert caught.value.kind == "drawn-twice"


@pytest.mark.parametrize("is_blank", [True, False])
def test_a_sample_without_some_of_its_grades_is_incomplete(folder: Path, words: list[object], is_blank: bool) -> None:
    graded = drawn(folder, words, 1)
    if is_blank:
        graded = graded.drop(columns="drawn").assign(grade=graded["grade"].where(graded.index < 29).astype("Int64"))
    graded.head(60 if is_blank else 29).to_csv(folder / "half.csv", index=False)
    found = estimated(folder, folder / "half.csv")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert [warning["kind"] for warning in result["warnings"]] == ["sample-incomplete"]
    assert "31 of 60" in result["warnings"][0]["problem"]
    assert result["expert_grades"] == 29


def test_missing_options_are_refused(folder: Path) -> None:
    for words, parameter in (
        (["--policy", "compare", "--budget", 5], "policy"),
        (["--budget", 5], "pairs"),
        (["--budget", 5, "--pairs", folder / "live.csv", "--runs", folder / "live.csv"], "runs"),
    ):
        done = invoke(folder / "expert.csv", *words)
        assert isinstance(done.exception, UsageError)
        assert done.exception.parameter == parameter
    repeated = pd.concat([RUNS["new"], RUNS["new"].head(1)])
    repeated.to_csv(folder / "new.csv", index=False)
    runs = f"{folder / 'live.csv'},{folder / 'new.csv'}"
    done = invoke(folder / "expert.csv", "--policy", "compare", "--runs", runs, "--budget", 5, "-o", folder / "out.csv")
    assert isinstance(done.exception, InputError)
    assert done.exception.kind == "repeated-document"
    assert not (folder / "out.csv").exists()
