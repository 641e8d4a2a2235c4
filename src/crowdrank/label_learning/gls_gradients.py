"""Weighted least squares over labels, and the gradient of a measure of its scores in every label (MGBDT eq. 12)."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
from scipy import linalg

from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.engine.base import Engine
from crowdrank.errors import Fix, InputError
from crowdrank.label_learning import kernels

ROWS_PER_PRODUCT = 512
"""Number of documents per matrix product: few enough to stay in the cache."""
CACHE_LINE = 8
"""Number of floats in a cache line; rows are padded to a multiple of it."""
DOCUMENTS_PER_SHARD = 1 << 15
"""Number of documents per shard on an engine."""


class LabelRegression:
    """Ridge regression of label targets on document features, with gradients in every target and weight.

    b = Z^-1 X'Wt with Z = X'WX + mu I over labels and an intercept without penalty. All labels of a document share its
    row of X, so weights and weighted targets are summed per document first. Z is computed again only if `solve` gets
    another array of weights, and factored again only for other weights or another mu.

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
        if weight is self._weight:
            right = np.append(moment @ self.X, moment.sum())
        else:
            self._gram, right = self._normal_equations(self._sum_per_document(weight), moment)
        if weight is not self._weight or mu != self._mu:
            self._factor = cholesky(self._gram, mu)
        self._weight, self._mu, self._target = weight, mu, target
        self.coefficients = linalg.cho_solve(self._factor, right, check_finite=False)
        return self.coefficients

    def predict(self, V: Floats) -> Floats:
        """Return the scores of rows that are standardized like X."""
        return np.asarray(V @ self.coefficients[:-1] + self.coefficients[-1])

    def gradients(self, V: Floats, score_gradient: Floats, *, of_weight: bool = True) -> tuple[Floats, Floats | None]:
        """Return dM/dt and (if `of_weight`) dM/dw of every label, from dM/ds of the rows of V (MGBDT eq. 12).

        dM/dt = w (X u) and dM/dw = (t - X b)(X u), where u = Z^-1 V' dM/ds.
        """
        assert self._weight is not None
        right = np.append(score_gradient @ V, score_gradient.sum())
        u = linalg.cho_solve(self._factor, right, check_finite=False)
        if not of_weight:
            return self._weight * (self.X @ u[:-1] + u[-1])[self.document], None
        product, fitted = np.empty(len(self.X)), np.empty(len(self.X))
        kernels.two_products(self.X, u[:-1], self.coefficients[:-1], product, fitted)
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
        kernels.scale_rows(X, root, target, first, last, scaled)
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
