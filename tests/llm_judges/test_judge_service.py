"""LLM judges as assessors of a judging service: a real service and an endpoint, both on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import UsageError
from crowdrank.llm_judges.service_judging import ServiceClient
from crowdrank.readers.read import read_judgments
from crowdrank.service.domain.credentials import create_token
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.people import add_member, create_assessor
from crowdrank.service.domain.projects import create_project, get_project, update_project
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade
from tools.service_load import RunningService

from .fake_endpoint import Reply, document_of, error, serve
from .judging_project import Project, refusal

N_PAIRS = 6
JUDGES = ("first", "second")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Start a service with an empty project for each test."""
    path = tmp_path_factory.mktemp("service") / "judging.db"
    database = Database(path)
    upgrade(database)
    database.close()
    with RunningService(path) as service:
        yield service


@pytest.fixture
def jam(served: RunningService, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a project with pairs and two LLM judges, whose tokens are in the environment; return its name."""
    database, name = Database(served.target), str(request.node.name).replace("[", "-").replace("]", "")[:90]
    now = database.now()
    rows = [
        PairRow("q", f"d{number}", query_text="plum jam", title=f"Jam {number}", fields={"price": number})
        for number in range(N_PAIRS)
    ]

    def create(connection: Any) -> dict[str, str]:
        project = create_project(connection, name, ["Bad", "Fair", "Good"], now, quotas={"llm": (2, 2)})
        add_pairs(connection, project, rows, now)
        secrets = {}
        for judge in JUDGES:
            person = create_assessor(connection, f"{judge}-{name}", now=now, kind="llm")
            add_member(connection, project.id, person.id, "judge", now)
            secrets[judge] = create_token(connection, person.id, name="judge", scopes=["judge"], now=now)[1]
        return secrets

    for judge, secret in database.write(create).items():
        monkeypatch.setenv(f"TOKEN_{judge.upper()}", secret)
    database.close()
    return name


def write_judges(project: Project, url: str, names: tuple[str, ...] = JUDGES, **fields: Any) -> None:
    project.write_judges(
        *({"name": n, "endpoint": url, "model": n, "token_variable": f"TOKEN_{n.upper()}", **fields} for n in names)
    )


def command(served: RunningService, name: str, *more: object) -> list[str]:
    words = ["service", served.url, "--project", name, "--judges", "judges.toml", "--ledger", "calls.sqlite", *more]
    return [str(word) for word in words]


def answers(served: RunningService, name: str) -> set[tuple[str, str]]:
    """Return the document and the judge of each grade in a project."""
    query = """
        SELECT document.key, assessor.name FROM answer
        JOIN pair ON pair.id = answer.pair_id JOIN document ON document.id = pair.document_id
        JOIN project ON project.id = pair.project_id JOIN assessor ON assessor.id = answer.assessor_id
        WHERE project.name = :name AND answer.kind = 'grade'
    """
    database = Database(served.target)
    with database.read() as connection:
        found = {(row[0], row[1].partition("-")[0]) for row in connection.execute(text(query), {"name": name})}
    database.close()
    return found


def n_held(served: RunningService) -> int:
    """Return the number of pairs that are held for judges."""
    database = Database(served.target)
    with database.read() as connection:
        number = connection.execute(text("SELECT count(*) FROM lease WHERE ended IS NULL")).scalar_one()
    database.close()
    return int(number)


def by_title(number: int, body: dict[str, Any]) -> Reply:
    """Grade documents by the number in their title."""
    title = document_of(body).splitlines()[0]
    return Reply(json.dumps({"grade": ["Bad", "Fair", "Good"][int(title[-1]) % 3]}))


def test_judges_answer_all_pairs_once(
    served: RunningService, jam: str, project: Project, run: Callable[..., Any]
) -> None:
    with serve(by_title) as endpoint:
        write_judges(project, endpoint.url, prices={"input": 1.0, "output": 2.0})
        done = run(*command(served, jam, "--budget", 1))
        again = run(*command(served, jam, "--budget", 1))
    assert {row["assessor"]: row["answered"] for row in done["judges"]} == dict.fromkeys(JUDGES, N_PAIRS)
    assert {row["status"] for row in again["judges"]} == {"no-pairs"}
    assert done["charged"] == pytest.approx(endpoint.cost(1.0, 2.0))
    assert len(endpoint.bodies) == 2 * N_PAIRS
    assert sum("price: 3" in document for document in endpoint.documents()) == 2
    assert len(answers(served, jam)) == 2 * N_PAIRS


def test_a_project_that_wants_no_labels_of_llm_judges_says_so(
    served: RunningService, jam: str, project: Project
) -> None:
    database = Database(served.target)
    database.write(
        lambda connection: update_project(connection, get_project(connection, jam), quotas={"human": (2, 3)})
    )
    database.close()
    with serve(by_title) as endpoint:
        write_judges(project, endpoint.url)
        done = CliRunner().invoke(app, ["judge", *command(served, jam, "--json")], catch_exceptions=False)
    assert {row["status"] for row in json.loads(done.stdout)["judges"]} == {"kind-not-asked"}
    assert "Settings" in done.stderr
    assert endpoint.bodies == []


def test_several_samples_give_probabilities(
    served: RunningService, jam: str, project: Project, run: Callable[..., Any]
) -> None:
    with serve(lambda number, body: Reply(json.dumps({"grade": ["Bad", "Good"][number % 2]}))) as endpoint:
        write_judges(project, endpoint.url, ("first",), samples=2, concurrency=1)
        run(*command(served, jam))
    table = read_judgments(f"{served.target}?project={jam}")
    assert len(table) == N_PAIRS
    assert [set(table.extras[name].tolist()) for name in table.scale.share_names] == [{0.5}, {0.0}, {0.5}]


def test_a_call_without_a_grade_is_no_answer(
    served: RunningService, jam: str, project: Project, run: Callable[..., Any]
) -> None:
    def refuse_one(number: int, body: dict[str, Any]) -> Reply:
        return Reply("perhaps") if "Jam 2" in document_of(body) else by_title(number, body)

    with serve(refuse_one) as endpoint:
        write_judges(project, endpoint.url, ("first",))
        done = run(*command(served, jam))
        n_calls = len(endpoint.bodies)
        run(*command(served, jam))
        assert len(endpoint.bodies) == n_calls
    assert (done["judges"][0]["answered"], done["judges"][0]["put_off"]) == (N_PAIRS - 1, 1)
    assert ("d2", "first") not in answers(served, jam)
    with serve(by_title) as endpoint:
        write_judges(project, endpoint.url, ("first",))
        done = run(*command(served, jam, "--retry", "unreadable"))
    assert done["judges"][0]["answered"] == 1


def test_pairs_of_a_stopped_judge_are_given_back(
    served: RunningService, jam: str, project: Project, run: Callable[..., Any]
) -> None:
    with serve(lambda number, body: error(401)) as endpoint:
        write_judges(project, endpoint.url, ("first",))
        done = CliRunner().invoke(app, ["judge", *command(served, jam)])
        assert getattr(done.exception, "kind", None) == "judge-stopped"
    assert n_held(served) == 0
    with serve(by_title) as endpoint:
        write_judges(project, endpoint.url, ("first",))
        assert run(*command(served, jam))["judges"][0]["answered"] == N_PAIRS


def test_an_interrupt_gives_pairs_back(
    served: RunningService, jam: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        assert n_held(served) == N_PAIRS
        raise KeyboardInterrupt

    monkeypatch.setattr("crowdrank.llm_judges.service_judging.run_judges", interrupt)
    write_judges(project, "http://127.0.0.1:9/v1", ("first",))
    done = CliRunner().invoke(app, ["judge", *command(served, jam)])
    assert done.exit_code != 0
    assert n_held(served) == 0


def test_the_budget_holds_over_all_batches(
    served: RunningService, jam: str, project: Project, run: Callable[..., Any]
) -> None:
    with serve(by_title) as endpoint:
        write_judges(
            project, endpoint.url, ("first",), prices={"input": 100.0, "output": 100.0}, parameters={"max_tokens": 20}
        )
        done = run(*command(served, jam, "--budget", 0.4), code=3)
    assert 0 < done["judges"][0]["answered"] < N_PAIRS
    assert endpoint.cost(100.0, 100.0) <= done["charged"] <= 0.4
    assert list(done["stopped"]) == ["first"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"token_variable": "NOT_SET"}, "no-key"),
        ({"token_variable": ""}, "no-token"),
        ({"token_variable": "crt_0123 secret"}, "invalid-key-variable"),
        ({"prompt": "binary"}, "other-scale"),
    ],
)
def test_wrong_judges_are_one_error(
    served: RunningService, jam: str, project: Project, change: dict[str, str], kind: str
) -> None:
    write_judges(project, "http://127.0.0.1:9/v1", ("first",), **change)
    problem = refusal(*command(served, jam))
    assert problem.kind == kind
    assert "secret" not in str(problem)


def test_a_wrong_address_or_token_is_one_error(
    served: RunningService, jam: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_judges(project, "http://127.0.0.1:9/v1", ("first",))
    monkeypatch.setattr("crowdrank.llm_judges.service_judging.FIRST_RETRY_SECONDS", 0.0)
    words = command(served, jam)
    assert refusal(*[word.replace(served.url, "ftp://x") for word in words]).kind == "invalid-address"
    assert refusal(*[word.replace(served.url, "http://127.0.0.1:9") for word in words]).kind == "no-service"
    assert refusal(*[word.replace(jam, "other") for word in words]).kind == "service-refused"
    monkeypatch.setenv("TOKEN_FIRST", "wrong")
    assert refusal(*words).kind == "service-refused"
    assert list(Path().glob("*.sqlite-*")) == []


def test_projects_that_ask_for_preferences_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"name": "jam", "grades": ["left", "tie", "right"], "task": "preferences"}
    monkeypatch.setattr(ServiceClient, "_send", lambda *arguments, **content: answer)
    with ServiceClient("http://127.0.0.1:9", "jam", "token") as client, pytest.raises(UsageError) as caught:
        client.fetch_scale()
    assert caught.value.kind == "is-preferences"
