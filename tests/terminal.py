"""Run the command line in tests; the result has its output and exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.rich_utils  # reads FORCE_COLOR when it is imported: before any test sets it

from crowdrank.cli.app import main

Run = Callable[..., subprocess.CompletedProcess[str]]
build_commands = cache(typer.main.get_command)
"""Build the commands of an application once; typer builds them in every call, which takes longer than most commands."""


def crowdrank(*words: object, cwd: Path, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which is faster than a new one.

    Args:
        words: arguments after `crowdrank`.
        cwd: the working folder.
        environment: variables to set; None removes one.

    """
    line = ["crowdrank", *map(str, words)]
    streams = [io.BytesIO(), io.BytesIO()]
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in streams)
    with _process_state(cwd, line, environment), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
    code = code if isinstance(code, int) else int(code is not None)
    return subprocess.CompletedProcess(line, code, *(stream.getvalue().decode() for stream in streams))


@contextmanager
def _process_state(cwd: Path, line: list[str], environment: dict[str, str | None]) -> Iterator[None]:
    """Set the working folder, arguments, variables and warning filters of a new process, and restore them."""
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), warnings.catch_warnings():
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        patch.setattr(sys, "argv", line)
        patch.setattr(typer.main, "get_command", build_commands)
        for name, value in environment.items():
            if value is None:
                patch.delenv(name, raising=False)
            else:
                patch.setenv(name, value)
        yield


def experiments_process(*words: object, cwd: Path, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run `python -m experiments` in a new process; a variable that is None is removed."""
    repository = str(Path(__file__).parent.parent)
    changed = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([repository, os.environ.get("PYTHONPATH", "")]),
        **environment,
    }
    line = [sys.executable, "-m", "experiments", *map(str, words)]
    env = {name: value for name, value in changed.items() if value is not None}
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, env=env)


def crowdrank_process(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process."""
    line = [sys.executable, "-m", "crowdrank", *map(str, words)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})


def without_columns(errors: str) -> str:
    """Return what a command wrote on standard error without the lines that list the columns of files."""
    return "".join(line for line in errors.splitlines(keepends=True) if not line.startswith("Columns of "))
