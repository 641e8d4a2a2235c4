"""Ledger of the calls of LLM judges: an SQLite file with every reply and all costs, also those that are uncertain.

The money for an attempt is reserved before the request is sent, and settled when its outcome is known. If the process
dies in between, or the connection is lost, the service may have charged the attempt: its reservation then stays
charged. The sum of charges is therefore an upper bound of what the service can have charged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdrank._disk import write_error
from crowdrank._files import check_output_file, locked
from crowdrank.errors import Fix, InputError
from crowdrank.llm_judges.replies import STATUSES

PENDING = "pending"
"""Status of a call without an outcome: it is under way, was interrupted, or waits for another attempt."""
APPLICATION_ID = 0x63724C4A
"""Application id in the header of the SQLite file, which tells a ledger from other databases."""
LEDGER_VERSION = 1
"""Version of the table of a ledger; a file with another version is refused."""
BUDGET_TOLERANCE = 1e-12
"""Relative tolerance for rounding errors when costs are compared with the budget."""
_CREATE_TABLE = f"""
CREATE TABLE call (
    key TEXT PRIMARY KEY,
    judge TEXT NOT NULL,
    query TEXT NOT NULL,
    document TEXT NOT NULL,
    sample INTEGER NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    prompt TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('{PENDING}', {", ".join(f"'{one}'" for one in STATUSES)})),
    attempts INTEGER NOT NULL DEFAULT 0,
    reserved REAL NOT NULL DEFAULT 0,
    charged REAL NOT NULL DEFAULT 0,
    uncertain REAL NOT NULL DEFAULT 0,
    input_tokens INTEGER,
    output_tokens INTEGER,
    seconds REAL,
    time TEXT NOT NULL DEFAULT '',
    problem TEXT NOT NULL DEFAULT '',
    reply TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class CallRecord:
    """A call in the ledger.

    Attributes:
        status: one of `STATUSES`, or `PENDING`.
        attempts: number of requests that were sent.
        charged: cost of all attempts so far.
        uncertain: part of `charged` for attempts whose outcome is unknown.
        seconds: duration of the last attempt.
        time: when the last attempt ended.
        problem: why there is no grade.
        reply: body of the reply, as received.

    """

    status: str
    attempts: int
    charged: float
    uncertain: float
    seconds: float | None
    time: str
    problem: str
    reply: str


class Ledger:
    """Open ledger; only one process at a time has it open.

    Attributes:
        charged: cost of all attempts that ended, or whose process died.
        reserved: maximum cost of the attempts under way.
        n_reserved: number of attempts under way.

    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        with self._transaction():
            connection.execute(
                "UPDATE call SET charged = charged + reserved, uncertain = uncertain + reserved, reserved = 0, "
                "problem = 'the process ended before the reply arrived' WHERE reserved > 0"
            )
        self.charged = float(connection.execute("SELECT TOTAL(charged) FROM call").fetchone()[0])
        self.reserved, self.n_reserved = 0.0, 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit the statements of the block together, flushed to disk; raise OutputError if they cannot be written."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise write_error(self._path, str(problem), kind="write-failed") from problem

    def statuses(self) -> dict[str, str]:
        """Return the status of every call by its key."""
        return dict(self._connection.execute("SELECT key, status FROM call"))

    def find_call(self, key: str) -> CallRecord | None:
        """Return a call, or None if it was never made."""
        row = self._connection.execute(
            "SELECT status, attempts, charged, uncertain, seconds, time, problem, reply FROM call WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else CallRecord(*row)

    @property
    def uncertain(self) -> float:
        """Part of `charged` for attempts whose outcome is unknown."""
        return float(self._connection.execute("SELECT TOTAL(uncertain) FROM call").fetchone()[0])

    def reserve(self, key: str, amount: float, budget: float | None, call_columns: Mapping[str, Any]) -> bool:
        """Reserve the maximum cost of an attempt and count the attempt; return False if it could exceed the budget.

        Args:
            key: key of the call.
            amount: upper bound of the cost of the attempt.
            budget: maximum total cost of all calls in the ledger, or None without a limit.
            call_columns: values of the columns from `judge` to `prompt`.

        """
        if (
            budget is not None
            and amount > 0
            and self.charged + self.reserved + amount > budget * (1 + BUDGET_TOLERANCE)
        ):
            return False
        names = list(call_columns)
        with self._transaction():
            self._connection.execute(
                f"INSERT INTO call (key, status, {', '.join(names)}) VALUES (?, ?, {', '.join('?' * len(names))}) "
                "ON CONFLICT (key) DO NOTHING",
                (key, PENDING, *call_columns.values()),
            )
            self._connection.execute(
                "UPDATE call SET status = ?, attempts = attempts + 1, reserved = ? WHERE key = ?",
                (PENDING, amount, key),
            )
        self.reserved, self.n_reserved = self.reserved + amount, self.n_reserved + 1
        return True

    def settle(self, key: str, amount: float, cost: float | None, values: Mapping[str, Any]) -> None:
        """Replace the reservation of an attempt by its cost.

        Args:
            key: key of the call.
            amount: cost that was reserved.
            cost: cost of the attempt; None if its outcome is unknown, so that the reservation stays charged.
            values: values of the columns `status` and `input_tokens` to `reply`.

        """
        charged, uncertain = (amount, amount) if cost is None else (cost, 0.0)
        assignments = ", ".join(f"{name} = ?" for name in values)
        with self._transaction():
            self._connection.execute(
                f"UPDATE call SET {assignments}, reserved = 0, charged = charged + ?, uncertain = uncertain + ? "
                "WHERE key = ?",
                (*values.values(), charged, uncertain, key),
            )
        self.n_reserved -= 1
        self.reserved = self.reserved - amount if self.n_reserved else 0.0  # without errors of rounding
        self.charged += charged


@contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Open a ledger, or create it, and lock it against other processes.

    Raises:
        OutputError: another process has it open (kind `locked`), or it cannot be written.
        InputError: the file is not a ledger.

    """
    check_output_file(path)
    with locked(path, wait=False):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            try:
                _create_or_check_tables(connection, path)
                ledger = Ledger(connection, path)
            except sqlite3.DatabaseError as problem:
                raise _not_a_ledger_error(path) from problem
            yield ledger
        finally:
            connection.close()


def _create_or_check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table of a new ledger; raise InputError if the file is another database or of another version."""
    is_new = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
    if is_new:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CREATE_TABLE)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {LEDGER_VERSION}")
        connection.execute("COMMIT")
        return
    header = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if header != (APPLICATION_ID, LEDGER_VERSION):
        raise _not_a_ledger_error(path)
    connection.execute("PRAGMA synchronous = FULL")


def _not_a_ledger_error(path: Path) -> InputError:
    problem = "it is not a ledger of LLM judges, is damaged, or is from another version of crowdrank"
    fix = Fix("restore a copy, or name another file with {}", "ledger")
    return InputError(problem, source=str(path), kind="not-a-ledger", fix=fix)
