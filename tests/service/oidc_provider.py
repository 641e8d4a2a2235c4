"""OpenID Connect provider on loopback, for tests."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT_ID = "crowdrank"
CLIENT_SECRET = "a secret of the client"


@dataclass
class FakeProvider:
    """Provider that signs everybody in.

    Attributes:
        issuer: its address.
        key: key that signs ID tokens.
        published: keys that it publishes.
        codes: sign-ins by code: parameters of the browser and claims of the person.
        header: header of ID tokens.

    """

    issuer: str = ""
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "1"}))
    codes: dict[str, tuple[dict[str, str], dict[str, Any]]] = field(default_factory=dict)
    published: list[ECKey] = field(default_factory=list)

    def sign_in(self, url: str, **claims: Any) -> str:
        """Sign a person in at the address that the browser was sent to; return the code."""
        parts = urlsplit(url)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.issuer}/authorize"
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = f"code {len(self.codes)}"
        self.codes[code] = query, claims
        return code

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the answer to a request for a token."""
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        query, claims = self.codes.pop(form.get("code", ""), ({}, {}))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        checks = (
            authorization == f"Basic {expected}",
            query.get("code_challenge") == challenge,
            query.get("redirect_uri") == form.get("redirect_uri"),
        )
        if not all(checks):
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token(query, claims)}

    def id_token(self, query: dict[str, str], claims: dict[str, Any]) -> str:
        """Return a signed ID token; claims that are None are left out."""
        now = int(time.time())
        full = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "42",
            "iat": now,
            "exp": now + 300,
            "nonce": query["nonce"],
            **claims,
        }
        full = {name: value for name, value in full.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": "1"}, full, self.key)

    def answer(self, path: str) -> Any:
        """Return the discovery document or the keys."""
        if path == "/.well-known/openid-configuration":
            addresses = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            return {"issuer": self.issuer, **{name: f"{self.issuer}/{end}" for name, end in addresses.items()}}
        return {"keys": [key.as_dict(private=False) for key in self.published or [self.key]]}


@contextmanager
def run_provider() -> Iterator[FakeProvider]:
    """Run a provider on a free port of loopback."""
    provider = FakeProvider()

    class Handler(BaseHTTPRequestHandler):
        def send(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send(200, provider.answer(self.path))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(content).items()}
            self.send(*provider.exchange(form, self.headers.get("Authorization", "")))

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
