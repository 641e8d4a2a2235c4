"""Test which pairs assessors get."""

from __future__ import annotations

import pytest

from crowdrank.service.domain.assignment import N_BEST_PAIRS, N_BEST_TO_STAY
from crowdrank.service.domain.leases import end_expired_leases, release_leases
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.domain.qualification import GoldAccuracy, honeypot_accuracy, reset_qualification
from crowdrank.service.service_errors import Invalid, NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging


def test_each_kind_of_assessor_has_a_quota_of_its_own(database: Database) -> None:
    judging = Judging(
        database, n_pairs=1, kinds=["human", "human", "llm", "llm", "expert"], quotas={"human": (2, 2), "llm": (1, 1)}
    )
    assert [len(judging.next(assessor).leases) for assessor in (3, 1, 2, 4, 5)] == [1, 1, 1, 0, 0]
    assert (judging.next(4).status, judging.next(4).reason) == ("done", "no-pairs")
    assert (judging.next(5).status, judging.next(5).reason) == ("done", "kind-not-asked")
    assert (judging.taken(1), judging.taken(1, "llm")) == (2, 1)
    judging.check_invariants()


def test_a_repeated_request_returns_the_same_leases(database: Database) -> None:
    judging = Judging(database)
    first = judging.next(1, 2)
    assert len(first.leases) == 2
    assert judging.next(1, 2) == first
    assert judging.next(1, 1).leases == first.leases[:1]
    judging.answer(1, first.leases[0])
    assert judging.next(1, 2).leases[0] == first.leases[1], "the prefetched pair comes first"
    judging.check_invariants()


def test_the_lease_has_the_texts_of_the_pair(database: Database) -> None:
    judging = Judging(database, n_pairs=0)
    judging.add(PairRow("q", "d", "red shoe", "buy", "Shoe", "A shoe.", {"price": 3}, "https://example.org/d"))
    lease = judging.lease(1)
    content = lease.content
    assert (content.query, content.query_text, content.need) == ("q", "red shoe", "buy")
    assert (content.document, content.title, content.body) == ("d", "Shoe", "A shoe.")
    assert (content.fields, content.url) == ({"price": 3}, "https://example.org/d")
    assert lease.expires == database.now() + 900_000


def test_an_expired_lease_goes_to_another_assessor(database: Database, clock: ManualClock) -> None:
    judging = Judging(database, n_pairs=1, quotas={"human": (1, 1)})
    first = judging.lease(1)
    assert judging.next(2).status == "done"
    clock.advance(900)
    second = judging.lease(2)
    assert second.content == first.content
    assert second.token != first.token
    assert [row["end_kind"] for row in judging.rows(schema.lease)] == ["expired", None]
    judging.check_invariants()


def test_expired_leases_are_ended_in_bounded_numbers(database: Database, clock: ManualClock) -> None:
    judging = Judging(database)
    judging.next(1, 3)
    clock.advance(1000)
    ended = [database.write(lambda connection: end_expired_leases(connection, clock(), limit=2)) for _ in range(3)]
    assert ended == [2, 1, 0]
    judging.check_invariants()


def test_returned_leases_free_their_places(database: Database) -> None:
    judging = Judging(database, quotas={"human": (1, 1)})
    leases = judging.next(1, 4).leases
    assert judging.next(2).status == "done"
    project, now = judging.project, database.now()
    by_token = database.write(lambda c: release_leases(c, project, 1, now, [leases[0].token, "unknown"]))
    assert by_token == 1
    assert judging.lease(2).content == leases[0].content
    assert database.write(lambda c: release_leases(c, project, 1, now)) == 3
    judging.check_invariants()


def test_pairs_of_the_last_query_come_first(database: Database) -> None:
    judging = Judging(database, n_pairs=12)
    queries = [judging.judge_content(1).query for _ in range(12)]
    assert [queries[place] == queries[place + 1] for place in range(0, 12, 2)] == [True] * 6


@pytest.mark.parametrize("kind", ["human", "llm"])
def test_llm_judges_do_not_stay_at_a_query(database: Database, kind: str) -> None:
    n = 2 * N_BEST_PAIRS
    judging = Judging(database, n_pairs=n, kinds=[kind], quotas={kind: (1, 1)})
    best = set(range(1, n, 2))  # one of the two documents of each query
    for pair_id in best:
        judging.set_priority(pair_id, 1.0)
    got = {lease.content.pair_id for lease in judging.next(1, N_BEST_PAIRS).leases}
    assert (got == best) == (kind == "llm")


@pytest.mark.parametrize("is_as_good", [True, False])
def test_an_assessor_leaves_a_query_if_the_best_pairs_are_elsewhere(database: Database, is_as_good: bool) -> None:
    judging = Judging(database, n_pairs=1, kinds=["human"], policy="ndcg@3", quotas={"human": (1, 4)})
    judging.judge(1)
    judging.add(PairRow("q0", "d1"), *(PairRow(f"other{number}", "d") for number in range(N_BEST_TO_STAY)))
    for pair_id in range(3, N_BEST_TO_STAY + 3):
        judging.set_priority(pair_id, 5.0)
    judging.set_priority(2, 5.0 if is_as_good else 4.9)
    assert (judging.judge_content(1).document == "d1") == is_as_good


def test_the_most_useful_pairs_of_a_query_come_first(database: Database) -> None:
    judging = Judging(database, n_pairs=1, kinds=["human"], policy="ndcg@3", quotas={"human": (1, 4)})
    judging.judge(1)
    judging.add(*(PairRow("q0", f"new{number}") for number in range(6)))
    priorities = {pair_id: float(pair_id * 5 % 7) for pair_id in range(2, 8)}
    for pair_id, priority in priorities.items():
        judging.set_priority(pair_id, priority)
    order = [judging.judge_content(1).pair_id for _ in range(6)]
    assert order == sorted(priorities, key=lambda pair_id: -priorities[pair_id])


def test_a_random_pair_of_the_best_is_handed_out(database: Database) -> None:
    judging = Judging(database, n_pairs=0, kinds=["human"] * 30, quotas={"human": (30, 30)})
    judging.add(*(PairRow(f"q{number}", "d") for number in range(40)))
    for pair_id in range(1, 41):
        judging.set_priority(pair_id, float(pair_id))
    got = {judging.lease(assessor).content.pair_id for assessor in range(1, 31)}
    assert min(got) > 40 - N_BEST_PAIRS
    assert len(got) > 5


def test_pairs_that_were_put_off_come_last(database: Database) -> None:
    judging = Judging(database, n_pairs=4)
    first = judging.judge(1, kind="later").pair_id
    assert judging.taken(first) == 0
    rest = [judging.judge(1).pair_id for _ in range(3)]
    assert first not in rest
    assert judging.judge(1).pair_id == first
    assert judging.next(1).status == "done"
    assert [row["kind"] for row in judging.rows(schema.answer, pair_id=first)] == ["grade"]
    judging.check_invariants()


def test_closed_projects_and_paused_members_get_nothing(database: Database) -> None:
    judging = Judging(database)
    lease = judging.lease(1)
    judging.set_member(1, is_paused=True)
    assert (judging.next(1).status, judging.next(1).leases) == ("paused", ())
    judging.set_member(1, is_paused=False)
    judging.update(is_open=False)
    assert judging.next(1).status == "closed"
    assert judging.answer(1, lease).is_counted, "work that was begun is kept"
    judging.update(is_open=True)
    assert judging.next(1).status == "judging"


def test_only_members_get_pairs(database: Database) -> None:
    judging = Judging(database, kinds=["human"])
    with pytest.raises(NotFound) as caught:
        judging.next(2)
    assert caught.value.kind == "no-membership"


@pytest.mark.parametrize("number", [0, 101])
def test_the_number_of_leases_is_limited(database: Database, number: int) -> None:
    with pytest.raises(Invalid) as caught:
        Judging(database).next(1, number)
    assert caught.value.parameter == "count"


def gold_rows(number: int, kind: str = "gold") -> list[PairRow]:
    return [PairRow(f"g{one}", f"{kind}{one}", kind=kind, gold_grade=one % 4) for one in range(number)]


def test_the_share_of_honeypots_is_as_set_and_repeatable(database: Database) -> None:
    judging = Judging(database, n_pairs=300, quotas={"human": (3, 3)}, honeypot_share=0.2)
    judging.add(*gold_rows(100))

    def gold_places(assessor: int = 1) -> list[int]:
        leases = enumerate(judging.next(assessor, 100).leases)
        return [place for place, lease in leases if lease.content.document.startswith("gold")]

    first = gold_places()
    assert 12 <= len(first) <= 30
    assert gold_places(2) != first, "assessors cannot tell each other where honeypots are"
    project, now = judging.project, database.now()
    database.write(lambda connection: release_leases(connection, project, 1, now))
    judging.set_member(1, n_leases=0)
    assert gold_places() == first, "the schedule depends on the assessor and the number of the lease"
    database.write(lambda connection: release_leases(connection, project, 1, now))
    judging.set_member(1, n_leases=50)
    assert [place + 50 for place in gold_places() if place < 50] == [place for place in first if place >= 50]


def test_nobody_gets_a_honeypot_twice(database: Database) -> None:
    judging = Judging(database, n_pairs=6, honeypot_share=1.0)
    judging.add(*gold_rows(2))
    documents = [judging.judge_content(1).document for _ in range(8)]
    assert sorted(documents[:2]) == ["gold0", "gold1"]
    assert sorted(documents[2:]) == [f"d{number}" for number in range(6)]
    assert judging.next(1).status == "done"


def test_honeypots_measure_accuracy(database: Database) -> None:
    judging = Judging(database, n_pairs=0, honeypot_share=1.0)
    judging.add(*gold_rows(4))
    for _ in range(4):
        judging.judge(1, grade=1)
    judging.judge(2, kind="cannot-judge")
    judging.judge(3, kind="later")
    with database.read() as connection:
        found = honeypot_accuracy(connection, judging.project)
    assert found == {1: GoldAccuracy(4, 1), 2: GoldAccuracy(1, 0)}


@pytest.mark.parametrize(("n_correct", "status"), [(3, "judging"), (2, "not-qualified")])
def test_training_pairs_come_first_and_decide(database: Database, n_correct: int, status: str) -> None:
    judging = Judging(database, qualification_share=0.75, honeypot_share=0.5)
    judging.add(*gold_rows(4, "training"), *gold_rows(4, "gold"))
    for place in range(4):
        found = judging.next(1, 2)
        assert found.status == "training"
        lease = found.leases[0]
        assert lease.content.document.startswith("training")
        gold = int(lease.content.document.removeprefix("training")) % 4
        receipt = judging.answer(1, lease, grade=gold if place < n_correct else (gold + 1) % 4)
        assert receipt.feedback is not None
        assert (receipt.feedback.is_correct, receipt.feedback.grade) == (place < n_correct, str(gold))
    assert judging.next(1).status == status
    assert judging.next(2).status == "training", "each assessor has a qualification test of their own"


def test_a_training_pair_can_be_put_off_but_not_left_out(database: Database) -> None:
    judging = Judging(database, qualification_share=0.5)
    judging.add(*gold_rows(2, "training"))
    first = judging.judge(1, kind="later")
    assert first.feedback is None
    assert judging.judge(1).pair_id != first.pair_id
    assert judging.judge(1).pair_id == first.pair_id
    assert judging.rows(schema.membership, assessor_id=1)[0]["qualification"] == "passed"


def test_the_qualification_can_be_reset(database: Database) -> None:
    judging = Judging(database, qualification_share=1.0)
    judging.add(*gold_rows(1, "training"))
    judging.judge(1, grade=3)
    assert judging.next(1).status == "not-qualified"
    project = judging.project
    database.write(lambda connection: reset_qualification(connection, project, 1))
    judging.judge(1, grade=0)
    assert judging.next(1).status == "judging"


def test_without_training_pairs_nobody_qualifies(database: Database) -> None:
    judging = Judging(database, qualification_share=1.0)
    assert judging.next(1).status == "not-qualified"
    judging.add(*gold_rows(2, "training"))
    judging.judge(1, grade=0)
    judging.close(documents=["training1"])
    assert judging.next(1).status == "judging", "the closed training pair is not needed"


def test_without_a_qualification_test_everybody_judges(database: Database) -> None:
    judging = Judging(database, qualification_share=1.0)
    judging.update(qualification_share=None)
    assert judging.next(1).status == "judging"
