"""One HTML file with which one person judges without a server."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._files import write_file
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, InputError, UsageError, near
from crowdrank.judgments.texts import Texts, read_texts
from crowdrank.reports.page import csp_hash, script_json
from crowdrank.service.judging_page import judging_config, key_help, render_markdown, static_text, templates


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
