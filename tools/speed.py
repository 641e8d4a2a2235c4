"""Write tables of measurements from the results that `make bench` and `make bench-scale` stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import stored_results
from tools.markdown import plain, table


def rows(names: str) -> str:
    """Return a table of the results of benchmarks, given their names separated by commas, and their machines.

    A benchmark without stored results has no row.
    """
    stored = stored_results.load()
    entries = [(name, stored[name]) for name in (word.strip() for word in names.split(",")) if name in stored]
    cells = [
        [plain(one["name"]), f"{one['ratio']:.3g}", _goal(one["goal"], one["met"]), entry["date"], f"`{name}`"]
        for name, entry in entries
        for one in entry["results"]
    ]
    if not cells:
        return ""
    machines = ", ".join(dict.fromkeys(plain(entry["machine"]) for _, entry in entries))
    rendered = table(["measurement", "value", "goal", "date", "`ONLY=`"], cells, [True, False, True, True, True])
    return f"{rendered}\n\nMeasured on: {machines}."


def steps(name: str) -> str:
    """Return a table of the time and memory of each step that `make bench-scale` measured, and one of its results."""
    entry = stored_results.load().get(name)
    if entry is None:
        return ""
    header = ["step", "labels", "CPU time per label (ns)", "time (s)", "peak memory (MB)", "bytes per label"]
    measured = table(header, [_step(one) for one in entry["steps"]], [True, False, False, False, False, False])
    cells = [[plain(one["name"]), f"{one['ratio']:.3g}", _goal(one["goal"], one["met"])] for one in entry["results"]]
    compared = table(["measurement", "value", "goal"], cells, [True, False, True])
    return f"{measured}\n\n{compared}\n\nMeasured on: {plain(entry['machine'])}, {entry['date']}."


def _step(one: Mapping[str, Any]) -> list[str]:
    return [
        one["step"],
        f"{one['labels']:,}",
        f"{one['processor_seconds'] / one['labels'] * 1e9:,.0f}",
        f"{one['seconds']:,.0f}",
        f"{one['peak_bytes'] / 1e6:,.0f}",
        f"{one['peak_bytes'] / one['labels']:,.1f}",
    ]


def _goal(goal: str, met: bool) -> str:
    return goal if met else f"{goal}, missed"
