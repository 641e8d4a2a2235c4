"""Endpoints of administrators: all assessors, invitations to administer, the log of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from crowdrank.service.domain import credentials, people
from crowdrank.service.domain.credentials import DAY
from crowdrank.service.domain.people import Actor
from crowdrank.service.web import bodies
from crowdrank.service.web.access import AsAdmin, AsAdminReader, Service, ServiceDependency
from crowdrank.service.web.protection import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["administration"])

Before = Annotated[int | None, Query(ge=1, le=bodies.MAX_ID, description="Only entries with lower ids.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")]


@router.get("/assessors")
def get_assessors(actor: AsAdminReader, service: ServiceDependency) -> list[people.Assessor]:
    """Return all assessors."""
    with service.database.read() as connection:
        return people.list_assessors(connection)


@router.patch("/assessors/{assessor_id}")
def change_assessor(
    assessor_id: bodies.RowId, body: bodies.AssessorChanges, actor: AsAdmin, service: ServiceDependency
) -> people.Assessor:
    """Change an assessor; the sessions of one who is no longer active end."""
    changes = body.model_dump(exclude_unset=True)
    changes = {name: value for name, value in changes.items() if value is not None or name == "family"}
    now = service.database.now()

    def change(connection: Connection) -> people.Assessor:
        changed = people.update_assessor(connection, assessor_id, changes)
        if not changed.is_active:
            credentials.end_sessions(connection, assessor_id)
        details = {"assessor": changed.name, **changes}
        people.record_audit(connection, "assessor.change", details, assessor_id=actor.assessor.id, now=now)
        return changed

    return service.database.write(change)


@router.post("/assessors/{assessor_id}/password-link", response_model=bodies.CreatedInvitation, status_code=201)
def create_password_link(
    assessor_id: bodies.RowId, body: bodies.NewAdminInvitation, actor: AsAdmin, service: ServiceDependency
) -> dict[str, Any]:
    """Create a link by which an assessor sets a new password; only this response contains its secret."""
    return _create_invitation(service, actor, body.days, "password-link.create", role="judge", assessor_id=assessor_id)


@router.get("/invitations", response_model=list[bodies.InvitationView])
def get_admin_invitations(actor: AsAdminReader, service: ServiceDependency) -> list[people.Invitation]:
    """Return the invitations to administer the service, and the links for new passwords."""
    with service.database.read() as connection:
        return people.list_invitations(connection, None)


@router.post("/invitations", response_model=bodies.CreatedInvitation, status_code=201)
def create_admin_invitation(
    body: bodies.NewAdminInvitation, actor: AsAdmin, service: ServiceDependency
) -> dict[str, Any]:
    """Invite an administrator; only this response contains the secret of the link."""
    return _create_invitation(service, actor, body.days, "invitation.create", role="admin")


def _create_invitation(
    service: Service, actor: Actor, days: float | None, action: str, *, role: str, assessor_id: int | None = None
) -> dict[str, Any]:
    now, me = service.database.now(), actor.assessor.id
    expires = now + (service.settings.invitation_lifetime if days is None else round(days * DAY))

    def create(connection: Connection) -> dict[str, Any]:
        if assessor_id is not None:
            people.get_assessor(connection, assessor_id)
        fields: dict[str, Any] = {"role": role, "assessor_id": assessor_id, "expires": expires, "created_by": me}
        invitation, secret = people.create_invitation(connection, **fields, now=now)
        details = {"invitation": invitation.id, "role": role, "assessor": assessor_id}
        people.record_audit(connection, action, details, assessor_id=me, now=now)
        return {"invitation": invitation, "secret": secret}

    return service.database.write(create)


@router.delete("/invitations/{invitation_id}", status_code=204)
def revoke_admin_invitation(invitation_id: bodies.RowId, actor: AsAdmin, service: ServiceDependency) -> None:
    """Revoke an invitation to administer the service, or a link for a new password."""
    now, me = service.database.now(), actor.assessor.id

    def revoke(connection: Connection) -> None:
        people.revoke_invitation(connection, None, invitation_id, now)
        people.record_audit(connection, "invitation.revoke", {"invitation": invitation_id}, assessor_id=me, now=now)

    service.database.write(revoke)


@router.get("/audit")
def get_audit(
    actor: AsAdminReader, service: ServiceDependency, before: Before = None, limit: Limit = 100
) -> Sequence[people.AuditEntry]:
    """Return the log of administrative changes, newest first."""
    with service.database.read() as connection:
        return people.list_audit(connection, before=before, limit=limit)
