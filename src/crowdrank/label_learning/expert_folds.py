"""Expert-graded rows in folds: those that steer gradient ascent, and those on which its steps are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.label_learning.objectives import Objective, ObjectiveSpec
from crowdrank.rankers.training_data import RankingData
from crowdrank.rankers.training_labels import Instances
from crowdrank.readers.features import Features

MIN_FOLDS = 2
"""Minimum number of folds of expert-graded queries."""


@dataclass(frozen=True, eq=False)
class ExpertFold:
    """Expert-graded rows that steer gradient ascent, and rows that it must not see.

    Attributes:
        steering: numbers of the rows that give the gradient.
        objective: objective on these rows.
        held_out: numbers of the rows on which the steps are measured.

    """

    steering: Integers
    objective: Objective
    held_out: Integers


@dataclass(frozen=True, eq=False)
class ExpertRows:
    """Expert-graded rows and the folds in which they steer and measure.

    Attributes:
        features: (n, n_features).
        folds: the folds.
        held_out: numbers of the rows that some fold measures on, in the order of the rows of `validation`.
        validation: objective on these rows.

    """

    features: Floats
    folds: Sequence[ExpertFold]
    held_out: Integers
    validation: Objective


@dataclass(frozen=True, eq=False)
class ExpertSet:
    """Expert-graded rows by query, and the query ids as text."""

    data: RankingData
    queries: tuple[str, ...]

    @classmethod
    def of(cls, expert: Any, features: Features, *, ranks: bool, parameter: str) -> ExpertSet:
        """Create the set from one of several forms of expert grades.

        Args:
            expert: (X, y, query); (X, y) if nothing is ranked; `Instances`; or grades of documents in `features`
                (`Gold`, a path or a DataFrame).
            features: features of documents.
            ranks: whether the objective is a ranking measure.
            parameter: name of the parameter, for messages.

        """
        if isinstance(expert, tuple):
            X, y, query = _require_triple(expert, ranks, parameter)
            query_ids = X.query if query is None and isinstance(X, Features) else query
        else:
            instances = expert if isinstance(expert, Instances) else Instances.from_labels(expert, features)
            (X, y, query), query_ids = instances.eval_set, instances.features.query
        data = RankingData.from_ids(X, y, query, names=features.names, source=f" of {parameter}")
        names = [str(name) for name in (query_ids.to_pylist() if hasattr(query_ids, "to_pylist") else query_ids)]
        return cls(data, tuple(names[row] for row in data.order[data.offsets[:-1]]))

    def shuffled(self, random_state: int) -> ExpertSet:
        """Return the set with the rows of each query in random order, so that tied scores have no order of the file."""
        data = self.data
        order = np.lexsort((np.random.default_rng(random_state).random(len(data.grade)), data.query))
        probabilities = None if data.probabilities is None else data.probabilities[order]
        shuffled = replace(
            data,
            features=data.features[order],
            grade=data.grade[order],
            weight=None,
            probabilities=probabilities,
            order=data.order[order],
        )
        return replace(self, data=shuffled)


def _require_triple(expert: tuple[Any, ...], ranks: bool, parameter: str) -> tuple[Any, Any, Any]:
    """Return (X, y, query); without a query, every row is a query of its own."""
    if len(expert) == 2 and not ranks:
        return *expert, [f"{parameter} {row}" for row in range(len(expert[1]))]
    if len(expert) != 3:
        raise UsageError(
            "must be (X, y, query), Instances, or expert grades of documents that have features", parameter=parameter
        )
    return expert


def split_experts(
    experts: ExpertSet,
    validation: ExpertSet | None,
    objective: ObjectiveSpec,
    *,
    n_folds: int,
    random_state: int,
    used_queries: Sequence[str],
) -> tuple[ExpertRows, tuple[str, ...]]:
    """Return the rows that steer and measure gradient ascent, and the ids of the queries that measure it.

    Args:
        experts: expert-graded queries that steer.
        validation: expert-graded queries that measure; None to rotate the steering ones.
        objective: objective of both.
        n_folds: number of folds of a rotation.
        random_state: random seed of the folds.
        used_queries: queries whose expert grades the label features use.

    """
    objective.set_range(experts.data.grade)
    measured = experts.queries if validation is None else validation.queries
    refuse_shared_queries("were used for the label features", measured, used_queries)
    if validation is None:
        return _rotated(experts.data, objective, n_folds, random_state), measured
    refuse_shared_queries("are also training queries", measured, experts.queries)
    return _held_out(experts.data, validation.data, objective), measured


def _held_out(steering: RankingData, validation: RankingData, objective: ObjectiveSpec) -> ExpertRows:
    """Return one fold, which is steered by some queries and measured on others."""
    rows = np.arange(len(steering.grade) + len(validation.grade))
    steers, measured = np.split(rows, [len(steering.grade)])
    fold = ExpertFold(steers, objective.build_objective(steering), measured)
    features = np.vstack([steering.features, validation.features])
    return ExpertRows(features, (fold,), measured, objective.build_objective(validation))


def _rotated(data: RankingData, objective: ObjectiveSpec, n_folds: int, random_state: int) -> ExpertRows:
    """Return folds of queries, each of which measures what the others steer.

    Queries whose grades differ, which alone steer a ranking, are divided equally among the folds.
    """
    starts, rows = data.offsets[:-1], np.arange(len(data.grade))
    steers = np.maximum.reduceat(data.grade, starts) > np.minimum.reduceat(data.grade, starts)
    if not objective.ranks:
        steers = np.ones(len(starts), bool)
    validation, n = objective.build_objective(data), min(n_folds, int(steers.sum()))
    if n < MIN_FOLDS:
        raise InputError(
            f"{counted(n, 'expert-graded query')} whose grades differ cannot be split into folds",
            kind="too-few-expert-queries",
            fix=[Fix("give validation grades with {}", "eval_set"), "give expert grades of more queries"],
        )
    order = np.random.default_rng(random_state).permutation(len(starts))
    order = order[np.argsort(~steers[order], kind="stable")]
    fold_of_query = np.empty(len(order), np.int64)
    fold_of_query[order] = np.arange(len(order)) % n
    fold = np.repeat(fold_of_query, np.diff(data.offsets))
    parts = [data.take_queries(np.flatnonzero(fold_of_query != number)) for number in range(n)]
    folds = tuple(
        ExpertFold(rows[fold != number], objective.build_objective(part), rows[fold == number])
        for number, part in enumerate(parts)
    )
    return ExpertRows(data.features, folds, rows, validation)


def refuse_shared_queries(problem: str, queries: Sequence[str], used: Sequence[str]) -> None:
    """Raise InputError if validation queries are among queries that were used otherwise."""
    both = sorted(set(queries) & set(used))
    if both:
        raise InputError(
            f"{counted(len(both), 'validation query')} {problem} (the first: {shown(both[0])})",
            kind="validation-leak",
            fix="remove their expert grades from one of the two",
        )
