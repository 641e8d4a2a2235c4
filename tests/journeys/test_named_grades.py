"""Grades with names, whose order is given once: every file that crowdrank writes from them can be read as it is."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from .conftest import FULL, Terminal

GRADES = ["Bad", "Fair", "Good", "Perfect"]
ESTIMATE = ("estimate", "live.csv", "new.csv", "--labels")
MEASURES = ("--measures", "nDCG@10,GradeAccuracy")


def values(estimate: Any) -> list[float]:
    """Return the numbers of an estimate that do not depend on how grades are written."""
    names = ("estimate", "lower", "upper", "labels_only", "difference")
    return [run[name] for run in estimate["runs"] for name in names]


def test_named_grades_are_ordered_once(crowdrank: Terminal) -> None:
    cells = [
        (f"q{query}", f"q{query}-d{document}", who, (document + query + (document * query + place) % 2) % 4)
        for query, document in itertools.product(range(10), range(8))
        for place, who in enumerate(("ann", "bob", "eve"))
    ]
    labels = pd.DataFrame(cells, columns=["query", "document", "assessor", "grade"])
    gold = labels.drop_duplicates(["query", "document"])[["query", "document", "grade"]].reset_index(drop=True)
    named = labels.assign(grade=labels["grade"].map(dict(enumerate(GRADES))))
    named.to_csv(crowdrank.path("named.csv"), index=False)
    named.to_parquet(crowdrank.path("named.parquet"), index=False)
    labels.to_csv(crowdrank.path("numbers.csv"), index=False)
    gold.to_csv(crowdrank.path("expert-numbers.csv"), index=False)
    gold.assign(grade=gold["grade"].map(dict(enumerate(GRADES)))).to_csv(crowdrank.path("expert.csv"), index=False)
    for name, noise in (("live", 3), ("new", 1)):
        scores = gold["grade"] + noise * pd.Series(range(len(gold))).mul(7).mod(5).div(5)
        gold[["query", "document"]].assign(score=scores).to_csv(crowdrank.path(f"{name}.csv"), index=False)

    # The same with numbers, which need no order.
    crowdrank("aggregate", "numbers.csv", "-o", "numbers-consensus.csv")
    grades = crowdrank.table("numbers-consensus.csv")["grade"].map(dict(enumerate(GRADES))).tolist()
    without = values(crowdrank.json(*ESTIMATE, "numbers-consensus.csv"))
    with_experts = values(crowdrank.json(*ESTIMATE, "numbers-consensus.csv", "--expert", "expert-numbers.csv"))
    scored = crowdrank.json("evaluate", "numbers-consensus.csv", "--expert", "expert-numbers.csv", *MEASURES)["means"]

    order = ("--grades", ",".join(GRADES))
    crowdrank("aggregate", "named.csv", *order, "-o", "consensus.csv")
    crowdrank("aggregate", "named.parquet", *order, "-o", "consensus.parquet")
    crowdrank("run", "--judgments", "named.csv", *order, "--expert", "expert.csv", "--no-calibrate", "-o", "out")
    for consensus in ("consensus.csv", "consensus.parquet", "out/consensus.parquet"):
        assert crowdrank.table(consensus)["grade"].tolist() == grades
        estimate = crowdrank.json(*ESTIMATE, consensus, "--expert", "expert.csv")
        assert values(estimate) == pytest.approx(with_experts, abs=1e-9)
        assert crowdrank.json("evaluate", consensus, "--expert", "expert.csv", *MEASURES)["means"] == scored
    assert values(crowdrank.json(*ESTIMATE, "consensus.csv")) == pytest.approx(without, abs=1e-9)
    crowdrank("validate", "consensus.csv")

    # Experts who grade a sample in words do not repeat the order either.
    compare = ("--policy", "compare", "--runs", "live.csv,new.csv", "--labels", "consensus.csv", "--kind", "expert")
    crowdrank("collect", "next", "asked.csv", *compare, "--budget", 20, "-o", "sample.csv")
    sample = crowdrank.table("sample.csv").merge(crowdrank.table("expert.csv"), on=["query", "document"])
    sample.to_csv(crowdrank.path("graded.csv"), index=False)
    few = crowdrank.json(*ESTIMATE, "consensus.csv", "--expert", "graded.csv")
    assert (few["unit"], few["expert_grades"]) == ("document", 20)


def test_labels_of_people_and_grades_of_experts(data_folder: Path, crowdrank: Terminal) -> None:
    """Labels that end in (0) to (3), and experts with numbers, need no order at all."""
    people = data_folder / "dl19-people"
    every = 1 if FULL else 6
    for path in sorted((people / "main").glob("*.jsonl")):
        crowdrank.write(f"main/{path.name}", "".join(path.read_text().splitlines(keepends=True)[::every]))
    systems = pd.read_csv(people / "judged_features.tsv.gz", sep="\t", dtype={"qid": str, "docid": str})
    for name, column in {"live": "bm25base_p", "new": "TUW19-p1-re"}.items():
        scores = systems[["qid", "docid"]].assign(score=systems[column]).dropna()
        scores.to_csv(crowdrank.path(f"{name}.csv"), index=False)
    crowdrank.write("nist.qrels", (people / "qrels.dl19-passage.txt").read_text())
    for consensus in ("consensus.csv", "consensus.parquet"):
        crowdrank("aggregate", "main", "-o", consensus)
        estimate = crowdrank.json(*ESTIMATE, consensus, "--expert", "nist.qrels")
        assert estimate["expert_grades"] == 9260
        live, new = (run["estimate"] for run in estimate["runs"])
        assert 0 < live < new < 1
