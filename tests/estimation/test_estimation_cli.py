"""Test the command `crowdrank estimate`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from estimation_worlds import make_world
from typer.testing import CliRunner, Result

import crowdrank
from crowdrank.cli.app import app
from crowdrank.errors import InputError, UsageError

WORLD = make_world()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, run in WORLD.runs.items():
        ranked = run.sort_values(["query", "score"], ascending=[True, False])
        lines = [f"{row.query} Q0 {row.document} 1 {row.score} {name}\n" for row in ranked.itertuples()]
        (tmp_path / f"{name}.trec").write_text("".join(lines))
    WORLD.labels.to_parquet(tmp_path / "consensus.parquet")
    WORLD.expert(20).to_csv(tmp_path / "sample.csv", index=False)
    return tmp_path


def invoke(folder: Path, *words: str) -> Result:
    runs = [str(folder / "live.trec"), str(folder / "new.trec")]
    return CliRunner().invoke(app, ["estimate", *runs, "--labels", str(folder / "consensus.parquet"), *words])


def test_the_command_prints_and_writes_the_estimates_of_the_library(folder: Path) -> None:
    output = folder / "estimates.csv"
    done = invoke(folder, "--expert", str(folder / "sample.csv"), "--measure", "nDCG@5", "--json", "-o", str(output))
    assert done.exit_code == 0, done.output
    expected = crowdrank.estimate(WORLD.runs, WORLD.labels, WORLD.expert(20), measure="nDCG@5")
    printed = json.loads(done.stdout)
    for one, other in zip(printed["runs"], expected.to_dict()["runs"], strict=True):
        assert one == pytest.approx(other)
    assert pd.read_csv(output)["estimate"].tolist() == pytest.approx(expected.table["estimate"].tolist())
    text = invoke(folder, "--expert", str(folder / "sample.csv"), "--measure", "nDCG@5").stdout
    assert f"{expected.table['difference'][1]:+.4f}" in text


def test_named_grades_of_a_sample_are_read_by_their_scale(folder: Path) -> None:
    sample = WORLD.expert(20).assign(probability=0.5, draw=1)
    named = sample.assign(grade=sample["grade"].map(dict(enumerate(("cannot-judge", "Fair", "Good", "Best")))))
    for name, table in (("sample", sample), ("named", named)):
        table.to_csv(folder / f"{name}.csv", index=False)
    options = ["--expert-grades", "Bad,Fair,Good,Best", "--expert-unjudgeable", "cannot-judge"]
    expected = invoke(folder, "--expert", str(folder / "sample.csv"), "--json")
    found = invoke(folder, "--expert", str(folder / "named.csv"), "--json", *options)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["runs"] == json.loads(expected.stdout)["runs"]
    refused = invoke(folder, "--expert", str(folder / "named.csv"), "--expert-grades", "Bad")
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.parameter == "expert_grades"


def test_errors_leave_no_output(folder: Path) -> None:
    sample = WORLD.truth.sample(frac=0.3, random_state=1)
    sample.to_csv(folder / "sample.csv", index=False)
    done = invoke(folder, "--expert", str(folder / "sample.csv"), "-o", str(folder / "estimates.csv"))
    assert isinstance(done.exception, InputError)
    assert done.exception.kind == "unknown-probabilities"
    assert not (folder / "estimates.csv").exists()


def test_labels_that_used_features_need_experts_or_an_option(folder: Path) -> None:
    WORLD.labels.assign(prior_relevance=0.0).to_parquet(folder / "consensus.parquet")
    output = folder / "estimates.csv"
    done = invoke(folder, "-o", str(output))
    assert isinstance(done.exception, UsageError)
    assert done.exception.kind == "features-used"
    assert not output.exists()
    for words in (("--expert", str(folder / "sample.csv")), ("--allow-feature-labels",)):
        done = invoke(folder, *words, "--json", "-o", str(output))
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["used_features"] == {"labels": True, "runs": []}
        assert output.exists()


def bad_words(folder: Path, case: str) -> list[str]:
    """Write expert grades or labels that cannot be used; return the options."""
    expert, sample = str(folder / "expert.csv"), WORLD.truth.sample(frac=0.3, random_state=1)
    drawn = sample.assign(probability=0.5, draw=1)
    if case == "no probabilities":
        sample.to_csv(expert, index=False)
    elif case == "missing draw":
        drawn.assign(draw=[1 + 2 * (row % 2) for row in range(len(drawn))]).to_csv(expert, index=False)
        return ["--expert", expert, "--looks", "4"]
    elif case == "too many draws":
        drawn.assign(draw=[1 + row % 3 for row in range(len(drawn))]).to_csv(expert, index=False)
        return ["--expert", expert, "--looks", "2"]
    elif case == "other project":
        drawn.assign(document="other-" + drawn["document"].astype(str)).to_csv(expert, index=False)
    else:
        WORLD.labels.assign(prior_relevance=0.0).to_parquet(folder / "consensus.parquet")
        return []
    return ["--expert", expert]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("no probabilities", "unknown-probabilities"),
        ("missing draw", "looks-out-of-order"),
        ("too many draws", "looks-out-of-order"),
        ("other project", "other-project"),
        ("labels with features", "features-used"),
    ],
)
def test_bad_input_has_one_message_and_writes_nothing(folder: Path, case: str, kind: str) -> None:
    words = bad_words(folder, case)
    before = set(folder.iterdir())
    done = invoke(folder, *words, "-o", str(folder / "estimates.csv"))
    assert isinstance(done.exception, InputError | UsageError)
    assert done.exception.kind == kind
    assert done.exception.fixes
    assert "p (Holm)" not in done.stdout
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("command", [["estimate"], ["gate", "--against"]])
def test_an_option_for_one_file_is_refused_twice(folder: Path, command: list[str]) -> None:
    words = [
        *command,
        str(folder / "live.trec"),
        str(folder / "new.trec"),
        "--labels",
        str(folder / "consensus.parquet"),
    ]
    done = CliRunner().invoke(app, [*words, *(2 * ["--expert", str(folder / "sample.csv")])])
    assert isinstance(done.exception, UsageError)
    assert (done.exception.kind, done.exception.parameter) == ("given-twice", "expert")
    done = CliRunner().invoke(app, [*words, "--labels", str(folder / "other.parquet")])
    assert isinstance(done.exception, UsageError)
    assert done.exception.parameter == "labels"
