"""Keeping the state of an unfinished fit, so that an interrupt costs time and nothing else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crowdrank._folders import FolderKind, open_folder, reason, remove_folder, write_folder
from crowdrank._source import source_digest
from crowdrank.consensus.store import arrays_from_table, arrays_to_table
from crowdrank.engine.base import Arrays
from crowdrank.errors import InputError
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

CHECKPOINT = FolderKind("checkpoint", 1, "checkpoint", "a fit with checkpoint=")


@dataclass
class State:
    """All that the loop needs to go on."""

    theta: Arrays
    statistics: Arrays
    local: Iterable[Arrays]
    history: list[float]


class Checkpoint:
    """A folder that holds the last good state; written at most every `every` seconds and on an interrupt.

    A fit of the same data with the same model goes on from it; of other data or another model, it refuses.
    """

    def __init__(self, path: str | Path, every: float = 30.0) -> None:
        self.path, self.every = Path(path), every
        self._written = time.monotonic()
        self._fingerprint = ""

    def bind(self, fingerprint: str) -> None:
        """Say which fit the state is of."""
        self._fingerprint = fingerprint

    def load(self) -> State | None:
        """The state kept, if there is one."""
        if not self.path.exists() or not any(self.path.iterdir()):
            return None
        open_folder(self.path, CHECKPOINT)
        try:
            about = json.loads((self.path / "checkpoint.json").read_text())
            parts = [
                arrays_from_table(pq.read_table(self.path / f"{name}.parquet")) for name in ("theta", "statistics")
            ]
            local = _StoredLocals(self.path, about["shards"])
        except (OSError, KeyError, ValueError) as problem:
            raise InputError(
                f"it is not a checkpoint ({reason(problem, self.path)})",
                source=str(self.path),
                remedy="name a new folder",
            ) from problem
        if about["fingerprint"] != self._fingerprint:
            raise InputError(
                "it is the checkpoint of other judgments, another model or another version of crowdrank",
                source=str(self.path),
                remedy="name another folder, or delete it",
            )
        return State(parts[0], parts[1], local, about["history"])

    def offer(
        self, theta: Arrays, statistics: Arrays, local: Callable[[], Iterable[Arrays]], history: list[float]
    ) -> None:
        """Write the state if it is time."""
        if time.monotonic() - self._written >= self.every:
            self.save(theta, statistics, local(), history)

    def save(self, theta: Arrays, statistics: Arrays, local: Iterable[Arrays], history: list[float]) -> None:
        """Write the state; the one before stays until this one is whole."""
        with write_folder(self.path, CHECKPOINT) as folder:
            shards = 0
            for shards, arrays in enumerate(local, start=1):  # one at a time: they may come from disk
                pq.write_table(arrays_to_table(arrays), folder / f"local-{shards - 1}.parquet")
            for name, arrays in (("theta", theta), ("statistics", statistics)):
                pq.write_table(arrays_to_table(arrays), folder / f"{name}.parquet")
            about = {"fingerprint": self._fingerprint, "shards": shards, "history": history}
            (folder / "checkpoint.json").write_text(json.dumps(about))
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete the state of a fit that is done."""
        if self.path.exists():
            remove_folder(self.path, CHECKPOINT)


class _StoredLocals:
    """The local state of each shard, read one at a time."""

    def __init__(self, path: Path, n_shards: int) -> None:
        self.files = [path / f"local-{n}.parquet" for n in range(n_shards)]
        missing = [file.name for file in self.files if not file.exists()]
        if missing:
            raise FileNotFoundError(f"there is no {missing[0]}")

    def __iter__(self) -> Iterator[Arrays]:
        return (arrays_from_table(pq.read_table(file)) for file in self.files)


def fingerprint(
    model: Any, judgments: Judgments | ShardedJudgments, gold: Any, theta: Arrays | None, n_shards: int
) -> str:
    """Return a digest of all that changes the result of a fit, but for when it stops.

    Args:
        model: the model; its settings count, except `n_iter`, `tol` and `interval`.
        judgments: prepared judgments.
        gold: codes of the expert grades.
        theta: parameters that the fit starts from, if any.
        n_shards: number of shards, which the local state in a checkpoint belongs to.

    """
    settings = {k: v for k, v in model.get_params().items() if k not in ("n_iter", "tol", "interval")}
    about = (source_digest(), type(model).__name__, settings, judgments.scales, n_shards)
    digest = hashlib.blake2b(repr(about).encode())
    known: list[Any] = [gold]
    if isinstance(judgments, ShardedJudgments):
        digest.update(judgments.fingerprint().encode())
        known = [array for grades in ([] if gold is None else gold.known) for array in grades]
    else:
        known += [judgments.offsets, judgments.assessor, judgments.grade, judgments.item_query]
        known += [judgments.assessor_scale, judgments.family_of]
    start = {} if theta is None else theta
    for array in [*known, *(start[name] for name in sorted(start))]:
        digest.update(b"-" if array is None else repr((array.dtype, array.shape)).encode() + array.tobytes())
    return digest.hexdigest()
