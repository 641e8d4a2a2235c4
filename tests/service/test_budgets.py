"""Test that no lease is issued whose price would pass the budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import update

from crowdrank.service.domain.people import update_assessor
from crowdrank.service.domain.quotas import committed_money
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging


def spent(judging: Judging) -> float:
    with judging.database.read() as connection:
        return committed_money(connection, judging.project.id)


def set_price(judging: Judging, assessor: int, price: float) -> None:
    judging.database.write(lambda connection: update_assessor(connection, assessor, {"price": price}))


def test_leases_end_with_the_budget(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, 6, ("human", "human", "expert"), budget=4.5, quotas={"human": (2, 2), "expert": (1, 1)})
    set_price(judging, 3, 3.0)
    assert len(judging.next(1, 10).leases) == 4
    done = judging.next(2)
    assert (done.status, done.reason) == ("done", "budget-spent")
    clock.advance(900)
    assert len(judging.next(3, 10).leases) == 1, "the expired leases cost nothing"
    assert len(judging.next(2, 10).leases) == 1
    assert spent(judging) == 4.0
    judging.answer(2, judging.lease(2))
    judging.undo(2)
    assert spent(judging) == 4.0
    judging.update(budget=5.0)
    assert len(judging.next(2, 10).leases) == 2
    judging.update(budget=None)
    assert len(judging.next(2, 10).leases) == 6


def test_answers_without_a_lease_and_new_prices_count(database: Database) -> None:
    judging = Judging(database, 6, ("human", "human"), budget=4.0)
    pairs = [row["id"] for row in judging.rows(schema.pair)]
    for pair_id in pairs[:2]:
        judging.answer(1, pair_id=pair_id)
    judging.answer(1, pair_id=pairs[0], grade=2)
    assert len(judging.next(2, 10).leases) == 2
    assert spent(judging) == 4.0
    judging.update(budget=6.0)
    set_price(judging, 1, 2.0)
    assert judging.next(1).reason == "budget-spent"
    assert judging.answer(1, pair_id=pairs[5]).is_counted, "an answer is never refused"
    set_price(judging, 1, 0.0)
    assert len(judging.next(1, 10).leases) == 3, "what costs nothing is always handed out"


def test_answers_without_a_lease_leave_no_money_for_a_single_lease(database: Database) -> None:
    judging = Judging(database, 6, ("human", "human"), budget=4.0)
    for pair_id in [row["id"] for row in judging.rows(schema.pair)][:4]:
        judging.answer(1, pair_id=pair_id)
    assert judging.next(2, 1).reason == "budget-spent"
    assert spent(judging) == 4.0


def test_many_threads_do_not_pass_the_budget(database: Database) -> None:
    judging = Judging(database, 30, ("human",) * 12, budget=37.0, quotas={"human": (5, 5)})
    prices = schema.assessor.c.id % 3 + 1
    database.write(lambda connection: connection.execute(update(schema.assessor).values(price=prices)))

    def judge(assessor: int) -> None:
        while leases := judging.next(assessor, 2).leases:
            judging.answer(assessor, leases[0])
            assert spent(judging) <= 37.0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(judge, [assessor for assessor in judging.assessors for _ in range(2)]))
    assert 36.0 <= spent(judging) <= 37.0
    judging.check_invariants()
