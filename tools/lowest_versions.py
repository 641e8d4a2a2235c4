"""Print pip constraints with the lowest version of each dependency that pyproject.toml allows.

`make test-lowest` installs them and runs the tests, so that the lower bounds are true. The script needs only Python.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w, -]+\])?(?:(?:>=|==)(?P<version>[\w.]+)(?:,.*)?)?")


def requirements(pyproject: str) -> Iterator[tuple[str, str | None]]:
    r"""Yield the name and the lowest version (None without one) of each dependency and of those of all extras.

    >>> list(requirements('[project]\nname = "a"\ndependencies = ["x[y]>=1.2,<3", "a[all]", "z"]'))
    [('x', '1.2'), ('z', None)]
    """
    project = tomllib.loads(pyproject)["project"]
    extras = project.get("optional-dependencies", {}).values()
    for text in (*project["dependencies"], *(one for extra in extras for one in extra)):
        match = REQUIREMENT.fullmatch(text.replace(" ", ""))
        if match is None:
            raise ValueError(f"pyproject.toml has {text!r}, which is not NAME>=VERSION or NAME==VERSION")
        if match["name"] != project["name"]:
            yield match["name"], match["version"]


def constraints(pyproject: str) -> str:
    """Return one line `name==version` per dependency with a lower bound."""
    lowest = {name: version for name, version in requirements(pyproject) if version is not None}
    return "".join(f"{name}=={version}\n" for name, version in sorted(lowest.items()))


if __name__ == "__main__":
    sys.stdout.write(constraints(PYPROJECT.read_text(encoding="utf-8")))
