"""Check that no feature holds the expert grades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from crowdrank._typing import Floats, Integers
from crowdrank.errors import Fix, InputError, Location, Message

MIN_GRADED_QUERIES = 10
"""Minimum number of queries, each with at least two different expert grades, to look for leaks."""
MIN_LEAK_AGREEMENT = 0.99
"""Minimum mean nDCG@10, or rank correlation with the expert grades, at which a feature counts as a leak."""


@dataclass(frozen=True)
class Leak:
    """Feature that holds the expert grades.

    Attributes:
        feature: name of the feature.
        ndcg: mean nDCG@10 of the ranking by the feature, in the better direction.
        correlation: mean rank correlation of this ranking with the expert grades within queries, in the better
            direction.

    """

    feature: str
    ndcg: float
    correlation: float

    def message(self) -> Message:
        """Return the warning about the leak."""
        problem = (
            f"it alone ranks documents as the expert grades do (nDCG@10 {self.ndcg:.3f}, rank correlation "
            f"{self.correlation:.3f}), so it seems to hold these grades"
        )
        fixes = (Fix("leave it out"), Fix("if it is a real feature, use it with {}", "allow_leak", True))
        return Message(problem, "leak", "warning", Location("the features", column=self.feature), fixes)


def find_leaks(names: Sequence[str], X: Floats, grades: Floats, query: Integers) -> list[Leak]:
    """Return the features that rank documents as the expert grades do; needs `MIN_GRADED_QUERIES` graded queries.

    Args:
        names: names of the features.
        X: (n, n_features) features of documents with expert grades; NaN is below all other values.
        grades: (n,) expert grades, counted from 0.
        query: (n,) query of each document, as a number.

    """
    frame = pd.Series(grades).groupby(query)
    varies = (frame.transform("max") > frame.transform("min")).to_numpy()
    X, grades, query = X[varies], grades[varies], np.unique(query[varies], return_inverse=True)[1]
    if (
        not len(query)
        or query.max() + 1 < MIN_GRADED_QUERIES
        or _mean_ndcg(np.zeros(len(grades)), grades, query) >= MIN_LEAK_AGREEMENT
    ):
        return []  # in the last case, every ranking is as good
    correlations = np.maximum(_rank_correlations(X, grades, query), _rank_correlations(-X, grades, query))
    leaks = []
    for number, name in enumerate(names):
        both = (np.nan_to_num(sign * X[:, number], nan=-np.inf) for sign in (1, -1))
        ndcg = max(_mean_ndcg(score, grades, query) for score in both)
        if max(ndcg, correlations[number]) >= MIN_LEAK_AGREEMENT:
            leaks.append(Leak(name, ndcg, float(correlations[number])))
    return leaks


def check_leaks(leaks: Sequence[Leak], *, allow_leaks: bool) -> list[Message]:
    """Return a warning for each feature that holds the expert grades; raise InputError unless these are allowed."""
    if leaks and not allow_leaks:
        raise InputError(replace(leaks[0].message(), severity="error"))
    return [leak.message() for leak in leaks]


def _mean_ndcg(score: Floats, grades: Floats, query: Integers) -> float:
    """Return the mean nDCG@10 with exponential gains; ties count as their expectation."""
    own, ideal = (_dcg(one, 2**grades - 1, query) for one in (score, grades))
    return float((own / ideal).mean())


def _dcg(score: Floats, gains: Floats, query: Integers) -> Floats:
    """Return the DCG@10 of each query, (n_queries,)."""
    order = np.lexsort((-score, query))
    score, query = score[order], query[order]
    is_first = np.diff(query, prepend=-1) > 0
    position = np.arange(len(query)) - np.flatnonzero(is_first)[query]
    discount = np.where(position < 10, 1 / np.log2(position + 2), 0.0)
    tie = np.cumsum(is_first | np.append(True, score[1:] != score[:-1])) - 1
    return np.asarray(
        np.bincount(query, gains[order] * (np.bincount(tie, discount) / np.bincount(tie))[tie]), np.float64
    )


def _rank_correlations(X: Floats, grades: Floats, query: Integers) -> Floats:
    """Return the mean over queries of Spearman's correlation of each feature with the grades, (n_features,).

    Missing values are below all others.
    """
    ranks = pd.DataFrame(np.column_stack([grades, X])).groupby(query).rank(na_option="top")
    centered = ranks - ranks.groupby(query).transform("mean")
    products = centered.mul(centered[0], axis=0).groupby(query).sum().to_numpy()
    squares = (centered**2).groupby(query).sum().to_numpy()
    norms = np.sqrt(squares * squares[:, :1])
    correlations = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.asarray(correlations[:, 1:].mean(axis=0))
