"""The expert-graded documents that training is steered by, and those that tell when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.features import Features
from crowdrank.rankers.instances import Instances
from crowdrank.rankers.ranking_data import Lists, gather


@dataclass(frozen=True, eq=False)
class Experts:
    """Expert-graded rows query by query, and the ids of the queries as text."""

    lists: Lists
    queries: tuple[str, ...]

    @classmethod
    def of(cls, graded: Any, features: Features, *, ranks: bool, what: str) -> Experts:
        """From (X, y, query); (X, y) where nothing is ranked; `Instances`; or grades of documents in `features`.

        Grades are `Gold`, a path or a DataFrame.
        """
        if isinstance(graded, tuple):
            X, y, query = _rows(graded, ranks, what)
            ids_ = X.query if query is None and isinstance(X, Features) else query
        else:
            rows = graded if isinstance(graded, Instances) else Instances.from_labels(graded, features)
            (X, y, query), ids_ = rows.eval_set, rows.features.query
        lists = gather(X, y, query, known=features.names, what=f" of {what}")
        names = [str(name) for name in (ids_.to_pylist() if hasattr(ids_, "to_pylist") else list(ids_))]
        return cls(lists, tuple(names[row] for row in lists.order[lists.offsets[:-1]]))

    def split(self, share: float, random_state: int) -> tuple[Experts, Experts]:
        """Two parts by query, the second with about this share of the queries."""
        n = len(self.queries)
        later = round(share * n)
        if not 0 < later < n:
            raise InputError(
                f"{counted(n, 'expert-graded query')} cannot be split into one part to learn from and one to tell when "
                f"to stop (validation={share:g})",
                fix="give eval_set, or grades of more queries",
            )
        order = np.random.default_rng(random_state).permutation(n)
        return self._queries(np.sort(order[later:])), self._queries(np.sort(order[:later]))

    def _queries(self, chosen: Integers) -> Experts:
        return Experts(self.lists.of_queries(chosen), tuple(self.queries[number] for number in chosen))

    def shuffled(self, random_state: int) -> Experts:
        """The rows of each query in an order by chance, so that equal scores are in no order of the file's."""
        lists = self.lists
        order = np.lexsort((np.random.default_rng(random_state).random(len(lists.y)), lists.query))
        shares = None if lists.shares is None else lists.shares[order]
        mixed = Lists(lists.X[order], lists.y[order], shares, lists.offsets, None, lists.order[order], lists.names)
        return Experts(mixed, self.queries)


def _rows(graded: tuple[Any, ...], ranks: bool, what: str) -> tuple[Any, Any, Any]:
    if len(graded) == 2 and not ranks:
        return *graded, [f"{what} {row}" for row in range(len(graded[1]))]  # every row by itself
    if len(graded) != 3:
        raise UsageError(f"{what} is (X, y, query), Instances, or expert grades of documents that have features.")
    return graded


def refuse_leaks(experts: Experts, validation: Experts, seen: pa.Array) -> None:
    """Refuse validation queries that gradients or label features have seen."""
    for known, where in ((experts.queries, "among the training experts"), (seen.to_pylist(), "in the label features")):
        both = sorted(set(known) & set(validation.queries))
        if both:
            raise InputError(
                f"the expert grades of {counted(len(both), 'validation query')} are {where} too (the first: "
                f"{shown(both[0])})",
                fix="leave them out there, or the choice of when to stop would be blind",
            )
