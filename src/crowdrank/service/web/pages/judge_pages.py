"""Pages of everybody: sign in, join, choose a project, judge."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from crowdrank.service.domain import projects
from crowdrank.service.domain.people import find_member
from crowdrank.service.web.access import ServiceDependency
from crowdrank.service.web.judging_page import PREFERENCE_KEY_HELP, judging_config, key_help, render_markdown
from crowdrank.service.web.pages.page_rendering import MemberPage, Person, render

router = APIRouter(include_in_schema=False)


@router.get("/login")
def show_login() -> HTMLResponse:
    """Show the form to sign in."""
    return render("login.html", None)


@router.get("/join")
def show_join() -> HTMLResponse:
    """Show the form to accept an invitation, whose secret is in the fragment of the address."""
    return render("join.html", None)


@router.get("/")
def show_projects(actor: Person, service: ServiceDependency) -> HTMLResponse:
    """Show the projects of the person."""
    with service.database.read() as connection:
        found = projects.list_projects(connection, actor.assessor.id)
        members = [find_member(connection, project.id, actor.assessor.id) for project in found]
    listed = [
        {
            "name": project.name,
            "is_open": project.is_open,
            "is_member": member is not None,
            "is_lead": actor.assessor.is_admin or (member is not None and member.role == "lead"),
        }
        for project, member in zip(found, members, strict=True)
    ]
    return render("projects.html", actor, projects=listed)


@router.get("/projects/{project}/judge")
def show_judging(access: MemberPage) -> HTMLResponse:
    """Show the judging page."""
    project, session = access.project, access.actor.session
    config = judging_config(
        project=project.name,
        grades=project.grades,
        task=project.task,
        layout=project.layout,
        assessor=access.actor.assessor.name,
        form_token="" if session is None else session.form_token,
    )
    guidelines = render_markdown(project.guidelines or "There are no guidelines.")
    return render(
        "judge.html",
        access.actor,
        project=project,
        is_lead=access.is_lead,
        guidelines=guidelines,
        keys=PREFERENCE_KEY_HELP if project.asks_preferences else key_help(project.grades),
        config=config,
    )
