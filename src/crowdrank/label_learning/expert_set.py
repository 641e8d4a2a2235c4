"""Expert-graded documents that label learning computes its gradients from, and those that it is validated on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments.features import Features
from crowdrank.rankers.instances import Instances
from crowdrank.rankers.ranking_data import RankingData


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

    def split(self, share: float, random_state: int) -> tuple[ExpertSet, ExpertSet]:
        """Split by query at random; the second part has about this share of the queries."""
        n = len(self.queries)
        n_second = round(share * n)
        if not 0 < n_second < n:
            raise InputError(
                f"{counted(n, 'expert-graded query')} cannot be split into training and validation queries "
                f"(validation={share:g})",
                kind="too-few-expert-queries",
                fix=[Fix("give validation grades with {}", "eval_set"), "give expert grades of more queries"],
            )
        order = np.random.default_rng(random_state).permutation(n)
        return self._take(np.sort(order[n_second:])), self._take(np.sort(order[:n_second]))

    def _take(self, queries: Integers) -> ExpertSet:
        return ExpertSet(self.data.take_queries(queries), tuple(self.queries[number] for number in queries))

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


def refuse_leaks(training: ExpertSet, validation: ExpertSet, label_feature_queries: pa.Array) -> None:
    """Raise InputError if gradients or label features use expert grades of validation queries."""
    used = {
        "are also training queries": training.queries,
        "were used for the label features": label_feature_queries.to_pylist(),
    }
    for problem, queries in used.items():
        both = sorted(set(queries) & set(validation.queries))
        if both:
            raise InputError(
                f"{counted(len(both), 'validation query')} {problem} (the first: {shown(both[0])})",
                kind="validation-leak",
                fix="remove their expert grades from one of the two",
            )
