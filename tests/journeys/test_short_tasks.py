"""Exports of crowd platforms in which most workers did a handful of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from .conftest import FULL, Terminal, take_part

GRADES = ("Not relevant", "Relevant", "Highly relevant")
BROKEN = "Broken link"
READ = ("--grades", ",".join(GRADES), "--unjudgeable", BROKEN)


def toloka(tasks: pd.DataFrame) -> str:
    """Return tasks (query, document, worker, answer) as Toloka exports them."""
    table = pd.DataFrame(
        {
            "INPUT:query": tasks["query"],
            "INPUT:document": tasks["document"],
            "OUTPUT:result": tasks["answer"],
            "ASSIGNMENT:assignment_id": range(len(tasks)),
            "ASSIGNMENT:status": "APPROVED",
            "ASSIGNMENT:worker_id": tasks["worker"],
        }
    )
    return table.to_csv(sep="\t", index=False)


def pair_accuracy(scores: pd.Series[float], gold: pd.DataFrame) -> float:
    """Return the share of pairs of documents of a query that scores order as the experts; ties count half."""
    right = n = 0.0
    for _, group in gold.assign(score=scores).groupby("query"):
        pairs = group.merge(group, how="cross")
        pairs = pairs[pairs["grade_x"] > pairs["grade_y"]]
        right += (pairs["score_x"] > pairs["score_y"]).sum() + (pairs["score_x"] == pairs["score_y"]).sum() / 2
        n += len(pairs)
    return right / n


def check_consensus(crowdrank: Terminal, tasks: pd.DataFrame) -> pd.DataFrame:
    """Aggregate an export in the folder, check the files and what the user is told; return the documents."""
    refused = crowdrank("aggregate", "export.tsv", "-o", "labels.csv", code=2)
    assert "export.tsv" in refused.stderr
    assert "--grades" in refused.stderr
    assert not crowdrank.path("labels.csv").exists()

    printed = crowdrank.json(
        "aggregate", "export.tsv", *READ, "-o", "labels.csv", "--assessors", "workers.csv", "--save", "model"
    )
    assert printed["rows"] == len(tasks)
    documents, workers = crowdrank.table("labels.csv"), crowdrank.table("workers.csv")
    judged = tasks.groupby(["query", "document"], sort=False).size().rename("n").reset_index()
    merged = documents.merge(judged, on=["query", "document"])
    assert len(merged) == len(documents) == len(judged)
    assert (merged["judgments"] == merged["n"]).all()
    assert set(documents["grade"]) <= set(GRADES)
    assert documents[["relevance", "sd", "lower", "upper"]].notna().all(axis=None)
    assert (documents["lower"] < documents["upper"]).all()
    assert dict(zip(workers["assessor"], workers["judgments"], strict=True)) == tasks["worker"].value_counts().to_dict()
    return documents


@pytest.mark.data
def test_toloka_export(data_folder: Path, crowdrank: Terminal) -> None:
    answers = pd.read_csv(data_folder / "trec-rf10/trec-rf10-data.txt.gz", sep="\t", dtype=str)
    answers = answers.drop_duplicates(["topicID", "workerID", "docID"])
    answers = take_part(answers[answers["gold"].isin(["0", "1", "2"])], "topicID", 25).groupby("workerID").head(6)
    names = dict(zip(["0", "1", "2", "-2"], [*GRADES, BROKEN], strict=True))
    columns = {"topicID": "query", "docID": "document", "workerID": "worker"}
    tasks = answers.rename(columns=columns).assign(answer=answers["label"].map(names)).reset_index(drop=True)
    crowdrank.write("export.tsv", toloka(tasks))
    documents = check_consensus(crowdrank, tasks)

    # The model of workers must not cost much against the plain average of their answers.
    points = tasks.assign(points=answers["label"].astype(int).clip(lower=0).to_numpy())
    average = points.groupby(["query", "document"])["points"].mean()
    gold = tasks.drop_duplicates(["query", "document"]).set_index(["query", "document"], drop=False)
    gold = gold.assign(grade=gold["gold"].astype(int)).reset_index(drop=True)
    keys = pd.MultiIndex.from_frame(gold[["query", "document"]])
    model = documents.set_index(["query", "document"])["relevance"]
    by_average = pair_accuracy(average.reindex(keys).reset_index(drop=True), gold)
    assert pair_accuracy(model.reindex(keys).reset_index(drop=True), gold) > by_average - 0.05

    crowdrank("run", "--judgments", "export.tsv", *READ, "-o", "out")
    notes = json.loads(crowdrank.path("out/run.json").read_text())["notes"]
    assert any(note["severity"] == "warning" and note["fixes"] for note in notes)  # groups without a common document
    assert len(crowdrank.table("out/consensus.parquet")) == len(documents)


@pytest.mark.data
def test_mturk_export_without_queries(data_folder: Path, crowdrank: Terminal) -> None:
    answers = pd.read_csv(data_folder / "web-5grade/label.csv", dtype=str)
    answers = answers if FULL else answers.groupby("worker").head(6)
    export = pd.DataFrame(
        {
            "HITId": answers["item"],
            "AssignmentStatus": "Approved",
            "WorkerId": "W" + answers["worker"],
            "Input.document": answers["item"],
            "Answer.relevance": answers["label"],
        }
    )
    export.to_csv(crowdrank.path("batch.csv"), index=False)
    printed = crowdrank.json("aggregate", "batch.csv", "-o", "labels.csv")
    documents = crowdrank.table("labels.csv")
    assert printed["rows"] == len(answers)
    assert len(documents) == answers["item"].nunique()
    assert documents["grade"].between(0, 4).all()
    votes = answers.assign(label=answers["label"].astype(int)).groupby("item")["label"].mean()
    assert documents["relevance"].corr(documents["document"].map(votes), method="spearman") > 0.8


def test_a_few_tasks(crowdrank: Terminal) -> None:
    answers = (*GRADES, BROKEN)
    rows = [
        (f"q{task % 3}", f"d{task}", f"w{(2 * task + worker) % 9}", answers[(task + worker // 2) % 4 if task else 0])
        for task in range(12)
        for worker in range(3)
    ]
    tasks = pd.DataFrame(rows, columns=["query", "document", "worker", "answer"])
    crowdrank.write("export.tsv", toloka(tasks))
    check_consensus(crowdrank, tasks)
