"""Learning to Rank plugins of Elasticsearch and OpenSearch, which have the same format.

Trees are in XGBoost's JSON format, which a plugin evaluates in single precision: a value goes to the child `yes` if it
is less than `split_condition`, and to the child `missing` if there is none.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from crowdrank.rankers.export.exportable_models import Forest, LinearModel, Tree, float32, float32_above
from crowdrank.rankers.export.exporter import PLACEHOLDER, ForestExporter, Guide, Target, nested_nodes

_USAGE = "HOST=https://search.example:9200 sh upload.sh"
_SEARCH = (
    '{"rescore": {"window_size": 100, "query": {"rescore_query": '
    '{"sltr": {"model": "NAME", "params": {"keywords": "..."}}}}}}'
)


class ElasticsearchLTR(ForestExporter):
    """Learning to Rank plugin of Elasticsearch (o19s)."""

    title: ClassVar[str] = "the LTR plugin of Elasticsearch"
    missing_values: ClassVar[str] = (
        "A feature whose query does not match a document is missing. Releases of the plugin before 2024 read it as 0."
    )

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.json` with trees, and a template of the feature set."""
        trees = [xgboost_tree(tree, forest.names) for tree in forest.trees]
        guide = self._write(forest.names, "model/xgboost+json", trees, target)
        return Guide(guide.files, [*guide.steps, self.missing_values])

    def write_linear(self, model: LinearModel, target: Target) -> Guide:
        """Write `model.json` with weights, and a template of the feature set."""
        weights = {name: float32(weight) for name, weight in zip(model.names, model.weights, strict=True)}
        return self._write(model.names, "model/linear", weights, target)

    def _write(self, names: tuple[str, ...], model_type: str, definition: Any, target: Target) -> Guide:
        text = json.dumps(definition, separators=(",", ":"), allow_nan=False)
        target.write_json(
            "model.json", {"model": {"name": target.name, "model": {"type": model_type, "definition": text}}}
        )
        features = [_feature_template(name) for name in names]
        target.write_json("featureset.json", {"featureset": {"name": target.name, "features": features}}, indent=2)
        target.write_upload_script("ltr_plugin.sh")
        files = {
            "model.json": f"the model, of the type `{model_type}`",
            "featureset.json": "template of the feature set: one query per feature",
            "upload.sh": "commands that upload both",
        }
        steps = [
            f"Replace every `{PLACEHOLDER}` in `featureset.json` by the query that computes the feature, then run "
            f"`{_USAGE}`.",
            f"Rescore a search with `{_SEARCH.replace('NAME', target.name)}`.",
        ]
        return Guide(files, steps)


class OpenSearchLTR(ElasticsearchLTR):
    """Learning to Rank plugin of OpenSearch."""

    title: ClassVar[str] = "the LTR plugin of OpenSearch"
    missing_values: ClassVar[str] = (
        "A feature whose query does not match a document is missing. Releases for OpenSearch 2 read it as 0, and "
        "releases for OpenSearch 3 before July 2026 send it to the right at every split."
    )


def xgboost_tree(tree: Tree, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a tree in XGBoost's JSON format."""

    def write_node(node: int, depth: int, left: Any, right: Any) -> dict[str, Any]:
        if left is None:
            return {"nodeid": node, "leaf": float32(tree.value[node])}
        return {
            "nodeid": node,
            "depth": depth,
            "split": names[tree.feature[node]],
            "split_condition": float32_above(tree.threshold[node]),
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": (left if tree.missing_left[node] else right)["nodeid"],
            "children": [left, right],
        }

    converted: dict[str, Any] = nested_nodes(tree, write_node)
    return converted


def _feature_template(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "params": ["keywords"],
        "template_language": "mustache",
        "template": {"match": {PLACEHOLDER: "{{keywords}}"}},
    }
