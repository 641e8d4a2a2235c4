"""Sources of tables: a DataFrame here, and one module per file format.

A source reads only the requested columns. Cells of text files stay text: `encode.py` decides for every source what a
grade or an id is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank.errors import Fix, InputError, Message
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows


class Source(ABC):
    """A table that can be read column by column."""

    name: str  # path of the file, for errors
    backend = "pandas"  # DataFrame library of results
    names: list[str]  # column names
    units: Mapping[str, str] = MappingProxyType({})  # units of durations and costs, if the format defines them
    notes: Sequence[Message] = ()  # what the user should know about the file
    has_assessor_column = True  # whether a file of this format can have an assessor column
    _first_row = 0  # number of rows before the table that was read last

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; `bad_rows` raises an error for malformed lines, or counts them."""

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows; malformed lines raise an error.

        A format that cannot be read in parts gives one table. `place` refers to the table that was yielded last.
        """
        yield self.read(names, BadRows())

    def _count_rows(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield tables that follow each other in the file, and set `_first_row` for each."""
        self._first_row = 0
        for table in tables:
            yield table
            self._first_row += len(table)

    def place(self, row: int) -> str:
        """Return the place in the file, for errors, of a row of the table that was read last."""
        return f"row {self._first_row + row + 1}"

    def cell_error(
        self, row: int, column: str, problem: str, fix: str | Fix | Sequence[str | Fix], kind: str | None = None
    ) -> InputError:
        """Return an error about a cell of the table that `read` returned."""
        return InputError(problem, source=self.name, place=self.place(row), column=column, fix=fix, kind=kind)

    def require(
        self, is_valid: Any, column: str, problem: str, fix: str | Sequence[str], kind: str | None = None
    ) -> None:
        """Raise InputError at the first row for which `is_valid` (n,) is false."""
        invalid = np.flatnonzero(~np.asarray(is_valid))
        if len(invalid):
            raise self.cell_error(int(invalid[0]), column, problem, fix, kind)


class FrameSource(Source):
    """A DataFrame of any library.

    >>> import pandas as pd
    >>> FrameSource(pd.DataFrame({"task": [1], "worker": ["a"]})).names
    ['task', 'worker']
    """

    def __init__(self, frame: Any, name: str = frames.FRAME_SOURCE_NAME) -> None:
        self.frame, self.name = frame, name
        self.backend = frames.frame_library(frame)
        self.names = frames.column_names(frame)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` as Arrow columns."""
        frame = frames.collect_columns(self.frame, list(names))
        columns = {name: frames.column_to_arrow(frame, name) for name in names}
        return pa.table({name: frames.to_plain_values(column, self.name, name) for name, column in columns.items()})


class FileSource(Source):
    """A file."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)


class LineSource(FileSource):
    """A text file without a header, whose lines are rows; it has no column for the assessor."""

    has_assessor_column = False

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        super().__init__(path)
        self.names = list(names)
        self._lines: list[int] = []  # line number of each row

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its line in the file."""
        return f"line {self._lines[row]}"
