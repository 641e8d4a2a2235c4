"""Feature extension: every tree of a forest as a feature more (REMAP 5.2)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import require
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf, Number, OneOf
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError
from crowdrank.rankers.base import N_JOBS, Ranker, constant_features_known
from crowdrank.rankers.lambdamart import BoostedTrees, LambdaMART, prediction_threads
from crowdrank.rankers.linear import GLS, Standard
from crowdrank.rankers.ranking_data import Lists, Named, aligned
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation

RIDGE = 1000.0
RIDGES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Of the linear ranker, where none is given."""


class TreeFeatures(Ranker):
    """A ranker over the features and, standardized, the output of every tree of another one.

    In-sample outputs of trees promise more than they keep, so that by default they are cross-fitted: the outputs that
    the ranker learns from come, for each fold of queries, from trees that did not see it (the n-th tree of one stands
    for the n-th tree of another); later ones come from trees that saw all. With `folds=0` they are in-sample, and with
    a `GLS(mu=0)` the error on the training rows is then never above that of the trees or of the plain features
    (REMAP's Proposition 1).

    Args:
        trees: the forest; a `LambdaMART` of 100 trees with 8 leaves by default.
        ranker: what learns from the extended features; by default a `GLS` with a strong ridge, or with the one that
            validation queries choose: the outputs of trees are many and alike.
        folds: of queries, for cross-fitting; 0 for in-sample outputs.
        n_jobs: of the forest by default; one that is given has its own.
        random_state: of the folds.

    Attributes:
        trees_, ranker_: the fitted ones.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=10, random_state=1)
    >>> X, gold = world.features.drop(columns=["query", "document"]), world.gold
    >>> forest = LambdaMART(n_estimators=10, num_leaves=8)
    >>> ranker = TreeFeatures(forest, folds=2).fit(X, gold["grade"], query=gold["query"])
    >>> ranker.transform(X).shape
    (219, 30)
    """

    trees_: BoostedTrees
    ranker_: Ranker
    standard_: Standard

    _parameter_constraints: ClassVar[Constraints] = {
        "trees": [InstanceOf(BoostedTrees, "a ranker of boosted trees"), None],
        "ranker": [InstanceOf(Ranker, "a ranker"), None],
        "folds": [OneOf(0), Number(2, integer=True)],
        **N_JOBS,
    }

    def __init__(
        self,
        trees: BoostedTrees | None = None,
        ranker: Ranker | None = None,
        *,
        folds: int = 5,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.trees = trees
        self.ranker = ranker
        self.folds = folds
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        with constant_features_known():
            self._extend(lists, None if validation is None else validation.lists, report)

    def _extend(self, lists: Lists, known: Lists | None, report: Report) -> None:
        forest = self.trees if self.trees is not None else LambdaMART(num_leaves=8, n_jobs=self.n_jobs)
        held_out = None if known is None else (known.named(), known.labels, known.query)
        self.trees_ = _fitted(forest, lists, held_out, report)
        self.trees_.validation_queries_ = self.validation_queries_
        outputs = tree_outputs(self.trees_, lists.X)
        if self.folds:
            outputs = cross_fitted(
                forest, lists, outputs.shape[1], folds=self.folds, random_state=self.random_state, report=report
            )
        weight = np.ones(len(lists.y)) if lists.weight is None else lists.weight
        self.standard_ = Standard.of(outputs, weight)
        rows = np.hstack([lists.X, self.standard_(outputs)])
        extended = Named(rows, _extended_names(lists, outputs))
        later = None if known is None else (self._extended(known.X), known.labels, known.query)
        self.ranker_ = (self.ranker or GLS(RIDGE if known is None else RIDGES)).unfitted()
        self.ranker_.fit(extended, lists.labels, query=lists.query, sample_weight=lists.weight, eval_set=later)
        self.history_, self.ranker_.validation_queries_ = self.ranker_.history_, self.validation_queries_
        n, of_trees = lists.X.shape[1], self.ranker_.importances_[lists.X.shape[1] :].sum()
        # What counts in a tree are the features that it asks for.
        self.importances_ = self.ranker_.importances_[:n] + of_trees * self.trees_.importances_

    def transform(self, X: Any) -> Floats:
        """The features and the standardized outputs of the trees: (n, n_features + n_trees)."""
        self._require_fitted()
        return self._extended(aligned(X, self.features_))

    def _extended(self, X: Floats) -> Floats:
        return np.hstack([X, self.standard_(tree_outputs(self.trees_, X))])

    def _score(self, X: Floats, query: Any = None) -> Floats:
        return self.ranker_.predict(self._extended(X))

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "trees": None, "ranker": None}

    def _state(self) -> State:
        arrays = {"mean": self.standard_.mean, "scale": self.standard_.scale, "importances": self.importances_}
        return State({}, arrays, {}, {"trees": self.trees_, "ranker": self.ranker_})

    def _restore(self, state: State) -> None:
        trees = state.parts["trees"]
        if not isinstance(trees, BoostedTrees):
            raise TypeError("its trees are none")
        self.trees_, self.ranker_ = trees, state.parts["ranker"]
        self.trees, self.ranker = self.trees_, self.ranker_
        n_trees = self.trees_.best_iteration_
        self.standard_ = Standard.of_arrays(state.arrays, n_trees)
        require(self.trees_.features_ == self.features_, "its trees have other features")
        n_extended = self.n_features_in_ + n_trees
        require(self.ranker_.n_features_in_ == n_extended, "its ranker has another number of features")


def _extended_names(lists: Lists, outputs: Floats) -> tuple[str, ...]:
    return (*lists.names, *(f"tree {number + 1}" for number in range(outputs.shape[1])))


def _fitted(forest: BoostedTrees, lists: Lists, held_out: Any, report: bool | Report) -> BoostedTrees:
    told: dict[str, Any] = {"query": lists.query, "sample_weight": lists.weight, "eval_set": held_out}
    return forest.unfitted().fit(lists.named(), lists.labels, **told, progress=report)


def cross_fitted(
    forest: BoostedTrees, lists: Lists, n_trees: int, *, folds: int, random_state: int, report: bool | Report = False
) -> Floats:
    """The outputs of trees for queries that they did not see: (n, n_trees), in the order of the lists' rows."""
    n_queries = len(lists.offsets) - 1
    if n_queries < folds:
        raise InputError(f"there are fewer queries ({n_queries}) than folds ({folds})", fix="lower folds")
    fold = np.random.default_rng(random_state).permutation(n_queries) % folds
    outputs = np.zeros((len(lists.y), n_trees))
    for number in range(folds):
        seen = lists.of_queries(np.flatnonzero(fold != number))
        # As many trees as the whole forest has, so that each has its counterpart.
        trees = _fitted(forest.unfitted().set_params(n_estimators=n_trees), seen, None, report)
        unseen = (fold == number)[lists.query]
        found = tree_outputs(trees, lists.X[unseen])
        outputs[unseen, : found.shape[1]] = found
    return outputs


def tree_outputs(trees: BoostedTrees, X: Floats) -> Floats:
    """The output of each tree, (n, n_trees); their sum is the score."""
    n_trees = trees.best_iteration_
    n_jobs = prediction_threads(trees.n_jobs, X.size)
    leaves = trees.booster_.predict(X, pred_leaf=True, num_iteration=n_trees, num_threads=n_jobs)
    leaves = leaves.reshape(len(X), -1)
    outputs = np.empty(leaves.shape)
    for tree in range(leaves.shape[1]):
        n_leaves = int(leaves[:, tree].max(initial=0)) + 1
        values = np.array([trees.booster_.get_leaf_output(tree, leaf) for leaf in range(n_leaves)])
        outputs[:, tree] = values[leaves[:, tree]]
    return outputs
