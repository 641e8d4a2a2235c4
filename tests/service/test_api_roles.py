"""Test what each role may do, for every route of the application."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from crowdrank.service.compare import rankings
from crowdrank.service.domain import credentials, people, projects
from crowdrank.service.store.database import Database

from .service_world import PASSWORD, World, create_invitation, create_world

ACTORS = (
    "anonymous",
    "stranger",
    "judge",
    "other judge",
    "lead",
    "other lead",
    "admin",
    "lead token judge",
    "lead token read",
    "lead token manage",
    "admin token judge",
    "admin token read",
    "admin token manage",
    "judge token",
    "beta token of admin",
    "expired token",
    "revoked token",
)
OK = 200
"""Stands for the status of success of a route."""
TOKENS = tuple(actor for actor in ACTORS if "token" in actor)
INVALID = {"expired token": 401, "revoked token": 401}

Row = dict[str, int]


def row(default: int, **statuses: Iterable[str]) -> Row:
    """Return a row of the table: `default`, and lists of actors by status (`s404=...`)."""
    listed = {actor: int(status[1:]) for status, actors in statuses.items() for actor in actors}
    return {**{actor: listed.get(actor, default) for actor in ACTORS}, "anonymous": 401, **INVALID}


OUTSIDERS = ("stranger", "other judge", "other lead", "beta token of admin")
PUBLIC = dict.fromkeys(ACTORS, OK)
OPTIONAL = {**PUBLIC, **INVALID}
SIGNED_IN = row(OK)
SESSION = row(OK, s403=TOKENS)
MEMBER = row(OK, s404=OUTSIDERS)
NO_MEMBERSHIP = ("admin", "admin token judge")
JUDGE = row(
    OK,
    s404=(*OUTSIDERS, *NO_MEMBERSHIP),
    s403=("lead token read", "lead token manage", "admin token read", "admin token manage"),
)
READER = row(
    OK,
    s404=OUTSIDERS,
    s403=("judge", "judge token", "lead token judge", "lead token manage", "admin token judge", "admin token manage"),
)
LEAD = row(
    OK,
    s404=OUTSIDERS,
    s403=("judge", "judge token", "lead token judge", "lead token read", "admin token judge", "admin token read"),
)
ADMIN_READER = row(403, s200=("admin", "admin token read"))
ADMIN = row(403, s200=("admin", "admin token manage"))


@dataclass(frozen=True)
class Case:
    """Requests to a route.

    Attributes:
        statuses: expected status of each actor.
        body: function (world, number of the request, actor) that returns the JSON body.
        path: values of the path's parameters, as names of the world's ids.
        success: status of success.
        prepare: function (world) that is called before each request.

    """

    statuses: Row
    body: Callable[[World, int, str], Any] | None = None
    path: dict[str, str] = field(default_factory=dict)
    success: int = 200
    prepare: Callable[[World], None] | None = None


def add_visitor(world: World) -> None:
    """Add a member to alpha who can be removed."""
    now = world.database.now()

    def add(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha").id
        people.add_member(connection, alpha, world.ids["victim"], "judge", now)

    world.database.write(add)


def add_ranking(world: World) -> None:
    """Add a ranking to alpha that can be removed."""
    table = rankings.parse_ranking(b"q0 Q0 d0 1 2.5 run", "live")

    def add(connection: Any) -> None:
        rankings.set_ranking(connection, projects.get_project(connection, "alpha"), "live", table, 0)

    world.database.write(add)


def llm_name(world: World, number: int, actor: str) -> Any:
    return {"name": f"llm {number}"}


CASES: dict[tuple[str, str], Case] = {
    ("GET", "/api/openapi.json"): Case(PUBLIC),
    ("GET", "/api/health"): Case(PUBLIC),
    ("GET", "/api/sign-in"): Case(PUBLIC),
    ("POST", "/api/login"): Case(PUBLIC, lambda world, number, actor: {"name": "judge", "password": PASSWORD}),
    ("GET", "/api/me"): Case(SIGNED_IN),
    ("POST", "/api/join/preview"): Case(PUBLIC, lambda world, number, actor: {"invitation": create_invitation(world)}),
    ("POST", "/api/join"): Case(
        OPTIONAL,
        lambda world, number, actor: {
            "invitation": create_invitation(world),
            "name": f"new {number}",
            "password": PASSWORD,
        },
    ),
    ("POST", "/api/password-reset"): Case(
        PUBLIC,
        lambda world, number, actor: {
            "invitation": create_invitation(world, None, assessor_id=world.ids["victim"]),
            "password": PASSWORD,
        },
    ),
    ("POST", "/api/single-sign-on/start"): Case(dict.fromkeys(ACTORS, 404), lambda world, number, actor: {}),
    ("GET", "/api/single-sign-on/callback"): Case(dict.fromkeys(ACTORS, 404)),
    ("POST", "/api/trusted-header/sign-in"): Case(dict.fromkeys(ACTORS, 401), lambda world, number, actor: {}),
    ("GET", "/api/tokens"): Case(SESSION),
    ("POST", "/api/tokens"): Case(SESSION, lambda world, number, actor: {"name": "t", "scopes": ["read"]}, success=201),
    ("DELETE", "/api/tokens/{token_id}"): Case(
        {**dict.fromkeys(ACTORS, 404), **dict.fromkeys(TOKENS, 403), "anonymous": 401, "judge": OK, **INVALID},
        path={"token_id": "token of judge"},
        success=204,
    ),
    ("GET", "/api/assessors"): Case(ADMIN_READER),
    ("PATCH", "/api/assessors/{assessor_id}"): Case(
        ADMIN, lambda world, number, actor: {"price": 2.0}, path={"assessor_id": "victim"}
    ),
    ("POST", "/api/assessors/{assessor_id}/password-link"): Case(
        ADMIN, lambda world, number, actor: {}, path={"assessor_id": "victim"}, success=201
    ),
    ("GET", "/api/invitations"): Case(ADMIN_READER),
    ("POST", "/api/invitations"): Case(ADMIN, lambda world, number, actor: {}, success=201),
    ("DELETE", "/api/invitations/{invitation_id}"): Case(
        ADMIN, path={"invitation_id": "admin invitation"}, success=204
    ),
    ("GET", "/api/audit"): Case(ADMIN_READER),
    ("GET", "/api/projects"): Case(SIGNED_IN),
    ("POST", "/api/projects"): Case(
        ADMIN, lambda world, number, actor: {"name": f"p{number}", "grades": "0-3"}, success=201
    ),
    ("GET", "/api/projects/{project}"): Case(MEMBER),
    ("PATCH", "/api/projects/{project}"): Case(LEAD, lambda world, number, actor: {"honeypot_share": 0.1}),
    ("POST", "/api/projects/{project}/pairs"): Case(
        LEAD, lambda world, number, actor: [{"query": "q", "document": f"d{number}"}]
    ),
    ("GET", "/api/projects/{project}/pairs"): Case(READER),
    ("POST", "/api/projects/{project}/pairs/close"): Case(LEAD, lambda world, number, actor: {"queries": ["none"]}),
    ("POST", "/api/projects/{project}/pairs/reopen"): Case(LEAD, lambda world, number, actor: {"queries": ["none"]}),
    ("POST", "/api/projects/{project}/next"): Case(JUDGE),
    ("POST", "/api/projects/{project}/leases/return"): Case(JUDGE, lambda world, number, actor: {}),
    ("POST", "/api/projects/{project}/answers"): Case(
        JUDGE,
        lambda world, number, actor: {"client_id": f"c{number}", "grade": 1, "query": "q0", "document": "d0"},
    ),
    ("POST", "/api/projects/{project}/undo"): Case(
        JUDGE, lambda world, number, actor: {"client_id": f"u{number}", "pair_id": answered_pair(world, actor)}
    ),
    ("GET", "/api/projects/{project}/members"): Case(READER),
    ("POST", "/api/projects/{project}/members"): Case(LEAD, llm_name, success=201),
    ("PATCH", "/api/projects/{project}/members/{assessor_id}"): Case(
        LEAD, lambda world, number, actor: {"is_paused": True}, path={"assessor_id": "machine"}
    ),
    ("DELETE", "/api/projects/{project}/members/{assessor_id}"): Case(
        LEAD, path={"assessor_id": "victim"}, success=204, prepare=add_visitor
    ),
    ("GET", "/api/projects/{project}/invitations"): Case(READER),
    ("POST", "/api/projects/{project}/invitations"): Case(LEAD, lambda world, number, actor: {}, success=201),
    ("DELETE", "/api/projects/{project}/invitations/{invitation_id}"): Case(
        LEAD, path={"invitation_id": "alpha invitation"}, success=204
    ),
    ("GET", "/api/projects/{project}/tokens"): Case(READER),
    ("POST", "/api/projects/{project}/tokens"): Case(
        LEAD,
        lambda world, number, actor: {"assessor_id": world.ids["machine"], "name": "t"},
        success=201,
    ),
    ("DELETE", "/api/projects/{project}/tokens/{token_id}"): Case(
        LEAD, path={"token_id": "token of machine"}, success=204
    ),
    ("GET", "/api/projects/{project}/audit"): Case(READER),
    ("GET", "/api/projects/{project}/status"): Case(READER),
    ("POST", "/api/projects/{project}/refit"): Case(LEAD, lambda world, number, actor: {"method": "majority"}),
    ("GET", "/api/projects/{project}/answers.{format}"): Case(READER),
    ("GET", "/api/projects/{project}/labels.{format}"): Case(READER),
    ("GET", "/api/projects/{project}/consensus"): Case(READER),
    ("GET", "/api/projects/{project}/assessors"): Case(READER),
    ("GET", "/api/projects/{project}/rankings"): Case(READER),
    ("POST", "/api/projects/{project}/rankings"): Case(LEAD, lambda world, number, actor: {}, success=422),  # no name
    ("DELETE", "/api/projects/{project}/rankings/{name}"): Case(LEAD, success=204, prepare=add_ranking),
    ("GET", "/api/projects/{project}/draws"): Case(READER),
    ("POST", "/api/projects/{project}/draws"): Case(LEAD, lambda world, number, actor: {}, success=409),  # policy
    ("DELETE", "/api/projects/{project}/draws"): Case(LEAD, success=204),
    # These end sessions, so they come last.
    ("POST", "/api/me/password"): Case(
        SESSION, lambda world, number, actor: {"current": PASSWORD, "password": PASSWORD}
    ),
    ("POST", "/api/logout"): Case(SESSION, success=204),
}
"""Every route of the application, and who may use it. A route without an entry fails a test."""


def answered_pair(world: World, actor: str) -> int | None:
    """Let the owner of a session or token answer a pair of alpha; return the id of the pair, or None for others."""
    body = {"client_id": f"a{next(COUNTER)}", "grade": 1, "query": "q1", "document": "d1"}
    answer = world.request(actor, "POST", "/api/projects/alpha/answers", json=body)
    return answer.json()[0]["pair_id"] if answer.status_code == 200 else None


COUNTER = itertools.count()


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Return method and path of every route, also of included routers."""

    def walk(routes: Iterable[Any], prefix: str) -> Iterator[tuple[str, str]]:
        for route in routes:
            if hasattr(route, "original_router"):
                yield from walk(route.original_router.routes, prefix + route.include_context.prefix)
            else:
                yield from ((method, prefix + route.path) for method in route.methods if method != "HEAD")

    return walk(app.routes, "")


def add_targets(world: World) -> None:
    """Create what the routes with ids in their paths act on."""
    now = world.database.now()

    def create(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha").id
        victim = people.create_assessor(connection, "victim", now=now)
        machine = people.create_assessor(connection, "machine", kind="llm", now=now)
        people.add_member(connection, alpha, machine.id, "judge", now)
        fields: dict[str, Any] = {"name": "t", "scopes": ("judge",), "now": now}
        ids = world.ids
        ids["victim"], ids["machine"] = victim.id, machine.id
        ids["token of judge"] = credentials.create_token(connection, ids["judge"], **fields)[0].id
        token, _ = credentials.create_token(connection, machine.id, project_id=alpha, **fields)
        ids["token of machine"] = token.id
        fields = {"now": now, "expires": now + 1000}
        ids["admin invitation"] = people.create_invitation(connection, role="admin", **fields)[0].id
        invitation, _ = people.create_invitation(connection, role="judge", project_id=alpha, **fields)
        ids["alpha invitation"] = invitation.id

    world.database.write(create)


def send(world: World, method: str, path: str, case: Case, actor: str, number: int) -> int:
    if case.prepare is not None:
        case.prepare(world)
    values = {name: str(world.ids[key]) for name, key in case.path.items()}
    address = path.format(project="alpha", format="csv", name="live", **values)
    content = {} if case.body is None else {"json": case.body(world, number, actor)}
    return int(world.request(actor, method, address, **content).status_code)


def test_every_route_is_in_the_table(world: World) -> None:
    found = list(routes_of(world.app))
    assert sorted(found) == sorted(CASES)
    described = world.app.openapi()["paths"]
    listed = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert listed == set(CASES) - {("GET", "/api/openapi.json")}


def test_every_route_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "judging-service-api.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(GET|POST|PATCH|DELETE) (/[^`]*)`", page.partition("## Endpoints")[2].partition("\n## ")[0])
    assert {(method, f"/api{path}") for method, path in listed} == set(CASES)


def test_each_role_may_do_what_the_table_says(database: Database) -> None:
    wrong = {}
    with create_world(database) as world:
        add_targets(world)
        for (method, path), case in CASES.items():
            for actor in ACTORS:
                expected = case.success if case.statuses[actor] == OK else case.statuses[actor]
                status = send(world, method, path, case, actor, next(COUNTER))
                if status != expected:
                    wrong[method, path, actor] = (status, expected)
    assert wrong == {}
