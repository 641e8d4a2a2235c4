"""Checks that a policy satisfies its contract."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._assessor_kinds import DEFAULT_KIND
from crowdrank.collection.policy import Policy
from crowdrank.collection.pool import ANYONE, Pool, Roster
from crowdrank.collection.requests import Budget, Requests
from crowdrank.consensus.dawid_skene import DawidSkene
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import CrowdrankError, DataWarning, InputError, UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.readers.combine import combine
from crowdrank.readers.read import read_judgments
from crowdrank.simulation.world import World, simulate
from crowdrank.testing.estimator_checks import raises, record_warnings

N_RANDOM_ROSTERS = 30
"""Number of random rosters (lists of available assessors) with random budgets in a check."""
EAGER_PARAMETERS = {"k": 6, "settled": None}
"""Parameters with which crowdrank's policies request more labels for documents that have three labels already."""


@cache
def example_judgments() -> Judgments:
    """Return judgments with about three labels per document."""
    return read_judgments(_example_world().judgments)


@cache
def _example_world() -> World:
    """Return the simulated documents and judgments of the checks."""
    return simulate(queries=6, documents=8, labels=3, assessors=12, random_state=3)


@cache
def _fitted_model() -> Aggregator:
    """Return a model that is fitted to the example judgments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DawidSkene().fit(example_judgments())


def _eager_copy(policy: Policy, random_state: int | None = None) -> Policy:
    """Return a copy of the policy that requests many labels."""
    parameters = {**EAGER_PARAMETERS, "random_state": random_state}
    parameter_names = policy._parameter_names()
    return policy.unfitted().set_params(
        **{name: value for name, value in parameters.items() if name in parameter_names}
    )


def _request_labels(policy: Policy, budget: Any = 40, pool: Pool | None = None) -> Requests:
    """Return the next requests of a policy after the example judgments."""
    judgments = example_judgments()
    return policy.next(pool or Pool.of(judgments), judgments, _fitted_model() if policy.takes_model else None, budget)


def _pool_with_roster(prices: Any = 1.0) -> Pool:
    """Return the pool of the example judgments with all of their assessors available."""
    judgments = example_judgments()
    return Pool.of(judgments).with_roster(Roster.of(judgments.assessors, DEFAULT_KIND, prices))


def check_first_labels(policy: Policy) -> None:
    """Check that without judgments a policy requests every pair equally often, and warns if it needs a model."""
    pool = Pool.of(example_judgments())
    with record_warnings() as found:
        requests = _eager_copy(policy).next(pool, None, None, 1000)
    n_requests = np.bincount(requests.pair, minlength=len(pool))
    assert n_requests.min() == n_requests.max() > 0, "every pair must be requested, and equally often"
    assert not requests.is_honeypot.any(), "without honeypots in the pool, none may be requested"
    warned = [one for one in found if isinstance(one, DataWarning)]
    assert len(warned) == policy.takes_model, f"a policy that needs a model must warn once: {warned}"


def _wants_more_labels(policy: Policy) -> bool:
    """Return whether a policy requests more labels for documents that have some."""
    return len(_request_labels(_eager_copy(policy), 1000)) > 0


def check_features(policy: Policy) -> None:
    """Check that a policy without a model refuses features, and one with a model requests pairs predicted by them."""
    judgments, eager = example_judgments(), _eager_copy(policy)
    pool, n_unlabeled = Pool.of(judgments), 8
    documents = _example_world().documents
    noise = np.random.default_rng(0).normal(0, 0.5, len(documents))
    scores = documents[["query", "document"]].assign(score=documents["relevance"] + noise)
    if not policy.takes_model:
        with raises(UsageError, "features for a policy without a model", kind="no-model", parameter="features"):
            eager.next(pool, judgments, None, 10, features=scores)
        return
    known = judgments.where(judgments.item >= n_unlabeled)
    requests = eager.next(pool, known, DawidSkene().fit(known, features=scores), 1000)
    assert (requests.pair < len(pool)).all(), "requests must name pairs of the pool"
    if _wants_more_labels(policy):
        missing = np.setdiff1d(np.arange(n_unlabeled), requests.pair)
        assert not len(missing), "pairs without a label whose relevance is predicted must be requested"


def check_invalid_budgets(policy: Policy) -> None:
    """Check that a budget that is not a positive number is refused."""
    for money in (0, -5, float("nan"), float("inf"), "12", True, None):
        with raises(UsageError, f"a budget of {money!r}"):
            _request_labels(_eager_copy(policy), money)


def check_same_seed_same_requests(policy: Policy) -> None:
    """Check that the same random state gives the same requests."""
    for pool in (Pool.of(example_judgments()), _pool_with_roster()):
        one, other = (_request_labels(_eager_copy(policy, random_state=4), 30, pool).to_arrow() for _ in range(2))
        assert one.equals(other), "the same random_state must give the same requests"


def check_requests_are_complete(policy: Policy) -> None:
    """Check the columns, pairs and reasons of requests; without a roster they must be open to any assessor."""
    requests = _request_labels(_eager_copy(policy), 25)
    table = requests.to_arrow()
    columns = ["query", "document", "assessor", "kind", "price", "reason"]
    assert table.column_names == columns, f"requests must have the columns {columns}, not {table.column_names}"
    assert len(table) == len(requests) <= 25, "25 units must buy at most 25 labels of price 1"
    assert (requests.assessor == ANYONE).all(), "without a roster requests must be for anyone"
    assert all(requests.reason.astype(bool)), "every request must have a reason"
    query, document = (table[name].combine_chunks() for name in ("query", "document"))
    places = example_judgments().positions(query, document)
    assert (places == requests.pair).all(), "requests must name pairs of the pool"


def check_random_rosters(policy: Policy) -> None:
    """Check with random rosters and budgets that requests keep all limits.

    The limits are on cost, on labels per assessor, on repeated judgments and on the share of honeypots.
    """
    rng = np.random.default_rng(0)
    fulfilled = sum(_check_random_roster(policy, rng) for _ in range(N_RANDOM_ROSTERS))
    expected = N_RANDOM_ROSTERS // 3 if _wants_more_labels(policy) else 0
    assert fulfilled >= expected, f"only {fulfilled} of {N_RANDOM_ROSTERS} random budgets gave requests"


def _check_random_roster(policy: Policy, rng: np.random.Generator) -> bool:
    """Check a random roster and budget; return whether the policy made requests."""
    judgments, pool = example_judgments(), _pool_with_roster()
    assert pool.roster is not None
    n_assessors, money = len(pool.roster), float(rng.uniform(0.3, 200))
    max_labels = None if rng.random() < 0.3 else int(rng.integers(1, 26))
    honeypot_share, random_state = float(rng.choice([0.0, 0.2])), (None, 1, 2)[rng.integers(3)]
    roster = Roster(pool.roster.assessors, pool.roster.kind, rng.choice([0.0, 0.25, 1.0, 3.0, 50.0], n_assessors))
    allowed = None
    if rng.random() < 0.5:  # three assessors for each pair
        who = (np.arange(len(pool))[:, None] * 5 + np.array([0, 3, 7])) % n_assessors
        allowed = (np.arange(len(pool) + 1) * 3, who.ravel().astype(np.int32))
    honeypot_answers = pa.array(["1" if number % 10 == 0 else None for number in range(len(pool))], pa.string())
    pool = Pool(pool.query, pool.document, roster, allowed, honeypot_answers, judgments)
    refusal: CrowdrankError | None = None
    try:
        requests = _request_labels(
            _eager_copy(policy, random_state), Budget(money, most=max_labels, honeypots=honeypot_share), pool
        )
    except (InputError, UsageError) as error:
        refusal = error
    if refusal is not None:
        expected = refusal.kind in ("nobody-left", "budget-too-small")
        assert expected, f"a round without requests must say why, not: {refusal}"
        return False
    assert requests.cost <= money + 1e-6, f"requests cost {requests.cost:g} of {money:g}"
    unexplained = money - requests.cost - sum(part.money for part in requests.unspent)
    assert abs(unexplained) < 1e-6, f"{unexplained:g} of {money:g} is neither spent nor explained"
    assert (requests.price == roster.price[requests.assessor]).all(), "a request must have the price of its assessor"
    n_judged, n_requested = (np.bincount(one, minlength=n_assessors) for one in (judgments.assessor, requests.assessor))
    if max_labels is not None:
        assert (n_requested[n_requested > 0] + n_judged[n_requested > 0] <= max_labels).all(), (
            f"an assessor has more than {max_labels} labels"
        )
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    judged_pairs = set(zip(item.tolist(), judgments.assessor.tolist(), strict=True))
    requested_pairs = list(zip(requests.pair.tolist(), requests.assessor.tolist(), strict=True))
    assert len(set(requested_pairs)) == len(requested_pairs), "an assessor is requested twice for one pair"
    assert not judged_pairs & set(requested_pairs), "an assessor is requested for a pair that they judged"
    if allowed is not None:
        is_allowed = all(who in allowed[1][3 * pair : 3 * pair + 3] for pair, who in requested_pairs)
        assert is_allowed, "a request goes to an assessor who may not judge the pair"
    assert (requests.is_honeypot == pool.is_honeypot[requests.pair]).all(), "honeypots must be marked as such"
    honeypot_cost = float(requests.price[requests.is_honeypot].sum())
    assert honeypot_cost <= money * honeypot_share + 1e-6, "honeypots cost more than their share"
    return bool(len(requests))


def check_nobody_left(policy: Policy) -> None:
    """Check the error that is raised if labels are needed and no assessor is left to give them."""
    if not _wants_more_labels(policy):
        return
    pool = Pool.of(example_judgments()).with_roster(Roster.of(["worker-new"]))
    first = _request_labels(_eager_copy(policy), Budget(1000, most=1), pool)
    label = pd.DataFrame([{**first.frame.iloc[0][["query", "document", "assessor"]], "grade": 0}])
    judgments = combine(example_judgments(), read_judgments(label, grades="0-4"))
    model = DawidSkene().fit(judgments) if policy.takes_model else None
    with raises(InputError, "a round in which nobody is left", kind="nobody-left"):
        _eager_copy(policy).next(pool, judgments, model, Budget(1000, most=1))


def check_budget_too_small(policy: Policy) -> None:
    """Check the error that is raised if the budget is below the price of a label."""
    if not _wants_more_labels(policy):
        return
    with raises(UsageError, "a budget of 1 for labels of price 5", kind="budget-too-small"):
        _request_labels(_eager_copy(policy), 1, _pool_with_roster(5.0))
    with raises(UsageError, "a budget of 1 for labels of price 2", kind="budget-too-small"):
        _request_labels(_eager_copy(policy), Budget(1, prices={DEFAULT_KIND: 2}))


def check_judgments_outside_of_the_pool(policy: Policy) -> None:
    """Check that a policy notes judgments of documents that are not in the pool."""
    small_pool = Pool.read(example_judgments().frame[["query", "document"]].head(20))
    requests = _request_labels(_eager_copy(policy), 10, small_pool)
    assert any(note.kind == "judgments-outside-pool" for note in requests.notes), (
        "judgments outside of the pool must be noted"
    )
