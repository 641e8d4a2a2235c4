"""A crowd answers every day: labels of the first day, updated by the next ones, and judgments larger than memory."""

from __future__ import annotations

import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from .conftest import Terminal, take_part

pytestmark = pytest.mark.data

DAYS = ("monday", "tuesday", "wednesday")
ALIKE = 0.95
"""Least share of documents with the same grade in an update and in a fit on everything."""


@pytest.fixture(scope="module")
def days(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the judgments of three days, as CSV and as Parquet; some are on two days."""
    folder = tmp_path_factory.mktemp("days")
    rows = pd.read_csv(data_folder / "trec-rf10" / "trec-rf10-data.txt.gz", sep="\t", dtype={"topicID": str})
    rows = take_part(rows, "topicID", 8)[["topicID", "workerID", "docID", "label"]]
    day = np.random.default_rng(0).choice(3, size=len(rows), p=[0.6, 0.2, 0.2])
    for number, name in enumerate(DAYS):
        of_day = rows[day == number]
        of_day.to_csv(folder / f"{name}.csv", index=False)
        of_day.to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture
def crowd(crowdrank: Terminal, days: Path) -> Terminal:
    """Return a terminal in a folder with the files of the days."""
    for path in days.iterdir():
        crowdrank.path(path.name).symlink_to(path)
    return crowdrank


def labels(terminal: Terminal, name: str) -> pd.DataFrame:
    """Return the consensus that a command wrote, by query and document."""
    return terminal.table(name).set_index(["query", "document"]).sort_index()


def interrupt_update(terminal: Terminal, number: signal.Signals) -> int:
    """Start an update that takes long, send it a signal when it holds the model, and return its exit code."""
    script = str(Path(sysconfig.get_path("scripts")) / "crowdrank")
    words = ["aggregate", "--update", "model", "tuesday.csv", "--iterations", "1000000", "-o", "labels.csv"]
    process = subprocess.Popen(
        [script, *words], cwd=terminal.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    while not terminal.path(".model.lock").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    return process.returncode


def test_new_judgments_update_yesterdays_labels(crowd: Terminal) -> None:
    first = crowd.json("aggregate", "monday.csv", "--unjudgeable", "-2", "-o", "labels.csv", "--save", "model")
    assert (first["method"], first["saved"]) == ("gda", "model")
    second = crowd.json("aggregate", "--update", "model", "tuesday.csv", "-o", "labels.csv")
    assert second["judgments"] == first["judgments"] + second["added"]
    third = crowd.json(
        "aggregate", "--update", "model", "wednesday.parquet", "-o", "labels.parquet", "--assessors", "people.csv"
    )
    assert third["judgments"] == second["judgments"] + third["added"]
    whole = crowd.json("aggregate", *(f"{name}.csv" for name in DAYS), "--unjudgeable", "-2", "-o", "whole.csv")
    assert (third["judgments"], third["documents"]) == (whole["judgments"], whole["documents"])
    updated, fitted = labels(crowd, "labels.parquet"), labels(crowd, "whole.csv")
    assert (updated.index == fitted.index).all()
    assert (updated["judgments"] == fitted["judgments"]).all()
    assert (updated["grade"].astype(int) == fitted["grade"].astype(int)).mean() > ALIKE
    assert updated["relevance"].corr(fitted["relevance"]) > 0.99
    assert len(crowd.table("people.csv")) == whole["assessors"]
    # The last file again changes no judgment. (An earlier one would bring back answers that were changed since.)
    again = crowd.json("aggregate", "--update", "model", "wednesday.csv", "-o", "labels.csv", "--iterations", "1000")
    assert (again["added"], again["replaced"] > 0, again["judgments"]) == (0, True, whole["judgments"])
    assert again["converged"]
    converged = labels(crowd, "labels.csv")
    assert np.abs(converged["relevance"] - fitted["relevance"]).max() < 0.05


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_interrupted_update_leaves_the_model_and_can_be_repeated(
    crowd: Terminal, number: signal.Signals, code: int
) -> None:
    never_converges = ("-s", "tol=0", "-s", "n_iter=5")
    crowd("aggregate", "monday.csv", "--unjudgeable", "-2", *never_converges, "-o", "labels.csv", "--save", "model")
    before = crowd.files()
    assert interrupt_update(crowd, number) == code
    assert crowd.files() == before
    crowd("aggregate", "--update", "model", "tuesday.csv", "--save", "other", "-o", "other.csv")
    repeated = crowd.json("aggregate", "--update", "model", "tuesday.csv", "-o", "labels.csv")
    assert repeated["added"] > 0
    assert crowd.path("labels.csv").read_bytes() == crowd.path("other.csv").read_bytes()


def test_a_day_with_a_wrong_row_changes_nothing(crowd: Terminal) -> None:
    crowd("aggregate", "monday.csv", "--unjudgeable", "-2", "-o", "labels.csv", "--save", "model")
    rows = crowd.path("tuesday.csv").read_text().splitlines()
    crowd.write("damaged.csv", "\n".join([*rows[:40], rows[40].rpartition(",")[0] + ",relevant", *rows[41:]]) + "\n")
    before = crowd.files()
    refused = crowd("aggregate", "--update", "model", "damaged.csv", "-o", "labels.csv", code=2)
    assert "damaged.csv" in refused.stderr
    assert "41" in refused.stderr
    assert crowd.files() == before


def test_one_file_that_grows_gives_the_labels_of_all_days(crowd: Terminal) -> None:
    for name in ("monday.csv", "tuesday.csv", "wednesday.parquet"):
        crowd("collect", "add", "all.csv", name, "--unjudgeable", "-2")
    content = crowd.path("all.csv").read_bytes()
    crowd("collect", "add", "all.csv", "wednesday.csv", "--unjudgeable", "-2")
    assert crowd.path("all.csv").read_bytes() == content
    grown = crowd.json("aggregate", "all.csv", "--unjudgeable", "-2", "-o", "grown.csv")
    whole = crowd.json("aggregate", *(f"{name}.csv" for name in DAYS), "--unjudgeable", "-2", "-o", "whole.csv")
    assert grown["judgments"] == whole["judgments"]
    found, expected = labels(crowd, "grown.csv"), labels(crowd, "whole.csv")
    assert (found["grade"] == expected["grade"]).all()
    assert np.allclose(found["relevance"], expected["relevance"], atol=1e-6)


def test_a_folder_of_days_is_processed_on_disk(crowd: Terminal) -> None:
    crowd.path("days").mkdir()
    words = ("aggregate", "days", "--unjudgeable", "-2", "-o", "consensus", "--work", "shards", "--checkpoint", "state")
    for number, name in enumerate(DAYS, start=1):
        crowd.path(f"days/{name}.parquet").symlink_to(crowd.path(f"{name}.parquet").resolve())
        crowd(*words)
        files = [f"{one}.parquet" for one in DAYS[:number]]
        crowd("aggregate", *files, "--unjudgeable", "-2", "-o", "memory.parquet", "--assessors", "people.parquet")
        parts = sorted(crowd.path("consensus/documents").glob("*.parquet"))
        on_disk = pd.concat(map(pd.read_parquet, parts)).set_index(["query", "document"]).sort_index()
        pd.testing.assert_frame_equal(on_disk, labels(crowd, "memory.parquet"))
        pd.testing.assert_frame_equal(crowd.table("consensus/assessors.parquet"), crowd.table("people.parquet"))
    assert not crowd.path("state").exists()
    refused = crowd("aggregate", "--update", "consensus", "monday.csv", code=2)
    assert "consensus" in refused.stderr
