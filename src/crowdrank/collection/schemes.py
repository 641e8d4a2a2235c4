"""Labeling schemes (Yang, Mityagin, Svore, Markov 2010): rules for the number of labels, and their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from crowdrank._estimator import require_number
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import GOOD, get_policy
from crowdrank.collection.policy import NO_LABEL, Policy, shuffled
from crowdrank.collection.requests import PoolState, RankedRequests
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.model import Aggregator
from crowdrank.constraints import Constraints, Number, OneOf, check_parameter
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.rankers import InstanceKind
from crowdrank.rankers.training_labels import Instances


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
"""Rule of each labeling scheme: how many labels a document gets, and how they become one."""
REASONS = {
    "one": NO_LABEL,
    "k": "fewer than k labels",
    "k-if-first-good": "the first label is good",
    "while-good": "all labels so far are good",
}
"""Reason for requesting another label of a document that has labels, by rule."""


class Scheme(Policy):
    """Labeling scheme: a rule for the labels to request and for the training instances that they become.

    OVERLAP: Yang, Mityagin, Svore, Markov 2010: Collecting High Quality Overlapping Labels at Low Cost (SIGIR).

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
            first_is_good: (n,) whether the first label is at least the lowest good grade.
            all_are_good: (n,) whether all labels are; True without labels.

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
        table = judgments.to_one_scale().with_unjudgeable("lowest")
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
    table = judgments.to_one_scale()
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


DEFAULT_SCHEMES = (
    "single", "overlap-3", "majority-3", "highest-3", "if-good-2", "if-good-3", "good-till-bad", "if-good-x3",
)  # fmt: skip


@dataclass(frozen=True)
class SchemeCost:
    """Cost of a labeling scheme, as in OVERLAP's Tables 6-8.

    Attributes:
        scheme: name of the scheme.
        documents: number of documents.
        labeling_overhead: labels bought per document.
        formula: the same by the formula; an upper bound for good-till-bad.
        training_overhead: total weight of the training instances per document.
        rest_to_good: ratio of other to good labels among the training instances, by weight.
        money: price of the labels.
        counted: whether the labels were counted; otherwise the figures are expectations.

    """

    scheme: str
    documents: int
    labeling_overhead: float
    formula: float
    training_overhead: float
    rest_to_good: float
    money: float
    counted: bool

    @property
    def labels(self) -> float:
        """Number of labels bought."""
        return self.documents * self.labeling_overhead


@dataclass(frozen=True)
class LabelRates:
    """Rates of good labels.

    Attributes:
        good_share: share of good labels among the first labels of documents.
        repeat_agreement: share of good labels among further labels of documents whose first label is good; NaN if
            there are none.

    """

    good_share: float
    repeat_agreement: float = float("nan")

    def __post_init__(self) -> None:
        check_parameter("good_share", self.good_share, [Number(0, 1)])
        if not np.isnan(self.repeat_agreement):
            check_parameter("repeat_agreement", self.repeat_agreement, [Number(self.good_share, 1)])

    @classmethod
    def of(cls, judgments: Judgments, good: float = GOOD, random_state: int | None = None) -> LabelRates:
        """Return the rates of judgments, whose first labels are the earliest, or random ones with a random state."""
        flags, starts = is_good(judgments, good), judgments.offsets[:-1]
        order = label_order(judgments, random_state)
        flags = flags if order is None else flags[order]
        first = flags[starts]
        n_further = int((np.diff(judgments.offsets) - 1)[first].sum())
        n_good = int(np.add.reduceat(flags.astype(np.int64), starts)[first].sum()) - int(first.sum())
        share = float(first.mean())
        # Two labels of a document agree at least as often as those of different documents.
        return cls(share, max(n_good / n_further, share) if n_further else float("nan"))

    def good_counts(self, k: int) -> Floats:
        """Return the probability of 0, ..., k good labels among k labels of a document (beta-binomial)."""
        p, share = np.ones(1), self.good_share
        correlation = 0.0 if share == 1 else (self.repeat_agreement - share) / (1 - share)
        for number in range(k):
            n_good = np.arange(number + 1)
            p_good = np.full(1, share)
            if number:
                p_good = (share * (1 - correlation) + n_good * correlation) / (1 + (number - 1) * correlation)
            p = np.append(p * (1 - p_good), 0.0) + np.append(0.0, p * p_good)
        return p


def formula_overhead(scheme: Scheme, good_share: float) -> float:
    """Return the labels per document of a scheme (OVERLAP 5.2); an upper bound for good-till-bad.

    With the ratio r of good to other first labels, if-good-k buys n / (r + 1) + n r k / (r + 1) labels of n documents.

    >>> formula_overhead(Scheme("if-good", 3), 0.2)
    1.4
    """
    return 1 + good_share * (scheme.max_labels - 1) if scheme.is_selective else float(scheme.max_labels)


def counted_cost(
    scheme: Scheme, judgments: Judgments, price: float | None = None, random_state: int | None = None, name: str = ""
) -> SchemeCost:
    """Return the cost of the labels of a set that a scheme buys.

    Args:
        scheme: the scheme.
        judgments: the set of labels, of which every document should have at least as many as the scheme requests.
        price: price of a label; by default the costs in the judgments, and 1 for labels without.
        random_state: random order of the labels; by default their times.
        name: name of the scheme.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=5, documents=4, labels=5, random_state=1)
    >>> counted_cost(Scheme("overlap", 2), crowdrank.read_judgments(world.judgments)).labeling_overhead
    2.0

    """
    share = LabelRates.of(judgments, scheme.good, random_state).good_share
    bought = scheme.sample(judgments, random_state)
    _, grade, weight = scheme.training_labels(bought)
    total, good = float(weight.sum()), float(weight[grade >= scheme.good].sum())
    cost = bought.extras["cost"] if price is None and "cost" in bought.extras else np.full(len(bought), np.nan)
    money = float(np.where(np.isnan(cost), 1.0 if price is None else price, cost).sum())
    n, formula = bought.n_items, formula_overhead(scheme, share)
    return SchemeCost(name, n, len(bought) / n, formula, total / n, _ratio(total - good, good), money, True)


def expected_cost(scheme: Scheme, documents: int, rates: LabelRates, price: float = 1.0, name: str = "") -> SchemeCost:
    """Return the expected cost of a scheme for documents with given rates of good labels.

    The number of good labels of a document is beta-binomial. Figures that need an unknown repeat agreement are NaN.

    >>> cost = expected_cost(Scheme("if-good", 3), 1000, LabelRates(0.212, 0.526), price=0.05)
    >>> round(cost.labeling_overhead, 2), round(cost.rest_to_good, 2), round(cost.money, 1)
    (1.42, 2.27, 71.2)
    """
    p_good, k = rates.good_share, scheme.max_labels
    counts = rates.good_counts(k)
    labels = formula_overhead(scheme, p_good)
    good, instances = p_good * k, labels
    if scheme.training != "overlap":
        instances = 1.0
        good = float(counts[-(-k // 2) :].sum() if scheme.training == "majority" else 1 - counts[0])
    elif scheme.rule == "if-good":
        good = p_good * (1 + (k - 1) * rates.repeat_agreement) if k > 1 else p_good
    elif scheme.rule == "good-till-bad":
        all_good = [float(rates.good_counts(number)[-1]) for number in range(1, k + 1)]
        labels = instances = 1 + sum(all_good[:-1])
        good = sum(all_good)
    training = instances if scheme.good_weight == 1 else instances + good * (scheme.good_weight - 1)
    ratio, money = _ratio(instances - good, good * scheme.good_weight), documents * labels * price
    return SchemeCost(name, documents, labels, formula_overhead(scheme, p_good), training, ratio, money, False)


def _ratio(rest: float, good: float) -> float:
    return rest / good if good else float("inf")


def scheme_costs(
    judgments: Any = None,
    schemes: Sequence[str] = DEFAULT_SCHEMES,
    *,
    documents: int | None = None,
    good_share: float | None = None,
    repeat_agreement: float | None = None,
    good: float = GOOD,
    price: float | None = None,
) -> list[SchemeCost]:
    """Return the cost of labeling schemes on a set of labels, or for given rates of good labels.

    The labels of a scheme are counted if the judgments have all of them. Otherwise, and if `documents` or a rate is
    given, the figures are expectations from the rates.

    Args:
        judgments: labels, such as those of a pilot: `Judgments`, a path, a DataFrame, or None.
        schemes: names of schemes.
        documents: number of documents to label; by default those of the judgments.
        good_share: share of good first labels; by default that of the judgments.
        repeat_agreement: share of good labels among further labels of documents whose first label is good; by default
            that of the judgments.
        good: lowest grade of a good label.
        price: price of a label; by default the costs in the judgments, or 1.

    >>> [cost] = scheme_costs(schemes=["if-good-3"], documents=1000, good_share=0.2)
    >>> cost.labels, cost.formula
    (1400.0, 1.4)

    """
    chosen = {name: _get_scheme(name, good) for name in schemes}
    if price is not None:
        require_number("price", price, 0)
    if documents is not None:
        check_parameter("documents", documents, [Number(1, integer=True)])
    table = None if judgments is None else as_judgments(judgments)
    if table is None and (documents is None or good_share is None):
        missing = "documents" if documents is None else "good_share"
        problem = "Costs need judgments, or the number of documents and the share of good first labels"
        raise UsageError(problem, kind="no-rates", fix=Fix("give {}", missing))
    own = LabelRates(0.0) if table is None else LabelRates.of(table, good)
    share = own.good_share if good_share is None else good_share
    rates = LabelRates(share, own.repeat_agreement if repeat_agreement is None else repeat_agreement)
    is_given = documents is not None or good_share is not None or repeat_agreement is not None
    n_documents = documents if documents is not None else 0 if table is None else table.n_items
    label_price = price if price is not None else _mean_price(table)
    costs = []
    for name, scheme in chosen.items():
        if table is not None and not is_given and _has_all_labels(scheme, table):
            costs.append(counted_cost(scheme, table, price, name=name))
        else:
            costs.append(expected_cost(scheme, n_documents, rates, label_price, name))
    return costs


def _get_scheme(name: str, good: float) -> Scheme:
    policy = get_policy(name)
    if not isinstance(policy, Scheme):
        raise UsageError(
            f"{name} is not a labeling scheme, so its cost does not follow from rates", kind="not-a-scheme"
        )
    return policy.set_params(good=good)


def _has_all_labels(scheme: Scheme, judgments: Judgments) -> bool:
    """Return whether the judgments have every label that a scheme requests."""
    return not len(scheme.next(judgments, judgments, None, float(len(judgments) * scheme.max_labels)))


def _mean_price(judgments: Judgments | None) -> float:
    """Return the mean cost of the labels that have one, or 1."""
    cost = np.empty(0) if judgments is None else judgments.extras.get("cost", np.empty(0))
    return float(np.nanmean(cost)) if np.isfinite(cost).any() else 1.0
