"""Families: groups of assessors who make the same errors, such as prompts of one language model or copies of a spammer.

`find_families` compares the correlations of assessors. Two assessors with independent errors correlate as the product
of their reliabilities; members of one family correlate more. The reliability of assessor a comes from triads with two
of the most similar others, b and c: c(a, b) c(a, c) / c(b, c). Correlations divided by both reliabilities are about 1
within a family and lower between families. This needs no consensus, which would follow the largest family.
"""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._numba import njit
from crowdrank._typing import Arrays, Booleans, Codes, Floats, Integers
from crowdrank.consensus.model import EMAggregator, Table
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.shards import Shard, items_of
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

MAX_ASSESSORS = 2_000
"""Maximum number of assessors to compare, the most active ones: the work grows with the square."""
MIN_COMMON = 30
"""Minimum number of documents that two assessors must have in common to be compared."""
NEIGHBORS, NEIGHBOR_SHARE = 10, 0.25
"""Two assessors of a family are among each other's nearest `NEIGHBORS`, or nearest share of a small crowd."""
TRIAD_NEIGHBORS = 4
"""Number of nearest assessors in the triads whose median is the reliability."""
MARGIN, STANDARD_ERRORS = 0.05, 4.0
"""Minimum distance of the similarity in a family from the typical one, and standard errors on top of it."""
MIN_CORRELATION = 0.05
"""Minimum correlation in a triad."""


class FamilyAggregator(EMAggregator):
    """Base of models in which the judgments of a family count less than independent ones.

    The n judgments of a family on a document have the total weight n / (1 + (n - 1) family_correlation).
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "families": [OneOf("column", "auto", "none")],
        "family_correlation": [Number(0, 1)],
    }

    families: str
    family_correlation: float

    def _annotate(self, table: Table) -> Table:
        """Return the judgments with families found in them, if `families` is `auto`."""
        if self.families != "auto":
            return table
        # Judgments on disk: a sample of whole queries.
        sample = table.sample() if isinstance(table, ShardedJudgments) else table
        family = find_families(self._prepare(sample.with_families(None, None)))
        return _assign_families(table, sample.assessors, family)

    def _prepare(self, table: Table) -> Table:
        """Return the judgments with the families of the column, those found in the fit, or none."""
        prepared = super()._prepare(table)
        if self.families == "none":
            return prepared.with_families(None, None)
        if self.families == "auto" and prepared.families is None and hasattr(self, "judgments_"):
            return _assign_families(prepared, self.judgments_.assessors, self.judgments_.family_of)
        return prepared

    def _weights(self, offsets: Integers, assessor: Codes, family: Codes) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if every family has one member."""
        if self.family_correlation == 0 or int(family.max(initial=0)) + 1 == len(family):
            return None
        weights: Floats = family_weights(offsets, assessor, family, self.family_correlation)
        return weights

    def _shard_weights(self, shard: Shard) -> Arrays:
        """Return local state with the `weight` of each judgment; it is empty if all are 1."""
        weight = self._weights(shard.offsets, shard.assessor, shard.family)
        return {} if weight is None else {"weight": weight}

    def _judgment_weights(self, prepared: Judgments) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if all are 1."""
        return self._weights(prepared.offsets, prepared.assessor, prepared.family_of)


def _assign_families(table: Table, assessors: pa.Array, family: Codes) -> Table:
    """Return judgments with the `family` of each of the `assessors`; other assessors and single members have none."""
    row = ids.match(assessors, table.assessors)
    is_shared = np.bincount(family) > 1
    number = np.where(is_shared, np.cumsum(is_shared) - 1, -1)[family]
    codes = np.where(row < 0, -1, number[np.maximum(row, 0)]).astype(np.int32)
    names = pa.array([f"family {one + 1}" for one in range(int(is_shared.sum()))], pa.string())
    return table.with_families(names, codes)


def _family_weights(offsets: Integers, assessor: Codes, family: Codes, correlation: float) -> Floats:
    n_families = int(family.max(initial=-1)) + 1
    _, place, members = np.unique(
        items_of(offsets) * n_families + family[assessor], return_inverse=True, return_counts=True
    )
    weights: Floats = 1.0 / (1.0 + (members[place] - 1.0) * correlation)
    return weights


@njit(nogil=True, numpy=_family_weights)
def family_weights(offsets: Integers, assessor: Codes, family: Codes, correlation: float) -> Floats:
    """Return the weight of each judgment, (n,): 1 / (1 + (m - 1) correlation) for m judgments of a family on an item.

    Args:
        offsets: first judgment of each item, and the end, (n_items + 1,).
        assessor: assessor of each judgment, (n,).
        family: family of each assessor, (n_assessors,).
        correlation: correlation of the errors of a family.

    """
    weight, members = np.empty(len(assessor)), np.zeros(family.max() + 1)
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] += 1.0
        for j in range(offsets[item], offsets[item + 1]):
            weight[j] = 1.0 / (1.0 + (members[family[assessor[j]]] - 1.0) * correlation)
        for j in range(offsets[item], offsets[item + 1]):
            members[family[assessor[j]]] = 0.0
    return weight


def find_families(judgments: Judgments) -> Codes:
    """Return the family of each assessor, numbered in the order of first members; most have one member.

    >>> from crowdrank import read_judgments, simulate
    >>> world = simulate(queries=30, documents=20, assessors=12, labels=12, families=2, random_state=1)
    >>> family = find_families(read_judgments(world.judgments))
    >>> bool((np.bincount(family) > 1).any())
    True
    """
    from scipy.sparse.csgraph import connected_components

    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    active = np.argsort(-counts, kind="stable")[:MAX_ASSESSORS]
    correlation, common = correlations(judgments, active)
    similar = _are_similar(np.where(common >= MIN_COMMON, correlation, np.nan), common)
    _, group = connected_components(similar, directed=False)
    family = len(active) + np.arange(judgments.n_assessors)
    family[active] = group
    _, first, number = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return order[number].astype(np.int32)


def correlations(judgments: Judgments, assessors: Integers) -> tuple[Floats, Floats]:
    """Return the correlation of each two assessors over the items that both judged, and the number of these items.

    Both have the shape (n, n). The correlation is 0 if one of the two gave the same answer to all these items.
    """
    import scipy.sparse

    item = items_of(judgments.offsets)
    shape = (judgments.n_items, judgments.n_assessors)

    def by_item(values: Floats) -> scipy.sparse.csc_array:
        return scipy.sparse.coo_array((values, (item, judgments.assessor)), shape=shape).tocsc()[:, assessors]

    grade = judgments.grade.astype(np.float64)
    judged, grades, squares = by_item(np.ones(len(grade))), by_item(grade), by_item(grade**2)
    common = (judged.T @ judged).toarray()
    n = np.maximum(common, 1.0)
    mean, mean_square = (grades.T @ judged).toarray() / n, (squares.T @ judged).toarray() / n
    covariance = (grades.T @ grades).toarray() / n - mean * mean.T
    variance = np.maximum(mean_square - mean**2, 0.0)
    scale = np.sqrt(variance * variance.T)
    return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 1e-12), common


def _are_similar(correlation: Floats, common: Floats) -> Booleans:
    """Return which two assessors correlate more than their reliabilities explain, (n, n).

    Args:
        correlation: (n, n), NaN for assessors with too few documents in common.
        common: number of documents in common, (n, n).

    """
    n = len(correlation)
    known = np.where(np.isnan(correlation) | np.eye(n, dtype=bool), -np.inf, correlation)
    order = np.argsort(-known, axis=1, kind="stable")
    reliability = np.array([_reliability(known, a, order[a, :TRIAD_NEIGHBORS]) for a in range(n)])
    product = np.outer(reliability, reliability)
    similarity = np.where(np.isfinite(known), known, np.nan) / product
    typical = np.array([_typical_similarity(row[np.isfinite(row)]) for row in similarity])
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, order[:, : min(NEIGHBORS, max(int(n * NEIGHBOR_SHARE), 2))], values=True, axis=1)
    standard_error = 1 / (np.sqrt(np.maximum(common, 1.0)) * product)
    bound = (typical[:, None] + typical[None, :]) / 2 + MARGIN + STANDARD_ERRORS * standard_error
    similar: Booleans = near & near.T & (similarity > bound)
    return similar


def _reliability(known: Floats, a: int, nearest: Integers) -> float:
    """Return the correlation of assessor a with the quantity that the nearest assessors measure; NaN without triads."""
    triads = [
        known[a, b] * known[a, c] / known[b, c]
        for b, c in combinations(nearest, 2)
        if min(known[a, b], known[a, c], known[b, c]) > MIN_CORRELATION
    ]
    return float(np.sqrt(np.clip(np.median(triads), 0.01, 1.0))) if triads else np.nan


def _typical_similarity(similarity: Floats) -> float:
    """Return the lower quartile: assessors of other families may be the minority."""
    return float(np.quantile(similarity, 0.25)) if len(similarity) else np.nan
