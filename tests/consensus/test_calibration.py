"""Calibration of grade probabilities by expert grades."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

from crowdrank import GDA, MajorityVote, get_aggregator, read_gold, read_judgments, simulate
from crowdrank.consensus.calibration import (
    MIN_EXPERT_GRADES,
    RIDGES,
    Calibration,
    CalibrationFit,
    Quality,
    assign_folds,
    calibrate,
    calibrate_model,
    error_interval,
    expected_calibration_error,
    fit_calibration,
    grade_shares,
    log_losses,
    measure_quality,
)
from crowdrank.consensus.careful_assessor import careful_weights
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.errors import UsageError
from crowdrank.judgments.gold import ItemGold
from crowdrank.rankers.training_labels import read_labels


def draw(n: int, temperature: float, offsets: list[float], seed: int = 0) -> tuple[Any, Any, Any]:
    """Return probabilities, the grades that experts draw from their calibrated version, and queries of ten."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet([0.6] * len(offsets), n)
    right = np.exp(np.log(np.maximum(shares, 1e-6)) / temperature + offsets)
    right /= right.sum(axis=1, keepdims=True)
    code = (rng.random((n, 1)) > right.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return shares, np.eye(len(offsets), dtype=bool)[code], np.arange(n) // 10


def reference_parameters(shares: Any, allowed: Any, ridge: float) -> Any:
    """Minimize the penalized loss, written document by document, without a gradient."""

    def loss(parameters: Any) -> float:
        total = 0.5 * ridge * (parameters**2).sum()
        for row, grades in zip(shares, allowed, strict=True):
            odds = [max(p, 1e-6) ** np.exp(parameters[0]) * np.exp(b) for p, b in zip(row, parameters[1:], strict=True)]
            total -= np.log(sum(one for one, inside in zip(odds, grades, strict=True) if inside) / sum(odds))
        return float(total)

    return minimize(loss, np.zeros(shares.shape[1] + 1), method="BFGS", options={"gtol": 1e-5}).x


@pytest.mark.parametrize("sets", [False, True])
def test_parameters_minimize_the_penalized_log_loss(sets: bool) -> None:
    shares, allowed, query = draw(60, 4.0, [0.9, 0.0, -0.9])
    if sets:  # an expert of two grades, of which one stands for two
        allowed = np.where(allowed[:, :1], [[True, False, False]], [[False, True, True]])
    found = fit_calibration(shares, allowed, query).calibration
    assert found.is_applied
    assert found.ridge in RIDGES
    log_scale, *offsets = reference_parameters(shares, allowed, found.ridge)
    assert found.temperature == pytest.approx(np.exp(-log_scale), abs=1e-3)
    assert found.offsets == pytest.approx(offsets, abs=1e-3)


def test_held_out_probabilities_use_the_grades_of_other_folds() -> None:
    shares, allowed, query = draw(60, 2.5, [0.4, 0.0, -0.4])
    fit, fold = fit_calibration(shares, allowed, query), assign_folds(query)
    assert fit.calibration.ridge is not None
    for number in np.unique(fold):
        there = fold == number
        log_scale, *offsets = reference_parameters(shares[~there], allowed[~there], fit.calibration.ridge)
        expected = np.maximum(shares[there], 1e-6) ** np.exp(log_scale) * np.exp(offsets)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(fit.held_out[there], expected, atol=1e-3)


def test_a_known_temperature_and_known_offsets_are_found() -> None:
    shares, allowed, query = draw(5000, 2.0, [0.5, 0.0, -0.5])
    found = fit_calibration(shares, allowed, query).calibration
    assert found.temperature == pytest.approx(2.0, rel=0.05)
    assert found.offsets == pytest.approx((0.5, 0.0, -0.5), abs=0.1)
    assert found.before is not None
    assert found.after is not None
    assert found.after.calibration_error < 0.03 < found.before.calibration_error
    assert sum(one.documents for one in found.after.bins) == 5000


def test_calibrated_probabilities_stay_as_they_are() -> None:
    outcomes = []
    for seed in range(10):
        shares, allowed, query = draw(100, 1.0, [0.0, 0.0, 0.0], seed)
        fit = fit_calibration(shares, allowed, query)
        outcomes.append(fit.calibration.outcome)
        if not fit.calibration.is_applied:
            assert fit.held_out is shares
            assert fit.calibration.apply(shares) is shares
    assert outcomes.count("no-gain") >= 7


def test_few_expert_grades_calibrate_nothing() -> None:
    shares, allowed, query = draw(MIN_EXPERT_GRADES, 5.0, [0.0, 0.0])
    assert fit_calibration(shares[1:], allowed[1:], query[1:]).calibration.outcome == "few-grades"
    assert fit_calibration(shares, allowed, query).calibration.outcome != "few-grades"


def test_folds_are_whole_queries_or_documents_of_one_query() -> None:
    query = np.repeat(np.arange(12), 5)
    fold = assign_folds(query)
    assert all(len(np.unique(fold[query == one])) == 1 for one in range(12))
    assert np.bincount(fold).tolist() == [15, 15, 10, 10, 10]
    assert np.bincount(assign_folds(np.zeros(50, np.int64))).tolist() == [10] * 5
    assert len(np.unique(assign_folds(np.arange(40) // 20))) == 2


def test_grades_do_not_become_less_accurate() -> None:
    kept = 0
    for seed in range(20):
        shares, allowed, query = draw(100, 4.0, [0.3, 0.0, -0.3], seed)
        found = fit_calibration(shares, allowed, query).calibration
        if found.is_applied:
            assert found.before is not None
            assert found.after is not None
            assert found.keeps_grades == (found.after.accuracy < found.before.accuracy)
            kept += found.keeps_grades
    assert 0 < kept < 20


def test_expected_calibration_error_by_a_loop() -> None:
    shares, allowed, _ = draw(300, 2.0, [0.0, 0.0, 0.0])
    weight = np.random.default_rng(1).random(300)
    gap = 0.0
    for low in np.arange(10) / 10:
        there = [i for i in range(300) if low <= shares[i].max() < low + 0.1]
        gap += abs(sum(weight[i] * (shares[i].max() - allowed[i, shares[i].argmax()]) for i in there))
    assert expected_calibration_error(shares, allowed, weight) == pytest.approx(gap / weight.sum())


def test_the_interval_of_the_calibration_error_contains_that_of_other_documents() -> None:
    rng = np.random.default_rng(0)
    held, widths = [], []
    for n in (50, 200):
        hits = 0
        for _ in range(100):
            true = rng.integers(0, 2, n)
            answer = np.where(rng.random(n) < 0.7, true, 1 - true)
            shares = np.where(np.eye(2, dtype=bool)[answer], 0.85, 0.15)
            lower, upper = error_interval(shares, np.eye(2, dtype=bool)[true], np.zeros(n, int))
            hits += lower <= 0.15 <= upper
            widths.append((n, upper - lower))
        held.append(hits)
    assert min(held) >= 90
    assert np.mean([w for n, w in widths if n == 50]) > 1.5 * np.mean([w for n, w in widths if n == 200])


def test_the_text_of_a_calibration_has_intervals_also_if_nothing_was_calibrated() -> None:
    quality = Quality(0.031, 1.0, 0.6, (), (0.01, 0.07))
    kept = Calibration("no-gain", 50, before=quality, after=quality)
    assert "They stay as they are; on 50 expert grades, their expected calibration error is 0.031 (95% interval" in str(
        kept
    )
    applied = Calibration("calibrated", 50, 1.5, (0.1, -0.1), 1.0, before=quality, after=quality)
    assert str(applied).count("(95% interval 0.010 to 0.070)") == 2


def test_json_and_back() -> None:
    shares, allowed, query = draw(100, 3.0, [0.0, 0.0])
    found = fit_calibration(shares, allowed, query).calibration
    assert Calibration.load(found.to_dict()) == found
    assert Calibration.load(Calibration("few-grades", 3).to_dict()) == Calibration("few-grades", 3)


@pytest.fixture(scope="module")
def world() -> Any:
    return simulate(queries=40, documents=15, labels=4, assessors=30, honeypots=0, random_state=3)


@pytest.mark.parametrize("method", ["dawid-skene", "gda", "majority", "auto"])
def test_documents_with_expert_grades_keep_them_where_the_model_used_them(method: str, world: Any) -> None:
    half = world.gold.sample(frac=0.5, random_state=0)[["query", "document", "grade"]]
    parameters = {"candidates": ("average", "dawid-skene")} if method == "auto" else {}
    model = get_aggregator(method, **parameters).fit(world.judgments, half)
    before = model.consensus_.documents
    calibration = calibrate_model(model)
    after = model.consensus_.documents
    graded = after.merge(half, on=["query", "document"], how="left", suffixes=("", "_expert"))
    known = graded["grade_expert"].notna()
    assert calibration.n_expert_grades == len(half) == known.sum()
    assert (graded["grade"] == graded["grade_expert"])[known].all()
    names = list(dict.fromkeys([*model.consensus_.share_names, *model.consensus_.true_share_names]))
    pd.testing.assert_frame_equal(after[known][names], before[known][names])
    unchanged = [name for name in before if name not in {*names, "grade"}]
    pd.testing.assert_frame_equal(after[unchanged], before[unchanged])
    shares = before[~known][model.consensus_.share_names].to_numpy()
    for columns in (model.consensus_.share_names, model.consensus_.true_share_names):
        assert after[columns].sum(axis=1).to_numpy() == pytest.approx(1)
        if calibration.is_applied:  # P(true grade) is then P(expert grade), too
            np.testing.assert_allclose(after[~known][columns], calibration.apply(shares))


def test_probabilities_of_held_out_documents_improve(world: Any) -> None:
    half = world.gold.sample(frac=0.5, random_state=0)[["query", "document", "grade"]]
    model = MajorityVote().fit(world.judgments, half)
    rest = world.gold.merge(half[["query", "document"]], how="left", indicator=True).query("_merge == 'left_only'")
    losses = []
    for _ in range(2):
        known = model.consensus_.documents.merge(rest, on=["query", "document"], suffixes=("", "_expert"))
        allowed = np.eye(5, dtype=bool)[known["grade_expert"]]
        losses.append(log_losses(known[model.consensus_.share_names].to_numpy(), allowed).mean())
        calibrate_model(model)
    assert losses[1] < losses[0] - 0.1


def test_a_saved_model_has_its_calibrated_consensus(world: Any, tmp_path: Any) -> None:
    model = MajorityVote().fit(world.judgments, world.gold.head(200))
    assert calibrate_model(model).is_applied
    model.save(tmp_path / "model")
    loaded = MajorityVote.load(tmp_path / "model")
    assert loaded.consensus_.document_table.equals(model.consensus_.document_table)


def test_a_consensus_without_expert_grades_gets_cross_fitted_probabilities(world: Any) -> None:
    judgments = read_judgments(world.judgments)
    model = MajorityVote().fit(judgments)
    gold = read_gold(world.gold, scale=judgments.main_scale).for_items(judgments)
    query = judgments.item_query
    found, calibration = calibrate(model.consensus_, gold, query, grade_by="mode")
    graded = gold.code >= 0
    own = grade_shares(model.consensus_)
    assert gold.sets is not None
    fit: CalibrationFit = fit_calibration(own[graded], gold.sets[gold.code[graded]], query[graded], grade_by="mode")
    assert calibration == fit.calibration
    assert calibration.is_applied
    np.testing.assert_array_equal(grade_shares(found)[graded], fit.held_out)
    assert calibration.after == measure_quality(
        fit.held_out, gold.sets[gold.code[graded]], choose_grades(fit.held_out, "mode"), query[graded]
    )
    other = ItemGold(gold.code, 2, None)
    assert calibrate(model.consensus_, other, query, grade_by="mode")[1].outcome == "scales-differ"


def test_a_model_without_expert_grades_cannot_be_calibrated(world: Any) -> None:
    with pytest.raises(UsageError) as caught:
        calibrate_model(GDA().fit(world.judgments))
    assert caught.value.parameter == "gold"


DISCRETE = ("dawid-skene", "one-coin", "threshold-dawid-skene", "glad", "bwa")
"""Methods with a true grade."""


@pytest.mark.parametrize("method", DISCRETE)
def test_grade_labels_and_relevance_follow_from_the_true_grade(method: str, world: Any) -> None:
    model = get_aggregator(method).fit(world.judgments)
    table, names = model.consensus_.documents, model.consensus_.true_share_names
    assert names == [f"true{grade}" for grade in range(5)]
    true = table[names].to_numpy()
    assert table["grade"].tolist() == choose_grades(true, "median").tolist()
    assert np.abs(table[model.consensus_.share_names].to_numpy() - true).max() > 0.05
    np.testing.assert_array_equal(model.predict_proba().to_numpy(), true)
    np.testing.assert_array_equal(model.posterior()[names].to_numpy(), true)
    labels = read_labels(model).probabilities
    assert labels is not None
    np.testing.assert_allclose(labels, true, atol=1e-12)
    if method != "bwa":  # whose relevance is not the mean of grades
        assert table["relevance"].to_numpy() == pytest.approx(true @ np.arange(5))


@pytest.mark.parametrize("method", ["dawid-skene", "one-coin", "threshold-dawid-skene"])
def test_probabilities_are_answers_of_the_mean_assessor_by_judgments_and_squared_information(
    method: str, world: Any
) -> None:
    model = get_aggregator(method).fit(world.judgments)
    states = model.answer_states()
    assert states is not None
    likelihood, about = states[1], model.consensus_.assessors
    weights = (about["judgments"] * about["informativeness"] ** 2).to_numpy()
    careful = np.einsum("a,agc->gc", weights / weights.sum(), likelihood)
    table = model.consensus_.documents
    expected = table[model.consensus_.true_share_names].to_numpy() @ careful.T
    np.testing.assert_allclose(table[model.consensus_.share_names], expected, atol=1e-4)


def test_the_probabilities_of_glad_are_for_the_difficulty_of_the_document(world: Any) -> None:
    table = get_aggregator("glad").fit(world.judgments).consensus_.documents
    certain = table[table[[f"true{grade}" for grade in range(5)]].max(axis=1) > 0.999]
    chance = certain[[f"p{grade}" for grade in range(5)]].max(axis=1)
    assert len(certain) > 100
    assert chance.corr(certain["difficulty"], method="spearman") < -0.99


def test_the_probabilities_of_bwa_have_the_noise_of_one_more_answer() -> None:
    rows = {
        "document": list("aaabbbcccddd"),
        "assessor": list("xyz") * 4,
        "grade": [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 2],
    }
    model = get_aggregator("bwa").fit(pd.DataFrame(rows))
    bias, noise = model.assessor_estimator_.theta_["typical"]
    row = model.consensus_.documents.iloc[1]
    above = 1 - ndtr((1.5 - row["relevance"] - bias) / np.hypot(row["sd"], np.sqrt(noise)))
    assert row["p2"] + row["p3"] == pytest.approx(above)


def test_careless_assessors_hardly_count_as_careful() -> None:
    sharp, random = np.array([[0.9, 0.1], [0.1, 0.9]]), np.full((2, 2), 0.5)
    weights = careful_weights(np.array([10.0, 1000.0]), np.stack([sharp, random]), np.array([0.5, 0.5]))
    assert weights[0] > 0.999
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("method", DISCRETE)
def test_probabilities_do_not_depend_on_which_documents_are_inferred(method: str, world: Any) -> None:
    model = get_aggregator(method).fit(world.judgments)
    names = ["query", "document", *model.consensus_.share_names]
    part = world.judgments[world.judgments["query"] == world.judgments["query"].iloc[0]]
    whole = model.consensus_.documents.merge(part[["query", "document"]].drop_duplicates())
    pd.testing.assert_frame_equal(model.infer(part).documents[names], whole[names], atol=1e-9)
