"""Progress of a project (pairs, answers, cost, work of each assessor), and export of its answers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import bdtr
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, bindparam, case, func, or_, select, text

from crowdrank._assessor_kinds import kind_code
from crowdrank._estimator import require_one_of
from crowdrank._typing import Booleans, Floats, Grades, Integers
from crowdrank.judgments import ids
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments, ReadReport
from crowdrank.readers.judging_database import ANSWERS_SQL, answer_table, preference_table
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.readers.sources import BadRows
from crowdrank.readers.write import write_table
from crowdrank.service.domain.projects import MAX_CONDITION_VALUES, PREFERENCE_ANSWERS, Project
from crowdrank.service.domain.qualification import GoldAccuracy, honeypot_accuracy
from crowdrank.service.domain.quotas import N_COUNTED, QUOTAS_WITH_LEASES
from crowdrank.service.store import schema

PREFERENCE_CODES = {name: code for code, name in enumerate(PREFERENCE_ANSWERS)}
"""Codes of the answers of projects that ask for preferences."""
CONTENT_TYPES: Mapping[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
"""Content type of each export format."""


_OF_QUERIES = text(ANSWERS_SQL.replace("ORDER BY", "AND query IN :queries ORDER BY")).bindparams(
    bindparam("queries", expanding=True)
)
_OF_SAMPLE = text(ANSWERS_SQL.replace("ORDER BY", "AND probability IS NOT NULL ORDER BY"))


def answers_of(connection: Connection, project: Project, queries: Sequence[str] | None = None) -> pa.Table:
    """Return the latest answers of a project as a table; earlier generations and training pairs are left out.

    The columns are those that crowdrank recognizes (query, document, assessor, family, grade, time, duration, cost,
    honeypot), the kind of assessor and the comment. Preferences have the columns left, right and preference, with the
    documents on the sides on which they were shown; "cannot judge" is left out of them. Answers to pairs that the
    policy `compare` drew have the probability of the draw and the number of its draw; named grades have the column
    `scale`.

    Args:
        connection: connection of a transaction.
        project: the project.
        queries: ids of queries in the user's files; None for all.

    """
    if queries is None:
        rows = connection.execute(text(ANSWERS_SQL), {"project": project.name})
    else:
        rows = connection.execute(_OF_QUERIES, {"project": project.name, "queries": list(queries)})
    if project.asks_preferences:
        return preference_table(map(dict, rows.mappings()), BadRows())
    return answer_table(map(dict, rows.mappings()), project.grades, BadRows())


def sampled_answers(connection: Connection, project: Project) -> pa.Table:
    """Return the answers of a project to pairs that were drawn, as :func:`answers_of` does."""
    rows = connection.execute(_OF_SAMPLE, {"project": project.name})
    return answer_table(map(dict, rows.mappings()), project.grades, BadRows())


def file_content(table: pa.Table, format: str, *, csv_safe: bool = False) -> bytes:
    """Return a table as the content of a file.

    Args:
        table: the table.
        format: `csv`, `jsonl` or `parquet`.
        csv_safe: in CSV, put `'` before text that a spreadsheet program would run as a formula.

    Raises:
        UsageError: the format is unknown.

    """
    require_one_of("format", format, tuple(CONTENT_TYPES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{format}"
        write_table(table, path, csv_safe=csv_safe)
        return path.read_bytes()


@dataclass(frozen=True, eq=False)
class CodedAnswers:
    """Latest answers of a project as judgments on its scale, with the keys of their pairs and assessors.

    Attributes:
        judgments: the judgments; their ids are those of the user's files.
        pair_ids: (n_items,) key of each pair.
        assessor_ids: (n_assessors,) key of each assessor.
        is_swapped: (n,) whether each answer was given with the other document of a comparison on the left.

    """

    judgments: Judgments
    pair_ids: Integers
    assessor_ids: Integers
    is_swapped: Booleans


_CODED = (
    select(
        schema.answer.c.pair_id,
        schema.pair.c.query_id,
        schema.pair.c.document_id,
        schema.answer.c.assessor_id,
        func.coalesce(schema.answer.c.grade, UNJUDGEABLE),
        schema.event.c.received,
        schema.event.c.active_ms,
        schema.assessor.c.price,
        case((schema.pair.c.kind == "gold", schema.pair.c.gold_grade), else_=NO_HONEYPOT),
        case((schema.event.c.probabilities.is_not(None), schema.event.c.id)),
        schema.event.c.is_swapped,
        schema.answer.c.swapped_grade,
    )
    .join_from(schema.answer, schema.event, schema.event.c.id == schema.answer.c.event_id)
    .join(schema.pair, schema.pair.c.id == schema.answer.c.pair_id)
    .join(schema.query, schema.query.c.id == schema.pair.c.query_id)
    .join(schema.document, schema.document.c.id == schema.pair.c.document_id)
    .join(schema.assessor, schema.assessor.c.id == schema.answer.c.assessor_id)
    .where(
        schema.pair.c.project_id == bindparam("in_project"),
        schema.pair.c.kind != "training",
        schema.answer.c.generation == schema.pair.c.generation,
        schema.answer.c.kind != "later",
    )
    .order_by(schema.event.c.received, schema.query.c.key, schema.document.c.key, schema.assessor.c.name)
)
_CODED_OF_QUERIES = _CODED.where(schema.query.c.key.in_(bindparam("queries", expanding=True)))


def coded_answers(
    connection: Connection, project: Project, queries: Sequence[str] | None = None
) -> CodedAnswers | None:
    """Return the answers that :func:`answers_of` returns as judgments; None without any.

    The keys of the database become codes, and names are read once for each query, document and assessor. The result is
    what :func:`crowdrank.read_judgments` returns for the database. Of a project that asks for preferences, the items
    are comparisons, whose grades are the answers with the first document on the left; answers in both orders are two.
    """
    if queries is None:
        found = connection.execute(_CODED, {"in_project": project.id})
    else:
        found = connection.execute(_CODED_OF_QUERIES, {"in_project": project.id, "queries": list(queries)})
    rows = found.cursor.fetchall()  # numbers only: plain tuples take a third of the time
    if not rows:
        return None
    if project.asks_preferences:
        rows = list(chain.from_iterable(map(_split_orders, rows)))
    pair_ids, *keys, grades, received, active, prices, gold, soft_events, is_swapped, _ = zip(*rows, strict=True)
    if project.asks_preferences:
        keys[1] = pair_ids
    coded = [ids.encode(pa.chunked_array([pa.array(key, pa.int64())])) for key in keys]
    (query, query_ids), (document, document_ids), (assessor, assessor_ids) = (
        (codes, distinct.to_numpy()) for codes, distinct in coded
    )
    order, offsets = ids.group_rows(query, document, len(query_ids), len(document_ids))
    first = order[offsets[:-1]]
    names, kinds, families = _assessors_by_key(connection, assessor_ids)
    extras = {
        "time": np.array(received, "datetime64[ms]").astype("datetime64[us]"),
        "duration": np.array(active, float) / 1000,
        "cost": np.array(prices, float),
        "honeypot": np.array(gold, np.int8),
        "kind": kinds[assessor],
        **_share_columns(connection, soft_events, project.scale.share_names),
    }
    judgments = Judgments(
        **families,
        assessors=names,
        scales=(project.scale,),
        assessor_scale=np.zeros(len(assessor_ids), np.int8),
        unjudgeable=(CANNOT_JUDGE,),
        report=ReadReport(rows=len(rows)),
        backend="pyarrow",
        queries=_user_ids(connection, schema.query, query_ids),
        documents=_item_ids(connection, project, document_ids),
        item_query=query[first],
        item_document=document[first],
        offsets=offsets,
        assessor=assessor[order],
        grade=np.array(grades, np.int8)[order],
        extras={name: column[order] for name, column in extras.items()},
    )
    return CodedAnswers(judgments, np.array(pair_ids)[first], assessor_ids, np.array(is_swapped, bool)[order])


def _split_orders(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the rows of an answer in `_CODED`: one per order of the documents, which share its time."""
    *first, grade, received, active, price, gold, soft_event, is_swapped, swapped_grade = row
    if swapped_grade is None:
        return [row]
    active = None if active is None else active / 2
    return [
        (*first, grade, received, active, price, gold, soft_event, is_swapped, None),
        (*first, swapped_grade, received, active, price, gold, None, not is_swapped, None),
    ]


def _item_ids(connection: Connection, project: Project, keys: Integers) -> pa.Array:
    """Return the ids of documents in the user's files; of comparisons, numbers as text."""
    if project.asks_preferences:
        return pa.array(map(str, keys.tolist()), pa.string())
    return _user_ids(connection, schema.document, keys)


def coded_preferences(connection: Connection, answers: CodedAnswers) -> Preferences | None:
    """Return the preferences among the answers of a project that asks for them, as they were shown; None without any.

    Answers to honeypots are among them, and "cannot judge" is not.
    """
    judgments, pair = answers.judgments, schema.pair
    is_used = judgments.grade != UNJUDGEABLE
    if not is_used.any():
        return None
    sides: dict[int, tuple[int, int]] = {}
    listed = answers.pair_ids.tolist()
    for start in range(0, len(listed), MAX_CONDITION_VALUES):
        is_wanted = pair.c.id.in_(listed[start : start + MAX_CONDITION_VALUES])
        rows = connection.execute(select(pair.c.id, pair.c.document_id, pair.c.other_document_id).where(is_wanted))
        sides |= {row.id: (row.document_id, row.other_document_id) for row in rows}
    keys = np.array([sides[pair_id] for pair_id in listed])
    document_ids, codes = np.unique(keys, return_inverse=True)
    left, right = codes.reshape(-1, 2)[judgments.item].T.astype(np.int32)
    sign, is_swapped = np.where(answers.is_swapped, -1, 1), answers.is_swapped
    found = Preferences(
        queries=judgments.queries,
        documents=_user_ids(connection, schema.document, document_ids),
        assessors=judgments.assessors,
        query=judgments.item_query[judgments.item],
        left=np.where(is_swapped, right, left),
        right=np.where(is_swapped, left, right),
        assessor=judgments.assessor,
        answer=(sign * (judgments.grade.astype(np.int64) - 1)).astype(np.int8),
        families=judgments.families,
        assessor_family=judgments.assessor_family,
        backend="pyarrow",
    )
    return found.where(is_used)


def _share_columns(connection: Connection, events: Sequence[int | None], names: Sequence[str]) -> dict[str, Floats]:
    """Return the probabilities of each grade, NaN for answers without any; no columns if none has them.

    Args:
        connection: connection of a transaction.
        events: event of each answer with probabilities; None for others.
        names: names of the columns.

    """
    wanted = [event for event in events if event is not None]
    if not wanted:
        return {}
    found = _values_by_key(connection, schema.event.c.probabilities, wanted)
    missing = [math.nan] * len(names)
    shares = np.array([missing if event is None else found[event] for event in events], float)
    return dict(zip(names, shares.T.copy(), strict=True))


def _values_by_key(connection: Connection, column: Column[Any], keys: Sequence[int]) -> dict[int, Any]:
    """Return the values of a column in the rows with some keys."""
    found: dict[int, Any] = {}
    for start in range(0, len(keys), MAX_CONDITION_VALUES):
        is_wanted = column.table.c.id.in_(keys[start : start + MAX_CONDITION_VALUES])
        found.update(map(tuple, connection.execute(select(column.table.c.id, column).where(is_wanted)).all()))
    return found


def _user_ids(connection: Connection, table: Table, keys: Integers) -> pa.Array:
    """Return the ids of queries or documents in the user's files."""
    listed = keys.tolist()
    found = _values_by_key(connection, table.c.key, listed)
    return pa.array([found[key] for key in listed], pa.string())


def _assessors_by_key(connection: Connection, keys: Integers) -> tuple[pa.Array, Grades, dict[str, Any]]:
    """Return the names of assessors, the codes of their kinds, and the fields of judgments about their families."""
    assessor = schema.assessor
    rows = connection.execute(select(assessor.c.id, assessor.c.name, assessor.c.kind, assessor.c.family)).all()
    found = {row.id: row for row in rows}
    names = pa.array([found[key].name for key in keys.tolist()], pa.string())
    kinds = np.array([kind_code(found[key].kind) for key in keys.tolist()], np.int8)
    families = pa.array([found[key].family for key in keys.tolist()], pa.string())
    if families.null_count == len(families):
        return names, kinds, {}
    coded = families.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy().astype(np.int32)
    return names, kinds, {"families": coded.dictionary, "assessor_family": codes}


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs. The states apply to real pairs.

    Attributes:
        complete: open pairs that have the labels wanted from every kind of assessor; with the policy `compare`, of the
            pairs that were drawn.
        unfinished: open pairs that want more labels.
        closed: closed pairs.
        gold: open gold pairs.
        training: open training pairs.

    """

    complete: int
    unfinished: int
    closed: int
    gold: int
    training: int


@dataclass(frozen=True)
class AssessorProgress:
    """Work of a member, or of a former one. Answers are the latest of each pair, of all generations and kinds of pairs.

    Attributes:
        role: role in the project; None for former members.
        qualification: state of the qualification; None for former members.
        n_answers: grades and pairs that cannot be judged.
        n_late: answers under a lease that had ended.
        n_uncounted: answers that take no place of their pair.
        cost: price of the answers; an answer in both orders of a comparison has the price twice.
        gold: accuracy on gold pairs.
        last_answer: time of the last answer in milliseconds.

    """

    assessor_id: int
    name: str
    kind: str
    role: str | None
    is_paused: bool
    qualification: str | None
    n_answers: int
    n_cannot_judge: int
    n_later: int
    n_late: int
    n_uncounted: int
    n_live_leases: int
    cost: float
    gold: GoldAccuracy
    last_answer: int | None


@dataclass(frozen=True)
class ChosenSides:
    """Number of comparisons in which an assessor preferred the document on the left, and the one on the right."""

    left: int
    right: int

    @property
    def p_value(self) -> float:
        """P-value of a sign test of whether both sides, which are random, are equally likely to be preferred.

        >>> round(ChosenSides(8, 2).p_value, 4), ChosenSides(0, 0).p_value
        (0.1094, 1.0)
        """
        return min(1.0, 2 * float(bdtr(min(self.left, self.right), self.left + self.right, 0.5)))


def chosen_sides(connection: Connection, project: Project) -> dict[int, ChosenSides]:
    """Return how often each assessor preferred either side, by assessor id, in a project that asks for preferences."""
    grade, is_swapped = _ANSWER.c.grade, _EVENT.c.is_swapped
    first, other = PREFERENCE_CODES["left"], PREFERENCE_CODES["right"]
    is_left = or_(and_(grade == first, ~is_swapped), and_(grade == other, is_swapped))
    is_right = or_(and_(grade == other, ~is_swapped), and_(grade == first, is_swapped))
    second = _ANSWER.c.swapped_grade
    is_second_left = or_(and_(second == first, is_swapped), and_(second == other, ~is_swapped))
    is_second_right = or_(and_(second == other, is_swapped), and_(second == first, ~is_swapped))
    n_left, n_right = (
        func.count(case((one, 1))) + func.count(case((two, 1)))
        for one, two in ((is_left, is_second_left), (is_right, is_second_right))
    )
    rows = connection.execute(
        select(_ANSWER.c.assessor_id, n_left, n_right)
        .join_from(_ANSWER, _EVENT, _EVENT.c.id == _ANSWER.c.event_id)
        .where(_EVENT.c.project_id == project.id, _ANSWER.c.kind == "grade")
        .group_by(_ANSWER.c.assessor_id)
    )
    return {assessor_id: ChosenSides(left, right) for assessor_id, left, right in rows}


@dataclass(frozen=True)
class ProjectStatus:
    """Progress of a project.

    Attributes:
        labels: labels counted and wanted for open real pairs, by kind of assessor: (counted, wanted).

    """

    pairs: PairCounts
    labels: Mapping[str, tuple[int, int]]
    n_answers: int
    n_late: int
    n_uncounted: int
    n_live_leases: int
    cost: float
    assessors: tuple[AssessorProgress, ...]


def project_status(connection: Connection, project: Project, now: int) -> ProjectStatus:
    """Return the progress of a project."""
    assessors = _assessors(connection, project, now)
    return ProjectStatus(
        pairs=_pair_counts(connection, project),
        labels=_labels(connection, project),
        n_answers=sum(one.n_answers for one in assessors),
        n_late=sum(one.n_late for one in assessors),
        n_uncounted=sum(one.n_uncounted for one in assessors),
        n_live_leases=sum(one.n_live_leases for one in assessors),
        cost=sum(one.cost for one in assessors),
        assessors=assessors,
    )


_PAIR, _QUOTA, _LEASE, _ANSWER, _EVENT = schema.pair, schema.quota, schema.lease, schema.answer, schema.event


def _pair_counts(connection: Connection, project: Project) -> PairCounts:
    rows = connection.execute(
        select(_PAIR.c.kind, _PAIR.c.is_open, func.count())
        .where(_PAIR.c.project_id == project.id)
        .group_by(_PAIR.c.kind, _PAIR.c.is_open)
    )
    counts = {(kind, bool(is_open)): number for kind, is_open, number in rows}
    unfinished = connection.execute(
        select(func.count(_QUOTA.c.pair_id.distinct())).select_from(QUOTAS_WITH_LEASES).where(*_wants_labels(project))
    ).scalar_one()
    n_wanted = counts.get(("real", True), 0)
    if project.is_sampled:
        is_wanted = _QUOTA.c.project_id == project.id, _QUOTA.c.is_open, _QUOTA.c.target > 0
        n_wanted = connection.execute(select(func.count(_QUOTA.c.pair_id.distinct())).where(*is_wanted)).scalar_one()
    return PairCounts(
        complete=n_wanted - unfinished,
        unfinished=unfinished,
        closed=counts.get(("real", False), 0),
        gold=counts.get(("gold", True), 0),
        training=counts.get(("training", True), 0),
    )


def _wants_labels(project: Project) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on a quota that is not filled."""
    return _QUOTA.c.project_id == project.id, _QUOTA.c.is_open, _QUOTA.c.target > N_COUNTED


def is_unfinished(project: Project) -> ColumnElement[bool]:
    """Return the condition on a pair of a project that it wants more labels."""
    return _PAIR.c.id.in_(select(_QUOTA.c.pair_id).select_from(QUOTAS_WITH_LEASES).where(*_wants_labels(project)))


def _labels(connection: Connection, project: Project) -> dict[str, tuple[int, int]]:
    towards_target = case((_QUOTA.c.target > N_COUNTED, N_COUNTED), else_=_QUOTA.c.target)
    rows = connection.execute(
        select(_QUOTA.c.kind, func.sum(towards_target), func.sum(_QUOTA.c.target))
        .select_from(QUOTAS_WITH_LEASES)
        .where(_QUOTA.c.project_id == project.id, _QUOTA.c.is_open)
        .group_by(_QUOTA.c.kind)
    )
    return {kind: (int(counted), int(wanted)) for kind, counted, wanted in rows}


def _assessors(connection: Connection, project: Project, now: int) -> tuple[AssessorProgress, ...]:
    assessor, membership = schema.assessor, schema.membership
    is_later = _ANSWER.c.kind == "later"
    work = {
        row.assessor_id: row
        for row in connection.execute(
            select(
                _ANSWER.c.assessor_id,
                func.count(case((~is_later, 1))).label("n_answers"),
                func.count(case((_ANSWER.c.kind == "cannot-judge", 1))).label("n_cannot_judge"),
                func.count(case((is_later, 1))).label("n_later"),
                func.count(case((and_(~is_later, _EVENT.c.is_late), 1))).label("n_late"),
                func.count(case((and_(~is_later, ~_ANSWER.c.is_counted), 1))).label("n_uncounted"),
                func.count(_ANSWER.c.swapped_grade).label("n_both_orders"),
                func.max(case((~is_later, _EVENT.c.received))).label("last_answer"),
            )
            .join_from(_ANSWER, _EVENT, _EVENT.c.id == _ANSWER.c.event_id)
            .where(_EVENT.c.project_id == project.id)
            .group_by(_ANSWER.c.assessor_id)
        )
    }
    live = connection.execute(
        select(_LEASE.c.assessor_id, func.count())
        .join_from(_LEASE, _PAIR)
        .where(_PAIR.c.project_id == project.id, _LEASE.c.ended.is_(None), _LEASE.c.expires > now)
        .group_by(_LEASE.c.assessor_id)
    )
    n_live = {row[0]: row[1] for row in live}
    gold = honeypot_accuracy(connection, project)
    is_member = and_(membership.c.assessor_id == assessor.c.id, membership.c.project_id == project.id)
    rows = connection.execute(
        select(
            assessor.c.id,
            assessor.c.name,
            assessor.c.kind,
            assessor.c.price,
            membership.c.role,
            membership.c.is_paused,
            membership.c.qualification,
        )
        .join_from(assessor, membership, is_member, isouter=True)
        .where(membership.c.role.is_not(None) | assessor.c.id.in_(work))
        .order_by(assessor.c.name)
    )
    counts = ("n_answers", "n_cannot_judge", "n_later", "n_late", "n_uncounted")
    return tuple(
        AssessorProgress(
            assessor_id=row.id,
            name=row.name,
            kind=row.kind,
            role=row.role,
            is_paused=bool(row.is_paused),
            qualification=row.qualification,
            **{name: getattr(work[row.id], name) if row.id in work else 0 for name in counts},
            n_live_leases=n_live.get(row.id, 0),
            cost=row.price * (work[row.id].n_answers + work[row.id].n_both_orders if row.id in work else 0),
            gold=gold.get(row.id, GoldAccuracy(0, 0)),
            last_answer=work[row.id].last_answer if row.id in work else None,
        )
        for row in rows
    )
