"""Pages of leads: the dashboard of a project, its pairs, people and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from crowdrank._assessor_kinds import KIND_NAMES, KIND_PLURALS, KINDS
from crowdrank.assessors.advice import ADVICE
from crowdrank.errors import shown
from crowdrank.reports.svg_images import can_draw
from crowdrank.service.compare import rankings
from crowdrank.service.domain import credentials, people, progress
from crowdrank.service.domain.credentials import DAY, HOUR, MINUTE
from crowdrank.service.domain.pairs import PairState, count_without_text
from crowdrank.service.domain.project_settings import page_fields
from crowdrank.service.domain.projects import MAX_ID
from crowdrank.service.model import disputes, fits
from crowdrank.service.model.disputes import FittedPairs, model_status
from crowdrank.service.model.fits import MIN_ANSWERS, MIN_SHARED
from crowdrank.service.model.project_charts import EXPLANATIONS, ChartImage
from crowdrank.service.service_errors import NotFound
from crowdrank.service.web.access import ProjectAccess, Service, ServiceDependency
from crowdrank.service.web.pages.page_rendering import LeadPage, render, sentence

router = APIRouter(include_in_schema=False)

N_DISPUTED_PAIRS = 10
"""Number of disputed pairs on the dashboard."""
SUGGESTED_POLICIES = ("random", "ndcg@10", "entropy", "widest-interval", "overlap-3", "if-good-3", "compare")
"""Policies that the settings suggest."""
PAGE_SIZE = 50
"""Maximum number of pairs on a page."""


def _render(name: str, access: ProjectAccess, **values: Any) -> HTMLResponse:
    """Return a page of leads, with what its navigation needs."""
    base = f"/projects/{quote(access.project.name)}"
    values |= {"project": access.project, "base": base, "is_member": access.member is not None}
    values |= {"show_time": show_time, "sentence": sentence, "kind_names": KIND_NAMES, "advice": ADVICE}
    values["settled_percent"] = f"{100 * disputes.settled_level(access.project):g}"
    return render(name, access.actor, **values)


def show_time(milliseconds: int) -> str:
    """Return a time for people.

    >>> show_time(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def elapsed_time(milliseconds: int) -> str:
    """Return a time that has passed in words.

    >>> elapsed_time(5_000), elapsed_time(60_000), elapsed_time(7_300_000), elapsed_time(200_000_000)
    ('less than a minute', '1 minute', '2 hours', '2 days')
    """
    for name, unit in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
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
        disputed = disputes.filter_pairs(connection, project, fitted, "disputed", 0, N_DISPUTED_PAIRS)
        answers = disputes.read_answers(connection, project, [one.pair_id for one in disputed])
        model = model_status(connection, project, fitted, now)
        members = people.list_members(connection, project.id)
        reliabilities = [] if fitted is None else fits.list_reliabilities(connection, fitted.snapshot)
        draws = rankings.list_draws(connection, project)
        estimate = rankings.estimate_from_draws(connection, project, draws)
        sides = progress.chosen_sides(connection, project) if project.asks_preferences else {}
        n_without_text = 0 if summary.n_answers else count_without_text(connection, project)
    by_assessor = {one.assessor_id: one for one in reliabilities}
    return _render(
        "dashboard.html",
        access,
        summary=summary,
        fitted=fitted,
        model=model,
        members=members,
        age="" if fitted is None else elapsed_time(now - fitted.snapshot.created),
        disputed=_pair_rows(disputed, fitted),
        answers=answers,
        assessors=[(one, by_assessor.get(one.assessor_id)) for one in summary.assessors],
        max_information=math.log(len(project.grades)),
        sides=sides,
        n_without_text=n_without_text,
        draws=draws,
        estimate=estimate,
    )


@router.get("/projects/{project}/pairs")
def show_pairs(
    access: LeadPage,
    service: ServiceDependency,
    show: Literal["all", "disputed", "adjudicated", "unfinished", "closed"] = "all",
    after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0,
) -> HTMLResponse:
    """Show pairs of a project, to close, reopen and adjudicate them."""
    project, is_adjudication = access.project, show in ("disputed", "adjudicated")
    with service.database.read() as connection:
        fitted = disputes.read_fitted_pairs(connection, project)
        listed = disputes.filter_pairs(connection, project, fitted, show, after, PAGE_SIZE + 1)
        shown = listed[:PAGE_SIZE]
        answers = disputes.read_answers(connection, project, [one.pair_id for one in shown] if is_adjudication else [])
    last = None
    if len(listed) > PAGE_SIZE:
        last = after + PAGE_SIZE if show == "disputed" else shown[-1].pair_id
    return _render(
        "pairs.html",
        access,
        filters=disputes.PAIR_FILTERS,
        show=show,
        pairs=_pair_rows(shown, fitted),
        is_adjudication=is_adjudication,
        answers=answers,
        adjudicated=disputes.ADJUDICATED,
        after=after,
        last=last,
    )


@router.get("/projects/{project}/charts")
def show_charts(access: LeadPage, service: ServiceDependency) -> HTMLResponse:
    """Show the charts of a project as of the newest fit of the model."""
    snapshot, charts = _read_charts(access, service)
    values = {"can_draw": can_draw(), "snapshot": snapshot, "charts": charts, "explanations": EXPLANATIONS}
    return _render("charts.html", access, **values)


@router.get("/projects/{project}/charts/{name}.svg")
def show_chart(access: LeadPage, service: ServiceDependency, name: str) -> Response:
    """Return a chart as an image."""
    _, charts = _read_charts(access, service)
    if name not in charts:
        raise NotFound(f"there is no chart {shown(name)}", kind="no-chart")
    return Response(charts[name].svg, media_type="image/svg+xml", headers={"Cache-Control": "no-store"})


def _read_charts(access: ProjectAccess, service: Service) -> tuple[fits.Snapshot | None, Mapping[str, ChartImage]]:
    """Return the newest fit and its charts, as far as there are any."""
    with service.database.read() as connection:
        snapshot = fits.latest_snapshot(connection, access.project)
    if snapshot is None or not can_draw():
        return snapshot, {}
    return snapshot, service.charts.get(service.database, access.project, snapshot)


@router.get("/projects/{project}/people")
def show_people(access: LeadPage, service: ServiceDependency) -> HTMLResponse:
    """Show members, invitations and tokens of LLM judges."""
    project_id, now = access.project.id, service.database.now()
    with service.database.read() as connection:
        members = people.list_members(connection, project_id)
        invitations = people.list_invitations(connection, project_id)
        tokens = credentials.list_tokens(connection, project_id=project_id)
    return _render(
        "people.html",
        access,
        members=members,
        unasked=sorted({one.assessor.kind for one in members if access.project.quotas[one.assessor.kind][1] == 0}),
        person_id=access.actor.assessor.id,
        judges=[one.assessor for one in members if one.assessor.kind == "llm" and not one.assessor.can_sign_in],
        invitations=[one for one in invitations if one.revoked is None and one.expires > now and one.uses_left],
        tokens=[one for one in tokens if one.revoked is None and (one.expires is None or one.expires > now)],
        days=service.settings.invitation_lifetime // DAY,
    )


@router.get("/projects/{project}/settings")
def show_settings(access: LeadPage, service: ServiceDependency) -> HTMLResponse:
    """Show the settings of a project."""
    with service.database.read() as connection:
        stored = rankings.list_rankings(connection, access.project)
    return _render(
        "settings.html",
        access,
        groups=page_fields(),
        kinds=KINDS,
        kind_plurals=KIND_PLURALS,
        policies=SUGGESTED_POLICIES,
        rankings=stored,
        min_answers=MIN_ANSWERS,
        min_shared=MIN_SHARED,
    )
