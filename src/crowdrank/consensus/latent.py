"""Relevance as a latent trait: a point on a line, integrated on nodes; every answer has a curve over it.

What these models share: the nodes, the pass over the judgments (the same kernel as Dawid-Skene's, with nodes in the
place of true grades), and what a posterior on nodes says of a document.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Arrays
from crowdrank.consensus import kernels
from crowdrank.consensus.result import modal_grades
from crowdrank.engine.shards import Shard

N_NODES = 21
REACH = 3.2
"""Nodes reach this many standard deviations of relevance to both sides; beyond lies a thousandth of it."""

NODES: NDArray[np.float64] = np.linspace(-REACH, REACH, N_NODES)
PRIOR: NDArray[np.float64] = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
"""Relevance is standard normal within a query."""
DIFFICULTIES: NDArray[np.float64] = np.exp(0.5 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
"""The grid of document difficulties; their logarithms are normal of mean 0 and standard deviation 0.5."""


def states_prior(difficulties: NDArray[np.float64]) -> NDArray[np.float64]:
    """The prior of the states: nodes, for each difficulty in turn.

    >>> states_prior(np.ones(1)).shape, states_prior(DIFFICULTIES).shape
    ((21,), (105,))
    """
    shares = np.exp(-0.5 * (np.log(difficulties) / 0.5) ** 2)
    return np.outer(shares / shares.sum(), PRIOR).ravel()


def softmax(scores: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Probabilities from scores along an axis."""
    raised = np.exp(scores - scores.max(axis=axis, keepdims=True))
    shares: NDArray[np.float64] = raised / raised.sum(axis=axis, keepdims=True)
    return shares


def use_of_answers(shard: Shard, more: int = 0) -> Arrays:
    """How often each answer of each scale was given, NaN where a scale has no such answer; and each assessor's scale.

    `more` answers come after the grades of all scales.
    """
    n_grades, n_scales = max(shard.scale_sizes), len(shard.scale_sizes)
    used, given = np.zeros((n_scales, n_grades + more)), np.zeros((shard.n_assessors, n_scales))
    scale = shard.scale_of[shard.assessor]
    np.add.at(used, (scale, shard.grade), 1.0)
    np.add.at(given, (shard.assessor, scale), 1.0)
    for number, size in enumerate(shard.scale_sizes):
        used[number, size:n_grades] = np.nan
    return {"used": used, "given": given}


def expect_nodes(
    shard: Shard, likelihood: NDArray[np.float64], gold: NDArray[np.float64], prior: NDArray[np.float64] = PRIOR
) -> tuple[Arrays, Arrays]:
    """Each item's posterior on the nodes, and how often each assessor gave each answer at each node."""
    # likelihood (n_assessors, n_answers, n_nodes); gold (n_answers, n_nodes); prior (n_nodes,)
    n_answers, n_nodes = likelihood.shape[1:]
    posterior, counts = np.empty((shard.n_items, n_nodes)), np.zeros(likelihood.shape)
    nodes = np.zeros(n_nodes)
    log_likelihood = kernels.expect_states(n_nodes)(
        shard.offsets,
        shard.assessor,
        shard.grade,
        shard.gold,
        n_answers,
        prior,
        likelihood.ravel(),
        gold.ravel(),
        posterior.ravel(),
        counts.ravel(),
        nodes,
    )
    return {"posterior": posterior}, {"counts": counts, "nodes": nodes, "log_likelihood": np.array([log_likelihood])}


def expect_voices(
    shard: Shard,
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
    gold: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> tuple[Arrays, Arrays]:
    """As expect_nodes, where each judgment has a weight (n,)."""
    posterior, counts = np.empty((shard.n_items, len(prior))), np.zeros(likelihood.shape)
    nodes, logs = np.zeros(len(prior)), np.log(np.maximum(likelihood, 1e-300))
    log_likelihood = kernels.expect_weighted(
        shard.offsets, shard.assessor, shard.grade, shard.gold, weight, prior, logs, gold, posterior, counts, nodes
    )
    return {"posterior": posterior}, {"counts": counts, "nodes": nodes, "log_likelihood": np.array([log_likelihood])}


def points(posterior: NDArray[np.float64], n_difficulties: int) -> NDArray[np.float64]:
    """Each posterior drawn together at its highest point, shared between the two nodes that it lies between.

    A parabola through the highest node and its neighbors, in logarithms, tells where between the nodes it is.

    >>> at = points(PRIOR[None], 1)
    >>> float(at.max()), int(at.argmax())
    (1.0, 10)
    """
    # (n_items, n_states), of which nodes for each difficulty come first -> the same
    row, best = np.arange(len(posterior)), posterior.argmax(axis=1)
    node, on_line = best % N_NODES, best < n_difficulties * N_NODES
    inner = on_line & (node > 0) & (node < N_NODES - 1)
    logs = [np.log(np.maximum(posterior[row, best + side * inner], 1e-300)) for side in (-1, 0, 1)]
    bend = 2 * logs[1] - logs[0] - logs[2]
    offset = np.where(inner & (bend > 0), 0.5 * (logs[2] - logs[0]) / np.where(bend > 0, bend, 1.0), 0.0)
    offset = np.clip(offset, -0.5, 0.5)
    at = np.zeros_like(posterior)
    at[row, best] = 1 - np.abs(offset)
    at[row, best + np.sign(offset).astype(np.int64) * inner] += np.abs(offset)
    return at


def rows_on_nodes(posterior: NDArray[np.float64], typical: NDArray[np.float64], interval: float) -> Arrays:
    """What a posterior on the nodes says: relevance and its spread, and the grades a typical assessor would give."""
    # posterior (n_items, n_nodes), typical (n_grades, n_nodes) = P(grade | node)
    relevance = posterior @ NODES
    spread = np.maximum(posterior @ NODES**2 - relevance**2, 0.0)
    lower, upper = (node_quantiles(posterior, tail) for tail in ((1 - interval) / 2, (1 + interval) / 2))
    shares = posterior @ typical.T
    return {
        "relevance": relevance,
        "sd": np.sqrt(spread),
        "lower": np.minimum(lower, relevance),
        "upper": np.maximum(upper, relevance),
        "grade": modal_grades(shares),
        "p": shares,
    }


def node_quantiles(posterior: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """The point below which a share of each posterior lies; a node's share is spread evenly over its cell.

    >>> float(node_quantiles(np.eye(N_NODES)[[10]], 0.5)[0])
    0.0
    """
    step = NODES[1] - NODES[0]
    below = np.cumsum(posterior, axis=1)
    node = np.minimum((below < level).sum(axis=1), posterior.shape[1] - 1)
    row = np.arange(len(posterior))
    inside = (level - (below[row, node] - posterior[row, node])) / np.maximum(posterior[row, node], 1e-300)
    quantiles: NDArray[np.float64] = NODES[node] + step * (np.clip(inside, 0.0, 1.0) - 0.5)
    return quantiles
