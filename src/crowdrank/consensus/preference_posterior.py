"""Joint posterior of the documents of a query that preferences connect (Laplace approximation).

A document enters with the log posterior of its grades on the nodes of the latent scale, interpolated between them. Each
preference adds a term of the difference of two documents. Newton's method finds the mode of all documents of a query.
The inverse Hessian H^-1 has the variances of documents and the covariances of pairs.

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
from crowdrank.consensus.preference_assessors import (
    DIFFERENCE_STEP,
    DIFFERENCES,
    MAX_DIFFERENCE,
    N_ANSWERS,
    SMALLEST,
    cumulative,
    cut_points,
)
from crowdrank.engine.shards import Shard
from crowdrank.judgments.joined import ItemPreferences

MAX_CELLS = 1 << 22
"""Maximum number of cells of the Hessians that are solved together."""
MAX_NEWTON_STEPS = 100
"""Maximum number of Newton steps for the mode of the documents of a query."""
UNDAMPED_STEPS = 30
"""Number of Newton steps after which steps are halved."""
NEWTON_TOLERANCE = 1e-7
"""Largest change of relevance at which Newton's method stops."""
MIN_CURVATURE = 0.05
"""Minimum curvature of the log posterior of the grades, which may have several modes."""


@dataclass(frozen=True, eq=False)
class GridCurves:
    """Log posteriors on the nodes, interpolated: their slope is linear between nodes.

    Attributes:
        values: log posterior at each node, (n_items, n_nodes).
        slopes: derivative at each node, (n_items, n_nodes).
        step: distance of the nodes.

    """

    values: Floats
    slopes: Floats
    step: float

    @classmethod
    def from_posterior(cls, posterior: Floats, nodes: Floats) -> GridCurves:
        """Return the curves of posteriors on the nodes, (n_items, n_nodes)."""
        values = np.log(np.maximum(posterior, SMALLEST))
        return cls(values, np.gradient(values, nodes, axis=1, edge_order=2), float(nodes[1] - nodes[0]))

    def at(self, relevance: Floats) -> tuple[Floats, Floats, Floats]:
        """Return value, slope and curvature (negative second derivative) of each item at its relevance (n_items,)."""
        row, last = np.arange(len(relevance)), self.values.shape[1] - 1
        position = (relevance + MAX_NODE) / self.step
        cell = np.clip(position.astype(np.int64), 0, last - 1)
        along = (position - cell) * self.step
        left = self.slopes[row, cell]
        bend = (self.slopes[row, cell + 1] - left) / self.step
        value = self.values[row, cell] + left * along + 0.5 * bend * along**2
        return value, left + bend * along, np.maximum(-bend, MIN_CURVATURE)


@dataclass(frozen=True, eq=False)
class Answered:
    """Preferences with the parameters of their assessors, (n,) each, or (n, 4) for cut points."""

    left: Integers  # slot of the left document
    right: Integers
    answer: Codes
    weight: Floats
    sharpness: Floats
    offset: Floats
    cuts: Floats

    def take(self, rows: Integers) -> Answered:
        """Return a selection of the preferences."""
        return Answered(*(column[rows] for column in vars(self).values()))

    def terms(self, relevance: Floats) -> tuple[Floats, Floats, Floats]:
        """Return log P(answer), and its first and negative second derivative by the difference, (n,) each."""
        x = self.sharpness * (relevance[self.left] - relevance[self.right]) + self.offset
        below, row = cumulative(x, self.cuts), np.arange(len(x))
        low, high = below[row, self.answer], below[row, self.answer + 1]
        slope = self.weight * self.sharpness * (low + high - 1.0)
        bend = self.weight * self.sharpness**2 * (low * (1.0 - low) + high * (1.0 - high))
        return self.weight * np.log(np.maximum(high - low, SMALLEST)), slope, bend


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
    params, active = theta["preference_params"], theta["preference_active"]
    own = params[preferences.assessor]
    answered = Answered(
        preferences.left,
        preferences.right,
        preferences.answer,
        weight,
        np.exp(own[:, 0]),
        own[:, 1],
        cut_points(params, active)[preferences.assessor],
    )
    start = posterior @ nodes if mode is None else mode
    found, messages = np.zeros(len(posterior)), np.zeros(posterior.shape)
    counts, total = np.zeros(len(params) * len(DIFFERENCES) * N_ANSWERS), 0.0
    for batch in batches(preferences):
        curves = GridCurves.from_posterior(posterior[batch.items], nodes)
        local = answered.take(batch.rows)
        local = Answered(batch.left, batch.right, *list(vars(local).values())[2:])
        one = solve(batch, curves, local, start[batch.items])
        found[batch.items] = one.mode
        away = nodes - one.mode[:, None]
        message = -one.slope[:, None] * away - 0.5 * one.precision[:, None] * away**2
        # Preferences say nothing about whether a document can be judged, so the mean of the factor is 1.
        highest = message.max(axis=1, keepdims=True)
        mean = (posterior[batch.items] * np.exp(message - highest)).sum(axis=1, keepdims=True)
        messages[batch.items] = message - highest - np.log(np.maximum(mean, SMALLEST))
        total += one.log_evidence
        add_counts(counts, preferences.assessor[batch.rows], local, one)
    shape = (len(params), len(DIFFERENCES), N_ANSWERS)
    statistics = {"preference_counts": counts.reshape(shape), "preference_log_likelihood": np.array([total])}
    return JointPosterior(found, messages, statistics)


@dataclass(frozen=True, eq=False)
class Batch:
    """Queries of similar size whose Hessians are solved together, padded to the same number of documents.

    Attributes:
        items: items of the shard with a preference, ascending, (n_items,).
        slot: query and place of each item in the batch as one number, query * size + place, (n_items,).
        n_queries: number of queries.
        size: number of places of each query.
        rows: preferences between these items, (n,).
        left, right: index in `items` of both documents of each preference.

    """

    items: Integers
    slot: Integers
    n_queries: int
    size: int
    rows: Integers
    left: Integers
    right: Integers


def batches(preferences: ItemPreferences) -> Iterator[Batch]:
    """Yield batches of queries of similar size; each query is in one."""
    items, query = preferences.used_items, preferences.query_of_used
    sizes = np.bincount(query)
    order = np.argsort(sizes, kind="stable")
    row_query = query[np.searchsorted(items, preferences.left)]
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * int(sizes[order[stop]]) ** 2 <= MAX_CELLS:
            if sizes[order[stop]] > 4 + 1.5 * sizes[order[start]]:
                break
            stop += 1
        chosen, size = np.sort(order[start:stop]), int(sizes[order[stop - 1]])
        place = np.full(len(sizes), -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        own = np.flatnonzero(place[query] >= 0)
        rows = np.flatnonzero(place[row_query] >= 0)
        first = np.searchsorted(query[own], query[own])
        left, right = (np.searchsorted(items[own], side[rows]) for side in (preferences.left, preferences.right))
        slot = place[query[own]] * size + np.arange(len(own)) - first
        yield Batch(items[own], slot, len(chosen), size, rows, left, right)
        start = stop


@dataclass(frozen=True, eq=False)
class Solution:
    """Joint posterior of the items of a batch.

    Attributes:
        mode: relevance at the joint mode, (n_items,).
        slope: derivative of the log posterior of the grades there, (n_items,).
        precision: precision of the message, (n_items,).
        difference_sd: standard deviation of the difference of each pair, (n,).
        log_evidence: log probability of the preferences given the grades.

    """

    mode: Floats
    slope: Floats
    precision: Floats
    difference_sd: Floats
    log_evidence: float


def solve(batch: Batch, curves: GridCurves, answered: Answered, start: Floats) -> Solution:
    """Find the joint mode of a batch by Newton's method, and the Laplace approximation there."""
    mode = np.clip(start, -MAX_NODE, MAX_NODE)
    for number in range(MAX_NEWTON_STEPS):
        _, slope, curvature = curves.at(mode)
        _, by_difference, bend = answered.terms(mode)
        n = len(mode)
        gradient = slope + np.bincount(answered.left, by_difference, n) - np.bincount(answered.right, by_difference, n)
        padded = np.zeros(batch.n_queries * batch.size)
        padded[batch.slot] = gradient
        hessian = _hessian(batch, answered, curvature, bend)
        step = np.linalg.solve(hessian, padded.reshape(batch.n_queries, batch.size, 1)).ravel()[batch.slot]
        step = np.clip(step, -1.0, 1.0) * (1.0 if number < UNDAMPED_STEPS else 0.5)
        moved = np.clip(mode + step, -MAX_NODE, MAX_NODE)
        if np.abs(moved - mode).max(initial=0.0) < NEWTON_TOLERANCE:
            break  # without the last step, so that a pass that starts from this mode ends there
        mode = moved
    value, slope, curvature = curves.at(mode)
    log_likelihood, _, bend = answered.terms(mode)
    hessian = _hessian(batch, answered, curvature, bend)
    covariance = np.linalg.inv(hessian)
    query, place = np.divmod(batch.slot, batch.size)
    variance = covariance[query, place, place]
    left, right = answered.left, answered.right
    between = covariance[query[left], place[left], place[right]]
    spread = variance[left] + variance[right] - 2 * between
    evidence = log_likelihood.sum() + (value - np.log(curves.step)).sum() + 0.5 * len(mode) * np.log(2 * np.pi)
    evidence -= 0.5 * np.linalg.slogdet(hessian)[1].sum()
    precision = np.maximum(1.0 / variance - curvature, 0.0)
    return Solution(mode, slope, precision, np.sqrt(np.maximum(spread, 0.0)), float(evidence))


def _hessian(batch: Batch, answered: Answered, curvature: Floats, bend: Floats) -> Floats:
    """Return the negative Hessian of each query, (n_queries, size, size); 1 on the diagonal of unused places."""
    size, n_cells = batch.size, batch.n_queries * batch.size**2
    left, right = batch.slot[answered.left], batch.slot[answered.right]
    index = np.concatenate([left * size + left % size, right * size + right % size])
    index = np.concatenate([index, left * size + right % size, right * size + left % size])
    cells = np.asarray(np.bincount(index, np.concatenate([bend, bend, -bend, -bend]), n_cells), np.float64)
    diagonal = np.ones(batch.n_queries * size)
    diagonal[batch.slot] = curvature
    place = np.arange(len(diagonal))
    cells[place * size + place % size] += diagonal
    return cells.reshape(batch.n_queries, size, size)


def count_preferences(shard: Shard) -> Arrays:
    """Return how often each assessor gave each answer, (n_assessors, 5), and the number of answers with positions."""
    if shard.preferences is None:
        return {}
    answers = shard.preferences.answer_counts(shard.n_assessors)
    n_positioned = float(len(shard.preferences)) if shard.preferences.has_positions else 0.0
    return {"preference_answers": answers, "preference_positions": np.array([n_positioned])}


def add_counts(counts: Floats, assessor: Codes, answered: Answered, solution: Solution) -> None:
    """Add the expected number of answers by difference to `counts` in place, (n_assessors * n_differences * 5,).

    The difference of a pair is at its mean plus and minus one standard deviation, with half of the weight each, which
    has the mean and variance of its distribution. Weights are divided between the neighboring points of the grid.
    """
    difference = solution.mode[answered.left] - solution.mode[answered.right]
    for side in (-1.0, 1.0):
        place = (difference + side * solution.difference_sd + MAX_DIFFERENCE) / DIFFERENCE_STEP
        place = np.clip(place, 0.0, len(DIFFERENCES) - 1.0)
        cell = np.minimum(place.astype(np.int64), len(DIFFERENCES) - 2)
        share = place - cell
        for offset, part in ((0, 1.0 - share), (1, share)):
            index = (assessor.astype(np.int64) * len(DIFFERENCES) + cell + offset) * N_ANSWERS + answered.answer
            counts += np.bincount(index, 0.5 * answered.weight * part, len(counts))
