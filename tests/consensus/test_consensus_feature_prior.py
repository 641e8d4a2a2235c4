"""Test the prior of relevance from features."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import (
    GDA,
    DawidSkene,
    GDAPairwise,
    MajorityVote,
    OneCoinDawidSkene,
    ThresholdDawidSkene,
    read_features,
    read_judgments,
)
from crowdrank.consensus.feature_prior import SCORE_BINS, GradePrior, log_node_priors
from crowdrank.consensus.feature_scores import (
    assign_folds,
    cross_fit,
    fit_ridge,
    permutation_z_score,
    scale_within_groups,
    usable_features,
)
from crowdrank.consensus.latent import DIFFICULTIES, standard_nodes, states_prior
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.posterior_check import check
from crowdrank.engine.passes import LocalEngine
from crowdrank.engine.shards import Shard, split_into_shards
from crowdrank.errors import DataWarning, InputError, UsageError
from crowdrank.rankers.training_labels import read_labels

RHO = 0.8


def crowd(queries: int = 30, documents: int = 20, labels: int = 2, rho: float = RHO, seed: int = 0) -> Any:
    """Return judgments and features drawn from the model, and the relevance of each document."""
    rng = np.random.default_rng(seed)
    n, n_assessors = queries * documents, 12
    signal, noise = rng.normal(size=n), rng.normal(size=(n, 2))
    relevance = rho * signal + np.sqrt(1 - rho**2) * rng.normal(size=n)
    frame = pd.DataFrame(
        {"query": np.repeat([f"q{q}" for q in range(queries)], documents), "document": [f"d{d}" for d in range(n)]}
    )
    item = np.repeat(np.arange(n), labels)
    assessor = np.concatenate([rng.choice(n_assessors, labels, replace=False) for _ in range(n)])
    slope = rng.uniform(1.0, 2.0, n_assessors)[assessor]
    score = np.arange(3) * slope[:, None] * relevance[item, None] - np.array([0.0, 0.5, 2.0])
    grade = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    judgments = frame.iloc[item].assign(assessor=[f"a{a}" for a in assessor], grade=grade)
    features = frame.assign(bm25=signal + 5, length=noise[:, 0], age=noise[:, 1])
    return judgments.reset_index(drop=True), features, relevance


@pytest.fixture(scope="module")
def world() -> Any:
    return crowd()


@pytest.fixture(scope="module")
def fitted(world: Any) -> GDA:
    judgments, features, _ = world
    return GDA().fit(judgments, features=features)


def estimates(model: Aggregator, name: str = "relevance") -> np.ndarray[Any, Any]:
    """Return a column of the consensus in the order of the documents."""
    table = model.consensus_.documents
    return np.asarray(table.set_index(table["document"].str[1:].astype(int))[name].sort_index())


# Fits.


def test_informative_features_bring_relevance_closer_to_the_truth(world: Any, fitted: GDA) -> None:
    judgments, _, relevance = world
    plain = GDA().fit(judgments)
    error, plain_error = (np.mean((estimates(model) - relevance) ** 2) for model in (fitted, plain))
    assert error < 0.8 * plain_error
    assert estimates(fitted, "sd").mean() < 0.9 * estimates(plain, "sd").mean()


def test_the_weight_is_the_correlation_of_relevance_and_prediction(world: Any, fitted: GDA) -> None:
    assert fitted.feature_scores_ is not None
    correlation = np.corrcoef(fitted.feature_scores_.score, world[2])[0, 1]
    assert fitted.theta_["feature_weight"][0] == pytest.approx(correlation, abs=0.06)
    assert fitted.consensus_.features_used == ("bm25", "length", "age")


@pytest.mark.parametrize("model", [GDA(), DawidSkene(), ThresholdDawidSkene(), GDAPairwise()], ids=str)
def test_useless_features_leave_the_fit_as_it_is(model: Any) -> None:
    judgments, features, _ = crowd(queries=60, rho=0.0, seed=1)
    plain = model.unfitted().fit(judgments)
    with pytest.warns(DataWarning) as caught:
        model = model.unfitted().fit(judgments, features=features)
    assert [getattr(warning.message, "kind", None) for warning in caught] == ["useless-features"]
    assert model.consensus_.features_used == ()
    assert model.consensus_.document_table.equals(plain.consensus_.document_table)


@pytest.mark.parametrize("rho", [0.0, RHO])
def test_intervals_cover_the_truth(rho: float) -> None:
    covered = []
    for seed in range(3):
        judgments, features, relevance = crowd(queries=60, rho=rho, seed=seed)
        model = GDA().fit(judgments, features=features)
        covered.append((estimates(model, "lower") <= relevance) & (relevance <= estimates(model, "upper")))
    assert 0.93 <= np.mean(covered) <= 0.97


def test_documents_without_labels_get_a_wide_interval(world: Any) -> None:
    judgments, features, relevance = world
    hidden = features["document"].isin([f"d{d}" for d in range(0, 600, 3)])
    model = GDA().fit(judgments[~judgments["document"].isin(features["document"][hidden])], features=features)
    table = model.consensus_.documents
    predicted = table[table["judgments"] == 0]
    assert len(table) == 600
    assert set(predicted["document"]) == set(features["document"][hidden])
    truth = relevance[predicted["document"].str[1:].astype(int)]
    assert np.corrcoef(predicted["relevance"], truth)[0, 1] > 0.6
    assert np.mean((predicted["lower"] <= truth) & (truth <= predicted["upper"])) > 0.9
    assert predicted["sd"].min() > table["sd"][table["judgments"] > 0].mean()
    assert predicted[["p0", "p1", "p2"]].sum(axis=1).to_numpy() == pytest.approx(1)
    assert len(model.consensus_.document_table) == model.judgments_.n_items


def test_a_fit_does_not_depend_on_shards_and_is_repeatable(world: Any, fitted: GDA) -> None:
    judgments, features, _ = world
    again = GDA().fit(judgments, features=features)
    assert again.consensus_.document_table.equals(fitted.consensus_.document_table)
    sharded = GDA().fit(judgments, features=features, engine=LocalEngine(n_jobs=2, shard_size=100))
    assert estimates(sharded) == pytest.approx(estimates(fitted), abs=1e-6)


def test_a_saved_model_keeps_scores_and_predictions(world: Any, tmp_path: Path) -> None:
    judgments, features, _ = world
    few = judgments[judgments["document"] != "d0"]
    model = GDA().fit(few, features=features)
    model.save(tmp_path / "model")
    loaded = GDA.load(tmp_path / "model")
    assert loaded.consensus_.features_used == model.consensus_.features_used
    assert loaded.consensus_.documents.equals(model.consensus_.documents)
    assert loaded.infer(few).document_table.equals(model.infer(few).document_table)
    added = loaded.add(judgments[judgments["document"] == "d0"])
    assert added.consensus_.prediction_table is None
    assert added.consensus_.features_used == model.consensus_.features_used


def test_a_fit_from_a_model_with_features_may_have_none(world: Any, fitted: GDA, tmp_path: Path) -> None:
    judgments, _, _ = world
    plain = GDA().fit(judgments, init=fitted)
    assert plain.consensus_.features_used == ()
    assert "prior_relevance" not in plain.consensus_.documents
    plain.save(tmp_path / "model")
    assert "feature_weight" not in GDA.load(tmp_path / "model").theta_


def test_an_interrupted_fit_goes_on(world: Any, fitted: GDA, tmp_path: Path) -> None:
    judgments, features, _ = world

    def interrupt(*progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GDA().fit(judgments, features=features, checkpoint=tmp_path / "state", progress=interrupt)
    assert (tmp_path / "state").exists()
    with pytest.raises(InputError) as error:
        GDA().fit(judgments, checkpoint=tmp_path / "state")
    assert error.value.kind == "other-fit"
    resumed = GDA().fit(judgments, features=features, checkpoint=tmp_path / "state")
    assert resumed.consensus_.document_table.equals(fitted.consensus_.document_table)


def test_rankers_warn_of_labels_that_used_features(fitted: GDA) -> None:
    for labels in (fitted, fitted.consensus_.documents):
        with pytest.warns(DataWarning) as caught:
            read_labels(labels)
        assert [getattr(warning.message, "kind", None) for warning in caught] == ["features-used"]


@pytest.mark.parametrize("model", [MajorityVote(), GDA(estimation="joint")])
def test_models_without_a_prior_refuse_features(world: Any, model: Aggregator) -> None:
    judgments, features, _ = world
    with pytest.raises(UsageError) as error:
        model.fit(judgments, features=features)
    assert error.value.kind == "no-prior"


@pytest.mark.parametrize("options", [{"difficulty": True}, {"unjudgeable_as": "model"}, {"families": "none"}])
def test_all_variants_of_gda_take_features(world: Any, options: dict[str, Any]) -> None:
    judgments, features, relevance = world
    model = GDA(n_iter=10, tol=1.0, **options).fit(judgments, features=features)
    assert np.corrcoef(estimates(model), relevance)[0, 1] > 0.8


CLASS_MODELS: list[Any] = [
    DawidSkene(),
    OneCoinDawidSkene(),
    ThresholdDawidSkene(),
    ThresholdDawidSkene(grade_prior="learned", unjudgeable_as="model"),
]


@pytest.mark.parametrize("model", CLASS_MODELS, ids=str)
def test_models_of_true_grades_learn_a_prior_per_document(world: Any, tmp_path: Path, model: Any) -> None:
    judgments, features, relevance = world
    plain = estimates(model.unfitted().fit(judgments))
    few = judgments[judgments["document"] != "d0"]
    model = model.unfitted().fit(few, features=features)
    found = estimates(model)
    assert np.corrcoef(found, relevance)[0, 1] > np.corrcoef(plain, relevance)[0, 1] + 0.01
    assert model.theta_["feature_slope"][0] > 0.2
    table = model.consensus_.documents
    assert table[["p0", "p1", "p2"]].sum(axis=1).to_numpy() == pytest.approx(1)
    assert table["judgments"].tolist().count(0) == 1
    assert np.corrcoef(table["prior_relevance"], table["relevance"])[0, 1] > 0.3
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert loaded.consensus_.documents.equals(table)
    assert loaded.infer(few).document_table.equals(model.infer(few).document_table)


@pytest.mark.parametrize("options", [{}, {"difficulty": True, "partners": 3}])
def test_pairs_take_the_same_prior(world: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    judgments, features, relevance = world
    few = judgments[judgments["document"] != "d0"]
    model, plain = GDAPairwise(**options).fit(few, features=features), GDAPairwise(**options).fit(judgments)
    query = np.repeat(np.arange(30), 20)
    truth = relevance - (np.bincount(query, relevance) / 20)[query]
    error, plain_error = (np.mean((estimates(one) - truth) ** 2) for one in (model, plain))
    assert error < 0.9 * plain_error
    covered = (estimates(model, "lower") <= truth) & (truth <= estimates(model, "upper"))
    assert 0.93 <= covered.mean() <= 0.985  # without features 0.95 to 0.97
    table = model.consensus_.documents
    assert table["judgments"].tolist().count(0) == 1
    assert table[["p0", "p1", "p2"]].sum(axis=1).to_numpy() == pytest.approx(1)
    model.save(tmp_path / "model")
    assert GDAPairwise.load(tmp_path / "model").consensus_.documents.equals(table)


@pytest.mark.parametrize("model", [GDA(), GDAPairwise(), ThresholdDawidSkene(unjudgeable_as="model")], ids=str)
def test_judgments_are_predicted_with_the_prior(world: Any, model: Any) -> None:
    judgments, features, _ = world
    table = read_judgments(judgments)
    plain, found = model.unfitted().fit(table), model.unfitted().fit(table, features=features)
    assert check(found, table).log_score > check(plain, table).log_score


def test_single_labels_do_not_make_the_prior_explain_everything() -> None:
    judgments, features, relevance = crowd(queries=60, labels=1)
    with pytest.warns(DataWarning):
        plain, model = GDA().fit(judgments), GDA().fit(judgments, features=features)
    assert 0.4 < model.theta_["feature_weight"][0] < 0.9
    error, plain_error = (np.mean((estimates(one) - relevance) ** 2) for one in (model, plain))
    assert error < plain_error
    with pytest.warns(DataWarning):
        classes = DawidSkene().fit(judgments, features=features)
    assert classes.theta_["feature_slope"][0] == 0


# Bad input.


def kinds(judgments: Any, features: Any) -> list[str]:
    """Return the kinds of warnings about the features of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GDA(n_iter=5, tol=1.0).fit(judgments, features=features)
    return [warning.message.kind for warning in caught if isinstance(warning.message, DataWarning)]


def test_bad_features_warn_once_each(world: Any) -> None:
    judgments, features, _ = world
    assert kinds(judgments, features) == []
    assert kinds(judgments, features[::2]) == ["incomplete-features"]
    assert kinds(judgments, features.assign(length=1.0, age=2.0)) == ["constant-features"]
    assert kinds(judgments, features[["query", "document"]].assign(zero=0.0)) == ["constant-features"]
    assert kinds(judgments, features.assign(age=features["age"].where(features["age"] > 0))) == ["missing-features"]
    assert kinds(judgments, features[:10]) == ["few-labeled-documents"]
    assert kinds(judgments[judgments["query"] == "q0"], features) == ["one-query"]


def test_unusable_features_leave_the_fit_as_it_is(world: Any) -> None:
    judgments, features, _ = world
    plain = GDA().fit(judgments)
    with pytest.warns(DataWarning):
        model = GDA().fit(judgments, features=features.assign(bm25=0.0, length=0.0, age=0.0))
    assert model.consensus_.features_used == ()
    assert model.consensus_.document_table.equals(plain.consensus_.document_table)


def test_documents_without_features_keep_the_plain_prior(world: Any) -> None:
    judgments, features, _ = world
    with pytest.warns(DataWarning):
        model = GDA().fit(judgments, features=features[::2])
    prior = estimates(model, "prior_relevance")
    assert np.all(prior[1::2] == 0)
    assert np.std(prior[::2]) == pytest.approx(model.theta_["feature_weight"][0], rel=0.1)


# Parts.


def shard_with(score: Any, n: int = 2) -> Shard:
    """Return a shard of `n` items with scores."""
    frame = pd.DataFrame({"document": [f"d{i}" for i in range(n)], "assessor": "a", "grade": [i % 2 for i in range(n)]})
    (shard,) = split_into_shards(read_judgments(frame), scores=(np.asarray(score, float),))
    return shard


@settings(max_examples=30, deadline=None)
@given(score=st.floats(-3, 3), weight=st.floats(0, 0.95), n_nodes=st.sampled_from([21, 41]))
def test_node_priors_equal_their_definition(score: float, weight: float, n_nodes: int) -> None:
    nodes = standard_nodes(n_nodes)
    shares = np.append(0.9 * states_prior(DIFFICULTIES, n_nodes), 0.1)
    found = np.exp(log_node_priors(shard_with([score, np.nan]), weight, shares, nodes))
    density = np.exp(-0.5 * (nodes - weight * score) ** 2 / (1 - weight**2))
    eps = np.exp(-0.5 * (np.log(DIFFICULTIES) / 0.5) ** 2)
    expected = 0.9 * np.outer(eps / eps.sum(), density / density.sum()).ravel()
    assert found[0] == pytest.approx(np.append(expected, 0.1), abs=1e-12)
    assert found[1] == pytest.approx(shares, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), slope=st.floats(0.0, 2.0), n_states=st.integers(2, 5))
def test_the_ordinal_regression_finds_its_parameters(seed: int, slope: float, n_states: int) -> None:
    levels, rng = np.arange(n_states), np.random.default_rng(seed)
    truth = GradePrior(rng.normal(size=n_states), slope, np.full(n_states, 1 / n_states))
    p = truth.probabilities(SCORE_BINS, levels)
    found = GradePrior(np.zeros(n_states), 0.5, truth.shares)
    for _ in range(5):
        found = found.updated(1000 * p, levels)
    assert found.slope == pytest.approx(slope, abs=0.02)
    assert found.probabilities(SCORE_BINS, levels) == pytest.approx(p, abs=0.01)


def test_grade_priors_equal_their_definition() -> None:
    prior = GradePrior(np.array([0.5, 0.0, -0.5]), 0.7, np.array([0.5, 0.3, 0.2]))
    shares, score = np.array([1 / 3, 1 / 3, 1 / 3]), np.array([1.5, np.nan])
    found = np.exp(prior.log_priors(score, np.arange(3), shares))
    odds = np.exp([0.5, 0.7 * 1.5, -0.5 + 0.7 * 2 * 1.5])
    expected = odds / odds.sum() / prior.shares
    assert found[0] == pytest.approx(expected / expected.sum())
    assert found[1] == pytest.approx(shares)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), n_groups=st.integers(1, 8))
def test_no_row_is_predicted_from_its_own_group(seed: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    group, labeled = rng.integers(0, n_groups, 60), rng.random(60) < 0.7
    fold = assign_folds(group, labeled, seed)
    n_labeled = len(np.unique(group[labeled]))
    for number in range(fold.max() + 1):
        inside = fold == number
        assert inside.any()
        if n_labeled > 1:
            assert not set(group[inside]) & set(group[~inside & labeled])
    assert (fold[labeled] >= 0).all()


def test_out_of_fold_predictions_of_noise_are_not_correlated_with_it() -> None:
    rng = np.random.default_rng(0)
    matrix, target, group = rng.random((2000, 5)), rng.normal(size=2000), np.repeat(np.arange(100), 20)
    score = cross_fit(matrix, target, group, seed=0)
    assert abs(np.corrcoef(score, target)[0, 1]) < 0.06


def test_shuffled_scores_have_standard_normal_z() -> None:
    rng = np.random.default_rng(0)
    target, group = rng.exponential(size=600), np.repeat(np.arange(40), 15)
    found = [permutation_z_score(target[rng.permutation(600)], target, group) for _ in range(400)]
    assert np.mean(found) == pytest.approx(0, abs=0.15)
    assert np.std(found) == pytest.approx(1, abs=0.1)
    assert permutation_z_score(target, target, group) > 10


def test_ridge_equals_the_normal_equations_and_fills_missing_values() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.random((300, 3))
    target = matrix @ [1.0, -2.0, 0.0] + 0.1 * rng.normal(size=300)
    predicted = fit_ridge(matrix, target)(matrix)
    design = np.column_stack([np.ones(300), matrix])
    assert predicted == pytest.approx(design @ np.linalg.lstsq(design, target, rcond=None)[0], abs=0.01)
    missing = rng.random(300) < 0.3
    matrix[missing, 0] = np.nan
    target[missing] = 3.0 - 2.0 * matrix[missing, 1]
    again = fit_ridge(matrix, target)(matrix)
    assert np.mean((again - target) ** 2) < 0.05


def test_scaling_keeps_missing_values_and_ignores_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    matrix, group = rng.normal(size=(50, 2)), rng.integers(0, 5, 50)
    matrix[::7, 0] = np.nan
    scaled, order = scale_within_groups(matrix, group), rng.permutation(50)
    assert scale_within_groups(matrix[order], group[order]) == pytest.approx(scaled[order], nan_ok=True)
    for one in range(5):
        assert np.nanmin(scaled[group == one], axis=0) == pytest.approx(0)
        assert np.nanmax(scaled[group == one], axis=0) == pytest.approx(1)
    assert np.array_equal(np.isnan(scaled), np.isnan(matrix))


def test_ids_of_features_may_be_numbers_or_text() -> None:
    judgments, features, _ = crowd(queries=4, documents=10)
    numbered = judgments.assign(query=judgments["query"].str[1:].astype(int))
    prior, found = usable_features(
        read_features(features.assign(query=features["query"].str[1:])), read_judgments(numbered)
    )
    assert prior is not None
    assert not found
    assert (np.concatenate(prior.rows) == np.arange(40)).all()
