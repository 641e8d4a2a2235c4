"""GLAD: every assessor has an ability, every document a difficulty (Whitehill et al. 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from crowdrank._folders import PROBABILITY_RANGE
from crowdrank._numba import njit
from crowdrank._typing import Arrays
from crowdrank.consensus.careful_assessor import careful_weights
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.model import EMAggregator, ThetaArray
from crowdrank.consensus.result import discrete_rows
from crowdrank.constraints import Constraints, Number
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import Shard

if TYPE_CHECKING:
    import pandas as pd

MEAN_BETA = 1.0
"""Prior mean of the betas (log easiness)."""
BETAS = np.linspace(-4.0, 6.0, 41)
"""Betas at which P(right answer) of a typical careful assessor is computed; it is interpolated between them."""
MAX_STEPS, SHORT_STEP = 500, 1e-10
"""Maximum number of updates of a document for fixed abilities, and the change of beta that ends them."""


class GLAD(EMAggregator):
    """P(right answer) = sigma(ability * exp(beta)); all wrong answers are equally likely.

    Abilities and betas have normal priors with mean 1. The M-step maximizes a quadratic lower bound of the logistic
    terms, in closed form for abilities, so no iteration lowers the posterior and there is no step size. `difficulty`
    is exp(-beta): higher is harder.

    Args:
        n_iter: maximum number of iterations.
        tol: smallest change of the mean log posterior per judgment; iterations end below it.
        ability_sd: prior standard deviation of abilities; infinite for no prior.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: level of the interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(true grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> model = GLAD().fit(votes)
    >>> model.predict().to_dict(), model.consensus_.assessors["ability"].idxmin()
    ({'a': 1, 'b': 0}, 2)
    """

    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "ability": ThetaArray(by_assessor=True),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
    }
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
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.ability_sd = ability_sd
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _start(self, shard: Shard) -> Arrays:
        return {}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Run the E-step and update beta (log easiness) of each item; return the statistics for the M-step."""
        ability = np.ones(shard.n_assessors) if theta is None else theta["ability"]
        beta, _, linear, quadratic, log_posterior = self._update(shard, ability, 1, self._betas(shard, local, theta))
        statistics = {
            "linear": linear,
            "quadratic": quadratic,
            "log_posterior": np.array([log_posterior]),
            "n_judgments": np.bincount(shard.assessor, minlength=shard.n_assessors).astype(np.float64),
            "items": np.array([shard.n_items, shard.n_items * shard.n_grades], np.float64),
        }
        return {"beta": beta}, statistics

    def _betas(self, shard: Shard, local: Arrays, theta: Arrays | None) -> NDArray[np.float64]:
        """Return beta (log easiness) of each item: of the last pass, fitted to known abilities, or the prior mean."""
        if "beta" in local:
            return local["beta"]
        return np.ones(shard.n_items) if theta is None else self._update(shard, theta["ability"], MAX_STEPS)[0]

    @staticmethod
    def _update(
        shard: Shard, ability: NDArray[np.float64], n_steps: int, beta: NDArray[np.float64] | None = None
    ) -> tuple[Any, ...]:
        """Run the E-step, with betas that start from `beta` or the prior mean.

        Returns:
            Betas, posteriors, linear and quadratic coefficients of the bound for each assessor, and the log posterior.

        """
        beta = np.ones(shard.n_items) if beta is None else beta.copy()
        posterior = np.empty((shard.n_items, shard.n_grades))
        linear, quadratic = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        judgments = shard.offsets, shard.assessor, shard.grade, shard.gold, shard.gold_sets
        log_posterior = expect_abilities(*judgments, ability, n_steps, beta, posterior, linear, quadratic)
        return beta, posterior, linear, quadratic, log_posterior

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return the maximum of the quadratic bound plus the log prior."""
        precision = self.ability_sd**-2
        return {"ability": (statistics["linear"] + precision) / (statistics["quadratic"] + precision)}

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Return the log posterior per judgment, up to a constant."""
        log_prior = -0.5 * float((((theta["ability"] - 1.0) / self.ability_sd) ** 2).sum())
        return (float(statistics["log_posterior"][0]) + log_prior) / n

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with P(right answer) of a typical careful assessor at `BETAS`, and the statistics."""
        n_items, total = statistics["items"]
        n_grades = int(total) // int(n_items)
        right = expit(theta["ability"] * np.exp(MEAN_BETA))[:, None, None]
        likelihood = np.where(np.eye(n_grades, dtype=bool), right, (1 - right) / (n_grades - 1))
        weights = careful_weights(statistics["n_judgments"], likelihood, np.full(n_grades, 1 / n_grades))
        return {
            **theta,
            "typical": np.array([weights @ expit(theta["ability"] * ease) for ease in np.exp(BETAS)]),
        }, statistics

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of items; P(grade) is for an answer to a document of the same difficulty."""
        beta, posterior, *_ = self._update(shard, theta["ability"], MAX_STEPS)
        right = np.interp(beta, BETAS, theta["typical"])[:, None]
        answers = posterior * right + (1 - posterior) * (1 - right) / (shard.n_grades - 1)
        return {**discrete_rows(posterior, answers, shard, self.interval), "difficulty": np.exp(-beta)}

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return the ability: 0 is random, below 0 is worse than random."""
        return {"ability": theta["ability"]}

    @property
    def alphas_(self) -> pd.Series[Any]:
        """Abilities; crowd-kit's name."""
        return self._assessor_series("ability", "alpha")

    @property
    def betas_(self) -> pd.Series[Any]:
        """Betas of the documents (log easiness); crowd-kit's name."""
        difficulty = self.consensus_.document_table["difficulty"].to_numpy()
        betas = self.predict().astype(float)
        betas[:] = -np.log(difficulty)
        return betas.rename("beta")

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the prior mean of the ability for assessors without judgments."""
        return np.ones(len(scale_of))


@njit(cache=True, nogil=True)
def logistic_weight(x: float) -> float:
    """Return the curvature tanh(x / 2) / (2 x) of Jaakkola and Jordan's bound of log sigma at x."""
    size = abs(x)
    if size < 1e-3:
        return 0.25 - size * size / 48.0
    q = np.exp(-size)
    return float((1.0 - q) / (1.0 + q) / (2.0 * size))


@njit(cache=True, nogil=True)
def update_posterior(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    allowed: NDArray[np.bool_],
    ability: NDArray[np.float64],
    beta: float,
    posterior: NDArray[np.float64],
) -> float:
    """Write the posterior of the true grade of one item; return the log likelihood of its judgments.

    A judgment multiplies the odds of its grade by (G - 1) exp(x), x = ability * exp(beta), so log odds are summed
    without exponentials. The common factors 1 / (1 + exp(x)) are multiplied, with a logarithm only now and then.
    """
    # allowed (n_grades,): grades that an expert grade does not exclude; posterior (n_grades,) is written
    n_grades = len(posterior)
    ease, log_others = np.exp(beta), np.log(n_grades - 1.0)
    posterior[:] = -np.log(n_grades)
    total_log, pending = 0.0, 1.0
    for j in range(start, stop):
        x = ability[assessor[j]] * ease
        posterior[grade[j]] += x + log_others
        total_log -= max(x, 0.0) + log_others
        pending *= 1.0 + np.exp(-abs(x))
        if pending > 1e200:
            total_log -= np.log(pending)
            pending = 1.0
    total_log -= np.log(pending)
    for c in range(n_grades):
        if not allowed[c]:
            posterior[c] = -np.inf
    highest, norm = posterior.max(), 0.0
    for c in range(n_grades):
        posterior[c] = np.exp(posterior[c] - highest)
        norm += posterior[c]
    for c in range(n_grades):
        posterior[c] /= norm
    return float(total_log + highest + np.log(norm))


@njit(cache=True, nogil=True)
def improve_beta(
    start: int,
    stop: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    ability: NDArray[np.float64],
    beta: float,
    posterior: NDArray[np.float64],
) -> float:
    """Return a beta (log easiness of the item) with a higher bound for fixed abilities and posterior.

    Maximizes Jaakkola and Jordan's quadratic bound of the logistic terms, linear * t - quadratic * t**2 / 2 in t =
    exp(beta), plus the log density of the normal prior with mean 1 and variance 1, by Newton steps.
    """
    linear, quadratic = 0.0, 0.0
    ease = np.exp(beta)
    for j in range(start, stop):
        a = ability[assessor[j]]
        x = a * ease
        linear += (posterior[grade[j]] - 0.5) * a
        quadratic += logistic_weight(x) * a * a
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
    # Near the maximum, differences of the bound are rounding errors.
    best -= 1e-12 * max(1.0, abs(best))
    return at if linear * t - 0.5 * quadratic * t * t - 0.5 * (at - 1.0) ** 2 >= best else beta


@njit(cache=True, nogil=True)
def expect_abilities(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    gold_sets: NDArray[np.bool_],
    ability: NDArray[np.float64],
    n_steps: int,
    beta: NDArray[np.float64],
    posterior: NDArray[np.float64],
    linear: NDArray[np.float64],
    quadratic: NDArray[np.float64],
) -> float:
    """Update posterior and beta of each item in turns, at most `n_steps` times; add the coefficients of the bound.

    Returns:
        The log posterior before the last update of the betas.

    """
    # ability, linear, quadratic (n_assessors,); beta (n_items,) is changed, posterior (n_items, n_grades) written
    total_log = 0.0
    for item in range(len(offsets) - 1):
        start, stop = offsets[item], offsets[item + 1]
        allowed, item_posterior, log_likelihood, before = gold_sets[gold[item]], posterior[item], 0.0, beta[item]
        for _ in range(n_steps):
            before = beta[item]
            log_likelihood = update_posterior(start, stop, assessor, grade, allowed, ability, before, item_posterior)
            beta[item] = improve_beta(start, stop, assessor, grade, ability, before, item_posterior)
            if abs(beta[item] - before) < SHORT_STEP:
                break
        total_log += log_likelihood - 0.5 * (before - 1.0) ** 2
        ease = np.exp(beta[item])
        for j in range(start, stop):
            a = assessor[j]
            linear[a] += (item_posterior[grade[j]] - 0.5) * ease
            quadratic[a] += logistic_weight(ability[a] * ease) * ease * ease
    return total_log
