"""Validation measure of a ranker, and search for a hyperparameter on a grid that extends itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.evaluation.measures import effective_gains, parse_measure

if TYPE_CHECKING:
    from crowdrank.rankers.training_data import RankingData

NO_CUTOFF = int(np.iinfo(np.int32).max)
MEASURES = ("nDCG", "DCG", "AP", "ERR")
"""Measures that validation can compute."""
Evaluate = Callable[[float], float]
MAX_EXTENSIONS = 20
"""Maximum number of values that are added to a grid."""


class Validation:
    """Mean of a measure over the queries that have a relevant document; ties count as their expectation.

    >>> from crowdrank.rankers.training_data import RankingData
    >>> data = RankingData.from_ids(np.eye(2), [0, 1], ["q", "q"])
    >>> Validation(data, "nDCG@1")(np.array([0.0, 1.0])), Validation(data, "nDCG@1")(np.array([0.0, 0.0]))
    (1.0, 0.5)
    """

    def __init__(self, data: RankingData, measure: str = "nDCG@10", gains: Any = "exponential") -> None:
        from crowdrank.evaluation.evaluate import cumulative_discounts, ideal_dcg

        check_validation(measure)
        self.data, self.measure, self.gains = data, parse_measure(measure), gains
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
        """Return the value of every query with a relevant document; documents whose score is -inf are not ranked."""
        from crowdrank.evaluation import measure_kernels as exact
        from crowdrank.rankers.lambda_kernels import ranked_groups

        data, offsets = self.data, self.data.offsets
        scores = np.asarray(score, dtype=np.float64)
        order, new_group = ranked_groups(self.rows, self.query, scores, offsets, self.cutoff)
        is_ranked = scores[order] > -np.inf  # the others are last, and count as if they were not relevant
        if self.measure.name == "AP":
            is_relevant = (data.grade[order] >= self.measure.rel) & is_ranked
            totals = exact.precision_sum(is_relevant, new_group, offsets, self.cutoff)
        elif self.measure.name == "ERR":
            stop = np.minimum(data.gain("exponential")[order] / 2.0**self.measure.max_grade, 1.0) * is_ranked
            totals = exact.expected_reciprocal_rank(stop, new_group, offsets, self.cutoff)
        else:
            gain = self.gain[order] * is_ranked
            totals = exact.discounted_gain(gain, new_group, offsets, self.cumulative, self.cutoff)
        values: Floats = totals[self.defined] / self.ideal[self.defined]
        return values

    def __call__(self, score: Floats) -> float:
        """Return the mean over queries."""
        return float(self.per_query(score).mean())

    def take_queries(self, queries: Integers) -> Validation:
        """Return the measure of the rows of some queries, given by their numbers."""
        return Validation(self.data.take_queries(queries), str(self.measure), self.gains)


def check_validation(measure: str) -> None:
    """Raise UsageError for a measure that validation cannot compute."""
    name = parse_measure(measure).name
    if name not in MEASURES:
        problem = f"must be one of {', '.join(MEASURES)} (with options and cutoff), not {name}"
        raise UsageError(problem, parameter="validate_by", kind="invalid-parameter")


def choose_value(parameter: str, values: Sequence[float], evaluate: Evaluate | None) -> tuple[float, list[float]]:
    """Return the value with the highest result, and all results; several values are searched by :func:`search_grid`.

    Args:
        parameter: name of the parameter, for messages.
        values: one value, or the start of a grid.
        evaluate: function that returns the validation measure for a value; None without validation queries.

    """
    if evaluate is None:
        require_one_value(parameter, values)
        return values[0], []
    return search_grid(evaluate, values) if len(values) > 1 else (values[0], [evaluate(values[0])])


def require_one_value(parameter: str, values: Sequence[float]) -> None:
    """Raise UsageError if there are several values, for use without validation queries."""
    if len(values) > 1:
        fixes = [Fix("give {}, on which one is chosen", "eval_set"), Fix("give one value")]
        raise UsageError("has several values", parameter=parameter, kind="no-validation", fix=fixes)


def search_grid(evaluate: Evaluate, values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the value with the highest result, and all results in the order in which values were tried.

    While the best value is the largest or the smallest (above 0), the next value of the geometric grid is tried too.
    Of equal results the first wins.

    >>> search_grid(lambda value: -abs(value - 1000), [1.0, 10.0])[0]
    1000.0
    """
    results = {value: evaluate(value) for value in map(float, values)}
    positive = sorted(value for value in results if value > 0)
    ratio = positive[-1] / positive[-2] if len(positive) > 1 else 10.0
    for _ in range(MAX_EXTENSIONS):
        best = max(results, key=results.__getitem__)
        if best == max(results):
            beyond = best * ratio
        elif best == min(results) and best > 0:
            beyond = best / ratio
        else:
            break
        results[beyond] = evaluate(beyond)
    return max(results, key=results.__getitem__), list(results.values())
