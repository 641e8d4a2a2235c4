"""Forests and linear models as plain arrays, read from rankers, with thresholds in single precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import Fix, UsageError
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.single_feature import SingleFeature

LEAF = -1
"""Feature index that marks a leaf node."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_DEPTH = 200
"""Maximum number of splits above a leaf; parsers of nested JSON and XML limit the depth."""
KEEP_AS_LIGHTGBM = Fix("export with {}, which holds every model of LightGBM", "to", "lightgbm")


@dataclass(frozen=True, eq=False)
class Tree:
    """A regression tree: a split sends values of at most its threshold to the left, other values to the right.

    Node 0 is the root, and a parent comes before its children.

    Attributes:
        feature: (n_nodes,) number of the feature of a split; LEAF for a leaf.
        threshold: (n_nodes,) threshold of a split.
        missing_left: (n_nodes,) whether a split sends a missing value (NaN) to the left.
        left, right: (n_nodes,) children of a split.
        value: (n_nodes,) output of a leaf.

    """

    feature: Integers
    threshold: Floats
    missing_left: Booleans
    left: Integers
    right: Integers
    value: Floats

    @cached_property
    def depth(self) -> Integers:
        """Number of splits above each node."""
        depth = np.zeros(len(self), np.int64)
        for node in np.flatnonzero(self.feature != LEAF):
            depth[self.left[node]] = depth[self.right[node]] = depth[node] + 1
        return depth

    def __len__(self) -> int:
        return len(self.feature)

    def is_leaf(self, node: int) -> bool:
        """Return whether a node is a leaf."""
        return bool(self.feature[node] == LEAF)


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose outputs add up to the score.

    Attributes:
        names: names of the features.
        trees: the trees; shrinkage is part of their outputs, and a start score is part of the first tree.

    """

    names: tuple[str, ...]
    trees: tuple[Tree, ...]

    @property
    def splits(self) -> Iterator[tuple[int, float, bool]]:
        """Feature, threshold and direction of missing values of every split."""
        for tree in self.trees:
            for node in np.flatnonzero(tree.feature != LEAF):
                yield int(tree.feature[node]), float(tree.threshold[node]), bool(tree.missing_left[node])


def dump_trees(ranker: BoostedTrees) -> list[Mapping[str, Any]]:
    """Return the root nodes of the trees that a ranker uses, as LightGBM's nested dictionaries."""
    dump = ranker.booster_.dump_model(num_iteration=ranker.best_iteration_)
    return [tree["tree_structure"] for tree in dump["tree_info"]]


def read_forest(ranker: BoostedTrees) -> Forest:
    """Return the trees that a ranker uses.

    Raises:
        UsageError: a tree has categorical splits or linear leaves, counts zeros as missing, or is too deep.

    """
    forest = Forest(ranker.features_, tuple(map(_read_tree, dump_trees(ranker))))
    depth = max(int(tree.depth.max()) for tree in forest.trees)
    if depth > MAX_DEPTH:
        problem = f"The trees have {depth} levels, and engines read at most {MAX_DEPTH}"
        raise UsageError(problem, kind="deep-trees", fix=("train with a smaller max_depth", KEEP_AS_LIGHTGBM))
    return forest


def split_points(ranker: BoostedTrees) -> list[Floats]:
    """Return the different thresholds of each feature, sorted; categorical splits have none."""
    found: list[set[float]] = [set() for _ in ranker.features_]
    nodes = dump_trees(ranker)
    for node in nodes:  # grows while it is read
        if "split_feature" in node:
            if node["decision_type"] == "<=":
                found[node["split_feature"]].add(float(node["threshold"]))
            nodes += [node["left_child"], node["right_child"]]
    return [np.array(sorted(points), dtype=np.float64) for points in found]


def _read_tree(root: Mapping[str, Any]) -> Tree:
    """Convert a tree of LightGBM to arrays, with its nodes in preorder."""
    rows: list[dict[str, Any]] = []
    unread: list[tuple[Mapping[str, Any], dict[str, Any], str]] = [(root, {}, "")]
    while unread:
        node, parent, side = unread.pop()
        parent[side] = len(rows)
        rows.append({"feature": LEAF, "threshold": 0.0, "missing_left": False, "left": 0, "right": 0, "value": 0.0})
        if "split_feature" in node:
            threshold = _numeric_threshold(node)
            missing_left = _goes_left_if_missing(node, threshold)
            rows[-1] |= {"feature": node["split_feature"], "threshold": threshold, "missing_left": missing_left}
            unread += [(node["right_child"], rows[-1], "right"), (node["left_child"], rows[-1], "left")]
        else:
            rows[-1]["value"] = _leaf_value(node)
    return Tree(**{name: np.array([row[name] for row in rows]) for name in rows[0]})


def _leaf_value(node: Mapping[str, Any]) -> float:
    if "leaf_const" in node:
        fixes = ("train without linear_tree", KEEP_AS_LIGHTGBM)
        raise UsageError("The trees have linear functions in their leaves", kind="linear-leaves", fix=fixes)
    return float(node["leaf_value"])


def _numeric_threshold(node: Mapping[str, Any]) -> float:
    if node["decision_type"] != "<=":
        fixes = ("train without categorical features", KEEP_AS_LIGHTGBM)
        raise UsageError("The trees have splits on categories", kind="categorical-splits", fix=fixes)
    return float(node["threshold"])


def _goes_left_if_missing(node: Mapping[str, Any], threshold: float) -> bool:
    """Return the direction of a missing value; LightGBM replaces it by 0 if the feature had none in training."""
    if node["missing_type"] == "Zero":
        fixes = ("train with zero_as_missing=False", KEEP_AS_LIGHTGBM)
        raise UsageError("The trees count zeros as missing values", kind="zero-as-missing", fix=fixes)
    return bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0


def float32_at_most(threshold: float) -> float:
    """Return the largest finite float32 that is at most a number, so that x <= it holds for the same float32 x.

    >>> float32_at_most(0.1) < 0.1 < float(np.nextafter(np.float32(float32_at_most(0.1)), np.float32(1)))
    True
    """
    return float(np.clip(_floor_float32(threshold), -MAX_FLOAT32, MAX_FLOAT32))


def float32_above(threshold: float) -> float:
    """Return the smallest float32 above a number, so that x < it holds where x <= threshold does, for float32 x.

    >>> float32_above(0.0) > 0, float32_above(1e300) == MAX_FLOAT32
    (True, True)
    """
    with np.errstate(over="ignore"):
        above = np.nextafter(_floor_float32(threshold), np.float32(np.inf))
    return float(np.clip(above, -MAX_FLOAT32, MAX_FLOAT32))


def _floor_float32(value: float) -> np.float32:
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
        return np.nextafter(nearest, np.float32(-np.inf)) if float(nearest) > value else nearest


def float32(value: float) -> float:
    """Return the nearest float32; as text, every JSON parser reads it as exactly this number."""
    return float(np.float32(value))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A weighted sum of features.

    Attributes:
        names: names of the features.
        weights: (n_features,) weights of the raw features.
        intercept: constant that is added to the score of every document.
        fill: (n_features,) values that stand for missing ones; NaN if the model has none.

    """

    names: tuple[str, ...]
    weights: Floats
    intercept: float
    fill: Floats


def fold_standardization(ranker: GLS) -> LinearModel:
    """Return a fitted GLS without tree features as a linear model; the mean of a feature stands for missing values.

    >>> model = fold_standardization(GLS(mu=0).fit([[1.0], [2.0], [3.0]], [0, 1, 2], query=["q"] * 3))
    >>> model.weights.round(6).tolist(), round(model.intercept, 6), model.fill.tolist()
    ([1.0], -1.0, [2.0])
    """
    mean, scale = ranker.standardizer_.mean, ranker.standardizer_.scale
    weights = np.divide(ranker.coef_, scale, out=np.zeros(len(scale)), where=scale > 0)
    return LinearModel(ranker.features_, weights, float(ranker.intercept_ - weights @ mean), mean)


def single_feature_model(ranker: SingleFeature) -> LinearModel:
    """Return a ranker by one feature as a linear model; a value outside of the training range stands for missing ones.

    >>> model = single_feature_model(SingleFeature().fit([[5.0, 1.0], [4.0, 3.0]], [0, 1], query=["q", "q"]))
    >>> model.weights.tolist(), model.fill.tolist()
    ([-1.0, 0.0], [6.0, nan])
    """
    column, n = ranker.features_.index(ranker.feature_), ranker.n_features_in_
    weights, fill = np.zeros(n), np.full(n, np.nan)
    weights[column] = ranker.sign_
    statistics = ranker.feature_statistics_
    if statistics is not None:
        fill[column] = statistics.minimum[column] - 1 if ranker.sign_ > 0 else statistics.maximum[column] + 1
    return LinearModel(ranker.features_, weights, 0.0, fill)
