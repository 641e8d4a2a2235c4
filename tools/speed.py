"""Write the table of the page on speed from the results that `make bench` stored."""

from __future__ import annotations

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
    rendered = table(["measurement", "ratio", "goal", "date", "`ONLY=`"], cells, [True, False, True, True, True])
    return f"{rendered}\n\nMeasured on: {machines}."


def _goal(goal: str, met: bool) -> str:
    return goal if met else f"{goal}, missed"
