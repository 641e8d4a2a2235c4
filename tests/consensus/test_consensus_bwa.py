"""BWA against slow references, data drawn from the model itself, and TREC RF10."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import digamma, gammaln
from scipy.stats import gamma, norm

from crowdrank import BWA, Average, Gold, Judgments, evaluate, read_gold, read_judgments
from crowdrank.consensus.bwa import (
    INITIAL_BIAS_VARIANCE,
    INITIAL_PRECISION_PRIOR,
    PRIOR_ASSESSORS,
    ROUNDING_VARIANCE,
    expert_grade_ranges,
    grade_probabilities,
    learn_precision_prior,
    update_items,
)
from crowdrank.errors import UsageError
from crowdrank.readers.datasets import dataset
from crowdrank.testing.robustness_checks import GradeWorld


def crowd(
    seed: int, items: int = 300, assessors: int = 20, share: float = 0.5, grades: int = 7, bias_sd: float = 0.0
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Judgments drawn from the model (and kept on the scale), and the relevance, biases and precisions behind them."""
    rng = np.random.default_rng(seed)
    relevance = rng.normal((grades - 1) / 2, 1.2, items)
    bias, precision = rng.normal(0, bias_sd, assessors), rng.gamma(2, 1, assessors)
    item, assessor = np.nonzero(rng.random((items, assessors)) < share)
    noise = rng.normal(0, 1, len(item)) / np.sqrt(precision[assessor])
    grade = np.rint(relevance[item] + bias[assessor] + noise).clip(0, grades - 1).astype(int)
    return pd.DataFrame({"document": item, "assessor": assessor, "grade": grade}), relevance, bias, precision


def some_gold(frame: pd.DataFrame) -> Gold:
    scale = read_judgments(frame).scale
    return read_gold(frame.drop_duplicates("document").head(5)[["document", "grade"]], grades=scale.names)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_pass_equals_its_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 6, 9))])
    item, n = np.repeat(np.arange(9), np.diff(offsets)), offsets[-1]
    assessor, grade = rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 5, n).astype(np.int8)
    gold = rng.integers(-1, 3, 9).astype(np.int8)
    sets = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], dtype=np.bool_)
    precision, bias, grade_values = rng.gamma(2, 1, 4), rng.normal(0, 1, 4), np.array([0.0, 0.5, 2.0, 3.0, 4.0])
    mean, variance, first, second = np.empty(9), np.empty(9), np.zeros(4), np.zeros(4)
    judged = offsets, assessor, grade, gold, *expert_grade_ranges(sets, grade_values), grade_values
    update_items(*judged, 2.0, 0.5, precision, bias, mean, variance, first, second)
    weight = 0.5 + np.bincount(item, precision[assessor], 9)
    total = 0.5 * 2.0 + np.bincount(item, precision[assessor] * (grade_values[grade] - bias[assessor]), 9)
    lowest, highest = np.array([0.0, 0.5, 3.0, -np.inf])[gold], np.array([0.0, 2.0, 4.0, np.inf])[gold]
    assert np.allclose(mean, np.clip(total / weight, lowest, highest))
    assert np.allclose(variance, np.where(gold == 0, 0.0, 1 / weight))
    off = grade_values[grade] - mean[item]
    assert np.allclose(first, np.bincount(assessor, off, 4))
    assert np.allclose(second, np.bincount(assessor, off**2 + variance[item], 4))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), bias=st.booleans(), experts=st.booleans())
def test_no_iteration_lowers_the_bound(seed: int, bias: bool, experts: bool) -> None:
    frame, *_ = crowd(seed, items=40, assessors=6, bias_sd=0.5)
    model = BWA(n_iter=3000, tol=1e-10, bias=bias).fit(frame, some_gold(frame) if experts else None)
    assert len(model.history_) > 3
    assert (np.diff(model.history_) > -1e-12).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("experts", [True, False])
def test_the_history_is_the_bound(bias: bool, experts: bool) -> None:
    frame, *_ = crowd(1, items=30, assessors=5, bias_sd=0.5)
    known = some_gold(frame) if experts else None
    model = BWA(bias=bias).fit(frame, known)
    about, table = model.consensus_.assessors, model.consensus_.documents
    own = pd.Index(about["assessor"]).get_indexer(pd.Index(frame["assessor"]))
    of = pd.Index(table["document"]).get_indexer(pd.Index(frame["document"]))
    bound = slow_bound(model, list(zip(of, own, frame["grade"], strict=True)), table)
    assert model.history_[-1] == pytest.approx(bound / len(frame), rel=1e-9)


def slow_bound(model: BWA, judged: list[tuple[int, int, int]], table: pd.DataFrame) -> float:
    """The expected log joint density and the entropies, term by term."""
    theta = model.theta_
    shape, rate, middle, spread = theta["shape"], theta["rate"], theta["item_mean"][0], theta["item_variance"][0]
    expected, expected_log = shape / rate, digamma(shape) - np.log(rate)
    bound = 0.0
    relevance, sds = table["relevance"].to_numpy(), table["sd"].to_numpy()
    for d, a, grade in judged:
        off = (
            (grade - relevance[d] - theta["bias"][a]) ** 2
            + sds[d] ** 2
            + theta["bias_uncertainty"][a]
            + ROUNDING_VARIANCE
        )
        bound += 0.5 * (expected_log[a] - np.log(2 * np.pi) - expected[a] * off)
    for mean, sd in zip(relevance, sds, strict=True):
        bound += norm.logpdf(mean, middle, np.sqrt(spread)) - 0.5 * sd**2 / spread
        bound += norm(0, sd).entropy() if sd > 0 else 0.0
    a0, b0 = theta["gamma"]
    for own_shape, own_rate, times in [
        *zip(shape, rate, [1.0] * len(shape), strict=True),
        (*INITIAL_PRECISION_PRIOR, PRIOR_ASSESSORS),
    ]:
        log_mean = digamma(own_shape) - np.log(own_rate)
        bound += times * (a0 * np.log(b0) - gammaln(a0) + (a0 - 1) * log_mean - b0 * own_shape / own_rate)
    bound += sum(
        gamma(own_shape, scale=1 / own_rate).entropy() for own_shape, own_rate in zip(shape, rate, strict=True)
    )
    if model.bias:
        wide = theta["bias_variance"][0]
        for mean, bias_uncertainty in zip(theta["bias"], theta["bias_uncertainty"], strict=True):
            bound += (
                norm.logpdf(mean, 0, np.sqrt(wide))
                - 0.5 * bias_uncertainty / wide
                + norm(0, np.sqrt(bias_uncertainty)).entropy()
            )
        bound += PRIOR_ASSESSORS * (norm.logpdf(0, 0, np.sqrt(wide)) - 0.5 * INITIAL_BIAS_VARIANCE / wide)
    return float(bound)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_learned_gamma_is_the_likeliest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = rng.gamma(2, 5, 12) + 1
    rate = shape / rng.gamma(3, 0.5, 12)
    times = np.append(np.ones(12), PRIOR_ASSESSORS)
    shapes, rates = np.append(shape, INITIAL_PRECISION_PRIOR[0]), np.append(rate, INITIAL_PRECISION_PRIOR[1])

    def loss(logs: NDArray[np.float64]) -> float:
        a, b = np.exp(logs)
        terms = a * np.log(b) - gammaln(a) + (a - 1) * (digamma(shapes) - np.log(rates)) - b * shapes / rates
        return -float(times @ terms)

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    assert np.allclose(np.log(learn_precision_prior(shape, rate)), best, atol=1e-3)


def test_what_the_judgments_were_drawn_from_is_found() -> None:
    frame, relevance, bias, precision = crowd(2, items=600, bias_sd=0.8)
    model = BWA(bias=True).fit(frame)
    table, about = model.consensus_.documents, model.consensus_.assessors
    assert np.corrcoef(about["shift"], bias[about["assessor"]])[0, 1] > 0.97
    assert np.corrcoef(np.log(about["precision"]), np.log(precision[about["assessor"]]))[0, 1] > 0.9
    truth = relevance[table["document"]] + bias.mean()  # only differences of biases show
    covered = (table["lower"] <= truth) & (truth <= table["upper"])
    assert covered.mean() > 0.88


def test_it_is_nearer_to_the_truth_than_the_average() -> None:
    frame, relevance, *_ = crowd(3, items=600)
    model = BWA().fit(frame)
    table = model.consensus_.documents
    truth = relevance[table["document"]]
    average = Average().fit(frame).consensus_.documents["relevance"]
    assert ((table["relevance"] - truth) ** 2).mean() < 0.9 * ((average - truth) ** 2).mean()
    covered = (table["lower"] <= truth) & (truth <= table["upper"])
    assert covered.mean() == pytest.approx(0.95, abs=0.04)
    assert "shift" not in model.consensus_.assessors


def test_assessors_who_never_disagree_are_not_infinitely_precise() -> None:
    frame = pd.DataFrame(
        [(d, a, d % 3) for d in range(200) for a in range(5)], columns=["document", "assessor", "grade"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BWA().fit(frame)
    assert (model.consensus_.assessors["precision"] < 1 / ROUNDING_VARIANCE).all()
    table = model.consensus_.documents
    assert (table["grade"] == table["document"] % 3).all()
    assert (table["sd"] > 0.05).all()


def test_relevance_is_on_the_scale_of_the_grades() -> None:
    frame, *_ = crowd(4, grades=3)
    table = BWA().fit(frame).consensus_.documents
    wide = BWA().fit(read_judgments(frame.assign(grade=frame["grade"] + 5), grades="5-7")).consensus_.documents
    assert np.allclose(wide["relevance"], table["relevance"] + 5)
    assert np.allclose(wide["sd"], table["sd"])
    doubled = BWA().fit(read_judgments(frame.assign(grade=frame["grade"] * 2), grades="0,2,4")).consensus_.documents
    assert np.allclose(doubled["relevance"], 2 * table["relevance"])
    assert np.allclose(doubled["sd"], 2 * table["sd"])
    uneven = frame.assign(grade=frame["grade"].map({0: 0, 1: 1, 2: 5}))
    unanimous = pd.DataFrame({"document": -1, "assessor": range(20), "grade": 1})
    far = BWA().fit(read_judgments(pd.concat([uneven, unanimous]), grades="0,1,5")).consensus_.documents
    row = far[far["document"] == -1].iloc[0]
    assert row["relevance"] == pytest.approx(1, abs=0.2)
    assert row["grade"] == 1


def test_shares_are_the_mass_nearest_to_each_grade() -> None:
    shares = grade_probabilities(np.array([0.2, 3.0]), np.array([0.7, 1e-9]), np.arange(4.0), np.ones(4, bool))
    cuts = np.asarray(norm.cdf([0.5, 1.5, 2.5], 0.2, 0.7))
    assert np.allclose(shares[0], [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], 1 - cuts[2]])
    assert np.allclose(shares[1], [0, 0, 0, 1])


def test_a_grade_that_nobody_gave_has_probability_0() -> None:
    model = BWA().fit(GradeWorld((0, 3), (0.5, 0.5), 0.3).draw(0)[0])
    documents = model.consensus_.document_table.to_pandas()
    assert (documents[["p1", "p2", "p4"]] == 0).all(axis=None)
    assert np.allclose(documents["p0"] + documents["p3"], 1)
    votes = (
        model.judgments_.to_arrow()
        .to_pandas()
        .groupby("document")["grade"]
        .agg(lambda given: given.astype(int).mode()[0])
    )
    assert np.mean(documents.set_index("document")["grade"].loc[votes.index].astype(int) == votes) > 0.95


def test_a_fit_without_biases_may_start_from_one_with_them() -> None:
    frame, *_ = crowd(5, items=60, assessors=8, bias_sd=0.5)
    for bias in (True, False):
        cold = BWA(tol=1e-9, n_iter=3000, bias=bias).fit(frame)
        warm = BWA(tol=1e-9, n_iter=3000, bias=bias).fit(frame, init=BWA(bias=not bias).fit(frame))
        assert np.allclose(warm.consensus_.documents["relevance"], cold.consensus_.documents["relevance"], atol=0.01)


def test_bad_settings_are_refused() -> None:
    frame, *_ = crowd(0, items=5, assessors=3)
    with pytest.raises(UsageError, match=r"bias must be True or False, not 0\.5"):
        BWA(bias=0.5).fit(frame)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unjudgeable_as must be one of lowest, drop"):
        BWA(unjudgeable_as="model").fit(frame)


@pytest.mark.data
@pytest.mark.parametrize(
    ("bias", "expected"),
    [
        (False, {"AP": 0.746, "nDCG": 0.810, "Tau": 0.614}),
        (True, {"AP": 0.765, "nDCG": 0.817, "Tau": 0.642}),
    ],
)
def test_on_rf10_it_ranks_better_than_the_average(rf10: Judgments, bias: bool, expected: dict[str, float]) -> None:
    gold = dataset("trec-rf10").read_gold().frame
    run = BWA(bias=bias).fit(rf10).consensus_.documents
    assert evaluate(run, gold, ["AP", "nDCG", "Tau"], unjudged="skip").means == pytest.approx(expected, abs=0.005)
