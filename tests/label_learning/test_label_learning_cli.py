"""The commands `remap fit` and `remap apply`, and the ranker of a remapper from simulated data to a search engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import BoostedRemapper, LinearRemapper, Remapper, read_features
from crowdrank.errors import InputError
from crowdrank.rankers.training_labels import read_labels
from rankers.export.engine_evaluators import EVALUATORS
from terminal import Run, crowdrank

FEW = ("-s", "n_iter=4", "-s", "ridge=0.1", "-s", "learning_rate=0.1", "-s", "tree_features=0")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    for name, seed in (("world", 3), ("other", 4)):
        done = crowdrank(
            "simulate", "-o", name, "--queries", 30, "--documents", 8, "--label-grades", 2, "--seed", seed, cwd=folder
        )
        assert done.returncode == 0, done.stderr
    return folder / "world"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *words: crowdrank(*words, cwd=tmp_path)


def fit_words(world: Path, *more: Any) -> list[Any]:
    files = [world / "judgments.csv", "-f", world / "features.letor", "--expert", world / "gold.qrels"]
    return ["remap", "fit", *files, "-o", "remapper", *FEW, *more]


@pytest.mark.parametrize("remapper", ["linear", "boosted"])
def test_from_expert_grades_to_a_ranker_on_new_labels(world: Path, run: Run, tmp_path: Path, remapper: str) -> None:
    done = run(*fit_words(world, "-r", remapper, "-s", "mode=W+T", "-s", "tree_features=5", "--json"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["remapper"] == remapper
    assert summary["parameters"]["tree_features"] == 5
    assert summary["validation"] >= summary["validation_at_start"]
    assert len(summary["validation_query_ids"]) == 30
    other = world.parent / "other"
    done = run(
        "remap", "apply", "remapper", other / "judgments.csv", "-o", "labels.csv", "--documents", "documents.csv"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("written to labels.csv and documents.csv.")
    labels, documents = pd.read_csv(tmp_path / "labels.csv"), pd.read_csv(tmp_path / "documents.csv")
    judgments = pd.read_csv(other / "judgments.csv")
    expected = Remapper.load(tmp_path / "remapper").transform(judgments)
    assert np.allclose(labels["target"], expected.target)
    assert np.allclose(labels["weight"], expected.weight)
    assert documents["labels"].sum() == len(labels) == judgments["honeypot"].isna().sum()
    assert documents["relevance"].between(0, 1).all()
    words = ["-f", other / "features.letor", "--labels", "documents.csv", "--weights", "documents.csv"]
    done = run("train", *words, "-r", "gls", "-o", "ranker")
    assert done.returncode == 0, done.stderr


def test_threads_do_not_change_a_fit(world: Path, run: Run, tmp_path: Path) -> None:
    found = []
    for more in ((), ("--threads", 2), ("-s", "n_jobs=2", "-s", "random_state=0")):
        done = run(*fit_words(world, "-r", "linear", "-s", "tree_features=5", *more))
        assert done.returncode == 0, done.stderr
        rows = read_features(world / "features.letor")
        remapper = Remapper.load(tmp_path / "remapper")
        found.append((remapper.n_jobs, remapper.predict(rows)))
    assert [n_jobs for n_jobs, _ in found] == [None, 2, 2]
    assert all(np.array_equal(scores, found[0][1]) for _, scores in found)


def test_a_fit_prints_importances_and_validation(world: Path, run: Run) -> None:
    done = run(*fit_words(world, "-r", "linear", "-s", "mode=W"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("linear W on ")
    assert "before learning" in lines[-1]
    assert lines[-2].startswith("Validation queries: ")


def test_a_fit_has_trees_by_default_and_prints_how_many_are_best(world: Path, run: Run) -> None:
    words = [*fit_words(world, "-r", "linear"), "-s", "tree_features=auto"]
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    measures = {int(count): value for count, value in summary["tree_measures"].items()}
    assert list(measures) == [0, 100, 200, 300]
    assert summary["parameters"]["tree_features"] == max(measures, key=measures.__getitem__)
    (line,) = [line for line in run(*words).stdout.splitlines() if "by number of trees" in line]
    assert f"{measures[0]:.4f} with 0" in line
    assert {cls().tree_features for cls in (BoostedRemapper, LinearRemapper)} == {"auto"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-s", "mode=X"), "mode must be one of W, T, W+T"),
        (("-s", "measure=softrank", "-s", "objective=ERR"), "must be 'lambdarank' for ERR"),
        (("-s", "tree_features=-1"), "tree_features"),
        (("-s", "speed=3"), "has no parameter 'speed'"),
        (("--expert-grades", "x"), "--expert-grades"),
    ],
)
def test_bad_options_of_a_fit_are_one_line_and_write_nothing(
    world: Path, run: Run, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = run(*fit_words(world, *words))
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert sentence in errors[0]
    assert not (tmp_path / "remapper").exists()


def test_bad_input_of_apply_is_one_line_and_writes_nothing(world: Path, run: Run, tmp_path: Path) -> None:
    assert run(*fit_words(world, "-r", "linear", "-s", "mode=T")).returncode == 0
    five_grades = pd.read_csv(world / "judgments.csv").drop(columns="honeypot")
    five_grades.assign(grade=np.arange(len(five_grades)) % 5).to_csv(tmp_path / "five.csv", index=False)
    calls = {
        "another scale (0, 1, 2, 3, 4) than those of the fit (0, 1)": ("remapper", "five.csv"),
        "no such folder": ("nowhere", world / "judgments.csv"),
        "not a saved remapper": (world, world / "judgments.csv"),
    }
    for sentence, words in calls.items():
        done = run("remap", "apply", *words, "-o", "labels.csv")
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr.splitlines()[-1]
        assert not (tmp_path / "labels.csv").exists()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_training_another_ranker_on_learned_targets_is_a_warning(
    world: Path, run: Run, tmp_path: Path, suffix: str
) -> None:
    assert run(*fit_words(world, "-r", "linear")).returncode == 0
    name = f"documents{suffix}"
    assert run("remap", "apply", "remapper", world / "judgments.csv", "--documents", name).returncode == 0
    files = ["-f", world / "features.letor", "-o", "ranker", "--weights", name]
    others = [["-r", "lambdamart", "-s", "n_estimators=2"], ["-r", "rd"]]
    for words, warns in (
        *((other, True) for other in others),
        (["-r", "gls"], False),
        (["-r", "tree-features"], False),
    ):
        done = run("train", *files, "--labels", name, *words)
        assert done.returncode == 0, done.stderr
        assert ("the targets were learned for gls" in done.stderr) == warns
    assert "--ranker gls" in run("train", *files, "--labels", name, *others[0]).stderr
    if suffix == ".csv":
        columns = ["query", "document", "relevance", "weight", "labels", "learned_for"]
        table = pd.read_csv(tmp_path / name)
        assert table.columns.tolist() == columns
        assert table["weight"].mean() == pytest.approx(1)
        for changed in (
            table.drop(columns="learned_for"),
            table.assign(learned_for="a note"),
            table.assign(learned_for=""),
        ):
            changed.to_csv(tmp_path / "plain.csv", index=False)
            assert "learned for" not in run("train", *files, "--labels", "plain.csv", *others[0]).stderr


def test_targets_of_single_labels_are_refused_as_training_labels(world: Path, run: Run, tmp_path: Path) -> None:
    """Without the check the column with the grades would be read, not the targets."""
    assert run(*fit_words(world, "-r", "linear")).returncode == 0
    words = ("remap", "apply", "remapper", world / "judgments.csv", "-o", "targets.csv", "--documents", "documents.csv")
    assert run(*words).returncode == 0
    table = pd.read_csv(tmp_path / "targets.csv").drop_duplicates(["query", "document"])
    for source in ("targets.csv", table):
        with pytest.raises(InputError) as refused:
            read_labels(tmp_path / source if isinstance(source, str) else source)
        assert refused.value.kind == "label-targets"
    done = run("train", "-f", world / "features.letor", "--labels", "targets.csv", "-o", "ranker")
    assert done.returncode == 2
    assert "remap apply" in done.stderr
    assert not (tmp_path / "ranker").exists()
    assert len(read_labels(tmp_path / "documents.csv").relevance) == len(table)


# The ranker of a remapper.


@pytest.mark.parametrize("remapper", ["linear", "boosted"])
def test_the_ranker_of_a_remapper_ranks_and_serves_search_engines(
    world: Path, run: Run, tmp_path: Path, remapper: str
) -> None:
    assert run(*fit_words(world, "-r", remapper)).returncode == 0
    features = world.parent / "other" / "features.letor"
    for model, output in (("remapper", "run.csv"), ("remapper/ranker", "same.csv")):
        done = run("rank", "-m", model, "-f", features, "-o", output, "--check")
        assert done.returncode == 0, done.stderr
        assert "no-statistics" not in done.stderr
    ranking = pd.read_csv(tmp_path / "run.csv")
    assert ranking.equals(pd.read_csv(tmp_path / "same.csv"))
    rows, fitted = read_features(features), Remapper.load(tmp_path / "remapper")
    score = pd.Series(fitted.predict(rows), rows.document.to_pylist())
    assert np.allclose(ranking["score"], score[ranking["document"]])
    matrix = rows.matrix.astype(np.float32)
    for engine, shift in (("onnx", 0.0), ("solr", fitted.ranker_.intercept_)):
        done = run("export", "remapper", "--to", engine, "-o", engine)
        assert done.returncode == 0, done.stderr
        exported = EVALUATORS[engine](tmp_path / engine, matrix, list(rows.names))
        if not shift:
            assert np.allclose(exported, score, atol=1e-5)
        rank = pd.Series(exported, score.index).groupby(rows.query.to_pylist()).rank(ascending=False)
        assert rank[ranking["document"]].tolist() == ranking["rank"].tolist()
        assert pd.read_csv(tmp_path / engine / "features.csv")["maximum"].notna().all()


def test_a_ranker_with_trees_is_exported_as_one_forest(world: Path, run: Run, tmp_path: Path) -> None:
    assert run(*fit_words(world, "-r", "linear", "-s", "tree_features=20")).returncode == 0
    refused = run("export", "remapper", "--to", "solr", "-o", "solr")
    assert refused.returncode == 2
    assert "crowdrank distill" in refused.stderr
    assert "tree_features=0" in refused.stderr
    assert not (tmp_path / "solr").exists()
    done = run("distill", "remapper", "-f", world / "features.letor", "--trees", 10, "-o", "forest")
    assert done.returncode == 0, done.stderr
    done = run("export", "forest", "--to", "elasticsearch-ltr", "-o", "out")
    assert done.returncode == 0, done.stderr


def test_a_remapper_is_evaluated_as_the_ranking_that_it_makes(world: Path, run: Run, tmp_path: Path) -> None:
    assert run(*fit_words(world, "-r", "linear")).returncode == 0
    other = world.parent / "other"
    features, gold = ["-f", other / "features.letor"], ["--expert", other / "gold.qrels"]
    assert run("rank", "-m", "remapper", *features, "-o", "run.parquet").returncode == 0
    done = [
        run("evaluate", name, *more, *gold, "--json") for name, more in (("run.parquet", ()), ("remapper", features))
    ]
    assert [one.returncode for one in done] == [0, 0], done[1].stderr
    by_file, by_ranker = (json.loads(one.stdout) for one in done)
    assert by_ranker["means"] == by_file["means"]
    compared = run("compare", "file=run.parquet", "remapper", *features, *gold, "--json")
    assert compared.returncode == 0, compared.stderr
    assert "remapper" in compared.stdout


def test_evaluation_on_the_expert_queries_of_a_fit_is_a_warning(world: Path, run: Run, tmp_path: Path) -> None:
    gold = pd.read_csv(world / "gold.qrels", sep=" ", names=["query", "iteration", "document", "grade"])
    for name, chosen in (("steer", gold["query"] <= 20), ("test", gold["query"] > 20)):
        gold[chosen].to_csv(tmp_path / f"{name}.csv", index=False)
    words = [world / "judgments.csv", "-f", world / "features.letor", "--expert", "steer.csv", "-o", "remapper", *FEW]
    assert run("remap", "fit", *words, "-r", "linear").returncode == 0
    features = ["-f", world / "features.letor"]
    for command in (["evaluate"], ["compare", world / "documents.csv"]):
        warned = run(*command, "remapper", *features, "--expert", "steer.csv")
        assert warned.returncode == 0, warned.stderr
        assert "remapper was fitted or validated on 20 of the 20 queries" in warned.stderr
        silent = run(*command, "remapper", *features, "--expert", "test.csv")
        assert silent.returncode == 0, silent.stderr
        assert "Warning" not in silent.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("evaluate", "remapper", "--expert", "gold.qrels"), "with --features, or rank documents with it"),
        (("gate", "remapper", "--against", "gold.qrels", "--labels", "gold.qrels"), "crowdrank rank -m remapper"),
        (("evaluate", "gold.qrels", "-f", "features.letor", "--expert", "gold.qrels"), "--features are not used"),
        (("evaluate", "remappers", "-f", "features.letor", "--expert", "gold.qrels"), "there is no such file"),
        (("evaluate", "remapper", "-f", "narrow.csv", "--expert", "gold.qrels"), "narrow.csv"),
        (("evaluate", "out", "-f", "features.letor", "--expert", "gold.qrels"), "name out/model"),
        (("rank", "-m", "damaged", "-f", "features.letor"), "ranker.json was changed after crowdrank wrote it"),
    ],
)
def test_bad_uses_of_a_remapper_are_one_line(
    world: Path, run: Run, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    assert run(*fit_words(world, "-r", "linear")).returncode == 0
    for name in ("gold.qrels", "features.letor"):
        shutil.copy(world / name, tmp_path)
    (tmp_path / "narrow.csv").write_text("query,document,f1\n1,1-01,0.5\n")
    shutil.copytree(tmp_path / "remapper", tmp_path / "damaged")
    shutil.copytree(tmp_path / "remapper" / "ranker", tmp_path / "out" / "model")
    with (tmp_path / "damaged" / "ranker" / "ranker.json").open("a") as file:
        file.write(" ")
    done = run(*words)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert sentence in errors[0]
