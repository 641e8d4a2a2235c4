"""Relevance as a latent trait with a normal distribution, integrated over the nodes of a grid.

The posterior of a document is a probability per state: a node, or a pair of difficulty and node. The E-step is that of
`e_step.py`. The grid follows the data: it is refined until it resolves the
posteriors, which get narrower with the number of judgments per document.

P(expert grade g | relevance r) is proportional to exp(EXPERT_SLOPE * (g r - sum of the first g cut points)). At a cut
point two neighboring grades are equally probable. The cut points are estimated with the rest of the model.

In the order of the file: grid and prior, statistics of a pass and what is learned from them, rows of documents, expert
grades, information of answers, and the functions that all of these share.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import require
from crowdrank._typing import Arrays, Floats
from crowdrank.engine.shards import Shard

N_NODES = 21
"""Number of nodes of the initial grid."""
MAX_NODES = 641
"""Maximum number of nodes; the finest grid resolves posteriors of thousands of judgments per document."""
MAX_NODE = 3.2
"""Largest node, in standard deviations of relevance; about 0.1% of documents lie beyond."""
MAX_NODE_CONCENTRATION = 0.42
"""A posterior is too narrow for the grid above this sum of squared node probabilities.

For a normal posterior with standard deviation s and nodes at distance h the sum is h / (2 s sqrt(pi)), so h = 1.5 s.
"""
MAX_NARROW_SHARE = 0.01
"""Maximum share of documents with a posterior too narrow for the grid."""
PRIOR_DOCUMENTS = 5.0
"""Number of pseudo-documents with the initial distribution of relevance when that distribution is learned."""
EXPERT_SLOPE = 8.0
"""Slope over relevance of the log odds of neighboring expert grades."""
CUT_NEWTON_STEPS = 3
"""Number of Newton steps for the cut points in each iteration."""
MAX_CUT_STEP = 0.3
"""Maximum change of a cut point in one Newton step."""
MAX_WITHOUT_SCIPY = 1 << 16
"""Maximum number of quantiles that are computed one by one; importing scipy.special takes longer."""


def standard_nodes(n_nodes: int) -> Floats:
    """Return the nodes of a grid, in standard deviations of relevance.

    >>> standard_nodes(3).tolist()
    [-3.2, 0.0, 3.2]
    """
    return np.linspace(-MAX_NODE, MAX_NODE, n_nodes)


def node_prior(n_nodes: int) -> Floats:
    """Return the prior probability of each node: a standard normal distribution on the grid."""
    density = np.exp(-0.5 * standard_nodes(n_nodes) ** 2)
    return np.asarray(density / density.sum())


NODES, PRIOR = standard_nodes(N_NODES), node_prior(N_NODES)
DIFFICULTIES: Floats = np.exp(0.5 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
"""Grid of document difficulties; their prior is log-normal with median 1 and log standard deviation 0.5."""


def states_prior(difficulties: Floats, n_nodes: int = N_NODES) -> Floats:
    """Return the prior probability of each state: all nodes of the first difficulty, then of the next.

    >>> states_prior(np.ones(1)).shape, states_prior(DIFFICULTIES).shape
    ((21,), (105,))
    """
    density = np.exp(-0.5 * (np.log(difficulties) / 0.5) ** 2)
    return np.outer(density / density.sum(), node_prior(n_nodes)).ravel()


def count_answers(shard: Shard, n_other_answers: int = 0, weight: Floats | None = None) -> Arrays:
    """Count the answers by scale and by assessor, for the initial parameters.

    Args:
        shard: the judgments.
        n_other_answers: number of answers that are not grades; they follow the grades.
        weight: weight of each judgment in `used`, (n,); None: all are 1.

    Returns:
        `used`: number of judgments with each answer by scale, (n_scales, n_answers), NaN if a scale has no such grade;
        `given`: number of judgments of each assessor by scale, (n_assessors, n_scales).

    """
    n_grades, n_scales = max(shard.scale_sizes), len(shard.scale_sizes)
    used, given = np.zeros((n_scales, n_grades + n_other_answers)), np.zeros((shard.n_assessors, n_scales))
    answers, share = (shard, 1.0) if shard.soft is None else (shard.soft, shard.soft.share)
    used_share = share if weight is None else weight if shard.soft is None else shard.soft.weights(weight)
    scale = shard.scale_of[answers.assessor]
    np.add.at(used, (scale, answers.grade), used_share)
    np.add.at(given, (answers.assessor, scale), share)
    for number, size in enumerate(shard.scale_sizes):
        used[number, size:n_grades] = np.nan
    return {"used": used, "given": given}


def by_difficulty(posterior: Floats, n_nodes: int) -> Floats:
    """Return posteriors by difficulty and node, (n_items, n_difficulties, n_nodes), without the unjudgeable state."""
    n_difficulties = posterior.shape[1] // n_nodes
    return posterior[:, : n_difficulties * n_nodes].reshape(len(posterior), n_difficulties, n_nodes)


def node_statistics(posterior: Floats, state_counts: Floats, n_nodes: int) -> Arrays:
    """Return the statistics for learning the distribution of relevance and for refining the grid.

    Args:
        posterior: P(state) of each document, (n_items, n_states).
        state_counts: its sum over the documents, (n_states,).
        n_nodes: number of nodes.

    Returns:
        `node_counts`: expected number of documents at each node, (n_nodes,);
        `documents`: number of documents, and of those whose posterior is too narrow for the grid, (2,).

    """
    split = by_difficulty(posterior, n_nodes)
    on_nodes = split[:, 0] if split.shape[1] == 1 else split.sum(axis=1)
    narrow = np.einsum("dn,dn->d", on_nodes, on_nodes) > MAX_NODE_CONCENTRATION
    node_counts = by_difficulty(state_counts[None], n_nodes)[0].sum(axis=0)
    return {"node_counts": node_counts, "documents": np.array([len(posterior), narrow.sum()], np.float64)}


def relevance_moments(
    statistics: Arrays, initial_mean: float = 0.0, initial_square: float = 1.0
) -> tuple[float, float]:
    """Return mean and standard deviation of relevance over the documents, in the units of the nodes.

    EM alone moves these two slowly if documents have many judgments: their posteriors are then narrow, and curves and
    posteriors hold each other in place. Parameter expansion (Liu, Rubin and Wu 1998) updates them in closed form.

    Args:
        statistics: those of `node_statistics`.
        initial_mean: mean of the `PRIOR_DOCUMENTS` pseudo-documents.
        initial_square: their mean square.

    """
    counts = statistics["node_counts"]
    nodes, n = standard_nodes(len(counts)), counts.sum() + PRIOR_DOCUMENTS
    mean = (counts @ nodes + PRIOR_DOCUMENTS * initial_mean) / n
    squares = counts @ nodes**2 / (node_prior(len(nodes)) @ nodes**2)  # the prior on the grid has a variance below 1
    square = (squares + PRIOR_DOCUMENTS * initial_square) / n
    return float(mean), float(np.sqrt(square - mean**2))


def refined_nodes(statistics: Arrays) -> Floats:
    """Return the nodes for the next pass: twice as dense if too many posteriors are narrow."""
    n_nodes, (n_documents, n_narrow) = len(statistics["node_counts"]), statistics["documents"]
    too_coarse = n_narrow > MAX_NARROW_SHARE * n_documents and n_nodes < MAX_NODES
    return standard_nodes(2 * n_nodes - 1 if too_coarse else n_nodes)


def mode_weights(posterior: Floats, n_nodes: int) -> Floats:
    """Return the mode of each posterior as weights of states, (n_items, n_states), not 0 for at most two nodes.

    The mode is that of a parabola through the logarithms at the highest node and its neighbors. The weighted mean of
    the nodes is the mode.

    >>> weights = mode_weights(PRIOR[None], N_NODES)
    >>> float(weights.max()), int(weights.argmax())
    (1.0, 10)
    """
    # (n_items, n_states) -> the same
    row, best = np.arange(len(posterior)), posterior.argmax(axis=1)
    node, on_line = best % n_nodes, best < posterior.shape[1] // n_nodes * n_nodes
    inner = on_line & (node > 0) & (node < n_nodes - 1)
    logs = [np.log(np.maximum(posterior[row, best + side * inner], 1e-300)) for side in (-1, 0, 1)]
    bend = 2 * logs[1] - logs[0] - logs[2]
    offset = np.where(inner & (bend > 0), 0.5 * (logs[2] - logs[0]) / np.where(bend > 0, bend, 1.0), 0.0)
    offset = np.clip(offset, -0.5, 0.5)
    at = np.zeros_like(posterior)
    at[row, best] = 1 - np.abs(offset)
    at[row, best + np.sign(offset).astype(np.int64) * inner] += np.abs(offset)
    return at


def document_estimates(posterior: Floats, typical_curves: Floats, interval: float) -> Arrays:
    """Return estimates of documents: relevance, sd, interval, and P(grade) of the answer of a typical assessor."""
    # posterior (n_items, n_nodes), typical_curves (n_grades, n_nodes) = P(grade | node)
    nodes = standard_nodes(posterior.shape[1])
    relevance = posterior @ nodes
    variance = np.maximum(posterior @ nodes**2 - relevance**2, 0.0)
    lower, upper = (node_quantiles(posterior, tail) for tail in ((1 - interval) / 2, (1 + interval) / 2))
    shares = posterior @ typical_curves.T
    return {
        "relevance": relevance,
        "sd": np.sqrt(variance),
        "lower": np.minimum(lower, relevance),
        "upper": np.maximum(upper, relevance),
        "p": shares,
    }


def node_quantiles(posterior: Floats, level: float) -> Floats:
    """Return a quantile of each posterior, (n_items,).

    The distribution function between two nodes is the sum of the probabilities below, corrected by the next term of
    the Euler-Maclaurin formula. Between these points its probit is interpolated, which is exact for a normal posterior.

    >>> float(node_quantiles(PRIOR[None], 0.5)[0].round(2))
    0.0
    """
    n_items, n_nodes = posterior.shape
    edges = np.zeros((n_items, n_nodes + 1))  # the distribution function below and above every node
    np.cumsum(posterior, axis=1, out=edges[:, 1:])
    edges[:, 1:-1] += np.diff(posterior, axis=1) / 24
    edges[:, -1] = 1.0
    node = np.clip((edges < level).sum(axis=1) - 1, 0, n_nodes - 1)
    row, step = np.arange(n_items), 2 * MAX_NODE / (n_nodes - 1)
    below, above = (normal_quantiles(np.clip(edges[row, node + side], 1e-12, 1 - 1e-12)) for side in (0, 1))
    inside = np.clip((normal_quantile(level) - below) / np.maximum(above - below, 1e-12), 0.0, 1.0)
    return np.asarray(-MAX_NODE + step * (node + inside - 0.5))


def example_on_nodes(example: Arrays, nodes: Floats) -> Arrays:
    """Return example parameters on the initial grid, resized to the number of `nodes` (filled with zeros).

    Raises:
        ValueError: `nodes` are not those of a grid.

    """
    require(nodes.ndim == 1 and N_NODES <= len(nodes) <= MAX_NODES, "the grid has too few or too many nodes")
    require(np.array_equal(nodes, standard_nodes(len(nodes))), "the nodes are not those of a grid")
    resized = dict(example)
    for name in ("nodes", "likelihood", "shares", "typical"):
        *axes, n_states = example[name].shape
        resized[name] = np.zeros((*axes, n_states + n_states // N_NODES * (len(nodes) - N_NODES)))
    return resized


def count_expert_grades(shard: Shard, n_answers: int) -> Arrays:
    """Return the number of documents per expert grade, and of each assessor's answers to them.

    Returns:
        `expert_grades` of shape (n_expert_grades,), `on_gold` of shape (n_assessors, n_answers, n_expert_grades).

    """
    on_gold = np.zeros((shard.n_assessors, n_answers, shard.n_expert_grades))
    answers = shard if shard.soft is None else shard.soft
    expert_grade = np.repeat(shard.gold, np.diff(answers.offsets))
    known = expert_grade >= 0
    share = 1.0 if shard.soft is None else shard.soft.share[known]
    np.add.at(on_gold, (answers.assessor[known], answers.grade[known], expert_grade[known]), share)
    expert_grades = np.bincount(shard.gold[shard.gold >= 0], minlength=shard.n_expert_grades)
    return {"expert_grades": expert_grades.astype(np.float64), "on_gold": on_gold}


def first_cuts(expert_grades: Floats) -> Floats:
    """Return initial cut points, (n_expert_grades - 1,): normal quantiles of the cumulative shares of expert grades.

    >>> first_cuts(np.array([50.0, 50.0])).tolist()
    [0.0]
    """
    shares = (expert_grades + 0.5) / (expert_grades + 0.5).sum()
    return normal_quantiles(np.cumsum(shares)[:-1])


def expert_curves(cuts: Floats, relevance: Floats) -> Floats:
    """Return P(expert grade | relevance), (n_expert_grades, n_points)."""
    slope, intercept = expert_lines(cuts)
    return softmax(slope[:, None] * relevance + intercept[:, None], axis=0)


def expert_lines(cuts: Floats) -> Floats:
    """Return slope and intercept over relevance of the log odds of each expert grade, (2, n_expert_grades)."""
    return EXPERT_SLOPE * np.stack([np.arange(len(cuts) + 1.0), -np.concatenate([[0.0], np.cumsum(cuts)])])


def count_states(shard: Shard, posterior: Floats) -> Floats:
    """Return the expected number of documents per expert grade and state, (n_expert_grades, n_states)."""
    counts = np.zeros((shard.n_expert_grades, posterior.shape[1]))
    known = shard.gold >= 0
    np.add.at(counts, shard.gold[known], posterior[known])
    return counts


def estimate_cuts(cuts: Floats, counts: Floats, relevance: Floats) -> Floats:
    """Return cut points after Newton steps on their expected log posterior; their prior is standard normal.

    Args:
        cuts: current cut points, (n_expert_grades - 1,).
        counts: expected number of documents per expert grade and point of relevance, (n_expert_grades, n_points).
        relevance: (n_points,).

    """
    if not len(cuts):
        return cuts
    total = counts.sum(axis=0)
    above = counts[::-1].cumsum(axis=0)[::-1][1:].sum(axis=1)  # documents graded above each cut point
    for _ in range(CUT_NEWTON_STEPS):
        exceeds = expert_curves(cuts, relevance)[::-1].cumsum(axis=0)[::-1][1:]  # P(grade above each cut point)
        gradient = EXPERT_SLOPE * (exceeds @ total - above) - cuts
        both = np.minimum(exceeds[:, None], exceeds[None])  # P(grade above both cut points)
        hessian = EXPERT_SLOPE**2 * ((both - exceeds[:, None] * exceeds[None]) @ total) + np.eye(len(cuts))
        cuts = cuts + np.clip(np.linalg.solve(hessian, gradient), -MAX_CUT_STEP, MAX_CUT_STEP)
    return cuts


def information(
    prior: NDArray[np.float64], likelihood: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mutual information of state and answer in nats, (n_assessors,), and the part of each answer.

    The part of answer g is the reduction of entropy, H[p(state)] - H[p(state | g)]; the mutual information is its mean
    over the answers that the assessor gives. A random assessor has 0.

    >>> prior = np.array([0.5, 0.5])
    >>> perfect, random = np.eye(2), np.full((2, 2), 0.5)
    >>> information(prior, np.stack([perfect, random]))[0].round(3).tolist()
    [0.693, 0.0]
    """
    # prior (n_states,), likelihood (n_assessors, n_answers, n_states) -> (n_assessors,), (n_assessors, n_answers)
    joint = likelihood * prior
    given = joint.sum(axis=2)  # P(answer)
    posterior = joint / np.maximum(given, 1e-300)[:, :, None]
    parts = entropy(prior[None, None, :]) - entropy(posterior)
    return np.maximum((given * parts).sum(axis=1), 0.0), parts


def difference_information(
    prior: NDArray[np.float64], conditional: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the information, per judgment, of an assessor's grades of two documents about their difference.

    The probability p(g, g' | difference) of a pair of grades is proportional to sqrt(p(g | g', .) p(g' | g, .)). The
    result is halved, because a pair has two judgments.

    >>> difference = np.array([-1.0, 1.0])  # the other document is better, or this one
    >>> steep = np.array([[[0.9, 0.1]] * 2, [[0.1, 0.9]] * 2])  # p(g | g', difference), by g and g'
    >>> random = np.full((2, 2, 2), 0.5)
    >>> difference_information(np.array([0.5, 0.5]), np.stack([steep, random]))[0].round(3).tolist()
    [0.115, 0.0]
    """
    # prior (n_states,) of differences that lie evenly around 0;
    # conditional (n_assessors, n_grades, n_grades, n_states) = p(g | g', difference) by g, g'
    # -> (n_assessors,), (n_assessors, n_grades, n_grades)
    n_assessors, n_grades, _, n_states = conditional.shape
    other = conditional.transpose(0, 2, 1, 3)[..., ::-1]  # p(g' | g, difference): the same with the documents exchanged
    joint = np.sqrt(conditional * other).reshape(n_assessors, n_grades**2, n_states)
    total, parts = information(prior, joint / joint.sum(axis=1, keepdims=True))
    return total / 2, parts.reshape(n_assessors, n_grades, n_grades) / 2


def entropy(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of distributions along the last axis, in nats."""
    total: NDArray[np.float64] = -(probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=-1)
    return total


def normal_quantiles(probabilities: Floats) -> Floats:
    """Return the quantile of each probability; those of 0 and 1 are infinite.

    >>> normal_quantiles(np.array([0.0, 0.5, 1.0])).tolist()
    [-inf, 0.0, inf]
    """
    if probabilities.size > MAX_WITHOUT_SCIPY:
        from scipy.special import ndtri

        return np.asarray(ndtri(probabilities))
    inside = (probabilities > 0.0) & (probabilities < 1.0)
    quantiles = np.where(probabilities < 0.5, -np.inf, np.inf)
    quantiles[inside] = list(map(NormalDist().inv_cdf, probabilities[inside].tolist()))
    return quantiles


def normal_quantile(probability: float) -> float:
    """Return the quantile of one probability between 0 and 1."""
    return NormalDist().inv_cdf(probability)


def softmax(scores: Floats, axis: int) -> Floats:
    """Return the softmax of scores along an axis."""
    raised = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis=axis, keepdims=True))
