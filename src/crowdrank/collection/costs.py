"""Costs of labeling schemes: labels bought, training instances, and the ratio of other to good labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdrank._base import require_number
from crowdrank._typing import Floats
from crowdrank.collection import get_policy
from crowdrank.collection.schemes import GOOD, Scheme, is_good, label_order
from crowdrank.consensus._coerce import as_judgments
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.table import Judgments

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
