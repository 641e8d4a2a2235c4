"""GLAD: every assessor has an ability, every document a difficulty (Whitehill et al. 2009; METHODS section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank._typing import Arrays
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.result import discrete_rows
from crowdrank.constraints import Constraints, Number
from crowdrank.engine.shards import Shard

if TYPE_CHECKING:
    import pandas as pd


class GLAD(Aggregator):
    """P(right) = sigma(ability * exp(beta)), wrong answers alike; ability and beta have normal priors of mean 1.

    The maximization climbs a quadratic bound of the logistic terms, in closed form for the abilities: no iteration
    lowers the posterior, and no step size is to be chosen. `difficulty` is exp(-beta): higher is harder.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log posterior per judgment changes by
            less than `tol`.
        ability_sd: the standard deviation of the abilities' prior; infinite for none.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> model = GLAD().fit(votes)
    >>> model.predict().to_dict(), model.consensus_.assessors["ability"].idxmin()
    ({'a': 1, 'b': 0}, 2)
    """

    assessor_arrays: ClassVar[tuple[str, ...]] = ("ability",)
    carries: ClassVar[tuple[str, ...]] = ("beta",)
    _parameter_constraints: ClassVar[Constraints] = {"ability_sd": [Number(0, above=True, finite=False)]}

    def __init__(
        self,
        n_iter: int = 200,
        tol: float = 1e-5,
        *,
        ability_sd: float = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.ability_sd = ability_sd
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _start(self, shard: Shard) -> Arrays:
        """Nothing is known."""
        return {}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Posteriors of the grades, betas one step up, and the bound's terms per assessor."""
        ability = np.ones(shard.n_assessors) if theta is None else theta["ability"]
        linear, quadratic = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        before, posterior = self._betas(shard, local, theta), np.empty((shard.n_items, shard.n_grades))
        beta = np.empty(shard.n_items)
        log_posterior = expect_abilities(
            shard.offsets,
            shard.assessor,
            shard.grade,
            shard.gold,
            ability,
            before,
            beta,
            posterior,
            linear,
            quadratic,
        )
        statistics = {"linear": linear, "quadratic": quadratic, "log_posterior": np.array([log_posterior])}
        return {"beta": beta}, statistics

    @staticmethod
    def _betas(shard: Shard, local: Arrays, theta: Arrays | None) -> NDArray[np.float64]:
        """Before the first pass items are as easy as the prior says, or as known assessors make them."""
        if "beta" in local:
            return local["beta"]
        beta = np.ones(shard.n_items)
        if theta is not None:
            posterior = np.empty((shard.n_items, shard.n_grades))
            settle_items(shard.offsets, shard.assessor, shard.grade, shard.gold, theta["ability"], beta, posterior)
        return beta

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """The top of the bound: a ridge towards 1."""
        pull = self.ability_sd**-2
        return {"ability": (statistics["linear"] + pull) / (statistics["quadratic"] + pull)}

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The log likelihood and the log priors (but for constants), per judgment."""
        log_prior = -0.5 * float((((theta["ability"] - 1.0) / self.ability_sd) ** 2).sum())
        return (float(statistics["log_posterior"][0]) + log_prior) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """The expected grade, and how hard the item is."""
        beta, posterior = np.empty(shard.n_items), np.empty((shard.n_items, shard.n_grades))
        settle_items(shard.offsets, shard.assessor, shard.grade, shard.gold, theta["ability"], beta, posterior)
        return {**discrete_rows(posterior, shard.values, self.interval), "difficulty": np.exp(-beta)}

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The ability: 0 guesses, below 0 answers in reverse."""
        return {"ability": theta["ability"]}

    @property
    def alphas_(self) -> pd.Series[Any]:
        """The abilities, by crowd-kit's name."""
        return self._assessor_series("ability", "alpha")

    @property
    def betas_(self) -> pd.Series[Any]:
        """The logarithms of the documents' easiness, by crowd-kit's name."""
        difficulty = self.consensus_.document_table["difficulty"].to_numpy()
        betas = self.predict().astype(float)
        betas[:] = -np.log(difficulty)
        return betas.rename("beta")

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[np.float64]:
        """The prior's mean."""
        return np.ones(len(scale_of))


@njit(cache=True, nogil=True)
def logistic_weight(x: float, q: float) -> float:
    """The curvature of Jaakkola and Jordan's bound of log sigma at x, tanh(x / 2) / (2 x); q = exp(-|x|)."""
    size = abs(x)
    return 0.25 - size * size / 48.0 if size < 1e-3 else (1.0 - q) / (1.0 + q) / (2.0 * size)


@njit(cache=True, nogil=True)
def believe(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: int,
    ability: NDArray[np.float64],
    beta: float,
    belief: NDArray[np.float64],
) -> float:
    """GLAD's posterior of one item's true grade, and its log likelihood.

    A judgment multiplies the odds of its own grade by (G - 1) exp(ability exp(beta)): the sums need no exponential per
    judgment, and the likelihood of the rest, 1 / (1 + exp(x)), is gathered as a product.
    """
    # belief (n_grades,) is written
    n_grades = len(belief)
    ease, log_others = np.exp(beta), np.log(n_grades - 1.0)
    belief[:] = -np.log(n_grades)
    total_log, pending = 0.0, 1.0
    for j in range(start, stop):
        x = ability[assessor[j]] * ease
        belief[grade[j]] += x + log_others
        total_log -= max(x, 0.0) + log_others
        pending *= 1.0 + np.exp(-abs(x))
        if pending > 1e200:
            total_log -= np.log(pending)
            pending = 1.0
    total_log -= np.log(pending)
    if gold >= 0:
        total_log += belief[gold]
        belief[:] = 0.0
        belief[gold] = 1.0
        return float(total_log)
    highest, norm = belief.max(), 0.0
    for c in range(n_grades):
        belief[c] = np.exp(belief[c] - highest)
        norm += belief[c]
    for c in range(n_grades):
        belief[c] /= norm
    return float(total_log + highest + np.log(norm))


@njit(cache=True, nogil=True)
def ease_item(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: float,
    belief: NDArray[np.float64],
) -> float:
    """A better beta (log of the item's easiness) for fixed abilities and belief.

    Climbs Jaakkola and Jordan's quadratic bound of the logistic terms, linear * t - quadratic * t**2 / 2 in t =
    exp(beta), plus the normal prior of mean 1 and variance 1: never a step down.
    """
    linear, quadratic = 0.0, 0.0
    ease = np.exp(beta)
    for j in range(start, stop):
        a = ability[assessor[j]]
        x = a * ease
        linear += (belief[grade[j]] - 0.5) * a
        quadratic += logistic_weight(x, np.exp(-abs(x))) * a * a
    best = linear * ease - 0.5 * quadratic * ease * ease - 0.5 * (beta - 1.0) ** 2
    at = beta
    for _ in range(8):
        t = np.exp(at)
        slope = linear * t - quadratic * t * t - (at - 1.0)
        curvature = max(2.0 * quadratic * t * t - linear * t + 1.0, 1.0)
        step = min(max(slope / curvature, -1.0), 1.0)
        at += step
        if abs(step) < 1e-9:
            break
    t = np.exp(at)
    # Near the top differences of heights are rounding, and tell nothing of the place.
    best -= 1e-12 * max(1.0, abs(best))
    return at if linear * t - 0.5 * quadratic * t * t - 0.5 * (at - 1.0) ** 2 >= best else beta


@njit(cache=True, nogil=True)
def expect_abilities(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: NDArray[np.float64],
    new_beta: NDArray[np.float64],
    posterior: NDArray[np.float64],
    linear: NDArray[np.float64],
    quadratic: NDArray[np.float64],
) -> float:
    """One pass of GLAD: posteriors, better betas, and the bound's terms per assessor; returns the log posterior."""
    # ability, linear, quadratic (n_assessors,); beta, new_beta (n_items,); posterior (n_items, n_grades)
    total_log = 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        belief = posterior[item]
        total_log += believe(start, stop, assessor, grade, gold[item], ability, beta[item], belief)
        total_log -= 0.5 * (beta[item] - 1.0) ** 2
        new_beta[item] = ease_item(start, stop, assessor, grade, ability, beta[item], belief)
        ease = np.exp(new_beta[item])
        for j in range(start, stop):
            a = assessor[j]
            x = ability[a] * ease
            linear[a] += (belief[grade[j]] - 0.5) * ease
            quadratic[a] += logistic_weight(x, np.exp(-abs(x))) * ease * ease
    return total_log


@njit(cache=True, nogil=True)
def settle_items(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: NDArray[np.float64],
    posterior: NDArray[np.float64],
) -> None:
    """Each item's posterior and beta at rest, for fixed abilities, from the prior's mean: what GLAD reports."""
    # beta (n_items,) and posterior (n_items, n_grades) are written
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        at = 1.0
        for _ in range(500):
            believe(start, stop, assessor, grade, gold[item], ability, at, posterior[item])
            before, at = at, ease_item(start, stop, assessor, grade, ability, at, posterior[item])
            if abs(at - before) < 1e-10:
                break
        believe(start, stop, assessor, grade, gold[item], ability, at, posterior[item])
        beta[item] = at
