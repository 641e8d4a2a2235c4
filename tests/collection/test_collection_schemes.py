"""Schemes: what each buys, label by label and all at once, and what that costs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank import Judgments, read_judgments
from crowdrank.collection import get_policy
from crowdrank.collection.accounts import account, expected_cost, first_ratio
from crowdrank.collection.pool import Pool
from crowdrank.collection.schemes import GoodTillBad, IfGood, IfGoodTimes, Majority, Overlap, Scheme, Single
from crowdrank.errors import UsageError

NAMES = [
    "single",
    "overlap-3",
    "majority-3",
    "highest-3",
    "if-good-3",
    "good-till-bad",
    "good-till-bad-4",
    "if-good-x3",
]
GRADES = st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=12)


def table(grades: list[list[int]]) -> Judgments:
    rows = [
        {"query": d // 3, "document": f"d{d}", "assessor": f"a{number}", "grade": grade}
        for d, labels in enumerate(grades)
        for number, grade in enumerate(labels)
    ]
    return read_judgments(pd.DataFrame(rows), grades="0-4")


def scheme(name: str) -> Scheme:
    found = get_policy(name)
    assert isinstance(found, Scheme)
    return found


def wanted(name: str, labels: list[int]) -> int:
    """How many labels a scheme buys of a document whose labels would come in this order: the rules, in words."""
    good = [label >= 2 for label in labels]
    kind, _, number = name.rpartition("-")
    match kind:
        case "overlap" | "majority" | "highest":
            return int(number)
        case "if-good" if number == "3":
            return 3 if good[0] else 1
        case "good-till" | "good-till-bad":
            most = 11 if kind == "good-till" else int(number)
            until = good.index(False) + 1 if False in good else len(good)
            return min(until, most, len(good))
        case _:
            return 1


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(grades=GRADES, seed=st.integers(0, 5))
def test_the_sampler_buys_what_the_rule_says(name: str, grades: list[list[int]], seed: int) -> None:
    full = table(grades)
    sampled = scheme(name).sample(full, seed)
    item = np.repeat(np.arange(full.n_items), 5)
    order = np.lexsort((np.random.default_rng(seed).random(len(item)), item)).reshape(-1, 5)
    expected = [wanted(name, full.grade[rows].tolist()) for rows in order]
    assert np.diff(sampled.offsets).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(grades=GRADES)
def test_the_policy_asked_round_by_round_buys_as_much_as_the_sampler(name: str, grades: list[list[int]]) -> None:
    """With labels that come in the order of the file, and no limit on money."""
    full, policy = table(grades), scheme(name)
    pool, bought = Pool.of(full), np.zeros(full.n_items, int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            rows = np.concatenate([np.arange(5 * d, 5 * d + n) for d, n in enumerate(bought)])
            known = full.where(np.isin(np.arange(len(full)), rows)) if len(rows) else None
            asked = policy.next(pool, known, None, 10_000)
            if not len(asked):
                break
            bought = np.minimum(bought + np.bincount(asked.pair, minlength=full.n_items), 5)
            if (bought == 5).all():
                break
    expected = [min(wanted(name, labels), 5) for labels in grades]
    assert bought.tolist() == expected


@settings(max_examples=40)
@given(grades=GRADES, k=st.integers(2, 5), seed=st.integers(0, 9))
def test_if_good_costs_what_the_formula_says(grades: list[list[int]], k: int, seed: int) -> None:
    full, policy = table(grades), IfGood(k)
    sampled = policy.sample(full, seed)
    good = int((np.diff(sampled.offsets) > 1).sum())
    assume(good < full.n_items)
    ratio = good / (full.n_items - good)
    assert first_ratio(policy, full, seed) == pytest.approx(ratio)
    assert len(sampled) == pytest.approx(expected_cost(full.n_items, ratio, k))
    found = account(policy, sampled, ratio)
    assert found.expected == pytest.approx(found.labels)
    assert found.labeling == found.training == found.labels / found.documents


@settings(max_examples=25)
@given(grades=GRADES, seed=st.integers(0, 9))
def test_good_till_bad_costs_at_most_what_the_formula_says(grades: list[list[int]], seed: int) -> None:
    full, policy = table(grades), GoodTillBad(5)
    firsts = GoodTillBad(1).sample(full, seed)
    assume((firsts.grade < 2).any())  # without a bad first label there is no ratio
    bound = expected_cost(full.n_items, first_ratio(policy, full, seed), 5)
    assert len(policy.sample(full, seed)) <= bound + 1e-9


def test_costs_as_in_the_papers_tables() -> None:
    world = crowdrank.simulate(queries=60, documents=15, labels=11, assessors=120, honeypots=0, random_state=2)
    full = read_judgments(world.judgments)
    found = {name: account(scheme(name), scheme(name).sample(full, 1)) for name in (*NAMES, "overlap-11")}
    base = found["single"]
    assert base.labeling == base.training == 1
    assert (found["overlap-3"].labeling, found["overlap-3"].training) == (3, 3)
    assert (found["majority-3"].labeling, found["majority-3"].training) == (3, 1)
    assert (found["highest-3"].labeling, found["highest-3"].training) == (3, 1)
    assert found["if-good-x3"].labeling == 1
    # METHODS: a good label that counts three times makes the ratio a third of the baseline's (same seed, same labels).
    assert found["if-good-x3"].rest_to_good == pytest.approx(base.rest_to_good / 3)
    assert found["overlap-11"].rest_to_good == pytest.approx(base.rest_to_good, rel=0.1)
    assert found["highest-3"].rest_to_good < found["if-good-3"].rest_to_good < base.rest_to_good
    assert 1 < found["if-good-3"].labeling < found["good-till-bad"].labeling < 3
    assert base.money == pytest.approx(float(np.nansum(scheme("single").sample(full, 1).extras["cost"])))


def test_training_rows_of_each_scheme() -> None:
    world = crowdrank.simulate(queries=5, documents=6, labels=5, honeypots=0, random_state=1)
    full = read_judgments(world.judgments)
    rows = {name: scheme(name).training(scheme(name).sample(full), world.features) for name in NAMES}
    assert len(rows["overlap-3"]) == 3 * full.n_items
    for name in ("single", "majority-3", "highest-3", "if-good-x3"):
        assert len(rows[name]) == full.n_items
    weight = rows["if-good-x3"].weight
    assert weight is not None
    assert set(weight[rows["if-good-x3"].y >= 2]) == {3.0}
    assert set(weight[rows["if-good-x3"].y < 2]) == {1.0}
    assert len(rows["if-good-3"]) == len(IfGood(3).sample(full))
    lists = IfGood(3).training(IfGood(3).sample(full), world.features, lists="per-judge")
    assert len(np.unique(lists.lists)) > full.n_queries
    assert (rows["highest-3"].y >= rows["majority-3"].y).all()


def test_the_first_label_in_time_decides() -> None:
    rows = {"document": ["d", "d"], "assessor": ["x", "y"], "grade": [3, 0], "time": ["2024-01-02", "2024-01-01"]}
    pool = Pool.read(pd.DataFrame({"document": ["d"]}))
    assert len(IfGood(3).next(pool, pd.DataFrame(rows), None, 5)) == 0
    del rows["time"]
    assert len(IfGood(3).next(pool, pd.DataFrame(rows), None, 5)) == 1


def test_what_cannot_be_judged_is_not_good() -> None:
    rows = pd.DataFrame({"document": ["d", "e"], "assessor": ["x", "x"], "grade": [-2, 2]})
    judged = read_judgments(rows, grades="0-4", unjudgeable=-2)
    assert IfGood(3).next(Pool.of(judged), judged, None, 9).pair.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "cls", "k"), [("mv3", Majority, 3), ("11-overlap", Overlap, 11), ("Single", Single, 0)]
)
def test_names_of_the_paper(name: str, cls: Any, k: int) -> None:
    assert type(get_policy(name)) is cls
    assert not k or get_policy(name).get_params()["k"] == k


@pytest.mark.parametrize(
    "name", ["if-good", "if-good-", "if-good-x", "overlap-0", "ndcg@0", "", "if-good-0", "k-overlap"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError):
        get_policy(name)


def test_a_number_that_is_none_is_refused() -> None:
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(UsageError, match="k must be a whole number of at least 1"):
            IfGoodTimes(k).sample(table([[0] * 5]))  # type: ignore[arg-type]


def test_a_threshold_off_the_scale_is_refused() -> None:
    with pytest.raises(UsageError, match="say from where with --good"):
        IfGood(3, good=7).sample(table([[0, 1, 2, 3, 4]]))
