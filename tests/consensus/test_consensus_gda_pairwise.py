"""GDA-PW: its kernels against twins, what it finds in a crowd, and its figures on RF10."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank import GDAPairwise, Judgments, LocalEngine, evaluate
from crowdrank.consensus import pairwise_kernels
from crowdrank.consensus.gda_pairwise import expert_lines, prior
from crowdrank.errors import UsageError
from crowdrank.judgments.datasets import dataset

Floats = NDArray[np.float64]
N_GRADES = 3


def random_pairs(seed: int, n: int = 40, items: int = 6, assessors: int = 4) -> dict[str, Any]:
    """Judgments of one query, some pairs of them, and a point to look at."""
    rng = np.random.default_rng(seed)
    item, left, right = rng.integers(0, items, n), rng.integers(0, n, 60), rng.integers(0, n, 60)
    apart = item[left] != item[right]
    left, right = left[apart], right[apart]
    mean, sd = prior(N_GRADES)
    return {
        "left": left,
        "right": right,
        "weight": rng.random(len(left)),
        "here": item[left],
        "there": item[right],
        "assessor": rng.integers(0, assessors, n).astype(np.int32),
        "grade": rng.integers(0, N_GRADES, n).astype(np.int8),
        "relevance": rng.standard_normal(items),
        "hardness": 0.4 * rng.standard_normal(items),
        "params": mean + sd * rng.standard_normal((assessors, len(mean))),
    }


def log_likelihood(data: dict[str, Any], **changed: Any) -> float:
    """The sum over pairs of weight * log p(g | g', dr), from its definition."""
    data = {**data, **changed}
    total = 0.0
    for i, j, d, other, weight in zip(*(data[k] for k in ("left", "right", "here", "there", "weight")), strict=True):
        mine, its = data["params"][data["assessor"][i]], data["params"][data["assessor"][j]]
        dr = data["relevance"][d] - data["relevance"][other]
        variance = np.sqrt(np.exp(mine[-1] + its[-1] + data["hardness"][d] + data["hardness"][other]))
        centre = mine[:N_GRADES] - its[data["grade"][j]]
        density = np.exp(mine[N_GRADES:-1] - 0.5 * (dr - centre) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        total += weight * np.log(density[data["grade"][i]] / density.sum())
    return total


def finite_differences(data: dict[str, Any], name: str, step: float = 1e-5) -> Floats:
    """The slope of the log likelihood by each number of an array."""
    slope = np.empty(data[name].shape)
    for place in np.ndindex(slope.shape):
        ends = []
        for sign in (1, -1):
            moved = data[name].copy()
            moved[place] += sign * step
            ends.append(log_likelihood(data, **{name: moved}))
        slope[place] = (ends[0] - ends[1]) / (2 * step)
    return slope


def item_terms(data: dict[str, Any]) -> tuple[float, Floats, Floats, Floats, Floats]:
    n = len(data["relevance"])
    slope, hard_slope, hard_curve, curve = np.zeros(n), np.zeros(n), np.zeros(n), np.empty(len(data["left"]))
    steepness = np.exp(-0.5 * data["params"][:, -1])
    value = pairwise_kernels.item_terms(*data.values(), steepness, slope, hard_slope, hard_curve, curve)
    return value, slope, hard_slope, hard_curve, curve


def assessor_terms(data: dict[str, Any]) -> tuple[Floats, Floats]:
    params = data["params"]
    slope, curve = np.zeros(params.shape), np.zeros((*params.shape, params.shape[1]))
    pairwise_kernels.assessor_terms(*data.values(), np.exp(-0.5 * params[:, -1]), slope, curve)
    return slope, curve


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_slopes_are_those_of_the_log_likelihood(seed: int) -> None:
    data = random_pairs(seed)
    value, by_relevance, by_hardness, _, _ = item_terms(data)
    assert value == pytest.approx(log_likelihood(data), rel=1e-10)
    for found, name in ((by_relevance, "relevance"), (by_hardness, "hardness"), (assessor_terms(data)[0], "params")):
        expected = finite_differences(data, name)
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_the_curvature_of_relevance_is_exact(seed: int) -> None:
    data = random_pairs(seed)
    *_, pulls = item_terms(data)
    for d in range(len(data["relevance"])):
        slopes = []
        for sign in (1, -1):
            moved = data["relevance"].copy()
            moved[d] += sign * 1e-5
            slopes.append(item_terms({**data, "relevance": moved})[1][d])
        touching = (data["here"] == d) | (data["there"] == d)
        assert pulls[touching].sum() == pytest.approx(-(slopes[0] - slopes[1]) / 2e-5, rel=1e-5, abs=1e-8)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_the_curvature_of_assessors_is_the_expected_one(seed: int) -> None:
    """Over all grades that the left judgment could have had, the mean of the slopes' squares."""
    data = random_pairs(seed)
    apart = np.flatnonzero(data["assessor"][data["left"]] != data["assessor"][data["right"]])[:1]
    one = {name: data[name][apart] for name in ("left", "right", "weight", "here", "there")}
    data = {**data, **one, "weight": np.ones(1)}
    expected = np.zeros(assessor_terms(data)[1].shape)
    for g in range(N_GRADES):
        grade = data["grade"].copy()
        grade[data["left"]] = g
        told = {**data, "grade": grade}
        slope = assessor_terms(told)[0]
        expected += np.exp(log_likelihood(told)) * slope[:, :, None] * slope[:, None, :]
    assert np.allclose(assessor_terms(data)[1], np.tril(expected), atol=1e-12)


def test_the_experts_slope_is_that_of_its_log_likelihood() -> None:
    gold, relevance = np.array([2, -1, 0], np.int8), np.array([0.3, 0.1, -0.2])
    lines = expert_lines(N_GRADES)

    def value(r: Floats) -> float:
        return sum(
            float(np.log(np.exp(lines[0, g] * x + lines[1, g]) / np.exp(lines[0] * x + lines[1]).sum()))
            for g, x in zip(gold, r, strict=True)
            if g >= 0
        )

    slope, curve = np.zeros(3), np.zeros(3)
    assert pairwise_kernels.expert_terms(gold, relevance, lines, slope, curve) == pytest.approx(value(relevance))
    for d in range(3):
        move = 1e-5 * np.eye(3)[d]
        assert slope[d] == pytest.approx((value(relevance + move) - value(relevance - move)) / 2e-5, rel=1e-6)
        assert (curve[d] > 0) == (gold[d] >= 0)


def test_conjugate_gradients_solve_the_newton_step() -> None:
    rng = np.random.default_rng(0)
    here, there = rng.integers(0, 5, 30), rng.integers(5, 10, 30)
    pulls, own, slope = rng.random(30), 1 + rng.random(10), rng.standard_normal(10)
    matrix = np.diag(own)
    for d, other, pull in zip(here, there, pulls, strict=True):
        off = np.eye(10)[d] - np.eye(10)[other]
        matrix += pull * np.outer(off, off)
    step = pairwise_kernels.solve(here, there, pulls, own, slope, 30)
    exact = np.linalg.solve(matrix, slope)
    assert np.linalg.norm(step - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize(("n", "partners"), [(12, 2), (50, 2), (300, 5)])
def test_pairs_are_of_two_documents_and_weigh_one(n: int, partners: int) -> None:
    item = np.repeat(np.arange(n // 3 + 1), 3)[:n]
    order, bounds = np.arange(n), np.array([0, n])
    size = pairwise_kernels.most_pairs(bounds, np.array([0, 1]), partners)
    left, right, weight = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    drawn = pairwise_kernels.draw_pairs(order, item, bounds, partners, 0, 7, left, right, weight)
    assert (item[left[:drawn]] != item[right[:drawn]]).all()
    assert np.bincount(left[:drawn], weight[:drawn]) == pytest.approx(np.ones(n))
    if n <= 10 * partners:
        assert drawn == (item[:, None] != item).sum()
    else:
        assert drawn <= n * partners


def crowd(seed: int = 0, items: int = 200, assessors: int = 12, queries: int = 4) -> tuple[pd.DataFrame, Floats]:
    """Judgments of 3 grades around a standard normal relevance."""
    rng = np.random.default_rng(seed)
    relevance = rng.standard_normal(items)
    item, assessor = np.nonzero(rng.random((items, assessors)) < 0.5)
    seen = relevance[item] + rng.uniform(0.2, 1.0, assessors)[assessor] * rng.standard_normal(len(item))
    frame = pd.DataFrame({"query": item % queries, "document": item, "assessor": assessor})
    return frame.assign(grade=np.digitize(seen, [-0.5, 0.5])), relevance


def relevance_of(model: GDAPairwise, items: int = 200) -> Floats:
    found: Floats = model.consensus_.documents.set_index("document").loc[range(items), "relevance"].to_numpy()
    return found


@pytest.mark.parametrize("options", [{}, {"pairs": "same-assessor"}, {"difficulty": True}, {"partners": 3}])
def test_relevance_is_found_and_no_iteration_lowers_the_posterior(options: dict[str, Any]) -> None:
    frame, relevance = crowd()
    model = GDAPairwise(**options).fit(frame)
    for query in range(4):
        assert np.corrcoef(relevance_of(model)[query::4], relevance[query::4])[0, 1] > 0.85
    assert np.diff(model.history_).min() > -1e-9
    assert ("difficulty" in model.consensus_.documents) == ("difficulty" in options)


def test_pairs_of_one_assessor_ignore_how_strict_each_is() -> None:
    """Two assessors of one document each share no pair, whatever they say."""
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "y"], "grade": [0, 2]})
    for pairs, gap in (("all", True), ("same-assessor", False)):
        table = GDAPairwise(pairs=pairs).fit(frame).consensus_.documents.set_index("document")
        assert (table.loc["b", "relevance"] - table.loc["a", "relevance"] > 0.1) == gap


@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_an_adversary_among_many_is_read_in_reverse(seed: int) -> None:
    frame, _ = crowd(seed, assessors=16)
    flipped = frame.assign(grade=np.where(frame["assessor"] == 3, 2 - frame["grade"], frame["grade"]))
    one, other = GDAPairwise().fit(frame), GDAPairwise().fit(flipped)
    assert np.corrcoef(relevance_of(one), relevance_of(other))[0, 1] > 0.98
    about = other.consensus_.assessors.set_index("assessor")
    assert about["slope"].idxmin() == 3


def test_a_random_assessor_tells_little() -> None:
    frame, _ = crowd()
    rng = np.random.default_rng(1)
    noise = frame.drop_duplicates("document").assign(assessor=-1, grade=rng.integers(0, 3, 200))
    about = GDAPairwise().fit(pd.concat([frame, noise])).consensus_.assessors.set_index("assessor")
    assert about["informativeness"].idxmin() == -1
    assert about.loc[-1, "informativeness"] < 0.2 * about["informativeness"].median()


def test_grades_follow_the_level_of_a_query() -> None:
    """Pairs cannot tell a query of good documents from one of bad ones; the judgments one by one can."""
    frame, _ = crowd()
    good = frame[frame["query"] == 0].assign(query="good", grade=lambda same: np.maximum(same["grade"], 1))
    bad = frame[frame["query"] == 0].assign(query="bad", grade=lambda same: np.maximum(same["grade"], 1) - 1)
    rest = frame[frame["query"] != 0].astype({"query": str})
    table = GDAPairwise().fit(pd.concat([good, bad, rest])).consensus_.documents
    mean = table.groupby("query")["grade"].mean()
    assert mean["good"] > mean["bad"] + 0.5


def test_an_expert_moves_relevance() -> None:
    frame, relevance = crowd()
    lowest = int(np.argmin(relevance))
    gold = pd.DataFrame({"query": [lowest % 4], "document": [lowest], "grade": [2]})
    crowd_only, with_expert = GDAPairwise().fit(frame), GDAPairwise().fit(frame, gold)
    assert relevance_of(with_expert)[lowest] > relevance_of(crowd_only)[lowest] + 0.2


def test_partners_depend_on_the_seed_and_not_on_shards() -> None:
    frame, _ = crowd()
    one = relevance_of(GDAPairwise(partners=10).fit(frame))
    cut = relevance_of(GDAPairwise(partners=10).fit(frame, engine=LocalEngine(1, shard_size=100)))
    other = relevance_of(GDAPairwise(partners=10, seed=1).fit(frame))
    assert np.allclose(one, cut, atol=1e-8)
    assert not np.allclose(one, other, atol=1e-3)
    assert np.corrcoef(one, other)[0, 1] > 0.97


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partners": 0}, "partners is a number from 1 up"),
        ({"pairs": "some"}, "pairs is one of all, same-assessor"),
        ({"seed": -1}, "seed is a number from 0 up"),
        ({"difficulty": "yes"}, "difficulty is True or False"),
        ({"unjudgeable_as": "model"}, "has no model of them"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GDAPairwise(**options).fit(crowd()[0])


@pytest.mark.data
def test_the_reference_figures_on_rf10(rf10: Judgments) -> None:
    model = GDAPairwise().fit(rf10)
    gold = dataset("trec-rf10").read_gold().frame
    means = evaluate(model.consensus_.documents, gold, ["AP", "nDCG", "Tau"], gains="exponential").means
    assert list(means.values()) == pytest.approx([0.783, 0.830, 0.672], abs=0.01)
