"""Test what happens when the model flags an assessor."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.domain.people import list_audit, update_member
from crowdrank.service.model.fits import NEW_ANSWERS, AssessorFlag, act_on_flags, fit_project
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .judging import Judging


def act(judging: Judging, **flags: int) -> list[str]:
    """Act on a flag of the first assessor, with this number of answers."""
    found = {2: AssessorFlag("strict", "", 100)}
    for name, number in flags.items():
        found[1] = AssessorFlag(name, "20 answers", number)

    def work(connection: Connection) -> list[str]:
        return act_on_flags(connection, judging.project, found, judging.database.now())

    return judging.database.write(work)


def member(judging: Judging) -> dict[str, object]:
    (row,) = judging.rows(schema.membership, assessor_id=1)
    return row


def test_a_flag_is_a_notice_once(database: Database) -> None:
    judging = Judging(database, 4)
    assert act(judging) == []
    assert act(judging, random=20) == ["shoes-a1"]
    assert act(judging, random=20 + NEW_ANSWERS - 1) == []
    assert act(judging) == []
    assert member(judging)["flag"] is None
    assert act(judging, random=21) == [], "the same flag without new evidence"
    assert member(judging)["flag"] == "random"
    assert act(judging, reversed=22) == ["shoes-a1"]
    assert act(judging, reversed=22 + NEW_ANSWERS) == ["shoes-a1"]
    assert not member(judging)["is_paused"]
    with database.read() as connection:
        entries = list_audit(connection, project_id=judging.project.id)
    assert [entry.details["flag"] for entry in entries] == ["reversed", "reversed", "random"]
    assert {(entry.action, entry.details["action"]) for entry in entries} == {("member.flag", "notify")}


def test_a_flag_pauses_until_the_lead_resumes(database: Database) -> None:
    judging = Judging(database, 4, flag_action="pause")
    act(judging, random=20)
    assert (member(judging)["is_paused"], member(judging)["pause_reason"]) == (True, "random: 20 answers")
    assert judging.next(1).status == "paused"
    database.write(lambda connection: update_member(connection, judging.project.id, 1, is_paused=False))
    assert member(judging)["pause_reason"] is None
    assert act(judging, random=25) == []
    assert judging.next(1).status == "judging"
    assert act(judging, random=20 + NEW_ANSWERS) == ["shoes-a1"]
    assert judging.next(1).status == "paused"


def test_a_flag_of_a_paused_member_changes_nothing(database: Database) -> None:
    judging = Judging(database, 4, flag_action="pause")
    database.write(lambda connection: update_member(connection, judging.project.id, 1, is_paused=True))
    assert act(judging, random=20) == []
    assert member(judging)["pause_reason"] is None, "a lead has paused the work, not the flag"
    with database.read() as connection:
        assert list_audit(connection, project_id=judging.project.id) == []


@pytest.mark.parametrize(("action", "is_more"), [("notify", False), ("honeypots", True)])
def test_flagged_assessors_get_more_honeypots(sqlite_database: Database, action: str, is_more: bool) -> None:
    judging = Judging(sqlite_database, 40, flag_action=action)
    judging.add(*(PairRow("g", f"g{number}", kind="gold", gold_grade=1) for number in range(40)))
    act(judging, random=20)
    gold = {row["id"] for row in judging.rows(schema.pair, kind="gold")}
    of_first, of_second = (
        sum(lease.content.pair_id in gold for lease in judging.next(assessor, 40).leases) for assessor in (1, 2)
    )
    assert of_second == 0
    assert (of_first > 5) is is_more


def test_a_fit_acts_on_its_flags(sqlite_database: Database) -> None:
    judging = Judging(sqlite_database, 40, flag_action="pause", quotas={"human": (4, 4)})
    pairs = [row["id"] for row in judging.rows(schema.pair)]
    for assessor in judging.assessors:
        grades = [3 - pair_id % 4 if assessor == 1 else pair_id % 4 for pair_id in pairs]
        answers = [Answer(f"{pair}", grade=grade, pair_id=pair) for pair, grade in zip(pairs, grades, strict=True)]
        judging.send(assessor, *answers)
    fit_project(sqlite_database, judging.project)
    assert [row["flag"] for row in judging.rows(schema.membership)] == ["reversed", None, None, None]
    assert member(judging)["is_paused"]
