"""What happens when the model flags an assessor: a notice, more honeypots or a pause, as the lead has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from crowdrank.assessors.flags import UNRELIABLE_FLAGS
from crowdrank.service import schema
from crowdrank.service.people import record_audit
from crowdrank.service.projects import Project

ACTING_FLAGS = ("careless", *UNRELIABLE_FLAGS)
"""Flags that lead to an action: the answers have little information, none, or are reversed."""
NEW_ANSWERS = 50
"""Number of further answers after which the same flag is new evidence."""

_MEMBERSHIP, _ASSESSOR = schema.membership, schema.assessor
_MEMBERS = (
    select(
        _MEMBERSHIP.c.assessor_id,
        _MEMBERSHIP.c.is_paused,
        _MEMBERSHIP.c.flag,
        _MEMBERSHIP.c.acted_flag,
        _MEMBERSHIP.c.acted_answers,
        _ASSESSOR.c.name,
    )
    .join_from(_MEMBERSHIP, _ASSESSOR)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"))
    .order_by(_MEMBERSHIP.c.assessor_id)
    .with_for_update(of=_MEMBERSHIP)
)


@dataclass(frozen=True)
class Flag:
    """Flag of an assessor, the evidence, and the number of answers that it is based on."""

    name: str
    evidence: str
    n_answers: int


def act_on_flags(connection: Connection, project: Project, flags: Mapping[int, Flag], now: int) -> list[str]:
    """Act on flags of members; return the names of those acted on.

    A flag acts once. It acts again if the assessor has given `NEW_ANSWERS` more answers and still has it.

    Args:
        connection: connection in a write transaction.
        project: the project, with what to do (`flag_action`).
        flags: flags by assessor id; only `ACTING_FLAGS` act.
        now: time in milliseconds.

    """
    acted = []
    for member in connection.execute(_MEMBERS, {"in_project": project.id}).all():
        flag = flags.get(member.assessor_id)
        flag = flag if flag is not None and flag.name in ACTING_FLAGS else None
        changes: dict[str, Any] = {}
        if member.flag != (None if flag is None else flag.name):
            changes["flag"] = None if flag is None else flag.name
        if flag is not None and _is_new(member, flag):
            changes |= {"acted_flag": flag.name, "acted_answers": flag.n_answers}
            if project.flag_action == "pause":
                changes |= {"is_paused": True, "pause_reason": f"{flag.name}: {flag.evidence}"}
            details = {"assessor": member.name, "flag": flag.name, "evidence": flag.evidence}
            details["action"] = project.flag_action
            record_audit(connection, "member.flag", details, project_id=project.id, now=now)
            acted.append(member.name)
        if changes:
            of_member = _MEMBERSHIP.c.assessor_id == member.assessor_id
            of_project = _MEMBERSHIP.c.project_id == project.id
            connection.execute(update(_MEMBERSHIP).where(of_member, of_project).values(changes))
    return acted


def _is_new(member: Row[*tuple[Any, ...]], flag: Flag) -> bool:
    if member.is_paused:
        return False
    return member.acted_flag != flag.name or flag.n_answers >= (member.acted_answers or 0) + NEW_ANSWERS
