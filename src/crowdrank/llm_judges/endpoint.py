"""Send one request to an OpenAI-compatible endpoint, and classify the response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from crowdrank.errors import UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.batch import error_message
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.replies import FAILED, REFUSED, Reply, excerpt, read_reply

if TYPE_CHECKING:
    import httpx2

MAX_REPLY_BYTES = 8 << 20
"""Maximum number of bytes of a response that are read; the rest is ignored."""
CONNECT_TIMEOUT_SECONDS = 15.0
"""Maximum number of seconds to wait for a connection."""
RETRYABLE_HTTP_CODES = frozenset((408, 409, 425, 429, *range(500, 600)))
"""HTTP codes after which another attempt may succeed."""
GATEWAY_HTTP_CODES = frozenset((408, 502, 504, *range(520, 528)))
"""HTTP codes of gateways that lost the reply of the model; the service may have charged the request."""
FATAL_HTTP_CODES = frozenset((401, 402, 403, 404, 405))
"""HTTP codes after which every further request of the judge would fail too: key, credit, URL or model is wrong."""
QUOTA_ERRORS = frozenset(("insufficient_quota", "billing_hard_limit_reached"))
"""Error codes of OpenAI for an account without money left."""


@dataclass(frozen=True)
class AttemptOutcome:
    """Outcome of one attempt of a call.

    Attributes:
        answer: reply of the model, or a reply with the status `failed` and the problem.
        reply: body of the response as text, without the API key.
        is_final: whether no other attempt should be made.
        is_charge_known: whether the cost of the attempt is known; errors of the service cost nothing.
        wait_seconds: seconds that the service asks to wait before any request.
        stops_judge: whether all further calls of the judge would fail too.

    """

    answer: Reply
    reply: str = ""
    is_final: bool = True
    is_charge_known: bool = True
    wait_seconds: float | None = None
    stops_judge: bool = False


def require_httpx2() -> None:
    """Raise UsageError if the package httpx2 is not installed."""
    try:
        import httpx2  # noqa: F401
    except ImportError as problem:
        fix = "install it with: pip install 'crowdrank[llm]'"
        raise UsageError("Calls of LLM judges need the package httpx2", kind="no-package", fix=fix) from problem


def new_http_client(judge: Judge) -> httpx2.AsyncClient:
    """Return an HTTP client with the API key of a judge; it follows no redirects, which could leak the key."""
    require_httpx2()
    import httpx2

    key = judge.api_key()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx2.Limits(max_connections=judge.concurrency, max_keepalive_connections=judge.concurrency)
    timeout = httpx2.Timeout(judge.timeout, connect=min(CONNECT_TIMEOUT_SECONDS, judge.timeout))
    return httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits, follow_redirects=False)


async def send_request(
    client: httpx2.AsyncClient, judge: Judge, body: Mapping[str, Any], scale: Scale
) -> AttemptOutcome:
    """Send a request and return its outcome; a network error is returned as a failed outcome."""
    import httpx2

    try:
        async with asyncio.timeout(judge.timeout):
            code, headers, content = await _post(client, judge.url, body)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
        return _failed_outcome(f"no connection to {judge.url}; check that the server runs", is_final=False)
    except (httpx2.TimeoutException, TimeoutError):
        return _failed_outcome(f"no reply within {judge.timeout:g} s", is_final=False, is_charge_known=False)
    except httpx2.TransportError:
        return _failed_outcome(
            "the connection was lost before the reply was complete", is_final=False, is_charge_known=False
        )
    except (httpx2.InvalidURL, httpx2.DecodingError, httpx2.HTTPError):
        problem = f"{judge.url} does not answer with valid HTTP; check the address of the endpoint"
        return _failed_outcome(problem, is_charge_known=False, stops_judge=True)
    reply = redact_key(content.decode(errors="replace"), judge.api_key())
    return classify_response(code, headers, reply, scale)


async def _post(client: httpx2.AsyncClient, url: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
    """Return HTTP code, headers and body of the response; the body is truncated to `MAX_REPLY_BYTES`."""
    content = b""
    async with client.stream("POST", url, json=dict(body)) as response:
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > MAX_REPLY_BYTES:
                content = content[:MAX_REPLY_BYTES]
                break
        return response.status_code, response.headers, content


def redact_key(text: str, key: str) -> str:
    """Replace an API key in a text by `***`.

    >>> redact_key("Incorrect API key provided: sk-123.", "sk-123")
    'Incorrect API key provided: ***.'
    """
    return text.replace(key, "***") if key else text


def classify_response(code: int, headers: Mapping[str, str], reply: str, scale: Scale) -> AttemptOutcome:
    """Return the outcome of an attempt from the HTTP code, headers and body of the response.

    >>> outcome = classify_response(429, {"retry-after": "7"}, "", Scale.parse("0-3"))
    >>> outcome.answer.status, outcome.is_final, outcome.wait_seconds
    ('failed', False, 7.0)
    """
    try:
        body = json.loads(reply)
    except (ValueError, RecursionError):
        body = None
    detail = error_message(body)
    if code == 200:
        answer = read_reply(body, scale)
        if answer.status == FAILED:  # damaged on the way, or an error; the service may have charged it
            problem = f"{answer.problem}{f' but an error: {excerpt(detail)}' if detail else ''}"
            return AttemptOutcome(replace(answer, problem=problem), reply, is_final=False, is_charge_known=False)
        return AttemptOutcome(answer, reply, is_charge_known=None not in (answer.input_tokens, answer.output_tokens))
    problem = f"the service answered with code {code}{f': {excerpt(detail)}' if detail else ''}"
    error_code = _error_code(body)
    if error_code == "content_filter":
        return AttemptOutcome(Reply(REFUSED, problem=problem), reply)
    stops = code in FATAL_HTTP_CODES or 300 <= code < 400 or error_code in QUOTA_ERRORS
    retried = code in RETRYABLE_HTTP_CODES and not stops
    return AttemptOutcome(
        Reply(FAILED, problem=problem),
        reply,
        is_final=not retried,
        is_charge_known=code not in GATEWAY_HTTP_CODES,
        wait_seconds=_retry_after(headers) if retried else None,
        stops_judge=stops,
    )


def _failed_outcome(problem: str, **fields: Any) -> AttemptOutcome:
    return AttemptOutcome(Reply(FAILED, problem=problem), **fields)


def _error_code(body: Any) -> str:
    """Return the code or type of the error in a response body, or "" if there is none."""
    error = body.get("error") if isinstance(body, dict) else None
    code = (error.get("code") or error.get("type")) if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the header `Retry-After`, a number or a date; None if there is no valid one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
