"""For mkdocstrings: the examples of docstrings are code, wherever in the docstring they stand."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)

ROLE = re.compile(r":(?:class|func|meth|mod):`")


def fenced(text: str) -> str:
    r"""A docstring with its examples between fences, and without the roles that Markdown does not know.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nThat is all.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThat is all.'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", ROLE.sub("`", text))


class Doctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Called with everything that has a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
