"""What the judging page of the service and the judging file without a server have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from crowdrank.judgments.judging_database import CANNOT_JUDGE

ANSWER_KEYS = (
    ("u", "Cannot judge: the document is broken, or in a language that you do not read"),
    ("l", "Later: show this document again at the end"),
    ("c", "Write a comment"),
    ("e", "Mark the selected passage as evidence"),
    ("z", "Undo the last answer"),
    ("/", "Find in the document"),
    ("g", "Show or hide the guidelines"),
    ("j k", "Go to the next or the previous document of the query"),
    ("?", "Show the keys"),
)
"""Keys of the judging page besides those of the grades."""


def grade_keys(grades: Sequence[str]) -> list[str]:
    """Return the key of each grade: the digit in its name if all have one, else its place from 1; "" for none.

    >>> grade_keys(["Bad", "Good"]), grade_keys(["0", "1"]), grade_keys(["Not relevant (0)", "Relevant (1)"])
    (['1', '2'], ['0', '1'], ['0', '1'])
    >>> grade_keys(["Bad (0)", "Awful (0)"]), grade_keys([f"G{place}" for place in range(11)])[8:]
    (['1', '2'], ['9', '0', ''])
    """
    digits = [found[0].strip("()") for name in grades if (found := re.search(r"^[0-9]$|\([0-9]\)$", name))]
    if len(set(digits)) == len(grades):
        return digits
    return [str((place + 1) % 10) if place < 10 else "" for place in range(len(grades))]


def key_help(grades: Sequence[str]) -> list[tuple[str, str]]:
    """Return the keys of the judging page and their meaning.

    >>> key_help(["Bad", "Good"])[:3]
    [('1', 'Bad'), ('2', 'Good'), ('u', 'Cannot judge: the document is broken, or in a language that you do not read')]
    """
    named = zip(grade_keys(grades), grades, strict=True)
    return [*((key, f"Grade {name}" if key == name else name) for key, name in named if key), *ANSWER_KEYS]


@cache
def templates() -> jinja2.Environment:
    """Return the templates of the pages; all values are escaped."""
    loader = jinja2.PackageLoader("crowdrank.service")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def render_markdown(text: str) -> Markup:
    r"""Return guidelines in Markdown as HTML; HTML in them is shown as text, and headings are one level lower.

    >>> str(render_markdown("# Grades\n**Good** <script>"))
    '<h2>Grades</h2>\n<p><strong>Good</strong> &lt;script&gt;</p>\n'
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False}).disable("image")
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + 1, 6)}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def static_text(name: str) -> str:
    """Return a file of the folder of static files."""
    return files("crowdrank.service").joinpath("static", name).read_text(encoding="utf-8")


def judging_config(grades: Sequence[str], **values: Any) -> dict[str, Any]:
    """Return the configuration of the judging script; see the head of `static/judge.js` for what it reads."""
    of_grades = {"grades": list(grades), "grade_keys": grade_keys(grades), "unjudgeable": CANNOT_JUDGE}
    return {"layout": {}, "form_token": "", "assessor": "", **of_grades, **values}
