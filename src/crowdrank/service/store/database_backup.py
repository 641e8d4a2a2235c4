"""Back up and restore the SQLite file of a judging service."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from crowdrank._files import check_output_file, locked, write_file
from crowdrank.errors import Fix, InputError, OutputError, UsageError
from crowdrank.readers.files import is_database_url
from crowdrank.readers.judging_database import find_database

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


def _sqlite_path(database: str | Path, program: str) -> Path:
    """Return the path of an SQLite file; raise an error that names a program of PostgreSQL for a URL."""
    if is_database_url(database):
        raise _postgresql_error(program)
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
    """Raise InputError, about the file `named`, unless a file is an undamaged database of the judging service."""
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
