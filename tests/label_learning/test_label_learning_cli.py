"""The commands `remap fit` and `remap apply`, from simulated data to a trained ranker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import Remapper
from terminal import Run, crowdrank

FEW = ("-s", "n_iter=4", "-s", "ridge=0.1", "-s", "learning_rate=0.1")


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


def test_a_fit_prints_importances_and_validation(world: Path, run: Run) -> None:
    done = run(*fit_words(world, "-r", "linear", "-s", "mode=W"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("linear W on ")
    assert "before learning" in lines[-1]
    assert lines[-2].startswith("Validation queries: ")


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
