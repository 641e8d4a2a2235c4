"""Labels of 33 LLM judges of seven teams, three of them off the scale, to a report on labels and judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from .conftest import FULL, OpenReport, Terminal

SECTIONS = ["answers", "assessors", "documents", "protocol"]
OPTIONS = ("--family-pattern", "([^-]*)-")


def check_report(report: OpenReport, judges: int) -> None:
    """Check that a report on labels has all sections, with their tables and charts."""
    assert report.sections() == SECTIONS
    shown = report.tables()
    assert shown["assessors"] == min(judges, 12)
    assert min(shown[name] for name in ("pairs", "disputed", "next")) > 0
    assert report.charts("assessors") >= 3
    assert report.charts("documents") >= 1


@pytest.mark.data
def test_33_judges_to_a_report(
    data_folder: Path, crowdrank: Terminal, open_report: Callable[[Path], OpenReport]
) -> None:
    labels = pd.read_csv(data_folder / "llmjudge-dl23/llm_graded_labels.tsv.gz", sep="\t")
    stray = labels[labels["label"] > 3]
    if not FULL:
        pool = labels.loc[labels["qid"].isin(stray["qid"]), "docid"].drop_duplicates()
        labels = labels[labels["docid"].isin([*pool[::10], *stray["docid"]])]
    labels.to_csv(crowdrank.path("labels.tsv.gz"), sep="\t", index=False)
    n_documents = len(labels.drop_duplicates(["qid", "docid"]))
    sizes = {"judgments": len(labels), "assessors": 33, "documents": n_documents}

    # The first try: all labels count, and the run says what looks wrong with them.
    crowdrank("run", "--judgments", "labels.tsv.gz", *OPTIONS, "-o", "out")
    result = json.loads(crowdrank.path("out/run.json").read_text())
    assert {name: result["sizes"][name] for name in sizes} == sizes
    assert any(fix["parameter"] == "grades" for note in result["notes"] for fix in note["fixes"]), result["notes"]
    check_report(open_report(crowdrank.path("out/report.html")), 33)

    # With the scale, one message names the first bad row; then the rest is left out and counted.
    refused = crowdrank("run", "--judgments", "labels.tsv.gz", *OPTIONS, "--grades", "0-3", "-o", "clean", code=2)
    assert "labels.tsv.gz" in refused.stderr
    assert "--on-bad-rows skip" in " ".join(refused.stderr.split())
    assert not crowdrank.path("clean").exists()
    clean = (*OPTIONS, "--grades", "0-3", "--on-bad-rows", "skip")
    crowdrank("run", "--judgments", "labels.tsv.gz", *clean, "-o", "clean")
    result = json.loads(crowdrank.path("clean/run.json").read_text())
    assert result["sizes"]["judgments"] == len(labels) - len(stray)
    assert "rows-skipped" in [note["kind"] for note in result["notes"]]
    check_report(open_report(crowdrank.path("clean/report.html")), 33)
    documents = crowdrank.table("clean/consensus.parquet")
    assert len(documents) == n_documents
    assert documents["grade"].between(0, 3).all()
    assert documents[["p0", "p1", "p2", "p3"]].to_numpy().sum(axis=1) == pytest.approx(1)

    # Seven teams say less than 33 independent judges.
    crowdrank("aggregate", "labels.tsv.gz", *clean[2:], "-o", "independent.csv")
    assert documents["sd"].mean() > crowdrank.table("independent.csv")["sd"].mean()


def test_six_judges_to_a_report(crowdrank: Terminal, open_report: Callable[[Path], OpenReport]) -> None:
    judges = ("gpt-a", "gpt-b", "gpt-c", "llama-a", "llama-b", "mistral-a")
    rows = [
        f"{judge},q{query},q{query}d{document},{min(3, max(0, document % 4 + (len(judge) + document * query) % 3 - 1))}"
        for judge in judges
        for query in range(4)
        for document in range(12)
    ]
    rows[7] = rows[7][:-1] + "10"
    crowdrank.write("labels.csv", "\n".join(["judge,qid,docid,label", *rows, ""]))
    crowdrank("run", "--judgments", "labels.csv", *OPTIONS, "-o", "out")
    assert max(crowdrank.table("out/consensus.parquet")["grade"]) <= 10
    check_report(open_report(crowdrank.path("out/report.html")), len(judges))
