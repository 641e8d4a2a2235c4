"""The lambda objective: which way every document should move, and how fast (Burges et al.'s LambdaRank)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import Measure, effective_gains, parse_measure
from crowdrank.rankers import kernels
from crowdrank.rankers.ranking_data import Lists, differ_within

WEIGHTINGS = {"product": kernels.PRODUCT, "left": kernels.LEFT, "post": kernels.POST}
MEASURES = ("nDCG", "DCG", "ERR", "AP")
CHUNKS = 8
"""Into how many parts the queries fall for each thread, so that none waits long for the last."""
Targets = Callable[[Any], NDArray[Any]]


class LambdaObjective:
    """Slopes and curvatures of the weighted pairwise log loss at given scores.

    A pair (i, j) of one query costs w |dZ| times the log loss of the chance sigma(s_i - s_j) against its target: 1 for
    the better document, or the chance P(i better than j) of soft targets. |dZ| is what the measure changes when the two
    swap places in the order of scores. Forces within a query sum to zero but where `weighting` is "post".

    >>> import numpy as np
    >>> from crowdrank.rankers.ranking_data import gather
    >>> lists = gather(np.eye(3), [2, 0, 1], ["q"] * 3)
    >>> slope, curve = LambdaObjective(lists)(np.zeros(3))
    >>> np.sign(slope).tolist(), bool(abs(slope.sum()) < 1e-12)
    ([-1.0, 1.0, 1.0], True)
    """

    def __init__(
        self,
        lists: Lists,
        *,
        measure: str | Measure | None = "nDCG",
        gains: Any = "exponential",
        weighting: str = "product",
        pair_targets: Any = None,
        sigmoid: float = 1.0,
        truncation: int = 30,
        norm: bool = True,
        n_jobs: int = 1,
    ) -> None:
        self.lists, self.n_jobs = lists, n_jobs
        self.offsets, self.sigmoid, self.truncation, self.norm = lists.offsets, float(sigmoid), int(truncation), norm
        # Where no measure is asked for only the order counts: relevance on any line will do.
        self.gain = lists.y if measure is None and lists.shares is None else lists.gain(effective_gains(measure, gains))
        self.code, self.value, self.inverse, self.discount = measured(lists, self.gain, measure, self.truncation)
        self.weight = np.ones(0) if lists.weight is None else lists.weight
        self.weighting = kernels.UNWEIGHTED if lists.weight is None else WEIGHTINGS[weighting]
        self.kind, self.spread, self.below, self.places = _targets(lists, pair_targets)
        self.parts = parts(self.offsets, self.truncation, CHUNKS * n_jobs if n_jobs > 1 else 1)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None

    def __call__(self, score: Floats) -> tuple[Floats, Floats]:
        """The slope and the curvature of the loss in every document's score."""
        score = np.ascontiguousarray(score, dtype=np.float64)
        slope, curve = np.empty(len(score)), np.empty(len(score))

        def one(part: tuple[int, int]) -> None:
            self._pass(part, score, slope, curve)

        list(map(one, self.parts) if self._pool is None else self._pool.map(one, self.parts))
        return slope, curve

    def _pass(self, part: tuple[int, int], score: Floats, slope: Floats, curve: Floats) -> None:
        """Write the slopes and curvatures of the queries from the first of `part` up to the second."""
        kernels.lambdas(
            self.offsets,
            *part,
            score,
            self.gain,
            self.value,
            self.inverse,
            self.discount,
            self.code,
            self.weight,
            self.weighting,
            self.kind,
            self.spread,
            self.below,
            self.places,
            self.sigmoid,
            self.truncation,
            self.norm,
            slope,
            curve,
        )

    def of_queries(self, queries: Integers, score: Floats) -> Floats:
        """The slopes of some queries only, at scores of their rows one query after the other."""
        everywhere, rows = np.zeros(len(self.gain)), []
        start = 0
        for query in queries:
            first, last = self.offsets[query], self.offsets[query + 1]
            everywhere[first:last] = score[start : start + last - first]
            rows.append(np.arange(first, last))
            start += last - first
        slope, curve = np.empty(len(everywhere)), np.empty(len(everywhere))
        for query in queries:
            self._pass((int(query), int(query) + 1), everywhere, slope, curve)
        found: Floats = slope[np.concatenate(rows)]
        return found

    def has_pairs(self) -> bool:
        """Whether any query has two documents that differ."""
        return differ_within(self.gain, self.offsets)


def measured(
    lists: Lists, gain: Floats, measure: str | Measure | None, truncation: int
) -> tuple[int, Floats, Floats, Floats]:
    """A measure as the kernels see it: its code, each document's value, 1 / ideal of each query, and discounts."""
    sizes = np.diff(lists.offsets)
    ranks = np.arange(1, int(sizes.max()) + 1, dtype=np.float64)
    none = np.ones(len(sizes))
    if measure is None:
        return kernels.NO_MEASURE, gain, none, ranks
    asked = parse_measure(measure)
    within = ranks <= (asked.cutoff or np.inf)
    if asked.name in ("nDCG", "DCG"):
        discount = within / np.log2(ranks + 1)
        if asked.name == "DCG":
            return kernels.DCG, gain, none, discount
        ideal = np.empty(len(sizes))
        # LightGBM's nDCG has no end, but its ideal ends at the truncation.
        kernels.ideals(lists.offsets, gain, discount, asked.cutoff or truncation, ideal)
        return kernels.DCG, gain, _inverse(ideal), discount
    if asked.name == "ERR":
        stop = lists.gain("exponential") / 2.0**asked.max_grade
        if stop.max() >= 1:
            raise InputError(
                f"{asked} takes {asked.max_grade} for the highest grade, but there are higher ones",
                fix=f"write ERR(max_grade={int(np.ceil(lists.y.max()))})",
            )
        return kernels.ERR, stop, none, within / ranks
    relevant = (lists.y >= asked.rel).astype(np.float64)
    return kernels.AP, relevant, _inverse(np.add.reduceat(relevant, lists.offsets[:-1])), within / ranks


def check_measure(measure: str | Measure | None) -> None:
    """Refuse a measure that says nothing about a swap of two documents."""
    if measure is None:
        return
    name = parse_measure(measure).name
    if name not in MEASURES:
        raise UsageError(f"measure is one of {', '.join(MEASURES)} (with options and cutoff) or None, not {name}.")


def _inverse(ideal: Floats) -> Floats:
    return np.divide(1.0, ideal, out=np.zeros(len(ideal)), where=ideal > 0)


def _targets(lists: Lists, targets: Any) -> tuple[int, Floats, Floats, Integers]:
    """Soft pair targets as the kernels see them."""
    nowhere, nothing = np.zeros(len(lists.offsets) - 1, np.int64), np.empty((0, 0))
    if targets is None:
        return kernels.HARD, nothing, nothing, nowhere
    if isinstance(targets, str):
        if targets != "posterior":
            raise UsageError(f"pair_targets is 'posterior', an array or a function, not '{targets}'.")
        if lists.shares is None:
            raise UsageError("pair_targets='posterior' takes y with one column for each grade: their probabilities.")
        return kernels.POSTERIOR, lists.shares, _below(lists.shares), nowhere
    if callable(targets):
        return _matrices(lists, targets)
    spread = np.asarray(targets, dtype=np.float64)
    if len(spread) != len(lists.y) or spread.ndim not in (1, 2) or not np.isfinite(spread).all() or (spread < 0).any():
        raise InputError(
            "pair_targets are not one standard deviation, or one probability for each grade, of each row",
            fix="give (n,) or (n, n_grades) numbers of 0 or more",
        )
    spread = spread[lists.order]
    if spread.ndim == 1:
        return kernels.NORMAL, np.column_stack([lists.y, spread]), nothing, nowhere
    return kernels.POSTERIOR, spread, _below(spread), nowhere


def _below(shares: Floats) -> Floats:
    """The chance that a document's grade is below each, and half of that it is the same."""
    below: Floats = np.cumsum(shares, axis=1) - 0.5 * shares
    return np.ascontiguousarray(below)


def _matrices(lists: Lists, targets: Targets) -> tuple[int, Floats, Floats, Integers]:
    sizes = np.diff(lists.offsets)
    matrices = []
    for start, size in zip(lists.offsets[:-1], sizes, strict=True):
        chances = np.asarray(targets(lists.order[start : start + size]), dtype=np.float64)
        if chances.shape != (size, size) or not ((chances >= 0) & (chances <= 1)).all():
            raise InputError(
                f"pair_targets gave no matrix of chances for a query of {size} rows",
                fix="return (n, n) numbers from 0 to 1 for n rows",
            )
        matrices.append(chances.ravel())
    places = np.append(0, np.cumsum(sizes**2))[:-1]
    return kernels.MATRIX, np.concatenate(matrices)[:, None], np.empty((0, 0)), places


def parts(offsets: Integers, truncation: int, n: int) -> list[tuple[int, int]]:
    """The queries in stretches of about equal numbers of pairs."""
    sizes = np.diff(offsets)
    work = np.cumsum(sizes * np.minimum(sizes, truncation) + 1)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(work, work[-1] * np.arange(1, n) / n), [len(sizes)]]))
    return [(int(a), int(b)) for a, b in pairwise(cuts)]
