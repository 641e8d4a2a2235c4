"""Encode one part of the input: ids, answers and families become integer codes, and bad rows are counted.

    encode_part(cells, ...)           -> Part: coded rows, and a summary (the tables that the codes index)
    merge_parts(parts, ...)           -> Judgments (`crowdrank.readers.merge`)

A part is a set of rows that are encoded together: a file, a frame, or some row groups of a Parquet file.
A grade is coded as an index into the distinct answers of its part until all parts are known, because the scale depends
on the answers of all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from crowdrank._arrow import release_unused_memory
from crowdrank._typing import Booleans, Codes, Integers
from crowdrank.errors import InputError, Location
from crowdrank.judgments import ids
from crowdrank.judgments.columns import find_probability_columns
from crowdrank.judgments.ids import CodedIds
from crowdrank.readers.cells import ColumnsByRole, ParsedColumn, encode_distinct, parse_extras
from crowdrank.readers.read_options import EncodeOptions
from crowdrank.readers.sources import BadRows, Origin


@dataclass(frozen=True, eq=False)
class PartRows:
    """Coded rows of a part that have all ids and whose assessor is not excluded; codes index the part's summary."""

    origin: Origin
    assessor: Codes
    answer: Codes  # index into the distinct answers; -1: blank
    document: CodedIds | pa.Array  # an array of ids if they are not coded yet
    query: CodedIds | pa.Array | None = None
    family: Codes | None = None  # -1: no family
    source_rows: Codes | None = None  # row in the source of each row; None: the same rows
    extras: Mapping[str, ParsedColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.assessor)

    def source_row(self, row: int) -> int:
        """Return the index in the source of one row of this part."""
        return row if self.source_rows is None else int(self.source_rows[row])

    def all_source_rows(self) -> Integers:
        """Return the index in the source of every row of this part."""
        return np.arange(len(self)) if self.source_rows is None else self.source_rows.astype(np.int64)


@dataclass(frozen=True, eq=False)
class PartSummary:
    """Tables that the codes of a part index, and counts of its rows; much smaller than the rows."""

    origin: Origin
    n_rows: int  # number of rows of the source, used or not
    assessors: pa.Array
    answers: list[Any]  # distinct cells of the grade column
    first_row: Integers  # (n_answers + 1,) first source row with each answer, or -1; last entry: blank cells
    answer_counts: Integers  # (n_answers,) number of rows with each answer
    bad_rows: BadRows
    families: pa.Array | None = None
    assessor_family: Codes | None = None  # (n_assessors,) first family that a row of the assessor states
    share_grades: tuple[int, ...] = ()  # grades whose columns of probabilities are not blank
    n_excluded: int = 0
    excluded_ids: frozenset[str] = frozenset()  # excluded assessors that occur
    id_types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Part(NamedTuple):
    """Coded rows of one source, or of a section of it, and the tables that the codes index."""

    rows: PartRows
    summary: PartSummary


def encode_part(cells: ColumnsByRole, origin: Origin, options: EncodeOptions, bad_rows: BadRows) -> Part:
    """Encode the rows of one part.

    Args:
        cells: columns by role; each is removed before it is encoded, so that its memory can be freed.
        origin: source of the rows and the names of its columns.
        options: options for turning rows into judgments.
        bad_rows: counts of the rows that the source left out; rows without an id are added.

    Returns:
        The rows with all ids, and the tables that their codes index; ids are in order of first appearance.

    """
    n_rows = len(cells["grade"])
    release_unused_memory(n_rows)
    row_mask = np.ones(n_rows, dtype=bool)
    query = encode_ids(cells.pop("query"), "query", origin, bad_rows, row_mask) if "query" in cells else None
    document = encode_ids(cells.pop("document"), "document", origin, bad_rows, row_mask)
    assessor = encode_ids(cells.pop("assessor"), "assessor", origin, bad_rows, row_mask)
    n_excluded, excluded_found = exclude_assessors(options.exclude, assessor, row_mask)
    family = ids.encode(cells["family"]) if "family" in cells else None
    answer, answers = encode_distinct(cells.pop("grade"))
    release_unused_memory(n_rows)
    extras = parse_extras(cells)
    kept_rows = None
    if not row_mask.all():
        kept_rows = np.flatnonzero(row_mask).astype(np.int32)
        document, assessor, answer = ids.take(document, kept_rows), ids.take(assessor, kept_rows), answer[kept_rows]
        query, family = (None if column is None else ids.take(column, kept_rows) for column in (query, family))
        extras = {role: column.take(kept_rows) for role, column in extras.items()}
    first_row = ids.first_rows(answer, len(answers))
    rows = PartRows(
        origin, assessor[0], answer, document, query, None if family is None else family[0], kept_rows, extras
    )
    coded_ids = {"query": query, "document": document, "assessor": assessor}
    summary = PartSummary(
        origin=origin,
        n_rows=n_rows + bad_rows.n_left_out,
        assessors=assessor[1],
        answers=answers,
        first_row=first_row if kept_rows is None else np.where(first_row < 0, -1, np.append(kept_rows, -1)[first_row]),
        answer_counts=np.bincount(answer[answer >= 0], minlength=len(answers)),
        bad_rows=bad_rows,
        families=None if family is None else family[1],
        assessor_family=None if family is None else first_families(family[0], assessor[0], len(assessor[1])),
        share_grades=tuple(
            int(name[1:]) for name in find_probability_columns(extras) if not np.isnan(extras[name].values).all()
        ),
        n_excluded=n_excluded,
        excluded_ids=excluded_found,
        id_types={role: column[1].type for role, column in coded_ids.items() if column is not None},
    )
    return Part(rows, summary)


def encode_ids(column: pa.ChunkedArray, role: str, origin: Origin, bad_rows: BadRows, row_mask: Booleans) -> CodedIds:
    """Encode a column of ids; count rows without an id as bad and remove them from `row_mask`."""
    try:
        codes, names = ids.encode(column)
    except pa.ArrowInvalid as problem:
        raise origin.encoding_error(role) from problem
    except InputError as error:
        location = Location(origin.source.name, column=origin.column_name(role))
        raise InputError(replace(error.message, location=location)) from error
    del column
    release_unused_memory(len(codes))
    bad_rows.count_bad(
        codes < 0, row_mask, f"no {role}", lambda row: ((origin.part_number, row), origin.missing_cell_error(row, role))
    )
    return codes, names


def exclude_assessors(
    excluded_assessors: tuple[str, ...], assessors: CodedIds, row_mask: Booleans
) -> tuple[int, frozenset[str]]:
    """Remove the rows of excluded assessors from `row_mask`; return their number, and the ids that occur."""
    if not excluded_assessors:
        return 0, frozenset()
    position = ids.match(pa.array(excluded_assessors), assessors[1])
    is_excluded = np.append(position >= 0, False)[assessors[0]] & row_mask
    row_mask &= ~is_excluded
    return int(is_excluded.sum()), frozenset(excluded_assessors[one] for one in position[position >= 0].tolist())


def first_families(family_codes: Codes, assessor_codes: Codes, n_assessors: int) -> Codes:
    """Return for each assessor the first family that one of the assessor's rows states, or -1."""
    first_family = np.full(n_assessors, -1, np.int32)
    rows = np.flatnonzero(family_codes >= 0)[::-1]
    first_family[assessor_codes[rows]] = family_codes[rows]
    return first_family
