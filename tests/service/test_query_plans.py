"""Test that the statements of the judging loop use indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .judging import Judging


@pytest.mark.parametrize("settings", [{}, {"policy": "entropy", "budget": 1000.0}])
def test_the_judging_loop_scans_no_table(tmp_path: Path, settings: dict[str, Any]) -> None:
    database = Database(tmp_path / "judging.db")
    upgrade(database)
    judging = Judging(database, n_pairs=3, honeypot_share=0.5, quotas={"human": (2, 3)}, **settings)
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
    assert {name: plan for name, plan in plans.items() if any("SCAN" in step for step in plan)} == {}
    used = " ".join(step for plan in plans.values() for step in plan)
    indexes = ["ix_quota_wanted", "ix_quota_wanted_query", "ix_answer_later", "ix_lease_live_expires"]
    for index in indexes + ["ix_quota_spare"] * bool(settings):
        assert f"{index} " in used
