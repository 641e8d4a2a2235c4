"""Limits of what the databases can store."""

from __future__ import annotations

import re

from crowdrank.service.errors import Invalid

MAX_ID = 2**31 - 1
"""Maximum id of a row: PostgreSQL refuses to compare larger ones."""
MAX_LISTED = 10_000
"""Maximum number of values of a condition."""
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


def check_text(text: str | None, *, place: str = "", column: str = "") -> None:
    """Raise Invalid for text that PostgreSQL cannot store: NUL characters and halves of surrogate pairs.

    >>> check_text(chr(0), column="comment")
    Traceback (most recent call last):
    crowdrank.service.errors.Invalid: column 'comment': the text has NUL characters or halves of surrogate pairs; remove
    them.
    """
    if text is not None and _NOT_STORABLE.search(text):
        problem = "the text has NUL characters or halves of surrogate pairs"
        raise Invalid(problem, place=place, column=column, kind="invalid-text", fix="remove them")
