"""Hooks of mkdocs: the pages of the library and the changelog, where pages stand, equations as MathML.

Figures stand in the pages themselves: `make figures` writes them (`tools/figures.py`).
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools import api, results
from tools.mathml import mathml

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
REPOSITORY = Path(__file__).parent.parent


def generated() -> dict[str, str]:
    """The text of every page that is made with the site, by its address."""
    return {"changelog.md": (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), **api.pages()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that need not be there are in the navigation where they are."""
    made = generated()
    config.nav = _there(config.nav or [], made, Path(config.docs_dir))
    config.nav.append({"Results": [name for name in results.pages() if (Path(config.docs_dir) / name).is_file()]})
    config.nav.append({"Library": [name for name in made if name.startswith("api/")]})
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


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Equations as MathML."""
    html = BLOCK.sub(lambda found: mathml(unescape(found[1]), display=True), html)
    return INLINE.sub(lambda found: mathml(unescape(found[1])), html)
