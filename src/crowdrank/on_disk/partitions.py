"""Read partitioned Parquet files into shards on disk, in bounded memory.

    summarize_file(address)         -> columns, rows and scale of a file
    split_into_parts(files)         -> consecutive row groups of the files
    split_part(part, ...)           -> writes the part's rows sorted by shard; returns its summary
    merge_summaries(summaries)      -> assessors, families and scales of all parts (`readers/merge.py`)
    build_shard(shard_number, ...)  -> merges the shard's rows of all parts and writes them

Rows are in the order of the files by name, so that the result is that of reading one file with all rows into memory.
The shards are cached in a folder and used again while the files and options are the same.

`split_part` and `build_shard` take arguments that can be pickled, handle one part or shard, and return little: they
run in threads or on other machines.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank._disk import ScratchFolder
from crowdrank._estimator import require_one_of
from crowdrank._files import recover
from crowdrank._folders import check_output_folder, write_folder
from crowdrank._numba import map_in_order
from crowdrank._progress import Report, reporting
from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import DataWarning, Fix, InputError, UsageError, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.columns import SCALE_COLUMN, Roles, find_probability_columns, parse_column_map
from crowdrank.judgments.scale import Scale
from crowdrank.on_disk.sharded import (
    SHARDS_FOLDER,
    ShardedJudgments,
    StoredShard,
    load_sharded,
    numbered_path,
    sharded_judgments,
    write_shard,
)
from crowdrank.readers.cells import ParsedColumn
from crowdrank.readers.encode import PartRows, PartSummary, encode_part
from crowdrank.readers.files import (
    MAX_BYTES,
    describe_unread_files,
    file_version,
    is_within,
    open_address,
    parse_bytes,
    split_parquet_files,
    to_address,
)
from crowdrank.readers.merge import SharedTables, complete_report, merge_rows, merge_summaries
from crowdrank.readers.parquet import damaged_rows_error, require_parquet_rows
from crowdrank.readers.read_options import EncodeOptions, compile_family_pattern, excluded_ids, parse_unjudgeable
from crowdrank.readers.scale_rules import ScaleRules
from crowdrank.readers.sources import BadRows, Origin, Source, no_rows_error

T = TypeVar("T")
S = TypeVar("S")

JUDGMENTS_PER_STORED_SHARD = 1 << 21
"""Default number of judgments per shard: more than 100,000 assessors, and few enough to hold several in memory."""
SHARDS_VERSION = 2
"""Number of the version of cached shards; those of other versions are built again. The second has soft labels."""
MAX_ROWS_PER_PART = 1 << 21
"""Maximum number of rows of a part (consecutive row groups of a file), unless a single row group has more."""
PARTITION_ROLES = Roles(("document", "assessor", "grade"), ("query", "family"))
"""Roles of the columns that must be and can be in each file.

The probabilities of grades (p0, p1, ...) are read, too; other columns, such as time and cost, are not.
"""


@dataclass(frozen=True)
class FileSummary:
    """Columns, rows and scale of a Parquet file, without reading its rows."""

    address: str
    column_by_role: Mapping[str, str]  # column names
    type_by_role: Mapping[str, str]  # type categories, as returned by `type_category`
    rows_per_group: tuple[int, ...]  # number of rows of each row group
    scale: Scale | None = None  # scale that the first cell of the column `scale` states

    @property
    def n_rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.rows_per_group)


def read_partitions(
    address: str | Path,
    *,
    work: str | Path | None = None,
    columns: str | Mapping[str, str] | None = None,
    grades: str | Scale | Sequence[object] | None = None,
    scales: str | Path | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    repeats: str = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    family_separator: str | None = None,
    on_bad_rows: str = "error",
    max_bytes: int | str | None = None,
    by: str | None = None,
    shard_size: int = JUDGMENTS_PER_STORED_SHARD,
    n_jobs: int = 1,
    engine: WorkerPool | None = None,
    progress: bool | Report = False,
) -> ShardedJudgments:
    """Read a folder of Parquet files into shards on disk; memory holds a few shards at a time.

    Every model accepts the result in place of judgments in memory, and writes its consensus as one Parquet file per
    shard.

    Args:
        address: a folder of .parquet files and subfolders, or an address for fsspec such as `s3://bucket/judgments`.
        work: a new folder for the shards, about 20 bytes per judgment, and 8 per column of probabilities (p0, p1, ...).
            Shards of the same files and options are used again. By default a temporary folder, which is deleted when
            Python ends.
        columns, grades, scales, unjudgeable, repeats, exclude, family_pattern, family_separator, on_bad_rows: as in
            `read_judgments`; rows are in the order of the files by name.
        max_bytes: as in `read_judgments`, for each file.
        by: put all judgments of a `query` or of a `document` into the same shard. Use `document` for very large
            queries; models that compare documents of a query need `query`. By default `query`, or `document` if there
            is no query column.
        shard_size: approximate number of judgments per shard.
        n_jobs: number of threads.
        engine: an engine whose workers read the files and build the shards; all of them must see the folder `work`.
        progress: whether to show progress bars, or a function that is called with (done, total, NaN).

    Returns:
        The judgments on disk.

    Raises:
        InputError: a file or row cannot be used.
        UsageError: a parameter has an invalid value.

    >>> import tempfile
    >>> import pandas as pd
    >>> from crowdrank import DawidSkene
    >>> folder = Path(tempfile.mkdtemp())
    >>> votes = pd.DataFrame({"query": "q", "document": ["a", "b"], "assessor": "ann", "grade": [1, 0]})
    >>> votes.to_parquet(folder / "1.parquet"), votes.assign(assessor="bob").to_parquet(folder / "2.parquet")
    (None, None)
    >>> read_partitions(folder)
    <ShardedJudgments: 4 judgments of 2 documents by 2 assessors in 1 shard, grades 0,1>
    """
    require_one_of("by", by or "query", ("query", "document"))
    for name, number in (("shard_size", shard_size), ("n_jobs", n_jobs)):
        if number < 1:
            raise UsageError(f"must be 1 or more, not {number}", parameter=name)
    file_max_bytes, address = parse_bytes(max_bytes), to_address(address)
    if work is not None and is_within(work, address):
        raise UsageError(f"must not be in the folder that is read, as {work} is", parameter="work")
    options = EncodeOptions(
        scale=None if grades is None else Scale.parse(grades),
        scale_rules=None if scales is None else ScaleRules.read(scales),
        unjudgeable=parse_unjudgeable(unjudgeable),
        repeats=repeats,
        checks_unjudgeable=isinstance(unjudgeable, str),
        exclude=excluded_ids(exclude),
        family_pattern=compile_family_pattern(family_pattern),
        family_separator=family_separator,
        on_bad_rows=on_bad_rows,
    )
    in_parallel = partial(map_in_order, n_jobs=n_jobs) if engine is None else engine.each
    run_tasks = partial(_map_with_progress, in_parallel, progress)
    files, others = split_parquet_files(address)
    if others:
        unread = describe_unread_files(others)
        problem = f"{address}: {unread} passed over; of a folder only Parquet files are read"
        warnings.warn(DataWarning(problem, kind="files-ignored"), stacklevel=2)
    cache_key = _cache_key(files, (SHARDS_VERSION, columns, options, family_pattern, by, shard_size))
    if work is not None:
        recover(work)
        cached = _load_cached(Path(work), cache_key)
        if cached is not None:
            return cached
        check_output_folder(work, SHARDS_FOLDER)
    summarize = partial(summarize_file, columns=parse_column_map(columns), max_bytes=file_max_bytes)
    summaries = list(run_tasks(summarize, files, "looking at files"))
    first, parts = require_same_columns(summaries), split_into_parts(summaries)
    if not parts:
        raise no_rows_error(str(address))
    if grades is None and scales is None:
        options = replace(options, scale=first.scale)
    plan = ShardPlan(
        columns=first.column_by_role,
        n_shards=-(-sum(part.n_rows for part in parts) // shard_size),
        shard_size=shard_size,
        by=by or ("query" if "query" in first.column_by_role else "document"),
        options=options,
    )
    target_folder = Path(work).absolute() if work is not None else _new_scratch_folder()
    with write_folder(target_folder, SHARDS_FOLDER) as draft_folder:
        judgments, largest_query = _build_shards(parts, plan, draft_folder, run_tasks, str(address))
        judgments.save()
        (draft_folder / "key.txt").write_text(cache_key)
    _warn_if_query_is_large(*largest_query, plan)
    return replace(judgments, folder=str(target_folder)).without_unused_assessors()


def _build_shards(
    parts: Sequence[FilePart],
    plan: ShardPlan,
    draft_folder: Path,
    run_tasks: Callable[..., Any],
    address: str,
) -> tuple[ShardedJudgments, tuple[int, Any]]:
    """Distribute the rows of all parts to shards in a folder.

    Returns:
        The judgments in shards; and of the largest query, the number of its judgments and its id.

    """
    with closing(run_tasks(partial(split_part, plan=plan, folder=draft_folder), parts, "reading")) as summaries:
        tables = merge_summaries(require_same_types(summaries), plan.options, address)
    build = partial(build_shard, tables=tables, plan=plan, parts=parts, folder=draft_folder)
    shards: list[BuiltShard] = []
    counts = np.zeros((tables.header.n_assessors, 2), np.int64)
    for shard in run_tasks(build, range(plan.n_shards), "shuffling"):
        counts += shard.counts
        shards.append(replace(shard, counts=counts[:0]))  # the counts of very many shards would fill the memory
    bad_rows = tables.bad_rows
    bad_rows.merge(shard.bad_rows for shard in shards)
    bad_rows.raise_first_error()
    repeats = [shard.first_repeat for shard in shards if shard.first_repeat is not None]
    if repeats:
        raise min(repeats, key=lambda repeat: repeat[0])[1]
    if not counts.any():
        raise bad_rows.no_rows_left_error(address, assessors_excluded=bool(plan.options.exclude))
    write_query_indexes(shards, draft_folder)
    delete_part_files(parts, draft_folder)
    largest_query = max((shard.largest_query for shard in shards), key=lambda largest: largest[0])
    return _assemble_judgments(tables, shards, counts, plan, draft_folder, address), largest_query


def _assemble_judgments(
    tables: SharedTables,
    shards: Sequence[BuiltShard],
    counts: Integers,
    plan: ShardPlan,
    draft_folder: Path,
    address: str,
) -> ShardedJudgments:
    """Return judgments that consist of the shards, with one read report for all of them."""
    stored = tuple(built.shard for built in shards if built.shard is not None)
    whole_queries = plan.by == "query" or len(stored) == 1
    layout: dict[str, Any] = {
        "whole_queries": whole_queries,
        "share_names": tuple(find_probability_columns(plan.columns)),
    }
    judgments = sharded_judgments(draft_folder, stored, tables.header, counts, **layout)
    unusual_forms: dict[str, Any] = {}
    for role in ("query", "document"):
        unusual = ((name, form) for built in shards for name, form in built.unusual_ids.get(role, {}).items())
        unusual_forms[role] = dict(islice(unusual, ids.MAX_UNUSUAL_IDS)), judgments.iterate_ids(role)
    assessors = judgments.without_unused_assessors().assessors
    unusual_forms["assessor"] = ids.unusual_forms(assessors), [assessors]
    report = complete_report(tables, (built.repeats for built in shards), unusual_forms, address)
    return replace(judgments, report=report, stored=replace(tables.header, report=report))


# Files.


def summarize_file(address: str, columns: Mapping[str, str], max_bytes: int = MAX_BYTES) -> FileSummary:
    """Summarize a Parquet file from its footer, and from the first cell of its column `scale`.

    Args:
        address: path or fsspec address of the file.
        columns: column name by role, from the user; other columns are found by their common names.
        max_bytes: maximum size of the file when it is read.

    """
    with open_address(address) as stream:
        file = pq.ParquetFile(stream)
        metadata, schema = file.metadata, file.schema_arrow
        require_parquet_rows(metadata, PARTITION_ROLES.required, max_bytes, address)
        rows_per_group = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        scale = None
        if SCALE_COLUMN in schema.names and sum(rows_per_group):
            cells = next(file.iter_batches(1, columns=[SCALE_COLUMN]))[SCALE_COLUMN]
            scale = Scale.from_cell(str(cells[0].as_py()))
    if not sum(rows_per_group):
        return FileSummary(address, {}, {}, ())
    column_map = {
        role: name for role, name in columns.items() if role in (*PARTITION_ROLES.required, *PARTITION_ROLES.optional)
    }
    by_role = PARTITION_ROLES.find_columns(schema.names, address, column_map)
    by_role |= {name: name for name in find_probability_columns(schema.names) if name not in by_role.values()}
    types = {role: type_category(schema.field(name).type) for role, name in by_role.items()}
    return FileSummary(address, by_role, types, rows_per_group, scale)


def require_same_columns(files: Iterable[FileSummary]) -> FileSummary:
    """Return the first file that has rows; raise InputError if the columns or types of another file differ from it."""
    non_empty = [file for file in files if file.n_rows]
    if not non_empty:
        return FileSummary("", {}, {}, ())
    first = non_empty[0]
    for file in non_empty[1:]:
        for role in dict.fromkeys((*first.column_by_role, *file.column_by_role)):
            here, there = (_describe_column(one.column_by_role.get(role)) for one in (file, first))
            if here != there:
                problem = f"the {role} is {here} here and {there} in {first.address}"
                fix = "give all files the same columns"
                raise InputError(problem, kind="columns-differ", source=file.address, fix=fix)
        for role, column_type in file.type_by_role.items():
            # A column of nulls has no type of its own.
            if column_type != first.type_by_role[role] and "null" not in (column_type, first.type_by_role[role]):
                other = first.address, first.type_by_role[role]
                raise types_differ_error(role, file.column_by_role[role], (file.address, column_type), other)
    return first


def _describe_column(column_name: str | None) -> str:
    return "in no column" if column_name is None else f"the column '{column_name}'"


def split_into_parts(files: Iterable[FileSummary], max_rows: int = MAX_ROWS_PER_PART) -> list[FilePart]:
    """Split the files into parts: consecutive row groups with at most `max_rows` rows, or one larger row group."""
    parts: list[FilePart] = []
    rows_before = 0
    for file in files:
        starts, group = [0, *accumulate(file.rows_per_group)], 0
        while group < len(file.rows_per_group):
            end = group + 1
            while end < len(file.rows_per_group) and starts[end + 1] - starts[group] <= max_rows:
                end += 1
            rows = starts[end] - starts[group]
            if rows:
                parts.append(FilePart(len(parts), file.address, (group, end), starts[group], rows, rows_before))
            rows_before, group = rows_before + rows, end
    return parts


def _warn_if_query_is_large(n_judgments: int, query_id: object, plan: ShardPlan) -> None:
    """Warn if the largest query has more judgments than a shard should have."""
    if plan.by == "query" and n_judgments > plan.shard_size:
        shard, judgments = f"a shard of {plan.shard_size:,}", counted(n_judgments, "judgment")
        problem = f"The query {shown(query_id)} has {judgments}, more than {shard} should have; it takes more memory"
        fix = Fix("if no model compares documents of a query, use {}", "by", "document")
        warnings.warn(DataWarning(problem, kind="large-query", fix=fix), stacklevel=3)


# Cache and workers.


def _cache_key(files: Sequence[str], options: tuple[Any, ...]) -> str:
    """Return a cache key for the files and read options."""
    versions = [(name, file_version(name)) for name in files]
    return hashlib.blake2b(repr((versions, options)).encode()).hexdigest()


def _load_cached(folder: Path, cache_key: str) -> ShardedJudgments | None:
    """Return the shards of a folder that were built with this cache key, or None; warn if a file was damaged."""
    key_file = folder / "key.txt"
    if not key_file.is_file() or key_file.read_bytes() != cache_key.encode():
        return None
    try:
        return load_sharded(folder)
    except InputError as damage:
        check_output_folder(folder, SHARDS_FOLDER)
        problem = f"{damage.problem}; the shards are built again from the files"
        warnings.warn(DataWarning(problem, kind="damaged-shards", source=str(folder)), stacklevel=3)
        return None


_scratch_folders: list[ScratchFolder] = []
"""Temporary folders of shards, which are deleted when Python ends."""


def _new_scratch_folder() -> Path:
    _scratch_folders.append(ScratchFolder())
    return _scratch_folders[-1].path / "shards"


class WorkerPool(Protocol):
    """Protocol of engines that call a function for many inputs in parallel."""

    def each(self, function: Callable[[S], T], inputs: Sequence[S]) -> Iterator[T]:
        """Yield the result of `function` for each input, in the order of the inputs, as soon as it is ready."""


def _map_with_progress(
    map_function: Callable[..., Iterator[T]],
    progress: bool | Report,
    function: Callable[[S], T],
    inputs: Sequence[S],
    title: str,
) -> Iterator[T]:
    """Yield the result of `function` for each input, and report the progress under a title."""
    with reporting(progress, title) as report:
        for done, result in enumerate(map_function(function, inputs), start=1):
            report(done, len(inputs), float("nan"))
            yield result


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

    def locate_row(self, row: int) -> str:
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


def types_differ_error(
    role: str, column_name: str, refused_file_and_type: tuple[str, str], earlier_file_and_type: tuple[str, str]
) -> InputError:
    """Return the error for a column whose type differs between two files.

    Args:
        role: role of the column.
        column_name: name of the column.
        refused_file_and_type: address of the file that is refused, and the type there.
        earlier_file_and_type: address of an earlier file, and the type there.

    """
    earlier_file, earlier_type = earlier_file_and_type
    problem = f"the {role} is of the type {refused_file_and_type[1]} here and {earlier_type} in {earlier_file}"
    fix = f"write every {role} as one type in all files"
    return InputError(problem, kind="types-differ", source=refused_file_and_type[0], column=column_name, fix=fix)


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
    columns |= {name: pa.array(rows.extras[name].values[order]) for name in find_probability_columns(rows.extras)}
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
        extras={name: ParsedColumn(np.asarray(column[name])) for name in find_probability_columns(column)},
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
