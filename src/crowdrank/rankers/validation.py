"""Validation measure of a ranker, fast enough to be computed after every round."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import effective_gains, parse_measure
from crowdrank.rankers.ranking_data import RankingData

NO_CUTOFF = int(np.iinfo(np.int32).max)
MEASURES = ("nDCG", "DCG", "AP", "ERR")
"""Measures that validation can compute."""


class Validation:
    """Mean of a measure over the queries that have a relevant document; ties count as their expectation.

    >>> data = RankingData.from_ids(np.eye(2), [0, 1], ["q", "q"])
    >>> Validation(data, "nDCG@1")(np.array([0.0, 1.0])), Validation(data, "nDCG@1")(np.array([0.0, 0.0]))
    (1.0, 0.5)
    """

    def __init__(self, data: RankingData, measure: str = "nDCG@10", gains: Any = "exponential") -> None:
        from crowdrank.evaluation.scoring import cumulative_discounts, ideal_dcg

        check_validation(measure)
        self.data, self.measure = data, parse_measure(measure)
        self.cutoff = self.measure.cutoff or NO_CUTOFF
        self.gain = data.gain(effective_gains(self.measure, gains))
        self.rows, self.query = np.arange(len(data.grade)), data.query
        self.cumulative = cumulative_discounts(int(np.diff(data.offsets).max()))
        best = ideal_dcg(self.gain, self.query, data.offsets, self.cumulative, self.measure.cutoff)
        n_relevant = np.add.reduceat((data.grade >= self.measure.rel).astype(np.float64), data.offsets[:-1])
        self.defined = n_relevant > 0 if self.measure.name == "AP" else best > 0
        self.ideal = {"nDCG": best, "AP": n_relevant}.get(self.measure.name, np.ones(len(best)))
        if not self.defined.any():
            fix = "give other queries, or leave out the validation set"
            raise InputError("no validation query has a relevant document", fix=fix)

    def per_query(self, score: Floats) -> Floats:
        """Return the value of every query that has a relevant document."""
        from crowdrank.evaluation import kernels as exact
        from crowdrank.rankers.kernels import ranked_groups

        data, offsets = self.data, self.data.offsets
        scores = np.asarray(score, dtype=np.float64)
        order, new_group = ranked_groups(self.rows, self.query, scores, offsets, self.cutoff)
        if self.measure.name == "AP":
            totals = exact.precision_sum(data.grade[order] >= self.measure.rel, new_group, offsets, self.cutoff)
        elif self.measure.name == "ERR":
            stop = np.minimum(data.gain("exponential")[order] / 2.0**self.measure.max_grade, 1.0)
            totals = exact.expected_reciprocal_rank(stop, new_group, offsets, self.cutoff)
        else:
            totals = exact.discounted_gain(self.gain[order], new_group, offsets, self.cumulative, self.cutoff)
        values: Floats = totals[self.defined] / self.ideal[self.defined]
        return values

    def __call__(self, score: Floats) -> float:
        """Return the mean over queries."""
        return float(self.per_query(score).mean())


def check_validation(measure: str) -> None:
    """Raise UsageError for a measure that validation cannot compute."""
    name = parse_measure(measure).name
    if name not in MEASURES:
        problem = f"must be one of {', '.join(MEASURES)} (with options and cutoff), not {name}"
        raise UsageError(problem, parameter="validate_by", kind="invalid-parameter")
