"""Passwords, sessions and API tokens, and the delay after failed attempts to sign in.

Secrets are random (256 bits); the database has only their SHA-256 digests, and passwords as Argon2 hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import Connection, Select, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crowdrank.service.service_errors import Invalid, NotFound, TooManyAttempts
from crowdrank.service.store.schema import assessor, login_failure, project, session, token

SCOPES = ("judge", "read", "manage")
"""Scopes of a token: answer pairs, read results, change projects."""
MIN_PASSWORD_LENGTH = 10
"""Minimum number of characters of a password."""
MAX_PASSWORD_LENGTH = 1000
"""Maximum number of characters of a password."""
MAX_CONCURRENT_HASHES = 4
"""Maximum number of passwords hashed at a time."""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
"""Number of milliseconds in a minute, an hour and a day."""


def new_secret(purpose: str) -> str:
    """Return a random secret of 256 bits that begins with its purpose, so that leaked ones can be found."""
    return f"crowdrank_{purpose}_{secrets.token_urlsafe(32)}"


def digest_of(secret: str) -> str:
    """Return the SHA-256 digest of a secret, as the database has it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# Passwords.


@dataclass(frozen=True)
class PasswordCost:
    """Cost of a password hash (Argon2id): number of passes, memory in KiB, threads."""

    passes: int = 3
    memory: int = 65_536
    threads: int = 4


class PasswordHasher:
    """Hash and verify passwords.

    Args:
        cost: cost of a hash; tests use a low one.

    """

    def __init__(self, cost: PasswordCost | None = None) -> None:
        cost = cost or PasswordCost()
        self._hash = PasswordHash((Argon2Hasher(cost.passes, cost.memory, cost.threads),))
        self._slots = threading.BoundedSemaphore(MAX_CONCURRENT_HASHES)  # each hash needs much memory
        self._unknown = self._hash.hash(secrets.token_urlsafe(32))

    def hash(self, password: str, *, name: str = "") -> str:
        """Return the hash of a new password; raise Invalid if it is short or equal to the name."""
        if len(password) < MIN_PASSWORD_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
            problem = f"must have {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters"
            raise Invalid(problem, kind="bad-password", parameter="password")
        if name and password.casefold() == name.casefold():
            raise Invalid("must not be the name", kind="bad-password", parameter="password")
        with self._slots:
            return self._hash.hash(password)

    def verify(self, password: str, stored: str | None) -> bool:
        """Return whether a password has the stored hash; without a hash, take the same time and return False."""
        with self._slots:
            return self._hash.verify(password, stored or self._unknown) and stored is not None


def get_password(connection: Connection, name: str) -> str | None:
    """Return the password hash of an active assessor, or None if there is no such assessor or no password."""
    return connection.scalar(select(assessor.c.password).where(assessor.c.name == name, assessor.c.is_active))


def set_password(connection: Connection, assessor_id: int, password_hash: str) -> None:
    """Store the hash of a new password, and end all sessions of the assessor."""
    connection.execute(update(assessor).where(assessor.c.id == assessor_id).values(password=password_hash))
    end_sessions(connection, assessor_id)


# Delay after failed attempts.


class SignInDelayed(TooManyAttempts):
    """Signing in is delayed after too many failed attempts.

    Attributes:
        seconds: seconds until the next attempt.

    """

    def __init__(self, seconds: int) -> None:
        problem = "too many attempts to sign in with this name or from this address failed"
        super().__init__(problem, fix=f"wait {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Throttle:
    """Delays after failed attempts to sign in.

    Attributes:
        free_per_name: failures of a name before delays begin.
        free_per_address: failures of an address before delays begin.
        max_delay: maximum delay, in milliseconds; a delay is twice the one before, beginning with a second.
        forget: time without failures after which they are forgotten, in milliseconds.

    """

    free_per_name: int = 5
    free_per_address: int = 30
    max_delay: int = 15 * MINUTE
    forget: int = 12 * HOUR


def _throttle_keys(name: str, address: str, throttle: Throttle) -> list[tuple[str, int]]:
    keys = (("name", name.casefold(), throttle.free_per_name), ("address", address, throttle.free_per_address))
    return [(digest_of(f"{kind}:{value}"), free) for kind, value, free in keys]


def begin_attempt(connection: Connection, name: str, address: str, now: int, throttle: Throttle) -> None:
    """Count an attempt to sign in as failed, before the password is checked, so that parallel attempts count too.

    Raises:
        SignInDelayed: the name or the address has to wait.

    """
    connection.execute(delete(login_failure).where(login_failure.c.locked_until < now - throttle.forget))
    for key, free in _throttle_keys(name, address, throttle):
        insert_missing(connection, login_failure, {"key": key, "failures": 0, "locked_until": now})
        mine = login_failure.c.key == key
        row = connection.execute(select(login_failure).where(mine).with_for_update()).one()
        if row.locked_until > now:
            raise SignInDelayed(-(-(row.locked_until - now) // 1000))
        failures = row.failures + 1
        delay = 0 if failures < free else min(1000 * 2 ** min(failures - free, 30), throttle.max_delay)
        connection.execute(update(login_failure).where(mine).values(failures=failures, locked_until=now + delay))


def end_attempt(connection: Connection, name: str, address: str, now: int, throttle: Throttle) -> None:
    """Delete the failures of a name after its sign-in, and the one of the address that `begin_attempt` counted."""
    (name_key, _), (address_key, _) = _throttle_keys(name, address, throttle)
    connection.execute(delete(login_failure).where(login_failure.c.key == name_key))
    one = update(login_failure).where(login_failure.c.key == address_key, login_failure.c.failures > 0)
    connection.execute(one.values(failures=login_failure.c.failures - 1, locked_until=now))


def insert_missing(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Insert a row, unless a row with its key exists."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    connection.execute(dialect.insert(table).values(values).on_conflict_do_nothing())


# Sessions.


@dataclass(frozen=True)
class SessionLimits:
    """Lifetime of a session in milliseconds: without requests, and in total."""

    idle: int = 12 * HOUR
    total: int = 14 * DAY


@dataclass(frozen=True)
class Session:
    """A session of a browser.

    Attributes:
        digest: digest of the secret in the cookie.
        assessor_id: who signed in.
        last_seen: time of a recent request.
        form_token: value that state-changing requests send as a header; derived from the secret and not stored.

    """

    digest: str
    assessor_id: int
    last_seen: int
    form_token: str


def create_session(connection: Connection, assessor_id: int, now: int, limits: SessionLimits) -> str:
    """Create a session with a new secret and return the secret; delete expired sessions."""
    idle_since = now - limits.idle
    connection.execute(delete(session).where((session.c.expires <= now) | (session.c.last_seen <= idle_since)))
    secret = new_secret("session")
    values = {"assessor_id": assessor_id, "created": now, "last_seen": now, "expires": now + limits.total}
    connection.execute(insert(session).values(digest=digest_of(secret), **values))
    return secret


def form_token_of(secret: str) -> str:
    """Return the token against cross-site request forgery of a session, an HMAC of its secret."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"form token", hashlib.sha256).hexdigest()


def touch_session(connection: Connection, digest: str, now: int) -> None:
    """Store the time of a request as the last use of a session."""
    connection.execute(update(session).where(session.c.digest == digest).values(last_seen=now))


def end_session(connection: Connection, digest: str) -> None:
    """End a session."""
    connection.execute(delete(session).where(session.c.digest == digest))


def end_sessions(connection: Connection, assessor_id: int) -> None:
    """End all sessions of an assessor."""
    connection.execute(delete(session).where(session.c.assessor_id == assessor_id))


# API tokens.


@dataclass(frozen=True)
class Token:
    """An API token; its secret is not stored.

    Attributes:
        id: key in the database.
        name: what the token is for.
        assessor_id: who it acts for.
        assessor_name: name of this assessor.
        project_id: project that it is limited to.
        project_name: name of this project.
        scopes: what it may do, of `SCOPES`.
        created: time of creation.
        expires: time after which it is invalid.
        revoked: time at which it was revoked.

    """

    id: int
    name: str
    assessor_id: int
    assessor_name: str
    project_id: int | None
    project_name: str | None
    scopes: tuple[str, ...]
    created: int
    expires: int | None
    revoked: int | None


def create_token(
    connection: Connection,
    assessor_id: int,
    *,
    name: str,
    scopes: Sequence[str],
    now: int,
    project_id: int | None = None,
    expires: int | None = None,
) -> tuple[Token, str]:
    """Create an API token; return it and its secret, which is not stored."""
    secret = new_secret("token")
    values = {
        "digest": digest_of(secret),
        "name": name,
        "assessor_id": assessor_id,
        "project_id": project_id,
        "scopes": [scope for scope in SCOPES if scope in scopes],
        "created": now,
        "expires": expires,
    }
    key = connection.execute(insert(token).values(values)).inserted_primary_key
    assert key is not None
    return _token_of(connection.execute(_tokens().where(token.c.id == key[0])).one()), secret


def _tokens() -> Select[Any]:
    joined = token.join(assessor, assessor.c.id == token.c.assessor_id)
    joined = joined.outerjoin(project, project.c.id == token.c.project_id)
    columns = (token.c[name] for name in Token.__dataclass_fields__ if name in token.c)
    names = (assessor.c.name.label("assessor_name"), project.c.name.label("project_name"))
    return select(*columns, *names).select_from(joined)


def _token_of(row: Any) -> Token:
    values = {name: getattr(row, name) for name in Token.__dataclass_fields__}
    return Token(**{**values, "scopes": tuple(row.scopes)})


def list_tokens(
    connection: Connection, *, assessor_id: int | None = None, project_id: int | None = None
) -> list[Token]:
    """Return the tokens of an assessor, or those limited to a project, newest first."""
    query = _tokens().order_by(-token.c.id)
    if assessor_id is not None:
        query = query.where(token.c.assessor_id == assessor_id)
    if project_id is not None:
        query = query.where(token.c.project_id == project_id)
    return [_token_of(row) for row in connection.execute(query)]


def revoke_project_tokens(connection: Connection, project_id: int, assessor_id: int, now: int) -> None:
    """Revoke the tokens of an assessor that are limited to a project."""
    is_wanted = token.c.project_id == project_id, token.c.assessor_id == assessor_id, token.c.revoked.is_(None)
    connection.execute(update(token).where(*is_wanted).values(revoked=now))


def revoke_token(
    connection: Connection,
    token_id: int,
    now: int,
    *,
    assessor_id: int | None = None,
    project_id: int | None = None,
) -> Token:
    """Revoke a token of an assessor, or one limited to a project; raise NotFound if there is none."""
    query = _tokens().where(token.c.id == token_id)
    if assessor_id is not None:
        query = query.where(token.c.assessor_id == assessor_id)
    if project_id is not None:
        query = query.where(token.c.project_id == project_id)
    if connection.execute(query).first() is None:
        raise NotFound(f"there is no token {token_id}")
    connection.execute(update(token).where(token.c.id == token_id, token.c.revoked.is_(None)).values(revoked=now))
    return _token_of(connection.execute(_tokens().where(token.c.id == token_id)).one())
