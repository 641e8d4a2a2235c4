"""Read the tables that judging platforms export: Toloka, MTurk, Quepid. Label Studio (JSON) is in `json_files`.

Each export is recognized by columns that only it has:

- Toloka (assignments TSV): INPUT:, OUTPUT:, GOLDEN: and HINT: columns of the task, and ASSIGNMENT: columns
  (worker_id, status, started, submitted, reward, ...).
- MTurk (batch results CSV): HITId, WorkerId, AssignmentStatus, SubmitTime, WorkTimeInSeconds, Reward, and a column
  Input.NAME or Answer.NAME for each field; a radio button has one column Answer.NAME.VALUE for each value, true or
  false. The requester's site writes times as Fri Nov 07 12:38:00 PST 2014, the API as 2019-12-01T13:04:59Z.
- Quepid (book export CSV): query, docid, then one column for each rater, blank where they did not judge.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank.errors import Fix, Location, Message
from crowdrank.judgments.columns import (
    COLUMN_ALIASES,
    GRADE_LIKE_COLUMNS,
    ID_COLUMN_ALIASES,
    KNOWN_COLUMN_NAMES,
    find_probability_columns,
    quote_names,
)
from crowdrank.judgments.scale import parse_integer
from crowdrank.readers.cells import parse_number
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.files import FileHead
from crowdrank.readers.sources import BadRows, Source, no_rows_error

TOLOKA_COLUMN, MTURK_COLUMN = "ASSIGNMENT:worker_id", "AssignmentStatus"
"""Columns by which exports of Toloka and MTurk are recognized."""
MAX_QUEPID_RATING, MAX_ROWS_CHECKED_FOR_RATINGS = 10, 1000
"""Maximum rating in Quepid; maximum number of rows that are checked to recognize a Quepid export."""
USED_ASSIGNMENT_STATES = ("", "submitted", "accepted", "approved")
"""States of assignments whose answers are used, in lower case."""
UNUSED_ASSIGNMENT_STATES = ("rejected", "expired", "skipped", "active", "abandoned", "returned", "blocked")
"""States of assignments whose answers are not used but counted by state; other states are counted as unknown."""
UTC_OFFSET_HOURS = {
    "UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4,
}  # fmt: skip
"""Offset from UTC, in hours, of the time zones that MTurk's site uses."""


class PlatformExport(DelimitedSource):
    """Text file of a platform with its own column names; a column can be read by its role or by its name."""

    has_user_columns = False

    status_column: str  # column with the state of the assignment
    grade_columns: Sequence[str] = ()  # columns from which the grade is made, besides its own

    def __init__(self, file: FileHead, separator: str) -> None:
        super().__init__(file, separator)
        self._file_columns = list(self.names)
        self._column_in_file = {**{name: name for name in self.names}, **self.columns_by_role()}
        self.names = list(dict.fromkeys((*self.columns_by_role(), *self.names)))

    @abstractmethod
    def columns_by_role(self) -> dict[str, str]:
        """Return the column of the file for each role."""

    def columns_with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the columns of the file whose names have a prefix, by their names without the prefix."""
        return {name.removeprefix(prefix): name for name in self._file_columns if name.startswith(prefix)}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` of the used assignments; count the other assignments by their state."""
        columns = [self._column_in_file[name] for name in names]
        worker_column = self._column_in_file.get("assessor", "")
        filter_columns = [name for name in (self.status_column, worker_column) if name in self._file_columns]
        table = super().read(list(dict.fromkeys((*columns, *filter_columns, *self.grade_columns))), bad_rows)
        is_used = np.ones(len(table), bool)
        if self.status_column in filter_columns:
            is_used &= _is_used_assignment(table[self.status_column], bad_rows)
        if worker_column in filter_columns:  # tasks without a worker are not yet done
            assigned = np.asarray(_is_not_blank(table[worker_column]))
            bad_rows.count_left_out("no worker", int((is_used & ~assigned).sum()))
            is_used &= assigned
        table = self._take_rows(table, np.flatnonzero(is_used))
        return pa.table({name: self.convert_column(name, table) for name in names})

    def convert_column(self, name: str, table: pa.Table) -> pa.ChunkedArray:
        """Return the column of a role or name, with its cells in the form that the reader expects."""
        return table[self._column_in_file[name]]


def _is_used_assignment(state_column: pa.ChunkedArray, bad_rows: BadRows) -> NDArray[np.bool_]:
    """Return whether each assignment is used (n,); count the other assignments by their state."""
    state = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(state_column, "")))
    used = np.asarray(pc.is_in(state, pa.array(USED_ASSIGNMENT_STATES)))
    for name, count in Counter(state.filter(pa.array(~used)).to_pylist()).items():
        bad_rows.count_left_out(
            f"assignment {name}" if name in UNUSED_ASSIGNMENT_STATES else "assignment in an unknown state", count
        )
    return used


class TolokaSource(PlatformExport):
    """Assignments of Toloka."""

    status_column = "ASSIGNMENT:status"

    def columns_by_role(self) -> dict[str, str]:
        """Return the column for each role, by its name after INPUT: or OUTPUT:; a single output is the grade."""
        by_name = match_roles({**self.columns_with_prefix("OUTPUT:"), **self.columns_with_prefix("INPUT:")})
        outputs = self.columns_with_prefix("OUTPUT:")
        grade = next(iter(outputs.values())) if len(outputs) == 1 else by_name.get("grade")
        fixed = {"assessor": TOLOKA_COLUMN, "time": "ASSIGNMENT:submitted", "cost": "ASSIGNMENT:reward"}
        if grade is not None:
            fixed |= {"grade": grade, "honeypot": "GOLDEN:" + grade.removeprefix("OUTPUT:")}
        return {**by_name, **{role: name for role, name in fixed.items() if name in self._file_columns}}


class MTurkSource(PlatformExport):
    """Batch results of MTurk."""

    status_column = MTURK_COLUMN
    units = MappingProxyType({"duration": "seconds", "cost": "US dollars"})

    def __init__(self, file: FileHead, separator: str) -> None:
        self.grade_columns: list[str] = []
        super().__init__(file, separator)

    def columns_by_role(self) -> dict[str, str]:
        """Return the column for each role, by its name after Input. or Answer.; a single answer is the grade.

        The columns of a single radio button, one for each value, count as a single answer.
        """
        by_name = match_roles({**self.columns_with_prefix("Answer."), **self.columns_with_prefix("Input.")})
        answers = self.columns_with_prefix("Answer.")
        groups = {name.rpartition(".")[0] for name in answers if "." in name}
        if len(groups) == 1 and all("." in name for name in answers) and len(answers) > 1:
            self.grade_columns = list(answers.values())
            by_name["grade"] = self.grade_columns[0]
        elif len(answers) == 1:
            by_name["grade"] = next(iter(answers.values()))
        fixed = {"assessor": "WorkerId", "time": "SubmitTime", "duration": "WorkTimeInSeconds", "cost": "Reward"}
        return {**by_name, **{role: name for role, name in fixed.items() if name in self._file_columns}}

    def convert_column(self, name: str, table: pa.Table) -> pa.ChunkedArray:
        """Return a column with times in ISO 8601, costs without a dollar sign, and the selected values as grades."""
        column = super().convert_column(name, table)
        if name == "time":
            return pa.chunked_array([pa.array(map(_mturk_time_to_iso, column.to_pylist()), pa.string())])
        if name == "grade" and self.grade_columns:
            return self._selected_values(table)
        return pc.utf8_ltrim(column, " $") if name == "cost" else column

    def _selected_values(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the selected value of a radio button in each row; several are joined by `|`."""
        selected: list[list[str]] = [[] for _ in range(len(table))]
        for column in self.grade_columns:
            for values, cell in zip(selected, table[column].to_pylist(), strict=True):
                if str(cell).strip().casefold() in ("true", "1", "on"):
                    values.append(column.rpartition(".")[2])
        return pa.chunked_array([pa.array(["|".join(values) or None for values in selected], pa.string())])


def _mturk_time_to_iso(cell: str | None) -> str | None:
    """Return a time of MTurk's site in ISO 8601; other cells are returned unchanged.

    >>> _mturk_time_to_iso("Fri Nov 07 12:38:00 PST 2014"), _mturk_time_to_iso("2019-12-01T13:04:59Z")
    ('2014-11-07T20:38:00Z', '2019-12-01T13:04:59Z')
    """
    words = (cell or "").split()
    if len(words) != 6 or words[4].upper() not in UTC_OFFSET_HOURS:
        return cell
    try:
        local = datetime.strptime(" ".join((*words[1:4], words[5])), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return cell
    return (local - timedelta(hours=UTC_OFFSET_HOURS[words[4].upper()])).isoformat().replace("+00:00", "Z")


class QuepidSource(DelimitedSource):
    """A book of Quepid: a table of documents with one column of ratings per rater."""

    has_user_columns = False

    def __init__(self, file: FileHead, separator: str) -> None:
        super().__init__(file, separator)
        self.raters = self.names[2:]
        self.names = ["query", "document", "assessor", "grade"]
        problem = f"it is read as a book of Quepid with the raters {quote_names(self.raters)}"
        fix = Fix("if it is another table, give {}", "format", "csv")
        self.notes = [Message(problem, "quepid-book", "note", Location(self.name), (fix,))]

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return one row per rating; documents without a rating are left out and counted."""
        wide = super().read(["query", "docid", *self.raters], bad_rows)
        is_rated = np.column_stack([np.asarray(_is_not_blank(wide[name])) for name in self.raters])
        row_indexes, rater_indexes = np.nonzero(is_rated)
        if not len(row_indexes) and not bad_rows.skipped:
            raise no_rows_error(self.name)
        bad_rows.count_left_out("no rating", int((~is_rated.any(axis=1)).sum()))
        grades = [wide[name].to_pylist() for name in self.raters]
        raters = pa.array(map(_without_formula_guard, self.raters), pa.string())
        documents = self._take_rows(wide.select(["query", "docid"]), row_indexes)
        cells = [grades[rater][row] for row, rater in zip(row_indexes, rater_indexes, strict=True)]
        columns = {
            "query": documents["query"],
            "document": documents["docid"],
            "assessor": raters.take(pa.array(rater_indexes)),
            "grade": pa.array(cells, pa.string()),
        }
        return pa.table({name: columns[name] for name in names})


def _without_formula_guard(rater: str) -> str:
    """Remove the space that Quepid writes before names that a spreadsheet would run as a formula.

    >>> _without_formula_guard(" =eve"), _without_formula_guard(" ann")
    ('=eve', ' ann')
    """
    return rater[1:] if rater[0:1] == " " and rater[1:2] in tuple("-=+@") else rater


def _is_not_blank(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether each cell has other characters than white space."""
    return pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")


def match_roles(column_by_field: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each role for which the name of exactly one field fits.

    Args:
        column_by_field: columns of the file by the name of their field, which has no prefix of the platform.


    >>> match_roles({"docid": "INPUT:docid", "rating": "OUTPUT:rating", "text": "INPUT:text"})
    {'document': 'INPUT:docid', 'grade': 'OUTPUT:rating'}
    """
    columns: dict[str, str] = {}
    for role in ("query", "document", "grade", "honeypot", "family"):
        name_tiers = (ID_COLUMN_ALIASES.get(role, ()), (role,), COLUMN_ALIASES[role])
        matches = ([name for name in column_by_field if name.casefold() in alternatives] for alternatives in name_tiers)
        names = next(filter(None, matches), [])
        if len(names) == 1:
            columns[role] = column_by_field[names[0]]
    return columns


SOURCE_BY_PLATFORM: Mapping[str, Callable[[FileHead, str], Source]] = {
    "toloka": TolokaSource,
    "mturk": MTurkSource,
    "quepid": QuepidSource,
}
"""Source class by name of the platform, for platforms that export text tables."""


def detect_platform(table: DelimitedSource) -> str | None:
    r"""Return the platform that exported a table, detected from its header, or None.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "book.csv"
    >>> _ = path.write_text("query,docid,ann,bob\njam,d1,2,\n")
    >>> detect_platform(DelimitedSource(path))
    'quepid'
    """
    names = table.names
    if TOLOKA_COLUMN in names:
        return "toloka"
    if MTURK_COLUMN in names and "WorkerId" in names:
        return "mturk"
    return "quepid" if names[:2] == ["query", "docid"] and len(names) > 2 and _has_ratings(table) else None


def _has_ratings(table: DelimitedSource) -> bool:
    """Return whether the columns after the first two can be raters: no known names, and ratings or blanks as cells.

    Features and expert grades can have the same first columns.
    """
    others = [name.casefold() for name in table.names[2:]]
    if (
        (KNOWN_COLUMN_NAMES | GRADE_LIKE_COLUMNS).intersection(others)
        or find_probability_columns(others)
        or len(set(table.names)) < len(table.names)
    ):
        return False
    cells = [cell for record in table.first_rows(MAX_ROWS_CHECKED_FOR_RATINGS) for cell in record[2:] if cell.strip()]
    ratings = [parse_integer(cell) for cell in cells if not math.isnan(parse_number(cell))]
    return 2 * len(ratings) >= len(cells) and all(one is not None and 0 <= one <= MAX_QUEPID_RATING for one in ratings)
