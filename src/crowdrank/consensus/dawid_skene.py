"""Dawid and Skene's model: every assessor has a confusion matrix, every document a true grade (METHODS section 2)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus import kernels
from crowdrank.consensus.base import Aggregator
from crowdrank.engine.base import Arrays
from crowdrank.engine.shards import Shard
from crowdrank.errors import UsageError

FLOOR = 1e-10
"""No count is smaller: without a prior, what was never seen must not become impossible (crowd-kit's floor too)."""


class DawidSkene(Aggregator):
    """Expectation-maximisation over true grades and the assessors' confusion matrices.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log posterior per judgment changes by
            less than `tol`.
        prior: pseudo-counts of the confusion matrices: (on the diagonal, off it), or one number for both.
            0 is plain maximum likelihood, with a floor of 1e-10 and each assessor's rows normalised over the grades
            that assessor used, as in crowd-kit.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> DawidSkene().fit_predict(votes).to_dict()
    {'a': 1, 'b': 0}

    """

    assessor_arrays: ClassVar[tuple[str, ...]] = ("likelihood",)

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-6,
        *,
        prior: float | tuple[float, float] = (1.0, 0.1),
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.prior = prior
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def start(self, shard: Shard) -> Arrays:
        """The shares of the votes; an expert grade is certain."""
        votes = kernels.count_votes(shard.offsets, shard.grade, shard.n_grades)
        posterior = votes / votes.sum(axis=1, keepdims=True)
        known = shard.gold >= 0
        posterior[known] = np.eye(shard.n_grades)[shard.gold[known]]
        return {"posterior": posterior}

    def accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """The E-step, and the counts for the M-step."""
        posterior = local["posterior"]
        counts = np.zeros((shard.n_assessors, shard.n_grades, shard.n_grades))
        if theta is None:
            kernels.count_confusions(shard.offsets, shard.assessor, shard.grade, posterior, counts)
            return local, {"counts": counts, "classes": posterior.sum(axis=0), "log_likelihood": np.zeros(1)}
        classes = np.zeros(shard.n_grades)
        # The old posterior is not read: it is written over.
        log_likelihood = kernels.expect_grades(shard.n_grades)(
            shard.offsets,
            shard.assessor,
            shard.grade,
            shard.gold,
            theta["shares"],
            theta["likelihood"].ravel(),
            posterior.ravel(),
            counts.ravel(),
            classes,
        )
        return local, {"counts": counts, "classes": classes, "log_likelihood": np.array([log_likelihood])}

    def maximise(self, theta: Arrays | None, statistics: Arrays) -> Arrays:
        """Shares of the true grades, and each assessor's confusions."""
        classes = statistics["classes"]
        shares = np.maximum(classes / classes.sum(), FLOOR)
        return {"shares": shares, "likelihood": self._likelihood(statistics["counts"])}

    def _likelihood(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(assessor says g | true grade c) as [assessor, g, c]; every column over g sums to 1."""
        diagonal, off = self._pseudo_counts()
        if diagonal == off == 0.0:
            used = counts.sum(axis=2, keepdims=True) > 0
            counts = np.where(used, np.maximum(counts, FLOOR), 0.0)
        else:
            n_grades = counts.shape[1]
            counts = counts + off + (diagonal - off) * np.eye(n_grades)
        likelihood: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
        return likelihood

    def _pseudo_counts(self) -> tuple[float, float]:
        pair = self.prior if isinstance(self.prior, tuple) else (self.prior, self.prior)
        return float(pair[0]), float(pair[1])

    def _check(self) -> None:
        super()._check()
        diagonal, off = self._pseudo_counts()
        if min(diagonal, off) < 0 or (diagonal == 0) != (off == 0):
            raise UsageError(f"prior is 0, a positive number, or two positive numbers, not {self.prior!r}.")
        if self.unjudgeable_as == "model":
            raise UsageError(f"{type(self).__name__} takes --unjudgeable-as lowest or drop; it has no model of them.")

    def objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The log likelihood and the log prior of the confusions, per judgment."""
        return float(statistics["log_likelihood"][0] + self._log_prior(theta)) / n

    def _log_prior(self, theta: Arrays) -> float:
        diagonal, off = self._pseudo_counts()
        if diagonal == off == 0.0:
            return 0.0
        log = np.log(theta["likelihood"])
        own = np.trace(log, axis1=1, axis2=2).sum()
        return float(off * log.sum() + (diagonal - off) * own)

    def finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """The expected grade and its spread under the posterior."""
        return self.discrete_rows(local["posterior"], shard.values)

    def assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The chance of being right, and the confusion matrix: `says_2_if_1` = P(says grade 2 | true grade 1)."""
        likelihood = theta["likelihood"]
        grades = range(likelihood.shape[1])
        right = np.einsum("acc,c->a", likelihood, theta["shares"] / theta["shares"].sum())
        return {
            "accuracy": right,
            **{f"says_{g}_if_{c}": likelihood[:, g, c] for c in grades for g in grades},
        }


class OneCoinDawidSkene(DawidSkene):
    """Dawid-Skene with one number per assessor: the chance of being right; wrong answers are alike.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> model = OneCoinDawidSkene().fit(votes)
    >>> model.consensus_.assessors["accuracy"].idxmin()
    2
    """

    def _likelihood(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        n_grades = counts.shape[1]
        diagonal, off = self._pseudo_counts()
        right = np.trace(counts, axis1=1, axis2=2) + diagonal
        skill = right / (counts.sum(axis=(1, 2)) + diagonal + (n_grades - 1) * off)
        skill = skill[:, None, None]
        likelihood: NDArray[np.float64] = np.where(
            np.eye(n_grades, dtype=bool), skill, (1 - skill) / (n_grades - 1)
        ).clip(FLOOR, 1 - FLOOR)
        return likelihood

    def _log_prior(self, theta: Arrays) -> float:
        diagonal, off = self._pseudo_counts()
        skill = theta["likelihood"][:, 0, 0]
        n_grades = theta["likelihood"].shape[1]
        return float((diagonal * np.log(skill) + (n_grades - 1) * off * np.log1p(-skill)).sum())

    def assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The chance of being right."""
        return {"accuracy": theta["likelihood"][:, 0, 0]}
