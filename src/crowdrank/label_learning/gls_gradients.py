"""Weighted least squares over labels, and how a measure of its scores moves with every label (MGBDT eq. 12)."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError
from crowdrank.label_learning import kernels

ROWS = 512
"""Documents that are scaled and multiplied at once: few enough to stay in the cache, enough for threads to share."""
LINE = 8
"""Numbers in a line of the cache: rows are padded to whole ones."""


class Background:
    """The ranker behind the labels: b = Z^-1 X'Wt, Z = X'WX + mu I over labels, with an intercept mu does not touch.

    All labels of a document share its row of X: weights and weighted targets are summed per document first, so that Z
    costs as much as there are documents. Z is made and factored anew only for another array of weights, which is told
    by the array itself: who changes only targets passes the same weights.

    Args:
        X: (n_documents, n_features), standardized once and for all: a scale that moved with the weights would have a
            slope of its own.
        document: (n_labels,) the row of X of each label.

    Attributes:
        coefficients: (n_features + 1,), the intercept last.

    >>> rows, document = np.array([[-1.0], [0.0], [1.0]]), np.array([0, 1, 2, 2])
    >>> background = Background(rows, document)
    >>> background.solve(np.array([0.0, 1.0, 1.0, 3.0]), np.ones(4), mu=1e-9).round(3).tolist()
    [1.0, 1.0]
    """

    coefficients: Floats

    def __init__(self, X: Floats, document: Integers) -> None:
        self.X, self.document = np.ascontiguousarray(X, dtype=np.float64), document
        self._weight: Floats | None = None
        self._mu = np.nan

    def solve(self, target: Floats, weight: Floats, mu: float) -> Floats:
        """The coefficients for targets and weights of labels, (n_labels,) each."""
        moment = np.asarray(np.bincount(self.document, weight * target, len(self.X)), dtype=np.float64)
        if weight is self._weight:
            right = np.append(moment @ self.X, moment.sum())
        else:
            self._mass = np.asarray(np.bincount(self.document, weight, len(self.X)), dtype=np.float64)
            self._gram, right = normal_equations(self.X, self._mass, moment)
        if weight is not self._weight or mu != self._mu:
            self._factor = factored(self._gram, mu)
        self._weight, self._mu, self._target = weight, mu, target
        self.coefficients = linalg.cho_solve(self._factor, right, check_finite=False)
        return self.coefficients

    def scores(self, V: Floats) -> Floats:
        """The scores of other rows, standardized as X was."""
        return np.asarray(V @ self.coefficients[:-1] + self.coefficients[-1])

    def slopes(self, V: Floats, slope: Floats, *, of_weight: bool = True) -> tuple[Floats, Floats | None]:
        """dM/dt and dM/dw of every label, from dM/ds of the rows of V; multiplied from the left, Z only solved with.

        dM/dt = w (X u), dM/dw = (t - X b)(X u), where u = Z^-1 V' dM/ds.
        """
        pull = linalg.cho_solve(self._factor, np.append(slope @ V, slope.sum()), check_finite=False)
        assert self._weight is not None
        if not of_weight:
            return self._weight * (self.X @ pull[:-1] + pull[-1])[self.document], None
        lean, fitted = np.empty(len(self.X)), np.empty(len(self.X))
        kernels.two_products(self.X, pull[:-1], self.coefficients[:-1], lean, fitted)
        lean, fitted = (lean + pull[-1])[self.document], (fitted + self.coefficients[-1])[self.document]
        return self._weight * lean, (self._target - fitted) * lean


def normal_equations(X: Floats, mass: Floats, moment: Floats) -> tuple[Floats, Floats]:
    """[X 1]'W[X 1] (its upper half) and [X 1]'Wt in one pass, from each row's weight and weighted target.

    The rows are scaled by the root of their weight, a few at a time so that they stay in the cache, with the target as
    one column more: one symmetric product, at half the cost of a general one, has everything.

    >>> gram, right = normal_equations(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), np.array([1.0, 0.0]))
    >>> np.triu(gram).round(9).tolist(), right.round(9).tolist()
    ([[13.0, 7.0], [0.0, 4.0]], [1.0, 1.0])
    """
    # X (n, k), mass, moment (n,) -> (k + 1, k + 1), (k + 1,)
    n, k = X.shape
    root = np.sqrt(mass)
    aim = np.divide(moment, root, out=np.zeros(n), where=root > 0)
    width = -(-(k + 2) // LINE) * LINE
    products, scaled = np.zeros((width, width), order="F"), np.zeros((ROWS, width))
    for first in range(0, n, ROWS):
        last = min(first + ROWS, n)
        kernels.scale_rows(X, root, aim, first, last, scaled)
        products = linalg.blas.dsyrk(1.0, scaled[: last - first].T, 1.0, products, overwrite_c=1)
    return products[: k + 1, : k + 1], products[: k + 1, k + 1].copy()


def factored(gram: Floats, mu: float) -> tuple[Floats, bool]:
    """The Cholesky factor of gram + mu I, the intercept (the last) without mu."""
    ridged = gram.copy(order="F")
    ridged[np.arange(len(gram) - 1), np.arange(len(gram) - 1)] += mu
    try:
        return linalg.cho_factor(ridged, lower=False, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as problem:
        raise InputError(
            f"the features depend on each other, and a ridge of {mu:g} does not tell them apart",
            fix="give a larger ridge",
        ) from problem
