"""Plan of the labels wanted next: targets and priorities of pairs, by the policy of a project.

The policy sees all labels and says of which pairs it wants more. A lease takes a place of its pair, so that a pair
whose wanted label is held by somebody is not handed out again, and is wanted again at once if the lease ends without an
answer. If several kinds of assessors may give a label, it is asked of the kind whose answer is worth most per price: of
experts, for instance, when the maximum of cheaper labels is reached and the pair is still not settled. Between two
plans, assessors who find no wanted pair get unsettled ones, up to `k_max`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, Row, bindparam, case, or_, select, update

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import get_policy
from crowdrank.collection.belief import MODELS, Belief, describes_answers
from crowdrank.collection.model_policies import ModelPolicy
from crowdrank.collection.policy import Policy
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.requests import PoolState
from crowdrank.collection.schemes import Scheme
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import Fix
from crowdrank.judgments.table import Judgments
from crowdrank.service.domain.pairs import OTHER
from crowdrank.service.domain.projects import PREFERENCE_POLICY, Project
from crowdrank.service.domain.quotas import FIRST_PRIORITY, N_COUNTED, QUOTAS_WITH_LEASES
from crowdrank.service.model.document_order import DocumentOrder
from crowdrank.service.service_errors import Invalid
from crowdrank.service.store import schema

MIN_DIVISOR = 1e-9
"""Smallest price and information to divide by."""
LEAST_CHANGE = 0.05
"""Relative change of a priority below which the stored one stays, so that few rows are written."""

_QUOTA = schema.quota
_SELECT_OPEN_QUOTAS = (
    select(
        _QUOTA.c.pair_id,
        _QUOTA.c.kind,
        _QUOTA.c.generation,
        N_COUNTED.label("n_counted"),
        _QUOTA.c.k_max,
        _QUOTA.c.target,
        _QUOTA.c.priority,
        _QUOTA.c.is_unsettled,
        schema.query.c.key.label("query"),
        schema.document.c.key.label("document"),
        OTHER.c.key.label("other"),
    )
    .select_from(
        QUOTAS_WITH_LEASES.join(schema.pair, schema.pair.c.id == _QUOTA.c.pair_id)
        .join(schema.query, schema.query.c.id == schema.pair.c.query_id)
        .join(schema.document, schema.document.c.id == schema.pair.c.document_id)
        .outerjoin(OTHER, OTHER.c.id == schema.pair.c.other_document_id)
    )
    .where(_QUOTA.c.project_id == bindparam("in_project"), _QUOTA.c.is_open)
    .order_by(_QUOTA.c.pair_id, _QUOTA.c.kind)
)
_INFORMATION = schema.membership.c.relative_information
_MIN_INFORMATION = bindparam("min_information", type_=_INFORMATION.type)
_MEMBERS = (
    select(schema.assessor.c.name, schema.assessor.c.kind, schema.assessor.c.price)
    .join_from(schema.membership, schema.assessor)
    .where(
        schema.membership.c.project_id == bindparam("in_project"),
        ~schema.membership.c.is_paused,
        or_(_INFORMATION.is_(None), _INFORMATION >= _MIN_INFORMATION),
        schema.membership.c.qualification != "failed",
        schema.assessor.c.is_active,
    )
    .order_by(schema.assessor.c.id)
)
_SELECT_OPEN_QUOTAS_OF_QUERIES = _SELECT_OPEN_QUOTAS.where(schema.query.c.key.in_(bindparam("queries", expanding=True)))
_IS_ROW = (
    (_QUOTA.c.pair_id == bindparam("of_pair"))
    & (_QUOTA.c.kind == bindparam("of_kind"))
    & (_QUOTA.c.generation == bindparam("of_generation"))
)
_NEW_TARGET = bindparam("new_target", type_=_QUOTA.c.target.type)
_WRITE = (
    update(_QUOTA)
    .where(_IS_ROW)
    .values(
        target=case((_QUOTA.c.k_max < _NEW_TARGET, _QUOTA.c.k_max), else_=_NEW_TARGET),
        priority=bindparam("new_priority"),
        is_unsettled=bindparam("new_is_unsettled"),
    )
)


class PlanRow(NamedTuple):
    """A quota as it is stored, with the ids of its pair in the user's files."""

    pair_id: int
    kind: str
    generation: int
    n_counted: int
    k_max: int
    target: int
    priority: float
    is_unsettled: bool
    query: str
    document: str
    other: str | None = None


@dataclass(frozen=True, eq=False)
class PlanInputs:
    """What a plan depends on besides the answers: quotas of open pairs, and the assessors who may judge."""

    rows: Sequence[PlanRow]
    roster: Roster


class _KindValue(NamedTuple):
    """Value of an answer of a kind of assessor to each pair.

    Attributes:
        n_assessors: number of assessors of the kind.
        relative: (n_pairs,) expected information, relative to that of the average answer.
        per_price: (n_pairs,) the same, divided by the mean price.

    """

    n_assessors: int
    relative: Floats
    per_price: Floats


@dataclass(frozen=True, eq=False)
class WantedLabels:
    """What a policy wants of each pair of a pool.

    Attributes:
        n_more: (n_pairs,) number of further labels.
        priority: (n_pairs,) the highest comes first.
        is_unsettled: (n_pairs,) whether labels beyond these are of use.

    """

    n_more: Integers
    priority: Floats
    is_unsettled: Booleans


def read_inputs(connection: Connection, project: Project, queries: Sequence[str] | None = None) -> PlanInputs:
    """Return what the plan of a project, or of some of its queries, given by the user's ids, depends on."""
    if queries is None:
        found = connection.execute(_SELECT_OPEN_QUOTAS, {"in_project": project.id})
    else:
        found = connection.execute(_SELECT_OPEN_QUOTAS_OF_QUERIES, {"in_project": project.id, "queries": list(queries)})
    rows = [PlanRow(**row) for row in found.mappings()]
    names, kinds, prices = [], [], []
    for member in _asked_members(connection, project):
        names.append(member.name)
        kinds.append(member.kind)
        prices.append(member.price)
    return PlanInputs(rows, Roster(pa.array(names, pa.string()), np.array(kinds, object), np.array(prices, float)))


def _asked_members(connection: Connection, project: Project) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return name, kind and price of each assessor who may judge and is informative enough."""
    values = {"in_project": project.id, "min_information": project.min_information or 0.0}
    return connection.execute(_MEMBERS, values).all()


def count_assessors(connection: Connection, project: Project) -> tuple[tuple[str, float, int], ...]:
    """Return the numbers of assessors who may judge, by kind and price."""
    found = Counter((row.kind, row.price) for row in _asked_members(connection, project))
    return tuple(sorted((kind, price, number) for (kind, price), number in found.items()))


def needs_answer_model(project: Project) -> bool:
    """Return whether the plan of a project needs a model of how assessors answer."""
    return (
        project.is_planned
        and not project.asks_preferences
        and (project.settled is not None or project_policy(project).takes_model)
    )


def check_method(project: Project, method: str) -> None:
    """Raise Invalid if the policy of a project cannot use a consensus model."""
    if needs_answer_model(project) and method not in MODELS:
        problem = f"must be a model of how assessors answer for the policy {project.policy}, not {method}"
        fix = Fix(f"use {' or '.join(MODELS)}")
        raise Invalid(problem, parameter="method", kind="no-answer-model", fix=fix)


def project_policy(project: Project) -> Policy:
    """Return the policy of a project with its stop rule."""
    policy = get_policy(project.policy)
    return policy.set_params(settled=project.settled) if isinstance(policy, ModelPolicy) else policy


def plan_labels(
    project: Project,
    inputs: PlanInputs,
    judgments: Judgments | None,
    model: Aggregator | None,
    order: DocumentOrder | None = None,
) -> list[PlanRow]:
    """Return the rows whose target, priority or `is_unsettled` changes, with the new values.

    Args:
        project: the project, which must have a plan.
        inputs: quotas of open pairs, all of a project or all of some queries, and the assessors.
        judgments: the answers to these pairs; None without any.
        model: model fitted to the answers; None before the first.
        order: order of the documents by preferences, of a project that asks for them.

    """
    pairs: dict[int, list[PlanRow]] = {}
    for row in inputs.rows:
        pairs.setdefault(row.pair_id, []).append(row)
    if not pairs:
        return []
    if project.asks_preferences:
        query, document = pa.array([rows[0].query for rows in pairs.values()]), pa.array(map(str, pairs))
        state, model = PoolState.of(Pool(query, document), None), None
        wanted = wanted_comparisons(project, [rows[0] for rows in pairs.values()], order)
    else:
        query, document = (
            pa.array([getattr(rows[0], name) for rows in pairs.values()]) for name in ("query", "document")
        )
        state = PoolState.of(Pool(query, document), judgments)
        wanted = wanted_labels(project, state, model)
    kinds = _kind_values(state, model, inputs.roster, {row.kind for row in inputs.rows})
    changed = []
    for index, rows in enumerate(pairs.values()):
        planned = _plan_pair(project, rows, wanted, kinds, index)
        changed += [new for old, new in zip(rows, planned, strict=True) if new != old]
    return changed


def wanted_labels(project: Project, state: PoolState, model: Aggregator | None) -> WantedLabels:
    """Return which labels of the pairs of a pool the policy of a project wants."""
    n, policy = len(state.pool), project_policy(project)
    if model is None and policy.takes_model:
        return WantedLabels(np.ones(n, np.int64), np.full(n, FIRST_PRIORITY), np.ones(n, bool))
    ranked = policy.rank_requests(state, model if policy.takes_model else None).wanted()
    n_more = np.bincount(ranked.pair, minlength=n)
    priority = np.full(n, -np.inf)
    np.maximum.at(priority, ranked.pair, np.where(ranked.reason == 0, FIRST_PRIORITY, ranked.priority))
    if project.settled is not None and model is not None and not policy.takes_model and describes_answers(model):
        n_more[Belief.from_model(state, model).is_settled(np.arange(n), project.settled)] = 0
    # A scheme fixes the number of labels; all others ask for one at a time, and may ask again.
    is_unsettled = np.zeros(n, bool) if isinstance(policy, Scheme) else n_more > 0
    return WantedLabels(n_more, np.where(n_more > 0, priority, 0.0), is_unsettled)


def wanted_comparisons(project: Project, rows: Sequence[PlanRow], order: DocumentOrder | None) -> WantedLabels:
    """Return which answers to comparisons are wanted; the policy `preferences` asks first for the most informative.

    The priority is the expected information of an answer, with the discount of DCG for the rank of the better document.

    Args:
        project: the project.
        rows: a row of each comparison.
        order: order of the documents; None before the first answer.

    """
    n = len(rows)
    if order is None:
        return WantedLabels(np.ones(n, np.int64), np.full(n, FIRST_PRIORITY), np.ones(n, bool))
    found = order.compare([(row.query, row.document, row.other or "") for row in rows])
    is_wanted = np.ones(n, bool) if project.settled is None else found.certainty < project.settled
    priority = found.information / np.log2(found.rank + 2.0)
    if project.policy != PREFERENCE_POLICY:
        priority = np.zeros(n)
    return WantedLabels(is_wanted.astype(np.int64), np.where(is_wanted, priority, 0.0), is_wanted)


def _kind_values(
    state: PoolState, model: Aggregator | None, roster: Roster, kinds: Iterable[str]
) -> dict[str, _KindValue]:
    """Return the value of an answer of each kind of assessor; kinds without an assessor are left out."""
    n, found = len(state.pool), {}
    information: Mapping[str, Floats] = {}
    mean = np.ones(n)
    if model is not None and describes_answers(model) and len(set(roster.kind)) > 1:
        belief, pairs = Belief.from_model(state, model), np.arange(n)
        information, mean = belief.kind_information(pairs, roster), belief.information(pairs)
    for kind in kinds:
        prices = roster.price[roster.kind == kind]
        if len(prices):
            relative = information.get(kind, mean) / np.maximum(mean, MIN_DIVISOR)
            found[kind] = _KindValue(len(prices), relative, relative / max(float(prices.mean()), MIN_DIVISOR))
    return found


def _plan_pair(
    project: Project, rows: Sequence[PlanRow], wanted: WantedLabels, kinds: Mapping[str, _KindValue], index: int
) -> list[PlanRow]:
    """Return the quotas of a pair with the labels wanted; further ones go to the kind with most value per price."""
    targets = {row.kind: max(row.n_counted, project.quotas[row.kind].k_min) for row in rows}
    n_missing = int(wanted.n_more[index]) - sum(targets[row.kind] - row.n_counted for row in rows)
    available = [row for row in rows if row.kind in kinds]
    for row in sorted(available, key=lambda row: -kinds[row.kind].per_price[index]):
        n_given = min(n_missing, min(row.k_max, kinds[row.kind].n_assessors) - targets[row.kind])
        if n_given > 0:
            targets[row.kind] += n_given
            n_missing -= n_given
    return [_plan_row(row, targets[row.kind], wanted, kinds.get(row.kind), index) for row in rows]


def _plan_row(row: PlanRow, target: int, wanted: WantedLabels, kind: _KindValue | None, index: int) -> PlanRow:
    priority = float(wanted.priority[index])
    if kind is not None and priority < FIRST_PRIORITY:
        priority *= float(kind.relative[index])
    if abs(priority - row.priority) <= LEAST_CHANGE * max(abs(priority), abs(row.priority)):
        priority = row.priority
    is_unsettled = bool(wanted.is_unsettled[index])
    return row._replace(target=min(target, row.k_max), priority=priority, is_unsettled=is_unsettled)


def write_plan(connection: Connection, rows: Iterable[PlanRow]) -> None:
    """Write rows of a plan, except those of pairs that were reopened meanwhile."""
    values: list[Mapping[str, Any]] = [
        {
            "of_pair": row.pair_id,
            "of_kind": row.kind,
            "of_generation": row.generation,
            "new_target": row.target,
            "new_priority": row.priority,
            "new_is_unsettled": row.is_unsettled,
        }
        for row in rows
    ]
    if values:
        connection.execute(_WRITE, values)


def with_answers(model: Aggregator, judgments: Judgments) -> Aggregator:
    """Return a copy of a fitted model with the consensus of other judgments and the same parameters of assessors."""
    changed = copy.copy(model)
    inferred = model.infer(judgments)
    changed.consensus_ = replace(inferred, assessor_table=model.consensus_.assessor_table)
    changed.judgments_ = judgments
    return changed
