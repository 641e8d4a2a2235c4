"""SIGTERM and Ctrl-C: one line, an exit code of their own, and work that can go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crowdrank import simulate
from terminal import crowdrank, without_columns

# The command line, which leaves a file when a fit has made its first iteration.
DRIVER = """
from pathlib import Path
from crowdrank.consensus import em_loop
has_converged = em_loop.has_converged
def noted(history, tol):
    Path("iterating").touch()
    return has_converged(history, tol)
em_loop.has_converged = noted
from crowdrank.cli.app import main
main()
"""
LONG = ("-s", "n_iter=2000", "-s", "tol=0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    judgments = simulate(queries=60, documents=20, random_state=1).judgments
    judgments.to_csv(tmp_path / "judgments.csv", index=False)
    (tmp_path / "partitions").mkdir()
    judgments.to_parquet(tmp_path / "partitions" / "part-0.parquet")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def interrupted(number: signal.Signals, folder: Path, *words: str) -> tuple[int, str]:
    """Run a command, send it a signal after its first iteration; return its exit code and what it wrote as errors."""
    env = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words], cwd=folder, env=env, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300  # kernels may have to be compiled
    while not (folder / "iterating").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_fit_with_a_checkpoint_goes_on_to_the_same_bytes(number: signal.Signals, code: int, folder: Path) -> None:
    words = ("aggregate", "judgments.csv", "-m", "dawid-skene", *LONG)
    found, errors = interrupted(number, folder, *words, "--checkpoint", "state", "-o", "out.csv")
    assert found == code, errors
    assert without_columns(errors) == "Interrupted. The fit is kept in state: the same command goes on from there.\n"
    assert (folder / "state" / "checkpoint.json").exists()
    assert not (folder / "out.csv").exists()
    for options in (("--checkpoint", "state", "-o", "out.csv"), ("-o", "whole.csv")):
        assert crowdrank(*words, *options, cwd=folder).returncode == 0
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    assert not (folder / "state").exists()


def test_temporary_shards_are_removed(folder: Path) -> None:
    code, errors = interrupted(signal.SIGTERM, folder, "aggregate", "partitions", *LONG, "-o", "out")
    assert (code, without_columns(errors)) == (143, "Interrupted.\n")
    assert not list((folder / "tmp").iterdir())
    assert not (folder / "out").exists()
