"""Response times of the judging service under load, and kills in mid-load, on SQLite and PostgreSQL.

`python -m benchmarks service` takes about 25 minutes; `python -m benchmarks.service --seconds 60 --kills 0` is shorter.
All clients work at once, each in a thread, and pause at random between requests. Four kinds of load take turns, several
times, so that other work of the machine affects all alike:

    service     judges ask a running service for a pair and answer it, over HTTP
    bare HTTP   the same number of clients call two endpoints of a minimal application, which read one row by its key,
                and insert one row and commit; same web server, framework, driver and database settings
    store       the same transactions as the service's, without HTTP, in threads of this process
    bare store  one read by key, and one insert with commit, without HTTP, in threads of this process

The ratios divide percentiles of response times: `next` (which also writes: it holds the pair for the judge) by the bare
read and by the bare insert, `answer` by the bare insert, each over HTTP and in the store.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import numpy as np
from sqlalchemy import Connection, create_engine, select, text

from benchmarks.measure import Result, at_most
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.answers import record_answers
from crowdrank.service.domain.assignment import next_pairs
from crowdrank.service.domain.projects import get_project
from crowdrank.service.server import listen
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database, database_url
from crowdrank.service.store.migrations import upgrade
from tools.postgresql import PostgresServer, find_program
from tools.service_load import (
    GRADES,
    PROJECT,
    RunningService,
    SimulatedJudges,
    add_load_project,
    kill_repeatedly,
    local_client,
)

SECONDS, KILLS, JUDGES, PAUSE = 300, 50, 50, 5.0
"""Seconds of load and number of kills per database, number of judges, and mean seconds between a judge's requests."""
N_REPEATS = 3
"""Number of turns of the four kinds of load."""
GOAL = 5.0
"""Maximum ratio of response times."""
TABLE = "CREATE TABLE bare (id {key}, content TEXT)"

Times = dict[str, list[float]]
"""Response times in seconds by kind of request."""
Step = Callable[[random.Random, Times], None]
"""Requests of one client, which adds their times."""
Targets = Callable[[int], list[str]]
"""Function that creates a number of new databases and returns their paths or URLs."""


def load(seconds: float = SECONDS, n_judges: int = JUDGES, pause: float = PAUSE) -> list[Result]:
    """Measure response times of the service under load, relative to bare requests."""
    results = []
    for kind, make_target in _databases():
        with make_target() as targets:
            served, stored = targets(2)
            results += _ratios(kind, _measure(served, stored, seconds, n_judges, pause), n_judges)
    return results


def kills(n_kills: int = KILLS) -> list[Result]:
    """Kill the service in mid-load, restart it, and count answers that were lost or doubled."""
    results = []
    for kind, make_target in _databases():
        with make_target() as targets:
            (target,) = targets(1)
            found = kill_repeatedly(target, _create(target, 8, 50 * n_kills), n_kills)
            wrong = found.lost + found.doubled + found.unknown + found.failed
            title = f"answers lost, doubled or refused after {n_kills} kills, {kind}"
            details = {"acknowledged": found.acknowledged, "in_doubt": found.in_doubt, "stored": found.in_doubt_stored}
            results.append(at_most(title, wrong, 0, **details))
    return results


@contextmanager
def _sqlite() -> Iterator[Targets]:
    with tempfile.TemporaryDirectory() as folder:
        yield lambda number: [str(Path(folder) / f"judging-{one}.db") for one in range(number)]


@contextmanager
def _postgresql() -> Iterator[Targets]:
    with PostgresServer(fsync=True) as server:

        def create(number: int) -> list[str]:
            names = [f"judging_{one}" for one in range(number)]
            admin = create_engine(database_url(server.url()), isolation_level="AUTOCOMMIT")
            with closing(admin.connect()) as connection:
                for name in names:
                    connection.execute(text(f"CREATE DATABASE {name}"))
            admin.dispose()
            return [server.url(name) for name in names]

        yield create


def _databases() -> list[tuple[str, Callable[[], AbstractContextManager[Targets]]]]:
    return [("SQLite", _sqlite), *([("PostgreSQL", _postgresql)] if find_program("initdb") else [])]


def _create(target: str, n_judges: int, n_pairs: int) -> list[str]:
    """Create a database with pairs to judge and a table for bare requests; return the tokens of its judges."""
    database = Database(target)
    with closing(database):
        upgrade(database)
        tokens = add_load_project(database, n_judges, n_pairs)
        key = "INTEGER PRIMARY KEY" if database.is_sqlite else "SERIAL PRIMARY KEY"
        database.write(lambda connection: connection.execute(text(TABLE.format(key=key))))
        database.write(insert_row)
    return tokens


def insert_row(connection: Connection) -> None:
    """Insert one row, the bare counterpart of an answer."""
    connection.execute(text("INSERT INTO bare (content) VALUES (:content)"), {"content": str(uuid.uuid4())})


def read_row(connection: Connection) -> None:
    """Read one row by its key, the bare counterpart of `next`."""
    connection.execute(text("SELECT content FROM bare WHERE id = 1")).one()


# The four kinds of load.


def _measure(served: str, stored: str, seconds: float, n_judges: int, pause: float) -> dict[str, Times]:
    """Return response times by kind of load; `served` and `stored` are two databases of one kind."""
    n_pairs = round(n_judges * (N_REPEATS + seconds / 4 / pause))  # enough for twice as many answers
    tokens = _create(served, n_judges, n_pairs)
    _create(stored, n_judges, n_pairs)
    judges, times = SimulatedJudges(tokens, pause), {name: Times() for name in ("bare HTTP", "store", "bare store")}
    part = seconds / N_REPEATS / 4
    with ExitStack() as stack:
        service = stack.enter_context(RunningService(served))
        bare = stack.enter_context(_bare_service(stored))
        database = stack.enter_context(closing(Database(stored)))
        for _ in range(N_REPEATS):
            judges.start(service.url)
            time.sleep(part)
            judges.pause()
            with ExitStack() as clients:
                steps = [_http_step(clients.enter_context(local_client()), bare) for _ in range(n_judges)]
                _run(steps, part, pause, times["bare HTTP"])
            _run([_store_step(database, number) for number in range(n_judges)], part, pause, times["store"])
            _run([_bare_step(database)] * n_judges, part, pause, times["bare store"])
    return {"service": {name: judges.seconds(name) for name in ("next", "answer")}, **times}


def _run(steps: list[Step], seconds: float, pause: float, times: Times) -> None:
    """Let clients repeat their requests for some seconds, each in a thread."""
    stop, errors = threading.Event(), []

    def work(number: int, step: Step) -> None:
        rng = random.Random(number)
        try:
            while not stop.wait(rng.uniform(0, 2 * pause)):
                step(rng, times)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=one, daemon=True) for one in enumerate(steps)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _timed(times: Times, name: str, work: Callable[[], object]) -> object:
    began = time.perf_counter()
    result = work()
    times.setdefault(name, []).append(time.perf_counter() - began)
    return result


def _http_step(client: httpx2.Client, url: str) -> Step:
    def step(rng: random.Random, times: Times) -> None:
        for name in ("read", "insert"):
            _timed(times, name, lambda name=name: client.post(f"{url}/{name}").raise_for_status())  # type: ignore[misc]

    return step


def _bare_step(database: Database) -> Step:
    def read() -> None:
        with database.read() as connection:
            read_row(connection)

    def step(rng: random.Random, times: Times) -> None:
        _timed(times, "read", read)
        _timed(times, "insert", lambda: database.write(insert_row))

    return step


def _store_step(database: Database, number: int) -> Step:
    with database.read() as connection:
        me = connection.execute(
            select(schema.assessor.c.id).where(schema.assessor.c.name == f"judge-{number}")
        ).scalar_one()
        project = get_project(connection, PROJECT, me)

    def step(rng: random.Random, times: Times) -> None:
        def ask(connection: Connection) -> list[str]:
            return [lease.token for lease in next_pairs(connection, project, me, 1, database.now()).leases]

        leases = _timed(times, "next", lambda: database.write(ask))
        for token in leases:  # type: ignore[attr-defined]
            answer = Answer(client_id=str(uuid.uuid4()), lease=token, grade=rng.choice(GRADES))

            def send(connection: Connection, answer: Answer = answer) -> object:
                return record_answers(connection, project, me, [answer], database.now())

            _timed(times, "answer", lambda send=send: database.write(send))  # type: ignore[misc]

    return step


@contextmanager
def _bare_service(target: str) -> Iterator[str]:
    """Run the minimal application in a process of its own; return its address."""
    command = [sys.executable, "-m", "benchmarks.service", "--bare", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        while True:
            try:
                httpx2.post(f"{url}/read", timeout=60).raise_for_status()
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.communicate()


def _serve_bare(target: str) -> None:
    import uvicorn
    from fastapi import FastAPI

    database, app = Database(target), FastAPI()

    @app.post("/read")
    def read() -> None:
        with database.read() as connection:
            read_row(connection)

    @app.post("/insert")
    def insert() -> None:
        database.write(insert_row)

    with closing(listen("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


def _ratios(kind: str, times: dict[str, Times], n_judges: int) -> list[Result]:
    results = []
    for ours, bare, stack in (("service", "bare HTTP", "over HTTP"), ("store", "bare store", "in the store")):
        for name, base in (("next", "read"), ("next", "insert"), ("answer", "insert")):
            for percentile in (50, 95):
                mine, other = (
                    float(np.percentile(times[load][request], percentile)) * 1000
                    for load, request in ((ours, name), (bare, base))
                )
                title = f"p{percentile} of {name} over bare {base}, {stack}, {kind}, {n_judges} judges"
                details = {"ours_ms": mine, "bare_ms": other, "requests": len(times[ours][name])}
                results.append(at_most(title, mine / other, GOAL, **details))
    return results


def main() -> None:
    """Run the benchmark with options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds of load per database")
    parser.add_argument("--judges", type=int, default=JUDGES)
    parser.add_argument("--pause", type=float, default=PAUSE, help="mean seconds between requests of a judge")
    parser.add_argument("--kills", type=int, default=KILLS, help="number of kills per database")
    parser.add_argument("--bare", help="serve bare requests of a database; for the benchmark itself")
    options = parser.parse_args()
    if options.bare:
        _serve_bare(options.bare)
        return
    found = load(options.seconds, options.judges, options.pause) if options.seconds else []
    found += kills(options.kills) if options.kills else []
    for result in found:
        print(result.line())  # noqa: T201


if __name__ == "__main__":
    main()
