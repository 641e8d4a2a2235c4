"""Test that assessors whose answers carry little information per price get no pairs."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import Connection

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.model.fits import (
    MIN_ANSWERS,
    MIN_SHARED,
    MemberInformation,
    fit_project,
    relative_information,
    store_relative_information,
)
from crowdrank.service.model.label_plan import count_assessors
from crowdrank.service.service_errors import Invalid
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .judging import Judging


def member(key: int, information: float, price: float = 1.0, kind: str = "human", available: bool = True) -> object:
    return MemberInformation(key, kind, price, information, available)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([], {}),
        ([member(1, 0.2), member(2, 0.6)], {1: 0.5, 2: 1.5}),
        ([member(1, 0.2, 0.5), member(2, 0.6, 1.5)], {1: 1.0, 2: 1.0}),
        ([member(1, 0.2, 0.0), member(2, 0.6, 9.0)], {1: 0.5, 2: 1.5}),
        ([member(1, 0.2, kind="llm"), member(2, 0.6)], {1: 1.0, 2: 1.0}),
        ([member(1, 0.2), member(2, 0.6, available=False)], {1: 1.0, 2: 3.0}),
        ([member(1, 0.2, available=False)], {}),
        ([member(1, 0.0), member(2, 0.0)], {}),
    ],
    ids=["nobody", "information", "price", "free", "kinds", "paused", "nobody-available", "no-information"],
)
def test_information_is_relative_to_the_mean_of_the_kind(
    members: list[MemberInformation], expected: dict[int, float]
) -> None:
    assert relative_information(members) == expected


def store(judging: Judging, information: dict[int, float]) -> None:
    def work(connection: Connection) -> None:
        store_relative_information(connection, judging.project, information)

    judging.database.write(work)


def stored(judging: Judging) -> list[float | None]:
    rows = sorted(judging.rows(schema.membership), key=lambda row: row["assessor_id"])
    return [row["relative_information"] for row in rows]


def test_assessors_below_the_minimum_get_no_pairs_until_a_fit_finds_more(database: Database) -> None:
    judging = Judging(database, 8, quotas={"human": (2, 4)}, min_information=0.5)
    held = judging.lease(1)
    store(judging, {1: 0.1, 2: 0.9, 3: 0.5})
    assert stored(judging) == [0.2, 1.8, 1.0, None]
    assert judging.next(1, 3).leases == (held,), "the pair that is held can be answered"
    judging.answer(1, held)
    refused = judging.next(1)
    assert (refused.status, refused.reason, refused.leases) == ("done", "others-asked", ())
    assert [judging.next(assessor).status for assessor in (2, 3, 4)] == ["judging"] * 3
    judging.check_invariants()
    store(judging, {1: 0.4, 2: 0.4, 3: 0.4})
    assert judging.next(1).status == "judging"


def test_everybody_gets_pairs_without_a_minimum(database: Database) -> None:
    judging = Judging(database, 8)
    store(judging, {1: 0.0, 2: 0.9})
    assert stored(judging)[0] == 0
    assert judging.next(1).status == "judging"
    judging.update(min_information=0.5)
    assert judging.next(1).leases, "the pair that is held"
    with database.read() as connection:
        assert count_assessors(connection, judging.project) == (("human", 1.0, 3),)
    judging.update(min_information=None)
    with database.read() as connection:
        assert count_assessors(connection, judging.project) == (("human", 1.0, 4),)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_the_minimum_is_a_share(sqlite_database: Database, share: float) -> None:
    with pytest.raises(Invalid) as caught:
        Judging(sqlite_database, min_information=share)
    assert caught.value.parameter == "min_information"


def test_a_fit_finds_who_answers_at_random(sqlite_database: Database) -> None:
    judging = Judging(sqlite_database, 60, quotas={"human": (4, 4)}, min_information=0.5)
    pairs = [row["id"] for row in judging.rows(schema.pair)]
    for assessor in judging.assessors:
        random = np.random.default_rng(assessor).integers(4, size=len(pairs)).tolist()
        grades = random if assessor in (1, 4) else [pair_id % 4 for pair_id in pairs]
        answers = [Answer(f"{pair}", grade=grade, pair_id=pair) for pair, grade in zip(pairs, grades, strict=True)]
        judging.send(assessor, *(answers[MIN_ANSWERS - MIN_SHARED + 1 :] if assessor == 4 else answers[:MIN_ANSWERS]))
    fit_project(sqlite_database, judging.project)
    values = stored(judging)
    assert values[0] is not None
    assert values[0] < 0.5
    assert [judging.next(assessor).reason for assessor in (1, 2, 3, 4)] == ["others-asked", None, None, None]
    assert values[3] is None, "too few answers to pairs that others have answered"
