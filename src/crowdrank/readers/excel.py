"""Read spreadsheets: Excel workbooks (.xlsx, .xlsm, .xlsb, .xls) and OpenDocument tables (.ods)."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from crowdrank.errors import InputError, Location, Message, UsageError, shown
from crowdrank.readers.files import MAX_BYTES, FileHead, FileSource, open_decompressed, too_large_error
from crowdrank.readers.json_files import MAX_EXACT_INTEGER, cell_to_text, is_encodable
from crowdrank.readers.sources import BadRows, no_rows_error

BYTES_PER_CELL = 32
"""Approximate number of bytes of memory per cell, blank ones included."""
CELL_REFERENCE = re.compile(rb'\sr="([A-Z]{1,3})([0-9]{1,7})"')
"""Column and row of a cell in a sheet of an .xlsx file."""
SHEET_FILE = re.compile(r"xl/worksheets/[^/]*\.xml")
"""Names of the sheets in an .xlsx file."""


class ExcelSource(FileSource):
    """The first visible sheet with cells; the first row that is not blank is the header, and cells are read as text.

    A cell that is merged with cells below it has the same value in all of their rows.
    """

    def __init__(self, file: str | Path | FileHead, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(file)
        self.max_bytes = max_bytes
        self._sheet, unread = self._load_sheet()
        self._header, cells = next(((number, row) for number, row in self._numbered_rows() if any(row)), (0, []))
        header = [cell_to_text(cell) or None for cell in cells]
        if not any(header):
            raise no_rows_error(self.name)
        self._positions = {name: position for position, name in enumerate(header) if name is not None}
        self.names = [name for name in header if name is not None]
        self._rows: list[int] = []
        if unread:
            problem = f"only the sheet {shown(self._sheet.name)} is read, and not {', '.join(map(shown, unread))}"
            self.notes = [Message(problem, "sheets-not-read", "note", Location(self.name))]

    def _load_sheet(self) -> tuple[Any, list[str]]:
        """Return the first visible sheet with cells, and the names of the other visible sheets."""
        try:
            import python_calamine as calamine
        except ImportError as error:
            text = f"Reading {self.name} needs python-calamine, which is not installed: pip install 'crowdrank[excel]'."
            raise UsageError(text, kind="missing-package") from error
        with open_decompressed(self.head, text=False) as stream:
            content = stream.read(self.max_bytes + 1)
        try:
            self._check_size(content)
            book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
            kind = calamine.SheetVisibleEnum.Visible, calamine.SheetTypeEnum.WorkSheet
            names = [sheet.name for sheet in book.sheets_metadata if (sheet.visible, sheet.typ) == kind]
            for name in names:
                sheet = book.get_sheet_by_name(name)
                if sheet.height:
                    return sheet, [other for other in names if other != name]
        except (InputError, MemoryError, KeyboardInterrupt):
            raise
        except calamine.PasswordError as error:
            problem, fix = "it is protected by a password", "save it without a password"
            raise InputError(problem, source=self.name, kind="damaged", fix=fix) from error
        except BaseException as error:  # a panic of the parser, which is written in Rust, is no Exception
            problem = f"it is not a spreadsheet, or damaged ({type(error).__name__})"
            fix = "save it again as .xlsx or as CSV"
            raise InputError(problem, source=self.name, kind="damaged", fix=fix) from error
        raise no_rows_error(self.name)

    def _check_size(self, content: bytes) -> None:
        """Raise InputError if a workbook, or the rectangle of the cells of a sheet, takes more than `max_bytes`."""
        if len(content) > self.max_bytes:
            raise too_large_error(self.name, "it", self.max_bytes)
        if not content.startswith(b"PK"):
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(part.file_size for part in archive.infolist()) > self.max_bytes:
                raise too_large_error(self.name, "decompressed, it", self.max_bytes)
            if "content.xml" in archive.namelist():  # .ods: the parser does not end if a closing tag is missing
                expat.ParserCreate().Parse(archive.read("content.xml"), True)
            for name in filter(SHEET_FILE.fullmatch, archive.namelist()):
                n_rows = n_columns = 0
                for cell in CELL_REFERENCE.finditer(archive.read(name)):
                    n_rows, n_columns = max(n_rows, int(cell[2])), max(n_columns, _column_number(cell[1]))
                if n_rows * n_columns * BYTES_PER_CELL > self.max_bytes:
                    raise too_large_error(self.name, f"{n_rows:,} rows with {n_columns:,} columns", self.max_bytes)

    def _numbered_rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the cells of each row."""
        merged: dict[int, list[tuple[int, int]]] = {}
        for (first_row, column), (last_row, _) in self._sheet.merged_cell_ranges or ():
            merged.setdefault(first_row, []).append((column, last_row))
        values: dict[int, tuple[Any, int]] = {}  # of merged cells: value and last row by column
        for index, row in enumerate(self._sheet.iter_rows()):
            for column, (value, last_row) in values.items():
                if index <= last_row and not _is_blank(row):
                    row[column] = value
            values |= {column: (row[column], last) for column, last in merged.get(index, ()) if column < len(row)}
            yield index + 1, row

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` as text, without blank rows."""
        self._rows = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for row_number, row in self._numbered_rows():
            if row_number <= self._header or _is_blank(row):
                continue
            self._rows.append(row_number)
            for name, column in columns.items():
                cell = row[self._positions[name]]
                column.append(None if cell == "" else cell)
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
            if isinstance(cell, timedelta):
                cell = cell.total_seconds()
            yield cell.isoformat() if isinstance(cell, datetime | date | time) else cell_to_text(cell)

    def locate_row(self, row: int) -> str:
        """Return text that locates a row of the table: its number, and its row number in the sheet."""
        return f"row {row + 1} (row {self._rows[row]} of the sheet)"


def _is_blank(row: Sequence[Any]) -> bool:
    return all(cell == "" for cell in row)


def _column_number(letters: bytes) -> int:
    """Return the number of a column of a sheet.

    >>> _column_number(b"A"), _column_number(b"AB")
    (1, 28)
    """
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number
