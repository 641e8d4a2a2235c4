"""`crowdrank assessors` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from crowdrank import simulate
from crowdrank.assessors.advice import FAULTS
from terminal import crowdrank, without_columns


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "world"
    simulate(queries=15, documents=10, assessors=15, random_state=3).write(folder)
    return folder


def test_it_shows_the_table_the_flags_and_alpha(world: Path, tmp_path: Path) -> None:
    done = crowdrank("assessors", world / "judgments.csv", "-m", "gda", "-o", "who.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert lines[0].startswith("Best and worst assessors")
    shown = [line.split() for line in lines[2:] if line.strip()]
    header = "assessor judgments informativeness slope v. others bias v. others honeypots flag"
    assert shown[0] == header.split()
    (counts,) = (line for line in lines if line.startswith("15 assessors: "))
    assert counts.endswith("; written to who.csv.")
    assert any(line.startswith("Krippendorff's alpha (ordinal) 0.") for line in lines)
    written = pd.read_csv(tmp_path / "who.csv")
    for flag in set(written["flag"].dropna()) & set(FAULTS):
        assert sum(line.startswith(f"{flag.capitalize()}: ") for line in lines) == 1
    assert len(written) == 15
    assert written["informativeness"].is_monotonic_decreasing
    names = written["assessor"].tolist()
    assert [line[0] for line in shown[2:12]] == [*names[:5], *names[-5:]]


def test_it_writes_the_agreement_of_pairs_and_takes_settings(world: Path, tmp_path: Path) -> None:
    done = crowdrank("assessors", world / "judgments.csv", "--pairs", "pairs.csv", "-s", "n_iter=2", cwd=tmp_path)
    assert "GDA stopped after 2 iterations" in done.stderr
    pairs = pd.read_csv(tmp_path / "pairs.csv")
    assert (pairs["documents"] >= 10).all()
    assert f"{len(pairs)} pairs written to pairs.csv." in done.stdout


@pytest.mark.parametrize("command", ["assessors", "check", "trace"])
def test_commands_that_fit_take_settings_of_the_model(command: str, world: Path, tmp_path: Path) -> None:
    document = pd.read_csv(world / "judgments.csv").loc[0]
    which = ["--document", document["document"], "--query", document["query"]] if command == "trace" else []
    done = crowdrank(command, world / "judgments.csv", *which, "-s", "n_iter=1", "--set", "tol=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "GDA stopped after 1 iteration" in done.stderr
    wrong = crowdrank(command, world / "judgments.csv", *which, "-s", "colour=red", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "GDA has no parameter 'colour'" in wrong.stderr


def test_it_speaks_json_and_takes_gold(world: Path, tmp_path: Path) -> None:
    done = crowdrank("assessors", world / "judgments.csv", "--expert", world / "gold.qrels", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert summary["method"] == "gda"
    assert summary["informativeness"] == "modeled"
    assert sum(summary["flags"].values()) == len(summary["assessors"]) == 15
    assert summary["alpha"]["lower"] < summary["alpha"]["value"] < summary["alpha"]["upper"]
    assert all(0 <= row["gold_accuracy"] <= 1 for row in summary["assessors"])
    assert summary["expert_offset"]["documents"] > 100


def test_a_method_without_a_model_of_assessors_says_what_it_measures(world: Path, tmp_path: Path) -> None:
    done = crowdrank("assessors", world / "judgments.csv", "-m", "majority", cwd=tmp_path)
    assert "informativeness is measured against the votes of the others." in done.stdout


def test_what_a_user_got_wrong_is_one_sentence(world: Path, tmp_path: Path) -> None:
    for words in (["-m", "oracle"], ["-o", "who.xlsx"], ["--threads", 0]):
        done = crowdrank("assessors", world / "judgments.csv", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert without_columns(done.stderr).startswith("Error: ")
        assert len(without_columns(done.stderr).strip().splitlines()) == 1
