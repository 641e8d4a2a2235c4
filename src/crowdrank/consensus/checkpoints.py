"""Checkpoints: the state of an unfinished fit in a folder, from which the fit resumes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._array_io import arrays_to_table, read_arrays
from crowdrank._files import recover
from crowdrank._folders import FolderKind, open_folder, remove_folder, write_folder
from crowdrank._saved import Fields, loading, require, require_array
from crowdrank._source import source_digest
from crowdrank._typing import Arrays
from crowdrank.consensus import model_files
from crowdrank.engine.base import Passes, ShardModel
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, ItemScores, Shard, Shards, shards_of
from crowdrank.engine.streaming import select_arrays
from crowdrank.errors import InputError
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

CHECKPOINT = FolderKind("checkpoint", 1, "checkpoint", "a fit with checkpoint=")
SHOWN_ONLY = ("interval", "grade_by")
"""Parameters that only change how the result is shown."""


@dataclass
class State:
    """State of the EM loop.

    Attributes:
        theta: parameters, or None before the first iteration.
        statistics: summed statistics of the last pass.
        history: objective after each iteration.
        converged: whether the fit has converged.
        local: local state of each shard, in a state that was loaded.

    """

    theta: Any
    statistics: Arrays
    history: list[float]
    converged: bool = False
    local: Iterable[Arrays] = ()


class Checkpoint:
    """A folder with the state of an unfinished fit.

    A fit of the same model to the same data resumes from it; other fits are refused.

    Args:
        path: the folder.
        every: minimum time between two saves in seconds; an interrupted fit is saved in any case.

    """

    def __init__(self, path: str | Path, every: float = 30.0) -> None:
        self.path, self.every = Path(path), every
        self._last_save = time.monotonic()
        self._fingerprint = ""

    def resume(self, fit: CheckpointedFit) -> State | None:
        """Return the saved state of a fit, or None if there is none; saves belong to this fit from now on.

        Raises:
            InputError: the folder has the state of another fit, or a file was damaged or altered.

        """
        self._fingerprint = fit.fingerprint()
        recover(self.path)
        if not self.path.exists() or not any(self.path.iterdir()):
            return None
        open_folder(self.path, CHECKPOINT)
        shards = fit.shards()
        with loading(self.path, "it is not a checkpoint", "name a new folder"):
            about = Fields.read(self.path / "checkpoint.json")
            if about.text("fingerprint") != self._fingerprint:
                raise InputError(
                    "it is the checkpoint of other judgments, another model or another version of crowdrank",
                    source=str(self.path),
                    fix="name another folder, or delete it",
                    kind="other-fit",
                )
            theta, statistics = (read_arrays(self.path / f"{name}.parquet") for name in ("theta", "statistics"))
            history = about.numbers("history")
            require(history, "the history is empty")
            require(about.integer("shards") == len(shards), "the fit was cut into another number of shards")
            fit.check(theta, statistics, shards)
        return State(theta, statistics, history, local=_StoredLocals(self.path, fit.model, shards, theta))

    def save_if_due(self, state: State, passes: Passes) -> None:
        """Save the state if the last save is long enough ago."""
        if time.monotonic() - self._last_save >= self.every:
            self.save(state, passes)

    def save(self, state: State, passes: Passes) -> None:
        """Save the state; the previous one stays until the new one is complete."""
        import pyarrow.parquet as pq

        with write_folder(self.path, CHECKPOINT) as folder:
            shards = 0
            for shards, arrays in enumerate(passes.local_state(), start=1):  # one at a time: they may come from disk
                pq.write_table(arrays_to_table(arrays), folder / f"local-{shards - 1}.parquet")
            for name, arrays in (("theta", state.theta), ("statistics", state.statistics)):
                pq.write_table(arrays_to_table(arrays), folder / f"{name}.parquet")
            about = {"fingerprint": self._fingerprint, "shards": shards, "history": state.history}
            (folder / "checkpoint.json").write_text(json.dumps(about))
        self._last_save = time.monotonic()

    def remove(self) -> None:
        """Delete the state of a completed fit."""
        if self.path.exists():
            remove_folder(self.path, CHECKPOINT)


@dataclass(frozen=True)
class CheckpointedFit:
    """What identifies a fit, and what its saved state is checked against.

    Attributes:
        model: the model.
        judgments: prepared judgments.
        gold: codes of the expert grades.
        theta: parameters that the fit starts from, if any.
        n_shards: number of shards, which the local state in a checkpoint belongs to.
        shard_size: number of judgments per shard.
        scores: predictions from features, if any.

    """

    model: Any
    judgments: Judgments | ShardedJudgments
    gold: Any
    theta: Arrays | None
    n_shards: int
    shard_size: int = JUDGMENTS_PER_SHARD
    scores: ItemScores | None = None

    def shards(self) -> Shards[Shard]:
        """Return the shards of the fit."""
        return shards_of(self.judgments, self.gold, self.model.locality, self.shard_size, self.scores)

    def check(self, theta: Arrays, statistics: Arrays, shards: Shards[Shard]) -> None:
        """Raise ValueError unless saved arrays have the shapes and ranges of the model's and can be used."""
        model, first = self.model, shards.load(0)
        with np.errstate(all="ignore"):
            example, _ = model_files.example_parameters(
                model, self.judgments.scales, first.n_expert_grades, has_scores=self.scores is not None
            )
            model._check_theta(theta, example, self.judgments.n_assessors)
            require_alike(statistics, model._accumulate(first, model._start(first), theta)[1])
            model._maximize(theta, statistics)  # raises an error if a matrix is singular

    def fingerprint(self) -> str:
        """Return a digest of everything that changes the result, except when the fit stops."""
        parameters = self.model.get_params(deep=False)
        settings = {name: parameters[name] for name in parameters if name not in ("n_iter", "tol", *SHOWN_ONLY)}
        about = (source_digest(), type(self.model).__name__, settings, self.judgments.scales, self.n_shards)
        digest = hashlib.blake2b(repr(about).encode())
        start = {} if self.theta is None else self.theta
        for array in [*self._data_arrays(digest), *(start[name] for name in sorted(start)), *(self.scores or ())]:
            digest.update(b"-" if array is None else repr((array.dtype, array.shape)).encode() + array.tobytes())
        return digest.hexdigest()

    def _data_arrays(self, digest: hashlib.blake2b) -> list[Any]:
        """Return arrays of judgments and expert grades to digest; judgments on disk add their own digest instead."""
        judgments, gold = self.judgments, self.gold
        if isinstance(judgments, ShardedJudgments):
            digest.update(judgments.fingerprint().encode())
            return [] if gold is None else [gold.sets, *(array for grades in gold.graded_items for array in grades)]
        names = ("offsets", "assessor", "grade", "item_query", "assessor_scale", "family_of")
        known = [None] if gold is None else [gold.sets, gold.code]
        return [*known, *(getattr(judgments, name) for name in names), judgments.shares()]


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
    """Raise ValueError unless saved arrays have the names, types and shapes of those that the model computes.

    Integers must be equal: they are counted from the judgments, and kernels use them as indices.
    """
    require(set(arrays) == set(made), "its arrays are not those of the model")
    for name, known in made.items():
        require_array(name, arrays[name], known.dtype, known.shape)
        if known.dtype.kind != "f":
            require(np.array_equal(arrays[name], known), f"{name} is not that of the judgments")
