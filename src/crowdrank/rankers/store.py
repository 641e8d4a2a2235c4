"""A ranker as a folder: ranker.json, named arrays as Parquet, trees as LightGBM's own text; no pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

import crowdrank
from crowdrank._array_io import arrays_to_table, read_arrays
from crowdrank._files import MANIFEST
from crowdrank._folders import FolderKind, Manifest, open_folder, write_folder
from crowdrank._saved import Fields, is_scalar, loading, require
from crowdrank.errors import InputError

if TYPE_CHECKING:
    from crowdrank.rankers.base import Ranker

RANKER_FILE = "ranker.json"
RANKER = FolderKind("ranker", 1, "saved ranker", "save")
REMAPPER = FolderKind("remapper", 1, "saved remapper", "save")


@dataclass
class State:
    """What a ranker learned: plain values, named arrays, texts, and the rankers that it is made of."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Ranker] = field(default_factory=dict)


def write(
    path: str | Path, ranker: Ranker, parameters: Mapping[str, Any], state: State, kind: FolderKind = RANKER
) -> None:
    """Write a ranker, or a remapper, which has the same parts."""
    with write_folder(path, kind) as folder:
        pq.write_table(arrays_to_table(state.arrays), folder / "arrays.parquet")
        for name, text in state.texts.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
        for name, part in state.parts.items():
            part.save(folder / name)
        about = {
            "crowdrank": crowdrank.__version__,
            "ranker": type(ranker).__name__,
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "features": list(ranker.feature_names_in_),
            "history": ranker.history_,
            # Remappers are written by this too, and have none.
            "validation_queries": [_plain(query) for query in getattr(ranker, "validation_queries_", ())],
            "values": state.values,
            "texts": list(state.texts),
            "parts": list(state.parts),
        }
        (folder / RANKER_FILE).write_text(json.dumps(about, indent=2, default=_plain), encoding="utf-8")


def read(path: str | Path, kind: FolderKind = RANKER) -> tuple[Fields, State]:
    """Read what :func:`write` wrote; call it and what checks its result in :func:`reading`."""
    from crowdrank.rankers.base import Ranker

    folder = Path(path)
    entries = _open(folder, kind).entries
    with reading(folder, kind):
        about = Fields.read(folder / RANKER_FILE)
        texts, parts = about.texts("texts"), about.texts("parts")
        for name, file in [
            *((name, f"{name}.txt") for name in texts),
            *((name, f"{name}/{MANIFEST}") for name in parts),
        ]:
            require(_NAME.fullmatch(name) and file in entries, f"there is no {name!r} in it")
        state = State(
            about.object("values"),
            read_arrays(folder / "arrays.parquet"),
            {name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in texts},
            {name: Ranker.load(folder / name) for name in parts},
        )
        require(about.texts("features"), "there are no features")
        about.sequence("validation_queries", is_scalar, "ids")
    return about, state


def reading(path: str | Path, kind: FolderKind = RANKER) -> AbstractContextManager[None]:
    """Turn every failure to read a saved ranker or remapper into an InputError."""
    return loading(path, f"it is not a {kind.title}")


_NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Names of the files and folders of a ranker."""


def _open(folder: Path, kind: FolderKind) -> Manifest:
    """Check a folder; where it is that of a run, the message names the ranker in it."""
    try:
        return open_folder(folder, kind)
    except InputError as problem:
        inside = folder / "model"
        if (inside / RANKER_FILE).exists() and not (folder / RANKER_FILE).exists():
            raise InputError(f"it is not a {kind.title}", source=str(folder), fix=f"name {inside}") from problem
        raise


def tuples(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with tuples for what JSON knows only as lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str | list | tuple | dict):
        return value
    return str(value)  # a measure is known by its name
