"""Write HTML for notebooks: a heading, a paragraph and a small table, with all text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crowdrank._text import visible

MAX_TABLE_ROWS = 5
"""Maximum number of rows of a table in a notebook."""
MAX_CELL_LENGTH = 60
"""Maximum number of characters of a table cell."""


def panel(*html_blocks: str) -> str:
    """Return an HTML block that contains other HTML blocks.

    >>> panel(heading("3 documents"))
    '<div><p><b>3 documents</b></p></div>'
    """
    return f"<div>{''.join(html_blocks)}</div>"


def heading(text: str) -> str:
    """Return a bold paragraph with escaped text.

    >>> heading("<script>")
    '<p><b>&lt;script&gt;</b></p>'
    """
    return f"<p><b>{_escape_html(text)}</b></p>"


def paragraph(text: str) -> str:
    """Return a paragraph with escaped text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{_escape_html(text)}</p>"


def html_table(
    rows: Sequence[Mapping[str, Any]], column_names: Iterable[str] | None = None, total_rows: int | None = None
) -> str:
    """Return an HTML table of the first rows, and the number of rows left out.

    >>> html_table([{"id": "<b>", "x": 0.25}])
    '<table><thead><tr><th>id</th><th>x</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>0.250</td></tr></tbody></table>'
    """
    if not rows:
        return ""
    columns = list(rows[0]) if column_names is None else list(column_names)
    head = "".join(f"<th>{_escape_html(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escape_html(format_cell(row.get(name)))}</td>' for name in columns)}</tr>"
        for row in rows[:MAX_TABLE_ROWS]
    )
    omitted = (len(rows) if total_rows is None else total_rows) - min(MAX_TABLE_ROWS, len(rows))
    more = f"<p>… {omitted:,} more rows</p>" if omitted > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def format_cell(value: Any) -> str:
    """Return the text of a table cell: on one line, truncated if it is long.

    >>> format_cell(0.123456), format_cell(None), format_cell(3), format_cell("x" * 100)[-3:]
    ('0.123', '', '3', 'xx…')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = f"{value:.3f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MAX_CELL_LENGTH else text[: MAX_CELL_LENGTH - 1] + "…"


def _escape_html(text: str) -> str:
    """Escape HTML and make control characters visible."""
    from html import escape  # rarely needed, and slow to import

    return escape(visible(text))
