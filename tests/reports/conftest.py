"""Runs to report on: a plain one, one without experts, and one whose ids are hostile."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import crowdrank
from crowdrank.pipeline.result import RunResult
from crowdrank.reports.report_data import ReportData

HOSTILE = (
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
def names() -> tuple[str, ...]:
    """Ids that would like to be more than text."""
    return HOSTILE


def _folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    return tmp_path_factory.mktemp("reports") / name


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with experts, a test, and both remappers."""
    folder = _folder(tmp_path_factory, "whole")
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
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without experts, on votes, with families of assessors."""
    folder = _folder(tmp_path_factory, "alone")
    world = crowdrank.simulate(queries=20, documents=6, families=3, honeypots=0, random_state=2)
    judgments = world.judgments.drop(columns=["duration", "cost", "honeypot"])
    crowdrank.run(judgments, world.features, output=folder, candidates=["gls"], method="majority")
    return folder


def renamed(column: pd.Series[str]) -> pd.Series[str]:
    """The ids of a column, each another hostile text."""
    names = {name: f"{HOSTILE[at % len(HOSTILE)]} {at}" for at, name in enumerate(column.unique())}
    names |= {name: HOSTILE[at] for at, name in enumerate(list(names)[: len(HOSTILE)])}
    return column.map(names)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose queries, documents, assessors and families are scripts, markup and worse."""
    folder = _folder(tmp_path_factory, "hostile")
    world = crowdrank.simulate(queries=24, documents=6, families=4, gold_queries=16, random_state=3)
    judgments = world.judgments.assign(
        assessor=renamed(world.judgments["assessor"]), family=renamed(world.judgments["family"])
    )
    for column in ("query", "document"):
        pairs = pd.concat([world.features[column], world.gold[column], judgments[column]]).astype(str)
        names = dict(zip(pairs, renamed(pairs), strict=True))
        for frame in (judgments, world.features, world.gold):
            frame[column] = frame[column].astype(str).map(names)
    trees = {"n_estimators": 5}
    crowdrank.run(judgments, world.features, world.gold, output=folder, candidates=["majority", "gls"], trees=trees)
    return folder


@pytest.fixture(scope="session")
def found(whole: Path) -> ReportData:
    """What the whole run left."""
    return ReportData(RunResult.load(whole), whole)
