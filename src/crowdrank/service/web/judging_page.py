"""Contents of the judging page, in the service and in one HTML file that needs no server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from crowdrank._files import write_file
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, InputError, UsageError, near
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.readers.texts import Texts, read_texts
from crowdrank.reports.page import csp_hash, script_json

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


PREFERENCE_KEYS = {"left": "ArrowLeft", "tie": " ", "right": "ArrowRight"}
"""Key of each answer of projects that ask for preferences."""
PREFERENCE_KEY_HELP = (
    ("\u2190", "The left document is better"),
    ("space", "Tie"),
    ("\u2192", "The right document is better"),
    *((key, meaning) for key, meaning in ANSWER_KEYS if key not in ("e", "j k")),
)
"""Keys of the judging page of such projects."""


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
    if values.get("task") == "preferences":
        of_grades["grade_keys"] = [PREFERENCE_KEYS[name] for name in grades]
    return {"layout": {}, "form_token": "", "assessor": "", **of_grades, **values}


@dataclass(frozen=True)
class OfflinePage:
    """A judging page in one file.

    Attributes:
        html: the page.
        n_pairs: number of pairs to judge.
        n_without_text: number of pairs without a text, of which the page shows only the id.

    """

    html: str
    n_pairs: int
    n_without_text: int

    def write(self, path: str | Path) -> None:
        """Write the page to a file."""
        with write_file(path) as draft:
            draft.write_text(self.html, encoding="utf-8")


def make_offline_page(
    requests: str | Path,
    texts: Sequence[str | Path],
    grades: Sequence[str],
    *,
    assessor: str | None = None,
    guidelines: str = "",
    title: str = "Judging",
    random_state: int = 0,
) -> OfflinePage:
    """Return a page with which one person judges the requested pairs, in random order by query.

    Args:
        requests: pairs to judge, such as the requests of `collect next`.
        texts: files with the texts of queries and documents.
        grades: names of the grades, from least to most relevant.
        assessor: only the requests for this assessor; by default all.
        guidelines: guidelines in Markdown.
        title: title of the page.
        random_state: random seed of the order.

    """
    pool = _requests_of(Pool.read(requests), assessor)
    read = read_texts([Path(one) for one in texts], pool.query, pool.document, max_length=None)
    cards = _cards(pool, read, np.random.default_rng(random_state))
    key = hashlib.sha256(script_json([cards, list(grades)]).encode()).hexdigest()[:16]
    config = judging_config(grades, project=key, cards=cards, assessor=assessor or "")
    script, style = static_text("judge.js"), static_text("style.css")
    html = (
        templates()
        .get_template("offline.html")
        .render(
            title=title,
            assessor=assessor or "",
            guidelines=render_markdown(guidelines or "There are no guidelines."),
            keys=key_help(grades),
            config=script_json(config),
            script=script,
            style=style,
            policy=f"default-src 'none'; script-src {csp_hash(script)}; style-src {csp_hash(style)}; base-uri 'none'",
        )
    )
    return OfflinePage(html, len(cards), sum(not card["document"]["body"] for card in cards))


def _requests_of(pool: Pool, assessor: str | None) -> Pool:
    """Return the pairs that an assessor is asked to judge."""
    if assessor is None:
        return pool
    names = [] if pool.roster is None else [str(name) for name in pool.roster.assessors.to_pylist()]
    if assessor not in names or pool.allowed is None:
        known = f"; they are for: {', '.join(names[:10])}" if names else ", which name nobody"
        problem = f"is not among the assessors of the requests{near(assessor, names)}{known}"
        raise UsageError(problem, parameter="assessor", fix="leave it out to take all requests")
    offsets, allowed = pool.allowed
    pair_of_request = np.repeat(np.arange(len(pool)), np.diff(offsets))
    rows = pair_of_request[allowed == names.index(assessor)]
    return Pool(pool.query.take(rows), pool.document.take(rows))


def _cards(pool: Pool, texts: Texts, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return the cards of the judging script: queries in random order, and their documents too."""
    pairs = list(zip(map(str, pool.query.to_pylist()), map(str, pool.document.to_pylist()), strict=True))
    if not pairs:
        raise InputError("there is nothing to judge", kind="no-rows", fix=Fix("request labels with collect next"))
    order = {query: place for place, query in enumerate(rng.permutation(sorted({query for query, _ in pairs})))}
    shuffled = [pairs[place] for place in rng.permutation(len(pairs))]
    return [_card(query, document, texts) for query, document in sorted(shuffled, key=lambda pair: order[pair[0]])]


def _card(query: str, document: str, texts: Texts) -> dict[str, Any]:
    content = texts.documents.get((query, document)) or texts.documents.get(("", document), {})
    return {
        "token": hashlib.sha256(script_json([query, document]).encode()).hexdigest()[:16],
        "query": {"id": query, "text": texts.queries.get(query, query), "need": texts.needs.get(query, "")},
        "document": {
            "id": document,
            "title": content.get("title", ""),
            "body": content.get("text", ""),
            "fields": {},
            "url": content.get("url"),
        },
    }
