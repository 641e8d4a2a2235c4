"""Write the pages of the experiments from the JSON of `python -m experiments NAME -o docs/results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS
from tools.words import figure, plain, table

FOLDER = Path(__file__).parent.parent / "docs" / "results"
OPENING = """# Results

Every figure on these pages was written by a command (`python -m experiments NAME -o docs/results`) and is shown
as it was written, with the protocol it was made by. Nothing is typed. `make results ONLY=NAME`
makes one again; the public data sets must be there (`crowdrank datasets` lists them).
"""


def written() -> dict[str, dict[str, Any]]:
    """What was written of each experiment, in the order of the experiments."""
    there = {name: FOLDER / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in there.items() if path.is_file()}


def pages() -> dict[str, str]:
    """The text of each page, by its address."""
    found = written()
    return {"results/index.md": _index(found), **{f"results/{name}.md": _page(one) for name, one in found.items()}}


def _index(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        [f"[{name}]({name}.md)" if name in found else name, plain(about), "" if name in found else "not written yet"]
        for name, about in EXPERIMENTS.items()
    ]
    return f"{OPENING}\n{table(['experiment', 'what it asks', ''], rows, [True, True, True])}\n"


def _page(experiment: dict[str, Any]) -> str:
    name = experiment["experiment"]
    parts = [
        f"# {name}",
        f"{plain(EXPERIMENTS[name][0].upper() + EXPERIMENTS[name][1:])}.",
        _origin(experiment),
        *(part for one in experiment["tables"] for part in _table(one)),
        "## Protocol",
        "\n".join(f"- {plain(sentence)}" for sentence in experiment["protocol"]),
    ]
    return "\n\n".join(parts) + "\n"


def _origin(experiment: dict[str, Any]) -> str:
    command = experiment.get("command", f"python -m experiments {experiment['experiment']}")
    version = f" by crowdrank {experiment['version']}" if "version" in experiment else ""
    file = f"{experiment['experiment']}.json"
    return f"Written{version}: `{command}`. The same as JSON: [{file}]({file})."


def _table(one: dict[str, Any]) -> list[str]:
    tests = _tests(one)
    notes = "\n".join(f"- {plain(note)}" for note in one["notes"])
    return [f"## {plain(one['title'])}", rows_shown(one), *([notes] if notes else []), *([tests] if tests else [])]


def rows_shown(one: dict[str, Any], runs: list[str] | None = None, columns: list[str] | None = None) -> str:
    """The rows of a table, or some of them in that order; the best is bold, a dagger stands at what differs."""
    rows = one["rows"] if runs is None else [row for run in runs for row in one["rows"] if row.get("run") == run]
    if not rows:
        return "No rows."
    names = list(rows[0]) if columns is None else ["run", *columns]
    details = {(row["run"], row["measure"]): row for row in (one["tests"] or {"details": []})["details"]}
    cells = [[_cell(row, name, details) for name in names] for row in rows]
    left = [all(isinstance(row[name], str) for row in rows) for name in names]
    dagger = any("†" in cell for row in cells for cell in row)
    told = f"\n\nBold: the best. †: differs from {plain(one['tests']['baseline'])} beyond chance." if dagger else ""
    return table([plain(name) for name in names], cells, left) + told


def _cell(row: dict[str, Any], name: str, details: dict[tuple[str, str], dict[str, Any]]) -> str:
    said, tested = figure(row[name], name), details.get((row.get("run", ""), name))
    if tested is None:
        return said
    said += "†" if tested["significant"] else ""
    return f"**{said}**" if tested["best"] else said


def _tests(one: dict[str, Any]) -> str:
    """Differences to the baseline, folded away."""
    tests = one["tests"]
    rows = [row for row in tests["details"] if row["lower"] is not None] if tests else []
    if not rows:
        return ""
    names = ["measure", "run", "difference", "lower", "upper", "p", "p_holm"]
    cells = [[figure(row[name]) for name in names] for row in rows]
    shown = table([plain(name) for name in names], cells, [True, True, *[False] * 5])
    told = f"Differences to {plain(tests['baseline'])}, with intervals and p"
    return f'<details markdown="1">\n<summary>{told}</summary>\n\n{shown}\n\n</details>'
