"""Endpoints of the people of a project: members, invitations, tokens of LLM judges, the log of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from crowdrank.service.domain import credentials, people
from crowdrank.service.domain.credentials import DAY
from crowdrank.service.domain.qualification import reset_qualification
from crowdrank.service.service_errors import Conflict, Invalid
from crowdrank.service.web import bodies
from crowdrank.service.web.access import AsLead, AsReader, ProjectAccess, ServiceDependency
from crowdrank.service.web.protection import StrictRoute
from crowdrank.service.web.routes.admin_routes import Before, Limit

router = APIRouter(route_class=StrictRoute, prefix="/projects/{project}", tags=["people of a project"])


@router.get("/members")
def get_members(access: AsReader, service: ServiceDependency) -> list[people.Member]:
    """Return the members of a project."""
    with service.database.read() as connection:
        return people.list_members(connection, access.project.id)


@router.post("/members", status_code=201)
def create_member(body: bodies.NewMember, access: AsLead, service: ServiceDependency) -> people.Member:
    """Create an LLM judge and add it; administrators can also add an assessor who exists. People join by a link."""
    now, project_id = service.database.now(), access.project.id

    def create(connection: Connection) -> people.Member:
        person = _existing(connection, access, body.name)
        if person is None:
            fields: dict[str, Any] = {"kind": "llm", "family": body.family, "price": body.price}
            person = people.create_assessor(connection, body.name, **fields, now=now)
        elif people.find_member(connection, project_id, person.id) is not None:
            raise Conflict("is a member already", kind="is-member", parameter="name")
        member = people.add_member(connection, project_id, person.id, body.role, now)
        access.audit(connection, "member.add", {"assessor": person.name, "role": body.role}, now)
        return member

    return service.database.write(create)


def _existing(connection: Connection, access: ProjectAccess, name: str) -> people.Assessor | None:
    """Return the assessor with a name for administrators; for leads, it is a conflict to name one who exists."""
    if not access.actor.assessor.is_admin:
        return None
    return people.find_assessor(connection, people.normalize_name(name))


@router.patch("/members/{assessor_id}")
def change_member(
    assessor_id: bodies.RowId, body: bodies.MemberChanges, access: AsLead, service: ServiceDependency
) -> people.Member:
    """Change the role of a member, pause the member, or reset the qualification."""
    now = service.database.now()

    def change(connection: Connection) -> people.Member:
        member = people.update_member(
            connection, access.project.id, assessor_id, role=body.role, is_paused=body.is_paused
        )
        if body.reset_qualification:
            reset_qualification(connection, access.project, assessor_id)
            member = people.get_member(connection, access.project.id, assessor_id)
        details = {"assessor": member.assessor.name, **body.model_dump(exclude_unset=True)}
        access.audit(connection, "member.change", details, now)
        return member

    return service.database.write(change)


@router.delete("/members/{assessor_id}", status_code=204)
def remove_member(assessor_id: bodies.RowId, access: AsLead, service: ServiceDependency) -> None:
    """Remove a member; the answers stay, leases end, and tokens limited to the project are revoked."""
    if assessor_id == access.actor.assessor.id:
        raise Conflict("you cannot remove yourself", kind="own-membership", fix="ask another lead")
    now = service.database.now()

    def remove(connection: Connection) -> None:
        member = people.remove_member(connection, access.project, assessor_id, now)
        access.audit(connection, "member.remove", {"assessor": member.assessor.name, "role": member.role}, now)

    service.database.write(remove)


@router.get("/invitations", response_model=list[bodies.InvitationView])
def get_invitations(access: AsReader, service: ServiceDependency) -> list[people.Invitation]:
    """Return the invitations to a project."""
    with service.database.read() as connection:
        return people.list_invitations(connection, access.project.id)


@router.post("/invitations", response_model=bodies.CreatedInvitation, status_code=201)
def create_invitation(body: bodies.NewInvitation, access: AsLead, service: ServiceDependency) -> dict[str, Any]:
    """Create an invitation to a project; only this response contains the secret of the link."""
    now = service.database.now()
    expires = now + (service.settings.invitation_lifetime if body.days is None else round(body.days * DAY))

    def create(connection: Connection) -> dict[str, Any]:
        fields: dict[str, Any] = {"role": body.role, "kind": body.kind, "uses": body.uses, "expires": expires}
        fields |= {"project_id": access.project.id, "created_by": access.actor.assessor.id}
        invitation, secret = people.create_invitation(connection, **fields, now=now)
        access.audit(connection, "invitation.create", {"invitation": invitation.id, **body.model_dump()}, now)
        return {"invitation": invitation, "secret": secret}

    return service.database.write(create)


@router.delete("/invitations/{invitation_id}", status_code=204)
def revoke_invitation(invitation_id: bodies.RowId, access: AsLead, service: ServiceDependency) -> None:
    """Revoke an invitation to a project."""
    now = service.database.now()

    def revoke(connection: Connection) -> None:
        people.revoke_invitation(connection, access.project.id, invitation_id, now)
        access.audit(connection, "invitation.revoke", {"invitation": invitation_id}, now)

    service.database.write(revoke)


@router.get("/tokens", response_model=list[bodies.TokenView])
def get_project_tokens(access: AsReader, service: ServiceDependency) -> list[credentials.Token]:
    """Return the tokens that are limited to a project."""
    with service.database.read() as connection:
        return credentials.list_tokens(connection, project_id=access.project.id)


@router.post("/tokens", response_model=bodies.CreatedToken, status_code=201)
def create_project_token(body: bodies.NewProjectToken, access: AsLead, service: ServiceDependency) -> dict[str, Any]:
    """Create a token with which an LLM judge answers; only this response contains its secret."""
    now = service.database.now()
    expires = None if body.days is None else now + round(body.days * DAY)

    def create(connection: Connection) -> dict[str, Any]:
        person = people.get_member(connection, access.project.id, body.assessor_id).assessor
        if person.kind != "llm" or person.can_sign_in or person.is_admin:
            problem = "must be an LLM judge without a password; people create their tokens themselves"
            raise Invalid(problem, kind="not-an-llm-judge", parameter="assessor_id")
        fields: dict[str, Any] = {"name": body.name, "scopes": ["judge"], "expires": expires}
        token, secret = credentials.create_token(connection, person.id, **fields, project_id=access.project.id, now=now)
        access.audit(connection, "token.create", {"token": token.id, "assessor": person.name}, now)
        return {"token": token, "secret": secret}

    return service.database.write(create)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_project_token(token_id: bodies.RowId, access: AsLead, service: ServiceDependency) -> None:
    """Revoke a token that is limited to a project."""
    now = service.database.now()

    def revoke(connection: Connection) -> None:
        credentials.revoke_token(connection, token_id, now, project_id=access.project.id)
        access.audit(connection, "token.revoke", {"token": token_id}, now)

    service.database.write(revoke)


@router.get("/audit")
def get_project_audit(
    access: AsReader, service: ServiceDependency, before: Before = None, limit: Limit = 100
) -> Sequence[people.AuditEntry]:
    """Return the log of changes of a project, newest first."""
    with service.database.read() as connection:
        return people.list_audit(connection, project_id=access.project.id, before=before, limit=limit)
