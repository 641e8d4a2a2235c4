"""Test passwords, delays after failed attempts, sessions and tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crowdrank.service.domain import credentials, people
from crowdrank.service.domain.credentials import MINUTE, PasswordHasher, SessionLimits, SignInDelayed, Throttle
from crowdrank.service.service_errors import Invalid, NotFound
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .service_world import CHEAP, PASSWORD

THROTTLE = Throttle(free_per_name=3, free_per_address=6, max_delay=8000, forget=60 * MINUTE)


@pytest.fixture
def person(sqlite_database: Database) -> people.Assessor:
    return sqlite_database.write(lambda connection: people.create_assessor(connection, "ann", now=1))


class CountingHasher:
    """Counts verifications of a password hash."""

    def __init__(self, hasher: Any) -> None:
        self.hasher = hasher
        self.calls = 0

    def verify(self, password: str, stored: str) -> bool:
        self.calls += 1
        return bool(self.hasher.verify(password, stored))


def test_a_password_is_hashed_with_argon2_and_verified() -> None:
    passwords = PasswordHasher(CHEAP)
    stored = passwords.hash(PASSWORD)
    assert stored.startswith("$argon2id$")
    assert stored != passwords.hash(PASSWORD)
    assert passwords.verify(PASSWORD, stored)
    assert not passwords.verify(PASSWORD + "x", stored)


def test_an_unknown_name_costs_a_verification_too() -> None:
    passwords = PasswordHasher(CHEAP)
    counting = CountingHasher(passwords._hash)
    passwords._hash = counting  # type: ignore[assignment]
    assert not passwords.verify(PASSWORD, None)
    assert counting.calls == 1


@pytest.mark.parametrize(("password", "name"), [("short", ""), ("x" * 1001, ""), ("Ann Example", "ann example")])
def test_weak_passwords_are_refused(password: str, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        PasswordHasher(CHEAP).hash(password, name=name)
    assert (caught.value.kind, caught.value.parameter) == ("bad-password", "password")


# Delays.


def attempt(database: Database, name: str = "ann", address: str = "10.0.0.1") -> int:
    """Let an attempt fail; return the seconds to wait, or 0 if it was allowed."""
    try:
        database.write(
            lambda connection: credentials.begin_attempt(connection, name, address, database.now(), THROTTLE)
        )
    except SignInDelayed as delayed:
        return delayed.seconds
    return 0


def test_delays_double_up_to_the_maximum(sqlite_database: Database, clock: ManualClock) -> None:
    assert [attempt(sqlite_database) for _ in range(4)] == [0, 0, 0, 1]
    waited = []
    for _ in range(5):
        seconds = attempt(sqlite_database)
        waited.append(seconds)
        clock.advance(seconds - 0.001)
        assert attempt(sqlite_database, address=f"10.0.1.{len(waited)}") == 1, "still too early"
        clock.advance(0.001)
        assert attempt(sqlite_database, address=f"10.0.2.{len(waited)}") == 0
    assert waited == [1, 2, 4, 8, 8]


def test_delays_are_per_name_and_per_address(sqlite_database: Database) -> None:
    for _ in range(3):
        attempt(sqlite_database, "ann", "10.0.0.1")
    assert attempt(sqlite_database, "ANN", "10.0.0.2") == 1
    assert attempt(sqlite_database, "bob", "10.0.0.1") == 0
    for number in range(2):
        attempt(sqlite_database, f"name{number}", "10.0.0.1")
    assert attempt(sqlite_database, "cem", "10.0.0.1") == 1
    assert attempt(sqlite_database, "cem", "10.0.0.2") == 0


def test_a_success_clears_the_name_and_failures_are_forgotten(sqlite_database: Database, clock: ManualClock) -> None:
    now = sqlite_database.now
    for _ in range(10):
        assert attempt(sqlite_database) == 0
        sqlite_database.write(
            lambda connection: credentials.end_attempt(connection, "ann", "10.0.0.1", now(), THROTTLE)
        )
    for _ in range(3):
        attempt(sqlite_database)
    assert attempt(sqlite_database) == 1
    clock.advance(3602)
    assert [attempt(sqlite_database) for _ in range(4)] == [0, 0, 0, 1]


def test_parallel_attempts_are_counted(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        waits = list(pool.map(lambda number: attempt(database, "ann", f"10.0.0.{number}"), range(16)))
    assert waits.count(0) == 3


# Sessions.

LIMITS = SessionLimits(idle=10 * MINUTE, total=60 * MINUTE)


def find(database: Database, secret: str) -> credentials.Session | None:
    with database.read() as connection:
        actor = people.find_session_actor(connection, secret, database.now(), LIMITS)
        return None if actor is None else actor.session


def begin(database: Database, person: people.Assessor) -> str:
    return database.write(lambda connection: credentials.create_session(connection, person.id, database.now(), LIMITS))


def test_a_session_ends_when_idle_and_after_its_lifetime(
    sqlite_database: Database, clock: ManualClock, person: people.Assessor
) -> None:
    idle, busy = begin(sqlite_database, person), begin(sqlite_database, person)
    assert len(idle) > 43
    assert idle != busy
    for _ in range(6):
        found = find(sqlite_database, busy)
        assert found is not None
        assert found.assessor_id == person.id
        sqlite_database.write(
            lambda connection, found=found: credentials.touch_session(connection, found.digest, sqlite_database.now())  # type: ignore[misc]
        )
        clock.advance(9.9 * 60)
    assert find(sqlite_database, idle) is None
    clock.advance(36)
    assert find(sqlite_database, busy) is None


def test_ended_sessions_and_those_of_inactive_assessors_are_invalid(
    sqlite_database: Database, person: people.Assessor
) -> None:
    first, second = begin(sqlite_database, person), begin(sqlite_database, person)
    sqlite_database.write(lambda connection: credentials.end_session(connection, credentials.digest_of(first)))
    assert find(sqlite_database, first) is None
    assert find(sqlite_database, second) is not None
    sqlite_database.write(lambda connection: people.create_assessor(connection, "root", is_admin=True, now=1))
    sqlite_database.write(lambda connection: people.update_assessor(connection, person.id, {"is_active": False}))
    assert find(sqlite_database, second) is None
    assert find(sqlite_database, "unknown") is None


def test_the_form_token_differs_from_session_to_session(sqlite_database: Database, person: people.Assessor) -> None:
    secrets = [begin(sqlite_database, person) for _ in range(2)]
    found = [find(sqlite_database, secret) for secret in secrets]
    tokens = {session.form_token for session in found if session is not None}
    assert len(tokens) == 2
    assert not tokens & {session.digest for session in found if session is not None}


# Tokens.


def test_a_token_expires_and_can_be_revoked(
    sqlite_database: Database, clock: ManualClock, person: people.Assessor
) -> None:
    def create(**fields: Any) -> tuple[credentials.Token, str]:
        values = {"name": "t", "scopes": ("read", "judge"), "now": sqlite_database.now(), **fields}
        return sqlite_database.write(lambda connection: credentials.create_token(connection, person.id, **values))

    def is_valid(secret: str) -> bool:
        with sqlite_database.read() as connection:
            return people.find_token_actor(connection, secret, sqlite_database.now()) is not None

    token, secret = create()
    _, short = create(expires=sqlite_database.now() + 1000)
    assert token.scopes == ("judge", "read")
    assert (is_valid(secret), is_valid(short)) == (True, True)
    clock.advance(1)
    assert (is_valid(secret), is_valid(short)) == (True, False)
    with pytest.raises(NotFound):
        sqlite_database.write(
            lambda connection: credentials.revoke_token(connection, token.id, 5, assessor_id=person.id + 1)
        )
    assert is_valid(secret)
    sqlite_database.write(lambda connection: credentials.revoke_token(connection, token.id, 5, assessor_id=person.id))
    assert not is_valid(secret)
