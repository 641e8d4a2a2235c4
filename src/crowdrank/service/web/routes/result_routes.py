"""Endpoints of results: progress, answers, consensus, reliability of assessors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection

from crowdrank.service.domain import progress
from crowdrank.service.model import disputes, fits
from crowdrank.service.model.disputes import read_model_status
from crowdrank.service.web import bodies
from crowdrank.service.web.access import AsLead, AsReader, ServiceDependency
from crowdrank.service.web.protection import StrictRoute

router = APIRouter(route_class=StrictRoute, prefix="/projects/{project}", tags=["results"])

FileFormat = Annotated[Literal["csv", "jsonl", "parquet"], Path(description="Format of the file.")]
CsvSafe = Annotated[bool, Query(description="Keep spreadsheet programs from running text as a formula.")]


@dataclass(frozen=True, kw_only=True)
class StatusWithModel(progress.ProjectStatus):
    """Progress of a project, and the state of its model."""

    model: disputes.ModelStatus


@dataclass(frozen=True, kw_only=True)
class AssessorResult(progress.AssessorProgress):
    """Work and reliability of a member of a project.

    Attributes:
        informativeness: information in an answer, in nats; None before the first fit.
        flags: flags with their evidence.

    """

    informativeness: float | None = None
    flags: Sequence[Mapping[str, Any]] = ()


@router.get("/status")
def get_status(access: AsReader, service: ServiceDependency) -> StatusWithModel:
    """Return the progress of a project: pairs, answers, cost, the state of the model, and work of each assessor."""
    now = service.database.now()
    with service.database.read() as connection:
        status = progress.project_status(connection, access.project, now)
        model = read_model_status(connection, access.project, now)
    return StatusWithModel(**_fields(status), model=model)


@router.get("/answers.{format}", response_class=Response)
def get_answers(
    format: FileFormat, access: AsReader, service: ServiceDependency, csv_safe: CsvSafe = False
) -> Response:
    """Return the latest answers of a project as a file that crowdrank reads."""
    with service.database.read() as connection:
        found = progress.answers_of(connection, access.project)
    return _file_response("answers", found, format, csv_safe)


@router.get("/labels.{format}", response_class=Response)
def get_labels(format: FileFormat, access: AsReader, service: ServiceDependency, csv_safe: CsvSafe = False) -> Response:
    """Return the label of each pair as a file: the adjudicated grade, or else that of the newest fit of the model."""
    with service.database.read() as connection:
        found = disputes.project_labels(connection, access.project)
    return _file_response("labels", found, format, csv_safe)


def _file_response(name: str, table: pa.Table, format: str, csv_safe: bool) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}.{format}"'}
    content = progress.file_content(table, format, csv_safe=csv_safe)
    return Response(content, media_type=progress.CONTENT_TYPES[format], headers=headers)


@router.get("/consensus")
def get_consensus(access: AsReader, service: ServiceDependency) -> bodies.ConsensusView:
    """Return the consensus of each pair in the newest fit of the model."""
    with service.database.read() as connection:
        snapshot = fits.latest_snapshot(connection, access.project)
        found = [] if snapshot is None else fits.list_standings(connection, access.project, snapshot)
    shown = None if snapshot is None else bodies.SnapshotView.model_validate(snapshot)
    return bodies.ConsensusView(snapshot=shown, pairs=found)


@router.get("/assessors")
def get_assessor_results(access: AsReader, service: ServiceDependency) -> list[AssessorResult]:
    """Return the work of each assessor, with the reliability in the newest fit of the model."""
    with service.database.read() as connection:
        status = progress.project_status(connection, access.project, service.database.now())
        snapshot = fits.latest_snapshot(connection, access.project)
        found = [] if snapshot is None else fits.list_reliabilities(connection, snapshot)
    fitted: dict[int, dict[str, Any]] = {
        one.assessor_id: {"informativeness": one.informativeness, "flags": one.flags} for one in found
    }
    return [AssessorResult(**_fields(one), **fitted.get(one.assessor_id, {})) for one in status.assessors]


def _fields(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


@router.post("/refit", response_model=bodies.SnapshotView)
def refit(body: bodies.Refit, access: AsLead, service: ServiceDependency) -> fits.Snapshot:
    """Fit the model to all answers now. One fit runs at a time; this one waits for another."""
    snapshot = service.refits.fit(access.project, body.method)
    now, details = service.database.now(), {"method": snapshot.method, "snapshot": snapshot.id}

    def record(connection: Connection) -> None:
        access.audit(connection, "model.fit", details, now)

    service.database.write(record)
    return snapshot
