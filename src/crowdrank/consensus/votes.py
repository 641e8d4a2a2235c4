"""Votes: no assumption about assessors, one pass (OVERLAP 4.1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from crowdrank._numba import njit
from crowdrank._saved import PROBABILITY
from crowdrank._typing import Arrays
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.gold_accuracy import count_gold_agreements
from crowdrank.consensus.result import modal_grades
from crowdrank.engine.shards import Shard

if TYPE_CHECKING:
    import pandas as pd


class _Vote(Aggregator):
    """What votes share: the counts of grades per item, and how often each assessor agrees with the outcome.

    `sd` is the standard error of the item's mean grade, its votes smoothed by one vote spread as the whole crowd
    votes, so that one judgment is not taken for certainty; `lower` and `upper` are normal bounds within the scale.
    """

    n_iter: ClassVar[int] = 1  # type: ignore[misc]
    tol: ClassVar[float] = 0.0  # type: ignore[misc]
    carries: ClassVar[tuple[str, ...]] = ()
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"shares": PROBABILITY}

    def __init__(self, *, unjudgeable_as: str = "lowest", interval: float = 0.95) -> None:
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    @abstractmethod
    def relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The relevance of each item from its votes (n_items, n_grades) and the values of the grades."""

    def voted(self, votes: NDArray[np.float64]) -> NDArray[np.int8]:
        """The grade of each item, as a code."""
        return modal_grades(votes / votes.sum(axis=1, keepdims=True))

    def _start(self, shard: Shard) -> Arrays:
        """Count the votes; an expert grade overrules them."""
        votes = self.count(shard)
        known = shard.gold >= 0
        votes[known] = np.eye(shard.n_grades)[shard.gold[known]]
        return {"votes": votes}

    def count(self, shard: Shard) -> NDArray[np.float64]:
        """The votes for each grade of each item: (n_items, n_grades)."""
        votes: NDArray[np.float64] = count_votes(shard.offsets, shard.grade, shard.n_grades)
        return votes

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """How the crowd as a whole votes, and who agrees with the outcome."""
        agreed, asked = np.zeros(shard.n_assessors), np.zeros(shard.n_assessors)
        voted = self.voted(local["votes"])
        count_gold_agreements(shard.offsets, shard.assessor, shard.grade, voted, agreed, asked)
        return local, {"votes": local["votes"].sum(axis=0), "agreed": agreed, "asked": asked}

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """The shares of the grades over all votes."""
        return {"shares": statistics["votes"] / statistics["votes"].sum()}

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """The outcome of the vote, and how sure it is."""
        votes, values = local["votes"], shard.values
        relevance = self.relevance(votes, values)
        n = votes.sum(axis=1) + 1.0
        smoothed = (votes + theta["shares"]) / n[:, None]
        mean = smoothed @ values
        sd = np.sqrt(np.maximum(smoothed @ values**2 - mean**2, 0.0) / (n + 1.0))
        sd[shard.gold >= 0] = 0.0
        reach = norm.ppf(0.5 + self.interval / 2) * sd
        return {
            "relevance": relevance,
            "sd": sd,
            "lower": np.maximum(relevance - reach, values[0]),
            "upper": np.minimum(relevance + reach, values[-1]),
            "grade": self.voted(votes),
            "p": votes / votes.sum(axis=1, keepdims=True),
        }

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """How often each assessor gives the grade that the vote ends on."""
        return {"agreement": statistics["agreed"] / statistics["asked"]}


class MajorityVote(_Vote):
    """The most frequent grade; of two tied grades the higher, of three the middle one, and so on.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "b"], "worker": ["x", "y", "x"], "label": [0, 1, 0]})
    >>> MajorityVote().fit_predict(votes).to_dict()
    {'a': 1, 'b': 0}
    """

    @property
    def skills_(self) -> pd.Series[Any]:
        """How often each assessor agrees with the majority, by crowd-kit's name."""
        return self._assessor_series("agreement", "skill")

    def relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of the grade voted for."""
        return values[self.voted(votes)]


class Average(_Vote):
    """The mean grade. Its `grade` is the grade nearest to the mean.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]})
    >>> Average().fit(votes).consensus_.documents["relevance"].tolist()
    [0.5]
    """

    def voted(self, votes: NDArray[np.float64]) -> NDArray[np.int8]:
        """The grade nearest to the mean, in places; half-way the higher."""
        places = np.arange(votes.shape[1])
        nearest: NDArray[np.int8] = np.floor(votes @ places / votes.sum(axis=1) + 0.5).astype(np.int8)
        return nearest

    def relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of the values."""
        mean: NDArray[np.float64] = votes @ values / votes.sum(axis=1)
        return mean


class FamilyMean(Average):
    """The mean of the families' means: however many assessors a family has on a document, it has one voice.

    For assessors that err together (prompts of one language model, one vendor's crowd), who would otherwise outvote
    everyone else. An assessor without a family is a family of one; without any families this is the average.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": "a", "assessor": ["x1", "x2", "x3", "y"], "grade": [0, 0, 0, 1],
    ...                       "family": ["x", "x", "x", "y"]})
    >>> FamilyMean().fit(votes).consensus_.documents["relevance"].tolist()
    [0.5]
    """

    def count(self, shard: Shard) -> NDArray[np.float64]:
        """A judgment counts as one by the number of its family's on the item."""
        votes: NDArray[np.float64] = count_family_votes(
            shard.offsets, shard.assessor, shard.grade, shard.family, shard.n_grades
        )
        return votes


class Highest(_Vote):
    """The highest grade anyone gave.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a"], "assessor": ["x", "y", "z"], "grade": [0, 0, 2]})
    >>> Highest().fit(votes).consensus_.documents["grade"].tolist()
    [2]
    """

    def voted(self, votes: NDArray[np.float64]) -> NDArray[np.int8]:
        """The highest grade with a vote."""
        highest: NDArray[np.int8] = (votes.shape[1] - 1 - (votes[:, ::-1] > 0).argmax(axis=1)).astype(np.int8)
        return highest

    def relevance(self, votes: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of the highest grade."""
        return values[self.voted(votes)]


@njit(cache=True, nogil=True)
def count_votes(offsets: NDArray[np.int64], grade: NDArray[np.int8], n_grades: int) -> NDArray[np.float64]:
    """How many judgments give each item each grade."""
    # offsets (n_items + 1,), grade (n,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0
    return votes


@njit(cache=True, nogil=True)
def count_family_votes(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    family: NDArray[np.int32],
    n_grades: int,
) -> NDArray[np.float64]:
    """As count_votes, but each family has one vote per item, shared among its judgments."""
    # family (n_assessors,) -> (n_items, n_grades)
    votes = np.zeros((len(offsets) - 1, n_grades))
    voices = np.zeros(family.max() + 1)
    for item in range(len(offsets) - 1):
        for j in range(offsets[item], offsets[item + 1]):
            voices[family[assessor[j]]] += 1.0
        for j in range(offsets[item], offsets[item + 1]):
            votes[item, grade[j]] += 1.0 / voices[family[assessor[j]]]
        for j in range(offsets[item], offsets[item + 1]):
            voices[family[assessor[j]]] = 0.0
    return votes
