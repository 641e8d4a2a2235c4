"""Judgments from partitioned Parquet to shards on disk, in bounded memory: survey, deal, agree, gather.

    survey(file)                  -> its columns and rows, from its footer
    deal(part, ...)               -> the part's rows in a file by shard; its assessors and answers
    (the small results of all parts make the codes of assessors and the scales)
    gather(shard number, ...)     -> the shard's rows of all parts, coded, sorted by query and document, written

`survey`, `deal` and `gather` take picklable arguments, touch one file or shard, and return little: threads run them
here, tasks may run them elsewhere. Rows keep the order of the files by name, so that what an in-memory reader makes of
one file with all rows is made here too.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank.errors import DataWarning, InputError, UsageError, shown
from crowdrank.files import replacing
from crowdrank.judgments import frames, ids, kernels
from crowdrank.judgments.addresses import is_within, opened_at, partition_files, version_of
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ALIASES, parse_map, resolve
from crowdrank.judgments.encode import MISSING, OFF_SCALE, Encoder, distinct
from crowdrank.judgments.grades import Scale, one_of
from crowdrank.judgments.read import excluded_ids, family_regex, unjudgeable_answers
from crowdrank.judgments.scales import ScaleRules
from crowdrank.judgments.sharded import (
    ABOUT_FILE,
    ShardedJudgments,
    StoredShard,
    header,
    load_sharded,
    shard_path,
    write_shard,
)
from crowdrank.judgments.sources import Source, no_rows
from crowdrank.judgments.table import NO_QUERY, Judgments, ReadReport, counted
from crowdrank.progress import Report, reporting

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


@dataclass(frozen=True)
class Part:
    """A stretch of row groups of one file."""

    number: int
    address: str
    groups: tuple[int, int]  # the first, and the one after the last
    first_row: int  # in the file
    rows: int
    before: int  # rows of all parts before


@dataclass(frozen=True)
class Rules:
    """How rows are read, the same for all parts."""

    columns: Mapping[str, str]
    n_shards: int
    by: str  # query or document: what is kept together in a shard
    repeats: str = "last"
    unjudgeable: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    on_bad_rows: str = "error"

    def encoder(self, part: Part, bad_rows: BadRows) -> Encoder:
        """What codes and checks the rows of a part."""
        return Encoder(
            PartSource(part),
            bad_rows,
            unjudgeable=self.unjudgeable,
            repeats=self.repeats,
            exclude=self.exclude,
            column_of=lambda role: self.columns.get(role, role),
        )


@dataclass(frozen=True, eq=False)
class Dealt:
    """What was found in a part; small beside it."""

    part: Part
    kinds: Mapping[str, pa.DataType]  # of the ids by role
    assessors: pa.Array
    used: NDArray[np.int64]  # (n_assessors,) rows kept of each
    answers: list[Any]  # the distinct cells of the grade column
    first: NDArray[np.int64]  # (n_answers + 1,) the first row kept with each, or -1; the last is that of blanks
    families: pa.Array | None = None
    family_of: NDArray[np.int32] | None = None  # (n_assessors,)
    excluded: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Agreed:
    """What all parts together say: the codes of assessors, and where each answer of a part is on each scale."""

    parts: tuple[Part, ...]
    stored: Judgments  # assessors and scales
    answers: tuple[list[Any], ...]  # of each part
    codes: tuple[NDArray[np.int8], ...]  # of each part: (n_scales, n_answers + 1)


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was found in a shard; None where it is empty."""

    shard: StoredShard | None
    counts: NDArray[np.int64]  # (n_assessors, 2)
    first_rows: NDArray[np.int64]  # (n_queries,) where each query appears first among all rows
    largest: tuple[int, Any] = (0, None)  # the judgments of the query that has the most, and its id
    repeats: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


class PartSource(Source):
    """The rows of a part."""

    def __init__(self, part: Part) -> None:
        self.part, self.name, self.names = part, part.address, []

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named."""
        with opened_at(self.name) as stream:
            table = pq.ParquetFile(stream).read_row_groups(list(range(*self.part.groups)), list(names))
        return pa.table({name: frames.as_cells(table[name], self.name, name) for name in names})

    def place(self, row: int) -> str:
        """The row, counted from 1 in the file."""
        return f"row {self.part.first_row + row + 1}"


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
    by: str | None = None,
    shard_size: int = JUDGMENTS_PER_STORED_SHARD,
    threads: int = 1,
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
        by: what a shard keeps together: `query` (all judgments of a query), or `document`, for queries too large for
            that; models that compare the documents of a query need the former. By default `query`, or `document` where
            there is no column for queries.
        shard_size: about how many judgments a shard has.
        threads: how many parts are read, and shards made, at a time.
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
    one_of(("last", "first", "error", "keep"), repeats, "--repeats")
    one_of(("query", "document"), by or "query", "by")
    if shard_size < 1 or threads < 1:
        raise UsageError(f"shard_size and threads are numbers from 1 up, not {shard_size} and {threads}.")
    if work is not None and is_within(work, address):
        raise UsageError(f"The shards go to {work}, which is in the folder that is read; choose another place.")
    _each = partial(_each_of, _workers(threads) if engine is None else engine.each)
    files = partition_files(address)
    told = (columns, grades, scales, unjudgeable, repeats, exclude, family_pattern, on_bad_rows, by, shard_size)
    key = _key(files, told)
    if work is not None and _made_before(Path(work), key):
        return load_sharded(work)
    mapped = parse_map(columns)
    with reporting(progress, "looking at files") as report:
        surveyed = list(_each(partial(survey, columns=mapped), files, report))
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
        exclude=tuple(excluded_ids(exclude)),
        on_bad_rows=on_bad_rows,
    )
    BadRows(on_bad_rows)  # refuses another word before any work
    makers = _Scales(
        Scale.parse(grades) if grades is not None else None,
        ScaleRules.read(scales) if scales is not None else None,
        family_regex(family_pattern),
    )
    final = Path(work).absolute() if work is not None else _temporary()
    with replacing(final, marker=ABOUT_FILE) as draft:
        draft.mkdir()
        with reporting(progress, "reading") as report:
            dealt = agree(_each(partial(deal, rules=rules, folder=draft), parts, report), rules, makers, draft)
        agreed, spent = dealt
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


def survey(address: str, columns: Mapping[str, str]) -> FileAbout:
    """The columns and rows of a Parquet file, from its footer."""
    with opened_at(address) as stream:
        file = pq.ParquetFile(stream)
        about, schema = file.metadata, file.schema_arrow
        rows = tuple(about.row_group(group).num_rows for group in range(about.num_row_groups))
    if not sum(rows):
        return FileAbout(address, {}, {}, ())
    found = resolve(
        schema.names, source=address, required=NEEDED, optional=ALLOWED, mapped=_asked(columns), aliases=ALIASES
    )
    return FileAbout(address, found, {role: _kind(schema.field(name).type) for role, name in found.items()}, rows)


def _asked(columns: Mapping[str, str]) -> dict[str, str]:
    return {role: name for role, name in columns.items() if role in (*NEEDED, *ALLOWED)}


def _kind(kind: pa.DataType) -> str:
    """What a column holds, as far as files must agree on it."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return "text" if any(test(kind) for test in (*text, pa.types.is_large_binary)) else str(kind)


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
                    remedy="give all files the same columns",
                )
        for role, kind in file.kinds.items():
            # A column with nothing but blanks has no type of its own.
            if kind != first.kinds[role] and "null" not in (kind, first.kinds[role]):
                raise _of_two_types(role, file.columns[role], file.address, kind, first.address, first.kinds[role])
    return first


def _named(column: str | None) -> str:
    return "in no column" if column is None else f"the column '{column}'"


def _of_two_types(role: str, column: str, here: str, kind: str, there: str, other: str) -> InputError:
    return InputError(
        f"the {role} is of the type {kind} here and {other} in {there}",
        source=here,
        column=column,
        remedy=f"write every {role} as one type in all files",
    )


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


# Parts.


def deal(part: Part, rules: Rules, folder: Path) -> Dealt:
    """Write a part's rows into a file of the folder, a batch for each shard; what assessors and answers it has."""
    bad_rows = BadRows(rules.on_bad_rows)
    encoder = rules.encoder(part, bad_rows)
    table = encoder.source.read(list(rules.columns.values()), bad_rows)
    cells = {role: table[name] for role, name in rules.columns.items()}
    keep = np.ones(part.rows, dtype=bool)
    query = _looked_over(cells["query"], "query", encoder, keep) if "query" in cells else None
    document = _looked_over(cells["document"], "document", encoder, keep)
    assessor, assessors = encoder.coded_ids(cells["assessor"], "assessor", keep, part.rows)
    excluded = encoder.leave_out(assessor, assessors, keep)
    answer, answers = distinct(cells["grade"])
    kept_together = document if rules.by == "document" else query
    if kept_together is None:  # one query, and it is to be whole
        shard = np.zeros(part.rows, np.int32)
    else:
        shard = (ids.hashed(kept_together.fill_null(_blank(kept_together.type))) % rules.n_shards).astype(np.int32)
    order, bounds = kernels.deal_rows(shard, keep, rules.n_shards)
    columns = {
        "document": document.take(pa.array(order)),
        "assessor": pa.array(assessor[order]),
        "answer": pa.array(answer[order]),
        "row": pa.array(order),
    }
    if query is not None:
        columns["query"] = query.take(pa.array(order))
    families, family_of = None, None
    if "family" in cells:
        family, families = ids.encode(cells["family"])
        columns["family"] = pa.array(family[order])
        family_of = _first_told(family, assessor, len(assessors), keep)
    _write_piece(pa.table(columns), bounds, shard_path(folder, "part", part.number, ".arrow"))
    kept = np.flatnonzero(keep)
    first = np.full(len(answers) + 1, -1)
    first[answer[kept][::-1]] = kept[::-1]
    return Dealt(
        part=part,
        kinds={
            "document": document.type,
            "assessor": assessors.type,
            **({} if query is None else {"query": query.type}),
        },
        assessors=assessors,
        used=np.bincount(assessor[kept], minlength=len(assessors)),
        answers=answers,
        first=first,
        families=families,
        family_of=family_of,
        excluded=excluded,
        skipped=dict(bad_rows.skipped),
        examples=bad_rows.examples,
    )


def _looked_over(column: pa.ChunkedArray, role: str, encoder: Encoder, keep: NDArray[np.bool_]) -> pa.Array:
    """Ids as int64 or text; rows without one are bad. They are coded by shard later, not by part."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        array = ids.in_one_piece(ids.plain(column))
        array = array if pa.types.is_integer(array.type) else array.cast(pa.string())
        array.validate(full=True)
    except pa.ArrowInvalid as problem:
        name = encoder.column_of(role)
        raise InputError(
            "the text is not UTF-8", source=encoder.source.name, column=name, remedy="save it as UTF-8"
        ) from problem
    missing = np.zeros(len(array), dtype=bool)
    if array.null_count:
        missing |= np.asarray(array.is_null())
    if pa.types.is_string(array.type):
        suspects = kernels.maybe_blank(*ids.text_of(array)[:2])
        missing[suspects] |= ids.blank_positions(array.take(pa.array(suspects)))
    encoder.bad_rows.check(missing, keep, f"no {role}", lambda row: encoder.missing(row, role))
    return array


def _blank(kind: pa.DataType) -> Any:
    return 0 if pa.types.is_integer(kind) else ""


def _first_told(
    family: NDArray[np.int32], assessor: NDArray[np.int32], n_assessors: int, keep: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """The family of each assessor that the first row tells which tells any; -1 where none does."""
    of = np.full(n_assessors, -1, np.int32)
    told = np.flatnonzero((family >= 0) & keep)[::-1]
    of[assessor[told]] = family[told]
    return of


def _write_piece(table: pa.Table, bounds: NDArray[np.int64], path: Path) -> None:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for start, stop in pairwise(bounds):
            writer.write_batch(batch.slice(start, stop - start))


# All parts.


@dataclass(frozen=True)
class _Scales:
    """Where scales and families come from, besides the rows."""

    scale: Scale | None
    rules: ScaleRules | None
    family_pattern: re.Pattern[str] | None


def agree(dealt: Iterable[Dealt], rules: Rules, makers: _Scales, folder: Path) -> tuple[Agreed, ReadReport]:
    """The assessors of all parts, coded in order of first appearance, their families, and the scales."""
    roll, parts, seen = _Roll(), [], []
    skipped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    excluded, rows = 0, 0
    for one in dealt:
        onto, families_onto = roll.add(one, rules)
        with shard_path(folder, "coding", one.part.number, ".npy").open("wb") as stream:
            np.save(stream, onto)
            np.save(stream, families_onto)
        parts.append(one.part)
        seen.append((one.answers, one.first))
        skipped.update(one.skipped)
        examples |= {reason: told for reason, told in one.examples.items() if reason not in examples}
        excluded, rows = excluded + one.excluded, rows + one.part.rows
    if not roll.used.any():
        reasons = [f"{reason}: {count}" for reason, count in skipped.items()]
        reasons += ["assessors excluded"] if rules.exclude else []
        told = f"every row was left out ({', '.join(reasons)})"
        raise InputError("no row can be used", source=str(Path(parts[0].address).parent), remedy=told)
    families, family = roll.families, roll.family
    encoder = rules.encoder(parts[0], BadRows(rules.on_bad_rows))
    if families is None and makers.family_pattern is not None:
        families, family = replace(encoder, family_pattern=makers.family_pattern).families_by_name(roll.names)
    scale_of = np.zeros(len(roll.names), np.int8)
    maps: tuple[tuple[int, ...] | None, ...] = ()
    common: Scale | None = None
    if makers.rules is None:
        given = [answer for answers, first in seen for answer, row in zip(answers, first, strict=False) if row >= 0]
        scales: tuple[Scale, ...] = (makers.scale or encoder.spanning(a for a in given if not encoder.is_too_large(a)),)
    else:
        heard = np.flatnonzero(roll.used)  # whoever is left out needs no scale
        scales, maps, common, scale_of[heard] = makers.rules.assign(
            roll.names.take(pa.array(heard)), families, None if family is None else family[heard], makers.scale
        )
    codes = tuple(_coding(encoder, scales, answers) for answers, _ in seen)
    if len(scales) == 1 and rules.on_bad_rows == "error":
        for part, (answers, first), table in zip(parts, seen, codes, strict=True):
            _refuse_bad_answers(part, rules, answers, first, table, scales[0], inferred=makers.scale is None)
    stored = header(
        roll.names,
        scales,
        scale_of,
        scale_maps=maps,
        common_scale=common,
        families=families,
        assessor_family=family,
        unjudgeable=tuple(sorted(rules.unjudgeable)),
    )
    report = ReadReport(rows=rows, skipped=dict(skipped), examples=examples, excluded=excluded)
    return Agreed(tuple(parts), stored, tuple(answers for answers, _ in seen), codes), report


def _coding(encoder: Encoder, scales: tuple[Scale, ...], answers: list[Any]) -> NDArray[np.int8]:
    """The code of each answer on each scale: (n_scales, n_answers + 1), the last being that of blanks."""
    table = np.full((len(scales), len(answers) + 1), MISSING, np.int8)
    for row, scale in enumerate(scales):
        table[row, :-1] = [encoder.code(scale, answer) for answer in answers]
    return table


def _refuse_bad_answers(
    part: Part,
    rules: Rules,
    answers: list[Any],
    first: NDArray[np.int64],
    codes: NDArray[np.int8],
    scale: Scale,
    inferred: bool,
) -> None:
    """Refuse the first answer that is none; looked for before the work of shuffling."""
    bad = np.flatnonzero((first >= 0) & np.isin(codes[0], (MISSING, OFF_SCALE)))
    if not len(bad):
        return
    which = bad[np.argmin(first[bad])]
    encoder = rules.encoder(part, BadRows())
    raise _bad_answer(encoder, int(first[which]), [*answers, None][which], codes[0, which], scale, inferred)


def _bad_answer(encoder: Encoder, row: int, answer: Any, code: int, scale: Scale, inferred: bool) -> InputError:
    if code == MISSING:
        return encoder.missing(row, "grade")
    if inferred and encoder.is_too_large(answer):
        return encoder.too_large(row, answer)
    return encoder.off_scale(row, "grade", answer, scale)


class _Roll:
    """The assessors of the parts so far."""

    def __init__(self) -> None:
        self.names = pa.array([], pa.string())
        self.used = np.zeros(0, np.int64)
        self.families: pa.Array | None = None
        self.family: NDArray[np.int32] | None = None
        self.kinds: dict[str, tuple[pa.DataType, str]] = {}

    def add(self, one: Dealt, rules: Rules) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The codes here of a part's assessors and families."""
        self._check_types(one, rules)
        self.names, onto = _added(self.names, one.assessors)
        used = np.zeros(len(self.names), np.int64)
        used[: len(self.used)] = self.used
        used[onto] += one.used
        self.used = used
        families_onto = np.empty(0, np.int32)
        if one.families is not None and one.family_of is not None:
            known = pa.array([], one.families.type) if self.families is None else self.families
            self.families, families_onto = _added(known, one.families)
        if self.families is not None:
            family = np.full(len(self.names), -1, np.int32)
            family[: 0 if self.family is None else len(self.family)] = [] if self.family is None else self.family
            if one.family_of is not None:
                told = np.append(families_onto, -1)[one.family_of]
                family[onto] = np.where(family[onto] < 0, told, family[onto])
            self.family = family
        return onto, families_onto

    def _check_types(self, one: Dealt, rules: Rules) -> None:
        for role, kind in one.kinds.items():
            before, where = self.kinds.setdefault(role, (kind, one.part.address))
            if before != kind:
                column, here = rules.columns.get(role, role), one.part.address
                raise _of_two_types(role, column, here, _kind(kind), where, _kind(before))


def _added(known: pa.Array, more: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    """The ids of both, the known ones first, and the codes of the others among them."""
    if not len(known):
        return more, np.arange(len(more), dtype=np.int32)
    codes, names = ids.encode(pa.chunked_array([known.cast(more.type), more]))
    return names, codes[len(known) :]


# Shards.


def gather(number: int, agreed: Agreed, rules: Rules, folder: Path) -> Gathered:
    """Make the shard of a number from all parts, and write it."""
    bad_rows = BadRows(rules.on_bad_rows)
    pieces = [_piece(part, number, agreed, rules, folder, bad_rows) for part in agreed.parts]
    n_assessors = agreed.stored.n_assessors
    columns = {name: pa.chunked_array([piece[name] for piece in pieces]) for name in ("query", "document")}
    assessor, grade, row = (np.concatenate([piece[name] for piece in pieces]) for name in ("assessor", "grade", "row"))
    if not len(row):
        nothing = np.zeros((n_assessors, 2), np.int64)
        return Gathered(None, nothing, np.empty(0, np.int64), skipped=bad_rows.skipped, examples=bad_rows.examples)
    del pieces
    query, queries = ids.encode(columns.pop("query"))
    document, documents = ids.encode(columns.pop("document"))
    everything = np.arange(len(row), dtype=np.int32)
    order, offsets = kernels.group_rows(query, document, everything, len(queries), len(documents))
    again = kernels.repeated(offsets, order, assessor, n_assessors, rules.repeats != "first")
    repeats = int(again.sum())
    if repeats and rules.repeats == "error":
        raise _judged_twice(order, offsets, assessor, again, row, agreed.parts)
    if repeats and rules.repeats != "keep":
        order, offsets = kernels.without(order, offsets, again)
    first = order[offsets[:-1]]
    judgments = replace(
        agreed.stored,
        queries=queries,
        documents=documents,
        item_query=query[first],
        item_document=document[first],
        offsets=offsets,
        assessor=assessor[order],
        grade=grade[order],
    )
    per_query = np.bincount(query, minlength=len(queries))
    most = int(per_query.argmax())
    graded = judgments.assessor[judgments.grade >= 0]
    counts = [np.bincount(who, minlength=n_assessors) for who in (judgments.assessor, graded)]
    return Gathered(
        write_shard(folder, number, judgments),
        np.stack(counts, axis=1),
        row[np.flatnonzero(np.diff(np.maximum.accumulate(query), prepend=-1))],
        (int(per_query[most]), queries[most].as_py()),
        repeats,
        dict(bad_rows.skipped),
        bad_rows.examples,
    )


def _piece(part: Part, number: int, agreed: Agreed, rules: Rules, folder: Path, bad_rows: BadRows) -> dict[str, Any]:
    """A shard's rows of one part: ids of queries and documents, assessors and grades coded, rows among all."""
    with pa.OSFile(str(shard_path(folder, "part", part.number, ".arrow"))) as file:
        batch = pa.ipc.open_file(file).get_batch(number)
    with shard_path(folder, "coding", part.number, ".npy").open("rb") as stream:
        onto, families_onto = np.load(stream), np.load(stream)
    assessor, answer, row = onto[np.asarray(batch["assessor"])], np.asarray(batch["answer"]), np.asarray(batch["row"])
    codes, scales = agreed.codes[part.number], agreed.stored.scales
    scale_of = agreed.stored.assessor_scale[assessor] if len(scales) > 1 else np.zeros(len(row), np.int8)
    grade = codes[scale_of, answer] if len(scales) > 1 else codes[0].take(answer)
    keep, encoder = np.ones(len(row), dtype=bool), rules.encoder(part, bad_rows)
    if "family" in batch.schema.names and agreed.stored.assessor_family is not None:
        _check_families(np.asarray(batch["family"]), families_onto, assessor, row, agreed.stored, encoder, keep)
    if (grade <= MISSING).any():
        cells = [*agreed.answers[part.number], None]

        def bad(at: int) -> InputError:
            which, scale = answer[at], scales[scale_of[at]]
            return _bad_answer(encoder, int(row[at]), cells[which], int(grade[at]), scale, inferred=False)

        for code, reason in ((MISSING, "no grade"), (OFF_SCALE, "grade off the scale")):
            bad_rows.check(grade == code, keep, reason, bad)
    query = batch["query"] if "query" in batch.schema.names else pa.array([NO_QUERY] * len(row), pa.string())
    piece = {"query": query, "document": batch["document"]}
    if not keep.all():
        piece = {name: column.filter(pa.array(keep)) for name, column in piece.items()}
    return {**piece, "assessor": assessor[keep], "grade": grade[keep], "row": row[keep].astype(np.int64) + part.before}


def _check_families(
    family: NDArray[np.int32],
    onto: NDArray[np.int32],
    assessor: NDArray[np.int32],
    row: NDArray[np.int32],
    stored: Judgments,
    encoder: Encoder,
    keep: NDArray[np.bool_],
) -> None:
    """Rows that tell of another family than the assessor's first row are bad."""
    assert stored.assessor_family is not None
    of, told = stored.assessor_family[assessor], np.append(onto, -1)[family]
    names = stored.families

    def contradiction(at: int) -> InputError:
        assert names is not None
        who = stored.assessors[int(assessor[at])].as_py()
        return encoder.other_family(int(row[at]), who, names[int(told[at])].as_py(), names[int(of[at])].as_py())

    encoder.bad_rows.check((told >= 0) & (told != of), keep, "another family", contradiction)


def _judged_twice(
    order: NDArray[np.int32],
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    again: NDArray[np.bool_],
    row: NDArray[np.int64],
    parts: Sequence[Part],
) -> InputError:
    at = int(np.argmax(again))
    item = int(np.searchsorted(offsets, at, side="right")) - 1
    rows = np.sort(order[offsets[item] : offsets[item + 1]])
    places = [_place(int(row[one]), parts) for one in rows[assessor[rows] == assessor[order[at]]][:2]]
    return InputError(
        f"one assessor judged one document twice ({places[0]} and {places[1]})",
        remedy="use --repeats last, first or keep",
    )


def _place(row: int, parts: Sequence[Part]) -> str:
    """Where the row of a number among all stands."""
    part = parts[int(np.searchsorted([part.before for part in parts], row, side="right")) - 1]
    return f"{part.address}, row {part.first_row + row - part.before + 1}"


def number_queries(gathered: Sequence[Gathered], folder: Path) -> None:
    """Write beside each shard the numbers of its queries among all, in order of first appearance."""
    there = [one for one in gathered if one.shard is not None]
    if not there:
        return
    everything = np.concatenate([one.first_rows for one in there])
    number = np.empty(len(everything), np.int32)
    number[np.argsort(everything, kind="stable")] = np.arange(len(everything))
    start = 0
    for one in there:
        assert one.shard is not None
        with shard_path(folder, "queries", one.shard.number, ".npy").open("wb") as stream:
            np.save(stream, number[start : start + len(one.first_rows)])
        start += len(one.first_rows)


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
        raise InputError("no row can be used", remedy=f"every row was left out ({reasons})")
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


def _key(files: Sequence[str], told: tuple[Any, ...]) -> str:
    """What is the same only for the same files, read alike."""
    return hashlib.blake2b(repr(([(name, version_of(name)) for name in files], told)).encode()).hexdigest()


def _made_before(work: Path, key: str) -> bool:
    known = work / "key.txt"
    return (work / ABOUT_FILE).exists() and known.exists() and known.read_text() == key


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="crowdrank-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "shards"


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


def _workers(threads: int) -> Callable[[Callable[[S], T], Sequence[S]], Iterator[T]]:
    """Threads here."""

    def each(work: Callable[[S], T], things: Sequence[S]) -> Iterator[T]:
        pool = ThreadPoolExecutor(threads) if threads > 1 else None
        try:
            yield from map(work, things) if pool is None else pool.map(work, things)
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    return each
