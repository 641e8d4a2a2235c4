"""The commands `serve`, `new-project`, `backup` and `restore` of the judging service."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._assessor_kinds import DEFAULT_KIND, Kind
from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.collect_commands import read_guidelines
from crowdrank.cli.console import print_json, print_line, print_message
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import Fix, Message, UsageError, parameter_prefix, shown
from crowdrank.service.domain.project_settings import ProjectSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from crowdrank.collection.pool import Pool
    from crowdrank.service.server import Started
    from crowdrank.service.web.service_settings import ServiceSettings

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


def _settings(address: AddressOptions, sign_on: SignOnOptions) -> ServiceSettings:
    from crowdrank.service.web.service_settings import ServiceSettings
    from crowdrank.service.web.single_sign_on import OidcSettings

    parts = sign_on.oidc_issuer, sign_on.oidc_client, sign_on.oidc_secret
    if any(parts) and not all(parts):
        problem = "needs a client and its secret, and they need an issuer"
        raise UsageError(problem, parameter="oidc_issuer", fix="give all three")
    issuer, client, secret = (part or "" for part in parts)
    with parameter_prefix("oidc_"):
        oidc = OidcSettings(issuer, client, secret) if issuer else None
    return ServiceSettings(
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


_OTHER_SETTINGS = ("guidelines", "layout", "quotas", "is_open")
"""Settings that `new-project` reads from other options, or leaves to the settings page."""


def new_project(
    database: Annotated[
        str, typer.Argument(help="SQLite file, created if it does not exist, or a PostgreSQL URL.", show_default=False)
    ],
    name: Annotated[str, typer.Argument(help="Name of the project.", show_default=False)],
    pairs: Annotated[
        Path | None,
        o.path_option(
            "Pairs to judge; a column `honeypot` has the correct grade of gold pairs. With --task preferences, the "
            "columns are query, left and right, or query and document to let the service choose. The policy compare "
            "adds the first documents of the rankings, and needs no other pairs.",
            show_default="the first documents of the rankings",
        ),
    ] = None,
    grades: Annotated[
        str | None,
        typer.Option(help="Grades from least to most relevant, such as 0-3 or Bad,Good.", show_default="0-3"),
    ] = None,
    texts: Annotated[
        list[Path] | None, typer.Option(help="Texts of queries and documents. Repeatable.", show_default=False)
    ] = None,
    guidelines: Annotated[Path | None, o.path_option("Guidelines in Markdown.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels per pair: at least and at most.", metavar="MIN-MAX", show_default="2-3; 1 with compare"
        ),
    ] = None,
    labels_from: Annotated[Kind, typer.Option(help="Kind of assessors who give these labels.")] = DEFAULT_KIND,
    runs: Annotated[
        str | None, typer.Option(help="Policy compare: rankings, separated by commas, as FILE or NAME=FILE.")
    ] = None,
    json: o.AsJson = False,
    *,
    chosen: Annotated[ProjectSettings, FieldsOf(ProjectSettings, "Settings", without=_OTHER_SETTINGS)],
) -> None:
    """Create a project of the judging service from files.

    While the service runs on an SQLite file, create projects in the browser or by the API.

    Examples:
        crowdrank new-project judging.db jam --pairs pairs.csv --texts texts.jsonl --grades Bad,Fair,Good
        crowdrank new-project judging.db jam --pairs pairs.csv --guidelines rules.md
        crowdrank new-project judging.db jam --pairs pairs.csv --policy ndcg@10 --labels 1-5 --settled 0.95
        crowdrank new-project judging.db jam --policy compare --runs a.trec,b.trec --labels-from expert
        crowdrank new-project judging.db jam --pairs pairs.csv --policy ndcg@10 --labels 1-5 --min-information 0.5
        crowdrank new-project judging.db jam --task preferences --policy preferences --pairs pairs.csv --labels 1-3
    """
    require_service_packages()
    from crowdrank.judgments.scale import Scale
    from crowdrank.service.domain.projects import check_settings
    from crowdrank.service.project_files import create_project_with_pairs, read_pair_files
    from crowdrank.service.server import open_database

    rules = "" if guidelines is None else read_guidelines(guidelines)
    quotas = {labels_from: _parse_labels(labels or ("1" if runs else "2-3"))}
    settings = {**asdict(chosen), "guidelines": rules, "quotas": quotas}
    if chosen.task == "preferences":  # before the database is created
        if grades is not None:
            raise UsageError("are not used for preferences", parameter="grades", kind="no-grades", fix="leave them out")
    else:
        grades = "0-3" if grades is None else grades
        Scale.parse(grades)
    check_settings(settings)
    rankings = _read_rankings(runs, chosen.policy)
    if pairs is not None and chosen.task == "preferences":
        rows = read_pair_files(pairs, texts or [], chosen.task)
    else:
        rows = read_pair_files(_pool(pairs, rankings, chosen.measure), texts or [])
    with _removed_on_error(database), open_database(database) as opened:
        created = create_project_with_pairs(opened, name, grades, rows, settings, rankings)
    for note in created.notes:
        print_message(note)
    added = created.pairs
    if created.n_without_text:
        print_message(_no_text_warning(created.n_without_text, added.pairs_added))
    if json:
        numbers = {
            "pairs": added.pairs_added,
            "documents": added.documents_added,
            "without_text": created.n_without_text,
        }
        print_json({"project": name, **numbers, **({"drawn": created.n_drawn} if rankings else {})})
        return
    drawn = f", of which {created.n_drawn:,} are drawn to be judged" if rankings else ""
    line = f"The project {name} has {counted(added.pairs_added, 'pair')}{drawn}."
    print_line(f"{line} Start the service: crowdrank serve {database}")


def _pool(pairs: Path | None, rankings: Mapping[str, pa.Table], measure: str) -> Pool:
    """Return the pairs of a file, with the documents that the measure counts in rankings of the same queries."""
    import pyarrow as pa

    from crowdrank.collection.compare_runs import pool_of_runs
    from crowdrank.collection.pool import Pool
    from crowdrank.judgments import ids
    from crowdrank.judgments.pair_index import PairIndex

    if pairs is None and not rankings:
        raise UsageError("is needed", parameter="pairs", fix="give the pairs to judge")
    if pairs is None:
        return pool_of_runs(rankings, measure)
    given = Pool.read(pairs)
    if not rankings:
        return given
    ranked = pool_of_runs(rankings, measure)
    is_new = PairIndex.from_ids(given.query, given.document).positions(ranked.query, ranked.document) < 0
    rows = pa.array(is_new & (ids.match(given.query.unique(), ranked.query) >= 0))
    query = ids.concat_arrays([given.query, ranked.query.filter(rows)])
    document = ids.concat_arrays([given.document, ranked.document.filter(rows)])
    honeypot = given.honeypot
    if honeypot is not None:
        honeypot = pa.concat_arrays([honeypot, pa.nulls(len(query) - len(given), honeypot.type)])
    return Pool(query, document, honeypot=honeypot)


@contextmanager
def _removed_on_error(database: str) -> Iterator[None]:
    """Remove an SQLite file that did not exist before if the block raises an error."""
    path = Path(database)
    is_new = "://" not in database and not path.exists()
    try:
        yield
    except BaseException:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm") if is_new else ():
            path.with_name(name).unlink(missing_ok=True)
        raise


def _no_text_warning(n_without_text: int, n_pairs: int) -> Message:
    problem = f"{n_without_text:,} of {counted(n_pairs, 'pair')} have a document without title, text or link"
    fixes = (Fix("give the texts of these documents, with the same ids, with {}", "texts", "texts.jsonl"),)
    return Message(f"{problem}; judges see only the ids", "no-text", "warning", fixes=fixes)


def _read_rankings(runs: str | None, policy: str) -> dict[str, pa.Table]:
    """Return the rankings by name; raise UsageError if they are missing, too few, or for another policy."""
    from crowdrank.cli.evaluate_commands import parse_run_names, read_rankings
    from crowdrank.service.compare.rankings import ranking_table
    from crowdrank.service.domain.projects import COMPARE_POLICY

    is_compared = policy.strip().lower() == COMPARE_POLICY
    if runs is not None and not is_compared:
        raise UsageError(
            f"needs the policy {COMPARE_POLICY}", parameter="runs", fix=Fix("use {}", "policy", COMPARE_POLICY)
        )
    files = parse_run_names([run for run in (runs or "").split(",") if run])
    if is_compared and len(files) < 2:
        fix = Fix("give the rankings to compare with {}", "runs", "live.trec,new.trec")
        raise UsageError(
            f"{COMPARE_POLICY} needs at least two rankings", parameter="policy", kind="few-rankings", fix=fix
        )
    return {name: ranking_table(run, name) for name, run in read_rankings(files).items()}


def _parse_labels(text: str) -> tuple[int, int]:
    """Return the numbers of labels per pair, at least and at most."""
    parts = text.split("-")
    numbers = [int(part) for part in parts if part.strip().isdecimal()]
    if not len(parts) == len(numbers) <= 2 or numbers != sorted(numbers):
        problem = f"must be two numbers such as 2-3, or one, not {shown(text)}"
        raise UsageError(problem, parameter="labels", kind="bad-labels")
    return numbers[0], numbers[-1]


Output = Annotated[Path, o.output_option("File for the copy; a file that exists is replaced.")]


def backup(
    database: Annotated[Path, typer.Argument(help="SQLite file of a judging service.", show_default=False)],
    output: Output,
) -> None:
    """Copy the database of a judging service, also while the service runs.

    Examples:
        crowdrank backup judging.db -o monday.db
    """
    from crowdrank.service.store.database import back_up

    back_up(database, output)
    print_line(f"{database} copied to {output} ({output.stat().st_size:,} bytes).")


def restore(
    backup: Annotated[Path, typer.Argument(help="Copy that `crowdrank backup` wrote.", show_default=False)],
    output: Annotated[Path, o.output_option("SQLite file to restore; no service may use it.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a database that exists. Its answers are lost.")
    ] = False,
) -> None:
    """Restore the database of a judging service from a copy.

    Examples:
        crowdrank restore monday.db -o judging.db --replace
    """
    from crowdrank.service.store.database import restore as restore_database

    restore_database(backup, output, replace=replace)
    print_line(f"{output} restored from {backup}.")
