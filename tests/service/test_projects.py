"""Test projects, pairs, quotas and progress."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, update
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.estimation import watching
from crowdrank.service.domain.pairs import AddedPairs, PairFilter, PairRow, find_pairs, get_pair_content, list_pairs
from crowdrank.service.domain.progress import project_status
from crowdrank.service.domain.project_settings import MAX_LOOKS, SETTINGS
from crowdrank.service.domain.projects import create_project, get_project, list_projects
from crowdrank.service.domain.qualification import GoldAccuracy
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.web.web_app import create_application

from .conftest import ManualClock
from .judging import Judging
from .service_world import create_world


def test_a_project_has_the_settings_given(database: Database) -> None:
    settings: dict[str, Any] = {
        "guidelines": "Read.",
        "layout": {"fields": ["title"]},
        "quotas": {"llm": [1, 2]},
        "lease_seconds": 60,
        "honeypot_share": 0.1,
        "qualification_share": 0.5,
    }
    project = database.write(lambda connection: create_project(connection, "a-1", "Bad,Good", 7, **settings))
    assert (project.name, project.grades, project.created) == ("a-1", ("Bad", "Good"), 7)
    assert (project.guidelines, project.guidelines_version) == ("Read.", 1)
    assert project.quotas == {"human": (0, 0), "llm": (1, 2), "expert": (0, 0)}
    for name in ("layout", "lease_seconds", "honeypot_share", "qualification_share"):
        assert getattr(project, name) == settings[name]
    with database.read() as connection:
        assert get_project(connection, "a-1") == project


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"grades": "3"}, "grades"),
        ({"quotas": {"robot": (1, 1)}}, "quotas"),
        ({"quotas": {"human": (2, 1)}}, "quotas"),
        ({"quotas": {"human": (1,)}}, "quotas"),
        ({"quotas": {"human": (-1, 1)}}, "quotas"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"honeypot_share": 1.5}, "honeypot_share"),
        ({"qualification_share": -1.0}, "qualification_share"),
        ({"policy": "cleverest"}, "policy"),
        ({"measure": "AP"}, "measure"),
        ({"measure": "nDGC@10"}, "measure"),
        ({"pairs_per_draw": 0}, "pairs_per_draw"),
        ({"looks": 0}, "looks"),
        ({"looks": MAX_LOOKS + 1}, "looks"),
        ({"margin": 0.0}, "margin"),
        ({"settled": 1.0}, "settled"),
        ({"budget": -1.0}, "budget"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_settings_are_refused(database: Database, fields: dict[str, Any], parameter: str) -> None:
    values = {"name": "p", "grades": "0-3", **fields}
    with pytest.raises(Invalid) as caught:
        database.write(lambda connection: create_project(connection, now=1, **values))
    assert caught.value.parameter == parameter


def test_a_name_is_used_once(database: Database) -> None:
    judging = Judging(database)
    with pytest.raises(Conflict) as caught:
        database.write(lambda connection: create_project(connection, judging.project_name, "0-3", 1))
    assert caught.value.kind == "name-taken"


def test_projects_are_visible_to_members_and_administrators(database: Database) -> None:
    judging = Judging(database, kinds=["human"])
    people = [
        {"id": 8, "name": "stranger", "kind": "human", "created": 0, "is_admin": False},
        {"id": 9, "name": "admin", "kind": "human", "created": 0, "is_admin": True},
    ]
    database.write(lambda connection: connection.execute(insert(schema.assessor), people))
    with database.read() as connection:
        for assessor, visible in ((1, ["shoes"]), (8, []), (9, ["shoes"])):
            assert [project.name for project in list_projects(connection, assessor)] == visible
        for assessor in (1, 9):
            assert get_project(connection, "shoes", assessor) == judging.project
        for name, assessor in (("shoes", 8), ("boots", 9)):
            with pytest.raises(NotFound) as caught:
                get_project(connection, name, assessor)
            assert caught.value.kind == "no-project"


def test_new_guidelines_have_a_new_version(database: Database) -> None:
    judging = Judging(database, guidelines="Old.")
    assert judging.update(guidelines="Old.", lease_seconds=5).guidelines_version == 1
    assert judging.update(guidelines="New.").guidelines_version == 2
    judging.judge(1)
    assert judging.rows(schema.event)[0]["guidelines_version"] == 2


def test_lower_quotas_keep_what_is_taken(database: Database) -> None:
    judging = Judging(database, n_pairs=2, quotas={"human": (3, 3)})
    for assessor in (1, 2):
        judging.answer(assessor, pair_id=1)
    judging.update(quotas={"human": (1, 1)})
    limits = {row["pair_id"]: (row["target"], row["k_max"]) for row in judging.rows(schema.quota)}
    assert limits == {1: (1, 2), 2: (1, 1)}
    assert not judging.answer(3, pair_id=1).is_counted
    judging.check_invariants()


def test_raised_quotas_want_more_labels(database: Database) -> None:
    judging = Judging(database, n_pairs=1, kinds=["human", "human", "expert"], quotas={"human": (1, 1)})
    judging.judge(1)
    assert [judging.next(assessor).status for assessor in (2, 3)] == ["done", "done"]
    judging.update(quotas={"human": (2, 2), "expert": (1, 1)})
    assert [judging.next(assessor).status for assessor in (2, 3)] == ["judging", "judging"]
    judging.update(quotas={"human": (2, 2)})
    assert judging.answer(3, judging.lease(3)).is_counted, "the place that was held stays"
    judging.update(quotas={"human": (2, 2), "expert": (2, 2)})
    assert judging.rows(schema.quota, kind="expert")[0]["k_max"] == 2
    judging.check_invariants()


def test_pairs_are_added_once(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=0, quotas={"human": (1, 2), "llm": (1, 1)})
    rows = [
        PairRow("q", "d1", "shoe", title="One", fields={"price": 1}),
        PairRow("q", "d2", "shoe", kind="gold", gold_grade=2),
        PairRow("q", "d3", kind="training", gold_grade="3", explanation="since"),
        PairRow("q", "d1"),
    ]
    assert judging.add(*rows) == AddedPairs(3, 1, 1, 0, 3, 0)
    assert judging.add(*rows) == AddedPairs(pairs_kept=4)
    assert {(row["pair_id"], row["kind"], row["k_max"]) for row in judging.rows(schema.quota)} == {
        (1, "human", 2),
        (1, "llm", 1),
    }
    before = judging.rows(schema.document, key="d1")[0]
    clock.advance(1)
    changed = judging.add(PairRow("q", "d1", need="to buy", body="text"))
    assert changed == AddedPairs(pairs_kept=1, queries_changed=1, documents_changed=1)
    after = judging.rows(schema.document, key="d1")[0]
    assert (after["title"], after["body"], after["fields"]) == ("One", "text", {"price": 1})
    assert after["digest"] != before["digest"]
    assert after["changed"] == before["changed"] + 1000
    with database.read() as connection:
        content = get_pair_content(connection, judging.project, 1)
        assert (content.query_text, content.need, content.title) == ("shoe", "to buy", "One")
        assert find_pairs(connection, judging.project, [("q", "d3"), ("q", "d9")]) == {("q", "d3"): 3}
        with pytest.raises(NotFound) as caught:
            get_pair_content(connection, judging.project, 2**70)
    assert caught.value.kind == "no-pair"


def test_many_pairs_are_added(database: Database) -> None:
    judging = Judging(database, n_pairs=1201)
    with database.read() as connection:
        assert project_status(connection, judging.project, 0).pairs.unfinished == 1201
        found = find_pairs(connection, judging.project, [(f"q{one // 2}", f"d{one}") for one in range(1201)])
        assert len(set(found.values())) == 1201
        page = list_pairs(connection, judging.project, after=1100, limit=1000)
    assert [state.pair_id for state in page] == list(range(1101, 1202))


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (PairRow("", "d"), "missing-id"),
        (PairRow("q", "d", body="a\0b"), "invalid-text"),
        (PairRow("q", "d", title="\ud800"), "invalid-text"),
        (PairRow("q", "d", kind="silver"), "unknown-pair-kind"),
        (PairRow("q", "d", kind="gold"), "no-gold"),
        (PairRow("q", "d", kind="gold", gold_grade=9), "unknown-grade"),
        (PairRow("q0", "d0", kind="gold", gold_grade=1), "pair-differs"),
        (PairRow("new", "new", gold_grade=1), "pair-differs"),
    ],
)
def test_bad_rows_are_refused_with_their_number(database: Database, row: PairRow, kind: str) -> None:
    judging = Judging(database, n_pairs=1)
    with pytest.raises((Invalid, Conflict)) as caught:
        judging.add(PairRow("new", "new"), row)
    assert (caught.value.kind, caught.value.location.place) == (kind, "row 2")
    assert len(judging.rows(schema.pair)) == 1, "nothing is added"


def test_leads_see_the_state_of_pairs(database: Database) -> None:
    judging = Judging(database, n_pairs=1)
    judging.add(PairRow("g", "g", kind="gold", gold_grade=2))
    judging.judge(1)
    with database.read() as connection:
        real, gold = list_pairs(connection, judging.project)
    assert (real.query, real.document, real.kind, real.gold_grade, real.is_open) == ("q0", "d0", "real", None, True)
    assert (real.quotas["human"].taken, real.quotas["human"].target) == (1, 2)
    assert (gold.gold_grade, gold.quotas) == ("2", {})


def test_closed_pairs_are_not_handed_out(database: Database) -> None:
    judging = Judging(database, n_pairs=4)
    held = judging.lease(1)
    assert judging.close(queries=["q0", "q1"]) == 4
    assert judging.close(queries=["q0"]) == 0
    assert judging.next(2).status == "done"
    assert judging.answer(1, held).is_counted
    assert judging.reopen(documents=["d0", "d1"], queries=["q0"], keep_answers=True) == 2
    assert {judging.judge(2).pair_id for _ in range(2)} == {1, 2}
    assert {row["generation"] for row in judging.rows(schema.pair)} == {1}
    judging.check_invariants()


def test_a_reopened_pair_starts_a_new_generation(database: Database) -> None:
    judging = Judging(database, n_pairs=1)
    judging.judge(1)
    judging.lease(2)
    assert judging.reopen(pair_ids=[1, 99]) == 1
    assert judging.taken(1) == 0
    assert [row["end_kind"] for row in judging.rows(schema.lease)] == ["answered", "expired"]
    assert [judging.judge(assessor).generation for assessor in (1, 2)] == [2, 2]
    assert judging.next(3).status == "done"
    assert len(judging.rows(schema.event)) == 3
    judging.check_invariants()


def test_pairs_are_reopened_by_condition(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=4)
    judging.answer(1, pair_id=1)
    judging.answer(1, pair_id=4, kind="later")
    clock.advance(10)
    start = database.now()
    judging.answer(1, pair_id=2)
    judging.update(guidelines="New.")
    clock.advance(10)
    judging.add(PairRow("q1", "d2", body="new"), PairRow("q0", "d1", body="new"))
    judging.answer(1, pair_id=3)

    def chosen(**conditions: Any) -> list[int]:
        before = {row["id"]: row["generation"] for row in judging.rows(schema.pair)}
        number = judging.reopen(**conditions)
        changed = [row["id"] for row in judging.rows(schema.pair) if row["generation"] > before[row["id"]]]
        assert len(changed) == number
        return sorted(changed)

    assert chosen(answered_before=start) == [1]
    assert chosen(answered_before=start) == [], "answers of earlier generations do not matter"
    assert chosen(document_changed=True, queries=["q1"]) == []
    assert chosen(document_changed=True) == [2], "pair 3 was answered after the change"
    judging.answer(1, pair_id=1)
    judging.update(guidelines="Newer.")
    assert chosen(guidelines_before=2) == []
    assert chosen(guidelines_before=3) == [1, 3]
    judging.check_invariants()


def test_an_answer_to_an_older_text_is_outdated(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=1)
    lease = judging.lease(1)
    clock.advance(1)
    judging.add(PairRow("q0", "d0", body="new"))
    clock.advance(1)
    judging.answer(1, lease)
    assert judging.reopen(document_changed=True) == 1


def test_a_filter_needs_a_condition(database: Database) -> None:
    judging = Judging(database)
    for request in (judging.close, judging.reopen):
        with pytest.raises(Invalid) as caught:
            request()
        assert caught.value.kind == "empty-filter"
    assert PairFilter(pair_ids=[]) != PairFilter()
    assert judging.close(pair_ids=[]) == 0
    assert judging.close(pair_ids=[-1, 2**70]) == 0
    with pytest.raises(Invalid) as caught:
        judging.close(queries=["q0"] * 10_001)
    assert caught.value.parameter == "queries"


def test_filters_stay_in_their_project(database: Database) -> None:
    judging = Judging(database)
    other = database.write(lambda connection: create_project(connection, "boots", "0-1", 1))
    assert other.quotas["human"] == (2, 3)
    judging.project_name = "boots"
    assert judging.close(pair_ids=[1, 2]) == 0
    with pytest.raises(NotFound):
        judging.answer(1, pair_id=1)


def test_progress_counts_pairs_answers_and_cost(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=5, kinds=["human", "human", "llm"], quotas={"human": (1, 1), "llm": (1, 1)})
    judging.add(PairRow("g", "g", kind="gold", gold_grade=1), PairRow("t", "t", kind="training", gold_grade=1))
    price = update(schema.assessor).where(schema.assessor.c.kind == "llm").values(price=0.25)
    database.write(lambda connection: connection.execute(price))
    for pair_id in (1, 2, 6):
        judging.answer(1, pair_id=pair_id)
        judging.answer(3, pair_id=pair_id, kind="cannot-judge" if pair_id == 6 else "grade")
    judging.answer(2, pair_id=1)
    judging.answer(2, pair_id=4, kind="later")
    judging.close(pair_ids=[5])
    late = judging.lease(1)
    clock.advance(900)
    judging.answer(1, late)
    judging.lease(3)
    with database.read() as connection:
        status = project_status(connection, judging.project, clock())
    pairs = status.pairs
    assert (pairs.complete, pairs.unfinished, pairs.closed, pairs.gold, pairs.training) == (2, 2, 1, 1, 1)
    assert status.labels == {"human": (3, 4), "llm": (2, 4)}
    assert (status.n_answers, status.n_late, status.n_uncounted, status.n_live_leases) == (8, 1, 1, 1)
    assert status.cost == pytest.approx(5 + 3 * 0.25)
    first, second, third = status.assessors
    assert (first.name, first.n_answers, first.n_late, first.last_answer) == ("shoes-a1", 4, 1, clock())
    assert (second.n_answers, second.n_later, second.n_uncounted, second.n_live_leases) == (1, 1, 1, 0)
    assert (third.n_cannot_judge, third.n_live_leases, third.cost) == (1, 1, 0.75)
    assert (first.gold, second.gold, third.gold) == (GoldAccuracy(1, 1), GoldAccuracy(0, 0), GoldAccuracy(1, 0))


# Declarations of settings.


def test_each_setting_is_in_the_api_on_the_page_and_on_the_command_line(sqlite_database: Database) -> None:
    with create_world(sqlite_database, create_application) as world:
        description = world.client.get("/api/openapi.json").json()["components"]["schemas"]
        page = world.request("lead", "GET", "/projects/alpha/settings").text
    options = CliRunner().invoke(app, ["new-project", "--help"], env={"COLUMNS": "200"}).output
    for name, one in SETTINGS.items():
        assert description["ProjectChanges"]["properties"][name]["description"] == one.metadata["help"]
        assert name in description["ProjectSettingsView"]["required"]
        assert (name in description["ProjectView"]["properties"]) == one.metadata["is_public"]
        if one.metadata["page"] is not None:
            assert f'name="{name}"' in page
            assert f"--{name.replace('_', '-')}" in options


def test_a_setting_that_is_not_stored_has_its_default(database: Database) -> None:
    judging = Judging(database, lease_seconds=60)
    stored = judging.rows(schema.project)[0]["settings"]
    assert stored.keys() == SETTINGS.keys()
    del stored["budget"], stored["lease_seconds"]
    database.write(lambda connection: connection.execute(update(schema.project).values(settings=stored)))
    assert (judging.project.budget, judging.project.lease_seconds) == (None, 900)


def test_a_project_plans_as_many_looks_as_an_estimate() -> None:
    assert MAX_LOOKS == watching.MAX_LOOKS
