"""Linear rankers: ridge regression (REMAP 5), also on features of boosted trees (REMAP 5.2), and robust regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from crowdrank._folders import Fields, require, require_floats
from crowdrank._progress import Report
from crowdrank._typing import Arrays, Booleans, Floats
from crowdrank.constraints import Constraints, InstanceOf, Number, OneOf, SequenceOf
from crowdrank.rankers.boosting import PointwiseGBDT
from crowdrank.rankers.model_selection import Validation, choose_value, require_one_value
from crowdrank.rankers.ranker import N_JOBS, Ranker, SavedState, divide_by_sum
from crowdrank.rankers.training_data import RankingData, Standardizer, sum_squares, sum_values, weighted_mean
from crowdrank.rankers.tree_features import TreeFeatures

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

ROWS_PER_BLOCK = 1 << 16
"""Number of rows that are summed at once."""
MIN_PIVOT = 1e-10
"""Minimum pivot of a Cholesky factor, relative to the largest diagonal element."""
AUTO_RIDGE = 0.03
"""Ridge of mu="auto" without validation queries, divided by the sum of weights."""
AUTO_RIDGES = (0.001, 0.01, 0.1, 1.0)
"""First ridges that mu="auto" tries on validation queries, divided by the sum of weights."""
AUTO_TREES = (0, 100, 200, 300)
"""Numbers of trees that tree_features="auto" tries."""


class GLS(Ranker):
    """Weighted least squares with a ridge: b = (X'WX + mu I)^-1 X'Wt on standardized features, by Cholesky.

    The intercept is not penalized. Rows with equal features are merged (weights summed, targets averaged), which only
    saves time. Missing values are replaced by the mean, with a warning; constant features have no coefficient. If
    mu = 0 and features are collinear, the solution of minimum norm is taken.

    Args:
        mu: the ridge; or several, of which validation queries choose one, as the start of a geometric grid that extends
            itself while the best value is at its end; or `auto`: a grid relative to the sum of weights.
        target: values to regress on: the (expected) `grade`, or its `gain`.
        tree_features: number of trees of a pointwise GBDT whose standardized outputs become features too, in-sample as
            in REMAP 5.2; `auto`: 0, 100, 200 or 300, as validation queries choose.
        gains: gains of grades, for the target `gain` and the validation measure.
        validate_by: measure by which validation queries choose.
        n_jobs: number of threads for the trees.
        random_state: random seed of the trees.

    Attributes:
        coef_: coefficients of the standardized features (and trees), (n_features + n_trees,).
        intercept_: weighted mean of the targets.
        mu_: the ridge.
        tree_features_: the fitted `TreeFeatures`, or None.

    >>> ranker = GLS(mu=0).fit([[1.0], [2.0], [3.0]], [0, 1, 2], query=["q"] * 3)
    >>> ranker.predict([[4.0]]).round(6).tolist()
    [3.0]

    """

    handles_missing = False
    supports_engines = True
    _parameter_constraints: ClassVar[Constraints] = {
        "mu": [Number(0), SequenceOf(Number(0)), OneOf("auto")],
        "target": [OneOf("grade", "gain")],
        "tree_features": [Number(0, integer=True), OneOf("auto")],
        **N_JOBS,
    }

    _trees_parameter: ClassVar[str] = "tree_features"
    """Name of the parameter with the number of trees."""

    coef_: Floats
    intercept_: float
    mu_: float
    standardizer_: Standardizer
    tree_features_: TreeFeatures | None = None

    def __init__(
        self,
        mu: float | Sequence[float] | str = 1.0,
        *,
        target: str = "grade",
        tree_features: int | str = 0,
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.mu = mu
        self.target = target
        self.tree_features = tree_features
        self.gains = gains
        self.validate_by = validate_by
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _needs_gains(self) -> bool:
        return self.target == "gain"

    def _tree_counts(self) -> tuple[int, ...]:
        """Return the candidate numbers of trees for tree features; validation chooses one."""
        n_trees = getattr(self, self._trees_parameter)
        return AUTO_TREES if isinstance(n_trees, str) else (n_trees,)

    def refit(
        self, X: Any, y: Any, *, query: Any = None, sample_weight: Any = None, mu: float, engine: Engine | None = None
    ) -> Self:
        """Return least squares on the same features and trees, fitted to other labels with another ridge.

        Args:
            X, y, query, sample_weight, engine: as in :meth:`fit`.
            mu: the ridge.

        """
        self._require_fitted()
        trees = self.tree_features_
        ranker = self.unfitted().set_params(**{"mu": mu, self._trees_parameter: 0 if trees is None else trees.n_trees_})
        return ranker._fit(X, y, query, sample_weight, None, False, engine, trees=trees)

    def _learn(
        self,
        data: RankingData,
        validation: Validation | None,
        report: Report,
        engine: Engine | None,
        trees: TreeFeatures | None = None,
    ) -> None:
        """Learn from data; `trees` are fitted already, otherwise they are fitted to the same data."""
        from crowdrank.engine.passes import LocalEngine

        target, weight = data.target(self.target, self.gains), data.weights
        counts, grid = self._tree_counts(), self._grid(float(weight.sum()), validation is not None)
        if validation is None:
            require_one_value(self._trees_parameter, counts)
            require_one_value("mu", grid)
        X, self.tree_features_ = data.features, trees
        if trees is not None:
            X = self._extend(X)
        elif max(counts) > 0:
            self.tree_features_ = TreeFeatures(max(counts), n_jobs=self.n_jobs, random_state=self.random_state)
            X = np.hstack([X, self.tree_features_._fit_data(data, target, report)])
        equations = NormalEquations.from_rows(*merge_equal_rows(X, target, weight), engine or LocalEngine())
        self.intercept_, self.standardizer_ = equations.intercept, equations.standardizer
        best_count, self.mu_ = self._choose(equations, counts, grid, validation)
        n_columns = data.features.shape[1] + best_count
        self.coef_, self.standardizer_ = equations.solve(self.mu_, n_columns), equations.standardizer.first(n_columns)
        if trees is None and self.tree_features_ is not None:
            self.tree_features_ = self.tree_features_.first(best_count) if best_count else None
        self.feature_importances_ = self._importances(data.features.shape[1])

    def _grid(self, total_weight: float, has_validation: bool) -> list[float]:
        """Return the ridges to choose from."""
        if isinstance(self.mu, str):
            return [ridge * total_weight for ridge in (AUTO_RIDGES if has_validation else (AUTO_RIDGE,))]
        return [float(mu) for mu in np.atleast_1d(self.mu)]

    def _choose(
        self, equations: NormalEquations, counts: Sequence[int], grid: list[float], validation: Validation | None
    ) -> tuple[int, float]:
        """Return the number of trees and the ridge with the highest validation measure."""
        if validation is None:
            return counts[0], grid[0]
        n_features = validation.data.features.shape[1]
        X = equations.standardizer(self._extend(validation.data.features))

        def evaluate(n_columns: int, mu: float) -> float:
            return validation(X[:, :n_columns] @ equations.solve(mu, n_columns) + equations.intercept)

        choices = []
        for n_trees in counts:
            mu, values = choose_value("mu", grid, partial(evaluate, n_features + n_trees))
            self.history_ += values
            choices.append((max(values), n_trees, mu))
        return max(choices, key=lambda choice: choice[0])[1:]

    def _extend(self, features: Floats) -> Floats:
        """Return the features and the outputs of the trees."""
        trees = self.tree_features_
        return features if trees is None else np.hstack([features, trees._transform(features)])

    def _importances(self, n_features: int) -> Floats:
        """Return absolute coefficients; those of trees are divided among the features of their splits."""
        sizes = np.abs(self.coef_)
        if self.tree_features_ is None:
            return divide_by_sum(sizes)
        trees = self.tree_features_.trees_.feature_importances_
        return divide_by_sum(sizes[:n_features] + sizes[n_features:].sum() * trees)

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return np.asarray(self.standardizer_(self._extend(features)) @ self.coef_ + self.intercept_)

    def _state(self) -> SavedState:
        state = SavedState(
            {"intercept": self.intercept_, "mu": self.mu_}, {"coef": self.coef_, **self.standardizer_.arrays}
        )
        if self.tree_features_ is not None:
            tree_arrays = self.tree_features_.standardizer_.arrays
            state.arrays |= {f"tree-{name}": values for name, values in tree_arrays.items()}
            state.parts["trees"] = self.tree_features_.trees_
        return state

    def _restore(self, state: SavedState) -> None:
        arrays, values = state.arrays, Fields(state.values)
        n_columns = self.n_features_in_
        if "trees" in state.parts:
            tree_arrays = {name: arrays[f"tree-{name}"] for name in ("mean", "scale")}
            self.tree_features_ = TreeFeatures.from_parts(state.parts["trees"], tree_arrays)
            require(self.tree_features_.features_ == self.features_, "its trees have other features")
            n_columns += self.tree_features_.n_trees_
        require_floats(arrays, ["coef"], (n_columns,))
        self.coef_, self.standardizer_ = arrays["coef"], Standardizer.from_arrays(arrays, n_columns)
        self.intercept_, self.mu_ = values.number("intercept"), values.number("mu")


class TreeFeatureGLS(GLS):
    """GLS on features extended by the outputs of boosted trees (REMAP 5.2): a GLS whose `tree_features` is `n_trees`.

    Args:
        n_trees: number of trees, or `auto`: 0, 100, 200 or 300, as validation queries choose.
        mu, target, gains, validate_by, n_jobs, random_state: as in `GLS`.

    >>> TreeFeatureGLS(100)
    TreeFeatureGLS(n_trees=100)

    """

    _parameter_constraints: ClassVar[Constraints] = {"n_trees": [Number(0, integer=True), OneOf("auto")]}
    _trees_parameter = "n_trees"

    def __init__(
        self,
        n_trees: int | str = 300,
        *,
        mu: float | Sequence[float] | str = "auto",
        target: str = "grade",
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_trees = n_trees
        self.mu = mu
        self.target = target
        self.gains = gains
        self.validate_by = validate_by
        self.n_jobs = n_jobs
        self.random_state = random_state


class _RowSums:
    """Sums of weighted least squares over blocks of rows, in three passes: means, squares, products."""

    locality: ClassVar[str] = "item"
    carries: ClassVar[tuple[str, ...]] = ()

    def _start(self, block: Arrays) -> Arrays:
        """Return the local arrays of a block: none."""
        return {}

    def _restart(self, block: Arrays) -> Arrays:
        """Return the local arrays of a block: none."""
        return {}

    def _accumulate(self, block: Arrays, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Return the sums of the next pass, which `theta` decides."""
        X, target, weight = block["X"], block["target"], block["weight"]
        if theta is None:
            return local, {**sum_values(X, weight), "intercept": np.array([weight @ target, weight.sum()])}
        if "scale" not in theta:
            return local, {"squares": sum_squares(X, weight, theta["mean"])}
        rows = Standardizer(theta["mean"], theta["scale"])(X)
        weighted = rows * weight[:, None]
        return local, {"Z": rows.T @ weighted, "right_hand_side": weighted.T @ (target - theta["intercept"])}

    def _finish(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        """Return the results of rows: none."""
        return {}


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Normal equations of weighted least squares, which can be solved for any ridge and any number of columns.

    Attributes:
        X, target, weight: the rows.
        standardizer: standardizer of the columns of X; since it centers them, the intercept is separate.
        intercept: weighted mean of the targets.
        Z: X'WX of the standardized columns.
        right_hand_side: X'W(t - intercept) of the standardized columns.

    """

    X: Floats
    target: Floats
    weight: Floats
    standardizer: Standardizer
    intercept: float
    Z: Floats
    right_hand_side: Floats

    @classmethod
    def from_rows(cls, X: Floats, target: Floats, weight: Floats, engine: Engine) -> NormalEquations:
        """Return the equations of some rows; the engine sums them over blocks of rows."""
        ends = np.linspace(0, len(X), max(1, len(X) // ROWS_PER_BLOCK) + 1).astype(int)
        blocks = [
            {"X": X[first:last], "target": target[first:last], "weight": weight[first:last]}
            for first, last in pairwise(ends)
        ]
        passes = engine.passes(_RowSums(), blocks)
        sums = passes.accumulate(None)
        intercept = float(sums["intercept"][0] / sums["intercept"][1])
        squares = passes.accumulate({"mean": weighted_mean(sums)})["squares"]
        standardizer = Standardizer.from_sums(sums, squares)
        products = passes.accumulate({**standardizer.arrays, "intercept": np.array(intercept)})
        return cls(X, target, weight, standardizer, intercept, products["Z"], products["right_hand_side"])

    def solve(self, mu: float, n_columns: int | None = None) -> Floats:
        """Return the coefficients of the first columns (all by default) for a ridge; constant columns have 0."""
        used = np.diag(self.Z)[:n_columns] > 0
        coef = np.zeros(len(used))
        if used.any():
            places = np.flatnonzero(used)
            coef[used] = self._solve_used(self.Z[np.ix_(places, places)], self.right_hand_side[places], mu, used)
        return coef

    def _solve_used(self, Z: Floats, right_hand_side: Floats, mu: float, used: Booleans) -> Floats:
        from scipy import linalg

        ridged = Z + mu * np.eye(len(Z))
        try:
            factor = linalg.cho_factor(ridged, lower=True)
            if (np.diag(factor[0]) ** 2).min() > MIN_PIVOT * np.diag(ridged).max():
                return np.asarray(linalg.cho_solve(factor, right_hand_side))
        except linalg.LinAlgError:
            pass  # collinear features without a ridge: the minimum-norm solution follows
        root = np.sqrt(self.weight)
        X = self.standardizer(self.X)[:, : len(used)][:, used]
        rows = np.vstack([X * root[:, None], np.sqrt(mu) * np.eye(len(Z))])
        values = np.concatenate([(self.target - self.intercept) * root, np.zeros(len(Z))])
        return np.asarray(linalg.lstsq(rows, values, lapack_driver="gelsd")[0])


def merge_equal_rows(X: Floats, target: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Merge rows with equal features: weights are summed, targets averaged; rows of weight 0 are dropped.

    >>> merge_equal_rows(np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 5.0, 3.0]), np.array([1.0, 1.0, 2.0]))
    (array([[1.],
           [2.]]), array([2., 5.]), array([3., 1.]))
    """
    if not (weight > 0).all():
        X, target, weight = X[weight > 0], target[weight > 0], weight[weight > 0]
    from crowdrank.rankers import lambda_kernels

    hashes = np.empty(len(X), np.uint64)
    lambda_kernels.hash_rows(np.ascontiguousarray(X).view(np.int64), hashes)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(X) or not np.array_equal(X, X[first[group]], equal_nan=True):
        return X, target, weight
    order = np.argsort(first)  # rows stay in the order of their first occurrence
    rank = np.argsort(order)
    mass = np.asarray(np.bincount(rank[group], weight), dtype=np.float64)
    return X[first[order]], np.bincount(rank[group], weight * target) / mass, mass


DEFAULT_DELTA = 0.5
"""Delta of delta="auto" without validation queries."""
AUTO_DELTAS = (0.25, 0.5, 1.0)
"""First deltas that delta="auto" tries on validation queries."""


class RD(Ranker):
    """Two fits of a regression: in the second, each row has the weight min(1/delta^2, 1/Delta^2).

    Delta is the residual of the row in the first fit, so that labels far from the prediction count less.
    `sample_weight` multiplies these weights. REMAP and MGBDT (Ustinovskiy, Fedorova, Gusev, Serdyukov 2016) compare
    with this reweighting by deviations, on boosted trees.

    Args:
        estimator: the regression: a `GLS` (default) or a `PointwiseGBDT`.
        delta: lower bound of the residuals; or several, of which validation queries choose one, as the start of a
            geometric grid that extends itself; `auto`: such a grid with an `eval_set`, else 0.5.
        gains, validate_by: measure by which validation queries choose delta.
        random_state: not used; the estimator has its own.

    Attributes:
        ranker_: the second fit.
        delta_: the chosen delta.
        residuals_: absolute residuals of the first fit, (n,).

    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0, 1, 2, 3, 0]
    >>> plain, robust = (ranker.fit(X, y, query=["q"] * 5) for ranker in (GLS(mu=0), RD(GLS(mu=0))))
    >>> bool(robust.ranker_.coef_[0] > plain.coef_[0])
    True

    """

    supports_engines = True
    _parameter_constraints: ClassVar[Constraints] = {
        "estimator": [InstanceOf((GLS, PointwiseGBDT), "a GLS or a PointwiseGBDT"), None],
        "delta": [Number(0, above=True), SequenceOf(Number(0, above=True)), OneOf("auto")],
    }

    ranker_: Ranker
    delta_: float
    residuals_: Floats

    def __init__(
        self,
        estimator: Ranker | None = None,
        *,
        delta: float | Sequence[float] | str = "auto",
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.delta = delta
        self.gains = gains
        self.validate_by = validate_by
        self.random_state = random_state

    @property
    def handles_missing(self) -> bool:  # type: ignore[override]
        """Whether the estimator uses missing features as such."""
        return self._regression().handles_missing

    def require_engines(self) -> None:
        """Raise UsageError if the estimator cannot learn on an engine."""
        self._regression().require_engines()

    def _needs_gains(self) -> bool:
        return self._regression()._needs_gains()

    def _regression(self) -> GLS | PointwiseGBDT:
        """Return an unfitted copy of the estimator."""
        if self.estimator is None:
            return GLS(gains=self.gains, validate_by=self.validate_by)
        assert isinstance(self.estimator, GLS | PointwiseGBDT)
        return self.estimator.unfitted()

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        held_out = None if validation is None else validation.data
        first = self._regression()._fit_data(data, held_out, report, engine)
        residuals = np.abs(data.target(first.target, first.gains) - first._score(data.features))
        rankers: dict[float, Ranker] = {}

        def fit_second(delta: float) -> Ranker:
            weight = data.weights / np.maximum(delta, residuals) ** 2
            rankers[delta] = self._regression()._fit_data(replace(data, weight=weight), held_out, report, engine)
            return rankers[delta]

        def evaluate(delta: float) -> float:
            assert validation is not None
            return validation(fit_second(delta)._score(validation.data.features))

        grid = self._grid(validation is not None)
        self.delta_, self.history_ = choose_value("delta", grid, None if validation is None else evaluate)
        self.ranker_, self.residuals_ = rankers.get(self.delta_) or fit_second(self.delta_), residuals
        self.ranker_.validation_queries_ = self.validation_queries_
        self.feature_importances_ = self.ranker_.feature_importances_

    def _grid(self, has_validation: bool) -> list[float]:
        """Return the values of delta to choose from."""
        if isinstance(self.delta, str):
            return list(AUTO_DELTAS) if has_validation else [DEFAULT_DELTA]
        return [float(delta) for delta in np.atleast_1d(self.delta)]

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return self.ranker_._score(features)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "estimator": None}

    def _state(self) -> SavedState:
        return SavedState({"delta": self.delta_}, {}, {}, {"ranker": self.ranker_})

    def _restore(self, state: SavedState) -> None:
        self.ranker_ = state.parts["ranker"]
        require(isinstance(self.ranker_, GLS | PointwiseGBDT), "its ranker is not a regression")
        require(self.ranker_.features_ == self.features_, "its ranker has other features")
        self.estimator, self.delta_ = self.ranker_, Fields(state.values).number("delta")
