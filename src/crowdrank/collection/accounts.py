"""What labels cost: how many are bought, how many a ranker learns from, and what they do to the share of good ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crowdrank.collection.schemes import Scheme, good_labels
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.judgments.table import Judgments


def expected_cost(documents: float, ratio: float, k: float) -> float:
    """Labels that if-good-k buys of so many documents, by the ratio of good to other first labels (OVERLAP 5.2.1).

    For good-till-bad with at most k it is a bound.

    >>> expected_cost(100, 0.25, 3)
    140.0
    """
    return documents / (ratio + 1) + documents * ratio * k / (ratio + 1)


@dataclass(frozen=True)
class Account:
    """The costs of a scheme on one set of labels, as in OVERLAP's Tables 6-8."""

    documents: int
    labels: int
    labeling: float  # labels bought by documents
    training: float  # what a ranker learns from, by documents; a label that counts k times counts k times
    rest_to_good: float  # of what a ranker learns from
    expected: float | None  # labels by the formula, where the scheme has one
    money: float

    def to_dict(self) -> dict[str, Any]:
        """As a mapping."""
        return asdict(self)


def account(scheme: Scheme, sampled: Judgments, first_good: float | None = None, price: float = 1.0) -> Account:
    """The costs of labels that were bought under a scheme.

    Args:
        scheme: under which they were bought.
        sampled: the labels bought.
        first_good: the ratio of good to other labels among the first of each document; where it is told, the labels
            that if-good-k (or at most good-till-bad) costs follow from it.
        price: of a label, where the judgments have no costs of their own.

    >>> import crowdrank
    >>> from crowdrank.collection.schemes import Overlap
    >>> world = crowdrank.simulate(queries=5, documents=4, labels=5, random_state=1)
    >>> account(Overlap(2), Overlap(2).sample(world.judgments)).labeling
    2.0
    """
    n = sampled.n_items
    value, weight = _learned(scheme, sampled)
    good = value >= scheme.good
    count = weight[good].sum()
    cost = sampled.extras.get("cost")
    money = float(np.where(np.isnan(cost), price, cost).sum()) if cost is not None else price * len(sampled)
    formula = scheme.selective and first_good is not None
    return Account(
        documents=n,
        labels=len(sampled),
        labeling=len(sampled) / n,
        training=float(weight.sum()) / n,
        rest_to_good=float(weight[~good].sum() / count) if count else float("inf"),
        expected=expected_cost(n, first_good, scheme.most) if formula and first_good is not None else None,
        money=money,
    )


def first_ratio(scheme: Scheme, judgments: Judgments, random_state: int) -> float:
    """The ratio of good to other labels among the first of each document, as the scheme's sample with a seed has it."""
    first = type(scheme)().set_params(**{**scheme.get_params(), **({"k": 1} if "k" in scheme.get_params() else {})})
    good = good_labels(first.sample(judgments, random_state), scheme.good)
    return float(good.sum() / max((~good).sum(), 1))


def _learned(scheme: Scheme, sampled: Judgments) -> tuple[Any, Any]:
    """The grades that a ranker learns from, and what each counts."""
    table = sampled.on_one_scale().with_unjudgeable("lowest")
    values = np.array(table.scale.values)
    if scheme.instances in ("overlap", "single"):
        value = values[table.grade]
        return value, np.where(value >= scheme.good, scheme.theta, 1.0)
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    if scheme.instances == "highest":
        return values[np.maximum.reduceat(table.grade, table.offsets[:-1])], np.ones(table.n_items)
    votes = np.zeros((table.n_items, len(values)))
    np.add.at(votes, (item, table.grade), 1.0)
    return values[choose_grades(votes / votes.sum(axis=1, keepdims=True), "mode")], np.ones(table.n_items)
