"""Run the command line in a forked process that can be killed at a chosen moment, or that cannot write much.

The parent imports crowdrank once; each child runs one command and starts within milliseconds. To repeat one trial:

    python -m tools.killable 7 before aggregate judgments.csv -o labels.csv
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync")
"""Functions of `os` before and after which a process can be killed."""
HANG_SECONDS = 240.0
"""Time after which a child that has not ended counts as hanging."""


@dataclass(frozen=True)
class Kill:
    """Moment at which a process kills itself: before or after its n-th call that changes names or flushes."""

    number: int
    after: bool = False

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} point {self.number}"


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        code: exit code; -9 if it was killed.
        text: what it printed, both streams together.
        points: calls that it made, in order, if it was not killed.

    """

    code: int
    text: str
    points: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether the process died of SIGKILL."""
        return self.code == -signal.SIGKILL


def arm(kill: Kill | None) -> list[str]:
    """Count the calls that change names or flush, and kill this process at one of them; return their growing list."""
    from crowdrank import _disk

    made: list[str] = []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*words: Any, **more: Any) -> Any:
            if not _is_ours(words[0]):
                return call(*words, **more)
            made.append(name)
            here = kill is not None and kill.number == len(made)
            if kill is not None and here and not kill.after:
                _die()
            done = call(*words, **more)
            if here:
                _die()
            return done

        return counted

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    shutil.rmtree = watched("rmtree", shutil.rmtree)  # type: ignore[assignment]
    _disk._exchange_atomically = watched("exchange", _disk._exchange_atomically)
    return made


def _is_ours(path: Any) -> bool:
    """Return whether a path is in the current folder; descriptors and names relative to an open folder count."""
    return isinstance(path, int) or Path.cwd() in (Path.cwd() / path).parents


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


@dataclass
class Child:
    """A command that runs in a forked process."""

    process: int
    output: int
    points: int
    began: float

    @classmethod
    def start(
        cls, words: Sequence[str], folder: Path, kill: Kill | None = None, largest_file: int | None = None
    ) -> Child:
        """Fork a process that runs `crowdrank WORDS` in a folder, with temporary files in its subfolder `tmp`.

        Args:
            words: arguments of the command line.
            folder: the working folder.
            kill: when the process kills itself.
            largest_file: number of bytes after which writing to a file fails.

        """
        output, output_end = os.pipe()
        points, points_end = os.pipe()
        process = os.fork()
        if not process:
            os.close(output)
            os.close(points)
            _run_child(words, folder, kill, largest_file, output_end, points_end)
        os.close(output_end)
        os.close(points_end)
        return cls(process, output, points, time.monotonic())

    def wait(self, kill_after: float | None = None) -> Outcome:
        """Wait for the end of the process; kill it after some seconds, if given."""
        text, killed = b"", False
        while True:
            limit = HANG_SECONDS if kill_after is None or killed else kill_after
            left = max(0.0, self.began + limit - time.monotonic())
            if not select.select([self.output], [], [], left)[0]:
                os.kill(self.process, signal.SIGKILL)
                if kill_after is None:
                    text += b"\nThe process hung."
                    break
                killed = True
                continue
            piece = os.read(self.output, 65536)
            if not piece:
                break
            text += piece
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        made = os.read(self.points, 1 << 20)
        os.close(self.output)
        os.close(self.points)
        seconds = time.monotonic() - self.began
        return Outcome(code, text.decode("utf-8", "replace"), tuple(json.loads(made or b"[]")), seconds)


def _run_child(
    words: Sequence[str], folder: Path, kill: Kill | None, largest_file: int | None, output: int, points: int
) -> None:
    """Run the command in this process and leave it; never return."""
    code = 1
    try:
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "r" if n == 0 else "w", buffering=1) for n in range(3))
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
        made = arm(kill)
        code = run_here(words)
        sys.stdout.flush()
        os.write(points, json.dumps(made).encode())
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def run_here(words: Sequence[str]) -> int:
    """Run the command line in this process, with its exit functions; return the exit code."""
    from crowdrank.cli.app import main

    sys.argv = ["crowdrank", *words]
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    return code if isinstance(code, int) else 0 if code is None else 1


def warm_up(lines: Iterable[Sequence[str]], folder: Path) -> None:
    """Run commands in this process, so that forked processes need not load and compile anything."""
    from crowdrank.cli.app import main

    here, shown, handler = Path.cwd(), os.dup(1), signal.getsignal(signal.SIGTERM)
    hidden = os.open(os.devnull, os.O_WRONLY)
    os.chdir(folder)
    os.dup2(hidden, 1)
    try:
        for line in lines:
            sys.argv = ["crowdrank", *line]
            with suppress(SystemExit):
                main()
            sys.stdout.flush()
    finally:
        signal.signal(signal.SIGTERM, handler)
        os.dup2(shown, 1)
        os.close(shown)
        os.close(hidden)
        os.chdir(here)


def without_charts() -> None:
    """Leave charts out of reports: drawing starts threads that do not survive a fork, and writes nothing."""
    sys.modules["vl_convert"] = None  # type: ignore[assignment]


def run_forked(
    words: Sequence[str], folder: Path, kill: Kill | None = None, largest_file: int | None = None
) -> Outcome:
    """Run a command in a forked process and wait for its end."""
    return Child.start(words, folder, kill, largest_file).wait()


if __name__ == "__main__":
    without_charts()
    arm(Kill(int(sys.argv[1]), sys.argv[2] == "after"))
    sys.exit(run_here(sys.argv[3:]))
