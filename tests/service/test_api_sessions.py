"""Test signing in and out, cookies, forged requests and delays."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from crowdrank.errors import UsageError
from crowdrank.service.domain.credentials import MINUTE, SessionLimits, Throttle
from crowdrank.service.store.database import Database
from crowdrank.service.web.service_settings import ServiceSettings

from .conftest import ManualClock
from .service_world import ORIGIN, PASSWORD, World, create_invitation, create_world

LOGIN = {"name": "judge", "password": PASSWORD}


def login(client: TestClient, **fields: Any) -> Any:
    return client.post("/api/login", json={**LOGIN, **fields})


def signed_in(client: TestClient) -> bool:
    return bool(client.get("/api/me").status_code == 200)


def test_a_person_signs_in_and_out(world: World) -> None:
    client = world.client
    answer = login(client)
    assert answer.status_code == 200
    assert (answer.json()["name"], answer.json()["scopes"]) == ("judge", None)
    me = client.get("/api/me").json()
    assert me == answer.json()
    cookie = client.cookies["crowdrank-session"]
    headers = {"Origin": ORIGIN, "X-Form-Token": me["form_token"]}
    out = client.post("/api/logout", headers=headers)
    assert out.status_code == 204
    assert "crowdrank-session" not in client.cookies
    client.cookies.set("crowdrank-session", cookie)
    assert not signed_in(client)


@pytest.mark.parametrize("fields", [{"password": "wrong password"}, {"name": "nobody"}, {"name": "machine"}])
def test_a_wrong_name_and_a_wrong_password_have_the_same_answer(world: World, fields: dict[str, str]) -> None:
    answer = login(world.client, **fields)
    assert answer.status_code == 401
    assert answer.json()["kind"] == "bad-login"
    assert answer.json() == login(world.client, name="nobody at all").json()
    assert "set-cookie" not in answer.headers


def test_cookies_cannot_be_read_by_scripts_or_sent_by_other_sites(world: World) -> None:
    flags = [part.strip().lower() for part in login(world.client).headers["set-cookie"].split(";")]
    assert {"httponly", "samesite=lax", "path=/"} <= set(flags)
    assert "secure" not in flags
    assert not any(flag.startswith("domain") for flag in flags)


def test_cookies_are_secure_under_https(sqlite_database: Database) -> None:
    with create_world(sqlite_database, public_url="https://judging.example.org") as world:
        answer = login(world.client)
        name, *flags = [part.strip() for part in answer.headers["set-cookie"].split(";")]
        assert name.startswith("__Host-crowdrank-session=")
        assert "Secure" in flags
        assert "max-age" in answer.headers["strict-transport-security"]
        for origin, status in (("http://testserver", 403), ("https://judging.example.org", 204)):
            headers = {"Cookie": name, "X-Form-Token": answer.json()["form_token"], "Origin": origin}
            assert world.client.post("/api/logout", headers=headers).status_code == status


def test_signing_in_begins_a_new_session(world: World) -> None:
    client = world.client
    chosen = {"Cookie": "crowdrank-session=crowdrank_session_chosen_by_an_attacker"}
    client.post("/api/login", json=LOGIN, headers=chosen)
    first = client.cookies["crowdrank-session"]
    assert first not in chosen["Cookie"]
    assert client.get("/api/me", headers=chosen).status_code == 401
    login(client)
    assert client.cookies["crowdrank-session"] != first
    answer = client.get("/api/me", headers={"Cookie": f"crowdrank-session={first}"})
    assert answer.status_code == 401, "signing in ends the session before"


def test_a_session_ends_when_idle(sqlite_database: Database, clock: ManualClock) -> None:
    with create_world(sqlite_database, sessions=SessionLimits(idle=10 * MINUTE, total=25 * MINUTE)) as world:
        login(world.client)
        for _ in range(3):
            assert signed_in(world.client)
            clock.advance(8 * 60)
        assert signed_in(world.client)
        clock.advance(60)
        assert not signed_in(world.client)
        login(world.client)
        clock.advance(10 * 60)
        assert not signed_in(world.client)


# Forged requests.


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"Origin": None}, "bad-origin"),
        ({"Origin": "https://evil.example"}, "bad-origin"),
        ({"Origin": "null"}, "bad-origin"),
        ({"Origin": "http://testserver.evil.example"}, "bad-origin"),
        ({"Origin": "https://testserver"}, "bad-origin"),
        ({"Origin": None, "Referer": "https://evil.example/http://testserver/"}, "bad-origin"),
        ({"X-Form-Token": None}, "bad-form-token"),
        ({"X-Form-Token": ""}, "bad-form-token"),
        ({"X-Form-Token": "0" * 64}, "bad-form-token"),
        ({"X-Form-Token": "other"}, "bad-form-token"),
    ],
)
def test_forged_requests_are_refused(world: World, changes: dict[str, str | None], kind: str) -> None:
    headers = world.session_headers("lead")
    if changes.get("X-Form-Token") == "other":
        changes = {"X-Form-Token": world.session_headers("judge")["X-Form-Token"]}
    sent = {name: value for name, value in {**headers, **changes}.items() if value is not None}
    answer = world.client.patch("/api/projects/alpha", json={"guidelines": "forged"}, headers=sent)
    assert (answer.status_code, answer.json()["kind"]) == (403, kind)
    assert world.request("lead", "GET", "/api/projects/alpha").json()["guidelines"] == ""


def test_a_referer_stands_for_the_origin(world: World) -> None:
    headers = {**world.session_headers("lead"), "Referer": f"{ORIGIN}/projects/alpha?x=1"}
    del headers["Origin"]
    answer = world.client.patch("/api/projects/alpha", json={"guidelines": "new"}, headers=headers)
    assert answer.status_code == 200


def test_a_token_needs_neither_origin_nor_form_token(world: World) -> None:
    answer = world.request("lead token manage", "PATCH", "/api/projects/alpha", json={"guidelines": "new"})
    assert answer.status_code == 200


def test_a_token_beside_a_cookie_decides(world: World) -> None:
    cookie = {"Cookie": world.session_headers("admin")["Cookie"]}
    answer = world.request("judge token", "GET", "/api/me", headers=cookie)
    assert answer.json()["name"] == "judge"
    answer = world.request("expired token", "GET", "/api/me", headers=cookie)
    assert (answer.status_code, answer.json()["kind"]) == (401, "bad-token")


@pytest.mark.parametrize("path", ["/api/login", "/api/join", "/api/password-reset", "/api/trusted-header/sign-in"])
def test_another_site_cannot_sign_a_browser_in(world: World, path: str) -> None:
    body = {
        "/api/login": LOGIN,
        "/api/join": {"invitation": create_invitation(world), "name": "new", "password": PASSWORD},
        "/api/password-reset": {"invitation": "x", "password": PASSWORD},
    }.get(path, {})
    answer = world.client.post(path, json=body, headers={"Origin": "https://evil.example"})
    assert (answer.status_code, answer.json()["kind"]) == (403, "bad-origin")


# Delays.


def test_failed_attempts_delay_the_next(sqlite_database: Database, clock: ManualClock) -> None:
    with create_world(sqlite_database, throttle=Throttle(free_per_name=3)) as world:
        for _ in range(3):
            assert login(world.client, password="wrong password").status_code == 401
        delayed = login(world.client)
        assert (delayed.status_code, delayed.json()["kind"]) == (429, "too-many-attempts")
        assert delayed.headers["retry-after"] == "1"
        clock.advance(1)
        assert login(world.client, password="wrong password").status_code == 401
        assert login(world.client).headers["retry-after"] == "2"
        clock.advance(2)
        assert login(world.client).status_code == 200
        assert login(world.client, password="wrong password").status_code == 401


@pytest.mark.parametrize("trusted", [True, False])
def test_the_address_behind_a_trusted_proxy_counts(
    sqlite_database: Database, clock: ManualClock, trusted: bool
) -> None:
    proxies = ("10.0.0.0/8",) if trusted else ("192.0.2.1",)
    settings = {"throttle": Throttle(free_per_address=2), "trusted_proxies": proxies}
    with create_world(sqlite_database, **settings) as world:
        client = TestClient(world.app, client=("10.1.2.3", 1234))

        def fail(number: int, forwarded: str) -> int:
            body = {"name": f"name {number}", "password": "wrong password"}
            return int(client.post("/api/login", json=body, headers={"X-Forwarded-For": forwarded}).status_code)

        for number in range(2):
            assert fail(number, f"9.9.9.{number}, 203.0.113.7, 10.9.9.9") == 401
        assert fail(2, "203.0.113.7") == 429
        assert fail(3, "203.0.113.8") == (401 if trusted else 429)


def test_changing_the_password_ends_other_sessions(world: World) -> None:
    other = world.session_headers("judge")
    body = {"current": PASSWORD, "password": "another long password"}
    wrong = world.request("judge", "POST", "/api/me/password", json={**body, "current": "wrong password"})
    assert (wrong.status_code, wrong.json()["kind"]) == (401, "bad-login")
    changed = world.request("judge", "POST", "/api/me/password", json=body)
    assert changed.status_code == 200
    assert world.client.get("/api/me", headers=other).status_code == 401
    cookie = changed.headers["set-cookie"].partition(";")[0]
    assert world.client.get("/api/me", headers={"Cookie": cookie}).json()["form_token"] == changed.json()["form_token"]
    world.client.cookies.clear()
    assert login(world.client).status_code == 401
    assert login(world.client, password="another long password").status_code == 200


def test_an_inactive_assessor_is_signed_out(world: World) -> None:
    session = world.session_headers("judge")
    path = f"/api/assessors/{world.ids['judge']}"
    assert world.request("admin", "PATCH", path, json={"is_active": False}).json()["is_active"] is False
    assert world.client.get("/api/me", headers=session).status_code == 401
    assert world.request("judge token", "GET", "/api/me").status_code == 401
    assert login(world.client).status_code == 401


# Settings.


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"public_url": "judging.example.org"}, "public_url"),
        ({"public_url": "https://judging.example.org/path"}, "public_url"),
        ({"trusted_proxies": ("proxy.example.org",)}, "trusted_proxies"),
        ({"user_header": "X-Forwarded-User"}, "user_header"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(UsageError) as caught:
        ServiceSettings(**fields)
    assert caught.value.parameter == parameter
