"""Fixtures for the tests of LLM judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app

from .judging_project import ManualClock, Project


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep proxies of the environment away from the loopback interface."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path)
    made.write_pairs(3)
    return made


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command of `judge` with --json; return what it prints. `code` is the expected exit code."""

    def invoke(*words: object, code: int = 0) -> Any:
        done = CliRunner().invoke(app, ["judge", *map(str, words), "--json"], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return invoke
