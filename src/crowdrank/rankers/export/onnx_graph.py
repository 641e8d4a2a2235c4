"""ONNX: an operator of the domain `ai.onnx.ml`, in single precision.

The graph is built here because converters round a threshold to the nearest float32, which sends values between the two
to the wrong side.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdrank.errors import Message, UsageError
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export.exportable_models import Forest, LinearModel, float32_at_most
from crowdrank.rankers.export.exporter import ForestExporter, Guide, Target

OPSETS = {"": 15, "ai.onnx.ml": 3}
IR_VERSION = 8
"""Version of the file format; runtimes since 2021 read it."""
_ML = "ai.onnx.ml"


class ONNX(ForestExporter):
    """ONNX runtimes."""

    title: ClassVar[str] = "ONNX"
    adds_intercept: ClassVar[bool] = True

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.onnx` with a TreeEnsembleRegressor."""
        helper = import_onnx().helper
        attributes = _tree_attributes(forest)
        node = helper.make_node("TreeEnsembleRegressor", ["features"], ["score"], domain=_ML, n_targets=1, **attributes)
        return _write_graph([node], forest.names, target)

    def write_linear(self, model: LinearModel, target: Target) -> Guide:
        """Write `model.onnx` with an Imputer, which fills in missing values, and a LinearRegressor."""
        helper = import_onnx().helper
        fill = np.nan_to_num(model.fill).tolist()
        nodes = [
            helper.make_node(
                "Imputer",
                ["features"],
                ["filled"],
                domain=_ML,
                imputed_value_floats=fill,
                replaced_value_float=float("nan"),
            ),
            helper.make_node(
                "LinearRegressor",
                ["filled"],
                ["score"],
                domain=_ML,
                coefficients=model.weights.tolist(),
                intercepts=[model.intercept],
            ),
        ]
        return _write_graph(nodes, model.names, target)

    def score_difference_warnings(self, model: BoostedTrees | LinearModel, target: Target) -> list[Message]:
        """Return no warnings: trees of ONNX read missing values, and for linear models the graph fills them in."""
        return []

    def handles_missing(self, model: BoostedTrees | LinearModel) -> bool:
        """Return whether missing values are scored as by the ranker."""
        return not isinstance(model, LinearModel) or not np.isnan(model.fill).any()


def _tree_attributes(forest: Forest) -> dict[str, list[Any]]:
    """Return the attributes of a TreeEnsembleRegressor."""
    attributes: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    } | {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}

    def append(prefix: str, **values: Any) -> None:
        for name, value in values.items():
            attributes[f"{prefix}_{name}"].append(value)

    for number, tree in enumerate(forest.trees):
        for node in range(len(tree)):
            is_leaf = tree.is_leaf(node)
            append(
                "nodes",
                treeids=number,
                nodeids=node,
                featureids=0 if is_leaf else int(tree.feature[node]),
                values=0.0 if is_leaf else float32_at_most(tree.threshold[node]),
                modes="LEAF" if is_leaf else "BRANCH_LEQ",
                truenodeids=int(tree.left[node]),
                falsenodeids=int(tree.right[node]),
                missing_value_tracks_true=int(tree.missing_left[node]),
            )
            if is_leaf:
                append("target", treeids=number, nodeids=node, ids=0, weights=float(tree.value[node]))
    return attributes


def _write_graph(nodes: list[Any], names: tuple[str, ...], target: Target) -> Guide:
    onnx = import_onnx()
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    features = helper.make_tensor_value_info("features", number, [None, len(names)])
    score = helper.make_tensor_value_info("score", number, [None, 1])
    graph = helper.make_graph(nodes, target.name, [features], [score])
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="crowdrank")
    onnx.checker.check_model(model)
    (target.folder / "model.onnx").write_bytes(model.SerializeToString())
    code = "onnxruntime.InferenceSession('model.onnx').run(['score'], {'features': rows})"
    steps = [f"Score float32 rows in Python with `{code}`; `features.csv` has the order of the columns."]
    return Guide({"model.onnx": "the model: input `features`, output `score`"}, steps)


def import_onnx() -> Any:
    """Return the module; raise UsageError if it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError as problem:
        fix = "install it with: pip install 'crowdrank[onnx]'"
        raise UsageError("The export to ONNX needs the package onnx", kind="no-onnx", fix=fix) from problem
    return onnx
