"""Feature extension: the output of each tree of a pointwise GBDT as a feature (REMAP 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crowdrank._folders import Fields, FolderKind, require
from crowdrank._progress import Report, reporting
from crowdrank._saved_estimators import FittedEstimator
from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.errors import Fix, InputError
from crowdrank.rankers.boosting import BoostedTrees, PointwiseGBDT, prediction_threads
from crowdrank.rankers.ranker import N_JOBS, STATE_FILE, Ranker, SavedState
from crowdrank.rankers.training_data import RankingData, Standardizer, select_features


class TreeFeatures(FittedEstimator):
    """Transformer to the standardized outputs of the trees of a pointwise GBDT (REMAP 5.2).

    Ustinovskiy, Fedorova, Gusev, Serdyukov 2016: An Optimization Framework for Remapping and Reweighting Noisy
    Relevance Labels (SIGIR).

    The trees are fitted to noisy labels, and by default their outputs on the training rows are in-sample, as in the
    paper. With `folds`, `fit_transform` cross-fits them: the trees keep their splits, but for the queries of each fold
    the values of leaves are estimated from the other queries. A column thus means the same in and out of the fold. The
    splits have seen all labels.

    Args:
        n_trees: number of trees.
        num_leaves, learning_rate, min_child_samples: parameters of the trees, as in LightGBM.
        folds: number of folds of queries for cross-fitting; 0 for in-sample outputs.
        n_jobs: number of threads.
        random_state: random seed of the trees and folds.

    Attributes:
        trees_: the fitted `PointwiseGBDT`.
        n_trees_: number of trees.
        features_: names of the features.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=10, random_state=1)
    >>> transformer = TreeFeatures(30).fit(world.features, world.gold["grade"])
    >>> transformer.transform(world.features).shape
    (219, 30)

    """

    _folder: ClassVar[FolderKind] = FolderKind("tree-features", 1, "saved TreeFeatures", "save")
    _file: ClassVar[str] = STATE_FILE
    _parameter_constraints: ClassVar[Constraints] = {
        "n_trees": [Number(1, integer=True)],
        "num_leaves": [Number(2, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "min_child_samples": [Number(1, integer=True)],
        "folds": [OneOf(0), Number(2, integer=True)],
        "random_state": [Number(0, integer=True)],
        **N_JOBS,
    }

    trees_: BoostedTrees
    standardizer_: Standardizer

    def __init__(
        self,
        n_trees: int = 300,
        *,
        num_leaves: int = 8,
        learning_rate: float = 0.1,
        min_child_samples: int = 20,
        folds: int = 0,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_trees = n_trees
        self.num_leaves = num_leaves
        self.learning_rate = learning_rate
        self.min_child_samples = min_child_samples
        self.folds = folds
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def n_trees_(self) -> int:
        """Number of trees."""
        return self.trees_.best_iteration_

    @property
    def features_(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.trees_.features_

    def fit(self, features: Any, label: Any, query: Any = None, sample_weight: Any = None) -> Self:
        """Fit the trees.

        Args:
            features: a matrix, a DataFrame or `Features`.
            label: grades or other numbers, (n,), or probabilities of grades, (n, n_grades).
            query: query of each row; only cross-fitting needs it.
            sample_weight: weights, (n,).

        """
        self.fit_transform(features, label, query, sample_weight)
        return self

    def fit_transform(self, features: Any, label: Any, query: Any = None, sample_weight: Any = None) -> Floats:
        """Fit the trees and return their standardized outputs on the training rows, (n, n_trees)."""
        if query is None and self.folds == 0:
            query = np.zeros(len(features), np.int64)
        data = RankingData.from_ids(features, label, query, sample_weight)
        with reporting(False, type(self).__name__) as report:
            outputs = self._fit_data(data, data.grade, report)
        in_input_order = np.empty_like(outputs)
        in_input_order[data.order] = outputs
        return in_input_order

    def _fit_data(self, data: RankingData, target: Floats, report: Report) -> Floats:
        """Fit the trees to a target (n,); return their standardized outputs on the rows of the data."""
        self._check_parameters()
        trees = PointwiseGBDT(
            n_estimators=self.n_trees,
            num_leaves=self.num_leaves,
            learning_rate=self.learning_rate,
            min_child_samples=self.min_child_samples,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        self.trees_ = trees._fit_data(replace(data, grade=target, probabilities=None), None, report)
        outputs = self._cross_fitted(data, target) if self.folds else tree_outputs(self.trees_, data.features)
        self.standardizer_ = Standardizer.fit(outputs, data.weights)
        return self.standardizer_(outputs)

    def _cross_fitted(self, data: RankingData, target: Floats) -> Floats:
        n_queries = len(data.offsets) - 1
        if n_queries < self.folds:
            problem = f"there are fewer queries ({n_queries}) than folds ({self.folds})"
            raise InputError(problem, kind="few-queries", fix=Fix("lower {}", "folds"))
        fold = np.random.default_rng(self.random_state).permutation(n_queries) % self.folds
        leaves = tree_leaves(self.trees_, data.features)
        return cross_fitted_outputs(leaves, target, data.weights, fold[data.query], self.learning_rate)

    def transform(self, features: Any) -> Floats:
        """Return the standardized outputs of the trees, (n, n_trees)."""
        self._require_fitted()
        return self._transform(select_features(features, self.features_))

    def _transform(self, features: Floats) -> Floats:
        return self.standardizer_(tree_outputs(self.trees_, features))

    def first(self, n_trees: int) -> TreeFeatures:
        """Return the transformer with the first trees only, which equals one that was fitted with fewer trees."""
        self._require_fitted()
        trees = PointwiseGBDT(**{**self.trees_.get_params(), "n_estimators": n_trees})
        trees._set_trees(self.trees_.booster_, min(n_trees, self.n_trees_), [])
        trees.features_, trees._has_feature_names = self.features_, self.trees_._has_feature_names
        trees.feature_statistics_ = self.trees_.feature_statistics_
        made = self.unfitted().set_params(n_trees=n_trees)
        made.trees_, made.standardizer_ = trees, self.standardizer_.first(trees.best_iteration_)
        return made

    @classmethod
    def from_parts(cls, trees: Ranker, arrays: Arrays) -> TreeFeatures:
        """Return a transformer with fitted trees and saved means and scales; raise ValueError if they do not fit."""
        require(isinstance(trees, BoostedTrees), "its trees are not boosted trees")
        assert isinstance(trees, BoostedTrees)
        made = cls(trees.n_estimators)
        made.trees_, made.standardizer_ = trees, Standardizer.from_arrays(arrays, trees.best_iteration_)
        return made

    # Storage.

    @classmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        return (TreeFeatures,)

    def _write_state(self, folder: Path) -> dict[str, Any]:
        return SavedState({}, self.standardizer_.arrays, {}, {"trees": self.trees_}).write(folder)

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        state = SavedState.read(folder, fields, files)
        require("trees" in state.parts, "there are no trees")
        loaded = TreeFeatures.from_parts(state.parts["trees"], state.arrays)
        self.trees_, self.standardizer_ = loaded.trees_, loaded.standardizer_


def tree_leaves(trees: BoostedTrees, features: Floats) -> Integers:
    """Return the leaf of each row in each tree, (n, n_trees)."""
    n_trees, n_jobs = trees.best_iteration_, prediction_threads(trees.n_jobs, features.size)
    leaves = trees.booster_.predict(features, pred_leaf=True, num_iteration=n_trees, num_threads=n_jobs)
    return np.asarray(leaves.reshape(len(features), -1), dtype=np.int64)


def tree_outputs(trees: BoostedTrees, features: Floats) -> Floats:
    """Return the output of each tree, (n, n_trees); their sum is the score."""
    leaves = tree_leaves(trees, features)
    outputs = np.empty(leaves.shape)
    for tree in range(leaves.shape[1]):
        n_leaves = int(leaves[:, tree].max(initial=0)) + 1
        values = np.array([trees.booster_.get_leaf_output(tree, leaf) for leaf in range(n_leaves)])
        outputs[:, tree] = values[leaves[:, tree]]
    return outputs


def cross_fitted_outputs(
    leaves: Integers, target: Floats, weight: Floats, fold: Integers, learning_rate: float
) -> Floats:
    """Return outputs of trees with given leaves (n, n_trees) whose values are estimated without the row's own fold.

    For each fold, the trees are boosted again on the rows of the other folds, with the leaves fixed.
    """
    outputs = np.empty(leaves.shape)
    for number in range(fold.max() + 1):
        used, held_out = fold != number, fold == number
        start = np.average(target[used], weights=weight[used])
        score = np.full(len(target), start)
        for tree, leaf in enumerate(leaves.T):
            residual = (weight * (target - score))[used]
            mass = np.bincount(leaf[used], weight[used], minlength=leaf.max() + 1)
            total = np.bincount(leaf[used], residual, minlength=len(mass))
            values = learning_rate * np.divide(total, mass, out=np.zeros(len(mass)), where=mass > 0)
            score += values[leaf]
            outputs[held_out, tree] = values[leaf[held_out]]
        outputs[held_out, 0] += start  # as LightGBM, which adds the mean to its first tree
    return outputs
