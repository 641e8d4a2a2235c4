"""Read TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from crowdrank.errors import Fix, InputError


def read_toml(path: Path, fix: Fix | None = None) -> dict[str, Any]:
    """Read a TOML file; raise InputError, with a fix if it is not TOML, if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"it cannot be read ({problem.strerror})", source=str(path), kind="no-file") from problem
    except (ValueError, RecursionError) as problem:  # not UTF-8, not TOML, a number with thousands of digits
        raise InputError(
            f"it is not TOML ({str(problem)[:200]})", source=str(path), kind="not-toml", fix=fix or ()
        ) from problem
