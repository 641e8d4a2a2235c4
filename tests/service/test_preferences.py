"""Test projects that ask which of two documents is better."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crowdrank
from crowdrank.cli.app import app
from crowdrank.errors import InputError, UsageError
from crowdrank.readers.preference_files import read_preferences
from crowdrank.readers.read import read_gold, read_judgments
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.pairs import ComparisonContent, DocumentRow, PairRow, list_pairs
from crowdrank.service.domain.progress import (
    ChosenSides,
    answers_of,
    chosen_sides,
    coded_answers,
    coded_preferences,
    file_content,
    project_status,
)
from crowdrank.service.domain.projects import PREFERENCE_ANSWERS, get_project
from crowdrank.service.domain.quotas import committed_money
from crowdrank.service.model.disputes import disputed_pairs, project_labels, read_answers
from crowdrank.service.model.fits import (
    compared_assessors,
    fit_project,
    latest_snapshot,
    list_reliabilities,
    list_standings,
)
from crowdrank.service.model.refits import Refits
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging
from .preference_project import SWAPPED, Comparing, comparison, shown_left


def better(lease: Any) -> str:
    """Return the answer that prefers the document whose id comes first."""
    left, right = shown_left(lease)
    return "left" if left < right else "right"


def judge_all(comparing: Comparing, assessor: int, answer: Any = better) -> int:
    """Let an assessor answer all comparisons; return their number."""
    number = 0
    while leases := comparing.next(assessor).leases:
        comparing.answer(assessor, leases[0], grade=answer(leases[0]))
        number += 1
    return number


# Projects and comparisons.


def test_the_task_is_chosen_when_a_project_is_created(database: Database) -> None:
    comparing = Comparing(database)
    assert comparing.project.grades == PREFERENCE_ANSWERS
    with pytest.raises(Conflict) as fixed:
        comparing.update(task="grades")
    assert (fixed.value.kind, fixed.value.parameter) == ("task-fixed", "task")
    assert comparing.update(task="preferences", is_open=True).asks_preferences
    for name, policy in (("shoes", "ndcg@10"), ("shoes", "compare")):
        with pytest.raises(Invalid) as unknown:
            comparing.update(policy=policy)
        assert (unknown.value.kind, comparing.project.name) == ("unknown-policy", name)
    grading = Judging(database, name="grades")
    with pytest.raises(Invalid) as other:
        grading.update(policy="preferences")
    assert other.value.kind == "unknown-policy"
    with pytest.raises(Invalid) as needless:
        Judging(database, name="both", task="preferences")
    assert (needless.value.kind, needless.value.parameter) == ("no-grades", "grades")


def test_a_comparison_is_one_pair_in_both_orders(database: Database) -> None:
    comparing = Comparing(database, 0)
    added = comparing.add(comparison("q", "b", "a"), comparison("q", "a", "b"), comparison("q", "b", "c"))
    assert (added.pairs_added, added.pairs_kept, added.documents_added) == (2, 1, 3)
    gold = comparison("q", "d", "c", kind="gold", gold_grade="left")
    comparing.add(gold)
    assert comparing.add(comparison("q", "c", "d", kind="gold", gold_grade="right")).pairs_kept == 1
    with pytest.raises(Conflict) as differs:
        comparing.add(comparison("q", "c", "d", kind="gold", gold_grade="left"))
    assert differs.value.kind == "pair-differs"
    assert [row["gold_grade"] for row in comparing.rows(schema.pair, kind="gold")] == [2]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (comparison("q", "a", "a"), "same-document"),
        (PairRow("q", "a", kind="gold", gold_grade="left"), "one-document"),
        (comparison("q", "a", "b", kind="gold", gold_grade="better"), "unknown-grade"),
        (comparison("q", "a", ""), "missing-id"),
        (comparison("q", "a", "b\0"), "invalid-text"),
    ],
)
def test_bad_comparisons_are_refused(database: Database, row: PairRow, kind: str) -> None:
    comparing = Comparing(database, 0)
    with pytest.raises(Invalid) as caught:
        comparing.add(comparison("q", "a", "b"), row)
    assert (caught.value.kind, caught.value.location.place) == (kind, "row 2")
    assert comparing.rows(schema.pair) == []


def test_projects_of_grades_take_single_documents(database: Database) -> None:
    with pytest.raises(Invalid) as caught:
        Judging(database).add(comparison("q", "a", "b"))
    assert caught.value.kind == "is-comparison"


@pytest.mark.parametrize(("n_documents", "n_wanted"), [(2, 4), (12, 3), (30, 4)])
def test_the_service_chooses_a_few_comparisons_of_each_document(
    database: Database, n_documents: int, n_wanted: int
) -> None:
    comparing = Comparing(database, 0, comparisons=n_wanted)
    rows = [PairRow("q", f"d{number}") for number in range(n_documents)]
    comparing.add(*rows[: n_documents // 2])
    comparing.add(*rows)
    pairs = [(row["document_id"], row["other_document_id"]) for row in comparing.rows(schema.pair)]
    counts = Counter(one for pair in pairs for one in pair)
    assert len(counts) == n_documents
    assert min(counts.values()) >= min(n_wanted, n_documents - 1)
    assert len(set(pairs)) == len(pairs) <= n_documents * (n_wanted + 1) / 2 + 1
    linked, waiting = set(), {pairs[0][0]}
    while waiting:
        linked |= waiting
        waiting = {one for pair in pairs if set(pair) & linked for one in pair} - linked
    assert len(linked) == n_documents
    assert comparing.add(*rows).pairs_added == 0


@pytest.mark.parametrize("columns", ["left,right", "document"])
def test_a_project_is_created_from_files(tmp_path: Path, columns: str) -> None:
    rows = ["q,a,b,", "q,c,b,-1", "r,a,c,"] if columns == "left,right" else ["q,a,", "q,b,", "q,c,"]
    (tmp_path / "pairs.csv").write_text("\n".join([f"query,{columns},honeypot", *rows]))
    texts = [{"document": name, "title": f"title of {name}", "query": query} for query in "qr" for name in "abc"]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    files = ["--pairs", str(tmp_path / "pairs.csv"), "--texts", str(tmp_path / "texts.jsonl")]
    target = str(tmp_path / "judging.db")
    command = ["new-project", target, "jam", *files, "--task", "preferences", "--comparisons", "2", "--json"]
    assert isinstance(CliRunner().invoke(app, [*command, "--grades", "0-3"]).exception, UsageError)
    assert not Path(target).exists()
    done = CliRunner().invoke(app, command)
    assert json.loads(done.stdout) == {"project": "jam", "pairs": 3, "documents": 3, "without_text": 0}
    database = Database(target)
    with database.read() as connection:
        pairs = list_pairs(connection, get_project(connection, "jam"))
    database.close()
    found = {(one.query, one.document, one.other): (one.title, one.other_title, one.gold_grade) for one in pairs}
    expected: dict[Any, str | None] = dict.fromkeys([("q", "a", "b"), ("q", "b", "c"), ("q", "a", "c")])
    if columns == "left,right":
        expected = {("q", "a", "b"): None, ("q", "b", "c"): "right", ("r", "a", "c"): None}
    assert found == {key: (f"title of {key[1]}", f"title of {key[2]}", gold) for key, gold in expected.items()}


def test_a_file_of_comparisons_has_different_documents(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("query,left,right\nq,a,a\n")
    files = ["--pairs", str(tmp_path / "pairs.csv"), "--task", "preferences"]
    error = CliRunner().invoke(app, ["new-project", str(tmp_path / "judging.db"), "jam", *files]).exception
    assert isinstance(error, Invalid)
    assert error.kind == "same-document"
    assert not (tmp_path / "judging.db").exists()


# Sides and answers.


def test_sides_are_random_and_recorded_as_shown(database: Database) -> None:
    comparing = Comparing(database, 4, quotas={"human": (4, 4)})
    shown: dict[tuple[str, str, str], list[bool]] = {}
    expected = []
    for assessor in (1, 2, 3, 4):
        while leases := comparing.next(assessor).leases:
            assert comparing.next(assessor).leases == leases
            (left, right), query = shown_left(leases[0]), leases[0].content.query
            assert leases[0].content.body == left
            shown.setdefault((query, min(left, right), max(left, right)), []).append(left < right)
            receipt = comparing.answer(assessor, leases[0], grade="left")
            assert receipt.grade == "left"
            expected.append((query, left, right, f"shoes-a{assessor}", -1))
    sides = [side for listed in shown.values() for side in listed]
    assert len(shown) == 12
    assert 12 < sum(sides) < 36
    assert any(len(set(listed)) == 2 for listed in shown.values()), "assessors see a pair in different orders"
    with database.read() as connection:
        table = answers_of(connection, comparing.project)
    columns = ("query", "left", "right", "assessor", "preference")
    assert sorted(zip(*(table[name].to_pylist() for name in columns), strict=True)) == sorted(expected)
    comparing.check_invariants()


def test_sides_stay_after_undo(database: Database) -> None:
    comparing = Comparing(database)
    for _ in range(5):
        lease = comparing.lease(1)
        comparing.answer(1, lease, client_id=f"sent{lease.token}")
        again = comparing.undo(1).lease
        assert again is not None
        assert again.content == lease.content
        comparing.answer(1, again, grade="tie")
    comparing.check_invariants()


def test_answers_by_ids_have_the_sides_of_the_request(database: Database) -> None:
    comparing = Comparing(database, 0, quotas={"human": (1, 4)})
    comparing.add(comparison("q", "a", "b"))
    for assessor, (left, right) in enumerate((("a", "b"), ("b", "a")), start=1):
        receipt = comparing.answer(assessor, query="q", document=left, other=right, grade="left", client_id="same")
        assert receipt.grade == "left"
        again = comparing.answer(assessor, query="q", document=left, other=right, grade="left", client_id="same")
        assert again == receipt
        with pytest.raises(Conflict):
            comparing.answer(assessor, query="q", document=right, other=left, grade="right", client_id="same")
    assert [(row["grade"], row["is_swapped"]) for row in comparing.rows(schema.event)] == [(0, False), (2, True)]
    assert comparing.answer(3, pair_id=1, grade="right").grade == "right"
    for other in (None, "c"):
        with pytest.raises(NotFound) as caught:
            comparing.answer(4, query="q", document="a", other=other)
        assert caught.value.kind == "no-pair"
    with pytest.raises(Invalid) as unknown:
        comparing.answer(4, pair_id=1, grade="2")
    assert unknown.value.kind == "unknown-grade"


def test_probabilities_are_stored_with_the_sides_of_the_pair(database: Database) -> None:
    comparing = Comparing(database, 0)
    comparing.add(comparison("q", "a", "b"))
    comparing.send(1, Answer("x", grade="left", query="q", document="b", other="a", probabilities=[0.7, 0.2, 0.1]))
    (event,) = comparing.rows(schema.event)
    assert (event["grade"], event["probabilities"]) == (2, [0.1, 0.2, 0.7])


def test_feedback_and_honeypots_follow_the_sides_shown(database: Database) -> None:
    comparing = Comparing(database, 0, kinds=["human"] * 8, qualification_share=1.0)
    comparing.add(comparison("t", "bad", "good", kind="training", gold_grade="right", explanation="since"))
    comparing.add(*(comparison("g", "x", f"y{number}", kind="gold", gold_grade="left") for number in range(6)))
    sides = set()
    for assessor in range(1, 9):
        lease = comparing.lease(assessor)
        left, _ = shown_left(lease)
        sides.add(left)
        correct = "left" if left == "good" else "right"
        receipt = comparing.answer(assessor, lease, grade=correct if assessor < 8 else SWAPPED[correct])
        assert receipt.feedback is not None
        assert (receipt.feedback.is_correct, receipt.feedback.grade) == (assessor < 8, correct)
    assert sides == {"good", "bad"}
    assert [comparing.next(assessor).status for assessor in (7, 8)] == ["done", "not-qualified"]
    comparing.add(comparison("q", "a", "b"))
    comparing.update(honeypot_share=1.0)
    for _ in range(6):
        lease = comparing.lease(1)
        comparing.answer(1, lease, grade="left" if shown_left(lease)[0] == "x" else "right")
    with database.read() as connection:
        status = project_status(connection, comparing.project, database.now())
    assert (status.assessors[0].gold.n_answered, status.assessors[0].gold.n_correct) == (6, 6)


def test_a_preferred_side_is_shown(database: Database) -> None:
    comparing = Comparing(database, 4, quotas={"human": (2, 2)})
    judge_all(comparing, 1, lambda lease: "left")
    comparing.answer(2, query="q0", document="b", other="a", grade="right")
    comparing.answer(2, query="q0", document="a", other="b", grade="tie")
    comparing.answer(3, query="q0", document="a", other="c", grade="right")
    with database.read() as connection:
        found = chosen_sides(connection, comparing.project)
    assert found == {1: ChosenSides(12, 0), 2: ChosenSides(0, 0), 3: ChosenSides(0, 1)}
    assert found[1].p_value == pytest.approx(2 / 2**12)
    assert found[3].p_value == 1


# Both orders.


def both(comparing: Comparing, assessor: int, lease: Any, grade: str, swapped: str, **fields: Any) -> Any:
    """Answer a comparison in both orders."""
    return comparing.answer(assessor, lease, grade=grade, swapped_grade=swapped, **fields)


def test_llm_judges_answer_in_both_orders(database: Database, database_target: str) -> None:
    comparing = Comparing(database, 2, ("llm", "llm", "human"), quotas={"llm": (2, 2), "human": (1, 1)})
    expected, sides = [], set()
    while leases := comparing.next(1).leases:
        left, right = shown_left(leases[0])
        sides.add(left < right)
        receipt = both(comparing, 1, leases[0], "left", "right", client_id=leases[0].token, active_ms=3000)
        assert receipt == both(comparing, 1, leases[0], "left", "right", client_id=leases[0].token, active_ms=3000)
        with pytest.raises(Conflict) as other:
            both(comparing, 1, leases[0], "left", "tie", client_id=leases[0].token)
        assert other.value.kind == "client-id-taken"
        expected += [(leases[0].content.query, left, right, -1), (leases[0].content.query, right, left, 1)]
    assert sides == {True, False}
    assert {row["taken"] for row in comparing.rows(schema.quota, kind="llm")} == {1}
    with database.read() as connection:
        table = answers_of(connection, comparing.project)
        assert chosen_sides(connection, comparing.project) == {1: ChosenSides(6, 6)}
        coded = coded_answers(connection, comparing.project)
        assert coded is not None
        preferences = coded_preferences(connection, coded)
        assert preferences is not None
    for found in (table.to_pandas(), preferences.frame.to_pandas(), read_preferences(database_target).frame):
        rows = found[["query", "left", "right", "preference"]].values.tolist()
        assert sorted(map(tuple, rows)) == sorted(expected)
    assert set(table["duration"].to_pylist()) == set(coded.judgments.extras["duration"].tolist()) == {1.5}
    assert compared_assessors(coded.judgments) == set(), "both answers are of one judge"
    fitted = fit_project(database, comparing.project)
    assert fitted.model.judgments_.n_assessors == 1
    assert len(fitted.model.judgments_) == 12
    comparing.check_invariants()


@pytest.mark.parametrize("kind", ["human", "expert"])
def test_people_answer_in_one_order(database: Database, kind: str) -> None:
    comparing = Comparing(database, 1, (kind,), quotas={kind: (1, 1)})
    with pytest.raises(Invalid) as refused:
        both(comparing, 1, comparing.lease(1), "left", "right")
    assert refused.value.kind == "one-order"
    judging = Judging(database, 1, ("llm",), name="grades", quotas={"llm": (1, 1)})
    member = judging.rows(schema.membership)[-1]["assessor_id"]
    with pytest.raises(Invalid) as needless:
        judging.answer(member, pair_id=judging.rows(schema.pair)[-1]["id"], swapped_grade=1)
    assert needless.value.kind == "one-order"


def test_two_orders_cost_the_price_twice(database: Database) -> None:
    comparing = Comparing(database, 2, ("llm", "human"), budget=5.0, quotas={"llm": (1, 1), "human": (1, 1)})

    def spent() -> float:
        with database.read() as connection:
            assert project_status(connection, comparing.project, database.now()).cost <= 5.0
            return committed_money(connection, comparing.project.id)

    leases = comparing.next(1, 6).leases
    assert (len(leases), spent()) == (2, 4.0)
    both(comparing, 1, leases[0], "left", "right")
    comparing.answer(1, leases[1], kind="cannot-judge")
    assert spent() == 3.0
    again = comparing.undo(1).lease
    assert spent() == 4.0
    both(comparing, 1, again, "left", "right")
    assert comparing.next(1).reason == "budget-spent"
    assert (len(comparing.next(2, 6).leases), spent()) == (1, 5.0)


def test_orders_that_differ_are_disputed_and_no_correct_honeypot(database: Database) -> None:
    comparing = Comparing(database, 0, ("llm",), quotas={"llm": (1, 1)})
    rows = [comparison("q", "a", f"b{number}") for number in range(3)]
    gold = [comparison("g", "x", f"y{number}", kind="gold", gold_grade="left") for number in range(3)]
    comparing.add(*rows, *gold)
    pairs = [row["id"] for row in comparing.rows(schema.pair)]
    for pair_id, second in zip(pairs, ("right", "left", "tie") * 2, strict=True):
        comparing.answer(1, pair_id=pair_id, grade="left", swapped_grade=second)
    with database.read() as connection:
        assert disputed_pairs(connection, comparing.project, None) == [pairs[1], pairs[2]]
        _, answers = read_answers(connection, comparing.project, [pairs[1]])[pairs[1]]
        gold_accuracy = project_status(connection, comparing.project, database.now()).assessors[0].gold
    assert [one.grade for one in answers] == ["left", "right"]
    assert (gold_accuracy.n_answered, gold_accuracy.n_correct) == (3, 1)
    comparing.check_invariants()


# Exports.


def test_exports_are_read_as_preferences(database: Database, database_target: str, tmp_path: Path) -> None:
    comparing = Comparing(database, 1)
    comparing.add(comparison("q0", "x", "w", kind="gold", gold_grade="left"))
    comparing.answer(1, query="q0", document="b", other="a", grade="right", active_ms=1500, comment="clear")
    comparing.answer(2, query="q0", document="a", other="b", grade="tie")
    comparing.answer(2, query="q0", document="x", other="w", grade="left")
    comparing.answer(3, query="q0", document="a", other="b", kind="cannot-judge")
    with database.read() as connection:
        table = answers_of(connection, comparing.project)
    for format in ("csv", "jsonl", "parquet"):
        path = tmp_path / f"answers.{format}"
        path.write_bytes(file_content(table, format))
        frame = read_preferences(path).frame
        rows = sorted(zip(frame["left"], frame["right"], frame["assessor"], frame["preference"], strict=True))
        assert rows == [("a", "b", "shoes-a2", 0), ("b", "a", "shoes-a1", 1), ("x", "w", "shoes-a2", -1)]
    assert table["honeypot"].to_pylist() == [None, None, -1]
    assert table["duration"].to_pylist()[0] == 1.5
    direct = read_preferences(database_target)
    assert direct.answer_counts() == {-1: 1, 0: 1, 1: 1}
    assert sum(direct.report.skipped.values()) == 1
    for read in (read_judgments, read_gold):
        with pytest.raises(InputError) as caught:
            read(database_target)
        assert caught.value.kind == "is-preferences"


def test_grades_are_not_read_as_preferences(database: Database, database_target: str) -> None:
    Judging(database).judge(1)
    with pytest.raises(InputError) as caught:
        read_preferences(database_target)
    assert caught.value.kind == "is-judgments"


# Disputes, adjudication and the model.


def test_disputes_and_adjudication_are_as_for_grades(database: Database) -> None:
    comparing = Comparing(database, 1, quotas={"human": (2, 3)})
    for assessor, (left, right, grade) in enumerate(
        (("a", "b", "left"), ("b", "a", "left"), ("a", "c", "left"), ("c", "a", "right")), start=1
    ):
        comparing.answer(assessor, query="q0", document=left, other=right, grade=grade)
    pairs = {(row["document_id"], row["other_document_id"]): row["id"] for row in comparing.rows(schema.pair)}
    names = {row["key"]: row["id"] for row in comparing.rows(schema.document)}
    disputed = pairs[names["a"], names["b"]]
    with database.read() as connection:
        assert disputed_pairs(connection, comparing.project, None) == [disputed], "a and c were shown in both orders"
        content, answers = read_answers(connection, comparing.project, [disputed])[disputed]
    assert isinstance(content, ComparisonContent)
    assert (content.document, content.other.document) == ("a", "b")
    assert [one.grade for one in answers] == ["left", "right"], "with the sides of the list"
    comparing.answer(4, pair_id=disputed, grade="right", comment="adjudicated")
    with database.read() as connection:
        assert disputed_pairs(connection, comparing.project, None) == []
        labels = project_labels(connection, comparing.project).to_pylist()
    assert labels == [{"query": "q0", "left": "a", "right": "b", "preference": 1, "source": "adjudicated"}]


def test_a_fit_orders_documents(database: Database) -> None:
    comparing = Comparing(database, 6, quotas={"human": (3, 3)})
    for assessor in (1, 2, 3):
        assert judge_all(comparing, assessor) == 18
    fitted = fit_project(database, comparing.project)
    with database.read() as connection:
        standings = list_standings(connection, comparing.project, fitted.snapshot)
        labels = project_labels(connection, comparing.project)
        reliabilities = list_reliabilities(connection, fitted.snapshot)
        assert latest_snapshot(connection, comparing.project) == fitted.snapshot
    assert len(standings) == 18
    assert {one.grade for one in standings} == {"left"}
    assert all(one.other is not None and one.document < one.other for one in standings)
    assert all(one.lower is not None and one.lower < one.relevance for one in standings)
    by_pair = {(one.query, one.document, one.other): one for one in standings}
    far, near = by_pair["q0", "a", "c"], by_pair["q0", "a", "b"]
    assert far.relevance > near.relevance > 0
    assert far.probabilities[0] > near.probabilities[0] > 0.5
    assert sum(far.probabilities) == pytest.approx(1, abs=1e-5)
    assert set(labels["preference"].to_pylist()) == {-1}
    assert len(reliabilities) == 3
    direct = crowdrank.GDA().fit(None, preferences=read_preferences(_file(database, comparing)))
    table = direct.consensus_.documents.set_index(["query", "document"])["relevance"]
    assert far.relevance == pytest.approx(table["q0", "a"] - table["q0", "c"], abs=1e-3)


def _file(database: Database, comparing: Comparing) -> Any:
    with database.read() as connection:
        return answers_of(connection, comparing.project).to_pandas()


def test_the_policy_asks_for_the_uncertain_order_at_the_top_first(database: Database) -> None:
    comparing = Comparing(
        database, 0, kinds=["human"] * 6, policy="preferences", settled=0.99, quotas={"human": (0, 6)}
    )
    names = [f"d{number}" for number in range(6)]
    comparing.add(*(comparison("q", low, high) for low, high in pairwise(names)))
    refits = Refits(database)
    assert [step.kind for step in refits.run_due()] == ["plan"]
    assert {row["target"] for row in comparing.rows(schema.quota)} == {1}
    for assessor in (
        1,
        2,
        3,
        4,
    ):  # the order of the first two and of the last two is disputed
        for place, (low, high) in enumerate(pairwise(names)):
            grade = "right" if place in (0, 4) and assessor % 2 else "left"
            comparing.answer(assessor, query="q", document=low, other=high, grade=grade)
    refits.run_due()
    quotas = sorted(comparing.rows(schema.quota), key=lambda row: row["pair_id"])
    priorities = [row["priority"] for row in quotas]
    assert np.argmax(priorities) == 0
    assert priorities[0] > priorities[4] > 0
    assert quotas[0]["target"] == 5
    comparing.judge(5)
    assert refits.run_due() == [], "no update after each answer"


def test_a_lead_closes_and_reopens_the_comparisons_of_a_document(database: Database, clock: ManualClock) -> None:
    comparing = Comparing(database, 1)
    assert comparing.close(documents=["b"]) == 2
    assert [row["is_open"] for row in comparing.rows(schema.pair)].count(True) == 1
    comparing.judge(1)
    assert comparing.reopen(document_changed=True) == 0
    clock.advance(1)
    comparing.add(PairRow("q0", "a", other=DocumentRow("c", title="new title")))
    assert comparing.reopen(document_changed=True) == 1
    comparing.check_invariants()
