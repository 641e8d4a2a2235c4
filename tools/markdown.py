"""Write text, tables and numbers of generated pages as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

MARKDOWN_ESCAPES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "|*_[]`\\{}~^$"})


def plain(text: str) -> str:
    """Escape all markup in a text.

    >>> plain("a|b <c>")
    'a&#124;b &lt;c&gt;'
    """
    return escape(text, quote=False).translate(MARKDOWN_ESCAPES)


def table(names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Return a Markdown table.

    >>> print(table(["run", "AP"], [["a", "0.5"]], [True, False]))
    | run | AP |
    | :-- | --: |
    | a | 0.5 |
    """
    lines = [names, [":--" if is_left else "--:" for is_left in left], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_value(value: Any, name: str = "") -> str:
    """Format a value of an experiment: four decimals, percentages with a sign, counts with commas.

    >>> format_value(0.12345), format_value(3.2, "over majority %"), format_value(12000), format_value("gda")
    ('0.1235', '+3.20', '12,000', 'gda')
    """
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return plain(str(value))
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:+.2f}" if name.endswith("%") else f"{value:.4f}"
