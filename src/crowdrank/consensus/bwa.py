"""BWA, the Bayesian weighted average: grades are numbers, every assessor has a bias and a precision (Li 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, ndtr, ndtri, polygamma

from crowdrank._numba import njit
from crowdrank._saved import LARGEST, POSITIVE
from crowdrank._typing import Arrays
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.latent import NODES, PRIOR
from crowdrank.consensus.result import modal_grades
from crowdrank.constraints import Constraints, Flag
from crowdrank.engine.shards import Shard

FEW = 5.0
"""So many assessors of the first guess stand behind the priors that are learned: a crowd of three learns little."""
FIRST_GAMMA = (2.0, 2.0)
"""Shape and rate from which precisions are first thought to come: a grade is off by about one step."""
FIRST_BIAS = 0.5**2
"""How much assessors' biases are first thought to vary."""
ROUNDING = 1 / 12
"""The variance of a number within its grade. It also bounds the precision of assessors who never disagree."""


class BWA(Aggregator):
    """Grade = relevance + bias of the assessor + normal noise, rounded; the noise has the assessor's own precision.

    Relevance is then the mean of the grades less their biases, weighted by precision and drawn to the mean of all
    documents. Documents vary as if all grades were equally frequent: were that learned too, assessors who always give
    the same grade would seem precise and all documents alike. Biases are normal and precisions Gamma, with learned
    priors; all are estimated by variational expectation-maximization, which never lowers the bound of the log
    likelihood. Biases and precisions are in steps of the scale.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the bound per judgment changes by less than `tol`.
        bias: whether assessors have a bias. It helps where some are much stricter than others.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 0, 0, 0, 1]})
    >>> model = BWA().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    >>> model.consensus_.assessors.set_index("assessor")["precision"].idxmin()
    'z'
    """

    shrinks: ClassVar[bool] = True
    on_a_line: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("shape", "rate", "bias", "doubt")
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        **dict.fromkeys(("shape", "rate", "spread", "bias_variance", "gamma"), POSITIVE),
        "doubt": (0.0, LARGEST),
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
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.bias = bias
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _start(self, shard: Shard) -> Arrays:
        """Nothing is known."""
        return {"mean": np.empty(shard.n_items), "variance": np.empty(shard.n_items)}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """The posterior of each item, and the deviations from it per assessor."""
        if theta is None:
            theta = first_theta(shard.n_assessors, shard.n_grades)
        worth = in_steps(shard.values)
        mean, variance = np.empty(shard.n_items), np.empty(shard.n_items)
        first, second = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        weigh_grades(
            shard.offsets,
            shard.assessor,
            shard.grade,
            shard.gold,
            worth,
            theta["middle"][0],
            1 / theta["spread"][0],
            theta["shape"] / theta["rate"],
            theta["bias"],
            mean,
            variance,
            first,
            second,
        )
        unknown = variance[shard.gold < 0]
        return {"mean": mean, "variance": variance}, {
            "judged": np.bincount(shard.assessor, minlength=shard.n_assessors).astype(float),
            "first": first,
            "second": second,
            "items": np.array([len(mean), mean.sum(), (mean**2 + variance).sum()]),
            "entropy": np.array([0.5 * np.log(2 * np.pi * math.e * unknown).sum()]),
            "worth": len(mean) * worth,  # statistics add up: their mean over items is what each shard says
        }

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Each assessor's posterior, then the priors."""
        judged, first = statistics["judged"], statistics["first"]
        if theta is None:
            theta = first_theta(len(judged), len(statistics["worth"]))
        bias, doubt = np.zeros(len(judged)), np.zeros(len(judged))
        if self.bias:
            precision = theta["shape"] / theta["rate"]
            doubt = 1 / (1 / theta["bias_variance"] + judged * precision)
            bias = doubt * precision * first
        shape = theta["gamma"][0] + judged / 2
        rate = theta["gamma"][1] + squares(statistics, bias, doubt) / 2
        n_items, total, _ = statistics["items"]
        bias_variance = ((bias**2 + doubt).sum() + FEW * FIRST_BIAS) / (len(bias) + FEW)
        return {
            "shape": shape,
            "rate": rate,
            "bias": bias,
            "doubt": doubt,
            "middle": np.array([total / n_items]),
            "spread": theta["spread"],
            "bias_variance": np.array([bias_variance]),
            "gamma": learn_gamma(shape, rate),
            "worth": statistics["worth"] / n_items,
        }

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The bound of the log likelihood and the weak priors of the learned priors, per judgment."""
        shape, rate, judged = theta["shape"], theta["rate"], statistics["judged"]
        log_precision = digamma(shape) - np.log(rate)
        left = squares(statistics, theta["bias"], theta["doubt"])
        fit = 0.5 * (judged @ (log_precision - np.log(2 * np.pi)) - left @ (shape / rate))
        bound = fit + self._items_bound(theta, statistics) + precisions_bound(theta)
        return float(bound + (biases_bound(theta) if self.bias else 0.0)) / n

    @staticmethod
    def _items_bound(theta: Arrays, statistics: Arrays) -> float:
        n, total, squared = statistics["items"]
        middle, spread = theta["middle"][0], theta["spread"][0]
        off = squared - 2 * middle * total + n * middle**2
        return float(statistics["entropy"][0] - 0.5 * (n * np.log(2 * np.pi * spread) + off / spread))

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """The posterior on the scale; a grade is as probable as the numbers nearest to it."""
        bottom, step = shard.values[0], (shard.values[-1] - shard.values[0]) / (shard.n_grades - 1)
        sd = np.sqrt(local["variance"])
        shares = cell_shares(local["mean"], np.maximum(sd, 1e-9), in_steps(shard.values))
        relevance, reach = bottom + step * local["mean"], ndtri(0.5 + self.interval / 2) * step * sd
        return {
            "relevance": relevance,
            "sd": step * sd,
            "lower": relevance - reach,
            "upper": relevance + reach,
            "grade": modal_grades(shares),
            "p": shares,
        }

    @property
    def in_grades(self) -> bool:
        """Its line is that of the grades."""
        return True

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the line of relevance."""
        places = theta["middle"] + np.sqrt(theta["spread"]) * NODES
        sd = np.sqrt(theta["rate"] / theta["shape"])
        shares = cell_shares(theta["bias"][:, None] + places, sd[:, None], theta["worth"])
        return PRIOR, np.moveaxis(shares, 2, 1)

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The inverse variance of the noise, and how much higher than the crowd the assessor grades."""
        precision = {"precision": theta["shape"] / theta["rate"]}
        return {**precision, "bias": theta["bias"]} if self.bias else precision

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[np.float64]:
        """What the priors say."""
        doubt = theta["bias_variance"][0] if self.bias else 0.0
        known = {"shape": theta["gamma"][0], "rate": theta["gamma"][1], "bias": 0.0, "doubt": doubt}
        return np.full(len(scale_of), known[name])


def first_theta(n_assessors: int, n_grades: int) -> Arrays:
    """Everyone alike, and documents spread evenly over the grades."""
    shape, rate = FIRST_GAMMA
    return {
        "shape": np.full(n_assessors, shape),
        "rate": np.full(n_assessors, rate),
        "bias": np.zeros(n_assessors),
        "doubt": np.zeros(n_assessors),
        "middle": np.array([(n_grades - 1) / 2]),
        "spread": np.array([(n_grades**2 - 1) / 12]),
        "bias_variance": np.array([FIRST_BIAS]),
        "gamma": np.array(FIRST_GAMMA),
    }


def squares(statistics: Arrays, bias: NDArray[np.float64], doubt: NDArray[np.float64]) -> NDArray[np.float64]:
    """The expected sum of squares per assessor that relevance and bias leave over, and that of the rounding."""
    judged, first, second = statistics["judged"], statistics["first"], statistics["second"]
    left: NDArray[np.float64] = second - 2 * bias * first + judged * (bias**2 + doubt + ROUNDING)
    return left


def learn_gamma(shape: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shape and rate of the Gamma from which precisions with these posteriors come, a few first guesses among them.

    The likelihood in the shape alone is climbed by Newton steps on its inverse (Minka 2002).
    """
    mean, mean_log = expected_precisions(shape, rate) / (len(shape) + FEW)
    gap = np.log(mean) - mean_log
    found = 0.5 / gap
    for _ in range(50):
        slope = np.log(found) - digamma(found) - gap
        after = 1 / (1 / found + slope / (found - found**2 * polygamma(1, found)))
        at_rest = abs(after / found - 1) < 1e-12
        found = after
        if at_rest:
            break
    return np.array([found, found / mean])


def expected_precisions(shape: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums of the expected precisions and of their expected logarithms, with those of the first guess."""
    shapes, rates = np.append(shape, FIRST_GAMMA[0]), np.append(rate, FIRST_GAMMA[1])
    times = np.append(np.ones(len(shape)), FEW)
    return np.array([times @ (shapes / rates), times @ (digamma(shapes) - np.log(rates))])


def precisions_bound(theta: Arrays) -> float:
    """The negative divergence of the precisions' posteriors from their prior, and that prior's own weak prior."""
    shape, rate, (a, b) = theta["shape"], theta["rate"], theta["gamma"]
    entropy = shape - np.log(rate) + gammaln(shape) + (1 - shape) * digamma(shape)
    expected, expected_log = expected_precisions(shape, rate)
    prior = (len(shape) + FEW) * (a * np.log(b) - gammaln(a)) + (a - 1) * expected_log - b * expected
    return float(entropy.sum() + prior)


def biases_bound(theta: Arrays) -> float:
    """The negative divergence of the biases' posteriors from their prior, and that prior's own weak prior."""
    bias, doubt, variance = theta["bias"], theta["doubt"], theta["bias_variance"][0]
    entropy = 0.5 * np.log(2 * np.pi * math.e * doubt).sum()
    squared = (bias**2 + doubt).sum() + FEW * FIRST_BIAS
    return float(entropy - 0.5 * ((len(bias) + FEW) * np.log(2 * np.pi * variance) + squared / variance))


def in_steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each grade is worth, counted from the lowest in mean steps of the scale.

    >>> in_steps(np.array([1.0, 2.0, 5.0])).tolist()
    [0.0, 0.5, 2.0]
    """
    worth: NDArray[np.float64] = (values - values[0]) * (len(values) - 1) / (values[-1] - values[0])
    return worth


def cell_shares(mean: NDArray[np.float64], sd: NDArray[np.float64], worth: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mass of normals nearest to each grade, along a new last axis.

    >>> cell_shares(np.array([1.0]), np.array([0.5]), np.arange(3.0)).round(2).tolist()
    [[0.16, 0.68, 0.16]]
    """
    cuts = (worth[1:] + worth[:-1]) / 2
    below = ndtr((cuts - mean[..., None]) / sd[..., None])
    shares: NDArray[np.float64] = np.diff(below, axis=-1, prepend=0.0, append=1.0)
    return shares


@njit(cache=True, nogil=True)
def weigh_grades(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    worth: NDArray[np.float64],
    middle: float,
    pull: float,
    precision: NDArray[np.float64],
    bias: NDArray[np.float64],
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
) -> None:
    """Each item's normal posterior from grades weighted by precision, and what is left over per assessor.

    The prior of an item is normal with mean `middle` and precision `pull`; an expert grade is certain.
    """
    # worth (n_grades,); precision, bias (n_assessors,); mean, variance (n_items,) are written; to first and second
    # (n_assessors,) the expected deviation of the grade from the item's mean and its square are added
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        weight, total = pull, pull * middle
        for j in range(start, stop):
            weight += precision[assessor[j]]
            total += precision[assessor[j]] * (worth[grade[j]] - bias[assessor[j]])
        mean[item], variance[item] = total / weight, 1.0 / weight
        if gold[item] >= 0:
            mean[item], variance[item] = worth[gold[item]], 0.0
        for j in range(start, stop):
            off = worth[grade[j]] - mean[item]
            first[assessor[j]] += off
            second[assessor[j]] += off * off + variance[item]
