"""JSON Lines files, and conversion of JSON values to cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from crowdrank.errors import InputError, shown
from crowdrank.judgments.bad_rows import SKIP_BAD_ROWS, BadRows, no_rows_error
from crowdrank.judgments.columns import ID_COLUMN_NAMES
from crowdrank.judgments.files import open_decompressed
from crowdrank.judgments.limits import batched, numbered_lines
from crowdrank.judgments.sources import FileSource

MAX_EXACT_INTEGER = 2**53
"""Largest integer up to which a float64 holds every integer exactly."""
NOT_LABELED, SEVERAL_LABELS = "not labeled", "several labels"
"""Reasons under which rows with an empty list of labels, and with a list of different labels, are counted."""


class JsonLinesSource(FileSource):
    """Text file with one JSON object per line; a list with one label, as doccano exports it, is read as the label."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._lines: list[int] = []
        with open_decompressed(path) as stream:
            # All lines are scanned for keys: writers leave out the key of a blank value.
            rows = self._read_objects(stream, BadRows("skip"))
            self.names = list(dict.fromkeys(key for _, row in rows for key in row))
        if not self.names:
            with open_decompressed(path) as stream:
                _ = list(self._read_objects(stream, BadRows()))  # raises the error of the first line
            raise no_rows_error(self.name)

    def _read_objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the object of each line."""
        for line_number, line in numbered_lines(stream, self.name):
            text = line.decode().strip()
            if not text:
                continue
            value, problem = _parse_json_object(text)
            if value is not None:
                yield line_number, value
            else:
                fixes = ("correct it", SKIP_BAD_ROWS)
                bad_rows.count_malformed(InputError(problem, source=self.name, place=f"line {line_number}", fix=fixes))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; a missing key becomes null."""
        self._first_row = 0
        return self._to_table(self._labeled_rows(names, bad_rows), names)

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows."""
        batches = batched(self._labeled_rows(names, BadRows()), n_rows)
        return self._count_rows(self._to_table(rows, names) for rows in batches)

    def _labeled_rows(self, names: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the object of each line that has labels."""
        with open_decompressed(self.path) as stream:
            for line_number, row in self._read_objects(stream, bad_rows):
                if reason := label_problem(row, names):
                    bad_rows.count_left_out(reason, 1)
                else:
                    yield line_number, row

    def _to_table(self, rows: Iterable[tuple[int, dict[str, Any]]], names: Sequence[str]) -> pa.Table:
        """Return the columns `names` of objects, and store their line numbers for `place`."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for line_number, row in rows:
            self._lines.append(line_number)
            for name, column in columns.items():
                column.append(only_label(name, row.get(name)))
        return pa.table({name: self._typed_column(name, cells) for name, cells in columns.items()})

    def _typed_column(self, name: str, cells: list[Any]) -> pa.Array:
        """Return the cells of a column as an Arrow array; raise InputError if they are not of one JSON type."""
        kind = ""
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if json_kind(cell) not in (kind or json_kind(cell), ""):
                raise self._type_error(row, name, cell, "has another type than the values before it")
            kind = json_kind(cell)
            if not kind:
                raise self._type_error(row, name, cell, "is a list or an object")
        if any(type(cell) is float for cell in cells):
            inexact = [row for row, cell in enumerate(cells) if type(cell) is int and not _is_exact_float(cell)]
            if inexact:
                problem = "cannot be stored exactly in a column that also has numbers with a decimal point"
                raise self._type_error(inexact[0], name, cells[inexact[0]], problem, "write the column as text")
        try:
            return _to_arrow_column(cells)
        except UnicodeEncodeError as problem:
            row = next(row for row, cell in enumerate(cells) if cell is not None and not is_encodable(cell))
            raise self._type_error(row, name, cells[row], "is not text") from problem

    def _type_error(
        self, row: int, column: str, cell: Any, problem: str, fix: str = "make the column all text or all numbers"
    ) -> InputError:
        return self.cell_error(row, column, f"{shown(cell)} {problem}", fix)

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its number, and its line in the file."""
        return f"row {self._first_row + row + 1} (line {self._lines[row]})"


def label_problem(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return why a row cannot be used if one of the columns `names` has a list of no or several labels, or None.

    >>> [label_problem({"label": labels, "Comments": []}, ["label"]) for labels in ([], ["2"], ["1", "2"])]
    ['not labeled', None, 'several labels']
    """
    numbers = [len(labels) for name in names if (labels := _labels_in(name, row.get(name))) is not None]
    return NOT_LABELED if 0 in numbers else SEVERAL_LABELS if max(numbers, default=1) > 1 else None


def only_label(column: str, cell: Any) -> Any:
    """Return the label in a cell that may be a list with one label, as doccano exports them; others are unchanged.

    >>> [only_label("label", value) for value in (["2"], [[0, 5, "2"]], "2")]
    ['2', '2', '2']
    """
    labels = _labels_in(column, cell)
    return labels[0] if labels else cell


def _labels_in(column: str, cell: Any) -> list[Any] | None:
    """Return the different labels in a list of labels; None if the cell is something else."""
    if not isinstance(cell, list) or column.casefold() in ID_COLUMN_NAMES:
        return None
    # A label of a span is [start, end, label].
    labels = [label[2] if isinstance(label, list) and len(label) == 3 else label for label in cell]
    return list(dict.fromkeys(labels)) if all(isinstance(label, str | int | float) for label in labels) else None


class JsonError(ValueError):
    """A JSON text has a key twice in an object, or a number that would be changed by reading it."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; raise ValueError if it is no JSON, or JsonError if a part would be lost.

    >>> parse_json('{"id": 9007199254740993.0}')
    {'id': '9007199254740993.0'}
    """
    return json.loads(text, parse_float=_parse_float, object_pairs_hook=_unique_keys)


def _parse_float(text: str) -> float | str:
    """Return a number with a decimal point, as text if it is a whole number that a float64 does not hold exactly."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise JsonError(f"the number {shown(text)[1:-1]} is too large")
    return text if abs(number) >= MAX_EXACT_INTEGER and "e" not in text.casefold() else number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise JsonError if a key occurs twice."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {shown(twice)} occurs twice in one object")
    return unique


def _parse_json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object in a line, or None and what is wrong with the line."""
    try:
        value = parse_json(text)
    except JsonError as problem:
        return None, str(problem)
    except (ValueError, RecursionError):
        return None, f"{shown(text)} is not JSON"
    if not isinstance(value, dict):
        return None, "the line is JSON but not an object"
    # A lone surrogate can only come from an escape.
    unusable = next((key for key in value if not is_encodable(key)), None) if "\\u" in text else None
    return (value, "") if unusable is None else (None, f"the key {shown(unusable)} is not text")


def json_kind(cell: Any) -> str:
    """Return the kind of a JSON value: "text", "truth" for a boolean, "number", or "" for a list or an object."""
    return {str: "text", bool: "truth", int: "number", float: "number"}.get(type(cell), "")


def cell_to_text(cell: Any) -> str | None:
    """Return a JSON or Excel value as text, or None for a list, an object, null and NaN.

    >>> cell_to_text(1), cell_to_text(1.0), cell_to_text(0.5), cell_to_text("1 "), cell_to_text([1])
    ('1', '1', '0.5', '1 ', None)
    """
    if cell is None or isinstance(cell, list | dict) or cell != cell:
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < MAX_EXACT_INTEGER:
        return str(int(cell))
    return str(cell)


def _is_exact_float(number: int) -> bool:
    """Return whether a float64 holds an integer exactly."""
    return abs(number) <= MAX_EXACT_INTEGER or (abs(number) < 10**300 and int(float(number)) == number)


def _to_arrow_column(cells: list[Any]) -> pa.Array:
    """Return cells of one JSON type as an Arrow array; integers that do not fit into int64 become text."""
    if all(cell is None or type(cell) is int for cell in cells):
        fits = all(cell is None or abs(cell) < 2**63 for cell in cells)
        return pa.array(cells if fits else [None if cell is None else str(cell) for cell in cells])
    if any(type(cell) is float for cell in cells):
        return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array(cells)


def is_encodable(cell: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    if cell.isascii():
        return True
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True
