"""Add batches of preferences to a file whose lines keep their bytes.

New preferences are appended. A changed answer of an assessor to the same two documents in the same order is appended
too; readers use the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdrank.collection.add_batch import delimited_lines, json_line, with_last_newline, write_bytes
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, InputError, UsageError, parameter_prefix, shown
from crowdrank.judgments.columns import parse_column_map, preference_roles
from crowdrank.judgments.table import NO_QUERY
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.files import open_decompressed
from crowdrank.readers.formats import open_source
from crowdrank.readers.json_files import JsonLinesSource
from crowdrank.readers.preference_files import (
    choose_roles,
    combine_preferences,
    parse_answer,
    parse_winner,
    read_preferences,
)
from crowdrank.readers.read_options import Format
from crowdrank.readers.sources import BadRows, Source

SUFFIXES = (".csv", ".tsv", ".jsonl")
"""Suffixes of files to which preferences can be added, perhaps followed by .gz."""
REQUEST_COLUMNS = ("kind", "price", "reason")
"""Columns of requests that are not part of their answers."""
Key = tuple[str, str, str, str]
"""Query, left and right document (or winner and loser), and assessor of a preference."""


@dataclass(frozen=True)
class AddedBatch:
    """Number of preferences of a batch by what was done with them.

    Attributes:
        batch: name of the batch.
        added: preferences between documents, in an order and by an assessor that the file did not have.
        changed: preferences that differ from the last answer in the file.
        known: preferences with the same answer, which are not added again.

    """

    batch: str
    added: int
    changed: int
    known: int


@dataclass(frozen=True)
class AddedBatches:
    """Result of adding batches.

    Attributes:
        batches: what was done with each batch.
        total: number of rows in the file.
        written: whether the file was written.
        lost: columns of the batches that the file lacks and that are not kept, without those of requests.

    """

    batches: list[AddedBatch]
    total: int
    written: bool
    lost: list[str]


@dataclass(frozen=True)
class _Rows:
    """Rows of a file of preferences as text."""

    source: Source
    column_of: dict[str, str]  # column of each role
    cells: list[dict[str, Any]]

    @classmethod
    def read(
        cls, path: Path, format: Format | None = None, columns: str | None = None, separator: str | None = None
    ) -> _Rows:
        """Read all columns of a file; raise InputError if it does not name the assessors."""
        opened, _ = open_source(path, format, separator, allow_books=False)
        column_map = parse_column_map(columns)
        has = preference_roles(opened.names, column_map)
        column_of = choose_roles(has).find_columns(opened.names, opened.name, column_map)
        if "assessor" not in column_of:
            fix = "add a column assessor to the file"
            raise InputError("there is no column for the assessor", source=str(path), kind="no-assessor", fix=fix)
        table = opened.read(list(opened.names), BadRows())
        columns_of_cells = [table[name].to_pylist() for name in opened.names]
        rows = [dict(zip(opened.names, row, strict=True)) for row in zip(*columns_of_cells, strict=True)]
        return cls(opened, column_of, rows)

    def answers(self) -> Iterable[tuple[Key, int]]:
        """Yield the key and the answer of each row."""
        sides = ("left", "right") if "left" in self.column_of else ("winner", "loser")
        for row in self.cells:
            names = [row[self.column_of[role]] for role in (*sides, "assessor")]
            query = row[self.column_of["query"]] if "query" in self.column_of else NO_QUERY
            yield (str(query), str(names[0]), str(names[1]), str(names[2])), self._answer(row, names)

    def _answer(self, row: Mapping[str, Any], names: Sequence[Any]) -> int:
        if "preference" in self.column_of:
            return parse_answer(row[self.column_of["preference"]])
        return parse_winner(row[self.column_of["winner"]], *names[:2]) if "left" in self.column_of else -1


def add_batches(
    path: Path,
    batches: Sequence[Path],
    target: Path,
    pool: Pool | None = None,
    *,
    file_options: Mapping[str, Any] | None = None,
    batch_options: Mapping[str, Any] | None = None,
) -> AddedBatches:
    """Add batches of preferences to a file; adding the same batch again changes nothing.

    Args:
        path: file of the preferences so far, which need not exist.
        batches: files of new preferences.
        target: file to write, `path` or another one.
        pool: documents that may be compared.
        file_options: format, columns and separator of the file.
        batch_options: format and columns of the batches; errors name them with the prefix `new_`.

    Raises:
        InputError: a preference is not valid, is between documents outside of the pool, or does not fit the file.
        UsageError: the format of the file is not one to which preferences can be added.

    """
    name = target.name.lower().removesuffix(".gz")
    if not name.endswith(SUFFIXES):
        fix = [Fix("write all preferences to another file with {}", "output", "preferences.csv")]
        raise UsageError(f"Preferences cannot be added to {target}", kind="not-a-table", fix=fix)
    file_options, batch_options = file_options or {}, batch_options or {}
    before = _Rows.read(path, **file_options) if path.exists() and path.stat().st_size else None
    so_far = read_preferences(path, **file_options) if before is not None and before.cells else None
    last = {} if before is None else dict(before.answers())
    new: list[dict[str, Any]] = []
    found = []
    known = None if pool is None else _pool_pairs(pool)
    for batch in batches:
        with parameter_prefix("new_"):
            so_far = combine_preferences(so_far, read_preferences(batch, **batch_options))
            rows = _Rows.read(batch, **batch_options)
            if before is not None:
                _require_same_answers(before, rows)
        counts = {"added": 0, "changed": 0, "known": 0}
        for row, (key, answer) in zip(rows.cells, rows.answers(), strict=True):
            if known is not None:
                _require_in_pool(key, known, batch)
            status = "known" if last.get(key) == answer else "changed" if key in last else "added"
            counts[status] += 1
            last[key] = answer
            if status != "known":
                new.append({_column(before, rows, column): cell for column, cell in row.items()})
        found.append(AddedBatch(str(batch), **counts))
    is_written = bool(new) or (target != path and before is not None)
    if is_written:
        write_bytes(_appended(path, before, new, target), target)
    is_table = before is not None and isinstance(before.source, DelimitedSource)
    kept = {*REQUEST_COLUMNS, *before.source.names} if is_table and before else None
    lost = [] if kept is None else [name for name in file_columns(new) if name not in kept]
    return AddedBatches(found, len(new) + (0 if before is None else len(before.cells)), is_written, lost)


def _require_same_answers(before: _Rows, rows: _Rows) -> None:
    """Raise InputError if only one of two files names the better document: a line of it has no place for the answer."""
    if {"preference", "winner"} & before.column_of.keys() != {"preference", "winner"} & rows.column_of.keys():
        expected = next(role for role in ("preference", "winner") if role in before.column_of)
        problem = f"its answers are not in a column {expected}, as those of {shown(before.source.name)} are"
        fix = f"write the answers as left, tie or right to a column {expected}"
        raise InputError(problem, source=rows.source.name, kind="answers-differ", fix=fix)


def _pool_pairs(pool: Pool) -> frozenset[tuple[str, str]]:
    """Return query and document of all pairs of a pool."""
    columns = (map(str, column.to_pylist()) for column in (pool.query, pool.document))
    return frozenset(zip(*columns, strict=True))


def _column(before: _Rows | None, rows: _Rows, column: str) -> str:
    """Return the column of the file for a column of a batch: that of the same role, or of the same name."""
    if before is None:
        return column
    role = next((role for role, name in rows.column_of.items() if name == column), None)
    return column if role is None else before.column_of.get(role, column)


def _require_in_pool(key: Key, known: frozenset[tuple[str, str]], batch: Path) -> None:
    """Raise InputError unless both documents are in the pool."""
    for document in key[1:3]:
        if (key[0], document) not in known:
            problem = f"the document {shown(document)} of query {shown(key[0])} is not in the pool"
            raise InputError(problem, source=str(batch), kind="invalid-preferences", fix=Fix("check {}", "pairs"))


def _appended(path: Path, before: _Rows | None, new: Sequence[dict[str, Any]], target: Path) -> bytes:
    """Return the bytes of the file with new rows at its end."""
    raw = b""
    if before is not None:
        with open_decompressed(path) as stream:
            raw = stream.read()
    is_json = isinstance(before.source, JsonLinesSource) if before is not None else ".jsonl" in target.name.lower()
    if is_json:
        lines = [json_line(_json_cells(row, before)) for row in new]
        return with_last_newline(raw, "\n") + "".join(lines).encode()
    if before is not None and not isinstance(before.source, DelimitedSource):
        fix = Fix("convert the file to CSV, TSV or JSON Lines")
        raise UsageError(f"Preferences cannot be added to {path}", kind="not-a-table", fix=fix)
    newline = "\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else "\n"
    if before is None:
        separator, names = "\t" if ".tsv" in target.name.lower() else ",", file_columns(new)
        raw = delimited_lines([names], separator, newline).encode()
    else:
        assert isinstance(before.source, DelimitedSource)
        separator, names = before.source.separator, list(before.source.names)
    cells = [["" if row.get(name) is None else row[name] for name in names] for row in new]
    return with_last_newline(raw, newline) + delimited_lines(cells, separator, newline).encode()


def _json_cells(row: dict[str, Any], before: _Rows | None) -> dict[str, Any]:
    """Return the cells of a row that are not blank; those of columns with numbers as numbers."""
    answer = "preference" if before is None else before.column_of.get("preference")
    old = {} if before is None else before.cells[-1] if before.cells else {}
    cells = {name: cell for name, cell in row.items() if cell is not None and cell != ""}
    for name, cell in cells.items():
        if name == answer and not isinstance(old.get(name), str):
            cells[name] = parse_answer(cell)
        elif isinstance(old.get(name), int | float) and not isinstance(cell, int | float):
            cells[name] = float(cell)
    return cells


def file_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the columns that rows have, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))
