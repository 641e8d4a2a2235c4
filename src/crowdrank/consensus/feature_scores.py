"""Predict relevance from features of documents by regressions that are cross-fitted over queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.engine.shards import MAX_SCORE, ItemScores
from crowdrank.errors import DataWarning, Fix
from crowdrank.judgments import ids
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import AssessorTable, Judgments, assessor_fields
from crowdrank.on_disk.sharded import ShardedJudgments
from crowdrank.readers.features import Features

MIN_LABELED = 20
"""Minimum number of labeled documents with features; with fewer, features are not used."""
MIN_PERMUTATION_Z = 1.645 * 2**0.5
"""Minimum z-score of predictions of labels of other queries, the 5% level; below it, features are not used.

Without any relation, each pair of documents in different folds enters the covariance twice: the label of one helps to
predict the other, and vice versa. Its variance is therefore up to twice that under permutation.
"""
MIN_TREE_ROWS = 500
"""Minimum number of labeled documents for boosted trees; with fewer, or with one feature, the regression is linear."""
N_FOLDS = 5
"""Maximum number of folds of queries."""
N_TREES = 150
TREE_PARAMETERS = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.05,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
RIDGE_PENALTIES: Floats = 10.0 ** np.arange(-4.0, 3.0)
"""Candidate ridge penalties, in multiples of the number of rows; generalized cross-validation chooses one."""
Predictor = Callable[[Floats], Floats]
"""Function from a feature matrix, (n, n_features), to predictions, (n,)."""


def usable_features(
    features: Features, judgments: Judgments | ShardedJudgments
) -> tuple[UsableFeatures | None, tuple[DataWarning, ...]]:
    """Return the features prepared for the regression, or None if they cannot be used; and warnings about them."""
    found: list[DataWarning] = []
    index = features.pair_index
    group = query_codes(features.query)
    matrix = scale_within_groups(features.matrix, group)
    rows = feature_rows(index, judgments)
    n_items, n_known = judgments.n_items, int(sum((part >= 0).sum() for part in rows))
    useful: Booleans = np.fmax.reduce(matrix) > np.fmin.reduce(matrix)  # False without a value
    if not useful.all():
        found.append(
            _constant_features_warning([name for name, use in zip(features.names, useful, strict=True) if not use])
        )
    if n_known < MIN_LABELED:
        found.append(_few_documents_warning(n_known))
    if n_known < MIN_LABELED or not useful.any():
        return None, tuple(found)
    if n_known < n_items:
        found.append(_incomplete_features_warning(n_items - n_known, n_items))
    missing = np.isnan(matrix[:, useful])
    if missing.any():
        found.append(_missing_values_warning(int(missing.sum()), missing.size))
    if judgments.n_queries == 1:
        found.append(_one_query_warning())
    names = tuple(name for name, use in zip(features.names, useful, strict=True) if use)
    kept = replace(features, matrix=features.matrix[:, useful], names=names)
    return UsableFeatures(kept, matrix[:, useful], group, rows, tuple(found)), tuple(found)


@dataclass(frozen=True, eq=False)
class UsableFeatures:
    """Features prepared for the regression, with the rows of the judged documents.

    Attributes:
        features: the features, without constant columns.
        matrix: the features scaled to 0-1 within queries, (n, n_features).
        group: query of each row as a number, (n,).
        rows: for each shard of the judgments, the row of each of its items in `matrix`, -1 without features.
        warnings: warnings about problems of the features.

    """

    features: Features
    matrix: Floats
    group: Integers
    rows: tuple[Integers, ...]
    warnings: tuple[DataWarning, ...]

    def rows_of(self, judgments: Judgments | ShardedJudgments) -> tuple[Integers, ...]:
        """Return the row of each item in `matrix`, one array per shard; -1 without features."""
        return feature_rows(self.features.pair_index, judgments)

    def learn_scores(self, relevance: Floats, seed: int) -> FeatureScores:
        """Return cross-fitted predictions of relevance, standardized over labeled documents, at most +-`MAX_SCORE`.

        Args:
            relevance: relevance of each item estimated from its labels alone, (n_items,).
            seed: random seed of folds and trees.

        """
        target = self._relevance_by_row(relevance)
        score = cross_fit(self.matrix, center_within_groups(target, self.group), self.group, seed)
        labeled = ~np.isnan(target)
        mean, sd = score[labeled].mean(), score[labeled].std()
        standardized = (score - mean) / sd if sd > 1e-9 else np.zeros(len(score))
        features = self.features
        clipped = np.clip(standardized, -MAX_SCORE, MAX_SCORE)
        return FeatureScores(features.query, features.document, clipped, features.names)

    def are_predictive(self, scores: FeatureScores, relevance: Floats) -> bool:
        """Return whether predictions correlate significantly with relevance within queries (permutation test)."""
        return permutation_z_score(scores.score, self._relevance_by_row(relevance), self.group) > MIN_PERMUTATION_Z

    def _relevance_by_row(self, relevance: Floats) -> Floats:
        """Return the relevance of each row of the features, from that of each item; NaN for rows without labels."""
        item_rows = np.concatenate(self.rows)
        target = np.full(len(self.matrix), np.nan)
        target[item_rows[item_rows >= 0]] = relevance[item_rows >= 0]
        return target


@dataclass(frozen=True, eq=False)
class FeatureScores:
    """Cross-fitted predictions of relevance from features, one per document with features.

    Attributes:
        query: query ids, (n,).
        document: document ids, (n,).
        score: prediction for each document, (n,); mean 0 and variance 1 over labeled documents.
        names: names of the features that were used.

    """

    query: pa.Array
    document: pa.Array
    score: Floats
    names: tuple[str, ...]

    def for_items(self, judgments: Judgments | ShardedJudgments) -> ItemScores:
        """Return the prediction for each item, one array per shard of the judgments; NaN for items without features."""
        return self.for_rows(feature_rows(PairIndex.from_ids(self.query, self.document), judgments))

    def for_rows(self, rows: Iterable[Integers]) -> ItemScores:
        """Return the predictions of the given rows, one array per shard; NaN for row -1."""
        return tuple(np.where(part >= 0, self.score[part], np.nan) for part in rows)

    def without_labels(self, judgments: Judgments | ShardedJudgments) -> FeatureScores:
        """Return the predictions for documents without judgments, sorted by query."""
        known = np.zeros(len(self.score), dtype=bool)
        for rows in feature_rows(PairIndex.from_ids(self.query, self.document), judgments):
            known[rows[rows >= 0]] = True
        rows = np.flatnonzero(~known)
        rows = rows[np.argsort(query_codes(self.query)[rows], kind="stable")]
        return FeatureScores(self.query.take(rows), self.document.take(rows), self.score[rows], self.names)

    def as_items(self, table: AssessorTable) -> Judgments:
        """Return `Judgments` with these documents as items, the assessors of `table` and no judgments."""
        (query, queries), (document, documents) = (
            ids.encode(pa.chunked_array([one])) for one in (self.query, self.document)
        )
        return Judgments(
            **assessor_fields(table),
            queries=queries,
            documents=documents,
            item_query=query,
            item_document=document,
            offsets=np.zeros(len(query) + 1, np.int64),
            assessor=np.zeros(0, np.int32),
            grade=np.zeros(0, np.int8),
        )


def query_codes(query: pa.Array) -> Integers:
    """Return an integer code of the query of each row, in the order of first appearance."""
    return ids.encode(pa.chunked_array([query]))[0].astype(np.int64)


def feature_rows(index: PairIndex, judgments: Judgments | ShardedJudgments) -> tuple[Integers, ...]:
    """Return the row of each item in an index of (query, document), one array per shard; -1 if it is not there."""
    return tuple(
        index.positions((part.item_query, part.queries), (part.item_document, part.documents))
        for part in judgments.iterate()
    )


def _constant_features_warning(names: list[str]) -> DataWarning:
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return DataWarning(
        f"{counted(len(names), 'feature')} with at most one value within each query left out: {listed}",
        kind="constant-features",
        fix="give features that differ between the documents of a query",
    )


def _few_documents_warning(n: int) -> DataWarning:
    return DataWarning(
        f"Features are not used: {counted(n, 'labeled document')} have some, fewer than {MIN_LABELED}",
        kind="few-labeled-documents",
        fix=[Fix("label more documents"), Fix("check that both use the same ids of queries and documents")],
    )


def useless_features_warning() -> DataWarning:
    """Return the warning that the features do not predict the labels of other queries and are not used."""
    return DataWarning(
        "Features are not used: they do not predict the labels of other queries",
        kind="useless-features",
        fix=[Fix("give other features"), Fix("label more documents")],
    )


def _incomplete_features_warning(n_missing: int, n_items: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n_items:,} labeled documents have no features; their prior is the one without features",
        kind="incomplete-features",
        fix="give the features of all documents",
    )


def _missing_values_warning(n_missing: int, n: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n:,} values of features are missing; the regression treats 'missing' as a value of its own",
        kind="missing-features",
        fix="fill them if you know what they stand for",
    )


def _one_query_warning() -> DataWarning:
    return DataWarning(
        "All labels are of one query, so that the regression leaves out documents instead of whole queries",
        kind="one-query",
        fix="label documents of several queries",
    )


def cross_fit(matrix: Floats, target: Floats, group: Integers, seed: int) -> Floats:
    """Return a prediction for each row, (n,), from a regression that was fitted without the fold of its group.

    If only one group has targets, folds consist of rows instead of groups. Rows in no fold get the mean prediction of
    the regressions of all folds.

    Args:
        matrix: features, (n, n_features).
        target: targets, (n,); NaN for rows without one.
        group: group of each row, (n,).
        seed: random seed of folds and trees.

    """
    labeled = ~np.isnan(target)
    fold = assign_folds(group, labeled, seed)
    n_folds = int(fold.max()) + 1
    learn = fit_ridge if matrix.shape[1] == 1 or labeled.sum() < MIN_TREE_ROWS else fit_trees
    scores = np.zeros(len(target))
    for number in range(n_folds):
        train = labeled & (fold != number)
        predict = learn(matrix[train], target[train], seed)
        held_out, outside = fold == number, fold < 0
        scores[held_out] = predict(matrix[held_out])
        scores[outside] += predict(matrix[outside]) / n_folds if outside.any() else 0.0
    return scores


def assign_folds(group: Integers, labeled: Booleans, seed: int) -> Integers:
    """Return the fold of each row, (n,): of whole groups, or of rows if only one group is labeled; -1: no fold."""
    units = group if len(np.unique(group[labeled])) > 1 else np.arange(len(group))
    used = np.unique(units[labeled])
    fold_of = np.full(int(units.max()) + 1, -1, np.int64)
    fold_of[np.random.default_rng(seed).permutation(used)] = np.arange(len(used)) % min(N_FOLDS, len(used))
    return fold_of[units]


def scale_within_groups(matrix: Floats, group: Integers) -> Floats:
    """Return columns scaled to 0-1 within groups; columns that are constant in a group are 0 there.

    >>> scale_within_groups(np.array([[1.0], [3.0], [2.0], [7.0]]), np.array([0, 0, 0, 1])).ravel().tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(group))))
    ordered = np.where(np.isfinite(matrix[order]), matrix[order], np.nan)
    low, high = (reduce.reduceat(ordered, starts, axis=0)[place] for reduce in (np.fmin, np.fmax))
    scaled = np.empty(matrix.shape)
    scaled[order] = (ordered - low) / np.where(high > low, high - low, 1.0)
    return scaled


def center_within_groups(target: Floats, group: Integers) -> Floats:
    """Return targets minus the mean of their group; NaN stays NaN.

    >>> center_within_groups(np.array([1.0, 3.0, np.nan, 5.0]), np.array([0, 0, 0, 1])).tolist()
    [-1.0, 1.0, nan, 0.0]
    """
    known = ~np.isnan(target)
    count = np.bincount(group, known)
    mean = np.bincount(group, np.where(known, target, 0.0)) / np.maximum(count, 1)
    return target - mean[group]


def permutation_z_score(score: Floats, target: Floats, group: Integers) -> float:
    """Return the z-score of the covariance of scores and targets within groups, under permutation of scores in groups.

    Rows without a target (NaN) are left out.

    >>> target = np.array([1.0, 2.0, 3.0, np.nan])
    >>> round(permutation_z_score(np.array([0.0, 1.0, 2.0, 5.0]), target, np.zeros(4, np.int64)), 3)
    1.414
    """
    known = ~np.isnan(target)
    group = group[known]
    score, target = (center_within_groups(values[known], group) for values in (score, target))
    squares = np.bincount(group, score**2) * np.bincount(group, target**2)
    variance = (squares / np.maximum(np.bincount(group) - 1, 1)).sum()
    return float(score @ target / np.sqrt(max(variance, 1e-300)))


def fit_trees(matrix: Floats, target: Floats, seed: int) -> Predictor:
    """Fit boosted regression trees (LightGBM); return their prediction function."""
    import lightgbm

    leaf = min(50, len(target) // 20)
    parameters = {**TREE_PARAMETERS, "min_data_in_leaf": leaf, "seed": seed}
    booster = lightgbm.train(parameters, lightgbm.Dataset(matrix, target), N_TREES)
    return lambda rows: np.asarray(booster.predict(rows, num_threads=1), np.float64)


def fit_ridge(matrix: Floats, target: Floats, seed: int = 0) -> Predictor:
    """Fit a ridge regression; return its prediction function.

    Missing values are replaced by the mean of the column, and an indicator column is added. `seed` is not used.
    """
    missing = np.asarray(np.isnan(matrix).any(axis=0))
    with_indicators = _add_missing_indicators(matrix, missing)
    mean = np.nanmean(np.where(np.isnan(with_indicators).all(axis=0), 0.0, with_indicators), axis=0)
    filled = np.where(np.isnan(with_indicators), mean, with_indicators) - mean
    sd = np.maximum(filled.std(axis=0), 1e-12)
    u, singular, vt = np.linalg.svd(filled / sd, full_matrices=False)
    centered = target - target.mean()
    along = u.T @ centered
    n = len(target)

    def validation_error(penalty: float) -> float:
        shrink = singular**2 / (singular**2 + n * penalty)
        residual = centered - u @ (shrink * along)
        return float(residual @ residual / (1 - (shrink.sum() + 1) / n) ** 2) if shrink.sum() + 1 < n else np.inf

    penalty = min(RIDGE_PENALTIES, key=validation_error)
    coefficients = vt.T @ (singular / (singular**2 + n * penalty) * along) / sd

    def predict(rows: Floats) -> Floats:
        columns = _add_missing_indicators(rows, missing)
        return np.asarray(np.where(np.isnan(columns), 0.0, columns - mean) @ coefficients + target.mean())

    return predict


def _add_missing_indicators(matrix: Floats, has_missing: Booleans) -> Floats:
    return np.column_stack([matrix, np.isnan(matrix[:, has_missing]).astype(np.float64)])
