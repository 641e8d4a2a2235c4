"""The contract of every exporter: a forest or a linear model in, the files of a search engine out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crowdrank._text import counted
from crowdrank.errors import Fix, Message, UsageError, shown
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export.forest import Forest, Tree, read_forest
from crowdrank.rankers.export.linear_model import LinearModel, fold_standardization, single_weight
from crowdrank.rankers.feature_statistics import FeatureStatistics
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.reweighting import RD
from crowdrank.rankers.single_feature import SingleFeature

PLACEHOLDER = "REPLACE_ME"
"""Text that users replace in templates by their own fields and queries."""
UPLOAD_SCRIPTS = Path(__file__).parent / "upload_scripts"
DEPLOYABLE_FIX = "export the folder `deployable` that `crowdrank run` writes: one forest that imitates the ensemble"
ONE_FOREST_FIX = "train one forest, such as LambdaMART, or let `crowdrank distill` make one of another ranker"
MAX_NAMES_IN_MESSAGE = 3


@dataclass(frozen=True)
class Target:
    """Where an export goes.

    Attributes:
        folder: folder for the files.
        name: name of the model in the search engine.
        statistics: ranges and shares of missing values of the features in training, or None if they are not known.

    """

    folder: Path
    name: str
    statistics: FeatureStatistics | None = None

    def write_json(self, file: str, content: Any, indent: int | None = None) -> None:
        """Write a file of JSON; without `indent` on one line."""
        separators = (",", ":") if indent is None else None
        text = json.dumps(content, indent=indent, separators=separators, allow_nan=False, ensure_ascii=False)
        self.write_text(file, text + "\n")

    def write_text(self, file: str, text: str) -> None:
        """Write a file of text."""
        (self.folder / file).write_text(text, encoding="utf-8", newline="\n")

    def write_upload_script(self, script: str) -> None:
        """Write `upload.sh` from a file in `upload_scripts`; it stops while a template has placeholders."""
        text = (UPLOAD_SCRIPTS / script).read_text(encoding="utf-8")
        self.write_text("upload.sh", text.replace("MODEL_NAME", self.name))

    def has_missing(self, feature: int) -> bool:
        """Return whether a feature had missing values in training, as far as that is known."""
        return self.statistics is not None and bool(self.statistics.missing_share[feature] > 0)


@dataclass(frozen=True)
class Guide:
    """Parts of the README of an export.

    Attributes:
        files: contents of each file that the exporter wrote.
        steps: what to do with them, as paragraphs of Markdown.

    """

    files: Mapping[str, str]
    steps: Sequence[str]


class Exporter(ABC):
    """Base of all exporters; a subclass implements `write_trees` and, if the engine has linear models, `write_linear`.

    Attributes:
        title: name of the engine in messages.
        name_rule: what names of features must look like, for messages.
        adds_intercept: whether a linear model of the engine has an intercept; otherwise all scores lack it.
        reads_missing: whether a missing value reaches the trees; otherwise it counts as 0.
        margin: distance that rows for comparison keep from thresholds, which the engine changes by as much.

    """

    title: ClassVar[str]
    name_rule: ClassVar[str] = "a name is not empty"
    adds_intercept: ClassVar[bool] = False
    reads_missing: ClassVar[bool] = True
    margin: ClassVar[float] = 0.0

    @abstractmethod
    def write_trees(self, ranker: BoostedTrees, target: Target) -> Guide:
        """Write the files of a ranker of boosted trees."""

    def write_linear(self, model: LinearModel, target: Target) -> Guide:
        """Write the files of a linear model; raise UsageError if the engine has none."""
        fixes = (ONE_FOREST_FIX, Fix("choose {}", "to", "solr"))
        raise UsageError(f"{self.title} has no linear models", kind="no-linear-models", fix=fixes)

    @property
    def supports_linear(self) -> bool:
        """Whether the engine has linear models."""
        return type(self).write_linear is not Exporter.write_linear

    def write(self, model: BoostedTrees | LinearModel, target: Target) -> Guide:
        """Write the files of a model.

        Raises:
            UsageError: the engine cannot evaluate the model.

        """
        if isinstance(model, LinearModel):
            return self.write_linear(model, target)
        return self.write_trees(model, target)

    def can_hold(self, name: str) -> bool:
        """Return whether the engine can hold the name of a feature."""
        return bool(name)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise UsageError if the engine cannot hold a name of a feature."""
        invalid = [feature for feature, name in enumerate(names) if not self.can_hold(name)]
        if invalid:
            problem = f"{self.title} cannot hold the names of {list_features(names, invalid)}: {self.name_rule}"
            fixes = ("rename the features and train again", Fix("choose another engine with {}", "to", "onnx"))
            raise UsageError(problem, kind="feature-names", fix=fixes)

    def check(self, model: BoostedTrees | LinearModel, target: Target) -> list[Message]:
        """Return warnings about scores that differ in the engine."""
        if isinstance(model, LinearModel):
            return [] if self.handles_missing(model) else self._linear_warnings(model, target)
        return [] if self.reads_missing else self._missing_as_zero_warnings(model)

    def handles_missing(self, model: BoostedTrees | LinearModel) -> bool:
        """Return whether the engine scores rows with missing values as the ranker does."""
        return self.reads_missing and not isinstance(model, LinearModel)

    def _missing_as_zero_warnings(self, model: BoostedTrees) -> list[Message]:
        features = {feature for feature, threshold, left in read_forest(model).splits if left != (threshold >= 0)}
        if not features:
            return []
        listed = list_features(model.features_, features)
        problem = f"{self.title} reads a missing value as 0, but the trees treat it differently for {listed}"
        fixes = ("replace missing values by 0 before training", "choose an engine that has missing values")
        return [Message(problem, "missing-as-zero", "warning", fixes=tuple(map(Fix, fixes)))]

    def _linear_warnings(self, model: LinearModel, target: Target) -> list[Message]:
        features = [feature for feature in map(int, np.flatnonzero(model.weights)) if target.has_missing(feature)]
        if not features:
            return []
        listed = list_features(model.names, features)
        problem = f"{self.title} reads a missing value as 0, but {listed} had missing values in training"
        fix = Fix("let the engine return `value_if_missing` of features.csv for them")
        return [Message(problem, "missing-as-zero", "warning", fixes=(fix,))]


class ForestExporter(Exporter):
    """Base of exporters that write trees from arrays; a subclass implements `write_forest`."""

    @abstractmethod
    def write_forest(self, forest: Forest, target: Target) -> Guide:
        """Write the files of a forest."""

    def write_trees(self, ranker: BoostedTrees, target: Target) -> Guide:
        """Write the files of a ranker of boosted trees."""
        return self.write_forest(read_forest(ranker), target)


def find_exportable(ranker: Ranker) -> BoostedTrees | LinearModel:
    """Return the forest or linear model that a ranker consists of.

    Raises:
        UsageError: no search engine evaluates such a ranker.

    """
    if isinstance(ranker, RD):
        return find_exportable(ranker.ranker_)
    if isinstance(ranker, BoostedTrees):
        return ranker
    if isinstance(ranker, SingleFeature):
        return single_weight(ranker)
    if isinstance(ranker, GLS) and ranker.tree_features_ is None:
        return fold_standardization(ranker)
    kind = type(ranker).__name__
    model = f"a {kind} with tree features" if isinstance(ranker, GLS) else f"a ranker of the class {kind}"
    problem = f"No search engine evaluates {model}"
    raise UsageError(problem, kind="not-exportable", fix=(DEPLOYABLE_FIX, ONE_FOREST_FIX))


def nested_nodes(tree: Tree, write_node: Callable[[int, int, Any, Any], Any]) -> Any:
    """Return a tree as nested nodes.

    Args:
        tree: the tree.
        write_node: function (node, depth, left, right) that returns a node with its children; None for a leaf's.

    """
    written: list[Any] = [None] * len(tree)
    for node in reversed(range(len(tree))):  # children come after their parents
        is_leaf = tree.is_leaf(node)
        children = [None if is_leaf else written[child[node]] for child in (tree.left, tree.right)]
        written[node] = write_node(node, int(tree.depth[node]), *children)
    return written[0]


def list_features(names: Sequence[str], features: Iterable[int]) -> str:
    """Return a list of features for a message.

    >>> list_features(["a", "b", "c", "d"], {3, 0, 1, 2})
    "4 features ('a', 'b', 'c', ...)"
    """
    chosen = sorted(int(feature) for feature in features)
    listed = ", ".join(shown(names[feature]) for feature in chosen[:MAX_NAMES_IN_MESSAGE])
    more = ", ..." if len(chosen) > MAX_NAMES_IN_MESSAGE else ""
    return f"{counted(len(chosen), 'feature')} ({listed}{more})"
