"""Progress of a collection: judged and settled documents, costs, and a forecast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.collection.belief import Belief, describes_answers
from crowdrank.collection.pool import Pool
from crowdrank.collection.state import PoolState
from crowdrank.consensus._base import Aggregator
from crowdrank.constraints import Number, check_parameter
from crowdrank.judgments.table import Judgments

MIN_INFORMATION = 0.02
"""Lowest expected information of a label in a forecast, in nats."""


@dataclass(frozen=True)
class Status:
    """Progress of a collection."""

    documents: int
    judged: int
    settled: int | None  # None if the model does not describe how assessors answer
    level: float  # probability of its grade at which a document is settled
    labels: int
    assessors: int
    spent: float
    forecast_labels: int | None  # number of labels that the other documents need
    forecast: float | None  # their price


def collection_status(
    pool: Pool, judgments: Judgments, model: Aggregator, *, settled: float = 0.95, price: float = 1.0
) -> Status:
    """Return how many documents are judged and settled, what was spent, and what settling the others may cost.

    Args:
        pool: documents that may be judged.
        judgments: the judgments so far.
        model: model fitted to them; only models of how assessors answer tell which documents are settled.
        settled: probability of its grade at which a document is settled.
        price: price of a label whose cost is unknown.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=4, documents=5, labels=3, random_state=1)
    >>> judgments = crowdrank.read_judgments(world.judgments)
    >>> status = collection_status(Pool.of(judgments), judgments, crowdrank.DawidSkene().fit(judgments))
    >>> status.judged == judgments.n_items
    True

    """
    check_parameter("settled", settled, [Number(0, 1, above=True, below=True)])
    state = PoolState.of(pool, judgments)
    pair = np.flatnonzero(~pool.is_honeypot)
    cost = judgments.extras.get("cost", np.full(len(judgments), np.nan))
    spent = float(np.where(np.isnan(cost), price, cost).sum())
    n_settled, n_needed = None, None
    if describes_answers(model):
        n_settled, n_needed = _count_settled(Belief.of(state, model), state, pair, settled)
    return Status(
        documents=len(pair),
        judged=int((state.n_labels[pair] > 0).sum()),
        settled=n_settled,
        level=settled,
        labels=len(judgments),
        assessors=judgments.n_assessors,
        spent=spent,
        forecast_labels=n_needed,
        forecast=None if n_needed is None else n_needed * spent / len(judgments),
    )


def _count_settled(belief: Belief, state: PoolState, pair: Integers, level: float) -> tuple[int, int]:
    """Return the number of settled pairs, and of labels that the others need."""
    is_settled = (belief.certainty(pair) >= level) & (state.n_labels[pair] > 0)
    others = pair[~is_settled]
    needed = labels_needed(belief.entropy(others), belief.information(others), belief.settled_entropy(level))
    return int(is_settled.sum()), int(needed.sum())


def labels_needed(entropy: Floats, information: Floats, settled_entropy: float) -> Integers:
    """Return the number of labels, at least 1, until the entropy is that of a settled document.

    Every label is assumed to have the information of the next one.
    """
    number = np.ceil((entropy - settled_entropy) / np.maximum(information, MIN_INFORMATION))
    return np.maximum(number, 1).astype(np.int64)
