"""The command line as a person uses it, by its words and exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from crowdrank.cli.app import main

Run = Callable[..., subprocess.CompletedProcess[str]]


def crowdrank(*words: object, cwd: Path, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """The command in this process, which saves starting one: most of what a small command takes.

    Args:
        words: what stands on the line after `crowdrank`.
        cwd: the folder to stand in.
        environment: variables to set; None takes one away.

    """
    line = ["crowdrank", *map(str, words)]
    spoken = [io.BytesIO(), io.BytesIO()]
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in spoken)
    with _standing(cwd, line, environment), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code: object = 0
        except SystemExit as left:
            code = left.code
    code = code if isinstance(code, int) else int(code is not None)
    return subprocess.CompletedProcess(line, code, *(stream.getvalue().decode() for stream in spoken))


@contextmanager
def _standing(cwd: Path, line: list[str], environment: dict[str, str | None]) -> Iterator[None]:
    """In the folder, with the words and variables of a new process, and with the warnings that it would show."""
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), warnings.catch_warnings():
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        patch.setattr(sys, "argv", line)
        for name, value in environment.items():
            if value is None:
                patch.delenv(name, raising=False)
            else:
                patch.setenv(name, value)
        yield


def experiments_process(*words: object, cwd: Path, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run `python -m experiments` in a process of its own; a variable that is None is removed."""
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
    """The command in a process of its own."""
    line = [sys.executable, "-m", "crowdrank", *map(str, words)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
