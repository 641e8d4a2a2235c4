"""Quotas and budgets: how many labels of each kind of assessor a pair gets, and what a project may spend.

A place is taken by a counted answer of the current generation or by a lease that has not ended. To avoid deadlocks,
transactions lock rows in this order: membership, spending, lease, quota; quotas by pair and kind.

The table `spending` has an upper bound of the price of all answers and live leases. Every new lease adds to it, and so
does every answer without a live lease. If the bound reaches the budget, the exact amount is computed again. The row of
a project is locked before its leases and quotas, so that requests at the same time do not pass the budget together.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, case, delete, func, insert, select, update

from crowdrank.service.domain.project_settings import Quota
from crowdrank.service.store import schema

if TYPE_CHECKING:
    from crowdrank.service.domain.projects import Project

_QUOTA = schema.quota
_IS_PLACE = (_QUOTA.c.pair_id == bindparam("of_pair")) & (_QUOTA.c.kind == bindparam("of_kind"))
_CHANGE = (
    update(_QUOTA)
    .where(_IS_PLACE, _QUOTA.c.generation == bindparam("of_generation"))
    .values(taken=_QUOTA.c.taken + bindparam("change"))
)
_LEASE = schema.lease
_HELD = (
    select(_LEASE.c.pair_id, schema.assessor.c.kind, _LEASE.c.generation, func.count().label("n"))
    .join_from(_LEASE, schema.assessor)
    .where(_LEASE.c.ended.is_(None))
    .group_by(_LEASE.c.pair_id, schema.assessor.c.kind, _LEASE.c.generation)
    .subquery()
)
QUOTAS_WITH_LEASES = _QUOTA.outerjoin(
    _HELD,
    and_(_HELD.c.pair_id == _QUOTA.c.pair_id, _HELD.c.kind == _QUOTA.c.kind, _HELD.c.generation == _QUOTA.c.generation),
)
N_COUNTED = _QUOTA.c.taken - func.coalesce(_HELD.c.n, 0)
"""Number of counted answers of a row of `QUOTAS_WITH_LEASES`."""
FIRST_PRIORITY = 1e6
"""Priority of pairs without a label in a project with a plan: above that of all others."""


class LabelSlot(NamedTuple):
    """One label that a pair gets from a kind of assessor, in one generation of the pair."""

    pair_id: int
    kind: str
    generation: int


def change_taken(connection: Connection, changes: Mapping[LabelSlot, int]) -> None:
    """Add to the numbers of places taken, by label slot; a place is a counted answer or a lease."""
    rows = [
        {"of_pair": place.pair_id, "of_kind": place.kind, "of_generation": place.generation, "change": change}
        for place, change in sorted(changes.items())
        if change
    ]
    if rows:
        connection.execute(_CHANGE, rows)


def release_places(connection: Connection, places: Iterable[LabelSlot]) -> None:
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
        pairs: id, query id, generation and whether it is open, of each pair.
        is_planned: whether fits of the model set the targets.
        is_sampled: whether labels are wanted only of pairs that are drawn.

    """
    rows = [
        {
            "pair_id": pair_id,
            "kind": kind,
            "project_id": project_id,
            "query_id": query_id,
            "generation": generation,
            "is_open": is_open,
            "target": 0 if is_sampled else quota.k_min,
            "k_max": quota.k_max,
            **first_priority(is_planned=is_planned),
            "shuffle": random.random(),
        }
        for pair_id, query_id, generation, is_open in pairs
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
        select(pair.c.id, pair.c.query_id, pair.c.generation, pair.c.is_open).where(
            pair.c.project_id == project_id, pair.c.kind == "real", ~has_quota
        )
    )
    modes = {"is_planned": is_planned, "is_sampled": is_sampled}
    add_quotas(connection, project_id, {kind: quota}, [tuple(row) for row in missing], **modes)


def set_sample_targets(connection: Connection, project_id: int, draw_number: int, kind: str, quota: Quota) -> None:
    """Set the targets of the pairs of a draw."""
    drawn = _sampled(project_id, kind).where(schema.sampled_pair.c.draw == draw_number)
    is_drawn = (_QUOTA.c.kind == kind) & _QUOTA.c.pair_id.in_(drawn)
    connection.execute(select(_QUOTA.c.pair_id).where(is_drawn).order_by(_QUOTA.c.pair_id).with_for_update())
    connection.execute(update(_QUOTA).where(is_drawn).values(target=quota.k_min))


def _sampled(project_id: int, kind: str) -> Select[tuple[int]]:
    """Return the query for the pairs that were drawn for a kind of assessor."""
    sampled = schema.sampled_pair
    return select(sampled.c.pair_id).where(sampled.c.project_id == project_id, sampled.c.kind == kind)


BUDGET_TOLERANCE = 1e-9
"""Tolerance for rounding errors when spending is compared with the budget, relative to a price."""

_SPENDING = schema.spending
_OF_PROJECT = schema.pair.c.project_id == bindparam("in_project")
_IS_ROW = _SPENDING.c.project_id == bindparam("in_project")
_RESERVED = select(_SPENDING.c.reserved).where(_IS_ROW).with_for_update()
_SET = update(_SPENDING).where(_IS_ROW).values(reserved=bindparam("amount"))
_ADD = update(_SPENDING).where(_IS_ROW).values(reserved=_SPENDING.c.reserved + bindparam("amount"))
_N_ORDERS = case((schema.answer.c.swapped_grade.is_not(None), 2), else_=1)
_MAX_ORDERS = case((and_(schema.assessor.c.kind == "llm", schema.pair.c.other_document_id.is_not(None)), 2), else_=1)
"""Number of orders of its documents in which a comparison was answered, and in which a lease allows to answer it."""
_ANSWERS = (
    select(func.coalesce(func.sum(schema.assessor.c.price * _N_ORDERS), 0.0))
    .select_from(
        schema.pair.join(schema.answer, schema.answer.c.pair_id == schema.pair.c.id).join(
            schema.assessor, schema.assessor.c.id == schema.answer.c.assessor_id
        )
    )
    .where(_OF_PROJECT, schema.answer.c.kind != "later")
)
_LEASES = (
    select(func.coalesce(func.sum(schema.assessor.c.price * _MAX_ORDERS), 0.0))
    .select_from(
        schema.lease.join(schema.pair, schema.pair.c.id == schema.lease.c.pair_id).join(
            schema.assessor, schema.assessor.c.id == schema.lease.c.assessor_id
        )
    )
    .where(_OF_PROJECT, schema.lease.c.ended.is_(None))
)


def lock_spending(connection: Connection, project: Project) -> None:
    """Let other requests that spend money of the same project wait; nothing without a budget."""
    if project.budget is None or connection.execute(_RESERVED, {"in_project": project.id}).first() is not None:
        return
    values: dict[str, Any] = {"project_id": project.id, "reserved": 0.0}
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_or_skip

        connection.execute(insert_or_skip(_SPENDING).values(values).on_conflict_do_nothing())
        connection.execute(_RESERVED, {"in_project": project.id})
    else:
        connection.execute(insert(_SPENDING).values(values))
    _compute_exactly(connection, project)


def reserve_labels(connection: Connection, project: Project, price: float, count: int) -> int:
    """Count the price of up to `count` new labels as spent; return how many of them the budget allows.

    The spending stays locked until the end of the transaction.
    """
    if project.budget is None or price == 0 or count == 0:
        return count
    values = {"in_project": project.id, "amount": count * price}
    reserved = connection.execute(_ADD.returning(_SPENDING.c.reserved), values).scalar()
    if reserved is not None and reserved <= project.budget:
        return count
    if reserved is None:
        lock_spending(connection, project)
    left = project.budget - _compute_exactly(connection, project)
    n_affordable = max(min(count, int(left / price + BUDGET_TOLERANCE)), 0)
    add_spending(connection, project, n_affordable * price)
    return n_affordable


def add_spending(connection: Connection, project: Project, amount: float) -> None:
    """Count the price of answers without a lease, or take back what was reserved; the spending must be locked."""
    if project.budget is not None and amount:
        connection.execute(_ADD, {"in_project": project.id, "amount": amount})


def forget_spending(connection: Connection, project_ids: Any) -> None:
    """Let the spending of projects, given by ids or by a query for them, be computed again."""
    connection.execute(delete(_SPENDING).where(_SPENDING.c.project_id.in_(project_ids)))


def committed_money(connection: Connection, project_id: int) -> float:
    """Return the price of all answers and live leases of a project.

    Both are read by one statement: between two, an answer could take the place of its lease and be in neither.
    """
    both = select(_ANSWERS.scalar_subquery() + _LEASES.scalar_subquery())
    return float(connection.execute(both, {"in_project": project_id}).scalar_one())


def _compute_exactly(connection: Connection, project: Project) -> float:
    amount = committed_money(connection, project.id)
    connection.execute(_SET, {"in_project": project.id, "amount": amount})
    return amount
