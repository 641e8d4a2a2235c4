"""Cross-validation of candidates on whole held-out assessors, without expert grades.

Vote counts have no likelihood, and the likelihoods of models are not comparable. So the consensus of every candidate is
scored by the same two simple models of held-out assessors: an assessor prefers the document that is ranked higher, and
answers near the grade of the document, where the loss that the grades minimize says what is near. A reversed ranking
and grades that are a step too high score badly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.consensus.grade_rules import DEFAULT_RULE, rule_losses
from crowdrank.engine.passes import Engine
from crowdrank.engine.shards import items_of
from crowdrank.errors import ConvergenceWarning, DataWarning
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus.model import Aggregator


MIN_JUDGMENTS = 50
"""Minimum number of held-out judgments to compare candidates, and of pairs of judgments to compare rankings."""
N_RANK_BINS = 10
"""Number of equal bins into which the ranking of a query is divided."""
PRIOR_ANSWERS = 5.0
"""Weight of the crowd's mean in the parameters of a held-out assessor, as a number of answers."""
CANDIDATE_DECAYS = (0.5, 1.0, 1.5, 2.0, 3.0, 6.0)
"""Candidates for the exponential decay of the probability of an answer with its loss, given the grade."""
TIE_DECIMALS = 9
"""Number of decimals to which relevance is rounded before ranking, so that rounding errors do not break ties."""
N_EM_ITERATIONS = 30
"""Number of EM iterations for the probability that an assessor is informed, enough to converge."""
IntegerCodes = NDArray[np.integer]
"""Codes of any integer type."""


@dataclass(frozen=True)
class Score:
    """Mean log probability of held-out judgments: over all, and by fold, (n_folds,); NaN if it cannot be computed."""

    mean: float
    by_fold: Floats

    def is_clearly_above(self, other: Score, n_errors: float = 1.0) -> bool:
        """Return whether the mean difference over folds exceeds its standard error (Breiman et al. 1984, 3.4.3).

        The threshold is `n_errors` standard errors. With few folds, `n_errors` is replaced by the quantile of
        Student's t with the same probability: 1 by 1.3 with three folds, and by 1.1 with five.
        """
        difference = self.by_fold - other.by_fold
        n = len(difference)
        error = difference.std(ddof=1) / np.sqrt(n) * stdtrit(n - 1, ndtr(n_errors)) if n > 1 else np.inf
        return bool(difference.mean() > error)


@dataclass(frozen=True)
class Scores:
    """Scores of a candidate model: of its ranking and of its grades."""

    ranking: Score
    grades: Score


@dataclass(frozen=True, eq=False)
class HeldOutFolds:
    """Judgments on one scale in folds of whole assessors, or of whole families of assessors.

    Attributes:
        judgments: the judgments.
        answer: code of each judgment's grade, 'cannot judge' as the lowest, (n,).
        item: item of each judgment, (n,).
        fold: fold of each judgment, (n,).
        predictable: whether a judgment's document has judgments in other folds, (n,).

    """

    judgments: Judgments
    answer: Grades
    item: Integers
    fold: Integers
    predictable: Booleans

    @classmethod
    def split(cls, judgments: Judgments, n_folds: int) -> HeldOutFolds:
        """Split judgments into at most `n_folds` folds."""
        answer = judgments.with_unjudgeable("lowest").grade
        item = items_of(judgments.offsets)
        fold = assign_folds(judgments, n_folds)
        count = np.zeros((fold.max() + 1, judgments.n_items))
        np.add.at(count, (fold, item), 1)
        return cls(judgments, answer, item, fold, count.sum(axis=0)[item] > count[fold, item])

    @property
    def folds(self) -> Integers:
        """Numbers of the folds that have predictable judgments: their documents have judgments in other folds."""
        return np.unique(self.fold[self.predictable])

    @property
    def unit(self) -> str:
        """Unit that is held out as a whole: assessor or family."""
        return "assessor" if self.judgments.families is None else "family"

    @property
    def n_judgments(self) -> int:
        """Number of judgments whose documents have judgments in other folds."""
        return int(self.predictable.sum())

    @property
    def is_sufficient(self) -> bool:
        """Whether there are enough judgments to compare candidates."""
        return self.n_judgments >= MIN_JUDGMENTS

    @cached_property
    def group(self) -> Integers:
        """Index of the group in which each held-out judgment is compared with others, (n,).

        A group holds the judgments of one assessor on one query. If such groups have too few pairs, a group holds all
        held-out judgments on a query; if these have too few pairs, all indices are -1.
        """
        n_queries, rows = self.judgments.n_queries, self.predictable
        query = self.judgments.item_query[self.item].astype(np.int64)
        for unit in (self.judgments.assessor, self.fold):
            group = unit.astype(np.int64) * n_queries + query
            if count_comparable_pairs(group[rows], self.item[rows], self.answer[rows]) >= MIN_JUDGMENTS:
                return group
        return np.full(len(group), -1)

    @property
    def has_pairs(self) -> bool:
        """Whether queries have enough pairs of held-out judgments to score a ranking."""
        return bool(self.group[0] >= 0)

    def score(
        self, make_model: Callable[[], Aggregator], engine: Engine | None, grade_by: str = DEFAULT_RULE
    ) -> Scores:
        """Return the cross-validated scores of a candidate: it is fitted without each fold in turn.

        Args:
            make_model: function that returns an unfitted model.
            engine: where the fits run.
            grade_by: rule by which the model chooses grades; it names the loss of the scores of grades.

        """
        judgments, n_answers = self.judgments, len(self.judgments.scale)
        family = judgments.family_of if judgments.families is not None else np.zeros(judgments.n_assessors, np.int32)
        answers = np.zeros((judgments.n_assessors, n_answers, n_answers))
        pairs, folds, families = [], [], []
        for fold in self.folds:
            rows, shares, grade = self._predict(make_model(), fold, engine)
            assessor, answer = judgments.assessor[rows], self.answer[rows]
            answers += answer_counts(assessor, answer, grade, judgments.n_assessors, n_answers)
            _, first, group = np.unique(self.group[rows], return_index=True, return_inverse=True)
            pairs.append(pair_counts(group, self.item[rows], answer, shares, n_answers))
            folds.append(np.full(len(first), fold))
            families.append(family[assessor[first]])
        n_answered = answers.sum(axis=(1, 2))
        active = n_answered > 0
        fold_of = np.zeros(judgments.n_assessors, np.int64)
        fold_of[judgments.assessor] = self.fold
        weights = balanced_weights(family[active], n_answered[active])
        grades = Score(*score_grades(answers[active], fold_of[active], weights, grade_by))
        if not self.has_pairs:
            return Scores(Score(float("nan"), np.full(len(self.folds), np.nan)), grades)
        all_pairs = np.concatenate(pairs)
        weights = balanced_weights(np.concatenate(families), all_pairs.sum(axis=1))
        return Scores(Score(*score_pairs(all_pairs, np.concatenate(folds), weights)), grades)

    def _predict(self, model: Aggregator, fold: int, engine: Engine | None) -> tuple[Integers, Floats, Integers]:
        """Fit the model without a fold and predict the documents of its predictable judgments.

        Returns:
            Rows of the predictable judgments, (k,); memberships of their documents in the bins of the ranking,
            (k, n_bins); grade codes of their documents, (k,).

        """
        in_training = self.fold != fold
        training = self.judgments.where(in_training)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataWarning)  # about a part of the crowd; the final fit warns
            consensus = model.fit(training, engine=engine).consensus_
        training_item = np.full(self.judgments.n_items, -1)
        training_item[np.unique(self.item[in_training])] = np.arange(training.n_items)
        rows = np.flatnonzero(self.predictable & ~in_training)
        at, table = training_item[self.item[rows]], consensus.document_table
        shares = rank_bin_memberships(table["relevance"].to_numpy(), training.item_query)
        grade = pc.index_in(table["grade"].combine_chunks(), pa.array(consensus.labels)).to_numpy()
        return rows, shares[at], grade[at]


def count_comparable_pairs(group: Integers, item: Integers, answer: Grades) -> int:
    """Return the number of pairs within groups that have different answers and different documents.

    >>> count_comparable_pairs(np.array([0, 0, 0, 1]), np.array([3, 4, 4, 5]), np.array([1, 1, 0, 0], np.int8))
    1
    """
    equal = _count_equal_pairs
    return equal(group) - equal(group, answer) - equal(group, item) + equal(group, item, answer)


def _count_equal_pairs(*columns: Integers | Grades) -> int:
    """Return the number of pairs of rows that are equal in all columns."""
    row = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        row = np.unique(row * (int(column.max()) + 1) + column, return_inverse=True)[1]
    counts = np.bincount(row)
    return int((counts * (counts - 1) // 2).sum())


def balanced_weights(family: Codes, size: Floats) -> Floats:
    """Return weights such that weight * size has the same total in each family, and an unchanged total over all.

    >>> balanced_weights(np.array([0, 0, 0, 1], np.int32), np.ones(4)).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    total = np.bincount(family, weights=size)
    active = total > 0
    weights: Floats = np.where(active, total.sum() / active.sum() / np.maximum(total, 1e-300), 0.0)[family]
    return weights


def assign_folds(judgments: Judgments, max_folds: int) -> Integers:
    """Return the fold of each judgment: whole families (or single assessors) in at most `max_folds` folds.

    Families are distributed by size, so that folds have about the same size. Neither the order of rows nor ids matter:
    families of the same size are ordered by their answers.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = {"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "z"], "grade": [0, 1, 2, 2]}
    >>> assign_folds(read_judgments(pd.DataFrame(votes)), 2).tolist()
    [1, 1, 0, 0]
    """
    # -> (n,)
    family = judgments.family_of[judgments.assessor]
    grade = judgments.grade.astype(float)
    item = items_of(judgments.offsets)
    size, total = np.diff(judgments.offsets)[item], np.bincount(item, weights=grade)[item]
    traits = [np.bincount(family, weights=trait) for trait in (grade * total, total, size, grade**2, grade)]
    order = np.lexsort([*traits, -np.bincount(family)])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    snake = place % (2 * max_folds)  # 0 1 2 2 1 0 0 1 2 ...
    fold = place if len(order) <= max_folds else np.minimum(snake, 2 * max_folds - 1 - snake)
    return fold[family]


def rank_bin_memberships(relevance: Floats, query: IntegerCodes, n_bins: int = N_RANK_BINS) -> Floats:
    """Return the membership of each item in equal bins of the ranking of its query; each row sums to 1.

    The last bin has the highest relevance. Tied items share their ranks, and an item may lie in several bins.

    >>> rank_bin_memberships(np.array([0.1, 0.9, 0.5, 0.5]), np.zeros(4, int), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    """
    # (n_items,), (n_items,) ascending -> (n_items, n_bins)
    n = len(relevance)
    rounded = np.round(relevance, TIE_DECIMALS)
    order = np.lexsort((rounded, query))
    new_query = np.append(True, np.diff(query[order]) != 0)
    new_place = new_query | np.append(True, np.diff(rounded[order]) != 0)
    first, last = np.flatnonzero(new_place), np.append(np.flatnonzero(new_place)[1:], n)
    block, of_query = np.cumsum(new_place) - 1, np.cumsum(new_query) - 1
    begin, size = np.flatnonzero(new_query), np.diff(np.append(np.flatnonzero(new_query), n))
    low, high = np.empty(n), np.empty(n)
    low[order] = (first[block] - begin[of_query]) / size[of_query] * n_bins
    high[order] = (last[block] - begin[of_query]) / size[of_query] * n_bins
    part = np.arange(n_bins)
    inside = np.clip(np.minimum(high[:, None], part + 1) - np.maximum(low[:, None], part), 0.0, None)
    shares: Floats = inside / inside.sum(axis=1, keepdims=True)
    return shares


def pair_counts(
    group: IntegerCodes, item: IntegerCodes, answer: IntegerCodes, bin_memberships: Floats, n_answers: int
) -> Floats:
    """Count pairs of judgments with different answers per group, by the distance of their documents in the ranking.

    The distance is the bin of the document with the higher answer minus that of the other; the columns go from
    -(n_bins - 1) to n_bins - 1. Two judgments of one document are no pair. Counts are divided by the size of the group
    minus 1, so that all judgments have the same weight.

    >>> shares = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> pair_counts(np.array([0, 0]), np.array([5, 6]), np.array([2, 0]), shares, 3).tolist()
    [[0.0, 0.0, 1.0]]
    """
    # (n,), (n,), (n,), (n, n_bins) -> (n_groups, 2 n_bins - 1)
    pairs = _count_ordered_pairs(group, answer, bin_memberships, n_answers)
    cell = group.astype(np.int64) * (int(item.max()) + 1) + item
    _, first, cell = np.unique(cell, return_index=True, return_inverse=True)
    if len(first) < len(cell):  # pairs of judgments on the same document do not count
        np.subtract.at(pairs, group[first], _count_ordered_pairs(cell, answer, bin_memberships, n_answers))
    weighted: Floats = np.maximum(pairs, 0.0) / np.maximum(np.bincount(group) - 1, 1)[:, None]
    return weighted


def _count_ordered_pairs(group: IntegerCodes, answer: IntegerCodes, bin_memberships: Floats, n_answers: int) -> Floats:
    """Return unweighted counts as in :func:`pair_counts`, with pairs of judgments on the same document."""
    # (n,), (n,), (n, n_bins) -> (n_groups, 2 n_bins - 1)
    n_groups, n_bins = int(group.max()) + 1, bin_memberships.shape[1]
    cell = group.astype(np.int64) * n_answers + answer
    totals = np.stack(
        [np.bincount(cell, weights=share, minlength=n_groups * n_answers) for share in bin_memberships.T], axis=1
    ).reshape(n_groups, n_answers, n_bins)
    lower = np.cumsum(totals, axis=1) - totals
    pairs = np.zeros((n_groups, 2 * n_bins - 1))
    for high in range(n_bins):
        for low in range(n_bins):
            pairs[:, high - low + n_bins - 1] += (totals[:, :, high] * lower[:, :, low]).sum(axis=1)
    return pairs


def score_pairs(pairs: Floats, fold: IntegerCodes, weight: Floats) -> tuple[float, Floats]:
    """Return the mean log probability of which of two answers is higher, over all pairs and in each fold.

    The probability that the answer to the document that is ranked higher is the higher one, given how far apart the
    two are ranked, is estimated from the other folds, and at least 1/2. Within one bin it is 1/2.

    >>> right, wrong = np.array([[0.0, 0.0, 9.0]] * 2), np.array([[9.0, 0.0, 0.0]] * 2)
    >>> fold, weight = np.array([0, 1]), np.ones(2)
    >>> round(score_pairs(right, fold, weight)[0], 3), round(score_pairs(wrong, fold, weight)[0], 3)
    (-0.051, -0.693)
    """
    # (n_groups, 2 n_bins - 1), (n_groups,), (n_groups,)
    n_bins = pairs.shape[1] // 2 + 1
    by_fold = np.zeros((int(fold.max()) + 1, pairs.shape[1]))
    np.add.at(by_fold, fold, pairs * weight[:, None])
    others = by_fold.sum(axis=0) - by_fold
    above, below = np.maximum(others[:, n_bins:], 0.0), np.maximum(others[:, n_bins - 2 :: -1], 0.0)
    right = np.maximum((above + 0.5) / (above + below + 1.0), 0.5)
    log_scores = by_fold[:, n_bins:] * np.log(right) + by_fold[:, n_bins - 2 :: -1] * np.log(1 - right)
    total = log_scores.sum(axis=1) + by_fold[:, n_bins - 1] * np.log(0.5)
    n_pairs = by_fold.sum(axis=1)
    return float(total.sum() / n_pairs.sum()), total[n_pairs > 0] / n_pairs[n_pairs > 0]


def answer_counts(
    assessor: IntegerCodes, answer: IntegerCodes, grade: IntegerCodes, n_assessors: int, n_answers: int
) -> Floats:
    """Return how often each assessor gave each answer to documents of each grade.

    >>> answer_counts(np.array([0, 0]), np.array([1, 1]), np.array([0, 0]), 1, 2).tolist()
    [[[0.0, 0.0], [2.0, 0.0]]]
    """
    # (n,), (n,), (n,) -> (n_assessors, n_answers, n_grades)
    cell = (assessor.astype(np.int64) * n_answers + answer) * n_answers + grade
    counts = np.bincount(cell, minlength=n_assessors * n_answers**2).astype(float)
    return counts.reshape(n_assessors, n_answers, n_answers)


def score_grades(
    counts: Floats, fold: IntegerCodes, weight: Floats, grade_by: str = DEFAULT_RULE
) -> tuple[float, Floats]:
    """Return the mean log probability of an answer, given the grade of its document, over all answers and in each fold.

    The model of an assessor is a mixture. Informed, which each assessor is with a probability of their own, they answer
    g with probability proportional to exp(-decay * loss(g, grade of the document)), with the loss that the rule
    `grade_by` minimizes: the grades with the best score are then those with the least loss. Otherwise they guess by
    their own distribution of answers. Both are estimated without the scored answer. The decay is the best of
    `CANDIDATE_DECAYS`.

    >>> right, wrong = np.eye(2)[None] * 9, np.eye(2)[None, ::-1] * 9
    >>> score_grades(right, np.zeros(1, int), np.ones(1))[0] > score_grades(wrong, np.zeros(1, int), np.ones(1))[0]
    True
    """
    # (n_assessors, n_answers, n_grades), (n_assessors,), (n_assessors,)
    n_answers = counts.shape[1]
    n_judgments, by_answer = counts.sum(axis=(1, 2), keepdims=True), counts.sum(axis=2, keepdims=True)
    crowd = by_answer.sum(axis=0) / by_answer.sum()
    guess = np.maximum(by_answer - 1 + PRIOR_ANSWERS * crowd, 1e-300) / (n_judgments - 1 + PRIOR_ANSWERS)
    loss = rule_losses(grade_by, n_answers)
    weights, log_scores = counts * weight[:, None, None], []
    for decay in CANDIDATE_DECAYS:
        near = np.exp(-decay * loss)
        informed = near / near.sum(axis=0)  # (n_answers, n_grades)
        share = _probability_informed(counts, n_judgments, informed, guess)
        probability = np.maximum(share * informed + (1 - share) * guess, 1e-300)
        log_scores.append((weights * np.log(probability)).sum(axis=(1, 2)))
    best = max(log_scores, key=np.sum)
    total, size = np.bincount(fold, weights=best), np.bincount(fold, weights=weights.sum(axis=(1, 2)))
    return float(total.sum() / size.sum()), total[size > 0] / size[size > 0]


def _probability_informed(
    counts: Floats, n_judgments: Floats, informed_probability: Floats, guess_probability: Floats
) -> Floats:
    """Return the probability that an assessor is informed, for each answer estimated from the other answers by EM.

    Args:
        counts: number of answers, (n_assessors, n_answers, n_grades).
        n_judgments: number of judgments, (n_assessors, 1, 1).
        informed_probability: P(answer | grade) of an informed assessor, (n_answers, n_grades).
        guess_probability: P(answer) of an assessor who guesses, (n_assessors, n_answers, 1).

    Returns:
        Probabilities, shrunk towards the mean of the crowd, in the shape of `counts`.

    """
    mean = 0.5
    for _ in range(N_EM_ITERATIONS):
        posterior = mean * informed_probability / (mean * informed_probability + (1 - mean) * guess_probability)
        mean = float((counts * posterior).sum() / counts.sum())
    share = np.full(n_judgments.shape, mean)
    for _ in range(N_EM_ITERATIONS):
        posterior = share * informed_probability / (share * informed_probability + (1 - share) * guess_probability)
        n_informed = (counts * posterior).sum(axis=(1, 2), keepdims=True)
        share = (n_informed + PRIOR_ANSWERS * mean) / (n_judgments + PRIOR_ANSWERS)
    left_out = (n_informed - posterior + PRIOR_ANSWERS * mean) / (n_judgments - 1 + PRIOR_ANSWERS)
    return np.asarray(np.clip(left_out, 0.0, 1.0))
