"""Batches, status, disagreements, and what is written for platforms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GDA, DawidSkene, Judgments, read_gold, read_judgments, simulate
from crowdrank.collection import get_policy
from crowdrank.collection.add_batch import judgment_table, merge_batch
from crowdrank.collection.belief import Belief
from crowdrank.collection.platform_tasks import write_requests
from crowdrank.collection.pool import Pool, Roster, parse_prices, read_roster
from crowdrank.collection.requests import Budget, OutstandingRequests, PoolState, Unspent
from crowdrank.collection.status import collection_status, confusions, disagreements, labels_needed, write_grades
from crowdrank.consensus.latent import entropy
from crowdrank.errors import CrowdrankError, InputError, UsageError

ROW = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2))


def table(rows: list[tuple[str, str, int]]) -> Judgments:
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    return read_judgments(frame, grades="0-2")


def held(judgments: Judgments) -> dict[tuple[str, str], int]:
    frame = judgments.frame
    return {(row.document, row.assessor): int(row.grade) for row in frame.itertuples()}


@settings(max_examples=60)
@given(old=st.lists(ROW, min_size=1, max_size=6), new=st.lists(ROW, min_size=1, max_size=6))
def test_adding_is_a_dictionary_and_twice_is_once(old: list[Any], new: list[Any]) -> None:
    before, batch = table(old), table(new)
    expected = {**held(before), **held(batch)}
    done = merge_batch(before, batch)
    assert held(done.judgments) == expected
    assert done.added == len(expected) - len(held(before))
    assert done.changed == sum(held(before).get(pair, grade) != grade for pair, grade in held(batch).items())
    assert done.added + done.changed + done.known == len(held(batch))
    again = merge_batch(done.judgments, batch)
    assert (again.added, again.changed, again.new) == (0, 0, None)
    assert again.judgments is done.judgments


def test_the_first_batch_is_the_judgments() -> None:
    batch = table([("a", "x", 1)])
    assert merge_batch(None, batch).judgments is batch
    with pytest.raises(InputError) as caught:
        merge_batch(None, batch, exclude=["x"], on_bad_rows="skip")
    assert [fix.parameter for fix in caught.value.fixes] == ["pairs", "exclude"]


def test_scales_of_names_and_numbers_do_not_mix() -> None:
    frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": ["Good"]})
    named = read_judgments(frame, grades="Bad,Good")
    with pytest.raises(InputError) as caught:
        merge_batch(named, table([("a", "x", 1)]))
    assert caught.value.kind == "scale-changed"
    assert merge_batch(named, named).known == 1


@pytest.mark.parametrize(("grade", "kinds"), [(2, []), (3, []), (4, ["higher-grade"])])
def test_a_note_about_higher_grades_is_true(grade: int, kinds: list[str]) -> None:
    row = {"document": ["a"], "assessor": ["x"]}
    old = read_judgments(pd.DataFrame({**row, "grade": [3]}), grades="0-4")
    new = read_judgments(pd.DataFrame({**row, "assessor": ["y"], "grade": [grade]}))  # its scale ends at the grade
    assert [note.kind for note in merge_batch(old, new).notes] == kinds


def test_several_scales_are_compared_by_name(tmp_path: Path) -> None:
    (tmp_path / "scales.csv").write_text("assessor,grades\nx,0-2\n*,no|yes\n")
    frame = pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": ["2", "yes"]})
    several = read_judgments(frame, scales=tmp_path / "scales.csv")
    assert merge_batch(several, several).known == 2


def test_cannot_judge_is_written_as_it_was_given() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": ["-2", "1"]})
    assert judgment_table(read_judgments(frame, unjudgeable="-2"))["grade"].to_pylist() == [-2, 1]
    named = read_judgments(frame.replace({"-2": "broken", "1": "Good"}), grades="Bad,Good", unjudgeable="broken")
    assert judgment_table(named)["grade"].to_pylist() == ["broken", "Good"]


def test_status_counts_what_is_settled_and_spent() -> None:
    world = simulate(queries=6, documents=6, labels=4, random_state=2)
    judged = read_judgments(world.judgments)
    new = pd.DataFrame({"query": ["1"], "document": ["new"]})
    pool = Pool.read(pd.concat([world.documents[["query", "document"]], new]))
    loose, strict = (collection_status(pool, judged, GDA().fit(judged), settled=level) for level in (0.6, 0.99))
    assert loose.documents == len(world.documents) + 1
    assert loose.judged == len(world.documents)
    assert strict.settled is not None
    assert loose.settled is not None
    assert strict.forecast_labels is not None
    assert loose.forecast_labels is not None
    assert strict.settled < loose.settled < loose.documents
    assert strict.forecast_labels > loose.forecast_labels > 0
    assert loose.spent == pytest.approx(world.judgments["cost"].sum())
    assert loose.forecast == pytest.approx(loose.forecast_labels * loose.spent / len(judged))
    plain = read_judgments(world.judgments.drop(columns="cost"))
    assert collection_status(pool, plain, DawidSkene().fit(plain), price=0.5).spent == len(plain) / 2
    with pytest.raises(UsageError) as caught:
        collection_status(pool, judged, GDA().fit(judged), settled=7)
    assert caught.value.parameter == "settled"


def test_the_less_a_label_tells_the_more_are_needed() -> None:
    more = labels_needed(np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.1, 0.5]), 0.3)
    assert more[1] > more[0] >= more[2] == 1


def test_a_settled_pair_has_the_entropy_of_its_level() -> None:
    judged = read_judgments(simulate(queries=4, documents=6, labels=4, random_state=2).judgments)
    state = PoolState.of(Pool.of(judged), judged)
    shares = np.array([0.9, 0.025, 0.025, 0.025, 0.025])
    by_grades = Belief.from_model(state, DawidSkene().fit(judged))
    assert by_grades.settled_entropy(0.9) == pytest.approx(-(shares * np.log(shares)).sum())
    on_line = Belief.from_model(state, GDA().fit(judged))
    assert 0 < on_line.settled_entropy(0.99) < on_line.settled_entropy(0.9) < entropy(on_line.prior)


def test_disagreements_are_mean_differences_of_pairs() -> None:
    rows = [("a", "x", 0), ("a", "y", 1), ("a", "z", 2), ("b", "x", 2), ("b", "y", 2)]
    found = disagreements(table(rows), DawidSkene().fit(table(rows))).to_pylist()
    assert [row["document"] for row in found] == ["a"]
    assert found[0]["spread"] == pytest.approx((1 + 2 + 1) / 3)
    assert found[0]["grades"] == "0 by x; 1 by y; 2 by z"
    assert {row["grades"]: row["pairs"] for row in confusions(table(rows))} == {
        "0 and 1": 1,
        "0 and 2": 1,
        "1 and 2": 1,
    }
    assert confusions(table(rows))[0]["share"] == 0.25


def test_what_is_written_for_platforms_is_read_again(tmp_path: Path) -> None:
    world = simulate(queries=3, documents=3, labels=3, random_state=1)
    model = DawidSkene().fit(world.judgments)
    for name in ("labels.qrels", "labels.json", "labels.csv"):
        write_grades(model.consensus_, tmp_path / name)
    grades = model.consensus_.documents["grade"].tolist()
    for name in ("labels.qrels", "labels.json"):
        assert read_gold(tmp_path / name, grades="0-4").frame["grade"].tolist() == grades
    odd = pd.DataFrame({"document": ["a b"], "assessor": ["x"], "grade": [1]})
    with pytest.raises(UsageError, match="Qrels cannot hold the document 'a b'"):
        write_grades(DawidSkene().fit(odd).consensus_, tmp_path / "a.qrels")


def test_requests_of_several_labels_are_one_task(tmp_path: Path) -> None:
    so_far = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "assessor": ["x", "x"], "grade": [3, 0]})
    pool = Pool.read(so_far[["query", "document"]].assign(honeypot=["", ""]))
    asked = get_policy("if-good-3").next(pool, so_far, None, 9)
    write_requests(asked, tmp_path / "t.json", "label-studio")
    assert json.loads((tmp_path / "t.json").read_text()) == [{"data": {"query": "q", "document": "a", "labels": 2}}]
    write_requests(asked, tmp_path / "t.csv", "mturk")
    assert pd.read_csv(tmp_path / "t.csv").to_dict("records") == [{"query": "q", "document": "a", "assignments": 2}]
    who = pool.with_roster(Roster.of(["y", "z"]))
    write_requests(get_policy("if-good-3").next(who, so_far, None, 9), tmp_path / "t.json", "label-studio")
    assert json.loads((tmp_path / "t.json").read_text())[0]["data"]["assessors"] == "y, z"


def test_pools() -> None:
    frame = pd.DataFrame({"query": ["q", "q", "q"], "document": ["a", "b", "a"], "assessor": ["x", "x", "y"]})
    pool = Pool.read(frame)
    assert len(pool) == 2
    assert pool.allowed is not None
    assert pool.allowed[0].tolist() == [0, 2, 3]
    narrow = pool.with_roster(Roster.of(["y"]))
    assert narrow.allowed is not None
    assert narrow.allowed[0].tolist() == [0, 1, 1]
    asked = get_policy("single").next(narrow, None, None, 5)
    assert asked.frame[["document", "assessor"]].to_numpy().tolist() == [["a", "y"]]
    assert asked.unmet == 1
    planted = Pool.read(frame[["query", "document"]].assign(honeypot=["2", " ", ""]))
    assert planted.is_honeypot.tolist() == [True, False]
    assert repr(planted) == "<Pool: 2 documents in 1 query, 1 honeypot>"
    with pytest.raises(InputError, match="the document is missing"):
        Pool.read(frame.assign(document=["a", "", "b"]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"assessor": ["x", "x"]}, "'x' occurs twice"),
        ({"assessor": ["x", None]}, "the assessor is missing"),
        ({"assessor": ["x"], "kind": ["robot"]}, "there is no kind of assessors 'robot'"),
        ({"assessor": ["x"], "price": [-1]}, "-1 is not a number"),
        ({"assessor": ["x"], "price": ["cheap"]}, "'cheap' is not a number"),
        ({"name": ["x"]}, "no column for assessor"),
    ],
)
def test_rosters_that_are_none(columns: dict[str, list[Any]], words: str) -> None:
    with pytest.raises(CrowdrankError, match=words):
        read_roster(pd.DataFrame(columns))


def test_prices() -> None:
    roster = read_roster(
        pd.DataFrame({"assessor": ["x", "y"], "kind": ["LLM", None], "price": [None, 3]}), {"llm": 0.5}
    )
    assert roster.price.tolist() == [0.5, 3.0]
    assert roster.kind.tolist() == ["llm", "human"]
    assert parse_prices(None) == {}
    for wrong in ("robot=1", "human=x", "human=-1", "human"):
        with pytest.raises(UsageError):
            parse_prices(wrong)


@pytest.mark.parametrize("policy", ["random", "single", "overlap-5", "ndcg@10", "entropy"])
@pytest.mark.parametrize("is_named", [True, False])
def test_expert_grades_are_spread_over_queries(policy: str, is_named: bool) -> None:
    judgments = read_judgments(simulate(queries=20, documents=10, labels=2, random_state=1).judgments)
    pool = Pool.of(judgments)
    pool = replace(pool, roster=Roster.of(["ann", "bob"], kinds="expert") if is_named else None)
    known = None if policy == "single" else judgments
    requests = get_policy(policy).next(pool, known, None, Budget(30, kind="expert"))
    counts = np.unique(pool.query.take(pa.array(requests.pair)).to_pylist(), return_counts=True)[1]
    assert len(requests) == 30
    assert sorted(counts) == [1] * 10 + [2] * 10


def test_unspent_budgets_say_why() -> None:
    judgments = read_judgments(simulate(queries=4, documents=10, labels=2, random_state=1).judgments)
    pool = Pool.of(judgments)
    n = len(pool)

    def unspent(policy: str, money: float, roster: Roster | None = None, **terms: Any) -> list[Unspent]:
        requests = get_policy(policy).next(replace(pool, roster=roster), judgments, None, Budget(money, **terms))
        assert requests.cost + sum(part.money for part in requests.unspent) == pytest.approx(money)
        return list(requests.unspent)

    assert unspent("overlap-3", n) == []
    assert unspent("overlap-3", 2 * n) == [Unspent(n, "nothing-wanted", False, 1.0, {"requested": n})]
    assert unspent("overlap-2", 5) == [Unspent(5, "nothing-wanted", False, 1.0, {"complete": n})]
    assert unspent("overlap-3", 10, prices={"human": 3}) == [Unspent(1, "price", False, 3.0)]
    new = [f"new-{number}" for number in range(3)]
    assert unspent("overlap-3", 10, Roster.of(new), most=2) == [Unspent(4, "nobody-left", False, 1.0)]
    dear = Roster.of(new, ["llm", "human", "expert"], {"llm": 2, "human": 4, "expert": 50})
    assert unspent("overlap-3", 11, dear, most=1) == [Unspent(5, "price", False, 50.0)]
    requested = get_policy("overlap-3").next(pool, judgments, None, 3)
    outstanding = OutstandingRequests.of(requested, judgments)
    later = get_policy("overlap-3").next(replace(pool, roster=None), judgments, None, Budget(2 * n), outstanding)
    assert later.unspent[0].pairs == {"requested": n - 3, "outstanding": 3}
    settled = get_policy("entropy").set_params(settled=0.6).next(replace(pool, roster=None), judgments, None, 2 * n)
    assert settled.unspent[0].pairs == {"requested": len(settled), "settled": n - len(settled)}
    assert 0 < len(settled) < n


def test_money_for_honeypots_that_is_left_has_a_reason() -> None:
    judgments = read_judgments(simulate(queries=4, documents=10, labels=2, random_state=1).judgments)
    frame = Pool.of(judgments).query, Pool.of(judgments).document
    answers = pa.array(["1" if number < 2 else None for number in range(len(frame[0]))], pa.string())
    requests = get_policy("overlap-3").next(Pool(*frame, honeypot=answers), judgments, None, Budget(20, honeypots=0.25))
    assert requests.unspent == (Unspent(3.0, "nothing-wanted", True, 1.0, {"requested": 2}),)
    assert requests.unspent[0].message().kind == "unspent-nothing-wanted"


def test_requests_to_a_crowd_keep_their_priority() -> None:
    judgments = read_judgments(simulate(queries=20, documents=10, labels=2, random_state=1).judgments)
    pool = replace(Pool.of(judgments), roster=None)
    crowd, expert = (get_policy("single").next(pool, None, None, Budget(10, kind=kind)) for kind in ("human", "expert"))
    assert crowd.pair.tolist() == list(range(10))
    assert len(set(pool.query.take(pa.array(expert.pair)).to_pylist())) == 10
