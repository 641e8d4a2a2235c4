"""Write the pages of the experiments from the JSON of `python -m experiments NAME -o docs/results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS
from tools.markdown import format_value, plain, table

FOLDER = Path(__file__).parent.parent / "docs" / "results"
INTRODUCTION = """# Results

A command wrote every number on these pages (`python -m experiments NAME -o docs/results`), with the protocol of the
experiment. `make results ONLY=NAME` runs an experiment again. It needs the public data sets; `crowdrank datasets` lists
them.
"""


def load_results() -> dict[str, dict[str, Any]]:
    """Return the stored results of experiments, in the order of the experiments."""
    paths = {name: FOLDER / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()}


def pages() -> dict[str, str]:
    """Return the text of each page, by its path."""
    results = load_results()
    return {"results/index.md": _index(results), **{f"results/{name}.md": _page(one) for name, one in results.items()}}


def _index(results: dict[str, dict[str, Any]]) -> str:
    rows = [
        [f"[{name}]({name}.md)" if name in results else name, plain(about), "" if name in results else "not run yet"]
        for name, about in EXPERIMENTS.items()
    ]
    return f"{INTRODUCTION}\n{table(['experiment', 'question', ''], rows, [True, True, True])}\n"


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
    commit = f" (commit {experiment['commit']})" if "commit" in experiment else ""
    version = f" by crowdrank {experiment['version']}{commit}" if "version" in experiment else ""
    file = f"{experiment['experiment']}.json"
    return f"Written{version}: `{command}`. As JSON: [{file}]({file})."


def _table(one: dict[str, Any]) -> list[str]:
    tests = _tests(one)
    notes = "\n".join(f"- {plain(note)}" for note in one["notes"])
    return [f"## {plain(one['title'])}", table_rows(one), *([notes] if notes else []), *([tests] if tests else [])]


def table_rows(one: dict[str, Any], runs: list[str] | None = None, columns: list[str] | None = None) -> str:
    """Return the rows of a table, or the given ones; the best value is bold, a significant difference has a dagger."""
    rows = one["rows"] if runs is None else [row for run in runs for row in one["rows"] if row.get("run") == run]
    if not rows:
        return "No rows."
    names = list(rows[0]) if columns is None else ["run", *columns]
    details = {(row["run"], row["measure"]): row for row in (one["tests"] or {"details": []})["details"]}
    cells = [[_cell(row, name, details) for name in names] for row in rows]
    left = [all(isinstance(row[name], str) for row in rows) for name in names]
    dagger = any("†" in cell for row in cells for cell in row)
    baseline = plain(one["tests"]["baseline"]) if dagger else ""
    legend = f"\n\nBold: the best. †: differs significantly from {baseline}." if dagger else ""
    return table([plain(name) for name in names], cells, left) + legend


def _cell(row: dict[str, Any], name: str, details: dict[tuple[str, str], dict[str, Any]]) -> str:
    text, test = format_value(row[name], name), details.get((row.get("run", ""), name))
    if test is None:
        return text
    text += "†" if test["significant"] else ""
    return f"**{text}**" if test["best"] else text


def _tests(one: dict[str, Any]) -> str:
    """Return the differences to the baseline as a collapsed section."""
    tests = one["tests"]
    rows = [row for row in tests["details"] if row["lower"] is not None] if tests else []
    if not rows:
        return ""
    names = ["measure", "run", "difference", "lower", "upper", "p", "p_holm"]
    cells = [[format_value(row[name]) for name in names] for row in rows]
    rendered = table([plain(name) for name in names], cells, [True, True, *[False] * 5])
    summary = f"Differences to {plain(tests['baseline'])}, with intervals and p-values"
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{rendered}\n\n</details>'
