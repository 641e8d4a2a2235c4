"""GDA-PW: its kernels against references, what it finds in a crowd, and its figures on RF10."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GDAPairwise, Judgments, LocalEngine, evaluate, read_judgments
from crowdrank._typing import Floats
from crowdrank.consensus import gda_pairwise, gda_pairwise_documents, gda_pairwise_likelihood
from crowdrank.consensus.gda_pairwise_assessors import (
    PRIOR_SD,
    empty_step_history,
    extend_step_history,
    extrapolated_step,
    pairwise_informativeness,
    prior_mean,
    standardized_params,
)
from crowdrank.consensus.gda_pairwise_documents import draw_partners, posterior_variance
from crowdrank.consensus.latent import expert_lines
from crowdrank.engine.shards import split_into_shards
from crowdrank.errors import UsageError
from crowdrank.readers.datasets import dataset
from experiments.calibration import draw_gda

N_GRADES = 3


def random_params(seed: int, assessors: int, tied: bool = False) -> Floats:
    """Draw parameters of assessors from the prior."""
    rng = np.random.default_rng(seed)
    mean = prior_mean(np.full(assessors, N_GRADES), N_GRADES)
    params = mean + np.repeat(PRIOR_SD, N_GRADES) * rng.standard_normal(mean.shape)
    params[:, 2 * N_GRADES :] = params[:, 2 * N_GRADES :][:, :1] if tied else params[:, 2 * N_GRADES :]
    return params


def random_pairs(seed: int, n: int = 40, items: int = 6, assessors: int = 4) -> dict[str, Any]:
    """Draw judgments of one query, partners of each, and values of all parameters."""
    rng = np.random.default_rng(seed)
    doc = rng.integers(0, items, n).astype(np.int32)
    partners = [rng.permutation(np.flatnonzero(doc != doc[i]))[: rng.integers(0, 30)] for i in range(n)]
    return {
        "first": np.cumsum([0, *(len(some) for some in partners)]),
        "partner": np.concatenate(partners).astype(np.int32),
        "doc": doc,
        "assessor": rng.integers(0, assessors, n).astype(np.int32),
        "grade": rng.integers(0, N_GRADES, n).astype(np.int8),
        "weight": rng.uniform(0.2, 1, n),
        "relevance": rng.standard_normal(items),
        "log_eps": 0.4 * rng.standard_normal(items),
        "params": random_params(seed, assessors),
    }


def log_likelihood(data: dict[str, Any], **changed: Any) -> float:
    """Return the weighted mean over partners of log p(g | g', dr), summed over judgments, from eqs. 7 and 8."""
    data = {**data, **changed}
    total, doc = 0.0, data["doc"]
    for i in range(len(doc)):
        partners = data["partner"][data["first"][i] : data["first"][i + 1]]
        for j in partners:
            mine, its = (np.split(data["params"][data["assessor"][k]], 3) for k in (i, j))
            dr = data["relevance"][doc[i]] - data["relevance"][doc[j]]
            log_eps = data["log_eps"][doc[i]] + data["log_eps"][doc[j]]
            variance = np.sqrt(np.exp(mine[2] + its[2][data["grade"][j]] + log_eps))
            density = np.exp(mine[1] - 0.5 * (dr - mine[0] + its[0][data["grade"][j]]) ** 2 / variance)
            density /= np.sqrt(2 * np.pi * variance)
            share = data["weight"][i] * data["weight"][j] / data["weight"][partners].sum()
            total += share * np.log(density[data["grade"][i]] / density.sum())
    return total


def finite_differences(data: dict[str, Any], name: str, step: float = 1e-5) -> Floats:
    """Return the slope of the log likelihood by each number of an array."""
    slope = np.empty(data[name].shape)
    for place in np.ndindex(slope.shape):
        ends = []
        for sign in (1, -1):
            moved = data[name].copy()
            moved[place] += sign * step
            ends.append(log_likelihood(data, **{name: moved}))
        slope[place] = (ends[0] - ends[1]) / (2 * step)
    return slope


def pair_terms(data: dict[str, Any], by_assessor: bool = True) -> tuple[float, Floats, Floats, Floats]:
    """Return log likelihood, derivatives by judgment, and slope and curvature by the assessors' parameters."""
    doc, params, n, items = data["doc"], data["params"], len(data["doc"]), len(data["relevance"])
    mu, log_alpha, log_width = (np.ascontiguousarray(part) for part in np.split(params, 3, axis=1))
    parameters = gda_pairwise_likelihood.Parameters(
        mu, log_alpha - 0.25 * log_width, np.exp(-0.5 * log_width), np.zeros((2, 2)), 1.0, 0.0, True
    )
    query = gda_pairwise_likelihood.Query(
        doc, data["assessor"], data["grade"], np.full(items, -1, np.int8), data["first"], data["partner"], True
    )
    documents = gda_pairwise_documents.DocumentEstimates(data["relevance"], data["log_eps"], *np.zeros((4, items)))
    by_judgment, sums = gda_pairwise_likelihood.judgment_values(query, data["weight"]), np.empty((2, n, 5))
    slope, curve = np.zeros(params.shape), np.zeros((*params.shape, params.shape[1]))
    if not by_assessor:
        slope, curve = slope[:0], curve[:0]
    gda_pairwise_documents.write_residuals(query, parameters, documents, by_judgment)
    block = gda_pairwise_likelihood.empty_block(N_GRADES)
    value = gda_pairwise_likelihood.pair_terms(
        query, parameters, by_judgment, data["relevance"], data["log_eps"], by_assessor, True, block, sums, slope, curve
    )
    return value, sums, slope, curve


def by_document(data: dict[str, Any], sums: Floats, column: int) -> Floats:
    """Return the sum over judgments of a document, explained and as partners."""
    sign = -1 if column == gda_pairwise_likelihood.SLOPE else 1  # sums are by the mean of the grade, not by relevance
    both = sign * sums[:, :, column].sum(axis=0)
    return np.bincount(data["doc"], both, len(data["relevance"])).astype(np.float64)


@settings(max_examples=2)
@given(seed=st.integers(0, 10_000))
def test_slopes_are_those_of_the_log_likelihood(seed: int) -> None:
    data = random_pairs(seed)
    value, sums, slope, _ = pair_terms(data)
    assert value == pytest.approx(log_likelihood(data), rel=1e-10)
    by_relevance = by_document(data, sums, gda_pairwise_likelihood.SLOPE)
    by_difficulty = by_document(data, sums, gda_pairwise_likelihood.WIDTH_SLOPE)
    for found, name in ((by_relevance, "relevance"), (by_difficulty, "log_eps"), (slope, "params")):
        expected = finite_differences(data, name)
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_slope_and_curvature_by_relevance_are_the_same_without_other_derivatives(seed: int) -> None:
    data = random_pairs(seed)
    alone, among_others = (pair_terms(data, by_assessor)[1] for by_assessor in (False, True))
    columns = [gda_pairwise_likelihood.SLOPE, gda_pairwise_likelihood.CURVE]
    assert np.allclose(alone[:, :, columns], among_others[:, :, columns], rtol=1e-10, atol=1e-12)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_the_curvature_by_relevance_is_exact_for_tied_widths(seed: int) -> None:
    data = random_pairs(seed) | {"params": random_params(seed, 4, tied=True)}
    curve = by_document(data, pair_terms(data)[1], gda_pairwise_likelihood.CURVE)
    for d in range(len(data["relevance"])):
        slopes = []
        for sign in (1, -1):
            moved = data["relevance"].copy()
            moved[d] += sign * 1e-5
            there = {**data, "relevance": moved}
            slopes.append(by_document(there, pair_terms(there)[1], gda_pairwise_likelihood.SLOPE)[d])
        assert curve[d] == pytest.approx(-(slopes[0] - slopes[1]) / 2e-5, rel=1e-5, abs=1e-6)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), given_grade=st.integers(0, N_GRADES - 1))
def test_the_curvature_by_assessors_is_the_expected_one(seed: int, given_grade: int) -> None:
    """Compare with the mean of the squared slopes over all grades of the judgment that is explained."""
    rng = np.random.default_rng(seed)
    data = random_pairs(seed, n=2, items=2, assessors=2) | {"weight": np.ones(2)}
    data |= {"doc": np.array([0, 1], np.int32), "assessor": np.array([0, 1], np.int32)}
    data |= {"first": np.array([0, 1, 1]), "partner": np.array([1], np.int32)}
    partner = rng.integers(0, N_GRADES)
    expected = np.zeros(pair_terms(data)[3].shape)
    for g in range(N_GRADES):
        drawn = {**data, "grade": np.array([g, partner], np.int8)}
        slope = pair_terms(drawn)[2]
        expected += np.exp(log_likelihood(drawn)) * slope[:, :, None] * slope[:, None, :]
    curve = pair_terms({**data, "grade": np.array([given_grade, partner], np.int8)})[3]
    assert np.allclose(np.tril(curve), np.tril(expected), atol=1e-10)


def test_exponentials_are_exponentials() -> None:
    values = [*np.random.default_rng(0).normal(0, 30, 99), 0.0, -1e9, 1e9]
    found = [gda_pairwise_likelihood.exponential(value) for value in values]
    assert found == pytest.approx(np.exp(np.clip(values, -128, 128)), rel=1e-13)


def test_steps_that_shrink_in_two_directions_are_extrapolated_to_their_end() -> None:
    """Take steps of a linear iteration in which two directions shrink slowly, at rates 0.9 and 0.6."""
    rng = np.random.default_rng(0)
    end, slow, slower = rng.standard_normal((3, 20, 3 * N_GRADES))
    params, recent, lengths = end + slow + slower, empty_step_history(end), np.array([1.0, 1.0])
    for number in range(3):
        step = -(0.4 * lengths[0] * slow + 0.1 * lengths[1] * slower)
        extrapolated = extrapolated_step(params, step, recent)
        assert (number > 0) or np.array_equal(extrapolated, step)
        recent, at = extend_step_history(recent, params, step), params
        params, lengths = params + step, lengths * [0.6, 0.9]
    turned = (step * recent[:, -len(step[0]) :]).sum(axis=1) < 0
    assert np.allclose((at + extrapolated)[~turned], end[~turned], atol=1e-9)


def test_an_assessor_who_alternates_goes_to_the_middle() -> None:
    there, back = np.zeros((1, 3 * N_GRADES)), np.ones((1, 3 * N_GRADES))
    recent = extend_step_history(empty_step_history(there), there, back - there)
    assert np.allclose(back + extrapolated_step(back, there - back, recent), 0.5)


def test_extrapolation_saves_iterations_and_does_not_change_where_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, _ = crowd()
    fast = GDAPairwise(pairs="same-assessor", tol=1e-9).fit(frame)
    monkeypatch.setattr(gda_pairwise, "extrapolated_step", lambda params, step, recent: step)
    plain = GDAPairwise(pairs="same-assessor", tol=1e-9).fit(frame)
    assert fast.n_iter_ < 0.5 * plain.n_iter_
    assert np.allclose(fast.theta_["params"], plain.theta_["params"], atol=1e-3)
    assert not fast.theta_["recent"].any()


def test_iterations_do_not_end_while_steps_are_long() -> None:
    """The log posterior rises at first and falls later, so that two values may be equal by chance."""
    frame, _ = crowd()
    careless, careful = GDAPairwise(tol=100.0).fit(frame), GDAPairwise(tol=1e-9).fit(frame)
    assert careless.converged_
    assert 3 < careless.n_iter_ < careful.n_iter_
    assert np.allclose(careless.theta_["params"], careful.theta_["params"], atol=0.1)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), unit=st.floats(0.2, 5))
def test_pairs_do_not_determine_the_unit(seed: int, unit: float) -> None:
    data = random_pairs(seed)
    params = standardized_params({"params": data["params"], "unit": np.array([unit])})
    scaled = {"relevance": data["relevance"] / unit, "params": params}
    assert log_likelihood(data, **scaled) == pytest.approx(log_likelihood(data), rel=1e-9)


def test_the_experts_slope_is_that_of_its_log_likelihood() -> None:
    gold, relevance = np.array([2, -1, 0], np.int8), np.array([0.3, 0.1, -0.2])
    lines = expert_lines(np.array([-0.5, 0.5]))

    def value(r: Floats) -> float:
        return sum(
            float(np.log(np.exp(lines[0, g] * x + lines[1, g]) / np.exp(lines[0] * x + lines[1]).sum()))
            for g, x in zip(gold, r, strict=True)
            if g >= 0
        )

    slope, curve = np.zeros(3), np.zeros(3)
    gda_pairwise_documents.add_expert_terms(gold, 2.0 * relevance, lines, 2.0, slope, curve)
    for d in range(3):
        move = 1e-5 * np.eye(3)[d]
        assert 2.0 * slope[d] == pytest.approx((value(relevance + move) - value(relevance - move)) / 2e-5, rel=1e-6)
        assert (curve[d] > 0) == (gold[d] >= 0)


@pytest.mark.parametrize(("n", "partners"), [(12, 2), (50, 2), (300, 5)])
def test_partners_are_of_other_documents(n: int, partners: int) -> None:
    doc = np.repeat(np.arange(n // 3 + 1), 3)[:n].astype(np.int32)
    bounds = np.array([7, 7 + n])
    first, partner = draw_partners(doc, bounds, partners, 0, 7)
    drawn = partner[: first[-1]]
    left = np.repeat(np.arange(n), np.diff(first))
    assert (doc[left] != doc[drawn]).all()
    if n <= 10 * partners:
        assert len(drawn) == (doc[:, None] != doc).sum()
        assert len(set(zip(left, drawn, strict=True))) == len(drawn)
    else:
        assert np.diff(first).max() == partners
        assert np.diff(first).min() >= partners - 1
        assert np.bincount(drawn, minlength=n).max() < 5 * partners


def test_pairs_of_one_assessor_are_of_that_assessor() -> None:
    frame, _ = crowd(items=60)
    for engine in (LocalEngine(), LocalEngine(1, shard_size=50)):
        model = GDAPairwise(pairs="same-assessor").fit(frame, engine=engine)
    (shard,) = split_into_shards(model.judgments_, locality="query", shard_size=10**9)
    local = model._start(shard)
    assert sorted(local["order"]) == list(range(len(frame)))
    query = shard.item_query[local["item"]]
    for start, stop in pairwise(local["groups"]):
        members = local["order"][start:stop]
        assert len(set(shard.assessor[members])) == len(set(query[members])) == 1
    assert len(local["groups"]) - 1 == len(frame.groupby(["query", "assessor"]))


@pytest.mark.parametrize(
    ("options", "n_labels", "n_documents"),
    [
        *(({}, *size) for size in ((5, 1500), (17, 1000), (60, 600), (120, 600))),
        *(({"pairs": "same-assessor"}, *size) for size in ((5, 1500), (60, 600))),
    ],
)
def test_intervals_cover_with_few_and_many_labels(options: dict[str, Any], n_labels: int, n_documents: int) -> None:
    world = draw_gda(n_labels, seed=0, n_documents=n_documents)
    table = GDAPairwise(**options).fit(world.judgments).consensus_.documents
    inside = (table["lower"] <= world.relevance) & (world.relevance <= table["upper"])
    assert 0.93 <= inside.mean() <= 0.97


@pytest.mark.parametrize(
    ("options", "queries"), [({}, 20), ({}, 200), ({"partners": 4}, 200), ({"pairs": "same-assessor"}, 200)]
)
def test_intervals_are_of_the_difference_from_the_mean_of_the_query(options: dict[str, Any], queries: int) -> None:
    """Draw relevance whose mean differs from query to query, most of all in queries of ten documents."""
    rng = np.random.default_rng(5)
    items, assessors = 2000, 40
    truth = rng.standard_normal(items)
    item, assessor = np.nonzero(rng.random((items, assessors)) < 0.2)
    steep = rng.uniform(0.5, 2.5, assessors)[assessor][:, None] * np.linspace(-1, 1, N_GRADES)
    grade = (steep * truth[item][:, None] + rng.gumbel(size=steep.shape)).argmax(axis=1)
    frame = pd.DataFrame({"query": item % queries, "document": item, "assessor": assessor, "grade": grade})
    by_document = frame.drop_duplicates("document").set_index("document")
    truth = truth[by_document.index]
    truth -= pd.Series(truth).groupby(by_document["query"].to_numpy()).transform("mean").to_numpy()
    for level, least, most in ((0.5, 0.45, 0.56), (0.95, 0.93, 0.975)):
        table = GDAPairwise(interval=level, **options).fit(frame).consensus_.documents.set_index("document")
        table = table.loc[by_document.index]
        assert least < ((table["lower"] <= truth) & (truth <= table["upper"])).mean() < most
        assert (table["relevance"] ** 2 + table["sd"] ** 2).mean() == pytest.approx(1 - queries / items, abs=0.01)


def test_the_only_document_of_a_query_has_the_prior() -> None:
    frame, _ = crowd()
    alone = frame[frame["document"] == 0].assign(query="alone", document=-1)
    table = GDAPairwise().fit(pd.concat([frame.astype({"query": str}), alone])).consensus_.documents
    (row,) = table[table["query"] == "alone"].to_dict("records")
    assert (row["relevance"], row["sd"]) == pytest.approx((0.0, 1.0), abs=1e-9)


def test_the_variance_is_that_of_the_inverse_curvature() -> None:
    """Invert the curvature of equally connected documents, and take the differences from their weighted mean."""
    rng = np.random.default_rng(0)
    information, precision = rng.uniform(0.1, 5, 6), rng.uniform(0.5, 3, 6)
    curvature = np.diag(precision + information) - np.outer(information, information) / information.sum()
    difference = np.eye(6) - precision / precision.sum()
    expected = np.diag(difference @ np.linalg.inv(curvature) @ difference.T)
    local = {"information": information, "precision": precision, "query_items": np.array([0, 6])}
    assert posterior_variance(local) == pytest.approx(expected, rel=1e-9)


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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pairs": "same-assessor"},
        {"difficulty": True},
        {"partners": 3},
        {"ordinal": True},
        {"tied_variance": False},
        {"estimation": "joint"},
        {"difficulty": True, "tied_variance": False, "ordinal": True, "pairs": "same-assessor"},
    ],
)
def test_relevance_is_found(options: dict[str, Any]) -> None:
    frame, relevance = crowd()
    model = GDAPairwise(**options).fit(frame)
    for query in range(4):
        assert np.corrcoef(relevance_of(model)[query::4], relevance[query::4])[0, 1] > 0.85
    assert model.converged_
    assert (model.grade_gaussians()["width"] > 0).all()
    assert ("difficulty" in model.consensus_.documents) == ("difficulty" in options)


def test_joint_estimation_is_at_the_maximum_of_equation_8() -> None:
    frame, _ = crowd(items=30, assessors=6, queries=1)
    table = read_judgments(frame)
    model = GDAPairwise(estimation="joint").fit(table)
    relevance = model.consensus_.documents["relevance"].to_numpy()
    doc = table.item
    partners = [np.flatnonzero(doc != one) for one in doc]
    data = {
        "doc": doc,
        "assessor": table.assessor,
        "grade": table.grade,
        "first": np.cumsum([0, *map(len, partners)]),
        "partner": np.concatenate(partners),
        "weight": np.ones(len(doc)),
        "params": model.theta_["params"],
        "relevance": relevance,
        "log_eps": np.zeros(30),
    }
    slope = finite_differences(data, "relevance") - relevance  # of the log posterior
    assert slope == pytest.approx(0, abs=1e-3)


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
    relevance = [model.consensus_.documents["relevance"] for model in (one, other)]
    assert np.corrcoef(*relevance)[0, 1] > 0.98
    about = other.consensus_.assessors.set_index("assessor")
    assert about["separation"].idxmin() == 3


def test_a_random_assessor_tells_little() -> None:
    frame, _ = crowd()
    rng = np.random.default_rng(1)
    noise = frame.drop_duplicates("document").assign(assessor=-1, grade=rng.integers(0, 3, 200))
    about = GDAPairwise().fit(pd.concat([frame, noise])).consensus_.assessors.set_index("assessor")
    assert about["informativeness"].idxmin() == -1
    assert about.loc[-1, "informativeness"] < 0.2 * about["informativeness"].median()


@pytest.mark.parametrize(("options", "share"), [({}, 0.1), ({"tied_variance": False}, 0.4)])
def test_a_reversed_assessor_counts_as_random_if_means_are_ordered(options: dict[str, Any], share: float) -> None:
    """Free widths still tell extreme documents from others."""
    frame, _ = crowd(assessors=16)
    flipped = frame.assign(grade=np.where(frame["assessor"] == 3, 2 - frame["grade"], frame["grade"]))
    model = GDAPairwise(ordinal=True, **options).fit(flipped)
    about = model.consensus_.assessors.set_index("assessor")
    assert np.diff(model.theta_["params"][:, :N_GRADES], axis=1).min() > -1e-6
    assert about.loc[3, "informativeness"] < share * about["informativeness"].median()


@pytest.mark.parametrize("options", [{}, {"tied_variance": False}])
def test_gaussians_are_standardized_and_give_the_curves(options: dict[str, Any]) -> None:
    frame, _ = crowd()
    model = GDAPairwise(**options).fit(frame)
    table = model.grade_gaussians()
    mean = (table["alpha"] * table["mu"]).groupby(table["assessor"]).sum()
    variance = (table["alpha"] * (table["width"] + table["mu"] ** 2)).groupby(table["assessor"]).sum()
    assert mean.to_numpy() == pytest.approx(0, abs=1e-6)
    assert variance.to_numpy() == pytest.approx(1, abs=1e-6)
    curves, own = model.grade_curves(7), table[table["assessor"] == 7]
    off = curves["relevance"].to_numpy()[:, None] - own["mu"].to_numpy()
    density = (
        own["alpha"].to_numpy() / np.sqrt(own["width"].to_numpy()) * np.exp(-0.5 * off**2 / own["width"].to_numpy())
    )
    central = np.abs(curves["relevance"]) < 1.5  # curves are averaged over partners, hence flatter
    found = density / density.sum(axis=1, keepdims=True)
    assert np.abs(found - curves[["p0", "p1", "p2"]].to_numpy())[central].max() < 0.1


def test_copies_of_an_assessor_count_as_one() -> None:
    frame, relevance = crowd()
    noise = frame.drop_duplicates("document").assign(assessor="copy 0", family="copies")
    noise["grade"] = np.random.default_rng(1).integers(0, 3, len(noise))
    copies = pd.concat([noise.assign(assessor=f"copy {n}") for n in range(12)])
    both = pd.concat(
        [frame.assign(assessor=frame["assessor"].astype(str), family=frame["assessor"].astype(str)), copies]
    )
    correlation = [
        np.corrcoef(relevance_of(GDAPairwise(families=families).fit(both)), relevance)[0, 1]
        for families in ("column", "none")
    ]
    assert correlation[0] > 0.85
    assert correlation[0] > correlation[1] + 0.2


def mirrored(params: Floats) -> Floats:
    """Assessors whose grades are reversed."""
    turned: Floats = params * np.repeat([-1.0, 1.0, 1.0], N_GRADES)
    return turned


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_pairwise_informativeness_is_the_information_of_two_grades(seed: int) -> None:
    """Against eqs. 7 and 9-11 taken literally, by sums over a fine grid."""
    params = random_params(seed, 1, tied=True)[0]
    mu, alpha, w = params[:N_GRADES], np.exp(params[N_GRADES : 2 * N_GRADES]), np.exp(params[-1])
    grid = np.linspace(-6, 6, 2001)
    before = np.exp(-(grid**2) / 4) / np.exp(-(grid**2) / 4).sum()

    def chance(g: int, given_grade: int, dr: Floats) -> Floats:
        density = [alpha[h] * np.exp(-0.5 * (dr - (mu[h] - mu[given_grade])) ** 2 / w) for h in range(N_GRADES)]
        share: Floats = density[g] / sum(density)
        return share

    pairs = [(g, h) for g in range(N_GRADES) for h in range(N_GRADES)]
    joint = np.array([np.sqrt(chance(g, h, grid) * chance(h, g, -grid)) for g, h in pairs])
    joint = joint / joint.sum(axis=0) * before
    marginal = joint.sum(axis=1, keepdims=True)
    expected = 0.5 * (joint * np.log(joint / marginal / before)).sum()
    assert pairwise_informativeness(params[None])[0] == pytest.approx(expected, abs=0.01)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), by=st.floats(0.3, 0.8))
def test_pairwise_informativeness_knows_random_steep_and_reversed(seed: int, by: float) -> None:
    mean = prior_mean(np.full(5, N_GRADES), N_GRADES)
    params = 0.5 * (mean + random_params(seed, 5, tied=True))
    found = pairwise_informativeness(params)
    assert pairwise_informativeness(mirrored(params)) == pytest.approx(found, rel=1e-9)
    flatter = params + np.repeat([0.0, 0.0, np.log(1 / by)], N_GRADES)
    assert (pairwise_informativeness(flatter) < found).all()
    random = params * np.repeat([0.0, 1.0, 1.0], N_GRADES)
    assert pairwise_informativeness(random) == pytest.approx(np.zeros(5), abs=1e-9)
    many = pairwise_informativeness(np.tile(params, (2000, 1)))
    assert many == pytest.approx(np.tile(found, 2000))


def test_assessors_show_what_two_grades_tell() -> None:
    frame, _ = crowd()
    about = GDAPairwise().fit(frame).consensus_.assessors
    assert (about["pairwise_informativeness"] > 0).all()
    assert about["pairwise_informativeness"].corr(about["informativeness"]) > 0.9


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
    other = relevance_of(GDAPairwise(partners=10, random_state=1).fit(frame))
    assert np.allclose(one, cut, atol=1e-8)
    assert not np.allclose(one, other, atol=1e-3)
    assert np.corrcoef(one, other)[0, 1] > 0.97


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partners": 0}, "partners must be a whole number of at least 1"),
        ({"pairs": "some"}, "pairs must be one of all, same-assessor"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0"),
        ({"difficulty": "yes"}, "difficulty must be True or False"),
        ({"estimation": "both"}, "estimation must be one of marginal, joint"),
        ({"unjudgeable_as": "model"}, "unjudgeable_as must be one of lowest, drop"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GDAPairwise(**options).fit(crowd()[0])


@pytest.mark.data
def test_the_reference_figures_on_rf10(rf10: Judgments) -> None:
    model = GDAPairwise().fit(rf10)
    gold = dataset("trec-rf10").read_gold().frame
    means = evaluate(model.consensus_.documents, gold, ["AP", "nDCG", "Tau"], unjudged="skip").means
    assert list(means.values()) == pytest.approx([0.784, 0.831, 0.662], abs=0.006)
