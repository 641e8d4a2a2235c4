"""Prior of true grades, given predictions from features: an ordinal regression that is learned from the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.consensus.feature_scores import MAX_SCORE
from crowdrank.consensus.latent import softmax
from crowdrank.consensus.relevance_prior import INITIAL_WEIGHT, informs_prior
from crowdrank.engine.shards import Shard

SCORE_BINS: Floats = np.linspace(-MAX_SCORE, MAX_SCORE, 25)
"""Centers of the bins of scores from which models of true grades learn their prior."""
NEWTON_STEPS = 5
"""Number of Newton steps of the regression after each pass."""
SMALLEST = 1e-300
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True, eq=False)
class GradePrior:
    """Ordinal regression of the true grade on the score: P(c | g) = softmax_c(intercept_c + slope level_c g).

    Attributes:
        intercept: (n_states,).
        slope: slope of the log odds of a grade to the next lower one.
        shares: shares of the states over all documents, (n_states,).

    """

    intercept: Floats
    slope: float
    shares: Floats

    @classmethod
    def of(cls, theta: Arrays) -> GradePrior:
        """Return the regression that is stored in theta, or an initial one."""
        if "feature_slope" not in theta:
            shares = theta["shares"] / theta["shares"].sum()
            return cls(np.log(shares), INITIAL_WEIGHT, shares)
        return cls(theta["feature_intercept"], float(theta["feature_slope"][0]), theta["feature_shares"])

    def to_arrays(self) -> Arrays:
        """Return the regression as parameters of a model."""
        return {
            "feature_intercept": self.intercept,
            "feature_slope": np.array([self.slope]),
            "feature_shares": self.shares,
        }

    def probabilities(self, score: Floats, levels: Integers) -> Floats:
        """Return P(state | score) of each document, (n, n_states); without a score, the shares of all documents."""
        logits = self.intercept + self.slope * np.nan_to_num(score)[:, None] * levels
        return np.where(np.isnan(score)[:, None], self.shares, softmax(logits, axis=1))

    def log_priors(self, score: Floats, levels: Integers, shares: Floats) -> Floats:
        """Return the log prior of each document for a model whose prior is `shares`, (n, n_states).

        It is proportional to `shares` times P(state | score) / P(state). Without information in the score it is
        `shares`, also if these are fixed (such as uniform ones) and differ from the estimated P(state).
        """
        ratio = self.probabilities(score, levels) / np.maximum(self.shares, SMALLEST)
        prior = shares * ratio
        logs: Floats = np.log(np.maximum(prior / prior.sum(axis=1, keepdims=True), SMALLEST))
        return logs

    def updated(self, counts: Floats, levels: Integers) -> GradePrior:
        """Return the regression after Newton steps on expected counts of states by bin of the score.

        Args:
            counts: (n_bins, n_states).
            levels: position of each state on the scale, (n_states,).

        """
        n_states = len(levels)
        if not counts.any():  # no document has two labels
            return replace(self, slope=0.0)
        design = np.zeros((len(SCORE_BINS), n_states, n_states + 1))
        design[:, np.arange(n_states), np.arange(n_states)] = 1.0
        design[:, :, -1] = SCORE_BINS[:, None] * levels
        params, penalty = np.append(self.intercept - self.intercept.mean(), self.slope), np.full(n_states + 1, 1e-2)
        penalty[-1] = 1.0
        totals = counts.sum(axis=1)
        for _ in range(NEWTON_STEPS):
            p = softmax(design @ params, axis=1)
            gradient = np.einsum("bs,bsk->k", counts - totals[:, None] * p, design) - penalty * params
            mean = np.einsum("bs,bsk->bk", p, design)
            hessian = np.einsum("b,bs,bsk,bsl->kl", totals, p, design, design) - (mean.T * totals) @ mean
            params = params + np.clip(np.linalg.solve(hessian + np.diag(penalty), gradient), -1.0, 1.0)
        shares = counts.sum(axis=0) + 1e-3
        return GradePrior(params[:-1], max(float(params[-1]), 0.0), shares / shares.sum())


def count_by_score(shard: Shard, posterior: Floats, weight: Floats | None) -> Floats:
    """Return the expected number of items in each state by bin of the score, (n_bins, n_states)."""
    assert shard.score is not None
    used = informs_prior(shard, weight)
    n_bins = len(SCORE_BINS)
    nearest = np.rint((shard.score[used] + MAX_SCORE) * (n_bins - 1) / (2 * MAX_SCORE)).astype(np.int64)
    return np.stack([np.bincount(nearest, of_state, n_bins) for of_state in posterior[used].T], axis=1)
