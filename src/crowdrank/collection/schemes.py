"""Labeling schemes (Yang, Mityagin, Svore, Markov 2010): fixed rules for the number of labels of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection.base import NO_LABEL, Policy, shuffled
from crowdrank.collection.requests import RankedRequests
from crowdrank.collection.state import PoolState
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.rankers import InstanceKind
from crowdrank.rankers.instances import Instances

GOOD = 2.0
"""Default lowest grade of a good label: Good on the scale Bad, Fair, Good, Excellent, Perfect."""


@dataclass(frozen=True)
class Rule:
    """Rule of a scheme with the number k: which labels it requests, and which training instances they become."""

    request: Literal["one", "k", "k-if-first-good", "while-good"]
    """One label per document, k labels, k if the first label is good, or at most k until one is not good."""
    training: Literal["overlap", "majority", "highest"] = "overlap"
    """Every label is an instance, or one instance per document has the majority vote or the highest grade."""
    weight_good: bool = False
    """Whether good labels have the weight k."""


RULES = {
    "overlap": Rule("k"),
    "majority": Rule("k", "majority"),
    "highest": Rule("k", "highest"),
    "if-good": Rule("k-if-first-good"),
    "good-till-bad": Rule("while-good"),
    "if-good-x": Rule("one", weight_good=True),
}
"""Rule of each scheme."""
REASONS = {
    "one": NO_LABEL,
    "k": "fewer than k labels",
    "k-if-first-good": "the first label is good",
    "while-good": "all labels so far are good",
}
"""Reason for requesting another label of a document that has labels, by rule."""


class Scheme(Policy):
    """Labeling scheme: a rule for the labels to request and for the training instances that they become.

    Args:
        rule: name in `RULES`.
        k: number of labels, or weight of a good label.
        good: lowest grade of a good label.
        random_state: random order of the pairs; by default the order of the pool.

    >>> import pandas as pd
    >>> from crowdrank.collection.pool import Pool
    >>> labels = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [3, 0]})
    >>> requests = Scheme("if-good", 3).next(Pool.read(labels[["document"]]), labels, None, 10)
    >>> requests.frame[["document", "reason"]].to_numpy().tolist()
    [['a', 'the first label is good'], ['a', 'the first label is good']]

    """

    _parameter_constraints: ClassVar[Constraints] = {
        "rule": [OneOf(*RULES)],
        "k": [Number(1, integer=True)],
        "good": [Number()],
    }

    def __init__(
        self, rule: str = "overlap", k: int = 1, *, good: float = GOOD, random_state: int | None = None
    ) -> None:
        self.rule = rule
        self.k = k
        self.good = good
        self.random_state = random_state

    @property
    def _request(self) -> str:
        return RULES[self.rule].request

    @property
    def training(self) -> str:
        """How labels become training instances: `overlap` (every label), `majority` or `highest`."""
        return RULES[self.rule].training

    @property
    def max_labels(self) -> int:
        """Maximum number of labels per document."""
        return 1 if self._request == "one" else self.k

    @property
    def is_selective(self) -> bool:
        """Whether the number of labels depends on their grades."""
        return self._request in ("k-if-first-good", "while-good") and self.k > 1

    @property
    def good_weight(self) -> float:
        """Weight of a good label as a training instance."""
        return float(self.k) if RULES[self.rule].weight_good else 1.0

    def n_missing(self, n_labels: Integers, first_is_good: Booleans, all_are_good: Booleans) -> Integers:
        """Return how many more labels each document needs (n,).

        Args:
            n_labels: (n,) number of labels so far.
            first_is_good: (n,) whether the first label is good.
            all_are_good: (n,) whether all labels are good; True without labels.

        """
        match self._request:
            case "k-if-first-good":
                target = np.where(first_is_good, self.k, 1)
            case "while-good":
                target = np.where(all_are_good, np.minimum(n_labels + 1, self.k), 0)
            case _:
                target = np.full(len(n_labels), self.max_labels)
        return np.maximum(target - n_labels, 0)

    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Request first labels first, then second labels, and so on."""
        n_missing = self.n_missing(state.n_labels, *self._good_flags(state)) - state.n_requested
        n_missing[state.pool.is_honeypot | (n_missing < 0)] = 0
        pair = shuffled(np.flatnonzero(n_missing), self.random_state)
        repeats = n_missing[pair]
        number = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        pair = np.repeat(pair, repeats)
        number += (state.n_labels + state.n_requested)[pair]
        reasons = (NO_LABEL, REASONS[self._request].replace("than k", f"than {self.k}"))
        return RankedRequests(pair, -number.astype(np.float64), (number > 0).astype(np.int8), reasons)

    def _good_flags(self, state: PoolState) -> tuple[Booleans, Booleans]:
        """Return whether the first label, and whether every label, of each pair is good."""
        n = len(state.pool)
        if state.judgments is None or not self.is_selective:
            return np.zeros(n, bool), np.ones(n, bool)
        good = is_good(state.judgments, self.good)
        starts = state.judgments.offsets[:-1]
        order = label_order(state.judgments)
        first = good[starts if order is None else order[starts]]
        every = np.logical_and.reduceat(good, starts) if self._request == "while-good" else first
        if state.pool.source is state.judgments:
            return first, every
        item, is_judged = np.maximum(state.item, 0), state.item >= 0
        return first[item] & is_judged, every[item] | ~is_judged

    def sample(self, judgments: Any, random_state: int | None = None) -> Judgments:
        """Return the labels that the scheme would have bought of a set of labels.

        Args:
            judgments: `Judgments`, a path or a DataFrame.
            random_state: random order of the labels of a document; by default the order of their times.

        >>> import crowdrank
        >>> world = crowdrank.simulate(queries=2, documents=3, labels=5, random_state=1)
        >>> len(Scheme("overlap", 3).sample(world.judgments)) == 3 * len(world.documents)
        True

        """
        self._check_parameters()
        table = as_judgments(judgments)
        order = label_order(table, random_state)
        order = np.arange(len(table)) if order is None else order
        item = table.item
        number = np.arange(len(table)) - table.offsets[item]
        good = is_good(table, self.good)[order] if self.is_selective else np.zeros(len(table), bool)
        n_bad_before = np.cumsum(~good) - ~good
        all_good_before = n_bad_before == n_bad_before[table.offsets[:-1]][item]
        is_bought = np.zeros(len(table), bool)
        is_bought[order] = self.n_missing(number, good[table.offsets[:-1]][item], all_good_before) > 0
        return table.where(is_bought)

    def training_labels(self, judgments: Judgments) -> tuple[Integers, Floats, Floats]:
        """Return the item, grade and weight of every training instance that the labels become."""
        table = judgments.on_one_scale().with_unjudgeable("lowest")
        values, item = np.array(table.scale.values), table.item
        code = table.grade
        if self.training != "overlap":
            item, starts = np.arange(table.n_items), table.offsets[:-1]
            code = np.maximum.reduceat(table.grade, starts) if self.training == "highest" else _majority(table)
        grade = values[code]
        return item, grade, np.where(grade >= self.good, self.good_weight, 1.0)

    def training_instances(
        self, sampled: Judgments, features: Any, *, overlap: InstanceKind = "overlap", missing: str = "warn"
    ) -> Instances:
        """Return the training instances for a ranker.

        Args:
            sampled: labels that the scheme requests.
            features: features of the documents.
            overlap: instances of a scheme that uses every label: `overlap` or `per-judge-lists`.
            missing: as in :meth:`Instances.from_judgments`.

        """
        instances: InstanceKind = RULES[self.rule].training
        if instances == "overlap":
            instances = "weighted" if RULES[self.rule].weight_good else overlap
        return Instances.from_judgments(
            sampled, features, instances, good=self.good, good_weight=self.good_weight, missing=missing
        )


def _majority(table: Judgments) -> Any:
    """Return the code of the majority grade of each item (OVERLAP 4.1.2)."""
    votes = table.vote_counts()
    return choose_grades(votes / votes.sum(axis=1, keepdims=True), "mode")


def is_good(judgments: Judgments, good: float) -> Booleans:
    """Return whether each label is at least the grade `good`; a 'cannot judge' answer is not.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]})
    >>> is_good(read_judgments(votes), 2)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: good is 2, but the highest grade of the scale 0,1 is 1; give a lower grade with good=1.
    """
    table = judgments.on_one_scale()
    values = np.array(table.scale.values)
    if good > values[-1]:
        problem = f"is {good:g}, but the highest grade of the scale {table.scale} is {values[-1]:g}"
        fix = Fix("give a lower grade with {}", "good", int(values[-1]))
        raise UsageError(problem, parameter="good", kind="good-above-scale", fix=fix)
    return np.append(values >= good, False).take(table.grade)  # the code of 'cannot judge' is -1


def label_order(judgments: Judgments, random_state: int | None = None) -> Integers | None:
    """Return the rows of the labels, item by item, at random or by time; None if that is their order already."""
    if random_state is not None:
        key = np.random.default_rng(random_state).random(len(judgments))
    elif "time" in judgments.extras:
        time = judgments.extras["time"].astype("datetime64[us]")
        key = np.where(np.isnat(time), np.iinfo(np.int64).max, time.view(np.int64))  # unknown times are last
    else:
        return None
    return np.lexsort((key, judgments.item))
