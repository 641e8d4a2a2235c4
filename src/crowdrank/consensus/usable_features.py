"""Check the features of a fit, and predict relevance from those that are usable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.feature_regression import center_within, cross_fit, permutation_z, scale_within
from crowdrank.consensus.feature_scores import MAX_SCORE, FeatureScores, feature_rows, query_codes
from crowdrank.errors import DataWarning, Fix
from crowdrank.judgments.features import Features, require_unique
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

MIN_LABELED = 20
"""Minimum number of labeled documents with features; with fewer, features are not used."""
MIN_Z = 1.645
"""Minimum z-score of predictions of labels of other queries, the 5% level; below it, features are not used."""


@dataclass(frozen=True, eq=False)
class UsableFeatures:
    """Usable features of a fit, and the rows of the labeled documents.

    Attributes:
        features: the features, without constant columns.
        matrix: the features scaled to 0-1 within queries, (n, n_features).
        group: query of each row as a number, (n,).
        rows: row of each item of the judgments (of each shard), -1 without features.
        warnings: problems of the features, with the fallback that is used.

    """

    features: Features
    matrix: Floats
    group: Integers
    rows: tuple[Integers, ...]
    warnings: tuple[DataWarning, ...]

    def learn_scores(self, relevance: Floats, seed: int) -> FeatureScores:
        """Return predictions from a regression on other folds.

        Args:
            relevance: relevance of each item that its labels alone imply, (n_items,).
            seed: random seed of folds and trees.

        """
        target = self._on_rows(relevance)
        score = cross_fit(self.matrix, center_within(target, self.group), self.group, seed)
        labeled = ~np.isnan(target)
        mean, sd = score[labeled].mean(), score[labeled].std()
        standardized = (score - mean) / sd if sd > 1e-9 else np.zeros(len(score))
        features = self.features
        clipped = np.clip(standardized, -MAX_SCORE, MAX_SCORE)
        return FeatureScores(features.query, features.document, clipped, features.names)

    def are_predictive(self, scores: FeatureScores, relevance: Floats) -> bool:
        """Return whether predictions agree with relevance within queries by more than chance (permutation test)."""
        return permutation_z(scores.score, self._on_rows(relevance), self.group) > MIN_Z

    def _on_rows(self, relevance: Floats) -> Floats:
        """Return the relevance of each row of the features, from that of each item; NaN for rows without labels."""
        item_rows = np.concatenate(self.rows)
        target = np.full(len(self.matrix), np.nan)
        target[item_rows[item_rows >= 0]] = relevance[item_rows >= 0]
        return target


def usable_features(
    features: Features, judgments: Judgments | ShardedJudgments
) -> tuple[UsableFeatures | None, tuple[DataWarning, ...]]:
    """Return the features as the regression uses them, or None if they cannot be used, and warnings."""
    found: list[DataWarning] = []
    require_unique(features)
    group = query_codes(features.query)
    matrix = scale_within(features.matrix, group)
    rows = feature_rows(features.query, features.document, judgments)
    n_items, n_known = judgments.n_items, int(sum((part >= 0).sum() for part in rows))
    useful: Booleans = np.fmax.reduce(matrix) > np.fmin.reduce(matrix)  # False without a value
    if not useful.all():
        found.append(_constant_features([name for name, use in zip(features.names, useful, strict=True) if not use]))
    if n_known < MIN_LABELED:
        found.append(_few_documents(n_known))
    if n_known < MIN_LABELED or not useful.any():
        return None, tuple(found)
    if n_known < n_items:
        found.append(_incomplete_features(n_items - n_known, n_items))
    missing = np.isnan(matrix[:, useful])
    if missing.any():
        found.append(_missing_values(int(missing.sum()), missing.size))
    if judgments.n_queries == 1:
        found.append(_one_query())
    names = tuple(name for name, use in zip(features.names, useful, strict=True) if use)
    kept = replace(features, matrix=features.matrix[:, useful], names=names)
    return UsableFeatures(kept, matrix[:, useful], group, rows, tuple(found)), tuple(found)


def _constant_features(names: list[str]) -> DataWarning:
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return DataWarning(
        f"{counted(len(names), 'feature')} with at most one value within each query left out: {listed}",
        kind="constant-features",
        fix="give features that differ between the documents of a query",
    )


def _few_documents(n: int) -> DataWarning:
    return DataWarning(
        f"Features are not used: {counted(n, 'labeled document')} have some, fewer than {MIN_LABELED}",
        kind="few-labeled-documents",
        fix=[Fix("label more documents"), Fix("check that both use the same ids of queries and documents")],
    )


def useless_features() -> DataWarning:
    """Return the warning about features that do not predict labels."""
    return DataWarning(
        "Features are not used: they do not predict the labels of other queries",
        kind="useless-features",
        fix=[Fix("give other features"), Fix("label more documents")],
    )


def _incomplete_features(n_missing: int, n_items: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n_items:,} labeled documents have no features; their prior is the one without features",
        kind="incomplete-features",
        fix="give the features of all documents",
    )


def _missing_values(n_missing: int, n: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n:,} values of features are missing; the regression treats 'missing' as a value of its own",
        kind="missing-features",
        fix="fill them if you know what they stand for",
    )


def _one_query() -> DataWarning:
    return DataWarning(
        "All labels are of one query, so that the regression leaves out documents instead of whole queries",
        kind="one-query",
        fix="label documents of several queries",
    )
