"""Rules that choose one grade for a document from P(grade): each minimizes an expected loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit

GRADE_RULES = ("median", "mode", "mean")
"""Valid values of the parameter `grade_by`; the losses are absolute error, zero-one loss and squared error."""
DEFAULT_RULE = "median"
LOSS_TOLERANCE = 1e-9
"""Expected losses closer than this are tied, so that rounding errors do not decide."""


def choose_grades(probabilities: NDArray[np.float64], rule: str) -> NDArray[np.int8]:
    """Choose one grade for each row of grade probabilities (n, n_grades) by a rule; return grade codes.

    `median` minimizes the expected absolute error, `mode` the probability of a wrong grade, and `mean` (the grade
    nearest to the expected grade) the expected squared error. `highest` is the highest grade with a positive
    probability. Of tied grades the middle one is chosen, of two middle ones the higher (OVERLAP 4.1).

    >>> shares = np.array([[0.4, 0.3, 0.0, 0.0, 0.3], [0.5, 0.5, 0.0, 0.0, 0.0]])
    >>> {rule: choose_grades(shares, rule).tolist() for rule in GRADE_RULES}
    {'median': [1, 1], 'mode': [0, 1], 'mean': [2, 1]}
    """
    if rule == "highest":
        highest: NDArray[np.int8] = (probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(axis=1)).astype(
            np.int8
        )
        return highest
    loss = rule_losses(rule, probabilities.shape[1])
    grades: NDArray[np.int8] = minimize_loss(np.ascontiguousarray(probabilities), loss)
    return grades


def rule_losses(rule: str, n_grades: int) -> NDArray[np.float64]:
    """Return the loss that a rule minimizes for each pair of true and chosen grade, (n_grades, n_grades).

    >>> rule_losses("mean", 3).tolist()
    [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
    """
    codes = np.arange(n_grades)
    distance = np.abs(codes[:, None] - codes)
    losses: NDArray[np.float64] = {"mode": distance > 0, "median": distance, "mean": distance**2}[rule].astype(
        np.float64
    )
    return losses


def _minimize_loss(probabilities: NDArray[np.float64], loss: NDArray[np.float64]) -> NDArray[np.int8]:
    expected = np.zeros(probabilities.T.shape)  # (n_grades, n)
    for t in range(len(loss)):  # not a matrix product, whose rounding depends on the BLAS
        expected += loss[t][:, None] * probabilities[:, t]
    is_tied = expected <= expected.min(axis=0) + LOSS_TOLERANCE
    half = is_tied.sum(axis=0, dtype=np.int8) // 2
    rank, grades = np.zeros(len(probabilities), np.int8), np.zeros(len(probabilities), np.int8)
    for row in is_tied:  # faster than a cumulative sum, whose type is wider
        rank += row
        grades += rank <= half
    return grades


@njit(nogil=True, numpy=_minimize_loss)
def minimize_loss(probabilities: NDArray[np.float64], loss: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return the grade code with the least expected loss for each row of P(grade), (n,); the middle one of ties."""
    # shares (n, n_grades), loss (n_grades, n_grades) -> (n,)
    n_grades = len(loss)
    grades, expected = np.empty(len(probabilities), np.int8), np.empty(n_grades)
    for row in range(len(probabilities)):
        least = np.inf
        for c in range(n_grades):
            expected[c] = 0.0
            for t in range(n_grades):
                expected[c] += probabilities[row, t] * loss[t, c]
            least = min(least, expected[c])
        rank = 0
        for c in range(n_grades):
            rank += expected[c] <= least + LOSS_TOLERANCE
        rank = rank // 2 + 1  # from the lowest of the tied grades
        for c in range(n_grades):
            rank -= expected[c] <= least + LOSS_TOLERANCE
            if rank == 0:
                grades[row] = c
                break
    return grades
