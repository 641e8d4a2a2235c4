"""Show progress on standard error: a progress bar, or a line every 30 seconds if it is not a terminal."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

from crowdrank._text import escape_invisible

Report = Callable[[int, int, float], None]
"""Progress callback, called after every iteration: (iteration, maximum number of iterations, objective)."""

SECONDS_BEFORE_BAR = 2.0
"""Seconds of work before a progress bar appears."""
SECONDS_BETWEEN_LINES = 30.0
"""Minimum number of seconds between two progress lines if standard error is a file or a pipe."""

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
        title: description of the work.
        after: seconds of work before the bar appears.
        every: minimum number of seconds between two plain lines.

    >>> with ProgressBar("fitting") as report:
    ...     report(1, 10, -0.5)

    """

    def __init__(self, title: str, after: float = SECONDS_BEFORE_BAR, every: float = SECONDS_BETWEEN_LINES) -> None:
        self.title, self.after, self.every = escape_invisible(title), after, every
        self._start_time = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._plain = False
        self._last_line_time = self._start_time
        self._done, self._total = 0.0, 1

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, iteration: int, n_iterations: int, objective: float) -> None:
        """Show that an iteration is finished, and the value of the objective unless it is NaN."""
        description = self.title if math.isnan(objective) else f"{self.title} ({objective:.5f})"
        self._done, self._total = float(iteration), n_iterations
        self._show(0.0, description=description)

    def stage(self, title: str, n_steps: int) -> None:
        """Begin a stage with its own title and number of steps."""
        self.title, self._done, self._total = escape_invisible(title), 0.0, n_steps
        self._show(0.0, description=self.title)

    def show_share(self, share: float) -> None:
        """Show which share of the current step is finished, from 0 to 1."""
        self._show(share)

    def _show(self, share: float, **more: Any) -> None:
        if _quiet:
            return
        with self._lock:  # parallel fits report from several threads
            if self._bar is None and not self._plain:
                if time.monotonic() - self._start_time < self.after:
                    return
                self._open_bar(self._total)
            if self._plain:
                self._write_line(more.get("description", self.title), self._done + share)
                return
        self._bar.update(self._task, total=self._total, completed=self._done + share, **more)

    def _write_line(self, description: str, done: float) -> None:
        """Write a progress line, unless the previous one is too recent.

        The line counts steps, because a fit usually converges long before its last iteration.
        """
        now = time.monotonic()
        if now - self._last_line_time >= self.every:
            self._last_line_time = now
            share = f" ({done % 1:.0%})" if done % 1 else ""
            step = f"step {min(int(done) + 1, self._total):,} of {self._total:,}{share}"
            sys.stderr.write(f"{description}: {step} after {now - self._start_time:,.0f} s\n")

    def _open_bar(self, n_steps: int) -> None:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            self._plain = True
            return
        title = TextColumn("{task.description}", style="progress.description", markup=False)
        self._bar = Progress(title, *Progress.get_default_columns()[1:], console=console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=n_steps)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def reporting(progress: bool | Report, title: str) -> Iterator[Report]:
    """Yield a progress callback: a new progress bar (True), the given callback, or one that does nothing (False).

    >>> with reporting(False, "fitting") as report:
    ...     report(1, 10, -0.5)
    """
    if progress is True:
        with ProgressBar(title) as bar:
            yield bar
    else:
        yield progress or (lambda iteration, total, objective: None)


def split_progress(report: Report | None, n_parts: int) -> list[Report]:
    """Return progress callbacks of equal parts of the work, which several threads can call.

    >>> shown = []
    >>> first, second = split_progress(lambda iteration, total, objective: shown.append((iteration, total)), 2)
    >>> first(1, 10, 0.5), second(4, 10, 0.5), shown
    (None, None, [(1, 20), (5, 20)])
    """
    done = [0] * n_parts

    def report_part(part_index: int, iteration: int, n_iterations: int, objective: float) -> None:
        done[part_index] = iteration
        if report is not None:
            report(sum(done), n_parts * n_iterations, float("nan"))

    return [partial(report_part, part_index) for part_index in range(n_parts)]
