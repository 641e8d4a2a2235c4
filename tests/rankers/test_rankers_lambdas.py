"""The lambda objective against its reference, against LightGBM, and by what must always hold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import rankers_reference as references
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm as normal

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.kernels import ranked_groups
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.ranking_data import Lists, gather

MEASURES = [None, "nDCG", "nDCG@3", "DCG", "DCG@4", "ERR", "ERR@3", "AP", "AP(rel=2)@4"]
each_measure = pytest.mark.parametrize("measure", MEASURES)


def drawn(seed: int, queries: int = 4, grades: int = 5, most: int = 12) -> tuple[Lists, Floats]:
    """Lists with weights, and scores some of which are equal."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, queries)
    n = int(sizes.sum())
    y, weight = rng.integers(0, grades, n), rng.uniform(0, 3, n)
    score = np.round(rng.normal(0, 2, n), 1)
    return gather(rng.normal(size=(n, 2)), y, np.repeat(np.arange(queries), sizes), weight), score


def by_twin(lists: Lists, score: Floats, measure: str | None, **options: Any) -> tuple[Floats, Floats]:
    slope, curve = np.zeros(len(score)), np.zeros(len(score))
    truncation = options.get("truncation", 30)
    for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        here = slice(start, stop)
        y = lists.y[here]
        gain = 2**y - 1
        name, _, cutoff = (measure or "").partition("@")
        depth = int(cutoff) if cutoff else None
        ideal, value = 1.0, None
        if name in ("nDCG", "DCG"):
            value = references.dcg(gain, depth)
            if name == "nDCG":
                best = sorted(range(len(y)), key=lambda d: -gain[d])
                ideal = references.dcg(gain, depth or truncation)(best)
        elif name == "ERR":
            value = references.err(gain / 16, depth)
        elif name:
            value = references.average_precision((y >= (2 if "rel=2" in name else 1)).astype(float), depth)
        weight = None if lists.weight is None or "weighting" not in options else lists.weight[here]
        slope[here], curve[here] = references.lambdas(score[here], gain, value, ideal=ideal, weight=weight, **options)
    return slope, curve


def unweighted(lists: Lists) -> Lists:
    return gather(lists.X, lists.y, lists.query)


@each_measure
@pytest.mark.parametrize("norm", [True, False])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), truncation=st.sampled_from([1, 3, 30]), sigmoid=st.sampled_from([0.5, 2.0]))
def test_forces_are_the_twins(measure: str | None, norm: bool, seed: int, truncation: int, sigmoid: float) -> None:
    lists, score = drawn(seed)
    options: dict[str, Any] = {"truncation": truncation, "sigmoid": sigmoid, "norm": norm}
    ours = LambdaObjective(unweighted(lists), measure=measure, **options)(score)
    assert np.allclose(ours, by_twin(lists, score, measure, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighting", ["product", "left", "post"])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_weighted_forces_are_the_twins(weighting: str, seed: int) -> None:
    lists, score = drawn(seed)
    ours = LambdaObjective(lists, weighting=weighting)(score)
    assert np.allclose(ours, by_twin(lists, score, "nDCG", weighting=weighting, norm=True), rtol=1e-9, atol=1e-12)


@each_measure
@pytest.mark.parametrize("weighting", ["product", "left"])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_forces_within_a_query_sum_to_zero(measure: str | None, weighting: str, seed: int) -> None:
    lists, score = drawn(seed)
    slope, curve = LambdaObjective(lists, measure=measure, weighting=weighting)(score)
    assert np.abs(np.add.reduceat(slope, lists.offsets[:-1])).max() < 1e-9 * max(1.0, np.abs(slope).max())
    assert (curve >= 0).all()


def test_post_weights_leave_a_sum() -> None:
    lists, score = drawn(3)
    slope, _ = LambdaObjective(lists, weighting="post")(score)
    assert np.abs(np.add.reduceat(slope, lists.offsets[:-1])).max() > 0.01


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_by_product_a_document_of_weight_two_is_that_document_twice(seed: int) -> None:
    lists, score = drawn(seed, queries=1, most=8)
    n = len(score)
    options: dict[str, Any] = {"measure": None, "norm": False, "truncation": 100}
    weight = np.ones(n)
    weight[0] = 2.0
    once = gather(lists.X, lists.y, np.zeros(n, int), weight)
    rows = np.append(np.arange(n), 0)
    twice = gather(lists.X[rows], lists.y[rows], np.zeros(n + 1, int))
    for weighted, doubled in zip(
        LambdaObjective(once, **options)(score), LambdaObjective(twice, **options)(score[rows]), strict=True
    ):
        assert np.allclose(weighted, np.append(doubled[0] + doubled[-1], doubled[1:-1]), atol=1e-12)


@each_measure
@pytest.mark.parametrize(("weighting", "weight"), [("left", 2.0), ("post", 2.0), ("product", 2**0.5)])
def test_a_weighted_query_is_that_query_twice(measure: str | None, weighting: str, weight: float) -> None:
    lists, score = drawn(5, queries=1)
    heavy = gather(lists.X, lists.y, lists.query, np.full(len(score), weight))
    once, twice = unweighted(lists), heavy
    for one, two in zip(
        LambdaObjective(once, measure=measure)(score),
        LambdaObjective(twice, measure=measure, weighting=weighting)(score),
        strict=True,
    ):
        assert np.allclose(2 * one, two)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_the_slope_of_no_measure_is_that_of_the_log_loss(seed: int) -> None:
    lists, score = drawn(seed, queries=2, most=6)

    def loss(at: Floats) -> float:
        total = 0.0
        for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
            for a in range(start, stop):
                for b in range(start, stop):
                    if lists.y[a] > lists.y[b]:
                        total += np.log1p(np.exp(at[b] - at[a]))
        return total

    slope, curve = LambdaObjective(unweighted(lists), measure=None, norm=False, truncation=100)(score)
    for row in range(len(score)):
        step = np.eye(len(score))[row] * 1e-4
        ups, downs, here = loss(score + step), loss(score - step), loss(score)
        assert slope[row] == pytest.approx((ups - downs) / 2e-4, abs=1e-5)
        assert curve[row] == pytest.approx((ups - 2 * here + downs) / 1e-8, abs=1e-4)


# Soft targets.


def shares_of(seed: int, n: int, grades: int = 4) -> Floats:
    shares: Floats = np.random.default_rng(seed).dirichlet(np.ones(grades), n)
    return shares


@pytest.mark.parametrize("measure", [None, "nDCG"])
@pytest.mark.parametrize("kind", ["posterior", "array", "sd", "function"])
def test_soft_targets_are_the_twins(kind: str, measure: str | None) -> None:
    n, score = 9, np.random.default_rng(1).normal(size=9)
    shares = shares_of(2, n)
    sd = np.random.default_rng(3).uniform(0.1, 1, n)
    grades = shares @ np.arange(4)
    matrix = np.array(
        [
            [
                0.5 * np.sum(np.outer(shares[a], shares[b])[np.diag_indices(4)])
                + np.tril(np.outer(shares[a], shares[b]), -1).sum()
                for b in range(n)
            ]
            for a in range(n)
        ]
    )
    labels = grades if kind in ("sd", "function") else shares
    targets: Any = {
        "posterior": "posterior",
        "array": shares,
        "sd": sd,
        "function": lambda rows: matrix[np.ix_(rows, rows)],
    }
    lists = gather(np.eye(n), labels, ["q"] * n)
    chance = matrix if kind != "sd" else normal.cdf((grades[:, None] - grades) / np.sqrt(sd[:, None] ** 2 + sd**2))
    ours = LambdaObjective(lists, measure=measure, pair_targets=targets[kind])(score)
    gain = lists.gain("exponential")
    ideal = references.dcg(gain)(sorted(range(n), key=lambda d: -gain[d])) if measure else 1.0
    value = references.dcg(gain) if measure else None
    reference = references.lambdas(score, gain, value, ideal=ideal, above=lambda a, b: chance[a, b], norm=True)
    assert np.allclose(ours, reference, atol=1e-12)


def test_certain_labels_make_soft_targets_hard() -> None:
    lists, score = drawn(8)
    certain = gather(lists.X, np.eye(5)[lists.y.astype(int)], lists.query)
    hard = LambdaObjective(unweighted(lists))(score)
    assert np.allclose(LambdaObjective(certain)(score), hard)
    assert np.allclose(LambdaObjective(certain, pair_targets="posterior")(score), hard)
    assert np.allclose(LambdaObjective(unweighted(lists), pair_targets=np.zeros(len(score)))(score), hard)


def test_soft_targets_follow_rows_that_were_sorted() -> None:
    rng = np.random.default_rng(4)
    query, score, sd = np.repeat([0, 1], 5), rng.normal(size=10), rng.uniform(0.1, 1, 10)
    y = rng.uniform(0, 3, 10)
    mixed = rng.permutation(10)
    together = LambdaObjective(gather(np.eye(10), y, query), pair_targets=sd)(score)[0]
    with pytest.warns(UserWarning, match="sorted by query"):
        lists = gather(np.eye(10)[mixed], y[mixed], query[mixed])
    apart = LambdaObjective(lists, pair_targets=sd[mixed])(score[mixed][lists.order])[0]
    assert np.allclose(np.sort(together), np.sort(apart))


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("likely", "not 'likely'"),
        ("posterior", "one column for each grade"),
        (np.ones(3), "one standard deviation"),
        (np.full(4, -1.0), "numbers of 0 or more"),
        (lambda rows: np.ones((1, 2)), "no matrix of chances for a query of 2 rows"),
    ],
)
def test_soft_targets_that_mean_nothing(targets: Any, said: str) -> None:
    lists = gather(np.eye(4), [0, 1, 1, 0], [1, 1, 2, 2])
    with pytest.raises((InputError, UsageError), match=said):
        LambdaObjective(lists, pair_targets=targets)


def test_far_scores_do_not_overflow() -> None:
    lists = gather(np.eye(4), [3, 0, 1, 2], ["q"] * 4)
    score = np.array([-2000.0, 2000.0, 0.0, 1.0])
    for sigmoid in (1.0, 0.2, 0.01):  # too far for exponentials of single documents, and near enough
        options: dict[str, Any] = {"norm": False, "sigmoid": sigmoid}
        ours = LambdaObjective(lists, **options)(score)
        assert np.allclose(ours, by_twin(lists, score, "nDCG", **options), rtol=1e-9, atol=1e-15)
        assert ours[0][0] < 0 < ours[0][1]


def test_threads_change_nothing() -> None:
    lists, score = drawn(11, queries=50)
    one, two = (LambdaObjective(lists, n_jobs=threads)(score) for threads in (1, 2))
    assert np.array_equal(one, two)


# LightGBM's own: a leaf's weight is the sum of its curvatures, and its value times that the sum of its slopes.


def leaf_sums(booster: lgb.Booster) -> Floats:
    sums: dict[int, tuple[float, float]] = {}
    waiting: list[Any] = [booster.dump_model()["tree_info"][0]["tree_structure"]]
    while waiting:
        node = waiting.pop()
        if "leaf_index" in node:
            sums[node["leaf_index"]] = (-node["leaf_value"] * node["leaf_weight"], node["leaf_weight"])
        else:
            waiting += [node["left_child"], node["right_child"]]
    return np.array([sums[leaf] for leaf in range(len(sums))]).T


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("truncation", [30, 5])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_forces_are_those_of_lightgbm(weighted: bool, norm: bool, truncation: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    n, size = 400, 40
    X, y, score = rng.normal(size=(n, 5)), rng.integers(0, 5, n), spread * rng.normal(size=n)
    weight = rng.uniform(0.2, 3, n) if weighted else None
    settings = {
        "objective": "lambdarank",
        "lambdarank_norm": norm,
        "lambdarank_truncation_level": truncation,
        "num_leaves": 200,
        "min_data_in_leaf": 1,
        "learning_rate": 1.0,
        "verbosity": -1,
    }
    data = lgb.Dataset(X, y, weight=weight, group=[size] * (n // size), init_score=score, params={"verbosity": -1})
    booster = lgb.Booster(settings, data)
    booster.update()
    lists = gather(X, y, np.arange(n) // size, weight)
    ours = LambdaObjective(lists, norm=norm, truncation=truncation, weighting="post")(score)
    leaf = booster.predict(X, pred_leaf=True)[:, 0]
    theirs = leaf_sums(booster)
    assert len(theirs[0]) > 60
    for mine, sums in zip(ours, theirs, strict=True):
        # Its sigmoid is a table of a million entries.
        assert np.abs(np.bincount(leaf, mine) - sums).max() < 1e-4 * np.abs(sums).max()


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_ranked_groups_equal_a_stable_sort(seed: int) -> None:
    lists, score = drawn(seed)
    order, new_group = ranked_groups(np.arange(len(score)), lists.query, score, lists.offsets)
    np.testing.assert_array_equal(order, np.lexsort((-score, lists.query)))
    keys = list(zip(lists.query[order], score[order], strict=True))
    assert new_group.tolist() == [at == 0 or keys[at] != keys[at - 1] for at in range(len(keys))]


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), cutoff=st.integers(1, 12))
def test_ranked_groups_sort_the_first_ranks(seed: int, cutoff: int) -> None:
    lists, score = drawn(seed)
    rows = np.arange(len(score))
    whole, groups = ranked_groups(rows, lists.query, score, lists.offsets)
    order, new_group = ranked_groups(rows, lists.query, score, lists.offsets, cutoff)
    assert sorted(order) == rows.tolist()
    for begin, end in pairwise(lists.offsets):
        last = min(begin + cutoff, end)
        while last < end and not groups[last]:
            last += 1
        np.testing.assert_array_equal(order[begin:last], whole[begin:last])
        np.testing.assert_array_equal(new_group[begin:last], groups[begin:last])
        assert last == end or new_group[last]
