"""Figures on the pages, written into them: what stands there is read on the forge as on the site, and nobody types it.

Between `<!-- figures EXPERIMENT TABLE | run, run | column, column -->` and `<!-- end -->` go those rows of the table,
between `<!-- results EXPERIMENT, EXPERIMENT -->` and its end links to the pages of those experiments, and between
`<!-- demo -->` and its end the summary of the demo. Pages that are generated as a whole (the results of each
experiment, the command line) are written whole. `make figures` does it; a test checks that the pages are up to date.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from crowdrank._files import write_file
from tools import command_line, results
from tools.words import plain

DOCS = Path(__file__).parent.parent / "docs"
MADE = "<!-- Made by `make figures`; changes by hand are lost. -->\n\n"
PLACE = re.compile(
    r"^<!-- (?P<kind>figures|results|demo)(?P<told>[^\n]*?) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)


def fresh() -> dict[Path, str]:
    """What every page with figures has to say, by its file."""
    made = {"command-line.md": command_line.page(), **results.pages()}
    pages = {DOCS / name: _headed(text) for name, text in made.items()}
    for path in sorted(DOCS.glob("*.md")):
        if path not in pages and PLACE.search(text := path.read_text(encoding="utf-8")):
            pages[path] = filled(text)
    return pages


def _headed(page: str) -> str:
    """A page that is made, with a remark to whoever opens its source."""
    title, rest = page.split("\n\n", 1)
    return f"{title}\n\n{MADE}{rest}"


def filled(text: str) -> str:
    r"""A page with its figures in their places.

    >>> print(filled("<!-- results nothing -->\n\nold\n\n<!-- end -->"))
    <!-- results nothing -->
    <BLANKLINE>
    <!-- end -->
    """
    return PLACE.sub(_put, text)


def _put(found: re.Match[str]) -> str:
    kind, told = found["kind"], found["told"].strip()
    shown = demo() if kind == "demo" else links(told) if kind == "results" else figures(told)
    return f"<!-- {f'{kind} {told}'.strip()} -->\n\n{shown}{chr(10) * 2 if shown else ''}<!-- end -->"


def demo() -> str:
    """The paragraph that the demo ends with."""
    return f"> {plain((DOCS / 'assets' / 'report.txt').read_text(encoding='utf-8').strip())}"


def links(experiments: str) -> str:
    """Links to the pages of experiments that were written; nothing where none was."""
    there = [name for name in (word.strip() for word in experiments.split(",")) if name in results.written()]
    told = ", ".join(f"[{name}](results/{name}.md)" for name in there)
    return f"All of it, as it was written last, with tests: {told}." if told else ""


def figures(told: str) -> str:
    """Rows of a table of an experiment, and where they come from."""
    named, *chosen = [part.strip() for part in told.split("|")]
    experiment, table = named.split()
    found = results.written().get(experiment)
    if found is None:
        raise ValueError(f"docs/results/{experiment}.json is missing; write it with: make results ONLY={experiment}")
    one = next((one for one in found["tables"] if one["name"] == table), None)
    if one is None:
        known = ", ".join(one["name"] for one in found["tables"])
        raise ValueError(f"The experiment {experiment} has no table '{table}'; it has {known}.")
    words = [[word.strip() for word in part.split(",") if word.strip()] for part in chosen]
    runs, columns = (*words, [], [])[:2]
    _check(one, runs, columns)
    shown = results.rows_shown(one, runs or None, columns or None)
    return f"{shown}\n\nFrom `python -m experiments {experiment}`: [all of it, with tests](results/{experiment}.md)."


def _check(one: dict[str, Any], runs: list[str], columns: list[str]) -> None:
    """Refuse names that the table does not have: a page must not lose a row in silence."""
    there = {str(row.get("run")) for row in one["rows"]} | {name for row in one["rows"] for name in row}
    unknown = [name for name in (*runs, *columns) if name not in there]
    if unknown:
        raise ValueError(f"The table '{one['name']}' has no {', '.join(unknown)}.")


def main() -> None:
    """Write the pages whose figures are not those of today."""
    for path, text in fresh().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            with write_file(path) as draft:
                draft.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
