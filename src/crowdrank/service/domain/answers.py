"""Answers: recording, changing and undoing them.

Every answer is an event, which is never changed. The table `answer` has the latest answer of an assessor to each pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, Row, bindparam, delete, insert, select, update

from crowdrank.errors import shown
from crowdrank.service.domain.answer_fields import Answer, check_grade, check_probabilities, check_swapped_grade
from crowdrank.service.domain.leases import (
    JudgingMember,
    Lease,
    get_leases,
    insert_leases,
    lock_member,
    pair_price,
    require_judging,
)
from crowdrank.service.domain.pairs import find_pairs
from crowdrank.service.domain.projects import MAX_ID, Project, check_text
from crowdrank.service.domain.qualification import decide_qualification
from crowdrank.service.domain.quotas import LabelSlot, add_spending, change_taken, lock_spending
from crowdrank.service.service_errors import Conflict, Invalid, NotFound, ServiceError
from crowdrank.service.store import schema
from crowdrank.service.store.database import StaleReadError

MAX_ANSWERS = 1000
"""Maximum number of answers per request."""


@dataclass(frozen=True)
class Feedback:
    """Correct grade and explanation, shown after the answer to a training pair."""

    is_correct: bool
    grade: str
    explanation: str | None


@dataclass(frozen=True)
class Receipt:
    """What was stored for an answer; the same for a repeated request.

    Attributes:
        grade: name of the grade.
        is_late: the lease had expired, or was returned.
        is_counted: the answer counts towards the quota of the pair, or the pair has no quota (gold and training).
        feedback: for training pairs.

    """

    client_id: str
    pair_id: int
    kind: str
    grade: str | None
    generation: int
    is_late: bool
    is_counted: bool
    received: int
    feedback: Feedback | None = None


@dataclass(frozen=True)
class WithdrawnAnswer:
    """An answer that was withdrawn.

    Attributes:
        pair_id: the pair.
        lease: a new lease of the pair, to answer it again; None if others have all labels that it needs.

    """

    pair_id: int
    lease: Lease | None


@dataclass(frozen=True)
class _LeaseRow:
    """Columns of a lease that are needed to answer its pair."""

    id: int
    token: str
    pair_id: int
    generation: int
    expires: int
    ended: int | None
    end_kind: str | None
    is_swapped: bool


_EVENT, _ANSWER, _LEASE, _QUOTA, _PAIR = schema.event, schema.answer, schema.lease, schema.quota, schema.pair
_ASSESSOR_ID: BindParameter[int] = bindparam("me")
_PROJECT_ID: BindParameter[int] = bindparam("in_project")
_PAIR_IDS: BindParameter[Any] = bindparam("pairs", expanding=True)
_HAS_CLIENT_ID = (_EVENT.c.assessor_id == _ASSESSOR_ID) & _EVENT.c.client_id.in_(
    bindparam("client_ids", expanding=True)
)
_SELECT_STORED_EVENTS = select(_EVENT).where(_HAS_CLIENT_ID)
_SELECT_LEASES = select(_LEASE).where(_LEASE.c.assessor_id == _ASSESSOR_ID).order_by(_LEASE.c.id).with_for_update()
_SELECT_LEASES_BY_TOKEN = _SELECT_LEASES.where(_LEASE.c.token.in_(bindparam("tokens", expanding=True)))
_SELECT_LIVE_LEASES = _SELECT_LEASES.where(_LEASE.c.pair_id.in_(_PAIR_IDS), _LEASE.c.ended.is_(None))
_SELECT_QUOTAS = (
    select(_QUOTA)
    .where(_QUOTA.c.pair_id.in_(_PAIR_IDS), _QUOTA.c.kind == bindparam("of_kind"))
    .order_by(_QUOTA.c.pair_id)
    .with_for_update()
)
_SELECT_ALL_STATES = (
    select(
        *(_PAIR.c[name] for name in ("id", "kind", "generation", "gold_grade", "explanation")),
        _ANSWER.c.generation.label("answer_generation"),
        _ANSWER.c.kind.label("answer_kind"),
        _ANSWER.c.is_counted,
    )
    .select_from(_PAIR.outerjoin(_ANSWER, (_ANSWER.c.pair_id == _PAIR.c.id) & (_ANSWER.c.assessor_id == _ASSESSOR_ID)))
    .where(_PAIR.c.project_id == _PROJECT_ID)
)
_SELECT_STATES = _SELECT_ALL_STATES.where(_PAIR.c.id.in_(_PAIR_IDS))
_SELECT_LATEST_PAIR_ID = (
    select(_ANSWER.c.pair_id)
    .join_from(_ANSWER, _PAIR)
    .where(_ANSWER.c.assessor_id == _ASSESSOR_ID, _ANSWER.c.kind != "later", _PAIR.c.project_id == _PROJECT_ID)
    .order_by(_ANSWER.c.event_id.desc())
    .limit(1)
)
_INSERT_EVENTS = insert(_EVENT).returning(_EVENT.c.client_id, _EVENT.c.id)
_IS_ANSWER_OF_ASSESSOR = (_ANSWER.c.pair_id == bindparam("of_pair")) & (_ANSWER.c.assessor_id == _ASSESSOR_ID)
_UPDATE_ANSWER = update(_ANSWER).where(_IS_ANSWER_OF_ASSESSOR)
_END_LEASES = update(_LEASE).where(_LEASE.c.id == bindparam("of_lease"), _LEASE.c.ended.is_(None))
_SELECT_LEASED_PAIRS = (
    _SELECT_ALL_STATES.add_columns(
        *(_LEASE.c[name].label(f"lease_{name}") for name in _LeaseRow.__dataclass_fields__),
        select(_EVENT.c.id).where(_HAS_CLIENT_ID).exists().label("is_repeated"),
    )
    .join(_LEASE, _LEASE.c.pair_id == _PAIR.c.id)
    .where(_LEASE.c.assessor_id == _ASSESSOR_ID, _LEASE.c.token.in_(bindparam("tokens", expanding=True)))
)
"""Select leased pairs, the answers of the assessor to them, and whether a client id is stored already."""


@dataclass
class _LatestAnswer:
    """Latest answer of the assessor to a pair."""

    generation: int
    kind: str
    is_counted: bool

    def answers(self, generation: int) -> bool:
        """Return whether the answer is a grade or 'cannot judge' in a generation of the pair."""
        return self.generation == generation and self.kind != "later"


@dataclass
class _PairState:
    """State of a pair for one assessor, as it changes from answer to answer of a request."""

    pair: Row[*tuple[Any, ...]]
    answer: _LatestAnswer | None
    live: _LeaseRow | None
    n_free: int
    is_new: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_new = self.answer is None


def _lease_row(row: Row[*tuple[Any, ...]], prefix: str = "") -> _LeaseRow:
    return _LeaseRow(*(row._mapping[prefix + name] for name in _LeaseRow.__dataclass_fields__))


def _latest_answer(row: Row[*tuple[Any, ...]]) -> _LatestAnswer | None:
    """Return the latest answer of the assessor to a pair, from a row of its state."""
    return (
        None if row.answer_generation is None else _LatestAnswer(row.answer_generation, row.answer_kind, row.is_counted)
    )


def record_answers(
    connection: Connection, project: Project, assessor_id: int, answers: Sequence[Answer], now: int
) -> list[Receipt]:
    """Record answers of an assessor, and return their receipts in the same order.

    An answer under a live lease counts. One under a lease that has ended, or without a lease, counts if the pair has a
    free place; otherwise it is kept and does not count. A second answer to a pair replaces the first. An answer with
    a client id that is stored changes nothing.

    Args:
        connection: connection in a write transaction.
        project: the project.
        assessor_id: the assessor, who must be a member.
        answers: the answers, in order.
        now: time in milliseconds.

    Raises:
        NotFound: the assessor is not a member, or a lease or pair does not exist.
        Conflict: a client id is stored with another answer; a training pair has been answered; without a lease, the
            project is closed.
        Forbidden: an answer without a lease, and the assessor is paused or not qualified.
        Invalid: an answer is invalid.
        StaleReadError: another transaction has ended a lease; the transaction must run again.

    An error because of one answer has its `client_id`.

    """
    if len(answers) > MAX_ANSWERS:
        problem = f"has {len(answers)} answers; the maximum is {MAX_ANSWERS}"
        raise Invalid(problem, parameter="answers", fix="send them in several requests")
    member = lock_member(connection, project, assessor_id)
    return _AnswerRecorder(connection, project, member, now).record(answers)


@contextmanager
def _add_client_id_to_errors(answer: Answer) -> Iterator[None]:
    """Set the client id of an answer in the errors that are raised in the block."""
    try:
        yield
    except ServiceError as error:
        error.client_id = answer.client_id
        raise


class _ShownPair(NamedTuple):
    """Pair of an answer, and whether the assessor saw the other document of a comparison on the left."""

    pair_id: int
    is_swapped: bool = False


def _pair_key(answer: Answer) -> tuple[str, ...]:
    """Return the ids of the query and the documents of an answer, as :func:`find_pairs` takes them."""
    documents = [answer.document or ""] if answer.other is None else sorted([answer.document or "", answer.other])
    return answer.query or "", *documents


class _AnswerRecorder:
    """Recorder of the answers of one request: reads the pairs once, applies each answer, and writes once."""

    def __init__(self, connection: Connection, project: Project, member: JudgingMember, now: int) -> None:
        self.connection = connection
        self.project = project
        self.member = member
        self.now = now
        self.values = {"me": member.assessor_id, "in_project": project.id, "of_kind": member.kind}
        self.leases: dict[str, _LeaseRow] = {}
        self.states: dict[int, _PairState] = {}
        self.events: list[dict[str, Any]] = []
        self.ended: dict[int, str] = {}  # how leases ended, by lease id
        self.changes: Counter[LabelSlot] = Counter()
        self.latest: dict[int, str] = {}  # client ids of answers to store, by pair id
        self.n_without_lease = 0  # answers whose price no live lease has reserved

    def record(self, answers: Sequence[Answer]) -> list[Receipt]:
        for number, answer in enumerate(answers, start=1):
            for column in ("client_id", "lease", "query", "document", "other", "comment"):
                with _add_client_id_to_errors(answer):
                    check_text(getattr(answer, column), place=f"answer {number}", column=column)
        stored = {} if self._load_leased_pairs(answers) else self._load_stored(answers)
        shown_pairs = self._find_pairs(answers)
        if not self.states:
            self._load_states(answers, [one.pair_id for one in shown_pairs])
        receipts = []
        for number, (answer, one) in enumerate(zip(answers, shown_pairs, strict=True), start=1):
            with _add_client_id_to_errors(answer):
                known = self._make_event(answer, one, stored.get(answer.client_id), f"answer {number}")
            stored[answer.client_id] = known
            receipts.append(self._make_receipt(known))
        self._write()
        return receipts

    def _load_leased_pairs(self, answers: Sequence[Answer]) -> bool:
        """Read leases and pairs in one statement if all answers are new and under live leases; otherwise return False.

        Rows are not locked: a lease that another request ends meanwhile is found when the answers are written.
        """
        tokens = {answer.lease for answer in answers if answer.lease is not None and answer.kind != "later"}
        if not answers or len(tokens) < len(answers):
            return False
        sent = {"tokens": list(tokens), "client_ids": [answer.client_id for answer in answers]}
        rows = self.connection.execute(_SELECT_LEASED_PAIRS, {**self.values, **sent}).all()
        is_held = all(
            row.lease_ended is None and row.lease_generation == row.generation and not row.is_repeated for row in rows
        )
        if not is_held or len(rows) < len(tokens):
            return False
        for row in rows:
            lease = _lease_row(row, "lease_")
            self.leases[lease.token] = lease
            self.states[row.id] = _PairState(row, _latest_answer(row), lease, 0)
        return True

    def _load_stored(self, answers: Sequence[Answer]) -> dict[str, Mapping[str, Any]]:
        """Lock spending and leases, and return the events that are stored under the client ids of the answers."""
        lock_spending(self.connection, self.project)
        client_ids = [answer.client_id for answer in answers]
        found = self.connection.execute(_SELECT_STORED_EVENTS, {**self.values, "client_ids": client_ids})
        stored: dict[str, Mapping[str, Any]] = {row.client_id: dict(row._mapping) for row in found}
        if any(answer.lease is None and answer.client_id not in stored for answer in answers):
            require_judging(self.project, self.member)
        tokens = [answer.lease for answer in answers if answer.lease is not None]
        if tokens:
            rows = self.connection.execute(_SELECT_LEASES_BY_TOKEN, {**self.values, "tokens": tokens})
            self.leases = {row.token: _lease_row(row) for row in rows}
        return stored

    def _make_event(
        self, answer: Answer, pair: _ShownPair, known: Mapping[str, Any] | None, location: str
    ) -> Mapping[str, Any]:
        """Return the event of an answer: the stored one of the same client id, or a new one."""
        grade = check_grade(answer, self.project, location)
        swapped_grade = check_swapped_grade(answer, self.project, self.member.kind, location)
        probabilities = check_probabilities(answer, self.project, location)
        if not pair.is_swapped:
            swapped_grade = self._swap_sides(swapped_grade)
        else:
            grade = self._swap_sides(grade)
            probabilities = None if probabilities is None else probabilities[::-1]
        content = {
            "pair_id": pair.pair_id,
            "kind": answer.kind,
            "grade": grade,
            "is_swapped": pair.is_swapped,
            "swapped_grade": swapped_grade,
            "comment": answer.comment,
            "spans": None if answer.spans is None else [dict(span) for span in answer.spans],
            "probabilities": probabilities,
        }
        if known is None:
            return self._make_new_event(answer, content, location)
        if any(known[name] != value for name, value in content.items()):
            raise _client_id_error(answer.client_id, location)
        return known

    def _swap_sides(self, grade: int | None) -> int | None:
        """Return the position of a preference on the scale with the sides exchanged."""
        return None if grade is None else len(self.project.grades) - 1 - grade

    def _find_pairs(self, answers: Sequence[Answer]) -> list[_ShownPair]:
        """Return the pair of each answer; raise NotFound for an unknown lease or pair."""
        unnamed = [answer for answer in answers if answer.lease is None and answer.pair_id is None]
        keys = [_pair_key(answer) for answer in unnamed]
        by_keys = find_pairs(self.connection, self.project, keys) if keys else {}
        found = []
        for number, answer in enumerate(answers, start=1):
            with _add_client_id_to_errors(answer):
                found.append(self._find_pair(answer, by_keys, f"answer {number}"))
        return found

    def _find_pair(self, answer: Answer, by_keys: Mapping[tuple[str, ...], int], location: str) -> _ShownPair:
        if answer.lease is not None:
            lease = self.leases.get(answer.lease)
            if lease is None:
                problem = "the lease is unknown or belongs to another account"
                raise NotFound(problem, place=location, kind="no-lease", fix="request pairs again")
            if answer.pair_id not in (None, lease.pair_id):
                problem = f"the lease is on pair {lease.pair_id}, not on pair {answer.pair_id}"
                raise Invalid(problem, place=location, kind="other-pair", fix="send only the lease")
            return _ShownPair(int(lease.pair_id), bool(lease.is_swapped))
        if answer.pair_id is not None:
            return _ShownPair(min(answer.pair_id, MAX_ID))
        if answer.query is None or answer.document is None:
            fix = "send lease, pair_id, or query and document"
            raise Invalid("the answer names no pair", place=location, kind="no-pair", fix=fix)
        pair_id = by_keys.get(_pair_key(answer))
        if pair_id is None:
            named = f"document {shown(answer.document)}"
            if answer.other is not None:
                named = f"documents {shown(answer.document)} and {shown(answer.other)}"
            problem = f"there is no pair of query {shown(answer.query)} and {named}"
            raise NotFound(problem, place=location, kind="no-pair")
        return _ShownPair(pair_id, answer.other is not None and answer.other < answer.document)

    def _load_states(self, answers: Sequence[Answer], pair_ids: Sequence[int]) -> None:
        """Lock the leases and then the quotas of the pairs, and read the state of the pairs."""
        pairs = set(pair_ids)
        live = {lease.pair_id: lease for lease in self.leases.values() if lease.ended is None}
        unknown = pairs - live.keys()
        if unknown:
            rows = self.connection.execute(_SELECT_LIVE_LEASES, {**self.values, "pairs": sorted(unknown)})
            live |= {row.pair_id: _lease_row(row) for row in rows}
        later = {pair_id for answer, pair_id in zip(answers, pair_ids, strict=True) if answer.kind == "later"}
        # A live lease has a place: its quota matters only if the lease is returned.
        changing = (pairs - live.keys()) | later
        free: dict[int, int] = {}
        if changing:
            rows = self.connection.execute(_SELECT_QUOTAS, {**self.values, "pairs": sorted(changing)})
            free = {row.pair_id: row.k_max - row.taken for row in rows}
        for row in self.connection.execute(_SELECT_STATES, {**self.values, "pairs": sorted(pairs)}):
            self.states[row.id] = _PairState(row, _latest_answer(row), live.get(row.id), free.get(row.id, 0))
        for number, (answer, pair_id) in enumerate(zip(answers, pair_ids, strict=True), start=1):
            if pair_id not in self.states:
                with _add_client_id_to_errors(answer):
                    raise NotFound(f"there is no pair {pair_id}", place=f"answer {number}", kind="no-pair")

    def _make_new_event(self, answer: Answer, content: Mapping[str, Any], location: str) -> Mapping[str, Any]:
        """Apply a new answer to the state of its pair; return the row of the table `event`."""
        state = self.states[content["pair_id"]]
        lease = None if answer.lease is None else self.leases[answer.lease]
        pair_generation = state.pair.generation
        generation = pair_generation if lease is None else lease.generation
        is_late = lease is not None and self._is_late(lease)
        if state.pair.kind == "training" and state.answer is not None and state.answer.answers(pair_generation):
            problem = "the training pair is answered; its grade has been shown"
            raise Conflict(problem, place=location, kind="training-answered")
        self.n_without_lease += state.live is None and answer.kind != "later"
        is_counted = self._update_pair_state(state, answer, generation)
        event = {
            **content,
            "project_id": self.project.id,
            "assessor_id": self.member.assessor_id,
            "lease_id": None if lease is None else lease.id,
            "client_id": answer.client_id,
            "is_late": is_late,
            "is_counted": is_counted,
            "active_ms": answer.active_ms,
            "away_ms": answer.away_ms,
            "guidelines_version": self.project.guidelines_version,
            "generation": generation,
            "received": self.now,
        }
        self.events.append(event)
        return event

    def _is_late(self, lease: _LeaseRow) -> bool:
        end = self.ended.get(lease.id, lease.end_kind)
        return end in ("expired", "returned") or (end is None and lease.expires <= self.now)

    def _update_pair_state(self, state: _PairState, answer: Answer, generation: int) -> bool:
        """Change lease, quota and latest answer of a pair; return whether the answer counts."""
        current = state.answer
        if generation < state.pair.generation:  # reopened since the lease
            if current is not None and (current.generation > generation or answer.kind == "later"):
                return False
            is_counted = current is not None and current.answers(generation) and current.is_counted
        elif answer.kind == "later":
            if state.live is not None:
                self._end_lease(state, "returned")
                self._change_taken(state, -1)
            if current is not None and current.answers(generation):
                return False
            is_counted = False
        elif current is not None and current.answers(generation):
            is_counted = current.is_counted
        elif state.live is not None:
            self._end_lease(state, "answered")
            is_counted = True
        else:
            is_counted = state.pair.kind != "real" or state.n_free > 0
            if is_counted:
                self._change_taken(state, 1)
        state.answer = _LatestAnswer(generation, answer.kind, is_counted)
        self.latest[state.pair.id] = answer.client_id
        return is_counted

    def _end_lease(self, state: _PairState, end: str) -> None:
        assert state.live is not None
        self.ended[state.live.id] = end if state.live.expires > self.now else "expired"
        state.live = None

    def _change_taken(self, state: _PairState, change: int) -> None:
        state.n_free -= change
        self.changes[LabelSlot(state.pair.id, self.member.kind, state.pair.generation)] += change

    def _make_receipt(self, event: Mapping[str, Any]) -> Receipt:
        pair, feedback = self.states[event["pair_id"]].pair, None
        if pair.kind == "training" and event["kind"] in ("grade", "cannot-judge"):
            is_correct = event["grade"] == pair.gold_grade and event["swapped_grade"] in (None, pair.gold_grade)
            feedback = Feedback(is_correct, self._shown_grade(pair.gold_grade, event) or "", pair.explanation)
        stored = ("client_id", "pair_id", "kind", "generation", "is_late", "is_counted", "received")
        grade = self._shown_grade(event["grade"], event)
        return Receipt(**{name: event[name] for name in stored}, grade=grade, feedback=feedback)

    def _shown_grade(self, grade: int | None, event: Mapping[str, Any]) -> str | None:
        """Return the name of a grade; of a preference, with the sides as the assessor saw them."""
        code = self._swap_sides(grade) if event["is_swapped"] else grade
        return None if code is None else self.project.grades[code]

    def _write(self) -> None:
        if not self.events:
            return
        execute = self.connection.execute
        if self.ended:
            ended = sorted(self.ended.items())
            ends = [{"of_lease": lease, "ended": self.now, "end_kind": end} for lease, end in ended]
            if execute(_END_LEASES, ends).rowcount < len(ends):
                raise StaleReadError
        change_taken(self.connection, self.changes)
        add_spending(self.connection, self.project, pair_price(self.project, self.member) * self.n_without_lease)
        event_ids: dict[str, int] = {row.client_id: row.id for row in execute(_INSERT_EVENTS, self.events)}
        by_client_id = {event["client_id"]: event for event in self.events}
        added, changed = [], []
        for pair_id, client_id in self.latest.items():
            event, state = by_client_id[client_id], self.states[pair_id]
            row = {name: event[name] for name in ("generation", "kind", "grade", "swapped_grade", "is_counted")}
            row["event_id"] = event_ids[client_id]
            if state.is_new:
                added.append({"pair_id": pair_id, "assessor_id": self.member.assessor_id, **row})
            else:
                changed.append({"of_pair": pair_id, "me": self.member.assessor_id, **row})
        if added:
            execute(insert(_ANSWER), added)
        if changed:
            execute(_UPDATE_ANSWER, changed)
        is_pending = self.member.qualification == "pending" and self.project.qualification_share is not None
        if is_pending and any(self.states[pair_id].pair.kind == "training" for pair_id in self.latest):
            decide_qualification(self.connection, self.project, self.member.assessor_id)


def undo(
    connection: Connection,
    project: Project,
    assessor_id: int,
    client_id: str,
    now: int,
    pair_id: int | None = None,
) -> WithdrawnAnswer:
    """Withdraw an answer of an assessor, and lease the pair again to the assessor if the quota allows it.

    Args:
        connection: connection in a write transaction.
        project: the project.
        assessor_id: the assessor, who must be a member.
        client_id: made by the client, so that a repeated request is recognized.
        now: time in milliseconds.
        pair_id: the pair; None for the latest answer.

    Raises:
        NotFound: there is no answer to undo.
        Conflict: the client id is stored with an answer; the pair is a training pair; the project is closed.
        Forbidden: the assessor is paused or not qualified.

    """
    check_text(client_id, column="client_id")
    member = lock_member(connection, project, assessor_id)
    values: dict[str, Any] = {"me": assessor_id, "in_project": project.id, "of_kind": member.kind}
    stored = connection.execute(_SELECT_STORED_EVENTS, {**values, "client_ids": [client_id]}).first()
    if stored is not None:
        if (stored.kind, stored.project_id) != ("withdrawn", project.id) or pair_id not in (None, stored.pair_id):
            raise _client_id_error(client_id)
        live = connection.execute(_SELECT_LIVE_LEASES, {**values, "pairs": [stored.pair_id]}).scalars("token").all()
        leases = get_leases(connection, project, assessor_id, live, now) if live else []
        return WithdrawnAnswer(stored.pair_id, leases[0] if leases else None)
    require_judging(project, member)
    add_spending(connection, project, pair_price(project, member) - member.price)  # a new lease allows both orders
    pair_id = connection.execute(_SELECT_LATEST_PAIR_ID, values).scalar() if pair_id is None else min(pair_id, MAX_ID)
    quota = connection.execute(_SELECT_QUOTAS, {**values, "pairs": [pair_id]}).first()
    state = connection.execute(_SELECT_STATES, {**values, "pairs": [pair_id]}).first()
    if pair_id is None or state is None or state.answer_kind in (None, "later"):
        raise NotFound("there is no answer to undo", kind="nothing-to-undo")
    if state.kind == "training":
        raise Conflict("a training pair cannot be undone; its grade has been shown", kind="training-answered")
    connection.execute(delete(_ANSWER).where(_IS_ANSWER_OF_ASSESSOR), {"of_pair": pair_id, "me": assessor_id})
    event = {
        "project_id": project.id,
        "pair_id": pair_id,
        "assessor_id": assessor_id,
        "client_id": client_id,
        "kind": "withdrawn",
        "guidelines_version": project.guidelines_version,
        "generation": state.answer_generation,
        "received": now,
    }
    connection.execute(insert(_EVENT), event)
    if not _can_lease_again(state, quota):
        return WithdrawnAnswer(pair_id, None)
    if state.kind == "real" and not state.is_counted:
        change_taken(connection, {LabelSlot(pair_id, member.kind, state.generation): 1})
    leases = insert_leases(connection, project, assessor_id, [(pair_id, state.generation)], now, is_undo=True)
    return WithdrawnAnswer(pair_id, leases[0])


def _can_lease_again(state: Row[*tuple[Any, ...]], quota: Row[*tuple[Any, ...]] | None) -> bool:
    """Return whether the pair can be leased again to the assessor whose answer was withdrawn."""
    if state.answer_generation < state.generation:
        return False
    return state.kind != "real" or state.is_counted or (quota is not None and quota.taken < quota.k_max)


def _client_id_error(client_id: str, location: str = "") -> Conflict:
    problem = f"the client id {shown(client_id)} is stored with another answer"
    return Conflict(problem, place=location, kind="client-id-taken", fix="use a new client_id for each answer")
