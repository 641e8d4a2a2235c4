"""Read JSON Lines (doccano) and JSON documents: tasks of Label Studio, judgment lists of OpenSearch, flat objects.

- Label Studio (labelstud.io/guide/task_format): a list of tasks with `data` and `annotations`; each annotation has
  `completed_by` (a number, or an object with an email), `was_canceled`, `ground_truth`, `lead_time` in seconds, and a
  `result` of regions whose `value` holds `choices` or a `rating`, the answer to the question `from_name`. JSON-MIN is a
  list of flat objects.
- OpenSearch (Search Relevance Workbench): `judgmentRatings`, a list of `query` and `ratings` of `docId` and `rating`
  (in early versions a mapping from the query to its ratings). `failures` lists documents that the LLM did not rate.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from crowdrank.errors import Fix, InputError, Location, Message, shown
from crowdrank.judgments.columns import GRADE_LIKE_COLUMNS, ID_COLUMN_NAMES
from crowdrank.readers.files import FileHead, FileSource, batched, numbered_lines, open_decompressed
from crowdrank.readers.platforms import match_roles
from crowdrank.readers.sources import SKIP_BAD_ROWS, BadRows, no_rows_error

MAX_EXACT_INTEGER = 2**53
"""Largest integer up to which a float64 holds every integer exactly."""
NOT_LABELED_REASON = "not labeled"
"""Reason under which rows with an empty list of labels are counted."""
SEVERAL_LABELS_REASON = "several labels"
"""Reason under which rows with a list of different labels are counted."""


class JsonLinesSource(FileSource):
    """Text file with one JSON object per line; a list with one label, as doccano exports it, is read as the label."""

    has_user_columns = True

    def __init__(self, file: str | Path | FileHead) -> None:
        super().__init__(file)
        self._lines: list[int] = []
        with open_decompressed(self.head) as stream:
            # All lines are scanned for keys: writers leave out the key of a blank value.
            rows = self._read_objects(stream, BadRows("skip"))
            self.names = list(dict.fromkeys(key for _, row in rows for key in row))
        if not self.names:
            with open_decompressed(self.head) as stream:
                _ = list(self._read_objects(stream, BadRows()))  # raises the error of the first line
            raise no_rows_error(self.name)

    def _read_objects(self, stream: BinaryIO, bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the object of each line."""
        for line_number, line in numbered_lines(stream, self.name):
            text = line.decode().strip()
            if not text:
                continue
            value, problem = _parse_json_object(text)
            if value is not None:
                yield line_number, value
            else:
                fixes = ("correct it", SKIP_BAD_ROWS)
                bad_rows.count_malformed(InputError(problem, source=self.name, place=f"line {line_number}", fix=fixes))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; a missing key becomes null."""
        self._first_row = 0
        return self._to_table(self._labeled_rows(names, bad_rows), names)

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows."""
        batches = batched(self._labeled_rows(names, BadRows()), n_rows)
        return self._count_rows(self._to_table(rows, names) for rows in batches)

    def _labeled_rows(self, names: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line number and the object of each line that has labels."""
        with open_decompressed(self.head) as stream:
            for line_number, row in self._read_objects(stream, bad_rows):
                if reason := label_problem(row, names):
                    bad_rows.count_left_out(reason, 1)
                else:
                    yield line_number, row

    def _to_table(self, rows: Iterable[tuple[int, dict[str, Any]]], names: Sequence[str]) -> pa.Table:
        """Return the columns `names` of objects, and store their line numbers for `locate_row`."""
        self._lines = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for line_number, row in rows:
            self._lines.append(line_number)
            for name, column in columns.items():
                column.append(unwrap_label(name, row.get(name)))
        return pa.table({name: self._typed_column(name, cells) for name, cells in columns.items()})

    def _typed_column(self, name: str, cells: list[Any]) -> pa.Array:
        """Return the cells of a column as an Arrow array; raise InputError if they are not of one JSON type."""
        kind = ""
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if json_type(cell) not in (kind or json_type(cell), ""):
                raise self._type_error(row, name, cell, "has another type than the values before it")
            kind = json_type(cell)
            if not kind:
                raise self._type_error(row, name, cell, "is a list or an object")
        if any(type(cell) is float for cell in cells):
            inexact = [row for row, cell in enumerate(cells) if type(cell) is int and not _is_exact_float(cell)]
            if inexact:
                problem = "cannot be stored exactly in a column that also has numbers with a decimal point"
                raise self._type_error(inexact[0], name, cells[inexact[0]], problem, "write the column as text")
        try:
            return _to_arrow_column(cells)
        except UnicodeEncodeError as problem:
            row = next(row for row, cell in enumerate(cells) if cell is not None and not is_encodable(cell))
            raise self._type_error(row, name, cells[row], "is not text") from problem

    def _type_error(
        self, row: int, column: str, cell: Any, problem: str, fix: str = "make the column all text or all numbers"
    ) -> InputError:
        return self.cell_error(row, column, f"{shown(cell)} {problem}", fix)

    def locate_row(self, row: int) -> str:
        """Return the location of a row for errors: its number, and its line in the file."""
        return f"row {self._first_row + row + 1} (line {self._lines[row]})"


def label_problem(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return why a row cannot be used if one of the columns `names` has a list of no or several labels, or None.

    >>> [label_problem({"label": labels, "Comments": []}, ["label"]) for labels in ([], ["2"], ["1", "2"])]
    ['not labeled', None, 'several labels']
    """
    numbers = [len(labels) for name in names if (labels := _distinct_labels(name, row.get(name))) is not None]
    return NOT_LABELED_REASON if 0 in numbers else SEVERAL_LABELS_REASON if max(numbers, default=1) > 1 else None


def unwrap_label(column: str, cell: Any) -> Any:
    """Return the label in a cell that may be a list with one label, as doccano exports them; others are unchanged.

    >>> [unwrap_label("label", value) for value in (["2"], [[0, 5, "2"]], "2")]
    ['2', '2', '2']
    """
    labels = _distinct_labels(column, cell)
    return labels[0] if labels else cell


def _distinct_labels(column: str, cell: Any) -> list[Any] | None:
    """Return the different labels in a list of labels; None if the cell is something else."""
    if not isinstance(cell, list) or column.casefold() in ID_COLUMN_NAMES:
        return None
    # A label of a span is [start, end, label].
    labels = [label[2] if isinstance(label, list) and len(label) == 3 else label for label in cell]
    return list(dict.fromkeys(labels)) if all(isinstance(label, str | int | float) for label in labels) else None


class JsonError(ValueError):
    """A JSON text has a key twice in an object, or a number that would be changed by reading it."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; raise ValueError if it is no JSON, or JsonError if a part would be lost.

    >>> parse_json('{"id": 9007199254740993.0}')
    {'id': '9007199254740993.0'}
    """
    return json.loads(text, parse_float=_parse_float, object_pairs_hook=_object_with_unique_keys)


def _parse_float(text: str) -> float | str:
    """Return a number with a decimal point, as text if it is a whole number that a float64 does not hold exactly."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise JsonError(f"the number {shown(text)[1:-1]} is too large")
    return text if abs(number) >= MAX_EXACT_INTEGER and "e" not in text.casefold() else number


def _object_with_unique_keys(keys_and_values: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise JsonError if a key occurs twice."""
    unique = dict(keys_and_values)
    if len(unique) < len(keys_and_values):
        names = [name for name, _ in keys_and_values]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {shown(twice)} occurs twice in one object")
    return unique


def _parse_json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object in a line, or None and what is wrong with the line."""
    try:
        value = parse_json(text)
    except JsonError as problem:
        return None, str(problem)
    except (ValueError, RecursionError):
        return None, f"{shown(text)} is not JSON"
    if not isinstance(value, dict):
        return None, "the line is JSON but not an object"
    # A lone surrogate can only come from an escape.
    unusable = next((key for key in value if not is_encodable(key)), None) if "\\u" in text else None
    return (value, "") if unusable is None else (None, f"the key {shown(unusable)} is not text")


def json_type(cell: Any) -> str:
    """Return the kind of a JSON value: "text", "truth" for a boolean, "number", or "" for a list or an object."""
    return {str: "text", bool: "truth", int: "number", float: "number"}.get(type(cell), "")


def cell_to_text(cell: Any) -> str | None:
    """Return a JSON or Excel value as text, or None for a list, an object, null and NaN.

    >>> cell_to_text(1), cell_to_text(1.0), cell_to_text(0.5), cell_to_text("1 "), cell_to_text([1])
    ('1', '1', '0.5', '1 ', None)
    """
    if cell is None or isinstance(cell, list | dict) or cell != cell:
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < MAX_EXACT_INTEGER:
        return str(int(cell))
    return str(cell)


def _is_exact_float(number: int) -> bool:
    """Return whether a float64 holds an integer exactly."""
    return abs(number) <= MAX_EXACT_INTEGER or (abs(number) < 10**300 and int(float(number)) == number)


def _to_arrow_column(cells: list[Any]) -> pa.Array:
    """Return cells of one JSON type as an Arrow array; integers that do not fit into int64 become text."""
    if all(cell is None or type(cell) is int for cell in cells):
        fits = all(cell is None or abs(cell) < 2**63 for cell in cells)
        return pa.array(cells if fits else [None if cell is None else str(cell) for cell in cells])
    if any(type(cell) is float for cell in cells):
        return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array(cells)


def is_encodable(cell: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    if cell.isascii():
        return True
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


MAX_JSON_DEPTH = 100
"""Maximum nesting depth of a JSON document in which `judgmentRatings` are searched."""
JSON_ID_COLUMNS = ("query", "document", "assessor", "family")
"""Columns that hold ids, in which the number 1 and the text "1" must not both occur."""
ANSWER_KINDS = ("choices", "rating", "number", "text")
"""Kinds of answers of Label Studio, which are keys of the value of a region."""
ANSWERS_KEY, TRUE_ANSWERS_KEY = "answers", "true answers"
"""Keys under which the answers of an annotation are kept until the question for the grade is known."""
LABEL_STUDIO_COLUMNS = ("query", "document", "assessor", "family", "time", "duration", "honeypot")
"""Columns of a Label Studio export that are not answers."""
EMPTY_EXPORT_COLUMNS = ("document", "assessor", "grade")
"""Columns of a Label Studio export in which no annotation can be used."""


class JsonSource(FileSource):
    """A JSON document: tasks of Label Studio, a judgment list of OpenSearch, or a list of flat objects."""

    def __init__(self, file: str | Path | FileHead) -> None:
        super().__init__(file)
        with open_decompressed(self.head) as stream:
            value = _parse_json(stream.read().decode("utf-8-sig"), self.name)
        self._object_locations: list[str] = []
        self._row_locations: list[str] = []
        self._malformed: list[InputError] = []
        self._left_out: Counter[str] = Counter()
        self._id_columns: Sequence[str] | None = JSON_ID_COLUMNS  # None: all columns
        self._rows = self._parse_rows(value)
        if not (self._rows or self._malformed or self._left_out):
            raise no_rows_error(self.name)
        self.names = list(dict.fromkeys(name for row in self._rows for name in row)) or list(EMPTY_EXPORT_COLUMNS)
        unusable = next((name for name in self.names if not is_encodable(name)), None)
        if unusable is not None:
            raise InputError(f"the key {shown(unusable)} is not text", source=self.name, fix="rename it")

    def _parse_rows(self, value: Any) -> list[dict[str, Any]]:
        """Return a row for each judgment in a JSON document, and store the location of each."""
        lists = list(self._judgment_lists(value))
        if any(isinstance(judgment_list, list | dict) for judgment_list in lists):
            self.has_assessor_column = False
            return [row for judgment_list in lists for row in self._opensearch_rows(judgment_list)]
        tasks = [value] if isinstance(value, dict) and "data" in value else value
        if isinstance(tasks, list) and any(isinstance(task, dict) and "data" in task for task in tasks):
            self.units = {"duration": "seconds"}
            rows = [row for task_index, task in enumerate(tasks) for row in self._label_studio_rows(task_index, task)]
            return [{**row, **answers} for row, answers in zip(rows, self._assign_answer_columns(rows), strict=True)]
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            self._object_locations = [f"object {index + 1}" for index in range(len(value))]
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
        self._left_out["document that the LLM did not rate"] += sum(map(_count_failures, judgment_list))
        entries = list(judgment_list.items()) if isinstance(judgment_list, dict) else map(_query_ratings, judgment_list)
        for query_index, (query, ratings) in enumerate(entries):
            location = f"judgmentRatings {query_index + 1}"
            if ratings == []:
                self._left_out["query without ratings"] += 1
            for rating in ratings if isinstance(ratings, list) else [ratings]:
                if not isinstance(rating, dict) or "docId" not in rating or "rating" not in rating:
                    raise self._unexpected_value_error(location, rating, "a rating is an object with docId and rating")
                self._object_locations.append(location)
                yield {"query": query, "document": rating["docId"], "grade": rating["rating"]}

    def _label_studio_rows(self, task_index: int, task: Any) -> Iterator[dict[str, Any]]:
        """Yield a row for each annotation of a task of Label Studio."""
        location = f"task {task_index + 1}"
        annotations = task.get("annotations", task.get("completions", [])) if isinstance(task, dict) else None
        if not isinstance(annotations, list) or not isinstance(task.get("data"), dict):
            raise self._unexpected_value_error(location, task, "a task has data and a list of annotations")
        data = {name: value for name, value in task["data"].items() if not isinstance(value, list | dict)}
        item_ids = {role: data[name] for role, name in match_roles({name: name for name in data}).items()}
        if "document" not in item_ids and task.get("id") is not None:
            item_ids["document"] = task["id"]
        used_annotations = self._submitted_annotations(location, task, annotations)
        true_answers = next(
            (_annotation_answers(annotation) for annotation in used_annotations if annotation.get("ground_truth")), {}
        )
        for annotation in used_annotations:
            if annotation.get("ground_truth"):
                self._left_out["ground-truth annotation"] += 1
                continue
            assessor = annotation.get("completed_by")
            assessor = assessor.get("email", assessor.get("id")) if isinstance(assessor, dict) else assessor
            self._object_locations.append(location)
            yield {
                **item_ids,
                "assessor": assessor,
                "time": annotation.get("created_at"),
                "duration": annotation.get("lead_time"),
                ANSWERS_KEY: _annotation_answers(annotation),
                TRUE_ANSWERS_KEY: true_answers,
            }

    def _assign_answer_columns(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the columns with the answers of each annotation, and remove the answers from `rows`.

        The answers to the only question, or to the only one that is named like a grade, are the grade. Otherwise each
        question has a column. Questions that are answered by text count only if there are no others.
        """
        answers, true_answers = ([row.pop(key) for row in rows] for key in (ANSWERS_KEY, TRUE_ANSWERS_KEY))
        asked = Counter(question for given in answers for question in given)
        questions = [one for one in asked if one.kind != "text"] or list(asked)
        named = [one for one in questions if one.name.casefold() in GRADE_LIKE_COLUMNS]
        is_only = len({one.name for one in questions} - {""}) <= 1
        grade = questions[0] if is_only and questions else named[0] if len(named) == 1 else None
        if grade is None:
            names = [f"{one.name} (answer)" if one.name in LABEL_STUDIO_COLUMNS else one.name for one in questions]
            for given in answers:
                yield {
                    name: _merge_answers(given, asked.keys() - {question})
                    for name, question in zip(names, questions, strict=True)
                }
            return
        same = [one for one in questions if one.name in ("", grade.name)]
        others = {one: count for one, count in asked.items() if one not in same}
        if others:
            listed = ", ".join(f"{shown(one.name)} ({count:,})" for one, count in others.items())
            problem = f"the grade is the answer to {shown(grade.name)}; answers that are not used: {listed}"
            self.notes = [Message(problem, "answers-not-used", "note", Location(self.name))]
        for given, true in zip(answers, true_answers, strict=True):
            row = {"grade": _merge_answers(given, others)}
            yield row if not true else {**row, "honeypot": _merge_answers(true, others)}

    def _submitted_annotations(
        self, location: str, task: dict[str, Any], annotations: list[Any]
    ) -> list[dict[str, Any]]:
        """Return the annotations of a task that were not canceled; count the others, and predictions, as left out."""
        objects = [annotation for annotation in annotations if isinstance(annotation, dict)]
        self._malformed += [
            self._unexpected_value_error(
                location, annotation, "an annotation is an object with completed_by and a result"
            )
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

    def _unexpected_value_error(self, location: str, value: Any, advice: str) -> InputError:
        return InputError(f"{shown(value)} is not expected here", source=self.name, place=location, fix=advice)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`, every cell as text."""
        for error in self._malformed:
            bad_rows.count_malformed(error)
        for reason, count in self._left_out.items():
            bad_rows.count_left_out(reason, count)
        problems = [label_problem(row, names) for row in self._rows]
        for reason, count in Counter(filter(None, problems)).items():
            bad_rows.count_left_out(reason, count)
        labeled = [number for number, problem in enumerate(problems) if problem is None]
        self._row_locations = [self._object_locations[number] for number in labeled]
        rows = [self._rows[number] for number in labeled]
        return pa.table({name: pa.array(self._read_column(name, rows), pa.string()) for name in names})

    def _read_column(self, column: str, rows: list[dict[str, Any]]) -> list[str | None]:
        """Return the cells of a column as text; raise InputError if a number and a text become the same id."""
        exact = self._id_columns is None or column in self._id_columns
        kind_by_text: dict[str, str] = {}
        cells = []
        for row_index, row in enumerate(rows):
            value = unwrap_label(column, row.get(column))
            text = cell_to_text(value)
            cells.append(text)
            if text is None:
                continue
            if not is_encodable(text):
                problem = f"{shown(value)} is not text"
                raise self.cell_error(row_index, column, problem, "write it without lone surrogates")
            if exact and kind_by_text.setdefault(text, json_type(value)) != json_type(value):
                problem = f"{text} occurs as a number and as text, which may be two ids"
                raise self.cell_error(row_index, column, problem, "write it as one type everywhere")
        return cells

    def locate_row(self, row: int) -> str:
        """Return the location of a row for errors: its task or object in the document."""
        return self._row_locations[row]


def _parse_json(text: str, source: str) -> Any:
    try:
        return parse_json(text)
    except JsonError as problem:
        raise InputError(str(problem), source=source, fix="correct it") from problem
    except (ValueError, RecursionError) as problem:
        one_per_line = Fix("if it has one object per line, give {}", "format", "jsonl")
        raise InputError("it is not JSON", source=source, fix=["correct it", one_per_line]) from problem


def _query_ratings(entry: Any) -> tuple[Any, Any]:
    """Return the query and the ratings of an entry of a judgment list."""
    if not isinstance(entry, dict):
        return None, None
    return entry.get("query"), entry.get("ratings", [] if _count_failures(entry) else None)


def _count_failures(entry: Any) -> int:
    """Return the number of documents of an entry of a judgment list that the LLM did not rate."""
    failures = entry.get("failures") if isinstance(entry, dict) else None
    return len(failures) if isinstance(failures, list) else 0


class _Question(NamedTuple):
    """Question of Label Studio: its name (`from_name`), and the kind of its answers."""

    name: str
    kind: str


def _annotation_answers(annotation: Mapping[str, Any]) -> dict[_Question, list[Any]]:
    """Return the answers of all regions of an annotation by question."""
    answers: dict[_Question, list[Any]] = {}
    result = annotation.get("result")
    for region in result if isinstance(result, list) else []:
        value = region.get("value") if isinstance(region, dict) else None
        value = value if isinstance(value, dict) else {}
        for kind in ANSWER_KINDS:
            given = value[kind] if isinstance(value.get(kind), list) else [value.get(kind)]
            known = [one for one in given if one is not None and not isinstance(one, list | dict)]
            if known:
                name = region.get("from_name")
                answers.setdefault(_Question(name if isinstance(name, str) else "", kind), []).extend(known)
                break
    return answers


def _merge_answers(answers: Mapping[_Question, list[Any]], excluded_questions: Collection[_Question]) -> Any:
    """Return the answer to all questions but `excluded_questions`, a list of different answers, or None."""
    known = (answer for question, given in answers.items() if question not in excluded_questions for answer in given)
    different = list(dict.fromkeys(known))
    return different[0] if len(different) == 1 else different or None
