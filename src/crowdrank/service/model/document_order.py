"""Order of documents by the preferences of a project, and what it says about comparisons of two of them.

GDA estimates the relevance of each document on a line. The difference of two documents has a normal distribution whose
variance is the sum of both; in truth they are positively correlated, so that the order is a little more certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, xlogy

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.preference_assessors import answer_probabilities
from crowdrank.judgments.preferences import Preferences

N_NODES = 15
"""Number of nodes of Gauss-Hermite quadrature over the difference of two documents."""
INTERVAL_SD = 1.959963984540054
"""Half the width of a 95% interval, in standard deviations."""

Compared = tuple[str, str, str]
"""Ids of a query and of two documents: the first and the other one of a comparison."""


@dataclass(frozen=True, eq=False)
class ComparisonEstimates:
    """What the model says about comparisons.

    Attributes:
        difference: (n,) expected relevance of the first document minus that of the other one.
        sd: (n,) standard deviation of the difference.
        shares: (n, 3) probability that an average assessor answers that the first is better, tie, or the other one.
        certainty: (n,) probability of the order of the two documents.
        information: (n,) expected information of an answer of an average assessor about the difference, in nats.
        rank: (n,) rank of the better one of the two documents in its query, from 0.

    """

    difference: Floats
    sd: Floats
    shares: Floats
    certainty: Floats
    information: Floats
    rank: Integers


@dataclass(frozen=True, eq=False)
class DocumentOrder:
    """Relevance of the documents of each query, by preferences.

    Attributes:
        relevance: mean and standard deviation by query and document; others have the prior N(0, 1).
        ranks: rank of each document in its query, from 0.
        assessor: parameters of the average assessor, without position bias: (1, 4).
        active: which of the parameters are estimated, (4,).

    """

    relevance: Mapping[tuple[str, str], tuple[float, float]]
    ranks: Mapping[tuple[str, str], int]
    assessor: Floats
    active: Booleans

    @classmethod
    def fit(cls, preferences: Preferences) -> DocumentOrder:
        """Fit GDA to preferences."""
        model = GDA().fit(None, preferences=preferences)
        table = model.consensus_.document_table
        names = list(zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True))
        means, sds = table["relevance"].to_pylist(), table["sd"].to_pylist()
        queries: dict[str, list[int]] = {}
        for row in np.argsort(-np.array(means), kind="stable").tolist():
            queries.setdefault(names[row][0], []).append(row)
        ranks = {names[row]: rank for rows in queries.values() for rank, row in enumerate(rows)}
        assessor = np.where([True, False, True, True], model.theta_["preference_mean"], 0.0)[None]
        relevance = dict(zip(names, zip(means, sds, strict=True), strict=True))
        return cls(relevance, ranks, assessor, model.theta_["preference_active"])

    def compare(self, compared: Sequence[Compared]) -> ComparisonEstimates:
        """Return estimates of comparisons."""
        pairs = [((query, first), (query, other)) for query, first, other in compared]
        found = np.array([[self.relevance.get(name, (0.0, 1.0)) for name in pair] for pair in pairs]).reshape(-1, 2, 2)
        difference, sd = found[:, 0, 0] - found[:, 1, 0], np.hypot(found[:, 0, 1], found[:, 1, 1])
        nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
        at = (difference[:, None] + sd[:, None] * nodes).ravel()
        answers = answer_probabilities(self.assessor, self.active, at)[0]
        by_node = np.stack([answers[:, 3:].sum(axis=1), answers[:, 2], answers[:, :2].sum(axis=1)], axis=1)
        by_node, weights = by_node.reshape(-1, N_NODES, 3), weights / weights.sum()
        shares = np.einsum("nkg,k->ng", by_node, weights)
        information = (xlogy(by_node, by_node).sum(axis=2) @ weights) - xlogy(shares, shares).sum(axis=1)
        last = len(self.ranks)
        rank = np.array([min(self.ranks.get(name, last) for name in pair) for pair in pairs], np.int64)
        certainty = ndtr(np.abs(difference) / sd)
        return ComparisonEstimates(difference, sd, shares, certainty, np.maximum(information, 0.0), rank)
