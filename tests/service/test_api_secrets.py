"""Test that secrets are shown once, and neither logged nor stored."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from crowdrank.service.store.database import Database
from crowdrank.service.store.schema import metadata
from crowdrank.service.web.single_sign_on import OidcSettings

from .oidc_provider import CLIENT_SECRET
from .service_world import PASSWORD, World, create_world

READABLE = (
    "/api/me",
    "/api/tokens",
    "/api/assessors",
    "/api/invitations",
    "/api/audit",
    "/api/projects",
    "/api/projects/alpha",
    "/api/projects/alpha/members",
    "/api/projects/alpha/invitations",
    "/api/projects/alpha/tokens",
    "/api/projects/alpha/audit",
    "/api/projects/alpha/status",
    "/api/sign-in",
    "/api/health",
)


def create_secrets(world: World) -> dict[str, str]:
    """Create a secret of each kind by the API; return them by kind."""
    found = {"password": PASSWORD + " of the new one"}
    invitation = world.request("lead", "POST", "/api/projects/alpha/invitations", json={"uses": 2}).json()
    found["invitation"] = invitation["secret"]
    body = {"invitation": invitation["secret"], "name": "new", "password": found["password"]}
    joined = world.request("anonymous", "POST", "/api/join", json=body)
    found["form token"] = joined.json()["form_token"]
    found["session"] = joined.headers["set-cookie"].partition(";")[0].partition("=")[2]
    link = world.request("admin", "POST", f"/api/assessors/{world.ids['judge']}/password-link", json={})
    found["password link"] = link.json()["secret"]
    found["admin invitation"] = world.request("admin", "POST", "/api/invitations", json={}).json()["secret"]
    token = world.request("judge", "POST", "/api/tokens", json={"name": "t", "scopes": ["judge"]})
    found["token"] = token.json()["secret"]
    wrong = {"name": "new", "password": found["password"] + "x"}
    assert world.request("anonymous", "POST", "/api/login", json=wrong).status_code == 401
    login = {"name": "new", "password": found["password"]}
    assert world.request("anonymous", "POST", "/api/login", json=login).status_code == 200
    return found


def test_secrets_are_neither_logged_stored_nor_shown_again(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = OidcSettings("https://login.example.org", "id", CLIENT_SECRET)
    with create_world(sqlite_database, oidc=settings, public_url="http://testserver") as world:
        secrets = create_secrets(world)
        assert len(set(secrets.values())) == len(secrets)
        secrets["client secret"] = CLIENT_SECRET
        shown = [world.request("admin", "GET", path) for path in READABLE]
        shown += [world.request("judge", "GET", path) for path in READABLE]
        texts = {answer.url.path: answer.text + str(answer.headers) for answer in shown}
        texts["log"] = caplog.text
        texts["settings"] = repr(world.app.state.service.settings)
        with world.database.read() as connection:
            for table in metadata.sorted_tables:
                rows = connection.execute(table.select()).all()
                texts[f"table {table.name}"] = repr(rows)
    found = {(kind, place) for kind, secret in secrets.items() for place, text in texts.items() if secret in text}
    assert found == set()
    assert "new" in texts["table assessor"], "the texts are those of the database"
    assert "$argon2id$" in texts["table assessor"]


def test_the_database_file_has_no_secrets(world: World) -> None:
    secrets = create_secrets(world)
    world.database.close()
    content = b"".join(path.read_bytes() for path in world.database.path.parent.glob("judging.db*"))
    assert b"project.create" not in content
    assert b"invitation.accept" in content
    assert [kind for kind, secret in secrets.items() if secret.encode() in content] == []


def test_secrets_are_random_and_long(world: World) -> None:
    values = list(world.tokens.values())
    assert len(set(values)) == len(values)
    assert all(len(value.rpartition("crowdrank_token_")[2]) >= 43 for value in values)  # 256 bits in base64


def test_errors_of_the_database_do_not_have_the_values_of_statements(database: Database) -> None:
    statement = text("SELECT missing FROM assessor WHERE password = :password")
    with pytest.raises(DBAPIError) as caught, database.read() as connection:
        connection.execute(statement, {"password": "the hash"})
    assert "the hash" not in str(caught.value)
