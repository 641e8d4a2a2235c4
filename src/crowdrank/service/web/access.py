"""Access control: who sends a request, and what they may do."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request, Response
from sqlalchemy import Connection

from crowdrank.errors import shown
from crowdrank.service.domain.credentials import (
    MINUTE,
    PasswordHasher,
    create_session,
    digest_of,
    end_session,
    touch_session,
)
from crowdrank.service.domain.people import (
    Actor,
    Assessor,
    Member,
    find_session_actor,
    find_subject,
    find_token_actor,
    record_audit,
)
from crowdrank.service.domain.projects import Project
from crowdrank.service.model.project_charts import ChartImages
from crowdrank.service.model.refits import Refits
from crowdrank.service.service_errors import Forbidden, NotFound, Unauthorized
from crowdrank.service.store.database import Database
from crowdrank.service.web.service_settings import ServiceSettings
from crowdrank.service.web.single_sign_on import OidcProvider, header_identity

FORM_TOKEN_HEADER = "X-Form-Token"
"""Header with the form token of the session, in state-changing requests."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
TOUCH_INTERVAL = MINUTE
"""Minimum number of milliseconds between two records of the requests of a session."""


@dataclass(frozen=True)
class Service:
    """Database, settings and background workers that all requests share.

    Attributes:
        database: the database.
        settings: settings of the API.
        passwords: hashing of passwords.
        provider: single sign-on provider.
        refits: fits of the model.
        charts: charts of projects.

    """

    database: Database
    settings: ServiceSettings
    passwords: PasswordHasher
    provider: OidcProvider | None
    refits: Refits
    charts: ChartImages = field(default_factory=ChartImages)


def get_service(request: Request) -> Service:
    """Return the `Service` of the application."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]


@dataclass(frozen=True)
class ProjectAccess:
    """Access of an actor to a project.

    Attributes:
        actor: who sends the request.
        project: the project.
        member: membership of the actor; administrators may have none.

    """

    actor: Actor
    project: Project
    member: Member | None

    @property
    def is_lead(self) -> bool:
        """Whether the actor may change the project."""
        return self.actor.assessor.is_admin or (self.member is not None and self.member.role == "lead")

    def audit(self, connection: Connection, action: str, details: dict[str, Any], now: int) -> None:
        """Add a change of the project to the log."""
        ids = {"assessor_id": self.actor.assessor.id, "project_id": self.project.id}
        record_audit(connection, action, details, now=now, **ids)


# Cookies, addresses and the same-origin check.


def own_origin(request: Request, settings: ServiceSettings) -> str:
    """Return the origin of this service as browsers see it."""
    return (settings.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}").rstrip("/").lower()


def is_secure(request: Request, settings: ServiceSettings) -> bool:
    """Return whether browsers reach the service by HTTPS."""
    return own_origin(request, settings).startswith("https://")


def cookie_name(request: Request, settings: ServiceSettings, purpose: str = "session") -> str:
    """Return the name of a cookie; under HTTPS, the prefix keeps other hosts of the domain from setting it."""
    return f"{'__Host-' if is_secure(request, settings) else ''}crowdrank-{purpose}"


def set_cookie(
    request: Request, response: Response, settings: ServiceSettings, purpose: str, value: str, age: int
) -> None:
    """Set a cookie that scripts cannot read and that other sites do not send."""
    name, secure = cookie_name(request, settings, purpose), is_secure(request, settings)
    response.set_cookie(name, value, max_age=age, path="/", secure=secure, httponly=True, samesite="lax")


def delete_cookie(request: Request, response: Response, settings: ServiceSettings, purpose: str = "session") -> None:
    """Delete a cookie."""
    set_cookie(request, response, settings, purpose, "", 0)


def client_address(request: Request, settings: ServiceSettings) -> str:
    """Return the address of the client; behind trusted proxies, the last address that is not one of theirs."""
    address = request.client.host if request.client else ""
    hops = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",") if hop.strip()]
    while hops and settings.is_trusted_proxy(address):
        address = hops.pop()
    return address


def check_origin(request: Request, settings: ServiceSettings, *, is_required: bool) -> None:
    """Refuse a request that a page of another site sent.

    Args:
        request: the request.
        settings: settings with the public address.
        is_required: whether a request without `Origin` and `Referer` is refused; programs send none.

    """
    sent = request.headers.get("origin")
    if sent is None and (referer := request.headers.get("referer")) is not None:
        parts = urlsplit(referer)
        sent = f"{parts.scheme}://{parts.netloc}"
    if (sent is None and is_required) or (sent is not None and sent.lower() != own_origin(request, settings)):
        problem = "the request does not come from a page of this service"
        fixes = ("behind a proxy, start the service with its public URL", "use an API token in programs")
        raise Forbidden(problem, kind="bad-origin", fix=fixes)


def begin_session(request: Request, response: Response, service: Service, assessor_id: int) -> str:
    """Start a session with a new secret, end the one that the browser had, and set the cookie; return the secret."""
    old = request.cookies.get(cookie_name(request, service.settings))
    now, limits = service.database.now(), service.settings.sessions

    def start(connection: Connection) -> str:
        if old is not None:
            end_session(connection, digest_of(old))
        return create_session(connection, assessor_id, now, limits)

    secret = service.database.write(start)
    set_cookie(request, response, service.settings, "session", secret, limits.total // 1000)
    return secret


# Who sends the request.


def trusted_user(request: Request, settings: ServiceSettings) -> str | None:
    """Return the user whom a trusted proxy has signed in, or None."""
    address = request.client.host if request.client else ""
    if settings.user_header is None or not settings.is_trusted_proxy(address):
        return None
    return request.headers.get(settings.user_header) or None


def find_actor(request: Request, service: ServiceDependency) -> Actor | None:
    """Return the actor of a session or token, None without credentials; raise Unauthorized if they are invalid."""
    authorization, project = request.headers.get("authorization"), request.path_params.get("project")
    if authorization is not None:
        return _token_actor(authorization, project, service)
    secret, now = request.cookies.get(cookie_name(request, service.settings)), service.database.now()
    if secret is None:
        return None
    with service.database.read() as connection:
        actor = find_session_actor(connection, secret, now, service.settings.sessions, project)
        if actor is None or (session := actor.session) is None:
            return None
        if (user := trusted_user(request, service.settings)) is not None:
            _check_trusted_user(connection, user, actor.assessor)
    if request.method not in SAFE_METHODS:
        check_origin(request, service.settings, is_required=True)
        sent = request.headers.get(FORM_TOKEN_HEADER, "")
        if not hmac.compare_digest(sent.encode(), session.form_token.encode()):
            problem = f"the header {FORM_TOKEN_HEADER} is missing or wrong"
            raise Forbidden(problem, kind="bad-form-token", fix="send the form token that /api/me returns")
    if now - session.last_seen >= TOUCH_INTERVAL:
        service.database.write(lambda connection: touch_session(connection, session.digest, now))
    return actor


def _token_actor(authorization: str, project: str | None, service: Service) -> Actor:
    kind, _, secret = authorization.partition(" ")
    with service.database.read() as connection:
        actor = find_token_actor(connection, secret.strip(), service.database.now(), project)
    if kind.lower() != "bearer" or actor is None:
        problem = "the token is unknown, expired or revoked"
        raise Unauthorized(problem, kind="bad-token", fix="create a new token")
    return actor


def _check_trusted_user(connection: Connection, user: str, person: Assessor) -> None:
    """Refuse the session of a person who is not the user that a trusted proxy has signed in."""
    signed_in = find_subject(connection, header_identity(user).subject)
    if signed_in is None or signed_in.id != person.id:
        raise Unauthorized("the session belongs to another user", kind="other-user", fix="sign in again")


OptionalActor = Annotated[Actor | None, Depends(find_actor)]


def require_actor(actor: OptionalActor) -> Actor:
    """Return who sends the request; raise Unauthorized without credentials."""
    if actor is None:
        raise Unauthorized("you are not signed in", kind="not-signed-in", fix="sign in, or send an API token")
    return actor


AnyActor = Annotated[Actor, Depends(require_actor)]


def require_session(actor: AnyActor) -> Actor:
    """Return who sends the request; raise Forbidden for a token."""
    if actor.session is None:
        raise Forbidden("a token may not do this", kind="session-required", fix="sign in with a browser")
    return actor


SessionActor = Annotated[Actor, Depends(require_session)]


class AdminOnly:
    """Dependency that returns an administrator who may act on the whole service.

    Args:
        scope: scope that a token needs.

    """

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def __call__(self, actor: AnyActor) -> Actor:
        """Return who sends the request; raise Forbidden for others."""
        if not actor.assessor.is_admin or actor.project_id is not None:
            raise Forbidden("only administrators may do this", kind="admin-required", fix="ask one of them")
        actor.require_scope(self.scope)
        return actor


class InProject:
    """Dependency that returns the access of an actor to the project in the path.

    Args:
        role: role that is needed: `judge` (every member) or `lead`.
        scope: scope that a token needs, or None if any will do.

    """

    def __init__(self, role: str, scope: str | None) -> None:
        self.role = role
        self.scope = scope

    def __call__(
        self,
        actor: AnyActor,
        project: Annotated[str, Path(description="Name of the project.", max_length=100)],
    ) -> ProjectAccess:
        """Return the access; raise NotFound for projects of others, and Forbidden if the role does not suffice."""
        if actor.project is None or actor.project_id not in (None, actor.project.id):
            raise NotFound(f"there is no project {shown(project)}", kind="no-project")
        access = ProjectAccess(actor, actor.project, actor.member)
        if self.role == "lead" and not access.is_lead:
            raise Forbidden("only leads of the project may do this", kind="lead-required", fix="ask one of them")
        if self.scope is not None:
            actor.require_scope(self.scope)
        return access


AsAdminReader = Annotated[Actor, Depends(AdminOnly("read"))]
AsAdmin = Annotated[Actor, Depends(AdminOnly("manage"))]
AsMember = Annotated[ProjectAccess, Depends(InProject("judge", None))]
AsJudge = Annotated[ProjectAccess, Depends(InProject("judge", "judge"))]
AsReader = Annotated[ProjectAccess, Depends(InProject("lead", "read"))]
AsLead = Annotated[ProjectAccess, Depends(InProject("lead", "manage"))]
