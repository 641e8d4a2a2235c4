"""The contract of every exporter, and the folder it writes: model, features, rows for comparison, README."""

from __future__ import annotations

import json
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._disk import file_digest, write_error
from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._folders import FolderKind, Manifest, check_output_folder, write_folder
from crowdrank._text import counted, markdown_text
from crowdrank._typing import Booleans, Floats
from crowdrank.errors import CrowdrankWarning, Fix, Message, UsageError, shown
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export import get_exporter
from crowdrank.rankers.export.exportable_models import (
    MAX_FLOAT32,
    Forest,
    LinearModel,
    Tree,
    float32_above,
    float32_at_most,
    fold_standardization,
    read_forest,
    single_feature_model,
    split_points,
)
from crowdrank.rankers.linear import GLS, RD
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.single_feature import SingleFeature
from crowdrank.rankers.training_data import FeatureStatistics
from crowdrank.readers.write import write_table

PLACEHOLDER = "REPLACE_ME"
"""Text that users replace in templates by their own fields and queries."""
UPLOAD_SCRIPTS = Path(__file__).parent / "upload_scripts"
DEPLOYABLE_FIX = "export the folder `deployable` that `crowdrank run` writes: one forest that imitates the ensemble"
ONE_FOREST_FIX = "train one forest, such as LambdaMART, or let `crowdrank distill` make one of another ranker"
DISTILL_FIX = "let `crowdrank distill` make one forest of it"
NO_TREES_FIX = "fit it without tree features (tree_features=0 of a GLS or a remapper)"
MAX_NAMES_IN_MESSAGE = 3
N_PARITY_ROWS = 20
"""Number of rows in `parity.csv`, by which the scores of an engine are compared with those of the ranker."""
N_COMPLETE_ROWS = 14
"""Number of these rows without missing values; the others have some if the engine supports missing values."""
MISSING_SHARE = 0.3
"""Probability that a feature is missing in the other rows."""
RANDOM_STATE = 0
EXPORT = FolderKind("export", 1, "exported ranker", "crowdrank export")
DEFAULT_NAME = "crowdrank"
"""Default name of the model in the search engine."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Pattern of names that are valid in URLs and files of every engine."""
EXPECTED_SCORE = "expected_score"
"""Last column of `parity.csv`."""


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
        margin: distance from thresholds of the values in `parity.csv` that test them; at least as much as the engine
            may shift a threshold.

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

    def score_difference_warnings(self, model: BoostedTrees | LinearModel, target: Target) -> list[Message]:
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
        return single_feature_model(ranker)
    if isinstance(ranker, GLS) and ranker.tree_features_ is None:
        return fold_standardization(ranker)
    kind = type(ranker).__name__
    model, fixes = f"a ranker of the class {kind}", (DEPLOYABLE_FIX, ONE_FOREST_FIX)
    if isinstance(ranker, GLS):
        model, fixes = f"a {kind} with tree features", (DISTILL_FIX, NO_TREES_FIX)
    raise UsageError(f"No search engine evaluates {model}", kind="not-exportable", fix=fixes)


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


def parity_rows(
    model: BoostedTrees | LinearModel, statistics: FeatureStatistics | None, *, with_missing: bool, margin: float = 0.0
) -> Floats:
    """Return rows of feature values in single precision: ends of ranges, values at thresholds, and random values.

    Args:
        model: the model, whose thresholds are used.
        statistics: ranges of the features in training; without them, ranges are those of the thresholds.
        with_missing: whether some values are missing (NaN).
        margin: minimum distance from the nearest threshold of each value that is derived from it.

    Returns:
        (N_PARITY_ROWS, n_features), all of which are float32 numbers.

    """
    if isinstance(model, LinearModel):
        points = [np.empty(0)] * len(model.names)
    else:
        points = [one[np.abs(one) < MAX_FLOAT32] for one in split_points(model)]
    low, high = _ranges(points, statistics)
    rng = np.random.default_rng(RANDOM_STATE)
    rows = low + rng.random((N_PARITY_ROWS, len(points))) * (high - low)
    rows[0], rows[1], rows[2] = low, high, 0.0
    for feature, thresholds in enumerate(points):
        if len(thresholds):
            at_threshold = rng.choice(thresholds, N_PARITY_ROWS)
            above = np.array(list(map(float32_above, at_threshold))) + margin
            at_most = np.array(list(map(float32_at_most, at_threshold))) - margin
            kind = rng.integers(0, 3, N_PARITY_ROWS)  # at the threshold, just above it, or anywhere in the range
            kind[:3] = 2
            rows[:, feature] = np.choose(kind, [at_most, above, rows[:, feature]])
    if with_missing:
        rows[_missing_cells(rng, len(points))] = np.nan
    return rows.astype(np.float32).astype(np.float64)


def _ranges(points: list[Floats], statistics: FeatureStatistics | None) -> tuple[Floats, Floats]:
    """Return the ends of the range of each feature; 0 and 1 if nothing is known."""
    if statistics is not None:
        low, high = statistics.minimum, statistics.maximum
    else:
        low = np.array([one.min(initial=np.inf) - 1 for one in points])
        high = np.array([one.max(initial=-np.inf) + 1 for one in points])
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)


def _missing_cells(rng: np.random.Generator, n_features: int) -> Booleans:
    cells = rng.random((N_PARITY_ROWS, n_features)) < MISSING_SHARE
    cells[:N_COMPLETE_ROWS] = False
    cells[-1] = True
    return cells


def export(ranker: Ranker, to: str, path: str | Path, *, name: str = DEFAULT_NAME) -> Path:
    """Write a ranker as a folder for a search engine; nothing is sent anywhere.

    The folder has the model in the engine's format, `features.csv` with the features and their ranges in training,
    `parity.csv` with rows of features and the scores that the engine must return for them, and a README with the next
    steps. Engines with a server also get `upload.sh`.

    Args:
        ranker: a fitted ranker: one forest (`LambdaMART`, `PointwiseGBDT`, `GDAPairwiseMART`) or a linear one (`GLS`,
            `RD`, `SingleFeature`).
        to: name of the engine: `elasticsearch-ltr`, `opensearch-ltr`, `elasticsearch`, `solr`, `vespa`, `ranklib`,
            `lightgbm` or `onnx`.
        path: folder to write; an earlier export there is replaced.
        name: name of the model in the engine.

    Returns:
        The path of the folder.

    Raises:
        UsageError: there is no such engine, or it cannot evaluate the ranker.
        OutputError: the folder cannot be written, or has files that crowdrank did not write.

    >>> import tempfile
    >>> world = crowdrank.simulate(queries=20, documents=10, random_state=1)
    >>> ranker = crowdrank.LambdaMART(n_estimators=5).fit(world.features, world.gold["grade"])
    >>> folder = export(ranker, "solr", Path(tempfile.mkdtemp()) / "solr")
    >>> sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".csv"))
    ['crowdrank.json', 'feature_store.json', 'features.csv', 'model.json', 'parity.csv']

    """
    exporter = get_exporter(to)
    if not _NAME.fullmatch(name):
        problem = f"must have lowercase letters, digits and underscores only, not {shown(name)}"
        raise UsageError(problem, parameter="name", kind="invalid-name")
    ranker._require_fitted()
    check_output_folder(path, EXPORT)
    _require_unedited(path)
    model = find_exportable(ranker)
    exporter.check_names(ranker.features_)
    notes = exporter.score_difference_warnings(model, Target(Path(path), name, ranker.feature_statistics_))
    with write_folder(path, EXPORT) as folder:
        target = Target(folder, name, ranker.feature_statistics_)
        guide = exporter.write(model, target)
        write_table(_feature_table(ranker, model), folder / "features.csv")
        write_table(_parity_table(ranker, model, exporter), folder / "parity.csv")
        target.write_text("README.md", _readme(ranker, model, exporter, guide, notes))
    for note in notes:
        warnings.warn(CrowdrankWarning(note), stacklevel=2)
    return Path(path)


def _require_unedited(path: str | Path) -> None:
    """Raise OutputError if the user has edited a file of an earlier export, such as its template of queries."""
    folder = Path(path)
    if not (folder / MANIFEST_FILE_NAME).exists():
        return
    for file, digest in Manifest.read(folder).entries.items():
        if (folder / file).exists() and file_digest(folder / file) != digest:
            fixes = ("name a new folder", "move that file")
            raise write_error(path, f"{file} in it was edited", kind="edited-file", fix=fixes)


def _feature_table(ranker: Ranker, model: BoostedTrees | LinearModel) -> pa.Table:
    """Return number, name, importance and training statistics of each feature; for linear models also the weights."""
    statistics = ranker.feature_statistics_
    columns: dict[str, Sequence[object] | Floats] = {
        "number": list(range(1, ranker.n_features_in_ + 1)),
        "name": list(ranker.features_),
        "importance": ranker.feature_importances_,
    }
    for column in ("minimum", "maximum", "missing_share"):
        unknown = np.full(ranker.n_features_in_, np.nan)
        columns[column] = unknown if statistics is None else getattr(statistics, column)
    if isinstance(model, LinearModel):
        columns |= {"weight": model.weights, "value_if_missing": model.fill}
    return pa.table({name: _without_nan(values) for name, values in columns.items()})


def _parity_table(ranker: Ranker, model: BoostedTrees | LinearModel, exporter: Exporter) -> pa.Table:
    rows = parity_rows(
        model,
        ranker.feature_statistics_,
        with_missing=exporter.handles_missing(model),
        margin=exporter.margin,
    )
    scores = ranker.predict(rows)
    if isinstance(model, LinearModel) and not exporter.adds_intercept:
        scores = scores - model.intercept
    columns = [_without_nan(column) for column in (*rows.T, scores)]
    return pa.Table.from_arrays(columns, names=[*ranker.features_, EXPECTED_SCORE])


def _without_nan(values: Sequence[object] | Floats) -> pa.Array:
    """Return an Arrow array with null for NaN, which CSV shows as an empty cell."""
    return pa.array(values, from_pandas=True)


def _readme(
    ranker: Ranker,
    model: BoostedTrees | LinearModel,
    exporter: Exporter,
    guide: Guide,
    notes: Sequence[Message],
) -> str:
    kind = "a linear model" if isinstance(model, LinearModel) else counted(model.best_iteration_, "tree")
    files = {
        **guide.files,
        "features.csv": "features, with their ranges and shares of missing values in training",
        "parity.csv": f"{N_PARITY_ROWS} rows of features, and the score that the engine must return for each (to 1e-5)",
    }
    steps = list(guide.steps)
    if isinstance(model, LinearModel) and not exporter.adds_intercept:
        steps.append(
            f"The engine has no intercept: add {model.intercept:.6g} to its scores to get those of the ranker."
        )
    steps += [f"Warning: {markdown_text(str(note))}" for note in notes]
    lines = [
        f"# {type(ranker).__name__} for {exporter.title}",
        "",
        f"{kind[0].upper()}{kind[1:]} on {counted(ranker.n_features_in_, 'feature')}, written by crowdrank "
        f"{crowdrank.__version__}. Nothing has been sent to a server.",
        "",
        *(f"- `{file}`: {contents}" for file, contents in files.items()),
        "",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "",
    ]
    return "\n".join(lines)
