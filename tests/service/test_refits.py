"""Test that the model follows the answers, and that its plan decides which pairs are handed out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, text

from crowdrank import GDA
from crowdrank.collection.replay import refit
from crowdrank.judgments.table import Judgments
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.domain.progress import coded_answers
from crowdrank.service.model import fits, refits
from crowdrank.service.model.refits import Refits, last_failure
from crowdrank.service.service_errors import Conflict, Invalid
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .conftest import ManualClock
from .judging import Judging

KINDS = ("human",) * 5
POLICY: dict[str, Any] = {"policy": "ndcg@3", "quotas": {"human": (1, 4)}}

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")


@pytest.fixture
def background(database: Database) -> Iterator[Refits]:
    found = Refits(database)
    yield found
    found.close()


def judge_some(judging: Judging, count: int, first: int = 0) -> None:
    """Let the assessors judge in turn; grades follow the number of the pair, with some errors."""
    assessors = list(judging.assessors)
    for number in range(first, first + count):
        assessor = assessors[number % len(assessors)]
        lease = judging.lease(assessor)
        grade = (lease.content.pair_id + (number % 7 == 0)) % 4
        judging.answer(assessor, lease, grade=grade)


def standings(judging: Judging) -> dict[int, dict[str, Any]]:
    return {row["pair_id"]: row for row in judging.rows(schema.standing)}


def steps(found: Refits) -> list[str]:
    return [step.kind for step in found.run_due()]


def expected_standings(judging: Judging, model: GDA) -> dict[int, dict[str, Any]]:
    """Return the rows of a consensus by pair."""
    keys = {table: {row["id"]: row["key"] for row in judging.rows(table)} for table in (schema.query, schema.document)}
    rows = {(row["query"], row["document"]): row for row in model.consensus_.document_table.to_pylist()}
    pairs = {
        row["id"]: (keys[schema.query][row["query_id"]], keys[schema.document][row["document_id"]])
        for row in judging.rows(schema.pair)
    }
    return {pair: rows[ids] for pair, ids in pairs.items() if ids in rows}


def assert_standings(judging: Judging, expected: dict[int, dict[str, Any]]) -> None:
    found = standings(judging)
    assert found.keys() == expected.keys()
    for pair, row in found.items():
        for name in ("relevance", "sd", "lower", "upper"):
            np.testing.assert_allclose(row[name], expected[pair][name], rtol=1e-6)
        shares = [expected[pair][f"p{grade}"] for grade in range(4)]
        np.testing.assert_allclose(row["probabilities"], shares, atol=1e-6)


def test_steps_follow_answers_and_time(database: Database, clock: ManualClock, background: Refits) -> None:
    judging = Judging(database, 8, KINDS, **POLICY)
    assert steps(background) == ["plan"]
    assert steps(background) == []
    judge_some(judging, 6)
    assert [(step.kind, step.n_events) for step in background.run_due()] == [("fit", 6)]
    judge_some(judging, 1, first=6)
    clock.advance(1)
    assert [(step.kind, step.n_events) for step in background.run_due()] == [("update", 1)]
    clock.advance(60)
    assert steps(background) == ["iterations"]
    judge_some(judging, 6, first=7)
    clock.advance(60)
    assert steps(background) == ["fit"], "twice the answers"
    clock.advance(24 * 3600)
    assert steps(background) == [], "nothing new"
    judge_some(judging, 1, first=13)
    assert steps(background) == ["fit"], "once a day"
    judging.update(settled=0.9)
    assert steps(background) == ["iterations"], "another plan"
    (snapshot,) = judging.rows(schema.snapshot)
    assert snapshot["last_event_id"] == max(row["id"] for row in judging.rows(schema.event))


def test_intervals_can_be_set(sqlite_database: Database, clock: ManualClock) -> None:
    judging = Judging(sqlite_database, 8, KINDS, **POLICY)
    background = Refits(sqlite_database, n_answers=3, seconds=600, per_answer=False)
    judge_some(judging, 8)
    assert steps(background) == ["fit"]
    judge_some(judging, 2, first=8)
    clock.advance(500)
    assert steps(background) == []
    judge_some(judging, 1, first=10)
    assert steps(background) == ["iterations"]
    judge_some(judging, 1, first=11)
    assert steps(background) == []
    clock.advance(600)
    assert steps(background) == ["iterations"]
    judge_some(judging, 3, first=12)
    assert steps(background) == ["iterations"], "15 answers, the last fit had 8"
    judge_some(judging, 3, first=15)
    assert steps(background) == ["fit"], "answers since the last fit count, not only those since the last iterations"
    judge_some(judging, 9, first=18)
    assert steps(background) == ["iterations"], "27 answers, the last fit had 18"


def judgments_of(connection: Connection, judging: Judging) -> Judgments:
    """Return the answers of a project as judgments."""
    answers = coded_answers(connection, judging.project)
    assert answers is not None
    return answers.judgments


@pytest.mark.parametrize("change", ["new", "changed", "withdrawn", "gold"])
def test_an_update_equals_that_of_the_model(database: Database, background: Refits, change: str) -> None:
    judging = Judging(database, 6, KINDS, **POLICY)
    judging.add(PairRow("q0", "g", kind="gold", gold_grade=1))
    judge_some(judging, 9)
    background.run_due()
    with database.read() as connection:
        before = judgments_of(connection, judging)
    model = GDA().fit(before)
    assert_standings(judging, expected_standings(judging, model))
    mine = judging.rows(schema.answer, assessor_id=1)[0]
    if change == "new":
        judge_some(judging, 2, first=9)
    elif change == "changed":
        judging.answer(1, pair_id=mine["pair_id"], grade=(mine["grade"] + 2) % 4)
    elif change == "withdrawn":
        judging.undo(1, mine["pair_id"])
    else:
        judging.answer(1, query="q0", document="g", grade=0)
    assert steps(background) == ["update"]
    with database.read() as connection:
        after = judgments_of(connection, judging)
    if change == "withdrawn":
        model.consensus_ = model.infer(after)
    else:
        model.add(after, n_iter=0)
    assert_standings(judging, expected_standings(judging, model))


def test_a_new_round_forgets_what_the_model_said(database: Database, background: Refits) -> None:
    judging = Judging(database, 4, KINDS, **POLICY)
    judge_some(judging, 8)
    background.run_due()
    pair_id = next(iter(standings(judging)))
    judging.reopen(pair_ids=[pair_id])
    assert pair_id not in standings(judging)
    (quota,) = judging.rows(schema.quota, pair_id=pair_id)
    assert quota["is_unsettled"]
    assert quota["priority"] == max(row["priority"] for row in judging.rows(schema.quota))
    judge_some(judging, 1, first=8)
    background.run_due()
    assert steps(background) == []


def test_other_models_and_fits_on_request_are_followed(database: Database, background: Refits) -> None:
    judging = Judging(database, 4, KINDS)
    judge_some(judging, 6)
    assert steps(background) == ["fit"]
    background.fit(judging.project, "dawid-skene")
    other = Refits(database)
    other.fit(judging.project, "rasch")
    assert steps(background) == ["fit"], "of another method"
    (snapshot,) = judging.rows(schema.snapshot)
    assert snapshot["method"] == "rasch"
    judging.update(policy="entropy")
    with pytest.raises(Invalid) as caught:
        background.fit(judging.project, "majority")
    assert caught.value.kind == "no-answer-model"


def test_all_answers_can_be_withdrawn(database: Database, clock: ManualClock, background: Refits) -> None:
    judging = Judging(database, 2, KINDS, **POLICY)
    judge_some(judging, 1)
    background.run_due()
    judging.undo(1)
    assert steps(background) == ["update"]
    assert standings(judging) == {}
    clock.advance(60)
    assert steps(background) == ["plan"]
    assert steps(background) == []


def test_a_failure_is_shown_and_tried_again(
    sqlite_database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging, background = Judging(sqlite_database, 4, KINDS, **POLICY), Refits(sqlite_database)

    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("no luck")

    judge_some(judging, 4)
    with monkeypatch.context() as context:
        context.setattr(refits, "fit_project", fail)
        assert steps(background) == ["failed"]
        assert steps(background) == [], "not at once"
    with sqlite_database.read() as connection:
        failure = last_failure(connection, judging.project)
    assert failure is not None
    assert (failure.at, "no luck" in failure.problem) == (clock(), True)
    clock.advance(60)
    assert steps(background) == ["fit"]
    with sqlite_database.read() as connection:
        assert last_failure(connection, judging.project) is None


def test_requests_do_not_wait_for_a_fit(
    database: Database, background: Refits, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging = Judging(database, 6, KINDS, **POLICY)
    judge_some(judging, 4)
    is_fitting, may_end = threading.Event(), threading.Event()

    def slow_refit(*arguments: Any) -> Any:
        is_fitting.set()
        assert may_end.wait(60)
        return model_refit(*arguments)

    model_refit = refit
    monkeypatch.setattr(fits, "refit", slow_refit)
    thread = threading.Thread(target=background.run_due)
    thread.start()
    assert is_fitting.wait(60)
    judge_some(judging, 4, first=4)
    assert Refits(database).run_due() == [], "one at a time"
    monkeypatch.setattr(refits, "WAIT_SECONDS", 0.1)
    with pytest.raises(Conflict) as caught:
        background.fit(judging.project)
    assert caught.value.kind == "fit-running"
    may_end.set()
    thread.join()
    assert len(judging.rows(schema.snapshot)) == 1
    assert steps(background) == ["update"], "answers that came during the fit"
    judging.check_invariants()


def test_the_thread_acts_until_it_is_closed(database: Database) -> None:
    judging = Judging(database, 4, KINDS, **POLICY)
    judge_some(judging, 3)
    background, other = Refits(database), Refits(database)
    background.start()
    while not judging.rows(schema.snapshot, is_complete=True):
        threading.Event().wait(0.05)
    assert other.run_due() == []
    background.close()
    assert steps(other) == ["fit"]
    other.close()


FIT_AND_WAIT = """
import sys, time
from crowdrank.service.model import fits
from crowdrank.service.store.database import Database
from crowdrank.service.model.refits import Refits
write = fits._write_draft
def write_and_wait(*arguments):
    write(*arguments)
    print("written", flush=True)
    time.sleep(600)
fits._write_draft = write_and_wait
print(Refits(Database(sys.argv[1])).run_due())
"""


def test_a_process_killed_during_a_fit_blocks_nobody(database: Database, database_target: str) -> None:
    judging = Judging(database, 4, KINDS, **POLICY)
    judge_some(judging, 4)
    background = Refits(database)
    command = [sys.executable, "-c", FIT_AND_WAIT, database_target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        if not database.is_sqlite:  # one process serves an SQLite file
            assert background.run_due() == [], "the other process acts"
        with database.read() as connection:
            assert fits.latest_snapshot(connection, judging.project) is None
        judge_some(judging, 1, first=4)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    while not (found := steps(background)):  # PostgreSQL notices the end of a connection soon
        threading.Event().wait(0.05)
    assert found == ["fit"]
    (snapshot,) = judging.rows(schema.snapshot)
    assert snapshot["is_complete"]
    assert {row["snapshot_id"] for row in judging.rows(schema.standing)} == {snapshot["id"]}
    background.close()


def test_a_lost_connection_is_replaced(postgres_url: str, clock: ManualClock) -> None:
    database = Database(postgres_url, clock=clock)
    upgrade(database)
    judging, background = Judging(database, 4, KINDS, **POLICY), Refits(database)
    assert steps(background) == ["plan"]
    end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    with database.engine.connect() as connection:
        connection.execute(text(f"{end_others} pg_backend_pid()"))
    judge_some(judging, 2)
    assert steps(background) == ["fit"]
    with database.engine.connect() as connection:
        connection.execute(text(f"{end_others} pg_backend_pid()"))
    background.close()
    database.close()
