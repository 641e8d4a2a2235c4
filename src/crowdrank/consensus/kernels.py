"""The passes over judgments. Each has an obvious NumPy twin in tests/consensus/."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

SMALL = 1e-100  # below this a product is scaled up again; eight factors of 1e-17 fit between it and underflow


@njit(cache=True, nogil=True)
def count_votes(offsets: NDArray[np.int64], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.float64]:
    """How many judgments give each item each grade."""
    # offsets (n_items + 1,), grade (n,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0
    return votes


@njit(cache=True, nogil=True)
def count_confusions(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add to counts[a, g, c] the expected number of items of grade c that assessor a gave g."""
    # posterior (n_items, n_grades); counts (n_assessors, n_grades, n_grades)
    n_grades = posterior.shape[1]
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            for c in range(n_grades):
                counts[assessor[j], grade[j], c] += posterior[item, c]


@njit(cache=True, nogil=True)
def scale_up(product: NDArray[np.float64]) -> float:
    """Divide a product that has become small by its largest entry; returns the logarithm taken out."""
    highest = product.max()
    if highest >= SMALL:
        return 0.0
    for c in range(len(product)):
        product[c] /= highest
    return float(np.log(highest))


@njit(cache=True, nogil=True)
def settle(product: NDArray[np.float64], gold: int) -> float:
    """Turn a product into a posterior; returns the item's log likelihood, under its true grade where that is known."""
    if gold < 0:
        norm = product.sum()
        for c in range(len(product)):
            product[c] /= norm
        return float(np.log(norm))
    likelihood = max(product[gold], 1e-300)
    for c in range(len(product)):
        product[c] = 1.0 if c == gold else 0.0
    return float(np.log(likelihood))


@njit(cache=True, nogil=True)
def expect_grades(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    shares: NDArray[np.float64],
    likelihood: NDArray[np.float64],
    posterior: NDArray[np.float64],
    counts: NDArray[np.float64],
    class_counts: NDArray[np.float64],
) -> float:
    """Dawid-Skene's E-step and the counts of its M-step in one pass; returns the log likelihood.

    A product of likelihoods per item, scaled up now and then: no logarithm per judgment.
    """
    # shares (n_grades,); likelihood[a, g, c] = P(a says g | true grade c); posterior (n_items, n_grades) is written;
    # counts like likelihood and class_counts (n_grades,) are added to
    n_grades = len(shares)
    product = np.empty(n_grades)
    total_log = 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        for c in range(n_grades):
            product[c] = shares[c]
        for j in range(start, stop):
            row = likelihood[assessor[j], grade[j]]
            for c in range(n_grades):
                product[c] *= row[c]
            if (j - start) % 8 == 7:
                total_log += scale_up(product)
        total_log += settle(product, gold[item])
        for c in range(n_grades):
            posterior[item, c] = product[c]
            class_counts[c] += product[c]
        for j in range(start, stop):
            row = counts[assessor[j], grade[j]]
            for c in range(n_grades):
                row[c] += product[c]
    return total_log


@njit(cache=True, nogil=True)
def count_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    answer: NDArray[np.int8],
    agreed: NDArray[np.float64],
    asked: NDArray[np.float64],
) -> None:
    """Add, per assessor, how many items with an answer (>= 0) were judged, and how many as the answer says."""
    # answer (n_items,); agreed, asked (n_assessors,)
    for item in range(len(offsets) - 1):
        if answer[item] < 0:
            continue
        for j in range(offsets[item], offsets[item + 1]):
            asked[assessor[j]] += 1.0
            if grade[j] == answer[item]:
                agreed[assessor[j]] += 1.0
