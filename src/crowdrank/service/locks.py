"""Locks that one holder can have at a time, over all processes of a database; a killed process loses them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from crowdrank.service.database import Database

POLL_SECONDS = 0.1
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
        while not self._try():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
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

    def _try(self) -> bool:
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
