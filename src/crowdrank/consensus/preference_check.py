"""Posterior predictive check of preferences: compare answers with answers drawn from the fitted model.

Relevance is drawn from the joint posterior of each query (Laplace approximation), and answers to the same questions
from the assessors' ordered logits (Gelman, Meng and Stern 1996, Posterior predictive assessment of model fitness).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._typing import Arrays, Booleans, Codes, Floats, Integers
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.pair_probabilities import shard_covariances
from crowdrank.consensus.posterior_check import MIN_REPORTED_Z
from crowdrank.consensus.preference_assessors import cut_points
from crowdrank.engine.passes import single_blas_thread
from crowdrank.errors import UsageError
from crowdrank.judgments.joined import ItemPreferences

N_REPLICATES = 500
"""Number of replicated sets of answers."""
MAX_REPORTED_P = 0.01
"""Maximum p-value of a difference that is reported."""
MAX_NEIGHBORS = 20
"""Maximum number of later answers on the same two documents with which an answer is compared."""
MAX_SETS = 200_000
"""Maximum number of candidates for sets of three compared documents; a sample is drawn if there are more."""
TIES, LEFT, AGREEMENT, CYCLES = STATISTICS = ("ties", "left", "agreement", "cycles")
"""Names of the statistics."""
CAUSES = {
    TIES: "assessors call other pairs ties than those of documents that are close",
    LEFT: "the position bias is not the same for all pairs",
    AGREEMENT: "assessors share errors if it is higher, and have different opinions if it is lower",
    CYCLES: "answers do not follow one order of documents if it is higher, and depend on each other if it is lower",
}
"""Possible cause of a difference in each statistic."""


@dataclass(frozen=True)
class PreferenceCheck:
    """Expected and observed shares of ties, left answers, agreeing pairs of answers, and cycles."""

    statistics: pa.Table  # statistic, number, expected, observed, z, p: of all assessors
    assessors: pa.Table  # assessor, preferences, and the same of the statistic with the largest |z|: largest first
    sentences: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        return {
            "statistics": self.statistics.to_pylist(),
            "assessors": self.assessors.to_pylist(),
            "sentences": self.sentences,
        }


@single_blas_thread()
def check_preferences(model: Aggregator, *, random_state: int = 0) -> PreferenceCheck:
    """Compare the preferences of a fit with replicated answers to the same questions from the fitted model.

    `ties` is the share of ties, `left` the share of left among the other answers, `agreement` the share of pairs of
    answers to the same question by assessors of different families that agree, and `cycles` the share of the sets of
    three documents with three decided answers of an assessor that form a cycle. `expected` is the mean of the
    replicates, `z` the difference in their standard deviations, `p` the two-sided posterior predictive p-value.

    Args:
        model: model that was fitted with preferences.
        random_state: random seed of the replicates.

    Raises:
        UsageError: the model was fitted without preferences.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"left": ["a", "b", "a"], "right": ["b", "c", "c"], "assessor": ["x", "x", "y"],
    ...                      "preference": [-1, -1, 0]})
    >>> check_preferences(GDA().fit(None, preferences=rows)).statistics["statistic"].to_pylist()
    ['ties', 'left']

    """
    estimator = model.assessor_estimator_
    if not isinstance(estimator, GDA) or estimator.preferences_ is None:
        raise UsageError("the model was fitted without preferences", kind="no-preferences", fix="fit it with some")
    joined, theta, passes = estimator._open_passes(estimator.judgments_, estimator.preferences_)
    rng = np.random.default_rng(random_state)
    counts = np.zeros((1 + N_REPLICATES, len(STATISTICS), 2, joined.n_assessors))  # the observed answers are first
    for number in range(len(passes.shards)):
        shard = passes.shards.load(number)
        if shard.preferences is None or not len(shard.preferences):
            continue
        questions = _Questions(shard.preferences, joined.family_of, rng)
        counts[0] += questions.count(shard.preferences.answer)
        answers = _replicates(shard.preferences, list(shard_covariances(estimator, shard, theta)), theta, rng)
        for replicate, answer in enumerate(answers, start=1):
            counts[replicate] += questions.count(answer)
    active = theta["preference_active"].astype(bool)
    is_used = np.array([active[2], active[1], True, True])
    total = counts.sum(axis=3, keepdims=True)
    total[:, STATISTICS.index(AGREEMENT)] /= 2  # each pair was counted for both of its assessors
    (statistics,) = _rows(total, is_used)
    of_assessors = []
    for code, rows in enumerate(_rows(counts, is_used)):
        if rows:
            worst = max(rows, key=lambda row: abs(row["z"]))
            n = int(counts[0, 0, 1, code])
            of_assessors.append({"assessor": joined.assessors[code].as_py(), "preferences": n, **worst})
    of_assessors.sort(key=lambda row: -abs(row["z"]))
    sentences = _describe(statistics, of_assessors)
    return PreferenceCheck(pa.Table.from_pylist(statistics), pa.Table.from_pylist(of_assessors), sentences)


class _Questions:
    """Pairs of documents that were compared, with pairs of answers to the same one and sets of three documents."""

    def __init__(self, preferences: ItemPreferences, family_of: Codes, rng: np.random.Generator) -> None:
        self.assessor = preferences.assessor
        self.n_assessors = len(family_of)
        low, high = np.minimum(preferences.left, preferences.right), np.maximum(preferences.left, preferences.right)
        self.toward_low = np.where(preferences.left == low, 1, -1)
        self.one, self.other = _same_question(preferences, family_of)
        edges = np.stack([self.assessor, low, high], axis=1).astype(np.int64)
        self.edges, edge = np.unique(edges, axis=0, return_inverse=True)
        self.edge = edge.ravel()
        self.sets = self._sets_of_three(rng)

    @cached_property
    def n_edges(self) -> int:
        return len(self.edges)

    def _sets_of_three(self, rng: np.random.Generator) -> Integers:
        """Return the edges ij, jk and ik of sets of documents i < j < k that an assessor compared, (3, n_sets)."""
        assessor, low, high = self.edges.T
        n_items = int(high.max()) + 1
        start, key = assessor * n_items + low, (assessor * n_items + low) * n_items + high
        first, last = (np.searchsorted(start, assessor * n_items + high, side=side) for side in ("left", "right"))
        sizes = last - first
        one = np.repeat(np.arange(self.n_edges), sizes)
        two = np.arange(len(one)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        if len(one) > MAX_SETS:
            chosen = rng.choice(len(one), MAX_SETS, replace=False)
            one, two = one[chosen], two[chosen]
        wanted = (assessor[one] * n_items + low[one]) * n_items + high[two]
        three = np.minimum(np.searchsorted(key, wanted), self.n_edges - 1)
        return np.stack([one, two, three])[:, key[three] == wanted]

    def count(self, answer: Codes) -> Floats:
        """Return how often each statistic holds and how often it could, by assessor, (4, 2, n_assessors)."""
        side = np.sign(answer.astype(np.int64) - 2)
        better = side * self.toward_low
        agree = better[self.one] == better[self.other]
        votes = np.sign(np.bincount(self.edge, better, self.n_edges))
        ij, jk, ik = votes[self.sets]
        decided = (ij != 0) & (jk != 0) & (ik != 0)
        cyclic = decided & (ij == jk) & (ij != ik)
        of_set = self.edges[self.sets[0], 0]
        # A pair of answers counts for both of its assessors.
        both = np.concatenate([self.assessor[self.one], self.assessor[self.other]])
        return np.stack(
            [
                self._tally(self.assessor, side == 0, np.ones(len(side), bool)),
                self._tally(self.assessor, side > 0, side != 0),
                self._tally(both, np.tile(agree, 2), np.ones(len(both), bool)),
                self._tally(of_set, cyclic, decided),
            ]
        )

    def _tally(self, assessor: Integers | Codes, holds: Booleans, could: Booleans) -> Floats:
        return np.stack([np.bincount(assessor, mask, self.n_assessors) for mask in (holds, could)])


def _same_question(preferences: ItemPreferences, family_of: Codes) -> tuple[Integers, Integers]:
    """Return pairs of answers on the same two documents by assessors of different families, (n_pairs,) each."""
    order, starts = preferences.by_pair
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    longest = min(int(np.diff(starts).max()) - 1, MAX_NEIGHBORS)
    found = [np.zeros((2, 0), np.int64)]
    for distance in range(1, longest + 1):
        same = pair[distance:] == pair[:-distance]
        found.append(np.stack([order[:-distance][same], order[distance:][same]]))
    one, other = np.concatenate(found, axis=1)
    family = family_of[preferences.assessor]
    differs = family[one] != family[other]
    return one[differs], other[differs]


def _replicates(
    preferences: ItemPreferences,
    queries: list[tuple[Integers, Floats, Floats]],
    theta: Arrays,
    rng: np.random.Generator,
) -> Iterator[Codes]:
    """Yield replicated answers, (n,): relevance from its posterior, then answers from the assessors."""
    params = theta["preference_params"][preferences.assessor]
    cuts = cut_points(params, theta["preference_active"].astype(bool))
    sharpness, offset = np.exp(params[:, 0]), params[:, 1]
    roots = [np.linalg.cholesky(covariance) for _, _, covariance in queries]
    relevance = np.zeros(int(preferences.used_items.max()) + 1)
    for _ in range(N_REPLICATES):
        for (items, mode, _), root in zip(queries, roots, strict=True):
            relevance[items] = mode + root @ rng.standard_normal(len(items))
        x = sharpness * (relevance[preferences.left] - relevance[preferences.right]) + offset
        yield ((x + rng.logistic(size=len(x)))[:, None] > cuts).sum(axis=1).astype(np.int32)


def _rows(counts: Floats, is_used: Booleans) -> list[list[dict[str, Any]]]:
    """Return the rows of the statistics for each column of counts (1 + N_REPLICATES, 4, 2, n_columns)."""
    holds, could = counts[:, :, 0], counts[:, :, 1]
    share = holds / np.maximum(could, 1e-9)
    observed, replicated = share[0], share[1:]
    expected, sd = replicated.mean(axis=0), replicated.std(axis=0)
    z = (observed - expected) / np.maximum(sd, 1.0 / np.maximum(could[0], 1))
    above, below = ((side + 1) / (N_REPLICATES + 1) for side in _beyond(observed, replicated))
    p = np.minimum(1.0, 2.0 * np.minimum(above, below))
    return [
        [
            {
                "statistic": name,
                "number": int(could[0, k, column]),
                "expected": float(expected[k, column]),
                "observed": float(observed[k, column]),
                "z": float(z[k, column]),
                "p": float(p[k, column]),
            }
            for k, name in enumerate(STATISTICS)
            if is_used[k] and could[0, k, column] >= 1
        ]
        for column in range(counts.shape[3])
    ]


def _beyond(observed: Floats, replicated: Floats) -> tuple[Integers, Integers]:
    return (replicated >= observed).sum(axis=0), (replicated <= observed).sum(axis=0)


def _describe(statistics: list[dict[str, Any]], assessors: list[dict[str, Any]]) -> list[str]:
    sentences = [
        f"The share of {row['statistic']} is {row['observed']:.1%}, expected {row['expected']:.1%} "
        f"(p = {row['p']:.3f}): {CAUSES[row['statistic']]}."
        for row in statistics
        if row["p"] <= MAX_REPORTED_P
    ]
    n_unexpected = sum(abs(row["z"]) > MIN_REPORTED_Z for row in assessors)
    sentences.append(
        f"{n_unexpected:,} of {len(assessors):,} assessors of preferences differ from the expected answers by "
        f"more than {MIN_REPORTED_Z:g} standard deviations."
    )
    return sentences
