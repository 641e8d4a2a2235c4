"""Test that the versions of the schema lead to the tables of `schema.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from crowdrank.errors import InputError
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade
from crowdrank.service.store.schema import metadata


def test_the_newest_version_has_the_tables_of_the_schema(database: Database) -> None:
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_an_upgrade_keeps_the_data(database: Database) -> None:
    insert = "INSERT INTO assessor (name, kind, created) VALUES ('ann', 'human', 1)"
    database.write(lambda connection: connection.execute(text(insert)))
    upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT name FROM assessor")).scalars().all() == ["ann"]


@pytest.mark.parametrize("version", ["0001", "0007"])
def test_a_database_from_before_the_first_release_is_refused(database: Database, version: str) -> None:
    statement = text(f"UPDATE alembic_version SET version_num = '{version}'")
    database.write(lambda connection: connection.execute(statement))
    with pytest.raises(InputError) as caught:
        upgrade(database)
    assert (caught.value.kind, len(caught.value.fixes)) == ("older-version", 2)
    assert caught.value.location.source == database.shown


def test_a_database_of_a_newer_version_is_refused(database: Database) -> None:
    database.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(InputError) as caught:
        upgrade(database)
    assert caught.value.kind == "newer-version"


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path / "other.db")
    database.write(lambda connection: connection.execute(text("CREATE TABLE notes (text TEXT)")))
    with pytest.raises(InputError) as caught:
        upgrade(database)
    assert caught.value.kind == "other-format"


def test_events_cannot_be_changed_or_deleted(database: Database) -> None:
    setup = [
        "INSERT INTO assessor (id, name, kind, created) VALUES (1, 'ann', 'human', 1)",
        "INSERT INTO project (id, name, grades, settings, created) VALUES (1, 'p', '[]', '{}', 1)",
        "INSERT INTO query (id, project_id, key) VALUES (1, 1, 'q')",
        "INSERT INTO document (id, project_id, key, fields, digest, changed) VALUES (1, 1, 'd', '{}', '', 1)",
        "INSERT INTO pair (id, project_id, query_id, document_id) VALUES (1, 1, 1, 1)",
        "INSERT INTO event (project_id, pair_id, assessor_id, client_id, kind, grade, guidelines_version, generation, "
        "received) VALUES (1, 1, 1, 'a', 'grade', 0, 1, 1, 1)",
    ]
    database.write(lambda connection: [connection.execute(text(one)) for one in setup])
    for statement in (text("UPDATE event SET grade = 1"), text("DELETE FROM event")):
        with pytest.raises(DBAPIError, match="append-only"), database.engine.begin() as connection:
            connection.execute(statement)
