"""Choice of the pairs that an assessor gets next.

A place is one label that the quota of a pair allows; a lease takes it. "Put off" pairs are those that the assessor
answered with "later".
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from crowdrank.service.domain.leases import (
    IS_EXPIRED,
    SELECT_MEMBER,
    JudgingMember,
    Lease,
    Pair,
    Status,
    end_expired_leases,
    find_live_leases,
    insert_leases,
    member_status,
    pair_price,
    require_member,
)
from crowdrank.service.domain.projects import Project
from crowdrank.service.domain.qualification import decide_qualification
from crowdrank.service.domain.quotas import (
    add_spending,
    lock_spending,
    reserve_labels,
)
from crowdrank.service.service_errors import Invalid
from crowdrank.service.store import schema

N_BEST_PAIRS = 20
"""Number of best pairs of which a random one is handed out, so that assessors do not all get the same pair."""
N_BEST_TO_STAY = 50
"""Number of pairs of highest priority; an assessor stays at a query as long as it has a pair with such a priority."""
FLAGGED_HONEYPOT_SHARE = 0.3
"""Minimum share of honeypots for a flagged assessor, in projects with the flag action `honeypots`."""
MAX_LEASES = 100
"""Maximum number of leases per request."""

MAX_GOLD_CANDIDATES = 200
"""Number of unanswered gold pairs among which honeypots are drawn at random."""

Reason = Literal["no-pairs", "settled", "budget-spent", "others-asked", "kind-not-asked"]
"""Why an assessor is done: all labels wanted are given or held, all pairs are settled, the budget is spent, the project
asks only assessors whose answers carry more information, or none of this kind."""


@dataclass(frozen=True)
class NextPairs:
    """Leases of an assessor, what the assessor can do, why the assessor is done, and the number of pairs answered."""

    leases: tuple[Lease, ...]
    status: Status
    reason: Reason | None = None
    n_answers: int = 0


# Statements are built once; their parameters are `in_project`, `me` (assessor), `of_kind` (of the assessor), `now`.

_LEASE, _QUOTA, _ANSWER, _PAIR = schema.lease, schema.quota, schema.answer, schema.pair
_ASSESSOR_ID: BindParameter[int] = bindparam("me")
_ASSESSOR_KIND: BindParameter[str] = bindparam("of_kind")
_PROJECT_ID: BindParameter[int] = bindparam("in_project")
_NOW: BindParameter[int] = bindparam("now")
_IS_MEMBERSHIP = and_(schema.membership.c.project_id == _PROJECT_ID, schema.membership.c.assessor_id == _ASSESSOR_ID)
_N_ANSWERS = (
    select(func.count())
    .select_from(_ANSWER)
    .join(_PAIR)
    .where(_ANSWER.c.assessor_id == _ASSESSOR_ID, _ANSWER.c.kind != "later", _PAIR.c.project_id == _PROJECT_ID)
    .scalar_subquery()
)
_SELECT_MEMBER_WITH_COUNTS = SELECT_MEMBER.add_columns(
    _N_ANSWERS.label("n_answers"), select(_LEASE.c.id).where(IS_EXPIRED).exists().label("has_expired")
)


def _is_leased(pair_id: Any) -> Any:
    return (
        select(_LEASE.c.id)
        .where(_LEASE.c.assessor_id == _ASSESSOR_ID, _LEASE.c.pair_id == pair_id, _LEASE.c.ended.is_(None))
        .exists()
    )


def _is_answered(pair_id: Any, generation: Any) -> Any:
    """Return the condition that the assessor has answered a pair in this generation, also with "later"."""
    return (
        select(_ANSWER.c.pair_id)
        .where(_ANSWER.c.pair_id == pair_id, _ANSWER.c.assessor_id == _ASSESSOR_ID, _ANSWER.c.generation == generation)
        .exists()
    )


# SQLite uses a partial index only if the query has its condition literally, as text.
_WANTS_LABELS = and_(_QUOTA.c.kind == _ASSESSOR_KIND, text("quota.is_open AND quota.taken < quota.target"))
_ACCEPTS_LABELS = and_(
    _QUOTA.c.kind == _ASSESSOR_KIND, text("quota.is_open AND quota.is_unsettled AND quota.taken < quota.k_max")
)


def _has_free_place(quota: FromClause) -> ColumnElement[bool]:
    has_place = or_(quota.c.taken < quota.c.target, and_(quota.c.is_unsettled, quota.c.taken < quota.c.k_max))
    return and_(quota.c.kind == _ASSESSOR_KIND, quota.c.is_open, has_place)


_SELECT_CANDIDATES = (
    select(_QUOTA.c.pair_id, _QUOTA.c.query_id)
    .where(~_is_answered(_QUOTA.c.pair_id, _QUOTA.c.generation), ~_is_leased(_QUOTA.c.pair_id))
    .limit(bindparam("limit"))
)
_SELECT_BY_PRIORITY = _SELECT_CANDIDATES.where(_WANTS_LABELS).order_by(_QUOTA.c.priority.desc(), _QUOTA.c.shuffle)
_SELECT_BEST = _SELECT_BY_PRIORITY.where(_QUOTA.c.project_id == _PROJECT_ID)
_SELECT_OF_QUERY = _SELECT_BY_PRIORITY.where(_QUOTA.c.query_id == bindparam("query_id"))
_LOWEST_OF_BEST = (
    select(_QUOTA.c.priority)
    .where(_WANTS_LABELS, _QUOTA.c.project_id == _PROJECT_ID)
    .order_by(_QUOTA.c.priority.desc(), _QUOTA.c.shuffle)
    .offset(N_BEST_TO_STAY - 1)
    .limit(1)
    .correlate(None)
    .scalar_subquery()
)
_SELECT_BEST_OF_QUERY = _SELECT_OF_QUERY.where(_QUOTA.c.priority >= func.coalesce(_LOWEST_OF_BEST, literal(-1e300)))
_SELECT_BEYOND_TARGET = _SELECT_CANDIDATES.where(_ACCEPTS_LABELS, _QUOTA.c.project_id == _PROJECT_ID).order_by(
    _QUOTA.c.taken, _QUOTA.c.priority.desc(), _QUOTA.c.shuffle
)
"""Select pairs beyond their targets, for assessors who would have nothing to do until the next fit of the model."""
_SELECT_ANY_ACCEPTING = select(_QUOTA.c.pair_id).where(_ACCEPTS_LABELS, _QUOTA.c.project_id == _PROJECT_ID).limit(1)
_SELECT_PUT_OFF = (
    select(_QUOTA.c.pair_id, _QUOTA.c.query_id)
    .join_from(_ANSWER, _QUOTA, _ANSWER.c.pair_id == _QUOTA.c.pair_id)
    .where(
        _ANSWER.c.assessor_id == _ASSESSOR_ID,
        text("answer.kind = 'later'"),
        _ANSWER.c.generation == _QUOTA.c.generation,
        _has_free_place(_QUOTA),
        ~_is_leased(_QUOTA.c.pair_id),
        text("+quota.project_id = :in_project"),  # the sign keeps SQLite from starting with all wanted pairs
    )
    .order_by(_ANSWER.c.event_id)
    .limit(bindparam("limit"))
)
_FREE_QUOTA = _QUOTA.alias("free")
_SELECT_FREE_PAIRS = (
    select(_FREE_QUOTA.c.pair_id)
    .where(_FREE_QUOTA.c.pair_id.in_(bindparam("pairs", expanding=True)), _has_free_place(_FREE_QUOTA))
    .order_by(_FREE_QUOTA.c.pair_id)
)


def _take_places(pairs: Select[Any]) -> ReturningUpdate[Any]:
    """Return the UPDATE that counts one more answer as taken for each selected pair, and returns its generation."""
    taken = update(_QUOTA).where(_QUOTA.c.kind == _ASSESSOR_KIND, _QUOTA.c.pair_id.in_(pairs))
    return taken.values(taken=_QUOTA.c.taken + 1).returning(_QUOTA.c.pair_id, _QUOTA.c.generation)


_TAKE_UNLOCKED_PLACES = _take_places(_SELECT_FREE_PAIRS.with_for_update(skip_locked=True))
_TAKE_PLACES_AFTER_WAITING = _take_places(_SELECT_FREE_PAIRS.with_for_update())
_SELECT_CHECK_PAIRS = (
    select(_PAIR.c.id, _PAIR.c.generation)
    .where(
        _PAIR.c.project_id == _PROJECT_ID,
        _PAIR.c.kind == bindparam("pair_kind"),
        _PAIR.c.is_open,
        ~_is_leased(_PAIR.c.id),
    )
    .order_by(_PAIR.c.id)
    .limit(bindparam("limit"))
)
"""Select gold or training pairs."""
_SELECT_NEW_CHECK_PAIRS = _SELECT_CHECK_PAIRS.where(~_is_answered(_PAIR.c.id, _PAIR.c.generation))
_SELECT_PUT_OFF_CHECK_PAIRS = _SELECT_CHECK_PAIRS.join_from(
    _PAIR,
    _ANSWER,
    and_(
        _ANSWER.c.pair_id == _PAIR.c.id,
        _ANSWER.c.assessor_id == _ASSESSOR_ID,
        _ANSWER.c.generation == _PAIR.c.generation,
        _ANSWER.c.kind == "later",
    ),
)
_UPDATE_MEMBERSHIP = update(schema.membership).where(_IS_MEMBERSHIP)


def next_pairs(connection: Connection, project: Project, assessor_id: int, count: int, now: int) -> NextPairs:
    """Return the leases of an assessor, and issue more until there are `count`.

    Leases that the assessor holds come first, so that a repeated request changes nothing.

    Args:
        connection: connection in a write transaction.
        project: the project.
        assessor_id: the assessor, who must be a member.
        count: number of leases wanted.
        now: time in milliseconds.

    Raises:
        NotFound: the assessor is not a member.
        Invalid: the count is out of range.

    """
    if not 1 <= count <= MAX_LEASES:
        raise Invalid(f"must be 1 to {MAX_LEASES}", parameter="count")
    row = connection.execute(
        _SELECT_MEMBER_WITH_COUNTS, {"in_project": project.id, "me": assessor_id, "now": now}
    ).mappings()
    fields = dict(require_member(row.first(), project))
    n_answers, has_expired = fields.pop("n_answers"), fields.pop("has_expired")
    found = _find_or_issue_leases(connection, project, JudgingMember(**fields), count, now, has_expired=has_expired)
    return replace(found, n_answers=n_answers)


def _find_or_issue_leases(
    connection: Connection, project: Project, member: JudgingMember, count: int, now: int, *, has_expired: bool
) -> NextPairs:
    status = member_status(project, member)
    if status not in ("judging", "training"):
        return NextPairs((), status)
    leases = find_live_leases(connection, project, member.assessor_id, count, now)
    is_asked = status == "training" or project.is_informative_enough(member.relative_information)
    if has_expired:
        lock_spending(connection, project)
        end_expired_leases(connection, now)
    price = pair_price(project, member)
    n_reserved = reserve_labels(connection, project, price, count - len(leases)) if is_asked else 0
    if n_reserved > 0:
        issued = _issue_leases(connection, project, member, status, n_reserved, now)
        add_spending(connection, project, price * (len(issued) - n_reserved))
        leases += issued
    if leases:
        return NextPairs(tuple(leases), status)
    if not is_asked:
        return NextPairs((), "done", "others-asked")
    if n_reserved == 0:
        return NextPairs((), "done", "budget-spent")
    if status == "judging":
        return NextPairs((), "done", _done_reason(connection, project, member))
    qualification = decide_qualification(connection, project, member.assessor_id)
    if qualification == "pending":
        return NextPairs((), "not-qualified")
    decided = replace(member, qualification=qualification)
    return _find_or_issue_leases(connection, project, decided, count, now, has_expired=False)


def _done_reason(connection: Connection, project: Project, member: JudgingMember) -> Reason:
    """Return why there is no pair for a member although the budget of the project is not spent."""
    if project.quotas[member.kind][1] == 0:
        return "kind-not-asked"
    values = {"in_project": project.id, "of_kind": member.kind}
    if (
        project.settled is None
        or project.is_sampled
        or connection.execute(_SELECT_ANY_ACCEPTING, values).first() is not None
    ):
        return "no-pairs"
    return "settled"


def _issue_leases(
    connection: Connection, project: Project, member: JudgingMember, status: Status, count: int, now: int
) -> list[Lease]:
    values: dict[str, Any] = {"me": member.assessor_id, "in_project": project.id, "of_kind": member.kind}
    query_id = member.last_query_id
    if status == "training":
        values["pair_kind"] = "training"
        pairs = _find_check_pairs(connection, _SELECT_NEW_CHECK_PAIRS, values, count)
        pairs += _find_check_pairs(connection, _SELECT_PUT_OFF_CHECK_PAIRS, values, count - len(pairs))
    else:
        slots = [_is_honeypot(project, member, member.n_leases + slot) for slot in range(count)]
        gold = _choose_gold(connection, project, member, values, sum(slots)) if any(slots) else []
        claims = _PairClaims(connection, project, member, values)
        claims.claim(count - len(gold))
        pairs, query_id = _merge_gold_pairs(slots, gold, claims.pairs), claims.query_id
    if not pairs:
        return []
    counted = {"n_leases": member.n_leases + len(pairs), "last_query_id": query_id}
    connection.execute(_UPDATE_MEMBERSHIP, {"me": member.assessor_id, "in_project": project.id, **counted})
    return insert_leases(connection, project, member.assessor_id, pairs, now)


def _find_check_pairs(connection: Connection, statement: Select[Any], values: dict[str, Any], limit: int) -> list[Pair]:
    return [tuple(row) for row in connection.execute(statement, {**values, "limit": limit})] if limit else []


def _honeypot_random(project: Project, member: JudgingMember, number: int) -> random.Random:
    return random.Random(f"{project.id} {member.assessor_id} {number}")


def _is_honeypot(project: Project, member: JudgingMember, number: int) -> bool:
    """Return whether the lease with this number is on a gold pair.

    It is always the same for an assessor, a number and a share; flagged assessors have a larger share if the lead has
    chosen so.
    """
    share = project.honeypot_share
    if member.flag is not None and project.flag_action == "honeypots":
        share = max(share, FLAGGED_HONEYPOT_SHARE)
    return share > 0 and _honeypot_random(project, member, number).random() < share


def _choose_gold(
    connection: Connection, project: Project, member: JudgingMember, values: dict[str, Any], count: int
) -> list[Pair]:
    found = _find_check_pairs(
        connection, _SELECT_NEW_CHECK_PAIRS, {**values, "pair_kind": "gold"}, max(count, MAX_GOLD_CANDIDATES)
    )
    return _honeypot_random(project, member, member.n_leases).sample(found, min(count, len(found)))


def _merge_gold_pairs(slots: Sequence[bool], gold: Sequence[Pair], real: Sequence[Pair]) -> list[Pair]:
    """Return gold pairs at their slots, as far as there are any, and real pairs at the others, both in order."""
    golds, reals = deque(gold), deque(real)
    pairs = []
    for is_gold in slots:
        source = golds if golds and (is_gold or not reals) else reals
        if source:
            pairs.append(source.popleft())
    return pairs


class _PairClaims:
    """Real pairs claimed for a member in one request.

    Attributes:
        pairs: id and generation of each pair claimed.
        query_id: query of the last pair.

    """

    def __init__(self, connection: Connection, project: Project, member: JudgingMember, values: dict[str, Any]) -> None:
        self.pairs: list[Pair] = []
        self.query_id = member.last_query_id
        self._connection = connection
        self._values = values
        # LLM judges read a query again for each document, so they need not stay at it.
        self._stays_at_query = member.kind != "llm"
        self._is_planned = project.is_planned
        self._locked: dict[int, int] = {}  # query ids of pairs that other transactions hold, by pair id

    def claim(self, count: int) -> None:
        """Take places of up to `count` pairs and add them to `pairs`."""
        while (missing := count - len(self.pairs)) > 0:
            chosen, statement = self._choose_pairs(missing), _TAKE_UNLOCKED_PLACES
            if not chosen and self._locked:
                chosen, statement = dict(list(self._locked.items())[:missing]), _TAKE_PLACES_AFTER_WAITING
            if not chosen:
                return
            self._take(chosen, statement)

    def _choose_pairs(self, count: int) -> dict[int, int]:
        """Return query ids of pairs by pair id: of the last query, else of the best, else beyond target or put off."""
        n_best = max(count, N_BEST_PAIRS)
        if self._stays_at_query and self.query_id is not None:
            found = self._find_pairs(_SELECT_BEST_OF_QUERY if self._is_planned else _SELECT_OF_QUERY, n_best)
            if found:
                return dict(found[:count]) if self._is_planned else _sample_pairs(found, count)
        found = self._find_pairs(_SELECT_BEST, n_best)
        if found:
            return _sample_pairs(found, 1 if self._stays_at_query else count)
        found = self._find_pairs(_SELECT_BEYOND_TARGET, count) if self._is_planned else []
        return dict(found or self._find_pairs(_SELECT_PUT_OFF, count))

    def _find_pairs(self, statement: Select[Any], limit: int) -> list[tuple[int, int]]:
        excluded = {pair_id for pair_id, _ in self.pairs} | self._locked.keys()
        values = {**self._values, "query_id": self.query_id, "limit": limit + len(excluded)}
        rows = self._connection.execute(statement, values)
        return [(row.pair_id, row.query_id) for row in rows if row.pair_id not in excluded][:limit]

    def _take(self, chosen: dict[int, int], statement: ReturningUpdate[Any]) -> None:
        """Take places of the pairs that still have one."""
        found = self._connection.execute(statement, {**self._values, "pairs": list(chosen)})
        taken = dict(sorted((row.pair_id, row.generation) for row in found))
        self.pairs += taken.items()
        if statement is _TAKE_PLACES_AFTER_WAITING:
            self._locked = {pair: query for pair, query in self._locked.items() if pair not in chosen}
        else:
            self._locked |= {pair: query for pair, query in chosen.items() if pair not in taken}
        if taken:
            self.query_id = chosen[max(taken)]


def _sample_pairs(found: Sequence[tuple[int, int]], count: int) -> dict[int, int]:
    return dict(random.sample(found, min(count, len(found))))
