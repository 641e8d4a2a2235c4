"""GLAD: every assessor has an ability, every document a difficulty (Whitehill et al. 2009; METHODS section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Arrays
from crowdrank.consensus import kernels
from crowdrank.consensus.base import Aggregator
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
        log_posterior = kernels.expect_abilities(
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
            kernels.settle_items(
                shard.offsets, shard.assessor, shard.grade, shard.gold, theta["ability"], beta, posterior
            )
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
        kernels.settle_items(shard.offsets, shard.assessor, shard.grade, shard.gold, theta["ability"], beta, posterior)
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
