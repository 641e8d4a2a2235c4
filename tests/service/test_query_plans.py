"""Test that the judging loop has few statements, and that they use indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from crowdrank.service.domain import pairs, people, projects
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.domain.projects import get_project, update_project
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .judging import Judging
from .preference_project import Comparing, comparison
from .service_world import World, create_world


@pytest.mark.parametrize("task", ["grades", "preferences"])
@pytest.mark.parametrize("settings", [{}, {"policy": "entropy", "budget": 1000.0}])
def test_the_judging_loop_scans_no_table(tmp_path: Path, task: str, settings: dict[str, Any]) -> None:
    database = Database(tmp_path / "judging.db")
    upgrade(database)
    common: dict[str, Any] = {"honeypot_share": 0.5, "quotas": {"human": (2, 3)}, **settings}
    judging: Judging
    if task == "preferences":
        judging = Comparing(database, 1, **{**common, **({"policy": "preferences"} if settings else {})})
        judging.add(comparison("g", "g", "h", kind="gold", gold_grade="left"))
    else:
        judging = Judging(database, n_pairs=3, **common)
        judging.add(PairRow("g", "g", kind="gold", gold_grade=1))
    statements: dict[str, Any] = {}

    def record(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, is_many: bool) -> None:
        statements[statement] = parameters[0] if is_many else parameters

    event.listen(database.engine, "before_cursor_execute", record)
    judging.judge(1, kind="later")
    while judging.next(1, 2).leases:
        judging.judge(1)
    judging.undo(1)
    event.remove(database.engine, "before_cursor_execute", record)
    plans: dict[str, list[str]] = {}
    with database.engine.connect() as connection:
        for statement, parameters in statements.items():
            if statement.startswith(("SELECT", "UPDATE", "DELETE")):
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans[statement] = [row.detail for row in plan]
    database.close()
    assert len(plans) > 10
    scans = {name: [step for step in plan if "SCAN" in step] for name, plan in plans.items()}
    assert {name: steps for name, steps in scans.items() if set(steps) - {"SCAN CONSTANT ROW"}} == {}
    used = " ".join(step for plan in plans.values() for step in plan)
    indexes = ["ix_quota_wanted", "ix_quota_wanted_query", "ix_answer_later", "ix_lease_live_expires"]
    for index in indexes + ["ix_quota_spare"] * bool(settings):
        assert f"{index} " in used


class Statements:
    """Counts transactions and statements of a database."""

    def __init__(self, database: Database) -> None:
        self.n_transactions = 0
        self.texts: list[str] = []
        event.listen(database.engine, "begin", self._begin)
        event.listen(database.engine, "before_cursor_execute", self._execute)

    def _begin(self, connection: Any) -> None:
        self.n_transactions += 1

    def _execute(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            self.texts.append(statement)


def send(
    world: World, statements: Statements, path: str, headers: dict[str, str], project: str = "alpha", **content: Any
) -> tuple[Any, int, int]:
    """Send a request; return its answer and the numbers of transactions and statements."""
    statements.n_transactions, statements.texts = 0, []
    answer = world.client.post(f"/api/projects/{project}/{path}", headers=headers, **content)
    assert answer.status_code == 200, answer.text
    return answer.json(), statements.n_transactions, len(statements.texts)


@pytest.mark.parametrize("actor", ["judge", "judge token"])
@pytest.mark.parametrize("settings", [{}, {"policy": "entropy", "budget": 1000.0}])
def test_the_judging_loop_has_few_statements(database: Database, actor: str, settings: dict[str, Any]) -> None:
    with create_world(database) as world:
        database.write(lambda connection: update_project(connection, get_project(connection, "alpha"), **settings))
        headers, statements, queries = world.headers(actor), Statements(database), []
        for number in range(20):
            found, *n_next = send(world, statements, "next", headers)
            assert found["n_answers"] == number
            queries.append(found["leases"][0]["content"]["query"])
            answer = {"client_id": f"c{number}", "grade": 1, "lease": found["leases"][0]["token"]}
            receipts, *n_answer = send(world, statements, "answers", headers, json=answer)
            assert [receipt["is_late"] for receipt in receipts] == [False]
            if number > 0:  # the first request computes the money spent
                assert n_next == [2, 9 if settings else 8]
            assert n_answer == [2, 6]
        assert len(set(queries)) == 1
        found, *n_next = send(world, statements, "next", headers)
        assert found["leases"][0]["content"]["query"] != queries[0]
        assert n_next == [2, 10 if settings else 9]  # looks for a pair of the same query first


@pytest.mark.parametrize("settings", [{}, {"policy": "preferences", "budget": 1000.0}])
def test_comparisons_need_no_more_statements_than_grades(sqlite_database: Database, settings: dict[str, Any]) -> None:
    with create_world(sqlite_database) as world:
        now = sqlite_database.now()

        def create(connection: Any) -> None:
            fruit = projects.create_project(connection, "fruit", None, now, task="preferences", **settings)
            people.add_member(connection, fruit.id, world.ids["judge"], "judge", now)
            pairs.add_pairs(connection, fruit, [comparison("q", "d", f"e{number}") for number in range(12)], now)

        sqlite_database.write(create)
        headers, statements = world.headers("judge"), Statements(sqlite_database)
        for number in range(8):
            found, *n_next = send(world, statements, "next", headers, project="fruit")
            (lease,) = found["leases"]
            assert {lease["content"]["document"], lease["content"]["other"]["document"]} > {"d"}
            answer = {"client_id": f"c{number}", "grade": "right", "lease": lease["token"]}
            (receipt,), *n_answer = send(world, statements, "answers", headers, project="fruit", json=answer)
            assert receipt["grade"] == "right"
            if number > 0:
                assert n_next == [2, 9 if settings else 8]
            assert n_answer == [2, 6]
