"""Qualification test and honeypots: how well assessors agree with the gold grades."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, case, delete, func, select, update

from crowdrank.service.domain.projects import Project
from crowdrank.service.store import schema

_ANSWER, _PAIR, _MEMBERSHIP = schema.answer, schema.pair, schema.membership
_IS_ANSWERED = and_(_ANSWER.c.generation == _PAIR.c.generation, _ANSWER.c.kind != "later")
_IS_CORRECT = and_(
    _IS_ANSWERED,
    _ANSWER.c.kind == "grade",
    _ANSWER.c.grade == _PAIR.c.gold_grade,
    func.coalesce(_ANSWER.c.swapped_grade, _PAIR.c.gold_grade) == _PAIR.c.gold_grade,
)
_IS_MINE = and_(_ANSWER.c.pair_id == _PAIR.c.id, _ANSWER.c.assessor_id == bindparam("me"))
_TRAINING = (
    select(
        func.count().label("n_pairs"),
        func.count(case((_IS_ANSWERED, 1))).label("n_answered"),
        func.count(case((_IS_CORRECT, 1))).label("n_correct"),
    )
    .select_from(_PAIR.outerjoin(_ANSWER, _IS_MINE))
    .where(_PAIR.c.project_id == bindparam("in_project"), _PAIR.c.kind == "training", _PAIR.c.is_open)
)


@dataclass(frozen=True)
class GoldAccuracy:
    """Number of gold pairs that an assessor answered, and answered correctly: comparisons in all orders asked."""

    n_answered: int
    n_correct: int


def decide_qualification(connection: Connection, project: Project, assessor_id: int) -> str:
    """Return `passed` or `failed`, and store it, if all training pairs are answered; otherwise return `pending`."""
    row = connection.execute(_TRAINING, {"me": assessor_id, "in_project": project.id}).one()
    if row.n_pairs == 0 or row.n_answered < row.n_pairs:
        return "pending"
    passed = row.n_correct >= (project.qualification_share or 0) * row.n_pairs - 1e-9
    result = "passed" if passed else "failed"
    _set_qualification(connection, project, assessor_id, result)
    return result


def reset_qualification(connection: Connection, project: Project, assessor_id: int) -> None:
    """Let an assessor answer the training pairs again. The events of the earlier answers stay."""
    training = select(_PAIR.c.id).where(_PAIR.c.project_id == project.id, _PAIR.c.kind == "training")
    connection.execute(delete(_ANSWER).where(_ANSWER.c.assessor_id == assessor_id, _ANSWER.c.pair_id.in_(training)))
    _set_qualification(connection, project, assessor_id, "pending")


def honeypot_accuracy(connection: Connection, project: Project) -> dict[int, GoldAccuracy]:
    """Return the accuracy on gold pairs of the current generation, by assessor id; 'cannot judge' counts as wrong."""
    statement = (
        select(_ANSWER.c.assessor_id, func.count().label("n"), func.count(case((_IS_CORRECT, 1))).label("n_correct"))
        .join_from(_PAIR, _ANSWER, _ANSWER.c.pair_id == _PAIR.c.id)
        .where(_PAIR.c.project_id == project.id, _PAIR.c.kind == "gold", _IS_ANSWERED)
        .group_by(_ANSWER.c.assessor_id)
    )
    return {row.assessor_id: GoldAccuracy(row.n, row.n_correct) for row in connection.execute(statement)}


def _set_qualification(connection: Connection, project: Project, assessor_id: int, qualification: str) -> None:
    of_member = and_(_MEMBERSHIP.c.project_id == project.id, _MEMBERSHIP.c.assessor_id == assessor_id)
    connection.execute(update(_MEMBERSHIP).where(of_member).values(qualification=qualification))
