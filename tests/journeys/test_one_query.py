"""One query with 11,000 documents, judged by 825 people: labels, the choice of a method, and a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from .conftest import FULL, OpenReport, Terminal

READ = ("--columns", "assessor=w")
ENOUGH_MEMORY = 1.5e9
"""Bytes; the whole file needs 0.6e9."""


def check_labels(crowdrank: Terminal, documents: int) -> None:
    """Label, let auto choose, and write a report on a file with the columns w, item and label."""
    refused = crowdrank("aggregate", "labels.csv", "-o", "labels.parquet", code=2)
    assert "--columns assessor=" in refused.stderr
    assert "'w', 'item', 'label'" in refused.stderr

    crowdrank("aggregate", "labels.csv", *READ, "-o", "labels.parquet")
    labels = crowdrank.table("labels.parquet")
    assert len(labels) == documents
    assert labels["query"].nunique() == 1
    assert labels["grade"].between(0, 3).all()

    chosen = crowdrank.json("aggregate", "labels.csv", *READ, "-m", "auto", "-o", "auto.parquet")
    assert len(crowdrank.table("auto.parquet")) == documents
    assert {row["method"] for row in chosen["choice"] if row["grades"] is not None} >= {"average", "dawid-skene", "gda"}
    assert [row["method"] for row in chosen["choice"] if row["chosen_for"]]

    crowdrank("run", "--judgments", "labels.csv", *READ, "--expert", "truth.csv", "-o", "out")
    assert json.loads(crowdrank.path("out/profile.json").read_text())["peak_bytes"] < ENOUGH_MEMORY
    assert len(crowdrank.table("out/consensus.parquet")) == documents


def check_report(report: OpenReport) -> None:
    assert report.sections() == ["answers", "assessors", "documents", "protocol"]
    assert min(report.tables().values()) > 0
    assert report.charts("assessors") > 0
    assert report.charts("documents") > 0


@pytest.mark.data
def test_a_large_query(data_folder: Path, crowdrank: Terminal, open_report: Callable[[Path], OpenReport]) -> None:
    labels = pd.read_csv(data_folder / "adult-content-2/labels.csv")
    truth = pd.read_csv(data_folder / "adult-content-2/truth.csv")
    if not FULL:
        items = [*truth["item"][::2], *labels["item"].drop_duplicates()[::40]]
        labels = labels[labels["item"].isin(items)]
    labels.to_csv(crowdrank.path("labels.csv"), index=False)
    truth.to_csv(crowdrank.path("truth.csv"), index=False)
    check_labels(crowdrank, labels["item"].nunique())
    check_report(open_report(crowdrank.path("out/report.html")))
    assert crowdrank.path("out/report.html").stat().st_size < 5_000_000
    flagged = crowdrank.table("out/assessors.csv")
    assert len(flagged) == labels["w"].nunique()


def test_a_small_query(crowdrank: Terminal, open_report: Callable[[Path], OpenReport]) -> None:
    rows = [f"w{worker},i{item},{(item + (item * worker) % 2) % 4}" for item in range(30) for worker in range(5)]
    crowdrank.write("labels.csv", "\n".join(["w,item,label", *rows, ""]))
    crowdrank.write("truth.csv", "item,truth\n" + "".join(f"i{item},{item % 4}\n" for item in range(0, 30, 3)))
    check_labels(crowdrank, 30)
    check_report(open_report(crowdrank.path("out/report.html")))
