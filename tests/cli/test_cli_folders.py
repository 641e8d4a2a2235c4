"""No command deletes or replaces a folder with files that crowdrank did not write."""

from __future__ import annotations

import threading
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank import GLS, simulate
from crowdrank._files import locked
from crowdrank.cli.app import app
from crowdrank.errors import OutputError

RUN = ["run", "-j", "in/judgments.csv", "-f", "in/features.letor", "-o", "mine"]
COMMANDS = {
    "run": (RUN, "stages/thesis.txt"),
    "work": (["aggregate", "parts", "-o", "out", "--work", "mine"], "judgments.json"),
    "consensus": (["aggregate", "parts", "-o", "mine"], "consensus.json"),
    "save": (["aggregate", "in/judgments.csv", "--save", "mine"], "model.json"),
    "checkpoint": (["aggregate", "in/judgments.csv", "-o", "out.csv", "--checkpoint", "mine"], "checkpoint.json"),
    "train": (["train", "-f", "in/features.letor", "-r", "gls", "-o", "mine"], "ranker.json"),
    "export": (["export", "ranker", "--to", "solr", "-o", "mine"], "model.json"),
    "simulate": (["simulate", "-o", "mine", "--overwrite"], "world.json"),
    "demo": (["demo", "-o", "mine"], "world/thesis.txt"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    world = simulate(queries=3, documents=4, random_state=1)
    world.write(tmp_path / "in")
    (tmp_path / "parts").mkdir()
    pd.read_csv(tmp_path / "in" / "judgments.csv", dtype=str).to_parquet(tmp_path / "parts" / "1.parquet")
    monkeypatch.chdir(tmp_path)
    GLS().fit(world.features, world.gold["grade"]).save(tmp_path / "ranker")
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_of_somebody_else_is_left_alone(name: str, folder: Path) -> None:
    words, mine = COMMANDS[name]
    (folder / "mine" / mine).parent.mkdir(parents=True)
    refuse_unchanged(words, folder / "mine" / mine, folder)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("run", "demo", "work")])
def test_a_file_that_somebody_put_into_the_output_is_left_alone(name: str, folder: Path) -> None:
    words, _ = COMMANDS[name]
    CliRunner().invoke(app, words, catch_exceptions=False)
    (folder / "mine").mkdir(exist_ok=True)
    refuse_unchanged(words, folder / "mine" / "notes.txt", folder)


def refuse_unchanged(words: list[str], mine: Path, folder: Path) -> None:
    mine.write_text("precious")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, OutputError)
    assert "mine" in str(done.exception)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_second_run_on_the_same_folder_is_refused(folder: Path) -> None:
    caught: list[BaseException | None] = []
    with locked(folder / "mine"):
        # The lock belongs to this thread: another one asks for it as another process would.
        thread = threading.Thread(target=lambda: caught.append(CliRunner().invoke(app, RUN).exception))
        thread.start()
        thread.join()
    assert isinstance(caught[0], OutputError)
    assert not (folder / "mine").exists()
