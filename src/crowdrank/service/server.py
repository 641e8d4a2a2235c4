"""Run the judging service: lock and upgrade the database, invite the first administrator, answer requests."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import uvicorn
from sqlalchemy.exc import DBAPIError

from crowdrank._files import locked
from crowdrank.errors import Fix, InputError, Message, OutputError, UsageError
from crowdrank.service.demo_project import create_demo
from crowdrank.service.domain.people import count_admins, create_invitation
from crowdrank.service.store.database import Database
from crowdrank.service.store.database_backup import OWNER_ONLY
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
