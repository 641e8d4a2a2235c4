"""Test signing in at an OpenID Connect provider and by the header of a trusted proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import ECKey

from crowdrank.errors import UsageError
from crowdrank.service.domain import people
from crowdrank.service.store.database import Database
from crowdrank.service.web.single_sign_on import OidcSettings

from .oidc_provider import CLIENT_ID, CLIENT_SECRET, FakeProvider, run_provider
from .service_world import ORIGIN, PASSWORD, World, create_invitation, create_world

HEADER = "X-Forwarded-User"


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with run_provider() as provider:
        yield provider


@pytest.fixture
def sso_world(sqlite_database: Database, provider: FakeProvider) -> Iterator[World]:
    oidc = OidcSettings(provider.issuer, CLIENT_ID, CLIENT_SECRET)
    settings = {"oidc": oidc, "public_url": ORIGIN, "allowed_domains": ("Example.org",)}
    with create_world(sqlite_database, **settings) as world:
        yield world


def start(world: World, invitation: str | None = None) -> str:
    """Start to sign in; return the address of the provider."""
    answer = world.client.post("/api/single-sign-on/start", json={"invitation": invitation})
    assert answer.status_code == 200
    return str(answer.json()["url"])


def state_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["state"][0]


def sign_in(world: World, provider: FakeProvider, invitation: str | None = None, **claims: Any) -> Any:
    """Sign in at the provider; return the answer to its redirection."""
    url = start(world, invitation)
    query = {"state": state_of(url), "code": provider.sign_in(url, **claims)}
    return world.client.get("/api/single-sign-on/callback", params=query)


def count_people(world: World) -> int:
    with world.database.read() as connection:
        return len(people.list_assessors(connection))


def test_an_invited_person_signs_in(sso_world: World, provider: FakeProvider) -> None:
    answer = sign_in(sso_world, provider, create_invitation(sso_world), preferred_username="Ann")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "crowdrank-sign-on" not in sso_world.client.cookies
    me = sso_world.client.get("/api/me").json()
    assert (me["name"], me["is_admin"]) == ("Ann", False)
    assert [one["name"] for one in sso_world.client.get("/api/projects").json()] == ["alpha"]
    sso_world.client.cookies.clear()
    assert sign_in(sso_world, provider, preferred_username="Ann B.").status_code == 303
    assert sso_world.client.get("/api/me").json() == {
        **me,
        "form_token": sso_world.client.get("/api/me").json()["form_token"],
    }
    assert sso_world.client.get("/api/sign-in").json()["single_sign_on"] is True


def test_a_verified_address_of_an_allowed_domain_needs_no_invitation(sso_world: World, provider: FakeProvider) -> None:
    allowed: dict[str, Any] = {"email": "judge@example.org", "email_verified": True, "name": "judge"}
    assert sign_in(sso_world, provider, **allowed).status_code == 303
    me = sso_world.client.get("/api/me").json()
    assert me["name"] == "judge 2", "the name of somebody else is not taken over"
    assert sso_world.client.get("/api/projects").json() == []


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": "ann@example.org"},
        {"email": "ann@example.org", "email_verified": False},
        {"email": "ann@example.org", "email_verified": "true"},
        {"email": "ann@example.org.evil.example", "email_verified": True},
        {"email": "example.org", "email_verified": True},
        {"email": ["ann@example.org"], "email_verified": True},
    ],
)
def test_others_are_not_admitted(sso_world: World, provider: FakeProvider, claims: dict[str, Any]) -> None:
    before = count_people(sso_world)
    answer = sign_in(sso_world, provider, **{"sub": "43", **claims})
    assert (answer.status_code, answer.json()["kind"]) == (403, "not-invited")
    assert count_people(sso_world) == before
    assert "crowdrank-session" not in sso_world.client.cookies


def test_a_used_invitation_admits_nobody(sso_world: World, provider: FakeProvider) -> None:
    secret = create_invitation(sso_world)
    assert sign_in(sso_world, provider, secret).status_code == 303
    before = count_people(sso_world)
    answer = sign_in(sso_world, provider, secret, sub="43")
    assert (answer.status_code, answer.json()["kind"]) == (404, "bad-invitation")
    assert count_people(sso_world) == before


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another client"},
        {"iss": "https://evil.example"},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"sub": None},
        {"azp": "another client"},
    ],
)
def test_invalid_id_tokens_are_refused(sso_world: World, provider: FakeProvider, claims: dict[str, Any]) -> None:
    answer = sign_in(sso_world, provider, create_invitation(sso_world), **claims)
    assert (answer.status_code, answer.json()["kind"]) == (401, "single-sign-on")
    assert "crowdrank-session" not in sso_world.client.cookies


def test_an_id_token_needs_a_signature_of_the_provider(
    sso_world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.published = [ECKey.generate_key("P-256", {"kid": "1"})]
    assert sign_in(sso_world, provider, create_invitation(sso_world)).status_code == 401
    provider.published = []
    unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiI0MiJ9."
    for token in (unsigned, "", "x.y.z"):
        monkeypatch.setattr(provider, "id_token", lambda query, claims, token=token: token)
        assert sign_in(sso_world, provider, create_invitation(sso_world)).status_code == 401


def test_only_the_browser_that_began_can_finish(sso_world: World, provider: FakeProvider) -> None:
    url = start(sso_world, create_invitation(sso_world))
    query = {"state": state_of(url), "code": provider.sign_in(url)}
    callback = "/api/single-sign-on/callback"
    client = TestClient(sso_world.app, follow_redirects=False)
    assert client.get(callback, params=query).status_code == 401, "without the cookie"
    for cookie in ("zz", "5b5d", "5b312c322c332c345d"):
        headers = {"Cookie": f"crowdrank-sign-on={cookie}"}
        assert client.get(callback, params=query, headers=headers).status_code == 401
    assert sso_world.client.get(callback, params={**query, "state": "other"}).status_code == 401
    assert sso_world.client.get(callback, params={"state": query["state"]}).status_code == 401
    other = start(sso_world, None)  # replaces the cookie, so the verifier does not fit the code
    assert sso_world.client.get(callback, params={**query, "state": state_of(other)}).status_code == 401
    assert sso_world.client.get("/api/me").status_code == 401


def test_a_provider_that_does_not_answer_is_an_error_of_its_own(sso_world: World, provider: FakeProvider) -> None:
    service = sso_world.app.state.service
    object.__setattr__(service.provider.settings, "issuer", f"{provider.issuer}/other")
    answer = sso_world.client.post("/api/single-sign-on/start", json={})
    assert (answer.status_code, answer.json()["kind"]) == (502, "single-sign-on-provider")


def test_the_provider_needs_https_and_hides_its_secret() -> None:
    with pytest.raises(UsageError) as caught:
        OidcSettings("http://login.example.org", "id", "the secret")
    assert caught.value.parameter == "issuer"
    assert "the secret" not in repr(OidcSettings("https://login.example.org", "id", "the secret"))


# Header of a trusted proxy.


def proxy_client(world: World, address: str = "10.0.0.1", **headers: str) -> TestClient:
    return TestClient(world.app, client=(address, 1), headers=headers)


@pytest.fixture
def proxy_world(sqlite_database: Database) -> Iterator[World]:
    settings = {"user_header": HEADER, "trusted_proxies": ("10.0.0.1",), "allowed_domains": ("example.org",)}
    with create_world(sqlite_database, **settings) as world:
        yield world


def header_sign_in(client: TestClient, invitation: str | None = None) -> Any:
    return client.post("/api/trusted-header/sign-in", json={"invitation": invitation})


def test_a_trusted_proxy_signs_a_person_in(proxy_world: World) -> None:
    client = proxy_client(proxy_world, **{HEADER: "ann@example.org"})
    assert client.get("/api/sign-in").json()["trusted_header"] is True
    assert client.get("/api/me").status_code == 401
    me = header_sign_in(client).json()
    assert me["name"] == "ann@example.org"
    headers = {"Origin": ORIGIN, "X-Form-Token": me["form_token"]}
    assert client.post("/api/tokens", json={"name": "t", "scopes": ["read"]}, headers=headers).status_code == 201
    assert client.post("/api/tokens", json={"name": "t", "scopes": ["read"]}).status_code == 403
    client.headers[HEADER] = "bob@example.org"
    answer = client.get("/api/me")
    assert (answer.status_code, answer.json()["kind"]) == (401, "other-user")
    assert header_sign_in(client).json()["name"] == "bob@example.org"
    assert client.get("/api/me").json()["name"] == "bob@example.org"


@pytest.mark.parametrize("address", ["10.0.0.2", "127.0.0.1", "testclient"])
def test_the_header_of_others_is_ignored(proxy_world: World, address: str) -> None:
    client = proxy_client(proxy_world, address, **{HEADER: "ann@example.org", "X-Forwarded-For": "10.0.0.1"})
    answer = header_sign_in(client)
    assert (answer.status_code, answer.json()["kind"]) == (401, "no-trusted-header")
    assert client.get("/api/sign-in").json()["trusted_header"] is False


def test_the_header_does_not_take_over_an_account_with_a_password(proxy_world: World) -> None:
    client = proxy_client(proxy_world, **{HEADER: "admin"})
    answer = header_sign_in(client)
    assert (answer.status_code, answer.json()["kind"]) == (403, "not-invited")
    me = header_sign_in(client, create_invitation(proxy_world)).json()
    assert (me["name"], me["is_admin"]) == ("admin 2", False)
    login = {"name": "admin", "password": PASSWORD}
    assert client.post("/api/login", json=login).status_code == 200
    assert client.get("/api/me").json()["kind"] == "other-user"
