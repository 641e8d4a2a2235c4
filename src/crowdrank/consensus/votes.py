"""Vote counts (majority, average, highest grade): no model of assessors, and one pass over the judgments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import PROBABILITY_RANGE
from crowdrank._numba import njit
from crowdrank._typing import Arrays
from crowdrank.consensus.assembly import add_agreements
from crowdrank.consensus.family_weights import nested_weights
from crowdrank.consensus.grade_rules import DEFAULT_RULE, choose_grades
from crowdrank.consensus.latent import normal_quantile
from crowdrank.consensus.model import EMAggregator, Inputs, Table, ThetaArray
from crowdrank.consensus.result import restrict_to_gold
from crowdrank.engine.shards import Shard, items_of
from crowdrank.errors import DataWarning
from crowdrank.judgments.gold import Gold

if TYPE_CHECKING:
    import pandas as pd


class _Vote(EMAggregator):
    """Base of models by vote counts: the grades of each item are counted.

    `sd` is the standard error of the mean grade of an item. One vote with the grade distribution of all votes is added
    to the votes of each item, so that a single judgment is not certain. `lower` and `upper` are normal quantiles,
    limited to the scale.
    """

    n_iter: ClassVar[int] = 1  # type: ignore[misc]
    tol: ClassVar[float] = 0.0  # type: ignore[misc]
    carries: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[Inputs] = ("soft labels",)
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {"shares": ThetaArray(bounds=PROBABILITY_RANGE)}

    def __init__(self, *, unjudgeable_as: str = "lowest", interval: float = 0.95) -> None:
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _grades(self, votes: NDArray[np.float64]) -> NDArray[np.int8]:
        """Return the code of the grade of each item from its votes, (n_items, n_grades)."""
        return choose_grades(votes / votes.sum(axis=1, keepdims=True), self.grade_by)

    def _relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the relevance of each item: by default the value of its grade."""
        return values[self._grades(votes)]

    def _start(self, shard: Shard) -> Arrays:
        """Return the vote counts of each item, restricted to the grades that an expert grade stands for."""
        votes = self._count(shard)
        restrict_to_gold(votes, shard)
        return {"votes": votes}

    def _count(self, shard: Shard) -> NDArray[np.float64]:
        """Return the votes of each item, (n_items, n_grades); a soft label is divided among its grades."""
        return shard_votes(shard, self._weights(shard))

    def _weights(self, shard: Shard) -> NDArray[np.float64] | None:
        """Return the weight of each judgment, (n,), or None if all are 1."""
        return None

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Return sums of votes by grade, and by assessor the number of judgments and of agreements with the result."""
        agreed, asked = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        grades = self._grades(local["votes"])
        add_agreements(
            shard.offsets, shard.assessor, shard.grade, grades, np.eye(shard.n_grades, dtype=np.bool_), agreed, asked
        )
        return local, {"votes": local["votes"].sum(axis=0), "agreed": agreed, "asked": asked}

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return the parameter `shares`: share of each grade among all votes, (n_grades,)."""
        return {"shares": statistics["votes"] / statistics["votes"].sum()}

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        votes, values = local["votes"], shard.values
        relevance = self._relevance(votes, values)
        n = votes.sum(axis=1) + 1.0
        smoothed = (votes + theta["shares"]) / n[:, None]
        mean = smoothed @ values
        sd = np.sqrt(np.maximum(smoothed @ values**2 - mean**2, 0.0) / (n + 1.0))
        sd[shard.gold_sets[shard.gold].sum(axis=1) == 1] = 0.0
        reach = normal_quantile(0.5 + self.interval / 2) * sd
        return {
            "relevance": relevance,
            "sd": sd,
            "lower": np.maximum(relevance - reach, values[0]),
            "upper": np.minimum(relevance + reach, values[-1]),
            "p": votes / votes.sum(axis=1, keepdims=True),
        }

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        return {"agreement": statistics["agreed"] / statistics["asked"]}


class MajorityVote(_Vote):
    """The most frequent grade; of two tied grades the higher one, of three the middle one (OVERLAP 4.1).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "b"], "worker": ["x", "y", "x"], "label": [0, 1, 0]})
    >>> MajorityVote().fit_predict(votes).to_dict()
    {'a': 1, 'b': 0}
    """

    grade_by: ClassVar[str] = "mode"  # type: ignore[misc]

    @property
    def skills_(self) -> pd.Series[Any]:
        """Share of items on which each assessor agrees with the majority; crowd-kit's name."""
        return self._assessor_series("agreement", "skill")


class Average(_Vote):
    """The mean grade.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]})
    >>> Average().fit(votes).consensus_.documents["relevance"].tolist()
    [0.5]
    """

    _label_rule: ClassVar[str] = "mean"

    def __init__(self, *, unjudgeable_as: str = "lowest", interval: float = 0.95, grade_by: str = DEFAULT_RULE) -> None:
        super().__init__(unjudgeable_as=unjudgeable_as, interval=interval)
        self.grade_by = grade_by

    def _relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = votes @ values / votes.sum(axis=1)
        return mean


class FamilyMean(Average):
    """The mean of the mean grades of each family, whatever the number of its judgments of a document.

    For assessors who err together (prompts of one language model, one vendor's crowd) and would otherwise outvote
    everyone else. An assessor without a family is a family of one; without any families this is :class:`Average`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": "a", "assessor": ["x1", "x2", "x3", "y"], "grade": [0, 0, 0, 1],
    ...                       "family": ["x", "x", "x", "y"]})
    >>> FamilyMean().fit(votes).consensus_.documents["relevance"].tolist()
    [0.5]
    """

    def _annotate(self, table: Table, gold: Gold | None) -> tuple[Table, list[DataWarning]]:
        if table.families is not None:
            return table, []
        fix = "name the families in a column family, or by a pattern or separator in the names of assessors"
        return table, [
            DataWarning("There are no families, so that this is the plain average", kind="no-families", fix=fix)
        ]

    def _weights(self, shard: Shard) -> NDArray[np.float64]:
        finest = shard.family_levels[-1:]
        return np.asarray(nested_weights(shard.offsets, shard.assessor, finest, np.ones(finest.shape)))


class Highest(_Vote):
    """The highest grade of any judgment.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a"], "assessor": ["x", "y", "z"], "grade": [0, 0, 2]})
    >>> Highest().fit(votes).consensus_.documents["grade"].tolist()
    [2]
    """

    takes: ClassVar[Inputs] = ()  # hardly any grade has the probability 0
    grade_by: ClassVar[str] = "highest"  # type: ignore[misc]
    _label_rule: ClassVar[str] = "highest"


def shard_votes(shard: Shard, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the votes of each item, (n_items, n_grades); a soft label is divided among its grades.

    Args:
        shard: the judgments.
        weight: weight of each judgment, (n,); None: all are 1.

    """
    if shard.soft is not None:
        weights = shard.soft.weights(weight)
        return np.asarray(count_weighted_votes(shard.soft.offsets, shard.soft.grade, weights, shard.n_grades))
    if weight is not None:
        return np.asarray(count_weighted_votes(shard.offsets, shard.grade, weight, shard.n_grades))
    return np.asarray(count_votes(shard.offsets, shard.grade, shard.n_grades))


def _count_votes(offsets: NDArray[np.int64], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.float64]:
    cell = items_of(offsets) * n_grades + grade
    return np.bincount(cell, minlength=(len(offsets) - 1) * n_grades).reshape(-1, n_grades).astype(np.float64)


@njit(nogil=True, numpy=_count_votes)
def count_votes(offsets: NDArray[np.int64], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.float64]:
    """Return the number of judgments of each item with each grade, (n_items, n_grades)."""
    # offsets (n_items + 1,), grade (n,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0
    return votes


def _count_weighted_votes(
    offsets: NDArray[np.int64], grade: NDArray[np.int8], weight: NDArray[np.float64], n_grades: int
) -> NDArray[np.float64]:
    cell = items_of(offsets) * n_grades + grade
    votes = np.bincount(cell, weight, minlength=(len(offsets) - 1) * n_grades)
    return votes.reshape(-1, n_grades).astype(np.float64, copy=False)


@njit(nogil=True, numpy=_count_weighted_votes)
def count_weighted_votes(
    offsets: NDArray[np.int64], grade: NDArray[np.int8], weight: NDArray[np.float64], n_grades: int
) -> NDArray[np.float64]:
    """Return the total weight of the judgments of each item with each grade, (n_items, n_grades)."""
    # offsets (n_items + 1,), grade and weight (n,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += weight[j]
    return votes
