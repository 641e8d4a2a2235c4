"""Read LETOR (svmlight) files with lines such as `2 qid:7 1:0.5 2:3 # docid = GX008-86`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError, shown
from crowdrank.readers.files import (
    BYTES_PER_FLOAT,
    FileHead,
    LineSource,
    batched,
    numbered_lines,
    open_decompressed,
    too_large_error,
)
from crowdrank.readers.sources import BadRows, no_rows_error

DOCID_PATTERN = re.compile(rb"docid\s*=\s*(\S+)")
"""Pattern of the document id in the comment of a line."""
MAX_FEATURE_POSITION = 2**31 - 1
"""Maximum position (number before the colon) of a feature."""
LetorRow = tuple[int, tuple[str, str, str], list[int], list[float]]
"""Line number; query, document and grade; positions and values of the features."""


class LetorSource(LineSource):
    """A LETOR file; the id of a document without a `docid` comment is its number within its query."""

    def __init__(self, file: str | Path | FileHead) -> None:
        super().__init__(file, ("query", "document", "grade"))
        self._sizes, self._positions, self._values = array("q"), array("q"), array("d")

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, and keep the features of the rows for `features`."""
        table = self._to_table(self._parse_rows(bad_rows), names)
        if not self._lines and not bad_rows.skipped:
            raise no_rows_error(self.name)
        return table

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows, and store the features of each."""
        for rows in batched(self._parse_rows(BadRows()), n_rows):
            yield self._to_table(rows, names)

    def _parse_rows(self, bad_rows: BadRows) -> Iterator[LetorRow]:
        """Yield the rows of the file."""
        n_documents: dict[str, int] = {}
        with open_decompressed(self.head) as stream:
            for line_number, line in numbered_lines(stream, self.name):
                if not line.isascii():
                    line.decode()  # raises an error if it is not UTF-8
                text, _, comment = line.partition(b"#")
                words = text.split()  # at ASCII white space: an id may hold any other
                if not words:
                    continue
                try:
                    query, (positions, values) = _parse_query(words), _parse_features(words[2:])
                except ValueError as problem:
                    bad_rows.count_malformed(self._line_error(line_number, str(problem)))
                    continue
                n_documents[query] = n_documents.get(query, 0) + 1
                docid = DOCID_PATTERN.search(comment)
                document = docid[1].decode() if docid else str(n_documents[query])
                yield line_number, (query, document, words[0].decode()), positions, values

    def _to_table(self, rows: Iterable[LetorRow], names: Sequence[str]) -> pa.Table:
        """Return the columns `names` of rows, and store their features and line numbers."""
        columns: dict[str, list[str]] = {"query": [], "document": [], "grade": []}
        self._lines, self._sizes, self._positions, self._values = [], array("q"), array("q"), array("d")
        for line_number, cells, positions, values in rows:
            for role, cell in zip(columns, cells, strict=True):
                columns[role].append(cell)
            self._lines.append(line_number)
            self._sizes.append(len(positions))
            self._positions.extend(positions)
            self._values.extend(values)
        return pa.table({name: pa.array(columns[name], pa.string()) for name in names})

    def features(self, max_bytes: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Return the feature matrix (n_documents, n_features) and the feature names; call `read` before.

        There is one column per position that occurs in the file. Features that a line omits are 0.

        Raises:
            InputError: the matrix would take more than `max_bytes` bytes.

        """
        positions, column = np.unique(np.asarray(self._positions), return_inverse=True)
        if len(self._sizes) * len(positions) * BYTES_PER_FLOAT > max_bytes:
            subject = f"a table of {len(self._sizes):,} documents and {len(positions):,} features"
            raise too_large_error(self.name, subject, max_bytes)
        matrix = np.zeros((len(self._sizes), len(positions)))
        matrix[np.repeat(np.arange(len(self._sizes)), np.asarray(self._sizes)), column] = self._values
        return matrix, tuple(f"f{feature_position}" for feature_position in positions.tolist())

    def _line_error(self, line_number: int, problem: str) -> InputError:
        fix = "write it as in: 2 qid:10 1:0.5 2:0.1 # docid = name"
        return InputError(problem, source=self.name, place=f"line {line_number}", fix=fix)


def _parse_query(words: list[bytes]) -> str:
    """Return the query id from the words of a line; raise ValueError if there is none."""
    if len(words) < 2 or not words[1].startswith(b"qid:") or len(words[1]) == 4:
        raise ValueError("there is no qid:NUMBER after the grade")
    return words[1][4:].decode()


def _parse_features(words: list[bytes]) -> tuple[list[int], list[float]]:
    """Parse words such as `1:0.5`; return positions and values, or raise ValueError."""
    pairs = [word.partition(b":") for word in words]
    try:
        positions, values = [int(pair[0]) for pair in pairs], [float(pair[2]) for pair in pairs]
    except ValueError:
        raise ValueError(_describe_bad_feature(words)) from None
    valid = all(1 <= position <= MAX_FEATURE_POSITION for position in positions) and np.inf not in map(abs, values)
    if not valid or any(b"_" in word for word in words):  # Python's numbers may have underscores
        raise ValueError(_describe_bad_feature(words))
    if len(set(positions)) < len(positions):
        raise ValueError("a feature occurs twice")
    return positions, values


def _describe_bad_feature(words: list[bytes]) -> str:
    """Return the problem with the first word that is not a feature."""
    bad = next(word for word in words if not _is_feature(word))
    return f"{shown(bad.decode())} is not a feature (position:number, positions from 1)"


def _is_feature(word: bytes) -> bool:
    """Return whether a word is a valid feature such as `1:0.5`."""
    position, _, value = word.partition(b":")
    try:
        return 1 <= int(position) <= MAX_FEATURE_POSITION and abs(float(value)) != np.inf and b"_" not in word
    except ValueError:
        return False
