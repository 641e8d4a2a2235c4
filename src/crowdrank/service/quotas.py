"""Quotas: the places of each real pair, by kind of assessor.

A place is taken by a counted answer of the current round or by a lease that has not ended. To avoid deadlocks,
transactions lock rows in this order: membership, spending, lease, quota; quotas by pair and kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, case, func, insert, select, update

from crowdrank.service import schema

_QUOTA = schema.quota
_IS_PLACE = (_QUOTA.c.pair_id == bindparam("of_pair")) & (_QUOTA.c.kind == bindparam("of_kind"))
_CHANGE = (
    update(_QUOTA)
    .where(_IS_PLACE, _QUOTA.c.round == bindparam("of_round"))
    .values(taken=_QUOTA.c.taken + bindparam("change"))
)
_LEASE = schema.lease
_HELD = (
    select(_LEASE.c.pair_id, schema.assessor.c.kind, _LEASE.c.round, func.count().label("n"))
    .join_from(_LEASE, schema.assessor)
    .where(_LEASE.c.ended.is_(None))
    .group_by(_LEASE.c.pair_id, schema.assessor.c.kind, _LEASE.c.round)
    .subquery()
)
QUOTAS_WITH_LEASES = _QUOTA.outerjoin(
    _HELD,
    and_(_HELD.c.pair_id == _QUOTA.c.pair_id, _HELD.c.kind == _QUOTA.c.kind, _HELD.c.round == _QUOTA.c.round),
)
N_COUNTED = _QUOTA.c.taken - func.coalesce(_HELD.c.n, 0)
"""Number of counted answers of a row of `QUOTAS_WITH_LEASES`."""
FIRST_PRIORITY = 1e6
"""Priority of pairs without a label in a project with a plan: above that of all others."""


class Quota(NamedTuple):
    """Number of labels per pair for one kind of assessor: wanted at least, and accepted at most."""

    k_min: int
    k_max: int


class Place(NamedTuple):
    """A place of a pair in a round."""

    pair_id: int
    kind: str
    round: int


def change_taken(connection: Connection, changes: Mapping[Place, int]) -> None:
    """Add to the numbers of places taken."""
    rows = [
        {"of_pair": place.pair_id, "of_kind": place.kind, "of_round": place.round, "change": change}
        for place, change in sorted(changes.items())
        if change
    ]
    if rows:
        connection.execute(_CHANGE, rows)


def release_places(connection: Connection, places: Iterable[Place]) -> None:
    """Release one place for each entry; pairs without a quota have no places."""
    counts = Counter(places)
    change_taken(connection, {place: -count for place, count in counts.items()})


def first_priority(*, is_planned: bool) -> dict[str, Any]:
    """Return the values of a quota of a pair without a label."""
    return {"priority": FIRST_PRIORITY if is_planned else 0.0, "is_unsettled": is_planned}


def add_quotas(
    connection: Connection,
    project_id: int,
    quotas: Mapping[str, Quota],
    pairs: Sequence[tuple[int, int, int, bool]],
    *,
    is_planned: bool = False,
    is_sampled: bool = False,
) -> None:
    """Create the quotas of new pairs.

    Args:
        connection: connection in a write transaction.
        project_id: project of the pairs.
        quotas: number of labels per pair, by kind of assessor.
        pairs: id, query id, round and whether it is open, of each pair.
        is_planned: whether fits of the model set the targets.
        is_sampled: whether labels are wanted only of pairs that are drawn.

    """
    rows = [
        {
            "pair_id": pair_id,
            "kind": kind,
            "project_id": project_id,
            "query_id": query_id,
            "round": round_,
            "is_open": is_open,
            "target": 0 if is_sampled else quota.k_min,
            "k_max": quota.k_max,
            **first_priority(is_planned=is_planned),
            "shuffle": random.random(),
        }
        for pair_id, query_id, round_, is_open in pairs
        for kind, quota in quotas.items()
        if quota.k_max > 0
    ]
    if rows:
        connection.execute(insert(_QUOTA), rows)


def change_quotas(
    connection: Connection,
    project_id: int,
    kind: str,
    quota: Quota,
    *,
    is_planned: bool = False,
    is_sampled: bool = False,
) -> None:
    """Change targets and limits of all real pairs of a project; a limit is never below the places taken.

    If fits of the model set the targets, all pairs may get labels up to the limit until the next fit. If labels are
    wanted only of pairs that were drawn, the target of the others is 0.
    """
    of_project = (_QUOTA.c.project_id == project_id) & (_QUOTA.c.kind == kind)
    connection.execute(select(_QUOTA.c.pair_id).where(of_project).order_by(_QUOTA.c.pair_id).with_for_update())
    limit = case((_QUOTA.c.taken > quota.k_max, _QUOTA.c.taken), else_=quota.k_max)
    target: Any = quota.k_min
    if is_sampled:
        target = case((_QUOTA.c.pair_id.in_(_sampled(project_id, kind)), quota.k_min), else_=0)
    values = {"k_max": limit, "target": target, "priority": 0.0, "is_unsettled": is_planned}
    connection.execute(update(_QUOTA).where(of_project).values(values))
    pair = schema.pair
    has_quota = select(_QUOTA.c.pair_id).where(_QUOTA.c.pair_id == pair.c.id, _QUOTA.c.kind == kind).exists()
    missing = connection.execute(
        select(pair.c.id, pair.c.query_id, pair.c.round, pair.c.is_open).where(
            pair.c.project_id == project_id, pair.c.kind == "real", ~has_quota
        )
    )
    modes = {"is_planned": is_planned, "is_sampled": is_sampled}
    add_quotas(connection, project_id, {kind: quota}, [tuple(row) for row in missing], **modes)


def set_sample_targets(connection: Connection, project_id: int, number: int, kind: str, quota: Quota) -> None:
    """Set the targets of the pairs that were drawn in a round."""
    drawn = _sampled(project_id, kind).where(schema.sampled_pair.c.round == number)
    of_round = (_QUOTA.c.kind == kind) & _QUOTA.c.pair_id.in_(drawn)
    connection.execute(select(_QUOTA.c.pair_id).where(of_round).order_by(_QUOTA.c.pair_id).with_for_update())
    connection.execute(update(_QUOTA).where(of_round).values(target=quota.k_min))


def _sampled(project_id: int, kind: str) -> Select[tuple[int]]:
    """Return the query for the pairs that were drawn for a kind of assessor."""
    sampled = schema.sampled_pair
    return select(sampled.c.pair_id).where(sampled.c.project_id == project_id, sampled.c.kind == kind)
