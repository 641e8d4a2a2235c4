"""The command or call that repeats a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crowdrank._text import counted
from crowdrank.pipeline.settings import RunSettings


@dataclass(frozen=True)
class Provenance:
    """How a run was started.

    Attributes:
        command: shell command; empty if the run was started from Python.
        python: Python call; empty if the run was started from the command line.
        units: units of the durations and costs of the judgments, by column, if known.

    """

    command: str = ""
    python: str = ""
    units: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def python_call(inputs: Mapping[str, Any], settings: RunSettings, output: Path | None, engine: Any = None) -> str:
    """Return the Python call of a run; DataFrames are shown by name and size.

    >>> files = {"judgments": "labels.csv", "features": [0, 0], "expert": None}
    >>> print(python_call(files, RunSettings(random_state=3), Path("out")))
    import crowdrank
    <BLANKLINE>
    crowdrank.run(
        judgments="labels.csv",
        features=features,  # list, 2 rows
        random_state=3,
        output="out",
    )
    """
    defaults = RunSettings().to_dict()
    changed = {name: value for name, value in settings.to_dict().items() if value != defaults[name]}
    lines = [_argument(name, value) for name, value in inputs.items() if value is not None]
    lines += [f"{name}={_literal(value)}," for name, value in changed.items()]
    lines += [] if output is None else [f"output={_literal(str(output))},"]
    lines += [] if engine is None else [f"engine=engine,  # {type(engine).__name__}"]
    return "\n".join(["import crowdrank", "", "crowdrank.run(", *(f"    {line}" for line in lines), ")"])


def _argument(name: str, value: Any) -> str:
    if isinstance(value, str | Path):
        return f"{name}={_literal(str(value))},"
    library = type(value).__module__.partition(".")[0]
    kind = type(value).__name__ if library == "builtins" else f"{library} {type(value).__name__}"
    size = f", {counted(len(value), 'row')}" if hasattr(value, "__len__") else ""
    return f"{name}={name},  # {kind}{size}"


def _literal(value: Any) -> str:
    """Return a value as Python code, with double quotes around plain text."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set("\"\\'")
    return f'"{value}"' if plain else repr(value)
