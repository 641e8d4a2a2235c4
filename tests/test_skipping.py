"""Tests skip by themselves what a machine lacks, and can be run later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
import pytest

@pytest.mark.data
def test_marked():
    assert os.environ["CROWDRANK_DATA"]

def test_with_the_folder(data_folder):
    assert data_folder.is_dir()

def test_program():
    if "PROGRAM" not in os.environ:
        pytest.skip("there is no program")

def test_plain():
    pass
"""


def suite(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Run the tests in a folder; return the exit code and the last line of the output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CROWDRANK_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", *options]
    done = subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip().splitlines()[-1].partition(" in ")[0]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_without_data_or_program_are_skipped_and_run_later(tmp_path: Path, workers: str) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = data: needs public data\n")
    (tmp_path / "test_parts.py").write_text(TESTS)
    parallel = ("-n", workers)
    assert suite(tmp_path, *parallel) == (0, "1 passed, 3 skipped")
    rest = (*parallel, "--skipped-before")
    assert suite(tmp_path, *rest, "-m", "not data", PROGRAM="yes")[0] == 0
    assert suite(tmp_path, *rest, CROWDRANK_DATA=str(tmp_path))[0] == 1, "one test is skipped again"
    code, last = suite(tmp_path, *rest, CROWDRANK_DATA=str(tmp_path), PROGRAM="yes")
    assert code == 0
    assert last.startswith("3 passed")
