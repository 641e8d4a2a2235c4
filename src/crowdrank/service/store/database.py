"""Connections to the service's database: SQLite for one process, PostgreSQL for a team."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from crowdrank.errors import UsageError

BUSY_SECONDS = 30
"""Maximum number of seconds that SQLite waits for another writer."""
MAX_TRIES = 8
"""Maximum number of tries of a transaction that PostgreSQL ended because of a conflict."""
CONFLICTS = {"40001", "40P01", "55P03"}
"""SQLSTATE codes of conflicts after which a transaction is tried again: serialization, deadlock, lock."""
SQLITE_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_SECONDS * 1000}")

Clock = Callable[[], int]
"""Function that returns the time in milliseconds since 1970."""
Result = TypeVar("Result")


def system_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class StaleReadError(Exception):
    """Another transaction has changed what this one has read; :meth:`Database.write` runs it again."""


class Database:
    """A database and its transactions.

    Args:
        target: path of an SQLite file, or a URL such as `postgresql://user@host/name`.
        clock: current time; tests set their own.

    """

    def __init__(self, target: str | Path, *, clock: Clock = system_clock) -> None:
        self.url = database_url(target)
        self.now = clock
        self.engine = _create_engine(self.url)
        # SQLite has one writer at a time: threads wait here, in turn, and not by polling the file.
        self._writer = threading.Lock() if self.is_sqlite else nullcontext()
        self._thread_locks: dict[str, threading.Lock] = {}

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is an SQLite file."""
        return self.engine.dialect.name == "sqlite"

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return Path(str(make_url(self.url).database))

    @property
    def shown(self) -> str:
        """Name of the database for messages, without a password."""
        return str(self.path) if self.is_sqlite else make_url(self.url).render_as_string(hide_password=True)

    def thread_lock(self, name: str) -> threading.Lock:
        """Return the lock of this name, which all threads share."""
        return self._thread_locks.setdefault(name, threading.Lock())

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Return a connection that sees one state of the database."""
        options: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run a function in a transaction, and commit it; after a conflict, run it again.

        Args:
            work: function of the connection. It must have no other effects, since it may run several times.

        Returns:
            What the function returned.

        """
        for attempt in range(1, MAX_TRIES + 1):
            try:
                with (
                    self._writer,
                    self.engine.connect().execution_options(is_write=True) as connection,
                    connection.begin(),
                ):
                    return work(connection)
            except (OperationalError, StaleReadError) as error:
                is_conflict = isinstance(error, StaleReadError) or getattr(error.orig, "sqlstate", None) in CONFLICTS
                if attempt == MAX_TRIES or not is_conflict:
                    raise
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def database_url(target: str | Path) -> str:
    """Return the URL of a database from a path or a URL; raise UsageError for other databases.

    >>> database_url("judging.db"), database_url("postgresql://ann@host/judging")
    ('sqlite:///judging.db', 'postgresql+psycopg://ann@host/judging')
    """
    text = str(target)
    if "://" not in text:
        return f"sqlite:///{text}"
    try:
        url = make_url(text)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() not in ("sqlite", "postgresql"):
        problem = "must be the path of an SQLite file or a URL such as postgresql://user@host/name"
        raise UsageError(problem, parameter="database")
    driver = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql+psycopg"
    return url.set(drivername=driver).render_as_string(hide_password=False)


def _create_engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=20, max_overflow=20, pool_pre_ping=True, hide_parameters=True)
    engine = create_engine(url, connect_args={"check_same_thread": False}, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the listener of "begin" starts transactions, not the driver
    for pragma in SQLITE_PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Start a transaction; a writer takes the lock at once, since a read that becomes a write fails at once."""
    is_write = connection.get_execution_options().get("is_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")
