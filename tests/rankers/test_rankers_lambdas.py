"""The lambda objective compared with its reference and with LightGBM, and its invariants."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import LambdaMART
from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.rankers.lambda_kernels import ranked_groups
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.training_data import RankingData

from . import rankers_reference as references

MEASURES = [None, "nDCG", "nDCG@3", "DCG", "DCG@4", "ERR", "ERR@3", "AP", "AP(rel=2)@4"]
each_measure = pytest.mark.parametrize("measure", MEASURES)


def drawn(seed: int, queries: int = 4, grades: int = 5, most: int = 12) -> tuple[RankingData, Floats]:
    """Return data with weights, and scores some of which are equal."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, queries)
    n = int(sizes.sum())
    y, weight = rng.integers(0, grades, n), rng.uniform(0, 3, n)
    score = np.round(rng.normal(0, 2, n), 1)
    return RankingData.from_ids(rng.normal(size=(n, 2)), y, np.repeat(np.arange(queries), sizes), weight), score


def by_reference(data: RankingData, score: Floats, measure: str | None, **options: Any) -> tuple[Floats, Floats]:
    gradient, hessian = np.zeros(len(score)), np.zeros(len(score))
    truncation = options.get("truncation", 30)
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        here = slice(start, stop)
        y = data.grade[here]
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
        weight = None if data.weight is None or "weighting" not in options else data.weight[here]
        gradient[here], hessian[here] = references.lambdas(
            score[here], gain, value, ideal=ideal, weight=weight, **options
        )
    return gradient, hessian


def unweighted(data: RankingData) -> RankingData:
    return RankingData.from_ids(data.features, data.grade, data.query)


@each_measure
@pytest.mark.parametrize("norm", [True, False])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), truncation=st.sampled_from([1, 3, 30]), sigmoid=st.sampled_from([0.5, 2.0]))
def test_gradients_equal_the_reference(
    measure: str | None, norm: bool, seed: int, truncation: int, sigmoid: float
) -> None:
    data, score = drawn(seed)
    options: dict[str, Any] = {"truncation": truncation, "sigmoid": sigmoid, "norm": norm}
    ours = LambdaObjective(unweighted(data), measure=measure, **options)(score)
    assert np.allclose(ours, by_reference(data, score, measure, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighting", ["product", "left", "post"])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_weighted_gradients_equal_the_reference(weighting: str, seed: int) -> None:
    data, score = drawn(seed)
    ours = LambdaObjective(data, weighting=weighting)(score)
    assert np.allclose(ours, by_reference(data, score, "nDCG", weighting=weighting, norm=True), rtol=1e-9, atol=1e-12)


@each_measure
@pytest.mark.parametrize("weighting", ["product", "left"])
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_gradients_of_a_query_sum_to_zero(measure: str | None, weighting: str, seed: int) -> None:
    data, score = drawn(seed)
    gradient, hessian = LambdaObjective(data, measure=measure, weighting=weighting)(score)
    assert np.abs(np.add.reduceat(gradient, data.offsets[:-1])).max() < 1e-9 * max(1.0, np.abs(gradient).max())
    assert (hessian >= 0).all()


def test_gradients_with_post_weights_do_not_sum_to_zero() -> None:
    data, score = drawn(3)
    gradient, _ = LambdaObjective(data, weighting="post")(score)
    assert np.abs(np.add.reduceat(gradient, data.offsets[:-1])).max() > 0.01


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_with_product_weights_weight_two_equals_the_document_twice(seed: int) -> None:
    data, score = drawn(seed, queries=1, most=8)
    n = len(score)
    options: dict[str, Any] = {"measure": None, "norm": False, "truncation": 100}
    weight = np.ones(n)
    weight[0] = 2.0
    once = RankingData.from_ids(data.features, data.grade, np.zeros(n, int), weight)
    rows = np.append(np.arange(n), 0)
    twice = RankingData.from_ids(data.features[rows], data.grade[rows], np.zeros(n + 1, int))
    for weighted, doubled in zip(
        LambdaObjective(once, **options)(score), LambdaObjective(twice, **options)(score[rows]), strict=True
    ):
        assert np.allclose(weighted, np.append(doubled[0] + doubled[-1], doubled[1:-1]), atol=1e-12)


@each_measure
@pytest.mark.parametrize(("weighting", "weight"), [("left", 2.0), ("post", 2.0), ("product", 2**0.5)])
def test_a_query_of_weight_two_equals_the_query_twice(measure: str | None, weighting: str, weight: float) -> None:
    data, score = drawn(5, queries=1)
    heavy = RankingData.from_ids(data.features, data.grade, data.query, np.full(len(score), weight))
    once, twice = unweighted(data), heavy
    for one, two in zip(
        LambdaObjective(once, measure=measure)(score),
        LambdaObjective(twice, measure=measure, weighting=weighting)(score),
        strict=True,
    ):
        assert np.allclose(2 * one, two)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_without_a_measure_the_gradient_is_that_of_the_log_loss(seed: int) -> None:
    data, score = drawn(seed, queries=2, most=6)

    def loss(at: Floats) -> float:
        total = 0.0
        for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            for a in range(start, stop):
                for b in range(start, stop):
                    if data.grade[a] > data.grade[b]:
                        total += np.log1p(np.exp(at[b] - at[a]))
        return total

    gradient, hessian = LambdaObjective(unweighted(data), measure=None, norm=False, truncation=100)(score)
    for row in range(len(score)):
        step = np.eye(len(score))[row] * 1e-4
        ups, downs, here = loss(score + step), loss(score - step), loss(score)
        assert gradient[row] == pytest.approx((ups - downs) / 2e-4, abs=1e-5)
        assert hessian[row] == pytest.approx((ups - 2 * here + downs) / 1e-8, abs=1e-4)


# Soft targets.


@pytest.mark.parametrize("measure", [None, "nDCG"])
def test_soft_targets_equal_the_reference(measure: str | None) -> None:
    n, score = 9, np.random.default_rng(1).normal(size=9)
    probabilities = np.random.default_rng(2).dirichlet(np.ones(4), n)
    joint = np.einsum("ag,bh->abgh", probabilities, probabilities)
    chance = np.tril(joint, -1).sum(axis=(2, 3)) + 0.5 * np.trace(joint, axis1=2, axis2=3)
    data = RankingData.from_ids(np.eye(n), probabilities, ["q"] * n)
    ours = LambdaObjective(data, measure=measure, pair_targets="posterior")(score)
    gain = data.gain("exponential")
    ideal = references.dcg(gain)(sorted(range(n), key=lambda d: -gain[d])) if measure else 1.0
    value = references.dcg(gain) if measure else None
    reference = references.lambdas(score, gain, value, ideal=ideal, above=lambda a, b: chance[a, b], norm=True)
    assert np.allclose(ours, reference, atol=1e-12)


def test_certain_labels_make_soft_targets_hard() -> None:
    data, score = drawn(8)
    certain = RankingData.from_ids(data.features, np.eye(5)[data.grade.astype(int)], data.query)
    hard = LambdaObjective(unweighted(data))(score)
    assert np.allclose(LambdaObjective(certain)(score), hard)
    assert np.allclose(LambdaObjective(certain, pair_targets="posterior")(score), hard)


def test_pair_probabilities_equal_the_reference() -> None:
    data, score = drawn(4)
    rng, parts = np.random.default_rng(5), []
    for size in np.diff(data.offsets):
        upper = np.triu(rng.random((size, size)), 1)
        parts.append(upper + np.tril(1 - upper.T, -1) + 0.5 * np.eye(size))
    pairs = np.concatenate([part.ravel() for part in parts])
    gradient, hessian = LambdaObjective(unweighted(data), pair_probabilities=pairs)(score)
    for part, start, stop in zip(parts, data.offsets[:-1], data.offsets[1:], strict=True):
        gain = data.gain("exponential")[start:stop]
        ideal = references.dcg(gain)(sorted(range(len(gain)), key=lambda d: -gain[d]))
        options: dict[str, Any] = {"ideal": ideal, "above": lambda a, b, part=part: part[a, b], "norm": True}
        reference = references.lambdas(score[start:stop], gain, references.dcg(gain), **options)
        assert np.allclose((gradient[start:stop], hessian[start:stop]), reference, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The rows of a query")
@pytest.mark.parametrize("kind", ["wrong-shape", "not-probabilities", "unsorted-queries"])
def test_unusable_pair_probabilities_are_refused(kind: str) -> None:
    query = ["q", "r", "q", "r"] if kind == "unsorted-queries" else ["q", "q", "r", "r"]
    pairs = np.full(7 if kind == "wrong-shape" else 8, 1.5 if kind == "not-probabilities" else 0.5)
    ranker = LambdaMART(n_estimators=2, min_child_samples=1)
    with pytest.raises(UsageError) as caught:
        ranker.fit(np.eye(4), [0, 1, 1, 0], query=query, pair_probabilities=pairs)
    assert (caught.value.kind, caught.value.parameter) == (kind, "pair_probabilities")


def test_far_scores_do_not_overflow() -> None:
    data = RankingData.from_ids(np.eye(4), [3, 0, 1, 2], ["q"] * 4)
    score = np.array([-2000.0, 2000.0, 0.0, 1.0])
    for sigmoid in (1.0, 0.2, 0.01):  # too far for exponentials of single documents, and near enough
        options: dict[str, Any] = {"norm": False, "sigmoid": sigmoid}
        ours = LambdaObjective(data, **options)(score)
        assert np.allclose(ours, by_reference(data, score, "nDCG", **options), rtol=1e-9, atol=1e-15)
        assert ours[0][0] < 0 < ours[0][1]


def test_gradients_do_not_depend_on_the_number_of_threads() -> None:
    data, score = drawn(11, queries=50)
    one, two = (LambdaObjective(data, n_jobs=threads)(score) for threads in (1, 2))
    assert np.array_equal(one, two)


# LightGBM: the weight of a leaf is the sum of its Hessians, and its value times that the sum of its gradients.


def leaf_sums(booster: lgb.Booster) -> Floats:
    sums: dict[int, tuple[float, float]] = {}
    pending: list[Any] = [booster.dump_model()["tree_info"][0]["tree_structure"]]
    while pending:
        node = pending.pop()
        if "leaf_index" in node:
            sums[node["leaf_index"]] = (-node["leaf_value"] * node["leaf_weight"], node["leaf_weight"])
        else:
            pending += [node["left_child"], node["right_child"]]
    return np.array([sums[leaf] for leaf in range(len(sums))]).T


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("truncation", [30, 5])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_gradients_equal_those_of_lightgbm(weighted: bool, norm: bool, truncation: int, spread: float) -> None:
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
    dataset = lgb.Dataset(X, y, weight=weight, group=[size] * (n // size), init_score=score, params={"verbosity": -1})
    booster = lgb.Booster(settings, dataset)
    booster.update()
    data = RankingData.from_ids(X, y, np.arange(n) // size, weight)
    ours = LambdaObjective(data, norm=norm, truncation=truncation, weighting="post")(score)
    leaf = booster.predict(X, pred_leaf=True)[:, 0]
    theirs = leaf_sums(booster)
    assert len(theirs[0]) > 60
    for mine, sums in zip(ours, theirs, strict=True):
        # LightGBM reads its sigmoid from a table.
        assert np.abs(np.bincount(leaf, mine) - sums).max() < 1e-4 * np.abs(sums).max()


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_ranked_groups_equal_a_stable_sort(seed: int) -> None:
    data, score = drawn(seed)
    order, new_group = ranked_groups(np.arange(len(score)), data.query, score, data.offsets)
    np.testing.assert_array_equal(order, np.lexsort((-score, data.query)))
    keys = list(zip(data.query[order], score[order], strict=True))
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
