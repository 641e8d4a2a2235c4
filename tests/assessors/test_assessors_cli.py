"""`crowdrank assessors` as a person uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
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


def test_families_count_as_fewer_assessors(tmp_path: Path) -> None:
    simulated = simulate(queries=40, documents=20, assessors=9, labels=9, families=3, random_state=3)
    simulated.write(tmp_path / "world")
    labels = "world/judgments.csv"
    family = simulated.judgments.drop_duplicates("assessor")["family"]
    sizes = np.append(family.value_counts(), np.ones(family.isna().sum()))  # an assessor without one counts as 1
    expected = float((sizes / (1 + (sizes - 1) * 0.25)).sum())
    nested = crowdrank("aggregate", labels, "-s", "family_correlation=0.1,0.25", "--json", cwd=tmp_path)
    assert json.loads(nested.stdout)["n_eff"] == pytest.approx(expected)
    one_level = crowdrank("assessors", labels, "-s", "family_correlation=0.25", cwd=tmp_path)
    assert f"9 assessors count as {expected:.1f}" in one_level.stdout
    searched = json.loads(crowdrank("aggregate", labels, "-s", "families=auto", "--json", cwd=tmp_path).stdout)
    assert set(searched["found_families"]) >= {"groups", "n_eff", "detectable", "untestable", "ambiguous"}
    smallest = searched["found_families"]["detectable"]
    printed = crowdrank("aggregate", labels, "-s", "families=auto", cwd=tmp_path).stdout
    assert f"error correlations from {smallest:.2f} on" in " ".join(printed.split())


def test_a_method_without_a_model_of_assessors_says_what_it_measures(world: Path, tmp_path: Path) -> None:
    done = crowdrank("assessors", world / "judgments.csv", "-m", "majority", cwd=tmp_path)
    assert "informativeness is measured against the votes of the others." in done.stdout


def test_what_a_user_got_wrong_is_one_sentence(world: Path, tmp_path: Path) -> None:
    for words in (["-m", "oracle"], ["-o", "who.xlsx"], ["--threads", 0]):
        done = crowdrank("assessors", world / "judgments.csv", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert without_columns(done.stderr).startswith("Error: ")
        assert len(without_columns(done.stderr).strip().splitlines()) == 1


def test_copies_are_flagged_and_the_advice_removes_the_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    relevance = rng.integers(0, 4, 300)
    workers = {name: np.clip(relevance + rng.integers(-1, 2, 300), 0, 3) for name in ["worker-1", *"abcdefghijk"]}
    workers["copycat"] = workers["worker-1"]
    rows = [f"q{d % 6},d{d},{name},{one[d]}" for name, one in workers.items() for d in range(300)]
    (tmp_path / "labels.csv").write_text("\n".join(["query,document,assessor,grade", *rows]) + "\n")
    (tmp_path / "pool.csv").write_text("query,document\n" + "".join(f"q{d % 6},d{d}\n" for d in range(310)))
    done = crowdrank("assessors", "labels.csv", "-o", "a.csv", cwd=tmp_path)
    table = pd.read_csv(tmp_path / "a.csv").set_index("assessor")
    assert set(table.index[table["flag"] == "copy"]) == {"worker-1", "copycat"}
    assert "same answers as 'copycat'" in str(table.loc["worker-1", "evidence"])
    assert "Copy: same answers as another assessor" in done.stdout
    (pattern,) = re.findall("--family-pattern '(.*?)'", done.stderr)
    for words in (
        ("assessors", "labels.csv"),
        ("aggregate", "labels.csv"),
        ("collect", "status", "labels.csv"),
        ("collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", 5),
        ("run", "-j", "labels.csv", "-o", "out"),
    ):
        warned, followed = (
            " ".join((one.stdout + one.stderr).split())
            for one in (
                crowdrank(*words, cwd=tmp_path),
                crowdrank(*words, "--family-pattern", pattern, cwd=tmp_path),
            )
        )
        assert "may be copies" in warned, words
        assert "may be copies" not in followed, words
    found = crowdrank("assessors", "labels.csv", "-s", "families=found", cwd=tmp_path)
    assert "may be copies" not in found.stderr
    assert "flagged copy" not in found.stdout
