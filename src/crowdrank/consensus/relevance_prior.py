"""Prior of relevance on a line, given predictions from features.

The prediction g of a document, with mean 0 and variance 1 over the labeled documents, sets its prior:

    r ~ N(rho g, 1 - rho^2)

Over all documents relevance keeps mean 0 and variance 1. The model learns rho together with its other parameters by
maximum likelihood of the labels (empirical Bayes): rho is 0 for useless features, and the prior is then the one without
features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdrank._typing import Arrays, Booleans, Floats
from crowdrank.engine.base import Passes
from crowdrank.engine.shards import ItemScores, Shard

MIN_LABELS = 1.5
"""Documents with labels of a larger total weight inform the prior."""
INITIAL_WEIGHT = 0.5
MAX_WEIGHT = 0.99
"""Initial and maximum correlation of relevance and prediction."""


def log_node_priors(shard: Shard, weight: float, shares: Floats, nodes: Floats) -> Floats:
    """Return the log prior of each item on the states, (n_items, n_states).

    Args:
        shard: the shard, with the `score` of each item.
        weight: correlation rho of relevance and score.
        shares: prior of the states without features, (n_states,): nodes by difficulty, and perhaps 'cannot be judged'.
        nodes: (n_nodes,).

    """
    assert shard.score is not None
    mean, variance = prior_moments(shard.score, weight)
    density = -0.5 * (nodes - mean[:, None]) ** 2 / variance[:, None]
    density -= np.log(np.exp(density).sum(axis=1, keepdims=True))
    plain = -0.5 * nodes**2
    change = density - (plain - np.log(np.exp(plain).sum()))
    n_difficulties = len(shares) // len(nodes)
    logs = np.tile(np.log(np.maximum(shares, 1e-300)), (len(mean), 1))
    logs[:, : n_difficulties * len(nodes)] += np.tile(change, n_difficulties)
    return logs


def prior_moments(score: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return mean and variance of the prior of each item; those without a score have 0 and 1."""
    known = ~np.isnan(score)
    return np.where(known, weight * np.nan_to_num(score), 0.0), np.where(known, 1 - weight**2, 1.0)


def informs_prior(shard: Shard, weight: Floats | None) -> Booleans:
    """Return which items have a score and labels that count as at least two independent ones, (n_items,).

    Single labels determine only the product of an assessor's slope and rho: the likelihood of a crowd without overlap
    would rise until the prior explains everything.

    Args:
        shard: the shard, with scores.
        weight: weight of each judgment, (n,); None: all are 1.

    """
    assert shard.score is not None
    item = np.repeat(np.arange(shard.n_items), np.diff(shard.offsets))
    labels = np.bincount(item, weight, minlength=shard.n_items)
    informs: Booleans = ~np.isnan(shard.score) & (labels > MIN_LABELS)
    return informs


def score_statistics(shard: Shard, relevance: Floats, weight: Floats | None) -> Arrays:
    """Return sums over the items that inform the prior: relevance times score, and score squared, (2,)."""
    assert shard.score is not None
    used = informs_prior(shard, weight)
    score = shard.score[used]
    return {"score_products": np.array([relevance[used] @ score, score @ score])}


def learn_weight(before: Floats, products: Floats, scale: float, pseudo_documents: float) -> Floats:
    """Return rho, (1,): the regression coefficient of relevance, in units of `scale`, on the score.

    Without documents that inform the prior it is the previous one, from estimates without features.
    """
    if products[1] == 0:
        return before
    weight = products[0] / (products[1] + pseudo_documents) / scale
    return np.array([np.clip(weight, 0.0, MAX_WEIGHT)])


@dataclass(frozen=True, eq=False)
class LabelEstimates:
    """Relevance and its sd of each item that the labels alone imply, and the prediction from features."""

    relevance: Floats
    sd: Floats
    score: Floats

    def with_scores(self, scores: ItemScores) -> LabelEstimates:
        """Return the estimates with predictions from features."""
        return replace(self, score=np.concatenate(scores))

    def initial_weight(self) -> float:
        """Return an estimate of rho: the covariance of relevance and score, divided by the reliability of relevance."""
        known = ~np.isnan(self.score)
        reliability = max(1 - float(np.mean(self.sd[known] ** 2)), 0.05)
        product = float(np.mean(self.relevance[known] * self.score[known]))
        return float(np.clip(product / reliability, 0.05, 0.95))


def label_estimates(passes: Passes, theta: Arrays) -> LabelEstimates:
    """Return the estimates of passes without scores."""
    parts = list(passes.finish_into(theta, _relevance_rows))
    relevance, sd = (np.concatenate([part[name] for part in parts]) for name in ("relevance", "sd"))
    return LabelEstimates(relevance, sd, np.full(len(relevance), np.nan))


def _relevance_rows(place: int, rows: Arrays) -> Arrays:
    return {name: rows[name] for name in ("relevance", "sd")}
