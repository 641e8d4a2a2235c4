"""Who errs together: families of assessors, found from how their judgments correlate.

Two assessors who err independently correlate as the product of their reliabilities (their correlations with what both
look at). Prompts of one language model or copies of one spammer correlate more than that. A reliability comes from
triads: of an assessor a and two of the nearest others, c(a, b) c(a, c) / c(b, c). Divided by both reliabilities, a
correlation within a family is about 1, and one between families is lower, as far as families err apart.

No consensus is fitted first: one that takes everybody as independent follows the largest family, and what it leaves
unexplained no longer tells of that family.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from crowdrank._numba import njit
from crowdrank.judgments.table import Judgments

MOST = 2_000
"""Only so many assessors, the most active, are compared: the work grows with the square."""
LEAST_COMMON = 30
"""Two assessors are compared if they judged so many documents in common."""
NEAREST, NEAREST_PART = 10, 4
"""Two are of one family only if each is among the nearest so many of the other: ten, or a quarter of a small crowd."""
TRIADS_OF = 4
"""Reliability is the median over the triads with so many nearest."""
GAP, ERRORS = 0.05, 4.0
"""Their correlation lies above what is usual for both by this much, and so many standard errors more."""
LEAST_CORRELATION = 0.05
"""Correlations below this say nothing of reliability."""


def find_families(judgments: Judgments) -> NDArray[np.int32]:
    """The family of each assessor, numbered in the order of their first members; most are alone in theirs.

    >>> from crowdrank import read_judgments, simulate
    >>> world = simulate(queries=30, documents=20, assessors=12, labels=12, families=2, random_state=1)
    >>> judgments = read_judgments(world.judgments)
    >>> found = find_families(judgments)
    >>> bool((np.bincount(found) > 1).any())
    True
    """
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    active = np.argsort(-counts, kind="stable")[:MOST]
    correlation, common = correlations(judgments, active)
    alike = _alike(np.where(common >= LEAST_COMMON, correlation, np.nan), common)
    _, group = connected_components(alike, directed=False)
    family = len(active) + np.arange(judgments.n_assessors)
    family[active] = group
    _, first, number = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return order[number].astype(np.int32)


def correlations(judgments: Judgments, assessors: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The correlation of the answers of two assessors over the items both judged, and how many these are."""
    # (n, n) each; 0 where either gave the same answer throughout
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    shape = (judgments.n_items, judgments.n_assessors)

    def table(values: NDArray[np.float64]) -> scipy.sparse.csc_array:
        return scipy.sparse.coo_array((values, (item, judgments.assessor)), shape=shape).tocsc()[:, assessors]

    grade = judgments.grade.astype(np.float64)
    there, given, squared = table(np.ones(len(grade))), table(grade), table(grade**2)
    common = (there.T @ there).toarray()
    n = np.maximum(common, 1.0)
    mean, square = (given.T @ there).toarray() / n, (squared.T @ there).toarray() / n
    covariance = (given.T @ given).toarray() / n - mean * mean.T
    spread = np.maximum(square - mean**2, 0.0)
    scale = np.sqrt(spread * spread.T)
    return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 1e-12), common


def _alike(correlation: NDArray[np.float64], common: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which two correlate more than their reliabilities and their usual company explain."""
    # correlation (n, n), NaN where too little is common
    n = len(correlation)
    known = np.where(np.isnan(correlation) | np.eye(n, dtype=bool), -np.inf, correlation)
    order = np.argsort(-known, axis=1, kind="stable")
    reliability = np.array([_reliability(known, a, order[a, :TRIADS_OF]) for a in range(n)])
    both = np.outer(reliability, reliability)
    likeness = np.where(np.isfinite(known), known, np.nan) / both
    usual = np.array([_usual(row[np.isfinite(row)]) for row in likeness])
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, order[:, : min(NEAREST, max(n // NEAREST_PART, 2))], values=True, axis=1)
    error = 1 / (np.sqrt(np.maximum(common, 1.0)) * both)
    beyond = likeness > (usual[:, None] + usual[None, :]) / 2 + GAP + ERRORS * error
    alike: NDArray[np.bool_] = near & near.T & beyond
    return alike


def _reliability(known: NDArray[np.float64], a: int, nearest: NDArray[np.int64]) -> float:
    """How assessor a correlates with what those nearest look at; NaN where there are no triads."""
    found = [
        known[a, b] * known[a, c] / known[b, c]
        for b, c in combinations(nearest, 2)
        if min(known[a, b], known[a, c], known[b, c]) > LEAST_CORRELATION
    ]
    return float(np.sqrt(np.clip(np.median(found), 0.01, 1.0))) if found else np.nan


def _usual(likeness: NDArray[np.float64]) -> float:
    """What is usual among those of other families, who may be the fewer: the lower quartile."""
    return float(np.quantile(likeness, 0.25)) if len(likeness) else np.nan


@njit(cache=True, nogil=True)
def family_weights(
    offsets: NDArray[np.int64], assessor: NDArray[np.int32], family: NDArray[np.int32], correlation: float
) -> NDArray[np.float64]:
    """What each judgment counts: n judgments of one family on an item count as n / (1 + (n - 1) correlation)."""
    # family (n_assessors,) -> (n,)
    weight, members = np.empty(len(assessor)), np.zeros(family.max() + 1)
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] += 1.0
        for j in range(offsets[item], offsets[item + 1]):
            weight[j] = 1.0 / (1.0 + (members[family[assessor[j]]] - 1.0) * correlation)
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] = 0.0
    return weight
