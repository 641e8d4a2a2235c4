"""Endpoints of accounts: signing in and out, invitations, own password and tokens."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import Connection, text

from crowdrank.service.domain import credentials, people
from crowdrank.service.domain.credentials import DAY, form_token_of
from crowdrank.service.domain.people import Assessor
from crowdrank.service.domain.projects import get_project
from crowdrank.service.service_errors import Forbidden, Invalid, NotFound, Unauthorized
from crowdrank.service.web import bodies
from crowdrank.service.web.access import (
    AnyActor,
    OptionalActor,
    Service,
    ServiceDependency,
    SessionActor,
    begin_session,
    check_origin,
    client_address,
    cookie_name,
    delete_cookie,
    set_cookie,
    trusted_user,
)
from crowdrank.service.web.protection import StrictRoute
from crowdrank.service.web.single_sign_on import Identity, OidcProvider, SignInState, admit, header_identity

router = APIRouter(route_class=StrictRoute, tags=["account"])

SIGN_ON_SECONDS = 600
"""Maximum number of seconds between start and end of signing in at the provider."""


@router.get("/health")
def get_health(service: ServiceDependency) -> dict[str, str]:
    """Return `ok` if the database answers."""
    with service.database.read() as connection:
        connection.execute(text("SELECT 1"))
    return {"status": "ok"}


@router.get("/sign-in", response_model=bodies.SignInWays)
def get_sign_in_ways(request: Request, service: ServiceDependency) -> dict[str, bool]:
    """Return the ways to sign in."""
    is_named = trusted_user(request, service.settings) is not None
    return {"password": True, "single_sign_on": service.provider is not None, "trusted_header": is_named}


@router.post("/login", response_model=bodies.CurrentActor)
def login(body: bodies.Login, request: Request, response: Response, service: ServiceDependency) -> bodies.CurrentActor:
    """Sign in with name and password; the response sets the cookie of a new session."""
    check_origin(request, service.settings, is_required=False)
    _verify_password(request, service, body.name, body.password)
    with service.database.read() as connection:
        person = people.find_assessor(connection, people.normalize_name(body.name))
    assert person is not None
    return _sign_in(request, response, service, person)


def _verify_password(request: Request, service: Service, name: str, password: str) -> None:
    """Check a password; count failures per name and address, and raise Unauthorized or SignInDelayed."""
    database, throttle = service.database, service.settings.throttle
    name, address, now = people.normalize_name(name), client_address(request, service.settings), database.now()
    database.write(lambda connection: credentials.begin_attempt(connection, name, address, now, throttle))
    with database.read() as connection:
        stored = credentials.get_password(connection, name)
    if not service.passwords.verify(password, stored):
        raise Unauthorized("name or password is wrong", kind="bad-login", fix="check both")
    database.write(lambda connection: credentials.end_attempt(connection, name, address, now, throttle))


def _sign_in(request: Request, response: Response, service: Service, assessor: Assessor) -> bodies.CurrentActor:
    """Begin a session of an assessor; return the assessor as the actor, with the form token of the session."""
    secret = begin_session(request, response, service, assessor.id)
    return _current_actor(assessor, form_token_of(secret), None)


def _current_actor(assessor: Assessor, form_token: str | None, scopes: list[str] | None) -> bodies.CurrentActor:
    fields: dict[str, Any] = {name: getattr(assessor, name) for name in ("id", "name", "kind", "is_admin")}
    return bodies.CurrentActor(**fields, form_token=form_token, scopes=scopes)


@router.post("/logout", status_code=204)
def logout(actor: SessionActor, request: Request, response: Response, service: ServiceDependency) -> None:
    """End the session."""
    assert actor.session is not None
    digest = actor.session.digest
    service.database.write(lambda connection: credentials.end_session(connection, digest))
    delete_cookie(request, response, service.settings)


@router.get("/me", response_model=bodies.CurrentActor)
def get_me(actor: AnyActor) -> bodies.CurrentActor:
    """Return who sends the request, and the form token of the session."""
    form_token = None if actor.session is None else actor.session.form_token
    return _current_actor(actor.assessor, form_token, None if actor.scopes is None else list(actor.scopes))


@router.post("/me/password", response_model=bodies.CurrentActor)
def change_password(
    body: bodies.NewPassword, actor: SessionActor, request: Request, response: Response, service: ServiceDependency
) -> bodies.CurrentActor:
    """Change one's own password; all sessions end, and a new one begins."""
    person = actor.assessor
    _verify_password(request, service, person.name, body.current)
    hashed = service.passwords.hash(body.password, name=person.name)
    now = service.database.now()

    def change(connection: Connection) -> None:
        credentials.set_password(connection, person.id, hashed)
        people.record_audit(connection, "password.change", {}, assessor_id=person.id, now=now)

    service.database.write(change)
    return _sign_in(request, response, service, person)


# Invitations.


@router.post("/join/preview", response_model=bodies.InvitationPreview)
def preview_invitation(body: bodies.InvitationSecret, service: ServiceDependency) -> bodies.InvitationPreview:
    """Return what an invitation is for, without using it."""
    with service.database.read() as connection:
        found = people.find_invitation(connection, body.invitation, service.database.now())
    is_password_link = found.assessor_id is not None
    fields: dict[str, Any] = {name: getattr(found, name) for name in ("project_name", "role", "kind")}
    return bodies.InvitationPreview(**fields, is_password_link=is_password_link)


@router.post("/join", response_model=bodies.CurrentActor)
def join(
    body: bodies.Join, actor: OptionalActor, request: Request, response: Response, service: ServiceDependency
) -> bodies.CurrentActor:
    """Accept an invitation with a new account, or, if signed in and without a name, with the current one."""
    check_origin(request, service.settings, is_required=False)
    database, now = service.database, service.database.now()
    if body.name is None and actor is not None:
        person = actor.assessor
        if actor.session is None:
            problem, fix = "a token may not accept an invitation", "sign in with a browser"
            raise Forbidden(problem, kind="session-required", fix=fix)
        database.write(lambda connection: people.accept_invitation(connection, body.invitation, person, now))
        with database.read() as connection:
            return _current_actor(people.get_assessor(connection, person.id), actor.session.form_token, None)
    if body.name is None or body.password is None:
        raise Invalid("is needed for a new account", parameter="password" if body.name else "name")
    name = people.check_name(body.name)
    with database.read() as connection:  # without a valid invitation, no work is done for the request
        people.find_invitation(connection, body.invitation, now)
    hashed = service.passwords.hash(body.password, name=name)
    created = database.write(lambda connection: _create_member(connection, body.invitation, name, hashed, now))
    return _sign_in(request, response, service, created)


def _create_member(connection: Connection, invitation: str, name: str, password: str, now: int) -> Assessor:
    found = people.find_invitation(connection, invitation, now)
    person = people.create_assessor(connection, name, kind=found.kind, password=password, now=now)
    people.record_audit(connection, "assessor.create", {"name": name}, assessor_id=person.id, now=now)
    people.accept_invitation(connection, invitation, person, now)
    return people.get_assessor(connection, person.id)


@router.post("/password-reset", response_model=bodies.CurrentActor)
def reset_password(
    body: bodies.ResetPassword, request: Request, response: Response, service: ServiceDependency
) -> bodies.CurrentActor:
    """Set a new password by a link of an administrator, and sign in."""
    check_origin(request, service.settings, is_required=False)
    database, now = service.database, service.database.now()
    with database.read() as connection:
        found = people.find_invitation(connection, body.invitation, now)
        if found.assessor_id is None:
            problem, fix = "is not a link for a new password", "ask an administrator for one"
            raise NotFound(problem, kind="bad-invitation", parameter="invitation", fix=fix)
        person = people.get_assessor(connection, found.assessor_id)
    hashed = service.passwords.hash(body.password, name=person.name)

    def reset(connection: Connection) -> None:
        people.use_invitation(connection, body.invitation, now)
        credentials.set_password(connection, person.id, hashed)
        people.record_audit(connection, "password.reset", {}, assessor_id=person.id, now=now)

    database.write(reset)
    if not person.is_active:
        raise people.deactivated_error()
    return _sign_in(request, response, service, person)


# Single sign-on.


def _provider(service: Service) -> OidcProvider:
    if service.provider is None:
        fix = "sign in with name and password"
        raise NotFound("this service has no single sign-on", kind="no-single-sign-on", fix=fix)
    return service.provider


@router.post("/single-sign-on/start", response_model=bodies.SignOnAddress)
def start_single_sign_on(
    body: bodies.StartSignOn, request: Request, response: Response, service: ServiceDependency
) -> bodies.SignOnAddress:
    """Return the address of the provider to send the browser to."""
    check_origin(request, service.settings, is_required=False)
    url, kept = _provider(service).start()
    content = json.dumps([kept.state, kept.nonce, kept.verifier, body.invitation])
    set_cookie(request, response, service.settings, "sign-on", content.encode().hex(), SIGN_ON_SECONDS)
    return bodies.SignOnAddress(url=url)


@router.get("/single-sign-on/callback", status_code=303, response_class=RedirectResponse)
def finish_single_sign_on(
    request: Request,
    service: ServiceDependency,
    state: Annotated[str, Query(max_length=1000)] = "",
    code: Annotated[str, Query(max_length=10_000)] = "",
) -> RedirectResponse:
    """Finish signing in at the provider, which sends the browser here, and begin a session."""
    provider = _provider(service)
    kept, invitation = _parse_sign_in_cookie(request.cookies.get(cookie_name(request, service.settings, "sign-on"), ""))
    identity = provider.finish(kept, state, code)
    person = _admit(service, identity, invitation)
    response = RedirectResponse("/", 303)
    begin_session(request, response, service, person.id)
    delete_cookie(request, response, service.settings, "sign-on")
    return response


def _parse_sign_in_cookie(cookie: str) -> tuple[SignInState, str | None]:
    """Return the state of a sign-in and the invitation from its cookie; raise Unauthorized if the cookie is invalid."""
    try:
        state, nonce, verifier, invitation = json.loads(bytes.fromhex(cookie))
    except (ValueError, TypeError) as error:
        problem = "the browser did not begin to sign in, or took too long"
        raise Unauthorized(problem, kind="single-sign-on", fix="sign in again") from error
    return SignInState(str(state), str(nonce), str(verifier)), None if invitation is None else str(invitation)


def _admit(service: Service, identity: Identity, invitation: str | None) -> Assessor:
    now, domains = service.database.now(), service.settings.allowed_domains
    return service.database.write(
        lambda connection: admit(connection, identity, now=now, domains=domains, invitation=invitation)
    )


@router.post("/trusted-header/sign-in", response_model=bodies.CurrentActor)
def sign_in_by_header(
    body: bodies.StartSignOn, request: Request, response: Response, service: ServiceDependency
) -> bodies.CurrentActor:
    """Begin a session for the user whom a trusted proxy has signed in."""
    check_origin(request, service.settings, is_required=False)
    user = trusted_user(request, service.settings)
    if user is None:
        fix = "open the service through its proxy"
        raise Unauthorized("no trusted proxy has signed you in", kind="no-trusted-header", fix=fix)
    return _sign_in(request, response, service, _admit(service, header_identity(user), body.invitation))


# Own tokens.


@router.get("/tokens", response_model=list[bodies.TokenView])
def get_tokens(actor: SessionActor, service: ServiceDependency) -> list[credentials.Token]:
    """Return one's own tokens."""
    with service.database.read() as connection:
        return credentials.list_tokens(connection, assessor_id=actor.assessor.id)


@router.post("/tokens", response_model=bodies.CreatedToken, status_code=201)
def create_token(body: bodies.NewToken, actor: SessionActor, service: ServiceDependency) -> dict[str, Any]:
    """Create a token of one's own; only this response contains its secret."""
    now = service.database.now()
    expires = None if body.days is None else now + round(body.days * DAY)

    def create(connection: Connection) -> dict[str, Any]:
        me = actor.assessor.id
        project_id = None if body.project is None else get_project(connection, body.project, me).id
        fields: dict[str, Any] = {"name": body.name, "scopes": body.scopes, "project_id": project_id}
        token, secret = credentials.create_token(connection, me, **fields, expires=expires, now=now)
        details = {"token": token.id, "name": token.name, "scopes": list(token.scopes)}
        people.record_audit(connection, "token.create", details, assessor_id=me, project_id=project_id, now=now)
        return {"token": token, "secret": secret}

    return service.database.write(create)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(token_id: bodies.RowId, actor: SessionActor, service: ServiceDependency) -> None:
    """Revoke a token of one's own."""
    now, me = service.database.now(), actor.assessor.id

    def revoke(connection: Connection) -> None:
        token = credentials.revoke_token(connection, token_id, now, assessor_id=me)
        ids = {"assessor_id": me, "project_id": token.project_id}
        people.record_audit(connection, "token.revoke", {"token": token_id}, now=now, **ids)

    service.database.write(revoke)
