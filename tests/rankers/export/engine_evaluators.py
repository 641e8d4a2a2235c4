"""Score rows as search engines do, from the files of an export; written from the engines' sources, not from ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import lightgbm
import numpy as np
import pytest
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
F32 = np.float32


def ltr_plugin(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score as NaiveAdditiveDecisionTree and LinearRanker do: float32, left if threshold > value."""
    model = json.loads((folder / "model.json").read_text())["model"]["model"]
    definition = json.loads(model["definition"])
    if model["type"] == "model/linear":
        weights = np.array([definition[name] for name in names], F32)
        return np.array([_float32_sum(weights * np.nan_to_num(row)) for row in rows])

    def leaf(node: dict[str, Any], row: Rows) -> float:
        while "leaf" not in node:
            yes, no = node["children"]
            assert (yes["nodeid"], no["nodeid"]) == (node["yes"], node["no"])
            assert node["missing"] in (node["yes"], node["no"])
            value = row[names.index(node["split"])]
            if np.isnan(value):
                node = yes if node["missing"] == node["yes"] else no
            else:
                node = yes if F32(node["split_condition"]) > value else no
        return float(node["leaf"])

    return np.array([_float32_sum([leaf(tree, row) for tree in definition]) for row in rows])


def elasticsearch(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score as TreeInferenceModel does: double, left if value <= threshold."""
    model = json.loads((folder / "model.json").read_text())
    ensemble = model["definition"]["trained_model"]["ensemble"]
    assert model["input"]["field_names"] == ensemble["feature_names"] == names
    weights = ensemble["aggregate_output"]["weighted_sum"]["weights"]
    assert len(weights) == len(ensemble["trained_models"])

    def leaf(nodes: list[dict[str, Any]], row: Rows) -> float:
        node = nodes[0]
        while "leaf_value" not in node:
            assert node["decision_type"] == "lte"
            value = float(row[node["split_feature"]])
            left = node["default_left"] if np.isnan(value) else value <= node["threshold"]
            node = nodes[node["left_child" if left else "right_child"]]
        return float(node["leaf_value"])

    trees = [one["tree"]["tree_structure"] for one in ensemble["trained_models"]]
    assert all(node["node_index"] == place for nodes in trees for place, node in enumerate(nodes))
    return np.array([sum(leaf(nodes, row) for nodes in trees) for row in rows])


def solr(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score as MultipleAdditiveTreesModel and LinearModel do: float32, left if value <= threshold + 1e-6."""
    model = json.loads((folder / "model.json").read_text())
    assert [feature["name"] for feature in model["features"]] == names
    if model["class"].endswith(".LinearModel"):
        weights = np.array([model["params"]["weights"][name] for name in names], F32)
        return np.array([_float32_sum(weights * row) for row in rows])
    assert model["params"]["isNullSameAsZero"] is False, "Solr has a setter for a boolean only"

    def leaf(node: dict[str, Any], row: Rows) -> float:
        while "feature" in node:
            threshold, value = F32(node["threshold"]) + F32(1e-6), row[names.index(node["feature"])]
            left = node["missing"] == "left" if np.isnan(value) else value <= threshold
            node = node["left" if left else "right"]
        return float(node["value"])

    trees = model["params"]["trees"]
    return np.array([_float32_sum([F32(tree["weight"]) * leaf(tree["root"], row) for tree in trees]) for row in rows])


def vespa(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score the expression that LightGBMParser writes: x < t, or !(x >= t) if default_left."""
    model = json.loads((folder / "model.json").read_text())
    assert model["objective"] == "regression"
    assert model["feature_names"] == names

    def leaf(node: dict[str, Any], row: Rows) -> float:
        while "left_child" in node:
            value, threshold = row[node["split_feature"]], F32(node["threshold"])
            left = not (value >= threshold) if node["default_left"] else value < threshold
            node = node["left_child" if left else "right_child"]
        return float(node["leaf_value"])

    return np.array([sum(leaf(tree["tree_structure"], row) for tree in model["tree_info"]) for row in rows])


def ranklib(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score as RankLib's Ensemble and LinearRegRank do: float32, left if value <= threshold, 0 for missing values."""
    head, text = (folder / "model.txt").read_text().split("\n", 1)
    filled = np.nan_to_num(rows)
    if head == "## Linear Regression":
        pairs = dict(pair.split(":") for pair in text.splitlines()[-1].split())
        weights = np.array([float(pairs[str(number)]) for number in range(1, len(names) + 1)])
        return np.asarray(filled.astype(float) @ weights + float(pairs["0"]))
    assert head == "## LambdaMART"

    def leaf(split: ElementTree.Element, row: Rows) -> float:
        while (children := list(split))[0].tag == "feature":
            value, threshold = row[int(children[0].text or "") - 1], F32((children[1].text or "").strip())
            split = children[2 if value <= threshold else 3]
        return float(children[0].text or "")

    ensemble = ElementTree.fromstring(text[text.index("<ensemble>") :])
    return np.array(
        [_float32_sum([F32(tree.attrib["weight"]) * leaf(tree[0], row) for tree in ensemble]) for row in filled]
    )


def lightgbm_text(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score with LightGBM."""
    booster = lightgbm.Booster(model_file=str(folder / "model.txt"))
    assert booster.feature_name() == names
    return np.asarray(booster.predict(rows.astype(float), raw_score=True, num_threads=1))


def onnx(folder: Path, rows: Rows, names: list[str]) -> Scores:
    """Score with onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    return np.asarray(session.run(["score"], {"features": rows})[0][:, 0], float)


EVALUATORS: dict[str, Callable[[Path, Rows, list[str]], Scores]] = {
    "elasticsearch-ltr": ltr_plugin,
    "opensearch-ltr": ltr_plugin,
    "elasticsearch": elasticsearch,
    "solr": solr,
    "vespa": vespa,
    "ranklib": ranklib,
    "lightgbm": lightgbm_text,
    "onnx": onnx,
}


def _float32_sum(values: Any) -> float:
    total = F32(0)
    for value in values:
        total += F32(value)
    return float(total)


# XGBoost, whose own evaluator reads the trees of the LTR plugin after a change of layout.


@cache
def _empty_xgboost(n_features: int) -> str:
    """Return a saved XGBoost model as JSON, to be filled with other trees."""
    xgboost = pytest.importorskip("xgboost")
    matrix = xgboost.DMatrix(np.zeros((4, n_features)), label=[0.0, 1.0, 0.0, 1.0])
    booster = xgboost.train({"base_score": 0.0, "objective": "reg:squarederror", "nthread": 1}, matrix, 1)
    return str(booster.save_raw("json"), "utf-8")


def xgboost_model(folder: Path, names: list[str]) -> str:
    """Return the trees of an export to the LTR plugin as a model that XGBoost loads."""
    trees = json.loads(json.loads((folder / "model.json").read_text())["model"]["model"]["definition"])
    model = json.loads(_empty_xgboost(len(names)))
    part = model["learner"]["gradient_booster"]["model"]
    part["trees"] = [_xgboost_tree(number, tree, names) for number, tree in enumerate(trees)]
    part["tree_info"] = [0] * len(trees)
    part["iteration_indptr"] = list(range(len(trees) + 1))
    part["gbtree_model_param"]["num_trees"] = str(len(trees))
    return json.dumps(model)


def _xgboost_tree(number: int, root: dict[str, Any], names: list[str]) -> dict[str, Any]:
    ordered, parents = [root], [2147483647]
    for place, node in enumerate(ordered):  # grows while it is read; siblings are adjacent, as XGBoost assumes
        ordered += node.get("children", [])
        parents += [place] * len(node.get("children", []))
    number_of = {node["nodeid"]: place for place, node in enumerate(ordered)} | {-1: -1}
    zeros = [0] * len(ordered)
    return {
        "base_weights": [node.get("leaf", 0.0) for node in ordered],
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [int("yes" in node and node["missing"] == node["yes"]) for node in ordered],
        "id": number,
        "left_children": [number_of[node.get("yes", -1)] for node in ordered],
        "right_children": [number_of[node.get("no", -1)] for node in ordered],
        "loss_changes": [0.0] * len(ordered),
        "parents": parents,
        "split_conditions": [node.get("split_condition", node.get("leaf")) for node in ordered],
        "split_indices": [names.index(node["split"]) if "split" in node else 0 for node in ordered],
        "split_type": zeros,
        "sum_hessian": [1.0] * len(ordered),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(names)),
            "num_nodes": str(len(ordered)),
            "size_leaf_vector": "1",
        },
    }
