"""A day of judging in minutes: `python -m benchmarks.soak` (also with `--hours 24 --judges 12 --seed 0`).

The service runs in a process of its own, with a simulated clock. Judges come and go, abandon pairs or give them back,
answer late or twice, put pairs off, cannot judge some, and undo answers; the model is fitted in the background. Exits
with 1 unless, in the end,

    memory      the service needs as much memory as after a quarter of the time
    leases      all live leases are held by judges, all expired ones have ended, and places are counted correctly
    database    its size is linear in the number of events
    model       the last fit in the background is less than a simulated hour old, and none has failed
"""

from __future__ import annotations

import argparse
import heapq
import math
import multiprocessing
import sys
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select, text

from benchmarks.measure import Result, at_most
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.projects import create_project
from crowdrank.service.model.refits import Refits
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade
from tools.local_service import START, JudgeClient, open_service
from tools.service_invariants import find_violations
from tools.service_load import add_person

HOURS, MIN_HOURS, JUDGES = 24.0, 4.0, 12
PROJECT, POLICY, GRADES = "soak", "ndcg@10", ("Bad", "Fair", "Good", "Perfect")
QUERIES, DOCUMENTS, K_MAX = 100, 20, 12
LEASE_SECONDS = 900
SECONDS, SPREAD = 20.0, 0.6
"""Median seconds per answer, and standard deviation of their logarithm."""
SESSION, BREAK_SECONDS = 40, 2400.0
"""Mean number of answers before a judge leaves, and mean number of seconds until the judge comes back."""
LATE, LATER, CANNOT_JUDGE, UNDO, TWICE, CHANGE = 0.01, 0.03, 0.03, 0.04, 0.02, 0.02
"""Shares of answers that are late, put off, not possible, undone, sent twice and changed."""
ABANDON = 0.5
"""Share of judges who leave without giving their pair back."""
MAX_MEMORY, MAX_DEVIATION, MAX_FIT_HOURS = 1.1, 0.05, 1.0
"""Maximum ratio of memory, deviation from a line as a share of the growth, and hours since the last fit."""


@dataclass(frozen=True)
class Checkpoint:
    """State of the service at a simulated time."""

    hours: float
    events: int
    database_bytes: int
    memory_bytes: int


@dataclass
class Judge:
    """A judge of the simulation.

    Attributes:
        client: requests of the judge.
        skill: probability that an answer is the true grade; other answers are random.
        current: lease of the pair that the judge looks at.
        held: leases that were not answered or given back, by token.
        answers_left: number of answers until the judge leaves.

    """

    client: JudgeClient
    skill: float
    current: dict[str, Any] | None = None
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers_left: int = 0


# The service, in a process of its own.


@dataclass(frozen=True)
class SoakedService:
    """A running service, its clock and its process."""

    url: str
    pid: int
    clock: Any

    def memory_bytes(self) -> int:
        """Return the resident memory of the process."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024


@contextmanager
def run_service(path: Path) -> Iterator[SoakedService]:
    """Run the service with fits in the background until the end of the block."""
    context = multiprocessing.get_context("spawn")
    clock, (ours, theirs) = context.Value("q", START), context.Pipe()
    process = context.Process(target=_serve, args=(str(path), clock, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        url = ours.recv()
        assert process.pid is not None
        yield SoakedService(url, process.pid, clock)
    finally:
        ours.close()
        process.join()


def _serve(path: str, clock: Any, pipe: Pipe) -> None:
    """Serve until the other end of the pipe is closed."""
    with open_service(path, lambda: int(clock.value)) as service:
        refits = Refits(service.database)
        refits.start()
        pipe.send(service.url)
        pipe.poll(None)
        refits.close()


# Judges.


def create_soak_project(database: Database, n_judges: int, n_queries: int = QUERIES) -> list[str]:
    """Create a project with a policy that uses the model; return the API tokens of its judges."""
    now = database.now()
    rows = [
        PairRow(f"q{query}", f"q{query}-d{number}", query_text="plum jam", body="text " * 100)
        for query in range(n_queries)
        for number in range(DOCUMENTS)
    ]

    def create(connection: Connection) -> list[str]:
        quotas = {"human": [1, K_MAX]}
        project = create_project(
            connection, PROJECT, GRADES, now, policy=POLICY, quotas=quotas, lease_seconds=LEASE_SECONDS
        )
        add_pairs(connection, project, rows, now)
        return [add_person(connection, project, f"judge-{number}", "human", now) for number in range(n_judges)]

    return database.write(create)


class Soak:
    """Judges who work at the service, one request after the other in the order of simulated time.

    Attributes:
        counts: number of requests by what they were.
        checkpoints: state of the service after each simulated hour.

    """

    def __init__(self, service: SoakedService, database: Database, judges: Sequence[Judge], seed: int) -> None:
        self.service, self.database, self.judges = service, database, judges
        self.counts: Counter[str] = Counter()
        self.checkpoints: list[Checkpoint] = []
        self._rng = np.random.default_rng(seed)

    def run(self, hours: float) -> None:
        """Work for some simulated hours."""
        events = [(float(self._rng.uniform(0, BREAK_SECONDS)), number) for number in range(len(self.judges))]
        heapq.heapify(events)
        for hour in np.append(np.arange(1.0, hours), hours):
            while events[0][0] <= 3600 * hour:
                seconds, number = heapq.heappop(events)
                self._move_clock(seconds)
                heapq.heappush(events, (seconds + self._work(self.judges[number]), number))
            self._move_clock(3600 * hour)
            self.checkpoints.append(self._checkpoint(float(hour)))

    def _work(self, judge: Judge) -> float:
        """Let a judge answer and ask for the next pair, or leave; return the seconds until the judge acts again."""
        if judge.current is not None:
            self._answer(judge, judge.current)
            judge.answers_left -= 1
        else:
            judge.answers_left = int(self._rng.geometric(1 / SESSION))
        judge.current = self.ask(judge)
        if judge.current is None or judge.answers_left <= 0:
            self._leave(judge)
            return float(self._rng.exponential(BREAK_SECONDS))
        late = LEASE_SECONDS if self._draw(LATE) else 0.0
        return float(late + SECONDS * self._rng.lognormal(0, SPREAD))

    def ask(self, judge: Judge) -> dict[str, Any] | None:
        """Ask for a pair; return the lease, or None if nothing is left to judge."""
        leases = judge.client.next_leases()
        judge.held |= {lease["token"]: lease for lease in leases}
        self.counts["pairs handed out" if leases else "requests without a pair"] += 1
        return leases[0] if leases else None

    def _leave(self, judge: Judge) -> None:
        """End the session of a judge who holds a pair: abandon the pair, or give it back."""
        judge.current = None
        if judge.held and not self._draw(ABANDON):
            returned = judge.client.post("leases/return", {"tokens": list(judge.held)})
            self.counts["pairs given back"] += returned["leases"]
            judge.held.clear()

    def _answer(self, judge: Judge, lease: dict[str, Any]) -> None:
        """Answer a pair, perhaps twice, and perhaps change or undo the answer."""
        pair = lease["content"]
        shares = [LATER, CANNOT_JUDGE, 1 - LATER - CANNOT_JUDGE]
        kind = str(self._rng.choice(["later", "cannot-judge", "grade"], p=shares))
        body = {"client_id": new_id(), "kind": kind, "grade": self._grade(judge, pair) if kind == "grade" else None}
        (receipt,) = judge.client.post("answers", {**body, "lease": lease["token"]})
        judge.held.pop(lease["token"], None)
        self.counts[f"answers: {kind}{', late' if receipt['is_late'] else ''}"] += 1
        if self._draw(TWICE):
            (again,) = judge.client.post("answers", {**body, "lease": lease["token"]})
            assert again == receipt, (again, receipt)
            self.counts["answers sent twice"] += 1
        if kind == "grade" and self._draw(CHANGE):
            changed = {"client_id": new_id(), "pair_id": pair["pair_id"], "grade": self._grade(judge, pair)}
            judge.client.post("answers", changed)
            self.counts["answers changed"] += 1
        if kind != "later" and self._draw(UNDO):
            again = judge.client.post("undo", {"client_id": new_id()})["lease"]
            judge.held |= {} if again is None else {again["token"]: again}
            self.counts["answers undone"] += 1

    def _grade(self, judge: Judge, pair: dict[str, Any]) -> str:
        true_grade = zlib.crc32(pair["document"].encode()) % len(GRADES)
        return GRADES[true_grade if self._draw(judge.skill) else int(self._rng.integers(len(GRADES)))]

    def _draw(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def _move_clock(self, seconds: float) -> None:
        self.service.clock.value = START + round(1000 * seconds)

    def _checkpoint(self, hours: float) -> Checkpoint:
        with self.database.read() as connection:
            pages, page_bytes, free = (
                connection.execute(text(f"PRAGMA {name}")).scalar_one()
                for name in ("page_count", "page_size", "freelist_count")
            )
            events = connection.execute(select(func.count()).select_from(schema.event)).scalar_one()
        return Checkpoint(hours, events, (pages - free) * page_bytes, self.service.memory_bytes())


def new_id() -> str:
    """Return an id for a request."""
    return str(uuid.uuid4())


# Checks.


def soak(hours: float = HOURS, n_judges: int = JUDGES, seed: int = 0) -> list[Result]:
    """Let judges work for some simulated hours; return the results of the checks."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory())) / "judging.db"
        database = stack.enter_context(closing(Database(path, clock=lambda: START)))
        upgrade(database)
        tokens = create_soak_project(database, n_judges)
        service = stack.enter_context(run_service(path))
        clients = [JudgeClient(f"{service.url}/api/projects/{PROJECT}", token) for token in tokens]
        skills = np.random.default_rng(seed).uniform(0.3, 0.95, n_judges).tolist()
        judges = [Judge(stack.enter_context(client), skill) for client, skill in zip(clients, skills, strict=True)]
        soaked = Soak(service, database, judges, seed)
        soaked.run(hours)
        return [
            check_memory(soaked.checkpoints),
            *check_leases(soaked),
            check_size(soaked.checkpoints, soaked.counts),
            check_model(soaked),
        ]


def check_memory(checkpoints: Sequence[Checkpoint]) -> Result:
    """Compare the memory of the service at the end with its memory after a quarter of the time."""
    last = checkpoints[-1]
    early = next(one for one in checkpoints if one.hours >= last.hours / 4)
    title = f"memory of the service after {last.hours:g} h over {early.hours:g} h"
    megabytes = {f"mb_after_{one.hours:g}_h": one.memory_bytes / 1e6 for one in (early, last)}
    return at_most(title, last.memory_bytes / early.memory_bytes, MAX_MEMORY, **megabytes)


def check_leases(soaked: Soak) -> list[Result]:
    """Compare the leases of the database with those that judges hold, after the expired ones have ended."""
    soaked.ask(soaked.judges[0])  # a request for pairs ends expired leases
    now, table = int(soaked.service.clock.value), schema.lease
    held = {token for judge in soaked.judges for token, lease in judge.held.items() if lease["expires"] > now}
    with soaked.database.read() as connection:
        open_leases = connection.execute(select(table.c.token, table.c.expires).where(table.c.ended.is_(None))).all()
        issued = connection.execute(select(func.count()).select_from(table)).scalar_one()
        violations = find_violations(connection, 1)
    live = {row.token for row in open_leases if row.expires > now}
    expired = len(open_leases) - len(live)
    return [
        at_most(
            "leases that are live but not held, or the reverse", len(live ^ held), 0, live=len(live), issued=issued
        ),
        at_most("leases that have expired but not ended", expired, 0),
        at_most("violated invariants of leases, places and answers", len(violations), 0, names=violations),
    ]


def check_size(checkpoints: Sequence[Checkpoint], counts: Mapping[str, int]) -> Result:
    """Compare the size of the database with a line through its sizes by number of events."""
    events, size = (
        np.array([getattr(one, name) for one in checkpoints], float) for name in ("events", "database_bytes")
    )
    slope, start = np.polyfit(events, size, 1)
    deviation = float(np.abs(size - start - slope * events).max() / (size[-1] - size[0]))
    details = {"bytes_per_event": float(slope), "events": int(events[-1]), "mb": float(size[-1] / 1e6), **counts}
    return at_most("deviation of the database's size from a line, over its growth", deviation, MAX_DEVIATION, **details)


def check_model(soaked: Soak) -> Result:
    """Return the simulated hours since the last fit in the background, infinite without one or after a failure."""
    now, hours = int(soaked.service.clock.value), math.inf
    with soaked.database.read() as connection:
        fitted = connection.execute(select(func.max(schema.snapshot.c.created))).scalar_one()
        n_failures = connection.execute(select(func.count()).select_from(schema.refit_failure)).scalar_one()
    if fitted is not None and not n_failures:
        hours = (now - fitted) / 3_600_000
    return at_most("simulated hours since the last fit in the background", hours, MAX_FIT_HOURS, failures=n_failures)


def main() -> None:
    """Run the soak with options; exit with 1 if a check fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=HOURS, help="simulated hours")
    parser.add_argument("--judges", type=int, default=JUDGES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.hours < MIN_HOURS:
        parser.error(f"--hours must be at least {MIN_HOURS:g}")
    results = soak(options.hours, options.judges, options.seed)
    for result in results:
        print(result.line())  # noqa: T201
    sys.exit(0 if all(result.met for result in results) else 1)


if __name__ == "__main__":
    main()
