"""Start the judging service as a process of its own, and send it the requests of simulated judges.

judges = SimulatedJudges(add_load_project(database, n_judges=50, n_pairs=1000))
with RunningService(target) as service:
    judges.start(service.url)
    ...
    judges.pause()
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx2
from sqlalchemy import Connection, text

from crowdrank.service.domain.credentials import create_token
from crowdrank.service.domain.pairs import DocumentRow, PairRow, add_pairs
from crowdrank.service.domain.people import add_member, create_assessor
from crowdrank.service.domain.projects import PREFERENCE_ANSWERS, Project, create_project
from crowdrank.service.store.database import Database

PROJECT = "load"
GRADES = ("Bad", "Fair", "Good")
START_SECONDS = 120
"""Maximum number of seconds until a service answers."""
RETRY_SECONDS = 0.05
"""Pause of a judge whose request failed because the service was not there."""
PAIRS_PER_QUERY = 20


def add_load_project(
    database: Database, n_judges: int, n_pairs: int, k_max: int = 3, *, asks_preferences: bool = False
) -> list[str]:
    """Create a project with pairs and LLM judges; return the API token of each judge."""
    now = database.now()
    rows = [
        PairRow(
            f"q{number // PAIRS_PER_QUERY}",
            f"d{number}",
            query_text="plum jam",
            title=f"Jam {number}",
            body="text " * 100,
            other=DocumentRow(f"e{number}", body="text " * 100) if asks_preferences else None,
        )
        for number in range(n_pairs)
    ]

    def add(connection: Connection) -> list[str]:
        quotas = {"llm": (min(2, k_max), k_max)}
        grades, task = (None, "preferences") if asks_preferences else (GRADES, "grades")
        project = create_project(connection, PROJECT, grades, now, quotas=quotas, task=task)
        add_pairs(connection, project, rows, now)
        return [add_person(connection, project, f"judge-{number}", "llm", now) for number in range(n_judges)]

    return database.write(add)


def add_person(
    connection: Connection, project: Project, name: str, kind: str, now: int, role: Literal["judge", "lead"] = "judge"
) -> str:
    """Add a new person to a project; return an API token."""
    person = create_assessor(connection, name, now=now, kind=kind)
    add_member(connection, project.id, person.id, role, now)
    scopes = ["judge"] if role == "judge" else ["read", "manage"]
    return create_token(connection, person.id, name="simulation", scopes=scopes, now=now)[1]


def _grades(lease: Mapping[str, Any]) -> Sequence[str]:
    """Return the answers to the pair of a lease: grades, or preferences between its two documents."""
    return PREFERENCE_ANSWERS if "other" in lease["content"] else GRADES


class RunningService:
    """A service in a process of its own, on a free port of this machine.

    Attributes:
        url: address of the service.
        admin_secret: secret of the link for the first administrator, or "".
        exit_code: exit code after :meth:`stop`.

    """

    def __init__(self, target: str | Path) -> None:
        self.target = str(target)
        self.admin_secret = ""
        self.exit_code: int | None = None
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        command = [sys.executable, "-m", "crowdrank", "serve", self.target, "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        # A pipe that nobody reads would stop the service when it is full.
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (open as long as the process)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.admin_secret = line.strip().partition("/join#")[2] or self.admin_secret
            if (found := re.search(r" on (http://\S+)$", line.strip())) is not None:
                self.url = found[1]
                break
        else:
            self.log.seek(0)
            raise AssertionError(f"the service did not start: {self.log.read()}")
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                httpx2.get(f"{self.url}/api/health", timeout=START_SECONDS).raise_for_status()
                return
            except httpx2.TransportError:
                if time.monotonic() > end:
                    raise
                time.sleep(RETRY_SECONDS)

    def kill(self) -> None:
        """Kill the process at once, as a power failure would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def stop(self) -> int:
        """Ask the process to stop; return its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=START_SECONDS)
        self.exit_code = self.process.returncode
        return self.exit_code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()


def local_client(token: str = "") -> httpx2.Client:
    """Return a client for services on this machine; it loads no certificates, which takes longer than many requests."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.Client(headers=headers, timeout=60, verify=False)


@dataclass
class SentAnswer:
    """An answer that a judge sent at least once."""

    body: dict[str, Any]
    n_sent: int = 0
    receipt: dict[str, Any] | None = None


@dataclass
class SimulatedJudge:
    """A judge who asks for pairs and answers them; an answer without a receipt is sent again with the same id.

    Attributes:
        url: address of the service.
        token: API token of the judge.
        pause: mean number of seconds before each request for pairs.
        answers: answers by client id.
        seconds: durations of requests.
        n_failed: number of requests without a response.
        is_done: whether no pair is left.

    """

    url: str
    token: str
    pause: float = 0.0
    answers: dict[str, SentAnswer] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"next": [], "answer": []})
    n_failed: int = 0
    is_done: bool = False

    def work(self, stop: threading.Event) -> None:
        """Judge until the event to stop is set or no pair is left."""
        rng = random.Random(self.token)
        with local_client(self.token) as client:
            while not (self.is_done or stop.wait(rng.uniform(0, 2 * self.pause))):
                try:
                    self._step(client, rng)
                except httpx2.TransportError:
                    self.n_failed += 1
                    stop.wait(RETRY_SECONDS)

    def send_again(self, url: str) -> None:
        """Send all answers without a receipt again."""
        self.url = url
        with local_client(self.token) as client:
            self._send_waiting(client)

    def _send_waiting(self, client: httpx2.Client) -> None:
        for waiting in [one for one in self.answers.values() if one.receipt is None]:
            self._send(client, waiting)

    def _step(self, client: httpx2.Client, rng: random.Random) -> None:
        self._send_waiting(client)
        found = self._post(client, "next")
        self.is_done = not found["leases"]
        for lease in found["leases"]:
            body = {"client_id": str(uuid.uuid4()), "lease": lease["token"], "grade": rng.choice(_grades(lease))}
            answer = self.answers[body["client_id"]] = SentAnswer(body)
            self._send(client, answer)

    def _send(self, client: httpx2.Client, answer: SentAnswer) -> None:
        answer.n_sent += 1
        answer.receipt = self._post(client, "answers", json=answer.body)[0]

    def _post(self, client: httpx2.Client, name: str, **request: Any) -> Any:
        began = time.perf_counter()
        response = client.post(f"{self.url}/api/projects/{PROJECT}/{name}", **request)
        self.seconds["next" if name == "next" else "answer"].append(time.perf_counter() - began)
        if response.status_code >= 500:
            raise httpx2.RemoteProtocolError(f"the service failed: {response.text}")
        assert response.status_code == 200, response.text
        return response.json()


class SimulatedJudges:
    """Judges who work at once, each in a thread, from :meth:`start` to :meth:`pause`."""

    def __init__(self, tokens: list[str], pause: float = 0.0) -> None:
        self.judges = [SimulatedJudge("", token, pause) for token in tokens]
        self.errors: list[BaseException] = []

    def start(self, url: str) -> None:
        """Let all judges work at an address."""
        self.stop = threading.Event()
        self.threads = []
        for judge in self.judges:
            judge.url = url
            self.threads.append(threading.Thread(target=self._work, args=(judge,), daemon=True))
            self.threads[-1].start()

    def _work(self, judge: SimulatedJudge) -> None:
        try:
            judge.work(self.stop)
        except BaseException as error:
            self.errors.append(error)
            raise

    def pause(self) -> None:
        """Let all judges finish their requests; raise the error of one that failed."""
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    @property
    def receipts(self) -> dict[str, dict[str, Any]]:
        """Receipts by client id."""
        sent = (item for judge in self.judges for item in judge.answers.items())
        return {client_id: one.receipt for client_id, one in sent if one.receipt is not None}

    @property
    def sent(self) -> set[str]:
        """Client ids of all answers that were sent."""
        return {client_id for judge in self.judges for client_id in judge.answers}

    def seconds(self, name: str) -> list[float]:
        """Return the durations of all requests `next` or `answer`, in seconds."""
        return [one for judge in self.judges for one in judge.seconds[name]]


@dataclass(frozen=True)
class KillResult:
    """What kills of a service in mid-load did.

    Attributes:
        kills: number of kills.
        acknowledged: answers with a receipt before a kill.
        lost: acknowledged answers that are not in the database.
        doubled: answers that are in the database more than once.
        unknown: answers in the database that nobody sent.
        in_doubt: answers without a receipt at a kill; each was sent again.
        in_doubt_stored: those that the database had before they were sent again.
        failed: judges whose answers had no receipt in the end.

    """

    kills: int
    acknowledged: int
    lost: int
    doubled: int
    unknown: int
    in_doubt: int
    in_doubt_stored: int
    failed: int

    @property
    def is_clean(self) -> bool:
        """Whether no answer was lost, doubled or invented, and all could be sent again."""
        return self.lost == self.doubled == self.unknown == self.failed == 0


def kill_repeatedly(
    target: str, tokens: list[str], n_kills: int, seed: int = 0, *, answers_per_kill: int = 20
) -> KillResult:
    """Kill a service in mid-load several times, restart it each time, and compare receipts with the database.

    Args:
        target: the database, with the project of :func:`add_load_project`; no service uses it.
        tokens: tokens of the judges.
        n_kills: number of kills.
        seed: seed of the moments.
        answers_per_kill: number of new receipts after which, a random moment later, the service is killed.

    """
    rng, judges = random.Random(seed), SimulatedJudges(tokens)
    lost, in_doubt, stored = 0, 0, 0
    with RunningService(target) as service:
        for _ in range(n_kills):
            wanted = len(judges.receipts) + answers_per_kill
            judges.start(service.url)
            while len(judges.receipts) < wanted and any(thread.is_alive() for thread in judges.threads):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.1))
            service.kill()
            judges.pause()
            events = stored_client_ids(target)
            waiting = judges.sent - set(judges.receipts)
            lost += len(set(judges.receipts) - set(events))
            in_doubt, stored = in_doubt + len(waiting), stored + len(waiting & set(events))
            service.start()
        for judge in judges.judges:
            judge.send_again(service.url)
        assert service.stop() == 0
    events = stored_client_ids(target)
    return KillResult(
        kills=n_kills,
        acknowledged=len(judges.receipts),
        lost=lost + len(set(judges.receipts) - set(events)),
        doubled=len(events) - len(set(events)),
        unknown=len(set(events) - judges.sent),
        in_doubt=in_doubt,
        in_doubt_stored=stored,
        failed=len(judges.sent - set(judges.receipts)),
    )


def stored_client_ids(target: str) -> list[str]:
    """Return the client ids of all events in a database."""
    database = Database(target)
    try:
        with database.read() as connection:
            return list(connection.execute(text("SELECT client_id FROM event")).scalars())
    finally:
        database.close()
