"""Test assignment and answers against a plain model, over random sequences of requests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import event

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.answers import Receipt
from crowdrank.service.domain.pairs import ComparisonContent, PairRow
from crowdrank.service.model.label_plan import PlanRow, write_plan
from crowdrank.service.service_errors import Conflict, NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .conftest import ManualClock
from .judging import Judging
from .preference_project import Comparing, comparison

N_EXAMPLES = int(os.environ.get("CROWDRANK_EXAMPLES", "6"))
"""Number of sequences; set CROWDRANK_EXAMPLES for a longer test."""
N_STEPS = 60

KINDS = ("human", "human", "human", "llm", "llm", "expert")
QUOTAS = {"human": (2, 3), "llm": (1, 2), "expert": (1, 1)}
PROJECT_NUMBERS = count()


class Limits(NamedTuple):
    """Labels of a pair for one kind of assessor: wanted, accepted at most, and whether more than wanted are of use."""

    target: int
    k_max: int
    is_unsettled: bool = True

    @property
    def offered(self) -> int:
        return self.k_max if self.is_unsettled else self.target


@dataclass
class ModelPair:
    """A pair; `limits` are by kind of assessor, empty for gold pairs."""

    limits: dict[str, Limits]
    generation: int = 1
    is_open: bool = True


@dataclass
class ModelLease:
    token: str
    assessor: int
    pair: int
    generation: int
    expires: int
    is_undo: bool = False
    end: str | None = None


@dataclass
class ModelAnswer:
    generation: int
    kind: str
    is_counted: bool


@dataclass
class Model:
    """What the service should do, in lists and dictionaries."""

    kinds: dict[int, str]
    pairs: dict[int, ModelPair] = field(default_factory=dict)
    leases: dict[str, ModelLease] = field(default_factory=dict)
    answers: dict[tuple[int, int], ModelAnswer] = field(default_factory=dict)
    answer_order: list[tuple[int, int]] = field(default_factory=list)
    n_events: int = 0

    def taken(self, pair: int, kind: str) -> int:
        generation = self.pairs[pair].generation
        leases = [
            one for one in self.leases.values() if (one.pair, one.generation, one.end) == (pair, generation, None)
        ]
        answers = [
            assessor
            for (assessor, answered), one in self.answers.items()
            if answered == pair and one.generation == generation and one.is_counted
        ]
        return sum(self.kinds[assessor] == kind for assessor in [*answers, *(lease.assessor for lease in leases)])

    def answered(self, assessor: int, pair: int, kinds: tuple[str, ...] = ("grade", "cannot-judge")) -> bool:
        answer = self.answers.get((assessor, pair))
        return answer is not None and answer.generation == self.pairs[pair].generation and answer.kind in kinds

    def unended(self, assessor: int, pair: int) -> ModelLease | None:
        found = [one for one in self.leases.values() if (one.assessor, one.pair, one.end) == (assessor, pair, None)]
        assert len(found) <= 1
        return found[0] if found else None

    def live(self, assessor: int, now: int) -> list[ModelLease]:
        found = [one for one in self.leases.values() if one.assessor == assessor and one.end is None]
        return sorted((one for one in found if one.expires > now), key=lambda one: not one.is_undo)

    def wanted(self, assessor: int) -> set[int]:
        """Return the real pairs that the assessor could get, also those put off."""
        kind = self.kinds[assessor]
        return {
            pair
            for pair, state in self.pairs.items()
            if kind in state.limits
            and state.is_open
            and self.taken(pair, kind) < state.limits[kind].offered
            and not self.answered(assessor, pair)
            and self.unended(assessor, pair) is None
        }

    def put_off(self, assessor: int) -> set[int]:
        return {pair for pair in self.pairs if self.answered(assessor, pair, ("later",))}

    def end_expired(self, now: int) -> None:
        for lease in self.leases.values():
            if lease.end is None and lease.expires <= now:
                lease.end = "expired"

    def has_room(self, assessor: int, pair: int) -> bool:
        kind, limits = self.kinds[assessor], self.pairs[pair].limits
        return not limits or (kind in limits and self.taken(pair, kind) < limits[kind].k_max)

    def answer(self, assessor: int, pair: int, kind: str, lease: ModelLease | None, now: int) -> tuple[int, bool, bool]:
        """Apply a new answer; return the expected generation, is_late and is_counted."""
        self.n_events += 1
        state, old = self.pairs[pair], self.answers.get((assessor, pair))
        is_late = lease is not None and (
            lease.end in ("expired", "returned") or (lease.end is None and lease.expires <= now)
        )
        generation = state.generation if lease is None else lease.generation
        if generation < state.generation:
            if kind == "later":
                if old is None:
                    self._store(assessor, pair, ModelAnswer(generation, kind, False))
                return generation, is_late, False
            if old is not None and old.generation > generation:
                return generation, is_late, False
            counted = old is not None and old.generation == generation and old.kind != "later" and old.is_counted
            self._store(assessor, pair, ModelAnswer(generation, kind, counted))
            return generation, is_late, counted
        held = self.unended(assessor, pair)
        if held is not None:
            end = "returned" if kind == "later" else "answered"
            held.end = end if held.expires > now else "expired"
        if kind == "later":
            if not self.answered(assessor, pair):
                self._store(assessor, pair, ModelAnswer(generation, kind, False))
            return generation, is_late, False
        if self.answered(assessor, pair):
            assert old is not None
            counted = old.is_counted
        else:
            counted = held is not None or self.has_room(assessor, pair)
        self._store(assessor, pair, ModelAnswer(generation, kind, counted))
        return generation, is_late, counted

    def _store(self, assessor: int, pair: int, answer: ModelAnswer) -> None:
        self.answers[assessor, pair] = answer
        if (assessor, pair) in self.answer_order:
            self.answer_order.remove((assessor, pair))
        self.answer_order.append((assessor, pair))

    def latest(self, assessor: int) -> int | None:
        mine = [key for key in self.answer_order if key[0] == assessor and self.answers[key].kind != "later"]
        return mine[-1][1] if mine else None

    def remove(self, assessor: int, pair: int) -> ModelAnswer:
        self.n_events += 1
        self.answer_order.remove((assessor, pair))
        return self.answers.pop((assessor, pair))


class Machine(RuleBasedStateMachine):
    """Sends random requests to the service and to the model."""

    def __init__(self, database: Database, clock: ManualClock, task: str) -> None:
        super().__init__()
        self.clock = clock
        name, settings = f"project{next(PROJECT_NUMBERS)}", {"quotas": QUOTAS, "honeypot_share": 0.2}
        if task == "preferences":
            self.judging: Judging = Comparing(database, 0, KINDS, name=name, policy="preferences", **settings)
            self.judging.add(*(comparison(f"q{number // 3}", "d", f"e{number}") for number in range(5)))
            self.judging.add(comparison("g", "g", "h", kind="gold", gold_grade="tie"))
        else:
            self.judging = Judging(database, 5, KINDS, name=name, policy="entropy", **settings)
            self.judging.add(PairRow("g", "g", kind="gold", gold_grade=1))
        self.grades = self.judging.project.grades
        self.assessors = list(self.judging.assessors)
        self.model = Model(dict(self.judging.assessors))
        for row in self.judging.rows(schema.pair, project_id=self.judging.project.id):
            limits = {kind: Limits(*quota) for kind, quota in QUOTAS.items()} if row["kind"] == "real" else {}
            self.model.pairs[row["id"]] = ModelPair(limits)
        self.sent: list[tuple[int, Answer, Receipt]] = []
        self.events: list[dict[str, Any]] = []

    assessor_numbers = st.integers(0, len(KINDS) - 1)
    pair_numbers = st.integers(0, 5)
    choices = st.integers(0, 1000)
    kinds = st.sampled_from(["grade", "grade", "grade", "cannot-judge", "later"])

    def pair(self, number: int) -> int:
        return sorted(self.model.pairs)[number]

    @rule(number=assessor_numbers, wanted=st.integers(1, 4))
    def next(self, number: int, wanted: int) -> None:
        assessor, now = self.assessors[number], self.clock()
        found = self.judging.next(assessor, wanted)
        self.model.end_expired(now)
        held = self.model.live(assessor, now)[:wanted]
        assert [lease.token for lease in found.leases[: len(held)]] == [lease.token for lease in held]
        for lease in found.leases[len(held) :]:
            pair = lease.content.pair_id
            if self.model.pairs[pair].limits:
                assert pair in self.model.wanted(assessor)
                if pair in self.model.put_off(assessor):
                    assert self.model.wanted(assessor) <= self.model.put_off(assessor) | {pair}
            else:
                assert not self.model.answered(assessor, pair, ("grade", "cannot-judge", "later"))
                assert self.model.unended(assessor, pair) is None
            assert lease.expires == now + 900_000
            assert isinstance(lease.content, ComparisonContent) == self.judging.project.asks_preferences
            self.model.leases[lease.token] = ModelLease(
                lease.token, assessor, pair, self.model.pairs[pair].generation, lease.expires
            )
        if len(found.leases) < wanted:
            assert self.model.wanted(assessor) == set(), "no pair is lost"
        assert found.status == ("judging" if found.leases else "done")

    def send(self, assessor: int, pair: int, kind: str, lease: ModelLease | None) -> None:
        answer = Answer(
            f"sent{len(self.sent)}",
            kind,  # type: ignore[arg-type]
            grade=self.grades[len(self.sent) % len(self.grades)] if kind == "grade" else None,
            lease=None if lease is None else lease.token,
            pair_id=pair if lease is None else None,
        )
        expected = self.model.answer(assessor, pair, kind, lease, self.clock())
        (receipt,) = self.judging.send(assessor, answer)
        assert (receipt.generation, receipt.is_late, receipt.is_counted) == expected
        assert (receipt.pair_id, receipt.grade) == (pair, answer.grade)
        self.sent.append((assessor, answer, receipt))

    @rule(choice=choices, kind=kinds, is_ended=st.booleans())
    def answer_with_a_lease(self, choice: int, kind: str, is_ended: bool) -> None:
        leases = [one for one in self.model.leases.values() if is_ended or one.end is None]
        if leases:
            lease = leases[choice % len(leases)]
            self.send(lease.assessor, lease.pair, kind, lease)

    @rule(number=assessor_numbers, pair_number=pair_numbers, kind=kinds)
    def answer_without_a_lease(self, number: int, pair_number: int, kind: str) -> None:
        self.send(self.assessors[number], self.pair(pair_number), kind, None)

    @rule(choice=choices)
    def repeat_an_answer(self, choice: int) -> None:
        if not self.sent:
            return
        assessor, answer, receipt = self.sent[choice % len(self.sent)]
        assert self.judging.send(assessor, answer) == [receipt]
        changed = Answer(answer.client_id, answer.kind, answer.grade, answer.lease, answer.pair_id, comment="changed")
        with pytest.raises(Conflict):
            self.judging.send(assessor, changed)

    @rule(number=assessor_numbers, pair_number=st.none() | pair_numbers)
    def undo(self, number: int, pair_number: int | None) -> None:
        assessor, model = self.assessors[number], self.model
        named = None if pair_number is None else self.pair(pair_number)
        pair = model.latest(assessor) if named is None else named
        old = None if pair is None else model.answers.get((assessor, pair))
        if pair is None or old is None or old.kind == "later":
            with pytest.raises(NotFound):
                self.judging.undo(assessor, named)
            return
        undone = self.judging.undo(assessor, named)
        model.remove(assessor, pair)
        holds = old.generation == model.pairs[pair].generation and (old.is_counted or model.has_room(assessor, pair))
        assert (undone.pair_id, undone.lease is not None) == (pair, holds)
        if undone.lease is not None:
            token, expires = undone.lease.token, undone.lease.expires
            model.leases[token] = ModelLease(token, assessor, pair, old.generation, expires, is_undo=True)

    @rule(seconds=st.sampled_from([1, 450, 900]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(pair_number=pair_numbers, keep_answers=st.booleans())
    def reopen(self, pair_number: int, keep_answers: bool) -> None:
        pair = self.pair(pair_number)
        assert self.judging.reopen(pair_ids=[pair], keep_answers=keep_answers) == 1
        state = self.model.pairs[pair]
        state.is_open = True
        if not keep_answers:
            state.generation += 1
            state.limits = {kind: limits._replace(is_unsettled=True) for kind, limits in state.limits.items()}
            for lease in self.model.leases.values():
                if lease.pair == pair and lease.end is None:
                    lease.end = "expired"

    @rule(pair_number=pair_numbers)
    def close(self, pair_number: int) -> None:
        pair = self.pair(pair_number)
        assert self.judging.close(pair_ids=[pair]) == self.model.pairs[pair].is_open
        self.model.pairs[pair].is_open = False

    @rule(k_min=st.integers(0, 3), more=st.integers(0, 1))
    def change_quotas(self, k_min: int, more: int) -> None:
        quotas = {**QUOTAS, "human": (k_min, k_min + more)}
        current = self.judging.project.quotas["human"]
        self.judging.update(quotas=quotas)
        if quotas["human"] != current:
            for pair, state in self.model.pairs.items():
                if state.limits:
                    state.limits["human"] = Limits(k_min, max(k_min + more, self.model.taken(pair, "human")))

    @rule(pair_number=pair_numbers, kind=st.sampled_from(sorted(QUOTAS)), wanted=st.integers(0, 4), more=st.booleans())
    def plan(self, pair_number: int, kind: str, wanted: int, more: bool) -> None:
        """Write the plan of a fit, which has read the quota before it changed."""
        pair = self.pair(pair_number)
        state = self.model.pairs[pair]
        if not state.limits:
            return
        row = PlanRow(pair, kind, state.generation, 0, 9, wanted, float(wanted), more, "", "")
        outdated = row._replace(generation=state.generation - 1, target=0, is_unsettled=not more)
        self.judging.database.write(lambda connection: write_plan(connection, [row, outdated]))
        k_max = state.limits[kind].k_max
        state.limits[kind] = Limits(min(wanted, k_max), k_max, more)

    @invariant()
    def tables_and_model_agree(self) -> None:
        self.judging.check_invariants()
        project_id = self.judging.project.id
        for row in self.judging.rows(schema.quota, project_id=project_id):
            pair, kind = row["pair_id"], row["kind"]
            assert row["taken"] == self.model.taken(pair, kind)
            assert (row["target"], row["k_max"], row["is_unsettled"]) == self.model.pairs[pair].limits[kind]
        events = sorted(self.judging.rows(schema.event, project_id=project_id), key=lambda event: event["id"])
        assert events[: len(self.events)] == self.events, "events only grow"
        assert len(events) == self.model.n_events
        self.events = events

    def teardown(self) -> None:
        """Let everybody judge until nothing is left: then all pairs have the labels that they can get."""
        self.clock.advance(900)
        waiting = set(range(len(self.assessors)))
        while waiting:
            for number in sorted(waiting):
                self.next(number, 4)
                leases = self.model.live(self.assessors[number], self.clock())
                for lease in leases:
                    self.send(lease.assessor, lease.pair, "grade", lease)
                if not leases:
                    waiting.remove(number)
        self.tables_and_model_agree()
        for pair, state in self.model.pairs.items():
            for kind, limits in state.limits.items():
                judges = [assessor for assessor, of_kind in self.model.kinds.items() if of_kind == kind]
                if state.is_open and self.model.taken(pair, kind) < limits.offered:
                    assert all(self.model.answered(assessor, pair) for assessor in judges)


@pytest.mark.parametrize(("task", "n_examples"), [("grades", N_EXAMPLES), ("preferences", max(1, N_EXAMPLES // 4))])
def test_random_requests_keep_the_invariants(
    database: Database, clock: ManualClock, task: str, n_examples: int
) -> None:
    if database.is_sqlite:  # thousands of transactions, which need not survive a power failure
        event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        database.engine.dispose()
    options = settings(
        max_examples=n_examples,
        stateful_step_count=N_STEPS,
        derandomize="CROWDRANK_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(partial(Machine, database, clock, task), settings=options)  # type: ignore[arg-type]
