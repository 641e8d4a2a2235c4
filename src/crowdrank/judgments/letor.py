"""LETOR (svmlight) files: `grade qid:7 1:0.5 2:3 # docid = GX008-86`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.limits import BYTES_PER_NUMBER, lines_of, too_large
from crowdrank.judgments.sources import Source, no_rows_error, open_decompressed

DOCID = re.compile(rb"docid\s*=\s*(\S+)")
NAME = re.compile(r"f[1-9]\d*", re.ASCII)
LARGEST_POSITION = 2**31 - 1
"""Maximum position of a feature."""


class LetorSource(Source):
    """Documents with features; the id of a document without a `docid` comment is its number within its query."""

    has_assessor_column = False

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self.names = ["query", "document", "grade"]
        self._lines: list[int] = []
        self._sizes, self._positions, self._values = array("q"), array("q"), array("d")

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; call `features` afterwards for the features."""
        columns: dict[str, list[str]] = {"query": [], "document": [], "grade": []}
        self._lines, self._sizes, self._positions, self._values = [], array("q"), array("q"), array("d")
        seen: dict[str, int] = {}
        with open_decompressed(self.path) as stream:
            for number, line in lines_of(stream, self.name):
                if not line.isascii():
                    line.decode()  # raises an error if it is not UTF-8
                text, _, comment = line.partition(b"#")
                words = text.split()  # at ASCII white space: an id may hold any other
                if not words:
                    continue
                try:
                    query, (positions, values) = _query(words), _features(words[2:])
                except ValueError as problem:
                    bad_rows.malformed(self._malformed(number, str(problem)))
                    continue
                seen[query] = seen.get(query, 0) + 1
                docid = DOCID.search(comment)
                cells = (query, docid[1].decode() if docid else str(seen[query]), words[0].decode())
                for role, cell in zip(columns, cells, strict=True):
                    columns[role].append(cell)
                self._lines.append(number)
                self._sizes.append(len(positions))
                self._positions.extend(positions)
                self._values.extend(values)
        if not self._lines and not bad_rows.skipped:
            raise no_rows_error(self.name)
        return pa.table({name: pa.array(columns[name], pa.string()) for name in names})

    def features(self, max_bytes: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Return the feature matrix (n_documents, n_features) and the names of its columns, after `read`.

        There is one column per position that occurs. Features that a line omits are 0, as the format defines it.

        Raises:
            InputError: the matrix would take more than `max_bytes` bytes.

        """
        positions, column = np.unique(np.asarray(self._positions), return_inverse=True)
        if len(self._sizes) * len(positions) * BYTES_PER_NUMBER > max_bytes:
            what = f"a table of {len(self._sizes):,} documents and {len(positions):,} features"
            raise too_large(self.name, what, max_bytes)
        matrix = np.zeros((len(self._sizes), len(positions)))
        matrix[np.repeat(np.arange(len(self._sizes)), np.asarray(self._sizes)), column] = self._values
        return matrix, tuple(f"f{position}" for position in positions.tolist())

    def _malformed(self, number: int, problem: str) -> InputError:
        fix = "write it as in: 2 qid:10 1:0.5 2:0.1 # docid = name"
        return InputError(problem, source=self.name, place=f"line {number}", fix=fix)

    def place(self, row: int) -> str:
        """Return the line of a row in the file."""
        return f"line {self._lines[row]}"


def is_position(name: str) -> bool:
    """Return whether a feature name is a LETOR position.

    >>> is_position("f46"), is_position("bm25")
    (True, False)
    """
    return NAME.fullmatch(name) is not None


def position(name: str) -> int:
    """Return the position of a LETOR feature by its name.

    >>> position("f46")
    46
    """
    return int(name[1:])


def _query(words: list[bytes]) -> str:
    if len(words) < 2 or not words[1].startswith(b"qid:") or len(words[1]) == 4:
        raise ValueError("there is no qid:NUMBER after the grade")
    return words[1][4:].decode()


def _features(words: list[bytes]) -> tuple[list[int], list[float]]:
    """Return the positions and the values of `1:0.5 2:0.1`."""
    pairs = [word.partition(b":") for word in words]
    try:
        positions, values = [int(pair[0]) for pair in pairs], [float(pair[2]) for pair in pairs]
    except ValueError:
        raise ValueError(_feature_problem(words)) from None
    valid = all(1 <= position <= LARGEST_POSITION for position in positions) and all(map(_finite, values))
    if not valid or any(b"_" in word for word in words):  # Python's numbers may have underscores
        raise ValueError(_feature_problem(words))
    if len(set(positions)) < len(positions):
        raise ValueError("a feature occurs twice")
    return positions, values


def _finite(value: float) -> bool:
    return abs(value) != np.inf


def _feature_problem(words: list[bytes]) -> str:
    """Describe the first word that is not a feature."""
    bad = next(word for word in words if not _is_feature(word))
    return f"{shown(bad.decode())} is not a feature (position:number, positions from 1)"


def _is_feature(word: bytes) -> bool:
    position, _, value = word.partition(b":")
    try:
        return 1 <= int(position) <= LARGEST_POSITION and _finite(float(value)) and b"_" not in word
    except ValueError:
        return False
