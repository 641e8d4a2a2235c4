"""Runs to report on: with rankers, without experts, without features, and with hostile ids."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import crowdrank
from crowdrank.pipeline.run_result import RunResult
from crowdrank.reports.page import write_report
from crowdrank.reports.report_data import ReportData

HOSTILE_IDS = (
    "<script>document.title='stolen'</script>",
    "</script><script>window.stolen=1</script>",
    '<img src=x onerror="window.stolen=1">',
    "{{ 7*7 }}{% raw %}",
    "javascript:window.stolen=1",
    "a\"b'c&amp;<b>d</b>",
    "NA",
    "line\nbreak, and\ttab",
    "007",
    "]]>--><!--",
    "https://example.invalid/x.png",
    "\u2028\u202eesrever",
)


@pytest.fixture(scope="session")
def hostile_ids() -> tuple[str, ...]:
    """Ids that contain scripts, markup and control characters."""
    return HOSTILE_IDS


def _new_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    return tmp_path_factory.mktemp("reports") / name


@pytest.fixture(scope="session")
def ranker_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with experts, a test and both remappers."""
    folder = _new_folder(tmp_path_factory, "rankers")
    world = crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)
    brief = {"n_iter": 3, "ridge": 0.1}
    crowdrank.run(
        world.judgments,
        world.features,
        world.gold,
        output=folder,
        candidates=["majority", "average", "gls", "linear-gls", "boosted-gls", "expert-only"],
        trees={"n_estimators": 5},
        linear=brief,
        boosted=brief,
    )
    return folder


@pytest.fixture(scope="session")
def majority_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run without experts, with majority votes and families of assessors."""
    folder = _new_folder(tmp_path_factory, "majority")
    world = crowdrank.simulate(queries=20, documents=6, families=3, honeypots=0, random_state=2)
    judgments = world.judgments.drop(columns=["duration", "cost", "honeypot"])
    crowdrank.run(judgments, world.features, output=folder, candidates=["gls"], method="majority")
    return folder


@pytest.fixture(scope="session")
def labels_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run without features, whose report shows hostile texts of documents."""
    folder = _new_folder(tmp_path_factory, "labels")
    world = crowdrank.simulate(queries=20, documents=8, gold_queries=8, random_state=4)
    crowdrank.run(world.judgments, expert=world.gold, output=folder)
    texts = world.judgments[["query", "document"]].drop_duplicates()
    texts = texts.assign(title=HOSTILE_IDS[0], text="long text " * 60, query_text="what is <b>bold</b>?")
    write_report(folder, texts=texts)
    return folder


def _make_hostile(column: pd.Series[str]) -> pd.Series[str]:
    """Return the column with each id replaced by a hostile one."""
    new_ids = {name: f"{HOSTILE_IDS[at % len(HOSTILE_IDS)]} {at}" for at, name in enumerate(column.unique())}
    new_ids |= {name: HOSTILE_IDS[at] for at, name in enumerate(list(new_ids)[: len(HOSTILE_IDS)])}
    return column.map(new_ids)


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run in which all ids are hostile."""
    folder = _new_folder(tmp_path_factory, "hostile")
    world = crowdrank.simulate(queries=24, documents=6, families=4, gold_queries=16, random_state=3)
    judgments = world.judgments.assign(
        assessor=_make_hostile(world.judgments["assessor"]), family=_make_hostile(world.judgments["family"])
    )
    for column in ("query", "document"):
        ids = pd.concat([world.features[column], world.gold[column], judgments[column]]).astype(str)
        new_ids = dict(zip(ids, _make_hostile(ids), strict=True))
        for frame in (judgments, world.features, world.gold):
            frame[column] = frame[column].astype(str).map(new_ids)
    trees = {"n_estimators": 5}
    crowdrank.run(judgments, world.features, world.gold, output=folder, candidates=["majority", "gls"], trees=trees)
    return folder


@pytest.fixture(scope="session")
def ranker_data(ranker_run: Path) -> ReportData:
    """Return the data of the report of the run with rankers."""
    return ReportData(RunResult.load(ranker_run), ranker_run)


@pytest.fixture(scope="session")
def labels_data(labels_run: Path) -> ReportData:
    """Return the data of the report of the run without features."""
    return ReportData(RunResult.load(labels_run), labels_run)
