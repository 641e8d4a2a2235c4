"""How our objects look in a notebook: a line of words and a small table, in plain HTML that nothing can run in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from crowdrank._text import visible

ROWS = 5
LONGEST = 60


def panel(*parts: str) -> str:
    """Parts of HTML as one block.

    >>> panel(heading("3 documents"))
    '<div><p><b>3 documents</b></p></div>'
    """
    return f"<div>{''.join(parts)}</div>"


def heading(text: str) -> str:
    """A line in bold; whatever it holds stays text.

    >>> heading("<script>")
    '<p><b>&lt;script&gt;</b></p>'
    """
    return f"<p><b>{_inert(text)}</b></p>"


def words(text: str) -> str:
    """A line.

    >>> words("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{_inert(text)}</p>"


def rows_of(rows: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None, total: int | None = None) -> str:
    """Rows as a table, the first few of them, with how many there are in all.

    >>> rows_of([{"id": "<b>", "x": 0.25}])
    '<table><thead><tr><th>id</th><th>x</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>0.250</td></tr></tbody></table>'
    """
    if not rows:
        return ""
    columns = list(rows[0]) if names is None else list(names)
    head = "".join(f"<th>{_inert(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_inert(cell(row.get(name)))}</td>' for name in columns)}</tr>" for row in rows[:ROWS]
    )
    number = len(rows) if total is None else total
    more = f"<p>… {number - min(ROWS, len(rows)):,} rows more</p>" if number > min(ROWS, len(rows)) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def cell(value: Any) -> str:
    """A value as a cell shows it: on one line, and cut where it is long.

    >>> cell(0.123456), cell(None), cell(3), cell("x" * 100)[-3:]
    ('0.123', '', '3', 'xx…')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = f"{value:.3f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _inert(text: str) -> str:
    """Return HTML that shows the text and nothing else."""
    return escape(visible(text))
