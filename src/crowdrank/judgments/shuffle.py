"""Distribute the rows of many parts to shards on disk.

    split_part(part, ...)           -> writes the part's rows sorted by shard; returns its summary
    unify_tables(summaries)         -> assessors, families and scales of all parts (`shared_tables`)
    build_shard(shard_number, ...)  -> merges the shard's rows of all parts and writes them

`split_part` and `build_shard` take arguments that can be pickled, handle one part or shard, and return little: they
run in threads or on other machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank._typing import Integers
from crowdrank.errors import InputError
from crowdrank.judgments import frames, ids
from crowdrank.judgments.addresses import open_address
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.cells import ParsedColumn
from crowdrank.judgments.columns import share_columns
from crowdrank.judgments.encode import PartRows, PartSummary, encode_part
from crowdrank.judgments.encode_options import EncodeOptions
from crowdrank.judgments.merge import merge_rows
from crowdrank.judgments.parquet import damaged_rows_error
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.sharded import StoredShard, numbered_path, write_shard
from crowdrank.judgments.shared_tables import SharedTables
from crowdrank.judgments.sources import Source


@dataclass(frozen=True)
class FilePart:
    """Part of a Parquet file: consecutive row groups."""

    number: int  # of the part among the parts of all files, from 0
    address: str  # of the file
    row_groups: tuple[int, int]  # the first group, and the one after the last
    first_row: int  # row number in the file, from 0
    n_rows: int
    rows_before: int  # total number of rows of all parts before this one


@dataclass(frozen=True)
class ShardPlan:
    """Settings for reading rows and distributing them to shards; the same for all parts."""

    columns: Mapping[str, str]  # column name by role
    n_shards: int
    shard_size: int
    by: str  # "query" or "document": all judgments of one are in the same shard
    options: EncodeOptions


class PartSource(Source):
    """Source of the rows of one part of a Parquet file."""

    def __init__(self, part: FilePart) -> None:
        self.part, self.name, self.names = part, part.address, []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        with open_address(self.name) as stream:
            table = pq.ParquetFile(stream).read_row_groups(list(range(*self.part.row_groups)), list(names))
        if len(table) != self.part.n_rows:
            raise damaged_rows_error(self.name)
        return pa.table({name: frames.to_plain_values(table[name], self.name, name) for name in names})

    def place(self, row: int) -> str:
        """Return the place of a row for error messages: its number in the file, from 1."""
        return f"row {self.part.first_row + row + 1}"


def type_category(data_type: pa.DataType) -> str:
    """Return "numbers" for a numeric type, "text" for text, or the name of the type.

    A column must be of the same category in all files.
    """
    data_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return "numbers"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return "text" if any(test(data_type) for test in (*text, pa.types.is_large_binary)) else str(data_type)


def types_differ_error(role: str, column_name: str, here: tuple[str, str], there: tuple[str, str]) -> InputError:
    """Return the error for a column whose type differs between two files.

    Args:
        role: role of the column.
        column_name: name of the column.
        here: address of the file that is refused, and the type there.
        there: address of an earlier file, and the type there.

    """
    problem = f"the {role} is of the type {here[1]} here and {there[1]} in {there[0]}"
    fix = f"write every {role} as one type in all files"
    return InputError(problem, kind="types-differ", source=here[0], column=column_name, fix=fix)


def require_same_types(summaries: Iterable[PartSummary]) -> Iterator[PartSummary]:
    """Yield the summaries; raise InputError if the type of ids differs from the parts before."""
    first: dict[str, tuple[str, pa.DataType]] = {}
    for summary in summaries:
        address = summary.origin.source.name
        for role, id_type in summary.id_types.items():
            first_address, first_type = first.setdefault(role, (address, id_type))
            if first_type != id_type:
                column = summary.origin.column_name(role)
                raise types_differ_error(
                    role, column, (address, type_category(id_type)), (first_address, type_category(first_type))
                )
        yield summary


# Parts.


def split_part(part: FilePart, plan: ShardPlan, folder: Path) -> PartSummary:
    """Encode the rows of a part and write them to a file in `folder`, in one Arrow batch per shard."""
    bad_rows, origin = BadRows(plan.options.on_bad_rows), Origin(PartSource(part), plan.columns, part.number)
    table = origin.source.read(list(dict.fromkeys(plan.columns.values())), bad_rows)
    cells = {role: table[name] for role, name in plan.columns.items()}
    rows, summary = encode_part(cells, origin, plan.options, bad_rows)
    key_ids, shard_number = rows.document if plan.by == "document" else rows.query, np.zeros(len(rows), np.uint16)
    if key_ids is not None and len(rows):
        # The sort of small integers takes linear time.
        shard_type = np.min_scalar_type(plan.n_shards)
        shard_number = (ids.hash_ids(key_ids[1]) % plan.n_shards).astype(shard_type)[key_ids[0]]
    order = np.argsort(shard_number, kind="stable").astype(np.int32)
    bounds = np.searchsorted(shard_number[order], np.arange(plan.n_shards + 1))
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
    columns |= {name: pa.array(rows.extras[name].values[order]) for name in share_columns(rows.extras)}
    _write_batches(pa.table(columns), bounds, _part_file(folder, part.number))
    return summary


def _write_batches(table: pa.Table, batch_bounds: Integers, path: Path) -> None:
    """Write an Arrow file with one batch for the rows between each two bounds."""
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for start, stop in pairwise(batch_bounds):
            writer.write_batch(batch.slice(start, stop - start))


def _part_file(folder: Path, part_number: int) -> Path:
    return numbered_path(folder, "part", part_number, ".arrow")


def delete_part_files(parts: Iterable[FilePart], folder: Path) -> None:
    """Delete the temporary files of the parts."""
    for part in parts:
        _part_file(folder, part.number).unlink()


# Shards.


@dataclass(frozen=True, eq=False)
class BuiltShard:
    """Result of building a shard."""

    shard: StoredShard | None  # None: no rows
    counts: Integers  # (n_assessors, 2) as in ShardedJudgments
    bad_rows: BadRows
    # (n_queries,) row number, among the rows of all files, of the first judgment of each query
    first_query_rows: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    largest_query: tuple[int, Any] = (0, None)  # number of judgments of the largest query, and its id
    repeats: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # as in MergedRows
    first_repeat: tuple[int, InputError] | None = None  # row number and error, if repeats are errors
    unusual_ids: Mapping[str, dict[str, str]] = field(default_factory=dict)  # by role: the usual form of each such id


def build_shard(
    shard_number: int, tables: SharedTables, plan: ShardPlan, parts: Sequence[FilePart], folder: Path
) -> BuiltShard:
    """Read the rows of one shard from the files of all parts, merge them and write the shard."""
    bad_rows = BadRows(plan.options.on_bad_rows)
    rows = [_read_rows(part, shard_number, tables, folder) for part in parts]
    merged = merge_rows(rows, tables, bad_rows, plan.options.repeats)
    n_assessors = tables.header.n_assessors
    if merged is None:
        return BuiltShard(None, np.zeros((n_assessors, 2), np.int64), bad_rows)
    global_rows = np.concatenate(
        [part.rows_before + one.all_source_rows() for one, part in zip(rows, parts, strict=True)]
    )
    judgments, (query_row, query_size) = merged.judgments, merged.query_rows()
    largest, repeat = int(query_size.argmax()), merged.repeat_error
    answers = (judgments.assessor, judgments.assessor[judgments.grade >= 0])
    return BuiltShard(
        shard=write_shard(folder, shard_number, judgments),
        counts=np.stack([np.bincount(assessor, minlength=n_assessors) for assessor in answers], axis=1),
        bad_rows=bad_rows,
        first_query_rows=global_rows[query_row],
        largest_query=(int(query_size[largest]), judgments.queries[largest].as_py()),
        repeats=merged.repeats,
        first_repeat=repeat and (int(global_rows[repeat[0]]), repeat[1]),
        unusual_ids={"query": ids.unusual_forms(judgments.queries), "document": ids.unusual_forms(judgments.documents)},
    )


def _read_rows(part: FilePart, shard_number: int, tables: SharedTables, folder: Path) -> PartRows:
    """Read the rows of a part that belong to a shard."""
    with pa.OSFile(str(_part_file(folder, part.number))) as file:
        batch = pa.ipc.open_file(file).get_batch(shard_number)
    column = {name: batch[name] for name in batch.schema.names}
    return PartRows(
        origin=tables.parts[part.number].origin,
        assessor=np.asarray(column["assessor"]),
        answer=np.asarray(column["answer"]),
        document=column["document"],
        query=column.get("query"),
        family=np.asarray(column["family"]) if "family" in column else None,
        source_rows=np.asarray(column["row"]),
        extras={name: ParsedColumn(np.asarray(column[name])) for name in share_columns(column)},
    )


def write_query_indexes(shards: Iterable[BuiltShard], folder: Path) -> None:
    """Write a file per shard with the index of each of its queries among the queries of all shards.

    Queries are indexed in order of first appearance in the files.
    """
    shards = [built for built in shards if built.shard is not None]
    first_rows = np.concatenate([built.first_query_rows for built in shards])
    query_index = np.empty(len(first_rows), np.int32)
    query_index[np.argsort(first_rows, kind="stable")] = np.arange(len(first_rows))
    for built, shard_query_index in zip(
        shards, np.split(query_index, np.cumsum([len(built.first_query_rows) for built in shards])), strict=False
    ):
        assert built.shard is not None
        with numbered_path(folder, "queries", built.shard.number, ".npy").open("wb") as stream:
            np.save(stream, shard_query_index)
