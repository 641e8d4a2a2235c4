"""Numbers and ids as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

UNSEEN = "\ufffd"
JOINERS = "\u200c\u200d"
"""They join and part letters in many scripts."""


def signed(value: float, digits: int = 4) -> str:
    """A difference with its sign, and a minus that is as wide as the plus.

    >>> signed(-0.01234), signed(0.5, 1)
    ('−0.0123', '+0.5')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def real_minus(text: str) -> str:
    """Text whose negative numbers have a real minus; hyphens stay what they are.

    >>> real_minus("gda-pw-mart is -0.0072 [-0.0410, +0.0251]")
    'gda-pw-mart is −0.0072 [−0.0410, +0.0251]'
    """
    return re.sub(r"(?<=[\s(\[])-(?=\d)", "−", text)


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.694), percent(float("nan"))
    ('69%', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.0f}%"


def plain_id(value: Any, most: int = 40) -> str:
    """An id as one line of text that can be shown, cut where it is long.

    Signs that cannot be shown have a mark in their place: some of them end the drawing of a chart, others turn text
    around.

    >>> plain_id("a  b"), plain_id("x" * 50, most=10), plain_id(chr(1) + "c")
    ('a b', 'xxxxxxxxx…', '\ufffdc')
    """
    text = " ".join("".join(map(_seen, str(value))).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _seen(sign: str) -> str:
    return sign if sign.isprintable() or sign.isspace() or sign in JOINERS else UNSEEN


def plain_ids(values: Iterable[Any], most: int = 40) -> list[str]:
    """Ids as one line of text each; those that come out alike stay apart.

    >>> plain_ids(["ann", "x" * 50, "x" * 60], most=10)
    ['ann', 'xxxxxxxxx…', 'xxxxxxxxx… (2)']
    """
    seen: dict[str, int] = {}
    told = []
    for value in values:
        short = plain_id(value, most)
        seen[short] = seen.get(short, 0) + 1
        told.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return told
