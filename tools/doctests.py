"""Extension of mkdocstrings: show the examples in docstrings as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)

ROLE = re.compile(r":(?:class|func|meth|mod):`")


def fence_examples(text: str) -> str:
    r"""Put the examples of a docstring into code fences and remove Sphinx roles.

    >>> fence_examples("Adds.\n\n>>> 1 + 1\n2\n\nThat is all.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThat is all.'
    """
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", ROLE.sub("`", text))


class Doctests(griffe.Extension):
    """Extension that puts the examples of all docstrings into code fences."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
