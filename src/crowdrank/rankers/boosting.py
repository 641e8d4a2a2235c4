"""Rankers of boosted trees, fitted and stored by LightGBM; its text is checked before LightGBM reads it.

LightGBM does not validate indices in a model file: an invalid one crashes the process or reads out of bounds.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import Fields, require
from crowdrank._numba import available_threads
from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, InstanceOf, Number, OneOf
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.lambdas import Objective
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import N_JOBS, Ranker, SavedState, divide_by_sum
from crowdrank.rankers.training_data import RankingData, SharedMatrix

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

END_OF_TREES_LINE = "end of trees\n"
"""Line after the last tree in LightGBM's text."""
_HEADER_PATTERNS = {
    "version": r"v\d+",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": r"\d{1,9}",
    "max_feature_idx": r"\d{1,9}",
    "objective": r"[\w :.,-]+",
    "average_output": "",
    "feature_names": r"[^ ]+(?: [^ ]+)*",
    "monotone_constraints": r"[0-9 -]+",
    "feature_infos": r"[^ ]+(?: [^ ]+)*",
    "tree_sizes": r"\d{1,9}(?: \d{1,9})*",
}
"""Pattern of the value of each key in the lines before the trees."""
_TEXT_AFTER_TREES = re.compile(
    r"\n*feature_importances:\n(?:[^ =\[\n]+=\d+\n)*\n*"
    r"parameters:\n(?:\[\w+: .*\]\n)*\n*end of parameters\n+(?:pandas_categorical:null\n*)?"
)
"""Pattern of the text after the trees: feature importances and parameters."""
_NODE_VALUES = ("split_gain", "internal_value", "internal_weight", "internal_count")
_LEAF_VALUES = ("leaf_weight", "leaf_count")
_TREE_LINE = re.compile(r"[a-z_]+=[^\r\n]*")
"""Pattern of a line of a tree: a key and its value."""
_MAX_LINES_PER_TREE = 22
"""Maximum number of lines per tree that LightGBM reads."""
_INTEGERS = re.compile(r"[0-9 -]*")
_NUMBERS = re.compile(r"[0-9a-z .+-]*")
_N_MISSING_TYPES = 3
"""Number of missing-value types in LightGBM's decision_type."""
ONE_THREAD_CELLS = 1_000_000
"""Number of cells (rows times features) below which a second thread does not make LightGBM faster."""


@dataclass(frozen=True, eq=False)
class Loss:
    """Loss that trees minimize: an objective of the scores, or the squared error to a target (n,) with weights."""

    objective: Objective | None = None
    target: Floats | None = None
    weight: Floats | None = None


class BoostedTrees(Ranker):
    """Base of rankers of boosted trees; a subclass implements `_loss`."""

    n_estimators: int
    learning_rate: float
    num_leaves: int
    min_child_samples: int
    patience: int
    lightgbm: Mapping[str, Any] | None
    n_jobs: int | None

    best_iteration_: int
    booster_: Any

    _parameter_constraints: ClassVar[Constraints] = {
        "n_estimators": [Number(1, integer=True)],
        "num_leaves": [Number(2, integer=True)],
        "min_child_samples": [Number(1, integer=True)],
        "patience": [Number(1, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "lightgbm": [InstanceOf(Mapping, "a mapping of LightGBM's parameters"), None],
        **N_JOBS,
    }

    @abstractmethod
    def _loss(self, data: RankingData, n_jobs: int) -> Loss:
        """Return the loss; a subclass may have further optional arguments, which its `fit` passes on."""

    def _learn(
        self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        n_jobs = self.n_jobs or default_threads(data.features.size)
        loss = self._loss(data, n_jobs, **options)
        self._set_trees(*train_booster(self, data, loss, tree_settings(self, n_jobs), validation, report))

    def _set_trees(self, booster: Any, best_iteration: int, history: list[float]) -> None:
        self.feature_importances_ = tree_importances(booster, best_iteration)
        self.booster_, self.best_iteration_, self.history_ = drop_training_data(booster), best_iteration, history

    def _score(self, features: Floats, query: Any = None) -> Floats:
        n_jobs = prediction_threads(self.n_jobs, features.size)
        scores: Floats = self.booster_.predict(
            features, raw_score=True, num_iteration=self.best_iteration_, num_threads=n_jobs
        )
        return scores

    def _state(self) -> SavedState:
        text = self.booster_.model_to_string(num_iteration=self.best_iteration_)
        return SavedState({"best_iteration": self.best_iteration_}, {}, {"trees": text})

    def _restore(self, state: SavedState) -> None:
        n_trees = check_trees(state.texts["trees"], self.n_features_in_, lightgbm_names(self.features_))
        lgb = import_lightgbm()
        try:
            self.booster_ = lgb.Booster(model_str=state.texts["trees"])
        except lgb.basic.LightGBMError as problem:
            raise ValueError(str(problem)) from problem
        self.best_iteration_ = Fields(state.values).integer("best_iteration", 1, max(n_trees, 1))


def default_threads(n_cells: float = np.inf) -> int:
    """Return OMP_NUM_THREADS or else the number of cores; 1 for a matrix of few cells (rows times features).

    >>> default_threads() >= 1, default_threads(50_000)
    (True, 1)
    """
    return 1 if n_cells < ONE_THREAD_CELLS else available_threads()


def prediction_threads(n_jobs: int | None, n_cells: int) -> int:
    """Return the number of threads for prediction, at most the number of cores.

    >>> prediction_threads(10**9, 100) <= (os.cpu_count() or 1)
    True
    """
    n_threads = n_jobs or default_threads(n_cells)
    return 1 if n_threads == 1 else min(n_threads, os.cpu_count() or 1)  # counting takes longer than the checks of X


def tree_settings(ranker: BoostedTrees, n_jobs: int) -> dict[str, Any]:
    """Return LightGBM's parameters; with them, trees do not depend on the number of threads."""
    return {
        "learning_rate": ranker.learning_rate,
        "num_leaves": ranker.num_leaves,
        "min_data_in_leaf": ranker.min_child_samples,
        "num_threads": n_jobs,
        "seed": ranker.random_state,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
        **(ranker.lightgbm or {}),
    }


def train_booster(
    ranker: BoostedTrees,
    data: RankingData,
    loss: Loss,
    settings: Mapping[str, Any],
    validation: Validation | None,
    report: Report,
) -> tuple[Any, int, list[float]]:
    """Train trees; return the booster, the number of trees to use, and the validation measure after each iteration."""
    lgb, min_leaf, objective = import_lightgbm(), int(settings["min_data_in_leaf"]), loss.objective
    require_rows(data, min_leaf)
    history: list[float] = []
    best = 0
    try:
        dataset = _dataset(data, loss, {"verbosity": -1, "min_data_in_leaf": min_leaf, **(ranker.lightgbm or {})})
        booster = lgb.Booster({**settings, "objective": "regression" if objective is None else "none"}, dataset)
        gradients = None if objective is None else (lambda scores, _: objective(scores))
        score = None if validation is None else np.zeros(len(validation.data.grade))
        for number in range(ranker.n_estimators):
            is_finished = booster.update(fobj=gradients)
            if score is not None and validation is not None:
                one_iteration = {"start_iteration": number, "num_iteration": 1, "num_threads": settings["num_threads"]}
                score += booster.predict(validation.data.features, raw_score=True, **one_iteration)
                history.append(validation(score))
                best = number if history[-1] > history[best] else best
            report(number + 1, ranker.n_estimators, history[-1] if history else float("nan"))
            if is_finished or (history and number - best >= ranker.patience):
                break
    except lgb.basic.LightGBMError as problem:
        if "num_features" in str(problem):  # LightGBM has no other way to tell
            raise too_few_rows(f"no feature splits the {counted(len(data.grade), 'row')}", min_leaf) from problem
        raise lightgbm_error(problem) from problem
    return booster, (best + 1 if history else booster.current_iteration()), history


def _dataset(data: RankingData, loss: Loss, parameters: Mapping[str, Any]) -> Any:
    """Return LightGBM's data set; rankers of one `SharedMatrix` share it if their loss is an objective of the scores.

    LightGBM drops features that cannot be split into leaves of its default size, unless it knows the actual one.
    Parameters of the data, such as max_bin, and those that need the raw data, such as linear_tree, are read here.
    """

    def make() -> Any:
        return import_lightgbm().Dataset(
            data.features,
            label=np.zeros(len(data.grade)) if loss.target is None else loss.target,
            weight=loss.weight,
            feature_name=lightgbm_names(data.names),
            free_raw_data=False,
            params=dict(parameters),
        )

    if isinstance(data.original_matrix, SharedMatrix) and loss.target is None and loss.weight is None:
        return data.original_matrix.binned(parameters, make)
    return make()


def require_rows(data: RankingData, min_leaf: int) -> None:
    """Raise InputError if there are too few rows for two leaves."""
    if len(data.grade) < 2 * min_leaf:
        raise too_few_rows(f"{counted(len(data.grade), 'row')} cannot be split", min_leaf)


def too_few_rows(problem: str, min_leaf: int) -> InputError:
    """Return the error for data that cannot be split into leaves."""
    fix = "lower it, give more rows, or take GLS"
    return InputError(f"{problem} into leaves of {min_leaf} (min_child_samples)", kind="few-rows", fix=fix)


def lightgbm_error(problem: Exception) -> UsageError:
    """Return the error for parameters that LightGBM refuses."""
    return UsageError(f"LightGBM refused: {str(problem).strip().rstrip('.')}", kind="lightgbm")


def lightgbm_names(names: tuple[str, ...]) -> list[str]:
    """Return feature names that LightGBM's text format can hold, all different.

    >>> lightgbm_names(("bm25", "title length", "title:length"))
    ['bm25', 'title_length', 'title_length_3']
    """
    found: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        plain = re.sub(r"[^\w.+-]", "_", name) or "_"
        while plain in found:
            plain = f"{plain}_{number}"
        found[plain] = None
    return list(found)


def drop_training_data(booster: Any) -> Any:
    """Return the booster without its training data and buffers, which are larger than its trees."""
    return booster.model_from_string(booster.model_to_string(num_iteration=-1)).free_dataset()


def tree_importances(booster: Any, n_trees: int) -> Floats:
    """Return the mean over trees of each feature's share in the gain of the tree's splits, (n_features,)."""
    totals = [booster.feature_importance("gain", iteration=number) for number in range(1, n_trees + 1)]
    gains = np.maximum(np.diff(totals, axis=0, prepend=0.0), 0.0)
    return divide_by_sum(sum(map(divide_by_sum, gains)))


def import_lightgbm() -> Any:
    """Return the module; raise UsageError if it cannot be loaded."""
    try:
        import lightgbm
    except OSError as problem:  # the wheel needs the OpenMP runtime of the system
        raise UsageError(
            f"LightGBM cannot be loaded ({problem})", kind="no-openmp", fix="install libgomp: apt install libgomp1"
        ) from problem
    return lightgbm


def check_trees(text: str, n_features: int, names: Sequence[str] | None = None) -> int:
    """Return the number of trees; raise ValueError unless the text is a complete model with `n_features` features.

    Args:
        text: the model, as LightGBM writes it.
        n_features: number of features.
        names: names that the features must have in the text, in this order; by default any.

    """
    head, start, rest = text.partition("Tree=")
    require(start and END_OF_TREES_LINE in rest, "the trees are incomplete")
    body, _, tail = (start + rest).partition(END_OF_TREES_LINE)
    require(body.isascii(), "the trees are not plain text")
    sizes = _check_header(head, n_features, names)
    require(body.rstrip("\n").count("Tree=") == len(sizes), "there are more or fewer trees than tree_sizes says")
    place = 0
    for number, size in enumerate(sizes):
        _check_tree(body[place : place + size], number, n_features)
        place += size
    require(not body[place:].strip("\n"), "the sizes of the trees do not add up")
    require(_TEXT_AFTER_TREES.fullmatch(tail), "the text after the trees cannot be read")
    return len(sizes)


def _check_header(head: str, n_features: int, names: Sequence[str] | None) -> list[int]:
    """Check the lines before the trees; return the length of each tree in characters."""
    name, *lines = head.splitlines()
    require(name == "tree", "it does not begin with 'tree'")
    found = _parse_key_values(lines)
    for key, value in found.items():
        require(key in _HEADER_PATTERNS and re.fullmatch(_HEADER_PATTERNS[key], value), f"{key} cannot be read")
    missing = set(_HEADER_PATTERNS) - {"objective", "average_output", "monotone_constraints"} - set(found)
    require(not missing, f"{min(missing, default='')} is missing")
    require(int(found["max_feature_idx"]) == n_features - 1, "the trees have other features")
    for key in ("feature_names", "feature_infos"):
        require(len(found[key].split(" ")) == n_features, f"{key} has another number of features")
    if names is not None:
        require(found["feature_names"].split(" ") == list(names), "the features of the trees have other names")
    return [int(size) for size in found["tree_sizes"].split(" ")]


def _parse_key_values(lines: list[str]) -> dict[str, str]:
    pairs = [line.partition("=")[::2] for line in lines if line]
    found = dict(pairs)
    require(len(found) == len(pairs), "a line occurs twice")
    return found


def _check_tree(block: str, number: int, n_features: int) -> None:
    require(block.startswith(f"Tree={number}\n") and block.endswith("\n"), f"tree {number} is incomplete")
    lines = block.rstrip("\n").split("\n")[1:]
    # LightGBM stops reading at a blank line, and reads on to the next = where a line has none.
    require(
        len(lines) <= _MAX_LINES_PER_TREE and all(map(_TREE_LINE.fullmatch, lines)), f"tree {number} cannot be read"
    )
    found = _parse_key_values(lines)
    n = int(_parse_integers(found, "num_leaves", 1)[0])
    n_categorical = int(_parse_integers(found, "num_cat", 1)[0])
    require(n >= 1 and n_categorical >= 0, f"tree {number} has no leaves")
    _parse_numbers(found, "leaf_value", n)
    _parse_numbers(found, "shrinkage", 1)
    if n > 1:
        _check_nodes(found, n, n_features, n_categorical)
    linear = _parse_integers(found, "is_linear", 1) if "is_linear" in found else np.zeros(1)
    require(linear[0] in (0, 1), "is_linear is not 0 or 1")
    if linear[0]:
        _check_linear(found, n, n_features)


def _check_nodes(found: dict[str, str], n: int, n_features: int, n_categorical: int) -> None:
    """Check that the splits form a tree, on features that exist."""
    feature = _parse_integers(found, "split_feature", n - 1)
    require(((feature >= 0) & (feature < n_features)).all(), "a split is on a feature that does not exist")
    children = np.concatenate([_parse_integers(found, name, n - 1) for name in ("left_child", "right_child")])
    require(((children >= -n) & (children <= n - 2)).all(), "a child of a split does not exist")
    # Every leaf and every split but the first has one parent, which comes before it: so there is no cycle.
    require(len(np.unique(children)) == 2 * (n - 1), "a leaf or a split has two parents")
    parents = np.tile(np.arange(n - 1), 2)
    require(((children < 0) | (children > parents)).all(), "a split comes before its parent")
    kind = _parse_integers(found, "decision_type", n - 1)
    require(((kind >= 0) & (kind >> 2 < _N_MISSING_TYPES)).all(), "a split is of an unknown type")
    threshold = _parse_numbers(found, "threshold", n - 1)
    categorical = (kind & 1) == 1
    if n_categorical or categorical.any():
        _check_categories(found, threshold[categorical], n_categorical)
    for name in _NODE_VALUES:
        if name in found:
            _parse_numbers(found, name, n - 1)
    for name in _LEAF_VALUES:
        if name in found:
            _parse_numbers(found, name, n)


def _check_categories(found: dict[str, str], set_index: NDArray[np.float64], n_categorical: int) -> None:
    """Check the sets of categories, and the indices by which splits refer to them."""
    bounds = _parse_integers(found, "cat_boundaries", n_categorical + 1)
    require(bounds[0] == 0 and (np.diff(bounds) > 0).all(), "the sets of categories do not add up")
    bits = _parse_integers(found, "cat_threshold", int(bounds[-1]))
    require(((bits >= 0) & (bits < 2**32)).all(), "a set of categories cannot be read")
    known = (set_index >= 0) & (set_index < n_categorical) & (set_index == np.floor(set_index))
    require(known.all(), "a split is on a set of categories that does not exist")


def _check_linear(found: dict[str, str], n: int, n_features: int) -> None:
    """Check the linear functions in the leaves."""
    _parse_numbers(found, "leaf_const", n)
    counts = _parse_integers(found, "num_features", n)
    require((counts >= 0).all(), "the linear leaves cannot be read")
    features = _parse_integers(found, "leaf_features", int(counts.sum()))
    require(((features >= 0) & (features < n_features)).all(), "a leaf uses a feature that does not exist")
    _parse_numbers(found, "leaf_coeff", int(counts.sum()))


def _parse_integers(found: dict[str, str], name: str, length: int) -> NDArray[np.int64]:
    return np.array(_split_values(found, name, length, _INTEGERS), np.int64)


def _parse_numbers(found: dict[str, str], name: str, length: int) -> NDArray[np.float64]:
    return np.array(_split_values(found, name, length, _NUMBERS), np.float64)


def _split_values(found: dict[str, str], name: str, length: int, pattern: re.Pattern[str]) -> list[str]:
    require(name in found and pattern.fullmatch(found[name]), f"{name} is missing or cannot be read")
    tokens = found[name].split()
    require(len(tokens) == length, f"{name} has {len(tokens)} values instead of {length}")
    return tokens


class PointwiseGBDT(BoostedTrees):
    """Boosted regression trees: the squared error of each document's label.

    Args:
        target: values to regress on: the (expected) `grade`, or its `gain`.
        within_query: whether the mean error of each query is subtracted from its errors, so that trees are fitted to
            differences between the documents of a query and not to the level of the query.
        gains: gains of grades, for the target `gain` and the validation measure.
        n_estimators: as in `LambdaMART`, like all further parameters.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> ranker = PointwiseGBDT(n_estimators=20).fit(world.features, world.gold["grade"])
    >>> ranker.score(world.features, world.gold["grade"]) > 0.9
    True

    """

    _parameter_constraints: ClassVar[Constraints] = {"target": [OneOf("grade", "gain")], "within_query": [Flag()]}

    def __init__(
        self,
        *,
        target: str = "grade",
        within_query: bool = False,
        gains: str | Sequence[float] = "exponential",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        validate_by: str = "nDCG@10",
        patience: int = 50,
        lightgbm: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.target = target
        self.within_query = within_query
        self.gains = gains
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.validate_by = validate_by
        self.patience = patience
        self.lightgbm = lightgbm
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _needs_gains(self) -> bool:
        return self.target == "gain"

    def _loss(self, data: RankingData, n_jobs: int) -> Loss:
        target = data.target(self.target, self.gains)
        if self.within_query:
            return Loss(WithinQueryError(target, data.weights, data.offsets))
        return Loss(target=target, weight=data.weight)


class WithinQueryError:
    """Weighted squared error after the mean error of each query is subtracted.

    Args:
        target: (n,) values to regress on.
        weight: (n,) weights.
        offsets: (n_queries + 1,) first row of each query.

    >>> error = WithinQueryError(np.array([3.0, 1.0, 7.0]), np.ones(3), np.array([0, 2, 3]))
    >>> error(np.zeros(3))[0].tolist()
    [-1.0, 1.0, 0.0]

    """

    def __init__(self, target: Floats, weight: Floats, offsets: Integers) -> None:
        self.target, self.weight, self.offsets = target, weight, offsets
        total = np.add.reduceat(weight, offsets[:-1])
        self._total = np.where(total > 0, total, 1.0)

    def __call__(self, score: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian of the error in every score."""
        error = score - self.target
        mean = np.add.reduceat(self.weight * error, self.offsets[:-1]) / self._total
        return self.weight * (error - np.repeat(mean, np.diff(self.offsets))), self.weight
