"""The lambda objective: gradient and Hessian of a ranking measure in every score (LambdaRank, Burges 2010)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.evaluation.measures import Measure, effective_gains, parse_measure
from crowdrank.rankers.training_data import RankingData, labels_differ_within_query

WEIGHTINGS = ("product", "left", "post")
PAIR_TARGETS = ("grade", "posterior")
MEASURES = ("nDCG", "DCG", "ERR", "AP")
CHUNKS_PER_THREAD = 8
Gradients = tuple[Floats, Floats]
"""Gradient and Hessian of a loss in every score, (n,) each."""


class PairwiseObjective(ABC):
    """Base of objectives that sum over pairs of documents of a query; threads share the queries."""

    def __init__(self, data: RankingData, truncation: int, n_jobs: int) -> None:
        self.data, self.truncation = data, int(truncation)
        n_chunks = CHUNKS_PER_THREAD * n_jobs if n_jobs > 1 else 1
        self._chunks = query_chunks(data.offsets, self.truncation, n_chunks)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None

    @abstractmethod
    def _write_gradients(self, first: int, end: int, score: Floats, gradient: Floats, hessian: Floats) -> None:
        """Write gradient and Hessian for the rows of queries `first` to `end - 1` into the two arrays."""

    def __call__(self, score: Floats) -> Gradients:
        """Return gradient and Hessian of the loss in every score."""
        score = np.ascontiguousarray(score, dtype=np.float64)
        gradient, hessian = np.empty(len(score)), np.empty(len(score))

        def run(chunk: tuple[int, int]) -> None:
            self._write_gradients(*chunk, score, gradient, hessian)

        list(map(run, self._chunks) if self._pool is None else self._pool.map(run, self._chunks))
        return gradient, hessian


class LambdaObjective(PairwiseObjective):
    """Weighted pairwise log loss, each pair times the change of a measure.

    A pair (i, j) of one query costs w |dZ| times the log loss of sigma(s_i - s_j) against its target: 1 if i has the
    higher gain, or P(i better than j) for soft targets. |dZ| is the change of the measure if the two swap ranks.
    Gradients of a query sum to zero unless `weighting` is "post".

    `pair_probabilities` has P(i better than j) for the rows i and columns j of each query, one query after another,
    (the sum of n_documents**2,). They are targets in place of those that `pair_targets` asks for.

    >>> data = RankingData.from_ids(np.eye(3), [2, 0, 1], ["q"] * 3)
    >>> gradient, hessian = LambdaObjective(data)(np.zeros(3))
    >>> np.sign(gradient).tolist(), bool(abs(gradient.sum()) < 1e-12)
    ([-1.0, 1.0, 1.0], True)
    """

    def __init__(
        self,
        data: RankingData,
        *,
        measure: str | Measure | None = "nDCG",
        gains: Any = "exponential",
        weighting: str = "product",
        pair_targets: str = "grade",
        sigmoid: float = 1.0,
        truncation: int = 30,
        norm: bool = True,
        n_jobs: int = 1,
        pair_probabilities: Floats | None = None,
    ) -> None:
        from crowdrank.rankers import lambda_kernels

        super().__init__(data, truncation, n_jobs)
        self.sigmoid, self.norm = float(sigmoid), norm
        # Without a measure only the order of labels counts, so that they need no gains.
        has_gains = measure is not None or data.probabilities is not None
        self.gain = data.gain(effective_gains(measure, gains)) if has_gains else data.grade
        self.swaps = SwapMeasure.from_gains(data, self.gain, measure, self.truncation)
        self.weight = np.ones(0) if data.weight is None else data.weight
        codes = {"product": lambda_kernels.PRODUCT, "left": lambda_kernels.LEFT, "post": lambda_kernels.POST}
        self.weighting = lambda_kernels.UNWEIGHTED if data.weight is None else codes[weighting]
        self.probabilities, self.below = _soft_targets(data, pair_targets)
        self.pair_probabilities = np.empty(0)
        self.first_pair = np.cumsum(np.diff(data.offsets) ** 2) - np.diff(data.offsets) ** 2
        if pair_probabilities is not None:
            self.pair_probabilities = _checked_pairs(pair_probabilities, data)

    def _write_gradients(self, first: int, end: int, score: Floats, gradient: Floats, hessian: Floats) -> None:
        from crowdrank.rankers import lambda_kernels

        lambda_kernels.lambda_gradients(
            self.data.offsets,
            first,
            end,
            score,
            self.gain,
            *self.swaps,
            self.weight,
            self.weighting,
            self.probabilities,
            self.below,
            self.pair_probabilities,
            self.first_pair,
            self.sigmoid,
            self.truncation,
            self.norm,
            gradient,
            hessian,
        )

    def gradient_of(self, queries: Integers, score: Floats) -> Floats:
        """Return the gradient for some queries; `score` has only their rows, one query after the other."""
        rows = self.data.rows_of(queries)
        scores, gradient, hessian = (np.zeros(len(self.gain)) for _ in range(3))
        scores[rows] = score
        for query in queries:
            self._write_gradients(int(query), int(query) + 1, scores, gradient, hessian)
        return np.asarray(gradient[rows])

    def has_pairs(self) -> bool:
        """Return whether any query has two documents of different gains."""
        return labels_differ_within_query(self.gain, self.data.offsets)


class SwapMeasure(NamedTuple):
    """A measure in the form that kernels need to compute the effect of a swap.

    Attributes:
        value: (n,) gain (DCG), stopping probability (ERR) or relevance (AP) of each document.
        inverse_ideal: (n_queries,) inverse of the ideal value of each query.
        discount: (longest query,) discount of each rank.
        code: code of the measure.

    """

    value: Floats
    inverse_ideal: Floats
    discount: Floats
    code: int

    @classmethod
    def from_gains(cls, data: RankingData, gain: Floats, measure: str | Measure | None, truncation: int) -> SwapMeasure:
        """Return a measure of documents with these gains; the ideal of nDCG without a cutoff ends at `truncation`."""
        from crowdrank.rankers import lambda_kernels

        sizes = np.diff(data.offsets)
        ranks = np.arange(1, int(sizes.max()) + 1, dtype=np.float64)
        ones = np.ones(len(sizes))
        if measure is None:
            return cls(gain, ones, ranks, lambda_kernels.NO_MEASURE)
        parsed = parse_measure(measure)
        within = ranks <= (parsed.cutoff or np.inf)
        if parsed.name in ("nDCG", "DCG"):
            discount = within / np.log2(ranks + 1)
            if parsed.name == "DCG":
                return cls(gain, ones, discount, lambda_kernels.DCG)
            ideal = np.empty(len(sizes))
            lambda_kernels.ideal_dcgs(data.offsets, gain, discount, parsed.cutoff or truncation, ideal)  # as LightGBM
            return cls(gain, _inverse(ideal), discount, lambda_kernels.DCG)
        if parsed.name == "ERR":
            stop = data.gain("exponential") / 2.0**parsed.max_grade
            if stop.max() >= 1:
                problem = f"{parsed} has the highest grade {parsed.max_grade}, but there are higher ones"
                highest = f"ERR(max_grade={int(np.ceil(data.grade.max()))})"
                raise InputError(problem, fix=Fix("set {}", "measure", highest))
            return cls(stop, ones, within / ranks, lambda_kernels.ERR)
        relevant = (data.grade >= parsed.rel).astype(np.float64)
        n_relevant = np.add.reduceat(relevant, data.offsets[:-1])
        return cls(relevant, _inverse(n_relevant), within / ranks, lambda_kernels.AP)


def check_measure(measure: str | Measure | None) -> None:
    """Raise UsageError for a measure for which the effect of a swap is not implemented."""
    name = None if measure is None else parse_measure(measure).name
    if name is not None and name not in MEASURES:
        problem = f"must be one of {', '.join(MEASURES)} (with options and cutoff) or None, not {name}"
        raise UsageError(problem, parameter="measure", kind="invalid-parameter")


def _inverse(ideal: Floats) -> Floats:
    return np.divide(1.0, ideal, out=np.zeros(len(ideal)), where=ideal > 0)


def _soft_targets(data: RankingData, pair_targets: str) -> tuple[Floats, Floats]:
    """Return P(grade) of each row, and for each grade g the sum P(grade < g) + P(grade = g) / 2; both (n, n_grades)."""
    if pair_targets == "grade":
        return np.empty((0, 0)), np.empty((0, 0))
    if data.probabilities is None:
        fix = Fix("set {}", "pair_targets", "grade")
        raise InputError("soft pair targets need labels that are probabilities of grades", kind="no-posterior", fix=fix)
    below = np.cumsum(data.probabilities, axis=1) - 0.5 * data.probabilities
    return np.ascontiguousarray(data.probabilities), np.ascontiguousarray(below)


def _checked_pairs(pair_probabilities: Any, data: RankingData) -> Floats:
    """Return probabilities of pairs as numbers; raise an error if they do not fit the rows."""
    values = np.ascontiguousarray(pair_probabilities, dtype=np.float64)
    expected = int((np.diff(data.offsets) ** 2).sum())
    if values.shape != (expected,):
        problem = f"must have {expected:,} numbers, one per pair of rows of a query, not the shape {values.shape}"
        raise UsageError(problem, parameter="pair_probabilities", kind="wrong-shape")
    if not ((values >= 0) & (values <= 1)).all():
        raise UsageError("must be from 0 to 1", parameter="pair_probabilities", kind="not-probabilities")
    if not np.array_equal(data.order, np.arange(len(data.order))):
        problem = "need rows whose queries are adjacent"
        raise UsageError(problem, parameter="pair_probabilities", kind="unsorted-queries", fix="sort the rows by query")
    return values


def query_chunks(offsets: Integers, truncation: int, n: int) -> list[tuple[int, int]]:
    """Return about n ranges of queries with similar numbers of pairs."""
    sizes = np.diff(offsets)
    n_pairs = np.cumsum(sizes * np.minimum(sizes, truncation) + 1)
    cuts = np.searchsorted(n_pairs, n_pairs[-1] * np.arange(1, n) / n)
    return [(int(a), int(b)) for a, b in pairwise(np.unique(np.concatenate([[0], cuts, [len(sizes)]])))]


Objective = Callable[[Floats], Gradients]
"""Function of the scores (n,) that returns gradient and Hessian."""
