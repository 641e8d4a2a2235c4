"""Check that no feature holds the expert grades."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, Location, Message
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import ExpertScorer
from crowdrank.rankers.single_feature import signed_feature

MIN_QUERIES = 10
"""Minimum number of expert-graded queries for the check."""
THRESHOLD = 0.99
"""Mean nDCG@10 or rank correlation with the expert grades from which on a feature counts as a leak."""


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


def find_leaks(data: RunData) -> list[Leak]:
    """Return the features that rank the documents of the expert-graded queries as the expert grades do."""
    if len(data.graded_queries) < MIN_QUERIES or not data.has_features:
        return []
    scorer = ExpertScorer(data, data.graded_queries, RunSettings())
    X, query, grades = data.features.matrix[scorer.rows], data.query[scorer.rows], data.expert[scorer.rows]
    if scorer.validation(np.zeros(len(grades))) >= THRESHOLD:  # every ranking is as good
        return []
    correlations = np.maximum(_rank_correlations(X, grades, query), _rank_correlations(-X, grades, query))
    leaks = []
    for number, name in enumerate(data.features.names):
        ndcg = max(scorer.validation(signed_feature(X[:, number], sign)) for sign in (1, -1))
        if max(ndcg, correlations[number]) >= THRESHOLD:
            leaks.append(Leak(name, ndcg, float(correlations[number])))
    return leaks


def check_leaks(data: RunData, *, allow: bool) -> list[Message]:
    """Return a warning for each feature that holds the expert grades; raise InputError unless these are allowed."""
    leaks = find_leaks(data)
    if leaks and not allow:
        raise InputError(replace(leaks[0].message(), severity="error"))
    return [leak.message() for leak in leaks]


def _rank_correlations(X: Floats, grades: Floats, query: np.ndarray) -> Floats:
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
