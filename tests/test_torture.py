"""A short version of `make torture`: some kills of every kind of output, and two processes that write one file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools.torture import start_fresh
from tools.torture_cases import leftovers, rows_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed")
ROOT = Path(__file__).parent.parent
COMMANDS = ("simulate", "aggregate", "train", "collect add, .csv.gz", "collect next", "report", "run")
KEY = ("query", "document", "assessor")


def test_killed_commands_lose_nothing(tmp_path: Path) -> None:
    only = [word for name in COMMANDS for word in ("--only", name)]
    done = subprocess.run(
        [sys.executable, "-m", "tools.torture", "--kinds", "points", "--points", "2", *only],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials = dict(re.findall(r"^points  (.+?)  +(\d+) ", done.stdout, re.MULTILINE))
    assert trials == dict.fromkeys(COMMANDS, "4"), done.stdout


@pytest.mark.parametrize(("name", "existing"), [("labels.csv", False), ("labels.csv.gz", True)])
def test_two_processes_add_to_one_file(tmp_path: Path, name: str, existing: bool) -> None:
    (tmp_path / "tmp").mkdir()
    batches = [f"batch-{number}.csv" for number in range(3)]
    for batch in batches:
        rows = [f"q{row % 3},d{row},{batch},{row % 2}" for row in range(20)]
        (tmp_path / batch).write_text("\n".join(["query,document,assessor,grade", *rows, ""]), encoding="utf-8")
    if existing:
        assert start_fresh(["collect", "add", name, batches.pop()], tmp_path).wait() == 0
    running = [start_fresh(["collect", "add", name, batch], tmp_path) for batch in batches]
    texts = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(batches), texts
    every = [tmp_path / f"batch-{number}.csv" for number in range(3)]
    expected = sum((rows_in(batch, KEY) for batch in every), Counter[tuple[str, ...]]())
    assert rows_in(tmp_path / name, KEY) == expected
    assert leftovers(tmp_path) == []
