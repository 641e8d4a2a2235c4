"""What judging platforms export, read as they export it: Label Studio, Toloka, MTurk, Quepid, OpenSearch.

Each is recognized by what only it has. The layouts are those of the platforms' own documentation and code:

- Label Studio (labelstud.io/guide/task_format): a list of tasks with `data` and `annotations`; each annotation has
  `completed_by` (a number, or an object with an email), `was_canceled`, `ground_truth`, `lead_time` in seconds, and a
  `result` of regions whose `value` holds `choices` or a `rating`. JSON-MIN is a list of flat objects.
- Toloka (assignments TSV): INPUT:, OUTPUT:, GOLDEN: and HINT: columns of the task, and ASSIGNMENT: columns
  (worker_id, status, started, submitted, reward, ...).
- MTurk (batch results CSV): HITId, WorkerId, AssignmentStatus, SubmitTime, WorkTimeInSeconds, Reward, and a column
  Input.NAME or Answer.NAME for each field; of a radio button one column Answer.NAME.VALUE for each value, true or
  false. The requester's site writes times as Fri Nov 07 12:38:00 PST 2014, the API as 2019-12-01T13:04:59Z.
- Quepid (book export CSV): query, docid, then one column for each rater, blank where they did not judge.
- OpenSearch (Search Relevance Workbench): `judgmentRatings`, a list of `query` and `ratings` of `docId` and `rating`
  (in early versions a mapping from the query to its ratings).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank.errors import InputError, shown
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ALIASES
from crowdrank.judgments.limits import lines_of
from crowdrank.judgments.sources import (
    LARGEST_EXACT,
    DelimitedSource,
    Source,
    is_text,
    kind_of_json,
    no_rows,
    opened,
)

TOLOKA, MTURK = "ASSIGNMENT:worker_id", "AssignmentStatus"
KEPT = ("", "submitted", "accepted", "approved")
"""States of an assignment whose answers are used."""
LEFT_OUT = ("rejected", "expired", "skipped", "active", "abandoned", "returned", "blocked")
"""States of an assignment whose answers are left out, and counted by state; any other state is counted as unknown."""
MOST_DEPTH = 100
"""Maximum nesting of a JSON document in which `judgmentRatings` are searched."""
IDS = ("query", "document", "assessor", "family")
LABEL_STUDIO_NAMES = ("document", "assessor", "grade")
"""Columns of a Label Studio export in which no annotation can be used."""
ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4}
"""Hours from UTC of the zones that MTurk's site writes times in: that of Seattle unless told otherwise."""


class PlatformTable(DelimitedSource):
    """A table in which a platform names columns its own way; those are known by their roles, and by their own names."""

    status: str  # the column of the state of an assignment

    def __init__(self, path: str | Path, separator: str) -> None:
        super().__init__(path, separator)
        self._file_names = list(self.names)
        self._of = {**{name: name for name in self.names}, **self.roles()}
        self.names = list(dict.fromkeys((*self.roles(), *self.names)))
        self._kept = np.empty(0, np.int64)

    @abstractmethod
    def roles(self) -> dict[str, str]:
        """For each role the file's column that plays it."""

    def fields(self, prefix: str) -> dict[str, str]:
        """The columns that begin so, by what comes after."""
        return {name.removeprefix(prefix): name for name in self._file_names if name.startswith(prefix)}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns of the assignments that are used; count the others by their state."""
        asked = [self._of[name] for name in names]
        worker = self._of.get("assessor", "")
        also = [name for name in (self.status, worker) if name in self._file_names]
        table = super().read(list(dict.fromkeys((*asked, *also))), bad_rows)
        keep = np.ones(len(table), bool)
        if self.status in also:
            keep &= _used_states(table[self.status], bad_rows)
        if worker in also:  # tasks that nobody took
            taken = np.asarray(_filled(table[worker]))
            bad_rows.leave_out("no worker", int((keep & ~taken).sum()))
            keep &= taken
        self._kept = np.flatnonzero(keep)
        table = table.take(pa.array(self._kept))
        return pa.table({name: self.cells(name, table[of]) for name, of in zip(names, asked, strict=True)})

    def cells(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column as the reader takes it."""
        return column

    def place(self, row: int) -> str:
        """The row of the file."""
        return super().place(int(self._kept[row]) if len(self._kept) else row)


def _used_states(column: pa.ChunkedArray, bad_rows: BadRows) -> NDArray[np.bool_]:
    """Return which assignments are used (n,); count the others by their state."""
    state = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(column, "")))
    used = np.asarray(pc.is_in(state, pa.array(KEPT)))
    for name, count in Counter(state.filter(pa.array(~used)).to_pylist()).items():
        bad_rows.leave_out(f"assignment {name}" if name in LEFT_OUT else "assignment in an unknown state", count)
    return used


class TolokaSource(PlatformTable):
    """Toloka's assignments."""

    status = "ASSIGNMENT:status"

    def roles(self) -> dict[str, str]:
        """By their names behind INPUT: and OUTPUT:; the only output is the grade."""
        found = named_roles({**self.fields("OUTPUT:"), **self.fields("INPUT:")})
        outputs = self.fields("OUTPUT:")
        grade = next(iter(outputs.values())) if len(outputs) == 1 else found.get("grade")
        told = {"assessor": TOLOKA, "time": "ASSIGNMENT:submitted", "cost": "ASSIGNMENT:reward"}
        if grade is not None:
            told |= {"grade": grade, "honeypot": "GOLDEN:" + grade.removeprefix("OUTPUT:")}
        return {**found, **{role: name for role, name in told.items() if name in self._file_names}}


class MTurkSource(PlatformTable):
    """MTurk's batch results."""

    status = MTURK
    units = MappingProxyType({"duration": "seconds", "cost": "US dollars"})

    def __init__(self, path: str | Path, separator: str) -> None:
        self._radio: dict[str, str] = {}
        super().__init__(path, separator)

    def roles(self) -> dict[str, str]:
        """By their names behind Input. and Answer.; the only answer, or the only radio button, is the grade."""
        found = named_roles({**self.fields("Answer."), **self.fields("Input.")})
        answers = self.fields("Answer.")
        groups = {name.rpartition(".")[0] for name in answers if "." in name}
        if len(groups) == 1 and all("." in name for name in answers) and len(answers) > 1:
            self._radio = {name: name.rpartition(".")[2] for name in answers.values()}
            found["grade"] = next(iter(self._radio))
        elif len(answers) == 1:
            found["grade"] = next(iter(answers.values()))
        told = {
            "assessor": "WorkerId",
            "time": "SubmitTime",
            "duration": "WorkTimeInSeconds",
            "cost": "Reward",
        }
        return {**found, **{role: name for role, name in told.items() if name in self._file_names}}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns; the grade of a radio button is its ticked value, or all of them joined by `|`."""
        table = super().read(names, bad_rows)
        if "grade" not in names or not self._radio:
            return table
        ticked = DelimitedSource.read(self, list(self._radio), BadRows("skip")).take(pa.array(self._kept))
        chosen: list[list[str]] = [[] for _ in range(len(table))]
        for name, value in self._radio.items():
            for row, cell in enumerate(ticked[name].to_pylist()):
                if str(cell).strip().casefold() in ("true", "1", "on"):
                    chosen[row].append(value)
        grades = pa.array(["|".join(values) or None for values in chosen], pa.string())
        return table.set_column(list(names).index("grade"), "grade", grades)

    def cells(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A reward is written as $0.05, a time as Fri Nov 07 12:38:00 PST 2014."""
        if name == "time":
            return pa.chunked_array([pa.array([_mturk_time(cell) for cell in column.to_pylist()], pa.string())])
        return pc.utf8_ltrim(column, " $") if name == "cost" else column


def _mturk_time(cell: str | None) -> str | None:
    """A time of MTurk's site by ISO 8601; any other is left as it is.

    >>> _mturk_time("Fri Nov 07 12:38:00 PST 2014"), _mturk_time("2019-12-01T13:04:59Z")
    ('2014-11-07T20:38:00Z', '2019-12-01T13:04:59Z')
    """
    words = (cell or "").split()
    if len(words) != 6 or words[4].upper() not in ZONES:
        return cell
    try:
        told = datetime.strptime(" ".join((*words[1:4], words[5])), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return cell
    return (told - timedelta(hours=ZONES[words[4].upper()])).isoformat().replace("+00:00", "Z")


class QuepidSource(DelimitedSource):
    """Quepid's book: a column for each rater."""

    def __init__(self, path: str | Path, separator: str = ",") -> None:
        super().__init__(path, separator)
        self.raters = self.names[2:]
        self.names = ["query", "document", "assessor", "grade"]
        self._row = np.empty(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return one row for each rating; a document without a rating is left out and counted."""
        wide = super().read(["query", "docid", *self.raters], bad_rows)
        rated = np.column_stack([np.asarray(_filled(wide[name])) for name in self.raters])
        row, rater = np.nonzero(rated)
        if not len(row) and not bad_rows.skipped:
            raise no_rows(self.name)
        bad_rows.leave_out("no rating", int((~rated.any(axis=1)).sum()))
        self._row = row
        grades = [wide[name].to_pylist() for name in self.raters]
        columns = {
            "query": wide["query"].take(pa.array(row)),
            "document": wide["docid"].take(pa.array(row)),
            "assessor": pa.array([_without_guard(self.raters[one]) for one in rater], pa.string()),
            "grade": pa.array([grades[one][place] for place, one in zip(row, rater, strict=True)], pa.string()),
        }
        return pa.table({name: columns[name] for name in names})

    def place(self, row: int) -> str:
        """The row of the file."""
        return super().place(int(self._row[row]) if len(self._row) else row)


def _without_guard(rater: str) -> str:
    """Remove the space that Quepid writes before a name that a spreadsheet would take for a formula.

    >>> _without_guard(" =eve"), _without_guard(" ann")
    ('=eve', ' ann')
    """
    return rater[1:] if rater[0:1] == " " and rater[1:2] in tuple("-=+@") else rater


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")


def named_roles(fields: Mapping[str, str]) -> dict[str, str]:
    """Which of a platform's fields plays which role, by the names that the field uses.

    >>> named_roles({"docid": "INPUT:docid", "rating": "OUTPUT:rating", "text": "INPUT:text"})
    {'document': 'INPUT:docid', 'grade': 'OUTPUT:rating'}
    """
    found: dict[str, str] = {}
    for role in ("query", "document", "grade", "honeypot", "family"):
        names = [name for name in fields if name.casefold() == role]
        names = names or [name for name in fields if name.casefold() in ALIASES[role]]
        if len(names) == 1:
            found[role] = fields[names[0]]
    return found


class JsonSource(Source):
    """A whole JSON document: tasks of Label Studio, a judgment list of OpenSearch, or a list of flat objects."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        with opened(path) as stream:
            value = _parsed(stream.read().decode("utf-8-sig"), self.name)
        self._places: list[str] = []
        self._malformed: list[InputError] = []
        self._left_out: Counter[str] = Counter()
        self._checked: Sequence[str] | None = IDS  # the columns in which 1 and "1" must not meet; None is all
        self._rows, self.has_assessor = self._understood(value)
        if not (self._rows or self._malformed or self._left_out):
            raise no_rows(self.name)
        self.names = list(dict.fromkeys(name for row in self._rows for name in row)) or list(LABEL_STUDIO_NAMES)
        unusable = next((name for name in self.names if not is_text(name)), None)
        if unusable is not None:
            raise InputError(f"the key {shown(unusable)} is not text", source=self.name, fix="rename it")

    def _understood(self, value: Any) -> tuple[list[dict[str, Any]], bool]:
        lists = list(self._judgment_lists(value))
        if any(isinstance(one, list | dict) for one in lists):
            return [row for one in lists for row in self._ratings(one)], False
        tasks = [value] if isinstance(value, dict) and "data" in value else value
        if isinstance(tasks, list) and any(isinstance(task, dict) and "data" in task for task in tasks):
            self.units = {"duration": "seconds"}
            return [row for number, task in enumerate(tasks) for row in self._answers(number, task)], True
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            self._places = [f"object {number + 1}" for number in range(len(value))]
            self._checked = None
            return value, True
        raise InputError(
            "it is JSON, but neither Label Studio's tasks, nor OpenSearch's judgmentRatings, nor a list of objects",
            source=self.name,
            fix="export it as one of these, or as CSV",
        )

    def _judgment_lists(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """Yield every `judgmentRatings` of an import, or of the answer to a search for judgments."""
        if depth > MOST_DEPTH:
            problem = f"it is nested more than {MOST_DEPTH} levels deep"
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
                    raise self._wrong(f"judgmentRatings {number + 1}", one, "a rating is an object of docId and rating")
                self._places.append(f"judgmentRatings {number + 1}")
                yield {"query": query, "document": one["docId"], "grade": one["rating"]}

    def _answers(self, number: int, task: Any) -> Iterator[dict[str, Any]]:
        where = f"task {number + 1}"
        annotations = task.get("annotations", task.get("completions", [])) if isinstance(task, dict) else None
        if not isinstance(annotations, list) or not isinstance(task.get("data"), dict):
            raise self._wrong(where, task, "a task has data and a list of annotations")
        data = {name: value for name, value in task["data"].items() if not isinstance(value, list | dict)}
        known = {role: data[name] for role, name in named_roles({name: name for name in data}).items()}
        if "document" not in known and task.get("id") is not None:
            known["document"] = task["id"]
        used = self._used_annotations(where, task, annotations)
        truth = next((_answer(one) for one in used if one.get("ground_truth")), None)
        for one in used:
            if one.get("ground_truth"):
                self._left_out["ground-truth annotation"] += 1
                continue
            who = one.get("completed_by")
            who = who.get("email", who.get("id")) if isinstance(who, dict) else who
            row = {**known, "assessor": who, "grade": _answer(one), "time": one.get("created_at")}
            row["duration"] = one.get("lead_time")
            if truth is not None:
                row["honeypot"] = truth
            self._places.append(where)
            yield row

    def _used_annotations(self, where: str, task: dict[str, Any], annotations: list[Any]) -> list[dict[str, Any]]:
        """Return the annotations that are objects and not canceled; count the others, and the predictions."""
        objects = [one for one in annotations if isinstance(one, dict)]
        self._malformed += [
            self._wrong(where, one, "an annotation is an object with completed_by and a result")
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

    def _wrong(self, place: str, value: Any, remedy: str) -> InputError:
        return InputError(f"{shown(value)} is not what belongs there", source=self.name, place=place, fix=remedy)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns named, every cell as text."""
        for error in self._malformed:
            bad_rows.malformed(error)
        for reason, count in self._left_out.items():
            bad_rows.leave_out(reason, count)
        return pa.table({name: pa.array(self._column(name), pa.string()) for name in names})

    def _column(self, name: str) -> list[str | None]:
        """Return the cells of a column as text; refuse a number and a text that would become the same id."""
        exact = self._checked is None or name in self._checked
        kinds: dict[str, str] = {}
        cells = []
        for number, row in enumerate(self._rows):
            value = row.get(name)
            text = _cell(value)
            cells.append(text)
            if text is None:
                continue
            if not is_text(text):
                raise self._unusable(number, name, f"{shown(value)} is not text", "write it without lone surrogates")
            if exact and kinds.setdefault(text, kind_of_json(value)) != kind_of_json(value):
                problem = f"{text} is here both a number and a text, which may be two ids"
                raise self._unusable(number, name, problem, "write it as one type everywhere")
        return cells

    def _unusable(self, row: int, name: str, problem: str, remedy: str) -> InputError:
        return InputError(problem, source=self.name, place=self.place(row), column=name, fix=remedy)

    def place(self, row: int) -> str:
        """The task or object that a row comes from."""
        return self._places[row]


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        remedy = "mend it; one object a line is JSON Lines (.jsonl)"
        raise InputError("it is not JSON", source=source, fix=remedy) from problem


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
            told = value.get(name)
            told = told[0] if isinstance(told, list) and told else told
            if told is not None and not isinstance(told, list | dict):
                return told
    return None


def _cell(value: Any) -> str | None:
    """Return a JSON value as text; a list, an object, null and NaN are no cell.

    >>> _cell(1), _cell(1.0), _cell(0.5), _cell("1 "), _cell([1])
    ('1', '1', '0.5', '1 ', None)
    """
    if value is None or isinstance(value, list | dict) or value != value:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_EXACT:
        return str(int(value))
    return str(value)


def platform_of(source: Source) -> str | None:
    r"""The platform whose export a table is, by its header; None where it is nobody's in particular.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "book.csv"
    >>> _ = path.write_text("query,docid,ann,bob\njam,d1,2,\n")
    >>> platform_of(DelimitedSource(path))
    'quepid'
    """
    names = source.names
    if TOLOKA in names:
        return "toloka"
    if MTURK in names and "WorkerId" in names:
        return "mturk"
    roles = {"query", *(alias for role in ("assessor", "grade") for alias in (role, *ALIASES[role]))}
    if names[:2] == ["query", "docid"] and len(names) > 2:
        others = {name.casefold() for name in names[2:]}
        # Features and expert grades have such columns too: a book has neither grade nor assessor.
        return None if others & roles or len(set(names)) < len(names) else "quepid"
    return None


def looks_like(path: str | Path) -> str | None:
    """The format of a file whose name does not tell: by its first line with anything on it."""
    with opened(path) as stream:
        lines = (raw.decode().strip() for _, raw in lines_of(stream, str(path)))
        line = next((text for text in lines if text), "")
    words = line.split()
    if len(words) > 1 and words[1].startswith("qid:"):
        return "letor"
    if line.startswith(("[", "{")):
        return "json"
    if "\t" in line and (TOLOKA in line or "WorkerId" in line):
        return "tsv"
    if len(words) == 4 and "," not in line and _is_number(words[3]) and _is_number(words[1]):
        return "qrels"
    return "run" if len(words) == 6 and words[1].upper() == "Q0" else None


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdigit()
