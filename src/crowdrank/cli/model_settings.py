"""Parse parameters of models from the command line: `-s name=value`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from typing import Any

from crowdrank.errors import Fix, UsageError, shown


def parse_settings(assignments: Iterable[str], model: object) -> dict[str, Any]:
    """Parse `name=value` texts into parameters of a model, with the types that its constructor declares.

    >>> from crowdrank import GDA
    >>> parse_settings(["n_iter=10", "families=auto", "ordinal=true"], GDA())
    {'n_iter': 10, 'families': 'auto', 'ordinal': True}
    """
    parameters = inspect.signature(type(model)).parameters
    settings = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            fix = Fix("write name=value, such as {}", "n_iter", 10)
            raise UsageError(f"cannot read {shown(text)}", parameter="setting", fix=fix)
        settings[name] = parse_value(value, str(parameters[name].annotation) if name in parameters else "")
    return settings


def parse_value(text: str, annotation: str) -> Any:
    """Parse a text as a number, boolean, None or tuple if the annotation allows that type; otherwise return the text.

    >>> parse_value("7", "str"), parse_value("7", "str | int"), parse_value("[1, 2]", "tuple[float, float]")
    ('7', 7, (1, 2))
    >>> parse_value("gda,glad", "tuple[str, ...] | None"), parse_value("None", "float | None")
    (('gda', 'glad'), None)
    """
    try:
        value = json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return tuple(text.split(",")) if annotation.startswith("tuple[str") else text
    if isinstance(value, list):
        return tuple(value)
    kinds = set(re.findall(r"\w+", annotation))
    fits = type(value).__name__ in kinds or (isinstance(value, int) and "float" in kinds) or value is None
    return text if "str" in kinds and not fits else value
