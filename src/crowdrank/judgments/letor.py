"""LETOR / svmlight text: `grade qid:7 1:0.5 2:3 # docid = GX008-86`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.sources import Source, opened

DOCID = re.compile(r"docid\s*=\s*(\S+)")


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
        self._lines, sizes, cells = [], array("q"), array("d")
        seen: dict[str, int] = {}
        with opened(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                text, _, comment = line.decode("utf-8-sig", errors="replace").partition("#")
                words = text.split()
                if not words:
                    continue
                try:
                    query, values = self._split(words)
                except ValueError as problem:
                    bad_rows.malformed(self._malformed(number, str(problem)))
                    continue
                seen[query] = seen.get(query, 0) + 1
                docid = DOCID.search(comment)
                for role, cell in zip(columns, (query, docid[1] if docid else str(seen[query]), words[0]), strict=True):
                    columns[role].append(cell)
                self._lines.append(number)
                sizes.append(len(values))
                cells.extend(values)
        if not self._lines:
            raise InputError("there are no rows", source=self.name, remedy="check that it is the file you mean")
        self.matrix = _dense(np.asarray(sizes), np.asarray(cells))
        return pa.table({name: pa.array(columns[name], pa.string()) for name in names})

    @staticmethod
    def _split(words: list[str]) -> tuple[str, list[float]]:
        """The query and the features as position, value, position, value, ..."""
        if len(words) < 2 or not words[1].startswith("qid:") or len(words[1]) == 4:
            raise ValueError("there is no qid:NUMBER after the grade")
        try:
            values = list(map(float, ":".join(words[2:]).split(":"))) if len(words) > 2 else []
        except ValueError:
            values = [np.nan]
        positions = values[::2]
        if len(values) != 2 * (len(words) - 2) or not all(p >= 1 and p < 1e6 and p == int(p) for p in positions):
            raise ValueError("a feature is not of the form position:number")
        if len(set(positions)) < len(positions):
            raise ValueError("a feature stands twice")
        return words[1][4:], values

    def _malformed(self, number: int, problem: str) -> InputError:
        remedy = "a line reads: 2 qid:10 1:0.5 2:0.1 # docid = name"
        return InputError(problem, source=self.name, place=f"line {number}", remedy=remedy)

    def place(self, row: int) -> str:
        """The line of a row."""
        return f"line {self._lines[row]}"


def _dense(sizes: NDArray[np.int64], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Features as a matrix (n_documents, n_features); what a line does not name is 0, as the format says."""
    row = np.repeat(np.arange(len(sizes)), sizes // 2)
    position = cells[::2].astype(np.int64) - 1
    matrix = np.zeros((len(sizes), int(position.max(initial=-1)) + 1))
    matrix[row, position] = cells[1::2]
    return matrix
