"""Test exports of answers and snapshots of fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from crowdrank.errors import UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments
from crowdrank.service.domain import progress
from crowdrank.service.domain.pairs import find_pairs
from crowdrank.service.domain.projects import Project, get_project
from crowdrank.service.model import fits
from crowdrank.service.service_errors import Conflict, Invalid
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .small_project import GRADES, add_small_project


@pytest.fixture
def project(database: Database) -> Project:
    add_small_project(database)
    with database.read() as connection:
        admin = connection.execute(select(schema.assessor.c.id)).scalars().first()
        connection.rollback()
    database.write(lambda connection: connection.execute(schema.assessor.update().values(is_admin=True)))
    with database.read() as connection:
        return get_project(connection, "jam", admin or 0)


def assert_equal(one: Judgments, other: Judgments) -> None:
    for name in ("queries", "documents", "assessors", "families"):
        assert getattr(one, name).to_pylist() == getattr(other, name).to_pylist()
    for name in ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_family"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert one.scale == other.scale
    assert set(one.extras) == set(other.extras)
    for name, column in one.extras.items():
        np.testing.assert_array_equal(column, other.extras[name])


@pytest.mark.parametrize("format", progress.CONTENT_TYPES)
def test_an_export_is_read_as_the_database(
    database: Database, database_target: str, project: Project, tmp_path: Path, format: str
) -> None:
    direct = read_judgments(database_target)
    with database.read() as connection:
        (tmp_path / f"a.{format}").write_bytes(progress.file_content(progress.answers_of(connection, project), format))
        found = progress.coded_answers(connection, project)
        assert found is not None
        assert_equal(found.judgments, direct)
        keys = list(zip(*(column.to_pylist() for column in direct.item_ids()), strict=True))
        pairs = find_pairs(connection, project, keys)
        assert found.pair_ids.tolist() == [pairs[key] for key in keys]
        names = dict(connection.execute(select(schema.assessor.c.id, schema.assessor.c.name)).all())
        assert [names[key] for key in found.assessor_ids.tolist()] == direct.assessors.to_pylist()
    assert_equal(read_judgments(tmp_path / f"a.{format}"), direct)


def test_an_unknown_format_is_refused(database: Database, project: Project) -> None:
    with pytest.raises(UsageError) as caught, database.read() as connection:
        progress.file_content(progress.answers_of(connection, project), "pdf")
    assert caught.value.parameter == "format"


def test_a_fit_is_stored_and_replaces_the_one_before(database: Database, project: Project) -> None:
    with database.read() as connection:
        assert fits.latest_snapshot(connection, project) is None
    fits.fit_project(database, project, "majority")
    snapshot = fits.fit_project(database, project, "dawid-skene").snapshot
    with database.read() as connection:
        assert fits.latest_snapshot(connection, project) == snapshot
        assert connection.execute(select(func.count()).select_from(schema.snapshot)).scalar_one() == 1
        assert connection.execute(select(func.count()).select_from(schema.standing)).scalar_one() == 2
        standings = fits.list_standings(connection, project, snapshot)
        reliabilities = fits.list_reliabilities(connection, snapshot)
        last_event = connection.execute(select(func.max(schema.event.c.id))).scalar_one()
    assert snapshot.last_event_id == last_event
    assert [(one.query, one.document) for one in standings] == [("q1", "d1"), ("q2", "d1")]
    for one in standings:
        assert one.grade in GRADES
        assert sum(one.probabilities) == pytest.approx(1, abs=1e-5)
    assert {one.assessor for one in reliabilities} == {"ann", "bob", "gpt_p1"}


def test_a_fit_needs_a_model_and_answers(database: Database, project: Project) -> None:
    with pytest.raises(Invalid) as caught:
        fits.fit_project(database, project, "oracle")
    assert caught.value.parameter == "method"
    add_small_project(database, "tea")
    with database.read() as connection:
        admin = connection.execute(select(schema.assessor.c.id)).scalars().first()
        empty = get_project(connection, "tea", admin or 0)
    with pytest.raises(Conflict):
        fits.fit_project(database, empty, "majority")
