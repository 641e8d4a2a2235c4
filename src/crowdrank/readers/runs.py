"""Rankings (runs) of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank.errors import Message
from crowdrank.judgments import frames, ids
from crowdrank.judgments.columns import COLUMN_ALIASES, EXPERT_GRADED, Roles
from crowdrank.judgments.scale import Scale
from crowdrank.readers.cells import parse_floats
from crowdrank.readers.inputs import (
    OpenInput,
    RoleTable,
    TableLike,
    features_used_notes,
    open_input,
    read_roles,
    scale_from_column,
)
from crowdrank.readers.read_options import Format
from crowdrank.readers.sources import columns_by_role, no_rows_error

RUN_ROLES = Roles(("document", "score"), ("query", "grade", "scale", EXPERT_GRADED), {**COLUMN_ALIASES, "grade": ()})
"""Roles of the columns of a ranking."""


def read_run(
    source: TableLike,
    *,
    format: Format | None = None,
    columns: str | Mapping[str, str] | None = None,
    separator: str | None = None,
    scale: Scale | None = None,
    max_bytes: int | str | None = None,
) -> Any:
    """Read a ranking: a consensus, a table of scores, or a TREC run.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        format: the format, if neither suffix nor content shows it.
        columns: the column for each role, as in `query=topicID,document=docID,score=bm25`.
        separator: separator of the cells of a text file; by default it is detected.
        scale: the scale of named grades, if the source does not state it in a column `scale`.
        max_bytes: maximum size of a file in bytes when decompressed.

    Returns:
        A DataFrame with the columns query, document, score and, if the file has them, grade (as a number, or as a name
        if its scale is not known) and `expert_graded`.

    Raises:
        InputError: a file cannot be read, or a score is not a number.

    >>> import pandas as pd
    >>> read_run(pd.DataFrame({"qid": ["q"], "docid": ["d"], "relevance": [1.5]}))
      query document  score
    0     q        d    1.5

    """
    inputs = open_input(source, format, separator, max_bytes, allow_books=False)
    return read_run_table(inputs, columns, scale).frame


@dataclass(frozen=True)
class RunTable:
    """A ranking that was read.

    Attributes:
        frame: a DataFrame with the columns query, document, score and, if known, grade and `expert_graded`.
        columns: name of the column that was read for each role.
        notes: notes about the files.

    """

    frame: Any
    columns: Mapping[str, str]
    notes: tuple[Message, ...] = ()


def read_run_table(
    inputs: OpenInput, columns: str | Mapping[str, str] | None = None, scale: Scale | None = None
) -> RunTable:
    """Read a ranking from opened files, as :func:`read_run` does."""
    tables = read_roles(inputs, RUN_ROLES, columns)
    if not any(map(len, tables)):
        raise no_rows_error(inputs.name)
    rows = {role: ids.concat_arrays([table.row_ids(role) for table in tables]) for role in ("query", "document")}
    rows["score"] = pa.array(np.concatenate([table.floats("score") for table in tables]))
    scale = scale_from_column(tables) or scale
    if any("grade" in table.cells for table in tables):
        rows["grade"] = _concat_grades([table.with_grade_values(scale) for table in tables])
    if any(EXPERT_GRADED in table.cells for table in tables):
        used = [
            table.floats(EXPERT_GRADED) if EXPERT_GRADED in table.cells else np.zeros(len(table)) for table in tables
        ]
        rows[EXPERT_GRADED] = pa.array(np.concatenate(used).astype(np.int64))
    frame = frames.from_arrow(pa.table(rows), inputs.sources[0].backend)
    return RunTable(frame, columns_by_role(table.origin for table in tables), tuple(features_used_notes(inputs)))


def _concat_grades(tables: Sequence[RoleTable]) -> pa.Array:
    """Return the grades of all rows as numbers, or as text if one is a name that is not on a known scale."""
    graded = [table.cells.get("grade", pa.chunked_array([pa.nulls(len(table), pa.float64())])) for table in tables]
    if any(parse_floats(cells) is None for cells in graded):
        return pa.chunked_array([chunk for cells in graded for chunk in cells.cast(pa.string()).chunks], pa.string())
    columns = [
        table.floats("grade", allow_blanks=True) if "grade" in table.cells else np.full(len(table), np.nan)
        for table in tables
    ]
    return pa.array(np.concatenate(columns))
