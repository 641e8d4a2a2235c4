"""Boosted trees from label features to targets and weights (MGBDT Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, Number, SequenceOf
from crowdrank.label_learning.gradient_ascent import (
    STANDARD_ERRORS,
    GridLimits,
    LabelFunctions,
    LearnedFunctions,
    Settings,
    sigmoid,
)
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import Loss
from crowdrank.label_learning.remapper import Remapper
from crowdrank.rankers.boosting import check_trees, import_lightgbm, tree_importances
from crowdrank.rankers.ranker import SavedState, divide_by_sum

MAX_BINS = 255
"""Maximum number of bins of a label feature."""
MAX_DEPTH = 8
"""Maximum depth of a tree."""
ROLES = ("target", "weight")
"""Names of the two saved sums of trees."""


class BoostedRemapper(Remapper):
    """Targets that are sums of trees over label features, and weights that are sigmoids of such sums.

    Every step fits one regression tree (LightGBM) to dM/dt and one to sigma' dM/dw of the training labels, and adds
    their outputs, scaled to a root mean square of `learning_rate`: the units of the gradients have no meaning, and a
    tree explains only a small part of them.

    MGBDT: Ustinovskiy, Fedorova, Gusev, Serdyukov 2016: Meta-Gradient Boosted Decision Tree Model for Weight and Target
    Learning (ICML).

    Args:
        mode, objective, measure, gains, ridge, n_iter, patience, folds: as in `LinearRemapper`.
        standard_errors, tree_features, kind, n_jobs, random_state: as in `LinearRemapper`.
        start: as in `LinearRemapper`; the paper's is `zero`.
        learning_rate: root mean square by which a step changes targets, and weights before the sigmoid; or several.
        depth: depth of the trees. Sequences for `ridge`, `learning_rate` and `depth` are tuned together.
        min_child_samples: minimum number of labels in a leaf.
        bins: maximum number of bins of each label feature.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, label_grades=2, gold_queries=20, random_state=1)
    >>> remapper = BoostedRemapper("W", n_iter=5, tree_features=0).fit(world.judgments, world.features, world.gold)
    >>> sorted(set(remapper.targets_.tolist()))
    [0.0, 1.0]
    """

    learned_: LearnedTrees
    _grid_limits: ClassVar[dict[str, GridLimits]] = {
        **Remapper._grid_limits,
        "depth": GridLimits(1, MAX_DEPTH, geometric=False),
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "depth": [Number(1, MAX_DEPTH, integer=True), SequenceOf(Number(1, MAX_DEPTH, integer=True))],
        "min_child_samples": [Number(1, integer=True)],
        "bins": [Number(2, MAX_BINS, integer=True)],
    }

    def __init__(
        self,
        mode: str = "W+T",
        *,
        objective: str | Loss = "DCG@10",
        measure: str = "lambdarank",
        gains: str | Sequence[float] = "exponential",
        ridge: float | Sequence[float] = (0.01, 0.1, 1.0),
        n_iter: int = 150,
        learning_rate: float | Sequence[float] = (0.01, 0.02, 0.04),
        patience: int = 20,
        folds: int = 3,
        standard_errors: float = STANDARD_ERRORS,
        tree_features: int | str = "auto",
        kind: str = "all",
        start: str | None = None,
        depth: int | Sequence[int] = (2, 3, 4),
        min_child_samples: int = 50,
        bins: int = 64,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            mode,
            objective=objective,
            measure=measure,
            gains=gains,
            ridge=ridge,
            n_iter=n_iter,
            learning_rate=learning_rate,
            patience=patience,
            folds=folds,
            standard_errors=standard_errors,
            tree_features=tree_features,
            kind=kind,
            start=start,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.depth = depth
        self.min_child_samples = min_child_samples
        self.bins = bins

    def _prepare(self, labels: LabelFeatures) -> Any:
        return binned_dataset(labels.matrix, self.bins)

    def _initial_functions(
        self, labels: LabelFeatures, dataset: Any, weight: Floats, settings: Settings
    ) -> BoostedFunctions:
        min_labels = max(1, min(self.min_child_samples, len(labels) // 2))
        trees = [GrowingTrees(dataset, int(settings["depth"]), min_labels) for _ in range(2)]
        return BoostedFunctions(trees[0], trees[1], self._start(labels), weight, self.mode)

    def _restore(self, state: SavedState) -> LearnedTrees:
        n = len(self.feature_names_in_)
        sums = []
        for role in ROLES:
            names = sorted(name for name in state.texts if name.startswith(f"{role}-"))
            sums.append(tuple(TreeSum.from_text(state.texts[name], n) for name in names))
        return LearnedTrees(*sums)


def binned_dataset(matrix: Floats, max_bins: int) -> Any:
    """Return features (n, n_features) as a LightGBM dataset, which is binned once for all trees."""
    parameters = {
        "max_bin": max_bins,
        "min_data_in_bin": 1,
        "feature_pre_filter": False,
        "enable_bundle": False,  # bundles of features with missing values predict something else than they learned
        "verbosity": -1,
    }
    return import_lightgbm().Dataset(matrix, label=np.zeros(len(matrix)), params=parameters).construct()


class GrowingTrees:
    """A sum of trees over a fixed dataset, grown one tree at a time to fit given gradients.

    Args:
        dataset: LightGBM dataset of the label features.
        depth: depth of the trees.
        min_labels: minimum number of labels in a leaf.

    """

    def __init__(self, dataset: Any, depth: int, min_labels: int) -> None:
        parameters = {
            "objective": "none",
            "learning_rate": 1.0,
            "max_depth": depth,
            "num_leaves": 2**depth,
            "min_data_in_leaf": min_labels,
            "min_sum_hessian_in_leaf": 0.0,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        self.booster = import_lightgbm().Booster(parameters, dataset)
        self._sums = np.zeros(dataset.num_data())

    def add(self, gradient: Floats, size: float) -> Floats:
        """Fit a tree to the gradient and scale its outputs to a root mean square of `size`; return the outputs."""
        length = _root_mean_square(gradient)
        if length > 0:
            hessian = np.ones(len(gradient))
            self.booster.update(fobj=lambda scores, data: (-gradient / length, hessian))
        before, self._sums = self._sums, self._training_sums()
        outputs = self._sums - before
        length = _root_mean_square(outputs)
        if length == 0:
            return outputs  # no split improves the fit, and LightGBM added no tree
        tree = self.booster.num_trees() - 1
        dump = self.booster.dump_model(num_iteration=1, start_iteration=tree)
        for leaf in range(dump["tree_info"][0]["num_leaves"]):
            self.booster.set_leaf_output(tree, leaf, self.booster.get_leaf_output(tree, leaf) * size / length)
        return outputs * (size / length)

    def snapshot(self) -> TreeSum:
        """Return the sum of the trees so far."""
        return TreeSum(self.booster, self.booster.num_trees())

    def _training_sums(self) -> Floats:
        """Return the sums of the unscaled trees for the training labels, which LightGBM keeps."""
        sums: list[Floats] = []

        def collect(scores: Floats, data: Any) -> tuple[str, float, bool]:
            sums.append(np.array(scores))
            return "none", 0.0, False

        self.booster.eval_train(collect)
        return sums[0]


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


@dataclass(frozen=True)
class TreeSum:
    """The sum of the first trees of a booster; a booster is not needed for no trees."""

    booster: Any
    n_trees: int

    @classmethod
    def from_text(cls, text: str, n_features: int) -> TreeSum:
        """Create the sum from LightGBM's text, empty without trees; raise ValueError if the text is invalid."""
        if not text:
            return cls(None, 0)
        n_trees = check_trees(text, n_features)  # LightGBM itself would crash on some invalid texts
        lightgbm = import_lightgbm()
        try:
            return cls(lightgbm.Booster(model_str=text), n_trees)
        except lightgbm.basic.LightGBMError as problem:
            raise ValueError(str(problem)) from problem

    @property
    def text(self) -> str:
        """The trees as LightGBM's text, empty without trees."""
        if not self.n_trees:
            return ""
        return str(self.booster.model_to_string(num_iteration=self.n_trees))

    def predict(self, matrix: Floats) -> Floats:
        """Return the sum for each row."""
        if not self.n_trees:
            return np.zeros(len(matrix))
        sums = self.booster.predict(matrix, raw_score=True, num_iteration=self.n_trees, num_threads=1)
        return np.asarray(sums, dtype=np.float64)

    def importances(self, n_features: int) -> Floats:
        """Return the split gains of each feature, normalized per tree and averaged (MGBDT 7)."""
        return tree_importances(self.booster, self.n_trees) if self.n_trees else np.zeros(n_features)


class BoostedFunctions(LabelFunctions):
    """Boosted trees for the target and the weight of each label, which grow by one tree per step.

    Args:
        target_trees, weight_trees: sums of trees without a tree yet.
        start: (n_labels,) targets at the start.
        weight: (n_labels,) weights at the start, all 1/2.
        mode: `W`, `T` or `W+T`: whether weights, targets or both are learned.

    """

    def __init__(
        self, target_trees: GrowingTrees, weight_trees: GrowingTrees, start: Floats, weight: Floats, mode: str
    ) -> None:
        self.target_trees, self.weight_trees, self.mode = target_trees, weight_trees, mode
        self.target, self.raw_weight, self.weight = start, np.zeros(len(start)), weight

    def gradient(self, target_gradient: Floats, weight_gradient: Floats | None) -> tuple[Floats | None, Floats | None]:
        """Return the gradients in the sums of trees of every label: dM/dt, and dM/dw sigma'."""
        raw_gradient = None if weight_gradient is None else weight_gradient * self.weight * (1 - self.weight)
        return (target_gradient if "T" in self.mode else None), raw_gradient

    def step(self, target_gradient: Floats, weight_gradient: Floats | None, learning_rate: float) -> None:
        """Add one tree to each sum that is learned."""
        target, raw_weight = self.gradient(target_gradient, weight_gradient)
        if target is not None:
            self.target = self.target + self.target_trees.add(target, learning_rate)
        if raw_weight is not None:
            self.raw_weight = self.raw_weight + self.weight_trees.add(raw_weight, learning_rate)
            self.weight = sigmoid(self.raw_weight)

    def snapshot(self) -> LearnedTrees:
        """Return the functions as they are now."""
        return LearnedTrees((self.target_trees.snapshot(),), (self.weight_trees.snapshot(),))


@dataclass(frozen=True)
class LearnedTrees(LearnedFunctions):
    """Means of sums of trees for targets (added to the start) and for weights (before the sigmoid).

    Attributes:
        target, weight: a sum of trees per fold that steered the functions; none if nothing was learned.

    """

    target: tuple[TreeSum, ...]
    weight: tuple[TreeSum, ...]

    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Return targets and weights."""
        target, raw_weight = (
            sum((trees.predict(matrix) for trees in sums), np.zeros(len(matrix))) / max(1, len(sums))
            for sums in (self.target, self.weight)
        )
        return start + target, sigmoid(raw_weight)

    @classmethod
    def mean(cls, functions: Sequence[LearnedTrees]) -> LearnedTrees:
        """Return the mean of functions that were learned alike."""
        return cls(*(tuple(trees for one in functions for trees in getattr(one, role)) for role in ROLES))

    def importances(self, n_features: int) -> tuple[Floats, Floats]:
        """Return the importance of each feature for the target and for the weight."""
        target, weight = (
            divide_by_sum(sum((trees.importances(n_features) for trees in sums), np.zeros(n_features)))
            for sums in (self.target, self.weight)
        )
        return target, weight

    def state(self) -> SavedState:
        """Return the trees as LightGBM's text."""
        sums = {role: getattr(self, role) for role in ROLES}
        return SavedState(
            texts={
                f"{role}-{number}": one.text
                for role, trees in sums.items()
                if any(one.n_trees for one in trees)
                for number, one in enumerate(trees)
            }
        )
