"""Pytest plugin that prints the CPU seconds of tests: `python -m pytest -n 2 -p tools.suite_times`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

SLOWEST = 40
"""Number of slowest tests to print."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(_SuiteTimes(config))


class _SuiteTimes:
    """CPU seconds of this process and its finished child processes, per test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last = 0.0
        self._tests: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def pytest_collection_finish(self) -> None:
        self._before[f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}: import and collection"] = self._advance()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.cpu_seconds = self._advance()
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._tests[report.nodeid] += report.cpu_seconds

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu_seconds"] = dict(self._before)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._before.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("CPU seconds")
        folders: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for nodeid, seconds in self._tests.items():
            file = nodeid.split("::")[0]
            folder = "/".join(file.split("/")[:2])
            folders[folder] += seconds
            counts[folder] += 1
        for name, seconds in self._before.items():
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        for folder, seconds in folders.most_common():
            terminalreporter.write_line(f"{seconds:8.1f}  {folder} ({counts[folder]} tests)")
        terminalreporter.write_line(f"{self._tests.total() + self._before.total():8.1f}  total")
        terminalreporter.section(f"{SLOWEST} slowest tests")
        for nodeid, seconds in self._tests.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f}  {nodeid}")

    def _advance(self) -> float:
        """Return the CPU seconds since the last call."""
        now = sum(os.times()[:4])
        seconds, self._last = now - self._last, now
        return seconds
