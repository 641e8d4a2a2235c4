"""Test assessors, memberships, invitations and the log of changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crowdrank.service.domain import people, projects
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store.database import Database

from .conftest import ManualClock


def create_person(database: Database, name: str, **fields: Any) -> people.Assessor:
    return database.write(lambda connection: people.create_assessor(connection, name, now=database.now(), **fields))


def create_project(database: Database, **settings: Any) -> projects.Project:
    return database.write(
        lambda connection: projects.create_project(connection, "alpha", "0-3", database.now(), **settings)
    )


def invite(database: Database, **fields: Any) -> tuple[people.Invitation, str]:
    values = {"role": "judge", "now": database.now(), "expires": database.now() + 60_000, **fields}
    return database.write(lambda connection: people.create_invitation(connection, **values))


def accept(database: Database, secret: str, person: people.Assessor) -> people.Invitation:
    return database.write(lambda connection: people.accept_invitation(connection, secret, person, database.now()))


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\0b", "a\nb", "a\u202eb", "a\u200bb", "\ud800"])
def test_names_that_cannot_be_read_are_refused(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        people.check_name(name)
    assert (caught.value.kind, caught.value.parameter) == ("bad-name", "name")


def test_names_are_normalized() -> None:
    assert people.check_name("  Ame\u0301lie ") == "Amélie"
    assert people.check_name("<script>alert(1)</script>") == "<script>alert(1)</script>"


@pytest.mark.parametrize("name", ["ann", "ANN", " ann "])
def test_a_name_exists_once(sqlite_database: Database, name: str) -> None:
    create_person(sqlite_database, "ann")
    with pytest.raises(Conflict) as caught:
        create_person(sqlite_database, name)
    assert caught.value.kind == "name-taken"


def test_the_last_administrator_stays(sqlite_database: Database) -> None:
    root = create_person(sqlite_database, "root", is_admin=True)
    for changes in ({"is_admin": False}, {"is_active": False}):
        with pytest.raises(Conflict) as caught:
            sqlite_database.write(lambda connection, c=changes: people.update_assessor(connection, root.id, c))  # type: ignore[misc]
        assert caught.value.kind == "last-admin"
    with sqlite_database.read() as connection:
        assert people.get_assessor(connection, root.id) == root


def test_an_invitation_adds_as_many_members_as_it_has_uses(sqlite_database: Database) -> None:
    project = create_project(sqlite_database)
    first, second, third = (create_person(sqlite_database, name) for name in ("ann", "bob", "cem"))
    _, secret = invite(sqlite_database, project_id=project.id, uses=2)
    accept(sqlite_database, secret, first)
    accept(sqlite_database, secret, first)  # a member does not use it up
    accept(sqlite_database, secret, second)
    with pytest.raises(NotFound) as caught:
        accept(sqlite_database, secret, third)
    assert caught.value.kind == "bad-invitation"
    with sqlite_database.read() as connection:
        members = people.list_members(connection, project.id)
        assert [member.assessor.name for member in members] == ["ann", "bob"]
        assert people.list_invitations(connection, project.id)[0].uses_left == 0


def test_an_expired_or_revoked_invitation_is_refused(sqlite_database: Database, clock: ManualClock) -> None:
    project, person = create_project(sqlite_database), create_person(sqlite_database, "ann")
    invitation, revoked = invite(sqlite_database, project_id=project.id)
    sqlite_database.write(
        lambda connection: people.revoke_invitation(connection, project.id, invitation.id, sqlite_database.now())
    )
    _, expired = invite(sqlite_database, project_id=project.id)
    clock.advance(60)
    for secret in (revoked, expired, "unknown"):
        with pytest.raises(NotFound) as caught:
            accept(sqlite_database, secret, person)
        assert caught.value.kind == "bad-invitation"
    with sqlite_database.read() as connection:
        assert people.list_members(connection, project.id) == []


def test_an_invitation_of_another_project_cannot_be_revoked(sqlite_database: Database) -> None:
    project = create_project(sqlite_database)
    invitation, _ = invite(sqlite_database, project_id=project.id)
    for other in (None, project.id + 1):
        with pytest.raises(NotFound):
            sqlite_database.write(
                lambda connection, other=other: people.revoke_invitation(connection, other, invitation.id, 1)  # type: ignore[misc]
            )


def test_two_threads_cannot_use_the_last_place_of_an_invitation(database: Database) -> None:
    project = create_project(database)
    persons = [create_person(database, f"p{number}") for number in range(8)]
    _, secret = invite(database, project_id=project.id, uses=3)

    def try_to_join(person: people.Assessor) -> bool:
        try:
            accept(database, secret, person)
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_to_join, persons)) == 3
    with database.read() as connection:
        assert len(people.list_members(connection, project.id)) == 3


def test_two_threads_cannot_create_the_same_name(database: Database) -> None:
    def create(number: int) -> bool:
        try:
            create_person(database, "ann")
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(4))) == 1


def test_a_member_is_paused_and_promoted(sqlite_database: Database) -> None:
    project = create_project(sqlite_database, qualification_share=0.5)
    person = create_person(sqlite_database, "ann")

    def change(**changes: Any) -> people.Member:
        return sqlite_database.write(
            lambda connection: people.update_member(connection, project.id, person.id, **changes)
        )

    added = sqlite_database.write(lambda connection: people.add_member(connection, project.id, person.id, "judge", 1))
    assert (added.role, added.is_paused, added.qualification) == ("judge", False, "pending")
    assert change(is_paused=True).is_paused
    assert change(role="lead").is_paused
    assert change(role="judge", is_paused=False).role == "judge"
    with pytest.raises(NotFound):
        sqlite_database.write(lambda connection: people.update_member(connection, project.id + 1, person.id))


def test_the_log_has_who_changed_what(sqlite_database: Database) -> None:
    person, project = create_person(sqlite_database, "ann"), create_project(sqlite_database)

    def record(connection: Any) -> None:
        for number in range(3):
            ids = {"assessor_id": person.id, "project_id": project.id if number else None}
            people.record_audit(connection, "act", {"number": number}, now=number, **ids)

    sqlite_database.write(record)
    with sqlite_database.read() as connection:
        entries = people.list_audit(connection, project_id=project.id)
        assert [(one.assessor, one.project, one.details["number"]) for one in entries] == [
            ("ann", "alpha", 2),
            ("ann", "alpha", 1),
        ]
        assert [one.details["number"] for one in people.list_audit(connection, before=entries[-1].id)] == [0]
        assert len(people.list_audit(connection, limit=2)) == 2
