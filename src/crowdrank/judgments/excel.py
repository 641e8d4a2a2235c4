"""Read Excel workbooks (.xlsx)."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.files import open_decompressed
from crowdrank.judgments.json_lines import MAX_EXACT_INTEGER, cell_to_text, is_encodable
from crowdrank.judgments.limits import MAX_BYTES, too_large_error
from crowdrank.judgments.sources import FileSource

BYTES_PER_CELL = 64
"""Approximate number of bytes of memory per cell."""
MAX_SHEET_ROWS = 1_048_576
"""Maximum number of rows of a sheet that the file format allows."""


class ExcelSource(FileSource):
    """The first sheet of a workbook; the first row that is not blank is the header, and all cells are read as text."""

    def __init__(self, path: str | Path, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(path)
        self.max_bytes = max_bytes
        with self._open_sheet() as rows:
            self._header, cells = next(((number, row) for number, row in rows if any(row)), (0, ()))
        header = [cell_to_text(cell) for cell in cells]
        while header and header[-1] is None:
            header.pop()
        if not header:
            raise no_rows_error(self.name)
        self._positions = {name: position for position, name in enumerate(header) if name is not None}
        self.names = [name for name in header if name is not None]
        self._rows: list[int] = []

    @contextmanager
    def _open_sheet(self) -> Iterator[Iterator[tuple[int, Sequence[Any]]]]:
        """Open the first sheet as an iterator of (row number, cells)."""
        try:
            import openpyxl
        except ImportError as error:
            text = f"Reading {self.name} needs openpyxl, which is not installed: pip install 'crowdrank[excel]'."
            raise UsageError(text, kind="missing-package") from error
        with open_decompressed(self.path, text=False) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of features that are not read, such as data validation
            try:
                self._check_decompressed_size(stream)
                book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
                sheet = book.worksheets[0]
                sheet.reset_dimensions()  # a damaged file may state any size
                yield self._numbered_rows(sheet)
            except (InputError, MemoryError):
                raise
            except Exception as error:  # damaged parts raise many errors: KeyError, ValueError, ParseError, ...
                problem = f"it is not an Excel workbook, or damaged ({type(error).__name__})"
                fix = "save it again as .xlsx or as CSV"
                raise InputError(problem, source=self.name, kind="damaged", fix=fix) from error

    def _check_decompressed_size(self, stream: Any) -> None:
        """Raise InputError if the decompressed workbook is larger than `max_bytes`."""
        with zipfile.ZipFile(stream) as archive:
            if sum(part.file_size for part in archive.infolist()) > self.max_bytes:
                raise too_large_error(self.name, "decompressed, it", self.max_bytes)
        stream.seek(0)

    def _numbered_rows(self, sheet: Any) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number and the cells of each row; raise InputError if the cells take more than `max_bytes`."""
        n_bytes = 0
        for row_number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            n_bytes += len(row) * BYTES_PER_CELL
            if n_bytes > self.max_bytes or row_number > MAX_SHEET_ROWS:
                raise too_large_error(self.name, "its cells", self.max_bytes)
            yield row_number, row

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` as text, without blank rows."""
        self._rows = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with self._open_sheet() as rows:
            for row_number, row in rows:
                if row_number <= self._header or all(cell is None or cell == "" for cell in row):
                    continue
                self._rows.append(row_number)
                for name, column in columns.items():
                    position = self._positions[name]
                    column.append(row[position] if position < len(row) else None)
        return pa.table(
            {name: pa.array(self._cells_as_text(name, cells), pa.string()) for name, cells in columns.items()}
        )

    def _cells_as_text(self, column_name: str, cells: list[Any]) -> Iterator[str | None]:
        """Yield the cells of a column as text; raise InputError if an integer has more digits than Excel stores."""
        all_integers = all(cell.is_integer() for cell in cells if isinstance(cell, float))
        for row, cell in enumerate(cells):
            if isinstance(cell, float) and all_integers and abs(cell) >= MAX_EXACT_INTEGER:
                problem = f"{shown(cell)} has more digits than Excel stores"
                raise self.cell_error(row, column_name, problem, "format the column as text and enter the ids again")
            if isinstance(cell, str) and not is_encodable(cell):
                raise self.cell_error(row, column_name, f"{shown(cell)} is not text", "remove the lone surrogate")
            yield cell.isoformat() if isinstance(cell, datetime | date | time) else cell_to_text(cell)

    def place(self, row: int) -> str:
        """Return text that locates a row of the table: its number, and its row number in the sheet."""
        return f"row {row + 1} (row {self._rows[row]} of the sheet)"
