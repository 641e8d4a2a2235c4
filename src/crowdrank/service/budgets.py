"""Budgets of projects: no lease is issued whose price would pass the budget.

The table `spending` has an upper bound of the price of all answers and live leases. Every new lease adds to it, and so
does every answer without a live lease. If the bound reaches the budget, the exact amount is computed again. The row of
a project is locked before its leases and quotas, so that requests at the same time do not pass the budget together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from crowdrank.service import schema

if TYPE_CHECKING:
    from crowdrank.service.projects import Project

TOLERANCE = 1e-9
"""Share of a price by which rounding may exceed the budget."""

_SPENDING = schema.spending
_OF_PROJECT = schema.pair.c.project_id == bindparam("in_project")
_IS_ROW = _SPENDING.c.project_id == bindparam("in_project")
_RESERVED = select(_SPENDING.c.reserved).where(_IS_ROW).with_for_update()
_SET = update(_SPENDING).where(_IS_ROW).values(reserved=bindparam("amount"))
_ADD = update(_SPENDING).where(_IS_ROW).values(reserved=_SPENDING.c.reserved + bindparam("amount"))
_ANSWERS = (
    select(func.coalesce(func.sum(schema.assessor.c.price), 0.0))
    .select_from(
        schema.pair.join(schema.answer, schema.answer.c.pair_id == schema.pair.c.id).join(
            schema.assessor, schema.assessor.c.id == schema.answer.c.assessor_id
        )
    )
    .where(_OF_PROJECT, schema.answer.c.kind != "later")
)
_LEASES = (
    select(func.coalesce(func.sum(schema.assessor.c.price), 0.0))
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


def affordable_labels(connection: Connection, project: Project, price: float, count: int) -> int:
    """Return how many of `count` labels at a price the budget allows; the spending must be locked."""
    if project.budget is None or price == 0:
        return count
    reserved = connection.execute(_RESERVED, {"in_project": project.id}).scalar_one()
    if reserved + count * price > project.budget:
        reserved = _compute_exactly(connection, project)
    return max(min(count, int((project.budget - reserved) / price + TOLERANCE)), 0)


def add_spending(connection: Connection, project: Project, amount: float) -> None:
    """Count the price of new leases, or of answers without a lease; the spending must be locked."""
    if project.budget is not None and amount:
        connection.execute(_ADD, {"in_project": project.id, "amount": amount})


def forget_spending(connection: Connection, project_ids: Any) -> None:
    """Let the spending of projects, given by ids or by a query for them, be computed again."""
    connection.execute(delete(_SPENDING).where(_SPENDING.c.project_id.in_(project_ids)))


def committed_money(connection: Connection, project_id: int) -> float:
    """Return the price of all answers and live leases of a project."""
    values = {"in_project": project_id}
    return float(sum(connection.execute(part, values).scalar_one() for part in (_ANSWERS, _LEASES)))


def _compute_exactly(connection: Connection, project: Project) -> float:
    amount = committed_money(connection, project.id)
    connection.execute(_SET, {"in_project": project.id, "amount": amount})
    return amount
