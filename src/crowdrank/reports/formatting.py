"""Numbers and ids as text for readers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

REPLACEMENT = "\ufffd"
"""Character shown in place of one that cannot be shown."""
JOINERS = "\u200c\u200d"
"""Invisible characters that join or separate letters in many scripts."""


def signed(value: float, digits: int = 4) -> str:
    """Return a difference with its sign, with a minus sign as wide as the plus.

    >>> signed(-0.01234), signed(0.5, 1)
    ('−0.0123', '+0.5')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def minus_signs(text: str) -> str:
    """Return a text with minus signs in place of the hyphens before negative numbers.

    >>> minus_signs("gda-pw-mart is -0.0072 [-0.0410, +0.0251]")
    'gda-pw-mart is −0.0072 [−0.0410, +0.0251]'
    >>> minus_signs("-0.5 to 0.5")
    '−0.5 to 0.5'
    """
    return re.sub(r"(?:(?<=[\s(\[])|^)-(?=\d)", "−", text)


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.694), percent(float("nan"))
    ('69%', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.0f}%"


def one_line(value: Any, max_length: int = 40) -> str:
    """Return an id or a text on one line, truncated if it is long.

    Characters that cannot be shown are replaced: some stop the rendering of a chart, others reverse text.

    >>> one_line("a  b"), one_line("x" * 50, max_length=10), one_line(chr(1) + "c")
    ('a b', 'xxxxxxxxx…', '\ufffdc')
    """
    text = " ".join("".join(map(_printable, str(value))).split())
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _printable(char: str) -> str:
    return char if char.isprintable() or char.isspace() or char in JOINERS else REPLACEMENT


def distinct_lines(values: Iterable[Any], max_length: int = 40) -> list[str]:
    """Return each id on one line; truncated ids that would be equal are numbered.

    >>> distinct_lines(["ann", "x" * 50, "x" * 60], max_length=10)
    ['ann', 'xxxxxxxxx…', 'xxxxxxxxx… (2)']
    """
    counts: dict[str, int] = {}
    lines = []
    for value in values:
        line = one_line(value, max_length)
        counts[line] = counts.get(line, 0) + 1
        lines.append(line if counts[line] == 1 else f"{line} ({counts[line]})")
    return lines
