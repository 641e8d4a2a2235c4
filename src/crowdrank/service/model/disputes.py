"""Which pairs the newest fit of the model settles, which are disputed, and the state of the model.

A pair is disputed if at least two people or LLM judges gave it grades that differ, in its current generation, and no
lead has adjudicated it. "Cannot judge" is not a grade: it neither makes nor settles a dispute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select

from crowdrank.service.domain.pairs import OTHER, PairContent, PairState, get_pair_content, list_pairs
from crowdrank.service.domain.progress import is_unfinished
from crowdrank.service.domain.projects import Project
from crowdrank.service.domain.quotas import committed_money
from crowdrank.service.model.fits import Snapshot, latest_snapshot, list_reliabilities
from crowdrank.service.model.refits import RefitFailure, last_failure
from crowdrank.service.service_errors import Conflict
from crowdrank.service.store import schema

SETTLED_PROBABILITY = 0.95
"""Minimum certainty of the grade of a settled pair, in projects without a stop rule."""
PAIR_FILTERS = ("all", "disputed", "adjudicated", "unfinished", "closed")
"""Filters of the list of pairs."""
ADJUDICATED = "adjudicated"
"""Comment of the answers by which leads adjudicate pairs; they are sent without a lease."""

_PAIR, _ANSWER, _EVENT = schema.pair, schema.answer, schema.event


@dataclass(frozen=True)
class FittedPairs:
    """Real pairs in the newest fit of the model.

    Attributes:
        snapshot: the fit.
        probabilities: probability of each grade, by pair.
        certainty: certainty of the grade, by pair; see `grade_certainty`.
        n_newer: number of answers and changes of answers that the fit has not seen.
        level: minimum certainty of a settled pair.

    """

    snapshot: Snapshot
    probabilities: Mapping[int, Sequence[float]]
    certainty: Mapping[int, float]
    n_newer: int
    level: float

    @property
    def n_settled(self) -> int:
        """Number of settled pairs, open or closed."""
        return sum(found >= self.level for found in self.certainty.values())


@dataclass(frozen=True)
class GivenAnswer:
    """An answer to a pair, for leads.

    Attributes:
        assessor: name of the person or LLM judge.
        kind: kind of the assessor.
        grade: name of the grade; None for "cannot judge".
        comment: remark of the assessor.
        passages: marked passages, without those of a text that has changed since.
        received: time in milliseconds.

    """

    assessor_id: int
    assessor: str
    kind: str
    grade: str | None
    comment: str | None
    passages: tuple[str, ...]
    received: int


def settled_level(project: Project) -> float:
    """Return the certainty from which a pair counts as settled."""
    return SETTLED_PROBABILITY if project.settled is None else project.settled


def read_fitted_pairs(connection: Connection, project: Project) -> FittedPairs | None:
    """Return the real pairs in the newest fit of the model, or None before the first fit."""
    snapshot = latest_snapshot(connection, project)
    if snapshot is None:
        return None
    standing = schema.standing
    rows = connection.execute(
        select(_PAIR.c.id, standing.c.probabilities, standing.c.certainty)
        .join_from(standing, _PAIR)
        .where(standing.c.snapshot_id == snapshot.id, _PAIR.c.kind == "real")
    ).all()
    n_newer = connection.execute(
        select(func.count()).where(_EVENT.c.project_id == project.id, _EVENT.c.id > snapshot.last_event_id)
    ).scalar_one()
    return FittedPairs(
        snapshot,
        probabilities={row.id: row.probabilities for row in rows},
        certainty={row.id: _certainty(row) for row in rows},
        n_newer=n_newer,
        level=settled_level(project),
    )


def _certainty(row: Any) -> float:
    """Return the certainty of a pair; fits of earlier versions have not stored it."""
    return float(max(row.probabilities, default=0.0) if row.certainty is None else row.certainty)


# Disputed pairs.


def _adjudications(project: Project) -> Select[Any]:
    """Return a statement with the adjudicating answers to pairs in their current generations: pair, grade, event."""
    return (
        select(_ANSWER.c.pair_id, _ANSWER.c.grade, _ANSWER.c.event_id)
        .join_from(_ANSWER, _EVENT, _EVENT.c.id == _ANSWER.c.event_id)
        .join(_PAIR, _PAIR.c.id == _ANSWER.c.pair_id)
        .where(_EVENT.c.project_id == project.id, _EVENT.c.lease_id.is_(None), _EVENT.c.comment == ADJUDICATED)
        .where(_ANSWER.c.generation == _PAIR.c.generation, _ANSWER.c.kind == "grade")
    )


def _is_adjudicated(project: Project) -> ColumnElement[bool]:
    """Return the condition on a pair that a lead has adjudicated it."""
    return _PAIR.c.id.in_(_adjudications(project).with_only_columns(_ANSWER.c.pair_id))


def disputed_pairs(connection: Connection, project: Project, snapshot: Snapshot | None) -> list[int]:
    """Return the disputed pairs, those whose grades are farthest apart first.

    The distance is the standard deviation of the grades. Once the model is fitted, each answer has the informativeness
    of its assessor as its weight; an assessor whom the fit does not know has the mean of the others. An answer in both
    orders of a comparison is two.
    """
    of_fit, weight = schema.reliability, _weight(connection, snapshot)
    grade, second, snapshot_id = _ANSWER.c.grade, _ANSWER.c.swapped_grade, None if snapshot is None else snapshot.id
    lowest = func.min(case((second < grade, second), else_=grade))
    highest = func.max(case((second > grade, second), else_=grade))
    n_orders = case((second.is_(None), 1), else_=2)
    is_of_assessor = and_(of_fit.c.snapshot_id == snapshot_id, of_fit.c.assessor_id == _ANSWER.c.assessor_id)
    rows = connection.execute(
        select(
            _PAIR.c.id,
            (highest - lowest).label("range"),
            func.sum(weight * n_orders).label("weight"),
            func.sum(weight * (grade + func.coalesce(second, 0))).label("total"),
            func.sum(weight * (grade * grade + func.coalesce(second * second, 0))).label("squares"),
        )
        .join_from(_PAIR, _ANSWER, _ANSWER.c.pair_id == _PAIR.c.id)
        .join(of_fit, is_of_assessor, isouter=True)
        .where(_PAIR.c.project_id == project.id, _PAIR.c.kind == "real")
        .where(_ANSWER.c.generation == _PAIR.c.generation, _ANSWER.c.kind == "grade")
        .where(~_is_adjudicated(project))
        .group_by(_PAIR.c.id)
        .having(lowest < highest)
    )
    # Rounded, so that the order of equal pairs does not depend on the order in which a database adds numbers.
    keys = [(-round(_standard_deviation(row.weight, row.total, row.squares), 9), -row.range, row.id) for row in rows]
    return [pair_id for _, _, pair_id in sorted(keys)]


def _weight(connection: Connection, snapshot: Snapshot | None) -> Any:
    """Return the weight of an answer as a column."""
    found = [] if snapshot is None else list_reliabilities(connection, snapshot)
    known = [one.informativeness for one in found if one.informativeness is not None]
    if not sum(known) > 0:
        return 1.0
    return func.coalesce(schema.reliability.c.informativeness, sum(known) / len(known))


def _standard_deviation(weight: float, total: float, sum_of_squares: float) -> float:
    """Return a standard deviation from sums of weights, of weighted values and of weighted squares."""
    return math.sqrt(max(0.0, sum_of_squares / weight - (total / weight) ** 2)) if weight > 0 else 0.0


def filter_pairs(
    connection: Connection, project: Project, fitted: FittedPairs | None, name: str, after: int, limit: int
) -> list[PairState]:
    """Return the pairs that one of the `PAIR_FILTERS` selects.

    Args:
        connection: connection in a transaction.
        project: the project.
        fitted: the newest fit of the model.
        name: name of the filter.
        after: id of the last pair of the previous page; for disputed pairs, which are ordered by distance, the number
            of pairs on the previous pages.
        limit: maximum number of pairs.

    """
    if name == "disputed":
        wanted = disputed_pairs(connection, project, None if fitted is None else fitted.snapshot)[after : after + limit]
        found = list_pairs(connection, project, 0, limit, _PAIR.c.id.in_(wanted))
        return sorted(found, key=lambda pair: wanted.index(pair.pair_id))
    conditions = {
        "all": (),
        "adjudicated": (_is_adjudicated(project),),
        "unfinished": (is_unfinished(project),),
        "closed": (~_PAIR.c.is_open,),
    }
    return list_pairs(connection, project, after, limit, *conditions[name])


def read_answers(
    connection: Connection, project: Project, pair_ids: Sequence[int]
) -> dict[int, tuple[PairContent, list[GivenAnswer]]]:
    """Return the texts of pairs and the answers to them in their current generations, oldest first, by pair."""
    found = {pair_id: (get_pair_content(connection, project, pair_id), list[GivenAnswer]()) for pair_id in pair_ids}
    assessor, document = schema.assessor, schema.document
    changed = case((OTHER.c.changed > document.c.changed, OTHER.c.changed), else_=document.c.changed)
    rows = connection.execute(
        select(
            _PAIR.c.id,
            _ANSWER.c.assessor_id,
            assessor.c.name,
            assessor.c.kind,
            _ANSWER.c.grade,
            _ANSWER.c.swapped_grade,
            _EVENT.c.comment,
            _EVENT.c.spans,
            _EVENT.c.received,
            changed.label("changed"),
        )
        .join_from(_PAIR, _ANSWER, _ANSWER.c.pair_id == _PAIR.c.id)
        .join(_EVENT, _EVENT.c.id == _ANSWER.c.event_id)
        .join(assessor, assessor.c.id == _ANSWER.c.assessor_id)
        .join(document, document.c.id == _PAIR.c.document_id)
        .join(OTHER, OTHER.c.id == _PAIR.c.other_document_id, isouter=True)
        .where(_PAIR.c.id.in_(pair_ids), _ANSWER.c.generation == _PAIR.c.generation, _ANSWER.c.kind != "later")
        .order_by(_EVENT.c.received, _EVENT.c.id)
    )
    for row in rows:
        content, answers = found[row.id]
        spans = [] if row.changed > row.received else row.spans or []
        answers.extend(
            GivenAnswer(
                assessor_id=row.assessor_id,
                assessor=row.name,
                kind=row.kind,
                grade=None if grade is None else project.grades[grade],
                comment=row.comment,
                passages=tuple(_passage(content, span) for span in spans),
                received=row.received,
            )
            for grade in ((row.grade,) if row.swapped_grade is None else (row.grade, row.swapped_grade))
        )
    return found


def project_labels(connection: Connection, project: Project) -> pa.Table:
    """Return the label of each real pair: the adjudicated grade, or else the grade of the newest fit.

    The columns are query, document, grade and source (`adjudicated` or `consensus`); of comparisons, query, left,
    right, preference (-1, 0 or 1) and source. Pairs that have neither are left out. If several leads have adjudicated a
    pair, the latest grade counts.

    Raises:
        Conflict: there is no fit and no adjudicated pair.

    """
    snapshot = latest_snapshot(connection, project)
    standing, query, document = schema.standing, schema.query, schema.document
    found = connection.execute(_adjudications(project).order_by(_ANSWER.c.event_id))
    decided = {row.pair_id: row.grade for row in found}
    is_fitted = and_(standing.c.pair_id == _PAIR.c.id, standing.c.snapshot_id == (snapshot.id if snapshot else None))
    rows = connection.execute(
        select(
            _PAIR.c.id,
            query.c.key.label("query"),
            document.c.key.label("document"),
            OTHER.c.key.label("other"),
            standing.c.grade,
        )
        .join_from(_PAIR, query, query.c.id == _PAIR.c.query_id)
        .join(document, document.c.id == _PAIR.c.document_id)
        .join(OTHER, OTHER.c.id == _PAIR.c.other_document_id, isouter=True)
        .join(standing, is_fitted, isouter=True)
        .where(_PAIR.c.project_id == project.id, _PAIR.c.kind == "real")
        .where(or_(standing.c.grade.is_not(None), _is_adjudicated(project)))
        .order_by(_PAIR.c.id)
    ).all()
    if not rows:
        raise Conflict("there are no labels yet", kind="no-labels", fix="fit the model after the first answers")
    codes = [decided.get(row.id, row.grade) for row in rows]
    documents, source = (
        [row.document for row in rows],
        [ADJUDICATED if row.id in decided else "consensus" for row in rows],
    )
    columns: dict[str, list[Any]] = {"query": [row.query for row in rows]}
    if project.asks_preferences:
        columns |= {"left": documents, "right": [row.other for row in rows], "preference": [code - 1 for code in codes]}
    else:
        columns |= {"document": documents, "grade": [project.grades[code] for code in codes]}
    return pa.table({**columns, "source": source})


def _passage(content: PairContent, span: Mapping[str, Any]) -> str:
    """Return a marked passage. Its offsets are those of a browser, in UTF-16 code units."""
    texts = {**content.fields, "title": content.title or content.document, "body": content.body}
    text = str(texts.get(span["field"], "")).encode("utf-16-le")
    return text[2 * span["start"] : 2 * span["end"]].decode("utf-16-le", "replace")


@dataclass(frozen=True)
class ModelStatus:
    """State of the model of a project.

    Attributes:
        policy: policy by which pairs are handed out.
        settled: certainty from which a pair counts as settled.
        budget: money for answers; None: no limit.
        spent: price of all answers and of the pairs being judged.
        method: name of the model; None before the first fit.
        age: milliseconds since the last fit.
        n_newer: number of answers and changes of answers that the model has not seen.
        n_judged: number of pairs with a consensus.
        n_settled: number of settled ones among them.
        failure: last failure of a fit in the background, until one succeeds.

    """

    policy: str
    settled: float
    budget: float | None
    spent: float
    method: str | None
    age: int | None
    n_newer: int
    n_judged: int
    n_settled: int
    failure: RefitFailure | None


def read_model_status(connection: Connection, project: Project, now: int) -> ModelStatus:
    """Return the state of the model of a project."""
    return model_status(connection, project, read_fitted_pairs(connection, project), now)


def model_status(connection: Connection, project: Project, fitted: FittedPairs | None, now: int) -> ModelStatus:
    """Return the state of the model of a project, given the pairs of the newest fit."""
    return ModelStatus(
        policy=project.policy,
        settled=settled_level(project),
        budget=project.budget,
        spent=committed_money(connection, project.id),
        method=None if fitted is None else fitted.snapshot.method,
        age=None if fitted is None else now - fitted.snapshot.created,
        n_newer=0 if fitted is None else fitted.n_newer,
        n_judged=0 if fitted is None else len(fitted.probabilities),
        n_settled=0 if fitted is None else fitted.n_settled,
        failure=last_failure(connection, project),
    )
