"""Cache of the stages of a run: a finished stage is reused, so that an interrupted run can resume."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from crowdrank._files import write_file
from crowdrank._source import source_digest
from crowdrank._typing import Arrays
from crowdrank.errors import CrowdrankError
from crowdrank.judgments.features import Features
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline.profile import Profiler

T = TypeVar("T")
DIGEST_BYTES = 16
INPUTS = "inputs.json"
"""Name of the file with the digests of the inputs of the stages."""
STAGE_NAMES = rf"[\w.+-]+-[0-9a-f]{{{2 * DIGEST_BYTES}}}|{re.escape(INPUTS)}"
"""Pattern of the file names in a cache folder; files with other names are never changed."""
MAX_NAME_LENGTH = 60
"""Maximum number of characters of the name of a stage in its file name."""


def digest(*parts: Any) -> str:
    """Return a digest of the content of arrays, tables and JSON values.

    >>> digest("a", 1, np.arange(3)) == digest("a", 1, np.arange(3)), digest("a") == digest("b")
    (True, False)
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _update(state, parts)
    return state.hexdigest()


def _update(state: Any, parts: Iterable[Any]) -> None:
    """Add the content of several objects to a digest."""
    for part in parts:
        _update_with(state, part)


def _update_with(state: Any, part: Any) -> None:
    """Add the content of an object to a digest."""
    state.update(type(part).__name__.encode())
    match part:
        case np.ndarray():
            state.update(str(part.dtype).encode() + str(part.shape).encode())
            state.update(np.ascontiguousarray(part).view(np.uint8).data)
        case pa.Array() | pa.ChunkedArray():
            # The buffers of a slice hold more than its values; serialized, only its values count.
            sink = pa.BufferOutputStream()
            table = pa.table({"ids": part}).combine_chunks()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            state.update(sink.getvalue())
        case Features():
            _update(state, [part.query, part.document, part.matrix, list(part.names)])
        case Judgments():
            _update(state, _content(part))
        case _:
            state.update(json.dumps(part, sort_keys=True, default=str).encode())


def _content(table: Judgments) -> list[Any]:
    """Return everything in judgments that a result may depend on."""
    ids = [table.queries, table.documents, table.assessors]
    codes = [table.item_query, table.item_document, table.offsets, table.assessor, table.grade, table.assessor_scale]
    scales = [[str(scale) for scale in table.scales], [list(codes or ()) for codes in table.scale_maps]]
    families = [] if table.families is None else [table.families, table.assessor_family]
    extras = [part for name in sorted(table.extras) for part in (name, table.extras[name])]
    return [*ids, *codes, *scales, *families, *extras]


class StageCache:
    """Folder of finished stages, each named by a digest of its inputs; without a folder nothing is stored.

    Args:
        folder: the folder; None to store nothing.
        profiler: measures the stages.

    Attributes:
        reused, made: number of stages that were read and that were computed.

    >>> cache = StageCache(None)
    >>> cache.arrays("sum", "key", lambda: {"total": np.array(3)})["total"], cache.made
    (array(3), 1)
    """

    def __init__(self, folder: Path | None, profiler: Profiler | None = None) -> None:
        self.folder = folder
        self.profiler = profiler or Profiler()
        self.reused = self.made = 0
        self._used: set[str] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, key: str) -> Path | None:
        """Return the path of a stage, or None without a folder.

        The name may contain text of the user, such as the name of a feature. In the file name, all but ASCII letters,
        digits and hyphens are replaced, and the digest is also of the name, so that two stages never share a file.
        """
        if self.folder is None:
            return None
        readable = re.sub(r"[^a-zA-Z0-9-]", "_", name[:MAX_NAME_LENGTH])
        return self.folder / f"{readable}-{digest(name, key)}"

    def shared_file(self, name: str, key: str) -> Path:
        """Return the path of a file that several stages refer to by the digest of its content."""
        assert self.folder is not None
        path = self.folder / f"{name}-{key[: 2 * DIGEST_BYTES]}"
        self._used.add(path.name)
        return path

    def get(
        self, name: str, key: str, make: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> T:
        """Return the result of a stage: load it if it is stored and readable, else make and store it.

        Args:
            name: kind of the stage, and after a hyphen the name of its model, if it has one.
            key: digest of its inputs, of the settings that it depends on and of the source code.
            make: function that computes the result.
            save: function that writes the result to a path.
            load: function that reads what `save` wrote.

        """
        kind, _, model = name.partition("-")
        with self.profiler.stage(kind, model) as measurement:
            result, is_stored = self._load_or_make(self.path(name, key), make, save, load)
            measurement.reused += is_stored
        self.reused += is_stored
        self.made += not is_stored
        return result

    def _load_or_make(
        self, path: Path | None, make: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> tuple[T, bool]:
        """Return the result of a stage, and whether it was stored."""
        if path is not None:
            self._used.add(path.name)
        if path is not None and path.exists():
            try:
                result = load(path)
            except (CrowdrankError, OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
                _delete(path)  # damaged, or written by another version
            else:
                return result, True
        result = make()
        if path is not None:
            save(result, path)
        return result, False

    def arrays(self, name: str, key: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the result of a stage that consists of named arrays."""
        return self.get(name, key, make, _save_arrays, _load_arrays)

    def delete_unused(self) -> None:
        """Delete the stages that were not used since the cache was opened."""
        if self.folder is None:
            return
        for path in self.folder.iterdir():
            if path.name not in self._used and path.name != INPUTS and re.fullmatch(STAGE_NAMES, path.name):
                _delete(path)


def _save_arrays(arrays: Arrays, path: Path) -> None:
    with write_file(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # names are ours, none is one of savez's own


def _load_arrays(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def code() -> str:
    """Return the digest of the package's source, which is part of every key."""
    return source_digest()
