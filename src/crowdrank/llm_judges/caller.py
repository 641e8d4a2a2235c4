"""Call LLM judges at OpenAI-compatible endpoints, with a rate limit, retries, a circuit breaker and a budget.

The outcome of every attempt is stored in the ledger before the next one.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from crowdrank._progress import ProgressBar, Report
from crowdrank._text import counted
from crowdrank.errors import UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.batch import error_message
from crowdrank.llm_judges.judges import Judge, Prices
from crowdrank.llm_judges.judging_task import Call, JudgingTask, max_input_tokens
from crowdrank.llm_judges.ledger import PENDING, Ledger
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


FIRST_RETRY_SECONDS = 1.0
"""Seconds before the second attempt of a call; doubled before each further attempt."""
MAX_RETRY_SECONDS = 60.0
"""Maximum number of seconds between two attempts, unless the service asks for more."""
MAX_RETRY_AFTER_SECONDS = 600.0
"""Maximum number of seconds of a `Retry-After` header; a judge whose service asks for more is stopped."""
FAILURES_BEFORE_CIRCUIT_OPENS = 5
"""Number of failed attempts in a row after which the circuit breaker of a judge opens."""
CIRCUIT_OPEN_SECONDS = 30.0
"""Seconds without requests after a circuit breaker opens; doubled with each further opening in a row."""
MAX_CIRCUIT_OPEN_SECONDS = 300.0
"""Maximum number of seconds without requests after a circuit breaker opens."""
MAX_CIRCUIT_OPENINGS = 4
"""Maximum number of openings of a circuit breaker in a row; one more stops the judge."""
PROGRESS_TITLE = "asking judges"
"""Title of the progress bar of LLM judges."""
BUDGET_SPENT_REASON = "the rest of the budget is smaller than the largest possible cost of a call"
"""Reason for which a judge is stopped when its next call could exceed the budget."""


class Clock:
    """Clock of the calls; tests replace it by one that does not wait."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def timestamp(self) -> str:
        """Return the current UTC time in ISO format, to the second."""
        return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""
        await asyncio.sleep(seconds)


@dataclass
class JudgeQueue:
    """Calls of one judge that are still to be made, and the state of its circuit breaker.

    Attributes:
        judge: the judge.
        calls: (ledger key, call) of the calls that were not made yet.
        stopped: why the judge gets no more requests, or "" while it does.
        not_before: seconds of the clock before which no request is sent.
        n_running: number of requests under way.
        n_failures: number of failed attempts in a row.
        n_openings: number of openings of the circuit breaker in a row; above 0, one request is sent at a time.
        opened_at: seconds of the clock at the last opening.

    """

    judge: Judge
    calls: Iterator[tuple[str, Call]]
    clock: Clock
    stopped: str = ""
    not_before: float = -math.inf
    n_running: int = 0
    n_failures: int = 0
    n_openings: int = 0
    opened_at: float = -math.inf
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_turn(self) -> bool:
        """Wait until the next request may be sent; return False if the judge was stopped meanwhile."""
        async with self._turn:
            while not self.stopped:
                wait = self.not_before - self.clock.now()
                if wait > 0:
                    await self.clock.sleep(wait)
                elif self.n_openings and self.n_running:  # one probe at a time
                    self._ended.clear()
                    await self._ended.wait()
                else:
                    pace = self.judge.requests_per_minute
                    self.not_before = self.clock.now() + (60 / pace if pace else 0.0)
                    self.n_running += 1
                    return True
        return False

    def end_turn(self) -> None:
        """Mark a request as ended, so that the next one may be sent."""
        self.n_running -= 1
        self._ended.set()

    def record_outcome(self, outcome: AttemptOutcome, started_at: float) -> None:
        """Update the circuit breaker, or stop the judge, after an attempt that began at `started_at`."""
        if outcome.stops_judge:
            self.stopped = outcome.answer.problem
        elif outcome.is_final:
            self.n_failures = self.n_openings = 0
        else:
            self._pause(outcome.wait_seconds or 0.0)
            if started_at > self.opened_at:  # not one of several that were under way when the circuit opened
                self.n_failures += 1
                if self.n_failures >= FAILURES_BEFORE_CIRCUIT_OPENS or self.n_openings:
                    self._open_circuit(outcome)

    def _pause(self, seconds: float) -> None:
        """Send nothing for the time that the service asks for; stop the judge if that is too long."""
        if seconds > MAX_RETRY_AFTER_SECONDS:
            self.stopped = f"the service asks to wait {seconds:,.0f} s"
        else:
            self.not_before = max(self.not_before, self.clock.now() + seconds)

    def _open_circuit(self, outcome: AttemptOutcome) -> None:
        """Open the circuit breaker: pause requests to this judge, and stop the judge after several pauses in a row."""
        self.n_openings, self.n_failures, self.opened_at = self.n_openings + 1, 0, self.clock.now()
        if self.n_openings > MAX_CIRCUIT_OPENINGS:
            self.stopped = f"{outcome.answer.problem}, repeatedly"
        seconds = min(CIRCUIT_OPEN_SECONDS * 2.0 ** (self.n_openings - 1), MAX_CIRCUIT_OPEN_SECONDS)
        self.not_before = max(self.not_before, self.clock.now() + seconds)


@dataclass
class Caller:
    """Sender of the calls of a judging task.

    Attributes:
        task: pairs, judges and texts of the calls.
        ledger: store of the outcomes and costs.
        budget: maximum total cost of all calls in the ledger, or None without a limit.
        clock: time and waiting.
        rng: random numbers for the jitter of retries.
        report: progress callback.

    """

    task: JudgingTask
    ledger: Ledger
    budget: float | None = None
    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.Random)
    report: Report | None = None
    _n_done: int = 0
    _n_failed: int = 0
    _n_total: int = 0
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    def make_calls(self, keyed_calls: Sequence[tuple[str, Call]]) -> dict[str, str]:
        """Make calls, given as (ledger key, call); return the reason for each judge that was stopped, by name.

        Raises:
            OutputError: the ledger cannot be written.
            UsageError: an API key or the package httpx2 is missing.

        """
        self._n_done, self._n_failed, self._n_total = 0, 0, len(keyed_calls)
        try:
            return asyncio.run(self._make_all_calls(keyed_calls))
        except BaseExceptionGroup as group:
            raise _first_error(group) from group

    async def _make_all_calls(self, keyed_calls: Iterable[tuple[str, Call]]) -> dict[str, str]:
        by_judge: dict[str, list[tuple[str, Call]]] = {}
        for key, call in keyed_calls:
            by_judge.setdefault(call.judge.name, []).append((key, call))
        queues = [JudgeQueue(calls[0][1].judge, iter(calls), self.clock) for calls in by_judge.values()]
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(new_http_client(queue.judge)) for queue in queues]
            async with asyncio.TaskGroup() as group:
                for queue, client in zip(queues, clients, strict=True):
                    for _ in range(queue.judge.concurrency):
                        group.create_task(self._make_queued_calls(queue, client))
        return {queue.judge.name: queue.stopped for queue in queues if queue.stopped}

    async def _make_queued_calls(self, queue: JudgeQueue, client: httpx2.AsyncClient) -> None:
        """Make one call after the other until none is left or the judge is stopped."""
        while not queue.stopped and (entry := next(queue.calls, None)) is not None:
            await self._make_call(queue, client, *entry)
            self._n_done += 1
            self._show_progress()

    def _show_progress(self) -> None:
        """Report the number of calls that ended, and in the title of the progress bar the number of failed attempts."""
        if isinstance(self.report, ProgressBar) and self._n_failed:
            self.report.title = f"{PROGRESS_TITLE} ({counted(self._n_failed, 'failed attempt')})"
        if self.report is not None:
            self.report(self._n_done, self._n_total, math.nan)

    async def _make_call(self, queue: JudgeQueue, client: httpx2.AsyncClient, key: str, call: Call) -> None:
        """Attempt a call until it has a final outcome, has no attempts left, or its judge is stopped."""
        judge, body = call.judge, self.task.request_body(call)
        max_cost = _max_cost(judge, body)
        for attempt in range(1, judge.attempts + 1):
            if not await self._wait_and_reserve_cost(queue, key, call, max_cost):
                return
            started_at, is_last = self.clock.now(), attempt == judge.attempts
            try:
                outcome = await send_request(client, judge, body, judge.scale(self.task.scale))
                self._store_outcome(
                    key, judge.prices, max_cost, outcome, self.clock.now() - started_at, is_last=is_last
                )
                queue.record_outcome(outcome, started_at)
            finally:
                queue.end_turn()
                self._settled.set()
            if not outcome.is_final:
                self._n_failed += 1
                self._show_progress()
            if outcome.is_final or is_last or queue.stopped:
                return
            await self.clock.sleep(self._backoff_seconds(attempt, outcome.wait_seconds))

    async def _wait_and_reserve_cost(self, queue: JudgeQueue, key: str, call: Call, max_cost: float) -> bool:
        """Wait until a call may be made and reserve its maximum cost; return False if its judge is stopped."""
        while await queue.wait_for_turn():
            if self.ledger.reserve(key, max_cost, self.budget, _ledger_columns(call)):
                return True
            queue.end_turn()
            if not self.ledger.n_reserved:
                queue.stopped = BUDGET_SPENT_REASON
                return False
            self._settled.clear()  # calls under way may turn out cheaper than what was reserved for them
            await self._settled.wait()
        return False

    def _store_outcome(
        self,
        key: str,
        prices: Prices | None,
        max_cost: float,
        outcome: AttemptOutcome,
        seconds: float,
        *,
        is_last: bool,
    ) -> None:
        """Store the outcome and cost of an attempt; a call that will be attempted again stays pending."""
        answer, cost = outcome.answer, None
        if prices is None:
            cost = 0.0
        elif outcome.is_charge_known:
            cost = prices.cost(answer.input_tokens or 0, answer.output_tokens or 0)
        waits = outcome.stops_judge or not (outcome.is_final or is_last)
        values = {
            "status": PENDING if waits else answer.status,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "seconds": seconds,
            "time": self.clock.timestamp(),
            "problem": answer.problem,
            "reply": outcome.reply,
        }
        self.ledger.settle(key, max_cost, cost, values)

    def _backoff_seconds(self, attempt: int, wait_seconds: float | None) -> float:
        """Return the seconds before the next attempt: exponential with jitter, at least what the service asks for."""
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** (attempt - 1), MAX_RETRY_SECONDS)
        return max(seconds * (0.5 + 0.5 * self.rng.random()), min(wait_seconds or 0.0, MAX_RETRY_AFTER_SECONDS))


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception in nested exception groups."""
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first


def _max_cost(judge: Judge, body: Mapping[str, Any]) -> float:
    """Return the largest possible cost of an attempt."""
    return 0.0 if judge.prices is None else judge.prices.cost(max_input_tokens(body), judge.max_tokens)


def _ledger_columns(call: Call) -> dict[str, Any]:
    """Return the columns of the ledger that describe a call."""
    judge = call.judge
    return {
        "judge": judge.name,
        "query": call.query,
        "document": " | ".join(call.documents),
        "sample": call.sample,
        "model": judge.model,
        "endpoint": judge.endpoint,
        "prompt": judge.prompt.digest,
    }
