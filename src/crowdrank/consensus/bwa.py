"""BWA, the Bayesian weighted average of grades: assessors have a precision and a bias (Li et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, ndtr, ndtri, polygamma

from crowdrank._folders import MAX_SAVED_FLOAT, POSITIVE_RANGE, PROBABILITY_RANGE
from crowdrank._numba import njit
from crowdrank._typing import Arrays
from crowdrank.consensus.careful_assessor import careful_weights
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.latent import NODES, PRIOR
from crowdrank.consensus.model import EMAggregator, ThetaArray
from crowdrank.consensus.result import restrict_to_gold
from crowdrank.constraints import Constraints, Flag
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import Shard

PRIOR_ASSESSORS = 5.0
"""Weight of the initial priors when priors are learned, as a number of assessors."""
INITIAL_PRECISION_PRIOR = (2.0, 2.0)
"""Initial shape and rate of the Gamma prior of precisions; its mean 1 is a noise of about one step of the scale."""
INITIAL_BIAS_VARIANCE = 0.5**2
"""Initial prior variance of biases, in squared steps of the scale."""
ROUNDING_VARIANCE = 1 / 12
"""Variance of the rounding error of a grade, uniform over one step; it also limits precisions to 12."""


class BWA(EMAggregator):
    """Grade = relevance + bias of the assessor + normal noise with the precision of the assessor, rounded.

    Relevance is the mean of the grades minus biases, weighted by precision and shrunk to the mean of all documents.
    The prior variance of documents is that of equally frequent grades: if it were learned, assessors who always give
    the same grade would seem precise and all documents alike. Biases have a normal prior and precisions a Gamma prior,
    both learned. Variational EM estimates everything; no iteration lowers the bound of the log likelihood. Biases and
    precisions are in steps of the scale. Numbers are rounded to the grades that somebody gave: a grade that nobody gave
    has probability 0.

    Args:
        n_iter: maximum number of iterations.
        tol: smallest change of the bound per judgment; iterations end below it.
        bias: whether assessors have a bias. It helps if some are much stricter than others.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: level of the interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(true grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 0, 0, 0, 1]})
    >>> model = BWA().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    >>> model.consensus_.assessors.set_index("assessor")["precision"].idxmin()
    'z'
    """

    on_a_line: ClassVar[bool] = True
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "shape": ThetaArray(by_assessor=True, bounds=POSITIVE_RANGE),
        "rate": ThetaArray(by_assessor=True, bounds=POSITIVE_RANGE),
        "bias": ThetaArray(by_assessor=True),
        "bias_uncertainty": ThetaArray(by_assessor=True, bounds=(0.0, MAX_SAVED_FLOAT)),
        "item_variance": ThetaArray(bounds=POSITIVE_RANGE),
        "bias_variance": ThetaArray(bounds=POSITIVE_RANGE),
        "gamma": ThetaArray(bounds=POSITIVE_RANGE),
        "answers": ThetaArray(bounds=PROBABILITY_RANGE),
    }
    carries: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[Constraints] = {"bias": [Flag()]}

    def __init__(
        self,
        n_iter: int = 500,
        tol: float = 1e-6,
        *,
        bias: bool = False,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.bias = bias
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _start(self, shard: Shard) -> Arrays:
        return {"mean": np.empty(shard.n_items), "variance": np.empty(shard.n_items)}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Update the posterior of each item; return the statistics of the M-step: sums of deviations by assessor."""
        if theta is None:
            theta = initial_theta(shard.n_assessors, shard.n_grades)
        grade_values = values_in_steps(shard.values)
        mean, variance = np.empty(shard.n_items), np.empty(shard.n_items)
        deviations, squared_deviations = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        update_items(
            shard.offsets,
            shard.assessor,
            shard.grade,
            shard.gold,
            *expert_grade_ranges(shard.gold_sets, grade_values),
            grade_values,
            theta["item_mean"][0],
            1 / theta["item_variance"][0],
            theta["shape"] / theta["rate"],
            theta["bias"],
            mean,
            variance,
            deviations,
            squared_deviations,
        )
        unknown = variance[variance > 0]
        return {"mean": mean, "variance": variance}, {
            "n_judgments": np.bincount(shard.assessor, minlength=shard.n_assessors).astype(float),
            "deviations": deviations,
            "squared_deviations": squared_deviations,
            "items": np.array([len(mean), mean.sum(), (mean**2 + variance).sum()]),
            "entropy": np.array([0.5 * np.log(2 * np.pi * math.e * unknown).sum()]),
            "answers": np.bincount(shard.grade, minlength=shard.n_grades).astype(float),
            "grade_values": len(mean)
            * grade_values,  # statistics of shards are summed: divided by the number of items later
        }

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return the parameters after updating the posteriors of biases and precisions, then their priors."""
        n_judgments = statistics["n_judgments"]
        if theta is None:
            theta = initial_theta(len(n_judgments), len(statistics["grade_values"]))
        bias, bias_uncertainty = np.zeros(len(n_judgments)), np.zeros(len(n_judgments))
        if self.bias:
            precision = theta["shape"] / theta["rate"]
            bias_uncertainty = 1 / (1 / theta["bias_variance"] + n_judgments * precision)
            bias = bias_uncertainty * precision * statistics["deviations"]
        shape = theta["gamma"][0] + n_judgments / 2
        rate = theta["gamma"][1] + expected_squared_noise(statistics, bias, bias_uncertainty) / 2
        n_items, total, _ = statistics["items"]
        bias_variance = ((bias**2 + bias_uncertainty).sum() + PRIOR_ASSESSORS * INITIAL_BIAS_VARIANCE) / (
            len(bias) + PRIOR_ASSESSORS
        )
        return {
            "shape": shape,
            "rate": rate,
            "bias": bias,
            "bias_uncertainty": bias_uncertainty,
            "item_mean": np.array([total / n_items]),
            "item_variance": theta["item_variance"],
            "bias_variance": np.array([bias_variance]),
            "gamma": learn_precision_prior(shape, rate),
            "answers": statistics["answers"] / statistics["answers"].sum(),
            "grade_values": statistics["grade_values"] / n_items,
        }

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Return the variational lower bound of the log likelihood, with the initial priors, per judgment."""
        shape, rate, n_judgments = theta["shape"], theta["rate"], statistics["n_judgments"]
        log_precision = digamma(shape) - np.log(rate)
        squares = expected_squared_noise(statistics, theta["bias"], theta["bias_uncertainty"])
        fit = 0.5 * (n_judgments @ (log_precision - np.log(2 * np.pi)) - squares @ (shape / rate))
        bound = fit + self._item_bound(theta, statistics) + precision_bound(theta)
        return float(bound + (bias_bound(theta) if self.bias else 0.0)) / n

    @staticmethod
    def _item_bound(theta: Arrays, statistics: Arrays) -> float:
        n, total, squared = statistics["items"]
        mean, variance = theta["item_mean"][0], theta["item_variance"][0]
        squares = squared - 2 * mean * total + n * mean**2
        return float(statistics["entropy"][0] - 0.5 * (n * np.log(2 * np.pi * variance) + squares / variance))

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with bias and noise variance of a typical careful assessor, and the statistics."""
        prior, likelihood = self._states(theta)
        weights = careful_weights(statistics["n_judgments"], likelihood, prior)
        return {
            **theta,
            "typical": np.array([weights @ theta["bias"], weights @ (theta["rate"] / theta["shape"])]),
        }, statistics

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of items; P(true grade) is the probability of the range nearest to the grade."""
        bottom, step = shard.values[0], (shard.values[-1] - shard.values[0]) / (shard.n_grades - 1)
        sd = np.sqrt(local["variance"])
        grade_values = values_in_steps(shard.values)
        shares = grade_probabilities(local["mean"], np.maximum(sd, 1e-9), grade_values, theta["answers"] > 0)
        bias, noise = theta["typical"]
        answer_sd = np.sqrt(local["variance"] + noise)
        answers = grade_probabilities(local["mean"] + bias, answer_sd, grade_values, theta["answers"] > 0)
        for probabilities in (shares, answers):
            restrict_to_gold(probabilities, shard)
        relevance, reach = bottom + step * local["mean"], ndtri(0.5 + self.interval / 2) * step * sd
        return {
            "relevance": relevance,
            "sd": step * sd,
            "lower": relevance - reach,
            "upper": relevance + reach,
            "p": answers,
            "true": shares,
        }

    @property
    def in_grades(self) -> bool:
        """Whether relevance is in grades, not in standard deviations: always True."""
        return True

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        places = theta["item_mean"] + np.sqrt(theta["item_variance"]) * NODES
        sd = np.sqrt(theta["rate"] / theta["shape"])
        is_used = theta["answers"] > 0
        shares = grade_probabilities(theta["bias"][:, None] + places, sd[:, None], theta["grade_values"], is_used)
        return PRIOR, np.moveaxis(shares, 2, 1)

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return `precision` (inverse variance of the noise) and, if modeled, `shift` (mean excess over relevance)."""
        precision = {"precision": theta["shape"] / theta["rate"]}
        return {**precision, "shift": theta["bias"]} if self.bias else precision

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the value of parameter `name` for assessors without judgments: that of the prior."""
        bias_uncertainty = theta["bias_variance"][0] if self.bias else 0.0
        known = {
            "shape": theta["gamma"][0],
            "rate": theta["gamma"][1],
            "bias": 0.0,
            "bias_uncertainty": bias_uncertainty,
        }
        return np.full(len(scale_of), known[name])


def initial_theta(n_assessors: int, n_grades: int) -> Arrays:
    """Return the initial parameters: the same for all assessors, and the item prior of equally frequent grades."""
    shape, rate = INITIAL_PRECISION_PRIOR
    return {
        "shape": np.full(n_assessors, shape),
        "rate": np.full(n_assessors, rate),
        "bias": np.zeros(n_assessors),
        "bias_uncertainty": np.zeros(n_assessors),
        "item_mean": np.array([(n_grades - 1) / 2]),
        "item_variance": np.array([(n_grades**2 - 1) / 12]),
        "bias_variance": np.array([INITIAL_BIAS_VARIANCE]),
        "gamma": np.array(INITIAL_PRECISION_PRIOR),
    }


def expected_squared_noise(
    statistics: Arrays, bias: NDArray[np.float64], bias_uncertainty: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected sum of squared noise of each assessor, including rounding errors, (n_assessors,)."""
    n_judgments, deviations = statistics["n_judgments"], statistics["deviations"]
    squares: NDArray[np.float64] = (
        statistics["squared_deviations"]
        - 2 * bias * deviations
        + n_judgments * (bias**2 + bias_uncertainty + ROUNDING_VARIANCE)
    )
    return squares


def learn_precision_prior(shape: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shape and rate, (2,), of the Gamma prior of precisions, learned from the posteriors of all assessors.

    The initial prior is included as `PRIOR_ASSESSORS` assessors. The shape maximizes the expected log likelihood by
    Newton steps on its inverse (Minka 2002).

    Args:
        shape: shape of the Gamma posterior of each assessor's precision, (n_assessors,).
        rate: rate of the same, (n_assessors,).

    """
    mean, mean_log = precision_sums(shape, rate) / (len(shape) + PRIOR_ASSESSORS)
    gap = np.log(mean) - mean_log
    prior_shape = 0.5 / gap
    for _ in range(50):
        slope = np.log(prior_shape) - digamma(prior_shape) - gap
        new_shape = 1 / (1 / prior_shape + slope / (prior_shape - prior_shape**2 * polygamma(1, prior_shape)))
        converged = abs(new_shape / prior_shape - 1) < 1e-12
        prior_shape = new_shape
        if converged:
            break
    return np.array([prior_shape, prior_shape / mean])


def precision_sums(shape: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over assessors of E[precision] and of E[log precision], (2,), with `PRIOR_ASSESSORS` added."""
    shapes, rates = np.append(shape, INITIAL_PRECISION_PRIOR[0]), np.append(rate, INITIAL_PRECISION_PRIOR[1])
    times = np.append(np.ones(len(shape)), PRIOR_ASSESSORS)
    return np.array([times @ (shapes / rates), times @ (digamma(shapes) - np.log(rates))])


def precision_bound(theta: Arrays) -> float:
    """Return the terms of the variational bound that depend on the precisions and their prior."""
    shape, rate, (a, b) = theta["shape"], theta["rate"], theta["gamma"]
    entropy = shape - np.log(rate) + gammaln(shape) + (1 - shape) * digamma(shape)
    expected, expected_log = precision_sums(shape, rate)
    prior = (len(shape) + PRIOR_ASSESSORS) * (a * np.log(b) - gammaln(a)) + (a - 1) * expected_log - b * expected
    return float(entropy.sum() + prior)


def bias_bound(theta: Arrays) -> float:
    """Return the terms of the variational bound that depend on the biases and their prior."""
    bias, bias_uncertainty, variance = theta["bias"], theta["bias_uncertainty"], theta["bias_variance"][0]
    entropy = 0.5 * np.log(2 * np.pi * math.e * bias_uncertainty).sum()
    squared = (bias**2 + bias_uncertainty).sum() + PRIOR_ASSESSORS * INITIAL_BIAS_VARIANCE
    return float(entropy - 0.5 * ((len(bias) + PRIOR_ASSESSORS) * np.log(2 * np.pi * variance) + squared / variance))


def values_in_steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of grades in units of the mean step between grades; the lowest is 0.

    >>> values_in_steps(np.array([1.0, 2.0, 5.0])).tolist()
    [0.0, 0.5, 2.0]
    """
    grade_values: NDArray[np.float64] = (values - values[0]) * (len(values) - 1) / (values[-1] - values[0])
    return grade_values


def grade_probabilities(
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    grade_values: NDArray[np.float64],
    is_used: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return P(grade), along a new last axis: the probability that a normal variable is nearest to the used grade.

    >>> grade_probabilities(np.array([1.0]), np.array([0.5]), np.arange(3.0), np.ones(3, bool)).round(2).tolist()
    [[0.16, 0.68, 0.16]]
    >>> grade_probabilities(np.array([1.0]), np.array([0.5]), np.arange(3.0), np.array([1, 0, 1], bool)).tolist()
    [[0.5, 0.0, 0.5]]
    """
    used_values = grade_values[is_used]
    cuts = (used_values[1:] + used_values[:-1]) / 2
    below = ndtr((cuts - mean[..., None]) / sd[..., None])
    shares = np.zeros((*below.shape[:-1], len(grade_values)))
    shares[..., is_used] = np.diff(below, axis=-1, prepend=0.0, append=1.0)
    return shares


def expert_grade_ranges(
    gold_sets: NDArray[np.bool_], grade_values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest and the highest value of the grades that each expert grade stands for.

    An expert grade that stands for all grades has an infinite range.

    >>> expert_grade_ranges(np.array([[True, True, False], [True, True, True]]), np.array([0.0, 0.5, 1.0]))
    (array([  0., -inf]), array([0.5, inf]))
    """
    everything = gold_sets.all(axis=1)
    lowest = np.where(gold_sets, grade_values, np.inf).min(axis=1)
    highest = np.where(gold_sets, grade_values, -np.inf).max(axis=1)
    return np.where(everything, -np.inf, lowest), np.where(everything, np.inf, highest)


@njit(cache=True, nogil=True)
def update_items(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    lower_bound: NDArray[np.float64],
    upper_bound: NDArray[np.float64],
    grade_values: NDArray[np.float64],
    prior_mean: float,
    prior_precision: float,
    precision: NDArray[np.float64],
    bias: NDArray[np.float64],
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    deviations: NDArray[np.float64],
    squared_deviations: NDArray[np.float64],
) -> None:
    """Write mean and variance of the normal posterior of each item; add up the deviations of assessors' grades.

    A deviation is grade value - mean of the item. The sums of deviations and of expected squared deviations of each
    assessor are added to `deviations` and `squared_deviations`. The prior of an item is normal with mean `prior_mean`
    and precision `prior_precision`; an expert grade bounds the posterior mean.
    """
    # lower_bound, upper_bound (n_expert_grades + 1,), the last for items without an expert grade
    # grade_values (n_grades,); precision, bias, deviations, squared_deviations (n_assessors,)
    # mean, variance (n_items,)
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        weight, total = prior_precision, prior_precision * prior_mean
        for j in range(start, stop):
            weight += precision[assessor[j]]
            total += precision[assessor[j]] * (grade_values[grade[j]] - bias[assessor[j]])
        mean[item], variance[item] = total / weight, 1.0 / weight
        low, high = lower_bound[gold[item]], upper_bound[gold[item]]
        mean[item] = min(max(mean[item], low), high)
        if low == high:
            variance[item] = 0.0
        for j in range(start, stop):
            deviation = grade_values[grade[j]] - mean[item]
            deviations[assessor[j]] += deviation
            squared_deviations[assessor[j]] += deviation * deviation + variance[item]
