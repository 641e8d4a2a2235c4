"""Pairs of a query and a document, or two documents to compare: adding them with their texts, closing, reopening them.

The documents of a comparison are stored in the order of their ids, whatever the order in a request. Answers, gold
grades and consensus are stored as if the first one were on the left.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy import tuple_ as sql_tuple

from crowdrank.errors import shown
from crowdrank.service.domain.comparisons import Comparison, choose_comparisons
from crowdrank.service.domain.projects import MAX_CONDITION_VALUES, MAX_ID, Project, check_text, lock_project
from crowdrank.service.domain.quotas import add_quotas, first_priority
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema

ROWS_PER_STATEMENT = 500
"""Maximum number of rows that one SQL statement inserts or selects."""


@dataclass(frozen=True)
class DocumentRow:
    """A document with its texts. Texts that are None keep what is stored."""

    document: str
    title: str | None = None
    body: str | None = None
    fields: Mapping[str, Any] | None = None
    url: str | None = None


@dataclass(frozen=True)
class PairRow:
    """A pair to add. Texts that are None keep what is stored.

    Attributes:
        query: id of the query in the user's files.
        document: id of the document in the user's files; of a comparison, the left one.
        other: the right document of a comparison. Without it, a project that asks for preferences chooses the
            comparisons of the document.
        kind: `real`, `gold` (honeypot) or `training`.
        gold_grade: correct grade, for gold and training pairs.
        explanation: shown after the answer to a training pair.

    """

    query: str
    document: str
    query_text: str | None = None
    need: str | None = None
    title: str | None = None
    body: str | None = None
    fields: Mapping[str, Any] | None = None
    url: str | None = None
    kind: str = "real"
    gold_grade: str | int | None = None
    explanation: str | None = None
    other: DocumentRow | None = None

    @property
    def documents(self) -> tuple[DocumentRow, ...]:
        """The document, and the other one of a comparison."""
        own = DocumentRow(self.document, self.title, self.body, self.fields, self.url)
        return (own,) if self.other is None else (own, self.other)

    @property
    def is_swapped(self) -> bool:
        """Whether the right document of a comparison is stored as the first one."""
        return self.other is not None and self.other.document < self.document


@dataclass(frozen=True)
class AddedPairs:
    """Numbers of pairs, queries and documents that :func:`add_pairs` added, changed and kept."""

    pairs_added: int = 0
    pairs_kept: int = 0
    queries_added: int = 0
    queries_changed: int = 0
    documents_added: int = 0
    documents_changed: int = 0


@dataclass(frozen=True)
class DocumentContent:
    """Texts of a document that an assessor sees; `document` is its id in the user's files."""

    document: str
    title: str
    body: str
    fields: Mapping[str, Any]
    url: str | None


@dataclass(frozen=True)
class PairContent:
    """Texts of a pair that an assessor sees. `query` and `document` are the ids of the user's files."""

    pair_id: int
    query: str
    query_text: str
    need: str
    document: str
    title: str
    body: str
    fields: Mapping[str, Any]
    url: str | None


@dataclass(frozen=True)
class ComparisonContent(PairContent):
    """Texts of two documents to compare: `document`, which is shown on the left, and `other`."""

    other: DocumentContent


@dataclass(frozen=True)
class QuotaState:
    """Labels of a pair for one kind of assessor: counted or leased (`taken`), wanted, and accepted at most."""

    taken: int
    target: int
    k_max: int
    priority: float


@dataclass(frozen=True)
class PairState:
    """State of a pair, for leads. `gold_grade` is the name of the grade, `other` the right document of a comparison."""

    pair_id: int
    query: str
    query_text: str
    document: str
    title: str
    kind: str
    gold_grade: str | None
    is_open: bool
    generation: int
    quotas: Mapping[str, QuotaState]
    other: str | None = None
    other_title: str | None = None


@dataclass(frozen=True)
class PairFilter:
    """Filter of pairs of a project; all conditions that are given must hold.

    Attributes:
        pair_ids: ids of pairs.
        queries: ids of queries in the user's files.
        documents: ids of documents in the user's files.
        document_changed: an answer of the current generation was given before the last change of the document.
        answered_before: an answer of the current generation was received before this time.
        guidelines_before: an answer of the current generation was given under guidelines older than this version.

    """

    pair_ids: Sequence[int] | None = None
    queries: Sequence[str] | None = None
    documents: Sequence[str] | None = None
    document_changed: bool = False
    answered_before: int | None = None
    guidelines_before: int | None = None


OTHER = schema.document.alias("other")
"""The other document of comparisons."""


class PairKey(NamedTuple):
    """Ids in the database of the query and of the documents of a pair."""

    query_id: int
    document_id: int
    other_document_id: int | None = None


CONTENT_COLUMNS = (
    schema.pair.c.id.label("pair_id"),
    schema.query.c.key.label("query"),
    schema.query.c.text.label("query_text"),
    schema.query.c.need,
    schema.document.c.key.label("document"),
    schema.document.c.title,
    schema.document.c.body,
    schema.document.c.fields,
    schema.document.c.url,
    OTHER.c.key.label("other"),
    *(OTHER.c[name].label(f"other_{name}") for name in ("title", "body", "fields", "url")),
)
PAIRS_WITH_TEXTS = (
    schema.pair.join(schema.query, schema.query.c.id == schema.pair.c.query_id)
    .join(schema.document, schema.document.c.id == schema.pair.c.document_id)
    .outerjoin(OTHER, OTHER.c.id == schema.pair.c.other_document_id)
)


# Adding.


def add_pairs(connection: Connection, project: Project, rows: Sequence[PairRow], now: int) -> AddedPairs:
    """Add pairs with their texts and quotas. Pairs that exist are kept; texts that differ are replaced.

    Args:
        connection: connection in a write transaction.
        project: project to add to.
        rows: the pairs.
        now: time in milliseconds.

    Raises:
        Invalid: a row is invalid; its location has the number of the row.
        Conflict: a pair exists with another kind or gold grade.

    """
    project = lock_project(connection, project.id)
    codes = [_check_row(project, number, row) for number, row in enumerate(rows, start=1)]
    counts: Counter[str] = Counter()
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        stop = start + ROWS_PER_STATEMENT
        counts += _add_chunk(connection, project, list(enumerate(rows[start:stop], start + 1)), codes[start:stop], now)
    if project.asks_preferences:
        counts["pairs_added"] += _add_chosen_comparisons(connection, project, rows)
    return AddedPairs(**counts)


def _check_row(project: Project, number: int, row: PairRow) -> int | None:
    """Return the position of the gold grade on the scale, or None; raise Invalid for an invalid row."""
    location = f"row {number}"
    for column in ("query", "query_text", "need", "explanation"):
        check_text(getattr(row, column), place=location, column=column)
    for one in row.documents:
        for column in ("document", "title", "body", "url"):
            check_text(getattr(one, column), place=location, column=column)
    if not row.query or not all(one.document for one in row.documents):
        raise Invalid("query and document must not be empty", place=location, kind="missing-id")
    if row.other is not None and not project.asks_preferences:
        fix = "leave the other document out, or create a project with the task preferences"
        raise Invalid("the project asks for grades of single documents", place=location, kind="is-comparison", fix=fix)
    if row.other is not None and row.other.document == row.document:
        fix = "compare two different documents"
        raise Invalid("a document is compared with itself", place=location, kind="same-document", fix=fix)
    if row.other is None and project.asks_preferences and row.kind != "real":
        raise Invalid(f"a {row.kind} pair needs two documents", place=location, kind="one-document")
    if row.kind not in schema.PAIR_KINDS:
        problem = f"{shown(row.kind)} is not a kind of pair; use {', '.join(schema.PAIR_KINDS)}"
        raise Invalid(problem, place=location, column="kind", kind="unknown-pair-kind")
    if row.gold_grade is None:
        if row.kind != "real":
            raise Invalid(f"a {row.kind} pair needs a gold grade", place=location, column="gold_grade", kind="no-gold")
        return None
    code = project.grade_code(row.gold_grade, place=location, column="gold_grade")
    return len(project.grades) - 1 - code if row.is_swapped else code


def _add_chunk(
    connection: Connection,
    project: Project,
    numbered: Sequence[tuple[int, PairRow]],
    codes: Sequence[int | None],
    now: int,
) -> Counter[str]:
    queries: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    for _, row in numbered:
        queries.setdefault(row.query, {}).update(_without_none(text=row.query_text, need=row.need))
        for one in row.documents:
            texts = _without_none(title=one.title, body=one.body, fields=one.fields, url=one.url)
            documents.setdefault(one.document, {}).update(texts)
    query_ids, counts = _insert_or_update(connection, schema.query, project.id, queries, {"text": "", "need": ""})
    blank: dict[str, Any] = {"title": "", "body": "", "fields": {}, "url": None}
    document_ids, document_counts = _insert_or_update(
        connection, schema.document, project.id, documents, blank, lambda texts: _document_version(texts, now)
    )
    wanted: dict[PairKey, tuple[str, int | None]] = {}
    values: list[dict[str, Any]] = []
    named = [
        (number, row, code, _pair_key(row, query_ids, document_ids))
        for (number, row), code in zip(numbered, codes, strict=True)
        if row.other is not None or not project.asks_preferences
    ]
    known = _existing_pairs(connection, [key for *_, key in named])
    for number, row, code, key in named:
        stored = known.get(key) or wanted.get(key)
        if stored is None:
            wanted[key] = row.kind, code
            values.append(_pair_values(project, key, row.kind, code, row.explanation))
        elif stored != (row.kind, code):
            named_ids = ", ".join(shown(name) for name in (row.query, *(one.document for one in row.documents)))
            problem = f"the pair {named_ids} exists with another kind or gold grade"
            fix = "leave it out, or send the kind and gold grade that it has"
            raise Conflict(problem, place=f"row {number}", kind="pair-differs", fix=fix)
    _insert_pairs(connection, project, values)
    pairs = {"pairs_added": len(values), "pairs_kept": len(named) - len(values)}
    return counts + document_counts + Counter(pairs)


def _pair_key(row: PairRow, query_ids: Mapping[str, int], document_ids: Mapping[str, int]) -> PairKey:
    """Return the ids in the database of the query and the documents of a pair."""
    ids = [document_ids[name] for name in sorted(one.document for one in row.documents)]
    return PairKey(query_ids[row.query], *ids)


def _pair_values(
    project: Project, key: PairKey, kind: str = "real", gold_grade: int | None = None, explanation: str | None = None
) -> dict[str, Any]:
    """Return a row of the table `pair`."""
    values = {"kind": kind, "gold_grade": gold_grade, "explanation": explanation}
    return {"project_id": project.id, **key._asdict(), **values}


def _add_chosen_comparisons(connection: Connection, project: Project, rows: Sequence[PairRow]) -> int:
    """Add comparisons of documents that were given alone, and return their number."""
    documents: dict[str, list[str]] = {}
    for row in rows:
        if row.other is None:
            documents.setdefault(row.query, []).append(row.document)
    query_ids = _ids_by_key(connection, schema.query, project, list(documents))
    document_ids = _ids_by_key(connection, schema.document, project, sorted(set().union(*documents.values())))
    known: dict[str, list[Comparison]] = {query: [] for query in documents}
    columns = schema.document.c.id, OTHER.c.id, schema.document.c.key, OTHER.c.key
    for query in documents:
        wanted = select(*columns).select_from(PAIRS_WITH_TEXTS).where(schema.pair.c.query_id == query_ids[query])
        for first_id, second_id, first, second in connection.execute(wanted):
            known[query].append((first, second))
            document_ids |= {first: first_id, second: second_id}
    values = [
        _pair_values(project, PairKey(query_ids[query], document_ids[first], document_ids[second]))
        for query, names in documents.items()
        for first, second in choose_comparisons(
            set(names), known[query], project.comparisons, random.Random(f"{project.id} {query}")
        )
    ]
    for start in range(0, len(values), ROWS_PER_STATEMENT):
        _insert_pairs(connection, project, values[start : start + ROWS_PER_STATEMENT])
    return len(values)


def _ids_by_key(connection: Connection, table: Table, project: Project, keys: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(keys), ROWS_PER_STATEMENT):
        is_wanted = (table.c.project_id == project.id) & table.c.key.in_(keys[start : start + ROWS_PER_STATEMENT])
        found |= {row.key: row.id for row in connection.execute(select(table.c.key, table.c.id).where(is_wanted))}
    return found


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _document_version(texts: Mapping[str, Any], now: int) -> dict[str, Any]:
    listed = json.dumps([texts[name] for name in ("title", "body", "fields", "url")], sort_keys=True)
    return {"digest": hashlib.sha256(listed.encode()).hexdigest(), "changed": now}


def _insert_or_update(
    connection: Connection,
    table: Table,
    project_id: int,
    wanted: Mapping[str, Mapping[str, Any]],
    blank: Mapping[str, Any],
    version: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda texts: {},
) -> tuple[dict[str, int], Counter[str]]:
    """Insert or update queries or documents; return their ids by key, and the numbers added and changed."""
    of_project = (table.c.project_id == project_id) & table.c.key.in_(list(wanted))
    stored = {row.key: row for row in connection.execute(select(table).where(of_project))}
    ids = {key: row.id for key, row in stored.items()}
    added, changed = [], []
    for key, given in wanted.items():
        old = {name: stored[key]._mapping[name] for name in blank} if key in stored else blank
        texts = {**old, **given}
        if key not in stored:
            added.append({"project_id": project_id, "key": key, **texts, **version(texts)})
        elif texts != old:
            changed.append({"of_id": ids[key], **texts, **version(texts)})
    if added:
        ids |= {row.key: row.id for row in connection.execute(insert(table).returning(table.c.key, table.c.id), added)}
    if changed:
        connection.execute(update(table).where(table.c.id == bindparam("of_id")), changed)
    plural = "queries" if table is schema.query else "documents"
    return ids, Counter({f"{plural}_added": len(added), f"{plural}_changed": len(changed)})


def _existing_pairs(connection: Connection, keys: Sequence[PairKey]) -> dict[PairKey, tuple[str, int | None]]:
    """Return kind and gold grade of the pairs with these keys, and perhaps of other pairs of their documents."""
    pair = schema.pair
    columns = select(pair.c.query_id, pair.c.document_id, pair.c.other_document_id, pair.c.kind, pair.c.gold_grade)
    firsts = sorted({key[:2] for key in keys})
    found = connection.execute(columns.where(sql_tuple(pair.c.query_id, pair.c.document_id).in_(firsts)))
    return {PairKey(*row[:3]): (row.kind, row.gold_grade) for row in found}


def _insert_pairs(connection: Connection, project: Project, values: Sequence[Mapping[str, Any]]) -> None:
    if not values:
        return
    pair = schema.pair
    added = connection.execute(insert(pair).returning(pair.c.id, pair.c.query_id, pair.c.kind), list(values))
    real = [(row.id, row.query_id, 1, True) for row in added if row.kind == "real"]
    modes = {"is_planned": project.is_planned, "is_sampled": project.is_sampled}
    add_quotas(connection, project.id, project.quotas, real, **modes)


# Reading.


def get_pair_content(connection: Connection, project: Project, pair_id: int) -> PairContent:
    """Return the texts of a pair; raise NotFound if the project has no such pair."""
    statement = select(*CONTENT_COLUMNS).select_from(PAIRS_WITH_TEXTS)
    is_wanted = (schema.pair.c.id == min(pair_id, MAX_ID)) & (schema.pair.c.project_id == project.id)
    row = connection.execute(statement.where(is_wanted)).first()
    if row is None:
        raise NotFound(f"project {shown(project.name)} has no pair {pair_id}", kind="no-pair")
    return pair_content(row)


def pair_content(row: Row[*tuple[Any, ...]], *, is_swapped: bool = False) -> PairContent:
    """Create the content of a pair from a row with the columns `CONTENT_COLUMNS`.

    Args:
        row: the row.
        is_swapped: whether the other document of a comparison is on the left.

    """
    values = row._mapping
    of_pair = {name: values[name] for name in ("pair_id", "query", "query_text", "need")}
    own = DocumentContent(*(values[name] for name in DocumentContent.__dataclass_fields__))
    if values["other"] is None:
        return PairContent(**of_pair, **vars(own))
    other = DocumentContent(values["other"], *(values[f"other_{name}"] for name in ("title", "body", "fields", "url")))
    left, right = (other, own) if is_swapped else (own, other)
    return ComparisonContent(**of_pair, **vars(left), other=right)


def count_without_text(connection: Connection, project: Project) -> int:
    """Return the number of pairs of which a document has neither title, text, fields nor link."""
    of_document, of_other = (
        and_(one.c.title == "", one.c.body == "", one.c.url.is_(None), cast(one.c.fields, Text) == "{}")
        for one in (schema.document, OTHER)
    )
    wanted = select(func.count()).select_from(PAIRS_WITH_TEXTS).where(schema.pair.c.project_id == project.id)
    return int(connection.execute(wanted.where(of_document | of_other)).scalar_one())


def find_pairs(connection: Connection, project: Project, keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """Return the ids of pairs by the ids of query and documents in the user's files; others are left out.

    The documents of a comparison are in the order of their ids.
    """
    found: dict[tuple[str, ...], int] = {}
    named = schema.query.c.key, schema.document.c.key, OTHER.c.key
    columns = select(*named, schema.pair.c.id).select_from(PAIRS_WITH_TEXTS)
    for start in range(0, len(keys), ROWS_PER_STATEMENT):
        chunk = keys[start : start + ROWS_PER_STATEMENT]
        of_queries = (schema.query.c.project_id == project.id) & schema.query.c.key.in_({key[0] for key in chunk})
        is_wanted = sql_tuple(*named[:2]).in_([key[:2] for key in chunk])
        for *key, other, pair_id in connection.execute(columns.where(of_queries, is_wanted)):
            found[*key, *([] if other is None else [other])] = pair_id
    return found


def list_pairs(
    connection: Connection, project: Project, after: int = 0, limit: int = 100, *conditions: ColumnElement[bool]
) -> list[PairState]:
    """Return the state of pairs in the order of their ids, for leads.

    Args:
        connection: connection in a transaction.
        project: the project.
        after: id of the last pair of the previous page.
        limit: maximum number of pairs.
        conditions: conditions on the columns of the table `pair`, which must all hold.

    """
    pair, quota, query, document = schema.pair, schema.quota, schema.query, schema.document
    texts = (query.c.key.label("query"), query.c.text, document.c.key.label("document"), document.c.title)
    others = OTHER.c.key.label("other"), OTHER.c.title.label("other_title")
    rows = connection.execute(
        select(pair, *texts, *others)
        .select_from(PAIRS_WITH_TEXTS)
        .where(pair.c.project_id == project.id, pair.c.id > after, *conditions)
        .order_by(pair.c.id)
        .limit(limit)
    ).all()
    quotas: dict[int, dict[str, QuotaState]] = {}
    for row in connection.execute(select(quota).where(quota.c.pair_id.in_([row.id for row in rows]))):
        quotas.setdefault(row.pair_id, {})[row.kind] = QuotaState(row.taken, row.target, row.k_max, row.priority)
    return [
        PairState(
            pair_id=row.id,
            query=row.query,
            query_text=row.text,
            document=row.document,
            title=row.title,
            kind=row.kind,
            gold_grade=None if row.gold_grade is None else project.grades[row.gold_grade],
            is_open=row.is_open,
            generation=row.generation,
            quotas=quotas.get(row.id, {}),
            other=row.other,
            other_title=row.other_title,
        )
        for row in rows
    ]


# Closing and reopening.


def close_pairs(connection: Connection, project: Project, chosen: PairFilter) -> int:
    """Close pairs, so that they are not handed out; return their number. Assessors may finish pairs that they hold."""
    return sum(
        _set_open(connection, ids, is_open=False) for ids in _chosen_ids(connection, project, chosen, is_open=True)
    )


def reopen_pairs(
    connection: Connection, project: Project, chosen: PairFilter, now: int, *, keep_answers: bool = False
) -> int:
    """Open pairs, and start a new generation of each; return their number.

    Answers of earlier generations stay, but no longer count. Leases of earlier generations end.

    Args:
        connection: connection in a write transaction.
        project: project of the pairs.
        chosen: selects the pairs.
        now: time in milliseconds.
        keep_answers: only open closed pairs again, without a new generation.

    """
    number = 0
    for ids in _chosen_ids(connection, project, chosen):
        if not keep_answers:
            _start_generation(connection, project, ids, now)
        number += _set_open(connection, ids, is_open=True)
    return number


def _start_generation(connection: Connection, project: Project, ids: Sequence[int], now: int) -> None:
    """Start a new generation of pairs: their leases end, and their consensus is deleted."""
    pair, quota, lease, standing = schema.pair, schema.quota, schema.lease, schema.standing
    is_live = and_(lease.c.pair_id.in_(ids), lease.c.ended.is_(None))
    connection.execute(select(lease.c.id).where(is_live).order_by(lease.c.id).with_for_update())
    of_pairs = quota.c.pair_id.in_(ids)
    connection.execute(
        select(quota.c.pair_id).where(of_pairs).order_by(quota.c.pair_id, quota.c.kind).with_for_update()
    )
    connection.execute(update(pair).where(pair.c.id.in_(ids)).values(generation=pair.c.generation + 1))
    new_generation = {"generation": quota.c.generation + 1, "taken": 0, **first_priority(is_planned=project.is_planned)}
    connection.execute(update(quota).where(of_pairs).values(new_generation))
    snapshots = select(schema.snapshot.c.id).where(schema.snapshot.c.project_id == project.id)
    connection.execute(delete(standing).where(standing.c.snapshot_id.in_(snapshots), standing.c.pair_id.in_(ids)))
    connection.execute(update(lease).where(is_live).values(ended=now, end_kind="expired"))


def _set_open(connection: Connection, ids: Sequence[int], *, is_open: bool) -> int:
    pair, quota = schema.pair, schema.quota
    of_pairs = quota.c.pair_id.in_(ids)
    connection.execute(
        select(quota.c.pair_id).where(of_pairs).order_by(quota.c.pair_id, quota.c.kind).with_for_update()
    )
    connection.execute(update(quota).where(of_pairs).values(is_open=is_open))
    return connection.execute(update(pair).where(pair.c.id.in_(ids)).values(is_open=is_open)).rowcount


def _chosen_ids(connection: Connection, project: Project, chosen: PairFilter, **state: bool) -> Iterator[Sequence[int]]:
    """Return the ids of the pairs that a filter selects, in chunks, in order."""
    statement: Select[Any] = (
        select(schema.pair.c.id).select_from(PAIRS_WITH_TEXTS).where(schema.pair.c.project_id == project.id)
    )
    if state:
        statement = statement.where(schema.pair.c.is_open == state["is_open"])
    statement = statement.where(*_conditions(chosen))
    ids = list(connection.execute(statement.order_by(schema.pair.c.id)).scalars())
    for start in range(0, len(ids), ROWS_PER_STATEMENT):
        yield ids[start : start + ROWS_PER_STATEMENT]


def _conditions(chosen: PairFilter) -> list[ColumnElement[bool]]:
    if chosen == PairFilter():
        names = ", ".join(PairFilter.__dataclass_fields__)
        raise Invalid("the selection is empty", kind="empty-filter", fix=f"set one of {names}")
    for name in ("pair_ids", "queries", "documents"):
        if len(getattr(chosen, name) or ()) > MAX_CONDITION_VALUES:
            problem, fix = f"must have at most {MAX_CONDITION_VALUES} values", "send them in several requests"
            raise Invalid(problem, parameter=name, kind="too-many-values", fix=fix)
    for text in (*(chosen.queries or ()), *(chosen.documents or ())):
        check_text(text)
    known_ids = None if chosen.pair_ids is None else [one for one in chosen.pair_ids if 0 < one < MAX_ID]
    lists = ((schema.pair.c.id, known_ids), (schema.query.c.key, chosen.queries))
    conditions: list[ColumnElement[bool]] = [column.in_(values) for column, values in lists if values is not None]
    if chosen.documents is not None:
        conditions.append(or_(schema.document.c.key.in_(chosen.documents), OTHER.c.key.in_(chosen.documents)))
    event, lease = schema.event, schema.lease
    if chosen.document_changed:
        seen = func.coalesce(lease.c.issued, event.c.received)
        conditions.append(_has_answer(or_(seen < schema.document.c.changed, seen < OTHER.c.changed)))
    if chosen.answered_before is not None:
        conditions.append(_has_answer(event.c.received < chosen.answered_before))
    if chosen.guidelines_before is not None:
        conditions.append(_has_answer(event.c.guidelines_version < chosen.guidelines_before))
    return conditions


def _has_answer(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    answer, event, lease = schema.answer, schema.event, schema.lease
    joined = answer.join(event, event.c.id == answer.c.event_id).outerjoin(lease, lease.c.id == event.c.lease_id)
    return (
        select(answer.c.pair_id)
        .select_from(joined)
        .where(
            answer.c.pair_id == schema.pair.c.id,
            answer.c.generation == schema.pair.c.generation,
            or_(answer.c.kind == "grade", answer.c.kind == "cannot-judge"),
            condition,
        )
        .correlate(schema.pair, schema.document, OTHER)
        .exists()
    )
