"""Databases of the judging service: SQLite files and PostgreSQL servers, read while the service runs.

A database is read through its view `judgment` and its tables of pairs and samples, not by the code of the service.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._text import counted
from crowdrank.errors import Fix, InputError, Location, Message, UsageError, near, shown
from crowdrank.judgments.columns import quote_names
from crowdrank.judgments.scale import Scale, add_scale_column
from crowdrank.readers.files import SQLITE_SIGNATURE, is_database_url, local_path
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.readers.sources import BadRows, Source, no_rows_error

EARLIER_GENERATION_REASON, TRAINING_PAIR_REASON = "answer of an earlier generation", "answer to a training pair"
CANNOT_JUDGE_REASON = "cannot judge"
"""Reasons, shown to the user, for which answers are left out."""
PROJECTS_SQL = "SELECT name, grades, settings FROM project ORDER BY name"
ANSWERS_SQL = """
SELECT query, document, other, is_swapped, swapped_grade, assessor, kind, family, answer, grade, received, active_ms,
    price, pair_kind, gold_grade, comment, is_current, probabilities, probability, sample_draw
FROM judgment WHERE project = :project ORDER BY received, query, document, assessor
"""
PAIRS_SQL = """
SELECT query.key AS query, document.key AS document, query.text AS query_text, query.need AS information_need,
    document.title AS title, document.body AS body, document.url AS link, pair.kind AS pair_kind,
    pair.gold_grade AS gold_grade
FROM pair JOIN query ON query.id = pair.query_id JOIN document ON document.id = pair.document_id
JOIN project ON project.id = pair.project_id
WHERE project.name = :project AND pair.is_open AND pair.kind <> 'training' ORDER BY pair.id
"""
GOLD_SQL = """
SELECT query.key AS query, document.key AS document, pair.gold_grade AS grade
FROM pair JOIN query ON query.id = pair.query_id JOIN document ON document.id = pair.document_id
JOIN project ON project.id = pair.project_id
WHERE project.name = :project AND pair.kind <> 'real' ORDER BY pair.id
"""
ADJUDICATED_SQL = """
SELECT query.key AS query, document.key AS document, answer.grade AS grade
FROM answer JOIN event ON event.id = answer.event_id JOIN pair ON pair.id = answer.pair_id
JOIN query ON query.id = pair.query_id JOIN document ON document.id = pair.document_id
JOIN project ON project.id = pair.project_id
WHERE project.name = :project AND pair.kind = 'real' AND answer.kind = 'grade' AND answer.generation = pair.generation
    AND event.comment = 'adjudicated' AND event.lease_id IS NULL
ORDER BY event.id
"""
UNANSWERED_SQL = """
SELECT count(DISTINCT pair_id) AS drawn, count(DISTINCT CASE WHEN NOT is_answered THEN pair_id END) AS unanswered FROM (
    SELECT sampled_pair.pair_id AS pair_id, EXISTS (
        SELECT 1 FROM answer JOIN assessor ON assessor.id = answer.assessor_id
        WHERE answer.pair_id = pair.id AND answer.generation = pair.generation AND answer.kind <> 'later'
            AND assessor.kind = sampled_pair.kind
    ) AS is_answered
    FROM sampled_pair JOIN pair ON pair.id = sampled_pair.pair_id JOIN project ON project.id = pair.project_id
    WHERE project.name = :project
) AS drawn_pairs
"""
LABELS_SQL = """
SELECT sample_draw.labels AS labels FROM sample_draw JOIN project ON project.id = sample_draw.project_id
WHERE project.name = :project AND sample_draw.number = 1
"""
SETTINGS_SQL = "SELECT settings FROM project WHERE name = :project"
ANSWER_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor", "kind", "family", "grade"), pa.string()),
        "time": pa.timestamp("ms"),
        "duration": pa.float64(),
        "cost": pa.float64(),
        "honeypot": pa.string(),
        "comment": pa.string(),
    }
)
"""Columns of answers; `duration` is in seconds, `cost` is the price of the assessor, times are UTC."""
PREFERENCE_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "left", "right", "assessor", "kind", "family"), pa.string()),
        "preference": pa.int64(),
        **{name: ANSWER_SCHEMA.field(name).type for name in ("time", "duration", "cost")},
        "honeypot": pa.int64(),
        "comment": pa.string(),
    }
)
"""Columns of preferences, with the documents on the sides on which they were shown."""
PAIR_SCHEMA = pa.schema(
    dict.fromkeys(
        ("query", "document", "honeypot", "query_text", "information_need", "title", "body", "link"), pa.string()
    )
)
"""Columns of pairs; `honeypot` is the correct grade of a gold pair."""
EXPERT_SCHEMA = pa.schema(dict.fromkeys(("query", "document", "grade"), pa.string()))
"""Columns of expert grades."""
SAMPLE_SCHEMA = pa.schema({"probability": pa.float64(), "draw": pa.int64()})
"""Columns of answers to pairs that were drawn: probability and number of the draw."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class DatabaseAddress:
    """Path or URL of a database, and the name of a project in it.

    Attributes:
        target: path of an SQLite file, or a URL of PostgreSQL.
        project: name of the project; None for the only one.

    """

    target: str
    project: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether the database is an SQLite file."""
        return not is_database_url(self.target)

    @property
    def shown(self) -> str:
        """Address for messages, without a password."""
        return self.target if self.is_file else re.sub(r"(?<=://)([^:/@]*):[^@/]*@", r"\1@", self.target)

    @property
    def stem(self) -> Path:
        """Path without suffix for files that belong to the database; PostgreSQL has them in the current folder."""
        base = Path(self.target if self.is_file else urlsplit(self.target).path.strip("/") or "database").with_suffix(
            ""
        )
        return base if self.project is None else base.with_name(f"{base.name}.{quote(self.project, safe='')}")


def find_database(source: Any) -> DatabaseAddress | None:
    """Return the database that a path or URL names, or None if it names something else.

    Args:
        source: such as `judging.db`, `judging.db?project=NAME` or `postgresql://user@host/name?project=NAME`.

    >>> find_database("postgresql://ann:secret@host/judging?project=jam").shown, find_database("labels.csv")
    ('postgresql://ann@host/judging', None)

    """
    if not isinstance(source, str | Path):
        return None
    if is_database_url(source):
        return _parse_url(str(source))
    path, _, project = str(local_path(source)).partition("?project=")
    if _is_sqlite(local_path(source)):
        return DatabaseAddress(str(local_path(source)))
    return DatabaseAddress(path, unquote(project)) if project and _is_sqlite(Path(path)) else None


def _is_sqlite(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would block
            return False
        with path.open("rb") as stream:
            return stream.read(len(SQLITE_SIGNATURE)) == SQLITE_SIGNATURE
    except (OSError, ValueError):  # not readable, or not a valid path
        return False


def _parse_url(text: str) -> DatabaseAddress:
    """Return the address of a URL; `pathlib` removes a slash of `postgresql://host/name` and two of `:///name`."""
    rest = text.partition(":")[2]
    if not rest.startswith("//"):
        location = rest.partition("?")[0].strip("/")
        rest = ("//" if "/" in location else "///") + rest.lstrip("/")
    address, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    project = options.pop("project", None)
    more = f"?{urlencode(options)}" if options else ""
    return DatabaseAddress(f"postgresql:{address}{more}", project)


@contextmanager
def _connect(address: DatabaseAddress) -> Iterator[Callable[[str, Row], list[dict[str, Any]]]]:
    """Open a database for reading; yield a function of a statement and its parameters that returns rows."""
    if address.is_file:
        with _connect_sqlite(address) as select:
            yield select
        return
    try:
        import psycopg
        from psycopg.rows import dict_row
    except ImportError as problem:
        text = "Reading PostgreSQL needs psycopg, which is not installed: pip install 'crowdrank[postgresql]'."
        raise UsageError(text, kind="missing-package") from problem
    try:
        with psycopg.connect(address.target, row_factory=dict_row) as connection:
            connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
            yield lambda sql, values: connection.execute(sql.replace(":project", "%(project)s"), values).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as problem:
        raise _other_format_error(address) from problem
    except psycopg.Error as problem:
        raise _unreadable_error(address, problem) from problem


@contextmanager
def _connect_sqlite(address: DatabaseAddress) -> Iterator[Callable[[str, Row], list[dict[str, Any]]]]:
    import sqlite3

    path = Path(address.target).resolve()
    # Without write permission for the folder, SQLite cannot share memory with a writer: there must be none.
    mode = "mode=ro" if _is_shareable(path) else "immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA trusted_schema = OFF")  # views of a hostile file run no unsafe functions
            yield lambda sql, values: [dict(row) for row in connection.execute(sql, values)]
    except sqlite3.OperationalError as problem:
        if "no such table" in str(problem) or "no such column" in str(problem):
            raise _other_format_error(address) from problem
        raise _unreadable_error(address, problem) from problem
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as problem:  # text and numbers of a damaged file
        raise _unreadable_error(address, problem) from problem


def _is_shareable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) or path.with_name(f"{path.name}-wal").exists()


def _other_format_error(address: DatabaseAddress) -> InputError:
    problem = "it is a database, but not one of this version of the judging service"
    fix = ["start the service with it once if an earlier version wrote it", "export its judgments as CSV"]
    return InputError(problem, source=address.shown, kind="other-format", fix=[Fix(text) for text in fix])


def _unreadable_error(address: DatabaseAddress, error: Exception) -> InputError:
    reason = str(error).strip().split("\n")[0].rstrip(".")[:160]
    fix = "it may be damaged" if address.is_file else "check the address and your permissions"
    return InputError(f"it cannot be read ({reason})", source=address.shown, kind="damaged", fix=fix)


@dataclass(frozen=True)
class ComparisonPlan:
    """Planned number of looks at a comparison, and largest difference that does not matter; None: not stated."""

    looks: int | None = None
    margin: float | None = None


def read_comparison_plan(source: Any) -> ComparisonPlan:
    """Return the plan of a project whose database a path or URL names; other sources have none."""
    address = find_database(source)
    return ComparisonPlan() if address is None else JudgingDatabase(address).comparison_plan()


class JudgingDatabase(Source):
    """Latest answers of a project.

    Two kinds of answers are left out and counted: those from before a lead requested new labels for the pair (each
    request starts a new generation of the pair), and those to the training pairs with which assessors qualify.

    Attributes:
        grades: names of the grades of the project, from least to most relevant.
        has_preferences: whether the answers are preferences between two documents.

    """

    units = MappingProxyType({"duration": "seconds"})

    def __init__(self, address: DatabaseAddress) -> None:
        self.address, self.name = address, address.shown
        with _connect(address) as select:
            rows = select(PROJECTS_SQL, {})
        with _report_damage(address):
            projects = {row["name"]: list(map(str, _parse_json(row["grades"]))) for row in rows}
            tasks = {row["name"]: dict(_parse_json(row["settings"])).get("task", "grades") for row in rows}
        self.project = _choose_project(address, list(projects))
        self.grades: list[str] = projects[self.project]
        self.has_preferences = tasks[self.project] == "preferences"
        self.names = [*ANSWER_SCHEMA.names, *Scale.parse(self.grades).share_names]
        if self.has_preferences:
            self.names = PREFERENCE_SCHEMA.names

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        rows = self.select(ANSWERS_SQL)
        with _report_damage(self.address):
            table = (
                preference_table(rows, bad_rows) if self.has_preferences else answer_table(rows, self.grades, bad_rows)
            )
        if not len(table):
            raise no_rows_error(self.name)
        columns = {name: table[name] if name in table.column_names else pa.nulls(len(table)) for name in names}
        return pa.table(columns)

    def open_pairs(self) -> OpenPairs:
        """Return the open pairs of the project as a table."""
        self._require_grades()
        return OpenPairs(self)

    def expert_grades(self) -> ExpertGrades:
        """Return the grades of gold pairs, adjudicated grades and the answers of experts as a table."""
        self._require_grades()
        return ExpertGrades(self)

    def _require_grades(self) -> None:
        if self.has_preferences:
            problem = f"the project {shown(self.project)} has preferences between two documents, not grades"
            raise InputError(problem, source=self.name, kind="is-preferences", fix="give the database as preferences")

    def sample(self) -> SampledAnswers | None:
        """Return the answers to pairs that were drawn by the policy `compare`; None if none were."""
        (counts,) = self.select(UNANSWERED_SQL)
        return SampledAnswers(self, counts["drawn"], counts["unanswered"]) if counts["drawn"] else None

    def sample_labels(self) -> pa.Table | None:
        """Return the labels from which the policy `compare` drew the first pairs; None if it drew none."""
        import pyarrow.parquet as pq

        rows = self.select(LABELS_SQL)
        with _report_damage(self.address):
            return pq.read_table(io.BytesIO(rows[0]["labels"])) if rows else None

    def comparison_plan(self) -> ComparisonPlan:
        """Return the planned looks and the margin of the policy `compare`; empty if it drew no pairs."""
        if self.sample() is None:
            return ComparisonPlan()
        (row,) = self.select(SETTINGS_SQL)
        with _report_damage(self.address):
            settings = dict(_parse_json(row["settings"]))
            looks, margin = settings.get("looks"), settings.get("margin")
            return ComparisonPlan(None if looks is None else int(looks), None if margin is None else float(margin))

    def select(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement about the project."""
        with _connect(self.address) as select:
            return select(statement, {"project": self.project})


class OpenPairs(Source):
    """Pairs of a project that may be judged, with their texts; training pairs are not among them."""

    names = PAIR_SCHEMA.names
    has_user_columns = True

    def __init__(self, database: JudgingDatabase) -> None:
        self.database, self.name = database, database.name

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        rows = self.database.select(PAIRS_SQL)
        with _report_damage(self.database.address):
            listed = [{**row, "honeypot": _gold_name(row, self.database.grades)} for row in rows]
            return pa.Table.from_pylist(listed, PAIR_SCHEMA).select(list(names))


class ExpertGrades(Source):
    """Grades of gold and training pairs, grades that a lead has adjudicated, and answers of experts to other pairs."""

    names = EXPERT_SCHEMA.names

    def __init__(self, database: JudgingDatabase) -> None:
        self.database, self.name = database, database.name

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        answers, gold = self.database.select(ANSWERS_SQL), self.database.select(GOLD_SQL)
        decided = {(row["query"], row["document"]): row for row in self.database.select(ADJUDICATED_SQL)}  # the latest
        by_experts = [
            row
            for row in answers
            if (row["pair_kind"], row["kind"]) == ("real", "expert") and (row["query"], row["document"]) not in decided
        ]
        with _report_damage(self.database.address):
            answered = answer_table(by_experts, self.database.grades, bad_rows).select(EXPERT_SCHEMA.names)
            known = [*gold, *decided.values()]
            listed = [{**row, "grade": _grade_name(row["grade"], self.database.grades)} for row in known]
            table = pa.concat_tables([pa.Table.from_pylist(listed, EXPERT_SCHEMA), answered])
        if not len(table):
            problem = "there are no gold pairs, adjudicated pairs or answers of experts in it"
            raise InputError(problem, source=self.name, kind="no-rows", fix="give a file of expert grades")
        return table.select(list(names))


class SampledAnswers(Source):
    """Answers to pairs that were drawn with known probabilities, by the assessors who were asked for them.

    Attributes:
        notes: a warning if drawn pairs have no answer.

    """

    names = [*EXPERT_SCHEMA.names, *SAMPLE_SCHEMA.names]  # noqa: RUF012

    def __init__(self, database: JudgingDatabase, n_drawn: int, n_unanswered: int) -> None:
        self.database, self.name = database, database.name
        self.notes: list[Message] = []
        if n_unanswered:
            drawn = counted(n_drawn, "drawn document")
            problem = f"there is no answer to {n_unanswered:,} of {drawn}, so the sample is not random"
            fix = Fix("wait for the answers to all drawn documents")
            self.notes.append(Message(problem, "sample-incomplete", "warning", Location(self.name), (fix,)))

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        rows = [row for row in self.database.select(ANSWERS_SQL) if row["probability"] is not None]
        with _report_damage(self.database.address):
            table = answer_table(rows, self.database.grades, bad_rows)
        if not len(table):
            raise no_rows_error(self.name)
        return table.select(list(names))


def answer_table(rows: Iterable[Row], grades: Sequence[str], bad_rows: BadRows) -> pa.Table:
    """Return rows of the view `judgment` as a table with the columns that crowdrank recognizes.

    The probabilities of the grades (p0, p1, ...) are columns if an answer has them; `probability` and `draw` are
    columns if an answer is to a pair that was drawn.

    Args:
        rows: rows of `ANSWERS_SQL`.
        grades: names of the grades of the project.
        bad_rows: counts of answers that are left out: those of earlier generations, and those to training pairs.

    """
    kept = [_answer_row(row, grades) for row in _used_rows(rows, bad_rows)]
    table = _with_times(kept, ANSWER_SCHEMA)
    if any(row["probabilities"] is not None for row in kept):
        names = Scale.parse(grades).share_names
        shares = [row["probabilities"] or [None] * len(names) for row in kept]
        for name, column in zip(names, zip(*shares, strict=True), strict=True):
            table = table.append_column(name, pa.array(column, pa.float64()))
    if any(row["probability"] is not None for row in kept):
        for field in SAMPLE_SCHEMA:
            table = table.append_column(field, pa.array([row[field.name] for row in kept], field.type))
    return add_scale_column(table, Scale.parse(grades))


def preference_table(rows: Iterable[Row], bad_rows: BadRows) -> pa.Table:
    """Return rows of the view `judgment` as preferences, in the columns that :func:`read_preferences` recognizes.

    Args:
        rows: rows of `ANSWERS_SQL`.
        bad_rows: counts of answers that are left out: as in :func:`answer_table`, and those that say "cannot judge".

    """
    kept = []
    for row in _used_rows(rows, bad_rows):
        if row["answer"] == CANNOT_JUDGE:
            bad_rows.count_left_out(CANNOT_JUDGE_REASON, 1)
        elif row["swapped_grade"] is None:
            kept.append(_preference_row(row))
        else:  # an answer in both orders is two preferences, which share its time
            row = {**row, "active_ms": None if row["active_ms"] is None else row["active_ms"] / 2}
            kept.append(_preference_row(row))
            kept.append(_preference_row({**row, "grade": row["swapped_grade"], "is_swapped": not row["is_swapped"]}))
    return _with_times(kept, PREFERENCE_SCHEMA)


def _used_rows(rows: Iterable[Row], bad_rows: BadRows) -> Iterator[Row]:
    """Yield the answers of the current generation that are not to training pairs; count the others."""
    for row in rows:
        if row["pair_kind"] == "training":
            bad_rows.count_left_out(TRAINING_PAIR_REASON, 1)
        elif not row["is_current"]:
            bad_rows.count_left_out(EARLIER_GENERATION_REASON, 1)
        else:
            yield row


def _with_times(rows: Sequence[Row], columns: pa.Schema) -> pa.Table:
    """Return rows with times in milliseconds as a table."""
    place = columns.get_field_index("time")
    table = pa.Table.from_pylist(rows, columns.set(place, pa.field("time", pa.int64())))
    return table.set_column(place, "time", pc.cast(table["time"], pa.timestamp("ms")))


def _preference_row(row: Row) -> dict[str, Any]:
    """Return a preference with the sides as they were shown; stored codes 0, 1, 2 are of the pair as it is stored."""
    left, right, sign = row["document"], row["other"], 1
    if row["is_swapped"]:
        left, right, sign = right, left, -1
    return {
        **{name: row[name] for name in ("query", "assessor", "kind", "family", "comment")},
        "left": left,
        "right": right,
        "preference": sign * (row["grade"] - 1),
        "time": row["received"],
        "duration": None if row["active_ms"] is None else row["active_ms"] / 1000,
        "cost": row["price"],
        "honeypot": sign * (row["gold_grade"] - 1) if row["pair_kind"] == "gold" else None,
    }


def _answer_row(row: Row, grades: Sequence[str]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("query", "document", "assessor", "kind", "family", "comment")},
        "grade": CANNOT_JUDGE if row["answer"] == CANNOT_JUDGE else _grade_name(row["grade"], grades),
        "time": row["received"],
        "duration": None if row["active_ms"] is None else row["active_ms"] / 1000,
        "cost": row["price"],
        "honeypot": _gold_name(row, grades),
        "probabilities": None if row["probabilities"] is None else _parse_json(row["probabilities"]),
        "probability": row["probability"],
        "draw": row["sample_draw"],
    }


def _gold_name(row: Row, grades: Sequence[str]) -> str | None:
    return _grade_name(row["gold_grade"], grades) if row["pair_kind"] == "gold" else None


def _grade_name(code: int, grades: Sequence[str]) -> str:
    if code < 0:
        raise IndexError(f"there is no grade {code}")
    return grades[code]


def _parse_json(cell: Any) -> Any:
    """Return the value of a JSON column, which SQLite has as text."""
    return json.loads(cell) if isinstance(cell, str) else cell


@contextmanager
def _report_damage(address: DatabaseAddress) -> Iterator[None]:
    """Raise InputError if the rows of a database do not have the values that the service writes."""
    try:
        yield
    except (
        TypeError,
        ValueError,
        IndexError,
        OSError,
        pa.ArrowException,
    ) as problem:  # OSError: a damaged Parquet file
        raise _unreadable_error(address, problem) from problem


def _choose_project(address: DatabaseAddress, projects: list[str]) -> str:
    """Return the project of an address, or the only one; raise InputError with the list of projects otherwise."""
    if address.project in projects:
        return address.project
    if address.project is None and len(projects) == 1:
        return projects[0]
    if not projects:
        fix = "create a project and judge in the service first"
        raise InputError("there is no project in it", source=address.shown, kind="no-rows", fix=fix)
    separator = "&" if "?" in address.target else "?"
    example = f"'{address.shown}{separator}project={quote(projects[0])}'"
    if address.project is None:
        problem = f"there are {len(projects)} projects in it"
    else:
        problem = f"there is no project {shown(address.project)} in it{near(address.project, projects)}"
    fix = f"name one of {quote_names(projects)}, as in {example}"
    raise InputError(problem, source=address.shown, kind="no-project", fix=fix)
