"""Show progress on standard error: a bar after two seconds, or a line now and then if it is not a terminal."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from crowdrank._text import visible

Report = Callable[[int, int, float], None]
"""Function called after every iteration with its number, the maximum number of iterations and the objective."""

QUIET_SECONDS = 2.0
"""Seconds of work before progress is shown."""
LINE_SECONDS = 30.0
"""Minimum number of seconds between two lines if standard error is a file or a pipe."""

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Hide or show progress, notes and warnings in this process."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Return whether progress, notes and warnings are hidden.

    >>> is_quiet()
    False
    """
    return _quiet


class ProgressBar:
    """Progress bar on a terminal or in a notebook; plain lines if standard error is a file or a pipe.

    Args:
        title: what is done.
        after: seconds of work before the bar appears.
        every: minimum number of seconds between two plain lines.

    >>> with ProgressBar("fitting") as report:
    ...     report(1, 10, -0.5)

    """

    def __init__(self, title: str, after: float = QUIET_SECONDS, every: float = LINE_SECONDS) -> None:
        self.title, self.after, self.every = visible(title), after, every
        self._start_time = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._plain = False
        self._last_line_time = self._start_time
        self._done, self._total = 0.0, 1

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, iteration: int, total: int, objective: float) -> None:
        """Show that an iteration is done."""
        description = self.title if math.isnan(objective) else f"{self.title} ({objective:.5f})"
        self._done, self._total = float(iteration), total
        self._show(0.0, description=description)

    def stage(self, title: str, total: int) -> None:
        """Begin a stage with its own title and number of steps."""
        self.title, self._done, self._total = visible(title), 0.0, total
        self._show(0.0, description=self.title)

    def within(self, share: float) -> None:
        """Show which share of the next step is done, from 0 to 1."""
        self._show(share)

    def _show(self, share: float, **more: Any) -> None:
        if _quiet:
            return
        with self._lock:  # parallel fits report from several threads
            if self._bar is None and not self._plain:
                if time.monotonic() - self._start_time < self.after:
                    return
                self._open(self._total)
            if self._plain:
                self._write_line(more.get("description", self.title), (self._done + share) / max(self._total, 1))
                return
        self._bar.update(self._task, total=self._total, completed=self._done + share, **more)

    def _write_line(self, description: str, share: float) -> None:
        """Write a line unless the last one is too recent."""
        now = time.monotonic()
        if now - self._last_line_time >= self.every:
            self._last_line_time = now
            sys.stderr.write(f"{description}: {share:.0%} after {now - self._start_time:,.0f} s\n")

    def _open(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            self._plain = True
            return
        title = TextColumn("{task.description}", style="progress.description", markup=False)
        self._bar = Progress(title, *Progress.get_default_columns()[1:], console=console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def reporting(progress: bool | Report, title: str) -> Iterator[Report]:
    """Yield the function to call with progress: a new bar (True), the given function, or one that does nothing (False).

    >>> with reporting(False, "fitting") as report:
    ...     report(1, 10, -0.5)
    """
    if progress is True:
        with ProgressBar(title) as bar:
            yield bar
    else:
        yield progress or (lambda iteration, total, objective: None)
