"""Distribute the rows of many parts to shards on disk.

    split_part(part, ...)         -> writes the part's rows sorted by shard; returns its summary
    merge.unify_tables(summaries)        -> assessors, families and scales of all parts
    build_shard(number, ...)      -> merges the shard's rows of all parts and writes them

`split_part` and `build_shard` take arguments that can be pickled, handle one part or shard, and return little: they
run in threads or on other machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank._typing import Integers
from crowdrank.errors import InputError
from crowdrank.judgments import frames, ids, kernels
from crowdrank.judgments.addresses import open_address
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.encode import EncodeOptions, PartRows, PartSummary, encode_part
from crowdrank.judgments.merge import SharedTables, merge_rows
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.sharded import StoredShard, shard_path, write_shard
from crowdrank.judgments.sources import Source, damaged_rows

PART_FILES = {"part": ".arrow", "tables": ".npy"}
"""Temporary files of a part: suffix by kind."""


@dataclass(frozen=True)
class FilePart:
    """Consecutive row groups of a file."""

    number: int
    address: str
    groups: tuple[int, int]  # the first group, and the one after the last
    first_row: int  # in the file
    rows: int
    rows_before: int  # in all parts before


@dataclass(frozen=True)
class ShardPlan:
    """How rows are read and distributed to shards, for all parts."""

    columns: Mapping[str, str]  # by role
    n_shards: int
    shard_size: int
    by: str  # query or document: what is kept together in a shard
    options: EncodeOptions


class PartSource(Source):
    """Rows of a part."""

    def __init__(self, part: FilePart) -> None:
        self.part, self.name, self.names = part, part.address, []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Read columns."""
        with open_address(self.name) as stream:
            table = pq.ParquetFile(stream).read_row_groups(list(range(*self.part.groups)), list(names))
        if len(table) != self.part.rows:
            raise damaged_rows(self.name)
        return pa.table({name: frames.to_plain_values(table[name], self.name, name) for name in names})

    def place(self, row: int) -> str:
        """Return the row, counted from 1 in the file."""
        return f"row {self.part.first_row + row + 1}"


def type_name(kind: pa.DataType) -> str:
    """Return the kind of values in a column, as far as all files must have the same."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return "text" if any(test(kind) for test in (*text, pa.types.is_large_binary)) else str(kind)


def types_differ(role: str, column: str, here: tuple[str, str], there: tuple[str, str]) -> InputError:
    """Return the error for a column with different types in two files, each given as (address, type)."""
    return InputError(
        f"the {role} is of the type {here[1]} here and {there[1]} in {there[0]}",
        kind="types-differ",
        source=here[0],
        column=column,
        fix=f"write every {role} as one type in all files",
    )


def require_same_types(summaries: Iterable[PartSummary]) -> Iterator[PartSummary]:
    """Yield the summaries of parts whose ids have the same types as in the parts before."""
    first: dict[str, tuple[str, pa.DataType]] = {}
    for summary in summaries:
        address = summary.origin.source.name
        for role, kind in summary.id_types.items():
            there, other = first.setdefault(role, (address, kind))
            if other != kind:
                column = summary.origin.column(role)
                raise types_differ(role, column, (address, type_name(kind)), (there, type_name(other)))
        yield summary


# Parts.


def split_part(part: FilePart, plan: ShardPlan, folder: Path) -> PartSummary:
    """Encode a part and write its rows to a file of the folder, one batch for each shard."""
    bad_rows, origin = BadRows(plan.options.on_bad_rows), Origin(PartSource(part), plan.columns, part.number)
    table = origin.source.read(list(dict.fromkeys(plan.columns.values())), bad_rows)
    cells = {role: table[name] for role, name in plan.columns.items()}
    rows, summary = encode_part(cells, origin, plan.options, bad_rows)
    key, shard = rows.document if plan.by == "document" else rows.query, np.zeros(len(rows), np.int32)
    if key is not None and len(rows):
        shard = (ids.hash_ids(key[1]) % plan.n_shards).astype(np.int32)[key[0]]
    order, bounds = kernels.sort_by_shard(shard, plan.n_shards)
    columns = {
        "document": rows.document[1].take(pa.array(rows.document[0][order])),
        "assessor": pa.array(rows.assessor[order]),
        "answer": pa.array(rows.answer[order]),
        "row": pa.array(order if rows.source_rows is None else rows.source_rows[order]),
    }
    if rows.query is not None:
        columns["query"] = rows.query[1].take(pa.array(rows.query[0][order]))
    if rows.family is not None:
        columns["family"] = pa.array(rows.family[order])
    _write_batches(pa.table(columns), bounds, shard_path(folder, "part", part.number, PART_FILES["part"]))
    return summary


def _write_batches(table: pa.Table, bounds: Integers, path: Path) -> None:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for start, stop in pairwise(bounds):
            writer.write_batch(batch.slice(start, stop - start))


def write_part_tables(tables: SharedTables, folder: Path) -> SharedTables:
    """Write the shared codes of each part's assessors and families to files; return the tables without them."""
    nothing = np.empty(0, np.int32)
    for part in tables.parts:
        with shard_path(folder, "tables", part.origin.part, PART_FILES["tables"]).open("wb") as stream:
            np.save(stream, part.assessor)
            np.save(stream, nothing if part.family is None else part.family)
    return replace(tables, parts=[replace(part, assessor=nothing, family=None) for part in tables.parts])


def _read_part_tables(tables: SharedTables, folder: Path) -> SharedTables:
    parts = []
    for part in tables.parts:
        with shard_path(folder, "tables", part.origin.part, PART_FILES["tables"]).open("rb") as stream:
            assessor, family = np.load(stream, allow_pickle=False), np.load(stream, allow_pickle=False)
        parts.append(replace(part, assessor=assessor, family=family))
    return replace(tables, parts=parts)


def delete_part_files(parts: Iterable[FilePart], folder: Path) -> None:
    """Delete the temporary files of all parts."""
    for part in parts:
        for kind, suffix in PART_FILES.items():
            shard_path(folder, kind, part.number, suffix).unlink()


# Shards.


@dataclass(frozen=True, eq=False)
class BuiltShard:
    """Result of building a shard."""

    shard: StoredShard | None  # None: no rows
    counts: Integers  # (n_assessors, 2) as in ShardedJudgments
    bad_rows: BadRows
    query_row: Integers = field(default_factory=lambda: np.empty(0, np.int64))  # first of all rows with each query
    largest_query: tuple[int, Any] = (0, None)  # number of judgments and id
    n_repeats: int = 0
    repeat: tuple[int, InputError] | None = None  # if repeats are errors: the first row that repeats another
    unusual_ids: Mapping[str, dict[str, str]] = field(default_factory=dict)  # by role: usual form by id


def build_shard(
    number: int, tables: SharedTables, plan: ShardPlan, parts: Sequence[FilePart], folder: Path
) -> BuiltShard:
    """Merge a shard's rows of all parts and write it."""
    tables, bad_rows = _read_part_tables(tables, folder), BadRows(plan.options.on_bad_rows)
    rows = [_read_rows(part, number, tables, folder) for part in parts]
    merged = merge_rows(rows, tables, bad_rows, plan.options.repeats)
    n_assessors = tables.header.n_assessors
    if merged is None:
        return BuiltShard(None, np.zeros((n_assessors, 2), np.int64), bad_rows)
    row = np.concatenate([part.rows_before + one.all_source_rows() for one, part in zip(rows, parts, strict=True)])
    judgments, (query_row, query_size) = merged.judgments, merged.query_rows()
    largest = int(query_size.argmax())
    answers = (judgments.assessor, judgments.assessor[judgments.grade >= 0])
    return BuiltShard(
        shard=write_shard(folder, number, judgments),
        counts=np.stack([np.bincount(assessor, minlength=n_assessors) for assessor in answers], axis=1),
        bad_rows=bad_rows,
        query_row=row[query_row],
        largest_query=(int(query_size[largest]), judgments.queries[largest].as_py()),
        n_repeats=merged.n_repeats,
        repeat=None if merged.repeat_error is None else (int(row[merged.repeat_error[0]]), merged.repeat_error[1]),
        unusual_ids={"query": ids.unusual_forms(judgments.queries), "document": ids.unusual_forms(judgments.documents)},
    )


def _read_rows(part: FilePart, number: int, tables: SharedTables, folder: Path) -> PartRows:
    """Read the rows of a part that belong to a shard."""
    with pa.OSFile(str(shard_path(folder, "part", part.number, PART_FILES["part"]))) as file:
        batch = pa.ipc.open_file(file).get_batch(number)
    column = {name: batch[name] for name in batch.schema.names}
    return PartRows(
        origin=tables.parts[part.number].origin,
        assessor=np.asarray(column["assessor"]),
        answer=np.asarray(column["answer"]),
        document=column["document"],
        query=column.get("query"),
        family=np.asarray(column["family"]) if "family" in column else None,
        source_rows=np.asarray(column["row"]),
    )


def number_queries(shards: Iterable[BuiltShard], folder: Path) -> None:
    """Write for each shard the numbers of its queries among all queries, in order of first appearance."""
    shards = [one for one in shards if one.shard is not None]
    rows = np.concatenate([one.query_row for one in shards])
    number = np.empty(len(rows), np.int32)
    number[np.argsort(rows, kind="stable")] = np.arange(len(rows))
    for one, numbers in zip(shards, np.split(number, np.cumsum([len(one.query_row) for one in shards])), strict=False):
        assert one.shard is not None
        with shard_path(folder, "queries", one.shard.number, ".npy").open("wb") as stream:
            np.save(stream, numbers)
