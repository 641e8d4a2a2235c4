"""The database of the service: connections (SQLite for one process, PostgreSQL for a team), backup and restore."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from crowdrank._files import check_output_file, locked, write_file
from crowdrank.errors import Fix, InputError, OutputError, UsageError
from crowdrank.readers.files import is_database_url
from crowdrank.readers.judging_database import find_database

BUSY_SECONDS = 30
"""Maximum number of seconds that SQLite waits for another writer."""
MAX_TRANSACTION_TRIES = 8
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
        for attempt in range(1, MAX_TRANSACTION_TRIES + 1):
            try:
                with (
                    self._writer,
                    self.engine.connect().execution_options(is_write=True) as connection,
                    connection.begin(),
                ):
                    return work(connection)
            except (OperationalError, StaleReadError) as error:
                is_conflict = isinstance(error, StaleReadError) or getattr(error.orig, "sqlstate", None) in CONFLICTS
                if attempt == MAX_TRANSACTION_TRIES or not is_conflict:
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


OWNER_ONLY = 0o600
"""Mode of databases: only their owner may read password hashes and answers."""
OTHER_COPY = "use another copy of the database"
"""Fix for a damaged database."""


def back_up(database: str | Path, output: str | Path) -> None:
    """Copy a database into one file, also while the service runs; the copy is complete or not there at all.

    Args:
        database: the SQLite file.
        output: the copy; a file that exists is replaced.

    Raises:
        InputError: the database cannot be read.
        OutputError: the copy cannot be written.
        UsageError: the database is a PostgreSQL database, or the copy would replace it.

    """
    source = _sqlite_path(database, "pg_dump")
    if Path(output).resolve() == source.resolve():
        raise UsageError(f"is {output}, which is read", parameter="output", fix="choose another name")
    with write_file(output) as draft:
        _copy(source, draft)


def restore(backup: str | Path, database: str | Path, *, replace: bool = False) -> None:
    """Put a backup in the place of a database that no service uses.

    Args:
        backup: file that :func:`back_up` wrote.
        database: the SQLite file to restore.
        replace: whether to replace a database that exists; its content is lost.

    Raises:
        InputError: the backup is not a complete database of the judging service.
        OutputError: a service uses the database (kind `locked`), or it exists and must not be replaced (`exists`).

    """
    source, target = _sqlite_path(backup, "pg_restore"), Path(database)
    if is_database_url(database):
        raise _postgresql_error("pg_restore")
    check_output_file(target)
    with locked(target, wait=False):
        if target.exists() and not replace:
            fix = [Fix("name a new file"), Fix("replace it with {}", "replace")]
            raise OutputError("it exists, and its answers would be lost", source=str(target), kind="exists", fix=fix)
        with write_file(target) as draft:
            _copy(source, draft)
            _remove_write_ahead_log(target)


def _copy(source: Path, draft: Path) -> None:
    """Copy a database, with its write-ahead log, into one file; raise InputError if the copy is not a good one."""
    try:
        with closing(_open_for_reading(source)) as connection:
            connection.execute("VACUUM INTO ?", (str(draft),))
    except sqlite3.Error as problem:
        fix = "check free disk space and that the file is not damaged"
        raise InputError(f"it cannot be copied ({problem})", source=str(source), kind="damaged", fix=fix) from problem
    draft.chmod(OWNER_ONLY)
    _check_database(draft, source)


def _remove_write_ahead_log(database: Path) -> None:
    """Merge the write-ahead log of a database into it and remove it; SQLite would apply it to another file there."""
    if not database.exists():
        return
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error:  # damaged: it is being replaced
        for suffix in ("-wal", "-shm"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)


def _sqlite_path(database: str | Path, postgresql_program: str) -> Path:
    """Return the path of an SQLite file; for a PostgreSQL URL, raise an error that names the program to use instead."""
    if is_database_url(database):
        raise _postgresql_error(postgresql_program)
    path = Path(database)
    if not path.is_file():
        raise InputError("there is no such file", source=str(path), kind="no-file", fix="check the path")
    if find_database(path) is None:
        raise InputError("it is not an SQLite file", source=str(path), kind="other-format", fix="check the path")
    return path


def _postgresql_error(program: str) -> UsageError:
    return UsageError("PostgreSQL has a program of its own for this", kind="postgresql", fix=f"use {program}")


def _open_for_reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)


def _check_database(path: Path, named: Path) -> None:
    """Raise InputError, which names the file `named`, unless `path` is an undamaged database of the judging service."""
    try:
        with closing(_open_for_reading(path)) as connection:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            views = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    except sqlite3.Error as error:
        raise InputError(f"it cannot be read ({error})", source=str(named), kind="damaged", fix=OTHER_COPY) from error
    if problem != "ok":
        raise InputError(f"it is damaged ({problem})", source=str(named), kind="damaged", fix=OTHER_COPY)
    if ("judgment",) not in views:
        problem = "it is a database, but not one of the judging service"
        raise InputError(problem, source=str(named), kind="other-format", fix="check the path")
