"""State of the model of a project: its age, what it has settled, and what the answers have cost."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from crowdrank.service.budgets import committed_money
from crowdrank.service.disputes import FittedPairs, read_fitted_pairs, settled_level
from crowdrank.service.projects import Project
from crowdrank.service.refits import RefitFailure, last_failure


@dataclass(frozen=True)
class ModelStatus:
    """State of the model of a project.

    Attributes:
        policy: policy by which pairs are handed out.
        settled: probability of the most probable grade from which a pair counts as settled.
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
