"""Pages of leads: the dashboard of a project, its pairs, people and settings."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from crowdrank.service import disputes, model_fits, progress
from crowdrank.service.api.access import ProjectAccess, ServiceDependency
from crowdrank.service.disputes import FittedPairs
from crowdrank.service.pages.rendering import LeadPage, render
from crowdrank.service.pairs import PairState

router = APIRouter(include_in_schema=False)

N_DISPUTED = 10
"""Number of disputed pairs on the dashboard."""
MINUTE = 60_000


def _render(name: str, access: ProjectAccess, **values: Any) -> HTMLResponse:
    """Return a page of leads, with what its navigation needs."""
    base = f"/projects/{quote(access.project.name)}"
    return render(name, access.actor, project=access.project, base=base, is_member=access.member is not None, **values)


def elapsed_time(milliseconds: int) -> str:
    """Return a time that has passed in words.

    >>> elapsed_time(5_000), elapsed_time(60_000), elapsed_time(7_300_000), elapsed_time(200_000_000)
    ('less than a minute', '1 minute', '2 hours', '2 days')
    """
    for name, unit in (("day", 24 * 60 * MINUTE), ("hour", 60 * MINUTE), ("minute", MINUTE)):
        if milliseconds >= unit:
            number = milliseconds // unit
            return f"{number} {name}{'' if number == 1 else 's'}"
    return "less than a minute"


def _pair_rows(pairs: list[PairState], fitted: FittedPairs | None) -> list[dict[str, Any]]:
    """Return pairs with the probabilities of their grades, which are empty before the first fit."""
    found = {} if fitted is None else fitted.probabilities
    return [{**asdict(pair), "probabilities": list(found.get(pair.pair_id, ()))} for pair in pairs]


@router.get("/projects/{project}")
def show_dashboard(access: LeadPage, service: ServiceDependency) -> HTMLResponse:
    """Show the progress of a project, what the model says, and the work of each assessor."""
    project, now = access.project, service.database.now()
    with service.database.read() as connection:
        summary = progress.project_status(connection, project, now)
        fitted = disputes.read_fitted_pairs(connection, project)
        disputed = [] if fitted is None else disputes.most_disputed(connection, project, fitted, N_DISPUTED)
        reliabilities = [] if fitted is None else model_fits.list_reliabilities(connection, fitted.snapshot)
    by_assessor = {one.assessor_id: one for one in reliabilities}
    return _render(
        "dashboard.html",
        access,
        summary=summary,
        fitted=fitted,
        age="" if fitted is None else elapsed_time(now - fitted.snapshot.created),
        settled_percent=round(100 * disputes.SETTLED),
        disputed=_pair_rows(disputed, fitted),
        assessors=[(one, by_assessor.get(one.assessor_id)) for one in summary.assessors],
        max_information=math.log(len(project.grades)),
    )
