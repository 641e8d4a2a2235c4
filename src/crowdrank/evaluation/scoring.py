"""Compute the value of each measure per query, for a run that is joined with the gold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation import kernels
from crowdrank.evaluation.alignment import NO_GOLD, Alignment, RankableDocuments, Ranking, rankable, tie_groups
from crowdrank.evaluation.measures import CORRELATIONS, GAIN_MEASURES, GRADE_MEASURES, Gains, Measure

_ALL_RANKS = int(np.iinfo(np.int32).max)
_MAX_EXPONENT = 1023


class Scoring:
    """Measures of one run; `skip_unjudged` leaves documents without gold out of the ranking."""

    def __init__(self, aligned: Alignment, *, skip_unjudged: bool) -> None:
        self.gold, self.grades, self.complete_ranking = aligned.gold, aligned.grades, aligned.ranking
        self.n_queries = aligned.ranking.n_queries
        self._skip_unjudged = skip_unjudged

    @cached_property
    def judged_ranking(self) -> Ranking:
        """The ranking without documents that have no gold."""
        return self.complete_ranking.only_judged()

    @property
    def ranking(self) -> Ranking:
        """The ranking that measures of rank order score."""
        return self.judged_ranking if self._skip_unjudged else self.complete_ranking

    @cached_property
    def pool(self) -> RankableDocuments:
        """The documents of the ideal order: those with gold, and those that count as grade 0."""
        ranking = self.ranking
        if ranking.judged.all():
            return self.gold
        unjudged = ranking.query[~ranking.judged]
        row = np.append(self.gold.row, np.full(len(unjudged), NO_GOLD))
        return rankable(np.append(self.gold.query, unjudged), row, self.n_queries)

    def values(self, measure: Measure) -> Floats:
        """Return the value of the measure for each query, (n_queries,)."""
        name = measure.name
        if name in CORRELATIONS:
            return self._correlation(name)
        if name in GRADE_MEASURES:
            return self._grade_measure(name)
        if name in GAIN_MEASURES:
            gains = self._gains(measure)
            dcg = self._ranked(kernels.discounted_gain, gains[self.ranking.row], measure)
            return _ratio(dcg, self._ideal_dcg(gains, measure)) if name == "nDCG" else dcg
        if name == "Judged":
            return self._judged(measure)
        if name == "ERR":
            return self._ranked(kernels.expected_reciprocal_rank, self._stop_probabilities(measure), measure)
        relevance = self._relevance(measure)
        relevant = relevance[self.ranking.row]
        if name == "AP":
            n_relevant = self._sum(relevance[self.gold.row], self.gold.query)
            return _ratio(self._ranked(kernels.precision_sum, relevant, measure), n_relevant)
        if name == "RR" and self.grades.shares is None:
            return self._ranked(kernels.reciprocal_rank, relevant > 0, measure)
        if name == "RR":  # a reader who stops at the first relevant document
            return self._ranked(kernels.expected_reciprocal_rank, relevant, measure)
        return _expected_count(self.ranking, relevant, measure) / (measure.cutoff or 1)

    def undefined(self, measure: Measure) -> Booleans:
        """Return whether a query has no relevant document, or no two different gold grades in correlations."""
        if measure.name in CORRELATIONS:
            starts, grades = self.gold.offsets[:-1], self.grades.grades[self.gold.row]
            lowest, highest = (extreme.reduceat(grades, starts) for extreme in (np.minimum, np.maximum))
            return np.asarray(lowest == highest)
        if measure.name in (*GRADE_MEASURES, "Judged"):
            return np.zeros(self.n_queries, dtype=np.bool_)
        if measure.name in GAIN_MEASURES:
            relevance = self._gains(measure)
        elif measure.name == "ERR":
            relevance = self.grades.expected(lambda grade: grade > 0)
        else:
            relevance = self._relevance(measure)
        return np.asarray(self._sum(relevance[self.pool.row] > 0, self.pool.query) == 0)

    def _gains(self, measure: Measure) -> Floats:
        """Return the expected gain of each row of the gold, and of documents without gold."""
        return self.grades.expected(lambda grade: grade_gains(grade, measure.gains, str(measure)))

    def _relevance(self, measure: Measure) -> Floats:
        """Return the probability that each row of the gold is relevant, and a document without gold."""
        return self.grades.expected(lambda grade: grade >= measure.rel)

    def _ideal_dcg(self, gains: Floats, measure: Measure) -> Floats:
        pool = self.pool
        return ideal_dcg(gains[pool.row], pool.query, pool.offsets, self._discounts, measure.cutoff)

    def _stop_probabilities(self, measure: Measure) -> Floats:
        highest = self.grades.possible.max()
        if highest > measure.max_grade:
            problem = f"{measure} uses {measure.max_grade} as the highest grade, but the gold has grade {highest:g}"
            raise UsageError(problem, kind="grade-above-maximum", fix=f"write ERR(max_grade={int(np.ceil(highest))})")
        return self.grades.expected(_stop_probability(measure.max_grade))[self.ranking.row]

    def _judged(self, measure: Measure) -> Floats:
        ranking = self.complete_ranking
        n_ranked = np.minimum(np.diff(ranking.offsets), measure.cutoff or _ALL_RANKS)
        return _ratio(_expected_count(ranking, ranking.judged, measure), n_ranked)

    def _correlation(self, name: str) -> Floats:
        ranking = self.judged_ranking
        if name == "Spearman":
            by_score, by_grade = (self._centered_ranks(values) for values in (ranking.scores, ranking.gold))
            spread = self._sum(by_score**2, ranking.query) * self._sum(by_grade**2, ranking.query)
            return _ratio(self._sum(by_score * by_grade, ranking.query), np.sqrt(spread))
        net, pairs, same_score, same_grade = self._pair_counts
        different = pairs - same_grade
        return _ratio(net, different if name == "Tau" else np.sqrt((pairs - same_score) * different))

    def _grade_measure(self, name: str) -> Floats:
        ranking = self.judged_ranking
        assert ranking.grades is not None
        same = ranking.grades == ranking.gold
        total = self._sum(same if name == "GradeAccuracy" else np.abs(ranking.grades - ranking.gold), ranking.query)
        n_documents = np.diff(ranking.offsets)
        # The value of a query without a document to compare is unknown.
        return np.where(n_documents > 0, _ratio(total, n_documents), np.nan)

    def _centered_ranks(self, values: Floats) -> Floats:
        """Return the rank of each judged document within its query, minus the mean rank; ties have their mean rank."""
        query = self.judged_ranking.query
        order = np.lexsort((values, query))
        group = tie_groups(query[order], values[order])
        ranks = np.empty(len(values))
        ranks[order] = (np.bincount(group, weights=np.arange(len(values))) / np.bincount(group))[group]
        return ranks - _ratio(self._sum(ranks, query), np.diff(self.judged_ranking.offsets))[query]

    @cached_property
    def _discounts(self) -> Floats:
        longest = max(np.diff(self.ranking.offsets).max(), np.diff(self.pool.offsets).max())
        return cumulative_discounts(longest)

    @cached_property
    def _pair_counts(self) -> Floats:
        ranking = self.judged_ranking
        counts: Integers = kernels.pair_counts(ranking.scores, ranking.gold, ranking.offsets)
        return counts.T.astype(np.float64)

    def _ranked(self, kernel: Any, values: NDArray[Any], measure: Measure) -> Floats:
        ranking = self.ranking
        discounts = (self._discounts,) if kernel is kernels.discounted_gain else ()
        return np.asarray(kernel(values, ranking.new_group, ranking.offsets, *discounts, measure.cutoff or _ALL_RANKS))

    def _sum(self, values: NDArray[Any], query: Integers) -> Floats:
        # np.bincount returns integers if there are no rows, although weights are floats.
        return np.asarray(np.bincount(query, weights=values, minlength=self.n_queries), dtype=np.float64)


def _stop_probability(max_grade: int) -> Callable[[Floats], Floats]:
    return lambda grade: np.asarray((np.exp2(grade) - 1) / 2.0**max_grade)


def cumulative_discounts(n_ranks: int) -> Floats:
    """Return the sums of the DCG discounts of the first 0, 1, ..., n_ranks ranks.

    >>> cumulative_discounts(3)
    array([0.        , 1.        , 1.63092975, 2.13092975])
    """
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(n_ranks) + 2))])


def ideal_dcg(gains: Floats, query: Integers, offsets: Integers, cumulative: Floats, cutoff: int | None) -> Floats:
    """Return the DCG of the best order of each query's documents, (n_queries,)."""
    best = gains[np.lexsort((-gains, query))]
    ideal: Floats = kernels.discounted_gain(
        best, np.ones(best.size, dtype=np.bool_), offsets, cumulative, cutoff or _ALL_RANKS
    )
    return ideal


def grade_gains(grades: Floats, gains: Gains, measure: str) -> Floats:
    """Return the gain of each grade; raise an error if a grade has none.

    >>> grade_gains(np.array([0.0, 2.0]), "exponential", "nDCG")
    array([0., 3.])
    """
    if gains == "linear":
        return grades
    if gains == "exponential":
        highest = grades.max(initial=0.0)
        if highest > _MAX_EXPONENT:
            problem = f"the gain 2^grade - 1 of grade {highest:g} is too large for a floating-point number"
            fix = ["use linear gains, nDCG(dcg='log2')", "use smaller grades"]
            raise InputError(problem, source="the gold", column="grade", kind="gain-overflow", fix=fix)
        return np.asarray(np.exp2(grades) - 1)
    bad = grades[(grades > len(gains) - 1) | (grades != np.floor(grades))]
    if bad.size:
        problem = f"the gains of {measure} are for grades 0 to {len(gains) - 1}, but the gold has grade {bad[0]:g}"
        raise UsageError(problem, kind="no-gain", fix="give a gain for each grade")
    return np.asarray(gains, dtype=np.float64)[grades.astype(np.int64)]


def _expected_count(ranking: Ranking, weights: NDArray[Any], measure: Measure) -> Floats:
    """Return the expected sum of weights down to the cutoff, over orders of ties, (n_queries,)."""
    offsets = ranking.offsets
    ranks = np.arange(np.diff(offsets).max() + 1, dtype=np.float64)
    values = weights.astype(np.float64)
    return np.asarray(kernels.discounted_gain(values, ranking.new_group, offsets, ranks, measure.cutoff or _ALL_RANKS))


def _ratio(numerator: Floats, denominator: NDArray[Any]) -> Floats:
    """Divide; the result is 0 where the denominator is not positive."""
    return np.asarray(np.divide(numerator, denominator, out=np.zeros(numerator.size), where=denominator > 0))
