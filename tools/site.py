"""Hooks of mkdocs: generated pages, navigation and equations as MathML."""

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


def generated_pages() -> dict[str, str]:
    """Return the text of the pages that are generated with the site, by path."""
    return {"changelog.md": (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), **api.pages()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation and omit missing pages."""
    generated = generated_pages()
    config.nav = _existing(config.nav or [], generated, Path(config.docs_dir))
    config.nav.append({"Results": [name for name in results.pages() if (Path(config.docs_dir) / name).is_file()]})
    config.nav.append({"Library": [name for name in generated if name.startswith("api/")]})
    return config


def _existing(items: list[Any], generated: dict[str, str], folder: Path) -> list[Any]:
    """Return the entries of a navigation whose pages exist."""
    existing: list[Any] = []
    for item in items:
        ((title, place),) = item.items()
        if isinstance(place, list):
            existing.append({title: _existing(place, generated, folder)})
        elif place in generated or (folder / place).is_file():
            existing.append(item)
    return existing


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert equations to MathML."""
    html = BLOCK.sub(lambda match: mathml(unescape(match[1]), display=True), html)
    return INLINE.sub(lambda match: mathml(unescape(match[1])), html)
