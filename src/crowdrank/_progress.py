"""Progress of long work: nothing for the first two seconds, then a bar; in a file or pipe, a line now and then."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from crowdrank._text import visible

Report = Callable[[int, int, float], None]
"""Called after every iteration with its number, the largest number, and the objective."""

QUIET_SECONDS = 2.0
LINE_SECONDS = 30.0
"""Where nobody looks on (standard error is a file or a pipe), a plain line comes this often at most."""

_quiet = False


def be_quiet(quiet: bool) -> None:
    """Show no bars from now on, or show them again; the command line says which (`--quiet`)."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether bars, notes and warnings are unwanted.

    >>> is_quiet()
    False
    """
    return _quiet


class ProgressBar:
    """A bar on standard error that appears once the work has lasted a while; plain lines where that is no terminal.

    >>> with ProgressBar("fitting") as report:
    ...     report(1, 10, -0.5)
    """

    def __init__(self, title: str, after: float = QUIET_SECONDS, every: float = LINE_SECONDS) -> None:
        self.title, self.after, self.every = visible(title), after, every
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._opening = threading.Lock()
        self._plain = False
        self._said = self._began
        self._done, self._most = 0.0, 1

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, iteration: int, most: int, objective: float) -> None:
        """Say how far the work is."""
        said = self.title if math.isnan(objective) else f"{self.title} ({objective:.5f})"
        self._done, self._most = float(iteration), most
        self._show(0.0, description=said)

    def stage(self, title: str, most: int) -> None:
        """Say what is done now, in how many steps."""
        self.title, self._done, self._most = visible(title), 0.0, most
        self._show(0.0, description=self.title)

    def within(self, share: float) -> None:
        """Say how much of the next step is done, from 0 to 1."""
        self._show(share)

    def _show(self, share: float, **more: Any) -> None:
        if _quiet:
            return
        with self._opening:  # fits side by side tell of their progress from threads of their own
            if self._bar is None and not self._plain:
                if time.monotonic() - self._began < self.after:
                    return
                self._open(self._most)
            if self._plain:
                self._say(more.get("description", self.title), (self._done + share) / max(self._most, 1))
                return
        self._bar.update(self._task, total=self._most, completed=self._done + share, **more)

    def _say(self, doing: str, share: float) -> None:
        """One line, if the last is long enough ago."""
        now = time.monotonic()
        if now - self._said >= self.every:
            self._said = now
            sys.stderr.write(f"{doing}: {share:.0%} after {now - self._began:,.0f} s\n")

    def _open(self, most: int) -> None:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            self._plain = True
            return
        title = TextColumn("{task.description}", style="progress.description", markup=False)
        self._bar = Progress(title, *Progress.get_default_columns()[1:], console=console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=most)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class reporting:  # noqa: N801 - reads as a word in `with reporting(...)`
    """The progress that was asked for, as a context: a bar (True), a function, or nothing (False).

    >>> with reporting(False, "fitting") as report:
    ...     report(1, 10, -0.5)
    """

    def __init__(self, progress: bool | Report, title: str) -> None:
        self._report: Any = ProgressBar(title) if progress is True else progress

    def __enter__(self) -> Report:
        if self._report is False:
            return lambda iteration, most, objective: None
        return self._report  # type: ignore[no-any-return]

    def __exit__(self, *problem: Any) -> None:
        if isinstance(self._report, ProgressBar):
            self._report.__exit__(*problem)
