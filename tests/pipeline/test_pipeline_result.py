"""The result of a run: saving, loading, labels alone, and earlier results of the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crowdrank
from crowdrank.errors import InputError
from crowdrank.pipeline.run_result import RunResult
from crowdrank.simulation.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=30, documents=8, gold_queries=14, random_state=4)


SETTINGS: dict[str, Any] = {
    "candidates": ["majority", "gls", "linear-gls", "expert-only"],
    "trees": {"n_estimators": 5},
    "linear": {"n_iter": 2, "ridge": 0.1},
}


def test_a_saved_result_is_loaded_as_it_was(world: World, tmp_path: Path) -> None:
    saved = crowdrank.run(world.judgments, world.features, world.gold, output=tmp_path / "run", **SETTINGS)
    loaded = RunResult.load(tmp_path / "run")
    assert loaded.to_dict() == {**saved.to_dict()}
    assert loaded.notes == saved.notes
    assert set(loaded.tables) == set(saved.tables)
    for name, table in saved.tables.items():
        assert loaded.tables[name].column_names == table.column_names
        assert len(loaded.tables[name]) == len(table)
    features = crowdrank.read_features(world.features)
    assert (loaded.ranker.predict(features) == saved.ranker.predict(features)).all()
    assert loaded.rankers is not None
    assert list(loaded.rankers.remappers) == ["linear"]


def test_each_pair_of_candidates_is_tested_once(world: World) -> None:
    result = crowdrank.run(world.judgments, world.features, world.gold, **SETTINGS)
    assert result.rankers is not None
    pairs = [(one.candidate, one.other) for one in result.rankers.contrasts]
    assert len(pairs) == len(set(pairs))
    contrast = result.rankers.contrast(result.chosen, "majority")
    row = result.comparison.set_index("candidate").loc[result.chosen]
    if contrast is None:
        assert result.chosen == "majority"
    else:
        assert contrast.difference == pytest.approx(row["nDCG@10 difference"])
        assert contrast.p == pytest.approx(row["nDCG@10 p"])


@pytest.mark.usefixtures("no_charts")
def test_without_features_a_run_reports_on_labels(world: World, tmp_path: Path) -> None:
    result = crowdrank.run(world.judgments, expert=world.gold, output=tmp_path / "labels")
    assert result.rankers is None
    assert set(result.tables) == {"documents", "assessors", "pairs", "next"}
    assert result.documents["expert"].notna().any()
    assert result.expert_offset is not None
    with pytest.raises(InputError) as error:
        _ = result.ranker
    assert error.value.kind == "no-ranker"
    page = crowdrank.write_report(tmp_path / "labels").read_text()
    assert 'id="assessors"' in page
    assert 'id="rankers"' not in page
    assert RunResult.load(tmp_path / "labels").rankers is None


def test_earlier_results_are_kept_and_changes_are_listed(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = crowdrank.run(world.judgments, output=folder)
    assert first.changes == ()
    before = (folder / "run.json").read_bytes()
    fewer = world.judgments.iloc[:-100]
    second = crowdrank.run(fewer, output=folder)
    assert f"Judgments: {len(world.judgments):,} before, {len(fewer):,} now." in second.changes
    assert (folder / "previous" / "run.json").read_bytes() == before
    again = crowdrank.run(fewer, output=folder)
    assert again.changes == second.changes
    assert (folder / "previous" / "run.json").read_bytes() == before, "the same run does not replace earlier results"
    assert not (folder / "previous" / "stages").exists()


def test_the_report_reads_no_file_of_the_run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a file of the run was read")

    def report(result: RunResult, draft: Path) -> None:
        crowdrank.write_report(result, draft / "report.html", folder=tmp_path / "run")

    monkeypatch.setattr("crowdrank.pipeline.run_result.read_csv", refuse)
    monkeypatch.setattr("crowdrank.pipeline.run_result.read_parquet", refuse)
    monkeypatch.setattr(RunResult, "load", refuse)
    crowdrank.run(world.judgments, output=tmp_path / "run", report=report)
    assert (tmp_path / "run" / "report.html").exists()
