"""Local state of shards in files, for passes that stream shards from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdrank._disk import ScratchFolder
from crowdrank._typing import Arrays


class FileStates:
    """Local state of each shard in a temporary file; that of the last complete pass stays until the next is complete.

    Args:
        n_shards: number of shards.
        names: names of the arrays to store; None for all. A shard without arrays needs no file.
        parent: folder for the temporary folder; None for the system's.

    Attributes:
        complete: whether `load` returns all local arrays of the last pass.

    """

    def __init__(self, n_shards: int, names: tuple[str, ...] | None = None, parent: str | Path | None = None) -> None:
        self.n_shards, self.names, self.complete = n_shards, names, False
        self._scratch = ScratchFolder(parent)
        self.folder = self._scratch.path / "state"
        self.folder.mkdir()
        self._n_commits = 0

    def load(self, place: int) -> Arrays:
        """Return the stored arrays of a shard after the last complete pass."""
        path = self._path(place, self._n_commits)
        if not path.exists():
            return {}
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def save(self, place: int, local: Arrays) -> None:
        """Store the arrays of a shard after the current pass."""
        stored = select_arrays(local, self.names)
        if stored:
            np.savez(self._path(place, self._n_commits + 1), **stored)  # type: ignore[arg-type]

    def commit(self, complete: bool = True) -> None:
        """Replace the last pass by the current one, which stored all local arrays or only those carried."""
        for place in range(self.n_shards):
            self._path(place, self._n_commits).unlink(missing_ok=True)
        self._n_commits += 1
        self.complete = complete and self.names is None

    def _path(self, place: int, number: int) -> Path:
        return self.folder / f"local-{place:05d}-{number % 2}.npz"


def select_arrays(arrays: Arrays, names: tuple[str, ...] | None) -> Arrays:
    """Return the arrays with these names, as far as they exist; None selects all."""
    return arrays if names is None else {name: arrays[name] for name in names if name in arrays}
