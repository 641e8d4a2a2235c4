"""Endpoints of results: progress, answers, consensus."""

from __future__ import annotations

from fastapi import APIRouter

from crowdrank.service import progress
from crowdrank.service.api.access import AsReader, ServiceDependency
from crowdrank.service.api.protection import StrictRoute

router = APIRouter(route_class=StrictRoute, prefix="/projects/{project}", tags=["results"])


@router.get("/status")
def get_status(access: AsReader, service: ServiceDependency) -> progress.ProjectStatus:
    """Return the progress of a project: pairs, answers, cost, and work of each assessor."""
    with service.database.read() as connection:
        return progress.project_status(connection, access.project, service.database.now())
