"""Endpoints of judges: next pairs and answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from crowdrank.service.domain import answers, assignment, leases
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.web import bodies
from crowdrank.service.web.access import AsJudge, ServiceDependency
from crowdrank.service.web.protection import StrictRoute

router = APIRouter(route_class=StrictRoute, prefix="/projects/{project}", tags=["judging"])


@router.post("/next")
def get_next_pairs(
    access: AsJudge,
    service: ServiceDependency,
    count: Annotated[int, Query(ge=1, le=assignment.MAX_LEASES, description="Number of pairs wanted.")] = 1,
) -> assignment.NextPairs:
    """Return pairs to judge, which are held for the assessor; pairs held already come first."""
    now, me = service.database.now(), access.actor.assessor.id
    return service.database.write(lambda connection: assignment.next_pairs(connection, access.project, me, count, now))


@router.post("/leases/return")
def return_leases(body: bodies.LeaseReturn, access: AsJudge, service: ServiceDependency) -> bodies.ReturnedLeases:
    """Give pairs back unanswered."""
    now, me = service.database.now(), access.actor.assessor.id
    number = service.database.write(
        lambda connection: leases.release_leases(connection, access.project, me, now, body.tokens)
    )
    return bodies.ReturnedLeases(leases=number)


@router.post("/answers", response_model=list[bodies.ReceiptView])
def record_answers(
    body: bodies.NewAnswer | Annotated[list[bodies.NewAnswer], Field(max_length=answers.MAX_ANSWERS)],
    access: AsJudge,
    service: ServiceDependency,
) -> list[answers.Receipt]:
    """Record one answer or several; a repeated request changes nothing and has the same response."""
    now, me = service.database.now(), access.actor.assessor.id
    listed = [Answer(**one.model_dump()) for one in (body if isinstance(body, list) else [body])]
    return service.database.write(
        lambda connection: answers.record_answers(connection, access.project, me, listed, now)
    )


@router.post("/undo")
def undo_answer(body: bodies.Undo, access: AsJudge, service: ServiceDependency) -> answers.WithdrawnAnswer:
    """Withdraw an answer, and hold the pair again."""
    now, me = service.database.now(), access.actor.assessor.id
    return service.database.write(
        lambda connection: answers.undo(connection, access.project, me, body.client_id, now, body.pair_id)
    )
