"""Solr's Learning to Rank module.

Solr reads thresholds in single precision, adds 1e-6 to them, and sends values of at most the sum to the left. The
exported thresholds are lower by as much, so that the sum is the threshold of the model again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Floats
from crowdrank.errors import Fix, Message
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export.exportable_models import Forest, LinearModel, Tree, float32, float32_at_most, split_points
from crowdrank.rankers.export.exporter import PLACEHOLDER, ForestExporter, Guide, Target, list_features, nested_nodes

SOLR_THRESHOLD_SLACK = np.float32(1e-6)
"""Number that Solr adds to every threshold (NODE_SPLIT_SLACK)."""
MAX_THRESHOLD_ERROR = 1e-3
"""Maximum relative error of a threshold in Solr without a warning."""
MIN_THRESHOLD = 1e-30
"""Minimum size of thresholds that can cause a warning; LightGBM separates zeros by thresholds of 1e-35."""
_RESERVED = frozenset("=,: \t\r\n")
"""Characters that separate features in Solr's feature logs."""
_USAGE = "HOST=https://search.example:8983 COLLECTION=name sh upload.sh"


class Solr(ForestExporter):
    """Learning to Rank module of Solr (9.2 and later)."""

    title: ClassVar[str] = "Solr"
    name_rule: ClassVar[str] = "a name has no space, comma, colon or equals sign"
    margin: ClassVar[float] = 2e-6

    def can_hold(self, name: str) -> bool:
        """Return whether a feature name contains no character that separates features in Solr's feature logs."""
        return bool(name) and not _RESERVED & set(name)

    def score_difference_warnings(self, model: BoostedTrees | LinearModel, target: Target) -> list[Message]:
        """Return warnings; also about features so small that Solr cannot represent their thresholds."""
        warnings = super().score_difference_warnings(model, target)
        if isinstance(model, LinearModel):
            return warnings
        tiny = {feature for feature, points in enumerate(split_points(model)) if any(map(_is_inexact, points))}
        if tiny:
            listed = list_features(model.features_, tiny)
            problem = f"Solr adds 1e-6 to thresholds, which is too coarse for the small values of {listed}"
            fix = Fix("multiply these features by a constant before training, such as 1e6")
            warnings.append(Message(problem, "tiny-features", "warning", fixes=(fix,)))
        return warnings

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.json` with trees, and a template of the feature store."""
        trees = [{"weight": "1", "root": _solr_tree(tree, forest.names)} for tree in forest.trees]
        params = {"isNullSameAsZero": False, "trees": trees}
        fill = np.full(len(forest.names), np.nan)
        guide = self._write(forest.names, "MultipleAdditiveTreesModel", params, fill, target)
        missing = (
            'A feature can be missing if its definition has `"defaultValue": "NaN"`; Solr before 9.2 reads it as 0.'
        )
        return Guide(guide.files, [*guide.steps, missing])

    def write_linear(self, model: LinearModel, target: Target) -> Guide:
        """Write `model.json` with weights, and a template of the feature store."""
        weights = {name: float32(weight) for name, weight in zip(model.names, model.weights, strict=True)}
        # A missing value would make the score NaN, so features without a value for it are 0.
        return self._write(model.names, "LinearModel", {"weights": weights}, np.nan_to_num(model.fill), target)

    def _write(
        self, names: tuple[str, ...], class_name: str, params: dict[str, Any], fill: Floats, target: Target
    ) -> Guide:
        model = {
            "class": f"org.apache.solr.ltr.model.{class_name}",
            "name": target.name,
            "store": target.name,
            "features": [{"name": name} for name in names],
            "params": params,
        }
        target.write_json("model.json", model)
        store = [
            _feature_template(name, target.name, float(fill[feature]) if target.has_missing(feature) else None)
            for feature, name in enumerate(names)
        ]
        target.write_json("feature_store.json", store, indent=2)
        target.write_upload_script("solr.sh")
        files = {
            "model.json": f"the model, a `{class_name}`",
            "feature_store.json": "template of the feature store: one definition per feature",
            "upload.sh": "commands that upload both",
        }
        steps = [
            f"Replace every `{PLACEHOLDER}` in `feature_store.json` by your fields (or use other classes of features), "
            f"then run `{_USAGE}`.",
            f"Rerank a search with `rq={{!ltr model={target.name} reRankDocs=100}}`.",
        ]
        return Guide(files, steps)


def _solr_tree(tree: Tree, names: tuple[str, ...]) -> Any:
    def write_node(node: int, depth: int, left: Any, right: Any) -> dict[str, Any]:
        if left is None:
            return {"value": repr(float32(tree.value[node]))}
        return {
            "feature": names[tree.feature[node]],
            "threshold": repr(lowered_threshold(tree.threshold[node])),
            "missing": "left" if tree.missing_left[node] else "right",
            "left": left,
            "right": right,
        }

    return nested_nodes(tree, write_node)


def _feature_template(name: str, store: str, default: float | None) -> dict[str, Any]:
    """Return the definition of a feature; `default` is its value in documents that have none."""
    params = {"field": PLACEHOLDER}
    if default is not None:
        params["defaultValue"] = "NaN" if np.isnan(default) else repr(float32(default))
    return {
        "store": store,
        "name": name,
        "class": "org.apache.solr.ltr.feature.FieldValueFeature",
        "params": params,
    }


def lowered_threshold(threshold: float) -> float:
    """Return the largest float32 that, with Solr's 1e-6 added in single precision, is at most the threshold.

    >>> float(np.float32(lowered_threshold(0.5)) + SOLR_THRESHOLD_SLACK)
    0.5
    """
    wanted = np.float32(float32_at_most(threshold))
    lowered = np.maximum(wanted - SOLR_THRESHOLD_SLACK, np.float32(-np.finfo(np.float32).max))
    with np.errstate(over="ignore"):
        for _ in range(2):  # rounding moves the sum by one step at most
            lowered = np.nextafter(lowered, np.float32(np.inf))
    while lowered + SOLR_THRESHOLD_SLACK > wanted:
        lowered = np.nextafter(lowered, np.float32(-np.inf))
    return float(lowered)


def _is_inexact(threshold: float) -> bool:
    """Return whether a threshold has a large relative error in Solr."""
    wanted = float32_at_most(threshold)
    error = wanted - float(np.float32(lowered_threshold(threshold)) + SOLR_THRESHOLD_SLACK)
    return abs(wanted) > MIN_THRESHOLD and error > MAX_THRESHOLD_ERROR * abs(wanted)
