"""Cross-validation of candidates on whole held-out assessors, without expert grades."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr, stdtrit

from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.consensus import scoring
from crowdrank.engine.base import Engine
from crowdrank.errors import ConvergenceWarning, DataWarning
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import Aggregator

MIN_JUDGMENTS = 50
"""Minimum number of held-out judgments, and of pairs of them, for a choice."""


@dataclass(frozen=True)
class Score:
    """Mean log score of held-out judgments, and that of each fold, (n_folds,); NaN if it cannot be measured."""

    mean: float
    by_fold: Floats

    def is_clearly_above(self, other: Score) -> bool:
        """Return whether the mean difference over folds exceeds its standard error (Breiman et al. 1984, 3.4.3).

        The standard error of a few folds is itself uncertain: it is multiplied by the quantile of Student's t that
        stands for one standard deviation, 1.3 with three folds and 1.1 with five.
        """
        difference = self.by_fold - other.by_fold
        n = len(difference)
        error = difference.std(ddof=1) / np.sqrt(n) * stdtrit(n - 1, ndtr(1.0)) if n > 1 else np.inf
        return bool(difference.mean() > error)


@dataclass(frozen=True)
class Scores:
    """Scores of a candidate: of its ranking and of its grades."""

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
        item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
        fold = scoring.folds(judgments, n_folds)
        count = np.zeros((fold.max() + 1, judgments.n_items))
        np.add.at(count, (fold, item), 1)
        return cls(judgments, answer, item, fold, count.sum(axis=0)[item] > count[fold, item])

    @property
    def folds(self) -> Integers:
        """Numbers of the folds with judgments of documents that have judgments in other folds."""
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
        """Whether there are several queries, and enough pairs of held-out judgments in them to score a ranking."""
        return self.judgments.n_queries > 1 and bool(self.group[0] >= 0)

    def score(self, make_model: Callable[[], Aggregator], engine: Engine | None) -> Scores:
        """Return the scores of a candidate that is fitted without each fold in turn."""
        judgments, n_answers = self.judgments, len(self.judgments.scale)
        family = judgments.family_of if judgments.families is not None else np.zeros(judgments.n_assessors, np.int32)
        answers = np.zeros((judgments.n_assessors, n_answers, n_answers))
        pairs, folds, families = [], [], []
        for fold in self.folds:
            rows, shares, grade = self._predict(make_model(), fold, engine)
            assessor, answer = judgments.assessor[rows], self.answer[rows]
            answers += scoring.answer_counts(assessor, answer, grade, judgments.n_assessors, n_answers)
            _, first, group = np.unique(self.group[rows], return_index=True, return_inverse=True)
            pairs.append(scoring.pair_counts(group, self.item[rows], answer, shares, n_answers))
            folds.append(np.full(len(first), fold))
            families.append(family[assessor[first]])
        n_answered = answers.sum(axis=(1, 2))
        active = n_answered > 0
        fold_of = np.zeros(judgments.n_assessors, np.int64)
        fold_of[judgments.assessor] = self.fold
        weights = balanced_weights(family[active], n_answered[active])
        grades = Score(*scoring.score_grades(answers[active], fold_of[active], weights))
        if not self.has_pairs:
            return Scores(Score(float("nan"), np.full(len(self.folds), np.nan)), grades)
        all_pairs = np.concatenate(pairs)
        weights = balanced_weights(np.concatenate(families), all_pairs.sum(axis=1))
        return Scores(Score(*scoring.score_pairs(all_pairs, np.concatenate(folds), weights)), grades)

    def _predict(self, model: Aggregator, fold: int, engine: Engine | None) -> tuple[Integers, Floats, Integers]:
        """Return the predictable judgments of a fold, and rank shares and grades of their documents without it."""
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
        shares = scoring.rank_shares(table["relevance"].to_numpy(), training.item_query)
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
    """Return weights that give all families the same total, and leave the total over all families unchanged.

    >>> balanced_weights(np.array([0, 0, 0, 1], np.int32), np.ones(4)).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    total = np.bincount(family, weights=size)
    active = total > 0
    weights: Floats = np.where(active, total.sum() / active.sum() / np.maximum(total, 1e-300), 0.0)[family]
    return weights
