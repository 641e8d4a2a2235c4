"""Objectives on expert-graded documents: a measure of their scores, and its gradient in every score."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.special import expit

from crowdrank._numba import njit
from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import parse_measure
from crowdrank.rankers.lambdas import LambdaObjective, check_measure
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.training_data import RankingData

Gains = str | Sequence[float]
Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Function (scores, expert grades) that returns the loss of every row and its derivative in the score of the row."""
MIN_RELATIVE_SPREAD = 1e-12
"""Minimum standard deviation of scores relative to the largest; scores that differ less are treated as equal."""
SOFTRANK_NOISE = 0.5
"""Standard deviation of the noise of SoftRank, in standard deviations of the scores."""
LOGIT_SLOPE = 4.0
"""Logit per unit of score; at a score of 1/2 the probability then has slope 1, like the score itself."""


class Objective(Protocol):
    """A measure of scores; higher is better."""

    def value(self, score: Floats) -> float:
        """Return the measure."""

    def values(self, score: Floats) -> Floats:
        """Return the measure of each query, or of each row if nothing is ranked; their mean is `value`."""

    def gradient(self, score: Floats) -> Floats:
        """Return its derivative (or that of a smooth surrogate) in every score."""


class RankingObjective(ABC):
    """A ranking measure and the gradient of a smooth surrogate of standardized scores.

    Scores are standardized before the surrogate sees them, so its gradient has no part that only stretches all scores:
    scores of least squares are small, and a surrogate of a fixed width would take any stretch for a gain.

    Args:
        data: expert-graded documents, query by query.
        measure: such as `DCG@10`.
        gains: gain of each expert grade.

    """

    def __init__(
        self, data: RankingData, measure: str = "DCG@10", gains: str | Sequence[float] = "exponential"
    ) -> None:
        self.data = data
        cutoff = parse_measure(measure).cutoff or int(np.diff(data.offsets).max())
        # Ranks below the cutoff count nothing, so pairs below it have no gradient.
        self._lambdas = LambdaObjective(data, measure=measure, gains=gains, truncation=cutoff, norm=False)
        if not self._lambdas.has_pairs():
            raise InputError(
                "no expert-graded query has two documents of different grades",
                kind="equal-expert-grades",
                fix="give expert grades that differ within a query",
            )
        self._measure = Validation(data, measure, gains)

    @abstractmethod
    def surrogate_gradient(self, score: Floats) -> Floats:
        """Return the gradient of the surrogate in standardized scores."""

    def value(self, score: Floats) -> float:
        """Return the mean of the measure over queries; tied scores count as the expectation over their orders."""
        return self._measure(score)

    def values(self, score: Floats) -> Floats:
        """Return the measure of every query with a relevant document."""
        return self._measure.per_query(score)

    def gradient(self, score: Floats) -> Floats:
        """Return the gradient of the surrogate of the measure in the scores before they are standardized, (n,)."""
        centered, spread = _centered(score)
        standardized = centered / spread
        gradient = self.surrogate_gradient(standardized)
        if (squares := standardized @ standardized) > 0:
            gradient = gradient - (gradient @ standardized) / squares * standardized
        return np.asarray(gradient / spread)


class LambdaRankObjective(RankingObjective):
    """LambdaRank gradients: each pair counts as much as swapping it would change the measure.

    >>> from crowdrank.rankers.training_data import RankingData
    >>> objective = LambdaRankObjective(RankingData.from_ids(np.eye(3), [2, 0, 1], ["q"] * 3), "DCG@2")
    >>> gradient = objective.gradient(np.array([0.0, 1.0, 2.0]))
    >>> bool(gradient[0] > 0), bool(abs(gradient @ [0, 1, 2]) < 1e-12)
    (True, True)
    """

    def surrogate_gradient(self, score: Floats) -> Floats:
        """Return the LambdaRank gradient, per query."""
        return -self._lambdas(score)[0] / (len(self.data.offsets) - 1)


class SoftRankObjective(RankingObjective):
    """SoftRank (Taylor et al. 2008): the expected DCG or nDCG if each score has normal noise.

    >>> from crowdrank.rankers.training_data import RankingData
    >>> objective = SoftRankObjective(RankingData.from_ids(np.eye(3), [2, 0, 1], ["q"] * 3), "DCG@2")
    >>> [round(objective.smooth_value(np.array(score)), 2) for score in ([0.0, 1.0, 2.0], [2.0, 0.0, 1.0])]
    [1.06, 3.57]
    """

    def __init__(
        self, data: RankingData, measure: str = "DCG@10", gains: str | Sequence[float] = "exponential"
    ) -> None:
        if parse_measure(measure).name not in ("DCG", "nDCG"):
            raise UsageError(f"must be 'lambdarank' for {measure}; SoftRank has DCG and nDCG", parameter="measure")
        super().__init__(data, measure, gains)
        exact = self._measure
        share = np.where(exact.defined, 1 / np.where(exact.defined, exact.ideal, 1), 0) / exact.defined.sum()
        self._gain = exact.gain * share[exact.query]
        cutoff = min(exact.cutoff, int(np.diff(data.offsets).max()))
        self._discount = 1 / np.log2(np.arange(cutoff) + 2)

    def smooth_value(self, score: Floats) -> float:
        """Return the surrogate whose gradient `gradient` returns."""
        centered, spread = _centered(score)
        return self._soft_dcg(centered / spread)[0]

    def surrogate_gradient(self, score: Floats) -> Floats:
        """Return the gradient of the expected measure, averaged over queries."""
        return self._soft_dcg(score)[1]

    def _soft_dcg(self, score: Floats) -> tuple[float, Floats]:
        gradient = np.empty(len(score))
        value = soft_dcg(score, self._gain, self.data.offsets, self._discount, SOFTRANK_NOISE, gradient)
        return float(value), gradient


def _centered(score: Floats) -> tuple[Floats, float]:
    """Return the scores minus their mean, and their standard deviation, or 1 if all are equal."""
    centered = score - score.mean()
    spread = float(np.sqrt(np.mean(centered**2)))
    return centered, spread if spread > MIN_RELATIVE_SPREAD * float(np.abs(score).max()) else 1.0


class LossObjective:
    """The negative mean of a loss of single rows, for targets that are not rankings.

    >>> objective = LossObjective(np.array([1.0, 0.0]), squared)
    >>> objective.value(np.array([1.0, 1.0])), objective.gradient(np.array([2.0, 1.0])).tolist()
    (-0.5, [-1.0, -1.0])
    """

    def __init__(self, y: Floats, loss: Loss) -> None:
        self.y, self.loss = y, loss

    def value(self, score: Floats) -> float:
        """Return the negative mean loss."""
        return float(self.values(score).mean())

    def values(self, score: Floats) -> Floats:
        """Return the negative loss of every row."""
        return -self._losses(score)[0]

    def gradient(self, score: Floats) -> Floats:
        """Return the gradient of the negative mean loss."""
        return -self._losses(score)[1] / len(score)

    def _losses(self, score: Floats) -> tuple[Floats, Floats]:
        loss, derivative = (np.asarray(part, dtype=np.float64) for part in self.loss(score, self.y))
        if loss.shape != score.shape or derivative.shape != score.shape:
            raise UsageError(
                "must return two arrays, the loss of every row and its derivative in the score of the row",
                parameter="objective",
            )
        return loss, derivative


def squared(score: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return (s - y)^2 and the derivative of each by its score s."""
    return (score - y) ** 2, 2 * (score - y)


def logistic(score: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the log loss of the probability sigma(4 (s - 1/2)) against y in [0, 1], and its derivative by s.

    Targets start at labels in [0, 1], so a score is close to a probability, not to a logit.

    >>> logistic(np.array([0.5]), np.array([1.0]))
    (array([0.69314718]), array([-2.]))
    """
    logit = LOGIT_SLOPE * (score - 0.5)
    return np.logaddexp(0.0, logit) - y * logit, LOGIT_SLOPE * (expit(logit) - y)


LOSSES: dict[str, Loss] = {"squared": squared, "logistic": logistic}
RANKING_OBJECTIVES: dict[str, type[RankingObjective]] = {
    "lambdarank": LambdaRankObjective,
    "softrank": SoftRankObjective,
}
"""Smooth surrogates of ranking measures."""


class ObjectiveSpec:
    """The objective that a remapper is asked for; `build_objective` builds it for any expert-graded rows.

    The named losses see expert grades scaled to [0, 1] by the range of the training grades, as targets start in [0, 1];
    a loss function of the user sees grades as they are.

    Args:
        objective: ranking measure such as `DCG@10`, `squared`, `logistic`, or a loss function.
        gains: gain of each expert grade, for ranking measures.
        measure: surrogate of a ranking measure: `lambdarank` or `softrank`.

    >>> ObjectiveSpec("squared").ranks, ObjectiveSpec("nDCG@5").ranks
    (False, True)
    """

    def __init__(self, objective: str | Loss, gains: Gains = "exponential", measure: str = "lambdarank") -> None:
        self.objective, self.gains, self.measure = objective, gains, measure
        self.ranks = isinstance(objective, str) and objective not in LOSSES
        self._low, self._range = 0.0, 1.0
        if self.ranks:
            _require_measure(objective)

    def set_range(self, y: Floats) -> None:
        """Scale grades by the range of the training grades, if the objective is a named loss."""
        if isinstance(self.objective, str) and not self.ranks:
            self._low, self._range = float(y.min()), float(np.ptp(y))
            if not self._range:
                raise InputError(
                    "every expert grade is the same", kind="equal-expert-grades", fix="give expert grades that differ"
                )

    def build_objective(self, data: RankingData) -> Objective:
        """Return the objective on these rows."""
        if isinstance(self.objective, str) and self.ranks:
            return RANKING_OBJECTIVES[self.measure](data, self.objective, self.gains)
        loss = LOSSES[self.objective] if isinstance(self.objective, str) else self.objective
        return LossObjective((data.grade - self._low) / self._range, loss)

    @property
    def output_scale(self) -> tuple[float, float]:
        """Factor and offset that turn outputs of the ranker into predictions: grades (squared) or logits (logistic)."""
        scales = {"squared": (self._range, self._low), "logistic": (LOGIT_SLOPE, -LOGIT_SLOPE / 2)}
        return scales.get(self.objective, (1.0, 0.0)) if isinstance(self.objective, str) else (1.0, 0.0)


def _require_measure(measure: Any) -> None:
    try:
        check_measure(measure)
    except UsageError as problem:
        raise UsageError(
            f"must be a measure such as DCG@10, squared, logistic, or a function, not {measure!r}: {problem}",
            parameter="objective",
        ) from problem


@njit(cache=True, nogil=True)
def scale_rows(X: Floats, root_weight: Floats, target: Floats, first_row: int, end_row: int, scaled: Floats) -> None:
    """Write [X 1] times the square root of each weight, and the scaled target, into `scaled`, without `end_row`."""
    # X (n, k); root_weight, target (n,); scaled (at least end_row - first_row, at least k + 2)
    k = X.shape[1]
    for i in range(first_row, end_row):
        row, output, r = X[i], scaled[i - first_row], root_weight[i]
        for j in range(k):
            output[j] = row[j] * r
        output[k], output[k + 1] = r, target[i]


@njit(cache=True, nogil=True, fastmath=True)
def multiply_by_two_vectors(X: Floats, a: Floats, b: Floats, product_a: Floats, product_b: Floats) -> None:
    """Write X a into `product_a` and X b into `product_b`, in one pass over X: about half the time of two products."""
    # X (n, k); a, b (k,); product_a, product_b (n,)
    for i in range(X.shape[0]):
        s, t = 0.0, 0.0
        for j in range(X.shape[1]):
            s += X[i, j] * a[j]
            t += X[i, j] * b[j]
        product_a[i], product_b[i] = s, t


@njit(cache=True, nogil=True)
def soft_dcg(score: Floats, gain: Floats, offsets: Integers, discount: Floats, noise: float, gradient: Floats) -> float:
    """Return the DCG, summed over queries and expected under normal noise of scores; write the gradient by score.

    The rank distribution of a document is built by adding the other documents one at a time (Taylor et al. 2008);
    ranks from the cutoff on have no discount and are left out. The gradient goes back through the same recursion.
    """
    # score, gain, gradient (n,); offsets (n_queries + 1,); discount (cutoff,); noise: standard deviation of a score
    gradient[:] = 0.0
    total = 0.0
    cutoff = discount.size
    width = noise * math.sqrt(2.0)
    longest = np.max(np.diff(offsets))
    before = np.empty((longest, cutoff))  # rank distribution before each other document is added
    above = np.empty(longest)  # probability that the other document is ranked above
    ranks, adjoint = np.empty(cutoff), np.empty(cutoff)
    for query in range(offsets.size - 1):
        first, last = offsets[query], offsets[query + 1]
        for i in range(first, last):
            if gain[i] == 0.0:
                continue
            ranks[:] = 0.0
            ranks[0] = 1.0
            for j in range(first, last):
                if j == i:
                    continue
                p = 0.5 * math.erfc((score[i] - score[j]) / (width * math.sqrt(2.0)))
                above[j - first] = p
                before[j - first, :] = ranks
                for r in range(cutoff - 1, 0, -1):
                    ranks[r] = (1.0 - p) * ranks[r] + p * ranks[r - 1]
                ranks[0] *= 1.0 - p
            for r in range(cutoff):
                total += gain[i] * discount[r] * ranks[r]
                adjoint[r] = gain[i] * discount[r]
            for j in range(last - 1, first - 1, -1):
                if j == i:
                    continue
                p, slope = above[j - first], -adjoint[0] * before[j - first, 0]
                for r in range(1, cutoff):
                    slope += adjoint[r] * (before[j - first, r - 1] - before[j - first, r])
                for r in range(cutoff - 1):
                    adjoint[r] = (1.0 - p) * adjoint[r] + p * adjoint[r + 1]
                adjoint[cutoff - 1] *= 1.0 - p
                difference = (score[i] - score[j]) / width
                slope *= math.exp(-0.5 * difference * difference) / (width * math.sqrt(2.0 * math.pi))
                gradient[j] += slope
                gradient[i] -= slope
    return total
