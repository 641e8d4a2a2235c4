"""EM with fewer true classes than grades (Metrikov, Pavlu, Aslam 2015, section 3.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crowdrank._typing import Arrays, Floats
from crowdrank.consensus.dawid_skene import DawidSkene, confusions
from crowdrank.consensus.result import discrete_rows, restrict_to_gold
from crowdrank.consensus.votes import shard_votes
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import Shard


def grade_classes(n_grades: int, n_classes: int) -> Floats:
    """Return the share of each class in each grade at the start, (n_grades, n_classes), by its place on the scale.

    >>> grade_classes(3, 2).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    place = np.linspace(0, n_classes - 1, n_grades)
    shares: Floats = np.maximum(1 - np.abs(place[:, None] - np.arange(n_classes)), 0.0)
    return shares


class FewClassDawidSkene(DawidSkene):
    """Dawid-Skene by maximum likelihood, with confusion matrices of all grades by fewer true classes.

    A class stands for the grades that the crowd gives its documents; these rank the documents.

    Args:
        n_classes: number of true classes.

    """

    def __init__(self, n_classes: int) -> None:
        super().__init__(prior=0)
        self.n_classes = n_classes

    def _with_states(self, shard: Shard) -> Shard:
        """Return the shard with the classes of expert grades instead of grades."""
        return replace(shard, gold_sets=shard.gold_sets @ grade_classes(shard.n_grades, self.n_classes) > 0)

    def _start(self, shard: Shard) -> Arrays:
        """Return the initial posterior: shares of votes, divided among the classes."""
        votes, local = shard_votes(shard), self._shard_weights(shard)
        posterior = votes / votes.sum(axis=1, keepdims=True) @ grade_classes(shard.n_grades, self.n_classes)
        restrict_to_gold(posterior, self._with_states(shard))
        return {**local, "posterior": posterior}

    def _pseudo_counts(self, theta: Arrays | None, counts: Floats, n_jobs: int, weights: Floats | None) -> Floats:
        return np.zeros(counts.shape[1:])

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with P(grade | class) of the whole crowd, and the statistics."""
        whole: Floats = confusions(statistics["counts"].sum(axis=0)[None], np.zeros(theta["pseudo"].shape), 0.0)[0]
        return {**theta, "typical": whole}, statistics

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        grades = local["posterior"] @ theta["typical"].T
        return {**discrete_rows(grades, grades.copy(), shard, self.interval), **self._effective_sizes(shard)}

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        return {}
