"""Vespa, which imports LightGBM's JSON format.

Its importer writes x < threshold (or !(x >= threshold) if missing values go left), so thresholds are raised by one step
in single precision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from crowdrank.rankers.export.exportable_models import LEAF, Forest, Tree, float32_above
from crowdrank.rankers.export.exporter import PLACEHOLDER, ForestExporter, Guide, Target, nested_nodes

_RANK_FEATURE = re.compile(r"[A-Za-z_]\w*(\([\w., \"]*\))?(\.\w+)*", re.ASCII)
"""Pattern of the names of rank features and functions, such as `bm25(title)` and `title_length`."""
_FUNCTION = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_USAGE = "APPLICATION=/path/to/application sh upload.sh"


class Vespa(ForestExporter):
    """Vespa's importer of LightGBM models."""

    title: ClassVar[str] = "Vespa"
    name_rule: ClassVar[str] = "a name is a rank feature, as in bm25(title), or a function, as in title_length"

    def can_hold(self, name: str) -> bool:
        """Return whether a name is that of a rank feature or of a function."""
        return _RANK_FEATURE.fullmatch(name) is not None

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.json` and a template of the rank profile."""
        model = {
            "name": "tree",
            "version": "v4",
            "num_class": 1,
            "num_tree_per_iteration": 1,
            "label_index": 0,
            "max_feature_idx": len(forest.names) - 1,
            "objective": "regression",  # the importer needs one; with this one, scores stay as they are
            "average_output": False,
            "feature_names": list(forest.names),
            "tree_info": [_tree_info(number, tree) for number, tree in enumerate(forest.trees)],
            "pandas_categorical": [],
        }
        target.write_json("model.json", model)
        target.write_text("rank-profile.sd", _rank_profile(forest.names, target.name))
        target.write_upload_script("vespa.sh")
        files = {
            "model.json": "the model in LightGBM's JSON format",
            "rank-profile.sd": "template of a rank profile: one function per feature that is not a rank feature",
            "upload.sh": "command that copies the model into your application package",
        }
        steps = [
            f"Replace every `{PLACEHOLDER}` in `rank-profile.sd`, add the profile to your schema, run "
            f"`{_USAGE}`, and deploy the application.",
            f"Search with `ranking={target.name}`.",
        ]
        return Guide(files, steps)


def _tree_info(number: int, tree: Tree) -> dict[str, Any]:
    def write_node(node: int, depth: int, left: Any, right: Any) -> dict[str, Any]:
        if left is None:
            return {"leaf_index": node, "leaf_value": float(tree.value[node])}
        return {
            "split_index": node,
            "split_feature": int(tree.feature[node]),
            "threshold": float32_above(tree.threshold[node]),
            "decision_type": "<=",
            "default_left": bool(tree.missing_left[node]),
            "missing_type": "NaN",
            "left_child": left,
            "right_child": right,
        }

    n_leaves = int((tree.feature == LEAF).sum())
    structure = nested_nodes(tree, write_node)
    return {"tree_index": number, "num_leaves": n_leaves, "num_cat": 0, "shrinkage": 1, "tree_structure": structure}


def _rank_profile(names: Sequence[str], name: str) -> str:
    functions = "".join(
        f"    function {feature}() {{\n        expression: {PLACEHOLDER}\n    }}\n"
        for feature in names
        if _FUNCTION.fullmatch(feature)
    )
    phase = f'    second-phase {{\n        expression: lightgbm("{name}.json")\n        rerank-count: 100\n    }}\n'
    return f"rank-profile {name} inherits default {{\n{functions}{phase}}}\n"
