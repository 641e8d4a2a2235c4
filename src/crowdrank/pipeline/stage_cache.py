"""Stages kept by what they were made of: what was done once is not done again, and an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from crowdrank._files import write_file
from crowdrank._source import source_digest
from crowdrank.errors import CrowdrankError
from crowdrank.judgments.features import Features
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments

T = TypeVar("T")
DIGITS = 16
INPUTS = "inputs.json"
"""Name of the file with the digests of the inputs that the stages were made of."""
STAGE_NAMES = rf"[\w.+-]+-[0-9a-f]{{{2 * DIGITS}}}|{re.escape(INPUTS)}"
"""Pattern of the names in a folder of stages; files with other names are never touched."""


def digest(*parts: Any) -> str:
    """A name for content: the same parts have the same name, other parts another.

    >>> digest("a", 1, np.arange(3)) == digest("a", 1, np.arange(3)), digest("a") == digest("b")
    (True, False)
    """
    told = hashlib.blake2b(digest_size=DIGITS)
    for part in parts:
        _feed(told, part)
    return told.hexdigest()


def _feed(told: Any, part: Any) -> None:
    told.update(type(part).__name__.encode())
    match part:
        case np.ndarray():
            told.update(str(part.dtype).encode() + str(part.shape).encode())
            told.update(np.ascontiguousarray(part).view(np.uint8).data)
        case pa.Array() | pa.ChunkedArray():
            # Buffers may hold more than what is shown of them; written out, only what is shown counts.
            sink = pa.BufferOutputStream()
            table = pa.table({"ids": part}).combine_chunks()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            told.update(sink.getvalue())
        case Features():
            _feed_all(told, [part.query, part.document, part.matrix, list(part.names)])
        case Gold():
            _feed_all(told, [part.query, part.document, part.code, str(part.scale)])
        case Judgments():
            _feed_all(told, _told_of(part))
        case _:
            told.update(json.dumps(part, sort_keys=True, default=str).encode())


def _feed_all(told: Any, parts: list[Any]) -> None:
    for part in parts:
        _feed(told, part)


def _told_of(table: Judgments) -> list[Any]:
    families = [] if table.families is None else [table.families, table.assessor_family]
    extras = [part for name in sorted(table.extras) for part in (name, table.extras[name])]
    ids = [table.queries, table.documents, table.assessors]
    codes = [table.item_query, table.item_document, table.offsets, table.assessor, table.grade, table.assessor_scale]
    scales = [[str(scale) for scale in table.scales], [list(codes or ()) for codes in table.scale_maps]]
    return [*ids, *codes, *scales, *families, *extras]


class Stages:
    """A folder of finished stages, or nothing where there is no folder.

    Attributes:
        reused, made: how many stages were found, and how many were made.

    >>> stages = Stages(None)
    >>> stages.arrays("sum", "key", lambda: {"total": np.array(3)})["total"], stages.made
    (array(3), 1)
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.reused = self.made = 0
        self._asked: set[str] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def place(self, name: str, key: str) -> Path | None:
        """Where a stage is or would be."""
        return None if self.folder is None else self.folder / f"{name}-{key}"

    def has(self, name: str, key: str) -> bool:
        """Whether the stage is there."""
        place = self.place(name, key)
        return place is not None and place.exists()

    def kept(
        self, name: str, key: str, make: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> T:
        """The stage: read where it is there, else made and kept. One that cannot be read is made again."""
        place = self.place(name, key)
        if place is not None:
            self._asked.add(place.name)
        if place is not None and place.exists():
            try:
                found = load(place)
            except (CrowdrankError, OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
                _delete(place)  # damaged, or of another version: what it was made of is here, so it is made again
            else:
                self.reused += 1
                return found
        made = make()
        self.made += 1
        if place is not None:
            save(made, place)
        return made

    def tidy(self) -> None:
        """Delete the stages that were not asked for since these stages were opened."""
        if self.folder is None:
            return
        for place in self.folder.iterdir():
            if place.name not in self._asked and place.name != INPUTS and re.fullmatch(STAGE_NAMES, place.name):
                _delete(place)

    def arrays(
        self, name: str, key: str, make: Callable[[], Mapping[str, np.ndarray[Any, Any]]]
    ) -> Mapping[str, np.ndarray[Any, Any]]:
        """A stage whose result is a few arrays."""
        return self.kept(name, key, make, _save_arrays, _load_arrays)


def _save_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], place: Path) -> None:
    with write_file(place) as draft, draft.open("wb") as stream:
        np.savez(stream, **dict(arrays))  # type: ignore[arg-type]  # names are ours, none is one of savez's own


def _delete(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()


def _load_arrays(place: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(place, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def code() -> str:
    """Return the part of every key that stands for the code: a digest of the package's source."""
    return source_digest()
