"""LETOR / svmlight text: `grade qid:7 1:0.5 2:3 # docid = GX008-86`."""

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
from crowdrank.judgments.sources import Source, no_rows, opened

DOCID = re.compile(r"docid\s*=\s*(\S+)")
MOST_FEATURES = 1_000_000


class LetorSource(Source):
    """Documents with features; a document without a `docid` comment is known by its number within its query."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self.names = ["query", "document", "grade"]
        self.matrix: NDArray[np.float64] = np.empty((0, 0))
        self._lines: list[int] = []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; the features stand in `matrix` afterwards."""
        columns: dict[str, list[str]] = {"query": [], "document": [], "grade": []}
        self._lines, sizes, positions, values = [], array("q"), array("q"), array("d")
        seen: dict[str, int] = {}
        with opened(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                text, _, comment = line.decode("utf-8-sig").partition("#")
                words = text.split()
                if not words:
                    continue
                try:
                    query, (mine, cells) = _query(words), _features(words[2:])
                except ValueError as problem:
                    bad_rows.malformed(self._malformed(number, str(problem)))
                    continue
                seen[query] = seen.get(query, 0) + 1
                docid = DOCID.search(comment)
                for role, cell in zip(columns, (query, docid[1] if docid else str(seen[query]), words[0]), strict=True):
                    columns[role].append(cell)
                self._lines.append(number)
                sizes.append(len(mine))
                positions.extend(mine)
                values.extend(cells)
        if not self._lines and not bad_rows.skipped:
            raise no_rows(self.name)
        self.matrix = _dense(np.asarray(sizes), np.asarray(positions), np.asarray(values))
        return pa.table({name: pa.array(columns[name], pa.string()) for name in names})

    def _malformed(self, number: int, problem: str) -> InputError:
        remedy = "a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name"
        return InputError(problem, source=self.name, place=f"line {number}", remedy=remedy)

    def place(self, row: int) -> str:
        """The line of a row."""
        return f"line {self._lines[row]}"


def _query(words: list[str]) -> str:
    if len(words) < 2 or not words[1].startswith("qid:") or len(words[1]) == 4:
        raise ValueError("there is no qid:NUMBER after the grade")
    return words[1][4:]


def _features(words: list[str]) -> tuple[list[int], list[float]]:
    """The positions and the values of `1:0.5 2:0.1`."""
    pairs = [word.partition(":") for word in words]
    try:
        positions, values = [int(pair[0]) for pair in pairs], [float(pair[2]) for pair in pairs]
    except ValueError:
        raise ValueError(_why_not(words)) from None
    if not all(1 <= position <= MOST_FEATURES for position in positions) or not all(map(_finite, values)):
        raise ValueError(_why_not(words))
    if len(set(positions)) < len(positions):
        raise ValueError("a feature stands twice")
    return positions, values


def _finite(value: float) -> bool:
    return abs(value) != np.inf


def _why_not(words: list[str]) -> str:
    """What is said of the first feature that is none."""
    bad = next(word for word in words if not _is_feature(word))
    return f"{shown(bad)} is not a feature (position:number, positions from 1)"


def _is_feature(word: str) -> bool:
    position, _, value = word.partition(":")
    try:
        return 1 <= int(position) <= MOST_FEATURES and _finite(float(value))
    except ValueError:
        return False


def _dense(sizes: NDArray[np.int64], positions: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Features as a matrix (n_documents, n_features); what a line does not name is 0, as the format says."""
    matrix = np.zeros((len(sizes), int(positions.max(initial=0))))
    matrix[np.repeat(np.arange(len(sizes)), sizes), positions - 1] = values
    return matrix
