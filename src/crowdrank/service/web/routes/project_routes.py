"""Endpoints of projects and their pairs."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection

from crowdrank.service.domain import pairs, people
from crowdrank.service.domain import projects as store
from crowdrank.service.domain.people import Member
from crowdrank.service.domain.project_settings import NULLABLE, SETTINGS
from crowdrank.service.domain.projects import Project
from crowdrank.service.web import bodies
from crowdrank.service.web.access import (
    AnyActor,
    AsAdmin,
    AsLead,
    AsMember,
    AsReader,
    ProjectAccess,
    ServiceDependency,
)
from crowdrank.service.web.protection import StrictRoute, parse_json

router = APIRouter(route_class=StrictRoute, tags=["projects"])

AnyProjectView = bodies.ProjectSettingsView | bodies.ProjectView
PAIR_ROWS = TypeAdapter(list[bodies.NewPair])
JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
"""Content types of JSON Lines."""


def _settings(body: bodies.ProjectChanges) -> Any:
    given = body.model_dump(exclude_unset=True, include=set(SETTINGS))
    return {name: value for name, value in given.items() if value is not None or name in NULLABLE}


def _fields(project: Project, member: Member | None) -> dict[str, Any]:
    return {
        **{name: getattr(project, name) for name in project.__dataclass_fields__},
        "role": None if member is None else member.role,
        "is_paused": member is not None and member.is_paused,
        "qualification": None if member is None else member.qualification,
    }


def _settings_view(project: Project, member: Member | None) -> bodies.ProjectSettingsView:
    return bodies.ProjectSettingsView(**_fields(project, member))


def _view(access: ProjectAccess) -> AnyProjectView:
    """Return what a member sees of a project; judges see no settings that tell honeypots from other pairs."""
    if access.is_lead:
        return _settings_view(access.project, access.member)
    return bodies.ProjectView(**_fields(access.project, access.member))


@router.get("/projects")
def get_projects(actor: AnyActor, service: ServiceDependency) -> list[AnyProjectView]:
    """Return the projects of which one is a member; administrators see all."""
    me = actor.assessor
    with service.database.read() as connection:
        found = [
            ProjectAccess(actor, project, people.find_member(connection, project.id, me.id))
            for project in store.list_projects(connection, me.id)
            if actor.project_id in (None, project.id)
        ]
    return [_view(access) for access in found]


@router.post("/projects", status_code=201)
def create_project(body: bodies.NewProject, actor: AsAdmin, service: ServiceDependency) -> bodies.ProjectSettingsView:
    """Create a project; its creator becomes a lead."""
    now, me = service.database.now(), actor.assessor.id

    def create(connection: Connection) -> tuple[Project, Member]:
        project = store.create_project(connection, body.name, body.grades, now, **_settings(body))
        member = people.add_member(connection, project.id, me, "lead", now)
        details = {"name": project.name, "grades": list(project.grades), **_settings(body)}
        people.record_audit(connection, "project.create", details, assessor_id=me, project_id=project.id, now=now)
        return project, member

    return _settings_view(*service.database.write(create))


@router.get("/projects/{project}")
def get_project(access: AsMember) -> AnyProjectView:
    """Return a project; judges do not see the settings of quotas and honeypots."""
    return _view(access)


@router.patch("/projects/{project}")
def change_project(
    body: bodies.ProjectChanges, access: AsLead, service: ServiceDependency
) -> bodies.ProjectSettingsView:
    """Change the settings of a project."""
    now, settings = service.database.now(), _settings(body)

    def change(connection: Connection) -> Project:
        project = store.update_project(connection, access.project, **settings)
        access.audit(connection, "project.change", settings, now)
        return project

    return _settings_view(service.database.write(change), access.member)


# Pairs.


async def read_pairs(request: Request, access: AsLead) -> list[bodies.NewPair]:
    """Return the pairs of the body, a JSON list or JSON Lines; `access` is checked before the body is read."""
    content = await request.body()
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in JSON_LINES:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]
        rows = [_parse_body(line, f"line {number}: ") for number, line in lines]
    else:
        lines, rows = [], _parse_body(content)
    try:
        return PAIR_ROWS.validate_python(rows)
    except ValidationError as error:
        errors: list[dict[str, Any]] = [
            {**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)
        ]
        if lines:  # the number of the line, not of the row
            errors = [{**one, "msg": f"line {lines[one['loc'][1]][0]}: {one['msg']}"} for one in errors]
        raise RequestValidationError(errors, body=rows) from error


def _parse_body(content: bytes, place: str = "") -> Any:
    """Return parsed JSON; raise RequestValidationError, with the place in the body, if it is invalid."""
    try:
        return parse_json(content)
    except json.JSONDecodeError as error:
        context = {"error": f"{place}{error.msg}"}
        found = {"type": "json_invalid", "loc": ("body",), "msg": "JSON decode error", "ctx": context}
        raise RequestValidationError([found]) from error


def _pair_schema() -> dict[str, Any]:
    """Return the JSON schema of a pair, without references, which the described API has no place for."""
    schema = bodies.NewPair.model_json_schema()
    (other,) = schema.pop("$defs").values()
    schema["properties"]["other"]["anyOf"][0] = other
    return schema


PAIRS_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "array", "items": _pair_schema()}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "One pair per line."}},
        },
    }
}


@router.post("/projects/{project}/pairs", openapi_extra=PAIRS_BODY)
def add_pairs(
    rows: Annotated[list[bodies.NewPair], Depends(read_pairs)], access: AsLead, service: ServiceDependency
) -> pairs.AddedPairs:
    """Add pairs with their texts: a JSON list, or JSON Lines. Pairs that exist are kept; texts are replaced."""
    now = service.database.now()
    wanted = [_pair_row(row) for row in rows]

    def add(connection: Connection) -> pairs.AddedPairs:
        added = pairs.add_pairs(connection, access.project, wanted, now)
        access.audit(connection, "pairs.add", {"pairs": added.pairs_added}, now)
        return added

    return service.database.write(add)


def _pair_row(row: bodies.NewPair) -> pairs.PairRow:
    other = None if row.other is None else pairs.DocumentRow(**row.other.model_dump())
    return pairs.PairRow(**row.model_dump(exclude={"other"}), other=other)


@router.get("/projects/{project}/pairs", response_model=list[bodies.PairView])
def get_pairs(
    access: AsReader,
    service: ServiceDependency,
    after: Annotated[int, Query(ge=0, le=bodies.MAX_ID, description="Only pairs with higher ids.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of pairs.")] = 100,
) -> list[pairs.PairState]:
    """Return the state of pairs in the order of their ids."""
    with service.database.read() as connection:
        return pairs.list_pairs(connection, access.project, after, limit)


@router.post("/projects/{project}/pairs/close")
def close_pairs(body: bodies.PairSelection, access: AsLead, service: ServiceDependency) -> bodies.ChangedPairs:
    """Close pairs, so that they are not handed out."""
    now, chosen = service.database.now(), pairs.PairFilter(**body.model_dump())

    def close(connection: Connection) -> int:
        number = pairs.close_pairs(connection, access.project, chosen)
        access.audit(connection, "pairs.close", {"pairs": number, **body.model_dump(exclude_unset=True)}, now)
        return number

    return bodies.ChangedPairs(pairs=service.database.write(close))


@router.post("/projects/{project}/pairs/reopen")
def reopen_pairs(body: bodies.PairReopening, access: AsLead, service: ServiceDependency) -> bodies.ChangedPairs:
    """Open pairs, and start a new generation of each, so that earlier answers no longer count."""
    now, chosen = service.database.now(), pairs.PairFilter(**body.model_dump(exclude={"keep_answers"}))

    def reopen(connection: Connection) -> int:
        number = pairs.reopen_pairs(connection, access.project, chosen, now, keep_answers=body.keep_answers)
        access.audit(connection, "pairs.reopen", {"pairs": number, **body.model_dump(exclude_unset=True)}, now)
        return number

    return bodies.ChangedPairs(pairs=service.database.write(reopen))
