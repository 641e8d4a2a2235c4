"""Kinds of assessors: people, language models and experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Kind = Literal["human", "llm", "expert"]
"""Kind of assessor."""
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT_KIND: Kind = "human"
"""Default kind of assessors."""
LLM: Kind = "llm"
UNKNOWN_KIND = -1
"""Code of the kind of an assessor, if it is unknown; other codes are indices into `KINDS`."""
KIND_NAMES: Mapping[str, str] = {"human": "human", "llm": "LLM", "expert": "expert"}
"""Name of each kind of assessor, before a noun."""
KIND_PLURALS: Mapping[str, str] = {"human": "people", "llm": "LLM judges", "expert": "experts"}
"""Name of several assessors of each kind."""


def kind_code(text: object) -> int:
    """Return the index of a kind in `KINDS`, or UNKNOWN_KIND if the text names none.

    >>> kind_code(" LLM "), kind_code("banana"), kind_code(None)
    (1, -1, -1)
    """
    name = str(text).strip().casefold()
    return next((code for code, kind in enumerate(KINDS) if kind == name), UNKNOWN_KIND)
