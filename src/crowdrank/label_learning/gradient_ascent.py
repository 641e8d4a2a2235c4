"""Gradient ascent on targets and weights of labels, through the least squares on them (REMAP Algorithm 1)."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg
from scipy.special import expit

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.engine.passes import Engine
from crowdrank.errors import DataWarning, Fix, InputError, shown
from crowdrank.label_learning import objectives
from crowdrank.label_learning.expert_folds import ExpertFold, ExpertRows
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import ObjectiveSpec
from crowdrank.label_learning.remapped_labels import RemappedLabels
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.ranker import SavedState
from crowdrank.rankers.training_data import NamedMatrix, Standardizer
from crowdrank.rankers.tree_features import TreeFeatures
from crowdrank.readers.features import Features

Settings = dict[str, float]
MODES = ("W", "T", "W+T")
"""What is learned: weights, targets, or both."""
MAX_RAW_WEIGHT = 30.0
"""Limit of the argument of the sigmoid, so that no weight becomes 0."""
ROWS_PER_PRODUCT = 512
"""Number of documents per matrix product: few enough to stay in the cache."""
CACHE_LINE = 8
"""Number of floats in a cache line; rows are padded to a multiple of it."""
DOCUMENTS_PER_SHARD = 1 << 15
"""Number of documents per shard on an engine."""
STANDARD_ERRORS = 2.0
"""Number of standard errors that a gain over the start must exceed."""


class GradientAscent:
    """Runs of gradient ascent with several settings, compared on expert-graded queries that did not steer them.

    A run ascends once per fold, side by side: the rows of a fold are ranked by the functions that the other folds
    steer. Its best step is the one with the highest measure on all these rows, or its start if the gain over the start
    does not exceed some standard errors over queries, so that few queries leave the functions where they start. The
    learned functions are the mean over the folds after the best step of all runs.

    Args:
        data: documents with labels and expert grades.
        start: function from settings to the functions before the first step.
        learns_weights: whether the weights are learned; otherwise their gradient is not needed.
        n_iter: maximum number of steps of a run.
        patience: number of steps without a better one after which a run stops.
        standard_errors: number of standard errors over queries that the gain over the start must exceed.

    Attributes:
        history: a dict for each step: the settings, run, mu, iteration, training and validation measure, lower_bound
            (mean gain over the start of the run minus the standard errors).

    """

    def __init__(
        self,
        data: LabeledDocuments,
        start: Callable[[Settings], LabelFunctions],
        *,
        learns_weights: bool,
        n_iter: int,
        patience: int,
        standard_errors: float,
    ) -> None:
        self.data, self.start, self.learns_weights = data, start, learns_weights
        self.n_iter, self.patience, self.standard_errors = n_iter, patience, standard_errors
        self.history: list[dict[str, float]] = []

    def search(
        self, grids: Mapping[str, Sequence[float]], limits: Mapping[str, GridLimits], report: Report
    ) -> BestStep:
        """Tune the settings by coordinate search; return the best step."""
        n_planned = 1 + sum(len(values) - 1 for values in grids.values())
        best: BestStep | None = None
        run = -1

        def evaluate(settings: Settings) -> float:
            nonlocal best, run
            run += 1

            def report_step(iteration: int, value: float) -> None:
                report(run * self.n_iter + iteration, max(n_planned, run + 1) * self.n_iter, value)

            step = self._ascend(settings, run, report_step)
            if best is None or step.validation > best.validation:
                best = step
            return step.validation

        coordinate_search(grids, limits, evaluate)
        assert best is not None
        return best

    def _ascend(self, settings: Settings, run: int, report: Callable[[int, float], None]) -> BestStep:
        """Ascend on all folds until no step has been better for a while; return the best step, or the first one."""
        experts = self.data.experts
        paths = [self._path(settings, fold) for fold in experts.folds]
        score, start = np.empty(len(experts.features)), np.empty(0)
        first: BestStep | None = None
        best: BestStep | None = None
        best_bound = 0.0
        for iteration in range(self.n_iter + 1):
            training, learned = [], []
            for path in paths:
                found = path.scores()
                score[path.fold.held_out] = found[path.fold.held_out]
                training.append(path.fold.objective.value(found[path.fold.steering]))
                learned.append(path.functions.snapshot())
                if iteration < self.n_iter:
                    path.step(found)
            values = experts.validation.values(score[experts.held_out])
            start = values if iteration == 0 else start
            value, bound = float(values.mean()), gain_bound(values - start, self.standard_errors)
            step = {"run": run, "mu": paths[0].mu, "iteration": iteration, "training": float(np.mean(training))}
            self.history.append({**settings, **step, "validation": value, "lower_bound": bound})
            if best is None or value > best.validation:
                best, best_bound = BestStep(value, iteration, paths[0].mu, settings, learned), bound
            first = best if first is None else first
            report(iteration, value)
            if iteration - best.iteration >= self.patience:
                break
        assert best is not None
        assert first is not None
        return best if best_bound > 0 else first

    def _path(self, settings: Settings, fold: ExpertFold) -> AscentPath:
        n_trees = int(settings["tree_features"])
        functions = self.start(settings)
        mu = settings["ridge"] * float(functions.weight.sum())
        V = self.data.expert_features(n_trees)
        return AscentPath(
            functions, self.data.regression(n_trees), V, fold, mu, settings["learning_rate"], self.learns_weights
        )


def gain_bound(gain: Floats, standard_errors: float = STANDARD_ERRORS) -> float:
    """Return the mean gain over queries minus a number of standard errors.

    >>> gain_bound(np.array([1.0, 1.0])), gain_bound(np.array([2.0, 0.0]), 1.0), gain_bound(np.zeros(3))
    (1.0, 0.0, 0.0)
    """
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.abs(gain).sum()
    return float(gain.mean() - standard_errors * error)


@dataclass(eq=False)
class AscentPath:
    """Gradient ascent of label functions, steered by the expert grades of a fold.

    Attributes:
        functions: the label functions, which every step changes.
        regression: least squares on the labels; paths may share it if every step follows the scores it is based on.
        V: (n_expert_rows, n_features) features of all expert-graded rows.
        fold: the fold.
        mu: ridge.
        learning_rate: size of a step.
        learns_weights: whether the gradient of weights is needed.

    """

    functions: LabelFunctions
    regression: LabelRegression
    V: Floats
    fold: ExpertFold
    mu: float
    learning_rate: float
    learns_weights: bool

    def scores(self) -> Floats:
        """Return the scores of all expert-graded rows by the least squares on the current targets and weights."""
        self.regression.solve(self.functions.target, self.functions.weight, self.mu)
        return self.regression.predict(self.V)

    def step(self, score: Floats) -> None:
        """Move the functions along the gradient of the measure on the steering rows."""
        gradient, steering = np.zeros(len(score)), self.fold.steering
        gradient[steering] = self.fold.objective.gradient(score[steering])
        gradients = self.regression.gradients(self.V, gradient, with_weight_gradient=self.learns_weights)
        self.functions.step(*gradients, self.learning_rate)


@dataclass(frozen=True)
class GridLimits:
    """Limits within which a grid may be extended beyond its ends.

    Args:
        low, high: smallest and largest value.
        geometric: the ratio of neighboring values is constant; otherwise their difference is.

    >>> limits = GridLimits(1e-3, 1e3)
    >>> limits.next_value_outside([0.1, 1.0], 0.1), limits.next_value_outside([100.0, 1000.0], 1000.0)
    (0.01, None)
    >>> limits.next_value_outside([0.1, 1.0, 10.0], 1.0) is None
    True
    """

    low: float
    high: float
    geometric: bool = True

    def next_value_outside(self, grid: Sequence[float], value: float) -> float | None:
        """Return the next value of an ascending grid beyond its end `value`.

        Return None if `value` is not an end of the grid, or the next value is outside of the limits.
        """
        if value not in (grid[0], grid[-1]):
            return None
        inner = grid[1] if value == grid[0] else grid[-2]
        # The rounding keeps 0.01 / 10 from becoming 0.0010000000000000002.
        outside = float(f"{value * value / inner if self.geometric else 2 * value - inner:.12g}")
        return outside if self.low <= outside <= self.high else None


def coordinate_search(
    grids: Mapping[str, Sequence[float]],
    limits: Mapping[str, GridLimits],
    evaluate: Callable[[Settings], float],
) -> Settings:
    """Return the best settings found by searching one parameter at a time, again and again until none improves.

    The search starts in the middle of every grid. A grid with limits is extended while its best value is at an end.
    Grids of one value stay fixed. No settings are evaluated twice.

    Args:
        grids: values to try for each parameter.
        limits: limits of the grids that may be extended.
        evaluate: function from settings to a measure; higher is better.

    >>> coordinate_search(
    ...     {"ridge": (0.1, 1.0), "depth": (2, 3)}, {"ridge": GridLimits(1e-6, 1e6)},
    ...     lambda settings: -abs(settings["ridge"] - 100) - abs(settings["depth"] - 2)
    ... )
    {'ridge': 100.0, 'depth': 2}
    """
    values = {name: sorted(set(grid)) for name, grid in grids.items()}
    best = {name: grid[len(grid) // 2] for name, grid in values.items()}
    measured: dict[tuple[float, ...], float] = {}

    def measure(settings: Settings) -> float:
        key = tuple(settings.values())
        if key not in measured:
            measured[key] = evaluate(settings)
        return measured[key]

    measure(best)
    while True:
        before = dict(best)
        for name in (name for name, grid in values.items() if len(grid) > 1):

            def measure_value(value: float, name: str = name) -> float:
                return measure({**best, name: value})

            best[name] = _best_on_grid(values[name], best[name], measure_value, limits.get(name))
        if best == before:
            return best


def _best_on_grid(
    grid: list[float], current: float, measure: Callable[[float], float], limits: GridLimits | None
) -> float:
    """Return the best value of a grid, the current one of equals; extend the grid while the best is at its end."""
    best = max([current, *grid], key=measure)
    while limits is not None and (outside := limits.next_value_outside(grid, best)) is not None:
        grid[:] = sorted([*grid, outside])
        if measure(outside) <= measure(best):
            break
        best = outside
    return best


def sigmoid(raw: Floats) -> Floats:
    """Return the logistic sigmoid of numbers that are clipped to +-30.

    >>> sigmoid(np.array([0.0, -1e9])).round(6).tolist()
    [0.5, 0.0]
    """
    return np.asarray(expit(np.clip(raw, -MAX_RAW_WEIGHT, MAX_RAW_WEIGHT)))


class LabelFunctions(ABC):
    """Targets and weights of the training labels as functions of their features, while they are learned.

    Attributes:
        target, weight: (n_labels,) current values. An array that is not learned (`mode`) is never replaced.

    """

    target: Floats
    weight: Floats

    @abstractmethod
    def step(self, target_gradient: Floats, weight_gradient: Floats | None, learning_rate: float) -> None:
        """Move along the gradients dM/dt and dM/dw of the training labels."""

    @abstractmethod
    def snapshot(self) -> LearnedFunctions:
        """Return the functions as they are now."""


class LearnedFunctions(ABC):
    """Learned functions, without the labels that they were learned from."""

    @abstractmethod
    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Return targets and weights of labels from their features (n_labels, n_features) and starting targets."""

    @abstractmethod
    def importances(self, n_features: int) -> tuple[Floats, Floats]:
        """Return the importance of each label feature for the target and for the weight; each sums to 1 or is 0."""

    @abstractmethod
    def state(self) -> SavedState:
        """Return the arrays and texts to save."""

    @classmethod
    @abstractmethod
    def mean(cls, functions: Sequence[Any]) -> Self:
        """Return the mean of functions of the same class."""


class LabelRegression:
    """Ridge regression of label targets on document features, with gradients in every target and weight.

    b = Z^-1 X'Wt with Z = X'WX + mu I over labels and an intercept without penalty. All labels of a document share its
    row of X, so weights and weighted targets are summed per document first. Z is computed again only if `solve` gets
    other weights, and factored again only for other weights or another mu.

    Args:
        X: (n_documents, n_features), standardized; the scale must not depend on the weights.
        document: (n_labels,) the row of X of each label.
        engine: where Z is summed; by default in memory.

    Attributes:
        coefficients: (n_features + 1,), the intercept last.

    >>> X, document = np.array([[-1.0], [0.0], [1.0]]), np.array([0, 1, 2, 2])
    >>> LabelRegression(X, document).solve(np.array([0.0, 1.0, 1.0, 3.0]), np.ones(4), mu=1e-9).round(3).tolist()
    [1.0, 1.0]
    """

    coefficients: Floats

    def __init__(self, X: Floats, document: Integers, engine: Engine | None = None) -> None:
        self.X, self.document = X, document
        self._passes = None if engine is None else engine.passes(_ShardedNormalEquations(), _shards(X))
        self._weight: Floats | None = None
        self._mu = np.nan

    def solve(self, target: Floats, weight: Floats, mu: float) -> Floats:
        """Return the coefficients for the targets and weights of labels, (n_labels,) each."""
        moment = self._sum_per_document(weight * target)
        has_factor = self._weight is not None and (weight is self._weight or np.array_equal(weight, self._weight))
        if has_factor:
            right = np.append(moment @ self.X, moment.sum())
        else:
            self._gram, right = self._normal_equations(self._sum_per_document(weight), moment)
        if not has_factor or mu != self._mu:
            self._factor = cholesky(self._gram, mu)
        self._weight, self._mu, self._target = weight, mu, target
        self.coefficients = linalg.cho_solve(self._factor, right, check_finite=False)
        return self.coefficients

    def predict(self, V: Floats) -> Floats:
        """Return the scores of rows that are standardized like X."""
        return np.asarray(V @ self.coefficients[:-1] + self.coefficients[-1])

    def gradients(
        self, V: Floats, score_gradient: Floats, *, with_weight_gradient: bool = True
    ) -> tuple[Floats, Floats | None]:
        """Return dM/dt and, if `with_weight_gradient`, dM/dw of every label from dM/ds of rows V (MGBDT eq. 12).

        dM/dt = w (X u) and dM/dw = (t - X b)(X u), where u = Z^-1 V' dM/ds.
        """
        assert self._weight is not None
        right = np.append(score_gradient @ V, score_gradient.sum())
        u = linalg.cho_solve(self._factor, right, check_finite=False)
        if not with_weight_gradient:
            return self._weight * (self.X @ u[:-1] + u[-1])[self.document], None
        product, fitted = np.empty(len(self.X)), np.empty(len(self.X))
        objectives.multiply_by_two_vectors(self.X, u[:-1], self.coefficients[:-1], product, fitted)
        product = (product + u[-1])[self.document]
        residual = self._target - (fitted + self.coefficients[-1])[self.document]
        return self._weight * product, residual * product

    def _sum_per_document(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self.document, values, len(self.X)), dtype=np.float64)

    def _normal_equations(self, mass: Floats, moment: Floats) -> tuple[Floats, Floats]:
        if self._passes is None:
            return normal_equations(self.X, mass, moment)
        sums = self._passes.accumulate({"mass": mass, "moment": moment})
        return sums["gram"], sums["right"]


def normal_equations(X: Floats, mass: Floats, moment: Floats) -> tuple[Floats, Floats]:
    """Return [X 1]'W[X 1] (upper triangle) and [X 1]'Wt from the weight and weighted target of each row.

    Rows are scaled by the square root of their weight, with the target as an additional column, so that one symmetric
    product, at half the cost of a general one, contains both results.

    >>> gram, right = normal_equations(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), np.array([1.0, 0.0]))
    >>> np.triu(gram).round(9).tolist(), right.round(9).tolist()
    ([[13.0, 7.0], [0.0, 4.0]], [1.0, 1.0])
    """
    # X (n, k); mass, moment (n,) -> (k + 1, k + 1), (k + 1,)
    n, k = X.shape
    root = np.sqrt(mass)
    target = np.divide(moment, root, out=np.zeros(n), where=root > 0)
    width = -(-(k + 2) // CACHE_LINE) * CACHE_LINE
    products, scaled = np.zeros((width, width), order="F"), np.zeros((ROWS_PER_PRODUCT, width))
    for first in range(0, n, ROWS_PER_PRODUCT):
        last = min(first + ROWS_PER_PRODUCT, n)
        objectives.scale_rows(X, root, target, first, last, scaled)
        products = linalg.blas.dsyrk(1.0, scaled[: last - first].T, 1.0, products, overwrite_c=1)
    return products[: k + 1, : k + 1], products[: k + 1, k + 1].copy()


class _ShardedNormalEquations:
    """Normal equations summed over shards of documents; the parameters of a pass are `mass` and `moment` of all."""

    locality: ClassVar[str] = "item"
    carries: ClassVar[tuple[str, ...]] = ()

    def _start(self, shard: Arrays) -> Arrays:
        return {}

    def _restart(self, shard: Arrays) -> Arrays:
        return {}

    def _accumulate(self, shard: Arrays, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        assert theta is not None
        rows = slice(*shard["rows"])
        gram, right = normal_equations(shard["X"], theta["mass"][rows], theta["moment"][rows])
        return local, {"gram": np.triu(gram), "right": right}

    def _finish(self, shard: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        return {}


def _shards(X: Floats) -> list[Arrays]:
    ends = np.linspace(0, len(X), max(1, len(X) // DOCUMENTS_PER_SHARD) + 1).astype(np.int64)
    return [{"X": X[first:last], "rows": np.array([first, last])} for first, last in pairwise(ends)]


def cholesky(gram: Floats, mu: float) -> tuple[Floats, bool]:
    """Return the Cholesky factor of gram + mu I, without a penalty on the intercept (the last row)."""
    ridged = gram.copy(order="F")
    ridged[np.arange(len(gram) - 1), np.arange(len(gram) - 1)] += mu
    try:
        return linalg.cho_factor(ridged, lower=False, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as problem:
        raise InputError(
            f"the features are linearly dependent, and a ridge of {mu:g} is too small",
            kind="dependent-features",
            fix=Fix("give a larger {}", "ridge"),
        ) from problem


class LabeledDocuments:
    """Standardized features of labeled documents and of expert-graded documents.

    Args:
        labels: label features of the training labels.
        X: (n_documents, n_features) of the labeled documents.
        experts: rows with expert grades.
        trees: fitted trees whose outputs extend all features, or None.
        engine: where sums over documents are computed; by default in memory.

    """

    def __init__(
        self, labels: LabelFeatures, X: Floats, experts: ExpertRows, trees: TreeFeatures | None, engine: Engine | None
    ) -> None:
        self.labels, self.experts, self.trees, self.engine = labels, experts, trees, engine
        self.n_features = X.shape[1]
        X = self._extend(X)
        self.standardizer = Standardizer.fit(X, np.diff(labels.judgments.offsets).astype(np.float64))
        self._X = self.standardizer(X)
        self._V = self.standardizer(self._extend(experts.features))
        self._regressions: dict[int, LabelRegression] = {}

    def _extend(self, X: Floats) -> Floats:
        return X if self.trees is None else np.hstack([X, self.trees.transform(X)])

    def regression(self, n_trees: int) -> LabelRegression:
        """Return the least squares on the features and the first trees; the same object for each number."""
        if n_trees not in self._regressions:
            X = np.ascontiguousarray(self._X[:, : self.n_features + n_trees])
            self._regressions[n_trees] = LabelRegression(X, self.labels.item, self.engine)
        return self._regressions[n_trees]

    def expert_features(self, n_trees: int) -> Floats:
        """Return the features and the outputs of the first trees of the expert-graded rows."""
        return self._V[:, : self.n_features + n_trees]


def fit_average_trees(labels: LabelFeatures, X: NamedMatrix, trees: TreeFeatures) -> TreeFeatures:
    """Fit trees to the average label of each document, weighted by its number of labels (REMAP 5.2)."""
    judgments = labels.judgments
    n_labels = np.diff(judgments.offsets)
    average = np.add.reduceat(labels.start, judgments.offsets[:-1]) / n_labels
    return trees.fit(X, average, judgments.item_query, n_labels)


def with_document_features(labels: LabelFeatures, features: Features) -> tuple[LabelFeatures, Integers]:
    """Return the labels of documents that have features, and the row of features of each document."""
    table = labels.judgments
    query, document = table.item_ids()
    row = features.positions(query, document)
    missing = row < 0
    if missing.all():
        raise InputError(
            f"no judged document has features (the first one: document {shown(document[0].as_py())} of query "
            f"{shown(query[0].as_py())})",
            kind="no-features",
            fix="check that both files use the same ids of queries and documents",
        )
    if missing.any():
        n = int(missing.sum())
        warnings.warn(
            DataWarning(
                f"{counted(n, 'judged document')} without features {'is' if n == 1 else 'are'} skipped",
                kind="no-features",
            ),
            stacklevel=3,
        )
    return labels.where(~missing[labels.item]), row[~missing]


@dataclass(frozen=True)
class BestStep:
    """The functions of all folds after the best step.

    Attributes:
        validation: measure on the held-out queries.
        iteration: number of the step.
        mu: ridge of the least squares.
        settings: tuned parameters.
        functions: learned functions of each fold.

    """

    validation: float
    iteration: int
    mu: float
    settings: Settings
    functions: Sequence[LearnedFunctions]

    def ranker(
        self, data: LabeledDocuments, remapped: RemappedLabels, names: tuple[str, ...], objective: ObjectiveSpec
    ) -> GLS:
        """Return the least squares on learned targets and weights as a ranker of documents with these features."""
        n_trees = int(self.settings["tree_features"])
        factor, offset = objective.output_scale
        coefficients = data.regression(n_trees).solve(remapped.target, remapped.weight, self.mu)
        ranker = GLS(self.mu, tree_features=n_trees)
        ranker.coef_ = coefficients[:-1] * factor
        ranker.intercept_ = float(coefficients[-1]) * factor + offset
        ranker.tree_features_ = data.trees.first(n_trees) if data.trees is not None and n_trees else None
        ranker.standardizer_ = data.standardizer.first(len(ranker.coef_))
        ranker.mu_, ranker.history_, ranker.features_ = self.mu, [self.validation], names
        ranker.feature_importances_ = ranker._importances(len(names))
        return ranker
