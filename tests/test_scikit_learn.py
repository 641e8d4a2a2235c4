"""Estimators work with scikit-learn: clone, check_is_fitted, Pipeline, GridSearchCV and cross_val_score."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import crowdrank
from crowdrank import GLS, DawidSkene, Ensemble, GDAPairwiseMART, LambdaMART, LinearRemapper, get_policy
from crowdrank.errors import UsageError
from crowdrank.simulation.world import World

pytest.importorskip("sklearn")
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

TREES: dict[str, Any] = {"n_estimators": 10, "num_leaves": 8, "min_child_samples": 5, "n_jobs": 1}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=30, documents=8, labels=3, random_state=4)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def rows(world: World) -> tuple[Any, Any, Any]:
    X = world.features.drop(columns=["query", "document"])
    return X, world.gold["grade"].to_numpy(), world.gold["query"].to_numpy()


def test_clone_and_check_is_fitted(world: World) -> None:
    X, y, query = rows(world)
    aggregator = DawidSkene(prior=(1.0, 0.1)).fit(world.judgments)
    ranker = LambdaMART(**TREES).fit(X, y, query=query)
    small = crowdrank.simulate(queries=40, documents=10, label_grades=2, gold_queries=20, random_state=1)
    remapper = LinearRemapper("T", n_iter=2, tree_features=0).fit(small.judgments, small.features, small.gold)
    for fitted in (aggregator, ranker, remapper):
        check_is_fitted(fitted)
        copy = clone(fitted)
        assert copy.get_params() == fitted.get_params()
        with pytest.raises(NotFittedError):
            check_is_fitted(copy)
    policy = get_policy("if-good-4", good=1.0)
    assert clone(policy).get_params() == policy.get_params()
    assert get_tags(ranker).estimator_type == "ranker"


def test_clone_keeps_fitted_models_that_a_ranker_learns_from(world: World) -> None:
    model = crowdrank.GDAPairwise().fit(world.judgments)
    assert clone(GDAPairwiseMART(model)).model is model
    members = [GLS().fit(*rows(world)[:2], query=rows(world)[2])]
    assert clone(Ensemble(members, prefit=True)).members is members


def test_a_frame_with_queries_needs_no_metadata_routing(world: World) -> None:
    groups = world.features["query"]
    scores = cross_val_score(
        LambdaMART(**TREES), world.features, world.gold["grade"], groups=groups, cv=GroupKFold(3), error_score="raise"
    )
    expected = []
    for train, test in GroupKFold(3).split(world.features, groups=groups):
        ranker = LambdaMART(**TREES).fit(world.features.iloc[train], world.gold["grade"].iloc[train])
        expected.append(ranker.score(world.features.iloc[test], world.gold["grade"].iloc[test]))
    assert scores == pytest.approx(expected)
    assert min(scores) > 0.6


@pytest.mark.usefixtures("routing")
def test_cross_val_score_routes_the_query(world: World) -> None:
    X, y, query = rows(world)
    options: dict[str, Any] = {"cv": GroupKFold(3), "params": {"query": query, "groups": query}, "error_score": "raise"}
    scores = cross_val_score(LambdaMART(**TREES), X.to_numpy(), y, **options)
    assert scores == pytest.approx(
        cross_val_score(LambdaMART(**TREES), world.features, y, cv=GroupKFold(3), params={"groups": query})
    )


@pytest.mark.usefixtures("routing")
def test_grid_search_routes_the_query(world: World) -> None:
    X, y, query = rows(world)
    grid = {"n_estimators": [1, 10]}
    search = GridSearchCV(LambdaMART(**TREES), grid, cv=GroupKFold(3), error_score="raise")
    search.fit(X, y, query=query, groups=query)
    assert search.best_params_ == {"n_estimators": 10}
    assert search.best_estimator_.feature_names_in_.tolist() == list(X.columns)
    assert search.score(X, y, query=query) == pytest.approx(search.best_estimator_.score(X, y, query=query))


@pytest.mark.usefixtures("routing")
def test_a_pipeline_scales_fits_and_scores(world: World) -> None:
    X, y, query = rows(world)
    pipeline = make_pipeline(StandardScaler(), LambdaMART(**TREES))
    pipeline.fit(X, y, query=query)
    check_is_fitted(pipeline)
    assert pipeline.score(X, y, query=query) > 0.8
    search = GridSearchCV(pipeline, {"lambdamart__num_leaves": [2, 8]}, cv=GroupKFold(3), error_score="raise")
    search.fit(X, y, query=query, groups=query)
    assert search.best_estimator_[-1].num_leaves in (2, 8)
    assert search.predict(X).shape == (len(y),)


def test_a_pipeline_passes_the_query_of_its_ranker(world: World) -> None:
    X, y, query = rows(world)
    pipeline = make_pipeline(StandardScaler(), GLS()).fit(X, y, gls__query=query)
    assert pipeline.predict(X).shape == (len(y),)


def search_grid(X: Any, y: Any, query: Any, **options: Any) -> Any:
    return GridSearchCV(LambdaMART(**TREES), {"num_leaves": [2, 8]}, cv=GroupKFold(2), **options).fit(
        X, y, query=query, groups=query
    )


def search_randomly(X: Any, y: Any, query: Any, **options: Any) -> Any:
    search = RandomizedSearchCV(
        LambdaMART(**TREES), {"num_leaves": [2, 8]}, n_iter=2, cv=GroupKFold(2), random_state=0, **options
    )
    return search.fit(X, y, query=query, groups=query)


def search_pipeline(X: Any, y: Any, query: Any, **options: Any) -> Any:
    pipeline = make_pipeline(StandardScaler(), LambdaMART(**TREES))
    search = GridSearchCV(pipeline, {"lambdamart__num_leaves": [2, 8]}, cv=GroupKFold(2), **options)
    return search.fit(X, y, lambdamart__query=query, groups=query)


def cross_validate(X: Any, y: Any, query: Any, **options: Any) -> Any:
    params = {"query": query}
    return cross_val_score(LambdaMART(**TREES), X, y, cv=GroupKFold(2), groups=query, params=params, **options)


@pytest.mark.parametrize("function", [search_grid, search_randomly, search_pipeline, cross_validate])
def test_a_query_that_score_does_not_get_is_refused(function: Callable[..., Any], world: World) -> None:
    X, y, query = rows(world)
    with pytest.raises(UsageError) as refused:
        function(X, y, query, error_score="raise")
    assert (refused.value.kind, refused.value.parameter) == ("not-routed", "query")
    with pytest.raises(ValueError, match="fits failed") as failed:
        function(X, y, query)
    assert str(refused.value) in str(failed.value)
    with pytest.raises(ValueError, match="fits failed"):
        function(X.to_numpy(), y, query, error_score=0.0)


def test_other_scores_need_no_query(world: World) -> None:
    X, y, query = rows(world)
    search = search_grid(X, y, query, scoring="neg_mean_squared_error")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_search_over_a_frame_with_queries_may_get_them_again(world: World) -> None:
    _, y, query = rows(world)
    search = search_grid(world.features, y, query)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.usefixtures("routing")
def test_weights_are_requested_by_the_user(world: World) -> None:
    X, y, query = rows(world)
    weight = np.where(np.arange(len(y)) % 2, 1.0, 0.5)
    ranker = LambdaMART(**TREES).set_fit_request(sample_weight="importance").set_score_request(sample_weight=False)
    search = GridSearchCV(ranker, {"num_leaves": [8]}, cv=GroupKFold(2), error_score="raise")
    search.fit(X, y, query=query, groups=query, importance=weight)
    expected = LambdaMART(**TREES).fit(X, y, query=query, sample_weight=weight).predict(X)
    assert np.array_equal(search.predict(X), expected)
    assert clone(ranker).get_metadata_routing().fit.requests["sample_weight"] == "importance"
    with pytest.raises(UsageError) as caught:
        ranker.set_fit_request(weights=True)
    assert caught.value.kind == "unknown-name"
    refused = GridSearchCV(LambdaMART(**TREES), {"num_leaves": [8]}, cv=GroupKFold(2))
    with pytest.raises(ValueError, match="sample_weight"):
        refused.fit(X, y, query=query, groups=query, sample_weight=weight)


def test_scores_of_weighted_queries(world: World) -> None:
    X, y, query = rows(world)
    ranker = GLS().fit(X, y, query=query)
    first, second = (query == name for name in np.unique(query)[:2])
    both = first | second
    alone = [ranker.score(X[part], y[part], query=query[part]) for part in (first, second)]
    weight = np.where(first, 3.0, 1.0)[both]
    found = ranker.score(X[both], y[both], query=query[both], sample_weight=weight)
    assert found == pytest.approx((3 * alone[0] + alone[1]) / 4)


def test_scikit_learn_is_imported_only_when_it_asks() -> None:
    code = (
        "import sys, crowdrank; crowdrank.GLS().set_score_request(query=True).unfitted(); crowdrank.DawidSkene();"
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
