"""Fit a consensus model to the answers of a project, store it as a snapshot, and act on flags.

A project can set a minimum (`min_information`). Assessors below it get no pairs until a later fit estimates at least
the minimum. Assessors with too few answers to compare have no estimate yet and get pairs.

A snapshot has the consensus of each pair and the reliability of each assessor. Its rows are written in short
transactions, so that requests do not wait for long; the last one completes it and puts the plan of the next labels into
effect. Readers see only the newest complete snapshot, so that they see all of a fit or nothing of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, func, insert, select, update
from sqlalchemy import tuple_ as sql_tuple

from crowdrank.assessors.agreement import agreement_table
from crowdrank.assessors.assessor_report import UNRELIABLE_FLAGS, assess
from crowdrank.collection.belief import grade_certainty
from crowdrank.collection.replay import refit
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.calibration import Calibration, calibrate, grade_shares, with_shares
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.errors import CrowdrankWarning, near
from crowdrank.judgments.gold import ItemGold
from crowdrank.judgments.table import NO_HONEYPOT, Judgments
from crowdrank.service.domain.pairs import OTHER, PAIRS_WITH_TEXTS
from crowdrank.service.domain.people import record_audit
from crowdrank.service.domain.progress import CodedAnswers, coded_answers, coded_preferences
from crowdrank.service.domain.projects import Project, lock_project
from crowdrank.service.model.document_order import INTERVAL_SD, Compared, DocumentOrder
from crowdrank.service.model.label_plan import (
    PlanRow,
    check_method,
    plan_labels,
    read_inputs,
    with_answers,
    write_plan,
)
from crowdrank.service.service_errors import Conflict, Invalid
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

ACTING_FLAGS = ("careless", *UNRELIABLE_FLAGS)
"""Flags that lead to an action: the answers have little information, none, or are reversed."""
NEW_ANSWERS = 50
"""Number of further answers of an assessor after which the same flag leads to an action again."""

_MEMBERSHIP, _ASSESSOR = schema.membership, schema.assessor
_MEMBERS = (
    select(
        _MEMBERSHIP.c.assessor_id,
        _MEMBERSHIP.c.is_paused,
        _MEMBERSHIP.c.flag,
        _MEMBERSHIP.c.acted_flag,
        _MEMBERSHIP.c.acted_answers,
        _ASSESSOR.c.name,
    )
    .join_from(_MEMBERSHIP, _ASSESSOR)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"))
    .order_by(_MEMBERSHIP.c.assessor_id)
    .with_for_update(of=_MEMBERSHIP)
)


@dataclass(frozen=True)
class AssessorFlag:
    """Flag of an assessor, the evidence, and the number of answers that it is based on."""

    name: str
    evidence: str
    n_answers: int


def act_on_flags(connection: Connection, project: Project, flags: Mapping[int, AssessorFlag], now: int) -> list[str]:
    """Act on flags of members; return the names of those acted on.

    A flag acts once. It acts again if the assessor has given `NEW_ANSWERS` more answers and still has it.

    Args:
        connection: connection in a write transaction.
        project: the project, with what to do (`flag_action`).
        flags: flags by assessor id; only `ACTING_FLAGS` act.
        now: time in milliseconds.

    """
    acted = []
    for member in connection.execute(_MEMBERS, {"in_project": project.id}).all():
        flag = flags.get(member.assessor_id)
        flag = flag if flag is not None and flag.name in ACTING_FLAGS else None
        changes: dict[str, Any] = {}
        if member.flag != (None if flag is None else flag.name):
            changes["flag"] = None if flag is None else flag.name
        if flag is not None and _is_new(member, flag):
            changes |= {"acted_flag": flag.name, "acted_answers": flag.n_answers}
            if project.flag_action == "pause":
                changes |= {"is_paused": True, "pause_reason": f"{flag.name}: {flag.evidence}"}
            details = {"assessor": member.name, "flag": flag.name, "evidence": flag.evidence}
            details["action"] = project.flag_action
            record_audit(connection, "member.flag", details, project_id=project.id, now=now)
            acted.append(member.name)
        if changes:
            of_member = _MEMBERSHIP.c.assessor_id == member.assessor_id
            of_project = _MEMBERSHIP.c.project_id == project.id
            connection.execute(update(_MEMBERSHIP).where(of_member, of_project).values(changes))
    return acted


def _is_new(member: Row[*tuple[Any, ...]], flag: AssessorFlag) -> bool:
    if member.is_paused:
        return False
    return member.acted_flag != flag.name or flag.n_answers >= (member.acted_answers or 0) + NEW_ANSWERS


MIN_ANSWERS, MIN_SHARED = 30, 10
"""Minimum number of answers for an estimate, and of those to pairs that others have answered, too."""
DIGITS = 3
"""Number of decimals that are stored."""

_INFORMED_MEMBERS = (
    select(
        _MEMBERSHIP.c.assessor_id,
        _MEMBERSHIP.c.relative_information,
        _ASSESSOR.c.kind,
        _ASSESSOR.c.price,
        and_(_ASSESSOR.c.is_active, ~_MEMBERSHIP.c.is_paused).label("is_available"),
    )
    .join_from(_MEMBERSHIP, _ASSESSOR)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"))
    .order_by(_MEMBERSHIP.c.assessor_id)
)
_WRITE = (
    update(_MEMBERSHIP)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"), _MEMBERSHIP.c.assessor_id == bindparam("of_assessor"))
    .values(relative_information=bindparam("value"))
)


@dataclass(frozen=True)
class MemberInformation:
    """Information in the answers of a member.

    Attributes:
        assessor_id: the assessor.
        kind: kind of the assessor.
        price: price of an answer.
        information: information in one answer, in nats.
        is_available: whether the member may judge.

    """

    assessor_id: int
    kind: str
    price: float
    information: float
    is_available: bool


def compared_assessors(judgments: Judgments) -> set[str]:
    """Return the names of assessors with enough answers, and enough to pairs that others have answered, too."""
    answered = np.unique(np.column_stack((judgments.item, judgments.assessor)), axis=0)[:, 0]  # repeats count once
    is_shared = np.bincount(answered, minlength=judgments.n_items) > 1
    n_answers = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    n_shared = np.bincount(judgments.assessor, is_shared[judgments.item], judgments.n_assessors)
    compared = np.flatnonzero((n_answers >= MIN_ANSWERS) & (n_shared >= MIN_SHARED))
    return set(judgments.assessors.take(compared).to_pylist())


def store_relative_information(connection: Connection, project: Project, information: Mapping[int, float]) -> None:
    """Store the relative information of each member after a fit.

    Args:
        connection: connection in a write transaction.
        project: the project.
        information: information in one answer, in nats, of each of the :func:`compared_assessors`, by assessor id.

    """
    members = connection.execute(_INFORMED_MEMBERS, {"in_project": project.id}).all()
    values = relative_information(
        MemberInformation(one.assessor_id, one.kind, one.price, information[one.assessor_id], one.is_available)
        for one in members
        if one.assessor_id in information
    )
    changes = [
        {"in_project": project.id, "of_assessor": member.assessor_id, "value": values.get(member.assessor_id)}
        for member in members
        if values.get(member.assessor_id) != member.relative_information
    ]
    if changes:
        connection.execute(_WRITE, changes)


def relative_information(members: Iterable[MemberInformation]) -> dict[int, float]:
    """Return the information per price of each assessor, divided by the mean of the available ones of the kind.

    Prices are left out where an assessor of the kind is free. Without an available assessor there is no value.

    >>> ann, bob = (MemberInformation(key, "human", 1.0, 0.1 * key, True) for key in (1, 3))
    >>> relative_information([ann, bob])
    {1: 0.5, 3: 1.5}

    """
    kinds: dict[str, list[MemberInformation]] = {}
    for member in members:
        kinds.setdefault(member.kind, []).append(member)
    values: dict[int, float] = {}
    for found in kinds.values():
        values |= _relative_to_mean(found)
    return values


def _relative_to_mean(members: Sequence[MemberInformation]) -> dict[int, float]:
    is_priced = all(member.price > 0 for member in members)
    values = {member.assessor_id: member.information / (member.price if is_priced else 1.0) for member in members}
    available = [values[member.assessor_id] for member in members if member.is_available]
    mean = fmean(available) if available else 0.0
    return {assessor_id: round(value / mean, DIGITS) for assessor_id, value in values.items()} if mean > 0 else {}


DEFAULT_METHOD = "gda"
"""Default consensus model."""
MAX_AGREEMENTS = 10
"""Maximum number of pairs of assessors whose agreement is stored."""
AGREEMENT_COLUMNS = ["assessor", "other", "documents", "agreement", "kappa"]
CHUNK = 500
"""Maximum number of pairs per transaction."""

_SNAPSHOT = schema.snapshot


@dataclass(frozen=True)
class Snapshot:
    """A fit of a model.

    Attributes:
        id: key in the database.
        method: name of the model.
        last_event_id: newest event that the fit has seen.
        created: time of the fit, in milliseconds.
        agreement: agreement of the pairs of assessors with most documents in common: `assessor`, `other`, `documents`,
            `agreement` (share of equal grades) and `kappa`.

    """

    id: int
    method: str
    last_event_id: int
    created: int
    agreement: list[Mapping[str, Any]]


@dataclass(frozen=True)
class Standing:
    """Consensus of a pair in a snapshot; values that the model does not estimate are None.

    Of a comparison, `relevance` is the relevance of `document`, on the left, minus that of `other`.
    """

    pair_id: int
    query: str
    document: str
    relevance: float
    sd: float | None
    lower: float | None
    upper: float | None
    grade: str
    probabilities: list[float]
    other: str | None = None


@dataclass(frozen=True)
class Reliability:
    """Reliability of an assessor: information in one answer (in nats), and flags with their evidence."""

    assessor_id: int
    assessor: str
    informativeness: float | None
    flags: list[Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class FittedProject:
    """A snapshot and the model that it was written from.

    Attributes:
        snapshot: the snapshot.
        model: the model.
        plan_changes: number of quotas whose target or priority changed.
        calibration: calibration of the grade probabilities of the snapshot by gold pairs; None if the project leaves
            it out.

    """

    snapshot: Snapshot
    model: Aggregator
    plan_changes: int
    calibration: Calibration | None = None


def fit_project(
    database: Database, project: Project, method: str = DEFAULT_METHOD, previous: Aggregator | None = None
) -> FittedProject:
    """Fit a model to all answers of a project, and store it as the newest snapshot, with the plan of the next labels.

    No transaction is open during the fit, so that answers are not delayed.

    Args:
        database: the database.
        project: the project.
        method: name of a consensus model.
        previous: fitted model of this method to start from; a few iterations follow. None: until convergence.

    Raises:
        Invalid: there is no such model, or the policy of the project cannot use it.
        Conflict: there are no answers yet.

    """
    if method not in METHODS:
        problem, fix = f"{method!r} is not a consensus model{near(method, METHODS)}", f"use one of {', '.join(METHODS)}"
        raise Invalid(problem, parameter="method", kind="unknown-method", fix=fix)
    check_method(project, method)
    with database.read() as connection:
        last_event = newest_event(connection, project)
        answers = coded_answers(connection, project)
        if answers is None:
            raise Conflict("there are no answers yet", kind="no-answers", fix="fit after the first answers")
        preferences = coded_preferences(connection, answers) if project.asks_preferences else None
        inputs = read_inputs(connection, project) if project.is_planned else None
    judgments = answers.judgments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdrankWarning)  # few answers determine little: intervals say so
        model = refit(lambda: get_aggregator(method), judgments, previous)
        report: pa.Table = assess(model).table
        order = None if preferences is None else DocumentOrder.fit(preferences)
    plan = [] if inputs is None else plan_labels(project, inputs, judgments, model, order)
    labels, calibration = calibrate_labels(model, project)
    standings = standing_rows(model, labels, project, answers)
    if order is not None:
        with database.read() as connection:
            standings = order_comparisons(connection, standings, order)
    agreement = agreement_table(judgments).select(AGREEMENT_COLUMNS)[:MAX_AGREEMENTS].to_pylist()
    values = {"method": method, "last_event_id": last_event, "created": database.now(), "agreement": agreement}
    snapshot = _write_draft(database, project, values, standings)
    assessed = report.to_pylist()
    assessors = dict(zip(judgments.assessors.to_pylist(), answers.assessor_ids.tolist(), strict=True))
    reliabilities = [{"snapshot_id": snapshot.id, **_reliability(row, assessors)} for row in assessed]
    flags = {
        assessors[row["assessor"]]: AssessorFlag(row["flag"], row["evidence"], row["judgments"]) for row in assessed
    }

    compared = compared_assessors(judgments)
    information = {
        assessors[row["assessor"]]: row["informativeness"]
        for row in assessed
        if row["assessor"] in compared and _finite(row["informativeness"]) is not None
    }

    def complete(connection: Connection) -> None:
        act_on_flags(connection, project, flags, snapshot.created)
        store_relative_information(connection, project, information)
        connection.execute(insert(schema.reliability), reliabilities)
        connection.execute(update(_SNAPSHOT).where(_SNAPSHOT.c.id == snapshot.id).values(is_complete=True))
        write_current_plan(connection, project, plan)

    database.write(complete)
    _delete_others(database, project, snapshot)
    return FittedProject(snapshot, model, len(plan), calibration)


def plan_project(database: Database, project: Project) -> int:
    """Plan the first labels of a project without answers; return the number of quotas that changed."""
    with database.read() as connection:
        inputs = read_inputs(connection, project)
    plan = plan_labels(project, inputs, None, None)
    database.write(lambda connection: write_current_plan(connection, project, plan))
    return len(plan)


def update_queries(
    database: Database, project: Project, fitted: FittedProject, queries: Sequence[str], pair_ids: Sequence[int]
) -> FittedProject:
    """Recompute the consensus of pairs and the label plan of their queries, with the assessors' parameters fixed.

    Both are stored, unless there is a newer snapshot.

    Args:
        database: the database.
        project: the project.
        fitted: the fit whose snapshot is updated.
        queries: queries of the pairs, by the user's ids.
        pair_ids: pairs with new, changed or withdrawn answers.

    Returns:
        The same model and calibration, with the updated snapshot and the number of rows of the label plan.

    """
    with database.read() as connection:
        last_event = newest_event(connection, project)
        answers = coded_answers(connection, project, queries)
        inputs = read_inputs(connection, project, queries) if project.is_planned else None
        changed = set(pair_ids)
        if fitted.model.assessor_estimator_.locality == "query":
            changed |= _pairs_of_queries(connection, project, queries)
    model = None if answers is None else with_answers(fitted.model, answers.judgments)
    judgments = None if answers is None else answers.judgments
    plan = [] if inputs is None else plan_labels(project, inputs, judgments, model or fitted.model)
    found = []
    if model is not None and answers is not None:
        labels = apply_calibration(model, fitted.calibration)
        found = standing_rows(model, labels, project, answers)
    standings = [row for row in found if row["pair_id"] in changed]
    snapshot = replace(fitted.snapshot, last_event_id=last_event)

    def write(connection: Connection) -> None:
        newest = latest_snapshot(connection, project)
        if newest is not None and newest.id == snapshot.id:
            _replace_standings(connection, snapshot, changed, standings)
            write_current_plan(connection, project, plan)

    database.write(write)
    return FittedProject(snapshot, fitted.model, len(plan), fitted.calibration)


def newest_event(connection: Connection, project: Project) -> int:
    """Return the id of the newest event of a project, or 0."""
    newest = select(func.coalesce(func.max(schema.event.c.id), 0)).where(schema.event.c.project_id == project.id)
    return int(connection.execute(newest).scalar_one())


def write_current_plan(connection: Connection, project: Project, plan: Sequence[PlanRow]) -> None:
    """Write a plan, unless the settings that it depends on have changed."""
    if plan and lock_project(connection, project.id).plan_settings == project.plan_settings:
        write_plan(connection, plan)


def latest_snapshot(connection: Connection, project: Project) -> Snapshot | None:
    """Return the snapshot of the newest answers, or None before the first fit."""
    columns = (_SNAPSHOT.c[name] for name in Snapshot.__dataclass_fields__)
    newest = _SNAPSHOT.c.last_event_id.desc(), _SNAPSHOT.c.id.desc()
    of_project = _SNAPSHOT.c.project_id == project.id, _SNAPSHOT.c.is_complete
    row = connection.execute(select(*columns).where(*of_project).order_by(*newest)).first()
    return None if row is None else Snapshot(*row)


def list_standings(connection: Connection, project: Project, snapshot: Snapshot) -> list[Standing]:
    """Return the consensus of each pair in a snapshot, ordered by query and relevance."""
    columns = [schema.standing.c[name] for name in ("pair_id", "relevance", "sd", "lower", "upper", "probabilities")]
    named = schema.query.c.key.label("query"), schema.document.c.key.label("document"), OTHER.c.key.label("other")
    joined = PAIRS_WITH_TEXTS.join(schema.standing, schema.standing.c.pair_id == schema.pair.c.id)
    wanted = (
        select(*columns, *named, schema.standing.c.grade)
        .select_from(joined)
        .where(schema.standing.c.snapshot_id == snapshot.id)
    )
    rows = connection.execute(wanted.order_by(schema.query.c.id, schema.standing.c.relevance.desc(), schema.pair.c.id))
    return [Standing(**{**row, "grade": project.grades[row["grade"]]}) for row in rows.mappings()]


def list_reliabilities(connection: Connection, snapshot: Snapshot) -> list[Reliability]:
    """Return the reliability of each assessor in a snapshot, the most informative first."""
    table = schema.reliability
    joined = table.join(schema.assessor, schema.assessor.c.id == table.c.assessor_id)
    columns = table.c.assessor_id, schema.assessor.c.name.label("assessor"), table.c.informativeness, table.c.flags
    wanted = select(*columns).select_from(joined).where(table.c.snapshot_id == snapshot.id)
    rows = [Reliability(**row) for row in connection.execute(wanted).mappings()]
    return sorted(rows, key=lambda row: (-(row.informativeness or 0.0), row.assessor))


def _write_draft(
    database: Database, project: Project, values: Mapping[str, Any], standings: Sequence[Mapping[str, Any]]
) -> Snapshot:
    """Write a snapshot that is not complete, in several transactions."""
    row = {"project_id": project.id, "is_complete": False, **values}
    returning = insert(_SNAPSHOT).values(row).returning(_SNAPSHOT.c.id)
    key = database.write(lambda connection: connection.execute(returning).scalar_one())
    for start in range(0, len(standings), CHUNK):
        database.write(partial(_insert_standings, key, standings[start : start + CHUNK]))
    return Snapshot(key, **values)


def _insert_standings(snapshot_id: int, rows: Sequence[Mapping[str, Any]], connection: Connection) -> None:
    if rows:
        connection.execute(insert(schema.standing), [{"snapshot_id": snapshot_id, **row} for row in rows])


def _delete_standings(condition: ColumnElement[bool], connection: Connection) -> None:
    connection.execute(delete(schema.standing).where(condition))


def _delete_others(database: Database, project: Project, snapshot: Snapshot) -> None:
    """Delete the other snapshots of a project, also incomplete ones of a killed process, in several transactions."""
    standing = schema.standing
    is_other = (_SNAPSHOT.c.project_id == project.id) & (_SNAPSHOT.c.id != snapshot.id)
    with database.read() as connection:
        others = select(standing.c.snapshot_id, standing.c.pair_id).join_from(standing, _SNAPSHOT).where(is_other)
        keys = sorted(tuple(row) for row in connection.execute(others))
    for start in range(0, len(keys), CHUNK):
        is_chunk = sql_tuple(standing.c.snapshot_id, standing.c.pair_id).in_(keys[start : start + CHUNK])
        database.write(partial(_delete_standings, is_chunk))
    database.write(lambda connection: connection.execute(delete(_SNAPSHOT).where(is_other)))


def calibrate_labels(model: Aggregator, project: Project) -> tuple[Consensus, Calibration | None]:
    """Return the consensus with grade probabilities calibrated by the gold pairs, and the calibration."""
    if not project.calibrate:
        return model.consensus_, None
    judgments, scale = model.judgments_, project.scale
    honeypot = judgments.extras["honeypot"][judgments.offsets[:-1]]
    code = np.where(honeypot == NO_HONEYPOT, -1, honeypot).astype(np.int8)
    gold = ItemGold(code, len(scale), np.eye(len(scale), dtype=np.bool_))
    return calibrate(model.consensus_, gold, judgments.item_query, grade_by=model.grade_by)


def apply_calibration(model: Aggregator, calibration: Calibration | None) -> Consensus:
    """Return the consensus of a model with its grade probabilities calibrated, if the calibration is applied."""
    if calibration is None or not calibration.is_applied:
        return model.consensus_
    shares = calibration.apply(grade_shares(model.consensus_))
    return with_shares(model.consensus_, shares, None if calibration.keeps_grades else model.grade_by)


def standing_rows(
    model: Aggregator, labels: Consensus, project: Project, answers: CodedAnswers
) -> list[dict[str, Any]]:
    """Return the rows of the table `standing` without the snapshot, from a model of the answers and its labels."""
    names, documents = labels.share_names, labels.document_table
    certainty, shares = grade_certainty(model), np.column_stack([documents[name].to_numpy() for name in names])
    grades = {name: project.grade_code(name) for name in documents["grade"].unique().to_pylist()}
    estimates = {
        name: documents[name].to_pylist() if name in documents.column_names else [None] * len(documents)
        for name in ("relevance", "sd", "lower", "upper")
    }
    return [
        {
            "pair_id": pair_id,
            **{name: _finite(column[number]) for name, column in estimates.items()},
            "grade": grades[grade],
            "probabilities": [round(share, 6) for share in shares[number].tolist()],
            "certainty": round(float(certainty[number]), 6),
        }
        for number, (pair_id, grade) in enumerate(
            zip(answers.pair_ids.tolist(), documents["grade"].to_pylist(), strict=True)
        )
    ]


def order_comparisons(
    connection: Connection, rows: Sequence[Mapping[str, Any]], order: DocumentOrder
) -> list[dict[str, Any]]:
    """Return the rows of comparisons with the estimates by the order of the documents.

    The relevance is that of the first document minus that of the other one.
    """
    pair, listed = schema.pair, [row["pair_id"] for row in rows]
    compared: dict[int, Compared] = {}
    columns = pair.c.id, schema.query.c.key, schema.document.c.key, OTHER.c.key
    for start in range(0, len(listed), CHUNK):
        is_wanted = pair.c.id.in_(listed[start : start + CHUNK])
        for pair_id, *names in connection.execute(select(*columns).select_from(PAIRS_WITH_TEXTS).where(is_wanted)):
            compared[pair_id] = (names[0], names[1], names[2])
    found = order.compare([compared[pair_id] for pair_id in listed])
    half_width, grade = INTERVAL_SD * found.sd, found.shares.argmax(axis=1)
    estimates = {
        "relevance": found.difference,
        "sd": found.sd,
        "lower": found.difference - half_width,
        "upper": found.difference + half_width,
        "certainty": found.certainty.round(6),
    }
    return [
        {
            "pair_id": pair_id,
            **{name: float(column[number]) for name, column in estimates.items()},
            "grade": int(grade[number]),
            "probabilities": found.shares[number].round(6).tolist(),
        }
        for number, pair_id in enumerate(listed)
    ]


def _replace_standings(
    connection: Connection, snapshot: Snapshot, pair_ids: Iterable[int], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Replace the consensus of some pairs in a snapshot, which has then seen the event `last_event_id`."""
    standing = schema.standing
    _delete_standings((standing.c.snapshot_id == snapshot.id) & standing.c.pair_id.in_(list(pair_ids)), connection)
    _insert_standings(snapshot.id, rows, connection)
    seen = {"last_event_id": snapshot.last_event_id}
    connection.execute(update(_SNAPSHOT).where(_SNAPSHOT.c.id == snapshot.id).values(seen))


def _reliability(row: Mapping[str, Any], assessors: Mapping[str, int]) -> dict[str, Any]:
    """Return a row of the table `reliability` from a row of the assessor report."""
    return {
        "assessor_id": assessors[row["assessor"]],
        "informativeness": _finite(row["informativeness"]),
        "flags": [{"flag": row["flag"], "evidence": row["evidence"]}] if row["flag"] else [],
    }


def _pairs_of_queries(connection: Connection, project: Project, queries: Sequence[str]) -> set[int]:
    of_project = schema.query.c.project_id == project.id, schema.query.c.key.in_(list(queries))
    return set(
        connection.execute(select(schema.pair.c.id).join_from(schema.pair, schema.query).where(*of_project)).scalars()
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
