"""Test the estimate of the selected ranker and of a baseline that is a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.pipeline.baseline_estimate import estimate_rows
from crowdrank.pipeline.result_tables import markdown
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_result import RunResult
from crowdrank.reports import page
from crowdrank.reports.page import SECTIONS
from crowdrank.reports.report_data import ReportData
from crowdrank.simulation.world import World

QUICK: dict[str, Any] = {
    "candidates": ["average", "gls"],
    "trees": {"n_estimators": 3},
    "forest": {"n_trees": 3},
    "method": "majority",
    "refit": False,
}
PAIR = ["query", "document"]


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=30, random_state=1)


def write_run(path: Path, run: pd.DataFrame) -> str:
    lines = [f"{row.query} Q0 {row.document} 1 {row.score} live\n" for row in run.itertuples()]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def live(world: World) -> pd.DataFrame:
    """Return a ranking whose first document of each third query is in no other file."""
    noise = np.random.default_rng(0).normal(0, 2, len(world.documents))
    ranked = world.documents[PAIR].assign(score=world.documents["relevance"] + noise)
    unknown = pd.DataFrame({"query": world.documents["query"].unique()[::3], "document": "elsewhere", "score": 99.0})
    return pd.concat([ranked, unknown])


@pytest.fixture(scope="module")
def finished(world: World, live: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    folder = tmp_path_factory.mktemp("estimates")
    baseline = write_run(folder / "live.trec", live)
    output = folder / "out"
    return run(
        world.judgments, world.features, world.gold, baseline=baseline, output=output, calibrate=False, **QUICK
    ), output


def test_figures_are_those_of_the_test_queries(
    world: World, live: pd.DataFrame, finished: tuple[RunResult, Path]
) -> None:
    result, _ = finished
    assert result.rankers is not None
    assert result.estimate is not None
    queries = result.rankers.test_queries
    honeypots = world.judgments.loc[world.judgments["honeypot"].notna(), PAIR].drop_duplicates()
    tables = []
    for table in (live, world.gold):
        of_test = table[table["query"].astype(str).isin(queries)].merge(honeypots, "left", PAIR, indicator=True)
        tables.append(of_test[of_test["_merge"] == "left_only"].drop(columns="_merge"))
    ranking, gold = tables
    labels = result.tables["documents"].to_pandas()
    labels = labels[labels["query"].astype(str).isin(queries)][[*PAIR, "grade", "p0", "p1", "p2", "p3", "p4"]]
    row = result.estimate.table.set_index("run").loc["live.trec"]
    assert row["estimate"] == pytest.approx(np.nan_to_num(evaluate(ranking, gold, "nDCG@10").values("nDCG@10")).mean())
    expected = np.nan_to_num(evaluate(ranking, labels, "nDCG@10").values("nDCG@10")).mean()
    assert row["labels_only"] == pytest.approx(expected)
    assert row["bias"] == pytest.approx(row["labels_only"] - row["estimate"])
    assert row["graded"] == pytest.approx(evaluate(ranking, gold, "Judged@10").means["Judged@10"])
    assert (result.estimate.n_queries, result.estimate.n_expert_queries) == (len(queries), len(queries))


def test_labels_of_other_queries_are_not_used(finished: tuple[RunResult, Path]) -> None:
    result, _ = finished
    assert result.estimate is not None
    table = result.estimate.table.set_index("run")
    assert table["estimate"].tolist() == table["experts_only"].tolist()
    assert table["weight"].tolist() == [0.0, 0.0]
    chosen = table.loc[result.chosen]
    assert chosen["difference_lower"] < chosen["difference"] < chosen["difference_upper"]
    assert result.estimate.baseline == "live.trec"


def test_documents_outside_of_the_data_are_warned_about(finished: tuple[RunResult, Path]) -> None:
    result, _ = finished
    assert result.estimate is not None
    table = result.estimate.table.set_index("run")
    assert table.loc["live.trec", "judged"] < 1
    kinds = [warning.kind for warning in result.estimate.warnings]
    assert {"unlabeled-documents", "ungraded-documents", "no-features"} <= set(kinds)


def test_a_saved_run_and_its_reports_have_the_estimate(
    finished: tuple[RunResult, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder = finished
    again = RunResult.load(folder)
    assert result.estimate is not None
    assert again.estimate is not None
    pd.testing.assert_frame_equal(again.estimate.table, result.estimate.table)
    assert again.estimate.to_dict() == result.estimate.to_dict()
    assert [message.kind for message in again.estimate.warnings] == [one.kind for one in result.estimate.warnings]
    monkeypatch.setattr(page, "draw_figures", lambda data: dict.fromkeys(SECTIONS, ()))  # charts take seconds
    shown = page.render(ReportData(again, folder))
    for row in estimate_rows(result.estimate):
        assert all(cell in markdown(result) for cell in list(row.values())[1:3])
        assert list(row.values())[2].replace("-", "−") in shown


def test_other_baselines_have_no_estimate(world: World) -> None:
    result = run(world.judgments, world.features, world.gold, baseline="average", **QUICK)
    assert result.estimate is None
    assert "estimate" not in result.tables


def test_test_queries_without_labels_are_noted(world: World, live: pd.DataFrame, tmp_path: Path) -> None:
    judgments = world.judgments[~world.judgments["query"].isin(world.gold["query"].unique())]
    baseline = write_run(tmp_path / "live.trec", live)
    result = run(judgments, world.features, world.gold, baseline=baseline, **QUICK)
    assert result.estimate is None
    assert [note.kind for note in result.notes if note.severity == "note"].count("no-estimate") == 1


def test_expert_grades_on_another_scale_are_mapped(world: World, live: pd.DataFrame, tmp_path: Path) -> None:
    binary = world.gold.assign(grade=(world.gold["grade"] >= 2).astype(int))
    baseline, measures = write_run(tmp_path / "live.trec", live), {"measure": "nDCG@5"}
    options = {"baseline": baseline, **measures, **QUICK}
    result = run(world.judgments, world.features, binary, expert_map="0=0-1,1=2-4", **options)
    assert result.estimate is not None
    assert result.estimate.table["labels_only"].between(0, 1).all()
    unmapped = run(world.judgments, world.features, binary, **options)
    assert unmapped.estimate is None
    assert "no-estimate" in [note.kind for note in unmapped.notes]
