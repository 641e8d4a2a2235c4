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

# The command line, which leaves a file when a fit has made three iterations, and then waits for the signal or goes on.
DRIVER = """
import os, time
from pathlib import Path
from crowdrank.consensus import model
has_converged = model.has_converged
def noted(history, tol):
    if len(history) == 3:
        Path("iterating").touch()
        time.sleep(float(os.environ["WAIT"]))
    return has_converged(history, tol)
model.has_converged = noted
from crowdrank.cli.app import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    judgments = simulate(queries=20, documents=10, random_state=1).judgments
    judgments.to_csv(tmp_path / "judgments.csv", index=False)
    (tmp_path / "partitions").mkdir()
    judgments.to_parquet(tmp_path / "partitions" / "part-0.parquet")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def interrupted(number: signal.Signals, folder: Path, *words: str, wait: int = 0) -> tuple[int, str]:
    """Run a command, send it a signal after three iterations; return its exit code and what it wrote as errors."""
    env = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1", "WAIT": str(wait)}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words], cwd=folder, env=env, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300  # kernels may have to be compiled
    while not (folder / "iterating").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.parametrize(
    ("number", "code", "method"), [(signal.SIGTERM, 143, "dawid-skene"), (signal.SIGINT, 130, "gda")]
)
def test_a_fit_with_a_checkpoint_goes_on_to_the_same_bytes(
    number: signal.Signals, code: int, method: str, folder: Path
) -> None:
    (folder / "out.csv").write_text("old")
    words = ("aggregate", "judgments.csv", "-m", method, "-s", "n_iter=20", "-s", "tol=0")
    found, errors = interrupted(number, folder, *words, "--checkpoint", "state", "-o", "out.csv", wait=300)
    assert found == code, errors
    assert without_columns(errors) == "Interrupted. The fit is kept in state: the same command goes on from there.\n"
    assert (folder / "state" / "checkpoint.json").exists()
    assert (folder / "out.csv").read_text() == "old"
    for options in (("--checkpoint", "state", "-o", "out.csv"), ("-o", "whole.csv")):
        assert crowdrank(*words, *options, cwd=folder).returncode == 0
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    assert not (folder / "state").exists()


def test_temporary_shards_are_removed(folder: Path) -> None:
    words = ("aggregate", "partitions", "-s", "n_iter=20000", "-s", "tol=0", "-o", "out")
    code, errors = interrupted(signal.SIGTERM, folder, *words, wait=300)
    assert (code, without_columns(errors)) == (143, "Interrupted.\n")
    assert not list((folder / "tmp").iterdir())
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("place", "name", "code"),
    [
        ("app.requested_command", "SIGTERM", 143),
        ("app.TyperGroup.make_context", "SIGTERM", 143),
        ("app.set_quiet", "SIGINT", 130),
    ],
)
def test_a_command_can_be_interrupted_before_it_begins(place: str, name: str, code: int, tmp_path: Path) -> None:
    driver = f"""
import signal
from crowdrank.cli import app
signal.signal(signal.SIGINT, signal.default_int_handler)
{place} = lambda *words, **more: exec("signal.raise_signal(signal.{name})")
app.main()
"""
    (tmp_path / "driver.py").write_text(driver)
    line = [sys.executable, "-m", "driver", "aggregate", "judgments.csv"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "Interrupted.\n")
