"""Learning to rank of Elasticsearch itself (8.15 and later): trees, evaluated in double precision."""

from __future__ import annotations

from typing import Any, ClassVar

from crowdrank.rankers.export.exportable_models import Forest, Tree
from crowdrank.rankers.export.exporter import PLACEHOLDER, ForestExporter, Guide, Target

_USAGE = "HOST=https://search.example:9200 sh upload.sh"


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
