"""`crowdrank aggregate --update`: add judgments to a saved model."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from crowdrank import Aggregator, simulate
from crowdrank.consensus.model import ITERATIONS_AFTER_ADD
from terminal import crowdrank


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with old and new judgments and a model of the old ones."""
    frame = simulate(queries=8, documents=6, assessors=10, random_state=1).judgments
    frame = frame[["query", "document", "assessor", "grade"]]
    old = frame["query"].isin(frame["query"].unique()[:6])
    frame[old].to_csv(tmp_path / "old.csv", index=False)
    frame[~old].to_csv(tmp_path / "new.csv", index=False)
    done = crowdrank("aggregate", "old.csv", "--save", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.parametrize("iterations", [(), ("--iterations", 0), ("--iterations", 2)])
def test_the_model_is_updated_in_place(folder: Path, iterations: tuple[object, ...]) -> None:
    expected = Aggregator.load(folder / "model")
    expected.add(folder / "new.csv", n_iter=int(str(iterations[1])) if iterations else ITERATIONS_AFTER_ADD)
    words = ("aggregate", "--update", "model", "new.csv", *iterations, "-o", "out.csv", "--json")
    done = crowdrank(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    summary, new = json.loads(done.stdout), pd.read_csv(folder / "new.csv")
    assert (summary["method"], summary["saved"]) == ("gda", "model")
    assert (summary["added"], summary["replaced"]) == (len(new), 0)
    assert summary["judgments"] == len(pd.read_csv(folder / "old.csv")) + len(new)
    updated = Aggregator.load(folder / "model")
    assert updated.consensus_.document_table.equals(expected.consensus_.document_table)
    assert len(pd.read_csv(folder / "out.csv")) == updated.consensus_.n_documents


def test_judgments_that_the_model_has_already_are_counted_as_replaced(folder: Path) -> None:
    lines = (folder / "new.csv").read_text().splitlines()[:4]
    lines += (folder / "old.csv").read_text().splitlines()[1:3]
    (folder / "both.csv").write_text("\n".join(lines) + "\n")
    shown = crowdrank("aggregate", "--update", "model", "both.csv", "--save", "other", cwd=folder)
    assert "3 judgments added, 2 replaced" in shown.stdout
    done = crowdrank("aggregate", "--update", "model", "both.csv", "--json", cwd=folder)
    assert (json.loads(done.stdout)["added"], json.loads(done.stdout)["replaced"]) == (3, 2)


def test_save_keeps_the_old_model(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
    done = crowdrank("aggregate", "--update", "model", "new.csv", "--save", "other", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (folder / "model").iterdir()} == before
    assert len(Aggregator.load(folder / "other").judgments_) > len(Aggregator.load(folder / "model").judgments_)


def test_new_judgments_are_read_on_the_scale_of_the_model(tmp_path: Path) -> None:
    names = {0: "Bad", 1: "Fair", 2: "Good"}
    rows = pd.DataFrame({"document": list("aabbcc"), "assessor": list("xyxyxy"), "grade": [2, 2, 0, 1, 0, 0]})
    rows.assign(grade=rows["grade"].map(names)).to_csv(tmp_path / "old.csv", index=False)
    (tmp_path / "new.csv").write_text("document,assessor,grade\nd,x,Good\nd,y,Fair\n")
    words = ("aggregate", "old.csv", "--grades", "Bad,Fair,Good", "-m", "dawid-skene", "--save", "model")
    assert crowdrank(*words, cwd=tmp_path).returncode == 0
    done = crowdrank("aggregate", "--update", "model", "new.csv", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "out.csv")["document"]) == set("abcd")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--update", "model", "-m", "gda"), "--method"),
        (("--update", "model", "-s", "n_iter=3"), "--set"),
        (("--update", "model", "--unjudgeable-as", "lowest"), "--unjudgeable-as"),
        (("--update", "model", "--expert", "old.csv"), "--expert"),
        (("--update", "model", "--checkpoint", "state"), "--checkpoint"),
        (("--update", "model", "--work", "shards"), "--work"),
        (("--update", "model", "--iterations", -1), "--iterations"),
        (("--iterations", 3), "--iterations"),
    ],
)
def test_options_that_do_not_fit_together(folder: Path, words: tuple[object, ...], option: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    done = crowdrank("aggregate", "new.csv", *words, "-o", "out.csv", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {option} ")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_folder_of_judgments_and_a_missing_model_are_refused(folder: Path) -> None:
    (folder / "parts").mkdir()
    pd.read_csv(folder / "new.csv").to_parquet(folder / "parts" / "part.parquet")
    for words in (("--update", "model", "parts"), ("--update", "nowhere", "new.csv")):
        done = crowdrank("aggregate", *words, "-o", "out.csv", cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert not (folder / "out.csv").exists()
