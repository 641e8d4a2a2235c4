"""Parameters of models as the command line writes them: `-s name=value`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from typing import Any

from crowdrank.errors import Fix, UsageError, shown


def parse_settings(texts: Iterable[str], model: object) -> dict[str, Any]:
    """Return the parameters of a model that `name=value` texts give, with the types that its constructor names.

    >>> from crowdrank import GDA
    >>> parse_settings(["n_iter=10", "families=auto", "ordinal=true"], GDA())
    {'n_iter': 10, 'families': 'auto', 'ordinal': True}
    """
    parameters = inspect.signature(type(model)).parameters
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            fix = Fix("write name=value, such as {}", "n_iter", 10)
            raise UsageError(f"cannot read {shown(text)}", parameter="setting", fix=fix)
        settings[name] = parse_value(value, str(parameters[name].annotation) if name in parameters else "")
    return settings


def parse_value(text: str, annotation: str) -> Any:
    """Return the value that a text stands for, as far as the type of the parameter allows it; otherwise the text.

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
