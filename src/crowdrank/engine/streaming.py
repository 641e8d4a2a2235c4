"""Local state of shards (arrays that belong to one shard) in files, for passes that stream shards from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdrank._disk import ScratchFolder
from crowdrank._typing import Arrays


class FileStates:
    """Local state of each shard in a temporary file; files of the last complete pass are kept during the next pass.

    Args:
        n_shards: number of shards.
        names: names of the arrays to store; None for all. A shard without arrays needs no file.
        parent: folder for the temporary folder; None for the system's.

    Attributes:
        complete: whether `load` returns all arrays of a shard, not only those that the next pass reads.

    """

    def __init__(self, n_shards: int, names: tuple[str, ...] | None = None, parent: str | Path | None = None) -> None:
        self.n_shards, self.names, self.complete = n_shards, names, False
        self._scratch = ScratchFolder(parent)
        self.folder = self._scratch.path / "state"
        self.folder.mkdir()
        self._n_commits = 0

    def load(self, shard_index: int) -> Arrays:
        """Return the stored arrays of a shard after the last complete pass."""
        path = self._path(shard_index, self._n_commits)
        if not path.exists():
            return {}
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def save(self, shard_index: int, local_state: Arrays) -> None:
        """Store the arrays of a shard after the current pass."""
        stored = select_arrays(local_state, self.names)
        if stored:
            np.savez(self._path(shard_index, self._n_commits + 1), **stored)  # type: ignore[arg-type]

    def commit(self, is_complete: bool = True) -> None:
        """End the current pass: `load` returns its arrays from now on (all of them if `is_complete`)."""
        for shard_index in range(self.n_shards):
            self._path(shard_index, self._n_commits).unlink(missing_ok=True)
        self._n_commits += 1
        self.complete = is_complete and self.names is None

    def _path(self, shard_index: int, pass_number: int) -> Path:
        return self.folder / f"local-{shard_index:05d}-{pass_number % 2}.npz"


def select_arrays(arrays: Arrays, selected_names: tuple[str, ...] | None) -> Arrays:
    """Return the arrays whose names are selected; None selects all."""
    return arrays if selected_names is None else {name: arrays[name] for name in selected_names if name in arrays}
