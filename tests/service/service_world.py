"""A service with two projects and people of every role, and clients that act for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from crowdrank.service.domain import credentials, pairs, people, projects
from crowdrank.service.domain.credentials import DAY, PasswordCost, PasswordHasher
from crowdrank.service.store.database import Database
from crowdrank.service.web.service_settings import ServiceSettings
from crowdrank.service.web.web_app import create_app

CHEAP = PasswordCost(passes=1, memory=8, threads=1)
"""Cost of password hashes in tests."""
PASSWORD = "correct horse battery"
ORIGIN = "http://testserver"
MEMBERS = {"lead": "alpha", "judge": "alpha", "other lead": "beta", "other judge": "beta"}
"""Projects of the people who are members of one."""


def cheap_settings(**changes: Any) -> ServiceSettings:
    """Return settings with fast password hashing."""
    return ServiceSettings(password_cost=CHEAP, **changes)


@dataclass(frozen=True)
class World:
    """A service with people.

    Attributes:
        database: its database.
        app: its application.
        client: client without cookies; failures of the service are answers, not exceptions.
        ids: ids of the people by name.
        tokens: secrets of tokens by name.

    """

    database: Database
    app: FastAPI
    client: TestClient
    ids: dict[str, int]
    tokens: dict[str, str]

    def session(self, name: str) -> str:
        """Sign in a person; return the secret of the session."""
        now, limits = self.database.now(), self.app.state.service.settings.sessions
        return self.database.write(
            lambda connection: credentials.create_session(connection, self.ids[name], now, limits)
        )

    def session_headers(self, name: str) -> dict[str, str]:
        """Return the headers that a page of the service sends for a person."""
        secret = self.session(name)
        form_token = credentials.form_token_of(secret)
        return {"Cookie": f"crowdrank-session={secret}", "Origin": ORIGIN, "X-Form-Token": form_token}

    def headers(self, actor: str) -> dict[str, str]:
        """Return the headers of a person, a token or, for `anonymous`, none."""
        if actor == "anonymous":
            return {}
        if actor in self.tokens:
            return {"Authorization": f"Bearer {self.tokens[actor]}"}
        return self.session_headers(actor)

    def request(self, actor: str, method: str, path: str, **content: Any) -> Any:
        """Send a request for an actor; return the answer."""
        headers = {**self.headers(actor), **content.pop("headers", {})}
        answer = self.client.request(method, path, headers=headers, **content)
        self.client.cookies.clear()
        return answer


@contextmanager
def create_world(
    database: Database, build: Callable[[Database, ServiceSettings], FastAPI] = create_app, /, **changes: Any
) -> Iterator[World]:
    """Create the projects alpha and beta, people of every role, and tokens of every scope."""
    now = database.now()
    password = PasswordHasher(CHEAP).hash(PASSWORD)
    tokens: dict[str, str] = {}

    def create(connection: Any) -> dict[str, int]:
        found = {name: projects.create_project(connection, name, "0-3", now) for name in ("alpha", "beta")}
        ids: dict[str, int] = {}
        for name in ("admin", "stranger", *MEMBERS):
            person = people.create_assessor(connection, name, password=password, is_admin=name == "admin", now=now)
            ids[name] = person.id
            if name in MEMBERS:
                role = "lead" if "lead" in name else "judge"
                people.add_member(connection, found[MEMBERS[name]].id, person.id, role, now)
        rows = [
            pairs.PairRow(f"q{query}", f"d{document}", title="a title", body="a text")
            for query in range(3)
            for document in range(20)
        ]
        for project_row in found.values():
            pairs.add_pairs(connection, project_row, rows, now)
        _create_tokens(connection, ids, found["beta"].id, tokens, now)
        return ids

    app = build(database, cheap_settings(**changes))
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        yield World(database, app, client, database.write(create), tokens)


def _create_tokens(connection: Any, ids: dict[str, int], beta: int, tokens: dict[str, str], now: int) -> None:
    def add(key: str, owner: str, scopes: tuple[str, ...], **fields: Any) -> credentials.Token:
        token, tokens[key] = credentials.create_token(
            connection, ids[owner], name=key, scopes=scopes, now=now, **fields
        )
        return token

    for scope in credentials.SCOPES:
        add(f"lead token {scope}", "lead", (scope,))
        add(f"admin token {scope}", "admin", (scope,))
    add("judge token", "judge", credentials.SCOPES)
    add("beta token of admin", "admin", credentials.SCOPES, project_id=beta)
    add("expired token", "lead", credentials.SCOPES, expires=now)
    revoked = add("revoked token", "lead", credentials.SCOPES, expires=now + DAY)
    credentials.revoke_token(connection, revoked.id, now)


def create_invitation(world: World, project: str | None = "alpha", **fields: Any) -> str:
    """Create an invitation; return its secret."""
    now = world.database.now()
    values = {"role": "judge", "expires": now + DAY, "now": now, **fields}

    def create(connection: Any) -> str:
        project_id = None if project is None else projects.get_project(connection, project).id
        return people.create_invitation(connection, project_id=project_id, **values)[1]

    return world.database.write(create)
