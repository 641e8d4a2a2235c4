"""Checks that a ranker satisfies its contract."""

from __future__ import annotations

import inspect
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._typing import Floats
from crowdrank.errors import InputError, NotFittedError, UsageError
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import ConstantFeatureWarning, MissingValueWarning, Ranker
from crowdrank.rankers.training_data import FeatureStatistics, RankingData
from crowdrank.rankers.training_labels import Instances
from crowdrank.readers.features import read_features
from crowdrank.simulation.world import World, simulate
from crowdrank.testing.estimator_checks import assert_arrays_equal, frame_converters, raises, record_warnings

MIN_NDCG_GAIN = 0.15
"""Minimum difference in nDCG@5 between a ranker and constant scores, on the training queries."""
FIT_KEYWORD_DEFAULTS: dict[str, Any] = {"query": None, "sample_weight": None, "eval_set": None, "progress": False}
"""Keyword arguments that fit must have, with their defaults."""


@cache
def example_world() -> World:
    """Return the synthetic queries, features, judgments and expert grades that the checks fit rankers to."""
    return simulate(queries=40, documents=8, labels=3, random_state=4)


def _feature_matrix() -> Floats:
    """Return the features of the example."""
    frame = example_world().features.drop(columns=["query", "document"])
    matrix: Floats = frame.to_numpy()
    return matrix


def _fit_arguments(ranker: Ranker, rows: Any = slice(None)) -> dict[str, Any]:
    """Return the arguments of fit besides the features, for some rows of the example."""
    gold = example_world().gold.iloc[rows]
    arguments = {"y": gold["grade"].to_numpy(), "query": gold["query"].to_numpy()}
    takes_document = "document" in inspect.signature(ranker.fit).parameters
    return {**arguments, "document": gold["document"].to_numpy()} if takes_document else arguments


def _fit_copy(ranker: Ranker, X: Any = None, **changes: Any) -> Ranker:
    """Return a copy of the ranker, fitted to the example with some arguments changed."""
    return ranker.unfitted().fit(_feature_matrix() if X is None else X, **{**_fit_arguments(ranker), **changes})


def _query_ids() -> Any:
    """Return the query id of each row of the example."""
    return example_world().gold["query"].to_numpy()


def _validation_rows() -> Any:
    """Return a mask of the rows that checks use for validation: those of the last ten queries."""
    query = _query_ids()
    return np.isin(query, np.unique(query)[-10:])


def check_signatures(ranker: Ranker) -> None:
    """Check the arguments of fit and predict, and that there is a parameter random_state."""
    fit = inspect.signature(type(ranker).fit).parameters
    assert list(fit)[:3] == ["self", "X", "y"], "fit must begin with X and y"
    for name, default in FIT_KEYWORD_DEFAULTS.items():
        assert name in fit, f"fit must have the argument {name}"
        assert fit[name].kind == inspect.Parameter.KEYWORD_ONLY, f"{name} must be a keyword argument of fit"
        assert fit[name].default == default, f"the default of {name} in fit must be {default}"
    predict = list(inspect.signature(type(ranker).predict).parameters)
    assert predict == ["self", "X", "query"], f"predict must have the arguments X and query, not {predict[1:]}"
    assert "random_state" in type(ranker)._parameter_names(), "a ranker must have the parameter random_state"


def check_predict_needs_fit(ranker: Ranker) -> None:
    """Check that predict and score raise NotFittedError before fit."""
    with raises(NotFittedError, "predict before fit"):
        ranker.predict(np.eye(2), query=[1, 1])
    with raises(NotFittedError, "score before fit"):
        ranker.score(np.eye(2), [0, 1], query=[1, 1])


def check_learns_to_rank(ranker: Ranker) -> None:
    """Check that the ranker is better than constant scores on its training queries, and that importances sum to 1."""
    world, X = example_world(), _feature_matrix()
    assert ranker.fit(X, **_fit_arguments(ranker)) is ranker, "fit must return the ranker itself"
    scores = ranker.predict(X, query=_query_ids())
    assert scores.shape == (len(X),), f"predict must return one score per row, not {scores.shape}"
    assert np.isfinite(scores).all(), "scores must be finite"
    run = world.gold[["query", "document"]].assign(score=scores)
    learned, constant = (evaluate(one, world.gold, "nDCG@5").means["nDCG@5"] for one in (run, run.assign(score=0.0)))
    assert learned > constant + MIN_NDCG_GAIN, f"nDCG@5 is {learned:.3f}, and {constant:.3f} for constant scores"
    assert ranker.feature_importances_.shape == (X.shape[1],), "feature_importances_ must have one value per feature"
    assert (ranker.feature_importances_ >= 0).all(), "feature_importances_ must not be negative"
    assert np.isclose(ranker.feature_importances_.sum(), 1), "feature_importances_ must sum to 1"


def check_same_seed_same_scores(ranker: Ranker) -> None:
    """Check that two fits with the same random state give the same scores."""
    one, two = (_fit_copy(ranker).predict(_feature_matrix(), _query_ids()) for _ in range(2))
    assert_arrays_equal(one, two, "the same random_state")


def check_score_is_ndcg(ranker: Ranker) -> None:
    """Check that score returns the mean nDCG@10, weighted by query."""
    world, X, query = example_world(), _feature_matrix(), _query_ids()
    fitted, y = _fit_copy(ranker), world.gold["grade"].to_numpy()
    run = world.gold[["query", "document"]].assign(score=fitted.predict(X, query))
    expected = evaluate(run, world.gold, "nDCG@10", ties="expected").means["nDCG@10"]
    found = fitted.score(X, y, query=query)
    assert np.isclose(found, expected), f"score must be the mean nDCG@10, {expected:.4f}, not {found:.4f}"
    only = query == query[0]
    alone, weighted = fitted.score(X[only], y[only], query=query[only]), np.where(only, 1.0, 0.0)
    found = fitted.score(X, y, query=query, sample_weight=weighted)
    assert np.isclose(found, alone), "queries of weight 0 must not count"


def check_feature_names(ranker: Ranker) -> None:
    """Check that n_features_in_ and feature_names_in_ are set as in scikit-learn."""
    frame = example_world().features.drop(columns=["query", "document"])
    named, unnamed = _fit_copy(ranker, frame), _fit_copy(ranker)
    assert named.n_features_in_ == unnamed.n_features_in_ == frame.shape[1], "n_features_in_ must count features"
    assert isinstance(named.feature_names_in_, np.ndarray), "feature_names_in_ must be an array"
    assert named.feature_names_in_.tolist() == list(frame.columns), "feature_names_in_ must be the names of X"
    assert not hasattr(unnamed, "feature_names_in_"), "a matrix has no names: there must be no feature_names_in_"


def check_save_and_load(ranker: Ranker) -> None:
    """Check that a loaded ranker gives the same scores, and that save writes no pickle files."""
    X, query = _feature_matrix(), _query_ids()
    fitted = _fit_copy(ranker, example_world().features.drop(columns=["query", "document"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranker"
        for _ in range(2):  # the second replaces the first
            fitted.save(path)
        suffixes = {one.suffix for one in path.rglob("*") if one.is_file()}
        assert suffixes <= {".json", ".parquet", ".txt"}, f"save must write JSON, Parquet and text, not {suffixes}"
        for loader in (type(ranker), Ranker):
            loaded = loader.load(path)
            assert type(loaded) is type(ranker), "load must return a ranker of the same class"
            assert loaded.features_ == fitted.features_, "load must restore the names of features"
            assert_arrays_equal(loaded.feature_importances_, fitted.feature_importances_, "load")
            for name, array in FeatureStatistics.from_matrix(X).arrays.items():
                assert loaded.feature_statistics_ is not None, "load must restore the statistics of features"
                assert_arrays_equal(loaded.feature_statistics_.arrays[name], array, "load")
            assert_arrays_equal(loaded.predict(X, query), fitted.predict(X, query), "load")
            loaded.save(Path(folder) / "again")


def check_damaged_files_are_refused(ranker: Ranker) -> None:
    """Check that load refuses a ranker whose files are truncated, missing or of another format version."""
    fitted = _fit_copy(ranker)
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder) / "whole", Path(folder) / "part"
        fitted.save(whole)
        files = [one.relative_to(whole) for one in whole.rglob("*") if one.is_file()]
        assert len(files) > 1, "save must write a manifest and other files"
        for name in files:
            shutil.rmtree(part, ignore_errors=True)
            fitted.save(part)
            content = (part / name).read_bytes()
            (part / name).write_bytes(content[: len(content) // 2])
            with raises(InputError, f"a truncated {name}"):
                type(ranker).load(part)
            (part / name).unlink()
            with raises(InputError, f"a missing {name}"):
                type(ranker).load(part)
        manifest = json.loads((whole / MANIFEST_FILE_NAME).read_text())
        (whole / MANIFEST_FILE_NAME).write_text(json.dumps({**manifest, "format": 7, "crowdrank": "9.1"}))
        with raises(InputError, "a saved ranker of another format"):
            type(ranker).load(whole)


def check_frames_of_any_library(ranker: Ranker) -> None:
    """Check that scores do not depend on the DataFrame library, the order of columns or the presence of id columns."""
    world, query = example_world(), _query_ids()
    frame, y = world.features.drop(columns=["query", "document"]), world.gold["grade"].to_numpy()
    expected = _fit_copy(ranker).predict(_feature_matrix(), query)
    for library in frame_converters():
        fitted = _fit_copy(ranker, library(frame))
        assert fitted.features_ == tuple(frame.columns), "the names of columns must be kept"
        assert_arrays_equal(fitted.predict(library(frame), query), expected, "a frame")
        assert_arrays_equal(fitted.predict(frame[frame.columns[::-1]], query), expected, "columns in another order")
        with_ids = ranker.unfitted().fit(library(world.features), y)
        assert with_ids.features_ == tuple(frame.columns), "columns with ids must not become features"
        assert_arrays_equal(with_ids.predict(library(world.features)), expected, "a frame with ids")
        assert with_ids.validation_queries_ == (), "without eval_set there must be no validation queries"
    assert_arrays_equal(_fit_copy(ranker, read_features(world.features)).predict(frame, query), expected, "Features")


def check_scores_of_one_query(ranker: Ranker) -> None:
    """Check that the scores of a query do not depend on other queries, nor on `query` unless `scores_within_query`."""
    X, query = _feature_matrix(), _query_ids()
    fitted, first = _fit_copy(ranker), query == query[0]
    expected = fitted.predict(X, query)[first]
    assert np.allclose(fitted.predict(X[first], query[first]), expected), "other queries must not change scores"
    if not fitted.scores_within_query:
        assert np.allclose(fitted.predict(X[first]), expected), "without scores_within_query, query must not matter"
        assert np.allclose(fitted.predict(X[:1]), expected[:1]), "a document must have the same score on its own"


def check_missing_columns_are_named(ranker: Ranker) -> None:
    """Check that predict raises an error with the name of a missing feature."""
    world, query = example_world(), _query_ids()
    fitted, frame = _fit_copy(ranker, world.features), world.features.drop(columns=["query", "document"])
    for X in (world.features, frame):
        with raises(InputError, "predict without the feature f7") as caught:
            fitted.predict(X.drop(columns="f7"), query)
        assert "'f7'" in str(caught.error), "the error must name the feature"
    with raises(InputError, "predict with too few features"):
        fitted.predict(_feature_matrix()[:, :3], query)


def check_constant_labels_are_refused(ranker: Ranker) -> None:
    """Check that fit refuses labels that do not differ within any query."""
    X, arguments = _feature_matrix(), _fit_arguments(ranker)
    n, of_query = len(X), np.unique(arguments["query"], return_inverse=True)[1] % 3
    for y in (np.full(n, 2), of_query, np.tile([0.5, 0.25, 0.25], (n, 1))):
        with raises(InputError, "labels that are equal within queries", kind="no-differences"):
            ranker.fit(X, **{**arguments, "y": y})
    first = example_world().features.groupby("query").head(1).index
    with raises(InputError, "one document per query", kind="no-differences"):
        ranker.fit(X[first], **_fit_arguments(ranker, first))


def check_validation_queries(ranker: Ranker) -> None:
    """Check that history_ and validation_queries_ are set from the validation queries, and saved."""
    world, X, late = example_world(), _feature_matrix(), _validation_rows()
    held_out, reported = _fit_arguments(ranker, late), []
    fitted = ranker.unfitted().fit(
        X[~late],
        **_fit_arguments(ranker, ~late),
        eval_set=(X[late], held_out["y"], held_out["query"]),
        progress=lambda *step: reported.append(step),
    )
    assert fitted.history_, "history_ must have the validation measure"
    assert all(0 < value <= 1 for value in fitted.history_), f"nDCG must lie in (0, 1]: {fitted.history_}"
    iterations = [number for number, *_ in reported]
    assert all(1 <= number <= total for number, total, _ in reported), f"progress must count iterations: {reported}"
    assert len(set(iterations)) == len(iterations) or min(iterations) == 1, "progress must begin with iteration 1"
    train, later = Instances.from_labels(world.gold, world.features, missing="skip").split(0.25, random_state=1)
    fitted = ranker.unfitted().fit(**train.arguments, eval_set=later.eval_set)
    names = tuple(later.features.query.unique().to_pylist())
    assert fitted.validation_queries_ == names, "validation_queries_ must be the ids of the validation queries"
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "ranker")
        loaded = Ranker.load(Path(folder) / "ranker")
    assert loaded.validation_queries_ == names, "load must restore validation_queries_"
    assert fitted.fit(**train.arguments).validation_queries_ == (), "a second fit must forget validation queries"


def check_history_uses_validation_queries(ranker: Ranker) -> None:
    """Check that history_ is computed on the validation queries: reversed grades must lower its gain over chance."""
    X, late = _feature_matrix(), _validation_rows()
    held_out = _fit_arguments(ranker, late)
    gains = []
    for y in (held_out["y"], held_out["y"].max() - held_out["y"]):
        options: Any = {"eval_set": (X[late], y, held_out["query"])}
        fitted = ranker.unfitted().fit(X[~late], **_fit_arguments(ranker, ~late), **options)
        data = RankingData.from_ids(X[late], y, held_out["query"])
        measure = Validation(data, getattr(ranker, "validate_by", "nDCG@10"), getattr(ranker, "gains", "exponential"))
        gains.append(max(fitted.history_) - measure(np.zeros(len(y))))
    assert gains[0] > gains[1], f"reversed validation grades must lower the measure: {gains}"


def check_unsorted_queries(ranker: Ranker) -> None:
    """Check that rows that are not sorted by query give the same scores and one warning."""
    X, query = _feature_matrix(), _query_ids()
    mixed = np.argsort(example_world().gold.groupby("query").cumcount().to_numpy(), kind="stable")
    with record_warnings() as found:
        ranker.fit(X[mixed], **_fit_arguments(ranker, mixed))
    assert len(found) == 1, f"rows that are not sorted by query must give one warning, not {found}"
    expected = _fit_copy(ranker).predict(X, query)
    assert_arrays_equal(ranker.predict(X, query), expected, "unsorted rows")
    close = np.allclose(ranker.predict(X[mixed], query[mixed]), expected[mixed], rtol=1e-12, atol=1e-12)
    assert close, "predict must return scores in the order of the rows"


def check_one_hot_probabilities_fit_like_grades(ranker: Ranker) -> None:
    """Check that labels that are grade probabilities of 0 and 1 give the same scores as the grades."""
    X, query, arguments = _feature_matrix(), _query_ids(), _fit_arguments(ranker)
    one, other = _fit_copy(ranker), _fit_copy(ranker, y=np.eye(5)[arguments["y"]])
    assert np.allclose(one.predict(X, query), other.predict(X, query), atol=1e-9), "labels must mean the same"


def check_missing_and_constant_features(ranker: Ranker) -> None:
    """Check the warnings for missing and constant features and the error for infinite ones; scores must be finite."""
    X = _feature_matrix().copy()
    X[:, 0], X[::3, 1], X[:, 2] = 7.0, np.nan, np.nan
    with record_warnings() as found:
        fitted = _fit_copy(ranker, X)
    constant = [one.kind for one in found if isinstance(one, ConstantFeatureWarning)]
    assert sorted(constant) == ["constant-features", "missing-features"], f"constant features must be named: {found}"
    others = [one for one in found if not isinstance(one, ConstantFeatureWarning)]
    expected = all(isinstance(one, MissingValueWarning) and "(f2)" in str(one) for one in others)
    assert expected, f"only missing values may give further warnings: {others}"
    assert ranker.handles_missing or others, "a ranker that replaces missing values must warn"
    assert np.isfinite(fitted.predict(X, _query_ids())).all(), "scores must be finite"
    assert fitted.feature_importances_[0] == fitted.feature_importances_[2] == 0, (
        "constant features must have no importance"
    )
    with raises(InputError, "features that are all constant", kind="no-features"):
        _fit_copy(ranker, np.full_like(X, 3.0))
    X[4, 3] = np.inf
    with raises(InputError, "an infinite feature") as caught:
        _fit_copy(ranker, X)
    assert caught.error.location.column == "f4", "the error must name the column"


def check_invalid_arguments(ranker: Ranker) -> None:
    """Check that invalid queries, weights, labels and validation sets are refused."""
    n = len(_feature_matrix())
    changes: dict[str, dict[str, Any]] = {
        "no query": {"query": None},
        "two query ids for many rows": {"query": [1, 2]},
        "negative weights": {"sample_weight": np.full(n, -1.0)},
        "weights of NaN": {"sample_weight": np.full(n, np.nan)},
        "weights that are text": {"sample_weight": ["much"]},
        "two weights for many rows": {"sample_weight": [1.0, 2.0]},
        "weights of 0": {"sample_weight": np.zeros(n)},
        "an eval_set without queries": {"eval_set": ("X", "y")},
        "labels of NaN": {"y": np.full(n, np.nan)},
        "one label for many rows": {"y": [1]},
        "probabilities that do not sum to 1": {"y": np.ones((n, 2))},
        "labels that are text": {"y": ["good"] * n},
    }
    for situation, change in changes.items():
        with raises((InputError, UsageError), situation):
            _fit_copy(ranker, **change)
    with raises(UsageError, "random_state=-1", parameter="random_state"):
        _fit_copy(ranker.unfitted().set_params(random_state=-1))
