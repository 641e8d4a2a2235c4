"""Linear rankers: weighted least squares with a ridge (REMAP 5), and reweighting by deviations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from crowdrank._progress import Report
from crowdrank._saved import Fields, require_floats
from crowdrank._typing import Arrays, Floats
from crowdrank.constraints import Constraints, Number, OneOf, SequenceOf
from crowdrank.engine.base import Engine
from crowdrank.engine.local import LocalEngine
from crowdrank.errors import Fix, UsageError
from crowdrank.rankers import kernels
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.lambdamart import shares
from crowdrank.rankers.ranking_data import Lists
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation

ROWS_PER_BLOCK = 1 << 16
"""Rows that are summed up at once."""
FLAT = 1e-12
"""A feature whose spread is below this part of its size is constant."""


class Standard:
    """Features as standard deviations from their weighted mean; a constant one is 0, a blank is the mean."""

    def __init__(self, mean: Floats, scale: Floats) -> None:
        self.mean, self.scale = mean, scale

    @classmethod
    def of(cls, X: Floats, weight: Floats) -> Standard:
        """The weighted mean and spread of features (n, n_features); blanks do not count."""
        sums = masses(X, weight)
        return cls.from_sums(sums, squares(X, weight, means(sums)))

    @classmethod
    def from_sums(cls, sums: Arrays, squared: Floats) -> Standard:
        """From what `masses` and `squares` sum up."""
        mean, mass = means(sums), np.maximum(sums["mass"], np.finfo(float).tiny)
        spread = np.sqrt(squared / mass)
        constant = spread <= FLAT * np.maximum(np.abs(mean), np.finfo(float).tiny)
        return cls(mean, np.where(constant, 0.0, spread))

    @classmethod
    def of_arrays(cls, arrays: Arrays, n_features: int) -> Standard:
        """Return the one that was saved as `mean` and `scale`; raise ValueError where they do not fit the features."""
        require_floats(arrays, ["mean"], (n_features,))
        require_floats(arrays, ["scale"], (n_features,), 0.0)
        return cls(arrays["mean"], arrays["scale"])

    def __call__(self, X: Floats) -> Floats:
        """Standardized features."""
        off = np.where(np.isnan(X), 0.0, X - self.mean)
        return np.asarray(np.divide(off, self.scale, out=np.zeros_like(off), where=self.scale > 0))


class GLS(Ranker):
    """Weighted least squares with a ridge: b = (X'WX + mu I)^-1 X'Wt over standardized features, by Cholesky.

    The intercept is not penalized. Rows of equal features are folded into one (weights summed, targets averaged), which
    changes nothing but the cost. Blank features count as the mean, which is said once; constant ones get no
    coefficient. Where mu = 0 and features depend on each other, the shortest of all solutions is taken.

    Args:
        mu: the ridge; several are tried on the validation queries, and the best one is kept.
        target: what is regressed on: the `grade`, or its `gain`.
        gains: of grades, where the target or the validation measure takes them.
        validate_by: the measure by which mu is chosen.
        random_state: nothing is drawn; here for the contract.

    Attributes:
        coef_: of the standardized features, (n_features,).
        intercept_: the weighted mean of the targets.
        mu_: the ridge that was used.

    >>> ranker = GLS(mu=0).fit([[1.0], [2.0], [3.0]], [0, 1, 2], query=["q"] * 3)
    >>> ranker.predict([[4.0]]).round(6).tolist()
    [3.0]
    """

    takes_blanks = False
    learns_on_engines = True
    _parameter_constraints: ClassVar[Constraints] = {
        "mu": [Number(0), SequenceOf(Number(0))],
        "target": [OneOf("grade", "gain")],
    }

    coef_: Floats
    intercept_: float
    mu_: float
    standard_: Standard

    def __init__(
        self,
        mu: float | Sequence[float] = 1.0,
        *,
        target: str = "grade",
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        random_state: int = 0,
    ) -> None:
        self.mu = mu
        self.target = target
        self.gains = gains
        self.validate_by = validate_by
        self.random_state = random_state

    def _learn(self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        target = lists.gain(self.gains) if self.target == "gain" else lists.y
        weight = np.ones(len(target)) if lists.weight is None else lists.weight
        self._regress(lists.X, target, weight, validation, engine or LocalEngine())

    def _regress(
        self, X: Floats, target: Floats, weight: Floats, validation: Validation | None, engine: Engine
    ) -> None:
        X, target, weight = folded(X, target, weight)
        solve = Normal.over(X, target, weight, engine)
        self.standard_ = solve.standard
        ridges = self._ridges()
        if len(ridges) > 1 and validation is None:
            raise UsageError(
                "has several values",
                parameter="mu",
                fix=[Fix("give {}, on which one is chosen", "eval_set"), "give one"],
            )
        tried = []
        for mu in ridges:
            self.coef_, self.intercept_ = solve(mu)
            if validation is not None:
                self.history_.append(validation(self._score(validation.lists.X)))
                tried.append((self.coef_, self.intercept_))
        best = int(np.argmax(self.history_)) if tried else 0
        self.mu_ = ridges[best]
        if tried:
            self.coef_, self.intercept_ = tried[best]
        self.importances_ = shares(np.abs(self.coef_))

    def _score(self, X: Floats, query: Any = None) -> Floats:
        return np.asarray(self.standard_(X) @ self.coef_ + self.intercept_)

    def _ridges(self) -> list[float]:
        return [float(mu) for mu in (self.mu if isinstance(self.mu, Sequence | np.ndarray) else [self.mu])]

    def _state(self) -> State:
        arrays = {
            "coef": self.coef_,
            "mean": self.standard_.mean,
            "scale": self.standard_.scale,
            "importances": self.importances_,
        }
        return State({"intercept": self.intercept_, "mu": self.mu_}, arrays)

    def _restore(self, state: State) -> None:
        require_floats(state.arrays, ["coef"], (self.n_features_in_,))
        self.coef_, self.standard_ = state.arrays["coef"], Standard.of_arrays(state.arrays, self.n_features_in_)
        values = Fields(state.values)
        self.intercept_, self.mu_ = values.number("intercept"), values.number("mu")


class RD(GLS):
    """Reweighting by deviations: a first fit, then a second one with each row weighted by min(1/delta^2, 1/Delta^2).

    Delta is the row's residual in the first fit: labels that are far from what the features say count less. Weights of
    the rows (`sample_weight`) multiply those.

    Args:
        delta: residuals below it count as it.
        mu, target, gains, validate_by, random_state: as in `GLS`.

    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0, 1, 2, 3, 0]
    >>> plain, robust = (cls(mu=0).fit(X, y, query=["q"] * 5) for cls in (GLS, RD))
    >>> bool(robust.coef_[0] > plain.coef_[0])
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"delta": [Number(0, above=True)]}

    deviations_: Floats

    def __init__(
        self,
        mu: float | Sequence[float] = 1.0,
        *,
        delta: float = 0.5,
        target: str = "grade",
        gains: str | Sequence[float] = "exponential",
        validate_by: str = "nDCG@10",
        random_state: int = 0,
    ) -> None:
        super().__init__(mu, target=target, gains=gains, validate_by=validate_by, random_state=random_state)
        self.delta = delta

    def _regress(
        self, X: Floats, target: Floats, weight: Floats, validation: Validation | None, engine: Engine
    ) -> None:
        super()._regress(X, target, weight, validation, engine)
        self.history_ = []
        deviations = np.abs(target - self._score(X))
        self.deviations_ = deviations
        super()._regress(X, target, weight / np.maximum(self.delta, deviations) ** 2, validation, engine)


def masses(X: Floats, weight: Floats) -> Arrays:
    """Sums over rows of weights and weighted values of each feature; blanks do not count."""
    there = ~np.isnan(X)
    total = (weight[:, None] * np.where(there, X, 0.0)).sum(axis=0)
    return {"mass": (weight[:, None] * there).sum(axis=0), "total": total}


def means(sums: Arrays) -> Floats:
    """The weighted mean of each feature."""
    return np.asarray(sums["total"] / np.maximum(sums["mass"], np.finfo(float).tiny))


def squares(X: Floats, weight: Floats, mean: Floats) -> Floats:
    """Sums over rows of weighted squares around the mean."""
    off = np.where(np.isnan(X), 0.0, X - mean)
    return np.asarray((weight[:, None] * off**2).sum(axis=0))


class Rows:
    """What least squares sum up over blocks of rows, in three passes: means, spreads, products."""

    locality: ClassVar[str] = "item"
    carries: ClassVar[tuple[str, ...]] = ()

    def _start(self, block: Arrays) -> Arrays:
        """Nothing is kept."""
        return {}

    def _restart(self, block: Arrays) -> Arrays:
        """As at the start."""
        return self._start(block)

    def _accumulate(self, block: Arrays, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """The sums that the next theta needs."""
        X, target, weight = block["X"], block["target"], block["weight"]
        if theta is None:
            return local, {**masses(X, weight), "level": np.array([weight @ target, weight.sum()])}
        if "scale" not in theta:
            return local, {"squares": squares(X, weight, theta["mean"])}
        rows = Standard(theta["mean"], theta["scale"])(X)
        weighted = rows * weight[:, None]
        return local, {"Z": rows.T @ weighted, "right": weighted.T @ (target - theta["level"])}

    def _finish(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        """Nothing is asked of single rows."""
        return {}


class Normal:
    """The normal equations of weighted least squares, made once for any ridge.

    Args:
        X, target, weight: the rows; X has weighted means of 0 once `standard` is applied: the intercept stands apart.
        standard: of the features.
        level: the weighted mean of the targets.
        Z, right: X'WX and X'W(t - level).

    """

    def __init__(
        self, X: Floats, target: Floats, weight: Floats, standard: Standard, level: float, Z: Floats, right: Floats
    ) -> None:
        self.rows, self.target, self.weight = X, target, weight
        self.standard, self.level, self.Z, self.right = standard, level, Z, right

    @classmethod
    def over(cls, X: Floats, target: Floats, weight: Floats, engine: Engine) -> Normal:
        """Sums over blocks of rows, on an engine."""
        ends = np.linspace(0, len(X), max(1, len(X) // ROWS_PER_BLOCK) + 1).astype(int)
        cut = [
            {"X": X[first:last], "target": target[first:last], "weight": weight[first:last]}
            for first, last in pairwise(ends)
        ]
        passes = engine.passes(Rows(), cut)
        sums = passes.accumulate(None)
        mean, level = means(sums), float(sums["level"][0] / sums["level"][1])
        standard = Standard.from_sums(sums, passes.accumulate({"mean": mean})["squares"])
        found = passes.accumulate({"mean": standard.mean, "scale": standard.scale, "level": np.array(level)})
        return cls(X, target, weight, standard, level, found["Z"], found["right"])

    def __call__(self, mu: float) -> tuple[Floats, float]:
        """Coefficients and intercept for a ridge."""
        used = np.diag(self.Z) > 0
        coef = np.zeros(len(self.Z))
        if used.any():
            coef[used] = self._solved(self.Z[np.ix_(used, used)], self.right[used], mu, used)
        return coef, self.level

    def _solved(self, Z: Floats, right: Floats, mu: float, used: Any) -> Floats:
        ridged = Z + mu * np.eye(len(Z))
        try:
            factor = linalg.cho_factor(ridged, lower=True)
            pivots = np.diag(factor[0]) ** 2
            if pivots.min() > 1e-10 * np.diag(ridged).max():
                return np.asarray(linalg.cho_solve(factor, right))
        except linalg.LinAlgError:
            pass  # dependent features and no ridge: the next line has the shortest solution
        root = np.sqrt(self.weight)
        X = self.standard(self.rows)[:, used]
        rows = np.vstack([X * root[:, None], np.sqrt(mu) * np.eye(len(Z))])
        aims = np.concatenate([(self.target - self.level) * root, np.zeros(len(Z))])
        return np.asarray(linalg.lstsq(rows, aims, lapack_driver="gelsd")[0])


def folded(X: Floats, target: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Rows of equal features as one: weights summed, targets averaged by them; rows without weight are gone.

    >>> folded(np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 5.0, 3.0]), np.array([1.0, 1.0, 2.0]))
    (array([[1.],
           [2.]]), array([2., 5.]), array([3., 1.]))
    """
    X, target, weight = X[weight > 0], target[weight > 0], weight[weight > 0]
    hashes = np.empty(len(X), np.uint64)
    kernels.hash_rows(np.ascontiguousarray(X).view(np.int64), hashes)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(X) or not np.array_equal(X, X[first[group]], equal_nan=True):
        return X, target, weight
    order = np.argsort(first)  # the rows stay in the order in which they came
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    mass = np.asarray(np.bincount(place[group], weight), dtype=np.float64)
    return X[first[order]], np.bincount(place[group], weight * target) / mass, mass
