"""Test how answers are recorded, changed and undone."""

from __future__ import annotations

from typing import Any

import pytest

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.service_errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging


def test_an_answer_in_time_counts(database: Database) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    span = {"field": "body", "start": 0, "end": 4}
    receipt = judging.answer(1, lease, grade="2", comment="good", spans=[span], active_ms=1200, away_ms=30)
    assert (receipt.grade, receipt.generation, receipt.received) == ("2", 1, database.now())
    assert (receipt.is_late, receipt.is_counted, receipt.feedback) == (False, True, None)
    (event,) = judging.rows(schema.event)
    assert (event["grade"], event["comment"], event["spans"]) == (2, "good", [span])
    assert (event["active_ms"], event["away_ms"], event["guidelines_version"]) == (1200, 30, 1)
    assert judging.rows(schema.lease)[0]["end_kind"] == "answered"
    assert judging.taken(receipt.pair_id) == 1
    judging.check_invariants()


def test_grades_are_names_or_numbers_of_the_scale(database: Database) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    for fields in ({"grade": 4}, {"grade": "good"}, {"grade": None}, {"kind": "cannot-judge", "grade": 1}):
        with pytest.raises(Invalid) as caught:
            judging.answer(1, lease, **fields)
        assert caught.value.kind == "unknown-grade"
    with pytest.raises(Invalid) as caught:
        judging.send(1, Answer("a", grade=1, pair_id=1), Answer("b", grade=5, pair_id=2))
    assert (caught.value.kind, caught.value.location.place) == ("unknown-grade", "answer 2")
    assert caught.value.fix is not None
    assert "0, 1, 2, 3" in caught.value.fix.text
    assert judging.rows(schema.event) == []
    assert judging.answer(1, lease, kind="cannot-judge").is_counted, "counts like a grade"


@pytest.mark.parametrize(
    "shares", [[0.5, 0.5], [0.5, 0.5, 0.5, -0.5], [0.4, 0.4, 0.1, 0.2], [0.1, 0.2, 0.7, float("nan")]]
)
def test_probabilities_are_one_per_grade_and_sum_to_1(database: Database, shares: list[float]) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    with pytest.raises(Invalid) as caught:
        judging.answer(1, lease, grade=2, probabilities=shares)
    assert caught.value.kind == "not-a-share"
    with pytest.raises(Invalid):
        judging.answer(1, lease, kind="cannot-judge", probabilities=[0.0, 0.0, 1.0, 0.0])
    assert judging.rows(schema.event) == []
    judging.answer(1, lease, grade=2, probabilities=[0.0, 0.25, 0.75, 0.0])
    assert judging.rows(schema.event)[0]["probabilities"] == [0.0, 0.25, 0.75, 0.0]


def test_a_repeated_answer_returns_the_stored_receipt(database: Database, clock: ManualClock) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    first = judging.answer(1, lease, client_id="same")
    clock.advance(5000)
    assert judging.answer(1, lease, client_id="same") == first
    twice = Answer("twice", grade=1, pair_id=4)
    assert len(set(judging.send(1, twice, twice))) == 1
    assert len(judging.rows(schema.event)) == 2
    judging.check_invariants()


@pytest.mark.parametrize("change", [{"grade": 2}, {"comment": "x"}, {"kind": "cannot-judge"}, {"pair_id": 1}])
def test_a_client_id_has_one_answer(database: Database, change: dict[str, Any]) -> None:
    judging = Judging(database)
    judging.answer(1, pair_id=2, client_id="same")
    with pytest.raises(Conflict) as caught:
        judging.answer(1, client_id="same", **{"pair_id": 2, **change})
    assert (caught.value.kind, caught.value.location.place) == ("client-id-taken", "answer 1")
    assert judging.answer(2, client_id="same", **{"pair_id": 2, **change}).client_id == "same", "ids of others are free"


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_late_answer_counts_if_there_is_room(database: Database, clock: ManualClock, is_swept: bool) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    lease = judging.lease(1)
    clock.advance(900)
    if is_swept:
        judging.judge(2, kind="later")
    receipt = judging.answer(1, lease)
    assert (receipt.is_late, receipt.is_counted) == (True, True)
    assert judging.taken(1) == 1
    assert {row["end_kind"] for row in judging.rows(schema.lease, assessor_id=1)} == {"expired"}
    judging.check_invariants()


def test_a_late_answer_without_room_is_kept_and_not_counted(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    lease = judging.lease(1)
    clock.advance(900)
    judging.judge(2)
    receipt = judging.answer(1, lease, grade=3)
    assert (receipt.is_late, receipt.is_counted) == (True, False)
    assert judging.taken(1) == 1
    assert judging.rows(schema.answer, assessor_id=1)[0]["grade"] == 3
    changed = judging.answer(1, pair_id=1, grade=2)
    assert (changed.is_late, changed.is_counted) == (False, False)
    undone = judging.undo(1)
    assert (undone.pair_id, undone.lease) == (1, None), "the pair has no free place"
    assert judging.rows(schema.answer, assessor_id=1) == []
    judging.check_invariants()


def test_a_late_answer_uses_a_newer_lease_on_the_pair(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    old = judging.lease(1)
    clock.advance(900)
    new = judging.lease(1)
    assert new.token != old.token
    assert judging.answer(1, old).is_counted
    assert (judging.taken(1), judging.next(1).status) == (1, "done")
    again = judging.answer(1, new, grade=3)
    assert (again.is_late, again.is_counted) == (False, True)
    judging.check_invariants()


def test_a_second_answer_replaces_the_first(database: Database) -> None:
    judging = Judging(database)
    receipt = judging.judge(1, grade=0)
    changed = judging.answer(1, pair_id=receipt.pair_id, grade=3)
    assert changed.is_counted
    (row,) = judging.rows(schema.answer)
    assert row["grade"] == 3
    assert len(judging.rows(schema.event)) == 2
    assert judging.taken(receipt.pair_id) == 1
    later = judging.answer(1, pair_id=receipt.pair_id, kind="later")
    assert (later.kind, later.is_counted) == ("later", False)
    assert judging.rows(schema.answer) == [row], "an answered pair cannot be put off"
    judging.check_invariants()


def test_answers_without_leases_count_up_to_the_quota(database: Database) -> None:
    judging = Judging(database, n_pairs=1, kinds=["human"] * 3 + ["expert"], quotas={"human": (1, 2)})
    counted = [judging.answer(assessor, query="q0", document="d0").is_counted for assessor in (1, 2, 3, 4)]
    assert counted == [True, True, False, False]
    assert [row["is_late"] for row in judging.rows(schema.event)] == [False] * 4
    assert judging.next(1).status == "done"
    judging.check_invariants()


def test_many_answers_are_recorded_at_once(database: Database) -> None:
    judging = Judging(database, n_pairs=60, kinds=["llm"], quotas={"llm": (1, 1)})
    leases = judging.next(1, 50).leases
    with_leases = [Answer(f"c{number}", grade=number % 4, lease=lease.token) for number, lease in enumerate(leases)]
    changed = Answer("changed", grade=3, pair_id=leases[0].content.pair_id)
    receipts = judging.send(1, *with_leases, changed)
    assert [receipt.client_id for receipt in receipts] == [*(f"c{number}" for number in range(50)), "changed"]
    assert all(receipt.is_counted for receipt in receipts)
    assert len(judging.rows(schema.answer)) == 50
    assert judging.rows(schema.answer, pair_id=changed.pair_id)[0]["grade"] == 3
    judging.check_invariants()


def test_a_place_that_an_answer_returns_is_free_for_the_next_answer(database: Database) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    lease = judging.lease(1)
    put_off = Answer("later", kind="later", lease=lease.token)
    judged = Answer("grade", kind="grade", grade=2, pair_id=lease.content.pair_id)
    assert [receipt.is_counted for receipt in judging.send(1, put_off, judged)] == [False, True]
    assert judging.taken(lease.content.pair_id) == 1
    judging.check_invariants()


def test_one_bad_answer_stores_none(database: Database) -> None:
    judging = Judging(database)
    with pytest.raises(NotFound) as caught:
        judging.send(1, Answer("a", grade=1, pair_id=1), Answer("b", grade=1, pair_id=99))
    assert (caught.value.kind, caught.value.location.place) == ("no-pair", "answer 2")
    assert judging.rows(schema.event) == []


@pytest.mark.parametrize(
    ("fields", "error", "kind"),
    [
        ({"query": "q0", "document": "d9"}, NotFound, "no-pair"),
        ({}, Invalid, "no-pair"),
        ({"query": "q0"}, Invalid, "no-pair"),
        ({"pair_id": 2**70}, NotFound, "no-pair"),
        ({"pair_id": 1, "comment": "a\0b"}, Invalid, "invalid-text"),
        ({"client_id": "", "pair_id": 1}, Invalid, "no-client-id"),
        ({"kind": "maybe", "pair_id": 1}, Invalid, "unknown-answer-kind"),
        ({"kind": "withdrawn", "pair_id": 1}, Invalid, "unknown-answer-kind"),
    ],
)
def test_bad_answers_are_refused(
    database: Database, fields: dict[str, Any], error: type[ServiceError], kind: str
) -> None:
    with pytest.raises(error) as caught:
        Judging(database).answer(1, **fields)
    assert caught.value.kind == kind


def test_leases_and_pairs_of_others_are_not_found(database: Database) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    with pytest.raises(NotFound) as caught:
        judging.answer(2, lease)
    assert caught.value.kind == "no-lease"
    with pytest.raises(Invalid) as mismatch:
        judging.answer(1, lease, pair_id=lease.content.pair_id + 1)
    assert mismatch.value.kind == "other-pair"


def test_without_a_lease_only_active_members_judge(database: Database) -> None:
    judging = Judging(database)
    judging.answer(1, pair_id=1, client_id="first")
    judging.set_member(1, is_paused=True)
    with pytest.raises(Forbidden) as paused:
        judging.answer(1, pair_id=2)
    assert paused.value.kind == "paused"
    assert judging.answer(1, pair_id=1, client_id="first").pair_id == 1, "a repeated request is answered"
    judging.set_member(1, is_paused=False)
    judging.update(is_open=False)
    for request in (lambda: judging.answer(1, pair_id=2), lambda: judging.undo(1)):
        with pytest.raises(Conflict) as closed:
            request()
        assert closed.value.kind == "closed"


def test_unqualified_members_answer_training_pairs_only(database: Database) -> None:
    judging = Judging(database, qualification_share=1.0)
    judging.add(PairRow("t", "t", kind="training", gold_grade=2, explanation="since"))
    with pytest.raises(Forbidden) as caught:
        judging.answer(1, pair_id=1)
    assert caught.value.kind == "not-qualified"
    receipt = judging.judge(1, grade=2, client_id="same")
    assert receipt.feedback is not None
    assert receipt.feedback.explanation == "since"
    assert judging.answer(1, pair_id=receipt.pair_id, grade=2, client_id="same") == receipt
    for request in (lambda: judging.answer(1, pair_id=5), lambda: judging.undo(1)):
        with pytest.raises(Conflict) as shown:
            request()
        assert shown.value.kind == "training-answered", "the correct grade is known now"


def test_undo_brings_the_pair_back_at_once(database: Database) -> None:
    judging = Judging(database, quotas={"human": (1, 1)})
    first = judging.judge(1)
    second = judging.judge(1)
    prefetched = judging.next(1, 2).leases
    undone = judging.undo(1, client_id="undo")
    assert undone.lease is not None
    assert undone.pair_id == undone.lease.content.pair_id == second.pair_id
    assert judging.next(1, 3).leases == (undone.lease, *prefetched)
    assert judging.undo(1, client_id="undo") == undone, "a repeated request changes nothing"
    assert judging.taken(second.pair_id) == 1
    assert [row["kind"] for row in judging.rows(schema.event)] == ["grade", "grade", "withdrawn"]
    judging.check_invariants()
    assert judging.undo(1, first.pair_id).pair_id == first.pair_id
    assert judging.answer(1, undone.lease, grade=3).is_counted
    judging.check_invariants()


def test_undo_needs_an_answer(database: Database) -> None:
    judging = Judging(database)
    judging.judge(2)
    judging.judge(1, kind="later")
    for pair_id in (None, 1, 2**70):
        with pytest.raises(NotFound) as caught:
            judging.undo(1, pair_id)
        assert caught.value.kind == "nothing-to-undo"
    receipt = judging.judge(1, client_id="answer")
    with pytest.raises(Conflict) as conflict:
        judging.undo(1, client_id="answer")
    assert conflict.value.kind == "client-id-taken"
    judging.undo(1, client_id="undo")
    with pytest.raises(Conflict):
        judging.answer(1, pair_id=receipt.pair_id, client_id="undo")


def test_an_uncounted_answer_that_is_undone_takes_a_free_place(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    late = judging.lease(1)
    clock.advance(900)
    judging.judge(2)
    assert not judging.answer(1, late).is_counted
    judging.update(quotas={"human": (1, 2)})
    undone = judging.undo(1)
    assert undone.lease is not None
    assert judging.taken(1) == 2
    judging.check_invariants()


def test_a_late_answer_to_a_reopened_pair_stays_in_its_generation(database: Database) -> None:
    judging = Judging(database, n_pairs=1)
    early = judging.judge(1)
    lease = judging.lease(2)
    judging.reopen(pair_ids=[1])
    assert judging.taken(1) == 0
    late = judging.answer(2, lease)
    assert (late.generation, late.is_late, late.is_counted) == (1, True, False)
    assert judging.taken(1) == 0
    judging.check_invariants()
    again = judging.judge(1, grade=3)
    assert (early.generation, again.generation, again.is_counted) == (1, 2, True)
    assert [(row["generation"], row["grade"]) for row in judging.rows(schema.answer, assessor_id=1)] == [(2, 3)]
    undone = judging.undo(2)
    assert undone.lease is None, "the answer of the earlier generation had no place"
    judging.check_invariants()
