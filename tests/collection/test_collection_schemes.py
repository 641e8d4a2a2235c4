"""Schemes: what each buys, label by label and all at once, and what that costs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank import Judgments, read_judgments
from crowdrank.collection import get_policy
from crowdrank.collection.pool import Pool
from crowdrank.collection.replay import Crowd, replay, scheme_ranking
from crowdrank.collection.schemes import LabelRates, Scheme, SchemeCost, counted_cost, expected_cost, scheme_costs
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
    full, policy = table(grades), Scheme("if-good", k)
    cost = counted_cost(policy, full, random_state=seed)
    share = LabelRates.of(full, 2, seed).good_share
    assert cost.labeling_overhead == pytest.approx(cost.formula)
    assert cost.labeling_overhead == cost.training_overhead == cost.labels / cost.documents
    assert expected_cost(policy, full.n_items, LabelRates(share)).labels == pytest.approx(cost.labels)
    if share < 1:
        ratio, n = share / (1 - share), full.n_items
        assert cost.labels == pytest.approx(n / (ratio + 1) + n * ratio * k / (ratio + 1))  # OVERLAP 5.2.1


@settings(max_examples=25)
@given(grades=GRADES, seed=st.integers(0, 9))
def test_good_till_bad_costs_at_most_what_the_formula_says(grades: list[list[int]], seed: int) -> None:
    cost = counted_cost(Scheme("good-till-bad", 5), table(grades), random_state=seed)
    assert cost.labeling_overhead <= cost.formula + 1e-9


def test_costs_as_in_the_papers_tables() -> None:
    world = crowdrank.simulate(queries=60, documents=15, labels=11, assessors=120, honeypots=0, random_state=2)
    full = read_judgments(world.judgments)
    found = {name: counted_cost(scheme(name), full, random_state=1) for name in (*NAMES, "overlap-11")}
    base = found["single"]
    assert base.labeling_overhead == base.training_overhead == 1
    for name, training in (("overlap-3", 3), ("majority-3", 1), ("highest-3", 1)):
        assert (found[name].labeling_overhead, found[name].formula, found[name].training_overhead) == (3, 3, training)
    assert found["if-good-x3"].labeling_overhead == 1
    # A good label that counts three times makes the ratio a third of the baseline's (same seed, same labels).
    assert found["if-good-x3"].rest_to_good == pytest.approx(base.rest_to_good / 3)
    assert found["overlap-11"].rest_to_good == pytest.approx(base.rest_to_good, rel=0.1)
    assert found["highest-3"].rest_to_good < found["if-good-3"].rest_to_good < base.rest_to_good
    assert 1 < found["if-good-3"].labeling_overhead < found["good-till-bad"].labeling_overhead < 3
    assert base.money == pytest.approx(float(np.nansum(scheme("single").sample(full, 1).extras["cost"])))


def close(one: SchemeCost, other: SchemeCost, tolerance: float) -> bool:
    names = ("labeling_overhead", "training_overhead", "rest_to_good")
    return all(getattr(one, name) == pytest.approx(getattr(other, name), rel=tolerance) for name in names)


def test_expected_costs_are_near_those_that_are_counted() -> None:
    world = crowdrank.simulate(queries=60, documents=15, labels=11, assessors=120, honeypots=0, random_state=2)
    full = read_judgments(world.judgments)
    rates = LabelRates.of(full, random_state=1)
    for name in NAMES:
        counted = counted_cost(scheme(name), full, random_state=1)
        assert close(expected_cost(scheme(name), full.n_items, rates), counted, 0.3), name


def test_expected_costs_are_exact_for_beta_binomial_labels() -> None:
    rng, n = np.random.default_rng(0), 40_000
    labels = (rng.random((n, 5)) < rng.beta(0.5, 1.5, n)[:, None]).astype(int)  # repeat agreement 0.5
    rows = {"document": np.repeat(np.arange(n), 5), "assessor": np.tile(list("abcde"), n), "grade": labels.ravel()}
    full = read_judgments(pd.DataFrame(rows))
    for name in ("majority-3", "majority-4", "highest-3", "if-good-3", "good-till-bad-5", "if-good-x3"):
        policy = scheme(name).set_params(good=1)
        assert close(expected_cost(policy, n, LabelRates(0.25, 0.5)), counted_cost(policy, full), 0.03), name


def test_costs_of_the_papers_rates() -> None:
    """OVERLAP, Table 6: 3.72 other labels per good one; of further labels of good documents, 0.53 are good."""
    costs = {cost.scheme: cost for cost in scheme_costs(documents=39268, good_share=1 / 4.72, repeat_agreement=0.53)}
    assert costs["if-good-3"].labeling_overhead == pytest.approx(1.41, abs=0.02)
    assert costs["if-good-3"].rest_to_good == pytest.approx(2.24, abs=0.05)
    assert costs["majority-3"].rest_to_good == pytest.approx(4.49, abs=0.2)
    assert costs["highest-3"].rest_to_good == pytest.approx(1.78, abs=0.15)


def test_costs_are_counted_only_if_all_labels_are_there() -> None:
    full = table([[3, 2, 0, 1, 1], [0, 1, 0, 1, 4]] * 4)
    costs = {cost.scheme: cost for cost in scheme_costs(full, ["single", "overlap-5", "overlap-6", "if-good-3"])}
    assert [cost.counted for cost in costs.values()] == [True, True, False, True]
    assert costs["overlap-6"].labels == 6 * full.n_items
    pilot = scheme_costs(full, ["if-good-3"], documents=1000, price=0.1)[0]
    assert (pilot.counted, pilot.labels) == (False, 2000.0)
    assert pilot.money == pytest.approx(200)
    unknown = scheme_costs(Scheme().sample(full), ["if-good-3", "good-till-bad"])
    assert unknown[0].labeling_overhead == 2
    assert np.isnan([unknown[0].rest_to_good, unknown[1].labeling_overhead]).all()


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"documents": 0, "good_share": 0.2}, "documents"),
        ({"documents": 5, "good_share": 1.2}, "good_share"),
        ({"documents": 5, "good_share": 0.5, "repeat_agreement": 0.4}, "repeat_agreement"),
        ({"documents": 5, "good_share": 0.5, "price": -1}, "price"),
    ],
)
def test_rates_that_are_none(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(UsageError) as caught:
        scheme_costs(**options)
    assert caught.value.parameter == parameter


def test_costs_need_rates_and_schemes() -> None:
    with pytest.raises(UsageError) as caught:
        scheme_costs(documents=5)
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "good_share"
    with pytest.raises(UsageError) as caught:
        scheme_costs(documents=5, good_share=0.5, schemes=["entropy"])
    assert caught.value.kind == "not-a-scheme"


def test_labels_of_schemes_differ() -> None:
    full, pool = table([[0, 0, 4], [1, 1, 1], [2, 0, 2]]), Pool.of(table([[0, 0, 4], [1, 1, 1], [2, 0, 2]]))
    scores = {name: scheme_ranking(scheme(name), full, pool)["score"].tolist() for name in NAMES}
    assert scores["majority-3"] == [0, 1, 2]
    assert scores["highest-3"] == [4, 1, 2]
    assert scores["overlap-3"] == pytest.approx([4 / 3, 1, 4 / 3])
    assert scores["if-good-x3"] == pytest.approx([12 / 5, 1, 12 / 7])


def test_replays_of_schemes_differ() -> None:
    world = crowdrank.simulate(queries=15, documents=8, labels=5, random_state=1)
    crowd = Crowd.of(read_judgments(world.judgments))
    names = ("majority-3", "highest-3", "overlap-3", "if-good-x3")
    curves = [replay(scheme(name), crowd, world.gold, ["nDCG@5"], budget=1000, rounds=1) for name in names]
    assert len({curve.table()[-1]["nDCG@5"] for curve in curves}) == 4


def test_every_label_of_overlap_is_requested_from_the_start() -> None:
    pool = Pool.read(pd.DataFrame({"document": list("abc")}))
    assert scheme("overlap-3").next(pool, None, None, 100).pair.tolist() == [0, 1, 2] * 3
    assert scheme("if-good-3").next(pool, None, None, 100).pair.tolist() == [0, 1, 2]


def test_training_rows_of_each_scheme() -> None:
    world = crowdrank.simulate(queries=5, documents=6, labels=5, honeypots=0, random_state=1)
    full = read_judgments(world.judgments)
    rows = {name: scheme(name).training_instances(scheme(name).sample(full), world.features) for name in NAMES}
    assert len(rows["overlap-3"]) == 3 * full.n_items
    for name in ("single", "majority-3", "highest-3", "if-good-x3"):
        assert len(rows[name]) == full.n_items
    weight = rows["if-good-x3"].weight
    assert weight is not None
    assert set(weight[rows["if-good-x3"].y >= 2]) == {3.0}
    assert set(weight[rows["if-good-x3"].y < 2]) == {1.0}
    policy = Scheme("if-good", 3)
    assert len(rows["if-good-3"]) == len(policy.sample(full))
    lists = policy.training_instances(policy.sample(full), world.features, overlap="per-judge-lists")
    assert len(np.unique(lists.lists)) > full.n_queries
    assert (rows["highest-3"].y >= rows["majority-3"].y).all()


def test_the_first_label_in_time_decides() -> None:
    rows = {"document": ["d", "d"], "assessor": ["x", "y"], "grade": [3, 0], "time": ["2024-01-02", "2024-01-01"]}
    pool = Pool.read(pd.DataFrame({"document": ["d"]}))
    assert len(Scheme("if-good", 3).next(pool, pd.DataFrame(rows), None, 5)) == 0
    del rows["time"]
    assert len(Scheme("if-good", 3).next(pool, pd.DataFrame(rows), None, 5)) == 1


def test_what_cannot_be_judged_is_not_good() -> None:
    rows = pd.DataFrame({"document": ["d", "e"], "assessor": ["x", "x"], "grade": [-2, 2]})
    judged = read_judgments(rows, grades="0-4", unjudgeable=-2)
    assert Scheme("if-good", 3).next(Pool.of(judged), judged, None, 9).pair.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "rule", "k"), [("mv3", "majority", 3), ("11-overlap", "overlap", 11), ("Single", "overlap", 1)]
)
def test_names_of_the_paper(name: str, rule: str, k: int) -> None:
    assert (scheme(name).rule, scheme(name).k) == (rule, k)


@pytest.mark.parametrize(
    "name", ["if-good", "if-good-", "if-good-x", "overlap-0", "ndcg@0", "", "if-good-0", "k-overlap"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError):
        get_policy(name)


def test_a_number_that_is_none_is_refused() -> None:
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(UsageError) as caught:
            Scheme("if-good-x", k).sample(table([[0] * 5]))  # type: ignore[arg-type]
        assert caught.value.parameter == "k"


def test_a_threshold_off_the_scale_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        Scheme("if-good", 3, good=7).sample(table([[0, 1, 2, 3, 4]]))
    assert (caught.value.parameter, caught.value.kind) == ("good", "good-above-scale")
