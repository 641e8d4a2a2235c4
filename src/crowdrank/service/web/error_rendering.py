"""Errors as JSON objects: problem, kind, parameter, fix, client_id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from crowdrank.errors import CrowdrankError
from crowdrank.service.domain.credentials import SignInDelayed
from crowdrank.service.web.protection import TooLarge, add_security_headers

LOGGER = logging.getLogger("crowdrank.service")
HTTP_PROBLEMS = {
    400: ("bad-request", "the request cannot be read"),
    404: ("not-found", "there is nothing at this address"),
    405: ("bad-method", "the address does not support this method"),
    408: ("too-slow", "the body of the request did not arrive in time"),
    413: ("too-large", "the body of the request is too large"),
}
"""Kind and problem of errors that have a status only."""


class ErrorBody(BaseModel):
    """An error."""

    problem: str = Field(description="What is wrong.")
    kind: str = Field(description="Identifier of the kind of problem; programs decide by it.")
    parameter: str | None = Field(None, description="Name of the field or parameter that the problem is about.")
    fix: str | None = Field(None, description="How to fix it.")
    client_id: str | None = Field(None, description="The answer that cannot be stored, if that is the problem.")


def error_response(
    status: int,
    problem: str,
    kind: str,
    parameter: str | None = None,
    fix: str | None = None,
    client_id: str | None = None,
    **headers: str,
) -> JSONResponse:
    """Return a response with an error object."""
    content = ErrorBody(problem=problem, kind=kind, parameter=parameter, fix=fix, client_id=client_id)
    return JSONResponse(
        content.model_dump(), status, headers={name.replace("_", "-"): headers[name] for name in headers}
    )


def render_service_error(request: Request, error: Exception) -> JSONResponse:
    """Render an error of the service."""
    assert isinstance(error, CrowdrankError)
    status = getattr(error, "status", 422)
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    if isinstance(error, SignInDelayed):
        headers["Retry-After"] = str(error.seconds)
    problem, fix = error_texts(error)
    client_id = getattr(error, "client_id", None)
    return error_response(status, problem, error.kind, error.parameter, fix or None, client_id, **headers)


def error_texts(error: CrowdrankError) -> tuple[str, str]:
    """Return the problem with its location, and how to fix it."""
    location = str(error.location)
    problem = f"{location}: {error.problem}" if location else error.problem
    return problem, ", or ".join(text for fix in error.fixes if (text := fix.render()) is not None)


def render_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Render the most specific error of a body or parameter, without its value, which may be a secret."""
    assert isinstance(error, RequestValidationError)
    # A value that may have several types has an error for each; that of the intended type is the deepest one.
    found: Mapping[str, Any] = max(error.errors(), key=lambda one: (len(one["loc"]), not one["type"].endswith("_type")))
    if found["type"] == "json_invalid":
        return error_response(400, f"the JSON of the body is invalid: {found['ctx']['error']}", "bad-json")
    parameter, client_id = _invalid_value(found, error.body)
    return error_response(422, str(found["msg"]), "invalid", parameter, client_id=client_id)


def _invalid_value(error: Mapping[str, Any], body: Any) -> tuple[str, str | None]:
    """Return the path to an invalid value, such as `1.kind`, and the client id of the answer that has it.

    The names of types that Pydantic adds to the path are left out.
    """
    source, *path = error["loc"]
    if source != "body":
        return ".".join(map(str, path)) or str(source), None
    names, value, client_id = [], body, None
    for part in path:
        if isinstance(value, dict):
            client_id = value.get("client_id", client_id)
        if part in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
            names.append(str(part))
            value = value[part]
    if error["type"] == "missing" and path:
        names.append(str(path[-1]))
    return ".".join(names) or "body", client_id if isinstance(client_id, str) else None


def render_http_error(request: Request, error: Exception) -> JSONResponse:
    """Render an error that has a status only."""
    assert isinstance(error, HTTPException)
    kind, problem = HTTP_PROBLEMS.get(error.status_code, ("http", HTTPStatus(error.status_code).phrase))
    fix = None
    if isinstance(error, TooLarge):
        problem, fix = f"{problem}: the maximum is {error.limit:,} bytes", "send it in several requests"
    return error_response(error.status_code, problem, kind, fix=fix, **dict(error.headers or {}))


def render_unavailable(request: Request, error: Exception) -> JSONResponse:
    """Return the response 503 for a database that cannot be reached or is too busy; the log has the traceback."""
    LOGGER.error("The database cannot be used.", exc_info=error)
    problem, fix = "the database cannot be used at the moment", "try again later"
    return error_response(503, problem, "database-unavailable", fix=fix, Retry_After="5")


def render_failure(request: Request, error: Exception) -> JSONResponse:
    """Render a failure of the service; the server's log has the traceback."""
    fix = "try again, or ask the administrator to read the log"
    response = error_response(500, "the service failed", "internal", fix=fix)
    add_security_headers(response.headers, request.scope, request.app.state.service.settings)
    return response


ERROR_RENDERERS: Mapping[type[Exception], Callable[[Request, Exception], JSONResponse]] = {
    CrowdrankError: render_service_error,
    RequestValidationError: render_invalid_request,
    HTTPException: render_http_error,
    OperationalError: render_unavailable,
    PoolTimeout: render_unavailable,
    Exception: render_failure,
}
"""Renderer of each kind of error."""


def add_error_handlers(app: FastAPI) -> None:
    """Register the renderers of errors."""
    for kind, renderer in ERROR_RENDERERS.items():
        app.add_exception_handler(kind, renderer)
