"""Test the service as a process: start, stop, backup under load, and kills in mid-load."""

from __future__ import annotations

import signal
import socket
import sqlite3
import stat
import sys
import time
from pathlib import Path

import httpx2
import pytest
import typer
from sqlalchemy import Connection, text
from typer.testing import CliRunner

from crowdrank.cli import serve_commands as serve_command
from crowdrank.cli.app import app
from crowdrank.cli.console import option_writer
from crowdrank.errors import InputError, OutputError, UsageError
from crowdrank.readers.read import read_judgments
from crowdrank.service.domain.assignment import next_pairs
from crowdrank.service.domain.people import add_member, create_assessor
from crowdrank.service.domain.progress import project_status
from crowdrank.service.domain.projects import Project
from crowdrank.service.model.fits import latest_snapshot, list_reliabilities
from crowdrank.service.model.refits import Refits
from crowdrank.service.server import Started, _address_warning, create_demo, listen, open_database, serve
from crowdrank.service.store.database import Database, back_up, restore
from crowdrank.service.store.migrations import upgrade
from crowdrank.service.web.service_settings import ServiceSettings
from tools.postgresql import PostgresServer, find_program
from tools.service_invariants import find_violations
from tools.service_load import (
    RunningService,
    SimulatedJudges,
    add_load_project,
    kill_repeatedly,
    stored_client_ids,
)

N_KILLS = 3


def create_loaded(
    target: str | Path, n_judges: int = 4, n_pairs: int = 2000, *, asks_preferences: bool = False
) -> list[str]:
    """Create a database with pairs to judge; return the tokens of its judges."""
    database = Database(target)
    try:
        upgrade(database)
        return add_load_project(database, n_judges, n_pairs, asks_preferences=asks_preferences)
    finally:
        database.close()


def check_invariants(target: str) -> None:
    database = Database(target)
    with database.read() as connection:
        assert find_violations(connection, 1) == []
    database.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> RunningService:
    """Return a service that was started and stopped again; tests look at what it left."""
    path = tmp_path_factory.mktemp("served") / "judging.db"
    with RunningService(path) as service:
        done = CliRunner().invoke(app, ["serve", str(path), "--port", "0"])
        assert isinstance(done.exception, UsageError)
        assert done.exception.kind == "locked"
        with pytest.raises(OutputError) as caught:
            restore(path, path, replace=True)
        assert caught.value.kind == "locked"
        joined = httpx2.post(
            f"{service.url}/api/join",
            json={"invitation": service.admin_secret, "name": "ann", "password": "correct horse battery"},
        )
        assert joined.json()["is_admin"] is True
        service.stop()
    return service


def test_a_service_stops_on_sigterm_and_leaves_one_file_for_its_owner(served: RunningService) -> None:
    assert served.exit_code == 0
    path = Path(served.target)
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_second_start_needs_no_administrator(served: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Started] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    options = {"host": "127.0.0.1", "port": 0, "settings": ServiceSettings(), "on_start": started.append}
    serve(served.target, **options)  # type: ignore[arg-type]
    serve(served.target, **options, new_admin_link=True)  # type: ignore[arg-type]
    assert [one.admin_link is None for one in started] == [True, False]
    assert started[0].warning is None


def test_other_machines_without_https_are_warned_about() -> None:
    warning = _address_warning("0.0.0.0", ServiceSettings())
    assert warning is not None
    assert warning.kind == "no-https"
    assert _address_warning("0.0.0.0", ServiceSettings(public_url="https://judging.example.org")) is None


def test_responses_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY only for sockets that state their protocol, and only then."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_one_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = {"host": "127.0.0.1", "port": other.getsockname()[1]}
        with pytest.raises(UsageError) as caught:
            serve(str(tmp_path / "a.db"), **address, settings=ServiceSettings(), on_start=lambda _: None)
    assert caught.value.kind == "address"
    assert not (tmp_path / "a.db").exists()


def test_a_missing_package_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_command, "PACKAGES", ("sqlalchemy", "no_such_package"))
    with pytest.raises(UsageError) as caught:
        serve_command.require_service_packages()
    assert caught.value.kind == "missing-package"


def test_an_incomplete_single_sign_on_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "a.db"), "--oidc-issuer", "https://id.example.org"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.parameter == "oidc_issuer"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--trusted-proxy", "proxy.example.org"], "--trusted-proxy has"),
        (["--user-header", "X-Remote-User"], "set --trusted-proxy."),
        (["--oidc-issuer", "http://id.example.org", "--oidc-client", "a", "--oidc-secret", "b"], "--oidc-issuer must"),
        (["--oidc-issuer", "https://id.example.org", "--oidc-client", "a", "--oidc-secret", "b"], "set --public-url."),
    ],
)
def test_errors_of_settings_name_options(tmp_path: Path, words: list[str], option: str) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "a.db"), *words])
    assert isinstance(done.exception, UsageError)
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    assert option in done.exception.message.render(option_writer(command.params))


def test_a_database_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("not a database, but some text that is long enough\n" * 100)
    with pytest.raises(InputError), open_database(str(tmp_path / "bad.db")):
        pass
    with pytest.raises(InputError), open_database(f"postgresql://ann@/judging?host={tmp_path}"):
        pass


# Backup.


def test_a_backup_under_load_has_every_acknowledged_answer(tmp_path: Path) -> None:
    path, copy = tmp_path / "judging.db", tmp_path / "copy.db"
    tokens = create_loaded(path)
    judges = SimulatedJudges(tokens)
    with RunningService(path) as service:
        judges.start(service.url)
        while len(judges.receipts) < 20:
            time.sleep(0.01)
        acknowledged = set(judges.receipts)
        done = CliRunner().invoke(app, ["backup", str(path), "-o", str(copy)])
        assert done.exit_code == 0, done.output
        judges.pause()
        assert len(read_judgments(path)) > 0  # while the service runs
    assert acknowledged <= set(stored_client_ids(str(copy))) <= judges.sent
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    check_invariants(str(copy))
    with pytest.raises(OutputError) as caught:
        restore(copy, path)
    assert caught.value.kind == "exists"
    assert CliRunner().invoke(app, ["restore", str(copy), "-o", str(path), "--replace"]).exit_code == 0
    assert sorted(stored_client_ids(str(path))) == sorted(stored_client_ids(str(copy)))


def test_a_restored_database_ignores_the_log_of_the_old_one(tmp_path: Path) -> None:
    path, copy = tmp_path / "judging.db", tmp_path / "copy.db"
    create_loaded(path, n_pairs=1)
    back_up(path, copy)
    database = Database(path)
    database.write(lambda connection: connection.execute(text("UPDATE project SET guidelines_version = 7")))
    assert (tmp_path / "judging.db-wal").stat().st_size > 0
    content = {name: (tmp_path / name).read_bytes() for name in ("judging.db", "judging.db-wal")}
    database.close()
    for name, old in content.items():  # as after a kill
        (tmp_path / name).write_bytes(old)
    restore(copy, path, replace=True)
    assert not (tmp_path / "judging.db-wal").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT guidelines_version FROM project").fetchall() == [(1,)]


def test_a_backup_is_refused_without_a_database(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("query,document\n")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    for name, kind in (("labels.csv", "other-format"), ("other.db", "other-format"), ("missing.db", "no-file")):
        with pytest.raises(InputError) as caught:
            back_up(tmp_path / name, tmp_path / "copy.db")
        assert caught.value.kind == kind
        with pytest.raises(InputError):
            restore(tmp_path / name, tmp_path / "new.db")
    assert not list(tmp_path.glob("*copy*")) + list(tmp_path.glob("*new*"))
    with pytest.raises(UsageError) as refused:
        back_up("postgresql://ann@host/judging", tmp_path / "copy.db")
    assert refused.value.kind == "postgresql"


# Kills.


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("asks_preferences", "n_kills"), [(False, N_KILLS), (True, 1)])
def test_kills_lose_and_double_no_answer(database_target: str, asks_preferences: bool, n_kills: int) -> None:
    tokens = create_loaded(database_target, asks_preferences=asks_preferences)
    result = kill_repeatedly(database_target, tokens, n_kills)
    assert result.is_clean, result
    assert result.acknowledged >= 20 * n_kills
    assert result.in_doubt > 0 or n_kills == 1  # a single kill may find no answer on its way
    check_invariants(database_target)


def test_a_kill_of_the_postgresql_server_loses_no_answer() -> None:
    if find_program("initdb") is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with PostgresServer(fsync=True) as server:
        tokens = create_loaded(server.url())
        judges = SimulatedJudges(tokens)
        with RunningService(server.url()) as service:
            judges.start(service.url)
            while len(judges.receipts) < 20:
                time.sleep(0.01)
            server.kill()
            before = set(judges.receipts)
            server.start()
            while len(judges.receipts) < len(before) + 20:
                time.sleep(0.01)
            judges.pause()
            for judge in judges.judges:
                judge.send_again(service.url)
            assert service.stop() == 0
        events = stored_client_ids(server.url())
        assert len(events) == len(set(events))
        assert set(events) == judges.sent == set(judges.receipts)
        assert before <= set(events)
        assert sum(judge.n_failed for judge in judges.judges) > 0
        check_invariants(server.url())


def create_member(database: Database, project: Project, name: str) -> int:
    """Add a new lead to a project; return the id."""

    def create(connection: Connection) -> int:
        person = create_assessor(connection, name, now=database.now())
        return add_member(connection, project.id, person.id, "lead", database.now()).assessor.id

    return database.write(create)


def test_the_demo_has_a_project_with_answers_and_a_fitted_model(sqlite_database: Database) -> None:
    project = create_demo(sqlite_database)
    with sqlite_database.read() as connection:
        status = project_status(connection, project, sqlite_database.now())
        snapshot = latest_snapshot(connection, project)
        assert snapshot is not None
        reliability = {one.assessor: one.informativeness or 0.0 for one in list_reliabilities(connection, snapshot)}
    assert project.policy == "ndcg@10"
    assert 10 < status.pairs.unfinished < 30, "all colleagues have judged the others"
    assert 200 < status.n_answers < 288
    assert reliability["ada"] > reliability["chris"]
    kappas = {(one["assessor"], one["other"]): one["kappa"] for one in snapshot.agreement}
    assert len(kappas) == 3
    assert max(kappas, key=lambda pair: kappas[pair]) in (("ada", "ben"), ("ben", "ada"))
    visitor = create_member(sqlite_database, project, "visitor")
    background = Refits(sqlite_database)
    background.run_due()
    with sqlite_database.read() as connection:
        status = project_status(connection, project, sqlite_database.now())
    assert 30 < status.pairs.unfinished < 96, "the others are settled"
    now = sqlite_database.now()
    found = sqlite_database.write(lambda connection: next_pairs(connection, project, visitor, 3, now))
    assert len(found.leases) == 3
    with pytest.raises(UsageError) as caught:
        create_demo(sqlite_database)
    assert caught.value.parameter == "demo"


def test_serve_needs_a_database_or_the_demo() -> None:
    error = CliRunner().invoke(app, ["serve"]).exception
    assert isinstance(error, UsageError)
    assert error.parameter == "database"
