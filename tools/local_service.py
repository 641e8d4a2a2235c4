"""Run the judging service in this process, with a clock that the caller moves, and send it requests of judges.

clock = SimulatedClock()
with open_service(path, clock) as service, service.client(token, "project") as judge:
    lease = judge.next_leases()[0]
    clock.advance(20)
    judge.answer(lease, "Good")
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from crowdrank.service.server import listen, open_database
from crowdrank.service.store.database import Clock, Database
from crowdrank.service.web.web_app import create_application
from tools.service_load import START_SECONDS, local_client

START = 1_700_000_000_000
"""Time at which simulated clocks begin, in milliseconds since 1970."""


class SimulatedClock:
    """Clock for :class:`Database` that only :meth:`advance` moves."""

    def __init__(self, milliseconds: int = START) -> None:
        self.milliseconds = milliseconds

    def __call__(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self.milliseconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.milliseconds += round(seconds * 1000)


@dataclass(frozen=True)
class LocalService:
    """A service that answers at an address of this machine, and its database."""

    url: str
    database: Database

    def client(self, token: str, project: str) -> JudgeClient:
        """Return the client of a judge."""
        return JudgeClient(f"{self.url}/api/projects/{project}", token)


class JudgeClient:
    """Requests of one judge, or of a lead, in one project.

    Args:
        url: address of the project in the API.
        token: API token.

    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._client = local_client(token)

    def next_leases(self) -> list[dict[str, Any]]:
        """Ask for a pair; return the leases held, of which there is none if nothing is left to judge."""
        leases: list[dict[str, Any]] = self.post("next")["leases"]
        return leases

    def answer(self, lease: dict[str, Any], grade: str | None, **fields: Any) -> dict[str, Any]:
        """Answer a pair; return the receipt."""
        body = {"client_id": str(uuid.uuid4()), "lease": lease["token"], "grade": grade, **fields}
        receipt: dict[str, Any] = self.post("answers", body)[0]
        return receipt

    def post(self, name: str, body: Any = None) -> Any:
        """Send a request; return the response, which must be a success."""
        return self._json_of(self._client.post(f"{self._url}/{name}", json=body))

    def change_project(self, **settings: Any) -> Any:
        """Change settings of the project, as a lead."""
        return self._json_of(self._client.patch(self._url, json=settings))

    def _json_of(self, response: Any) -> Any:
        assert response.status_code == 200, response.text
        return response.json()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def open_service(path: str | Path, clock: Clock) -> Iterator[LocalService]:
    """Create the database, and serve it in a thread until the end of the block."""
    with open_database(str(path)) as database, closing(listen("127.0.0.1", 0)) as listener:
        database.now = clock
        config = uvicorn.Config(create_application(database), log_level="warning", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_until_started(server)
            yield LocalService(f"http://127.0.0.1:{listener.getsockname()[1]}", database)
        finally:
            server.should_exit = True
            thread.join()


def wait_until_started(server: uvicorn.Server) -> None:
    """Wait until a server answers requests; raise TimeoutError if it does not."""
    end = time.monotonic() + START_SECONDS
    while not server.started:
        if time.monotonic() > end:
            raise TimeoutError("the service did not start")
        time.sleep(0.01)
