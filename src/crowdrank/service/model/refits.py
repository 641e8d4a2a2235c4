"""Refits of the model in the background, by one process at a time.

After each answer, the consensus of its pair is computed with the parameters of assessors fixed, which takes
milliseconds. After some answers or some time, a few iterations update the assessors too. A full fit follows when the
number of answers has doubled, and every day.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection, delete, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from crowdrank.collection.belief import MODELS
from crowdrank.errors import CrowdrankError
from crowdrank.service.domain.projects import Project, list_open_projects
from crowdrank.service.model.fits import (
    DEFAULT_METHOD,
    FittedProject,
    Snapshot,
    fit_project,
    latest_snapshot,
    plan_project,
    update_queries,
)
from crowdrank.service.model.label_plan import count_assessors, needs_answer_model
from crowdrank.service.service_errors import Conflict
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

LOCK_POLL_SECONDS = 0.1
"""Seconds between two tries to acquire a lock."""


class NamedLock:
    """A lock of a database, by name.

    On PostgreSQL it is an advisory lock of a session, which ends with the connection. One process serves an SQLite
    file, so that there it is a lock among the threads that share the `Database`.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        self._threads = database.thread_lock(name)
        self._connection: Connection | None = None
        self._is_held = False

    def acquire(self, seconds: float = 0.0) -> bool:
        """Acquire the lock, or keep it; return False if another holder has it for this number of seconds."""
        deadline = time.monotonic() + seconds
        while not self._try_to_lock():
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_POLL_SECONDS)
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
            except SQLAlchemyError:
                connection.invalidate()  # without its session, the lock is free
            connection.close()
        elif self._is_held:
            self._threads.release()
        self._is_held = False

    @contextmanager
    def hold(self, seconds: float = 0.0) -> Iterator[bool]:
        """Hold the lock during the block, which gets False if another holder has it."""
        is_held = self.acquire(seconds)
        try:
            yield is_held
        finally:
            if is_held:
                self.release()

    def _try_to_lock(self) -> bool:
        if self._is_held and self._is_alive():
            return True
        if self._database.is_sqlite:
            self._is_held = self._threads.acquire(blocking=False)
            return self._is_held
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._is_held = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar_one()
        if self._is_held:
            self._connection = connection
        else:
            connection.close()
        return self._is_held

    def _is_alive(self) -> bool:
        """Return whether the session that holds the lock still exists."""
        if self._connection is None:
            return True
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.release()
            return False
        return True


POLL_SECONDS = 0.5
"""Seconds between two looks of the background thread for what is due."""
RETRY_SECONDS = 60
"""Seconds until the next try after a failure."""
WAIT_SECONDS = 60.0
"""Maximum number of seconds that a fit on request waits for one in the background."""
FIT_LOCK = "fit"
"""Name of the lock of one step."""
LATE_EVENTS = 200
"""Number of latest events that are read again: PostgreSQL may commit events in another order than that of their ids."""
MAX_NEW_EVENTS = 1000
"""Maximum number of events that are read; after more, all answers are read again anyway."""
MAX_UPDATED_PAIRS = 50
"""Maximum number of pairs that are updated with assessors fixed; for more, a few iterations take no longer."""

StepKind = Literal["fit", "iterations", "update", "plan", "failed"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RefitStep:
    """What was done for a project.

    Attributes:
        project: name of the project.
        kind: `fit` (until convergence), `iterations` (a few iterations), `update` (assessors fixed), `plan` (labels of
            a project without answers), or `failed`.
        n_events: number of answers and changes of answers since the previous step.
        plan_changes: number of quotas whose target or priority changed.

    """

    project: str
    kind: StepKind
    n_events: int = 0
    plan_changes: int = 0


@dataclass(frozen=True)
class RefitFailure:
    """Last failure of a fit in the background: time in milliseconds and problem."""

    at: int
    problem: str


@dataclass
class _State:
    """What is known of a project between two steps; times are in milliseconds."""

    fitted: FittedProject | None = None
    seen: set[int] = field(default_factory=set)  # ids of the latest events that were handled
    n_new: int = 0  # events since the assessors were updated
    n_new_since_fit: int = 0  # events between the last full fit and the last update of the assessors
    n_fitted: int = 0  # answers at the last full fit
    iterated_at: int = 0
    fit_at: int = 0
    retry_at: int = 0
    plan_settings: tuple[object, ...] = ()  # settings and numbers of assessors of the last plan

    def adopt(self, fitted: FittedProject, now: int, *, is_full: bool) -> None:
        """Keep a new fit."""
        self.n_new_since_fit = 0 if is_full else self.n_new_since_fit + self.n_new
        self.fitted, self.n_new, self.iterated_at = fitted, 0, now
        if is_full:
            self.fit_at, self.n_fitted = now, len(fitted.model.judgments_)


@dataclass(frozen=True)
class _NewEvents:
    """Events since the last step: their ids, pairs and queries, and the latest ids."""

    ids: Sequence[int]
    latest: set[int]
    pair_ids: Sequence[int]
    queries: Sequence[str]


class Refits:
    """Keeps the model of each open project up to date.

    The server calls :meth:`start`, and a thread then does what is due. Tests and experiments with a clock of their own
    call :meth:`run_due` instead, as often as they like; it does what is due at `database.now()`:

        database = Database("judging.db", clock=clock)
        app = create_application(database)          # requests are answered as usual, for instance by uvicorn
        refits = Refits(database, seconds=600, per_answer=False)
        ...                                         # requests; the clock moves
        steps = refits.run_due()

    Of all `Refits` of a database, in all processes, the first to act keeps on acting, and the others do nothing until
    it is closed or its process ends. The model of a project is in memory; a new `Refits` fits it again.

    Args:
        database: the database.
        n_answers: number of new answers after which a few iterations update the assessors.
        seconds: seconds after which they are updated if there are new answers.
        full_seconds: seconds after which a full fit follows if there are new answers.
        per_answer: whether pairs are updated after each answer.

    """

    def __init__(
        self,
        database: Database,
        *,
        n_answers: int = 50,
        seconds: float = 60,
        full_seconds: float = 24 * 3600,
        per_answer: bool = True,
    ) -> None:
        self.database = database
        self.n_answers = n_answers
        self.seconds = seconds
        self.full_seconds = full_seconds
        self.per_answer = per_answer
        self._states: dict[int, _State] = {}
        self._leading = NamedLock(database, "refits")
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def run_due(self) -> list[RefitStep]:
        """Do what is due now, and return it; nothing while another `Refits` of the database acts."""
        if not self._leading.acquire():
            return []
        with self.database.read() as connection:
            projects = list_open_projects(connection)
        steps = (self._run_project(project) for project in projects)
        return [step for step in steps if step is not None]

    def fit(self, project: Project, method: str = DEFAULT_METHOD) -> Snapshot:
        """Fit a model to all answers of a project until convergence; return the snapshot.

        Raises:
            Invalid: there is no such model, or the policy of the project cannot use it.
            Conflict: there are no answers yet, or other fits take too long (kind `fit-running`).

        """
        with NamedLock(self.database, FIT_LOCK).hold(WAIT_SECONDS) as is_held:
            if not is_held:
                raise Conflict("another fit is running", kind="fit-running", fix="wait until it ends")
            fitted = fit_project(self.database, project, method)
            self._states.setdefault(project.id, _State()).adopt(fitted, self.database.now(), is_full=True)
            return fitted.snapshot

    def start(self) -> None:
        """Start the background thread."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="refits", daemon=True)
        self._thread.start()

    def close(self, seconds: float = 10.0) -> None:
        """Stop the thread, if it runs, and let others act; wait at most this number of seconds for a fit to end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return  # the fit ends with the process, and writes nothing or all
        self._leading.release()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            try:
                self.run_due()
            except Exception:
                logger.exception("The model could not be updated; it is tried again.")
                self._stopped.wait(RETRY_SECONDS)

    def _run_project(self, project: Project) -> RefitStep | None:
        """Do what is due for a project; a failure is logged and stored, and tried again later."""
        state, now = self._states.setdefault(project.id, _State()), self.database.now()
        if now < state.retry_at:
            return None
        with NamedLock(self.database, FIT_LOCK).hold() as is_held:
            if not is_held:
                return None
            try:
                step = self._run_step(project, state, now)
            except Exception as error:
                logger.exception("The model of project %s could not be fitted.", project.name)
                self._states[project.id] = _State(retry_at=now + 1000 * RETRY_SECONDS)
                self._store_failure(project, error, now)
                return RefitStep(project.name, "failed")
        if step is not None and state.retry_at:
            state.retry_at = 0
            self._store_failure(project, None, now)
        return step

    def _run_step(self, project: Project, state: _State, now: int) -> RefitStep | None:
        """Do the largest step that is due for a project."""
        with self.database.read() as connection:
            snapshot = latest_snapshot(connection, project)
            new = _new_events(connection, project, state.seen)
            settings = project.plan_settings, count_assessors(connection, project) if project.is_planned else ()
        state.n_new += len(new.ids)
        is_replanned = project.is_planned and state.plan_settings != settings
        kind = self._due_step(project, state, snapshot, new, now, is_replanned=is_replanned)
        if kind in ("fit", "iterations"):
            kind, n_changed = self._fit(project, state, snapshot, kind, now)
        elif kind == "update" and state.fitted is not None:
            state.fitted = update_queries(self.database, project, state.fitted, new.queries, new.pair_ids)
            n_changed = state.fitted.plan_changes
        elif kind == "plan":
            n_changed = plan_project(self.database, project)
        state.seen = new.latest
        if kind is None:
            return None
        state.plan_settings = settings
        return RefitStep(project.name, kind, len(new.ids), n_changed)

    def _fit(
        self, project: Project, state: _State, snapshot: Snapshot | None, kind: StepKind, now: int
    ) -> tuple[StepKind, int]:
        """Fit the model, or plan if all answers were withdrawn; return what was done and the changes of the plan."""
        previous = state.fitted.model if kind == "iterations" and state.fitted is not None else None
        try:
            fitted = fit_project(self.database, project, _next_method(project, snapshot), previous)
        except Conflict as error:
            if error.kind != "no-answers":
                raise
            state.fitted, state.n_new = None, 0
            return "plan", plan_project(self.database, project) if project.is_planned else 0
        state.adopt(fitted, now, is_full=kind == "fit")
        return kind, fitted.plan_changes

    def _due_step(
        self,
        project: Project,
        state: _State,
        snapshot: Snapshot | None,
        new: _NewEvents,
        now: int,
        *,
        is_replanned: bool,
    ) -> StepKind | None:
        if state.fitted is None:
            return "fit" if new.ids else "plan" if is_replanned else None
        if snapshot is None or snapshot.method != state.fitted.snapshot.method:
            return "fit"
        is_due = state.n_new >= self.n_answers or (state.n_new > 0 and now - state.iterated_at >= 1000 * self.seconds)
        is_doubled = state.n_new_since_fit + state.n_new >= state.n_fitted
        if is_due and (is_doubled or now - state.fit_at >= 1000 * self.full_seconds):
            return "fit"
        if is_due or is_replanned or snapshot.id != state.fitted.snapshot.id or len(new.pair_ids) > MAX_UPDATED_PAIRS:
            return "iterations"
        return "update" if new.ids and self.per_answer and not project.asks_preferences else None

    def _store_failure(self, project: Project, error: Exception | None, now: int) -> None:
        """Store a failure for the dashboard, or remove it."""
        table = schema.refit_failure

        def store(connection: Connection) -> None:
            connection.execute(delete(table).where(table.c.project_id == project.id))
            if error is not None:
                problem = str(error) if isinstance(error, CrowdrankError) else f"{type(error).__name__}: {error}"
                connection.execute(insert(table).values(project_id=project.id, at=now, problem=problem[:1000]))

        self.database.write(store)


def last_failure(connection: Connection, project: Project) -> RefitFailure | None:
    """Return the last failure of a fit in the background, or None if the fit after it succeeded."""
    table = schema.refit_failure
    row = connection.execute(select(table.c.at, table.c.problem).where(table.c.project_id == project.id)).first()
    return None if row is None else RefitFailure(*row)


def _next_method(project: Project, snapshot: Snapshot | None) -> str:
    """Return the name of the consensus model of the next fit: that of the last fit, which `snapshot` stores.

    It is the default model if there was no fit, or if the plan of labels needs a model of answers and that one is none.
    """
    if snapshot is None or (needs_answer_model(project) and snapshot.method not in MODELS):
        return DEFAULT_METHOD
    return snapshot.method


def _new_events(connection: Connection, project: Project, seen: set[int]) -> _NewEvents:
    """Return the events that were not seen, and which events were: the latest ones, as far as they are kept."""
    event, pair, query = schema.event, schema.pair, schema.query
    floor = max(max(seen, default=0) - LATE_EVENTS, 0)
    rows = connection.execute(
        select(event.c.id, event.c.pair_id, query.c.key)
        .join_from(event, pair, pair.c.id == event.c.pair_id)
        .join(query, query.c.id == pair.c.query_id)
        .where(event.c.project_id == project.id, event.c.id > floor)
        .order_by(event.c.id.desc())
        .limit(MAX_NEW_EVENTS)
    ).all()
    new = [row for row in rows if row.id not in seen]
    return _NewEvents(
        [row.id for row in new],
        {row.id for row in rows},
        sorted({row.pair_id for row in new}),
        sorted({row.key for row in new}),
    )
