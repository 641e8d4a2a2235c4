"""Errors as JSON objects: problem, kind, parameter, fix."""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
from crowdrank.service.api.protection import add_security_headers
from crowdrank.service.credentials import SignInDelayed

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


def error_response(
    status: int, problem: str, kind: str, parameter: str | None = None, fix: str | None = None, **headers: str
) -> JSONResponse:
    """Return an answer with an error object."""
    content = ErrorBody(problem=problem, kind=kind, parameter=parameter, fix=fix)
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
    location = str(error.location)
    problem = f"{location}: {error.problem}" if location else error.problem
    fixes = ", or ".join(text for fix in error.fixes if (text := fix.render()) is not None)
    return error_response(status, problem, error.kind, error.parameter, fixes or None, **headers)


def render_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Render the first error of a body or parameter, without its value, which may be a secret."""
    assert isinstance(error, RequestValidationError)
    first: Mapping[str, Any] = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(400, f"the JSON of the body is invalid: {first['ctx']['error']}", "bad-json")
    parameter = ".".join(str(part) for part in first["loc"][1:])
    return error_response(422, str(first["msg"]), "invalid", parameter or str(first["loc"][0]))


def render_http_error(request: Request, error: Exception) -> JSONResponse:
    """Render an error that has a status only."""
    assert isinstance(error, HTTPException)
    kind, problem = HTTP_PROBLEMS.get(error.status_code, ("http", HTTPStatus(error.status_code).phrase))
    return error_response(error.status_code, problem, kind, **dict(error.headers or {}))


def render_unavailable(request: Request, error: Exception) -> JSONResponse:
    """Render a database that cannot be reached or is too busy; the log has the traceback."""
    LOGGER.error("The database cannot be used.", exc_info=error)
    problem, fix = "the database cannot be used at the moment", "try again later"
    return error_response(503, problem, "database-unavailable", fix=fix, Retry_After="5")


def render_failure(request: Request, error: Exception) -> JSONResponse:
    """Render a failure of the service; the server's log has the traceback."""
    answer = error_response(500, "the service failed; its log says why", "internal")
    add_security_headers(answer.headers, request.scope, request.app.state.service.settings)
    return answer


def add_error_handlers(app: FastAPI) -> None:
    """Register the renderers of errors."""
    app.add_exception_handler(CrowdrankError, render_service_error)
    app.add_exception_handler(RequestValidationError, render_invalid_request)
    app.add_exception_handler(HTTPException, render_http_error)
    app.add_exception_handler(OperationalError, render_unavailable)
    app.add_exception_handler(PoolTimeout, render_unavailable)
    app.add_exception_handler(Exception, render_failure)
