"""Probability that a document is more relevant than another one of its query, by the joint posterior of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.consensus.e_step import expectation_step
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.preference_posterior import joint_covariances
from crowdrank.engine.passes import single_blas_thread
from crowdrank.engine.shards import Shard
from crowdrank.errors import UsageError
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import Judgments, offsets_from_sizes

MIN_DIFFERENCE_SD = 1e-9
"""Minimum standard deviation of the difference of two documents."""


@dataclass(frozen=True, eq=False)
class PairProbabilities:
    """Normal approximation of the joint posterior of relevance, from which P(one document above another) follows.

    Preferences make the errors of the documents that they compare depend on each other: the difference of two compared
    documents is known better than the relevance of each. Without preferences documents are independent.

    Attributes:
        query, document: ids of each document, (n_items,), sorted by query.
        offsets: first document of each query, (n_queries + 1,).
        relevance, sd: mean and standard deviation of each document, (n_items,).
        correlations: for queries with preferences, the documents with a preference and the correlations of their
            relevance, (k,) and (k, k).

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"left": ["a", "b", "a"], "right": ["b", "c", "c"], "assessor": "x", "preference": -1})
    >>> pairs = PairProbabilities.from_model(GDA().fit(None, preferences=rows))
    >>> pairs.matrix(np.arange(3)).round(2).diagonal().tolist(), bool(pairs.matrix(np.arange(3))[0, 2] > 0.5)
    ([0.5, 0.5, 0.5], True)

    """

    query: pa.Array
    document: pa.Array
    offsets: Integers
    relevance: Floats
    sd: Floats
    correlations: Mapping[int, tuple[Integers, Floats]]

    @classmethod
    def from_model(cls, model: Aggregator) -> Self:
        """Return the joint posterior of a fitted model whose relevance is on a line, in memory.

        Raises:
            UsageError: the model has no posterior of relevance, or its judgments are on disk.

        """
        model._require_fitted()
        estimator = model.assessor_estimator_
        if not estimator.on_a_line or not isinstance(model.judgments_, Judgments):
            problem = f"{type(model).__name__} has no joint posterior of relevance in memory"
            raise UsageError(problem, kind="no-joint-posterior", fix="use GDA (gda) with judgments in memory")
        table = model.consensus_.document_table
        query, document = (table[name].combine_chunks() for name in ("query", "document"))
        codes = query.dictionary_encode().indices.to_numpy()
        sizes = np.bincount(codes)
        relevance, sd = (table[name].to_numpy().astype(np.float64) for name in ("relevance", "sd"))
        found = {}
        if isinstance(estimator, GDA) and estimator.preferences_ is not None:
            found = _correlations(estimator, codes.astype(np.int64))
        return cls(query, document, offsets_from_sizes(sizes), relevance, sd, found)

    @cached_property
    def _place(self) -> Integers:
        """Place of each document among those of its query with a preference, -1 without one, (n_items,)."""
        place = np.full(len(self.relevance), -1, np.int64)
        for items, _ in self.correlations.values():
            place[items] = np.arange(len(items))
        return place

    def positions(self, query: pa.Array, document: pa.Array) -> Integers:
        """Return the index of documents with these ids, -1 if there is none, (n,)."""
        return PairIndex.from_ids(self.query, self.document).positions(query, document)

    def matrix(self, items: Integers) -> Floats:
        """Return P(row above column) of documents of one query, (n, n); 1/2 on the diagonal."""
        from scipy.special import ndtr

        relevance, sd = self.relevance[items], self.sd[items]
        variance = sd[:, None] ** 2 + sd**2 - 2 * self.correlation(items) * np.outer(sd, sd)
        probability = ndtr((relevance[:, None] - relevance) / np.sqrt(np.maximum(variance, MIN_DIFFERENCE_SD**2)))
        np.fill_diagonal(probability, 0.5)
        return np.asarray(probability)

    def correlation(self, items: Integers) -> Floats:
        """Return the correlations of the relevance of documents of one query, (n, n)."""
        correlation = np.eye(len(items))
        query = int(np.searchsorted(self.offsets, items[0], side="right")) - 1 if len(items) else 0
        if query in self.correlations:
            place = self._place[items]
            known = np.flatnonzero(place >= 0)
            correlation[np.ix_(known, known)] = self.correlations[query][1][np.ix_(place[known], place[known])]
        return correlation

    def of_queries(self, items: Integers, offsets: Integers) -> Floats:
        """Return the matrices of several queries as one array, for `LambdaMART.fit`.

        Args:
            items: documents, those of a query adjacent, (n,).
            offsets: first of them of each query, (n_queries + 1,).

        """
        parts = [self.matrix(items[start:stop]).ravel() for start, stop in pairwise(offsets)]
        return np.concatenate(parts) if parts else np.zeros(0)


@single_blas_thread()
def _correlations(model: GDA, query: Integers) -> dict[int, tuple[Integers, Floats]]:
    """Return items with a preference and the correlations of their relevance, by the number of their query."""
    _, theta, passes = model._open_passes(model.judgments_, model.preferences_)
    found, first = {}, 0
    for number in range(len(passes.shards)):
        shard = passes.shards.load(number)
        for items, _, covariance in shard_covariances(model, shard, theta):
            sd = np.sqrt(np.diagonal(covariance))
            found[int(query[first + items[0]])] = (first + items, covariance / np.outer(sd, sd))
        first += shard.n_items
    return found


def shard_covariances(model: GDA, shard: Shard, theta: Arrays) -> Iterator[tuple[Integers, Floats, Floats]]:
    """Yield items with a preference, the joint mode and the covariance of their relevance, for each query."""
    preferences = shard.preferences
    if preferences is None or not len(preferences):
        return
    local, shares = model._start(shard), theta["shares"]
    prior = shares if shard.score is None else model._item_priors(shard, theta)
    by_grades, _ = expectation_step(shard, theta["likelihood"], model._gold(theta), prior, local.get("weight"), shares)
    on_line = model._split(by_grades).sum(axis=1)
    on_line /= np.maximum(on_line.sum(axis=1, keepdims=True), 1e-300)
    yield from joint_covariances(preferences, on_line, theta["nodes"], theta, local["preference_weight"])
