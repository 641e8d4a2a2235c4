"""Test many threads of assessors at once: no pair is lost, and none gets more labels than it may have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, text

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.leases import end_expired_leases
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .conftest import ManualClock
from .judging import Judging
from .preference_project import Comparing

KINDS = ("human",) * 10 + ("llm",) * 4 + ("expert",) * 2
QUOTAS = {"human": (3, 4), "llm": (2, 2), "expert": (1, 1)}
N_PAIRS = 24


def judge_until_done(judging: Judging, assessor: int, number: int) -> int:
    """Take leases and answer them until nothing is left; return the number of answers sent."""
    n_sent = 0
    while True:
        leases = judging.next(assessor, number).leases
        if not leases:
            return n_sent
        grade = judging.project.grades[1]
        answers = [Answer(f"sent{next(judging.numbers)}", grade=grade, lease=lease.token) for lease in leases]
        judging.send(assessor, *answers)
        judging.send(assessor, answers[0])
        n_sent += len(answers)
        if n_sent % 5 == 0:
            judging.undo(assessor)


def check_tables(judging: Judging) -> None:
    judging.check_invariants()
    assert judging.rows(schema.lease, ended=None) == []
    for row in judging.rows(schema.quota):
        assert row["target"] <= row["taken"] <= row["k_max"]


@pytest.mark.parametrize(("n_tabs", "task"), [(1, "grades"), (2, "grades"), (2, "preferences")])
def test_threads_share_the_pairs(database: Database, n_tabs: int, task: str) -> None:
    is_graded = task == "grades"
    judging = (
        Judging(database, N_PAIRS, KINDS, quotas=QUOTAS) if is_graded else Comparing(database, 8, KINDS, quotas=QUOTAS)
    )
    tabs = [assessor for assessor in judging.assessors for _ in range(n_tabs)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda assessor: judge_until_done(judging, assessor, 4 if assessor > 10 else 2), tabs))
    check_tables(judging)
    with database.read() as connection:
        late = connection.execute(text("SELECT count(*) FROM event WHERE is_late")).scalar_one()
    assert late == 0


def test_threads_share_the_pairs_while_leads_reopen_and_change_quotas(database: Database) -> None:
    judging = Judging(database, N_PAIRS, KINDS, quotas=QUOTAS)

    def manage() -> None:
        for number in range(6):
            judging.reopen(queries=[f"q{number}", f"q{11 - number}"])
            judging.update(quotas={**QUOTAS, "human": (2 + number % 2, 4)})
            judging.close(queries=[f"q{number}"])
            judging.reopen(queries=[f"q{number}"], keep_answers=True)

    with ThreadPoolExecutor(9) as pool:
        managing = pool.submit(manage)
        list(pool.map(lambda assessor: judge_until_done(judging, assessor, 3), judging.assessors))
        managing.result()
        list(pool.map(lambda assessor: judge_until_done(judging, assessor, 3), judging.assessors))
    check_tables(judging)


def test_an_answer_finds_that_its_lease_was_ended_meanwhile(postgres_url: str, clock: ManualClock) -> None:
    database = Database(postgres_url, clock=clock)
    upgrade(database)
    judging = Judging(database, 1)
    lease = judging.lease(1)
    ended: list[int] = []

    def end_lease(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "is_repeated" in statement and not ended:
            later = lease.expires + 1
            ended.append(database.write(lambda connection: end_expired_leases(connection, later)))

    event.listen(database.engine, "after_cursor_execute", end_lease)
    receipt = judging.answer(1, lease)
    assert ended == [1]
    assert (receipt.is_late, receipt.is_counted) == (True, True)
    assert judging.taken(lease.content.pair_id) == 1
    assert judging.rows(schema.lease)[0]["end_kind"] == "expired"
    judging.check_invariants()
    database.close()
