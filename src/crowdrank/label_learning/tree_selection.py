"""Choice of the number of tree features on expert queries whose labels the trees have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats
from crowdrank.engine.passes import Engine
from crowdrank.label_learning.gradient_ascent import LabelRegression, fit_average_trees
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import ObjectiveSpec
from crowdrank.rankers.linear import AUTO_TREES
from crowdrank.rankers.training_data import NamedMatrix, RankingData, Standardizer
from crowdrank.rankers.tree_features import TreeFeatures

Texts = NDArray[np.object_]
TREE_FOLDS = 5
"""Maximum number of folds of expert queries on which numbers of trees are compared."""
RIDGE_STEP = 10.0
"""Factor by which the compared ridges extend beyond those of the remapper at both ends."""


class GradedQueries(Protocol):
    """Expert-graded rows, and the ids of their queries as text."""

    @property
    def data(self) -> RankingData:
        """The rows."""

    @property
    def queries(self) -> tuple[str, ...]:
        """Id of each query."""


@dataclass(frozen=True, eq=False)
class TreeSelection:
    """Comparison of numbers of tree features by least squares on the labels before anything is learned.

    The outputs of trees are closer to the labels that the trees were fitted to than to other labels of the same kind.
    On queries with such labels, validation would therefore choose too many trees. So the labels of each fold of expert
    queries are left out of the trees and of the least squares that rank the fold. If no expert query has labels, one
    fit serves all of them.

    Attributes:
        labels: features of the labels.
        X: features of the labeled documents.
        experts: expert-graded rows.
        objective: what the expert grades measure.
        trees: the transformer to fit.
        ridges: ridges to compare, relative to the sum of weights.
        random_state: seed of the folds.
        engine: where sums over documents are computed; by default in memory.

    """

    labels: LabelFeatures
    X: NamedMatrix
    experts: Sequence[GradedQueries]
    objective: ObjectiveSpec
    trees: TreeFeatures
    ridges: Sequence[float]
    random_state: int
    engine: Engine | None = None

    def measures(self, start: Floats) -> dict[int, float]:
        """Return the mean measure on the expert queries by the number of trees, each with its best ridge.

        Args:
            start: (n_labels,) targets of the labels.

        Raises:
            InputError: there are too few documents for trees (kind `few-rows`).

        """
        ridges = sorted({*self.ridges, min(self.ridges) / RIDGE_STEP, max(self.ridges) * RIDGE_STEP})
        scores = [np.empty((len(AUTO_TREES), len(ridges), len(part.data.grade))) for part in self.experts]
        for held_out in self._folds():
            rows = [np.isin(part.queries, held_out)[part.data.query] for part in self.experts]
            features = np.vstack([part.data.features[own] for part, own in zip(self.experts, rows, strict=True)])
            ranked = self._scores(start, self._kept(held_out), features, ridges)
            ends = np.cumsum([own.sum() for own in rows])[:-1]
            for score, own, part in zip(scores, rows, np.split(ranked, ends, axis=2), strict=True):
                score[:, :, own] = part
        values = [self._values(part, score) for part, score in zip(self.experts, scores, strict=True)]
        mean = np.average(values, axis=0, weights=[len(part.queries) for part in self.experts])
        return dict(zip(AUTO_TREES, mean.max(axis=1).tolist(), strict=True))

    def _folds(self) -> list[Texts]:
        """Return the ids of the queries of each fold; one fold if no expert query has labels."""
        graded = np.array(sorted({query for part in self.experts for query in part.queries}), dtype=object)
        if not self._is_labeled(graded).any():
            return [graded]
        order = np.random.default_rng(self.random_state).permutation(graded)
        n_folds = min(TREE_FOLDS, len(order))
        return [order[number::n_folds] for number in range(n_folds)]

    def _is_labeled(self, queries: Texts) -> Booleans:
        """Return which labels are of some queries, (n_labels,)."""
        judgments = self.labels.judgments
        is_chosen = np.isin(np.array(judgments.queries.cast(pa.string()).to_pylist(), dtype=object), queries)
        return np.asarray(is_chosen[judgments.item_query][self.labels.item])

    def _kept(self, held_out: Texts) -> Booleans:
        """Return which labels to fit to, (n_labels,): those of other queries, or all if there are no others."""
        keep = ~self._is_labeled(held_out)
        return keep if keep.any() else ~keep

    def _scores(self, start: Floats, keep: Booleans, features: Floats, ridges: Sequence[float]) -> Floats:
        """Return scores of rows, (n_counts, n_ridges, n_rows), by trees and least squares on the labels to keep."""
        labels = self.labels.where(keep)
        X = NamedMatrix(self.X.matrix[np.unique(self.labels.item[keep])], self.X.names)
        trees = fit_average_trees(labels, X, self.trees.unfitted())
        n_labels = np.diff(labels.judgments.offsets).astype(np.float64)
        extended = np.hstack([X.matrix, trees.transform(X)])
        standardizer = Standardizer.fit(extended, n_labels)
        V = standardizer(np.hstack([features, trees.transform(NamedMatrix(features, X.names))]))
        extended = standardizer(extended)
        weight, target = np.full(len(labels), 0.5), start[keep]
        scores = np.empty((len(AUTO_TREES), len(ridges), len(features)))
        for score, n_trees in zip(scores, AUTO_TREES, strict=True):
            n_columns = features.shape[1] + n_trees
            regression = LabelRegression(np.ascontiguousarray(extended[:, :n_columns]), labels.item, self.engine)
            for place, ridge in enumerate(ridges):
                regression.solve(target, weight, ridge * float(weight.sum()))
                score[place] = regression.predict(V[:, :n_columns])
        return scores

    def _values(self, part: GradedQueries, scores: Floats) -> Floats:
        """Return the measure of the scores of expert-graded rows, (n_counts, n_ridges)."""
        return np.apply_along_axis(self.objective.build_objective(part.data).value, 2, scores)
