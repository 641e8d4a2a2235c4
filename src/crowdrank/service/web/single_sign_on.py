"""Sign in by OpenID Connect (authorization code flow with PKCE) or by the header of a trusted proxy."""

from __future__ import annotations

import importlib.util
import secrets
import threading
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, func, select

from crowdrank.errors import UsageError, shown
from crowdrank.service.domain.people import (
    HIDDEN_CATEGORIES,
    MAX_NAME_LENGTH,
    Assessor,
    accept_invitation,
    create_assessor,
    deactivated_error,
    find_invitation,
    find_subject,
    record_audit,
)
from crowdrank.service.service_errors import Forbidden, ServiceError, Unauthorized
from crowdrank.service.store.schema import assessor

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import OAuth2Client

PACKAGES = ("authlib", "httpx2", "joserfc")
"""Packages of the extra `sso`."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Accepted signatures of ID tokens: asymmetric ones only."""
TIMEOUT_SECONDS = 10
"""Maximum number of seconds to wait for the provider."""
LEEWAY_SECONDS = 60
"""Maximum difference between the provider's clock and ours."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ProviderError(ServiceError):
    """The single sign-on provider cannot be reached, or its response is invalid."""

    status = 502
    default_kind = "single-sign-on-provider"


@dataclass(frozen=True)
class OidcSettings:
    """An OpenID Connect provider.

    Attributes:
        issuer: address of the provider; its discovery document is below it.
        client_id: id of this service at the provider.
        client_secret: secret of this service at the provider.

    """

    issuer: str
    client_id: str
    client_secret: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            problem = f"must be an address with https, not {shown(self.issuer)}"
            raise UsageError(problem, parameter="issuer")

    def __repr__(self) -> str:  # without the secret
        return f"OidcSettings(issuer={self.issuer!r}, client_id={self.client_id!r})"


@dataclass(frozen=True)
class SignInState:
    """What the browser keeps, in a cookie, until the provider sends it back."""

    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True)
class Identity:
    """Who signed in at a provider or proxy.

    Attributes:
        subject: unique identity, stored with the assessor.
        name: proposed name of a new assessor.
        email: verified e-mail address.

    """

    subject: str
    name: str
    email: str | None


class OidcProvider:
    """OpenID Connect provider: discovery document, keys, and the two steps of signing in.

    Args:
        settings: provider and client.
        redirect_url: address of this service that the provider sends browsers back to.

    """

    def __init__(self, settings: OidcSettings, redirect_url: str) -> None:
        if any(importlib.util.find_spec(package) is None for package in PACKAGES):
            problem = "single sign-on needs packages that are not installed"
            raise UsageError(problem, kind="missing-package", fix="pip install 'crowdrank[sso]'")
        self.settings = settings
        self.redirect_url = redirect_url
        self._metadata: dict[str, Any] | None = None
        self._lock = threading.Lock()

    def start(self) -> tuple[str, SignInState]:
        """Return the address of the provider to send the browser to, and what the browser keeps."""
        kept = SignInState(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        with self._client() as client:
            endpoint = self._load_metadata(client)["authorization_endpoint"]
            url, _ = client.create_authorization_url(
                endpoint, state=kept.state, nonce=kept.nonce, code_verifier=kept.verifier
            )
        return str(url), kept

    def finish(self, kept: SignInState, state: str, code: str) -> Identity:
        """Exchange the code for an ID token, verify it, and return who signed in.

        Raises:
            Unauthorized: the state or the token is invalid.
            ProviderError: the provider cannot be reached.

        """
        from authlib.integrations.base_client import OAuthError
        from httpx2 import HTTPError

        if not secrets.compare_digest(kept.state.encode(), state.encode()):
            raise _sign_in_error("the browser did not begin this sign-in")
        if not code:
            raise _sign_in_error("the provider sent no code")
        with self._client() as client:
            metadata = self._load_metadata(client)
            try:
                token = client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=kept.verifier)
            except OAuthError as error:
                raise _sign_in_error("the provider refused the code") from error
            except (HTTPError, ValueError) as error:
                raise _unreachable_error(self.settings.issuer) from error
            keys = _get_json(client, metadata["jwks_uri"])
        return self._identity_of(self._verify(str(token.get("id_token", "")), keys, kept.nonce))

    def _client(self) -> OAuth2Client:
        from authlib.integrations.httpx_client import OAuth2Client

        return OAuth2Client(
            self.settings.client_id,
            self.settings.client_secret,
            scope="openid email profile",
            redirect_uri=self.redirect_url,
            code_challenge_method="S256",
            timeout=TIMEOUT_SECONDS,
        )

    def _load_metadata(self, client: OAuth2Client) -> dict[str, Any]:
        with self._lock:
            if self._metadata is None:
                issuer = self.settings.issuer
                found = _get_json(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
                needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
                if found.get("issuer") != issuer or not all(isinstance(found.get(name), str) for name in needed):
                    raise ProviderError("has no discovery document for this issuer", source=issuer)
                self._metadata = found
            return self._metadata

    def _verify(self, id_token: str, keys: Any, nonce: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        claims = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            sub={"essential": True},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            token = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS))
            claims.validate(token.claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise _sign_in_error("the ID token is invalid") from error
        if token.claims.get("azp", self.settings.client_id) != self.settings.client_id:
            raise _sign_in_error("the ID token is for another client")
        return dict(token.claims)

    def _identity_of(self, claims: dict[str, Any]) -> Identity:
        email = claims.get("email")
        is_verified = isinstance(email, str) and claims.get("email_verified") is True
        name = claims.get("preferred_username") or claims.get("name") or email or claims["sub"]
        subject = f"oidc:{self.settings.issuer}#{claims['sub']}"
        return Identity(subject, str(name), email if is_verified else None)


def _get_json(client: OAuth2Client, url: str) -> dict[str, Any]:
    from httpx2 import HTTPError

    try:
        answer = client.request("GET", url, withhold_token=True)
        answer.raise_for_status()
        content = answer.json()
    except (HTTPError, ValueError) as error:
        raise _unreachable_error(url) from error
    if not isinstance(content, dict):
        raise ProviderError("its response is not a JSON object", source=url)
    return content


def _unreachable_error(url: str) -> ProviderError:
    return ProviderError("cannot be reached or does not answer as expected", source=url, fix="try again later")


def _sign_in_error(problem: str) -> Unauthorized:
    return Unauthorized(f"signing in failed: {problem}", kind="single-sign-on", fix="sign in again")


def header_identity(value: str) -> Identity:
    """Return the identity for the header of a trusted proxy: a user name or an e-mail address."""
    return Identity(f"header:{value}", value, value if "@" in value else None)


def admit(
    connection: Connection,
    identity: Identity,
    *,
    now: int,
    domains: tuple[str, ...] = (),
    invitation: str | None = None,
) -> Assessor:
    """Return the assessor with an identity; create a new one for an invitation or an allowed e-mail domain.

    Args:
        connection: connection of a transaction.
        identity: who signed in.
        now: current time.
        domains: domains of e-mail addresses that need no invitation.
        invitation: secret of an invitation.

    Raises:
        Forbidden: the identity is unknown and has no invitation, or the assessor is not active.
        NotFound: the invitation is invalid.

    """
    person = find_subject(connection, identity.subject)
    if person is None:
        kind = "human"
        if invitation is not None:
            kind = find_invitation(connection, invitation, now).kind
        elif not _has_domain(identity.email, domains):
            raise Forbidden("you have no account here", kind="not-invited", fix="ask for an invitation link")
        name = _free_name(connection, identity.name)
        person = create_assessor(connection, name, kind=kind, subject=identity.subject, now=now)
        record_audit(connection, "assessor.create", {"name": name}, assessor_id=person.id, now=now)
    if not person.is_active:
        raise deactivated_error()
    if invitation is not None:
        accept_invitation(connection, invitation, person, now)
    return person


def _has_domain(email: str | None, domains: tuple[str, ...]) -> bool:
    user, _, domain = (email or "").rpartition("@")
    return user != "" and domain.lower() in {allowed.lower() for allowed in domains}


def _free_name(connection: Connection, wanted: str) -> str:
    """Return a name without hidden characters that no assessor has: `wanted`, or with a number, such as "ann 2"."""
    shown = "".join(one for one in wanted if unicodedata.category(one) not in HIDDEN_CATEGORIES)
    base = shown.strip()[: MAX_NAME_LENGTH - 10] or "assessor"
    known = set(connection.scalars(select(func.lower(assessor.c.name)).where(assessor.c.name.ilike(f"{base[:20]}%"))))
    number, name = 1, base
    while name.lower() in known:
        number += 1
        name = f"{base} {number}"
    return name
