"""Eight people label in doccano: a folder of exports, with repeats, to who is strict and what the labels are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from .conftest import FULL, Terminal

GRADES = ["Not Relevant (0)", "Relevant (1)", "Highly Relevant (2)", "Perfectly Relevant (3)"]


def doccano(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def answers_of(crowdrank: Terminal, *folders: str) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the last answer of each person to each document, and how many rows are not answers."""
    last: dict[tuple[str, str, str], int] = {}
    other: Counter[str] = Counter()
    for path in (path for folder in folders for path in sorted(crowdrank.path(folder).glob("*.jsonl"))):
        for row in map(json.loads, path.read_text().splitlines()):
            key = (row["query_id"], row["doc_id"], path.stem)
            if len(row["label"]) != 1:
                other["several labels" if row["label"] else "not labeled"] += 1
            else:
                other["repeats"] += key in last
                last[key] = GRADES.index(row["label"][0])
    columns = ["query", "document", "assessor", "grade"]
    return pd.DataFrame([(*key, grade) for key, grade in last.items()], columns=columns), other


def check_labels(crowdrank: Terminal, *folders: str) -> tuple[pd.DataFrame, Any]:
    """Aggregate folders as they are; check that each row is used or counted. Return the documents and the printout."""
    answers, other = answers_of(crowdrank, *folders)
    printed = crowdrank.json("aggregate", *folders, "-o", "labels.csv", "--assessors", "people.csv")
    assert printed["judgments"] == len(answers)
    assert printed["repeats"] == other["repeats"]
    assert printed["skipped"] == {reason: n for reason, n in other.items() if reason != "repeats" and n}
    assert printed["rows"] == len(answers) + other.total()
    people = crowdrank.table("people.csv")
    assert dict(zip(people["assessor"], people["judgments"], strict=True)) == Counter(answers["assessor"])
    documents = crowdrank.table("labels.csv")
    assert set(documents["grade"]) <= set(GRADES)
    assert len(documents) == len(answers.drop_duplicates(["query", "document"]))
    return documents, printed


def check_strictness(crowdrank: Terminal, folder: str) -> None:
    """Check that people who judged the same documents are ordered from strict to lenient by their mean grade."""
    means = answers_of(crowdrank, folder)[0].groupby("assessor")["grade"].mean()
    people = {row["assessor"]: row for row in crowdrank.json("assessors", folder)["assessors"]}
    assert set(people) == set(means.index)
    bias = pd.Series({name: row["bias"] for name, row in people.items()})
    assert bias.corr(means, method="spearman") > 0.9
    assert people[means.idxmin()]["flag"] in ("strict", "")
    assert people[means.idxmax()]["flag"] in ("lenient", "")
    assert "strict" in {row["flag"] for row in people.values()}


def check_trace(crowdrank: Terminal, folder: str, documents: pd.DataFrame) -> None:
    """Check that a trace shows each person's answer to a document, and ends at its label."""
    answers = answers_of(crowdrank, folder)[0]
    query, document = answers.loc[0, ["query", "document"]]
    mine = answers[(answers["query"] == query) & (answers["document"] == document)]
    steps = crowdrank.json("trace", folder, "--query", query, "--document", document)["steps"]
    expected = {who: GRADES[grade] for who, grade in zip(mine["assessor"], mine["grade"], strict=True)}
    assert {step["assessor"]: step["given"] for step in steps} == expected
    label = documents[(documents["query"] == query) & (documents["document"] == document)].iloc[0]
    assert steps[-1]["grade"] == label["grade"]
    assert steps[-1]["relevance"] == pytest.approx(label["relevance"], abs=1e-3)


def test_eight_people(data_folder: Path, crowdrank: Terminal) -> None:
    for folder in ("main", "agreement"):
        for path in sorted((data_folder / "dl19-people" / folder).iterdir()):
            lines = path.read_text().splitlines(keepends=True)
            every = 1 if FULL or folder == "agreement" or path.suffix == ".json" else 6
            crowdrank.write(f"{folder}/{path.name}", "".join(lines[::every]))

    documents, printed = check_labels(crowdrank, "main", "agreement")
    assert printed["assessors"] == 8
    assert printed["repeats"] > 400
    columns = ["query", "iteration", "document", "grade"]
    nist = pd.read_csv(data_folder / "dl19-people/qrels.dl19-passage.txt", sep=" ", names=columns, dtype=str)
    both = documents.merge(nist, on=["query", "document"], suffixes=("", "_nist"))
    assert len(both) == len(documents)
    assert both["relevance"].corr(both["grade_nist"].astype(int), method="spearman") > 0.4

    # The eight judged the same documents in the agreement phase only: who is strict can be read from it.
    documents, _ = check_labels(crowdrank, "agreement")
    assert set(documents["judgments"]) <= {7, 8}
    check_strictness(crowdrank, "agreement")
    check_trace(crowdrank, "agreement", documents)

    # One name for eight people is refused, with the files.
    refused = crowdrank("assessors", "agreement", "--assessor-name", "annotator-6", code=2)
    assert "--assessor-name" in refused.stderr


def test_three_people(crowdrank: Terminal) -> None:
    shift = {"ann": 0, "bob": -1, "eve": 1}
    for name, more in shift.items():
        rows = [
            {
                "id": number,
                "text": "a passage",
                "query": "what is jam",
                "query_id": f"q{number % 4}",
                "doc_id": f"d{number}",
                "label": [GRADES[min(3, max(0, number % 4 + (more if number % 3 else 0)))]],
            }
            for number in range(40)
        ]
        if name == "bob":
            rows = [*rows[:10], {**rows[10], "label": []}, {**rows[11], "label": GRADES[:2]}, *rows]
        crowdrank.write(f"export/{name}.jsonl", doccano(rows))
    config = [{"id": number, "text": grade, "suffixKey": str(number)} for number, grade in enumerate(GRADES)]
    crowdrank.write("export/label_config.json", json.dumps(config))
    documents, printed = check_labels(crowdrank, "export")
    assert (printed["assessors"], printed["repeats"]) == (3, 10)
    check_strictness(crowdrank, "export")
    check_trace(crowdrank, "export", documents)
