"""LLM judges as assessors of labeling policies, and their requests as input of `judge prepare`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import CrowdrankError, UsageError

from .judging_project import Project

N_DOCUMENTS, N_JUDGED = 60, 40
ENDPOINT = {"endpoint": "http://127.0.0.1:9/v1", "model": "m"}
CHEAP, DEAR = {"input": 0.1, "output": 0.1}, {"input": 10.0, "output": 10.0}


@pytest.fixture
def labeled(project: Project) -> Project:
    """Return a project with labels of two equally good judges, of one who guesses, and of two people."""
    project.write_pairs(N_DOCUMENTS)
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 4, N_JUDGED)
    accuracy = {"cheap": 0.9, "dear": 0.9, "guessing": 0.25, "ann": 0.8, "bob": 0.8}
    rows = []
    for assessor, share in accuracy.items():
        grade = np.where(rng.random(N_JUDGED) < share, truth, rng.integers(0, 4, N_JUDGED))
        ids = [f"d{number}" for number in range(N_JUDGED)]
        rows.append(pd.DataFrame({"query": "q", "document": ids, "assessor": assessor, "grade": grade}))
    pd.concat(rows).to_csv("labels.csv", index=False)
    pool = pd.DataFrame({"query": "q", "document": [f"d{number}" for number in range(N_DOCUMENTS)]})
    pool.to_csv("pool.csv", index=False)
    return project


def collect_next(*words: object) -> dict[str, Any]:
    call = ["collect", "next", "labels.csv", "--pairs", "pool.csv", "-p", "entropy", "--grades", "0-3", "--json"]
    done = CliRunner().invoke(app, [*call, *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def judge_files() -> list[str]:
    texts = ["--texts", "docs.jsonl", "--texts", "queries.jsonl"]
    return ["--judges", "judges.toml", *texts]


def test_requests_of_a_policy_go_to_the_judge_that_they_name(labeled: Project, run: Callable[..., Any]) -> None:
    prices = {"cheap": CHEAP, "dear": DEAR, "guessing": CHEAP}
    labeled.write_judges(*({"name": name, **ENDPOINT, "prices": price} for name, price in prices.items()))
    collect_next("--budget", 0.01, *judge_files(), "-o", "requests.csv")
    requests = pd.read_csv("requests.csv")
    asked = Counter(requests["assessor"])
    assert len(requests) >= 10
    assert asked["cheap"] > 0
    assert asked["dear"] == 0  # as good as cheap, and 100 times as expensive
    assert asked["guessing"] < asked["cheap"]  # as cheap, and knows nothing
    estimated = requests.loc[requests["assessor"] == "cheap", "price"]
    assert 0 < estimated.mean() < 0.001
    run("prepare", *labeled.words, "-o", "batch.jsonl")
    lines = [json.loads(line) for line in Path("batch.jsonl").read_text().splitlines()]
    prepared = [tuple(line["custom_id"].split("/")[:3]) for line in lines]
    named = requests[["query", "document", "assessor"]].itertuples(index=False, name=None)
    assert sorted(prepared) == sorted(named)


def test_judges_and_people_compete_for_requests(labeled: Project) -> None:
    labeled.write_judges({"name": "cheap", **ENDPOINT, "prices": CHEAP})
    pd.DataFrame({"assessor": ["ann", "bob"], "kind": "human", "price": 0.05}).to_csv("people.csv", index=False)
    assessors = ["--assessors", "people.csv", *judge_files()]
    summary = collect_next("--budget", 1, *assessors, "--most", 45, "-o", "requests.csv")
    assert set(summary["kinds"]) == {"human", "llm"}
    assert summary["kinds"]["llm"]["cost"] < summary["kinds"]["human"]["cost"]


def test_a_price_of_labels_comes_before_an_estimate(labeled: Project) -> None:
    labeled.write_judges({"name": "cheap", **ENDPOINT, "prices": CHEAP}, {"name": "local", **ENDPOINT})
    collect_next("--budget", 2, "--judges", "judges.toml", "--prices", "llm=0.5", "-o", "requests.csv")
    assert pd.read_csv("requests.csv")["price"].tolist() == [0.5] * 4


def test_a_judge_without_prices_is_free(labeled: Project) -> None:
    labeled.write_judges({"name": "local", **ENDPOINT})
    summary = collect_next("--budget", 1, "--judges", "judges.toml", "-o", "requests.csv")
    assert summary["cost"] == 0
    assert summary["requests"] > 0


def test_the_price_of_a_label_needs_texts(labeled: Project) -> None:
    labeled.write_judges({"name": "cheap", **ENDPOINT, "prices": CHEAP})
    with pytest.raises(UsageError) as problem:
        collect_next("--budget", 1, "--judges", "judges.toml", "-o", "wanted.csv")
    assert (problem.value.kind, problem.value.message.parameter) == ("no-texts", "judges")
    assert not Path("wanted.csv").exists()


def test_a_judge_is_listed_once(labeled: Project) -> None:
    labeled.write_judges({"name": "ann", **ENDPOINT})
    pd.DataFrame({"assessor": ["ann"]}).to_csv("people.csv", index=False)
    with pytest.raises(CrowdrankError) as problem:
        collect_next("--budget", 1, "--assessors", "people.csv", "--judges", "judges.toml")
    assert problem.value.kind == "duplicate-assessor"
