"""Polytomous Rasch: every assessor has thresholds on the line of relevance, all of one slope (GDA 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._saved import POSITIVE, PROBABILITY, require_range
from crowdrank._typing import Arrays
from crowdrank.consensus import experts
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.curves import careful_curves
from crowdrank.consensus.kernels import SMALL
from crowdrank.consensus.latent import (
    DIFFICULTIES,
    NODES,
    PRIOR,
    expect_nodes,
    rows_on_nodes,
    states_prior,
    use_of_answers,
)
from crowdrank.consensus.result import modal_grades, restrict_to_gold
from crowdrank.constraints import Constraints, Flag
from crowdrank.engine.shards import Shard
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments

FEW = 5.0
"""So many assessors of the first guess stand behind the prior that is learned: a crowd of three learns little."""
FIRST_VARIANCE = 1.0
"""How much thresholds are first thought to vary among assessors."""
LEAST_SCALE = 0.05
"""The scale of relevance stays above this: its sign tells better from worse."""
ROUNDING = 1e-9
"""A loss smaller than this is rounding, not a step that is too long."""
UNREACHED = 1e3
"""The threshold of a grade that an assessor's scale does not have."""


class Rasch(Aggregator):
    """P(grade g | relevance r) is proportional to exp(sum of (r - threshold_h) over h = 1..g), thresholds per assessor.

    Slopes are 1, so assessors differ in how strict they are but not in how reliable: what one answer tells is the
    scale of relevance, which is learned. Relevance is integrated out on nodes, and the thresholds have a common normal
    prior whose mean and covariance are learned (empirical Bayes). Relevance is shown in standard deviations. Assessors
    may use different scales; each scale has its own prior, and grades are shown on the one with the most grades.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log likelihood per judgment changes by
            less than `tol`.
        difficulty: let every document divide the exponent by a difficulty of its own, integrated out on a small grid;
            the column `difficulty` then shows its mean, and higher is harder.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 0]})
    >>> model = Rasch().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    >>> model.consensus_.assessors.set_index("assessor")["threshold_2"].idxmax()  # the strictest
    'z'
    """

    shrinks: ClassVar[bool] = True
    takes_scales: ClassVar[bool] = True
    on_a_line: ClassVar[bool] = True
    on_nodes: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("thresholds", "scale_of")
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "likelihood": PROBABILITY,
        "shares": PROBABILITY,
        "typical": PROBABILITY,
        "scale": POSITIVE,
    }
    carries: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[Constraints] = {"difficulty": [Flag()]}

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-5,
        *,
        difficulty: bool = False,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.difficulty = difficulty
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _difficulties(self) -> NDArray[np.float64]:
        return DIFFICULTIES if self.difficulty else np.ones(1)

    def _start(self, shard: Shard) -> Arrays:
        """Nothing is known."""
        return {"posterior": np.empty((shard.n_items, 0))}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Posteriors on the nodes and the answers given there; before the first pass, how often each grade is used."""
        if theta is None:
            grades = experts.count_answers(shard, max(shard.scale_sizes))["expert_grades"]
            return local, {**use_of_answers(shard), "expert_grades": grades}
        relevance = np.tile(NODES, len(self._difficulties()))
        gold = experts.expert_curves(theta["expert_cuts"], relevance)
        new, statistics = expect_nodes(shard, theta["likelihood"], gold, theta["shares"])
        return new, {**statistics, "expert_states": experts.count_states(shard, new["posterior"])}

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Thresholds and scale by a Newton step each, then the prior that the thresholds come from."""
        if theta is None:
            return self._initial(statistics)
        counts, eps, scale_of = statistics["counts"], self._difficulties(), theta["scale_of"]
        precision = np.linalg.inv(theta["covariance"])[scale_of]
        thresholds, spread = threshold_step(
            counts, theta["thresholds"], theta["scale"][0], eps, theta["mean"][scale_of], precision
        )
        scale = scale_step(counts, thresholds, theta["scale"][0], eps)
        mean, covariance = theta["mean"].copy(), theta["covariance"].copy()
        for number in np.unique(scale_of):
            of = scale_of == number
            mean[number], covariance[number] = self._learn_prior(
                thresholds[of], spread[of], theta["first_mean"][number]
            )
        likelihood = threshold_curves(thresholds, scale, eps)
        return {
            **theta,
            "thresholds": thresholds,
            "scale": np.array([scale]),
            "mean": mean,
            "covariance": covariance,
            "likelihood": likelihood,
            "typical": self._typical(thresholds, scale, likelihood, counts.sum(axis=(1, 2))),
            "expert_cuts": experts.estimate_cuts(
                theta["expert_cuts"], statistics["expert_states"], np.tile(NODES, len(eps))
            ),
        }

    @staticmethod
    def _learn_prior(
        thresholds: NDArray[np.float64], spread: NDArray[np.float64], first_mean: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and covariance of the thresholds, as if a few assessors of the first guess were among them."""
        n, n_steps = thresholds.shape
        mean = (thresholds.sum(axis=0) + FEW * first_mean) / (n + FEW)
        off = thresholds - mean
        total = off.T @ off + spread.sum(axis=0) + FEW * FIRST_VARIANCE * np.eye(n_steps)
        return mean, total / (n + FEW)

    def _typical(
        self,
        thresholds: NDArray[np.float64],
        scale: float,
        likelihood: NDArray[np.float64],
        judgments: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return P(grade | node) of a typical careful assessor with the main scale."""
        on_main = (thresholds < UNREACHED).all(axis=1)
        curves = threshold_curves(thresholds, scale, np.ones(1)) if self.difficulty else likelihood
        return careful_curves(judgments * on_main, curves)

    def _initial(self, statistics: Arrays) -> Arrays:
        """Everyone alike, with thresholds by the use of the grades on the scale."""
        log_used, scale_of = np.log(statistics["used"] + 1.0), statistics["given"].argmax(axis=1)
        mean, scale = np.nan_to_num(-np.diff(log_used), nan=UNREACHED), first_scale(log_used.shape[1])
        thresholds = mean[scale_of]
        likelihood = threshold_curves(thresholds, scale, self._difficulties())
        return {
            "thresholds": thresholds,
            "scale_of": scale_of,
            "scale": np.array([scale]),
            "mean": mean,
            "covariance": np.tile(FIRST_VARIANCE * np.eye(mean.shape[1]), (len(mean), 1, 1)),
            "likelihood": likelihood,
            "shares": states_prior(self._difficulties()),
            "typical": self._typical(thresholds, scale, likelihood, statistics["given"].sum(axis=1)),
            "first_mean": mean,
            "expert_cuts": experts.first_cuts(statistics["expert_grades"]),
        }

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The log likelihood per judgment, relevance integrated out."""
        return float(statistics["log_likelihood"][0]) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Relevance and its spread on the latent line; grades as a typical careful assessor would give them."""
        rows = rows_on_nodes(self._line_posterior(local), theta["typical"], self.interval)
        restrict_to_gold(rows["p"], shard)
        rows["grade"] = modal_grades(rows["p"])
        return (
            {**rows, "difficulty": self._split(local).sum(axis=2) @ self._difficulties()} if self.difficulty else rows
        )

    def _split(self, local: Arrays) -> NDArray[np.float64]:
        """The posterior by difficulty and node: (n_items, n_difficulties, n_nodes)."""
        return local["posterior"].reshape(-1, len(self._difficulties()), len(NODES))

    def _line_posterior(self, local: Arrays) -> NDArray[np.float64]:
        """Over all difficulties."""
        over_all: NDArray[np.float64] = self._split(local).sum(axis=1)
        return over_all

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line, for documents of middling difficulty."""
        return PRIOR, threshold_curves(theta["thresholds"], theta["scale"][0], np.ones(1))

    def _all_states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line for every difficulty."""
        return theta["shares"], theta["likelihood"]

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The relevance at which each grade becomes as likely as the one below it."""
        places = np.where(theta["thresholds"] < UNREACHED, theta["thresholds"] / theta["scale"], np.nan)
        return {f"threshold_{step}": place for step, place in enumerate(places.T, start=1)}

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Check that scales are in range and covariances positive definite, too."""
        super()._check_theta(theta, example, n_assessors)
        require_range("scale_of", theta["scale_of"], 0, len(theta["mean"]) - 1)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """What the prior says."""
        return scale_of if name == "scale_of" else theta["mean"][scale_of]

    def _adopt(self, init: Aggregator, table: Judgments, gold: Gold | None) -> Arrays | None:
        """Compute the curves again: the other model may have been without difficulties."""
        theta = super()._adopt(init, table, gold)
        if theta is not None:
            theta["likelihood"] = threshold_curves(theta["thresholds"], theta["scale"][0], self._difficulties())
            theta["shares"] = states_prior(self._difficulties())
        return theta


def first_scale(n_grades: int) -> float:
    """What the standard deviation of relevance is first thought to be: the extreme grades are as far apart for all.

    >>> first_scale(3)
    1.2
    """
    return 2.4 / (n_grades - 1)


def score_parts(
    n_answers: int, scale: float, difficulties: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the parts of the scores that no assessor changes: `rise`, exp(rise) and `ease`.

    The score of answer g in state s is rise[g, s] - ease[s] * (sum of the thresholds up to g), but for a constant.
    """
    # (n_answers, n_states) twice, (n_states,)
    places = np.concatenate([NODES / eps for eps in difficulties])
    rise = np.arange(n_answers)[:, None] * (scale * places)
    rise -= rise.max(axis=0)
    return rise, np.exp(rise), np.repeat(1 / difficulties, len(NODES))


def threshold_curves(
    thresholds: NDArray[np.float64], scale: float, difficulties: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P(answer | state), a state being a difficulty and a node: (n_assessors, n_answers, n_states)."""
    # thresholds (n_assessors, n_answers - 1), difficulties (n_difficulties,)
    parts = score_parts(thresholds.shape[1] + 1, scale, difficulties)
    curves = np.empty((len(thresholds), *parts[0].shape))
    fill_threshold_curves(thresholds, *parts, curves)
    return curves


def threshold_step(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    scale: float,
    difficulties: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return every assessor's thresholds after one Newton step, and the Laplace covariances.

    The problem is concave; a step that would lower it is halved until it does not.
    """
    # counts (n_assessors, n_answers, n_states), thresholds, mean (n_assessors, n_answers - 1), precision (n_assessors
    # or 1, that, that)
    precision = np.broadcast_to(precision, (len(counts), *precision.shape[1:]))
    parts = score_parts(counts.shape[1], scale, difficulties)
    slope, curvature = np.zeros(thresholds.shape), np.zeros((*thresholds.shape, thresholds.shape[1]))
    threshold_derivatives(counts, thresholds, *parts, slope, curvature)
    spread = np.asarray(np.linalg.inv(curvature + precision), np.float64)
    step = np.einsum("ahk,ak->ah", spread, slope - np.einsum("ah,ahk->ak", thresholds - mean, precision))

    def penalized(tried: NDArray[np.float64], of: NDArray[np.int64]) -> NDArray[np.float64]:
        off = tried - mean[of]
        penalty: NDArray[np.float64] = 0.5 * (np.einsum("ah,ahk->ak", off, precision[of]) * off).sum(axis=1)
        gains: NDArray[np.float64] = threshold_gains(counts, tried, *parts, of)
        return gains - penalty

    left = np.arange(len(thresholds))
    before, stepped = penalized(thresholds, left), thresholds + step
    for _ in range(12):
        left = left[penalized(stepped[left], left) < before[left] - ROUNDING]
        if not len(left):
            break
        step[left] /= 2
        stepped[left] = thresholds[left] + step[left]
    return stepped, spread


def scale_step(
    counts: NDArray[np.float64], thresholds: NDArray[np.float64], scale: float, difficulties: NDArray[np.float64]
) -> float:
    """Return a better standard deviation of relevance: one Newton step of a concave problem, halved while too long.

    A weak normal prior keeps it finite where all assessors agree.
    """
    n_answers, every = counts.shape[1], np.arange(len(counts))
    first = first_scale(n_answers)

    def penalized(tried: float) -> float:
        gains = threshold_gains(counts, thresholds, *score_parts(n_answers, tried, difficulties), every)
        return float(gains.sum()) - scale_penalty(tried, n_answers)

    parts = score_parts(n_answers, scale, difficulties)
    places = np.concatenate([NODES / eps for eps in difficulties])
    slopes, curvatures = scale_derivatives(counts, thresholds, *parts, places)
    slope = float(slopes.sum()) - (scale - first) / first**2
    step = slope / (float(curvatures.sum()) + first**-2)
    before = penalized(scale)
    for halved in range(12):
        tried = max(scale + step * 0.5**halved, LEAST_SCALE)
        if penalized(tried) >= before - ROUNDING:
            return tried
    return scale


def scale_penalty(scale: float, n_grades: int) -> float:
    """The negative log prior of the scale, but for constants."""
    return 0.5 * (scale / first_scale(n_grades) - 1.0) ** 2


@njit(cache=True, nogil=True)
def threshold_shares(
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    state: int,
    scores: NDArray[np.float64],
    falls: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> float:
    """Write one assessor's probabilities of the answers in one state of the Rasch model; return their normalizer.

    The score of answer g is rise[g, state] + scores[g], and exp(score) is growth[g, state] * falls[g]: `scores` and
    `falls` are written in the first state of each difficulty, and serve all states of it. States are taken in order.
    """
    # thresholds (n_answers - 1,); rise, growth = exp(rise) (n_answers, n_states); ease (n_states,);
    # scores, falls, shares (n_answers,)
    n_answers = len(scores)
    if state == 0 or ease[state] != ease[state - 1]:
        scores[0] = highest = 0.0
        for g in range(1, n_answers):
            scores[g] = scores[g - 1] - ease[state] * thresholds[g - 1]
            highest = max(highest, scores[g])
        for g in range(n_answers):
            scores[g] -= highest
            falls[g] = np.exp(scores[g])
    total = 0.0
    for g in range(n_answers):
        shares[g] = growth[g, state] * falls[g]
        total += shares[g]
    if total < SMALL:  # no answer is likely by both factors: their product may have been rounded to 0
        highest = -np.inf
        for g in range(n_answers):
            highest = max(highest, rise[g, state] + scores[g])
        total = 0.0
        for g in range(n_answers):
            shares[g] = np.exp(rise[g, state] + scores[g] - highest)
            total += shares[g]
        for g in range(n_answers):
            shares[g] /= total
        return float(highest + np.log(total))
    for g in range(n_answers):
        shares[g] /= total
    return float(np.log(total))


@njit(cache=True, nogil=True)
def fill_threshold_curves(
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    curves: NDArray[np.float64],
) -> None:
    """Write P(answer | state) of every assessor of the Rasch model."""
    # curves (n_assessors, n_answers, n_states)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            for g in range(n_answers):
                curves[a, g, s] = shares[g]


@njit(cache=True, nogil=True)
def threshold_gains(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    chosen: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the expected log likelihood of the answers of the chosen assessors."""
    # counts (n_assessors, n_answers, n_states), thresholds (len(chosen), n_answers - 1) -> (len(chosen),)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    gains = np.zeros(len(chosen))
    for i in range(len(chosen)):
        for s in range(n_states):
            log_total = threshold_shares(thresholds[i], rise, growth, ease, s, scores, falls, shares)
            for g in range(n_answers):
                gains[i] += counts[chosen[i], g, s] * (rise[g, s] + scores[g] - log_total)
    return gains


@njit(cache=True, nogil=True)
def threshold_derivatives(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    slope: NDArray[np.float64],
    curvature: NDArray[np.float64],
) -> None:
    """Add gradient and negative Hessian of the expected log likelihood in each assessor's thresholds."""
    # slope (n_assessors, n_answers - 1), curvature (n_assessors, n_answers - 1, n_answers - 1)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    higher = np.empty(n_answers)  # P(this answer or a higher one)
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            total = 0.0
            for g in range(n_answers):
                total += counts[a, g, s]
            weight, above, excess = total * ease[s] ** 2, 0.0, 0.0
            for g in range(n_answers - 1, 0, -1):
                above += shares[g]
                higher[g] = above
                excess += counts[a, g, s] - total * shares[g]
                slope[a, g - 1] -= ease[s] * excess
            for h in range(1, n_answers):
                for k in range(1, n_answers):
                    curvature[a, h - 1, k - 1] += weight * (higher[max(h, k)] - higher[h] * higher[k])


@njit(cache=True, nogil=True)
def scale_derivatives(
    counts: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rise: NDArray[np.float64],
    growth: NDArray[np.float64],
    ease: NDArray[np.float64],
    places: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return first and negative second derivative of each assessor's expected log likelihood in the scale."""
    # places (n_states,) -> (n_assessors,), (n_assessors,)
    n_answers, n_states = rise.shape
    scores, falls, shares = np.empty(n_answers), np.empty(n_answers), np.empty(n_answers)
    slope, curvature = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    for a in range(len(thresholds)):
        for s in range(n_states):
            threshold_shares(thresholds[a], rise, growth, ease, s, scores, falls, shares)
            total, given, expected, square = 0.0, 0.0, 0.0, 0.0
            for g in range(n_answers):
                total += counts[a, g, s]
                given += g * counts[a, g, s]
                expected += g * shares[g]
                square += g * g * shares[g]
            slope[a] += (given - total * expected) * places[s]
            curvature[a] += total * (square - expected**2) * places[s] ** 2
    return slope, curvature
