"""Labeling schemes (Yang, Mityagin, Svore, Markov 2010): which pairs get how many labels, by simple rules.

Each is a policy (what to ask next) and a sampler (which labels of a fully labeled set it would have bought), and says
what a ranker learns from.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import kernels
from crowdrank.collection.base import Policy, RankedRequests, State, in_turn
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_judgments
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.instances import Instances

GOOD = 2.0
"""Of the grades 0-4 Bad, Fair, Good, Excellent, Perfect: good and above."""
MOST = 11
"""How many labels good-till-bad takes of one document, unless told."""


class Scheme(Policy):
    """What schemes share: how many more labels a pair needs follows from those that it has."""

    instances: ClassVar[str] = "overlap"
    """What a ranker learns from: every label (overlap), one (single), or what they say together (majority, highest)."""
    selective: ClassVar[bool] = True
    """Whether it matters if labels are good."""
    good: float
    _parameter_constraints: ClassVar[Constraints] = {"good": [Number()]}

    @abstractmethod
    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """How many more labels are needed, by how many there are, whether the first is good, and whether all are."""

    @abstractmethod
    def why(self, first: bool) -> str:
        """Why a label is asked for: the first of a pair, or a further one."""

    @property
    def most(self) -> int:
        """How many labels a document may come to have."""
        return 1

    @property
    def theta(self) -> float:
        """How often a good label counts."""
        return 1.0

    def wishes(self, state: State, model: Aggregator | None) -> RankedRequests:
        """First labels first, then second ones, and so on."""
        assert state.judgments is not None
        first_good, all_good = self._goodness(state)
        needed = self.needed(state.count, first_good, all_good)
        if state.out is not None:
            needed = np.maximum(needed - state.out, 0)
        needed[state.pool.planted] = 0
        pair = in_turn(np.flatnonzero(needed > 0), self.random_state)
        wanted = np.repeat(pair, needed[pair])
        number = np.arange(len(wanted)) - np.repeat(np.cumsum(needed[pair]) - needed[pair], needed[pair])
        number += state.count[wanted] if state.out is None else (state.count + state.out)[wanted]
        why = (self.why(first=True), self.why(first=False))
        return RankedRequests(wanted, -number.astype(np.float64), (number > 0).astype(np.int8), why)

    def _goodness(self, state: State) -> tuple[Booleans, Booleans]:
        assert state.judgments is not None
        if not self.selective:
            return np.zeros(len(state.item), bool), np.zeros(len(state.item), bool)
        first, every = goodness(state.judgments, self.good)
        if state.pool.made_of is state.judgments:
            return first, every
        item, judged = np.maximum(state.item, 0), state.item >= 0
        return first[item] & judged, every[item] & judged

    def sample(self, judgments: Any, random_state: int = 0) -> Judgments:
        """The labels of a fully labeled set that the scheme would have bought, asking in an order that is drawn."""
        self._check_parameters()
        table = as_judgments(judgments)
        item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        order = np.lexsort((np.random.default_rng(random_state).random(len(item)), item))
        number = np.arange(len(item)) - table.offsets[item]
        flags = np.zeros(len(item), bool) if not self.selective else good_labels(table, self.good)[order]
        kept = np.zeros(len(item), bool)
        kept[order] = self.bought(number, flags[table.offsets[:-1]][item], _good_before(flags, table.offsets, item))
        return table.where(kept)

    def bought(self, number: Integers, first_good: Booleans, good_before: Booleans) -> Booleans:
        """Which labels are bought, by their numbers (from 0), and whether the first, and all before, are good."""
        # The policy's own rule, asked label by label: is one more needed, where there are `number`?
        judged = number > 0
        bought: Booleans = self.needed(number, first_good & judged, good_before & judged) > 0
        return bought

    def training(
        self, sampled: Judgments, features: Any, *, lists: str = "duplicates", missing: str = "warn"
    ) -> Instances:
        """What a ranker learns from labels that were bought under the scheme."""
        return Instances.from_judgments(
            sampled,
            features,
            self.instances,
            lists=lists if self.instances == "overlap" else "duplicates",
            theta=self.theta,
            good=self.good,
            missing=missing,
        )


class _Counted(Scheme):
    """A scheme with a number."""

    k: int
    _parameter_constraints: ClassVar[Constraints] = {"k": [Number(1, integer=True)]}

    @property
    def most(self) -> int:
        """As its number says."""
        return self.k


class Single(Scheme):
    """One label of every document.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=5, random_state=1)
    >>> len(Single().sample(world.judgments)) == len(world.documents)
    True
    """

    instances: ClassVar[str] = "single"
    selective: ClassVar[bool] = False
    first: ClassVar[bool] = True

    def __init__(self, *, good: float = GOOD, random_state: int | None = None) -> None:
        self.good = good
        self.random_state = random_state

    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """One, where there is none."""
        return np.maximum(1 - count, 0)

    def why(self, first: bool) -> str:
        """There is none so far."""
        return "no label so far"


class Overlap(_Counted):
    """k labels of every document, each a training row of its own.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=5, random_state=1)
    >>> len(Overlap(3).sample(world.judgments)) == 3 * len(world.documents)
    True
    """

    selective: ClassVar[bool] = False

    def __init__(self, k: int = 3, *, good: float = GOOD, random_state: int | None = None) -> None:
        self.k = k
        self.good = good
        self.random_state = random_state

    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """K in all."""
        return np.maximum(self.k - count, 0)

    def why(self, first: bool) -> str:
        """Fewer than k."""
        return "no label so far" if first else f"fewer than {self.k} labels"


class Majority(Overlap):
    """k labels of every document; the majority is what a ranker learns from (of two tied grades the higher)."""

    instances: ClassVar[str] = "majority"


class Highest(Overlap):
    """k labels of every document; the highest is what a ranker learns from."""

    instances: ClassVar[str] = "highest"


class IfGood(_Counted):
    """One label of every document, and k - 1 more where the first is good.

    >>> import pandas as pd
    >>> from crowdrank.collection.pool import Pool
    >>> so_far = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [3, 0]})
    >>> requests = IfGood(3).next(Pool.read(so_far[["document"]]), so_far, None, 10)
    >>> requests.frame[["document", "reason"]].to_numpy().tolist()
    [['a', 'the first label is good'], ['a', 'the first label is good']]
    """

    def __init__(self, k: int = 3, *, good: float = GOOD, random_state: int | None = None) -> None:
        self.k = k
        self.good = good
        self.random_state = random_state

    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """One, or k where the first is good."""
        needed: Integers = np.maximum(np.where(first_good, self.k, 1) - count, 0)
        return needed

    def why(self, first: bool) -> str:
        """There is none, or the first is good."""
        return "no label so far" if first else "the first label is good"


class GoodTillBad(_Counted):
    """One label after the other until the first that is not good, at most k."""

    def __init__(self, k: int = MOST, *, good: float = GOOD, random_state: int | None = None) -> None:
        self.k = k
        self.good = good
        self.random_state = random_state

    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """One more, where all so far are good and fewer than k."""
        one_more: Integers = (((count == 0) | all_good) & (count < self.k)).astype(np.int64)
        return one_more

    def why(self, first: bool) -> str:
        """There is none, or all are good."""
        return "no label so far" if first else "all labels so far are good"


class IfGoodTimes(_Counted):
    """One label of every document; a good one counts k times, and nothing more is bought."""

    instances: ClassVar[str] = "single"
    selective: ClassVar[bool] = False
    first: ClassVar[bool] = True

    def __init__(self, k: int = 3, *, good: float = GOOD, random_state: int | None = None) -> None:
        self.k = k
        self.good = good
        self.random_state = random_state

    @property
    def most(self) -> int:
        """One."""
        return 1

    @property
    def theta(self) -> float:
        """K."""
        return float(self.k)

    def needed(self, count: Integers, first_good: Booleans, all_good: Booleans) -> Integers:
        """One, where there is none."""
        return np.maximum(1 - count, 0)

    def why(self, first: bool) -> str:
        """There is none so far."""
        return "no label so far"


def good_labels(judgments: Judgments, good: float) -> Booleans:
    """Whether each judgment is good; what cannot be judged is not.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]})
    >>> good_labels(read_judgments(votes), 2)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: A label is good from 2 up, but the scale 0,1 ends at 1; say from where with --good.
    """
    table = judgments.on_one_scale()
    return _good_codes(table, good)[table.grade]


def _good_codes(judgments: Judgments, good: float) -> Booleans:
    """Whether each grade is good, (n_grades + 1,): the last is what cannot be judged, whose code is -1."""
    values = np.array(judgments.scale.values)
    if good > values[-1]:
        raise UsageError(
            f"A label is good from {good:g} up, but the scale {judgments.scale} ends at {values[-1]:g}; "
            "say from where with --good."
        )
    return np.append(values >= good, False)


def goodness(judgments: Judgments, good: float) -> tuple[Booleans, Booleans]:
    """Per item, whether the first judgment is good, and whether all are; the first in time, where times are told."""
    table = judgments.on_one_scale()
    first, every = np.empty(table.n_items, bool), np.empty(table.n_items, bool)
    time = np.empty(0, np.int64)
    if "time" in table.extras:
        told = table.extras["time"].astype("datetime64[us]")
        time = np.where(np.isnat(told), np.iinfo(np.int64).max, told.view(np.int64))  # one without a time comes last
    kernels.goodness(table.offsets, table.grade, _good_codes(table, good), time, first, every)
    return first, every


def _good_before(flags: Booleans, offsets: NDArray[np.int64], item: Integers) -> Booleans:
    """Whether all labels of the item before each one are good."""
    bad: Floats = np.cumsum(~flags) - ~flags
    before: Booleans = bad == bad[offsets[:-1]][item]
    return before
