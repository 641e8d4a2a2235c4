"""Progress of a collection: judged and settled documents, cost, forecast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection.base import State
from crowdrank.collection.belief import TELLING, Belief, tells
from crowdrank.collection.pool import Pool
from crowdrank.consensus._base import Aggregator
from crowdrank.errors import UsageError
from crowdrank.judgments.table import Judgments


@dataclass(frozen=True)
class Status:
    """How far a collection is."""

    documents: int
    judged: int
    settled: int | None  # None where the model does not say how assessors answer
    level: float
    labels: int
    assessors: int
    spent: float
    forecast_labels: int | None
    forecast: float | None

    def told(self) -> list[str]:
        """In plain sentences."""
        price = self.spent / max(self.labels, 1)
        judged = f"{counted(self.documents, 'document')} in the pool: {self.judged:,} judged"
        if self.settled is not None:
            judged += f", {self.settled:,} settled at {self.level:.0%} ({self.settled / max(self.documents, 1):.0%})"
        return [
            f"{judged}.",
            f"{counted(self.labels, 'label')} by {counted(self.assessors, 'assessor')}, {self.spent:g} spent "
            f"({price:.3g} a label).",
            self._rest_told(),
        ]

    def _rest_told(self) -> str:
        if self.forecast_labels is None:
            return f"How many are settled, and what the rest may cost, is for -m {', '.join(TELLING)} to say."
        if not self.forecast_labels:
            return "Everything is settled."
        return (
            f"About {counted(self.forecast_labels, 'label')} more (about {self.forecast:,.0f}) would settle the rest: "
            "as many as its uncertainty divided by what a label is expected to tell now; a rough guide."
        )


def status(pool: Pool, judgments: Judgments, model: Aggregator, *, level: float = 0.95, price: float = 1.0) -> Status:
    """How much is judged and settled, what was spent, and what settling the rest may cost.

    Votes do not say how sure they are; by them, only what was judged and spent is known.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=4, documents=5, labels=3, random_state=1)
    >>> judged = crowdrank.read_judgments(world.judgments)
    >>> status(Pool.of(judged), judged, crowdrank.DawidSkene().fit(judged)).judged == judged.n_items
    True
    """
    if not 0 < level < 1:
        raise UsageError(f"--settled is {level!r}; give a level between 0 and 1, as 0.95.")
    state = State.of(pool, judgments)
    pair = np.flatnonzero(~pool.planted)
    cost = judgments.extras.get("cost")
    spent = float(np.where(np.isnan(cost), price, cost).sum()) if cost is not None else price * len(judgments)
    settled, more = _settled(Belief.of(state, model), state, pair, level) if tells(model) else (None, None)
    return Status(
        documents=len(pair),
        judged=int((state.count[pair] > 0).sum()),
        settled=settled,
        level=level,
        labels=len(judgments),
        assessors=judgments.n_assessors,
        spent=spent,
        forecast_labels=more,
        forecast=None if more is None else more * spent / len(judgments),
    )


def _settled(belief: Belief, state: State, pair: Integers, level: float) -> tuple[int, int]:
    """How many pairs are settled, and how many labels the others may take."""
    done = (belief.certainty(pair) >= level) & (state.count[pair] > 0)
    left = pair[~done]
    more = labels_to_go(belief.entropy(left), belief.drop(left), belief.settled_entropy(level))
    return int(done.sum()), int(more.sum())


def labels_to_go(uncertainty: Floats, told: Floats, goal: float) -> Integers:
    """Labels until a document's entropy is that of a settled one (`goal`), at what a label tells now; at least 1."""
    number: Integers = np.maximum(np.ceil((uncertainty - goal) / np.maximum(told, 0.02)), 1).astype(np.int64)
    return number
