"""A file of judgments that grows: what stands there stays as it is, byte by byte, and what is new comes after it.

Only the line of a judgment that was given anew is written anew, with what else stands on it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank._files import write_file
from crowdrank.errors import UsageError
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import parse_column_map, resolve_columns
from crowdrank.judgments.formats import open_source
from crowdrank.judgments.sources import (
    MAX_LINE_BYTES,
    DelimitedSource,
    JsonLinesSource,
    ParquetSource,
    Source,
    open_decompressed,
    utf16_encoding,
)
from crowdrank.judgments.table import NO_QUERY, Judgments
from crowdrank.judgments.write import write_table

ROLES = ("query", "document", "assessor", "grade", "family", "time", "duration", "cost", "honeypot")
"""The columns that a file of judgments keeps."""
KEY = ("query", "document", "assessor")
Key = tuple[str, str, str]
Row = dict[str, Any]
_ZONE = re.compile(r":\d\d.*(Z|[+-]\d\d:?\d\d)\s*$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class JudgmentFile:
    r"""A file that judgments are kept in, and which of its columns plays which role.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("docid;worker;label;remark\nd1;ann;0;'tis good\n")
    >>> from crowdrank import read_judgments
    >>> import pandas as pd
    >>> new = read_judgments(pd.DataFrame({"docid": ["d2"], "worker": ["bob"], "label": [1]}))
    >>> JudgmentFile.of(path, separator=";").keep(new)
    >>> print(path.read_text(), end="")
    docid;worker;label;remark
    d1;ann;0;'tis good
    d2;bob;1;
    """

    path: Path
    source: Source
    role_of: Mapping[str, str]  # by the names of the file's columns

    @classmethod
    def of(
        cls,
        path: str | Path,
        *,
        format: str | None = None,
        columns: str | Mapping[str, str] | None = None,
        separator: str | None = None,
    ) -> JudgmentFile:
        """The file; one whose rows are not one judgment each cannot be added to."""
        source, layout = open_source(path, format, separator)
        with open_decompressed(path, text=False) as stream:
            if isinstance(source, DelimitedSource | JsonLinesSource) and utf16_encoding(stream.read(4)):
                raise UsageError(f"{path} is UTF-16; save it as UTF-8, or write the result elsewhere with -o.")
        if type(source) not in (DelimitedSource, JsonLinesSource, ParquetSource):
            raise UsageError(
                f"{path} is not a table with one judgment a row, as judgments are added to; "
                "write the result elsewhere with -o."
            )
        mapped = {**layout.columns, **parse_column_map(columns)}
        found = resolve_columns(
            source.names, source=source.name, required_roles=[], optional_roles=ROLES, column_map=mapped
        )
        return cls(Path(path), source, {name: role for role, name in found.items()})

    def lost(self, new: Judgments) -> list[str]:
        """What is known of new judgments that the file has no column for."""
        told = kept_columns(new).column_names
        if isinstance(self.source, DelimitedSource):
            return [role for role in told if role not in self.role_of.values() and not _is_no_query(new, role)]
        return []

    @property
    def zoned(self) -> bool | None:
        """Whether times in the file say that they are in UTC, or how far from it; None where it has no times."""
        name = next((name for name, role in self.role_of.items() if role == "time"), None)
        return None if name is None else zoned(self.source.read([name], BadRows("skip"))[name])

    def keep(self, new: Judgments, *, changed: bool = False, utc: bool = False) -> None:
        """Add judgments; where some are `changed`, they take the places of the old ones. All or nothing.

        Times are marked as UTC where those in the file are marked, or, where it has none, if `utc` says so.
        """
        marked = self.zoned
        rows = list(_rows(new, utc if marked is None else marked))
        if isinstance(self.source, ParquetSource):
            self._keep_parquet(new, rows, changed)
            return
        with open_decompressed(self.path) as stream:
            raw = stream.read()
        mine = _Lines(self) if isinstance(self.source, DelimitedSource) else _Objects(self)
        with write_file(self.path) as draft:
            draft.write_bytes(_packed(mine.grown(raw, rows, changed), self.path))

    def _keep_parquet(self, new: Judgments, rows: list[Row], changed: bool) -> None:
        """Rows of Parquet have no bytes of their own: all columns and their types are kept."""
        with open_decompressed(self.path, text=False) as stream:
            old = pq.read_table(pa.py_buffer(stream.read()))
        names = {role: name for name, role in self.role_of.items()}
        if changed:
            there = [names.get(role) for role in KEY]
            cells = [[NO_QUERY] * len(old) if name is None else old[name].to_pylist() for name in there]
            again = {_key(row) for row in rows}
            keep = [tuple(map(str, key)) not in again for key in zip(*cells, strict=True)]
            old = old.filter(pa.array(keep))
        table = kept_columns(new)
        wanted = [role for role in table.column_names if role in names or not _is_no_query(new, role)]
        columns = {names.get(role, role): table[role] for role in wanted}
        try:
            for name, column in columns.items():
                if name in old.column_names:
                    columns[name] = _as(column, old.schema.field(name).type)
            joined = pa.concat_tables([old, pa.table(columns)], promote_options="default")
        except pa.ArrowException as problem:
            raise UsageError(
                f"New judgments do not fit the columns of {self.path} ({str(problem).splitlines()[0]}); "
                "write the result elsewhere with -o."
            ) from problem
        write_table(joined.replace_schema_metadata(old.schema.metadata), self.path)


def start(path: str | Path, new: Judgments, *, utc: bool = False) -> None:
    """Write the first judgments of a file.

    >>> import tempfile
    >>> from crowdrank import read_judgments
    >>> import pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> rows = {"document": ["d"], "assessor": ["ann"], "grade": [0], "time": ["2024-05-31T10:15:00Z"]}
    >>> start(path, read_judgments(pd.DataFrame(rows)), utc=True)
    >>> print(path.read_text(), end="")
    query,document,assessor,grade,time
    all,d,ann,0,2024-05-31T10:15:00Z
    """
    name = Path(path).name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        write_table(kept_columns(new), path)
        return
    rows = list(_rows(new, utc))
    if name.endswith(".jsonl"):
        # A blank is a missing key: beside numbers, an empty text would be a cell of another type.
        text = "".join(_json({role: value for role, value in row.items() if value != ""}) for row in rows)
    else:
        names = kept_columns(new).column_names
        written = [names, *([row[one] for one in names] for row in rows)]
        text = _delimited(written, "\t" if name.endswith(".tsv") else ",", "\n")
    with write_file(path) as draft:
        draft.write_bytes(_packed(text.encode(), Path(path)))


class _Lines:
    """Delimited text."""

    def __init__(self, home: JudgmentFile) -> None:
        assert isinstance(home.source, DelimitedSource)
        self.home, self.separator = home, home.source.separator
        self.roles = [home.role_of.get(name) for name in home.source.names]

    def grown(self, raw: bytes, rows: list[Row], changed: bool) -> bytes:
        """The file with the rows."""
        end = "\r\n" if b"\r\n" in raw.partition(b"\n")[0] + b"\n" else "\n"
        new = {_key(row): row for row in rows}
        if changed:
            raw = self._renewed(raw, new, end)
        told = [[row.get(role, "") if role else "" for role in self.roles] for row in new.values()]
        return _closed(raw, end) + _delimited(told, self.separator, end).encode()

    def _renewed(self, raw: bytes, new: dict[Key, Row], end: str) -> bytes:
        """The file with the lines of judgments that are there anew; those are taken from `new`."""
        lines = raw.splitlines(keepends=True)
        place: dict[Key, tuple[int, int, list[str]]] = {}
        for first, after, cells in self._records(lines):
            row = {role: cell for role, cell in zip(self.roles, cells, strict=False) if role}
            if _key(row) in new:
                place[_key(row)] = first, after, cells  # of several the last counts
        for key, (first, after, cells) in place.items():
            row = new.pop(key)
            told = [row.get(role, cell) if role else cell for role, cell in zip(self.roles, cells, strict=False)]
            last = "" if not lines[after - 1].endswith((b"\n", b"\r")) else end
            lines[first] = _delimited([told], self.separator, last).encode()
            lines[first + 1 : after] = [b""] * (after - first - 1)
        return b"".join(lines)

    def _records(self, lines: list[bytes]) -> Iterator[tuple[int, int, list[str]]]:
        """Each record below the header: its first line, the line after its last, and its cells."""
        limit = csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader((line.decode("utf-8-sig", "replace") for line in lines), delimiter=self.separator)
        first, header = 0, True
        try:
            for cells in reader:
                if cells and not header:
                    yield first, reader.line_num, cells
                header = header and not cells
                first = reader.line_num
        finally:
            csv.field_size_limit(limit)


class _Objects:
    """JSON, an object a line."""

    def __init__(self, home: JudgmentFile) -> None:
        self.names = {role: name for name, role in home.role_of.items()}

    def grown(self, raw: bytes, rows: list[Row], changed: bool) -> bytes:
        """The file with the rows."""
        new = {_key(row): row for row in rows}
        lines = raw.splitlines(keepends=True)
        place = {}
        for number, line in enumerate(lines) if changed else ():
            if line.strip():
                told = json.loads(line.decode("utf-8-sig"))
                key = _key({role: told.get(self.names.get(role, role), NO_QUERY) for role in KEY})
                if key in new:
                    place[key] = number, told  # of several the last counts
        for key, (number, told) in place.items():
            lines[number] = _json({**told, **self._named(new.pop(key))}).encode()
        added = "".join(_json(self._named(row)) for row in new.values())
        return _closed(b"".join(lines), "\n") + added.encode()

    def _named(self, row: Row) -> Row:
        return {self.names.get(role, role): value for role, value in row.items() if value != ""}


def kept_columns(judgments: Judgments) -> pa.Table:
    """The judgments as a file keeps them: an answer that means 'cannot judge' as it was given."""
    table = judgments.to_arrow()
    if not judgments.n_unjudgeable:
        return table
    answer = judgments.unjudgeable[0] if judgments.unjudgeable else ""
    grade = [answer if cell is None else cell for cell in table["grade"].to_pylist()]
    numeric = all(scale.numeric for scale in judgments.scales) and answer.lstrip("-").isdigit()
    column = pa.array([int(cell) for cell in grade]) if numeric else pa.array([str(cell) for cell in grade])
    return table.set_column(table.column_names.index("grade"), "grade", column)


def zoned(times: pa.ChunkedArray) -> bool | None:
    """Whether times say where in the world they are; None where there are none.

    >>> [zoned(pa.chunked_array([[text]])) for text in ("2024-05-31T10:15:00Z", "2024-05-31", "1717150500", None)]
    [True, False, False, None]
    """
    if pa.types.is_timestamp(times.type):
        return times.type.tz is not None
    told = [str(cell) for cell in times.unique().to_pylist() if cell is not None and str(cell).strip()]
    return any(_ZONE.search(cell) for cell in told) if told else None


def batch_is_zoned(path: str | Path, *, format: str | None = None, columns: str | None = None) -> bool:
    """Whether the times of a batch say where in the world they are."""
    source, layout = open_source(path, format, None)
    mapped = {**layout.columns, **parse_column_map(columns)}
    found = resolve_columns(
        source.names, source=source.name, required_roles=[], optional_roles=["time"], column_map=mapped
    )
    return "time" in found and bool(zoned(source.read([found["time"]], BadRows("skip"))[found["time"]]))


def _is_no_query(judgments: Judgments, role: str) -> bool:
    """Whether this is the query of documents that came without one."""
    return role == "query" and judgments.queries.to_pylist() == [NO_QUERY]


def _rows(judgments: Judgments, utc: bool) -> Iterator[Row]:
    """The judgments as rows of text and numbers, blank where nothing is known."""
    for row in kept_columns(judgments).to_pylist():
        yield {role: _cell(value, utc) for role, value in row.items()}


def _cell(value: Any, utc: bool) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC if utc else None).isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        return "" if not math.isfinite(value) else int(value) if value.is_integer() else value
    return "" if value is None else value


def _key(row: Mapping[str, Any]) -> Key:
    query, document, assessor = (str(row.get(role, NO_QUERY)) for role in KEY)
    return query, document, assessor


def _delimited(rows: Iterable[Sequence[Any]], separator: str, end: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=end).writerows(rows)
    return text.getvalue()


def _json(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _closed(raw: bytes, end: str) -> bytes:
    """The bytes, their last line ended."""
    return raw if not raw or raw.endswith((b"\n", b"\r")) else raw + end.encode()


def _packed(raw: bytes, path: Path) -> bytes:
    return gzip.compress(raw, mtime=0) if path.suffix.lower() == ".gz" else raw


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as another type; codes of text are spelt out on the way."""
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(kind)
    return column.cast(kind)
