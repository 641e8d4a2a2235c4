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
    NOT_LABELED,
    DelimitedSource,
    Source,
    is_text,
    is_unlabeled,
    kind_of_json,
    no_rows,
    only_label,
    opened,
    text_cell,
)

TOLOKA, MTURK = "ASSIGNMENT:worker_id", "AssignmentStatus"
"""Columns by which exports are recognized."""
USED_STATES = ("", "submitted", "accepted", "approved")
"""States of an assignment whose answers are used."""
UNUSED_STATES = ("rejected", "expired", "skipped", "active", "abandoned", "returned", "blocked")
"""States of an assignment whose answers are left out and counted by state; other states are counted as unknown."""
MAX_DEPTH = 100
"""Maximum nesting of a JSON document in which `judgmentRatings` are searched."""
IDS = ("query", "document", "assessor", "family")
LABEL_STUDIO_NAMES = ("document", "assessor", "grade")
"""Columns of a Label Studio export without a usable annotation."""
ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4}
"""Hours from UTC of the time zones that MTurk's site uses."""


class PlatformTable(DelimitedSource):
    """A table whose platform has its own column names; its columns have the names of roles and their own."""

    status: str  # column with the state of an assignment

    def __init__(self, path: str | Path, separator: str) -> None:
        super().__init__(path, separator)
        self._file_names = list(self.names)
        self._column_of = {**{name: name for name in self.names}, **self.roles()}
        self.names = list(dict.fromkeys((*self.roles(), *self.names)))
        self._used_rows = np.empty(0, np.int64)

    @abstractmethod
    def roles(self) -> dict[str, str]:
        """Return the column of the file for each role."""

    def fields(self, prefix: str) -> dict[str, str]:
        """Return the columns with a prefix, by their names without it."""
        return {name.removeprefix(prefix): name for name in self._file_names if name.startswith(prefix)}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns of the assignments that are used; count the others by their state."""
        columns = [self._column_of[name] for name in names]
        worker = self._column_of.get("assessor", "")
        filters = [name for name in (self.status, worker) if name in self._file_names]
        table = super().read(list(dict.fromkeys((*columns, *filters))), bad_rows)
        use = np.ones(len(table), bool)
        if self.status in filters:
            use &= _used_states(table[self.status], bad_rows)
        if worker in filters:  # tasks without a worker are not yet done
            assigned = np.asarray(_filled(table[worker]))
            bad_rows.count_left_out("no worker", int((use & ~assigned).sum()))
            use &= assigned
        self._used_rows = np.flatnonzero(use)
        table = table.take(pa.array(self._used_rows))
        return pa.table({name: self.cells(name, table[column]) for name, column in zip(names, columns, strict=True)})

    def cells(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column in the form that the reader expects."""
        return column

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return super().place(int(self._used_rows[row]) if len(self._used_rows) else row)


def _used_states(column: pa.ChunkedArray, bad_rows: BadRows) -> NDArray[np.bool_]:
    """Return a mask of the used assignments (n,); count the others by their state."""
    state = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(column, "")))
    used = np.asarray(pc.is_in(state, pa.array(USED_STATES)))
    for name, count in Counter(state.filter(pa.array(~used)).to_pylist()).items():
        bad_rows.count_left_out(
            f"assignment {name}" if name in UNUSED_STATES else "assignment in an unknown state", count
        )
    return used


class TolokaSource(PlatformTable):
    """Assignments of Toloka."""

    status = "ASSIGNMENT:status"

    def roles(self) -> dict[str, str]:
        """Return the columns by their names after INPUT: and OUTPUT:; a single output is the grade."""
        by_name = named_roles({**self.fields("OUTPUT:"), **self.fields("INPUT:")})
        outputs = self.fields("OUTPUT:")
        grade = next(iter(outputs.values())) if len(outputs) == 1 else by_name.get("grade")
        fixed = {"assessor": TOLOKA, "time": "ASSIGNMENT:submitted", "cost": "ASSIGNMENT:reward"}
        if grade is not None:
            fixed |= {"grade": grade, "honeypot": "GOLDEN:" + grade.removeprefix("OUTPUT:")}
        return {**by_name, **{role: name for role, name in fixed.items() if name in self._file_names}}


class MTurkSource(PlatformTable):
    """Batch results of MTurk."""

    status = MTURK
    units = MappingProxyType({"duration": "seconds", "cost": "US dollars"})

    def __init__(self, path: str | Path, separator: str) -> None:
        self._radio: dict[str, str] = {}
        super().__init__(path, separator)

    def roles(self) -> dict[str, str]:
        """Return the columns by their names after Input. and Answer.; a single answer or radio button is the grade."""
        by_name = named_roles({**self.fields("Answer."), **self.fields("Input.")})
        answers = self.fields("Answer.")
        groups = {name.rpartition(".")[0] for name in answers if "." in name}
        if len(groups) == 1 and all("." in name for name in answers) and len(answers) > 1:
            self._radio = {name: name.rpartition(".")[2] for name in answers.values()}
            by_name["grade"] = next(iter(self._radio))
        elif len(answers) == 1:
            by_name["grade"] = next(iter(answers.values()))
        fixed = {"assessor": "WorkerId", "time": "SubmitTime", "duration": "WorkTimeInSeconds", "cost": "Reward"}
        return {**by_name, **{role: name for role, name in fixed.items() if name in self._file_names}}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; the grade of a radio button is its selected value, or several joined by `|`."""
        table = super().read(names, bad_rows)
        if "grade" not in names or not self._radio:
            return table
        buttons = DelimitedSource.read(self, list(self._radio), BadRows("skip")).take(pa.array(self._used_rows))
        selected: list[list[str]] = [[] for _ in range(len(table))]
        for name, value in self._radio.items():
            for row, cell in enumerate(buttons[name].to_pylist()):
                if str(cell).strip().casefold() in ("true", "1", "on"):
                    selected[row].append(value)
        grades = pa.array(["|".join(values) or None for values in selected], pa.string())
        return table.set_column(list(names).index("grade"), "grade", grades)

    def cells(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column without the dollar sign of rewards, and times in ISO 8601."""
        if name == "time":
            return pa.chunked_array([pa.array([_mturk_time(cell) for cell in column.to_pylist()], pa.string())])
        return pc.utf8_ltrim(column, " $") if name == "cost" else column


def _mturk_time(cell: str | None) -> str | None:
    """Return a time of MTurk's site in ISO 8601; other cells are returned unchanged.

    >>> _mturk_time("Fri Nov 07 12:38:00 PST 2014"), _mturk_time("2019-12-01T13:04:59Z")
    ('2014-11-07T20:38:00Z', '2019-12-01T13:04:59Z')
    """
    words = (cell or "").split()
    if len(words) != 6 or words[4].upper() not in ZONES:
        return cell
    try:
        local = datetime.strptime(" ".join((*words[1:4], words[5])), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return cell
    return (local - timedelta(hours=ZONES[words[4].upper()])).isoformat().replace("+00:00", "Z")


class QuepidSource(DelimitedSource):
    """A book of Quepid: one column per rater."""

    def __init__(self, path: str | Path, separator: str) -> None:
        super().__init__(path, separator)
        self.raters = self.names[2:]
        self.names = ["query", "document", "assessor", "grade"]
        self._file_rows = np.empty(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return one row per rating; documents without a rating are left out and counted."""
        wide = super().read(["query", "docid", *self.raters], bad_rows)
        rated = np.column_stack([np.asarray(_filled(wide[name])) for name in self.raters])
        row, rater = np.nonzero(rated)
        if not len(row) and not bad_rows.skipped:
            raise no_rows(self.name)
        bad_rows.count_left_out("no rating", int((~rated.any(axis=1)).sum()))
        self._file_rows = row
        grades = [wide[name].to_pylist() for name in self.raters]
        columns = {
            "query": wide["query"].take(pa.array(row)),
            "document": wide["docid"].take(pa.array(row)),
            "assessor": pa.array([_without_guard(self.raters[one]) for one in rater], pa.string()),
            "grade": pa.array([grades[one][place] for place, one in zip(row, rater, strict=True)], pa.string()),
        }
        return pa.table({name: columns[name] for name in names})

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return super().place(int(self._file_rows[row]) if len(self._file_rows) else row)


def _without_guard(rater: str) -> str:
    """Remove the space that Quepid writes before names that a spreadsheet would run as a formula.

    >>> _without_guard(" =eve"), _without_guard(" ann")
    ('=eve', ' ann')
    """
    return rater[1:] if rater[0:1] == " " and rater[1:2] in tuple("-=+@") else rater


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")


def named_roles(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a platform by role, if the name of exactly one field fits the role.

    >>> named_roles({"docid": "INPUT:docid", "rating": "OUTPUT:rating", "text": "INPUT:text"})
    {'document': 'INPUT:docid', 'grade': 'OUTPUT:rating'}
    """
    columns: dict[str, str] = {}
    for role in ("query", "document", "grade", "honeypot", "family"):
        tiers = (ID_COLUMN_ALIASES.get(role, ()), (role,), COLUMN_ALIASES[role])
        matches = ([name for name in fields if name.casefold() in tier] for tier in tiers)
        names = next(filter(None, matches), [])
        if len(names) == 1:
            columns[role] = fields[names[0]]
    return columns


class JsonSource(Source):
    """A JSON document: tasks of Label Studio, a judgment list of OpenSearch, or a list of flat objects."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        with opened(path) as stream:
            value = _parsed(stream.read().decode("utf-8-sig"), self.name)
        self._row_places: list[str] = []
        self._places: list[str] = []
        self._malformed: list[InputError] = []
        self._left_out: Counter[str] = Counter()
        self._exact_columns: Sequence[str] | None = IDS  # in which 1 and "1" must not both occur; None is all
        self._rows = self._parse_rows(value)
        if not (self._rows or self._malformed or self._left_out):
            raise no_rows(self.name)
        self.names = list(dict.fromkeys(name for row in self._rows for name in row)) or list(LABEL_STUDIO_NAMES)
        unusable = next((name for name in self.names if not is_text(name)), None)
        if unusable is not None:
            raise InputError(f"the key {shown(unusable)} is not text", source=self.name, fix="rename it")

    def _parse_rows(self, value: Any) -> list[dict[str, Any]]:
        lists = list(self._judgment_lists(value))
        if any(isinstance(one, list | dict) for one in lists):
            self.has_assessor_column = False
            return [row for one in lists for row in self._ratings(one)]
        tasks = [value] if isinstance(value, dict) and "data" in value else value
        if isinstance(tasks, list) and any(isinstance(task, dict) and "data" in task for task in tasks):
            self.units = {"duration": "seconds"}
            return [row for number, task in enumerate(tasks) for row in self._answers(number, task)]
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            self._row_places = [f"object {number + 1}" for number in range(len(value))]
            self._exact_columns = None
            return value
        raise InputError(
            "it is JSON, but neither tasks of Label Studio, nor judgmentRatings of OpenSearch, nor a list of objects",
            source=self.name,
            kind="other-format",
            fix="export it as one of these, or as CSV",
        )

    def _judgment_lists(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """Yield every `judgmentRatings` of an import or of a search response."""
        if depth > MAX_DEPTH:
            problem = f"it is nested more than {MAX_DEPTH} levels deep"
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

    def _ratings(self, ratings: Any) -> Iterator[dict[str, Any]]:
        if not isinstance(ratings, list | dict):
            self._left_out["judgment list without ratings"] += 1
            return
        pairs = ratings.items() if isinstance(ratings, dict) else [_query_ratings(entry) for entry in ratings]
        for number, (query, rated) in enumerate(pairs):
            if rated == []:
                self._left_out["query without ratings"] += 1
            for one in rated if isinstance(rated, list) else [rated]:
                if not isinstance(one, dict) or "docId" not in one or "rating" not in one:
                    raise self._unexpected(
                        f"judgmentRatings {number + 1}", one, "a rating is an object with docId and rating"
                    )
                self._row_places.append(f"judgmentRatings {number + 1}")
                yield {"query": query, "document": one["docId"], "grade": one["rating"]}

    def _answers(self, number: int, task: Any) -> Iterator[dict[str, Any]]:
        place = f"task {number + 1}"
        annotations = task.get("annotations", task.get("completions", [])) if isinstance(task, dict) else None
        if not isinstance(annotations, list) or not isinstance(task.get("data"), dict):
            raise self._unexpected(place, task, "a task has data and a list of annotations")
        data = {name: value for name, value in task["data"].items() if not isinstance(value, list | dict)}
        item = {role: data[name] for role, name in named_roles({name: name for name in data}).items()}
        if "document" not in item and task.get("id") is not None:
            item["document"] = task["id"]
        used = self._used_annotations(place, task, annotations)
        truth = next((_answer(one) for one in used if one.get("ground_truth")), None)
        for one in used:
            if one.get("ground_truth"):
                self._left_out["ground-truth annotation"] += 1
                continue
            assessor = one.get("completed_by")
            assessor = assessor.get("email", assessor.get("id")) if isinstance(assessor, dict) else assessor
            row = {**item, "assessor": assessor, "grade": _answer(one), "time": one.get("created_at")}
            row["duration"] = one.get("lead_time")
            if truth is not None:
                row["honeypot"] = truth
            self._row_places.append(place)
            yield row

    def _used_annotations(self, place: str, task: dict[str, Any], annotations: list[Any]) -> list[dict[str, Any]]:
        """Return the annotations that are objects and not canceled; count the others, and the predictions."""
        objects = [one for one in annotations if isinstance(one, dict)]
        self._malformed += [
            self._unexpected(place, one, "an annotation is an object with completed_by and a result")
            for one in annotations
            if not isinstance(one, dict)
        ]
        predictions = task.get("predictions")
        used = [one for one in objects if not one.get("was_canceled")]
        self._left_out += Counter(
            {
                "annotation canceled": len(objects) - len(used),
                "task without annotations": int(not annotations),
                "prediction": len(predictions) if isinstance(predictions, list) else 0,
            }
        )
        return used

    def _unexpected(self, place: str, value: Any, fix: str) -> InputError:
        return InputError(f"{shown(value)} is not expected here", source=self.name, place=place, fix=fix)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        for error in self._malformed:
            bad_rows.count_malformed(error)
        for reason, count in self._left_out.items():
            bad_rows.count_left_out(reason, count)
        labeled = [number for number, row in enumerate(self._rows) if not is_unlabeled(row, names)]
        bad_rows.count_left_out(NOT_LABELED, len(self._rows) - len(labeled))
        self._places = [self._row_places[number] for number in labeled]
        rows = [self._rows[number] for number in labeled]
        return pa.table({name: pa.array(self._column(name, rows), pa.string()) for name in names})

    def _column(self, name: str, rows: list[dict[str, Any]]) -> list[str | None]:
        """Return the cells of a column as text; raise InputError if a number and a text become the same id."""
        exact = self._exact_columns is None or name in self._exact_columns
        kinds: dict[str, str] = {}
        cells = []
        for number, row in enumerate(rows):
            value = only_label(name, row.get(name))
            text = text_cell(value)
            cells.append(text)
            if text is None:
                continue
            if not is_text(text):
                raise self._unusable(number, name, f"{shown(value)} is not text", "write it without lone surrogates")
            if exact and kinds.setdefault(text, kind_of_json(value)) != kind_of_json(value):
                problem = f"{text} occurs as a number and as text, which may be two ids"
                raise self._unusable(number, name, problem, "write it as one type everywhere")
        return cells

    def _unusable(self, row: int, name: str, problem: str, fix: str) -> InputError:
        return InputError(problem, source=self.name, place=self.place(row), column=name, fix=fix)

    def place(self, row: int) -> str:
        """Return the task or object of a row."""
        return self._places[row]


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        one_per_line = Fix("if it has one object per line, give {}", "format", "jsonl")
        raise InputError("it is not JSON", source=source, fix=["correct it", one_per_line]) from problem


def _query_ratings(entry: Any) -> tuple[Any, Any]:
    return (entry.get("query"), entry.get("ratings")) if isinstance(entry, dict) else (None, None)


def _answer(annotation: Mapping[str, Any]) -> Any:
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


TABLES: Mapping[str, Callable[[str | Path, str], Source]] = {
    "toloka": TolokaSource,
    "mturk": MTurkSource,
    "quepid": QuepidSource,
}
"""Sources of platforms that export tables."""


def platform_of(table: Source) -> str | None:
    r"""Return the platform that exported a table, by its header, or None.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "book.csv"
    >>> _ = path.write_text("query,docid,ann,bob\njam,d1,2,\n")
    >>> platform_of(DelimitedSource(path))
    'quepid'
    """
    names = table.names
    if TOLOKA in names:
        return "toloka"
    if MTURK in names and "WorkerId" in names:
        return "mturk"
    if names[:2] != ["query", "docid"] or len(names) == 2 or len(set(names)) < len(names):
        return None
    # Features and expert grades can have such columns too; a book has neither a grade nor an assessor.
    others = {name.casefold() for name in names[2:]}
    roles = {"query", *(name for role in ("assessor", "grade") for name in (role, *COLUMN_ALIASES[role]))}
    return None if others & roles else "quepid"
