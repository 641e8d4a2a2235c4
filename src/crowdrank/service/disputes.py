"""Which pairs the newest fit of the model settles, and which are disputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from crowdrank.service import schema
from crowdrank.service.model_fits import Snapshot, latest_snapshot
from crowdrank.service.pairs import PairState, list_pairs
from crowdrank.service.progress import is_unfinished
from crowdrank.service.projects import Project

SETTLED = 0.95
"""Minimum probability of the most probable grade of a settled pair, in projects without a stop rule."""
PAIR_FILTERS = ("all", "disputed", "unfinished", "closed")
"""Filters of the list of pairs; disputed pairs are open and not settled."""


@dataclass(frozen=True)
class FittedPairs:
    """Real pairs in the newest fit of the model.

    Attributes:
        snapshot: the fit.
        probabilities: probability of each grade, by pair.
        certainty: probability of the most probable true grade, by pair.
        is_open: whether the pair is open, by pair.
        n_newer: number of answers and changes of answers that the fit has not seen.
        level: minimum probability of the most probable grade of a settled pair.

    """

    snapshot: Snapshot
    probabilities: Mapping[int, Sequence[float]]
    certainty: Mapping[int, float]
    is_open: Mapping[int, bool]
    n_newer: int
    level: float

    @property
    def n_settled(self) -> int:
        """Number of settled pairs, open or closed."""
        return sum(found >= self.level for found in self.certainty.values())

    def disputed(self) -> list[int]:
        """Return the open pairs that are not settled, the least certain first."""
        found = [pair for pair, certainty in self.certainty.items() if self.is_open[pair] and certainty < self.level]
        return sorted(found, key=lambda pair: (self.certainty[pair], pair))


def settled_level(project: Project) -> float:
    """Return the probability of the most probable grade from which a pair counts as settled."""
    return SETTLED if project.settled is None else project.settled


def read_fitted_pairs(connection: Connection, project: Project) -> FittedPairs | None:
    """Return the real pairs in the newest fit of the model, or None before the first fit."""
    snapshot = latest_snapshot(connection, project)
    if snapshot is None:
        return None
    standing, pair, event = schema.standing, schema.pair, schema.event
    rows = connection.execute(
        select(pair.c.id, pair.c.is_open, standing.c.probabilities, standing.c.certainty)
        .join_from(standing, pair)
        .where(standing.c.snapshot_id == snapshot.id, pair.c.kind == "real")
    ).all()
    n_newer = connection.execute(
        select(func.count()).where(event.c.project_id == project.id, event.c.id > snapshot.last_event_id)
    ).scalar_one()
    return FittedPairs(
        snapshot,
        probabilities={row.id: row.probabilities for row in rows},
        certainty={row.id: _certainty(row) for row in rows},
        is_open={row.id: row.is_open for row in rows},
        n_newer=n_newer,
        level=settled_level(project),
    )


def _certainty(row: Any) -> float:
    """Return the certainty of a pair; fits of earlier versions have not stored it."""
    return float(max(row.probabilities, default=0.0) if row.certainty is None else row.certainty)


def most_disputed(connection: Connection, project: Project, fitted: FittedPairs, count: int) -> list[PairState]:
    """Return the disputed pairs of which the model is least certain."""
    wanted = fitted.disputed()[:count]
    found = list_pairs(connection, project, 0, count, schema.pair.c.id.in_(wanted))
    return sorted(found, key=lambda pair: wanted.index(pair.pair_id))


def filter_pairs(
    connection: Connection, project: Project, fitted: FittedPairs | None, name: str, after: int, limit: int
) -> list[PairState]:
    """Return the pairs that one of the `PAIR_FILTERS` selects, in the order of their ids."""
    pair = schema.pair
    if name == "disputed":
        disputed = [] if fitted is None else sorted(one for one in fitted.disputed() if one > after)[:limit]
        return list_pairs(connection, project, after, limit, pair.c.id.in_(disputed))
    conditions = {"all": (), "unfinished": (is_unfinished(project),), "closed": (~pair.c.is_open,)}
    return list_pairs(connection, project, after, limit, *conditions[name])


def own_grades(
    connection: Connection, project: Project, assessor_id: int, listed: Sequence[PairState]
) -> dict[int, str]:
    """Return the grades that an assessor gave to pairs in their current rounds, by pair."""
    answer, pair = schema.answer, schema.pair
    is_wanted = pair.c.id.in_([one.pair_id for one in listed]), answer.c.assessor_id == assessor_id
    rows = connection.execute(
        select(pair.c.id, answer.c.grade)
        .join_from(answer, pair)
        .where(*is_wanted, answer.c.kind == "grade", answer.c.round == pair.c.round)
    )
    return {row.id: project.grades[row.grade] for row in rows}
