"""Test estimates from documents drawn with known probabilities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from estimation_worlds import World, make_world

import crowdrank
from crowdrank._typing import Floats
from crowdrank.collection.compare_runs import CompareRuns
from crowdrank.estimation.by_document import (
    N_FOLDS,
    ByDocumentEstimator,
    Sample,
    calibrate_gains,
    document_weights,
    estimate_by_document,
)
from crowdrank.estimation.joined_runs import join_runs
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.evaluation.measures import parse_measure

WORLD = make_world()


def drawn(world: World, probability: Floats, seed: int) -> pd.DataFrame:
    """Return the expert grades of documents that are drawn independently with these probabilities."""
    sample = world.truth.assign(probability=probability)
    return sample[np.random.default_rng(seed).random(len(sample)) < probability]


@pytest.mark.parametrize("measure", ["DCG@5", "nDCG@5", "P(rel=2)@5", "nDCG", "DCG(dcg='log2')@3"])
def test_weighted_gains_are_the_measure_also_with_ties(measure: str) -> None:
    runs = {"tied": WORLD.runs["live"].assign(score=lambda run: run["score"].round())}
    joined = join_runs(runs, WORLD.labels, None)
    weight, parsed = document_weights(joined.first, parse_measure(measure)), parse_measure(measure)
    nothing = Sample(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))
    by_document = estimate_by_document(
        [joined.first], joined.queries, joined.is_labeled, nothing, parsed, np.random.default_rng(0)
    )
    assert len(weight) == len(WORLD.labels)
    assert by_document.labels[:, 0] == pytest.approx(evaluate(runs["tied"], WORLD.labels, measure).values(measure))


@pytest.mark.parametrize("measure", ["DCG@5", "P@3"])
def test_grades_of_all_documents_give_the_value_of_the_experts(measure: str) -> None:
    expert = WORLD.truth.assign(probability=1.0)
    result = crowdrank.estimate(WORLD.runs, WORLD.labels, expert, measure=measure)
    expected = [evaluate(run, WORLD.truth, measure).means[measure] for run in WORLD.runs.values()]
    truth = [evaluate(run, WORLD.truth, measure, no_relevant="zero").means[measure] for run in WORLD.runs.values()]
    assert result.unit == "document"
    assert result.table["estimate"].tolist() == pytest.approx(truth)
    assert result.table["experts_only"].tolist() == pytest.approx(truth)
    assert expected != pytest.approx(result.table["labels_only"].tolist(), abs=0.01)


def test_estimates_of_many_samples_have_the_true_mean_although_the_labels_are_biased() -> None:
    probability = np.random.default_rng(1).uniform(0.1, 0.6, len(WORLD.truth))
    truth = [evaluate(run, WORLD.truth, "DCG@5", no_relevant="zero").means["DCG@5"] for run in WORLD.runs.values()]
    tables = [
        crowdrank.estimate(WORLD.runs, WORLD.labels, drawn(WORLD, probability, seed), measure="DCG@5").table
        for seed in range(60)
    ]
    for column, target in (("estimate", truth), ("experts_only", truth)):
        values = np.array([table[column] for table in tables])
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        assert np.all(np.abs(values.mean(axis=0) - target) < 4 * error), column
    assert abs(tables[0]["labels_only"][1] - truth[1]) > 0.5
    spread = [np.std([table[column][1] for table in tables]) for column in ("estimate", "experts_only")]
    assert spread[0] < 0.8 * spread[1]


def test_draws_are_combined_and_a_known_document_counts_exactly() -> None:
    rng, tables, singles = np.random.default_rng(2), [], []
    truth = evaluate(WORLD.runs["new"], WORLD.truth, "DCG@5", no_relevant="zero").means["DCG@5"]
    for _ in range(60):
        is_first = rng.random(len(WORLD.truth)) < 0.2
        is_second = ~is_first & (rng.random(len(WORLD.truth)) < 0.3)
        draws = WORLD.truth.assign(probability=np.where(is_first, 0.2, 0.3), draw=np.where(is_first, 1, 2))
        both = draws[is_first | is_second]
        tables.append(crowdrank.estimate(WORLD.runs, WORLD.labels, both, measure="DCG@5").table["estimate"][1])
        first = draws[is_first]
        singles.append(crowdrank.estimate(WORLD.runs, WORLD.labels, first, measure="DCG@5").table["estimate"][1])
    assert abs(np.mean(tables) - truth) < 4 * np.std(tables, ddof=1) / np.sqrt(60)
    assert np.std(tables) < 0.85 * np.std(singles)


def test_expert_grades_of_a_query_do_not_change_its_own_predictions() -> None:
    rng, n = np.random.default_rng(0), 200
    predicted, fold = rng.uniform(0, 3, n + 1), rng.integers(0, N_FOLDS, n + 1)
    sample = Sample(np.arange(n), np.zeros(n), rng.uniform(0.2, 1, n), np.ones(n))
    truth = predicted[:n] + rng.normal(0, 0.5, n)
    is_first = fold == 0
    before, after = (
        calibrate_gains(predicted, fold, sample, gains)[0]
        for gains in (truth, np.where(is_first[:n], 9 - truth, truth))
    )
    np.testing.assert_array_equal(before[is_first], after[is_first])
    assert (before[~is_first] != after[~is_first]).all()


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_intervals_cover_the_difference(bias: float) -> None:
    world, measure = make_world(3000, bias=bias, seed=4), parse_measure("nDCG@5")
    joined = join_runs(world.runs, world.labels, None)
    runs, rng = list(joined.alignments.values()), np.random.default_rng(6)
    everything = Sample(np.arange(len(world.truth)), world.truth["grade"].to_numpy(float), *np.ones((2, 36000)))
    by_query = estimate_by_document(runs, joined.queries, joined.is_labeled, everything, measure, rng)
    contrast = np.array([-1.0, 1.0])
    target = float((by_query.corrected @ contrast).mean())
    query = np.repeat(np.arange(3000), 12)
    covered, n_worlds = 0, 250
    for _ in range(n_worlds):
        queries = np.sort(rng.choice(3000, 100, replace=False))
        probability = rng.uniform(0.1, 0.4, len(query))
        row = np.flatnonzero(np.isin(query, queries) & (rng.random(len(query)) < probability))
        sample = Sample(row, everything.grade[row], probability[row], np.ones(len(row)))
        values = estimate_by_document(runs, queries, joined.is_labeled, sample, measure, rng)
        estimate = values.estimate(contrast, 0.95)
        covered += estimate.lower <= target <= estimate.upper
    assert 0.92 <= covered / n_worlds <= 0.975


@pytest.mark.parametrize(("n_clear", "is_bound"), [(3, True), (4, False)])
def test_differences_far_below_the_largest_do_not_count_when_few_queries_show_one(n_clear: int, is_bound: bool) -> None:
    differences = np.full(10, 0.019)
    differences[:n_clear] = [0.2, 0.15, 0.1, 0.021][:n_clear]
    values = np.column_stack([np.full(10, 0.5), 0.5 + differences])
    estimator = ByDocumentEstimator(values, values, values, 1.0, np.zeros((40, 2)), np.zeros(10, np.bool_))
    estimate = estimator.estimate(np.array([-1.0, 1.0]), 0.95)
    assert estimate.is_bound == is_bound
    assert (estimate.lower < -0.15) == (estimate.upper > 0.15) == is_bound
    assert not is_bound or estimate.p >= 0.25


@pytest.mark.parametrize("share", [1e-2, 1e-6, 1e-12, 0.0])
def test_a_query_without_relevant_labels_does_not_dominate(share: float) -> None:
    world = make_world(60, seed=4)
    labels = world.labels.copy()
    labels.loc[labels["query"] == "q0", ["p0", "p1", "p2", "p3"]] = [1 - share, share, 0.0, 0.0]
    requests = CompareRuns(world.runs, labels).next(world.truth[["query", "document"]], budget=100).frame
    expert = requests.merge(world.truth, on=["query", "document"])
    table = crowdrank.estimate(world.runs, labels, expert).table
    assert table["estimate"].between(0, 1.2).all()
    assert table["difference"].abs().max() < 0.3


def test_a_sample_without_relevant_documents_leaves_the_labels_of_the_others() -> None:
    world = make_world(60, seed=4)
    requests = CompareRuns(world.runs, world.labels).next(world.truth[["query", "document"]], budget=20).frame
    table = crowdrank.estimate(world.runs, world.labels, requests.assign(grade=0)).table
    assert (table["estimate"] >= 0).all()
    assert (table["upper"] > table["lower"]).all()
    assert table["difference_upper"][1] > table["difference_lower"][1]
    assert table["difference"][1] == table["estimate"][1] - table["estimate"][0]


@pytest.mark.parametrize("n", [0, 5, 1000])
def test_gains_are_calibrated_towards_the_labels(n: int) -> None:
    rng = np.random.default_rng(3)
    predicted, fold = rng.uniform(0, 3, 1001), rng.integers(0, N_FOLDS, 1001)
    sample = Sample(np.arange(n), np.zeros(n), np.full(n, 0.5), np.ones(n))
    calibrated, slope = calibrate_gains(predicted, fold, sample, 0.5 * predicted[:n])
    mean = float((calibrated / predicted).mean())
    assert {0: mean == 1, 5: 0.6 < mean < 0.95, 1000: mean == pytest.approx(0.5, abs=0.02)}[n]
    assert slope == pytest.approx(mean, abs=0.1)
