"""Where a run came from: what to type, or to call, to have the same made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crowdrank._text import counted
from crowdrank.pipeline.settings import RunSettings


@dataclass(frozen=True)
class Origin:
    """How a run was asked for.

    Attributes:
        command: what was typed, with the files that were named; empty where a program asked.
        python: the call that a program made; empty where something was typed.
        units: in what durations and costs are, where that is known.

    """

    command: str = ""
    python: str = ""
    units: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def call(given: Mapping[str, Any], settings: RunSettings, output: Path | None, engine: Any = None) -> str:
    """The Python call of a run: paths and settings as they are, frames by name and size.

    >>> files = {"judgments": "labels.csv", "features": [0, 0], "expert": None}
    >>> print(call(files, RunSettings(random_state=3), Path("out")))
    import crowdrank
    <BLANKLINE>
    crowdrank.run(
        judgments="labels.csv",
        features=features,  # list, 2 rows
        random_state=3,
        output="out",
    )
    """
    usual = RunSettings().to_dict()
    changed = {name: value for name, value in settings.to_dict().items() if value != usual[name]}
    lines = [_argument(name, what) for name, what in given.items() if what is not None]
    lines += [f"{name}={_quoted(value)}," for name, value in changed.items()]
    lines += [] if output is None else [f"output={_quoted(str(output))},"]
    lines += [] if engine is None else [f"engine=engine,  # {type(engine).__name__}"]
    return "\n".join(["import crowdrank", "", "crowdrank.run(", *(f"    {line}" for line in lines), ")"])


def _argument(name: str, what: Any) -> str:
    if isinstance(what, str | Path):
        return f"{name}={_quoted(str(what))},"
    room = type(what).__module__.partition(".")[0]
    kind = type(what).__name__ if room == "builtins" else f"{room} {type(what).__name__}"
    size = f", {counted(len(what), 'row')}" if hasattr(what, "__len__") else ""
    return f"{name}={name},  # {kind}{size}"


def _quoted(value: Any) -> str:
    """As Python writes it, with the quotation marks of this house where the text allows them."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set("\"\\'")
    return f'"{value}"' if plain else repr(value)
