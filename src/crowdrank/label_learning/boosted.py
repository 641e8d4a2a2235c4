"""Boosted trees from label features to targets and weights (MGBDT's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._saved import require, require_array, require_floats, require_range
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.base import Engine
from crowdrank.errors import UsageError
from crowdrank.label_learning import kernels
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import Loss
from crowdrank.label_learning.optimizer import BoostedSteps, blocks, chance
from crowdrank.label_learning.remapper import Functions, Learned, Remapper
from crowdrank.rankers.base import normalized

MAX_BINS = 255
"""Maximum number of bins of a label feature."""
MAX_DEPTH = 8
"""Maximum depth of a tree."""


class BoostedRemapper(Remapper):
    """Targets that are sums of trees over label features, and weights that are sigma of such sums.

    Every step fits one regression tree to dM/dt and one to dM/dw sigma' of the training labels, and adds what they say,
    scaled so that labels move `learning_rate` far in the mean square: the units of the measure mean nothing, and a tree
    explains but a small part of the slopes of single labels.

    Args:
        mode, objective, gains, ridge, n_iter, patience, validation, kind, random_state: as in `LinearRemapper`.
        learning_rate: how far a step moves targets, and weights before the sigma.
        start: what targets start from: the `label` (from 0 to 1; the first ranker is then least squares on plain
            labels; so where only weights are learned, unless said), the grade that Dawid-Skene expects (`consensus`; so
            where targets are learned), or 0, as in the paper (`zero`, which leaves weights alone nothing to weigh).
        depth: of the trees.
        min_child_samples: labels in a leaf, at least.
        bins: of each label feature, at most; binned once.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, label_grades=2, gold_queries=20, random_state=1)
    >>> remapper = BoostedRemapper("W", n_iter=5).fit(world.judgments, world.features, world.gold)
    >>> sorted(set(remapper.targets_.tolist()))
    [0.0, 1.0]
    """

    learned_: BoostedLearnt

    _parameter_constraints: ClassVar[Constraints] = {
        "start": [OneOf("label", "consensus", "zero"), None],
        "depth": [Number(1, MAX_DEPTH, integer=True)],
        "min_child_samples": [Number(1, integer=True)],
        "bins": [Number(2, MAX_BINS, integer=True)],
    }

    def __init__(
        self,
        mode: str = "W+T",
        *,
        objective: str | Loss = "DCG@10",
        gains: str | Sequence[float] = "exponential",
        ridge: float | Sequence[float] = (0.01, 0.1, 1.0),
        n_iter: int = 150,
        learning_rate: float = 0.02,
        patience: int = 30,
        validation: float = 0.3,
        kind: str = "all",
        start: str | None = None,
        depth: int = 3,
        min_child_samples: int = 50,
        bins: int = 64,
        random_state: int = 0,
    ) -> None:
        self.mode = mode
        self.objective = objective
        self.gains = gains
        self.ridge = ridge
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation = validation
        self.kind = kind
        self.start = start
        self.depth = depth
        self.min_child_samples = min_child_samples
        self.bins = bins
        self.random_state = random_state

    def _start(self, labels: LabelFeatures) -> Floats:
        start = self.start or ("label" if self.mode == "W" else "consensus")
        if start == "zero":
            return np.zeros(len(labels))
        return labels.start if start == "label" else labels.expected

    def _prepare(self, labels: LabelFeatures) -> Binned:
        return Binned(labels.matrix, self.bins)

    def _begin(self, labels: LabelFeatures, prepared: Binned) -> BoostedFunctions:
        return BoostedFunctions(
            prepared, self._start(labels), self.mode, self.depth, self.min_child_samples, self.learning_rate
        )

    def _on_engine(
        self, functions: BoostedFunctions, prepared: Binned, labels: LabelFeatures, X: Floats, engine: Engine
    ) -> BoostedSteps:
        cut = blocks(labels.judgments.offsets, {"X": X}, {"bins": prepared.bins, "start": self._start(labels)})
        return BoostedSteps(functions, cut, engine)

    def _restore(self, arrays: dict[str, Any]) -> BoostedLearnt:
        target, weight = (
            Trees(*(arrays[f"{role}_{name}"] for name in ("feature", "cut", "value", "gain")))
            for role in ("target", "weight")
        )
        for trees in (target, weight):
            trees.check(len(self.feature_names_in_), self.depth)
        return BoostedLearnt(target, weight, self.learning_rate, len(self.feature_names_in_))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.mode == "W" and self.start == "zero":
            raise UsageError(
                "must not be 'zero' if mode is 'W', which weighs targets that are all 0", parameter="start"
            )


class Binned:
    """Label features as numbers of bins, made once; edges are values that occur, so that few values stay as they are.

    >>> binned = Binned(np.array([[0.0], [0.5], [1.0], [np.nan]]), 64)
    >>> binned.bins.ravel().tolist(), binned.edges[0].tolist()
    ([0, 1, 2, 0], [0.0, 0.5])
    """

    def __init__(self, matrix: Floats, most: int) -> None:
        # matrix (n, n_features); bins as matrix; edges: per feature, what the bins but the last end with
        self.edges = [_edges(column, most) for column in matrix.T]
        self.n_bins = np.array([len(edges) + 1 for edges in self.edges])
        by_feature = np.empty(matrix.shape[::-1], np.uint8)
        for number, edges in enumerate(self.edges):
            kernels.bin_column(np.ascontiguousarray(matrix[:, number]), edges, by_feature[number])
        self.bins = np.ascontiguousarray(by_feature.T)


def _edges(column: Floats, most: int) -> Floats:
    there = column[~np.isnan(column)]
    values = np.unique(there)
    if len(values) > most:
        ends = np.quantile(there, np.arange(1, most + 1) / most, method="inverted_cdf")
        values = np.unique(ends)
    return np.ascontiguousarray(values[:-1])


@dataclass(frozen=True)
class Trees:
    """Complete trees, (n_trees, n_nodes) each: the feature and value of every split, and what every node says."""

    feature: Integers  # -1 for leaves
    cut: Floats  # rows at most it, and blanks, go to node 2i + 1
    value: Floats
    gain: Floats

    @classmethod
    def of(cls, trees: list[Trees], n_nodes: int) -> Trees:
        """Many from single ones."""
        if not trees:
            nothing = np.empty((0, n_nodes))
            return cls(nothing.astype(np.int64), nothing, nothing, nothing)
        parts = [[getattr(tree, name) for tree in trees] for name in ("feature", "cut", "value", "gain")]
        return cls(*(np.concatenate(part) for part in parts))

    def check(self, n_features: int, depth: int) -> None:
        """Raise ValueError unless saved trees are of this depth and split on features that exist."""
        shape = (len(self.feature) if self.feature.ndim else 0, 2 ** (depth + 1) - 1)
        require_array("feature", self.feature, np.int64, shape)
        require_range("feature", self.feature, -1, n_features - 1)
        require((self.feature[:, shape[1] // 2 :] < 0).all(), "a tree is deeper than it may be")
        require_floats({"cut": self.cut, "value": self.value, "gain": self.gain}, ("cut", "value", "gain"), shape)

    def add_to(self, total: Floats, matrix: Floats, rate: float) -> Floats:
        """`total` (n,) and `rate` times what the trees say of the rows."""
        total = total.astype(np.float64)
        kernels.add_trees(np.ascontiguousarray(matrix), self.feature, self.cut, self.value, rate, total)
        return total

    def importances(self, n_features: int) -> Floats:
        """What the splits by each feature took off the squared error, as parts of all."""
        split = self.feature >= 0
        return normalized(np.bincount(self.feature[split], self.gain[split], n_features))


class Grower:
    """Grows trees on binned features, one after the other."""

    def __init__(self, binned: Binned, depth: int, least: int) -> None:
        self.binned, self.depth = binned, depth
        self.least = max(1, min(least, len(binned.bins) // 2))
        self.node: NDArray[np.int32] = np.empty(len(binned.bins), np.int32)

    @property
    def n_nodes(self) -> int:
        """Places in a tree."""
        return int(2 ** (self.depth + 1)) - 1

    def __call__(self, aim: Floats) -> tuple[Trees, Floats]:
        """A tree fitted to `aim` (n,), and what it says of each row."""
        feature, threshold = np.empty(self.n_nodes, np.int64), np.empty(self.n_nodes, np.int64)
        value, gain = np.empty(self.n_nodes), np.empty(self.n_nodes)
        kernels.fit_tree(
            self.binned.bins,
            self.binned.n_bins,
            aim,
            self.depth,
            self.least,
            self.node,
            feature,
            threshold,
            value,
            gain,
        )
        return self.tree(feature, threshold, value, gain), value[self.node]

    def tree(self, feature: Integers, threshold: Integers, value: Floats, gain: Floats) -> Trees:
        """A tree whose splits are at values of the features, not at bins."""
        cut = np.array(
            [self.binned.edges[f][b] if f >= 0 else 0.0 for f, b in zip(feature, threshold, strict=True)],
        )
        return Trees(feature[None], cut[None], value[None], gain[None])


class BoostedFunctions(Functions):
    """Sums of trees while they grow."""

    def __init__(self, binned: Binned, start: Floats, mode: str, depth: int, least: int, rate: float) -> None:
        self.grow, self.mode, self.rate = Grower(binned, depth, least), mode, rate
        self.target, self.raw = start.astype(np.float64), np.zeros(len(start))
        self.weight = np.full(len(start), 0.5)
        self.trees: tuple[list[Trees], list[Trees]] = ([], [])

    def slopes(self, of_target: Floats, of_weight: Floats | None) -> tuple[Floats | None, Floats | None]:
        """How the measure moves with the sums of trees of every label: dM/dt, and dM/dw sigma'."""
        raw = None if of_weight is None else of_weight * self.weight * (1 - self.weight)
        return (of_target if "T" in self.mode else None), raw

    def step(self, of_target: Floats, of_weight: Floats | None, rate: float) -> None:
        """One tree more for what is learned."""
        target, raw = self.slopes(of_target, of_weight)
        if target is not None:
            self.target = self.target + rate * self._grown(target, self.trees[0])
        if raw is not None:
            self.raw = self.raw + rate * self._grown(raw, self.trees[1])
            self.weight = chance(self.raw)

    def _grown(self, slope: Floats, trees: list[Trees]) -> Floats:
        tree, said = self.grow(slope)
        length = float(np.sqrt(np.mean(said**2)))
        scale = 1 / length if length > 0 else 0.0
        trees.append(replace(tree, value=tree.value * scale))
        return said * scale

    def kept(self) -> tuple[int, int]:
        """How many trees there are."""
        return len(self.trees[0]), len(self.trees[1])

    def learned(self, kept: tuple[int, int]) -> BoostedLearnt:
        """The functions of the first trees."""
        target, weight = (Trees.of(trees[:n], self.grow.n_nodes) for trees, n in zip(self.trees, kept, strict=True))
        return BoostedLearnt(target, weight, self.rate, self.grow.binned.bins.shape[1])


@dataclass(frozen=True)
class BoostedLearnt(Learned):
    """The trees of targets and those of weights."""

    target: Trees
    weight: Trees
    rate: float
    n_features: int

    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """The start and the trees' sum; sigma of the trees' sum."""
        raw = self.weight.add_to(np.zeros(len(matrix)), matrix, self.rate)
        return self.target.add_to(start, matrix, self.rate), chance(raw)

    def importances(self) -> tuple[Floats, Floats]:
        """What splits took off the squared error of the gradients, summed over trees."""
        return self.target.importances(self.n_features), self.weight.importances(self.n_features)

    def arrays(self) -> dict[str, Any]:
        """The arrays of both."""
        return {
            f"{role}_{name}": getattr(trees, name)
            for role, trees in (("target", self.target), ("weight", self.weight))
            for name in ("feature", "cut", "value", "gain")
        }
