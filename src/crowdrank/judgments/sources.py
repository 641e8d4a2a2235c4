"""Where rows come from: text, Parquet, JSON Lines, DataFrames. A source knows its columns and where a row stands.

A source reads only the columns asked for. Cells of text files stay text: what a grade or an id is,
is decided in one place for every source (`encode.py`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows

GUESSED_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}


class Source(ABC):
    """Named columns of rows."""

    name: str
    backend = "pandas"
    names: list[str]

    @abstractmethod
    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; lines that cannot be split are refused or counted as `bad_rows` says."""

    def place(self, row: int) -> str:
        """Where a row of the table that `read` returned stands, for a person."""
        return f"row {row + 1}"


class FrameSource(Source):
    """A DataFrame of any library.

    >>> import pandas as pd
    >>> FrameSource(pd.DataFrame({"task": [1], "worker": ["a"]})).names
    ['task', 'worker']
    """

    name = "the frame"

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.backend = frames.backend_of(frame)
        self.names = frames.column_names(frame)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, as Arrow."""
        return pa.table({name: frames.column_to_arrow(self.frame, name) for name in names})


class DelimitedSource(Source):
    """Comma-, tab- or otherwise separated text with a header line."""

    def __init__(self, path: str | Path, separator: str = ",") -> None:
        self.path, self.separator = Path(path), separator
        self.name = str(path)
        with opened(path) as stream:
            self.names = next(self._records(stream), (0, []))[1]
        if not self.names:
            raise _empty(self.name)
        self._refuse_wrong_separator()
        self._left_out = np.empty(0, dtype=np.int64)

    def _records(self, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        """Each record that is not blank with the line it ends on; slow, for the header and for error messages."""
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        reader = csv.reader(text, delimiter=self.separator)
        csv.field_size_limit(1 << 30)
        return ((reader.line_num, record) for record in reader if record)

    def _refuse_wrong_separator(self) -> None:
        others = [other for other in GUESSED_SEPARATORS if other != self.separator and other in self.names[0]]
        if len(self.names) == 1 and others:
            raise InputError(
                f"the header {self.names[0][:60]!r} is one column when split at {self._spoken()}",
                source=self.name,
                remedy=f"it looks separated by {GUESSED_SEPARATORS[others[0]]}: use --separator {others[0]!r}",
            )

    def _spoken(self) -> str:
        return GUESSED_SEPARATORS.get(self.separator, repr(self.separator))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, every cell as text."""
        malformed: list[Any] = []

        def take_note(row: Any) -> str:
            malformed.append(row)
            return "skip"

        # Row numbers are known only to the sequential parser: the fast one runs first, and this one where it finds
        # a malformed line or where such lines are to be counted.
        table = self._parse(names, threads=True, handler=take_note)
        if malformed:
            malformed.clear()
            table = self._parse(names, threads=False, handler=take_note)
            bad_rows.malformed(self._malformed(malformed[0]), len(malformed))
            self._left_out = np.array([row.number - 2 for row in malformed])
        return table

    def _parse(self, names: Sequence[str], *, threads: bool, handler: Callable[[Any], str]) -> pa.Table:
        with opened(self.path) as stream:
            return pyarrow.csv.read_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(use_threads=threads),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, invalid_row_handler=handler
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(names), column_types={name: pa.string() for name in names}
                ),
            )

    def _malformed(self, row: Any) -> InputError:
        return InputError(
            f"there are {row.actual_columns} cells where the header has {row.expected_columns}",
            source=self.name,
            place=self._place_of_record(row.number - 2),
            remedy=f"mend the line, check the separator ({self._spoken()}), or use --on-bad-rows skip",
        )

    def place(self, row: int) -> str:
        """The row, counted from 1 below the header, and its line in the file."""
        record = row
        for left_out in self._left_out:
            record += int(left_out <= record)
        return self._place_of_record(record)

    def _place_of_record(self, record: int) -> str:
        with opened(self.path) as stream:
            for position, (line, _) in enumerate(self._records(stream)):
                if position == record + 1:
                    return f"row {record + 1} (line {line})"
        return f"row {record + 1}"


class ParquetSource(Source):
    """A Parquet file; ids that are dictionary-encoded there are not encoded again."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        with opened(path) as stream:
            self.names = pyarrow.parquet.read_schema(stream).names

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named."""
        with opened(self.path) as stream:
            return pyarrow.parquet.read_table(stream, columns=list(names))


class JsonLinesSource(Source):
    """One JSON object a line."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        self._lines: list[int] = []
        with opened(path) as stream:
            first = next(self._objects(stream, BadRows("skip")), None)
        if first is None:
            raise _empty(self.name)
        self.names = [str(key) for key in first[1]]

    def _objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if not text:
                continue
            value, problem = _json_object(text)
            if value is not None:
                yield number, value
            else:
                remedy = "mend it, or use --on-bad-rows skip"
                bad_rows.malformed(InputError(problem, source=self.name, place=f"line {number}", remedy=remedy))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; a key that a line lacks is a missing value."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with opened(self.path) as stream:
            for number, value in self._objects(stream, bad_rows):
                self._lines.append(number)
                for name in names:
                    columns[name].append(value.get(name))
        return pa.table({name: self._column(name, cells) for name, cells in columns.items()})

    def _column(self, name: str, cells: list[Any]) -> pa.Array:
        kinds = {type(cell) for cell in cells if cell is not None}
        odd = kinds - {str, int, float, bool}
        mixed = str in kinds and len(kinds) > 1
        if odd or mixed:
            first = next(cell for cell in cells if cell is not None)
            row = next(
                row for row, cell in enumerate(cells) if type(cell) in odd or (mixed and type(cell) is not type(first))
            )
            raise InputError(
                f"{cells[row]!r} has another type than the values before it" if mixed else f"{cells[row]!r} is no cell",
                source=self.name,
                place=self.place(row),
                column=name,
                remedy="make the column all text or all numbers",
            )
        # Whole numbers too large for Arrow's integers are ids: text keeps them exact.
        if kinds == {int} and any(cell is not None and abs(cell) >= 2**63 for cell in cells):
            return pa.array([None if cell is None else str(cell) for cell in cells])
        return pa.array([float(cell) for cell in cells] if kinds == {int, float} and None not in cells else cells)

    def place(self, row: int) -> str:
        """The row and its line in the file."""
        return f"row {row + 1} (line {self._lines[row]})"


def _json_object(text: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, f"{text[:40].decode(errors='replace')!r} is not JSON"
    return (value, "") if isinstance(value, dict) else (None, "the line is JSON but not an object")


class WhitespaceSource(Source):
    """Lines of a fixed number of words and no header: TREC qrels and run files."""

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        self.path, self.name, self.names = Path(path), str(path), list(names)
        self._lines: list[int] = []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named, every cell as text."""
        rows, self._lines = [], []
        with opened(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                words = line.decode("utf-8-sig", errors="replace").split()
                if len(words) == len(self.names):
                    rows.append(words)
                    self._lines.append(number)
                elif words:
                    bad_rows.malformed(self._malformed(number, words))
        if not rows:
            raise _empty(self.name)
        columns = dict(zip(self.names, zip(*rows, strict=True), strict=True))
        return pa.table({name: pa.array(columns[name], pa.string()) for name in names})

    def _malformed(self, number: int, words: list[str]) -> InputError:
        return InputError(
            f"there are {len(words)} words where {len(self.names)} belong",
            source=self.name,
            place=f"line {number}",
            remedy=f"a line reads: {' '.join(self.names)}",
        )

    def place(self, row: int) -> str:
        """The row and its line in the file."""
        return f"line {self._lines[row]}"


def _empty(name: str) -> InputError:
    return InputError("there are no rows", source=name, remedy="check that it is the file you mean")


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked where the name ends in .gz; whatever is wrong with the file is one sentence."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as packed:
                # Parquet seeks, which gzip does by unpacking from the start each time.
                yield cast(BinaryIO, io.BytesIO(packed.read()) if path.stem.endswith(".parquet") else packed)
        else:
            with path.open("rb") as stream:
                yield stream
    except InputError:
        raise
    except FileNotFoundError as problem:
        raise InputError("there is no such file", source=str(path), remedy="check the path") from problem
    except IsADirectoryError as problem:
        raise InputError("this is a folder", source=str(path), remedy="name the file in it") from problem
    except UnicodeDecodeError as problem:
        raise InputError("the text is not UTF-8", source=str(path), remedy="save it as UTF-8") from problem
    except pa.ArrowInvalid as problem:
        raise _arrow_problem(path, problem) from problem
    except (OSError, EOFError, zlib.error, pa.ArrowException) as problem:
        reason = str(getattr(problem, "strerror", None) or problem).rstrip(".").split("\n")[0]
        raise InputError(
            f"it cannot be read ({reason})",
            source=str(path),
            remedy="it may be cut off or damaged: fetch it again",
        ) from problem


def _arrow_problem(path: Path, problem: Exception) -> InputError:
    text = str(problem).split("\n")[0].rstrip(".")
    if "UTF8" in text:
        return InputError("the text is not UTF-8", source=str(path), remedy="save it as UTF-8")
    if "Empty CSV" in text:
        return _empty(str(path))
    return InputError(
        f"it cannot be read ({text[:160]})", source=str(path), remedy="it may be cut off, damaged or of another format"
    )
