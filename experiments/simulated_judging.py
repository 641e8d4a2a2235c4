"""Judges who work at the judging service over HTTP, in simulated time."""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sqlalchemy import Connection

from crowdrank._typing import Integers
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.projects import create_project
from crowdrank.service.model.refits import Refits
from crowdrank.service.store.database import Database
from experiments.judging_worlds import World
from tools.local_service import JudgeClient, LocalService, SimulatedClock, open_service
from tools.service_load import add_person

PROJECT = "world"
AT_ONCE = 8
"""Number of judges who work at the same time."""
SECONDS, SPREAD = 20.0, 0.5
"""Median seconds per answer, and standard deviation of their logarithm."""
SESSION = 60
"""Mean number of answers of a judge before another one takes over."""
PAUSE = 30.0
"""Seconds before the next request if there was nothing to judge."""


@dataclass(frozen=True)
class Arm:
    """One way to hand out pairs.

    Attributes:
        name: name of the run in tables.
        policy: policy of the project.
        refit_seconds: simulated seconds between two fits; 0 for the service's own schedule, which updates a pair after
            each answer, and the assessors every minute; None for no fits.
        settings: further settings of the project.
        kind: kind of the judges in the service, by default that of the world. People stay at a query while it has pairs
            that are wanted; LLM judges do not.
        labels: number of answers per document after which the run ends.

    """

    name: str
    policy: str
    labels: float
    refit_seconds: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    kind: str | None = None

    @property
    def in_rounds(self) -> bool:
        """Whether every pair gets one more answer before any gets two more."""
        return self.policy == "random" and "settled" not in self.settings

    def refits(self, database: Database) -> Refits:
        """Return the fits of the model."""
        if not self.refit_seconds:
            return Refits(database)
        return Refits(database, seconds=self.refit_seconds, n_answers=sys.maxsize, per_answer=False)


@dataclass
class Seat:
    """A place at which one judge works at a time."""

    judge: int
    answers_left: int
    lease: dict[str, Any] | None = None


@dataclass(frozen=True)
class OpenProject:
    """A project in a running service, with a client of each judge, and of a lead if there are rounds."""

    service: LocalService
    judges: list[JudgeClient]
    leads: list[JudgeClient]


@contextmanager
def open_project(world: World, arm: Arm, clock: SimulatedClock) -> Iterator[OpenProject]:
    """Serve a new database with the pairs and judges of a world until the end of the block."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        service = stack.enter_context(open_service(Path(folder) / "judging.db", clock))
        tokens = add_world(service.database, world, arm)
        clients = [stack.enter_context(service.client(token, PROJECT)) for token in tokens]
        n_judges = world.judgments.n_assessors
        yield OpenProject(service, clients[:n_judges], clients[n_judges:])


def add_world(database: Database, world: World, arm: Arm) -> list[str]:
    """Create the project of a world; return the API tokens of its judges, in their order, and of a lead for rounds."""
    now, judgments = database.now(), world.judgments
    rows = [PairRow(query, document) for query, document in world.places]

    def add(connection: Connection) -> list[str]:
        settings = {"policy": arm.policy, "quotas": {world.kind: quota(world, arm, 1)}, **arm.settings}
        project = create_project(connection, PROJECT, judgments.scale.names, now, **settings)
        add_pairs(connection, project, rows, now)
        names = judgments.assessors.to_pylist()
        judges = [add_person(connection, project, name, world.kind, now) for name in names]
        return [*judges, *([add_person(connection, project, "lead", "human", now, "lead")] if arm.in_rounds else [])]

    return database.write(add)


def quota(world: World, arm: Arm, k_min: int) -> list[int]:
    """Return the number of labels per pair, at least and at most."""
    return [k_min, int(arm.labels) if arm.in_rounds else world.judgments.n_assessors]


def simulate_judging(world: World, arm: Arm) -> Integers:
    """Let the judges of a world work at the service.

    Args:
        world: pairs, judges and their answers.
        arm: how pairs are handed out.

    Returns:
        The rows of the world's judgments in the order in which they were answered, (n_answers,).

    """
    clock, world = SimulatedClock(), world if arm.kind is None else replace(world, kind=arm.kind)
    # The service draws pairs by the global generator, in the order of the requests.
    random.seed(world.seed)
    with open_project(world, arm, clock) as project:
        return Simulation(world, arm, project, clock).run(round(arm.labels * world.judgments.n_items))


class Simulation:
    """Judges who work at the service, one request after the other in the order of simulated time."""

    def __init__(self, world: World, arm: Arm, project: OpenProject, clock: SimulatedClock) -> None:
        self.world, self.arm, self.project, self.clock = world, arm, project, clock
        self.answered: list[int] = []
        self._refits = arm.refits(project.service.database)
        self._rng = np.random.default_rng([world.seed, 1])
        self._start = clock()
        self._next_fit = 0.0  # seconds since the start
        self._k_min = 1
        self._n_idle = 0  # requests without a pair since the last answer or change of the quotas
        self._seats: list[Seat] = []

    def run(self, n_answers: int) -> Integers:
        """Work until there are `n_answers`, or nothing is left to judge; return the rows answered, in order."""
        judges = self._rng.permutation(len(self.project.judges))
        self._seats = [Seat(int(judge), self._session()) for judge in judges[:AT_ONCE]]
        events = [(float(self._rng.uniform(0, SECONDS)), number) for number in range(len(self._seats))]
        heapq.heapify(events)
        while len(self.answered) < n_answers and self._has_work():
            seconds, number = heapq.heappop(events)
            self._fit_until(seconds)
            self._move_clock(seconds)
            heapq.heappush(events, (seconds + self._work(self._seats[number]), number))
        return np.array(self.answered[:n_answers], np.int64)

    def _work(self, seat: Seat) -> float:
        """Answer the pair that a judge holds, and ask for the next one; return the seconds until the next answer."""
        if seat.lease is not None:
            self._answer(seat, seat.lease)
        leases = self.project.judges[seat.judge].next_leases()
        seat.lease = leases[0] if leases else None
        if seat.lease is not None:
            return float(SECONDS * self._rng.lognormal(0, SPREAD))
        self._n_idle += 1
        self._change_judge(seat)
        return PAUSE

    def _answer(self, seat: Seat, lease: dict[str, Any]) -> None:
        pair = lease["content"]
        row = int(self.world.rows[self.world.places[pair["query"], pair["document"]], seat.judge])
        self.project.judges[seat.judge].answer(lease, self.world.grades[row])
        self.answered.append(row)
        self._n_idle = 0
        if self.arm.refit_seconds == 0:
            self._refits.run_due()
        seat.answers_left -= 1
        if seat.answers_left <= 0:
            self._change_judge(seat)

    def _change_judge(self, seat: Seat) -> None:
        """Let a judge who is not at work take the seat, if there is one."""
        absent = sorted(set(range(len(self.project.judges))) - {other.judge for other in self._seats})
        if absent:
            seat.judge = int(self._rng.choice(absent))
        seat.answers_left, seat.lease = self._session(), None

    def _has_work(self) -> bool:
        """Return whether some judge may find a pair; with rounds, begin the next one if nobody does."""
        if self._n_idle <= 2 * len(self.project.judges):
            return True
        if not self.arm.in_rounds or self._k_min >= self.arm.labels:
            return False
        self._k_min += 1
        self._n_idle = 0
        for lead in self.project.leads:
            lead.change_project(quotas={self.world.kind: quota(self.world, self.arm, self._k_min)})
        return True

    def _fit_until(self, seconds: float) -> None:
        """Fit the model at each multiple of the interval before this time."""
        interval = self.arm.refit_seconds
        while interval and self._next_fit <= seconds:
            self._move_clock(self._next_fit)
            self._refits.run_due()
            self._next_fit += interval

    def _move_clock(self, seconds: float) -> None:
        self.clock.milliseconds = max(self.clock.milliseconds, self._start + round(seconds * 1000))

    def _session(self) -> int:
        return int(1 + self._rng.geometric(1 / SESSION))
