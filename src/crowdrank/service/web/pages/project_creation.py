"""Page on which administrators create a project from files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy import Connection
from starlette.datastructures import FormData, UploadFile

from crowdrank.errors import CrowdrankError
from crowdrank.readers.formats import FORMAT_BY_SUFFIX
from crowdrank.service.domain import pairs, people, projects
from crowdrank.service.domain.people import Actor
from crowdrank.service.project_files import read_pair_files
from crowdrank.service.service_errors import Forbidden, Invalid
from crowdrank.service.web.access import ServiceDependency
from crowdrank.service.web.error_rendering import render_service_error
from crowdrank.service.web.pages.page_rendering import Person, render

router = APIRouter(include_in_schema=False)

FILES = ("guidelines", "pairs", "texts")
"""Names of the fields with files."""


def require_admin(actor: Person) -> Actor:
    """Return the signed-in administrator; raise Forbidden for others."""
    if not actor.assessor.is_admin:
        raise Forbidden("only administrators may create projects", kind="admin-required")
    return actor


AdminPage = Annotated[Actor, Depends(require_admin)]


@dataclass(frozen=True)
class SentFile:
    """A file of the form: name without folders, and content."""

    name: str
    content: bytes


@dataclass(frozen=True)
class ProjectForm:
    """What an administrator sent; files that are absent have no content."""

    name: str
    task: str
    grades: str | None
    files: dict[str, SentFile]


async def read_form(request: Request, actor: AdminPage) -> ProjectForm:
    """Return the fields of the form; `actor` is checked before the body is read."""
    async with request.form(max_files=len(FILES), max_fields=10) as form:
        files = {name: await _read_file(form, name) for name in FILES}
        fields = {name: str(form.get(name, "")).strip() for name in ("name", "task", "grades")}
        task = fields["task"] or "grades"
        return ProjectForm(fields["name"], task, fields["grades"] or (None if task == "preferences" else ""), files)


async def _read_file(form: FormData, name: str) -> SentFile:
    sent = form.get(name)
    if not isinstance(sent, UploadFile):
        return SentFile("", b"")
    return SentFile(PurePosixPath((sent.filename or "").replace("\\", "/")).name, await sent.read())


@router.get("/new-project")
def show_new_project(actor: AdminPage) -> HTMLResponse:
    """Show the form of a new project."""
    return render("new_project.html", actor)


@router.post("/new-project")
def create_project(
    request: Request, actor: AdminPage, form: Annotated[ProjectForm, Depends(read_form)], service: ServiceDependency
) -> Response:
    """Create a project with its pairs, or nothing; return the address of its dashboard."""
    now, me = service.database.now(), actor.assessor.id

    def create(connection: Connection) -> projects.Project:
        settings = {"guidelines": guidelines, "task": form.task}
        project = projects.create_project(connection, form.name, form.grades, now, **settings)
        people.add_member(connection, project.id, me, "lead", now)
        added = pairs.add_pairs(connection, project, rows, now)
        details = {"name": project.name, "grades": list(project.grades), "pairs": added.pairs_added}
        people.record_audit(connection, "project.create", details, assessor_id=me, project_id=project.id, now=now)
        return project

    try:
        guidelines = _decode(form.files["guidelines"])
        rows = read_pair_rows(form.files["pairs"], form.files["texts"], form.task)
        project = service.database.write(create)
    except CrowdrankError as error:
        return render_service_error(request, error)
    return JSONResponse({"next": f"/projects/{quote(project.name)}"}, 201)


def _decode(file: SentFile) -> str:
    try:
        return file.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid("is not a text in UTF-8", parameter="guidelines", kind="bad-text") from error


def read_pair_rows(pairs_file: SentFile, texts_file: SentFile, task: str = "grades") -> list[pairs.PairRow]:
    """Return the pairs of a file with their texts of another one, which may be absent.

    Raises:
        Invalid: there is no file of pairs, or the name of a file has an unknown ending.
        InputError: a file cannot be read.

    """
    if not pairs_file.content:
        raise Invalid("must be a file that is not empty", parameter="pairs", kind="no-file")
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = _save_upload(folder, "pairs", pairs_file)
            texts = [_save_upload(folder, "texts", texts_file)] if texts_file.content else []
            return read_pair_files(path, texts, task)
        except CrowdrankError as error:
            location = replace(error.location, source=Path(error.location.source).name)
            raise type(error)(replace(error.message, location=location)) from None


def _save_upload(folder: str, name: str, file: SentFile) -> Path:
    """Save an uploaded file as `name` with the ending of its own name; return the path."""
    suffix = Path(file.name).suffix.lower()
    if suffix not in (*FORMAT_BY_SUFFIX, ".txt"):
        problem = "must be a file whose name has a known ending, such as .csv, .tsv, .jsonl or .parquet"
        raise Invalid(problem, parameter=name, kind="unknown-suffix")
    path = Path(folder) / f"{name}{suffix}"
    path.write_bytes(file.content)
    return path
