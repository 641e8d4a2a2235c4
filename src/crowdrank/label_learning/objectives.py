"""What training raises: a measure of scores on expert-graded documents, and its slope in every score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from scipy.special import expit

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import parse_measure
from crowdrank.rankers.lambdas import LambdaObjective, check_measure
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.validation import Validation

Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""From scores and expert grades to the loss of every row and its slope in the row's score."""
FLAT = 1e-12
"""Scores whose spread is below this part of their size are all the same."""


class Objective(Protocol):
    """A measure of scores: the higher the better."""

    def value(self, score: Floats) -> float:
        """The measure."""

    def slope(self, score: Floats) -> Floats:
        """How it moves with every score."""


class RankingObjective:
    """A ranking measure and its LambdaRank slope: each pair pulls as hard as its swap would change the measure.

    The sigmoid is as steep as scores are wide (1 / their standard deviation), and of the slope that part is taken out
    which would only stretch all scores: linear scores are small, and a sigmoid of a fixed width would call every
    stretch a gain. What is left is the slope of a function that scaling and shifting scores does not change: the pair
    loss of standardized scores, with what each swap changes held fixed.

    >>> from crowdrank.rankers.ranking_data import RankingData
    >>> lists = RankingData.from_ids(np.eye(3), [2, 0, 1], ["q"] * 3)
    >>> objective = RankingObjective(lists, "DCG@2")
    >>> slope = objective.slope(np.array([0.0, 1.0, 2.0]))
    >>> bool(slope[0] > 0), bool(abs(slope @ [0, 1, 2]) < 1e-12)
    (True, True)
    """

    def __init__(
        self, lists: RankingData, measure: str = "DCG@10", gains: str | Sequence[float] = "exponential"
    ) -> None:
        cutoff = parse_measure(measure).cutoff or int(np.diff(lists.offsets).max())
        # Ranks below the cutoff count nothing, so that pairs below it pull nothing.
        self._forces = LambdaObjective(lists, measure=measure, gains=gains, truncation=cutoff, norm=False)
        if not self._forces.has_pairs():
            raise InputError(
                "no expert-graded query has two documents of different grades",
                fix="give expert grades that differ within a query",
            )
        self._measure = Validation(lists, measure, gains)

    def value(self, score: Floats) -> float:
        """The mean over queries; equal scores count as the expectation over their orders."""
        return self._measure(score)

    def slope(self, score: Floats) -> Floats:
        """The LambdaRank slope of standardized scores; where all are equal, of the scores as they are."""
        off = score - score.mean()
        spread = float(np.sqrt(off @ off / len(off)))
        flat = spread <= FLAT * float(np.abs(score).max())
        self._forces.sigmoid = 1.0 if flat else 1.0 / spread
        slope = -self._forces(score)[0] / (len(self._forces.data.offsets) - 1)
        return np.asarray(slope if flat else slope - (slope @ off) / (off @ off) * off)


class SmoothObjective:
    """Minus the mean of a loss of every row by itself, for what is not a ranking.

    >>> objective = SmoothObjective(np.array([1.0, 0.0]), squared)
    >>> objective.value(np.array([1.0, 1.0])), objective.slope(np.array([2.0, 1.0])).tolist()
    (-0.5, [-1.0, -1.0])
    """

    def __init__(self, y: Floats, loss: Loss) -> None:
        self.y, self.loss = y, loss

    def value(self, score: Floats) -> float:
        """Minus the mean loss."""
        return -float(self._losses(score)[0].mean())

    def slope(self, score: Floats) -> Floats:
        """Its slope."""
        return -self._losses(score)[1] / len(score)

    def _losses(self, score: Floats) -> tuple[Floats, Floats]:
        loss, slope = (np.asarray(part, dtype=np.float64) for part in self.loss(score, self.y))
        if loss.shape != score.shape or slope.shape != score.shape:
            raise UsageError("A loss returns two arrays, the loss of every row and its slope in the row's score.")
        return loss, slope


def squared(score: Floats, y: Floats) -> tuple[Floats, Floats]:
    """(s - y)^2 and its slope."""
    return (score - y) ** 2, 2 * (score - y)


def logistic(score: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The log loss of the chance sigma(s) against y, from 0 to 1, and its slope.

    >>> logistic(np.array([0.0]), np.array([1.0]))
    (array([0.69314718]), array([-0.5]))
    """
    return np.logaddexp(0.0, score) - y * score, expit(score) - y


LOSSES: dict[str, Loss] = {"squared": squared, "logistic": logistic}


class Aim:
    """What is asked for (`DCG@10`, `squared`, `logistic`, a function), to be made of any expert-graded rows.

    The named losses see grades as parts of the range of the training experts' grades, as targets of labels are; a
    function sees them as they are.

    >>> Aim("squared").ranks, Aim("nDCG@5").ranks
    (False, True)
    """

    def __init__(self, asked: str | Loss, gains: str | Sequence[float] = "exponential") -> None:
        self.asked, self.gains = asked, gains
        self.ranks = isinstance(asked, str) and asked not in LOSSES
        self.low, self.range = 0.0, 1.0
        if self.ranks:
            _check(str(asked))

    def adopt(self, y: Floats) -> None:
        """Take the range of the training experts' grades."""
        if isinstance(self.asked, str) and not self.ranks:
            self.low, self.range = float(y.min()), float(np.ptp(y))
            if not self.range:
                raise InputError("every expert grade is the same", fix="give expert grades that differ")

    def of(self, lists: RankingData) -> Objective:
        """The objective on these rows."""
        if isinstance(self.asked, str) and self.ranks:
            return RankingObjective(lists, self.asked, self.gains)
        loss = LOSSES[self.asked] if isinstance(self.asked, str) else self.asked
        return SmoothObjective((lists.grade - self.low) / self.range, loss)


def _check(measure: str) -> None:
    try:
        check_measure(measure)
    except UsageError as problem:
        known = "a measure such as DCG@10, squared, logistic, or a function"
        raise UsageError(f"objective is {known}, not {measure!r}: {problem}") from problem
