"""Write measured numbers into the pages of the documentation: `python -m tools.figures` or `make figures`.

Seven markers are replaced up to the next `<!-- end -->`:

    <!-- figures EXPERIMENT TABLE | run, run | column, column -->   rows of a table of an experiment
    <!-- notes EXPERIMENT TABLE -->                                 notes below a table of an experiment
    <!-- results EXPERIMENT, EXPERIMENT -->                         links to the pages of experiments
    <!-- demo -->                                                   summary of the demo
    <!-- speed BENCHMARK, BENCHMARK -->                             results that `make bench` stored
    <!-- steps BENCHMARK -->                                        time and memory of steps, from `make bench-scale`
    <!-- walk NAME -->                                              steps of a walk through the code, with a picture

The results of each experiment, the command-line reference and the glossary are generated completely. A test checks that
all pages are up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdrank._files import write_file
from crowdrank._glossary import GLOSSARY
from tools import command_line, results, speed, walks
from tools.markdown import plain

DOCS = Path(__file__).parent.parent / "docs"
NOTICE = "<!-- Made by `make figures`; changes by hand are lost. -->\n\n"
MARKER = re.compile(
    r"^<!-- (?P<kind>figures|notes|results|demo|speed|steps|walk)(?P<arguments>[^\n]*?) -->\n.*?^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)


def current_pages() -> dict[Path, str]:
    """Return the current text of every page with generated parts, by its path."""
    generated = {"command-line.md": command_line.page(), "glossary.md": glossary(), **results.pages()}
    pages = {DOCS / name: _with_notice(text) for name, text in generated.items()}
    pages |= {DOCS / "assets" / f"walk-{name}.svg": walks.picture(name) for name in walks.WALKS}
    for path in [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("papers/*.md")), DOCS.parent / "CONTRIBUTING.md"]:
        if path not in pages and MARKER.search(text := path.read_text(encoding="utf-8")):
            pages[path] = fill(text, "../results" if path.parent.name == "papers" else "results")
    return pages


def _with_notice(page: str) -> str:
    """Add a comment that the page is generated."""
    title, rest = page.split("\n\n", 1)
    return f"{title}\n\n{NOTICE}{rest}"


def fill(text: str, folder: str = "results") -> str:
    r"""Replace the parts of a page between markers; links to results lead to `folder`.

    >>> print(fill("<!-- results nothing -->\n\nold\n\n<!-- end -->"))
    <!-- results nothing -->
    <BLANKLINE>
    <!-- end -->
    """
    return MARKER.sub(lambda match: _fill_marker(match, folder), text)


def _fill_marker(match: re.Match[str], folder: str) -> str:
    kind, arguments = match["kind"], match["arguments"].strip()
    content = WRITERS[kind](arguments).replace("](results/", f"]({folder}/")
    return f"<!-- {f'{kind} {arguments}'.strip()} -->\n\n{content}{chr(10) * 2 if content else ''}<!-- end -->"


def glossary() -> str:
    """Return the page of the glossary."""
    lines = [f"- **{word}**: {meaning}." for word, meaning in sorted(GLOSSARY.items())]
    return "\n".join(["# Glossary", "", *lines, ""])


def demo(_: str = "") -> str:
    """Return the summary that the demo prints."""
    lines = (DOCS / "assets" / "report.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(f"> - {plain(line)}" for line in lines)


def links(experiments: str) -> str:
    """Return links to the pages of experiments that have results."""
    names = [name for name in (word.strip() for word in experiments.split(",")) if name in results.load_results()]
    listed = ", ".join(f"[{name}](results/{name}.md)" for name in names)
    return f"All results, with significance tests: {listed}." if listed else ""


def figures(arguments: str) -> str:
    """Return rows of a table of an experiment and a link to its page."""
    source, *selection = [part.strip() for part in arguments.split("|")]
    experiment, name = source.split()
    table = _find_table(experiment, name)
    words = [[word.strip() for word in part.split(",") if word.strip()] for part in selection]
    runs, columns = (*words, [], [])[:2]
    _check_names(table, runs, columns)
    rows = results.table_rows(table, runs or None, columns or None)
    return f"{rows}\n\nFrom `python -m experiments {experiment}`: [all results, with tests](results/{experiment}.md)."


def notes(arguments: str) -> str:
    """Return the notes below a table of an experiment as a list."""
    experiment, name = arguments.split()
    return "\n".join(f"- {plain(note)}" for note in _find_table(experiment, name)["notes"])


def _find_table(experiment: str, name: str) -> dict[str, Any]:
    """Return a table of the stored results of an experiment."""
    result = results.load_results().get(experiment)
    if result is None:
        raise ValueError(f"docs/results/{experiment}.json is missing; write it with: make results ONLY={experiment}")
    tables: dict[str, dict[str, Any]] = {table["name"]: table for table in result["tables"]}
    if name not in tables:
        raise ValueError(f"The experiment {experiment} has no table '{name}'; it has {', '.join(tables)}.")
    return tables[name]


def _check_names(table: dict[str, Any], runs: list[str], columns: list[str]) -> None:
    """Raise ValueError if the table lacks a run or a column."""
    known = {str(row.get("run")) for row in table["rows"]} | {name for row in table["rows"] for name in row}
    unknown = [name for name in (*runs, *columns) if name not in known]
    if unknown:
        raise ValueError(f"The table '{table['name']}' has no {', '.join(unknown)}.")


WRITERS: dict[str, Callable[[str], str]] = {
    "figures": figures,
    "notes": notes,
    "results": links,
    "demo": demo,
    "speed": speed.rows,
    "steps": speed.steps,
    "walk": walks.steps_list,
}
"""Functions that return the text between markers, by kind of marker."""


def main() -> None:
    """Write the pages that are not up to date."""
    for path, text in current_pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            with write_file(path) as draft:
                draft.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
