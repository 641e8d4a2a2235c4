"""Judgments from partitioned Parquet to shards on disk, in bounded memory.

    survey(file)                  -> its columns and rows, from its footer
    parts_of(files)               -> stretches of row groups, to be dealt out (`crowdrank.judgments.shuffle`)

Rows keep the order of the files by name, so that what an in-memory reader makes of one file with all rows is made here
too. What was made is kept in a folder and found again while the files are the same.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._disk import ScratchFolder
from crowdrank._files import recover
from crowdrank._folders import check_output_folder, write_folder
from crowdrank._progress import Report, reporting
from crowdrank._text import counted
from crowdrank.errors import DataWarning, InputError, UsageError, shown
from crowdrank.judgments.addresses import address_of, is_within, listed, opened_at, partition_files, version_of
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ALIASES, parse_map, resolve
from crowdrank.judgments.limits import MAX_BYTES, parse_bytes
from crowdrank.judgments.read import excluded_ids, family_regex, unjudgeable_answers
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.sharded import (
    ABOUT_FILE,
    SHARDS,
    ShardedJudgments,
    load_sharded,
    shard_path,
)
from crowdrank.judgments.shuffle import (
    Gathered,
    Part,
    Rules,
    Scales,
    agree,
    deal,
    gather,
    kind_of,
    number_queries,
    of_two_types,
)
from crowdrank.judgments.sources import no_rows, require_parquet_rows
from crowdrank.judgments.table import Judgments, ReadReport

T = TypeVar("T")
S = TypeVar("S")

JUDGMENTS_PER_STORED_SHARD = 1 << 21
"""Enough that the sums over 100,000 assessors are little beside the pass, small enough that a few fit into memory."""
ROWS_PER_PART = 1 << 21
"""Row groups are dealt out together up to so many rows."""
NEEDED, ALLOWED = ("document", "assessor", "grade"), ("query", "family")
"""The columns that are read; what else judgments may come with (time, cost, ...) a consensus has no use for."""


@dataclass(frozen=True)
class FileAbout:
    """What the footer of a Parquet file tells."""

    address: str
    columns: Mapping[str, str]  # by role
    kinds: Mapping[str, str]  # by role: numbers, text, ...
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
    """Judgments from a folder of Parquet files, however many, as shards on disk: memory holds one at a time.

    Every model takes them in the place of judgments in memory, and writes its consensus as one Parquet file a shard.

    Args:
        address: a folder of .parquet files (and of folders of them), or what fsspec reaches: `s3://bucket/judgments`.
        work: a new folder for the shards, about 20 bytes a judgment. Read again with the same files and options, what
            is there is used. By default a temporary one that goes when Python ends.
        columns, grades, scales, unjudgeable, repeats, exclude, family_pattern, on_bad_rows: as in `read_judgments`;
            the order of rows is that of the files by name.
        max_bytes: as in `read_judgments`, for each file.
        by: what a shard keeps together: `query` (all judgments of a query), or `document`, for queries too large for
            that; models that compare the documents of a query need the former. By default `query`, or `document` where
            there is no column for queries.
        shard_size: about how many judgments a shard has.
        n_jobs: how many parts are read, and shards made, at a time.
        engine: an engine whose workers read the files and make the shards instead; `work` is then a folder that all of
            them see.
        progress: show bars when it takes long, or call a function with (done, of how many, NaN).

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
    require_one_of("repeats", repeats, ("last", "first", "error", "keep"))
    require_one_of("by", by or "query", ("query", "document"))
    if shard_size < 1 or n_jobs < 1:
        raise UsageError(f"shard_size and threads are numbers from 1 up, not {shard_size} and {n_jobs}.")
    limit, address = parse_bytes(max_bytes), address_of(address)
    if work is not None and is_within(work, address):
        raise UsageError(f"The shards go to {work}, which is in the folder that is read; choose another place.")
    _each = partial(_each_of, _workers(n_jobs) if engine is None else engine.each)
    files, others = partition_files(address)
    if others:
        warnings.warn(
            f"{address}: {listed(others)} passed over; of a folder only Parquet files are read.",
            DataWarning,
            stacklevel=2,
        )
    excluded = tuple(excluded_ids(exclude))
    scale_rules = ScaleRules.read(scales) if scales is not None else None
    read = (columns, grades, scale_rules, unjudgeable, repeats, excluded, family_pattern, on_bad_rows, by, shard_size)
    key = _key(files, read)
    if work is not None:
        recover(work)
        if _made_before(Path(work), key):
            return load_sharded(work)
        check_output_folder(work, SHARDS)
    mapped = parse_map(columns)
    with reporting(progress, "looking at files") as report:
        surveyed = list(_each(partial(survey, columns=mapped, max_bytes=limit), files, report))
    about, parts = agree_on_columns(surveyed), parts_of(surveyed)
    if not parts:
        raise no_rows(str(address))
    kept_together = by or ("query" if "query" in about.columns else "document")
    n_shards = -(-sum(part.rows for part in parts) // shard_size)
    rules = Rules(
        columns=about.columns,
        n_shards=n_shards,
        by=kept_together,
        repeats=repeats,
        unjudgeable=unjudgeable_answers(unjudgeable),
        exclude=excluded,
        on_bad_rows=on_bad_rows,
    )
    BadRows(on_bad_rows)  # refuses another word before any work
    makers = Scales(
        Scale.parse(grades) if grades is not None else None,
        scale_rules,
        family_regex(family_pattern),
    )
    final = Path(work).absolute() if work is not None else _temporary()
    with write_folder(final, SHARDS) as draft:
        with reporting(progress, "reading") as report:
            dealt = agree(_each(partial(deal, rules=rules, folder=draft), parts, report), rules, makers, draft)
        agreed, spent = dealt[0], replace(dealt[1], columns=about.columns)
        with reporting(progress, "shuffling") as report:
            numbers = list(range(n_shards))
            gathered, counts = [], np.zeros((agreed.stored.n_assessors, 2), np.int64)
            for one in _each(partial(gather, agreed=agreed, rules=rules, folder=draft), numbers, report):
                counts += one.counts
                gathered.append(replace(one, counts=counts[:0]))  # of very many shards they would fill the memory
        number_queries(gathered, draft)
        for part in parts:
            for kind, suffix in (("part", ".arrow"), ("coding", ".npy")):
                shard_path(draft, kind, part.number, suffix).unlink()
        made = _made(draft, final, agreed.stored, gathered, counts, spent, kept_together)
        made.save()
        (draft / "key.txt").write_text(key)
    _say_large(gathered, shard_size, kept_together)
    return replace(made, folder=str(final)).heard()


# Files.


def survey(address: str, columns: Mapping[str, str], max_bytes: int = MAX_BYTES) -> FileAbout:
    """Return the columns and rows of a Parquet file, from its footer."""
    with opened_at(address) as stream:
        file = pq.ParquetFile(stream)
        about, schema = file.metadata, file.schema_arrow
        require_parquet_rows(about, NEEDED, max_bytes, address)
        rows = tuple(about.row_group(group).num_rows for group in range(about.num_row_groups))
    if not sum(rows):
        return FileAbout(address, {}, {}, ())
    found = resolve(
        schema.names, source=address, required=NEEDED, optional=ALLOWED, mapped=_asked(columns), aliases=ALIASES
    )
    return FileAbout(address, found, {role: kind_of(schema.field(name).type) for role, name in found.items()}, rows)


def _asked(columns: Mapping[str, str]) -> dict[str, str]:
    return {role: name for role, name in columns.items() if role in (*NEEDED, *ALLOWED)}


def agree_on_columns(files: Iterable[FileAbout]) -> FileAbout:
    """What the first file with rows has, where all others have it too; else which two differ."""
    there = [file for file in files if file.rows]
    if not there:
        return FileAbout("", {}, {}, ())
    first = there[0]
    for file in there[1:]:
        for role in (*NEEDED, *ALLOWED):
            here, before = file.columns.get(role), first.columns.get(role)
            if here != before:
                raise InputError(
                    f"the {role} is {_named(here)} here and {_named(before)} in {first.address}",
                    source=file.address,
                    fix="give all files the same columns",
                )
        for role, kind in file.kinds.items():
            # A column with nothing but blanks has no type of its own.
            if kind != first.kinds[role] and "null" not in (kind, first.kinds[role]):
                raise of_two_types(role, file.columns[role], file.address, kind, first.address, first.kinds[role])
    return first


def _named(column: str | None) -> str:
    return "in no column" if column is None else f"the column '{column}'"


def parts_of(files: Iterable[FileAbout], most: int = ROWS_PER_PART) -> list[Part]:
    """The files as parts of at most `most` rows, or of one row group."""
    parts: list[Part] = []
    before = 0
    for file in files:
        starts, group = [0, *accumulate(file.group_rows)], 0
        while group < len(file.group_rows):
            end = group + 1
            while end < len(file.group_rows) and starts[end + 1] - starts[group] <= most:
                end += 1
            rows = starts[end] - starts[group]
            if rows:
                parts.append(Part(len(parts), file.address, (group, end), starts[group], rows, before))
            before, group = before + rows, end
    return parts


# Shards.


def _made(
    draft: Path,
    final: Path,
    stored: Judgments,
    gathered: Sequence[Gathered],
    counts: NDArray[np.int64],
    spent: ReadReport,
    by: str,
) -> ShardedJudgments:
    shards = tuple(one.shard for one in gathered if one.shard is not None)
    skipped, examples = Counter(spent.skipped), dict(spent.examples)
    for one in gathered:
        skipped.update(one.skipped)
        examples |= {reason: told for reason, told in one.examples.items() if reason not in examples}
    if not shards:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in skipped.items())
        raise InputError("no row can be used", fix=f"every row was left out ({reasons})")
    repeats = sum(one.repeats for one in gathered)
    report = replace(spent, skipped=dict(skipped), examples=examples, repeats=repeats)
    stored = replace(stored, report=report)
    whole = by == "query" or len(shards) == 1
    return ShardedJudgments(str(draft), shards, stored, stored, counts, whole_queries=whole)


def _say_large(gathered: Sequence[Gathered], shard_size: int, by: str) -> None:
    size, query = max((one.largest for one in gathered), key=lambda largest: largest[0])
    if by == "query" and size > shard_size:
        warnings.warn(
            f"The query {shown(query)} has {counted(size, 'judgment')}, more than a shard of {shard_size:,} is meant "
            f"to hold: its shard takes that much more memory; where no model compares documents of a query, "
            f"by='document' spreads it.",
            DataWarning,
            stacklevel=3,
        )


# Where and how.


def _key(files: Sequence[str], options: tuple[Any, ...]) -> str:
    """Return a cache key for the files and read options."""
    return hashlib.blake2b(repr(([(name, version_of(name)) for name in files], options)).encode()).hexdigest()


def _made_before(work: Path, key: str) -> bool:
    known = work / "key.txt"
    return (work / ABOUT_FILE).exists() and known.exists() and known.read_text() == key


_scratch: list[ScratchFolder] = []
"""Folders of shards that nobody named; they exist until Python ends."""


def _temporary() -> Path:
    _scratch.append(ScratchFolder())
    return _scratch[-1].path / "shards"


class Workers(Protocol):
    """Whoever does the same work on many things, here or elsewhere: an engine."""

    def each(self, work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        """Results in order, as soon as each is there."""


def _each_of(
    each: Callable[[Callable[[S], T], Sequence[S]], Iterator[T]],
    work: Callable[[S], T],
    things: Sequence[S],
    report: Report,
) -> Iterator[T]:
    """`work` on every thing, progress told."""
    for done, result in enumerate(each(work, things), start=1):
        report(done, len(things), float("nan"))
        yield result


def _workers(n_jobs: int) -> Callable[[Callable[[S], T], Sequence[S]], Iterator[T]]:
    """Threads here."""

    def each(work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None
        try:
            yield from map(work, things) if pool is None else pool.map(work, things)
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    return each
