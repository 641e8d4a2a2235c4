"""Test which pairs are disputed, in which order, what leads see of them, and the labels after adjudication."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.model.disputes import ADJUDICATED, disputed_pairs, filter_pairs, project_labels, read_answers
from crowdrank.service.model.fits import Snapshot, fit_project, latest_snapshot
from crowdrank.service.service_errors import Conflict
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging

Answers = dict[int, list[tuple[int, int | None]]]
"""Assessor and grade (None: cannot judge) of the answers, by pair."""


def disputed(judging: Judging, snapshot: Snapshot | None = None) -> list[int]:
    with judging.database.read() as connection:
        return disputed_pairs(connection, judging.project, snapshot)


def give(judging: Judging, assessor: int, pair_id: int, grade: int | None = None, **fields: Any) -> None:
    """Answer a pair without a lease; no grade means that it cannot be judged."""
    answered: dict[str, Any] = {"kind": "cannot-judge"} if grade is None else {"grade": grade}
    judging.answer(assessor, pair_id=pair_id, **answered, **fields)


def answer_at_random(judging: Judging) -> Answers:
    """Let the assessors answer pairs with random grades, cannot judge them, or leave them for later."""
    rng = np.random.default_rng(0)
    pairs = [row["id"] for row in judging.rows(schema.pair)]
    found: Answers = {pair_id: [] for pair_id in pairs}
    for assessor in judging.assessors:
        sent = []
        for pair_id in pairs:
            drawn = int(rng.integers(-3, 4))  # -3: no answer, -2: later, -1: cannot judge
            if drawn > -3:
                kind = {-2: "later", -1: "cannot-judge"}.get(drawn, "grade")
                grade = drawn if drawn >= 0 else None
                sent.append(Answer(f"{assessor} {pair_id}", kind, grade, pair_id=pair_id))  # type: ignore[arg-type]
            if drawn > -2:
                found[pair_id].append((assessor, max(drawn, -1) if drawn >= 0 else None))
        judging.send(assessor, *sent)
    return found


def test_pairs_with_different_grades_are_disputed_in_the_order_of_their_distance(database: Database) -> None:
    judging = Judging(database, 200)
    expected = []
    for pair_id, given in answer_at_random(judging).items():
        grades = [grade for _, grade in given if grade is not None]
        if len(set(grades)) > 1:
            key = -round(statistics.pstdev(grades), 9), min(grades) - max(grades)
            expected.append((*key, pair_id))
    assert 50 < len(expected) < 150
    assert disputed(judging) == [pair_id for _, _, pair_id in sorted(expected)]


def test_informative_assessors_weigh_more(database: Database) -> None:
    judging = Judging(database, 60)
    given = answer_at_random(judging)
    weights = dict(zip(judging.assessors, (2.0, 1.0, 0.0, 1.0), strict=True))  # the last one is unknown: the mean

    def store(connection: Any) -> Snapshot | None:
        values = {"project_id": judging.project.id, "method": "gda", "last_event_id": 0, "created": 0, "agreement": []}
        connection.execute(insert(schema.snapshot).values(**values, is_complete=True))
        snapshot = latest_snapshot(connection, judging.project)
        assert snapshot is not None
        rows = [
            {"snapshot_id": snapshot.id, "assessor_id": one, "informativeness": weights[one], "flags": []}
            for one in list(weights)[:3]
        ]
        connection.execute(insert(schema.reliability), rows)
        return snapshot

    snapshot = database.write(store)
    expected = []
    for pair_id, answers in given.items():
        grades = np.array([grade for _, grade in answers if grade is not None])
        weight = np.array([weights[one] for one, grade in answers if grade is not None])
        if len(set(grades)) > 1:
            mean = grades @ weight / weight.sum()
            deviation = np.sqrt((grades - mean) ** 2 @ weight / weight.sum())
            expected.append((-round(float(deviation), 9), int(grades.min() - grades.max()), pair_id))
    assert disputed(judging, snapshot) == [pair_id for _, _, pair_id in sorted(expected)]
    assert disputed(judging, snapshot) != disputed(judging)


def test_gold_pairs_and_earlier_generations_are_not_disputed(sqlite_database: Database) -> None:
    judging = Judging(sqlite_database, 2)
    judging.add(PairRow("q", "gold", kind="gold", gold_grade=1))
    first, second, gold = (row["id"] for row in judging.rows(schema.pair))
    for pair_id in (first, second, gold):
        give(judging, 1, pair_id, 0)
        give(judging, 2, pair_id, 3)
    assert disputed(judging) == [first, second]
    judging.close(pair_ids=[first])
    judging.reopen(pair_ids=[second])
    assert disputed(judging) == [first]
    give(judging, 1, first, 3)  # changes the answer
    assert disputed(judging) == []


def test_an_adjudicated_pair_is_not_disputed(sqlite_database: Database) -> None:
    judging = Judging(sqlite_database, 4, quotas={"human": (3, 3)})
    ids = [row["id"] for row in judging.rows(schema.pair)]
    for pair_id in ids:
        give(judging, 1, pair_id, 0)
        give(judging, 2, pair_id, 3)
    lease = judging.lease(3)  # a judge who writes the same comment decides nothing
    judging.answer(3, lease, grade=1, comment=ADJUDICATED)
    assert sorted(disputed(judging)) == ids
    decided = next(pair_id for pair_id in ids if pair_id != lease.content.pair_id)
    give(judging, 4, decided, 3, comment=ADJUDICATED)
    assert sorted(disputed(judging)) == [pair_id for pair_id in ids if pair_id != decided]
    with sqlite_database.read() as connection:
        (found,) = filter_pairs(connection, judging.project, None, "adjudicated", 0, 10)
    assert found.pair_id == decided
    judging.reopen(pair_ids=[decided])
    with sqlite_database.read() as connection:
        assert filter_pairs(connection, judging.project, None, "adjudicated", 0, 10) == []


def test_leads_see_who_gave_which_answer_with_comment_passages_and_time(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, 0, kinds=("human", "llm", "human"))
    row = PairRow("q", "d", title="Plums 🍑 jam", body="Boil 🍑 plums", fields={"price": 12})
    judging.add(row)
    (pair_id,) = (one["id"] for one in judging.rows(schema.pair))
    spans = [
        {"field": "body", "start": 5, "end": 13},  # as a browser counts: an emoji has length 2
        {"field": "title", "start": 9, "end": 12},
        {"field": "price", "start": 0, "end": 2},
    ]
    give(judging, 1, pair_id, 3, comment="sure?", spans=spans)
    give(judging, 2, pair_id)
    judging.answer(3, pair_id=pair_id, kind="later")

    def read() -> list[Any]:
        with database.read() as connection:
            content, answers = read_answers(connection, judging.project, [pair_id])[pair_id]
        assert content.pair_id == pair_id
        names = ("assessor_id", "assessor", "kind", "grade", "comment", "passages", "received")
        return [tuple(getattr(one, name) for name in names) for one in answers]

    now = database.now()
    passages = ("🍑 plums", "jam", "12")
    llm = (2, "shoes-a2", "llm", None, None, (), now)
    assert read() == [(1, "shoes-a1", "human", "3", "sure?", passages, now), llm]
    clock.advance(1)
    judging.add(PairRow("q", "d", title="Other", body="text"))
    assert read() == [(1, "shoes-a1", "human", "3", "sure?", (), now), llm]  # the marked text has changed


def test_the_labels_are_adjudicated_grades_or_those_of_the_fit(database: Database) -> None:
    judging = Judging(database, 3)
    with database.read() as connection, pytest.raises(Conflict) as caught:
        project_labels(connection, judging.project)
    assert caught.value.kind == "no-labels"
    first, second, third = (row["id"] for row in judging.rows(schema.pair))
    for assessor, grade in ((1, 0), (2, 0), (3, 3)):
        give(judging, assessor, first, grade)
        give(judging, assessor, second, grade)
    give(judging, 3, second, 2, comment=ADJUDICATED)
    give(judging, 4, second, 3, comment=ADJUDICATED)  # the latest one counts

    def labels() -> list[tuple[str, ...]]:
        with database.read() as connection:
            return [tuple(row.values()) for row in project_labels(connection, judging.project).to_pylist()]

    assert labels() == [("q0", "d1", "3", "adjudicated")]
    fit_project(database, judging.project, "majority")
    assert labels() == [("q0", "d0", "0", "consensus"), ("q0", "d1", "3", "adjudicated")]
    give(judging, 1, third, 1)
    assert len(labels()) == 2  # the fit has not seen the third pair
