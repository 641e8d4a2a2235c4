"""Information per price of each assessor's answers, relative to that of the other assessors of the same kind.

A project can set a minimum (`min_information`). Assessors below it get no pairs until a later fit estimates at least
the minimum. Assessors with too few answers to compare have no estimate yet and get pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from sqlalchemy import Connection, and_, bindparam, select, update

from crowdrank.judgments.table import Judgments
from crowdrank.service import schema
from crowdrank.service.projects import Project

MIN_ANSWERS, MIN_SHARED = 30, 10
"""Minimum number of answers for an estimate, and of those to pairs that others have answered, too."""
DIGITS = 3
"""Number of decimals that are stored."""

_MEMBERSHIP, _ASSESSOR = schema.membership, schema.assessor
_MEMBERS = (
    select(
        _MEMBERSHIP.c.assessor_id,
        _MEMBERSHIP.c.relative_information,
        _ASSESSOR.c.kind,
        _ASSESSOR.c.price,
        and_(_ASSESSOR.c.is_active, ~_MEMBERSHIP.c.is_paused).label("is_available"),
    )
    .join_from(_MEMBERSHIP, _ASSESSOR)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"))
    .order_by(_MEMBERSHIP.c.assessor_id)
)
_WRITE = (
    update(_MEMBERSHIP)
    .where(_MEMBERSHIP.c.project_id == bindparam("in_project"), _MEMBERSHIP.c.assessor_id == bindparam("of_assessor"))
    .values(relative_information=bindparam("value"))
)


@dataclass(frozen=True)
class MemberInformation:
    """Information in the answers of a member.

    Attributes:
        assessor_id: the assessor.
        kind: kind of the assessor.
        price: price of an answer.
        information: information in one answer, in nats.
        is_available: whether the member may judge.

    """

    assessor_id: int
    kind: str
    price: float
    information: float
    is_available: bool


def compared_assessors(judgments: Judgments) -> set[str]:
    """Return the names of assessors with enough answers, and enough to pairs that others have answered, too."""
    is_shared = np.diff(judgments.offsets) > 1
    n_answers = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    n_shared = np.bincount(judgments.assessor, is_shared[judgments.item], judgments.n_assessors)
    compared = np.flatnonzero((n_answers >= MIN_ANSWERS) & (n_shared >= MIN_SHARED))
    return set(judgments.assessors.take(compared).to_pylist())


def store_relative_information(connection: Connection, project: Project, information: Mapping[int, float]) -> None:
    """Store the relative information of each member after a fit.

    Args:
        connection: connection in a write transaction.
        project: the project.
        information: information in one answer, in nats, of each of the :func:`compared_assessors`, by assessor id.

    """
    members = connection.execute(_MEMBERS, {"in_project": project.id}).all()
    values = relative_information(
        MemberInformation(one.assessor_id, one.kind, one.price, information[one.assessor_id], one.is_available)
        for one in members
        if one.assessor_id in information
    )
    changes = [
        {"in_project": project.id, "of_assessor": member.assessor_id, "value": values.get(member.assessor_id)}
        for member in members
        if values.get(member.assessor_id) != member.relative_information
    ]
    if changes:
        connection.execute(_WRITE, changes)


def relative_information(members: Iterable[MemberInformation]) -> dict[int, float]:
    """Return the information per price of each assessor, divided by the mean of the available ones of the kind.

    Prices are left out where an assessor of the kind is free. Without an available assessor there is no value.

    >>> ann, bob = (MemberInformation(key, "human", 1.0, 0.1 * key, True) for key in (1, 3))
    >>> relative_information([ann, bob])
    {1: 0.5, 3: 1.5}

    """
    kinds: dict[str, list[MemberInformation]] = {}
    for member in members:
        kinds.setdefault(member.kind, []).append(member)
    values: dict[int, float] = {}
    for found in kinds.values():
        values |= _relative_to_mean(found)
    return values


def _relative_to_mean(members: Sequence[MemberInformation]) -> dict[int, float]:
    is_priced = all(member.price > 0 for member in members)
    values = {member.assessor_id: member.information / (member.price if is_priced else 1.0) for member in members}
    available = [values[member.assessor_id] for member in members if member.is_available]
    mean = fmean(available) if available else 0.0
    return {assessor_id: round(value / mean, DIGITS) for assessor_id, value in values.items()} if mean > 0 else {}
