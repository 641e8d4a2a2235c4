"""The whole web application: API, pages and static files."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from crowdrank.errors import CrowdrankError
from crowdrank.service.api.app import create_app
from crowdrank.service.api.error_rendering import ERROR_RENDERERS, render_service_error
from crowdrank.service.api.protection import check_parameters
from crowdrank.service.api.settings import Settings
from crowdrank.service.database import Database
from crowdrank.service.errors import ServiceError
from crowdrank.service.pages import judging, leading, project_creation
from crowdrank.service.pages.rendering import error_page, render_error

PAGE_ROUTERS = (judging.router, leading.router, project_creation.router)


def create_application(database: Database, settings: Settings | None = None) -> FastAPI:
    """Create the application with API, pages and static files.

    Args:
        database: database with the newest schema.
        settings: limits, single sign-on and the like.

    """
    app = create_app(database, settings)
    for kind, renderer in ERROR_RENDERERS.items():
        app.add_exception_handler(kind, _page_renderer(renderer))
    app.add_exception_handler(CrowdrankError, _render_error)
    for router in PAGE_ROUTERS:
        app.include_router(router, dependencies=[Depends(check_parameters)])
    app.mount("/static", StaticFiles(packages=[("crowdrank.service", "static")]), name="static")
    return app


def _page_renderer(renderer: Callable[[Request, Exception], JSONResponse]) -> Callable[[Request, Exception], Response]:
    """Return a renderer of errors that shows people who open an address a page."""

    def render(request: Request, error: Exception) -> Response:
        response = renderer(request, error)
        is_page = request.method == "GET" and not request.url.path.startswith("/api/")
        return error_page(response) if is_page else response

    return render


def _render_error(request: Request, error: Exception) -> Response:
    """Return an error as JSON to programs, and as a page to people."""
    if isinstance(error, ServiceError) and not request.url.path.startswith("/api/"):
        return render_error(request, error)
    return render_service_error(request, error)
