"""Files of saved rankers and remappers: named arrays as Parquet, trees as LightGBM's text, other rankers in folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._folders import Fields, FolderKind, require
from crowdrank._saved_estimators import arrays_to_table, read_arrays
from crowdrank._typing import Arrays

if TYPE_CHECKING:
    from crowdrank.rankers.ranker import Ranker

RANKER = FolderKind("ranker", 1, "saved ranker", "save")
REMAPPER = FolderKind("remapper", 1, "saved remapper", "save")
TREE_FEATURES = FolderKind("tree-features", 1, "saved TreeFeatures", "save")
FILE = "ranker"
"""Name of the JSON file of rankers and remappers."""
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Pattern of the names of texts and parts."""


@dataclass
class SavedState:
    """Fitted state of an estimator: plain values, named arrays, texts, and other rankers that it consists of."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Ranker] = field(default_factory=dict)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the files of the state into a folder; return values for its JSON file."""
        pq.write_table(arrays_to_table(self.arrays), folder / "arrays.parquet")
        for name, text in self.texts.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
        for name, part in self.parts.items():
            part.save(folder / name)
        return {"values": self.values, "texts": list(self.texts), "parts": list(self.parts)}

    @classmethod
    def read(cls, folder: Path, fields: Fields, files: Iterable[str]) -> SavedState:
        """Read what :meth:`write` wrote; raise ValueError if a file is missing."""
        from crowdrank.rankers.ranker import Ranker

        texts, parts, existing = fields.texts("texts"), fields.texts("parts"), set(files)
        expected = [(name, f"{name}.txt") for name in texts] + [
            (name, f"{name}/{MANIFEST_FILE_NAME}") for name in parts
        ]
        for name, file in expected:
            require(_NAME.fullmatch(name) and file in existing, f"there is no {name!r} in it")
        return cls(
            fields.object("values"),
            read_arrays(folder / "arrays.parquet"),
            {name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in texts},
            {name: Ranker.load(folder / name) for name in parts},
        )
