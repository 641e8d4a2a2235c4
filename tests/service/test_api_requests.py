"""Test limits of requests, malformed and hostile input, security headers, and what judges see."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request

from crowdrank.service.domain import people
from crowdrank.service.service_errors import Forbidden
from crowdrank.service.store.database import Database
from crowdrank.service.web.pages.page_rendering import render_error
from crowdrank.service.web.protection import SECURITY_HEADERS, parse_json

from .conftest import ManualClock
from .service_world import PASSWORD, World, create_invitation, create_world

JSON = {"Content-Type": "application/json"}
HOSTILE = ["<script>alert(1)</script>", "'; DROP TABLE pair; --", "=cmd|' /C calc'!A0", "\u202etxt.exe", "🙂" * 10]


def as_lead(world: World, method: str, path: str, **content: Any) -> Any:
    return world.request("lead token manage", method, f"/api/projects/alpha{path}", **content)


# Errors.


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"{", 400, "bad-json"),
        (b"", 422, "invalid"),
        (b"null", 422, "invalid"),
        (b'{"name": "judge", "password": "\xff"}', 400, "bad-json"),
        (b'{"name": NaN}', 400, "bad-json"),
        (b'{"name": "\\u0000", "password": "x"}', 400, "bad-json"),
        (b'{"name": "\\ud800", "password": "x"}', 400, "bad-json"),
        (b"[" * 100_000, 400, "bad-json"),
        (b"1" * 5000, 400, "bad-json"),
        (b'{"name": "judge"}', 422, "invalid"),
        (b'{"name": "judge", "password": "x", "is_admin": true}', 422, "invalid"),
    ],
)
@pytest.mark.parametrize("path", ["/api/login", "/api/projects/alpha/pairs"])
def test_malformed_bodies_are_refused(world: World, content: bytes, status: int, kind: str, path: str) -> None:
    if path.endswith("pairs") and content == b"":
        status, kind = 400, "bad-json"
    answer = world.request("lead token manage", "POST", path, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["kind"]) == (status, kind)
    assert set(answer.json()) == {"problem", "kind", "parameter", "fix", "client_id"}


def test_an_error_names_the_field_and_not_its_value(world: World) -> None:
    secret = "x" * 2000
    answer = world.client.post("/api/login", json={"name": "judge", "password": secret})
    assert (answer.status_code, answer.json()["parameter"]) == (422, "password")
    assert secret not in answer.text
    rows = [{"query": "q", "document": "d"}, {"query": "q"}]
    answer = as_lead(world, "POST", "/pairs", json=rows)
    assert (answer.status_code, answer.json()["parameter"]) == (422, "1.document")


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ([{"client_id": "a"}, {"client_id": "b", "kind": "maybe"}], "1.kind"),
        ([{"client_id": "a"}, {"kind": "grade"}], "1.client_id"),
        ([{"client_id": "a", "grade": []}], "0.grade"),
        ({"client_id": "a", "kind": "maybe"}, "kind"),
        (5, "body"),
    ],
)
def test_an_error_of_one_answer_or_several_names_the_field(world: World, body: Any, parameter: str) -> None:
    answer = world.request("judge", "POST", "/api/projects/alpha/answers", json=body)
    assert (answer.status_code, answer.json()["parameter"]) == (422, parameter)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"lease": "unknown"}, "no-lease"),
        ({"pair_id": 10**6}, "no-pair"),
        ({"query": "q0", "document": "unknown"}, "no-pair"),
        ({}, "no-pair"),
        ({"pair_id": 1, "grade": "unknown"}, "unknown-grade"),
        ({"pair_id": 1, "probabilities": [1.0]}, "not-a-share"),
        ({"pair_id": 1, "comment": "x" * 10_001}, "invalid"),
        ({"pair_id": 2, "client_id": "stored"}, "client-id-taken"),
    ],
)
def test_an_error_names_the_answer_that_cannot_be_stored(world: World, answer: dict[str, Any], kind: str) -> None:
    path = "/api/projects/alpha/answers"
    stored = {"client_id": "stored", "pair_id": 1, "grade": 1}
    assert world.request("judge", "POST", path, json=stored).status_code == 200
    bad = {"client_id": "bad", "grade": 1, **answer}
    error = world.request("judge", "POST", path, json=[{**stored, "client_id": "good"}, bad])
    assert (error.json()["kind"], error.json()["client_id"]) == (kind, bad["client_id"])
    assert error.json()["problem"].startswith("answer 2") == (kind != "invalid")
    assert error.status_code in (404, 409, 422)


def test_an_error_that_may_pass_names_no_answer(world: World) -> None:
    answer = {"client_id": "a", "pair_id": 1, "grade": 1}
    for actor, change in (
        ("stranger", None),
        ("judge", {"is_paused": True}),
        ("anonymous", None),
    ):
        if change is not None:
            as_lead(world, "PATCH", f"/members/{world.ids['judge']}", json=change).raise_for_status()
        error = world.request(actor, "POST", "/api/projects/alpha/answers", json=answer)
        assert (error.status_code >= 400, error.json()["client_id"]) == (True, None)


@pytest.mark.parametrize(("line", "kind"), [("{", "bad-json"), ('{"query": "q"}', "invalid")])
def test_an_error_of_json_lines_names_the_line(world: World, line: str, kind: str) -> None:
    content = f'{{"query": "q", "document": "d"}}\n\n{line}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    answer = as_lead(world, "POST", "/pairs", content=content, headers=headers).json()
    assert answer["kind"] == kind
    assert "line 3: " in answer["problem"]


def test_an_error_page_keeps_names_and_shows_the_fix() -> None:
    error = Forbidden("you left project 'TREC'", kind="other", fix="ask a lead")
    page = render_error(Request({"type": "http"}), error)
    assert page.status_code == 403
    text = html.unescape(bytes(page.body).decode())
    assert "<p>You left project 'TREC'.</p>" in text
    assert "<p>Ask a lead.</p>" in text


def test_strings_that_look_like_escapes_are_kept() -> None:
    assert parse_json(rb'["\\u0000", "\ud83d\ude42"]') == ["\\u0000", "🙂"]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/api/nothing", 404, "not-found"),
        ("GET", "/docs", 404, "not-found"),
        ("PUT", "/api/login", 405, "bad-method"),
        ("GET", "/api/projects/alpha/pairs?limit=100000", 422, "invalid"),
        ("GET", "/api/projects/alpha/pairs?after=9999999999", 422, "invalid"),
        ("PATCH", "/api/projects/alpha/members/99999999999999999999", 422, "invalid"),
        ("GET", "/api/projects/a%00b", 422, "bad-text"),
        ("GET", "/api/projects/%2e%2e%2fbeta", 404, "not-found"),
        ("GET", "/api/projects/alpha/answers.exe", 422, "invalid"),
    ],
)
def test_errors_are_objects(world: World, method: str, path: str, status: int, kind: str) -> None:
    answer = world.request("lead", method, path, json={} if method != "GET" else None)
    assert (answer.status_code, answer.json()["kind"]) == (status, kind)
    assert kind != "bad-text" or answer.json()["parameter"] == "project"


def test_a_failure_tells_nothing_of_its_cause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(people, "list_members", fail)
    answer = world.request("lead", "GET", "/api/projects/alpha/members")
    assert (answer.status_code, answer.json()["kind"]) == (500, "internal")
    assert "cause" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_lost_database_is_an_error_of_its_own(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.database.close()
    for path in world.database.path.parent.glob("judging.db*"):
        path.unlink()
    answer = world.client.post("/api/login", json={"name": "judge", "password": PASSWORD})
    assert (answer.status_code, answer.json()["kind"]) == (503, "database-unavailable")
    assert "retry-after" in answer.headers
    assert "login_failure" in caplog.text
    assert "login_failure" not in answer.text


# Sizes and times.


def test_large_bodies_are_refused(sqlite_database: Database) -> None:
    with create_world(sqlite_database, max_body_bytes=1000, max_upload_bytes=3000) as world:

        def chunks(size: int) -> Iterator[bytes]:
            for _ in range(size // 100):
                yield b" " * 100

        for path, size, status in (
            ("/api/login", 900, 422),
            ("/api/login", 1100, 413),
            ("/api/projects/alpha/pairs", 2900, 400),
            ("/api/projects/alpha/pairs", 3100, 413),
        ):
            for content in (b" " * size, chunks(size)):  # with a declared length, and streamed
                answer = world.request("lead token manage", "POST", path, content=content, headers=JSON)
                assert answer.status_code in (status, 400 if status == 422 else status)
                assert status != 413 or answer.json()["fix"]
        answer = world.client.post("/api/projects/alpha/pairs", content=b" " * 3100)
        assert answer.status_code == 401, "the body of a request without access is not read"


def receive_slowly(app: FastAPI) -> int:
    """Send a request whose body never ends; return the status of the answer."""
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        for part in parts:
            return part
        return await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"testserver")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/login",
        "raw_path": b"/api/login",
        "query_string": b"",
        "headers": headers,
        "scheme": "http",
        "http_version": "1.1",
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    anyio.run(app, scope, receive, send)
    return int(sent[0]["status"])


def test_a_body_that_does_not_arrive_is_refused(sqlite_database: Database) -> None:
    with create_world(sqlite_database, body_seconds=0.05) as world:
        assert receive_slowly(world.app) == 408


def test_every_answer_has_security_headers(world: World) -> None:
    for actor, path in (("anonymous", "/api/me"), ("lead", "/api/me"), ("lead", "/nothing"), ("lead", "/api/health")):
        headers = world.request(actor, "GET", path).headers
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert ("cache-control" in headers) == path.startswith("/api")
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


# Hostile texts.


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_data(world: World, text: str) -> None:
    row = {"query": text, "document": text, "query_text": text, "title": text, "body": text, "fields": {text: text}}
    assert as_lead(world, "POST", "/pairs", json=[row]).json()["pairs_added"] == 1
    found = world.request("lead", "GET", "/api/projects/alpha/pairs?after=60").json()
    assert [one for one in found if one["query"] == text]
    changed = as_lead(world, "PATCH", "", json={"guidelines": text, "layout": {text: [text]}})
    assert changed.json()["guidelines"] == text
    body = {"client_id": text, "grade": 1, "query": text, "document": text, "comment": text}
    receipt = world.request("judge", "POST", "/api/projects/alpha/answers", json=body)
    assert receipt.json()[0]["client_id"] == text
    exported = world.request("lead", "GET", "/api/projects/alpha/answers.jsonl")
    assert json.loads(exported.text)["comment"] == text
    assert exported.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("name", ["a/b", "../x", "", "a b", "a" * 101, "<b>"])
def test_project_names_are_safe_in_addresses(world: World, name: str) -> None:
    answer = world.request("admin", "POST", "/api/projects", json={"name": name, "grades": "0-1"})
    assert (answer.status_code, answer.json()["parameter"]) == (422, "name")


def test_ids_of_other_projects_are_not_found(world: World) -> None:
    invitation = world.request("other lead", "POST", "/api/projects/beta/invitations", json={}).json()["invitation"]
    members = world.request("other lead", "GET", "/api/projects/beta/members").json()
    other = next(one["assessor"]["id"] for one in members if one["role"] == "judge")
    pairs = world.request("other lead", "GET", "/api/projects/beta/pairs?limit=1").json()
    cases = [
        ("lead", "DELETE", f"/invitations/{invitation['id']}", None),
        ("lead", "PATCH", f"/members/{other}", {"is_paused": True}),
        ("lead", "DELETE", f"/members/{other}", None),
        ("lead", "POST", "/tokens", {"assessor_id": other, "name": "t"}),
        ("judge", "POST", "/answers", {"client_id": "c", "grade": 1, "pair_id": pairs[0]["pair_id"]}),
        ("judge", "POST", "/undo", {"client_id": "c", "pair_id": pairs[0]["pair_id"]}),
    ]
    for actor, method, path, body in cases:
        answer = world.request(actor, method, f"/api/projects/alpha{path}", json=body)
        assert answer.status_code == 404, path
    chosen = {"pair_ids": [pairs[0]["pair_id"]]}
    assert world.request("lead", "POST", "/api/projects/alpha/pairs/close", json=chosen).json() == {"pairs": 0}
    missing = world.request("lead", "GET", "/api/projects/gamma").json()
    assert world.request("lead", "GET", "/api/projects/beta").json() == {
        **missing,
        "problem": missing["problem"].replace("gamma", "beta"),
    }


def test_a_lease_of_another_judge_cannot_be_used(world: World) -> None:
    lease = world.request("lead", "POST", "/api/projects/alpha/next").json()["leases"][0]["token"]
    body = {"client_id": "c", "grade": 1, "lease": lease}
    assert world.request("judge", "POST", "/api/projects/alpha/answers", json=body).status_code == 404


def test_judges_see_nothing_of_gold_quotas_and_others(world: World) -> None:
    settings = {"honeypot_share": 1.0, "quotas": {"human": [1, 2]}}
    assert as_lead(world, "PATCH", "", json=settings).status_code == 200
    gold = {"query": "q0", "document": "gold", "kind": "gold", "gold_grade": 2, "explanation": "because"}
    assert as_lead(world, "POST", "/pairs", json=[gold]).status_code == 200
    project = world.request("judge", "GET", "/api/projects/alpha").json()
    hidden = {"honeypot_share", "quotas", "policy", "qualification_share"}
    assert not hidden & set(project)
    assert not hidden & set(world.request("judge", "GET", "/api/projects").json()[0])
    assert hidden < set(world.request("lead", "GET", "/api/projects/alpha").json())
    found = world.request("judge", "POST", "/api/projects/alpha/next").json()["leases"][0]
    assert found["content"]["document"] == "gold"
    texts = {"pair_id", "query", "query_text", "need", "document", "title", "body", "fields", "url"}
    assert (set(found), set(found["content"])) == ({"token", "expires", "content"}, texts)
    body = {"client_id": "c", "grade": 1, "lease": found["token"]}
    receipt = world.request("judge", "POST", "/api/projects/alpha/answers", json=body).json()[0]
    assert receipt["feedback"] is None
    assert set(receipt) == {"client_id", "pair_id", "kind", "grade", "is_late", "received", "feedback"}


# Joining.


def test_people_join_by_invitation(world: World, clock: ManualClock) -> None:
    created = world.request("lead", "POST", "/api/projects/alpha/invitations", json={"kind": "expert", "uses": 2})
    secret = created.json()["secret"]
    preview = world.client.post("/api/join/preview", json={"invitation": secret}).json()
    assert preview == {"project_name": "alpha", "role": "judge", "kind": "expert", "is_password_link": False}
    body = {"invitation": secret, "name": "Zoë", "password": PASSWORD}
    joined = world.request("anonymous", "POST", "/api/join", json=body)
    assert (joined.json()["name"], joined.json()["kind"], joined.json()["is_admin"]) == ("Zoë", "expert", False)
    taken = world.request("anonymous", "POST", "/api/join", json=body)
    assert (taken.status_code, taken.json()["kind"]) == (409, "name-taken")
    again = world.request("stranger", "POST", "/api/join", json={"invitation": secret})
    assert again.json()["name"] == "stranger"
    assert world.request("stranger", "GET", "/api/projects").json()[0]["name"] == "alpha"
    used = world.request("anonymous", "POST", "/api/join", json={**body, "name": "new"})
    assert (used.status_code, used.json()["kind"]) == (404, "bad-invitation")
    short = world.request("lead", "POST", "/api/projects/alpha/invitations", json={"days": 0.5}).json()["secret"]
    clock.advance(0.5 * 24 * 3600)
    expired = world.request("anonymous", "POST", "/api/join", json={**body, "invitation": short, "name": "new"})
    assert (expired.status_code, expired.json()["kind"]) == (404, "bad-invitation")


def test_two_people_race_for_the_last_place_of_an_invitation(world: World) -> None:
    secret = create_invitation(world, uses=1)

    def join(number: int) -> int:
        body = {"invitation": secret, "name": f"new {number}", "password": PASSWORD}
        return int(world.client.post("/api/join", json=body).status_code)

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(join, range(6)))
    assert statuses == [200, 404, 404, 404, 404, 404]
    with world.database.read() as connection:
        names = [one.name for one in people.list_assessors(connection)]
    assert sum(name.startswith("new") for name in names) == 1, "no account is left behind"


def test_an_administrator_lets_a_person_set_a_new_password(world: World) -> None:
    path = f"/api/assessors/{world.ids['judge']}/password-link"
    secret = world.request("admin", "POST", path, json={}).json()["secret"]
    joined = world.request(
        "anonymous", "POST", "/api/join", json={"invitation": secret, "name": "x", "password": PASSWORD}
    )
    assert joined.status_code == 404
    body = {"invitation": secret, "password": "another long password"}
    session = world.session_headers("judge")
    assert world.request("anonymous", "POST", "/api/password-reset", json=body).json()["name"] == "judge"
    assert world.client.get("/api/me", headers=session).status_code == 401
    assert world.request("anonymous", "POST", "/api/password-reset", json=body).status_code == 404
    new = {"name": "judge", "password": "another long password"}
    assert world.request("anonymous", "POST", "/api/login", json=new).status_code == 200
    invitation = create_invitation(world)
    other = world.request("anonymous", "POST", "/api/password-reset", json={**body, "invitation": invitation})
    assert other.status_code == 404


def test_an_llm_judge_answers_with_a_token_of_its_project(world: World) -> None:
    assert as_lead(world, "PATCH", "", json={"quotas": {"human": [2, 3], "llm": [1, 1]}}).status_code == 200
    member = as_lead(world, "POST", "/members", json={"name": "gpt", "family": "gpt", "price": 0.01}).json()
    assert (member["assessor"]["kind"], member["assessor"]["can_sign_in"]) == ("llm", False)
    created = as_lead(world, "POST", "/tokens", json={"assessor_id": member["assessor"]["id"], "name": "t"}).json()
    assert (created["token"]["scopes"], created["token"]["project_name"]) == (["judge"], "alpha")
    world.tokens["llm"] = created["secret"]
    leases = world.request("llm", "POST", "/api/projects/alpha/next?count=100").json()["leases"]
    assert len(leases) == 60
    answers = [{"client_id": str(number), "grade": 1, "lease": one["token"]} for number, one in enumerate(leases)]
    assert len(world.request("llm", "POST", "/api/projects/alpha/answers", json=answers).json()) == 60
    status = world.request("lead", "GET", "/api/projects/alpha/status").json()
    assert (status["n_answers"], status["labels"]["llm"]) == (60, [60, 60])
    for person in ("judge", "lead"):
        body = {"assessor_id": world.ids[person], "name": "t"}
        refused = as_lead(world, "POST", "/tokens", json=body)
        assert (refused.status_code, refused.json()["kind"]) == (422, "not-an-llm-judge")
    taken = as_lead(world, "POST", "/members", json={"name": "other judge"})
    assert (taken.status_code, taken.json()["kind"]) == (409, "name-taken")
    path = f"/tokens/{created['token']['id']}"
    assert as_lead(world, "DELETE", path).status_code == 204
    assert world.request("llm", "GET", "/api/me").status_code == 401


def test_a_removed_member_loses_access_and_the_answers_stay(database: Database) -> None:
    with create_world(database) as world:
        check_removal(world)


def check_removal(world: World) -> None:
    leases = world.request("judge", "POST", "/api/projects/alpha/next?count=3").json()["leases"]
    sent = {"client_id": "c", "lease": leases[0]["token"], "grade": 1}
    assert world.request("judge", "POST", "/api/projects/alpha/answers", json=sent).status_code == 200
    token = {"name": "t", "scopes": ["judge"], "project": "alpha"}
    world.tokens["own"] = world.request("judge", "POST", "/api/tokens", json=token).json()["secret"]
    path = f"/api/projects/alpha/members/{world.ids['judge']}"
    assert world.request("lead", "DELETE", path).status_code == 204
    assert world.request("lead", "GET", "/api/projects/alpha/members").json()[0]["assessor"]["name"] == "lead"
    assert world.request("judge", "POST", "/api/projects/alpha/next").status_code == 404
    assert world.request("judge token", "POST", "/api/projects/alpha/next").status_code == 404
    assert world.request("own", "GET", "/api/me").status_code == 401  # revoked
    assert world.request("judge", "GET", "/api/me").status_code == 200
    status = world.request("lead", "GET", "/api/projects/alpha/status").json()
    assert (status["n_answers"], status["n_live_leases"], status["labels"]["human"][0]) == (1, 0, 1)
    removed = next(one for one in status["assessors"] if one["name"] == "judge")
    assert (removed["role"], removed["n_answers"]) == (None, 1)
    assert (
        sum(
            pair["quotas"]["human"]["taken"]
            for pair in world.request("lead", "GET", "/api/projects/alpha/pairs").json()
        )
        == 1
    )
    assert world.request("lead", "DELETE", path).status_code == 404
    own = world.request("lead", "DELETE", f"/api/projects/alpha/members/{world.ids['lead']}")
    assert (own.status_code, own.json()["kind"]) == (409, "own-membership")


def test_pairs_are_added_as_json_lines(world: World) -> None:
    lines = b'{"query": "q", "document": "a"}\n\n{"query": "q", "document": "b"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    assert as_lead(world, "POST", "/pairs", content=lines, headers=headers).json()["pairs_added"] == 2
    bad = as_lead(world, "POST", "/pairs", content=lines + b"{", headers=headers)
    assert (bad.status_code, bad.json()["kind"]) == (400, "bad-json")


def test_every_administrative_change_is_in_the_log(world: World) -> None:
    requests: list[tuple[str, str, str, Any]] = [
        ("admin", "POST", "/api/projects", {"name": "new", "grades": "0-1"}),
        ("admin", "PATCH", f"/api/assessors/{world.ids['judge']}", {"price": 3}),
        ("lead", "PATCH", "/api/projects/alpha", {"is_open": False}),
        ("lead", "POST", "/api/projects/alpha/pairs", [{"query": "x", "document": "x"}]),
        ("lead", "POST", "/api/projects/alpha/pairs/close", {"queries": ["x"]}),
        ("lead", "POST", "/api/projects/alpha/pairs/reopen", {"queries": ["x"]}),
        ("lead", "POST", "/api/projects/alpha/invitations", {}),
        ("lead", "PATCH", f"/api/projects/alpha/members/{world.ids['judge']}", {"reset_qualification": True}),
        ("judge", "POST", "/api/tokens", {"name": "t", "scopes": ["judge"], "project": "alpha"}),
        ("lead", "DELETE", f"/api/projects/alpha/members/{world.ids['judge']}", None),
    ]
    for actor, method, path, body in requests:
        assert world.request(actor, method, path, json=body).status_code < 300
    entries = world.request("admin", "GET", "/api/audit").json()
    assert [(entry["assessor"], entry["action"]) for entry in reversed(entries)] == [
        ("admin", "project.create"),
        ("admin", "assessor.change"),
        ("lead", "project.change"),
        ("lead", "pairs.add"),
        ("lead", "pairs.close"),
        ("lead", "pairs.reopen"),
        ("lead", "invitation.create"),
        ("lead", "member.change"),
        ("judge", "token.create"),
        ("lead", "member.remove"),
    ]
    mine = world.request("lead", "GET", "/api/projects/alpha/audit").json()
    assert {entry["project"] for entry in mine} == {"alpha"}
    assert len(mine) == 8


def test_a_token_cannot_be_limited_to_a_project_of_others(world: World) -> None:
    body = {"name": "t", "scopes": ["read"], "project": "beta"}
    assert world.request("lead", "POST", "/api/tokens", json=body).status_code == 404
