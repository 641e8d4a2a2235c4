"""Endpoints of rankings and of the draws of pairs that compare them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from sqlalchemy import Connection

from crowdrank.errors import Message
from crowdrank.readers.read_options import Format
from crowdrank.service.compare import draws, rankings
from crowdrank.service.web import bodies
from crowdrank.service.web.access import AsLead, AsReader, ServiceDependency
from crowdrank.service.web.protection import StrictRoute

router = APIRouter(route_class=StrictRoute, prefix="/projects/{project}", tags=["comparison"])

RankingName = Annotated[str, Query(max_length=rankings.MAX_NAME_LENGTH, description="Name of the ranking.")]
RANKING_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


async def read_content(request: Request, access: AsLead) -> bytes:
    """Return the body; `access` is checked before it is read."""
    return await request.body()


@router.get("/rankings")
def get_rankings(access: AsReader, service: ServiceDependency) -> list[rankings.StoredRanking]:
    """Return the rankings of a project; the first one is the baseline."""
    with service.database.read() as connection:
        return rankings.list_rankings(connection, access.project)


@router.post("/rankings", status_code=201, openapi_extra=RANKING_BODY)
def add_ranking(
    content: Annotated[bytes, Depends(read_content)],
    access: AsLead,
    service: ServiceDependency,
    name: RankingName,
    format: Annotated[Format | None, Query(description="Format; by default it is detected.")] = None,
) -> rankings.StoredRanking:
    """Add a ranking, or replace the one of this name: the body is a file, such as a TREC run or a table of scores."""
    table, now = rankings.parse_ranking(content, name, format), service.database.now()

    def add(connection: Connection) -> rankings.StoredRanking:
        stored = rankings.set_ranking(connection, access.project, name, table, now)
        access.audit(connection, "ranking.set", asdict(stored), now)
        return stored

    return service.database.write(add)


@router.delete("/rankings/{name}", status_code=204)
def remove_ranking(
    access: AsLead,
    service: ServiceDependency,
    name: Annotated[str, Path(max_length=rankings.MAX_NAME_LENGTH, description="Name of the ranking.")],
) -> None:
    """Remove a ranking."""
    now = service.database.now()

    def remove(connection: Connection) -> None:
        rankings.remove_ranking(connection, access.project, name)
        access.audit(connection, "ranking.remove", {"name": name}, now)

    service.database.write(remove)


@router.get("/draws", response_model=bodies.ComparisonView)
def get_draws(access: AsReader, service: ServiceDependency) -> dict[str, Any]:
    """Return the draws of pairs, and the estimate from the complete ones."""
    with service.database.read() as connection:
        found = rankings.list_draws(connection, access.project)
        estimate = rankings.estimate_from_draws(connection, access.project, found)
    return {
        "draws": [_draw_fields(one) for one in found],
        "estimate": estimate.result,
        "problem": estimate.problem,
    }


@router.post("/draws", response_model=bodies.DrawView, status_code=201)
def draw_pairs(access: AsLead, service: ServiceDependency) -> dict[str, Any]:
    """Draw the next pairs with known probabilities, and hand them out."""
    with service.database.read() as connection:
        inputs = draws.read_draw_inputs(connection, access.project)
    draw, now = draws.draw_pairs(inputs), service.database.now()

    def write(connection: Connection) -> rankings.DrawProgress:
        drawn = draws.write_draw(connection, inputs, draw, now)
        details = {"number": drawn.number, "pairs": drawn.n_pairs, "seed": drawn.seed}
        access.audit(connection, "draw.add", details, now)
        return drawn

    return _draw_fields(service.database.write(write), draw.notes)


@router.delete("/draws", status_code=204)
def discard_draws(access: AsLead, service: ServiceDependency) -> None:
    """Delete all draws, so that rankings and measure can change; the answers stay."""
    now = service.database.now()

    def discard(connection: Connection) -> None:
        number = rankings.discard_draws(connection, access.project)
        access.audit(connection, "draws.discard", {"draws": number}, now)

    service.database.write(discard)


def _draw_fields(one: rankings.DrawProgress, notes: Iterable[Message] = ()) -> dict[str, Any]:
    messages = [
        {"problem": message.problem, "kind": message.kind, "severity": message.severity, "fix": _fix_text(message)}
        for message in (*notes, *one.warnings)
    ]
    return {**asdict(one), "is_complete": one.is_complete, "messages": messages}


def _fix_text(message: Message) -> str | None:
    return ", or ".join(text for fix in message.fixes if (text := fix.render()) is not None) or None
