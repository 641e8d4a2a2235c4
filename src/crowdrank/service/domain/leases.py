"""Leases: pairs that are reserved for a member of a project, who may judge them.

A place is one label that the quota of a pair allows. A lease takes a place of a pair for one assessor until it is
answered, returned or expired.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import BindParameter, Connection, Row, RowMapping, and_, bindparam, insert, select, update

from crowdrank.errors import shown
from crowdrank.service.domain.pairs import (
    CONTENT_COLUMNS,
    PAIRS_WITH_TEXTS,
    ComparisonContent,
    PairContent,
    pair_content,
)
from crowdrank.service.domain.projects import Project
from crowdrank.service.domain.quotas import LabelSlot, release_places
from crowdrank.service.service_errors import Conflict, Forbidden, NotFound
from crowdrank.service.store import schema

MAX_EXPIRED_LEASES = 100
"""Maximum number of expired leases that one request ends."""
Pair = tuple[int, int]
"""Id and generation of a pair."""
Status = Literal["judging", "training", "done", "paused", "not-qualified", "closed"]
"""What an assessor can do: judge the leased pairs, answer training pairs, or nothing for the reason given."""


@dataclass(frozen=True)
class Lease:
    """Pair that is reserved for an assessor.

    Attributes:
        token: sent back with the answer.
        expires: time in milliseconds after which an answer is late.
        content: the texts of the pair.

    """

    token: str
    expires: int
    content: ComparisonContent | PairContent


@dataclass(frozen=True)
class JudgingMember:
    """Assessor and membership in a project, as far as assignment needs them; the row is locked."""

    assessor_id: int
    name: str
    kind: str
    price: float
    is_paused: bool
    qualification: str
    n_leases: int
    last_query_id: int | None
    flag: str | None
    relative_information: float | None


# Statements are built once; their parameters are `in_project`, `me` (assessor) and `now`.

_LEASE, _PAIR = schema.lease, schema.pair
_ASSESSOR_ID: BindParameter[int] = bindparam("me")
_PROJECT_ID: BindParameter[int] = bindparam("in_project")
_NOW: BindParameter[int] = bindparam("now")
_IS_MEMBERSHIP = and_(schema.membership.c.project_id == _PROJECT_ID, schema.membership.c.assessor_id == _ASSESSOR_ID)
SELECT_MEMBER = (
    select(
        schema.assessor.c.id.label("assessor_id"),
        schema.assessor.c.name,
        schema.assessor.c.kind,
        schema.assessor.c.price,
        schema.membership.c.is_paused,
        schema.membership.c.qualification,
        schema.membership.c.n_leases,
        schema.membership.c.last_query_id,
        schema.membership.c.flag,
        schema.membership.c.relative_information,
    )
    .join_from(schema.membership, schema.assessor)
    .where(_IS_MEMBERSHIP)
    .with_for_update(of=schema.membership)
)
IS_EXPIRED = and_(_LEASE.c.ended.is_(None), _LEASE.c.expires <= _NOW)
_SELECT_EXPIRED_LEASES = (
    select(_LEASE.c.id, _LEASE.c.pair_id, schema.assessor.c.kind, _LEASE.c.generation)
    .join_from(_LEASE, schema.assessor)
    .where(IS_EXPIRED)
    .order_by(_LEASE.c.expires)
    .limit(bindparam("limit"))
    .with_for_update(of=_LEASE, skip_locked=True)
)
_END_LEASES = (
    update(_LEASE)
    .where(_LEASE.c.id.in_(bindparam("ids", expanding=True)))
    .values(ended=_NOW, end_kind=bindparam("end"))
)
_SELECT_CONTENTS = (
    select(*CONTENT_COLUMNS).select_from(PAIRS_WITH_TEXTS).where(_PAIR.c.id.in_(bindparam("pairs", expanding=True)))
)
_SELECT_LIVE_LEASES = (
    select(_LEASE.c.token, _LEASE.c.expires, _LEASE.c.is_swapped, *CONTENT_COLUMNS)
    .select_from(PAIRS_WITH_TEXTS.join(_LEASE, _LEASE.c.pair_id == _PAIR.c.id))
    .where(
        _LEASE.c.assessor_id == _ASSESSOR_ID,
        _LEASE.c.ended.is_(None),
        _LEASE.c.expires > _NOW,
        _PAIR.c.project_id == _PROJECT_ID,
    )
    .order_by(_LEASE.c.is_undo.desc(), _LEASE.c.id)
    .limit(bindparam("limit"))
)
_SELECT_LIVE_LEASES_BY_TOKEN = _SELECT_LIVE_LEASES.where(_LEASE.c.token.in_(bindparam("tokens", expanding=True)))
_SELECT_UNENDED_LEASES = (
    select(_LEASE.c.id, _LEASE.c.pair_id, _LEASE.c.generation, _LEASE.c.token)
    .join_from(_LEASE, _PAIR)
    .where(_LEASE.c.assessor_id == _ASSESSOR_ID, _LEASE.c.ended.is_(None), _PAIR.c.project_id == _PROJECT_ID)
    .order_by(_LEASE.c.id)
    .with_for_update(of=_LEASE)
)


def lock_member(connection: Connection, project: Project, assessor_id: int) -> JudgingMember:
    """Return a member of a project and lock the row until the transaction ends; raise NotFound for others."""
    row = connection.execute(SELECT_MEMBER, {"in_project": project.id, "me": assessor_id}).mappings().first()
    return JudgingMember(**require_member(row, project))


def require_member(row: RowMapping | None, project: Project) -> RowMapping:
    """Return the row of a member; raise NotFound if there is none."""
    if row is None:
        problem = f"you are not a member of project {shown(project.name)}"
        raise NotFound(problem, kind="no-membership", fix="join it with an invitation link")
    return row


def member_status(project: Project, member: JudgingMember) -> Status:
    """Return whether a member can judge or train now, or the reason why not."""
    if not project.is_open:
        return "closed"
    if member.is_paused:
        return "paused"
    if project.qualification_share is not None and member.qualification == "pending":
        return "training"
    if project.qualification_share is not None and member.qualification == "failed":
        return "not-qualified"
    return "judging"


def pair_price(project: Project, member: JudgingMember) -> float:
    """Return the largest price of an answer to a pair: LLM judges may compare two documents in both orders."""
    return member.price * (2 if project.asks_preferences and member.kind == "llm" else 1)


def require_judging(project: Project, member: JudgingMember) -> None:
    """Raise an error unless a member may judge pairs without a lease."""
    status, named = member_status(project, member), f"project {shown(project.name)}"
    if status == "closed":
        raise Conflict(f"{named} is closed", kind="closed", fix="ask a lead to open it")
    if status == "paused":
        raise Forbidden(f"a lead has paused your work in {named}", kind="paused", fix="ask a lead")
    if status != "judging":
        fix = "answer the training pairs first" if status == "training" else "ask a lead"
        raise Forbidden(f"you have not passed the training of {named}", kind="not-qualified", fix=fix)


def end_expired_leases(connection: Connection, now: int, limit: int = MAX_EXPIRED_LEASES) -> int:
    """End leases that have expired, in all projects, and release their places; return their number."""
    rows = connection.execute(_SELECT_EXPIRED_LEASES, {"now": now, "limit": limit}).all()
    _end_leases(connection, rows, "expired", now)
    return len(rows)


def release_leases(
    connection: Connection, project: Project, assessor_id: int, now: int, tokens: Sequence[str] | None = None
) -> int:
    """End leases of an assessor and release their places; return their number.

    Args:
        connection: connection in a write transaction.
        project: the project.
        assessor_id: the assessor.
        now: time in milliseconds.
        tokens: tokens of the leases; None for all.

    """
    member = lock_member(connection, project, assessor_id)
    rows = [
        row
        for row in connection.execute(_SELECT_UNENDED_LEASES, {"me": assessor_id, "in_project": project.id})
        if tokens is None or row.token in tokens
    ]
    released = [(row.id, row.pair_id, member.kind, row.generation) for row in rows]
    _end_leases(connection, released, "returned", now)
    return len(rows)


def insert_leases(
    connection: Connection,
    project: Project,
    assessor_id: int,
    pairs: Iterable[Pair],
    now: int,
    *,
    is_undo: bool = False,
) -> list[Lease]:
    """Insert leases on pairs, given by id and generation, whose places are taken already; return them."""
    rows: list[dict[str, Any]] = [
        {
            "token": secrets.token_urlsafe(16),
            "pair_id": pair_id,
            "assessor_id": assessor_id,
            "generation": generation,
            "issued": now,
            "expires": now + 1000 * project.lease_seconds,
            "is_undo": is_undo,
            "is_swapped": project.asks_preferences and _draw_sides(project, assessor_id, pair_id, generation),
        }
        for pair_id, generation in pairs
    ]
    if not rows:
        return []
    connection.execute(insert(_LEASE), rows)
    found = connection.execute(_SELECT_CONTENTS, {"pairs": [row["pair_id"] for row in rows]})
    contents = {row.pair_id: row for row in found}
    return [
        Lease(row["token"], row["expires"], pair_content(contents[row["pair_id"]], is_swapped=row["is_swapped"]))
        for row in rows
    ]


def _draw_sides(project: Project, assessor_id: int, pair_id: int, generation: int) -> bool:
    """Return whether an assessor sees the documents of a comparison swapped: random, and the same after undo."""
    return random.Random(f"{project.id} {assessor_id} {pair_id} {generation}").random() < 0.5


def find_live_leases(connection: Connection, project: Project, assessor_id: int, limit: int, now: int) -> list[Lease]:
    """Return at most `limit` live leases of an assessor."""
    values = {"me": assessor_id, "in_project": project.id, "now": now, "limit": limit}
    return [_lease(row) for row in connection.execute(_SELECT_LIVE_LEASES, values)]


def get_leases(
    connection: Connection, project: Project, assessor_id: int, tokens: Sequence[str], now: int
) -> list[Lease]:
    """Return live leases of an assessor by their tokens."""
    values = {"me": assessor_id, "in_project": project.id, "now": now, "limit": len(tokens), "tokens": tokens}
    return [_lease(row) for row in connection.execute(_SELECT_LIVE_LEASES_BY_TOKEN, values)]


def _lease(row: Row[*tuple[Any, ...]]) -> Lease:
    return Lease(row.token, row.expires, pair_content(row, is_swapped=row.is_swapped))


def _end_leases(connection: Connection, rows: Sequence[Sequence[Any]], end: str, now: int) -> None:
    """End leases, given by id, pair, kind of assessor and generation."""
    if rows:
        connection.execute(_END_LEASES, {"ids": [row[0] for row in rows], "now": now, "end": end})
        release_places(connection, [LabelSlot(*row[1:]) for row in rows])
