"""The whole web application: API, pages and static files."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from crowdrank.errors import CrowdrankError
from crowdrank.service.domain.credentials import PasswordHasher
from crowdrank.service.model.refits import Refits
from crowdrank.service.service_errors import ServiceError
from crowdrank.service.store.database import Database
from crowdrank.service.web.access import Service
from crowdrank.service.web.error_rendering import ERROR_RENDERERS, ErrorBody, add_error_handlers, render_service_error
from crowdrank.service.web.pages import judge_pages, lead_pages, project_creation
from crowdrank.service.web.pages.page_rendering import error_page, render_error
from crowdrank.service.web.protection import Protection, check_parameters
from crowdrank.service.web.routes import (
    account_routes,
    admin_routes,
    comparison_routes,
    judging_routes,
    member_routes,
    project_routes,
    result_routes,
)
from crowdrank.service.web.service_settings import ServiceSettings
from crowdrank.service.web.single_sign_on import OidcProvider

PREFIX = "/api"
ROUTERS = (
    account_routes,
    admin_routes,
    project_routes,
    judging_routes,
    member_routes,
    result_routes,
    comparison_routes,
)


def create_app(database: Database, settings: ServiceSettings | None = None) -> FastAPI:
    """Create the application.

    Args:
        database: database with the newest schema.
        settings: limits, single sign-on and the like.

    Returns:
        Application whose OpenAPI description is at `/api/openapi.json`.

    """
    settings = settings or ServiceSettings()
    app = FastAPI(
        title="crowdrank judging service",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # these pages load scripts from another site
        redoc_url=None,
        redirect_slashes=False,
    )
    redirect_url = f"{(settings.public_url or '').rstrip('/')}{PREFIX}/single-sign-on/callback"
    provider = None if settings.oidc is None else OidcProvider(settings.oidc, redirect_url)
    app.state.service = Service(database, settings, PasswordHasher(settings.password_cost), provider, Refits(database))
    add_error_handlers(app)
    app.add_middleware(Protection, settings=settings)
    for module in ROUTERS:
        app.include_router(
            module.router,
            prefix=PREFIX,
            dependencies=[Depends(check_parameters)],
            responses={"default": {"model": ErrorBody, "description": "Error"}},
        )
    return app


PAGE_ROUTERS = (judge_pages.router, lead_pages.router, project_creation.router)


def create_application(database: Database, settings: ServiceSettings | None = None) -> FastAPI:
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
