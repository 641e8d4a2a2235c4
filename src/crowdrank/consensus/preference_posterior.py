"""Joint posterior of the documents of a query that preferences connect (Laplace approximation).

A document enters with the log posterior of its grades on the nodes of the latent scale, interpolated between them. Each
preference adds a term of the difference of two documents. Newton's method finds the mode of all documents; conjugate
gradients solve for its steps, in time and memory linear in the preferences. The inverse Hessian H^-1 has the variances
of documents and the covariances of pairs. They are exact for queries with up to `MAX_EXACT_DOCUMENTS` documents;
:func:`sample_variances` estimates those of larger queries.

What the preferences say about one document is returned as a message: the factor of its marginal posterior besides its
own grades, as a Gaussian. With the slope b and the curvature h of the log posterior of the grades at the mode m, it is
exp(-b (r - m) - (1 / (H^-1)_dd - h) (r - m)^2 / 2). The E-step multiplies it into the prior of the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Arrays, Codes, Floats, Integers
from crowdrank.consensus.latent import MAX_NODE
from crowdrank.consensus.preference_assessors import DIFFERENCES, N_ANSWERS, SMALLEST, cut_points
from crowdrank.consensus.preference_kernels import (
    MAX_CG_STEPS,
    add_counts,
    conjugate_gradients,
    differentiate,
    write_variances,
)
from crowdrank.engine.shards import Shard
from crowdrank.judgments.joined import ItemPreferences

MAX_EXACT_DOCUMENTS = 500
"""Maximum number of documents of a query whose inverse Hessian is computed exactly; its time is their cube."""
N_SAMPLES = 40
"""Number of samples from the posterior of larger queries."""
MAX_NEWTON_STEPS = 100
"""Maximum number of Newton steps for the mode of the documents."""
UNDAMPED_STEPS = 30
"""Number of Newton steps after which steps are halved."""
NEWTON_TOLERANCE = 1e-6
"""Largest remaining Newton step at which Newton's method stops."""
STEP_TOLERANCE, SAMPLE_TOLERANCE = 1e-12, 1e-8
"""Shares of the first squared residual at which conjugate gradients stop, in a Newton step and in a sample."""
MIN_CURVATURE = 0.05
"""Minimum curvature of the log posterior of the grades, which may have several modes."""


@dataclass(frozen=True, eq=False)
class GridCurves:
    """Log posteriors on equidistant nodes, interpolated: their slope is linear between nodes.

    Attributes:
        posterior: posterior at each node, (n_items, n_nodes).
        step: distance of the nodes.

    """

    posterior: Floats
    step: float

    def at(self, relevance: Floats) -> tuple[Floats, Floats, Floats]:
        """Return value, slope and curvature (negative second derivative) of each item at its relevance (n_items,)."""
        row, last = np.arange(len(relevance)), self.posterior.shape[1] - 1
        position = (relevance + MAX_NODE) / self.step
        cell = np.clip(position.astype(np.int64), 0, last - 1)
        window = np.clip(cell - 1, 0, last - 3)
        v = np.log(np.maximum(self.posterior[row[:, None], window[:, None] + np.arange(4)], SMALLEST)).T
        first, middle, final = cell == 0, v[2] - v[0], cell == last - 1
        left = np.where(first, 4.0 * v[1] - 3.0 * v[0] - v[2], np.where(final, v[3] - v[1], middle))
        right = np.where(first, middle, np.where(final, 3.0 * v[3] - 4.0 * v[2] + v[1], v[3] - v[1]))
        left, right = left / (2.0 * self.step), right / (2.0 * self.step)
        along = (position - cell) * self.step
        bend = (right - left) / self.step
        value = v[cell - window, row] + left * along + 0.5 * bend * along**2
        return value, left + bend * along, np.maximum(-bend, MIN_CURVATURE)


@dataclass(frozen=True, eq=False)
class Compared:
    """Documents with preferences and the preferences between them, both sorted by query.

    Attributes:
        items: first document of each query, and the end, (n_queries + 1,).
        rows: first preference of each query, and the end, (n_queries + 1,).
        left, right: documents of each preference, (n,).
        answer, assessor, weight: its other columns, (n,).
        scales, cuts: parameters of assessors, (n_assessors, 2) and (n_assessors, 6).

    """

    items: Integers
    rows: Integers
    left: Integers
    right: Integers
    answer: Codes
    assessor: Codes
    weight: Floats
    scales: Floats
    cuts: Floats

    @classmethod
    def of(cls, preferences: ItemPreferences, weight: Floats, theta: Arrays) -> Compared:
        """Return the preferences of a shard with the parameters of their assessors."""
        items, rows = preferences.query_offsets
        left, right = preferences.used_index
        params = theta["preference_params"]
        infinite = np.full((len(params), 1), np.inf)
        return cls(
            items=items,
            rows=rows,
            left=left,
            right=right,
            answer=preferences.answer,
            assessor=preferences.assessor,
            weight=weight,
            scales=np.stack([np.exp(params[:, 0]), params[:, 1]], axis=1),
            cuts=np.concatenate([-infinite, cut_points(params, theta["preference_active"]), infinite], axis=1),
        )

    def terms(self, mode: Floats) -> Floats:
        """Return log P(answer), and its first and negative second derivative by the difference, (3, n)."""
        terms = np.empty((3, len(self.left)))
        own = self.answer, self.assessor, self.weight, self.scales, self.cuts
        differentiate(self.left, self.right, *own, mode, terms)
        return terms

    def gradient(self, slope: Floats, by_difference: Floats) -> Floats:
        """Return the gradient of the log posterior from the slopes of documents and of preferences, (n_items,)."""
        n = len(slope)
        change = np.bincount(self.left, by_difference, n) - np.bincount(self.right, by_difference, n)
        return np.asarray(slope + change)


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """Result of the joint E-step of a shard.

    Attributes:
        mode: relevance of each item at the joint mode, 0 for items without preferences, (n_items,).
        messages: log of the factor of each item that comes from preferences, (n_items, n_nodes); 0 without any.
        statistics: `preference_counts` (n_assessors, n_differences, 5) and `preference_log_likelihood` (1,).

    """

    mode: Floats
    messages: Floats
    statistics: Arrays


def joint_posterior(
    preferences: ItemPreferences, posterior: Floats, nodes: Floats, theta: Arrays, weight: Floats, mode: Floats | None
) -> JointPosterior:
    """Return what preferences say about each item of a shard, and the expected answers of assessors.

    Args:
        preferences: preferences between the items.
        posterior: P(node) of each item by its prior and grades, (n_items, n_nodes).
        nodes: nodes of the latent scale.
        theta: parameters of assessors.
        weight: weight of each preference, (n,).
        mode: relevance to start from, (n_items,).

    """
    counts = np.zeros((len(theta["preference_params"]), len(DIFFERENCES), N_ANSWERS))
    found, messages, evidence = np.zeros(len(posterior)), np.zeros(posterior.shape), 0.0
    if len(preferences):
        used, compared = preferences.used_items, Compared.of(preferences, weight, theta)
        curves = GridCurves(posterior[used], float(nodes[1] - nodes[0]))
        start = curves.posterior @ nodes if mode is None else mode[used]
        own = find_mode(compared, curves, start)
        value, slope, curvature = curves.at(own)
        terms = compared.terms(own)
        variance, spread, log_determinant = covariances(compared, curvature, terms[2])
        found[used] = own
        precision = np.maximum(1.0 / variance - curvature, 0.0)
        messages[used] = message_factors(curves.posterior, nodes - own[:, None], slope, precision)
        evidence = terms[0].sum() + (value - np.log(curves.step)).sum() + 0.5 * len(own) * np.log(2 * np.pi)
        evidence -= 0.5 * log_determinant
        columns = compared.left, compared.right, compared.answer, compared.assessor, weight
        add_counts(*columns, own, spread, counts)
    statistics = {"preference_counts": counts, "preference_log_likelihood": np.array([float(evidence)])}
    return JointPosterior(found, messages, statistics)


def message_factors(posterior: Floats, away: Floats, slope: Floats, precision: Floats) -> Floats:
    """Return the logarithm of the factor of each document on the nodes, (n_items, n_nodes).

    Preferences say nothing about whether a document can be judged, so the mean of the factor is 1.
    """
    message = away * (-slope[:, None] - 0.5 * precision[:, None] * away)
    message -= message.max(axis=1, keepdims=True)
    mean = np.einsum("in,in->i", posterior, np.exp(message))
    message -= np.log(np.maximum(mean, SMALLEST))[:, None]
    return np.asarray(message)


def find_mode(compared: Compared, curves: GridCurves, start: Floats) -> Floats:
    """Return the joint mode by Newton's method, (n_items,).

    A start that is the mode is returned as it is, so that a pass that is repeated gives the same bytes.
    """
    mode, newton_step, memory = np.clip(start, -MAX_NODE, MAX_NODE), np.empty(len(start)), cg_memory(len(start))
    for number in range(MAX_NEWTON_STEPS):
        _, slope, curvature = curves.at(mode)
        terms = compared.terms(mode)
        gradient = compared.gradient(slope, terms[1])
        # H is diagonally dominant: no element of the Newton step is larger than this bound.
        if np.abs(gradient).max() <= NEWTON_TOLERANCE * curvature.min():
            break
        sides = compared.left, compared.right
        conjugate_gradients(*sides, terms[2], curvature, gradient, STEP_TOLERANCE, newton_step, *memory)
        step = np.clip(newton_step, -1.0, 1.0) * (1.0 if number < UNDAMPED_STEPS else 0.5)
        moved = np.clip(mode + step, -MAX_NODE, MAX_NODE)
        if np.abs(moved - mode).max() < NEWTON_TOLERANCE:
            break
        mode = moved
    return mode


def joint_covariances(
    preferences: ItemPreferences, posterior: Floats, nodes: Floats, theta: Arrays, weight: Floats
) -> Iterator[tuple[Integers, Floats, Floats]]:
    """Yield items, joint mode and covariance matrix of each query with preferences; arguments as above."""
    used, compared = preferences.used_items, Compared.of(preferences, weight, theta)
    curves = GridCurves(posterior[used], float(nodes[1] - nodes[0]))
    mode = find_mode(compared, curves, curves.posterior @ nodes)
    curvature, bend = curves.at(mode)[2], compared.terms(mode)[2]
    for query in range(len(compared.items) - 1):
        items, rows = (slice(*ends[query : query + 2]) for ends in (compared.items, compared.rows))
        left, right = compared.left[rows] - items.start, compared.right[rows] - items.start
        hessian = np.diag(curvature[items])
        np.add.at(hessian, (left, left), bend[rows])
        np.add.at(hessian, (right, right), bend[rows])
        np.subtract.at(hessian, (left, right), bend[rows])
        np.subtract.at(hessian, (right, left), bend[rows])
        yield used[items], mode[items], np.asarray(np.linalg.inv(hessian), np.float64)


def cg_memory(n_items: int) -> tuple[Floats, Floats, Floats]:
    """Return the arrays `diagonal`, `coefficients` and `memory` of :func:`conjugate_gradients`."""
    return np.empty(n_items), np.empty((MAX_CG_STEPS, 2)), np.empty((3, n_items))


def covariances(compared: Compared, curvature: Floats, bend: Floats) -> tuple[Floats, Floats, float]:
    """Return the variance of documents, (n_items,), that of the difference of each preference, (n,), and log det H."""
    sizes = np.diff(compared.items)
    variance, spread = np.empty(len(curvature)), np.empty(len(bend))
    columns = compared.left, compared.right, bend, curvature
    total, start = 0.0, 0
    # Stretches of queries that are exact are solved in one call.
    for large in [*np.flatnonzero(sizes > MAX_EXACT_DOCUMENTS).tolist(), len(sizes)]:
        if large > start:
            memory = np.empty((2, int(sizes[start:large].max()) ** 2))
            ends = compared.items[start : large + 1], compared.rows[start : large + 1]
            total += write_variances(*ends, *columns, memory, variance, spread)
        if large < len(sizes):
            items, rows = (slice(*ends[large : large + 2]) for ends in (compared.items, compared.rows))
            first = items.start
            pairs = compared.left[rows] - first, compared.right[rows] - first
            variance[items], spread[rows], part = sample_variances(*pairs, bend[rows], curvature[items])
            total += part
        start = large + 1
    return variance, spread, float(total)


def sample_variances(left: Integers, right: Integers, bend: Floats, curvature: Floats) -> tuple[Floats, Floats, float]:
    """Estimate the variances of documents and of the differences of preferences of one query, and log det H.

    x = H^-1 (diag(c)^1/2 e + B' diag(w)^1/2 f) has the covariance H^-1 if e and f are standard normal (Papandreou and
    Yuille 2010, Gaussian sampling by local perturbations). The variance of a document is 1 / H_dd, that given all
    others, plus the variance of its mean given all others, which is averaged over the samples; pairs alike (Siden,
    Lindgren, Bolin and Villani 2018, Efficient covariance approximations for large sparse precision matrices). The
    sampling error is that of the second part alone. log det H follows from the same steps of conjugate gradients by
    stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017). The samples are the same in all passes.
    """
    n, m = len(curvature), len(bend)
    rng, x = np.random.default_rng(0), np.empty(n)
    diagonal, coefficients, memory = cg_memory(n)
    low, high = np.minimum(left, right), np.maximum(left, right)
    _, pair = np.unique(low * n + high, return_inverse=True)
    shared = np.bincount(pair, bend)[pair]  # -H_lr: documents may be compared several times
    of_documents, of_pairs, log_determinant = np.zeros(n), np.zeros(m), 0.0
    for _ in range(N_SAMPLES):
        along = np.sqrt(bend) * rng.standard_normal(m)
        target = np.sqrt(curvature) * rng.standard_normal(n)
        target += np.bincount(left, along, n) - np.bincount(right, along, n)
        output = x, diagonal, coefficients, memory
        n_steps = conjugate_gradients(left, right, bend, curvature, target, SAMPLE_TOLERANCE, *output)
        others = target - diagonal * x  # product of x and the row of H without its diagonal
        of_documents += (others / diagonal) ** 2
        one, other = others[left] + shared * x[right], others[right] + shared * x[left]
        h_one, h_other = diagonal[left], diagonal[right]
        determinant = h_one * h_other - shared**2
        of_pairs += (((h_other - shared) * one - (h_one - shared) * other) / determinant) ** 2
        log_determinant += lanczos_log(coefficients[:n_steps], float(target @ (target / diagonal)))
    variance = 1.0 / diagonal + of_documents / N_SAMPLES
    spread = (h_one + h_other - 2.0 * shared) / determinant + of_pairs / N_SAMPLES
    return variance, spread, float(np.log(diagonal).sum() + log_determinant / N_SAMPLES)


def lanczos_log(coefficients: Floats, squared_norm: float) -> float:
    """Return b' S^-1 log(S) b from the coefficients of conjugate gradients for S x = b, and the squared norm of b.

    S is H scaled to a diagonal of 1. If b has the covariance S, this is the log determinant of S on average.
    """
    alpha, beta = coefficients.T
    diagonal = 1.0 / alpha
    diagonal[1:] += beta[:-1] / alpha[:-1]
    beside = np.sqrt(beta[:-1]) / alpha[:-1]
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    values = np.maximum(values, SMALLEST)
    return float(squared_norm * (vectors[0] ** 2 * np.log(values) / values).sum())


def count_preferences(shard: Shard) -> Arrays:
    """Return how often each assessor gave each answer, (n_assessors, 5), and the number of answers with positions."""
    if shard.preferences is None:
        return {}
    answers = shard.preferences.answer_counts(shard.n_assessors)
    n_positioned = float(len(shard.preferences)) if shard.preferences.has_positions else 0.0
    return {"preference_answers": answers, "preference_positions": np.array([n_positioned])}
