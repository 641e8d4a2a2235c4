"""Requests of an LLM judge to the API of a judging service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

from crowdrank.errors import JudgeError, UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.endpoint import require_httpx2

if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 60.0
"""Seconds to wait for a response of the service."""
ATTEMPTS = 4
"""Maximum number of attempts per request; a repeated request changes nothing."""
WAIT_SECONDS = 1.0
"""Seconds before the second attempt; later ones wait longer."""


@dataclass(frozen=True)
class Lease:
    """A pair that the service holds for a judge.

    Attributes:
        token: token of the lease, sent back with the answer.
        query, document: ids of the pair.
        content: texts of the pair, as the service sends them.

    """

    token: str
    query: str
    document: str
    content: Mapping[str, Any]

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> Lease:
        """Return a lease from its JSON object."""
        content = lease["content"]
        return cls(lease["token"], content["query"], content["document"], content)


class ServiceClient:
    """Client of a judging service for one judge; use it in a `with` statement.

    Args:
        url: address of the service, such as `http://127.0.0.1:8000`.
        project: name of the project.
        token: API token of the judge.

    """

    def __init__(self, url: str, project: str, token: str) -> None:
        require_httpx2()
        import httpx2

        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            problem, fix = "is not an http or https address", "write it like http://127.0.0.1:8000"
            raise UsageError(problem, parameter="url", kind="invalid-address", fix=fix)
        self._base = f"{url.rstrip('/')}/api/projects/{quote(project, safe='')}"
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx2.Client(headers=headers, timeout=TIMEOUT_SECONDS, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def grades(self) -> Scale:
        """Return the scale of the project."""
        return Scale.parse(self._send("GET", "")["grades"])

    def next(self, count: int) -> tuple[list[Lease], str]:
        """Return pairs that are held for the judge, and the status of the judge, or the reason if it is done."""
        found = self._send("POST", "/next", params={"count": count})
        return [Lease.of(lease) for lease in found["leases"]], found["reason"] or found["status"]

    def answer(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Send answers."""
        if answers:
            self._send("POST", "/answers", json=list(answers))

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Give pairs back unanswered."""
        if leases:
            self._send("POST", "/leases/return", json={"tokens": [lease.token for lease in leases]})

    def _send(self, method: str, path: str, **content: Any) -> Any:
        """Send a request and return the JSON document of the response; raise JudgeError if it is refused."""
        response = self._request(method, path, **content)
        document = _json(response)
        if response.is_success:
            return document
        refusal = document if isinstance(document, dict) else {}
        said = refusal.get("problem") or f"code {response.status_code}"
        fix = refusal.get("fix") or ""
        raise JudgeError(f"The judging service refused a request: {said}", kind="service-refused", fix=fix)

    def _request(self, method: str, path: str, **content: Any) -> httpx2.Response:
        """Send a request; a lost connection is tried again."""
        import httpx2

        attempt = 1
        while True:
            try:
                return self._client.request(method, self._base + path, **content)
            except httpx2.TransportError as lost:
                if attempt == ATTEMPTS:
                    problem = f"no response from the judging service at {self._base.partition('/api/')[0]}"
                    fix = "check its address and that it runs; then run the command again"
                    raise JudgeError(problem, kind="no-service", fix=fix) from lost
            time.sleep(WAIT_SECONDS * attempt)
            attempt += 1


def _json(response: httpx2.Response) -> Any:
    """Return the JSON document of a response; raise JudgeError if it has none."""
    try:
        return response.json()
    except ValueError as problem:
        fix = "check the address of the service"
        raise JudgeError("The response is not that of a judging service", kind="not-a-service", fix=fix) from problem
