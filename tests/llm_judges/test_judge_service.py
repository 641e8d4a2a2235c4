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
from crowdrank.readers.preference_files import read_preferences
from crowdrank.readers.read import read_judgments
from crowdrank.service.domain.credentials import create_token
from crowdrank.service.domain.pairs import DocumentRow, PairRow, add_pairs
from crowdrank.service.domain.people import add_member, create_assessor, find_assessor, update_assessor
from crowdrank.service.domain.progress import project_status
from crowdrank.service.domain.projects import create_project, get_project, update_project
from crowdrank.service.domain.quotas import committed_money
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade
from tools.service_invariants import find_violations
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


# Comparisons.


@pytest.fixture
def compared(served: RunningService, jam: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a project with three comparisons and the judges of the project of grades, at a price of 0.5 each."""
    database, name = Database(served.target), f"prefer-{jam}"
    now = database.now()
    rows = [
        PairRow(
            "q", f"d{low}", query_text="jam", title=f"Jam {low}", other=DocumentRow(f"d{high}", title=f"Jam {high}")
        )
        for low, high in ((0, 1), (0, 2), (1, 2))
    ]

    def create(connection: Any) -> None:
        project = create_project(connection, name, None, now, task="preferences", quotas={"llm": (2, 2)}, budget=7.0)
        add_pairs(connection, project, rows, now)
        for judge in JUDGES:
            person = find_assessor(connection, f"{judge}-{jam}")
            assert person is not None
            add_member(connection, project.id, person.id, "judge", now)
            update_assessor(connection, person.id, {"price": 0.5})

    database.write(create)
    database.close()
    return name


def preferred(body: dict[str, Any]) -> str:
    """Return the side of the title with the larger number."""
    left, right = (body["messages"][-1]["content"].split(f"BEGIN {side} ")[1] for side in ("LEFT", "RIGHT"))
    return "left" if left.split("\n")[1] > right.split("\n")[1] else "right"


def compare_titles(number: int, body: dict[str, Any]) -> Reply:
    return Reply(json.dumps({"preference": preferred(body)}))


def compare_by_name(number: int, body: dict[str, Any]) -> Reply:
    """Let the first judge prefer a document, and the second one the left side."""
    return Reply(json.dumps({"preference": preferred(body) if body["model"] == "first" else "left"}))


def test_comparisons_are_answered_in_both_orders(
    served: RunningService, compared: str, project: Project, run: Callable[..., Any]
) -> None:
    with serve(compare_by_name) as endpoint:
        write_judges(project, endpoint.url, prompt="preference", prices={"input": 1.0, "output": 2.0})
        done = run(*command(served, compared, "--budget", 1))
        again = run(*command(served, compared, "--budget", 1))
    assert {row["assessor"]: row["answered"] for row in done["judges"]} == dict.fromkeys(JUDGES, 3)
    assert {row["status"] for row in again["judges"]} == {"no-pairs"}
    assert len(endpoint.bodies) == 2 * 3 * 2
    assert done["charged"] == pytest.approx(endpoint.cost(1.0, 2.0))
    read = read_preferences(f"{served.target}?project={compared}")
    frame = read.frame.assign(judge=[name.partition("-")[0] for name in read.frame["assessor"]])
    found = {tuple(row) for row in frame[["judge", "left", "right", "preference"]].values.tolist()}
    orders = [(f"d{one}", f"d{other}") for one in range(3) for other in range(3) if one != other]
    assert found == {("first", one, other, -1 if one > other else 1) for one, other in orders} | {
        ("second", one, other, -1) for one, other in orders
    }
    database = Database(served.target)
    with database.read() as connection:
        stored = get_project(connection, compared)
        status = project_status(connection, stored, database.now())
        assert find_violations(connection, stored.id) == []
        assert committed_money(connection, stored.id) == status.cost == 2 * 3 * 2 * 0.5
        assert (status.labels["llm"], status.pairs.complete, status.n_answers) == ((6, 6), 3, 6)
    database.close()


def test_a_comparison_with_one_order_missing_is_put_off(
    served: RunningService, compared: str, project: Project, run: Callable[..., Any]
) -> None:
    def refuse_one(number: int, body: dict[str, Any]) -> Reply:
        content = body["messages"][-1]["content"]
        refused = "Jam 2" in content.split("BEGIN RIGHT")[0] and "Jam 0" in content
        return Reply("perhaps") if refused else compare_titles(number, body)

    with serve(refuse_one) as endpoint:
        write_judges(project, endpoint.url, ("first",), prompt="preference")
        done = run(*command(served, compared))
    assert (done["judges"][0]["answered"], done["judges"][0]["put_off"], len(endpoint.bodies)) == (2, 1, 6)
    assert n_held(served) == 0
    with serve(compare_titles) as endpoint:
        write_judges(project, endpoint.url, ("first",), prompt="preference")
        done = run(*command(served, compared, "--retry", "unreadable"))
    assert done["judges"][0]["answered"] == 1
    assert len(read_preferences(f"{served.target}?project={compared}")) == 6


def test_judges_need_a_prompt_for_the_task_of_the_project(
    served: RunningService, jam: str, compared: str, project: Project
) -> None:
    write_judges(project, "http://127.0.0.1:9/v1", ("first",))
    assert refusal(*command(served, compared)).kind == "other-prompts"
    write_judges(project, "http://127.0.0.1:9/v1", ("first",), prompt="preference")
    assert refusal(*command(served, jam)).kind == "other-prompts"
    assert n_held(served) == 0
