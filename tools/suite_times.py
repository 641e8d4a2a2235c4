"""Pytest plugin that prints CPU seconds per folder and per test: `python -m pytest -n 2 -p tools.suite_times`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from typing import Any

import pytest

SLOWEST = 40
"""Number of slowest tests to print."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the measurement in this process; pytest-xdist does it in its workers, too."""
    config.pluginmanager.register(SuiteTimes(config))


class SuiteTimes:
    """CPU seconds of this process and of child processes that have ended, by test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last = 0.0
        self._collection: dict[str, float] = {}
        self._tests: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        """Record the time of imports and collection."""
        self._collection[os.environ.get("PYTEST_XDIST_WORKER", "main")] = self._advance()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Add the time of a phase of a test to its report."""
        report = yield
        report.cpu_seconds = self._advance()
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add up the phases of a test."""
        self._tests[report.nodeid] += report.cpu_seconds

    def pytest_sessionfinish(self) -> None:
        """Send the time of collection from a worker to the main process."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["collection_seconds"] = self._collection

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the time of collection of a worker."""
        self._collection |= getattr(node, "workeroutput", {}).get("collection_seconds", {})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tables."""
        terminalreporter.section("CPU seconds")
        for line in summary(self._collection, self._tests):
            terminalreporter.write_line(line)

    def _advance(self) -> float:
        """Return the CPU seconds since the last call."""
        now = sum(os.times()[:4])
        seconds, self._last = now - self._last, now
        return seconds


def summary(collection: Mapping[str, float], tests: Mapping[str, float]) -> list[str]:
    """Return lines with the CPU seconds of processes, of folders and of the slowest tests.

    >>> for line in summary({"main": 2.0}, {"tests/a/test_x.py::one": 1.5, "tests/a/test_y.py::two": 0.2}):
    ...     print(line.strip())
    3.7  total
    2.0  imports and collection (main)
    1.7  tests/a (2 tests)
    1.5  tests/a/test_x.py::one
    0.2  tests/a/test_y.py::two
    """
    folders: dict[str, list[float]] = defaultdict(list)
    for name, seconds in tests.items():
        folders["/".join(name.split("::")[0].split("/")[:2])].append(seconds)
    rows = [(sum(collection.values()) + sum(tests.values()), "total")]
    rows += [(seconds, f"imports and collection ({process})") for process, seconds in sorted(collection.items())]
    rows += sorted(((sum(times), f"{folder} ({len(times)} tests)") for folder, times in folders.items()), reverse=True)
    rows += sorted(((seconds, name) for name, seconds in tests.items()), reverse=True)[:SLOWEST]
    return [f"{seconds:8.1f}  {name}" for seconds, name in rows]
