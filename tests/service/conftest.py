"""Databases of the service for tests: an SQLite file, and a PostgreSQL server started on a socket of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from crowdrank.service.store.database import Database, database_url
from crowdrank.service.store.migrations import upgrade
from tools.postgresql import PostgresServer, find_program

from .service_world import World, create_world


class ManualClock:
    """Clock that tests move forward."""

    def __init__(self) -> None:
        self.milliseconds = 1_700_000_000_000

    def __call__(self) -> int:
        return self.milliseconds

    def advance(self, seconds: float) -> None:
        self.milliseconds += round(seconds * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL server; skip the test if it is not installed."""
    if find_program("initdb") is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """Create a PostgreSQL database with all tables, to copy; return its name."""
    admin = create_engine(database_url(postgres_server.url()), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE with_tables"))
    admin.dispose()
    database = Database(postgres_server.url("with_tables"))
    upgrade(database)
    database.close()
    return "with_tables"


@pytest.fixture
def postgres_url(
    postgres_server: PostgresServer, postgres_template: str, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Create a PostgreSQL database with all tables; return its URL."""
    name = f"test_{abs(hash(request.node.nodeid))}"
    admin = create_engine(database_url(postgres_server.url()), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {postgres_template}"))
    yield postgres_server.url(name)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the path or URL of a new database with all tables, one test for each kind."""
    if request.param == "sqlite":
        return str(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "judging.db"))
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(database_target: str, clock: ManualClock) -> Iterator[Database]:
    """Return a new database with all tables."""
    database = Database(database_target, clock=clock)
    yield database
    database.close()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an SQLite file with all tables, to copy."""
    path = tmp_path_factory.mktemp("service") / "empty.db"
    database = Database(path)
    upgrade(database)
    database.close()
    return path


@pytest.fixture
def sqlite_database(empty_file: Path, tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    """Return a new SQLite database with all tables, for tests that do not depend on the kind of database."""
    database = Database(shutil.copy(empty_file, tmp_path / "judging.db"), clock=clock)
    yield database
    database.close()


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    """Return a service with two projects and people of every role."""
    with create_world(sqlite_database) as world:
        yield world
