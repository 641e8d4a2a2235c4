"""Forecast how many expert grades, or queries, make an interval as narrow as wanted."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank.estimation.by_query import ContrastEstimate


@dataclass(frozen=True)
class Forecast:
    """What makes an interval as narrow as wanted.

    Attributes:
        grades: number of expert grades in all, sampled in the same way; None if no number suffices with these queries.
        queries: number of queries with labels that suffices if experts grade all; None if the present ones do.

    """

    grades: int | None
    queries: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a dictionary that JSON can represent."""
        return {"grades": self.grades, "queries": self.queries}

    def sentence(self, n_grades: int, n_queries: int) -> str:
        """Return what would suffice, given the present number of grades and queries, without a final period."""
        if self.grades is not None:
            more = max(self.grades - n_grades, 1)
            return f"about {counted(more, 'more expert grade')}, sampled in the same way ({self.grades:,} in all)"
        if self.queries is None:
            return "expert grades of a sample"
        return (
            f"about {counted(self.queries, 'query')} with labels and expert grades, as "
            f"{counted(n_queries, 'query')} would not be enough even if experts graded everything"
        )


@dataclass(frozen=True)
class VarianceModel:
    """Variance of an estimated difference by the number of queries and the share of documents that experts graded.

    If experts grade the share f of the documents of N queries, the variance is
    (query_variance + grade_variance (1/f - 1)) / N, so that the second part is 0 if they grade all.

    Attributes:
        query_variance: variance of the difference of a query if experts grade all of its documents.
        grade_variance: variance of a query that the labels do not explain.

    >>> model = VarianceModel(0.04, 0.01)
    >>> round(model.error(100, 0.25), 4), round(model.share(100, model.error(100, 0.25)), 4)
    (0.0265, 0.25)

    """

    query_variance: float
    grade_variance: float

    def error(self, n_queries: int, share: float) -> float:
        """Return the standard error if experts grade a share of the documents."""
        return float(np.sqrt((self.query_variance + self.grade_variance * (1 / share - 1)) / n_queries))

    def share(self, n_queries: int, error: float) -> float:
        """Return the share of the documents that experts must grade for a standard error; NaN if even all do not do."""
        rest = n_queries * error**2 - self.query_variance
        return 1 / (1 + rest / self.grade_variance) if rest > 0 else float("nan")


def forecast_grades(
    estimate: ContrastEstimate, half_width: float, *, n_grades: int, n_possible: int, n_queries: int
) -> Forecast:
    """Return the forecast for an interval of estimate +- `half_width`.

    The variance is that of the queries, plus a part that falls with the number of grades n as 1/n - 1/N and is 0 if all
    N documents are graded. If too few queries show a difference, the interval is a bound that falls as 1/n.

    Args:
        estimate: the present estimate, with experts.
        half_width: half the width that is wanted.
        n_grades: present number of expert grades.
        n_possible: number of documents that experts could grade (N).
        n_queries: present number of queries with labels.

    """
    present = (estimate.upper - estimate.lower) / 2
    if estimate.is_bound or estimate.error <= 0 or n_grades >= n_possible:
        ratio = present / half_width
        queries = ceil(n_queries * (n_grades / n_possible * ratio if estimate.is_bound else ratio**2))
        return Forecast(ceil(n_grades * ratio)) if n_grades * ratio <= n_possible else Forecast(None, queries)
    wanted, fixed = (estimate.error * half_width / present) ** 2, estimate.query_error**2
    if wanted <= fixed:
        return Forecast(None, ceil(n_queries * fixed / wanted))
    grade_variance = n_queries * (estimate.error**2 - fixed) / (n_possible / n_grades - 1)
    if grade_variance <= 0:
        return Forecast(n_grades)
    model = VarianceModel(n_queries * fixed, grade_variance)
    return Forecast(ceil(n_possible * model.share(n_queries, float(np.sqrt(wanted)))))
