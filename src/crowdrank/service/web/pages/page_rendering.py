"""Render templates, for signed-in people and for visitors."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from crowdrank.service.domain.people import Actor
from crowdrank.service.service_errors import Forbidden, ServiceError, Unauthorized
from crowdrank.service.web.access import InProject, OptionalActor, ProjectAccess
from crowdrank.service.web.error_rendering import error_texts
from crowdrank.service.web.judging_page import templates


class SignInRequired(Unauthorized):
    """A page needs a signed-in person."""


def require_person(actor: OptionalActor) -> Actor:
    """Return the signed-in person; raise SignInRequired for visitors, and Forbidden for tokens."""
    if actor is None:
        raise SignInRequired("you are not signed in", kind="not-signed-in")
    if actor.session is None:
        raise Forbidden("a token may not open pages", kind="session-required", fix="sign in with a browser")
    return actor


Person = Annotated[Actor, Depends(require_person)]


class PageOfProject(InProject):
    """Dependency that returns the access of the signed-in person to the project of a page."""

    def __init__(self, role: str) -> None:
        super().__init__(role, None)

    def __call__(self, actor: Person, project: str) -> ProjectAccess:
        """Return the access; raise NotFound for projects of others, and Forbidden if the role does not suffice."""
        return super().__call__(actor, project)


MemberPage = Annotated[ProjectAccess, Depends(PageOfProject("judge"))]
LeadPage = Annotated[ProjectAccess, Depends(PageOfProject("lead"))]


def render(name: str, actor: Actor | None, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; `person` in the template is the signed-in person or None."""
    session = None if actor is None else actor.session
    person = None
    if actor is not None and session is not None:
        person = {"name": actor.assessor.name, "is_admin": actor.assessor.is_admin, "form_token": session.form_token}
    html = templates().get_template(name).render(person=person, **values)
    return HTMLResponse(html, status, headers={"Cache-Control": "no-store"})


def render_error(request: Request, error: ServiceError) -> Response:
    """Return a page with an error; visitors are sent to the page on which they sign in."""
    if isinstance(error, Unauthorized):
        return RedirectResponse(f"/login?next={quote(request.url.path)}", 303)
    problem, fix = error_texts(error)
    problem = f"{error.parameter} {problem}" if error.parameter is not None else problem
    return render("error.html", None, status=error.status, problem=sentence(problem), fix=sentence(fix))


def error_page(response: JSONResponse) -> HTMLResponse:
    """Return a page with the error of a response of the API, with its status and headers."""
    body = json.loads(bytes(response.body))
    problem = body["problem"] if body["parameter"] is None else f"{body['parameter']}: {body['problem']}"
    texts = {"problem": sentence(problem), "fix": sentence(body["fix"] or "")}
    page = render("error.html", None, status=response.status_code, **texts)
    of_body = ("content-length", "content-type")
    page.headers.update({name: value for name, value in response.headers.items() if name not in of_body})
    return page


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a period.

    >>> sentence("a lead has paused your work in project 'TREC'"), sentence("")
    ("A lead has paused your work in project 'TREC'.", '')
    """
    return f"{text[0].upper()}{text[1:].removesuffix('.')}." if text else ""
