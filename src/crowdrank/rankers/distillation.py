"""Distillation: one forest that imitates another ranker, for search engines that evaluate a single forest."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import kendalltau

from crowdrank._progress import Report, reporting
from crowdrank._typing import Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.rankers.boosting import BoostedTrees, PointwiseGBDT
from crowdrank.rankers.ensemble import standardize_within_query
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import RankingData, id_column, query_codes, select_features

N_TREES = 500
"""Default number of trees of a distilled forest."""
MIN_DISTILLATION_CELLS = 2_000_000
"""Number of cells (rows times features) below which rows with mixed features are added to the training data."""
MAX_MIXED_ROWS_PER_ROW = 40
"""Maximum number of mixed rows that are added per original row."""


def distill(
    ranker: Ranker,
    X: Any,
    query: Any = None,
    *,
    n_trees: int = N_TREES,
    learning_rate: float = 0.1,
    num_leaves: int = 31,
    n_jobs: int | None = None,
    random_state: int = 0,
    progress: bool | Report = False,
) -> BoostedTrees:
    """Return one forest that ranks documents as a ranker does.

    The forest is fitted to the scores of the ranker, standardized within each query, by the squared error within
    queries. Labels are not used, so that any documents with features serve. If there are few of them, rows are added
    whose features are mixed from two rows: the ranker can score them too, and more rows make a better imitation. A
    ranker that is a single forest is returned as it is.

    Args:
        ranker: a fitted ranker.
        X: features, as for `Ranker.predict`.
        query: id of the query of each row; not needed if X has it.
        n_trees: number of trees.
        learning_rate, num_leaves: as in LightGBM.
        n_jobs: number of threads.
        random_state: random seed.
        progress: show a progress bar, or call a function with (iteration, n_iterations, nan).

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> pair = crowdrank.Ensemble().fit(world.features, world.gold["grade"])
    >>> forest = distill(pair, world.features, n_trees=100)
    >>> scores = pair.predict(world.features), forest.predict(world.features)
    >>> rank_correlation(*scores, world.features["query"]) > 0.8
    True

    """
    ranker._require_fitted()
    if isinstance(ranker, BoostedTrees):
        return ranker
    matrix = select_features(X, ranker.features_)
    query = id_column(X, "query") if query is None else query
    if query is None:
        raise UsageError("is missing; give the query of each row", parameter="query", kind="no-query")
    codes = np.unique(query_codes(query, len(matrix)), return_inverse=True)[1]
    if (np.diff(codes) < 0).any():
        order = np.argsort(codes, kind="stable")
        matrix, codes = matrix[order], codes[order]
    matrix, codes = add_mixed_rows(matrix, codes, np.random.default_rng(random_state))
    target = standardize_within_query(ranker._score(matrix, codes), codes)
    names = ranker.features_ if ranker._has_feature_names else None
    forest = PointwiseGBDT(
        within_query=True,
        n_estimators=n_trees,
        learning_rate=learning_rate,
        num_leaves=num_leaves,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    with reporting(progress, "distillation") as report:
        return forest._fit_data(RankingData.from_codes(matrix, target, codes, names=names), None, report)


def add_mixed_rows(matrix: Floats, query: Integers, rng: np.random.Generator) -> tuple[Floats, Integers]:
    """Append copies of all rows in which a random half of the features is from another random row.

    Copies are added until there are about `MIN_DISTILLATION_CELLS` cells, at most `MAX_MIXED_ROWS_PER_ROW` per row.
    The rows of a query form a new query in each copy; the other row can be of any query.

    Args:
        matrix: (n, n_features).
        query: (n,) numbers of queries from 0 up.
        rng: random generator.

    >>> matrix, query = add_mixed_rows(np.arange(6.0).reshape(3, 2), np.array([0, 0, 1]), np.random.default_rng(0))
    >>> matrix.shape, query[:7].tolist()
    ((123, 2), [0, 0, 1, 2, 2, 3, 4])

    """
    n, n_queries = len(matrix), int(query.max()) + 1
    n_copies = min(MAX_MIXED_ROWS_PER_ROW, max(0, round(MIN_DISTILLATION_CELLS / matrix.size) - 1))
    if not n_copies:
        return matrix, query
    parts, queries = [matrix], [query]
    for copy in range(1, n_copies + 1):
        from_other = rng.random(matrix.shape) < 0.5
        parts.append(np.where(from_other, matrix[rng.integers(0, n, n)], matrix))
        queries.append(query + copy * n_queries)
    return np.vstack(parts), np.concatenate(queries)


def rank_correlation(first: Floats, second: Floats, query: Any) -> float:
    """Return the mean over queries of Kendall's tau-b between two scores; NaN if no query has two different scores.

    >>> rank_correlation(np.array([3.0, 2.0, 1.0]), np.array([5.0, 9.0, 1.0]), np.array([0, 0, 0]))
    0.333...
    """
    codes = query_codes(query, len(first))
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    values = [kendalltau(first[rows], second[rows]).statistic for rows in groups if len(rows) > 1]
    defined = [value for value in values if value == value]
    return float(np.mean(defined)) if defined else float("nan")
