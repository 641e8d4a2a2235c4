"""Requests, texts and judges for tests, and a clock that does not wait."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import CrowdrankError
from crowdrank.llm_judges.caller import Clock


@dataclass
class ManualClock(Clock):
    """Clock whose waits take no time, and are recorded."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Project:
    """Folder with requests, texts and judges."""

    folder: Path

    def write_pairs(self, n_pairs: int, *, assessors: list[str] | None = None) -> None:
        """Write requests for documents d0, d1, ... of query q, and their texts."""
        names = assessors or [""] * n_pairs
        rows = [f"q,d{number},{name}" for number, name in enumerate(names)]
        (self.folder / "requests.csv").write_text("\n".join(["query,document,assessor", *rows]) + "\n")
        lines = [{"query": "q", "text": "strawberry jam"}]
        (self.folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        documents = [{"document": f"d{number}", "text": f"text {number}"} for number in range(len(names))]
        (self.folder / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in documents))

    def write_judges(self, *judges: dict[str, Any]) -> None:
        """Write a file of judges; each is a table of keys, and tables within it are inline tables."""
        tables = [
            "\n".join(["[[judge]]", *(f"{name} = {_toml(value)}" for name, value in one.items())]) for one in judges
        ]
        (self.folder / "judges.toml").write_text("\n\n".join(tables) + "\n")

    @property
    def words(self) -> list[str]:
        """Arguments of the commands for the files of the project."""
        return ["requests.csv", "--texts", "docs.jsonl", "--texts", "queries.jsonl", "--judges", "judges.toml"]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)


def refusal(*words: object) -> CrowdrankError:
    """Return the error of a command of `judge`."""
    with pytest.raises(CrowdrankError) as problem:
        CliRunner().invoke(app, ["judge", *map(str, words)], catch_exceptions=False)
    assert "\n" not in str(problem.value)
    return problem.value
