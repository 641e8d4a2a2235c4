"""Outputs of trees as features (REMAP 5.2): Proposition 1, cross-fitting, and the rankers that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GLS, RD, PointwiseGBDT, TreeFeatureGLS, TreeFeatures
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import RankingData
from crowdrank.rankers.tree_features import tree_outputs
from crowdrank.simulation.world import simulate

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 40) -> Set:
    made = simulate(queries=queries, documents=12, random_state=seed)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def test_outputs_of_trees_sum_to_the_score() -> None:
    X, y, query = world()
    trees = PointwiseGBDT(n_estimators=12).fit(X, y, query=query)
    assert np.allclose(tree_outputs(trees, X).sum(axis=1), trees.predict(X))


@settings(max_examples=8)
@given(seed=st.integers(0, 1000))
def test_proposition_1_training_error_is_never_worse(seed: int) -> None:
    X, y, query = world(seed, queries=12)
    weight = np.random.default_rng(seed).uniform(0.1, 2, len(y))
    extended = GLS(mu=0, tree_features=15).fit(X, y, query=query, sample_weight=weight)
    plain = GLS(mu=0).fit(X, y, query=query, sample_weight=weight)
    assert extended.tree_features_ is not None

    def error(score: Floats) -> float:
        return float((weight * (score - y) ** 2).sum())

    bound = min(error(plain.predict(X)), error(extended.tree_features_.trees_.predict(X)))
    assert error(extended.predict(X)) <= bound + 1e-6


def test_columns_are_standardized() -> None:
    X, y, query = world()
    weight = np.random.default_rng(1).uniform(0.1, 2, len(y))
    columns = TreeFeatures(20).fit_transform(X, y, query, weight)
    assert np.allclose(np.average(columns, axis=0, weights=weight), 0, atol=1e-9)
    assert np.allclose(np.average(columns**2, axis=0, weights=weight), 1)


def test_cross_fitted_columns_are_aligned_with_later_ones() -> None:
    """The n-th column means the same for training rows and for other rows, also for late trees."""
    X, y, query = world(queries=80)
    transformer = TreeFeatures(60, folds=5)
    cross_fitted, in_sample = transformer.fit_transform(X, y, query), transformer.transform(X)
    correlations = [np.corrcoef(cross_fitted[:, n], in_sample[:, n])[0, 1] for n in (0, 20, 50)]
    assert min(correlations) > 0.5


def test_cross_fitting_reduces_the_fit_to_noise() -> None:
    X, y, query = world()
    noise = np.random.default_rng(0).permutation(y)
    fits = {}
    for folds in (0, 4):
        transformer = TreeFeatures(30, folds=folds)
        columns = transformer.fit_transform(X, noise, query) * transformer.standardizer_.scale
        fits[folds] = np.corrcoef(columns.sum(axis=1), noise)[0, 1]
    assert fits[4] < fits[0] - 0.03  # no more: the splits have seen the labels


def test_labels_of_a_query_do_not_change_its_own_cross_fitted_columns() -> None:
    X, y, query = world()
    transformer = TreeFeatures(10, folds=4, random_state=3).fit(X, y, query)
    data = RankingData.from_ids(X, y, query)
    first = data.query == 0
    before, after = (
        transformer._cross_fitted(data, target) for target in (data.grade, np.where(first, 4 - data.grade, data.grade))
    )
    np.testing.assert_array_equal(before[first], after[first])
    assert (before[~first] != after[~first]).any()


def test_folds_of_cross_fitting_are_those_of_the_seed() -> None:
    X, y, query = world(queries=20)
    one, same, other = (TreeFeatures(5, folds=4, random_state=seed).fit_transform(X, y, query) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_cross_fitting_in_any_order_of_rows() -> None:
    X, y, query = world(queries=20)
    mixed = np.random.default_rng(0).permutation(len(y))
    with pytest.warns(UserWarning, match="sorted by query"):
        columns = TreeFeatures(5).fit_transform(X[mixed], y[mixed], query[mixed])
    assert columns.shape == (len(y), 5)
    fitted = TreeFeatures(5)
    assert np.array_equal(fitted.fit_transform(X, y), fitted.transform(X))


def test_a_transformer_is_saved_and_loaded(tmp_path: Path) -> None:
    X, y, query = world(queries=20)
    transformer = TreeFeatures(8).fit(X, y, query)
    transformer.save(tmp_path / "trees")
    assert np.array_equal(TreeFeatures.load(tmp_path / "trees").transform(X), transformer.transform(X))
    with pytest.raises(InputError):
        Ranker.load(tmp_path / "trees")


def test_fewer_trees_are_the_first_ones() -> None:
    X, y, query = world()
    many, few = (TreeFeatures(n).fit(X, y, query) for n in (20, 8))
    assert np.array_equal(many.first(8).transform(X), few.transform(X))
    assert many.first(8).n_trees_ == 8


def test_validation_chooses_the_number_of_trees_and_the_ridge() -> None:
    X, y, query = world(queries=60)
    held_out = world(seed=7)
    ranker = GLS("auto", tree_features="auto").fit(X, y, query=query, eval_set=held_out)
    n_trees = 0 if ranker.tree_features_ is None else ranker.tree_features_.n_trees_
    assert n_trees in (0, 100, 200, 300)
    alone = GLS(ranker.mu_, tree_features=n_trees).fit(X, y, query=query, eval_set=held_out)
    assert np.allclose(alone.predict(X), ranker.predict(X))
    assert max(ranker.history_) == pytest.approx(alone.history_[0])
    for parameters in ({"tree_features": "auto"}, {"mu": (1.0, 10.0)}):
        with pytest.raises(UsageError) as caught:
            GLS(**parameters).fit(X, y, query=query)
        assert (caught.value.kind, caught.value.parameter) == ("no-validation", next(iter(parameters)))


@pytest.mark.parametrize("ranker", [GLS(10.0), GLS(10.0, tree_features=20), TreeFeatureGLS(20)])
def test_refit_keeps_the_trees(ranker: GLS) -> None:
    X, y, query = world(queries=20)
    ranker.fit(X, y, query=query)
    same = ranker.refit(X, y, query=query, mu=ranker.mu_)
    assert np.allclose(same.predict(X), ranker.predict(X))
    other = ranker.refit(X, 1.0 - y, query=query, mu=ranker.mu_)
    assert other.tree_features_ is ranker.tree_features_
    assert np.allclose(other.coef_, -ranker.coef_)
    assert other.get_params() == same.get_params()


@pytest.mark.parametrize("ranker", [GLS(10.0, tree_features=20), TreeFeatureGLS(20), RD(GLS(10.0, tree_features=20))])
def test_rankers_with_trees_are_saved_and_loaded(ranker: Ranker, tmp_path: Path) -> None:
    X, y, query = world(queries=20)
    ranker.fit(X, y, query=query).save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker")
    assert np.array_equal(loaded.predict(X), ranker.predict(X))
    assert np.array_equal(loaded.fit(X, y, query=query).predict(X), ranker.predict(X))
    assert ranker.feature_importances_.shape == (X.shape[1],)


def test_invalid_parameters_are_refused() -> None:
    X, y, query = world(queries=3)
    for parameters, name in (({"folds": 1}, "folds"), ({"n_trees": 0}, "n_trees"), ({"num_leaves": 1}, "num_leaves")):
        with pytest.raises(UsageError) as caught:
            TreeFeatures(**parameters).fit(X, y, query)
        assert caught.value.parameter == name
    with pytest.raises(InputError) as few:
        TreeFeatures(folds=5).fit(X, y, query)
    assert few.value.kind == "few-queries"
    with pytest.raises(UsageError) as missing:
        TreeFeatures(folds=5).fit(X, y)
    assert missing.value.parameter == "query"
