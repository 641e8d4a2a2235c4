"""Rounds of the policy `compare`: their progress, and the estimate of which ranking is better."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Row, delete, select

from crowdrank._text import counted
from crowdrank.errors import CrowdrankError, CrowdrankWarning, Fix, Message
from crowdrank.estimation.estimate import estimate
from crowdrank.judgments.judging_database import CANNOT_JUDGE
from crowdrank.judgments.read import read_sample
from crowdrank.service import schema
from crowdrank.service.exports import sampled_answers
from crowdrank.service.projects import Project, lock_project
from crowdrank.service.quotas import change_quotas
from crowdrank.service.rankings import decode_table, load_rankings

_ROUND, _SAMPLED, _PAIR, _ANSWER = schema.sample_round, schema.sampled_pair, schema.pair, schema.answer
IS_ANSWERED = (_ANSWER.c.round == _PAIR.c.round) & (_ANSWER.c.kind != "later")
"""Condition on an answer and its pair: it answers the pair in the current round."""


@dataclass(frozen=True)
class RoundProgress:
    """Progress of a round.

    Attributes:
        number: number of the round, from 1 on.
        measure: measure for which the pairs were drawn.
        seed: random seed of the draw.
        created: time of the draw, in milliseconds.
        n_pairs: number of pairs in the sample.
        n_complete: number of those that have their labels.
        n_closed: number of closed pairs without their labels.
        n_unassignable: number of open pairs without their labels that nobody can judge.

    """

    number: int
    measure: str
    seed: int
    created: int
    n_pairs: int
    n_complete: int
    n_closed: int
    n_unassignable: int

    @property
    def is_complete(self) -> bool:
        """Whether all pairs have their labels."""
        return self.n_complete == self.n_pairs

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Why the round cannot become complete."""
        found = []
        if self.n_unassignable:
            problem = f"nobody can judge {counted(self.n_unassignable, 'drawn document')}, so the sample is not random"
            found.append((problem, "add assessors, lower the minimum information per price, or ask for labels again"))
        if self.n_closed:
            problem = f"a lead closed {counted(self.n_closed, 'drawn document')}, so the sample is not random"
            found.append((problem, "open these pairs; judges can answer that they cannot judge a document"))
        return tuple(Message(problem, "sample-incomplete", "warning", fixes=(Fix(fix),)) for problem, fix in found)


def discard_rounds(connection: Connection, project: Project) -> int:
    """Delete all rounds of a project, and hand out none of their pairs; the answers stay. Return their number."""
    project = lock_project(connection, project.id)
    connection.execute(delete(_SAMPLED).where(_SAMPLED.c.project_id == project.id))
    number = connection.execute(delete(_ROUND).where(_ROUND.c.project_id == project.id)).rowcount
    if project.is_sampled:
        for kind, quota in project.quotas.items():
            change_quotas(connection, project.id, kind, quota, is_sampled=True)
    return number


def list_rounds(connection: Connection, project: Project) -> list[RoundProgress]:
    """Return the rounds of a project and their progress."""
    columns = _ROUND.c.number, _ROUND.c.measure, _ROUND.c.seed, _ROUND.c.created
    rounds = connection.execute(select(*columns).where(_ROUND.c.project_id == project.id).order_by(_ROUND.c.number))
    states = _pair_states(connection, project)
    return [_round_progress(row, list(states.get(row.number, {}).values())) for row in rounds]


def _round_progress(row: Row[*tuple[Any, ...]], states: Sequence[str]) -> RoundProgress:
    complete, closed, unassignable = (states.count(name) for name in ("complete", "closed", "unassignable"))
    return RoundProgress(row.number, row.measure, row.seed, row.created, len(states), complete, closed, unassignable)


def _pair_states(connection: Connection, project: Project) -> dict[int, dict[int, str]]:
    """Return the state of each drawn pair by round and pair id: complete, closed, unassignable or waiting."""
    answered = _answering_assessors(connection, project)
    able = {kind: set(prices) for kind, prices in prices_of_asked_members(connection, project).items()}
    rows = connection.execute(
        select(_SAMPLED.c.round, _SAMPLED.c.pair_id, _SAMPLED.c.kind, _PAIR.c.is_open)
        .join_from(_SAMPLED, _PAIR)
        .where(_SAMPLED.c.project_id == project.id)
    )
    states: dict[int, dict[int, str]] = {}
    for row in rows:
        assessors = answered.get((row.pair_id, row.kind), set())
        n_missing = max(project.quotas[row.kind].k_min, 1) - len(assessors)
        if n_missing <= 0:
            state = "complete"
        elif not row.is_open:
            state = "closed"
        elif not project.quotas[row.kind].k_min or len(able.get(row.kind, set()) - assessors) < n_missing:
            state = "unassignable"
        else:
            state = "waiting"
        of_round = states.setdefault(row.round, {})
        if of_round.get(row.pair_id, "complete") == "complete":  # a pair is complete if all kinds have answered it
            of_round[row.pair_id] = state
    return states


def _answering_assessors(connection: Connection, project: Project) -> dict[tuple[int, str], set[int]]:
    """Return who answered each drawn pair in its current round, by pair id and kind."""
    assessor = schema.assessor
    rows = connection.execute(
        select(_SAMPLED.c.pair_id, _SAMPLED.c.kind, _ANSWER.c.assessor_id)
        .join_from(_SAMPLED, _PAIR)
        .join(_ANSWER, (_ANSWER.c.pair_id == _PAIR.c.id) & IS_ANSWERED)
        .join(assessor, (assessor.c.id == _ANSWER.c.assessor_id) & (assessor.c.kind == _SAMPLED.c.kind))
        .where(_SAMPLED.c.project_id == project.id)
    )
    found: dict[tuple[int, str], set[int]] = {}
    for pair_id, kind, assessor_id in rows:
        found.setdefault((pair_id, kind), set()).add(assessor_id)
    return found


def prices_of_asked_members(connection: Connection, project: Project) -> dict[str, dict[int, float]]:
    """Return the prices of the members who may get pairs, by kind and assessor id."""
    assessor, membership = schema.assessor, schema.membership
    rows = connection.execute(
        select(assessor.c.kind, assessor.c.id, assessor.c.price, membership.c.relative_information)
        .join_from(membership, assessor)
        .where(
            membership.c.project_id == project.id,
            ~membership.c.is_paused,
            membership.c.qualification != "failed",
            assessor.c.is_active,
        )
    )
    found: dict[str, dict[int, float]] = {}
    for kind, assessor_id, price, information in rows:
        if project.is_informative_enough(information):
            found.setdefault(kind, {})[assessor_id] = price
    return found


@dataclass(frozen=True)
class RoundsEstimate:
    """Estimate of which ranking is better, from the rounds before the first incomplete one.

    Attributes:
        result: the estimate as a dictionary; None without a complete round, or if it failed.
        problem: why it failed.

    """

    result: Mapping[str, Any] | None = None
    problem: str | None = None


def estimate_rounds(connection: Connection, project: Project, rounds: Sequence[RoundProgress]) -> RoundsEstimate:
    """Estimate which ranking is better.

    An incomplete round is not a random sample: easy documents may have been answered first.
    """
    complete = [one.number for one in takewhile(lambda one: one.is_complete, rounds)]
    if not complete:
        return RoundsEstimate()
    answers = sampled_answers(connection, project)
    answers = answers.filter(pc.is_in(answers["round"], pa.array(complete)))
    content = select(_ROUND.c.labels).where(_ROUND.c.project_id == project.id, _ROUND.c.number == 1)
    labels = decode_table(connection.execute(content).scalar_one())
    runs = load_rankings(connection, project)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdrankWarning)  # the result lists them
        try:
            sample = read_sample(answers, grades=project.grades, unjudgeable=CANNOT_JUDGE)
            return RoundsEstimate(estimate(runs, labels, sample, measure=rounds[0].measure).to_dict())
        except CrowdrankError as error:
            return RoundsEstimate(problem=error.problem)
