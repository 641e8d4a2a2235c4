"""Fit a consensus model to the answers of a project, and store the result as a snapshot.

A snapshot has the consensus of each pair and the reliability of each assessor. It is written in one transaction and
replaces older ones, so that readers see all of a fit or nothing of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, delete, func, insert, select

from crowdrank.assessors.agreement import agreement_table
from crowdrank.assessors.report import assess
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus._base import Aggregator
from crowdrank.errors import CrowdrankWarning, near
from crowdrank.service import schema
from crowdrank.service.database import Database
from crowdrank.service.errors import Conflict, Invalid
from crowdrank.service.exports import answers_of, judgments_of
from crowdrank.service.projects import Project

DEFAULT_METHOD = "gda"
"""Default consensus model."""
MAX_AGREEMENTS = 10
"""Maximum number of pairs of assessors whose agreement is stored."""
AGREEMENT_COLUMNS = ["assessor", "other", "documents", "agreement", "kappa"]


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
    """Consensus of a pair; what a model does not estimate is None."""

    pair_id: int
    query: str
    document: str
    relevance: float
    sd: float | None
    lower: float | None
    upper: float | None
    grade: str
    probabilities: list[float]


@dataclass(frozen=True)
class Reliability:
    """Reliability of an assessor: information in one answer (in nats), and flags with their evidence."""

    assessor_id: int
    assessor: str
    informativeness: float | None
    flags: list[Mapping[str, str]]


def fit_project(database: Database, project: Project, method: str = DEFAULT_METHOD) -> Snapshot:
    """Fit a model to all answers of a project, and store it as the newest snapshot.

    No transaction is open during the fit, so that answers are not delayed.

    Args:
        database: the database.
        project: the project.
        method: name of a consensus model.

    Raises:
        Invalid: there is no such model.
        Conflict: there are no answers yet.

    """
    if method not in METHODS:
        problem, fix = f"{method!r} is not a consensus model{near(method, METHODS)}", f"use one of {', '.join(METHODS)}"
        raise Invalid(problem, parameter="method", kind="unknown-method", fix=fix)
    with database.read() as connection:
        newest = select(func.coalesce(func.max(schema.event.c.id), 0))
        last_event = connection.execute(newest.where(schema.event.c.project_id == project.id)).scalar_one()
        if not len(answers_of(connection, project)):
            raise Conflict("there are no answers yet", kind="no-answers", fix="fit after the first answers")
        judgments = judgments_of(connection, project)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdrankWarning)  # few answers determine little: intervals say so
        model = get_aggregator(method).fit(judgments)
        report: pa.Table = assess(model).table
    agreement = agreement_table(judgments).select(AGREEMENT_COLUMNS)[:MAX_AGREEMENTS].to_pylist()
    now = database.now()
    values = {"method": method, "last_event_id": last_event, "created": now, "agreement": agreement}

    def write(connection: Connection) -> int:
        pairs, assessors = _pair_ids(connection, project), _assessor_ids(connection)
        standings = [_standing(row, project, model, pairs) for row in model.consensus_.document_table.to_pylist()]
        return _write_snapshot(
            connection,
            {"project_id": project.id, **values},
            standings,
            [_reliability(row, assessors) for row in report.to_pylist()],
        )

    return Snapshot(database.write(write), **values)


def latest_snapshot(connection: Connection, project: Project) -> Snapshot | None:
    """Return the snapshot of the newest answers, or None before the first fit."""
    table = schema.snapshot
    columns = (table.c[name] for name in Snapshot.__dataclass_fields__)
    newest = table.c.last_event_id.desc(), table.c.id.desc()
    row = connection.execute(select(*columns).where(table.c.project_id == project.id).order_by(*newest)).first()
    return None if row is None else Snapshot(*row)


def list_standings(connection: Connection, project: Project, snapshot: Snapshot) -> list[Standing]:
    """Return the consensus of each pair in a snapshot, ordered by query and relevance."""
    columns = [schema.standing.c[name] for name in ("pair_id", "relevance", "sd", "lower", "upper", "probabilities")]
    named = schema.query.c.key.label("query"), schema.document.c.key.label("document"), schema.standing.c.grade
    joined = (
        schema.standing.join(schema.pair, schema.pair.c.id == schema.standing.c.pair_id)
        .join(schema.query, schema.query.c.id == schema.pair.c.query_id)
        .join(schema.document, schema.document.c.id == schema.pair.c.document_id)
    )
    wanted = select(*columns, *named).select_from(joined).where(schema.standing.c.snapshot_id == snapshot.id)
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


def _write_snapshot(
    connection: Connection,
    values: Mapping[str, Any],
    standings: Sequence[Mapping[str, Any]],
    reliabilities: Sequence[Mapping[str, Any]],
) -> int:
    """Write a snapshot, and delete those of the project that have seen no more events; return its key."""
    table = schema.snapshot
    key = connection.execute(insert(table).values(values)).inserted_primary_key
    assert key is not None
    for part, rows in ((schema.standing, standings), (schema.reliability, reliabilities)):
        connection.execute(insert(part), [{"snapshot_id": key[0], **row} for row in rows])
    is_older = table.c.id != key[0], table.c.last_event_id <= values["last_event_id"]
    connection.execute(delete(table).where(table.c.project_id == values["project_id"], *is_older))
    return int(key[0])


def _standing(
    row: Mapping[str, Any], project: Project, model: Aggregator, pairs: Mapping[tuple[str, str], int]
) -> dict[str, Any]:
    """Return a row of the table `standing` from a row of the consensus."""
    return {
        "pair_id": pairs[row["query"], row["document"]],
        **{name: _finite(row.get(name)) for name in ("relevance", "sd", "lower", "upper")},
        "grade": project.grade_code(row["grade"]),
        "probabilities": [round(row[name], 6) for name in model.consensus_.share_names],
    }


def _reliability(row: Mapping[str, Any], assessors: Mapping[str, int]) -> dict[str, Any]:
    """Return a row of the table `reliability` from a row of the assessor report."""
    return {
        "assessor_id": assessors[row["assessor"]],
        "informativeness": _finite(row["informativeness"]),
        "flags": [{"flag": row["flag"], "evidence": row["evidence"]}] if row["flag"] else [],
    }


def _pair_ids(connection: Connection, project: Project) -> dict[tuple[str, str], int]:
    """Return the key of each pair by the ids of its query and document."""
    joined = schema.pair.join(schema.query, schema.query.c.id == schema.pair.c.query_id).join(
        schema.document, schema.document.c.id == schema.pair.c.document_id
    )
    wanted = select(schema.query.c.key, schema.document.c.key, schema.pair.c.id).select_from(joined)
    rows = connection.execute(wanted.where(schema.pair.c.project_id == project.id))
    return {(query, document): pair_id for query, document, pair_id in rows}


def _assessor_ids(connection: Connection) -> dict[str, int]:
    rows = connection.execute(select(schema.assessor.c.name, schema.assessor.c.id))
    return {row.name: row.id for row in rows}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
