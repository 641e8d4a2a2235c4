"""Keeping the state of an unfinished fit, so that an interrupt costs time and nothing else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from crowdrank._array_io import arrays_to_table, read_arrays
from crowdrank._files import recover
from crowdrank._folders import FolderKind, open_folder, remove_folder, write_folder
from crowdrank._saved import Fields, loading, require, require_array
from crowdrank._source import source_digest
from crowdrank._typing import Arrays
from crowdrank.consensus import model_files
from crowdrank.engine.base import ShardModel
from crowdrank.engine.shards import Shard, Shards
from crowdrank.engine.streaming import select_arrays
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

    def load(self, model: Any, judgments: Judgments | ShardedJudgments, shards: Shards[Shard]) -> State | None:
        """Return the saved state of the fit of a model to these shards, if there is one.

        Raises:
            InputError: it is the state of another fit, or one of its files was damaged or altered.

        """
        recover(self.path)
        if not self.path.exists() or not any(self.path.iterdir()):
            return None
        open_folder(self.path, CHECKPOINT)
        with loading(self.path, "it is not a checkpoint", "name a new folder"):
            about = Fields.read(self.path / "checkpoint.json")
            if about.text("fingerprint") != self._fingerprint:
                raise InputError(
                    "it is the checkpoint of other judgments, another model or another version of crowdrank",
                    source=str(self.path),
                    fix="name another folder, or delete it",
                )
            theta, statistics = (read_arrays(self.path / f"{name}.parquet") for name in ("theta", "statistics"))
            history = about.numbers("history")
            require(history, "the history is empty")
            require(about.integer("shards") == len(shards), "the fit was cut into another number of shards")
            with np.errstate(all="ignore"):
                first = shards.load(0)
                example, _ = model_files.example(model, judgments.scales, first.n_expert_grades)
                model._check_theta(theta, example, judgments.n_assessors)
                require_alike(statistics, model._accumulate(first, model._start(first), theta)[1])
                model._maximize(theta, statistics)  # raises an error where its matrices cannot be solved
        return State(theta, statistics, _StoredLocals(self.path, model, shards, theta), history)

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
    """Local state of each shard, read and checked one at a time."""

    def __init__(self, path: Path, model: ShardModel[Shard], shards: Shards[Shard], theta: Arrays) -> None:
        self.path, self.model, self.shards, self.theta = path, model, shards, theta

    def __iter__(self) -> Iterator[Arrays]:
        return map(self._load, range(len(self.shards)))

    def _load(self, place: int) -> Arrays:
        with loading(self.path, "it is not a checkpoint", "name a new folder"):
            local = read_arrays(self.path / f"local-{place}.parquet")
            shard = self.shards.load(place)
            made, _ = self.model._accumulate(shard, self.model._start(shard), self.theta)
            require_alike(local, select_arrays(made, self.model.carries))
        return local


def require_alike(arrays: Arrays, made: Arrays) -> None:
    """Raise ValueError unless saved arrays have the names, types and shapes of others that the model made.

    Whole numbers must be the same: they are counted from the judgments, and kernels use them as indices.
    """
    require(set(arrays) == set(made), "its arrays are not those of the model")
    for name, known in made.items():
        require_array(name, arrays[name], known.dtype, known.shape)
        if known.dtype.kind != "f":
            require(np.array_equal(arrays[name], known), f"{name} is not that of the judgments")


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
    settings = {k: v for k, v in model.get_params(deep=False).items() if k not in ("n_iter", "tol", "interval")}
    about = (source_digest(), type(model).__name__, settings, judgments.scales, n_shards)
    digest = hashlib.blake2b(repr(about).encode())
    known: list[Any] = [] if gold is None else [gold.sets]
    if isinstance(judgments, ShardedJudgments):
        digest.update(judgments.fingerprint().encode())
        known += [array for grades in ([] if gold is None else gold.graded_items) for array in grades]
    else:
        known += [
            None if gold is None else gold.code,
            judgments.offsets,
            judgments.assessor,
            judgments.grade,
            judgments.item_query,
        ]
        known += [judgments.assessor_scale, judgments.family_of]
    start = {} if theta is None else theta
    for array in [*known, *(start[name] for name in sorted(start))]:
        digest.update(b"-" if array is None else repr((array.dtype, array.shape)).encode() + array.tobytes())
    return digest.hexdigest()
