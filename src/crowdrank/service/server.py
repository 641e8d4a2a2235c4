"""Run the judging service or its demo: lock and upgrade the database, invite an administrator, answer requests."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import uvicorn
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from crowdrank._files import locked
from crowdrank.errors import Fix, InputError, Message, OutputError, UsageError
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.answers import record_answers
from crowdrank.service.domain.credentials import MINUTE
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.people import add_member, count_admins, create_assessor, create_invitation
from crowdrank.service.domain.projects import Project, create_project
from crowdrank.service.model.fits import fit_project
from crowdrank.service.store import schema
from crowdrank.service.store.database import OWNER_ONLY, Database
from crowdrank.service.store.migrations import upgrade
from crowdrank.service.web.service_settings import ServiceSettings
from crowdrank.service.web.web_app import create_application

STOP_SECONDS = 10
"""Maximum number of seconds that requests may take after SIGTERM or Ctrl-C."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Started:
    """What the operator should know after the start.

    Attributes:
        url: address of the service.
        database: name of the database.
        admin_link: link by which an administrator joins, if there was none or if one was requested.
        demo_link: link by which a lead joins the project of the demo.
        warning: warning about the address, or None.

    """

    url: str
    database: str
    admin_link: str | None
    warning: Message | None
    demo_link: str | None = None


def serve(
    target: str,
    *,
    host: str,
    port: int,
    settings: ServiceSettings,
    new_admin_link: bool = False,
    demo: bool = False,
    on_start: Callable[[Started], None],
) -> None:
    """Serve a database until SIGTERM or Ctrl-C.

    Args:
        target: path of an SQLite file, which is created if it does not exist, or URL of a PostgreSQL database.
        host: address to listen on.
        port: port to listen on; 0 for a free one.
        settings: settings of the HTTP API.
        new_admin_link: create a link for a new administrator even if there are some.
        demo: create the project of the demo in a new database.
        on_start: called once when requests can be sent.

    Raises:
        InputError: the database cannot be used.
        UsageError: another process serves the file, or the address cannot be used.

    """
    with closing(listen(host, port)) as listener, open_database(target) as database:
        url = settings.public_url or _url(host, listener.getsockname()[1])
        demo_link = _invite(database, settings, url, "lead", create_demo(database).id) if demo else None
        needs_admin = new_admin_link or not (demo or _has_admin(database))
        admin_link = _invite(database, settings, url, "admin") if needs_admin else None
        app = create_application(database, settings)
        on_start(Started(url, database.shown, admin_link, _address_warning(host, settings), demo_link))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        refits = app.state.service.refits
        refits.start()
        with closing(refits), suppress(KeyboardInterrupt):  # uvicorn raises the signal again after it has stopped
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def open_database(target: str) -> Iterator[Database]:
    """Open a database for one service, create or upgrade its tables, and close it at the end of the block.

    Raises:
        InputError: the database cannot be used, or is not one of this service.
        UsageError: another process serves the SQLite file (kind `locked`).

    """
    try:
        database = Database(target)
    except ImportError as problem:
        text = "PostgreSQL needs psycopg, which is not installed: pip install 'crowdrank[postgresql]'."
        raise UsageError(text, kind="missing-package") from problem
    with closing(database), _only_process(database):
        try:
            upgrade(database)
        except DBAPIError as problem:
            reason = str(problem.orig).strip().split("\n")[0]
            fix = "check the address, and that you may write"
            raise InputError(f"it cannot be used ({reason})", source=database.shown, kind="unusable", fix=fix) from None
        yield database


@contextmanager
def _only_process(database: Database) -> Iterator[None]:
    """Hold the lock of an SQLite file, which one process can serve at a time; create it for its owner only."""
    if not database.is_sqlite:
        yield
        return
    try:
        with locked(database.path, wait=False):
            with suppress(FileExistsError):
                os.close(os.open(database.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
            yield
    except OutputError as problem:
        if problem.kind != "locked":
            raise
        fix = ["stop it first", "use PostgreSQL for several processes"]
        text = f"{database.shown} is in use by another crowdrank process"
        raise UsageError(text, kind="locked", fix=fix) from problem


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raise UsageError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once only if the protocol is stated; otherwise, responses take 40 ms more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # a request that comes before uvicorn has started waits
    except OSError as problem:
        listener.close()
        fix = [Fix("choose another port with {}", "port"), Fix("check {}", "host")]
        text = f"cannot listen on {host}:{port}: {problem.strerror or problem}"
        raise UsageError(text, kind="address", fix=fix) from problem
    return listener


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _address_warning(host: str, settings: ServiceSettings) -> Message | None:
    """Return a warning if others can reach the service without HTTPS."""
    is_secure = settings.public_url is not None and settings.public_url.startswith("https://")
    if host in LOOPBACK or is_secure:
        return None
    problem = f"other machines reach {host} without HTTPS: passwords and answers can be read on the way"
    fix = Fix("put an HTTPS proxy in front and give its address with {}", "public_url", "https://judging.example.org")
    return Message(problem, "no-https", "warning", fixes=(fix,))


def _has_admin(database: Database) -> bool:
    with database.read() as connection:
        return count_admins(connection) > 0


def _invite(database: Database, settings: ServiceSettings, url: str, role: str, project_id: int | None = None) -> str:
    """Return a link by which one person joins."""
    now = database.now()
    expires = now + settings.invitation_lifetime
    _, secret = database.write(
        lambda connection: create_invitation(connection, role=role, now=now, expires=expires, project_id=project_id)
    )
    return f"{url}/join#{secret}"


DEMO_PROJECT_NAME = "demo"
COLLEAGUES = {"ada": (0.95, 0.0), "ben": (0.85, 0.3), "chris": (0.2, 0.0)}
"""Simulated assessors: probability of the expected grade, and mean of other errors, in grades."""
MILLISECONDS_PER_QUERY = 10 * MINUTE
"""Milliseconds in which the simulated assessors judge the documents of a query."""
ANSWERED_SHARE = 0.9
"""Probability that a simulated assessor answers a pair."""
GUIDELINES = """# How to judge

Read the query and the information need. Would the document help the person who asked?

- **Highly relevant**: it answers the question.
- **Relevant**: it answers a part of it, or gives the background.
- **Related**: the same topic, but it does not help with the question.
- **Irrelevant**: another topic.

Choose *Cannot judge* only if you cannot read the document.
"""
DEMO_SETTINGS: Mapping[str, Any] = {
    "guidelines": GUIDELINES,
    "policy": "ndcg@10",
    "settled": 0.9,
    "quotas": {"human": (1, 5)},
}


def create_demo(database: Database, random_state: int = 0) -> Project:
    """Create the demo project with answers of simulated colleagues, and fit a model to them.

    Args:
        database: a new database.
        random_state: random seed of the simulated answers.

    Raises:
        UsageError: the database has projects already.

    """
    texts = json.loads(files("crowdrank.service").joinpath("demo", "texts.json").read_text(encoding="utf-8"))
    now, rng = database.now(), np.random.default_rng(random_state)

    def create(connection: Connection) -> Project:
        if connection.execute(select(func.count()).select_from(schema.project)).scalar_one():
            raise UsageError("the demo needs a new database", parameter="demo", fix="name a new file, or none")
        project = create_project(connection, DEMO_PROJECT_NAME, texts["grades"], now, **DEMO_SETTINGS)
        add_pairs(connection, project, _pair_rows(texts), now)
        answers = {}
        for name, (accuracy, leniency) in COLLEAGUES.items():
            person = create_assessor(connection, name, now=now)
            add_member(connection, project.id, person.id, "judge", now)
            answers[person.id] = _simulated_answers(texts, name, accuracy, leniency, rng)
        _record_by_query(connection, project, answers, now)
        return project

    project = database.write(create)
    fit_project(database, project)
    return project


def _record_by_query(
    connection: Connection, project: Project, answers: Mapping[int, Sequence[Answer]], now: int
) -> None:
    """Record the answers of each colleague query by query, one every `MILLISECONDS_PER_QUERY` until now."""
    queries = list(dict.fromkeys(one.query for listed in answers.values() for one in listed))
    for place, query in enumerate(queries):
        received = now - (len(queries) - place) * MILLISECONDS_PER_QUERY
        for assessor_id, listed in answers.items():
            of_query = [one for one in listed if one.query == query]
            record_answers(connection, project, assessor_id, of_query, received)


def _pair_rows(texts: dict[str, Any]) -> list[PairRow]:
    return [
        PairRow(
            query["id"],
            document["id"],
            query_text=query["text"],
            need=query["need"],
            title=document["title"],
            body=document["body"],
        )
        for query in texts["queries"]
        for document in query["documents"]
    ]


def _simulated_answers(
    texts: dict[str, Any], name: str, accuracy: float, leniency: float, rng: np.random.Generator
) -> list[Answer]:
    """Return the answers of a colleague to some pairs: the expected grade, or another one."""
    highest, answers = len(texts["grades"]) - 1, []
    for query in texts["queries"]:
        for document in query["documents"]:
            if rng.random() > ANSWERED_SHARE:
                continue
            error = 0 if rng.random() < accuracy else round(rng.normal(leniency, 1.2))
            grade = int(np.clip(document["grade"] + error, 0, highest))
            seconds = float(rng.lognormal(2.3, 0.5))
            answers.append(
                Answer(
                    f"{name} {document['id']}",
                    grade=texts["grades"][grade],
                    query=query["id"],
                    document=document["id"],
                    active_ms=round(1000 * seconds),
                )
            )
    return answers
