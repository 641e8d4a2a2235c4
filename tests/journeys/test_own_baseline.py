"""A ranker against what a team has today, a feature or its own run, and its export to search engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankers.export.engine_evaluators import EVALUATORS

from .conftest import FULL, OpenReport, Terminal, take_part

pytestmark = pytest.mark.data

GRADES = "Not Relevant (0),Relevant (1),Highly Relevant (2),Perfectly Relevant (3)"
ODD_NAME = "BM25: title/body"
COLUMNS = {"bm25base_ax_p": ODD_NAME, "bm25base_rm3_p": "rm3", "UNH_bm25": "UNH_bm25", "p_exp_rm3_bert": "bert"}
"""Systems whose scores are the features, and the names that the team gives them."""
REFUSING_ENGINES = ("solr", "vespa", "lightgbm") if FULL else ("solr",)
"""Engines in which a name cannot have spaces, colons and slashes; tests of exports have all of them."""
SETTINGS = f"""
judgments = ["people"]
grades = "{GRADES}"
features = "features.tsv"
expert = "experts.qrels"
candidates = "majority,gda,gls"

[trees]
n_estimators = 40
"""


@pytest.fixture
def team(crowdrank: Terminal, data_folder: Path) -> Terminal:
    """Return a terminal in a folder with answers of people, features, expert grades, a run and settings."""
    source = data_folder / "dl19-people"
    ids = {"qid": str, "docid": str}
    rows = take_part(pd.read_csv(source / "judged_features.tsv.gz", sep="\t", dtype=ids), "qid", 12)
    queries = set(rows["qid"])
    rows[["qid", "docid", *COLUMNS]].rename(columns=COLUMNS).to_csv(
        crowdrank.path("features.tsv"), sep="\t", index=False
    )
    for path in sorted((source / "main").glob("annotator-*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["query_id"] in queries]
        crowdrank.write(f"people/{path.name}", "\n".join(kept) + "\n")
    grades = (source / "qrels.dl19-passage.txt").read_text().splitlines()
    crowdrank.write("experts.qrels", "\n".join(line for line in grades if line.split()[0] in queries) + "\n")
    write_run(crowdrank, "live.trec", rows, "bm25tuned_ax_p")
    write_run(crowdrank, "bm25.trec", rows, "bm25base_ax_p")
    crowdrank.write("run.toml", SETTINGS)
    return crowdrank


def write_run(terminal: Terminal, name: str, rows: pd.DataFrame, column: str) -> None:
    """Write the scores of a system as a TREC run."""
    ranked = rows[["qid", "docid", column]].dropna().sort_values(["qid", column], ascending=[True, False])
    ranks = ranked.groupby("qid").cumcount() + 1
    lines = [f"{q} Q0 {d} {rank} {score} live" for (q, d, score), rank in zip(ranked.to_numpy(), ranks, strict=True)]
    terminal.write(name, "\n".join(lines) + "\n")


def scores_on_test(terminal: Terminal, folder: str, candidate: str) -> pd.Series:
    """Return nDCG@10 of a candidate on each test query, from the files of a run."""
    table = terminal.table(f"{folder}/per_query.csv")
    return table[table["candidate"] == candidate].set_index("query")["nDCG@10"]


def scores_of_run(terminal: Terminal, run: str) -> pd.Series:
    """Return nDCG@10 of a TREC run on each query, by `crowdrank evaluate`."""
    terminal("evaluate", run, "--expert", "experts.qrels", "--measures", "nDCG@10", "--per-query", "scores.csv")
    return terminal.table("scores.csv").set_index("query")["nDCG@10"]


def check_baseline(terminal: Terminal, folder: str, baseline: str, run: str) -> None:
    """Check that all differences are against the baseline, whose scores are those of the run."""
    result = json.loads(terminal.path(f"{folder}/run.json").read_text())
    assert result["rankers"]["baseline"] == baseline
    table = terminal.table(f"{folder}/comparison.csv").set_index("candidate")
    assert set(table.index) >= {"majority", "gda", "gls", baseline}
    means = table["nDCG@10 mean"].astype(float)
    assert np.allclose(means - means[baseline], table["nDCG@10 difference"].astype(float), atol=1e-9)
    tested = scores_on_test(terminal, folder, baseline)
    assert len(tested) == table.loc[baseline, "test_queries"]
    assert np.allclose(tested, scores_of_run(terminal, run)[tested.index], atol=1e-9)


def export(terminal: Terminal, folder: str, engine: str) -> pd.DataFrame:
    """Export a ranker, and check that the engine computes the scores of the check file; return this file."""
    output = f"{folder}-{engine}"
    terminal("export", f"{folder}/deployable", "--to", engine, "--name", "products", "-o", output)
    check = pd.read_csv(terminal.path(f"{output}/parity.csv"))
    names = [name for name in check.columns if name != "expected_score"]
    rows = check[names].to_numpy(np.float32)
    assert np.ptp(check["expected_score"]) > 0.1
    assert np.allclose(EVALUATORS[engine](terminal.path(output), rows, names), check["expected_score"], atol=1e-5)
    return check


def rank_check_file(terminal: Terminal, folder: str, check: pd.DataFrame) -> None:
    """Check that `crowdrank rank` gives the scores of the check file to its rows."""
    documents = [f"d{number}" for number in range(len(check))]
    check.assign(query="q", document=documents).to_csv(terminal.path("check.csv"), index=False)
    terminal("rank", "--model", f"{folder}/deployable", "--features", "check.csv", "-o", "check-scores.csv")
    ranked = terminal.table("check-scores.csv").set_index("document")["score"]
    assert np.allclose(ranked[documents], check["expected_score"], atol=1e-5)


def test_a_ranker_is_compared_with_a_feature_of_any_name(
    team: Terminal, open_report: Callable[[Path], OpenReport]
) -> None:
    words = ("run", "run.toml", "--baseline", f"feature:{ODD_NAME}", "-o", "out")
    team(*words)
    check_baseline(team, "out", f"feature:{ODD_NAME}", "bm25.trec")
    assert ODD_NAME in open_report(team.path("out/report.html")).text("main")
    first = {name: data for name, data in team.files().items() if name.startswith("out/") and "report" not in name}
    team(*words)  # from the cache, into the same folder
    again = team.files()
    assert [name for name, data in first.items() if again[name] != data and "profile" not in name] == [
        "out/crowdrank.json"
    ]

    team("rank", "--model", "out/model", "--features", "features.tsv", "-o", "new.trec")
    assert len(team.path("new.trec").read_text().splitlines()) == len(team.table("features.tsv"))
    assert len(scores_of_run(team, "new.trec")) == len(scores_of_run(team, "live.trec"))
    for engine in ("elasticsearch-ltr", "elasticsearch", "onnx"):
        check = export(team, "out", engine)
    rank_check_file(team, "out", check)
    for engine in REFUSING_ENGINES:
        refused = team("export", "out/deployable", "--to", engine, "-o", "refused", code=2)
        assert ODD_NAME in refused.stderr
        assert not team.path("refused").exists()


def test_a_ranker_is_compared_with_the_live_run(team: Terminal, open_report: Callable[[Path], OpenReport]) -> None:
    rows = team.table("features.tsv").rename(columns={ODD_NAME: "bm25"})
    rows.to_csv(team.path("features.tsv"), sep="\t", index=False)
    team("run", "run.toml", "--baseline", "live.trec", "--deployable", "-o", "out")
    check_baseline(team, "out", "live.trec", "live.trec")
    estimate = team.table("out/estimate.csv")
    assert {"live.trec"} < set(estimate.iloc[:, 0])
    assert "live.trec" in open_report(team.path("out/report.html")).text("main")
    for engine in ("solr", "vespa", "lightgbm", "opensearch-ltr"):
        export(team, "out", engine)


def test_a_feature_that_does_not_exist_is_refused_at_once(team: Terminal) -> None:
    before = team.files()
    refused = team("run", "run.toml", "--baseline", "feature:BM25 title/body", "-o", "out", code=2)
    assert ODD_NAME in refused.stderr
    assert team.files() == before
