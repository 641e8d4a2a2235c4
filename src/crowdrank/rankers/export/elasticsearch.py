"""Learning to rank of Elasticsearch and OpenSearch: the plugins, which share a format, and Elasticsearch 8.15 itself.

The plugins read trees in XGBoost's JSON format and evaluate them in single precision: a value goes to the child `yes`
if it is less than `split_condition`, and to the child `missing` if there is none. Elasticsearch itself evaluates trees
in double precision.
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


class Elasticsearch(ForestExporter):
    """Learning to rank of Elasticsearch without a plugin."""

    title: ClassVar[str] = "Elasticsearch"

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.json` and a template of the feature extractors."""
        names = list(forest.names)
        trees = [{"tree": _tree(tree, names)} for tree in forest.trees]
        ensemble = {
            "feature_names": names,
            "trained_models": trees,
            "aggregate_output": {"weighted_sum": {"weights": [1.0] * len(trees)}},
            "target_type": "regression",
        }
        definition = {"preprocessors": [], "trained_model": {"ensemble": ensemble}}
        # upload.sh puts the extractors behind the first character of this file.
        target.write_json("model.json", {"input": {"field_names": names}, "definition": definition})
        extractors = [
            {"query_extractor": {"feature_name": name, "query": {"match": {PLACEHOLDER: "{{query}}"}}}}
            for name in names
        ]
        target.write_json("feature_extractors.json", extractors, indent=2)
        target.write_upload_script("elasticsearch.sh")
        files = {
            "model.json": "the model, without feature extractors",
            "feature_extractors.json": "template of the feature extractors: one query per feature",
            "upload.sh": "command that uploads both",
        }
        search = f'{{"rescore": {{"window_size": 100, "learning_to_rank": {{"model_id": "{target.name}", "params": ' + (
            '{"query": "..."}}}}'
        )
        steps = [
            f"Replace every `{PLACEHOLDER}` in `feature_extractors.json` by the query that computes the feature, then "
            f"run `{_USAGE}`. You need Elasticsearch 8.15 or later and a subscription "
            "that includes learning to rank.",
            f"Rescore a search with `{search}`.",
            "A feature whose query does not match a document is missing, unless its extractor has a `default_score`.",
        ]
        return Guide(files, steps)


def _tree(tree: Tree, names: list[str]) -> dict[str, Any]:
    nodes = [_node(tree, node) for node in range(len(tree))]
    return {"feature_names": names, "tree_structure": nodes, "target_type": "regression"}


def _node(tree: Tree, node: int) -> dict[str, Any]:
    if tree.is_leaf(node):
        return {"node_index": node, "leaf_value": float(tree.value[node])}
    return {
        "node_index": node,
        "split_feature": int(tree.feature[node]),
        "threshold": float(tree.threshold[node]),
        "decision_type": "lte",
        "default_left": bool(tree.missing_left[node]),
        "left_child": int(tree.left[node]),
        "right_child": int(tree.right[node]),
    }
