"""Two search systems, labels of LLM judges, and few expert grades: which is better, and how sure is that?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from .conftest import FULL, Terminal, take_part

RUNS = {"live": "terrier-BM25", "new": "nlm-bert-rr"}
JUDGES = ["gpt-4o_p32", "llama3.2_p0", "llama3.2_p15", "mistral_p0", "mistral_p15"]


@pytest.fixture
def nist(data_folder: Path, crowdrank: Terminal) -> pd.DataFrame:
    """Write two runs and labels of TREC DL20; return all expert grades."""
    ids = {"qid": str, "docid": str}
    systems = pd.read_csv(data_folder / "trec-dl20/judged_features.tsv.gz", sep="\t", dtype=ids)
    systems = take_part(systems.rename(columns={"qid": "query", "docid": "document"}), "query", 30)
    for name, column in RUNS.items():
        scores = systems[["query", "document"]].assign(score=systems[column]).dropna()
        scores.to_csv(crowdrank.path(f"{name}.csv"), index=False)
    labels = pd.read_csv(data_folder / "trec-dl20/llm_graded_labels.tsv.gz", sep="\t", dtype=ids)
    labels = labels[labels["qid"].isin(systems["query"]) & (FULL | labels["judge"].isin(JUDGES))]
    labels.to_csv(crowdrank.path("labels.tsv"), sep="\t", index=False)
    crowdrank("aggregate", "labels.tsv", "--family-pattern", "(.*)_", "-o", "consensus.parquet")
    return systems[["query", "document", "nist_grade"]].rename(columns={"nist_grade": "grade"})


def mean_dcg(run: pd.DataFrame, grades: pd.DataFrame, *, normalized: bool) -> float:
    """Return the mean DCG@10 or nDCG@10 over queries, from the definition."""
    discounts = 1 / np.log2(np.arange(2, 12))
    values = []
    for query, graded in grades.groupby("query"):
        gains = 2.0 ** graded.set_index("document")["grade"] - 1
        ranked = run[run["query"] == query].sort_values("score", ascending=False, kind="stable")["document"][:10]
        best = np.sort(gains.to_numpy())[::-1][:10] @ discounts[: len(gains)]
        values.append(gains.reindex(ranked).to_numpy() @ discounts[: len(ranked)] / (best if normalized else 1))
    return float(np.mean(values))


def check(estimate: Any, truth: dict[str, float], highest: float) -> None:
    """Check that intervals contain what all expert grades say, and that no value is out of range."""
    live, new = estimate["runs"]
    for run in (live, new):
        values = [run[name] for name in ("lower", "estimate", "upper", "labels_only", "experts_only")]
        assert values[0] <= values[1] <= values[2]
        assert min(values) >= 0
        assert max(values) <= highest
    difference = truth["new"] - truth["live"]
    assert new["difference_lower"] <= difference <= new["difference_upper"]
    assert new["difference_lower"] < new["difference_upper"]
    assert 0 < new["p_holm"] <= 1


@pytest.mark.data
def test_experts_graded_some_queries(nist: pd.DataFrame, crowdrank: Terminal) -> None:
    graded = nist["query"].drop_duplicates()[::3]
    nist[nist["query"].isin(graded)].to_csv(crowdrank.path("expert.csv"), index=False)
    estimate = crowdrank.json(
        "estimate", "live.csv", "new.csv", "--labels", "consensus.parquet", "--expert", "expert.csv"
    )
    assert (estimate["unit"], estimate["measure"], estimate["expert_queries"]) == ("query", "nDCG@10", len(graded))
    truth = {name: mean_dcg(crowdrank.table(f"{name}.csv"), nist, normalized=True) for name in RUNS}
    check(estimate, truth, 1)
    for run in estimate["runs"]:
        assert run["lower"] <= truth[run["run"]] <= run["upper"]
        assert abs(run["labels_only"] - truth[run["run"]]) > 0.05  # labels alone are wrong about the level


@pytest.mark.data
def test_experts_graded_some_documents(nist: pd.DataFrame, crowdrank: Terminal) -> None:
    truth = {name: mean_dcg(crowdrank.table(f"{name}.csv"), nist, normalized=False) for name in RUNS}
    compare = ("--policy", "compare", "--runs", "live.csv,new.csv", "--labels", "consensus.parquet", "--kind", "expert")
    widths = []
    for number, name in enumerate(("first", "second"), 1):
        crowdrank("collect", "next", "expert.csv", *compare, "--budget", 60, "-o", f"sample-{name}.csv")
        sample = crowdrank.table(f"sample-{name}.csv")
        assert len(sample) == 60
        assert sample["draw"].nunique() == 1
        assert sample["probability"].between(0, 1, inclusive="right").all()
        sample.merge(nist, on=["query", "document"]).to_csv(crowdrank.path(f"graded-{name}.csv"), index=False)
        experts = ("--labels", "consensus.parquet", "--expert", "graded-*.csv")
        estimate = crowdrank.json("estimate", "live.csv", "new.csv", *experts, "--measure", "DCG@10")
        assert (estimate["unit"], estimate["expert_grades"]) == ("document", 60 * number)
        check(estimate, truth, 7 * (1 / np.log2(np.arange(2, 12))).sum())
        widths.append(estimate["runs"][1]["difference_upper"] - estimate["runs"][1]["difference_lower"])
        by_default = crowdrank.json("estimate", "live.csv", "new.csv", *experts)
        assert all(run["lower"] >= 0 and run["upper"] <= 1 for run in by_default["runs"])
    assert widths[1] < 1.2 * widths[0]  # the error of few grades is itself an estimate
    both = [crowdrank.table(f"graded-{name}.csv") for name in ("first", "second")]
    assert not pd.concat(both).duplicated(["query", "document"]).any()
    assert pd.concat(both)["draw"].nunique() == 2
