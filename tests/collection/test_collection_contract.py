"""The contract of every policy. The classes are found by introspection: a new policy is tested by existing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank import DawidSkene, Judgments, read_judgments
from crowdrank.collection import POLICIES, get_policy
from crowdrank.collection.base import Policy
from crowdrank.collection.pool import ANYONE, Pool, Roster
from crowdrank.collection.requests import Budget, Requests
from crowdrank.consensus.base import Aggregator
from crowdrank.errors import DataWarning, InputError, UsageError
from crowdrank.judgments.merge import combine


def every_policy() -> list[type[Policy]]:
    for module in pkgutil.iter_modules(crowdrank.collection.__path__):
        importlib.import_module(f"crowdrank.collection.{module.name}")
    found, waiting = [], [Policy]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("crowdrank.") and not inspect.isabstract(cls):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


EVERY = every_policy()
each = pytest.mark.parametrize("cls", EVERY)


@cache
def judged(labels: int = 3) -> Judgments:
    world = crowdrank.simulate(queries=6, documents=8, labels=labels, assessors=12, random_state=3)
    return read_judgments(world.judgments)


@cache
def fitted(labels: int = 3) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DawidSkene().fit(judged(labels))


def eager(cls: type[Policy], seed: int | None = None) -> Policy:
    """A policy that still wants labels of documents with three."""
    more = {"k": 6, "settled": None, "random_state": seed}
    policy = cls()
    return policy.set_params(**{name: value for name, value in more.items() if name in policy.get_params()})


def ask(policy: Policy, budget: Any = 40, *, pool: Pool | None = None, labels: int = 3) -> Requests:
    table = judged(labels)
    return policy.next(pool or Pool.of(table), table, fitted(labels) if policy.takes_model else None, budget)


def crowd_pool(prices: Any = 1.0, kinds: Any = "crowd") -> Pool:
    return Pool.of(judged()).with_roster(Roster.of(judged().assessors, kinds, prices))


def test_every_name_makes_a_policy_and_every_policy_has_a_name() -> None:
    named = {type(get_policy(name[:-1] + "3" if name.endswith("k") else name)) for name in POLICIES}
    assert named == set(EVERY)


@each
def test_the_constructor_only_stores(cls: type[Policy]) -> None:
    policy = cls()
    for name, value in policy.get_params().items():
        assert getattr(policy, name) is value
    assert repr(policy) == f"{cls.__name__}()"
    with pytest.raises(UsageError, match="has no parameter 'nothing'"):
        policy.set_params(nothing=1)


@each
def test_no_judgments_yet_falls_back_to_single_and_says_so(cls: type[Policy]) -> None:
    pool, policy = Pool.of(judged()), eager(cls)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asked = policy.next(pool, None, None, 1000)
    assert sorted(asked.pair.tolist()) == list(range(len(pool)))
    assert asked.reasons() == {"no label so far": len(pool)}
    told = [str(one.message) for one in said if issubclass(one.category, DataWarning)]
    assert told == (
        [] if cls.first else ["There are no judgments yet: one label of every pair is asked for first (single)."]
    )


@each
@pytest.mark.parametrize("money", [0, -5, float("nan"), float("inf"), "12", True, None])
def test_a_budget_that_is_none_is_refused(cls: type[Policy], money: Any) -> None:
    with pytest.raises(UsageError, match="give a number above 0"):
        ask(eager(cls), money)


@each
def test_the_same_seed_asks_for_the_same(cls: type[Policy]) -> None:
    for pool in (Pool.of(judged()), crowd_pool()):
        one, other = (ask(eager(cls, seed=4), 30, pool=pool) for _ in range(2))
        assert one.to_arrow().equals(other.to_arrow())


@each
def test_requests_name_pairs_of_the_pool_with_reason_and_price(cls: type[Policy]) -> None:
    asked = ask(eager(cls), 25)
    table = asked.to_arrow()
    assert table.column_names == ["query", "document", "assessor", "kind", "price", "reason"]
    assert len(table) == len(asked) <= 25
    assert table["assessor"].null_count == len(asked)
    assert all(asked.reason.astype(bool))
    assert (judged().positions(table["query"].combine_chunks(), table["document"].combine_chunks()) == asked.pair).all()


PRICES = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 50.0]), min_size=12, max_size=12)


@each
@settings(max_examples=15)
@given(
    price=PRICES,
    money=st.floats(0.3, 200),
    most=st.one_of(st.none(), st.integers(1, 25)),
    seed=st.one_of(st.none(), st.integers(0, 3)),
    honeypots=st.sampled_from([0.0, 0.2]),
    narrow=st.booleans(),
)
def test_budget_load_and_nobody_twice(
    cls: type[Policy],
    price: list[float],
    money: float,
    most: int | None,
    seed: int | None,
    honeypots: float,
    narrow: bool,
) -> None:
    table = judged()
    pool = crowd_pool()
    assert pool.roster is not None
    n = len(pool.roster)
    roster = Roster(pool.roster.assessors, pool.roster.kind, np.array(price[:n]))
    allowed = None
    if narrow:  # each pair has a list of three of its own
        who = (np.arange(len(pool))[:, None] * 5 + np.array([0, 3, 7])) % n
        allowed = (np.arange(len(pool) + 1) * 3, who.ravel().astype(np.int32))
    answers = pa.array(["1" if number % 10 == 0 else None for number in range(len(pool))], pa.string())
    pool = Pool(pool.query, pool.document, roster, allowed, answers, table)
    budget = Budget(money, most=most, honeypots=honeypots)
    try:
        asked = ask(eager(cls, seed), budget, pool=pool)
    except (InputError, UsageError):
        return  # what is said where nothing can be had has tests of its own
    assert asked.cost <= money + 1e-6
    assert (asked.price == roster.price[asked.assessor]).all()
    load = np.bincount(table.assessor, minlength=n)
    now = np.bincount(asked.assessor, minlength=n)
    if most is not None:
        assert (now[now > 0] + load[now > 0] <= most).all()
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    done = set(zip(item.tolist(), table.assessor.tolist(), strict=True))
    new = list(zip(asked.pair.tolist(), asked.assessor.tolist(), strict=True))
    assert len(set(new)) == len(new)
    assert not done & set(new)
    if allowed is not None:
        assert all(who in allowed[1][3 * pair : 3 * pair + 3] for pair, who in new)
    assert (asked.planted == pool.planted[asked.pair]).all()
    assert float(asked.price[asked.planted].sum()) <= money * honeypots + 1e-6


@each
def test_nobody_left_is_said(cls: type[Policy]) -> None:
    if cls.first:
        pytest.skip("every document has its one label")
    nobody = Pool.of(judged()).with_roster(Roster.of(["worker-new"]))
    first = ask(eager(cls), Budget(1000, most=1), pool=nobody)
    # The one newcomer may give one label in all; then nobody is left.
    given = pd.DataFrame([{**first.frame.iloc[0][["query", "document", "assessor"]], "grade": 0}])
    table = combine(judged(), read_judgments(given, grades="0-4"))
    model = DawidSkene().fit(table) if cls.takes_model else None
    with pytest.raises(InputError, match=r"nobody is left who may judge any of .* add assessors with --assessors"):
        eager(cls).next(nobody, table, model, Budget(1000, most=1))


@each
def test_a_budget_too_small_for_any_label_is_said(cls: type[Policy]) -> None:
    if cls.first:
        pytest.skip("every document has its one label")
    with pytest.raises(UsageError, match="buys no label: the cheapest costs 5; raise it"):
        ask(eager(cls), 1, pool=crowd_pool(5.0))
    with pytest.raises(UsageError, match="buys no label: the cheapest costs 2; raise it"):
        ask(eager(cls), Budget(1, prices={"crowd": 2}))


@each
def test_judgments_of_other_documents_are_noted(cls: type[Policy]) -> None:
    some = Pool.read(judged().frame[["query", "document"]].head(20))
    asked = ask(eager(cls), 10, pool=some)
    assert any("not in the pool" in note for note in asked.notes)


def test_requests_for_anyone_have_the_price_of_their_kind() -> None:
    asked = ask(eager(EVERY[0]), Budget(10, prices={"expert": 2.5}, kind="expert"))
    assert len(asked) == 4
    assert asked.by_kind() == {"expert": (4, 10.0)}
    assert set(asked.assessor.tolist()) == {ANYONE}


def test_bad_terms_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"most": 0}, {"honeypots": 1.0}, {"honeypots": -0.1}, {"kind": "robot"}]
    for options in (*wrong, {"prices": {"robot": 1}}):
        with pytest.raises(UsageError):
            Budget(5, **options)
