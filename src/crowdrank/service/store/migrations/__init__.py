"""Versions of the database's schema (Alembic), and the upgrade to the newest."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from crowdrank.errors import InputError
from crowdrank.service.store.database import Database

UNRELEASED_VERSIONS = {f"{number:04}" for number in range(1, 8)}
"""Versions of the schema before the first release, which cannot be brought up to date."""


def upgrade(database: Database) -> None:
    """Create the tables of a new database, or bring those of an older version up to date, in one transaction.

    Raises:
        InputError: the database was written by a newer version or before the first release, or is not one of this
            service.

    """

    def run(connection: Connection) -> None:
        config = _config(connection)
        found = MigrationContext.configure(connection).get_current_revision()
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if found in UNRELEASED_VERSIONS:
            problem = "a version before the first release wrote it, and its tables cannot be brought up to date"
            fix = "name a new file or database", "read its answers with crowdrank aggregate, and import them there"
            raise InputError(problem, source=database.shown, kind="older-version", fix=fix)
        if found is not None and found not in known:
            problem = f"its schema has version {found}, which this version of crowdrank does not know"
            raise InputError(problem, source=database.shown, kind="newer-version", fix="upgrade crowdrank")
        if found is None and connection.dialect.get_table_names(connection):
            problem = "it is a database, but not one of the judging service"
            raise InputError(problem, source=database.shown, kind="other-format", fix="name a new file or database")
        command.upgrade(config, "head")

    database.write(run)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
