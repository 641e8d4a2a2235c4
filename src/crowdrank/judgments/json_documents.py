"""Read JSON documents: tasks of Label Studio, judgment lists of OpenSearch, and lists of flat objects.

- Label Studio (labelstud.io/guide/task_format): a list of tasks with `data` and `annotations`; each annotation has
  `completed_by` (a number, or an object with an email), `was_canceled`, `ground_truth`, `lead_time` in seconds, and a
  `result` of regions whose `value` holds `choices` or a `rating`, the answer to the question `from_name`. JSON-MIN is a
  list of flat objects.
- OpenSearch (Search Relevance Workbench): `judgmentRatings`, a list of `query` and `ratings` of `docId` and `rating`
  (in early versions a mapping from the query to its ratings). `failures` lists documents that the LLM did not rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from crowdrank.errors import Fix, InputError, Location, Message, shown
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.columns import GRADE_LIKE_COLUMNS
from crowdrank.judgments.files import open_decompressed
from crowdrank.judgments.json_lines import (
    JsonError,
    cell_to_text,
    is_encodable,
    json_kind,
    label_problem,
    only_label,
    parse_json,
)
from crowdrank.judgments.platforms import match_roles
from crowdrank.judgments.sources import FileSource

MAX_JSON_DEPTH = 100
"""Maximum nesting depth of a JSON document in which `judgmentRatings` are searched."""
ID_COLUMNS = ("query", "document", "assessor", "family")
"""Columns that hold ids, in which the number 1 and the text "1" must not both occur."""
ANSWER_KINDS = ("choices", "rating", "number", "text")
"""Kinds of answers of Label Studio, which are keys of the value of a region."""
ANSWERS, TRUE_ANSWERS = "answers", "true answers"
"""Keys under which the answers of an annotation are kept until the question for the grade is known."""
RESERVED_COLUMNS = ("query", "document", "assessor", "family", "time", "duration", "honeypot")
"""Columns of a Label Studio export that are not answers."""
DEFAULT_COLUMNS = ("document", "assessor", "grade")
"""Columns of a Label Studio export in which no annotation can be used."""


class JsonSource(FileSource):
    """A JSON document: tasks of Label Studio, a judgment list of OpenSearch, or a list of flat objects."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
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
            rows = [row for task_index, task in enumerate(tasks) for row in self._label_studio_rows(task_index, task)]
            return [{**row, **answers} for row, answers in zip(rows, self._choose_questions(rows), strict=True)]
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
        self._left_out["document that the LLM did not rate"] += sum(map(_count_failures, judgment_list))
        entries = list(judgment_list.items()) if isinstance(judgment_list, dict) else map(_query_ratings, judgment_list)
        for query_index, (query, ratings) in enumerate(entries):
            place = f"judgmentRatings {query_index + 1}"
            if ratings == []:
                self._left_out["query without ratings"] += 1
            for rating in ratings if isinstance(ratings, list) else [ratings]:
                if not isinstance(rating, dict) or "docId" not in rating or "rating" not in rating:
                    raise self._unexpected_value_error(place, rating, "a rating is an object with docId and rating")
                self._place_of_object.append(place)
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
        true_answers = next(
            (_annotation_answers(annotation) for annotation in used_annotations if annotation.get("ground_truth")), {}
        )
        for annotation in used_annotations:
            if annotation.get("ground_truth"):
                self._left_out["ground-truth annotation"] += 1
                continue
            assessor = annotation.get("completed_by")
            assessor = assessor.get("email", assessor.get("id")) if isinstance(assessor, dict) else assessor
            self._place_of_object.append(place)
            yield {
                **item_ids,
                "assessor": assessor,
                "time": annotation.get("created_at"),
                "duration": annotation.get("lead_time"),
                ANSWERS: _annotation_answers(annotation),
                TRUE_ANSWERS: true_answers,
            }

    def _choose_questions(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the columns with the answers of each annotation, and remove the answers from `rows`.

        The answers to the only question, or to the only one that is named like a grade, are the grade. Otherwise each
        question has a column. Questions that are answered by text count only if there are no others.
        """
        answers, true_answers = ([row.pop(key) for row in rows] for key in (ANSWERS, TRUE_ANSWERS))
        asked = Counter(question for given in answers for question in given)
        questions = [one for one in asked if one.kind != "text"] or list(asked)
        named = [one for one in questions if one.name.casefold() in GRADE_LIKE_COLUMNS]
        is_only = len({one.name for one in questions} - {""}) <= 1
        grade = questions[0] if is_only and questions else named[0] if len(named) == 1 else None
        if grade is None:
            names = [f"{one.name} (answer)" if one.name in RESERVED_COLUMNS else one.name for one in questions]
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
        problems = [label_problem(row, names) for row in self._rows]
        for reason, count in Counter(filter(None, problems)).items():
            bad_rows.count_left_out(reason, count)
        labeled = [number for number, problem in enumerate(problems) if problem is None]
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
                problem = f"{shown(value)} is not text"
                raise self.cell_error(row_index, column, problem, "write it without lone surrogates")
            if exact and kind_by_text.setdefault(text, json_kind(value)) != json_kind(value):
                problem = f"{text} occurs as a number and as text, which may be two ids"
                raise self.cell_error(row_index, column, problem, "write it as one type everywhere")
        return cells

    def place(self, row: int) -> str:
        """Return the place of a row for errors: its task or object in the document."""
        return self._place_of_row[row]


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


def _merge_answers(answers: Mapping[_Question, list[Any]], others: Collection[_Question]) -> Any:
    """Return the answer to all questions but `others`, a list of different answers, or None."""
    known = (answer for question, given in answers.items() if question not in others for answer in given)
    different = list(dict.fromkeys(known))
    return different[0] if len(different) == 1 else different or None
