"""Assessors, their memberships in projects, invitations, and the log of administrative changes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from crowdrank.errors import shown
from crowdrank.service.domain.credentials import (
    Session,
    SessionLimits,
    digest_of,
    form_token_of,
    new_secret,
    revoke_project_tokens,
)
from crowdrank.service.domain.leases import release_leases
from crowdrank.service.domain.projects import Project, project_of
from crowdrank.service.domain.quotas import forget_spending
from crowdrank.service.service_errors import Conflict, Forbidden, Invalid, NotFound
from crowdrank.service.store.schema import assessor, audit, invitation, membership, project, session, token

MAX_NAME_LENGTH = 100
"""Maximum number of characters of the name of an assessor."""
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that cannot be seen in a name: control, format, surrogate and the like."""


@dataclass(frozen=True)
class Assessor:
    """A person or an LLM judge.

    Attributes:
        id: key in the database.
        name: name that answers are stored under.
        kind: `human`, `llm` or `expert`.
        family: family of an LLM judge, such as its model.
        price: price of an answer.
        is_admin: whether the assessor administers the service.
        is_active: whether the assessor can sign in.
        can_sign_in: whether there is a password or an identity at a single sign-on provider.

    """

    id: int
    name: str
    kind: str
    family: str | None
    price: float
    is_admin: bool
    is_active: bool
    can_sign_in: bool


@dataclass(frozen=True)
class Member:
    """Membership of an assessor in a project.

    Attributes:
        flag: flag of the last fit of the model: careless, random or reversed.
        pause_reason: flag and evidence, if the service has paused the member.
        relative_information: information per price of an answer, relative to the mean of the kind of assessor; None if
            there are too few answers.

    """

    assessor: Assessor
    role: str
    is_paused: bool
    qualification: str
    created: int
    flag: str | None = None
    pause_reason: str | None = None
    relative_information: float | None = None


@dataclass(frozen=True)
class Actor:
    """Who sends a request, with the project that it is about.

    Attributes:
        assessor: the assessor.
        session: session of the browser, or None for a token.
        scopes: scopes of the token, or None for a session, which may do all that the assessor may do.
        project_id: project that the token is limited to.
        project: project of the request; None if there is none, or the assessor may not see it.
        member: membership of the assessor in this project; administrators may have none.

    """

    assessor: Assessor
    session: Session | None
    scopes: tuple[str, ...] | None = None
    project_id: int | None = None
    project: Project | None = None
    member: Member | None = None

    def require_scope(self, scope: str) -> None:
        """Raise Forbidden if the token does not have a scope."""
        if self.scopes is not None and scope not in self.scopes:
            problem = f"the token does not have the scope {scope!r}"
            raise Forbidden(problem, kind="missing-scope", fix="create a token with this scope")


@dataclass(frozen=True)
class Invitation:
    """An invitation to a project or, with the role `admin`, to the service; its secret is not stored.

    Attributes:
        id: key in the database.
        project_id: project to join.
        project_name: name of the project.
        role: role of those who join: `admin`, `lead` or `judge`.
        kind: kind of assessor of those who join.
        assessor_id: assessor who sets a new password with the link, if that is its purpose.
        uses_left: number of further uses.
        expires: time after which it is invalid.
        revoked: time at which it was revoked.
        created: time of creation.

    """

    id: int
    project_id: int | None
    project_name: str | None
    role: str
    kind: str
    assessor_id: int | None
    uses_left: int
    expires: int
    revoked: int | None
    created: int


@dataclass(frozen=True)
class AuditEntry:
    """An administrative change: who changed what, and when."""

    id: int
    at: int
    assessor: str | None
    project: str | None
    action: str
    details: Mapping[str, Any]


def normalize_name(name: str) -> str:
    """Return a name in Unicode normal form, without spaces around it."""
    return unicodedata.normalize("NFC", name).strip()


def check_name(name: str) -> str:
    """Return the name of an assessor in normal form; raise Invalid if it is empty, long or has hidden characters."""
    name = normalize_name(name)
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise Invalid(f"must have 1 to {MAX_NAME_LENGTH} characters", kind="bad-name", parameter="name")
    if any(unicodedata.category(character) in HIDDEN_CATEGORIES for character in name):
        raise Invalid("has control characters or other hidden characters", kind="bad-name", parameter="name")
    return name


# Assessors.


def create_assessor(
    connection: Connection,
    name: str,
    *,
    now: int,
    kind: str = "human",
    password: str | None = None,
    subject: str | None = None,
    is_admin: bool = False,
    family: str | None = None,
    price: float = 1.0,
) -> Assessor:
    """Create an assessor.

    Args:
        connection: connection of a transaction.
        name: name, unique without regard to case.
        now: current time.
        kind: `human`, `llm` or `expert`.
        password: hash of the password.
        subject: identity at the single sign-on provider.
        is_admin: whether the assessor administers the service.
        family: family of an LLM judge.
        price: price of an answer.

    Raises:
        Conflict: the name or the subject exists.

    """
    name = check_name(name)
    if connection.execute(select(assessor.c.id).where(func.lower(assessor.c.name) == name.lower())).first():
        raise _name_taken_error(name)
    values = {
        "name": name,
        "kind": kind,
        "password": password,
        "subject": subject,
        "is_admin": is_admin,
        "family": family,
        "price": price,
        "created": now,
    }
    try:
        with connection.begin_nested():
            key = connection.execute(insert(assessor).values(values)).inserted_primary_key
    except IntegrityError as error:  # another transaction created it after the check
        raise _name_taken_error(name) from error
    assert key is not None
    return get_assessor(connection, key[0])


def _name_taken_error(name: str) -> Conflict:
    problem = f"{shown(name)} exists already"
    return Conflict(problem, kind="name-taken", parameter="name", fix="choose another name, or sign in")


def deactivated_error() -> Forbidden:
    """Return the error for an account that may not sign in."""
    return Forbidden("the account is deactivated", kind="not-active", fix="ask an administrator")


_ASSESSOR_FIELDS = ("id", "name", "kind", "family", "price", "is_admin", "is_active")


def _assessors() -> Select[Any]:
    can_sign_in = assessor.c.password.is_not(None) | assessor.c.subject.is_not(None)
    columns = (assessor.c[name] for name in _ASSESSOR_FIELDS)
    return select(*columns, can_sign_in.label("can_sign_in"))


def get_assessor(connection: Connection, assessor_id: int) -> Assessor:
    """Return an assessor; raise NotFound if there is none with this id."""
    row = connection.execute(_assessors().where(assessor.c.id == assessor_id)).first()
    if row is None:
        raise NotFound(f"there is no assessor {assessor_id}")
    return _assessor_of(row)


def find_assessor(connection: Connection, name: str) -> Assessor | None:
    """Return the assessor with a name, or None."""
    row = connection.execute(_assessors().where(assessor.c.name == name)).first()
    return None if row is None else _assessor_of(row)


def find_subject(connection: Connection, subject: str) -> Assessor | None:
    """Return the assessor with an identity at the single sign-on provider, or None."""
    row = connection.execute(_assessors().where(assessor.c.subject == subject)).first()
    return None if row is None else _assessor_of(row)


def list_assessors(connection: Connection) -> list[Assessor]:
    """Return all assessors by name."""
    return [_assessor_of(row) for row in connection.execute(_assessors().order_by(assessor.c.name))]


def _assessor_of(row: Any) -> Assessor:
    return Assessor(**{name: row._mapping[assessor.c[name]] for name in _ASSESSOR_FIELDS}, can_sign_in=row.can_sign_in)


def update_assessor(connection: Connection, assessor_id: int, changes: Mapping[str, Any]) -> Assessor:
    """Change the family, price, `is_admin` or `is_active` of an assessor; the last administrator stays.

    Raises:
        NotFound: there is no such assessor.
        Conflict: no active administrator would be left.

    """
    get_assessor(connection, assessor_id)
    if changes:
        connection.execute(update(assessor).where(assessor.c.id == assessor_id).values(**changes))
    if "price" in changes:
        of_assessor = select(membership.c.project_id).where(membership.c.assessor_id == assessor_id)
        forget_spending(connection, of_assessor)
    if {"is_admin", "is_active"} & set(changes) and count_admins(connection) == 0:
        raise Conflict("the service needs an active administrator", kind="last-admin", fix="name another one first")
    return get_assessor(connection, assessor_id)


def count_admins(connection: Connection) -> int:
    """Return the number of active administrators; a new service has none."""
    query = select(func.count()).select_from(assessor).where(assessor.c.is_admin, assessor.c.is_active)
    return connection.scalar(query) or 0


# Memberships.


def add_member(connection: Connection, project_id: int, assessor_id: int, role: str, now: int) -> Member:
    """Add an assessor to a project; a member becomes a lead if `role` is `lead`, and otherwise keeps the role."""
    member = find_member(connection, project_id, assessor_id)
    if member is None:
        values = {
            "project_id": project_id,
            "assessor_id": assessor_id,
            "role": role,
            "qualification": _first_qualification(connection, project_id),
            "created": now,
        }
        connection.execute(insert(membership).values(values))
    elif role == "lead":
        connection.execute(update(membership).where(_is_member(project_id, assessor_id)).values(role=role))
    return get_member(connection, project_id, assessor_id)


def _first_qualification(connection: Connection, project_id: int) -> str:
    found = project_of(connection.execute(select(project).where(project.c.id == project_id)).one())
    return "not-required" if found.qualification_share is None else "pending"


def _is_member(project_id: int, assessor_id: int) -> Any:
    return and_(membership.c.project_id == project_id, membership.c.assessor_id == assessor_id)


_MEMBER_COLUMNS = [membership.c[name] for name in Member.__dataclass_fields__ if name != "assessor"]


def _members() -> Select[Any]:
    joined = _assessors().join(membership, membership.c.assessor_id == assessor.c.id)
    return joined.add_columns(*_MEMBER_COLUMNS)


def _member_of(row: Any) -> Member:
    return Member(_assessor_of(row), *(row._mapping[column] for column in _MEMBER_COLUMNS))


def find_member(connection: Connection, project_id: int, assessor_id: int) -> Member | None:
    """Return the membership of an assessor in a project, or None."""
    row = connection.execute(_members().where(_is_member(project_id, assessor_id))).first()
    return None if row is None else _member_of(row)


def get_member(connection: Connection, project_id: int, assessor_id: int) -> Member:
    """Return the membership of an assessor in a project; raise NotFound if there is none."""
    member = find_member(connection, project_id, assessor_id)
    if member is None:
        raise NotFound(f"the project has no member {assessor_id}")
    return member


def list_members(connection: Connection, project_id: int) -> list[Member]:
    """Return the members of a project by name."""
    rows = connection.execute(_members().where(membership.c.project_id == project_id).order_by(assessor.c.name))
    return [_member_of(row) for row in rows]


def update_member(
    connection: Connection, project_id: int, assessor_id: int, *, role: str | None = None, is_paused: bool | None = None
) -> Member:
    """Change the role of a member, or pause the member; None keeps what is stored."""
    get_member(connection, project_id, assessor_id)
    changes: dict[str, Any] = {
        name: value for name, value in (("role", role), ("is_paused", is_paused)) if value is not None
    }
    if is_paused is not None:
        changes["pause_reason"] = None
    if changes:
        connection.execute(update(membership).where(_is_member(project_id, assessor_id)).values(changes))
    return get_member(connection, project_id, assessor_id)


def remove_member(connection: Connection, project: Project, assessor_id: int, now: int) -> Member:
    """Remove a member from a project; the answers stay, leases end, and tokens limited to the project are revoked.

    Returns:
        The membership that has ended.

    Raises:
        NotFound: there is no such member.

    """
    member = get_member(connection, project.id, assessor_id)
    release_leases(connection, project, assessor_id, now)
    revoke_project_tokens(connection, project.id, assessor_id, now)
    connection.execute(delete(membership).where(_is_member(project.id, assessor_id)))
    return member


# Who sends a request.

_ACTORS = _assessors().add_columns(*project.c, *_MEMBER_COLUMNS).where(assessor.c.is_active)
_WITH_PROJECT = assessor.outerjoin(project, project.c.name == bindparam("project")).outerjoin(
    membership, and_(membership.c.project_id == project.c.id, membership.c.assessor_id == assessor.c.id)
)
_BY_SESSION = (
    _ACTORS.add_columns(session.c.last_seen)
    .select_from(_WITH_PROJECT.join(session, session.c.assessor_id == assessor.c.id))
    .where(
        session.c.digest == bindparam("digest"),
        session.c.expires > bindparam("now"),
        session.c.last_seen > bindparam("idle_since"),
    )
)
_BY_TOKEN = (
    _ACTORS.add_columns(token.c.scopes, token.c.project_id.label("token_project_id"))
    .select_from(_WITH_PROJECT.join(token, token.c.assessor_id == assessor.c.id))
    .where(
        token.c.digest == bindparam("digest"),
        token.c.revoked.is_(None),
        token.c.expires.is_(None) | (token.c.expires > bindparam("now")),
    )
)


def find_session_actor(
    connection: Connection, secret: str, now: int, limits: SessionLimits, project_name: str | None = None
) -> Actor | None:
    """Return who has the session with a secret, and the project of a name.

    Returns:
        None if the session is unknown or expired, or the assessor is not active.

    """
    digest = digest_of(secret)
    values = {"digest": digest, "now": now, "idle_since": now - limits.idle, "project": project_name}
    row = connection.execute(_BY_SESSION, values).first()
    if row is None:
        return None
    found = Session(digest, row._mapping[assessor.c.id], row.last_seen, form_token_of(secret))
    return Actor(_assessor_of(row), found, **_visible_project(row))


def find_token_actor(connection: Connection, secret: str, now: int, project_name: str | None = None) -> Actor | None:
    """Return whom the token with a secret acts for, and the project of a name.

    Returns:
        None if the token is unknown, expired or revoked, or the assessor is not active.

    """
    values = {"digest": digest_of(secret), "now": now, "project": project_name}
    row = connection.execute(_BY_TOKEN, values).first()
    if row is None:
        return None
    return Actor(_assessor_of(row), None, tuple(row.scopes), row.token_project_id, **_visible_project(row))


def _visible_project(row: Any) -> dict[str, Any]:
    """Return the project of a row and the membership in it; nothing if the assessor may not see the project."""
    if row._mapping[project.c.id] is None or (row.role is None and not row.is_admin):
        return {}
    return {"project": project_of(row), "member": None if row.role is None else _member_of(row)}


# Invitations.


def create_invitation(
    connection: Connection,
    *,
    role: str,
    now: int,
    expires: int,
    kind: str = "human",
    project_id: int | None = None,
    assessor_id: int | None = None,
    uses: int = 1,
    created_by: int | None = None,
) -> tuple[Invitation, str]:
    """Create an invitation.

    Args:
        connection: connection of a transaction.
        role: role of those who join: `admin` (without a project), `lead` or `judge`.
        now: current time.
        expires: time after which the invitation is invalid.
        kind: kind of assessor of those who join.
        project_id: project to join.
        assessor_id: assessor who sets a new password with it, instead of a new member.
        uses: number of assessors who can join.
        created_by: assessor who invites.

    Returns:
        The invitation and its secret, which is part of the link and not stored.

    """
    secret = new_secret("invitation")
    values = {
        "digest": digest_of(secret),
        "project_id": project_id,
        "role": role,
        "kind": kind,
        "assessor_id": assessor_id,
        "uses_left": uses,
        "expires": expires,
        "created_by": created_by,
        "created": now,
    }
    key = connection.execute(insert(invitation).values(values)).inserted_primary_key
    assert key is not None
    return _invitation_of(connection.execute(_invitations().where(invitation.c.id == key[0])).one()), secret


def _invitations() -> Select[Any]:
    columns = (invitation.c[name] for name in Invitation.__dataclass_fields__ if name != "project_name")
    joined = invitation.outerjoin(project, project.c.id == invitation.c.project_id)
    return select(*columns, project.c.name.label("project_name")).select_from(joined)


def _invitation_of(row: Any) -> Invitation:
    return Invitation(*(getattr(row, name) for name in Invitation.__dataclass_fields__))


def list_invitations(connection: Connection, project_id: int | None) -> list[Invitation]:
    """Return the invitations to a project, or those to the service (None), newest first."""
    chosen = invitation.c.project_id.is_(None) if project_id is None else invitation.c.project_id == project_id
    return [_invitation_of(row) for row in connection.execute(_invitations().where(chosen).order_by(-invitation.c.id))]


def revoke_invitation(connection: Connection, project_id: int | None, invitation_id: int, now: int) -> None:
    """Revoke an invitation to a project, or one to the service (None); raise NotFound if there is none."""
    chosen = invitation.c.project_id.is_(None) if project_id is None else invitation.c.project_id == project_id
    where = and_(chosen, invitation.c.id == invitation_id)
    if connection.execute(select(invitation.c.id).where(where)).first() is None:
        raise NotFound(f"there is no invitation {invitation_id}")
    connection.execute(update(invitation).where(where, invitation.c.revoked.is_(None)).values(revoked=now))


def find_invitation(connection: Connection, secret: str, now: int) -> Invitation:
    """Return the invitation with a secret; raise NotFound if it is unknown, used up, expired or revoked."""
    row = connection.execute(_invitations().where(_is_valid(secret, now))).first()
    if row is None:
        raise _invalid_invitation_error()
    return _invitation_of(row)


def use_invitation(connection: Connection, secret: str, now: int) -> Invitation:
    """Take one use of an invitation, atomically; raise NotFound if none is left."""
    taken = update(invitation).where(_is_valid(secret, now)).values(uses_left=invitation.c.uses_left - 1)
    if connection.execute(taken).rowcount == 0:
        raise _invalid_invitation_error()
    return _invitation_of(connection.execute(_invitations().where(invitation.c.digest == digest_of(secret))).one())


def _is_valid(secret: str, now: int) -> Any:
    usable = and_(invitation.c.uses_left > 0, invitation.c.expires > now, invitation.c.revoked.is_(None))
    return and_(invitation.c.digest == digest_of(secret), usable)


def _invalid_invitation_error() -> NotFound:
    problem = "is unknown, used up, expired or revoked"
    return NotFound(problem, kind="bad-invitation", parameter="invitation", fix="ask for a new link")


def accept_invitation(connection: Connection, secret: str, person: Assessor, now: int) -> Invitation:
    """Use an invitation for an assessor: add the membership, or the rights of an administrator.

    An assessor who has all that already does not use it up.
    """
    found = find_invitation(connection, secret, now)
    if found.assessor_id is not None:  # sets a password, and adds no member
        raise _invalid_invitation_error()
    if not _adds_rights(connection, found, person):
        return found
    use_invitation(connection, secret, now)
    if found.project_id is None:
        update_assessor(connection, person.id, {"is_admin": True})
    else:
        add_member(connection, found.project_id, person.id, found.role, now)
    details = {"invitation": found.id, "role": found.role}
    record_audit(connection, "invitation.accept", details, assessor_id=person.id, project_id=found.project_id, now=now)
    return found


def _adds_rights(connection: Connection, found: Invitation, person: Assessor) -> bool:
    if found.project_id is None:
        return not person.is_admin
    member = find_member(connection, found.project_id, person.id)
    return member is None or (found.role == "lead" and member.role != "lead")


# Log of administrative changes.


def record_audit(
    connection: Connection,
    action: str,
    details: Mapping[str, Any],
    *,
    now: int,
    assessor_id: int | None = None,
    project_id: int | None = None,
) -> None:
    """Add an administrative change to the log; `details` must not have secrets."""
    values = {
        "at": now,
        "assessor_id": assessor_id,
        "project_id": project_id,
        "action": action,
        "details": dict(details),
    }
    connection.execute(insert(audit).values(values))


def list_audit(
    connection: Connection, *, project_id: int | None = None, before: int | None = None, limit: int = 100
) -> Sequence[AuditEntry]:
    """Return the newest entries of the log, of one project or of all, with ids below `before`."""
    joined = audit.outerjoin(assessor, assessor.c.id == audit.c.assessor_id)
    joined = joined.outerjoin(project, project.c.id == audit.c.project_id)
    columns = (audit.c.id, audit.c.at, assessor.c.name.label("assessor"), project.c.name.label("project"))
    query = select(*columns, audit.c.action, audit.c.details).select_from(joined)
    if project_id is not None:
        query = query.where(audit.c.project_id == project_id)
    if before is not None:
        query = query.where(audit.c.id < before)
    rows = connection.execute(query.order_by(-audit.c.id).limit(limit))
    return [AuditEntry(*(getattr(row, name) for name in AuditEntry.__dataclass_fields__)) for row in rows]
