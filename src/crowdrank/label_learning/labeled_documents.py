"""Features of the documents that a remapper is fitted to: labeled ones, and expert-graded ones for the gradients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.engine.base import Engine
from crowdrank.errors import DataWarning, InputError, shown
from crowdrank.judgments.features import Features
from crowdrank.label_learning.gls_gradients import LabelRegression
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import Objective, ObjectiveSpec
from crowdrank.rankers.labels import pair_positions
from crowdrank.rankers.ranking_data import NamedMatrix, RankingData
from crowdrank.rankers.standardize import Standardizer
from crowdrank.rankers.tree_features import TreeFeatures


class LabeledDocuments:
    """Standardized features of labeled documents and of expert-graded documents for training and validation.

    Args:
        labels: label features of the training labels.
        X: (n_documents, n_features) of the labeled documents.
        expert_parts: rows with expert grades for training and for validation.
        objective: objective to build for both.
        trees: fitted trees whose outputs extend all features, or None.
        engine: where sums over documents are computed; by default in memory.

    """

    def __init__(
        self,
        labels: LabelFeatures,
        X: Floats,
        expert_parts: Sequence[RankingData],
        objective: ObjectiveSpec,
        trees: TreeFeatures | None,
        engine: Engine | None,
    ) -> None:
        self.labels, self.trees, self.engine, self.n_features = labels, trees, engine, X.shape[1]
        X = self._extend(X)
        self.standardizer = Standardizer.fit(X, np.diff(labels.judgments.offsets).astype(np.float64))
        self._X = self.standardizer(X)
        self._experts = [(self.standardizer(self._extend(part.features)), objective.on(part)) for part in expert_parts]
        self._regressions: dict[int, LabelRegression] = {}

    def _extend(self, X: Floats) -> Floats:
        return X if self.trees is None else np.hstack([X, self.trees.transform(X)])

    def regression(self, n_trees: int) -> LabelRegression:
        """Return the least squares on the features and the first trees; the same object for each number."""
        if n_trees not in self._regressions:
            X = np.ascontiguousarray(self._X[:, : self.n_features + n_trees])
            self._regressions[n_trees] = LabelRegression(X, self.labels.item, self.engine)
        return self._regressions[n_trees]

    def experts(self, n_trees: int) -> list[tuple[Floats, Objective]]:
        """Return features and objective of the expert-graded rows for training and for validation."""
        return [(V[:, : self.n_features + n_trees], objective) for V, objective in self._experts]


def fit_average_trees(labels: LabelFeatures, X: NamedMatrix, trees: TreeFeatures) -> TreeFeatures:
    """Fit trees to the average label of each document, weighted by its number of labels (REMAP 5.2)."""
    judgments = labels.judgments
    n_labels = np.diff(judgments.offsets)
    average = np.add.reduceat(labels.start, judgments.offsets[:-1]) / n_labels
    return trees.fit(X, average, judgments.item_query, n_labels)


def with_document_features(labels: LabelFeatures, features: Features) -> tuple[LabelFeatures, Integers]:
    """Return the labels of documents that have features, and the row of features of each document."""
    table = labels.judgments
    query = table.queries.take(table.item_query)
    document = table.documents.take(table.item_document)
    row = pair_positions(features.query, features.document, query, document, "the features")
    missing = row < 0
    if missing.all():
        raise InputError(
            f"no judged document has features (the first one: document {shown(document[0].as_py())} of query "
            f"{shown(query[0].as_py())})",
            kind="no-features",
            fix="check that both files use the same ids of queries and documents",
        )
    if missing.any():
        n = int(missing.sum())
        warnings.warn(
            DataWarning(
                f"{counted(n, 'judged document')} without features {'is' if n == 1 else 'are'} skipped",
                kind="no-features",
            ),
            stacklevel=3,
        )
    return labels.where(~missing[labels.item]), row[~missing]
