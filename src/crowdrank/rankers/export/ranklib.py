"""RankLib: LambdaMART as XML, linear regression as text; features have numbers from 1, and missing values are 0."""

from __future__ import annotations

from typing import Any, ClassVar

from crowdrank.rankers.export.exportable_models import Forest, LinearModel, Tree, float32, float32_at_most
from crowdrank.rankers.export.exporter import ForestExporter, Guide, Target, nested_nodes

_COMMAND = "java -jar RankLib.jar -load model.txt -rank features.letor -score scores.txt"


class RankLib(ForestExporter):
    """RankLib, and LTR plugins by its format `model/ranklib`."""

    title: ClassVar[str] = "RankLib"
    adds_intercept: ClassVar[bool] = True
    reads_missing: ClassVar[bool] = False

    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write `model.txt` with trees."""
        trees = [
            f'\t<tree id="{number}" weight="1.0">\n\t\t<split>\n{_ranklib_tree(tree)}\t\t</split>\n\t</tree>\n'
            for number, tree in enumerate(forest.trees, 1)
        ]
        head = f"## LambdaMART\n## No. of trees = {len(trees)}\n\n"
        target.write_text("model.txt", f"{head}<ensemble>\n{''.join(trees)}</ensemble>\n")
        return _guide("trees (`LambdaMART`)")

    def write_linear(self, model: LinearModel, target: Target) -> Guide:
        """Write `model.txt` with weights."""
        weights = " ".join(f"{number}:{float(weight)!r}" for number, weight in enumerate(model.weights, 1))
        target.write_text("model.txt", f"## Linear Regression\n## Lambda = 0\n0:{model.intercept!r} {weights}\n")
        return _guide("weights (`Linear Regression`)")


def _guide(contents: str) -> Guide:
    steps = [
        f"Score documents in LETOR format with `{_COMMAND}`. The number of each feature is in `features.csv`.",
        "RankLib has no missing values: a feature that a line lacks is 0.",
    ]
    return Guide({"model.txt": f"the model: {contents}"}, steps)


def _ranklib_tree(tree: Tree) -> str:
    def write_node(node: int, depth: int, left: Any, right: Any) -> str:
        indent = "\t" * (depth + 3)
        if left is None:
            return f"{indent}<output> {float32(tree.value[node])!r} </output>\n"
        return (
            f"{indent}<feature> {tree.feature[node] + 1} </feature>\n"
            f"{indent}<threshold> {float32_at_most(tree.threshold[node])!r} </threshold>\n"
            f'{indent}<split pos="left">\n{left}{indent}</split>\n'
            f'{indent}<split pos="right">\n{right}{indent}</split>\n'
        )

    text: str = nested_nodes(tree, write_node)
    return text
