"""Hooks of mkdocs: pages that are generated, figures of the studies inside other pages, equations as MathML.

A line `[[figures STUDY TABLE | run, run | column, column]]` in a page stands for those rows of a study's table, a line
`[[results STUDY, STUDY]]` for links to their pages, as far as there are any, and `[[demo]]` for what the demo says.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools import api, command_line, results
from tools.mathml import mathml
from tools.words import plain

FIGURES = re.compile(r"^\[\[figures (?P<study>\S+) (?P<table>\S+)(?P<rest>.*)\]\]$", re.MULTILINE)
RESULTS = re.compile(r"^\[\[results (?P<studies>.*)\]\]$", re.MULTILINE)
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
REPOSITORY = Path(__file__).parent.parent


def generated() -> dict[str, str]:
    """The text of every page that nobody writes, by its address."""
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    return {"command-line.md": command_line.page(), "changelog.md": changes, **api.pages(), **results.pages()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that need not be there are in the navigation where they are."""
    made = generated()
    config.nav = _there(config.nav or [], made, Path(config.docs_dir))
    for title, folder in (("Results", "results"), ("Library", "api")):
        config.nav.append({title: [name for name in made if name.startswith(f"{folder}/")]})
    return config


def _there(items: list[Any], made: dict[str, str], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        ((title, place),) = item.items()
        if isinstance(place, list):
            kept.append({title: _there(place, made, folder)})
        elif place in made or (folder / place).is_file():
            kept.append(item)
    return kept


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for address, text in generated().items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put figures of studies in their places."""
    said = (REPOSITORY / "docs" / "assets" / "report.txt").read_text(encoding="utf-8")
    markdown = markdown.replace("[[demo]]", f"> {plain(said.strip())}")
    markdown = RESULTS.sub(lambda found: links(found["studies"]), markdown)
    return FIGURES.sub(lambda found: figures(found["study"], found["table"], found["rest"]), markdown)


def links(studies: str) -> str:
    """Links to the pages of studies that were written; nothing where none was."""
    there = [name for name in (word.strip() for word in studies.split(",")) if name in results.studies()]
    told = ", ".join(f"[{name}](results/{name}.md)" for name in there)
    return f"All of it, as it was written last, with tests: {told}." if told else ""


def figures(study: str, table: str, rest: str) -> str:
    """Rows of a table of a study, and where they come from."""
    found = results.studies().get(study)
    if found is None:
        raise PluginError(f"docs/results/{study}.json is missing; write it with: make results ONLY={study}")
    one = next((one for one in found["tables"] if one["name"] == table), None)
    if one is None:
        known = ", ".join(one["name"] for one in found["tables"])
        raise PluginError(f"The study {study} has no table '{table}'; it has {known}.")
    _, *chosen = [[word.strip() for word in part.split(",") if word.strip()] for part in rest.split("|")]
    runs, columns = (*chosen, [], [])[:2]
    _check(one, runs, columns)
    shown = results.rows_shown(one, runs or None, columns or None)
    return f"{shown}\n\nFrom `crowdrank study {study}`: [all of it, with tests](results/{study}.md)."


def _check(one: dict[str, Any], runs: list[str], columns: list[str]) -> None:
    """Refuse names that the table does not have: a page must not lose a row in silence."""
    there = {str(row.get("run")) for row in one["rows"]} | {name for row in one["rows"] for name in row}
    unknown = [name for name in (*runs, *columns) if name not in there]
    if unknown:
        raise PluginError(f"The table '{one['name']}' has no {', '.join(unknown)}.")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Equations as MathML."""
    html = BLOCK.sub(lambda found: mathml(unescape(found[1]), display=True), html)
    return INLINE.sub(lambda found: mathml(unescape(found[1])), html)
