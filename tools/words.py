"""How generated pages write text and numbers, so that Markdown shows them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

MARKED = str.maketrans({sign: f"&#{ord(sign)};" for sign in "|*_[]`\\{}~^$"})


def plain(text: str) -> str:
    """A text in which nothing is markup.

    >>> plain("a|b <c>")
    'a&#124;b &lt;c&gt;'
    """
    return escape(text, quote=False).translate(MARKED)


def table(names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Cells as a Markdown table.

    >>> print(table(["run", "AP"], [["a", "0.5"]], [True, False]))
    | run | AP |
    | :-- | --: |
    | a | 0.5 |
    """
    lines = [names, [":--" if is_left else "--:" for is_left in left], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(value: Any, name: str = "") -> str:
    """A value of an experiment: four decimals, differences in per cent with a sign, counts with commas.

    >>> figure(0.12345), figure(3.2, "over majority %"), figure(12000), figure(None), figure("gda")
    ('0.1235', '+3.20', '12,000', '', 'gda')
    """
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return plain(str(value))
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:+.2f}" if name.endswith("%") else f"{value:.4f}"
