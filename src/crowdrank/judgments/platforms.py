"""Read the exports of judging platforms: Label Studio, Toloka, MTurk, Quepid, OpenSearch.

Each export is recognized by columns or keys that only it has:

- Label Studio (labelstud.io/guide/task_format): a list of tasks with `data` and `annotations`; each annotation has
  `completed_by` (a number, or an object with an email), `was_canceled`, `ground_truth`, `lead_time` in seconds, and a
  `result` of regions whose `value` holds `choices` or a `rating`. JSON-MIN is a list of flat objects.
- Toloka (assignments TSV): INPUT:, OUTPUT:, GOLDEN: and HINT: columns of the task, and ASSIGNMENT: columns
  (worker_id, status, started, submitted, reward, ...).
- MTurk (batch results CSV): HITId, WorkerId, AssignmentStatus, SubmitTime, WorkTimeInSeconds, Reward, and a column
  Input.NAME or Answer.NAME for each field; a radio button has one column Answer.NAME.VALUE for each value, true or
  false. The requester's site writes times as Fri Nov 07 12:38:00 PST 2014, the API as 2019-12-01T13:04:59Z.
- Quepid (book export CSV): query, docid, then one column for each rater, blank where they did not judge.
- OpenSearch (Search Relevance Workbench): `judgmentRatings`, a list of `query` and `ratings` of `docId` and `rating`
  (in early versions a mapping from the query to its ratings).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank.errors import Fix, InputError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import COLUMN_ALIASES, ID_COLUMN_ALIASES
from crowdrank.judgments.sources import (
    NOT_LABELED_REASON,
    DelimitedSource,
    Source,
    cell_to_text,
    is_encodable,
    is_unlabeled,
    json_kind,
    no_rows_error,
    only_label,
    open_decompressed,
)

TOLOKA_COLUMN, MTURK_COLUMN = "ASSIGNMENT:worker_id", "AssignmentStatus"
"""Columns by which exports of Toloka and MTurk are recognized."""
USED_ASSIGNMENT_STATES = ("", "submitted", "accepted", "approved")
"""States of assignments whose answers are used, in lower case."""
UNUSED_ASSIGNMENT_STATES = ("rejected", "expired", "skipped", "active", "abandoned", "returned", "blocked")
"""States of assignments whose answers are not used but counted by state; other states are counted as unknown."""
MAX_JSON_DEPTH = 100
"""Maximum nesting depth of a JSON document in which `judgmentRatings` are searched."""
ID_COLUMNS = ("query", "document", "assessor", "family")
"""Columns that hold ids, in which the number 1 and the text "1" must not both occur."""
DEFAULT_COLUMNS = ("document", "assessor", "grade")
"""Columns of a Label Studio export in which no annotation can be used."""
UTC_OFFSET_HOURS = {
    "UTC": 0,
    "GMT": 0,
    "PST": -8,
    "PDT": -7,
    "MST": -7,
    "MDT": -6,
    "CST": -6,
    "CDT": -5,
    "EST": -5,
    "EDT": -4,
}
"""Offset from UTC, in hours, of the time zones that MTurk's site uses."""


class PlatformExport(DelimitedSource):
    """Text file of a platform with its own column names; a column can be read by its role or by its name."""

    status_column: str  # column with the state of the assignment

    def __init__(self, path: str | Path, separator: str) -> None:
        super().__init__(path, separator)
        self._file_columns = list(self.names)
        self._column_in_file = {**{name: name for name in self.names}, **self.columns_by_role()}
        self.names = list(dict.fromkeys((*self.columns_by_role(), *self.names)))
        self._used_rows = np.empty(0, np.int64)

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
        table = super().read(list(dict.fromkeys((*columns, *filter_columns))), bad_rows)
        is_used = np.ones(len(table), bool)
        if self.status_column in filter_columns:
            is_used &= _is_used_assignment(table[self.status_column], bad_rows)
        if worker_column in filter_columns:  # tasks without a worker are not yet done
            assigned = np.asarray(_is_filled(table[worker_column]))
            bad_rows.count_left_out("no worker", int((is_used & ~assigned).sum()))
            is_used &= assigned
        self._used_rows = np.flatnonzero(is_used)
        table = table.take(pa.array(self._used_rows))
        return pa.table(
            {name: self.convert_column(name, table[column]) for name, column in zip(names, columns, strict=True)}
        )

    def convert_column(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column with its cells converted to the form that the reader expects."""
        return column

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return super().place(int(self._used_rows[row]) if len(self._used_rows) else row)


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

    def __init__(self, path: str | Path, separator: str) -> None:
        self._radio_values: dict[str, str] = {}
        super().__init__(path, separator)

    def columns_by_role(self) -> dict[str, str]:
        """Return the column for each role, by its name after Input. or Answer.; a single answer is the grade.

        The columns of a single radio button, one for each value, count as a single answer.
        """
        by_name = match_roles({**self.columns_with_prefix("Answer."), **self.columns_with_prefix("Input.")})
        answers = self.columns_with_prefix("Answer.")
        groups = {name.rpartition(".")[0] for name in answers if "." in name}
        if len(groups) == 1 and all("." in name for name in answers) and len(answers) > 1:
            self._radio_values = {name: name.rpartition(".")[2] for name in answers.values()}
            by_name["grade"] = next(iter(self._radio_values))
        elif len(answers) == 1:
            by_name["grade"] = next(iter(answers.values()))
        fixed = {"assessor": "WorkerId", "time": "SubmitTime", "duration": "WorkTimeInSeconds", "cost": "Reward"}
        return {**by_name, **{role: name for role, name in fixed.items() if name in self._file_columns}}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; the grade of a radio button is its selected value, or several joined by `|`."""
        table = super().read(names, bad_rows)
        if "grade" not in names or not self._radio_values:
            return table
        buttons = DelimitedSource.read(self, list(self._radio_values), BadRows("skip")).take(pa.array(self._used_rows))
        selected: list[list[str]] = [[] for _ in range(len(table))]
        for name, value in self._radio_values.items():
            for row, cell in enumerate(buttons[name].to_pylist()):
                if str(cell).strip().casefold() in ("true", "1", "on"):
                    selected[row].append(value)
        grades = pa.array(["|".join(values) or None for values in selected], pa.string())
        return table.set_column(list(names).index("grade"), "grade", grades)

    def convert_column(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column with times in ISO 8601 and costs without a dollar sign."""
        if name == "time":
            return pa.chunked_array([pa.array([_mturk_time(cell) for cell in column.to_pylist()], pa.string())])
        return pc.utf8_ltrim(column, " $") if name == "cost" else column


def _mturk_time(cell: str | None) -> str | None:
    """Return a time of MTurk's site in ISO 8601; other cells are returned unchanged.

    >>> _mturk_time("Fri Nov 07 12:38:00 PST 2014"), _mturk_time("2019-12-01T13:04:59Z")
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

    def __init__(self, path: str | Path, separator: str) -> None:
        super().__init__(path, separator)
        self.raters = self.names[2:]
        self.names = ["query", "document", "assessor", "grade"]
        self._file_rows = np.empty(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return one row per rating; documents without a rating are left out and counted."""
        wide = super().read(["query", "docid", *self.raters], bad_rows)
        is_rated = np.column_stack([np.asarray(_is_filled(wide[name])) for name in self.raters])
        row_indexes, rater_indexes = np.nonzero(is_rated)
        if not len(row_indexes) and not bad_rows.skipped:
            raise no_rows_error(self.name)
        bad_rows.count_left_out("no rating", int((~is_rated.any(axis=1)).sum()))
        self._file_rows = row_indexes
        grades = [wide[name].to_pylist() for name in self.raters]
        columns = {
            "query": wide["query"].take(pa.array(row_indexes)),
            "document": wide["docid"].take(pa.array(row_indexes)),
            "assessor": pa.array(
                [_without_formula_guard(self.raters[rater_index]) for rater_index in rater_indexes], pa.string()
            ),
            "grade": pa.array(
                [
                    grades[rater_index][row_index]
                    for row_index, rater_index in zip(row_indexes, rater_indexes, strict=True)
                ],
                pa.string(),
            ),
        }
        return pa.table({name: columns[name] for name in names})

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return super().place(int(self._file_rows[row]) if len(self._file_rows) else row)


def _without_formula_guard(rater: str) -> str:
    """Remove the space that Quepid writes before names that a spreadsheet would run as a formula.

    >>> _without_formula_guard(" =eve"), _without_formula_guard(" ann")
    ('=eve', ' ann')
    """
    return rater[1:] if rater[0:1] == " " and rater[1:2] in tuple("-=+@") else rater


def _is_filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether each cell has more than white space."""
    return pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")


def match_roles(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each role for which the name of exactly one field fits.

    Args:
        fields: columns of the file by the name of their field, which has no prefix of the platform.


    >>> match_roles({"docid": "INPUT:docid", "rating": "OUTPUT:rating", "text": "INPUT:text"})
    {'document': 'INPUT:docid', 'grade': 'OUTPUT:rating'}
    """
    columns: dict[str, str] = {}
    for role in ("query", "document", "grade", "honeypot", "family"):
        name_tiers = (ID_COLUMN_ALIASES.get(role, ()), (role,), COLUMN_ALIASES[role])
        matches = ([name for name in fields if name.casefold() in alternatives] for alternatives in name_tiers)
        names = next(filter(None, matches), [])
        if len(names) == 1:
            columns[role] = fields[names[0]]
    return columns


class JsonSource(Source):
    """A JSON document: tasks of Label Studio, a judgment list of OpenSearch, or a list of flat objects."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        with open_decompressed(path) as stream:
            value = _parse_json(stream.read().decode("utf-8-sig"), self.name)
        self._place_of_object: list[str] = []
        self._place_of_row: list[str] = []
        self._malformed: list[InputError] = []
        self._left_out: Counter[str] = Counter()
        self._id_columns: Sequence[str] | None = ID_COLUMNS  # None: all columns
        self._rows = self._parse_rows(value)
        if not (self._rows or self._malformed or self._left_out):
            raise no_rows_error(self.name)
        self.names = list(dict.fromkeys(name for row in self._rows for name in row)) or list(DEFAULT_COLUMNS)
        unusable = next((name for name in self.names if not is_encodable(name)), None)
        if unusable is not None:
            raise InputError(f"the key {shown(unusable)} is not text", source=self.name, fix="rename it")

    def _parse_rows(self, value: Any) -> list[dict[str, Any]]:
        """Return a row for each judgment in a JSON document, and store the place of each."""
        lists = list(self._judgment_lists(value))
        if any(isinstance(judgment_list, list | dict) for judgment_list in lists):
            self.has_assessor_column = False
            return [row for judgment_list in lists for row in self._opensearch_rows(judgment_list)]
        tasks = [value] if isinstance(value, dict) and "data" in value else value
        if isinstance(tasks, list) and any(isinstance(task, dict) and "data" in task for task in tasks):
            self.units = {"duration": "seconds"}
            return [row for task_index, task in enumerate(tasks) for row in self._label_studio_rows(task_index, task)]
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            self._place_of_object = [f"object {index + 1}" for index in range(len(value))]
            self._id_columns = None
            return value
        raise InputError(
            "it is JSON, but neither tasks of Label Studio, nor judgmentRatings of OpenSearch, nor a list of objects",
            source=self.name,
            kind="other-format",
            fix="export it as one of these, or as CSV",
        )

    def _judgment_lists(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """Yield the value of every key `judgmentRatings` in a document for import or in a search response."""
        if depth > MAX_JSON_DEPTH:
            problem = f"it is nested more than {MAX_JSON_DEPTH} levels deep"
            raise InputError(problem, source=self.name, fix="export it again, or as CSV")
        if isinstance(value, dict):
            if "judgmentRatings" in value:
                yield value["judgmentRatings"]
                return
            for name in ("hits", "_source"):
                yield from self._judgment_lists(value.get(name), depth + 1)
        elif isinstance(value, list):
            for one in value:
                yield from self._judgment_lists(one, depth + 1)

    def _opensearch_rows(self, judgment_list: Any) -> Iterator[dict[str, Any]]:
        """Yield a row for each rating in a judgment list of OpenSearch."""
        if not isinstance(judgment_list, list | dict):
            self._left_out["judgment list without ratings"] += 1
            return
        pairs = (
            judgment_list.items()
            if isinstance(judgment_list, dict)
            else [_query_ratings(entry) for entry in judgment_list]
        )
        for query_index, (query, ratings) in enumerate(pairs):
            if ratings == []:
                self._left_out["query without ratings"] += 1
            for rating in ratings if isinstance(ratings, list) else [ratings]:
                if not isinstance(rating, dict) or "docId" not in rating or "rating" not in rating:
                    raise self._unexpected_value_error(
                        f"judgmentRatings {query_index + 1}", rating, "a rating is an object with docId and rating"
                    )
                self._place_of_object.append(f"judgmentRatings {query_index + 1}")
                yield {"query": query, "document": rating["docId"], "grade": rating["rating"]}

    def _label_studio_rows(self, task_index: int, task: Any) -> Iterator[dict[str, Any]]:
        """Yield a row for each annotation of a task of Label Studio."""
        place = f"task {task_index + 1}"
        annotations = task.get("annotations", task.get("completions", [])) if isinstance(task, dict) else None
        if not isinstance(annotations, list) or not isinstance(task.get("data"), dict):
            raise self._unexpected_value_error(place, task, "a task has data and a list of annotations")
        data = {name: value for name, value in task["data"].items() if not isinstance(value, list | dict)}
        item_ids = {role: data[name] for role, name in match_roles({name: name for name in data}).items()}
        if "document" not in item_ids and task.get("id") is not None:
            item_ids["document"] = task["id"]
        used_annotations = self._used_annotations(place, task, annotations)
        true_answer = next(
            (_annotation_answer(annotation) for annotation in used_annotations if annotation.get("ground_truth")), None
        )
        for annotation in used_annotations:
            if annotation.get("ground_truth"):
                self._left_out["ground-truth annotation"] += 1
                continue
            assessor = annotation.get("completed_by")
            assessor = assessor.get("email", assessor.get("id")) if isinstance(assessor, dict) else assessor
            row = {
                **item_ids,
                "assessor": assessor,
                "grade": _annotation_answer(annotation),
                "time": annotation.get("created_at"),
            }
            row["duration"] = annotation.get("lead_time")
            if true_answer is not None:
                row["honeypot"] = true_answer
            self._place_of_object.append(place)
            yield row

    def _used_annotations(self, place: str, task: dict[str, Any], annotations: list[Any]) -> list[dict[str, Any]]:
        """Return the annotations of a task that were not canceled; count the others, and predictions, as left out."""
        objects = [annotation for annotation in annotations if isinstance(annotation, dict)]
        self._malformed += [
            self._unexpected_value_error(place, annotation, "an annotation is an object with completed_by and a result")
            for annotation in annotations
            if not isinstance(annotation, dict)
        ]
        predictions = task.get("predictions")
        used = [annotation for annotation in objects if not annotation.get("was_canceled")]
        self._left_out += Counter(
            {
                "annotation canceled": len(objects) - len(used),
                "task without annotations": int(not annotations),
                "prediction": len(predictions) if isinstance(predictions, list) else 0,
            }
        )
        return used

    def _unexpected_value_error(self, place: str, value: Any, advice: str) -> InputError:
        return InputError(f"{shown(value)} is not expected here", source=self.name, place=place, fix=advice)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        for error in self._malformed:
            bad_rows.count_malformed(error)
        for reason, count in self._left_out.items():
            bad_rows.count_left_out(reason, count)
        labeled = [number for number, row in enumerate(self._rows) if not is_unlabeled(row, names)]
        bad_rows.count_left_out(NOT_LABELED_REASON, len(self._rows) - len(labeled))
        self._place_of_row = [self._place_of_object[number] for number in labeled]
        rows = [self._rows[number] for number in labeled]
        return pa.table({name: pa.array(self._read_column(name, rows), pa.string()) for name in names})

    def _read_column(self, column: str, rows: list[dict[str, Any]]) -> list[str | None]:
        """Return the cells of a column as text; raise InputError if a number and a text become the same id."""
        exact = self._id_columns is None or column in self._id_columns
        kind_by_text: dict[str, str] = {}
        cells = []
        for row_index, row in enumerate(rows):
            value = only_label(column, row.get(column))
            text = cell_to_text(value)
            cells.append(text)
            if text is None:
                continue
            if not is_encodable(text):
                raise self._cell_error(
                    row_index, column, f"{shown(value)} is not text", "write it without lone surrogates"
                )
            if exact and kind_by_text.setdefault(text, json_kind(value)) != json_kind(value):
                problem = f"{text} occurs as a number and as text, which may be two ids"
                raise self._cell_error(row_index, column, problem, "write it as one type everywhere")
        return cells

    def _cell_error(self, row: int, column: str, problem: str, advice: str) -> InputError:
        return InputError(problem, source=self.name, place=self.place(row), column=column, fix=advice)

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its task or object in the document."""
        return self._place_of_row[row]


def _parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        one_per_line = Fix("if it has one object per line, give {}", "format", "jsonl")
        raise InputError("it is not JSON", source=source, fix=["correct it", one_per_line]) from problem


def _query_ratings(entry: Any) -> tuple[Any, Any]:
    """Return the query and the ratings of an entry of a judgment list."""
    return (entry.get("query"), entry.get("ratings")) if isinstance(entry, dict) else (None, None)


def _annotation_answer(annotation: Mapping[str, Any]) -> Any:
    """Return the first choice, rating or number of an annotation, or None."""
    result = annotation.get("result")
    for region in result if isinstance(result, list) else []:
        value = region.get("value") if isinstance(region, dict) else None
        if not isinstance(value, dict):
            continue
        for name in ("choices", "rating", "number", "text"):
            answer = value.get(name)
            answer = answer[0] if isinstance(answer, list) and answer else answer
            if answer is not None and not isinstance(answer, list | dict):
                return answer
    return None


TABLE_EXPORTS: Mapping[str, Callable[[str | Path, str], Source]] = {
    "toloka": TolokaSource,
    "mturk": MTurkSource,
    "quepid": QuepidSource,
}
"""Source class of each platform that exports text tables."""


def detect_platform(table: Source) -> str | None:
    r"""Return the platform that exported a table, detected from its header, or None.

    >>> import tempfile
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
    if names[:2] != ["query", "docid"] or len(names) == 2 or len(set(names)) < len(names):
        return None
    # Features and expert grades can have such columns too; a book has neither a grade nor an assessor.
    others = {name.casefold() for name in names[2:]}
    roles = {"query", *(name for role in ("assessor", "grade") for name in (role, *COLUMN_ALIASES[role]))}
    return None if others & roles else "quepid"
