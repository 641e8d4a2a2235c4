"""FastAPI application of the judging service."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from crowdrank.service.api import accounts, administration, comparison, judging, members, projects, results
from crowdrank.service.api.access import Service
from crowdrank.service.api.error_rendering import ErrorBody, add_error_handlers
from crowdrank.service.api.protection import Protection, check_parameters
from crowdrank.service.api.settings import Settings
from crowdrank.service.credentials import Passwords
from crowdrank.service.database import Database
from crowdrank.service.refits import Refits
from crowdrank.service.single_sign_on import OidcProvider

PREFIX = "/api"
ROUTERS = (accounts, administration, projects, judging, members, results, comparison)


def create_app(database: Database, settings: Settings | None = None) -> FastAPI:
    """Create the application.

    Args:
        database: database with the newest schema.
        settings: limits, single sign-on and the like.

    Returns:
        Application whose OpenAPI description is at `/api/openapi.json`.

    """
    settings = settings or Settings()
    app = FastAPI(
        title="crowdrank judging service",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # these pages load scripts from another site
        redoc_url=None,
        redirect_slashes=False,
    )
    redirect_url = f"{(settings.public_url or '').rstrip('/')}{PREFIX}/single-sign-on/callback"
    provider = None if settings.oidc is None else OidcProvider(settings.oidc, redirect_url)
    app.state.service = Service(database, settings, Passwords(settings.password_cost), provider, Refits(database))
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
