"""The command `crowdrank serve`: run the judging service."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._options import option
from crowdrank.cli.console import print_line, print_message
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import Fix, UsageError, parameter_prefix

if TYPE_CHECKING:
    from crowdrank.service.api.settings import Settings
    from crowdrank.service.server import Started

PACKAGES = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "pwdlib")
"""Packages of the extra `serve`."""
DatabaseName = Annotated[
    str | None,
    typer.Argument(
        help="SQLite file, which is created if it does not exist, or a URL such as postgresql://user@host/name.",
        metavar="DATABASE",
        envvar="CROWDRANK_DATABASE",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class AddressOptions:
    """Options for the address of the service."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 is reachable from other machines.")
    port: int = option(8000, "Port to listen on; 0 for a free one.", min=0, max=65535)
    public_url: str | None = option(
        None, "Address under which browsers reach the service behind a proxy, such as https://judging.example.org."
    )
    trusted_proxy: list[str] = option(
        [], "Address or network of a proxy whose X-Forwarded-For header is believed. Repeatable.", metavar="ADDRESS"
    )


@dataclass(frozen=True)
class SignOnOptions:
    """Options for single sign-on."""

    oidc_issuer: str | None = option(None, "Address of an OpenID Connect provider.")
    oidc_client: str | None = option(None, "Id of this service at the provider.")
    oidc_secret: str | None = option(
        None,
        "Secret of this service at the provider; better set the variable.",
        envvar="CROWDRANK_OIDC_SECRET",
    )
    allowed_domain: list[str] = option(
        [], "Domain of e-mail addresses that need no invitation. Repeatable.", metavar="DOMAIN"
    )
    user_header: str | None = option(None, "Header in which a trusted proxy names the user whom it has signed in.")


def serve(
    database: DatabaseName = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Create a project with texts and simulated colleagues to try it out.")
    ] = False,
    admin_link: Annotated[
        bool, typer.Option("--admin-link", help="Print a new link for an administrator, as after a lost password.")
    ] = False,
    *,
    address: Annotated[AddressOptions, FieldsOf(AddressOptions, "Address")],
    sign_on: Annotated[SignOnOptions, FieldsOf(SignOnOptions, "Single sign-on")],
) -> None:
    """Run the judging service.

    The first start prints a link by which you become the administrator. Stop the service with Ctrl-C or SIGTERM.
    Without a database, --demo uses a temporary one.

    Examples:
        crowdrank serve judging.db
        crowdrank serve --demo
        crowdrank serve judging.db --port 8080 --public-url https://judging.example.org --trusted-proxy 127.0.0.1
        crowdrank serve postgresql://judging@localhost/judging
    """
    require_service_packages()
    from crowdrank.service.server import serve as run_server

    if database is None and not demo:
        raise UsageError("is needed", parameter="database", fix=["name a file", Fix("try it out with {}", "demo")])
    with TemporaryDirectory() as folder:
        run_server(
            database if database is not None else str(Path(folder) / "demo.db"),
            host=address.host,
            port=address.port,
            settings=_settings(address, sign_on),
            new_admin_link=admin_link,
            demo=demo,
            on_start=_print_start,
        )
    print_line("Stopped.")


def require_service_packages() -> None:
    """Raise UsageError if packages of the judging service are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        text = f"The judging service needs {', '.join(missing)}: pip install 'crowdrank[serve]'."
        raise UsageError(text, kind="missing-package")


def _settings(address: AddressOptions, sign_on: SignOnOptions) -> Settings:
    from crowdrank.service.api.settings import Settings
    from crowdrank.service.single_sign_on import OidcSettings

    parts = sign_on.oidc_issuer, sign_on.oidc_client, sign_on.oidc_secret
    if any(parts) and not all(parts):
        problem = "needs a client and its secret, and they need an issuer"
        raise UsageError(problem, parameter="oidc_issuer", fix="give all three")
    issuer, client, secret = (part or "" for part in parts)
    with parameter_prefix("oidc_"):
        oidc = OidcSettings(issuer, client, secret) if issuer else None
    return Settings(
        public_url=address.public_url,
        trusted_proxies=tuple(address.trusted_proxy),
        user_header=sign_on.user_header,
        oidc=oidc,
        allowed_domains=tuple(sign_on.allowed_domain),
    )


def _print_start(started: Started) -> None:
    if started.warning is not None:
        print_message(started.warning)
    if started.demo_link is not None:
        print_line(f"Link to the demo, valid once: {started.demo_link}")
    if started.admin_link is not None:
        print_line(f"Link for an administrator, valid once: {started.admin_link}")
    print_line(f"Judging service of {started.database} on {started.url}")
    sys.stdout.flush()  # for programs that wait for the address
