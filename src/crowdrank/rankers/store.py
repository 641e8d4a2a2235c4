"""A ranker as a folder: ranker.json, named arrays as Parquet, trees as LightGBM's own text; no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import crowdrank
from crowdrank._folders import FolderKind, open_folder, reason, write_folder
from crowdrank.consensus.store import arrays_from_table, arrays_to_table
from crowdrank.errors import InputError

if TYPE_CHECKING:
    from crowdrank.rankers.base import Ranker

RANKER_FILE = "ranker.json"
RANKER = FolderKind("ranker", 1, "saved ranker", "save")
REMAPPER = FolderKind("remapper", 1, "saved remapper", "save")


@dataclass
class State:
    """What a ranker learnt: plain values, named arrays, texts, and the rankers that it is made of."""

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
            (folder / f"{name}.txt").write_text(text)
        for name, part in state.parts.items():
            part.save(folder / name)
        about = {
            "crowdrank": crowdrank.__version__,
            "ranker": type(ranker).__name__,
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "features": list(ranker.feature_names_),
            "history": ranker.history_,
            # Remappers are written by this too, and have none.
            "validation_queries": [_plain(query) for query in getattr(ranker, "validation_queries_", ())],
            "values": state.values,
            "texts": list(state.texts),
            "parts": list(state.parts),
        }
        (folder / RANKER_FILE).write_text(json.dumps(about, indent=2, default=_plain))


def read(path: str | Path, kind: FolderKind = RANKER) -> tuple[dict[str, Any], State]:
    """Read what :func:`write` wrote."""
    from crowdrank.rankers.base import Ranker

    folder = Path(path)
    _open(folder, kind)
    try:
        about = json.loads((folder / RANKER_FILE).read_text())
        state = State(
            about["values"],
            dict(arrays_from_table(pq.read_table(folder / "arrays.parquet"))),
            {name: (folder / f"{name}.txt").read_text() for name in about["texts"]},
            {name: Ranker.load(folder / name) for name in about["parts"]},
        )
    except InputError:
        raise
    except (OSError, KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as problem:
        raise damaged(path, problem) from problem
    return about, state


def damaged(path: str | Path, problem: Exception) -> InputError:
    """What is said of a folder that holds no ranker, or only part of one."""
    return InputError(
        f"it is not a saved ranker ({reason(problem, path)})", source=str(path), remedy="name a folder written by save"
    )


def _open(folder: Path, kind: FolderKind) -> None:
    """Check a folder; where it is that of a run, the message names the ranker in it."""
    try:
        open_folder(folder, kind)
    except InputError as problem:
        inside = folder / "model"
        if (inside / RANKER_FILE).exists() and not (folder / RANKER_FILE).exists():
            raise InputError(f"it is not a {kind.title}", source=str(folder), remedy=f"name {inside}") from problem
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
