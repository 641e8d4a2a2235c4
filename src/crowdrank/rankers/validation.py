"""How good scores are on validation queries, fast enough to be asked after every round."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation import kernels as exact
from crowdrank.evaluation.measures import effective_gains, parse_measure
from crowdrank.evaluation.scoring import cumulative_discounts, ideal_dcg
from crowdrank.rankers.kernels import ranked_groups
from crowdrank.rankers.ranking_data import Lists

EVERY_RANK = int(np.iinfo(np.int32).max)
SCORED = ("nDCG", "DCG", "AP", "ERR")


class Validation:
    """The mean of a measure over the queries that have a relevant document; equal scores count as their expectation.

    >>> from crowdrank.rankers.ranking_data import gather
    >>> lists = gather(np.eye(2), [0, 1], ["q", "q"])
    >>> Validation(lists, "nDCG@1")(np.array([0.0, 1.0])), Validation(lists, "nDCG@1")(np.array([0.0, 0.0]))
    (1.0, 0.5)
    """

    def __init__(self, lists: Lists, measure: str = "nDCG@10", gains: Any = "exponential") -> None:
        self.lists, self.measure = lists, parse_measure(measure)
        check_validation(measure)
        self.cutoff = self.measure.cutoff or EVERY_RANK
        self.gain = lists.gain(effective_gains(self.measure, gains))
        self.rows, self.query = np.arange(len(lists.y)), lists.query
        self.cumulative = cumulative_discounts(int(np.diff(lists.offsets).max()))
        best = ideal_dcg(self.gain, self.query, lists.offsets, self.cumulative, self.measure.cutoff)
        self.relevant = np.add.reduceat((lists.y >= self.measure.rel).astype(np.float64), lists.offsets[:-1])
        self.defined = self.relevant > 0 if self.measure.name == "AP" else best > 0
        self.ideal = {"nDCG": best, "AP": self.relevant}.get(self.measure.name, np.ones(len(best)))
        if not self.defined.any():
            raise InputError(
                "no validation query has a relevant document", fix="give others, or leave the validation set out"
            )

    def per_query(self, score: Floats) -> Floats:
        """The value of every query that has a relevant document."""
        offsets = self.lists.offsets
        order, new_group = ranked_groups(
            self.rows, self.query, np.asarray(score, dtype=np.float64), offsets, self.cutoff
        )
        if self.measure.name == "AP":
            found = exact.precision_sum(self.lists.y[order] >= self.measure.rel, new_group, offsets, self.cutoff)
        elif self.measure.name == "ERR":
            stops = np.minimum(self.lists.gain("exponential")[order] / 2.0**self.measure.max_grade, 1.0)
            found = exact.expected_reciprocal_rank(stops, new_group, offsets, self.cutoff)
        else:
            found = exact.discounted_gain(self.gain[order], new_group, offsets, self.cumulative, self.cutoff)
        values: Floats = found[self.defined] / self.ideal[self.defined]
        return values

    def __call__(self, score: Floats) -> float:
        """The mean over queries."""
        return float(self.per_query(score).mean())


def check_validation(measure: str) -> None:
    """Refuse a measure that validation cannot compute."""
    name = parse_measure(measure).name
    if name not in SCORED:
        raise UsageError(f"validate_by is one of {', '.join(SCORED)} (with options and cutoff), not {name}.")
