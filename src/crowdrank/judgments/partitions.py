"""Read partitioned Parquet files into shards on disk, in bounded memory.

    survey(file)                  -> columns and rows of a file, from its footer
    parts_of(files)               -> consecutive row groups, which `crowdrank.judgments.shuffle` distributes to shards

Rows are in the order of the files by name, so that the result is that of reading one file with all rows into memory.
The shards are cached in a folder and used again while the files and options are the same.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow.parquet as pq

from crowdrank._base import require_one_of
from crowdrank._disk import ScratchFolder
from crowdrank._files import recover
from crowdrank._folders import check_output_folder, write_folder
from crowdrank._progress import Report, reporting
from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import DataWarning, Fix, InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.addresses import (
    describe_other_files,
    file_version,
    is_within,
    open_address,
    split_parquet_files,
    to_address,
)
from crowdrank.judgments.columns import COLUMN_ALIASES, parse_column_map, resolve_columns
from crowdrank.judgments.encode import EncodeOptions
from crowdrank.judgments.limits import MAX_BYTES, parse_bytes
from crowdrank.judgments.merge import SharedTables, id_notes, unify_tables
from crowdrank.judgments.read import excluded_ids, family_regex, unjudgeable_answers
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.sharded import ABOUT_FILE, SHARDS, ShardedJudgments, load_sharded, sharded_judgments
from crowdrank.judgments.shuffle import (
    BuiltShard,
    FilePart,
    ShardPlan,
    build_shard,
    delete_part_files,
    number_queries,
    require_same_types,
    split_part,
    type_name,
    types_differ,
    write_part_tables,
)
from crowdrank.judgments.sources import no_rows, require_parquet_rows

T = TypeVar("T")
S = TypeVar("S")

JUDGMENTS_PER_STORED_SHARD = 1 << 21
"""Default number of judgments of a shard: many beside 100,000 assessors, and several shards fit into memory."""
ROWS_PER_PART = 1 << 21
"""Maximum number of rows of a part, unless a row group has more."""
REQUIRED, OPTIONAL = ("document", "assessor", "grade"), ("query", "family")
"""Roles of the columns that are read; a consensus does not use others, such as time and cost."""


@dataclass(frozen=True)
class FileSummary:
    """Columns and rows of a Parquet file, from its footer."""

    address: str
    columns: Mapping[str, str]  # by role
    types: Mapping[str, str]  # by role: numbers, text, ...
    group_rows: tuple[int, ...]  # of each row group

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.group_rows)


def read_partitions(
    address: str | Path,
    *,
    work: str | Path | None = None,
    columns: str | Mapping[str, str] | None = None,
    grades: str | Sequence[object] | None = None,
    scales: str | Path | None = None,
    unjudgeable: str | int | Sequence[object] | None = None,
    repeats: str = "last",
    exclude: str | Path | Collection[object] | None = None,
    family_pattern: str | None = None,
    on_bad_rows: str = "error",
    max_bytes: int | str | None = None,
    by: str | None = None,
    shard_size: int = JUDGMENTS_PER_STORED_SHARD,
    n_jobs: int = 1,
    engine: Workers | None = None,
    progress: bool | Report = False,
) -> ShardedJudgments:
    """Read a folder of Parquet files into shards on disk; memory holds a few shards at a time.

    Every model accepts the result in place of judgments in memory, and writes its consensus as one Parquet file per
    shard.

    Args:
        address: a folder of .parquet files and subfolders, or an address for fsspec such as `s3://bucket/judgments`.
        work: a new folder for the shards, about 20 bytes per judgment. Shards of the same files and options are used
            again. By default a temporary folder, which is deleted when Python ends.
        columns, grades, scales, unjudgeable, repeats, exclude, family_pattern, on_bad_rows: as in `read_judgments`;
            rows are in the order of the files by name.
        max_bytes: as in `read_judgments`, for each file.
        by: what is kept together in a shard: `query` (all judgments of a query) or `document`, for very large queries;
            models that compare documents of a query need `query`. By default `query`, or `document` if there is no
            column of queries.
        shard_size: approximate number of judgments of a shard.
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
    limit, address = parse_bytes(max_bytes), to_address(address)
    if work is not None and is_within(work, address):
        raise UsageError(f"must not be in the folder that is read, as {work} is", parameter="work")
    options = EncodeOptions(
        scale=Scale.parse(grades) if grades is not None else None,
        scale_rules=ScaleRules.read(scales) if scales is not None else None,
        unjudgeable=unjudgeable_answers(unjudgeable),
        repeats=repeats,
        exclude=tuple(excluded_ids(exclude)),
        family_pattern=family_regex(family_pattern),
        on_bad_rows=on_bad_rows,
    )
    run = partial(_run, _thread_map(n_jobs) if engine is None else engine.each, progress)
    files, others = split_parquet_files(address)
    if others:
        problem = f"{address}: {describe_other_files(others)} passed over; of a folder only Parquet files are read"
        warnings.warn(DataWarning(problem, kind="files-ignored"), stacklevel=2)
    read = (columns, grades, options.scale_rules, unjudgeable, repeats, options.exclude, family_pattern, on_bad_rows)
    key = _cache_key(files, (*read, by, shard_size))
    if work is not None:
        recover(work)
        if _is_cached(Path(work), key):
            return load_sharded(work)
        check_output_folder(work, SHARDS)
    surveyed = list(run(partial(survey, columns=parse_column_map(columns), max_bytes=limit), files, "looking at files"))
    first, parts = require_same_columns(surveyed), parts_of(surveyed)
    if not parts:
        raise no_rows(str(address))
    plan = ShardPlan(
        columns=first.columns,
        n_shards=-(-sum(part.rows for part in parts) // shard_size),
        shard_size=shard_size,
        by=by or ("query" if "query" in first.columns else "document"),
        options=options,
    )
    final = Path(work).absolute() if work is not None else _scratch_folder()
    with write_folder(final, SHARDS) as draft:
        judgments, largest_query = _build(parts, plan, draft, run, str(address))
        judgments.save()
        (draft / "key.txt").write_text(key)
    _warn_if_large(*largest_query, plan)
    return replace(judgments, folder=str(final)).without_unused_assessors()


def _build(
    parts: Sequence[FilePart], plan: ShardPlan, draft: Path, run: Callable[..., Any], address: str
) -> tuple[ShardedJudgments, tuple[int, Any]]:
    """Distribute the rows of all parts to shards in a folder; return the judgments and the largest query."""
    with closing(run(partial(split_part, plan=plan, folder=draft), parts, "reading")) as summaries:
        tables = write_part_tables(unify_tables(require_same_types(summaries), plan.options, address), draft)
    work = partial(build_shard, tables=tables, plan=plan, parts=parts, folder=draft)
    shards: list[BuiltShard] = []
    counts = np.zeros((tables.header.n_assessors, 2), np.int64)
    for shard in run(work, range(plan.n_shards), "shuffling"):
        counts += shard.counts
        shards.append(replace(shard, counts=counts[:0]))  # the counts of very many shards would fill the memory
    bad_rows = tables.bad_rows
    bad_rows.merge(shard.bad_rows for shard in shards)
    bad_rows.raise_first_error()
    repeats = [shard.repeat for shard in shards if shard.repeat is not None]
    if repeats:
        raise min(repeats, key=lambda repeat: repeat[0])[1]
    if not counts.any():
        raise bad_rows.no_rows_left_error(address, assessors_excluded=bool(plan.options.exclude))
    number_queries(shards, draft)
    delete_part_files(parts, draft)
    largest_query = max((shard.largest_query for shard in shards), key=lambda largest: largest[0])
    return _with_report(tables, shards, counts, plan, draft, address), largest_query


def _with_report(
    tables: SharedTables, shards: Sequence[BuiltShard], counts: Integers, plan: ShardPlan, draft: Path, address: str
) -> ShardedJudgments:
    """Return the judgments of the shards with the read report of all."""
    stored = tuple(one.shard for one in shards if one.shard is not None)
    report = replace(
        tables.header.report,
        skipped=dict(tables.bad_rows.skipped),
        examples=tables.bad_rows.examples,
        repeats=sum(one.n_repeats for one in shards),
    )
    header, whole_queries = replace(tables.header, report=report), plan.by == "query" or len(stored) == 1
    judgments = sharded_judgments(draft, stored, header, counts, whole_queries=whole_queries)
    forms: dict[str, Any] = {}
    for role in ("query", "document"):
        unusual = ((name, form) for one in shards for name, form in one.unusual_ids.get(role, {}).items())
        forms[role] = dict(islice(unusual, ids.MAX_UNUSUAL_IDS)), judgments.iterate_ids(role)
    assessors = judgments.without_unused_assessors().assessors
    forms["assessor"] = ids.unusual_forms(assessors), [assessors]
    report = replace(report, notes=id_notes(forms, tables.parts[0].origin, address))
    return replace(judgments, report=report, stored=replace(header, report=report))


# Files.


def survey(address: str, columns: Mapping[str, str], max_bytes: int = MAX_BYTES) -> FileSummary:
    """Return the columns and rows of a Parquet file, from its footer."""
    with open_address(address) as stream:
        file = pq.ParquetFile(stream)
        about, schema = file.metadata, file.schema_arrow
        require_parquet_rows(about, REQUIRED, max_bytes, address)
        rows = tuple(about.row_group(group).num_rows for group in range(about.num_row_groups))
    if not sum(rows):
        return FileSummary(address, {}, {}, ())
    known = {role: name for role, name in columns.items() if role in (*REQUIRED, *OPTIONAL)}
    by_role = resolve_columns(
        schema.names,
        source=address,
        required_roles=REQUIRED,
        optional_roles=OPTIONAL,
        column_map=known,
        aliases=COLUMN_ALIASES,
    )
    types = {role: type_name(schema.field(name).type) for role, name in by_role.items()}
    return FileSummary(address, by_role, types, rows)


def require_same_columns(files: Iterable[FileSummary]) -> FileSummary:
    """Return the first file with rows; raise InputError if another one has other columns."""
    filled = [file for file in files if file.rows]
    if not filled:
        return FileSummary("", {}, {}, ())
    first = filled[0]
    for file in filled[1:]:
        for role in (*REQUIRED, *OPTIONAL):
            here, there = (_column_text(one.columns.get(role)) for one in (file, first))
            if here != there:
                raise InputError(
                    f"the {role} is {here} here and {there} in {first.address}",
                    kind="columns-differ",
                    source=file.address,
                    fix="give all files the same columns",
                )
        for role, kind in file.types.items():
            # A column of nulls has no type of its own.
            if kind != first.types[role] and "null" not in (kind, first.types[role]):
                other = first.address, first.types[role]
                raise types_differ(role, file.columns[role], (file.address, kind), other)
    return first


def _column_text(column: str | None) -> str:
    return "in no column" if column is None else f"the column '{column}'"


def parts_of(files: Iterable[FileSummary], most: int = ROWS_PER_PART) -> list[FilePart]:
    """Return the files as parts of at most `most` rows, or of one row group."""
    parts: list[FilePart] = []
    before = 0
    for file in files:
        starts, group = [0, *accumulate(file.group_rows)], 0
        while group < len(file.group_rows):
            end = group + 1
            while end < len(file.group_rows) and starts[end + 1] - starts[group] <= most:
                end += 1
            rows = starts[end] - starts[group]
            if rows:
                parts.append(FilePart(len(parts), file.address, (group, end), starts[group], rows, before))
            before, group = before + rows, end
    return parts


def _warn_if_large(size: int, query: object, plan: ShardPlan) -> None:
    if plan.by == "query" and size > plan.shard_size:
        shard, judgments = f"a shard of {plan.shard_size:,}", counted(size, "judgment")
        problem = f"The query {shown(query)} has {judgments}, more than {shard} should have; it takes more memory"
        fix = Fix("if no model compares documents of a query, use {}", "by", "document")
        warnings.warn(DataWarning(problem, kind="large-query", fix=fix), stacklevel=3)


# Cache and workers.


def _cache_key(files: Sequence[str], options: tuple[Any, ...]) -> str:
    """Return a cache key for the files and read options."""
    return hashlib.blake2b(repr(([(name, file_version(name)) for name in files], options)).encode()).hexdigest()


def _is_cached(work: Path, key: str) -> bool:
    known = work / "key.txt"
    return (work / ABOUT_FILE).exists() and known.exists() and known.read_text() == key


_scratch: list[ScratchFolder] = []
"""Temporary folders of shards; they are deleted when Python ends."""


def _scratch_folder() -> Path:
    _scratch.append(ScratchFolder())
    return _scratch[-1].path / "shards"


class Workers(Protocol):
    """An engine that calls a function for many things."""

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """Yield the results in order, as soon as each is ready."""


def _run(
    each: Callable[..., Iterator[T]],
    progress: bool | Report,
    work: Callable[[S], T],
    things: Sequence[S],
    title: str,
) -> Iterator[T]:
    """Yield the results of `work` on many things, and report the progress."""
    with reporting(progress, title) as report:
        for done, result in enumerate(each(work, things), start=1):
            report(done, len(things), float("nan"))
            yield result


def _thread_map(n_jobs: int) -> Callable[[Callable[[S], T], Sequence[S]], Iterator[T]]:
    """Return a function that maps in threads."""

    def each(work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None
        try:
            yield from map(work, things) if pool is None else pool.map(work, things)
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    return each
