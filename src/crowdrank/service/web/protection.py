"""Limits and headers of all requests: size and time of bodies, security headers, strict JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crowdrank.service.service_errors import Invalid
from crowdrank.service.web.service_settings import ServiceSettings

UPLOADS = ("/pairs", "/new-project", "/rankings")
"""Ends of the paths whose bodies may be large; they are read after access has been checked."""
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response."""


class TooLarge(HTTPException):
    """The body of a request has more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(413)
        self.limit = limit


def add_security_headers(headers: MutableHeaders, scope: Scope, settings: ServiceSettings) -> None:
    """Add the security headers; responses of the API are not cached."""
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    if scope["path"].startswith("/api"):
        headers["Cache-Control"] = "no-store"
    if scope["scheme"] == "https" or (settings.public_url or "").startswith("https:"):
        headers["Strict-Transport-Security"] = "max-age=31536000"


class Protection:
    """ASGI middleware that limits the size and the time of bodies, and adds security headers.

    Args:
        app: application to protect.
        settings: limits.

    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_security_headers(MutableHeaders(scope=message), scope, self.settings)
            await send(message)

        await self.app(scope, self._limited(scope, receive), send_with_headers)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Return a function that receives the body until it is too large or too slow."""
        is_upload = scope["path"].endswith(UPLOADS)
        limit = self.settings.max_upload_bytes if is_upload else self.settings.max_body_bytes
        declared = Headers(scope=scope).get("content-length", "0")
        deadline = time.monotonic() + self.settings.body_seconds
        size, is_complete = 0, False

        async def receive_limited() -> Message:
            nonlocal size, is_complete
            if is_complete:  # what follows the body is the end of the connection
                return await receive()
            if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
                raise TooLarge(limit)
            try:
                with anyio.fail_after(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408) from error
            size += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if size > limit:
                raise TooLarge(limit)
            return message

        return receive_limited


class StrictRequest(Request):
    """Request whose JSON has neither NaN nor characters that a database cannot store."""

    async def json(self) -> Any:
        """Return the parsed body."""
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """Route that reads JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


def parse_json(content: bytes) -> Any:
    """Parse JSON; raise JSONDecodeError if it is malformed, or has NaN, NUL or half of a surrogate pair."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("is not UTF-8", "", error.start) from error
    try:
        value = json.loads(text, parse_constant=_refuse_non_finite)
    except RecursionError as error:
        raise json.JSONDecodeError("is nested too deeply", "", 0) from error
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError("has a number that is too long", "", 0) from error
    if "\\u" in text and not _can_be_stored(value):  # escapes are the only way to these characters
        raise json.JSONDecodeError("has a NUL character or half of a surrogate pair", "", 0)
    return value


def _refuse_non_finite(name: str) -> Any:
    raise json.JSONDecodeError(f"has the number {name}", "", 0)


def _can_be_stored(value: Any) -> bool:
    """Return whether the database can store all texts of a JSON value."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
    if isinstance(value, dict):
        return all(_can_be_stored(key) and _can_be_stored(one) for key, one in value.items())
    return not isinstance(value, list) or all(_can_be_stored(one) for one in value)


def check_parameters(request: Request) -> None:
    """Refuse paths and queries with characters that a database cannot store."""
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if not _can_be_stored(value):
            raise Invalid("has a NUL character", kind="bad-text", parameter=name, fix="remove it")
