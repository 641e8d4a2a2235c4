"""Settings of the HTTP API."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from crowdrank.errors import Fix, UsageError, shown
from crowdrank.service.domain.credentials import DAY, PasswordCost, SessionLimits, Throttle
from crowdrank.service.web.single_sign_on import OidcSettings


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the HTTP API.

    Attributes:
        public_url: address under which browsers reach the service, such as `https://judging.example.org`; needed
            behind a proxy and for single sign-on.
        trusted_proxies: addresses or networks of proxies whose `X-Forwarded-For` and `user_header` are accepted.
        user_header: header with the name of a user whom a trusted proxy has signed in.
        oidc: OpenID Connect provider.
        allowed_domains: domains of e-mail addresses; who signs in with one of them needs no invitation.
        sessions: lifetime of sessions.
        throttle: delays after failed attempts to sign in.
        password_cost: cost of password hashes.
        invitation_lifetime: default lifetime of invitations, in milliseconds.
        max_body_bytes: maximum size of the body of a request.
        max_upload_bytes: maximum size of the body of a request that adds pairs or creates a project from files.
        body_seconds: maximum number of seconds to wait for the body of a request.

    """

    public_url: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    user_header: str | None = None
    oidc: OidcSettings | None = None
    allowed_domains: tuple[str, ...] = ()
    sessions: SessionLimits = field(default_factory=SessionLimits)
    throttle: Throttle = field(default_factory=Throttle)
    password_cost: PasswordCost = field(default_factory=PasswordCost)
    invitation_lifetime: int = 7 * DAY
    max_body_bytes: int = 1 << 20
    max_upload_bytes: int = 64 << 20
    body_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.public_url is not None and not is_origin(self.public_url):
            problem = "must be an address without a path, such as https://judging.example.org"
            raise UsageError(problem, parameter="public_url")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                problem, fix = (
                    f"has {shown(proxy)}, which is not an IP address or network",
                    "use one such as 10.0.0.0/8",
                )
                raise UsageError(problem, parameter="trusted_proxies", fix=fix) from error
        if self.user_header is not None and not self.trusted_proxies:
            problem = "needs the addresses of the proxies that set it"
            raise UsageError(problem, parameter="user_header", fix=Fix("set {}", "trusted_proxies"))
        if self.oidc is not None and self.public_url is None:
            problem = "single sign-on needs the address to which the provider sends browsers back"
            raise UsageError(problem, kind="no-public-url", fix=Fix("set {}", "public_url"))

    def is_trusted_proxy(self, address: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in ipaddress.ip_network(proxy) for proxy in self.trusted_proxies)


def is_origin(url: str) -> bool:
    """Return whether a URL has a scheme and a host, and nothing else."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and url.removesuffix("/") == f"{parts.scheme}://{parts.netloc}" != ""
