"""Test which pairs the policies of a project want, and which are handed out."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from crowdrank import GDA, read_judgments
from crowdrank.collection.pool import Roster
from crowdrank.service.domain.project_settings import Quota
from crowdrank.service.domain.projects import Project
from crowdrank.service.domain.quotas import FIRST_PRIORITY
from crowdrank.service.model.label_plan import (
    PlanInputs,
    PlanRow,
    count_assessors,
    plan_labels,
    read_inputs,
    write_plan,
)
from crowdrank.service.model.refits import Refits
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .judging import Judging

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")

LABELS = {"good": [3, 3, 3, 3], "bad": [0, 0, 0, 0], "mixed": [0, 3], "single": [2], "new": []}
"""Grades of the documents of one query."""


HUMANS = Roster.of([f"a{number}" for number in range(8)])


def project(policy: str, settled: float | None = None, **quotas: tuple[int, int]) -> Project:
    fields: dict[str, Any] = dict.fromkeys(Project.__dataclass_fields__)
    found = {kind: Quota(*quota) for kind, quota in (quotas or {"human": (0, 6)}).items()}
    return Project(**{**fields, "policy": policy, "settled": settled, "quotas": found})


def plan_kinds(of_project: Project, roster: Roster) -> dict[tuple[str, str], PlanRow]:
    """Return the plan of the documents in `LABELS` after a fit, by document and kind; people have given the labels."""
    rows = [("q", name, f"a{place}", grade) for name, grades in LABELS.items() for place, grade in enumerate(grades)]
    frame = pd.DataFrame(rows, columns=["query", "document", "assessor", "grade"])
    judgments = read_judgments(frame, grades="0-3")
    quotas = [
        PlanRow(number, kind, 1, len(grades) if kind == "human" else 0, quota.k_max, -1, 0.0, False, "q", name)
        for number, (name, grades) in enumerate(LABELS.items())
        for kind, quota in of_project.quotas.items()
    ]
    planned = plan_labels(of_project, PlanInputs(quotas, roster), judgments, GDA().fit(judgments))
    assert len(planned) == len(quotas)
    return {(row.document, row.kind): row for row in planned}


def plan(of_project: Project) -> dict[str, PlanRow]:
    """Return the plan of the documents in `LABELS` after a fit, with people only."""
    return {document: row for (document, _), row in plan_kinds(of_project, HUMANS).items()}


def targets(found: dict[str, PlanRow]) -> list[int]:
    return [row.target for row in found.values()]


@pytest.mark.parametrize(
    ("policy", "expected", "is_scheme"),
    [
        ("single", [4, 4, 2, 1, 1], True),
        ("overlap-3", [4, 4, 3, 3, 3], True),
        ("if-good-3", [4, 4, 2, 3, 1], True),
        ("good-till-bad", [5, 4, 2, 2, 1], True),
        ("entropy", [5, 5, 3, 2, 1], False),
        ("widest-interval", [5, 5, 3, 2, 1], False),
        ("ndcg@2", [5, 5, 3, 2, 1], False),
    ],
)
def test_policies_set_targets(policy: str, expected: list[int], is_scheme: bool) -> None:
    found = plan(project(policy))
    assert targets(found) == expected
    by_priority = sorted((row for row in found.values() if row.priority), key=lambda row: -row.priority)
    assert by_priority[0].document == "new"
    assert by_priority[0].priority == FIRST_PRIORITY
    assert {row.is_unsettled for row in by_priority} == {not is_scheme}


def test_targets_are_at_least_k_min_and_at_most_k_max() -> None:
    assert targets(plan(project("entropy", human=(2, 2)))) == [2] * 5
    assert targets(plan(project("entropy", human=(3, 4)))) == [4, 4, 3, 3, 3]


@pytest.mark.parametrize("policy", ["entropy", "random", "overlap-6"])
def test_settled_pairs_get_no_more_labels(policy: str) -> None:
    found = plan(project(policy, settled=0.8))
    assert [name for name, row in found.items() if row.target > len(LABELS[name])] == ["mixed", "single", "new"]
    assert not found["good"].is_unsettled


def roster(**prices: float) -> Roster:
    """Return eight people, and two new assessors of each other kind, with these prices."""
    people = [*HUMANS.assessors.to_pylist(), "ellen", "emil", "gpt", "llama"]
    return Roster.of(people, ["human"] * 8 + ["expert"] * 2 + ["llm"] * 2, prices)


def asked(found: dict[tuple[str, str], PlanRow]) -> dict[str, set[str]]:
    """Return the kinds of assessors that each document still needs labels of, by document."""
    kinds: dict[str, set[str]] = {name: set() for name in LABELS}
    for (document, kind), row in found.items():
        if row.target > row.n_counted:
            kinds[document].add(kind)
    return kinds


def test_experts_are_asked_when_cheaper_labels_do_not_settle_a_pair() -> None:
    of_project = project("entropy", 0.999, human=(1, 2), expert=(0, 2))
    found = plan_kinds(of_project, roster(expert=20))
    assert asked(found) == {
        "good": {"expert"},
        "bad": {"expert"},
        "mixed": {"expert"},
        "single": {"human"},
        "new": {"human"},
    }
    experts = {document: row.priority for (document, kind), row in found.items() if kind == "expert"}
    assert experts["mixed"] > experts["good"] > 0, "most useful first"
    assert all(row.is_unsettled for row in found.values())


@pytest.mark.parametrize(("price", "kind"), [(0.3, "expert"), (30.0, "human")])
def test_the_kind_with_most_information_per_price_is_asked(price: float, kind: str) -> None:
    found = plan_kinds(project("ndcg@3", human=(0, 6), expert=(0, 6)), roster(expert=price))
    assert set(map(frozenset, asked(found).values())) == {frozenset({kind})}


def test_kinds_without_assessors_are_not_asked() -> None:
    of_project = project("entropy", human=(0, 6), expert=(0, 6), llm=(1, 1))
    without = asked(plan_kinds(of_project, HUMANS))
    assert all(kinds == {"llm"} for kinds in without.values()), "the minimum is wanted in any case, and is enough"
    of_project = project("entropy", human=(0, 6), expert=(0, 6))
    assert all(kinds == {"human"} for kinds in asked(plan_kinds(of_project, HUMANS)).values())


def test_a_kind_is_asked_for_no_more_labels_than_it_has_assessors() -> None:
    two = Roster.of(["a0", "a1", "ellen"], ["human", "human", "expert"], {"expert": 9})
    found = asked(plan_kinds(project("overlap-6", human=(0, 6), expert=(0, 6)), two))
    assert found["new"] == {"human", "expert"}
    assert found["mixed"] == {"expert"}


def test_pairs_go_out_by_the_plan(database: Database) -> None:
    judging = Judging(database, 6, ("human",) * 6, policy="entropy", quotas={"human": (1, 3)})
    background = Refits(database)
    for number in range(6):  # two labels that disagree about one pair
        pair = judging.lease(number + 1)
        judging.answer(number + 1, pair, grade=0)
    background.run_due()
    disputed = judging.rows(schema.pair)[2]["id"]
    assessor = next(
        one for one in judging.assessors if not judging.rows(schema.answer, assessor_id=one, pair_id=disputed)
    )
    judging.answer(assessor, pair_id=disputed, grade=3)
    background.run_due()
    wanted = {row["pair_id"]: row for row in judging.rows(schema.quota)}
    assert max(wanted.values(), key=lambda row: row["priority"])["pair_id"] == disputed
    assert {row["target"] - row["taken"] for row in wanted.values()} == {1}
    background.close()


def test_judges_never_run_dry_before_the_next_plan(database: Database) -> None:
    judging = Judging(database, 4, ("human",) * 4, policy="ndcg@3", quotas={"human": (1, 4)})
    for number in range(4):  # without any plan
        for assessor in judging.assessors:
            judging.judge(assessor)
        if number == 0:
            assert {row["taken"] for row in judging.rows(schema.quota)} == {1}
    assert {row["taken"] for row in judging.rows(schema.quota)} == {4}
    done = judging.next(1)
    assert (done.status, done.reason) == ("done", "no-pairs")


def test_a_project_is_done_when_all_pairs_are_settled(database: Database) -> None:
    settings: dict[str, Any] = {"policy": "entropy", "settled": 0.6, "quotas": {"human": (1, 6)}}
    judging = Judging(database, 4, ("human",) * 6, **settings)
    background = Refits(database)
    assessors = list(judging.assessors)
    for number in range(24):
        found = judging.next(assessors[number % 6])
        if found.leases:
            grade = 3 * (found.leases[0].content.pair_id % 2)
            judging.answer(assessors[number % 6], found.leases[0], grade=grade)
            background.run_due()
    done = [judging.next(assessor) for assessor in assessors]
    assert {(one.status, one.reason) for one in done} == {("done", "settled")}
    assert all(row["taken"] < 6 for row in judging.rows(schema.quota))
    background.close()


def test_a_plan_does_not_change_pairs_that_were_reopened_meanwhile(database: Database) -> None:
    judging = Judging(database, 2, policy="entropy", quotas={"human": (1, 3)})
    with database.read() as connection:
        rows = [row._replace(target=3, priority=0.5) for row in read_inputs(connection, judging.project).rows]
    judging.reopen(pair_ids=[1])
    database.write(lambda connection: write_plan(connection, rows))
    found = {row["pair_id"]: (row["target"], row["priority"]) for row in judging.rows(schema.quota)}
    assert found == {1: (1, FIRST_PRIORITY), 2: (3, 0.5)}


def test_only_assessors_who_may_judge_are_planned_for(database: Database) -> None:
    judging = Judging(database, 2, ("human",) * 5, policy="entropy", qualification_share=0.5)
    judging.set_member(1, is_paused=True)
    judging.set_member(2, qualification="failed")
    with database.read() as connection:
        names = read_inputs(connection, judging.project).roster.assessors.to_pylist()
        assert names == ["shoes-a3", "shoes-a4", "shoes-a5"]
        assert count_assessors(connection, judging.project) == (("human", 1.0, 3),)
