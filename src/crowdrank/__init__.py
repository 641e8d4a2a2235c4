"""crowdrank: from noisy relevance judgments to a search ranker.

>>> import crowdrank
>>> world = crowdrank.simulate(queries=5, documents=6, random_state=1)
>>> model = crowdrank.DawidSkene().fit(world.judgments)
>>> sorted(model.consensus_.documents.columns)[:3]
['document', 'grade', 'judgments']
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

__version__ = "0.1.0"

# Public names are loaded on first use, so that `import crowdrank` is fast and does not load numba.
_MODULES = {"charts": "reports.charts", "constraints": "constraints", "errors": "errors", "testing": "testing"}
"""Path of each public module, relative to the package."""
_STUB = pkgutil.get_data("crowdrank", "__init__.pyi").decode()
"""Lines `from crowdrank.MODULE import NAME as NAME`, which type checkers read too."""
_LOCATIONS = {
    name: module
    for module, name in re.findall(r"^from crowdrank\.(\S+) import (\w+) as", _STUB, re.MULTILINE)
    if name not in _MODULES
}
"""Module that defines each public name, relative to the package."""
__all__ = sorted([*_LOCATIONS, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"crowdrank.{_MODULES[name]}")
    elif name in _LOCATIONS:
        value = getattr(importlib.import_module(f"crowdrank.{_LOCATIONS[name]}"), name)
    else:
        raise AttributeError(f"module 'crowdrank' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
