"""How rows of many files become shards on disk: dealt out part by part, agreed on, gathered shard by shard.

    deal(part, ...)               -> the part's rows in a file by shard; its assessors and answers
    agree(...)                    -> the codes of assessors and the scales, from the small results of all parts
    gather(shard number, ...)     -> the shard's rows of all parts, coded, sorted by query and document, written

`deal` and `gather` take picklable arguments, touch one part or shard, and return little: threads run them here, tasks
may run them elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank.errors import InputError
from crowdrank.judgments import frames, ids, kernels
from crowdrank.judgments.addresses import opened_at
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.encode import MISSING, OFF_SCALE, Encoder, distinct
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.sharded import (
    StoredShard,
    header,
    shard_path,
    write_shard,
)
from crowdrank.judgments.sources import Source, damaged_rows
from crowdrank.judgments.table import NO_QUERY, Judgments, ReadReport


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
        """Return the columns named."""
        with opened_at(self.name) as stream:
            table = pq.ParquetFile(stream).read_row_groups(list(range(*self.part.groups)), list(names))
        if len(table) != self.part.rows:
            raise damaged_rows(self.name)
        return pa.table({name: frames.as_cells(table[name], self.name, name) for name in names})

    def place(self, row: int) -> str:
        """The row, counted from 1 in the file."""
        return f"row {self.part.first_row + row + 1}"


def kind_of(kind: pa.DataType) -> str:
    """What a column holds, as far as files must agree on it."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return "text" if any(test(kind) for test in (*text, pa.types.is_large_binary)) else str(kind)


def of_two_types(role: str, column: str, here: str, kind: str, there: str, other: str) -> InputError:
    """That a column holds one type here and another there."""
    return InputError(
        f"the {role} is of the type {kind} here and {other} in {there}",
        source=here,
        column=column,
        fix=f"write every {role} as one type in all files",
    )


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
            "the text is not UTF-8", source=encoder.source.name, column=name, fix="save it as UTF-8"
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
class Scales:
    """Where scales and families come from, besides the rows."""

    scale: Scale | None
    rules: ScaleRules | None
    family_pattern: re.Pattern[str] | None


def agree(dealt: Iterable[Dealt], rules: Rules, makers: Scales, folder: Path) -> tuple[Agreed, ReadReport]:
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
        raise InputError("no row can be used", source=str(Path(parts[0].address).parent), fix=told)
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
    guessed = makers.scale is None and makers.rules is None
    report = ReadReport(rows, dict(skipped), examples, excluded=excluded, guessed=guessed)
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
                raise of_two_types(role, column, here, kind_of(kind), where, kind_of(before))


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
        onto, families_onto = np.load(stream, allow_pickle=False), np.load(stream, allow_pickle=False)
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
        fix="use --repeats last, first or keep",
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
