"""The profile of a run: stages, sums, files, and that results do not depend on it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdrank
from crowdrank.errors import InputError
from crowdrank.pipeline.run_result import RunResult
from crowdrank.pipeline.stage_cache import OTHER, PROFILE_FILE, Profiler, RunProfile
from crowdrank.simulation.world import World

SETTINGS: dict[str, Any] = {
    "candidates": ["majority", "gls", "linear-gls", "expert-only"],
    "trees": {"n_estimators": 5},
    "linear": {"n_iter": 2, "ridge": 0.1},
    "forest": {"n_trees": 5},
    "n_jobs": 1,
}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=30, documents=8, gold_queries=14, random_state=4)


def run(world: World, folder: Path, **more: Any) -> RunResult:
    return crowdrank.run(world.judgments, world.features, world.gold, output=folder, **{**SETTINGS, **more})


@pytest.fixture(scope="module")
def folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profile") / "run"
    run(world, place)
    return place


def test_a_profile_has_all_stages(world: World, tmp_path: Path) -> None:
    def report(result: RunResult, draft: Path) -> None:
        assert result.profile.stages
        (draft / "report.html").write_text("")

    profile = run(world, tmp_path / "run", report=report).profile
    stages = {(one.stage, one.name) for one in profile.stages}
    kinds = {stage for stage, _ in stages}
    assert kinds >= {"read", "features", "assessors", "ensembles", "comparison", "distillation", "files", "report"}
    assert {name for stage, name in stages if stage == "consensus"} >= {"gda", "majority", "average", "dawid-skene"}
    for kind in ("training", "cross-validation"):
        assert {name for stage, name in stages if stage == kind} >= set(SETTINGS["candidates"])
    assert ("remapper", "linear") in stages
    assert len(stages) == len(profile.stages), "each stage is listed once"
    assert RunProfile.load(tmp_path / "run" / PROFILE_FILE).stages[-1].stage == OTHER


def test_stages_sum_to_the_run(folder: Path) -> None:
    profile = RunResult.load(folder).profile
    for name in ("seconds", "cpu_seconds"):
        assert sum(getattr(one, name) for one in profile.stages) == pytest.approx(getattr(profile, name))
    assert all(one.seconds >= 0 and one.calls > 0 for one in profile.stages)
    assert max(one.peak_bytes for one in profile.stages) == profile.peak_bytes > 2**20
    assert len(profile.rows()) == len(profile.stages) + 1


def test_stages_that_an_earlier_run_stored_are_counted(world: World, folder: Path) -> None:
    first = RunResult.load(folder).profile
    assert not any(one.reused for one in first.stages)
    again = {(one.stage, one.name): one for one in run(world, folder).profile.stages}
    assert again["consensus", "gda"].reused == 1
    assert again["training", "gls"].reused == again["training", "gls"].calls


def files_of(folder: Path) -> list[str]:
    """Return the files of a run except those of its cache, which depend on earlier runs."""
    files = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if not name.startswith(("stages", ".")))


def test_equal_runs_write_equal_files(world: World, folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    run(world, again)
    names, others = (files_of(place) for place in (folder, again))
    assert names == others
    different = [name for name in names if (folder / name).read_bytes() != (again / name).read_bytes()]
    # The manifest has the digest of the profile; run.json has the name of the folder.
    assert set(different) <= {PROFILE_FILE, "crowdrank.json", "run.json"}
    first, second = (RunResult.load(place).to_dict() for place in (folder, again))
    assert {**first, "provenance": None} == {**second, "provenance": None}


def test_a_damaged_profile_is_refused_and_a_missing_one_is_not(world: World, tmp_path: Path) -> None:
    crowdrank.run(world.judgments, output=tmp_path / "run")
    assert RunResult.load(tmp_path / "run").seconds > 0
    (tmp_path / "run" / PROFILE_FILE).write_text("{}")
    with pytest.raises(InputError) as error:
        RunResult.load(tmp_path / "run")
    assert error.value.location.source == str(tmp_path / "run")
    (tmp_path / "run" / PROFILE_FILE).unlink()
    loaded = RunResult.load(tmp_path / "run")
    assert loaded.profile == RunProfile()
    page = crowdrank.write_report(tmp_path / "run").read_text()
    assert 'id="profile"' not in page


@pytest.mark.usefixtures("no_charts")
def test_the_report_shows_the_profile_collapsed(folder: Path) -> None:
    page = crowdrank.write_report(folder).read_text()
    section = page.partition('id="profile"')[2].partition("</details>")[0]
    assert "consensus gda" in section
    assert '<details class="more" id="profile">' in page


def test_an_inner_stage_is_not_counted_in_the_outer_one() -> None:
    profiler = Profiler()
    with profiler, profiler.stage("outer"):
        with profiler.stage("inner", "name"):
            block = np.ones(40_000_000 // 8)  # 40 MB
            time.sleep(0.2)
        del block
    stages = {one.stage: one for one in profiler.profile().stages}
    assert stages["inner"].seconds >= 0.2
    assert stages["outer"].seconds < 0.2
    assert stages["inner"].peak_bytes > 2**20


def test_a_thread_counts_its_own_time() -> None:
    profiler, done = Profiler(), threading.Event()

    def wait() -> None:
        profiler.use_thread_clock()
        with profiler.stage("waiting"):
            done.wait()

    with profiler:
        thread = threading.Thread(target=wait)
        thread.start()
        with profiler.stage("computing"):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
        done.set()
        thread.join()
    stages = {one.stage: one for one in profiler.profile().stages}
    assert stages["waiting"].cpu_seconds < 0.1 < stages["computing"].cpu_seconds
    assert stages["waiting"].seconds >= stages["computing"].seconds * 0.5
